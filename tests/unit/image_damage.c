/* image_damage.c -- images that are damaged, or that cost too much: what is decoded, what is
 * reported, and when too many of them end the run. */
#include "../../runner/data/images_impl.h"
#include "test.h"
#include "image_files.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

enum { W = 7, H = 5, ROW = 1 + 3 * W, RAW = H * ROW, MAX = 4096 };

/* ---- PNG ---- */

typedef struct png {
    uint8_t p[MAX];
    size_t n, idat; /* bytes; where the first IDAT chunk begins */
} png;

static void add32(png *x, uint32_t v)
{
    for (int k = 3; k >= 0; k--) x->p[x->n++] = (uint8_t)(v >> 8 * k);
}

static void add_chunk(png *x, const char *name, const void *data, size_t n)
{
    add32(x, (uint32_t)n);
    memcpy(x->p + x->n, name, 4);
    if (n > 0) memcpy(x->p + x->n + 4, data, n);
    const uint32_t crc = (uint32_t)crc32(0, x->p + x->n, (uInt)n + 4);
    x->n += 4 + n;
    add32(x, crc);
}

/* A colour PNG whose stream is cut into chunks of at most `piece` bytes. filter: of row 3. more:
 * bytes of the stream behind the image. */
static void make_png(png *x, int filter, size_t piece, size_t more)
{
    uint8_t raw[RAW + 64] = {0}, packed[MAX], head[13] = {0, 0, 0, W, 0, 0, 0, H, 8, 2, 0, 0, 0};
    for (int i = 0; i < RAW; i++) raw[i] = (uint8_t)(i % ROW == 0 ? i / ROW % 5 : i * 29);
    raw[3 * ROW] = (uint8_t)filter;
    uLongf n = sizeof packed;
    assert_int_equal(compress2(packed, &n, raw, RAW + more, 6), Z_OK);
    x->n = 0;
    memcpy(x->p, "\x89PNG\r\n\x1a\n", 8);
    x->n = 8;
    add_chunk(x, "IHDR", head, sizeof head);
    add_chunk(x, "tEXt", "Title\0x", 7);
    x->idat = x->n;
    for (size_t at = 0; at < n; at += piece)
        add_chunk(x, "IDAT", packed + at, piece < n - at ? piece : n - at);
    add_chunk(x, "IEND", NULL, 0);
}

static rd_decode decode(const uint8_t *p, size_t n, char why[RD_WHY_BYTES], uint8_t *out)
{
    rd_status st = {0};
    rd_scratch s = {0};
    rd_png_head h;
    rd_pixels px = {0};
    /* Of just this size: AddressSanitizer then sees each byte read behind it. */
    uint8_t *copy = malloc(n);
    assert_non_null(copy);
    memcpy(copy, p, n);
    rd_decode answer = rd_png_read_head(copy, n, &h, why);
    if (answer != RD_DECODE_NONE)
        must_do(rd_png_decode(copy, n, &h, 4, &s, &px, &answer, why, &st), &st);
    if (px.p && out) memcpy(out, px.p, (size_t)(px.h * px.w) * 4);
    rd_scratch_release(&s);
    free(copy);
    return answer;
}

static void test_png_whole(void **state)
{
    (void)state;
    png x;
    char why[RD_WHY_BYTES];
    uint8_t one[4 * W * H], two[4 * W * H];
    make_png(&x, 3, MAX, 0);
    assert_int_equal(decode(x.p, x.n, why, one), RD_DECODE_OK);
    for (size_t piece = 1; piece < 20; piece += 6) {
        make_png(&x, 3, piece, 0);
        assert_int_equal(decode(x.p, x.n, why, two), RD_DECODE_OK);
        assert_string_equal(why, "");
        assert_memory_equal(one, two, sizeof one);
    }
    make_png(&x, 3, MAX, 40); /* libpng takes such a file, too */
    assert_int_equal(decode(x.p, x.n, why, two), RD_DECODE_OK);
    assert_memory_equal(one, two, sizeof one);
}

/* Each flipped bit behind the signature is seen: in a length, a name, the data or a checksum. */
static void test_png_flipped(void **state)
{
    (void)state;
    png x;
    char why[RD_WHY_BYTES];
    make_png(&x, 1, 60, 0);
    for (size_t i = 8; i < x.n - 12; i++) /* IEND ends the file, whatever it is called */
        for (int bit = 0; bit < 8; bit++) {
            x.p[i] ^= (uint8_t)(1 << bit);
            if (decode(x.p, x.n, why, NULL) == RD_DECODE_OK)
                fail_msg("bit %d of byte %zu is not seen", bit, i);
            assert_true(why[0] != '\0');
            x.p[i] ^= (uint8_t)(1 << bit);
        }
    assert_int_equal(decode(x.p, x.n, why, NULL), RD_DECODE_OK);
    for (size_t n = 8; n < x.n - 12; n++)
        assert_int_not_equal(decode(x.p, n, why, NULL), RD_DECODE_OK);
}

