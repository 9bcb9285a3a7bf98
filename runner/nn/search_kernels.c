/* search_kernels.c -- the work of a decoding step between its products: the functions of a CPU, and
 * the table of each kind of backend. */
#include "search_kernels.h"
#include <inttypes.h>
#include <string.h>

typedef struct best_job {
    const rd_search_best *out;
    int64_t first, V;
    float *logits;
} best_job;

static void best_rows(void *ctx, int64_t lo, int64_t hi)
{
    const best_job *j = ctx;
    rd_search_best_rows(j->out, j->first + lo, hi - lo, j->V, j->logits + lo * j->V);
}

static rd_code cpu_best(rd_backend *be, const rd_search_best *out, int64_t first, int64_t n,
                        int64_t V, float temperature, float *logits, rd_status *st)
{
    best_job j = {out, first, V, logits};
    if (temperature != 1.0f)
        for (int64_t i = 0; i < n * V; i++) logits[i] /= temperature;
    rd_parallel(be, n, 1, best_rows, &j);
    return st->code;
}

static rd_code cpu_follow(rd_backend *be, const rd_states *s, int64_t n, const int32_t *parent,
                          rd_status *st)
{
    (void)be;
    for (int k = 0; k < s->n_arrays; k++)
        for (int64_t i = 0; i < n; i++)
            memcpy(s->to[k] + i * s->width[k], s->from[k] + parent[i] * s->width[k],
                   (size_t)s->width[k] * sizeof(float));
    return st->code;
}

static const rd_search_kernels cpu_search = {0, 0, cpu_follow, cpu_best};
static const rd_search_kernels *const search_kernels[RD_BACKENDS] = {
    [RD_CPU] = &cpu_search, [RD_GPU] = RD_GPU_ENTRY(&rd_cuda_search)};

const rd_search_kernels *rd_search_kernels_of(const rd_backend *be)
{
    return search_kernels[rd_backend_kind_of(be)];
}

rd_code rd_search_kernels_check(const rd_backend *be, int64_t width, bool has_sets, rd_status *st)
{
    const rd_search_kernels *on = rd_search_kernels_of(be);
    if (on->widest > 0 && width > on->widest)
        return rd_fail(st, RD_EUSAGE,
                       "beam_width %" PRId64 "; a GPU takes %" PRId64
                       ": make it smaller, or set \"device\": \"cpu\"",
                       width, on->widest);
    if (has_sets && rd_backend_kind_of(be) != RD_CPU)
        return rd_fail(st, RD_EUSAGE,
                       "shortlist_file works on CPUs; remove it, or set \"device\": \"cpu\"");
    return RD_OK;
}
