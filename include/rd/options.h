/* options.h -- option tables and the config.
 *
 * One table drives parsing, --set key=value, --help, configs/schema.json, configs/KEYS.md and
 * --print_config. Keys are flat snake_case. Every module has its own table ("group") and struct:
 *
 *     typedef enum mood { MOOD_CALM, MOOD_WILD } mood;
 *     static const char *const moods[] = {[MOOD_CALM] = "calm", [MOOD_WILD] = "wild", NULL};
 *     typedef struct adam_config {
 *         double beta1;
 *         int64_t steps;
 *         bool has_steps;
 *         mood mood;
 *     } adam_config;
 *     static const rd_option rows[] = {
 *         RD_OPT_REAL(adam_config, adam_beta1, beta1, "0.9", 0.0, 1.0, "first moment's decay"),
 *         RD_OPT_INT(adam_config, adam_steps, steps, NULL, 1, 100, "number of steps",
 *                    RD_REQUIRED(RD_MODE_TRAIN), RD_GIVEN(adam_config, has_steps)),
 *         RD_OPT_ENUM(adam_config, adam_mood, mood, "\"calm\"", moods, "how it moves"),
 *         RD_OPT_END };
 *     const rd_option_group rd_group_adam = {"adam", "Adam, Kingma and Ba 2015", rows,
 *                                            sizeof(adam_config)};
 *
 * A row whose field has another type does not compile. */
#ifndef RD_OPTIONS_H
#define RD_OPTIONS_H

#include "rd/status.h"
#include "rd/strbuf.h"
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

RD_C_BEGIN

typedef enum rd_mode {
    RD_MODE_TRAIN = 1,
    RD_MODE_EVAL = 2,
    RD_MODE_INFER = 4,
    RD_MODE_TRAIN_EVAL = 8,
    RD_MODE_BENCH = 16,
    RD_MODE_DOCTOR = 32,
    RD_MODE_PLAN = 64,
    RD_MODE_PREPARE = 128,
    RD_MODE_EXPORT = 512,
    RD_MODE_RUNS = 1 << 16, /* these four read log folders and need no config */
    RD_MODE_DIFF = 1 << 17,
    RD_MODE_SHOW = 1 << 18,
    RD_MODE_REPORT = 1 << 19,
    RD_MODE_AVERAGE = 256
} rd_mode;

/* Type of a value, and of the field that holds it. */
typedef enum rd_option_type {
    RD_BOOL,   /* bool */
    RD_INT,    /* int64_t */
    RD_REAL,   /* double */
    RD_STRING, /* const char * */
    RD_INTS,   /* rd_ints */
    RD_PATHS,  /* rd_paths */
    RD_ENUM    /* an enum or int: index of the word in the row's choices */
} rd_option_type;

/* A list of integers. The memory belongs to the rd_config. */
typedef struct rd_ints {
    int n;
    const int64_t *at;
} rd_ints;

/* One file name or pattern, or a list of them. The memory belongs to the rd_config. */
typedef struct rd_paths {
    int n; /* 0: none */
    const char *const *at;
} rd_paths;

enum {
    /* The key is read for compatibility and has no effect; help says so. */
    RD_OPT_ACCEPTED = 1,
    /* OpenSeq2Seq's configs have the key whether it takes effect or not: in them it is noted where
     * another key is refused (rd_config_refuses). */
    RD_OPT_CARRIED = 2,
    /* Any word is accepted: one that is not among the choices counts as the first choice. */
    RD_OPT_OPEN = 4
};

