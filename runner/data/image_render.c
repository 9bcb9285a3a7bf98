/* image_render.c -- renders one sample as the model takes it.
 *
 * The steps: choose a part of the image (drawn in training, the middle otherwise); decode it at the
 * smallest of 1, 1/2, 1/4, 1/8 of the size that is still large enough; resample; warp or shift;
 * mirror; normalise. The draws are numbers 0, 1, 2, ... of the stream of (seed, epoch, sample). */
#include "images_impl.h"
#include "rd/philox.h"
#include <errno.h>
#include <math.h>
#include <unistd.h>

enum { CROP_TRIES = 10, DRAWS = 48, DRAW_FLIP = 0, DRAW_FIRST = 1 };
static const float neutral = 127.5f; /* pixels of an image that cannot be decoded */

/* ---- the part of the image ---- */

/* Returns the box in the middle: the largest one with the shape of the result that fits in the
 * image, or in the part that eval_resize keeps. */
static rd_box central_box(const rd_render *r, double h, double w)
{
    const double to = r->eval_resize > 0 ? (double)r->eval_resize
                                         : (double)(r->h < r->w ? r->h : r->w);
    const double short_side = h < w ? h : w;
    const double step = short_side / to; /* pixels of the image per pixel of the result */
    rd_box b = {.h = (double)r->h * step, .w = (double)r->w * step};
    const double over = fmax(b.h / h, b.w / w); /* above 1: the result is wider than the image */
    if (over > 1.0) {
        b.h /= over;
        b.w /= over;
    }
    b.y = (h - b.h) / 2.0;
    b.x = (w - b.w) / 2.0;
    return b;
}

/* Draws a box as torchvision's RandomResizedCrop does: ten tries at an area and a shape, then the
 * middle. */
static rd_box random_box(const rd_render *r, double h, double w, const float *u)
{
    const double lo = log(r->ratio_min), hi = log(r->ratio_max);
    for (int t = 0; t < CROP_TRIES; t++, u += 4) {
        const double area = h * w * (r->scale_min + (r->scale_max - r->scale_min) * (double)u[0]);
        const double ratio = exp(lo + (hi - lo) * (double)u[1]);
        const double bw = nearbyint(sqrt(area * ratio)), bh = nearbyint(sqrt(area / ratio));
        if (bw < 1.0 || bh < 1.0 || bw > w || bh > h) continue;
        return (rd_box){floor((h - bh + 1.0) * (double)u[2]), floor((w - bw + 1.0) * (double)u[3]),
                        bh, bw};
    }
    rd_box b = {.h = h, .w = w};
    if (w / h < r->ratio_min) b.h = nearbyint(w / r->ratio_min);
    if (w / h > r->ratio_max) b.w = nearbyint(h * r->ratio_max);
    b.y = floor((h - b.h) / 2.0);
    b.x = floor((w - b.w) / 2.0);
    return b;
}

static rd_box choose_box(const rd_render *r, int64_t h, int64_t w, const float *u)
{
    if (r->augment == RD_AUGMENT_CROP) return random_box(r, (double)h, (double)w, u + DRAW_FIRST);
    return central_box(r, (double)h, (double)w);
}

/* ---- floats ---- */

static void image_render_normalise(const rd_render *r, float *x)
{
    const int64_t n = r->h * r->w;
    if (r->c == 1) {
        const float a = 1.0f / r->std[0], b = r->mean[0];
        for (int64_t i = 0; i < n; i++) x[i] = (x[i] - b) * a;
        return;
    }
    const float a0 = 1.0f / r->std[0], a1 = 1.0f / r->std[1], a2 = 1.0f / r->std[2];
    const float b0 = r->mean[0], b1 = r->mean[1], b2 = r->mean[2];
    for (int64_t i = 0; i < n; i++) {
        x[3 * i] = (x[3 * i] - b0) * a0;
        x[3 * i + 1] = (x[3 * i + 1] - b1) * a1;
        x[3 * i + 2] = (x[3 * i + 2] - b2) * a2;
    }
}

static void mirror(const rd_render *r, float *x)
{
    for (int64_t i = 0; i < r->h; i++, x += r->w * r->c)
        for (int64_t a = 0, b = r->w - 1; a < b; a++, b--)
            for (int64_t k = 0; k < r->c; k++) {
                const float t = x[a * r->c + k];
                x[a * r->c + k] = x[b * r->c + k];
                x[b * r->c + k] = t;
            }
}

/* out[y][x] = in[y + dy][x + dx]; black outside of the image. */
static void shift(const rd_render *r, const float *in, int64_t dy, int64_t dx, float *out)
{
    const int64_t row = r->w * r->c;
    const int64_t x0 = dx < 0 ? -dx : 0, x1 = dx > 0 ? r->w - dx : r->w;
    memset(out, 0, (size_t)(r->h * row) * sizeof *out);
    for (int64_t y = 0; y < r->h; y++)
        if (y + dy >= 0 && y + dy < r->h && x1 > x0)
            memcpy(out + y * row + x0 * r->c, in + (y + dy) * row + (x0 + dx) * r->c,
                   (size_t)((x1 - x0) * r->c) * sizeof *out);
}

