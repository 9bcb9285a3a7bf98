/* recurrent_graph.c -- the recurrent encoder, and one step of the attention decoder, as graphs of
 * ONNX. The formulas are those of encoder.c and decoder_step.c. Sentences are padded there. */
#include "rd/nn.h"
#include "cell_graph.h"
#include "graph_parts.h"
#include "rd/cell.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the encoder ---- */

/* Returns the memory (batch, n, M) of embedded tokens x (batch, n, E). mask (batch, n, 1). */
static int encoder_nodes(rd_onnx *g, const rd_params *ps, const rd_encoder *e, int x, int mask)
{
    int fw = x, bw = x;
    bool both = e->type != RD_ENC_UNI;
    for (int l = 0; l < e->n_layers; l++) {
        fw = cell_graph_layer(g, ps, &e->fw[l], fw, mask, false);
        if (both) bw = cell_graph_layer(g, ps, &e->bw[l], bw, mask, true);
        if (!both || e->type != RD_ENC_GNMT) continue;
        fw = rd_onnx_concat(g, 2, (int[]){fw, bw}, 2);
        both = false;
    }
    return both ? rd_onnx_concat(g, 2, (int[]){fw, bw}, 2) : fw;
}

rd_code rd_encoder_graph(rd_onnx *g, const rd_params *ps, const rd_encoder *e, const rd_decoder *d)
{
    const rd_onnx_dim batch = RD_ONNX_ANY("batch"), n = RD_ONNX_ANY("source_tokens"),
                      ids_dim[] = {batch, n}, memory_dim[] = {batch, n, RD_ONNX_DIM(d->M)},
                      keys_dim[] = {batch, n, RD_ONNX_DIM(d->A)};
    const int ids = rd_onnx_input(g, "source", RD_ONNX_INT64, 2, ids_dim),
              length = rd_onnx_input(g, "source_length", RD_ONNX_INT64, 1, &batch),
              mask = graph_unsqueeze(g, graph_length_mask(g, length, rd_onnx_dim_of(g, ids, 1)), 2),
              x = rd_onnx_op2(g, "Gather", graph_param(g, ps, e->embedding), ids),
              memory = encoder_nodes(g, ps, e, x, mask);
    rd_onnx_output(g, memory, "memory", RD_ONNX_FLOAT, 3, memory_dim);
    rd_onnx_output(g, graph_linear(g, ps, memory, d->memory_kernel, NULL), "keys", RD_ONNX_FLOAT, 3,
                   keys_dim);
    return rd_onnx_status(g)->code;
}

/* ---- a step of the decoder ---- */

/* Returns the vector (A, 1) that additive attention multiplies with: v, or g v / |v|. */
static int attention_vector(rd_onnx *g, const rd_params *ps, const rd_decoder *d)
{
    const float *values = rd_params_values(ps), *v = values + d->v->offset;
    const int64_t dim[] = {d->A, 1};
    float *out = malloc((size_t)d->A * sizeof *out);
    double sum = 0.0, factor = 1.0;
    if (!out) {
        rd_fail(rd_onnx_status(g), RD_EENV, "out of memory");
        return -1;
    }
    for (int64_t i = 0; i < d->A; i++) sum += (double)v[i] * (double)v[i];
    if (d->kind == RD_ATT_BAHDANAU_NORM) factor = (double)values[d->g->offset] / sqrt(sum);
    for (int64_t i = 0; i < d->A; i++) out[i] = (float)(factor * (double)v[i]);
    const int w = rd_onnx_weight(g, "attention/scaled_v", RD_ONNX_FLOAT, 2, dim, out);
    free(out);
    return w;
}

/* Returns the weights (batch, n) of the memory for queries q (batch, R). */
static int attention_weights(rd_onnx *g, const rd_params *ps, const rd_decoder *d, int q, int keys,
                             int mask)
{
    int s;
    if (d->kind == RD_ATT_LUONG || d->kind == RD_ATT_LUONG_SCALED) {
        s = rd_onnx_op2(g, "MatMul", keys, graph_unsqueeze(g, q, 2));
        if (d->kind == RD_ATT_LUONG_SCALED) s = rd_onnx_op2(g, "Mul", s, graph_param(g, ps, d->g));
    } else {
        s = graph_unsqueeze(g, graph_linear(g, ps, q, d->query_kernel, d->b), 1);
        s = rd_onnx_op1(g, "Tanh", rd_onnx_op2(g, "Add", keys, s));
        s = rd_onnx_op2(g, "MatMul", s, attention_vector(g, ps, d));
    }
    return graph_masked_softmax(g, mask, graph_squeeze(g, s, 2));
}

/* The inputs of a step. */
typedef struct step_inputs {
    int token, length, memory, keys, context;
    cell_state state[RD_MAX_LAYERS];
} step_inputs;

