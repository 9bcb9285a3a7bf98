/* rounded.h -- 16-bit copies of float32 arrays that several products of a GPU read.
 *
 * An op names the array and the memory of its copy. From then on each kernel that writes the array
 * must write the copy as well (see rounded_device.h), and products of 16 bits read the copy. So a
 * number is rounded once. If two named arrays overlap, the one named last counts. */
#ifndef RD_ROUNDED_H
#define RD_ROUNDED_H

#include "rd/gpu.h"

RD_C_BEGIN

/* Names the array x [n] and its copy, narrow [n], of rd_gpu_narrow's type. Both are borrowed until
 * rd_gpu_rounded_end. */
rd_code rd_gpu_rounded_begin(rd_gpu *g, const float *x, int64_t n, void *narrow, rd_status *st);
/* Forgets all arrays. */
void rd_gpu_rounded_end(rd_gpu *g);
/* Returns the copy of the element at x. NULL: it has none. */
void *rd_gpu_rounded_of(const rd_gpu *g, const float *x);

RD_C_END
#endif
