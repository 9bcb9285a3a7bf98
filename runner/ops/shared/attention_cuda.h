/* attention_cuda.h -- the kernels behind attention.c on a GPU (attention.cu). As there, without the products with W_q. */
#ifndef RD_ATTENTION_CUDA_H
#define RD_ATTENTION_CUDA_H

#include "attention.h"

RD_C_BEGIN

/* ve = g v / |v| */
rd_code rd_cuda_attention_norm(rd_gpu *g, const rd_attention *at, float *ve, rd_status *st);
/* From dve, the gradient of ve, to those of v and g (+=). */
rd_code rd_cuda_attention_norm_back(rd_gpu *g, const rd_attention *at, const float *dve,
                                    rd_status *st);

/* qp: q W_q; b is added here. */
rd_code rd_cuda_attention_step(rd_gpu *g, const rd_attention *at, int64_t n, int64_t t,
                               const float *q, float *qp, float *al, float *ctx, float *feed,
                               int64_t ld_feed, int64_t n_feed, rd_status *st);
rd_code rd_cuda_attention_step_back(rd_gpu *g, const rd_attention *at, const rd_attention_back *b,
                                    int64_t n, int64_t t, const float *q, const float *qp,
                                    const float *al, const float *dctx, const float *carry,
                                    int64_t ld_carry, int64_t n_carry, float *dqp, float *dq,
                                    rd_status *st);

/* The gradients of memory (dmemory NULL: not wanted) and luong's keys. */
rd_code rd_cuda_attention_memory_back(rd_gpu *g, const rd_attention *at, const rd_attention_back *b,
                                      int64_t n_seq, const float *al, float *dmemory,
                                      rd_status *st);
/* Rows of dv that rd_cuda_attention_keys_back writes, shares of the gradient of ve. */
int64_t rd_cuda_attention_shares(const rd_attention *at, int64_t n_seq);
/* bahdanau: dkeys (+=, or NULL) and dv [shares, A]. */
rd_code rd_cuda_attention_keys_back(rd_gpu *g, const rd_attention *at, const rd_attention_back *b,
                                    int64_t n_seq, float *dv, rd_status *st);

RD_C_END
#endif
