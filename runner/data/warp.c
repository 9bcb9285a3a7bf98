/* warp.c -- the affine warp of Keras' ImageDataGenerator, as its versions of 2018 do it.
 *
 * A matrix of rotation, shift, shear and zoom about a centre maps each output pixel to the place
 * that SciPy's affine_transform (order 1, mode "nearest") reads.
 *
 * Coordinates are linear along a row, so one vector loop a row computes them. With one channel, a
 * second loop gathers the four neighbours. tests/golden/make_pixels.py holds both against NumPy and
 * SciPy. */
#include "images_impl.h"
#include <math.h>

enum { RUN = 64 }; /* columns at a time: the coordinates stay in registers and the L1 cache */

void rd_affine_matrix(const rd_affine *a, int64_t h, int64_t w, const float u[RD_AFFINE_DRAWS],
                      double m[6])
{
    double d[RD_AFFINE_DRAWS]; /* uniform in -1 .. 1 */
    for (int i = 0; i < RD_AFFINE_DRAWS; i++) d[i] = 2.0 * (double)u[i] - 1.0;
    const double theta = a->rotation * d[0], tx = a->shift * (double)h * d[1],
                 ty = a->shift * (double)w * d[2];
    const double shear = a->shear * d[3], zx = 1.0 + a->zoom * d[4], zy = 1.0 + a->zoom * d[5];
    const double c = cos(theta), s = sin(theta), sc = cos(shear), ss = sin(shear);
    /* R T Sh Z with R = [c -s; s c], T = + (tx, ty), Sh = [1 -ss; 0 sc], Z = diag(zx, zy) */
    const double m00 = c * zx, m01 = (-c * ss - s * sc) * zy, m02 = c * tx - s * ty;
    const double m10 = s * zx, m11 = (-s * ss + c * sc) * zy, m12 = s * tx + c * ty;
    /* C M C^-1 with C a shift by the centre */
    const double oy = (double)h / 2.0 + a->center_offset, ox = (double)w / 2.0 + a->center_offset;
    m[0] = m00;
    m[1] = m01;
    m[2] = m02 + oy - m00 * oy - m01 * ox;
    m[3] = m10;
    m[4] = m11;
    m[5] = m12 + ox - m10 * oy - m11 * ox;
}

/* Where the columns of a run are read. */
typedef struct warp_run {
    int32_t at[RUN];        /* index of the upper left neighbour */
    float fy[RUN], fx[RUN]; /* weight of the lower row, of the right column */
} warp_run;

/* Computes the coordinates (y0 + dy j, x0 + dx j), clamped to the image. The upper left neighbour
 * is at most the last but one: the right and the lower neighbour are then in the image, too, with
 * weight 1 at the edge. */
static void run_places(warp_run *q, int n, float y0, float dy, float x0, float dx, int32_t h,
                       int32_t w)
{
    const float ymax = (float)(h - 1), xmax = (float)(w - 1), ylast = (float)(h > 1 ? h - 2 : 0),
                xlast = (float)(w > 1 ? w - 2 : 0);
    for (int j = 0; j < n; j++) {
        float y = y0 + dy * (float)j, x = x0 + dx * (float)j;
        y = y > 0.0f ? y : 0.0f;
        x = x > 0.0f ? x : 0.0f;
        y = y < ymax ? y : ymax;
        x = x < xmax ? x : xmax;
        float yi = __builtin_floorf(y), xi = __builtin_floorf(x);
        yi = yi < ylast ? yi : ylast;
        xi = xi < xlast ? xi : xlast;
        q->fy[j] = y - yi;
        q->fx[j] = x - xi;
        q->at[j] = (int32_t)yi * w + (int32_t)xi;
    }
}

void rd_warp(const float *in, int64_t h, int64_t w, int64_t c, const double m[6], float *out)
{
    const int64_t right = w > 1 ? c : 0, below = h > 1 ? w * c : 0;
    warp_run q;
    for (int64_t i = 0; i < h; i++)
        for (int64_t from = 0; from < w; from += RUN) {
            const int n = (int)(w - from < RUN ? w - from : RUN);
            const double y0 = m[0] * (double)i + m[1] * (double)from + m[2];
            const double x0 = m[3] * (double)i + m[4] * (double)from + m[5];
            run_places(&q, n, (float)y0, (float)m[1], (float)x0, (float)m[4], (int32_t)h,
                       (int32_t)w);
            float *row = out + (i * w + from) * c;
            if (c == 1) {
                for (int j = 0; j < n; j++) {
                    const float *p = in + q.at[j];
                    const float top = p[0] + q.fx[j] * (p[right] - p[0]);
                    const float low = p[below] + q.fx[j] * (p[below + right] - p[below]);
                    row[j] = top + q.fy[j] * (low - top);
                }
                continue;
            }
            for (int j = 0; j < n; j++)
                for (int64_t k = 0; k < c; k++) {
                    const float *p = in + q.at[j] * c + k;
                    const float top = p[0] + q.fx[j] * (p[right] - p[0]);
                    const float low = p[below] + q.fx[j] * (p[below + right] - p[below]);
                    row[j * c + k] = top + q.fy[j] * (low - top);
                }
        }
}
