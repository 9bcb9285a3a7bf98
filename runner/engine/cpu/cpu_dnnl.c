/* cpu_dnnl.c -- the CPU backend's products, by oneDNN (dnnl_seam.h: 2.6 and 3.x).
 *
 * A recurrent model spends its time in products with a parameter, Y = X W for m rows of X. m is the
 * number of sentences in a batch, a few dozen. dnnl_sgemm and matmul copy W into their own layout
 * at every call. At m = 64 the copy costs a third to a half of the time. A 1x1 convolution over an
 * image of height 1 and width m is the same product, because NHWC activations are plain rows. Its
 * weights can stay in oneDNN's blocked layout. Measured on one AVX2 core (sgemm at 2048^3 reaches
 * 81 GFLOP/s):
 *
 *   m x k x n       sgemm, GFLOP/s   convolution, GFLOP/s
 *   64x512x512      56               99
 *   64x2048x1024    40               75
 *   32x512x512      54               98
 *   16x512x256      61               91
 *
 * m is cut into blocks of BLOCK rows and a rest that is rounded up to a multiple of STEP. This
 * keeps the number of primitives small. */
#include "cpu_packed.h"
#include "cpu_rows.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64, STEP = RD_SLACK_ROWS, N_SIZES = BLOCK / STEP, PAIR = 2 };

/* One product with fixed m, k, n. */
typedef struct product {
    /* NULL: not made yet, or (if `tried`) oneDNN has no fast kernel. */
    dnnl_primitive_t prim;
    dnnl_memory_t src, wei, dst;
    bool tried;
} product;

/* W [k, n] in one orientation: Y[m, n] = X[m, k] W. */
typedef struct cpu_dnnl_side {
    /* [add][m / STEP - 1] */
    product p[2][N_SIZES];
    /* The blocked layout, chosen at m = BLOCK. */
    md_ptr wmd;
    /* conv: the convolution is fast for this shape. False: sgemm computes it. */
    bool has_wmd, conv;
    /* Weights in layout wmd; owned. */
    void *blocked;
    int64_t k, n;
    /* Whether W is the transposed parameter. */
    bool transposed;
    uint64_t version;
    /* The weights as rd_cpu_rows_mul reads them: `blocked`, or an owned copy if that has another
     * layout. */
    rd_cpu_strips strips;
    bool own_strips;
    uint64_t strips_version;
} cpu_dnnl_side;

struct rd_cpu_packed {
    rd_cpu *be;
    const rd_params *ps;
    const rd_param *w;
    int64_t row0, k, n;
    cpu_dnnl_side fwd, bwd;
    /* If bfloat16 is emulated: the rows, rounded. */
    float *rounded;
    uint64_t rounded_version;
    rd_cpu_packed *next;
};

typedef struct gemm_key {
    int64_t m, n, k;
} gemm_key;
struct gemm_prim {
    gemm_key key;
    product p;
};

static void product_free(product *p)
{
    if (p->src) dnnl_memory_destroy(p->src);
    if (p->wei) dnnl_memory_destroy(p->wei);
    if (p->dst) dnnl_memory_destroy(p->dst);
    if (p->prim) dnnl_primitive_destroy(p->prim);
    memset(p, 0, sizeof *p);
}

/* Frees the own copy, if there is one. */
static void side_free_strips(cpu_dnnl_side *s)
{
    if (s->own_strips) {
        void *w;
        memcpy(&w, &s->strips.w, sizeof w);
        free(w);
    }
    s->own_strips = false;
}

static void side_free(cpu_dnnl_side *s)
{
    for (int a = 0; a < 2; a++)
        for (int i = 0; i < N_SIZES; i++) product_free(&s->p[a][i]);
    if (s->has_wmd) md_free(s->wmd);
    free(s->blocked);
    side_free_strips(s);
}

void rd_cpu_packed_free(rd_cpu_packed *p)
{
    if (!p) return;
    side_free(&p->fwd);
    side_free(&p->bwd);
    free(p->rounded);
    free(p);
}

/* ---- packed products ---- */
static dnnl_data_type_t in_type(const rd_cpu *b)
{
    return b->mixed && b->bf16_hw ? dnnl_bf16 : dnnl_f32;
}

static bool cpu_dnnl_fast(const char *impl)
{
    return strstr(impl, "jit") || strstr(impl, "brg");
}

