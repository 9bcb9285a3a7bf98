/* search_kernels.h -- what decoding starts on a GPU between its products (search_kernels.cu). All arrays are the device's. */
#ifndef RD_SEARCH_KERNELS_H
#define RD_SEARCH_KERNELS_H

#include "rd/nn.h"

RD_C_BEGIN

/* Rows first .. first + n - 1 of out, from their logits [n, V], as rd_search_best_rows has them; the logits are divided by the
 * temperature first, and stay as they are. out->n <= RD_SEARCH_WIDEST. */
rd_code rd_cuda_search_best(rd_gpu *g, const rd_search_best *out, int64_t first, int64_t n,
                            int64_t V, float temperature, const float *logits, rd_status *st);

/* Arrays of rows that all follow the same parents: to[a][i] = from[a][parent[i]], i < n. */
enum { RD_MOST_STATES = 2 * RD_MAX_LAYERS + 1 };
typedef struct rd_states {
    int n_arrays;
    const float *from[RD_MOST_STATES];
    float *to[RD_MOST_STATES];
    int64_t width[RD_MOST_STATES];
} rd_states;
rd_code rd_cuda_follow(rd_gpu *g, const rd_states *s, int64_t n, const int32_t *parent,
                       rd_status *st);

RD_C_END
#endif
