/* spare.c -- memory of a step that serves a second time, see spare.h. */
#include "spare.h"
#include "../base/poison.h"
#include <stdlib.h>
#include <string.h>

/* Behind each piece, as behind each array of an arena. */
enum { SLACK = 64 };

rd_code spare_open(spare_pool *s, rd_params *params, rd_arena *arena, bool host, rd_status *st)
{
    const size_t n = params ? (size_t)rd_params_n(params) : 0;
    *s = (spare_pool){.arena = arena, .host = host, .params = params};
    s->grad = calloc(n + 1, sizeof *s->grad);
    return s->grad ? st->code : rd_fail(st, RD_EENV, "out of memory for the tape");
}

void spare_close(spare_pool *s)
{
    spare_reset(s);
    free(s->grad);
    s->grad = NULL;
}

/* ---- the memory of gradients ---- */

static size_t grad_bytes(const rd_param *p)
{
    return (size_t)rd_params_place(p) * sizeof(float);
}

static unsigned char *grad_at(const spare_pool *s, const rd_param *p)
{
    return s->base + (size_t)p->offset * sizeof(float);
}

static bool is_grad(const spare_pool *s, const unsigned char *at)
{
    return s->base && at >= s->base &&
           at < s->base + (size_t)rd_params_grad_span(s->params) * sizeof(float);
}

/* Returns the highest `until` of the gradients that [at, at + bytes) overlaps; -1: none. */
static int64_t grads_until(const spare_pool *s, const unsigned char *at, size_t bytes)
{
    int64_t most = -1;
    if (!is_grad(s, at)) return -1;
    for (int i = 0; i < rd_params_n(s->params); i++) {
        const rd_param *p = rd_params_at(s->params, i);
        const unsigned char *from = grad_at(s, p);
        if (p->flags & RD_PARAM_FROZEN || from >= at + bytes || from + grad_bytes(p) <= at)
            continue;
        if (s->grad[i].until > most) most = s->grad[i].until;
    }
    return most;
}

bool spare_borrows(const spare_pool *s, const rd_param *p)
{
    return s->n_owed > 0 && s->grad[p->index].owed;
}

void spare_borrow(spare_pool *s)
{
    if (!s->host || !s->params || rd_params_kind(s->params) != RD_CPU) return;
    s->base = (unsigned char *)rd_params_grads(s->params);
    s->n_owed = 0;
    for (int i = 0; i < rd_params_n(s->params); i++) {
        /* Of an embedding only the rows are zeroed that are not zero. Statistics are written in
         * forward. */
        const unsigned none = RD_PARAM_ROWS | RD_PARAM_STATE | RD_PARAM_FROZEN;
        s->grad[i] = (spare_grad){.owed = !(rd_params_at(s->params, i)->flags & none), .until = -1};
        s->n_owed += s->grad[i].owed;
    }
}

bool spare_is_lent(const spare_pool *s, const rd_param *p)
{
    return s->n_owed > 0 && s->grad[p->index].lent;
}

/* Joins the last piece with those that begin behind its slack and end before it. */
static void join_last(spare_list *l)
{
    for (int i = 0; i < l->n - 1;) {
        spare_piece *a = &l->piece[i], *b = &l->piece[l->n - 1];
        const bool before = a->at + a->bytes + SLACK == b->at,
                   behind = b->at + b->bytes + SLACK == a->at;
        if (a->until < 0 || b->until < 0 || (!before && !behind)) {
            i++;
            continue;
        }
        *a = (spare_piece){before ? a->at : b->at, a->bytes + SLACK + b->bytes,
                           a->until > b->until ? a->until : b->until};
        l->n--;
        /* The joined piece is compared with the others. */
        const spare_piece joined = *a;
        *a = l->piece[l->n - 1];
        l->piece[l->n - 1] = joined;
        i = 0;
    }
}

void spare_used(spare_pool *s, const rd_param *p, int64_t record, bool lend)
{
    spare_grad *g = &s->grad[p->index];
    spare_list *l = &s->list;
    if (s->n_owed == 0 || !g->owed || g->lent) return;
    g->until = record;
    if (!lend || spare_full(s)) return;
    g->lent = true;
    ASAN_POISON_MEMORY_REGION(grad_at(s, p), grad_bytes(p));
    l->piece[l->n++] = (spare_piece){grad_at(s, p), grad_bytes(p) - SLACK, record};
    join_last(l);
}

/* Adds the part [from, end) of a piece, if it is worth while. */
static void add_rest(spare_pool *s, unsigned char *from, const unsigned char *end)
{
    spare_list *l = &s->list;
    if (end <= from || (size_t)(end - from) < SPARE_LEAST + SLACK || spare_full(s)) return;
    const size_t bytes = (size_t)(end - from) - SLACK;
    l->piece[l->n++] = (spare_piece){from, bytes, grads_until(s, from, bytes)};
}

/* Removes [from, to), where a gradient begins now, from the spare pieces. */
static void cut_out(spare_pool *s, unsigned char *from, unsigned char *to)
{
    spare_list *l = &s->list;
    for (int i = 0; i < l->n;) {
        const spare_piece p = l->piece[i];
        unsigned char *end = p.at + p.bytes + SLACK;
        if (p.until < 0 || p.at >= to || end <= from) {
            i++;
            continue;
        }
        l->piece[i] = l->piece[--l->n];
        /* What is left ends before `from` or begins at `to`: no later turn removes it. */
        add_rest(s, p.at, from);
        add_rest(s, to, end);
    }
}