static bool flips(const rd_render *r, const float *u)
{
    return r->augment >= RD_AUGMENT_CROP && u[DRAW_FLIP] >= 0.5f;
}

/* Turns x, pixels (0 .. 255) at the size of the result, into the sample in out. x may be out,
 * unless moves() is true. */
static void image_render_finish(const rd_render *r, float *x, const float *u, bool mirrored,
                                float *out)
{
    const int64_t n = r->h * r->w * r->c;
    if (r->augment == RD_AUGMENT_AFFINE) {
        double m[6];
        rd_affine_matrix(&r->affine, r->h, r->w, u, m);
        rd_warp(x, r->h, r->w, r->c, m, out);
    } else if (r->augment == RD_AUGMENT_PAD_CROP) {
        const double places = (double)(2 * r->pad + 1);
        const int64_t dy = (int64_t)(places * (double)u[DRAW_FIRST]) - r->pad;
        const int64_t dx = (int64_t)(places * (double)u[DRAW_FIRST + 1]) - r->pad;
        shift(r, x, dy, dx, out);
    } else if (x != out) {
        memcpy(out, x, (size_t)n * sizeof *out);
    }
    if (mirrored) mirror(r, out);
    image_render_normalise(r, out);
}

/* ---- pixels with the size and channels of the result ---- */

static bool moves(const rd_render *r)
{
    return r->augment == RD_AUGMENT_AFFINE || r->augment == RD_AUGMENT_PAD_CROP;
}

/* RGB to RGBx: four bytes a pixel. */
static rd_code image_render_widen(const rd_pixels *in, rd_scratch *s, rd_pixels *out, rd_status *st)
{
    const int64_t n = in->h * in->w;
    RD_TRY(rd_scratch_reserve(&s->wide, &s->n_wide, (size_t)n * 4, st));
    for (int64_t i = 0; i < n; i++) {
        memcpy(s->wide + 4 * i, in->p + 3 * i, 3);
        s->wide[4 * i + 3] = 0;
    }
    *out = (rd_pixels){s->wide, in->h, in->w, 4};
done:
    return st->code;
}

/* Renders pixels in memory; all images have the same size. */
static rd_code render_pixels(const rd_render *r, const rd_pixels *in, const float *u, rd_scratch *s,
                             float *out, rd_status *st)
{
    const int64_t n = r->h * r->w * r->c;
    const bool same = in->h == r->h && in->w == r->w && r->augment != RD_AUGMENT_CROP &&
                      (r->eval_resize == 0 || r->eval_resize == (r->h < r->w ? r->h : r->w));
    bool mirrored = flips(r, u);
    float *x = out;
    RD_TRY(rd_scratch_reserve(&s->plane, &s->n_plane, (size_t)n * sizeof *s->plane, st));
    if (moves(r)) x = s->plane;
    if (same) {
        for (int64_t i = 0; i < n; i++) x[i] = (float)in->p[i];
    } else {
        rd_pixels wide = *in;
        const rd_box box = choose_box(r, in->h, in->w, u);
        if (in->c == 3) RD_TRY(image_render_widen(in, s, &wide, st));
        RD_TRY(rd_resample(&wide, &box, r->h, r->w, mirrored && !moves(r), s, x, st));
        mirrored = mirrored && moves(r);
    }
    image_render_finish(r, x, u, mirrored, out);
done:
    return st->code;
}

/* Decoded pixels, and the box chosen in them. */
typedef struct found {
    rd_pixels px;
    rd_box box;
} found;

static rd_code image_render_decode(const rd_render *r, const uint8_t *bytes, size_t n,
                                   const float *u, rd_scratch *s, found *f, rd_rendered *result,
                                   rd_status *st)
{
    const int64_t c = r->c == 1 ? 1 : 4;
    if (rd_png_is(bytes, n)) {
        rd_png_head head;
        result->answer = rd_png_read_head(bytes, n, &head, result->why);
        if (result->answer == RD_DECODE_NONE) return RD_OK;
        f->box = choose_box(r, head.h, head.w, u);
        return rd_png_decode(bytes, n, &head, c, s, &f->px, &result->answer, result->why, st);
    }
    rd_jpeg_head head;
    int den = 1;
    result->answer = rd_jpeg_read_head(bytes, n, &head, result->why);
    if (result->answer == RD_DECODE_NONE) return RD_OK;
    f->box = choose_box(r, head.h, head.w, u);
    while (den < 8 && f->box.h >= (double)(r->h * den * 2) && f->box.w >= (double)(r->w * den * 2))
        den *= 2;
    f->box = (rd_box){f->box.y / den, f->box.x / den, f->box.h / den, f->box.w / den};
    return rd_jpeg_decode(bytes, n, &head, den, c, s, &f->px, &result->answer, result->why, st);
}

/* The image that replaces one that cannot be decoded. */
static void image_render_neutral(const rd_render *r, float *out)
{
    for (int64_t i = 0; i < r->h * r->w * r->c; i++) out[i] = neutral;
    image_render_normalise(r, out);
}

