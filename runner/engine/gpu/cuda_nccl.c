/* cuda_nccl.c -- sums over ranks by NCCL, and copies of parts, on their own stream beside the ops'
 * stream.
 *
 * The order of the sums: NCCL may add along a ring, along trees, or in the switch (NVLS). It
 * chooses by the size of the message and by the machine. In a ring, the order of ranks follows from
 * the machine's topology. The place of an element in the message fixes the order in which its
 * values are added. The protocol and the number of channels follow from the size. So a job of the
 * same ranks on the same kind of machines gives the same bytes in every run. The switch promises no
 * order. Hence NCCL_ALGO=Ring and NCCL_NVLS_ENABLE=0.
 *
 * NCCL_PROTO=Simple: without this setting NCCL chooses the protocol by a model of times, which
 * differs between versions, and only some machines have LL128. Every machine has Simple, and it is
 * the fastest for buckets of many MB. Settings that the environment already has stay
 * (rd_nccl_settings).
 *
 * The communicator does not block. Each of its calls may return before it is done; the driver then
 * polls it up to a time limit. So a lost peer causes a message and no hang. (Work that NCCL has put
 * on the stream does hang with the peer; rd_gpu_group_wait sees this, and ncclCommAbort ends the
 * work.) */
#include "cuda_impl.h"
#include "cuda_convert.h"
#include "cuda_library.h"
#include "gpu_remedy.h"
#include "rd/clock.h"
#include "rd/gpu_choose.h"
#include "rd/gpu_parts.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#if __has_include(<nccl.h>)
#include <nccl.h>
#else
#error "nccl.h is missing: CUDA=1 needs NCCL's header "\
    "(Debian's name: libnccl-dev; or CPPFLAGS=-I/path/to/include)"
#endif

#define CALLS(X)              \
    X(ncclGetVersion)         \
    X(ncclGetUniqueId)        \
    X(ncclGetErrorString)     \
    X(ncclGetLastError)       \
    X(ncclCommInitRankConfig) \
    X(ncclCommFinalize)       \
    X(ncclCommDestroy)        \
    X(ncclCommAbort)          \
    X(ncclCommGetAsyncError)  \
    X(ncclAllReduce)          \
    X(ncclGroupStart)         \
    X(ncclBroadcast)          \
    X(ncclGroupEnd)
static struct {
    CALLS(RD_FIELD)
} nccl;
#define ENTRY(f) RD_ENTRY_OF(nccl, f)
static const rd_symbol symbols[] = {CALLS(ENTRY)};
static rd_library library = {.title = "NCCL",
                             .names = {"libnccl.so.2"},
                             .package = "NCCL (libnccl2, or nvidia-nccl-cu13 by pip)",
                             .symbol = symbols,
                             .n_symbol = sizeof symbols / sizeof *symbols,
                             .table = &nccl};

_Static_assert(sizeof(ncclUniqueId) == RD_GPU_ID_BYTES, "the id of a group has other bytes");

static const double end_s = 10.0; /* seconds to leave a group */
/* Number of CTAs of a sum if ranks share a GPU. While these ranks wait for one another, they leave
 * the rest of the GPU to the work of the others. */
enum { SHARED_CTAS = 4 };

/* the events of one sum; they record times */
typedef struct sum_events {
    cudaEvent_t begin, end;
} sum_events;

/* the sums between two joins */
typedef struct sums {
    sum_events *of; /* owned */
    int n, capacity;
} sums;

struct rd_gpu_group {
    rd_gpu *g;
    ncclComm_t comm; /* NULL: aborted */
    cudaStream_t stream;
    /* ready: the ops' stream has come so far; end: all sums so far are done */
    cudaEvent_t ready, end;
    cudaEvent_t now; /* records times */
    bool waited;     /* now was recorded after all sums so far and the last join */
    sums round[2];   /* used in turn */
    int turn;        /* index of the round for the next sums */
    bool failed;     /* the group was never complete, or has failed */
    /* what the last call has begun: "a sum" */
    const char *what;
    double sum_s; /* time limit in seconds of a call for a sum; 0: none */
    rd_gpu_scratch wire;
    int size;
};

