/* sweep_spec.c -- reads the words of --sweep and lists the runs.
 *
 * A word is KEY=VALUES, random:N[:SEED], or a JSON file. The values of a key are a list, or a range
 * (log:a:b, lin:a:b, int:a:b, with the number of values as :n). Each key is one dimension of a
 * grid; the list "runs" of a file is one dimension, too. With random:N each run draws a value of
 * each dimension. Draw i depends on the seed and i alone, so a larger N keeps the first draws. */
#include "sweep_impl.h"
#include "../config/config_impl.h"
#include "rd/file.h"
#include "rd/hash.h"
#include "rd/input.h"
#include "rd/printable.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum range_kind { RANGE_NONE, RANGE_LOG, RANGE_LIN, RANGE_INT } range_kind;

/* One dimension. */
typedef struct dimension {
    char *key;      /* owned; "runs": the list of a file */
    json_t *points; /* owned; array of objects key -> text; empty: a range that only draws use */
    range_kind range;
    double lo, hi;
} dimension;

typedef struct spec {
    const rd_cli *cli;
    dimension *at; /* owned */
    int n;
    int64_t n_random, seed; /* n_random 0: the whole grid */
    bool random;
} spec;

static const char example[] = "--sweep learning_rate=1e-3,3e-3";

/* A text for messages. */
typedef struct shown {
    char s[120];
} shown;

static const char *show(const char *s, size_t n, shown *out)
{
    return rd_printable(s, n, false, out->s, sizeof out->s);
}

char *sweep_canonical(const char *value)
{
    json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
    char *out = NULL;
    if (json_is_number(v)) {
        if (asprintf(&out, "%.17g", json_number_value(v)) < 0) out = NULL;
    } else if (v && !json_is_string(v)) {
        out = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
    } else if (asprintf(&out, "\"%s", v ? json_string_value(v) : value) < 0) {
        out = NULL;
    }
    json_decref(v);
    return out;
}

/* ---- dimensions ---- */

static rd_code spec_memory(rd_status *st)
{
    return rd_fail(st, RD_EENV, "out of memory for the runs of the sweep");
}

/* Fails unless a run may have its own value of the key. */
static rd_code check_key(const spec *s, const char *key, rd_status *st)
{
    const char *known[1024], *stands_for;
    int n = 0;
    shown k;
    const rd_cli *c = s->cli;
    bool there = false;
    for (int g = 0; g < c->n_groups; g++)
        for (const rd_option *o = c->groups[g]->options; o->key && n < 1024; o++) {
            known[n++] = o->key;
            there |= strcmp(o->key, key) == 0;
        }
    if (there) goto set_twice;
    if (rd_cli_is_flag(key, &stands_for) && stands_for)
        return rd_fail(st, RD_EUSAGE, "--sweep %s: '%s' is a flag; its key is '%s': --sweep %s=...",
                       key, key, stands_for, stands_for);
    if (rd_cli_is_flag(key, &stands_for))
        return rd_fail(st, RD_EUSAGE,
                       "--sweep %s: '%s' is a flag, which is equal for all runs; give --%s=... "
                       "beside --sweep",
                       key, key, key);
    const char *nearest = rd_nearest(key, known, n);
    return rd_fail(st, RD_EUSAGE, "--sweep %s: there is no such key; %s%s%s",
                   show(key, strlen(key), &k),
                   nearest ? "did you mean '" : "--help=keys lists them", nearest ? nearest : "",
                   nearest ? "'?" : "");
set_twice:
    for (int i = 0; i < c->n_set; i++)
        if (!strncmp(c->set[i], key, strlen(key)) && c->set[i][strlen(key)] == '=')
            return rd_fail(st, RD_EUSAGE, "'%s' is in --set and in --sweep; leave one of them out",
                           key);
    if ((c->lr_given && !strcmp(key, "learning_rate")) || (c->seed_given && !strcmp(key, "seed")))
        return rd_fail(st, RD_EUSAGE, "--%s sets '%s' for all runs; leave it or --sweep %s out",
                       c->lr_given && !strcmp(key, "learning_rate") ? "lr" : "seed", key, key);
    return RD_OK;
}

