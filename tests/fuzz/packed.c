/* packed.c -- fuzz target: reads any bytes as a file of text or images that may be compressed, and
 * as the member of an archive.
 *
 * Byte 0 chooses how the file is packed from the bytes behind the first five: bits 0 to 2 the
 * compression (0: none; 5, 6: gzip and bzip2 of two halves; 7: gzip twice), bits 3 and 4 the
 * archive whose member "m" they are (0: none, 1: tar, 2: zip, 3: zip without compression). Bytes 1
 * to 4 are a place in the file and a mask by which the byte there is changed.
 *
 * All readers must agree. What was packed must come out again, and a file with a changed byte must
 * not give other bytes, where its format has checksums. No program may be started. */
#include "../../runner/data/images_impl.h"
#include "fuzz_files.h"
#include "rd/file.h"
#include "rd/gunzip.h"
#include <archive.h>
#include <archive_entry.h>
#include <sys/wait.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 5, MOST = 1 << 20, ROOM = 1 << 18, MOST_LINES = 1000 };
enum { PLAIN, GZIP, BZIP2, XZ, ZSTD, GZIP_HALVES, BZIP2_HALVES, GZIP_TWICE };
enum { NO_ARCHIVE, TAR, ZIP, ZIP_STORED };

typedef struct bytes {
    uint8_t *p;
    size_t n;
} bytes;

static void check_failure(const rd_status *st)
{
    must(st->code == RD_EDATA && st->msg[0] != '\0');
}

/* ---- packing ---- */

/* Appends p[n] to out, compressed or as the member of an archive. */
static void pack(int filter, int format, const uint8_t *p, size_t n, bytes *out)
{
    struct archive *a = archive_write_new();
    struct archive_entry *e = archive_entry_new();
    size_t used = 0;
    must(a && e);
    switch (filter) {
    case GZIP:
        must(archive_write_add_filter_gzip(a) == ARCHIVE_OK);
        break;
    case BZIP2:
        must(archive_write_add_filter_bzip2(a) == ARCHIVE_OK);
        break;
    case XZ:
        must(archive_write_add_filter_xz(a) == ARCHIVE_OK);
        break;
    case ZSTD:
        must(archive_write_add_filter_zstd(a) == ARCHIVE_OK);
        break;
    default:
        break;
    }
    if (filter == GZIP || filter == BZIP2 || filter == XZ)
        must(archive_write_set_filter_option(a, NULL, "compression-level",
                                             filter == XZ ? "0" : "1") == ARCHIVE_OK);
    must((format == TAR ? archive_write_set_format_ustar(a)
          : format      ? archive_write_set_format_zip(a)
                        : archive_write_set_format_raw(a)) == ARCHIVE_OK);
    if (format == ZIP_STORED) must(archive_write_zip_set_compression_store(a) == ARCHIVE_OK);
    must(archive_write_set_bytes_in_last_block(a, 1) == ARCHIVE_OK &&
         archive_write_open_memory(a, out->p + out->n, ROOM - out->n, &used) == ARCHIVE_OK);
    archive_entry_set_pathname(e, "m");
    archive_entry_set_filetype(e, AE_IFREG);
    archive_entry_set_size(e, (int64_t)n);
    must(archive_write_header(a, e) == ARCHIVE_OK && archive_write_data(a, p, n) == (la_ssize_t)n &&
         archive_write_close(a) == ARCHIVE_OK);
    archive_entry_free(e);
    (void)archive_write_free(a);
    out->n += used;
}

/* Makes the file in out->p. */
static void pack_file(int filter, int format, const bytes *in, bytes *out)
{
    static uint8_t room[ROOM];
    bytes half = {room, 0}, all = *in;
    const int once = filter == GZIP_HALVES || filter == GZIP_TWICE ? GZIP
                     : filter == BZIP2_HALVES                      ? BZIP2
                                                                   : filter;
    out->n = 0;
    if (format) {
        pack(PLAIN, format, in->p, in->n, &half);
        all = half;
    }
    if (filter == GZIP_HALVES || filter == BZIP2_HALVES) {
        pack(once, NO_ARCHIVE, all.p, all.n / 2, out);
        pack(once, NO_ARCHIVE, all.p + all.n / 2, all.n - all.n / 2, out);
    } else if (filter == GZIP_TWICE) {
        static uint8_t inner[ROOM];
        bytes first = {inner, 0};
        pack(GZIP, NO_ARCHIVE, all.p, all.n, &first);
        pack(GZIP, NO_ARCHIVE, first.p, first.n, out);
    } else if (filter) {
        pack(once, NO_ARCHIVE, all.p, all.n, out);
    } else {
        memcpy(out->p, all.p, all.n);
        out->n = all.n;
    }
}

