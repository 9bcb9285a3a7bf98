/* fake_blas.cc -- cuBLASLt of the fake runtime: checks operands when a product is queued, computes
 * when the stream comes to it.
 *
 * A plan promises alignments; operands that break the promise end the process. */
#include "fake_runtime.h"
#include "cublasLt.h"
#include <string.h>

using namespace fake;

struct cublasLtContext {
    int unused;
};
struct cublasLtMatmulDesc {
    int32_t ta, tb;
};
struct cublasLtMatrixLayout {
    cudaDataType type;
    int64_t rows, cols, ld, stride;
    int32_t batch;
};
struct cublasLtMatmulPreference {
    uint64_t workspace;
    uint32_t align[4];
};

namespace
{

enum { A_OF, B_OF, C_OF, D_OF, WORKSPACE_OF }; /* places in an algorithm's data */
const int64_t DEPTH = 256;

rd_element element_of(cudaDataType t)
{
    return t == CUDA_R_32F ? RD_FLOAT32 : t == CUDA_R_16BF ? RD_BFLOAT16 : RD_FLOAT16;
}

size_t bytes_of(cudaDataType t)
{
    return rd_element_bytes(element_of(t));
}

struct shape {
    int64_t m, n, k;
};

/* Returns false if the operands do not fit. */
bool shape_of(const cublasLtMatmulDesc *d, const cublasLtMatrixLayout *a,
              const cublasLtMatrixLayout *b, const cublasLtMatrixLayout *c, shape *s)
{
    s->m = d->ta ? a->cols : a->rows;
    s->k = d->ta ? a->rows : a->cols;
    s->n = d->tb ? b->rows : b->cols;
    return (d->tb ? b->cols : b->rows) == s->k && c->rows == s->m && c->cols == s->n &&
           a->type == b->type && a->batch == b->batch && a->batch == c->batch;
}

/* Checks one operand: place, alignment of the plan, room for its columns. */
void check(const char *what, const void *p, const cublasLtMatrixLayout *l, uint64_t align)
{
    const size_t size = bytes_of(l->type);
    const int64_t last = (l->batch - 1) * l->stride + (l->cols - 1) * l->ld + l->rows;
    need_device("cublasLtMatmul", what, p, (size_t)last * size);
    if ((uintptr_t)p % align || (uint64_t)l->ld * size % align ||
        (l->batch > 1 && (uint64_t)l->stride * size % align))
        mistake("cublasLtMatmul", "%s: its alignment is not %d bytes, as the plan was told", what,
                (int)align);
}

/* Returns the matrix as floats, row after row; with flip: its transpose. */
std::vector<float> unpacked(const void *x, const cublasLtMatrixLayout &l, int64_t first, bool flip)
{
    const int64_t rows = flip ? l.cols : l.rows, cols = flip ? l.rows : l.cols;
    std::vector<float> y((size_t)(rows * cols));
    for (int64_t j = 0; j < l.cols; j++)
        for (int64_t i = 0; i < l.rows; i++)
            y[(size_t)(flip ? j * cols + i : i * cols + j)] = rd_emulated_get(element_of(l.type), x,
                                                                              first + j * l.ld + i);
    return y;
}

struct product {
    cublasLtMatmulDesc d;
    cublasLtMatrixLayout a, b, c;
    shape s;
    float alpha, beta;
    const void *A, *B;
    void *C;
};

/* Sums DEPTH products in float32, and these sums in double. */
void multiply(const product &p)
{
    for (int32_t q = 0; q < p.c.batch; q++) {
        const shape s = p.s;
        /* a[k m + i], b[k n + j] */
        const std::vector<float> a = unpacked(p.A, p.a, q * p.a.stride, p.d.ta == 0),
                                 b = unpacked(p.B, p.b, q * p.b.stride, p.d.tb != 0);
        std::vector<float> part((size_t)s.m);
        std::vector<double> sum((size_t)s.m);
        for (int64_t j = 0; j < s.n; j++) {
            std::fill(sum.begin(), sum.end(), 0.0);
            for (int64_t k0 = 0; k0 < s.k; k0 += DEPTH) {
                std::fill(part.begin(), part.end(), 0.0f);
                for (int64_t k = k0; k < s.k && k < k0 + DEPTH; k++) {
                    const float x = b[(size_t)(k * s.n + j)], *row = &a[(size_t)(k * s.m)];
                    float *to = part.data();
#pragma omp simd
                    for (int64_t i = 0; i < s.m; i++) to[i] += x * row[i];
                }
                for (int64_t i = 0; i < s.m; i++) sum[(size_t)i] += (double)part[(size_t)i];
            }
            for (int64_t i = 0; i < s.m; i++) {
                const int64_t at = q * p.c.stride + j * p.c.ld + i;
                const rd_element e = element_of(p.c.type);
                const float x = p.alpha * (float)sum[(size_t)i];
                rd_emulated_put(e, p.C, at,
                                p.beta == 0.0f ? x : x + p.beta * rd_emulated_get(e, p.C, at));
            }
        }
    }
}

} // namespace

