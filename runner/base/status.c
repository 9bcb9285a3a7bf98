/* status.c -- failures and their messages, see status.h. */
#include "rd/status.h"
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

rd_code rd_fail_(rd_status *st, rd_code code, const char *where, const char *fmt, ...)
{
    if (st->code != RD_OK) return st->code;
    st->code = code = code == RD_OK ? RD_EBUG : code;
    const char *base = strrchr(where, '/');
    snprintf(st->where, sizeof st->where, "%s", base ? base + 1 : where);
    va_list ap;
    va_start(ap, fmt);
    status_cut_at_char(st->msg, sizeof st->msg, vsnprintf(st->msg, sizeof st->msg, fmt, ap));
    va_end(ap);
    return code;
}

void rd_status_prefix(rd_status *st, const char *fmt, ...)
{
    if (st->code == RD_OK) return;
    char old[RD_MSG_BYTES], head[RD_MSG_BYTES];
    memcpy(old, st->msg, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(head, sizeof head, fmt, ap);
    va_end(ap);
    status_cut_at_char(st->msg, sizeof st->msg,
                       snprintf(st->msg, sizeof st->msg, "%.480s: %.540s", head, old));
}

void rd_assert_failed_(const char *where, const char *cond)
{
    fprintf(stderr, "%s: an invariant does not hold: %s; this is a bug of run_dist\n", where, cond);
    fflush(NULL);
    abort();
}
