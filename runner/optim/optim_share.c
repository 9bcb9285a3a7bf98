/* optim_share.c -- one copy of the weights and of the optimizer's slots for all ranks of a host.
 * Each rank updates its share.
 *
 * The shared memory holds values, slots, sums of squares of blocks, and checksums of blocks. Each
 * of these arrays begins at a page. Of k ranks, rank r does the blocks that begin in the r-th of k
 * equal parts of the arenas. The parts are cut where the sum of gradients is cut, so the gradients
 * that a rank has just summed are still in its cache.
 *
 * The update of a block depends on other blocks only through the norms. All ranks add up the norms
 * in the same order. So the bytes are those of one rank that does all the work.
 *
 * With k ranks on a host, an update moves 1/k of the bytes on each rank, and the host keeps values
 * and slots once. With adam and 4 ranks that is 4 x 4 + 12 bytes for each parameter instead of
 * 4 x 16. Without replicas to compare, checksums detect damaged weights. They take two additions
 * for each element, which is in the cache. */
#include "optim_impl.h"
#include "rd/hash.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAGE = 4096,
    SLICE = 1024 /* elements of a page; the sum of gradients is cut at multiples of it */
};

enum { LANES = 8, AT_ONCE = 4 * LANES };
typedef uint32_t lanes __attribute__((vector_size(LANES * 4)));
/* LANES floats of an arena, read as integers; aligned to 4 bytes only. */
typedef uint32_t loose __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

static uint64_t optim_share_fold(uint64_t h, const lanes *v)
{
    for (int j = 0; j < LANES; j++) h = rd_fnv_mix(h, (*v)[j], 31);
    return h;
}

/* Four independent chains: sums of the elements, and sums of these sums, which depend on the place
 * of an element. */
typedef struct chains {
    lanes a[4], b[4];
} chains;

static inline void optim_share_add(chains *c, const loose *v)
{
    for (int k = 0; k < 4; k++) {
        c->a[k] += (lanes)v[k];
        c->b[k] += c->a[k];
    }
}

uint64_t rd_optim_block_sum(const float *x, int64_t n)
{
    chains c = {0};
    float rest[AT_ONCE] = {0};
    int64_t i = 0;
    for (; i + AT_ONCE <= n; i += AT_ONCE)
        optim_share_add(&c, (const loose *)(const void *)(x + i));
    if (i < n) {
        memcpy(rest, x + i, (size_t)(n - i) * sizeof *x);
        optim_share_add(&c, (const loose *)(const void *)rest);
    }
    uint64_t h = RD_FNV_START;
    for (int k = 0; k < 4; k++) h = optim_share_fold(optim_share_fold(h, &c.a[k]), &c.b[k]);
    return h;
}

bool rd_optim_sums_hold(const rd_optim *o)
{
    return (o->sum || (o->gpu && o->shard)) && o->sum_version == rd_params_version(o->p);
}

bool rd_optim_is_shared(const rd_optim *o)
{
    return o->shared != NULL;
}

/* ---- the memory ---- */

/* Places an array of n * size bytes after the *bytes bytes so far, at *at, and updates *bytes. Each
 * array is followed by a vector of slack. Returns false if the number of bytes overflows. */
static bool optim_share_put(size_t *bytes, int64_t n, size_t size, size_t *at)
{
    size_t more;
    *at = *bytes;
    return !__builtin_mul_overflow((size_t)n, size, &more) &&
           !__builtin_add_overflow(more, (size_t)2 * PAGE, &more) &&
           !__builtin_add_overflow(*bytes, more / PAGE * PAGE, bytes);
}

static void *optim_share_place(const rd_optim *o, size_t at)
{
    return (unsigned char *)o->shared + at;
}

/* Copies this rank's part of an array of n elements. The rank that touches a page first gets it in
 * the memory near its CPU. */
static void copy_own(const rd_optim *o, float *to, const float *from, int64_t n)
{
    const int64_t hi = o->own_hi < n ? o->own_hi : n;
    if (o->own_lo < hi)
        memcpy(to + o->own_lo, from + o->own_lo, (size_t)(hi - o->own_lo) * sizeof *to);
}

/* Copies this rank's part of the frozen values, which no rank updates. */
static void copy_frozen(const rd_optim *o, const rd_world *w, float *to, const float *from)
{
    const int64_t first = rd_params_grad_span(o->p), n = rd_params_span(o->p) - first,
                  lo = first + n * w->local_rank / w->local_size,
                  hi = first + n * (w->local_rank + 1) / w->local_size;
    memcpy(to + lo, from + lo, (size_t)(hi - lo) * sizeof *to);
}

