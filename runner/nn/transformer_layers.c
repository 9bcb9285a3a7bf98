/* transformer_layers.c -- the layers of Transformers; see transformer_layers.h.
 *
 * Every matrix is used in one product over all rows of the batch. Only attention knows sentences:
 * it gets the first row and the length of each. */
#include "rd/transformer_layers.h"
#include "rd/image.h"
#include "transformer_blocks.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

rd_code rd_tf_rows_list(rd_arena *a, int64_t n, const int64_t *len, const int64_t *sample,
                        rd_tf_rows *out, rd_status *st)
{
    int64_t *first, *row_sample, *position, N = 0;
    RD_TRY(rd_arena_get(a, (size_t)(n + 1) * sizeof *first, &first, st));
    for (int64_t i = 0; i < n; i++) {
        first[i] = N;
        N += len[i];
    }
    RD_TRY(rd_arena_get(a, (size_t)(N + 1) * sizeof *row_sample, &row_sample, st));
    RD_TRY(rd_arena_get(a, (size_t)(N + 1) * sizeof *position, &position, st));
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < len[i]; k++) {
            row_sample[first[i] + k] = sample[i];
            position[first[i] + k] = k;
        }
    *out = (rd_tf_rows){n, N, first, len, sample, row_sample, position};
done:
    return st->code;
}

/* ---- parameters ---- */

/* Where the parameters of a block are declared. */
typedef struct tf_place {
    rd_params *ps;
    const char *prefix;
    const rd_tf_config *c;
} tf_place;

/* Declares a matrix (rows, cols). fan_out: number of outputs in the formula of its first values. */
static rd_code tf_matrix(const tf_place *at, const char *name, int64_t rows, int64_t cols,
                         int64_t fan_out, rd_param **out, rd_status *st)
{
    char full[160];
    const rd_init normal = {RD_INIT_NORMAL, at->c->init_std, 0, 0},
                  uniform = {RD_INIT_GLOROT, 0, rows, fan_out};
    snprintf(full, sizeof full, "%s/%s", at->prefix, name);
    return rd_params_add(at->ps, full, 2, (int64_t[]){rows, cols},
                         at->c->init == RD_TF_NORMAL ? normal : uniform, 0, out, st);
}

/* Declares the last matrix of a block. */
static rd_code tf_last_matrix(const tf_place *at, const char *name, int64_t rows, int64_t cols,
                              rd_param **out, rd_status *st)
{
    rd_tf_config c = *at->c;
    c.init_std = c.init_residual_std;
    return tf_matrix(&(tf_place){at->ps, at->prefix, &c}, name, rows, cols, cols, out, st);
}

/* Declares n numbers that start at `value`. */
static rd_code tf_vector(const tf_place *at, const char *name, int64_t n, double value,
                         rd_param **out, rd_status *st)
{
    char full[160];
    snprintf(full, sizeof full, "%s/%s", at->prefix, name);
    return rd_params_add(at->ps, full, 1, &n, (rd_init){RD_INIT_CONST, value, 0, 0},
                         RD_PARAM_NO_DECAY, out, st);
}

static rd_code tf_norm_add(const tf_place *at, rd_tf_norm *out, rd_status *st)
{
    RD_TRY(tf_vector(at, "norm_gain", at->c->d, 1.0, &out->gain, st));
    if (!at->c->rms && !at->c->no_norm_bias)
        RD_TRY(tf_vector(at, "norm_bias", at->c->d, 0.0, &out->bias, st));
done:
    return st->code;
}

