/* products_emulated.cc -- matrix products and convolutions of gpu.h, on one core.
 *
 * Numbers of 16 bits are rounded where the real libraries round: results once. Two other sums are
 * rounded once before they are added: gradients of filters, and the result that a convolution adds
 * to an image, unless the convolution is a plain product. */
#include "device_emulated.h"
#include "rd/rounded.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

namespace
{

/* Returns n elements as float32, rounded to 16 bits if `narrow`. The caller frees them. */
float *wide(const rd_gpu *g, const void *x, rd_element type, int64_t n, bool narrow)
{
    float *y = (float *)malloc((size_t)(n + 1) * sizeof *y);
    for (int64_t i = 0; y && i < n; i++) {
        const float v = rd_emulated_get(type, x, i);
        y[i] = narrow ? rd_emulated_round(g, v) : v;
    }
    return y;
}

/* Returns whether the type is float32 or the 16-bit type of mixed products. */
bool fits(const rd_gpu *g, rd_element type)
{
    return type == RD_FLOAT32 || type == rd_gpu_narrow(g);
}

const int ROWS = 4, COLS = 64;
const int64_t DEPTH = 256;

/* Copies an operand into panels: A as ROWS numbers for each k, B as COLS numbers for each k, filled
 * up with zeros. */
void pack(const rd_gpu *g, bool mixed, const float *x, int64_t along_k, int64_t across, int64_t k,
          int64_t n, int width, float *to)
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
    const void *A, *B;
    void *C;
    float alpha, beta;
    int64_t ta, tb, type_a, type_b, type_c; /* no padding between */
};

/* Sums DEPTH products in float32, and these sums in double. */
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
        pack(g, mixed, p.ta ? A + t * ROWS : A + t * ROWS * p.lda, p.ta ? p.lda : 1,
             p.ta ? 1 : p.lda, k, p.m - t * ROWS, ROWS, pa + t * ROWS * k);
    for (int64_t j = 0; j < p.n; j += COLS) {
        if (k)
            pack(g, mixed, p.tb ? B + j * p.ldb : B + j, p.tb ? 1 : p.ldb, p.tb ? p.ldb : 1, k,
                 p.n - j, COLS, pb);
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

int64_t span(int64_t rows, int64_t cols, int64_t ld)
{
    return rows && cols ? (rows - 1) * ld + cols : 0;
}

/* Checks a matrix of rows x cols, to its last element. */
rd_code check_operand(rd_gpu *g, const char *what, const void *x, rd_element type, int64_t rows,
                      int64_t cols, int64_t ld, rd_status *st)
{
    const int64_t n = span(rows, cols, ld);
    if (n == 0) return RD_OK;
    if (!fits(g, type))
        rd_fail(st, RD_EBUG, "operand %s has a type that this GPU's products do not have", what);
    else if ((uintptr_t)x % rd_element_bytes(type) != 0)
        rd_fail(st, RD_EBUG, "operand %s is not aligned to its elements", what);
    else if (!rd_emulated_is_device(x, (size_t)n * rd_element_bytes(type)))
        rd_fail(st, RD_EBUG, "operand %s is no memory of the device", what);
    else if (type == RD_FLOAT32 && !rd_emulated_current(g, (const float *)x, n))
        rd_fail(st, RD_EBUG,
                "operand %s: weights changed, and nobody called rd_gpu_weights_changed", what);
    return st->code == RD_OK ? RD_OK : rd_emulated_stick(g, st);
}

rd_code run_product(rd_gpu *g, const void *args, rd_status *st)
{
    const product &p = *(const product *)args;
    if (rd_emulated_stuck(g, st) != RD_OK) return st->code;
    rd_emulated_count(RD_EMULATED_PRODUCT);
    rd_emulated_access access;
    for (int64_t i = 0; i < p.batch; i++) {
        const rd_element ta = (rd_element)p.type_a, tb = (rd_element)p.type_b,
                         tc = (rd_element)p.type_c;
        const void *a = (const char *)p.A + i * p.stride_a * (int64_t)rd_element_bytes(ta),
                   *b = (const char *)p.B + i * p.stride_b * (int64_t)rd_element_bytes(tb);
        void *c = (char *)p.C + i * p.stride_c * (int64_t)rd_element_bytes(tc);
        const int64_t ra = p.ta ? p.k : p.m, ca = p.ta ? p.m : p.k, rb = p.tb ? p.n : p.k,
                      cb = p.tb ? p.k : p.n;
        if (check_operand(g, "A of a product", a, ta, ra, ca, p.lda, st) != RD_OK ||
            check_operand(g, "B of a product", b, tb, rb, cb, p.ldb, st) != RD_OK ||
            check_operand(g, "C of a product", c, tc, p.m, p.n, p.ldc, st) != RD_OK)
            return st->code;
        float *wa = ta == RD_FLOAT32 ? nullptr : wide(g, a, ta, span(ra, ca, p.lda), false),
              *wb = tb == RD_FLOAT32 ? nullptr : wide(g, b, tb, span(rb, cb, p.ldb), false),
              *wc = tc == RD_FLOAT32 ? nullptr : wide(g, c, tc, span(p.m, p.n, p.ldc), false);
        const bool done = multiply(g, p, wa ? wa : (const float *)a, wb ? wb : (const float *)b,
                                   wc ? wc : (float *)c);
        for (int64_t r = 0; wc && r < p.m; r++)
            for (int64_t k = 0; k < p.n; k++)
                rd_emulated_put(tc, c, r * p.ldc + k, wc[r * p.ldc + k]);
        free(wa);
        free(wb);
        free(wc);
        if (!done) return rd_fail(st, RD_EENV, "out of memory for a product");
    }
    return RD_OK;
}

} // namespace

