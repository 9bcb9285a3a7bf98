/* new_config.c -- --new_config=MODEL: a config to begin with, made from the option tables.
 *
 * It has two parts. The first part holds the keys that a run of the model needs, with values that
 * train on a CPU. Keys to which the model itself gives a value are not among them. The second part
 * holds all other keys that such a run reads, as comments with the model's values, else the
 * defaults. A key that a table gains appears here by itself. */
#include "rd/data.h"
#include "rd/model.h"
#include "rd/modes.h"

#include <string.h>

enum { LINE_COLUMNS = 100, NEEDED = RD_MODE_TRAIN | RD_MODE_TRAIN_EVAL };

/* Values of the first part as JSON. The first one whose readers include the model counts. A text
 * needs no vocabularies: they are made from it. */
enum { IMAGES = 1, PAIRS = 2, TEXT = 4 };

static const struct starter {
    const char *key, *value;
    unsigned readers;
} starters[] = {
    {"batch_size", "32", IMAGES | PAIRS | TEXT},
    {"num_epochs", "10", IMAGES | PAIRS | TEXT},
    {"source_file", "\"data/train.src\"", PAIRS},
    {"target_file", "\"data/train.tgt\"", PAIRS},
    {"source_file_eval", "\"data/dev.src\"", PAIRS},
    {"target_file_eval", "\"data/dev.tgt\"", PAIRS},
    {"source_file", "\"data/train.txt\"", TEXT},
    {"source_file_eval", "\"data/dev.txt\"", TEXT},
    {"data_dir", "\"data\"", IMAGES},
    {"encoder_type", "\"bidirectional\"", PAIRS},
    {"encoder_cell_type", "\"lstm\"", PAIRS},
    {"encoder_cell_units", "256", PAIRS},
    {"encoder_layers", "2", PAIRS},
    {"encoder_dp_input_keep_prob", "0.8", PAIRS},
    {"encoder_dp_output_keep_prob", "1.0", PAIRS},
    {"encoder_use_skip_connections", "false", PAIRS},
    {"src_emb_size", "256", PAIRS},
    {"decoder_cell_type", "\"lstm\"", PAIRS},
    {"decoder_cell_units", "256", PAIRS},
    {"decoder_layers", "2", PAIRS},
    {"decoder_dp_input_keep_prob", "0.8", PAIRS},
    {"decoder_dp_output_keep_prob", "1.0", PAIRS},
    {"decoder_use_skip_connections", "false", PAIRS},
    {"tgt_emb_size", "256", PAIRS},
    {"attention_type", "\"luong\"", PAIRS},
    {"attention_layer_size", "256", PAIRS},
    {"luong_scale", "true", PAIRS},
    {"n_layers", "4", TEXT},
    {"n_embd", "128", TEXT},
    {"n_heads", "4", TEXT},
    {"ff_dim", "512", TEXT},
    {"max_len", "128", TEXT},
    {"optimizer", "\"adam\"", PAIRS},
    {"optimizer", "\"adamw\"", TEXT},
    {"optimizer", "\"momentum\"", IMAGES},
    {"learning_rate", "0.001", PAIRS | TEXT},
    {"learning_rate", "0.01", IMAGES},
    {"max_grad_norm", "3.0", PAIRS},
    {"max_grad_norm", "1.0", TEXT},
};

static unsigned reader_of(const rd_model_def *m)
{
    return m->unit ? IMAGES : m->continues ? TEXT : PAIRS;
}

static const char *starter_value(const char *key, const rd_model_def *m)
{
    for (size_t i = 0; i < sizeof starters / sizeof *starters; i++)
        if (!strcmp(starters[i].key, key) && (starters[i].readers & reader_of(m)))
            return starters[i].value;
    return NULL;
}

/* Returns the value that the model itself gives to a key; NULL: none. */
static const char *model_value(const rd_model_def *m, const char *key)
{
    for (const rd_model_key *k = m->keys; k && k->key; k++)
        if (!strcmp(k->key, key)) return k->value;
    return NULL;
}

