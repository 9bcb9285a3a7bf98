/* predict_format.h -- the forms in which infer mode writes the classes of images. */
#ifndef RD_RUN_PREDICT_FORMAT_H
#define RD_RUN_PREDICT_FORMAT_H

#include "rd/search.h"
#include "rd/strbuf.h"

/* A class of an image. */
typedef struct predict_class {
    int32_t id;
    double probability;
    const char *name; /* borrowed */
} predict_class;

/* One image. */
typedef struct predict_row {
    const char *path;
    const predict_class *best; /* [n] most probable first */
    int64_t n;                 /* 0: the image has no class */
    const char *trouble;       /* what is wrong with the image; NULL: nothing */
} predict_row;

/* Finds the n most probable of V classes by their logits. Of equal ones the lowest comes first.
 * Returns false if a logit is not finite; out is then undefined. The names are NULL. */
bool predict_best(const float *logits, int64_t V, int64_t n, predict_class *out);

/* Appends the first line of a TSV with n classes in each row. */
void predict_head(int64_t n, rd_strbuf *out);

/* Appends the line of an image. n: number of classes of each row. shown: a terminal shows it. */
void predict_format(rd_output_format format, int64_t n, bool shown, const predict_row *row,
                    rd_strbuf *out);

/* Appends a field of a TSV file: a tab, a line break and a backslash become \t, \n, \r and \\. */
void predict_field(rd_strbuf *out, const char *text, bool shown);

#endif
