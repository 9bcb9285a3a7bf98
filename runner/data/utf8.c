/* utf8.c -- checks and repairs UTF-8 (RFC 3629: shortest forms, no surrogates, up to U+10FFFF).
 *
 * NUL counts as invalid: texts do not contain it, and the program's messages would end at it. */
#include "data_impl.h"

/* Returns the length of the valid sequence at s (1 to 4). 0: invalid; *invalid is then the length
 * of the longest part with which a valid sequence could begin (at least 1). */
static size_t sequence(const unsigned char *s, size_t n, size_t *invalid)
{
    *invalid = 1;
    if (s[0] < 0x80) return s[0] != 0;
    size_t want;
    unsigned char lo = 0x80, hi = 0xBF; /* range of the second byte */
    if (s[0] >= 0xC2 && s[0] <= 0xDF) {
        want = 2;
    } else if (s[0] >= 0xE0 && s[0] <= 0xEF) {
        want = 3;
        if (s[0] == 0xE0) lo = 0xA0;
        if (s[0] == 0xED) hi = 0x9F;
    } else if (s[0] >= 0xF0 && s[0] <= 0xF4) {
        want = 4;
        if (s[0] == 0xF0) lo = 0x90;
        if (s[0] == 0xF4) hi = 0x8F;
    } else {
        return 0;
    }
    for (size_t i = 1; i < want; i++) {
        if (i >= n || s[i] < lo || s[i] > hi) {
            *invalid = i;
            return 0;
        }
        lo = 0x80;
        hi = 0xBF;
    }
    return want;
}

size_t rd_utf8_check(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t i = 0, invalid;
    for (;;) {
        while (n - i >= 8) {
            const uint64_t x = rd_load64(p + i);
            /* High bit: not ASCII. x - 0x01.. borrows into the high bit of a zero byte (exact when
             * no high bit is set in x). */
            if ((x | (x - 0x0101010101010101u)) & 0x8080808080808080u) break;
            i += 8;
        }
        if (i == n) return n;
        for (const size_t stop = n - i > 8 ? i + 8 : n; i < stop;) {
            const size_t k = sequence(p + i, n - i, &invalid);
            if (k == 0) return i;
            i += k;
        }
    }
}

size_t rd_utf8_replace(const char *s, size_t n, char *out, int64_t *replaced)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t m = 0, invalid;
    for (size_t i = 0; i < n;) {
        const size_t k = sequence(p + i, n - i, &invalid);
        if (k > 0) {
            memcpy(out + m, s + i, k);
            m += k;
            i += k;
        } else {
            static const char replacement[3] = {'\xEF', '\xBF', '\xBD'};
            memcpy(out + m, replacement, sizeof replacement);
            m += sizeof replacement;
            i += invalid;
            ++*replaced;
        }
    }
    return m;
}

size_t rd_utf8_rstrip(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    while (n > 0) {
        const unsigned char c = p[n - 1];
        if (c < 0x80) {
            if (c != ' ' && !(c >= 0x09 && c <= 0x0D) && !(c >= 0x1C && c <= 0x1F)) break;
            n--;
        } else if (n >= 2 && p[n - 2] == 0xC2 && (c == 0x85 || c == 0xA0)) {
            n -= 2;
        } else if (n >= 3 && ((p[n - 3] == 0xE1 && p[n - 2] == 0x9A && c == 0x80) || /* U+1680 */
                              (p[n - 3] == 0xE2 && p[n - 2] == 0x80 &&
                               (c <= 0x8A || c == 0xA8 || c == 0xA9 || c == 0xAF)) || /* U+2000.. */
                              (p[n - 3] == 0xE2 && p[n - 2] == 0x81 && c == 0x9F) ||  /* U+205F */
                              (p[n - 3] == 0xE3 && p[n - 2] == 0x80 && c == 0x80))) { /* U+3000 */
            n -= 3;
        } else {
            break;
        }
    }
    return n;
}
