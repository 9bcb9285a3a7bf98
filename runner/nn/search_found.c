/* search_found.c -- the last part of a decoding step: the best tokens of its rows. On a GPU only
 * they are downloaded. */
#include "search_found.h"
#include "rd/cell.h"
#include <string.h>

rd_code rd_search_found_new(rd_backend *be, rd_arena *dev, rd_arena *host, int64_t most,
                            int64_t n_best, int64_t V, bool with_logits, rd_search_found *out,
                            rd_status *st)
{
    const rd_search_kernels *on = rd_search_kernels_of(be);
    const int64_t fit = (int64_t)(on->logits_bytes / sizeof(float)) / V;
    const size_t bytes = (size_t)(most * (2 * n_best + 1)) * sizeof(float);
    *out = (rd_search_found){.be = be, .on = on, .block = most};
    if (on->logits_bytes > 0 && out->block > fit) out->block = fit > 64 ? fit : 64;
    RD_TRY(rd_arena_get(dev, bytes, &out->found, st));
    RD_TRY(rd_arena_get(host, bytes, &out->got, st));
    if (with_logits) RD_TRY(rd_rows_get(dev, out->block, V, &out->logits, st));
done:
    return st->code;
}

rd_code rd_search_found_best(const rd_search_found *f, int64_t n, int64_t V, float temperature,
                             rd_search_logits *logits, void *ctx, const rd_search_best *out,
                             rd_status *st)
{
    const size_t each = (size_t)(n * out->n) * sizeof(float), ends = (size_t)n * sizeof(float);
    rd_search_best found = *out; /* in the memory of kernels */
    found.id = f->found;
    found.logp = (float *)(void *)(found.id + n * out->n);
    found.end_logp = found.logp + n * out->n;
    for (int64_t i = 0; i < n; i += f->block) {
        const int64_t rows = n - i < f->block ? n - i : f->block;
        RD_TRY(logits(ctx, i, rows, f->logits, st));
        RD_TRY(f->on->best(f->be, &found, i, rows, V, temperature, f->logits, st));
    }
    RD_TRY(rd_backend_download(f->be, f->got, f->found, 2 * each + ends, st));
    memcpy(out->id, f->got, each);
    memcpy(out->logp, f->got + each, each);
    memcpy(out->end_logp, f->got + 2 * each, ends);
done:
    return st->code;
}
