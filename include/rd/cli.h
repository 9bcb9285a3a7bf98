/* cli.h -- the command line and its help. The flags are those of OpenSeq2Seq's run_dist and some
 * more. Keys of the config are set with --set.
 *
 * --flag=value and --flag value mean the same. A prefix of one flag only is enough
 * (--config=x.json). A bool flag is --flag, --flag=true|t|1|false|f|0 or --noflag. Of a repeated
 * flag the last one counts; every --set counts. */
#ifndef RD_CLI_H
#define RD_CLI_H

#include "rd/options.h"
#include "rd/strbuf.h"

RD_C_BEGIN

/* A flag that only bench mode takes. */
typedef struct rd_cli_word {
    int flag;          /* index in the table of these flags */
    const char *value; /* borrowed from argv, or "true" or "false" */
} rd_cli_word;

/* A key of the config that was typed as a flag. */
typedef struct rd_cli_key {
    const rd_option *o; /* the key; NULL: none was typed */
    const char *typed;  /* [n_typed] the name as typed, with its dashes; borrowed from argv */
    int n_typed;
    const char *value; /* borrowed from argv, or "true" or "false"; NULL: not given */
} rd_cli_key;

/* Texts are borrowed from argv or `path`; NULL: the flag is not given. */
typedef struct rd_cli {
    const char *config_file, *logdir;
    const char *mode;          /* spelled as in --help; "train" unless given */
    rd_mode mode_bit;          /* the mode, for rd_config_read */
    const char *inference_out; /* "stdout" unless given */
    const char *export_out;    /* NULL: a file in the log folder */
    const char *input;         /* "-": standard input; NULL: the config's test file */
    const char *events;        /* the event file to print */
    const char *trace;         /* the trace to write */
    const char **set;          /* owned list of owned "key=value", in the order given */
    int n_set;
    char **path; /* owned list of owned paths, in which the home folder replaced "~" */
    int n_path;
    rd_cli_word *bench; /* owned; each flag at most once */
    int n_bench;
    uint64_t given;     /* one bit for each flag, in the order of --help; 0 for --noflag */
    int64_t last, best; /* of average mode: number of checkpoints; 0: not given */
    int64_t max_steps, summary_frequency, checkpoint_frequency, seed;
    bool max_steps_given, seed_given, lr_given, beam_width_given;
    double lr;
    bool split_data_per_rank, allow_unknown_keys, verbose;
    const char *hosts, *hostfile, *mpirun_args; /* of the launcher and of doctor mode */
    int64_t ssh_port;                           /* of the same; 0: not given */
    int64_t np;                                 /* number of ranks to start; 0: not given */
    int64_t ports;     /* first of the ports that Open MPI may use; 0: any */
    bool dry_run;      /* print the launcher's line, and start nothing */
    const char **pass; /* owned list of borrowed words: argv[1 ..] without the launcher's flags */
    int n_pass;
    bool json;                /* plan, doctor: print one JSON object */
    bool check;               /* print what a training would be, and stop */
    int64_t check_steps;      /* with check: number of steps to time; 0: none */
    const char *new_config;   /* the model of a config to begin with */
    const char *list;         /* what to list: "models"; NULL: nothing */
    const char *completion;   /* the shell whose completion to print; NULL: none */
    const char *format;       /* of the modes runs, diff, show and export */
    const char *sort, *where; /* of mode runs */
    const char *report_out;   /* of mode report; NULL: not given */
    bool watch;               /* of mode runs */
    const char **sweep;       /* owned list of the borrowed values of --sweep, in the order given */
    int n_sweep;
    int64_t sweep_jobs, sweep_ranks; /* 0: not given */
    const char *sweep_halving, *sweep_slurm;
    int64_t stop_at_step; /* 0: not given */
    /* Owned list of borrowed words: the command line without --logdir and the flags of sweeps. */
    const char **base;
    int n_base;
    const char *
        *word;  /* owned list of borrowed words that belong to no flag: of diff, show, report */
    int n_word; /* in other modes the one word is config_file */
    bool help, version, print_config, print_schema, print_keys, print_man;
    const char *help_word;   /* WORD of --help=WORD; NULL: not given */
    const char *print_topic; /* topic of rd_help_markdown; NULL: not given */
    int64_t restarts;
    double restart_delay;
    bool restarts_given, restart_delay_given, drop_dead_hosts;
    char *const *launch; /* borrowed; the command after "--", ended by NULL; NULL: no "--" */
    int n_launch;        /* number of its words */
    char *const *argv;   /* [argc] borrowed; the whole command line */
    int argc;
    const rd_option_group *const *groups; /* [n_groups] borrowed; the keys of the config */
    int n_groups;                         /* 0: not known */
    rd_cli_key key;                       /* the first key that was typed as a flag */
} rd_cli;

