/* lstm_layer.cu -- see lstm_layer.h.
 *
 * All steps have one operand [x; h; a], of 16 bits in mixed: x after its dropout, the layer's
 * output of the step before, and the joined context. Products before the loop compute the share of
 * x and a of all steps. In the loop, a step is h W_h, added in place, and one kernel (lstm_tick.h),
 * which writes h to the operand's rows of the next step. Backward writes dz of all steps as one
 * operand. The kernel's gradient is one product of both. */
#include "lstm_layer.h"
#include "lstm_tick.h"
#include "operand.h"
#include "../../engine/gpu/kernel.h"

/* What forward leaves for backward. */
typedef struct single_kept {
    rd_packing_lent p;
    rd_lstm_tick tick;
    uint8_t *mask_in;
} single_kept;

typedef struct single_sizes {
    int64_t N, in, H, extra, first; /* first: rows of the first step */
    rd_element type;
} single_sizes;

static single_sizes single_sizes_of(const rd_call *c, const rd_layer *l, const rd_packing *p)
{
    single_sizes z = {};
    z.N = c->in[0]->rows;
    z.in = l->shape.in;
    z.H = l->shape.H;
    z.extra = l->shape.extra;
    z.first = p->off[1];
    z.type = rd_gpu_narrow(rd_gpu_of(c->be));
    return z;
}

static rd_code single_array(rd_arena *a, int64_t n, rd_element type, void *out, rd_status *st)
{
    return rd_arena_get(a, (size_t)n * rd_element_bytes(type), out, st);
}

/* Draws the mask of a dropout for all rows. */
static rd_code single_mask(rd_call *c, const rd_dropout *d, const rd_packing_lent *p, int64_t n,
                           int64_t width, uint8_t **mask, rd_status *st)
{
    *mask = NULL;
    if (!c->training || d->keep >= 1.0f) return st->code;
    if (rd_arena_get(c->device_kept, (size_t)(n * width), mask, st) != RD_OK) return st->code;
    return rd_dropout_rows(c->be, d, p, 0, p->p->n_steps, width, NULL, NULL, NULL, *mask, st);
}

/* Computes y (+)= columns `at` .. `at` + n of the operand times the rows of the kernel that belong
 * to them, for rows `row` .. `row` + rows. */
static rd_code single_product(const rd_call *c, const single_sizes *z, const rd_lstm_tick *k,
                              int64_t row, int64_t rows, int64_t at, int64_t n, bool add, float *y,
                              rd_status *st)
{
    const int64_t wide = 4 * z->H;
    return rd_gpu_product(rd_gpu_of(c->be), false, false, rows, wide, n,
                          rd_operand_at(k->own.all, z->type, row * k->own.ld + at, k->own.ld),
                          rd_operand_at(c->in[2]->v, RD_FLOAT32, at * wide, wide),
                          add ? 1.0f : 0.0f, rd_operand_at(y, RD_FLOAT32, row * wide, wide), st);
}

/* Computes y (+)= dz times the transposed rows `at` .. `at` + n of the kernel. */
static rd_code single_product_back(const rd_call *c, const single_sizes *z, const rd_lstm_tick *k,
                                   int64_t row, int64_t rows, int64_t at, int64_t n, bool add,
                                   float *y, rd_status *st)
{
    const int64_t wide = 4 * z->H;
    return rd_gpu_product(rd_gpu_of(c->be), false, true, rows, n, wide,
                          rd_operand_at(k->dz, z->type, row * k->ld_dz, k->ld_dz),
                          rd_operand_at(c->in[2]->v, RD_FLOAT32, at * wide, wide),
                          add ? 1.0f : 0.0f, rd_operand_at(y, RD_FLOAT32, 0, n), st);
}

/* Allocates what forward writes, and draws the masks. */
static rd_code single_begin(rd_call *c, const rd_layer *l, const single_sizes *z, single_kept *v,
                            float **pre, rd_status *st)
{
    rd_arena *a = c->device_kept;
    rd_lstm_tick *k = &v->tick;
    uint8_t *mask_out;
    if (single_mask(c, &l->drop_in, &v->p, z->N, z->in, &v->mask_in, st) != RD_OK ||
        single_mask(c, &l->drop_out, &v->p, z->N, z->H, &mask_out, st) != RD_OK)
        return st->code;
    k->type = z->type;
    k->n_layers = k->n = 1;
    k->n_steps = v->p.p->n_steps;
    k->H = z->H;
    k->off = v->p.off;
    k->residual = l->residual;
    k->keep_in = 1.0f;
    k->keep_out = l->drop_out.keep;
    k->mask_out = mask_out;
    k->own.ld = rd_operand_ld(z->in + z->H + z->extra);
    k->own.h_at = z->in;
    k->bias = c->in[3]->v;
    k->x = c->in[0]->v;
    k->out = c->out[0]->v;
    if (single_array(a, z->N * k->own.ld, z->type, &k->own.all, st) != RD_OK ||
        single_array(a, z->N * 4 * z->H, RD_FLOAT32, pre, st) != RD_OK ||
        single_array(a, (c->keep ? z->N : z->first) * z->H, RD_FLOAT32, &k->c, st) != RD_OK)
        return st->code;
    if (!c->keep) return st->code;
    k->z = *pre; /* gates take the place of the products */
    return single_array(a, z->N * z->H, RD_FLOAT32, &k->tc, st);
}

