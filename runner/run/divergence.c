/* divergence.c -- notices a training whose loss grows, although all numbers stay finite. */
#include "divergence.h"
#include <math.h>

double divergence_level(const divergence *d, double limit)
{
    return limit * fmax(d->floor, d->best);
}

bool divergence_add(divergence *d, double limit, double loss, int64_t *count)
{
    const double share = 0.02;
    if (limit == 0.0) {
        *count = 0;
        return false;
    }
    if (!d->begun) d->mean = d->best = *count > 0 ? d->floor : loss;
    d->begun = true;
    const bool above = loss > divergence_level(d, limit);
    if (above)
        ++*count;
    else if (*count > 0)
        --*count;
    d->mean += share * (loss - d->mean);
    d->best = fmin(d->best, d->mean);
    return above;
}
