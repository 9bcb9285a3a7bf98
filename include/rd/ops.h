/* ops.h -- the ops, as functions that record on a tape. Each op is one file in runner/ops.
 *
 * Shapes are given as (rows, columns). After a failure of the tape each function returns NULL (see
 * rd_tape_check). A NULL operand gives NULL. Shapes that do not fit and indices out of range are
 * RD_EBUG. Index lists and attributes are borrowed until the tape is reset: allocate them from
 * rd_tape_arena. The left operand (x) of a product comes from another op, not from rd_tape_param.
 * No function is collective. */
#ifndef RD_OPS_H
#define RD_OPS_H

#include "rd/tape.h"

RD_C_BEGIN

/* Returns rows of a table: y[i] = W[ids[i]], i < n. W (V, k), y (n, k). */
rd_var *rd_op_embed(rd_tape *t, rd_var *W, const int32_t *ids, int64_t n);
/* Returns y = x W (+ b). x (N, k), W (k, n), b (n) or NULL. W and b are parameters. y is float32,
 * even if x has 16 bits. */
rd_var *rd_op_linear(rd_tape *t, rd_var *x, rd_var *W, rd_var *b);
/* Does the same, with a y of another type. A 16-bit y is rounded after the product and, with b,
 * again after the sum. */
rd_var *rd_op_linear_as(rd_tape *t, rd_element type, rd_var *x, rd_var *W, rd_var *b);
/* Picks and joins rows of 1 to 4 inputs: row i of y is x[0][idx[0][i]], then x[1][idx[1][i]], and
 * so on. An index of -1 gives zeros. */
rd_var *rd_op_pick(rd_tape *t, int n_in, rd_var *const *x, const int64_t *const *idx, int64_t n);

/* ---- packed sequences ---- */
/* The order of the rows of a batch: time-major, longest sequence first. Step t has the rows
 * off[t] .. off[t + 1] - 1. Row i of a step belongs to sequence i of the packed order. */
typedef struct rd_packing {
    int64_t n_steps;
    /* [n_steps + 1] first row of each step: off[0] = 0, off[n_steps] = N, the number of rows. No
     * step has more rows than the step before. */
    const int64_t *off;
    /* [off[1]] global sample id of each sequence; keys of the dropout masks. */
    const int64_t *sample;
} rd_packing;

/* A dropout. It applies only while the tape is training. */
typedef struct rd_dropout {
    uint64_t seed, epoch;
    uint32_t site; /* number of this dropout in the model */
    float keep;    /* probability that an element is kept; 1: no dropout */
} rd_dropout;

typedef struct rd_cell_def rd_cell_def;
typedef struct rd_cell_shape {
    int64_t in;     /* width of the input */
    int64_t H;      /* number of units */
    int64_t R;      /* width of h: that of the projection if there is one, else H */
    int64_t extra;  /* width of the context that gnmt attention joins to h; 0: none */
    int64_t groups; /* number of groups of glstm */
    bool projects;  /* the cell has a projection */
} rd_cell_shape;

/* A recurrent layer with its wrappers (OpenSeq2Seq 4.3):
 *   out = drop_out(cell(drop_in(x)))          without residual
 *   out = x + drop_out(cell(drop_in(x)))      with residual */
typedef struct rd_layer {
    const rd_cell_def *cell;
    rd_cell_shape shape;
    rd_dropout drop_in, drop_out;
    bool residual;
} rd_layer;

/* Returns the output (N, R) of one recurrent layer over a packed batch. x (N, in). att (N, extra)
 * is joined on the recurrent side; NULL is allowed. w: the n_w parameters of the cell, in the order
 * of its declaration. */
rd_var *rd_op_rnn_layer(rd_tape *t, const rd_layer *l, const rd_packing *p, rd_var *x, rd_var *att,
                        rd_var *const *w, int n_w);
