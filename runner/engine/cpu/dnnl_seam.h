/* dnnl_seam.h -- one interface to both versions of oneDNN's C API, 2.6 (Debian 12) and 3.x.
 *
 * Descriptors are plain structs in 2.6 and handles in 3.x. Only this header, cpu_backend.c,
 * cpu_base.c, cpu_dnnl.c, cpu_conv.c and cpu_conv_kernel.c call oneDNN. */
#ifndef RD_DNNL_SEAM_H
#define RD_DNNL_SEAM_H

#include <dnnl.h>
#include <stdbool.h>

/* Strides and padding of a convolution in the form that oneDNN expects. */
typedef struct conv_geometry {
    dnnl_dims_t stride, before, after;
} conv_geometry;

/* Returns the strip of weights of a 1x1 convolution of k channels that are stored in strips of
 * outputs, [outputs / strip][k][strip]; 0: another layout. With *pairs two channels of an output
 * stand side by side: [outputs / strip][k / 2][strip][2]. length: numbers from strip to strip. */
static inline int64_t strip_of(int n, const dnnl_dim_t *blocks, const dnnl_dim_t *of,
                               const dnnl_dim_t *strides, int64_t *length, bool *pairs)
{
    int64_t inner = 1;
    *pairs = n == 2 && of[0] == 0 && of[1] == 1 && blocks[1] == 2;
    const int at = n == 2 && !*pairs ? 1 : 0;
    if (n < 1 || n > 2 || of[at] != 0 || (at == 1 && of[0] != 1)) return 0;
    for (int i = 0; i < n; i++)
        if (of[i] == 1) inner *= blocks[i];
    *length = strides[0];
    return strides[1] == inner * blocks[at] && strides[0] % strides[1] == 0 ? blocks[at] : 0;
}

