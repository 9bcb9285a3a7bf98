/* cpu_conv_kernel.c -- makes oneDNN's kernels for convolutions, and reorders.
 *
 * For each direction it first asks for a fast kernel that takes images in the order of the
 * variables. The next choice is a fast kernel with reorders, the last is any kernel. */
#include "cpu_conv_impl.h"
#include <inttypes.h>
#include <stdlib.h>

void conv_reorder_free(reorder *m)
{
    if (m->from) dnnl_memory_destroy(m->from);
    if (m->to) dnnl_memory_destroy(m->to);
    if (m->pad) dnnl_memory_destroy(m->pad);
    if (m->prim) dnnl_primitive_destroy(m->prim);
    memset(m, 0, sizeof *m);
}

void conv_kernel_free(kernel *k)
{
    const dnnl_memory_t m[] = {k->mx, k->mw, k->my, k->mb, k->pad};
    for (size_t i = 0; i < sizeof m / sizeof *m; i++)
        if (m[i]) dnnl_memory_destroy(m[i]);
    if (k->prim) dnnl_primitive_destroy(k->prim);
    if (k->has_x) md_free(k->x);
    if (k->has_w) md_free(k->w);
    if (k->has_y) md_free(k->y);
    conv_reorder_free(&k->reorder_x);
    conv_reorder_free(&k->reorder_y);
    conv_reorder_free(&k->reorder_w);
    memset(k, 0, sizeof *k);
}

static dnnl_format_tag_t tag_of(int64_t block)
{
    return block == 8 ? dnnl_nChw8c : block == 16 ? dnnl_nChw16c : dnnl_nhwc;
}

/* ---- reorders ---- */
rd_code conv_reorder_make(rd_cpu *b, md_in from, md_in to, bool add, reorder *m, rd_status *st)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_primitive_desc_t pd = NULL;
    TRY_DNNL(dnnl_primitive_attr_create(&attr));
    TRY_DNNL(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    if (add) {
        TRY_DNNL(dnnl_post_ops_create(&ops));
        TRY_DNNL(append_sum(ops));
        TRY_DNNL(dnnl_primitive_attr_set_post_ops(attr, ops));
    }
    TRY_DNNL(dnnl_reorder_primitive_desc_create(&pd, from, b->engine, to, b->engine, attr));
    md_in pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    m->pad_bytes = pad ? md_size(pad) : 0;
    if (m->pad_bytes) TRY_DNNL(dnnl_memory_create(&m->pad, pad, b->engine, DNNL_MEMORY_NONE));
    TRY_DNNL(dnnl_memory_create(&m->from, from, b->engine, DNNL_MEMORY_NONE));
    TRY_DNNL(dnnl_memory_create(&m->to, to, b->engine, DNNL_MEMORY_NONE));
    TRY_DNNL(dnnl_primitive_create(&m->prim, pd));
done:
    if (st->code != RD_OK) conv_reorder_free(m);
    if (pd) dnnl_primitive_desc_destroy(pd);
    if (ops) dnnl_post_ops_destroy(ops);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return st->code;
}

rd_code conv_reorder_run(rd_cpu *b, reorder *m, const void *from, void *to, rd_status *st)
{
    rd_convs *c = b->convs;
    dnnl_exec_arg_t args[3] = {
        {DNNL_ARG_FROM, m->from}, {DNNL_ARG_TO, m->to}, {DNNL_ARG_SCRATCHPAD, m->pad}};
    if (m->pad) {
        RD_TRY(rd_cpu_buffer_reserve(&c->pad, m->pad_bytes, st));
        TRY_DNNL(dnnl_memory_set_data_handle(m->pad, c->pad.p));
    }
    TRY_DNNL(dnnl_memory_set_data_handle(m->from, conv_without_const(from)));
    TRY_DNNL(dnnl_memory_set_data_handle(m->to, to));
    TRY_DNNL(dnnl_primitive_execute(m->prim, b->stream, m->pad ? 3 : 2, args));
    TRY_DNNL(dnnl_stream_wait(b->stream));
done:
    return st->code;
}

