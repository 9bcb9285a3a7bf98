/* fault.h -- the phases of a rank. */
#ifndef RD_RUN_FAULT_H
#define RD_RUN_FAULT_H

#include "run.h"

/* Begins a phase: reports it to the watch and to the times, and raises the fault that RD_FAULT asks
 * for, if any. */
rd_code run_phase(rd_run *r, rd_phase phase, int64_t step, rd_status *st);

#endif
