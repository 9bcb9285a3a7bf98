/* op_kinds.h -- how ops.c declares the inputs of each op and applies it.
 *
 * The comment above each function lists the sizes and numbers of its cases. */
#ifndef RD_TESTS_GPU_OP_KINDS_H
#define RD_TESTS_GPU_OP_KINDS_H

#include "op_trial.h"
#include "rd/cell.h"

static void embed_declare(trial *t)
{
    matrix(t, t->c->size[0], t->c->size[1]);
}
static void embed_apply(trial *t)
{
    const int64_t n = t->c->size[2];
    give(t, rd_op_embed(t->h.tape, input(t, 0), ids_below(t, n, t->c->size[0]), n));
}

/* size: rows, inputs, outputs, bias, 16-bit result where inputs have 16 bits. */
static void linear_declare(trial *t)
{
    matrix(t, t->c->size[0], t->c->size[1]);
    matrix(t, t->c->size[1], t->c->size[2]);
    if (t->c->size[3]) matrix(t, 0, t->c->size[2]);
}
static void linear_apply(trial *t)
{
    const bool narrow = is_narrow(t) && t->c->size[4];
    rd_var *W = direct(t, 1), *b = t->c->size[3] ? direct(t, 2) : NULL;
    if (is_narrow(t) && !t->result[0]) t->result[0] = narrowed(t, rows_of(t, 0));
    rd_var *x = t->result[0] ? t->result[0] : rows_of(t, 0);
    if (narrow && !t->gpu)
        give(t, stored_with(t, rd_op_linear(t->h.tape, x, W, NULL), b, false));
    else
        give(t, rd_op_linear_as(t->h.tape, narrow ? narrow_type : RD_FLOAT32, x, W, b));
}

/* size: n, then rows and columns of each input. */
static void pick_declare(trial *t)
{
    for (int i = 0; i < 4 && t->c->size[1 + 2 * i]; i++)
        matrix(t, t->c->size[1 + 2 * i], t->c->size[2 + 2 * i]);
}
static void pick_apply(trial *t)
{
    const int64_t n = t->c->size[0];
    rd_var *x[4];
    const int64_t *idx[4];
    for (int i = 0; i < t->n_in; i++) {
        const int64_t rows = t->c->size[1 + 2 * i];
        int64_t *at = step_memory(t, n, sizeof *at);
        for (int64_t k = 0; k < n; k++)
            at[k] = pseudo(k, rows + 1, 5 + (uint64_t)i) - 1; /* -1: zeros */
        x[i] = input(t, i);
        idx[i] = at;
    }
    give(t, rd_op_pick(t->h.tape, t->n_in, x, idx, n));
}

/* size: rows, width, columns of the logits, classes (0: all), W by rows, bias, smoothing as
 * fairseq, weights, limited logits and z loss. number: temperature, smoothing. */
static void xent_declare(trial *t)
{
    const int64_t *s = t->c->size;
    matrix(t, s[0], s[1]);
    matrix(t, s[4] ? s[2] : s[1], s[4] ? s[1] : s[2]);
    if (s[5]) matrix(t, 0, s[2]);
}
static void xent_apply(trial *t)
{
    const int64_t *s = t->c->size, N = s[0];
    float *nll = step_memory(t, N, sizeof *nll), *weight = step_memory(t, N, sizeof *weight);
    for (int64_t i = 0; i < N; i++) weight[i] = (float)(i % 4) * 0.5f;
    const rd_xent a = {.target = ids_below(t, N, s[3] ? s[3] : s[2]),
                       .temperature = (float)t->c->number[0],
                       .loss_sum = sum_out(t),
                       .argmax = list_out(t, N),
                       .nll = nll,
                       .nll_sum = sum_out(t),
                       .smoothing = (float)t->c->number[1],
                       .smooth_others = s[6] != 0,
                       .weight = s[7] ? weight : NULL,
                       .n_classes = s[3],
                       .by_rows = s[4] != 0,
                       .softcap = s[8] ? 1.5f : 0.0f,
                       .z_loss = s[8] ? 0.1f : 0.0f};
    give(t, t->loss = rd_op_softmax_xent_bias(t->h.tape, &a, rows_of(t, 0), direct(t, 1),
                                              s[5] ? direct(t, 2) : NULL));
    double *by_row = sum_out(t);
    *by_row = 0.0;
    for (int64_t i = 0; i < N && t->loss; i++) *by_row += (double)nll[i] * (double)(i + 1);
}