/* Makes the product for m rows. prim stays NULL if the library has no fast kernel. */
static rd_code product_make(rd_cpu *b, cpu_dnnl_side *s, int64_t m, bool add, product *p,
                            rd_status *st)
{
    const dnnl_dims_t ds = {1, s->k, 1, m}, dw = {s->n, s->k, 1, 1}, dd = {1, s->n, 1, m};
    md_ptr src, wei, dst;
    bool has[3] = {false, false, false};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_primitive_desc_t pd = NULL;
    p->tried = true;
    TRY_DNNL(md_make(&src, 4, ds, in_type(b), dnnl_nhwc));
    has[0] = true;
    TRY_DNNL(md_make(&wei, 4, dw, in_type(b), dnnl_format_tag_any));
    has[1] = true;
    TRY_DNNL(md_make(&dst, 4, dd, dnnl_f32, dnnl_nhwc));
    has[2] = true;
    TRY_DNNL(dnnl_primitive_attr_create(&attr));
    if (add) {
        TRY_DNNL(dnnl_post_ops_create(&ops));
        TRY_DNNL(append_sum(ops));
        TRY_DNNL(dnnl_primitive_attr_set_post_ops(attr, ops));
    }
    if (conv_pd(&pd, b->engine, MD_REF(src), s->has_wmd ? MD_REF(s->wmd) : MD_REF(wei), MD_REF(dst),
                attr) != dnnl_success)
        goto done;
    const char *impl = "";
    TRY_DNNL(dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&impl));
    md_in w = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    if (!cpu_dnnl_fast(impl) || strstr(impl, "gemm") ||
        (s->has_wmd && !md_equal(w, MD_REF(s->wmd))))
        goto done;
    if (!s->has_wmd) {
#if DNNL_VERSION_MAJOR >= 3
        TRY_DNNL(dnnl_memory_desc_clone(&s->wmd, w));
#else
        s->wmd = *w;
#endif
        s->has_wmd = true;
        s->blocked = aligned_alloc(64, (md_size(w) + 127) / 64 * 64);
        if (!s->blocked) {
            rd_fail(st, RD_EENV, "out of memory for packed weights (%zu bytes)", md_size(w));
            goto done;
        }
        rd_cpu_strips *t = &s->strips;
        *t = (rd_cpu_strips){.w = s->blocked, .k = s->k, .n = s->n};
        t->strip = md_strip(w, &t->length, &t->half);
        if (t->half != (in_type(b) == dnnl_bf16) || !rd_cpu_rows_can(b, t->strip, t->half))
            t->strip = 0;
    }
    TRY_DNNL(dnnl_memory_create(&p->src, MD_REF(src), b->engine, DNNL_MEMORY_NONE));
    TRY_DNNL(dnnl_memory_create(&p->wei, MD_REF(s->wmd), b->engine, s->blocked));
    TRY_DNNL(dnnl_memory_create(&p->dst, MD_REF(dst), b->engine, DNNL_MEMORY_NONE));
    TRY_DNNL(dnnl_primitive_create(&p->prim, pd));
done:
    if (pd) dnnl_primitive_desc_destroy(pd);
    if (ops) dnnl_post_ops_destroy(ops);
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (has[0]) md_free(src);
    if (has[1]) md_free(wei);
    if (has[2]) md_free(dst);
    return st->code;
}

/* Returns the parameter's rows, rounded if bfloat16 is emulated. NULL after a failure. */
static float *packed_rows(rd_cpu_packed *q, uint64_t now, rd_status *st)
{
    float *rows = rd_params_values(q->ps) + q->w->offset + q->row0 * q->n;
    if (!q->be->mixed || q->be->bf16_hw) return rows;
    if (!q->rounded) {
        q->rounded = aligned_alloc(64, ((size_t)(q->k * q->n) * 4 + 63) / 64 * 64);
        if (!q->rounded) {
            rd_fail(st, RD_EENV, "out of memory for rounded weights");
            return NULL;
        }
    }
    if (q->rounded_version != now) rd_to_soft(rows, q->rounded, q->k * q->n);
    q->rounded_version = now;
    return q->rounded;
}

