/* image_harness.h -- images for harness.h.
 *
 * Inputs have four dimensions. A 1x1 convolution with the identity brings an op's input into the
 * order that convolutions write. The result is read as rows. */
#ifndef RD_TESTS_OPS_IMAGE_HARNESS_H
#define RD_TESTS_OPS_IMAGE_HARNESS_H

#include "harness.h"

typedef struct size4 {
    int64_t n, h, w, c;
} size4;

static inline int64_t count4(size4 s)
{
    return s.n * s.h * s.w * s.c;
}

static inline int h_input4(harness *h, int64_t a, int64_t b, int64_t c, int64_t d)
{
    rd_status st = {0};
    char name[16];
    const int64_t dim[4] = {a, b, c, d};
    snprintf(name, sizeof name, "in%d", h->n);
    rd_params_add(h->ps, name, 4, dim, (rd_init){RD_INIT_CONST, 0, 0, 0}, 0, &h->p[h->n], &st);
    must(&st);
    return h->n++;
}

static inline int h_image(harness *h, size4 s)
{
    return h_input4(h, s.n, s.h, s.w, s.c);
}

/* A parameter that is no input: the identity of c channels, set by h_identity_fill after h_fill. */
static inline rd_param *h_identity(harness *h, int64_t c)
{
    rd_status st = {0};
    rd_param *p = NULL;
    rd_params_add(h->ps, "identity", 4, (int64_t[]){1, 1, c, c}, (rd_init){RD_INIT_CONST, 0, 0, 0},
                  0, &p, &st);
    must(&st);
    return p;
}

static inline void h_identity_fill(harness *h, rd_param *p)
{
    const int64_t c = p->dim[2];
    for (int64_t i = 0; i < c; i++) test_values(h->ps)[p->offset + i * c + i] = 1.0f;
    rd_params_touch(h->ps);
}

/* x in the order that convolutions write. */
static inline rd_var *h_blocked(harness *h, rd_param *identity, rd_var *x)
{
    const rd_conv same = {.stride = 1};
    return rd_op_conv2d(h->tape, &same, x, rd_tape_param(h->tape, identity), NULL);
}

static inline rd_var *h_weighted_image(harness *h, rd_var *y)
{
    rd_var *rows = rd_op_flatten(h->tape, y);
    return rows ? h_weighted(h, &rows, 1) : NULL;
}

#endif
