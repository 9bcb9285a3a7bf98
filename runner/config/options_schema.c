/* options_schema.c -- the JSON schema of the config, draft 2020-12.
 *
 * Each key has its type, range and words. Rules below "allOf" say which keys go with which model,
 * dataset, optimizer, metric and learning-rate policy, as rd_config_check_owners does. A config
 * with a base may get its model from there, so the rules are for configs without one.
 *
 * A NULL anywhere makes json_object_set_new fail, which `ok` collects. */
#include "config_impl.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool schema_put(json_t *obj, const char *key, json_t *v)
{
    return json_object_set_new(obj, key, v) == 0;
}

static bool put_limits(json_t *obj, const rd_option *o)
{
    const bool whole = o->type != RD_REAL;
    bool ok = true;
    if (o->min > -INFINITY && !(whole && o->min <= -0x1p63))
        ok &= schema_put(obj, "minimum",
                         whole ? json_integer((json_int_t)o->min) : json_real(o->min));
    if (o->max < INFINITY && !(whole && o->max >= 0x1p63))
        ok &= schema_put(obj, "maximum",
                         whole ? json_integer((json_int_t)o->max) : json_real(o->max));
    return ok;
}

/* Puts a pattern for the words in any case. */
static bool put_pattern(json_t *obj, const char *const *choices)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f) return false;
    fputs("^(?:", f);
    for (int i = 0; choices[i]; i++) {
        if (i) fputc('|', f);
        for (const char *s = choices[i]; *s; s++) {
            if (isalpha((unsigned char)*s))
                fprintf(f, "[%c%c]", tolower((unsigned char)*s), toupper((unsigned char)*s));
            else
                fprintf(f, "%s%c", isalnum((unsigned char)*s) || *s == '_' || *s == '-' ? "" : "\\",
                        *s);
        }
    }
    fputs(")$", f);
    const bool ok = fclose(f) == 0 && schema_put(obj, "pattern", json_string(text));
    free(text);
    return ok;
}

/* The case of a choice does not matter: an enum for editors to complete from, or the words in any
 * case. */
static bool put_choices(json_t *obj, const char *const *choices)
{
    json_t *list = json_array(), *words = json_object();
    bool ok = list && words && put_pattern(words, choices);
    for (int i = 0; choices[i]; i++)
        ok = ok && json_array_append_new(list, json_string(choices[i])) == 0;
    ok = ok && schema_put(obj, "anyOf", json_pack("[{s:O},O]", "enum", list, words));
    json_decref(list);
    json_decref(words);
    return ok;
}

static json_t *schema_of(const rd_option *o)
{
    static const char *const types[] = {
        [RD_BOOL] = "boolean", [RD_INT] = "integer", [RD_REAL] = "number", [RD_STRING] = "string",
        [RD_INTS] = "array",   [RD_ENUM] = "string", [RD_PATHS] = "",
    };
    json_t *obj = json_object();
    char *about = NULL;
    bool ok = o->type == RD_PATHS ? schema_put(obj, "type", json_pack("[s,s]", "string", "array"))
                                  : schema_put(obj, "type", json_string(types[o->type]));
    if (asprintf(&about, "%s%s", o->help ? o->help : "",
                 o->flags & RD_OPT_ACCEPTED ? " (read for compatibility, without effect)" : "") < 0)
        about = NULL;
    ok &= schema_put(obj, "description", about ? json_string(about) : NULL);
    free(about);
    if (o->type == RD_INT || o->type == RD_REAL) ok &= put_limits(obj, o);
    if (o->type == RD_INTS) {
        json_t *items = json_pack("{s:s}", "type", "integer");
        ok &= items && put_limits(items, o);
        ok &= schema_put(obj, "items", items) && schema_put(obj, "minItems", json_integer(1));
    }
    if (o->type == RD_PATHS)
        ok &= schema_put(obj, "items", json_pack("{s:s,s:i}", "type", "string", "minLength", 1)) &&
              schema_put(obj, "minItems", json_integer(1));
    if (o->choices && !(o->flags & RD_OPT_OPEN)) ok &= put_choices(obj, o->choices);
    if (o->def) ok &= schema_put(obj, "default", json_loads(o->def, JSON_DECODE_ANY, NULL));
    if (ok) return obj;
    json_decref(obj);
    return NULL;
}

