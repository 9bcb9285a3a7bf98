/* measure.h -- how a run measures its best figure. */
#ifndef RD_RUN_MEASURE_H
#define RD_RUN_MEASURE_H

#include "run.h"

/* Returns how the best figure is measured: the figure and its direction, the evaluation data, and
 * the keys that change the figure of the same weights. Needs r->eval_data and r->spec. The caller
 * owns it; NULL: out of memory. */
json_t *measure_of_best(const rd_run *r);

#endif