/* Returns the output (N, R) of n layers, one above the other: layer k reads the output of layer k -
 * 1, and layer 0 reads x. att is joined to each. w: the n_w parameters of each layer, layer by
 * layer. A GPU computes neighbouring layers of one shape together, if they are lstm layers without
 * a projection, x has the width of h, and cuDNN does not compute them. */
rd_var *rd_op_rnn_stack(rd_tape *t, int n, const rd_layer *l, const rd_packing *p, rd_var *x,
                        rd_var *att, rd_var *const *w, int n_w);

typedef enum rd_attention_kind {
    RD_ATT_BAHDANAU,
    RD_ATT_BAHDANAU_NORM,
    RD_ATT_LUONG,
    RD_ATT_LUONG_SCALED
} rd_attention_kind;

enum { RD_MAX_LAYERS = 32 };
typedef struct rd_attn_decoder {
    rd_attention_kind kind;
    rd_packing packing; /* of the target */
    /* [off[1]] first memory row of each sequence, in the packed order of the target. */
    const int64_t *src_first;
    /* [off[1]] number of memory rows of each sequence, at least 1. */
    const int64_t *src_len;
    int n_layers;
    rd_layer layer[RD_MAX_LAYERS];
    int n_w[RD_MAX_LAYERS]; /* number of parameters of each layer's cell */
} rd_attn_decoder;

/* Returns q (N, R), and in *ctx the contexts (N, M), of a decoder's time loop with input feeding
 * (OpenSeq2Seq 4.6):
 *   in_t = [emb_t; ctx_{t-1}] (W_in + b_in),   q_t = stack(in_t),   ctx_t = attend(q_t)
 * emb (N, E), memory (S, M), keys (S, A), query_kernel (R, A), v (A), g (1), b (A), W_in (E + M,
 * units), b_in (units). query_kernel, v, g, b, W_in and b_in are NULL if the kind or the config has
 * none. w: the parameters of all layers, layer by layer. For backward the op keeps one weight for
 * each pair (target step, memory row) of each sequence. */
rd_var *rd_op_attention_decoder(rd_tape *t, const rd_attn_decoder *d, rd_var *emb, rd_var *memory,
                                rd_var *keys, rd_var *query_kernel, rd_var *v, rd_var *g, rd_var *b,
                                rd_var *W_in, rd_var *b_in, rd_var *const *w, rd_var **ctx);

/* ---- Transformers: rows are stored sentence after sentence ---- */
/* Scaled dot-product attention with several heads (Vaswani et al. 2017):
 *   o_i = sum_j drop(p_ij) v_j,   p_i = softmax_j(scale q_i . k_j)
 * separately for each sequence and head. Columns [q_at + h head, q_at + (h + 1) head) of the
 * queries are head h. Key and value head g serves the query heads g n_heads / n_kv_heads and on
 * (grouped heads). */
typedef struct rd_attend {
    int64_t n_heads, n_kv_heads; /* n_heads is a multiple of n_kv_heads */
    int64_t head;                /* width of a head */
    int64_t q_at, k_at, v_at;    /* first column of queries, keys and values */
    float scale;
    /* Query i of a sequence sees its keys 0 .. i + k_len - q_len. false: all keys. */
    bool causal;
    int64_t n;                      /* number of sequences */
    const int64_t *q_first, *q_len; /* [n] query rows; they follow each other without a gap */
    const int64_t *k_first, *k_len; /* [n] key rows, at least 1; causal: at least q_len */
    const int64_t *sample;          /* [n] global sample ids; may be NULL without dropout */
    /* Key j of sequence s is row key_row[k_first[s] + j]; NULL: row k_first[s] + j. With it there
     * is no backward pass. */
    const int32_t *key_row;
    int64_t n_key_row; /* number of entries of key_row */
    /* Dropout of p. Head h has site + h. The mask of (sample, query i, key j) is element j of the
     * row (sample, i) of rd_philox_keep. */
    rd_dropout drop;
} rd_attend;
/* Returns (Nq, n_heads head). queries: (Nq, ...). keys: (Nk, ...), with keys and values; it may be
 * the same variable as queries. Both have one element type, and so has the result. No array of
 * n_heads x q_len x k_len numbers is kept for backward. */
