/* attention_kernels.h -- the table behind rd/attention.h, one for each kind of backend. That of a
 * CPU is in attention.c, that of a GPU in attention.cu. */
#ifndef RD_ATTENTION_KERNELS_H
#define RD_ATTENTION_KERNELS_H

#include "rd/attention.h"

RD_C_BEGIN

typedef struct rd_attention_kernels {
    /* Returns rd_attention.gain for luong scaled: g, or 1 if the kernels read g themselves. */
    float (*gain)(const rd_attention *at);
    /* Computes ve = g v / |v|. */
    rd_code (*norm)(const rd_attention *at, float *ve, rd_status *st);
    /* Adds to the gradients of v and g, from dve, the gradient of ve. */
    rd_code (*norm_back)(const rd_attention *at, const float *dve, rd_status *st);
    /* As rd_attention_step and rd_attention_step_back, without the products with W_q. qp comes in
     * as q W_q; step adds b. */
    rd_code (*step)(const rd_attention *at, int64_t n, int64_t t, const float *q, float *qp,
                    float *al, float *ctx, float *feed, int64_t ld_feed, int64_t n_feed,
                    rd_status *st);
    rd_code (*step_back)(const rd_attention *at, const rd_attention_back *b, int64_t n, int64_t t,
                         const float *q, const float *qp, const float *al, const float *dctx,
                         const float *carry, int64_t ld_carry, int64_t n_carry, float *dqp,
                         float *dq, rd_status *st);
    /* Allocates the arrays of b that backward of bahdanau needs. */
    rd_code (*gather)(const rd_attention *at, int64_t n_seq, int64_t n_slots, rd_attention_back *b,
                      rd_status *st);
    /* Computes the gradients that step_back leaves: of the memory (dmemory NULL: not wanted) and of
     * the keys. bahdanau: *dv [*n_dv, A] are shares of the gradient of ve. */
    rd_code (*sums)(const rd_attention *at, const rd_attention_back *b, int64_t n_seq,
                    const float *al, float *dmemory, const float **dv, int64_t *n_dv,
                    rd_status *st);
} rd_attention_kernels;
extern const rd_attention_kernels rd_cuda_attention;

/* ---- on a GPU, in the loop of attention_decoder.cu ---- */
/* The rows that a step and the next one share, in the layout of the next step's input. */
typedef struct rd_attention_feed {
    void *rows; /* forward: contexts of `type`; back: their gradients, float32 */
    rd_element type;
    int64_t ld, n;       /* distance and number of the rows */
    const uint8_t *mask; /* dropout of that input, rows ld_mask apart; NULL: none */
    int64_t ld_mask;
    float keep;
} rd_attention_feed;
/* As step and step_back. feed.n rows of ctx are written to, or read from, the next step's input.
 * dqp: rows of any type; luong writes none. */
rd_code rd_cuda_attention_step(const rd_attention *at, int64_t n, int64_t t, const float *q,
                               float *qp, float *al, float *ctx, const rd_attention_feed *feed,
                               rd_status *st);
rd_code rd_cuda_attention_step_back(const rd_attention *at, const rd_attention_back *b, int64_t n,
                                    int64_t t, const float *q, const float *qp, const float *al,
                                    const float *dctx, const rd_attention_feed *carry,
                                    const rd_gpu_operand *dqp, float *dq, rd_status *st);

RD_C_END
#endif
