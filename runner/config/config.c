/* config.c -- the config: the default, the value and the source of each key of the option tables.
 *
 * Values are checked when they come in (file, --set, program). Readers of the config can rely on
 * them. */
#include "config_impl.h"
#include "rd/cli.h"
#include "rd/home_path.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char rd_openseq2seq_sign[] = "num_gpus";

static rd_code config_no_memory(rd_status *st)
{
    return rd_fail(st, RD_EENV, "out of memory for the config");
}

/* The caller owns the text. NULL: out of memory. */
static RD_PRINTF(1, 2) char *text_of(const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;
    va_start(ap, fmt);
    const int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    return n < 0 ? NULL : s;
}

rd_entry *rd_config_entry(const rd_config *c, const char *key)
{
    for (int i = 0; i < c->n; i++)
        if (!strcmp(c->entry[i].o->key, key)) return &c->entry[i];
    return NULL;
}

/* ---- tables ---- */

static rd_code add_row(rd_config *c, const rd_option *o, const char *group, rd_status *st)
{
    rd_entry *e = rd_config_entry(c, o->key);
    if (e) {
        const bool same_default = (!e->o->def && !o->def) ||
                                  (e->o->def && o->def && !strcmp(e->o->def, o->def));
        if (e->o->type == o->type && same_default) return RD_OK;
        return rd_fail(
            st, RD_EBUG,
            "key '%s' of option group '%s' has another type or default than in an earlier group",
            o->key, group);
    }
    e = &c->entry[c->n];
    *e = (rd_entry){.o = o};
    c->keys[c->n++] = o->key;
    if (!o->def) return RD_OK;
    json_error_t why;
    e->def = json_loads(o->def, JSON_DECODE_ANY, &why);
    if (!e->def && rd_json_no_memory(&why)) return config_no_memory(st);
    if (!e->def)
        return rd_fail(st, RD_EBUG, "default of '%s' in option group '%s' is not JSON: %s", o->key,
                       group, o->def);
    rd_status bad = {0};
    if (rd_option_check(o, e->def, "default", &bad) != RD_OK)
        return rd_fail(st, RD_EBUG, "option group '%s': %s", group, bad.msg);
    return RD_OK;
}

static rd_code read_tables(rd_config *c, const rd_option_group *const *groups, int n_groups,
                           rd_status *st)
{
    size_t n = 1;
    for (int i = 0; i < n_groups; i++)
        for (const rd_option *o = groups[i]->options; o->key; o++) n++;
    c->entry = calloc(n, sizeof *c->entry);
    c->keys = calloc(n, sizeof *c->keys);
    c->groups = calloc((size_t)n_groups + 1, sizeof *c->groups);
    if (!c->entry || !c->keys || !c->groups) return config_no_memory(st);
    for (int i = 0; i < n_groups; i++) {
        c->groups[i] = groups[i];
        for (const rd_option *o = groups[i]->options; o->key; o++)
            if (add_row(c, o, groups[i]->name, st) != RD_OK) return st->code;
    }
    c->n_groups = n_groups;
    return RD_OK;
}

/* ---- values ---- */

static rd_code check_all(const rd_config *c, const char *key, const json_t *v, const char *at,
                         rd_status *st)
{
    for (int i = 0; i < c->n_groups; i++)
        for (const rd_option *o = c->groups[i]->options; o->key; o++)
            if (!strcmp(o->key, key) && rd_option_check(o, v, at, st) != RD_OK) return st->code;
    return RD_OK;
}

/* Who gives a value. */
typedef struct config_giver {
    bool written; /* see rd_entry */
    rd_origin origin;
    int turn;
} config_giver;
static const config_giver by_set = {true, RD_ORIGIN_SET, RD_TURN_LAST};

/* Takes value and where, also on failure. where NULL: out of memory. */
static rd_code take_value(rd_entry *e, json_t *value, char *where, config_giver by, rd_status *st)
{
    if (!where) {
        json_decref(value);
        return config_no_memory(st);
    }
    json_decref(e->value);
    free(e->where);
    e->value = value;
    e->where = where;
    e->written = by.written && value;
    e->origin = by.origin;
    e->turn = by.turn;
    return RD_OK;
}