/* Updates the blocked copy if the parameter has changed. */
static rd_code side_refresh(rd_cpu_packed *q, cpu_dnnl_side *s, rd_status *st)
{
    rd_cpu *b = q->be;
    const uint64_t now = rd_params_version_of(q->ps, q->w);
    if (!s->conv || s->version == now) return RD_OK;
    /* The parameter's rows as OIHW weights: O is the column of the product's result. */
    const dnnl_dims_t d = {s->n, s->k, 1, 1};
    md_ptr from;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_t r = NULL;
    dnnl_memory_t mf = NULL, mt = NULL;
    bool has = false;
    float *rows = packed_rows(q, now, st);
    if (!rows) return st->code;
    /* Forward: the parameter is [k, n] = IO, tag "ba..". Transposed: it is [n, k] = OI. */
    TRY_DNNL(md_make(&from, 4, d, dnnl_f32, s->transposed ? dnnl_abcd : dnnl_bacd));
    has = true;
    TRY_DNNL(dnnl_reorder_primitive_desc_create(&pd, MD_REF(from), b->engine, MD_REF(s->wmd),
                                                b->engine, NULL));
    TRY_DNNL(dnnl_primitive_create(&r, pd));
    TRY_DNNL(dnnl_memory_create(&mf, MD_REF(from), b->engine, rows));
    TRY_DNNL(dnnl_memory_create(&mt, MD_REF(s->wmd), b->engine, s->blocked));
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, mf}, {DNNL_ARG_TO, mt}};
    TRY_DNNL(dnnl_primitive_execute(r, b->stream, 2, args));
    TRY_DNNL(dnnl_stream_wait(b->stream));
    s->version = now;
done:
    if (mf) dnnl_memory_destroy(mf);
    if (mt) dnnl_memory_destroy(mt);
    if (r) dnnl_primitive_destroy(r);
    if (pd) dnnl_primitive_desc_destroy(pd);
    if (has) md_free(from);
    return st->code;
}

static rd_code side_init(rd_cpu_packed *q, cpu_dnnl_side *s, bool transposed, rd_status *st)
{
    s->transposed = transposed;
    s->k = transposed ? q->n : q->k;
    s->n = transposed ? q->k : q->n;
    if (product_make(q->be, s, BLOCK, false, &s->p[0][N_SIZES - 1], st) != RD_OK) return st->code;
    s->conv = s->p[0][N_SIZES - 1].prim != NULL;
    return RD_OK;
}

rd_code rd_cpu_packed_new(rd_cpu *b, const rd_params *ps, const rd_param *w, int64_t row0,
                          int64_t k, rd_cpu_packed **out, rd_status *st)
{
    rd_cpu_packed *q = *out = calloc(1, sizeof *q);
    if (!q) return rd_fail(st, RD_EENV, "out of memory for packed weights");
    q->be = b;
    q->ps = ps;
    q->w = w;
    q->row0 = row0;
    q->k = k;
    q->n = w->n_dim == 2 ? w->dim[1] : 1;
    if (w->n_dim != 2 || row0 < 0 || k <= 0 || row0 + k > w->dim[0]) {
        rd_fail(st, RD_EBUG, "rows %" PRId64 "..%" PRId64 " of parameter '%s' cannot be packed",
                row0, row0 + k, w->name);
        goto done;
    }
    RD_TRY(side_init(q, &q->fwd, false, st));
    RD_TRY(side_init(q, &q->bwd, true, st));
done:
    if (st->code != RD_OK) {
        rd_cpu_packed_free(q);
        *out = NULL;
    }
    return st->code;
}

rd_cpu_packed *rd_cpu_packed_of(rd_cpu *b, const rd_params *ps, const rd_param *w, int64_t row0,
                                int64_t k, rd_status *st)
{
    for (rd_cpu_packed *p = b->packed; p; p = p->next)
        if (p->w == w && p->row0 == row0 && p->k == k) return p;
    rd_cpu_packed *p = NULL;
    if (rd_cpu_packed_new(b, ps, w, row0, k, &p, st) != RD_OK) return NULL;
    p->next = b->packed;
    return b->packed = p;
}

