/* cuda_blas.c -- products by cuBLASLt.
 *
 * The library stores matrices by columns, so it computes C = A B in rows as C^T = B^T A^T. The
 * operands change places and nothing is transposed.
 *
 * The driver asks the library's heuristic once for each shape, and keeps the answer in a hash
 * table. There are no trial runs: their choice, and with it the order of the sums, would differ
 * from run to run. Split sums are allowed only through the workspace, in a fixed order and in
 * float32. */
#include "cuda_impl.h"
#include "cuda_convert.h"
#include "cuda_library.h"
#include "gpu_remedy.h"
#include "rd/hash.h"
#include <inttypes.h>
#include <stdlib.h>

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#else
#error "cublasLt.h is missing: CUDA=1 needs cuBLAS' headers "\
    "(Debian's name: libcublas-dev-13-0; or the whole CUDA Toolkit)"
#endif

#define CALLS(X)                            \
    X(cublasLtGetVersion)                   \
    X(cublasLtGetStatusString)              \
    X(cublasLtGetStatusName)                \
    X(cublasLtCreate)                       \
    X(cublasLtDestroy)                      \
    X(cublasLtMatmul)                       \
    X(cublasLtMatmulDescCreate)             \
    X(cublasLtMatmulDescDestroy)            \
    X(cublasLtMatmulDescSetAttribute)       \
    X(cublasLtMatrixLayoutCreate)           \
    X(cublasLtMatrixLayoutDestroy)          \
    X(cublasLtMatrixLayoutSetAttribute)     \
    X(cublasLtMatmulPreferenceCreate)       \
    X(cublasLtMatmulPreferenceDestroy)      \
    X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatmulAlgoGetHeuristic)
static struct {
    CALLS(RD_FIELD)
} lt;
#define ENTRY(f) RD_ENTRY_OF(lt, f)
static const rd_symbol symbols[] = {CALLS(ENTRY)};
static rd_library library = {
    .title = "cuBLAS",
    .names = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
    .package = "the CUDA Toolkit's libraries (libcublas-13-0), or nvidia-cublas by pip",
    .symbol = symbols,
    .n_symbol = sizeof symbols / sizeof *symbols,
    .table = &lt};

enum {
    WORKSPACE = 32 << 20, /* the size that NVIDIA advises for Hopper */
    /* number of plans kept; then all are dropped, because ragged batches always bring new shapes */
    MOST_SHAPES = 1 << 14,
    /* products of one call: blockIdx.z ends at 65535 */
    MOST_BATCH = 1 << 15,
    ALIGNED = 16 /* bytes; the fast kernels need this alignment */
};

typedef enum operand { FLOAT32, TF32, NARROW } operand;

/* the key of a plan; keys are compared by bytes, so all padding is zero */
typedef struct cuda_blas_shape {
    int64_t m, n, k, lda, ldb, ldc, batch, stride_a, stride_b, stride_c;
    uint8_t ta, tb, type, align_a, align_b, align_c, narrow_c, pad;
} cuda_blas_shape;

typedef struct plan {
    cuda_blas_shape key;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    uint64_t id; /* no other plan has it, also later at the same address */
    struct plan *next;
} plan;

struct rd_gpu_blas {
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    void *workspace;
    plan **bucket;
    int n_buckets, n_plans;
    uint64_t last_id;
};

/* a product as a task */
typedef struct matmul {
    const plan *plan;
    uint64_t id;
    const void *A, *B;
    void *C;
    float alpha, beta;
} matmul;

static rd_code cuda_blas_result(rd_gpu *g, cublasStatus_t r, const char *call, const char *where,
                                rd_status *st)
{
    if (r == CUBLAS_STATUS_SUCCESS) return st->code;
    /* A failure of an earlier kernel appears here as "execution failed". */
    if (r == CUBLAS_STATUS_EXECUTION_FAILED && RD_CUDA_OK(g, cudaPeekAtLastError(), st) != RD_OK)
        return st->code;
    const rd_code code = r == CUBLAS_STATUS_INVALID_VALUE ? RD_EBUG : RD_EENV;
    const char *name = lt.cublasLtGetStatusName(r), *help = rd_gpu_remedy(name);
    rd_fail_(st, code, where, "GPU %d: cuBLAS: %.*s: %s (%s)%s%s", g->index, rd_call_name(call),
             call, lt.cublasLtGetStatusString(r), name, help ? "; " : "", help ? help : "");
    if (g->failure.code == RD_OK) g->failure = *st;
    return st->code;
}
#define TRY_LT(call) RD_TRY(cuda_blas_result(g, (lt.call), #call, RD_HERE, st))

