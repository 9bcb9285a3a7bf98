/* sequence_model.h -- what the models of sentence pairs share: rows of option tables, the fields of
 * a batch, counts. The same key has the same row in each of them. T: the struct of the model; its
 * fields have the names of the keys. */
#ifndef RD_SEQUENCE_MODEL_H
#define RD_SEQUENCE_MODEL_H

#include "rd/model.h"

/* Whether the loss is a mean over words. */
#define RD_AVERAGE_ROW(T)                                                                        \
    RD_OPT_BOOL(T, average_across_timesteps, average_across_timesteps, "false",                  \
                "the loss is the mean over target tokens instead of the mean over sentences of " \
                "sums over time")
#define RD_PAD_ROW(T)                                                 \
    RD_OPT_BOOL(T, pad_vocabs_to_eight, pad_vocabs_to_eight, "false", \
                "rounds both vocabulary sizes up to a multiple of 8")

/* The graphs of all of them. */
extern const char *const sequence_graphs[];

/* Returns n, or with pad the next multiple of 8. */
int64_t sequence_vocab(bool pad, int64_t n);

/* Finds the fields "source" and "target" of a batch. Without one of them: RD_EBUG, which names the
 * model. */
rd_code sequence_fields(const char *model, const rd_batch *b, const rd_field **src,
                        const rd_field **tgt, rd_status *st);

/* Makes the loss of a batch without samples: 0, and nothing is recorded. */
rd_code sequence_no_loss(rd_tape *t, rd_loss_out *out, rd_status *st);

/* Sets the counts of a batch whose targets have n_rows labels. average: the loss is a mean over
 * them. */
void sequence_counts(const rd_batch *b, const rd_field *src, const rd_field *tgt, int64_t n_rows,
                     bool average, rd_loss_out *out);

/* Sets *sets to the target words that each sentence may get, in memory of the arena, and *out to
 * sets. Without a shortlist *out is NULL. */
rd_code sequence_sets(const rd_decode_config *c, const rd_batch *b, const rd_field *src,
                      rd_arena *a, rd_token_sets *sets, const rd_token_sets **out, rd_status *st);

#endif