/* Returns the value of the first part; NULL: the key belongs to the second one, unless a run needs
 * it. A model with its own training has its own batch and clipping, too. */
static const char *first_value(const char *key, const rd_model_def *m)
{
    const bool batch = model_value(m, "batch_tokens") || model_value(m, "batch_sentences");
    if (model_value(m, key) || (!strcmp(key, "batch_size") && batch) ||
        (!strcmp(key, "max_grad_norm") && model_value(m, "optimizer")))
        return NULL;
    return starter_value(key, m);
}

/* The value of a required key that the list above does not know: its first choice, its least
 * number. */
static void least_value(const rd_option *o, rd_strbuf *out)
{
    switch (o->type) {
    case RD_BOOL:
        rd_strbuf_puts(out, "false");
        break;
    case RD_INT:
        rd_strbuf_printf(out, "%.0f", o->min > 1.0 ? o->min : 1.0);
        break;
    case RD_REAL:
        rd_strbuf_printf(out, "%g", o->min > 0.5 || o->max < 0.5 ? o->min : 0.5);
        break;
    case RD_INTS:
        rd_strbuf_printf(out, "[%.0f]", o->min > 1.0 ? o->min : 1.0);
        break;
    case RD_STRING:
    case RD_ENUM:
    case RD_PATHS:
        rd_strbuf_printf(out, "\"%s\"", o->choices ? o->choices[0] : o->path ? "FILE" : "TEXT");
        break;
    }
}

/* Appends a text as a comment of several lines, with `indent` in front. */
static void new_config_comment(rd_strbuf *out, const char *indent, const char *text)
{
    size_t used = 0;
    while (*text) {
        const size_t n = strcspn(text, " \n");
        if (used > 0 && used + 1 + n > LINE_COLUMNS) {
            rd_strbuf_puts(out, "\n");
            used = 0;
        }
        if (used == 0) {
            rd_strbuf_printf(out, "%s//", indent);
            used = strlen(indent) + 2;
        }
        rd_strbuf_printf(out, " %.*s", (int)n, text);
        used += 1 + n;
        text += n + (text[n] != '\0');
    }
    rd_strbuf_puts(out, "\n");
}

static void new_config_help(rd_strbuf *out, const char *indent, const rd_option *o)
{
    rd_strbuf text = {0};
    rd_strbuf_puts(&text, o->help ? o->help : "");
    for (int i = 0; o->choices && o->choices[i]; i++)
        rd_strbuf_printf(&text, "%s%s", i ? ", " : ". One of ", o->choices[i]);
    new_config_comment(out, indent, rd_strbuf_str(&text));
    rd_strbuf_release(&text);
}

/* Appends the name of a section before its first key. */
static void new_config_section(rd_strbuf *out, const rd_option_group *g, bool *begun)
{
    char title[256];
    if (*begun) return;
    *begun = true;
    (void)snprintf(title, sizeof title, "---- %s: %s ----", g->name, g->about ? g->about : "");
    rd_strbuf_puts(out, "\n");
    new_config_comment(out, "    ", title);
}

/* The first part of a group (needed) or the second one. written: the keys so far. */
static void new_config_group(rd_strbuf *out, const rd_option_group *g, const rd_model_def *m,
                             bool needed, json_t *written)
{
    bool begun = false;
    for (const rd_option *o = g->options; o->key; o++) {
        const char *value = first_value(o->key, m), *given = model_value(m, o->key);
        const bool first = value || ((o->required & NEEDED) && !given) ||
                           !strcmp(o->key, "model") || (!strcmp(o->key, "dataset") && m->unit);
        if (first != needed || (o->flags & RD_OPT_ACCEPTED) || json_object_get(written, o->key))
            continue;
        (void)json_object_set_new(written, o->key, json_true());
        new_config_section(out, g, &begun);
        new_config_help(out, "    ", o);
        if (!needed) {
            rd_strbuf_printf(out, "    // \"%s\": %s,\n", o->key,
                             given    ? given
                             : o->def ? o->def
                                      : "null");
            continue;
        }
        rd_strbuf_printf(out, "    \"%s\": ", o->key);
        if (!strcmp(o->key, "model"))
            rd_strbuf_printf(out, "\"%s\"", m->name);
        else if (!strcmp(o->key, "dataset"))
            rd_strbuf_printf(out, "\"%s\"", m->default_dataset);
        else if (value)
            rd_strbuf_puts(out, value);
        else
            least_value(o, out);
        rd_strbuf_puts(out, ",\n");
    }
}