static void test_png_filter(void **state)
{
    (void)state;
    png x;
    char why[RD_WHY_BYTES];
    uint8_t out[4 * W * H];
    make_png(&x, 5, MAX, 0);
    assert_int_equal(decode(x.p, x.n, why, out), RD_DECODE_DAMAGED);
    assert_string_equal(why, "a row of the PNG has an unknown filter");
    for (int i = 3 * 4 * W; i < 4 * 4 * W; i++) assert_int_equal(out[i], 128);
    assert_int_not_equal(out[2 * 4 * W], 128);
}

/* A large image of one colour in a small file is refused; the same size with more bytes is not. */
static void test_png_ratio(void **state)
{
    (void)state;
    png x = {.n = 8};
    char why[RD_WHY_BYTES];
    rd_png_head h;
    memcpy(x.p, "\x89PNG\r\n\x1a\n", 8);
    const uint8_t head[13] = {0, 0, 0x1F, 0xF0, 0, 0, 0x1F, 0xF0, 8, 2, 0, 0, 0};
    add_chunk(&x, "IHDR", head, sizeof head);
    assert_int_equal(rd_png_read_head(x.p, x.n, &h, why), RD_DECODE_NONE);
    assert_non_null(strstr(why, "a PNG of 8176 x 8176 pixels in "));
    assert_int_equal(rd_png_read_head(x.p, 5 << 20, &h, why), RD_DECODE_OK);
}

/* ---- JPEG: the cost of many scans ---- */

/* A header of a progressive frame, then n scans without data. sampling: of the first component. */
static size_t make_scans(uint8_t *p, int h, int w, int sampling, int n)
{
    const uint8_t frame[] = {0xFF,       0xD8,
                             0xFF,       0xC2,
                             0,          17,
                             8,          (uint8_t)(h >> 8),
                             (uint8_t)h, (uint8_t)(w >> 8),
                             (uint8_t)w, 3,
                             1,          (uint8_t)sampling,
                             0,          2,
                             0x11,       0,
                             3,          0x11,
                             0};
    static const uint8_t scan[] = {0xFF, 0xDA, 0, 8, 1, 1, 0, 0, 0, 0, 0x12, 0xFF, 0x00};
    size_t at = sizeof frame;
    memcpy(p, frame, at);
    for (int i = 0; i < n; i++, at += sizeof scan) memcpy(p + at, scan, sizeof scan);
    return at;
}

static void test_scans(void **state)
{
    (void)state;
    static const struct {
        int h, w, sampling, scans;
        bool ok;
    } rows[] = {
        {2000, 2000, 0x11, 499, true},  {11576, 11576, 0x22, 1, true},
        {11576, 11576, 0x22, 10, true}, {11576, 11576, 0x22, 17, false},
        {11576, 11576, 0x11, 2, false}, {8000, 8000, 0x11, 10, true},
        {8000, 8000, 0x11, 40, false},  {5000, 5000, 0x22, 400, false},
        {5000, 5000, 0x22, 85, true},
    };
    static uint8_t p[1 << 14];
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        rd_jpeg_head h;
        char why[RD_WHY_BYTES];
        const size_t n = make_scans(p, rows[k].h, rows[k].w, rows[k].sampling, rows[k].scans);
        const rd_decode got = rd_jpeg_read_head(p, n, &h, why);
        if ((got == RD_DECODE_OK) != rows[k].ok) fail_msg("row %zu: %s", k, why);
        if (!rows[k].ok && !strstr(why, "scans, too much work; save it without progression"))
            fail_msg("%s", why);
    }
}

static void test_shrink(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_scratch s = {0};
    must_do(rd_scratch_reserve(&s.pixels, &s.n_pixels, 200 << 20, &st), &st);
    must_do(rd_scratch_reserve(&s.wide, &s.n_wide, 1 << 20, &st), &st);
    assert_in_range(s.n_pixels, 200 << 20, 201 << 20);
    rd_scratch_shrink(&s);
    assert_int_equal(s.n_pixels, 0);
    assert_true(s.n_wide >= 1 << 20);
    rd_scratch_release(&s);
}

/* ---- how many may be bad ---- */

