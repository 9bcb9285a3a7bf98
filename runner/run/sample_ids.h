/* sample_ids.h -- the ids of the samples that a step used, for samples.jsonl. */
#ifndef RD_RUN_SAMPLE_IDS_H
#define RD_RUN_SAMPLE_IDS_H

#include "recorder.h"
#include "run.h"

/* The samples of this rank since the last record. */
typedef struct sample_ids {
    int64_t n, capacity;
    struct sample_id {
        int64_t epoch, id;
    } * at; /* owned; [capacity] */
} sample_ids;

/* Adds the samples of a batch. */
rd_code sample_ids_add(sample_ids *s, const rd_batch *b, rd_status *st);

/* Collective. Gathers the samples of all ranks, lets rank 0 write them as those of the step that is
 * done, and empties the list. out: rank 0's records. */
rd_code sample_ids_write(rd_run *r, sample_ids *s, recorder *out, rd_status *st);

void sample_ids_release(sample_ids *s);

#endif
