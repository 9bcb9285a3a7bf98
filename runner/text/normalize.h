/* normalize.h -- the normal forms of Unicode, by the library utf8proc. */
#ifndef RD_NORMALIZE_H
#define RD_NORMALIZE_H

#include "rd/strbuf.h"
#include <stddef.h>

typedef enum rd_normal_form { RD_NFC, RD_NFD, RD_NFKC, RD_NFKD, RD_NORMAL_FORMS } rd_normal_form;
extern const char *const rd_normal_names[RD_NORMAL_FORMS]; /* "NFC", ... */

/* Returns NULL if this program can normalise, else what is missing and what to do. */
const char *rd_normalize_lacks(void);
/* Returns the name of the library with its version of Unicode; "" without it. */
const char *rd_normalize_library(void);
/* Appends a text in a normal form. Bytes that are not UTF-8 stay. Out of memory: out->failed. */
void rd_normalize(rd_normal_form form, const char *text, size_t n, rd_strbuf *out);

#endif
