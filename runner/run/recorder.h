/* recorder.h -- the records of a training: TensorBoard events, metrics.jsonl, config.json. Rank 0
 * only. */
#ifndef RD_RUN_RECORDER_H
#define RD_RUN_RECORDER_H

#include "class_counts.h"
#include "pictures.h"
#include "run.h"

/* The figures of a step, for console and records. "window": the steps since the last record. */
typedef struct step_record {
    int64_t step, epoch;
    double epoch_part; /* 0 .. 1 */

    /* this step */
    double loss, nll_per_token;
    rd_figure figure[CLASS_FIGURES + 1]; /* accuracy of tokens, or those of the class metrics */
    int n_figures;
    double learning_rate, grad_norm, clipped_norm;
    const double *param_norm; /* [rd_params_n]; NULL: not measured */
    double samples, targets;
    double step_bytes; /* peak of the step's arena; on a GPU of all its memory */

    /* this window */
    double loss_mean, nll_mean;
    rd_figure mean[CLASS_FIGURES]; /* of the class metrics */
    int n_means;
    char class_line[384]; /* the class metrics' part of the line for the console */
    double tokens_per_s, target_tokens_per_s, samples_per_s;
    double step_s;
    double input_wait;  /* share of the time, mean over ranks */
    double model_flops; /* operations of a step, see rd_model_def.flops; 0: not counted */
    double mfu;         /* share of the measured peak of products that they are; 0 .. 1 */
    double eta_s;
    const rank_times *ranks;    /* NULL: one rank */
    const char *comm_algorithm; /* NULL: not known */

    /* this epoch and this run: the samples show that each one comes once */
    int64_t epoch_samples, epoch_samples_hash;
    int64_t skipped, spiked;
    double read_retries; /* in this window, on all ranks */
} step_record;

typedef struct recorder recorder;

/* Opens the records, and writes config.json. The caller owns *out. */
rd_code recorder_new(rd_run *r, recorder **out, rd_status *st);

/* Closes the records. end_status: 1: success, 2: failure. NULL is fine, here and below. */
void recorder_free(recorder *c, int end_status);

/* Writes the figures of a step; histograms: also those of weights and gradients. */
void recorder_step(recorder *c, const step_record *s, bool histograms);

/* Writes the texts of a training sample. */
void recorder_sample(recorder *c, int64_t step, const char *source, const char *target,
                     const char *predicted);

/* Writes the figures of an epoch that is done. epoch: its number, from 0. */
void recorder_epoch(recorder *c, int64_t epoch, double mean_loss, const class_counts *k);

/* Appends the ids of the samples of a step to samples.jsonl. Takes ownership of ids_stolen. */
void recorder_samples(recorder *c, int64_t step, int64_t epoch, json_t *ids_stolen);

/* Writes sample images. */
void recorder_pictures(recorder *c, int64_t step, const gallery *g);

/* Writes one number. */
void recorder_scalar(recorder *c, int64_t step, const char *tag, double v);

/* Writes a text in Markdown. */
void recorder_text(recorder *c, int64_t step, const char *tag, const char *text);

/* Writes buffered records to disk. */
void recorder_flush(recorder *c);

#endif
