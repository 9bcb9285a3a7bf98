/* pixels.c -- compares image processing with other programs; make_pixels.py made the values.
 *
 * The affine warp is compared with Keras' matrix and SciPy's pixels. Resampled boxes, a CMYK file
 * and PNGs are compared with Pillow's, the part of an image that an evaluation sees with
 * torchvision's Resize and CenterCrop. */
#include "../../runner/data/images_impl.h"
#include "test.h"
#include "pixel_values.h"
#include <math.h>
#include <stdlib.h>

/* Fills an array with the generator of make_pixels.py. */
static void fill(uint8_t *out, int64_t n, unsigned seed)
{
    uint64_t x = seed;
    for (int64_t i = 0; i < n; i++) {
        x = (x * 1103515245u + 12345u) & 0x7FFFFFFFu;
        out[i] = (uint8_t)(x >> 16);
    }
}

static void check_warp(void **state)
{
    const struct warp_row *r = *state;
    const rd_affine a = {r->range[0], r->range[1], r->range[2], r->range[3], r->range[4]};
    const int n = r->h * r->w * r->c;
    double m[6], worst = 0.0;
    uint8_t *bytes = malloc((size_t)n);
    float *in = malloc((size_t)n * sizeof *in), *out = malloc((size_t)n * sizeof *out);
    assert_true(bytes && in && out);
    rd_affine_matrix(&a, r->h, r->w, r->u, m);
    /* u has nine digits in the file: an error of 1e-9, times a shift of at most 150 pixels. */
    for (int k = 0; k < 6; k++) assert_float_equal(m[k], r->m[k], 1e-6);
    fill(bytes, n, r->seed);
    for (int i = 0; i < n; i++) in[i] = bytes[i];
    rd_warp(in, r->h, r->w, r->c, r->m, out);
    for (int i = 0; i < n; i++) worst = fmax(worst, fabs((double)out[i] - r->want[i]));
    /* Float coordinates below 150 have errors of 1e-5 pixels; neighbours of this noise differ by up
     * to 255. */
    if (!(worst < 5e-3)) fail_msg("a pixel differs by %g", worst);
    free(bytes);
    free(in);
    free(out);
}

static void check_box(void **state)
{
    const struct box_row *r = *state;
    const int n = r->h * r->w, n_out = r->out_h * r->out_w;
    rd_status st = {0};
    rd_scratch s = {0};
    uint8_t *bytes = malloc((size_t)n * 3), *wide = calloc((size_t)n, 4);
    float *out = malloc((size_t)n_out * 3 * sizeof *out);
    assert_true(bytes && wide && out);
    fill(bytes, (int64_t)n * r->c, r->seed);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < r->c; k++) wide[i * (r->c == 3 ? 4 : 1) + k] = bytes[i * r->c + k];
    const rd_pixels in = {wide, r->h, r->w, r->c == 3 ? 4 : 1};
    const rd_box box = {r->box[0], r->box[1], r->box[2], r->box[3]};
    for (int flip = 0; flip < 2; flip++) {
        double worst = 0.0;
        assert_int_equal(rd_resample(&in, &box, r->out_h, r->out_w, flip, &s, out, &st), RD_OK);
        for (int i = 0; i < n_out; i++) {
            const int x = i % r->out_w, from = i - x + (flip ? r->out_w - 1 - x : x);
            for (int k = 0; k < r->c; k++)
                worst = fmax(worst, fabs((double)out[i * r->c + k] - r->want[from * r->c + k]));
        }
        if (!(worst < 1e-3))
            fail_msg("a pixel differs by %g",
                     worst); /* sums of floats up to 255 in another order */
    }
    free(bytes);
    free(wide);
    free(out);
    rd_scratch_release(&s);
}

