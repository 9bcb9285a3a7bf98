/* gpu.h -- one GPU for the engine and the ops: memory, products, convolutions, sums over ranks.
 *
 * Two builds have a GPU backend. `make CUDA=1` uses the libraries of CUDA. `make CUDA=emulated`
 * runs kernels as host code, for tests. In other builds each function reports that there is no GPU
 * (runner/engine/gpu/gpu_none.c). No type of CUDA appears here.
 *
 * Work is queued in the order of the calls, on one stream unless the comment names another one. A
 * function returns at once unless its comment says "waits". The host never reads or writes through
 * a device pointer. A device failure sticks: every later call returns it again (RD_EENV: the call,
 * the place, the library's text, what to do). A gpu belongs to the calling rank alone, and to one
 * thread. */
#ifndef RD_GPU_H
#define RD_GPU_H

#include "rd/element.h"
#include "rd/rnn_choose.h"
#include "rd/status.h"
#include <stdint.h>

RD_C_BEGIN

typedef struct rd_gpu rd_gpu;

/* ---- devices ---- */
typedef struct rd_gpu_info {
    /* uuid: "GPU-..." or "MIG-..." as nvidia-smi -L prints it; pci: "0000:17:00.0", or "" */
    char name[96], uuid[48], pci[16];
    /* compute capability */
    int major, minor;
    /* number of streaming multiprocessors */
    int n_sm;
    /* bytes; free_memory: bytes that are free now, 0 if unknown */
    uint64_t memory, free_memory;
} rd_gpu_info;

/* Returns the number of GPUs that this process sees. If it is 0, `why` gets the reason: no driver,
 * no GPU, CUDA_VISIBLE_DEVICES is empty, or the driver is too old. */
int rd_gpu_count(char why[256]);
/* Returns whether the program has a GPU backend. */
bool rd_gpu_compiled(void);
/* Loads the libraries that every run needs: cuBLAS, and cuDNN if the model has convolutions.
 * RD_EENV names the missing library and what to install. */
rd_code rd_gpu_need_libraries(bool convolutions, rd_status *st);
/* Describes GPU `index` in *out. */
rd_code rd_gpu_query(int index, rd_gpu_info *out, rd_status *st);
/* Returns the versions of the libraries: "CUDA 13.0, driver 13.0, cuBLAS 13.1, cuDNN 9.15, NCCL
 * 2.28". A missing library is left out. Borrowed for ever. */
const char *rd_gpu_libraries(void);

typedef struct rd_gpu_options {
    /* products and convolutions use bfloat16 (float16 before compute capability 8.0) and sum in
     * float32 */
    bool mixed;
    /* float32 products may round their inputs to TF32 */
    bool tf32;
    /* another rank uses this GPU, too */
    bool shared;
    /* work that recurs (rd_gpu_recurs) is started as CUDA graphs */
    bool graphs;
    /* whether cuDNN computes recurrent layers */
    rd_rnn_asked rnn;
} rd_gpu_options;

/* Opens GPU `index`. The caller owns *out. */
rd_code rd_gpu_new(int index, const rd_gpu_options *o, rd_gpu **out, rd_status *st);
/* Frees g. NULL is allowed. */
void rd_gpu_free(rd_gpu *g);
/* Returns the description of the GPU; borrowed until g is freed. */
const rd_gpu_info *rd_gpu_about(const rd_gpu *g);
/* Returns a line for the banner, borrowed until g is freed: "NVIDIA H100 80GB HBM3 (GPU 0, sm_90,
 * 79.6 GiB), CUDA 13.0, ..., mixed (bfloat16)". */
const char *rd_gpu_describe(const rd_gpu *g);
/* Returns whether mixed products use float16, because the GPU has no bfloat16. Losses then need a
 * scale. */
