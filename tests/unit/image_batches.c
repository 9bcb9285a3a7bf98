/* image_batches.c -- tests batches of images.
 *
 * The bytes are the same for every number of threads, every cut into batches, and whatever was
 * announced. Odd JPEGs have a defined answer and are named once. Augmentation is a function of
 * (seed, epoch, sample). */
#include "../../runner/data/images_impl.h"
#include "test.h"
#include "image_files.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static rd_dataset *open_with(const char *dataset, const char *config, rd_split split, rd_log *log)
{
    rd_status st = {0};
    rd_dataset *d;
    const rd_mode mode = split == RD_SPLIT_TRAIN ? RD_MODE_TRAIN : RD_MODE_EVAL;
    must_do(images_open(dataset, files_dir(), config, mode, split, NULL, log, &d, &st), &st);
    return d;
}

static float *all_of(rd_dataset *d, int64_t batch, int64_t epoch, int64_t *n)
{
    rd_status st = {0};
    float *x;
    must_do(images_all(d, batch, epoch, &x, n, NULL, &st), &st);
    return x;
}

#define SYNTHETIC                                                                                \
    "'image_size': 12, 'n_classes': 5, 'synthetic_samples': 101, 'synthetic_eval_samples': 33, " \
    "'seed': 9"

static struct same_row {
    const char *name, *config, *config2;
    int64_t batch;
} same_rows[] = {
    {"one thread", "{" SYNTHETIC "}", "{" SYNTHETIC ", 'data_threads': 1}", 7},
    {"three threads, affine", "{" SYNTHETIC ", 'augmentation': 'affine'}",
     "{" SYNTHETIC ", 'augmentation': 'affine', 'data_threads': 3}", 10},
    {"five threads, crop", "{" SYNTHETIC ", 'augmentation': 'crop_flip'}",
     "{" SYNTHETIC ", 'augmentation': 'crop_flip', 'data_threads': 5}", 25},
    {"pad and crop, another batch",
     "{" SYNTHETIC ", 'augmentation': 'pad_crop_flip', 'data_threads': 0}",
     "{" SYNTHETIC ", 'augmentation': 'pad_crop_flip', 'data_threads': 2}", 1},
    {"flip, one large batch", "{" SYNTHETIC ", 'augmentation': 'flip'}",
     "{" SYNTHETIC ", 'augmentation': 'flip', 'data_threads': 4}", 200},
    {"grey, random", "{" SYNTHETIC ", 'image_channels': 1, 'synthetic_kind': 'random'}",
     "{" SYNTHETIC ", 'image_channels': 1, 'synthetic_kind': 'random', 'data_threads': 2}", 9},
};

static void check_same(void **state)
{
    const struct same_row *r = *state;
    rd_dataset *a = open_with("synthetic_images", r->config, RD_SPLIT_TRAIN, NULL);
    rd_dataset *b = open_with("synthetic_images", r->config2, RD_SPLIT_TRAIN, NULL);
    rd_data_spec spec;
    int64_t n, m;
    rd_dataset_def_of(a)->spec(rd_dataset_self(a), &spec);
    float *x = all_of(a, 16, 2, &n), *y = all_of(b, r->batch, 2, &m),
          *z = all_of(b, r->batch, 3, &m);
    const size_t floats = (size_t)(n * spec.image_h * spec.image_w * spec.image_c);
    assert_int_equal(n, 101);
    assert_memory_equal(x, y, floats * sizeof *x);
    if (strstr(r->config, "augmentation"))
        assert_memory_not_equal(x, z, floats * sizeof *x);
    else
        assert_memory_equal(x, z, floats * sizeof *x);
    assert_string_equal(rd_dataset_def_of(a)->fingerprint(rd_dataset_self(a)),
                        rd_dataset_def_of(b)->fingerprint(rd_dataset_self(b)));
    free(x);
    free(y);
    free(z);
    rd_dataset_free(a);
    rd_dataset_free(b);
}

/* Announcements that are never fetched, fetched in part, or repeated; then the reader is closed
 * while work is under way. */