rd_code rd_optim_share(rd_optim *o, rd_comm *c, char why[200], rd_status *st)
{
    const rd_world *w = rd_comm_world(c);
    const int64_t span = rd_params_span(o->p), grads = rd_params_grad_span(o->p),
                  kept = rd_optim_kept(o), slices = (grads + SLICE - 1) / SLICE;
    size_t bytes = 0, values_at, slot_at[4] = {0}, g_at, w_at, sum_at;
    why[0] = '\0';
    if (o->shared) return rd_fail(st, RD_EBUG, "weights are shared twice");
    bool fits = optim_share_put(&bytes, span, sizeof(float), &values_at);
    for (int k = 0; k < rd_optim_n_slots(o); k++)
        fits = fits && optim_share_put(&bytes, kept, sizeof(float), &slot_at[k]);
    fits = fits && optim_share_put(&bytes, o->norm.n, sizeof(double), &g_at) &&
           optim_share_put(&bytes, o->norm.n, sizeof(double), &w_at) &&
           optim_share_put(&bytes, o->update.n, sizeof(uint64_t), &sum_at);
    if (!fits)
        return rd_fail(st, RD_EENV, "%" PRId64 " parameters are more than memory can hold", span);
    RD_TRY(rd_comm_shared(c, bytes, &o->shared, why, st));
    if (!o->shared) return RD_OK;
    o->comm = c;
    o->shared_bytes = bytes;
    o->own_lo = slices * w->local_rank / w->local_size * SLICE;
    o->own_hi = slices * (w->local_rank + 1) / w->local_size * SLICE;
    rd_assert(o->own_lo <= o->own_hi && o->own_lo % SLICE == 0);
    rd_optim_take_own(o);
    free(o->g_sq);
    free(o->w_sq);
    o->g_sq = optim_share_place(o, g_at);
    o->w_sq = optim_share_place(o, w_at);
    o->sum = optim_share_place(o, sum_at);
    float *values = optim_share_place(o, values_at);
    copy_own(o, values, rd_params_values(o->p), grads);
    copy_frozen(o, w, values, rd_params_values(o->p));
    rd_params_use_values(o->p, values);
    for (int k = 0; k < rd_optim_n_slots(o); k++) {
        float *slot = optim_share_place(o, slot_at[k]);
        if (!o->c.sharded) copy_own(o, slot, rd_params_slot(o->p, o->first_slot + k), kept);
        rd_params_use_slot(o->p, o->first_slot + k, slot);
    }
    if (o->c.sharded) { /* a block may end among the values that another rank has copied */
        RD_TRY(rd_comm_local_barrier(c, st));
        rd_optim_fill_own(o, 0);
    }
    RD_TRY(rd_comm_local_barrier(c, st));
done:
    return st->code;
}

void rd_optim_unshare(rd_optim *o)
{
    if (!o->shared) return;
    rd_params_use_values(o->p, NULL); /* a read by mistake crashes */
    for (int k = 0; k < rd_optim_n_slots(o); k++) rd_params_use_slot(o->p, o->first_slot + k, NULL);
    rd_comm_unshare(o->shared, o->shared_bytes);
    o->shared = NULL;
    o->g_sq = o->w_sq = NULL;
    o->sum = NULL;
}

/* ---- checksums ---- */

rd_code rd_optim_sum_own(rd_optim *o, uint64_t *sum, rd_status *st)
{
    const rd_optim_blocks *list = &o->update;
    const bool hold = rd_optim_sums_hold(o);
    const float *w = rd_params_values(o->p);
    int64_t bad = INT64_MAX;
#pragma omp parallel for num_threads(o->n_threads) schedule(static) reduction(min : bad)
    for (int64_t i = 0; i < o->n_guard; i++) {
        const int64_t b = o->guard[i];
        const uint64_t now = rd_optim_block_sum(w + list->at[b].lo, list->at[b].n);
        if (hold && now != sum[b] && b < bad) bad = b;
        sum[b] = now;
    }
    if (o->damaged < 0 && bad < INT64_MAX) o->damaged = bad;
    return st->code;
}

/* Adds the checksums of frozen parameters, one rank for each copy. What is not what the last call
 * found is damaged, unless the host has written values since. */
static rd_code sum_frozen(rd_optim *o, uint64_t *of_param, int *damaged, rd_status *st)
{
    if (rd_params_grad_span(o->p) == rd_params_span(o->p)) return RD_OK;
    if (o->shared && rd_comm_world(o->comm)->local_rank > 0) return RD_OK;
    RD_TRY(rd_params_sync_to_host(o->p, RD_VALUES, st));
    if (!o->frozen) o->frozen = calloc((size_t)rd_params_n(o->p), sizeof *o->frozen);
    if (!o->frozen) return rd_fail(st, RD_EENV, "out of memory for checksums of the weights");
    for (int i = 0; i < rd_params_n(o->p); i++) {
        const rd_param *p = rd_params_at(o->p, i);
        if (!(p->flags & RD_PARAM_FROZEN)) continue;
        const uint64_t version = rd_params_version_of(o->p, p),
                       now = rd_optim_block_sum(rd_params_values(o->p) + p->offset, p->n);
        if (version == o->frozen[i].version && now != o->frozen[i].sum && *damaged < 0)
            *damaged = i;
        o->frozen[i] = (rd_optim_frozen){version, now};
        of_param[i] = rd_fnv_step(of_param[i], now);
    }
done:
    return st->code;
}

rd_code rd_optim_checksums(rd_optim *o, uint64_t *of_param, int *damaged, rd_status *st)
{
    const rd_optim_blocks *list = &o->update;
    uint64_t *sum = o->sum ? o->sum : calloc((size_t)list->n + 1, sizeof *sum);
    if (!sum) return rd_fail(st, RD_EENV, "out of memory for checksums of the weights");
    RD_TRY(o->sweeps->sums(o, sum, st));
    o->sum_version = rd_params_version(o->p);
    if (o->shared) RD_TRY(rd_comm_local_barrier(o->comm, st));
    int64_t b = 0;
    for (int i = 0; i < rd_params_n(o->p); i++) {
        of_param[i] = RD_FNV_START;
        for (; b < list->n && list->at[b].param == i; b++)
            of_param[i] = rd_fnv_step(of_param[i], sum[b]);
    }
    *damaged = o->damaged < 0 ? -1 : list->at[o->damaged].param;
    RD_TRY(sum_frozen(o, of_param, damaged, st));
    /* All ranks have read the sums, so the next update may write them. */
    if (o->shared) RD_TRY(rd_comm_local_barrier(o->comm, st));
done:
    if (sum != o->sum) free(sum);
    return st->code;
}
