/* run_options.c -- the keys of the trainer itself. */
#include "run.h"
#include "rd/input.h"

/* The words of the choices; the enums are in run.h and in the headers that it includes. */
static const char *const dtypes[] = {
    [RUN_DTYPE_FLOAT32] = "float32", [RUN_DTYPE_MIXED] = "mixed", NULL};
static const char *const devices[] = {
    [RD_DEVICE_AUTO] = "auto", [RD_DEVICE_CPU] = "cpu", [RD_DEVICE_CUDA] = "cuda", NULL};
static const char *const graphs[] = {[RUN_GRAPHS_AUTO] = "auto", [RUN_GRAPHS_OFF] = "off", NULL};
static const char *const bindings[] = {
    [RUN_BINDING_AUTO] = "auto", [RUN_BINDING_OFF] = "off", NULL};
static const char *const cudnn_rnns[] = {
    [RD_RNN_AUTO] = "auto", [RD_RNN_OFF] = "off", [RD_RNN_ON] = "on", NULL};
static const char *const levels[] = {
    [RUN_DETERMINISTIC_NP] = "np", [RUN_DETERMINISTIC_ANY] = "any", NULL};
static const char *const wires[] = {
    [RD_WIRE_F32] = "float32", [RD_WIRE_BF16] = "bfloat16", [RD_WIRE_F16] = "float16", NULL};
static const char *const shards[] = {"none", "optimizer", NULL};
static const char *const overlaps[] = {
    [RUN_OVERLAP_AUTO] = "auto",     [RUN_OVERLAP_OFF] = "off",   [RUN_OVERLAP_CALLS] = "calls",
    [RUN_OVERLAP_THREAD] = "thread", [RUN_OVERLAP_CORE] = "core", NULL};
static const char *const sparse[] = {
    [RUN_SPARSE_AUTO] = "auto", [RUN_SPARSE_NEVER] = "never", [RUN_SPARSE_ALWAYS] = "always", NULL};
static const char *const monitors[] = {
    [RUN_MONITOR_FIGURE] = "figure", [RUN_MONITOR_LOSS] = "loss", NULL};
static const char *const hours[] = {[RUN_HOURS_START] = "start", [RUN_HOURS_JOB] = "job", NULL};
static const char *const norms[] = {
    [RUN_NORMS_AUTO] = "auto", [RUN_NORMS_ON] = "on", [RUN_NORMS_OFF] = "off", NULL};
static const char *const samplings[] = {
    [RUN_SAMPLING_SHARD] = "shard", [RUN_SAMPLING_INDEPENDENT] = "independent", NULL};
/* The file of a metric has its name. */
#define RD_ENTRY(name) #name,
static const char *const metrics[] = {
#include "metrics.inc"
    NULL};
#undef RD_ENTRY

enum { ANY_TRAIN = RD_MODE_TRAIN | RD_MODE_TRAIN_EVAL };