rd_code rd_gpu_blas_load(rd_status *st)
{
    return rd_library_load(&library, st);
}

int rd_gpu_blas_version(void)
{
    rd_status own = {.code = RD_OK};
    return rd_library_load(&library, &own) == RD_OK ? (int)lt.cublasLtGetVersion() : 0;
}

static rd_code cuda_blas_begin(rd_gpu *g, rd_status *st)
{
    if (g->blas && g->blas->workspace) return st->code;
    RD_TRY(rd_library_load(&library, st));
    if (!g->blas) g->blas = calloc(1, sizeof *g->blas);
    rd_gpu_blas *b = g->blas;
    if (!b) return rd_fail(st, RD_EENV, "out of memory for cuBLAS");
    if (!b->handle) TRY_LT(cublasLtCreate(&b->handle));
    if (!b->preference) TRY_LT(cublasLtMatmulPreferenceCreate(&b->preference));
    const size_t workspace = WORKSPACE;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    TRY_LT(cublasLtMatmulPreferenceSetAttribute(
        b->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
    TRY_LT(cublasLtMatmulPreferenceSetAttribute(
        b->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes));
    RD_TRY(rd_gpu_memory_keep(g, WORKSPACE, &b->workspace, st));
done:
    return st->code;
}

/* ---- plans ---- */

static void plan_free(plan *p)
{
    if (p->desc) (void)lt.cublasLtMatmulDescDestroy(p->desc);
    if (p->a) (void)lt.cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) (void)lt.cublasLtMatrixLayoutDestroy(p->b);
    if (p->c) (void)lt.cublasLtMatrixLayoutDestroy(p->c);
    free(p);
}

static void cuda_blas_drop_plans(rd_gpu_blas *b)
{
    for (int i = 0; i < b->n_buckets; i++)
        while (b->bucket[i]) {
            plan *p = b->bucket[i];
            b->bucket[i] = p->next;
            plan_free(p);
        }
    b->n_plans = 0;
}

void rd_gpu_blas_free(rd_gpu *g)
{
    rd_gpu_blas *b = g->blas;
    if (!b) return;
    cuda_blas_drop_plans(b);
    free(b->bucket);
    if (b->preference) (void)lt.cublasLtMatmulPreferenceDestroy(b->preference);
    if (b->handle) (void)lt.cublasLtDestroy(b->handle);
    free(b);
    g->blas = NULL;
}

static uint64_t cuda_blas_hash_of(const cuda_blas_shape *s)
{
    const unsigned char *p = (const unsigned char *)s;
    uint64_t h = RD_FNV_START;
    for (size_t i = 0; i < sizeof *s; i += 8) {
        uint64_t w;
        memcpy(&w, p + i, 8);
        h = rd_fnv_mix(h, w, 29);
    }
    return h;
}

static rd_code layout(rd_gpu *g, cublasLtMatrixLayout_t *out, cudaDataType type, int64_t rows,
                      int64_t cols, int64_t ld, int64_t batch, int64_t stride, rd_status *st)
{
    const int32_t count = (int32_t)batch;
    TRY_LT(cublasLtMatrixLayoutCreate(out, type, (uint64_t)rows, (uint64_t)cols, ld));
    if (batch > 1) {
        TRY_LT(cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                sizeof count));
        TRY_LT(cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &stride, sizeof stride));
    }
done:
    return st->code;
}

