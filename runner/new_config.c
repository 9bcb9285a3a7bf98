/* new_config.c -- --new_config=MODEL: a config to begin with, made from the option tables.
 *
 * It has two parts. The first part holds the keys that a run of the model needs, with values that
 * train on a CPU. The second part holds all other keys that such a run reads, as comments with
 * their defaults. A key that a table gains appears here by itself. */
#include "rd/data.h"
#include "rd/model.h"
#include "rd/modes.h"

#include <string.h>

enum { LINE_COLUMNS = 100, NEEDED = RD_MODE_TRAIN | RD_MODE_TRAIN_EVAL };

/* Values of the first part as JSON. The first one that fits counts. */
static const struct starter {
    const char *key, *value;
    bool images_only, text_only;
} starters[] = {
    {"batch_size", "32", false, false},
    {"num_epochs", "10", false, false},
    {"src_vocab_file", "\"data/vocab.src\"", false, true},
    {"tgt_vocab_file", "\"data/vocab.tgt\"", false, true},
    {"source_file", "\"data/train.src\"", false, true},
    {"target_file", "\"data/train.tgt\"", false, true},
    {"source_file_eval", "\"data/dev.src\"", false, true},
    {"target_file_eval", "\"data/dev.tgt\"", false, true},
    {"bucket_src", "[10, 20, 30, 60]", false, true},
    {"bucket_tgt", "[10, 20, 30, 60]", false, true},
    {"data_dir", "\"data\"", true, false},
    {"encoder_type", "\"bidirectional\"", false, true},
    {"encoder_cell_type", "\"lstm\"", false, true},
    {"encoder_cell_units", "256", false, true},
    {"encoder_layers", "2", false, true},
    {"encoder_dp_input_keep_prob", "0.8", false, true},
    {"encoder_dp_output_keep_prob", "1.0", false, true},
    {"encoder_use_skip_connections", "false", false, true},
    {"src_emb_size", "256", false, true},
    {"decoder_cell_type", "\"lstm\"", false, true},
    {"decoder_cell_units", "256", false, true},
    {"decoder_layers", "2", false, true},
    {"decoder_dp_input_keep_prob", "0.8", false, true},
    {"decoder_dp_output_keep_prob", "1.0", false, true},
    {"decoder_use_skip_connections", "false", false, true},
    {"tgt_emb_size", "256", false, true},
    {"attention_type", "\"luong\"", false, true},
    {"attention_layer_size", "256", false, true},
    {"luong_scale", "true", false, true},
    {"optimizer", "\"adam\"", false, true},
    {"optimizer", "\"momentum\"", true, false},
    {"learning_rate", "0.001", false, true},
    {"learning_rate", "0.01", true, false},
    {"max_grad_norm", "3.0", false, true},
};

static const char *starter_value(const char *key, bool images)
{
    for (size_t i = 0; i < sizeof starters / sizeof *starters; i++)
        if (!strcmp(starters[i].key, key) &&
            !(images ? starters[i].text_only : starters[i].images_only))
            return starters[i].value;
    return NULL;
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
    const bool images = m->unit != NULL;
    bool begun = false;
    for (const rd_option *o = g->options; o->key; o++) {
        const char *value = starter_value(o->key, images);
        const bool first = value || (o->required & NEEDED) || !strcmp(o->key, "model") ||
                           (!strcmp(o->key, "dataset") && images);
        if (first != needed || (o->flags & RD_OPT_ACCEPTED) || json_object_get(written, o->key))
            continue;
        (void)json_object_set_new(written, o->key, json_true());
        new_config_section(out, g, &begun);
        new_config_help(out, "    ", o);
        if (!needed) {
            rd_strbuf_printf(out, "    // \"%s\": %s,\n", o->key, o->def ? o->def : "null");
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

rd_code rd_new_config(const char *model, rd_strbuf *out, rd_status *st)
{
    const rd_option_group *all[RD_MAX_GROUPS], *groups[RD_MAX_GROUPS];
    const rd_model_def *m = rd_model_find(model);
    char text[256], about[512];
    rd_config *c = NULL;
    json_t *written = json_object();
    if (!m) {
        (void)unknown_model(model, st);
        goto done;
    }
    (void)snprintf(text, sizeof text, "{\"model\": \"%s\", \"optimizer\": %s}", m->name,
                   starter_value("optimizer", m->unit != NULL));
    RD_TRY(rd_config_new("starter", text, strlen(text), all, rd_option_groups(all), false, &c, st));
    const int n = rd_option_groups_read(c, groups);
    (void)snprintf(
        about, sizeof about,
        "A config for %s: %s. Written by run_dist --new_config=%s. Change the paths, then "
        "look at what it would do: run_dist --config_file=THIS_FILE --check",
        m->name, m->about, m->name);
    new_config_comment(out, "", about);
    rd_strbuf_puts(out, "{\n");
    for (int i = 0; i < n; i++) new_config_group(out, groups[i], m, true, written);
    rd_strbuf_puts(out, "\n");
    new_config_comment(
        out, "    ",
        "==== The other keys and their defaults. Take the two slashes away to set one. "
        "====");
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
