/* pictures.h -- samples of an image model as pictures for TensorBoard. */
#ifndef RD_RUN_PICTURES_H
#define RD_RUN_PICTURES_H

#include "rd/records.h"
#include "run.h"

enum { PICTURES = 16 }; /* largest number of samples in one picture */

typedef struct picture {
    int64_t id; /* of the sample */
    int32_t label, predicted;
    float probability; /* of the predicted class; NAN: not known */
} picture;

typedef struct gallery {
    int64_t h, w, c; /* size of every sample; c: 1 or 3 channels */
    int n, capacity;
    picture p[PICTURES];
    uint8_t *pixels; /* owned; [capacity][h][w][c] */
} gallery;

/* Empties the gallery and makes it hold `capacity` samples. */
rd_code gallery_start(gallery *g, const rd_data_spec *spec, int capacity, rd_status *st);
void gallery_release(gallery *g);

/* Adds sample i of a batch. Does nothing where the gallery is full or the batch has no images. */
void gallery_add(gallery *g, const rd_data_spec *spec, const rd_batch *b, int64_t i,
                 const rd_loss_out *out);

/* Collective. Gathers the `capacity` samples with the lowest ids of all ranks on rank 0. The
 * galleries of the other ranks become empty. */
rd_code gallery_gather(rd_run *r, gallery *g, rd_status *st);

/* Writes one picture with all samples side by side, and a table that names them. */
void gallery_write(rd_events *e, int64_t step, const char *tag, const gallery *g,
                   const rd_dataset *d, rd_status *st);

#endif
