/* spikes.c -- the rule that skips a step whose loss or gradient norm is a spike, as llm.c has it.
 *
 * With a new value x, mean m and variance v of the n - 1 values before it, and d = x - m, the
 * z-score of x among all n values is
 *     z = d (n - 1) / n / sqrt(v (n - 1) / n + d^2 (n - 1) / n^2),
 * which grows with d and stays below sqrt(n - 1). So z > L where d > L sqrt(v n / (n - 1 - L^2)).
 * Values of skipped steps count, too: after a lasting change the rule ends by itself. */
#include "spikes.h"

#include <math.h>

double spikes_most(const run_spikes *s, double z)
{
    enum { N = RUN_SPIKES };
    double mean = 0.0, variance = 0.0;
    if (!(z > 0.0) || s->n < N || z * z >= N - 1) return INFINITY;
    /* The new value replaces the oldest one, which is at n mod N. */
    for (int64_t i = 1; i < N; i++) mean += s->x[(s->n + i) % N];
    mean /= N - 1;
    for (int64_t i = 1; i < N; i++) {
        const double d = s->x[(s->n + i) % N] - mean;
        variance += d * d;
    }
    variance /= N - 1;
    return variance > 0.0 ? mean + z * sqrt(variance * N / (N - 1 - z * z)) : INFINITY;
}

void spikes_add(run_spikes *s, double x)
{
    if (isfinite(x)) s->x[s->n++ % RUN_SPIKES] = x;
}
