/* optim_shard.c -- divides the optimizer's state and the update between hosts (key shard).
 *
 * A host has all weights, and the slots of its pieces alone (rd/shard.h). It gets the sums of the
 * gradients of these pieces. An update then takes three steps between hosts:
 *
 *     sums of squares of its blocks -> all hosts: each adds up all of them, in the same order
 *     update of its blocks
 *     weights of its blocks -> all hosts
 *
 * A block belongs to one host, for the norms and for the update. So each number is computed from
 * the same numbers in the same order as without a division, and has the same bytes.
 *
 * A slot has the elements of the host's pieces one after another. The ranks of a host divide the
 * host's blocks, and share its memory, as without a division (optim_share.c).
 *
 * With GPUs, each rank counts as a host, and gets the sums of all gradients. It adds up all norms
 * itself, and updates its blocks (optim_gpu.cu). The caller then spreads the weights. */
#include "optim_impl.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

rd_shard *rd_optim_shard_of(const rd_optim *o)
{
    return o->shard;
}

static int optim_shard_by_value(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

rd_code rd_optim_cuts(const rd_optim *o, int64_t **out, int64_t *n, rd_status *st)
{
    const rd_optim_blocks *a = &o->norm, *b = &o->update;
    int64_t *cut = *out = malloc(((size_t)a->n + 1) * sizeof *cut);
    *n = 0;
    if (!cut) return rd_fail(st, RD_EENV, "out of memory for the blocks of the optimizer");
    for (int64_t i = 0, k = 0; i < a->n; i++) { /* both lists have the order of declaration */
        while (k < b->n && (b->at[k].param < a->at[i].param ||
                            (b->at[k].param == a->at[i].param && b->at[k].lo < a->at[i].lo)))
            k++;
        if (k < b->n && b->at[k].lo == a->at[i].lo) cut[(*n)++] = a->at[i].lo;
    }
    qsort(cut, (size_t)*n, sizeof *cut, optim_shard_by_value);
    return RD_OK;
}

/* ---- who keeps what ---- */

/* Finds the host of each block, and its place in a slot there. */
static void optim_shard_place(const rd_optim *o, rd_optim_blocks *list)
{
    int64_t n;
    const rd_shard_piece *piece = rd_shard_pieces(o->shard, &n);
    for (int64_t b = 0; b < list->n; b++) {
        rd_optim_block *k = &list->at[b];
        const rd_shard_piece *p = &piece[rd_shard_find(o->shard, k->lo)];
        rd_assert(k->lo >= p->lo && k->lo + k->n <= p->hi); /* no block is divided */
        k->host = p->host;
        k->at = p->at + (k->lo - p->lo);
    }
}

rd_code rd_optim_shard(rd_optim *o, rd_comm *c, rd_shard *s, char why[200], rd_status *st)
{
    why[0] = '\0';
    if (!o->c.sharded || rd_params_n_slots(o->p) > o->first_slot)
        return rd_fail(st, RD_EBUG, "an optimizer is divided twice, or was made whole");
    if (s) {
        o->norm_host = calloc((size_t)o->norm.n + 1, sizeof *o->norm_host);
        if (!o->norm_host) return rd_fail(st, RD_EENV, "out of memory for the optimizer");
        o->shard = s;
        optim_shard_place(o, &o->norm);
        optim_shard_place(o, &o->update);
        for (int64_t b = 0; b < o->norm.n; b++) o->norm_host[b] = o->norm.at[b].host;
    }
    RD_TRY(rd_params_slots(o->p, rd_optim_n_slots(o), rd_optim_kept(o), st));
    if (rd_params_kind(o->p) == RD_CPU && (!s || rd_shard_shares(s)))
        RD_TRY(rd_optim_share(o, c, why, st));
    if (o->shared) goto done;
    if (s && why[0]) {
        rd_fail(st, RD_EENV, "'shard' optimizer: %.180s", why);
        goto done;
    }
    rd_optim_take_own(o);
    rd_optim_fill_own(o, 0);
    RD_TRY(o->sweeps->open(o, st));
done:
    return st->code;
}

void rd_optim_put_slot(rd_optim *o, int k, int64_t lo, int64_t n, const float *from)
{
    float *x = rd_params_slot(o->p, o->first_slot + k);
    int64_t n_pieces;
    if (o->shared && rd_comm_world(o->comm)->local_rank != 0) return;
    if (!o->shard) {
        memcpy(x + lo, from, (size_t)n * sizeof *x);
        return;
    }
    const rd_shard_piece *p = rd_shard_pieces(o->shard, &n_pieces);
    for (int64_t i = rd_shard_find(o->shard, lo); i < n_pieces && p[i].lo < lo + n; i++) {
        const int64_t at = p[i].lo > lo ? p[i].lo : lo, end = p[i].hi < lo + n ? p[i].hi : lo + n;
        if (p[i].host == rd_shard_host(o->shard))
            memcpy(x + p[i].at + (at - p[i].lo), from + (at - lo), (size_t)(end - at) * sizeof *x);
    }
}

/* ---- between hosts ---- */

rd_code rd_optim_spread_norms(rd_optim *o, bool weights, rd_status *st)
{
    if (!o->shard) return st->code;
    /* A failure is returned after the barrier, or the peers would wait for ever. */
    if (rd_shard_collect_f64(o->shard, o->g_sq, o->norm_host, o->norm.n, st) == RD_OK && weights)
        (void)rd_shard_collect_f64(o->shard, o->w_sq, o->norm_host, o->norm.n, st);
    if (o->shared) RD_TRY(rd_comm_local_barrier(o->comm, st));
done:
    return st->code;
}

rd_code rd_optim_spread_weights(rd_optim *o, rd_status *st)
{
    const float *w = rd_params_values(o->p);
    if (!o->shard) return st->code;
    (void)rd_shard_collect(o->shard, rd_params_values(o->p), st);
    if (o->shared) RD_TRY(rd_comm_local_barrier(o->comm, st));
#pragma omp parallel for num_threads(o->n_threads) schedule(static)
    for (int64_t i = 0; i < (o->sum ? o->n_guard : 0); i++) {
        const rd_optim_block *b = &o->update.at[o->guard[i]];
        if (!rd_optim_is_own(o, b)) o->sum[o->guard[i]] = rd_optim_block_sum(w + b->lo, b->n);
    }
done:
    return st->code;
}