/* Declares the adapter NAME_lora_a, NAME_lora_b of a matrix (rows, cols), if it is a target. */
static rd_code tf_lora_add(const tf_place *at, unsigned target, const char *name, int64_t rows,
                           int64_t cols, uint32_t *site, rd_tf_lora *out, rd_status *st)
{
    const rd_tf_lora_config *l = &at->c->lora;
    const double bound = 1.0 / sqrt((double)rows);
    char full[160];
    if (!(l->targets & target)) return RD_OK;
    snprintf(full, sizeof full, "%s/%s_lora_a", at->prefix, name);
    RD_TRY(rd_params_add(at->ps, full, 2, (int64_t[]){rows, l->rank},
                         (rd_init){RD_INIT_UNIFORM, bound, 0, 0}, 0, &out->a, st));
    snprintf(full, sizeof full, "%s/%s_lora_b", at->prefix, name);
    RD_TRY(rd_params_add(at->ps, full, 2, (int64_t[]){l->rank, cols},
                         (rd_init){RD_INIT_CONST, 0.0, 0, 0}, 0, &out->b, st));
    out->site = (*site)++;
done:
    return st->code;
}

/* Declares the adapters of self-attention. */
static rd_code tf_attention_lora_add(const tf_place *at, uint32_t *site, rd_tf_attention *b,
                                     rd_status *st)
{
    static const unsigned target[] = {RD_TF_LORA_Q, RD_TF_LORA_K, RD_TF_LORA_V};
    static const char *const name[] = {"q", "k", "v"};
    const rd_tf_config *c = at->c;
    const int64_t q = c->n_heads * c->head, kv = c->n_kv_heads * c->head;
    RD_TRY(tf_lora_add(at, RD_TF_LORA_QKV, "qkv", c->d, q + 2 * kv, site, &b->lora_qkv, st));
    for (int i = 0; i < 3; i++)
        RD_TRY(tf_lora_add(at, target[i], name[i], c->d, i == 0 ? q : kv, site, &b->lora_part[i],
                           st));
    RD_TRY(tf_lora_add(at, RD_TF_LORA_OUT, "out", q, c->d, site, &b->lora_out, st));
done:
    return st->code;
}

static rd_code tf_ff_lora_add(const tf_place *at, uint32_t *site, rd_tf_ff *b, rd_status *st)
{
    const int64_t d = at->c->d, f = at->c->ff;
    RD_TRY(tf_lora_add(at, RD_TF_LORA_FF1, "kernel1", d, f, site, &b->lora1, st));
    if (b->w3) RD_TRY(tf_lora_add(at, RD_TF_LORA_GATE, "gate", d, f, site, &b->lora3, st));
    RD_TRY(tf_lora_add(at, RD_TF_LORA_FF2, "kernel2", f, d, site, &b->lora2, st));
done:
    return st->code;
}

/* Returns fan_out of a matrix that makes `parts` of queries, keys and values, in cols columns. */
static int64_t tf_fan_out(const rd_tf_config *c, int64_t parts, int64_t cols)
{
    return c->init == RD_TF_MARIAN    ? cols / parts
           : c->init == RD_TF_FAIRSEQ ? 3 * cols / parts
                                      : cols;
}

static rd_code tf_attention_add(const tf_place *at, bool memory, uint32_t *site,
                                rd_tf_attention *out, rd_status *st)
{
    const rd_tf_config *c = at->c;
    const int64_t d = c->d, q = c->n_heads * c->head, kv = 2 * c->n_kv_heads * c->head,
                  cols = memory ? q : q + kv;
    const bool bias = c->attention_bias;
    RD_TRY(tf_norm_add(at, &out->norm, st));
    RD_TRY(tf_matrix(at, memory ? "q_kernel" : "qkv_kernel", d, cols,
                     tf_fan_out(c, memory ? 1 : 3, cols), &out->qkv, st));
    if (bias) RD_TRY(tf_vector(at, memory ? "q_bias" : "qkv_bias", cols, 0.0, &out->qkv_bias, st));
    if (memory) {
        RD_TRY(tf_matrix(at, "kv_kernel", d, kv, tf_fan_out(c, 2, kv), &out->kv, st));
        if (bias) RD_TRY(tf_vector(at, "kv_bias", kv, 0.0, &out->kv_bias, st));
    }
    if (c->qk_norm && !memory) {
        RD_TRY(tf_vector(at, "q_norm_gain", c->head, 1.0, &out->q_gain, st));
        RD_TRY(tf_vector(at, "k_norm_gain", c->head, 1.0, &out->k_gain, st));
    }
    RD_TRY(tf_last_matrix(at, "out_kernel", q, d, &out->out, st));
    if (bias && !c->no_out_bias) RD_TRY(tf_vector(at, "out_bias", d, 0.0, &out->out_bias, st));
    out->site_weights = *site;
    out->site_out = *site + (uint32_t)at->c->n_heads;
    *site += (uint32_t)at->c->n_heads + 1;
    if (!memory) RD_TRY(tf_attention_lora_add(at, site, out, st));
done:
    return st->code;
}