static void test_announced(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_arena *arena;
    const char *config = "{" SYNTHETIC ", 'augmentation': 'crop_flip', 'data_threads': 3}";
    rd_dataset *d = open_with("synthetic_images", config, RD_SPLIT_TRAIN, NULL);
    const rd_dataset_def *def = rd_dataset_def_of(d);
    void *self = rd_dataset_self(d);
    enum { EACH = 12 * 12 * 3 };
    int64_t n, ids[40];
    float *want = all_of(d, 101, 0, &n), *next = all_of(d, 101, 1, &n);
    assert_int_equal(rd_arena_new(1 << 20, &arena, &st), RD_OK);
    for (int round = 0; round < 60; round++) {
        const int64_t epoch = round % 5 == 4;
        rd_batch b = {.epoch = epoch, .step = round};
        for (int i = 0; i < 40; i++) ids[i] = (round * 17 + i * 7) % 101;
        if (round % 3 != 0) def->prepare(self, ids, 40, epoch);
        if (round % 3 == 2) def->prepare(self, ids + 3, 20, epoch);
        if (round % 7 == 6) def->prepare(self, ids, 40, epoch + 1);
        assert_int_equal(def->fetch(self, ids, round % 4 == 3 ? 39 : 40, arena, &b, &st), RD_OK);
        const float *x = b.field[0].data;
        for (int64_t i = 0; i < b.n; i++)
            assert_memory_equal(x + i * EACH, (epoch ? next : want) + ids[i] * EACH,
                                EACH * sizeof *x);
        rd_arena_reset(arena);
    }
    rd_batch none = {.epoch = 7};
    assert_int_equal(def->fetch(self, ids, 0, arena, &none, &st), RD_OK);
    assert_int_equal(none.n, 0);
    assert_int_equal(none.epoch, 7);
    assert_int_equal(none.field[0].off[0], 0);
    def->prepare(self, ids, 40, 0);
    rd_dataset_free(d);
    rd_arena_free(arena);
    free(want);
    free(next);
}

/* Training samples and evaluation samples are different ones; evaluation is not augmented. */
static void test_splits(void **state)
{
    (void)state;
    const char *config = "{" SYNTHETIC ", 'augmentation': 'affine'}", *plain = "{" SYNTHETIC "}";
    rd_dataset *a = open_with("synthetic_images", config, RD_SPLIT_EVAL, NULL),
               *b = open_with("synthetic_images", plain, RD_SPLIT_EVAL, NULL);
    rd_dataset *c = open_with("synthetic_images", plain, RD_SPLIT_TRAIN, NULL);
    int64_t n, m;
    float *x = all_of(a, 10, 0, &n), *y = all_of(b, 10, 5, &n), *z = all_of(c, 10, 0, &m);
    assert_int_equal(n, 33);
    assert_memory_equal(x, y, sizeof(float) * 33 * 12 * 12 * 3);
    assert_memory_not_equal(x, z, sizeof(float) * 12 * 12 * 3);
    free(x);
    free(y);
    free(z);
    rd_dataset_free(a);
    rd_dataset_free(b);
    rd_dataset_free(c);
}

/* The nearest class mean of 400 samples finds the class of 400 others: there is something to
 * learn. It does not for noise. */
static double nearest_mean(const char *kind)
{
    enum { EACH = 16 * 16 * 3, TRAIN = 400, CLASSES = 4 };
    char config[256];
    rd_status st = {0};
    float *x[2], mean[CLASSES][EACH] = {{0}};
    int32_t label[2][TRAIN];
    int64_t n;
    int count[CLASSES] = {0}, right = 0;
    snprintf(config, sizeof config,
             "{'image_size': 16, 'n_classes': 4, 'synthetic_samples': 400, "
             "'synthetic_eval_samples': 400, "
             "'synthetic_kind': '%s'}",
             kind);
    for (int k = 0; k < 2; k++) {
        rd_dataset *d = open_with("synthetic_images", config, k ? RD_SPLIT_EVAL : RD_SPLIT_TRAIN,
                                  NULL);
        assert_int_equal(images_all(d, 100, 0, &x[k], &n, label[k], &st), RD_OK);
        rd_dataset_free(d);
    }
    for (int i = 0; i < TRAIN; i++) {
        count[label[0][i]]++;
        for (int j = 0; j < EACH; j++) mean[label[0][i]][j] += x[0][i * EACH + j];
    }
    for (int k = 0; k < CLASSES; k++) assert_in_range(count[k], 60, 140);
    for (int i = 0; i < TRAIN; i++) {
        double best = 1e30;
        int which = -1;
        for (int k = 0; k < CLASSES; k++) {
            double sum = 0;
            for (int j = 0; j < EACH; j++) {
                const double e = x[1][i * EACH + j] - mean[k][j] / (float)count[k];
                sum += e * e;
            }
            if (sum < best) {
                best = sum;
                which = k;
            }
        }
        right += which == label[1][i];
    }
    free(x[0]);
    free(x[1]);
    return (double)right / TRAIN;
}

static void test_learnable(void **state)
{
    (void)state;
    assert_true(nearest_mean("learnable") > 0.99);
    assert_true(nearest_mean("random") < 0.40);
}

/* ---- odd JPEGs ---- */

typedef struct bytes {
    uint8_t *p;
    size_t n;
} bytes;

static bytes jpeg(int c, unsigned seed)
{
    bytes b;
    b.n = picture_jpeg(48, 64, c, seed, &b.p);
    return b;
}

