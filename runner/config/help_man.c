/* help_man.c -- the man page run_dist(1), in roff, from the tables of flags, topics and keys. */
#include "help_impl.h"
#include <string.h>

/* Text as roff has it. Words in `backquotes` are bold. A text never begins a roff command. */
static void put(FILE *out, const char *text)
{
    bool bold = false;
    if (*text == '.' || *text == '\'') fputs("\\&", out);
    for (; *text; text++) {
        if (*text == '`')
            fputs((bold = !bold) ? "\\fB" : "\\fR", out);
        else if (*text == '-')
            fputs("\\-", out);
        else if (*text == '\\')
            fputs("\\e", out);
        else
            fputc(*text, out);
    }
}

static void put_line(FILE *out, const char *text)
{
    put(out, text);
    fputc('\n', out);
}

static void put_item(FILE *out, const char *term, const char *text)
{
    fputs(".TP\n.B ", out);
    put_line(out, term);
    put_line(out, text);
}

/* Each command and what it does. */
static void put_examples(FILE *out)
{
    fputs(".SH EXAMPLES\n", out);
    for (int i = 0; rd_help_examples[i][0]; i++)
        put_item(out, rd_help_examples[i][0], rd_help_examples[i][1]);
}

static void put_flags(FILE *out)
{
    fputs(".SH FLAGS\n", out);
    put_line(out,
             "`--flag=value` and `--flag value` mean the same. The beginning of a flag is enough "
             "while it is unique. A flag without a value is turned off by `--noflag`.");
    for (int i = 0; i < rd_n_flags; i++) {
        const rd_flag *f = &rd_flags[i];
        char term[80], text[512];
        snprintf(term, sizeof term, "--%s%s%s", f->name, f->value ? "=" : "",
                 f->value ? f->value : "");
        snprintf(text, sizeof text, "%s%s%s%s", f->help, f->def ? " (default " : "",
                 f->def ? f->def : "", f->def ? ")" : "");
        put_item(out, term, text);
    }
}

static void put_bench_flags(FILE *out)
{
    fputs(".SH FLAGS OF BENCH MODE\n", out);
    put_line(out, "`--mode=bench` also takes flags of tf_cnn_benchmarks and of Horovod's synthetic "
                  "benchmark, in full. These stand for a key; `--help=bench` also lists those "
                  "without effect.");
    for (int i = 0; i < rd_bench_flag_count(); i++) {
        char term[96];
        if (!rd_bench_flag_key(i)) continue;
        snprintf(term, sizeof term, "--%s%s%s", rd_bench_flag_name(i),
                 rd_bench_flag_type(i) == RD_BENCH_BOOL ? "" : "=",
                 rd_bench_flag_type(i) == RD_BENCH_BOOL ? "" : rd_bench_flag_value(i));
        put_item(out, term, rd_bench_flag_help(i));
    }
}

static void put_topic(const rd_topic *t, FILE *out)
{
    fprintf(out, ".SH %s\n", t->title);
    put_line(out, t->about);
    for (int i = 0; i < t->n_rows; i++) {
        fputs(".TP\n", out);
        put_line(out, t->rows[i][0]);
        put(out, t->rows[i][1]);
        for (int k = 2; k < t->columns; k++) {
            fprintf(out, "; %s ", t->head[k]);
            put(out, t->rows[i][k]);
        }
        fputc('\n', out);
    }
    for (int i = 0; t->notes[i]; i++) {
        fputs(".PP\n", out);
        put_line(out, t->notes[i]);
    }
}

static bool known_before(const rd_option_group *const *groups, int group, const char *key)
{
    for (int i = 0; i < group; i++)
        for (const rd_option *o = groups[i]->options; o->key; o++)
            if (!strcmp(o->key, key)) return true;
    return false;
}

static void put_keys(const rd_option_group *const *groups, int n, FILE *out)
{
    fputs(".SH KEYS OF THE CONFIG\n", out);
    put_line(out,
             "The config is one JSON object. `--set key=value` replaces a value; `--set key=null` "
             "removes it, so that the default counts.");
    for (int i = 0; i < n; i++) {
        bool begun = false;
        for (const rd_option *o = groups[i]->options; o->key; o++) {
            char kind[RD_KIND_BYTES], term[128];
            if (known_before(groups, i, o->key)) continue;
            if (!begun) {
                fputs(".SS ", out);
                put_line(out, groups[i]->about ? groups[i]->about : groups[i]->name);
                begun = true;
            }
            snprintf(term, sizeof term, "%s", o->key);
            fputs(".TP\n.B ", out);
            put_line(out, term);
            put(out, o->help ? o->help : "");
            fputs(o->help ? " (" : "(", out);
            put(out, rd_option_kind(o, kind));
            fputs(o->def ? "; default " : o->required ? "; required" : "", out);
            put(out, o->def ? o->def : "");
            fputs(o->flags & RD_OPT_ACCEPTED ? "; without effect)\n" : ")\n", out);
        }
    }
}

void rd_help_man(const rd_option_group *const *groups, int n, FILE *out)
{
    fputs(".\\\" printed by run_dist --print_man\n"
          ".TH RUN_DIST 1 \"\" \"run_dist\" \"User Commands\"\n.SH NAME\n"
          "run_dist \\- trains neural networks on any number of ranks\n.SH SYNOPSIS\n"
          ".B run_dist\n\\-\\-config_file=\\fIFILE\\fR \\-\\-logdir=\\fIDIR\\fR [\\fIflags\\fR]\n"
          ".SH DESCRIPTION\n",
          out);
    put_line(out,
             "`run_dist` trains the experiment in one JSON file on CPU cores or GPUs. `mpirun` or "
             "`srun` starts its ranks. All output of a run is in one log folder.");
    put_examples(out);
    put_flags(out);
    put_bench_flags(out);
    for (int i = 0; i < rd_n_topics; i++) put_topic(&rd_topics[i], out);
    put_keys(groups, n, out);
    fputs(".SH SEE ALSO\n.BR mpirun (1),\n.BR srun (1)\n.PP\n", out);
    put_line(out, "The pages README.md, FAQ.md, configs/README.md and logs/README.md, which are "
                  "installed in share/doc/run_dist.");
}
