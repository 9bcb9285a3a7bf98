/* search_sample.c -- draws a token from logits.
 *
 * A heap gives the tokens in the order of falling probability. Usually few of them are needed. */
#include "rd/search.h"
#include "rd/vecmath.h"
#include <math.h>

/* Tokens as a heap with the most probable one at its root. A token that is taken is put behind the
 * heap. */
typedef struct sample_heap {
    const float *x;
    int32_t *id; /* [all] */
    int64_t n, all;
} sample_heap;

static bool sample_before(const sample_heap *h, int32_t a, int32_t b)
{
    return h->x[a] > h->x[b] || (h->x[a] == h->x[b] && a < b);
}

static void sample_sink(sample_heap *h, int64_t i)
{
    const int32_t v = h->id[i];
    for (int64_t c = 2 * i + 1; c < h->n; c = 2 * i + 1) {
        if (c + 1 < h->n && sample_before(h, h->id[c + 1], h->id[c])) c++;
        if (!sample_before(h, h->id[c], v)) break;
        h->id[i] = h->id[c];
        i = c;
    }
    h->id[i] = v;
}

static void sample_heap_make(sample_heap *h)
{
    for (int64_t i = h->n / 2; i-- > 0;) sample_sink(h, i);
}

/* Returns the token at place k of the order, and takes tokens until that one is taken. */
static int32_t sample_at(sample_heap *h, int64_t k)
{
    while (h->all - h->n <= k) {
        const int32_t top = h->id[0];
        h->id[0] = h->id[--h->n];
        h->id[h->n] = top;
        sample_sink(h, 0);
    }
    return h->id[h->all - 1 - k];
}

int32_t rd_search_sample(const rd_sampling *r, int64_t n, const float *x, double u,
                         int32_t *scratch)
{
    enum { PART = 128 };
    sample_heap h = {.x = x, .id = scratch};
    for (int64_t v = 0; v < n; v++)
        if (x[v] > -INFINITY) h.id[h.all++] = (int32_t)v;
    h.n = h.all;
    if (h.all == 0) return -1;
    sample_heap_make(&h);
    const float top = x[h.id[0]];
    if (r->temperature == 0.0) return h.id[0];
    const float inv = (float)(1.0 / r->temperature);
    int64_t kept = h.all;
    if (r->top_k > 0 && r->top_k < kept) {
        const float last = x[sample_at(&h, r->top_k - 1)];
        for (kept = r->top_k; kept < h.all && x[sample_at(&h, kept)] == last; kept++) continue;
    }
    double sum = 0.0, most = 0.0, below = 0.0;
    if (kept < h.all) {
        for (int64_t k = 0; k < kept; k++)
            sum += (double)rd_expf((x[sample_at(&h, k)] - top) * inv);
    } else {
        for (int64_t first = 0; first < n; first += PART) {
            const int64_t end = n - first < PART ? n : first + PART;
            float part = 0.0f;
#pragma omp simd reduction(+ : part)
            for (int64_t v = first; v < end; v++)
                part += x[v] > -INFINITY ? rd_expf((x[v] - top) * inv) : 0.0f;
            sum += (double)part;
        }
    }
    most = sum;
    if (r->top_p < 1.0) {
        int64_t k = 0;
        for (most = 0.0; k < kept && (k == 0 || most < r->top_p * sum); k++)
            most += (double)rd_expf((x[sample_at(&h, k)] - top) * inv);
        kept = k;
    }
    for (int64_t k = 0; k + 1 < kept; k++) {
        const int32_t v = sample_at(&h, k);
        below += (double)rd_expf((x[v] - top) * inv);
        if (below > u * most) return v;
    }
    return sample_at(&h, kept - 1);
}