static void insert(bytes *b, size_t at, const char *what, size_t n)
{
    b->p = realloc(b->p, b->n + n);
    assert_non_null(b->p);
    memmove(b->p + at + n, b->p + at, b->n - at);
    memcpy(b->p + at, what, n);
    b->n += n;
}

static bytes make_grey(void)
{
    return jpeg(1, 1);
}
static bytes make_cmyk(void)
{
    return jpeg(4, 1);
}
static bytes make_png(void)
{
    bytes b = jpeg(3, 1);
    memcpy(b.p, "\x89PNG\r\n\x1a\n", 8);
    return b;
}
static bytes make_exif(void) /* an APP1 segment full of what could be markers */
{
    bytes b = jpeg(3, 1);
    char seg[300];
    memset(seg, 0xFF, sizeof seg);
    memcpy(seg,
           "\xFF\xE1\x01\x2A"
           "Exif\0\0",
           10);
    insert(&b, 2, seg, sizeof seg);
    return b;
}
static bytes make_stray(void) /* bytes between two segments */
{
    bytes b = jpeg(3, 1);
    insert(&b, 2 + 2 + 16, "stray", 5);
    return b;
}
static bytes make_trailing(void)
{
    bytes b = jpeg(3, 1);
    insert(&b, b.n, "and then some more", 18);
    return b;
}
static bytes make_half(void)
{
    bytes b = jpeg(3, 1);
    b.n = b.n * 5 / 6; /* tables and headers are a large part of a small file */
    return b;
}
static bytes make_head(void)
{
    bytes b = jpeg(3, 1);
    b.n = 100;
    return b;
}
static bytes make_empty(void)
{
    bytes b = jpeg(3, 1);
    b.n = 0;
    return b;
}
static bytes make_html(void)
{
    bytes b = jpeg(3, 1);
    memcpy(b.p, "<!DOCTYPE html>", 15);
    return b;
}
static bytes make_huge(void) /* the frame header says 60000 x 60000 */
{
    bytes b = jpeg(3, 1);
    for (size_t i = 0; i + 9 < b.n; i++)
        if (b.p[i] == 0xFF && b.p[i + 1] == 0xC0) memcpy(b.p + i + 5, "\xEA\x60\xEA\x60", 4);
    return b;
}
static bytes make_no_size(void)
{
    bytes b = jpeg(3, 1);
    for (size_t i = 0; i + 9 < b.n; i++)
        if (b.p[i] == 0xFF && b.p[i + 1] == 0xC0) memset(b.p + i + 5, 0, 2);
    return b;
}
static bytes make_lossless(void) /* a kind of frame that the decoder does not know */
{
    bytes b = jpeg(3, 1);
    for (size_t i = 0; i + 9 < b.n; i++)
        if (b.p[i] == 0xFF && b.p[i + 1] == 0xC0) b.p[i + 1] = 0xC3;
    return b;
}

static struct odd_row {
    const char *name;
    bytes (*make)(void);
    rd_decode answer;
    const char *says; /* of the warning; NULL: none */
} odd_rows[] = {
    {"grey", make_grey, RD_DECODE_OK, NULL},
    {"CMYK", make_cmyk, RD_DECODE_OK, NULL},
    {"EXIF noise", make_exif, RD_DECODE_OK, NULL},
    {"trailing bytes", make_trailing, RD_DECODE_OK, NULL},
    {"stray bytes", make_stray, RD_DECODE_DAMAGED, "extraneous bytes before marker"},
    {"cut in half", make_half, RD_DECODE_DAMAGED, "Premature end"},
    {"a PNG", make_png, RD_DECODE_NONE, "the PNG ends within its header; replaced by a grey image"},
    {"cut before the picture", make_head, RD_DECODE_NONE, "ends before its image data"},
    {"empty", make_empty, RD_DECODE_NONE, "empty, not a JPEG"},
    {"an HTML page", make_html, RD_DECODE_NONE, "an HTML page, not a JPEG"},
    {"too large", make_huge, RD_DECODE_NONE, "a JPEG of 60000 x 60000 pixels, too many"},
    {"no size", make_no_size, RD_DECODE_NONE, "gives no size"},
    {"lossless", make_lossless, RD_DECODE_NONE, "replaced by a grey image"},
};

/* Mean absolute difference in pixels of two renderings of the picture. */
static double difference(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] > b[i] ? a[i] - b[i] : b[i] - a[i];
    return sum / n * 255.0;
}

