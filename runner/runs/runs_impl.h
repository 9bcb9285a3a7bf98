/* runs_impl.h -- what the files of this folder share. */
#ifndef RD_RUNS_IMPL_H
#define RD_RUNS_IMPL_H

#include "rd/runs.h"
#include <jansson.h>
#include <stdint.h>

RD_C_BEGIN

/* ---- runs_text.c: texts for a terminal ---- */

/* Returns the columns of the terminal behind out; 0: it is no terminal. */
int runs_width(FILE *out);
/* Returns the number of columns that a printable text takes on a terminal. */
int runs_columns(const char *s, size_t n);
/* Appends s cut to `width` columns; a text that is cut ends in "...". */
void runs_cut(rd_strbuf *b, const char *s, int width);
/* Appends a value as a printable text: strings without quotes, short numbers. NULL: "-". */
void runs_show_value(rd_strbuf *b, const json_t *v);
/* Returns out with "1.2s", "12s", "3m 05s", "2h 01m", "3d 04h"; "-" for NAN. */
char *runs_duration(double seconds, char out[32]);

/* ---- runs_curve.c: a curve of any length in little memory ---- */

enum { RUNS_POINTS = 1024 };
/* Means of `stride` values each. A full curve doubles its stride. */
typedef struct runs_curve {
    int n;
    int64_t stride, filled;    /* filled: values in the sums below */
    double step_sum, sum;      /* of the point that is not whole yet */
    double first, last;        /* steps of the first and the last value */
    double step[RUNS_POINTS];  /* mean step of a point */
    double value[RUNS_POINTS]; /* mean value of a point */
} runs_curve;
/* Adds a value. One that is not finite is left out. */
void runs_curve_add(runs_curve *c, double step, double value);
/* Turns the last values into a point. */
void runs_curve_end(runs_curve *c);
/* Appends a drawing of `width` columns and `height` + 2 lines: the title, the curve with numbers at
 * its left, the first and the last step. braille: dots of Unicode, else ASCII. */
void runs_curve_draw(const runs_curve *c, const char *title, int width, int height, bool braille,
                     rd_strbuf lines[]);

/* ---- runs_read.c: one log folder ---- */

typedef enum runs_state {
    RUNS_RUNNING,
    RUNS_DONE,
    RUNS_STOPPED,
    RUNS_FAILED,
    RUNS_UNKNOWN /* run.log is missing, or says nothing */
} runs_state;
const char *runs_state_name(runs_state s);

/* What the last start printed. Texts are printable, "" if it did not. */
typedef struct runs_banner {
    char program[64], config[256], world[160], device[160], model[128], data[160], vocabulary[128],
        batch[128], optimizer[128];
} runs_banner;

/* One run. Texts are printable; config holds any text. */
typedef struct runs_facts {
    char *folder; /* owned; the path to open */
    char *name;   /* owned; printable: the path below the folder that was searched */
    runs_state state;
    int exit_code;    /* of a failure; 0: not known */
    char why[512];    /* of a failure */
    char end[24];     /* what ended the run, "max_steps"; "": a failure, or not known */
    bool best_of_all; /* the table marks the run */
    int64_t step;     /* the last recorded step; -1: none */
    int64_t to_step;  /* the step where the run ends; -1: not known */
    double seconds;   /* training time of all starts, by the times of the records; NAN: not known */
    double started, last_time; /* seconds since 1970; NAN: not known */
    double loss;               /* last mean training loss; NAN: none */
    double units_per_s;        /* last speed, of the unit below; NAN: none */
    char unit[32];
    char figure[40];   /* what `best` is: "BLEU", "train loss"; "": nothing was recorded */
    bool higher;       /* larger figures are better */
    double best, last; /* NAN: none */
    int64_t best_step;
    json_t *config;   /* owned; key -> value of config.json; empty if it cannot be read */
    json_t *set;      /* owned; key -> source, of the keys that are not defaults */
    char damage[160]; /* what could not be read; "": nothing */
} runs_facts;

/* The curves of one run. */
typedef struct runs_curves {
    runs_curve loss, figure, rate;
} runs_curves;

