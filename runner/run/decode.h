/* decode.h -- batches of evaluation data, the same for every number of ranks.
 *
 * Batch k of ids[n] is ids[k * size ...]. Rank i computes the batches k with k % ranks == i. */
#ifndef RD_RUN_DECODE_H
#define RD_RUN_DECODE_H

#include "run.h"

/* Sorts ids by length, longest first, then by id. */
void decode_sort(const rd_dataset *d, int64_t *ids, int64_t n);

/* Fetches batch k into r->batch_arena, and announces this rank's next batch to the dataset.
 * RD_ESTOP: stopped on request. */
rd_code decode_batch(rd_run *r, const rd_dataset *d, const int64_t *ids, int64_t n, int64_t size,
                     int64_t k, rd_batch *b, rd_status *st);

/* Runs the forward pass of a batch on a tape that does not record. */
rd_code decode_forward(rd_run *r, const rd_batch *b, rd_loss_out *out, rd_status *st);

/* Takes the decoded sample `id`. */
typedef rd_code decode_fn(void *ctx, int64_t id, const rd_decoded *out, rd_status *st);

/* Decodes this rank's batches and hands each sample to fn. Not collective. */
rd_code decode_share(rd_run *r, const rd_dataset *d, const int64_t *ids, int64_t n, int64_t size,
                     const rd_decode_config *c, decode_fn *fn, void *ctx, rd_status *st);

/* Decodes one batch, for interactive use. */
rd_code decode_one(rd_run *r, const rd_batch *b, const rd_decode_config *c, decode_fn *fn,
                   void *ctx, rd_status *st);

#endif
