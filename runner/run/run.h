/* run.h -- what the files of runner/train share: one struct that holds a run, and the functions between them. */
#ifndef RD_RUN_IMPL_H
#define RD_RUN_IMPL_H

#include "rd/backend.h"
#include "rd/checkpoint.h"
#include "rd/clock.h"
#include "rd/comm.h"
#include "rd/data.h"
#include "rd/file.h"
#include "rd/gpu_choose.h"
#include "rd/metric.h"
#include "rd/model.h"
#include "rd/optim.h"
#include "rd/params.h"
#include "rd/philox.h"
#include "rd/records.h"
#include "rd/strbuf.h"
#include "rd/tape.h"
#include "rd/train.h"
#include "rd/watch.h"
#include "trace.h"

typedef struct run_config {
    int64_t check_replicas_every, micro_batches, batch_size, eval_batch_size, infer_batch_size,
        num_gpus, num_epochs, iter_size, threads, seed;
    int64_t eval_frequency, eval_epochs, max_eval_samples, checkpoint_keep, nonfinite_limit,
        histogram_frequency;
    int64_t image_frequency;
    bool has_num_epochs, has_eval_batch_size, has_eval_frequency, print_samples, reset_optimizer,
        shuffle;
    bool multi_reference, drop_last_batch;
    double stall_warn_s, stall_abort_s, bucket_mb;
    const char *allreduce_dtype, *overlap, *cudnn_rnn;
    bool trace_ops, allow_shared_gpu, tf32, has_bucket_mb;
    const char *trace_steps, *sparse_embeddings;
    const char *cuda_graphs, *device, *dtype, *metric, *model, *dataset, *checkpoint, *mode,
        *deterministic, *sampling;
} run_config;

/* Where the run stands. The next global batch is number `batch` of epoch `epoch` (or the first of the next epoch, when
 * there is none of that number); all of it follows from the number of steps as long as the global batch does not
 * change, and it is saved so that it may change. */
typedef struct run_progress {
    int64_t step;    /* steps done, skipped ones included */
    int64_t updates; /* optimizer updates done */
    int64_t skipped; /* steps whose gradient was not finite */
    int64_t epoch, batch;
    int64_t samples; /* of this epoch, already used */
    int64_t
        samples_hash; /* sum of a hash of their ids: the same for every order and number of ranks */
    int64_t global_batch; /* that `batch` counts in */
    double best;          /* best evaluation figure so far */
    int64_t best_step;    /* -1: none */
    bool eval_due;        /* this step's evaluation is still to be done: a stop came between */
    double loss_scale;    /* of the next step */
    int64_t good_steps;   /* since it changed; only where it does: see device_scales_loss */
    rd_plateau plateau;
} run_progress;

typedef struct exchange exchange;
typedef struct rd_run {
    /* borrowed */
    rd_comm *comm;
    const rd_world *world;
    rd_log *log;
    const rd_cli *cli;
    rd_config *config;
    int64_t started_ns;
    /* owned */
    rd_mode mode;
    run_config c;
    rd_optim_config oc;
    rd_schedule_config sc;
    uint64_t seed;
    rd_dataset *train, *held; /* held: eval or test split */
    rd_data_spec spec;
    rd_gpu_choice device;
    rd_gpu *gpu; /* NULL: the processor computes */
    int gpu_index;
    uint64_t fixed_bytes; /* of the GPU's memory, in use before the first step */
    rd_backend *backend;  /* of the tape */
    rd_params *params;
    const rd_model_def *model;
    void *model_self;
    rd_tape *tape;
    rd_optim *optim;
    rd_arena *data; /* of one batch */
    rd_arena *
        data_other; /* with a GPU: of the batch before, or the one after; see run_fresh_data. NULL: none */
    rd_arena_source locked; /* of both: page-locked memory */
    int64_t data_turns;     /* how often r->data became another, or empty */
    rd_watch *watch;
    const rd_metric_def *metric;
    int64_t global_batch; /* of one forward pass, all ranks */
    run_progress at;
    rd_strbuf notices; /* what the mode forced into the config, for the banner */
    bool owns_logdir;  /* the lock is rank 0's: errors may be left there */
    bool agreed;
    exchange *exchange; /* owned; NULL: nothing is trained */
    run_times times;
    run_trace *trace; /* owned; NULL: none asked for */
} rd_run;

/* run.c */
rd_code run_agree(
    rd_run *r,
    rd_status *st); /* Collective: rd_comm_agree, remembers that the failure is known to all */
