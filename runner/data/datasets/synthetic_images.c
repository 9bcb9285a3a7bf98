/* synthetic_images.c -- images from formulas with a fixed seed, for benchmarks and tests.
 *
 * learnable: each class has its own pattern, a few waves. An image is the pattern of its class, at
 * a random strength, under noise. A small network learns it in some hundred steps, and cannot learn
 * it without the labels. random: noise with mean 127 and the spread of tf_cnn_benchmarks' images;
 * the labels are random.
 *
 * Making noise costs more than a small network. It is made once, and an image copies it from its
 * own position on. */
#include "../images_impl.h"
#include "rd/philox.h"
#include <math.h>
#include <stdlib.h>

enum {
    WAVES = 4,
    NOISE = 1 << 18,
    PATTERN_SIDE = 32,
    TABLE = 1 << 26,
    DEFAULT_CLASSES = 1000,
    SIDE = 224
};
/* In the order of the words of the key synthetic_kind. */
typedef enum synthetic_kind { LEARNABLE, RANDOM } synthetic_kind;

typedef struct synthetic_images_keys {
    int64_t samples, eval_samples;
    synthetic_kind kind;
} synthetic_images_keys;

static const uint64_t data_seed = 20180115, eval_stream = (uint64_t)1 << 40;

/* Block RD_BLOCK_PIXELS holds NOISE bytes, then (learnable) the patterns of at most PATTERN_SIDE
 * squared pixels. */
static uint8_t *noise_of(const rd_images *m)
{
    return (uint8_t *)m->block[RD_BLOCK_PIXELS].p;
}

static int64_t pattern_side(int64_t side)
{
    return side < PATTERN_SIDE ? side : PATTERN_SIDE;
}

static rd_key sample_key(const rd_images *m, int64_t i)
{
    return rd_key_make(data_seed, RD_RNG_TEST, rd_images_train_like(m) ? 0 : eval_stream,
                       (uint64_t)i);
}

/* Makes a pattern, -127 .. 127, of waves whose lengths are a third of the side to the whole side,
 * the same at every size. */
static void make_pattern(int64_t class, int64_t h, int64_t w, int64_t c, int8_t *out)
{
    float u[WAVES * 4 * 3];
    rd_philox_uniform(rd_key_make(data_seed, RD_RNG_INIT, (uint64_t) class, 0), 0, WAVES * 4 * 3,
                      u);
    for (int64_t k = 0; k < c; k++)
        for (int64_t y = 0; y < h; y++)
            for (int64_t x = 0; x < w; x++) {
                float sum = 0.0f;
                for (int j = 0; j < WAVES; j++) {
                    const float *v = u + (k * WAVES + j) * 4;
                    const float fy = 1.0f + 2.0f * v[0],
                                fx = (1.0f + 2.0f * v[1]) * (v[2] < 0.5f ? 1.0f : -1.0f);
                    const float at = fy * ((float)y + 0.5f) / (float)h +
                                     fx * ((float)x + 0.5f) / (float)w;
                    sum += sinf(6.2831853f * (at + v[3]));
                }
                out[(y * w + x) * c + k] = (int8_t)lrintf(sum / (float)WAVES * 127.0f);
            }
}

/* Copies n bytes of noise from position `at` on; the table repeats at its end. */
static void copy_noise(const uint8_t *noise, int64_t at, int64_t n, uint8_t *out)
{
    while (n > 0) {
        const int64_t k = n < NOISE - at ? n : NOISE - at;
        memcpy(out, noise + at, (size_t)k);
        out += k;
        n -= k;
        at = 0;
    }
}

static void synthetic_make(const rd_images *m, int64_t i, uint8_t *out)
{
    const int64_t h = m->head.h, w = m->head.w, c = m->head.c, ph = pattern_side(h),
                  pw = pattern_side(w);
    const int64_t n_patterns = ((int64_t)m->head.pixels - NOISE) / (ph * pw * c);
    uint32_t r[4];
    rd_philox((const uint32_t[4]){1, 0, 0, 0}, sample_key(m, i), r);
    copy_noise(noise_of(m), r[0] % NOISE, h * w * c, out);
    if (n_patterns == 0) return;
    const int64_t class = ((const int32_t *)(const void *)m->block[RD_BLOCK_LABELS].p)[i];
    const int8_t *pattern = (const int8_t *)noise_of(m) + NOISE + class % n_patterns * ph * pw * c;
    const int strength = 96 + (int)(r[1] >> 26); /* 96 .. 159 of 256 */
    for (int64_t y = 0; y < h; y++) {
        const int8_t *row = pattern + y * ph / h * pw * c;
        for (int64_t x = 0, px = 0, rest = 0; x < w; x++, out += c) {
            for (int64_t k = 0; k < c; k++) {
                const int v = out[k] + ((row[px * c + k] * strength) >> 8);
                out[k] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
            }
            for (rest += pw; rest >= w; rest -= w) px++; /* px = (x + 1) pw / w */
        }
    }
}