/* Writes what the user may have meant by an unknown key. */
static void meant_instead(const rd_config *c, const char *key, char *out, size_t n)
{
    const char *of_flag = NULL, *nearest = rd_nearest(key, c->keys, c->n);
    if (c->is_flag && c->is_flag(key, &of_flag)) {
        if (of_flag && rd_config_entry(c, of_flag))
            snprintf(out, n, "did you mean the flag '--%s' or the key '%s'?", key, of_flag);
        else
            snprintf(out, n, "did you mean the flag '--%s'?", key);
    } else if (nearest) {
        snprintf(out, n, "did you mean '%s'?", nearest);
    } else {
        snprintf(out, n, "--help=keys lists the keys");
    }
}

/* Refuses an unknown key, and names the nearest known one, or keeps it aside. Takes value and
 * where. */
static rd_code unknown_key(rd_config *c, const char *key, json_t *value, char *where,
                           const char *at, rd_status *st)
{
    char shown[RD_SHOWN_BYTES], near[2 * RD_SHOWN_BYTES + 48];
    if (!where) {
        (void)config_no_memory(st);
        goto drop;
    }
    if (!c->allow_unknown) {
        meant_instead(c, key, near, sizeof near);
        (void)rd_fail(st, RD_EUSAGE,
                      "%s: unknown key '%s'; %s (--allow_unknown_keys turns this into a warning)",
                      at, rd_shown(key, shown), near);
        goto drop;
    }
    const json_t *at_before = json_object_get(c->unknown_at, key);
    if (at_before) { /* --set after the file */
        rd_unknown *u = &c->unknown[json_integer_value(at_before)];
        json_decref(u->value);
        free(u->where);
        u->value = value;
        u->where = where;
        return RD_OK;
    }
    if (!c->unknown_at) c->unknown_at = json_object();
    if (c->n_unknown == c->cap_unknown) {
        const int cap = 2 * c->cap_unknown + 16;
        rd_unknown *more = realloc(c->unknown, (size_t)cap * sizeof *more);
        if (!more) {
            (void)config_no_memory(st);
            goto drop;
        }
        c->unknown = more;
        c->cap_unknown = cap;
    }
    char *copy = strdup(key);
    if (!copy || json_object_set_new(c->unknown_at, key, json_integer(c->n_unknown)) != 0) {
        free(copy);
        (void)config_no_memory(st);
        goto drop;
    }
    c->unknown[c->n_unknown++] = (rd_unknown){.key = copy, .where = where, .value = value};
    return RD_OK;
drop:
    json_decref(value);
    free(where);
    return st->code;
}

/* Replaces "~/" by the home folder, and finds files of configs/ beside the program. *out: owned;
 * NULL: the path stays as it is. */
static rd_code expand_path(const char *path, const char *at, char **out, rd_status *st)
{
    char found[8192];
    RD_TRY(rd_home_path(path, at, out, st));
    if (*out || !rd_installed_path(path, found)) return RD_OK;
    *out = strdup(found);
    if (!*out) (void)config_no_memory(st);
done:
    return st->code;
}

/* Does that for each path of a list. */
static rd_code expand_homes(json_t *list, const char *at, rd_status *st)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        char *path = NULL;
        const char *s = json_string_value(json_array_get(list, i));
        if (expand_path(s, at, &path, st) != RD_OK) return st->code;
        if (!path) continue;
        json_t *whole = json_string(path);
        free(path);
        if (!whole || json_array_set_new(list, i, whole) != 0) return config_no_memory(st);
    }
    return RD_OK;
}