/* ---- kernels ---- */
static bool cpu_conv_kernel_fast(const char *impl)
{
    return (strstr(impl, "jit") || strstr(impl, "brg")) && !strstr(impl, "gemm");
}

static rd_code md_of_image(md_ptr *md, int64_t n, int64_t h, int64_t w, int64_t c,
                           dnnl_data_type_t t, dnnl_format_tag_t tag, rd_status *st)
{
    const dnnl_dims_t d = {n, c, h, w};
    TRY_DNNL(md_make(md, 4, d, t, tag));
done:
    return st->code;
}

/* Makes the primitive descriptor of one direction for these orders of images. *pd NULL: the library
 * has none. */
static rd_code cpu_conv_kernel_describe(rd_cpu *b, const rd_conv_shape *s, role r,
                                        dnnl_format_tag_t x_tag, dnnl_format_tag_t y_tag,
                                        dnnl_primitive_desc_t *pd, rd_status *st)
{
    const int64_t oh = conv_out_size(s->h, s->top, s->bottom, s->kh, s->stride),
                  ow = conv_out_size(s->w, s->left, s->right, s->kw, s->stride);
    const dnnl_dims_t dw = {s->co, s->ci, s->kh, s->kw}, db = {s->co};
    /* The library needs sizes that fit: pixels that the last window does not reach are no
     * padding. */
    conv_geometry g = {{s->stride, s->stride}, {s->top, s->left}, {0, 0}};
    g.after[0] = (oh - 1) * s->stride + s->kh - s->h - s->top;
    g.after[1] = (ow - 1) * s->stride + s->kw - s->w - s->left;
    const dnnl_data_type_t in = conv_in_type(b);
    md_ptr x, w, y, bias;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_primitive_desc_t hint = NULL;
    int n_md = 0;
    *pd = NULL;
    RD_TRY(md_of_image(&x, s->n, s->h, s->w, s->ci, r == DATA ? dnnl_f32 : in, x_tag, st));
    n_md++;
    RD_TRY(md_of_image(&y, s->n, oh, ow, s->co, r == FORWARD ? dnnl_f32 : in, y_tag, st));
    n_md++;
    TRY_DNNL(md_make(&w, 4, dw, r == WEIGHTS ? dnnl_f32 : in, dnnl_format_tag_any));
    n_md++;
    TRY_DNNL(md_make(&bias, 1, db, dnnl_f32, dnnl_a));
    n_md++;
    TRY_DNNL(dnnl_primitive_attr_create(&attr));
    TRY_DNNL(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    if (r == FORWARD) {
        if (s->relu) {
            TRY_DNNL(dnnl_post_ops_create(&ops));
            TRY_DNNL(append_relu(ops));
            TRY_DNNL(dnnl_primitive_attr_set_post_ops(attr, ops));
        }
        if (conv_fwd_pd(pd, b->engine, MD_REF(x), MD_REF(w), s->bias ? MD_REF(bias) : NULL,
                        MD_REF(y), &g, attr) != dnnl_success)
            *pd = NULL;
        goto done;
    }
    /* The hint may have any layout: it only shows that a forward kernel exists. */
    md_ptr hx, hw, hy;
    RD_TRY(md_of_image(&hx, s->n, s->h, s->w, s->ci, in, dnnl_format_tag_any, st));
    RD_TRY(md_of_image(&hy, s->n, oh, ow, s->co, in, dnnl_format_tag_any, st));
    TRY_DNNL(md_make(&hw, 4, dw, in, dnnl_format_tag_any));
    if (conv_fwd_pd(&hint, b->engine, MD_REF(hx), MD_REF(hw), NULL, MD_REF(hy), &g, NULL) ==
        dnnl_success) {
        const dnnl_status_t got =
            r == DATA ? conv_data_pd(pd, b->engine, MD_REF(x), MD_REF(w), MD_REF(y), &g, attr, hint)
                      : conv_weights_pd(pd, b->engine, MD_REF(x), MD_REF(w),
                                        s->bias ? MD_REF(bias) : NULL, MD_REF(y), &g, attr, hint);
        if (got != dnnl_success) *pd = NULL;
    }
    md_free(hx);
    md_free(hy);
    md_free(hw);
done:
    if (hint) dnnl_primitive_desc_destroy(hint);
    if (ops) dnnl_post_ops_destroy(ops);
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (n_md > 0) md_free(x);
    if (n_md > 1) md_free(y);
    if (n_md > 2) md_free(w);
    if (n_md > 3) md_free(bias);
    return st->code;
}

/* Finds the best descriptor: fast without reorders, else fast with reorders, else any. */
static rd_code cpu_conv_kernel_choose(rd_cpu *b, const rd_conv_shape *s, role r,
                                      dnnl_primitive_desc_t *pd, rd_status *st)
{
    const dnnl_format_tag_t own_x = tag_of(s->block), own_y = tag_of(b->convs->block),
                            any = dnnl_format_tag_any;
    const dnnl_format_tag_t tags[][2] = {{own_x, own_y}, {any, own_y}, {any, any}};
    dnnl_primitive_desc_t slow = NULL;
    *pd = NULL;
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        const char *impl = "";
        RD_TRY(cpu_conv_kernel_describe(b, s, r, tags[i][0], tags[i][1], pd, st));
        if (!*pd) continue;
        TRY_DNNL(dnnl_primitive_desc_query(*pd, dnnl_query_impl_info_str, 0, (void *)&impl));
        if (cpu_conv_kernel_fast(impl)) break;
        /* Only the last slow descriptor is kept: the library chose its layouts. */
        if (slow) dnnl_primitive_desc_destroy(slow);
        slow = *pd;
        *pd = NULL;
    }
    if (!*pd) {
        *pd = slow;
        slow = NULL;
    }
    if (!*pd)
        rd_fail(st, RD_EENV,
                "oneDNN has no convolution of %" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64
                " by %" PRId64 "x%" PRId64 " to %" PRId64 " channels on this CPU",
                s->n, s->h, s->w, s->ci, s->kh, s->kw, s->co);
done:
    if (slow) dnnl_primitive_desc_destroy(slow);
    return st->code;
}

