/* int8.c -- tests products with int8 weights against sums of integers, for each kind of kernel that
 * the CPU has. The reference rounds in double and sums in 64 bits. */
#include "../../runner/engine/cpu/cpu_int8.h"
#include "rd/philox.h"
#include "test.h"
#include <math.h>

typedef struct size_row {
    const char *name;
    int64_t m, k, n;
    bool transposed, add, largest;
} size_row;

static size_row size_rows[] = {
    {"one number", 1, 1, 1, false, false, false},
    {"k is odd", 7, 3, 5, false, false, false},
    {"two strips", 13, 64, 100, false, true, false},
    {"whole strips", 6, 32, 128, false, false, false},
    {"transposed", 65, 33, 70, true, false, false},
    {"transposed, added", 5, 256, 31, true, true, false},
    {"no row", 0, 8, 8, false, false, false},
    /* Pairs of 255 * 127 do not fit into 16 bits, and the sums are near 2^31. */
    {"largest sums", 2, 131072, 3, false, false, true},
};

/* Fills x with n numbers in (-1, 1). */
static void fill(uint64_t part, int64_t n, float *x)
{
    rd_philox_uniform(rd_key_make(5, RD_RNG_TEST, part, 0), 0, n, x);
    for (int64_t i = 0; i < n; i++) x[i] = 2.0f * x[i] - 1.0f;
}

/* Rounds n numbers that are `step` apart to integers. Returns their scale. */
static float reference(int64_t n, int64_t step, const float *x, int32_t *out)
{
    float top = 0.0f;
    for (int64_t i = 0; i < n; i++) top = fmaxf(top, fabsf(x[i * step]));
    const float inverse = top > 0.0f ? 127.0f / top : 0.0f;
    for (int64_t i = 0; i < n; i++) out[i] = (int32_t)nearbyint((double)(x[i * step] * inverse));
    return top / 127.0f;
}

/* Rounds a row to bytes. */
static void test_row(void **state)
{
    enum { N = 77 };
    float x[N];
    int8_t got[N];
    int32_t want[N];
    (void)state;
    fill(4, N, x);
    const float scale = reference(N, 1, x, want);
    assert_true(rd_int8_row(N, x, got) == scale);
    for (int i = 0; i < N; i++) assert_int_equal(got[i], want[i]);
    x[5] = NAN;
    assert_true(isnan(rd_int8_row(N, x, got)));
    for (int i = 0; i < N; i++) assert_int_equal(got[i], 0);
}

static void *get(int64_t n)
{
    void *p = calloc((size_t)n + 16, 8);
    assert_non_null(p);
    return p;
}

static void compare(const size_row *r, rd_cpu *b, const float *X, const float *W,
                    const float *first, float *kept)
{
    const int64_t m = r->m, k = r->k, n = r->n, step_k = r->transposed ? 1 : n,
                  step_n = r->transposed ? k : 1;
    rd_status st = {0};
    float *Y = get(m * n), *row_scale = get(m);
    int32_t *x = get(m * k), *w = get(k);
    for (int64_t i = 0; i < m; i++) row_scale[i] = reference(k, 1, X + i * k, x + i * k);
    for (int kind = 0; kind < RD_INT8_KINDS; kind++) {
        rd_int8 *q;
        if (!rd_int8_can((rd_int8_kind)kind)) continue;
        must_do(rd_int8_new((rd_int8_kind)kind, k, n, W, step_k, step_n, &q, &st), &st);
        memcpy(Y, first, (size_t)(m * n) * sizeof *Y);
        must_do(rd_int8_mul(b, q, m, X, Y, r->add, &st), &st);
        for (int64_t j = 0; j < n; j++) {
            const float scale = reference(k, step_k, W + j * step_n, w);
            for (int64_t i = 0; i < m; i++) {
                int64_t sum = 0;
                for (int64_t c = 0; c < k; c++) sum += x[i * k + c] * w[c];
                float want = (float)sum * (row_scale[i] * scale);
                if (r->add) want += first[i * n + j];
                if (Y[i * n + j] != want)
                    fail_msg("kind %d, row %d, column %d: %.9g, want %.9g", kind, (int)i, (int)j,
                             (double)Y[i * n + j], (double)want);
            }
        }
        if (kind == RD_INT8_PLAIN) memcpy(kept, Y, (size_t)(m * n) * sizeof *Y);
        assert_memory_equal(kept, Y, (size_t)(m * n) * sizeof *Y);
        rd_int8_free(q);
    }
    free(Y);
    free(row_scale);
    free(x);
    free(w);
}