enum { RUNS_PATH = 4400, RUNS_STARTS = 4096 /* starts of a run that are counted */ };
/* Writes the path of a file of a folder. */
void runs_path(const char *folder, const char *file, char out[RUNS_PATH]);
/* Receives the fields of a line. */
typedef void runs_line_fn(void *ctx, const rd_runs_field *f, int n);
/* Calls fn for each whole line of a file. Of a file that is too large, it leaves the middle out.
 * Returns the number of bytes that belong to no whole JSON object; -1: no such file. */
int64_t runs_each_line(const char *path, runs_line_fn *fn, void *ctx);
/* Reads the rising times of the starts from the names of the event files,
 * events.out.tfevents.TIME... Returns their number. */
int runs_starts(const char *folder, double start[RUNS_STARTS]);

/* Reads a folder. folder, name: copied. curves: filled unless NULL. RD_EENV: out of memory. */
rd_code runs_read(const char *folder, const char *name, runs_facts *out, runs_curves *curves,
                  rd_status *st);
/* Returns the best figure of the run's evaluations up to a step; NAN: there is none. *loss: the
 * smallest loss of these evaluations. */
double runs_best_until(const runs_facts *f, int64_t step, double *loss);
void runs_facts_release(runs_facts *f);
/* Reads what the last start printed. */
void runs_banner_read(const char *folder, runs_banner *out);
/* Reads the manifest of the newest checkpoint that is whole. NULL: there is none. The caller owns
 * it. */
json_t *runs_manifest(const char *folder);

/* ---- runs_find.c ---- */

typedef struct runs_list {
    runs_facts *at; /* owned */
    int n, cap;
    int n_unreadable;     /* folders that could not be listed */
    char unreadable[512]; /* the first of them, and why; printable */
    bool more;            /* the search has ended early: too many folders */
} runs_list;
/* Finds and reads the runs in and below a folder. Follows links to runs, and never searches below
 * them. */
rd_code runs_find(const char *root, runs_list *out, rd_status *st);
/* Returns whether the folder holds a run. */
bool runs_is_run(const char *folder);
void runs_list_release(runs_list *l);

/* ---- runs_where.c: values, conditions, order ---- */

/* Returns the value of a column or of a key; the caller owns it. NULL: the run has none. */
json_t *runs_value(const runs_facts *f, const char *key);
/* Keeps the runs for which all conditions hold. text: "KEY OP VALUE and KEY OP VALUE"; NULL: all
 * runs. */
rd_code runs_keep(runs_list *l, const char *text, const rd_cli *cli, rd_status *st);
/* Sorts by a column or key; "-KEY": the other way round; NULL: by name. */
rd_code runs_sort(runs_list *l, const char *text, const rd_cli *cli, rd_status *st);
/* Returns the keys whose values differ, in the order of the first run that has them, paths last.
 * Borrowed from the runs; the caller frees the list. *n: their number. NULL with *n < 0: out of
 * memory. */
const char **runs_differing(const runs_list *l, int *n);

/* ---- runs_table.c ---- */

typedef enum runs_format { RUNS_TEXT, RUNS_CSV, RUNS_JSON } runs_format;
/* Reads --format. */
rd_code runs_format_read(const rd_cli *cli, runs_format *out, rd_status *st);
/* Appends the table as text. width: 0 is no limit. */
void runs_table_text(const runs_list *l, int width, rd_strbuf *b);
void runs_table_csv(const runs_list *l, rd_strbuf *b);
/* Appends {"runs": [...]}, or one run. */
void runs_table_json(const runs_list *l, rd_strbuf *b);
json_t *runs_json(const runs_facts *f);

/* ---- runs_show.c, runs_diff.c ---- */

rd_code runs_show(const char *folder, runs_format format, int width, rd_strbuf *b, rd_status *st);
rd_code runs_diff(const char *a, const char *b_, runs_format format, int width, rd_strbuf *b,
                  rd_status *st);

/* ---- report.c ---- */

/* Writes the report of the runs that the command line names, and says so on out. */
rd_code runs_report(const rd_cli *cli, FILE *out, rd_status *st);

RD_C_END
#endif
