/* cpu_backend.c -- the CPU's table of backend_impl.h.
 *
 * Memory is the host's memory; oneDNN computes products and convolutions. */
#include "cpu_int8.h"
#include "cpu_packed.h"
#include "cpu_rows.h"
#include "cpu_turn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *isa_name(void)
{
    switch ((int)dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41:
        return "SSE4.1";
    case dnnl_cpu_isa_avx:
        return "AVX";
    case dnnl_cpu_isa_avx2:
        return "AVX2";
    case dnnl_cpu_isa_avx512_core:
        return "AVX-512";
    case dnnl_cpu_isa_avx512_core_vnni:
        return "AVX-512 VNNI";
    case dnnl_cpu_isa_avx512_core_bf16:
        return "AVX-512 BF16";
    default:
        return __builtin_cpu_supports("avx512f") ? "AVX-512 or newer" : "AVX2 or newer";
    }
}

static bool detect_bf16(void)
{
    const int isa = (int)dnnl_get_effective_cpu_isa();
    return (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

const char *rd_backend_library(void)
{
    static char text[32];
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, sizeof text, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return text;
}

static void cpu_free(rd_backend *be)
{
    rd_cpu *b = rd_cpu_of(be);
    rd_cpu_products_free(b);
    rd_int8_free_all(b->int8_list);
    rd_cpu_buffer_free(&b->int8_rows);
    rd_cpu_buffer_free(&b->turned);
    rd_convs_free(b->convs);
    if (b->stream) dnnl_stream_destroy(b->stream);
    if (b->engine) dnnl_engine_destroy(b->engine);
    free(b);
}

static rd_element cpu_activations(const rd_backend *b)
{
    (void)b;
    return RD_FLOAT32;
}

/* ---- memory: kernels read and write the host's memory ---- */

static const rd_arena_source *cpu_memory(rd_backend *b)
{
    (void)b;
    return NULL;
}

static rd_code cpu_zero(rd_backend *b, void *p, size_t bytes, rd_status *st)
{
    (void)b, (void)st;
    memset(p, 0, bytes);
    return RD_OK;
}

static rd_code cpu_copy(rd_backend *b, void *to, const void *from, size_t bytes, rd_status *st)
{
    (void)b, (void)st;
    memcpy(to, from, bytes);
    return RD_OK;
}

static rd_code cpu_lend(rd_backend *b, rd_arena *a, const void *host, size_t bytes, size_t capacity,
                        void **out, rd_status *st)
{
    (void)b, (void)a, (void)bytes, (void)capacity;
    /* Kernels only read the array. Variables have no const. */
    memcpy(out, &host, sizeof host);
    return st->code;
}

static rd_code cpu_read(rd_backend *b, rd_arena *scratch, int64_t n, const void *from,
                        rd_element type, float *out, rd_status *st)
{
    (void)b, (void)scratch, (void)type;
    memcpy(out, from, (size_t)n * sizeof *out);
    return st->code;
}

/* Returns the host's side, also for parameters on a GPU. */
static rd_code cpu_leaf(rd_backend *b, rd_params *ps, const rd_param *p, bool gradient, float **v,
                        float **g, rd_status *st)
{
    (void)b;
    RD_TRY(rd_params_sync_to_host(ps, RD_VALUES | (gradient ? RD_GRADS : 0), st));
    *v = rd_params_values(ps) + p->offset;
    if (gradient) *g = rd_params_grads(ps) + p->offset;
done:
    return st->code;
}

/* ---- products and elements ---- */

static rd_code cpu_gemm(rd_backend *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                        float alpha, const float *A, int64_t lda, const float *B, int64_t ldb,
                        float beta, float *C, int64_t ldc, rd_status *st)
{
    return rd_cpu_gemm(rd_cpu_of(b), ta, tb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc, st);
}

static rd_code cpu_gemm_batched(rd_backend *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                                float alpha, const float *A, int64_t lda, int64_t stride_a,
                                const float *B, int64_t ldb, int64_t stride_b, float beta, float *C,
                                int64_t ldc, int64_t stride_c, int64_t batch, rd_status *st)
{
    for (int64_t i = 0; i < batch; i++)
        RD_TRY(rd_cpu_gemm(rd_cpu_of(b), ta, tb, m, n, k, alpha, A + i * stride_a, lda,
                           B + i * stride_b, ldb, beta, C + i * stride_c, ldc, st));
done:
    return st->code;
}

static rd_code no_narrow(const char *what, rd_status *st)
{
    return rd_fail(st, RD_EBUG, "%s: a CPU has no 16-bit elements", what);
}

static rd_code cpu_product(rd_backend *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                           rd_gpu_operand A, rd_gpu_operand B, float beta, rd_gpu_operand C,
                           rd_status *st)
{
    if (A.type != RD_FLOAT32 || B.type != RD_FLOAT32 || C.type != RD_FLOAT32)
        return no_narrow("product", st);
    return rd_cpu_gemm(rd_cpu_of(b), ta, tb, m, n, k, 1.0f, A.at, A.ld, B.at, B.ld, beta, C.at,
                       C.ld, st);
}

/* From this number of rows on, dnnl_sgemm of a CPU with AVX-512 is as fast as the product with a
 * packed copy (Zen 4, one core of 110 GFLOP/s: 100 to 112 against 98 to 113). In training each
 * update makes the copies stale, and they take twice the memory of the parameters. An evaluation
 * uses the products of cpu_rows.h: its results do not depend on the number of rows. */
enum { PLAIN_ROWS = 256 };

static rd_code cpu_param_product(rd_backend *b, bool transposed, const rd_params *ps,
                                 const rd_leaf_rows *w, int64_t n, const float *x, float *y,
                                 bool add, rd_status *st)
{
    const int64_t cols = w->cols;
    if (b->int8 && !w->trains && rd_int8_fits(transposed ? cols : w->rows)) {
        const rd_int8 *q = rd_int8_of(rd_cpu_of(b), ps, w, transposed, st);
        return q ? rd_int8_mul(rd_cpu_of(b), q, n, x, y, add, st) : st->code;
    }
    const bool plain = w->trains && b->plain_rows > 0 && n >= b->plain_rows;
    if (plain && transposed && rd_turn_pays(n, w->rows, cols))
        return rd_turn_mul(rd_cpu_of(b), w->rows, cols, w->values + w->row0 * cols, n, x, y, add,
                           st);
    if (plain)
        return rd_cpu_gemm(rd_cpu_of(b), false, transposed, n, transposed ? w->rows : cols,
                           transposed ? cols : w->rows, 1.0f, x, transposed ? cols : w->rows,
                           w->values + w->row0 * cols, cols, add ? 1.0f : 0.0f, y,
                           transposed ? w->rows : cols, st);
    rd_cpu_packed *p = rd_cpu_packed_of(rd_cpu_of(b), ps, w->param, w->row0, w->rows, st);
    if (!p) return st->code;
    if (!w->trains) return rd_cpu_packed_rows(p, transposed, n, x, y, add, st);
    return (transposed ? rd_cpu_packed_mul_t : rd_cpu_packed_mul)(p, n, x, y, add, st);
}

static rd_code cpu_cast(rd_backend *b, int64_t n, const void *x, rd_element from, void *y,
                        rd_element to, bool add, rd_status *st)
{
    const float *in = x;
    float *out = y;
    (void)b;
    if (from != RD_FLOAT32 || to != RD_FLOAT32) return no_narrow("cast", st);
    for (int64_t i = 0; i < n; i++) out[i] = add ? out[i] + in[i] : in[i];
    return RD_OK;
}

/* ---- whole ops by libraries: none ---- */

static bool cpu_lstm_own(rd_backend *b, const char *cell, const rd_lstm_layer *l, bool trains)
{
    (void)b, (void)cell, (void)l, (void)trains;
    return true;
}

static rd_code cpu_lstm_forward(rd_backend *b, const char *cell, const rd_lstm_layer *l,
                                const float *x, const float *a, float *y, bool keep, rd_arena *kept,
                                rd_arena *scratch, rd_lstm_kept *v, rd_status *st)
{
    (void)b, (void)cell, (void)l, (void)x, (void)a, (void)y, (void)keep, (void)kept, (void)scratch;
    v->choice.algo = RD_RNN_OWN;
    return st->code;
}

static rd_code cpu_lstm_backward(rd_backend *b, const rd_lstm_layer *l, const rd_lstm_kept *v,
                                 const float *dy, float *dx, bool add_dx, float *da,
                                 rd_arena *scratch, bool *refused, rd_status *st)
{
    (void)b, (void)l, (void)v, (void)dy, (void)dx, (void)add_dx, (void)da, (void)scratch;
    *refused = true;
    return st->code;
}

static const rd_backend_vt cpu_vt = {.kind = RD_CPU,
                                     .rounds_rows = true,
                                     .free = cpu_free,
                                     .activations = cpu_activations,
                                     .memory = cpu_memory,
                                     .zero = cpu_zero,
                                     .copy = cpu_copy,
                                     .upload = cpu_copy,
                                     .download = cpu_copy,
                                     .lend = cpu_lend,
                                     .read = cpu_read,
                                     .leaf = cpu_leaf,
                                     .gemm = cpu_gemm,
                                     .gemm_batched = cpu_gemm_batched,
                                     .product = cpu_product,
                                     .param_product = cpu_param_product,
                                     .cast = cpu_cast,
                                     .conv_layout = rd_cpu_conv_layout,
                                     .lstm_own = cpu_lstm_own,
                                     .lstm_forward = cpu_lstm_forward,
                                     .lstm_backward = cpu_lstm_backward};

rd_code rd_backend_cpu_new(int n_threads, bool mixed, rd_backend **out, rd_status *st)
{
    rd_cpu *b = calloc(1, sizeof *b);
    *out = NULL;
    if (!b) return rd_fail(st, RD_EENV, "out of memory for the CPU backend");
    rd_backend_init(&b->base, &cpu_vt, n_threads);
    b->mixed = mixed;
    b->bf16_hw = b->base.has_bf16 = detect_bf16();
    b->rows_kind = rd_cpu_rows_best();
    if (!mixed &&
        ((int)dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core)
        b->base.plain_rows = PLAIN_ROWS;
    TRY_DNNL(dnnl_engine_create(&b->engine, dnnl_cpu, 0));
    TRY_DNNL(dnnl_stream_create(&b->stream, b->engine, dnnl_stream_default_flags));
    const int threads = b->base.n_threads;
    snprintf(b->base.text, sizeof b->base.text, "cpu, %s, %s, %d thread%s, %s",
             rd_backend_library(), isa_name(), threads, threads == 1 ? "" : "s",
             !mixed ? "float32"
             : b->bf16_hw
                 ? "mixed: bfloat16 products, float32 sums"
                 : "mixed: bfloat16 emulated (no instructions for it here), float32 speed");
    *out = &b->base;
done:
    if (st->code != RD_OK) cpu_free(&b->base);
    return st->code;
}