static rd_code tf_ssru_add(const tf_place *at, uint32_t *site, rd_tf_ssru *out, rd_status *st)
{
    const int64_t d = at->c->d;
    RD_TRY(tf_norm_add(at, &out->norm, st));
    RD_TRY(tf_matrix(at, "kernel", d, d, d, &out->kernel, st));
    RD_TRY(tf_matrix(at, "gate_kernel", d, d, d, &out->gate, st));
    RD_TRY(tf_vector(at, "gate_bias", d, 0.0, &out->gate_bias, st));
    out->site_out = (*site)++;
done:
    return st->code;
}

static rd_code tf_ff_add(const tf_place *at, uint32_t *site, rd_tf_ff *out, rd_status *st)
{
    const int64_t d = at->c->d, f = at->c->ff;
    const bool bias = !at->c->no_ff_bias;
    RD_TRY(tf_norm_add(at, &out->norm, st));
    RD_TRY(tf_matrix(at, "kernel1", d, f, f, &out->w1, st));
    if (bias) RD_TRY(tf_vector(at, "bias1", f, 0.0, &out->b1, st));
    if (at->c->ff_gate) {
        RD_TRY(tf_matrix(at, "gate_kernel", d, f, f, &out->w3, st));
        if (bias) RD_TRY(tf_vector(at, "gate_bias", f, 0.0, &out->b3, st));
    }
    RD_TRY(tf_last_matrix(at, "kernel2", f, d, &out->w2, st));
    if (bias) RD_TRY(tf_vector(at, "bias2", d, 0.0, &out->b2, st));
    out->site_inside = (*site)++;
    out->site_out = (*site)++;
    RD_TRY(tf_ff_lora_add(at, site, out, st));
done:
    return st->code;
}

rd_code rd_tf_stack_add(rd_params *ps, const char *prefix, const rd_tf_config *c, int n_layers,
                        bool causal, bool memory, uint32_t *site, rd_tf_stack *s, rd_status *st)
{
    char name[96];
    const tf_place at = {ps, name, &s->c}, whole = {ps, prefix, &s->c};
    memset(s, 0, sizeof *s);
    s->c = *c;
    if (!c->n_kv_heads) s->c.n_kv_heads = c->n_heads;
    if (!c->head) s->c.head = c->d / c->n_heads;
    s->causal = causal;
    s->n_layers = n_layers;
    for (int l = 0; l < n_layers; l++) {
        rd_tf_layer *layer = &s->layer[l];
        const bool ssru = c->ssru && causal;
        snprintf(name, sizeof name, "%.64s/layer%d/%s", prefix, l, ssru ? "ssru" : "attention");
        if (ssru)
            RD_TRY(tf_ssru_add(&at, site, &layer->ssru, st));
        else
            RD_TRY(tf_attention_add(&at, false, site, &layer->self, st));
        snprintf(name, sizeof name, "%.64s/layer%d/memory", prefix, l);
        if (memory) RD_TRY(tf_attention_add(&at, true, site, &layer->memory, st));
        snprintf(name, sizeof name, "%.64s/layer%d/ff", prefix, l);
        RD_TRY(tf_ff_add(&at, site, &layer->ff, st));
    }
    if (!c->post_norm) RD_TRY(tf_norm_add(&whole, &s->last, st));
done:
    return st->code;
}

