/* byte_stream.c -- the bytes of a file, plain or compressed.
 *
 * The first bytes of the file decide whether it is compressed; its name does not matter. */
#include "images_impl.h"
#include "rd/file.h"
#include "rd/gunzip.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_RATIO = 100, SMALL = 1 << 20 };

struct rd_stream {
    char *name;
    int fd;             /* descriptor of the file; -1: none */
    rd_gunzip *gunzip;  /* decompresses; owned; NULL: the bytes are plain */
    const uint8_t *mem; /* bytes in memory, borrowed; NULL: a file */
    size_t mem_left;
    bool compressed;
    int64_t size; /* bytes of the file */
};

static rd_code byte_stream_unpack(rd_stream *s, rd_status *st)
{
    const rd_gzip_input from = {.fd = s->fd, .size = s->size, .mem = s->mem};
    return rd_gunzip_new(s->name, &from, RD_EDATA, &s->gunzip, st);
}

static rd_code byte_stream_make(const char *name, rd_stream **out, rd_status *st)
{
    rd_stream *s = calloc(1, sizeof *s);
    *out = s;
    if (!s || !(s->name = strdup(name)))
        return rd_fail(st, RD_EENV, "out of memory while reading '%s'", name);
    s->fd = -1;
    return RD_OK;
}

rd_code rd_stream_new(const char *path, rd_stream **out, rd_status *st)
{
    unsigned char head[16];
    const char *kind;
    RD_TRY(byte_stream_make(path, out, st));
    rd_stream *s = *out;
    s->fd = rd_open_input(path, &s->size, &kind);
    if (s->fd < 0 && kind)
        return rd_fail(st, RD_EDATA, "'%s' is %s, not a regular file", path, kind);
    if (s->fd < 0)
        return rd_fail(st, RD_EDATA, "cannot open '%s': %s; check the path", path, strerror(errno));
    const ssize_t k = pread(s->fd, head, sizeof head, 0);
    if (k < 0) return rd_fail(st, RD_EDATA, "cannot read '%s': %s", path, strerror(errno));
    s->compressed = rd_compressed(head, (size_t)k);
    if (s->compressed) RD_TRY(byte_stream_unpack(s, st));
done:
    return st->code;
}

rd_code rd_stream_new_mem(const char *name, const void *p, size_t n, rd_stream **out, rd_status *st)
{
    RD_TRY(byte_stream_make(name, out, st));
    rd_stream *s = *out;
    s->size = (int64_t)n;
    s->compressed = rd_compressed(p, n);
    s->mem = p;
    s->mem_left = n;
    if (s->compressed) RD_TRY(byte_stream_unpack(s, st));
done:
    return st->code;
}

void rd_stream_free(rd_stream *s)
{
    if (!s) return;
    rd_gunzip_free(s->gunzip);
    if (s->fd >= 0) close(s->fd);
    free(s->name);
    free(s);
}

int64_t rd_stream_limit(const rd_stream *s)
{
    return s->compressed ? s->size * MAX_RATIO + SMALL : s->size;
}

static rd_code read_once(rd_stream *s, uint8_t *p, size_t n, size_t *got, rd_status *st)
{
    *got = 0;
    if (s->gunzip) {
        const ssize_t k = rd_gunzip_copy(s->gunzip, p, n);
        if (k < 0 && rd_gunzip_failed(s->gunzip, st)) return st->code;
        *got = (size_t)k;
    } else if (s->fd >= 0) {
        ssize_t k;
        do k = read(s->fd, p, n);
        while (k < 0 && errno == EINTR);
        if (k < 0) return rd_fail(st, RD_EDATA, "cannot read '%s': %s", s->name, strerror(errno));
        *got = (size_t)k;
    } else {
        *got = n < s->mem_left ? n : s->mem_left;
        if (*got > 0) memcpy(p, s->mem, *got);
        s->mem += *got;
        s->mem_left -= *got;
    }
    return st->code;
}

rd_code rd_stream_read(rd_stream *s, void *p, size_t n, size_t *got, rd_status *st)
{
    *got = 0;
    while (*got < n) {
        size_t k;
        RD_TRY(read_once(s, (uint8_t *)p + *got, n - *got, &k, st));
        if (k == 0) break;
        *got += k;
    }
done:
    return st->code;
}