static rd_code cuda_nccl_load(rd_status *st)
{
    char settings[160];
    /* NCCL reads the variables once, when it first needs them */
    if (!library.handle) (void)rd_nccl_settings(settings);
    return rd_library_load(&library, st);
}

int rd_gpu_nccl_version(void)
{
    rd_status own = {.code = RD_OK};
    int v = 0;
    if (cuda_nccl_load(&own) != RD_OK || nccl.ncclGetVersion(&v) != ncclSuccess) return 0;
    return v;
}

/* Returns the name of a result; NCCL itself gives only a text. */
static const char *name_of(ncclResult_t r)
{
    switch (r) {
    case ncclUnhandledCudaError:
        return "ncclUnhandledCudaError";
    case ncclSystemError:
        return "ncclSystemError";
    case ncclInvalidUsage:
        return "ncclInvalidUsage";
    case ncclRemoteError:
        return "ncclRemoteError";
    default:
        return "ncclInternalError";
    }
}

static rd_code cuda_nccl_result(rd_gpu_group *q, ncclResult_t r, const char *call,
                                const char *where, rd_status *st)
{
    if (r == ncclSuccess) return st->code;
    const char *more = nccl.ncclGetLastError(q ? q->comm : NULL);
    const rd_code code = r == ncclRemoteError       ? RD_EPEER
                         : r == ncclInvalidArgument ? RD_EBUG
                                                    : RD_EENV;
    return rd_fail_(st, code, where, "NCCL: %.*s: %s%s%.300s; %s", rd_call_name(call), call,
                    nccl.ncclGetErrorString(r), more && more[0] ? ": " : "", more ? more : "",
                    rd_gpu_remedy(name_of(r)));
}
#define TRY_NCCL(q, call) RD_TRY(cuda_nccl_result((q), (nccl.call), #call, RD_HERE, st))

/* ---- waiting ---- */

typedef struct patience {
    int64_t end_ns; /* 0: for ever */
    int turns;
} patience;

static patience patience_of(double timeout_s)
{
    return (patience){timeout_s > 0.0 ? rd_now_ns() + (int64_t)(timeout_s * 1e9) : 0, 0};
}

/* Sleeps for a short time that grows, so that calls that end within microseconds are seen at once.
 * False: the time is over. */
static bool cuda_nccl_sleep(patience *p)
{
    if (p->end_ns && rd_now_ns() > p->end_ns) return false;
    if (p->turns++ < 2000) {
        sched_yield();
        return true;
    }
    const struct timespec pause = {.tv_nsec = p->turns < 20000 ? 20000 : 500000};
    nanosleep(&pause, NULL);
    return true;
}

