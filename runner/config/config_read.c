/* config_read.c -- fills the struct of a module from the config. The values are checked already. */
#include "config_impl.h"
#include <ctype.h>
#include <string.h>

/* Returns the number of bytes of the placeholder "[..DATA_LOCATION]" at the begin of s; 0: none. */
static size_t placeholder_bytes(const char *s)
{
    static const char tail[] = "DATA_LOCATION";
    if (s[0] != '[') return 0;
    size_t n = 1;
    while (isupper((unsigned char)s[n]) || isdigit((unsigned char)s[n]) || s[n] == '_') n++;
    const size_t len = sizeof tail - 1;
    return s[n] == ']' && n - 1 >= len && !strncmp(s + n - len, tail, len) ? n + 1 : 0;
}

const char *rd_config_placeholder(const char *path)
{
    for (; *path; path++)
        if (placeholder_bytes(path)) return path;
    return NULL;
}

/* Copies s into the pool and replaces its placeholders by `location`, unless that is NULL. */
static rd_code copy_string(const rd_config *c, const char *s, const char *location,
                           const char **out, rd_status *st)
{
    size_t n = 1;
    for (size_t i = 0; s[i];) {
        const size_t skip = location ? placeholder_bytes(s + i) : 0;
        n += skip ? strlen(location) : 1;
        i += skip ? skip : 1;
    }
    char *copy = NULL, *to;
    if (rd_arena_get(c->pool, n, &copy, st) != RD_OK) return st->code;
    to = copy;
    for (size_t i = 0; s[i];) {
        const size_t skip = location ? placeholder_bytes(s + i) : 0;
        if (skip)
            to = stpcpy(to, location);
        else
            *to++ = s[i];
        i += skip ? skip : 1;
    }
    *to = '\0';
    *out = copy;
    return RD_OK;
}

static rd_code copy_ints(const rd_config *c, const json_t *list, rd_ints *out, rd_status *st)
{
    const size_t n = json_array_size(list);
    int64_t *at = NULL;
    if (n > 1000000)
        return rd_fail(st, RD_EUSAGE, "a list of %zu numbers; 1000000 are the most", n);
    if (rd_arena_get(c->pool, (n ? n : 1) * sizeof *at, &at, st) != RD_OK) return st->code;
    for (size_t i = 0; i < n; i++) at[i] = rd_option_int(json_array_get(list, i));
    *out = (rd_ints){.n = (int)n, .at = at};
    return RD_OK;
}

/* A single name becomes a list of one; "" becomes an empty list. */
static rd_code copy_paths(const rd_config *c, const json_t *v, const char *location, rd_paths *out,
                          rd_status *st)
{
    const size_t n = json_is_array(v) ? json_array_size(v) : json_string_value(v)[0] != '\0';
    const char **at = NULL;
    if (n > 1000000)
        return rd_fail(st, RD_EUSAGE, "a list of %zu file names; 1000000 are the most", n);
    if (rd_arena_get(c->pool, (n ? n : 1) * sizeof *at, &at, st) != RD_OK) return st->code;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(v) ? json_array_get(v, i) : v;
        if (copy_string(c, json_string_value(one), location, &at[i], st) != RD_OK) return st->code;
    }
    *out = (rd_paths){.n = (int)n, .at = at};
    return RD_OK;
}

static rd_code config_read_fill(const rd_config *c, const rd_option *o, const json_t *v,
                                const char *location, char *to, rd_status *st)
{
    switch (o->type) {
    case RD_BOOL:
        *(bool *)(void *)to = json_is_true(v);
        break;
    case RD_INT:
        *(int64_t *)(void *)to = rd_option_int(v);
        break;
    case RD_REAL:
        *(double *)(void *)to = json_number_value(v);
        break;
    case RD_INTS:
        return copy_ints(c, v, (rd_ints *)(void *)to, st);
    case RD_PATHS:
        return copy_paths(c, v, location, (rd_paths *)(void *)to, st);
    case RD_STRING: {
        const char **s = (const char **)(void *)to;
        if (!o->choices)
            return copy_string(c, json_string_value(v),
                               strcmp(o->key, "data_location") ? location : NULL, s, st);
        *s = o->choices[rd_option_choice(o, json_string_value(v))];
        break;
    }
    case RD_ENUM:
        *(int *)(void *)to = rd_option_choice(o, json_string_value(v));
        break;
    }
    return RD_OK;
}

