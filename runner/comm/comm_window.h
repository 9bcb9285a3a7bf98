/* comm_window.h -- sums among the ranks of one host through memory they share; between hosts, MPI goes on from
 * there. */
#ifndef RD_COMM_WINDOW_H
#define RD_COMM_WINDOW_H

#include "rd/status.h"
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

enum { RD_MAX_LOCAL = 1024 }; /* ranks of a host that share memory */

typedef struct rd_window rd_window;
struct rd_window {
    MPI_Comm cross;     /* owners of the same slice on all hosts; MPI_COMM_NULL on one host or for no owner */
    int me, n_local, n_owners, n_hosts, spins;
    unsigned turn;      /* which of the two slots comes next */
    uint32_t n_barriers;
    size_t piece, bytes;
    unsigned char *map;
};


/* Collective on world. local: the ranks of this host; crowded: they are more than its processors. *out is NULL, with
 * RD_OK and the reason in why, when some host cannot share memory; then it is NULL on all ranks. */
rd_code rd_window_new(MPI_Comm world, MPI_Comm local, bool crowded, rd_window **out, char why[200], rd_status *st);
void rd_window_free(rd_window *w); /* NULL is fine */

/* Collective. In place, along a fixed binary tree over the ranks of a host; the same bytes on all ranks. */
rd_code rd_window_sum_f32(rd_window *w, float *x, int64_t n, rd_status *st);
rd_code rd_window_sum_f64(rd_window *w, double *x, int64_t n, rd_status *st);
/* Collective among the ranks of a host. Also orders memory: what a rank wrote before it, all read after it. */
void rd_window_barrier(rd_window *w);
size_t rd_window_piece_bytes(const rd_window *w);

int rd_tree_split(int n); /* n > 1 terms: how many the left branch of the tree has */
/* x[r][at .. at + n) = sum over r < k of x[r][at .. at + n), along the tree; k > 1. */
void rd_tree_sum_all(float *const *x, int k, size_t at, size_t n);

/* Collective on cross. x[n], n <= RD_CROSS_FLOATS: in place, the sum over its ranks. spare: [RD_CROSS_FLOATS / 2]. */
enum { RD_CROSS_FLOATS = 1 << 20 }; /* at a time, so that they stay in the last cache */
rd_code rd_cross_sum(MPI_Comm cross, float *x, int64_t n, float *spare, rd_status *st);

/* ---- arenas: memory that all ranks of a host reach, so that sums need no copy ---- */
typedef struct rd_shared_arena rd_shared_arena;
/* Collective on world. n floats a rank, zero. *out is NULL on all ranks, with RD_OK and the reason in why, where some
 * host cannot share so much. The window is borrowed. */
rd_code rd_arena_share(rd_window *w, MPI_Comm world, MPI_Comm local, int64_t n, rd_shared_arena **out, char why[200],
                       rd_status *st);
void rd_arena_unshare(rd_shared_arena *a); /* NULL is fine; not collective */
float *rd_arena_mine(const rd_shared_arena *a);
bool rd_arena_holds(const rd_shared_arena *a, const float *x); /* does x lie in this rank's part? */
/* Collective. Elements x .. x + n of this rank's part, at the same place on every rank, become the sum over all ranks. */
rd_code rd_arena_sum(rd_shared_arena *a, float *x, int64_t n, rd_status *st);

/* Collective on local. bytes of zeros that all ranks of the host map; the 8 bytes at mark_at are used by this call.
 * Returns 0 or an errno, this rank's alone. The caller unmaps. */
int rd_share_memory(MPI_Comm local, size_t bytes, size_t mark_at, unsigned char **map, rd_status *st);

/* The one place that knows MPI's errors: "MPI_Allreduce(...): <the library's text>". */
rd_code rd_mpi_result(int rc, const char *call, const char *where, rd_status *st);
#define RD_MPI(call, st) rd_mpi_result((call), #call, RD_HERE, (st))

#endif