static rd_code make_noise(rd_images *m, bool learnable, rd_status *st)
{
    uint8_t *noise = noise_of(m);
    float *u = malloc((size_t)NOISE * 4 * sizeof *u);
    if (!u) return rd_fail(st, RD_EENV, "out of memory");
    rd_philox_uniform(rd_key_make(data_seed, RD_RNG_TEST, eval_stream + 1, 0), 0,
                      (int64_t)NOISE * 4, u);
    /* The sum of four uniform numbers has a variance of 1/3. */
    const float spread = (learnable ? 30.0f : 60.0f) * 1.7320508f;
    for (int64_t i = 0; i < NOISE; i++) {
        const float x = 127.0f +
                        spread * (u[4 * i] + u[4 * i + 1] + u[4 * i + 2] + u[4 * i + 3] - 2.0f);
        noise[i] = (uint8_t)(x < 0.0f ? 0.0f : x > 255.0f ? 255.0f : x + 0.5f);
    }
    free(u);
    return RD_OK;
}

static rd_code synthetic_load(rd_images *m, rd_status *st)
{
    const synthetic_images_keys *keys = m->own;
    const int64_t n_classes = m->config_classes > 0 ? m->config_classes - m->label_offset
                                                    : DEFAULT_CLASSES;
    const int64_t h = m->c.image_size > 0 ? m->c.image_size : SIDE,
                  w = m->c.image_width > 0 ? m->c.image_width : h;
    const int64_t c = m->c.image_channels > 0 ? m->c.image_channels : 3;
    const int64_t n = rd_images_train_like(m) ? keys->samples : keys->eval_samples;
    const int64_t ph = pattern_side(h), pw = pattern_side(w), most = TABLE / (ph * pw * c);
    const bool learnable = keys->kind == LEARNABLE;
    const int64_t n_patterns = !learnable         ? 0
                               : n_classes < most ? n_classes
                                                  : most; /* more classes share them */
    RD_TRY(rd_images_reserve(m, n, h, w, c, st));
    m->head.n_classes = n_classes;
    m->head.pixels = (size_t)(NOISE + n_patterns * ph * pw * c);
    RD_TRY(rd_block_trim(&m->block[RD_BLOCK_PIXELS], m->head.pixels, st));
    RD_TRY(make_noise(m, learnable, st));
    for (int64_t k = 0; k < n_patterns; k++)
        make_pattern(k, ph, pw, c, (int8_t *)noise_of(m) + NOISE + k * ph * pw * c);
    for (int64_t i = 0; i < n; i++) {
        uint32_t r[4];
        rd_philox((const uint32_t[4]){0, 0, 0, 0}, sample_key(m, i), r);
        RD_TRY(rd_images_label(m, i, (int64_t)(((uint64_t)r[0] * (uint64_t)n_classes) >> 32),
                               n_classes, "synthetic_images", st));
    }
done:
    return st->code;
}

static const char *const kinds[] = {[LEARNABLE] = "learnable", [RANDOM] = "random", NULL};
static const rd_option synthetic_images_rows[] = {
    RD_OPT_INT(synthetic_images_keys, synthetic_samples, samples, "1281167", 1, 1LL << 31,
               "synthetic_images: number of training samples"),
    RD_OPT_INT(synthetic_images_keys, synthetic_eval_samples, eval_samples, "1000", 1, 1LL << 31,
               "synthetic_images: number of evaluation samples"),
    RD_OPT_ENUM(synthetic_images_keys, synthetic_kind, kind, "\"learnable\"", kinds,
                "synthetic_images: a pattern for each class under noise, or noise alone with "
                "random labels"),
    RD_OPT_END};
static const rd_option_group synthetic_images_group = {
    "synthetic_images", "dataset synthetic_images: size and kind", synthetic_images_rows,
    sizeof(synthetic_images_keys)};

static const rd_images_kind synthetic = {
    .name = "synthetic_images", .load = synthetic_load, .make = synthetic_make, .side = SIDE};

RD_DATASET_IMAGES_OWN(synthetic_images, "images from formulas, for benchmarks and tests: no files",
                      synthetic, &synthetic_images_group);
