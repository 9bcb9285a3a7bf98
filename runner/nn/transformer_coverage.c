/* transformer_coverage.c -- the attention of a decoding step to the source, for the coverage
 * penalty of beam search.
 *
 * rd_op_attend stores no probabilities. Those of one layer are a small part of a step, so the host
 * computes them from queries and keys, for all backends alike. Each row is a sum in one fixed
 * order. */
#include "transformer_coverage.h"
#include "rd/vecmath.h"
#include <math.h>
#include <string.h>

struct rd_tf_cover {
    rd_backend *be;
    const rd_tf_config *c;
    const rd_tf_rows *of;
    float *keys, *queries; /* [M, 2 d], [most, d] */
    float *score;          /* [most, longest] */
    int64_t longest;
};

typedef struct cover_job {
    const rd_tf_cover *s;
    const int64_t *sentence;
    const rd_search_best *out;
} cover_job;

static float cover_dot(int64_t n, const float *restrict x, const float *restrict y)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* Adds the attention of one head to `out`. score: [n] scratch. */
static void cover_head(int64_t n, int64_t head, float scale, int64_t heads, const float *q,
                       const float *k, int64_t ld_k, float *score, float *out)
{
    double sum = 0.0;
    for (int64_t j = 0; j < n; j++) score[j] = scale * cover_dot(head, q, k + j * ld_k);
    const float top = rd_maxf(score, n);
    for (int64_t j = 0; j < n; j++) {
        score[j] = rd_expf(score[j] - top);
        sum += (double)score[j];
    }
    const float share = (float)(1.0 / (sum * (double)heads));
    for (int64_t j = 0; j < n; j++) out[j] += score[j] * share;
}

static void cover_rows(void *ctx, int64_t lo, int64_t hi)
{
    const cover_job *j = ctx;
    const rd_tf_cover *s = j->s;
    const rd_tf_config *c = s->c;
    const float scale = 1.0f / sqrtf((float)c->head);
    for (int64_t i = lo; i < hi; i++) {
        const int64_t at = j->sentence[i], n = s->of->len[at];
        const float *k = s->keys + s->of->first[at] * 2 * c->d;
        float *out = j->out->attention + i * j->out->longest;
        memset(out, 0, (size_t)n * sizeof *out);
        for (int64_t h = 0; h < c->n_heads && n > 0; h++)
            cover_head(n, c->head, scale, c->n_heads, s->queries + i * c->d + h * c->head,
                       k + h * c->head, 2 * c->d, s->score + i * s->longest, out);
    }
}

rd_code rd_tf_cover_new(rd_arena *a, rd_backend *be, const rd_tf_config *c, const rd_var *keys,
                        const rd_tf_rows *of, int64_t most, rd_tf_cover **out, rd_status *st)
{
    const size_t bytes = (size_t)(keys->rows * 2 * c->d) * sizeof(float);
    rd_tf_cover *s;
    RD_TRY(rd_arena_zero(a, sizeof *s, &s, st));
    *s = (rd_tf_cover){.be = be, .c = c, .of = of};
    for (int64_t i = 0; i < of->n; i++)
        s->longest = of->len[i] > s->longest ? of->len[i] : s->longest;
    RD_TRY(rd_arena_get(a, bytes + 1, &s->keys, st));
    RD_TRY(rd_arena_get(a, (size_t)(most * c->d + 1) * sizeof(float), &s->queries, st));
    RD_TRY(rd_arena_get(a, (size_t)(most * s->longest + 1) * sizeof(float), &s->score, st));
    RD_TRY(rd_backend_download(be, s->keys, keys->v, bytes, st));
    *out = s;
done:
    return st->code;
}

rd_code rd_tf_cover_step(rd_tf_cover *s, int64_t n, const float *queries, const int64_t *sentence,
                         const rd_search_best *out, rd_status *st)
{
    cover_job j = {s, sentence, out};
    const size_t bytes = (size_t)(n * s->c->d) * sizeof(float);
    RD_TRY(rd_backend_download(s->be, s->queries, queries, bytes, st));
    rd_parallel(s->be, n, 1, cover_rows, &j);
done:
    return st->code;
}
