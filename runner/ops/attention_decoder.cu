/* attention_decoder.cu -- the decoder's time loop on a GPU, for LSTM layers without a projection
 * and without a layer in front of them. All other decoders use shared/attention_loop.c.
 *
 * A layer's input and its output of the step before are one operand [x h], of 16 bits in mixed. So
 * a step has one product for each layer, and one kernel behind it writes the operands of the next
 * products (shared/lstm_tick.h). The attention writes the context into the next step's operand.
 * With L layers, a step takes 2 L + 2 launches each way: products, kernels; query, attention. */
#include "shared/attention_kernels.h"
#include "shared/attention_loop.h"
#include "shared/lstm_tick.h"
#include "shared/operand.h"
#include "../engine/gpu/element_device.h"
#include "../engine/gpu/rows_grid.h"

/* What a layer keeps. */
typedef struct fused_layer {
    rd_lstm_tick tick;
    int64_t in; /* columns of x in an operand */
    uint8_t *mask_in;
    const rd_var *W, *b;
} fused_layer;

typedef struct fused_loop {
    rd_packing_lent p;
    rd_element type;
    void *query; /* [N, ld_query] queries as an operand */
    int64_t ld_query;
    fused_layer l[RD_MAX_LAYERS];
} fused_loop;

static bool decoder_fuses(const rd_call *c)
{
    const rd_attn_decoder *d = static_cast<const rd_attn_decoder *>(c->attr);
    bool fuses = !c->in[RD_LOOP_W] && c->out[0]->rows > 0;
    for (int l = 0; l < d->n_layers; l++)
        fuses = fuses && strcmp(d->layer[l].cell->name, "lstm") == 0 &&
                d->layer[l].shape.H == c->out[0]->cols && !d->layer[l].shape.projects &&
                !d->layer[l].shape.extra && !d->layer[l].residual;
    return fuses;
}

static rd_code decoder_array(rd_arena *a, int64_t n, rd_element type, void *out, rd_status *st)
{
    return rd_arena_get(a, (size_t)(n + 1) * rd_element_bytes(type), out, st);
}

/* Draws the mask of a dropout for all rows. */
static rd_code decoder_mask(rd_call *c, const rd_dropout *d, const rd_packing_lent *p, int64_t N,
                            int64_t width, uint8_t **mask, rd_status *st)
{
    *mask = NULL;
    if (!c->training || d->keep >= 1.0f) return st->code;
    RD_TRY_OR_RETURN(rd_arena_get(c->device_kept, (size_t)(N * width), mask, st));
    return rd_dropout_rows(c->be, d, p, 0, p->p->n_steps, width, NULL, NULL, NULL, *mask, st);
}

/* Adds the gradients of the embeddings, which are the first columns of those of the operands. */
static __global__ void decoder_embed_back(int64_t N, int64_t E, const float *__restrict__ d,
                                          int64_t ld, const uint8_t *__restrict__ mask,
                                          int64_t ld_mask, float keep, float *__restrict__ demb)
{
    for (RD_EACH_ROW(i, N))
        for (RD_EACH_COLUMN(q, E)) {
            const float x = d[i * ld + q];
            demb[i * E + q] += !mask ? x : mask[i * ld_mask + q] ? x * (1.0f / keep) : 0.0f;
        }
}

/* Allocates what layer l keeps. Without backward, states have the rows of one step. */
static rd_code decoder_layer(rd_call *c, const rd_attn_loop *x, fused_loop *f, int l, rd_status *st)
{
    const rd_layer *L = &x->d->layer[l];
    const int64_t H = L->shape.H, in = L->shape.in, N = x->N;
    rd_arena *a = c->device_kept;
    fused_layer *y = &f->l[l];
    rd_lstm_tick *k = &y->tick;
    uint8_t *mask_out;
    y->in = in;
    y->W = x->cell[l].w[0];
    y->b = x->cell[l].w[1];
    k->type = f->type;
    k->n = 1;
    k->n_steps = x->d->packing.n_steps;
    k->H = H;
    k->off = f->p.off;
    k->bias = y->b->v;
    RD_TRY_OR_RETURN(decoder_mask(c, &L->drop_in, &f->p, N, in, &y->mask_in, st));
    RD_TRY_OR_RETURN(decoder_mask(c, &L->drop_out, &f->p, N, H, &mask_out, st));
    k->mask_out = mask_out;
    k->keep_out = L->drop_out.keep;
    k->own.ld = rd_operand_ld(in + H);
    k->own.h_at = in;
    RD_TRY_OR_RETURN(decoder_array(a, N * k->own.ld, f->type, &k->own.all, st));
    if (c->keep) {
        RD_TRY_OR_RETURN(decoder_array(a, N * 4 * H, RD_FLOAT32, &k->z, st));
        RD_TRY_OR_RETURN(decoder_array(a, N * H, RD_FLOAT32, &k->tc, st));
    }
    return decoder_array(a, (c->keep ? N : x->n0) * H, RD_FLOAT32, &k->c, st);
}

