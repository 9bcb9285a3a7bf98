/* median.h -- the median of measured times. */
#ifndef RD_MEDIAN_H
#define RD_MEDIAN_H

#include <stdlib.h>

static inline int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts x and returns its median: the upper one of two middle elements. */
static inline double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

#endif