#if DNNL_VERSION_MAJOR >= 3
/* An opaque handle. */
typedef dnnl_memory_desc_t md_ptr;
typedef const_dnnl_memory_desc_t md_in;
#define MD_REF(x) (x)
static inline dnnl_status_t md_make(md_ptr *md, int n, const dnnl_dims_t d, dnnl_data_type_t t,
                                    dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_create_with_tag(md, n, d, t, tag);
}
static inline void md_free(md_ptr md)
{
    dnnl_memory_desc_destroy(md);
}
static inline size_t md_size(md_in md)
{
    return dnnl_memory_desc_get_size(md);
}
static inline bool md_equal(md_in a, md_in b)
{
    return dnnl_memory_desc_equal(a, b) != 0;
}
static inline int64_t md_strip(md_in md, int64_t *length, bool *pairs)
{
    int n = 0;
    const dnnl_dims_t *blocks = NULL, *of = NULL, *strides = NULL;
    if (dnnl_memory_desc_query(md, dnnl_query_inner_nblks_s32, &n) != dnnl_success || n < 1 ||
        dnnl_memory_desc_query(md, dnnl_query_inner_blks, &blocks) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_inner_idxs, &of) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_strides, &strides) != dnnl_success)
        return 0;
    return strip_of(n, *blocks, *of, *strides, length, pairs);
}
static inline dnnl_status_t conv_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t e, md_in s, md_in w,
                                    md_in d, const_dnnl_primitive_attr_t a)
{
    const dnnl_dims_t one = {1, 1}, zero = {0, 0};
    return dnnl_convolution_forward_primitive_desc_create(pd, e, dnnl_forward_inference,
                                                          dnnl_convolution_direct, s, w, NULL, d,
                                                          one, zero, zero, zero, a);
}
static inline dnnl_status_t matmul_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t e, md_in s, md_in w,
                                      md_in d, const_dnnl_primitive_attr_t a)
{
    return dnnl_matmul_primitive_desc_create(pd, e, s, w, NULL, d, a);
}
static inline dnnl_status_t append_sum(dnnl_post_ops_t p)
{
    return dnnl_post_ops_append_sum(p, 1.0f, 0, dnnl_data_type_undef);
}
static inline dnnl_status_t append_relu(dnnl_post_ops_t p)
{
    return dnnl_post_ops_append_eltwise(p, dnnl_eltwise_relu, 0.0f, 0.0f);
}
static inline dnnl_status_t md_copy(md_ptr *to, md_in from)
{
    return dnnl_memory_desc_clone(to, from);
}
/* Make the descriptors of the three directions. b: bias, or NULL. hint: the forward descriptor. */
static inline dnnl_status_t conv_fwd_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t e, md_in s,
                                        md_in w, md_in b, md_in d, const conv_geometry *g,
                                        const_dnnl_primitive_attr_t a)
{
    const dnnl_dims_t zero = {0, 0};
    return dnnl_convolution_forward_primitive_desc_create(pd, e, dnnl_forward_training,
                                                          dnnl_convolution_direct, s, w, b, d,
                                                          g->stride, zero, g->before, g->after, a);
}
static inline dnnl_status_t conv_data_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t e, md_in s,
                                         md_in w, md_in d, const conv_geometry *g,
                                         const_dnnl_primitive_attr_t a,
                                         const_dnnl_primitive_desc_t hint)
{
    const dnnl_dims_t zero = {0, 0};
    return dnnl_convolution_backward_data_primitive_desc_create(
        pd, e, dnnl_convolution_direct, s, w, d, g->stride, zero, g->before, g->after, hint, a);
}
static inline dnnl_status_t conv_weights_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t e, md_in s,
                                            md_in w, md_in b, md_in d, const conv_geometry *g,
                                            const_dnnl_primitive_attr_t a,
                                            const_dnnl_primitive_desc_t hint)
{
    const dnnl_dims_t zero = {0, 0};
    return dnnl_convolution_backward_weights_primitive_desc_create(
        pd, e, dnnl_convolution_direct, s, w, b, d, g->stride, zero, g->before, g->after, hint, a);
}
#else
/* A plain struct. */
typedef dnnl_memory_desc_t md_ptr;
typedef const dnnl_memory_desc_t *md_in;
#define MD_REF(x) (&(x))
static inline dnnl_status_t md_make(md_ptr *md, int n, const dnnl_dims_t d, dnnl_data_type_t t,
                                    dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_init_by_tag(md, n, d, t, tag);
}
#define md_free(md) ((void)(md))
static inline size_t md_size(md_in md)
{
    return dnnl_memory_desc_get_size(md);
}
static inline bool md_equal(md_in a, md_in b)
{
    return dnnl_memory_desc_equal(a, b) != 0;
}
static inline int64_t md_strip(md_in md, int64_t *length, bool *pairs)
{
    const dnnl_blocking_desc_t *f = &md->format_desc.blocking;
    return strip_of(f->inner_nblks, f->inner_blks, f->inner_idxs, f->strides, length, pairs);
}
static inline dnnl_status_t conv_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t e, md_in s, md_in w,
                                    md_in d, const_dnnl_primitive_attr_t a)
{
    const dnnl_dims_t one = {1, 1}, zero = {0, 0};
    dnnl_convolution_desc_t cd;
    dnnl_status_t r = dnnl_convolution_forward_desc_init(
        &cd, dnnl_forward_inference, dnnl_convolution_direct, s, w, NULL, d, one, zero, zero);
    return r == dnnl_success ? dnnl_primitive_desc_create(pd, &cd, a, e, NULL) : r;
}
static inline dnnl_status_t matmul_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t e, md_in s, md_in w,
                                      md_in d, const_dnnl_primitive_attr_t a)
{
    dnnl_matmul_desc_t md;
    dnnl_status_t r = dnnl_matmul_desc_init(&md, s, w, NULL, d);
    return r == dnnl_success ? dnnl_primitive_desc_create(pd, &md, a, e, NULL) : r;
}
static inline dnnl_status_t append_sum(dnnl_post_ops_t p)
{
    return dnnl_post_ops_append_sum(p, 1.0f);
}
static inline dnnl_status_t append_relu(dnnl_post_ops_t p)
{
    return dnnl_post_ops_append_eltwise(p, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f);
}
static inline dnnl_status_t md_copy(md_ptr *to, md_in from)
{
    *to = *from;
    return dnnl_success;
}
/* Make the descriptors of the three directions. b: bias, or NULL. hint: the forward descriptor. */
static inline dnnl_status_t conv_fwd_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t e, md_in s,
                                        md_in w, md_in b, md_in d, const conv_geometry *g,
                                        const_dnnl_primitive_attr_t a)
{
    dnnl_convolution_desc_t cd;
    dnnl_status_t r = dnnl_convolution_forward_desc_init(&cd, dnnl_forward_training,
                                                         dnnl_convolution_direct, s, w, b, d,
                                                         g->stride, g->before, g->after);
    return r == dnnl_success ? dnnl_primitive_desc_create(pd, &cd, a, e, NULL) : r;
}
static inline dnnl_status_t conv_data_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t e, md_in s,
                                         md_in w, md_in d, const conv_geometry *g,
                                         const_dnnl_primitive_attr_t a,
                                         const_dnnl_primitive_desc_t hint)
{
    dnnl_convolution_desc_t cd;
    dnnl_status_t r = dnnl_convolution_backward_data_desc_init(&cd, dnnl_convolution_direct, s, w,
                                                               d, g->stride, g->before, g->after);
    return r == dnnl_success ? dnnl_primitive_desc_create(pd, &cd, a, e, hint) : r;
}
static inline dnnl_status_t conv_weights_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t e, md_in s,
                                            md_in w, md_in b, md_in d, const conv_geometry *g,
                                            const_dnnl_primitive_attr_t a,
                                            const_dnnl_primitive_desc_t hint)
{
    dnnl_convolution_desc_t cd;
    dnnl_status_t r = dnnl_convolution_backward_weights_desc_init(
        &cd, dnnl_convolution_direct, s, w, b, d, g->stride, g->before, g->after);
    return r == dnnl_success ? dnnl_primitive_desc_create(pd, &cd, a, e, hint) : r;
}
#endif

#endif
