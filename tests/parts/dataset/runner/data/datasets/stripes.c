/* stripes.c -- grey images of 8 x 8 pixels with stripes: a template of an image dataset with its
 * own key. The class is the direction of the stripes: rows, columns or a diagonal. */
#include "../images_impl.h"
#include "rd/philox.h"

enum { SIDE = 8, CLASSES = 3, SAMPLES = 480, EVAL_SAMPLES = 60, PERIOD = 4 };

typedef struct stripes_keys {
    double noise;
} stripes_keys;

/* Draws one image. u: random numbers in [0, 1), one for each pixel and one for the phase. */
static void draw_stripes(int64_t class, double noise, const float *u, uint8_t *out)
{
    const int64_t phase = (int64_t)(u[SIDE * SIDE] * PERIOD);
    for (int64_t y = 0; y < SIDE; y++)
        for (int64_t x = 0; x < SIDE; x++) {
            const int64_t at = class == 0 ? y : class == 1 ? x : x + y;
            const double bright = (at + phase) % PERIOD < PERIOD / 2 ? 1.0 : 0.0;
            *out++ = (uint8_t)(255.0 * ((1.0 - noise) * bright + noise * (double)*u++));
        }
}

static rd_code stripes_load(rd_images *m, rd_status *st)
{
    const stripes_keys *keys = m->own;
    const bool train = rd_images_train_like(m);
    const int64_t n = train ? SAMPLES : EVAL_SAMPLES;
    float u[SIDE * SIDE + 1];
    RD_TRY(rd_images_reserve(m, n, SIDE, SIDE, 1, st));
    m->head.n_classes = CLASSES;
    for (int64_t i = 0; i < n; i++) {
        rd_philox_uniform(rd_key_make(1, RD_RNG_TEST, train ? 0 : 1, (uint64_t)i), 0,
                          SIDE * SIDE + 1, u);
        draw_stripes(i % CLASSES, keys->noise, u, rd_images_pixels(m, i));
        RD_TRY(rd_images_label(m, i, i % CLASSES, CLASSES, "stripes", st));
    }
done:
    return st->code;
}

static const rd_option stripes_rows[] = {RD_OPT_REAL(stripes_keys, stripes_noise, noise, "0.3", 0.0,
                                                     1.0, "stripes: share of noise in a pixel"),
                                         RD_OPT_END};
static const rd_option_group stripes_group = {"stripes", "dataset stripes", stripes_rows,
                                              sizeof(stripes_keys)};

static const rd_images_kind stripes = {.name = "stripes", .load = stripes_load};

RD_DATASET_IMAGES_OWN(stripes, "grey images with stripes", stripes, &stripes_group);
