/* runs.h -- log folders read from outside: a table of runs, two runs compared, one run on a screen,
 * a report.
 *
 * None of these modes needs ranks, a GPU or the data of the runs. They read what other programs,
 * other versions and killed runs have left, so no file there can end them: what cannot be read is
 * shown as missing. */
#ifndef RD_RUNS_H
#define RD_RUNS_H

#include "rd/cli.h"
#include <stdio.h>

RD_C_BEGIN

/* Returns whether the mode of the command line is one of runs, diff, show and report. */
bool rd_runs_is_mode(const rd_cli *cli);
/* Runs the mode and prints its answer to out. RD_EUSAGE: a folder that does not exist, or that
 * holds no run; a wrong --where or --sort. */
rd_code rd_runs(const rd_cli *cli, FILE *out, rd_status *st);

/* The name and the text of a value at the outermost level of a line of JSON. Borrowed from it. */
typedef struct rd_runs_field {
    const char *key, *text; /* key: without its quotes, escapes as they are; text: "1.5", "\"a\"" */
    int n_key, n_text;
} rd_runs_field;
enum { RD_RUNS_FIELDS = 96 };
/* Splits one line of metrics.jsonl. Returns the number of its fields, at most RD_RUNS_FIELDS; later
 * ones are left out. -1: the line is not one whole JSON object. */
int rd_runs_split(const char *s, size_t n, rd_runs_field out[RD_RUNS_FIELDS]);
/* Returns the number of a field; NAN: it is none, or there is no such field. */
double rd_runs_number(const rd_runs_field *f, int n, const char *key);

RD_C_END
#endif