static rd_code cpu_dnnl_run(rd_cpu *b, product *p, const void *x, float *y, rd_status *st)
{
    void *src;
    /* The library's interface has no const. */
    memcpy(&src, &x, sizeof src);
    TRY_DNNL(dnnl_memory_set_data_handle(p->src, src));
    TRY_DNNL(dnnl_memory_set_data_handle(p->dst, y));
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, p->src}, {DNNL_ARG_WEIGHTS, p->wei}, {DNNL_ARG_DST, p->dst}};
    TRY_DNNL(dnnl_primitive_execute(p->prim, b->stream, 3, args));
done:
    return st->code;
}

static rd_code side_mul(rd_cpu_packed *q, cpu_dnnl_side *s, int64_t m, const float *X, float *Y,
                        bool add, rd_status *st)
{
    rd_cpu *b = q->be;
    const float *plain = rd_params_values(q->ps) + q->w->offset + q->row0 * q->n;
    if (!s->conv)
        return rd_cpu_gemm(b, false, s->transposed, m, s->n, s->k, 1.0f, X, s->k, plain, q->n,
                           add ? 1.0f : 0.0f, Y, s->n, st);
    RD_TRY(side_refresh(q, s, st));
    if (m == 1 && s->strips.strip && !s->own_strips && !b->mixed)
        return rd_cpu_rows_mul(b, &s->strips, m, X, Y, add, st);
    for (int64_t i = 0; i < m; i += BLOCK) {
        const int64_t left = m - i < BLOCK ? m - i : BLOCK, rows = (left + STEP - 1) / STEP * STEP;
        product *p = &s->p[add][rows / STEP - 1];
        if (!p->tried) RD_TRY(product_make(b, s, rows, add, p, st));
        const void *x = X + i * s->k;
        /* Only this number of rows has no fast kernel. */
        if (!p->prim) {
            RD_TRY(rd_cpu_gemm(b, false, s->transposed, left, s->n, s->k, 1.0f, x, s->k, plain,
                               q->n, add ? 1.0f : 0.0f, Y + i * s->n, s->n, st));
            continue;
        }
        if (b->mixed && b->bf16_hw) {
            /* A kernel that reads pairs of an odd k multiplies the first number behind a row by 0.
             * So that number must be finite. */
            const int64_t n_x = left * s->k, n_all = rows * s->k + PAIR;
            RD_TRY(rd_cpu_buffer_reserve(&b->half[0], (size_t)n_all * 2, st));
            rd_to_half(x, b->half[0].p, n_x);
            memset((uint16_t *)b->half[0].p + n_x, 0, (size_t)(n_all - n_x) * 2);
            x = b->half[0].p;
        } else if (b->mixed) {
            RD_TRY(rd_cpu_buffer_reserve(&b->soft[0], (size_t)(rows * s->k) * 4, st));
            rd_to_soft(x, b->soft[0].p, rows * s->k);
            x = b->soft[0].p;
        }
        RD_TRY(cpu_dnnl_run(b, p, x, Y + i * s->n, st));
    }
    TRY_DNNL(dnnl_stream_wait(b->stream));
done:
    return st->code;
}

/* Updates the strips if the parameter has changed. */
static rd_code side_strips(rd_cpu_packed *q, cpu_dnnl_side *s, rd_status *st)
{
    const uint64_t now = rd_params_version_of(q->ps, q->w);
    if (s->strips.strip && !s->own_strips) return side_refresh(q, s, st);
    if (s->own_strips && s->strips_version == now) return st->code;
    side_free_strips(s);
    const float *rows = packed_rows(q, now, st);
    if (!rows) return st->code;
    RD_TRY(rd_cpu_rows_pack(q->be, s->k, s->n, rows, s->transposed ? 1 : q->n,
                            s->transposed ? q->n : 1, in_type(q->be) == dnnl_bf16, &s->strips, st));
    s->own_strips = true;
    s->strips_version = now;
done:
    return st->code;
}

