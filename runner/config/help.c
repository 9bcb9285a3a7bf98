/* help.c -- the answers of --help, and its topics as Markdown. */
#include "help_impl.h"
#include <string.h>

enum { FLAG_INDENT = 30, KEY_INDENT = 32, FIELD_INDENT = 11 };

const char *const rd_help_examples[][2] = {
    {"run_dist --np=4 x.json --logdir=logs/x", "trains on 4 ranks"},
    {"run_dist --np=4 --hosts=a:2,b:2 x.json --logdir=logs/x", "on two hosts"},
    {"mpirun -np 4 run_dist --config_file=x.json --logdir=logs/x", "started by hand"},
    {"run_dist x.json --logdir=logs/x --mode=infer", "writes outputs"},
    {"run_dist --mode=bench --model=resnet50 --batch_size=16", "measures speed"},
    {"run_dist --mode=doctor --hosts=host1:2,host2:2", "examines hosts"},
    {"run_dist --restarts=5 -- mpirun -np 4 run_dist ...", "restarts up to 5x"},
    {NULL, NULL}};

static void flag_left(const rd_flag *f, char out[64])
{
    snprintf(out, 64, "--%s%s%s", f->name, f->value ? "=" : "", f->value ? f->value : "");
}

static void print_flags(FILE *out)
{
    fputs("usage: run_dist --config_file=FILE --logdir=DIR [flags]\n"
          "Trains the experiment in one JSON file on any number of ranks.\n\nexamples\n",
          out);
    for (int i = 0; rd_help_examples[i][0]; i++)
        fprintf(out, "  %-60s%s\n", rd_help_examples[i][0], rd_help_examples[i][1]);
    fputs("\nflags (--flag=value or --flag value; unique beginnings work; --noflag: off)\n", out);
    for (int i = 0; i < rd_n_flags; i++) {
        char left[64];
        if (!rd_flags[i].brief) continue;
        flag_left(&rd_flags[i], left);
        fprintf(out, "  %-*s%s\n", FLAG_INDENT - 2, left, rd_flags[i].brief);
    }
    fputs("\nmore: --help=keys   all keys of the config\n"
          "      --help=KEY    one key, such as --help=batch_size; or one flag\n"
          "      --help=TOPIC  ",
          out);
    for (int i = 0; i < rd_n_topics; i++) fprintf(out, "%s, ", rd_topics[i].name);
    fputs("bench (its flags)\n", out);
}

static void topic_text(const rd_topic *t, FILE *out)
{
    int width = 0;
    fputs(t->about, out);
    fputs("\n\n", out);
    for (int i = 0; i < t->n_rows; i++) {
        const int n = (int)strlen(t->rows[i][0]);
        width = n > width ? n : width;
    }
    for (int i = 0; i < t->n_rows; i++) {
        char left[96], text[512];
        snprintf(left, sizeof left, "  %s", t->rows[i][0]);
        size_t n = (size_t)snprintf(text, sizeof text, "%s", t->rows[i][1]);
        for (int k = 2; k < t->columns && n < sizeof text; k++)
            n += (size_t)snprintf(text + n, sizeof text - n, "; %s %s", t->head[k], t->rows[i][k]);
        rd_help_pair(out, left, text, width + 4);
    }
    for (int i = 0; t->notes[i]; i++) {
        fputc('\n', out);
        rd_help_wrapped(out, t->notes[i], 0, 0);
    }
}

/* "train, eval" of mode bits. */
static void mode_words(unsigned bits, char out[96])
{
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; i < rd_n_mode_names; i++)
        if (bits & (unsigned)rd_mode_names[i].bit)
            n += (size_t)snprintf(out + n, 96 - n, "%s%s", n ? ", " : "", rd_mode_names[i].name);
}

