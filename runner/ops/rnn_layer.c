/* rnn_layer.c -- one recurrent layer with its wrappers, over a packed batch:
 *   out = drop_out(cell(drop_in(x)))          without residual
 *   out = x + drop_out(cell(drop_in(x)))      with residual
 *
 * The input's share of all time steps is one product before the loop. The weight gradients are one
 * product after the loop. The loop itself contains h W_h and the elementwise part. A step computes
 * only the sequences that have not ended. There is one source for both devices: float arrays come
 * from the arenas that the products compute in. On a GPU, cuDNN may run the whole loop of the cell
 * (see rnn_choose.h); dropout and residual stay in this file. Other LSTM layers without a
 * projection are computed as in shared/lstm_layer.cu there. */
#include "../engine/lstm_kernels.h"
#include "rd/cell.h"
#include "shared/lstm_layer.h"
#include "shared/rounded_rows.h"
#include <inttypes.h>

typedef struct rnn_layer_attr {
    rd_layer l;
    rd_packing p;
    int n_w;
} rnn_layer_attr;

/* 16-bit copies of arrays below, for products (rounded_rows.h). NULL: none. */
typedef struct rnn_layer_copies {
    void *xd, *att, *tc, *m;
} rnn_layer_copies;

typedef struct rnn_layer_saved {
    rd_packing_lent p;
    const float *xd; /* input after dropout */
    uint8_t *mask_in, *mask_out;
    rd_cell_rows r;     /* all N rows; only h if cuDNN has computed them */
    rd_lstm_kept whole; /* what backward of cuDNN needs; zeros: r has the results of our loop */
    void *fused;        /* what the loop of lstm_layer.cu keeps; NULL: it has not run */
    rnn_layer_copies copies;
} rnn_layer_saved;

/* The loop that a device has for plain LSTM layers. NULL: none. */
typedef struct rnn_layer_fused {
    rd_code (*forward)(rd_call *c, const rd_layer *l, const rd_packing_lent *p, void **kept,
                       rd_status *st);
    rd_code (*back)(rd_call *c, const rd_layer *l, const rd_packing *p, const void *kept,
                    rd_status *st);
} rnn_layer_fused;
static const rnn_layer_fused fused_loop[RD_BACKENDS] = {
    [RD_GPU] = {RD_GPU_ENTRY(rd_cuda_lstm_layer_forward), RD_GPU_ENTRY(rd_cuda_lstm_layer_back)}};

static rd_code rnn_layer_infer(rd_call *c, rd_status *st)
{
    const rnn_layer_attr *a = c->attr;
    const rd_cell_shape *s = &a->l.shape;
    const int64_t N = a->p.off[a->p.n_steps];
    RD_TRY(rd_rows_check("rnn_layer", c->in[0], s->in, st));
    if (c->in[1]) RD_TRY(rd_rows_check("rnn_layer", c->in[1], s->extra, st));
    if (c->in[0]->rows != N || (c->in[1] && c->in[1]->rows != N))
        return rd_fail(st, RD_EBUG,
                       "rnn_layer: an input of %" PRId64 " rows does not fit a batch of %" PRId64
                       " rows",
                       c->in[0]->rows, N);
    if (a->l.residual && s->in != s->R)
        return rd_fail(st, RD_EBUG,
                       "rnn_layer: a residual sum needs equal widths; input %" PRId64
                       ", output %" PRId64,
                       s->in, s->R);
    c->out[0]->rows = N;
    c->out[0]->cols = s->R;
done:
    return st->code;
}

