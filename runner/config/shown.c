/* shown.c -- makes bytes of a config or a command line fit for a message.
 *
 * The bytes may be anything: a key may hold an escape sequence of the terminal, or a megabyte. So
 * they are cut, and only printable characters of valid UTF-8 pass. */
#include "config_impl.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *rd_shown_bytes(const char *s, size_t n, char *out, size_t cap)
{
    size_t used = 0, safe = 0; /* safe: where "..." still fits */
    for (size_t i = 0; i < n;) {
        const size_t len = rd_utf8_bytes(s + i, n - i);
        const bool bad = rd_printable_bytes(s + i, n - i) == 0;
        const char *from = bad ? "?" : s + i;
        const size_t put = bad ? 1 : len;
        if (used + put + 1 > cap) {
            memcpy(out + safe, "...", 4);
            return out;
        }
        memcpy(out + used, from, put);
        used += put;
        if (used + 4 <= cap) safe = used;
        i += len ? len : 1;
    }
    out[used] = '\0';
    return out;
}

const char *rd_shown(const char *s, char out[RD_SHOWN_BYTES])
{
    return rd_shown_bytes(s, strlen(s), out, RD_SHOWN_BYTES);
}

const char *rd_shown_real(double x, char out[32])
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, 32, "%.*g", digits, x);
        if (strtod(out, NULL) == x) break;
    }
    return out;
}

typedef struct shown_sink {
    char s[256];
    size_t n;
} shown_sink;

static int to_sink(const char *s, size_t n, void *ctx)
{
    shown_sink *k = ctx;
    const size_t room = sizeof k->s - k->n, put = n < room ? n : room;
    memcpy(k->s + k->n, s, put);
    k->n += put;
    return put < n ? -1 : 0; /* full: no need to go on */
}

const char *rd_shown_json(const json_t *v, char out[RD_SHOWN_BYTES])
{
    if (json_is_real(v)) return rd_shown_real(json_real_value(v), out);
    shown_sink k = {.n = 0};
    (void)json_dump_callback(v, to_sink, &k, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    return rd_shown_bytes(k.s, k.n, out, RD_SHOWN_BYTES);
}
