/* cpu_conv.c -- convolutions of the CPU backend.
 *
 * oneDNN computes them (cpu_conv_kernel.c), except where our own float32 kernels are faster: 3x3
 * with stride 1 (cpu_winograd.c), and the gradient of weights other than 1x1
 * (cpu_conv_weights.c).
 *
 * A convolution of one shape has three kernels: forward, gradient of the data, gradient of the
 * weights. Each is made at its first use and kept. A kernel takes images in the order of the
 * variables if the library has a fast kernel for that order. Otherwise a reorder runs in
 * between. Images with one or three channels need one: the library expects NCHW for them.
 *
 * The parameters store weights as HWIO. Kernels need blocked weights, and the forward kernel's
 * layout differs from the one for the data. Both copies are made again when rd_params_version
 * has changed. The gradient of the weights is blocked too; a reorder adds it to the arena.
 *
 * mixed: the operands of each of the three products are rounded to bfloat16. Sums are float32.
 * Results and gradients are stored as float32. */
#include "cpu_conv_impl.h"
#include "cpu_conv_weights.h"
#include "cpu_winograd.h"
#include <stdlib.h>

void rd_convs_free(rd_convs *c)
{
    if (!c) return;
    while (c->conv) {
        conv *p = c->conv;
        c->conv = p->next;
        for (int i = 0; i < 3; i++) conv_kernel_free(&p->k[i]);
        free(p);
    }
    while (c->weights) {
        blocked *p = c->weights;
        c->weights = p->next;
        conv_reorder_free(&p->pack);
        if (p->has_md) md_free(p->md);
        free(p->mem);
        free(p);
    }
    while (c->transformed) {
        transformed *p = c->transformed;
        c->transformed = p->next;
        free(p->mem);
        free(p);
    }
    rd_cpu_buffer *buffers[] = {&c->pad, &c->soft, &c->x, &c->y, &c->w, &c->bias, &c->own};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) rd_cpu_buffer_free(buffers[i]);
    free(c);
}

static bool same_shape(const rd_conv_shape *a, const rd_conv_shape *b)
{
    return a->n == b->n && a->h == b->h && a->w == b->w && a->ci == b->ci && a->kh == b->kh &&
           a->kw == b->kw && a->co == b->co && a->stride == b->stride && a->top == b->top &&
           a->left == b->left && a->bottom == b->bottom && a->right == b->right &&
           a->block == b->block && a->bias == b->bias && a->relu == b->relu;
}

static rd_code cpu_conv_find(rd_cpu *b, const rd_conv_shape *s, role r, kernel **out, rd_status *st)
{
    if (!b->convs) RD_TRY(conv_start(b, st));
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
    if (!p->k[r].made) RD_TRY(conv_kernel_make(b, s, r, &p->k[r], st));
done:
    return st->code;
}

/* ---- weights ---- */
static rd_code weights_make(rd_cpu *b, const rd_param *w, const rd_conv_shape *s, md_in md,
                            blocked **out, rd_status *st)
{
    const dnnl_dims_t dw = {s->co, s->ci, s->kh, s->kw};
    md_ptr hwio;
    bool has = false;
    blocked *p = *out = calloc(1, sizeof *p);
    if (!p) return rd_fail(st, RD_EENV, "out of memory for packed weights");
    p->next = b->convs->weights;
    b->convs->weights = p;
    TRY_DNNL(md_copy(&p->md, md));
    p->has_md = true;
    p->mem = aligned_alloc(64, (md_size(md) + 127) / 64 * 64);
    if (!p->mem) {
        rd_fail(st, RD_EENV, "out of memory for packed weights (%zu bytes)", md_size(md));
        goto done;
    }
    TRY_DNNL(md_make(&hwio, 4, dw, dnnl_f32, dnnl_hwio));
    has = true;
    RD_TRY(conv_reorder_make(b, MD_REF(hwio), md, false, &p->pack, st));
    /* Set last, so that weights_get never finds an incomplete copy. */
    p->w = w;
done:
    if (has) md_free(hwio);
    return st->code;
}

/* Returns the values of a parameter. If bfloat16 is emulated, they are rounded copies in
 * c->soft. */
static rd_code values_of(rd_cpu *b, const rd_params *ps, const rd_param *w, const float **out,
                         rd_status *st)
{
    *out = rd_params_values(ps) + w->offset;
    if (!b->mixed || b->bf16_hw) return RD_OK;
    RD_TRY(rd_cpu_buffer_reserve(&b->convs->soft, (size_t)w->n * sizeof(float), st));
    rd_to_soft(*out, b->convs->soft.p, w->n);
    *out = b->convs->soft.p;
done:
    return st->code;
}

/* Returns the current values of a parameter in the layout of this kernel. */
static rd_code weights_get(rd_cpu *b, const rd_conv_shape *s, const rd_params *ps,
                           const rd_param *w, const kernel *k, void **out, rd_status *st)
{
    blocked *p = b->convs->weights;
    while (p && !(p->w == w && md_equal(MD_REF(p->md), MD_REF(k->w)))) p = p->next;
    if (!p) RD_TRY(weights_make(b, w, s, MD_REF(k->w), &p, st));
    *out = p->mem;
    if (p->version == rd_params_version(ps)) return RD_OK;
    const float *from;
    RD_TRY(values_of(b, ps, w, &from, st));
    RD_TRY(conv_reorder_run(b, &p->pack, from, p->mem, st));
    p->version = rd_params_version(ps);
done:
    return st->code;
}

