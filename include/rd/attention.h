/* attention.h -- attention scores over a ragged memory, one decoder step at a time.
 *
 * OpenSeq2Seq 4.5:
 *   bahdanau         score_j = v . tanh(K_j + q W_q)
 *   bahdanau, norm   score_j = g v/|v| . tanh(K_j + q W_q + b)
 *   luong (scaled)   score_j = (g) q . K_j
 *   a = softmax(score),  ctx = sum_j a_j memory_j
 *
 * All arrays, index arrays included, are stored where the backend computes. Row i of a step belongs
 * to sequence i. */
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
    /* First memory row of each sequence, and the number of its memory rows (at least 1). */
    const int64_t *first, *len;
    /* Index of the first weight of each sequence i; the weights of step t begin t len[i] further.
     * NULL: the weights of sequence i begin at i max_len. */
    const int64_t *place;
    int64_t max_len; /* largest len[i] */
    rd_backend *be;
    const rd_params *ps;
    rd_arena *scratch;
    const float *ve; /* [A] effective v; NULL for luong */
    float gain;      /* g of luong scaled on a CPU; otherwise 1. The kernels of a GPU read g. */
} rd_attention;

/* Computes at->ve and at->gain. `a` owns the memory of ve. */
rd_code rd_attention_begin(rd_attention *at, rd_arena *a, rd_status *st);

/* Computes step t of n rows.
 *   q    [n, R] queries
 *   qp   [n, A] out: q W_q + b, kept for backward; NULL for luong
 *   al   out: the weights of all steps, those of row i at its place (rd_attention.place)
 *   ctx  [n, M] out: contexts
 *   feed out: the first n_feed rows of ctx, ld_feed elements apart; the input of the next step */
rd_code rd_attention_step(const rd_attention *at, int64_t n, int64_t t, const float *q, float *qp,
                          float *al, float *ctx, float *feed, int64_t ld_feed, int64_t n_feed,
                          rd_status *st);

/* What the backward loop collects. Slot slot0[i] + t is step t of sequence i. */
typedef struct rd_attention_back {
    const int64_t *slot0; /* [n_seq + 1] first slot of each sequence */
    float *dkeys;         /* [S, A] gradients of the keys are added to this; NULL: not wanted */
    float *ds;            /* gradients of the scores, stored like al */
    float *dctx;          /* [slots, M] gradients of the contexts */
    /* luong: [slots, R] queries. bahdanau on a GPU: [slots, A] qp. Otherwise NULL. */
    float *q;
    /* bahdanau on a CPU: [n_seq, A] gradients of ve, one row per sequence, so that rows are
     * independent. */
    float *dv_rows;
    float *dg_rows; /* luong: [n_seq] gradients of g, one per sequence */
} rd_attention_back;

/* Allocates the arrays of *b from at->scratch, zeroed where the loop adds to them. n_weights:
 * length of al. slot0 and dkeys are borrowed. */
rd_code rd_attention_back_begin(const rd_attention *at, int64_t n_seq, int64_t n_slots,
                                int64_t n_weights, const int64_t *slot0, float *dkeys,
                                rd_attention_back *b, rd_status *st);

/* Goes back through step t. The gradient of ctx is dctx [n, M] plus, for the first n_carry rows,
 * carry (rows ld_carry elements apart): the gradient of the part that the next step received.
 *   dqp  [n, A] out: gradient of qp (bahdanau)
 *   dq   [n, R] the gradient of q is added to this
 * rd_attention_finish computes the gradient of the memory and all other sums over time. */
rd_code rd_attention_step_back(const rd_attention *at, const rd_attention_back *b, int64_t n,
                               int64_t t, const float *q, const float *qp, const float *al,
                               const float *dctx, const float *carry, int64_t ld_carry,
                               int64_t n_carry, float *dqp, float *dq, rd_status *st);

/* Computes after the loop all that is a sum over time:
 *   dmemory_j += sum_t a_tj dctx_t      (dmemory NULL: not wanted)
 *   dkeys_j   += g sum_t ds_tj q_t      luong
 *   the gradients of v and g; on a GPU also dkeys of bahdanau */
rd_code rd_attention_finish(const rd_attention *at, const rd_attention_back *b, int64_t n_seq,
                            const float *al, float *dmemory, rd_status *st);

RD_C_END
#endif
