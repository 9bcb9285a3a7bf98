/* cli_bench.c -- the flags of tf_cnn_benchmarks and of Horovod's synthetic benchmark, for
 * --mode=bench.
 *
 * Users have them in their scripts. There are three kinds:
 *   - A key of the config does the same. The key is put, and a line is printed: "--num_batches=100
 *     is
 *     bench_steps=100".
 *   - The flag tunes something that this program does in its own way or does not have. The flag is
 *     accepted, and one line says why it has no effect.
 *   - The flag asks for something that would change the result and does not exist here. This is an
 *     error
 *     with the reason. Values of the flag that are harmless (mostly its defaults) are accepted. */
#include "cli_impl.h"
#include "help_impl.h"
#include "config_impl.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct bench_flag {
    const char *name;
    rd_bench_type type;
    /* Of the config; NULL: none. */
    const char *key;
    /* Values without effect, "a|b". An empty value is an empty piece. NULL: any value. */
    const char *fine;
    /* Without a key: why the flag has no effect, or is refused. */
    const char *why;
    /* Name of the value for the help; NULL: a bool. */
    const char *value;
    /* NULL: not in the help; "": listed by name only. */
    const char *help;
} bench_flag;

/* Reasons that several flags share. */
static const char saves_nothing[] = "bench mode writes no files; --mode=train with --logdir does";
static const char own_way[] = "a setting of TensorFlow, which this program does not have";
static const char own_input[] = "a setting of TensorFlow's input; the key here is data_threads";
static const char own_sums[] =
    "the program chooses how it sums gradients, and prints it at the start";
static const char by_mpirun[] = "mpirun or srun gets ranks and hosts (mpirun -np 4 ...)";
static const char no_eval[] = "evaluation has its own modes: --mode=eval and --mode=train_eval";
static const char no_colours[] =
    "images are cropped and flipped (key augmentation); their colours never change";
static const char bf16_range[] = "mixed is bfloat16 here, which has the range of float32; on a GPU "
                                 "with float16 only, the scale adjusts itself";
static const char schedule_keys[] =
    "the learning rate has keys: --set learning_rate=..., use_decay, lr_policy (--help=keys)";

/* One row a line, or a row and its text. */
/* clang-format off */
#define KEY(name, type, key, value, help) {name, type, key, NULL, NULL, value, help}
#define NONE(name, type, why) {name, type, NULL, NULL, why, NULL, NULL}
#define ONLY(name, type, fine, why) {name, type, NULL, fine, why, NULL, NULL}
/* The same for common flags, which --help=bench lists. */
#define NONE_SHOWN(name, type, why) {name, type, NULL, NULL, why, NULL, ""}
#define ONLY_SHOWN(name, type, fine, why) {name, type, NULL, fine, why, NULL, ""}
#define B RD_BENCH_BOOL
#define I RD_BENCH_INT
#define R RD_BENCH_REAL
#define T RD_BENCH_TEXT

