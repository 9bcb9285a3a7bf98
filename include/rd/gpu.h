/* gpu.h -- one GPU as the engine and the ops see it: memory, products, convolutions, sums over ranks. No CUDA type shows.
 *
 * Builds with a GPU backend: `make CUDA=1` with CUDA's libraries, and `make CUDA=emulated`, where kernels run as host code
 * for the tests. Elsewhere each function answers that there is no GPU (runner/engine/gpu/gpu_none.c).
 *
 * Everything is queued in the order of the calls, on one stream unless something else is said, and returns at once, but what
 * says "waits". Device pointers are never read or written by the host. A device failure sticks: every later call returns it
 * again (RD_EENV: which call, where, the library's words, what to do). A gpu is of the calling rank alone, and of one thread. */
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
    char name[96], uuid[48]; /* uuid: "GPU-..." as nvidia-smi -L prints it */
    int major, minor;        /* compute capability */
    int n_sm;
    uint64_t memory, free_memory; /* bytes; free: now, 0 where it is not known */
} rd_gpu_info;
/* GPUs this process sees. 0: why says the reason (no driver, no GPU, CUDA_VISIBLE_DEVICES empty, driver too old). */
int rd_gpu_count(char why[256]);
bool rd_gpu_compiled(void); /* Does the program have a GPU backend? */
/* Loads the libraries that a run cannot do without: cuBLAS, and cuDNN where there are convolutions. RD_EENV: which is not there, and what
 * to install. */
rd_code rd_gpu_need_libraries(bool convolutions, rd_status *st);
rd_code rd_gpu_query(int index, rd_gpu_info *out, rd_status *st);
/* "CUDA 13.0, driver 13.0, cuBLAS 13.1, cuDNN 9.15, NCCL 2.28", what is not there is left out; borrowed for ever. */
const char *rd_gpu_libraries(void);

typedef struct rd_gpu_options {
    bool
        mixed; /* products and convolutions of bfloat16 (float16 before compute capability 8.0), sums in float32 */
    bool tf32;        /* float32 products may round their inputs to TF32 */
    bool shared;      /* another rank has this GPU, too */
    bool graphs;      /* work that recurs (rd_gpu_recurs) is started as CUDA graphs */
    rd_rnn_asked rnn; /* recurrent layers by cuDNN */
} rd_gpu_options;
/* The caller owns *out. */
rd_code rd_gpu_new(int index, const rd_gpu_options *o, rd_gpu **out, rd_status *st);
void rd_gpu_free(rd_gpu *g); /* NULL is fine */
const rd_gpu_info *rd_gpu_about(const rd_gpu *g);
const char *rd_gpu_describe(
    const rd_gpu *
        g); /* "NVIDIA H100 80GB HBM3 (GPU 0, sm_90, 79.6 GiB), CUDA 13.0, ..., mixed (bfloat16)" */
bool rd_gpu_uses_float16(
    const rd_gpu *g); /* mixed on a card without bfloat16: losses want a scale */
rd_element rd_gpu_narrow(
    const rd_gpu *g); /* the 16-bit type of mixed products; RD_FLOAT32 where it is not mixed */
/* Takes the note that tells a person how ops are computed otherwise than was wanted; NULL: nothing new. Borrowed until
 * the next call of an op. */
const char *rd_gpu_take_note(rd_gpu *g);

/* ---- memory ---- */
rd_code rd_gpu_get(
    rd_gpu *g, size_t bytes, void *out,
    rd_status *st); /* out: address of any object pointer; 256-byte aligned, undefined */
void rd_gpu_put(rd_gpu *g, void *p); /* NULL is fine; waits */
/* Host to device: host memory is free again at return (it is copied into page-locked memory first), but for larger arrays (above
 * 64 KiB) in memory of rd_gpu_host_get: these are read later, at their turn. */
rd_code rd_gpu_up(rd_gpu *g, void *device, const void *host, size_t bytes, rd_status *st);
rd_code rd_gpu_down(rd_gpu *g, void *host, const void *device, size_t bytes,
                    rd_status *st); /* waits */
rd_code rd_gpu_copy(rd_gpu *g, void *to, const void *from, size_t bytes,
                    rd_status *st); /* on the device */
rd_code rd_gpu_zero(rd_gpu *g, void *device, size_t bytes, rd_status *st);
rd_code rd_gpu_wait(rd_gpu *g, rd_status *st); /* waits for all that was queued */
/* Page-locked memory of the host, 256-byte aligned, undefined: rd_gpu_up from within it needs no copy on the way, nor waits. out: address
 * of any object pointer. A failure (RD_EENV) does not stick: ordinary memory does, too. */
rd_code rd_gpu_host_get(rd_gpu *g, size_t bytes, void *out, rd_status *st);
/* Returns when every rd_gpu_up from the page-locked memory that p lies in has read it, so that it may be written again; at once where p
 * lies in none. Does not wait for work that was queued after those. */