/* Fails if a dimension before has the key. */
static rd_code check_new_key(const spec *s, const char *key, rd_status *st)
{
    size_t k;
    json_t *point;
    for (int i = 0; i < s->n; i++) {
        bool has = strcmp(s->at[i].key, key) == 0;
        json_array_foreach(s->at[i].points, k, point) has |= json_object_get(point, key) != NULL;
        if (has)
            return rd_fail(st, RD_EUSAGE,
                           "--sweep has '%s' twice; write all its values in one list: --sweep "
                           "%s=1,2,3",
                           key, key);
    }
    return RD_OK;
}

static dimension *dimension_add(spec *s, const char *key, size_t n_key, rd_status *st)
{
    dimension *more = realloc(s->at, (size_t)(s->n + 1) * sizeof *more);
    if (more) s->at = more;
    dimension d = {.key = strndup(key, n_key), .points = json_array()};
    if (!more || !d.key || !d.points) {
        free(d.key);
        json_decref(d.points);
        spec_memory(st);
        return NULL;
    }
    s->at[s->n++] = d;
    return &s->at[s->n - 1];
}

/* Adds a value of a key. Fails if an equal one is there. */
static rd_code point_add(dimension *d, const char *text, rd_status *st)
{
    char *mine = sweep_canonical(text);
    size_t k;
    json_t *point;
    shown v;
    json_array_foreach(d->points, k, point)
    {
        char *other = sweep_canonical(json_string_value(json_object_get(point, d->key)));
        const bool same = mine && other && strcmp(mine, other) == 0;
        free(other);
        if (!same) continue;
        rd_fail(st, RD_EUSAGE, "--sweep %s: the value %s is there twice; leave one out", d->key,
                show(text, strlen(text), &v));
        goto done;
    }
    if (!mine || json_array_append_new(d->points, json_pack("{s:s}", d->key, text)) != 0)
        spec_memory(st);
done:
    free(mine);
    return st->code;
}

/* ---- ranges ---- */

static void number_text(range_kind kind, double v, char out[40])
{
    if (kind == RANGE_INT)
        (void)snprintf(out, 40, "%.0f", round(v));
    else
        (void)snprintf(out, 40, "%.4g", v);
}

/* Returns the value at a share 0 .. 1 of the range. */
static double range_at(const dimension *d, double share)
{
    if (d->range == RANGE_LOG) return exp(log(d->lo) + share * (log(d->hi) - log(d->lo)));
    if (d->range == RANGE_LIN) return d->lo + share * (d->hi - d->lo);
    const double v = d->lo + floor(share * (d->hi - d->lo + 1.0));
    return v > d->hi ? d->hi : v;
}

static bool range_number(const char **s, double *out)
{
    char *end;
    const bool begins = **s && strchr("+-.0123456789", **s);
    *out = strtod(*s, &end);
    const bool fine = begins && end > *s && isfinite(*out) && (*end == ':' || !*end);
    *s = *end == ':' ? end + 1 : end;
    return fine;
}