/* size: query heads, key heads, width of a head, causal, then queries and keys of up to three
 * sequences, the way (ATTEND_RULE: the program chooses), most scores of a group of sequences (0:
 * the program's limit), 1: without gradients a list in reverse order has the rows of keys.
 * number: the probability to keep. One variable has queries, keys and values if the keys are those
 * of the queries. */
enum { ATTEND_RULE, ATTEND_ROWS, ATTEND_PRODUCTS, ATTEND_BLOCKS };
enum { ATTEND_WAY = 10, ATTEND_SCORES, ATTEND_CACHE };
static bool attend_is_self(const trial *t)
{
    const int64_t *s = t->c->size;
    return s[4] == s[5] && s[6] == s[7] && s[8] == s[9];
}
static void attend_declare(trial *t)
{
    const int64_t *s = t->c->size, wq = s[0] * s[2], wk = s[1] * s[2];
    matrix(t, s[4] + s[6] + s[8], attend_is_self(t) ? wq + 2 * wk : wq);
    if (!attend_is_self(t)) matrix(t, s[5] + s[7] + s[9], 2 * wk);
}
static void attend_apply(trial *t)
{
    const int64_t *s = t->c->size, wq = s[0] * s[2], wk = s[1] * s[2], n = s[8] ? 3 : s[6] ? 2 : 1;
    int64_t *at[5];
    for (int i = 0; i < 5; i++) at[i] = step_memory(t, n, sizeof **at);
    for (int64_t i = 0; i < n; i++) {
        at[1][i] = s[4 + 2 * i];
        at[3][i] = s[5 + 2 * i];
        at[4][i] = 77 + 1000 * i;
        at[0][i] = i ? at[0][i - 1] + at[1][i - 1] : 0;
        at[2][i] = i ? at[2][i - 1] + at[3][i - 1] : 0;
    }
    const int64_t n_keys = s[5] + s[7] + s[9];
    int32_t *key_row = step_memory(t, n_keys, sizeof *key_row);
    for (int64_t i = 0; i < n_keys; i++) key_row[i] = (int32_t)(n_keys - 1 - i);
    const bool self = attend_is_self(t);
    static const char *const ways[] = {"rule", "rows", "products", "blocks"};
    setenv("RD_CUDA_ATTEND", ways[s[ATTEND_WAY]], 1);
    rd_backend_set_block_bytes(t->h.be, (size_t)s[ATTEND_SCORES] * sizeof(float));
    const rd_attend a = {.n_heads = s[0],
                         .n_kv_heads = s[1],
                         .head = s[2],
                         .k_at = self ? wq : 0,
                         .v_at = self ? wq + wk : wk,
                         .scale = 1.0f / sqrtf((float)s[2]),
                         .causal = s[3] != 0,
                         .n = n,
                         .q_first = at[0],
                         .q_len = at[1],
                         .k_first = at[2],
                         .k_len = at[3],
                         .sample = at[4],
                         .key_row = s[ATTEND_CACHE] && !has_gradient(t->how) ? key_row : NULL,
                         .n_key_row = n_keys,
                         .drop = {3, 1, 9, (float)t->c->number[0]}};
    rd_var *q = input(t, 0);
    give(t, rd_op_attend(t->h.tape, &a, q, self ? q : input(t, 1)));
}

/* size: columns, the first state is an input, then the rows of up to five sequences. */
static int64_t ssru_rows(const trial *t)
{
    int64_t n = 0;
    for (int i = 0; i < 5; i++) n += t->c->size[2 + i];
    return n;
}
static int64_t ssru_sequences(const trial *t)
{
    int64_t n = 5;
    while (n > 1 && !t->c->size[1 + n]) n--;
    return n;
}
static void ssru_declare(trial *t)
{
    for (int i = 0; i < 2; i++) matrix(t, ssru_rows(t), t->c->size[0]);
    if (t->c->size[1]) matrix(t, ssru_sequences(t), t->c->size[0]);
}
static void ssru_apply(trial *t)
{
    const int64_t n = ssru_sequences(t);
    int64_t *first = step_memory(t, n, sizeof *first);
    for (int64_t i = 1; i < n; i++) first[i] = first[i - 1] + t->c->size[1 + i];
    const rd_ssru a = {n, first, t->c->size + 2};
    give(t,
         rd_op_ssru(t->h.tape, &a, input(t, 0), input(t, 1), t->c->size[1] ? input(t, 2) : NULL));
}