static const rd_onnx_dim batch_dim = {.name = "batch"};

static int state_in(rd_onnx *g, const char *what, int l, int64_t width)
{
    char name[32];
    const rd_onnx_dim dim[] = {batch_dim, RD_ONNX_DIM(width)};
    (void)snprintf(name, sizeof name, "state_%s_%d", what, l);
    return rd_onnx_input(g, name, RD_ONNX_FLOAT, 2, dim);
}

static void state_out(rd_onnx *g, const char *what, int l, int64_t width, int v)
{
    char name[32];
    const rd_onnx_dim dim[] = {batch_dim, RD_ONNX_DIM(width)};
    (void)snprintf(name, sizeof name, "next_state_%s_%d", what, l);
    rd_onnx_output(g, v, name, RD_ONNX_FLOAT, 2, dim);
}

static void step_begin(rd_onnx *g, const rd_decoder *d, step_inputs *in)
{
    const rd_onnx_dim n = RD_ONNX_ANY("source_tokens"),
                      memory[] = {batch_dim, n, RD_ONNX_DIM(d->M)},
                      keys[] = {batch_dim, n, RD_ONNX_DIM(d->A)},
                      context[] = {batch_dim, RD_ONNX_DIM(d->M)};
    in->token = rd_onnx_input(g, "token", RD_ONNX_INT64, 1, &batch_dim);
    in->length = rd_onnx_input(g, "source_length", RD_ONNX_INT64, 1, &batch_dim);
    in->memory = rd_onnx_input(g, "memory", RD_ONNX_FLOAT, 3, memory);
    in->keys = rd_onnx_input(g, "keys", RD_ONNX_FLOAT, 3, keys);
    in->context = rd_onnx_input(g, "context", RD_ONNX_FLOAT, 2, context);
    for (int l = 0; l < d->n_layers; l++) {
        const rd_layer *y = &d->layer[l].l;
        in->state[l].h = state_in(g, "h", l, y->shape.R);
        in->state[l].c = y->cell->has_c ? state_in(g, "c", l, y->shape.H) : -1;
    }
}

static void step_end(rd_onnx *g, const rd_decoder *d, int logits, int context, int weights,
                     const cell_state *after)
{
    const rd_onnx_dim v[] = {batch_dim, RD_ONNX_DIM(d->V)}, m[] = {batch_dim, RD_ONNX_DIM(d->M)},
                      w[] = {batch_dim, RD_ONNX_ANY("source_tokens")};
    rd_onnx_output(g, logits, "logits", RD_ONNX_FLOAT, 2, v);
    rd_onnx_output(g, context, "next_context", RD_ONNX_FLOAT, 2, m);
    for (int l = 0; l < d->n_layers; l++) {
        const rd_layer *y = &d->layer[l].l;
        state_out(g, "h", l, y->shape.R, after[l].h);
        if (y->cell->has_c) state_out(g, "c", l, y->shape.H, after[l].c);
    }
    rd_onnx_output(g, weights, "attention", RD_ONNX_FLOAT, 2, w);
}

rd_code rd_decoder_graph(rd_onnx *g, const rd_params *ps, const rd_decoder *d)
{
    const bool wrapped = d->style == RD_DEC_WRAPPED;
    const int in_loop = wrapped ? d->n_layers : 1;
    step_inputs in;
    cell_state after[RD_MAX_LAYERS];
    int context = -1, weights = -1;
    step_begin(g, d, &in);
    const int mask = graph_length_mask(g, in.length, rd_onnx_dim_of(g, in.memory, 1)),
              word = rd_onnx_op2(g, "Gather", graph_param(g, ps, d->embedding), in.token);
    int x = rd_onnx_concat(g, 2, (int[]){word, in.context}, 1);
    if (d->W_in) x = graph_linear(g, ps, x, d->W_in, d->b_in);
    for (int l = 0; l < d->n_layers; l++) {
        const int att = l < in_loop ? -1 : d->style == RD_DEC_GNMT_V2 ? context : in.context;
        x = cell_graph_step(g, ps, &d->layer[l], x, att, &in.state[l], &after[l]);
        if (l + 1 != in_loop) continue;
        weights = attention_weights(g, ps, d, x, in.keys, mask);
        context = graph_squeeze(
            g, rd_onnx_op2(g, "MatMul", graph_unsqueeze(g, weights, 1), in.memory), 1);
    }
    int logits = graph_linear(g, ps, wrapped ? context : x, d->W_out, NULL);
    if (d->temperature != 1.0f)
        logits = rd_onnx_op2(g, "Div", logits, rd_onnx_float(g, d->temperature));
    step_end(g, d, logits, context, weights, after);
    return rd_onnx_status(g)->code;
}
