/* patience.h -- early stopping. */
#ifndef RD_RUN_PATIENCE_H
#define RD_RUN_PATIENCE_H

#include "run.h"

/* Counts a regular evaluation. It improves on the best one if its figure is better by more than
 * min_delta (0: by however little). NaN improves on nothing. */
void patience_update(run_patience *p, double value, bool higher_is_better, double min_delta);

/* Does this evaluation end the training: are there stop_patience evaluations in a row without an
 * improvement, and has the training reached min_steps, min_samples and min_epochs? epochs: number
 * of epochs done. */
bool patience_ends(const run_config *c, const run_progress *at, double epochs);

/* Had an earlier start ended the training so, and does the config of today end it, too? */
bool patience_holds(const run_config *c, const run_progress *at);

#endif