typedef struct rd_option {
    const char *key;
    rd_option_type type;
    /* Offset of the field. */
    size_t at;
    /* 1 + offset of a bool that says whether the config has a value, defaults aside; 0: none. */
    size_t given;
    /* Default as JSON text ("0.9", "\"adam\"", "[50]"). NULL: none; the field is zero bytes. */
    const char *def;
    /* rd_mode bits of the modes in which a missing key is an error. */
    unsigned required;
    /* RD_OPT_* bits. */
    unsigned flags;
    /* Closed range of a number, or of each element of a list. */
    double min, max;
    /* Words that the value may be; ends with NULL. Case does not matter; the struct gets the word
     * in the spelling of this list (RD_STRING) or its index (RD_ENUM). NULL: any string.
     * RD_OPT_OPEN allows other words. */
    const char *const *choices;
    /* A string that names a file or folder: "~/" at its begin is the home folder. RD_PATHS is one
     * anyway. */
    bool path;
    /* One sentence for people: what the key does. */
    const char *help;
} rd_option;

typedef struct rd_option_group {
    const char *name, *about;
    /* Ends with RD_OPT_END. */
    const rd_option *options;
    /* Size of the struct that rd_config_read fills. */
    size_t struct_bytes;
} rd_option_group;

/* The offset of a field. Does not compile when the field has none of these types: the _Generic in
 * sizeof has no branch for it. (Tables are C; the header's macros are not expanded in C++.) */
#define RD_FIELD_(T, field, type) \
    (offsetof(T, field) + 0 * sizeof(_Generic(&((T *)0)->field, type * : (char)0)))
/* An enum is an unsigned int to gcc and clang, or an int if it has negative values. */
#define RD_FIELD_ENUM_(T, field) \
    (offsetof(T, field) +        \
     0 * sizeof(_Generic(&((T *)0)->field, int *: (char)0, unsigned *: (char)0)))

/* The rows. T: the struct. d: the default as JSON text, or NULL. lo, hi: the closed range. list:
 * the choices. The last arguments are the help and then, where needed, attributes in any order. */
#define RD_OPT_BOOL(T, k, field, d, ...)                                         \
    {                                                                            \
        .key = #k, .type = RD_BOOL, .at = RD_FIELD_(T, field, bool), .def = (d), \
        .help = __VA_ARGS__                                                      \
    }
#define RD_OPT_INT(T, k, field, d, lo, hi, ...)                                                 \
    {                                                                                           \
        .key = #k, .type = RD_INT, .at = RD_FIELD_(T, field, int64_t), .def = (d), .min = (lo), \
        .max = (hi), .help = __VA_ARGS__                                                        \
    }
#define RD_OPT_REAL(T, k, field, d, lo, hi, ...)                                                \
    {                                                                                           \
        .key = #k, .type = RD_REAL, .at = RD_FIELD_(T, field, double), .def = (d), .min = (lo), \
        .max = (hi), .help = __VA_ARGS__                                                        \
    }
#define RD_OPT_STRING(T, k, field, d, ...)                                                 \
    {                                                                                      \
        .key = #k, .type = RD_STRING, .at = RD_FIELD_(T, field, const char *), .def = (d), \
        .help = __VA_ARGS__                                                                \
    }
/* A string that names a file or folder. */
#define RD_OPT_PATH(T, k, field, d, ...)                                                   \
    {                                                                                      \
        .key = #k, .type = RD_STRING, .at = RD_FIELD_(T, field, const char *), .def = (d), \
        .path = true, .help = __VA_ARGS__                                                  \
    }
/* One file name or pattern, or a list of them; the help must say which patterns count. */
#define RD_OPT_PATHS(T, k, field, ...)                                                  \
    {                                                                                   \
        .key = #k, .type = RD_PATHS, .at = RD_FIELD_(T, field, rd_paths), .path = true, \
        .help = __VA_ARGS__                                                             \
    }
/* A string, or a list of strings, that are no names of files. */
#define RD_OPT_STRINGS(T, k, field, ...)                                                      \
    {                                                                                         \
        .key = #k, .type = RD_PATHS, .at = RD_FIELD_(T, field, rd_paths), .help = __VA_ARGS__ \
    }