/* size: rows, columns, rms, bias. */
static void layer_norm_declare(trial *t)
{
    const int64_t *s = t->c->size;
    matrix(t, s[0] ? s[0] : 1, s[1]);
    matrix(t, 0, s[1]);
    if (s[3]) matrix(t, 0, s[1]);
}
/* Input i, or no rows of it. wide: it stays float32. */
static rd_var *some_rows_of(trial *t, int i, bool wide)
{
    if (t->c->size[0]) return wide ? wide_input(t, i) : input(t, i);
    rd_var *x = wide_input(t, i);
    x = rd_op_pick(t->h.tape, 1, &x, (const int64_t *[]){rows_in_order(t, 0)}, 0);
    return wide || !is_narrow(t) ? x : narrowed(t, x);
}
static rd_var *some_rows(trial *t)
{
    return some_rows_of(t, 0, false);
}
static void layer_norm_apply(trial *t)
{
    const rd_layer_norm a = {1e-5f, t->c->size[2] != 0,
                             is_narrow(t) && t->gpu ? narrow_type : RD_FLOAT32};
    give(t, rd_op_layer_norm(t->h.tape, &a, some_rows_of(t, 0, true), wide_input(t, 1),
                             t->c->size[3] ? wide_input(t, 2) : NULL));
}

/* size: rows, columns, function. */
static void activate_declare(trial *t)
{
    matrix(t, t->c->size[0] ? t->c->size[0] : 1, t->c->size[1]);
}
static void activate_apply(trial *t)
{
    give(t, rd_op_activate(t->h.tape, (rd_activation)t->c->size[2], some_rows(t)));
}

/* size: rows, columns, one variable as both factors. */
static void multiply_declare(trial *t)
{
    for (int i = 0; i < (t->c->size[2] ? 1 : 2); i++)
        matrix(t, t->c->size[0] ? t->c->size[0] : 1, t->c->size[1]);
}
static void multiply_apply(trial *t)
{
    give(t, rd_op_multiply(t->h.tape, some_rows(t), some_rows_of(t, t->c->size[2] ? 0 : 1, false)));
}

/* size: rows, heads of queries, of keys, width of a head, columns behind them, gains, no
 * rotation. */
static void rotary_declare(trial *t)
{
    const int64_t *s = t->c->size;
    matrix(t, s[0] ? s[0] : 1, (s[1] + s[2]) * s[3] + s[4]);
    for (int i = 0; i < 2 && s[5]; i++) matrix(t, 0, s[3]);
}
static void rotary_apply(trial *t)
{
    const int64_t *s = t->c->size;
    int64_t *position = step_memory(t, s[0], sizeof *position);
    double *rate = step_memory(t, s[3] / 2, sizeof *rate);
    for (int64_t i = 0; i < s[0]; i++) position[i] = i % 37 + (i % 3 ? 0 : 10000);
    for (int64_t k = 0; k < s[3] / 2; k++) rate[k] = 1.0 / (double)(1 + 3 * k);
    const rd_rotary a = {s[1], s[2], s[3], position, s[6] ? NULL : rate, 1e-5f};
    give(t, rd_op_rotary(t->h.tape, &a, some_rows(t), s[5] ? wide_input(t, 1) : NULL,
                         s[5] ? wide_input(t, 2) : NULL));
}

/* size: rows, columns, x is there; where z has 16 bits: the result is float32, x is float32.
 * number: the probability to keep. */
static void residual_declare(trial *t)
{
    for (int i = 0; i < (t->c->size[2] ? 2 : 1); i++)
        matrix(t, t->c->size[0] ? t->c->size[0] : 1, t->c->size[1]);
}
static void residual_apply(trial *t)
{
    const int64_t n = t->c->size[0];
    int64_t *sample = step_memory(t, n, sizeof *sample),
            *position = step_memory(t, n, sizeof *position);
    for (int64_t i = 0; i < n; i++) {
        sample[i] = 77 + 1000 * (i / 5);
        position[i] = i % 5 + (i % 3 ? 0 : 300);
    }
    const bool wide_x = t->c->size[4] != 0, wide = wide_x || t->c->size[3] != 0;
    const rd_residual a = {{3, 1, 9, (float)t->c->number[0]}, sample, position, wide && !wide_x};
    rd_var *z = some_rows(t), *x = wide_x ? wide_input(t, 1) : n && t->c->size[2] ? input(t, 1) : z;
    give_stored(t, rd_op_residual(t->h.tape, &a, t->c->size[2] ? x : NULL, z), wide);
}