/* Allocates all arrays of *all except h from `memory`, and computes the time steps one by one. */
static rd_code rnn_layer_steps(rd_call *c, rd_cell *k, const float *xd, rd_arena *memory,
                               rd_cell_rows *all, rnn_layer_copies *copies, rd_status *st)
{
    const rnn_layer_attr *a = c->attr;
    const rd_cell_shape *s = &a->l.shape;
    const int64_t N = c->out[0]->rows;
    RD_TRY(rd_rows_get(memory, N, k->Z, &all->z, st));
    RD_TRY(rd_rows_get(memory, N, s->H, &all->tc, st));
    if (a->l.cell->has_c) RD_TRY(rd_rows_get(memory, N, s->H, &all->c, st));
    if (s->projects) RD_TRY(rd_rows_get(memory, N, s->H, &all->m, st));
    void *h_copy;
    RD_TRY(rd_rounded_new(c->be, c->device_scratch, N, s->R, all->h, &h_copy, st));
    RD_TRY(rd_rounded_new(c->be, memory, N, s->H, all->m, &copies->m, st));
    /* tc of a cell without c is an operand of products: r h of gru. */
    RD_TRY(rd_rounded_new(c->be, memory, N, s->H, a->l.cell->has_c ? NULL : all->tc, &copies->tc,
                          st));
    RD_TRY(a->l.cell->input(k, N, xd, c->in[1] ? c->in[1]->v : NULL, all->z, st));
    for (int64_t t = 0; t < a->p.n_steps; t++) {
        const rd_cell_rows r = rd_cell_rows_at(k, all, a->p.off[t]);
        const int64_t n = a->p.off[t + 1] - a->p.off[t], prev = t ? a->p.off[t - 1] : 0;
        RD_TRY(rd_cell_step(k, n, t ? all->h + prev * s->R : NULL,
                            t && all->c ? all->c + prev * s->H : NULL, &r, st));
    }
done:
    return st->code;
}

static rd_lstm_layer rnn_layer_whole(const rd_call *c, const rd_cell *k, const rnn_layer_saved *v)
{
    const rnn_layer_attr *a = c->attr;
    const rd_cell_shape *s = &a->l.shape;
    return (rd_lstm_layer){.in = s->in,
                           .extra = s->extra,
                           .H = s->H,
                           .n_steps = a->p.n_steps,
                           .off = a->p.off,
                           .device_off = v->p.off,
                           .W = k->w[0]->v,
                           .b = k->w[1]->v,
                           .dW = k->w[0]->g,
                           .db = k->w[1]->g,
                           .projects = s->projects};
}

/* Returns whether lstm_layer.cu computes the layer. */
static bool rnn_layer_fuses(const rd_call *c, const rd_cell *k, const rnn_layer_saved *v)
{
    const rnn_layer_attr *a = c->attr;
    const rd_lstm_layer whole = rnn_layer_whole(c, k, v);
    return fused_loop[rd_backend_kind_of(c->be)].forward && strcmp(a->l.cell->name, "lstm") == 0 &&
           !a->l.shape.projects && (a->l.shape.extra > 0) == (c->in[1] != NULL) &&
           rd_lstm_own(c->be, a->l.cell->name, &whole, c->keep);
}