/* ---- embeddings ---- */

static rd_init tf_embedding_init(const rd_tf_config *c, int64_t V, bool output)
{
    if (c->init == RD_TF_MARIAN) return (rd_init){RD_INIT_UNIFORM, sqrt(3.0 / (double)c->d), 0, 0};
    if (c->init == RD_TF_NORMAL) return (rd_init){RD_INIT_NORMAL, c->init_std, 0, 0};
    if (c->init == RD_TF_FAIRSEQ) return (rd_init){RD_INIT_NORMAL, 1.0 / sqrt((double)c->d), 0, 0};
    return output ? (rd_init){RD_INIT_GLOROT, 0, V, c->d} : (rd_init){RD_INIT_UNIFORM, 0.07, 0, 0};
}

rd_code rd_tf_table_add(rd_params *ps, const char *name, int64_t V, const rd_tf_config *c,
                        bool output, rd_param **out, rd_status *st)
{
    return rd_params_add(ps, name, 2, (int64_t[]){V, c->d}, tf_embedding_init(c, V, output),
                         output ? 0 : RD_PARAM_ROWS, out, st);
}

rd_code rd_tf_embedding_add(rd_params *ps, const char *name, rd_param *table,
                            rd_tf_positions positions, int64_t n_places, bool scaled,
                            double keep_table, const rd_tf_config *c, uint32_t *site,
                            rd_tf_embedding *e, rd_status *st)
{
    memset(e, 0, sizeof *e);
    e->table = table;
    e->positions = positions;
    e->n_places = n_places;
    e->scale = scaled ? sqrtf((float)c->d) : 1.0f;
    e->drop_table = (rd_dropout){.seed = c->seed, .site = (*site)++, .keep = (float)keep_table};
    e->drop_sum = (rd_dropout){.seed = c->seed, .site = (*site)++, .keep = (float)c->keep_residual};
    if (positions == RD_TF_POSITIONS_LEARNED)
        RD_TRY(rd_params_add(ps, name, 2, (int64_t[]){n_places, c->d},
                             tf_embedding_init(c, n_places, false), RD_PARAM_ROWS, &e->places, st));
done:
    return st->code;
}

/* Returns x + drop(z); x NULL: drop(z). */
static rd_var *tf_residual(rd_tape *t, const rd_tf_rows *rows, rd_dropout drop, rd_var *x,
                           rd_var *z)
{
    const rd_residual r = {.drop = drop, .sample = rows->row_sample, .position = rows->position};
    return rd_op_residual(t, &r, x, z);
}

/* Returns the learned vectors of all rows. */
static rd_var *tf_places(rd_tape *t, const rd_tf_embedding *e, const rd_tf_rows *rows)
{
    int32_t *id;
    if (rd_arena_get(rd_tape_arena(t), (size_t)(rows->N + 1) * sizeof *id, &id,
                     rd_tape_status(t)) != RD_OK)
        return NULL;
    for (int64_t i = 0; i < rows->N; i++)
        id[i] = (int32_t)(rows->position[i] < e->n_places ? rows->position[i] : e->n_places - 1);
    return rd_op_embed(t, rd_tape_param(t, e->places), id, rows->N);
}

rd_var *rd_tf_embedding_apply(rd_tape *t, const rd_tf_embedding *e, const rd_tf_rows *rows,
                              uint64_t epoch, const int32_t *ids)
{
    static const rd_sinusoid layouts[] = {[RD_TF_POSITIONS_PAIRS] = RD_SINUSOID_PAIRS,
                                          [RD_TF_POSITIONS_HALVES] = RD_SINUSOID_HALVES,
                                          [RD_TF_POSITIONS_T2T] = RD_SINUSOID_T2T,
                                          [RD_TF_POSITIONS_LEARNED] = RD_SINUSOID_NONE,
                                          [RD_TF_POSITIONS_NONE] = RD_SINUSOID_NONE};
    const rd_positions p = {layouts[e->positions], e->scale, rows->position};
    rd_dropout table = e->drop_table, sum = e->drop_sum;
    table.epoch = sum.epoch = epoch;
    rd_var *x = rd_op_embed(t, rd_tape_param(t, e->table), ids, rows->N);
    if (table.keep < 1.0f) x = tf_residual(t, rows, table, NULL, x);
    if (x && (p.layout != RD_SINUSOID_NONE || e->scale != 1.0f)) x = rd_op_positions(t, &p, x);
    if (e->places) {
        const rd_residual plain = {.drop = {.keep = 1.0f}};
        x = rd_op_residual(t, &plain, x, tf_places(t, e, rows));
    }
    return tf_residual(t, rows, sum, NULL, x);
}