/* Two threads give the bytes of one. */
static void check_size(void **state)
{
    const size_row *r = *state;
    float *X = get(r->m * r->k), *W = get(r->k * r->n), *first = get(r->m * r->n),
          *kept[2] = {get(r->m * r->n), get(r->m * r->n)};
    fill(1, r->m * r->k, X);
    fill(2, r->k * r->n, W);
    fill(3, r->m * r->n, first);
    for (int64_t i = 0; r->largest && i < r->m * r->k; i++) X[i] = i < r->k ? 1.0f : -1.0f;
    for (int64_t i = 0; r->largest && i < r->k * r->n; i++) W[i] = 1.0f;
    for (int threads = 1; threads <= 2; threads++) {
        rd_status st = {0};
        rd_backend *be;
        must_do(rd_backend_cpu_new(threads, false, &be, &st), &st);
        compare(r, rd_cpu_of(be), X, W, first, kept[threads - 1]);
        rd_backend_free(be);
    }
    assert_memory_equal(kept[0], kept[1], (size_t)(r->m * r->n) * sizeof(float));
    for (int i = 0; i < 2; i++) free(kept[i]);
    free(X);
    free(W);
    free(first);
}

/* A row or a column with a number that is not finite gives NaN, and the others are as before. Zeros
 * and numbers near 0 give 0. */
static void test_not_finite(void **state)
{
    enum { M = 4, K = 8, N = 4 };
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    (void)state;
    for (int kind = 0; kind < RD_INT8_KINDS; kind++)
        for (size_t o = 0; o < sizeof odd / sizeof *odd; o++) {
            float X[M * K], W[K * N], Y[M * N];
            rd_status st = {0};
            rd_backend *be;
            rd_int8 *q;
            if (!rd_int8_can((rd_int8_kind)kind)) continue;
            must_do(rd_backend_cpu_new(1, false, &be, &st), &st);
            for (int i = 0; i < M * K; i++) X[i] = 0.5f;
            for (int i = 0; i < K * N; i++) W[i] = 0.25f;
            X[1 * K + 3] = odd[o];
            for (int i = 0; i < K; i++) X[2 * K + i] = 0.0f;
            for (int i = 0; i < K; i++) X[3 * K + i] = 1e-38f;
            W[5 * N + 2] = odd[o];
            must_do(rd_int8_new((rd_int8_kind)kind, K, N, W, N, 1, &q, &st), &st);
            must_do(rd_int8_mul(rd_cpu_of(be), q, M, X, Y, false, &st), &st);
            for (int i = 0; i < M; i++)
                for (int j = 0; j < N; j++) {
                    const float y = Y[i * N + j];
                    if (i == 1 || j == 2)
                        assert_true(isnan(y));
                    else
                        assert_true(i == 0 ? fabsf(y - 1.0f) < 1e-5f : y == 0.0f);
                }
            rd_int8_free(q);
            rd_backend_free(be);
        }
}

/* A parameter is quantised again after a change. Both orientations count. */
static void test_parameter(void **state)
{
    enum { K = 8, N = 8 };
    rd_status st = {0};
    rd_params *ps;
    rd_param *p;
    rd_backend *be;
    float X[16 * K], Y[16 * N];
    (void)state;
    must_do(rd_params_new(&ps, &st), &st);
    must_do(rd_params_add(ps, "w", 2, (int64_t[]){K, N}, (rd_init){RD_INIT_CONST, 0, 0, 0}, 0, &p,
                          &st),
            &st);
    must_do(rd_params_seal(ps, 1, NAN, &st), &st);
    must_do(rd_backend_cpu_new(1, false, &be, &st), &st);
    rd_backend_set_int8(be, true);
    for (int i = 0; i < K; i++) X[i] = 1.0f;
    for (int round = 1; round < 3; round++) {
        float *w = rd_params_values(ps) + p->offset;
        for (int i = 0; i < K * N; i++) w[i] = i / N == 3 ? (float)(round * (i % N)) : 0.0f;
        rd_params_touch(ps);
        const rd_leaf_rows leaf = {.param = p, .values = w, .cols = N, .rows = K};
        must_do(rd_leaf_mul(be, ps, &leaf, 1, X, Y, false, &st), &st);
        for (int i = 0; i < N; i++) assert_true(fabsf(Y[i] - (float)(round * i)) < 1e-4f);
        must_do(rd_leaf_mul_t(be, ps, &leaf, 1, X, Y, false, &st), &st);
        for (int i = 0; i < K; i++)
            assert_true(fabsf(Y[i] - (i == 3 ? 28.0f * (float)round : 0.0f)) < 0.2f);
    }
    /* The product of a tape that records is exact. */
    float *w = rd_params_values(ps) + p->offset;
    for (int i = 0; i < K * N; i++) w[i] = i < N ? 1.0f : 0.003f;
    rd_params_touch(ps);
    for (int trains = 0; trains < 2; trains++) {
        const rd_leaf_rows leaf = {
            .param = p, .values = w, .cols = N, .rows = K, .trains = trains != 0};
        must_do(rd_leaf_mul(be, ps, &leaf, 1, X, Y, false, &st), &st);
        assert_int_equal(fabsf(Y[0] - 1.021f) < 1e-5f, trains);
    }
    rd_backend_free(be);
    rd_params_free(ps);
}

RD_TESTS("int8", TEST_ROWS(check_size, size_rows), TEST(test_row), TEST(test_not_finite),
         TEST(test_parameter))
