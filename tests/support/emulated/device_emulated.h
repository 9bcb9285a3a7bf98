/* device_emulated.h -- what the files of the emulated GPU share. */
#ifndef RD_DEVICE_EMULATED_H
#define RD_DEVICE_EMULATED_H

#include "../../../runner/engine/gpu/kernel_call.h"
#include "../../../runner/engine/gpu/gpu_ahead.h"
#include "../../../runner/engine/gpu/gpu_graph.h"
#include <stddef.h>

extern "C" {
/* Host code cannot touch device memory but between these two; they nest. */
void rd_emulated_open(void);
void rd_emulated_close(void);
/* bytes at p lie in one piece that rd_gpu_get gave. */
bool rd_emulated_is_device(const void *p, size_t bytes);
/* Page-locked memory that a GPU may not have read yet. */
bool rd_emulated_is_read(const void *p);
/* The failure that sticks; else this call's, which then sticks. */
rd_code rd_emulated_stuck(rd_gpu *g, rd_status *st);
rd_code rd_emulated_stick(rd_gpu *g, rd_status *st);
/* False: of the n numbers at p some are held weights (rd_gpu_hold) that changed without rd_gpu_weights_changed. */
bool rd_emulated_current(rd_gpu *g, const float *p, int64_t n);
/* RD_EMULATED_COUNT=1: how many there were of each is said on stderr when the process ends. */
enum rd_emulated_work {
    RD_EMULATED_KERNEL,
    RD_EMULATED_PRODUCT,
    RD_EMULATED_CONVOLUTION,
    RD_EMULATED_COPY,
    RD_EMULATED_RECURRENT, /* all steps of a layer */
    RD_EMULATED_GRAPH,
    RD_EMULATED_IN_GRAPH, /* of those before */
    RD_EMULATED_WORKS
};
void rd_emulated_count(enum rd_emulated_work what);
bool rd_emulated_mixed(const rd_gpu *g);
/* What cudnn_emulated.cc keeps with g, of malloc; freed with it. */
void **rd_emulated_dnn_of(rd_gpu *g);
/* x rounded to the 16-bit type of mixed products. */
float rd_emulated_round(const rd_gpu *g, float x);
float rd_emulated_bfloat16(float x); /* nearest, ties to even */
float rd_emulated_float16(float x);  /* the same; above 65504 infinite */
/* Element i of an array of 16 or 32 bits, and x stored there, rounded. */
float rd_emulated_get(rd_element type, const void *p, int64_t i);
void rd_emulated_put(rd_element type, void *p, int64_t i, float x);
/* A task of the stream: done at once, or written down for a graph. None of its arguments can change in a graph. */
rd_code rd_emulated_task(rd_gpu *g, rd_gpu_run *run, const void *args, size_t bytes, rd_status *st);
rd_code rd_emulated_flush(rd_gpu *g, rd_status *st); /* what is written down is done */
rd_code rd_emulated_run(rd_gpu *g, const void *kernel_call, rd_status *st);
/* copies_emulated.cc: the stream of arrays that go up ahead, and what the ops' stream does that it has to wait for. */
typedef struct rd_emulated_copies rd_emulated_copies;
rd_emulated_copies *rd_emulated_copies_new(void);
void rd_emulated_copies_free(
    rd_emulated_copies *q); /* nullptr is fine; what is queued is dropped */
void rd_emulated_copies_up(rd_emulated_copies *q, void *to, const void *from, size_t bytes);
void rd_emulated_copies_read(rd_emulated_copies *q, const void *from,
                             size_t bytes); /* by the ops' stream, now */
void rd_emulated_copies_record(rd_emulated_copies *q, rd_gpu_queue stream, int event);
void rd_emulated_copies_wait(rd_emulated_copies *q, rd_gpu_queue stream, int event);
/* The host waits until what goes up from there has been read; from nullptr: for all. */
void rd_emulated_copies_finish(rd_emulated_copies *q, const void *from, size_t bytes);
void rd_emulated_copies_forget(rd_emulated_copies *q, const void *to,
                               size_t bytes); /* that device memory is given back */
/* by 1: a sum will never end, and whoever waits for the device from now on ends the process in place of hanging; by -1: it was aborted. */
void rd_emulated_hang(int by);
void rd_emulated_watch_faults(void); /* from now on: a line on stderr that says who touched what */
}

/* For a function of the device: open while it is on the stack. */
struct rd_emulated_access {
    rd_emulated_access() { rd_emulated_open(); }
    ~rd_emulated_access() { rd_emulated_close(); }
};

#endif
