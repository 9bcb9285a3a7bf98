/* report_impl.h -- what the files of the report share. */
#ifndef RD_REPORT_IMPL_H
#define RD_REPORT_IMPL_H

#include "runs_impl.h"
#include "rd/strbuf.h"

RD_C_BEGIN

/* ---- report_table.c: the figures of a metrics.jsonl, in rows of a limited number ---- */

enum { REPORT_COLUMNS = 48, REPORT_NAME = 48 };

/* A figure. Each row holds the mean, the smallest and the largest of its values; NAN: none. */
typedef struct report_column {
    char name[REPORT_NAME];
    float *mean, *low, *high; /* owned, in one block; [cap] */
    double sum, least, most;  /* of the row that is not whole yet */
    int64_t n;
} report_column;

/* Rows over steps. A full table makes one row of each two. */
typedef struct report_table {
    int cap, n;
    int64_t stride, filled; /* lines of a row; lines in the row that is not whole yet */
    bool by_step;           /* lines may come in any order of steps (evaluations) */
    double *step, *time;    /* owned; [cap] mean step; mean seconds of training, NAN: not known */
    double step_sum, time_sum, last_step;
    int n_columns;
    report_column column[REPORT_COLUMNS];
    bool failed;                 /* out of memory */
    const double *start;         /* [n_starts] borrowed while lines are read */
    int n_starts, next_start;    /* next_start: the first that has not been passed */
    double time_before, seconds; /* time of the line before; seconds of training so far */
} report_table;

/* Reads a file into an empty table of at most cap rows, an even number. starts: NULL for
 * evaluations. */
void report_table_read(report_table *t, const char *path, int cap, const double *starts,
                       int n_starts);
void report_table_release(report_table *t);
/* Returns the bytes of the table in the page if its main figures have at most `main` points, and
 * the others `other`. */
int64_t report_table_bytes(const report_table *t, int main, int other);
/* Appends the table as JSON. */
void report_table_json(const report_table *t, int main, int other, rd_strbuf *b);

/* ---- report_text.c: texts that are safe in HTML and in a block of JSON ---- */

/* Appends a text of any bytes as text of HTML, or as the value of an attribute in quotes. */
void report_text(rd_strbuf *b, const char *s);
void report_text_n(rd_strbuf *b, const char *s, size_t n);
/* Appends a text as a string of JSON that cannot end a script element. */
void report_json_text(rd_strbuf *b, const char *s);
void report_base64(rd_strbuf *b, const void *p, size_t n);
/* Appends a number of at most six digits; "–" for NAN. */
void report_number(rd_strbuf *b, double v);

/* ---- report_events.c: samples, mistakes and confusions from the event files ---- */

enum { REPORT_SAMPLES = 5 };

typedef struct report_sample {
    int64_t step;
    char *text; /* owned */
} report_sample;

/* The newest record of a tag. */
typedef struct report_record {
    int64_t step; /* -1: none */
    char *bytes;  /* owned; a '\0' follows */
    size_t n;
} report_record;

typedef struct report_extras {
    report_sample sample[REPORT_SAMPLES]; /* by falling steps */
    int n_samples;
    report_record pictures, names;       /* of mistakes: a PNG, and the table of its parts */
    report_record confusion, confusions; /* the matrix; the most frequent confusions */
} report_extras;

void report_extras_read(const char *folder, report_extras *out);
void report_extras_release(report_extras *x);

/* ---- report_parts.c: the sections of one run ---- */

/* Each appends its part of a run, or nothing. open: the part is shown open. */
void report_samples(const report_extras *x, const char *name, bool open, rd_strbuf *b);
/* room: bytes that matrices or pictures may still take; less after the call. A matrix without room
 * is a list of the most frequent confusions. report_mistakes returns false if its pictures had no
 * room. */
void report_confusion(const report_extras *x, const char *name, bool open, int64_t *room,
                      rd_strbuf *b);
bool report_mistakes(const report_extras *x, const char *name, bool open, int64_t *room,
                     rd_strbuf *b);

/* ---- report_page.c ---- */

typedef struct report_parts {
    rd_strbuf samples, mistakes, confusion; /* HTML of all runs */
    rd_strbuf data;                         /* JSON of the curves */
    int n_found;                            /* number of runs before the limit */
    int n_without;                          /* number of runs whose pictures had no room */
    const char *title;                      /* any text */
} report_parts;

/* Appends the whole page. */
void report_page(const runs_list *l, const report_parts *p, rd_strbuf *b);

RD_C_END
#endif
