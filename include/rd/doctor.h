/* doctor.h -- preflight: what would make a run hang, crash or crawl is found, named, and given its remedy, before
 * training.
 *
 * Many faults of a network of hosts make MPI itself hang or crash without a word. So there are three ways in, none of
 * which trusts MPI with what it has not tested: rd_doctor_hosts starts without MPI, asks each host over ssh, and lets
 * mpirun run only when that was clean; rd_doctor_ranks is the same program inside the job; rd_doctor_before_mpi is the
 * part that costs next to nothing, at the start of every run. */
#ifndef RD_DOCTOR_H
#define RD_DOCTOR_H

#include "rd/cli.h"
#include "rd/comm.h"
#include "rd/options.h"
#include "rd/strbuf.h"

RD_C_BEGIN

/* In a rank, before MPI starts, in a millisecond or so, without talking to anybody: settings with which MPI is known to
 * hang. RD_EENV with the remedy. What may be fine goes to *warnings, a line each. Nothing to say without a launcher. */
rd_code rd_doctor_before_mpi(rd_strbuf *warnings, rd_status *st);

bool rd_doctor_speaks_for_host(
    void); /* is this the first rank of its host, as the launcher counts? */

/* A thread that looks on while MPI connects the ranks, for that has no time limit of its own: after warn_s it says what
 * is amiss and how to find out, after abort_s it ends the process with RD_EENV (0: never). NULL: no thread was to be
 * had, and nobody looks on. */
typedef struct rd_guard rd_guard;
rd_guard *rd_guard_new(double warn_s, double abort_s);
/* What the job is at from now on, a text that lives on for the message; the time begins anew, with limits of its own.
 */
void rd_guard_phase(rd_guard *g, const char *what, double warn_s, double abort_s);
void rd_guard_free(rd_guard *g); /* looks on no longer; NULL is fine */

/* Should this process only answer the doctor of another host, on standard input and output? Then rd_doctor_agent does.
 */
bool rd_doctor_is_agent(void);
rd_code rd_doctor_agent(const char *versions, rd_status *st);

/* Not collective, without MPI: --hosts or --hostfile. The report goes to standard output. RD_EENV: a check failed;
 * RD_EDISAGREE: hosts differ; RD_EUSAGE: the list is wrong. */
rd_code rd_doctor_hosts(const rd_cli *cli, rd_status *st);

/* Collective, after MPI is up. config may be NULL; groups: those that a training reads. The report goes to standard
 * output of rank 0. unread: why the config could not be read, if so. The same status on all ranks, codes as above. */
rd_code rd_doctor_ranks(rd_comm *comm, rd_guard *guard, const rd_cli *cli, rd_config *config,
                        const rd_status *unread, const rd_option_group *const *groups, int n_groups,
                        const char *versions, rd_status *st);

RD_C_END
#endif