static rd_code rnn_layer_forward(rd_call *c, rd_status *st)
{
    const rnn_layer_attr *a = c->attr;
    const rd_cell_shape *s = &a->l.shape;
    const int64_t N = c->out[0]->rows;
    const bool drop_in = c->training && a->l.drop_in.keep < 1.0f,
               drop_out = c->training && a->l.drop_out.keep < 1.0f;
    rd_arena *kept = c->device_kept;
    rnn_layer_saved *v;
    rd_cell k;
    RD_TRY(rd_cell_init(&k, a->l.cell, s, c->be, c->params, c->device_scratch, c->in + 2, a->n_w,
                        st));
    RD_TRY(rd_arena_zero(c->kept, sizeof *v, &v, st));
    c->saved = v;
    if (N == 0) goto done;
    RD_TRY(rd_packing_lend(c, &a->p, kept, &v->p, st));
    if (rnn_layer_fuses(c, &k, v)) {
        /* Computes nothing, and counts the pass. */
        const rd_lstm_layer own = rnn_layer_whole(c, &k, v);
        RD_TRY(rd_lstm_forward(c->be, a->l.cell->name, &own, NULL, NULL, NULL, c->keep, kept,
                               c->device_scratch, &v->whole, st));
        return fused_loop[rd_backend_kind_of(c->be)].forward(c, &a->l, &v->p, &v->fused, st);
    }
    v->xd = c->in[0]->v;
    const rd_lstm_layer whole = rnn_layer_whole(c, &k, v);
    const bool own = rd_lstm_own(c->be, a->l.cell->name, &whole, c->keep);
    if (drop_in) {
        float *xd;
        RD_TRY(rd_rows_get(kept, N, s->in, &xd, st));
        RD_TRY(rd_arena_get(kept, (size_t)(N * s->in), &v->mask_in, st));
        if (own) RD_TRY(rd_rounded_new(c->be, kept, N, s->in, xd, &v->copies.xd, st));
        RD_TRY(rd_dropout_rows(c->be, &a->l.drop_in, &v->p, 0, a->p.n_steps, s->in, c->in[0]->v,
                               NULL, xd, v->mask_in, st));
        v->xd = xd;
    } else if (own) {
        RD_TRY(rd_rounded_new(c->be, kept, N, s->in, v->xd, &v->copies.xd, st));
        RD_TRY(rd_rounded_write(c->be, N * s->in, v->xd, st));
    }
    if (own && c->in[1]) {
        RD_TRY(rd_rounded_new(c->be, kept, N, s->extra, c->in[1]->v, &v->copies.att, st));
        RD_TRY(rd_rounded_write(c->be, N * s->extra, c->in[1]->v, st));
    }
    if (drop_out || a->l.residual)
        RD_TRY(rd_rows_get(kept, N, s->R, &v->r.h, st));
    else
        v->r.h = c->out[0]->v;
    RD_TRY(rd_lstm_forward(c->be, a->l.cell->name, &whole, v->xd, c->in[1] ? c->in[1]->v : NULL,
                           v->r.h, c->keep, kept, c->device_scratch, &v->whole, st));
    if (v->whole.choice.algo == RD_RNN_OWN)
        RD_TRY(rnn_layer_steps(c, &k, v->xd, kept, &v->r, &v->copies, st));
    const float *x = a->l.residual ? c->in[0]->v : NULL;
    float *y = c->out[0]->v;
    if (drop_out) {
        RD_TRY(rd_arena_get(kept, (size_t)(N * s->R), &v->mask_out, st));
        RD_TRY(rd_dropout_rows(c->be, &a->l.drop_out, &v->p, 0, a->p.n_steps, s->R, v->r.h, x, y,
                               v->mask_out, st));
    } else if (x) {
        RD_TRY(rd_vec_sum(c->be, N * s->R, x, v->r.h, y, st));
    }
done:
    rd_rounded_end(c->be);
    return st->code;
}

/* Runs backward from dh, the gradient of the outputs of the cell, to dx, the gradient of its
 * inputs. With add it adds to dx. dx may be NULL. */
static rd_code rnn_layer_cell_back(rd_call *c, rd_cell *k, float *dh, float *dx, bool add,
                                   rd_status *st)
{
    const rnn_layer_attr *a = c->attr;
    const rd_cell_shape *s = &a->l.shape;
    const rnn_layer_saved *v = c->saved;
    const int64_t N = c->out[0]->rows, n0 = a->p.off[1];
    rd_arena *scratch = c->device_scratch;
    float *da = c->in[1] ? c->in[1]->g : NULL, *dc, *dz, *h_prev;
    rd_cell_rows all = v->r;
    rnn_layer_copies copies = v->copies;
    void *dz_copy, *dh_copy, *h_copy;
    RD_TRY(rd_rounded_again(c->be, N, s->in, v->xd, copies.xd, st));
    if (c->in[1]) RD_TRY(rd_rounded_again(c->be, N, s->extra, c->in[1]->v, copies.att, st));
    if (v->whole.choice.algo != RD_RNN_OWN) {
        const rd_lstm_layer l = rnn_layer_whole(c, k, v);
        bool refused = false;
        RD_TRY(rd_lstm_backward(c->be, &l, &v->whole, dh, dx, add, da, scratch, &refused, st));
        if (!refused) goto done;
        RD_TRY(rd_rows_get(scratch, N, s->R, &all.h, st));
        RD_TRY(rnn_layer_steps(c, k, v->xd, scratch, &all, &copies, st));
    }
    RD_TRY(rd_rounded_again(c->be, N, s->H, all.tc, copies.tc, st));
    RD_TRY(rd_rounded_again(c->be, N, s->H, all.m, copies.m, st));
    RD_TRY(rd_rounded_new(c->be, scratch, N, s->R, s->projects ? dh : NULL, &dh_copy, st));
    RD_TRY(rd_rows_zero(scratch, n0, s->H, &dc, st));
    RD_TRY(rd_rows_get(scratch, N, k->Z, &dz, st));
    RD_TRY(rd_rounded_new(c->be, scratch, N, k->Z, dz, &dz_copy, st));
    /* The gradient that flows back is added to dh of the step before: the sum stays in place. */
    for (int64_t t = a->p.n_steps - 1; t >= 0; t--) {
        const int64_t at = a->p.off[t], n = a->p.off[t + 1] - at, prev = t ? a->p.off[t - 1] : 0;
        const rd_cell_rows r = rd_cell_rows_at(k, &all, at);
        RD_TRY(rd_cell_step_back(k, n, dh + at * s->R, dc, t ? all.h + prev * s->R : NULL,
                                 t && all.c ? all.c + prev * s->H : NULL, &r, dz + at * k->Z,
                                 t ? dh + prev * s->R : NULL, true, st));
    }
    RD_TRY(rd_rows_get(scratch, N, s->R, &h_prev, st));
    RD_TRY(rd_rounded_new(c->be, scratch, N, s->R, h_prev, &h_copy, st));
    RD_TRY(rd_shift_rows(c->be, &v->p, s->R, all.h, h_prev, st));
    RD_TRY(k->def->weights_back(k, N, v->xd, c->in[1] ? c->in[1]->v : NULL, h_prev, all.tc, dz,
                                st));
    RD_TRY(rd_cell_projection_back(k, N, all.m, dh, st));
    RD_TRY(k->def->input_back(k, N, dz, dx, add, da, st));
done:
    rd_rounded_end(c->be);
    return st->code;
}

