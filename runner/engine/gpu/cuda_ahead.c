/* cuda_ahead.c -- the CUDA streams and events for engine/gpu/gpu_ahead.c. */
#include "cuda_impl.h"

static void *cuda_ahead_get(rd_gpu *g, size_t bytes)
{
    rd_status own = {.code = RD_OK};
    void *p;
    return rd_gpu_memory_keep(g, bytes, &p, &own) == RD_OK ? p : NULL;
}

static void cuda_ahead_put(rd_gpu *g, void *p)
{
    if (!p || g->lost) return;
    (void)cudaStreamSynchronize(g->copies);
    rd_gpu_memory_free(g, p);
}

static rd_code up(rd_gpu *g, void *to, const void *host, size_t bytes, rd_status *st)
{
    rd_gpu_memory *m = rd_gpu_pinned_of(g, host, bytes);
    TRY_CUDA(g, cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, g->copies));
    RD_TRY(rd_gpu_will_read(g, m, RD_QUEUE_COPIES, st));
    if (g->sync) TRY_CUDA(g, cudaStreamSynchronize(g->copies));
done:
    return st->code;
}

static rd_code copy(rd_gpu *g, void *to, const void *from, size_t bytes, rd_status *st)
{
    const rd_gpu_move m = {to, from, bytes};
    return rd_gpu_run_copy(g, &m, st);
}

static rd_code cuda_ahead_record(rd_gpu *g, rd_gpu_queue stream, int event, rd_status *st)
{
    TRY_CUDA(g, cudaEventRecord(g->ahead_event[event], rd_gpu_stream(g, stream)));
done:
    return st->code;
}

static rd_code wait(rd_gpu *g, rd_gpu_queue stream, int event, rd_status *st)
{
    TRY_CUDA(g, cudaStreamWaitEvent(rd_gpu_stream(g, stream), g->ahead_event[event], 0));
done:
    return st->code;
}

static const rd_ahead_device device = {cuda_ahead_get, cuda_ahead_put,    up,
                                       copy,           cuda_ahead_record, wait};

rd_code rd_gpu_ahead_new(rd_gpu *g, rd_status *st)
{
    TRY_CUDA(g, cudaStreamCreateWithFlags(&g->copies, cudaStreamNonBlocking));
    for (int i = 0; i < RD_AHEAD_EVENTS; i++)
        TRY_CUDA(g, cudaEventCreateWithFlags(&g->ahead_event[i], cudaEventDisableTiming));
    RD_TRY(rd_ahead_new(g, &device, &g->ahead, st));
done:
    return st->code;
}

void rd_gpu_ahead_free(rd_gpu *g)
{
    rd_ahead_free(g->ahead);
    g->ahead = NULL;
    for (int i = 0; i < RD_AHEAD_EVENTS; i++)
        if (g->ahead_event[i]) (void)cudaEventDestroy(g->ahead_event[i]);
    if (g->copies) (void)cudaStreamDestroy(g->copies);
}

rd_code rd_gpu_up_ahead(rd_gpu *g, const void *host, size_t bytes, rd_status *st)
{
    RD_TRY(rd_gpu_alive(g, st));
    if (bytes > DIRECT && rd_gpu_pinned_of(g, host, bytes))
        RD_TRY(rd_ahead_send(g->ahead, host, bytes, st));
done:
    return st->code;
}

void rd_gpu_count_ahead(const rd_gpu *g, rd_gpu_ahead_counts *out)
{
    rd_ahead_count(g->ahead, out);
}
