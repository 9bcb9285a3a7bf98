/* doctor.h -- preflight checks: find what would make a run hang, crash or crawl before it trains.
 *
 * Each finding names the fault and gives its remedy. Many faults of a network of hosts make MPI
 * itself hang or crash without a message. The doctor therefore has three entry points. None of them
 * relies on a part of MPI that it has not tested yet:
 *
 *   rd_doctor_hosts        starts without MPI and examines each host over ssh. It starts mpirun
 *                          only if no host has a fault.
 *   rd_doctor_ranks        is the same program inside the job.
 *   rd_doctor_before_mpi   is the part that takes almost no time. Every run calls it first. */
#ifndef RD_DOCTOR_H
#define RD_DOCTOR_H

#include "rd/cli.h"
#include "rd/comm.h"
#include "rd/options.h"
#include "rd/strbuf.h"

RD_C_BEGIN

/* Checks this rank for settings with which MPI is known to hang. Each rank calls it before MPI
 * starts. It takes about a millisecond and communicates with nobody. RD_EENV: such a setting was
 * found; the message has the remedy. Settings that may be fine are added to *warnings, one per
 * line. Without a launcher, or on one host, nothing is checked. */
rd_code rd_doctor_before_mpi(rd_strbuf *warnings, rd_status *st);

/* Returns whether this process is the first rank of its host, by the launcher's numbers. */
bool rd_doctor_speaks_for_host(void);

/* A thread that limits how long a phase of the start may take. MPI itself has no time limit while
 * it connects the ranks. */
typedef struct rd_guard rd_guard;

/* Starts the thread. After warn_s seconds rank 0 prints which phase hangs, usual causes, and the
 * command that finds the cause. After abort_s seconds (0: never) the process ends with RD_EENV.
 * Returns NULL if the launcher started fewer than two ranks, or if no thread can be started; there
 * is no time limit then. The caller frees the guard with rd_guard_free. */
rd_guard *rd_guard_new(double warn_s, double abort_s);

/* Begins a new phase with its own limits in seconds, counted from now. what: text for the message,
 * such as "MPI has been connecting the ranks"; borrowed until the next phase or rd_guard_free.
 * g: NULL is allowed. */
void rd_guard_phase(rd_guard *g, const char *what, double warn_s, double abort_s);

/* Begins the phase from the end of MPI_Init to the start of the watch. A crash is not explained by
 * MPI any more. g: NULL is allowed. */
void rd_guard_connected(rd_guard *g);

/* Stops the thread and frees the guard. NULL is allowed. */
void rd_guard_free(rd_guard *g);

/* Returns whether the doctor of another host started this process to answer its requests on
 * standard input and output. If so, the process calls rd_doctor_agent and does nothing else. */
bool rd_doctor_is_agent(void);

/* Answers requests until standard input ends, for at most 90 seconds. versions: the text of
 * --version, borrowed. */
rd_code rd_doctor_agent(const char *versions, rd_status *st);

/* Examines the hosts of --hosts or --hostfile, and then a job on them. Not collective; called
 * without MPI. The report is printed to standard output.
 * RD_EENV: a check failed. RD_EDISAGREE: hosts differ. RD_EUSAGE: the list of hosts is wrong. */
rd_code rd_doctor_hosts(const rd_cli *cli, rd_status *st);

/* Examines the ranks of a job. Collective, after MPI has started. Rank 0 prints the report to
 * standard output.
 * guard: NULL is allowed. config: the config, NULL if there is none. unread: why the config could
 * not be read, with code RD_OK if it was read. groups[n_groups]: the option groups that a training
 * reads. versions: the text of --version. All of them are borrowed.
 * All ranks return the same status, with the codes of rd_doctor_hosts. */
rd_code rd_doctor_ranks(rd_comm *comm, rd_guard *guard, const rd_cli *cli, rd_config *config,
                        const rd_status *unread, const rd_option_group *const *groups, int n_groups,
                        const char *versions, rd_status *st);

RD_C_END
#endif
