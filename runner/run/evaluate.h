/* evaluate.h -- loss and score on evaluation data. */
#ifndef RD_RUN_EVALUATE_H
#define RD_RUN_EVALUATE_H

#include "class_counts.h"
#include "console.h"
#include "pictures.h"
#include "predictions.h"
#include "rd/metric.h"
#include "rd/records.h"
#include "run.h"

typedef struct eval_result {
    int64_t n_samples, n_targets;
    double loss, nll_per_token, perplexity;
    double bits_per_byte;     /* of text; NAN: not known */
    int64_t n_batches, n_bad; /* number of batches, and of those whose loss is not finite */
    double seconds;           /* time of the evaluation */

    /* multiple choice: number of questions, 0: the data have none; share of them whose right answer
     * has the lowest loss: as a sum over its tokens, as their mean */
    int64_t n_questions;
    double choice_accuracy, choice_accuracy_norm;

    /* of a training; the caller sets them for the record */
    bool training;
    double epoch, learning_rate; /* epochs done; rate of the next step */
    bool best;                   /* the best one so far */

    /* sentences: share of the target tokens whose prediction is right, and the score */
    double accuracy;
    console_texts texts; /* rank 0 of a training with print_samples: a sample; owned */
    bool scored;
    int64_t counts[RD_METRIC_COUNTS];
    rd_figure figure[2 * RD_METRIC_FIGURES]; /* of metric, then of second_metric */
    int n_figures;
    char line[512];        /* the metric's line for the console */
    char second_line[512]; /* that of second_metric; "": there is none */

    /* images: classes */
    bool classes;          /* an image model: the following fields are valid */
    class_counts by_class; /* at: owned */
    gallery mistakes;      /* rank 0; the samples with the lowest ids */
    predictions each;      /* rank 0, eval mode: every sample */
} eval_result;

/* Collective. Evaluates the present weights on r->eval_data. RD_ESTOP: stopped on request. The
 * caller releases *out, also after a failure. */
rd_code run_evaluate(rd_run *r, eval_result *out, rd_status *st);
void eval_result_release(eval_result *v);

/* Are loss, perplexity and the figure that decides finite? Else the result means nothing, and
 * `what` gets the first that is not: "loss nan; the loss of 3 of 9 batches is not". */
bool eval_is_finite(const eval_result *v, char what[160]);

/* Returns the first figure of the metric, or the loss. The plateau rule can use it. */
rd_figure eval_main_figure(const eval_result *v);

/* Returns the figure that decides which checkpoint is best, and early stopping: the one that
 * best_monitor names. */
rd_figure eval_best_figure(const rd_run *r, const eval_result *v);

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