extern "C" {

/* Replaces a float32 operand by its 16-bit copy, if it has one. */
static void use_copy(const rd_gpu *g, const void **x, int64_t *type)
{
    void *copy = *type == RD_FLOAT32 ? rd_gpu_rounded_of(g, (const float *)*x) : nullptr;
    if (!copy) return;
    *x = copy;
    *type = rd_gpu_narrow(g);
}

static rd_code queue(rd_gpu *g, const product &asked, rd_status *st)
{
    product p = asked;
    use_copy(g, &p.A, &p.type_a);
    use_copy(g, &p.B, &p.type_b);
    if (rd_emulated_stuck(g, st) != RD_OK || p.m == 0 || p.n == 0) return st->code;
    if (p.m < 0 || p.n < 0 || p.k < 0 || p.lda < (p.ta ? p.m : p.k) || p.ldb < (p.tb ? p.k : p.n) ||
        p.ldc < p.n) {
        rd_fail(st, RD_EBUG,
                "product of %lld x %lld x %lld with leading dimensions %lld, %lld, %lld",
                (long long)p.m, (long long)p.n, (long long)p.k, (long long)p.lda, (long long)p.ldb,
                (long long)p.ldc);
        return rd_emulated_stick(g, st);
    }
    return rd_emulated_task(g, run_product, &p, sizeof p, st);
}

rd_code rd_gpu_gemm_batched(rd_gpu *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                            float alpha, const float *A, int64_t lda, int64_t stride_a,
                            const float *B, int64_t ldb, int64_t stride_b, float beta, float *C,
                            int64_t ldc, int64_t stride_c, int64_t batch, rd_status *st)
{
    return queue(g, {m, n, k, lda,   ldb,  ldc, batch, stride_a,   stride_b,   stride_c,
                     A, B, C, alpha, beta, ta,  tb,    RD_FLOAT32, RD_FLOAT32, RD_FLOAT32},
                 st);
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
    return queue(g, {m,    n,    k,    A.ld, B.ld, C.ld, batch, stride_a, stride_b, stride_c,
                     A.at, B.at, C.at, 1.0f, beta, ta,   tb,    A.type,   B.type,   C.type},
                 st);
}

rd_code rd_gpu_gemm(rd_gpu *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                    const float *A, int64_t lda, const float *B, int64_t ldb, float beta, float *C,
                    int64_t ldc, rd_status *st)
{
    return rd_gpu_gemm_batched(g, ta, tb, m, n, k, alpha, A, lda, 0, B, ldb, 0, beta, C, ldc, 0, 1,
                               st);
}

} // extern "C"

