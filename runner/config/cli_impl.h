/* cli_impl.h -- what the files of the command line share. cli_flags.c: the flags; cli_bench.c: the
 * flags of bench mode; cli_keys.c: keys that are typed as flags; cli_words.c: words that are no
 * flags; cli_foreign.c: flags of other programs; cli.c: reads words; help.c, help_topics.c,
 * help_man.c, help_configs.c: print. */
#ifndef RD_CLI_IMPL_H
#define RD_CLI_IMPL_H

#include "rd/cli.h"

RD_C_BEGIN

/* ---- cli_flags.c ---- */
typedef enum rd_flag_type {
    RD_FLAG_BOOL,
    RD_FLAG_INT,
    RD_FLAG_REAL,
    RD_FLAG_TEXT,
    RD_FLAG_PATH, /* a text that names a file or folder */
    RD_FLAG_MODE,
    RD_FLAG_SET, /* key=value */
    RD_FLAG_KEY, /* short for --set <name>=value */
    RD_FLAG_SWEEP,
    RD_FLAG_HELP /* with or without =value */
} rd_flag_type;

typedef struct rd_flag {
    const char *name;
    rd_flag_type type;
    /* Offset of the value in rd_cli; not of RD_FLAG_SET and RD_FLAG_KEY. */
    size_t at;
    /* Offset of a bool that becomes true if the flag is given; 0: none. */
    size_t given_at;
    /* Closed range of a number. A real one has no max. */
    double min, max;
    /* rd_mode bits of the modes in which the flag has an effect; 0: all. */
    unsigned modes;
    /* In another mode the flag is refused, or (true) noted: it may be left from the training
     * command. */
    bool may_idle;
    /* The flag is for the launcher alone, which does not pass it on to the ranks. */
    bool of_launcher;
    /* The flag must be written in full, so that beginnings of older flags stay unique. */
    bool whole;
    /* It is no part of the command of a single run of a sweep. */
    bool of_sweep;
    /* The key that does the same under another name; NULL: none. */
    const char *key;
    /* Name of the value ("FILE"; NULL: a bool) and the default in words (NULL: none). */
    const char *value, *def;
    /* Meaning in at most 48 characters for --help (NULL: not shown there), and in full. */
    const char *brief, *help;
} rd_flag;
extern const rd_flag rd_flags[]; /* in the order of --help */
extern const int rd_n_flags;
/* Returns the flag of exactly the name word[0..n); NULL: none. */
const rd_flag *rd_flag_named(const char *word, size_t n);
/* Returns the flag's bit in rd_cli.given. */
uint64_t rd_flag_bit(const rd_flag *f);

typedef struct rd_mode_name {
    const char *name;
    rd_mode bit;
} rd_mode_name;
extern const rd_mode_name rd_mode_names[];
extern const int rd_n_mode_names;

/* ---- cli_bench.c ---- */
typedef enum rd_bench_type {
    RD_BENCH_BOOL,
    RD_BENCH_INT,
    RD_BENCH_REAL,
    RD_BENCH_TEXT
} rd_bench_type;

/* The flag with the name word[0..n), '-' for '_' allowed; -1: none. *negated: it was no<flag>, of a
 * bool. */
int rd_bench_flag_find(const char *word, size_t n, bool *negated);
int rd_bench_flag_count(void);
const char *rd_bench_flag_name(int i); /* "num_batches" */
rd_bench_type rd_bench_flag_type(int i);
const char *rd_bench_flag_value(int i); /* "N"; NULL: a bool */
const char *rd_bench_flag_help(int i);
/* The key that stands for it outside of bench mode; NULL: none. */
const char *rd_bench_flag_key(int i);
/* Is the flag refused for some values, because this program lacks what they ask for? */
bool rd_bench_flag_lacks(int i);
/* The value of that key for a value of the flag: mixed for --use_fp16=true. Borrowed from value. */
const char *rd_bench_flag_key_value(int i, const char *value);
/* Prints the flags of bench mode. indent: before each line. */
void rd_bench_flags_help(const char *indent, FILE *out);

/* ---- cli_keys.c ---- */
/* Returns the key that a user means by the flag word[0..n): a key of the config, '-' for '_'
 * allowed, or the key for a flag of another program. *negated: it was no<key>, of a bool. NULL:
 * none. */
const rd_option *rd_cli_key_named(const rd_cli *c, const char *word, size_t n, bool *negated);
/* Fails if arg, of this number of dashes and n more bytes, is a flag of another program that no key
 * replaces. The message says what to do instead. */
rd_code rd_cli_foreign(const char *arg, size_t dashes, size_t n, rd_status *st);
/* Returns the key whose name is nearest to the word; NULL: none is near. */
const char *rd_cli_key_nearest(const rd_cli *c, const char *word);
/* Fails if a key, or a flag of bench mode in another mode, was typed as a flag. The message says
 * how this program sets the key. */
rd_code rd_cli_check_keys(const rd_cli *c, rd_status *st);

/* ---- cli_words.c ---- */
/* Takes the words that belong to no flag: one word is the config. RD_EUSAGE: anything else; the
 * message says what the word should have been. */
rd_code rd_cli_take_words(rd_cli *c, rd_status *st);
/* Stores a path, in which the home folder replaces "~". flag: what the message calls it. */
rd_code rd_cli_path(rd_cli *c, const char *flag, const char *value, const char **out,
                    rd_status *st);

/* ---- cli_foreign.c ---- */
/* Returns the key that takes the value of another program's flag; NULL: none. name: with '_' for
 * '-'. */
const char *rd_cli_foreign_key(const char *name);
/* Returns what to do instead of another program's flag, to be read behind "here:"; NULL: nothing is
 * known of the flag, or a key replaces it. */
const char *rd_cli_foreign_advice(const char *name);

RD_C_END
#endif