/* Returns the current values of a parameter, transformed for cpu_winograd.c. */
static rd_code transformed_get(rd_cpu *b, const rd_winograd *g, const rd_params *ps,
                               const rd_param *w, const float **out, rd_status *st)
{
    transformed *p = b->convs->transformed;
    while (p && !(p->w == w && p->flip == g->flip)) p = p->next;
    if (!p) {
        p = calloc(1, sizeof *p);
        if (!p) return rd_fail(st, RD_EENV, "out of memory for packed weights");
        p->mem = aligned_alloc(64, (rd_winograd_weight_bytes(g) + 127) / 64 * 64);
        if (!p->mem) {
            free(p);
            return rd_fail(st, RD_EENV, "out of memory for packed weights (%zu bytes)",
                           rd_winograd_weight_bytes(g));
        }
        p->w = w;
        p->flip = g->flip;
        p->next = b->convs->transformed;
        b->convs->transformed = p;
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
static void soft_range(void *ctx, int64_t lo, int64_t hi)
{
    const soft_job *j = ctx;
    rd_to_soft(j->x + lo, j->y + lo, hi - lo);
}

static int64_t image_elements(int64_t n, int64_t h, int64_t w, int64_t c, int64_t block)
{
    return n * h * w * (block ? (c + block - 1) / block * block : c);
}

/* Converts an image for the kernel: to the kernel's order and type (m NULL: no conversion), and
 * rounded if bfloat16 is emulated. buffer: holds the result. */
static rd_code cpu_conv_input(rd_cpu *b, const float *x, int64_t elements, reorder *m, md_in md,
                              rd_cpu_buffer *buffer, const void **out, rd_status *st)
{
    *out = x;
    if (b->mixed && !b->bf16_hw) {
        rd_cpu_buffer *to = m && m->prim ? &b->convs->soft : buffer;
        RD_TRY(rd_cpu_buffer_reserve(to, (size_t)elements * sizeof(float), st));
        soft_job j = {x, to->p};
        rd_parallel(&b->base, elements, 16384, soft_range, &j);
        *out = to->p;
    }
    if (m && m->prim) {
        RD_TRY(rd_cpu_buffer_reserve(buffer, md_size(md), st));
        RD_TRY(conv_reorder_run(b, m, *out, buffer->p, st));
        *out = buffer->p;
    }
done:
    return st->code;
}

static rd_code cpu_conv_run(rd_cpu *b, kernel *k, role r, const void *x, const void *w,
                            const void *y, const void *bias, rd_status *st)
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
        RD_TRY(rd_cpu_buffer_reserve(&b->convs->pad, k->pad_bytes, st));
        mem[4] = b->convs->pad.p;
    }
    for (int i = 0; i < 5; i++) {
        if (!m[i]) continue;
        TRY_DNNL(dnnl_memory_set_data_handle(m[i], conv_without_const(mem[i])));
        args[n++] = (dnnl_exec_arg_t){i == 4 ? DNNL_ARG_SCRATCHPAD : arg[r][i], m[i]};
    }
    TRY_DNNL(dnnl_primitive_execute(k->prim, b->stream, n, args));
    TRY_DNNL(dnnl_stream_wait(b->stream));
done:
    return st->code;
}

rd_code rd_conv_forward(rd_backend *be, const rd_conv_shape *s, const rd_params *ps,
                        const rd_param *W, const float *x, const float *bias, float *y,
                        rd_status *st)
{
    rd_cpu *b = rd_cpu_of(be);
    kernel *k;
    rd_winograd g;
    const void *in;
    void *w = NULL, *out = y;
    if (!b->convs) RD_TRY(conv_start(b, st));
    if (conv_own(b) && rd_winograd_of(s, b->convs->block, false, &g)) {
        const float *u;
        RD_TRY(transformed_get(b, &g, ps, W, &u, st));
        RD_TRY(cpu_conv_input(b, x, image_elements(s->n, s->h, s->w, s->ci, s->block), NULL, NULL,
                              &b->convs->x, &in, st));
        return rd_winograd_run(b, &g, in, u, bias, y, &b->convs->own, st);
    }
    RD_TRY(cpu_conv_find(b, s, FORWARD, &k, st));
    RD_TRY(weights_get(b, s, ps, W, k, &w, st));
    RD_TRY(cpu_conv_input(b, x, image_elements(s->n, s->h, s->w, s->ci, s->block), &k->reorder_x,
                          MD_REF(k->x), &b->convs->x, &in, st));
    if (k->reorder_y.prim) {
        RD_TRY(rd_cpu_buffer_reserve(&b->convs->y, md_size(MD_REF(k->y)), st));
        out = b->convs->y.p;
    }
    RD_TRY(cpu_conv_run(b, k, FORWARD, in, w, out, bias, st));
    if (k->reorder_y.prim) RD_TRY(conv_reorder_run(b, &k->reorder_y, out, y, st));
done:
    return st->code;
}

