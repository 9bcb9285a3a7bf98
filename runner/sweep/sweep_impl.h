/* sweep_impl.h -- what the files of a sweep share: its runs, where they run, and their
 * processes. */
#ifndef RD_SWEEP_IMPL_H
#define RD_SWEEP_IMPL_H

#include "rd/cli.h"
#include "rd/log.h"
#include "rd/strbuf.h"

#include <jansson.h>
#include <sched.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- sweep_spec.c: from the words of --sweep to a list of runs ---- */

enum { SWEEP_MOST_RUNS = 10000 };

typedef struct sweep_run {
    json_t *set;    /* owned; key -> text behind --set key=, in the order of the command line */
    json_t *drop;   /* owned; an object of the config's keys that this run has not; NULL: none */
    char *name;     /* owned; name of its folder: letters, digits and "._+-=,~" */
    char *folder;   /* owned; its log folder */
    uint64_t hash;  /* of its command and its config */
    int code;       /* how it ended, as a shell gives it; -1: not yet */
    int64_t paused; /* step at which it waits for the comparison of its round; -1: none */
    bool out;       /* left behind by halving */
} sweep_run;

typedef struct sweep_list {
    sweep_run *at; /* owned */
    int n, cap;
    int decided; /* number of rounds of halving that were compared */
} sweep_list;

/* Makes the runs, without folders. RD_EUSAGE: the words say no sweep; the message says what to
 * write. The caller releases *out, also after a failure. */
rd_code sweep_spec_read(const rd_cli *cli, sweep_list *out, rd_status *st);
void sweep_list_release(sweep_list *l);
/* Returns a text that is equal for equal values: 1e-3 and 0.001. The caller frees it. */
char *sweep_canonical(const char *value);

/* ---- sweep_name.c ---- */

enum { SWEEP_MOST_NAME = 140 };
/* Names all runs by their keys and values. The names are safe for shells and differ even where
 * case does not count. */
rd_code sweep_name_all(sweep_list *l, rd_status *st);

/* ---- sweep_state.c: sweep.json, what the next start of the command needs ---- */

/* Fills code and paused of each run from sweep.json where its command was the same; also out and
 * decided if that holds for all runs and for halving. halving: its flag; NULL: not given. */
void sweep_state_read(const char *root, const char *halving, sweep_list *l);
rd_code sweep_state_write(const char *root, const char *halving, const sweep_list *l,
                          rd_status *st);

/* ---- sweep_lanes.c: where runs run ---- */

/* A place for one run at a time. */
typedef struct sweep_lane {
    bool pinned; /* the run may use these cores alone */
    cpu_set_t cores;
    char **launcher; /* owned; words before the program; NULL-terminated; NULL: none */
    char gpus[256];  /* CUDA_VISIBLE_DEVICES of the run; "": as it is */
    int busy;        /* index of its run; -1: free */
    pid_t pid;
    int64_t start_ns;
} sweep_lane;

typedef struct sweep_lanes {
    sweep_lane *at; /* owned */
    int n, ranks;   /* ranks of each run */
    char about[200];
} sweep_lanes;

/* Divides what this host, --hosts or the Slurm allocation has among at most n_runs runs. c: the
 * config of a run. RD_EUSAGE: there is no room for one run. */
rd_code sweep_lanes_make(const rd_cli *cli, const rd_config *c, int n_runs, sweep_lanes *out,
                         rd_status *st);
void sweep_lanes_release(sweep_lanes *l);
/* Makes this process free of the launcher that started it, so that it can start others. *ranks:
 * number of ranks that mpirun started; 0: none did. RD_EUSAGE: that launcher cannot be used. */
rd_code sweep_lanes_leave_job(int *ranks, rd_status *st);

/* ---- sweep_pool.c: processes and signals ---- */

typedef struct sweep_pool {
    int stop_signal; /* the first signal that asked to stop; 0: none */
    int n_stops;
    int64_t stop_ns;
    sweep_lanes *lanes; /* borrowed */
} sweep_pool;

/* Blocks the signals that sweep_pool_wait handles, and makes this process the parent of orphans. */
void sweep_pool_prepare(void);
/* Starts a command on a lane. Its output is appended to the file out. */
rd_code sweep_pool_start(sweep_lane *lane, char *const *words, const char *out, rd_status *st);
/* Waits at most `seconds` for a process to end, and passes signals on. Returns its lane, which is
 * still busy, and *status as a shell gives it; NULL: none has ended. */
sweep_lane *sweep_pool_wait(sweep_pool *p, double seconds, int *status);

/* ---- sweep_command.c: the command line of a run ---- */

/* A list of words that ends with NULL. */
typedef struct sweep_words {
    char **at; /* owned */
    int n;
    bool failed;
} sweep_words;
void sweep_words_add(sweep_words *w, const char *fmt, ...) RD_PRINTF(2, 3);
void sweep_words_release(sweep_words *w);
/* What all commands have in common. */
typedef struct sweep_common {
    const rd_cli *cli;
    char program[4096]; /* its path */
    int64_t eval_every; /* halving sets eval_frequency; 0: it does not */
} sweep_common;
/* Appends the command of a run. stop_at: the step of --stop_at_step; 0: none. */
void sweep_command(const sweep_common *c, const sweep_run *run, int64_t stop_at, sweep_words *out);
/* Returns a hash of the run's command and of the bytes of the config files. */
uint64_t sweep_command_hash(const sweep_common *c, const sweep_run *run, const rd_strbuf *files);
/* Writes the path of this program. */
rd_code sweep_command_program(char out[4096], rd_status *st);

/* ---- sweep_slurm.c ---- */

/* Writes a batch script with one task of a job array for each run. at_once: most tasks at a time;
 * 0: no limit. */
rd_code sweep_slurm_write(const sweep_common *c, const char *path, const sweep_list *l, int ranks,
                          int at_once, rd_status *st);

/* ---- sweep_halving.c ---- */

typedef struct sweep_rounds {
    int64_t steps; /* of the first round; 0: no halving */
    int64_t factor;
} sweep_rounds;
/* Reads --sweep_halving. */
rd_code sweep_rounds_read(const rd_cli *cli, const rd_config *c, sweep_rounds *out, rd_status *st);
/* Returns the last step of round k; 0: the round has no limit, since at most one run is left or the
 * training ends there. n: number of runs in it. */
int64_t sweep_rounds_limit(const sweep_rounds *r, const rd_cli *cli, int k, int n);
/* Compares the runs that are in by their evaluations up to the step, and marks those that are left
 * behind. RD_EUSAGE: no run has an evaluation by then. */
rd_code sweep_rounds_decide(const sweep_rounds *r, sweep_list *l, int64_t step, rd_log *log,
                            rd_status *st);

#endif
