/* cpu_conv_impl.h -- oneDNN's kernels for convolutions, for cpu_conv.c and cpu_conv_kernel.c. */
#ifndef RD_CPU_CONV_IMPL_H
#define RD_CPU_CONV_IMPL_H

#include "cpu_impl.h"
#include "../image_kernels.h"

/* Direction of a convolution: the result, the gradient of the data, that of the weights. */
typedef enum role { FORWARD, DATA, WEIGHTS } role;

/* A reorder that changes layout, type or both; it may also add to its target. pad: scratchpad. */
typedef struct reorder {
    dnnl_primitive_t prim;
    dnnl_memory_t from, to, pad;
    size_t pad_bytes;
} reorder;

typedef struct kernel {
    bool made;
    dnnl_primitive_t prim;
    /* Layouts of image, weights and result that the primitive uses. */
    md_ptr x, w, y;
    bool has_x, has_w, has_y;
    /* mb: bias. pad: scratchpad. */
    dnnl_memory_t mx, mw, my, mb, pad;
    size_t pad_bytes;
    /* prim NULL: not needed. reorder_w: gradient of the weights to HWIO. */
    reorder reorder_x, reorder_y, reorder_w;
} kernel;

typedef struct conv {
    rd_conv_shape s;
    kernel k[3];
    struct conv *next;
} conv;

/* The blocked copy of a parameter for one kernel's layout. */
typedef struct blocked {
    const rd_param *w;
    md_ptr md;
    bool has_md;
    void *mem;
    uint64_t version;
    reorder pack;
    struct blocked *next;
} blocked;

/* The transformed copy of a parameter for cpu_winograd.c. */
typedef struct transformed {
    const rd_param *w;
    bool flip;
    void *mem;
    uint64_t version;
    struct transformed *next;
} transformed;

struct rd_convs {
    /* Channels of a block in the layout of results. */
    int64_t block;
    /* RD_OWN_KERNELS=0 in the environment: only oneDNN computes, to measure the gain of our own
     * kernels. */
    bool library_only;
    conv *conv;
    blocked *weights;
    transformed *transformed;
    rd_cpu_buffer pad, soft, x, y, w, bias, own;
};

static inline dnnl_data_type_t conv_in_type(const rd_cpu *b)
{
    return b->mixed && b->bf16_hw ? dnnl_bf16 : dnnl_f32;
}
/* Returns whether our own kernels may compute (cpu_winograd.c, cpu_conv_weights.c). */
static inline bool conv_own(const rd_cpu *b)
{
    return conv_in_type(b) == dnnl_f32 && !b->convs->library_only;
}
/* Returns x without const, which the library's interface does not have. */
static inline void *conv_without_const(const void *x)
{
    void *p;
    memcpy(&p, &x, sizeof p);
    return p;
}
/* Returns the size of the result in one direction. before, after: padding. */
static inline int64_t conv_out_size(int64_t in, int64_t before, int64_t after, int64_t k,
                                    int64_t stride)
{
    return (in + before + after - k) / stride + 1;
}

/* Makes a reorder. add: it adds to its target. */
rd_code conv_reorder_make(rd_cpu *b, md_in from, md_in to, bool add, reorder *m, rd_status *st);
void conv_reorder_free(reorder *m);
/* Runs a reorder. */
rd_code conv_reorder_run(rd_cpu *b, reorder *m, const void *from, void *to, rd_status *st);
/* Makes one direction of a convolution, with the reorders that it needs. */
rd_code conv_kernel_make(rd_cpu *b, const rd_conv_shape *s, role r, kernel *k, rd_status *st);
void conv_kernel_free(kernel *k);
/* Makes b->convs and chooses the layout of results. */
rd_code conv_start(rd_cpu *b, rd_status *st);

#endif
