/* image_layout.h -- where the elements of an image variable lie. Two orders occur:
 *
 *   NHWC     layout NULL                [n][h][w][c]
 *   blocked  layout->block = B, 8 or 16 [n][ceil(c / B)][h][w][B], channels past c are zero, in v and in g
 *
 * The second is what oneDNN's convolutions without AMX are fastest with. Both are the same to a loop that sees NHWC as
 * one block of c channels: element (i, k, p, l), sample, block, pixel and lane, is at ((i K + k) P + p) B + l. */
#ifndef RD_IMAGE_LAYOUT_H
#define RD_IMAGE_LAYOUT_H

#include "rd/tape.h"

RD_C_BEGIN

typedef struct rd_image_layout {
    int64_t block;
} rd_image_layout;

const rd_image_layout *rd_image_layout_of(int64_t block); /* one object for each; 0: NULL */

typedef struct rd_image_view {
    int64_t n, h, w, c;
    int64_t K, P, B; /* blocks, pixels (h w), channels of a block */
    int64_t sample;  /* elements from one sample to the next, K P B */
} rd_image_view;

rd_image_view rd_image_view_of(const rd_var *x); /* n_dim 4 */
static inline bool rd_image_is(const rd_var *x)
{
    return x->n_dim == 4;
}
/* out gets the shape (n, h, w, c) and this layout. */
void rd_image_set(rd_var *out, int64_t n, int64_t h, int64_t w, int64_t c, const void *layout);
/* Copies sample i between the two orders: the image as NHWC, and as it lies in a variable. add: adds to what is there.
 */
void rd_image_to_nhwc(const rd_image_view *v, const float *x, float *nhwc, bool add);
void rd_image_from_nhwc(const rd_image_view *v, const float *nhwc, float *x, bool add);

RD_C_END
#endif
