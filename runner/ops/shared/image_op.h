/* image_op.h -- what the ops on images share. */
#ifndef RD_IMAGE_OP_H
#define RD_IMAGE_OP_H

#include "../../engine/image_kernels.h"
#include "rd/image.h"

RD_C_BEGIN

/* Eight channels at once; gcc and clang make of it what the processor has. The warning is of functions that pass such
 * vectors between files compiled for different processors; none does. */
#pragma GCC diagnostic ignored "-Wpsabi"
typedef float rd_v8 __attribute__((vector_size(32)));

static inline rd_v8 rd_v8_load(const float *x)
{
    rd_v8 v;
    __builtin_memcpy(&v, x, sizeof v);
    return v;
}
static inline void rd_v8_store(float *x, rd_v8 v)
{
    __builtin_memcpy(x, &v, sizeof v);
}
static inline rd_v8 rd_v8_all(float x)
{
    return (rd_v8){x, x, x, x, x, x, x, x};
}

/* Elements in total; a matrix counts, too. Without the slack. */
int64_t rd_op_elements(const rd_var *x);
/* RD_EBUG unless x is an image. */
rd_code rd_op_image_check(const char *op, const rd_var *x, rd_status *st);
/* The shape, layout, size and type of x for out. */
void rd_op_like(rd_var *out, const rd_var *x);

/* The values of x in the order of `like`, an image of the same shape: x->v itself, or a copy in the arena (images on a GPU are of
 * one order). */
rd_code rd_op_in_order(rd_arena *a, const rd_var *like, const rd_var *x, const float **v,
                       rd_status *st);
/* out (+)= g, where g lies in the order of `like` and out in that of x. */
rd_code rd_op_to_order(const rd_var *like, const rd_var *x, const float *g, float *out, bool add,
                       rd_status *st);

/* Elementwise passes over n elements of one type (float32 on a CPU). */
/* y = max(x, 0); NaN stays NaN. */
rd_code rd_op_rectify(rd_backend *be, rd_element type, int64_t n, const void *x, void *y,
                      rd_status *st);
/* y = a + b, with relu max(a + b, 0). */
rd_code rd_op_sum(rd_backend *be, rd_element type, int64_t n, const void *a, const void *b,
                  bool relu, void *y, rd_status *st);
/* g = y > 0 ? g : 0 */
rd_code rd_op_mask(rd_backend *be, rd_element type, int64_t n, const void *y, void *g,
                   rd_status *st);
/* out (+)= y > 0 ? g : 0 */
rd_code rd_op_masked(rd_backend *be, rd_element type, int64_t n, const void *y, const void *g,
                     void *out, bool add, rd_status *st);
/* out (+)= x */
rd_code rd_op_copy(rd_backend *be, rd_element type, int64_t n, const void *x, void *out, bool add,
                   rd_status *st);

/* The table behind these functions, one for each kind of backend. */
typedef struct rd_element_kernels {
    rd_code (*rectify)(rd_backend *be, rd_element type, int64_t n, const void *x, void *y,
                       rd_status *st);
    rd_code (*sum)(rd_backend *be, rd_element type, int64_t n, const void *a, const void *b,
                   bool relu, void *y, rd_status *st);
    rd_code (*mask)(rd_backend *be, rd_element type, int64_t n, const void *y, void *g,
                    rd_status *st);
    rd_code (*masked)(rd_backend *be, rd_element type, int64_t n, const void *y, const void *g,
                      void *out, bool add, rd_status *st);
    rd_code (*copy)(rd_backend *be, rd_element type, int64_t n, const void *x, void *out, bool add,
                    rd_status *st);
} rd_element_kernels;
extern const rd_element_kernels rd_cuda_elements; /* image_op.cu */

RD_C_END
#endif
