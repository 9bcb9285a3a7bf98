/* dnn_rnn.h -- cuDNN's calls for recurrent layers as gpu_rnn.c sees them: of the library where there is a GPU, of a stand-in
 * (tests/support/emulated) in the emulated build, whose cudnn.h comes first there. */
#ifndef RD_DNN_RNN_H
#define RD_DNN_RNN_H

#include "rd/gpu.h"

#if __has_include(<cudnn.h>)
#include <cudnn.h>
#else
#error \
    "cudnn.h is missing: CUDA=1 needs cuDNN 9's headers (Debian's name: libcudnn9-dev-cuda-13; or CPPFLAGS=-I/path/to/include)"
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
/* Loads the library, makes the handle. Borrowed from g. */
rd_code rd_gpu_dnn_rnn(rd_gpu *g, const rd_dnn_rnn **out, rd_status *st);
/* r as a status with call, file and the library's text; a failure sticks to g. */
rd_code rd_gpu_dnn_result(rd_gpu *g, cudnnStatus_t r, const char *call, const char *where,
                          rd_status *st);
/* The library's words for r. */
const char *rd_gpu_dnn_text(rd_gpu *g, cudnnStatus_t r);
/* `call` has queued work: named where the device fails, waited for where each kernel is. */
rd_code rd_gpu_dnn_queued(rd_gpu *g, const char *call, rd_status *st);

/* What gpu_rnn.c keeps with a gpu. */
typedef struct rd_gpu_rnn rd_gpu_rnn;
rd_gpu_rnn **rd_gpu_rnn_of(rd_gpu *g);
const rd_gpu_options *rd_gpu_options_of(const rd_gpu *g);

RD_C_END
#endif