rd_code run_open_data(rd_run *r, rd_split split, rd_dataset **out, rd_status *st); /* Collective */
rd_code run_open_model(rd_run *r, const rd_data_spec *spec, bool with_optim,
                       rd_status *st); /* Collective */
/* Collective. Gradients of the host are summed where they lie, if the ranks of each host can reach each other's. */
rd_code run_share_gradients(rd_run *r, rd_status *st);
void run_text(const rd_dataset *d, int side, const int32_t *ids, int64_t n, bool specials,
              rd_strbuf *out);
/* A key of another group, by its value in effect; dflt when it has none. */
double run_real(const rd_run *r, const char *key, double dflt);
bool run_flag(const rd_run *r, const char *key, bool dflt);
const char *run_string(const rd_run *r, const char *key, const char *dflt);
bool run_any(const rd_run *r); /* deterministic: any */
double run_peak_bytes(void);   /* of this process, so far */
void run_decode_config(const rd_run *r, bool penalty, rd_decode_config *out);

/* device.c */
#ifdef RD_CUDA
#define run_gpu(r) ((r)->gpu)
#else
#define run_gpu(r) \
    ((void)(r),    \
     (rd_gpu *)    \
         NULL) /* calls of the GPU behind it are not compiled; functions of them are inline, for -O0 */
#endif
/* Collective, once the config is read: the same device on all ranks, and a line for the banner. RD_EENV: see rd_gpu_choose. */
rd_code device_choose(rd_run *r, rd_status *st);
rd_code device_open(rd_run *r, int threads, rd_status *st); /* the backend */
void device_close(rd_run *r);                               /* after all that lives on it */
rd_code device_check(const rd_run *r,
                     rd_status *st); /* has something failed on the GPU? Waits for it */
void device_tell(const rd_run *r); /* a line for what the last pass did otherwise than was wanted */
double device_peak_bytes(const rd_run *r); /* of the GPU's memory; 0: none */
/* r->data, with a GPU in page-locked memory where there is enough of it, and twice: what one batch lies in is read by the GPU while the
 * other is filled. */
rd_code device_batches(rd_run *r, rd_status *st);
void device_free_batches(rd_run *r);
/* What an op will take to the GPU as it is begins to go up, beside the work that is queued there. */
rd_code device_send_ahead(rd_run *r, const rd_batch *b, rd_status *st);
/* r->data is empty and may be written; what the batch before the last lay in is gone. */
rd_code run_fresh_data(rd_run *r, rd_status *st);
void run_turn_data(rd_run *r); /* r->data is what was r->data_other, as it is */
/* Work from here to device_recurred, which is called after failures, too: a GPU may keep it as graphs under this key (rd_gpu_recurs). */
rd_code device_recurs(const rd_run *r, uint64_t key, rd_status *st);
rd_code device_recurred(const rd_run *r, rd_status *st);
void device_say_work(
    const rd_run *r); /* what went up ahead and what CUDA graphs did so far, where there was any */
void device_note_fixed(rd_run *r); /* all that outlives a step has its memory */
/* A failure of a step: where the GPU's memory was short, a batch size (of this key) that may fit is said, too. */
rd_code device_explain(const rd_run *r, const char *key, int64_t batch, rd_status *st);
/* Mixed precision on a GPU without bfloat16: gradients have the range of float16, and the loss is scaled so that they fit. */
bool device_scales_loss(const rd_run *r);
const char *device_product(
    const rd_run *r); /* what products are of: "float32", "TF32", "bfloat16", "float16" */
double device_first_scale(const rd_run *r);      /* of a run that begins */
void device_adapt_scale(rd_run *r, bool finite); /* after a step, the same on all ranks */

/* world.c */
/* Collective: the same on all ranks? First program, flags and config; when there is a model, its parameters and the
 * data. */
rd_code world_check_start(rd_run *r, rd_status *st);
rd_code world_check(rd_run *r, rd_status *st);
void world_banner(rd_run *r, int64_t last_step, int64_t n_batches, int64_t n_samples);

/* resume.c */
rd_code run_save(rd_run *r, const char *prefix, int keep, rd_status *st); /* rank 0 only */
/* Collective. Finds the checkpoint (what: "newest", "best" or a path), checks that it fits, gives values, optimizer
 * state and progress to all ranks. *found false: there is none (RD_OK). */
rd_code run_load(rd_run *r, const char *what, bool *found, rd_status *st);
rd_code run_check_source(
    rd_run *r,
    rd_status *st); /* Collective, before data is read: is it said where weights come from? */
rd_code run_load_required(rd_run *r,
                          rd_status *st); /* Collective; none at all is RD_ECKPT with the remedy */

