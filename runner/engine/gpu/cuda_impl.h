/* cuda_impl.h -- what the files of the CUDA driver share: the gpu itself, results of the CUDA runtime as a status,
 * device memory that grows. */
#ifndef RD_GPU_IMPL_H
#define RD_GPU_IMPL_H

#include "gpu_ahead.h"
#include "gpu_graph.h"
#include "kernel_call.h"
#include <cuda_runtime_api.h>
#include <string.h>

/* Device memory that is kept from call to call and grows; contents are lost when it does. */
typedef struct rd_gpu_room {
    void *p;
    size_t bytes;
} rd_gpu_room;

typedef struct rd_gpu_memory { /* one rd_gpu_get, or rd_gpu_host_get */
    void *p;
    size_t bytes;
    /* of the host's, by stream: behind the last copy from it, where `pending` */
    cudaEvent_t read[RD_QUEUES];
    bool pending[RD_QUEUES];
} rd_gpu_memory;

/* Pinned memory that arrays pass on their way up, in pieces that are used again once the GPU has read them; see
 * cuda_memory.c. */
enum {
    UP_PIECES = 8,
    DOWN_PIECES = 2,
    PIECE_BYTES = 2 << 20,
    MARKS = 16,
    DIRECT = 64 << 10 /* bytes: larger arrays in page-locked memory are read from there */
};
typedef struct rd_gpu_stage {
    unsigned char *host;
    cudaEvent_t done[UP_PIECES];
    int piece;
    size_t used; /* of that piece */
} rd_gpu_stage;

typedef struct rd_gpu_blas rd_gpu_blas; /* cuda_blas.c */
typedef struct rd_gpu_dnn rd_gpu_dnn;   /* cuda_dnn.c */
typedef struct rd_gpu_held rd_gpu_held; /* cuda_hold.c */

struct rd_gpu {
    int index;
    rd_gpu_options options;
    rd_gpu_info info;
    cudaStream_t stream,
        current;       /* of the ops; where kernels are started now: see rd_gpu_on_stream */
    rd_status failure; /* of the device: sticks */
    bool
        lost; /* work on it hangs with a lost peer, and so would whoever waits for it or frees its memory */
    bool sync;               /* RD_CUDA_SYNC: each kernel is waited for */
    bool float16;            /* RD_CUDA_FLOAT16 */
    const char *last_kernel; /* started last; NULL: none yet */
    uint64_t short_asked, short_left;
    rd_gpu_memory *memory;
    int n_memory, cap_memory;
    rd_gpu_memory *pinned; /* rd_gpu_host_get */
    int n_pinned, cap_pinned;
    uint64_t in_use, peak;
    rd_gpu_stage up, down;
    cudaEvent_t mark[MARKS];
    rd_gpu_room narrow[2],
        room[3]; /* 16-bit operands of a product; copies of a convolution's arrays */
    rd_gpu_blas *blas;
    rd_gpu_dnn *dnn;
    rd_gpu_held *held;
    /* Called before memory at p is given back; set where ranges are held. */
    void (*forget)(rd_gpu *g, const void *p);
    rd_graphs *graphs;   /* NULL: not wanted */
    cudaStream_t copies; /* cuda_ahead.c */
    cudaEvent_t ahead_event[RD_AHEAD_EVENTS];
    rd_ahead *ahead;
    struct rd_gpu_rnn *rnn;
    uint64_t generation; /* of the weights: rd_gpu_weights_changed */
    char text[400];
};

/* ---- results ---- */
/* e as a status, with the library's words and what helps. All but what is told to be harmless sticks to g (NULL: there
 * is none). */
rd_code rd_cuda_result(rd_gpu *g, cudaError_t e, const char *call, const char *where,
                       rd_status *st);
#define RD_CUDA_OK(g, call, st) rd_cuda_result((g), (call), #call, RD_HERE, (st))
#define TRY_CUDA(g, call) RD_TRY(RD_CUDA_OK(g, call, st))
/* RD_OK, or the failure that stuck. First in each function that queues work. */
static inline rd_code rd_gpu_alive(const rd_gpu *g, rd_status *st)
{
    if (g->failure.code != RD_OK && st->code == RD_OK) *st = g->failure;
    return st->code;
}
/* "cudaMalloc" of "cudaMalloc(&p, bytes)": the name of a call as #call spells it. */
static inline int rd_call_name(const char *call)
{
    return (int)strcspn(call, "(");
}

/* ---- memory (cuda_memory.c) ---- */
rd_code rd_gpu_memory_open(rd_gpu *g, rd_status *st); /* of rd_gpu_new: the staging buffers */
void rd_gpu_memory_close(rd_gpu *g); /* of rd_gpu_free: all that was not put back */
rd_code rd_gpu_room_get(rd_gpu *g, rd_gpu_room *r, size_t bytes, rd_status *st);
void rd_gpu_room_free(rd_gpu *g, rd_gpu_room *r);

