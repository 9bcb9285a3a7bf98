/* peak.c -- measures the peak of the CPU or GPU: that of matrix products. */
#include "peak.h"
#include "device.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <math.h>
#include <time.h>

double peak_cpu_s(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Measures n products of size^3 after one that does not count, and larger ones as long as they take
 * less than 5 ms. In mixed precision the arrays have 16 bits, so that no rounding counts. Where
 * memory is short, the larger sizes are left out. */
static rd_code peak_of_gpu(rd_run *r, int n, double *peak, rd_status *st)
{
    enum { SMALLEST = 512, LARGEST = 8192, PATTERN = 256, MARK_BEGIN = 8, MARK_END };
    rd_gpu *g = run_gpu(r);
    const rd_element type = rd_gpu_narrow(g);
    const size_t one = rd_element_bytes(type);
    double best_s = 0.0;
    float pattern[PATTERN];
    for (int i = 0; i < PATTERN; i++) pattern[i] = (float)(i % 7) * 0.25f - 0.75f;
    for (int64_t size = SMALLEST; size <= LARGEST && best_s < 5e-3; size *= 2) {
        const size_t bytes = (size_t)(size * size) * one;
        rd_status own = {0};
        unsigned char *x = NULL;
        if (rd_gpu_memory_new(g, 3 * bytes, &x, &own) != RD_OK) break;
        best_s = INFINITY;
        const rd_gpu_operand a = {x, type, size}, b = {x + bytes, type, size},
                             c = {x + 2 * bytes, type, size};
        (void)rd_gpu_upload(g, c.at, pattern, sizeof pattern, st);
        (void)rd_gpu_cast(g, PATTERN, c.at, RD_FLOAT32, x, type, false, st);
        for (size_t have = PATTERN * one; have < 2 * bytes && st->code == RD_OK; have *= 2)
            (void)rd_gpu_copy(g, x + have, x, have < 2 * bytes - have ? have : 2 * bytes - have,
                              st);
        for (int i = 0; i <= n && st->code == RD_OK; i++) {
            double seconds = INFINITY;
            rd_watch_beat(r->watch, RD_PHASE_COMPUTE, r->progress.step);
            (void)rd_gpu_mark(g, MARK_BEGIN, st);
            (void)rd_gpu_product(g, false, false, size, size, size, a, b, 0.0f, c, st);
            (void)rd_gpu_mark(g, MARK_END, st);
            if (rd_gpu_between(g, MARK_BEGIN, MARK_END, &seconds, st) == RD_OK && i > 0)
                best_s = fmin(best_s, seconds);
        }
        rd_gpu_memory_free(g, x);
        RD_TRY(st->code);
        *peak = fmax(*peak, 2.0 * (double)size * (double)size * (double)size / best_s);
    }
done:
    return st->code;
}

rd_code peak_measure(rd_run *r, int64_t N, int n, double *peak, double *peak_cpu, rd_status *st)
{
    if (run_gpu(r)) return peak_of_gpu(r, n, peak, st);
    const int64_t enough_ns = rd_now_ns() + 1500000000;
    const size_t bytes = (size_t)(N * N) * sizeof(float);
    rd_arena *a = NULL;
    float *x = NULL, *y = NULL, *z = NULL;
    RD_TRY(rd_arena_new(3 * bytes + 4096, &a, st));
    RD_TRY(rd_arena_get(a, bytes, &x, st));
    RD_TRY(rd_arena_get(a, bytes, &y, st));
    RD_TRY(rd_arena_get(a, bytes, &z, st));
    for (int64_t i = 0; i < N * N; i++) {
        x[i] = (float)(i % 7) * 0.25f - 0.75f;
        y[i] = (float)(i % 5) * 0.5f - 1.0f;
    }
    for (int i = 0; i < n && (i == 0 || rd_now_ns() < enough_ns); i++) {
        rd_watch_beat(r->watch, RD_PHASE_COMPUTE, r->progress.step);
        const int64_t begin_ns = rd_now_ns();
        const double begin_cpu = peak_cpu_s();
        RD_TRY(rd_gemm(r->backend, false, false, N, N, N, 1.0f, x, N, y, N, 0.0f, z, N, st));
        const double flops = 2.0 * (double)N * (double)N * (double)N;
        *peak_cpu = fmax(*peak_cpu, flops / (peak_cpu_s() - begin_cpu));
        *peak = fmax(*peak, flops / ((double)(rd_now_ns() - begin_ns) * 1e-9));
    }
done:
    rd_arena_free(a);
#ifdef __GLIBC__
    (void)malloc_trim(0); /* the process keeps none of this memory */
#endif
    return st->code;
}
