/* accuracy.c -- accuracy of an image model: the share of samples whose predicted class is the
 * label. */
#include "rd/class_metric.h"
#include <stdio.h>

static int64_t accuracy_n_counts(int64_t n_classes)
{
    (void)n_classes;
    return 1;
}

static void accuracy_add(const rd_class_counts *c, const rd_class_sample *s)
{
    c->at[0] += s->predicted == s->label;
}

static int accuracy_figures(const rd_class_counts *c, rd_figure out[RD_METRIC_FIGURES])
{
    out[0] = (rd_figure){"accuracy", rd_class_share(c->at[0], c->n_samples), true};
    return 1;
}

static void accuracy_line(const rd_class_counts *c, rd_class_line where, char *out, size_t n)
{
    char right[32], samples[32];
    const double percent = 100.0 * rd_class_share(c->at[0], c->n_samples);
    if (where == RD_CLASS_EVALUATION)
        (void)snprintf(out, n, "accuracy %.3f %% (%s of %s)", percent,
                       rd_commas((double)c->at[0], right),
                       rd_commas((double)c->n_samples, samples));
    else
        (void)snprintf(out, n, "accuracy %.*f %%", where == RD_CLASS_EPOCH ? 3 : 2, percent);
}

RD_CLASS_METRIC(accuracy) = {.name = "accuracy",
                             .about = "share of samples whose predicted class is the label",
                             .in_training = true,
                             .decides = true,
                             .epoch_tag = "accuracy",
                             .bench_column = "top_1_accuracy",
                             .n_counts = accuracy_n_counts,
                             .add = accuracy_add,
                             .figures = accuracy_figures,
                             .line = accuracy_line};
