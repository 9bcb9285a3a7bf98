/* decoder_step.c -- the decoder one step at a time, for search. It has the formulas of
 * rd_decoder_apply; its rows are hypotheses. All backends use this source.
 *
 * On a GPU a step is queued as a whole. The host uploads each row's token, its parent and the
 * position of its memory. Then it waits for the download of each row's best tokens. */
#include "rd/nn.h"
#include "rd/attention.h"
#include "search_found.h"
#include <string.h>

/* The state after a step, one row for each hypothesis. */
typedef struct state {
    float *c[RD_MAX_LAYERS], *h[RD_MAX_LAYERS], *ctx;
} state;

/* The rows of a step, as arrays that follow each other in one buffer. */
typedef struct step_rows {
    int64_t *first, *len; /* first memory row of the sentence, and its number of memory rows */
    int32_t *ids;         /* input tokens */
    int32_t *parent;      /* rows of the previous step; -1: this is the first step */
} step_rows;

typedef struct stepper {
    rd_decoder *d;
    const rd_search_kernels *on; /* the functions of the backend */
    rd_cell cell[RD_MAX_LAYERS];
    rd_attention at;
    const int64_t *first, *len; /* by sentence */
    rd_var *emb, *W_in, *b_in, *W_out;
    state now;                  /* the state that this step computes */
    state before;               /* the state that the rows of this step continue */
    unsigned char *host_rows;   /* step_rows in host memory */
    unsigned char *kernel_rows; /* the copy that kernels read */
    float *x, *y, *z, *tc, *m, *qp, *al;
    rd_search_found found;
    float *attention;     /* [most, max_len] al in host memory; NULL: it is not wanted */
    const float *factor;  /* of W_out, in this step */
    bool started;         /* the first step is done */
    rd_short_output *few; /* logits of a shortlist; NULL: of all tokens */
} stepper;

enum { START = 1, END = 2 }; /* token ids */
enum { ROW_BYTES = 2 * sizeof(int64_t) + 2 * sizeof(int32_t) };

static step_rows rows_at(unsigned char *block, int64_t n)
{
    int64_t *first = (int64_t *)(void *)block;
    int32_t *ids = (int32_t *)(void *)(first + 2 * n);
    return (step_rows){first, first + n, ids, ids + n};
}

/* Makes s->before the states of the parents. If every row i has parent i, the states are swapped
 * and nothing is copied. */
static rd_code decoder_step_follow(stepper *s, int64_t n, const step_rows *r,
                                   const int32_t *kernel_parent, rd_status *st)
{
    const rd_decoder *d = s->d;
    rd_states a = {0};
    bool same = true;
    for (int64_t i = 0; i < n; i++) same &= r->parent[i] == i;
    if (same) {
        const state swap = s->now;
        s->now = s->before;
        s->before = swap;
        return st->code;
    }
    for (int l = 0; l < d->n_layers; l++) {
        const rd_cell_shape *h = &d->layer[l].l.shape;
        a.from[a.n_arrays] = s->now.h[l];
        a.to[a.n_arrays] = s->before.h[l];
        a.width[a.n_arrays++] = h->R;
        if (!d->layer[l].l.cell->has_c) continue;
        a.from[a.n_arrays] = s->now.c[l];
        a.to[a.n_arrays] = s->before.c[l];
        a.width[a.n_arrays++] = h->H;
    }
    if (d->style == RD_DEC_GNMT) { /* in the other styles only x has the previous context */
        a.from[a.n_arrays] = s->now.ctx;
        a.to[a.n_arrays] = s->before.ctx;
        a.width[a.n_arrays++] = d->M;
    }
    return s->on->follow(s->at.be, &a, n, kernel_parent, st);
}

/* x = [embedding of the token; context of the parent] */
static rd_code decoder_step_input(stepper *s, int64_t n, const step_rows *r, rd_status *st)
{
    const rd_picked part[2] = {{s->emb->v, s->d->E, r->ids}, {s->now.ctx, s->d->M, r->parent}};
    return rd_rows_pick(s->at.be, 2, part, n, s->x, st);
}

/* Computes layer l. *out: its output, which is h, or `sum` if the layer is residual. */
static rd_code layer(stepper *s, int l, int64_t n, const float *x, const float *att, float *sum,
                     const float **out, rd_status *st)
{
    const rd_layer *L = &s->d->layer[l].l;
    rd_cell *k = &s->cell[l];
    const rd_cell_rows r = {s->z, L->cell->has_c ? s->now.c[l] : NULL, s->tc,
                            L->shape.projects ? s->m : NULL, s->now.h[l]};
    RD_TRY(L->cell->input(k, n, x, att, s->z, st));
    RD_TRY(rd_cell_step(k, n, s->started ? s->before.h[l] : NULL,
                        s->started && L->cell->has_c ? s->before.c[l] : NULL, &r, st));
    *out = L->residual ? sum : s->now.h[l];
    if (L->residual) RD_TRY(rd_vec_sum(k->be, n * L->shape.R, s->now.h[l], x, sum, st));
done:
    return st->code;
}