/* In the order in which they take effect: later rows may read what earlier ones have put. */
static const bench_flag table[] = {
    KEY("model", T, "model", "NAME",
        "the model: resnet50, vgg16, mnist_cnn, ...; no --config_file is needed"),
    KEY("batch_size", I, "batch_size", "N",
        "samples per rank; 0 or not given: the model's usual number"),
    KEY("num_batches", I, "bench_steps", "N", "number of counted steps"),
    KEY("num_epochs", R, "bench_epochs", "X", "the same, in passes over the data"),
    KEY("num_warmup_batches", I, "bench_warmup", "N", "number of steps before counting starts"),
    KEY("display_every", I, "bench_display", "N", "number of steps between lines"),
    KEY("print_training_accuracy", B, "bench_accuracy", NULL, "adds top-1 and top-5 to the lines"),
    KEY("forward_only", B, "bench_forward_only", NULL, "no backward pass and no update"),
    KEY("device", T, "device", "cpu|gpu",
        "where ranks compute; not given: on GPUs if there are any"),
    KEY("cuda", B, "device", NULL, "Horovod: the same; --no-cuda is the CPU"),
    KEY("use_fp16", B, "dtype", NULL, "mixed precision; 16 bits are bfloat16 here"),
    KEY("fp16_loss_scale", R, "loss_scale", "X", "factor on the loss before the gradients"),
    KEY("fp16_allreduce", B, "allreduce_dtype", NULL,
        "Horovod: gradients are sent as float16 between hosts or GPUs"),
    KEY("data_dir", T, "data_dir", "DIR", "real data in place of synthetic"),
    KEY("data_name", T, "dataset", "NAME",
        "data in DIR: imagenet, cifar10, cifar100, mnist, or a dataset's name"),
    KEY("optimizer", T, "optimizer", "NAME",
        "sgd, momentum (Nesterov's, as in that program), rmsprop, adam"),
    KEY("momentum", R, "opt_momentum", "X", "share of the last step that momentum keeps"),
    KEY("rmsprop_decay", R, "rmsprop_decay", "X", "key of optimizer rmsprop"),
    KEY("rmsprop_momentum", R, "rmsprop_momentum", "X", "key of optimizer rmsprop"),
    KEY("rmsprop_epsilon", R, "rmsprop_epsilon", "X", "key of optimizer rmsprop"),
    KEY("adam_beta1", R, "adam_beta1", "X", "key of optimizer adam"),
    KEY("adam_beta2", R, "adam_beta2", "X", "key of optimizer adam"),
    KEY("adam_epsilon", R, "adam_epsilon", "X", "key of optimizer adam"),
    KEY("weight_decay", R, "weight_decay", "X", "L2 factor of all weights but norms and biases"),
    KEY("init_learning_rate", R, "learning_rate", "X", "learning rate of the first step"),
    KEY("piecewise_learning_rate_schedule", T, "piecewise_learning_rate_schedule", "LR;E;LR",
        "rates and the epochs between them"),
    KEY("num_learning_rate_warmup_epochs", R, "warmup_epochs", "X",
        "number of epochs in which the rate grows linearly"),
    KEY("minimum_learning_rate", R, "min_learning_rate", "X", "lower bound of the rate"),
    KEY("tf_random_seed", I, "seed", "N", "seed of weights and data"),
    KEY("num_intra_threads", I, "threads", "N",
        "threads per rank; 0: the rank's share of the cores"),
    KEY("num_batches_per_iter", I, "bench_display", "N",
        "Horovod: number of steps of one measurement"),
    KEY("num_iters", I, "bench_steps", "N", "Horovod: number of measurements"),

    ONLY_SHOWN("variable_update", T,
         "horovod|replicated|distributed_replicated|parameter_server|distributed_all_reduce|"
         "collective_all_reduce",
         "every rank holds all variables, and gradients are summed over all ranks in each step"),
    ONLY_SHOWN("num_gpus", I, "0|1",
        "a rank is one device; start several ranks (mpirun -np 4 ...)"),
    NONE_SHOWN("horovod_device", T,
        "gradients are summed by NCCL between GPUs, else in main memory"),
    NONE_SHOWN("local_parameter_device", T, "variables are stored where the rank computes"),
    NONE_SHOWN("data_format", T, "the program chooses the layout of images, blocked by channels"),
    ONLY_SHOWN("distortions", B, "false", no_colours),
    ONLY("resize_method", T, "bilinear", "images are resized bilinearly"),
    ONLY("input_preprocessor", T, "default",
        "the keys of the dataset set how a file becomes an image"),
    ONLY("ml_perf", B, "false", "the keys of the dataset set the normalisation"),
    ONLY_SHOWN("fp16_vars", B, "false", "variables are float32 in both precisions"),
    NONE_SHOWN("fp16_enable_auto_loss_scale", B, bf16_range),
    NONE("fp16_inc_loss_scale_every_n", I, bf16_range),
    ONLY("loss_type_to_report", T, "total_loss",
        "format tfcnn prints the loss with its L2 term, the others without"),
    ONLY("display_perf_ewma", R, "", "speeds are means over all counted steps"),
    ONLY("gradient_clip", R, "",
        "the norm is clipped here, not each element: --set max_grad_norm=X"),
    ONLY("num_epochs_per_decay", R, "0", schedule_keys),
    ONLY("learning_rate_decay_factor", R, "0", schedule_keys),
    ONLY("resnet_base_lr", R, "", schedule_keys),
    ONLY("variable_consistency", T, "strong", "all ranks have the same variables after every step"),
    ONLY("cross_replica_sync", B, "true", "all ranks take every step together"),
    ONLY("use_adasum", B, "false", "gradients are averaged"),
    ONLY_SHOWN("eval", B, "false", no_eval),
    ONLY("eval_during_training_every_n_steps", I, "", no_eval),
    ONLY("eval_during_training_every_n_epochs", R, "", no_eval),
    ONLY("eval_during_training_at_specified_steps", T, "", no_eval),
    ONLY("eval_during_training_at_specified_epochs", T, "", no_eval),
    ONLY("stop_at_top_1_accuracy", R, "", no_eval),
    NONE("eval_interval_secs", I, no_eval),
    NONE("num_eval_batches", I, no_eval),
    NONE("num_eval_epochs", R, no_eval),
    NONE("eval_batch_size", I, no_eval),
    NONE("collect_eval_results_async", B, no_eval),
    ONLY("job_name", T, "", by_mpirun),
    ONLY("ps_hosts", T, "", by_mpirun),
    ONLY("worker_hosts", T, "", by_mpirun),
    ONLY("controller_host", T, "", by_mpirun),
    ONLY("task_index", I, "0", by_mpirun),
    NONE("server_protocol", T, by_mpirun),
    NONE_SHOWN("train_dir", T, saves_nothing),
    NONE("eval_dir", T, saves_nothing),
    NONE_SHOWN("save_model_steps", I, saves_nothing),
    NONE("save_model_secs", I, saves_nothing),
    NONE_SHOWN("max_ckpts_to_keep", I, saves_nothing),
    NONE_SHOWN("summary_verbosity", I, saves_nothing),
    NONE_SHOWN("save_summaries_steps", I, saves_nothing),
    NONE("benchmark_log_dir", T, saves_nothing),
    NONE("benchmark_test_id", T, saves_nothing),
    NONE("trace_file", T, saves_nothing),
    NONE("use_chrome_trace_format", B, saves_nothing),
    NONE("tfprof_file", T, saves_nothing),
    NONE("graph_file", T, saves_nothing),
    NONE("partitioned_graph_file_prefix", T, saves_nothing),
    NONE("ml_perf_compliance_logging", B, saves_nothing),
    NONE("all_reduce_spec", T, own_sums),
    NONE("gradient_repacking", I, own_sums),
    NONE("compact_gradient_transfer", B, own_sums),
    NONE("agg_small_grads_max_bytes", I, own_sums),
    NONE("agg_small_grads_max_group", I, own_sums),
    NONE("allreduce_merge_scope", I, own_sums),
    NONE("hierarchical_copy", B, own_sums),
    NONE("network_topology", T, own_sums),
    NONE("staged_vars", B, own_sums),
    NONE("use_datasets", B, own_input),
    NONE("datasets_use_prefetch", B, own_input),
    NONE("datasets_prefetch_buffer_size", I, own_input),
    NONE("datasets_num_private_threads", I, own_input),
    NONE("datasets_use_caching", B, own_input),
    NONE("datasets_parallel_interleave_cycle_length", I, own_input),
    NONE("datasets_sloppy_parallel_interleave", B, own_input),
    NONE("datasets_parallel_interleave_prefetch", I, own_input),
    NONE("multi_device_iterator_max_buffer_size", I, own_input),
    NONE("batch_group_size", I, own_input),
    NONE("fuse_decode_and_crop", B, own_input),
    NONE("distort_color_in_yiq", B, own_input),
    ONLY("datasets_repeat_cached_sample", B, "false",
        "data of --data_dir is read as a whole; without it one synthetic batch is repeated"),
    NONE_SHOWN("num_inter_threads", I, own_way),
    NONE("use_numa_affinity", B, "mpirun places ranks (--bind-to, --map-by)"),
    NONE("autotune_threshold", I, own_way),
    NONE_SHOWN("allow_growth", B, own_way),
    NONE_SHOWN("gpu_thread_mode", T, own_way),
    NONE("per_gpu_thread_count", I, own_way),
    NONE("gpu_indices", T, own_way),
    NONE("gpu_memory_frac_for_testing", R, own_way),
    NONE("use_unified_memory", B, own_way),
    NONE("force_gpu_compatible", B, own_way),
    NONE_SHOWN("xla", B, own_way),
    NONE("xla_compile", B, own_way),
    NONE_SHOWN("mkl", B, own_way),
    NONE_SHOWN("kmp_blocktime", I, own_way),
    NONE("kmp_affinity", T, own_way),
    NONE("kmp_settings", I, own_way),
    NONE("winograd_nonfused", B, own_way),
    NONE("batchnorm_persistent", B, own_way),
    NONE("sync_on_finish", B, own_way),
    NONE("use_tf_layers", B, own_way),
    NONE("use_resource_vars", B, own_way),
    NONE("enable_optimizations", B, own_way),
    NONE("rewriter_config", T, own_way),
    NONE("single_l2_loss_op", B, own_way),
    NONE("compute_lr_on_cpu", B, own_way),
    NONE("sparse_to_dense_grads", B, own_way),
    NONE("freeze_when_forward_only", B, own_way),
    NONE("timestamped_allocator", B, own_way),
    NONE("gpu_kt_max_interval", I, own_way),
    NONE("gpu_kt_max_bytes", I, own_way),
    NONE("gpu_kt_max_pending", I, own_way),
    NONE("debugger", T, own_way),
    NONE("use_python32_barrier", B, own_way),
    NONE("trt_max_workspace_size_bytes", I, own_way),
    ONLY("trt_mode", T, "|FP32", "the forward pass has no TensorRT; its types are those of dtype"),
    ONLY("backbone_model_path", T, "", "weights are read by the key init_from, from its own files"),
};
/* clang-format on */
enum { N_BENCH = sizeof table / sizeof *table };

