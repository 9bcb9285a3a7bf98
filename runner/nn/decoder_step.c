/* decoder_step.c -- the decoder one step at a time, for search: the same formulas as rd_decoder_apply, on rows that are
 * hypotheses. */
#include "rd/nn.h"
#include "../ops/shared/attention.h"
#include <string.h>

typedef struct state { /* after a step, by row */
    float *c[RD_MAX_LAYERS], *h[RD_MAX_LAYERS], *ctx;
} state;

typedef struct stepper {
    rd_decoder *d;
    rd_cell cell[RD_MAX_LAYERS];
    rd_attention at;
    const int64_t *first, *len; /* by sentence */
    int64_t *row_first, *row_len, most;
    rd_var *emb, *W_in, *b_in, *W_out;
    state now, before; /* before: gathered by parent */
    float *x, *y, *z, *tc, *m, *qp, *al;
    bool started;
} stepper;

static void gather(int64_t n, const int64_t *parent, int64_t width, const float *from, float *to)
{
    for (int64_t i = 0; i < n; i++) memcpy(to + i * width, from + parent[i] * width, (size_t)width * sizeof(float));
}

static rd_code layer(stepper *s, int l, int64_t n, const float *x, const float *att, float *out, rd_status *st)
{
    const rd_layer *L = &s->d->layer[l].l;
    rd_cell *k = &s->cell[l];
    const rd_cell_rows r = {s->z, L->cell->has_c ? s->now.c[l] : NULL, s->tc, L->shape.projects ? s->m : NULL,
                            s->now.h[l]};
    RD_TRY(L->cell->input(k, n, x, att, s->z, st));
    RD_TRY(rd_cell_step(k, n, s->started ? s->before.h[l] : NULL, s->started && L->cell->has_c ? s->before.c[l] : NULL,
                        &r, st));
    for (int64_t i = 0; i < n * L->shape.R; i++) out[i] = s->now.h[l][i] + (L->residual ? x[i] : 0.0f);
done:
    return st->code;
}

static rd_code step(void *ctx, int64_t n, const int32_t *ids, const int64_t *parent, const int64_t *sentence,
                    float *logits, rd_status *st)
{
    stepper *s = ctx;
    rd_decoder *d = s->d;
    const int64_t wide = d->E + d->M;
    for (int64_t i = 0; i < n; i++) {
        s->row_first[i] = s->first[sentence[i]];
        s->row_len[i] = s->len[sentence[i]];
    }
    if (s->started) {
        for (int l = 0; l < d->n_layers; l++) {
            const rd_cell_shape *h = &d->layer[l].l.shape;
            gather(n, parent, h->R, s->now.h[l], s->before.h[l]);
            if (d->layer[l].l.cell->has_c) gather(n, parent, h->H, s->now.c[l], s->before.c[l]);
        }
        gather(n, parent, d->M, s->now.ctx, s->before.ctx);
    } else {
        memset(s->before.ctx, 0, (size_t)(n * d->M) * sizeof(float));
    }
    for (int64_t i = 0; i < n; i++) {
        memcpy(s->x + i * wide, s->emb->v + ids[i] * d->E, (size_t)d->E * sizeof(float));
        memcpy(s->x + i * wide + d->E, s->before.ctx + i * d->M, (size_t)d->M * sizeof(float));
    }
    float *cur = s->x, *next = s->y;
    if (s->W_in) {
        RD_TRY(rd_mul_rows(&s->cell[0], s->W_in, 0, wide, n, cur, next, false, st));
        RD_TRY(rd_add_bias(s->at.be, n, d->H, s->b_in->v, next, st));
        cur = s->y;
        next = s->x;
    }
    const int in_loop = d->style == RD_DEC_WRAPPED ? d->n_layers : 1;
    for (int l = 0; l < d->n_layers; l++) {
        const float *att = l < in_loop ? NULL : d->style == RD_DEC_GNMT_V2 ? s->now.ctx : s->before.ctx;
        RD_TRY(layer(s, l, n, cur, att, next, st));
        float *swap = cur;
        cur = next;
        next = swap;
        if (l + 1 == in_loop) RD_TRY(rd_attention_step(&s->at, n, 0, cur, s->qp, s->al, s->now.ctx, NULL, 0, 0, st));
    }
    s->started = true;
    RD_TRY(rd_mul_rows(&s->cell[0], s->W_out, 0, s->W_out->rows, n, d->style == RD_DEC_WRAPPED ? s->now.ctx : cur,
                       logits, false, st));
    if (d->temperature != 1.0f)
        for (int64_t i = 0; i < n * d->V; i++) logits[i] /= d->temperature;
done:
    return st->code;
}