bool rd_gpu_uses_float16(const rd_gpu *g);
/* Returns the 16-bit type of mixed products, RD_FLOAT32 if products are not mixed. */
rd_element rd_gpu_narrow(const rd_gpu *g);
/* Returns, once, a note for the user if ops are computed in another way than the config asks for.
 * NULL: nothing new. Borrowed until the next call of an op. */
const char *rd_gpu_take_note(rd_gpu *g);

/* Who computed LSTM layers in training so far, in forward passes of a layer. */
typedef struct rd_gpu_rnn_counts {
    int64_t cudnn, own;
    /* why own kernels computed the last of these passes; "": they computed none */
    const char *why;
} rd_gpu_rnn_counts;
/* Writes the counts to *out. why is borrowed until g is freed. */
void rd_gpu_count_rnn(rd_gpu *g, rd_gpu_rnn_counts *out);

/* ---- memory ---- */
/* Allocates device memory, 256-byte aligned, contents undefined. out: address of any object
 * pointer. The caller owns the memory and returns it with rd_gpu_memory_free. */
rd_code rd_gpu_memory_new(rd_gpu *g, size_t bytes, void *out, rd_status *st);
/* Frees memory of rd_gpu_memory_new. NULL is allowed. Waits. */
void rd_gpu_memory_free(rd_gpu *g, void *p);
/* Copies from the host to the device. The host array is copied into pinned memory first, so the
 * caller may change it after the return. One exception: arrays above 64 KiB in memory of
 * rd_gpu_host_new are read later, at their turn. */
rd_code rd_gpu_upload(rd_gpu *g, void *device, const void *host, size_t bytes, rd_status *st);
/* Copies from the device to the host. Waits. */
rd_code rd_gpu_download(rd_gpu *g, void *host, const void *device, size_t bytes, rd_status *st);
/* Copies on the device. */
rd_code rd_gpu_copy(rd_gpu *g, void *to, const void *from, size_t bytes, rd_status *st);
/* Fills device memory with zero bytes. */
rd_code rd_gpu_zero(rd_gpu *g, void *device, size_t bytes, rd_status *st);
/* Waits until all queued work is done. */
rd_code rd_gpu_wait(rd_gpu *g, rd_status *st);
/* Allocates pinned host memory, 256-byte aligned, contents undefined. rd_gpu_upload from this
 * memory needs no further copy and does not wait. out: address of any object pointer. The caller
 * owns the memory and returns it with rd_gpu_host_free. A failure (RD_EENV) does not stick: the
 * caller can use ordinary memory instead. */
rd_code rd_gpu_host_new(rd_gpu *g, size_t bytes, void *out, rd_status *st);
/* Waits until every rd_gpu_upload from the pinned allocation that contains p has read it. The
 * caller may then write to it again. Returns at once if p is not in pinned memory. Does not wait
 * for work that was queued after those uploads. */
rd_code rd_gpu_host_wait(rd_gpu *g, const void *p, rd_status *st);
/* Frees memory of rd_gpu_host_new. NULL is allowed. Waits. */
void rd_gpu_host_free(rd_gpu *g, void *p);
/* Starts the upload of an array in memory of rd_gpu_host_new now. The upload has its own stream,
 * beside the work that was queued before. The next rd_gpu_upload of the array, or of its first
 * bytes, finds it on the device, and work queued from there on waits for it. rd_gpu_host_wait
 * cancels this: a later rd_gpu_upload reads what the array then contains. The call does nothing for
 * arrays of up to 64 KiB, for other memory, and if the device has no memory for the array. */
rd_code rd_gpu_up_ahead(rd_gpu *g, const void *host, size_t bytes, rd_status *st);

typedef struct rd_gpu_ahead_counts {
    /* number of arrays of rd_gpu_up_ahead */
    int64_t sent;
    /* number of arrays in `sent` that rd_gpu_upload found on the device */
    int64_t taken;
    /* number of arrays that rd_gpu_upload read from pinned memory itself */
    int64_t late;
    /* bytes of device memory */
    uint64_t bytes;
    /* the device had no memory for the arrays; nothing asks it again */
    bool is_short;
} rd_gpu_ahead_counts;