rd_code rd_gpu_host_wait(rd_gpu *g, const void *p, rd_status *st);
void rd_gpu_host_put(rd_gpu *g, void *p); /* NULL is fine; waits */
/* An array in memory of rd_gpu_host_get begins to go up now, on a stream of its own, beside what was queued before: the next rd_gpu_up of it, or
 * of its first bytes, finds it on the device, and what is queued from there on waits for it. rd_gpu_host_wait takes it back: an rd_gpu_up after that
 * takes what is then there. Nothing happens to arrays of up to 64 KiB, of other memory, and where the device has no memory for it. */
rd_code rd_gpu_up_ahead(rd_gpu *g, const void *host, size_t bytes, rd_status *st);
typedef struct rd_gpu_ahead_counts {
    int64_t sent;   /* arrays of rd_gpu_up_ahead */
    int64_t taken;  /* of these, found by rd_gpu_up */
    int64_t late;   /* arrays that rd_gpu_up took from page-locked memory itself */
    uint64_t bytes; /* of device memory */
    bool is_short;  /* the device had no memory for it; it is not asked again */
} rd_gpu_ahead_counts;
void rd_gpu_count_ahead(const rd_gpu *g, rd_gpu_ahead_counts *out);
uint64_t rd_gpu_in_use(const rd_gpu *g); /* bytes of rd_gpu_get now, and at most so far */
uint64_t rd_gpu_peak(const rd_gpu *g);
/* Is st the failure of a rd_gpu_get for which the card had too little memory? Then the bytes that the last such one asked for, and those
 * free then. Such a failure does not stick. */
bool rd_gpu_short(const rd_gpu *g, const rd_status *st, uint64_t *asked, uint64_t *left);

/* Parameters lie in [p, p + n), until the range is put with rd_gpu_put, and change only before rd_gpu_weights_changed: copies of them
 * in other types or orders are kept, and made again when a product or convolution wants them after a change. Several ranges are
 * fine. */
rd_code rd_gpu_hold(rd_gpu *g, const float *p, int64_t n, rd_status *st);
void rd_gpu_weights_changed(rd_gpu *g);
/* Memory for a copy in another form, `bytes` long, of the weights at w: kept as long as the range that w lies in is held, and found
 * again by w and `form`, a number of the caller's other than 0. *current: it was handed out since the last change, and the caller has
 * filled it; else the caller now does. *out: address of any object pointer; NULL where w is not held. */
rd_code rd_gpu_hold_copy(rd_gpu *g, const float *w, int form, size_t bytes, void *out,
                         bool *current, rd_status *st);

/* ---- products ---- */
/* As rd_gemm: C[m, n] = alpha op(A)[m, k] op(B)[k, n] + beta C, row major. mixed: operands are rounded to the 16-bit type. */
rd_code rd_gpu_gemm(rd_gpu *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                    const float *A, int64_t lda, const float *B, int64_t ldb, float beta, float *C,
                    int64_t ldc, rd_status *st);
/* `batch` products of one shape, operands stride_* elements apart. */
rd_code rd_gpu_gemm_batched(rd_gpu *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                            float alpha, const float *A, int64_t lda, int64_t stride_a,
                            const float *B, int64_t ldb, int64_t stride_b, float beta, float *C,
                            int64_t ldc, int64_t stride_c, int64_t batch, rd_status *st);

/* Operands of 16 bits are read as they are, a float32 one beside such a one is rounded to its type; two of float32: as rd_gpu_gemm. The
 * 16-bit type is rd_gpu_narrow's. */
typedef struct rd_gpu_operand {
    void *at;
    rd_element type;
    int64_t ld; /* elements */
} rd_gpu_operand;
/* C[m, n] = op(A)[m, k] op(B)[k, n] + beta C, sums in float32; C is rounded once where it has 16 bits. A and B are only read. */
rd_code rd_gpu_product(rd_gpu *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                       rd_gpu_operand A, rd_gpu_operand B, float beta, rd_gpu_operand C,
                       rd_status *st);

/* ---- convolutions: NHWC, weights (kh, kw, ci, co) as rd_op_conv2d has them ---- */
typedef struct rd_gpu_conv {
    int64_t n, h, w, ci, co, kh, kw, oh, ow, stride;
    int64_t pad_top, pad_left, pad_bottom, pad_right;
    rd_element
        type; /* of x, y and their gradients: float32 (mixed and tf32: inputs may be rounded to TF32), or rd_gpu_narrow's, to
                        which the weights are rounded, too. Sums are float32. W and dW are float32 arrays; what is added to dW may
                        have been rounded to 16 bits before */
} rd_gpu_conv;
/* y = conv(x, W). No bias. */
rd_code rd_gpu_conv_forward(rd_gpu *g, const rd_gpu_conv *c, const void *x, const float *W, void *y,
                            rd_status *st);
/* dx (+)= ; dW += . */
rd_code rd_gpu_conv_data(rd_gpu *g, const rd_gpu_conv *c, const void *dy, const float *W, void *dx,
                         bool add, rd_status *st);
rd_code rd_gpu_conv_weights(rd_gpu *g, const rd_gpu_conv *c, const void *x, const void *dy,
                            float *dW, rd_status *st);

