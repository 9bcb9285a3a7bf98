/* transformer_graph.c -- Transformers as graphs of ONNX: the encoder, and one step of the decoder.
 *
 * Sentences are padded there. The encoder also computes the keys and values of the memory for each
 * layer of the decoder, so that no step computes them again. A step gets the keys and values of the
 * tokens so far, and returns them with its own. */
#include "rd/transformer_layers.h"
#include "graph_parts.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct tf_graph {
    rd_onnx *g;
    const rd_params *ps;
    const rd_tf_config *c;
} tf_graph;

/* ---- parts ---- */

static int tf_graph_norm(const tf_graph *t, const rd_tf_norm *n, int x)
{
    const rd_onnx_attr a[] = {{.name = "axis", .kind = RD_ONNX_I, .i = -1},
                              {.name = "epsilon", .kind = RD_ONNX_F, .f = (float)t->c->eps},
                              {.name = NULL}};
    const int in[] = {x, graph_param(t->g, t->ps, n->gain), graph_param(t->g, t->ps, n->bias)};
    return rd_onnx_node(t->g, "LayerNormalization", 3, in, a, 1, NULL);
}

/* The input of a block. */
static int tf_graph_before(const tf_graph *t, const rd_tf_norm *n, int x)
{
    return t->c->post_norm ? x : tf_graph_norm(t, n, x);
}

/* The sum behind a block. */
static int tf_graph_sum(const tf_graph *t, const rd_tf_norm *n, int x, int y)
{
    const int sum = rd_onnx_op2(t->g, "Add", x, y);
    return t->c->post_norm ? tf_graph_norm(t, n, sum) : sum;
}

/* Returns x / 2 (1 + y). */
static int tf_graph_gelu(rd_onnx *g, int x, int y)
{
    return rd_onnx_op2(g, "Mul", rd_onnx_op2(g, "Mul", x, rd_onnx_float(g, 0.5f)),
                       rd_onnx_op2(g, "Add", y, rd_onnx_float(g, 1.0f)));
}

static int tf_graph_activate(rd_onnx *g, rd_activation f, int x)
{
    int y;
    switch (f) {
    case RD_ACT_RELU:
        return rd_onnx_op1(g, "Relu", x);
    case RD_ACT_RELU2:
        y = rd_onnx_op1(g, "Relu", x);
        return rd_onnx_op2(g, "Mul", y, y);
    case RD_ACT_SILU:
        return rd_onnx_op2(g, "Mul", x, rd_onnx_op1(g, "Sigmoid", x));
    case RD_ACT_GELU_ERF:
        y = rd_onnx_op2(g, "Mul", x, rd_onnx_float(g, (float)(1.0 / sqrt(2.0))));
        return tf_graph_gelu(g, x, rd_onnx_op1(g, "Erf", y));
    case RD_ACT_GELU_TANH:
        y = rd_onnx_op2(g, "Mul", rd_onnx_op2(g, "Mul", x, x), rd_onnx_float(g, 0.044715f));
        y = rd_onnx_op2(g, "Mul", rd_onnx_op2(g, "Add", y, rd_onnx_float(g, 1.0f)), x);
        y = rd_onnx_op2(g, "Mul", y, rd_onnx_float(g, (float)sqrt(2.0 / 3.14159265358979323846)));
        return tf_graph_gelu(g, x, rd_onnx_op1(g, "Tanh", y));
    }
    rd_fail(rd_onnx_status(g), RD_EBUG, "an activation without a graph");
    return -1;
}

/* Returns the encodings of positions (n), as (n, d). Angles are doubles, as in positions.c. */
static int tf_graph_sinusoid(const tf_graph *t, rd_sinusoid layout, int positions)
{
    const int64_t d = t->c->d;
    double *rate = malloc((size_t)d * sizeof *rate), *phase = malloc((size_t)d * sizeof *phase);
    uint8_t *cosine = malloc((size_t)d);
    int v = -1;
    if (rate && phase && cosine) {
        rd_sinusoid_columns(layout, d, rate, cosine);
        for (int64_t k = 0; k < d; k++) phase[k] = cosine[k] ? 1.57079632679489661923 : 0.0;
        v = rd_onnx_cast(t->g, graph_unsqueeze(t->g, positions, 1), RD_ONNX_DOUBLE);
        v = rd_onnx_op2(t->g, "Mul", v, rd_onnx_weight(t->g, NULL, RD_ONNX_DOUBLE, 1, &d, rate));
        v = rd_onnx_op2(t->g, "Add", v, rd_onnx_weight(t->g, NULL, RD_ONNX_DOUBLE, 1, &d, phase));
        v = rd_onnx_cast(t->g, rd_onnx_op1(t->g, "Sin", v), RD_ONNX_FLOAT);
    } else {
        rd_fail(rd_onnx_status(t->g), RD_EENV, "out of memory");
    }
    free(rate);
    free(phase);
    free(cosine);
    return v;
}

