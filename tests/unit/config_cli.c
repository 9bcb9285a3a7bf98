/* config_cli.c -- the command line: every way to write a flag, every message in full. */
#include "rd/cli.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_WORDS = 8 };

static struct bad_row {
    const char *name;
    const char *words[MAX_WORDS];
    const char *want;
} bad_rows[] = {
    {"unknown flag", {"--modee", "train"}, "unknown flag '--modee'; did you mean '--mode'?"},
    {"unknown flag with a value",
     {"--logdri=x"},
     "unknown flag '--logdri'; did you mean '--logdir'?"},
    {"key as a flag",
     {"--encoder_layers=3"},
     "unknown flag '--encoder_layers'; --help lists the flags, and --set key=value is for keys of "
     "the config"},
    {"one dash", {"-logdir", "x"}, "flags have two dashes here: --logdir=x"},
    {"short flag",
     {"-z"},
     "unknown flag '-z'; --help lists the flags, and --set key=value is for keys of the config"},
    {"two dashes",
     {"--"},
     "'--' ends the flags, and what follows is a command for --restarts=N; give that in front of "
     "it, or leave '--' out"},
    {"restarts behind two dashes",
     {"--", "mpirun", "--restarts=3"},
     "'--' ends the flags, and what follows is a command for --restarts=N; "
     "give that in front of it, or leave '--' out"},
    {"no name",
     {"--=3"},
     "unknown flag '--'; --help lists the flags, and --set key=value is for keys of the config"},
    {"escape sequence in a flag",
     {"--\x1b[2J"},
     "unknown flag '--?[2J'; --help lists the flags, and --set key=value is for keys of the "
     "config"},
    {"ambiguous",
     {"--s", "3"},
     "flag '--s' is ambiguous: --summary_frequency, --seed, --split_data_per_rank, --sort, "
     "--ssh_port, --set; write more of it"},
    {"ambiguous negation",
     {"--noprint"},
     "flag '--noprint' is ambiguous: --noprint_config, --noprint_schema, --noprint_keys, "
     "--noprint_man; write "
     "more of it"},
    {"negation of a number",
     {"--nomax_steps"},
     "unknown flag '--nomax_steps'; did you mean '--max_steps'?"},
    {"negation with a value",
     {"--noverbose=true"},
     "flag '--noverbose' takes no value; write --verbose=false"},
    {"no value at the end", {"--logdir"}, "flag '--logdir' has no value; write --logdir=DIR"},
    {"no value before a flag",
     {"--set", "--lr=3"},
     "flag '--set' has no value: the next word is '--lr=3'; write --set=KEY=VALUE"},
    {"empty value",
     {"--config_file="},
     "flag '--config_file' has an empty value; write --config_file=FILE"},
    {"empty value as a word",
     {"--config_file", ""},
     "flag '--config_file' has an empty value; write --config_file=FILE"},
    {"stray word",
     {"x.jso"},
     "'x.jso' belongs to no flag; a config as a word ends in .json or is one of --list=configs, "
     "any "
     "other is --config_file=FILE, and --help lists the flags"},
    {"stray word behind a flag",
     {"--verbose", "logs/a"},
     "'logs/a' belongs to no flag; a config as a word ends in .json or is one of --list=configs, "
     "any other is --config_file=FILE, and --help lists the flags"},
    {"two configs",
     {"x.json", "y.json"},
     "'x.json' and 'y.json' are two configs, and a run has one; --set key=value changes a key, and "
     "\"base\": \"FILE\" in a config begins with another one"},
    {"a config and a flag",
     {"y.json", "--config_file=x.json"},
     "'x.json' and 'y.json' are two configs, and a run has one; --set key=value changes a key, and "
     "\"base\": \"FILE\" in a config begins with another one"},
    {"a mode as a word",
     {"Train", "x.json"},
     "'Train' belongs to no flag; the mode is --mode=train"},
    {"one dash", {"-np", "4"}, "flags have two dashes here: --np=4"},
    {"one dash and a value", {"-lr=0.1"}, "flags have two dashes here: --lr=0.1"},
    {"one dash before a flag", {"-verbose", "x.json"}, "flags have two dashes here: --verbose"},
    {"a mode in upper case",
     {"--mode=Train"},
     "flag '--mode' must be one of train, eval, infer, train_eval, prepare, bench, plan, doctor, "
     "runs, diff, show, average, export, report, not 'Train'; did you mean --mode=train?"},
    {"stray dash",
     {"-"},
     "'-' belongs to no flag; a config is given as --config_file=FILE, and --help lists the flags"},
    {"empty word",
     {""},
     "'' belongs to no flag; a config is given as --config_file=FILE, and --help lists the flags"},
    {"truth value",
     {"--split_data_per_rank=maybe"},
     "flag '--split_data_per_rank' must be true or false, not 'maybe'; meaning: each rank keeps "
     "only its share of the "
     "data in "
     "memory"},
    {"empty truth value",
     {"--verbose="},
     "flag '--verbose' must be true or false, not ''; meaning: errors name the place in the "
     "program where they were found, and a training on one host ends with its efficiency on more "
     "hosts"},
    {"a mode of other programs",
     {"--mode=Translate"},
     "flag '--mode' must be one of train, eval, infer, train_eval, prepare, bench, plan, doctor, "
     "runs, diff, show, average, export, report, not 'Translate'; did you mean --mode=infer?"},
    {"a mode like none",
     {"--mode=zzzzzzz"},
     "flag '--mode' must be one of train, eval, infer, train_eval, prepare, bench, plan, doctor, "
     "runs, diff, show, average, export, report, not 'zzzzzzz'; --help=modes says what each does"},
    {"mode",
     {"--mode=trian"},
     "flag '--mode' must be one of train, eval, infer, train_eval, prepare, bench, plan, doctor, "
     "runs, diff, show, average, export, report, not 'trian'; did you mean --mode=train?"},
    {"integer: word",
     {"--max_steps=many"},
     "flag '--max_steps' must be an integer, 0 .. 1000000000000000, not 'many'; meaning: training "
     "stops at this step, which counts the steps of earlier starts"},
    {"integer: with an exponent",
     {"--max_steps=1e3"},
     "flag '--max_steps' must be an integer, 0 .. 1000000000000000, not '1e3'; meaning: training "
     "stops at this step, which counts the steps of earlier starts"},
    {"integer: negative",
     {"--max_steps", "-1"},
     "flag '--max_steps' must be an integer, 0 .. 1000000000000000, not '-1'; meaning: training "
     "stops at this step, which counts the steps of earlier starts"},
    {"integer: too many digits",
     {"--seed=99999999999999999999"},
     "flag '--seed' must be an integer, 0 .. 9007199254740992, not '99999999999999999999'; "
     "meaning: seed of weights, data order and dropout; replaces the config's seed"},
    {"integer: 2^53 + 1, as a double the limit",
     {"--seed=9007199254740993"},
     "flag '--seed' must be an integer, 0 .. 9007199254740992, not '9007199254740993'; "
     "meaning: seed of weights, data order and dropout; replaces the config's seed"},
    {"integer: blank in front",
     {"--summary_frequency= 5"},
     "flag '--summary_frequency' must be an integer, 1 .. 1000000000000000, not ' 5'; meaning: "
     "number of steps between summaries"},
    {"integer: zero where one is least",
     {"--summary_frequency=0"},
     "flag '--summary_frequency' must be an integer, 1 .. 1000000000000000, not '0'; meaning: "
     "number of steps between summaries"},
    {"number: nan",
     {"--lr=nan"},
     "flag '--lr' must be a number, 0 or more, not 'nan'; meaning: replaces the config's "
     "learning_rate"},
    {"number: inf",
     {"--lr=inf"},
     "flag '--lr' must be a number, 0 or more, not 'inf'; meaning: replaces the config's "
     "learning_rate"},
    {"number: overflow",
     {"--lr=1e999"},
     "flag '--lr' must be a number, 0 or more, not '1e999'; meaning: replaces the config's "
     "learning_rate"},
    {"number: negative",
     {"--lr", "-0.5"},
     "flag '--lr' must be a number, 0 or more, not '-0.5'; meaning: replaces the config's "
     "learning_rate"},
    {"number: more text",
     {"--lr=0.5x"},
     "flag '--lr' must be a number, 0 or more, not '0.5x'; meaning: replaces the config's "
     "learning_rate"},
};