/* ---- convolutions: one product of a pixel with a tap at a time ---- */
namespace
{

int64_t size_x(const rd_gpu_conv *c)
{
    return c->n * c->h * c->w * c->ci;
}
int64_t size_W(const rd_gpu_conv *c)
{
    return c->kh * c->kw * c->ci * c->co;
}
int64_t size_y(const rd_gpu_conv *c)
{
    return c->n * c->oh * c->ow * c->co;
}

bool is_product(const rd_gpu_conv *c)
{
    return c->kh == 1 && c->kw == 1 && c->stride == 1 && c->oh == c->h && c->ow == c->w &&
           !c->pad_top && !c->pad_left;
}

/* Returns the numbers that a convolution reads. */
float *rounded(const rd_gpu *g, const void *x, rd_element type, int64_t n)
{
    return wide(g, x, type, n, rd_emulated_mixed(g));
}

/* Calls use(pixel of x, tap, pixel of y) for each combination that contributes. */
template <typename Use> void each_meeting(const rd_gpu_conv *c, Use use)
{
    for (int64_t i = 0; i < c->n; i++)
        for (int64_t p = 0; p < c->oh; p++)
            for (int64_t q = 0; q < c->ow; q++)
                for (int64_t u = 0; u < c->kh; u++)
                    for (int64_t v = 0; v < c->kw; v++) {
                        const int64_t r = p * c->stride + u - c->pad_top,
                                      s = q * c->stride + v - c->pad_left;
                        if (r < 0 || r >= c->h || s < 0 || s >= c->w) continue;
                        use(((i * c->h + r) * c->w + s) * c->ci, (u * c->kw + v) * c->ci * c->co,
                            ((i * c->oh + p) * c->ow + q) * c->co);
                    }
}

rd_code check_conv(rd_gpu *g, const rd_gpu_conv *c, const void *x, const float *W, const void *y,
                   rd_status *st)
{
    const int64_t oh = (c->h + c->pad_top + c->pad_bottom - c->kh) / c->stride + 1,
                  ow = (c->w + c->pad_left + c->pad_right - c->kw) / c->stride + 1;
    if (rd_emulated_stuck(g, st) != RD_OK) return st->code;
    if (c->stride < 1 || oh != c->oh || ow != c->ow) {
        rd_fail(st, RD_EBUG, "convolution of %lld x %lld gives %lld x %lld, not %lld x %lld",
                (long long)c->h, (long long)c->w, (long long)oh, (long long)ow, (long long)c->oh,
                (long long)c->ow);
        return rd_emulated_stick(g, st);
    }
    rd_emulated_access access;
    if (check_operand(g, "x of a convolution", x, c->type, 1, size_x(c), 0, st) != RD_OK ||
        check_operand(g, "W of a convolution", W, RD_FLOAT32, 1, size_W(c), 0, st) != RD_OK)
        return st->code;
    return check_operand(g, "y of a convolution", y, c->type, 1, size_y(c), 0, st);
}

/* Frees a and b. */
rd_code finish(rd_status *st, float *a, float *b, bool lacks)
{
    lacks = lacks || !a || !b;
    free(a);
    free(b);
    return lacks ? rd_fail(st, RD_EENV, "out of memory for a convolution") : RD_OK;
}

/* A convolution as a task: it reads two of the arrays and writes the third. */
struct convolution {
    rd_gpu_conv c;
    int64_t add;
    void *x;
    float *W;
    void *y;
};

rd_code run_forward(rd_gpu *g, const void *args, rd_status *st)
{
    const convolution *j = (const convolution *)args;
    const rd_gpu_conv *c = &j->c;
    if (check_conv(g, c, j->x, j->W, j->y, st) != RD_OK) return st->code;
    rd_emulated_count(RD_EMULATED_CONVOLUTION);
    rd_emulated_access access;
    float *a = rounded(g, j->x, c->type, size_x(c)), *b = rounded(g, j->W, RD_FLOAT32, size_W(c));
    float *y = (float *)calloc((size_t)size_y(c) + 1, sizeof *y);
    if (a && b && y) {
        each_meeting(c, [=](int64_t ix, int64_t iw, int64_t iy) {
            for (int64_t k = 0; k < c->ci; k++) {
                const float v = a[ix + k], *w = b + iw + k * c->co;
#pragma omp simd
                for (int64_t i = 0; i < c->co; i++) y[iy + i] += v * w[i];
            }
        });
        for (int64_t i = 0; i < size_y(c); i++) rd_emulated_put(c->type, j->y, i, y[i]);
    }
    const bool lacks = !y;
    free(y);
    return finish(st, a, b, lacks);
}

rd_code run_data(rd_gpu *g, const void *args, rd_status *st)
{
    const convolution *j = (const convolution *)args;
    const rd_gpu_conv *c = &j->c;
    if (check_conv(g, c, j->x, j->W, j->y, st) != RD_OK) return st->code;
    rd_emulated_count(RD_EMULATED_CONVOLUTION);
    rd_emulated_access access;
    float *a = rounded(g, j->y, c->type, size_y(c)), *b = rounded(g, j->W, RD_FLOAT32, size_W(c));
    /* the sum begins with the old value */
    const bool at_once = c->type == RD_FLOAT32 || is_product(c);
    float *dx = j->add && at_once ? wide(g, j->x, c->type, size_x(c), false)
                                  : (float *)calloc((size_t)size_x(c) + 1, sizeof *dx);
    if (a && b && dx) {
        each_meeting(c, [=](int64_t ix, int64_t iw, int64_t iy) {
            for (int64_t k = 0; k < c->ci; k++) {
                const float *w = b + iw + k * c->co;
                float s = 0.0f;
#pragma omp simd reduction(+ : s)
                for (int64_t i = 0; i < c->co; i++) s += a[iy + i] * w[i];
                dx[ix + k] += s;
            }
        });
        for (int64_t i = 0; i < size_x(c); i++) {
            const bool later = j->add && !at_once;
            rd_emulated_put(c->type, j->x, i,
                            later ? rd_emulated_get(c->type, j->x, i) + rd_emulated_round(g, dx[i])
                                  : dx[i]);
        }
    }
    const bool lacks = !dx;
    free(dx);
    return finish(st, a, b, lacks);
}

/* Sums over all pixels, in double. */
rd_code run_weights(rd_gpu *g, const void *args, rd_status *st)
{
    const convolution *j = (const convolution *)args;
    const rd_gpu_conv *c = &j->c;
    if (check_conv(g, c, j->x, j->W, j->y, st) != RD_OK) return st->code;
    rd_emulated_count(RD_EMULATED_CONVOLUTION);
    rd_emulated_access access;
    float *a = rounded(g, j->x, c->type, size_x(c)), *b = rounded(g, j->y, c->type, size_y(c));
    double *sum = (double *)calloc((size_t)size_W(c) + 1, sizeof *sum);
    if (a && b && sum) {
        each_meeting(c, [=](int64_t ix, int64_t iw, int64_t iy) {
            for (int64_t k = 0; k < c->ci; k++) {
                const double v = (double)a[ix + k];
                double *w = sum + iw + k * c->co;
#pragma omp simd
                for (int64_t i = 0; i < c->co; i++) w[i] += v * (double)b[iy + i];
            }
        });
        const bool narrow = c->type != RD_FLOAT32 && !is_product(c);
        for (int64_t i = 0; i < size_W(c); i++)
            j->W[i] += narrow ? rd_emulated_round(g, (float)sum[i]) : (float)sum[i];
    }
    const bool lacks = !sum;
    free(sum);
    return finish(st, a, b, lacks);
}

rd_code queue_conv(rd_gpu *g, rd_gpu_run *run, const rd_gpu_conv *c, const void *x, const float *W,
                   const void *y, bool add, rd_status *st)
{
    convolution j = {*c, add, const_cast<void *>(x), const_cast<float *>(W), const_cast<void *>(y)};
    __builtin_clear_padding(&j); /* graphs compare bytes */
    return rd_emulated_task(g, run, &j, sizeof j, st);
}

} // namespace

extern "C" {

rd_code rd_gpu_conv_forward(rd_gpu *g, const rd_gpu_conv *c, const void *x, const float *W, void *y,
                            rd_status *st)
{
    return queue_conv(g, run_forward, c, x, W, y, false, st);
}

rd_code rd_gpu_conv_data(rd_gpu *g, const rd_gpu_conv *c, const void *dy, const float *W, void *dx,
                         bool add, rd_status *st)
{
    return queue_conv(g, run_data, c, dx, W, dy, add, st);
}

rd_code rd_gpu_conv_weights(rd_gpu *g, const rd_gpu_conv *c, const void *x, const void *dy,
                            float *dW, rd_status *st)
{
    return queue_conv(g, run_weights, c, x, dW, dy, false, st);
}

} // extern "C"
