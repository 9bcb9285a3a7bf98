/* cross_wire.h -- conversion of float32 to and from the type that numbers have between hosts. */
#ifndef RD_CROSS_WIRE_H
#define RD_CROSS_WIRE_H

#include "rd/comm.h"
#include <stddef.h>

/* Returns the bytes of one number. */
size_t rd_wire_bytes(rd_wire w);
/* Writes x[n], rounded to nearest, ties to even, to out[n]. */
void rd_wire_narrow(rd_wire w, const float *x, int64_t n, void *out);
/* Writes in[n] to x[n]. */
void rd_wire_widen(rd_wire w, const void *in, int64_t n, float *x);
/* Rounds x[n] to the type and back. */
void rd_wire_round(rd_wire w, float *x, int64_t n);

#endif