void spare_return(spare_pool *s, const rd_param *p)
{
    spare_grad *g = &s->grad[p->index];
    if (s->n_owed == 0 || !g->owed) return;
    unsigned char *at = grad_at(s, p);
    g->until = -1;
    if (g->lent) cut_out(s, at, at + grad_bytes(p));
    ASAN_UNPOISON_MEMORY_REGION(at, grad_bytes(p));
    memset(at, 0, grad_bytes(p));
    g->owed = g->lent = false;
    s->n_owed--;
}

void spare_return_from(spare_pool *s, int64_t record)
{
    for (int i = 0; s->n_owed > 0 && i < rd_params_n(s->params); i++)
        if (s->grad[i].until >= record) spare_return(s, rd_params_at(s->params, i));
}

void spare_return_all(spare_pool *s)
{
    for (int i = 0; s->n_owed > 0; i++) spare_return(s, rd_params_at(s->params, i));
}

/* ---- pieces ---- */

void spare_reset(spare_pool *s)
{
    s->list.n = 0;
    s->lent_bytes = 0;
    if (!s->params || !s->base) return;
    for (int i = 0; i < rd_params_n(s->params); i++) {
        const rd_param *p = rd_params_at(s->params, i);
        if (s->grad[i].lent) ASAN_UNPOISON_MEMORY_REGION(grad_at(s, p), grad_bytes(p));
        s->grad[i].lent = false;
        s->grad[i].until = -1;
    }
}

bool spare_full(const spare_pool *s)
{
    return s->list.n == SPARE_MOST;
}

bool spare_fits(const spare_pool *s, const void *at, size_t bytes, int64_t ends)
{
    const int64_t until = grads_until(s, at, bytes);
    return until < 0 || until < ends;
}

/* Returns the end of a piece, slack included. */
static unsigned char *piece_end(const spare_piece *p)
{
    return p->at + p->bytes + SLACK;
}

/* Takes the end of piece k, which is part of a gradient: the gradients before it are lent next, and
 * backward arrives there first. */
static unsigned char *take_end(spare_pool *s, int k, size_t used)
{
    spare_list *l = &s->list;
    spare_piece *p = &l->piece[k];
    unsigned char *at = piece_end(p) - used;
    if (p->bytes >= used + SPARE_LEAST)
        p->bytes -= used;
    else
        *p = l->piece[--l->n];
    s->lent_bytes += used;
    if (s->lent_bytes > s->lent_peak) s->lent_peak = s->lent_bytes;
    ASAN_UNPOISON_MEMORY_REGION(at, used);
    return at;
}

/* Returns whether a piece that is part of gradients may hold a variable at its end. */
static bool end_fits(const spare_pool *s, const spare_piece *p, size_t used, int64_t ends)
{
    return p->until < ends || grads_until(s, piece_end(p) - used, used - SLACK) < ends;
}

rd_code spare_take(spare_pool *s, size_t bytes, int64_t ends, void *out, rd_status *st)
{
    spare_list *l = &s->list;
    const size_t used = rd_arena_bytes(s->arena, bytes);
    int best = -1;
    for (int k = l->n - 1; k >= 0; k--) {
        const spare_piece *p = &l->piece[k];
        if (p->bytes < bytes || (best >= 0 && p->bytes >= l->piece[best].bytes)) continue;
        if (p->until >= 0 && (bytes < SPARE_LEAST || !end_fits(s, p, used, ends))) continue;
        best = k;
        if (p->bytes == bytes) break;
    }
    if (best < 0) return rd_arena_get(s->arena, bytes, out, st);
    spare_piece *p = &l->piece[best];
    unsigned char *at = p->at;
    if (p->until >= 0)
        at = take_end(s, best, used);
    else if (p->bytes >= used + SPARE_LEAST)
        *p = (spare_piece){p->at + used, p->bytes - used, -1};
    else
        *p = l->piece[--l->n];
    if (s->host) ASAN_UNPOISON_MEMORY_REGION(at, bytes + SLACK);
    memcpy(out, &at, sizeof at);
    return RD_OK;
}

void spare_take_lent(spare_pool *s, size_t bytes, void *out)
{
    const size_t used = rd_arena_bytes(s->arena, bytes);
    unsigned char *at = NULL;
    int best = -1;
    for (int k = 0; k < s->list.n; k++) {
        const spare_piece *p = &s->list.piece[k];
        if (p->until < 0 || p->bytes < bytes || bytes < SPARE_LEAST) continue;
        if (best < 0 || p->bytes < s->list.piece[best].bytes) best = k;
    }
    if (best >= 0) at = take_end(s, best, used);
    memcpy(out, &at, sizeof at);
}

void spare_keep(spare_pool *s, void **at, size_t bytes)
{
    spare_list *l = &s->list;
    if (!*at || bytes < SPARE_LEAST || spare_full(s)) return;
    const size_t used = rd_arena_bytes(s->arena, bytes);
    const int64_t until = grads_until(s, *at, bytes);
    rd_assert(until >= 0 || !is_grad(s, *at)); /* the gradient has begun */
    if (until >= 0) {
        s->lent_bytes -= used;
        l->piece[l->n++] = (spare_piece){*at, used - SLACK, until};
        ASAN_POISON_MEMORY_REGION(*at, used);
        join_last(l);
    } else {
        l->piece[l->n++] = (spare_piece){*at, bytes, -1};
        if (s->host) ASAN_POISON_MEMORY_REGION(*at, bytes);
    }
    *at = NULL;
}