#define RD_OPT_INTS(T, k, field, d, lo, hi, ...)                                                 \
    {                                                                                            \
        .key = #k, .type = RD_INTS, .at = RD_FIELD_(T, field, rd_ints), .def = (d), .min = (lo), \
        .max = (hi), .help = __VA_ARGS__                                                         \
    }
/* One word of a list whose indices are the values of an enum. */
#define RD_OPT_ENUM(T, k, field, d, list, ...)                                                     \
    {                                                                                              \
        .key = #k, .type = RD_ENUM, .at = RD_FIELD_ENUM_(T, field), .def = (d), .choices = (list), \
        .help = __VA_ARGS__                                                                        \
    }
/* The name of an entry of a registry (an optimizer, a metric), in the registry's spelling. */
#define RD_OPT_NAME(T, k, field, d, list, ...)                                             \
    {                                                                                      \
        .key = #k, .type = RD_STRING, .at = RD_FIELD_(T, field, const char *), .def = (d), \
        .choices = (list), .help = __VA_ARGS__                                             \
    }

/* The attributes. In these modes a missing key is an error: */
#define RD_REQUIRED(modes) .required = (modes)
/* The bool `has` becomes true if the config has a value, false if the default counts: */
#define RD_GIVEN(T, has) .given = 1 + RD_FIELD_(T, has, bool)
/* The key is read for compatibility and has no effect: */
#define RD_WITHOUT_EFFECT .flags = RD_OPT_ACCEPTED
/* OpenSeq2Seq's configs have the key whether it takes effect or not (see RD_OPT_CARRIED): */
#define RD_CARRIED .flags = RD_OPT_CARRIED
/* Any other word counts as the first choice (see RD_OPT_OPEN): */
#define RD_OTHER_WORDS .flags = RD_OPT_OPEN

#define RD_OPT_END  \
    {               \
        .key = NULL \
    }

/* Returns the word that an RD_OPT_ENUM field holds, for messages; NULL: the group has no such key
 * or the key no such word. */
const char *rd_option_word(const rd_option_group *g, const char *key, int value);

/* Largest number of option groups of the program. */
enum { RD_MAX_GROUPS = 64 };

typedef struct rd_config rd_config;

/* Parses JSON text (Jansson) and checks every key against all groups. path: for messages only. The
 * caller owns *out.
 *
 * Errors are RD_EUSAGE, as "path:line:column: what; what to do": wrong syntax, not an object, a
 * duplicate or unknown key (the message names the nearest one), a value of the wrong type or out of
 * range, an empty list, not one of the choices. An integer is fine for RD_REAL, an integral real
 * such as 64.0 for RD_INT. With allow_unknown, unknown keys are kept aside instead
 * (rd_config_unknown).
 *
 * A path of an RD_OPT_PATH or RD_OPT_PATHS key that begins with "~/" gets the home folder of HOME
 * in place of the '~'. "~name" is RD_EUSAGE.
 *
 * A UTF-8 BOM and CRLF are accepted. The key "$schema", which is for editors, is skipped. A key may
 * be in several groups with the same type and default; its value must fit all of them. Another type
 * or default, or a default that does not fit its own row, is RD_EBUG. */
rd_code rd_config_new(const char *path, const char *text, size_t n,
                      const rd_option_group *const *groups, int n_groups, bool allow_unknown,
                      rd_config **out, rd_status *st);
/* Does the same for a program with flags. The message about an unknown key names the flag of that
 * name: is_flag returns whether there is one, and sets *key to the key that the flag stands for
 * (NULL: none). */
rd_code rd_config_new_with_flags(const char *path, const char *text, size_t n,
                                 const rd_option_group *const *groups, int n_groups,
                                 bool allow_unknown,
                                 bool (*is_flag)(const char *name, const char **key),
                                 rd_config **out, rd_status *st);
void rd_config_free(rd_config *c);

/* Sets a key from "key=value" of --set. The value is JSON, or a bare word for a string. null
 * removes the file's value, so that the default counts; the text null is written with quotes,
 * "null". Checks the value as rd_config_new does; messages name --set. */
