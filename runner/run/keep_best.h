/* keep_best.h -- which evaluated checkpoints stay, beside the best one. */
#ifndef RD_RUN_KEEP_BEST_H
#define RD_RUN_KEEP_BEST_H

#include "run.h"

/* Adds the evaluation of this step to the list of the `keep` best. *in: it is one of them. Returns
 * the step that leaves the list; -1: none. An equal figure is not better. */
int64_t keep_best_add(run_progress *at, int64_t keep, double value, bool higher_is_better,
                      bool *in);
/* Returns whether the list has the step. */
bool keep_best_has(const run_progress *at, int64_t step);
/* The list for the manifest, and back. */
json_t *keep_best_describe(const run_progress *at);
void keep_best_take(run_progress *at, const json_t *list);

#endif
