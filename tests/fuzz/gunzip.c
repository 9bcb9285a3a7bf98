/* gunzip.c -- fuzz target: reads any bytes as a gzip file, and as a stream, a text and a tar
 * archive of that.
 *
 * What is accepted must be what zlib makes of it, member by member, with nothing but zeros behind.
 * The first byte chooses how many members, each with the right checksums, are made of the bytes
 * (bits 0 to 2; 0: the bytes are the file). */
#include "../../runner/data/images_impl.h"
#include "rd/gunzip.h"
#include <stdlib.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OUT_MAX = 1 << 22, GZIP = 15 + 16 };

/* Compares the n bytes at got with what zlib decompresses. */
static void check_members(const uint8_t *p, size_t size, const uint8_t *got, size_t n)
{
    z_stream z = {0};
    uint8_t *out = malloc(OUT_MAX + 1);
    if (!out || inflateInit2(&z, GZIP) != Z_OK) abort();
    z.next_in = (Bytef *)(uintptr_t)p;
    z.avail_in = (uInt)size;
    z.next_out = out;
    z.avail_out = OUT_MAX + 1;
    for (;;) {
        if (inflate(&z, Z_FINISH) != Z_STREAM_END) abort();
        if (z.avail_in == 0 || *z.next_in == 0) break;
        if (inflateReset(&z) != Z_OK) abort();
    }
    for (; z.avail_in > 0; z.avail_in--)
        if (*z.next_in++ != 0) abort();
    const size_t made = OUT_MAX + 1 - z.avail_out;
    const bool twice = rd_gzip_begins(out, made); /* the reader decompresses that, too */
    if (!twice && (n != made || (n > 0 && memcmp(out, got, n) != 0))) abort();
    (void)inflateEnd(&z);
    free(out);
}

static void read_all(const uint8_t *p, size_t size, bool made)
{
    const rd_gzip_input from = {.size = (int64_t)size, .mem = p};
    rd_status st = {0};
    rd_gunzip *g = NULL;
    const void *block;
    size_t n = 0;
    ssize_t k = 1;
    uint8_t *out = malloc(OUT_MAX);
    if (!out) abort();
    if (rd_gunzip_new("fuzz", &from, RD_EDATA, &g, &st) == RD_OK) {
        while ((k = rd_gunzip_read(g, &block)) > 0 && n + (size_t)k <= OUT_MAX) {
            memcpy(out + n, block, (size_t)k);
            n += (size_t)k;
        }
        if (k < 0 && (!rd_gunzip_failed(g, &st) || st.msg[0] == '\0')) abort();
        if (k == 0 && !made) check_members(p, size, out, n);
    } else if (st.msg[0] == '\0') {
        abort();
    }
    rd_gunzip_free(g);
    free(out);
}

static void read_archives(const uint8_t *p, size_t size)
{
    rd_status st = {0}, st2 = {0};
    rd_stream *s = NULL;
    rd_tar *t = NULL;
    rd_tar_member m;
    uint8_t some[4096];
    size_t got = 0;
    if (rd_stream_new_mem("fuzz", p, size, &s, &st) == RD_OK)
        for (int k = 0;
             k < 100 && rd_stream_read(s, some, sizeof some, &got, &st) == RD_OK && got > 0; k++) {
        }
    rd_stream_free(s);
    if (rd_tar_new_mem("fuzz", p, size, &t, &st2) == RD_OK)
        for (int k = 0; k < 100 && rd_tar_next(t, &m, &st2) == RD_OK && m.name; k++)
            if (m.bytes <= (int64_t)sizeof some && rd_tar_read(t, &m, some, &st2) != RD_OK) break;
    rd_tar_free(t);
    if ((st.code != RD_OK && st.msg[0] == '\0') || (st2.code != RD_OK && st2.msg[0] == '\0'))
        abort();
}

/* Appends the n bytes at p as a gzip member. */
static size_t add_member(const uint8_t *p, size_t n, uint8_t *out, size_t room)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)p,
                  .avail_in = (uInt)n,
                  .next_out = out,
                  .avail_out = (uInt)room};
    if (deflateInit2(&z, 1, Z_DEFLATED, GZIP, 8, Z_DEFAULT_STRATEGY) != Z_OK) abort();
    if (deflate(&z, Z_FINISH) != Z_STREAM_END) abort();
    (void)deflateEnd(&z);
    return room - z.avail_out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    const size_t members = data[0] & 7, n = size - 1, room = 2 * n + 8192;
    if (members == 0) {
        read_all(data + 1, n, false);
        read_archives(data + 1, n);
        return 0;
    }
    uint8_t *p = malloc(room);
    size_t used = 0;
    if (!p) abort();
    for (size_t k = 0; k < members; k++) {
        const size_t from = n * k / members, to = n * (k + 1) / members;
        used += add_member(data + 1 + from, to - from, p + used, room - used);
    }
    read_all(p, used, true);
    read_archives(p, used);
    free(p);
    return 0;
}