/* Waits until the communicator's last call, which returned r, is done. */
static rd_code await_call(rd_gpu_group *q, ncclResult_t r, const char *call, const char *where,
                          double timeout_s, rd_status *st)
{
    patience p = patience_of(timeout_s);
    while (r == ncclInProgress) {
        ncclResult_t state = ncclInProgress;
        const ncclResult_t asked = nccl.ncclCommGetAsyncError(q->comm, &state);
        r = asked == ncclSuccess ? state : asked;
        if (r == ncclInProgress && !cuda_nccl_sleep(&p))
            return rd_fail_(st, RD_ESTALL, where,
                            "NCCL: %.*s was not done after %.3g s: some of the %d ranks did not "
                            "come, or cannot be reached over the network that NCCL chose "
                            "(NCCL_DEBUG=INFO shows it, NCCL_SOCKET_IFNAME names another)",
                            rd_call_name(call), call, timeout_s, q->size);
    }
    return cuda_nccl_result(q, r, call, where, st);
}
#define TRY_AWAIT(q, call, timeout_s) \
    RD_TRY(await_call((q), (nccl.call), #call, RD_HERE, (timeout_s), st))

/* Returns RD_EPEER if NCCL's own threads have seen a failure. */
static rd_code async_error(rd_gpu_group *q, rd_status *st)
{
    ncclResult_t state = ncclSuccess;
    TRY_NCCL(q, ncclCommGetAsyncError(q->comm, &state));
    if (state == ncclSuccess || state == ncclInProgress) return st->code;
    const char *more = nccl.ncclGetLastError(q->comm);
    q->failed = true;
    rd_fail(st, RD_EPEER,
            "NCCL: %s over ranks failed: %s%s%.300s; another rank ended, or the network to it "
            "failed",
            q->what, nccl.ncclGetErrorString(state), more && more[0] ? ": " : "", more ? more : "");
done:
    return st->code;
}

/* ---- groups ---- */

rd_code rd_gpu_nccl_about(rd_gpu *g, rd_gpu_nccl *out, rd_status *st)
{
    *out = (rd_gpu_nccl){.version = 0};
    RD_TRY(rd_gpu_alive(g, st));
    RD_TRY(cuda_nccl_load(st));
    TRY_NCCL(NULL, ncclGetVersion(&out->version));
    out->overridden = rd_nccl_settings(out->settings);
done:
    return st->code;
}

rd_code rd_gpu_group_id(rd_gpu *g, unsigned char id[RD_GPU_ID_BYTES], rd_status *st)
{
    ncclUniqueId u;
    memset(id, 0, RD_GPU_ID_BYTES);
    RD_TRY(rd_gpu_alive(g, st));
    RD_TRY(cuda_nccl_load(st));
    TRY_NCCL(NULL, ncclGetUniqueId(&u));
    memcpy(id, &u, sizeof u);
done:
    return st->code;
}

/* A call of ncclCommAbort on its own thread, with a time limit. It waits for NCCL's threads, which
 * may themselves hang with the network. */
typedef struct abort_job {
    ncclComm_t comm;
    int device;
    /* the thread and the waiting caller set it; the second one frees the job */
    atomic_bool over;
} abort_job;

static void *abort_main(void *arg)
{
    abort_job *j = arg;
    (void)cudaSetDevice(j->device);
    (void)nccl.ncclCommAbort(j->comm);
    if (atomic_exchange(&j->over, true)) free(j);
    return NULL;
}

/* Aborts the communicator. False: the abort does not end. Work that NCCL has put on the stream then
 * hangs, and waiting for the device would hang, too. */
static bool abort_comm(rd_gpu_group *q)
{
    pthread_t thread;
    if (!q->comm) return true;
    abort_job *j = calloc(1, sizeof *j);
    if (!j) return false;
    j->comm = q->comm;
    j->device = q->g->index;
    q->comm = NULL;
    if (pthread_create(&thread, NULL, abort_main, j) != 0) {
        free(j);
        return false;
    }
    pthread_detach(thread);
    patience p = patience_of(end_s);
    while (!atomic_load(&j->over) && cuda_nccl_sleep(&p)) continue;
    const bool ended = atomic_exchange(&j->over, true);
    if (ended) free(j);
    return ended;
}

/* Sums one number. NCCL connects ranks at the first sum, which takes longer than any sum on many
 * hosts. */
static rd_code first_sum(rd_gpu_group *q, double timeout_s, rd_status *st)
{
    rd_gpu *g = q->g;
    RD_TRY(rd_gpu_scratch_get(g, &q->wire, sizeof(float), st));
    TRY_CUDA(g, cudaMemsetAsync(q->wire.p, 0, sizeof(float), q->stream));
    TRY_AWAIT(q, ncclAllReduce(q->wire.p, q->wire.p, 1, ncclFloat32, ncclSum, q->comm, q->stream),
              timeout_s);
    TRY_CUDA(g, cudaEventRecord(q->end, q->stream));
    RD_TRY(rd_gpu_group_wait(q, timeout_s, st));
done:
    return st->code;
}

rd_code rd_gpu_group_new(rd_gpu *g, const rd_gpu_group_options *o, rd_gpu_group **out,
                         rd_status *st)
{
    ncclUniqueId u;
    int low = 0, high = 0;
    rd_gpu_group *q = *out = calloc(1, sizeof *q);
    if (!q) return rd_fail(st, RD_EENV, "out of memory for a group of ranks");
    q->g = g;
    q->size = o->size;
    q->sum_s = o->sum_s;
    q->what = "a sum";
    memcpy(&u, o->id, sizeof u);
    RD_TRY(rd_gpu_alive(g, st));
    RD_TRY(cuda_nccl_load(st));
    /* sums have priority, because the ops behind them wait */
    TRY_CUDA(g, cudaDeviceGetStreamPriorityRange(&low, &high));
    TRY_CUDA(g, cudaStreamCreateWithPriority(&q->stream, cudaStreamNonBlocking, high));
    TRY_CUDA(g, cudaEventCreateWithFlags(&q->ready, cudaEventDisableTiming));
    TRY_CUDA(g, cudaEventCreateWithFlags(&q->end, cudaEventDisableTiming));
    TRY_CUDA(g, cudaEventCreate(&q->now));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (o->shared) config.maxCTAs = SHARED_CTAS;
    TRY_AWAIT(q, ncclCommInitRankConfig(&q->comm, o->size, u, o->rank, &config), o->open_s);
    RD_TRY(first_sum(q, o->open_s, st));
done:
    if (st->code != RD_OK) {
        rd_gpu_group_abort(q);
        *out = NULL;
    }
    return st->code;
}

void rd_gpu_group_abort(rd_gpu_group *q)
{
    if (q) q->failed = true;
    rd_gpu_group_free(q);
}

void rd_gpu_group_free(rd_gpu_group *q)
{
    if (!q) return;
    rd_status own = {.code = RD_OK};
    if (q->comm && !q->failed && rd_gpu_group_wait(q, end_s, &own) == RD_OK &&
        await_call(q, nccl.ncclCommFinalize(q->comm), "ncclCommFinalize", RD_HERE, end_s, &own) ==
            RD_OK) {
        (void)nccl.ncclCommDestroy(q->comm);
        q->comm = NULL;
    }
    if (!abort_comm(q)) {
        /* q stays, too: the other thread or the device may still use it */
        q->g->lost = true;
        return;
    }
    if (q->stream) (void)cudaStreamSynchronize(q->stream);
    rd_gpu_scratch_free(q->g, &q->wire);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < q->round[i].capacity; k++) {
            if (q->round[i].of[k].begin) (void)cudaEventDestroy(q->round[i].of[k].begin);
            if (q->round[i].of[k].end) (void)cudaEventDestroy(q->round[i].of[k].end);
        }
        free(q->round[i].of);
    }
    if (q->now) (void)cudaEventDestroy(q->now);
    if (q->ready) (void)cudaEventDestroy(q->ready);
    if (q->end) (void)cudaEventDestroy(q->end);
    if (q->stream) (void)cudaStreamDestroy(q->stream);
    (void)cudaGetLastError();
    free(q);
}