/* ---- which keys go with which ---- */

typedef struct schema_rules {
    const rd_option_group *const *groups;
    int n;
    const rd_option_owner *owners;
    int n_owners;
    json_t *all; /* array of rules; owned by the caller */
    bool ok;
} schema_rules;

enum { MOST_OWNERS = 128, MOST_KINDS = 8 };

static const rd_option *schema_row(const rd_option_group *g, const char *key)
{
    for (const rd_option *o = g ? g->options : NULL; o && o->key; o++)
        if (!strcmp(o->key, key)) return o;
    return NULL;
}

static const rd_option *schema_owned(const rd_option_owner *w, const char *key)
{
    const rd_option *o = schema_row(w->group[0], key);
    return o ? o : schema_row(w->group[1], key);
}

static bool schema_has_owner(const schema_rules *r, const rd_option_group *g)
{
    for (int i = 0; i < r->n_owners; i++)
        if (r->owners[i].group[0] == g || r->owners[i].group[1] == g) return true;
    return false;
}

/* Is the key in a group that every run reads? */
static bool schema_common(const schema_rules *r, const char *key)
{
    for (int i = 0; i < r->n; i++)
        if (!schema_has_owner(r, r->groups[i]) && schema_row(r->groups[i], key)) return true;
    return false;
}

/* The row of the key that chooses an owner of this kind. */
static const rd_option *schema_chooser(const schema_rules *r, const char *kind)
{
    for (int i = 0; i < r->n; i++) {
        const rd_option *o = schema_row(r->groups[i], kind);
        if (o) return o;
    }
    return NULL;
}

static json_t *schema_absent(const char *key)
{
    return json_pack("{s:{s:[s]}}", "not", "required", key);
}

/* "the key `kind` is one of the names", which is an array ended by NULL. */
static json_t *schema_is(const char *kind, const char *const *names)
{
    json_t *words = json_object();
    if (!words || !put_pattern(words, names)) {
        json_decref(words);
        return NULL;
    }
    return json_pack("{s:{s:o}, s:[s]}", "properties", kind, words, "required", kind);
}

/* Adds to *any that the kind is absent, where its default is among the names, or where it has none:
 * then nothing is chosen, and nothing refused. */
static bool schema_by_default(const schema_rules *r, const char *kind, const char *const *names,
                              json_t *any)
{
    const rd_option *o = schema_chooser(r, kind);
    const char *models[MOST_OWNERS + 1] = {NULL};
    bool by_model = false;
    int n = 0;
    for (int i = 0; i < r->n_owners; i++) {
        const rd_option_owner *w = &r->owners[i];
        if (!w->dataset || strcmp(kind, "dataset") != 0) continue;
        by_model = true;
        for (int k = 0; names[k] && n < MOST_OWNERS; k++)
            if (!strcmp(names[k], w->dataset)) models[n++] = w->name;
    }
    if (by_model) { /* the model's own dataset */
        json_t *absent = json_array(), *rule = json_array();
        if (n == 0) return json_decref(absent), json_decref(rule), true;
        bool ok = json_array_append_new(rule, schema_absent("dataset")) == 0 &&
                  json_array_append_new(absent, schema_is("model", models)) == 0 &&
                  schema_by_default(r, "model", models, absent) &&
                  json_array_append_new(rule, json_pack("{s:O}", "anyOf", absent)) == 0 &&
                  json_array_append_new(any, json_pack("{s:O}", "allOf", rule)) == 0;
        json_decref(absent);
        json_decref(rule);
        return ok;
    }
    if (!strcmp(kind, "lr_policy")) { /* piecewise with a schedule, else decay */
        static const char schedule[] = "piecewise_learning_rate_schedule";
        bool ok = true;
        for (int k = 0; names[k]; k++) {
            if (!strcmp(names[k], "piecewise"))
                ok &= json_array_append_new(any, json_pack("{s:[o,{s:[s]}]}", "allOf",
                                                           schema_absent(kind), "required",
                                                           schedule)) == 0;
            if (!strcmp(names[k], "decay"))
                ok &= json_array_append_new(any,
                                            json_pack("{s:[o,o]}", "allOf", schema_absent(kind),
                                                      schema_absent(schedule))) == 0;
        }
        return ok;
    }
    json_t *def = o && o->def ? json_loads(o->def, JSON_DECODE_ANY, NULL) : NULL;
    bool chosen = !def;
    for (int k = 0; def && names[k]; k++) chosen |= !strcmp(names[k], json_string_value(def));
    json_decref(def);
    return !chosen || json_array_append_new(any, schema_absent(kind)) == 0;
}

