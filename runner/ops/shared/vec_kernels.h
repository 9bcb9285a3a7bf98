/* vec_kernels.h -- what vec.c starts on a GPU (vec.cu); as in vec.h. */
#ifndef RD_VEC_KERNELS_H
#define RD_VEC_KERNELS_H

#include "rd/arena.h"
#include "rd/gpu.h"

RD_C_BEGIN

rd_code rd_cuda_vec_sum(rd_gpu *g, int64_t n, const float *a, const float *b, float *y,
                        rd_status *st);
rd_code rd_cuda_rows_copy(rd_gpu *g, int64_t rows, int64_t width, const float *from,
                          int64_t ld_from, float *to, int64_t ld_to, bool add, rd_status *st);
rd_code rd_cuda_rows_move(rd_gpu *g, int64_t rows, int64_t width, const float *from,
                          const int64_t *from_row, float *to, const int64_t *to_row,
                          rd_status *st); /* an index that is NULL: row i is row i */
rd_code rd_cuda_add_bias(rd_gpu *g, int64_t N, int64_t width, const float *b, float *y,
                         rd_status *st);
rd_code rd_cuda_add_columns(rd_gpu *g, rd_arena *scratch, int64_t N, int64_t width, const float *dz,
                            int64_t ld, float *sum, rd_status *st);

RD_C_END
#endif