/* ---- sums ---- */

static rd_code sum_narrow(rd_gpu_group *q, float *x, int64_t n, rd_narrow to, ncclDataType_t type,
                          rd_status *st)
{
    rd_gpu *g = q->g;
    if (q->wire.bytes < (size_t)n * sizeof(uint16_t))
        RD_TRY(rd_gpu_group_wait(q, q->sum_s, st)); /* a sum uses it there */
    RD_TRY(rd_gpu_scratch_get(g, &q->wire, (size_t)((n + 7) / 8 * 8) * sizeof(uint16_t), st));
    const rd_narrow_job job = {.x = x,
                               .y = q->wire.p,
                               .batch = 1,
                               .rows = 1,
                               .cols = n,
                               .ld_x = n,
                               .ld_y = (n + 7) / 8 * 8};
    rd_gpu_on_stream(g, q->stream);
    RD_TRY(rd_convert_narrow(g, to, &job, 1, st));
    TRY_AWAIT(q, ncclAllReduce(q->wire.p, q->wire.p, (size_t)n, type, ncclSum, q->comm, q->stream),
              q->sum_s);
    RD_TRY(rd_convert_widen(g, to, q->wire.p, n, x, st));
done:
    rd_gpu_on_stream(g, NULL);
    return st->code;
}

