/* transformer_coverage.h -- the attention of a decoding step to the source, for the coverage
 * penalty of beam search. */
#ifndef RD_TRANSFORMER_COVERAGE_H
#define RD_TRANSFORMER_COVERAGE_H

#include "rd/search.h"
#include "rd/transformer_layers.h"

typedef struct rd_tf_cover rd_tf_cover;

/* Prepares for steps of at most `most` rows. keys: (M, 2 d) keys and values of the memory in the
 * last layer. c, `of` and the memory of the arena are borrowed. */
rd_code rd_tf_cover_new(rd_arena *a, rd_backend *be, const rd_tf_config *c, const rd_var *keys,
                        const rd_tf_rows *of, int64_t most, rd_tf_cover **out, rd_status *st);
/* Fills out->attention: the mean over the heads of the last layer. queries: (n, d) in the memory of
 * kernels; sentence: [n]. */
rd_code rd_tf_cover_step(rd_tf_cover *s, int64_t n, const float *queries, const int64_t *sentence,
                         const rd_search_best *out, rd_status *st);

#endif
