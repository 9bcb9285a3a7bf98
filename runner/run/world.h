/* world.h -- the agreement of all ranks before step 0, the banner, and the text of --version. */
#ifndef RD_RUN_WORLD_H
#define RD_RUN_WORLD_H

#include "run.h"

/* Return the version and the commit of the program; "unknown" where it was built without. */
const char *world_version(void);
const char *world_commit(void);

/* Appends the text of --version: the program, its libraries and backends, one a line. */
void rd_versions(rd_strbuf *out);

/* Collective. Compares program, flags and config of all ranks. RD_EDISAGREE names the rank that
 * differs. */
rd_code world_check_start(rd_run *r, rd_status *st);

/* Collective, once there is a model. Compares parameters and data of all ranks. */
rd_code world_check(rd_run *r, rd_status *st);

/* Prints the banner on rank 0. n_samples 0: the banner does not mention the data. */
void world_banner(rd_run *r, int64_t last_step, int64_t n_batches, int64_t n_samples);

#endif