rd_code rd_cpu_packed_rows(rd_cpu_packed *q, bool transposed, int64_t m, const float *X, float *Y,
                           bool add, rd_status *st)
{
    rd_cpu *b = q->be;
    cpu_dnnl_side *s = transposed ? &q->bwd : &q->fwd;
    const void *x = X;
    RD_TRY(side_strips(q, s, st));
    if (s->strips.half) {
        const int64_t k = (s->k + 1) / 2 * 2;
        RD_TRY(rd_cpu_buffer_reserve(&b->half[0], (size_t)(m * k) * 2, st));
        uint16_t *to = b->half[0].p;
        for (int64_t i = 0; i < m; i++, to += k) {
            rd_to_half(X + i * s->k, to, s->k);
            if (k > s->k) to[s->k] = 0;
        }
        x = b->half[0].p;
    } else if (b->mixed) {
        RD_TRY(rd_cpu_buffer_reserve(&b->soft[0], (size_t)(m * s->k) * 4, st));
        rd_to_soft(X, b->soft[0].p, m * s->k);
        x = b->soft[0].p;
    }
    RD_TRY(rd_cpu_rows_mul(b, &s->strips, m, x, Y, add, st));
done:
    return st->code;
}

rd_code rd_cpu_packed_mul(rd_cpu_packed *p, int64_t m, const float *X, float *Y, bool add,
                          rd_status *st)
{
    return side_mul(p, &p->fwd, m, X, Y, add, st);
}

rd_code rd_cpu_packed_mul_t(rd_cpu_packed *p, int64_t m, const float *Y, float *X, bool add,
                            rd_status *st)
{
    return side_mul(p, &p->bwd, m, Y, X, add, st);
}

/* ---- general products ---- */
/* Makes the product C [m, n] = A [m, k] B [k, n] (+ C) with bfloat16 operands. ta, tb: A, B are
 * stored transposed. */
static rd_code gemm_make(rd_cpu *b, bool ta, bool tb, bool add, int64_t m, int64_t n, int64_t k,
                         product *p, rd_status *st)
{
    const dnnl_dims_t da = {m, k}, db = {k, n}, dc = {m, n};
    md_ptr md[3];
    int n_md = 0;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_primitive_desc_t pd = NULL;
    TRY_DNNL(md_make(&md[0], 2, da, dnnl_bf16, ta ? dnnl_ba : dnnl_ab));
    n_md++;
    TRY_DNNL(md_make(&md[1], 2, db, dnnl_bf16, tb ? dnnl_ba : dnnl_ab));
    n_md++;
    TRY_DNNL(md_make(&md[2], 2, dc, dnnl_f32, dnnl_ab));
    n_md++;
    TRY_DNNL(dnnl_primitive_attr_create(&attr));
    if (add) {
        TRY_DNNL(dnnl_post_ops_create(&ops));
        TRY_DNNL(append_sum(ops));
        TRY_DNNL(dnnl_primitive_attr_set_post_ops(attr, ops));
    }
    TRY_DNNL(matmul_pd(&pd, b->engine, MD_REF(md[0]), MD_REF(md[1]), MD_REF(md[2]), attr));
    TRY_DNNL(dnnl_primitive_create(&p->prim, pd));
    TRY_DNNL(dnnl_memory_create(&p->src, MD_REF(md[0]), b->engine, DNNL_MEMORY_NONE));
    TRY_DNNL(dnnl_memory_create(&p->wei, MD_REF(md[1]), b->engine, DNNL_MEMORY_NONE));
    TRY_DNNL(dnnl_memory_create(&p->dst, MD_REF(md[2]), b->engine, DNNL_MEMORY_NONE));
done:
    if (st->code != RD_OK) product_free(p);
    if (pd) dnnl_primitive_desc_destroy(pd);
    if (ops) dnnl_post_ops_destroy(ops);
    if (attr) dnnl_primitive_attr_destroy(attr);
    while (n_md > 0) md_free(md[--n_md]);
    return st->code;
}

/* Returns the product of these shapes, made at its first use. NULL after a failure. */
static product *gemm_find(rd_cpu *b, bool ta, bool tb, bool add, int64_t m, int64_t n, int64_t k,
                          rd_status *st)
{
    const gemm_key key = {m, n, k * 8 + (ta ? 1 : 0) + (tb ? 2 : 0) + (add ? 4 : 0)};
    for (int i = 0; i < b->n_gp; i++)
        if (memcmp(&b->gp[i].key, &key, sizeof key) == 0) return &b->gp[i].p;
    if (b->n_gp == b->cap_gp) {
        const int cap = b->cap_gp ? 2 * b->cap_gp : 64;
        gemm_prim *gp = realloc(b->gp, (size_t)cap * sizeof *gp);
        if (!gp) {
            rd_fail(st, RD_EENV, "out of memory for a product");
            return NULL;
        }
        b->gp = gp;
        b->cap_gp = cap;
    }
    gemm_prim *g = &b->gp[b->n_gp];
    *g = (gemm_prim){.key = key};
    if (gemm_make(b, ta, tb, add, m, n, k, &g->p, st) != RD_OK) return NULL;
    b->n_gp++;
    return &g->p;
}