static rd_code parse(const char *const *words, rd_cli *c, rd_status *st)
{
    char name[] = "run_dist", *argv[MAX_WORDS + 2] = {name};
    int argc = 1;
    for (int i = 0; i < MAX_WORDS && words[i]; i++) argv[argc++] = (char *)(uintptr_t)words[i];
    argv[argc] = NULL;
    return rd_cli_parse(argc, argv, c, st);
}

static void check_bad(void **state)
{
    const struct bad_row *r = *state;
    rd_status st = {0};
    rd_cli c;
    assert_int_equal(parse(r->words, &c, &st), RD_EUSAGE);
    assert_string_equal(st.msg, r->want);
    rd_cli_release(&c);
}

/* A good command line, and what it makes of the whole struct, as text. */
static struct good_row {
    const char *name;
    const char *words[MAX_WORDS];
    const char *want;
} good_rows[] = {
    {"nothing", {NULL}, ""},
    {"text with =", {"--config_file=a=b.json"}, "config a=b.json;"},
    {"text as the next word",
     {"--config_file", "x.json", "--logdir", "-l"},
     "config x.json; logdir -l;"},
    {"prefix", {"--config=x.json", "--log", "l"}, "config x.json; logdir l;"},
    {"exact name that is a prefix of none other", {"--set", "a=1"}, "set a=1;"},
    {"mode", {"--mode=train_eval"}, "mode train_eval 8;"},
    {"mode eval", {"--mode", "eval"}, "mode eval 2;"},
    {"mode infer",
     {"--mode=infer", "--input=-", "--inference_out=o"},
     "mode infer 4; input -; out o;"},
    {"mode bench", {"--mode=bench"}, "mode bench 16;"},
    {"numbers",
     {"--max_steps=7", "--summary_frequency", "1", "--checkpoint_frequency=0",
      "--seed=9007199254740992"},
     "max_steps 7 given; summary 1; checkpoint 0; seed 9007199254740992 given;"},
    {"zero steps are given", {"--max_steps=0"}, "max_steps 0 given;"},
    {"learning rate", {"--lr", "1e-3"}, "lr 0.001 given;"},
    {"learning rate of zero is given", {"--lr=0"}, "lr 0 given;"},
    {"tiny learning rate", {"--lr=1e-320"}, "lr 9.99989e-321 given;"},
    {"last counts",
     {"--max_steps=7", "--max_steps=8", "--mode=eval", "--mode=train"},
     "max_steps 8 given;"},
    {"bool alone", {"--split_data_per_rank"}, "split;"},
    {"bool by prefix", {"--split", "--verb"}, "split; verbose;"},
    {"bool =true", {"--verbose=TRUE", "--help=t", "--version=1"}, "help; version; verbose;"},
    {"bool =false",
     {"--verbose", "--verbose=false", "--help", "--help=F", "--version", "--version=0"},
     ""},
    {"bool and a word", {"--verbose", "false", "--help", "true"}, "help;"},
    {"bool before a flag", {"--verbose", "--help"}, "help; verbose;"},
    {"negated", {"--verbose", "--noverbose"}, ""},
    {"negated prefix", {"--verbose", "--noverb"}, ""},
    {"short help", {"-h"}, "help;"},
    {"rest of the flags",
     {"--print_config", "--print_schema", "--print_keys", "--allow", "--events=e"},
     "print_config; print_schema; print_keys; allow; events e;"},
    {"set adds up",
     {"--set", "a=1", "--set=b=2", "--set", "a=", "--set=delimiter= "},
     "set a=1; set b=2; set a=; set delimiter= ;"},
    {"short for set",
     {"--beam_width=4", "--eval_f", "10"},
     "set beam_width=4; set eval_frequency=10;"},
    {"flag-like value with =", {"--logdir=--x"}, "logdir --x;"},
};

