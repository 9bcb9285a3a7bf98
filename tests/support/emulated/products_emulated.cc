/* products_emulated.cc -- matrix products and convolutions of gpu.h, on one core. */
#include "device_emulated.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

namespace {

const int ROWS = 4, COLS = 64;
const int64_t DEPTH = 256;

/* Operands are read through panels: A as ROWS numbers of each k, B as COLS of each k, filled up with zeros. */
void pack(const rd_gpu *g, bool mixed, const float *x, int64_t along_k, int64_t across, int64_t k, int64_t n, int width, float *to)
{
    for (int64_t q = 0; q < k; q++)
        for (int64_t i = 0; i < width; i++) {
            const float v = i < n ? x[q * along_k + i * across] : 0.0f;
            to[q * width + i] = mixed ? rd_emulated_round(g, v) : v;
        }
}

void tile(int64_t k, const float *A, const float *B, float sum[ROWS][COLS])
{
    for (int64_t q = 0; q < k; q++)
        for (int i = 0; i < ROWS; i++) {
#pragma omp simd
            for (int j = 0; j < COLS; j++) sum[i][j] += A[q * ROWS + i] * B[q * COLS + j];
        }
}

struct product {
    int64_t m, n, k, lda, ldb, ldc;
    int64_t batch, stride_a, stride_b, stride_c;
    const float *A, *B;
    float *C;
    float alpha, beta;
    int64_t ta, tb; /* no gap */
};

/* Sums of DEPTH products in float32, these in double. */
bool multiply(const rd_gpu *g, const product &p, const float *A, const float *B, float *C)
{
    const bool mixed = rd_emulated_mixed(g);
    const int64_t m_tiles = (p.m + ROWS - 1) / ROWS;
    float *pa = (float *)malloc((size_t)(m_tiles * ROWS * (p.k + 1)) * sizeof *pa);
    float *pb = (float *)malloc((size_t)(COLS * (p.k + 1)) * sizeof *pb);
    if (!pa || !pb) {
        free(pa);
        free(pb);
        return false;
    }
    const int64_t k = p.alpha == 0.0f ? 0 : p.k;
    for (int64_t t = 0; t < m_tiles && k; t++)
        pack(g, mixed, p.ta ? A + t * ROWS : A + t * ROWS * p.lda, p.ta ? p.lda : 1, p.ta ? 1 : p.lda, k, p.m - t * ROWS, ROWS,
             pa + t * ROWS * k);
    for (int64_t j = 0; j < p.n; j += COLS) {
        if (k) pack(g, mixed, p.tb ? B + j * p.ldb : B + j, p.tb ? 1 : p.ldb, p.tb ? p.ldb : 1, k, p.n - j, COLS, pb);
        for (int64_t t = 0; t < m_tiles; t++) {
            double total[ROWS][COLS] = {};
            for (int64_t q = 0; q < k; q += DEPTH) {
                float sum[ROWS][COLS] = {};
                tile(k - q < DEPTH ? k - q : DEPTH, pa + (t * k + q) * ROWS, pb + q * COLS, sum);
                for (int r = 0; r < ROWS; r++)
                    for (int c = 0; c < COLS; c++) total[r][c] += (double)sum[r][c];
            }
            for (int64_t r = 0; r < ROWS && t * ROWS + r < p.m; r++) {
                float *to = C + (t * ROWS + r) * p.ldc + j;
                for (int64_t c = 0; c < COLS && j + c < p.n; c++) {
                    const float x = p.alpha * (float)total[r][c];
                    to[c] = p.beta == 0.0f ? x : x + p.beta * to[c];
                }
            }
        }
    }
    free(pa);
    free(pb);
    return true;
}

/* A matrix of rows x cols, to its last element. */
rd_code check_operand(rd_gpu *g, const char *what, const float *x, int64_t rows, int64_t cols, int64_t ld, rd_status *st)
{
    const int64_t n = rows && cols ? (rows - 1) * ld + cols : 0;
    if (n == 0) return RD_OK;
    if (!rd_emulated_is_device(x, (size_t)n * sizeof *x))
        rd_fail(st, RD_EBUG, "operand %s is no memory of the device", what);
    else if (!rd_emulated_current(g, x, n))
        rd_fail(st, RD_EBUG, "operand %s: weights changed, and nobody called rd_gpu_weights_changed", what);
    return st->code == RD_OK ? RD_OK : rd_emulated_stick(g, st);
}

rd_code run_product(rd_gpu *g, const void *args, rd_status *st)
{
    const product &p = *(const product *)args;
    if (rd_emulated_stuck(g, st) != RD_OK) return st->code;
    rd_emulated_count(RD_EMULATED_PRODUCT);
    rd_emulated_access access;
    for (int64_t i = 0; i < p.batch; i++) {
        const float *a = p.A + i * p.stride_a, *b = p.B + i * p.stride_b;
        float *c = p.C + i * p.stride_c;
        if (check_operand(g, "A of a product", a, p.ta ? p.k : p.m, p.ta ? p.m : p.k, p.lda, st) != RD_OK ||
            check_operand(g, "B of a product", b, p.tb ? p.n : p.k, p.tb ? p.k : p.n, p.ldb, st) != RD_OK ||
            check_operand(g, "C of a product", c, p.m, p.n, p.ldc, st) != RD_OK)
            return st->code;
        if (!multiply(g, p, a, b, c)) return rd_fail(st, RD_EENV, "out of memory for a product");
    }
    return RD_OK;
}

} // namespace

