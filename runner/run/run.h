/* run.h -- the struct that holds a run, its config and its progress, and the functions at the
 * bottom of the folder. */
#ifndef RD_RUN_H
#define RD_RUN_H

#include "class_counts.h"
#include "divergence.h"
#include "gpu_locks.h"
#include "run_types.h"
#include "rd/backend.h"
#include "rd/clock.h"
#include "rd/comm.h"
#include "rd/data.h"
#include "rd/gpu_choose.h"
#include "rd/metric.h"
#include "rd/model.h"
#include "rd/optim.h"
#include "rd/params.h"
#include "rd/rnn_choose.h"
#include "rd/strbuf.h"
#include "rd/tape.h"
#include "rd/watch.h"
#include "times.h"

#include "rd/cli.h"
#include "rd/log.h"
#include "rd/options.h"

/* Choices of keys; the rows in run_options.c have the words and explain them. */
typedef enum run_dtype { RUN_DTYPE_FLOAT32, RUN_DTYPE_MIXED } run_dtype;
typedef enum run_graphs { RUN_GRAPHS_AUTO, RUN_GRAPHS_OFF } run_graphs;
typedef enum run_binding { RUN_BINDING_AUTO, RUN_BINDING_OFF } run_binding;
typedef enum run_deterministic { RUN_DETERMINISTIC_NP, RUN_DETERMINISTIC_ANY } run_deterministic;
typedef enum run_overlap {
    RUN_OVERLAP_AUTO,
    RUN_OVERLAP_OFF,
    RUN_OVERLAP_CALLS,
    RUN_OVERLAP_THREAD,
    RUN_OVERLAP_CORE
} run_overlap;
typedef enum run_shard { RUN_SHARD_NONE, RUN_SHARD_OPTIMIZER } run_shard;
typedef enum run_sparse { RUN_SPARSE_AUTO, RUN_SPARSE_NEVER, RUN_SPARSE_ALWAYS } run_sparse;
typedef enum run_monitor { RUN_MONITOR_FIGURE, RUN_MONITOR_LOSS } run_monitor;
typedef enum run_hours { RUN_HOURS_START, RUN_HOURS_JOB } run_hours;
typedef enum run_norms { RUN_NORMS_AUTO, RUN_NORMS_ON, RUN_NORMS_OFF } run_norms;
typedef enum run_sampling { RUN_SAMPLING_SHARD, RUN_SAMPLING_INDEPENDENT } run_sampling;

/* The trainer's own keys, in the order of the rows in run_options.c, which explain them. has_...:
 * the key has a value that is not the default. */
