/* render.c -- fuzz target: renders any bytes as images: decoded, cropped, resampled, warped, padded
 * and mirrored, with sizes and options at the edges of their ranges.
 *
 * The first bytes choose the options (enum below); the others are one encoded image, or the pixels
 * of several. Pictures of more than a few pixels are skipped: they take the same way, slowly.
 *
 * Every value must be finite, and within the range of pixels if they are not normalised. A sample
 * must be the same again, whatever was rendered before it. */
#include "../../runner/data/images_impl.h"
#include "fuzz_files.h"
#include "rd/arena.h"
#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The places of the options in the input. */
enum {
    KIND,  /* bit 0: encoded; bits 1, 2: height of raw pixels; bits 3 to 5: their width */
    TRAIN, /* bit 0: not training; bits 1 to 3: augmentation; bit 4: colour; bits 5 to 7:
              normalization */
    HEIGHT,
    WIDTH,
    RESIZE,
    PAD,
    ROTATION,
    SHIFT,
    SHEAR,
    ZOOM,
    CENTER,
    SCALE_MIN,
    SCALE_MAX,
    RATIO_MIN,
    RATIO_MAX,
    SEED,
    EPOCH,
    HEAD
};
enum { MOST_SAMPLES = 3, MOST_PIXELS = 1 << 12 };

/* What the dataset is made of, while it is being opened. */
static struct {
    const uint8_t *p;
    size_t n;
    int64_t h, w, c; /* h 0: encoded */
} from;

static rd_code load(rd_images *m, rd_status *st)
{
    const int64_t bytes = from.h * from.w * from.c;
    m->head.n_classes = 2;
    if (from.h == 0) {
        RD_TRY(rd_images_add_bytes(m, from.p, from.n, 1, "whole", st));
        /* Two more, so that a sample has neighbours: the first half, and nothing. */
        RD_TRY(rd_images_add_bytes(m, from.p, from.n / 2, 0, "half", st));
        RD_TRY(rd_images_add_bytes(m, NULL, 0, 0, "nothing", st));
        return RD_OK;
    }
    const int64_t n = (int64_t)from.n / bytes < MOST_SAMPLES ? (int64_t)from.n / bytes
                                                             : MOST_SAMPLES;
    RD_TRY(rd_images_reserve(m, n, from.h, from.w, from.c, st));
    if (n > 0) memcpy(rd_images_pixels(m, 0), from.p, (size_t)(n * bytes));
    for (int64_t i = 0; i < n; i++) RD_TRY(rd_images_label(m, i, i % 2, 2, "fuzz", st));
done:
    return st->code;
}

/* Returns a value of the range lo .. hi, which are the most frequent ones. */
static double between(uint8_t b, double lo, double hi)
{
    return b < 64 ? lo : b >= 192 ? hi : lo + (hi - lo) * (b - 64) / 127.0;
}

static int64_t side(uint8_t b)
{
    static const int64_t odd[] = {0, 1, 2, 3, 7, 63, 64, 65, 127, 224, 1000, 2048};
    return b < 12 ? odd[b] : b % 64;
}

/* Writes the config. All values are in the range of their key. */
static void make_config(const uint8_t *o, rd_strbuf *text)
{
    static const char *const augment[] = {"none", "affine", "crop_flip", "pad_crop_flip", "flip"};
    static const char *const norm[] = {"unit",          "symmetric", "none",   "imagenet",
                                       "imagenet_mean", "cifar10",   "custom", "none"};
    const int64_t h = side(o[HEIGHT]);
    rd_strbuf_printf(
        text,
        "{\"image_size\": %d, \"image_width\": %d, \"image_channels\": %d, \"eval_resize\": %d, "
        "\"augmentation\": \"%s\", \"normalization\": \"%s\", \"crop_pad\": %d, \"seed\": %d, "
        "\"image_mean\": \"1e38\", \"image_std\": \"0.01 1 1e30\", \"affine_shear_unit\": \"%s\", "
        "\"data_threads\": 0, \"max_bad_images\": 1",
        (int)h, h > 0 ? (int)side(o[WIDTH]) : 0,
        from.h > 0      ? (int)from.c
        : o[TRAIN] & 16 ? 3
                        : 1,
        o[RESIZE] < 128 ? 0 : (int)between(o[RESIZE], 1, 65536), augment[(o[TRAIN] >> 1 & 7) % 5],
        norm[o[TRAIN] >> 5], (int)between(o[PAD], 0, 1024), o[SEED],
        o[SHEAR] & 1 ? "radians" : "degrees");
    rd_strbuf_printf(text,
                     ", \"affine_rotation\": %.17g, \"affine_shift\": %.17g, \"affine_shear\": "
                     "%.17g, \"affine_zoom\": %.17g, \"affine_center_offset\": %.17g, "
                     "\"crop_scale_min\": %.17g, \"crop_scale_max\": %.17g, \"crop_ratio_min\": "
                     "%.17g, \"crop_ratio_max\": %.17g}",
                     between(o[ROTATION], 0, 360), between(o[SHIFT], 0, 1),
                     between(o[SHEAR], 0, 360), between(o[ZOOM], 0, 0.99),
                     between(o[CENTER], -1, 1), between(o[SCALE_MIN], 0.0001, 1),
                     between(o[SCALE_MAX], 0.0001, 1), between(o[RATIO_MIN], 0.01, 100),
                     between(o[RATIO_MAX], 0.01, 100));
}

