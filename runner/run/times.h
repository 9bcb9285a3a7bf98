/* times.h -- where the time of this rank goes: seconds by activity, exchanges by size, and both
 * over all ranks.
 *
 * The main thread of a rank does one thing at a time. times_enter begins an activity, and so ends
 * the one before. While trace.c traces steps, each activity also becomes a span. */
#ifndef RD_RUN_TIMES_H
#define RD_RUN_TIMES_H

#include "rd/status.h"
#include "rd/watch.h"
#include "run_types.h"
#include <stdint.h>

typedef enum times_activity {
    TIMES_NONE, /* records, and all else between steps */
    TIMES_INPUT,
    TIMES_FORWARD,
    TIMES_BACKWARD,
    TIMES_WAIT,     /* waiting for the slowest rank before the sum of the gradients */
    TIMES_EXCHANGE, /* the part of the sum that backward does not hide */
    TIMES_UPDATE,
    TIMES_SAVE,
    TIMES_EVALUATE,
    TIMES_N
} times_activity;

/* Returns the name of an activity in a trace: "forward". */
const char *times_activity_name(times_activity what);

/* ---- what this rank did ---- */

/* The newest exchanges of one size on this rank. */
enum { EXCHANGE_SIZES = 32, EXCHANGE_KEPT = 128 };
typedef struct exchange_size {
    double bytes;              /* size of the float32 gradients */
    double count;              /* number of exchanges of this size */
    float kept[EXCHANGE_KEPT]; /* seconds; exchange number i is at index i % EXCHANGE_KEPT */
} exchange_size;

/* A traced interval of this rank, by its own clock. */
enum { SPAN_ROW_STEPS, SPAN_ROW_EXCHANGE };
typedef struct trace_span {
    const char *name; /* static text */
    int64_t begin_ns, end_ns;
    int64_t id;   /* number behind the name; -1: none */
    double bytes; /* 0: not shown */
    int row;      /* SPAN_ROW_... */
} trace_span;

/* Spans since the last write to the trace file. trace.c owns the memory. */
typedef struct span_list {
    bool active;    /* spans are recorded now */
    trace_span *at; /* [capacity]; NULL: this run has no trace */
    int64_t n, capacity;
    int64_t dropped; /* number of spans beyond the capacity */
} span_list;

typedef struct run_times {
    times_activity what;     /* present activity */
    int64_t since_ns;        /* its begin; 0: none yet */
    double seconds[TIMES_N]; /* by activity, since the run began */
    exchange_size sizes[EXCHANGE_SIZES];
    int n_sizes;
    double n_exchanges;  /* number of exchanges, those of sizes beyond EXCHANGE_SIZES included */
    int64_t last_end_ns; /* end of the last exchange */
    span_list spans;
} run_times;

/* The exchange of the last step, as this rank measured it. */
typedef struct step_comm {
    double total_s;
    double exposed_s;      /* the part that backward did not hide */
    double bytes;          /* of the float32 gradients that were summed: "size" of nccl-tests */
    double wire_bytes;     /* sent by this rank to other hosts */
    bool overlaps;         /* buckets are sent while backward runs */
    const char *algorithm; /* static text; NULL: not known */
} step_comm;

/* Ends the present activity and begins another. Main thread only. */
void times_enter(rd_run *r, times_activity what);

/* Begins the activity that belongs to a phase of the watch. Phases without an activity change
 * nothing. */
void times_phase(rd_run *r, rd_phase phase);

/* Records an exchange of gradients that has ended. bytes: size of the float32 buffer. One thread of
 * the rank at a time. */
void times_bucket(rd_run *r, int64_t index, double bytes, int64_t begin_ns, int64_t end_ns);

/* Adds a span, or counts it as dropped where the list is full. */
void times_span(run_times *t, const char *name, int row, int64_t id, double bytes, int64_t begin_ns,
                int64_t end_ns);

/* Returns the seconds of an exchange: the mean of the newest ones without the slowest twentieth. */
double times_exchange(const exchange_size *e);

/* Returns the seconds of input, forward and backward since the run began. */
double times_busy(const run_times *t);

/* ---- over the ranks ---- */

/* Sums over a window of steps on this rank. */
typedef struct times_window {
    double steps, busy_s, comm_s, exposed_s, bytes, wire_bytes;
    double wall_s; /* length of the window, with what comes between steps */
} times_window;

typedef struct rank_times {
    /* A rank's own time for a step: input, forward and backward, without waiting for other
     * ranks. */
    double min_s, mean_s, max_s;
    int slowest;              /* the rank of max_s */
    double comm_s, exposed_s; /* per step, of the rank with the largest value */
    double exposed_share;     /* exposed_s as a share of a rank's time; the largest of a rank */
    double bytes;             /* summed per step */
    double wire_bytes;        /* sent between hosts per step, by all ranks */
    double bus_gb_per_s;      /* 2 (n - 1) / n bytes / comm_s, as nccl-tests; NAN: no exchange */
} rank_times;

/* Collective. Gathers the windows of all ranks. */
rd_code times_gather(rd_run *r, const times_window *w, rank_times *out, rd_status *st);

#endif