/* Reads "log:1e-4:1e-2" or "int:1:8:4" where text is one. *is false: it is a list of values. */
static rd_code range_read(dimension *d, const char *text, bool *is, rd_status *st)
{
    static const struct {
        const char *word;
        range_kind kind;
    } kinds[] = {{"log:", RANGE_LOG}, {"lin:", RANGE_LIN}, {"int:", RANGE_INT}};
    double count = 0.0;
    const char *p = NULL;
    shown v;
    for (size_t i = 0; i < 3; i++)
        if (!strncmp(text, kinds[i].word, 4)) {
            d->range = kinds[i].kind;
            p = text + 4;
        }
    *is = p != NULL;
    if (!p) return RD_OK;
    const char *name = show(text, strlen(text), &v);
    const bool two = range_number(&p, &d->lo) && *p && range_number(&p, &d->hi);
    const bool counted = two && *p;
    if (!two || (counted && (!range_number(&p, &count) || *p)))
        return rd_fail(st, RD_EUSAGE,
                       "--sweep %s: '%s' is no range; write %.3s:FROM:TO, or %.3s:FROM:TO:COUNT "
                       "for this number of values",
                       d->key, name, text, text);
    if (d->lo >= d->hi)
        return rd_fail(st, RD_EUSAGE, "--sweep %s: '%s' must rise: the smaller number comes first",
                       d->key, name);
    if (d->range == RANGE_LOG && d->lo <= 0.0)
        return rd_fail(st, RD_EUSAGE,
                       "--sweep %s: '%s' must be above 0, since log: takes logarithms; use lin:",
                       d->key, name);
    if (d->range == RANGE_INT && (d->lo != floor(d->lo) || d->hi != floor(d->hi) ||
                                  fabs(d->lo) > 1e15 || fabs(d->hi) > 1e15))
        return rd_fail(st, RD_EUSAGE, "--sweep %s: '%s' needs whole numbers; use lin:", d->key,
                       name);
    if (counted && (count < 2.0 || count > SWEEP_MOST_RUNS || count != floor(count) ||
                    (d->range == RANGE_INT && count > d->hi - d->lo + 1.0)))
        return rd_fail(st, RD_EUSAGE,
                       "--sweep %s: '%s': the last number counts the values: a whole number, 2 .. "
                       "%.0f",
                       d->key, name,
                       d->range == RANGE_INT ? fmin(d->hi - d->lo + 1.0, SWEEP_MOST_RUNS)
                                             : (double)SWEEP_MOST_RUNS);
    if (!counted && d->range == RANGE_INT && d->hi - d->lo < SWEEP_MOST_RUNS)
        count = d->hi - d->lo + 1.0;
    for (int i = 0; i < (int)count && st->code == RD_OK; i++) {
        char number[40];
        const double share = (double)i / (count - 1.0);
        const double at = d->range == RANGE_INT ? d->lo + share * (d->hi - d->lo)
                                                : range_at(d, share);
        number_text(d->range, at, number);
        (void)point_add(d, number, st);
    }
    return st->code;
}

/* ---- lists ---- */

/* Returns the length of the value at s: it ends at a comma outside of quotes and brackets. */
static size_t value_length(const char *s)
{
    int depth = 0;
    bool quoted = false;
    size_t i = 0;
    for (; s[i]; i++) {
        if (quoted && s[i] == '\\' && s[i + 1]) {
            i++;
            continue;
        }
        if (s[i] == '"') quoted = !quoted;
        if (quoted) continue;
        if (s[i] == '[' || s[i] == '{') depth++;
        if (s[i] == ']' || s[i] == '}') depth--;
        if (s[i] == ',' && depth <= 0) break;
    }
    return i;
}

static rd_code list_read(dimension *d, const char *text, rd_status *st)
{
    for (const char *s = text;;) {
        const size_t n = value_length(s);
        char *value = strndup(s, n);
        if (!value) return spec_memory(st);
        if (n == 0)
            rd_fail(st, RD_EUSAGE, "--sweep %s: %s; an example: %s", d->key,
                    *text ? "a value is empty, leave its comma out" : "there is no value", example);
        else
            (void)point_add(d, value, st);
        free(value);
        if (st->code != RD_OK || !s[n]) return st->code;
        s += n + 1;
    }
}

static rd_code read_values(spec *s, const char *key, size_t n_key, const char *text, rd_status *st)
{
    bool is_range;
    char *name = strndup(key, n_key);
    if (!name) return spec_memory(st);
    if (n_key == 0)
        rd_fail(st, RD_EUSAGE, "--sweep: the key before '=' is missing; an example: %s", example);
    if (st->code == RD_OK && check_key(s, name, st) == RD_OK) (void)check_new_key(s, name, st);
    free(name);
    RD_TRY(st->code);
    dimension *d = dimension_add(s, key, n_key, st);
    if (!d || range_read(d, text, &is_range, st) != RD_OK || is_range) return st->code;
    (void)list_read(d, text, st);
done:
    return st->code;
}

