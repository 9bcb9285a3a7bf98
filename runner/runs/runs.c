/* runs.c -- the modes runs, show, diff and report: from the command line to the printed answer. */
#include "rd/runs.h"
#include "runs_impl.h"
#include "rd/clock.h"
#include "rd/input.h"
#include "rd/log.h"
#include "rd/printable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

bool rd_runs_is_mode(const rd_cli *cli)
{
    return (cli->mode_bit & (RD_MODE_RUNS | RD_MODE_SHOW | RD_MODE_DIFF | RD_MODE_REPORT)) != 0;
}

static rd_code runs_put(const rd_strbuf *b, FILE *out, rd_status *st)
{
    if (b->failed) return rd_fail(st, RD_EENV, "out of memory for the answer");
    (void)fputs(rd_strbuf_str(b), out);
    return st->code;
}

/* ---- runs ---- */

static int lines_of_terminal(FILE *out)
{
    struct winsize w;
    return isatty(fileno(out)) == 1 && ioctl(fileno(out), TIOCGWINSZ, &w) == 0 ? w.ws_row : 0;
}

/* Cuts a text to the lines of the terminal; the last one says that there are more. */
static void cut_lines(rd_strbuf *b, int lines)
{
    int n = 0;
    if (lines < 4) return;
    for (size_t i = 0; i < b->n; i++) {
        if (b->s[i] != '\n' || ++n != lines - 2) continue;
        if (i + 1 == b->n) return;
        b->n = i + 1;
        rd_strbuf_puts(b, "... more runs than lines; --sort and --where choose\n");
        return;
    }
}

/* Finds, selects, sorts and formats the runs. *running: number of living ones. */
static rd_code runs_answer(const rd_cli *cli, runs_format format, int width, bool *said,
                           rd_strbuf *b, int *running, rd_status *st)
{
    const char *root = cli->logdir && cli->logdir[0] ? cli->logdir : "logs";
    runs_list l = {.at = NULL};
    char shown[512];
    *running = 0;
    RD_TRY(runs_find(root, &l, st));
    if (l.n == 0)
        rd_fail(st, RD_EUSAGE,
                "no run is in or below '%s'; --logdir=DIR names the folder of the log folders",
                rd_printable(root, strlen(root), false, shown, sizeof shown));
    RD_TRY(st->code);
    if (!*said && l.n_unreadable > 0)
        (void)fprintf(stderr, "warning: %s%s\n", l.unreadable,
                      l.n_unreadable > 1 ? "; more folders cannot be listed" : "");
    if (!*said && l.more)
        (void)fprintf(stderr, "warning: the search has ended early: too many folders below '%s'\n",
                      rd_printable(root, strlen(root), false, shown, sizeof shown));
    *said = true;
    const int all = l.n;
    RD_TRY(runs_keep(&l, cli->where, cli, st));
    RD_TRY(runs_sort(&l, cli->sort, cli, st));
    for (int i = 0; i < l.n; i++) *running += l.at[i].state == RUNS_RUNNING;
    if (format == RUNS_CSV)
        runs_table_csv(&l, b);
    else if (format == RUNS_JSON)
        runs_table_json(&l, b);
    else if (l.n == 0)
        rd_strbuf_printf(b, "none of %d run%s fits --where\n", all, RD_S(all));
    else
        runs_table_text(&l, width, b);
done:
    runs_list_release(&l);
    return st->code;
}

/* Prints the table again whenever it changes, until no run is running. On a terminal it stays in
 * place. */
static rd_code runs_watch(const rd_cli *cli, FILE *out, rd_status *st)
{
    const bool terminal = isatty(fileno(out)) == 1;
    rd_strbuf before = {0}, now = {0};
    bool said = false;
    int running = 1;
    while (running > 0) {
        const int64_t begin_ns = rd_now_ns();
        rd_strbuf_reset(&now);
        RD_TRY(runs_answer(cli, RUNS_TEXT, runs_width(out), &said, &now, &running, st));
        if (terminal) cut_lines(&now, lines_of_terminal(out));
        if (!before.s || strcmp(before.s, rd_strbuf_str(&now)) != 0) {
            if (terminal)
                (void)fputs("\033[H\033[2J", out);
            else if (before.s)
                (void)fputs("\n", out);
            RD_TRY(runs_put(&now, out, st));
            if (fflush(out) != 0) break; /* the reader has left */
            rd_strbuf_reset(&before);
            rd_strbuf_puts(&before, rd_strbuf_str(&now));
        }
        /* Reading large records must not keep a core busy. */
        const double took_s = (double)(rd_now_ns() - begin_ns) * 1e-9;
        const double pause_s = took_s > 0.5 ? 4.0 * took_s : 2.0;
        const struct timespec pause = {
            .tv_sec = (time_t)pause_s,
            .tv_nsec = (long)((pause_s - (double)(time_t)pause_s) * 1e9)};
        if (running > 0) (void)nanosleep(&pause, NULL);
    }
    if (said) (void)fputs("no run is running\n", out);
done:
    rd_strbuf_release(&before);
    rd_strbuf_release(&now);
    return st->code;
}