/* The page-locked memory that the bytes at p lie in; NULL: none. */
rd_gpu_memory *rd_gpu_pinned_of(const rd_gpu *g, const void *p, size_t bytes);
/* A copy from m was queued on that stream. */
rd_code rd_gpu_will_read(rd_gpu *g, rd_gpu_memory *m, rd_gpu_queue stream, rd_status *st);
static inline cudaStream_t rd_gpu_stream(const rd_gpu *g, rd_gpu_queue stream)
{
    return stream == RD_QUEUE_COPIES ? g->copies : g->stream;
}
rd_code rd_gpu_ahead_new(rd_gpu *g, rd_status *st); /* fills g->copies, g->ahead_event, g->ahead */
void rd_gpu_ahead_free(rd_gpu *g);

/* ---- tasks: what is queued, at once or as part of a graph ---- */
extern const rd_graph_maker rd_cuda_graph_maker; /* cuda_graph.c */
typedef struct rd_gpu_move {
    void *to;
    const void *from; /* of rd_gpu_run_copy */
    uint64_t bytes;
} rd_gpu_move;
/* args: rd_kernel_call, rd_gpu_move, rd_gpu_move. */
rd_code rd_gpu_run_kernel(rd_gpu *g, const void *args, rd_status *st);
rd_code rd_gpu_run_copy(rd_gpu *g, const void *args, rd_status *st);
rd_code rd_gpu_run_zero(rd_gpu *g, const void *args, rd_status *st);
rd_code rd_gpu_up_now(rd_gpu *g, void *device, const void *host, size_t bytes, rd_status *st);
/* All that was written down is on the stream: before something waits for it, records an event, gives memory back. */
static inline rd_code rd_gpu_flush(rd_gpu *g, rd_status *st)
{
    return rd_graphs_flush(g->graphs, st);
}
/* Kernels on another stream are not written down. */
static inline rd_code rd_gpu_task_of(rd_gpu *g, rd_gpu_run *run, const void *args, size_t bytes,
                                     size_t fixed, rd_status *st)
{
    return rd_graphs_task(g->current == g->stream ? g->graphs : NULL, g, run, args, bytes, fixed,
                          st);
}

/* Kernels are started on s until the next call; NULL: the ops' stream again. */
static inline void rd_gpu_on_stream(rd_gpu *g, cudaStream_t s)
{
    g->current = s ? s : g->stream;
}

/* Whether this card has TF32, and bfloat16. */
static inline bool rd_gpu_is_ampere(const rd_gpu *g)
{
    return g->info.major >= 8;
}

/* Whether mixed takes bfloat16 here; else float16. RD_CUDA_FLOAT16=1: float16 on every card, for tests. */
static inline bool rd_gpu_is_bfloat16(const rd_gpu *g)
{
    return rd_gpu_is_ampere(g) && !g->float16;
}

/* As rd_gpu_query. has_context: the calling thread works on that GPU, so the runtime knows what is free. */
rd_code rd_cuda_query(int index, bool has_context, rd_gpu_info *out, rd_status *st);

/* ---- weights that are kept in another form (cuda_hold.c) ---- */
/* *out: the 16-bit copy of x, up to date, where x lies in a held range; else NULL. */
rd_code rd_gpu_held_narrow(rd_gpu *g, const float *x, const uint16_t **out, rd_status *st);
/* *out: filters (kh, kw, ci, co) as (co, kh, kw, ci), of that type: kept where W lies in a held range, else in *room until
 * its next use. */
rd_code rd_gpu_held_filters(rd_gpu *g, const float *W, int64_t taps, int64_t ci, int64_t co,
                            rd_element type, rd_gpu_room *room, const void **out, rd_status *st);
void rd_gpu_held_free(rd_gpu *g);

/* ---- products (cuda_blas.c) ---- */
typedef struct rd_product {
    bool ta, tb;
    int64_t m, n, k;
    float alpha, beta;
    const void *A, *B;
    void *C;
    rd_element type_a, type_b,
        type_c; /* 16 bits: rd_gpu_narrow's type, and the product is a narrow one */
    int64_t lda, ldb, ldc;
    int64_t batch, stride_a, stride_b, stride_c; /* batch 1: the strides are not looked at */
} rd_product;
/* narrow: operands are rounded to 16 bits where they have not as many; else float32, or TF32 where the options allow it or are mixed. */
rd_code rd_gpu_multiply(rd_gpu *g, const rd_product *p, bool narrow, rd_status *st);
void rd_gpu_blas_free(rd_gpu *g);
void rd_gpu_dnn_free(rd_gpu *g);

rd_code rd_gpu_blas_load(rd_status *st);
rd_code rd_gpu_dnn_load(rd_status *st);
/* Versions of the libraries, 0 where they cannot be loaded: major * 10000 + minor * 100 + patch. cuDNN's: gpu_rnn.h. */
int rd_gpu_blas_version(void);
int rd_gpu_nccl_version(void);

#endif