/* ---- random:N ---- */

static rd_code read_random(spec *s, const char *word, rd_status *st)
{
    const char *p = word + strlen("random:");
    double n = 0.0, seed = 0.0;
    shown v;
    if (s->random)
        return rd_fail(st, RD_EUSAGE, "--sweep has random: twice; leave one of them out");
    const bool fine = range_number(&p, &n) && (!*p || range_number(&p, &seed)) && !*p;
    if (!fine || n < 1.0 || n > SWEEP_MOST_RUNS || n != floor(n) || seed < 0.0 || seed > 0x1p53 ||
        seed != floor(seed))
        return rd_fail(st, RD_EUSAGE,
                       "--sweep %s: write random:N or random:N:SEED, with N runs, 1 .. %d, and a "
                       "whole number as seed",
                       show(word, strlen(word), &v), SWEEP_MOST_RUNS);
    s->random = true;
    s->n_random = (int64_t)n;
    s->seed = (int64_t)seed;
    return RD_OK;
}

/* ---- a file ---- */

/* Returns a value of the file as the text behind --set key=. The caller frees it. */
static char *set_text(const json_t *v)
{
    if (json_is_string(v)) {
        json_t *again = json_loads(json_string_value(v), JSON_DECODE_ANY, NULL);
        const bool bare = !again && json_string_value(v)[0];
        json_decref(again);
        if (bare) return strdup(json_string_value(v));
    }
    return json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
}

/* Reads one entry of "runs", an object of keys and values. */
static rd_code read_point(const spec *s, const json_t *run, json_t *point, rd_status *st)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)run, key, v)
    {
        RD_TRY(check_key(s, key, st));
        RD_TRY(check_new_key(s, key, st));
        char *text = set_text(v);
        if (!text || json_object_set_new(point, key, json_string(text)) != 0) spec_memory(st);
        free(text);
        RD_TRY(st->code);
    }
done:
    return st->code;
}

/* Reads the list "runs". */
static rd_code read_runs(spec *s, const char *path, const json_t *list, rd_status *st)
{
    size_t i;
    json_t *run, *points = json_array();
    shown p;
    if (!json_is_array(list) || json_array_size(list) == 0)
        rd_fail(st, RD_EUSAGE,
                "%s: 'runs' must be a list of objects, one for each run: [{\"seed\": 1}, "
                "{\"seed\": 2}]",
                show(path, strlen(path), &p));
    RD_TRY(st->code);
    json_array_foreach(list, i, run)
    {
        json_t *point = json_object();
        (void)json_array_append_new(points, point);
        if (!json_is_object(run))
            rd_fail(st, RD_EUSAGE,
                    "%s: entry %zu of 'runs' is no object; write {\"key\": value, ...}",
                    show(path, strlen(path), &p), i + 1);
        RD_TRY(st->code);
        RD_TRY(read_point(s, run, point, st));
    }
    dimension *d = dimension_add(s, "runs", 4, st);
    if (d) json_array_extend(d->points, points);
done:
    json_decref(points);
    return st->code;
}

static rd_code read_file_key(spec *s, const char *path, const char *key, const json_t *v,
                             rd_status *st)
{
    size_t i;
    json_t *one;
    shown p;
    if (!strcmp(key, "runs")) return read_runs(s, path, v, st);
    if (json_is_string(v)) return read_values(s, key, strlen(key), json_string_value(v), st);
    if (!json_is_array(v) || json_array_size(v) == 0)
        return rd_fail(st, RD_EUSAGE,
                       "%s: '%s' must be a list of values, or a text such as \"log:1e-4:1e-2\"",
                       show(path, strlen(path), &p), key);
    RD_TRY(check_key(s, key, st));
    RD_TRY(check_new_key(s, key, st));
    dimension *d = dimension_add(s, key, strlen(key), st);
    json_array_foreach(v, i, one)
    {
        char *text = set_text(one);
        if (!d || !text)
            spec_memory(st);
        else
            (void)point_add(d, text, st);
        free(text);
        RD_TRY(st->code);
    }
done:
    return st->code;
}