/* ---- layers ---- */

static rd_dropout tf_drop(const rd_tf_config *c, uint32_t site, double keep, uint64_t epoch)
{
    return (rd_dropout){.seed = c->seed, .site = site, .epoch = epoch, .keep = (float)keep};
}

rd_var *rd_tf_norm_apply(rd_tape *t, const rd_tf_config *c, const rd_tf_norm *n, rd_var *x)
{
    const rd_layer_norm a = {.eps = (float)c->eps, .rms = c->rms, .type = c->activations};
    return rd_op_layer_norm(t, &a, x, rd_tape_param(t, n->gain), rd_tape_param(t, n->bias));
}

/* The result has the type of x. */
static rd_var *tf_linear(rd_tape *t, rd_var *x, rd_param *w, rd_param *b)
{
    return x ? rd_op_linear_as(t, x->type, x, rd_tape_param(t, w), rd_tape_param(t, b)) : NULL;
}

/* Frees values that backward computes again, if the model saves memory so. */
static void tf_forget(rd_tape *t, const rd_tf_config *c, rd_var *x)
{
    if (c->recompute == RD_TF_RECOMPUTE_NORMS) rd_tape_forget(t, x);
}

/* The rows of a block, and what its dropouts ask for. */
typedef struct tf_call {
    const rd_tf_config *c;
    const rd_tf_rows *rows;
    uint64_t epoch;
} tf_call;

/* Returns scale drop(x) A B, or NULL where there is no adapter. */
static rd_var *tf_lora(rd_tape *t, const tf_call *f, const rd_tf_lora *l, rd_var *x)
{
    const rd_positions scale = {RD_SINUSOID_NONE, (float)f->c->lora.scale, f->rows->position};
    if (!l->a || !x) return NULL;
    rd_var *y = f->c->lora.keep < 1.0
                    ? tf_residual(t, f->rows, tf_drop(f->c, l->site, f->c->lora.keep, f->epoch),
                                  NULL, x)
                    : x,
           *h = tf_linear(t, y, l->a, NULL);
    if (y && y->v != x->v) tf_forget(t, f->c, y);
    return tf_linear(t, h ? rd_op_positions(t, &scale, h) : NULL, l->b, NULL);
}

/* Returns x W + b and what the adapter adds. */
static rd_var *tf_adapted(rd_tape *t, const tf_call *f, rd_var *x, rd_param *w, rd_param *b,
                          const rd_tf_lora *l)
{
    const rd_residual plain = {.drop = {.keep = 1.0f}};
    rd_var *y = tf_linear(t, x, w, b);
    return l->a && y ? rd_op_residual(t, &plain, y, tf_lora(t, f, l, x)) : y;
}

/* Returns what the adapters of queries, keys and values add (N, q + 2 kv), side by side; zeros
 * where one is missing. NULL: there is none. */
