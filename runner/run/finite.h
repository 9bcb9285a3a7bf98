/* finite.h -- finds weights and optimizer state that are inf or NaN. */
#ifndef RD_RUN_FINITE_H
#define RD_RUN_FINITE_H

#include "run.h"

/* Writes the name of the first array of weights or optimizer state with a value that is not finite,
 * as "name" or "name/slot", and returns true. False: there is none. Reads the host's copy: call
 * rd_params_sync_to_host before. If hosts keep parts of the state (key shard), it reads the part of
 * this host. */
bool finite_all(const float *x, int64_t n); /* Returns whether no value is inf or NaN. */
bool finite_find_other(const rd_run *r, char name[320]);

#endif
