/* watch.h -- a thread per rank that never calls MPI and notices a rank that died, stopped or hangs.
 *
 * Ranks write what they are doing into memory that the ranks of their host share; the lowest rank of each host tells
 * rank 0 over a TCP connection of its own. Whoever notices first says which rank it is, on which host, at which step and
 * phase, and since when, and ends the job: RD_EPEER (9) for one that is gone, RD_ESTALL (8) for one that makes no
 * progress. */
#ifndef RD_WATCH_H
#define RD_WATCH_H

#include "rd/comm.h"
#include "rd/log.h"

RD_C_BEGIN

typedef enum rd_phase {
    RD_PHASE_START,    /* opening data, making the model, loading a checkpoint */
    RD_PHASE_INPUT,    /* the next batch */
    RD_PHASE_COMPUTE,  /* forward and backward */
    RD_PHASE_WAIT,     /* in a sum over ranks: waits for the others */
    RD_PHASE_EXCHANGE, /* in the sum of the gradients: waits for the others, too */
    RD_PHASE_UPDATE,   /* optimizer, records */
    RD_PHASE_SAVE,     /* checkpoint */
    RD_PHASE_EVALUATE, /* evaluation, inference */
    RD_PHASE_END,      /* done: may vanish */
    RD_N_PHASES
} rd_phase;
const char *rd_phase_name(rd_phase p); /* "computing" */

/* ---- the rules, pure functions ---- */
typedef struct rd_beat { /* of one rank, as seen now */
    int32_t rank, phase, host_index;
    int64_t step, pid;
    double age_s; /* since the rank last said something */
    bool still;   /* its watch does not run either: the process is stopped, or its machine swaps */
    bool
        gone; /* its process has ended, or its host cannot be heard, and it had not said RD_PHASE_END */
    char host[64];
} rd_beat;

typedef struct rd_watch_limits {
    double warn_s, abort_s; /* without progress; 0: never */
    /* May be NULL. Called in the watch's thread by the rank whose watch ends the job, after it has said why: step is the one this rank is
     * at. The process ends when it returns. */
    void (*ends)(void *ctx, int64_t step, const rd_status *why);
    void *ctx;
} rd_watch_limits;

typedef enum rd_verdict { RD_WATCH_FINE, RD_WATCH_WARN, RD_WATCH_STALL, RD_WATCH_LOST } rd_verdict;
/* Looks at all ranks. Ranks that wait for others are not to blame while one does not wait; of those the one that has
 * been silent longest is, where all wait: since the last of them came. Phases that may take long (start, save, evaluate)
 * have ten times the limits. When one of these limits is passed and a rank's process stands still, that one is to blame, whatever the
 * others say they do: an update, too, waits for ranks. *culprit: index into b; *n_waiting: ranks that wait. */
rd_verdict rd_watch_judge(const rd_beat *b, int n, const rd_watch_limits *l, int *culprit,
                          int *n_waiting);
/* "rank 3 (node2, process 812) has been computing step 41 for 63 s; 7 ranks wait for it" */
void rd_watch_say(const rd_beat *b, rd_verdict v, int n_waiting, char *out, size_t n);

/* ---- the thread ---- */
typedef struct rd_watch rd_watch;
/* Collective. comm and log are borrowed and outlive *out. A host whose ranks cannot share memory, and a connection that
 * cannot be made, cost a warning and that part of the watch: each host still watches its own ranks. */
rd_code rd_watch_start(rd_comm *comm, rd_log *log, const rd_watch_limits *limits, rd_watch **out,
                       rd_status *st);
/* This rank is at work: some 30 ns. NULL is fine. Of the rank's main thread. */
void rd_watch_beat(rd_watch *w, rd_phase phase, int64_t step);
/* This rank is about to end the job with this code, and has said why: the others' watch stays silent, and ends it in two seconds if
 * this rank does not come to that. NULL is fine. */
void rd_watch_leaving(rd_watch *w, rd_code code);
/* Says RD_PHASE_END and joins the thread. Not collective. NULL is fine. */
void rd_watch_stop(rd_watch *w);

RD_C_END
#endif