/* Reads {"key": [values] or "range", ..., "runs": [...], "random": N, "random_seed": S}. */
static rd_code read_sweep_file(spec *s, const char *path, rd_status *st)
{
    char *text = NULL, word[80];
    size_t n = 0;
    json_t *o = NULL, *v;
    rd_places places = {0};
    const char *key;
    shown p;
    RD_TRY(rd_file_read_limited(path, RD_EUSAGE, 16 << 20, "a sweep", &text, &n, st));
    RD_TRY(rd_json_load(path, text, n, &o, &places, st));
    if (json_object_size(o) == 0)
        rd_fail(st, RD_EUSAGE, "%s: there is no key; write {\"learning_rate\": [0.001, 0.003]}",
                show(path, strlen(path), &p));
    json_object_foreach(o, key, v)
    {
        if (!strcmp(key, "random_seed")) continue;
        if (strcmp(key, "random") != 0) {
            RD_TRY(read_file_key(s, path, key, v, st));
            continue;
        }
        const json_t *seed = json_object_get(o, "random_seed");
        if (!json_is_integer(v) || (seed && !json_is_integer(seed)))
            rd_fail(st, RD_EUSAGE, "%s: 'random' and 'random_seed' must be whole numbers",
                    show(path, strlen(path), &p));
        RD_TRY(st->code);
        (void)snprintf(word, sizeof word, "random:%" PRIi64 ":%" PRIi64,
                       (int64_t)json_integer_value(v),
                       seed ? (int64_t)json_integer_value(seed) : 0);
        RD_TRY(read_random(s, word, st));
    }
    if (json_object_get(o, "random_seed") && !s->random)
        rd_fail(st, RD_EUSAGE, "%s: 'random_seed' is for 'random'; give that too",
                show(path, strlen(path), &p));
done:
    json_decref(o);
    rd_places_release(&places);
    free(text);
    return st->code;
}

/* ---- runs ---- */

static rd_code run_add(sweep_list *l, json_t *set, rd_status *st)
{
    if (l->n == l->cap) {
        const int cap = 2 * l->cap + 16;
        sweep_run *more = realloc(l->at, (size_t)cap * sizeof *more);
        if (!more) {
            json_decref(set);
            return spec_memory(st);
        }
        l->at = more;
        l->cap = cap;
    }
    l->at[l->n++] = (sweep_run){.set = set, .code = -1, .paused = -1};
    return RD_OK;
}

/* Lists the whole grid: the last dimension changes fastest. */
static rd_code list_grid(const spec *s, sweep_list *out, rd_status *st)
{
    double n = 1.0;
    for (int i = 0; i < s->n; i++) {
        const size_t points = json_array_size(s->at[i].points);
        if (points == 0)
            return rd_fail(
                st, RD_EUSAGE,
                "--sweep %s: the range does not say how many values; write their number, "
                "as in log:1e-4:1e-2:5, or draw them: --sweep random:20",
                s->at[i].key);
        n *= (double)points;
    }
    if (n > SWEEP_MOST_RUNS)
        return rd_fail(st, RD_EUSAGE,
                       "--sweep has %.0f combinations, at most %d are allowed; give fewer values, "
                       "or --sweep random:50",
                       n, SWEEP_MOST_RUNS);
    for (int64_t k = 0; k < (int64_t)n && st->code == RD_OK; k++) {
        json_t *set = json_object();
        int64_t rest = (int64_t)n;
        int64_t at = k;
        for (int i = 0; i < s->n && set; i++) {
            const int64_t size = (int64_t)json_array_size(s->at[i].points);
            rest /= size;
            (void)json_object_update(set, json_array_get(s->at[i].points, (size_t)(at / rest)));
            at %= rest;
        }
        if (!set) return spec_memory(st);
        (void)run_add(out, set, st);
    }
    return st->code;
}

