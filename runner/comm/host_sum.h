/* host_sum.h -- sums among the ranks of one host through memory they share; between hosts, MPI goes on from
 * there. */
#ifndef RD_COMM_WINDOW_H
#define RD_COMM_WINDOW_H

#include "rd/comm.h"
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

enum { RD_MAX_LOCAL = 1024 }; /* ranks of a host that share memory */

typedef struct rd_host rd_host;
struct rd_host {
    struct rd_cross *
        cross; /* owned; among the owners of the same slice on all hosts; NULL on one host or for no owner */
    MPI_Comm cross_comm; /* owned; its ranks */
    int me, n_local, n_owners, n_hosts, spins;
    unsigned turn; /* which of the two slots comes next */
    uint32_t n_barriers;
    void (*idle)(void); /* called now and then while a barrier waits; NULL: nothing to do */
    size_t piece, bytes;
    unsigned char *map;
};

/* Collective on world. local: the ranks of this host; crowded: they are more than its processors. *out is NULL, with
 * RD_OK and the reason in why, when some host cannot share memory; then it is NULL on all ranks. */
rd_code rd_host_new(MPI_Comm world, MPI_Comm local, bool crowded, rd_host **out, char why[200],
                    rd_status *st);
void rd_host_free(rd_host *w); /* NULL is fine */

/* Collective. In place, along a fixed binary tree over the ranks of a host; the same bytes on all ranks. */
rd_code rd_host_sum_f32(rd_host *w, float *x, int64_t n, rd_status *st);
rd_code rd_host_sum_f64(rd_host *w, double *x, int64_t n, rd_status *st);
/* Collective among the ranks of a host. Also orders memory: what a rank wrote before it, all read after it. */
void rd_host_barrier(rd_host *w);
size_t rd_host_barrier_bytes(int n_local); /* of the map, from its beginning: zeros at first */
size_t rd_host_piece_bytes(const rd_host *w);

int rd_tree_split(int n); /* n > 1 terms: how many the left branch of the tree has */
/* x[r][at .. at + n) = sum over r < k of x[r][at .. at + n), along the tree; k > 1. */
void rd_tree_sum_all(float *const *x, int k, size_t at, size_t n);
/* dst[n] = sum over r < k of src[r][n], along the tree. src[r] may be dst. */
void rd_tree_sum(float *dst, const float *const *src, int k, size_t n);
double rd_tree_sum_f64(const double *x, int64_t stride, int lo,
                       int hi); /* of x[r * stride], r in [lo, hi) */

/* ---- numbers of two bytes (cross_wire.c) ---- */
size_t rd_wire_bytes(rd_wire w);
void rd_wire_narrow(rd_wire w, const float *x, int64_t n, void *out);
void rd_wire_widen(rd_wire w, const void *in, int64_t n, float *x);
void rd_wire_round(rd_wire w, float *x, int64_t n); /* there and back */

/* ---- sums between hosts (cross_sum.c) ---- */
enum {
    RD_CROSS_FLOATS = 1 << 20, /* at a time, so that they stay in the last cache */
    RD_CROSS_CHUNK =
        1
        << 19, /* bytes on the wire, in one job: a bucket of some MiB is several, or the link rests while one turns round */
    RD_CROSS_DEEP =
        12, /* jobs at once: one phase of a job leaves a link idle while it turns round */
    RD_CROSS_LEVELS = 12
};
typedef struct rd_cross_job rd_cross_job;
typedef struct rd_cross { /* one rank of each host */
    MPI_Comm comm;        /* borrowed */
    int me, size, n_levels, radix[RD_CROSS_LEVELS], stride[RD_CROSS_LEVELS];
    int64_t sent;                        /* bytes, by this rank, so far */
    rd_cross_job *job[3][RD_CROSS_DEEP]; /* owned; by wire type, made when first wanted */
    MPI_Request *request;                /* owned; [RD_CROSS_DEEP][n_requests], of the jobs above */
    int n_requests;
    double *all; /* owned; [size][f64_piece] */
    int f64_piece;
} rd_cross;
rd_code rd_cross_new(MPI_Comm comm, rd_cross **out, rd_status *st); /* not collective */
void rd_cross_free(rd_cross *c);                                    /* NULL is fine */
/* Collective on c->comm. In place, the sum over its ranks, the same bytes on all. */
rd_code rd_cross_sum(rd_cross *c, float *x, int64_t n, rd_status *st);
rd_code rd_cross_sum_wire(rd_cross *c, rd_wire wire, float *x, int64_t n, rd_status *st);
rd_code rd_cross_sum_f64(rd_cross *c, double *x, int64_t n, rd_status *st);
int64_t rd_cross_chunk(rd_wire w); /* numbers in RD_CROSS_CHUNK */
/* One such sum of at most `room` numbers under way. Between start and done the array is the job's. tag: a multiple of
 * RD_CROSS_TAGS, the same on all ranks, and not that of another job under way on this communicator. */