static void check_odd(void **state)
{
    const struct odd_row *r = *state;
    enum { EACH = 24 * 24 * 3 };
    rd_status st = {0};
    char *said = NULL;
    size_t n_said = 0;
    char root[64], name[128];
    snprintf(root, sizeof root, "odd%d", (int)(r - odd_rows));
    static const char *const inner[] = {"", "/train", "/train/a"};
    for (int k = 0; k < 3; k++) {
        snprintf(name, sizeof name, "%s%s", root, inner[k]);
        files_mkdir(files_at(name));
    }
    const bytes odd = r->make(), plain = jpeg(3, 1);
    snprintf(name, sizeof name, "%s/train/a/1.jpg", root);
    files_put(files_at(name), odd.p, odd.n);
    snprintf(name, sizeof name, "%s/train/a/2.jpg", root);
    files_put(files_at(name), plain.p, plain.n);
    snprintf(name, sizeof name, "%s/said", root);
    rd_log *log;
    assert_int_equal(rd_log_new(0, "here", stderr, &log, &st), RD_OK);
    assert_int_equal(rd_log_tee(log, files_at(name), &st), RD_OK);
    float *first = NULL;
    for (int threads = 0; threads < 3; threads++) {
        char config[128];
        int64_t n;
        snprintf(config, sizeof config,
                 "{'data_dir': '@/%s', 'image_size': 24, 'data_threads': %d}", root, threads);
        rd_dataset *d = open_with("image_folder", config, RD_SPLIT_TRAIN,
                                  threads == 0 ? log : NULL);
        float *x = all_of(d, 1, 0, &n);
        for (int again = 0; again < 2; again++) free(all_of(d, 2, again, &n)); /* named once */
        rd_dataset_free(d);
        if (first) assert_memory_equal(x, first, 2 * EACH * sizeof *x);
        if (first)
            free(x);
        else
            first = x;
    }
    rd_log_free(log);
    said = files_get(files_at(name), &n_said);
    said[n_said] = '\0';
    const double gap = difference(first, first + EACH, EACH);
    const char *named = strstr(said, "1.jpg");
    if (r->says) {
        assert_non_null(named);
        assert_null(strstr(named + 1, "1.jpg"));
        assert_non_null(strstr(named, r->says));
    } else {
        assert_null(named);
    }
    if (r->answer == RD_DECODE_NONE)
        for (int i = 0; i < EACH; i++) assert_float_equal(first[i], 0.5, 1e-6);
    else if (r->make == make_exif || r->make == make_trailing || r->make == make_stray)
        assert_true(gap == 0.0);
    else if (r->make == make_half)
        assert_true(gap > 5.0 &&
                    difference(first, first + EACH, EACH / 3) < 1.0); /* the upper part is there */
    free(said);
    free(first);
    free(odd.p);
    free(plain.p);
}

/* Grey converted to colour has three equal channels. Colour converted to grey is near the luma
 * of the colour. */
static void test_channels(void **state)
{
    (void)state;
    enum { SIDE = 16 };
    int64_t n;
    files_mkdir(files_at("g"));
    files_mkdir(files_at("g/train"));
    files_mkdir(files_at("g/train/a"));
    for (int c = 1; c <= 4; c += c == 1 ? 2 : 1) {
        const bytes b = jpeg(c, 2);
        char name[32];
        snprintf(name, sizeof name, "g/train/a/%d.jpg", c);
        files_put(files_at(name), b.p, b.n);
        free(b.p);
    }
    rd_dataset *colour = open_with("image_folder", "{'data_dir': '@/g', 'image_size': 16}",
                                   RD_SPLIT_TRAIN, NULL);
    rd_dataset *grey = open_with("image_folder",
                                 "{'data_dir': '@/g', 'image_size': 16, 'image_channels': 1}",
                                 RD_SPLIT_TRAIN, NULL);
    float *x = all_of(colour, 3, 0, &n), *y = all_of(grey, 3, 0, &n);
    assert_int_equal(n, 3);
    for (int i = 0; i < SIDE * SIDE; i++) {
        assert_float_equal(x[3 * i], x[3 * i + 1], 0);
        assert_float_equal(x[3 * i], x[3 * i + 2], 0);
        assert_float_equal(x[3 * i], y[i], 1e-6);
    }
    for (int k = 1; k < 3; k++)
        for (int i = 0; i < SIDE * SIDE; i++) {
            const float *p = x + (k * SIDE * SIDE + i) * 3;
            assert_float_equal(0.299f * p[0] + 0.587f * p[1] + 0.114f * p[2],
                               y[k * SIDE * SIDE + i], 0.02);
        }
    free(x);
    free(y);
    rd_dataset_free(colour);
    rd_dataset_free(grey);
}

