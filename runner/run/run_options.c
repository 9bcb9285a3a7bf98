/* run_options.c -- the keys of the trainer itself. */
#include "run.h"

#include <string.h>
#include <strings.h>

static const char *const graphs[] = {"auto", "off", NULL};
static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
static const char *const dtypes[] = {"float32", "mixed", NULL};
static const char *const levels[] = {"np", "any", NULL};
static const char *const wires[] = {"float32", "bfloat16", "float16", NULL};
static const char *const cudnn_rnns[] = {"auto", "off", "on", NULL};
static const char *const overlaps[] = {"auto", "off", "calls", "thread", "core", NULL};
static const char *const sparse[] = {"auto", "never", "always", NULL};
static const char *const samplings[] = {"shard", "independent", NULL};
/* A metric's file has its name. */
#define RD_ENTRY(name) #name,
static const char *const metrics[] = {
#include "metrics.inc"
    NULL};
#undef RD_ENTRY

enum { ANY_TRAIN = RD_MODE_TRAIN | RD_MODE_TRAIN_EVAL };

static const rd_option run_rows[] = {
    RD_OPT_STRING(run_config, model, model, "\"seq2seq\"",
                  "which model to build (one file each in models/)"),
    RD_OPT_STRING(run_config, dataset, dataset, NULL,
                  "which reader feeds it; default: the model's own"),
    {.key = "batch_size",
     .type = RD_INT,
     .at = offsetof(run_config, batch_size),
     .given_at = SIZE_MAX,
     .required = ANY_TRAIN | RD_MODE_EVAL | RD_MODE_BENCH,
     .min = 1,
     .max = 1 << 24,
     .help =
         "samples per rank and forward pass; the global batch is this times the number of ranks"},
    {.key = "eval_batch_size",
     .type = RD_INT,
     .at = offsetof(run_config, eval_batch_size),
     .given_at = offsetof(run_config, has_eval_batch_size),
     .min = 1,
     .max = 1 << 24,
     .help = "samples per rank and pass in evaluation; default: batch_size. The figures do not "
             "depend on the number of ranks"},
    RD_OPT_INT(run_config, infer_batch_size, infer_batch_size, "64", 1, 1 << 24,
               "sentences decoded at a time in infer mode; the output does not depend on it"),
    RD_OPT_INT(run_config, num_gpus, num_gpus, "1", 0, 1 << 20,
               "forced to 1: one GPU, or one share of the processors, per rank"),
    {.key = "num_epochs",
     .type = RD_INT,
     .at = offsetof(run_config, num_epochs),
     .given_at = offsetof(run_config, has_num_epochs),
     .min = 1,
     .max = 1e9,
     .help = "length of training in passes over the data, when --max_steps is not given"},
    RD_OPT_INT(run_config, iter_size, iter_size, "1", 1, 1 << 20,
               "global batches whose gradients are added up before an update: a larger batch "
               "without more memory"),
    RD_OPT_CHOICE(
        run_config, dtype, dtype, "\"float32\"", dtypes,
        "mixed: matrix products take bfloat16 inputs; sums, weights and optimizer stay float32"),
    RD_OPT_CHOICE(run_config, device, device, "\"auto\"", devices,
                  "where a rank computes; auto: on a GPU of its own if all ranks see one, on the "
                  "processor if none does. cuda: on a GPU, or not at all"),
    RD_OPT_BOOL(run_config, allow_shared_gpu, allow_shared_gpu, "false",
                "ranks of a host may share a GPU; each has its own weights in its memory, and "
                "gradients go by NCCL from 2.30 on, else through the host"),
    RD_OPT_BOOL(run_config, tf32, tf32, "false",
                "on a GPU: float32 products may round their inputs to TF32, which has 10 bits: "
                "several times faster, and no longer as exact as on a processor"),
    RD_OPT_CHOICE(
        run_config, cuda_graphs, cuda_graphs, "\"auto\"", graphs,
        "on a GPU: auto: what a step starts is kept as CUDA graphs where batches of its shape come "
        "again, and started all at once; results are the same bytes. off: each kernel by itself"),
    RD_OPT_CHOICE(run_config, cudnn_rnn, cudnn_rnn, "\"auto\"", cudnn_rnns,
                  "on a GPU: LSTM layers outside a decoder's loop by cuDNN, all time steps at "
                  "once; auto: in training, where it has a persistent algorithm for the sizes, on: "
                  "wherever it computes the same model, off: never"),
    RD_OPT_INT(run_config, threads, threads, "0", 0, 4096,
               "threads per rank; 0: the rank's own share of the processors"),
    RD_OPT_INT(run_config, seed, seed, "0", 0, 9007199254740992.0,
               "of initial weights, order of samples and dropout; --seed replaces it"),
    RD_OPT_CHOICE(run_config, deterministic, deterministic, "\"np\"", levels,
                  "np: the same config, seed and number of ranks give the same bytes; any: so do "
                  "1, 2, 4, ... ranks with the same global batch, see micro_batches"),
    RD_OPT_INT(run_config, micro_batches, micro_batches, "0", 0, 1 << 20,
               "with deterministic any: parts of every global batch, computed one by one and added "
               "along a fixed tree; a power of two that the number of ranks divides"),
    RD_OPT_INT(run_config, check_replicas_every, check_replicas_every, "0", 0, 1e15,
               "steps after which the weights of all ranks, or hosts that share a copy, are "
               "compared by checksum, as they are before every save; 0: only then"),
    {.key = "bucket_mb",
     .type = RD_REAL,
     .at = offsetof(run_config, bucket_mb),
     .given_at = offsetof(run_config, has_bucket_mb),
     .def = "4",
     .min = 0.001,
     .max = 1e6,
     .help = "MB of gradients that travel between hosts, or GPUs, together; the first bucket has "
             "at most 1. Between GPUs 25 where it is not given. Results do not depend on it"},
    RD_OPT_CHOICE(
        run_config, allreduce_dtype, allreduce_dtype, "\"float32\"", wires,
        "of gradients on their way between hosts, or GPUs; sums of a host stay float32. bfloat16 "
        "and float16 halve the bytes; float16 cuts off at 65504, so choose loss_scale with care"),
    RD_OPT_CHOICE(run_config, overlap, overlap, "\"auto\"", overlaps,
                  "gradients between hosts: thread, what auto takes: on their way while backward "
                  "runs, looked after by a thread; core: by one that looks all the time, and needs "
                  "a processor of its own for that; calls: by the rank itself between ops; off: "
                  "after backward. Results do not depend on it; on one host it is off. Between "
                  "GPUs they are on their way unless it is off"),
    RD_OPT_CHOICE(run_config, sparse_embeddings, sparse_embeddings, "\"auto\"", sparse,
                  "gradients of embeddings: auto: only the rows that a step used are summed over "
                  "ranks, unless these are most of the table; always: only these; never: the whole "
                  "table. The results are the same. Between GPUs tables go whole"),
    RD_OPT_STRING(run_config, trace_steps, trace_steps, "\"\"",
                  "with --trace: first and last step to keep, such as \"10:60\"; default: the "
                  "first fifty after the second one of this run"),
    RD_OPT_BOOL(run_config, trace_ops, trace_ops, "false",
                "with --trace: every op of the forward and backward pass, too"),
    RD_OPT_REAL(run_config, stall_warn_s, stall_warn_s, "60", 0, 1e9,
                "seconds without progress of a rank after which it is named in a warning; 0: "
                "never. Starting, saving and evaluating have ten times as long"),
    RD_OPT_REAL(run_config, stall_abort_s, stall_abort_s, "300", 0, 1e9,
                "seconds without progress of a rank, or word from a host, after which the job ends "
                "with code 8 (9 for a lost host); 0: never"),
    {.key = "eval_frequency",
     .type = RD_INT,
     .at = offsetof(run_config, eval_frequency),
     .given_at = offsetof(run_config, has_eval_frequency),
     .def = "1000",
     .min = 1,
     .max = 1e12,
     .help = "steps between evaluations in train_eval mode; the default is without effect beside "
             "eval_epochs"},
    RD_OPT_INT(run_config, eval_epochs, eval_epochs, "0", 0, 1e9,
               "train_eval mode evaluates at the end of every so many epochs; 0: eval_frequency "
               "alone decides"),
    RD_OPT_BOOL(
        run_config, drop_last_batch, drop_last_batch, "false",
        "training leaves out the last batch of an epoch when it is smaller than the global batch"),
    RD_OPT_CHOICE(run_config, sampling, sampling, "\"shard\"", samplings,
                  "shard: the ranks share every global batch of one shuffled order; independent: "
                  "each rank goes through an order of its own of all samples, as Horovod's Keras "
                  "examples do (then curves depend on the number of ranks)"),
    RD_OPT_INT(run_config, max_eval_samples, max_eval_samples, "0", 0, 1e12,
               "evaluate the first so many samples only; 0: all"),
    RD_OPT_CHOICE(run_config, metric, metric, "\"bleu\"", metrics,
                  "score of decoded sentences in evaluation"),
    RD_OPT_BOOL(
        run_config, multi_reference, multi_reference, "false",
        "evaluation: samples with the same source count once, with the target that scores best"),
    RD_OPT_STRING(run_config, checkpoint, checkpoint, "\"newest\"",
                  "which weights eval and infer use: newest or best of --logdir, or the path of an "
                  ".npz file"),
    RD_OPT_INT(run_config, checkpoint_keep, checkpoint_keep, "5", 1, 1000000,
               "how many periodic checkpoints stay"),
    RD_OPT_BOOL(run_config, reset_optimizer, reset_optimizer, "false",
                "start the optimizer's state anew when a checkpoint is resumed (needed after a "
                "change of optimizer)"),
    RD_OPT_INT(run_config, nonfinite_limit, nonfinite_limit, "20", 1, 1e9,
               "steps in a row with an inf or NaN gradient, each skipped, before the run ends with "
               "exit code 7"),
    RD_OPT_INT(run_config, histogram_frequency, histogram_frequency, "500", 0, 1e12,
               "steps between histograms of weights and gradients; 0: none"),
    RD_OPT_INT(run_config, image_frequency, image_frequency, "500", 0, 1e12,
               "steps between sample images in TensorBoard; 0: none, also of mistakes and "
               "confusions in evaluation"),
    RD_OPT_BOOL(run_config, print_samples, print_samples, "true",
                "print one source, target and prediction with every summary"),
    {.key = "shuffle",
     .type = RD_BOOL,
     .at = offsetof(run_config, shuffle),
     .given_at = SIZE_MAX,
     .flags = RD_OPT_ACCEPTED,
     .help = "training always shuffles, evaluation and inference never do"},
    {.key = "mode",
     .type = RD_STRING,
     .at = offsetof(run_config, mode),
     .given_at = SIZE_MAX,
     .flags = RD_OPT_ACCEPTED,
     .help = "the flag --mode decides"},
    RD_OPT_END};

