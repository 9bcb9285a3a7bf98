/* options_doc.c -- prints the option tables for people: help, configs/KEYS.md, and the effective
 * config of a run. A key of several groups is printed once, in the first. */
#include "help_impl.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool rd_option_seen_before(const rd_option_group *const *groups, int group, const char *key)
{
    for (int i = 0; i < group; i++)
        for (const rd_option *o = groups[i]->options; o->key; o++)
            if (!strcmp(o->key, key)) return true;
    return false;
}

/* Has the group a key that no earlier group has? */
static bool has_news(const rd_option_group *const *groups, int i)
{
    for (const rd_option *o = groups[i]->options; o->key; o++)
        if (!rd_option_seen_before(groups, i, o->key)) return true;
    return false;
}

void rd_options_help(const rd_option_group *const *groups, int n, FILE *out)
{
    enum { INDENT = 32 };
    for (int i = 0; i < n; i++) {
        if (!has_news(groups, i)) continue;
        fprintf(out, "%s", i ? "\n" : "");
        char head[512], kind[RD_KIND_BYTES], line[2048];
        const int len = snprintf(head, sizeof head, "%s: ", groups[i]->name);
        fputs(head, out);
        rd_help_wrapped(out, groups[i]->about ? groups[i]->about : "", len, len);
        for (const rd_option *o = groups[i]->options; o->key; o++) {
            if (rd_option_seen_before(groups, i, o->key)) continue;
            const bool long_key = strlen(o->key) > INDENT - 3;
            fprintf(out, "  %s%s%*s", o->key, long_key ? "\n" : "",
                    long_key ? INDENT : INDENT - 2 - (int)strlen(o->key), "");
            const char *after = o->def ? ", default " : o->required ? ", required" : "";
            snprintf(line, sizeof line, "%s%s(%s%s%s%s)", o->help ? o->help : "",
                     o->help ? " " : "", rd_option_kind(o, kind), after, o->def ? o->def : "",
                     o->flags & RD_OPT_ACCEPTED ? "; read for compatibility, without effect" : "");
            rd_help_wrapped(out, line, INDENT, INDENT);
        }
    }
}

static void cell(FILE *out, const char *text) /* of a markdown table */
{
    for (; *text; text++) {
        if (*text == '|') fputc('\\', out);
        fputc(*text == '\n' ? ' ' : *text, out);
    }
}

void rd_options_markdown(const rd_option_group *const *groups, int n, FILE *out)
{
    for (int i = 0; i < n; i++) {
        if (!has_news(groups, i)) continue;
        fprintf(out, "%s**%s**: ", i ? "\n" : "", groups[i]->name);
        cell(out, groups[i]->about ? groups[i]->about : "");
        fputs("\n\n| key | type | default | values | meaning |\n|---|---|---|---|---|\n", out);
        for (const rd_option *o = groups[i]->options; o->key; o++) {
            if (rd_option_seen_before(groups, i, o->key)) continue;
            char range[RD_KIND_BYTES];
            fprintf(out, "| `%s` | %s | ", o->key, rd_option_type_name(o));
            if (o->def) {
                fputc('`', out);
                cell(out, o->def);
                fputc('`', out);
            } else {
                fputs(o->required ? "required" : "none", out);
            }
            fputs(" | ", out);
            if (rd_option_range(o, range)) cell(out, range);
            for (int k = 0; o->choices && o->choices[k]; k++)
                fprintf(out, "%s`%s`", k ? ", " : "", o->choices[k]);
            fputs(" | ", out);
            cell(out, o->help ? o->help : "");
            if (o->flags & RD_OPT_ACCEPTED) fputs(" (read for compatibility, without effect)", out);
            fputs(" |\n", out);
        }
    }
}

/* ---- the effective config ---- */

static bool options_doc_put(json_t *obj, const char *key, json_t *v)
{
    return json_object_set_new(obj, key, v) == 0;
}

json_t *rd_config_effective(const rd_config *c)
{
    json_t *root = json_object();
    bool ok = root != NULL;
    for (int i = 0; i < c->n; i++) {
        const char *key = c->entry[i].o->key;
        json_t *v = c->entry[i].value ? c->entry[i].value : c->entry[i].def;
        ok &= options_doc_put(root, key,
                              json_pack("{s:o,s:s}", "value", v ? json_incref(v) : json_null(),
                                        "source", rd_config_where(c, key)));
    }
    for (int i = 0; i < c->n_unknown; i++)
        ok &= options_doc_put(root, c->unknown[i].key,
                              json_pack("{s:O,s:s}", "value", c->unknown[i].value, "source",
                                        c->unknown[i].where));
    if (ok) return root;
    json_decref(root);
    return NULL;
}

static int to_file(const char *s, size_t n, void *ctx)
{
    rd_strbuf shown = {0}; /* Jansson escapes C0 alone; these escapes are JSON's, too */
    rd_printable_add(&shown, s, n);
    const bool done = !shown.failed && fwrite(rd_strbuf_str(&shown), 1, shown.n, ctx) == shown.n;
    rd_strbuf_release(&shown);
    return done ? 0 : -1;
}

static void write_value(FILE *out, const json_t *v)
{
    char text[32];
    if (!v)
        fputs("null", out);
    else if (json_is_real(v))
        fputs(rd_shown_real(json_real_value(v), text), out);
    else
        (void)json_dump_callback(v, to_file, out, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
}

static void write_text(FILE *out, const char *s)
{
    json_t *v = json_string(s);
    write_value(out, v);
    json_decref(v);
}

static void write_row(FILE *out, const char *key, const json_t *v, const char *source, bool last)
{
    fputs("  ", out);
    write_text(out, key);
    fputs(": {\"value\": ", out);
    write_value(out, v);
    fputs(", \"source\": ", out);
    write_text(out, source);
    fputs(last ? "}\n" : "},\n", out);
}

void rd_config_write(const rd_config *c, FILE *out)
{
    fputs("{\n", out);
    for (int i = 0; i < c->n; i++) {
        const rd_entry *e = &c->entry[i];
        write_row(out, e->o->key, e->value ? e->value : e->def, rd_config_where(c, e->o->key),
                  i + 1 == c->n && !c->n_unknown);
    }
    for (int i = 0; i < c->n_unknown; i++)
        write_row(out, c->unknown[i].key, c->unknown[i].value, c->unknown[i].where,
                  i + 1 == c->n_unknown);
    fputs("}\n", out);
}

void rd_config_print(const rd_config *c, FILE *out)
{
    for (int i = 0; i < c->n; i++) {
        const rd_entry *e = &c->entry[i];
        char range[RD_KIND_BYTES];
        fprintf(out, "%-32s = ", e->o->key);
        if (e->value || e->def) write_value(out, e->value ? e->value : e->def);
        fprintf(out, "    %s%s", e->where ? "from " : "", rd_config_where(c, e->o->key));
        if (e->value && e->o->def) fprintf(out, "; default %s", e->o->def);
        if (rd_option_range(e->o, range)) fprintf(out, "; range %s", range);
        fputc('\n', out);
    }
    for (int i = 0; i < c->n_unknown; i++) {
        char shown[RD_SHOWN_BYTES];
        fprintf(out, "%-32s = ", rd_shown(c->unknown[i].key, shown));
        write_value(out, c->unknown[i].value);
        fprintf(out, "    from %s; unknown key\n", c->unknown[i].where);
    }
}
