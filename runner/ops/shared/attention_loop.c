/* attention_loop.c -- the time loop of a decoder with input feeding, forward and back:
 *   in_t = [emb_t; ctx_{t-1}] (W_in + b_in),   q_t = stack(in_t),   ctx_t = attend(q_t)
 *
 * Backward goes through the same steps in reverse. Each weight gradient is one product over all
 * steps after the loop. Other sums over time, above all the gradient of the memory, also wait for
 * the end of the loop (rd_attention_finish). There is one source for both devices. */
#include "attention_loop.h"
#include "layer_rows.h"
#include "rounded_rows.h"

rd_code rd_attn_loop_lend(rd_call *c, rd_attn_loop_saved *v, rd_status *st)
{
    const rd_attn_decoder *d = c->attr;
    const rd_packing *p = &d->packing;
    const int64_t n0 = p->n_steps ? p->off[1] : 0;
    const size_t n = (size_t)(4 * n0 + 2);
    int64_t *all;
    RD_TRY(rd_arena_zero(c->kept, n * sizeof *all, &all, st));
    int64_t *first = all, *len = all + n0, *place = len + n0, *slot0 = place + n0 + 1;
    /* slot0 holds the lengths first, then their running sum. */
    for (int64_t t = 0; t < p->n_steps; t++)
        for (int64_t i = 0; i < p->off[t + 1] - p->off[t]; i++) slot0[i + 1]++;
    for (int64_t i = 0; i < n0; i++) {
        first[i] = d->src_first[i];
        len[i] = d->src_len[i];
        place[i + 1] = place[i] + slot0[i + 1] * len[i];
        slot0[i + 1] += slot0[i];
        v->max_len = len[i] > v->max_len ? len[i] : v->max_len;
    }
    v->n_weights = place[n0];
    RD_TRY(rd_call_lend(c, c->device_kept, all, n * sizeof *all, &v->first, st));
    v->len = v->first + n0;
    v->place = v->len + n0;
    v->slot0 = v->place + n0 + 1;
done:
    return st->code;
}

rd_code rd_attn_loop_setup(rd_call *c, rd_attn_loop *x, const rd_attn_loop_saved *v, rd_status *st)
{
    const rd_attn_decoder *d = c->attr;
    int w = RD_LOOP_CELLS;
    x->d = d;
    x->N = c->out[0]->rows;
    x->n0 = d->packing.n_steps ? d->packing.off[1] : 0;
    x->E = c->in[RD_LOOP_EMB]->cols;
    x->M = c->in[RD_LOOP_MEMORY]->cols;
    x->R = c->out[0]->cols;
    x->A = c->in[RD_LOOP_KEYS]->cols;
    for (int l = 0; l < d->n_layers; l++) {
        RD_TRY(rd_cell_init(&x->cell[l], d->layer[l].cell, &d->layer[l].shape, c->be, c->params,
                            c->device_scratch, c->in + w, d->n_w[l], st));
        w += d->n_w[l];
    }
    x->at = (rd_attention){.kind = d->kind,
                           .A = x->A,
                           .R = x->R,
                           .M = x->M,
                           .query_kernel = c->in[RD_LOOP_QUERY],
                           .v = c->in[RD_LOOP_V],
                           .g = c->in[RD_LOOP_G],
                           .b = c->in[RD_LOOP_B],
                           .memory = c->in[RD_LOOP_MEMORY]->v,
                           .keys = c->in[RD_LOOP_KEYS]->v,
                           .S = c->in[RD_LOOP_KEYS]->rows,
                           .first = v->first,
                           .len = v->len,
                           .place = v->place,
                           .max_len = v->max_len,
                           .be = c->be,
                           .ps = c->params,
                           .scratch = c->device_scratch};
    RD_TRY(rd_attention_begin(&x->at, c->device_scratch, st));
done:
    return st->code;
}

