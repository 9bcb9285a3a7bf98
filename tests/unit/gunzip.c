/* gunzip.c -- tests that damage anywhere in a file compressed with bzip2, xz or zstd is seen:
 * behind its first stream, and behind what a reader wants of it. libarchive packs the files. */
#include "../../runner/data/images_impl.h"
#include "rd/file.h"
#include "rd/gunzip.h"
#include "scratch_dir.h"
#include "test.h"
#include <archive.h>
#include <archive_entry.h>

enum { ROOM = 1 << 20, BLOCK = 1 << 17, BIG = 400000 };

static const struct filter_row {
    const char *name;
    int filter;
} filters[] = {{"gzip", ARCHIVE_FILTER_GZIP},
               {"bzip2", ARCHIVE_FILTER_BZIP2},
               {"xz", ARCHIVE_FILTER_XZ},
               {"zstd", ARCHIVE_FILTER_ZSTD}};

static uint8_t file[ROOM], out[ROOM];

/* Bytes that do not become smaller. */
static const uint8_t *noise(void)
{
    static uint8_t p[BIG];
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < BIG && !p[BIG - 1]; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        p[i] = (uint8_t)(x >> 32);
    }
    return p;
}

/* Appends p[n], compressed, to file[at]. Returns the size of the file. tar: as an
 * archive of "m", a line, and "z", which is p[n]. */
static size_t pack(int filter, bool tar, const void *p, size_t n, size_t at)
{
    size_t used = 0;
    struct archive *a = archive_write_new();
    assert_int_equal(archive_write_add_filter(a, filter), ARCHIVE_OK);
    if (filter == ARCHIVE_FILTER_BZIP2) /* blocks of 100,000 bytes */
        assert_int_equal(archive_write_set_filter_option(a, NULL, "compression-level", "1"),
                         ARCHIVE_OK);
    assert_int_equal(tar ? archive_write_set_format_ustar(a) : archive_write_set_format_raw(a),
                     ARCHIVE_OK);
    assert_int_equal(archive_write_set_bytes_in_last_block(a, 1), ARCHIVE_OK);
    assert_int_equal(archive_write_open_memory(a, file + at, ROOM - at, &used), ARCHIVE_OK);
    for (int k = tar ? 0 : 1; k < 2; k++) {
        const void *data = k ? p : "a line\n";
        const size_t size = k ? n : 7;
        struct archive_entry *e = archive_entry_new();
        archive_entry_set_pathname(e, k ? "z" : "m");
        archive_entry_set_filetype(e, AE_IFREG);
        archive_entry_set_size(e, (la_int64_t)size);
        assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
        assert_int_equal(archive_write_data(a, data, size), (int)size);
        archive_entry_free(e);
    }
    assert_int_equal(archive_write_close(a), ARCHIVE_OK);
    archive_write_free(a);
    return at + used;
}

/* Decompresses file[n] to out. */
static rd_code unpack(size_t n, size_t *got, rd_status *st)
{
    rd_stream *s = NULL;
    *st = (rd_status){0};
    *got = 0;
    if (rd_stream_new_mem("f", file, n, &s, st) == RD_OK)
        (void)rd_stream_read(s, out, ROOM, got, st);
    rd_stream_free(s);
    return st->code;
}

static void expect(size_t n_file, const void *want, size_t n)
{
    rd_status st;
    size_t got;
    if (unpack(n_file, &got, &st) != RD_OK) fail_msg("%s", st.msg);
    assert_int_equal(got, n);
    if (n > 0) assert_memory_equal(out, want, n);
}

static void expect_failure(size_t n_file, const char *text)
{
    rd_status st;
    size_t got;
    assert_int_equal(unpack(n_file, &got, &st), RD_EDATA);
    if (!strstr(st.msg, text)) fail_msg("%s", st.msg);
}

static void check_whole(void **state)
{
    const struct filter_row *f = *state;
    char *text = NULL;
    size_t got;
    rd_status st = {0};
    expect(pack(f->filter, false, "", 0, 0), "", 0);
    size_t n = pack(f->filter, false, noise(), BIG, 0);
    expect(n, noise(), BIG);
    n = pack(f->filter, false, "one\n", 4, 0);
    n = pack(f->filter, false, "two\n", 4, n);
    expect(n, "one\ntwo\n", 8);
    must_do(rd_file_write_atomic(in_dir("f"), file, n, &st), &st);
    must_do(rd_lines_read_all(in_dir("f"), &text, &got, &st), &st);
    assert_int_equal(got, 8);
    assert_memory_equal(text, "one\ntwo\n", 8);
    free(text);
    for (size_t cut = 1; cut < 8; cut++) expect_failure(n - cut, "f'");
}