/* ---- one run, two runs ---- */

/* Finds the log folder that a word names: a path, else a name below --logdir. The caller frees
 * *out. */
static rd_code folder_of(const rd_cli *cli, const char *word, char **out, rd_status *st)
{
    struct stat sb;
    char shown[512];
    const char *root = cli->logdir && cli->logdir[0] ? cli->logdir : "logs";
    *out = strdup(word);
    if (*out && stat(word, &sb) != 0 && word[0] != '/') {
        free(*out);
        if (asprintf(out, "%s/%s", root, word) < 0) *out = NULL;
    }
    if (!*out) return rd_fail(st, RD_EENV, "out of memory for a path");
    if (stat(*out, &sb) != 0)
        return rd_fail(st, RD_EUSAGE,
                       "there is no log folder '%s'; give its path, or its name below --logdir; "
                       "--mode=runs lists them",
                       rd_printable(word, strlen(word), false, shown, sizeof shown));
    if (!S_ISDIR(sb.st_mode))
        return rd_fail(st, RD_EUSAGE, "'%s' is no folder; give the log folder of a run",
                       rd_printable(word, strlen(word), false, shown, sizeof shown));
    if (!runs_is_run(*out))
        return rd_fail(st, RD_EUSAGE,
                       "'%s' is no log folder of a run: it has no run.log and no metrics.jsonl; "
                       "--mode=runs --logdir=DIR lists the runs below a folder",
                       rd_printable(word, strlen(word), false, shown, sizeof shown));
    return RD_OK;
}

static rd_code show_or_diff(const rd_cli *cli, runs_format format, FILE *out, rd_status *st)
{
    const bool diff = cli->mode_bit == RD_MODE_DIFF;
    char *folder[2] = {NULL, NULL};
    rd_strbuf b = {0};
    const int n = diff ? 2 : 1;
    for (int i = 0; i < n; i++)
        RD_TRY(folder_of(cli, cli->n_word > i ? cli->word[i] : cli->logdir, &folder[i], st));
    if (diff)
        RD_TRY(runs_diff(folder[0], folder[1], format, runs_width(out), &b, st));
    else
        RD_TRY(runs_show(folder[0], format, runs_width(out), &b, st));
    (void)runs_put(&b, out, st);
done:
    rd_strbuf_release(&b);
    free(folder[0]);
    free(folder[1]);
    return st->code;
}

rd_code rd_runs(const rd_cli *cli, FILE *out, rd_status *st)
{
    runs_format format;
    rd_strbuf b = {0};
    int running;
    bool said = false;
    rd_retries_allow(2); /* a broken disk is shown, not waited for */
    if (cli->mode_bit == RD_MODE_REPORT) return runs_report(cli, out, st);
    RD_TRY(runs_format_read(cli, &format, st));
    if (cli->mode_bit == RD_MODE_SHOW && format == RUNS_CSV)
        return rd_fail(st, RD_EUSAGE, "--mode=show has --format=text and --format=json");
    if (cli->mode_bit != RD_MODE_RUNS) return show_or_diff(cli, format, out, st);
    if (cli->watch && format != RUNS_TEXT)
        return rd_fail(st, RD_EUSAGE, "--watch prints text; leave --format out, or --watch");
    if (cli->watch) return runs_watch(cli, out, st);
    RD_TRY(runs_answer(cli, format, runs_width(out), &said, &b, &running, st));
    (void)runs_put(&b, out, st);
done:
    rd_strbuf_release(&b);
    return st->code;
}
