/* cuda_impl.h -- what the files of the CUDA driver share: the gpu itself, results of the CUDA
 * runtime as a status, device memory that grows. */
#ifndef RD_GPU_IMPL_H
#define RD_GPU_IMPL_H

#include "gpu_ahead.h"
#include "gpu_graph.h"
#include "kernel_call.h"
#include <cuda_runtime_api.h>
#include <string.h>

/* Device memory that is kept from call to call and grows. Growing loses the contents. */
typedef struct rd_gpu_scratch {
    void *p;
    size_t bytes;
} rd_gpu_scratch;

/* one allocation of rd_gpu_memory_new or rd_gpu_host_new */
typedef struct rd_gpu_memory {
    void *p;
    size_t bytes;
    bool kept; /* allocated by rd_gpu_memory_keep */
    /* for host memory, one event per stream: it follows the last copy from the memory, if
     * `pending` */
    cudaEvent_t read[RD_QUEUES];
    bool pending[RD_QUEUES];
} rd_gpu_memory;

/* Constants of the pinned staging buffer. Arrays pass through its pieces when they are uploaded. A
 * piece is used again once the GPU has read it; see cuda_memory.c. */
enum {
    UP_PIECES = 8,
    DOWN_PIECES = 2,
    PIECE_BYTES = 2 << 20,
    MARKS = 16,
    /* bytes; larger arrays in pinned memory are uploaded from there */
    DIRECT = 64 << 10
};
typedef struct rd_gpu_stage {
    unsigned char *host;
    cudaEvent_t done[UP_PIECES];
    int piece;
    size_t used; /* bytes of that piece in use */
} rd_gpu_stage;

typedef struct rd_gpu_blas rd_gpu_blas; /* see cuda_blas.c */
typedef struct rd_gpu_dnn rd_gpu_dnn;   /* see cuda_dnn.c */
typedef struct rd_gpu_held rd_gpu_held; /* see cuda_hold.c */

struct rd_gpu {
    int index;
    rd_gpu_options options;
    rd_gpu_info info;
    /* the ops' stream, and the stream on which kernels start now: see rd_gpu_on_stream */
    cudaStream_t stream, current;
    rd_status failure; /* failure of the device: sticks */
    /* work on the device hangs with a lost peer, so waiting for the device or freeing its memory
     * would hang */
    bool lost;
    bool sync;               /* RD_CUDA_SYNC: the host waits for each kernel */
    bool float16;            /* RD_CUDA_FLOAT16 is set */
    const char *last_kernel; /* the kernel started last; NULL: none yet */
    uint64_t short_asked, short_left;
    rd_gpu_memory *memory;
    int n_memory, cap_memory;
    rd_gpu_memory *pinned; /* memory of rd_gpu_host_new */
    int n_pinned, cap_pinned;
    uint64_t in_use, peak;
    uint64_t kept; /* bytes of in_use that rd_gpu_memory_keep allocated */
    rd_gpu_stage up, down;
    cudaEvent_t mark[MARKS];
    /* 16-bit operands of a product; copies of a convolution's arrays */
    rd_gpu_scratch narrow[2], scratch[3];
    rd_gpu_blas *blas;
    rd_gpu_dnn *dnn;
    rd_gpu_held *held;
    /* Called before memory at p is freed; set if ranges are held. */
    void (*forget)(rd_gpu *g, const void *p);
    rd_graphs *graphs;   /* NULL: the options exclude graphs */
    cudaStream_t copies; /* the stream of cuda_ahead.c */
    cudaEvent_t ahead_event[RD_AHEAD_EVENTS];
    rd_ahead *ahead;
    struct rd_gpu_rnn *rnn;
    uint64_t generation; /* number of changes of the weights: rd_gpu_weights_changed */
    char text[400];
};

/* ---- results ---- */
/* Turns e into a status, with the library's text and what helps. A failure sticks to g, unless it
 * is known to be harmless. g may be NULL: then nothing sticks. */
rd_code rd_cuda_result(rd_gpu *g, cudaError_t e, const char *call, const char *where,
                       rd_status *st);
#define RD_CUDA_OK(g, call, st) rd_cuda_result((g), (call), #call, RD_HERE, (st))
#define TRY_CUDA(g, call) RD_TRY(RD_CUDA_OK(g, call, st))
/* Returns RD_OK, or the failure that stuck. The first call in each function that queues work. */
static inline rd_code rd_gpu_alive(const rd_gpu *g, rd_status *st)
{
    if (g->failure.code != RD_OK && st->code == RD_OK) *st = g->failure;
    return st->code;
}
/* Returns the length of the name of a call as #call spells it: of "cudaMalloc" in "cudaMalloc(&p,
 * bytes)". */
static inline int rd_call_name(const char *call)
{
    return (int)strcspn(call, "(");
}

/* ---- memory (cuda_memory.c) ---- */
/* Allocates memory that the gpu keeps for itself; freed by rd_gpu_memory_free. */
rd_code rd_gpu_memory_keep(rd_gpu *g, size_t bytes, void *out, rd_status *st);
/* For rd_gpu_new: allocates the staging buffers. */
rd_code rd_gpu_memory_open(rd_gpu *g, rd_status *st);
/* For rd_gpu_free: frees all memory that the caller did not return. */
void rd_gpu_memory_close(rd_gpu *g);
/* Grows r to at least `bytes` bytes. */
rd_code rd_gpu_scratch_get(rd_gpu *g, rd_gpu_scratch *r, size_t bytes, rd_status *st);
/* Frees the memory of r. */
void rd_gpu_scratch_free(rd_gpu *g, rd_gpu_scratch *r);

