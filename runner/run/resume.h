/* resume.h -- reads checkpoints of a run. */
#ifndef RD_RUN_RESUME_H
#define RD_RUN_RESUME_H

#include "run.h"
#include "rd/checkpoint.h"

/* Warns of a checkpoint whose name has another step than its contents. Rank 0 only. */
void resume_report_renamed(const rd_run *r, const rd_ckpt *c);

/* Collective. Finds a checkpoint, checks that it fits, and gives weights, optimizer state and
 * progress to all ranks. what: "newest", "best" or a path. *found false with RD_OK: there is
 * none. */
rd_code run_load(rd_run *r, const char *what, bool *found, rd_status *st);

/* Collective. Gives the weights and the optimizer's state of the best checkpoint to all ranks. The
 * progress stays. */
rd_code run_restore_best(rd_run *r, rd_status *st);

/* Collective, before data is read. RD_EUSAGE: neither a log folder nor a file names the weights. */
rd_code run_check_weights_source(rd_run *r, rd_status *st);

/* Collective. Reads the manifest of the checkpoint that the config names: its progress, config and
 * classes. *out NULL: there is no checkpoint. The caller owns *out. */
rd_code run_manifest(rd_run *r, json_t **out, rd_status *st);

/* Fails with RD_ECKPT: there is no checkpoint, and what to do about it. */
rd_code run_no_checkpoint(const rd_run *r, rd_status *st);

/* Collective. Loads the checkpoint that the config names. RD_ECKPT with a remedy: there is none. */
rd_code run_load_required(rd_run *r, rd_status *st);

#endif
