/* gpu_graph.h -- work for a GPU that recurs, started all at once (CUDA graphs).
 *
 * Launches cost the host some microseconds each, which is most of a step of a small model. Between rd_graphs_begin and
 * rd_graphs_end nothing is launched at once: the program runs as always, and each piece of work (a task: a function and
 * its arguments as bytes) is written down. When the host needs a result (rd_graphs_flush), the tasks since the last
 * such place, a segment, are started together: the first time under a key one by one; the second time a graph is made
 * of them; from then on each task is compared with the one at its place in the graph. Arguments that differ (a learning
 * rate, the key of a mask, an address) are set in the graph before it is started. Where a task is another one (the
 * program took another way), the segment's tasks so far and all further ones are launched one by one, in their order.
 * So no graph is ever started with an argument of an earlier step, whatever the key leaves out; a key that leaves out
 * much only costs time.
 *
 * Small arrays of the host (ids, lengths) go up as one: their bytes are gathered in a letter, which is copied to an
 * address of the graph's own; in the graph a copy on the device takes each piece where it belongs, at its turn.
 *
 * No type of CUDA here: what a graph is, its maker knows. Not thread-safe. */
#ifndef RD_GPU_GRAPH_H
#define RD_GPU_GRAPH_H

#include "rd/gpu.h"

RD_C_BEGIN

/* Queues one task on the stream. args: the bytes that it was given with, 16-byte aligned. */
typedef rd_code rd_gpu_run(rd_gpu *g, const void *args, rd_status *st);

/* Arguments of a task without a function: bytes of the letter, from its byte `from` on, go to device memory. */
typedef struct rd_gpu_post {
    void *to;
    uint64_t from, bytes;
} rd_gpu_post;

typedef struct rd_gpu_task {
    rd_gpu_run *run;       /* NULL: an rd_gpu_post */
    uint32_t bytes, fixed; /* of the arguments; how many of these a graph cannot change */
    size_t at;             /* of the arguments in the list's bytes */
    bool changed;          /* the graph has other arguments than the list */
} rd_gpu_task;

typedef struct rd_gpu_tasks {
    rd_gpu_task *task;
    int n, cap;
    unsigned char *args;
    size_t used, room;
} rd_gpu_tasks;

static inline const void *rd_gpu_args(const rd_gpu_tasks *t, int i)
{
    return t->args + t->task[i].at;
}

typedef struct rd_gpu_graph rd_gpu_graph; /* the maker's */
typedef struct rd_graph_maker {
    /* A graph of all tasks, in their order; *bytes: of device memory. letter: bytes that its letter has room for. A
     * failure is of this graph alone. */
    rd_code (*make)(rd_gpu *g, const rd_gpu_tasks *t, size_t letter, rd_gpu_graph **out,
                    uint64_t *bytes, rd_status *st);
    /* Task i has other arguments from now on. A failure is of this graph alone. */
    rd_code (*set)(rd_gpu *g, rd_gpu_graph *q, int i, const rd_gpu_task *task, const void *args,
                   rd_status *st);
    rd_code (*start)(rd_gpu *g, rd_gpu_graph *q, const void *letter, size_t bytes, rd_status *st);
    void (*drop)(rd_gpu *g, rd_gpu_graph *q); /* waits */
    rd_code (*up)(rd_gpu *g, void *device, const void *host, size_t bytes,
                  rd_status *st); /* at once */
} rd_graph_maker;

typedef struct rd_graphs rd_graphs;
/* g and m are borrowed. The caller owns *out. */
rd_code rd_graphs_new(rd_gpu *g, const rd_graph_maker *m, rd_graphs **out, rd_status *st);
void rd_graphs_free(rd_graphs *q); /* NULL is fine */

/* q may be NULL in all that follows: then there are no graphs. */
rd_code rd_graphs_begin(rd_graphs *q, uint64_t key, rd_status *st);
/* What is queued was started. After a failure (st) what is still written down is dropped. */
rd_code rd_graphs_end(rd_graphs *q, rd_status *st);
rd_code rd_graphs_flush(rd_graphs *q, rd_status *st);
/* args is copied when the task is not run at once. */
rd_code rd_graphs_task(rd_graphs *q, rd_gpu *g, rd_gpu_run *run, const void *args, size_t bytes,
                       size_t fixed, rd_status *st);
/* True: it was taken into the letter, or that failed. False: the caller copies now; all before it was started. */
bool rd_graphs_up(rd_graphs *q, void *device, const void *host, size_t bytes, rd_status *st);

void rd_graphs_count(const rd_graphs *q, rd_gpu_graph_counts *out);
/* One line on what fell back to single launches, once; NULL: nothing new. */
const char *rd_graphs_note(rd_graphs *q);

/* Each backend has one, or NULL. */
rd_graphs *rd_gpu_graphs(const rd_gpu *g);

RD_C_END
#endif