extern "C" {

rd_code rd_gpu_gemm_batched(rd_gpu *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *A,
                            int64_t lda, int64_t stride_a, const float *B, int64_t ldb, int64_t stride_b, float beta, float *C,
                            int64_t ldc, int64_t stride_c, int64_t batch, rd_status *st)
{
    if (rd_emulated_stuck(g, st) != RD_OK || m == 0 || n == 0) return st->code;
    if (m < 0 || n < 0 || k < 0 || lda < (ta ? m : k) || ldb < (tb ? k : n) || ldc < n) {
        rd_fail(st, RD_EBUG, "product of %lld x %lld x %lld with leading dimensions %lld, %lld, %lld", (long long)m, (long long)n,
                (long long)k, (long long)lda, (long long)ldb, (long long)ldc);
        return rd_emulated_stick(g, st);
    }
    const product p = {m, n, k, lda, ldb, ldc, batch, stride_a, stride_b, stride_c, A, B, C, alpha, beta, ta, tb};
    return rd_emulated_task(g, run_product, &p, sizeof p, st);
}

rd_code rd_gpu_gemm(rd_gpu *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *A, int64_t lda,
                    const float *B, int64_t ldb, float beta, float *C, int64_t ldc, rd_status *st)
{
    return rd_gpu_gemm_batched(g, ta, tb, m, n, k, alpha, A, lda, 0, B, ldb, 0, beta, C, ldc, 0, 1, st);
}

} // extern "C"