static void tell(FILE *f, const rd_cli *c)
{
    if (c->config_file) fprintf(f, " config %s;", c->config_file);
    if (c->logdir) fprintf(f, " logdir %s;", c->logdir);
    if (strcmp(c->mode, "train") || c->mode_bit != RD_MODE_TRAIN)
        fprintf(f, " mode %s %d;", c->mode, (int)c->mode_bit);
    if (c->max_steps != 300000 || c->max_steps_given)
        fprintf(f, " max_steps %lld%s;", (long long)c->max_steps,
                c->max_steps_given ? " given" : "");
    if (c->summary_frequency != 50) fprintf(f, " summary %lld;", (long long)c->summary_frequency);
    if (c->checkpoint_frequency != 7200)
        fprintf(f, " checkpoint %lld;", (long long)c->checkpoint_frequency);
    if (c->seed || c->seed_given)
        fprintf(f, " seed %lld%s;", (long long)c->seed, c->seed_given ? " given" : "");
    if (c->lr != 0.0 || c->lr_given) fprintf(f, " lr %g%s;", c->lr, c->lr_given ? " given" : "");
    if (c->split_data_per_rank) fputs(" split;", f);
    if (c->input) fprintf(f, " input %s;", c->input);
    if (strcmp(c->inference_out, "stdout")) fprintf(f, " out %s;", c->inference_out);
    if (c->help) fputs(" help;", f);
    if (c->version) fputs(" version;", f);
    if (c->verbose) fputs(" verbose;", f);
    if (c->print_config) fputs(" print_config;", f);
    if (c->print_schema) fputs(" print_schema;", f);
    if (c->print_keys) fputs(" print_keys;", f);
    if (c->allow_unknown_keys) fputs(" allow;", f);
    if (c->events) fprintf(f, " events %s;", c->events);
    for (int i = 0; i < c->n_set; i++) fprintf(f, " set %s;", c->set[i]);
}

