/* embeddings.h -- gradients of embeddings. A step fills few of their rows. */
#ifndef RD_RUN_EMBEDDINGS_H
#define RD_RUN_EMBEDDINGS_H

#include "run.h"

typedef struct embeddings embeddings;

typedef struct embeddings_sent {
    int64_t bytes;      /* of the rows that were summed */
    int64_t wire_bytes; /* sent by this rank to other hosts */
} embeddings_sent;

/* Collective, after the gradients have their place. none: no table is summed by rows. The caller
 * owns *out. */
rd_code embeddings_new(rd_run *r, bool none, embeddings **out, rd_status *st);
void embeddings_free(embeddings *e);

/* The tables that embeddings_sum sums, by their offset in the arenas. */
int embeddings_n(const embeddings *e);
const rd_param *embeddings_param(const embeddings *e, int i);

/* Zeroes the gradient arena of this rank, except for gradients that the tape borrows now.
 * keep_marks: the step continues, and its marked rows are summed later. zero: gradients on the GPU
 * are zero already. */
void embeddings_zero_grads(embeddings *e, bool keep_marks, bool zero);

/* Collective. Replaces the gradient of table i by its sum over ranks. */
rd_code embeddings_sum(embeddings *e, int i, embeddings_sent *sent, rd_status *st);

#endif