typedef struct run_config {
    /* model and batches */
    const char *model;
    const char *dataset; /* NULL or "": the model's default */
    bool has_batch_size, has_batch_tokens, has_batch_sentences;
    int64_t batch_size;      /* samples of a rank; 0: one of the next two */
    int64_t batch_tokens;    /* target tokens of an update on all ranks; 0: not given */
    int64_t batch_sentences; /* samples of an update on all ranks; 0: not given */
    bool has_eval_batch_size;
    int64_t eval_batch_size; /* batch_size where the key is not given */
    int64_t infer_batch_size;
    int64_t infer_batch_tokens; /* 0: infer_batch_size counts */
    int64_t num_gpus;
    bool has_num_epochs;
    int64_t num_epochs;
    int64_t max_epochs, max_samples; /* 0: no limit */
    int64_t stop_patience;           /* 0: no early stopping */
    double stop_min_delta;
    int64_t min_epochs, min_steps, min_samples;
    double max_hours; /* 0: no limit */
    run_hours max_hours_from;
    int64_t iter_size;

    /* precision and device */
    run_dtype dtype;
    rd_device device;
    bool allow_shared_gpu;
    const char *lock_dir; /* NULL, "": no GPU is locked */
    bool tf32;
    run_graphs cuda_graphs;
    run_binding cpu_binding;
    rd_rnn_asked cudnn_rnn;
    int64_t threads; /* 0: the rank's share of the cores; deterministic any makes that 1 */

    /* order and repeatability */
    int64_t seed;
    run_deterministic deterministic;
    int64_t micro_batches;
    int64_t check_replicas_every;

    /* exchange of gradients */
    bool has_bucket_mb;
    double bucket_mb;
    rd_wire allreduce_dtype;
    run_overlap overlap;
    run_sparse sparse_embeddings;
    run_shard shard;

    /* trace and watch */
    const char *trace_steps;
    bool trace_ops;
    double stall_warn_s;
    double stall_abort_s;

    /* evaluation and data */
    bool has_eval_frequency;
    int64_t eval_frequency;
    int64_t eval_epochs;
    bool drop_last_batch;
    run_sampling sampling;
    int64_t max_eval_samples;
    int64_t read_retries;
    const char *metric;
    const char *second_metric; /* NULL: none */
    run_monitor best_monitor;
    bool multi_reference;

    /* checkpoints and records */
    const char *checkpoint;
    const char *init_from;
    bool init_allow_missing;
    int64_t checkpoint_steps; /* 0: by time alone */
    int64_t checkpoint_keep, checkpoint_keep_best;
    bool reset_optimizer;
    int64_t nonfinite_limit;
    double divergence_limit;
    double spike_loss_z, spike_norm_z; /* 0: off */
    int64_t histogram_frequency;
    run_norms gradient_norms;
    int64_t image_frequency;
    bool print_samples;
    int64_t sample_summaries;
    int64_t sample_texts, sample_tokens;
    bool record_sample_ids;

    /* accepted without effect */
    bool shuffle;
    const char *mode;
} run_config;

extern const rd_option_group rd_group_run;

/* Returns the word of a choice of rd_group_run, for messages: run_word("dtype",
 * r->config.dtype). */
const char *run_word(const char *key, int value);

/* Appends a group to out[n], unless it is NULL or the list has it. Returns the new n. */
int rd_groups_add(const rd_option_group *out[RD_MAX_GROUPS], int n, const rd_option_group *g);

/* Appends the groups of schedule, optimizers and metrics. Returns the new n. */
int rd_training_groups_add(const rd_option_group *out[RD_MAX_GROUPS], int n);

/* Lists the groups that a training reads with any model: run and those above. Returns how many
 * there are. */
int rd_training_groups(const rd_option_group *out[RD_MAX_GROUPS]);

/* Sums over steps, of all ranks. Checkpoints hold them, so there are no times: checkpoints of the
 * same run have the same bytes. */
typedef struct run_sums {
    double loss, weight, targets, samples;
    double nll, nll_targets; /* of the steps with a finite loss */
    double classes[STEP_CLASS_COUNTS];
} run_sums;

/* The step from which the schedule counts with the present global batch. All 0: the global batch
 * has never changed. */
typedef struct run_origin {
    int64_t step;
    int64_t samples; /* samples of the steps before, where each batch counts as full */
    double epoch;    /* passes over the data before the step */
} run_origin;

/* The state of early stopping, equal on all ranks. */
typedef struct run_patience {
    double best; /* best figure of a regular evaluation so far, if has_best */
    bool has_best;
    int64_t wait; /* number of evaluations in a row that were not better than `best` */
    bool stopped; /* the training ended for that reason */
} run_patience;

/* An evaluation, for the checkpoint of its step. */
typedef struct run_evaluated {
    int64_t step; /* -1: none */
    char name[64];
    double value, loss;
    bool higher_is_better;
} run_evaluated;

/* The last values of a figure of the steps; value k is x[k % RUN_SPIKES]. */
enum { RUN_SPIKES = 128 };
typedef struct run_spikes {
    int64_t n; /* number of values so far */
    double x[RUN_SPIKES];
} run_spikes;

