/* launch.h -- starts the ranks of a run: `run_dist --np=4 [--hosts=a:2,b:2] x.json`.
 *
 * The launcher finds mpirun (Open MPI 4.1 or 5), or srun inside a Slurm job, and starts this
 * program again as its ranks. It takes no part in MPI. Before the start it examines the hosts;
 * while the run lasts it passes signals on, and keeps back what mpirun adds to the end of a run. */
#ifndef RD_LAUNCH_H
#define RD_LAUNCH_H

#include "rd/cli.h"

RD_C_BEGIN

/* Starts the run of cli->pass on cli->np ranks, and waits for its end. With cli->dry_run prints the
 * launcher's line instead. Prints one line about the cause of a failure on standard error.
 *
 * Returns the exit code of this process: that of the run; 75 if the run was asked to stop and
 * saved; 128 + the signal if it was asked to stop and had nothing to save; an rd_code if nothing
 * could be started. */
int rd_launch(const rd_cli *cli);

RD_C_END
#endif