typedef struct add_job {
    const float *x;
    float *y;
} add_job;
static void cpu_conv_add_range(void *ctx, int64_t lo, int64_t hi)
{
    const add_job *j = ctx;
    const float *restrict x = j->x;
    float *restrict y = j->y;
    for (int64_t i = lo; i < hi; i++) y[i] += x[i];
}

rd_code rd_conv_backward(rd_backend *be, const rd_conv_shape *s, const rd_params *ps,
                         const rd_param *W, const float *x, const float *dy, float *dx, bool add,
                         float *dW, float *dbias, rd_status *st)
{
    rd_cpu *b = rd_cpu_of(be);
    const int64_t oh = conv_out_size(s->h, s->top, s->bottom, s->kh, s->stride),
                  ow = conv_out_size(s->w, s->left, s->right, s->kw, s->stride);
    const int64_t n_x = image_elements(s->n, s->h, s->w, s->ci, s->block);
    kernel *k;
    rd_winograd wino;
    const void *in = NULL, *g = NULL;
    if (!b->convs) RD_TRY(conv_start(b, st));
    if (dW && conv_own(b) && rd_conv_weights_can(s, b->convs->block)) {
        const int64_t block = b->convs->block;
        RD_TRY(cpu_conv_input(b, x, n_x, NULL, NULL, &b->convs->x, &in, st));
        RD_TRY(cpu_conv_input(b, dy, image_elements(s->n, oh, ow, s->co, block), NULL, NULL,
                              &b->convs->y, &g, st));
        if (rd_winograd_of(s, block, false, &wino))
            RD_TRY(rd_winograd_gradient(b, &wino, in, g, &b->convs->own, dW, dbias, st));
        else
            RD_TRY(rd_conv_weights(b, s, block, oh, ow, in, g, &b->convs->own, dW, dbias, st));
    } else if (dW) {
        RD_TRY(cpu_conv_find(b, s, WEIGHTS, &k, st));
        const int64_t n_y = image_elements(s->n, oh, ow, s->co, b->convs->block);
        RD_TRY(cpu_conv_input(b, x, n_x, &k->reorder_x, MD_REF(k->x), &b->convs->x, &in, st));
        RD_TRY(cpu_conv_input(b, dy, n_y, &k->reorder_y, MD_REF(k->y), &b->convs->y, &g, st));
        RD_TRY(rd_cpu_buffer_reserve(&b->convs->w, md_size(MD_REF(k->w)), st));
        RD_TRY(rd_cpu_buffer_reserve(&b->convs->bias, (size_t)(s->co + 16) * sizeof(float), st));
        RD_TRY(cpu_conv_run(b, k, WEIGHTS, in, b->convs->w.p, g, b->convs->bias.p, st));
        RD_TRY(conv_reorder_run(b, &k->reorder_w, b->convs->w.p, dW, st));
        const float *db = b->convs->bias.p;
        for (int64_t i = 0; i < s->co && dbias; i++) dbias[i] += db[i];
    }
    if (dx && conv_own(b) && rd_winograd_of(s, b->convs->block, true, &wino)) {
        const float *u;
        wino.add = add;
        RD_TRY(transformed_get(b, &wino, ps, W, &u, st));
        RD_TRY(cpu_conv_input(b, dy, image_elements(s->n, oh, ow, s->co, b->convs->block), NULL,
                              NULL, &b->convs->y, &g, st));
        RD_TRY(rd_winograd_run(b, &wino, g, u, NULL, dx, &b->convs->own, st));
    } else if (dx) {
        void *w = NULL;
        RD_TRY(cpu_conv_find(b, s, DATA, &k, st));
        const int64_t n_y = image_elements(s->n, oh, ow, s->co, b->convs->block);
        RD_TRY(weights_get(b, s, ps, W, k, &w, st));
        RD_TRY(cpu_conv_input(b, dy, n_y, &k->reorder_y, MD_REF(k->y), &b->convs->y, &g, st));
        float *to = dx, *own = dx;
        /* The kernel writes its own order first. */
        if (k->reorder_x.prim) {
            RD_TRY(rd_cpu_buffer_reserve(&b->convs->x, md_size(MD_REF(k->x)), st));
            to = b->convs->x.p;
        }
        if (add) {
            RD_TRY(rd_cpu_buffer_reserve(k->reorder_x.prim ? &b->convs->soft : &b->convs->x,
                                         (size_t)n_x * sizeof(float), st));
            own = k->reorder_x.prim ? b->convs->soft.p : b->convs->x.p;
            if (!k->reorder_x.prim) to = own;
        }
        RD_TRY(cpu_conv_run(b, k, DATA, to, w, g, NULL, st));
        if (k->reorder_x.prim) RD_TRY(conv_reorder_run(b, &k->reorder_x, to, own, st));
        add_job j = {own, dx};
        if (add) rd_parallel(&b->base, n_x, 16384, cpu_conv_add_range, &j);
    }
done:
    return st->code;
}