#define LT_CALL() \
    if (fails(__func__)) return CUBLAS_STATUS_INTERNAL_ERROR

extern "C" {

size_t cublasLtGetVersion(void)
{
    return 130100;
}

const char *cublasLtGetStatusString(cublasStatus_t)
{
    return "a failure of the fake cuBLAS";
}

const char *cublasLtGetStatusName(cublasStatus_t s)
{
    switch (s) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    LT_CALL();
    *h = new cublasLtContext{0};
    count_object(1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    const bool fail = fails(__func__);
    delete h;
    count_object(-1);
    return fail ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute,
                                        cudaDataType scale)
{
    LT_CALL();
    if (scale != CUDA_R_32F ||
        (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32))
        mistake(__func__, "sums are float32");
    *d = new cublasLtMatmulDesc{0, 0};
    count_object(1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    const bool fail = fails(__func__);
    delete d;
    count_object(-1);
    return fail ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a, const void *value, size_t bytes)
{
    LT_CALL();
    if (bytes != sizeof d->ta) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(a == CUBLASLT_MATMUL_DESC_TRANSA ? &d->ta : &d->tb, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    LT_CALL();
    if (rows == 0 || cols == 0 || ld < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
    *l = new cublasLtMatrixLayout{type, (int64_t)rows, (int64_t)cols, ld, 0, 1};
    count_object(1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    const bool fail = fails(__func__);
    delete l;
    count_object(-1);
    return fail ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t a, const void *value, size_t bytes)
{
    LT_CALL();
    if (a == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof l->batch)
        memcpy(&l->batch, value, bytes);
    else if (a == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && bytes == sizeof l->stride)
        memcpy(&l->stride, value, bytes);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    LT_CALL();
    *p = new cublasLtMatmulPreference{0, {256, 256, 256, 256}};
    count_object(1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    const bool fail = fails(__func__);
    delete p;
    count_object(-1);
    return fail ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t a,
                                                    const void *value, size_t bytes)
{
    LT_CALL();
    if (a == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == sizeof p->workspace)
        memcpy(&p->workspace, value, bytes);
    else if (a >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES && bytes == sizeof p->align[0])
        memcpy(&p->align[a - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
    else if (a != CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                              cublasLtMatmulPreference_t p, int most,
                                              cublasLtMatmulHeuristicResult_t *found, int *n)
{
    shape s;
    *n = 0;
    LT_CALL();
    if (is_capturing()) mistake(__func__, "a plan is made during a capture");
    if (c != out || most < 2 || !shape_of(d, a, b, c, &s)) return CUBLAS_STATUS_INVALID_VALUE;
    /* The first choice cannot run, as the library's may be. */
    memset(found, 0, 2 * sizeof *found);
    found[0].state = CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < 4; i++) found[1].algo.data[i] = p->align[i];
    found[1].algo.data[WORKSPACE_OF] = found[1].workspaceSize = p->workspace;
    *n = number_of_environment("RD_FAKE_NO_PRODUCT", 0) ? 1 : 2;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t la, const void *B,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *C,
                              cublasLtMatrixLayout_t lc, void *D, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t s)
{
    product p = {*d, *la, *lb, *lc, {}, *(const float *)alpha, *(const float *)beta, A, B, D};
    if (fails(__func__)) return CUBLAS_STATUS_EXECUTION_FAILED;
    if (device_failure() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
    if (!h || lc != ld || C != D || !shape_of(d, la, lb, lc, &p.s))
        return CUBLAS_STATUS_INVALID_VALUE;
    check("A", A, la, algo->data[A_OF]);
    check("B", B, lb, algo->data[B_OF]);
    check("C", D, lc, algo->data[D_OF]);
    if (workspace_bytes < algo->data[WORKSPACE_OF]) mistake(__func__, "the workspace is too small");
    need_device(__func__, "workspace", workspace, workspace_bytes);
    queue(
        s,
        [=] {
            counts.products++;
            count_in_graph();
            multiply(p);
            return true;
        },
        __func__);
    return CUBLAS_STATUS_SUCCESS;
}

} // extern "C"