#undef B
#undef I
#undef R
#undef T

/* ---- names ---- */

static bool same_name(const char *name, const char *word, size_t n)
{
    if (strlen(name) != n) return false;
    for (size_t i = 0; i < n; i++)
        if (name[i] != (word[i] == '-' ? '_' : word[i])) return false;
    return true;
}

int rd_bench_flag_find(const char *word, size_t n, bool *negated)
{
    *negated = false;
    for (int i = 0; i < N_BENCH; i++)
        if (same_name(table[i].name, word, n)) return i;
    if (n <= 2 || strncmp(word, "no", 2) != 0) return -1;
    const size_t skip = word[2] == '-' || word[2] == '_' ? 3 : 2; /* Horovod has --no-cuda */
    for (int i = 0; i < N_BENCH; i++)
        if (table[i].type == RD_BENCH_BOOL && same_name(table[i].name, word + skip, n - skip)) {
            *negated = true;
            return i;
        }
    return -1;
}

int rd_bench_flag_count(void)
{
    return N_BENCH;
}

const char *rd_bench_flag_name(int i)
{
    return table[i].name;
}

rd_bench_type rd_bench_flag_type(int i)
{
    return table[i].type;
}

const char *rd_bench_flag_value(int i)
{
    static const char *const words[] = {NULL, "N", "X", "TEXT"};
    return table[i].value ? table[i].value : words[table[i].type];
}

