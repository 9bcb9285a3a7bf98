/* parallel_sockeye.c -- Sockeye's buckets of sentence pairs, and how many pairs a batch of a bucket
 * has, as in its versions 1 and 2, and in 3.1.
 *
 * A bucket is a pair of lengths. There the source has its end token and the target its start token,
 * so both are one longer than the words. A pair belongs to the first bucket that holds both
 * sides. */
#include "parallel_impl.h"
#include <math.h>
#include <stdlib.h>

/* Returns limit k of one side: multiples of the width, and the longest length as the last. */
static int64_t sockeye_limit(int64_t k, int64_t width, int64_t most)
{
    const int64_t at = (k + 1) * width < most ? (k + 1) * width : most;
    return at < 2 ? 2 : at;
}

/* Rounds a scaled width half to even, as Python does. */
static int64_t sockeye_width(double scaled)
{
    return scaled < 1.5 ? 1 : (int64_t)nearbyint(scaled);
}

int rd_sockeye_buckets(const int64_t most[2], int64_t width, double ratio, int64_t *limit[2],
                       rd_status *st)
{
    int64_t wide[2] = {width, width}, n = 0;
    int kept = 0;
    if (ratio >= 1.0)
        wide[0] = sockeye_width((double)width / ratio);
    else if (ratio > 0.0)
        wide[1] = sockeye_width((double)width * ratio);
    for (int s = 0; s < 2; s++) {
        const int64_t m = (most[s] + wide[s] - 1) / wide[s];
        n = m > n ? m : n;
    }
    for (int s = 0; s < 2; s++) limit[s] = malloc((size_t)(n + 1) * sizeof *limit[s]);
    if (!limit[0] || !limit[1]) {
        rd_fail(st, RD_EENV, "out of memory");
        return 0;
    }
    for (int64_t k = 0; k < n; k++) {
        for (int s = 0; s < 2; s++) limit[s][kept] = sockeye_limit(k, wide[s], most[s]);
        if (kept == 0 || limit[0][kept] != limit[0][kept - 1] ||
            limit[1][kept] != limit[1][kept - 1])
            kept++;
    }
    return kept;
}

static double sockeye_words(const rd_sockeye_batches *s, int b)
{
    return s->mean[b] > 0.0 ? s->mean[b] : (double)s->limit[1][b];
}

static int64_t sockeye_widest(const rd_sockeye_batches *s, int b)
{
    return s->limit[0][b] > s->limit[1][b] ? s->limit[0][b] : s->limit[1][b];
}

/* Returns the pairs of a batch by the mean number of target words. */
static int64_t sockeye_by_words(const rd_sockeye_batches *s, int b, int64_t tokens)
{
    const double units = nearbyint((double)tokens / sockeye_words(s, b) / (double)s->multiple);
    return s->multiple * (units < 1.0 ? 1 : (int64_t)units);
}

int64_t rd_sockeye_batch(const rd_sockeye_batches *s, int b, int64_t tokens)
{
    if (s->kind == RD_BUCKETS_SOCKEYE_3_MAX_WORD) {
        const int64_t units = tokens / sockeye_widest(s, b) / s->multiple;
        return s->multiple * (units < 1 ? 1 : units);
    }
    int64_t n = sockeye_by_words(s, b, tokens);
    if (s->kind != RD_BUCKETS_SOCKEYE || b + 1 < s->n) return n;
    /* The last bucket has batches that are as large as those of all others with padding. */
    int64_t most = 0;
    for (int k = 0; k < s->n; k++) {
        const int64_t padded = sockeye_by_words(s, k, tokens) * sockeye_widest(s, k);
        most = padded > most ? padded : most;
    }
    const int64_t widest = sockeye_widest(s, b), lacks = most - n * widest;
    if (lacks > 0) n += (lacks + widest * s->multiple - 1) / (widest * s->multiple) * s->multiple;
    return n;
}
