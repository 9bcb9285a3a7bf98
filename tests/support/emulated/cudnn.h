/* cudnn.h -- for the emulated build: the part of cuDNN 9's interface that recurrent layers use.
 *
 * It is declared after the library's reference, so the same source calls the library and its
 * replacement (cudnn_emulated.cc). */
#ifndef RD_EMULATED_CUDNN_H
#define RD_EMULATED_CUDNN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The thousands digit is the kind of a failure. */
typedef enum {
    CUDNN_STATUS_SUCCESS = 0,
    CUDNN_STATUS_NOT_INITIALIZED = 1001,
    CUDNN_STATUS_BAD_PARAM = 2000,
    CUDNN_STATUS_NOT_SUPPORTED = 3000,
    CUDNN_STATUS_EXECUTION_FAILED = 5000
} cudnnStatus_t;
#define CUDNN_STATUS_CATEGORY(s) ((int)(s) / 1000 * 1000)

typedef enum { CUDNN_DATA_FLOAT = 0, CUDNN_DATA_HALF = 2, CUDNN_DATA_BFLOAT16 = 9 } cudnnDataType_t;
typedef enum {
    CUDNN_DEFAULT_MATH,
    CUDNN_TENSOR_OP_MATH,
    CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION,
    CUDNN_FMA_MATH
} cudnnMathType_t;
typedef enum {
    CUDNN_RNN_ALGO_STANDARD,
    CUDNN_RNN_ALGO_PERSIST_STATIC,
    CUDNN_RNN_ALGO_PERSIST_DYNAMIC,
    CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H
} cudnnRNNAlgo_t;
typedef enum { CUDNN_FWD_MODE_INFERENCE, CUDNN_FWD_MODE_TRAINING } cudnnForwardMode_t;
typedef enum { CUDNN_RNN_RELU, CUDNN_RNN_TANH, CUDNN_LSTM, CUDNN_GRU } cudnnRNNMode_t;
typedef enum {
    CUDNN_RNN_NO_BIAS,
    CUDNN_RNN_SINGLE_INP_BIAS,
    CUDNN_RNN_DOUBLE_BIAS,
    CUDNN_RNN_SINGLE_REC_BIAS
} cudnnRNNBiasMode_t;
typedef enum { CUDNN_UNIDIRECTIONAL, CUDNN_BIDIRECTIONAL } cudnnDirectionMode_t;
typedef enum { CUDNN_LINEAR_INPUT, CUDNN_SKIP_INPUT } cudnnRNNInputMode_t;
typedef enum {
    CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED,
    CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED,
    CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED
} cudnnRNNDataLayout_t;
typedef enum { CUDNN_WGRAD_MODE_ADD, CUDNN_WGRAD_MODE_SET } cudnnWgradMode_t;
enum { CUDNN_RNN_PADDED_IO_DISABLED = 0, CUDNN_RNN_PADDED_IO_ENABLED = 1 };

typedef struct cudnnContext *cudnnHandle_t;
typedef struct cudnnRNNStruct *cudnnRNNDescriptor_t;
typedef struct cudnnRNNDataStruct *cudnnRNNDataDescriptor_t;
typedef struct cudnnTensorStruct *cudnnTensorDescriptor_t;
typedef struct cudnnDropoutStruct *cudnnDropoutDescriptor_t;

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *out);
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t d);
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t d, cudnnDataType_t type, int n,
                                         const int dim[], const int stride[]);
cudnnStatus_t cudnnGetTensorNdDescriptor(cudnnTensorDescriptor_t d, int wanted,
                                         cudnnDataType_t *type, int *n, int dim[], int stride[]);

cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t *out);
cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t d);
cudnnStatus_t cudnnSetRNNDescriptor_v8(
    cudnnRNNDescriptor_t d, cudnnRNNAlgo_t algo, cudnnRNNMode_t cell, cudnnRNNBiasMode_t bias,
    cudnnDirectionMode_t direction, cudnnRNNInputMode_t input, cudnnDataType_t type,
    cudnnDataType_t precision, cudnnMathType_t math, int32_t in, int32_t hidden, int32_t projected,
    int32_t layers, cudnnDropoutDescriptor_t dropout, uint32_t flags);
cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t *out);
cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t d);
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t d, cudnnDataType_t type,
                                        cudnnRNNDataLayout_t layout, int steps, int batch,
                                        int width, const int length[], void *fill);

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t h, cudnnRNNDescriptor_t d, size_t *bytes);
cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t h, cudnnRNNDescriptor_t d, int32_t layer,
                                      size_t bytes, const void *space, int32_t gate,
                                      cudnnTensorDescriptor_t matrix, void **matrix_at,
                                      cudnnTensorDescriptor_t bias, void **bias_at);
cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t h, cudnnRNNDescriptor_t d,
                                        cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                                        size_t *work, size_t *reserve);
cudnnStatus_t cudnnRNNForward(cudnnHandle_t h, cudnnRNNDescriptor_t d, cudnnForwardMode_t mode,
                              const int32_t dev_lengths[], cudnnRNNDataDescriptor_t x_desc,
                              const void *x, cudnnRNNDataDescriptor_t y_desc, void *y,
                              cudnnTensorDescriptor_t h_desc, const void *hx, void *hy,
                              cudnnTensorDescriptor_t c_desc, const void *cx, void *cy,
                              size_t weight_bytes, const void *weights, size_t work_bytes,
                              void *work, size_t reserve_bytes, void *reserve);
cudnnStatus_t cudnnRNNBackwardData_v8(
    cudnnHandle_t h, cudnnRNNDescriptor_t d, const int32_t dev_lengths[],
    cudnnRNNDataDescriptor_t y_desc, const void *y, const void *dy, cudnnRNNDataDescriptor_t x_desc,
    void *dx, cudnnTensorDescriptor_t h_desc, const void *hx, const void *dhy, void *dhx,
    cudnnTensorDescriptor_t c_desc, const void *cx, const void *dcy, void *dcx, size_t weight_bytes,
    const void *weights, size_t work_bytes, void *work, size_t reserve_bytes, void *reserve);
cudnnStatus_t cudnnRNNBackwardWeights_v8(
    cudnnHandle_t h, cudnnRNNDescriptor_t d, cudnnWgradMode_t add, const int32_t dev_lengths[],
    cudnnRNNDataDescriptor_t x_desc, const void *x, cudnnTensorDescriptor_t h_desc, const void *hx,
    cudnnRNNDataDescriptor_t y_desc, const void *y, size_t weight_bytes, void *dweights,
    size_t work_bytes, void *work, size_t reserve_bytes, void *reserve);

#ifdef __cplusplus
}
#endif
#endif
