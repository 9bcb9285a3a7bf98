/* byte_stream.c -- the bytes of a file, plain or compressed.
 *
 * libarchive's "raw" format decompresses and starts no program. The first bytes of the file decide
 * whether it is compressed; its name does not matter. */
#include "images_impl.h"
#include "rd/file.h"
#include "rd/gunzip.h"
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 1 << 17, MAX_RATIO = 100, SMALL = 1 << 20 };

struct rd_stream {
    char *name;
    int fd;                  /* descriptor of the file; -1: none */
    struct archive *archive; /* NULL: the bytes are plain */
    rd_gunzip *gunzip;       /* the archive reads from this; NULL: from the file itself */
    const uint8_t *mem;      /* bytes in memory, borrowed; NULL: a file */
    size_t mem_left;
    bool compressed, ended;
    int64_t size; /* bytes of the file */
};

bool rd_compressed(const unsigned char *p, size_t n)
{
    return (n >= 2 && p[0] == 0x1F && p[1] == 0x8B) ||
           (n >= 6 && memcmp(p, "\xFD\x37zXZ\0", 6) == 0) ||
           (n >= 10 && memcmp(p, "BZh", 3) == 0 &&
            memcmp(p + 4, "\x31\x41\x59\x26\x53\x59", 6) == 0) ||
           (n >= 4 && memcmp(p, "\x28\xB5\x2F\xFD", 4) == 0);
}

/* libarchive starts a program for a format that it was built without, and for rare formats such as
 * lrzip and grzip. So only filters that are built in are switched on. */
void rd_archive_filters(struct archive *a)
{
    if (archive_zlib_version()) (void)archive_read_support_filter_gzip(a);
    if (archive_liblzma_version()) (void)archive_read_support_filter_xz(a);
    if (archive_bzlib_version()) (void)archive_read_support_filter_bzip2(a);
    if (archive_libzstd_version()) (void)archive_read_support_filter_zstd(a);
}

static rd_code damaged(const rd_stream *s, rd_status *st)
{
    if (rd_gunzip_failed(s->gunzip, st)) return st->code;
    const char *why = archive_error_string(s->archive);
    return rd_fail(st, RD_EDATA, "cannot read '%s': %s; the file may be cut short or damaged",
                   s->name, why ? why : "unknown error");
}

/* head: the first bytes of the file. */
static rd_code start_archive(rd_stream *s, const void *head, size_t n_head, rd_status *st)
{
    struct archive_entry *e;
    s->archive = archive_read_new();
    if (!s->archive) return rd_fail(st, RD_EENV, "out of memory while reading '%s'", s->name);
    rd_archive_filters(s->archive);
    (void)archive_read_support_format_raw(s->archive);
    /* The raw format refuses a file without content. */
    (void)archive_read_support_format_empty(s->archive);
    if (rd_gzip_begins(head, n_head))
        RD_TRY(rd_gunzip_new(s->name, &(rd_gzip_input){.fd = s->fd, .size = s->size, .mem = s->mem},
                             RD_EDATA, &s->gunzip, st));
    const int rc = s->gunzip    ? rd_gunzip_open(s->gunzip, s->archive)
                   : s->fd >= 0 ? archive_read_open_fd(s->archive, s->fd, BLOCK)
                                : archive_read_open_memory(s->archive, s->mem, s->mem_left);
    if (rc != ARCHIVE_OK) return damaged(s, st);
    const int first = archive_read_next_header(s->archive, &e);
    if (first == ARCHIVE_EOF)
        s->ended = true; /* a compressed file without content */
    else if (first != ARCHIVE_OK && first != ARCHIVE_WARN)
        return damaged(s, st);
done:
    return st->code;
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
    if (s->compressed) RD_TRY(start_archive(s, head, (size_t)k, st));
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
    if (s->compressed) RD_TRY(start_archive(s, p, n, st));
done:
    return st->code;
}

void rd_stream_free(rd_stream *s)
{
    if (!s) return;
    (void)archive_read_free(s->archive);
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
    if (s->archive) {
        const la_ssize_t k = s->ended ? 0 : archive_read_data(s->archive, p, n);
        if (k < 0) return damaged(s, st);
        if (s->gunzip && k == 0 && n > 0) RD_TRY(rd_gunzip_end(s->gunzip, st));
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
done:
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