static rd_code render_encoded(const rd_render *r, const uint8_t *bytes, size_t n, const float *u,
                              rd_scratch *s, float *out, rd_rendered *result, rd_status *st)
{
    found f = {0};
    const bool mirrored = flips(r, u);
    RD_TRY(image_render_decode(r, bytes, n, u, s, &f, result, st));
    if (result->answer == RD_DECODE_NONE) {
        image_render_neutral(r, out);
        return RD_OK;
    }
    float *x = out;
    RD_TRY(rd_scratch_reserve(&s->plane, &s->n_plane,
                              (size_t)(r->h * r->w * r->c) * sizeof *s->plane, st));
    if (moves(r)) x = s->plane;
    RD_TRY(rd_resample(&f.px, &f.box, r->h, r->w, mirrored && !moves(r), s, x, st));
    image_render_finish(r, x, u, mirrored && moves(r), out);
done:
    return st->code;
}

static rd_code read_encoded(const rd_images *m, int64_t i, rd_scratch *s, const uint8_t **bytes,
                            size_t *n, rd_status *st)
{
    const rd_sample *e = rd_images_sample(m, i);
    *n = e->bytes;
    if (e->shard == RD_IN_MEMORY) {
        /* Without a block all images are empty. */
        const uint8_t *all = (const uint8_t *)m->block[RD_BLOCK_PIXELS].p;
        *bytes = all ? all + e->at : (const uint8_t *)"";
        return RD_OK;
    }
    if (e->shard == RD_IN_FILE) {
        RD_TRY(rd_image_file(m->shards[0], m->block[RD_BLOCK_NAMES].p + e->name, s, n, st));
    } else {
        RD_TRY(rd_scratch_reserve(&s->bytes, &s->n_bytes, *n, st));
        RD_TRY(rd_shard_files_read(m->files, e->shard, e->at, *n, s->bytes, st));
    }
    *bytes = s->bytes;
done:
    return st->code;
}

/* Reads image i, which came by its path. A file that cannot be read is like one that cannot be
 * decoded: others may be fine. A fault of the machine remains a failure. */
static rd_code read_fed(const rd_images *m, int64_t i, rd_scratch *s, const uint8_t **bytes,
                        size_t *n, rd_rendered *result, rd_status *st)
{
    const char *path = m->block[RD_BLOCK_NAMES].p + rd_images_sample(m, i)->name;
    rd_status own = {0};
    *n = 0;
    if (!path[0])
        rd_fail(&own, RD_EDATA, "an empty line names no image");
    else
        (void)read_encoded(m, i, s, bytes, n, &own);
    if (own.code == RD_OK) return RD_OK;
    if (own.code != RD_EDATA && (access(path, R_OK) == 0 || errno != EACCES)) {
        *st = own;
        return st->code;
    }
    /* The row of the output has the path already. */
    const char *why = own.msg[0] == '\'' ? strstr(own.msg, "' is ") : strstr(own.msg, "': ");
    result->answer = RD_DECODE_NONE;
    snprintf(result->why, sizeof result->why, "%.150s",
             strlen(path) >= RD_PATH_BYTES ? "the path is too long"
             : why                         ? why + 2
                                           : own.msg);
    if (result->why[0] == ' ') memmove(result->why, result->why + 1, strlen(result->why));
    return RD_OK;
}

rd_code rd_render_sample(const rd_images *m, int64_t i, int64_t epoch, rd_scratch *s, float *out,
                         rd_rendered *result, rd_status *st)
{
    const rd_render *r = &m->render;
    float u[DRAWS] = {0};
    result->answer = RD_DECODE_OK;
    if (r->augment != RD_AUGMENT_NONE)
        rd_philox_uniform(rd_key_make(r->seed, RD_RNG_AUGMENT, (uint64_t)epoch, (uint64_t)i), 0,
                          DRAWS, u);
    if (m->head.h > 0) {
        rd_pixels px = {NULL, m->head.h, m->head.w, m->head.c};
        const int64_t n = px.h * px.w * px.c;
        if (m->kind->make) {
            RD_TRY(rd_scratch_reserve(&s->pixels, &s->n_pixels, (size_t)n, st));
            m->kind->make(m, i, s->pixels);
            px.p = s->pixels;
        } else {
            px.p = (const uint8_t *)m->block[RD_BLOCK_PIXELS].p + i * n;
        }
        RD_TRY(render_pixels(r, &px, u, s, out, st));
    } else {
        const uint8_t *bytes = NULL;
        size_t n = 0;
        if (m->fed)
            RD_TRY(read_fed(m, i, s, &bytes, &n, result, st));
        else
            RD_TRY(read_encoded(m, i, s, &bytes, &n, st));
        if (result->answer == RD_DECODE_NONE)
            image_render_neutral(r, out);
        else
            RD_TRY(render_encoded(r, bytes, n, u, s, out, result, st));
    }
done:
    rd_scratch_shrink(s);
    return st->code;
}