static rd_var *tf_lora_parts(rd_tape *t, const tf_call *f, const rd_tf_attention *b, rd_var *x)
{
    const rd_tf_config *c = f->c;
    const int64_t widths[] = {c->n_heads * c->head, c->n_kv_heads * c->head,
                              c->n_kv_heads * c->head};
    const int64_t N = f->rows->N, *index[3];
    rd_arena *a = rd_tape_arena(t);
    rd_status *st = rd_tape_status(t);
    rd_var *part[3];
    int64_t *own, *none;
    if (!x || (!b->lora_part[0].a && !b->lora_part[1].a && !b->lora_part[2].a)) return NULL;
    RD_TRY(rd_arena_get(a, (size_t)(N + 1) * sizeof *own, &own, st));
    RD_TRY(rd_arena_get(a, (size_t)(N + 1) * sizeof *none, &none, st));
    for (int64_t i = 0; i < N; i++) {
        own[i] = i;
        none[i] = -1;
    }
    for (int i = 0; i < 3; i++) {
        float *zeros;
        index[i] = b->lora_part[i].a ? own : none;
        part[i] = rd_op_cast(t, tf_lora(t, f, &b->lora_part[i], x), RD_FLOAT32);
        if (b->lora_part[i].a) continue;
        RD_TRY(rd_arena_zero(a, (size_t)((1 + RD_SLACK_ROWS) * widths[i]) * sizeof *zeros, &zeros,
                             st));
        part[i] = rd_tape_const(t, zeros, 1, widths[i]);
    }
    return rd_op_cast(t, rd_op_pick(t, 3, part, index, N), x->type);
done:
    return NULL;
}

/* Returns the norm of x, or x. */
static rd_var *tf_block_input(rd_tape *t, const rd_tf_config *c, const rd_tf_norm *n, rd_var *x)
{
    return c->post_norm ? x : rd_tf_norm_apply(t, c, n, x);
}

/* Frees what tf_block_input returned. */
static void tf_forget_norm(rd_tape *t, const rd_tf_config *c, rd_var *y)
{
    if (!c->post_norm) tf_forget(t, c, y);
}

rd_attend rd_tf_heads(const rd_tf_config *c, int64_t k_at)
{
    return (rd_attend){.n_heads = c->n_heads,
                       .n_kv_heads = c->n_kv_heads,
                       .head = c->head,
                       .k_at = k_at,
                       .v_at = k_at + c->n_kv_heads * c->head,
                       .scale = 1.0f / sqrtf((float)c->head),
                       .drop = {.keep = 1.0f}};
}

rd_var *rd_tf_queries(rd_tape *t, const rd_tf_config *c, const rd_tf_attention *b, rd_var *x)
{
    rd_var *y = tf_block_input(t, c, &b->norm, x), *q = tf_linear(t, y, b->qkv, b->qkv_bias);
    tf_forget_norm(t, c, y);
    return q;
}

rd_var *rd_tf_self_queries(rd_tape *t, const rd_tf_config *c, const rd_tf_attention *b,
                           const rd_tf_rows *rows, uint64_t epoch, rd_var *x)
{
    const rd_rotary r = {c->n_heads,     c->n_kv_heads, c->head,
                         rows->position, c->rope,       (float)c->eps};
    const rd_residual plain = {.drop = {.keep = 1.0f}};
    const tf_call f = {c, rows, epoch};
    /* The product reads y first, so no dropout of an adapter takes over its memory. */
    rd_var *y = tf_block_input(t, c, &b->norm, x);
    x = tf_adapted(t, &f, y, b->qkv, b->qkv_bias, &b->lora_qkv);
    rd_var *add = tf_lora_parts(t, &f, b, y);
    if (add && x) x = rd_op_residual(t, &plain, x, add);
    tf_forget_norm(t, c, y);
    if (!c->rope && !b->q_gain) return x;
    return rd_op_rotary(t, &r, x, rd_tape_param(t, b->q_gain), rd_tape_param(t, b->k_gain));
}

rd_var *rd_tf_memory_keys(rd_tape *t, const rd_tf_attention *b, rd_var *memory)
{
    return tf_linear(t, memory, b->kv, b->kv_bias);
}