/* One of the best evaluations so far; see keep_best.h. */
enum { RUN_TOP = 64 };
typedef struct run_top {
    int64_t step;
    double value;
} run_top;

/* Largest number of parts of an epoch (rd_order_part), the present one included. */
enum { RUN_PARTS = 256 };

/* The position of a training. The next global batch is number `batch` of the present part of epoch
 * `epoch`, or the first one of the next epoch where there is none of that number. While the global
 * batch is constant, all of it follows from the number of steps. It is saved so that the global
 * batch may change. */
typedef struct run_progress {
    int64_t step;    /* number of steps done, skipped steps included */
    int64_t updates; /* number of optimizer updates done */
    /* number of updates that the optimizer's state comes from: less than `updates` after the state
     * of the best checkpoint was restored */
    int64_t state_updates;
    int64_t skipped; /* number of steps whose gradient was not finite */
    int64_t spiked;  /* number of steps that were skipped for their loss or gradient norm */
    run_spikes losses, norms; /* of the keys spike_loss_z and spike_norm_z; see spikes.h */
    /* number of steps in a row, up to this one, that were skipped; and of those among them that a
     * smaller loss_scale would not have saved */
    int64_t skipped_in_row, bad_in_row;
    int64_t diverging;    /* see divergence.h */
    divergence reference; /* the same */
    bool eval_bad;        /* the last evaluation was not finite */
    int64_t epoch, batch;
    int64_t samples;     /* number of samples of this epoch used so far */
    int64_t all_samples; /* the same, of all epochs */
    /* sum of a hash of their ids: the same for every order and number of ranks */
    int64_t samples_hash;
    int n_parts;                   /* number of earlier parts of this epoch */
    rd_order_part part[RUN_PARTS]; /* [n_parts] */
    run_origin origin;
    /* After a resume: as origin.samples, for all steps so far; and whether the schedule needs a new
     * origin at this step, because a step has another number of samples now. */
    int64_t seen;
    bool moved;
    run_sums sums;       /* since the epoch began */
    bool has_sums;       /* the sums include the epoch's first batch */
    run_sums summary;    /* since the last record, for its means */
    double best;         /* best evaluation figure so far */
    int64_t best_step;   /* step of `best`; -1: none */
    int64_t best_before; /* step of the best file that `best` replaced; -1: none */
    /* a stop request came before this step's evaluation: a regular one; one that only the end of
     * the training causes */
    bool eval_due, eval_at_end;
    double loss_scale; /* for the next step */
    /* number of finite steps since loss_scale changed; see device_scales_loss */
    int64_t good_steps;
    rd_plateau plateau;
    run_patience patience;
    /* The weights and the optimizer's state of the best checkpoint are restored before the next
     * step. */
    bool restore_due;
    run_evaluated evaluated; /* the last one */
    /* the best evaluations, the best one first, with checkpoint_keep_best; rank 0 */
    int n_top;
    run_top top[RUN_TOP]; /* [n_top] */
} run_progress;

typedef struct exchange exchange;

struct rd_run {
    /* borrowed from the process */
    rd_comm *comm;
    const rd_world *world;
    rd_log *log;
    const rd_cli *cli;
    rd_config *keys;    /* every key of the config, with its source */
    int64_t started_ns; /* when the process began; 0 after the first step */

    /* config */
    rd_mode mode;
    run_config config;
    rd_optim_config optim_config;
    rd_schedule_config schedule_config;
    uint64_t seed;
    /* Number of samples that all ranks take from the order at a time: those of a forward pass, or
     * of an update if the config gives batch_tokens (then on average) or batch_sentences. */
    int64_t global_batch;
    rd_strbuf notices; /* owned; changes that the mode forced on the config, for the banner */

    /* data; owned */
    rd_dataset *train_data;
    rd_dataset *eval_data; /* the eval or test split */
    rd_data_spec spec;     /* borrowed from the dataset */

