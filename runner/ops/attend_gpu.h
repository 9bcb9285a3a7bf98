/* attend_gpu.h -- what the .cu files of attention share.
 *
 * attend.cu chooses between three ways of computing the same formulas (attend.c):
 *
 *   rows      attend.cu: a warp has a few rows, float32 products in registers
 *   products  attend_products.cu: products of a library, scores in memory
 *   blocks    attend_blocks.cu: 16-bit products of tensor cores, no scores in memory
 *
 * The masks of dropout are those of rd_philox_keep in each of them. */
#ifndef RD_ATTEND_GPU_H
#define RD_ATTEND_GPU_H

#include "attend.h"
#include "../engine/gpu/element_device.h"
#include "../engine/gpu/philox_device.h"

/* The widest head of the ways `rows` and `blocks`. */
enum { ATTEND_WIDEST = 128 };

/* Matrices as a variable has them: elements of any type. */
struct attend_matrix {
    void *at;
    int64_t cols;
    rd_element type;
};

static inline attend_matrix attend_values(const rd_var *x)
{
    return {x->values, x->cols, x->type};
}
static inline attend_matrix attend_grads(const rd_var *x)
{
    return {x->grads, x->cols, x->type};
}

static __device__ inline float attend_get(const attend_matrix &x, int64_t i)
{
    return x.type == RD_FLOAT32    ? static_cast<const float *>(x.at)[i]
           : x.type == RD_BFLOAT16 ? rd_get(static_cast<const rd_bf16 *>(x.at) + i)
                                   : rd_get(static_cast<const rd_f16 *>(x.at) + i);
}
static __device__ inline void attend_put(const attend_matrix &x, int64_t i, float v)
{
    if (x.type == RD_FLOAT32)
        static_cast<float *>(x.at)[i] = v;
    else if (x.type == RD_BFLOAT16)
        rd_put(static_cast<rd_bf16 *>(x.at) + i, v);
    else
        rd_put(static_cast<rd_f16 *>(x.at) + i, v);
}
/* The same for eight elements from i on, whose address is a multiple of 16 bytes. */
static __device__ inline rd_lanes<8> attend_get8(const attend_matrix &x, int64_t i)
{
    return x.type == RD_FLOAT32    ? rd_lanes_get<8>(static_cast<const float *>(x.at) + i)
           : x.type == RD_BFLOAT16 ? rd_lanes_get<8>(static_cast<const rd_bf16 *>(x.at) + i)
                                   : rd_lanes_get<8>(static_cast<const rd_f16 *>(x.at) + i);
}

/* Returns the mask bits of keys 8 block .. 8 block + 7 of a query row. */
static __device__ inline uint32_t attend_drop_byte(rd_key key, int64_t sample, int64_t i,
                                                   int64_t block, uint32_t limit)
{
    uint32_t word[4], byte = 0;
    rd_philox_block(key, (uint64_t)sample, (uint32_t)i, (uint32_t)block, word);
#pragma unroll
    for (int j = 0; j < 8; j++) byte |= rd_philox_kept(word, j, limit) << j;
    return byte;
}

/* Forward and backward of the other files. `saved` has seq, and lse where backward follows. The
 * gradients of in[] are ready to be added to. */
rd_code rd_attend_products_forward(rd_call *c, const rd_attend_saved *saved, rd_status *st);
rd_code rd_attend_products_backward(rd_call *c, const rd_attend_saved *saved, rd_status *st);
rd_code rd_attend_blocks_forward(rd_call *c, const rd_attend_saved *saved, rd_status *st);
rd_code rd_attend_blocks_backward(rd_call *c, const rd_attend_saved *saved, rd_status *st);

#endif
