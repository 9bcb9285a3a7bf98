/* class_metric.c -- what class metrics share, see class_metric.h. */
#include "rd/class_metric.h"
#include <math.h>

double rd_class_share(int64_t a, int64_t n)
{
    return n > 0 ? (double)a / (double)n : NAN;
}
