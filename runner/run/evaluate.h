/* evaluate.h -- loss and score on evaluation data. */
#ifndef RD_RUN_EVALUATE_H
#define RD_RUN_EVALUATE_H

#include "pictures.h"
#include "rd/metric.h"
#include "rd/records.h"
#include "run.h"

typedef struct eval_result {
    int64_t n_samples, n_targets, n_correct, n_top5;
    double loss, nll_per_token, perplexity, accuracy, top5;
    double seconds; /* time of the evaluation */

    /* sentences: the score */
    bool scored;
    int64_t counts[RD_METRIC_COUNTS];
    rd_figure figure[RD_METRIC_FIGURES];
    int n_figures;
    char line[512]; /* the metric's line for the console */

    /* images: classes */
    bool classes; /* an image model: top5 and the following fields are valid */
    int64_t n_classes;
    int64_t *confusion; /* owned; [n_classes^2], row: label; NULL: too many classes */
    gallery mistakes;   /* rank 0; the samples with the lowest ids */
} eval_result;

/* Collective. Evaluates the present weights on r->eval_data. RD_ESTOP: stopped on request. The
 * caller releases *out, also after a failure. */
rd_code run_evaluate(rd_run *r, eval_result *out, rd_status *st);
void eval_result_release(eval_result *v);

/* Returns the figure that decides which checkpoint is best, and its name. The plateau rule can use
 * it, too. */
double eval_main_figure(const eval_result *v, const char **name, bool *higher_is_better);

/* LOGDIR/eval. Rank 0 only. */
typedef struct eval_records {
    rd_events *events;   /* owned; NULL: no log folder */
    rd_metrics *metrics; /* owned */
    int lock;            /* file descriptor; -1: none */
} eval_records;
rd_code eval_records_open(rd_run *r, eval_records *e, rd_status *st);
void eval_records_close(eval_records *e);

/* Prints the result and writes the records. Rank 0 only. */
rd_code eval_report(rd_run *r, eval_records *e, const eval_result *v, rd_status *st);

#endif