/* size: rows, columns, layout. number: the scale. */
static void positions_declare(trial *t)
{
    matrix(t, t->c->size[0] ? t->c->size[0] : 1, t->c->size[1]);
}
static void positions_apply(trial *t)
{
    int64_t *position = step_memory(t, t->c->size[0], sizeof *position);
    for (int64_t i = 0; i < t->c->size[0]; i++) position[i] = i % 37 + (i % 3 ? 0 : 10000);
    const rd_positions a = {(rd_sinusoid)t->c->size[2], (float)t->c->number[0], position};
    give(t, rd_op_positions(t->h.tape, &a, some_rows(t)));
}

static void class_declare(trial *t)
{
    matrix(t, t->c->size[0], t->c->size[1]);
}
static void class_apply(trial *t)
{
    const int64_t N = t->c->size[0];
    float *p = step_memory(t, N, sizeof *p);
    const rd_class_loss a = {ids_below(t, N, t->c->size[1]),
                             (float)t->c->number[0],
                             sum_out(t),
                             sum_out(t),
                             list_out(t, N),
                             list_out(t, N),
                             p};
    rd_var *y = rd_op_class_loss(t->h.tape, &a, input(t, 0));
    give(t, y);
    double *by_row = sum_out(t);
    *by_row = 0.0;
    for (int64_t i = 0; i < N && y; i++) *by_row += (double)p[i] * (double)(i + 1);
}

/* ---- sequences ---- */
/* size: sequences, longest, in, H, projection, extra, groups, residual. number: the fraction of
 * input and output that dropout keeps. */
enum { SEQUENCES, LONGEST, IN, UNITS, PROJECTION, EXTRA, GROUPS, RESIDUAL };

static int64_t *offsets; /* of the packing that is made now */

static rd_packing packing(trial *t, int64_t n_seq, int64_t longest)
{
    int64_t *off = step_memory(t, longest + 1, sizeof *off),
            *sample = step_memory(t, n_seq, sizeof *sample);
    for (int64_t i = 0; i < n_seq; i++) sample[i] = 1000 + 37 * i;
    /* lengths fall from `longest` to 1 */
    for (int64_t s = 0; s < longest; s++) {
        int64_t n = 0;
        for (int64_t i = 0; i < n_seq; i++) n += longest - (longest - 1) * i / n_seq > s;
        off[s + 1] = off[s] + n;
    }
    offsets = off;
    return (rd_packing){longest, off, sample};
}

static int64_t packed_rows(int64_t n_seq, int64_t longest)
{
    int64_t n = 0;
    for (int64_t i = 0; i < n_seq && longest; i++) n += longest - (longest - 1) * i / n_seq;
    return n;
}

static rd_code emit(void *ctx, const char *name, int n_dim, const int64_t *dim, rd_init init,
                    rd_status *st)
{
    (void)name, (void)init, (void)st;
    matrix(ctx, n_dim == 2 ? dim[0] : 0, dim[n_dim - 1]);
    return RD_OK;
}

static rd_layer layer_of(const trial *t, int64_t in)
{
    const int64_t *s = t->c->size;
    return (rd_layer){.cell = rd_cell_find(t->c->cell),
                      .shape = {in, s[UNITS], s[PROJECTION] ? s[PROJECTION] : s[UNITS], s[EXTRA],
                                s[GROUPS], s[PROJECTION] > 0},
                      .drop_in = {5, 2, 3, (float)t->c->number[0]},
                      .drop_out = {5, 2, 4, (float)t->c->number[1]},
                      .residual = s[RESIDUAL]};
}

static void rnn_declare(trial *t)
{
    const int64_t *s = t->c->size, N = packed_rows(s[SEQUENCES], s[LONGEST]);
    rd_status st = {0};
    const rd_layer l = layer_of(t, s[IN]);
    matrix(t, N ? N : 1, s[IN]);
    matrix(t, N ? N : 1, s[EXTRA] ? s[EXTRA] : 1);
    l.cell->declare(&l.shape, emit, t, &st);
    must(&st);
}

/* Returns all rows of input i, no rows if the batch has none. */
static rd_var *packed_input(trial *t, int i, int64_t N)
{
    rd_var *x = direct(t, i);
    if (!t->result[i])
        t->result[i] = rd_op_pick(t->h.tape, 1, &x, (const int64_t *[]){rows_in_order(t, N)}, N);
    return t->result[i];
}

