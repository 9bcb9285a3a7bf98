/* supervise_impl.h -- what the files of the supervisor share: the command line that it supervises,
 * and the process that it starts. */
#ifndef RD_SUPERVISE_IMPL_H
#define RD_SUPERVISE_IMPL_H

#include "rd/hostname.h"
#include "rd/log.h"
#include "rd/status.h"
#include "rd/strbuf.h"

#include <stdint.h>
#include <sys/types.h>

/* ---- supervise_line.c: reads a launcher's line and leaves hosts out of it ---- */

typedef struct launch_host {
    char name[RD_USER_BYTES + RD_HOST_BYTES]; /* as ssh gets it: name or user@name */
    int64_t slots;                            /* 0: the line does not say */
    bool local;                               /* this host: needs no ssh, and is alive */
    bool dead;
} launch_host;

typedef struct launch_line {
    char *const *argv; /* borrowed; argv[n] is NULL */
    int n;
    /* argv[0] is mpirun, a relative of it, or srun: it passes signals on to all ranks */
    bool own_launcher;
    bool several;       /* several programs, divided by ':' */
    const char *logdir; /* borrowed; NULL: none in the line */
    /* Where the values of mpirun's options are: the index of the argument, and the number of
     * characters before the value. -1: not given. */
    int hosts_at, file_at, np_at;
    size_t hosts_skip, file_skip, np_skip;
    const char *agent, *agent_args; /* borrowed; how mpirun reaches other hosts */
    launch_host *host;              /* owned; in the order of the line; filled by launch_hosts */
    int n_hosts;
    int64_t n_slots; /* sum of the slots that the line says, at most RD_MOST_RANKS */
} launch_line;

/* Reads the line. The caller calls launch_release. */
void launch_read(char *const *argv, int n, launch_line *out);
void launch_release(launch_line *l);

/* Fills host from -H or --hostfile. RD_EUSAGE: the line names no host, or several programs divide
 * the ranks. */
rd_code launch_hosts(launch_line *l, rd_status *st);

/* Makes the ssh command that probes a host. *words: owned, NULL-terminated; its strings are in
 * *text. False: hosts are not reached by ssh. */
bool launch_probe(const launch_line *l, const char *host, rd_strbuf *text, char ***words);

/* Returns the number of ranks that fit on the living hosts, at most np. */
int64_t launch_fit(const launch_line *l, int64_t np);

/* A line without its dead hosts. */
typedef struct launch_words {
    char **argv;      /* owned array; NULL-terminated */
    char *hosts, *np; /* owned arguments of it; NULL: unchanged */
    char file[4096];  /* a temporary hostfile; "": none; launch_words_release removes it */
    int n_dead;
    int64_t n_ranks; /* 0: the line does not say how many */
} launch_words;

/* Writes the line without its dead hosts; where all are alive, the line itself. */
rd_code launch_without_dead(const launch_line *l, launch_words *out, rd_status *st);
void launch_words_release(launch_words *w);

/* ---- supervise_child.c: the process that is started, and what it leaves behind ---- */

typedef struct child {
    pid_t pid; /* and process group; 0: none */
    bool own_launcher;
    /* The process gets `in` and `err` as standard input (-1: /dev/null) and standard error, and
     * USR2 when this process dies. False: /dev/null, this process's standard error, and TERM. */
    bool streams;
    int in, err;     /* borrowed descriptors */
    int stop_signal; /* first signal that asked to stop; 0: none */
    int n_stops;     /* number of stop requests */
    int64_t stop_ns; /* time of the first one */
} child;

/* Blocks the signals that child_wait and child_pause handle, and makes this process the parent of
 * orphans. */
void child_prepare(void);

/* Starts a process in its own group. RD_EUSAGE: there is no such program. */
rd_code child_start(child *c, char *const *argv, rd_status *st);

/* Waits until the process has ended, and passes signals on meanwhile. Returns its status as a shell
 * gives it: the exit status, or 128 + signal. */
int child_wait(child *c);

/* Ends what the process left behind on this host: waits, then sends TERM, then KILL. */
void child_clear(child *c);

/* Waits `seconds`. False: asked to stop. */
bool child_pause(child *c, double seconds);

/* Runs n commands at the same time, without a terminal. *status: as from child_wait; -1: killed
 * after `seconds`. False: asked to stop. */
bool child_run_all(child *c, char **const *argv, int n, double seconds, int *status);

/* ---- supervise.c, for its test ---- */

/* Describes an exit status of a run in words. *again: can another start help? */
const char *supervise_meaning(int status, bool *again, char text[160]);

#endif
