/* setup.h -- config structs, data, model, parameters and optimizer of a run. */
#ifndef RD_RUN_SETUP_H
#define RD_RUN_SETUP_H

#include "run.h"

/* Collective. Reads the config structs, finds model and metric, and applies what the mode
 * forces. */
rd_code setup_config(rd_run *r, rd_status *st);

/* Returns the name of the config's dataset: the key's, or the model's usual one. */
const char *setup_dataset_name(const rd_run *r);

/* Collective. Opens a split of the config's dataset. The caller owns *out. */
rd_code setup_data(rd_run *r, rd_split split, rd_dataset **out, rd_status *st);

/* Collective. The same for images that come from `feed`, with the classes and size of `like`. */
rd_code setup_data_like(rd_run *r, const rd_data_spec *like, rd_dataset **out, rd_status *st);

/* Collective. With batch_tokens: computes the global batch from the training data. */
rd_code setup_updates(rd_run *r, rd_status *st);

/* Returns the number of epochs at whose end the training ends; INT64_MAX: another limit decides. */
int64_t setup_last_epoch(const rd_run *r);

/* Collective. Makes device, model, parameters and tape; with_optim: also optimizer and exchange. */
rd_code setup_model(rd_run *r, const rd_data_spec *spec, bool with_optim, rd_status *st);

#endif
