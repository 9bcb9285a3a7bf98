/* search_found.h -- the last part of a decoding step: the best tokens of its rows. */
#ifndef RD_SEARCH_FOUND_H
#define RD_SEARCH_FOUND_H

#include "search_kernels.h"

RD_C_BEGIN

typedef struct rd_search_found {
    rd_backend *be;
    const rd_search_kernels *on; /* the functions of the backend */
    float *logits;               /* [block, V]; NULL: a shortlist computes its own */
    int64_t block;               /* number of rows that the buffer of logits holds */
    int32_t *found;              /* results that kernels write: id, logp, end_logp */
    unsigned char *got;          /* the copy of that buffer in host memory */
} rd_search_found;

/* Allocates the buffers for `most` rows with the n_best tokens of each: those of kernels from dev,
 * those of the host from host. The arenas own them. with_logits: also a buffer for logits of V
 * tokens. */
rd_code rd_search_found_new(rd_backend *be, rd_arena *dev, rd_arena *host, int64_t most,
                            int64_t n_best, int64_t V, bool with_logits, rd_search_found *out,
                            rd_status *st);

/* Computes the logits [n, V] of rows [first, first + n) of a step. */
typedef rd_code rd_search_logits(void *ctx, int64_t first, int64_t n, float *logits, rd_status *st);
/* Finds the best tokens of n rows: logits(ctx, ...) computes the rows block by block. *out: in host
 * memory. */
rd_code rd_search_found_best(const rd_search_found *f, int64_t n, int64_t V, float temperature,
                             rd_search_logits *logits, void *ctx, const rd_search_best *out,
                             rd_status *st);

RD_C_END
#endif
