/* gpu_rnn.h -- an LSTM over all time steps of a packed batch by cuDNN, if rnn_choose.h chooses
 * cuDNN. */
#ifndef RD_GPU_RNN_H
#define RD_GPU_RNN_H

#include "../lstm_kernels.h"

RD_C_BEGIN

/* Do the work of rd_lstm_own, rd_lstm_forward and rd_lstm_backward. */
bool rd_gpu_lstm_own(rd_gpu *g, const char *cell, const rd_lstm_layer *l, bool trains);
rd_code rd_gpu_lstm_forward(rd_gpu *g, const char *cell, const rd_lstm_layer *l, const float *x,
                            const float *a, float *y, bool keep, rd_arena *kept, rd_arena *scratch,
                            rd_lstm_kept *v, rd_status *st);
rd_code rd_gpu_lstm_backward(rd_gpu *g, const rd_lstm_layer *l, const rd_lstm_kept *v,
                             const float *dy, float *dx, bool add_dx, float *da, rd_arena *scratch,
                             bool *refused, rd_status *st);

/* ---- for the drivers ---- */
/* For rd_gpu_new, before a library is loaded. */
void rd_gpu_rnn_begin(void);
/* For rd_gpu_free, while the library's handle exists. */
void rd_gpu_rnn_free(rd_gpu *g);
/* Returns cuDNN's version, major * 10000 + minor * 100 + patch; 0 if it cannot be loaded. */
int rd_gpu_dnn_version(void);

/* ---- kernels (gpu_rnn.cu) ---- */
typedef enum rd_rnn_type { RD_RNN_F32, RD_RNN_BF16, RD_RNN_F16 } rd_rnn_type;

/* Rows of a packed batch, and the same rows padded to n_seq rows for each of n_steps steps. off
 * (device) NULL: both layouts are the same. */
typedef struct rd_rnn_rows {
    int64_t n_steps, n_seq;
    const int64_t *off;
    /* columns of x and of a, which are side by side in a row of the library's array */
    int64_t in, extra;
} rd_rnn_rows;
/* Writes to = [x, a], with zeros where a sequence has ended. */
rd_code rd_cuda_rnn_rows_in(rd_gpu *g, rd_rnn_type type, const rd_rnn_rows *r, const float *x,
                            const float *a, void *to, rd_status *st);
/* Computes x = or x += its columns, and a += its columns. NULL: not needed. */
rd_code rd_cuda_rnn_rows_out(rd_gpu *g, rd_rnn_type type, const rd_rnn_rows *r, const void *from,
                             float *x, bool add_x, float *a, rd_status *st);

/* One gate's matrix in both layouts.
 *
 * In the library's weight space it is [H, cols], from element `at` on. In our array, whose rows are
 * ld long, it is columns [first, first + H) and transposed. A bias is a matrix with one column. */
typedef struct rd_rnn_matrix {
    const float *from; /* source, for weights; NULL: zeros */
    float *to;         /* target, for gradients; NULL: not needed */
    int64_t at, cols;
    /* column k of the library is our row k for k < split, else our row k + gap */
    int64_t split, gap;
    float plus; /* number to add to the weights */
} rd_rnn_matrix;
enum { RD_RNN_MATRICES = 16 }; /* Four gates: matrices of x and of h, and two biases. */
typedef struct rd_rnn_weights {
    rd_rnn_matrix m[RD_RNN_MATRICES];
    int64_t H, ld, most_cols;
} rd_rnn_weights;
/* Copies weights into the library's weight space. */
rd_code rd_cuda_rnn_weights_in(rd_gpu *g, rd_rnn_type type, const rd_rnn_weights *w, void *space,
                               rd_status *st);
/* Adds gradients from the library's weight space to ours. */
rd_code rd_cuda_rnn_weights_out(rd_gpu *g, rd_rnn_type type, const rd_rnn_weights *w,
                                const void *space, rd_status *st);

RD_C_END
#endif