/* Returns the embedding of ids (batch, n) at positions (n), as (batch, n, d). */
static int tf_graph_embedding(const tf_graph *t, const rd_tf_embedding *e, int ids, int positions)
{
    static const rd_sinusoid layouts[] = {[RD_TF_POSITIONS_PAIRS] = RD_SINUSOID_PAIRS,
                                          [RD_TF_POSITIONS_HALVES] = RD_SINUSOID_HALVES,
                                          [RD_TF_POSITIONS_T2T] = RD_SINUSOID_T2T,
                                          [RD_TF_POSITIONS_LEARNED] = RD_SINUSOID_NONE,
                                          [RD_TF_POSITIONS_NONE] = RD_SINUSOID_NONE};
    const rd_sinusoid layout = layouts[e->positions];
    int x = rd_onnx_op2(t->g, "Gather", graph_param(t->g, t->ps, e->table), ids);
    if (e->scale != 1.0f) x = rd_onnx_op2(t->g, "Mul", x, rd_onnx_float(t->g, e->scale));
    if (layout != RD_SINUSOID_NONE)
        x = rd_onnx_op2(t->g, "Add", x, tf_graph_sinusoid(t, layout, positions));
    if (!e->places) return x;
    const int last = rd_onnx_op2(t->g, "Min", positions, rd_onnx_int(t->g, e->n_places - 1));
    return rd_onnx_op2(t->g, "Add", x,
                       rd_onnx_op2(t->g, "Gather", graph_param(t->g, t->ps, e->places), last));
}

/* Returns (batch, n, d) as (batch, heads, n, d / heads), or with `keys` the last two exchanged. */
static int tf_graph_heads(const tf_graph *t, int x, bool keys)
{
    static const int64_t plain[] = {0, 2, 1, 3}, turned[] = {0, 2, 3, 1};
    const int64_t shape[] = {0, 0, t->c->n_heads, t->c->d / t->c->n_heads};
    return rd_onnx_transpose(t->g, rd_onnx_reshape(t->g, x, 4, shape), 4, keys ? turned : plain);
}

/* Returns the attention of queries (batch, n, d) to keys and values (batch, m, 2 d). mask (batch,
 * 1, 1, m); -1: all keys. */
static int tf_graph_attend(const tf_graph *t, int q, int kv, int mask)
{
    static const int64_t back[] = {0, 2, 1, 3};
    const int64_t d = t->c->d, shape[] = {0, 0, d};
    const float scale = 1.0f / sqrtf((float)(d / t->c->n_heads));
    const int k = tf_graph_heads(t, rd_onnx_slice(t->g, kv, 2, 0, d), true),
              v = tf_graph_heads(t, rd_onnx_slice(t->g, kv, 2, d, 2 * d), false);
    int y = rd_onnx_op2(t->g, "MatMul", tf_graph_heads(t, q, false), k);
    y = rd_onnx_op2(t->g, "Mul", y, rd_onnx_float(t->g, scale));
    y = mask >= 0 ? graph_masked_softmax(t->g, mask, y) : rd_onnx_op1(t->g, "Softmax", y);
    y = rd_onnx_transpose(t->g, rd_onnx_op2(t->g, "MatMul", y, v), 4, back);
    return rd_onnx_reshape(t->g, y, 3, shape);
}

static int tf_graph_ff(const tf_graph *t, const rd_tf_ff *f, int x)
{
    const int in = tf_graph_before(t, &f->norm, x);
    int y = tf_graph_activate(t->g, t->c->activation, graph_linear(t->g, t->ps, in, f->w1, f->b1));
    if (f->w3) y = rd_onnx_op2(t->g, "Mul", y, graph_linear(t->g, t->ps, in, f->w3, f->b3));
    return tf_graph_sum(t, &f->norm, x, graph_linear(t->g, t->ps, y, f->w2, f->b2));
}

