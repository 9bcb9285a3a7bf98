/* bench.h -- what the files of bench mode share. */
#ifndef RD_BENCH_IMPL_H
#define RD_BENCH_IMPL_H

#include "../run/run.h"

typedef struct bench_config {
    int64_t bench_steps, bench_warmup, bench_display, bench_min_len, bench_max_len, bench_vocab;
    double bench_epochs;
    bool has_epochs, bench_synthetic, bench_accuracy, bench_forward_only;
    const char *bench_data, *bench_format;
} bench_config;

/* One counted step. */
typedef struct bench_step {
    double seconds;
    double units; /* images or tokens, of all ranks */
} bench_step;

typedef struct bench_result {
    bench_step *step; /* owned */
    int64_t n, n_room;
    double wall_s; /* of all counted steps, with what is between them */
    double units, units_tgt, samples, flops;
    double loss, l2, top1, top5; /* of the last step; shares, NAN where the model has none */
    double peak,
        peak_cpu; /* FLOP/s of all ranks, by the clock and by a second of processor time of each */
    double cpu_s; /* processor time of the counted steps, all threads; mean over the ranks */
    double peak_bytes;   /* largest memory of a rank */
    double device_bytes; /* the same of its GPU; 0: none */
    double start_s; /* from the start of the process to the end of the first step; NAN: not known */
    double input_s, exposed_s; /* mean over the ranks, sum over the counted steps */
    double alone_s;            /* best time of a sum of the gradients by itself; NAN: one rank */
    double reduced_bytes;      /* per step and rank */
    int64_t skipped;           /* counted steps whose gradient was not finite */
} bench_result;

typedef struct bench {
    stepper s; /* first: the stepper's hook `make` gets its address */
    rd_run *run;
    bench_config c;
    bench_result r;
    rd_batch
        fixed; /* synthetic images: the same batch in every step, of run->data; n 0: not made yet */
    bool images;       /* else tokens */
    const char *data;  /* "imagenet (synthetic)" */
    int64_t n_epoch;   /* samples of an epoch; 0: the data has no end */
    int64_t iteration; /* style horovod: counted steps before the present iteration */
    double *rates;     /* owned, style horovod: one per iteration */
    int64_t n_rates;
} bench;

/* bench_options.c */
extern const rd_option_group rd_group_bench;

/* bench_config.c: not collective, but the same on all ranks. What bench mode puts into the config beside what is
 * written there; lines for people go to *said. */
rd_code bench_defaults(const rd_cli *cli, rd_config *c, rd_strbuf *said, rd_status *st);

/* bench_data.c */
extern const char *const bench_data_names[]; /* "imagenet" ..., NULL */
/* Shape of synthetic data for the run's model; sets b->data and b->n_epoch. */
rd_code bench_synthetic_spec(bench *b, rd_data_spec *out, rd_status *st);
rd_code bench_synthetic_batch(stepper *s, rd_batch *out, rd_status *st); /* stepper.make */
/* Collective. Once the group bench is read (a failure of that may be in st): data, or batches made up, and the model for them. */
rd_code bench_open(bench *b, rd_status *st);

/* bench_style.c: what is printed, by key bench_format. Functions of rank 0; NULL: nothing. */
typedef struct bench_style {
    const char *name;
    void (*begin)(bench *b);              /* the model is made */
    void (*warm)(bench *b);               /* before warm-up */
    void (*ready)(bench *b);              /* before the first counted step */
    void (*step)(bench *b, int64_t done); /* after counted step number `done`, from 1 */
    void (*end)(bench *b);
} bench_style;
const bench_style *bench_style_find(const char *name);
extern const char *const bench_style_names[];

#endif
