/* worst_class.c -- accuracy of the class that the model knows least: a template of a class metric.
 * It has two counts for each class, so it counts in evaluations only. */
#include "rd/class_metric.h"
#include <math.h>
#include <stdio.h>

static int64_t worst_class_n_counts(int64_t n_classes)
{
    return 2 * n_classes;
}

static void worst_class_add(const rd_class_counts *c, const rd_class_sample *s)
{
    if (s->label < 0 || s->label >= c->n_classes) return;
    c->at[2 * s->label] += s->predicted == s->label;
    c->at[2 * s->label + 1]++;
}

static int worst_class_figures(const rd_class_counts *c, rd_figure out[RD_METRIC_FIGURES])
{
    double worst = NAN;
    for (int64_t k = 0; k < c->n_classes; k++)
        worst = fmin(worst, rd_class_share(c->at[2 * k], c->at[2 * k + 1]));
    out[0] = (rd_figure){"accuracy_worst_class", worst, true};
    return 1;
}

static void worst_class_line(const rd_class_counts *c, rd_class_line where, char *out, size_t n)
{
    rd_figure f[RD_METRIC_FIGURES];
    (void)where;
    (void)worst_class_figures(c, f);
    (void)snprintf(out, n, "worst class %.3f %%", 100.0 * f[0].value);
}

RD_CLASS_METRIC(worst_class) = {.name = "worst_class",
                                .about = "accuracy of the class with the lowest accuracy",
                                .n_counts = worst_class_n_counts,
                                .add = worst_class_add,
                                .figures = worst_class_figures,
                                .line = worst_class_line};