static const rd_option run_rows[] = {
    RD_OPT_STRING(run_config, model, model, "\"seq2seq\"", "the model to build (models/)"),
    RD_OPT_STRING(run_config, dataset, dataset, NULL,
                  "the reader of its data; default: the model's own"),
    RD_OPT_INT(
        run_config, batch_size, batch_size, NULL, 1, 1 << 24,
        "samples per rank and forward pass; the global batch is this times the number of ranks",
        RD_GIVEN(run_config, has_batch_size)),
    RD_OPT_INT(run_config, batch_tokens, batch_tokens, NULL, 1, 1e12,
               "in place of batch_size: an update of all ranks has about this number of target "
               "tokens (words and end tokens), in sentences of similar length. Ranks and iter_size "
               "only share its work",
               RD_GIVEN(run_config, has_batch_tokens)),
    RD_OPT_INT(run_config, batch_sentences, batch_sentences, NULL, 1, 1 << 30,
               "in place of batch_size: number of samples of an update of all ranks, which ranks "
               "and iter_size share",
               RD_GIVEN(run_config, has_batch_sentences)),
    RD_OPT_INT(run_config, eval_batch_size, eval_batch_size, NULL, 1, 1 << 24,
               "samples per rank and forward pass in evaluation; default: batch_size, else 64. "
               "The figures do not depend on the number of ranks",
               RD_GIVEN(run_config, has_eval_batch_size)),
    RD_OPT_INT(run_config, infer_batch_size, infer_batch_size, "64", 1, 1 << 24,
               "sentences decoded at a time in infer mode; the output does not depend on it"),
    RD_OPT_INT(run_config, infer_batch_tokens, infer_batch_tokens, "0", 0, 1 << 30,
               "source tokens decoded at a time in infer mode, in place of infer_batch_size; 0: "
               "infer_batch_size counts"),
    RD_OPT_INT(run_config, num_gpus, num_gpus, "1", 0, 1 << 20,
               "forced to 1: each rank has one GPU, or one share of the CPU cores"),
    RD_OPT_INT(run_config, num_epochs, num_epochs, NULL, 1, 1e9,
               "length of training in passes over the data, when --max_steps is not given",
               RD_GIVEN(run_config, has_num_epochs)),
    RD_OPT_INT(run_config, max_epochs, max_epochs, "0", 0, 1e9,
               "training ends after this number of epochs at the latest, also with --max_steps; 0: "
               "no limit"),
    RD_OPT_INT(run_config, max_samples, max_samples, "0", 0, 1e15,
               "training ends with the step that reaches this number of samples, all epochs "
               "together; 0: no limit"),
    RD_OPT_INT(run_config, stop_patience, stop_patience, "0", 0, 1e9,
               "early stopping in train_eval mode: training ends when this number of evaluations "
               "in a row were not better than the best one (best_monitor); 0: never"),
    RD_OPT_REAL(run_config, stop_min_delta, stop_min_delta, "0", 0, 1e9,
                "for stop_patience, a figure is better only if it is better by more than this"),
    RD_OPT_INT(run_config, min_epochs, min_epochs, "0", 0, 1e9,
               "number of epochs before which stop_patience does not end the training"),
    RD_OPT_INT(run_config, min_steps, min_steps, "0", 0, 1e15,
               "number of steps before which stop_patience does not end the training"),
    RD_OPT_INT(run_config, min_samples, min_samples, "0", 0, 1e15,
               "number of samples before which stop_patience does not end the training"),
    RD_OPT_REAL(run_config, max_hours, max_hours, "0", 0, 1e6,
                "after this number of hours the training saves and ends with code 75; the same "
                "command goes on, with new hours; 0: no limit"),
    RD_OPT_ENUM(run_config, max_hours_from, max_hours_from, "\"start\"", hours,
                "where max_hours begins. start: at the start of the program, with --restarts at "
                "the first one. job: at the start of the Slurm job, without Slurm as start"),
    RD_OPT_INT(run_config, iter_size, iter_size, "1", 1, 1 << 20,
               "number of global batches whose gradients are added before an update: a larger "
               "batch without more memory. With batch_tokens or batch_sentences: number of parts "
               "in which a rank computes its share of an update, which stays the same"),
    RD_OPT_ENUM(
        run_config, dtype, dtype, "\"float32\"", dtypes,
        "mixed: matrix products take bfloat16 inputs; sums, weights and optimizer stay float32"),
    RD_OPT_ENUM(run_config, device, device, "\"auto\"", devices,
                "where a rank computes. auto: on a GPU if every rank sees one, on the CPU if none "
                "does. cuda: on a GPU, else the run fails"),
    RD_OPT_BOOL(run_config, allow_shared_gpu, allow_shared_gpu, "false",
                "ranks of a host may share a GPU; each keeps its own weights in GPU memory, and "
                "gradients are summed by NCCL from version 2.30 on, else on the host"),
    RD_OPT_PATH(run_config, lock_dir, lock_dir, NULL,
                "GPUs: jobs with the same folder take different ones, or wait"),
    RD_OPT_BOOL(run_config, tf32, tf32, "false",
                "on a GPU: float32 products may round their inputs to TF32 (10 bits); this is "
                "several times faster and less exact than on a CPU"),
    RD_OPT_ENUM(run_config, cuda_graphs, cuda_graphs, "\"auto\"", graphs,
                "on a GPU. auto: the launches of a step are kept as CUDA graphs where batches of "
                "its shape recur, and started at once; results are the same bytes. off: each "
                "kernel is launched by itself"),
    RD_OPT_ENUM(run_config, cudnn_rnn, cudnn_rnn, "\"auto\"", cudnn_rnns,
                "on a GPU: cuDNN computes all time steps of LSTM layers outside a decoder's loop "
                "at once. auto: in training, where cuDNN has a persistent algorithm for the sizes. "
                "on: wherever it computes the same model. off: never"),
    RD_OPT_ENUM(run_config, cpu_binding, cpu_binding, "\"auto\"", bindings,
                "on a GPU. auto: a rank that the launcher has not bound keeps to the cores of its "
                "GPU's NUMA node. off: it keeps all its cores"),
    RD_OPT_INT(run_config, threads, threads, "0", 0, 4096,
               "threads per rank; 0: the rank's share of the CPU cores"),
    RD_OPT_INT(run_config, seed, seed, "0", 0, 9007199254740992.0,
               "seed of initial weights, sample order and dropout; --seed replaces it"),
    RD_OPT_ENUM(run_config, deterministic, deterministic, "\"np\"", levels,
                "np: the same config, seed and number of ranks give the same bytes. any: 1, 2, 4, "
                "... ranks with the same global batch also give the same bytes, see micro_batches"),
    RD_OPT_INT(run_config, micro_batches, micro_batches, "0", 0, 1 << 20,
               "with deterministic any: number of parts of every global batch, computed one by one "
               "and added along a fixed tree; a power of two that the number of ranks divides"),
    RD_OPT_INT(run_config, check_replicas_every, check_replicas_every, "0", 0, 1e15,
               "steps between comparisons of the weights of all ranks, or of hosts whose ranks "
               "share a copy, by checksum. They are also compared before every save; 0: only then"),
    RD_OPT_REAL(run_config, bucket_mb, bucket_mb, "4", 0.001, 1e6,
                "MB of gradients that are sent together between hosts or GPUs; the first bucket "
                "has at most 1. Between GPUs the default is 25. Results do not depend on it",
                RD_GIVEN(run_config, has_bucket_mb)),
    RD_OPT_ENUM(
        run_config, allreduce_dtype, allreduce_dtype, "\"float32\"", wires,
        "type of gradients sent between hosts or GPUs; sums inside a host stay float32. bfloat16 "
        "and float16 halve the bytes; float16 ends at 65504, so choose loss_scale with care"),
    RD_OPT_ENUM(
        run_config, overlap, overlap, "\"auto\"", overlaps,
        "when gradients are sent between hosts. thread (= auto): during backward, by a helper "
        "thread. core: the same, but the thread busy-polls and needs a free core. calls: during "
        "backward, by the rank itself between ops. off: after backward. Results do not depend on "
        "it. One host always uses off. GPUs overlap with backward unless it is off"),
    RD_OPT_ENUM(run_config, sparse_embeddings, sparse_embeddings, "\"auto\"", sparse,
                "how gradients of embeddings are summed over ranks. auto: only the rows that a "
                "step used, unless these are most of the table. always: only these rows. never: "
                "the whole table. Results are the same. Between GPUs whole tables are summed"),
    RD_OPT_ENUM(run_config, shard, shard, "\"none\"", shards,
                "optimizer: each host keeps and updates a part of the optimizer's state, and sends "
                "these weights to the others; results are the same bytes. Ranks that share no "
                "memory count as hosts, and ranks with a GPU. none: each host or GPU keeps all of "
                "it"),
    RD_OPT_STRING(run_config, trace_steps, trace_steps, "\"\"",
                  "with --trace: first and last step to trace, such as \"10:60\"; default: fifty "
                  "steps from the third step of this run"),
    RD_OPT_BOOL(run_config, trace_ops, trace_ops, "false",
                "with --trace: also trace every op of the forward and backward pass"),
    RD_OPT_REAL(run_config, stall_warn_s, stall_warn_s, "60", 0, 1e9,
                "seconds without progress after which a warning names the rank; 0: never. "
                "Starting, saving and evaluating have ten times as long"),
    RD_OPT_REAL(run_config, stall_abort_s, stall_abort_s, "300", 0, 1e9,
                "seconds without progress of a rank, or without a message from a host, after which "
                "the job ends with code 8 (9 for a lost host); 0: never"),
    RD_OPT_INT(run_config, eval_frequency, eval_frequency, "1000", 1, 1e12,
               "steps between evaluations in train_eval mode; the default has no effect when "
               "eval_epochs is set",
               RD_GIVEN(run_config, has_eval_frequency)),
    RD_OPT_INT(run_config, eval_epochs, eval_epochs, "0", 0, 1e9,
               "epochs between evaluations in train_eval mode, at the end of an epoch; 0: only "
               "eval_frequency decides"),
    RD_OPT_BOOL(
        run_config, drop_last_batch, drop_last_batch, "false",
        "training leaves out the last batch of an epoch when it is smaller than the global batch"),
    RD_OPT_ENUM(run_config, sampling, sampling, "\"shard\"", samplings,
                "shard: the ranks share every global batch of one shuffled order. independent: "
                "each rank goes through its own order of all samples, as Horovod's Keras examples "
                "do, and curves depend on the number of ranks"),
    RD_OPT_INT(run_config, max_eval_samples, max_eval_samples, "0", 0, 1e12,
               "evaluate only this number of samples, the first ones; 0: all"),
    RD_OPT_INT(run_config, read_retries, read_retries, "9", 0, RD_MOST_RETRIES,
               "how often a read is tried again after a fault of a disk or file server (EIO, "
               "ESTALE, a timeout). The waits are 0.1 s, 0.2 s, 0.4 s, ... at most 30 s; 9: 51 s "
               "in all. If the fault stays, the last step is saved and the run ends with code 3"),
    RD_OPT_NAME(run_config, metric, metric, "\"bleu\"", metrics,
                "score of decoded sentences in evaluation"),
    RD_OPT_NAME(run_config, second_metric, second_metric, NULL, metrics,
                "another score of the same sentences, for the records alone, such as chrf beside "
                "sacrebleu"),
    RD_OPT_ENUM(run_config, best_monitor, best_monitor, "\"figure\"", monitors,
                "what decides which checkpoint is best, and early stopping. figure: the first "
                "figure of the metric (BLEU, accuracy, ...), without one the loss; loss: always "
                "the loss of the evaluation"),
    RD_OPT_BOOL(run_config, multi_reference, multi_reference, "false",
                "evaluation: samples with the same source count once, with the target that scores "
                "best; the metrics sacrebleu and chrf take all targets as sacreBLEU does"),
    RD_OPT_PATH(run_config, checkpoint, checkpoint, "\"newest\"",
                "the weights that eval and infer use: newest, best or average of --logdir, or the "
                "path of an .npz file or of a folder with model.safetensors"),
    RD_OPT_PATH(run_config, init_from, init_from, NULL,
                "training begins at step 0 with the weights of this file, log folder, "
                "LOGDIR:best, LOGDIR:average or LOGDIR:STEP, or of a folder with config.json and "
                "model.safetensors (models/WEIGHTS.md); a log folder that holds a checkpoint "
                "goes on from it"),
    RD_OPT_BOOL(run_config, init_allow_missing, init_allow_missing, "false",
                "with init_from: weights that the file lacks or has in another shape start anew, "
                "for example for other classes"),
    RD_OPT_INT(run_config, checkpoint_steps, checkpoint_steps, "0", 0, 1e12,
               "number of steps between checkpoints, beside --checkpoint_frequency (seconds). In "
               "train_eval mode each of them is evaluated, and without eval_frequency and "
               "eval_epochs nothing else is; 0: by time alone"),
    RD_OPT_INT(run_config, checkpoint_keep, checkpoint_keep, "5", 0, 1000000,
               "number of periodic checkpoints to keep; 0: all"),
    RD_OPT_INT(run_config, checkpoint_keep_best, checkpoint_keep_best, "1", 1, RUN_TOP,
               "train_eval mode: number of best evaluated checkpoints to keep, by best_monitor: "
               "the best one as best-<step>.npz, the others as top-<step>.npz"),
    RD_OPT_BOOL(run_config, reset_optimizer, reset_optimizer, "false",
                "reset the optimizer's state when a checkpoint is resumed (needed after a change "
                "of optimizer)"),
    RD_OPT_INT(run_config, nonfinite_limit, nonfinite_limit, "20", 1, 1e9,
               "number of steps in a row with an inf or NaN gradient, each skipped, after which "
               "the run ends with exit code 7"),
    RD_OPT_REAL(
        run_config, divergence_limit, divergence_limit, "10", 0, 1e9,
        "the run ends with exit code 7 when the loss per target stays above this many times "
        "its reference for 100 steps. Reference: ln(classes), or the lowest mean so far if "
        "that is larger. 0: never"),
    RD_OPT_REAL(run_config, spike_loss_z, spike_loss_z, "0", 0, 11,
                "a step whose loss per target has a z-score above this among the last 128 steps "
                "makes no update, as in llm.c; it is counted. 0: off"),
    RD_OPT_REAL(run_config, spike_norm_z, spike_norm_z, "0", 0, 11,
                "the same for the norm of the gradient, before clipping"),
    RD_OPT_INT(run_config, histogram_frequency, histogram_frequency, "500", 0, 1e12,
               "steps between histograms of weights and gradients; 0: none"),
    RD_OPT_ENUM(run_config, gradient_norms, gradient_norms, "\"auto\"", norms,
                "gradient norm of every variable in TensorBoard. auto: of at most 30 variables"),
    RD_OPT_INT(run_config, image_frequency, image_frequency, "500", 0, 1e12,
               "steps between sample images in TensorBoard; 0: none, also no mistakes and "
               "confusions in evaluation"),
    RD_OPT_INT(run_config, sample_texts, sample_texts, "1", 0, 1024,
               "language models: number of samples of the evaluation data whose first tokens each "
               "evaluation in training continues, for the log and TensorBoard"),
    RD_OPT_INT(run_config, sample_tokens, sample_tokens, "128", 1, 1 << 20,
               "number of tokens that it adds to each"),
    RD_OPT_BOOL(run_config, print_samples, print_samples, "true",
                "print one source, target and prediction at evaluations and with some summaries"),
    RD_OPT_INT(run_config, sample_summaries, sample_summaries, "10", 1, 1e12,
               "with print_samples: number of summaries from one printed sample to the next"),
    RD_OPT_BOOL(run_config, record_sample_ids, record_sample_ids, "false",
                "write the ids of the samples of every step to samples.jsonl. An id is the number "
                "of the line or image in the training data, from 0"),
    RD_OPT_BOOL(run_config, shuffle, shuffle, NULL,
                "training always shuffles, evaluation and inference never do", RD_WITHOUT_EFFECT),
    RD_OPT_STRING(run_config, mode, mode, NULL, "the flag --mode decides", RD_WITHOUT_EFFECT),
    RD_OPT_END};

const rd_option_group rd_group_run = {"run",
                                      "The run: batches, length, precision, evaluation, records",
                                      run_rows, sizeof(run_config)};

const char *run_word(const char *key, int value)
{
    return rd_option_word(&rd_group_run, key, value);
}

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
