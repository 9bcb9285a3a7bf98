/* gpu_rnn.h -- an LSTM over all time steps of a packed batch by cuDNN, where rnn_choose.h takes it. */
#ifndef RD_GPU_RNN_H
#define RD_GPU_RNN_H

#include "../lstm_kernels.h"

RD_C_BEGIN

/* As rd_lstm_forward and rd_lstm_backward. */
rd_code rd_gpu_lstm_forward(rd_gpu *g, const char *cell, const rd_lstm_layer *l, const float *x,
                            const float *a, float *y, bool keep, rd_arena *kept, rd_arena *scratch,
                            rd_lstm_kept *v, rd_status *st);
rd_code rd_gpu_lstm_backward(rd_gpu *g, const rd_lstm_layer *l, const rd_lstm_kept *v,
                             const float *dy, float *dx, bool add_dx, float *da, rd_arena *scratch,
                             bool *refused, rd_status *st);

/* ---- for the drivers ---- */
void rd_gpu_rnn_begin(void);     /* of rd_gpu_new: before a library is loaded */
void rd_gpu_rnn_free(rd_gpu *g); /* of rd_gpu_free: while the library's handle is there */
int rd_gpu_dnn_version(
    void); /* of cuDNN: major * 10000 + minor * 100 + patch; 0: it cannot be loaded */

/* ---- kernels (gpu_rnn.cu) ---- */
typedef enum rd_rnn_type { RD_RNN_F32, RD_RNN_BF16, RD_RNN_F16 } rd_rnn_type;

/* Rows of a packed batch, and the same rows with n_seq of them for each of n_steps steps. off (device) NULL: these are
 * one. */
typedef struct rd_rnn_rows {
    int64_t n_steps, n_seq;
    const int64_t *off;
    int64_t in,
        extra; /* columns of x and of a, which lie side by side in a row of the library's array */
} rd_rnn_rows;
/* to = [x, a], zeros where a sequence has ended. */
rd_code rd_cuda_rnn_rows_in(rd_gpu *g, rd_rnn_type type, const rd_rnn_rows *r, const float *x,
                            const float *a, void *to, rd_status *st);
/* x (+)= its columns, a +=; NULL: not wanted. */
rd_code rd_cuda_rnn_rows_out(rd_gpu *g, rd_rnn_type type, const rd_rnn_rows *r, const void *from,
                             float *x, bool add_x, float *a, rd_status *st);

/* One gate's matrix in the library's weight space, [H, cols] from element `at` on, and in ours: columns [first, first +
 * H) of an array whose rows are ld long, the transposed of the library's. A bias is a matrix of one column. */
typedef struct rd_rnn_matrix {
    const float *from; /* of the weights; NULL: zeros */
    float *to;         /* of the gradients; NULL: not wanted */
    int64_t at, cols;
    int64_t split, gap; /* column k of the library is our row k, or k + gap from `split` on */
    float plus;         /* to be added to the weights */
} rd_rnn_matrix;
enum { RD_RNN_MATRICES = 16 }; /* four gates: of x, of h, and two biases */
typedef struct rd_rnn_weights {
    rd_rnn_matrix m[RD_RNN_MATRICES];
    int64_t H, ld, most_cols;
} rd_rnn_weights;
rd_code rd_cuda_rnn_weights_in(rd_gpu *g, rd_rnn_type type, const rd_rnn_weights *w, void *space,
                               rd_status *st);
rd_code rd_cuda_rnn_weights_out(rd_gpu *g, rd_rnn_type type, const rd_rnn_weights *w,
                                const void *space, rd_status *st);

RD_C_END
#endif
