/* report.c -- the mode report: one HTML file with the curves, tables and pictures of runs.
 *
 * The file has a limit: the more runs it shows, the fewer points their curves have. */
#include "report_impl.h"
#include "rd/clock.h"
#include "rd/file.h"
#include "rd/input.h"
#include "rd/log.h"
#include "rd/printable.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    MOST_RUNS = 200,
    CURVES_ROOM = 2800 << 10,   /* bytes of all curves in the page */
    PICTURES_ROOM = 1200 << 10, /* bytes of all pictures in the page */
    MATRIX_ROOM = 500 << 10,    /* bytes of all confusion matrices in the page */
    SAMPLES_ROOM = 400 << 10,   /* bytes of all samples in the page */
    EVALUATIONS = 2048          /* rows of a run's evaluations */
};

typedef struct report_run {
    report_table train, evals;
} report_run;

/* Rows of a run's training: fewer for many runs, so that memory has a limit. */
static int rows_of(int n_runs)
{
    return n_runs <= 4 ? 16384 : n_runs <= 24 ? 4096 : n_runs <= 100 ? 2048 : 1024;
}

/* ---- which runs ---- */

/* Appends the runs of a folder. `named`: the names get the folder in front. */
static rd_code add_runs(runs_list *all, const char *root, bool named, rd_status *st)
{
    runs_list l = {.at = NULL};
    char shown[512];
    RD_TRY(runs_find(root, &l, st));
    (void)rd_printable(root, strlen(root), false, shown, sizeof shown);
    if (l.n == 0)
        rd_fail(st, RD_EUSAGE, "no run is in or below '%s'; give the folders of the runs", shown);
    if (l.n_unreadable > 0)
        (void)fprintf(stderr, "warning: %s%s\n", l.unreadable,
                      l.n_unreadable > 1 ? "; more folders cannot be listed" : "");
    RD_TRY(st->code);
    runs_facts *more = realloc(all->at, (size_t)(all->n + l.n) * sizeof *more);
    if (!more) RD_TRY(rd_fail(st, RD_EENV, "out of memory for the runs"));
    all->at = more;
    all->more |= l.more;
    for (int i = 0; i < l.n; i++) {
        runs_facts *f = &all->at[all->n];
        char *name = NULL;
        *f = l.at[i];
        l.at[i] = (runs_facts){.folder = NULL};
        const bool itself = !strcmp(f->name, ".");
        if ((named || itself) &&
            asprintf(&name, "%s%s%s", shown, itself ? "" : "/", itself ? "" : f->name) >= 0) {
            free(f->name);
            f->name = name;
        }
        all->n++;
    }
done:
    runs_list_release(&l);
    return st->code;
}

