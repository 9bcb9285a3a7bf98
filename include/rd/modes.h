/* modes.h -- from a parsed command line to an exit code: the config on every rank, and the run of
 * one mode.
 *
 * main.c owns the process. These functions own everything between the config's bytes and the last
 * record. All ranks call them together. */
#ifndef RD_MODES_H
#define RD_MODES_H

#include "rd/cli.h"
#include "rd/comm.h"
#include "rd/doctor.h"
#include "rd/log.h"
#include "rd/options.h"

RD_C_BEGIN

/* Lists every option group of the program, in the order of --help: run, datasets, models, schedule,
 * optimizer, bench, plan. Returns how many there are. */
int rd_option_groups(const rd_option_group *out[RD_MAX_GROUPS]);

enum { RD_MAX_OWNERS = 128 };
/* Lists the owners of keys: models, datasets, optimizers, metrics and learning-rate policies. Marks
 * those that the config chooses, if c is not NULL. Returns how many there are. */
int rd_option_owners(const rd_config *c, rd_option_owner out[RD_MAX_OWNERS]);
/* Lists the groups that a run of this config reads: those without owners, and those whose owner the
 * config chooses. Returns how many there are. */
int rd_option_groups_read(const rd_config *c, const rd_option_group *out[RD_MAX_GROUPS]);

/* Collective. Reads --config_file on rank 0 and sends its bytes to all ranks. Each rank parses them
 * and applies --lr, --seed and --set. A failure is the same on all ranks. The caller owns *out. */
rd_code rd_run_config_read(rd_comm *comm, rd_log *log, const rd_cli *cli, rd_config **out,
                           rd_status *st);

/* Lists the keys of the config's files that have no owner because --set chooses another part: `set`
 * has the keys that may choose it. Adds to the object *found what rd_config_replaced does. */
rd_code rd_run_config_replaced(const rd_cli *cli, const json_t *set, json_t *found, rd_status *st);

/* Returns RD_EUSAGE if there is no file of the name that --config_file or a word gives. The message
 * names the nearest file. */
rd_code rd_config_is_there(const rd_cli *cli, rd_status *st);

/* Refuses keys that are set and have no effect, since a key that they belong to is set otherwise:
 * "x.json:3:5: 'crop_pad' has no effect: augmentation is none, not pad_crop_flip; ..." (RD_EUSAGE).
 * Those that rd_config_refuses excepts get a line in *notes. */
rd_code rd_partner_notes(const rd_config *c, const rd_cli *cli, rd_strbuf *notes, rd_status *st);

/* Appends a config to begin with for a model, with comments. RD_EUSAGE: there is no such model. */
rd_code rd_new_config(const char *model, rd_strbuf *out, rd_status *st);

/* Collective. Runs the mode that the command line names, and reports a failure.
 *
 * guard: limits the time until the watch begins, and is then freed and set to NULL. started_ns:
 * rd_now_ns() when the process began. *agreed: true if the status is equal on all
 * ranks, so each rank may exit; false if only this rank knows of the failure, so the caller must
 * end the job. Returns RD_ESTOP if the run stopped on request and saved a checkpoint. */
rd_code rd_run_mode(rd_comm *comm, rd_log *log, const rd_cli *cli, rd_config *config,
                    rd_guard **guard, int64_t started_ns, bool *agreed, rd_status *st);

/* Reports a failure on one rank: on rank 0 when all ranks agree on it, else on this rank. */
void rd_run_report_failure(rd_comm *comm, rd_log *log, const rd_cli *cli, bool agreed,
                           const rd_status *st);

RD_C_END
#endif
