/* search_kernels.h -- what decoding computes between its products, a table for each kind of backend: a CPU's is in
 * decoder_step.c, a GPU's in search_kernels.cu. All arrays are stored where the backend computes. */
#ifndef RD_SEARCH_KERNELS_H
#define RD_SEARCH_KERNELS_H

#include "rd/nn.h"

RD_C_BEGIN

/* Arrays of rows that all follow the same parents: to[a][i] = from[a][parent[i]], i < n. */
enum { RD_MOST_STATES = 2 * RD_MAX_LAYERS + 1 };
typedef struct rd_states {
    int n_arrays;
    const float *from[RD_MOST_STATES];
    float *to[RD_MOST_STATES];
    int64_t width[RD_MOST_STATES];
} rd_states;

typedef struct rd_search_kernels {
    size_t logits_bytes; /* of the rows whose logits are there at a time; 0: of all */
    int64_t widest;      /* beams; 0: any number */
    rd_code (*follow)(rd_backend *be, const rd_states *s, int64_t n, const int32_t *parent,
                      rd_status *st);
    /* Rows first .. first + n - 1 of out, from their logits [n, V], as rd_search_best_rows has them; the logits are divided
     * by the temperature first, and a CPU leaves them so. */
    rd_code (*best)(rd_backend *be, const rd_search_best *out, int64_t first, int64_t n, int64_t V,
                    float temperature, float *logits, rd_status *st);
} rd_search_kernels;
extern const rd_search_kernels rd_cuda_search;

RD_C_END
#endif
