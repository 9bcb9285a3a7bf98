/* strbuf.h -- a growing byte string, always '\0'-terminated. A failed allocation sticks in `failed`: what is
 * added after it is dropped, and the caller asks once, at the end. All zero is an empty one. */
#ifndef RD_STRBUF_H
#define RD_STRBUF_H
#include "rd/status.h"
RD_C_BEGIN
typedef struct rd_strbuf {
    char *s; /* owned; NULL while empty */
    size_t n, cap;
    bool failed;
} rd_strbuf;
void rd_strbuf_add(rd_strbuf *b, const void *p, size_t n);
void rd_strbuf_puts(rd_strbuf *b, const char *s);
void rd_strbuf_printf(rd_strbuf *b, const char *fmt, ...) RD_PRINTF(2, 3);
void rd_strbuf_reset(rd_strbuf *b); /* empty, memory kept */
void rd_strbuf_release(rd_strbuf *b);
const char *rd_strbuf_str(const rd_strbuf *b); /* never NULL; valid until the next call on b */
RD_C_END
#endif
