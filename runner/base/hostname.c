/* hostname.c -- the one check of host names that come from outside, see hostname.h. */
#include "rd/hostname.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

/* Not isalnum: a locale may have more letters than a host's name. */
static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

static bool is_plain_name(const char *s, size_t n)
{
    if (n == 0 || s[0] == '-' || s[0] == '.') return false;
    for (size_t i = 0; i < n; i++)
        if (!is_name_char(s[i])) return false;
    return true;
}

static bool is_ipv6(const char *s, size_t n)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr six;
    if (n >= sizeof text || memchr(s, '\0', n)) return false;
    memcpy(text, s, n);
    text[n] = '\0';
    return inet_pton(AF_INET6, text, &six) == 1;
}

bool rd_host_name(const char *s, size_t n)
{
    return n < RD_HOST_BYTES && (is_plain_name(s, n) || is_ipv6(s, n));
}

bool rd_host_user(const char *s, size_t n)
{
    return n < RD_USER_BYTES && is_plain_name(s, n);
}

int64_t rd_host_count(const char *s, size_t n, int64_t most)
{
    int64_t x = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return 0;
        x = x * 10 + (s[i] - '0');
        if (x > most) return 0; /* before the next digit could overflow */
    }
    return x;
}

rd_code rd_host_entry_read(const char *s, size_t n, const char *where, rd_host_entry *out,
                           rd_status *st)
{
    const char *at = memchr(s, '@', n), *end = s + n;
    *out = (rd_host_entry){.name = at ? at + 1 : s};
    if (at) {
        out->user = s;
        out->n_user = (size_t)(at - s);
    }
    const size_t rest = (size_t)(end - out->name);
    const char *bracket = rest > 0 && out->name[0] == '[' ? memchr(out->name, ']', rest) : NULL,
               *colon = bracket ? bracket + 1 : memchr(out->name, ':', rest);
    bool fits = !bracket || colon == end || *colon == ':';
    if (bracket) {
        out->name++;
        out->n_name = (size_t)(bracket - out->name);
        fits = fits && is_ipv6(out->name, out->n_name);
    } else if (colon && memchr(colon + 1, ':', (size_t)(end - colon - 1))) {
        out->n_name = rest; /* two colons without brackets: an IPv6 address */
        colon = end;
    } else {
        out->n_name = colon ? (size_t)(colon - out->name) : rest;
    }
    if (colon && colon < end) {
        out->slots = colon + 1;
        out->n_slots = (size_t)(end - colon - 1);
    }
    if (fits && out->n_name == 0)
        return rd_fail(st, RD_EUSAGE, "%s: an entry without a name; write name:slots,name:slots",
                       where);
    if (!fits || !rd_host_name(out->name, out->n_name) ||
        (out->user && !rd_host_user(out->user, out->n_user)))
        return rd_fail(st, RD_EUSAGE,
                       "%s: '%.*s' is not a host name; write letters, digits, '.', '_' and '-' "
                       "without blanks, and no '-' or '.' in front",
                       where, (int)(n < 100 ? n : 100), s);
    return st->code;
}