/* Allocates what forward keeps. */
static rd_code attention_decoder_allocate(rd_call *c, const rd_attn_loop *x, rd_attn_loop_saved *v,
                                          rd_status *st)
{
    const int64_t N = x->N;
    rd_arena *a = c->device_kept;
    RD_TRY(rd_rows_get(a, N, x->E + x->M, &v->cat, st));
    if (x->at.ve) RD_TRY(rd_rows_get(a, N, x->A, &v->qp, st));
    RD_TRY(rd_arena_get(a, (size_t)v->n_weights * sizeof(float), &v->al, st));
    for (int l = 0; l < x->d->n_layers; l++) {
        const rd_layer *L = &x->d->layer[l];
        rd_attn_loop_rows *y = &v->l[l];
        if (l > 0 || c->in[RD_LOOP_W])
            RD_TRY(rd_rows_get(a, N, L->shape.in, &y->x, st));
        else
            y->x = v->cat;
        y->xd = y->x;
        if (c->training && L->drop_in.keep < 1.0f) {
            RD_TRY(rd_rows_get(a, N, L->shape.in, &y->xd, st));
            RD_TRY(rd_arena_get(a, (size_t)(N * L->shape.in), &y->mask_in, st));
        }
        if (c->training && L->drop_out.keep < 1.0f)
            RD_TRY(rd_arena_get(a, (size_t)(N * L->shape.R), &y->mask_out, st));
        RD_TRY(rd_rows_get(a, N, x->cell[l].Z, &y->r.z, st));
        RD_TRY(rd_rows_get(a, N, L->shape.H, &y->r.tc, st));
        if (L->cell->has_c) RD_TRY(rd_rows_get(a, N, L->shape.H, &y->r.c, st));
        if (L->shape.projects) RD_TRY(rd_rows_get(a, N, L->shape.H, &y->r.m, st));
    }
    for (int l = 0; l < x->d->n_layers; l++) {
        const rd_layer *L = &x->d->layer[l];
        rd_attn_loop_rows *y = &v->l[l];
        if (y->mask_out || L->residual)
            RD_TRY(rd_rows_get(a, N, L->shape.R, &y->r.h, st));
        else
            y->r.h = l + 1 < x->d->n_layers ? v->l[l + 1].x : c->out[0]->v;
    }
done:
    return st->code;
}

/* Makes 16-bit copies of the operands of products. An array that is two of them has one copy. */
static rd_code attention_decoder_round(rd_call *c, const rd_attn_loop *x, rd_attn_loop_saved *v,
                                       rd_status *st)
{
    rd_arena *a = c->device_kept;
    const rd_attn_loop_rows *last = &v->l[x->d->n_layers - 1];
    const int64_t wide = x->E + x->M;
    if (c->in[RD_LOOP_W] || v->l[0].xd == v->cat)
        RD_TRY(rd_rounded_new(c->be, a, x->N, wide, v->cat, &v->cat_copy, st));
    RD_TRY(rd_vec_zero(c->be, x->n0 * wide, v->cat, st)); /* no context before the first step */
    RD_TRY(rd_rounded_write(c->be, x->n0 * wide, v->cat, st));
    for (int l = 0; l < x->d->n_layers; l++) {
        const rd_layer *L = &x->d->layer[l];
        rd_attn_loop_rows *y = &v->l[l];
        const bool own_x = y->xd != v->cat && (l == 0 || y->xd != v->l[l - 1].r.h);
        RD_TRY(rd_rounded_new(c->be, a, x->N, L->shape.in, own_x ? y->xd : NULL, &y->xd_copy, st));
        RD_TRY(rd_rounded_new(c->be, a, x->N, L->shape.R, y->r.h, &y->h_copy, st));
        RD_TRY(rd_rounded_new(c->be, a, x->N, L->shape.H, L->cell->has_c ? NULL : y->r.tc,
                              &y->tc_copy, st));
        RD_TRY(rd_rounded_new(c->be, a, x->N, L->shape.H, y->r.m, &y->m_copy, st));
    }
    if (c->in[RD_LOOP_QUERY] && last->r.h != c->out[0]->v)
        RD_TRY(rd_rounded_new(c->be, a, x->N, x->R, c->out[0]->v, &v->out_copy, st));
done:
    return st->code;
}