/* Returns a number 0 <= x < 1 of draw k for dimension i. */
static double draw(const spec *s, int64_t k, int i)
{
    const uint64_t h = rd_hash_numbers((uint64_t)s->seed, (uint64_t)k, (uint64_t)i, 77);
    return (double)(h >> 11) * 0x1p-53;
}

/* Returns a text that is equal for equal runs. The caller frees it. */
static char *run_identity(const json_t *set)
{
    rd_strbuf b = {0};
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)set, key, v)
    {
        char *value = sweep_canonical(json_string_value(v));
        rd_strbuf_printf(&b, "%s=%s\n", key, value ? value : "");
        free(value);
    }
    return b.s ? b.s : strdup("");
}

static rd_code list_random(const spec *s, sweep_list *out, rd_status *st)
{
    json_t *seen = json_object();
    const int64_t tries = 200 * s->n_random + 1000;
    for (int64_t k = 0; k < tries && out->n < s->n_random && st->code == RD_OK; k++) {
        json_t *set = json_object();
        for (int i = 0; i < s->n; i++) {
            const dimension *d = &s->at[i];
            const double x = draw(s, k, i);
            const size_t points = json_array_size(d->points);
            char number[40];
            number_text(d->range, d->range ? range_at(d, x) : 0.0, number);
            if (points > 0)
                (void)json_object_update(set,
                                         json_array_get(d->points, (size_t)(x * (double)points)));
            else
                (void)json_object_set_new(set, d->key, json_string(number));
        }
        char *id = run_identity(set);
        if (!id || json_object_get(seen, id)) {
            json_decref(set);
        } else {
            (void)json_object_set_new(seen, id, json_true());
            (void)run_add(out, set, st);
        }
        free(id);
    }
    json_decref(seen);
    if (st->code == RD_OK && out->n < s->n_random)
        rd_fail(st, RD_EUSAGE,
                "--sweep random:%" PRIi64 ": the values have only about %d combinations; leave "
                "random: out for all of them",
                s->n_random, out->n);
    return st->code;
}

static rd_code spec_word(spec *s, const char *word, rd_status *st)
{
    bool there = false;
    shown v;
    if (!rd_utf8_valid(word, strlen(word)))
        return rd_fail(st, RD_EUSAGE, "--sweep %s: not valid UTF-8; the config knows no other text",
                       show(word, strlen(word), &v));
    if (!strncmp(word, "random:", 7)) return read_random(s, word, st);
    const char *eq = strchr(word, '=');
    if (eq && !memchr(word, '/', (size_t)(eq - word)))
        return read_values(s, word, (size_t)(eq - word), eq + 1, st);
    RD_TRY(rd_path_there(word, &there, st));
    if (there) return read_sweep_file(s, word, st);
    rd_fail(st, RD_EUSAGE,
            "--sweep %s: neither KEY=VALUES, nor random:N, nor a file; an example: %s",
            show(word, strlen(word), &v), example);
done:
    return st->code;
}

rd_code sweep_spec_read(const rd_cli *cli, sweep_list *out, rd_status *st)
{
    spec s = {.cli = cli};
    *out = (sweep_list){0};
    for (int i = 0; i < cli->n_sweep; i++) RD_TRY(spec_word(&s, cli->sweep[i], st));
    if (s.n == 0)
        rd_fail(st, RD_EUSAGE, "--sweep random: needs keys to draw: add %s",
                "--sweep learning_rate=log:1e-4:1e-2");
    RD_TRY(st->code);
    (void)(s.random ? list_random(&s, out, st) : list_grid(&s, out, st));
done:
    for (int i = 0; i < s.n; i++) {
        free(s.at[i].key);
        json_decref(s.at[i].points);
    }
    free(s.at);
    return st->code;
}

void sweep_list_release(sweep_list *l)
{
    for (int i = 0; i < l->n; i++) {
        json_decref(l->at[i].set);
        json_decref(l->at[i].drop);
        free(l->at[i].name);
        free(l->at[i].folder);
    }
    free(l->at);
    *l = (sweep_list){0};
}
