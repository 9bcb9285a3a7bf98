/* class_counts.h -- counts of the class metrics (include/rd/class_metric.h) in training steps and
 * in evaluations. */
#ifndef RD_RUN_CLASS_COUNTS_H
#define RD_RUN_CLASS_COUNTS_H

#include "rd/class_metric.h"
#include "rd/model.h"

enum {
    CLASS_METRICS = 0
#define RD_ENTRY(name) +1
#include "class_metrics.inc"
#undef RD_ENTRY
    ,
    CLASS_FIGURES = CLASS_METRICS * RD_METRIC_FIGURES,
    STEP_CLASS_COUNTS = CLASS_METRICS * RD_CLASS_STEP_COUNTS
};

/* The counts of several metrics. */
typedef struct class_counts {
    /* Only metrics that count in training steps. Each has RD_CLASS_STEP_COUNTS places. */
    bool in_training;
    /* Also metrics that only draw. */
    bool pictures;
    int64_t n_samples, n_classes;
    int64_t *at; /* [class_counts_n], one metric after the other */
} class_counts;

/* Returns the number of counts. */
int64_t class_counts_n(const class_counts *k);

/* Adds the samples of a batch to the counts; also to n_samples. Does nothing without classes. */
void class_counts_add(class_counts *k, const rd_batch *b, const rd_loss_out *out);

/* Adds the samples of a batch to counts in double, such as the sums of a training step. */
void class_sums_add(double sums[STEP_CLASS_COUNTS], int64_t n_classes, const rd_batch *b,
                    const rd_loss_out *out);

/* Returns the counts of training steps from their sums. at: memory for them. */
class_counts class_counts_of_sums(const double sums[STEP_CLASS_COUNTS], double n_samples,
                                  int64_t n_classes, int64_t at[STEP_CLASS_COUNTS]);

/* Computes the figures of all metrics and returns their number. */
int class_figures(const class_counts *k, rd_figure out[CLASS_FIGURES]);

/* Returns the first figure of metric i of rd_class_metric_defs. value NAN: it has none. */
rd_figure class_first_figure(const class_counts *k, int i);

/* Fills the figure that decides which checkpoint is best. False: no metric decides. */
bool class_deciding_figure(const class_counts *k, rd_figure *out);

/* Writes the name of that figure. False: no metric decides. */
bool class_deciding_name(int64_t n_classes, char out[32], rd_status *st);

/* Writes the lines of all metrics one after the other, each behind the separator. */
void class_lines(const class_counts *k, rd_class_line where, const char *separator, char *out,
                 size_t n);

/* Writes pictures and texts of all metrics. */
void class_draw(const class_counts *k, const rd_dataset *d, rd_events *e, int64_t step,
                rd_status *st);

#endif
