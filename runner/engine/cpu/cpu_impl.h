/* cpu_impl.h -- the CPU backend's struct, oneDNN's errors as a status, growing buffers, rounding to
 * bfloat16. */
#ifndef RD_CPU_IMPL_H
#define RD_CPU_IMPL_H

#include "dnnl_seam.h"
#include "../backend_impl.h"
#include <string.h>

/* Returns RD_OK, or fails with oneDNN's error and the text of the call. */
rd_code rd_dnnl_result(dnnl_status_t r, const char *call, rd_status *st);
#define TRY_DNNL(call) RD_TRY(rd_dnnl_result((call), #call, st))

/* A buffer that is kept from call to call and grows. */
typedef struct rd_cpu_buffer {
    void *p;
    size_t cap;
} rd_cpu_buffer;
/* Makes r->p hold at least `bytes` bytes. The contents are undefined. */
rd_code rd_cpu_buffer_reserve(rd_cpu_buffer *r, size_t bytes, rd_status *st);
void rd_cpu_buffer_free(rd_cpu_buffer *r);

typedef struct gemm_prim gemm_prim;
/* Defined in cpu_conv_impl.h. */
typedef struct rd_convs rd_convs;
/* See cpu_packed.h. */
typedef struct rd_cpu_packed rd_cpu_packed;
/* See cpu_int8.h. */
typedef struct rd_int8_param rd_int8_param;
/* The instructions of the kernels of cpu_rows.h. */
typedef enum rd_cpu_rows_kind { RD_ROWS_PLAIN, RD_ROWS_AVX2, RD_ROWS_AVX512 } rd_cpu_rows_kind;

typedef struct rd_cpu {
    /* First member: each rd_backend of kind RD_CPU is an rd_cpu. */
    rd_backend base;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    /* bf16_hw: the CPU has bfloat16 instructions. */
    bool mixed, bf16_hw;
    rd_cpu_rows_kind rows_kind;
    /* List, owned. */
    rd_cpu_packed *packed;
    /* Quantised parameters, owned, and the quantised rows of one product. */
    rd_int8_param *int8_list;
    rd_cpu_buffer int8_rows;
    /* Rows of one product with gaps (cpu_rows.c). */
    rd_cpu_buffer spread;
    /* bfloat16 copies of the operands of one product. */
    rd_cpu_buffer half[2];
    /* Rounded float32 copies of the operands, if bfloat16 is emulated. */
    rd_cpu_buffer soft[2];
    /* The transposed copy of cpu_turn.c. */
    rd_cpu_buffer turned;
    /* bfloat16 products of rd_gemm, by shape; owned. */
    gemm_prim *gp;
    int n_gp, cap_gp;
    /* Owned; made by the first convolution. */
    rd_convs *convs;
} rd_cpu;

/* Returns the CPU backend that b is. b: of kind RD_CPU. */
static inline rd_cpu *rd_cpu_of(rd_backend *b)
{
    return (rd_cpu *)b;
}

/* ---- convolutions: cpu_conv.c, cpu_conv_kernel.c ---- */
/* Frees all convolutions. NULL is allowed. */
void rd_convs_free(rd_convs *c);
/* Entry conv_layout of the table. */
rd_code rd_cpu_conv_layout(rd_backend *b, const void **layout, rd_status *st);

/* Returns the bits of a float32 rounded to bfloat16 in the upper half: nearest even; NaN stays
 * NaN. */
static inline uint32_t rd_round_bits(uint32_t u)
{
    return (u & 0x7fffffffu) > 0x7f800000u ? (u | 0x400000u) : u + 0x7fffu + ((u >> 16) & 1);
}
/* Rounds n elements to bfloat16. */
void rd_to_half(const float *x, uint16_t *y, int64_t n);
/* Rounds n elements to bfloat16 and stores them as float32. */
void rd_to_soft(const float *x, float *y, int64_t n);

#endif
