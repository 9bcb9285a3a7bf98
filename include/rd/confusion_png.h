/* confusion_png.h -- draws a confusion matrix for people: the names of the classes, the counts, and
 * the accuracy of each class. */
#ifndef RD_CONFUSION_PNG_H
#define RD_CONFUSION_PNG_H

#include "rd/picture.h"

RD_C_BEGIN

/* A confusion matrix. All pointers are borrowed. */
typedef struct rd_confusion {
    int64_t n;                /* number of classes */
    const int64_t *at;        /* [n * n] a row for each label, a column for each predicted class */
    const char *const *names; /* [n] UTF-8; "" or a NULL list: the number of the class */
} rd_confusion;

enum {
    RD_CONFUSION_NAMED = 100, /* largest number of classes whose names are drawn */
    RD_CONFUSION_MOST = 2000  /* largest number of classes that are drawn */
};

/* Draws the matrix. The colour of a cell shows its share of the row: right ones green, mistakes
 * red. Names and the accuracy of each class are drawn up to RD_CONFUSION_NAMED classes, and counts
 * where they fit. No side is longer than 4096 pixels. The caller releases *out. RD_EUSAGE: there
 * are no classes, or more than RD_CONFUSION_MOST. */
rd_code rd_confusion_draw(const rd_confusion *c, rd_picture *out, rd_status *st);

RD_C_END
#endif
