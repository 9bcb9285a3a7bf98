/* train.h -- the run: from a parsed command line to an exit code. main.c owns the process, this module owns everything
 * between the config's bytes and the last record. All ranks call these functions together. */
#ifndef RD_TRAIN_H
#define RD_TRAIN_H

#include "rd/cli.h"
#include "rd/comm.h"
#include "rd/log.h"
#include "rd/options.h"
#include "rd/strbuf.h"

RD_C_BEGIN

/* Keys of the trainer itself ("run"): batch sizes, epochs, precision, what to evaluate, what to keep. */
extern const rd_option_group rd_group_run;

enum { RD_MAX_GROUPS = 64 };
/* Every option group of the program, in the order of --help: run, datasets, models, schedule, optimizer, bench. */
int rd_option_groups(const rd_option_group *out[RD_MAX_GROUPS]);

/* Those of them that a training reads whatever its model. */
int rd_training_groups(const rd_option_group *out[RD_MAX_GROUPS]);

/* Text of --version: the program, its libraries and backends, one a line. */
void rd_versions(rd_strbuf *out);

/* Collective. Reads --config_file on rank 0, gives its bytes to all ranks, parses them there, applies --lr, --seed and
 * --set. A failure is the same on all ranks. The caller owns *out. */
rd_code rd_run_config_read(rd_comm *comm, rd_log *log, const rd_cli *cli, rd_config **out,
                           rd_status *st);

/* Collective. Runs the mode. started_ns: rd_now_ns() when the process began. *agreed: a failure is the same on all
 * ranks, so that each may leave by itself; when false, only this rank knows of it and the job has to be ended.
 * RD_ESTOP: stopped on request, checkpoint saved. A failure has been told. */
rd_code rd_run_go(rd_comm *comm, rd_log *log, const rd_cli *cli, rd_config *config,
                  int64_t started_ns, bool *agreed, rd_status *st);
/* A failure, by rank 0 or, where it is not the same on all ranks, by this one. */
void rd_run_tell(rd_comm *comm, rd_log *log, const rd_cli *cli, bool agreed, const rd_status *st);

RD_C_END
#endif