/* ---- convolutions: one product of a pixel with a tap at a time ---- */
namespace {

int64_t size_x(const rd_gpu_conv *c) { return c->n * c->h * c->w * c->ci; }
int64_t size_W(const rd_gpu_conv *c) { return c->kh * c->kw * c->ci * c->co; }
int64_t size_y(const rd_gpu_conv *c) { return c->n * c->oh * c->ow * c->co; }

float *rounded(const rd_gpu *g, const float *x, int64_t n)
{
    float *y = (float *)malloc((size_t)(n + 1) * sizeof *y);
    for (int64_t i = 0; y && i < n; i++) y[i] = rd_emulated_mixed(g) ? rd_emulated_round(g, x[i]) : x[i];
    return y;
}

/* use(pixel of x, tap, pixel of y) for all that meet. */
template <typename Use> void each_meeting(const rd_gpu_conv *c, Use use)
{
    for (int64_t i = 0; i < c->n; i++)
        for (int64_t p = 0; p < c->oh; p++)
            for (int64_t q = 0; q < c->ow; q++)
                for (int64_t u = 0; u < c->kh; u++)
                    for (int64_t v = 0; v < c->kw; v++) {
                        const int64_t r = p * c->stride + u - c->pad_top, s = q * c->stride + v - c->pad_left;
                        if (r < 0 || r >= c->h || s < 0 || s >= c->w) continue;
                        use(((i * c->h + r) * c->w + s) * c->ci, (u * c->kw + v) * c->ci * c->co, ((i * c->oh + p) * c->ow + q) * c->co);
                    }
}

rd_code check_conv(rd_gpu *g, const rd_gpu_conv *c, const float *x, const float *W, const float *y, rd_status *st)
{
    const int64_t oh = (c->h + c->pad_top + c->pad_bottom - c->kh) / c->stride + 1,
                  ow = (c->w + c->pad_left + c->pad_right - c->kw) / c->stride + 1;
    if (rd_emulated_stuck(g, st) != RD_OK) return st->code;
    if (c->stride < 1 || oh != c->oh || ow != c->ow) {
        rd_fail(st, RD_EBUG, "convolution of %lld x %lld gives %lld x %lld, not %lld x %lld", (long long)c->h, (long long)c->w,
                (long long)oh, (long long)ow, (long long)c->oh, (long long)c->ow);
        return rd_emulated_stick(g, st);
    }
    rd_emulated_access access;
    if (check_operand(g, "x of a convolution", x, 1, size_x(c), 0, st) != RD_OK ||
        check_operand(g, "W of a convolution", W, 1, size_W(c), 0, st) != RD_OK)
        return st->code;
    return check_operand(g, "y of a convolution", y, 1, size_y(c), 0, st);
}

rd_code finish(rd_status *st, float *a, float *b)
{
    const bool lacks = !a || !b;
    free(a);
    free(b);
    return lacks ? rd_fail(st, RD_EENV, "out of memory for a convolution") : RD_OK;
}

/* A convolution as a task: two of the arrays are read. */
struct convolution {
    rd_gpu_conv c;
    const float *x, *W, *y;
    float *out;
    int64_t add;
};

rd_code run_forward(rd_gpu *g, const void *args, rd_status *st)
{
    const convolution *j = (const convolution *)args;
    const rd_gpu_conv *c = &j->c;
    const float *x = j->x, *W = j->W;
    float *y = j->out;
    if (check_conv(g, c, x, W, y, st) != RD_OK) return st->code;
    rd_emulated_count(RD_EMULATED_CONVOLUTION);
    rd_emulated_access access;
    float *a = rounded(g, x, size_x(c)), *b = rounded(g, W, size_W(c));
    if (a && b) {
        memset(y, 0, (size_t)size_y(c) * sizeof *y);
        each_meeting(c, [=](int64_t ix, int64_t iw, int64_t iy) {
            for (int64_t k = 0; k < c->ci; k++) {
                const float v = a[ix + k], *w = b + iw + k * c->co;
#pragma omp simd
                for (int64_t j = 0; j < c->co; j++) y[iy + j] += v * w[j];
            }
        });
    }
    return finish(st, a, b);
}

rd_code run_data(rd_gpu *g, const void *args, rd_status *st)
{
    const convolution *j = (const convolution *)args;
    const rd_gpu_conv *c = &j->c;
    const float *dy = j->y, *W = j->W;
    float *dx = j->out;
    const bool add = j->add;
    if (check_conv(g, c, dx, W, dy, st) != RD_OK) return st->code;
    rd_emulated_count(RD_EMULATED_CONVOLUTION);
    rd_emulated_access access;
    float *a = rounded(g, dy, size_y(c)), *b = rounded(g, W, size_W(c));
    if (a && b) {
        if (!add) memset(dx, 0, (size_t)size_x(c) * sizeof *dx);
        each_meeting(c, [=](int64_t ix, int64_t iw, int64_t iy) {
            for (int64_t k = 0; k < c->ci; k++) {
                const float *w = b + iw + k * c->co;
                float s = 0.0f;
#pragma omp simd reduction(+ : s)
                for (int64_t j = 0; j < c->co; j++) s += a[iy + j] * w[j];
                dx[ix + k] += s;
            }
        });
    }
    return finish(st, a, b);
}

/* Sums over all pixels: in double. */
rd_code run_weights(rd_gpu *g, const void *args, rd_status *st)
{
    const convolution *j = (const convolution *)args;
    const rd_gpu_conv *c = &j->c;
    const float *x = j->x, *dy = j->y;
    float *dW = j->out;
    if (check_conv(g, c, x, dW, dy, st) != RD_OK) return st->code;
    rd_emulated_count(RD_EMULATED_CONVOLUTION);
    rd_emulated_access access;
    float *a = rounded(g, x, size_x(c)), *b = rounded(g, dy, size_y(c));
    double *sum = (double *)calloc((size_t)size_W(c) + 1, sizeof *sum);
    if (!sum) {
        free(a);
        a = nullptr;
    }
    if (a && b) {
        each_meeting(c, [=](int64_t ix, int64_t iw, int64_t iy) {
            for (int64_t k = 0; k < c->ci; k++) {
                const double v = (double)a[ix + k];
                double *w = sum + iw + k * c->co;
#pragma omp simd
                for (int64_t j = 0; j < c->co; j++) w[j] += v * (double)b[iy + j];
            }
        });
        for (int64_t i = 0; i < size_W(c); i++) dW[i] += (float)sum[i];
    }
    free(sum);
    return finish(st, a, b);
}

} // namespace

extern "C" {

rd_code rd_gpu_conv_forward(rd_gpu *g, const rd_gpu_conv *c, const float *x, const float *W, float *y, rd_status *st)
{
    const convolution j = {*c, x, W, y, y, 0};
    return rd_emulated_task(g, run_forward, &j, sizeof j, st);
}

rd_code rd_gpu_conv_data(rd_gpu *g, const rd_gpu_conv *c, const float *dy, const float *W, float *dx, bool add, rd_status *st)
{
    const convolution j = {*c, dx, W, dy, dx, add};
    return rd_emulated_task(g, run_data, &j, sizeof j, st);
}

rd_code rd_gpu_conv_weights(rd_gpu *g, const rd_gpu_conv *c, const float *x, const float *dy, float *dW, rd_status *st)
{
    const convolution j = {*c, x, dW, dy, dW, 0};
    return rd_emulated_task(g, run_weights, &j, sizeof j, st);
}

} // extern "C"