/* ---- readers ---- */

/* Reads a stream up to MOST bytes. Returns false after a failure. */
static bool read_stream(rd_stream *s, bytes *out, rd_status *st)
{
    out->n = 0;
    if (st->code == RD_OK) (void)rd_stream_read(s, out->p, MOST, &out->n, st);
    rd_stream_free(s);
    if (st->code != RD_OK) check_failure(st);
    return st->code == RD_OK;
}

/* Reads the lines of path, or of in if path is NULL. Returns false after a failure. *sum: a hash of
 * the lines. */
static bool read_lines(const char *path, const bytes *in, uint64_t *sum)
{
    const rd_lines_opts o = {.replace = true, .max_line_bytes = 1 << 16};
    rd_status st = {0};
    rd_lines *l = NULL;
    const char *line = "";
    size_t n;
    *sum = 0;
    if (path)
        (void)rd_lines_new(path, o, &l, &st);
    else
        (void)rd_lines_new_mem("fuzz", (const char *)in->p, in->n, o, &l, &st);
    for (int k = 0; k < MOST_LINES && st.code == RD_OK && line; k++)
        if (rd_lines_next(l, &line, &n, &st) == RD_OK && line) *sum = rd_hash(*sum + 1, line, n);
    rd_lines_free(l);
    if (st.code != RD_OK) check_failure(&st);
    return st.code == RD_OK;
}

/* Compares the readers of whole files. out: the bytes of the file. Returns false if they fail, or
 * give more than MOST bytes. */
static bool read_file(const char *path, const bytes *file, bytes *out)
{
    static uint8_t room[MOST];
    bytes mem = {room, 0};
    rd_status st = {0}, st2 = {0}, st3 = {0}, st4 = {0};
    rd_stream *s = NULL;
    char *text = NULL;
    size_t n;
    (void)rd_stream_new(path, &s, &st);
    const bool ok = read_stream(s, out, &st);
    s = NULL;
    (void)rd_stream_new_mem("fuzz", file->p, file->n, &s, &st2);
    must(read_stream(s, &mem, &st2) == ok);
    must(!ok || (mem.n == out->n && memcmp(mem.p, out->p, mem.n) == 0));
    if (out->n == MOST) return false;
    if (rd_lines_read_all(path, &text, &n, &st3) == RD_OK)
        must(ok && n == out->n && (n == 0 || memcmp(text, out->p, n) == 0));
    else
        check_failure(&st3);
    must((st3.code == RD_OK) == ok);
    free(text);
    const bool gzip = rd_gzip_begins(file->p, file->n);
    if (rd_file_read(path, RD_EDATA, &text, &n, &st4) == RD_OK) {
        const bytes *want = gzip ? out : file;
        /* It decompresses gzip alone. */
        must(rd_compressed((const uint8_t *)text, n) ||
             ((ok || !gzip) && n == want->n && (n == 0 || memcmp(text, want->p, n) == 0)));
        free(text);
    } else {
        check_failure(&st4);
        must(gzip && !ok);
    }
    return ok;
}

/* Reads the only member of a tar archive. Returns false after a failure. */
static bool read_tar(const char *path, bytes *out)
{
    rd_status st = {0};
    rd_tar *t = NULL;
    rd_tar_member m;
    out->n = 0;
    if (rd_tar_new(path, &t, &st) == RD_OK)
        while (rd_tar_next(t, &m, &st) == RD_OK && m.name) {
            if (m.bytes > MOST - (int64_t)out->n) break;
            if (rd_tar_read(t, &m, out->p + out->n, &st) != RD_OK) break;
            out->n += (size_t)m.bytes;
        }
    rd_tar_free(t);
    if (st.code != RD_OK) check_failure(&st);
    return st.code == RD_OK;
}

