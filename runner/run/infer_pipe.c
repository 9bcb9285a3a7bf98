/* infer_pipe.c -- lines from a pipe or a terminal, see infer_pipe.h. */
#include "infer_pipe.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void pipe_count(infer_pipe *p)
{
    while (p->seen < p->n && p->n_ready < p->lines) {
        const char *lf = memchr(p->buf + p->seen, p->end, p->n - p->seen);
        p->seen = lf ? (size_t)(lf - p->buf) + 1 : p->n;
        if (!lf) return;
        p->ready = p->seen;
        p->n_ready++;
    }
}

/* Reads what the pipe holds now. */
static rd_code pipe_read(infer_pipe *p, rd_status *st)
{
    enum { PIECE = 1 << 16 };
    if (p->cap - p->n < PIECE) {
        const size_t cap = 2 * p->cap + 2 * PIECE;
        char *more = realloc(p->buf, cap);
        if (!more) return rd_fail(st, RD_EENV, "out of memory for %zu bytes of input", cap);
        p->buf = more;
        p->cap = cap;
    }
    const ssize_t k = read(STDIN_FILENO, p->buf + p->n, PIECE);
    if (k < 0 && (errno == EINTR || errno == EAGAIN)) return RD_OK;
    if (k < 0) return rd_fail(st, RD_EDATA, "cannot read standard input: %s", strerror(errno));
    p->ended = k == 0;
    if (p->may_nul && k > 0 && memchr(p->buf + p->n, '\0', (size_t)k)) p->end = '\0';
    p->may_nul = p->may_nul && k <= 0;
    p->n += (size_t)k;
    return RD_OK;
}

rd_code infer_pipe_wait(infer_pipe *p, size_t *bytes, rd_status *st)
{
    enum { WAIT_MS = 5000 };
    *bytes = 0;
    for (;;) {
        pipe_count(p);
        if (p->ended && p->n_ready < p->lines) {
            *bytes = p->n;
            return RD_OK;
        }
        if (p->n_ready >= p->lines) break;
        struct pollfd wait = {.fd = STDIN_FILENO, .events = POLLIN};
        const int rc = poll(&wait, 1, p->n_ready > 0 ? p->pause_ms : WAIT_MS);
        if (rc < 0 && errno != EINTR)
            return rd_fail(st, RD_EDATA, "cannot read standard input: %s", strerror(errno));
        if (rc <= 0) break;
        RD_TRY(pipe_read(p, st));
        if (p->ready == 0 && (int64_t)p->n > p->most) {
            *bytes = p->n;
            return RD_OK;
        }
    }
    *bytes = p->ready;
done:
    return st->code;
}

void infer_pipe_drop(infer_pipe *p, size_t bytes)
{
    memmove(p->buf, p->buf + bytes, p->n - bytes);
    p->n -= bytes;
    p->seen = p->ready = 0;
    p->n_ready = 0;
}
