/* image_layout.h -- order of the elements of an image variable. Two orders occur:
 *
 *   NHWC     layout NULL                 [n][h][w][c]
 *   blocked  layout->block = B, 8 or 16  [n][ceil(c / B)][h][w][B]
 *
 * In the blocked order channels past c are zero, in v and in g.
 *
 * oneDNN's convolutions without AMX are fastest with the second. A loop can treat both alike if
 * it sees NHWC as one block of c channels. Element (i, k, p, l) = (sample, block, pixel, lane)
 * then has the index ((i K + k) P + p) B + l. */
#ifndef RD_IMAGE_LAYOUT_H
#define RD_IMAGE_LAYOUT_H

#include "rd/tape.h"

RD_C_BEGIN

typedef struct rd_image_layout {
    int64_t block;
} rd_image_layout;

/* Returns the layout with this block, one object for each. block 0: NULL. */
const rd_image_layout *rd_image_layout_of(int64_t block);

typedef struct rd_image_view {
    int64_t n, h, w, c;
    /* Blocks, pixels (h w), channels of a block. */
    int64_t K, P, B;
    /* Elements from one sample to the next: K P B. */
    int64_t sample;
} rd_image_view;

/* Returns the sizes of an image variable (n_dim 4). */
rd_image_view rd_image_view_of(const rd_var *x);
/* Returns whether x is an image. */
static inline bool rd_image_is(const rd_var *x)
{
    return x->n_dim == 4;
}
/* Sets the shape of out to (n, h, w, c), and its layout. */
void rd_image_set(rd_var *out, int64_t n, int64_t h, int64_t w, int64_t c, const void *layout);
/* Copy one sample between NHWC and the order of v: x and nhwc point to the sample. add: the target
 * += the source. */
void rd_image_to_nhwc(const rd_image_view *v, const float *x, float *nhwc, bool add);
void rd_image_from_nhwc(const rd_image_view *v, const float *nhwc, float *x, bool add);

RD_C_END
#endif