const char *rd_bench_flag_help(int i)
{
    return table[i].help && table[i].help[0] ? table[i].help : table[i].why;
}

const char *rd_bench_flag_key(int i)
{
    return table[i].key;
}

bool rd_bench_flag_lacks(int i)
{
    return table[i].fine != NULL;
}

const char *rd_cli_bench_value(const rd_cli *c, const char *flag)
{
    for (int i = 0; i < c->n_bench; i++)
        if (!strcmp(table[c->bench[i].flag].name, flag)) return c->bench[i].value;
    return NULL;
}

void rd_bench_flags_help(const char *indent, FILE *out)
{
    enum { WIDTH = 78 };
    int column = 0, more = 0;
    const int first = (int)strlen(indent);
    fputs(indent, out);
    rd_help_wrapped(out,
                    "--mode=bench also takes flags of tf_cnn_benchmarks and of Horovod's synthetic "
                    "benchmark, in full, and prints the key that each stands for. Then no "
                    "--config_file is needed:",
                    first, first);
    for (int i = 0; i < N_BENCH; i++) {
        char left[96];
        if (!table[i].help || !table[i].help[0]) continue;
        snprintf(left, sizeof left, "%s  --%s%s%s", indent, table[i].name,
                 table[i].value ? "=" : "", table[i].value ? table[i].value : "");
        rd_help_pair(out, left, table[i].help, first + 31);
    }
    fprintf(out, "%sand these, without effect here or refused with the reason:", indent);
    for (int i = 0; i < N_BENCH; i++) {
        if (!table[i].help) more++;
        if (!table[i].help || table[i].help[0]) continue;
        const int n = (int)strlen(table[i].name) + 3;
        if (column == 0 || column + n > WIDTH) column = fprintf(out, "\n%s ", indent) - 1;
        column += fprintf(out, " --%s", table[i].name);
    }
    fprintf(out, "\n%s  and %d more settings of TensorFlow\n", indent, more);
}

