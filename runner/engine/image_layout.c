/* image_layout.c -- the two orders of image elements, and copies between them. */
#include "image_layout.h"
#include <string.h>

static const rd_image_layout of_8 = {8}, of_16 = {16};

const rd_image_layout *rd_image_layout_of(int64_t block)
{
    return block == 8 ? &of_8 : block == 16 ? &of_16 : NULL;
}

rd_image_view rd_image_view_of(const rd_var *x)
{
    const rd_image_layout *l = x->layout;
    rd_image_view v = {.n = x->dim[0], .h = x->dim[1], .w = x->dim[2], .c = x->dim[3]};
    v.P = v.h * v.w;
    v.B = l ? l->block : v.c;
    v.K = l ? (v.c + v.B - 1) / v.B : 1;
    v.sample = v.K * v.P * v.B;
    return v;
}

void rd_image_set(rd_var *out, int64_t n, int64_t h, int64_t w, int64_t c, const void *layout)
{
    out->n_dim = 4;
    out->dim[0] = n;
    out->dim[1] = h;
    out->dim[2] = w;
    out->dim[3] = c;
    out->rows = n * h * w;
    out->cols = c;
    out->layout = layout;
}

void rd_image_to_nhwc(const rd_image_view *v, const float *x, float *nhwc, bool add)
{
    for (int64_t k = 0; k < v->K; k++) {
        const int64_t lanes = v->c - k * v->B < v->B ? v->c - k * v->B : v->B;
        for (int64_t p = 0; p < v->P; p++) {
            const float *from = x + (k * v->P + p) * v->B;
            float *to = nhwc + p * v->c + k * v->B;
            if (!add)
                memcpy(to, from, (size_t)lanes * sizeof(float));
            else
                for (int64_t l = 0; l < lanes; l++) to[l] += from[l];
        }
    }
}

void rd_image_from_nhwc(const rd_image_view *v, const float *nhwc, float *x, bool add)
{
    for (int64_t k = 0; k < v->K; k++) {
        const int64_t lanes = v->c - k * v->B < v->B ? v->c - k * v->B : v->B;
        for (int64_t p = 0; p < v->P; p++) {
            const float *from = nhwc + p * v->c + k * v->B;
            float *to = x + (k * v->P + p) * v->B;
            if (add) {
                for (int64_t l = 0; l < lanes; l++) to[l] += from[l];
            } else {
                memcpy(to, from, (size_t)lanes * sizeof(float));
                for (int64_t l = lanes; l < v->B; l++) to[l] = 0.0f;
            }
        }
    }
}
