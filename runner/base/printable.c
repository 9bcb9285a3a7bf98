/* printable.c -- makes text of unknown origin fit for a terminal, see printable.h.
 *
 * The escapes of valid characters are those of JSON, so a JSON text that passes here keeps its
 * meaning. A backslash is not escaped: messages are read by people, and text that passes twice
 * must not change. */
#include "rd/printable.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { MOST_ESCAPE = 8 }; /* "\u202e" and its '\0' */

size_t rd_utf8_bytes(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    if (n == 0) return 0;
    if (u[0] < 0x80) return 1;
    const size_t len = u[0] >= 0xF0 ? 4 : u[0] >= 0xE0 ? 3 : 2;
    if (u[0] < 0xC2 || u[0] > 0xF4 || n < len) return 0;
    for (size_t i = 1; i < len; i++)
        if ((u[i] & 0xC0) != 0x80) return 0;
    if ((u[0] == 0xE0 && u[1] < 0xA0) || (u[0] == 0xF0 && u[1] < 0x90))
        return 0; /* an overlong form */
    if ((u[0] == 0xED && u[1] > 0x9F) || (u[0] == 0xF4 && u[1] > 0x8F))
        return 0; /* surrogates, past U+10FFFF */
    return len;
}

bool rd_utf8_valid(const char *s, size_t n)
{
    for (size_t i = 0, len; i < n; i += len)
        if (!(len = rd_utf8_bytes(s + i, n - i))) return false;
    return true;
}

/* Returns the code point of a valid character of at most three bytes. Longer ones are never
 * controls: 0xFFFF stands for them. */
static uint32_t code_point(const char *s, size_t len)
{
    const unsigned char *u = (const unsigned char *)s;
    if (len == 1) return u[0];
    if (len == 2) return (u[0] & 0x1Fu) << 6 | (u[1] & 0x3Fu);
    if (len == 3) return (u[0] & 0x0Fu) << 12 | (u[1] & 0x3Fu) << 6 | (u[2] & 0x3Fu);
    return 0xFFFF;
}

static bool is_control(uint32_t c)
{
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x2028 && c <= 0x202E) ||
           (c >= 0x2066 && c <= 0x2069);
}

size_t rd_printable_bytes(const char *s, size_t n)
{
    const size_t len = rd_utf8_bytes(s, n);
    return len == 0 || is_control(code_point(s, len)) ? 0 : len;
}

/* Writes what stands for the character at s. Returns its bytes in s; *put: those in out. */
static size_t show_char(const char *s, size_t n, char out[MOST_ESCAPE], size_t *put)
{
    const size_t len = rd_utf8_bytes(s, n);
    if (len == 0) {
        *put = (size_t)snprintf(out, MOST_ESCAPE, "\\x%02x", (unsigned char)s[0]);
        return 1;
    }
    const uint32_t c = code_point(s, len);
    if (!is_control(c)) {
        memcpy(out, s, len);
        *put = len;
    } else if (c == '\n' || c == '\r' || c == '\t') {
        out[0] = '\\';
        out[1] = c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
        *put = 2;
    } else {
        *put = (size_t)snprintf(out, MOST_ESCAPE, "\\u%04x", (unsigned)(c & 0xFFFF));
    }
    return len;
}

void rd_printable_add(rd_strbuf *b, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t plain = i, put; /* printable ASCII, the usual text, in one piece */
        while (plain < n && s[plain] >= 0x20 && s[plain] < 0x7F) plain++;
        rd_strbuf_add(b, s + i, plain - i);
        i = plain;
        if (i == n) break;
        char one[MOST_ESCAPE];
        i += show_char(s + i, n - i, one, &put);
        rd_strbuf_add(b, one, put);
    }
}

char *rd_printable(const char *s, size_t n, bool keep_lines, char *out, size_t cap)
{
    size_t used = 0;
    for (size_t i = 0, put; i < n; used += put) {
        char one[MOST_ESCAPE] = "\n";
        if (keep_lines && s[i] == '\n') {
            put = 1;
            i++;
        } else {
            i += show_char(s + i, n - i, one, &put);
        }
        if (used + put + 1 > cap) break;
        memcpy(out + used, one, put);
    }
    out[used] = '\0';
    return out;
}

void rd_printable_cell(rd_strbuf *b, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *bar = memchr(s + i, '|', n - i);
        const size_t plain = bar ? (size_t)(bar - s) - i : n - i;
        rd_printable_add(b, s + i, plain);
        i += plain;
        if (bar) rd_strbuf_puts(b, "\\|");
    }
}

void rd_printable_csv(rd_strbuf *b, const char *s, bool keep_lines)
{
    const bool quote = s[strcspn(s, keep_lines ? ",\"\r\n" : ",\"")] != '\0';
    if (quote) rd_strbuf_puts(b, "\"");
    while (*s) {
        const size_t n = strcspn(s, keep_lines ? "\"\r\n" : "\"");
        rd_printable_add(b, s, n);
        s += n;
        if (*s == '"') rd_strbuf_puts(b, "\""); /* a double quote is written twice */
        if (*s) rd_strbuf_add(b, s++, 1);
    }
    if (quote) rd_strbuf_puts(b, "\"");
}