static void rnn_apply(trial *t)
{
    const int64_t *s = t->c->size;
    const rd_packing p = packing(t, s[SEQUENCES], s[LONGEST]);
    const rd_layer l = layer_of(t, s[IN]);
    rd_var *w[MOST_INPUTS];
    for (int k = 2; k < t->n_in; k++) w[k - 2] = direct(t, k);
    rd_var *x = packed_input(t, 0, p.off[p.n_steps]),
           *a = s[EXTRA] ? packed_input(t, 1, p.off[p.n_steps]) : NULL;
    give(t, rd_op_rnn_layer(t->h.tape, &l, &p, x, a, w, t->n_in - 2));
}

/* size: sequences, longest, units, width of the joined context (0: none), layers, first layer with
 * a residual sum, layers that are one op on a GPU (from the lowest), 1: all sequences have one
 * length. */
enum { S_UNITS = 2, S_EXTRA, S_LAYERS, S_RESIDUAL, S_TOGETHER, S_ALIKE };

/* Returns whether cuDNN computes a case: not a stack, unless RD_TEST_CUDNN_RNN is on. */
static rd_rnn_asked rnn_of(const op_case *c)
{
    const rd_rnn_asked asked = rnn_asked();
    return strcmp(c->op, "rnn_stack") == 0 && asked != RD_RNN_ON ? RD_RNN_OFF : asked;
}

static rd_layer stack_layer(const trial *t, int k)
{
    const int64_t *s = t->c->size;
    /* A layer above those that are together differs in its width. */
    const int64_t H = s[S_UNITS] + (k >= s[S_TOGETHER] ? 3 : 0);
    return (rd_layer){.cell = rd_cell_find(t->c->cell),
                      .shape = {k > 0 && k == s[S_TOGETHER] ? s[S_UNITS] : H, H, H, s[S_EXTRA]},
                      .drop_in = {5, 2, 3 + 2 * (uint32_t)k, (float)t->c->number[0]},
                      .drop_out = {5, 2, 4 + 2 * (uint32_t)k, (float)t->c->number[1]},
                      .residual = k >= s[S_RESIDUAL]};
}

static int64_t stack_rows(const int64_t *s)
{
    return s[S_ALIKE] ? s[SEQUENCES] * s[LONGEST] : packed_rows(s[SEQUENCES], s[LONGEST]);
}

static void stack_declare(trial *t)
{
    const int64_t *s = t->c->size, N = stack_rows(s);
    rd_status st = {0};
    matrix(t, N ? N : 1, s[S_UNITS]);
    matrix(t, N ? N : 1, s[S_EXTRA] ? s[S_EXTRA] : 1);
    for (int k = 0; k < s[S_LAYERS]; k++) {
        const rd_layer l = stack_layer(t, k);
        l.cell->declare(&l.shape, emit, t, &st);
        must(&st);
    }
}

static void stack_apply(trial *t)
{
    const int64_t *s = t->c->size;
    rd_packing p = packing(t, s[SEQUENCES], s[LONGEST]);
    for (int64_t k = 0; k <= p.n_steps && s[S_ALIKE]; k++) offsets[k] = k * s[SEQUENCES];
    rd_var *w[MOST_INPUTS];
    rd_layer l[RD_MAX_LAYERS];
    const int64_t N = p.off[p.n_steps];
    for (int k = 0; k < s[S_LAYERS]; k++) l[k] = stack_layer(t, k);
    for (int k = 2; k < t->n_in; k++) w[k - 2] = direct(t, k);
    rd_var *x = packed_input(t, 0, N), *a = s[S_EXTRA] ? packed_input(t, 1, N) : NULL,
           *y = rd_op_rnn_stack(t->h.tape, (int)s[S_LAYERS], l, &p, x, a, w,
                                (t->n_in - 2) / (int)s[S_LAYERS]);
    /* Whether the layers were one op. */
    const bool whole = t->gpu && s[S_TOGETHER] == s[S_LAYERS] && N > 0 &&
                       rnn_of(t->c) == RD_RNN_OFF && strcmp(t->c->cell, "lstm") == 0;
    if (y) assert_string_equal(y->maker->name, whole ? "rnn_stack" : "rnn_layer");
    give(t, y);
}

/* size as above, then: kind, E, M, width of W_in (0: none), layers. */
enum { KIND = 8, E, M, W_IN, LAYERS };
typedef struct decoder_inputs {
    int query, v, g, b, W, bias, cells, per_cell;
} decoder_inputs;