static void flag_text(const rd_flag *f, FILE *out)
{
    char left[64], words[96];
    flag_left(f, left);
    fprintf(out, "%s (a flag)\n\n", left);
    rd_help_pair(out, "  meaning", f->help, FIELD_INDENT);
    if (f->def) rd_help_pair(out, "  default", f->def, FIELD_INDENT);
    if (f->type == RD_FLAG_INT) fprintf(out, "  values   %.0f .. %.0f\n", f->min, f->max);
    if (f->type == RD_FLAG_REAL) fprintf(out, "  values   %g or more\n", f->min);
    if (f->key) rd_help_pair(out, "  key", f->key, FIELD_INDENT);
    if (!f->modes) return;
    mode_words(f->modes, words);
    rd_help_pair(out, "  modes", words, FIELD_INDENT);
}

static void bench_flag_text(int i, FILE *out)
{
    const bool truth = rd_bench_flag_type(i) == RD_BENCH_BOOL;
    fprintf(out, "--%s%s%s (a flag of --mode=bench, see --help=bench)\n\n", rd_bench_flag_name(i),
            truth ? "" : "=", truth ? "" : rd_bench_flag_value(i));
    rd_help_pair(out, "  meaning", rd_bench_flag_help(i), FIELD_INDENT);
    rd_help_pair(out, "  key",
                 rd_bench_flag_key(i) ? rd_bench_flag_key(i) : "none: no effect, or refused",
                 FIELD_INDENT);
}

static void key_text(const rd_option_group *g, const rd_option *o, FILE *out)
{
    char kind[RD_KIND_BYTES], words[96];
    char title[512];
    (void)snprintf(title, sizeof title, "%s (a key of group %s%s%s)", o->key, g->name,
                   g->about ? ": " : "", g->about ? g->about : "");
    rd_help_wrapped(out, title, 0, 2);
    fputc('\n', out);
    if (o->help) rd_help_pair(out, "  meaning", o->help, FIELD_INDENT);
    if (o->flags & RD_OPT_ACCEPTED)
        rd_help_pair(out, "", "The key is read for compatibility and has no effect.", FIELD_INDENT);
    rd_help_pair(out, "  type", rd_option_type_name(o), FIELD_INDENT);
    if (rd_option_range(o, kind))
        rd_help_pair(out, "  values", kind, FIELD_INDENT);
    else if (o->choices)
        rd_help_pair(out, "  values", rd_option_kind(o, kind), FIELD_INDENT);
    mode_words(o->required, words);
    rd_help_pair(out, "  default",
                 o->def        ? o->def
                 : o->required ? "none: the key is required"
                               : "none",
                 FIELD_INDENT);
    if (o->required) rd_help_pair(out, "  needed", words, FIELD_INDENT);
    fprintf(out, "  set by   ");
    rd_help_configs(o->key, FIELD_INDENT, out);
}

static const rd_option *find_key(const rd_option_group *const *groups, int n, const char *word,
                                 const rd_option_group **of)
{
    for (int i = 0; i < n; i++)
        for (const rd_option *o = groups[i]->options; o->key; o++)
            if (!strcmp(o->key, word)) {
                *of = groups[i];
                return o;
            }
    return NULL;
}

/* The nearest word that --help knows; NULL: none is near. */
static const char *nearest_word(const rd_option_group *const *groups, int n, const char *word)
{
    static const char *const more[] = {"keys", "bench"};
    enum { MOST = 512 };
    const char *known[MOST];
    int k = 0;
    for (int i = 0; i < 2; i++) known[k++] = more[i];
    for (int i = 0; i < rd_n_topics; i++) known[k++] = rd_topics[i].name;
    for (int i = 0; i < rd_n_flags; i++) known[k++] = rd_flags[i].name;
    for (int i = 0; i < n; i++)
        for (const rd_option *o = groups[i]->options; o->key && k < MOST; o++) known[k++] = o->key;
    return rd_nearest(word, known, k);
}