static const char *mode_name(rd_mode mode)
{
    switch (mode) {
    case RD_MODE_TRAIN:
        return "train";
    case RD_MODE_EVAL:
        return "eval";
    case RD_MODE_INFER:
        return "infer";
    case RD_MODE_TRAIN_EVAL:
        return "train_eval";
    case RD_MODE_BENCH:
        return "bench";
    case RD_MODE_DOCTOR:
        return "doctor";
    case RD_MODE_PLAN:
        return "plan";
    case RD_MODE_PREPARE:
        return "prepare";
    case RD_MODE_RUNS:
        return "runs";
    case RD_MODE_DIFF:
        return "diff";
    case RD_MODE_SHOW:
        return "show";
    case RD_MODE_REPORT:
        return "report";
    case RD_MODE_AVERAGE:
        return "average";
    case RD_MODE_EXPORT:
        return "export";
    }
    return "?";
}

/* Appends a key to the list of missing ones, each key once. */
static void missing_add(rd_strbuf *also, const char *key)
{
    char quoted[RD_SHOWN_BYTES];
    snprintf(quoted, sizeof quoted, "'%.80s'", key);
    if (!strstr(rd_strbuf_str(also), quoted))
        rd_strbuf_printf(also, "%s%s", also->n ? ", " : "; missing too: ", quoted);
}

rd_code rd_config_check_required(const rd_config *c, const rd_option_group *const *groups, int n,
                                 rd_mode mode, const char *const *also, rd_status *st)
{
    const rd_option *first = NULL;
    rd_strbuf list = {0};
    for (int i = 0; i < n && !first; i++)
        for (const rd_option *o = groups[i]->options; o->key && !first; o++)
            if ((o->required & (unsigned)mode) != 0 && !rd_config_get(c, o->key)) first = o;
    for (int i = 0; i < n && first; i++)
        for (const rd_option *o = groups[i]->options; o->key; o++) {
            bool needed = (o->required & (unsigned)mode) != 0;
            for (int k = 0; also && also[k] && !needed; k++) needed = !strcmp(also[k], o->key);
            if (needed && !rd_config_get(c, o->key) && strcmp(first->key, o->key) != 0)
                missing_add(&list, o->key);
        }
    if (first)
        rd_fail(st, RD_EUSAGE,
                "%s: key '%s' is missing, which mode %s needs; meaning: %.200s; add it, or give "
                "--set %s=VALUE%.600s",
                c->path, first->key, mode_name(mode), first->help ? first->help : "", first->key,
                rd_strbuf_str(&list));
    rd_strbuf_release(&list);
    return st->code;
}

rd_code rd_config_read(const rd_config *c, const rd_option_group *g, rd_mode mode, void *out,
                       rd_status *st)
{
    memset(out, 0, g->struct_bytes);
    return rd_config_read_more(c, g, mode, out, st);
}

rd_code rd_config_read_more(const rd_config *c, const rd_option_group *g, rd_mode mode, void *out,
                            rd_status *st)
{
    const char *location = json_string_value(rd_config_get(c, "data_location"));
    if (location && !*location) location = NULL;
    for (const rd_option *o = g->options; o->key; o++) {
        const rd_entry *e = rd_config_entry(c, o->key);
        if (!e)
            return rd_fail(st, RD_EBUG, "option group '%s' is not among the groups of the config",
                           g->name);
        const json_t *v = e->value ? e->value : e->def;
        if (!v && (o->required & (unsigned)mode))
            return rd_config_check_required(c, &g, 1, mode, NULL, st);
        if (v && config_read_fill(c, o, v, location, (char *)out + o->at, st) != RD_OK) {
            rd_status_prefix(st, "%s: '%s'", rd_config_where(c, o->key), o->key);
            return st->code;
        }
        if (o->given) *(bool *)(void *)((char *)out + o->given - 1) = e->value != NULL;
    }
    return RD_OK;
}
