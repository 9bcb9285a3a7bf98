/* host_arena.h -- arrays in memory that all ranks of a host reach, so that a sum copies nothing. */
#ifndef RD_HOST_ARENA_H
#define RD_HOST_ARENA_H

#include "host_sum.h"
#include <stdatomic.h>

typedef struct rd_host_arena rd_host_arena;

/* Collective on world. Makes n zeros for each rank. Where some host cannot share that much memory,
 * *out is NULL on all ranks with RD_OK, and why has the reason. The host is borrowed; the caller
 * owns *out. */
rd_code rd_host_arena_new(rd_host *h, MPI_Comm world, MPI_Comm local, int64_t n,
                          rd_host_arena **out, char why[200], rd_status *st);
void rd_host_arena_free(rd_host_arena *a); /* NULL is fine; not collective */
/* Returns this rank's array, or that of local rank r. */
float *rd_host_arena_mine(const rd_host_arena *a);
float *rd_host_arena_of(const rd_host_arena *a, int r);
/* Returns whether x points into this rank's array. NULL a: false. */
bool rd_host_arena_holds(const rd_host_arena *a, const float *x);
/* Collective. Elements x .. x + n of this rank's array become their sum over all ranks. x has the
 * same offset on every rank. */
rd_code rd_host_arena_sum(rd_host_arena *a, float *x, int64_t n, rd_status *st);
/* Finds the slice [*lo, *hi) of n elements that this rank sums; empty for a
 * rank without a slice. */
void rd_host_arena_slice(const rd_host *h, int64_t n, int64_t *lo, int64_t *hi);

/* One flag for each rank, for sums in parts (cross_flow.c). Both count since the flow was made. */
typedef struct rd_host_arena_flag {
    _Atomic uint64_t ready; /* parts of this rank that are complete */
    _Atomic uint64_t done;  /* parts whose slice this rank has summed and written to all ranks */
    char pad[128 - 2 * sizeof(uint64_t)];
} rd_host_arena_flag;
rd_host_arena_flag *rd_host_arena_flag_of(const rd_host_arena *a, int r);

#endif
