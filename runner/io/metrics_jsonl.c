/* metrics_jsonl.c -- the scalars of a run for scripts: one JSON object per line, one write call per
 * line.
 *
 * On resume the file is cut back to the step of the checkpoint. Lines of later steps are removed,
 * and also a last line that a kill or a full disk left half written. The new file replaces the old
 * one atomically. */
#include "rd/file.h"
#include "rd/gunzip.h"
#include "rd/input.h"
#include "rd/records.h"
#include "rd/strbuf.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct rd_metrics {
    int fd;
    /* The file ends in half a line that could not be cut off. The next write
     * begins with a newline. */
    bool torn;
    char path[4096];
};

/* Returns whether the line stays: its step is at most start_step, or it has no step, as no line of
 * this program does today. A line that is not a JSON object does not stay. */
static bool metrics_keeps_line(const char *line, size_t n, int64_t start_step)
{
    json_t *o = json_loadb(line, n, 0, NULL);
    const json_t *step = json_object_get(o, "step");
    const bool yes = json_is_object(o) &&
                     !(json_is_integer(step) && json_integer_value(step) > start_step);
    json_decref(o);
    return yes;
}

/* Returns whether the user has compressed the file. No line can be appended to it then. */
static bool metrics_is_gzip(const char *path)
{
    char head[2];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, head, sizeof head) : -1;
    if (fd >= 0) (void)close(fd);
    return n == (ssize_t)sizeof head && rd_gzip_begins(head, sizeof head);
}

/* Removes the lines after start_step. A file that does not exist is fine. */
static rd_code metrics_cut_back(const char *path, int64_t start_step, rd_status *st)
{
    char *old = NULL;
    size_t n = 0;
    rd_strbuf kept = {0};
    bool there;
    RD_TRY(rd_path_there(path, &there, st));
    if (!there) return st->code;
    RD_TRY(rd_file_read(path, RD_EENV, &old, &n, st));
    for (size_t at = 0; at < n;) {
        const char *end = memchr(old + at, '\n', n - at);
        const size_t len = end ? (size_t)(end - (old + at)) : n - at;
        if (len > 0 && metrics_keeps_line(old + at, len, start_step)) {
            rd_strbuf_add(&kept, old + at, len);
            rd_strbuf_add(&kept, "\n", 1);
        }
        at += len + 1;
    }
    if (kept.failed)
        rd_fail(st, RD_EENV, "out of memory while reading '%s'", path);
    else if (kept.n != n || (n > 0 && memcmp(kept.s, old, n) != 0) || metrics_is_gzip(path))
        (void)rd_file_write_atomic(path, rd_strbuf_str(&kept), kept.n, st);
done:
    free(old);
    rd_strbuf_release(&kept);
    return st->code;
}

rd_code rd_metrics_new(const char *path, int64_t start_step, rd_metrics **out, rd_status *st)
{
    const int flags = O_WRONLY | O_CREAT | O_APPEND;
    static const char remedy[] = "check the free space and the permissions of the log folder";
    *out = NULL;
    if (strlen(path) >= sizeof(*out)->path)
        return rd_fail(st, RD_EUSAGE, "the path '%.200s...' is too long", path);
    const int there = rd_open_record(path, flags, remedy, st); /* a link is not read and replaced */
    if (there < 0) return st->code;
    (void)close(there);
    if (metrics_cut_back(path, start_step, st) != RD_OK) return st->code;
    rd_metrics *m = calloc(1, sizeof *m);
    if (!m) return rd_fail(st, RD_EENV, "out of memory while opening '%s'", path);
    memcpy(m->path, path, strlen(path) + 1);
    m->fd = rd_open_record(path, flags, remedy, st);
    if (m->fd < 0) {
        free(m);
        return st->code;
    }
    *out = m;
    return st->code;
}

rd_code rd_metrics_write(rd_metrics *m, json_t *object_stolen, rd_status *st)
{
    rd_strbuf line = {0};
    /* 15 digits print a decimal as it was typed (0.1, not 0.10000000000000001), and are more than a
     * float holds. */
    char *text = object_stolen ? json_dumps(object_stolen, JSON_COMPACT | JSON_REAL_PRECISION(15))
                               : NULL;
    json_decref(object_stolen);
    if (text) {
        if (m->torn) rd_strbuf_puts(&line, "\n");
        rd_strbuf_puts(&line, text);
        rd_strbuf_puts(&line, "\n");
    }
    if (!text || line.failed) {
        rd_fail(st, RD_EENV, "out of memory while writing '%s'", m->path);
        goto done;
    }
    rd_assert(memchr(line.s + m->torn, '\n', line.n - m->torn) ==
              line.s + line.n - 1); /* one line */
    ssize_t n;
    do n = write(m->fd, line.s, line.n);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)line.n) {
        m->torn = false;
    } else {
        const int err = n < 0 ? errno : ENOSPC;
        struct stat sb;
        if (n > 0) m->torn = fstat(m->fd, &sb) != 0 || ftruncate(m->fd, sb.st_size - n) != 0;
        rd_fail(st, RD_EENV, "cannot write '%s': %s; check the free space of the log folder",
                m->path, strerror(err));
    }
done:
    free(text);
    rd_strbuf_release(&line);
    return st->code;
}

void rd_metrics_free(rd_metrics *m)
{
    if (!m) return;
    (void)fsync(m->fd);
    (void)close(m->fd);
    free(m);
}
