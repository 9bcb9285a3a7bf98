/* top5.c -- top-5 accuracy of an image model: the share of samples whose label is among the five
 * classes with the largest scores. */
#include "rd/class_metric.h"
#include <stdio.h>

enum { BEST = 5 };

static int64_t top5_n_counts(int64_t n_classes)
{
    (void)n_classes;
    return 1;
}

static void top5_add(const rd_class_counts *c, const rd_class_sample *s)
{
    c->at[0] += s->rank < BEST;
}

static int top5_figures(const rd_class_counts *c, rd_figure out[RD_METRIC_FIGURES])
{
    out[0] = (rd_figure){"accuracy_top5", rd_class_share(c->at[0], c->n_samples), true};
    return 1;
}

/* With five classes or fewer the figure is always 1, so the console leaves it out. */
static void top5_line(const rd_class_counts *c, rd_class_line where, char *out, size_t n)
{
    out[0] = '\0';
    if (c->n_classes > BEST && where != RD_CLASS_EPOCH)
        (void)snprintf(out, n, "top-5 %.*f %%", where == RD_CLASS_EVALUATION ? 3 : 2,
                       100.0 * rd_class_share(c->at[0], c->n_samples));
}

RD_CLASS_METRIC(top5) = {.name = "top5",
                         .about = "share of samples whose label is among the five best classes",
                         .in_training = true,
                         .bench_column = "top_5_accuracy",
                         .n_counts = top5_n_counts,
                         .add = top5_add,
                         .figures = top5_figures,
                         .line = top5_line};