rd_code rd_config_set(rd_config *c, const char *assignment, rd_status *st);
/* Sets a key from the program itself (a flag such as --lr, a forced key). Takes the reference to
 * the value, also on failure. source: what --print_config shows, such as "--lr" or "forced". */
rd_code rd_config_put(rd_config *c, const char *key, json_t *value_stolen, const char *source,
                      rd_status *st);
/* Removes the value of a key, as if the key had not been written. */
void rd_config_drop(rd_config *c, const char *key);
/* Returns whether the key has a value from the file, --set or rd_config_put, defaults aside. */
bool rd_config_has(const rd_config *c, const char *key);
/* Returns the value of a key, or its default. NULL: none. Borrowed. */
const json_t *rd_config_get(const rd_config *c, const char *key);
/* Returns the value of an RD_OPT_ENUM key, or its default, as the index of the word. -1: none. */
int rd_config_choice(const rd_config *c, const char *key);
/* Returns the i-th unknown key; NULL past the end. */
const char *rd_config_unknown(const rd_config *c, int i);
/* Returns where the value of a key comes from: "x.json:12:5", "--set", "default", "not set", or the
 * source of rd_config_put. For messages of checks made elsewhere. Borrowed. */
const char *rd_config_where(const rd_config *c, const char *key);

/* Where a value comes from, or what removed it. */
typedef enum rd_origin {
    RD_ORIGIN_NONE,        /* nowhere, or the program itself */
    RD_ORIGIN_FILE,        /* a config */
    RD_ORIGIN_OPENSEQ2SEQ, /* a config of OpenSeq2Seq: a file with the key "num_gpus" */
    RD_ORIGIN_RECORD,      /* config.json of a log folder */
    RD_ORIGIN_SET          /* --set, or a flag */
} rd_origin;
rd_origin rd_config_origin(const rd_config *c, const char *key);
/* Says what becomes of a key that has no effect because its partners (ended by NULL) are set
 * otherwise. true: the config is refused. false: the key is noted, since
 *   - it is in config.json of a log folder, which says what a run had;
 *   - it is an RD_CARRIED key in a config of OpenSeq2Seq;
 *   - a partner was set or removed later: by --set, or by a config that is based on the key's file;
 *   - the program itself gave the value; or unknown keys are allowed. */
bool rd_config_refuses(const rd_config *c, const char *key, const char *const *partners);
extern const char rd_openseq2seq_sign[]; /* "num_gpus" */

/* Reads a config file and the files that it is based on ("base": "other.json", relative to the
 * file's folder), and appends them to *out as bytes for rd_config_new_of_files. RD_EUSAGE: a file
 * that cannot be read or is no config, a circle. */
rd_code rd_config_files_read(const char *path, rd_strbuf *out, rd_status *st);
/* Makes a config of these bytes: a later file replaces keys of an earlier one, and its null removes
 * them. Each key's source is the file that set it. is_flag: as for rd_config_new_with_flags. */
rd_code rd_config_new_of_files(const void *files, size_t n, const rd_option_group *const *groups,
                               int n_groups, bool allow_unknown,
                               bool (*is_flag)(const char *name, const char **key), rd_config **out,
                               rd_status *st);

/* Zeroes the group's struct and fills it. mode: for `required`. A missing required key is
 * RD_EUSAGE; the message names the key and its meaning. Strings and lists are borrowed from c.
 *
 * The value of the key `data_location`, if set, replaces placeholders in strings. A placeholder is
 * '[', upper-case letters, digits and '_', ending in "DATA_LOCATION]". */
rd_code rd_config_read(const rd_config *c, const rd_option_group *g, rd_mode mode, void *out,
                       rd_status *st);
/* Does the same without zeroing the struct first, for a struct whose fields several groups fill. */
rd_code rd_config_read_more(const rd_config *c, const rd_option_group *g, rd_mode mode, void *out,
                            rd_status *st);
