/* cpu_conv_impl.h -- what cpu_conv.c and cpu_conv_kernel.c share. */
#ifndef RD_CPU_CONV_IMPL_H
#define RD_CPU_CONV_IMPL_H

#include "cpu_impl.h"
#include "../image_kernels.h"

typedef enum role { FORWARD, DATA, WEIGHTS } role;

/* A reorder: of a layout, of a type, or both; or one that adds. */
typedef struct mover {
    dnnl_primitive_t prim;
    dnnl_memory_t from, to, pad;
    size_t pad_bytes;
} mover;

typedef struct kernel {
    bool made;
    dnnl_primitive_t prim;
    md_ptr x, w, y;
    bool has_x, has_w, has_y;
    dnnl_memory_t mx, mw, my, mb, pad;
    size_t pad_bytes;
    mover move_x, move_y, move_w; /* prim NULL: not needed; move_w: gradient to HWIO */
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
    mover pack;
    struct blocked *next;
} blocked;

/* The transformed copy for cpu_winograd.c. */
typedef struct spread {
    const rd_param *w;
    bool flip;
    void *mem;
    uint64_t version;
    struct spread *next;
} spread;

struct rd_convs {
    int64_t block; /* layout of results */
    bool
        library_only; /* RD_OWN_KERNELS=0 in the environment: to measure what the own kernels are worth */
    conv *conv;
    blocked *weights;
    spread *spread;
    rd_room pad, soft, x, y, w, bias, own;
};

static inline dnnl_data_type_t conv_in_type(const rd_cpu *b)
{
    return b->mixed && b->bf16_hw ? dnnl_bf16 : dnnl_f32;
}
/* Winograd and weight gradients without the library. */
static inline bool conv_own(const rd_cpu *b)
{
    return conv_in_type(b) == dnnl_f32 && !b->convs->library_only;
}
/* The library's interface has no const. */
static inline void *conv_plain(const void *x)
{
    void *p;
    memcpy(&p, &x, sizeof p);
    return p;
}
static inline int64_t conv_out_size(int64_t in, int64_t before, int64_t after, int64_t k,
                                    int64_t stride)
{
    return (in + before + after - k) / stride + 1;
}

rd_code conv_mover_make(rd_cpu *b, md_in from, md_in to, bool add, mover *m, rd_status *st);
void conv_mover_free(mover *m);
rd_code conv_move(rd_cpu *b, mover *m, const void *from, void *to, rd_status *st);
/* One direction of a convolution, with the reorders that it needs. */
rd_code conv_kernel_make(rd_cpu *b, const rd_conv_shape *s, role r, kernel *k, rd_status *st);
void conv_kernel_free(kernel *k);
/* b->convs, with the order of results chosen. */
rd_code conv_start(rd_cpu *b, rd_status *st);

#endif