/* Returns mask (batch, n) as (batch, 1, 1, n). */
static int tf_graph_mask(rd_onnx *g, int mask)
{
    return graph_unsqueeze(g, graph_unsqueeze(g, mask, 1), 1);
}

/* ---- the encoder ---- */

static int tf_graph_encoder_layer(const tf_graph *t, const rd_tf_layer *l, int x, int mask)
{
    const rd_tf_attention *a = &l->self;
    const int64_t d = t->c->d;
    const int qkv = graph_linear(t->g, t->ps, tf_graph_before(t, &a->norm, x), a->qkv, a->qkv_bias);
    const int y = tf_graph_attend(t, rd_onnx_slice(t->g, qkv, 2, 0, d),
                                  rd_onnx_slice(t->g, qkv, 2, d, 3 * d), mask);
    x = tf_graph_sum(t, &a->norm, x, graph_linear(t->g, t->ps, y, a->out, a->out_bias));
    return tf_graph_ff(t, &l->ff, x);
}

rd_code rd_tf_encoder_graph(rd_onnx *g, const rd_tf_embedding *source, const rd_tf_stack *encoder,
                            const rd_tf_decoder *d)
{
    const tf_graph t = {g, d->ps, &encoder->c};
    const rd_onnx_dim batch = RD_ONNX_ANY("batch"), n = RD_ONNX_ANY("source_tokens"),
                      ids_dim[] = {batch, n}, x_dim[] = {batch, n, RD_ONNX_DIM(encoder->c.d)},
                      kv_dim[] = {batch, n, RD_ONNX_DIM(2 * encoder->c.d)};
    const int ids = rd_onnx_input(g, "source", RD_ONNX_INT64, 2, ids_dim),
              length = rd_onnx_input(g, "source_length", RD_ONNX_INT64, 1, &batch),
              tokens = rd_onnx_dim_of(g, ids, 1),
              mask = tf_graph_mask(g, graph_length_mask(g, length, tokens));
    int x = tf_graph_embedding(&t, source, ids, graph_range(g, tokens));
    for (int l = 0; l < encoder->n_layers; l++)
        x = tf_graph_encoder_layer(&t, &encoder->layer[l], x, mask);
    if (encoder->last.gain) x = tf_graph_norm(&t, &encoder->last, x);
    rd_onnx_output(g, x, "memory", RD_ONNX_FLOAT, 3, x_dim);
    for (int l = 0; l < d->stack->n_layers; l++) {
        const rd_tf_attention *a = &d->stack->layer[l].memory;
        char name[32];
        snprintf(name, sizeof name, "memory_%d", l);
        rd_onnx_output(g, graph_linear(g, d->ps, x, a->kv, a->kv_bias), name, RD_ONNX_FLOAT, 3,
                       kv_dim);
    }
    return rd_onnx_status(g)->code;
}

/* ---- a step of the decoder ---- */

/* Self-attention of one token. *state (batch, n, 2 d): gets the token's keys and values. */
static int tf_graph_step_attention(const tf_graph *t, const rd_tf_attention *a, int x, int *state)
{
    const int64_t d = t->c->d;
    const int qkv = graph_linear(t->g, t->ps, tf_graph_before(t, &a->norm, x), a->qkv, a->qkv_bias);
    *state = rd_onnx_concat(t->g, 2, (int[]){*state, rd_onnx_slice(t->g, qkv, 2, d, 3 * d)}, 1);
    const int y = tf_graph_attend(t, rd_onnx_slice(t->g, qkv, 2, 0, d), *state, -1);
    return tf_graph_sum(t, &a->norm, x, graph_linear(t->g, t->ps, y, a->out, a->out_bias));
}

/* A recurrent unit. *state (batch, 1, d). */
static int tf_graph_step_ssru(const tf_graph *t, const rd_tf_ssru *u, int x, int *state)
{
    const int y = tf_graph_before(t, &u->norm, x),
              f = rd_onnx_op1(t->g, "Sigmoid", graph_linear(t->g, t->ps, y, u->gate, u->gate_bias)),
              keep = rd_onnx_op2(t->g, "Mul", f, *state),
              rest = rd_onnx_op2(t->g, "Sub", rd_onnx_float(t->g, 1.0f), f);
    *state =
        rd_onnx_op2(t->g, "Add", keep,
                    rd_onnx_op2(t->g, "Mul", rest, graph_linear(t->g, t->ps, y, u->kernel, NULL)));
    return tf_graph_sum(t, &u->norm, x, rd_onnx_op1(t->g, "Relu", *state));
}