/* ---- from flags to keys ---- */

/* Is value one of the pieces of "a|b"? */
static bool is_fine(const char *fine, const char *value)
{
    const size_t n = strlen(value);
    for (const char *s = fine;; s++) {
        const char *end = strchr(s, '|');
        const size_t m = end ? (size_t)(end - s) : strlen(s);
        if (m == n && !strncmp(s, value, n)) return true;
        if (!end) return false;
        s = end;
    }
}

static void cli_bench_report(rd_strbuf *said, const bench_flag *f, const char *value,
                             const char *key, const json_t *v)
{
    char shown[RD_SHOWN_BYTES], json[RD_SHOWN_BYTES];
    const char *text = json_is_string(v) ? rd_shown(json_string_value(v), json)
                                         : rd_shown_json(v, json);
    rd_strbuf_printf(said, "--%s=%s is %s=%s\n", f->name, rd_shown(value, shown), key, text);
}

static rd_code cli_bench_put(rd_config *c, const bench_flag *f, const char *value, const char *key,
                             json_t *v, rd_strbuf *said, rd_status *st)
{
    char source[80], shown[RD_SHOWN_BYTES];
    if (!rd_config_entry(c, key)) {
        json_decref(v);
        return rd_fail(
            st, RD_EUSAGE,
            "--%s=%s stands for the key '%s', which no part of this program has; leave it out",
            f->name, rd_shown(value, shown), key);
    }
    snprintf(source, sizeof source, "--%s", f->name);
    RD_TRY(rd_config_put(c, key, v, source, st));
    cli_bench_report(said, f, value, key, rd_config_get(c, key));
    return RD_OK;
done:
    return st->code;
}

static json_t *json_of(const bench_flag *f, const char *value)
{
    switch (f->type) {
    case RD_BENCH_BOOL:
        return json_boolean(!strcmp(value, "true"));
    case RD_BENCH_INT:
        return json_integer((json_int_t)strtoll(value, NULL, 10)); /* checked when it was read */
    case RD_BENCH_REAL:
        return json_real(strtod(value, NULL));
    case RD_BENCH_TEXT:
        break;
    }
    return json_string(value);
}

/* Returns the value of the key, for flags whose key has another value than they have; NULL: the
 * same. */
static const char *special_value(const bench_flag *f, const char *value)
{
    const bool on = !strcmp(value, "true");
    if (!strcmp(f->name, "use_fp16")) return on ? "mixed" : "float32";
    if (!strcmp(f->name, "fp16_allreduce")) return on ? "float16" : "float32";
    if (!strcmp(f->name, "cuda")) return on ? "cuda" : "cpu";
    if (!strcmp(f->name, "device") && !strcasecmp(value, "gpu")) return "cuda";
    if (!strcmp(f->name, "device") && !strcasecmp(value, "cpu")) return "cpu";
    if (!strcmp(f->name, "optimizer") && !strcmp(value, "momentum")) return "nesterov";
    return NULL;
}

