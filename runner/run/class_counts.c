/* class_counts.c -- counts of the class metrics, see class_counts.h. */
#include "class_counts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The counts of one metric. at NULL: it does not count here. */
static rd_class_counts counts_of(const class_counts *k, int metric)
{
    int n_defs;
    const rd_class_metric_def *const *defs = rd_class_metric_defs(&n_defs);
    rd_class_counts c = {.n_samples = k->n_samples, .n_classes = k->n_classes};
    int64_t begin = 0;
    for (int i = 0; i <= metric; i++) {
        const rd_class_metric_def *m = defs[i];
        const bool counts = k->in_training ? m->in_training : m->figures || m->line || k->pictures;
        const int64_t n = counts ? m->n_counts(k->n_classes) : 0;
        rd_assert(!m->in_training || n <= RD_CLASS_STEP_COUNTS);
        if (i == metric && n > 0) c.at = k->at + begin;
        begin += k->in_training ? RD_CLASS_STEP_COUNTS : n;
    }
    return c;
}

int64_t class_counts_n(const class_counts *k)
{
    int n_defs;
    const rd_class_metric_def *const *defs = rd_class_metric_defs(&n_defs);
    int64_t n = 0;
    if (k->in_training) return STEP_CLASS_COUNTS;
    for (int i = 0; i < n_defs; i++)
        if (defs[i]->figures || defs[i]->line || k->pictures) n += defs[i]->n_counts(k->n_classes);
    return n;
}

void class_counts_add(class_counts *k, const rd_batch *b, const rd_loss_out *out)
{
    int n_defs;
    const rd_class_metric_def *const *defs = rd_class_metric_defs(&n_defs);
    const rd_field *f = rd_batch_field(b, "label");
    if (!f || f->dtype != RD_I32 || !out->argmax) return;
    for (int m = 0; m < n_defs; m++) {
        const rd_class_counts c = counts_of(k, m);
        for (int64_t i = 0; c.at && i < b->n; i++) {
            const rd_class_sample s = {.label = ((const int32_t *)f->data)[f->off ? f->off[i] : i],
                                       .predicted = out->argmax[i],
                                       .rank = out->rank[i]};
            defs[m]->add(&c, &s);
        }
    }
    k->n_samples += b->n;
}

void class_sums_add(double sums[STEP_CLASS_COUNTS], int64_t n_classes, const rd_batch *b,
                    const rd_loss_out *out)
{
    int64_t at[STEP_CLASS_COUNTS] = {0};
    class_counts k = {.in_training = true, .n_classes = n_classes, .at = at};
    class_counts_add(&k, b, out);
    for (int i = 0; i < STEP_CLASS_COUNTS; i++) sums[i] += (double)at[i];
}

class_counts class_counts_of_sums(const double sums[STEP_CLASS_COUNTS], double n_samples,
                                  int64_t n_classes, int64_t at[STEP_CLASS_COUNTS])
{
    for (int i = 0; i < STEP_CLASS_COUNTS; i++) at[i] = (int64_t)sums[i];
    return (class_counts){
        .in_training = true, .n_samples = (int64_t)n_samples, .n_classes = n_classes, .at = at};
}

int class_figures(const class_counts *k, rd_figure out[CLASS_FIGURES])
{
    int n_defs, n = 0;
    const rd_class_metric_def *const *defs = rd_class_metric_defs(&n_defs);
    for (int i = 0; i < n_defs; i++) {
        const rd_class_counts c = counts_of(k, i);
        if (c.at && defs[i]->figures) n += defs[i]->figures(&c, out + n);
    }
    return n;
}

rd_figure class_first_figure(const class_counts *k, int i)
{
    int n_defs;
    const rd_class_metric_def *const *defs = rd_class_metric_defs(&n_defs);
    rd_figure f[RD_METRIC_FIGURES] = {{.value = NAN}};
    const rd_class_counts c = counts_of(k, i);
    if (c.at && defs[i]->figures) (void)defs[i]->figures(&c, f);
    return f[0];
}

bool class_deciding_figure(const class_counts *k, rd_figure *out)
{
    int n_defs;
    const rd_class_metric_def *const *defs = rd_class_metric_defs(&n_defs);
    if (n_defs == 0 || !defs[0]->decides) return false;
    *out = class_first_figure(k, 0);
    return true;
}

bool class_deciding_name(int64_t n_classes, char out[32], rd_status *st)
{
    rd_figure f = {.name = ""};
    class_counts k = {.n_classes = n_classes};
    k.at = calloc((size_t)class_counts_n(&k) + 1, sizeof *k.at);
    if (!k.at) rd_fail(st, RD_EENV, "out of memory for the counts of classes");
    const bool decides = k.at && class_deciding_figure(&k, &f);
    (void)snprintf(out, 32, "%s", f.name);
    free(k.at);
    return decides;
}

void class_lines(const class_counts *k, rd_class_line where, const char *separator, char *out,
                 size_t n)
{
    int n_defs;
    const rd_class_metric_def *const *defs = rd_class_metric_defs(&n_defs);
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < n_defs && used < n; i++) {
        char line[256] = "";
        const rd_class_counts c = counts_of(k, i);
        if (c.at && defs[i]->line) defs[i]->line(&c, where, line, sizeof line);
        if (line[0]) used += (size_t)snprintf(out + used, n - used, "%s%s", separator, line);
    }
}

void class_draw(const class_counts *k, const rd_dataset *d, rd_events *e, int64_t step,
                rd_status *st)
{
    int n_defs;
    const rd_class_metric_def *const *defs = rd_class_metric_defs(&n_defs);
    for (int i = 0; i < n_defs; i++) {
        const rd_class_counts c = counts_of(k, i);
        if (c.at && defs[i]->draw && k->pictures) defs[i]->draw(&c, d, e, step, st);
    }
}