/* May a config of OpenSeq2Seq have the key whether it takes effect or not? */
static bool schema_carried(const schema_rules *r, const char *key)
{
    for (int i = 0; i < r->n_owners; i++) {
        const rd_option *o = schema_owned(&r->owners[i], key);
        if (o && o->flags & RD_OPT_CARRIED) return true;
    }
    return false;
}

/* Adds the rule of keys[n_keys], which the same owners read. */
static void schema_rule(schema_rules *r, const char *const *keys, int n_keys)
{
    json_t *any = json_array(), *none = json_object();
    const char *kinds[MOST_KINDS];
    int n_kinds = 0;
    bool ok = any && none;
    if (ok && schema_carried(r, keys[0]))
        ok = json_array_append_new(any, json_pack("{s:[s]}", "required", rd_openseq2seq_sign)) == 0;
    for (int i = 0; i < r->n_owners; i++) {
        bool seen = !schema_owned(&r->owners[i], keys[0]);
        for (int k = 0; k < n_kinds; k++) seen |= !strcmp(kinds[k], r->owners[i].kind);
        if (!seen && n_kinds < MOST_KINDS) kinds[n_kinds++] = r->owners[i].kind;
    }
    for (int k = 0; ok && k < n_kinds; k++) {
        const char *names[MOST_OWNERS + 1] = {NULL};
        int n = 0;
        for (int i = 0; i < r->n_owners && n < MOST_OWNERS; i++)
            if (!strcmp(r->owners[i].kind, kinds[k]) && schema_owned(&r->owners[i], keys[0]))
                names[n++] = r->owners[i].name;
        ok = json_array_append_new(any, schema_is(kinds[k], names)) == 0 &&
             schema_by_default(r, kinds[k], names, any);
    }
    for (int i = 0; ok && i < n_keys; i++) ok = schema_put(none, keys[i], json_false());
    r->ok &= ok &&
             json_array_append_new(r->all, json_pack("{s:{s:{s:O}}, s:{s:O}}", "if", "not", "anyOf",
                                                     any, "then", "properties", none)) == 0;
    json_decref(any);
    json_decref(none);
}

/* Does the same rule hold for both keys? */
static bool schema_same_owners(const schema_rules *r, const char *a, const char *b)
{
    for (int i = 0; i < r->n_owners; i++)
        if (!schema_owned(&r->owners[i], a) != !schema_owned(&r->owners[i], b)) return false;
    return schema_carried(r, a) == schema_carried(r, b);
}

/* Returns whether only owners read the key. */
static bool schema_ruled(const schema_rules *r, const char *key)
{
    bool owned = false;
    for (int i = 0; i < r->n_owners; i++) owned |= schema_owned(&r->owners[i], key) != NULL;
    return owned && !schema_common(r, key);
}