/* Returns the events of the next sum. */
static rd_code next_events(rd_gpu_group *q, sum_events **out, rd_status *st)
{
    rd_gpu *g = q->g;
    sums *r = &q->round[q->turn];
    if (r->n == r->capacity) {
        const int capacity = r->capacity ? 2 * r->capacity : 16;
        sum_events *grown = realloc(r->of, (size_t)capacity * sizeof *grown);
        if (!grown)
            return rd_fail(st, RD_EENV, "out of memory for the events of %d sums", capacity);
        memset(grown + r->capacity, 0, (size_t)(capacity - r->capacity) * sizeof *grown);
        r->of = grown;
        r->capacity = capacity;
    }
    *out = &r->of[r->n];
    if (!(*out)->begin) TRY_CUDA(g, cudaEventCreate(&(*out)->begin));
    if (!(*out)->end) TRY_CUDA(g, cudaEventCreate(&(*out)->end));
done:
    return st->code;
}

/* Begins work of the group: it waits for the work queued so far. *e gets its events. */
static rd_code begin_work(rd_gpu_group *q, const char *what, sum_events **e, rd_status *st)
{
    rd_gpu *g = q->g;
    if (!q->comm) return rd_fail(st, RD_EPEER, "NCCL: %s in a group that was given up", what);
    q->what = what;
    RD_TRY(rd_gpu_flush(g, st));
    TRY_CUDA(g, cudaEventRecord(q->ready, g->stream));
    TRY_CUDA(g, cudaStreamWaitEvent(q->stream, q->ready, 0));
    RD_TRY(next_events(q, e, st));
    /* the event gets its time when the stream has done the work before it */
    TRY_CUDA(g, cudaEventRecord((*e)->begin, q->stream));
done:
    return st->code;
}

static rd_code end_work(rd_gpu_group *q, const sum_events *e, rd_status *st)
{
    rd_gpu *g = q->g;
    TRY_CUDA(g, cudaEventRecord(e->end, q->stream));
    TRY_CUDA(g, cudaEventRecord(q->end, q->stream));
    q->round[q->turn].n++;
    q->waited = false;
done:
    return st->code;
}

rd_code rd_gpu_group_sum(rd_gpu_group *q, float *x, int64_t n, rd_gpu_wire wire, rd_status *st)
{
    sum_events *e = NULL;
    RD_TRY(rd_gpu_alive(q->g, st));
    if (n == 0) return st->code;
    RD_TRY(begin_work(q, "a sum", &e, st));
    if (wire == RD_GPU_WIRE_BF16)
        RD_TRY(sum_narrow(q, x, n, RD_NARROW_BF16, ncclBfloat16, st));
    else if (wire == RD_GPU_WIRE_F16)
        RD_TRY(sum_narrow(q, x, n, RD_NARROW_WIRE16, ncclFloat16, st));
    else
        TRY_AWAIT(q, ncclAllReduce(x, x, (size_t)n, ncclFloat32, ncclSum, q->comm, q->stream),
                  q->sum_s);
    RD_TRY(end_work(q, e, st));
done:
    return st->code;
}

/* Adds a broadcast to the calls that ncclGroupEnd starts together. Until then it makes no progress,
 * so there is nothing to wait for. */
