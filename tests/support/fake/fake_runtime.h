/* fake_runtime.h -- what the files of the fake runtime share. CUDA=fake links them with the real
 * driver (runner/engine/gpu) in place of cudart, cuBLASLt, cuDNN and NCCL.
 *
 * Streams are queues. Work runs as late as possible: when something waits for it. A driver that
 * relies on work being done early computes wrong numbers here. RD_FAKE_STREAMS=eager runs work as
 * soon as it can run; random mixes both, with a fixed seed.
 *
 * Calls are checked: places and sizes of arrays, alignment of operands, calls that are not allowed
 * during a capture, objects that were freed. A mistake of the driver ends the process with a line
 * that begins with "fake CUDA:".
 *
 * Kernels run as host code (blocks_emulated.cc), and recurrent layers by cudnn_emulated.cc. The
 * environment of the emulated build counts here, too: RD_EMULATED_GPUS, _MEMORY, _SM, _CUBLAS,
 * _CUDNN, _CUDNN_REFUSES, _CUDNN_FAILS, _NCCL, _NCCL_FAILS, _SPREAD_FAILS, _GRAPHS, _PAGE_LOCKED,
 * _COUNT, _ABORT_MS.
 *
 * Failures:
 *     RD_FAKE_FAIL=cudaMalloc:3   the third call of this name fails; any:3: the third of all calls
 *     RD_FAKE_FAIL=cudaMalloc:3+  so do all later calls, of any name
 *     RD_FAKE_FAULT=n             kernel n that runs touches memory that it may not
 *     RD_FAKE_LACKS=name          a library lacks this function: it is too old
 *     RD_FAKE_SMS=n               multiprocessors of a GPU, default 132
 *     RD_FAKE_MIG=1               the GPUs are MIG instances of one GPU
 *     RD_FAKE_UUID=n              GPU 0 is the one with this number */
#ifndef RD_FAKE_RUNTIME_H
#define RD_FAKE_RUNTIME_H

#include "../emulated/device_emulated.h"
#include "cuda_runtime_api.h"
#include "fake.h"
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fake
{

/* A piece of work. False: it cannot end yet, because it waits for another rank. */
typedef std::function<bool()> work;

/* What an event recorded. */
struct moment {
    bool over = false;
    double at_s = 0.0;
    cudaStream_t on = nullptr;
};
typedef std::shared_ptr<moment> moment_ref;

struct step {
    work run;         /* empty: nothing to run */
    moment_ref after; /* the step begins after it */
    moment_ref sets;  /* over when the step is done */
};

/* ---- calls ---- */
/* Counts a call of a library. True: it fails, because a test asked for this. */
bool fails(const char *call);
/* Ends the process: the driver has made a mistake. */
[[noreturn]] __attribute__((format(printf, 2, 3))) void mistake(const char *call,
                                                                const char *format, ...);
/* Returns cudaSuccess, or the failure of the device, which stays. */
cudaError_t device_failure();
/* Makes a failure of the device. */
void break_device(cudaError_t e);
/* Sets the error that cudaGetLastError returns. */
cudaError_t set_last(cudaError_t e);
/* If a stream captures, makes that capture invalid and returns the failure. */
cudaError_t illegal_in_capture();
bool is_capturing();
int64_t number_of_environment(const char *name, int64_t otherwise);
double now_s();

/* Begins a function of the runtime. */
#define FAKE_CALL()                                                                               \
    do {                                                                                          \
        if (fake::fails(__func__)) return fake::set_last(cudaErrorUnknown);                       \
        if (fake::device_failure() != cudaSuccess) return fake::set_last(fake::device_failure()); \
    } while (0)
/* The same, for functions that a capture does not allow. */
#define FAKE_CALL_OUTSIDE()                                           \
    do {                                                              \
        FAKE_CALL();                                                  \
        if (fake::illegal_in_capture() != cudaSuccess)                \
            return fake::set_last(cudaErrorStreamCaptureUnsupported); \
    } while (0)

/* ---- objects ---- */
/* Counts an object that was created (1) or destroyed (-1). */
void count_object(int by);

/* ---- streams ---- */
/* Number of groups that have lost a rank and were not aborted. Their sums never end; a wait for the
 * device then ends the process instead of hanging. */
extern int groups_lost;
/* Number of sums that are queued and not done. */
extern int sums_queued;
/* Queues work on a stream, or adds it to the graph that the stream captures. */
void queue(cudaStream_t s, work w, const char *call);
/* Ends the process unless the bytes are in one allocation of device memory. */
void need_device(const char *call, const char *what, const void *p, size_t bytes);

extern rd_fake_work counts;
/* Counts work in graphs while it is above zero. */
extern int in_graph;
void count_in_graph();

/* Returns the work of a launch. */
work kernel_work(const char *call, const void *function, dim3 grid, dim3 block, void **param,
                 size_t shared);

} // namespace fake

#endif