rd_code conv_kernel_make(rd_cpu *b, const rd_conv_shape *s, role r, kernel *k, rd_status *st)
{
    const int64_t oh = conv_out_size(s->h, s->top, s->bottom, s->kh, s->stride),
                  ow = conv_out_size(s->w, s->left, s->right, s->kw, s->stride);
    const dnnl_dims_t dw = {s->co, s->ci, s->kh, s->kw}, db = {s->co};
    md_ptr x, y, w, bias;
    int n_md = 0;
    dnnl_primitive_desc_t pd = NULL;
    RD_TRY(cpu_conv_kernel_choose(b, s, r, &pd, st));
    TRY_DNNL(md_copy(&k->x, dnnl_primitive_desc_query_md(
                                pd, r == DATA ? dnnl_query_diff_src_md : dnnl_query_src_md, 0)));
    k->has_x = true;
    TRY_DNNL(md_copy(&k->y, dnnl_primitive_desc_query_md(
                                pd, r == FORWARD ? dnnl_query_dst_md : dnnl_query_diff_dst_md, 0)));
    k->has_y = true;
    TRY_DNNL(md_copy(
        &k->w, dnnl_primitive_desc_query_md(
                   pd, r == WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0)));
    k->has_w = true;
    RD_TRY(md_of_image(&x, s->n, s->h, s->w, s->ci, dnnl_f32, tag_of(s->block), st));
    n_md++;
    RD_TRY(md_of_image(&y, s->n, oh, ow, s->co, dnnl_f32, tag_of(b->convs->block), st));
    n_md++;
    TRY_DNNL(md_make(&w, 4, dw, dnnl_f32, dnnl_hwio));
    n_md++;
    TRY_DNNL(md_make(&bias, 1, db, dnnl_f32, dnnl_a));
    n_md++;
    if (!md_equal(MD_REF(x), MD_REF(k->x)))
        RD_TRY(r == DATA ? conv_reorder_make(b, MD_REF(k->x), MD_REF(x), false, &k->reorder_x, st)
                         : conv_reorder_make(b, MD_REF(x), MD_REF(k->x), false, &k->reorder_x, st));
    if (!md_equal(MD_REF(y), MD_REF(k->y)))
        RD_TRY(r == FORWARD
                   ? conv_reorder_make(b, MD_REF(k->y), MD_REF(y), false, &k->reorder_y, st)
                   : conv_reorder_make(b, MD_REF(y), MD_REF(k->y), false, &k->reorder_y, st));
    if (r == WEIGHTS)
        RD_TRY(conv_reorder_make(b, MD_REF(k->w), MD_REF(w), true, &k->reorder_w, st));
    md_in pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    k->pad_bytes = pad ? md_size(pad) : 0;
    if (k->pad_bytes) TRY_DNNL(dnnl_memory_create(&k->pad, pad, b->engine, DNNL_MEMORY_NONE));
    TRY_DNNL(dnnl_memory_create(&k->mx, MD_REF(k->x), b->engine, DNNL_MEMORY_NONE));
    TRY_DNNL(dnnl_memory_create(&k->my, MD_REF(k->y), b->engine, DNNL_MEMORY_NONE));
    TRY_DNNL(dnnl_memory_create(&k->mw, MD_REF(k->w), b->engine, DNNL_MEMORY_NONE));
    if (s->bias && r != DATA)
        TRY_DNNL(dnnl_memory_create(&k->mb, MD_REF(bias), b->engine, DNNL_MEMORY_NONE));
    TRY_DNNL(dnnl_primitive_create(&k->prim, pd));
    k->made = true;
done:
    if (st->code != RD_OK) conv_kernel_free(k);
    if (pd) dnnl_primitive_desc_destroy(pd);
    if (n_md > 0) md_free(x);
    if (n_md > 1) md_free(y);
    if (n_md > 2) md_free(w);
    if (n_md > 3) md_free(bias);
    return st->code;
}

