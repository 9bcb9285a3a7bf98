/* runs_text.c -- texts for a terminal: its width, columns of characters, short values and times. */
#include "runs_impl.h"
#include "rd/clock.h"
#include "rd/printable.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int runs_width(FILE *out)
{
    struct winsize w;
    const char *env = getenv("COLUMNS");
    if (isatty(fileno(out)) != 1) return 0;
    if (ioctl(fileno(out), TIOCGWINSZ, &w) == 0 && w.ws_col > 0) return w.ws_col;
    return env && atoi(env) > 0 ? atoi(env) : 80;
}

/* ---- widths ---- */

/* Columns of a character: wide ones of East Asia and pictures take two, combining ones none. */
static int char_columns(uint32_t c)
{
    static const uint32_t none[][2] = {{0x300, 0x36F}, {0x200B, 0x200F}, {0xFE00, 0xFE0F}};
    static const uint32_t two[][2] = {{0x1100, 0x115F}, {0x2E80, 0xA4CF},   {0xAC00, 0xD7A3},
                                      {0xF900, 0xFAFF}, {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},
                                      {0xFFE0, 0xFFE6}, {0x1F300, 0x1FAFF}, {0x20000, 0x3FFFD}};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (c >= none[i][0] && c <= none[i][1]) return 0;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (c >= two[i][0] && c <= two[i][1]) return 2;
    return 1;
}

/* Returns the number of bytes of the first `width` columns of a printable text. *columns: what they
 * take. */
static size_t within(const char *s, size_t n, int width, int *columns)
{
    size_t at = 0;
    *columns = 0;
    while (at < n) {
        const size_t k = rd_utf8_bytes(s + at, n - at);
        uint32_t c = (unsigned char)s[at];
        if (k == 2) c &= 0x1F;
        if (k == 3) c &= 0x0F;
        if (k == 4) c &= 0x07;
        for (size_t i = 1; i < k; i++) c = c << 6 | ((unsigned char)s[at + i] & 0x3F);
        const int w = char_columns(c);
        if (*columns + w > width) break;
        *columns += w;
        at += k ? k : 1;
    }
    return at;
}

int runs_columns(const char *s, size_t n)
{
    int columns;
    (void)within(s, n, 1 << 30, &columns);
    return columns;
}

void runs_cut(rd_strbuf *b, const char *s, int width)
{
    const size_t n = strlen(s);
    int columns;
    if (within(s, n, width, &columns) == n) {
        rd_strbuf_add(b, s, n);
        return;
    }
    rd_strbuf_add(b, s, within(s, n, width > 3 ? width - 3 : width, &columns));
    if (width > 3) rd_strbuf_puts(b, "...");
}

/* ---- cells ---- */

char *runs_duration(double seconds, char out[32])
{
    if (!(seconds >= 0.0 && seconds < 1e12))
        (void)snprintf(out, 32, "-");
    else if (seconds < 9.95)
        (void)snprintf(out, 32, "%.1fs", seconds);
    else
        return rd_duration_text(seconds, out);
    return out;
}

void runs_show_value(rd_strbuf *b, const json_t *v)
{
    if (!v || json_is_null(v)) {
        rd_strbuf_puts(b, "-");
        return;
    }
    if (json_is_string(v)) {
        const char *s = json_string_value(v);
        const size_t n = json_string_length(v);
        const bool quotes = n == 0 || s[0] == ' ' || s[n - 1] == ' '; /* else nothing is seen */
        if (quotes) rd_strbuf_puts(b, "\"");
        rd_printable_add(b, s, n);
        if (quotes) rd_strbuf_puts(b, "\"");
        return;
    }
    if (json_is_real(v)) {
        rd_strbuf_printf(b, "%.15g", json_real_value(v));
        return;
    }
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    if (text) rd_printable_add(b, text, strlen(text));
    free(text);
}
