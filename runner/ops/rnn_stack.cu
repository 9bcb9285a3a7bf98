/* rnn_stack.cu -- layers of one shape along the diagonal, on a GPU: see rnn_stack.c.
 *
 * At a tick, the layers compute different time steps. If sequences have different lengths, a higher
 * layer has more rows: it is at an earlier step. The batched product takes the rows of the highest
 * layer for all; no kernel reads the rows that a lower layer does not have. */
#include "rnn_stack.h"
#include "rd/cell.h"
#include "shared/lstm_tick.h"
#include "shared/operand.h"
#include "../engine/gpu/kernel.h"

/* What forward leaves for backward. */
typedef struct rnn_stack_saved {
    rd_packing_lent p;
    rd_lstm_tick tick;
} rnn_stack_saved;

/* The sizes of a call. */
typedef struct stack_sizes {
    int64_t L, T, N, H, extra;
    int64_t most;   /* rows of the first step */
    int64_t joined; /* columns of an operand */
    int64_t ld;     /* the same, rounded up: rows of 16-bit numbers begin at 16 bytes */
    rd_element type;
} stack_sizes;

static stack_sizes stack_sizes_of(const rd_call *c)
{
    const rd_rnn_stack *a = static_cast<const rd_rnn_stack *>(c->attr);
    const rd_cell_shape *s = &a->layer[0].shape;
    stack_sizes z = {};
    z.L = a->n_layers;
    z.T = a->p.n_steps;
    z.N = c->in[0]->rows;
    z.H = s->H;
    z.extra = s->extra;
    z.most = a->p.off[1];
    z.joined = s->in + s->H + s->extra;
    z.ld = rd_operand_ld(z.joined);
    z.type = rd_gpu_narrow(rd_gpu_of(c->be));
    return z;
}

static rd_code stack_array(rd_arena *a, int64_t n, rd_element type, void *out, rd_status *st)
{
    return rd_arena_get(a, (size_t)(n + 1) * rd_element_bytes(type), out, st);
}

/* The leaves of the highest layer, which the arena stores first. */
static const rd_var *stack_kernel(const rd_call *c)
{
    return c->in[c->n_in - 2];
}
static const rd_var *stack_bias(const rd_call *c)
{
    return c->in[c->n_in - 1];
}
/* Returns the distance of the parameters of neighbouring layers. */
static int64_t stack_distance(const rd_call *c)
{
    return c->in[2]->v - c->in[4]->v;
}

/* Draws the masks of all layers, in the order of slots. */
static rd_code stack_masks(rd_call *c, const stack_sizes *z, const rd_packing_lent *p, bool out,
                           const uint8_t **mask, rd_status *st)
{
    const rd_rnn_stack *a = static_cast<const rd_rnn_stack *>(c->attr);
    const rd_dropout *d = out ? &a->layer[0].drop_out : &a->layer[0].drop_in;
    uint8_t *m;
    *mask = NULL;
    if (!c->training || d->keep >= 1.0f) return st->code;
    RD_TRY_OR_RETURN(rd_arena_get(c->device_kept, (size_t)(z->L * z->N * z->H), &m, st));
    for (int64_t l = 0; l < z->L; l++)
        RD_TRY_OR_RETURN(rd_dropout_rows(c->be, out ? &a->layer[l].drop_out : &a->layer[l].drop_in,
                                         p, 0, z->T, z->H, NULL, NULL, NULL,
                                         m + (z->L - 1 - l) * z->N * z->H, st));
    *mask = m;
    return st->code;
}

/* Allocates what forward writes. Without backward, states have the rows of one step. */
static rd_code stack_allocate(rd_call *c, const stack_sizes *z, rd_lstm_tick *k, rd_status *st)
{
    rd_arena *kept = c->device_kept, *scratch = c->device_scratch;
    k->own.ld = z->ld;
    k->own.h_at = z->H;
    k->own.slot_now = z->most * z->ld;
    k->slot_c = z->most * z->H;
    if (c->keep) {
        k->own.slot_all = z->N * z->ld;
        k->slot_z = 4 * z->N * z->H;
        k->slot_c = z->N * z->H;
        RD_TRY_OR_RETURN(stack_array(kept, z->L * k->own.slot_all, z->type, &k->own.all, st));
        RD_TRY_OR_RETURN(stack_array(kept, z->L * k->slot_z, RD_FLOAT32, &k->z, st));
        RD_TRY_OR_RETURN(stack_array(kept, z->L * k->slot_c, RD_FLOAT32, &k->tc, st));
    }
    RD_TRY_OR_RETURN(stack_array(kept, z->L * k->slot_c, RD_FLOAT32, &k->c, st));
    k->slot_y = z->most * z->H;
    k->odd_y = z->L * k->slot_y;
    RD_TRY_OR_RETURN(stack_array(scratch, 2 * k->odd_y, RD_FLOAT32, &k->y, st));
    const size_t operand = (size_t)(z->L * k->own.slot_now) * rd_element_bytes(z->type);
    RD_TRY_OR_RETURN(rd_arena_zero(scratch, operand, &k->own.now, st));
    k->above = k->own;
    return st->code;
}

