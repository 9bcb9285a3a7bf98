/* help_topics.c -- the topics of --help as tables. The terminal, logs/README.md and the man page
 * print them from here. Words to type are in `backquotes`. */
#include "help_impl.h"
#include <string.h>

typedef const char *const row[RD_TOPIC_COLUMNS];

static row modes[] = {
    {"`train` (default)", "trains to `--max_steps`, else for `num_epochs`",
     "`source_file`, `target_file`", "the log folder"},
    {"`eval`", "loss, perplexity, `metric` of the whole set", "`*_file_eval`, newest checkpoint",
     "`eval/`"},
    {"`train_eval`", "trains; evaluates; keeps the best checkpoint", "both", "both"},
    {"`infer`", "one output line per input line or image, in order", "test data or `--input`",
     "stdout or `--inference_out`"},
    {"`prepare`", "makes the vocabularies of a raw text", "training data", "`text/`"},
    {"`bench`", "times steps: tokens/s, model FLOP/s, memory", "training data or `bench_synthetic`",
     "stdout"},
    {"`plan`", "predicts 1, 2, ... 1,024 hosts", "`step.json`, or training data to measure",
     "stdout"},
    {"`average`", "the mean of checkpoints (`--last=N`, `--best=N`)", "checkpoints",
     "`average-<step>.npz`"},
    {"`export`", "weights for other programs (`--format`)", "a checkpoint",
     "`export/` or `--export_out`"},
    {"`doctor`", "finds what makes a job hang, crash or slow", "hosts, a config if there is one",
     "stdout"},
    {"`runs`", "lists runs: state, steps, best figure, keys that differ", "log folders", "stdout"},
    {"`diff`", "compares two runs", "two log folders", "stdout"},
    {"`show`", "one run on a screen, with curves", "a log folder", "stdout"},
    {"`report`", "runs as an HTML page", "log folders", "`report.html`"},
};
static const char *const modes_notes[] = {
    "`train` resumes from what `--logdir` holds.",
    "`eval`, `train_eval` and `infer` share the work among all ranks. The results do not depend on "
    "the number of ranks.",
    "`infer` and `bench` print the result to stdout and everything else to stderr.",
    "`bench` counts steps after a warm-up. It saves nothing. `--help=bench` has its flags.", NULL};

static row exit_codes[] = {
    {"0", "done"},
    {"2", "command line or config is wrong, or the log folder is in use"},
    {"3", "the machine: memory, disk, file server, permissions, limits, libraries"},
    {"4", "ranks disagree: another config, program, library or data on one of them"},
    {"5", "data: a vocabulary, text or image file is missing, damaged or malformed"},
    {"6", "a checkpoint cannot be read, or does not fit the config"},
    {"7",
     "not finite: training, evaluation or output is not usable; or ranks hold different weights"},
    {"8", "a rank made no progress for `stall_abort_s`; the message names it, its host, step and "
          "phase"},
    {"9", "a rank or a host was lost"},
    {"70", "a bug of run_dist; please report it with `errors/rank_<r>.json`"},
    {"75", "stopped on request, checkpoint saved"},
};
static const char *const exit_codes_notes[] = {"The program prints a failure once: `run_dist: "
                                               "error: what; where; what to do`. `mpirun` passes "
                                               "the code on and adds its own lines below.",
                                               NULL};

static row signals[] = {
    {"USR1", "a checkpoint after this step; training goes on"},
    {"TERM, INT (Ctrl-C), USR2, HUP", "a checkpoint after this step, then the end with code 75"},
    {"a second stop signal", "the process exits at once"},
};
static const char *const signals_notes[] = {
    "Any rank may get the signal: all ranks stop at the same step. The same command goes on from "
    "there.",
    "`mpirun` passes USR1 and USR2 on. After TERM or Ctrl-C it asks the ranks to end and kills "
    "them "
    "one second later. If a step and a save take longer, use USR2, or `mpirun -mca "
    "odls_base_sigkill_timeout 60` (not in Open MPI 5).",
    "`run_dist --np=N` asks its ranks to save and stop, and sets no time limit.",
    "HUP means that the terminal was closed. Under `nohup` it has no effect.", NULL};

static row logdir[] = {
    {"`run.log`",
     "what rank 0 printed, with times, over all starts; the reason of another rank that ended the "
     "job"},
    {"`metrics.jsonl`", "one JSON object per summary; METRICS.md explains the fields"},
    {"`samples.jsonl`", "with `record_sample_ids`: the samples of each step; see METRICS.md"},
    {"`events.out.tfevents.*`", "TensorBoard: TENSORBOARD.md explains the groups"},
    {"`config.json`",
     "every key, its value and its source: `file:line:column`, `--set`, `default` or `forced`"},
    {"`model-<step>.npz`",
     "checkpoint: weights and optimizer state by name; the newest 5 are kept"},
    {"`best-<step>.npz`", "`train_eval`: the best checkpoint by the config's metric, else by loss"},
    {"`top-<step>.npz`", "with `checkpoint_keep_best`: the next best checkpoints"},
    {"`average-<step>.npz`", "`average`: the mean of checkpoints"},
    {"`checkpoint`", "the name of the newest complete checkpoint"},
    {"`starts.jsonl`", "how each start began and ended; see EXPORT.md"},
    {"`eval/`", "of evaluations: `metrics.jsonl`, events; `eval` of images: predictions, classes, "
                "confusions"},
    {"`text/`", "vocabularies, subword model, hashes"},
    {"`data.json`", "of images: sizes, names of classes, normalization"},
    {"`export/`", "what `--mode=export` writes"},
    {"`step.json`",
     "what a step consisted of and how fast the ranks' links were, for `--mode=plan`"},
    {"`errors/rank_<r>.json`",
     "the last failure: message, exit code, step, source; the one before: `errors/previous/`"},
    {"`.lock`",
     "held while a run writes here; it ends with its owner, so a stale file does no harm"},
};
static const char *const logdir_notes[] = {
    "Rank 0 writes the folder, so only rank 0's host needs it.",
    "A checkpoint is written under another name, synced and renamed. A file with the right name is "
    "complete.",
    NULL};

#define ROWS(table) (table), (int)(sizeof(table) / sizeof *(table))
const rd_topic rd_topics[] = {
    {"modes",
     "MODES",
     "What --mode does, and which data it reads.",
     4,
     {"`--mode`", "what it does", "reads", "writes"},
     ROWS(modes),
     modes_notes},
    {"exit-codes",
     "EXIT STATUS",
     "What the program's exit code means.",
     2,
     {"code", "meaning"},
     ROWS(exit_codes),
     exit_codes_notes},
    {"signals",
     "SIGNALS",
     "What a signal to a rank or to mpirun does.",
     2,
     {"signal", "what happens"},
     ROWS(signals),
     signals_notes},
    {"logdir",
     "LOG FOLDER",
     "What is in the folder of --logdir.",
     2,
     {"file", "what it holds"},
     ROWS(logdir),
     logdir_notes},
};
const int rd_n_topics = sizeof rd_topics / sizeof *rd_topics;

const rd_topic *rd_topic_named(const char *name)
{
    for (int i = 0; i < rd_n_topics; i++)
        if (!strcmp(rd_topics[i].name, name)) return &rd_topics[i];
    return NULL;
}
