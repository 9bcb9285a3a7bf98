/* options.h -- option tables and the config. One table drives parsing, --set key=value, --help, configs/schema.json,
 * the docs table and --print_config. Keys are flat snake_case; every module has its table ("group") and its struct.
 *
 *     typedef struct adam_config { double beta1, beta2; } adam_config;
 *     static const rd_option rows[] = {
 *         RD_OPT_REAL(adam_config, adam_beta1, beta1, "0.9", 0.0, 1.0, "decay of the first moment"),
 *         RD_OPT_END };
 *     const rd_option_group rd_group_adam = { "adam", "Adam, Kingma and Ba 2015", rows, sizeof(adam_config) }; */
#ifndef RD_OPTIONS_H
#define RD_OPTIONS_H

#include "rd/status.h"
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
    RD_MODE_PLAN = 64
} rd_mode;

typedef enum rd_option_type { RD_BOOL, RD_INT, RD_REAL, RD_STRING, RD_INTS } rd_option_type;

typedef struct rd_ints {
    int n;
    const int64_t *at;
} rd_ints; /* memory of the rd_config */

enum {
    RD_OPT_ACCEPTED = 1 /* read for compatibility, without effect; help says so */
};

typedef struct rd_option {
    const char *key;
    rd_option_type type;
    size_t at; /* offset of the field: bool, int64_t, double, const char *, rd_ints */
    size_t
        given_at; /* offset of a bool set to "has a value, not from the default"; SIZE_MAX: none */
    const char *
        def; /* default as JSON text ("0.9", "\"adam\"", "[50]"); NULL: none (zero bytes, not given) */
    unsigned required; /* rd_mode bits in which a missing key is an error */
    unsigned flags;
    double min, max; /* numbers, list elements: closed range */
    const char *const *
        choices; /* strings: NULL-ended list, matched without regard to case, stored in the list's spelling */
    const char *help;
} rd_option;

typedef struct rd_option_group {
    const char *name, *about;
    const rd_option *options; /* ends with RD_OPT_END */
    size_t struct_bytes;
} rd_option_group;

#define RD_OPT_(T, ky, field, ty, d, req, lo, hi, ch, hlp)                                    \
    {                                                                                         \
        .key = #ky, .type = (ty), .at = offsetof(T, field), .given_at = SIZE_MAX, .def = (d), \
        .required = (req), .min = (lo), .max = (hi), .choices = (ch), .help = (hlp)           \
    }
#define RD_OPT_BOOL(T, key, field, d, help) RD_OPT_(T, key, field, RD_BOOL, d, 0, 0, 0, NULL, help)
#define RD_OPT_INT(T, key, field, d, lo, hi, help) \
    RD_OPT_(T, key, field, RD_INT, d, 0, lo, hi, NULL, help)
#define RD_OPT_REAL(T, key, field, d, lo, hi, help) \
    RD_OPT_(T, key, field, RD_REAL, d, 0, lo, hi, NULL, help)
#define RD_OPT_STRING(T, key, field, d, help) \
    RD_OPT_(T, key, field, RD_STRING, d, 0, 0, 0, NULL, help)
#define RD_OPT_CHOICE(T, key, field, d, list, help) \
    RD_OPT_(T, key, field, RD_STRING, d, 0, 0, 0, list, help)
#define RD_OPT_INTS(T, key, field, d, lo, hi, help) \
    RD_OPT_(T, key, field, RD_INTS, d, 0, lo, hi, NULL, help)
/* Rows that need more (required, given_at, flags) are written with RD_OPT_ and designated initialisers. */
#define RD_OPT_END  \
    {               \
        .key = NULL \
    }

typedef struct rd_config rd_config;

/* Parses JSON text (Jansson). path: for messages only. Errors, all RD_EUSAGE, as "path:line:column: what; what to do":
 * syntax, not an object, duplicate key, unknown key (with the nearest known key), wrong type (a JSON integer is fine for a
 * RD_REAL, an integral real like 64.0 for a RD_INT), out of range, an empty list, not one of the choices. All keys are checked against
 * all groups at once. With allow_unknown, unknown keys are collected instead (rd_config_unknown) and kept. UTF-8 BOM and
 * CRLF are accepted. The key "$schema" (for editors) is passed over. A key may be in several groups, with the same type
 * and default (else RD_EBUG, as for a default that breaks its own row); its value must please all of them. The caller
 * owns *out. */
rd_code rd_config_new(const char *path, const char *text, size_t n,
                      const rd_option_group *const *groups, int n_groups, bool allow_unknown,
                      rd_config **out, rd_status *st);
void rd_config_free(rd_config *c);

/* "key=value" from --set: value is JSON, or a bare word for a string; null takes the file's value away, so that the default
 * counts (a text of these four letters is written "null", in quotes). Checked as above; the message names --set. */
rd_code rd_config_set(rd_config *c, const char *assignment, rd_status *st);
/* The program's own word (flags such as --lr, forced keys); source is shown by --print_config, e.g. "--lr", "forced". */
rd_code rd_config_put(rd_config *c, const char *key, json_t *value_stolen, const char *source,
                      rd_status *st);
void rd_config_drop(rd_config *c, const char *key); /* as if it had not been written */
bool rd_config_has(const rd_config *c,
                   const char *key); /* written in the file, set or put; not a mere default */
const json_t *rd_config_get(const rd_config *c,
                            const char *key); /* borrowed; the default's value too; NULL: none */
const char *rd_config_unknown(const rd_config *c, int i); /* i-th unknown key, NULL past the end */
/* "x.json:12:5" of a key, or "--set", "default", "not set", or a source given to rd_config_put: for messages of checks
 * made elsewhere. Borrowed. */
const char *rd_config_where(const rd_config *c, const char *key);

/* Fills the group's struct (zeroed first). mode: for `required`. A string value may hold "[NAME_LOCATION]" placeholders,
 * replaced by the value of the key `data_location` when that is set (a placeholder is '[' upper-case letters, digits, '_',
 * ending in "DATA_LOCATION]"). Strings and lists are borrowed from c. Missing required key: RD_EUSAGE, names key, help. */
rd_code rd_config_read(const rd_config *c, const rd_option_group *g, rd_mode mode, void *out,
                       rd_status *st);

/* The first "[..DATA_LOCATION]" that is still inside a string after rd_config_read, as a pointer to its '[' (the rest of
 * the string follows); NULL: none. Who cannot open such a file says "set it with --set data_location=DIR". */
const char *rd_config_placeholder(const char *path);

/* Effective config as JSON {"key": {"value": v, "source": "where"}, ...} in table order, then unknown keys that were
 * allowed; a key without value and default has the value null and the source "not set". The caller owns it; NULL: out of
 * memory. */
json_t *rd_config_effective(const rd_config *c);
void rd_config_write(const rd_config *c,
                     FILE *out); /* the same as text, a key per line, numbers short and exact */
void rd_config_print(const rd_config *c,
                     FILE *out); /* for people: key = value, from where, default, range */
void rd_options_help(const rd_option_group *const *groups, int n,
                     FILE *out); /* keys by group, 120 columns */
void rd_options_markdown(const rd_option_group *const *groups, int n,
                         FILE *out); /* README's table */
/* JSON schema draft 2020-12; the caller owns it; NULL: out of memory. Dump with JSON_REAL_PRECISION(15). */
json_t *rd_options_schema(const rd_option_group *const *groups, int n);
/* The known word nearest to `word` by Damerau-Levenshtein distance; NULL when none is near (distance > 1 + length / 4). */
const char *rd_nearest(const char *word, const char *const *known, int n);

RD_C_END
#endif
