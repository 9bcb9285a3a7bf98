/* trace.h -- where the time of this rank goes: seconds by what it did, for metrics and the summary at the end
 * (times.c), and the same as spans of a Chrome trace while one is asked for (trace.c).
 *
 * A rank's main thread does one thing at a time: trace_enter says what begins now, and so ends what was before. */
#ifndef RD_RUN_TRACE_H
#define RD_RUN_TRACE_H

#include "rd/status.h"
#include "rd/watch.h"
#include <stdint.h>

typedef struct rd_run rd_run;

typedef enum trace_what {
    TRACE_NONE, /* records, whatever is between steps */
    TRACE_INPUT,
    TRACE_FORWARD,
    TRACE_BACKWARD,
    TRACE_WAIT,     /* for the slowest rank, before the sum of the gradients */
    TRACE_EXCHANGE, /* the part of that sum that nothing hides */
    TRACE_UPDATE,
    TRACE_SAVE,
    TRACE_EVALUATE,
    TRACE_N
} trace_what;
const char *trace_name(trace_what what); /* "forward" */

/* ---- times.c ---- */

/* How long exchanges of one size took on this rank: the newest of them. */
enum { EXCHANGE_SIZES = 32, EXCHANGE_KEPT = 128 };
typedef struct exchange_size {
    double bytes, count;
    float kept[EXCHANGE_KEPT]; /* seconds; number i is in place i % EXCHANGE_KEPT */
} exchange_size;

typedef struct run_times {
    trace_what what; /* now, and since when */
    int64_t since_ns;
    double seconds[TRACE_N]; /* since the run began */
    exchange_size sizes[EXCHANGE_SIZES];
    int n_sizes;
    double n_exchanges;  /* also of sizes for which there was no room */
    int64_t last_end_ns; /* of an exchange */
} run_times;

/* What the exchange of the last step says of itself, on this rank. */
typedef struct step_comm {
    double total_s, exposed_s; /* exposed: what backward did not hide */
    double bytes;              /* of the float32 gradients that were summed: "size" of nccl-tests */
    double wire_bytes;         /* sent by this rank to other hosts */
    bool overlaps;             /* some of it while backward runs */
    const char *algorithm;     /* static text; NULL: not said */
} step_comm;

/* Main thread. */
void trace_enter(rd_run *r, trace_what what);
void trace_phase(rd_run *r, rd_phase phase); /* what a phase of the watch begins */
/* An exchange of gradients has ended: bytes as the float32 buffer has them. One thread of the rank at a time. */
void trace_bucket(rd_run *r, int64_t index, double bytes, int64_t begin_ns, int64_t end_ns);

/* Over the ranks, of a window of steps. */
typedef struct times_window { /* of this rank; add up steps, then gather */
    double steps, busy_s, comm_s, exposed_s, bytes, wire_bytes;
} times_window;
typedef struct rank_times {
    double min_s, mean_s,
        max_s; /* a rank's own time for a step: input, forward, backward, without waiting for others */
    int slowest;              /* the rank of max_s */
    double comm_s, exposed_s; /* of a step; the largest of a rank */
    double bytes, wire_bytes; /* of a step: summed; sent between hosts by all ranks */
    double bus_gb_per_s;      /* 2 (n - 1) / n bytes / comm_s, as nccl-tests; NAN: no exchange */
} rank_times;
double times_exchange(
    const exchange_size *e); /* seconds: the mean of the newest without the slowest twentieth */
double times_busy(const run_times *t); /* input, forward, backward so far */
/* Collective. */
rd_code times_gather(rd_run *r, const times_window *w, rank_times *out, rd_status *st);

/* ---- trace.c: --trace FILE ---- */
typedef struct run_trace run_trace;
/* Collective. Nothing happens without --trace. next_step: the first one of this run. */
rd_code trace_open(rd_run *r, int64_t next_step, rd_status *st);
/* Collective. Step number `step` begins; what was kept before may be written now. */
rd_code trace_step(rd_run *r, int64_t step, rd_status *st);
void trace_step_end(rd_run *r);
/* Collective. Writes what is kept. After the last step, or a failure that all ranks know of. */
rd_code trace_finish(rd_run *r, rd_status *st);
void trace_free(run_trace *t); /* NULL is fine */

/* For times.c. */
bool trace_active(const run_trace *t); /* NULL is fine */
void trace_span(run_trace *t, const char *name, int row, int64_t id, double bytes, int64_t begin_ns,
                int64_t end_ns);
enum { TRACE_ROW_STEPS, TRACE_ROW_EXCHANGE };

#endif