/* pictures.c: samples of an image model as people see them */
enum { PICTURES = 16 }; /* at most so many in one picture */
typedef struct picture {
    int64_t id;
    int32_t label, predicted;
    float probability;
} picture;
typedef struct gallery {
    int64_t h, w, c; /* of all of them; 1 or 3 channels */
    int n, room;
    picture p[PICTURES];
    uint8_t *pixels; /* owned; [room][h][w][c] */
} gallery;
bool run_is_image(const rd_run *r); /* does the model take images and answer with a class? */
/* A class as text: its name, or its number. */
void class_text(const rd_dataset *d, int32_t k, rd_strbuf *out);
/* Makes room for so many; what was in it is gone. */
rd_code gallery_start(gallery *g, const rd_data_spec *spec, int room, rd_status *st);
void gallery_release(gallery *g);
/* Adds sample i of a batch; nothing happens when it is full or the batch has no images. */
void gallery_add(gallery *g, const rd_data_spec *spec, const rd_batch *b, int64_t i,
                 const rd_loss_out *out);
/* Collective. The `room` lowest ids of all ranks, on rank 0; others are left empty. */
rd_code gallery_gather(rd_run *r, gallery *g, rd_status *st);
/* One picture with all of them side by side, and a table that names them. */
void gallery_write(rd_events *e, int64_t step, const char *tag, const gallery *g,
                   const rd_dataset *d, rd_status *st);
/* counts[n * n], row: label, column: prediction. */
void confusion_write(rd_events *e, int64_t step, const int64_t *counts, int64_t n,
                     const rd_dataset *d, rd_status *st);

/* replicas.c */
rd_code run_check_replicas(
    rd_run *r, rd_status *st); /* Collective; RD_ENUMERIC names rank or host, and array */
rd_code run_spread_weights(
    rd_run *r, rd_status *st); /* Collective: values and slots of rank 0 to all copies */

/* fault.c */
rd_code run_phase(rd_run *r, rd_phase phase, int64_t step,
                  rd_status *st); /* says what this rank begins */

/* evaluate.c */
typedef struct eval_result {
    int64_t n_samples, n_targets, n_correct, n_top5;
    double loss, nll_per_token, perplexity, accuracy, top5;
    bool scored;
    bool classes;       /* an image model: top5 counts, and the following */
    gallery mistakes;   /* rank 0; of the lowest ids */
    int64_t *confusion; /* owned, [n_classes^2], row: label; NULL: too many classes */
    int64_t n_classes;
    int64_t counts[RD_METRIC_COUNTS];
    rd_figure figure[RD_METRIC_FIGURES];
    int n_figures;
    char line[512];
    double seconds;
} eval_result;
/* Collective: r->held with the present values. Release *out also after a failure. */
rd_code run_evaluate(rd_run *r, eval_result *out, rd_status *st);
void eval_result_release(eval_result *v);
/* What decides which checkpoint is best and, where asked for, the plateau rule. */
double eval_figure(const eval_result *v, const char **name, bool *higher_is_better);
typedef struct eval_records {
    rd_events *events;
    rd_metrics *metrics;
    int lock;
} eval_records;
rd_code eval_records_open(rd_run *r, eval_records *e, rd_status *st); /* rank 0 */
void eval_records_close(eval_records *e);
rd_code eval_report(rd_run *r, eval_records *e, const eval_result *v,
                    rd_status *st); /* rank 0: console and files */

/* decode.c: batches of held-out samples, the same for every number of ranks. Batch k of ids[n] is ids[k * size ...];
 * rank r computes the batches k with k % ranks == r. */
void decode_sort(const rd_dataset *d, int64_t *ids,
                 int64_t n); /* by length, longest first; ties by id */
/* Batch k of them; announces the one that this rank takes next. Memory of run->data. */
rd_code held_batch(rd_run *r, const rd_dataset *d, const int64_t *ids, int64_t n, int64_t size,
                   int64_t k, rd_batch *b, rd_status *st);
/* The forward pass of a batch, on a tape that does not record. */
rd_code run_forward(rd_run *r, const rd_batch *b, rd_loss_out *out, rd_status *st);
typedef rd_code decode_fn(void *ctx, int64_t id, const rd_decoded *out, rd_status *st);
/* Not collective. Decodes this rank's batches and hands each sample to fn. */
rd_code decode_share(rd_run *r, const rd_dataset *d, const int64_t *ids, int64_t n, int64_t size,
                     const rd_decode_config *c, decode_fn *fn, void *ctx, rd_status *st);