/* Returns x + drop(z), or its norm. */
static rd_var *tf_sum(rd_tape *t, const rd_tf_config *c, const rd_tf_norm *norm, uint32_t site,
                      const rd_tf_rows *rows, uint64_t epoch, rd_var *x, rd_var *z)
{
    const rd_residual r = {.drop = tf_drop(c, site, c->keep_residual, epoch),
                           .sample = rows->row_sample,
                           .position = rows->position,
                           .wide = true};
    rd_var *y = rd_op_residual(t, &r, x, z);
    if (c->post_norm) tf_forget(t, c, x);
    return c->post_norm ? rd_tf_norm_apply(t, c, norm, y) : y;
}

rd_var *rd_tf_attended(rd_tape *t, const rd_tf_config *c, const rd_tf_attention *b,
                       const rd_tf_rows *rows, uint64_t epoch, rd_var *x, rd_var *y)
{
    const tf_call f = {c, rows, epoch};
    return tf_sum(t, c, &b->norm, b->site_out, rows, epoch, x,
                  tf_adapted(t, &f, y, b->out, b->out_bias, &b->lora_out));
}

rd_var *rd_tf_ssru_states(rd_tape *t, const rd_tf_config *c, const rd_tf_ssru *b,
                          const rd_tf_rows *rows, rd_var *x, rd_var *before)
{
    const rd_ssru a = {rows->n, rows->first, rows->len};
    rd_var *y = tf_block_input(t, c, &b->norm, x), *u = tf_linear(t, y, b->kernel, NULL),
           *z = tf_linear(t, y, b->gate, b->gate_bias);
    tf_forget_norm(t, c, y);
    return rd_op_ssru(t, &a, u, z, before);
}

rd_var *rd_tf_ssru_out(rd_tape *t, const rd_tf_config *c, const rd_tf_ssru *b,
                       const rd_tf_rows *rows, uint64_t epoch, rd_var *x, rd_var *states)
{
    return tf_sum(t, c, &b->norm, b->site_out, rows, epoch, x,
                  rd_op_activate(t, RD_ACT_RELU, states));
}

rd_var *rd_tf_ff_apply(rd_tape *t, const rd_tf_config *c, const rd_tf_ff *b, const rd_tf_rows *rows,
                       uint64_t epoch, rd_var *x)
{
    const tf_call a = {c, rows, epoch};
    rd_var *y = tf_block_input(t, c, &b->norm, x),
           *u = tf_adapted(t, &a, y, b->w1, b->b1, &b->lora1),
           *gate = b->w3 ? tf_adapted(t, &a, y, b->w3, b->b3, &b->lora3) : NULL;
    tf_forget_norm(t, c, y);
    rd_var *f = rd_op_activate(t, c->activation, u), *p = b->w3 ? rd_op_multiply(t, f, gate) : f,
           *v = tf_residual(t, rows, tf_drop(c, b->site_inside, c->keep_ff, epoch), NULL, p),
           *z = tf_adapted(t, &a, v, b->w2, b->b2, &b->lora2);
    tf_forget(t, c, v);
    tf_forget(t, c, p);
    tf_forget(t, c, f);
    return tf_sum(t, c, &b->norm, b->site_out, rows, epoch, x, z);
}

/* A layer of a stack with its rows. */
typedef struct tf_layer_call {
    const rd_tf_stack *s;
    rd_tf_config c; /* that of the stack, with the type of activations */
    int l;
    rd_tf_rows rows, of; /* of: those of the memory */
    uint64_t epoch;
} tf_layer_call;

/* Records an attention block. memory NULL: self-attention. */
static rd_var *tf_attention(rd_tape *t, const tf_layer_call *l, const rd_tf_attention *b, rd_var *x,
                            rd_var *memory)
{
    const rd_tf_config *c = &l->c;
    const rd_tf_rows *rows = &l->rows, *of = memory ? &l->of : rows;
    rd_attend a = rd_tf_heads(c, memory ? 0 : c->n_heads * c->head);
    a.causal = l->s->causal && !memory;
    a.n = rows->n;
    a.q_first = rows->first;
    a.q_len = rows->len;
    a.k_first = of->first;
    a.k_len = of->len;
    a.sample = rows->sample;
    a.drop = tf_drop(c, b->site_weights, c->keep_attention, l->epoch);
    rd_var *q = memory ? rd_tf_queries(t, c, b, x) : rd_tf_self_queries(t, c, b, rows, l->epoch, x);
    rd_var *y = rd_op_attend(t, &a, q, memory ? rd_tf_memory_keys(t, b, memory) : q);
    return rd_tf_attended(t, c, b, rows, l->epoch, x, y);
}