static void check_good(void **state)
{
    const struct good_row *r = *state;
    rd_status st = {0};
    rd_cli c;
    memset(&c, 0xAA, sizeof c);
    const rd_code rc = parse(r->words, &c, &st);
    assert_string_equal(st.msg, "");
    assert_int_equal(rc, RD_OK);
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    tell(f, &c);
    assert_int_equal(fclose(f), 0);
    assert_string_equal(n ? text + 1 : "", r->want);
    free(text);
    rd_cli_release(&c);
}

static void many_sets(void **state)
{
    (void)state;
    enum { N = 300 };
    char name[] = "run_dist", word[] = "--set=a=1", *argv[N + 1] = {name};
    for (int i = 1; i <= N; i++) argv[i] = word;
    rd_status st = {0};
    rd_cli c;
    assert_int_equal(rd_cli_parse(N + 1, argv, &c, &st), RD_OK);
    assert_int_equal(c.n_set, N);
    assert_string_equal(c.set[N - 1], "a=1");
    rd_cli_release(&c);
    rd_cli_release(&c); /* empty: fine */
}

static struct check_row {
    const char *name;
    const char *words[MAX_WORDS];
    const char *want; /* "" : fine */
} check_rows[] = {
    {"check: config", {"--config=x"}, ""},
    {"check: newer flags leave beginnings unique", {"--co=x", "--li=3"}, ""},
    {"check: config as a word", {"x.json"}, ""},
    {"check: hosts start ranks", {"x.json", "--hosts=a:2"}, ""},
    {"check: a dry run of nothing",
     {"x.json", "--dry_run"},
     "--dry_run prints the line that starts the ranks; give --np=N or --hosts=LIST, too; --check "
     "examines a training without running it"},
    {"check: ranks and restarts",
     {"x.json", "--np=2", "--restarts=1", "--", "y"},
     "--restarts starts the command behind --; put --np and all other flags there: run_dist "
     "--restarts=5 -- run_dist --np=4 ..."},
    {"check: arguments of mpirun for ranks here", {"x.json", "--np=2", "--mpirun_args=-x A"}, ""},
    {"check: no config",
     {"--mode=infer"},
     "no experiment: give --config_file=FILE, or the --logdir of a run; --help explains"},
    {"check: print_config needs one",
     {"--print_config"},
     "no experiment: give --config_file=FILE, or the --logdir of a run; --help explains"},
    {"check: the config of a log folder", {"--logdir=x", "--mode=infer"}, ""},
    {"check: also to train on", {"--logdir=x"}, ""},
    {"check: export", {"--logdir=x", "--mode=export", "--format=onnx"}, ""},
    {"check: export without a form",
     {"--logdir=x", "--mode=export"},
     "--mode=export needs --format=npz, safetensors, onnx or peft; logs/EXPORT.md explains them"},
    {"check: another form of export",
     {"--logdir=x", "--mode=export", "--format=safetensor"},
     "--format=safetensor: --mode=export writes npz, safetensors, onnx or peft; did you mean "
     "'safetensors'?"},
    {"check: the file of an export",
     {"--logdir=x", "--export_out=y"},
     "--export_out is for --mode=export, but the mode is train; leave it out, or give that mode"},
    {"check: help needs none", {"--help"}, ""},
    {"check: version needs none", {"--version"}, ""},
    {"check: schema needs none", {"--print_schema"}, ""},
    {"check: keys need none", {"--print_keys"}, ""},
    {"check: events need none", {"--events=e"}, ""},
    {"check: input to translate", {"--config=x", "--input=-", "--mode=infer"}, ""},
    {"check: input to train",
     {"--config=x", "--input=-"},
     "--input is for --mode=infer, but the mode is train; leave it out, or give that mode"},
    {"check: output of another mode",
     {"--config=x", "--inference_out=o"},
     "--inference_out is for --mode=infer, but the mode is train; leave it out, or give that mode"},
    {"check: trace of another mode",
     {"--config=x", "--mode=bench", "--trace=t"},
     "--trace is for --mode=train and train_eval, but the mode is bench; leave it out, or give "
     "such a mode"},
    {"check: what is left from the training",
     {"--config=x", "--mode=eval", "--max_steps=7", "--lr=1", "--split_data_per_rank"},
     ""},
    {"check: switched off", {"--config=x", "--json", "--nojson"}, ""},
    {"check: in front of a command",
     {"--restarts=1", "--logdir=l", "--restart_delay=2", "--", "x"},
     ""},
    {"check: a delay without restarts",
     {"--config=x", "--restart_delay=2"},
     "--restart_delay is for --restarts=N; give that too, or leave it out"},
    {"check: dead hosts without restarts",
     {"--config=x", "--drop_dead_hosts"},
     "--drop_dead_hosts is for --restarts=N; give that too, or leave it out"},
    {"check: a config in front of a command",
     {"x.json", "--restarts=1", "--", "x"},
     "--config_file stands in front of --, where it has no effect; put it behind the run_dist of "
     "the "
     "command"},
    {"check: a flag in front of a command",
     {"--restarts=1", "--seed=3", "--", "x"},
     "--seed stands in front of --, where it has no effect; put it behind the run_dist of the "
     "command"},
};