/* Allocates what forward keeps, draws all masks, and joins the layers. */
static rd_code decoder_begin(rd_call *c, const rd_attn_loop *x, rd_attn_loop_saved *v,
                             fused_loop *f, rd_status *st)
{
    const int n = x->d->n_layers;
    rd_arena *a = c->device_kept;
    RD_TRY_OR_RETURN(rd_packing_lend(c, &x->d->packing, a, &f->p, st));
    f->type = rd_gpu_narrow(rd_gpu_of(c->be));
    f->ld_query = f->type == RD_FLOAT32 ? x->R : rd_operand_ld(x->R);
    if (x->at.ve) RD_TRY_OR_RETURN(rd_rows_get(a, x->N, x->A, &v->qp, st));
    RD_TRY_OR_RETURN(rd_arena_get(a, (size_t)(v->n_weights + 1) * sizeof(float), &v->al, st));
    for (int l = 0; l < n; l++) RD_TRY_OR_RETURN(decoder_layer(c, x, f, l, st));
    for (int l = 0; l < n; l++) {
        rd_lstm_tick *k = &f->l[l].tick;
        k->n_layers = 1;
        if (l + 1 == n) continue;
        k->n_layers = 2; /* the layer of the launch, and the one above it */
        k->above = f->l[l + 1].tick.own;
        k->mask_in = f->l[l + 1].mask_in;
        k->keep_in = x->d->layer[l + 1].drop_in.keep;
    }
    rd_lstm_tick *top = &f->l[n - 1].tick;
    top->out = c->out[0]->v;
    f->query = top->out;
    if (f->type == RD_FLOAT32 || !x->at.ve) return st->code;
    RD_TRY_OR_RETURN(decoder_array(a, x->N * f->ld_query, f->type, &f->query, st));
    top->out_narrow = f->query;
    top->ld_narrow = f->ld_query;
    return st->code;
}

/* The rows that step t + 1 reads of the contexts of step t, in the operands `rows`, or in their
 * gradients. */
static rd_attention_feed decoder_feed(const rd_attn_loop *x, const fused_layer *lowest, int64_t t,
                                      void *rows, rd_element type, int64_t ld)
{
    const int64_t *off = x->d->packing.off, n_steps = x->d->packing.n_steps, at = off[t + 1];
    rd_attention_feed f = {};
    f.type = type;
    if (t + 1 == n_steps) return f;
    f.rows = rd_operand_at(rows, type, at * ld + x->E, ld).at;
    f.ld = ld;
    f.n = off[t + 2] - at;
    f.ld_mask = lowest->in;
    if (lowest->mask_in) f.mask = lowest->mask_in + at * lowest->in + x->E;
    f.keep = x->d->layer[0].drop_in.keep;
    return f;
}

static rd_code decoder_forward(rd_call *c, rd_attn_loop *x, rd_attn_loop_saved *v, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(c->be);
    const int64_t *off = x->d->packing.off, R = x->R, A = x->A;
    fused_loop *f;
    float *product;
    RD_TRY_OR_RETURN(rd_arena_zero(c->kept, sizeof *f, &f, st));
    v->fused = f;
    RD_TRY_OR_RETURN(decoder_begin(c, x, v, f, st));
    RD_TRY_OR_RETURN(decoder_array(c->device_scratch, x->n0 * 4 * R, RD_FLOAT32, &product, st));
    fused_layer *low = &f->l[0];
    /* No context and no output before the first step. */
    const rd_tick_operand *first = &low->tick.own;
    RD_TRY_OR_RETURN(rd_gpu_zero(g, first->all,
                                 (size_t)(x->n0 * first->ld) * rd_element_bytes(f->type), st));
    RD_TRY_OR_RETURN(rd_operand_rows(g, x->N, x->E, c->in[RD_LOOP_EMB]->v, low->mask_in, low->in,
                                     x->d->layer[0].drop_in.keep,
                                     rd_operand_at(first->all, f->type, 0, first->ld), st));
    for (int64_t t = 0; t < x->d->packing.n_steps; t++) {
        const int64_t at = off[t], n = off[t + 1] - at;
        for (int l = 0; l < x->d->n_layers; l++) {
            const fused_layer *y = &f->l[l];
            rd_lstm_tick k = y->tick;
            RD_TRY_OR_RETURN(
                rd_gpu_product(g, false, false, n, 4 * R, y->in + R,
                               rd_operand_at(k.own.all, f->type, at * k.own.ld, k.own.ld),
                               rd_operand_at(y->W->v, RD_FLOAT32, 0, 4 * R), 0.0f,
                               rd_operand_at(product, RD_FLOAT32, 0, 4 * R), st));
            k.product = product;
            k.tick = t;
            k.rows = n;
            RD_TRY_OR_RETURN(rd_lstm_tick_forward(g, &k, st));
        }
        if (x->at.ve)
            RD_TRY_OR_RETURN(
                rd_gpu_product(g, false, false, n, A, R,
                               rd_operand_at(f->query, f->type, at * f->ld_query, f->ld_query),
                               rd_operand_at(c->in[RD_LOOP_QUERY]->v, RD_FLOAT32, 0, A), 0.0f,
                               rd_operand_at(v->qp, RD_FLOAT32, at * A, A), st));
        const rd_attention_feed feed = decoder_feed(x, low, t, first->all, f->type, first->ld);
        RD_TRY_OR_RETURN(rd_cuda_attention_step(&x->at, n, t, c->out[0]->v + at * R,
                                                v->qp ? v->qp + at * A : NULL, v->al,
                                                c->out[1]->v + at * x->M, &feed, st));
    }
    return st->code;
}