/* Writes the counts of rd_gpu_up_ahead so far to *out. */
void rd_gpu_count_ahead(const rd_gpu *g, rd_gpu_ahead_counts *out);
/* Returns the bytes of device memory that are in use now. */
uint64_t rd_gpu_in_use(const rd_gpu *g);
/* Returns the bytes of rd_gpu_in_use that the gpu keeps for itself until it is freed: workspaces,
 * converted copies, arrays of rd_gpu_up_ahead, graphs. */
uint64_t rd_gpu_kept(const rd_gpu *g);
/* Returns the largest value of rd_gpu_in_use so far. */
uint64_t rd_gpu_peak(const rd_gpu *g);
/* Returns whether st is the failure of an rd_gpu_memory_new for which the GPU had too little
 * memory. Then *asked gets the bytes that the last such call asked for, *left the bytes that were
 * free. Such a failure does not stick. */
bool rd_gpu_short(const rd_gpu *g, const rd_status *st, uint64_t *asked, uint64_t *left);

/* Declares that [p, p + n) holds parameters, until rd_gpu_memory_free frees the range. They change
 * only before a call of rd_gpu_weights_changed. The gpu keeps copies of them in other types or
 * orders. A product or convolution renews a copy when it needs it after a change. Several ranges
 * are allowed. */
rd_code rd_gpu_hold(rd_gpu *g, const float *p, int64_t n, rd_status *st);
/* Marks all copies of held parameters as out of date. */
void rd_gpu_weights_changed(rd_gpu *g);
/* Finds or allocates `bytes` bytes for a copy of the weights at w in another form. The key is w and
 * `form`, a number other than 0 that the caller chooses. The memory is kept as long as the range
 * that contains w is held. *current: the copy was handed out since the last change, and the caller
 * has filled it; if false, the caller fills it now. *out: address of any object pointer; it gets
 * NULL if w is not held. */
rd_code rd_gpu_hold_copy(rd_gpu *g, const float *w, int form, size_t bytes, void *out,
                         bool *current, rd_status *st);

/* ---- products ---- */
/* Computes C[m, n] = alpha op(A)[m, k] op(B)[k, n] + beta C, row major, like rd_gemm. With mixed
 * products the operands are rounded to the 16-bit type. */
rd_code rd_gpu_gemm(rd_gpu *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                    const float *A, int64_t lda, const float *B, int64_t ldb, float beta, float *C,
                    int64_t ldc, rd_status *st);
/* Computes `batch` products of one shape. Their operands are stride_* elements apart. */
rd_code rd_gpu_gemm_batched(rd_gpu *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                            float alpha, const float *A, int64_t lda, int64_t stride_a,
                            const float *B, int64_t ldb, int64_t stride_b, float beta, float *C,
                            int64_t ldc, int64_t stride_c, int64_t batch, rd_status *st);

/* An operand of rd_gpu_product. The 16-bit type is rd_gpu_narrow's. */
typedef struct rd_gpu_operand {
    void *at;
    rd_element type;
    /* leading dimension in elements */
    int64_t ld;
} rd_gpu_operand;

/* Computes C[m, n] = op(A)[m, k] op(B)[k, n] + beta C with sums in float32. A 16-bit operand is
 * read without a conversion. A float32 operand beside a 16-bit operand is rounded to that type. Two
 * float32 operands are treated as in rd_gpu_gemm. If C has 16 bits, it is rounded once. A and B are
 * only read. */
rd_code rd_gpu_product(rd_gpu *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                       rd_gpu_operand A, rd_gpu_operand B, float beta, rd_gpu_operand C,
                       rd_status *st);