static decoder_inputs decoder_declared(trial *t, bool declare)
{
    const int64_t *s = t->c->size, N = packed_rows(s[SEQUENCES], s[LONGEST]),
                  R = s[PROJECTION] ? s[PROJECTION] : s[UNITS];
    const bool additive = s[KIND] == RD_ATT_BAHDANAU || s[KIND] == RD_ATT_BAHDANAU_NORM,
               gained = s[KIND] == RD_ATT_BAHDANAU_NORM || s[KIND] == RD_ATT_LUONG_SCALED;
    /* luong multiplies keys with the query itself */
    const int64_t A = additive ? R + 3 : R;
    decoder_inputs d = {-1, -1, -1, -1, -1, -1, 0, 0};
    rd_status st = {0};
    int64_t S = 0;
    int n = 3;
    for (int64_t i = 0; i < s[SEQUENCES]; i++) S += 1 + i * 3 % 7;
    if (declare) {
        matrix(t, N ? N : 1, s[E]);
        matrix(t, S ? S : 1, s[M]);
        matrix(t, S ? S : 1, A);
    }
#define TAKES(field, when, rows, cols)              \
    do {                                            \
        if (when) {                                 \
            if (declare) matrix(t, (rows), (cols)); \
            d.field = n++;                          \
        }                                           \
    } while (0)
    TAKES(query, additive, R, A);
    TAKES(v, additive, 0, A);
    TAKES(g, gained, 0, 0);
    TAKES(b, s[KIND] == RD_ATT_BAHDANAU_NORM, 0, A);
    TAKES(W, s[W_IN] > 0, s[E] + s[M], s[W_IN]);
    TAKES(bias, s[W_IN] > 0, 0, s[W_IN]);
#undef TAKES
    d.cells = n;
    for (int k = 0; k < s[LAYERS] && declare; k++) {
        const rd_layer l = layer_of(t, k ? R : s[W_IN] ? s[W_IN] : s[E] + s[M]);
        l.cell->declare(&l.shape, emit, t, &st);
        must(&st);
    }
    d.per_cell = (t->n_in - d.cells) / (int)s[LAYERS];
    return d;
}

static void decoder_declare(trial *t)
{
    decoder_declared(t, true);
}

static void decoder_apply(trial *t)
{
    const int64_t *s = t->c->size, R = s[PROJECTION] ? s[PROJECTION] : s[UNITS],
                  n_seq = s[SEQUENCES];
    const decoder_inputs in = decoder_declared(t, false);
    rd_attn_decoder d = {.kind = (rd_attention_kind)s[KIND],
                         .packing = packing(t, n_seq, s[LONGEST]),
                         .n_layers = (int)s[LAYERS]};
    int64_t *first = step_memory(t, n_seq, sizeof *first),
            *len = step_memory(t, n_seq, sizeof *len), S = 0;
    rd_var *w[MOST_INPUTS], *ctx = NULL;
    for (int64_t i = 0; i < n_seq; i++) {
        first[i] = S;
        S += len[i] = 1 + i * 3 % 7;
    }
    d.src_first = first;
    d.src_len = len;
    for (int k = 0; k < d.n_layers; k++) {
        d.layer[k] = layer_of(t, k ? R : s[W_IN] ? s[W_IN] : s[E] + s[M]);
        d.layer[k].drop_in.site += 10 * (uint32_t)k;
        d.layer[k].drop_out.site += 10 * (uint32_t)k;
        d.n_w[k] = in.per_cell;
    }
    for (int k = in.cells; k < t->n_in; k++) w[k - in.cells] = direct(t, k);
#define GIVEN(i) ((i) < 0 ? NULL : direct(t, (i)))
    rd_var *q = rd_op_attention_decoder(t->h.tape, &d,
                                        packed_input(t, 0, d.packing.off[d.packing.n_steps]),
                                        packed_input(t, 1, S), packed_input(t, 2, S),
                                        GIVEN(in.query), GIVEN(in.v), GIVEN(in.g), GIVEN(in.b),
                                        GIVEN(in.W), GIVEN(in.bias), w, &ctx);
#undef GIVEN
    give(t, q);
    give(t, ctx);
}

/* ---- images: size n, h, w, c, then the op's own ---- */
static size4 image_size(const trial *t)
{
    return (size4){t->c->size[0], t->c->size[1], t->c->size[2], t->c->size[3]};
}

/* size: kh, kw, co, stride, padding (top, left, bottom, right as decimal digits), then flags: 1
 * bias, 2 relu, 4 a max pool behind. */
