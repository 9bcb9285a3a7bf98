/* class_registry.c -- all class metrics: one file each in runner/data/metrics, listed by make. */
#include "rd/class_metric.h"

#define RD_ENTRY(name) extern const rd_class_metric_def rd_class_metric_##name;
#include "class_metrics.inc"
#undef RD_ENTRY
#define RD_ENTRY(name) &rd_class_metric_##name,
static const rd_class_metric_def *const by_name[] = {
#include "class_metrics.inc"
};
#undef RD_ENTRY

enum { N_DEFS = sizeof by_name / sizeof *by_name };

const rd_class_metric_def *const *rd_class_metric_defs(int *n)
{
    static const rd_class_metric_def *in_order[N_DEFS];
    *n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < N_DEFS; i++)
            if (by_name[i]->decides == (pass == 0)) in_order[(*n)++] = by_name[i];
    return in_order;
}
