/* comm_window.h -- sums among the ranks of one host through memory they share; between hosts, MPI goes on from
 * there. */
#ifndef RD_COMM_WINDOW_H
#define RD_COMM_WINDOW_H

#include "rd/status.h"
#include <mpi.h>
#include <stdint.h>

typedef struct rd_window rd_window;

/* Collective on world. local: the ranks of this host; crowded: they are more than its processors. *out is NULL, with
 * RD_OK and the reason in why, when some host cannot share memory; then it is NULL on all ranks. */
rd_code rd_window_new(MPI_Comm world, MPI_Comm local, bool crowded, rd_window **out, char why[200], rd_status *st);
void rd_window_free(rd_window *w); /* NULL is fine */

/* Collective. In place, in rank order inside a host; the same bytes on all ranks. */
rd_code rd_window_sum_f32(rd_window *w, float *x, int64_t n, rd_status *st);
rd_code rd_window_sum_f64(rd_window *w, double *x, int64_t n, rd_status *st);
size_t rd_window_piece_bytes(const rd_window *w);

/* The one place that knows MPI's errors: "MPI_Allreduce(...): <the library's text>". */
rd_code rd_mpi_result(int rc, const char *call, const char *where, rd_status *st);
#define RD_MPI(call, st) rd_mpi_result((call), #call, RD_HERE, (st))

#endif
