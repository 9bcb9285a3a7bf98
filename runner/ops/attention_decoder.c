/* attention_decoder.c -- the time loop of a decoder with input feeding, forward and back:
 *   in_t = [emb_t; ctx_{t-1}] (W_in + b_in),   q_t = stack(in_t),   ctx_t = attend(q_t)
 * Backward goes through the same steps in reverse; all weight gradients are one product over all steps after the loop.
 * The gradient of the memory (and of luong's keys) is one product per sentence after the loop. */
#include "shared/attention.h"

enum { IN_EMB, IN_MEMORY, IN_KEYS, IN_QUERY, IN_V, IN_G, IN_B, IN_W, IN_BIAS, IN_CELLS };

typedef struct layer_rows { /* what a layer keeps, all N rows */
    float *x, *xd;          /* input before and after dropout (the same array without) */
    uint8_t *mask_in, *mask_out;
    rd_cell_rows r;
} layer_rows;

typedef struct saved {
    float *cat;              /* [N, E + M]; the first layer's x when there is no W_in */
    float *qp, *al;          /* [N, A]; attention weights, sequence by sequence, src_len of them a step */
    int64_t *slot, *slot0;   /* slot of each packed row: sequence by sequence; first slot of each sequence */
    int64_t *where, *where0; /* place in al of each packed row, and of each sequence's first */
    layer_rows l[RD_MAX_LAYERS];
} saved;

typedef struct ctx { /* both directions set this up alike */
    const rd_attn_decoder *d;
    rd_cell cell[RD_MAX_LAYERS];
    rd_attention at;
    int64_t N, n0, E, M, R, A;
} ctx;

static rd_code infer(rd_call *c, rd_status *st)
{
    const rd_attn_decoder *d = c->attr;
    const int64_t N = d->packing.off[d->packing.n_steps], wide = c->in[IN_EMB]->cols + c->in[IN_MEMORY]->cols;
    if (d->n_layers < 1 || d->n_layers > RD_MAX_LAYERS)
        return rd_fail(st, RD_EBUG, "attention_decoder: %d layers; 1 to %d fit", d->n_layers, RD_MAX_LAYERS);
    const rd_layer *top = &d->layer[d->n_layers - 1];
    if (c->in[IN_EMB]->rows != N || d->layer[0].shape.in != (c->in[IN_W] ? c->in[IN_W]->cols : wide) ||
        (c->in[IN_W] && c->in[IN_W]->rows != wide))
        return rd_fail(st, RD_EBUG, "attention_decoder: %lld rows of width %lld do not fit",
                       (long long)c->in[IN_EMB]->rows, (long long)wide);
    const rd_var *query = c->in[IN_QUERY]; /* luong has none: the query meets the keys as it is */
    const int64_t depth = c->in[IN_KEYS]->cols;
    if ((query ? query->rows : depth) != top->shape.R || (query && query->cols != depth) ||
        c->in[IN_KEYS]->rows != c->in[IN_MEMORY]->rows)
        return rd_fail(st, RD_EBUG, "attention_decoder: a query of width %lld does not fit keys of %lld",
                       (long long)top->shape.R, (long long)depth);
    c->out[0]->rows = c->out[1]->rows = N;
    c->out[0]->cols = top->shape.R;
    c->out[1]->cols = c->in[IN_MEMORY]->cols;
    return RD_OK;
}

static rd_code setup(rd_call *c, ctx *x, rd_status *st)
{
    const rd_attn_decoder *d = c->attr;
    int w = IN_CELLS;
    x->d = d;
    x->N = c->out[0]->rows;
    x->n0 = d->packing.n_steps ? d->packing.off[1] : 0;
    x->E = c->in[IN_EMB]->cols;
    x->M = c->in[IN_MEMORY]->cols;
    x->R = c->out[0]->cols;
    x->A = c->in[IN_KEYS]->cols;
    for (int l = 0; l < d->n_layers; l++) {
        RD_TRY(rd_cell_init(&x->cell[l], d->layer[l].cell, &d->layer[l].shape, c->be, c->params, c->scratch, c->in + w,
                            d->n_w[l], st));
        w += d->n_w[l];
    }
    x->at = (rd_attention){.kind = d->kind,
                           .A = x->A,
                           .R = x->R,
                           .M = x->M,
                           .query_kernel = c->in[IN_QUERY],
                           .v = c->in[IN_V],
                           .g = c->in[IN_G],
                           .b = c->in[IN_B],
                           .memory = c->in[IN_MEMORY]->v,
                           .keys = c->in[IN_KEYS]->v,
                           .first = d->src_first,
                           .len = d->src_len,
                           .be = c->be,
                           .ps = c->params,
                           .scratch = c->scratch};
    RD_TRY(rd_attention_begin(&x->at, c->scratch, st));
done:
    return st->code;
}