/* One batch made by hand (interactive use). */
rd_code decode_one(rd_run *r, const rd_batch *b, const rd_decode_config *c, decode_fn *fn,
                   void *ctx, rd_status *st);

/* embeddings.c: gradients of which a step fills few rows */
typedef struct embeddings embeddings;
typedef struct
    embeddings_sent { /* bytes: of the rows that were summed; to other hosts by this rank */
    int64_t bytes, wire_bytes;
} embeddings_sent;
/* Collective, after the gradients have their place. */
rd_code embeddings_new(rd_run *r, bool none, embeddings **out,
                       rd_status *st); /* none: all gradients go whole */
void embeddings_free(embeddings *e);
/* The tables whose gradients embeddings_sum sums, by their place in the arenas. */
int embeddings_n(const embeddings *e);
const rd_param *embeddings_param(const embeddings *e, int i);
/* Zeroes the whole gradient arena of this rank. keep_marks: the step goes on, what was touched will be summed. */
void embeddings_zero_grads(embeddings *e, bool keep_marks);
/* Collective. Gradients of table i become the sum over ranks. */
rd_code embeddings_sum(embeddings *e, int i, embeddings_sent *sent, rd_status *st);

/* exchange.c: gradients of all ranks become their sum */
rd_wire run_wire(const rd_run *r); /* allreduce_dtype */
rd_code exchange_new(rd_run *r, exchange **out,
                     rd_status *st); /* Collective, after the gradients have their place */
void exchange_free(exchange *x);     /* NULL is fine; before the tape */
/* A rank has failed, and the run ends: sums that others may never come to are ended, before something waits for the GPU. */
void exchange_abort(exchange *x);
/* gpu_group.c. Collective. *out NULL: the hosts sum, and why says why, where that is worth a word. The caller owns *out. */
rd_code gpu_group_open(rd_run *r, rd_gpu_group **out, char why[200], rd_status *st);
void exchange_describe(const exchange *x, rd_strbuf *out); /* a line for the banner, or nothing */
void exchange_begin(exchange *x);                          /* of a step: gradients are zero */
void exchange_clear(exchange *x); /* they are again, between the parts of a step */
/* The next backward gives the last contributions. before (may be NULL): elements [from, from + n) of the arena have got them,
 * and are to be made whole; once for each. */
typedef rd_code exchange_before(void *ctx, int64_t from, int64_t n, rd_status *st);
void exchange_last(exchange *x, exchange_before *before, void *ctx);
void exchange_settle(
    exchange *x); /* backward is over, or was none; the caller's thread may call MPI again */
/* Collective. *out: what it took; as it was on one rank. */
rd_code exchange_finish(exchange *x, step_comm *out, rd_status *st);
/* Collective. Seconds that the sum of the first n gradients takes by itself, on this rank. All gradients are zero before. */
rd_code exchange_alone(exchange *x, int64_t n, double *seconds, rd_status *st);

/* train_step.c: one update, on all ranks */
typedef struct step_sums { /* over the samples of all ranks */
    double loss, weight, nll, targets, correct, top5, tokens_src, tokens_tgt, samples, hash;
    double input_s;    /* waited for input */
    double flops;      /* where stepper.count_flops */
    double stop, save; /* requests, of any rank */
    double skipped;    /* steps skipped in a row before this one: must be the same on all ranks */
} step_sums;
typedef struct step_share {     /* samples of this rank: one part of a global batch */
    int64_t epoch, batch, part; /* batch -1: none */
    int64_t n, n_global, room;
    int64_t *ids; /* owned */
} step_share;
typedef struct stepper stepper;
struct stepper {
    rd_run *run;
    rd_order *plan,
        *next_plan;       /* owned; of epochs plan_epoch and plan_epoch + 1; NULL: not made yet */
    int64_t plan_epoch;   /* -1: none yet */
    step_share now, next; /* next: announced to the dataset */
    step_share behind;    /* announced when `next` was fetched ahead; batch -1: nothing */
    rd_batch
        ahead; /* of `next`, in run->data_other, while run->data_turns is ahead_turns (0: nothing) */
    int64_t ahead_turns;
    double ahead_s,
        late_s; /* that its fetching took; of this, the GPU had nothing to do meanwhile: counts for the next step */
    int64_t parts,
        mine; /* parts of a global batch: one a rank, or micro_batches; how many of them are this rank's */
    float *sum
        [32]; /* owned; [span] where gradients lie, of 1, 2, 4, ... parts: see add_part. NULL: not needed yet */
    int64_t n_epochs;  /* ends before this epoch; INT64_MAX: does not end */
    int64_t last_step; /* ends after so many steps: nothing is announced beyond */
    bool want_sample;  /* keep the texts of one sample of the next step */
    rd_strbuf source, target, predicted;
    bool want_pictures; /* keep some images of the next step */
    gallery pictures;
    bool count_flops;
    double input_s,
        comm_s; /* of the last step, on this rank: waited for input, in the sums over ranks */
    double backward_s;     /* that the host took for the last backward of this step; 0: none */
    double since[TRACE_N]; /* run_times.seconds as they were before this step */
    step_comm comm;        /* of the last step's gradients, on this rank */
    rd_code (*make)(stepper *s, rd_batch *out,
                    rd_status *st); /* NULL: batches come from the plan; bench sets it */
};
void stepper_init(stepper *s, rd_run *r);
void stepper_release(stepper *s);
/* The plan of the epoch that comes next; after a resume with another global batch it also moves run->at.batch. Not
 * collective. */