/* ---- elements ---- */
/* y[0, n) (+)= x[0, n), of any two types; nearest, ties to even. x may be y where the types are equal. */
rd_code rd_gpu_cast(rd_gpu *g, int64_t n, const void *x, rd_element from, void *y, rd_element to,
                    bool add, rd_status *st);

/* ---- sums over ranks (NCCL) ---- */
typedef enum rd_gpu_wire { RD_GPU_WIRE_F32, RD_GPU_WIRE_BF16, RD_GPU_WIRE_F16 } rd_gpu_wire;
enum { RD_GPU_ID_BYTES = 128 };
typedef struct rd_gpu_group rd_gpu_group;
typedef struct rd_gpu_nccl {
    int version;        /* 22809: 2.28.9 */
    char settings[160]; /* see rd_nccl_settings */
    bool overridden;
} rd_gpu_nccl;
rd_code rd_gpu_nccl_about(rd_gpu *g, rd_gpu_nccl *out,
                          rd_status *st); /* RD_EENV: it cannot be loaded; does not stick */
typedef struct rd_gpu_group_options {
    unsigned char id[RD_GPU_ID_BYTES];
    int rank, size;
    double
        open_s; /* how long to wait for the others until the first sum, of one number, is done; 0: for ever */
    double sum_s; /* the same, in the calls for each later one */
    bool
        shared; /* ranks have one GPU: rd_nccl_serves, and rd_gpu_options.shared, of each of them */
} rd_gpu_group_options;
/* Rank 0 makes the id, all get its bytes (MPI), then all call rd_gpu_group_new. When it returns, ranks have summed. Failures of both, a
 * missing library among them (RD_EENV), do not stick to g. */
rd_code rd_gpu_group_id(rd_gpu *g, unsigned char id[RD_GPU_ID_BYTES], rd_status *st);
rd_code rd_gpu_group_new(rd_gpu *g, const rd_gpu_group_options *o, rd_gpu_group **out,
                         rd_status *st);
void rd_gpu_group_free(
    rd_gpu_group *q); /* NULL is fine; aborts what does not end within some seconds */
/* In place of rd_gpu_group_free, after a failure of any rank: waits for no sum. A sum that lacks a rank never ends, and whoever waits for
 * the device, or gives memory back, hangs with it until here. */
void rd_gpu_group_abort(rd_gpu_group *q); /* NULL is fine */
/* x[0, n) becomes its sum over all ranks, on a stream of its own, after what has been queued so far. All ranks call it in the
 * same order. */
rd_code rd_gpu_group_sum(rd_gpu_group *q, float *x, int64_t n, rd_gpu_wire wire, rd_status *st);
/* The stream of the ops goes on after all sums so far. Does not wait; RD_EPEER when NCCL has seen a peer fail. */
rd_code rd_gpu_group_join(rd_gpu_group *q, rd_status *st);
/* Waits for all sums so far, up to timeout_s (0: for ever); RD_EPEER or RD_ESTALL. */
rd_code rd_gpu_group_wait(rd_gpu_group *q, double timeout_s, rd_status *st);
typedef struct rd_gpu_sum_time { /* on the device's clock */
    double begin_s,
        end_s; /* so many seconds before now: what it waited for was there; it was done */
} rd_gpu_sum_time;
/* Of the sums before the last rd_gpu_group_join (those since the join before it), in their order: the first `most` of them; *n: how many
 * these are. A sum of nothing is none. Waits. */
rd_code rd_gpu_group_times(rd_gpu_group *q, rd_gpu_sum_time *out, int most, int *n, rd_status *st);

/* ---- work that recurs (CUDA graphs; see runner/engine/gpu/gpu_graph.h) ---- */
/* What is queued from here to rd_gpu_recurred may be kept back until a result is waited for, and is then started all at once where
 * the same came under this key before. Its results are the same bytes either way. key: of what the work depends on; one that leaves
 * something out costs time, not correctness. Without rd_gpu_options.graphs both do nothing. */
rd_code rd_gpu_recurs(rd_gpu *g, uint64_t key, rd_status *st);
rd_code rd_gpu_recurred(rd_gpu *g, rd_status *st); /* is called after failures, too */
typedef struct rd_gpu_graph_counts {
    int64_t graphs;   /* that exist now */
    uint64_t bytes;   /* of device memory that they take */
    int64_t started;  /* graphs */
    int64_t all;      /* launches, products, copies of work that recurs */
    int64_t tasks;    /* of these, started in graphs */
    int64_t set;      /* of those, had other arguments than the time before */
    int64_t left;     /* times that other work came than the graph has */
    int64_t given_up; /* keys */
} rd_gpu_graph_counts;
void rd_gpu_count_graphs(const rd_gpu *g, rd_gpu_graph_counts *out);
/* Takes the line for the log that says why work that recurs is no graph, if that is worth knowing; else NULL. */
const char *rd_gpu_take_graph_note(rd_gpu *g);

/* ---- time ---- */
/* Seconds that the device took between two marks (0 .. 15) set on the ops' stream; waits. */
rd_code rd_gpu_mark(rd_gpu *g, int mark, rd_status *st);
rd_code rd_gpu_between(rd_gpu *g, int from, int to, double *seconds, rd_status *st);

RD_C_END
#endif