/* Computes a bfloat16 product on a CPU with bfloat16 instructions; C is contiguous. The operands
 * are copied anyway. The copies round k up to a multiple of 64 and fill it with zeros, so that
 * few shapes occur. */
static rd_code gemm_bf16(rd_cpu *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                         const float *A, int64_t lda, const float *B, int64_t ldb, bool add,
                         float *C, rd_status *st)
{
    const int64_t kk = (k + 63) / 64 * 64;
    RD_TRY(rd_cpu_buffer_reserve(&b->half[0], (size_t)(m * kk) * 2, st));
    RD_TRY(rd_cpu_buffer_reserve(&b->half[1], (size_t)(kk * n) * 2, st));
    /* The copy of A is [m, kk], or [kk, m] if transposed. Rows of A are contiguous in both
     * cases. */
    const int64_t ra = ta ? k : m, ca = ta ? m : k, wa = ta ? m : kk;
    memset(b->half[0].p, 0, (size_t)(m * kk) * 2);
    for (int64_t i = 0; i < ra; i++) rd_to_half(A + i * lda, (uint16_t *)b->half[0].p + i * wa, ca);
    const int64_t rb = tb ? n : k, cb = tb ? k : n, wb = tb ? kk : n;
    memset(b->half[1].p, 0, (size_t)(kk * n) * 2);
    for (int64_t i = 0; i < rb; i++) rd_to_half(B + i * ldb, (uint16_t *)b->half[1].p + i * wb, cb);
    product *p = gemm_find(b, ta, tb, add, m, n, kk, st);
    if (!p) return st->code;
    TRY_DNNL(dnnl_memory_set_data_handle(p->wei, b->half[1].p));
    RD_TRY(cpu_dnnl_run(b, p, b->half[0].p, C, st));
    TRY_DNNL(dnnl_stream_wait(b->stream));
done:
    return st->code;
}

rd_code rd_cpu_gemm(rd_cpu *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                    const float *A, int64_t lda, const float *B, int64_t ldb, float beta, float *C,
                    int64_t ldc, rd_status *st)
{
    if (m <= 0 || n <= 0) return RD_OK;
    if (k <= 0) {
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++)
                C[i * ldc + j] = beta == 0.0f ? 0.0f : beta * C[i * ldc + j];
        return RD_OK;
    }
    const float *a = A, *bb = B;
    if (b->mixed && b->bf16_hw && ldc == n && alpha == 1.0f && (beta == 0.0f || beta == 1.0f))
        return gemm_bf16(b, ta, tb, m, n, k, A, lda, B, ldb, beta != 0.0f, C, st);
    if (b->mixed) {
        const int64_t na = ((ta ? k : m) - 1) * lda + (ta ? m : k),
                      nb = ((tb ? n : k) - 1) * ldb + (tb ? k : n);
        RD_TRY(rd_cpu_buffer_reserve(&b->soft[0], (size_t)na * 4, st));
        RD_TRY(rd_cpu_buffer_reserve(&b->soft[1], (size_t)nb * 4, st));
        rd_to_soft(A, b->soft[0].p, na);
        rd_to_soft(B, b->soft[1].p, nb);
        a = b->soft[0].p;
        bb = b->soft[1].p;
    }
    TRY_DNNL(dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, alpha, a, lda, bb, ldb, beta, C,
                        ldc));
done:
    return st->code;
}

void rd_cpu_products_free(rd_cpu *b)
{
    while (b->packed) {
        rd_cpu_packed *p = b->packed;
        b->packed = p->next;
        rd_cpu_packed_free(p);
    }
    for (int i = 0; i < b->n_gp; i++) product_free(&b->gp[i].p);
    free(b->gp);
    rd_cpu_buffer_free(&b->spread);
    for (int i = 0; i < 2; i++) {
        rd_cpu_buffer_free(&b->half[i]);
        rd_cpu_buffer_free(&b->soft[i]);
    }
}