/* Fails like rd_config_read if a key that the mode requires is missing in one of the groups. The
 * message names all of them, and of the keys `also` (ended by NULL; NULL: none), which some configs
 * need, those that are missing, too. */
rd_code rd_config_check_required(const rd_config *c, const rd_option_group *const *groups, int n,
                                 rd_mode mode, const char *const *also, rd_status *st);

/* ---- keys that belong to somebody ---- */

/* One entry of a registry (an optimizer, a dataset, a model, a metric) or one learning-rate policy,
 * and the groups that it reads. Groups that no owner has are read by every run. */
typedef struct rd_option_owner {
    const char *kind;                /* "dataset": the key that chooses */
    const char *name;                /* "idx" */
    const char *about;               /* one line about it */
    const rd_option_group *group[2]; /* NULL: none */
    const char *dataset; /* of a model: the dataset that it reads by default; NULL: none */
    bool gives_keys;     /* of a model: it sets keys that a config leaves out */
    bool chosen;         /* by this run; at most one of a kind */
} rd_option_owner;

/* Refuses a key that the config sets although only owners read it that this run has not chosen:
 * "x.json:3:5: 'lars_eta' belongs to optimizer lars; this run uses adam; ..." (RD_EUSAGE).
 *   - Only the file and --set count: not defaults, not null, not what the program itself put.
 *   - A kind without a chosen part (infer mode has no optimizer; an unknown name) refuses nothing.
 *   - Keys of a config that allows unknown keys are noted instead: one line each is added to
 *     *notes. So are RD_CARRIED keys that rd_config_refuses does not refuse. */
rd_code rd_config_check_owners(const rd_config *c, const rd_option_owner *owners, int n,
                               rd_strbuf *notes, rd_status *st);

/* Lists the keys of files that rd_config_check_owners would refuse because `kind`, "optimizer" for
 * example, chooses another part. Adds each to the object *found, with a text: "x.json:3:5:
 * 'lars_eta' belongs to optimizer lars". Keys of --set are not listed. */
rd_code rd_config_replaced(const rd_config *c, const rd_option_owner *owners, int n,
                           const char *kind, json_t *found, rd_status *st);

/* Returns the first placeholder "[..DATA_LOCATION]" in a string that rd_config_read filled, as a
 * pointer to its '['; NULL: none. The message of a file that cannot be opened then says "set it
 * with --set data_location=DIR". */
const char *rd_config_placeholder(const char *path);

/* Returns the effective config as JSON, {"key": {"value": v, "source": "where"}, ...}, in table
 * order and then the unknown keys. A key without value and default has the value null and the
 * source "not set". The caller owns it. NULL: out of memory. */
json_t *rd_config_effective(const rd_config *c);
/* Writes the same as text, one key a line. Numbers are short and exact. */
void rd_config_write(const rd_config *c, FILE *out);
/* Prints key, value, source, default and range for people. */
void rd_config_print(const rd_config *c, FILE *out);
/* Prints the keys by group, in lines of at most 100 columns. */
void rd_options_help(const rd_option_group *const *groups, int n, FILE *out);
/* Prints the keys as Markdown tables, for configs/KEYS.md. */
void rd_options_markdown(const rd_option_group *const *groups, int n, FILE *out);
/* Returns a JSON schema, draft 2020-12. It lists the owners, and refuses what
 * rd_config_check_owners refuses in one file. The caller owns it and dumps it with
 * JSON_REAL_PRECISION(15). NULL: out of memory. */
json_t *rd_options_schema(const rd_option_group *const *groups, int n,
                          const rd_option_owner *owners, int n_owners);
/* Returns the known word that is nearest to `word` by Damerau-Levenshtein distance; NULL: all are
 * farther than 1 + length / 4. */
const char *rd_nearest(const char *word, const char *const *known, int n);

RD_C_END
#endif