/* Computes `batch` such products of one shape. Their operands are stride_* elements apart. */
rd_code rd_gpu_product_batched(rd_gpu *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                               rd_gpu_operand A, int64_t stride_a, rd_gpu_operand B,
                               int64_t stride_b, float beta, rd_gpu_operand C, int64_t stride_c,
                               int64_t batch, rd_status *st);

/* ---- convolutions ---- */
/* The shape of a convolution of NHWC images. Weights are (kh, kw, ci, co), as in rd_op_conv2d. */
typedef struct rd_gpu_conv {
    int64_t n, h, w, ci, co, kh, kw, oh, ow, stride;
    int64_t pad_top, pad_left, pad_bottom, pad_right;
    /* type of x, y and their gradients: float32 or rd_gpu_narrow's. With float32, mixed and tf32
     * may round inputs to TF32. With rd_gpu_narrow's type, the weights are rounded to it, too. Sums
     * are float32. W and dW are float32 arrays; the sum that is added to dW may have been rounded
     * to 16 bits before. */
    rd_element type;
} rd_gpu_conv;

/* Computes y = conv(x, W). There is no bias. */
rd_code rd_gpu_conv_forward(rd_gpu *g, const rd_gpu_conv *c, const void *x, const float *W, void *y,
                            rd_status *st);
/* Computes the gradient of x: dx = ..., or dx += ... with `add`. */
rd_code rd_gpu_conv_data(rd_gpu *g, const rd_gpu_conv *c, const void *dy, const float *W, void *dx,
                         bool add, rd_status *st);
/* Adds the gradient of W: dW += .... */
rd_code rd_gpu_conv_weights(rd_gpu *g, const rd_gpu_conv *c, const void *x, const void *dy,
                            float *dW, rd_status *st);

/* ---- elements ---- */
/* Converts y[0, n) = x[0, n), or y += x with `add`, between any two types. Rounds to nearest, ties
 * to even. x may be y if the types are equal. */
rd_code rd_gpu_cast(rd_gpu *g, int64_t n, const void *x, rd_element from, void *y, rd_element to,
                    bool add, rd_status *st);

/* ---- sums over ranks (NCCL) ---- */
typedef enum rd_gpu_wire { RD_GPU_WIRE_F32, RD_GPU_WIRE_BF16, RD_GPU_WIRE_F16 } rd_gpu_wire;
enum { RD_GPU_ID_BYTES = 128 };
typedef struct rd_gpu_group rd_gpu_group;
typedef struct rd_gpu_nccl {
    /* 22809 is 2.28.9 */
    int version;
    /* see rd_nccl_settings: its text, and its result */
    char settings[160];
    bool overridden;
} rd_gpu_nccl;

/* Loads NCCL and describes it in *out. RD_EENV if it cannot be loaded; the failure does not
 * stick. */
rd_code rd_gpu_nccl_about(rd_gpu *g, rd_gpu_nccl *out, rd_status *st);

typedef struct rd_gpu_group_options {
    unsigned char id[RD_GPU_ID_BYTES];
    int rank, size;
    /* seconds to wait for the other ranks until the first sum, of one number, is done; 0: for
     * ever */
    double open_s;
    /* seconds to wait in the calls for each later sum; 0: for ever */
    double sum_s;
    /* several ranks share a GPU: see rd_nccl_serves; rd_gpu_options.shared of each of these
     * ranks */
    bool shared;
} rd_gpu_group_options;

/* Creates the id of a group. Rank 0 calls this, then all ranks get the bytes (MPI) and call
 * rd_gpu_group_new. No failure sticks to g, a missing library (RD_EENV) included. */
rd_code rd_gpu_group_id(rd_gpu *g, unsigned char id[RD_GPU_ID_BYTES], rd_status *st);
/* Joins the group and waits until the ranks have summed once. The caller owns *out. No failure
 * sticks to g, a missing library (RD_EENV) included. Collective. */
rd_code rd_gpu_group_new(rd_gpu *g, const rd_gpu_group_options *o, rd_gpu_group **out,
                         rd_status *st);