/* Does that for the value of a key. Takes over *v, and may replace it. */
static rd_code expand_home(const rd_option *o, json_t **v, const char *at, rd_status *st)
{
    char *path = NULL;
    if (!o->path) return RD_OK;
    if (o->type == RD_PATHS && json_is_array(*v)) return expand_homes(*v, at, st);
    if (!json_is_string(*v)) return RD_OK;
    if (expand_path(json_string_value(*v), at, &path, st) != RD_OK || !path) return st->code;
    json_t *whole = json_string(path);
    free(path);
    if (!whole) return config_no_memory(st);
    json_decref(*v);
    *v = whole;
    return RD_OK;
}

/* Sets a key that the file has at a place. record: the file is config.json of a log folder. */
static rd_code read_key(rd_config *c, const rd_place *p, const json_t *written, bool record,
                        bool on_base, rd_status *st)
{
    char at[RD_CONFIG_PATH_BYTES + 48];
    rd_entry *e = rd_config_entry(c, p->key);
    const json_t *v = written;
    const rd_recorded how = record ? rd_config_recorded(written, &v) : RD_RECORDED_SET;
    if (how == RD_RECORDED_NOT) return RD_OK;
    if (how == RD_RECORDED_DEFAULT && (!e || (e->def && json_equal(e->def, v)))) return RD_OK;
    snprintf(at, sizeof at, "%s:%" PRId64 ":%" PRId64, c->path, p->line, p->col);
    char *where = strdup(at);
    json_t *mine = json_incref((json_t *)(uintptr_t)v);
    const config_giver by = {how == RD_RECORDED_SET, c->origin, c->turn};
    if (!e) return unknown_key(c, p->key, mine, where, at, st);
    if (on_base && json_is_null(v)) {
        json_decref(mine);
        return take_value(e, NULL, where, by, st);
    }
    if (take_value(e, mine, where, by, st) != RD_OK) return st->code;
    snprintf(at, sizeof at, "%s:%" PRId64 ":%" PRId64, c->path, p->value_line, p->value_col);
    if (check_all(c, p->key, v, at, st) != RD_OK) return st->code;
    return expand_home(e->o, &e->value, at, st);
}

static rd_code config_read_text(rd_config *c, const char *text, size_t n, bool on_base,
                                rd_status *st)
{
    json_t *root = NULL;
    rd_places places;
    RD_TRY(rd_json_load(c->path, text, n, &root, &places, st));
    const bool record = rd_config_is_record(root);
    c->turn++;
    c->origin = record                                       ? RD_ORIGIN_RECORD
                : json_object_get(root, rd_openseq2seq_sign) ? RD_ORIGIN_OPENSEQ2SEQ
                                                             : RD_ORIGIN_FILE;
    for (int i = 0; i < places.n; i++) {
        const char *key = places.at[i].key;
        const json_t *v = json_object_get(root, key);
        /* "$schema" tells editors where schema.json is. The caller has read the base before. */
        if (json_is_string(v) && (!strcmp(key, "$schema") || !strcmp(key, "base"))) continue;
        RD_TRY(read_key(c, &places.at[i], v, record, on_base, st));
    }
done:
    json_decref(root);
    rd_places_release(&places);
    return st->code;
}

rd_code rd_config_add(rd_config *c, const char *path, const char *text, size_t n, rd_status *st)
{
    rd_shown_bytes(path, strlen(path), c->path, RD_CONFIG_PATH_BYTES);
    return config_read_text(c, text, n, true, st);
}

rd_code rd_config_new(const char *path, const char *text, size_t n,
                      const rd_option_group *const *groups, int n_groups, bool allow_unknown,
                      rd_config **out, rd_status *st)
{
    return rd_config_new_with_flags(path, text, n, groups, n_groups, allow_unknown, NULL, out, st);
}

