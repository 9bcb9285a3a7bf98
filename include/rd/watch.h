/* watch.h -- one thread per rank that notices a rank that died, stopped or hangs. It never calls
 * MPI.
 *
 * Each rank writes what it is doing into memory that the ranks of its host share. The lowest
 * rank of each host reports to rank 0 over its own TCP connection. The rank that notices a
 * fault first prints which rank it is, on which host, at which step, in which phase and
 * since when. It then ends the job: with RD_EPEER (9) if the rank is gone, with RD_ESTALL
 * (8) if it makes no progress. */
#ifndef RD_WATCH_H
#define RD_WATCH_H

#include "rd/comm.h"
#include "rd/log.h"

RD_C_BEGIN

typedef enum rd_phase {
    RD_PHASE_START,    /* opens data, makes the model, loads a checkpoint */
    RD_PHASE_INPUT,    /* reads the next batch */
    RD_PHASE_COMPUTE,  /* forward and backward */
    RD_PHASE_WAIT,     /* in a sum over ranks; waits for the other ranks */
    RD_PHASE_EXCHANGE, /* in the sum of the gradients; waits for the other ranks, too */
    RD_PHASE_UPDATE,   /* optimizer, records */
    RD_PHASE_SAVE,     /* writes a checkpoint */
    RD_PHASE_EVALUATE, /* evaluation, inference */
    RD_PHASE_END,      /* done; the process may end */
    RD_N_PHASES
} rd_phase;
/* Returns the name of a phase, for example "compute". */
const char *rd_phase_name(rd_phase p);

/* ---- the rules, as pure functions ---- */

/* The state of one rank, as its watch or that of another rank sees it now. */
typedef struct rd_beat {
    int32_t rank, phase, host_index;
    int64_t step, pid;
    double age_s; /* seconds since the rank's last report */
    bool still;   /* its watch does not run either: the process is stopped, or its host swaps */
    /* Its process has ended or its host is silent, and its last report was not RD_PHASE_END. */
    bool gone;
    char host[64];
} rd_beat;

typedef struct rd_watch_limits {
    double warn_s;  /* seconds without progress until a warning; 0: never */
    double abort_s; /* seconds without progress until the job ends; 0: never */
    /* Called in the watch thread of the rank that ends the job, after the rank has printed
     * why. step: the step that this rank is at. The process ends when the function
     * returns. NULL is fine. */
    void (*ends)(void *ctx, int64_t step, const rd_status *why);
    void *ctx; /* borrowed; first argument of `ends` */
} rd_watch_limits;

typedef enum rd_verdict { RD_WATCH_FINE, RD_WATCH_WARN, RD_WATCH_STALL, RD_WATCH_LOST } rd_verdict;
/* Judges n ranks. *culprit: the index in b of the rank to blame; -1: none. *n_waiting: how many
 * ranks wait for it.
 *
 * A rank that is gone is to blame. Else, while some rank does not wait for others, the rank to
 * blame is the one of those that has been silent longest. If all wait, it is the one that is
 * furthest behind, and the time counts from the arrival of the last rank. Phases that may take long
 * (start, save, evaluate) have ten times the limits. If a limit is passed and the process of some
 * rank is stopped, that rank is to blame, whatever phase the others report: an update waits for
 * ranks, too. */
rd_verdict rd_watch_judge(const rd_beat *b, int n, const rd_watch_limits *l, int *culprit,
                          int *n_waiting);
/* Writes a sentence about the culprit *b to out, which has n bytes: "rank 3 (node2, process 812)
 * has been computing step 41 for 63 s; 7 ranks wait for it". */
void rd_watch_describe(const rd_beat *b, rd_verdict v, int n_waiting, char *out, size_t n);

/* ---- the thread ---- */
typedef struct rd_watch rd_watch;
/* Collective. Starts the watch. comm and log are borrowed and outlive *out, which the caller owns.
 * If the ranks of a host cannot share memory, or a connection cannot be made, a warning is printed
 * and that part of the watch is missing. Each host still watches its own ranks. */
rd_code rd_watch_start(rd_comm *comm, rd_log *log, const rd_watch_limits *limits, rd_watch **out,
                       rd_status *st);
/* Reports what this rank does now. Takes some 30 ns. Only the main thread
 * calls it. NULL is fine. */
void rd_watch_beat(rd_watch *w, rd_phase phase, int64_t step);
/* Reports that this rank will end the job with this code and has printed why. The watch
 * of the other ranks then prints nothing; it ends the job after two seconds if this rank
 * does not. NULL is fine. */
void rd_watch_leaving(rd_watch *w, rd_code code);
/* Waits until another rank has reported its failure, at most 5 s. A rank whose failure is RD_EPEER
 * calls it before it reports. The watch then ends the job with the code of the rank that failed
 * first, or because a rank is gone, and this function does not return. NULL is fine. */
void rd_watch_yield(rd_watch *w);
/* Reports RD_PHASE_END, joins the thread and frees the watch. Not collective. NULL is fine. */
void rd_watch_stop(rd_watch *w);

RD_C_END
#endif