static void check_check(void **state)
{
    const struct check_row *r = *state;
    rd_status st = {0};
    rd_cli c;
    assert_int_equal(parse(r->words, &c, &st), RD_OK);
    assert_int_equal(rd_cli_check(&c, &st), r->want[0] ? RD_EUSAGE : RD_OK);
    assert_string_equal(st.msg, r->want);
    rd_cli_release(&c);
}

/* ---- keys that are typed as flags ---- */

typedef struct typed_keys {
    int64_t bench_steps, num_epochs, eval_batch_size, num_gpus;
    bool use_attention;
    const char *checkpoint, *dtype, *optimizer;
} typed_keys;
static const rd_option typed_rows[] = {
    RD_OPT_INT(typed_keys, bench_steps, bench_steps, "20", 1, 1e9, "steps"),
    RD_OPT_INT(typed_keys, num_epochs, num_epochs, "1", 1, 1e9, "epochs"),
    RD_OPT_INT(typed_keys, checkpoint_keep, num_gpus, "5", 1, 1e9, "files"),
    RD_OPT_INT(typed_keys, eval_batch_size, eval_batch_size, "1", 1, 1e9, "batch"),
    RD_OPT_INT(typed_keys, num_gpus, num_gpus, "1", 0, 1e9, "GPUs"),
    RD_OPT_BOOL(typed_keys, use_attention, use_attention, "true", "attention"),
    RD_OPT_STRING(typed_keys, checkpoint, checkpoint, "\"newest\"", "weights"),
    RD_OPT_STRING(typed_keys, dtype, dtype, "\"float32\"", "precision"),
    RD_OPT_STRING(typed_keys, optimizer, optimizer, "\"sgd\"", "optimizer"),
    RD_OPT_END};
static const rd_option_group typed_group = {"test", "keys", typed_rows, sizeof(typed_keys)};