extern "C" rd_code rd_cuda_lstm_layer_forward(
    rd_call *c, const rd_layer *l, const rd_packing_lent *lent, void **kept, rd_status *st)
{
    const rd_packing *p = lent->p;
    const single_sizes z = single_sizes_of(c, l, p);
    rd_gpu *g = rd_gpu_of(c->be);
    single_kept *v;
    float *pre;
    RD_TRY_OR_RETURN(rd_arena_zero(c->kept, sizeof *v, &v, st));
    *kept = v;
    v->p = *lent;
    RD_TRY_OR_RETURN(single_begin(c, l, &z, v, &pre, st));
    rd_lstm_tick k = v->tick;
    /* No output before the first step. */
    RD_TRY_OR_RETURN(rd_gpu_zero(g, k.own.all,
                                 (size_t)(z.first * k.own.ld) * rd_element_bytes(z.type), st));
    RD_TRY_OR_RETURN(rd_operand_rows(g, z.N, z.in, c->in[0]->v, v->mask_in, z.in, l->drop_in.keep,
                                     rd_operand_at(k.own.all, z.type, 0, k.own.ld), st));
    RD_TRY_OR_RETURN(single_product(c, &z, &k, 0, z.N, 0, z.in, false, pre, st));
    if (z.extra) {
        const int64_t at = z.in + z.H;
        RD_TRY_OR_RETURN(rd_operand_rows(g, z.N, z.extra, c->in[1]->v, NULL, 0, 1.0f,
                                         rd_operand_at(k.own.all, z.type, at, k.own.ld), st));
        RD_TRY_OR_RETURN(single_product(c, &z, &k, 0, z.N, at, z.extra, true, pre, st));
    }
    for (int64_t t = 0; t < p->n_steps; t++) {
        const int64_t row = p->off[t];
        k.tick = t;
        k.rows = p->off[t + 1] - row;
        k.product = pre + row * 4 * z.H;
        if (t > 0)
            RD_TRY_OR_RETURN(single_product(c, &z, &k, row, k.rows, z.in, z.H, true, pre, st));
        RD_TRY_OR_RETURN(rd_lstm_tick_forward(g, &k, st));
    }
    return st->code;
}

/* Adds the gradients of the kernel, the bias, x and the joined context, from dz of all steps. */
static rd_code single_sums(rd_call *c, const rd_layer *l, const single_sizes *z,
                           const single_kept *v, const rd_lstm_tick *k, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(c->be);
    const int64_t wide = 4 * z->H;
    float *dx = c->in[0]->g, *da = z->extra ? c->in[1]->g : NULL, *to = dx;
    if (c->in[2]->g)
        RD_TRY_OR_RETURN(rd_gpu_product(g, true, false, z->in + z->H + z->extra, wide, z->N,
                                        rd_operand_at(k->own.all, z->type, 0, k->own.ld),
                                        rd_operand_at(k->dz, z->type, 0, k->ld_dz), 1.0f,
                                        rd_operand_at(c->in[2]->g, RD_FLOAT32, 0, wide), st));
    if (c->in[3]->g)
        RD_TRY_OR_RETURN(rd_operand_add_columns(g, c->device_scratch, z->N, wide,
                                                rd_operand_at(k->dz, z->type, 0, k->ld_dz),
                                                c->in[3]->g, st));
    if (da)
        RD_TRY_OR_RETURN(single_product_back(c, z, k, 0, z->N, z->in + z->H, z->extra, true, da,
                                             st));
    if (!dx) return st->code;
    if (v->mask_in)
        RD_TRY_OR_RETURN(single_array(c->device_scratch, z->N * z->in, RD_FLOAT32, &to, st));
    RD_TRY_OR_RETURN(single_product_back(c, z, k, 0, z->N, 0, z->in, to == dx, to, st));
    return to == dx ? st->code
                    : rd_dropout_back(c->be, l->drop_in.keep, z->N * z->in, to, v->mask_in, dx,
                                      true, st);
}

extern "C" rd_code rd_cuda_lstm_layer_back(rd_call *c, const rd_layer *l, const rd_packing *p,
                                           const void *kept, rd_status *st)
{
    const single_kept *v = static_cast<const single_kept *>(kept);
    const single_sizes z = single_sizes_of(c, l, p);
    rd_gpu *g = rd_gpu_of(c->be);
    rd_arena *scratch = c->device_scratch;
    rd_lstm_tick k = v->tick;
    float *back;
    k.dout = c->out[0]->g;
    if (l->residual && c->in[0]->g)
        RD_TRY_OR_RETURN(rd_vec_add(c->be, z.N * z.H, k.dout, c->in[0]->g, st));
    RD_TRY_OR_RETURN(single_array(scratch, z.first * z.H, RD_FLOAT32, &back, st));
    RD_TRY_OR_RETURN(rd_arena_zero(scratch, (size_t)(z.first * z.H) * sizeof *k.dc, &k.dc, st));
    /* The kernel adds no residual gradient: x has got it. dz W_h^T has the columns of h alone. */
    k.residual = 0;
    k.own.h_at = 0;
    k.back = back;
    k.ld_back = z.H;
    k.dz = k.z; /* float32 gradients take the place of the gates */
    k.ld_dz = 4 * z.H;
    if (z.type != RD_FLOAT32) {
        k.ld_dz = rd_operand_ld(4 * z.H);
        RD_TRY_OR_RETURN(single_array(scratch, z.N * k.ld_dz, z.type, &k.dz, st));
    }
    for (int64_t t = p->n_steps - 1; t >= 0; t--) {
        k.tick = t;
        k.rows = p->off[t + 1] - p->off[t];
        RD_TRY_OR_RETURN(rd_lstm_tick_back(g, &k, st));
        if (t > 0)
            RD_TRY_OR_RETURN(single_product_back(c, &z, &k, p->off[t], k.rows, z.in, z.H, false,
                                                 back, st));
    }
    return single_sums(c, l, &z, v, &k, st);
}