rd_var *rd_op_attend(rd_tape *t, const rd_attend *a, rd_var *queries, rd_var *keys);

/* The sequences of a recurrence. */
typedef struct rd_ssru {
    int64_t n; /* number of sequences */
    /* [n] first row and number of rows of each; sequences follow each other without a gap */
    const int64_t *first, *len;
} rd_ssru;
/* Returns the states c (N, d) of a simpler simple recurrent unit (Kim et al. 2019), which is
 * max(c, 0) then:
 *   c_t = f_t c_{t-1} + (1 - f_t) u_t,   f_t = sigmoid(z_t)
 * u, z (N, d). before (n, d): the state before the first row of each sequence; NULL: zeros. The
 * three are different variables of one element type, which c has, too. */
rd_var *rd_op_ssru(rd_tape *t, const rd_ssru *a, rd_var *u, rd_var *z, rd_var *before);

typedef struct rd_layer_norm {
    float eps; /* above 0 */
    /* The mean is not subtracted: root mean square normalisation (Zhang and Sennrich 2019). */
    bool rms;
    rd_element type; /* of the result */
} rd_layer_norm;
/* Returns each row of x (N, d), normalised: (x - mean) / sqrt(variance + eps) * gain + bias. The
 * variance is that of all d numbers, divided by d. With rms: x / sqrt(mean(x^2) + eps) * gain +
 * bias. gain and bias: d numbers. bias may be NULL. */
rd_var *rd_op_layer_norm(rd_tape *t, const rd_layer_norm *a, rd_var *x, rd_var *gain, rd_var *bias);

typedef enum rd_activation {
    RD_ACT_RELU,
    RD_ACT_RELU2,     /* max(x, 0)^2 */
    RD_ACT_GELU_TANH, /* x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
    RD_ACT_GELU_ERF,  /* x Phi(x), with Phi the normal distribution */
    RD_ACT_SILU       /* x / (1 + exp(-x)) */
} rd_activation;
/* Returns f(x), element by element. The relative error is below 2e-6, also for large -x; results
 * below 2e-36 may be 0. NaN stays NaN. */
rd_var *rd_op_activate(rd_tape *t, rd_activation f, rd_var *x);

/* Returns a b, element by element, for a and b of one shape and type. They may be the same
 * variable. */
rd_var *rd_op_multiply(rd_tape *t, rd_var *a, rd_var *b);

enum { RD_ROTARY_WIDEST = 1024 };
typedef struct rd_rotary {
    /* Columns [0, n_heads head) of a row are queries, the next n_kv_heads head are keys. The rest
     * is copied. head is even, at most RD_ROTARY_WIDEST. */
    int64_t n_heads, n_kv_heads, head;
    const int64_t *position; /* [N] position of each row, at least 0 */
    const double *rate;      /* [head / 2] angle of position 1, in radians; NULL: no rotation */
    float eps;               /* of the norms; above 0 where there are gains */
} rd_rotary;
/* Returns x with rotary positions (Su et al. 2021): elements k and k + head / 2 of each head are
 * turned by position rate[k]. x (N, ...). With q_gain and k_gain (head), each head is first divided
 * by its root mean square and multiplied by the gain. Both or none are NULL. */
rd_var *rd_op_rotary(rd_tape *t, const rd_rotary *a, rd_var *x, rd_var *q_gain, rd_var *k_gain);

typedef struct rd_residual {
    /* Row i: the mask is that of the row (sample[i], position[i]) of rd_philox_keep. */
    rd_dropout drop;
    const int64_t *sample;   /* [N] global sample id of each row */
    const int64_t *position; /* [N] position of each row in its sentence */
    bool wide;               /* the result is float32, also that of 16-bit numbers */
} rd_residual;
/* Returns x + drop(z). x, z (N, d). x NULL: drop(z) alone. sample and position may be NULL if
 * drop.keep is 1 or the tape is not training. x is float32, or has the type of z. The result has
 * the type of x (x NULL: that of z), or is `wide`. */
