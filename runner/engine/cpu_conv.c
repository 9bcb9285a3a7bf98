/* cpu_conv.c -- convolutions of the CPU backend, by oneDNN. Knows oneDNN, with dnnl_seam.h for 2.6 and 3.x.
 *
 * A convolution of one shape has three kernels: forward, gradient of the data, gradient of the weights. Each is made when
 * it is first asked for and kept. It takes images in the order the variables have where the library has a fast kernel
 * for that; else a reorder goes in between (images of one or three channels: the library wants NCHW).
 *
 * Weights are kept as HWIO in the parameters. Kernels want them blocked, the forward one differently from the one for
 * the data; both copies are made again when rd_params_version has moved. The gradient of the weights comes blocked, and
 * is added to the arena by a reorder.
 *
 * mixed: the operands of each of the three products are rounded to bfloat16, sums are float32; results and gradients are
 * stored as float32. */
#include "cpu_impl.h"
#include "cpu_conv_weights.h"
#include "cpu_winograd.h"
#include "image_kernels.h"
#include <stdlib.h>

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
    conv *conv;
    blocked *weights;
    spread *spread;
    rd_room pad, soft, x, y, w, bias, own;
};

static void mover_free(mover *m)
{
    if (m->from) dnnl_memory_destroy(m->from);
    if (m->to) dnnl_memory_destroy(m->to);
    if (m->pad) dnnl_memory_destroy(m->pad);
    if (m->prim) dnnl_primitive_destroy(m->prim);
    memset(m, 0, sizeof *m);
}

static void kernel_free(kernel *k)
{
    const dnnl_memory_t m[] = {k->mx, k->mw, k->my, k->mb, k->pad};
    for (size_t i = 0; i < sizeof m / sizeof *m; i++)
        if (m[i]) dnnl_memory_destroy(m[i]);
    if (k->prim) dnnl_primitive_destroy(k->prim);
    if (k->has_x) md_free(k->x);
    if (k->has_w) md_free(k->w);
    if (k->has_y) md_free(k->y);
    mover_free(&k->move_x);
    mover_free(&k->move_y);
    mover_free(&k->move_w);
    memset(k, 0, sizeof *k);
}

void rd_convs_free(rd_convs *c)
{
    if (!c) return;
    while (c->conv) {
        conv *p = c->conv;
        c->conv = p->next;
        for (int i = 0; i < 3; i++) kernel_free(&p->k[i]);
        free(p);
    }
    while (c->weights) {
        blocked *p = c->weights;
        c->weights = p->next;
        mover_free(&p->pack);
        if (p->has_md) md_free(p->md);
        free(p->mem);
        free(p);
    }
    while (c->spread) {
        spread *p = c->spread;
        c->spread = p->next;
        free(p->mem);
        free(p);
    }
    rd_room *rooms[] = {&c->pad, &c->soft, &c->x, &c->y, &c->w, &c->bias, &c->own};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) rd_room_free(rooms[i]);
    free(c);
}

static dnnl_data_type_t in_type(const rd_backend *b)
{
    return b->mixed && b->bf16_hw ? dnnl_bf16 : dnnl_f32;
}

static dnnl_format_tag_t tag_of(int64_t block)
{
    return block == 8 ? dnnl_nChw8c : block == 16 ? dnnl_nChw16c : dnnl_nhwc;
}

/* ---- reorders ---- */
static rd_code mover_make(rd_backend *b, md_in from, md_in to, bool add, mover *m, rd_status *st)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_primitive_desc_t pd = NULL;
    DNNL(dnnl_primitive_attr_create(&attr));
    DNNL(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    if (add) {
        DNNL(dnnl_post_ops_create(&ops));
        DNNL(append_sum(ops));
        DNNL(dnnl_primitive_attr_set_post_ops(attr, ops));
    }
    DNNL(dnnl_reorder_primitive_desc_create(&pd, from, b->engine, to, b->engine, attr));
    md_in pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    m->pad_bytes = pad ? md_size(pad) : 0;
    if (m->pad_bytes) DNNL(dnnl_memory_create(&m->pad, pad, b->engine, DNNL_MEMORY_NONE));
    DNNL(dnnl_memory_create(&m->from, from, b->engine, DNNL_MEMORY_NONE));
    DNNL(dnnl_memory_create(&m->to, to, b->engine, DNNL_MEMORY_NONE));
    DNNL(dnnl_primitive_create(&m->prim, pd));
done:
    if (st->code != RD_OK) mover_free(m);
    if (pd) dnnl_primitive_desc_destroy(pd);
    if (ops) dnnl_post_ops_destroy(ops);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return st->code;
}

