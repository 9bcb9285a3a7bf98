/* search_kernels.h -- the work of a decoding step between its products, as a table of functions for
 * each kind of backend. The table of a CPU is in search_kernels.c, that of a GPU in
 * search_kernels.cu. All arrays are in the memory of the backend. */
#ifndef RD_SEARCH_KERNELS_H
#define RD_SEARCH_KERNELS_H

#include "rd/nn.h"

RD_C_BEGIN

/* h and c of all layers, and the attention context. */
enum { RD_MOST_STATES = 2 * RD_MAX_LAYERS + 1 };
/* Arrays whose rows all follow the same parents: to[a][i] = from[a][parent[i]] for i < n. */
typedef struct rd_states {
    int n_arrays;
    const float *from[RD_MOST_STATES];
    float *to[RD_MOST_STATES];
    int64_t width[RD_MOST_STATES]; /* elements of a row */
} rd_states;

typedef struct rd_search_kernels {
    size_t logits_bytes; /* size of the buffer for logits; 0: as large as all rows need */
    int64_t widest;      /* the largest beam_width; 0: no limit */
    /* Copies n rows of all arrays from their parents. */
    rd_code (*follow)(rd_backend *be, const rd_states *s, int64_t n, const int32_t *parent,
                      rd_status *st);
    /* Divides the logits [n, V] by the temperature and fills rows [first, first + n) of out like
     * rd_search_best_rows. The logits are undefined afterwards. */
    rd_code (*best)(rd_backend *be, const rd_search_best *out, int64_t first, int64_t n, int64_t V,
                    float temperature, float *logits, rd_status *st);
} rd_search_kernels;
extern const rd_search_kernels rd_cuda_search;
/* Returns the table of a backend. */
const rd_search_kernels *rd_search_kernels_of(const rd_backend *be);
/* Checks that the backend takes a beam_width, and sets of tokens if has_sets. RD_EUSAGE. */
rd_code rd_search_kernels_check(const rd_backend *be, int64_t width, bool has_sets, rd_status *st);

RD_C_END
#endif