/* Where the crop allows it, a part of the size is decoded: near to decoding it whole. */
static void test_scaled(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_scratch s = {0}, s2 = {0};
    rd_jpeg_head head;
    rd_decode answer;
    rd_pixels a, b;
    char why[RD_WHY_BYTES];
    uint8_t *p;
    enum { SIDE = 20 };
    float x[SIDE * SIDE * 3], y[SIDE * SIDE * 3];
    const size_t n = picture_jpeg(333, 250, 3, 35, &p);
    assert_int_equal(rd_jpeg_read_head(p, n, &head, why), RD_DECODE_OK);
    assert_int_equal(head.h, 333);
    assert_int_equal(head.w, 250);
    assert_int_equal(rd_jpeg_decode(p, n, &head, 1, 4, &s, &a, &answer, why, &st), RD_OK);
    assert_int_equal(answer, RD_DECODE_OK);
    for (int den = 2; den <= 8; den *= 2) {
        const rd_box whole = {10, 20, 300, 200},
                     part = {10.0 / den, 20.0 / den, 300.0 / den, 200.0 / den};
        assert_int_equal(rd_jpeg_decode(p, n, &head, den, 4, &s2, &b, &answer, why, &st), RD_OK);
        assert_int_equal(b.h, (333 + den - 1) / den);
        assert_int_equal(b.w, (250 + den - 1) / den);
        assert_int_equal(rd_resample(&a, &whole, SIDE, SIDE, false, &s, x, &st), RD_OK);
        assert_int_equal(rd_resample(&b, &part, SIDE, SIDE, false, &s2, y, &st), RD_OK);
        double gap = 0;
        for (int i = 0; i < SIDE * SIDE * 3; i++) gap += x[i] > y[i] ? x[i] - y[i] : y[i] - x[i];
        assert_true(gap / (SIDE * SIDE * 3) < 4.0); /* of 255; 0.4, 0.4 and 2.3 seen */
    }
    free(p);
    rd_scratch_release(&s);
    rd_scratch_release(&s2);
}

/* A JPEG is decoded at the smallest size that is at least that of the result: the bytes are those
 * of a decoder that is told this size, and not those of another size. The part that is taken is the
 * whole image, by crop_flip too, which may mirror it. */
static struct den_row {
    const char *name;
    int h, w, den;
    const char *ratio; /* of crop_flip; NULL: no augmentation */
} den_rows[] = {
    {"one and a half", 36, 36, 1, NULL},
    {"almost twice", 47, 47, 1, NULL},
    {"twice", 48, 48, 2, NULL},
    {"three times", 72, 72, 2, NULL},
    {"four times", 96, 96, 4, NULL},
    {"seven times", 168, 168, 4, NULL},
    {"eight times", 192, 192, 8, NULL},
    {"twenty times", 480, 480, 8, NULL},
    {"almost twice as wide, seven times as high", 160, 40, 1, "0.25"},
    {"almost twice as high, seven times as wide", 40, 160, 1, "4"},
    {"twice as wide, eight times as high", 192, 48, 2, "0.25"},
};

static void check_den(void **state)
{
    const struct den_row *r = *state;
    enum { SIDE = 24, EACH = SIDE * SIDE * 3 };
    char root[64], name[128], crop[160] = "", config[400], why[RD_WHY_BYTES];
    static const char *const inner[] = {"", "/train", "/train/a"};
    rd_status st = {0};
    rd_scratch s = {0};
    rd_jpeg_head head;
    rd_decode answer;
    uint8_t *p;
    int64_t n_images;
    float want[EACH];
    snprintf(root, sizeof root, "den%dx%d", r->h, r->w);
    for (int k = 0; k < 3; k++) {
        snprintf(name, sizeof name, "%s%s", root, inner[k]);
        files_mkdir(files_at(name));
    }
    const size_t n = picture_jpeg(r->h, r->w, 3, 35, &p);
    snprintf(name, sizeof name, "%s/train/a/1.jpg", root);
    files_put(files_at(name), p, n);
    if (r->ratio)
        snprintf(crop, sizeof crop,
                 ", 'augmentation': 'crop_flip', 'crop_scale_min': 1, 'crop_ratio_min': %s, "
                 "'crop_ratio_max': %s",
                 r->ratio, r->ratio);
    snprintf(config, sizeof config,
             "{'data_dir': '@/%s', 'image_size': %d, 'eval_resize': %d, 'normalization': 'none', "
             "'data_threads': 0%s}",
             root, SIDE, SIDE, crop);
    rd_dataset *d = open_with("image_folder", config, RD_SPLIT_TRAIN, NULL);
    float *got = all_of(d, 1, 0, &n_images);
    rd_dataset_free(d);
    assert_int_equal(rd_jpeg_read_head(p, n, &head, why), RD_DECODE_OK);
    for (int den = 1; den <= 8; den *= 2) {
        rd_pixels px;
        bool same = false;
        must_do(rd_jpeg_decode(p, n, &head, den, 4, &s, &px, &answer, why, &st), &st);
        const rd_box whole = {0, 0, (double)r->h / den, (double)r->w / den};
        for (int flip = 0; flip < 2; flip++) {
            must_do(rd_resample(&px, &whole, SIDE, SIDE, flip, &s, want, &st), &st);
            same |= memcmp(got, want, sizeof want) == 0;
        }
        if (same != (den == r->den)) fail_msg("decoded at 1/%d of its size", den);
    }
    free(got);
    free(p);
    rd_scratch_release(&s);
}

