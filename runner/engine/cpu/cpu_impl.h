/* cpu_impl.h -- what the files of the CPU backend share: the backend itself, oneDNN's results as a status, buffers that
 * grow, bfloat16. */
#ifndef RD_CPU_IMPL_H
#define RD_CPU_IMPL_H

#include "dnnl_seam.h"
#include "../backend_impl.h"
#include <string.h>

rd_code rd_dnnl_result(dnnl_status_t r, const char *call, rd_status *st);
#define TRY_DNNL(call) RD_TRY(rd_dnnl_result((call), #call, st))

/* Memory that is kept from call to call and grows. */
typedef struct rd_room {
    void *p;
    size_t cap;
} rd_room;
rd_code rd_room_get(rd_room *r, size_t bytes,
                    rd_status *st); /* r->p: at least so many bytes, contents undefined */
void rd_room_free(rd_room *r);

typedef struct gemm_prim gemm_prim;
typedef struct rd_convs rd_convs;           /* cpu_conv.c */
typedef struct rd_cpu_packed rd_cpu_packed; /* cpu_packed.h */

typedef struct rd_cpu {
    rd_backend base; /* first: a rd_backend of kind RD_CPU is one of these */
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    bool mixed, bf16_hw;
    rd_cpu_packed *packed; /* list, owned */
    rd_room half[2];       /* bfloat16 copies of the operands of one product */
    rd_room soft[2];       /* rounded copies, where bfloat16 is emulated */
    gemm_prim *gp;         /* bfloat16 products of rd_gemm, by shape */
    int n_gp, cap_gp;
    rd_convs *convs; /* owned; made by the first convolution */
} rd_cpu;

/* b: of kind RD_CPU. */
static inline rd_cpu *rd_cpu_of(rd_backend *b)
{
    return (rd_cpu *)b;
}

/* ---- convolutions: cpu_conv.c, cpu_conv_kernel.c ---- */
void rd_convs_free(rd_convs *c); /* NULL is fine */
rd_code rd_cpu_conv_layout(rd_backend *b, const void **layout, rd_status *st);

/* bfloat16: the upper half of a float32, rounded to nearest even; NaN stays NaN. */
static inline uint32_t rd_round_bits(uint32_t u)
{
    return (u & 0x7fffffffu) > 0x7f800000u ? (u | 0x400000u) : u + 0x7fffu + ((u >> 16) & 1);
}
void rd_to_half(const float *x, uint16_t *y, int64_t n); /* the half itself */
void rd_to_soft(const float *x, float *y, int64_t n);    /* as a float32 */

#endif