/* The library's interface has no const. */
static void *plain(const void *x)
{
    void *p;
    memcpy(&p, &x, sizeof p);
    return p;
}

static rd_code move(rd_backend *b, mover *m, const void *from, void *to, rd_status *st)
{
    rd_convs *c = b->convs;
    dnnl_exec_arg_t args[3] = {{DNNL_ARG_FROM, m->from}, {DNNL_ARG_TO, m->to}, {DNNL_ARG_SCRATCHPAD, m->pad}};
    if (m->pad) {
        RD_TRY(rd_room_get(&c->pad, m->pad_bytes, st));
        DNNL(dnnl_memory_set_data_handle(m->pad, c->pad.p));
    }
    DNNL(dnnl_memory_set_data_handle(m->from, plain(from)));
    DNNL(dnnl_memory_set_data_handle(m->to, to));
    DNNL(dnnl_primitive_execute(m->prim, b->stream, m->pad ? 3 : 2, args));
    DNNL(dnnl_stream_wait(b->stream));
done:
    return st->code;
}

/* ---- kernels ---- */
static int64_t out_size(int64_t in, int64_t before, int64_t after, int64_t k, int64_t stride)
{
    return (in + before + after - k) / stride + 1;
}

static bool fast(const char *impl)
{
    return (strstr(impl, "jit") || strstr(impl, "brg")) && !strstr(impl, "gemm");
}

static rd_code md_of_image(md_ptr *md, int64_t n, int64_t h, int64_t w, int64_t c, dnnl_data_type_t t,
                           dnnl_format_tag_t tag, rd_status *st)
{
    const dnnl_dims_t d = {n, c, h, w};
    DNNL(md_make(md, 4, d, t, tag));
done:
    return st->code;
}