/* Without eval_resize the short side of a JPEG becomes 256 / 224 of the result, as in ImageNet's
 * evaluation: here 32 for 28. So a quarter of the picture of 128 pixels loses 2 pixels around. */
static void test_default_resize(void **state)
{
    (void)state;
    enum { SIDE = 28, EACH = SIDE * SIDE * 3 };
    rd_status st = {0};
    rd_scratch s = {0};
    rd_jpeg_head head;
    rd_decode answer;
    rd_pixels px;
    uint8_t *p;
    char why[RD_WHY_BYTES];
    int64_t n_images;
    float want[EACH];
    files_mkdir(files_at("resize"));
    files_mkdir(files_at("resize/val"));
    files_mkdir(files_at("resize/val/a"));
    const size_t n = picture_jpeg(128, 128, 3, 35, &p);
    files_put(files_at("resize/val/a/1.jpg"), p, n);
    rd_dataset *d = open_with("image_folder",
                              "{'data_dir': '@/resize', 'image_size': 28, 'normalization': 'none', "
                              "'data_threads': 0}",
                              RD_SPLIT_EVAL, NULL);
    float *got = all_of(d, 1, 0, &n_images);
    rd_dataset_free(d);
    assert_int_equal(rd_jpeg_read_head(p, n, &head, why), RD_DECODE_OK);
    must_do(rd_jpeg_decode(p, n, &head, 4, 4, &s, &px, &answer, why, &st), &st);
    must_do(rd_resample(&px, &(rd_box){2, 2, SIDE, SIDE}, SIDE, SIDE, false, &s, want, &st), &st);
    assert_memory_equal(got, want, sizeof want);
    for (int i = 0; i < EACH; i++) { /* no pixel of the part is between two others */
        const int y = i / 3 / SIDE, x = i / 3 % SIDE;
        assert_true(got[i] == px.p[((y + 2) * 32 + x + 2) * 4 + i % 3]);
    }
    free(got);
    free(p);
    rd_scratch_release(&s);
}

/* ---- crop_flip: which part of the image is taken ----
 *
 * Pixel (y, x) of the image is (4 y, 4 x). The result is larger than the image. So the value at the
 * centre of a result's pixel is 4 times the place there, less half a pixel, and two such places
 * give the box. */
enum { CROP_OUT = 64 };
typedef struct seen_box {
    double y, x, h, w;
    bool mirrored;
} seen_box;

static seen_box crop_seen(const rd_images *m, int64_t epoch, rd_scratch *s, float *out)
{
    enum { A = CROP_OUT / 4, B = 3 * CROP_OUT / 4 };
    rd_status st = {0};
    rd_rendered result = {0};
    must_do(rd_render_sample(m, 0, epoch, s, out, &result, &st), &st);
#define PLACE(row, col, c) ((double)out[((row)*CROP_OUT + (col)) * 3 + (c)] / 4.0 + 0.5)
    const double ya = PLACE(A, A, 0), yb = PLACE(B, A, 0), xa = PLACE(A, A, 1), xb = PLACE(A, B, 1);
    const double share = (double)(B - A) / CROP_OUT, first = (A + 0.5) / CROP_OUT;
    seen_box b = {.h = (yb - ya) / share, .w = (xb - xa) / share, .mirrored = xb < xa};
    b.y = ya - first * b.h;
    b.x = b.mirrored ? xa - (1.0 - first) * -b.w : xa - first * b.w;
    b.w = b.mirrored ? -b.w : b.w;
    return b;
}

static rd_images crop_images(int h, int w, uint8_t *pixels)
{
    static const rd_images_kind stored = {.name = "stored"};
    rd_images m = {.kind = &stored, .head = {.n = 1, .h = h, .w = w, .c = 3}};
    m.render = (rd_render){.augment = RD_AUGMENT_CROP,
                           .h = CROP_OUT,
                           .w = CROP_OUT,
                           .c = 3,
                           .std = {1, 1, 1, 1},
                           .seed = 5};
    for (int i = 0; i < h * w; i++) {
        pixels[3 * i] = (uint8_t)(4 * (i / w));
        pixels[3 * i + 1] = (uint8_t)(4 * (i % w));
        pixels[3 * i + 2] = 0;
    }
    m.block[RD_BLOCK_PIXELS].p = (void *)pixels;
    return m;
}

/* All boxes have whole pixels inside the image. Area and logarithm of the shape are uniform, so are
 * the offsets, and each edge is reached. The bounds are four standard deviations or more. */
