/* save.h -- writes checkpoints of a run. */
#ifndef RD_RUN_SAVE_H
#define RD_RUN_SAVE_H

#include "run.h"
#include "rd/npz.h"

/* Saves PREFIX-<step>.npz and keeps the newest `keep` of them. Rank 0 only; if hosts keep parts of
 * the optimizer's state (key shard), all other ranks are in run_lend_state meanwhile. */
rd_code run_save(rd_run *r, const char *prefix, int keep, rd_status *st);

/* Saves best-<step>.npz, whose figure is `value`, and removes the best file of the same series that
 * it replaces. After a failure the best figure is the one before. Rank 0 only. */
rd_code run_save_best(rd_run *r, double value, rd_status *st);

/* Does what a kill after a save has left undone: the file `checkpoint` names the checkpoint that
 * the run was resumed from, and a best file that was replaced goes. Rank 0 only. */
void run_settle(const rd_run *r);

/* Collective, before a block in which rank 0 may save, unless all ranks have just read the state.
 * Copies the state that GPUs keep in parts to their hosts. */
rd_code run_bring_state(rd_run *r, rd_status *st);
/* Collective, after a block in which rank 0 may have saved any number of times. Until then the
 * other ranks send rank 0 the state that their hosts keep. Does nothing if rank 0 has all. */
rd_code run_lend_state(rd_run *r, rd_status *st);

/* ---- for resume.c, which reads what save.c writes ---- */

/* Larger numbers of samples are not believed. */
#define SAVE_MOST_SAMPLES INT64_C(1000000000000000)
/* Writes a hash as a manifest has it. */
void save_hex(uint64_t v, char out[20]);
/* Returns the samples of a step of all ranks, as a manifest has them. */
int64_t save_step_samples(const rd_run *r);
/* Fills *a with name and shape of a parameter, or of its optimizer array `slot`; NULL: none. arena:
 * where the values are; NULL: nowhere. */
void save_array_of(const rd_param *p, const char *slot, const float *arena, rd_array *a);

#endif