/* Leaves the group. Aborts sums that do not end within some seconds. NULL is allowed. */
void rd_gpu_group_free(rd_gpu_group *q);
/* Leaves the group after a failure of any rank, instead of rd_gpu_group_free. Waits for no sum.
 * NULL is allowed. A sum that lacks a rank never ends. Until this call, every wait for the device
 * and every return of memory hangs with it. */
void rd_gpu_group_abort(rd_gpu_group *q);
/* Queues the sum of x[0, n) over all ranks, in place. The sum has its own stream and starts after
 * the work queued so far. All ranks call it in one order. Collective. */
rd_code rd_gpu_group_sum(rd_gpu_group *q, float *x, int64_t n, rd_gpu_wire wire, rd_status *st);
/* Makes later work on the ops' stream wait for all sums so far. The call itself does not wait.
 * RD_EPEER if NCCL has seen a peer fail. */
rd_code rd_gpu_group_join(rd_gpu_group *q, rd_status *st);
/* Waits until all sums so far are done, at most timeout_s seconds (0: for ever). RD_EPEER or
 * RD_ESTALL. */
rd_code rd_gpu_group_wait(rd_gpu_group *q, double timeout_s, rd_status *st);

/* The time of one sum on the device's clock, in seconds before now, or before the end of
 * rd_gpu_group_wait if the last sum and join came before it. */
typedef struct rd_gpu_sum_time {
    /* begin_s: the work that the sum waited for was done; end_s: the sum was done */
    double begin_s, end_s;
} rd_gpu_sum_time;

/* Reads the times of the sums between the last two calls of rd_gpu_group_join, in their order: the
 * first `most` of them. *n gets their number. A sum of no elements does not count. Waits. */
rd_code rd_gpu_group_times(rd_gpu_group *q, rd_gpu_sum_time *out, int most, int *n, rd_status *st);

/* ---- work that recurs (CUDA graphs; see runner/engine/gpu/gpu_graph.h) ---- */
/* Begins work that recurs; rd_gpu_recurred ends it. The work in between may be kept back until a
 * result is waited for. It is then started all at once if the same work came under this key before.
 * The results are the same bytes either way. key: depends on everything that the work depends on. A
 * key that leaves something out costs time, not correctness. Without rd_gpu_options.graphs both
 * functions do nothing. */
rd_code rd_gpu_recurs(rd_gpu *g, uint64_t key, rd_status *st);
/* Ends work that recurs. The caller calls it after failures, too. */
rd_code rd_gpu_recurred(rd_gpu *g, rd_status *st);

typedef struct rd_gpu_graph_counts {
    /* number of graphs that exist now */
    int64_t graphs;
    /* bytes of device memory that the graphs take */
    uint64_t bytes;
    /* number of graphs started */
    int64_t started;
    /* number of tasks of work that recurs: launches, products, copies */
    int64_t all;
    /* number of tasks that were started in graphs */
    int64_t tasks;
    /* number of tasks in graphs whose arguments differed from the previous start */
    int64_t set;
    /* number of times that other work came than the graph contains */
    int64_t left;
    /* number of keys that were given up */
    int64_t given_up;
} rd_gpu_graph_counts;

/* Writes the counts of graphs so far to *out. */
void rd_gpu_count_graphs(const rd_gpu *g, rd_gpu_graph_counts *out);
/* Returns, once, the line for the log that says why work that recurs is no graph. NULL if there is
 * nothing to report. */
const char *rd_gpu_take_graph_note(rd_gpu *g);

/* ---- time ---- */
/* Sets mark 0 .. 15 on the ops' stream. */
rd_code rd_gpu_mark(rd_gpu *g, int mark, rd_status *st);
/* Reads the seconds that the device took between two marks. Waits. */
rd_code rd_gpu_between(rd_gpu *g, int from, int to, double *seconds, rd_status *st);

RD_C_END
#endif