static struct typed_row {
    const char *name;
    const char *words[MAX_WORDS];
    const char *want; /* "" : fine */
} typed_table[] = {
    {"key: with =",
     {"--config=x", "--bench_steps=3"},
     "--bench_steps is a key of the config, not a flag; here it is --set bench_steps=3"},
    {"key: next word, with hyphens",
     {"--bench-steps", "3", "--mode=bench", "--model=x"},
     "--bench-steps is a key of the config, not a flag; here it is --set bench_steps=3"},
    {"key: no value",
     {"--config=x", "--bench_steps"},
     "--bench_steps is a key of the config, not a flag; here it is --set bench_steps=VALUE"},
    {"key: a flag follows",
     {"--bench_steps", "--config=x"},
     "--bench_steps is a key of the config, not a flag; here it is --set bench_steps=VALUE"},
    {"key: bool",
     {"--config=x", "--use_attention"},
     "--use_attention is a key of the config, not a flag; here it is --set use_attention=true"},
    {"key: bool, off",
     {"--config=x", "--nouse_attention"},
     "--nouse_attention is a key of the config, not a flag; here it is --set use_attention=false"},
    {"key: bool, next word",
     {"--config=x", "--use_attention", "False"},
     "--use_attention is a key of the config, not a flag; here it is --set use_attention=False"},
    {"key: the first counts",
     {"--config=x", "--bench_steps=1", "--num_epochs=2", "--use_attention"},
     "--bench_steps is a key of the config, not a flag; here it is --set bench_steps=1"},
    {"key: OpenSeq2Seq's name",
     {"--config=x", "--mode=train_eval", "--max_eval_checkpoints=4"},
     "--max_eval_checkpoints is a flag of another program; here it is --set checkpoint_keep=4"},
    {"key: Horovod's name",
     {"--config=x", "--epochs", "24"},
     "--epochs is a flag of another program; here it is --set num_epochs=24"},
    {"key: Horovod's name in bench mode",
     {"--epochs=2", "--mode=bench", "--model=x"},
     "--epochs is a flag of another program; here it is --num_epochs=2"},
    {"key: a name that begins a flag",
     {"--config=x", "--mode=eval", "--checkpoint=best"},
     "--checkpoint is a key of the config, not a flag; here it is --set checkpoint=best"},
    {"key: the beginning of a flag", {"--config=x", "--checkpoint=60"}, ""},
    {"key: in front of a command",
     {"--restarts=1", "--bench_steps=3", "--", "x"},
     "--bench_steps is a key of the config, not a flag; here it is --set bench_steps=3"},
    {"key: help comes first", {"--help", "--bench_steps=3"}, ""},
    {"key: flag of bench mode whose key has another value",
     {"--config=x", "--use_fp16"},
     "--use_fp16 is for --mode=bench, but the mode is train; here it is --set dtype=mixed"},
    {"key: momentum is Nesterov's",
     {"--config=x", "--optimizer=momentum"},
     "--optimizer is for --mode=bench, but the mode is train; here it is --set optimizer=nesterov"},
    {"key: flag of bench mode whose name is a key",
     {"--config=x", "--num_epochs=3"},
     "--num_epochs is for --mode=bench, but the mode is train; here it is --set num_epochs=3"},
    {"key: flag without effect whose name is a key",
     {"--config=x", "--eval_batch_size=3"},
     "--eval_batch_size is for --mode=bench, but the mode is train; here it is --set "
     "eval_batch_size=3"},
    {"key: of bench mode alone",
     {"--config=x", "--num_batches=3"},
     "--num_batches is for --mode=bench, but the mode is train; here it is --max_steps=3"},
    {"key: refused there",
     {"--config=x", "--num_gpus=3"},
     "--num_gpus is for --mode=bench, but the mode is train; leave it out"},
    {"key: names of data differ",
     {"--config=x", "--data_name=imagenet"},
     "--data_name is for --mode=bench, but the mode is train; here the key is 'dataset', and "
     "--help=dataset explains it"},
    {"key: nearest",
     {"--config=x", "--bench_step=3"},
     "unknown flag '--bench_step'; did you mean the key of '--set bench_steps=...'?"},
    {"key: one dash",
     {"--config=x", "-bench_steps=3"},
     "-bench_steps is a key of the config, not a flag; here it is --set bench_steps=3"},
    {"key: another program's name, one dash",
     {"--config=x", "-valid_steps", "50"},
     "unknown flag '-valid_steps'; --help lists the flags, and --set key=value is for keys of the "
     "config"},
    {"key: another program's name for a key that this run does not have",
     {"--config=x", "--lenpen=1"},
     "unknown flag '--lenpen'; --help lists the flags, and --set key=value is for keys of the "
     "config"},
    {"key: another program's short flag",
     {"--config=x", "-o", "model"},
     "-o is a flag of another program; here: --logdir=DIR has all that a training writes, and "
     "--inference_out=FILE is a translation"},
    {"key: another program's flag that begins one of ours",
     {"--config=x", "--output=text"},
     "--output is a flag of another program; here: --logdir=DIR has all that a training writes, "
     "and --inference_out=FILE is a translation"},
    {"key: another program's flag, with hyphens and in capitals",
     {"--config=x", "--Update-Freq=4"},
     "unknown flag '--Update-Freq'; --help lists the flags, and --set key=value is for keys of "
     "the config"},
    {"key: another program's flag stops at the first",
     {"--update-freq=4", "--horovod"},
     "--update-freq is a flag of another program; here: --set batch_tokens=N counts a whole "
     "update, and --set iter_size=N only computes it in parts"},
    {"key: another program's flag behind a command's --",
     {"--restarts=1", "--", "x", "--horovod"},
     ""},
};