/* Sets the layers of a tick. Returns whether the op's input is passed to the lowest layer. */
static bool stack_layers_at(const rd_rnn_stack *a, int64_t tick, rd_lstm_tick *k)
{
    const int64_t T = a->p.n_steps, L = a->n_layers, *off = a->p.off;
    const int64_t lowest = tick > T - 1 ? tick - (T - 1) : 0, highest = tick < L - 1 ? tick : L - 1,
                  step = highest < 0 ? 0 : tick - highest;
    const bool enters = tick + 1 < T;
    k->tick = tick;
    k->first = enters ? -1 : lowest;
    k->n = highest - k->first + 1;
    k->rows = off[step + 1] - off[step];
    return enters;
}

/* Computes C[rows, n] = A op(W) of all layers of a tick, in one product. */
static rd_code stack_product(const rd_call *c, const stack_sizes *z, const rd_lstm_tick *k,
                             bool back, const void *operand, int64_t ld, int64_t slot, float *out,
                             int64_t slot_out, rd_status *st)
{
    const rd_var *W = stack_kernel(c);
    const int64_t lowest = k->first < 0 ? 0 : k->first, batch = k->n - (lowest - k->first),
                  at = z->L - lowest - batch, /* the slot of the highest layer */
        wide = 4 * z->H, distance = stack_distance(c);
    const size_t size = rd_element_bytes(z->type);
    if (batch <= 0) return st->code;
    rd_gpu_operand A = {}, B = {}, C = {};
    A.at = (char *)const_cast<void *>(operand) + (size_t)(at * slot) * size;
    A.type = z->type;
    A.ld = ld;
    B.at = W->v + at * distance;
    B.type = RD_FLOAT32;
    B.ld = wide;
    C.at = out + at * slot_out;
    C.type = RD_FLOAT32;
    C.ld = back ? 2 * z->H : wide;
    return rd_gpu_product_batched(rd_gpu_of(c->be), false, back, k->rows, C.ld,
                                  back ? wide : z->joined, A, slot, B, distance, 0.0f, C, slot_out,
                                  batch, st);
}

extern "C" rd_code rd_cuda_rnn_stack_forward(rd_call *c, rd_status *st)
{
    const rd_rnn_stack *a = static_cast<const rd_rnn_stack *>(c->attr);
    const stack_sizes z = stack_sizes_of(c);
    rd_gpu *g = rd_gpu_of(c->be);
    rnn_stack_saved *v;
    float *product;
    RD_TRY_OR_RETURN(rd_arena_zero(c->kept, sizeof *v, &v, st));
    c->saved = v;
    rd_lstm_tick *k = &v->tick;
    RD_TRY_OR_RETURN(rd_packing_lend(c, &a->p, c->device_kept, &v->p, st));
    k->type = z.type;
    k->n_layers = z.L;
    k->n_steps = z.T;
    k->H = z.H;
    k->off = v->p.off;
    for (int64_t l = 0; l < z.L; l++) k->residual |= (uint32_t)a->layer[l].residual << l;
    k->keep_in = a->layer[0].drop_in.keep;
    k->keep_out = a->layer[0].drop_out.keep;
    k->slot_mask = z.N * z.H;
    RD_TRY_OR_RETURN(stack_masks(c, &z, &v->p, false, &k->mask_in, st));
    RD_TRY_OR_RETURN(stack_masks(c, &z, &v->p, true, &k->mask_out, st));
    RD_TRY_OR_RETURN(stack_allocate(c, &z, k, st));
    k->slot_product = 4 * z.most * z.H;
    RD_TRY_OR_RETURN(stack_array(c->device_scratch, z.L * k->slot_product, RD_FLOAT32, &product,
                                 st));
    k->product = product;
    k->bias = stack_bias(c)->v;
    k->slot_bias = stack_distance(c);
    k->x = c->in[0]->v;
    k->att = z.extra ? c->in[1]->v : NULL;
    k->extra = z.extra;
    k->out = c->out[0]->v;
    for (int64_t tick = -1; tick < z.T + z.L - 1; tick++) {
        stack_layers_at(a, tick, k);
        RD_TRY_OR_RETURN(stack_product(c, &z, k, false, k->own.now, z.ld, k->own.slot_now, product,
                                       k->slot_product, st));
        RD_TRY_OR_RETURN(rd_lstm_tick_forward(g, k, st));
    }
    return st->code;
}