static void conv_declare(trial *t)
{
    const int64_t *s = t->c->size;
    image(t, image_size(t));
    t->in[t->n_in++] = h_input4(&t->h, s[4], s[5], s[3], s[6]);
    if (s[9] & 1) matrix(t, 0, s[6]);
}
static rd_var *convolved(trial *t, rd_conv c, rd_var *bias)
{
    const rd_conv bare = {c.stride, c.pad_top, c.pad_left, c.pad_bottom, c.pad_right, false};
    if (!is_narrow(t) || t->gpu)
        return rd_op_conv2d(t->h.tape, &c, input(t, 0), direct(t, 1), bias);
    return stored_with(t, rd_op_conv2d(t->h.tape, &bare, input(t, 0), direct(t, 1), NULL), bias,
                       c.relu);
}
static void conv_apply(trial *t)
{
    const int64_t *s = t->c->size;
    rd_var *y = convolved(t,
                          (rd_conv){s[7], s[8] / 1000, s[8] / 100 % 10, s[8] / 10 % 10, s[8] % 10,
                                    (s[9] & 2) != 0},
                          s[9] & 1 ? direct(t, 2) : NULL);
    if (s[9] & 4)
        y = rd_op_pool2d(t->h.tape, &(rd_pool){.kind = RD_POOL_MAX, .size = 2, .stride = 2}, y);
    give(t, y);
}

/* size: group, then flags: 1 relu, 2 add. */
static void norm_declare(trial *t)
{
    rd_status st = {0};
    const size4 s = image_size(t);
    image(t, s);
    matrix(t, 0, s.c);
    matrix(t, 0, s.c);
    if (t->c->size[5] & 2) image(t, s);
    rd_params_add_state(t->h.ps, "mean", s.c, 0.25, 0.9, &t->state[0], &st);
    rd_params_add_state(t->h.ps, "variance", s.c, 0.5, 0.9, &t->state[1], &st);
    must(&st);
}
static void norm_apply(trial *t)
{
    const int64_t *s = t->c->size;
    const rd_batch_norm bn = {1e-3f, s[4], (s[5] & 1) != 0, t->state[0], t->state[1]};
    give(t, rd_op_batch_norm(t->h.tape, &bn, input(t, 0), direct(t, 1), direct(t, 2),
                             s[5] & 2 ? input(t, 3) : NULL));
}

static void one_image(trial *t)
{
    image(t, image_size(t));
}
static void two_images(trial *t)
{
    image(t, image_size(t));
    image(t, image_size(t));
}

/* size: kind, size, stride, padding. */
static void pool_apply(trial *t)
{
    const int64_t *s = t->c->size;
    const rd_pool p = {(rd_pool_kind)s[4], s[5],           s[6],     s[7] / 1000,
                       s[7] / 100 % 10,    s[7] / 10 % 10, s[7] % 10};
    give(t, rd_op_pool2d(t->h.tape, &p, input(t, 0)));
}

static void mean_apply(trial *t)
{
    give(t, rd_op_global_mean(t->h.tape, input(t, 0)));
}
/* size: image, radius. */
static void lrn_apply(trial *t)
{
    const rd_lrn a = {.radius = t->c->size[4], .bias = 1.5f, .alpha = 0.25f, .beta = 0.75f};
    give(t, rd_op_lrn(t->h.tape, &a, input(t, 0)));
}
static void flatten_apply(trial *t)
{
    give(t, rd_op_flatten(t->h.tape, input(t, 0)));
}
static void relu_apply(trial *t)
{
    give(t, rd_op_relu(t->h.tape, input(t, 0)));
}
static void add_apply(trial *t)
{
    give(t, rd_op_add(t->h.tape, input(t, 0), input(t, t->c->size[5] ? 0 : 1), t->c->size[4]));
}
static void shortcut_apply(trial *t)
{
    give(t, rd_op_shortcut(t->h.tape, input(t, 0), t->c->size[4], t->c->size[5]));
}

static void dropout_declare(trial *t)
{
    if (t->c->size[2])
        one_image(t);
    else
        matrix(t, t->c->size[0], t->c->size[1]);
}
static void dropout_apply(trial *t)
{
    int64_t *sample = step_memory(t, t->c->size[0], sizeof *sample);
    for (int64_t i = 0; i < t->c->size[0]; i++) sample[i] = i % 3 ? (int64_t)1 << (20 + i) : 7;
    give(t, rd_op_dropout(t->h.tape, &(rd_dropout){3, 2, 9, (float)t->c->number[0]}, sample,
                          input(t, 0)));
}