/* Returns the logits (batch, n_classes) of x (batch, 1, d). The table has the form of an
 * embedding. */
static int tf_graph_logits(const tf_graph *t, const rd_tf_decoder *d, int x)
{
    static const rd_onnx_attr by_rows[] = {{.name = "transB", .kind = RD_ONNX_I, .i = 1},
                                           {.name = NULL}};
    const int in[] = {graph_squeeze(t->g, x, 1), graph_param(t->g, t->ps, d->output),
                      d->output_bias ? graph_param(t->g, t->ps, d->output_bias) : -1};
    const int y = rd_onnx_node(t->g, "Gemm", d->output_bias ? 3 : 2, in, by_rows, 1, NULL);
    return d->output->dim[0] > d->n_classes ? rd_onnx_slice(t->g, y, 1, 0, d->n_classes) : y;
}

rd_code rd_tf_decoder_graph(rd_onnx *g, const rd_tf_decoder *d)
{
    const rd_tf_stack *s = d->stack;
    const tf_graph t = {g, d->ps, &s->c};
    const rd_onnx_dim batch = RD_ONNX_ANY("batch"), one = RD_ONNX_DIM(1),
                      kv_dim[] = {batch, RD_ONNX_ANY("source_tokens"), RD_ONNX_DIM(2 * s->c.d)},
                      before[] = {batch, RD_ONNX_ANY("tokens"), RD_ONNX_DIM(2 * s->c.d)},
                      after[] = {batch, RD_ONNX_ANY("tokens_and_1"), RD_ONNX_DIM(2 * s->c.d)},
                      unit[] = {batch, one, RD_ONNX_DIM(s->c.d)},
                      logits[] = {batch, RD_ONNX_DIM(d->n_classes)};
    int memory[RD_MAX_LAYERS], state[RD_MAX_LAYERS];
    char name[32];
    const int token = rd_onnx_input(g, "token", RD_ONNX_INT64, 1, &batch),
              position = rd_onnx_input(g, "position", RD_ONNX_INT64, 1, &one),
              length = rd_onnx_input(g, "source_length", RD_ONNX_INT64, 1, &batch);
    for (int l = 0; l < s->n_layers; l++) {
        snprintf(name, sizeof name, "memory_%d", l);
        memory[l] = rd_onnx_input(g, name, RD_ONNX_FLOAT, 3, kv_dim);
    }
    for (int l = 0; l < s->n_layers; l++) {
        snprintf(name, sizeof name, "state_%d", l);
        state[l] = rd_onnx_input(g, name, RD_ONNX_FLOAT, 3, s->c.ssru ? unit : before);
    }
    const int mask = tf_graph_mask(g,
                                   graph_length_mask(g, length, rd_onnx_dim_of(g, memory[0], 1)));
    int x = tf_graph_embedding(&t, d->embedding, graph_unsqueeze(g, token, 1), position);
    for (int l = 0; l < s->n_layers; l++) {
        const rd_tf_layer *y = &s->layer[l];
        const rd_tf_attention *m = &y->memory;
        x = s->c.ssru ? tf_graph_step_ssru(&t, &y->ssru, x, &state[l])
                      : tf_graph_step_attention(&t, &y->self, x, &state[l]);
        const int q = graph_linear(g, d->ps, tf_graph_before(&t, &m->norm, x), m->qkv, m->qkv_bias);
        x = tf_graph_sum(&t, &m->norm, x,
                         graph_linear(g, d->ps, tf_graph_attend(&t, q, memory[l], mask), m->out,
                                      m->out_bias));
        x = tf_graph_ff(&t, &y->ff, x);
    }
    if (s->last.gain) x = tf_graph_norm(&t, &s->last, x);
    rd_onnx_output(g, tf_graph_logits(&t, d, x), "logits", RD_ONNX_FLOAT, 2, logits);
    for (int l = 0; l < s->n_layers; l++) {
        snprintf(name, sizeof name, "next_state_%d", l);
        rd_onnx_output(g, state[l], name, RD_ONNX_FLOAT, 3, s->c.ssru ? unit : after);
    }
    return rd_onnx_status(g)->code;
}