const char *rd_bench_flag_key_value(int i, const char *value)
{
    const char *special = special_value(&table[i], value);
    return special ? special : value;
}

/* The flags that need more than their key. *done: it was one of them. */
static rd_code put_special(const rd_cli *cli, rd_config *c, const bench_flag *f, const char *value,
                           bool *done, rd_strbuf *said, rd_status *st)
{
    const char *per_iter = rd_cli_bench_value(cli, "num_batches_per_iter");
    *done = true;
    if (special_value(f, value))
        return cli_bench_put(c, f, value, f->key, json_string(special_value(f, value)), said, st);
    if (!strcmp(f->name, "batch_size") && strtoll(value, NULL, 10) == 0) {
        rd_config_drop(c, "batch_size"); /* bench_defaults puts the model's usual number */
        return RD_OK;
    }
    if (!strcmp(f->name, "num_iters")) {
        const int64_t each = per_iter ? strtoll(per_iter, NULL, 10) : 10;
        int64_t n = 0;
        if (__builtin_mul_overflow(strtoll(value, NULL, 10), each, &n)) n = INT64_MAX;
        return cli_bench_put(c, f, value, "bench_steps", json_integer((json_int_t)n), said, st);
    }
    if (!strcmp(f->name, "data_name"))
        return RD_OK; /* the dataset also depends on the folder: bench_defaults puts it */
    if (!strcmp(f->name, "piecewise_learning_rate_schedule")) {
        RD_TRY(cli_bench_put(c, f, value, "lr_policy", json_string("piecewise"), said, st));
    } else if (!strcmp(f->name, "num_learning_rate_warmup_epochs")) {
        RD_TRY(cli_bench_put(c, f, value, "warmup_start", json_real(0.0), said, st));
    } else if (!strcmp(f->name, "data_dir")) {
        RD_TRY(cli_bench_put(c, f, value, "bench_synthetic", json_false(), said, st));
    }
    *done = false;
done:
    return st->code;
}

static rd_code put_one(const rd_cli *cli, rd_config *c, const bench_flag *f, const char *value,
                       rd_strbuf *said, rd_status *st)
{
    char shown[RD_SHOWN_BYTES];
    bool done = false;
    if (!f->key) {
        if (f->fine && !is_fine(f->fine, value))
            return rd_fail(st, RD_EUSAGE,
                           "--%s=%s would change the result, and does not exist here: %s", f->name,
                           rd_shown(value, shown), f->why);
        rd_strbuf_printf(said, "--%s=%s has no effect: %s\n", f->name, rd_shown(value, shown),
                         f->why);
        return RD_OK;
    }
    if (put_special(cli, c, f, value, &done, said, st) != RD_OK || done) return st->code;
    return cli_bench_put(c, f, value, f->key, json_of(f, value), said, st);
}

/* Pairs of flags that exclude each other. */
static rd_code check_pairs(const rd_cli *c, rd_status *st)
{
    static const char *const pairs[][2] = {
        {"num_batches", "num_epochs"},
        {"num_batches", "num_iters"},
        {"num_epochs", "num_iters"},
        {"display_every", "num_batches_per_iter"},
        {"init_learning_rate", "piecewise_learning_rate_schedule"},
        {"device", "cuda"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (rd_cli_bench_value(c, pairs[i][0]) && rd_cli_bench_value(c, pairs[i][1]))
            return rd_fail(st, RD_EUSAGE,
                           "--%s and --%s say the same thing twice; leave one of them out",
                           pairs[i][0], pairs[i][1]);
    return RD_OK;
}

rd_code rd_cli_bench_put(const rd_cli *c, rd_config *config, rd_strbuf *said, rd_status *st)
{
    RD_TRY(check_pairs(c, st));
    for (int i = 0; i < N_BENCH; i++) { /* in the table's order, not in that of the command line */
        const char *value = rd_cli_bench_value(c, table[i].name);
        if (value) RD_TRY(put_one(c, config, &table[i], value, said, st));
    }
    if (said->failed) rd_fail(st, RD_EENV, "out of memory for the command line");
done:
    return st->code;
}
