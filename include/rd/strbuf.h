/* strbuf.h -- a byte string that grows and always ends with '\0'.
 *
 * A failed allocation sets `failed`. Later additions are then dropped, so the caller checks
 * `failed` once, at the end. A struct of zeros is an empty string. */
#ifndef RD_STRBUF_H
#define RD_STRBUF_H
#include "rd/status.h"
RD_C_BEGIN
typedef struct rd_strbuf {
    char *s;     /* owned; the bytes and a '\0'; NULL while empty */
    size_t n;    /* number of bytes, without the '\0' */
    size_t cap;  /* bytes allocated at s */
    bool failed; /* an allocation failed */
} rd_strbuf;
/* Appends n bytes, a string, or formatted text. */
void rd_strbuf_add(rd_strbuf *b, const void *p, size_t n);
void rd_strbuf_puts(rd_strbuf *b, const char *s);
void rd_strbuf_printf(rd_strbuf *b, const char *fmt, ...) RD_PRINTF(2, 3);
/* Empties the string and clears `failed`. Keeps the memory. */
void rd_strbuf_reset(rd_strbuf *b);
/* Frees the memory. *b is then an empty string. */
void rd_strbuf_release(rd_strbuf *b);
/* Returns the string, never NULL. It is valid until the next call on b. */
const char *rd_strbuf_str(const rd_strbuf *b);
/* Formats a number without its fraction: 1234567 -> "1,234,567". Returns out. */
char *rd_commas(double v, char out[32]);
RD_C_END
#endif
