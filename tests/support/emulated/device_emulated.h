/* device_emulated.h -- what the files of the emulated GPU, and of the fake runtime, share. */
#ifndef RD_DEVICE_EMULATED_H
#define RD_DEVICE_EMULATED_H

#include "../../../runner/engine/gpu/kernel_call.h"
#include "../../../runner/engine/gpu/gpu_ahead.h"
#include "../../../runner/engine/gpu/gpu_graph.h"
#include <stddef.h>

extern "C" {
/* Open and close device memory for host code, which cannot touch it otherwise. Calls nest. */
void rd_emulated_open(void);
void rd_emulated_close(void);
/* Reserves the addresses of device memory at the first call. */
bool rd_emulated_range(size_t bytes);
/* Allocates device memory, 256-byte aligned. nullptr: the range is full. */
void *rd_emulated_take(const void *owner, size_t bytes);
/* Returns the bytes that an allocation of `bytes` takes. */
size_t rd_emulated_padded(size_t bytes);
/* Returns the bytes of the owner's allocation that begins at p; 0: there is none. */
size_t rd_emulated_taken(const void *owner, const void *p);
/* Frees an allocation. */
void rd_emulated_give_back(const void *p);
/* Returns whether the bytes at p are in one allocation. */
bool rd_emulated_is_device(const void *p, size_t bytes);
/* Returns whether p is in pinned memory that a GPU may not have read yet. */
bool rd_emulated_is_read(const void *p);
/* Returns the failure that sticks, or RD_OK. */
rd_code rd_emulated_stuck(rd_gpu *g, rd_status *st);
/* Makes the failure in st stick, unless an earlier one sticks. Returns its code. */
rd_code rd_emulated_stick(rd_gpu *g, rd_status *st);
/* Returns false if some of the n numbers at p are held weights (rd_gpu_hold) that changed without
 * rd_gpu_weights_changed. */
bool rd_emulated_current(rd_gpu *g, const float *p, int64_t n);
/* Kinds of work. With RD_EMULATED_COUNT=1 the number of each kind is printed on stderr when the
 * process ends. */
enum rd_emulated_work {
    RD_EMULATED_KERNEL,
    RD_EMULATED_PRODUCT,
    RD_EMULATED_CONVOLUTION,
    RD_EMULATED_COPY,
    RD_EMULATED_RECURRENT, /* all steps of a layer */
    RD_EMULATED_GRAPH,
    RD_EMULATED_IN_GRAPH, /* pieces of the work above that ran in graphs */
    RD_EMULATED_WORKS
};
/* Counts one piece of work. */
void rd_emulated_count(enum rd_emulated_work what);
/* Returns whether products are mixed. */
bool rd_emulated_mixed(const rd_gpu *g);
/* The state that cudnn_emulated.cc keeps with g. It is allocated by malloc and freed with g. */
void **rd_emulated_dnn_of(rd_gpu *g);
/* Returns x rounded to the 16-bit type of mixed products. */
float rd_emulated_round(const rd_gpu *g, float x);
/* Rounds to nearest, ties to even. */
float rd_emulated_bfloat16(float x);
/* Rounds to nearest, ties to even; infinity above 65504. */
float rd_emulated_float16(float x);
/* Read element i of an array of 16 or 32 bits, and store x there, rounded. */
float rd_emulated_get(rd_element type, const void *p, int64_t i);
void rd_emulated_put(rd_element type, void *p, int64_t i, float x);
/* Runs a task of the stream, or records it for a graph. A graph can change none of its
 * arguments. */
rd_code rd_emulated_task(rd_gpu *g, rd_gpu_run *run, const void *args, size_t bytes, rd_status *st);
/* Runs the recorded tasks. */
rd_code rd_emulated_flush(rd_gpu *g, rd_status *st);
/* Runs a kernel launch. */
rd_code rd_emulated_run(rd_gpu *g, const void *kernel_call, rd_status *st);
/* Returns why no GPU accepts this launch; nullptr: it can run. */
const char *rd_emulated_limit(const rd_kernel_call *c);
/* The stream of arrays that are uploaded ahead, and the reads of the ops' stream for which it must
 * wait; see copies_emulated.cc. */
typedef struct rd_emulated_copies rd_emulated_copies;
/* Creates the stream. The caller frees it. */
rd_emulated_copies *rd_emulated_copies_new(void);
/* Frees q; its queued work is dropped. nullptr is allowed. */
void rd_emulated_copies_free(rd_emulated_copies *q);
/* Queues an upload on this stream. */
void rd_emulated_copies_up(rd_emulated_copies *q, void *to, const void *from, size_t bytes);
/* Records that the ops' stream uses this memory now. */
void rd_emulated_copies_read(rd_emulated_copies *q, const void *from, size_t bytes);
/* Records an event on a stream. */
void rd_emulated_copies_record(rd_emulated_copies *q, rd_gpu_queue stream, int event);
/* Makes a stream wait for an event. */
void rd_emulated_copies_wait(rd_emulated_copies *q, rd_gpu_queue stream, int event);
/* Waits, for the host, until the uploads from this memory have read it. nullptr: waits for all
 * uploads. */
void rd_emulated_copies_finish(rd_emulated_copies *q, const void *from, size_t bytes);
/* Records that this device memory is freed. */
void rd_emulated_copies_forget(rd_emulated_copies *q, const void *to, size_t bytes);
/* by = 1: a sum will never end. From now on, a wait for the device ends the process instead of
 * hanging. by = -1: that sum was aborted. */
void rd_emulated_hang(int by);
/* From now on, a fault prints a line on stderr: what code touched what memory. */
void rd_emulated_watch_faults(void);
}

/* Opens device memory while this object is on the stack, for functions of the device. */
struct rd_emulated_access {
    rd_emulated_access() { rd_emulated_open(); }
    ~rd_emulated_access() { rd_emulated_close(); }
};

#endif