static void test_crop(void **state)
{
    (void)state;
    enum { SIDE = 60, DRAWN = 4000 };
    static uint8_t pixels[SIDE * SIDE * 3];
    static float out[CROP_OUT * CROP_OUT * 3];
    rd_scratch s = {0};
    rd_images m = crop_images(SIDE, SIDE, pixels);
    m.render.scale_min = 0.2;
    m.render.scale_max = 0.45;
    m.render.ratio_min = 0.5;
    m.render.ratio_max = 1.0;
    double area = 0.0, shape = 0.0, y = 0.0, x = 0.0, least = 1.0, most = 0.0;
    int edges[4] = {0}, mirrored = 0;
    for (int i = 0; i < DRAWN; i++) {
        const seen_box b = crop_seen(&m, i, &s, out);
        const double h = nearbyint(b.h), w = nearbyint(b.w), top = nearbyint(b.y),
                     left = nearbyint(b.x), share = h * w / (SIDE * SIDE);
        assert_true(fabs(b.h - h) + fabs(b.w - w) + fabs(b.y - top) + fabs(b.x - left) < 1e-2);
        assert_true(top >= 0.0 && left >= 0.0 && top + h <= SIDE && left + w <= SIDE);
        area += share / DRAWN;
        least = fmin(least, share);
        most = fmax(most, share);
        shape += log(w / h) / DRAWN;
        y += (top + 0.5) / (SIDE - h + 1.0) / DRAWN;
        x += (left + 0.5) / (SIDE - w + 1.0) / DRAWN;
        edges[0] += top == 0.0;
        edges[1] += top + h == SIDE;
        edges[2] += left == 0.0;
        edges[3] += left + w == SIDE;
        mirrored += b.mirrored;
    }
    assert_float_equal(area, (0.2 + 0.45) / 2.0, 0.005);
    assert_true(least < 0.21 && least > 0.19 && most > 0.44 && most < 0.46);
    assert_float_equal(shape, log(0.5) / 2.0, 0.015);
    assert_float_equal(y, 0.5, 0.02);
    assert_float_equal(x, 0.5, 0.02);
    /* 4000 times the mean of 1 / (number of offsets), 1 in 22 and 1 in 32 of them or so. */
    for (int k = 0; k < 4; k++) assert_in_range(edges[k], k < 2 ? 130 : 90, k < 2 ? 320 : 180);
    assert_in_range(mirrored, DRAWN / 2 - 130, DRAWN / 2 + 130);
    rd_scratch_release(&s);
}

/* No try can fit, so the box is torchvision's: in the middle, whole in one direction, with the
 * nearest shape that is allowed. */
static struct last_row {
    const char *name;
    int h, w;
    double ratio_min, ratio_max, y, x, bh, bw;
} last_rows[] = {
    {"ten times as wide", 6, 60, 0.75, 4.0 / 3.0, 0, 26, 6, 8}, /* 6 * 4/3 = 8; (60 - 8) / 2 */
    {"ten times as high", 60, 6, 0.75, 4.0 / 3.0, 26, 0, 8, 6},
    {"odd border", 9, 60, 0.75, 1.3, 0, 24, 9, 12},         /* 11.7 is 12 */
    {"a little too wide", 60, 50, 0.7, 0.75, 0, 2, 60, 45}, /* (50 - 45) / 2 = 2.5, cut */
    {"a little too high", 60, 40, 0.8, 0.9, 5, 0, 50, 40},
};

static void check_last(void **state)
{
    const struct last_row *r = *state;
    static uint8_t pixels[60 * 60 * 3];
    static float out[CROP_OUT * CROP_OUT * 3];
    rd_scratch s = {0};
    rd_images m = crop_images(r->h, r->w, pixels);
    m.render.scale_min = 0.98;
    m.render.scale_max = 1.0;
    m.render.ratio_min = r->ratio_min;
    m.render.ratio_max = r->ratio_max;
    for (int i = 0; i < 20; i++) {
        const seen_box b = crop_seen(&m, i, &s, out);
        assert_float_equal(b.y, r->y, 1e-2);
        assert_float_equal(b.x, r->x, 1e-2);
        assert_float_equal(b.h, r->bh, 1e-2);
        assert_float_equal(b.w, r->bw, 1e-2);
    }
    rd_scratch_release(&s);
}

/* Normalisation and its inverse, as rd_data_spec tells it. */
static struct norm_row {
    const char *name, *config;
    float mean[3], std[3];
} norm_rows[] = {
    {"unit", "'normalization': 'unit'", {0, 0, 0}, {255, 255, 255}},
    {"symmetric",
     "'normalization': 'symmetric'",
     {127.5f, 127.5f, 127.5f},
     {127.5f, 127.5f, 127.5f}},
    {"none", "'normalization': 'none'", {0, 0, 0}, {1, 1, 1}},
    {"imagenet",
     "'normalization': 'imagenet'",
     {123.675f, 116.28f, 103.53f},
     {58.395f, 57.12f, 57.375f}},
    {"imagenet_mean", "'normalization': 'imagenet_mean'", {123.68f, 116.78f, 103.94f}, {1, 1, 1}},
    {"custom",
     "'normalization': 'custom', 'image_mean': '0.1, 0.2,0.3', 'image_std': '0.5'",
     {25.5f, 51, 76.5f},
     {127.5f, 127.5f, 127.5f}},
};

