/* infer_sink.c -- where infer mode writes, see infer_sink.h. */
#include "infer_sink.h"
#include "rd/printable.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool sink_is_stdout(const char *path)
{
    return !path || !path[0] || strcmp(path, "stdout") == 0 || strcmp(path, "-") == 0;
}

static rd_code sink_fails(const infer_sink *o, int err, rd_status *st)
{
    if (!o->name) return rd_fail(st, RD_EENV, "cannot write to standard output: %s", strerror(err));
    return rd_fail(st, RD_EENV, "cannot write '%s': %s", o->name, strerror(err));
}

/* Renaming a temporary file would replace a pipe, a device (/dev/null) or a link by a file. So
 * pipes and devices are written to directly, and a link is followed. A folder is refused before the
 * work begins. */
rd_code infer_sink_open(infer_sink *o, const char *path, rd_status *st)
{
    struct stat there, out;
    char *real = NULL;
    o->fd = STDOUT_FILENO;
    o->terminal = isatty(o->fd) == 1;
    if (sink_is_stdout(path)) return RD_OK;
    if (stat(path, &there) == 0) {
        if (S_ISDIR(there.st_mode))
            return rd_fail(st, RD_EENV, "cannot write '%s': it is a folder; name a file in it",
                           path);
        if (fstat(STDOUT_FILENO, &out) == 0 && out.st_dev == there.st_dev &&
            out.st_ino == there.st_ino)
            return RD_OK;
        o->to_file = S_ISREG(there.st_mode);
        real = o->to_file ? realpath(path, NULL) : NULL;
    } else {
        o->to_file = true;
    }
    o->name = path;
    if (o->to_file)
        (void)rd_tmpfile_open(&o->file, real ? real : path, st);
    else if ((o->fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC)) < 0)
        (void)sink_fails(o, errno, st);
    o->terminal = !o->to_file && o->fd >= 0 && isatty(o->fd) == 1;
    free(real);
    return st->code;
}

void infer_sink_release(infer_sink *o)
{
    rd_tmpfile_release(&o->file);
    if (o->name && !o->to_file && o->fd >= 0) (void)close(o->fd);
}

rd_code infer_sink_write(infer_sink *o, const char *p, size_t n, rd_status *st)
{
    if (o->to_file) return rd_tmpfile_write(&o->file, p, n, st);
    while (n > 0) {
        const ssize_t got = write(o->fd, p, n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return sink_fails(o, errno, st);
        p += got;
        n -= (size_t)got;
    }
    return RD_OK;
}

rd_code infer_sink_commit(infer_sink *o, rd_status *st)
{
    return o->to_file ? rd_tmpfile_commit(&o->file, st) : st->code;
}

void infer_sink_shown(rd_strbuf *out, const char *text, size_t n)
{
    for (const char *end = text + n;;) {
        const char *lf = memchr(text, '\n', (size_t)(end - text));
        rd_printable_add(out, text, (size_t)((lf ? lf : end) - text));
        if (!lf) return;
        rd_strbuf_puts(out, "\n");
        text = lf + 1;
    }
}