/* Compressed twice, in both orders. */
static void check_twice(void **state)
{
    const struct filter_row *f = *state;
    static uint8_t inner[ROOM];
    for (int k = 0; k < 2; k++) {
        const size_t n = pack(k ? ARCHIVE_FILTER_BZIP2 : f->filter, false, noise(), BIG, 0);
        memcpy(inner, file, n);
        const size_t m = pack(k ? f->filter : ARCHIVE_FILTER_BZIP2, false, inner, n, 0);
        expect(m, noise(), BIG);
    }
}

/* Each flipped bit of two streams is seen, or changes nothing. The first ten bytes tell what the
 * file is. */
static void check_flipped(void **state)
{
    const struct filter_row *f = *state;
    static const char want[] = "first stream\nsecond stream\n";
    size_t n = pack(f->filter, false, want, 13, 0);
    n = pack(f->filter, false, want + 13, 14, n);
    if (f->filter == ARCHIVE_FILTER_ZSTD) return; /* libarchive's has no checksum */
    for (size_t i = 10; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            rd_status st;
            size_t got;
            file[i] ^= (uint8_t)(1 << bit);
            if (unpack(n, &got, &st) == RD_OK &&
                (got != sizeof want - 1 || memcmp(out, want, got) != 0))
                fail_msg("bit %d of byte %zu is not seen", bit, i);
            file[i] ^= (uint8_t)(1 << bit);
        }
}

/* What follows a bzip2 file must be zeros, also where the block that is read at once ends. */
static void test_behind_bzip2(void **state)
{
    (void)state;
    int near = 0;
    const size_t begin = pack(ARCHIVE_FILTER_BZIP2, false, noise(), 129000, 0);
    assert_in_range(begin, BLOCK - 2000, BLOCK - 100);
    for (size_t k = 1, end = 0; end <= BLOCK; k += end + 80 < BLOCK ? 40 : 1) {
        end = pack(ARCHIVE_FILTER_BZIP2, false, noise(), k, begin);
        if (end + 15 < BLOCK) continue;
        near++;
        memset(file + end, 0, 20);
        for (size_t more = 1; more < 20; more += 6) {
            rd_status st;
            size_t got;
            assert_int_equal(unpack(end + more, &got, &st), RD_OK);
            assert_int_equal(got, 129000 + k);
            for (size_t i = 0; i<more; i += more> 1 ? more - 1 : 1) {
                file[end + i] = 1;
                expect_failure(end + more, "bytes that are not compressed follow its end");
                file[end + i] = 0;
            }
        }
    }
    assert_true(near > 0);
}

/* Damage behind the member that is read, and behind the end of the archive. */
static void check_member(void **state)
{
    const struct filter_row *f = *state;
    char path[1000];
    const size_t n = pack(f->filter, true, noise(), BIG, 0);
    if (f->filter == ARCHIVE_FILTER_ZSTD) return;
    for (int damaged = 0; damaged < 2; damaged++) {
        rd_status st = {0}, st2 = {0};
        rd_lines *l = NULL;
        rd_tar *t = NULL;
        rd_tar_member m;
        const char *line;
        size_t length;
        if (damaged) file[n - 3000] ^= 16; /* in "z" */
        must_do(rd_file_write_atomic(in_dir("t"), file, n, &st), &st);
        snprintf(path, sizeof path, "%s!m", in_dir("t"));
        must_do(rd_lines_new(path, (rd_lines_opts){.max_line_bytes = 100}, &l, &st), &st);
        must_do(rd_lines_next(l, &line, &length, &st), &st);
        assert_int_equal(length, 6);
        assert_int_equal(rd_lines_next(l, &line, &length, &st), damaged ? RD_EDATA : RD_OK);
        assert_null(line);
        rd_lines_free(l);
        if (rd_tar_new(in_dir("t"), &t, &st2) == RD_OK) do
                (void)rd_tar_next(t, &m, &st2);
            while (st2.code == RD_OK && m.name);
        assert_int_equal(st2.code, damaged ? RD_EDATA : RD_OK);
        rd_tar_free(t);
    }
}

RD_TESTS_WITH("gunzip", make_dir, remove_dir, TEST_ROWS(check_whole, filters),
              TEST_ROWS(check_twice, filters), TEST_ROWS(check_flipped, filters),
              TEST_ROWS(check_member, filters), TEST(test_behind_bzip2))