static void check_norm(void **state)
{
    const struct norm_row *r = *state;
    char config[256];
    rd_data_spec spec;
    int64_t n;
    snprintf(config, sizeof config, "{" SYNTHETIC ", %s}", r->config);
    rd_dataset *d = open_with("synthetic_images", config, RD_SPLIT_TRAIN, NULL);
    rd_dataset *raw = open_with("synthetic_images", "{" SYNTHETIC ", 'normalization': 'none'}",
                                RD_SPLIT_TRAIN, NULL);
    float *x = all_of(d, 50, 0, &n), *y = all_of(raw, 50, 0, &n);
    rd_dataset_def_of(d)->spec(rd_dataset_self(d), &spec);
    for (int k = 0; k < 3; k++) {
        assert_float_equal(spec.pixel_mean[k], r->mean[k], 1e-4);
        assert_float_equal(spec.pixel_std[k], r->std[k], 1e-4);
    }
    for (int i = 0; i < 12 * 12 * 3; i++) {
        assert_float_equal(x[i], (y[i] - r->mean[i % 3]) / r->std[i % 3],
                           1e-5 * (1.0 + 255.0 / r->std[i % 3]));
        assert_true(y[i] >= 0 && y[i] <= 255 && y[i] == (float)(int)y[i]);
    }
    free(x);
    free(y);
    rd_dataset_free(d);
    rd_dataset_free(raw);
}

/* pad_crop_flip: each image is the original shifted by at most crop_pad, mirrored or not, and black
 * outside the original. All shifts and both orientations occur about as often as they should. */
static void test_pad_crop(void **state)
{
    (void)state;
    enum { SIDE = 12, PAD = 2, PLACES = 2 * PAD + 1, SAMPLES = 1000 };
    const char *config = "{'image_size': 12, 'image_channels': 1, 'n_classes': 2, "
                         "'synthetic_samples': 1000, 'normalization': 'none', "
                         "'crop_pad': 2, 'augmentation': '%s'}";
    char text[256];
    int64_t n;
    int seen[PLACES][PLACES][2] = {{{0}}};
    snprintf(text, sizeof text, config, "none");
    rd_dataset *d = open_with("synthetic_images", text, RD_SPLIT_TRAIN, NULL);
    float *plain = all_of(d, 100, 0, &n);
    rd_dataset_free(d);
    snprintf(text, sizeof text, config, "pad_crop_flip");
    d = open_with("synthetic_images", text, RD_SPLIT_TRAIN, NULL);
    float *moved = all_of(d, 100, 0, &n);
    rd_dataset_free(d);
    for (int i = 0; i < SAMPLES; i++) {
        const float *a = plain + i * SIDE * SIDE, *b = moved + i * SIDE * SIDE;
        int found = 0;
        for (int dy = -PAD; dy <= PAD; dy++)
            for (int dx = -PAD; dx <= PAD; dx++)
                for (int hand = 0; hand < 2; hand++) {
                    bool same = true;
                    for (int y = 0; y < SIDE && same; y++)
                        for (int x = 0; x < SIDE && same; x++) {
                            const int sy = y + dy, sx = (hand ? SIDE - 1 - x : x) + dx;
                            const bool inside = sy >= 0 && sy < SIDE && sx >= 0 && sx < SIDE;
                            same = b[y * SIDE + x] == (inside ? a[sy * SIDE + sx] : 0.0f);
                        }
                    seen[dy + PAD][dx + PAD][hand] += same;
                    found += same;
                }
        assert_int_equal(found, 1);
    }
    int mirrored = 0;
    for (int dy = 0; dy < PLACES; dy++)
        for (int dx = 0; dx < PLACES; dx++)
            for (int hand = 0; hand < 2; hand++) {
                assert_in_range(seen[dy][dx][hand], 4, 40); /* 20 expected */
                mirrored += hand ? seen[dy][dx][hand] : 0;
            }
    assert_in_range(mirrored, SAMPLES / 2 - 60, SAMPLES / 2 + 60); /* standard deviation: 16 */
    free(plain);
    free(moved);
}

RD_TESTS_WITH("image_batches", files_set_up, files_tear_down, TEST_ROWS(check_same, same_rows),
              TEST_ROWS(check_norm, norm_rows), TEST_ROWS(check_odd, odd_rows),
              TEST(test_announced), TEST(test_splits), TEST(test_learnable), TEST(test_channels),
              TEST(test_scaled), TEST(test_pad_crop), TEST_ROWS(check_den, den_rows),
              TEST(test_default_resize), TEST(test_crop), TEST_ROWS(check_last, last_rows))