/* Adds the gradients of all parameters, and of the joined context, from dz of all steps. */
static rd_code stack_sums(const rd_call *c, const stack_sizes *z, const rd_lstm_tick *k,
                          rd_status *st)
{
    const rd_var *W = stack_kernel(c), *b = stack_bias(c);
    rd_gpu *g = rd_gpu_of(c->be);
    const int64_t wide = 4 * z->H, distance = stack_distance(c);
    rd_gpu_operand X = {}, dz = {}, to = {};
    X.at = k->own.all;
    X.type = dz.type = z->type;
    X.ld = z->ld;
    dz.at = k->dz;
    dz.ld = k->ld_dz;
    to.type = RD_FLOAT32;
    to.at = W->g;
    to.ld = wide;
    if (W->g)
        RD_TRY_OR_RETURN(rd_gpu_product_batched(g, true, false, z->joined, wide, z->N, X,
                                                k->own.slot_all, dz, k->slot_dz, 1.0f, to, distance,
                                                z->L, st));
    RD_TRY_OR_RETURN(rd_lstm_tick_bias(g, z->type, z->L, z->N, wide, k->dz, k->ld_dz, k->slot_dz,
                                       b->g, distance, st));
    for (int64_t s = 0; s < z->L && z->extra && c->in[1]->g; s++) {
        rd_gpu_operand B = {};
        dz.at = (char *)k->dz + (size_t)(s * k->slot_dz) * rd_element_bytes(z->type);
        B.at = W->v + s * distance + 2 * z->H * wide;
        B.type = RD_FLOAT32;
        B.ld = wide;
        to.at = c->in[1]->g;
        to.ld = z->extra;
        RD_TRY_OR_RETURN(rd_gpu_product(g, false, true, z->N, z->extra, wide, dz, B, 1.0f, to, st));
    }
    return st->code;
}

extern "C" rd_code rd_cuda_rnn_stack_backward(rd_call *c, rd_status *st)
{
    const rd_rnn_stack *a = static_cast<const rd_rnn_stack *>(c->attr);
    const rnn_stack_saved *v = static_cast<const rnn_stack_saved *>(c->saved);
    const stack_sizes z = stack_sizes_of(c);
    rd_arena *scratch = c->device_scratch;
    rd_lstm_tick tick = v->tick, *k = &tick;
    float *back;
    k->dout = c->out[0]->g;
    k->dx = c->in[0]->g;
    k->slot_back = 2 * z.most * z.H;
    k->ld_back = k->ld_back_above = 2 * z.H;
    RD_TRY_OR_RETURN(stack_array(scratch, z.L * k->slot_back, RD_FLOAT32, &back, st));
    k->back = k->back_above = back;
    k->slot_dc = z.most * z.H;
    RD_TRY_OR_RETURN(rd_arena_zero(scratch, (size_t)(z.L * k->slot_dc) * sizeof *k->dc, &k->dc,
                                   st));
    RD_TRY_OR_RETURN(stack_array(scratch, 2 * k->odd_y, RD_FLOAT32, &k->dy, st));
    /* Float32 gradients take the place of the gates. */
    k->dz = k->z;
    k->ld_dz = 4 * z.H;
    k->slot_dz = k->slot_z;
    if (z.type != RD_FLOAT32) {
        k->ld_dz = rd_operand_ld(4 * z.H);
        k->slot_dz = z.N * k->ld_dz;
        RD_TRY_OR_RETURN(stack_array(scratch, z.L * k->slot_dz, z.type, &k->dz, st));
    }
    k->slot_dz_now = z.most * k->ld_dz;
    const size_t operand = (size_t)(z.L * k->slot_dz_now) * rd_element_bytes(z.type);
    RD_TRY_OR_RETURN(rd_arena_zero(scratch, operand, &k->dz_now, st));
    for (int64_t i = z.T + z.L - 2; i >= -1; i--) {
        if (stack_layers_at(a, i, k) && !k->dx) {
            k->first++;
            k->n--;
        }
        if (k->n <= 0) break;
        RD_TRY_OR_RETURN(rd_lstm_tick_back(rd_gpu_of(c->be), k, st));
        RD_TRY_OR_RETURN(stack_product(c, &z, k, true, k->dz_now, k->ld_dz, k->slot_dz_now, back,
                                       k->slot_back, st));
    }
    return stack_sums(c, &z, k, st);
}