/* Begins to use the copies of forward in backward. */
static rd_code attention_decoder_round_again(rd_call *c, const rd_attn_loop *x,
                                             const rd_attn_loop_saved *v, rd_status *st)
{
    for (int l = 0; l < x->d->n_layers; l++) {
        const rd_cell_shape *s = &x->d->layer[l].shape;
        const rd_attn_loop_rows *y = &v->l[l];
        RD_TRY(rd_rounded_again(c->be, x->N, s->in, y->xd, y->xd_copy, st));
        RD_TRY(rd_rounded_again(c->be, x->N, s->R, y->r.h, y->h_copy, st));
        RD_TRY(rd_rounded_again(c->be, x->N, s->H, y->r.tc, y->tc_copy, st));
        RD_TRY(rd_rounded_again(c->be, x->N, s->H, y->r.m, y->m_copy, st));
    }
    RD_TRY(rd_rounded_again(c->be, x->N, x->R, c->out[0]->v, v->out_copy, st));
    RD_TRY(rd_rounded_again(c->be, x->N, x->E + x->M, v->cat, v->cat_copy, st));
done:
    return st->code;
}

/* Draws the dropout masks of all steps. */
static rd_code attention_decoder_masks(rd_call *c, const rd_attn_loop *x,
                                       const rd_attn_loop_saved *v, rd_status *st)
{
    const rd_attn_decoder *d = x->d;
    const int64_t T = d->packing.n_steps;
    rd_packing_lent p;
    bool any = false;
    for (int l = 0; l < d->n_layers; l++) any |= v->l[l].mask_in || v->l[l].mask_out;
    if (!any) return RD_OK;
    RD_TRY(rd_packing_lend(c, &d->packing, c->device_scratch, &p, st));
    for (int l = 0; l < d->n_layers; l++) {
        const rd_layer *L = &d->layer[l];
        const rd_attn_loop_rows *y = &v->l[l];
        if (y->mask_in)
            RD_TRY(rd_dropout_rows(c->be, &L->drop_in, &p, 0, T, L->shape.in, NULL, NULL, NULL,
                                   y->mask_in, st));
        if (y->mask_out)
            RD_TRY(rd_dropout_rows(c->be, &L->drop_out, &p, 0, T, L->shape.R, NULL, NULL, NULL,
                                   y->mask_out, st));
    }
done:
    return st->code;
}

/* Computes the input of layer l in a step, for n rows from row `at` on: h + bias, or the output of
 * layer l - 1 from its h. l = n_layers: computes the result of the op. */
static rd_code enter_layer(rd_call *c, const rd_attn_loop *x, const rd_attn_loop_saved *v, int l,
                           int64_t at, int64_t n, rd_status *st)
{
    const rd_attn_decoder *d = x->d;
    const rd_attn_loop_rows *under = l > 0 ? &v->l[l - 1] : NULL,
                            *over = l < d->n_layers ? &v->l[l] : NULL;
    const int64_t width = over ? d->layer[l].shape.in : x->R;
    float *to = over ? over->x : c->out[0]->v;
    rd_between r = {.n = n,
                    .width = width,
                    .h = (under ? under->r.h : to) + at * width,
                    .keep_in = 1.0f,
                    .keep_out = 1.0f};
    if (!under && c->in[RD_LOOP_W]) r.bias = c->in[RD_LOOP_BIAS]->v;
    if (under && under->mask_out) {
        r.mask_out = under->mask_out + at * width;
        r.keep_out = d->layer[l - 1].drop_out.keep;
    }
    if (under && d->layer[l - 1].residual) r.skip = under->x + at * width;
    if (r.bias || r.mask_out || r.skip) r.y = to + at * width;
    if (over && over->mask_in) {
        r.mask_in = over->mask_in + at * width;
        r.keep_in = d->layer[l].drop_in.keep;
        r.next = over->xd + at * width;
    }
    return r.y || r.next ? rd_between_layers(c->be, &r, st) : RD_OK;
}

