/* gpu_graph.h -- starts recurring work for a GPU all at once (CUDA graphs).
 *
 * Each launch costs the host some microseconds. For a small model this is most of a step. Between
 * rd_graphs_begin and rd_graphs_end nothing is launched at once. The program runs as always, and
 * each piece of work is recorded as a task: a function and its arguments as bytes. When the host
 * needs a result (rd_graphs_flush), the tasks since the last flush are started together. These
 * tasks are a segment.
 *
 * The first time under a key, the tasks are started one by one. The second time, a graph is made of
 * them. From then on, each task is compared with the task at its place in the graph. Arguments that
 * differ (a learning rate, the key of a mask, an address) are set in the graph before it is
 * started. If a task is a different one (the program took another way), the tasks of the segment so
 * far and all later tasks are launched one by one, in their order. So no graph is ever started with
 * an argument of an earlier step, whatever the key leaves out. A key that leaves out much only
 * costs time.
 *
 * Small host arrays (ids, lengths) are uploaded together. Their bytes are gathered in an upload
 * buffer on the host, which is copied to a fixed device address of the graph. In the graph, a copy
 * on the device moves each piece to its place, at its turn.
 *
 * No type of CUDA appears here: the maker of a graph knows what it is. Not thread-safe. */
#ifndef RD_GPU_GRAPH_H
#define RD_GPU_GRAPH_H

#include "rd/gpu.h"

RD_C_BEGIN

/* Queues one task on the stream. args: the recorded argument bytes, 16-byte aligned. */
typedef rd_code rd_gpu_run(rd_gpu *g, const void *args, rd_status *st);

/* Arguments of a task without a function: a copy from byte `from` of the upload buffer to device
 * memory. */
typedef struct rd_gpu_post {
    void *to;
    uint64_t from, bytes;
} rd_gpu_post;

typedef struct rd_gpu_task {
    rd_gpu_run *run; /* NULL: an rd_gpu_post */
    /* bytes: size of the arguments; fixed: size of the part that a graph cannot change */
    uint32_t bytes, fixed;
    size_t at;    /* offset of the arguments in the list's bytes */
    bool changed; /* the graph has other arguments than the list */
} rd_gpu_task;

typedef struct rd_gpu_tasks {
    rd_gpu_task *task;
    int n, cap;
    unsigned char *args;
    size_t used, capacity;
} rd_gpu_tasks;

static inline const void *rd_gpu_args(const rd_gpu_tasks *t, int i)
{
    return t->args + t->task[i].at;
}

/* The graph type of the maker. */
typedef struct rd_gpu_graph rd_gpu_graph;
typedef struct rd_graph_maker {
    /* Makes a graph of all tasks, in their order. *bytes: bytes of device memory. upload: capacity
     * of the graph's upload buffer in bytes. A failure concerns this graph alone. */
    rd_code (*make)(rd_gpu *g, const rd_gpu_tasks *t, size_t upload, rd_gpu_graph **out,
                    uint64_t *bytes, rd_status *st);
    /* Sets other arguments for task i. A failure concerns this graph alone. */
    rd_code (*set)(rd_gpu *g, rd_gpu_graph *q, int i, const rd_gpu_task *task, const void *args,
                   rd_status *st);
    rd_code (*start)(rd_gpu *g, rd_gpu_graph *q, const void *upload, size_t bytes, rd_status *st);
    /* Frees the graph. Waits. */
    void (*drop)(rd_gpu *g, rd_gpu_graph *q);
    /* Copies from the host at once. */
    rd_code (*up)(rd_gpu *g, void *device, const void *host, size_t bytes, rd_status *st);
} rd_graph_maker;

typedef struct rd_graphs rd_graphs;
/* Creates the state. g and m are borrowed. The caller owns *out. */
rd_code rd_graphs_new(rd_gpu *g, const rd_graph_maker *m, rd_graphs **out, rd_status *st);
/* Frees q. NULL is allowed. */
void rd_graphs_free(rd_graphs *q);

/* Begins recurring work. In all functions below q may be NULL: then there are no graphs. */
rd_code rd_graphs_begin(rd_graphs *q, uint64_t key, rd_status *st);
/* Ends recurring work; the queued work was started. After a failure (st), recorded tasks are
 * dropped. */
rd_code rd_graphs_end(rd_graphs *q, rd_status *st);
/* Starts all recorded tasks. */
rd_code rd_graphs_flush(rd_graphs *q, rd_status *st);
/* Runs a task or records it. In the second case args is copied. */
rd_code rd_graphs_task(rd_graphs *q, rd_gpu *g, rd_gpu_run *run, const void *args, size_t bytes,
                       size_t fixed, rd_status *st);
/* Puts an upload into the upload buffer. True: the buffer has the bytes, or this failed. False: the
 * caller copies now; all earlier work was started. */
bool rd_graphs_up(rd_graphs *q, void *device, const void *host, size_t bytes, rd_status *st);

/* Writes the counts so far to *out. */
void rd_graphs_count(const rd_graphs *q, rd_gpu_graph_counts *out);
/* Returns, once, one line about work that falls back to single launches. NULL: nothing new. */
const char *rd_graphs_note(rd_graphs *q);

/* Returns the graphs of a gpu. Each backend has one, or NULL. */
rd_graphs *rd_gpu_graphs(const rd_gpu *g);

RD_C_END
#endif
