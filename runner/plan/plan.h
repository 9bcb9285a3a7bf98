/* plan.h -- --mode=plan, and --check. */
#ifndef RD_PLAN_H
#define RD_PLAN_H

#include "../run/forecast.h"

/* Collective. Measures steps now, and prints what more hosts would bring. */
rd_code run_plan(rd_run *r, rd_status *st);

/* Collective. Does the same from the step that a training left in its log folder. Needs no
 * config. */
rd_code run_plan_recorded(rd_run *r, rd_status *st);

/* Collective. --check: reads config and data and makes the model as a training does, prints what it
 * would need, and writes nothing. */
rd_code run_check(rd_run *r, rd_status *st);

/* Prints the whole answer, as tables or as one JSON object. run: the log folder of the run that
 * measured *m; NULL: this run. Rank 0 only. */
rd_code plan_print(rd_run *r, forecast_step *m, const char *run, FILE *out, rd_status *st);

#endif