/* in: x, and the memory of a stack that has one. */
static rd_var *tf_layer(rd_tape *t, const void *ctx, rd_var *const *in)
{
    const tf_layer_call *a = ctx;
    const rd_tf_layer *layer = &a->s->layer[a->l];
    rd_var *x = in[0];
    if (layer->ssru.kernel)
        x = rd_tf_ssru_out(t, &a->c, &layer->ssru, &a->rows, a->epoch, x,
                           rd_tf_ssru_states(t, &a->c, &layer->ssru, &a->rows, x, NULL));
    else
        x = tf_attention(t, a, &layer->self, x, NULL);
    if (layer->memory.out) x = tf_attention(t, a, &layer->memory, x, in[1]);
    return rd_tf_ff_apply(t, &a->c, &layer->ff, &a->rows, a->epoch, x);
}

rd_var *rd_tf_stack_apply(rd_tape *t, const rd_tf_stack *s, const rd_tf_rows *rows, uint64_t epoch,
                          rd_var *x, rd_var *memory, const rd_tf_rows *of)
{
    tf_layer_call a = {.s = s, .c = s->c, .rows = *rows, .epoch = epoch};
    const rd_element type = rd_backend_activations(rd_tape_backend(t));
    a.c.activations = type;
    if (of) a.of = *of;
    if (memory) memory = rd_op_cast(t, memory, type);
    if (s->c.post_norm) x = rd_op_cast(t, x, type);
    for (a.l = 0; a.l < s->n_layers; a.l++) {
        rd_var *const in[] = {x, memory};
        x = s->c.recompute == RD_TF_RECOMPUTE_LAYER
                ? rd_tape_recompute(t, tf_layer, &a, sizeof a, in, memory ? 2 : 1)
                : tf_layer(t, &a, in);
    }
    if (!s->last.gain) return s->causal ? rd_op_cast(t, x, RD_FLOAT32) : x;
    return rd_tf_norm_apply(t, s->causal ? &s->c : &a.c, &s->last, x);
}

double rd_tf_stack_elements(const rd_tf_stack *s, double *of_memory)
{
    double n = 0.0;
    *of_memory = 0.0;
    for (int l = 0; l < s->n_layers; l++) {
        const rd_tf_layer *y = &s->layer[l];
        n += (double)(y->ff.w1->n + y->ff.w2->n + (y->ff.w3 ? y->ff.w3->n : 0));
        n += (double)(y->ssru.kernel ? y->ssru.kernel->n + y->ssru.gate->n
                                     : y->self.qkv->n + y->self.out->n);
        if (!y->memory.out) continue;
        n += (double)(y->memory.qkv->n + y->memory.out->n);
        *of_memory += (double)y->memory.kv->n;
    }
    return n;
}

static double tf_lora_n(const rd_tf_lora *l)
{
    return l->a ? (double)(l->a->n + l->b->n) : 0.0;
}

double rd_tf_lora_elements(const rd_tf_stack *s)
{
    double n = 0.0;
    for (int l = 0; l < s->n_layers; l++) {
        const rd_tf_attention *b = &s->layer[l].self;
        const rd_tf_ff *f = &s->layer[l].ff;
        n += tf_lora_n(&b->lora_qkv) + tf_lora_n(&b->lora_out);
        for (int i = 0; i < 3; i++) n += tf_lora_n(&b->lora_part[i]);
        n += tf_lora_n(&f->lora1) + tf_lora_n(&f->lora3) + tf_lora_n(&f->lora2);
    }
    return n;
}
