/* attention.h -- attention scores over a ragged memory, one decoder step at a time. OpenSeq2Seq 4.5:
 *   bahdanau         score_j = v . tanh(K_j + q W_q)
 *   bahdanau, norm   score_j = g v/|v| . tanh(K_j + q W_q + b)
 *   luong (scaled)   score_j = (g) q . K_j
 * a = softmax(score),  ctx = sum_j a_j memory_j. */
#ifndef RD_ATTENTION_H
#define RD_ATTENTION_H

#include "cell.h"

RD_C_BEGIN

typedef struct rd_attention {
    rd_attention_kind kind;
    int64_t A, R, M; /* widths of keys, query, memory */
    rd_var *query_kernel, *v, *g, *b;
    const float *memory, *keys; /* [S, M], [S, A] */
    const int64_t *first, *len; /* per row: its memory, len >= 1 */
    int64_t max_len;            /* of len[]; read where a step is given no `where` */
    rd_backend *be;
    const rd_params *ps;
    rd_arena *scratch;
    float *ve;  /* [A] effective v */
    float gain; /* luong: g or 1 */
} rd_attention;

/* Computes ve; its memory is of `a`. */
rd_code rd_attention_begin(rd_attention *at, rd_arena *a, rd_status *st);

/* One step of n rows. q [n, R]. qp [n, A]: q W_q + b, kept for backward (NULL for luong). Row i's len[i] weights go to
 * al + where[i] (where NULL: i max_len). ctx [n, M]. */
rd_code rd_attention_step(const rd_attention *at, int64_t n, const float *q, float *qp, const int64_t *where, float *al,
                          float *ctx, rd_status *st);

typedef struct rd_attention_grads {
    float *dkeys;   /* [S, A] += (bahdanau) */
    float *ds;      /* gradients of the scores, stored like al: for what is one product over time afterwards */
    float *dv_rows; /* [n0, A] += gradient of ve, per row, so that rows are independent */
    float *dg_rows; /* [n0] += luong scaled */
    float *dqp;     /* [n, A] out (bahdanau) */
} rd_attention_grads;

/* Back through one step: dctx [n, M] in; dq [n, R] +=. What memory gets (and, for luong, the keys) is left to
 * rd_attention_finish. */
rd_code rd_attention_step_back(const rd_attention *at, int64_t n, const float *q, const float *qp, const int64_t *where,
                               const float *al, const float *dctx, const rd_attention_grads *d, float *dq,
                               rd_status *st);

/* After the loop: per sequence i, over its steps s in slots slot0[i] .. slot0[i + 1] - 1 (rows of dctx_all [.., M],
 * q_all [.., R]; in al and ds they lie one behind the other from where0[i] on, len[i] each): dmemory_j += sum_s a_sj
 * dctx_s;   luong: dK_j += g sum_s ds_sj q_s and the gradients of v, g. */
rd_code rd_attention_finish(const rd_attention *at, int64_t n_seq, const int64_t *slot0, const int64_t *where0,
                            const float *al, const float *dctx_all, const float *q_all, const rd_attention_grads *d,
                            float *dmemory, rd_status *st);

RD_C_END
#endif