    /* device; owned. device.c */
    rd_gpu_choice device;
    rd_gpu *gpu; /* NULL: the CPU computes */
    int gpu_index;
    gpu_locks gpu_locks;  /* of the first rank of a host */
    uint64_t fixed_bytes; /* GPU memory in use before the first step */
    rd_backend *backend;

    /* memory of batches; owned. device.c */
    rd_arena *batch_arena;       /* of the present batch */
    rd_arena *other_batch_arena; /* GPU: of the batch before or after; NULL: none */
    rd_arena_source pinned;      /* source of both on a GPU */
    int64_t batch_swaps;         /* number of times that batch_arena was exchanged or emptied */

    /* model and optimizer; owned */
    const rd_model_def *model;
    void *model_self;
    rd_params *params;
    rd_tape *tape;
    rd_optim *optim;    /* NULL: nothing is trained */
    exchange *exchange; /* NULL: nothing is trained */
    const rd_metric_def *metric;
    rd_shortlist *shortlist;            /* owned; NULL: none, or not read yet */
    const rd_metric_def *second_metric; /* NULL: none */

    /* state */
    run_progress progress;
    bool from_best;       /* the run was resumed from a best file */
    json_t *best_measure; /* owned; rank 0: how `best` was measured; NULL: not known */
    json_t *dropped;      /* owned; value and source of keys that the mode dropped; NULL: none */
    json_t *parent;       /* owned; rank 0: the checkpoint that the first weights came from; NULL:
                             none */
    char loaded[4096];    /* rank 0: path of the checkpoint that was loaded; "": none */
    char shadow[4096]; /* --check: the data sees this folder in place of the log folder; "": it sees
                             the log folder */
    bool start_recorded; /* rank 0: starts.jsonl has the begin of this start, and no end yet */
    run_times times;
    run_trace *trace; /* owned; NULL: no trace */
    rd_watch *watch;  /* owned */
    /* rank 0 holds the lock of the log folder, so error files may be written there */
    bool owns_logdir;
    int lock;              /* owned; rank 0: the lock of the log folder; -1: none */
    uint64_t lock_mark[2]; /* the folder's .lock as this host saw it at the start; 0: not seen */
    bool agreed;           /* the failure is known to all ranks */
    const char *ended_by;  /* what ended the training, for the last checkpoint; NULL: not yet */
};

/* ---- run_base.c ---- */

/* Collective. Calls rd_comm_agree, and remembers in r->agreed that all ranks know of the
 * failure. */
rd_code run_agree(rd_run *r, rd_status *st);

/* Values of keys of other groups, in effect; `dflt` where a key has none. */
double run_real(const rd_run *r, const char *key, double dflt);
bool run_flag(const rd_run *r, const char *key, bool dflt);

/* Is the log folder still the one that rank 0 locked, as this host sees it? */
bool run_owns_logdir(const rd_run *r);

/* Does evaluation decode and score? A model that continues texts has no reference. */
bool run_scores(const rd_run *r);

/* Does the model take images and answer with a class? */
bool run_is_image(const rd_run *r);

/* Is deterministic "any"? */
bool run_any(const rd_run *r);

/* Do batch_tokens or batch_sentences give the samples of an update, for any number of ranks? */
bool run_batch_is_global(const rd_run *r);

/* Returns the number of global batches of an update. */
int64_t run_batches(const rd_run *r);

/* Returns the number of samples of an update, where each batch counts as full. */
int64_t run_update_samples(const rd_run *r);

/* Returns the number of ranks by which the schedule scales rates and steps: 1 if the number of
 * ranks does not change an update. */
int run_schedule_ranks(const rd_run *r);

/* Returns the peak memory of this process so far. */
double run_peak_bytes(void);

/* Moves the position to the begin of the next epoch. */
void run_next_epoch(run_progress *at);

/* Collective. Puts the gradients into memory that the ranks of a host share, where the ranks can
 * map it. */
rd_code run_share_gradients(rd_run *r, rd_status *st);

#endif
