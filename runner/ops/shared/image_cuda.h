/* image_cuda.h -- what the ops on images have queued on a GPU. Images are NHWC, all arrays of the device, of one
 * type of elements; add: to what is there.
 * Failures: those of the device (see gpu.h). */
#ifndef RD_IMAGE_CUDA_H
#define RD_IMAGE_CUDA_H

#include "rd/gpu.h"
#include "rd/philox.h"

RD_C_BEGIN

/* Elementwise, n elements. Inputs may be the output. */
rd_code rd_cuda_relu(rd_gpu *gpu, rd_element type, int64_t n, const void *x, void *y,
                     rd_status *st);
rd_code rd_cuda_sum(rd_gpu *gpu, rd_element type, int64_t n, const void *a, const void *b,
                    bool relu, void *y, rd_status *st); /* y = a + b */
rd_code rd_cuda_mask(rd_gpu *gpu, rd_element type, int64_t n, const void *y, void *g,
                     rd_status *st); /* g = y > 0 ? g : 0 */
rd_code rd_cuda_masked(rd_gpu *gpu, rd_element type, int64_t n, const void *y, const void *g,
                       void *out, bool add, rd_status *st); /* out (+)= that */
rd_code rd_cuda_copy(rd_gpu *gpu, rd_element type, int64_t n, const void *x, void *out, bool add,
                     rd_status *st); /* out (+)= x */

/* y[i, c] = mean over `pixels` of x[i, p, c], and back: dx (+)= dy / pixels. */
rd_code rd_cuda_mean(rd_gpu *gpu, rd_element type, int64_t n, int64_t pixels, int64_t channels,
                     const void *x, void *y, rd_status *st);
rd_code rd_cuda_mean_back(rd_gpu *gpu, rd_element type, int64_t n, int64_t pixels, int64_t channels,
                          const void *dy, void *dx, bool add, rd_status *st);

typedef struct rd_shortcut {
    int64_t n, h, w, c; /* of x */
    int64_t stride, oh, ow, co;
    int64_t before; /* new channels in front of the old ones */
} rd_shortcut;
rd_code rd_cuda_shortcut(rd_gpu *gpu, rd_element type, const rd_shortcut *s, const void *x, void *y,
                         rd_status *st);
rd_code rd_cuda_shortcut_back(rd_gpu *gpu, rd_element type, const rd_shortcut *s, const void *dy,
                              void *dx, bool add, rd_status *st);

/* Rows of `width`, a sample each (sample: ids, of the device). A mask has a bit per element, rd_cuda_mask_bytes(n, width) in all. */
static inline size_t rd_cuda_mask_bytes(int64_t n, int64_t width)
{
    return (size_t)(n * ((width + 7) / 8));
}
rd_code rd_cuda_image_dropout(rd_gpu *gpu, rd_element type, rd_key key, float keep, int64_t n,
                              int64_t width, const int64_t *sample, const void *x, void *y,
                              uint8_t *mask, rd_status *st);
/* dx (+)= dy / keep where the mask is set. dx may be dy. */
rd_code rd_cuda_image_dropout_back(rd_gpu *gpu, rd_element type, float keep, int64_t n,
                                   int64_t width, const uint8_t *mask, const void *dy, void *dx,
                                   bool add, rd_status *st);

RD_C_END
#endif
