/* supervise.h -- starts a launcher's command line (mpirun, srun) again after a failure:
 *
 *     run_dist --restarts=5 -- mpirun -np 4 run_dist --config_file=FILE --logdir=DIR
 *
 * The run itself goes on from its newest checkpoint; this only decides whether, when and on which hosts to start it again. It is no
 * launcher: it starts no rank itself and takes no part in MPI. */
#ifndef RD_SUPERVISE_H
#define RD_SUPERVISE_H

#include "rd/cli.h"

RD_C_BEGIN

/* Runs cli->launch until it ends well, is asked to stop, or starting it again makes no sense. Returns the exit code of this process:
 * that of the last start, as a shell gives it; 75 when the run was asked to stop and saved; an rd_code when the line cannot be started
 * at all. Says what it does on standard error and in the log folder's run.log. */
int rd_supervise(const rd_cli *cli);

RD_C_END
#endif