static rd_code make_room(rd_call *c, const ctx *x, saved *v, rd_status *st)
{
    const rd_packing *p = &x->d->packing;
    const int64_t N = x->N;
    RD_TRY(rd_rows_get(c->kept, N, x->E + x->M, &v->cat, st));
    if (x->at.ve) RD_TRY(rd_rows_get(c->kept, N, x->A, &v->qp, st));
    RD_TRY(rd_arena_get(c->kept, (size_t)(N + 1) * sizeof(int64_t), &v->slot, st));
    RD_TRY(rd_arena_get(c->kept, (size_t)(N + 1) * sizeof(int64_t), &v->where, st));
    RD_TRY(rd_arena_zero(c->kept, (size_t)(x->n0 + 1) * sizeof(int64_t), &v->slot0, st));
    RD_TRY(rd_arena_zero(c->kept, (size_t)(x->n0 + 1) * sizeof(int64_t), &v->where0, st));
    for (int64_t t = 0; t < p->n_steps; t++) /* lengths, then their running sum */
        for (int64_t i = 0; i < p->off[t + 1] - p->off[t]; i++) v->slot0[i + 1]++;
    for (int64_t i = 0; i < x->n0; i++) {
        v->where0[i + 1] = v->where0[i] + v->slot0[i + 1] * x->d->src_len[i];
        v->slot0[i + 1] += v->slot0[i];
    }
    RD_TRY(rd_arena_get(c->kept, (size_t)v->where0[x->n0] * sizeof(float), &v->al, st));
    for (int64_t t = 0; t < p->n_steps; t++)
        for (int64_t i = 0; i < p->off[t + 1] - p->off[t]; i++) {
            v->slot[p->off[t] + i] = v->slot0[i] + t;
            v->where[p->off[t] + i] = v->where0[i] + t * x->d->src_len[i];
        }
    for (int l = 0; l < x->d->n_layers; l++) {
        const rd_layer *L = &x->d->layer[l];
        layer_rows *y = &v->l[l];
        if (l > 0 || c->in[IN_W])
            RD_TRY(rd_rows_get(c->kept, N, L->shape.in, &y->x, st));
        else
            y->x = v->cat;
        y->xd = y->x;
        if (c->training && L->drop_in.keep < 1.0f) {
            RD_TRY(rd_rows_get(c->kept, N, L->shape.in, &y->xd, st));
            RD_TRY(rd_arena_get(c->kept, (size_t)(N * L->shape.in), &y->mask_in, st));
        }
        if (c->training && L->drop_out.keep < 1.0f)
            RD_TRY(rd_arena_get(c->kept, (size_t)(N * L->shape.R), &y->mask_out, st));
        RD_TRY(rd_rows_get(c->kept, N, x->cell[l].Z, &y->r.z, st));
        RD_TRY(rd_rows_get(c->kept, N, L->shape.H, &y->r.tc, st));
        if (L->cell->has_c) RD_TRY(rd_rows_get(c->kept, N, L->shape.H, &y->r.c, st));
        if (L->shape.projects) RD_TRY(rd_rows_get(c->kept, N, L->shape.H, &y->r.m, st));
        RD_TRY(rd_rows_get(c->kept, N, L->shape.R, &y->r.h, st));
    }
done:
    return st->code;
}