enum { RD_CROSS_TAGS = 32 };
rd_code rd_cross_job_new(rd_cross *c, int64_t room, rd_wire wire,
                         MPI_Request *req /* [c->n_requests], borrowed; NULL: its own */,
                         rd_cross_job **out, rd_status *st);
void rd_cross_job_free(rd_cross_job *j); /* NULL is fine */
rd_code rd_cross_start(rd_cross_job *j, float *x, int64_t n, int tag, rd_status *st);
rd_code rd_cross_poll(rd_cross_job *j, bool *done, rd_status *st); /* does not wait */

/* ---- arenas: memory that all ranks of a host reach, so that sums need no copy ---- */
typedef struct rd_host_arena rd_host_arena;
/* Collective on world. n floats a rank, zero. *out is NULL on all ranks, with RD_OK and the reason in why, where some
 * host cannot share so much. The window is borrowed. */
rd_code rd_host_arena_new(rd_host *w, MPI_Comm world, MPI_Comm local, int64_t n,
                          rd_host_arena **out, char why[200], rd_status *st);
void rd_host_arena_free(rd_host_arena *a); /* NULL is fine; not collective */
float *rd_host_arena_mine(const rd_host_arena *a);
bool rd_host_arena_holds(const rd_host_arena *a,
                         const float *x);               /* does x lie in this rank's part? */
float *rd_host_arena_of(const rd_host_arena *a, int r); /* of local rank r */
/* Collective. Elements x .. x + n of this rank's part, at the same place on every rank, become the sum over all ranks. */
rd_code rd_host_arena_sum(rd_host_arena *a, float *x, int64_t n, rd_status *st);
/* The slice of n elements, from the first one on, that this rank sums; empty for no owner. */
void rd_host_arena_slice(const rd_host *w, int64_t n, int64_t *lo, int64_t *hi);
typedef struct
    rd_host_arena_flag { /* one of each rank, for sums in parts (cross_flow.c); counts since the flow was made */
    _Atomic uint64_t ready; /* parts of this rank that are whole */
    _Atomic uint64_t done;  /* parts whose slice this rank has summed and handed out */
    char pad[128 - 2 * sizeof(uint64_t)];
} rd_host_arena_flag;
rd_host_arena_flag *rd_host_arena_flag_of(const rd_host_arena *a, int r);

struct rd_comm;
/* What "mpi" is made of, all borrowed; window and arena NULL where there is none. */
void rd_mpi_inside(struct rd_comm *c, MPI_Comm *world, rd_host **w, rd_host_arena **a);

/* Collective on local. bytes of zeros that all ranks of the host map; the 8 bytes at mark_at are used by this call.
 * Returns 0 or an errno, this rank's alone. The caller unmaps. */
int rd_host_memory_new(MPI_Comm local, size_t bytes, size_t mark_at, unsigned char **map,
                       rd_status *st);
void rd_host_memory_why(int err, size_t bytes,
                        char why[200]); /* what the errno means, and what to change */

/* The one place that knows MPI's errors: "MPI_Allreduce(...): <the library's text>". */
rd_code rd_mpi_result(int rc, const char *call, const char *where, rd_status *st);
#define RD_MPI(call, st) rd_mpi_result((call), #call, RD_HERE, (st))

#endif
