/* attention.h -- attention scores over a ragged memory, one decoder step at a time. OpenSeq2Seq 4.5:
 *   bahdanau         score_j = v . tanh(K_j + q W_q)
 *   bahdanau, norm   score_j = g v/|v| . tanh(K_j + q W_q + b)
 *   luong (scaled)   score_j = (g) q . K_j
 * a = softmax(score),  ctx = sum_j a_j memory_j.
 *
 * All arrays are stored where the backend computes, those of indices too. Row i of a step is sequence i. */
#ifndef RD_ATTENTION_H
#define RD_ATTENTION_H

#include "rd/cell.h"

RD_C_BEGIN

typedef struct rd_attention {
    rd_attention_kind kind;
    int64_t A, R, M; /* widths of keys, query, memory */
    rd_var *query_kernel, *v, *g, *b;
    const float *memory, *keys; /* [S, M], [S, A] */
    int64_t S;
    const int64_t *first, *len; /* per row: its memory, len >= 1 */
    const int64_t *
        place; /* per row: its weights begin there, those of step t after t len[i] others; NULL: at i max_len */
    int64_t max_len; /* of len[] */
    rd_backend *be;
    const rd_params *ps;
    rd_arena *scratch;
    const float *ve; /* [A] effective v; NULL: luong */
    float gain;      /* luong: g or 1; kernels read g itself */
} rd_attention;

/* Computes ve; its memory is of `a`. */
rd_code rd_attention_begin(rd_attention *at, rd_arena *a, rd_status *st);

/* Step t of n rows. q [n, R]. qp [n, A]: q W_q + b, kept for backward (NULL for luong). al: all weights, row i's at its place.
 * ctx [n, M]; its first n_feed rows also go to feed, ld_feed elements apart: the input of the next step. */
rd_code rd_attention_step(const rd_attention *at, int64_t n, int64_t t, const float *q, float *qp,
                          float *al, float *ctx, float *feed, int64_t ld_feed, int64_t n_feed,
                          rd_status *st);

typedef struct rd_attention_back { /* what the backward loop gathers */
    const int64_t *slot0;          /* [n_seq + 1]: step t of sequence i has slot slot0[i] + t */
    float *dkeys;                  /* [S, A] +=; NULL: not wanted */
    float *ds;                     /* gradients of the scores, stored like al */
    float *dctx;                   /* [slots, M] gradients of the contexts */
    float *q; /* [slots, R] queries (luong); [slots, A] qp (bahdanau on a GPU), else NULL */
    float *
        dv_rows; /* [n_seq, A] gradient of ve, per sequence, so that rows are independent (bahdanau on a CPU) */
    float *dg_rows; /* [n_seq] the same of g (luong) */
} rd_attention_back;

/* Memory for it, of at->scratch, and zeros. n_weights: length of al. */
rd_code rd_attention_back_begin(const rd_attention *at, int64_t n_seq, int64_t n_slots,
                                int64_t n_weights, const int64_t *slot0, float *dkeys,
                                rd_attention_back *b, rd_status *st);

/* Back through step t. dctx [n, M] and, for the first n_carry rows, carry (ld_carry elements apart; of what fed the next step):
 * their sum is the gradient of ctx. dqp [n, A] out (bahdanau), dq [n, R] +=. What memory gets, and what else is a sum over time,
 * is left to rd_attention_finish. */
rd_code rd_attention_step_back(const rd_attention *at, const rd_attention_back *b, int64_t n,
                               int64_t t, const float *q, const float *qp, const float *al,
                               const float *dctx, const float *carry, int64_t ld_carry,
                               int64_t n_carry, float *dqp, float *dq, rd_status *st);

/* After the loop: dmemory_j += sum_t a_tj dctx_t (NULL: not wanted);   luong: dkeys_j += g sum_t ds_tj q_t;   the gradients of
 * v, g;   on a GPU also bahdanau's dkeys. */
rd_code rd_attention_finish(const rd_attention *at, const rd_attention_back *b, int64_t n_seq,
                            const float *al, float *dmemory, rd_status *st);

RD_C_END
#endif