static void schema_owned_keys(schema_rules *r)
{
    enum { MOST = 512 };
    const char *keys[MOST], *same[MOST];
    int n = 0;
    for (int i = 0; i < r->n; i++)
        for (const rd_option *o = r->groups[i]->options; o->key; o++)
            if (n < MOST && !rd_option_seen_before(r->groups, i, o->key) && schema_ruled(r, o->key))
                keys[n++] = o->key;
    for (int i = 0; i < n; i++) {
        int k = 0;
        if (!keys[i]) continue;
        same[k++] = keys[i];
        for (int m = i + 1; m < n; m++)
            if (keys[m] && schema_same_owners(r, keys[i], keys[m])) {
                same[k++] = keys[m];
                keys[m] = NULL;
            }
        schema_rule(r, same, k);
    }
}

/* Keys without which no mode of a model works. */
static void schema_required_keys(schema_rules *r)
{
    const unsigned always = RD_MODE_TRAIN | RD_MODE_EVAL | RD_MODE_INFER | RD_MODE_BENCH;
    for (int i = 0; i < r->n_owners; i++) {
        const rd_option_owner *w = &r->owners[i];
        const char *name[] = {w->name, NULL};
        json_t *keys = json_array(), *any = json_array();
        bool ok = keys && any;
        for (int g = 0; g < 2; g++)
            for (const rd_option *o = w->group[g] ? w->group[g]->options : NULL; o && o->key; o++)
                if ((o->required & always) == always)
                    ok &= json_array_append_new(keys, json_string(o->key)) == 0;
        if (ok && !w->gives_keys && json_array_size(keys) > 0) {
            ok = json_array_append_new(any, schema_is(w->kind, name)) == 0 &&
                 schema_by_default(r, w->kind, name, any);
            r->ok &= ok &&
                     json_array_append_new(r->all, json_pack("{s:{s:O}, s:{s:O}}", "if", "anyOf",
                                                             any, "then", "required", keys)) == 0;
        }
        r->ok &= ok;
        json_decref(keys);
        json_decref(any);
    }
}

/* The words of a key that chooses an owner. */
static bool put_owner_names(json_t *obj, const char *key, const rd_option_owner *owners, int n)
{
    const char *names[MOST_OWNERS + 1] = {NULL};
    int k = 0;
    for (int i = 0; i < n && k < MOST_OWNERS; i++)
        if (!strcmp(owners[i].kind, key)) names[k++] = owners[i].name;
    return k == 0 || json_object_get(obj, "anyOf") || put_choices(obj, names);
}

json_t *rd_options_schema(const rd_option_group *const *groups, int n,
                          const rd_option_owner *owners, int n_owners)
{
    json_t *keys = json_object();
    schema_rules r = {groups, n, owners, n_owners, json_array(), true};
    bool ok = schema_put(keys, "$schema",
                         json_pack("{s:s,s:s}", "type", "string", "description",
                                   "where an editor finds this schema"));
    ok &= schema_put(keys, "base",
                     json_pack("{s:s,s:i,s:s}", "type", "string", "minLength", 1, "description",
                               "another config, whose keys come before those of this one"));
    for (int i = 0; i < n; i++)
        for (const rd_option *o = groups[i]->options; o->key; o++) {
            if (rd_option_seen_before(groups, i, o->key)) continue;
            json_t *one = schema_of(o);
            ok &= one && put_owner_names(one, o->key, owners, n_owners);
            ok &= schema_put(keys, o->key, one);
        }
    r.ok = r.all != NULL;
    schema_owned_keys(&r);
    schema_required_keys(&r);
    json_t *root = ok && r.ok ? json_pack("{s:s,s:s,s:s,s:O,s:b}", "$schema",
                                          "https://json-schema.org/draft/2020-12/schema", "title",
                                          "run_dist experiment", "type", "object", "properties",
                                          keys, "additionalProperties", 0)
                              : NULL;
    if (root && json_array_size(r.all) > 0 &&
        (!schema_put(root, "if", schema_absent("base")) ||
         !schema_put(root, "then", json_pack("{s:O}", "allOf", r.all)))) {
        json_decref(root);
        root = NULL;
    }
    json_decref(keys);
    json_decref(r.all);
    return root;
}
