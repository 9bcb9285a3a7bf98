/* host_arena.c -- sums arrays in place, in memory that all ranks of a host can reach.
 *
 * Owner o sums slice o over all ranks of its host, along a fixed tree, and writes the sum into
 * every rank's array. With k ranks each byte is read k times and written k times per host, and no
 * rank copies anything in or out. There is one barrier before, because each rank's array must be
 * complete, and one after, because its slices come from other ranks. With several hosts the owners
 * of equal slices sum them (cross_sum.c) before they write.
 *
 * Bytes moved per float32 with 2 ranks: 8 read and 8 written. Through the slots of host_sum.c they
 * are 28. */
#include "host_arena.h"
#include "host_memory.h"
#include "mpi_error.h"
#include "tree_sum.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    PART_ALIGN = 4096,
    SLICE_FLOATS =
        1024, /* slices begin at pages, so two ranks never write to one page or cache line */
};

struct rd_host_arena {
    rd_host *w;         /* borrowed */
    unsigned char *map; /* owned; the head, then one array per rank */
    size_t head;        /* bytes of the head: the flags, then a cache line for rd_host_memory_new */
    size_t stride;      /* bytes from one rank's array to the next */
    size_t bytes;       /* bytes of the mapping */
    int64_t n;          /* numbers of an array */
};

float *rd_host_arena_of(const rd_host_arena *a, int r)
{
    rd_assert(r >= 0 && r < a->w->n_local);
    return (float *)(void *)(a->map + a->head + (size_t)r * a->stride);
}

rd_host_arena_flag *rd_host_arena_flag_of(const rd_host_arena *a, int r)
{
    rd_assert(r >= 0 && r < a->w->n_local);
    return (rd_host_arena_flag *)(void *)a->map + r;
}

float *rd_host_arena_mine(const rd_host_arena *a)
{
    return rd_host_arena_of(a, a->w->me);
}

bool rd_host_arena_holds(const rd_host_arena *a, const float *x)
{
    return a && x >= rd_host_arena_mine(a) && x < rd_host_arena_mine(a) + a->n;
}

/* Sums [at, at + n) of all ranks of all hosts, and writes it to the ranks of this host. */
static rd_code sum_cross(const rd_host_arena *a, float *const *to, int64_t at, int64_t n,
                         rd_status *st)
{
    const int k = a->w->n_local, me = a->w->me;
    for (int64_t i = 0; i < n; i += RD_CROSS_FLOATS) {
        const int64_t m = n - i < RD_CROSS_FLOATS ? n - i : RD_CROSS_FLOATS;
        float *mine = to[me] + at + i;
        if (k > 1) rd_tree_sum_all(to, k, (size_t)(at + i), (size_t)m);
        RD_TRY(rd_cross_sum(a->w->cross, mine, m, st));
        for (int r = 0; r < k; r++)
            if (r != me) memcpy(to[r] + at + i, mine, (size_t)m * sizeof(float));
    }
done:
    return st->code;
}

void rd_host_arena_slice(const rd_host *w, int64_t n, int64_t *lo, int64_t *hi)
{
    const int64_t slices = (n + SLICE_FLOATS - 1) / SLICE_FLOATS;
    *lo = *hi = 0;
    if (w->me >= w->n_owners) return; /* n_owners is the same on all hosts, and so are the slices */
    *lo = slices * w->me / w->n_owners * SLICE_FLOATS;
    *hi = slices * (w->me + 1) / w->n_owners * SLICE_FLOATS;
    if (*hi > n) *hi = n;
    rd_assert(*lo >= 0 && *lo <= *hi);
}

rd_code rd_host_arena_sum(rd_host_arena *a, float *x, int64_t n, rd_status *st)
{
    rd_host *w = a->w;
    const int64_t at = x - rd_host_arena_mine(a);
    int64_t lo, hi;
    float *to[RD_MAX_LOCAL];
    rd_assert(at >= 0 && n > 0 && at + n <= a->n);
    for (int r = 0; r < w->n_local; r++) to[r] = rd_host_arena_of(a, r);
    rd_host_arena_slice(w, n, &lo, &hi);
    rd_host_barrier(w);
    if (hi > lo) {
        /* A failure is returned after the barrier, or the peers would wait for ever. */
        if (w->n_hosts > 1)
            (void)sum_cross(a, to, at + lo, hi - lo, st);
        else if (w->n_local > 1)
            rd_tree_sum_all(to, w->n_local, (size_t)(at + lo), (size_t)(hi - lo));
    }
    rd_host_barrier(w);
    return st->code;
}

void rd_host_arena_free(rd_host_arena *a)
{
    if (!a) return;
    if (a->map) munmap(a->map, a->bytes);
    free(a);
}

rd_code rd_host_arena_new(rd_host *w, MPI_Comm world, MPI_Comm local, int64_t n,
                          rd_host_arena **out, char why[200], rd_status *st)
{
    int no[2] = {0, RD_OK}; /* an errno of some rank, a status of some rank */
    rd_host_arena *a = calloc(1, sizeof *a);
    *out = NULL;
    if (a) {
        a->w = w;
        a->n = n;
        a->stride = ((size_t)n * sizeof(float) + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
        a->head = ((size_t)(w->n_local + 1) * sizeof(rd_host_arena_flag) + PART_ALIGN - 1) /
                  PART_ALIGN * PART_ALIGN;
        a->bytes = a->head + (size_t)w->n_local * a->stride;
        no[0] = rd_host_memory_new(local, a->bytes, (size_t)w->n_local * sizeof(rd_host_arena_flag),
                                   &a->map, st);
        /* Its owner touches an array first, so the array is in the memory near that rank's core. */
        if (no[0] == 0) memset(rd_host_arena_mine(a), 0, a->stride);
        no[1] = (int)st->code;
    } else {
        no[1] = (int)rd_fail(st, RD_EENV, "out of memory for an arena");
    }
    RD_TRY(RD_MPI(MPI_Allreduce(MPI_IN_PLACE, no, 2, MPI_INT, MPI_MAX, world), st));
    if (no[1] != RD_OK && st->code == RD_OK)
        rd_fail(st, (rd_code)no[1], "another rank could not share memory");
    if (no[1] != RD_OK) goto done;
    if (no[0] != 0) {
        rd_host_memory_why(no[0], a->bytes, why);
        goto done;
    }
    *out = a;
    return RD_OK;
done:
    rd_host_arena_free(a);
    return st->code;
}