rd_code rd_attn_loop_forward(rd_call *c, rd_status *st)
{
    rd_attn_loop x;
    rd_attn_loop_saved *v;
    const rd_attn_decoder *d = c->attr;
    const rd_packing *p = &d->packing;
    RD_TRY(rd_arena_zero(c->kept, sizeof *v, &v, st));
    c->saved = v;
    RD_TRY(rd_attn_loop_lend(c, v, st));
    RD_TRY(rd_attn_loop_setup(c, &x, v, st));
    RD_TRY(attention_decoder_allocate(c, &x, v, st));
    RD_TRY(attention_decoder_round(c, &x, v, st));
    RD_TRY(attention_decoder_masks(c, &x, v, st));
    const int64_t wide = x.E + x.M;
    RD_TRY(rd_rows_copy(c->be, x.N, x.E, c->in[RD_LOOP_EMB]->v, x.E, v->cat, wide, false, st));
    for (int64_t t = 0; t < p->n_steps; t++) {
        const int64_t at = p->off[t], n = p->off[t + 1] - at, prev = t ? p->off[t - 1] : 0;
        const int64_t later = t + 1 < p->n_steps ? p->off[t + 2] - p->off[t + 1] : 0;
        if (c->in[RD_LOOP_W])
            RD_TRY(rd_mul_rows(&x.cell[0], c->in[RD_LOOP_W], 0, wide, n, v->cat + at * wide,
                               v->l[0].x + at * c->in[RD_LOOP_W]->cols, false, st));
        for (int l = 0; l < d->n_layers; l++) {
            const rd_cell_shape *s = &d->layer[l].shape;
            rd_cell *k = &x.cell[l];
            rd_attn_loop_rows *y = &v->l[l];
            const rd_cell_rows r = rd_cell_rows_at(k, &y->r, at);
            RD_TRY(enter_layer(c, &x, v, l, at, n, st));
            RD_TRY(k->def->input(k, n, y->xd + at * s->in, NULL, r.z, st));
            RD_TRY(rd_cell_step(k, n, t ? y->r.h + prev * s->R : NULL,
                                t && y->r.c ? y->r.c + prev * s->H : NULL, &r, st));
        }
        RD_TRY(enter_layer(c, &x, v, d->n_layers, at, n, st));
        RD_TRY(rd_attention_step(&x.at, n, t, c->out[0]->v + at * x.R,
                                 v->qp ? v->qp + at * x.A : NULL, v->al, c->out[1]->v + at * x.M,
                                 v->cat + p->off[t + 1] * wide + x.E, wide, later, st));
    }
done:
    rd_rounded_end(c->be);
    return st->code;
}

typedef struct layer_back {
    float *dz;       /* [N, Z] */
    float *dc;       /* [n0, H] */
    float *dh;       /* [N, R] if the cell projects, else [n0, R] */
    float *dh_later; /* [n0, R] from the later step */
} layer_back;

/* Gradients that pass down the layers of a step, [n0, ..]. */
typedef struct rows_back {
    float *dx; /* of the input of a layer, after its dropout */
    float *dy; /* of the output of a layer that adds its input to its output */
} rows_back;

/* Goes back through layer l in step t. dx is the gradient of the input of layer l + 1 after its
 * dropout; for the last layer, the gradient of the result of the op. `to` receives the same
 * gradient for layer l. */
static rd_code layer_step_back(rd_call *c, rd_attn_loop *x, const rd_attn_loop_saved *v,
                               const layer_back *b, const rows_back *rows, int l, int64_t t,
                               const float *dx, float *to, rd_status *st)
{
    const rd_attn_decoder *d = x->d;
    const rd_packing *p = &d->packing;
    const rd_layer *L = &d->layer[l];
    const rd_attn_loop_rows *y = &v->l[l], *over = l + 1 < d->n_layers ? &v->l[l + 1] : NULL;
    rd_cell *k = &x->cell[l];
    const int64_t at = p->off[t], n = p->off[t + 1] - at, prev = t ? p->off[t - 1] : 0,
                  R = L->shape.R, H = L->shape.H;
    const int64_t later = t + 1 < p->n_steps ? p->off[t + 2] - p->off[t + 1] : 0;
    float *dh = L->shape.projects ? b->dh + at * R : b->dh, *dz = b->dz + at * k->Z;
    rd_between_back r = {
        .n = n, .width = R, .dnext = dx, .keep_in = 1.0f, .keep_out = 1.0f, .dh = dh};
    if (over && over->mask_in) {
        r.mask_in = over->mask_in + at * R;
        r.keep_in = d->layer[l + 1].drop_in.keep;
    }
    if (over && d->layer[l + 1].residual) r.dskip = rows->dy;
    if (L->residual) r.dy = rows->dy;
    if (y->mask_out) {
        r.mask_out = y->mask_out + at * R;
        r.keep_out = L->drop_out.keep;
    }
    r.dh_later = b->dh_later;
    r.n_later = later;
    RD_TRY(rd_between_layers_back(c->be, &r, st));
    const rd_cell_rows h = rd_cell_rows_at(k, &y->r, at);
    RD_TRY(rd_cell_step_back(k, n, dh, b->dc, t ? y->r.h + prev * R : NULL,
                             t && y->r.c ? y->r.c + prev * H : NULL, &h, dz, b->dh_later, false,
                             st));
    RD_TRY(k->def->input_back(k, n, dz, to, false, NULL, st));
done:
    return st->code;
}