static rd_code unknown_model(const char *name, rd_status *st)
{
    const char *known[RD_MAX_OWNERS];
    int n = 0;
    const rd_model_def *const *defs = rd_model_defs(&n);
    rd_strbuf list = {0};
    for (int i = 0; i < n && i < RD_MAX_OWNERS; i++) {
        known[i] = defs[i]->name;
        rd_strbuf_printf(&list, "%s%s", i ? ", " : "", known[i]);
    }
    const char *nearest = rd_nearest(name, known, n);
    rd_fail(st, RD_EUSAGE, "--new_config: there is no model '%.64s'; one of %s%s%s%s", name,
            rd_strbuf_str(&list), nearest ? "; did you mean '" : "", nearest ? nearest : "",
            nearest ? "'?" : "");
    rd_strbuf_release(&list);
    return st->code;
}

/* Sets a key, since values decide which groups of keys a run reads. */
static rd_code starter_put(rd_config *c, const char *key, const char *value, rd_status *st)
{
    json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
    if (!v) return rd_fail(st, RD_EBUG, "new_config: the value of '%s' is not JSON", key);
    return rd_config_put(c, key, v, "starter", st);
}

rd_code rd_new_config(const char *model, rd_strbuf *out, rd_status *st)
{
    const rd_option_group *all[RD_MAX_GROUPS], *groups[RD_MAX_GROUPS];
    const rd_model_def *m = rd_model_find(model);
    char about[512];
    rd_config *c = NULL;
    json_t *written = json_object();
    if (!m) {
        (void)unknown_model(model, st);
        goto done;
    }
    RD_TRY(rd_config_new("starter", "{}", 2, all, rd_option_groups(all), false, &c, st));
    RD_TRY(rd_config_put(c, "model", json_string(m->name), "starter", st));
    if (!model_value(m, "optimizer"))
        RD_TRY(starter_put(c, "optimizer", starter_value("optimizer", m), st));
    for (const rd_model_key *k = m->keys; k && k->key; k++)
        RD_TRY(starter_put(c, k->key, k->value, st));
    const int n = rd_option_groups_read(c, groups);
    (void)snprintf(about, sizeof about, "A config for %s: %s. Written by run_dist --new_config=%s.",
                   m->name, m->about, m->name);
    new_config_comment(out, "", about);
    rd_strbuf_puts(out, "// Change the paths, then look at what it would do:\n"
                        "//     run_dist --config_file=THIS_FILE --check\n");
    rd_strbuf_puts(out, "{\n");
    for (int i = 0; i < n; i++) new_config_group(out, groups[i], m, true, written);
    rd_strbuf_puts(out, "\n");
    new_config_comment(
        out, "    ",
        "==== The other keys and their values. Take the two slashes away to set one. ====");
    for (int i = 0; i < n; i++) /* these two modes take their keys from the command line */
        if (strcmp(groups[i]->name, "bench") != 0 && strcmp(groups[i]->name, "plan") != 0)
            new_config_group(out, groups[i], m, false, written);
    rd_strbuf_puts(out, "}\n");
    if (out->failed) rd_fail(st, RD_EENV, "out of memory for the new config");
done:
    json_decref(written);
    rd_config_free(c);
    return st->code;
}
