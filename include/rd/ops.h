/* ops.h -- the ops as functions that record on a tape. Each is one file in runner/ops; shapes as (rows, columns). After
 * a failure of the tape all return NULL (see rd_tape_check), and a NULL operand gives NULL. Shapes that do not fit and
 * indices out of range: RD_EBUG. Index lists and attributes are borrowed until the tape is reset: take them from
 * rd_tape_arena. Products take their left operand (x) from another op, not from rd_tape_param. Of the calling rank
 * alone.
 */
#ifndef RD_OPS_H
#define RD_OPS_H

#include "rd/tape.h"

RD_C_BEGIN

/* y[i] = W[ids[i]], i < n: W (V, k), y (n, k). */
rd_var *rd_op_embed(rd_tape *t, rd_var *W, const int32_t *ids, int64_t n);
/* y = x W (+ b): x (N, k), W (k, n), b (n) or NULL; W and b are parameters. y is float32, also where x has 16 bits. */
rd_var *rd_op_linear(rd_tape *t, rd_var *x, rd_var *W, rd_var *b);
/* Row i of y is x[0][idx[0][i]] followed by x[1][idx[1][i]] ...: picks and joins rows of 1 to 4
 * inputs. -1: zeros. */
rd_var *rd_op_pick(rd_tape *t, int n_in, rd_var *const *x, const int64_t *const *idx, int64_t n);

/* ---- packed sequences ---- */
/* Time-major, longest sequence first: step t has rows off[t] .. off[t + 1] - 1; row i of a step is sequence i of the
 * packed order. */
typedef struct rd_packing {
    int64_t n_steps;
    const int64_t *
        off; /* [n_steps + 1], off[0] = 0, of N = off[n_steps] rows; no step has more than the one before */
    const int64_t *sample; /* [off[1]] global sample ids: keys of dropout */
} rd_packing;

typedef struct rd_dropout {
    uint64_t seed, epoch;
    uint32_t site; /* number of the dropout in the model */
    float keep;    /* 1: none. Applies while the tape is training */
} rd_dropout;

typedef struct rd_cell_def rd_cell_def;
typedef struct rd_cell_shape {
    int64_t in;     /* width of the input */
    int64_t H;      /* units */
    int64_t R;      /* width of h: the projection's, where there is one, else H */
    int64_t extra;  /* width of what gnmt joins to h; 0: nothing */
    int64_t groups; /* glstm */
    bool projects;
} rd_cell_shape;

typedef struct
    rd_layer { /* OpenSeq2Seq 4.3: out = x + drop_out(cell(drop_in(x))), x only with residual */
    const rd_cell_def *cell;
    rd_cell_shape shape;
    rd_dropout drop_in, drop_out;
    bool residual;
} rd_layer;

/* One recurrent layer over a packed batch. x (N, in); att (N, extra) joined on the recurrent side, or NULL; w: the
 * cell's parameters in the order of its declaration. Returns (N, R). */
rd_var *rd_op_rnn_layer(rd_tape *t, const rd_layer *l, const rd_packing *p, rd_var *x, rd_var *att,
                        rd_var *const *w, int n_w);

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
    const int64_t *
        src_first; /* [off[1]] first memory row of each sequence of the packed order, and how many */
    const int64_t *src_len;
    int n_layers;
    rd_layer layer[RD_MAX_LAYERS];
    int n_w[RD_MAX_LAYERS]; /* parameters of each layer's cell */
} rd_attn_decoder;

/* The time loop of a decoder with input feeding (OpenSeq2Seq 4.6): in_t = [emb_t; ctx_{t-1}] (W_in + b_in), q_t =
 * stack(in_t), ctx_t = attend(q_t). emb (N, E); memory (S, M); keys (S, A); query_kernel (R, A), v (A), g (1), b (A),
 * W_in (E + M, units), b_in (units): NULL where the kind or the config has none; w: all layers' parameters, one after
 * the other. src_len[i] >= 1. Kept for backward: sum over sequences of steps times src_len weights. Returns q (N, R)
 * and, in *ctx, (N, M). */
rd_var *rd_op_attention_decoder(rd_tape *t, const rd_attn_decoder *d, rd_var *emb, rd_var *memory,
                                rd_var *keys, rd_var *query_kernel, rd_var *v, rd_var *g, rd_var *b,
                                rd_var *W_in, rd_var *b_in, rd_var *const *w, rd_var **ctx);

typedef struct rd_xent {
    const int32_t *target; /* [N] */
    float temperature;     /* logits are divided by it */
    double *loss_sum;      /* out: sum of -log softmax(x W / temperature)[target] */
    int32_t *argmax;       /* out, [N]: lowest id on ties; NULL: not wanted */
    float *nll;            /* out, [N] per row; NULL: not wanted */
} rd_xent;
/* Projection, softmax and cross-entropy in one; logits are never stored whole. Returns (1, 1), the sum. While recording
 * it adds the gradient of W to the parameter arena in the forward pass already, times the tape's seed: backward is then
 * to start at this very result (RD_EBUG else). x (N, k), W (k, V) a parameter. Logits that are not finite give a sum
 * that is not, and some argmax within [0, V). */
rd_var *rd_op_softmax_xent(rd_tape *t, const rd_xent *a, rd_var *x, rd_var *W);

RD_C_END
#endif