/* Returns the pinned memory that contains the bytes at p. NULL: none. */
rd_gpu_memory *rd_gpu_pinned_of(const rd_gpu *g, const void *p, size_t bytes);
/* Records that a copy from m was queued on that stream. */
rd_code rd_gpu_will_read(rd_gpu *g, rd_gpu_memory *m, rd_gpu_queue stream, rd_status *st);
static inline cudaStream_t rd_gpu_stream(const rd_gpu *g, rd_gpu_queue stream)
{
    return stream == RD_QUEUE_COPIES ? g->copies : g->stream;
}
/* Fills g->copies, g->ahead_event, g->ahead. */
rd_code rd_gpu_ahead_new(rd_gpu *g, rd_status *st);
/* Frees what rd_gpu_ahead_new made. */
void rd_gpu_ahead_free(rd_gpu *g);

/* ---- tasks: what is queued, at once or as part of a graph ---- */
/* See cuda_graph.c. */
extern const rd_graph_maker rd_cuda_graph_maker;
typedef struct rd_gpu_move {
    void *to;
    const void *from; /* source of rd_gpu_run_copy */
    uint64_t bytes;
} rd_gpu_move;
/* Run one task. args: rd_kernel_call, rd_gpu_move, rd_gpu_move. */
rd_code rd_gpu_run_kernel(rd_gpu *g, const void *args, rd_status *st);
rd_code rd_gpu_run_copy(rd_gpu *g, const void *args, rd_status *st);
rd_code rd_gpu_run_zero(rd_gpu *g, const void *args, rd_status *st);
/* Uploads an array at once, outside of graphs. */
rd_code rd_gpu_up_now(rd_gpu *g, void *device, const void *host, size_t bytes, rd_status *st);
/* Puts all recorded tasks on the stream. Called before code waits for the stream, records an event
 * or frees memory. */
static inline rd_code rd_gpu_flush(rd_gpu *g, rd_status *st)
{
    return rd_graphs_flush(g->graphs, st);
}
/* Records a task or runs it. Kernels on another stream are not recorded. */
static inline rd_code rd_gpu_task_of(rd_gpu *g, rd_gpu_run *run, const void *args, size_t bytes,
                                     size_t fixed, rd_status *st)
{
    return rd_graphs_task(g->current == g->stream ? g->graphs : NULL, g, run, args, bytes, fixed,
                          st);
}

/* Starts kernels on s until the next call. NULL: the ops' stream again. */
static inline void rd_gpu_on_stream(rd_gpu *g, cudaStream_t s)
{
    g->current = s ? s : g->stream;
}

/* Returns whether this GPU has TF32 and bfloat16. */
static inline bool rd_gpu_is_ampere(const rd_gpu *g)
{
    return g->info.major >= 8;
}

/* Returns whether mixed products use bfloat16; else they use float16. RD_CUDA_FLOAT16=1 chooses
 * float16 on every GPU, for tests. */
static inline bool rd_gpu_is_bfloat16(const rd_gpu *g)
{
    return rd_gpu_is_ampere(g) && !g->float16;
}

/* Does the work of rd_gpu_query. has_context: the calling thread works on that GPU, so the runtime
 * knows how much memory is free. */
rd_code rd_cuda_query(int index, bool has_context, rd_gpu_info *out, rd_status *st);

/* ---- weights that are kept in another form (cuda_hold.c) ---- */
/* Returns in *out the up-to-date 16-bit copy of x if a held range contains x, else NULL. */
rd_code rd_gpu_held_narrow(rd_gpu *g, const float *x, const uint16_t **out, rd_status *st);
/* Returns in *out filters (kh, kw, ci, co) as (co, kh, kw, ci) of that type. If a held range
 * contains W, the copy is kept; else it is in *scratch until the next use of *scratch. */
rd_code rd_gpu_held_filters(rd_gpu *g, const float *W, int64_t taps, int64_t ci, int64_t co,
                            rd_element type, rd_gpu_scratch *scratch, const void **out,
                            rd_status *st);
/* Frees the lists of held weights. */
void rd_gpu_held_free(rd_gpu *g);

/* ---- products (cuda_blas.c) ---- */
typedef struct rd_product {
    bool ta, tb;
    int64_t m, n, k;
    float alpha, beta;
    const void *A, *B;
    void *C;
    /* rd_gpu_narrow's type, and the product is a narrow one, if an operand has 16 bits */
    rd_element type_a, type_b, type_c;
    int64_t lda, ldb, ldc;
    /* with batch = 1 the strides are ignored */
    int64_t batch, stride_a, stride_b, stride_c;
} rd_product;
/* Computes a product. narrow: operands are rounded to 16 bits if they have more. Else the product
 * is float32, or TF32 if the options allow TF32 or are mixed. */
rd_code rd_gpu_multiply(rd_gpu *g, const rd_product *p, bool narrow, rd_status *st);
/* Free the library handles and plans of g. */
void rd_gpu_blas_free(rd_gpu *g);
void rd_gpu_dnn_free(rd_gpu *g);

/* Load a library; RD_EENV if it cannot be loaded. */
rd_code rd_gpu_blas_load(rd_status *st);
rd_code rd_gpu_dnn_load(rd_status *st);
/* Return the versions of cuBLAS and NCCL, major * 10000 + minor * 100 + patch; 0 if a library
 * cannot be loaded. For cuDNN: see gpu_rnn.h. */
int rd_gpu_blas_version(void);
int rd_gpu_nccl_version(void);

#endif