rd_code stepper_plan(stepper *s, rd_status *st);
bool stepper_done(const stepper *s); /* no batch is left before n_epochs */
/* Collective. Gradients of iter_size global batches, their sum over ranks, one update. *in carries this rank's requests
 * (stop, save), *out the sums. stats->finite false: the step was skipped on all ranks. */
rd_code stepper_step(stepper *s, double lr, const step_sums *in, step_sums *out,
                     rd_optim_stats *stats, rd_status *st);

/* train.c, infer.c, bench.c */
rd_code run_train(rd_run *r, rd_status *st);
rd_code run_eval(rd_run *r, rd_status *st);
rd_code run_infer(rd_run *r, rd_status *st);
rd_code run_bench(rd_run *r, rd_status *st);

/* plan_mode.c. Collective: what more hosts would bring, from steps measured now; from what a run has left in its log folder,
 * without a config. */
rd_code run_plan(rd_run *r, rd_status *st);
rd_code run_plan_recorded(rd_run *r, rd_status *st);

/* recorder.c: what rank 0 writes while it trains */
typedef struct step_record {
    int64_t step, epoch;
    double epoch_part;      /* 0 .. 1 */
    double loss, loss_mean; /* of this step; of the steps since the last record */
    double nll_per_token, accuracy, top5, learning_rate, grad_norm, clipped_norm;
    double accuracy_mean, top5_mean; /* since the last record */
    double input_wait;               /* share of the time, mean over ranks */
    const double *param_norm;        /* [rd_params_n]; NULL: not measured */
    double tokens_per_s, target_tokens_per_s, samples_per_s, step_s, eta_s;
    double samples, targets; /* of this step */
    int64_t epoch_samples,
        epoch_samples_hash; /* since the epoch began: shows that each sample comes once */
    int64_t skipped;
    const rank_times *ranks;    /* since the last record; NULL: one rank */
    const char *comm_algorithm; /* NULL: not said */
    double step_bytes;          /* peak of the step's arena; on a GPU of all its memory */
} step_record;
typedef struct recorder recorder;
rd_code recorder_new(rd_run *r, recorder **out, rd_status *st);
void recorder_free(recorder *c, int end_status); /* 1: success, 2: failure */
void recorder_step(recorder *c, const step_record *s, bool histograms);
void recorder_sample(recorder *c, int64_t step, const char *source, const char *target,
                     const char *predicted);
void recorder_epoch(recorder *c, int64_t epoch, double mean_loss, double accuracy);
void recorder_pictures(recorder *c, int64_t step, const gallery *g);
void recorder_scalar(recorder *c, int64_t step, const char *tag, double v);
void recorder_flush(recorder *c);

/* console.c */
void console_step(rd_run *r, const step_record *s);
bool console_watched(const rd_run *r); /* is there a person's terminal for a live line? */
void console_live(rd_run *r, const step_record *s);
void console_sample(rd_run *r, const char *source, const char *target, const char *predicted);
char *console_count(double v, char out[32]); /* 1234567 -> "1,234,567" */
double console_real(double v);               /* a NaN without its sign: no "-nan" for people */
char *console_duration(double seconds, char out[32]); /* 3700 -> "1h 02m" */

/* signals.c */
void signals_start(
    void); /* TERM, INT, USR2: stop after the next save; USR1: save; a second stop signal leaves at once */
int signals_stop(void);       /* number of the signal that asked to stop, or 0 */
bool signals_take_save(void); /* true once per USR1 */

/* ---- owners.c ---- */
/* Refuses keys that only other models, datasets, optimizers, metrics or policies read; see
 * rd_config_check_owners. Not collective. */
rd_code run_check_owners(const rd_config *c, rd_strbuf *notes, rd_status *st);

#endif