static rd_code forward(rd_call *c, rd_status *st)
{
    ctx x;
    saved *v;
    const rd_attn_decoder *d = c->attr;
    const rd_packing *p = &d->packing;
    RD_TRY(setup(c, &x, st));
    RD_TRY(rd_arena_zero(c->kept, sizeof *v, &v, st));
    c->saved = v;
    RD_TRY(make_room(c, &x, v, st));
    const int64_t wide = x.E + x.M;
    for (int64_t t = 0; t < p->n_steps; t++) {
        const int64_t at = p->off[t], n = p->off[t + 1] - at, prev = t ? p->off[t - 1] : 0;
        for (int64_t i = 0; i < n; i++) {
            float *row = v->cat + (at + i) * wide;
            memcpy(row, c->in[IN_EMB]->v + (at + i) * x.E, (size_t)x.E * sizeof(float));
            if (t)
                memcpy(row + x.E, c->out[1]->v + (prev + i) * x.M, (size_t)x.M * sizeof(float));
            else
                memset(row + x.E, 0, (size_t)x.M * sizeof(float));
        }
        if (c->in[IN_W]) {
            const int64_t w = c->in[IN_W]->cols;
            float *y = v->l[0].x + at * w;
            RD_TRY(rd_mul_rows(&x.cell[0], c->in[IN_W], 0, wide, n, v->cat + at * wide, y, false, st));
            rd_add_bias(n, w, c->in[IN_BIAS]->v, y);
        }
        for (int l = 0; l < d->n_layers; l++) {
            const rd_layer *L = &d->layer[l];
            rd_cell *k = &x.cell[l];
            layer_rows *y = &v->l[l];
            const int64_t in = L->shape.in, R = L->shape.R;
            float *out = (l + 1 < d->n_layers ? v->l[l + 1].x : c->out[0]->v) + at * R;
            if (y->mask_in)
                rd_dropout_rows(c->be, &L->drop_in, p, t, t + 1, in, y->x + at * in, y->xd + at * in,
                                y->mask_in + at * in);
            const rd_cell_rows r = rd_cell_rows_at(k, &y->r, at);
            RD_TRY(L->cell->input(k, n, y->xd + at * in, NULL, r.z, st));
            RD_TRY(rd_cell_step(k, n, t ? y->r.h + prev * R : NULL, t && y->r.c ? y->r.c + prev * L->shape.H : NULL, &r,
                                st));
            if (y->mask_out)
                rd_dropout_rows(c->be, &L->drop_out, p, t, t + 1, R, r.h, out, y->mask_out + at * R);
            else
                memcpy(out, r.h, (size_t)(n * R) * sizeof(float));
            if (L->residual)
                for (int64_t i = 0; i < n * R; i++) out[i] += y->x[at * in + i];
        }
        RD_TRY(rd_attention_step(&x.at, n, c->out[0]->v + at * x.R, v->qp ? v->qp + at * x.A : NULL, v->where + at,
                                 v->al, c->out[1]->v + at * x.M, st));
    }
done:
    return st->code;
}

typedef struct layer_back {
    float *dz, *dc, *dh_rec, *dh_all; /* [N, Z]; [n0, H]; [n0, R] from the later step; [N, R] for the projection */
} layer_back;

/* Gradient of a layer's output rows (dout [n, R], overwritten with the whole dh) -> gradient of its input rows (dx [n,
 * in]). */
static rd_code layer_step_back(rd_call *c, ctx *x, const saved *v, layer_back *b, int l, int64_t t, float *dout,
                               float *dx, rd_status *st)
{
    const rd_packing *p = &x->d->packing;
    const rd_layer *L = &x->d->layer[l];
    const layer_rows *y = &v->l[l];
    rd_cell *k = &x->cell[l];
    const int64_t at = p->off[t], n = p->off[t + 1] - at, prev = t ? p->off[t - 1] : 0, in = L->shape.in,
                  R = L->shape.R, H = L->shape.H;
    const int64_t later = t + 1 < p->n_steps ? p->off[t + 2] - p->off[t + 1] : 0;
    float *dh = b->dh_all + at * R;
    if (y->mask_out)
        rd_dropout_back(c->be, L->drop_out.keep, n * R, dout, y->mask_out + at * R, dh, false);
    else
        memcpy(dh, dout, (size_t)(n * R) * sizeof(float));
    for (int64_t i = 0; i < later * R; i++) dh[i] += b->dh_rec[i];
    const rd_cell_rows r = rd_cell_rows_at(k, &y->r, at);
    float *dz = b->dz + at * k->Z;
    RD_TRY(rd_cell_step_back(k, n, dh, b->dc, t ? y->r.h + prev * R : NULL, t && y->r.c ? y->r.c + prev * H : NULL, &r,
                             dz, b->dh_rec, st));
    RD_TRY(L->cell->input_back(k, n, dz, dx, false, NULL, st));
    if (y->mask_in) rd_dropout_back(c->be, L->drop_in.keep, n * in, dx, y->mask_in + at * in, dx, false);
    if (L->residual)
        for (int64_t i = 0; i < n * R; i++) dx[i] += dout[i];
done:
    return st->code;
}

