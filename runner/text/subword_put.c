/* subword_put.c -- appends ids and text to what a scheme returns. */
#include "subword_impl.h"
#include "rd/printable.h"
#include <stdlib.h>
#include <string.h>

void rd_subword_put_all(rd_subword_ids *out, const int32_t *id, size_t n)
{
    if (n == 0) return;
    if (out->n + n > out->cap) {
        const size_t cap = (out->n + n) * 2 + 256;
        int32_t *p = realloc(out->at, cap * sizeof *p);
        if (!p) {
            out->failed = true;
            return;
        }
        out->at = p;
        out->cap = cap;
    }
    memcpy(out->at + out->n, id, n * sizeof *id);
    out->n += n;
}

void rd_subword_put(rd_subword_ids *out, int32_t id)
{
    rd_subword_put_all(out, &id, 1);
}

/* Returns the length of the invalid part at s: the longest with which a valid sequence could begin,
 * at least 1. */
static size_t invalid_part(const char *s, size_t n)
{
    for (size_t k = n < 3 ? n : 3; k >= 2; k--) {
        char whole[4] = {'\x80', '\x80', '\x80', '\x80'};
        memcpy(whole, s, k);
        if (rd_utf8_bytes(whole, sizeof whole) > k) return k;
    }
    return 1;
}

void rd_subword_put_text(rd_strbuf *out, const char *s, size_t n)
{
    size_t from = 0, i = 0;
    while (i < n) {
        const size_t k = (unsigned char)s[i] < 0x80 ? 1 : rd_utf8_bytes(s + i, n - i);
        if (k > 0) {
            i += k;
            continue;
        }
        rd_strbuf_add(out, s + from, i - from);
        rd_strbuf_puts(out, "\xEF\xBF\xBD");
        i += invalid_part(s + i, n - i);
        from = i;
    }
    rd_strbuf_add(out, s + from, n - from);
}