/* ---- shards: the same samples, compressed or not ---- */

typedef struct samples {
    rd_images m;
    bool ok;
} samples;

static void read_shard(const char *path, const bytes *mem, samples *s)
{
    static const rd_images_kind kind = {.name = "webdataset"};
    rd_status st = {0};
    rd_tar *t = NULL;
    *s = (samples){.m = {.kind = &kind, .config_classes = 10}};
    for (int k = 0; k < RD_IMAGE_BLOCKS; k++) rd_block_init(&s->m.block[k], false);
    if ((path ? rd_tar_new(path, &t, &st) : rd_tar_new_mem("fuzz", mem->p, mem->n, &t, &st)) ==
        RD_OK)
        (void)rd_webdataset_walk(&s->m, t, "fuzz", 0, &st);
    rd_tar_free(t);
    if (st.code != RD_OK) check_failure(&st);
    s->ok = st.code == RD_OK;
}

static void release_shard(samples *s)
{
    for (int k = 0; k < RD_IMAGE_BLOCKS; k++) rd_block_free(&s->m.block[k]);
}

/* tar: an archive; path: the same, packed. */
static void compare_shards(const bytes *tar, const char *path)
{
    samples plain, packed;
    read_shard(NULL, tar, &plain);
    if (plain.ok && plain.m.head.n > 0) {
        read_shard(path, NULL, &packed);
        must(packed.ok && packed.m.head.n == plain.m.head.n);
        for (int64_t i = 0; i < plain.m.head.n; i++) {
            const rd_sample *a = rd_images_sample(&plain.m, i), *b = rd_images_sample(&packed.m, i);
            must(a->label == b->label && a->bytes == b->bytes && b->shard == RD_IN_MEMORY);
            must(a->bytes == 0 ||
                 memcmp(tar->p + a->at, packed.m.block[RD_BLOCK_PIXELS].p + b->at, a->bytes) == 0);
        }
        release_shard(&packed);
    }
    release_shard(&plain);
}

/* ---- */

static bool same(const bytes *a, const bytes *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->p, b->p, a->n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t file_room[ROOM], out_room[MOST];
    if (size < HEAD || size > ROOM / 4) return 0;
    const int filter = data[0] & 7, format = data[0] >> 3 & 3;
    const size_t place = data[1] | (size_t)data[2] << 8 | (size_t)data[3] << 16;
    const bytes in = {(uint8_t *)(uintptr_t)data + HEAD, size - HEAD};
    bytes file = {file_room, 0}, out = {out_room, 0};
    char path[FUZZ_PATH], member[FUZZ_PATH + 2];
    uint64_t lines, want;
    pack_file(filter, format, &in, &file);
    /* A change of the first bytes can make another format of it. */
    const bool changed = data[4] != 0 && place >= 12 && place < file.n;
    if (changed) file.p[place] ^= data[4];
    fuzz_memory_file(file.p, file.n, path);
    (void)snprintf(member, sizeof member, "%s!m", path);
    const bool ok = read_file(path, &file, &out);
    if (format) {
        const bool given = read_lines(member, NULL, &lines), known = read_lines(NULL, &in, &want);
        if (!changed) must(given == known && lines == want);
        /* A tar archive has no checksum of its members, and libarchive's zstd none at all. */
        const bool sums = format == TAR ? filter && filter != ZSTD : filter != ZSTD;
        if (changed && sums) must(!given || (known && lines == want));
        if (format == TAR && filter) {
            const bool whole = read_tar(path, &out);
            must(whole ? changed && !sums ? true : same(&out, &in) : changed);
        }
    } else {
        (void)read_lines(path, NULL, &lines);
        (void)read_tar(path, &out);
        if (filter && !rd_compressed(in.p, in.n)) {
            (void)read_file(path, &file, &out);
            must(ok ? changed && filter == ZSTD ? true : same(&out, &in) : changed);
            if (!changed) compare_shards(&in, path);
        }
    }
    must(waitpid(-1, NULL, WNOHANG) < 0); /* no program was started */
    return 0;
}