static rd_code backward(rd_call *c, rd_status *st)
{
    ctx x;
    const rd_attn_decoder *d = c->attr;
    const rd_packing *p = &d->packing;
    const saved *v = c->saved;
    layer_back b[RD_MAX_LAYERS] = {{0}};
    float *dx[2], *dctx, *dctx_all, *q_all = NULL, *carry, *dx0_all = NULL, *dqp_all = NULL, *h_prev;
    const int n_layers = d->n_layers;
    int64_t widest = 1;
    rd_arena *s = c->scratch;
    RD_TRY(setup(c, &x, st));
    const int64_t N = x.N, wide = x.E + x.M;
    if (N == 0) return RD_OK;
    for (int l = 0; l < n_layers; l++) {
        const rd_cell_shape *h = &d->layer[l].shape;
        RD_TRY(rd_rows_zero(s, N, x.cell[l].Z, &b[l].dz, st));
        RD_TRY(rd_rows_zero(s, x.n0, h->H, &b[l].dc, st));
        RD_TRY(rd_rows_get(s, x.n0, h->R, &b[l].dh_rec, st));
        RD_TRY(rd_rows_get(s, N, h->R, &b[l].dh_all, st));
        widest = h->in > widest ? h->in : widest;
        widest = h->R > widest ? h->R : widest;
    }
    for (int i = 0; i < 2; i++) RD_TRY(rd_rows_get(s, x.n0, widest > wide ? widest : wide, &dx[i], st));
    RD_TRY(rd_rows_get(s, x.n0, x.M, &dctx, st));
    RD_TRY(rd_rows_get(s, x.n0, x.M, &carry, st));
    RD_TRY(rd_rows_get(s, N, x.M, &dctx_all, st));
    if (!x.at.ve)
        RD_TRY(rd_rows_get(s, N, x.R, &q_all, st));
    else
        RD_TRY(rd_rows_get(s, N, x.A, &dqp_all, st));
    if (c->in[IN_W]) RD_TRY(rd_rows_get(s, N, c->in[IN_W]->cols, &dx0_all, st));
    rd_attention_grads g = {.dkeys = c->in[IN_KEYS]->g};
    RD_TRY(rd_arena_get(s, (size_t)v->where0[x.n0] * sizeof(float), &g.ds, st));
    RD_TRY(rd_rows_zero(s, x.n0, x.A, &g.dv_rows, st));
    RD_TRY(rd_rows_zero(s, x.n0, 1, &g.dg_rows, st));
    if (!g.dkeys) RD_TRY(rd_rows_zero(s, c->in[IN_KEYS]->rows, x.A, &g.dkeys, st));

    for (int64_t t = p->n_steps - 1; t >= 0; t--) {
        const int64_t at = p->off[t], n = p->off[t + 1] - at,
                      later = t + 1 < p->n_steps ? p->off[t + 2] - p->off[t + 1] : 0;
        for (int64_t i = 0; i < n * x.M; i++)
            dctx[i] = c->out[1]->g[at * x.M + i] + (i < later * x.M ? carry[i] : 0.0f);
        const float *q = c->out[0]->v + at * x.R;
        for (int64_t i = 0; i < n; i++) {
            memcpy(dctx_all + v->slot[at + i] * x.M, dctx + i * x.M, (size_t)x.M * sizeof(float));
            if (q_all) memcpy(q_all + v->slot[at + i] * x.R, q + i * x.R, (size_t)x.R * sizeof(float));
        }
        float *cur = dx[0], *next = dx[1];
        memcpy(cur, c->out[0]->g + at * x.R, (size_t)(n * x.R) * sizeof(float));
        if (dqp_all) g.dqp = dqp_all + at * x.A;
        RD_TRY(rd_attention_step_back(&x.at, n, q, v->qp ? v->qp + at * x.A : NULL, v->where + at, v->al, dctx, &g, cur,
                                      st));
        for (int k = 0; k < n_layers; k++) {
            const int l = n_layers - 1 - k;
            RD_TRY(layer_step_back(c, &x, v, &b[l], l, t, cur, next, st));
            float *swap = cur;
            cur = next;
            next = swap;
        }
        if (c->in[IN_W]) {
            memcpy(dx0_all + at * c->in[IN_W]->cols, cur, (size_t)(n * c->in[IN_W]->cols) * sizeof(float));
            RD_TRY(rd_mul_rows_t(&x.cell[0], c->in[IN_W], 0, wide, n, cur, next, false, st));
            cur = next;
        }
        for (int64_t i = 0; i < n; i++) {
            const float *row = cur + i * wide;
            if (c->in[IN_EMB]->g)
                for (int64_t j = 0; j < x.E; j++) c->in[IN_EMB]->g[(at + i) * x.E + j] += row[j];
            memcpy(carry + i * x.M, row + x.E, (size_t)x.M * sizeof(float));
        }
    }
    for (int l = 0; l < n_layers; l++) {
        const int64_t R = d->layer[l].shape.R;
        const rd_mark mark = rd_arena_mark(s);
        RD_TRY(rd_rows_get(s, N, R, &h_prev, st));
        rd_shift_rows(p, R, v->l[l].r.h, h_prev);
        RD_TRY(d->layer[l].cell->weights_back(&x.cell[l], N, v->l[l].xd, NULL, h_prev, v->l[l].r.tc, b[l].dz, st));
        RD_TRY(rd_cell_projection_back(&x.cell[l], N, v->l[l].r.m, b[l].dh_all, st));
        rd_arena_rewind(s, mark);
    }
    if (c->in[IN_W]) {
        const int64_t w = c->in[IN_W]->cols;
        RD_TRY(rd_mul_grad(&x.cell[0], c->in[IN_W], 0, wide, N, v->cat, dx0_all, w, st));
        rd_add_columns(c->be, N, w, dx0_all, w, c->in[IN_BIAS]->g);
    }
    if (x.at.ve) {
        RD_TRY(rd_mul_grad(&x.cell[0], c->in[IN_QUERY], 0, x.R, N, c->out[0]->v, dqp_all, x.A, st));
        if (c->in[IN_B]) rd_add_columns(c->be, N, x.A, dqp_all, x.A, c->in[IN_B]->g);
    }
    RD_TRY(rd_attention_finish(&x.at, x.n0, v->slot0, v->where0, v->al, dctx_all, q_all, &g, c->in[IN_MEMORY]->g, st));
done:
    return st->code;
}

