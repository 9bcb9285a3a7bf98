/* supervise_impl.h -- what the files of the supervisor share: the command line it was given, and the process it starts. */
#ifndef RD_SUPERVISE_IMPL_H
#define RD_SUPERVISE_IMPL_H

#include "rd/log.h"
#include "rd/status.h"
#include "rd/strbuf.h"

#include <stdint.h>
#include <sys/types.h>

/* ---- supervise_line.c: reads a launcher's line and leaves hosts out of it ---- */

typedef struct launch_host {
    char name[256];
    int64_t slots; /* 0: the line does not say */
    bool local;    /* this host: needs no ssh, and is alive */
    bool dead;
} launch_host;

typedef struct launch_line {
    char *const *argv; /* borrowed; argv[n] is NULL */
    int n;
    bool
        own_launcher; /* argv[0] is mpirun or a kin of it, or srun: it hands signals on to all ranks */
    bool several;     /* programs, divided by ':' */
    const char *logdir; /* borrowed; NULL: none in the line */
    /* Where the values of mpirun's options are: the index of the word, and what in it comes before the value. -1: not given. */
    int hosts_at, file_at, np_at;
    size_t hosts_skip, file_skip, np_skip;
    const char *agent, *agent_args; /* borrowed; how mpirun reaches other hosts */
    launch_host *host;              /* owned, in the order of the line; filled by launch_hosts */
    int n_hosts;
} launch_line;

void launch_read(char *const *argv, int n, launch_line *out); /* needs launch_release afterwards */
void launch_release(launch_line *l);
/* Fills host from -H or --hostfile. RD_EUSAGE: none is named there, or several programs divide the ranks. */
rd_code launch_hosts(launch_line *l, rd_status *st);
/* The words of the ssh that looks at a host; *words is owned, NULL-terminated, its strings are in *text. false: hosts are not reached
 * by ssh. */
bool launch_probe(const launch_line *l, const char *host, rd_strbuf *text, char ***words);
/* Ranks that fit on the living hosts, at most np. */
int64_t launch_fit(const launch_line *l, int64_t np);
/* The line without its dead hosts; all alive: the line itself. */
typedef struct launch_words {
    char **argv;      /* owned array; NULL-terminated */
    char *hosts, *np; /* owned words of it, NULL: unchanged */
    char file[4096];  /* a hostfile made for it; "": none. Removed by launch_words_release. */
    int n_dead;
    int64_t n_ranks; /* 0: the line does not say how many */
} launch_words;
rd_code launch_without_dead(const launch_line *l, launch_words *out, rd_status *st);
void launch_words_release(launch_words *w);

/* ---- supervise_child.c: the process that is started, and what it leaves behind ---- */

typedef struct child {
    pid_t pid; /* and process group; 0: none */
    bool own_launcher;
    int stop_signal; /* we were asked to stop by this one; 0: no */
    int n_stops;     /* how often */
    int64_t stop_ns; /* when first */
} child;

/* Blocks the signals that child_wait and child_pause take, and makes orphans come to us. */
void child_prepare(void);
/* RD_EUSAGE: there is no such program. */
rd_code child_start(child *c, char *const *argv, rd_status *st);
/* Until it has ended; hands signals on meanwhile. As a shell gives it: its exit status, or 128 + signal. */
int child_wait(child *c);
/* Ends what it has left on this host: waits for it, then asks, then kills. */
void child_clear(child *c);
/* Waits so long; false: asked to stop. */
bool child_pause(child *c, double seconds);
/* Runs all of these at a time, without a terminal, and leaves their statuses: as child_wait gives them, -1 for what was not done in
 * time and was killed. false: asked to stop. */
bool child_run_all(child *c, char **const *argv, int n, double seconds, int *status);

/* ---- supervise.c, for its test ---- */

/* What a status of a run means, in words; *again: is starting it again of any use? */
const char *supervise_meaning(int status, bool *again, char text[160]);

#endif
