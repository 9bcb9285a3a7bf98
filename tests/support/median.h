/* median.h -- of measured times: sorts x, gives the upper of two middles. */
#ifndef RD_MEDIAN_H
#define RD_MEDIAN_H

#include <stdlib.h>

static inline int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

#endif
