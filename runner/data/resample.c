/* resample.c -- resamples a box of an image to a given size.
 *
 * The filter is the triangle of Pillow's BILINEAR. Where the image shrinks, the triangle is as wide
 * as the step of the box in pixels, which avoids aliasing. torchvision's transforms see the same
 * pixels, except that Pillow rounds to whole numbers between its two passes.
 *
 * Rows come first: each output row is a weighted sum of whole input rows, one long vector loop.
 * Then columns, four floats at a time: R, G, B and one unused. */
#include "images_impl.h"
#include <math.h>

/* The filter of one direction: output k is the sum of `taps` elements from first[k] on, with
 * weight[k * taps ...]. */
typedef struct filter {
    int64_t taps;
    const int32_t *first;
    const float *weight;
} filter;

typedef float quad __attribute__((vector_size(16)));

static int64_t taps_of(double scale)
{
    const double support = scale > 1.0 ? scale : 1.0;
    return (int64_t)ceil(support) * 2 + 1;
}

/* Computes first and weight for n outputs over [from, from + extent) of `size` elements. */
static void make_filter(double from, double extent, int64_t size, int64_t n, int64_t taps,
                        int32_t *first, float *weight)
{
    const double scale = extent / (double)n, wide = scale > 1.0 ? scale : 1.0;
    for (int64_t k = 0; k < n; k++) {
        const double center = from + ((double)k + 0.5) * scale;
        int64_t lo = (int64_t)floor(center - wide + 0.5), hi = (int64_t)floor(center + wide + 0.5);
        lo = lo > 0 ? lo : 0;
        hi = hi < size ? hi : size;
        if (lo > size - 1) lo = size - 1;
        if (hi > lo + taps) hi = lo + taps;
        /* All taps stay inside the image; those past hi have weight 0. */
        const int64_t start = lo + taps > size ? (size > taps ? size - taps : 0) : lo;
        float *wk = weight + k * taps;
        double sum = 0.0;
        for (int64_t j = 0; j < taps; j++) {
            const int64_t at = start + j;
            const double d = fabs(((double)at + 0.5 - center) / wide);
            const double v = at >= lo && at < hi && d < 1.0 ? 1.0 - d : 0.0;
            wk[j] = (float)v;
            sum += v;
        }
        if (sum > 0.0) {
            for (int64_t j = 0; j < taps; j++) wk[j] = (float)((double)wk[j] / sum);
        } else {
            wk[lo - start] = 1.0f;
        }
        first[k] = (int32_t)start;
    }
}

/* acc[0 .. n) = weighted sum of `taps` rows of bytes. */
static void sum_rows(const uint8_t *p, int64_t stride, const float *weight, int64_t taps, int64_t n,
                     float *restrict acc)
{
    bool begun = false;
    for (int64_t j = 0; j < taps; j++, p += stride) {
        const float v = weight[j];
        if (v == 0.0f) continue;
        if (begun)
            for (int64_t i = 0; i < n; i++) acc[i] += v * (float)p[i];
        else
            for (int64_t i = 0; i < n; i++) acc[i] = v * (float)p[i];
        begun = true;
    }
}

static void columns_of_4(const float *row, const filter *f, int64_t w, bool flip, float *out)
{
    for (int64_t k = 0; k < w; k++) {
        const float *p = row + (int64_t)f->first[k] * 4, *v = f->weight + k * f->taps;
        quad sum = {0, 0, 0, 0};
        for (int64_t j = 0; j < f->taps; j++) {
            quad x;
            memcpy(&x, p + j * 4, sizeof x);
            sum += x * v[j];
        }
        float *o = out + (flip ? w - 1 - k : k) * 3;
        o[0] = sum[0];
        o[1] = sum[1];
        o[2] = sum[2];
    }
}

static void columns_of_1(const float *row, const filter *f, int64_t w, bool flip, float *out)
{
    for (int64_t k = 0; k < w; k++) {
        const float *p = row + f->first[k], *v = f->weight + k * f->taps;
        float sum = 0.0f;
        for (int64_t j = 0; j < f->taps; j++) sum += p[j] * v[j];
        out[flip ? w - 1 - k : k] = sum;
    }
}

rd_code rd_resample(const rd_pixels *in, const rd_box *box, int64_t h, int64_t w, bool flip,
                    rd_scratch *s, float *out, rd_status *st)
{
    const int64_t in_c = in->c, out_c = in_c == 4 ? 3 : 1;
    int64_t ty = taps_of(box->h / (double)h), tx = taps_of(box->w / (double)w);
    ty = ty < in->h ? ty : in->h;
    tx = tx < in->w ? tx : in->w;
    RD_TRY(rd_scratch_reserve(&s->index, &s->n_index, (size_t)(h + w) * sizeof *s->index, st));
    RD_TRY(rd_scratch_reserve(&s->weight, &s->n_weight,
                              (size_t)(h * ty + w * tx) * sizeof *s->weight, st));
    make_filter(box->y, box->h, in->h, h, ty, s->index, s->weight);
    make_filter(box->x, box->w, in->w, w, tx, s->index + h, s->weight + h * ty);
    /* Only the columns that are read: from the first tap of the first output to the last tap of the
     * last. */
    int32_t *first = s->index + h;
    const int64_t left = first[0], columns = first[w - 1] + tx - left;
    for (int64_t k = 0; k < w; k++) first[k] -= (int32_t)left;
    const filter fx = {tx, first, s->weight + h * ty};
    RD_TRY(rd_scratch_reserve(&s->rows, &s->n_rows, (size_t)(columns * in_c) * sizeof *s->rows,
                              st));
    for (int64_t k = 0; k < h; k++) {
        const uint8_t *p = in->p + ((int64_t)s->index[k] * in->w + left) * in_c;
        sum_rows(p, in->w * in_c, s->weight + k * ty, ty, columns * in_c, s->rows);
        if (in_c == 4)
            columns_of_4(s->rows, &fx, w, flip, out + k * w * out_c);
        else
            columns_of_1(s->rows, &fx, w, flip, out + k * w * out_c);
    }
done:
    return st->code;
}