static void check_typed(void **state)
{
    const struct typed_row *r = *state;
    const rd_option_group *const groups[] = {&typed_group};
    char name[] = "run_dist", *argv[MAX_WORDS + 2] = {name};
    int argc = 1;
    for (int i = 0; i < MAX_WORDS && r->words[i]; i++)
        argv[argc++] = (char *)(uintptr_t)r->words[i];
    rd_status st = {0};
    rd_cli c;
    if (rd_cli_parse_with_keys(argc, argv, groups, 1, &c, &st) == RD_OK)
        (void)rd_cli_check(&c, &st);
    assert_string_equal(st.msg, r->want);
    assert_int_equal(st.code, r->want[0] ? RD_EUSAGE : RD_OK);
    rd_cli_release(&c);
}

static void idle(void **state)
{
    (void)state;
    static const struct {
        const char *words[MAX_WORDS], *want;
    } rows[] = {
        {{"--config=x", "--max_steps=7", "--lr=1"}, ""},
        {{"--mode=eval", "--lr=1", "--max_steps=7", "--split", "--seed=1", "--beam_width=2"},
         "--max_steps, --lr, --split_data_per_rank: without effect in mode eval\n"},
        {{"--mode=eval", "--split", "--nosplit"}, ""},
        {{"--beam_width=2", "--eval_frequency=3"},
         "--beam_width, --eval_frequency: without effect in mode train\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rd_status st = {0};
        rd_cli c;
        rd_strbuf b = {0};
        assert_int_equal(parse(rows[i].words, &c, &st), RD_OK);
        rd_cli_idle(&c, &b);
        assert_string_equal(rd_strbuf_str(&b), rows[i].want);
        rd_strbuf_release(&b);
        rd_cli_release(&c);
    }
}

static void help(void **state)
{
    (void)state;
    rd_status st = {0};
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    assert_int_equal(rd_help(NULL, NULL, 0, NULL, 0, f, &st), RD_OK);
    assert_int_equal(fclose(f), 0);
    assert_non_null(strstr(text, "usage: run_dist --config_file=FILE --logdir=DIR [flags]\n"));
    assert_non_null(strstr(text,
                           "\n  --max_steps=N               last step, earlier starts included\n"));
    assert_non_null(strstr(
        text, "\n  --split_data_per_rank       each rank keeps only its share of the data\n"));
    for (const char *s = text, *end; (end = strchr(s, '\n')); s = end + 1)
        assert_true(end - s <= 100);
    free(text);
}

RD_TESTS("config_cli", TEST_ROWS(check_bad, bad_rows), TEST_ROWS(check_good, good_rows),
         TEST_ROWS(check_check, check_rows), TEST(many_sets), TEST_ROWS(check_typed, typed_table),
         TEST(idle), TEST(help))