rd_code rd_config_new_with_flags(const char *path, const char *text, size_t n,
                                 const rd_option_group *const *groups, int n_groups,
                                 bool allow_unknown,
                                 bool (*is_flag)(const char *name, const char **key),
                                 rd_config **out, rd_status *st)
{
    rd_config *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return config_no_memory(st);
    c->allow_unknown = allow_unknown;
    c->is_flag = is_flag;
    c->path = calloc(1, RD_CONFIG_PATH_BYTES);
    if (!c->path) {
        (void)config_no_memory(st);
        goto done;
    }
    if (!path) path = "config";
    rd_shown_bytes(path, strlen(path), c->path, RD_CONFIG_PATH_BYTES);
    RD_TRY(rd_arena_new(4096, &c->pool, st));
    RD_TRY(read_tables(c, groups, n_groups, st));
    RD_TRY(config_read_text(c, text, n, false, st));
    *out = c;
    return RD_OK;
done:
    rd_config_free(c);
    return st->code;
}

void rd_config_free(rd_config *c)
{
    if (!c) return;
    for (int i = 0; i < c->n; i++) {
        json_decref(c->entry[i].def);
        json_decref(c->entry[i].value);
        free(c->entry[i].where);
    }
    for (int i = 0; i < c->n_unknown; i++) {
        free(c->unknown[i].key);
        free(c->unknown[i].where);
        json_decref(c->unknown[i].value);
    }
    free(c->entry);
    free(c->keys);
    json_decref(c->unknown_at);
    free(c->unknown);
    free(c->groups);
    free(c->path);
    rd_arena_free(c->pool);
    free(c);
}

rd_code rd_config_put(rd_config *c, const char *key, json_t *value, const char *source,
                      rd_status *st)
{
    rd_entry *e = rd_config_entry(c, key);
    if (!value) return config_no_memory(st); /* json_real(...) of the caller failed */
    if (!e) {
        json_decref(value);
        return rd_fail(st, RD_EBUG, "the program sets key '%s', which is in no option table", key);
    }
    if (check_all(c, key, value, source, st) != RD_OK ||
        expand_home(e->o, &value, source, st) != RD_OK) {
        json_decref(value);
        return st->code;
    }
    /* A flag counts as --set does. A value in another spelling stays where it was. */
    config_giver by = {false, RD_ORIGIN_NONE, 0};
    if (!strncmp(source, "--", 2)) by = (config_giver){false, RD_ORIGIN_SET, RD_TURN_LAST};
    if (e->where && !strcmp(source, e->where)) by = (config_giver){false, e->origin, e->turn};
    return take_value(e, value, strdup(source), by, st);
}

/* ---- --set ---- */

/* Reads the right side of --set: JSON, or a bare word for a string, or 10,20 for a list. */
static rd_code parse_word(const rd_option *o, const char *s, const char *at, json_t **out,
                          rd_status *st)
{
    const bool quoted = s[0] == '"';
    json_error_t e;
    *out = NULL;
    /* A file may be called "[x]": only what begins as a list of strings is one. */
    const bool names = o && o->type == RD_PATHS && s[0] == '[' && s[1 + strspn(s + 1, " ")] == '"';
    if (o && (o->type == RD_STRING || o->type == RD_ENUM || o->type == RD_PATHS) && !quoted &&
        !names) {
        *out = json_string(s);
        return *out ? RD_OK : config_no_memory(st);
    }
    *out = json_loads(s, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &e);
    if (*out && (!o || o->type != RD_INTS || json_is_array(*out))) return RD_OK;
    if (o && o->type == RD_INTS && s[0] != '[') {
        char *list = text_of("[%s]", s);
        json_decref(*out);
        *out = list ? json_loads(list, 0, &e) : NULL;
        free(list);
        if (*out) return RD_OK;
        if (!list || rd_json_no_memory(&e)) return config_no_memory(st);
    }
    if (rd_json_no_memory(&e)) return config_no_memory(st);
    if (quoted)
        return rd_fail(st, RD_EUSAGE,
                       "%s: the value begins with a double quote but is not a JSON string", at);
    *out = json_string(s); /* a wrong type: the check reports it */
    return *out ? RD_OK : config_no_memory(st);
}

