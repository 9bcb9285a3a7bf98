/* cli_bench.c -- the flags of tf_cnn_benchmarks and Horovod in bench mode: the key of each, the
 * line that is printed, and what is refused. */
#include "rd/cli.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_WORDS = 8 };

typedef struct keys {
    int64_t batch_size, bench_steps, bench_warmup, bench_display, seed, threads;
    double bench_epochs, loss_scale, learning_rate, opt_momentum, weight_decay, warmup_epochs,
        warmup_start;
    bool bench_accuracy, bench_forward_only, bench_synthetic;
    const char *model, *device, *dtype, *allreduce_dtype, *data_dir, *optimizer, *lr_policy,
        *piecewise_learning_rate_schedule;
} keys;
static const char *const dtypes[] = {"float32", "mixed", NULL};
static const char *const wires[] = {"float32", "bfloat16", "float16", NULL};
static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
static const rd_option rows[] = {
    RD_OPT_STRING(keys, model, model, "\"seq2seq\"", "model"),
    RD_OPT_INT(keys, batch_size, batch_size, NULL, 1, 1000, "batch"),
    RD_OPT_INT(keys, bench_steps, bench_steps, "20", 1, 1e9, "steps"),
    RD_OPT_REAL(keys, bench_epochs, bench_epochs, NULL, 0, 1e6, "epochs"),
    RD_OPT_INT(keys, bench_warmup, bench_warmup, "5", 0, 1e9, "warm-up"),
    RD_OPT_INT(keys, bench_display, bench_display, "10", 1, 1e9, "display"),
    RD_OPT_BOOL(keys, bench_accuracy, bench_accuracy, "false", "accuracy"),
    RD_OPT_BOOL(keys, bench_forward_only, bench_forward_only, "false", "forward"),
    RD_OPT_BOOL(keys, bench_synthetic, bench_synthetic, "false", "synthetic"),
    RD_OPT_NAME(keys, dtype, dtype, "\"float32\"", dtypes, "precision"),
    RD_OPT_NAME(keys, allreduce_dtype, allreduce_dtype, "\"float32\"", wires, "wire"),
    RD_OPT_NAME(keys, device, device, "\"auto\"", devices, "device"),
    RD_OPT_REAL(keys, loss_scale, loss_scale, "1.0", 0, 1e9, "scale"),
    RD_OPT_STRING(keys, data_dir, data_dir, NULL, "folder"),
    RD_OPT_STRING(keys, optimizer, optimizer, "\"sgd\"", "optimizer"),
    RD_OPT_REAL(keys, opt_momentum, opt_momentum, "0.9", 0, 1, "momentum"),
    RD_OPT_REAL(keys, weight_decay, weight_decay, "0.0", 0, 1, "decay"),
    RD_OPT_REAL(keys, learning_rate, learning_rate, NULL, 0, 1e6, "rate"),
    RD_OPT_STRING(keys, lr_policy, lr_policy, NULL, "policy"),
    RD_OPT_STRING(keys, piecewise_learning_rate_schedule, piecewise_learning_rate_schedule, NULL,
                  "pieces"),
    RD_OPT_REAL(keys, warmup_epochs, warmup_epochs, "0.0", 0, 1e6, "warm-up"),
    RD_OPT_REAL(keys, warmup_start, warmup_start, NULL, 0, 1, "start"),
    RD_OPT_INT(keys, seed, seed, "0", 0, 1e9, "seed"),
    RD_OPT_INT(keys, threads, threads, "0", 0, 4096, "threads"),
    RD_OPT_END};
static const rd_option_group group = {"test", "keys of the test", rows, sizeof(keys)};

static rd_code parse(const char *const *words, rd_cli *c, rd_status *st)
{
    char name[] = "run_dist", mode[] = "--mode=bench", *argv[MAX_WORDS + 3] = {name, mode};
    int argc = 2;
    for (int i = 0; i < MAX_WORDS && words[i]; i++) argv[argc++] = (char *)(uintptr_t)words[i];
    argv[argc] = NULL;
    return rd_cli_parse(argc, argv, c, st);
}

