/* config_impl.h -- what the files of this folder share. */
#ifndef RD_CONFIG_IMPL_H
#define RD_CONFIG_IMPL_H

#include "rd/arena.h"
#include "rd/options.h"
#include "rd/printable.h"

RD_C_BEGIN

enum { RD_SHOWN_BYTES = 96, RD_KIND_BYTES = 400 };
enum { RD_CONFIG_PATH_BYTES = 512 }; /* a longer path of a config is cut in messages */

/* ---- shown.c: foreign bytes in messages ---- */
/* Returns out with s[0..n) as it may go to a terminal. Control characters and invalid UTF-8 become
 * '?'; a text that is too long ends in "...". */
const char *rd_shown_bytes(const char *s, size_t n, char *out, size_t cap);
const char *rd_shown(const char *s, char out[RD_SHOWN_BYTES]);
/* Returns out with a JSON value in short; strings are in double quotes. */
const char *rd_shown_json(const json_t *v, char out[RD_SHOWN_BYTES]);
/* Returns out with the fewest digits that read back as x. */
const char *rd_shown_real(double x, char out[32]);

/* ---- json_text.c ---- */
typedef struct rd_place {
    char *key;                                /* owned; decoded */
    int64_t line, col, value_line, value_col; /* from 1; columns count characters */
} rd_place;
typedef struct rd_places {
    rd_place *at; /* owned; the keys of the outermost object in the order of the file */
    int n, cap;
} rd_places;
void rd_places_release(rd_places *p);
/* Returns whether Jansson failed because it got no memory. Jansson has a code for that, or leaves
 * no text. Inside a token it reports "invalid token", which cannot be told from a real one. */
bool rd_json_no_memory(const json_error_t *e);
/* ---- json_relaxed.c ---- */
/* Replaces comments and trailing commas in s[0..n) by blanks. A comment that does not end stays. */
void rd_json_relax(char *s, size_t n);

/* Parses one JSON object, in which comments and trailing commas may be. The caller owns *root and
 * *places. path: for messages. */
rd_code rd_json_load(const char *path, const char *text, size_t n, json_t **root, rd_places *places,
                     rd_status *st);

/* ---- option_value.c ---- */
/* Returns out with what a value of this option must be: "an integer, 1 .. 1000", "one of a, b". */
const char *rd_option_kind(const rd_option *o, char out[RD_KIND_BYTES]);
/* Is the key in a group in front of groups[group]? */
bool rd_option_seen_before(const rd_option_group *const *groups, int group, const char *key);
/* Checks that v fits the row, else RD_EUSAGE "at: 'key' must be ...". */
rd_code rd_option_check(const rd_option *o, const json_t *v, const char *at, rd_status *st);
/* Returns the index of s in the row's choices, whatever its case; -1: it is not there. */
int rd_option_choice(const rd_option *o, const char *s);
/* Returns an integer, or an integral real, as an integer. */
int64_t rd_option_int(const json_t *checked);
/* Is k in the closed range? Compares integers: as a double, 2^53 + 1 would be 2^53. */
bool rd_int_within(int64_t k, double min, double max);
/* Writes the range, "1 .. 1000". False: there is no limit. */
bool rd_option_range(const rd_option *o, char out[RD_KIND_BYTES]);

/* ---- the config ---- */
typedef struct rd_entry {
    const rd_option *o; /* borrowed: the first row with this key */
    json_t *def;        /* owned; NULL: no default */
    json_t *value;      /* owned; NULL: not given */
    char *where;        /* owned; of the value, or of what removed it */
    bool written;       /* the value is of the file or --set */
    rd_origin origin;   /* of the value, or of what removed it */
    int turn;           /* a later file has a larger one, --set and flags the largest */
} rd_entry;
enum { RD_TURN_LAST = 1 << 20 };
typedef struct rd_unknown {
    char *key, *where; /* owned */
    json_t *value;     /* owned */
} rd_unknown;
struct rd_config {
    char *path;                     /* owned; of the file that is read */
    rd_origin origin;               /* of its keys */
    int turn;                       /* its number */
    const rd_option_group **groups; /* owned list of borrowed groups */
    int n_groups;
    rd_entry *entry;   /* owned; one per key, in table order */
    const char **keys; /* owned list, as in entry: for the search of the nearest */
    int n;
    rd_unknown *unknown; /* owned */
    int n_unknown, cap_unknown;
    json_t *unknown_at; /* key -> its place in unknown; owned, NULL while there is none */
    bool allow_unknown;
    bool (*is_flag)(const char *name, const char **key); /* NULL: there are no flags */
    rd_arena *pool; /* owned: strings and lists handed out by rd_config_read */
};
/* Returns the entry of a key; NULL: the key is unknown. */
rd_entry *rd_config_entry(const rd_config *c, const char *key);
/* Reads another file into the config: its keys replace those that are there, and null removes
 * them. After a failure the config can only be freed. */
rd_code rd_config_add(rd_config *c, const char *path, const char *text, size_t n, rd_status *st);

/* ---- config_record.c: config.json of a log folder ---- */
/* Is it such a record, {"key": {"value": v, "source": "where"}, ...}? */
bool rd_config_is_record(const json_t *root);
/* What a key of a record means for the config. */
typedef enum rd_recorded {
    RD_RECORDED_SET,     /* the user had set it */
    RD_RECORDED_DEFAULT, /* a value that nobody set: a default of that version */
    RD_RECORDED_NOT      /* it had no value, or the program sets it by itself */
} rd_recorded;
/* Sets *value (borrowed) to the value of an entry of a record. */
rd_recorded rd_config_recorded(const json_t *entry, const json_t **value);

RD_C_END
#endif