static struct share_row {
    const char *name;
    int good, bad; /* files */
    const char *more;
    bool ok, cut; /* cut: the bad ones are the first bytes of an image, not pages */
    bool first;   /* the bad ones come first, else last */
} share_rows[] = {
    {"all are cut short", 0, 8, "", false, true, false},
    {"most are cut short", 3, 4, "", false, true, false},
    {"half are cut short", 4, 4, "", true, true, false},
    {"three are cut short", 0, 3, "", true, true, false},
    {"none", 10, 0, "", true, false, false},
    {"one of two", 1, 1, "", true, false, false},
    {"three of ten", 7, 3, "", true, false, false},
    {"four of ten", 6, 4, "", false, false, false},
    {"four of ten, allowed", 6, 4, ", 'max_bad_images': 0.4", true, false, false},
    {"six of ten are most", 4, 6, ", 'max_bad_images': 0.7", false, false, false},
    {"six of ten, all allowed", 4, 6, ", 'max_bad_images': 1", true, false, false},
    {"one, none allowed", 9, 1, ", 'max_bad_images': 0", false, false, false},
    {"all", 0, 5, "", false, false, false},
    {"the only one", 0, 1, "", false, false, false},
    {"all, read by threads", 0, 40, ", 'data_threads': 3", false, false, false},
    {"five of a hundred", 95, 5, "", false, false, false},
    {"three of a hundred", 97, 3, "", true, false, false},
    {"four of a hundred, the first ones", 96, 4, ", 'max_bad_images': 0.05", true, false, true},
};

static void check_share(void **state)
{
    const struct share_row *r = *state;
    uint8_t *jpeg;
    char path[256], config[256];
    const size_t n = picture_jpeg(9, 11, 3, 1, &jpeg);
    rd_status st = {0};
    rd_dataset *d;
    if (access(files_at("train"), F_OK) != 0) {
        files_mkdir(files_at("train"));
        files_mkdir(files_at("train/ant"));
    }
    for (int i = 0; i < r->good + r->bad; i++) {
        snprintf(path, sizeof path, "train/ant/%03d.jpg", i);
        const bool good = r->first ? i >= r->bad : i < r->good;
        if (good || r->cut)
            files_put(files_at(path), jpeg, good ? n : n - 40);
        else
            files_put(files_at(path), "<html>error</html>", 18);
    }
    snprintf(config, sizeof config, "{'data_dir': '@', 'image_size': 8%s}", r->more);
    must_do(images_open("image_folder", files_dir(), config, RD_MODE_TRAIN, RD_SPLIT_TRAIN, NULL,
                        NULL, &d, &st),
            &st);
    for (int epoch = 0; epoch < 3 && st.code == RD_OK; epoch++) {
        float *x = NULL;
        int64_t got;
        if (images_all(d, 4, epoch, &x, &got, NULL, &st) == RD_OK) free(x);
    }
    assert_int_equal(st.code, r->ok ? RD_OK : RD_EDATA);
    if (!r->ok && (!strstr(st.msg, r->cut ? "cannot be decoded or are cut short, such as '"
                                          : "cannot be decoded, such as '") ||
                   !strstr(st.msg, r->cut ? "Premature end of JPEG file; check the files"
                                          : "an HTML page, not a JPEG; check the files")))
        fail_msg("%s", st.msg);
    rd_dataset_free(d);
    for (int i = 0; i < r->good + r->bad; i++) {
        snprintf(path, sizeof path, "train/ant/%03d.jpg", i);
        unlink(files_at(path));
    }
    free(jpeg);
}

/* A compressed shard whose images are all empty. */
static void test_empty(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_dataset *d;
    float *x = NULL;
    int64_t n;
    tar_out *t = tar_out_new(files_at("w.tar.gz"));
    tar_out_put(t, "a.jpg", "", 0);
    tar_out_put(t, "a.cls", "1", 1);
    tar_out_end(t);
    must_do(
        images_open("webdataset", files_dir(),
                    "{'data_dir': '@', 'train_data': 'w.tar.gz', 'n_classes': 2, 'image_size': 8}",
                    RD_MODE_TRAIN, RD_SPLIT_TRAIN, NULL, NULL, &d, &st),
        &st);
    assert_int_equal(images_all(d, 1, 0, &x, &n, NULL, &st), RD_EDATA);
    assert_non_null(strstr(st.msg, "a.jpg': empty, not a JPEG"));
    rd_dataset_free(d);
}

RD_TESTS_WITH("image_damage", files_set_up, files_tear_down, TEST(test_png_whole),
              TEST(test_png_flipped), TEST(test_png_filter), TEST(test_png_ratio), TEST(test_scans),
              TEST(test_shrink), TEST(test_empty), TEST_ROWS(check_share, share_rows))
