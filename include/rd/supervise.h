/* supervise.h -- starts a launcher's command line (mpirun, srun) again after a failure:
 *
 *     run_dist --restarts=5 -- mpirun -np 4 run_dist --config_file=FILE --logdir=DIR
 *
 * The run itself continues from its newest checkpoint. The supervisor only decides whether to start
 * it again, when, and on which hosts. It is no launcher: it starts no rank and takes no part in
 * MPI. */
#ifndef RD_SUPERVISE_H
#define RD_SUPERVISE_H

#include "rd/cli.h"

RD_C_BEGIN

/* Runs cli->launch until it succeeds, until the user asks it to stop, or until another start makes
 * no sense. Prints its decisions on standard error and appends them to the log folder's run.log.
 *
 * Returns the exit code of this process: that of the last start, as a shell gives it; 75 when the
 * run was asked to stop and saved; an rd_code when the command cannot be started at all. */
int rd_supervise(const rd_cli *cli);

RD_C_END
#endif
