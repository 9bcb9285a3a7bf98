/* cuda_device.c -- creates and frees one GPU, and measures the time between its marks. */
#include "cuda_impl.h"
#include "cuda_convert.h"
#include "gpu_rnn.h"
#include "rd/environment.h"
#include <stdio.h>
#include <stdlib.h>

/* Returns the text "mixed (bfloat16)". */
static const char *precision(const rd_gpu *g)
{
    if (g->options.mixed) return rd_gpu_is_bfloat16(g) ? "mixed (bfloat16)" : "mixed (float16)";
    return g->options.tf32 && rd_gpu_is_ampere(g) ? "float32 (products in TF32)" : "float32";
}

rd_code rd_gpu_new(int index, const rd_gpu_options *o, rd_gpu **out, rd_status *st)
{
    rd_gpu *g = *out = calloc(1, sizeof *g);
    if (!g) return rd_fail(st, RD_EENV, "out of memory for a GPU");
    const char *sync = getenv("RD_CUDA_SYNC"), *float16 = getenv("RD_CUDA_FLOAT16");
    char why[256];
    const int n = rd_gpu_count(why);
    g->index = index;
    g->options = *o;
    g->sync = sync && strcmp(sync, "0") != 0;
    g->float16 = float16 && strcmp(float16, "0") != 0;
    if (n == 0) {
        rd_fail(st, RD_EENV, "there is no GPU that can be used: %s", why);
        goto done;
    }
    if (index < 0 || index >= n) {
        rd_fail(st, RD_EENV,
                "there is no GPU %d: this process sees %d (`nvidia-smi -L` lists them)", index, n);
        goto done;
    }
    rd_gpu_rnn_begin();
    /* NCCL reads it when it is loaded */
    if (o->shared) (void)rd_environment_default(RD_VAR_NCCL_SHARED_GPU);
    RD_TRY(rd_gpu_query(index, &g->info, st));
    TRY_CUDA(g, cudaSetDevice(index));
    /* creates the context */
    TRY_CUDA(g, cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking));
    g->current = g->stream;
    RD_TRY(rd_cuda_result(g, (cudaError_t)rd_convert_probe(), "cudaFuncGetAttributes", RD_HERE,
                          st));
    RD_TRY(rd_gpu_memory_open(g, st));
    RD_TRY(rd_gpu_ahead_new(g, st));
    for (int i = 0; i < MARKS; i++) TRY_CUDA(g, cudaEventCreate(&g->mark[i]));
    if (o->graphs && !g->sync) RD_TRY(rd_graphs_new(g, &rd_cuda_graph_maker, &g->graphs, st));
    RD_TRY(rd_cuda_query(index, true, &g->info, st)); /* again, for the memory that is free now */
    snprintf(g->text, sizeof g->text, "%s (GPU %d, sm_%d%d, %.1f GiB), %s, %s%s", g->info.name,
             index, g->info.major, g->info.minor, (double)g->info.memory / 1073741824.0,
             rd_gpu_libraries(), precision(g), g->sync ? ", each kernel waited for" : "");
done:
    if (st->code != RD_OK) {
        rd_gpu_free(g);
        *out = NULL;
    }
    return st->code;
}

void rd_gpu_free(rd_gpu *g)
{
    if (!g) return;
    if (g->lost) return; /* the driver frees everything when the process ends */
    if (g->stream) (void)cudaStreamSynchronize(g->stream);
    rd_graphs_free(g->graphs);
    g->graphs = NULL;
    rd_gpu_ahead_free(g);
    rd_gpu_blas_free(g);
    rd_gpu_rnn_free(g);
    rd_gpu_dnn_free(g);
    rd_gpu_held_free(g);
    rd_gpu_memory_close(g);
    for (int i = 0; i < MARKS; i++)
        if (g->mark[i]) (void)cudaEventDestroy(g->mark[i]);
    if (g->stream) (void)cudaStreamDestroy(g->stream);
    (void)cudaGetLastError();
    free(g);
}

/* ---- time ---- */

rd_code rd_gpu_mark(rd_gpu *g, int mark, rd_status *st)
{
    RD_TRY(rd_gpu_alive(g, st));
    RD_TRY(rd_gpu_flush(g, st));
    TRY_CUDA(g, cudaEventRecord(g->mark[mark], g->stream));
done:
    return st->code;
}

rd_code rd_gpu_between(rd_gpu *g, int from, int to, double *seconds, rd_status *st)
{
    float ms = 0.0f;
    *seconds = 0.0;
    RD_TRY(rd_gpu_alive(g, st));
    TRY_CUDA(g, cudaEventSynchronize(g->mark[to]));
    TRY_CUDA(g, cudaEventElapsedTime(&ms, g->mark[from], g->mark[to]));
    *seconds = (double)ms / 1e3;
done:
    return st->code;
}
