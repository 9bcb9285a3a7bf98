/* decode.h -- batches of evaluation data, the same for every number of ranks.
 *
 * Rank i computes the batches k with k % ranks == i. */
#ifndef RD_RUN_DECODE_H
#define RD_RUN_DECODE_H

#include "run.h"

/* Collective. Reads the keys that control decoding in this mode, and the shortlist when it is first
 * needed. *keys is what the config says, and *out what models take. A model that does not decode
 * leaves both zero. RD_EUSAGE: keys that do not fit together. */
rd_code decode_config(rd_run *r, const rd_dataset *d, rd_decode_config *out, rd_search_keys *keys,
                      rd_status *st);

/* Fails with RD_EUSAGE if decode_dtype does not fit the mode, the model or the device. Reads keys
 * alone, so all ranks fail alike. */
rd_code decode_check(rd_run *r, rd_status *st);

/* Sorts ids by length, longest first, then by id. */
void decode_sort(const rd_dataset *d, int64_t *ids, int64_t n);

/* Samples and how they are cut into batches. */
typedef struct decode_batches {
    const int64_t *ids; /* [n] */
    int64_t n;
    int64_t size;         /* samples of a batch; the last one may be smaller */
    const int64_t *begin; /* [n_batches + 1] batch k is ids[begin[k]] ...; NULL: size counts */
    int64_t n_batches;    /* with begin */
    /* Called with the context of decode_fn before a batch is decoded; NULL: nothing is. */
    rd_code (*begins)(void *ctx, const rd_batch *b, rd_status *st);
} decode_batches;

/* Cuts ids[n] into batches of at most `tokens` tokens (rd_dataset_def.length), at least one sample
 * each. begin: room for n + 1 numbers. Returns the number of batches. */
int64_t decode_cut(const rd_dataset *d, const int64_t *ids, int64_t n, int64_t tokens,
                   int64_t *begin);

/* Fetches batch k into r->batch_arena, and announces this rank's next batch to the dataset.
 * RD_ESTOP: stopped on request. */
rd_code decode_batch(rd_run *r, const rd_dataset *d, const decode_batches *all, int64_t k,
                     rd_batch *b, rd_status *st);

/* Runs the forward pass of a batch on a tape that does not record. */
rd_code decode_forward(rd_run *r, const rd_batch *b, rd_loss_out *out, rd_status *st);

/* Takes the decoded sample i of a batch: rd_search_n_best(&c->search) targets, best first. */
typedef rd_code decode_fn(void *ctx, const rd_batch *b, int64_t i, const rd_decoded *out,
                          rd_status *st);

/* Decodes this rank's batches and hands each sample to fn. Not collective. */
rd_code decode_share(rd_run *r, const rd_dataset *d, const decode_batches *all,
                     const rd_decode_config *c, decode_fn *fn, void *ctx, rd_status *st);

/* Decodes one batch, for interactive use. */
rd_code decode_one(rd_run *r, const rd_batch *b, const rd_decode_config *c, decode_fn *fn,
                   void *ctx, rd_status *st);

#endif