/* What the flags say, and the keys that got a value, as text. */
static rd_code apply(const char *const *words, rd_strbuf *said, rd_strbuf *got, rd_status *st)
{
    const rd_option_group *const groups[] = {&group};
    rd_config *config = NULL;
    rd_cli c = {0};
    if (rd_config_new("x.json", "{\"batch_size\": 7}", 17, groups, 1, false, &config, st) != RD_OK)
        return st->code;
    if (parse(words, &c, st) == RD_OK && rd_cli_check(&c, st) == RD_OK)
        (void)rd_cli_bench_put(&c, config, said, st);
    for (const rd_option *o = rows; o->key && st->code == RD_OK; o++) {
        if (!rd_config_has(config, o->key)) continue;
        char *text = json_dumps(rd_config_get(config, o->key),
                                JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        rd_strbuf_printf(got, "%s%s=%s from %s", got->n ? "; " : "", o->key, text,
                         rd_config_where(config, o->key));
        free(text);
    }
    rd_config_free(config);
    rd_cli_release(&c);
    return st->code;
}

static struct row {
    const char *name;
    const char *words[MAX_WORDS];
    const char *said, *got; /* got NULL: said is the message of a failure */
} table[] = {
    {"nothing",
     {"--model=x"},
     "--model=x is model=x\n",
     "model=\"x\" from --model; batch_size=7 from x.json:1:2"},
    {"the usual ones",
     {"--model=resnet50", "--batch_size=16", "--num_batches", "100", "--num_warmup_batches=3",
      "--display_every=5"},
     "--model=resnet50 is model=resnet50\n--batch_size=16 is batch_size=16\n--num_batches=100 is "
     "bench_steps=100\n"
     "--num_warmup_batches=3 is bench_warmup=3\n--display_every=5 is bench_display=5\n",
     "model=\"resnet50\" from --model; batch_size=16 from --batch_size; bench_steps=100 from "
     "--num_batches; "
     "bench_warmup=3 from --num_warmup_batches; bench_display=5 from --display_every"},
    {"hyphens, as Horovod writes them",
     {"--model", "x", "--batch-size", "32", "--num-warmup-batches=0"},
     "--model=x is model=x\n--batch_size=32 is batch_size=32\n--num_warmup_batches=0 is "
     "bench_warmup=0\n",
     "model=\"x\" from --model; batch_size=32 from --batch_size; bench_warmup=0 from "
     "--num_warmup_batches"},
    {"iterations times batches",
     {"--model=x", "--num-iters=4", "--num-batches-per-iter=3"},
     "--model=x is model=x\n--num_batches_per_iter=3 is bench_display=3\n--num_iters=4 is "
     "bench_steps=12\n",
     "model=\"x\" from --model; batch_size=7 from x.json:1:2; bench_steps=12 from --num_iters; "
     "bench_display=3 from --num_batches_per_iter"},
    {"iterations of ten batches",
     {"--model=x", "--num_iters=4"},
     "--model=x is model=x\n--num_iters=4 is bench_steps=40\n",
     "model=\"x\" from --model; batch_size=7 from x.json:1:2; bench_steps=40 from --num_iters"},
    {"batch size of the model",
     {"--model=x", "--batch_size=0"},
     "--model=x is model=x\n",
     "model=\"x\" from --model"},
    {"half precision",
     {"--model=x", "--use_fp16", "--fp16_loss_scale=128"},
     "--model=x is model=x\n--use_fp16=true is dtype=mixed\n--fp16_loss_scale=128 is "
     "loss_scale=128\n",
     "model=\"x\" from --model; batch_size=7 from x.json:1:2; dtype=\"mixed\" from --use_fp16; "
     "loss_scale=128.0 from --fp16_loss_scale"},
    {"no half precision",
     {"--model=x", "--nouse_fp16"},
     "--model=x is model=x\n--use_fp16=false is dtype=float32\n",
     "model=\"x\" from --model; batch_size=7 from x.json:1:2; dtype=\"float32\" from --use_fp16"},
    {"16 bits on the wire",
     {"--model=x", "--fp16_allreduce"},
     "--model=x is model=x\n--fp16_allreduce=true is allreduce_dtype=float16\n",
     "model=\"x\" from --model; batch_size=7 from x.json:1:2; allreduce_dtype=\"float16\" from "
     "--fp16_allreduce"},
    {"16 bits on the wire, as Horovod writes it",
     {"--model=x", "--fp16-allreduce"},
     "--model=x is model=x\n--fp16_allreduce=true is allreduce_dtype=float16\n",
     "model=\"x\" from --model; batch_size=7 from x.json:1:2; allreduce_dtype=\"float16\" from "
     "--fp16_allreduce"},
    {"32 bits on the wire",
     {"--model=x", "--nofp16_allreduce"},
     "--model=x is model=x\n--fp16_allreduce=false is allreduce_dtype=float32\n",
     "model=\"x\" from --model; batch_size=7 from x.json:1:2; allreduce_dtype=\"float32\" from "
     "--fp16_allreduce"},
    {"the last counts",
     {"--model=x", "--num_batches=1", "--num_batches=2"},
     "--model=x is model=x\n--num_batches=2 is bench_steps=2\n",
     "model=\"x\" from --model; batch_size=7 from x.json:1:2; bench_steps=2 from --num_batches"},
    {"momentum is Nesterov's",
     {"--model=x", "--optimizer=momentum", "--momentum=0.8", "--weight_decay=1e-4"},
     "--model=x is model=x\n--optimizer=momentum is optimizer=nesterov\n--momentum=0.8 is "
     "opt_momentum=0.8\n"
     "--weight_decay=1e-4 is weight_decay=0.0001\n",
     "model=\"x\" from --model; batch_size=7 from x.json:1:2; optimizer=\"nesterov\" from "
     "--optimizer; "
     "opt_momentum=0.8 from --momentum; weight_decay=0.0001 from --weight_decay"},
    {"other optimizers have their names",
     {"--model=x", "--optimizer=rmsprop"},
     "--model=x is model=x\n--optimizer=rmsprop is optimizer=rmsprop\n",
     "model=\"x\" from --model; batch_size=7 from x.json:1:2; optimizer=\"rmsprop\" from "
     "--optimizer"},
    {"schedule in pieces",
     {"--model=x", "--piecewise_learning_rate_schedule=0.3;10;0.2"},
     "--model=x is model=x\n--piecewise_learning_rate_schedule=0.3;10;0.2 is lr_policy=piecewise\n"
     "--piecewise_learning_rate_schedule=0.3;10;0.2 is "
     "piecewise_learning_rate_schedule=0.3;10;0.2\n",
     "model=\"x\" from --model; batch_size=7 from x.json:1:2; "
     "lr_policy=\"piecewise\" from --piecewise_learning_rate_schedule; "
     "piecewise_learning_rate_schedule=\"0.3;10;0.2\" from --piecewise_learning_rate_schedule"},
    {"warm-up from zero",
     {"--model=x", "--init_learning_rate=0.1", "--num_learning_rate_warmup_epochs=5"},
     "--model=x is model=x\n--init_learning_rate=0.1 is learning_rate=0.1\n"
     "--num_learning_rate_warmup_epochs=5 is warmup_start=0\n--num_learning_rate_warmup_epochs=5 "
     "is warmup_epochs=5\n",
     "model=\"x\" from --model; batch_size=7 from x.json:1:2; learning_rate=0.1 from "
     "--init_learning_rate; "
     "warmup_epochs=5.0 from --num_learning_rate_warmup_epochs; warmup_start=0.0 from "
     "--num_learning_rate_warmup_epochs"},
    {"real data",
     {"--model=x", "--data_dir=/d"},
     "--model=x is model=x\n--data_dir=/d is bench_synthetic=false\n--data_dir=/d is data_dir=/d\n",
     "model=\"x\" from --model; batch_size=7 from x.json:1:2; bench_synthetic=false from "
     "--data_dir; "
     "data_dir=\"/d\" from --data_dir"},
    {"accuracy, forward only, seed, threads, epochs",
     {"--model=x", "--print_training_accuracy", "--forward_only=True", "--tf_random_seed=9",
      "--num_intra_threads=2", "--num_epochs=0.5"},
     "--model=x is model=x\n--num_epochs=0.5 is bench_epochs=0.5\n"
     "--print_training_accuracy=true is bench_accuracy=true\n--forward_only=true is "
     "bench_forward_only=true\n"
     "--tf_random_seed=9 is seed=9\n--num_intra_threads=2 is threads=2\n",
     "model=\"x\" from --model; batch_size=7 from x.json:1:2; bench_epochs=0.5 from --num_epochs; "
     "bench_accuracy=true from --print_training_accuracy; bench_forward_only=true from "
     "--forward_only; "
     "seed=9 from --tf_random_seed; threads=2 from --num_intra_threads"},
    {"without effect",
     {"--model=x", "--variable_update=horovod", "--horovod_device=", "--num_gpus=1",
      "--summary_verbosity=1", "--nodistortions"},
     "--model=x is model=x\n--variable_update=horovod has no effect: every rank holds all "
     "variables, and gradients are "
     "summed over all ranks in each step\n--num_gpus=1 has no effect: a rank is one device; "
     "start several ranks (mpirun -np 4 ...)\n--horovod_device= has no effect: gradients are "
     "summed by NCCL between GPUs, else in main memory\n"
     "--distortions=false has no effect: images are cropped and flipped (key augmentation); their "
     "colours never change\n"
     "--summary_verbosity=1 has no effect: bench mode writes no files; --mode=train with --logdir "
     "does\n",
     "model=\"x\" from --model; batch_size=7 from x.json:1:2"},
    {"a GPU",
     {"--model=x", "--device=GPU"},
     "--model=x is model=x\n--device=GPU is device=cuda\n",
     "model=\"x\" from --model; batch_size=7 from x.json:1:2; device=\"cuda\" from --device"},
    {"no GPU, in Horovod's words",
     {"--model=x", "--no-cuda"},
     "--model=x is model=x\n--cuda=false is device=cpu\n",
     "model=\"x\" from --model; batch_size=7 from x.json:1:2; device=\"cpu\" from --cuda"},
    {"escape sequence in a value",
     {"--model=x", "--train_dir=\x1b[2J"},
     "--model=x is model=x\n--train_dir=?[2J has no effect: bench mode writes no files; "
     "--mode=train with --logdir "
     "does\n",
     "model=\"x\" from --model; batch_size=7 from x.json:1:2"},

    {"more devices than one",
     {"--model=x", "--num_gpus=4"},
     "--num_gpus=4 would change the result, and does not exist here: a rank is one device; start "
     "several ranks (mpirun -np 4 ...)",
     NULL},
    {"variables of their own",
     {"--model=x", "--variable_update=independent"},
     "--variable_update=independent would change the result, and does not exist here: every rank "
     "holds "
     "all variables, and "
     "gradients are summed over all ranks in each step",
     NULL},
    {"a piece of a fine value",
     {"--model=x", "--variable_update=replicate"},
     "--variable_update=replicate would change the result, and does not exist here: every rank "
     "holds all "
     "variables, and "
     "gradients are summed over all ranks in each step",
     NULL},
    {"a device that is none here",
     {"--model=x", "--device=tpu"},
     "--device: 'device' must be one of auto, cpu, cuda, not \"tpu\"; did you mean \"cpu\"?",
     NULL},
    {"steps and epochs",
     {"--model=x", "--num_batches=3", "--num_epochs=1"},
     "--num_batches and --num_epochs say the same thing twice; leave one of them out",
     NULL},
    {"out of the key's range",
     {"--model=x", "--batch_size=-1"},
     "--batch_size: 'batch_size' must be an integer, 1 .. 1000, not -1; meaning: batch",
     NULL},
    {"too many iterations",
     {"--model=x", "--num_iters=9223372036854775807"},
     "--num_iters: 'bench_steps' must be an integer, 1 .. 1000000000, not 9223372036854775807; "
     "meaning: steps",
     NULL},
    {"a key that does not exist",
     {"--model=x", "--adam_beta1=0.9"},
     "--adam_beta1=0.9 stands for the key 'adam_beta1', which no part of this program has; leave "
     "it out",
     NULL},
    {"no integer",
     {"--model=x", "--num_batches=1e3"},
     "flag '--num_batches' must be an integer, not '1e3'; meaning: number of counted steps",
     NULL},
    {"too many digits",
     {"--model=x", "--num_batches=99999999999999999999"},
     "flag '--num_batches' must be an integer, not '99999999999999999999'; meaning: number of "
     "counted steps",
     NULL},
    {"empty number",
     {"--model=x", "--num_batches="},
     "flag '--num_batches' has an empty value; write --num_batches=N",
     NULL},
    {"no number",
     {"--model=x", "--num_epochs=nan"},
     "flag '--num_epochs' must be a number, not 'nan'; meaning: the same, in passes over the data",
     NULL},
    {"no truth value",
     {"--model=x", "--use_fp16=half"},
     "flag '--use_fp16' must be true or false, not 'half'; meaning: mixed precision; 16 bits are "
     "bfloat16 here",
     NULL},
    {"no value before a flag",
     {"--model", "--batch_size=3"},
     "flag '--model' has no value: the next word is '--batch_size=3'; write --model=NAME",
     NULL},
    {"nearest",
     {"--model=x", "--num_batch=3"},
     "unknown flag '--num_batch'; did you mean '--num_batches'?",
     NULL},
    {"no prefix",
     {"--model=x", "--print_training"},
     "unknown flag '--print_training'; --help lists the flags, and --set "
     "key=value is for keys of the config",
     NULL},
    {"nothing to measure",
     {"--batch_size=3"},
     "nothing to measure: give --model=NAME or --config_file=FILE; --help explains",
     NULL},
    {"a forward pass by TensorRT",
     {"--model=x", "--trt_mode=INT8"},
     "--trt_mode=INT8 would change the result, and does not exist here: the forward pass has no "
     "TensorRT; its types are those of dtype",
     NULL},
    {"another mode",
     {"--config_file=x", "--mode=train", "--batch_size=3"},
     "--batch_size is for --mode=bench, but the mode is train; here it is --set batch_size=3",
     NULL},
    {"steps of a training",
     {"--config_file=x", "--mode=train_eval", "--num_batches=7"},
     "--num_batches is for --mode=bench, but the mode is train_eval; here it is --max_steps=7",
     NULL},
    {"summaries of a training",
     {"--config_file=x", "--mode=train", "--display_every", "5"},
     "--display_every is for --mode=bench, but the mode is train; here it is "
     "--summary_frequency=5",
     NULL},
    {"nothing like it in a training",
     {"--config_file=x", "--mode=train", "--num_warmup_batches=3"},
     "--num_warmup_batches is for --mode=bench, but the mode is train; leave it out",
     NULL},
    {"another value in a training",
     {"--config_file=x", "--mode=train", "--use_fp16"},
     "--use_fp16 is for --mode=bench, but the mode is train; here it is --set dtype=mixed",
     NULL},
    {"a device in a training",
     {"--config_file=x", "--mode=train", "--device=gpu"},
     "--device is for --mode=bench, but the mode is train; here it is --set device=cuda",
     NULL},
    {"another mode, no key",
     {"--config_file=x", "--mode=eval", "--xla"},
     "--xla is for --mode=bench, but the mode is eval; leave it out",
     NULL},
};

static void check(void **state)
{
    const struct row *r = *state;
    rd_strbuf said = {0}, got = {0};
    rd_status st = {0};
    const rd_code rc = apply(r->words, &said, &got, &st);
    if (r->got) {
        assert_string_equal(st.msg, "");
        assert_int_equal(rc, RD_OK);
        assert_string_equal(rd_strbuf_str(&said), r->said);
        assert_string_equal(rd_strbuf_str(&got), r->got);
    } else {
        assert_string_equal(st.msg, r->said);
        assert_int_equal(rc, RD_EUSAGE);
    }
    rd_strbuf_release(&said);
    rd_strbuf_release(&got);
}

/* Rarely typed flags of tf_cnn_benchmarks, with their default there or a harmless value. */
static void rare_flags(void **state)
{
    static const char *const flags[] = {"--eval_batch_size=0",
                                        "--freeze_when_forward_only",
                                        "--collect_eval_results_async=false",
                                        "--nodatasets_repeat_cached_sample",
                                        "--timestamped_allocator=False",
                                        "--gpu_kt_max_interval=0",
                                        "--gpu_kt_max_bytes=0",
                                        "--gpu_kt_max_pending=0",
                                        "--debugger=",
                                        "--use_python32_barrier",
                                        "--backbone_model_path=",
                                        "--trt_mode=",
                                        "--trt_max_workspace_size_bytes=4294967296",
                                        "--ml_perf_compliance_logging"};
    (void)state;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const char *words[MAX_WORDS] = {"--model=x", flags[i]};
        rd_strbuf said = {0}, got = {0};
        rd_status st = {0};
        (void)apply(words, &said, &got, &st);
        assert_string_equal(st.msg, "");
        assert_non_null(strstr(rd_strbuf_str(&said), " has no effect: "));
        rd_strbuf_release(&said);
        rd_strbuf_release(&got);
    }
}

/* The model may be given by --set, too, and flags can be asked for by name. */
static void values(void **state)
{
    (void)state;
    static const char *const words[] = {"--set", "model=x", "--num-batches=12", "--use_fp16", NULL};
    rd_status st = {0};
    rd_cli c = {0};
    assert_int_equal(parse(words, &c, &st), RD_OK);
    assert_int_equal(rd_cli_check(&c, &st), RD_OK);
    assert_string_equal(rd_cli_bench_value(&c, "num_batches"), "12");
    assert_string_equal(rd_cli_bench_value(&c, "use_fp16"), "true");
    assert_null(rd_cli_bench_value(&c, "batch_size"));
    rd_cli_release(&c);
}

RD_TESTS("cli_bench", TEST_ROWS(check, table), TEST(values), TEST(rare_flags))
