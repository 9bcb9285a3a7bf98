/* image_op.h -- functions that the ops on images share. */
#ifndef RD_IMAGE_OP_H
#define RD_IMAGE_OP_H

#include "../../engine/image_kernels.h"
#include "rd/image.h"

RD_C_BEGIN

/* Eight channels at once. gcc and clang compile it to the vector instructions of the CPU. The
 * warning is about functions that pass such vectors between files compiled for different CPUs. No
 * function here does. */
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

/* Returns the number of stored elements of an image or a matrix, without the slack. */
int64_t rd_op_elements(const rd_var *x);
/* Checks that x is an image. RD_EBUG otherwise. op: name for the message. */
rd_code rd_op_image_check(const char *op, const rd_var *x, rd_status *st);
/* Copies shape, layout, size and type of x to out. */
void rd_op_like(rd_var *out, const rd_var *x);

/* Sets *v to the values of x in the order of `like`, an image of the same shape: x->v itself, or a
 * copy in the arena. On a GPU all images have the same order. */
rd_code rd_op_in_order(rd_arena *a, const rd_var *like, const rd_var *x, const float **v,
                       rd_status *st);
/* Computes out (+)= g. g has the order of `like`, and out has the order of x. */
rd_code rd_op_to_order(const rd_var *like, const rd_var *x, const float *g, float *out, bool add,
                       rd_status *st);

/* ---- elementwise passes over n elements of one type (float32 on a CPU) ---- */
/* Computes y = max(x, 0). NaN stays NaN. */
rd_code rd_op_rectify(rd_backend *be, rd_element type, int64_t n, const void *x, void *y,
                      rd_status *st);
/* Computes y = a + b or, with relu, y = max(a + b, 0). */
rd_code rd_op_sum(rd_backend *be, rd_element type, int64_t n, const void *a, const void *b,
                  bool relu, void *y, rd_status *st);
/* Computes g = y > 0 ? g : 0. */
rd_code rd_op_mask(rd_backend *be, rd_element type, int64_t n, const void *y, void *g,
                   rd_status *st);
/* Computes out (+)= y > 0 ? g : 0. */
rd_code rd_op_masked(rd_backend *be, rd_element type, int64_t n, const void *y, const void *g,
                     void *out, bool add, rd_status *st);
/* Computes out (+)= x. */
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