static rd_code add_broadcast(rd_gpu_group *q, float *x, const rd_gpu_part *p, rd_status *st)
{
    const ncclResult_t r = nccl.ncclBroadcast(x + p->from, x + p->from, (size_t)p->n, ncclFloat32,
                                              p->rank, q->comm, q->stream);
    return r == ncclInProgress ? st->code : cuda_nccl_result(q, r, "ncclBroadcast", RD_HERE, st);
}

rd_code rd_gpu_group_spread(rd_gpu_group *q, float *x, const rd_gpu_part *part, int n_parts,
                            rd_status *st)
{
    sum_events *e = NULL;
    RD_TRY(rd_gpu_alive(q->g, st));
    RD_TRY(begin_work(q, "a copy of weights", &e, st));
    TRY_NCCL(q, ncclGroupStart());
    for (int i = 0; i < n_parts && st->code == RD_OK; i++)
        if (part[i].n > 0) (void)add_broadcast(q, x, &part[i], st);
    if (st->code != RD_OK) {
        (void)nccl.ncclGroupEnd(); /* else the next call would belong to this group */
        goto done;
    }
    TRY_AWAIT(q, ncclGroupEnd(), q->sum_s);
    RD_TRY(end_work(q, e, st));
done:
    return st->code;
}

rd_code rd_gpu_group_join(rd_gpu_group *q, rd_status *st)
{
    rd_gpu *g = q->g;
    RD_TRY(rd_gpu_alive(g, st));
    if (q->comm) RD_TRY(async_error(q, st));
    RD_TRY(rd_gpu_flush(g, st));
    TRY_CUDA(g, cudaStreamWaitEvent(g->stream, q->end, 0));
    q->turn = !q->turn;
    q->round[q->turn].n = 0;
    q->waited = false;
done:
    return st->code;
}

rd_code rd_gpu_group_wait(rd_gpu_group *q, double timeout_s, rd_status *st)
{
    rd_gpu *g = q->g;
    patience p = patience_of(timeout_s);
    RD_TRY(rd_gpu_alive(g, st));
    RD_TRY(rd_gpu_flush(g, st));
    /* If the ops' stream has joined the sums, this event comes after all of them, and after marks
     * on that stream: reading those then waits no more. */
    TRY_CUDA(g, cudaEventRecord(q->now, g->stream));
    q->waited = true;
    for (;;) {
        cudaError_t e = cudaEventQuery(q->now);
        if (e == cudaSuccess) e = cudaEventQuery(q->end);
        if (e != cudaErrorNotReady) return rd_cuda_result(g, e, "cudaEventQuery", RD_HERE, st);
        (void)cudaGetLastError(); /* "not ready" is no error of the next kernel */
        if (q->comm) RD_TRY(async_error(q, st));
        if (cuda_nccl_sleep(&p)) continue;
        q->failed = true;
        return rd_fail(st, RD_ESTALL,
                       "NCCL: %s over %d ranks was not done after %.3g s: a rank does not take "
                       "part in it any more, or its network hangs",
                       q->what, q->size, timeout_s);
    }
done:
    return st->code;
}

rd_code rd_gpu_group_times(rd_gpu_group *q, rd_gpu_sum_time *out, int most, int *n, rd_status *st)
{
    rd_gpu *g = q->g;
    const sums *r = &q->round[!q->turn];
    *n = 0;
    RD_TRY(rd_gpu_alive(g, st));
    if (!q->waited) TRY_CUDA(g, cudaEventRecord(q->now, q->stream));
    TRY_CUDA(g, cudaEventSynchronize(q->now));
    for (int i = 0; i < r->n && i < most; i++) {
        float begin_ms = 0.0f, end_ms = 0.0f;
        TRY_CUDA(g, cudaEventElapsedTime(&begin_ms, r->of[i].begin, q->now));
        TRY_CUDA(g, cudaEventElapsedTime(&end_ms, r->of[i].end, q->now));
        out[(*n)++] = (rd_gpu_sum_time){(double)begin_ms / 1e3, (double)end_ms / 1e3};
    }
done:
    return st->code;
}
