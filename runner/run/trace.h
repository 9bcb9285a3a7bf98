/* trace.h -- --trace FILE: the activities of all ranks in some steps, as a Chrome trace. */
#ifndef RD_RUN_TRACE_H
#define RD_RUN_TRACE_H

#include "rd/status.h"
#include "run_types.h"
#include <stdint.h>

/* Collective. Opens the trace file. Does nothing without --trace. next_step: the first step of this
 * run. */
rd_code trace_open(rd_run *r, int64_t next_step, rd_status *st);

/* Collective. Begins step number `step`. May write the spans of the steps before. */
rd_code trace_step(rd_run *r, int64_t step, rd_status *st);
void trace_step_end(rd_run *r);

/* Collective. Writes the remaining spans, after the last step or after a failure that all ranks
 * know of. */
rd_code trace_finish(rd_run *r, rd_status *st);

/* NULL is fine. The tape must not run any more. */
void trace_free(run_trace *t);

#endif