static bool same_folder(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Removes what two of the folders both hold. */
static void remove_twins(runs_list *l)
{
    for (int i = 1; i < l->n; i++)
        for (int k = 0; k < i; k++) {
            if (!same_folder(l->at[i].folder, l->at[k].folder)) continue;
            runs_facts_release(&l->at[i]);
            memmove(&l->at[i], &l->at[i + 1], sizeof *l->at * (size_t)(l->n - i - 1));
            l->n--;
            i--;
            break;
        }
}

static rd_code choose_runs(const rd_cli *cli, runs_list *l, int *n_found, rd_status *st)
{
    const char *root = cli->logdir && cli->logdir[0] ? cli->logdir : "logs";
    for (int i = 0; i < cli->n_word; i++) RD_TRY(add_runs(l, cli->word[i], cli->n_word > 1, st));
    if (cli->n_word == 0) RD_TRY(add_runs(l, root, false, st));
    if (cli->n_word > 1) remove_twins(l);
    const int all = l->n;
    RD_TRY(runs_keep(l, cli->where, cli, st));
    if (cli->sort) RD_TRY(runs_sort(l, cli->sort, cli, st));
    if (l->n == 0) rd_fail(st, RD_EUSAGE, "none of %d run%s fits --where", all, RD_S(all));
    *n_found = l->n;
    while (l->n > MOST_RUNS) runs_facts_release(&l->at[--l->n]);
done:
    return st->code;
}

/* ---- what the page holds of them ---- */

/* The finest curves that have room. main: points of the main figures, other: of the others. */
static void choose_points(const report_run *runs, int n, int *main, int *other)
{
    *main = *other = 1 << 14;
    for (;;) {
        int64_t bytes = 0;
        for (int i = 0; i < n; i++)
            bytes += report_table_bytes(&runs[i].train, *main, *other) +
                     report_table_bytes(&runs[i].evals, *main, *other);
        if (bytes <= CURVES_ROOM || (*main <= 8 && *other <= 8)) return;
        if (*other > *main / 4 && *other > 8)
            *other /= 2;
        else
            *main /= 2;
    }
}

static void put_data(const runs_list *l, const report_run *runs, rd_strbuf *b)
{
    int main, other;
    choose_points(runs, l->n, &main, &other);
    rd_strbuf_puts(b, "{\"runs\":[");
    for (int i = 0; i < l->n; i++) {
        rd_strbuf_printf(b, "%s\n{\"name\":", i ? "," : "");
        report_json_text(b, l->at[i].name);
        rd_strbuf_puts(b, ",\"figure\":");
        report_json_text(b, l->at[i].figure);
        rd_strbuf_puts(b, ",\"train\":");
        report_table_json(&runs[i].train, main, other, b);
        rd_strbuf_puts(b, ",\"eval\":");
        report_table_json(&runs[i].evals, main, other, b);
        rd_strbuf_puts(b, "}");
    }
    rd_strbuf_puts(b, "]}");
}

static void read_run(const runs_facts *f, int n_runs, report_run *out)
{
    static double start[RUNS_STARTS]; /* the program has one thread here */
    char path[RUNS_PATH];
    const int n = runs_starts(f->folder, start);
    runs_path(f->folder, "metrics.jsonl", path);
    report_table_read(&out->train, path, rows_of(n_runs), start, n);
    runs_path(f->folder, "eval/metrics.jsonl", path);
    report_table_read(&out->evals, path, EVALUATIONS, NULL, 0);
}

static void put_parts(const runs_list *l, report_parts *p)
{
    int64_t pictures = PICTURES_ROOM, matrices = MATRIX_ROOM;
    for (int i = 0; i < l->n; i++) {
        report_extras x;
        const char *name = l->at[i].name;
        report_extras_read(l->at[i].folder, &x);
        if (p->samples.n < SAMPLES_ROOM) report_samples(&x, name, p->samples.n == 0, &p->samples);
        p->n_without += !report_mistakes(&x, name, p->mistakes.n == 0, &pictures, &p->mistakes);
        report_confusion(&x, name, p->confusion.n == 0, &matrices, &p->confusion);
        report_extras_release(&x);
    }
}

/* ---- the file ---- */

/* A file of that name is replaced only if it is an earlier report. */
static rd_code check_place(const char *path, rd_status *st)
{
    static const char mark[] = "<meta name=\"generator\" content=\"run_dist ";
    char head[4096], shown[512];
    const char *kind;
    struct stat sb;
    if (lstat(path, &sb) != 0) return RD_OK;
    (void)rd_printable(path, strlen(path), false, shown, sizeof shown);
    if (!S_ISREG(sb.st_mode))
        return rd_fail(st, RD_EUSAGE, "'%s' is no regular file; --report_out=FILE names another",
                       shown);
    rd_input *in = rd_input_open(path, RD_MAYBE, &kind);
    const ssize_t n = in ? rd_input_pread(in, head, sizeof head, 0) : -1;
    rd_input_close(in);
    if (n == 0 || (n > 0 && memmem(head, (size_t)n, mark, sizeof mark - 1))) return RD_OK;
    return rd_fail(st, RD_EUSAGE,
                   "'%s' exists and is no report of run_dist; --report_out=FILE names another, or "
                   "remove it",
                   shown);
}

/* The name of the runs' folder, or of the only run. */
static const char *title_of(const rd_cli *cli, const runs_list *l)
{
    if (l->n == 1) return l->at[0].name;
    if (cli->n_word == 1) return cli->word[0];
    return cli->n_word > 1 ? "Runs" : cli->logdir && cli->logdir[0] ? cli->logdir : "logs";
}

rd_code runs_report(const rd_cli *cli, FILE *out, rd_status *st)
{
    const char *path = cli->report_out ? cli->report_out : "report.html";
    const bool to_out = !strcmp(path, "-");
    runs_list l = {.at = NULL};
    report_parts p = {.n_found = 0};
    report_run *runs = NULL;
    rd_strbuf page = {0};
    char shown[512], size[32];
    if (!to_out) RD_TRY(check_place(path, st));
    RD_TRY(choose_runs(cli, &l, &p.n_found, st));
    runs = calloc((size_t)l.n, sizeof *runs);
    if (!runs) RD_TRY(rd_fail(st, RD_EENV, "out of memory for the curves"));
    for (int i = 0; i < l.n; i++) read_run(&l.at[i], l.n, &runs[i]);
    p.title = title_of(cli, &l);
    put_data(&l, runs, &p.data);
    put_parts(&l, &p);
    report_page(&l, &p, &page);
    if (page.failed) RD_TRY(rd_fail(st, RD_EENV, "out of memory for the report"));
    if (to_out) {
        (void)fwrite(page.s, 1, page.n, out);
    } else if (rd_file_write_atomic(path, page.s, page.n, st) == RD_OK) {
        (void)fprintf(out, "%s: %d run%s, %s kB; open it in a browser\n",
                      rd_printable(path, strlen(path), false, shown, sizeof shown), l.n, RD_S(l.n),
                      rd_commas(ceil((double)page.n / 1000.0), size));
    }
done:
    for (int i = 0; runs && i < l.n; i++) {
        report_table_release(&runs[i].train);
        report_table_release(&runs[i].evals);
    }
    free(runs);
    rd_strbuf_release(&p.samples);
    rd_strbuf_release(&p.mistakes);
    rd_strbuf_release(&p.confusion);
    rd_strbuf_release(&p.data);
    rd_strbuf_release(&page);
    runs_list_release(&l);
    return st->code;
}