static rd_code rnn_layer_backward(rd_call *c, rd_status *st)
{
    const rnn_layer_attr *a = c->attr;
    const rd_cell_shape *s = &a->l.shape;
    const rnn_layer_saved *v = c->saved;
    const int64_t N = c->out[0]->rows;
    rd_arena *scratch = c->device_scratch;
    rd_cell k;
    float *dh = c->out[0]->g, *dxd = NULL;
    if (N == 0) return RD_OK;
    if (v->fused) return fused_loop[rd_backend_kind_of(c->be)].back(c, &a->l, &a->p, v->fused, st);
    RD_TRY(rd_cell_init(&k, a->l.cell, s, c->be, c->params, scratch, c->in + 2, a->n_w, st));
    float *gx = c->in[0]->g;
    if (a->l.residual && gx) RD_TRY(rd_vec_add(c->be, N * s->R, dh, gx, st));
    if (v->mask_out) {
        RD_TRY(rd_rows_get(scratch, N, s->R, &dh, st));
        RD_TRY(rd_dropout_back(c->be, a->l.drop_out.keep, N * s->R, c->out[0]->g, v->mask_out, dh,
                               false, st));
    }
    if (v->mask_in) RD_TRY(rd_rows_get(scratch, N, s->in, &dxd, st));
    RD_TRY(rnn_layer_cell_back(c, &k, dh, dxd ? dxd : gx, !dxd, st));
    if (dxd && gx)
        RD_TRY(rd_dropout_back(c->be, a->l.drop_in.keep, N * s->in, dxd, v->mask_in, gx, true, st));
done:
    return st->code;
}

RD_OP(rnn_layer) = {.name = "rnn_layer",
                    .about = "recurrent layer with dropout and residual",
                    .infer = rnn_layer_infer,
                    .kernel = RD_EVERY_BACKEND(rnn_layer_forward, rnn_layer_backward)};

rd_var *rd_op_rnn_layer(rd_tape *t, const rd_layer *l, const rd_packing *p, rd_var *x, rd_var *att,
                        rd_var *const *w, int n_w)
{
    const rnn_layer_attr a = {*l, *p, n_w};
    rd_var *in[RD_MAX_IN] = {x, att};
    if (!x) return NULL;
    if (n_w + 2 > RD_MAX_IN) {
        rd_fail(rd_tape_status(t), RD_EBUG, "rnn_layer: %d parameters; at most %d are allowed", n_w,
                RD_MAX_IN - 2);
        return NULL;
    }
    for (int i = 0; i < n_w; i++)
        if (!(in[2 + i] = w[i])) return NULL;
    return rd_tape_apply(t, &rd_op_def_rnn_layer, &a, sizeof a, in, n_w + 2, NULL, 1);
}
