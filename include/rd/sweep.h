/* sweep.h -- many runs from one command: every combination of some values of keys, or random ones.
 *
 *     run_dist --config_file=FILE --logdir=DIR --sweep learning_rate=1e-3,3e-3 --sweep seed=1,2
 *
 * Each run is a process with its own folder below DIR. The sweep only chooses,
 * starts, waits and compares. The same command goes on where a sweep ended, however it ended. */
#ifndef RD_SWEEP_H
#define RD_SWEEP_H

#include "rd/cli.h"

RD_C_BEGIN

/* What a sweep does with the config of one of its runs, whose command line is `cli`. */
typedef struct rd_sweep_config {
    /* Reads and checks it as a run does. The caller owns *out. */
    rd_code (*read)(const rd_cli *cli, rd_config **out, rd_status *st);
    /* Adds to the object *found the keys of files that belong to a part, such as an optimizer, that
     * a key of `set` has replaced. Each has a text that says where it is and whose it is. */
    rd_code (*replaced)(const rd_cli *cli, const json_t *set, json_t *found, rd_status *st);
} rd_sweep_config;

/* Returns whether the command line asks for a sweep. */
bool rd_sweep_asked(const rd_cli *cli);

/* Runs the sweep, or writes its Slurm script, or (--check) prints its runs. Prints progress on
 * standard error and the table of the runs on standard output.
 *
 * If a run has another optimizer (dataset, model, ...) than the config, keys of the config's
 * optimizer are removed from that run by --set KEY=null.
 *
 * Returns the exit code of this process: 0 if every run is done; that of the first run that failed,
 * in the order of the sweep (9: it was killed); 75 when the sweep or a run was asked to stop; an
 * rd_code when the sweep itself cannot begin. */
int rd_sweep(const rd_cli *cli, const rd_sweep_config *config);

RD_C_END
#endif