static rd_code decoder_step_logits(void *ctx, int64_t first, int64_t n, float *logits,
                                   rd_status *st)
{
    stepper *s = ctx;
    const int64_t X = s->W_out->rows;
    return rd_mul_rows(&s->cell[0], s->W_out, 0, X, n, s->factor + first * X, logits, false, st);
}

/* Copies the attention of n rows to out->attention. */
static rd_code decoder_step_attention(stepper *s, int64_t n, const int64_t *sentence,
                                      const rd_search_best *out, rd_status *st)
{
    const int64_t ld = s->at.max_len;
    RD_TRY(rd_backend_download(s->at.be, s->attention, s->al, (size_t)(n * ld) * sizeof(float),
                               st));
    for (int64_t i = 0; i < n; i++)
        memcpy(out->attention + i * out->longest, s->attention + i * ld,
               (size_t)s->len[sentence[i]] * sizeof(float));
done:
    return st->code;
}

static rd_code decoder_step(void *ctx, int64_t n, const int32_t *ids, const int64_t *parent,
                            const int64_t *sentence, const rd_search_best *out, rd_status *st)
{
    stepper *s = ctx;
    rd_decoder *d = s->d;
    const step_rows r = rows_at(s->host_rows, n), kr = rows_at(s->kernel_rows, n);
    for (int64_t i = 0; i < n; i++) {
        r.first[i] = s->first[sentence[i]];
        r.len[i] = s->len[sentence[i]];
        r.ids[i] = ids[i];
        r.parent[i] = s->started ? (int32_t)parent[i] : -1;
    }
    RD_TRY(rd_backend_upload(s->at.be, s->kernel_rows, s->host_rows, (size_t)n * ROW_BYTES, st));
    s->at.first = kr.first;
    s->at.len = kr.len;
    RD_TRY(decoder_step_input(s, n, &kr, st));
    if (s->started) RD_TRY(decoder_step_follow(s, n, &r, kr.parent, st));
    const float *cur = s->x;
    if (s->W_in) {
        RD_TRY(rd_mul_rows(&s->cell[0], s->W_in, 0, d->E + d->M, n, s->x, s->y, false, st));
        RD_TRY(rd_add_bias(s->at.be, n, d->H, s->b_in->v, s->y, st));
        cur = s->y;
    }
    const int in_loop = d->style == RD_DEC_WRAPPED ? d->n_layers : 1;
    for (int l = 0; l < d->n_layers; l++) {
        const float *att = l < in_loop                  ? NULL
                           : d->style == RD_DEC_GNMT_V2 ? s->now.ctx
                                                        : s->before.ctx;
        RD_TRY(layer(s, l, n, cur, att, cur == s->x ? s->y : s->x, &cur, st));
        if (l + 1 == in_loop)
            RD_TRY(rd_attention_step(&s->at, n, 0, cur, s->qp, s->al, s->now.ctx, NULL, 0, 0, st));
    }
    if (out->attention) RD_TRY(decoder_step_attention(s, n, sentence, out, st));
    s->started = true;
    s->factor = d->style == RD_DEC_WRAPPED ? s->now.ctx : cur;
    if (s->few)
        RD_TRY(rd_short_output_best(s->few, n, s->factor, sentence, out, st));
    else
        RD_TRY(rd_search_found_best(&s->found, n, d->V, d->temperature, decoder_step_logits, s, out,
                                    st));
done:
    return st->code;
}

/* Allocates the buffers for `most` rows: those of kernels from `dev`, those of the host from `a`.
 * On a CPU both are the same arena. */