/* The layout of results is the one that the library chooses for a convolution in the middle of a
 * network. */
rd_code conv_start(rd_cpu *b, rd_status *st)
{
    const rd_conv_shape probe = {.n = 1,
                                 .h = 14,
                                 .w = 14,
                                 .ci = 64,
                                 .kh = 3,
                                 .kw = 3,
                                 .co = 64,
                                 .stride = 1,
                                 .top = 1,
                                 .left = 1,
                                 .bottom = 1,
                                 .right = 1};
    dnnl_primitive_desc_t pd = NULL;
    rd_convs *c = b->convs = calloc(1, sizeof *c);
    if (!c) return rd_fail(st, RD_EENV, "out of memory for convolutions");
    const char *own = getenv("RD_OWN_KERNELS");
    c->library_only = own && strcmp(own, "0") == 0;
    RD_TRY(cpu_conv_kernel_describe(b, &probe, FORWARD, dnnl_format_tag_any, dnnl_format_tag_any,
                                    &pd, st));
    for (int64_t block = 8; pd && block <= 16; block += 8) {
        md_ptr y;
        RD_TRY(md_of_image(&y, probe.n, probe.h, probe.w, probe.co, dnnl_f32, tag_of(block), st));
        if (md_equal(MD_REF(y), dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0)))
            c->block = block;
        md_free(y);
    }
done:
    if (pd) dnnl_primitive_desc_destroy(pd);
    return st->code;
}

rd_code rd_cpu_conv_layout(rd_backend *be, const void **layout, rd_status *st)
{
    rd_cpu *b = rd_cpu_of(be);
    if (!b->convs) RD_TRY(conv_start(b, st));
    *layout = rd_image_layout_of(b->convs->block);
done:
    return st->code;
}