extern "C" rd_code rd_cuda_attention_decoder_forward(rd_call *c, rd_status *st)
{
    rd_attn_loop x;
    rd_attn_loop_saved *v;
    if (!decoder_fuses(c)) return rd_attn_loop_forward(c, st);
    RD_TRY_OR_RETURN(rd_arena_zero(c->kept, sizeof *v, &v, st));
    c->saved = v;
    RD_TRY_OR_RETURN(rd_attn_loop_lend(c, v, st));
    RD_TRY_OR_RETURN(rd_attn_loop_setup(c, &x, v, st));
    return decoder_forward(c, &x, v, st);
}

/* ---- back ---- */

/* What backward has for a layer. */
typedef struct fused_back {
    rd_lstm_tick tick;
    float *back; /* gradients of operands: all N rows of the lowest layer, those of a step above */
    int64_t ld;
} fused_back;

static rd_code decoder_back_begin(rd_call *c, const rd_attn_loop *x, const fused_loop *f,
                                  fused_back *b, rd_status *st)
{
    rd_arena *s = c->device_scratch;
    for (int l = 0; l < x->d->n_layers; l++) {
        const int64_t H = x->R;
        rd_lstm_tick *k = &b[l].tick;
        *k = f->l[l].tick;
        b[l].ld = f->l[l].in + H;
        RD_TRY_OR_RETURN(decoder_array(s, (l ? x->n0 : x->N) * b[l].ld, RD_FLOAT32, &b[l].back,
                                       st));
        RD_TRY_OR_RETURN(rd_arena_zero(s, (size_t)(x->n0 * H) * sizeof *k->dc, &k->dc, st));
        k->back = b[l].back;
        k->ld_back = b[l].ld;
        k->dout = c->out[0]->g;
        /* Float32 gradients take the place of the gates. */
        k->dz = k->z;
        k->ld_dz = 4 * H;
        if (f->type == RD_FLOAT32) continue;
        k->ld_dz = rd_operand_ld(4 * H);
        RD_TRY_OR_RETURN(decoder_array(s, x->N * k->ld_dz, f->type, &k->dz, st));
    }
    for (int l = 0; l + 1 < x->d->n_layers; l++) {
        b[l].tick.back_above = b[l + 1].back;
        b[l].tick.ld_back_above = b[l + 1].ld;
    }
    return st->code;
}

/* Adds the gradients of all parameters but those of the attention's scores, and of the
 * embeddings. */
static rd_code decoder_sums(rd_call *c, const rd_attn_loop *x, const fused_loop *f,
                            const fused_back *b, const rd_gpu_operand *dqp, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(c->be);
    const int64_t N = x->N, wide = 4 * x->R;
    for (int l = 0; l < x->d->n_layers; l++) {
        const fused_layer *y = &f->l[l];
        const rd_lstm_tick *k = &b[l].tick;
        if (y->W->g)
            RD_TRY_OR_RETURN(rd_gpu_product(g, true, false, y->in + x->R, wide, N,
                                            rd_operand_at(k->own.all, f->type, 0, k->own.ld),
                                            rd_operand_at(k->dz, f->type, 0, k->ld_dz), 1.0f,
                                            rd_operand_at(y->W->g, RD_FLOAT32, 0, wide), st));
        RD_TRY_OR_RETURN(rd_lstm_tick_bias(g, f->type, 1, N, wide, k->dz, k->ld_dz, 0, y->b->g, 0,
                                           st));
    }
    float *demb = c->in[RD_LOOP_EMB]->g, *dquery = x->at.ve ? c->in[RD_LOOP_QUERY]->g : NULL;
    if (demb)
        RD_TRY_OR_RETURN(RD_LAUNCH(g, st, decoder_embed_back, rd_rows_grid(N, x->E),
                                   rd_rows_block(x->E), 0, N, x->E, b[0].back, b[0].ld,
                                   f->l[0].mask_in, f->l[0].in, x->d->layer[0].drop_in.keep, demb));
    if (dquery)
        RD_TRY_OR_RETURN(rd_gpu_product(g, true, false, x->R, x->A, N,
                                        rd_operand_at(f->query, f->type, 0, f->ld_query), *dqp,
                                        1.0f, rd_operand_at(dquery, RD_FLOAT32, 0, x->A), st));
    if (dquery && c->in[RD_LOOP_B])
        return rd_operand_add_columns(g, c->device_scratch, N, x->A, *dqp, c->in[RD_LOOP_B]->g, st);
    return st->code;
}

