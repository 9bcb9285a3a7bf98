/* init_from.h -- a training that begins with the weights of another run. */
#ifndef RD_RUN_INIT_FROM_H
#define RD_RUN_INIT_FROM_H

#include "run.h"

/* Refuses the key `checkpoint`, which a training does not read. RD_EUSAGE names the right key. */
rd_code init_check_keys(const rd_run *r, rd_status *st);

/* Collective. Gives the weights that the key init_from names to all ranks, by their names. Step,
 * optimizer and best figure stay those of a new run. RD_ECKPT: a weight does not fit and
 * init_allow_missing is not set, or there is no such checkpoint. */
rd_code init_weights(rd_run *r, rd_status *st);

#endif