/* A sample is rendered as for an evaluation. */
static void check_view(void **state)
{
    const struct view_row *r = *state;
    const int n = r->h * r->w * r->c, n_out = r->out_h * r->out_w * r->c;
    static const rd_images_kind stored = {.name = "stored"};
    rd_status st = {0};
    rd_scratch s = {0};
    rd_rendered result = {0};
    double worst = 0.0;
    uint8_t *bytes = malloc((size_t)n);
    float *out = malloc((size_t)n_out * sizeof *out);
    assert_true(bytes && out);
    fill(bytes, n, r->seed);
    rd_images m = {
        .kind = &stored, .head = {.n = 1, .h = r->h, .w = r->w, .c = r->c}, .split = RD_SPLIT_EVAL};
    m.render = (rd_render){.eval_resize = r->eval_resize,
                           .h = r->out_h,
                           .w = r->out_w,
                           .c = r->c,
                           .std = {1, 1, 1, 1}};
    m.block[RD_BLOCK_PIXELS].p = (void *)bytes;
    must_do(rd_render_sample(&m, 0, 0, &s, out, &result, &st), &st);
    for (int i = 0; i < n_out; i++) worst = fmax(worst, fabs((double)out[i] - r->want[i]));
    if (!(worst < 1e-3)) fail_msg("a pixel differs by %g", worst); /* sums in another order */
    free(bytes);
    free(out);
    rd_scratch_release(&s);
}

static void test_cmyk(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_scratch s = {0};
    rd_jpeg_head head;
    rd_pixels px;
    rd_decode answer;
    char why[RD_WHY_BYTES];
    assert_int_equal(rd_jpeg_read_head(cmyk_file, sizeof cmyk_file, &head, why), RD_DECODE_OK);
    assert_int_equal(head.n_components, 4);
    assert_true(head.adobe);
    assert_int_equal(rd_jpeg_decode(cmyk_file, sizeof cmyk_file, &head, 1, 4, &s, &px, &answer, why,
                                    &st),
                     RD_OK);
    assert_int_equal(answer, RD_DECODE_OK);
    for (int k = 0; k < 4; k++)
        for (int c = 0; c < 3; c++) {
            const int got = px.p[(8 * px.w + 8 + 16 * k) * 4 + c];
            assert_in_range(got + 2, cmyk_rgb[k][c],
                            cmyk_rgb[k][c] + 4); /* rounding of products, and of the decoder */
        }
    rd_scratch_release(&s);
}

static void check_png(void **state)
{
    const struct png_row *r = *state;
    rd_status st = {0};
    rd_scratch s = {0};
    rd_png_head head;
    rd_pixels px;
    rd_decode answer;
    char why[RD_WHY_BYTES];
    assert_true(rd_png_is(r->file, r->n));
    if (rd_png_read_head(r->file, r->n, &head, why) != RD_DECODE_OK) fail_msg("%s", why);
    assert_int_equal(head.h, PNG_H);
    assert_int_equal(head.w, PNG_W);
    assert_int_equal(rd_png_decode(r->file, r->n, &head, 4, &s, &px, &answer, why, &st), RD_OK);
    assert_int_equal(answer, RD_DECODE_OK);
    for (int i = 0; i < PNG_H * PNG_W; i++)
        for (int k = 0; k < 3; k++) assert_int_equal(px.p[4 * i + k], r->rgb[3 * i + k]);
    /* A file that is cut at any place gives an answer. With missing rows it is never a whole
     * image. */
    for (size_t n = 0; n < r->n; n++) {
        uint8_t *p = malloc(n + 1); /* the exact size: the sanitizer sees a read past it */
        assert_non_null(p);
        memcpy(p, r->file, n);
        if (rd_png_read_head(p, n, &head, why) == RD_DECODE_OK) {
            assert_int_equal(rd_png_decode(p, n, &head, 1, &s, &px, &answer, why, &st), RD_OK);
            /* The last bytes are IEND, checksums, and the end of the stream. */
            if (n + 36 < r->n) assert_int_not_equal(answer, RD_DECODE_OK);
        } else {
            assert_true(why[0] != '\0');
        }
        free(p);
    }
    rd_scratch_release(&s);
}

RD_TESTS("pixels", TEST_ROWS(check_warp, warp_rows), TEST_ROWS(check_box, box_rows),
         TEST_ROWS(check_view, view_rows), TEST_ROWS(check_png, png_rows), TEST(test_cmyk))
