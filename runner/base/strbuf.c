/* strbuf.c -- a byte string that grows, see strbuf.h. */
#include "rd/strbuf.h"
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes space for n more bytes and the '\0'. Returns false after a failure. */
static bool strbuf_reserve(rd_strbuf *b, size_t n)
{
    rd_assert(b->s ? b->n < b->cap : b->n == 0);
    if (b->failed) return false;
    if (n >= SIZE_MAX / 2 - b->n) return !(b->failed = true);
    const size_t need = b->n + n + 1;
    if (need <= b->cap) return true;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need) cap *= 2;
    char *s = realloc(b->s, cap);
    if (!s) return !(b->failed = true);
    b->s = s;
    b->cap = cap;
    return true;
}

void rd_strbuf_add(rd_strbuf *b, const void *p, size_t n)
{
    if (!strbuf_reserve(b, n)) return;
    if (n) memcpy(b->s + b->n, p, n);
    b->n += n;
    b->s[b->n] = '\0';
}

void rd_strbuf_puts(rd_strbuf *b, const char *s)
{
    rd_strbuf_add(b, s, strlen(s));
}

void rd_strbuf_printf(rd_strbuf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) b->failed = true;
    if (n < 0 || !strbuf_reserve(b, (size_t)n)) return;
    va_start(ap, fmt);
    vsnprintf(b->s + b->n, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->n += (size_t)n;
}

void rd_strbuf_reset(rd_strbuf *b)
{
    b->n = 0;
    b->failed = false;
    if (b->s) b->s[0] = '\0';
}

void rd_strbuf_release(rd_strbuf *b)
{
    free(b->s);
    *b = (rd_strbuf){0};
}

const char *rd_strbuf_str(const rd_strbuf *b)
{
    return b->s ? b->s : "";
}

char *rd_commas(double v, char out[32])
{
    char digits[32];
    int n, o = 0;
    if (!isfinite(v) || fabs(v) >= 1e15) {
        (void)snprintf(out, 32, "%g", v);
        return out;
    }
    n = snprintf(digits, sizeof digits, "%.0f", v);
    for (int i = 0; i < n; i++) {
        out[o++] = digits[i];
        if (digits[i] != '-' && i + 1 < n && (n - 1 - i) % 3 == 0) out[o++] = ',';
    }
    out[o] = '\0';
    return out;
}
