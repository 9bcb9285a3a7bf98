/* dnn_rnn.h -- cuDNN's calls for recurrent layers as gpu_rnn.c sees them.
 *
 * On a GPU they are the calls of the library. In the emulated build they are the calls of a
 * replacement (tests/support/emulated), whose cudnn.h comes first in the include path. */
#ifndef RD_DNN_RNN_H
#define RD_DNN_RNN_H

#include "rd/gpu.h"

#if __has_include(<cudnn.h>)
#include <cudnn.h>
#else
#error "cudnn.h is missing: CUDA=1 needs cuDNN 9's headers "\
    "(Debian's name: libcudnn9-dev-cuda-13; or CPPFLAGS=-I/path/to/include)"
#endif

RD_C_BEGIN

#define RD_DNN_RNN_CALLS(X)          \
    X(cudnnCreateRNNDescriptor)      \
    X(cudnnDestroyRNNDescriptor)     \
    X(cudnnSetRNNDescriptor_v8)      \
    X(cudnnCreateRNNDataDescriptor)  \
    X(cudnnDestroyRNNDataDescriptor) \
    X(cudnnSetRNNDataDescriptor)     \
    X(cudnnCreateTensorDescriptor)   \
    X(cudnnDestroyTensorDescriptor)  \
    X(cudnnSetTensorNdDescriptor)    \
    X(cudnnGetTensorNdDescriptor)    \
    X(cudnnGetRNNTempSpaceSizes)     \
    X(cudnnGetRNNWeightSpaceSize)    \
    X(cudnnGetRNNWeightParams)       \
    X(cudnnRNNForward)               \
    X(cudnnRNNBackwardData_v8)       \
    X(cudnnRNNBackwardWeights_v8)

#define RD_DNN_RNN_FIELD(f) __typeof__(f) *f;
typedef struct rd_dnn_rnn {
    RD_DNN_RNN_CALLS(RD_DNN_RNN_FIELD)
    cudnnHandle_t handle; /* works on the ops' stream */
} rd_dnn_rnn;
/* Loads the library and creates the handle. *out is borrowed from g. */
rd_code rd_gpu_dnn_rnn(rd_gpu *g, const rd_dnn_rnn **out, rd_status *st);
/* Turns r into a status with the call, the file and the library's text. A failure sticks to g. */
rd_code rd_gpu_dnn_result(rd_gpu *g, cudnnStatus_t r, const char *call, const char *where,
                          rd_status *st);
/* Returns the library's text for r. */
const char *rd_gpu_dnn_text(rd_gpu *g, cudnnStatus_t r);
/* Reports that `call` has queued work. A device failure names this call. With RD_CUDA_SYNC, waits
 * for the work. */
rd_code rd_gpu_dnn_queued(rd_gpu *g, const char *call, rd_status *st);

/* The state that gpu_rnn.c keeps with a gpu. */
typedef struct rd_gpu_rnn rd_gpu_rnn;
/* Returns the place in g where gpu_rnn.c keeps its state. */
rd_gpu_rnn **rd_gpu_rnn_of(rd_gpu *g);
/* Returns the options of g; borrowed from g. */
const rd_gpu_options *rd_gpu_options_of(const rd_gpu *g);

RD_C_END
#endif
