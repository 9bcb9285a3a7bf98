/* bench.h -- what the files of bench mode share. */
#ifndef RD_BENCH_H
#define RD_BENCH_H

#include "../run/memory_use.h"
#include "../run/stepper.h"

/* Formats of the output; the row of bench_format explains them. */
typedef enum bench_format { BENCH_TEXT, BENCH_TFCNN, BENCH_HOROVOD, BENCH_JSON } bench_format;

/* The keys of bench mode, in the order of the rows in bench_options.c, which explain them. */
typedef struct bench_config {
    int64_t bench_steps;
    bool has_epochs;
    double bench_epochs;
    int64_t bench_warmup;
    int64_t bench_display;
    bench_format bench_format;
    bool bench_accuracy;
    bool bench_forward_only;
    bool bench_synthetic;
    const char *bench_data; /* NULL: the model's own data */
    int64_t bench_min_len;
    int64_t bench_max_len;
    rd_ints bench_lengths; /* n 0: not given */
    int64_t bench_vocab;
} bench_config;
extern const rd_option_group rd_group_bench;

/* One counted step. */
typedef struct bench_step {
    double seconds;
    double units; /* images or tokens of all ranks */
} bench_step;

typedef struct bench_result {
    bench_step *step;  /* owned; [n_planned] */
    int64_t n;         /* number of counted steps so far */
    int64_t n_planned; /* number of steps to count */
    int64_t skipped;   /* number of counted steps whose gradient was not finite */

    /* sums over the counted steps */
    double wall_s; /* the time between the steps included */
    double cpu_s;  /* CPU time of all threads; mean over the ranks */
    double units, units_tgt, samples, flops;
    double input_s, exposed_s; /* mean over the ranks */

    /* the last step; losses: NAN where the model has none */
    double loss, l2, targets;
    double classes[STEP_CLASS_COUNTS]; /* counts of the class metrics */

    /* the machine */
    double peak;         /* FLOP/s of all ranks, by the clock */
    double peak_cpu;     /* FLOP/s of all ranks, per second of CPU time */
    double peak_bytes;   /* largest memory of a rank */
    memory_use memory;   /* what it consists of */
    double device_bytes; /* largest GPU memory of a rank; 0: none */
    double start_s; /* from the start of the process to the end of the first step; NAN: not known */
    double alone_s; /* best time of the gradients' sum by itself; NAN: one rank */
    double reduced_bytes; /* summed per step and rank */
} bench_result;

typedef struct bench {
    stepper stepper; /* first: the stepper's hook `make` casts its address to bench */
    rd_run *run;
    bench_config config;
    bench_result result;
    rd_batch
        /* synthetic images: the batch of every step, in run->batch_arena; n 0: not made yet */
        fixed;
    bool images;      /* false: tokens */
    const char *data; /* "imagenet (synthetic)" */
    int64_t n_epoch;  /* samples of an epoch; 0: the data has no end */

    /* style horovod */
    double *rates; /* owned; one per iteration */
    int64_t n_rates;
} bench;

/* ---- bench.c ---- */

/* Collective. --mode=bench. */
rd_code run_bench(rd_run *r, rd_status *st);

/* ---- bench_config.c ---- */

/* Puts the defaults of bench mode into the config. Lines for the user go to *notices. Not
 * collective, but the same on all ranks. */
rd_code bench_defaults(const rd_cli *cli, rd_config *c, rd_strbuf *notices, rd_status *st);

/* ---- bench_data.c ---- */

extern const char *const bench_data_names[]; /* "imagenet" ..., NULL */

/* Finds the shape of synthetic data for the run's model. Sets b->data and b->n_epoch. */
rd_code bench_synthetic_spec(bench *b, rd_data_spec *out, rd_status *st);

/* Makes a synthetic batch; for stepper.make. */
rd_code bench_synthetic_batch(stepper *s, rd_batch *out, rd_status *st);

/* Collective. Opens data, or prepares synthetic batches, and makes the model. Call it after
 * b->config is read; *st may hold a failure of that. */
rd_code bench_open(bench *b, rd_status *st);

/* ---- bench_style.c ---- */

/* What rank 0 prints, by key bench_format. NULL: nothing. */
typedef struct bench_style {
    void (*begin)(bench *b);              /* after the model is made */
    void (*warm)(bench *b);               /* before warm-up */
    void (*ready)(bench *b);              /* before the first counted step */
    void (*step)(bench *b, int64_t done); /* after counted step number `done`, from 1 */
    void (*end)(bench *b);
} bench_style;

const bench_style *bench_style_of(bench_format format);
extern const char *const bench_style_names[]; /* by format; ends with NULL */

#endif
