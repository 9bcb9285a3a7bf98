/* launch_impl.h -- what the files of the launcher share: the line that starts the ranks, and what
 * it prints. */
#ifndef RD_LAUNCH_IMPL_H
#define RD_LAUNCH_IMPL_H

#include "../doctor/doctor_impl.h"
#include "rd/log.h"

#include <pthread.h>

/* ---- start_line.c ---- */

/* Who starts the ranks. */
typedef enum start_way { START_MPIRUN, START_SRUN } start_way;

/* What the line depends on. Texts are borrowed. */
typedef struct start_facts {
    start_way way;
    int major;              /* of Open MPI: 4, 5 */
    bool root;              /* the user is root */
    int64_t np;             /* number of ranks */
    const doc_hosts *hosts; /* n = 0: this host, or the hosts of the batch system */
    bool batch;             /* a batch system names the hosts */
    const char *network;    /* network between the hosts; "": any */
    bool yield;             /* a host has more ranks than CPUs */
    bool input;             /* rank 0 reads standard input */
    const char *mpi;        /* plugin of srun: "pmix" */
    const char *program;    /* path of this program */
} start_facts;

/* A list of words, which ends with NULL. */
typedef struct start_words {
    char **at; /* [n], owned, as the words are */
    int n, cap;
    bool failed; /* out of memory */
} start_words;

/* Makes the whole line: launcher, settings, program, cli->pass. RD_EUSAGE: words of --mpirun_args
 * that cannot be read. The caller calls start_words_free, also after a failure. */
rd_code start_line(const start_facts *f, const rd_cli *cli, start_words *out, rd_status *st);
void start_words_free(start_words *w);

/* Reads the hosts of cli and deals cli->np ranks to them, if they name no slots. *np: number of
 * ranks. RD_EUSAGE: a wrong list, or more ranks than slots. */
rd_code start_hosts(const rd_cli *cli, doc_hosts *out, int64_t *np, rd_status *st);

/* Reads the major version in the text of `mpirun --version`: 4 of "Open MPI 4.1.4". 0: another MPI,
 * or older than 4.1. */
int start_major(const char *version);

/* ---- start_output.c ---- */

/* Passes on what the launcher prints on standard error, without the launcher's own texts. */
typedef struct start_output {
    int from, to;       /* descriptors: read from, passed on to */
    bool all;           /* pass everything on */
    int columns;        /* of the terminal that shows it; 0: no terminal */
    bool colours;       /* the terminal has colours */
    rd_strbuf line;     /* the line that has not ended yet; owned */
    size_t passed;      /* bytes of `line` that were passed on already */
    bool in_block;      /* between two rulers of Open MPI */
    rd_strbuf block;    /* the text between them so far; owned */
    rd_strbuf kept;     /* the launcher's own texts, with rulers around blocks; owned */
    rd_strbuf cause;    /* first error of a rank, "run_dist: error: ..."; owned */
    bool held;          /* the error says that a rank is gone, and was not passed on */
    bool cause_is_last; /* nothing was passed on after it */
    int stop[2];        /* a pipe that ends the thread */
    pthread_t thread;
    bool running;
} start_output;

/* Takes n bytes. */
void start_output_take(start_output *o, const char *s, size_t n);
/* Ends the text: a line without an end is passed on, a block without an end is kept. */
void start_output_end(start_output *o);
/* Starts a thread that reads o->from. */
bool start_output_thread(start_output *o);
/* Reads what is there, and ends the thread. */
void start_output_join(start_output *o);
void start_output_release(start_output *o);

/* Writes which rank was ended by a signal: "mpirun noticed that process rank 1 with PID 0 on node
 * node2 exited on signal 9 (Killed)." Returns false if the text says nothing of it. */
bool start_cause_signal(const char *kept, char out[700]);
/* Returns whether mpirun says that it has lost a host. */
bool start_lost(const char *kept);
/* Writes why the run ended, from the launcher's own texts, as "what; what to do". *code: changed if
 * the texts show that the launcher's code means one of this program: a lost host is RD_EPEER. */
void start_cause(const char *kept, int status, int *code, char out[700]);

#endif