/* Applies relu behind a dropout behind a convolution, so relu meets numbers that may be masked
 * already. */
static void chain_apply(trial *t)
{
    const rd_conv c = {.stride = 1, .relu = true};
    int64_t *sample = step_memory(t, t->c->size[0], sizeof *sample);
    rd_var *y = convolved(t, c, direct(t, 2));
    give(t, rd_op_relu(t->h.tape, stored(t, rd_op_dropout(t->h.tape, &(rd_dropout){3, 2, 9, 0.5f},
                                                          sample, y))));
    give(t, rd_op_add(t->h.tape, y, y, true));
}

/* The batch of images as data: no gradient reaches it. */
static void image_apply(trial *t)
{
    const size4 s = image_size(t);
    float *x = step_memory(t, count4(s), sizeof *x);
    for (int64_t i = 0; i < count4(s); i++) x[i] = (float)pseudo(i, 256, 11) / 256.0f;
    rd_var *y = narrowed(t, rd_op_image(t->h.tape, x, s.n, s.h, s.w, s.c));
    give(t, rd_op_add(t->h.tape, y, input(t, 0), false));
}

static void cast_apply(trial *t)
{
    give(t, rd_op_cast(t->h.tape, input(t, 0), RD_FLOAT32));
}

#define CAST .op = "cast", .declare = one_image, .apply = cast_apply, .narrow = true
#define EMBED .op = "embed", .declare = embed_declare, .apply = embed_apply
#define LINEAR \
    .op = "linear", .declare = linear_declare, .apply = linear_apply, .narrow = true, .wide = true
#define PICK .op = "pick", .declare = pick_declare, .apply = pick_apply
#define XENT .op = "softmax_xent", .declare = xent_declare, .apply = xent_apply, .is_loss = true
#define ATTEND .op = "attend", .declare = attend_declare, .apply = attend_apply, .narrow = true
#define SSRU .op = "ssru", .declare = ssru_declare, .apply = ssru_apply, .narrow = true
#define LAYER_NORM \
    .op = "layer_norm", .declare = layer_norm_declare, .apply = layer_norm_apply, .narrow = true
#define MULTIPLY \
    .op = "multiply", .declare = multiply_declare, .apply = multiply_apply, .narrow = true
#define ACTIVATE \
    .op = "activate", .declare = activate_declare, .apply = activate_apply, .narrow = true
#define RESIDUAL_SUM \
    .op = "residual", .declare = residual_declare, .apply = residual_apply, .narrow = true
#define ROTARY .op = "rotary", .declare = rotary_declare, .apply = rotary_apply, .narrow = true
#define POSITIONS \
    .op = "positions", .declare = positions_declare, .apply = positions_apply, .narrow = true
#define CLASS .op = "class_loss", .declare = class_declare, .apply = class_apply
#define RNN .op = "rnn_layer", .declare = rnn_declare, .apply = rnn_apply
#define STACK .op = "rnn_stack", .declare = stack_declare, .apply = stack_apply
#define DECODER .op = "attention_decoder", .declare = decoder_declare, .apply = decoder_apply
#define CONV .op = "conv2d", .declare = conv_declare, .apply = conv_apply, .narrow = true
#define NORM .op = "batch_norm", .declare = norm_declare, .apply = norm_apply, .narrow = true
#define POOL .op = "pool2d", .declare = one_image, .apply = pool_apply, .narrow = true
#define MEAN .op = "global_mean", .declare = one_image, .apply = mean_apply, .narrow = true
#define LRN .op = "lrn", .declare = one_image, .apply = lrn_apply, .narrow = true
#define FLATTEN .op = "flatten", .declare = one_image, .apply = flatten_apply, .narrow = true
#define RELU .op = "relu", .declare = one_image, .apply = relu_apply, .narrow = true
#define ADD .op = "add", .declare = two_images, .apply = add_apply, .narrow = true
#define SHORTCUT .op = "shortcut", .declare = one_image, .apply = shortcut_apply, .narrow = true
#define DROPOUT                                                                         \
    .op = "dropout", .declare = dropout_declare, .apply = dropout_apply, .zeros = true, \
    .narrow = true
#define CHAIN \
    .op = "dropout", .declare = conv_declare, .apply = chain_apply, .zeros = true, .narrow = true
#define IMAGE .op = "image", .declare = one_image, .apply = image_apply, .narrow = true

#endif