rd_code rd_decoder_search(rd_tape *t, rd_decoder *d, rd_params *ps, int64_t n, rd_var *memory, const int64_t *first,
                          const int64_t *len, int64_t max_len, int64_t beam_width, double length_penalty,
                          rd_hypothesis *out, rd_status *st)
{
    rd_arena *a = rd_tape_arena(t), *scratch = NULL;
    stepper *s;
    int64_t *limit;
    RD_TRY(rd_tape_check(t, st));
    RD_TRY(rd_arena_new((size_t)1 << 20, &scratch, st));
    RD_TRY(rd_arena_zero(a, sizeof *s, &s, st));
    const int64_t most = n * (beam_width < 1 ? 1 : beam_width) + 8;
    s->d = d;
    s->first = first;
    s->len = len;
    s->emb = rd_tape_param(t, d->embedding);
    s->W_in = rd_tape_param(t, d->W_in);
    s->b_in = rd_tape_param(t, d->b_in);
    s->W_out = rd_tape_param(t, d->W_out);
    rd_var *keys = rd_op_linear(t, memory, rd_tape_param(t, d->memory_kernel), NULL);
    RD_TRY(rd_tape_check(t, st));
    int64_t widest = d->E + d->M > d->H ? d->E + d->M : d->H, z = 1, h = 1;
    for (int l = 0; l < d->n_layers; l++) {
        rd_var *w[RD_LAYER_PARAMS];
        rd_stack_layer *L = &d->layer[l];
        for (int i = 0; i < L->n_w; i++) w[i] = rd_tape_param(t, L->w[i]);
        RD_TRY(rd_cell_init(&s->cell[l], L->l.cell, &L->l.shape, rd_tape_backend(t), ps, scratch, w, L->n_w, st));
        widest = L->l.shape.R > widest ? L->l.shape.R : widest;
        h = L->l.shape.H > h ? L->l.shape.H : h;
        z = s->cell[l].Z > z ? s->cell[l].Z : z;
        for (int w2 = 0; w2 < 2; w2++) {
            state *to = w2 ? &s->before : &s->now;
            RD_TRY(rd_arena_get(a, (size_t)(most * L->l.shape.R) * sizeof(float), &to->h[l], st));
            RD_TRY(rd_arena_get(a, (size_t)(most * L->l.shape.H) * sizeof(float), &to->c[l], st));
        }
    }
    RD_TRY(rd_arena_get(a, (size_t)(most * d->M) * sizeof(float), &s->now.ctx, st));
    RD_TRY(rd_arena_get(a, (size_t)(most * d->M) * sizeof(float), &s->before.ctx, st));
    RD_TRY(rd_arena_get(a, (size_t)(most * widest) * sizeof(float), &s->x, st));
    RD_TRY(rd_arena_get(a, (size_t)(most * widest) * sizeof(float), &s->y, st));
    RD_TRY(rd_arena_get(a, (size_t)(most * z) * sizeof(float), &s->z, st));
    RD_TRY(rd_arena_get(a, (size_t)(most * h) * sizeof(float), &s->tc, st));
    RD_TRY(rd_arena_get(a, (size_t)(most * h) * sizeof(float), &s->m, st));
    RD_TRY(rd_arena_get(a, (size_t)(most * d->A) * sizeof(float), &s->qp, st));
    RD_TRY(rd_arena_get(a, (size_t)(most * max_len) * sizeof(float), &s->al, st));
    RD_TRY(rd_arena_get(a, (size_t)most * sizeof(int64_t), &s->row_first, st));
    RD_TRY(rd_arena_get(a, (size_t)most * sizeof(int64_t), &s->row_len, st));
    RD_TRY(rd_arena_get(a, (size_t)(n + 1) * sizeof *limit, &limit, st));
    for (int64_t i = 0; i < n; i++) limit[i] = 2 * len[i];
    s->at = (rd_attention){.kind = d->kind,
                           .A = d->A,
                           .R = d->R,
                           .M = d->M,
                           .query_kernel = rd_tape_param(t, d->query_kernel),
                           .v = rd_tape_param(t, d->v),
                           .g = rd_tape_param(t, d->g),
                           .b = rd_tape_param(t, d->b),
                           .memory = memory->v,
                           .keys = keys->v,
                           .first = s->row_first,
                           .len = s->row_len,
                           .max_len = max_len,
                           .be = rd_tape_backend(t),
                           .ps = ps,
                           .scratch = scratch};
    RD_TRY(rd_tape_check(t, st));
    RD_TRY(rd_attention_begin(&s->at, a, st));
    RD_TRY(rd_search(a, n, limit, d->V, 1, 2, beam_width, length_penalty, step, s, out, st));
done:
    rd_arena_free(scratch);
    return st->code;
}