rd_code rd_config_set(rd_config *c, const char *assignment, rd_status *st)
{
    char at[RD_SHOWN_BYTES + 8] = "--set ", *key = NULL;
    json_t *v = NULL;
    rd_shown(assignment, at + strlen(at));
    const char *eq = strchr(assignment, '=');
    if (!eq || eq == assignment)
        return rd_fail(st, RD_EUSAGE,
                       "%s: not of the form key=value; an example: --set batch_size=32", at);
    if (!rd_utf8_valid(assignment, strlen(assignment)))
        return rd_fail(st, RD_EUSAGE, "%s: not valid UTF-8; the config knows no other text", at);
    key = strndup(assignment, (size_t)(eq - assignment));
    if (!key) return config_no_memory(st);
    rd_entry *e = rd_config_entry(c, key);
    if (!e && !c->allow_unknown) {
        (void)unknown_key(c, key, NULL, strdup("--set"), at, st);
        goto done;
    }
    if (e && !strcmp(eq + 1, "null")) {
        (void)take_value(e, NULL, strdup("--set"), by_set, st);
        goto done;
    }
    RD_TRY(parse_word(e ? e->o : NULL, eq + 1, at, &v, st));
    if (!e) {
        (void)unknown_key(c, key, v, strdup("--set"), at, st);
        v = NULL;
        goto done;
    }
    RD_TRY(check_all(c, key, v, at, st));
    RD_TRY(expand_home(e->o, &v, at, st));
    (void)take_value(e, v, strdup("--set"), by_set, st);
    v = NULL;
done:
    json_decref(v);
    free(key);
    return st->code;
}

/* ---- look-up ---- */

void rd_config_drop(rd_config *c, const char *key)
{
    rd_entry *e = rd_config_entry(c, key);
    if (!e) return;
    json_decref(e->value);
    free(e->where);
    e->value = NULL;
    e->where = NULL;
    e->written = false;
    e->origin = RD_ORIGIN_NONE;
    e->turn = 0;
}

bool rd_config_has(const rd_config *c, const char *key)
{
    const rd_entry *e = rd_config_entry(c, key);
    return e && e->value;
}

const json_t *rd_config_get(const rd_config *c, const char *key)
{
    const rd_entry *e = rd_config_entry(c, key);
    return !e ? NULL : e->value ? e->value : e->def;
}

int rd_config_choice(const rd_config *c, const char *key)
{
    const rd_entry *e = rd_config_entry(c, key);
    const char *word = json_string_value(rd_config_get(c, key));
    return word && e->o->choices ? rd_option_choice(e->o, word) : -1;
}

const char *rd_config_unknown(const rd_config *c, int i)
{
    return i >= 0 && i < c->n_unknown ? c->unknown[i].key : NULL;
}

const char *rd_config_where(const rd_config *c, const char *key)
{
    const rd_entry *e = rd_config_entry(c, key);
    if (e) return e->where ? e->where : e->def ? "default" : "not set";
    const json_t *at = json_object_get(c->unknown_at, key);
    return at ? c->unknown[json_integer_value(at)].where : "not set";
}

rd_origin rd_config_origin(const rd_config *c, const char *key)
{
    const rd_entry *e = rd_config_entry(c, key);
    return e ? e->origin : RD_ORIGIN_NONE;
}

/* Is the key one of OpenSeq2Seq, which its configs may have without an effect? */
static bool config_carried(const rd_config *c, const char *key)
{
    for (int i = 0; i < c->n_groups; i++)
        for (const rd_option *o = c->groups[i]->options; o->key; o++)
            if (!strcmp(o->key, key) && o->flags & RD_OPT_CARRIED) return true;
    return false;
}

bool rd_config_refuses(const rd_config *c, const char *key, const char *const *partners)
{
    const rd_entry *e = rd_config_entry(c, key);
    if (!e || c->allow_unknown) return false;
    for (int i = 0; partners && partners[i]; i++) {
        const rd_entry *p = rd_config_entry(c, partners[i]);
        if (p && p->turn > e->turn) return false;
    }
    return e->origin == RD_ORIGIN_SET || e->origin == RD_ORIGIN_FILE ||
           (e->origin == RD_ORIGIN_OPENSEQ2SEQ && !config_carried(c, key));
}