const rd_option_group rd_group_run = {"run",
                                      "The run: batches, length, precision, evaluation, records",
                                      run_rows, sizeof(run_config)};

int rd_groups_add(const rd_option_group *out[RD_MAX_GROUPS], int n, const rd_option_group *g)
{
    for (int i = 0; i < n; i++)
        if (out[i] == g) return n; /* models may share a group */
    if (g && n < RD_MAX_GROUPS) out[n++] = g;
    return n;
}

int rd_training_groups_add(const rd_option_group *out[RD_MAX_GROUPS], int n)
{
    int n_optimizers = 0, n_metrics = 0;
    const rd_optimizer_def *const *o = rd_optimizer_defs(&n_optimizers);
    const rd_metric_def *const *m = rd_metric_defs(&n_metrics);
    n = rd_groups_add(out, n, &rd_group_schedule);
    for (size_t i = 0; i < sizeof rd_group_policy / sizeof *rd_group_policy; i++)
        n = rd_groups_add(out, n, &rd_group_policy[i]);
    n = rd_groups_add(out, n, &rd_group_optim);
    for (int i = 0; i < n_optimizers; i++)
        n = rd_groups_add(out, rd_groups_add(out, n, o[i]->group), o[i]->own);
    for (int i = 0; i < n_metrics; i++)
        n = rd_groups_add(out, rd_groups_add(out, n, m[i]->group), m[i]->own);
    return n;
}

int rd_training_groups(const rd_option_group *out[RD_MAX_GROUPS])
{
    return rd_training_groups_add(out, rd_groups_add(out, 0, &rd_group_run));
}