static rd_code cuda_blas_choose(rd_gpu *g, plan *p, rd_status *st)
{
    enum { MOST = 8 };
    rd_gpu_blas *b = g->blas;
    const cuda_blas_shape *s = &p->key;
    cublasLtMatmulHeuristicResult_t found[MOST];
    int n = 0;
    const uint32_t align[] = {s->align_b, s->align_a, s->align_c, s->align_c};
    static const cublasLtMatmulPreferenceAttributes_t at[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    for (int i = 0; i < 4; i++)
        TRY_LT(cublasLtMatmulPreferenceSetAttribute(b->preference, at[i], &align[i],
                                                    sizeof align[i]));
    const cublasStatus_t r = lt.cublasLtMatmulAlgoGetHeuristic(
        b->handle, p->desc, p->b, p->a, p->c, p->c, b->preference, MOST, found, &n);
    if (r != CUBLAS_STATUS_NOT_SUPPORTED)
        RD_TRY(cuda_blas_result(g, r, "cublasLtMatmulAlgoGetHeuristic", RD_HERE, st));
    for (int i = 0; i < n; i++) {
        if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
        p->algo = found[i].algo;
        return st->code;
    }
    rd_fail(st, RD_EENV,
            "cuBLAS has no way to compute a product of %" PRId64 "x%" PRId64 "x%" PRId64
            " (%" PRId64 " of them, leading dimensions %" PRId64 ", %" PRId64 ", %" PRId64
            ") on %s; another version of the library may",
            s->m, s->k, s->n, s->batch, s->lda, s->ldb, s->ldc, g->info.name);
done:
    return st->code;
}

static rd_code cuda_blas_plan_new(rd_gpu *g, const cuda_blas_shape *s, plan **out, rd_status *st)
{
    plan *p = *out = calloc(1, sizeof *p);
    if (!p) return rd_fail(st, RD_EENV, "out of memory for a product's plan");
    p->key = *s;
    const cudaDataType narrow = rd_gpu_is_bfloat16(g) ? CUDA_R_16BF : CUDA_R_16F,
                       in = s->type == NARROW ? narrow : CUDA_R_32F;
    const cublasOperation_t first = s->tb ? CUBLAS_OP_T : CUBLAS_OP_N,
                            second = s->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    TRY_LT(cublasLtMatmulDescCreate(
        &p->desc, s->type == TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
    TRY_LT(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                          sizeof first));
    TRY_LT(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                          sizeof second));
    RD_TRY(layout(g, &p->b, in, s->tb ? s->k : s->n, s->tb ? s->n : s->k, s->ldb, s->batch,
                  s->stride_b, st));
    RD_TRY(layout(g, &p->a, in, s->ta ? s->m : s->k, s->ta ? s->k : s->m, s->lda, s->batch,
                  s->stride_a, st));
    RD_TRY(layout(g, &p->c, s->narrow_c ? narrow : CUDA_R_32F, s->n, s->m, s->ldc, s->batch,
                  s->stride_c, st));
    RD_TRY(cuda_blas_choose(g, p, st));
done:
    if (st->code != RD_OK) {
        plan_free(p);
        *out = NULL;
    }
    return st->code;
}

static rd_code cuda_blas_plan_for(rd_gpu *g, const cuda_blas_shape *s, plan **out, rd_status *st)
{
    rd_gpu_blas *b = g->blas;
    if (!b->bucket) {
        b->n_buckets = MOST_SHAPES;
        b->bucket = calloc((size_t)b->n_buckets, sizeof *b->bucket);
        if (!b->bucket) return rd_fail(st, RD_EENV, "out of memory for products' plans");
    }
    if (b->n_plans == MOST_SHAPES) {
        RD_TRY(rd_gpu_flush(g, st)); /* recorded tasks name these plans */
        cuda_blas_drop_plans(b);
    }
    plan **at = &b->bucket[cuda_blas_hash_of(s) % (uint64_t)b->n_buckets];
    for (plan *p = *at; p; p = p->next)
        if (memcmp(&p->key, s, sizeof *s) == 0) {
            *out = p;
            return st->code;
        }
    RD_TRY(cuda_blas_plan_new(g, s, out, st));
    (*out)->id = ++b->last_id;
    (*out)->next = *at;
    *at = *out;
    b->n_plans++;
done:
    return st->code;
}

/* Returns the largest power of two up to 16 that divides the address and the distances between rows
 * and between matrices, in bytes. Without this value the library assumes 256, which a row of a
 * larger matrix may not have. */
static uint8_t cuda_blas_alignment(const void *p, int64_t ld, int64_t batch, int64_t stride,
                                   size_t size)
{
    const uint64_t all = (uint64_t)(uintptr_t)p | (uint64_t)ld * size |
                         (batch > 1 ? (uint64_t)stride * size : 0) | ALIGNED;
    return (uint8_t)(all & -all);
}

/* ---- operands of 16 bits ---- */

typedef struct cuda_blas_side {
    const void *x;
    rd_element type;
    int64_t rows, cols, ld, stride;
    /* the array that the product reads; the strides above then belong to this array */
    const void *use;
} cuda_blas_side;

/* Prepares 16-bit operands. An operand that has 16 bits is read directly. Held weights already have
 * a 16-bit copy; it is used unless its rows do not begin at the alignment of the fast kernels. */
static rd_code narrow_sides(rd_gpu *g, int64_t batch, cuda_blas_side *of, rd_status *st)
{
    rd_narrow_job job[2];
    int n = 0;
    for (int i = 0; i < 2; i++) {
        const uint16_t *kept;
        if (of[i].type != RD_FLOAT32) continue;
        RD_TRY(rd_gpu_held_narrow(g, of[i].x, &kept, st));
        if (kept &&
            cuda_blas_alignment(kept, of[i].ld, batch, of[i].stride, sizeof *kept) == ALIGNED) {
            of[i].use = kept;
            continue;
        }
        const int64_t ld = (of[i].cols + 7) / 8 * 8,
                      copies = batch > 1 && of[i].stride != 0 ? batch : 1;
        RD_TRY(rd_gpu_scratch_get(g, &g->narrow[i],
                                  (size_t)(copies * of[i].rows * ld) * sizeof(uint16_t), st));
        job[n++] = (rd_narrow_job){.x = of[i].x,
                                   .y = g->narrow[i].p,
                                   .batch = copies,
                                   .rows = of[i].rows,
                                   .cols = of[i].cols,
                                   .ld_x = of[i].ld,
                                   .stride_x = of[i].stride,
                                   .ld_y = ld,
                                   .stride_y = of[i].rows * ld};
        of[i].use = g->narrow[i].p;
        of[i].ld = ld;
        if (of[i].stride != 0) of[i].stride = of[i].rows * ld;
    }
    if (n > 0)
        RD_TRY(rd_convert_narrow(g, rd_gpu_is_bfloat16(g) ? RD_NARROW_BF16 : RD_NARROW_HALF16, job,
                                 n, st));
done:
    return st->code;
}

/* ---- products ---- */

static rd_code run_matmul(rd_gpu *g, const void *args, rd_status *st)
{
    const matmul *m = args;
    const plan *q = m->plan;
    g->last_kernel = "cublasLtMatmul";
    TRY_LT(cublasLtMatmul(g->blas->handle, q->desc, &m->alpha, m->B, q->b, m->A, q->a, &m->beta,
                          m->C, q->c, m->C, q->c, &q->algo, g->blas->workspace, WORKSPACE,
                          g->stream));
    if (g->sync) TRY_CUDA(g, cudaStreamSynchronize(g->stream));
done:
    return st->code;
}

static rd_code cuda_blas_multiply(rd_gpu *g, const rd_product *p, operand type, rd_status *st)
{
    const int64_t batch = p->batch;
    cuda_blas_side of[2] = {
        {p->A, p->type_a, p->ta ? p->k : p->m, p->ta ? p->m : p->k, p->lda, p->stride_a, p->A},
        {p->B, p->type_b, p->tb ? p->n : p->k, p->tb ? p->k : p->n, p->ldb, p->stride_b, p->B}};
    const size_t size = type == NARROW ? sizeof(uint16_t) : sizeof(float);
    plan *q = NULL;
    RD_TRY(cuda_blas_begin(g, st));
    if (type == NARROW) RD_TRY(narrow_sides(g, batch, of, st));
    const cuda_blas_shape s = {
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .lda = of[0].ld,
        .ldb = of[1].ld,
        .ldc = p->ldc,
        .batch = batch,
        .stride_a = batch > 1 ? of[0].stride : 0,
        .stride_b = batch > 1 ? of[1].stride : 0,
        .stride_c = batch > 1 ? p->stride_c : 0,
        .ta = p->ta,
        .tb = p->tb,
        .type = (uint8_t)type,
        .align_a = cuda_blas_alignment(of[0].use, of[0].ld, batch, of[0].stride, size),
        .align_b = cuda_blas_alignment(of[1].use, of[1].ld, batch, of[1].stride, size),
        .align_c = cuda_blas_alignment(p->C, p->ldc, batch, p->stride_c,
                                       rd_element_bytes(p->type_c)),
        .narrow_c = p->type_c != RD_FLOAT32};
    RD_TRY(cuda_blas_plan_for(g, &s, &q, st));
    const matmul m = {.plan = q,
                      .id = q->id,
                      .A = of[0].use,
                      .B = of[1].use,
                      .C = p->C,
                      .alpha = p->alpha,
                      .beta = p->beta};
    RD_TRY(rd_gpu_task_of(g, run_matmul, &m, sizeof m, sizeof m, st));
done:
    return st->code;
}

/* Returns the address i elements behind x. */
static const void *element_at(const void *x, rd_element type, int64_t i)
{
    return (const char *)x + i * (int64_t)rd_element_bytes(type);
}

/* Computes C = beta C for a 16-bit C. */
static rd_code scale_narrow(rd_gpu *g, const rd_product *p, rd_status *st)
{
    if (p->beta == 1.0f) return st->code;
    if (p->beta == 0.0f && p->batch == 1 && p->ldc == p->n)
        return rd_gpu_zero(g, p->C, (size_t)(p->m * p->n) * rd_element_bytes(p->type_c), st);
    return rd_fail(st, RD_EBUG, "an empty product scales 16-bit numbers by %g", (double)p->beta);
}

rd_code rd_gpu_multiply(rd_gpu *g, const rd_product *p, bool narrow, rd_status *st)
{
    const bool tf32 = (g->options.tf32 || g->options.mixed) && rd_gpu_is_ampere(g);
    const rd_element own = rd_gpu_narrow(g), type[] = {p->type_a, p->type_b, p->type_c};
    RD_TRY(rd_gpu_alive(g, st));
    for (int i = 0; i < 3; i++) {
        if (type[i] != RD_FLOAT32 && (type[i] != own || !narrow))
            return rd_fail(
                st, RD_EBUG,
                "a product has an operand of another 16-bit type than the GPU's products");
    }
    if (p->m == 0 || p->n == 0 || p->batch == 0) return st->code;
    if (p->k == 0 && p->type_c != RD_FLOAT32) return scale_narrow(g, p, st);
    if (p->k == 0)
        return p->beta == 1.0f ? st->code
                               : rd_convert_scale(g, p->batch, p->m, p->n, p->beta, p->C, p->ldc,
                                                  p->stride_c, st);
    rd_product part = *p;
    for (int64_t done = 0; done < p->batch; done += part.batch) {
        part.batch = p->batch - done < MOST_BATCH ? p->batch - done : MOST_BATCH;
        part.A = element_at(p->A, p->type_a, done * p->stride_a);
        part.B = element_at(p->B, p->type_b, done * p->stride_b);
        part.C = (char *)p->C + done * p->stride_c * (int64_t)rd_element_bytes(p->type_c);
        RD_TRY(cuda_blas_multiply(g, &part, narrow ? NARROW : tf32 ? TF32 : FLOAT32, st));
    }
done:
    return st->code;
}

rd_code rd_gpu_gemm(rd_gpu *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                    const float *A, int64_t lda, const float *B, int64_t ldb, float beta, float *C,
                    int64_t ldc, rd_status *st)
{
    return rd_gpu_gemm_batched(g, ta, tb, m, n, k, alpha, A, lda, 0, B, ldb, 0, beta, C, ldc, 0, 1,
                               st);
}

rd_code rd_gpu_gemm_batched(rd_gpu *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                            float alpha, const float *A, int64_t lda, int64_t stride_a,
                            const float *B, int64_t ldb, int64_t stride_b, float beta, float *C,
                            int64_t ldc, int64_t stride_c, int64_t batch, rd_status *st)
{
    const rd_product p = {.ta = ta,
                          .tb = tb,
                          .m = m,
                          .n = n,
                          .k = k,
                          .alpha = alpha,
                          .beta = beta,
                          .A = A,
                          .B = B,
                          .C = C,
                          .lda = lda,
                          .ldb = ldb,
                          .ldc = ldc,
                          .batch = batch,
                          .stride_a = stride_a,
                          .stride_b = stride_b,
                          .stride_c = stride_c};
    return rd_gpu_multiply(g, &p, g->options.mixed, st);
}

rd_code rd_gpu_product(rd_gpu *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                       rd_gpu_operand A, rd_gpu_operand B, float beta, rd_gpu_operand C,
                       rd_status *st)
{
    return rd_gpu_product_batched(g, ta, tb, m, n, k, A, 0, B, 0, beta, C, 0, 1, st);
}

rd_code rd_gpu_product_batched(rd_gpu *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                               rd_gpu_operand A, int64_t stride_a, rd_gpu_operand B,
                               int64_t stride_b, float beta, rd_gpu_operand C, int64_t stride_c,
                               int64_t batch, rd_status *st)
{
    const rd_product p = {.ta = ta,
                          .tb = tb,
                          .m = m,
                          .n = n,
                          .k = k,
                          .alpha = 1.0f,
                          .beta = beta,
                          .A = A.at,
                          .B = B.at,
                          .C = C.at,
                          .type_a = A.type,
                          .type_b = B.type,
                          .type_c = C.type,
                          .lda = A.ld,
                          .ldb = B.ld,
                          .ldc = C.ld,
                          .batch = batch,
                          .stride_a = stride_a,
                          .stride_b = stride_b,
                          .stride_c = stride_c};
    return rd_gpu_multiply(g, &p, g->options.mixed, st);
}
