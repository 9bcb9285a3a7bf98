/* defaults.h -- the values of keys that nobody wrote. */
#ifndef RD_RUN_DEFAULTS_H
#define RD_RUN_DEFAULTS_H

#include "run.h"

/* Prints the keys that this training reads and the config does not have, with their values. A run
 * from raw text needs few keys, so its log must show the others. Rank 0. */
void defaults_report(const rd_run *r);

#endif