static rd_code decoder_step_allocate(stepper *s, rd_arena *a, rd_arena *dev, int64_t most,
                                     int64_t max_len, int64_t n_best, rd_status *st)
{
    const rd_decoder *d = s->d;
    int64_t widest = d->E + d->M > d->H ? d->E + d->M : d->H, z = 1, h = 1;
    for (int l = 0; l < d->n_layers; l++) {
        const rd_cell_shape *L = &d->layer[l].l.shape;
        widest = L->R > widest ? L->R : widest;
        h = L->H > h ? L->H : h;
        z = s->cell[l].Z > z ? s->cell[l].Z : z;
        for (int w = 0; w < 2; w++) {
            state *to = w ? &s->before : &s->now;
            RD_TRY(rd_arena_get(dev, (size_t)(most * L->R) * sizeof(float), &to->h[l], st));
            RD_TRY(rd_arena_get(dev, (size_t)(most * L->H) * sizeof(float), &to->c[l], st));
        }
    }
    RD_TRY(rd_arena_get(dev, (size_t)(most * d->M) * sizeof(float), &s->now.ctx, st));
    /* The context before the first step is zero. */
    RD_TRY(rd_arena_zero(dev, (size_t)(most * d->M) * sizeof(float), &s->before.ctx, st));
    RD_TRY(rd_arena_get(dev, (size_t)(most * widest) * sizeof(float), &s->x, st));
    RD_TRY(rd_arena_get(dev, (size_t)(most * widest) * sizeof(float), &s->y, st));
    RD_TRY(rd_arena_get(dev, (size_t)(most * z) * sizeof(float), &s->z, st));
    RD_TRY(rd_arena_get(dev, (size_t)(most * h) * sizeof(float), &s->tc, st));
    RD_TRY(rd_arena_get(dev, (size_t)(most * h) * sizeof(float), &s->m, st));
    RD_TRY(rd_arena_get(dev, (size_t)(most * d->A) * sizeof(float), &s->qp, st));
    RD_TRY(rd_arena_get(dev, (size_t)(most * max_len) * sizeof(float), &s->al, st));
    RD_TRY(rd_arena_get(a, (size_t)most * ROW_BYTES, &s->host_rows, st));
    RD_TRY(rd_arena_get(dev, (size_t)most * ROW_BYTES, &s->kernel_rows, st));
    RD_TRY(rd_search_found_new(s->at.be, dev, a, most, n_best, d->V, !s->few, &s->found, st));
done:
    return st->code;
}

rd_code rd_decoder_search(rd_tape *t, rd_decoder *d, rd_params *ps, int64_t n, rd_var *memory,
                          const int64_t *first, const int64_t *len, int64_t max_len,
                          const rd_search_rules *rules, const rd_token_sets *sets,
                          rd_hypothesis *out, rd_status *st)
{
    rd_arena *a = rd_tape_arena(t), *dev = rd_tape_device_arena(t), *own = NULL, *scratch = dev;
    rd_backend *be = rd_tape_backend(t);
    const int64_t width = rules->beam_width < 1 ? 1 : rules->beam_width;
    rd_search_rules with_source = *rules;
    stepper *s;
    int64_t *limit;
    RD_TRY(rd_tape_check(t, st));
    RD_TRY(rd_search_kernels_check(be, width, sets != NULL, st));
    if (dev == a) { /* a second arena, because each step frees its scratch memory */
        RD_TRY(rd_arena_new((size_t)1 << 20, &own, st));
        scratch = own;
    }
    RD_TRY(rd_arena_zero(a, sizeof *s, &s, st));
    s->d = d;
    s->on = rd_search_kernels_of(be);
    s->first = first;
    s->len = len;
    s->emb = rd_tape_param(t, d->embedding);
    s->W_in = rd_tape_param(t, d->W_in);
    s->b_in = rd_tape_param(t, d->b_in);
    s->W_out = rd_tape_param(t, d->W_out);
    rd_var *keys = rd_op_linear(t, memory, rd_tape_param(t, d->memory_kernel), NULL);
    RD_TRY(rd_tape_check(t, st));
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
                           .max_len = max_len,
                           .be = be,
                           .ps = ps,
                           .scratch = scratch};
    for (int l = 0; l < d->n_layers; l++) {
        rd_var *w[RD_LAYER_PARAMS];
        rd_stack_layer *L = &d->layer[l];
        for (int i = 0; i < L->n_w; i++) w[i] = rd_tape_param(t, L->w[i]);
        RD_TRY(rd_cell_init(&s->cell[l], L->l.cell, &L->l.shape, be, ps, scratch, w, L->n_w, st));
    }
    RD_TRY(rd_tape_check(t, st));
    if (sets) {
        const rd_output_table table = {
            .w = s->W_out->v, .X = s->W_out->rows, .V = d->V, .temperature = d->temperature};
        RD_TRY(rd_short_output_new(a, be, &table, n, sets, n * width, &s->few, st));
    }
    RD_TRY(decoder_step_allocate(s, a, dev, n * width + RD_SLACK_ROWS, max_len,
                                 rd_search_best_n(rules, d->V), st));
    with_source.source = len;
    if (rules->coverage > 0.0)
        RD_TRY(rd_arena_get(a, (size_t)(n * width * max_len + 1) * sizeof(float), &s->attention,
                            st));
    RD_TRY(rd_attention_begin(&s->at, dev, st));
    RD_TRY(rd_arena_get(a, (size_t)(n + 1) * sizeof *limit, &limit, st));
    for (int64_t i = 0; i < n; i++) limit[i] = rd_search_limit(rules, len[i]);
    RD_TRY(rd_search(a, n, limit, d->V, START, END, &with_source, decoder_step, s, out, st));
done:
    rd_arena_free(own);
    return st->code;
}
