/* host_sum.c -- sums arrays anywhere in the memory of the ranks, see host_sum.h. host_arena.c sums
 * a shared arena.
 *
 * Each rank of a host has two slots in one shared mapping. A long array is summed in pieces of the
 * size of a slot. Every rank copies its piece into its slot; barrier; owner o sums slice o of all
 * slots into its own slot, along a fixed tree; barrier; every rank copies the slices out. The next
 * piece uses the other slots, so two barriers per piece are enough. With several hosts the owners
 * of equal slices sum them (cross_sum.c) before the second barrier. A small array is summed whole
 * by every rank of a host, after one barrier. */
#include "host_sum.h"
#include "host_memory.h"
#include "mpi_error.h"
#include "tree_sum.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    SMALL_BYTES = 4096, /* up to this size every rank sums the whole array */
    SLICE_ALIGN = 64,
};

size_t rd_host_piece_bytes(const rd_host *w)
{
    return w->piece;
}

static size_t slots_offset(int n_local)
{
    return (rd_host_barrier_bytes(n_local) + sizeof(int64_t) + 4095) / 4096 * 4096;
}

static unsigned char *slot_of(const rd_host *w, int r)
{
    rd_assert(r >= 0 && r < w->n_local && w->turn < 2);
    return w->map + slots_offset(w->n_local) + (2 * (size_t)r + w->turn) * w->piece;
}

/* Lets MPI move its messages on. */
static void progress_mpi(void)
{
    int there;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &there, MPI_STATUS_IGNORE);
}

/* A type of numbers. */
typedef struct kind {
    size_t size; /* bytes of a number */
    void (*sum)(void *dst, const void *const *src, int n_src, size_t n);
    rd_code (*cross)(rd_cross *c, void *x, int64_t n, rd_status *st); /* sums between hosts */
} kind;

static rd_code cross_f32(rd_cross *c, void *x, int64_t n, rd_status *st)
{
    return rd_cross_sum(c, x, n, st);
}
static rd_code cross_f64(rd_cross *c, void *x, int64_t n, rd_status *st)
{
    return rd_cross_sum_f64(c, x, n, st);
}

/* Sums a small array: every rank sums all of it. */
static rd_code sum_small(rd_host *w, const kind *k, unsigned char *x, size_t n)
{
    const void *src[RD_MAX_LOCAL];
    if (w->n_local < 2) return RD_OK;
    rd_assert(n * k->size <= w->piece);
    memcpy(slot_of(w, w->me), x, n * k->size);
    rd_host_barrier(w);
    for (int r = 0; r < w->n_local; r++) src[r] = slot_of(w, r);
    k->sum(x, src, w->n_local, n);
    return RD_OK;
}

/* Sums a piece: every owner sums its slice. */
static rd_code sum_piece(rd_host *w, const kind *k, unsigned char *x, size_t n, rd_status *st)
{
    const size_t align = SLICE_ALIGN / k->size;
    const size_t per = ((n + (size_t)w->n_owners - 1) / (size_t)w->n_owners + align - 1) / align *
                       align;
#define FROM(o) ((size_t)(o)*per < n ? (size_t)(o)*per : n) /* the first element of slice o */
    const bool owner = w->me < w->n_owners;
    const size_t from = owner ? FROM(w->me) : n, to = owner ? FROM(w->me + 1) : n;
    rd_assert(from <= to && to <= n && n * k->size <= w->piece);
    unsigned char *mine = slot_of(w, w->me);
    /* No other rank reads an owner's own slice before it is summed, so the
     * owner reads it from x. */
    memcpy(mine, x, from * k->size);
    memcpy(mine + to * k->size, x + to * k->size, (n - to) * k->size);
    rd_host_barrier(w);
    if (to > from) {
        const void *src[RD_MAX_LOCAL];
        for (int r = 0; r < w->n_local; r++)
            src[r] = (r == w->me ? x : slot_of(w, r)) + from * k->size;
        if (w->n_local > 1)
            k->sum(mine + from * k->size, src, w->n_local, to - from);
        else
            memcpy(mine + from * k->size, x + from * k->size, (to - from) * k->size);
        /* A failure is returned after the barrier, or the peers would wait for ever. */
        if (w->n_hosts > 1)
            (void)k->cross(w->cross, mine + from * k->size, (int64_t)(to - from), st);
    }
    rd_host_barrier(w);
    for (int o = 0; o < w->n_owners; o++)
        memcpy(x + FROM(o) * k->size, slot_of(w, o) + FROM(o) * k->size,
               (FROM(o + 1) - FROM(o)) * k->size);
#undef FROM
    return st->code;
}

static rd_code sum_array(rd_host *w, const kind *k, void *x, int64_t n, rd_status *st)
{
    unsigned char *p = x;
    const size_t per_piece = w->piece / k->size;
    for (size_t left = (size_t)n; left > 0;) {
        const size_t m = left < per_piece ? left : per_piece;
        w->turn ^= 1;
        if (w->n_hosts == 1 && m * k->size <= SMALL_BYTES)
            (void)sum_small(w, k, p, m);
        else
            RD_TRY(sum_piece(w, k, p, m, st));
        p += m * k->size;
        left -= m;
    }
done:
    return st->code;
}

