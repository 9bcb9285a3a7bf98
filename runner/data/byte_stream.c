/* byte_stream.c -- the bytes of a file, plain or compressed.
 *
 * The first bytes of the file decide whether it is compressed; its name does not matter. */
#include "images_impl.h"
#include "rd/file.h"
#include "rd/gunzip.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MAX_RATIO = 100, SMALL = 1 << 20 };

struct rd_stream {
    char *name;
    rd_input *in;       /* the file; owned; NULL: none */
    rd_gunzip *gunzip;  /* decompresses; owned; NULL: the bytes are plain */
    const uint8_t *mem; /* bytes in memory, borrowed; NULL: a file */
    size_t mem_left;
    bool compressed;
    int64_t size; /* bytes of the file */
};

static rd_code byte_stream_unpack(rd_stream *s, rd_status *st)
{
    const rd_gzip_input from = {.in = s->in, .size = s->size, .mem = s->mem};
    return rd_gunzip_new(s->name, &from, RD_EDATA, &s->gunzip, st);
}

static rd_code byte_stream_make(const char *name, rd_stream **out, rd_status *st)
{
    rd_stream *s = calloc(1, sizeof *s);
    *out = s;
    if (!s || !(s->name = strdup(name)))
        return rd_fail(st, RD_EENV, "out of memory while reading '%s'", name);
    return RD_OK;
}

rd_code rd_stream_new(const char *path, rd_stream **out, rd_status *st)
{
    unsigned char head[16];
    const char *kind;
    RD_TRY(byte_stream_make(path, out, st));
    rd_stream *s = *out;
    s->in = rd_input_open(path, RD_MAYBE, &kind);
    if (!s->in) return rd_input_not_open(st, RD_EDATA, path, kind, errno, "check the path");
    s->size = rd_input_stat(s->in)->st_size;
    const ssize_t k = rd_input_pread(s->in, head, sizeof head, 0);
    if (k < 0) return rd_input_fails(st, RD_EDATA, "read", path, errno, NULL);
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
    rd_input_close(s->in);
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
    } else if (s->in) {
        const ssize_t k = rd_input_read(s->in, p, n);
        if (k < 0) return rd_input_fails(st, RD_EDATA, "read", s->name, errno, NULL);
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