/* Fills *out, whatever it held, from argv[1 ..]. Release *out also after a failure. RD_EUSAGE: an
 * unknown flag (the message names the nearest one), an ambiguous prefix, a missing or wrong value,
 * a word that belongs to no flag. A path gets the home folder for "~", see rd_home_path. */
rd_code rd_cli_parse(int argc, char *const *argv, rd_cli *out, rd_status *st);
/* Does the same, and knows the keys of the config. A key that is typed as a flag is kept in
 * out->key, and rd_cli_check explains it. groups[n]: borrowed, as long as *out is used. */
rd_code rd_cli_parse_with_keys(int argc, char *const *argv, const rd_option_group *const *groups,
                               int n, rd_cli *out, rd_status *st);
/* Checks which flags need each other or a mode. A run needs --config_file or a log folder with a
 * config (bench mode: a config file or --model); --input needs --mode=infer. RD_EUSAGE. */
rd_code rd_cli_check(const rd_cli *c, rd_status *st);
/* Appends a line with the flags that have no effect in this mode. Appends nothing if there is no
 * such flag. */
void rd_cli_idle(const rd_cli *c, rd_strbuf *out);
/* Sets the keys that the flags of bench mode stand for. Appends one line for each flag to *said:
 * "--num_batches=100 is bench_steps=100", or why the flag has no effect. RD_EUSAGE: a value that
 * does not fit its key, or a flag for a function that this program does not have and that would
 * change the result. */
rd_code rd_cli_bench_put(const rd_cli *c, rd_config *config, rd_strbuf *said, rd_status *st);
/* Returns the value of such a flag as it was written; NULL: not given. */
const char *rd_cli_bench_value(const rd_cli *c, const char *flag);
/* Frees what *c owns. A struct of zeros is fine. */
void rd_cli_release(rd_cli *c);

/* ---- help ---- */
/* Returns whether there is a flag of this name, and sets *key to the key that it stands for (NULL:
 * none): for rd_config_new_with_flags. */
bool rd_cli_is_flag(const char *name, const char **key);
/* Returns whether this process shall start the ranks of the run: --np, or --hosts or --hostfile in
 * another mode than doctor. */
bool rd_cli_launches(const rd_cli *c);
/* Returns whether a flag asks for an answer that needs neither ranks nor a config. */
bool rd_cli_answers(const rd_cli *c);
/* Prints the answer of --help: all flags on one screen; with the word "keys" all keys by group;
 * with the name of a key or flag what it means; with a topic the topic. groups: all groups of the
 * program. RD_EUSAGE: an unknown word; the message names the nearest one. */
rd_code rd_help(const char *word, const rd_option_group *const *groups, int n,
                const rd_option_owner *owners, int n_owners, FILE *out, rd_status *st);
/* Prints a topic as a generated block of a page: flags, bench, modes, exit-codes, signals, logdir.
 * RD_EUSAGE: an unknown topic. */
rd_code rd_help_markdown(const char *topic, FILE *out, rd_status *st);
/* Prints the entries of a kind, one a line: models, datasets, optimizers, metrics, schedules, modes
 * or configs (the experiments beside the program). RD_EUSAGE: another kind. */
rd_code rd_help_list(const char *kind, const rd_option_owner *owners, int n_owners, FILE *out,
                     rd_status *st);
/* Prints the completion of a shell: bash, zsh or fish. RD_EUSAGE: another shell. */
rd_code rd_help_completion(const char *shell, const rd_option_group *const *groups, int n,
                           const rd_option_owner *owners, int n_owners, FILE *out, rd_status *st);
/* Writes the path of the folder of experiments beside the program: of the source tree, or of an
 * installation. Returns false if there is none. */
bool rd_configs_folder(char out[4096]);
/* Writes the path of a file of that folder for "configs/NAME", or "configs/NAME!member", if nothing
 * of this name is in the current folder. Returns false if there is no such file. */
bool rd_installed_path(const char *path, char out[8192]);
/* The same for a config, which may also be given as NAME.json. */
bool rd_installed_config(const char *path, char out[8192]);
/* Prints the man page run_dist(1). */
void rd_help_man(const rd_option_group *const *groups, int n, FILE *out);

RD_C_END
#endif