rd_code rd_host_sum_f32(rd_host *w, float *x, int64_t n, rd_status *st)
{
    const kind k = {sizeof *x, rd_tree_sum_f32, cross_f32};
    return sum_array(w, &k, x, n, st);
}

rd_code rd_host_sum_f64(rd_host *w, double *x, int64_t n, rd_status *st)
{
    const kind k = {sizeof *x, rd_tree_sum_f64, cross_f64};
    return sum_array(w, &k, x, n, st);
}

void rd_host_free(rd_host *w)
{
    if (!w) return;
    if (w->map) munmap(w->map, w->bytes);
    rd_cross_free(w->cross);
    if (w->cross_comm != MPI_COMM_NULL) MPI_Comm_free(&w->cross_comm);
    free(w);
}

rd_code rd_host_new(MPI_Comm world, MPI_Comm local, bool crowded, rd_host **out, char why[200],
                    rd_status *st)
{
    rd_host *w = calloc(1, sizeof *w);
    int size = 0, rank = 0, n_local = 0, me = 0, n_leaders = 0;
    int range[2] = {0, 0}; /* smallest (negated) and largest number of ranks on a host */
    const char *env = getenv("RD_COMM_SHARED");
    *out = NULL;
    if (w) w->cross_comm = MPI_COMM_NULL;
    RD_TRY(RD_MPI(MPI_Comm_size(world, &size), st));
    RD_TRY(RD_MPI(MPI_Comm_rank(world, &rank), st));
    RD_TRY(RD_MPI(MPI_Comm_size(local, &n_local), st));
    RD_TRY(RD_MPI(MPI_Comm_rank(local, &me), st));
    /* An errno of some rank; whether some rank has RD_COMM_SHARED=0. Later: an errno, a status. */
    int no[2] = {w ? 0 : ENOMEM, env && env[0] == '0'};
    range[0] = -n_local;
    range[1] = n_local;
    n_leaders = me == 0;
    RD_TRY(RD_MPI(MPI_Allreduce(MPI_IN_PLACE, range, 2, MPI_INT, MPI_MAX, world), st));
    RD_TRY(RD_MPI(MPI_Allreduce(MPI_IN_PLACE, &n_leaders, 1, MPI_INT, MPI_SUM, world), st));
    RD_TRY(RD_MPI(MPI_Allreduce(MPI_IN_PLACE, no, 2, MPI_INT, MPI_MAX, world), st));
    if (no[0] || no[1] || w == NULL || range[1] == 1 || range[1] > RD_MAX_LOCAL) {
        snprintf(why, 200, "%s",
                 no[0]           ? "out of memory"
                 : no[1]         ? "RD_COMM_SHARED=0 in the environment"
                 : range[1] == 1 ? "one rank per host"
                                 : "too many ranks on a host");
        goto done;
    }
    w->me = me;
    w->n_local = n_local;
    w->n_owners = -range[0];
    w->n_hosts = n_leaders;
    w->idle = progress_mpi;
    w->spins = crowded ? 0 : 4000; /* tens of microseconds */
    /* Large enough that the barriers cost little, small enough that a host's pieces fit into its
     * last-level cache. */
    w->piece = (size_t)1 << (range[1] <= 4 ? 21 : range[1] <= 16 ? 20 : 18);
    w->bytes = slots_offset(n_local) + 2 * (size_t)n_local * w->piece;
    const size_t mark_at = rd_host_barrier_bytes(n_local);
    no[0] = rd_host_memory_new(local, w->bytes, mark_at, &w->map, st);
    /* Its owner touches a slot first, so the slot is in the memory near that rank's core. */
    if (no[0] == 0)
        memset(w->map + slots_offset(n_local) + 2 * (size_t)me * w->piece, 0, 2 * w->piece);
    no[1] = st->code;
    RD_TRY(RD_MPI(MPI_Allreduce(MPI_IN_PLACE, no, 2, MPI_INT, MPI_MAX, world), st));
    if (no[1] != RD_OK && st->code == RD_OK)
        rd_fail(st, (rd_code)no[1], "another rank could not share memory");
    if (no[1] != RD_OK) goto done;
    if (no[0] != 0) {
        rd_host_memory_why(no[0], w->bytes, why);
        goto done;
    }
    if (w->n_hosts > 1)
        RD_TRY(RD_MPI(MPI_Comm_split(world, me < w->n_owners ? me : MPI_UNDEFINED, rank,
                                     &w->cross_comm),
                      st));
    if (w->cross_comm != MPI_COMM_NULL) {
        MPI_Comm_set_errhandler(w->cross_comm, MPI_ERRORS_RETURN);
        (void)rd_cross_new(w->cross_comm, &w->cross, st);
    }
    no[1] = st->code;
    RD_TRY(RD_MPI(MPI_Allreduce(MPI_IN_PLACE, &no[1], 1, MPI_INT, MPI_MAX, world), st));
    if (no[1] != RD_OK && st->code == RD_OK)
        rd_fail(st, (rd_code)no[1], "another rank has no memory for sums");
    rd_assert(w->n_owners >= 1 && w->n_owners <= w->n_local && w->me < w->n_local);
    RD_TRY(st->code);
    *out = w;
    w = NULL;
done:
    rd_host_free(w);
    return st->code;
}