rd_var *rd_op_residual(rd_tape *t, const rd_residual *a, rd_var *x, rd_var *z);

/* The layout of fixed positions of width d, with the pairs i < d / 2. */
typedef enum rd_sinusoid {
    RD_SINUSOID_PAIRS,  /* Vaswani et al. 2017: sin, cos, sin, cos of p 10000^(-2 i / d) */
    RD_SINUSOID_HALVES, /* Sockeye: the same angles, all sines and then all cosines */
    RD_SINUSOID_T2T,    /* tensor2tensor, fairseq, Marian: all sines and then all cosines; the angle
                         * is p 10000^(-i / (d / 2 - 1)); the last column of an odd d is 0 */
    RD_SINUSOID_NONE    /* zeros: the op only scales */
} rd_sinusoid;
typedef struct rd_positions {
    rd_sinusoid layout;
    float scale;             /* of x */
    const int64_t *position; /* [N] position of each row, at least 0 */
} rd_positions;
/* Returns scale x + P, where row i of P is the fixed encoding of position[i]. x (N, d). */
rd_var *rd_op_positions(rd_tape *t, const rd_positions *a, rd_var *x);
/* Writes rate[d] and cosine[d]: column k of position p is sin(p rate[k]), or cos where cosine[k]
 * is 1. */
void rd_sinusoid_columns(rd_sinusoid layout, int64_t d, double *rate, uint8_t *cosine);

typedef struct rd_xent {
    const int32_t *target; /* [N] index of the right class of each row */
    float temperature;     /* logits are divided by the temperature */
    double *loss_sum;      /* out: sum of the losses, or NULL */
    int32_t *argmax;       /* out: [N] class with the largest logit (ties: lowest index), or NULL */
    float *nll;            /* out: [N] -log softmax(l)[target], or NULL */
    double *nll_sum;       /* out: sum of these times the weights of the rows, or NULL */
    /* Label smoothing e, from 0 to below 1. The loss of a row is the cross-entropy against a target
     * distribution: 1 - e + e / V for the right class and e / V for each other class of V. */
    float smoothing;
    /* As fairseq: 1 - e for the right class and e / (V - 1) for each other class. */
    bool smooth_others;
    const float *weight; /* [N] weight of the loss of each row; NULL: 1 */
    /* Number of classes V. W and the bias may have more, which fill a block: they get no
     * probability and no gradient. 0: all. */
    int64_t n_classes;
    bool by_rows; /* W is (V, k), for example the table of an embedding */
    /* Logits l become softcap tanh(l / softcap) (Gemma 2), before the temperature. 0: they stay. */
    float softcap;
    /* Adds z_loss (log sum exp l)^2 to the loss of a row (PaLM), but not to nll. */
    float z_loss;
} rd_xent;
/* Returns (1, 1), the sum of the cross-entropies of softmax(x W / temperature). x (N, k), W (k, V)
 * a parameter. Projection, softmax and cross-entropy are one op, so the logits are never stored
 * whole.
 *
 * While recording, the forward pass already adds the gradient of W, times the tape's seed, to the
 * parameter arena. Backward must therefore start at this result; otherwise RD_EBUG. If a logit is
 * not finite, the sum is not finite either, and argmax is some index in [0, V). */
rd_var *rd_op_softmax_xent(rd_tape *t, const rd_xent *a, rd_var *x, rd_var *W);
/* The same of x W + b. b (V) is a parameter, or NULL. */
rd_var *rd_op_softmax_xent_bias(rd_tape *t, const rd_xent *a, rd_var *x, rd_var *W, rd_var *b);

RD_C_END
#endif