/* Is the picture too large for this target? */
static bool is_large(void)
{
    char why[RD_WHY_BYTES];
    rd_png_head png;
    rd_jpeg_head jpeg;
    if (from.h > 0) return false;
    if (rd_png_is(from.p, from.n))
        return rd_png_read_head(from.p, from.n, &png, why) == RD_DECODE_OK &&
               png.h * png.w > MOST_PIXELS;
    return rd_jpeg_read_head(from.p, from.n, &jpeg, why) == RD_DECODE_OK &&
           jpeg.h * jpeg.w > MOST_PIXELS;
}

static void check_values(const rd_render *r, const float *x, bool raw)
{
    for (int64_t i = 0; i < r->h * r->w * r->c; i++) {
        must(isfinite(x[i]));
        if (raw) must(x[i] >= -0.01f && x[i] <= 255.01f);
    }
}

static void render(const rd_images *m, int64_t epoch, bool raw)
{
    const rd_render *r = &m->render;
    const size_t bytes = (size_t)(r->h * r->w * r->c) * sizeof(float);
    rd_scratch used = {0};
    float *x = malloc(bytes), *again = malloc(bytes);
    must(x && again);
    for (int64_t i = 0; i < m->head.n; i++) {
        rd_scratch fresh = {0};
        rd_status st = {0}, st2 = {0};
        rd_rendered got, got2;
        must(rd_render_sample(m, i, epoch, &used, x, &got, &st) == RD_OK);
        must(rd_render_sample(m, i, epoch, &fresh, again, &got2, &st2) == RD_OK);
        must(got.answer == got2.answer && memcmp(x, again, bytes) == 0);
        must(got.answer == RD_DECODE_OK || got.why[0] != '\0');
        check_values(r, x, raw);
        rd_scratch_release(&fresh);
    }
    rd_scratch_release(&used);
    free(x);
    free(again);
}

static void fetch(void *self, const rd_images *m, int64_t epoch)
{
    rd_status st = {0};
    rd_arena *a = NULL;
    rd_batch b = {.epoch = epoch};
    int64_t ids[MOST_SAMPLES];
    for (int64_t i = 0; i < m->head.n; i++) ids[i] = m->head.n - 1 - i;
    must(rd_arena_new(1 << 12, &a, &st) == RD_OK);
    must(rd_images_fetch(self, ids, m->head.n, a, &b, &st) == RD_OK && b.n == m->head.n);
    rd_arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const rd_images_kind kind = {.name = "fuzz", .load = load, .side = 16};
    static const rd_option_group *const groups[] = {&rd_group_images};
    if (size <= HEAD) return 0;
    rd_strbuf text = {0};
    rd_status st = {0};
    rd_config *c = NULL;
    void *self = NULL;
    from.p = data + HEAD;
    from.n = size - HEAD;
    from.h = data[KIND] & 1 ? 0 : 1 + (data[KIND] >> 1 & 3) * 3;
    from.w = 1 + (data[KIND] >> 3 & 7) * 5;
    from.c = data[TRAIN] & 16 ? 3 : 1;
    if (is_large()) return 0;
    make_config(data, &text);
    must(rd_config_new("fuzz.json", rd_strbuf_str(&text), text.n, groups, 1, false, &c, &st) ==
         RD_OK);
    const bool train = !(data[TRAIN] & 1);
    const rd_dataset_args a = {.config = c,
                               .mode = train ? RD_MODE_TRAIN : RD_MODE_EVAL,
                               .split = train ? RD_SPLIT_TRAIN : RD_SPLIT_EVAL};
    if (rd_images_open(&kind, NULL, &a, &self, &st) == RD_OK) {
        const rd_images *m = self;
        const rd_render *r = &m->render;
        const int64_t epoch = data[EPOCH] < 128 ? data[EPOCH] : INT64_MAX - data[EPOCH];
        const int norm = data[TRAIN] >> 5;
        if (r->h * r->w <= MOST_PIXELS) {
            render(m, epoch, norm == 2 || norm == 7);
            fetch(self, m, epoch);
        }
        rd_images_close(self);
    } else {
        must(!self && st.msg[0] && (st.code == RD_EUSAGE || st.code == RD_EDATA));
    }
    rd_config_free(c);
    rd_strbuf_release(&text);
    return 0;
}
