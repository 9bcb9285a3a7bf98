/* text_samples.h -- texts that a language model writes during its training. */
#ifndef RD_RUN_TEXT_SAMPLES_H
#define RD_RUN_TEXT_SAMPLES_H

#include "recorder.h"

/* Continues the beginnings of some samples of the evaluation data, and writes the texts to the log
 * and to TensorBoard. Rank 0 only. Nothing for models that continue no text. */
rd_code text_samples(rd_run *r, recorder *c, rd_status *st);

#endif