/* The values of a key that chooses an owner, such as all models. */
static void owners_text(const char *key, const rd_option_owner *owners, int n, FILE *out)
{
    int width = 0;
    for (int i = 0; i < n; i++)
        if (!strcmp(owners[i].kind, key) && (int)strlen(owners[i].name) > width)
            width = (int)strlen(owners[i].name);
    if (width > 0) fputc('\n', out);
    for (int i = 0; i < n; i++) {
        char left[96];
        if (strcmp(owners[i].kind, key) != 0) continue;
        snprintf(left, sizeof left, "  %s", owners[i].name);
        rd_help_pair(out, left, owners[i].about ? owners[i].about : "", width + 4);
    }
}

rd_code rd_help(const char *word, const rd_option_group *const *groups, int n,
                const rd_option_owner *owners, int n_owners, FILE *out, rd_status *st)
{
    char shown[RD_SHOWN_BYTES];
    const rd_option_group *g = NULL;
    bool negated = false;
    if (!word) {
        print_flags(out);
        return RD_OK;
    }
    const rd_topic *t = rd_topic_named(word);
    const rd_flag *f = rd_flag_named(word, strlen(word));
    const rd_option *o = find_key(groups, n, word, &g);
    const int bench = rd_bench_flag_find(word, strlen(word), &negated);
    if (!strcmp(word, "keys"))
        rd_options_help(groups, n, out);
    else if (!strcmp(word, "bench"))
        rd_bench_flags_help("", out);
    else if (t)
        topic_text(t, out);
    if (t || !strcmp(word, "keys") || !strcmp(word, "bench")) return RD_OK;
    if (f) flag_text(f, out);
    if (f && o) fputc('\n', out);
    if (o) {
        key_text(g, o, out);
        owners_text(o->key, owners, n_owners, out);
    }
    if (bench >= 0 && !f && !o) bench_flag_text(bench, out);
    if (f || o || bench >= 0) return RD_OK;
    const char *nearest = nearest_word(groups, n, word);
    return rd_fail(st, RD_EUSAGE, "--help=%s: no key, flag or topic has this name; %s%s%s",
                   rd_shown(word, shown),
                   nearest ? "did you mean --help=" : "--help lists the topics",
                   nearest ? nearest : "", nearest ? "?" : "");
}

/* ---- Markdown ---- */

static void cell(FILE *out, const char *text)
{
    fputc(' ', out);
    for (; *text; text++) {
        if (*text == '|') fputc('\\', out);
        fputc(*text, out);
    }
    fputs(" |", out);
}

static void topic_markdown(const rd_topic *t, FILE *out)
{
    fputc('|', out);
    for (int k = 0; k < t->columns; k++) cell(out, t->head[k]);
    fputs("\n|", out);
    for (int k = 0; k < t->columns; k++) fputs("---|", out);
    for (int i = 0; i < t->n_rows; i++) {
        fputs("\n|", out);
        for (int k = 0; k < t->columns; k++) cell(out, t->rows[i][k]);
    }
    fputc('\n', out);
}

static void flags_markdown(FILE *out)
{
    fputs("| flag | meaning | default |\n|---|---|---|\n", out);
    for (int i = 0; i < rd_n_flags; i++) {
        char left[64], code[72];
        flag_left(&rd_flags[i], left);
        snprintf(code, sizeof code, "`%s`", left);
        fputc('|', out);
        cell(out, code);
        cell(out, rd_flags[i].help);
        cell(out, rd_flags[i].def ? rd_flags[i].def : "");
        fputc('\n', out);
    }
}

rd_code rd_help_markdown(const char *topic, FILE *out, rd_status *st)
{
    char shown[RD_SHOWN_BYTES];
    const rd_topic *t = rd_topic_named(topic);
    if (t)
        topic_markdown(t, out);
    else if (!strcmp(topic, "flags"))
        flags_markdown(out);
    else if (!strcmp(topic, "bench"))
        rd_bench_flags_help("    ", out);
    else
        return rd_fail(st, RD_EUSAGE,
                       "--print_topic=%s: the topics are modes, exit-codes, signals, logdir, flags "
                       "and bench",
                       rd_shown(topic, shown));
    return RD_OK;
}