/* Computes `to`, the gradient of the input of the first layer before its dropout, from dx, the
 * gradient after its dropout. */
static rd_code leave_layers(rd_call *c, const rd_attn_loop *x, const rd_attn_loop_saved *v,
                            const rows_back *rows, int64_t at, int64_t n, const float *dx,
                            float *to, rd_status *st)
{
    const rd_layer *L = &x->d->layer[0];
    const int64_t width = L->shape.in;
    rd_between_back r = {
        .n = n, .width = width, .dnext = dx, .keep_in = 1.0f, .keep_out = 1.0f, .dy = to};
    if (v->l[0].mask_in) {
        r.mask_in = v->l[0].mask_in + at * width;
        r.keep_in = L->drop_in.keep;
    }
    if (L->residual) r.dskip = rows->dy;
    return r.mask_in || r.dskip || dx != to ? rd_between_layers_back(c->be, &r, st) : RD_OK;
}

rd_code rd_attn_loop_backward(rd_call *c, rd_status *st)
{
    rd_attn_loop x;
    const rd_attn_decoder *d = c->attr;
    const rd_packing *p = &d->packing;
    const rd_attn_loop_saved *v = c->saved;
    layer_back b[RD_MAX_LAYERS] = {{0}};
    rows_back rows;
    rd_attention_back ab;
    rd_packing_lent lent;
    float *dcat, *dx0_all = NULL, *dqp = NULL, *h_prev;
    void *copy;
    rd_arena *s = c->device_scratch;
    RD_TRY(rd_attn_loop_setup(c, &x, v, st));
    const int64_t N = x.N, n0 = x.n0, E = x.E, wide = E + x.M;
    if (N == 0) return RD_OK;
    RD_TRY(attention_decoder_round_again(c, &x, v, st));
    int64_t widest = wide;
    for (int l = 0; l < d->n_layers; l++) {
        const rd_cell_shape *h = &d->layer[l].shape;
        RD_TRY(rd_rows_get(s, N, x.cell[l].Z, &b[l].dz, st));
        RD_TRY(rd_rows_zero(s, n0, h->H, &b[l].dc, st));
        RD_TRY(rd_rows_get(s, h->projects ? N : n0, h->R, &b[l].dh, st));
        RD_TRY(rd_rows_get(s, n0, h->R, &b[l].dh_later, st));
        RD_TRY(rd_rounded_new(c->be, s, N, x.cell[l].Z, b[l].dz, &copy, st));
        RD_TRY(rd_rounded_new(c->be, s, N, h->R, h->projects ? b[l].dh : NULL, &copy, st));
        widest = h->in > widest ? h->in : widest;
        widest = h->R > widest ? h->R : widest;
    }
    RD_TRY(rd_rows_get(s, n0, widest, &rows.dx, st));
    RD_TRY(rd_rows_get(s, n0, widest, &rows.dy, st));
    /* If products write nothing behind their last row, the gradients of all steps are stored one
     * after the other, and one sum adds them to the gradient of emb. */
    const bool whole = !rd_backend_rounds_rows(c->be);
    RD_TRY(rd_rows_get(s, whole ? N : n0, wide, &dcat, st));
    if (x.at.ve) {
        RD_TRY(rd_rows_get(s, N, x.A, &dqp, st));
        RD_TRY(rd_rounded_new(c->be, s, N, x.A, dqp, &copy, st));
    }
    if (c->in[RD_LOOP_W]) {
        RD_TRY(rd_rows_get(s, N, c->in[RD_LOOP_W]->cols, &dx0_all, st));
        RD_TRY(rd_rounded_new(c->be, s, N, c->in[RD_LOOP_W]->cols, dx0_all, &copy, st));
    }
    RD_TRY(rd_attention_back_begin(&x.at, n0, N, v->n_weights, v->slot0, c->in[RD_LOOP_KEYS]->g,
                                   &ab, st));

    /* Gradient of the part of ctx that the later step received. */
    const float *carry = NULL;
    for (int64_t t = p->n_steps - 1; t >= 0; t--) {
        const int64_t at = p->off[t], n = p->off[t + 1] - at,
                      later = t + 1 < p->n_steps ? p->off[t + 2] - p->off[t + 1] : 0;
        float *dq = c->out[0]->g + at * x.R, *dcat_t = whole ? dcat + at * wide : dcat, *dx = dq;
        RD_TRY(rd_attention_step_back(
            &x.at, &ab, n, t, c->out[0]->v + at * x.R, v->qp ? v->qp + at * x.A : NULL, v->al,
            c->out[1]->g + at * x.M, carry, wide, later, dqp ? dqp + at * x.A : NULL, dq, st));
        for (int l = d->n_layers - 1; l >= 0; l--) {
            float *to = l > 0 || c->in[RD_LOOP_W] ? rows.dx : dcat_t;
            RD_TRY(layer_step_back(c, &x, v, &b[l], &rows, l, t, dx, to, st));
            dx = to;
        }
        if (c->in[RD_LOOP_W]) {
            float *dx0 = dx0_all + at * c->in[RD_LOOP_W]->cols;
            RD_TRY(leave_layers(c, &x, v, &rows, at, n, dx, dx0, st));
            RD_TRY(rd_mul_rows_t(&x.cell[0], c->in[RD_LOOP_W], 0, wide, n, dx0, dcat_t, false, st));
        } else {
            RD_TRY(leave_layers(c, &x, v, &rows, at, n, dx, dcat_t, st));
        }
        carry = dcat_t + E;
        if (c->in[RD_LOOP_EMB]->g && !whole)
            RD_TRY(rd_rows_copy(c->be, n, E, dcat_t, wide, c->in[RD_LOOP_EMB]->g + at * E, E, true,
                                st));
    }
    if (c->in[RD_LOOP_EMB]->g && whole)
        RD_TRY(rd_rows_copy(c->be, N, E, dcat, wide, c->in[RD_LOOP_EMB]->g, E, true, st));
    RD_TRY(rd_packing_lend(c, p, s, &lent, st));
    for (int l = 0; l < d->n_layers; l++) {
        const int64_t R = d->layer[l].shape.R;
        const rd_mark mark = rd_arena_mark(s);
        RD_TRY(rd_rows_get(s, N, R, &h_prev, st));
        RD_TRY(rd_rounded_new(c->be, s, N, R, h_prev, &copy, st));
        RD_TRY(rd_shift_rows(c->be, &lent, R, v->l[l].r.h, h_prev, st));
        RD_TRY(d->layer[l].cell->weights_back(&x.cell[l], N, v->l[l].xd, NULL, h_prev, v->l[l].r.tc,
                                              b[l].dz, st));
        RD_TRY(rd_cell_projection_back(&x.cell[l], N, v->l[l].r.m, b[l].dh, st));
        rd_arena_rewind(s, mark);
    }
    if (c->in[RD_LOOP_W]) {
        const int64_t w = c->in[RD_LOOP_W]->cols;
        RD_TRY(rd_mul_grad(&x.cell[0], c->in[RD_LOOP_W], 0, wide, N, v->cat, dx0_all, st));
        RD_TRY(rd_add_columns(c->be, s, N, w, dx0_all, w, c->in[RD_LOOP_BIAS]->g, st));
    }
    if (x.at.ve) {
        RD_TRY(rd_param_grad(c->be, c->in[RD_LOOP_QUERY], 0, x.R, N, c->out[0]->v, dqp, st));
        if (c->in[RD_LOOP_B])
            RD_TRY(rd_add_columns(c->be, s, N, x.A, dqp, x.A, c->in[RD_LOOP_B]->g, st));
    }
    RD_TRY(rd_attention_finish(&x.at, &ab, n0, v->al, c->in[RD_LOOP_MEMORY]->g, st));
done:
    rd_rounded_end(c->be);
    return st->code;
}
