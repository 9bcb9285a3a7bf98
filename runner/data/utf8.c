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

size_t rd_utf8_space(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    if (n == 0) return 0;
    if (p[0] < 0x80)
        return p[0] == ' ' || (p[0] >= 0x09 && p[0] <= 0x0D) || (p[0] >= 0x1C && p[0] <= 0x1F);
    if (n >= 2 && p[0] == 0xC2) return p[1] == 0x85 || p[1] == 0xA0 ? 2 : 0;
    if (n < 3) return 0;
    if (p[0] == 0xE2 && p[1] == 0x80) /* U+2000 to U+200A, U+2028, U+2029, U+202F */
        return (p[2] >= 0x80 && p[2] <= 0x8A) || p[2] == 0xA8 || p[2] == 0xA9 || p[2] == 0xAF ? 3
                                                                                              : 0;
    static const char others[][4] = {"\xE1\x9A\x80", "\xE2\x81\x9F", "\xE3\x80\x80"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (memcmp(s, others[i], 3) == 0) return 3; /* U+1680, U+205F, U+3000 */
    return 0;
}

size_t rd_utf8_rstrip(const char *s, size_t n)
{
    size_t k = 1;
    while (n > 0 && k <= 3) {
        if (n >= k && rd_utf8_space(s + n - k, k) == k) {
            n -= k;
            k = 1;
        } else {
            k++;
        }
    }
    return n;
}
