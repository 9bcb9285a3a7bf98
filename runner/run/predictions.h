/* predictions.h -- what an evaluation of an image model says of each image and of each class. */
#ifndef RD_RUN_PREDICTIONS_H
#define RD_RUN_PREDICTIONS_H

#include "run.h"

typedef struct prediction {
    int64_t id; /* of the sample */
    int32_t label, predicted;
    int32_t rank;                         /* number of classes before the label; 0: right */
    float probability, label_probability; /* of both classes; NAN: numbers were not finite */
} prediction;

typedef struct predictions {
    prediction *at; /* owned */
    int64_t n, capacity;
} predictions;
void predictions_release(predictions *p);

/* Adds the samples of a batch, whose forward pass is still on the tape. */
rd_code predictions_add(predictions *p, rd_run *r, const rd_batch *b, const rd_loss_out *out,
                        rd_status *st);
/* Collective. Gathers all of them on rank 0, in the order of their ids. The lists of the other
 * ranks become empty. */
rd_code predictions_gather(predictions *p, rd_run *r, rd_status *st);

/* Writes predictions.tsv, classes.tsv, confusion.tsv and confusion.png into a folder. Rank 0
 * only. */
rd_code predictions_write(const predictions *p, const rd_run *r, const char *dir, rd_status *st);
/* Prints the accuracy of the classes and the worst predictions. Rank 0 only. */
rd_code predictions_print(const predictions *p, const rd_run *r, rd_status *st);

#endif
