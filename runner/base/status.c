/* status.c -- failures and their messages, see status.h. */
#include "rd/status.h"
#include "rd/printable.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Cuts s between two UTF-8 characters if its `wanted` bytes did not fit into cap bytes. */
static void status_cut_at_char(char *s, size_t cap, int wanted)
{
    if (wanted < 0 || (size_t)wanted < cap) return;
    size_t n = cap - 1;
    /* Remove the continuation bytes of the cut character, then its first byte. */
    while (n > 0 && ((unsigned char)s[n - 1] & 0xC0) == 0x80) n--;
    if (n > 0 && (unsigned char)s[n - 1] >= 0xC0) n--;
    s[n] = '\0';
}

static rd_code status_fill(rd_status *st, rd_code code, const char *where, bool lines,
                           const char *fmt, va_list ap) __attribute__((format(printf, 5, 0)));
static rd_code status_fill(rd_status *st, rd_code code, const char *where, bool lines,
                           const char *fmt, va_list ap)
{
    char raw[RD_MSG_BYTES];
    st->code = code = code == RD_OK ? RD_EBUG : code;
    const char *base = strrchr(where, '/');
    snprintf(st->where, sizeof st->where, "%s", base ? base + 1 : where);
    status_cut_at_char(raw, sizeof raw, vsnprintf(raw, sizeof raw, fmt, ap));
    (void)rd_printable(raw, strlen(raw), lines, st->msg, sizeof st->msg);
    return code;
}

rd_code rd_fail_(rd_status *st, rd_code code, const char *where, const char *fmt, ...)
{
    if (st->code != RD_OK) return st->code;
    va_list ap;
    va_start(ap, fmt);
    code = status_fill(st, code, where, false, fmt, ap);
    va_end(ap);
    return code;
}

rd_code rd_fail_lines_(rd_status *st, rd_code code, const char *where, const char *fmt, ...)
{
    if (st->code != RD_OK) return st->code;
    va_list ap;
    va_start(ap, fmt);
    code = status_fill(st, code, where, true, fmt, ap);
    va_end(ap);
    return code;
}

void rd_status_prefix(rd_status *st, const char *fmt, ...)
{
    if (st->code == RD_OK) return;
    char old[RD_MSG_BYTES], raw[RD_MSG_BYTES], head[RD_MSG_BYTES];
    memcpy(old, st->msg, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    (void)rd_printable(raw, strlen(raw), false, head, sizeof head);
    status_cut_at_char(raw, sizeof raw, snprintf(raw, sizeof raw, "%.480s: %.540s", head, old));
    (void)rd_printable(raw, strlen(raw), true, st->msg, sizeof st->msg);
}

void rd_status_no_file(rd_status *st, const char *remedy)
{
    const size_t n = strlen(st->msg);
    if (st->code == RD_OK ||
        !(strstr(st->msg, "No such file or directory") || strstr(st->msg, "no file matches") ||
          strstr(st->msg, "names no folder yet")) ||
        strstr(st->msg, remedy) || n + strlen(remedy) >= sizeof st->msg)
        return;
    memcpy(st->msg + n, remedy, strlen(remedy) + 1);
}

void rd_assert_failed_(const char *where, const char *cond)
{
    fprintf(stderr, "%s: an invariant does not hold: %s; this is a bug of run_dist\n", where, cond);
    fflush(NULL);
    abort();
}