static rd_code decoder_backward(rd_call *c, rd_attn_loop *x, const rd_attn_loop_saved *v,
                                rd_status *st)
{
    rd_gpu *g = rd_gpu_of(c->be);
    const int64_t *off = x->d->packing.off, R = x->R, A = x->A;
    const fused_loop *f = static_cast<const fused_loop *>(v->fused);
    rd_attention_back ab;
    fused_back *b;
    rd_gpu_operand dqp = {}; /* [N, A] */
    RD_TRY_OR_RETURN(rd_arena_zero(c->scratch, (size_t)x->d->n_layers * sizeof *b, &b, st));
    RD_TRY_OR_RETURN(decoder_back_begin(c, x, f, b, st));
    dqp.type = f->type;
    dqp.ld = !x->at.ve ? 0 : f->type == RD_FLOAT32 ? A : rd_operand_ld(A);
    if (x->at.ve)
        RD_TRY_OR_RETURN(decoder_array(c->device_scratch, x->N * dqp.ld, dqp.type, &dqp.at, st));
    RD_TRY_OR_RETURN(rd_attention_back_begin(&x->at, x->n0, x->N, v->n_weights, v->slot0,
                                             c->in[RD_LOOP_KEYS]->g, &ab, st));
    for (int64_t t = x->d->packing.n_steps - 1; t >= 0; t--) {
        const int64_t at = off[t], n = off[t + 1] - at;
        const rd_attention_feed carry = decoder_feed(x, &f->l[0], t, b[0].back, RD_FLOAT32,
                                                     b[0].ld);
        float *dq = c->out[0]->g + at * R;
        const rd_gpu_operand dqp_t = rd_operand_at(dqp.at, dqp.type, at * dqp.ld, dqp.ld);
        RD_TRY_OR_RETURN(rd_cuda_attention_step_back(
            &x->at, &ab, n, t, c->out[0]->v + at * R, v->qp ? v->qp + at * A : NULL, v->al,
            c->out[1]->g + at * x->M, &carry, &dqp_t, dq, st));
        if (x->at.ve)
            RD_TRY_OR_RETURN(
                rd_gpu_product(g, false, true, n, R, A, dqp_t,
                               rd_operand_at(c->in[RD_LOOP_QUERY]->v, RD_FLOAT32, 0, A), 1.0f,
                               rd_operand_at(dq, RD_FLOAT32, 0, R), st));
        for (int l = x->d->n_layers - 1; l >= 0; l--) {
            const fused_layer *y = &f->l[l];
            rd_lstm_tick k = b[l].tick;
            k.tick = t;
            k.rows = n;
            if (l == 0) k.back = b[0].back + off[t + 1] * b[0].ld;
            RD_TRY_OR_RETURN(rd_lstm_tick_back(g, &k, st));
            RD_TRY_OR_RETURN(rd_gpu_product(
                g, false, true, n, y->in + R, 4 * R,
                rd_operand_at(k.dz, f->type, at * k.ld_dz, k.ld_dz),
                rd_operand_at(y->W->v, RD_FLOAT32, 0, 4 * R), 0.0f,
                rd_operand_at(b[l].back, RD_FLOAT32, l ? 0 : at * b[0].ld, b[l].ld), st));
        }
    }
    RD_TRY_OR_RETURN(decoder_sums(c, x, f, b, &dqp, st));
    return rd_attention_finish(&x->at, &ab, x->n0, v->al, c->in[RD_LOOP_MEMORY]->g, st);
}

extern "C" rd_code rd_cuda_attention_decoder_backward(rd_call *c, rd_status *st)
{
    rd_attn_loop x;
    const rd_attn_loop_saved *v = static_cast<const rd_attn_loop_saved *>(c->saved);
    if (!v->fused) return rd_attn_loop_backward(c, st);
    RD_TRY_OR_RETURN(rd_attn_loop_setup(c, &x, v, st));
    return decoder_backward(c, &x, v, st);
}
