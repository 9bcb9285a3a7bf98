/* class_metric.h -- scores of image models, one file each in runner/data/metrics.
 *
 * A class metric turns samples (label, predicted class, rank of the label) into integer counts, and
 * counts into figures. Ranks add up their counts, so the figures are the same for every number of
 * ranks. No key chooses among class metrics: all of them count. */
#ifndef RD_CLASS_METRIC_H
#define RD_CLASS_METRIC_H
#include "rd/data.h"
#include "rd/metric.h"
#include "rd/records.h"
RD_C_BEGIN

/* One sample. */
typedef struct rd_class_sample {
    int32_t label;     /* 0 .. n_classes - 1, if the dataset is right */
    int32_t predicted; /* class with the largest score */
    int32_t rank;      /* number of classes that the model puts before the label (rd_class_loss) */
} rd_class_sample;

/* The counts of one metric. */
typedef struct rd_class_counts {
    int64_t *at;       /* [n_counts(n_classes)] */
    int64_t n_samples; /* number of samples counted */
    int64_t n_classes;
} rd_class_counts;

/* Where a line is printed: after training steps, at the end of an epoch, after an evaluation. */
typedef enum rd_class_line { RD_CLASS_STEP, RD_CLASS_EPOCH, RD_CLASS_EVALUATION } rd_class_line;

/* Largest number of counts of a metric that counts in training. */
enum { RD_CLASS_STEP_COUNTS = 4 };

typedef struct rd_class_metric_def {
    const char *name;
    const char *about;

    /* Counts in training steps, too. Otherwise only in evaluations. */
    bool in_training;

    /* The first figure decides which checkpoint is the best, and the key plateau_monitor may name
     * it. At most one metric has true. Its figures and line come before those of the others, which
     * come by name. */
    bool decides;

    /* TensorBoard tag, below per_epoch/, of the first figure of a whole epoch; NULL: none. Needs
     * in_training. */
    const char *epoch_tag;

    /* Column of the first figure in bench mode (bench_accuracy); NULL: none. Needs in_training. */
    const char *bench_column;

    /* Returns the number of counts. 0: the metric does not count for this number of classes. */
    int64_t (*n_counts)(int64_t n_classes);

    /* Adds one sample to the counts. n_samples does not include it yet. */
    void (*add)(const rd_class_counts *c, const rd_class_sample *s);

    /* Computes the figures and returns their number, NAN without samples. The number and the names
     * depend on n_classes alone: they are field names of metrics.jsonl and TensorBoard tags. NULL:
     * no figures. */
    int (*figures)(const rd_class_counts *c, rd_figure out[RD_METRIC_FIGURES]);

    /* Writes the metric's part of a line for people; "": none. NULL: never. */
    void (*line)(const rd_class_counts *c, rd_class_line where, char *out, size_t n);

    /* Writes pictures and texts of an evaluation to TensorBoard. d: for the names of classes.
     * NULL: none. A metric that only draws does not count if image_frequency is 0. */
    void (*draw)(const rd_class_counts *c, const rd_dataset *d, rd_events *e, int64_t step,
                 rd_status *st);
} rd_class_metric_def;

/* Begins the definition of a class metric: RD_CLASS_METRIC(id) = {...}; in a file of
 * runner/data/metrics. make finds it and writes the registry. */
#define RD_CLASS_METRIC(id) const rd_class_metric_def rd_class_metric_##id

/* Returns all class metrics: first the one that decides, then the others by name. */
const rd_class_metric_def *const *rd_class_metric_defs(int *n);

/* Returns the share a / n; NAN for n = 0. */
double rd_class_share(int64_t a, int64_t n);

RD_C_END
#endif