/* The primitive descriptor of one direction for these orders of images; *pd NULL where the library has none. */
static rd_code describe(rd_backend *b, const rd_conv_shape *s, role r, dnnl_format_tag_t x_tag, dnnl_format_tag_t y_tag,
                        dnnl_primitive_desc_t *pd, rd_status *st)
{
    const int64_t oh = out_size(s->h, s->top, s->bottom, s->kh, s->stride),
                  ow = out_size(s->w, s->left, s->right, s->kw, s->stride);
    const dnnl_dims_t dw = {s->co, s->ci, s->kh, s->kw}, db = {s->co};
    /* What the last window does not reach is no padding: the library wants the sizes to fit. */
    conv_geometry g = {{s->stride, s->stride}, {s->top, s->left}, {0, 0}};
    g.after[0] = (oh - 1) * s->stride + s->kh - s->h - s->top;
    g.after[1] = (ow - 1) * s->stride + s->kw - s->w - s->left;
    const dnnl_data_type_t in = in_type(b);
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
    DNNL(md_make(&w, 4, dw, r == WEIGHTS ? dnnl_f32 : in, dnnl_format_tag_any));
    n_md++;
    DNNL(md_make(&bias, 1, db, dnnl_f32, dnnl_a));
    n_md++;
    DNNL(dnnl_primitive_attr_create(&attr));
    DNNL(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    if (r == FORWARD) {
        if (s->relu) {
            DNNL(dnnl_post_ops_create(&ops));
            DNNL(append_relu(ops));
            DNNL(dnnl_primitive_attr_set_post_ops(attr, ops));
        }
        if (conv_fwd_pd(pd, b->engine, MD_REF(x), MD_REF(w), s->bias ? MD_REF(bias) : NULL, MD_REF(y), &g, attr) !=
            dnnl_success)
            *pd = NULL;
        goto done;
    }
    /* The hint may have any layout: it only says that there is a forward one. */
    md_ptr hx, hw, hy;
    RD_TRY(md_of_image(&hx, s->n, s->h, s->w, s->ci, in, dnnl_format_tag_any, st));
    RD_TRY(md_of_image(&hy, s->n, oh, ow, s->co, in, dnnl_format_tag_any, st));
    DNNL(md_make(&hw, 4, dw, in, dnnl_format_tag_any));
    if (conv_fwd_pd(&hint, b->engine, MD_REF(hx), MD_REF(hw), NULL, MD_REF(hy), &g, NULL) == dnnl_success) {
        const dnnl_status_t got = r == DATA
                                      ? conv_data_pd(pd, b->engine, MD_REF(x), MD_REF(w), MD_REF(y), &g, attr, hint)
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

/* The best descriptor: fast and without reorders, fast with them, any. */
static rd_code choose(rd_backend *b, const rd_conv_shape *s, role r, dnnl_primitive_desc_t *pd, rd_status *st)
{
    const dnnl_format_tag_t own_x = tag_of(s->block), own_y = tag_of(b->convs->block), any = dnnl_format_tag_any;
    const dnnl_format_tag_t tags[][2] = {{own_x, own_y}, {any, own_y}, {any, any}};
    dnnl_primitive_desc_t slow = NULL;
    *pd = NULL;
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        const char *impl = "";
        RD_TRY(describe(b, s, r, tags[i][0], tags[i][1], pd, st));
        if (!*pd) continue;
        DNNL(dnnl_primitive_desc_query(*pd, dnnl_query_impl_info_str, 0, (void *)&impl));
        if (fast(impl)) break;
        if (slow) dnnl_primitive_desc_destroy(slow); /* the last one: with the layouts that the library chose */
        slow = *pd;
        *pd = NULL;
    }
    if (!*pd) {
        *pd = slow;
        slow = NULL;
    }
    if (!*pd)
        rd_fail(st, RD_EENV,
                "oneDNN has no convolution of %lldx%lldx%lldx%lld by %lldx%lld to %lld channels on this processor",
                (long long)s->n, (long long)s->h, (long long)s->w, (long long)s->ci, (long long)s->kh,
                (long long)s->kw, (long long)s->co);
done:
    if (slow) dnnl_primitive_desc_destroy(slow);
    return st->code;
}

static rd_code kernel_make(rd_backend *b, const rd_conv_shape *s, role r, kernel *k, rd_status *st)
{
    const int64_t oh = out_size(s->h, s->top, s->bottom, s->kh, s->stride),
                  ow = out_size(s->w, s->left, s->right, s->kw, s->stride);
    const dnnl_dims_t dw = {s->co, s->ci, s->kh, s->kw}, db = {s->co};
    md_ptr x, y, w, bias;
    int n_md = 0;
    dnnl_primitive_desc_t pd = NULL;
    RD_TRY(choose(b, s, r, &pd, st));
    DNNL(md_copy(&k->x, dnnl_primitive_desc_query_md(pd, r == DATA ? dnnl_query_diff_src_md : dnnl_query_src_md, 0)));
    k->has_x = true;
    DNNL(md_copy(&k->y, dnnl_primitive_desc_query_md(pd, r == FORWARD ? dnnl_query_dst_md : dnnl_query_diff_dst_md, 0)));
    k->has_y = true;
    DNNL(md_copy(
        &k->w, dnnl_primitive_desc_query_md(pd, r == WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0)));
    k->has_w = true;
    RD_TRY(md_of_image(&x, s->n, s->h, s->w, s->ci, dnnl_f32, tag_of(s->block), st));
    n_md++;
    RD_TRY(md_of_image(&y, s->n, oh, ow, s->co, dnnl_f32, tag_of(b->convs->block), st));
    n_md++;
    DNNL(md_make(&w, 4, dw, dnnl_f32, dnnl_hwio));
    n_md++;
    DNNL(md_make(&bias, 1, db, dnnl_f32, dnnl_a));
    n_md++;
    if (!md_equal(MD_REF(x), MD_REF(k->x)))
        RD_TRY(r == DATA ? mover_make(b, MD_REF(k->x), MD_REF(x), false, &k->move_x, st)
                         : mover_make(b, MD_REF(x), MD_REF(k->x), false, &k->move_x, st));
    if (!md_equal(MD_REF(y), MD_REF(k->y)))
        RD_TRY(r == FORWARD ? mover_make(b, MD_REF(k->y), MD_REF(y), false, &k->move_y, st)
                            : mover_make(b, MD_REF(y), MD_REF(k->y), false, &k->move_y, st));
    if (r == WEIGHTS) RD_TRY(mover_make(b, MD_REF(k->w), MD_REF(w), true, &k->move_w, st));
    md_in pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    k->pad_bytes = pad ? md_size(pad) : 0;
    if (k->pad_bytes) DNNL(dnnl_memory_create(&k->pad, pad, b->engine, DNNL_MEMORY_NONE));
    DNNL(dnnl_memory_create(&k->mx, MD_REF(k->x), b->engine, DNNL_MEMORY_NONE));
    DNNL(dnnl_memory_create(&k->my, MD_REF(k->y), b->engine, DNNL_MEMORY_NONE));
    DNNL(dnnl_memory_create(&k->mw, MD_REF(k->w), b->engine, DNNL_MEMORY_NONE));
    if (s->bias && r != DATA) DNNL(dnnl_memory_create(&k->mb, MD_REF(bias), b->engine, DNNL_MEMORY_NONE));
    DNNL(dnnl_primitive_create(&k->prim, pd));
    k->made = true;
done:
    if (st->code != RD_OK) kernel_free(k);
    if (pd) dnnl_primitive_desc_destroy(pd);
    if (n_md > 0) md_free(x);
    if (n_md > 1) md_free(y);
    if (n_md > 2) md_free(w);
    if (n_md > 3) md_free(bias);
    return st->code;
}

/* Which order `any` chooses for a convolution in the middle of a network. */
static rd_code convs_make(rd_backend *b, rd_status *st)
{
    const rd_conv_shape probe = {
        .n = 1, .h = 14, .w = 14, .ci = 64, .kh = 3, .kw = 3, .co = 64, .stride = 1, .top = 1, .left = 1, .bottom = 1,
        .right = 1};
    dnnl_primitive_desc_t pd = NULL;
    rd_convs *c = b->convs = calloc(1, sizeof *c);
    if (!c) return rd_fail(st, RD_EENV, "out of memory for convolutions");
    RD_TRY(describe(b, &probe, FORWARD, dnnl_format_tag_any, dnnl_format_tag_any, &pd, st));
    for (int64_t block = 8; pd && block <= 16; block += 8) {
        md_ptr y;
        RD_TRY(md_of_image(&y, probe.n, probe.h, probe.w, probe.co, dnnl_f32, tag_of(block), st));
        if (md_equal(MD_REF(y), dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0))) c->block = block;
        md_free(y);
    }
done:
    if (pd) dnnl_primitive_desc_destroy(pd);
    return st->code;
}

rd_code rd_conv_layout(rd_backend *b, const void **layout, rd_status *st)
{
    if (!b->convs) RD_TRY(convs_make(b, st));
    *layout = rd_image_layout_of(b->convs->block);
done:
    return st->code;
}

static bool same_shape(const rd_conv_shape *a, const rd_conv_shape *b)
{
    return a->n == b->n && a->h == b->h && a->w == b->w && a->ci == b->ci && a->kh == b->kh && a->kw == b->kw &&
           a->co == b->co && a->stride == b->stride && a->top == b->top && a->left == b->left &&
           a->bottom == b->bottom && a->right == b->right && a->block == b->block && a->bias == b->bias &&
           a->relu == b->relu;
}

static rd_code find(rd_backend *b, const rd_conv_shape *s, role r, kernel **out, rd_status *st)
{
    if (!b->convs) RD_TRY(convs_make(b, st));
    conv *p = b->convs->conv;
    while (p && !same_shape(&p->s, s)) p = p->next;
    if (!p) {
        p = calloc(1, sizeof *p);
        if (!p) return rd_fail(st, RD_EENV, "out of memory for a convolution");
        p->s = *s;
        p->next = b->convs->conv;
        b->convs->conv = p;
    }
    *out = &p->k[r];
    if (!p->k[r].made) RD_TRY(kernel_make(b, s, r, &p->k[r], st));
done:
    return st->code;
}

/* ---- weights ---- */
static rd_code weights_make(rd_backend *b, const rd_param *w, const rd_conv_shape *s, md_in md, blocked **out,
                            rd_status *st)
{
    const dnnl_dims_t dw = {s->co, s->ci, s->kh, s->kw};
    md_ptr hwio;
    bool has = false;
    blocked *p = *out = calloc(1, sizeof *p);
    if (!p) return rd_fail(st, RD_EENV, "out of memory for packed weights");
    p->next = b->convs->weights;
    b->convs->weights = p;
    DNNL(md_copy(&p->md, md));
    p->has_md = true;
    p->mem = aligned_alloc(64, (md_size(md) + 127) / 64 * 64);
    if (!p->mem) {
        rd_fail(st, RD_EENV, "out of memory for packed weights (%zu bytes)", md_size(md));
        goto done;
    }
    DNNL(md_make(&hwio, 4, dw, dnnl_f32, dnnl_hwio));
    has = true;
    RD_TRY(mover_make(b, MD_REF(hwio), md, false, &p->pack, st));
    p->w = w; /* the last thing: one that is not whole is never found */
done:
    if (has) md_free(hwio);
    return st->code;
}

/* The parameter as it is, or rounded where bfloat16 is emulated (in c->soft). */
static rd_code values_of(rd_backend *b, const rd_params *ps, const rd_param *w, const float **out, rd_status *st)
{
    *out = rd_params_values(ps) + w->offset;
    if (!b->mixed || b->bf16_hw) return RD_OK;
    RD_TRY(rd_room_get(&b->convs->soft, (size_t)w->n * sizeof(float), st));
    rd_to_soft(*out, b->convs->soft.p, w->n);
    *out = b->convs->soft.p;
done:
    return st->code;
}

/* The parameter in the layout of this kernel, up to date. */
static rd_code weights_get(rd_backend *b, const rd_conv_shape *s, const rd_params *ps, const rd_param *w,
                           const kernel *k, void **out, rd_status *st)
{
    blocked *p = b->convs->weights;
    while (p && !(p->w == w && md_equal(MD_REF(p->md), MD_REF(k->w)))) p = p->next;
    if (!p) RD_TRY(weights_make(b, w, s, MD_REF(k->w), &p, st));
    *out = p->mem;
    if (p->version == rd_params_version(ps)) return RD_OK;
    const float *from;
    RD_TRY(values_of(b, ps, w, &from, st));
    RD_TRY(move(b, &p->pack, from, p->mem, st));
    p->version = rd_params_version(ps);
done:
    return st->code;
}

/* The same for cpu_winograd.c. */
static rd_code spread_get(rd_backend *b, const rd_winograd *g, const rd_params *ps, const rd_param *w,
                          const float **out, rd_status *st)
{
    spread *p = b->convs->spread;
    while (p && !(p->w == w && p->flip == g->flip)) p = p->next;
    if (!p) {
        p = calloc(1, sizeof *p);
        if (!p) return rd_fail(st, RD_EENV, "out of memory for packed weights");
        p->mem = aligned_alloc(64, (rd_winograd_weight_bytes(g) + 127) / 64 * 64);
        if (!p->mem) {
            free(p);
            return rd_fail(st, RD_EENV, "out of memory for packed weights (%zu bytes)", rd_winograd_weight_bytes(g));
        }
        p->w = w;
        p->flip = g->flip;
        p->next = b->convs->spread;
        b->convs->spread = p;
    }
    *out = p->mem;
    if (p->version == rd_params_version(ps)) return RD_OK;
    const float *from;
    RD_TRY(values_of(b, ps, w, &from, st));
    rd_winograd_weights(b, g, from, p->mem);
    p->version = rd_params_version(ps);
done:
    return st->code;
}

/* ---- running a kernel ---- */
typedef struct soft_job {
    const float *x;
    float *y;
} soft_job;
static void soft_part(void *ctx, int64_t lo, int64_t hi)
{
    const soft_job *j = ctx;
    rd_to_soft(j->x + lo, j->y + lo, hi - lo);
}

static int64_t image_elements(int64_t n, int64_t h, int64_t w, int64_t c, int64_t block)
{
    return n * h * w * (block ? (c + block - 1) / block * block : c);
}

/* An image as the kernel takes it: rounded where bfloat16 is emulated, in the kernel's order and type (m NULL: as it is). */
static rd_code take(rd_backend *b, const float *x, int64_t elements, mover *m, md_in md, rd_room *room,
                    const void **out, rd_status *st)
{
    *out = x;
    if (b->mixed && !b->bf16_hw) {
        rd_room *to = m && m->prim ? &b->convs->soft : room;
        RD_TRY(rd_room_get(to, (size_t)elements * sizeof(float), st));
        soft_job j = {x, to->p};
        rd_parallel(b, elements, 16384, soft_part, &j);
        *out = to->p;
    }
    if (m && m->prim) {
        RD_TRY(rd_room_get(room, md_size(md), st));
        RD_TRY(move(b, m, *out, room->p, st));
        *out = room->p;
    }
done:
    return st->code;
}

static rd_code run(rd_backend *b, kernel *k, role r, const void *x, const void *w, const void *y, const void *bias,
                   rd_status *st)
{
    static const int arg[3][4] = {
        {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
        {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST, DNNL_ARG_BIAS},
        {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_BIAS},
    };
    const void *mem[] = {x, w, y, bias, NULL};
    const dnnl_memory_t m[] = {k->mx, k->mw, k->my, k->mb, k->pad};
    dnnl_exec_arg_t args[5];
    int n = 0;
    if (k->pad) {
        RD_TRY(rd_room_get(&b->convs->pad, k->pad_bytes, st));
        mem[4] = b->convs->pad.p;
    }
    for (int i = 0; i < 5; i++) {
        if (!m[i]) continue;
        DNNL(dnnl_memory_set_data_handle(m[i], plain(mem[i])));
        args[n++] = (dnnl_exec_arg_t){i == 4 ? DNNL_ARG_SCRATCHPAD : arg[r][i], m[i]};
    }
    DNNL(dnnl_primitive_execute(k->prim, b->stream, n, args));
    DNNL(dnnl_stream_wait(b->stream));
done:
    return st->code;
}

rd_code rd_conv_forward(rd_backend *b, const rd_conv_shape *s, const rd_params *ps, const rd_param *W, const float *x,
                        const float *bias, float *y, rd_status *st)
{
    kernel *k;
    rd_winograd g;
    const void *in;
    void *w, *out = y;
    if (!b->convs) RD_TRY(convs_make(b, st));
    if (in_type(b) == dnnl_f32 && rd_winograd_of(s, b->convs->block, false, &g)) {
        const float *u;
        RD_TRY(spread_get(b, &g, ps, W, &u, st));
        RD_TRY(take(b, x, image_elements(s->n, s->h, s->w, s->ci, s->block), NULL, NULL, &b->convs->x, &in, st));
        return rd_winograd_run(b, &g, in, u, bias, y, &b->convs->own, st);
    }
    RD_TRY(find(b, s, FORWARD, &k, st));
    RD_TRY(weights_get(b, s, ps, W, k, &w, st));
    RD_TRY(take(b, x, image_elements(s->n, s->h, s->w, s->ci, s->block), &k->move_x, MD_REF(k->x), &b->convs->x, &in,
                st));
    if (k->move_y.prim) {
        RD_TRY(rd_room_get(&b->convs->y, md_size(MD_REF(k->y)), st));
        out = b->convs->y.p;
    }
    RD_TRY(run(b, k, FORWARD, in, w, out, bias, st));
    if (k->move_y.prim) RD_TRY(move(b, &k->move_y, out, y, st));
done:
    return st->code;
}

typedef struct add_job {
    const float *x;
    float *y;
} add_job;
static void add_part(void *ctx, int64_t lo, int64_t hi)
{
    const add_job *j = ctx;
    const float *restrict x = j->x;
    float *restrict y = j->y;
    for (int64_t i = lo; i < hi; i++) y[i] += x[i];
}

rd_code rd_conv_backward(rd_backend *b, const rd_conv_shape *s, const rd_params *ps, const rd_param *W, const float *x,
                         const float *dy, float *dx, bool add, float *dW, float *dbias, rd_status *st)
{
    const int64_t oh = out_size(s->h, s->top, s->bottom, s->kh, s->stride),
                  ow = out_size(s->w, s->left, s->right, s->kw, s->stride);
    const int64_t n_x = image_elements(s->n, s->h, s->w, s->ci, s->block);
    kernel *k;
    rd_winograd wino;
    const void *in, *g;
    if (!b->convs) RD_TRY(convs_make(b, st));
    if (dW && in_type(b) == dnnl_f32 && rd_conv_weights_can(s, b->convs->block)) {
        const int64_t block = b->convs->block;
        RD_TRY(take(b, x, n_x, NULL, NULL, &b->convs->x, &in, st));
        RD_TRY(take(b, dy, image_elements(s->n, oh, ow, s->co, block), NULL, NULL, &b->convs->y, &g, st));
        if (rd_winograd_of(s, block, false, &wino))
            RD_TRY(rd_winograd_gradient(b, &wino, in, g, &b->convs->own, dW, dbias, st));
        else
            RD_TRY(rd_conv_weights(b, s, block, oh, ow, in, g, &b->convs->own, dW, dbias, st));
    } else if (dW) {
        RD_TRY(find(b, s, WEIGHTS, &k, st));
        const int64_t n_y = image_elements(s->n, oh, ow, s->co, b->convs->block);
        RD_TRY(take(b, x, n_x, &k->move_x, MD_REF(k->x), &b->convs->x, &in, st));
        RD_TRY(take(b, dy, n_y, &k->move_y, MD_REF(k->y), &b->convs->y, &g, st));
        RD_TRY(rd_room_get(&b->convs->w, md_size(MD_REF(k->w)), st));
        RD_TRY(rd_room_get(&b->convs->bias, (size_t)(s->co + 16) * sizeof(float), st));
        RD_TRY(run(b, k, WEIGHTS, in, b->convs->w.p, g, b->convs->bias.p, st));
        RD_TRY(move(b, &k->move_w, b->convs->w.p, dW, st));
        const float *db = b->convs->bias.p;
        for (int64_t i = 0; i < s->co && dbias; i++) dbias[i] += db[i];
    }
    if (dx && in_type(b) == dnnl_f32 && rd_winograd_of(s, b->convs->block, true, &wino)) {
        const float *u;
        wino.add = add;
        RD_TRY(spread_get(b, &wino, ps, W, &u, st));
        RD_TRY(take(b, dy, image_elements(s->n, oh, ow, s->co, b->convs->block), NULL, NULL, &b->convs->y, &g, st));
        RD_TRY(rd_winograd_run(b, &wino, g, u, NULL, dx, &b->convs->own, st));
    } else if (dx) {
        void *w;
        RD_TRY(find(b, s, DATA, &k, st));
        const int64_t n_y = image_elements(s->n, oh, ow, s->co, b->convs->block);
        RD_TRY(weights_get(b, s, ps, W, k, &w, st));
        RD_TRY(take(b, dy, n_y, &k->move_y, MD_REF(k->y), &b->convs->y, &g, st));
        float *to = dx, *own = dx;
        if (k->move_x.prim) { /* first in the kernel's order */
            RD_TRY(rd_room_get(&b->convs->x, md_size(MD_REF(k->x)), st));
            to = b->convs->x.p;
        }
        if (add) {
            RD_TRY(rd_room_get(k->move_x.prim ? &b->convs->soft : &b->convs->x, (size_t)n_x * sizeof(float), st));
            own = k->move_x.prim ? b->convs->soft.p : b->convs->x.p;
            if (!k->move_x.prim) to = own;
        }
        RD_TRY(run(b, k, DATA, to, w, g, NULL, st));
        if (k->move_x.prim) RD_TRY(move(b, &k->move_x, to, own, st));
        add_job j = {own, dx};
        if (add) rd_parallel(b, n_x, 16384, add_part, &j);
    }
done:
    return st->code;
}