extern const rd_op rd_op_def_attention_decoder;
const rd_op rd_op_def_attention_decoder = {.name = "attention_decoder",
                                           .about = "decoder loop with input feeding and attention",
                                           .infer = infer,
                                           .cpu = {forward, backward}};

rd_var *rd_op_attention_decoder(rd_tape *t, const rd_attn_decoder *d, rd_var *emb, rd_var *memory, rd_var *keys,
                                rd_var *query_kernel, rd_var *v, rd_var *g, rd_var *b, rd_var *W_in, rd_var *b_in,
                                rd_var *const *w, rd_var **ctx_out)
{
    rd_var *in[RD_MAX_IN] = {emb, memory, keys, query_kernel, v, g, b, W_in, b_in}, *out[2] = {NULL, NULL};
    int n = IN_CELLS, n_w = 0;
    for (int l = 0; l < d->n_layers; l++) n_w += d->n_w[l];
    *ctx_out = NULL;
    if (!emb || !memory || !keys) return NULL;
    if (n + n_w > RD_MAX_IN) {
        rd_fail(rd_tape_status(t), RD_EUSAGE,
                "the decoder has %d parameters, more than the %d that fit; use fewer layers or groups", n_w,
                RD_MAX_IN - n);
        return NULL;
    }
    for (int i = 0; i < n_w; i++)
        if (!(in[n++] = w[i])) return NULL;
    rd_var *q = rd_tape_apply(t, &rd_op_def_attention_decoder, d, sizeof *d, in, n, out, 2);
    *ctx_out = out[1];
    return q;
}
