/* spikes.h -- finds steps whose loss or gradient norm is far above those before. */
#ifndef RD_RUN_SPIKES_H
#define RD_RUN_SPIKES_H

#include "run.h"

/* Returns the largest value that is no spike: a larger one would have a z-score above z among the
 * last RUN_SPIKES values, itself included. INFINITY: z is 0, or there are too few values, or they
 * are all equal. */
double spikes_most(const run_spikes *s, double z);

/* Adds a value. One that is not finite is left out. */
void spikes_add(run_spikes *s, double x);

#endif
