/* basic.c -- tests embed, linear, pick and softmax_xent against naive references in double, and
 * products against sums in double. */
#include "harness.h"
#include "../../runner/engine/cpu/cpu_packed.h"

enum { N_ROWS = 70, MANY_ROWS = 1030 };
static const double TOLERANCE = 3e-5;

typedef struct basic {
    harness h;
    int a, b, c;
    int64_t n, k, m;
    const int32_t *ids;
    const int64_t *idx[2];
    float temperature;
} basic;

static const int64_t sizes[][3] = {{3, 5, 7}, {9, 16, 24}, {N_ROWS, 24, 40}, {1, 8, 8}, {64, 8, 1}};

static double linear_reference(void *ctx)
{
    basic *t = ctx;
    double total = 0.0;
    for (int64_t i = 0; i < t->n; i++)
        for (int64_t j = 0; j < t->m; j++) {
            double y = t->h.x[t->c][j];
            for (int64_t k = 0; k < t->k; k++)
                y += t->h.x[t->a][i * t->k + k] * t->h.x[t->b][k * t->m + j];
            total += (double)t->h.r[i * t->m + j] * y;
        }
    return total;
}

static void check_linear(const int64_t *s, bool narrow)
{
    basic t = {.n = s[0], .k = s[1], .m = s[2]};
    static int64_t same[MANY_ROWS];
    for (int64_t i = 0; i < t.n; i++) same[i] = i;
    h_init_as(&t.h, 1, narrow);
    t.a = h_input(&t.h, t.n, t.k);
    t.b = h_input(&t.h, t.k, t.m);
    t.c = h_input(&t.h, 0, t.m);
    h_fill(&t.h, 1.0, t.n * t.m);
    if (narrow) h_shorten(&t.h);
    rd_var *a = h_var(&t.h, t.a);
    a = rd_op_pick(t.h.tape, 1, &a, (const int64_t *[]){same}, t.n);
    if (narrow) a = h_narrowed(&t.h, a);
    rd_var *y = rd_op_linear(t.h.tape, a, h_var(&t.h, t.b), h_var(&t.h, t.c));
    h_check_stored(&t.h, h_weighted(&t.h, &y, 1), linear_reference, &t, TOLERANCE,
                   (h_stored){.unit = h_roundoff(&t.h), .gradients = 1u << t.a});
    h_free(&t.h);
}

static void test_linear(void **state)
{
    check_linear(*state, false);
}

/* So many rows that some CPUs copy W, transposed, for the gradient of x: neither the rows of W nor
 * its columns fill the blocks of the copy. */
static void test_linear_many(void **state)
{
    static const int64_t size[] = {MANY_ROWS, 37, 75};
    (void)state;
    check_linear(size, false);
}

/* From 256 rows on training multiplies without a packed copy of W on some CPUs. Output and
 * gradients have the same bytes on 1, 2 and 4 threads. */
static void test_linear_threads(void **state)
{
    static const int64_t many[][3] = {
        {300, 96, 200}, {257, 300, 64}, {520, 64, 72}, {MANY_ROWS, 37, 75}};
    static const int threads[] = {1, 2, 4};
    (void)state;
    h_cpu_alone();
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        const int64_t n = many[i][0], k = many[i][1], m = many[i][2];
        float *first[2] = {NULL, NULL};
        for (int at = 0; at < 3; at++) {
            basic t = {.n = n, .k = k, .m = m};
            rd_status st = {0};
            int64_t *same = malloc((size_t)n * sizeof *same);
            for (int64_t q = 0; q < n; q++) same[q] = q;
            h_init_as(&t.h, threads[at], false);
            t.a = h_input(&t.h, n, k);
            t.b = h_input(&t.h, k, m);
            t.c = h_input(&t.h, 0, m);
            h_fill(&t.h, 1.0, n * m);
            rd_var *a = h_var(&t.h, t.a);
            a = rd_op_pick(t.h.tape, 1, &a, (const int64_t *[]){same}, n);
            rd_var *y = rd_op_linear(t.h.tape, a, h_var(&t.h, t.b), h_var(&t.h, t.c));
            rd_var *loss = h_weighted(&t.h, &y, 1);
            rd_tape_check(t.h.tape, &st);
            must(&st);
            float *v = h_read(&t.h, y, false);
            must_do(rd_tape_backward(t.h.tape, loss, &st), &st);
            const size_t bytes = (size_t)rd_params_span(t.h.ps) * sizeof(float);
            float *g = malloc(bytes);
            memcpy(g, test_grads(t.h.ps), bytes);
            if (at == 0) {
                first[0] = v;
                first[1] = g;
            } else {
                assert_memory_equal(v, first[0], (size_t)(n * m) * sizeof *v);
                assert_memory_equal(g, first[1], bytes);
                free(v);
                free(g);
            }
            h_free(&t.h);
            free(same);
        }
        free(first[0]);
        free(first[1]);
    }
}

static void test_linear_narrow(void **state)
{
    check_linear(*state, true);
}

static double embed_reference(void *ctx)
{
    basic *t = ctx;
    double total = 0.0;
    for (int64_t i = 0; i < t->n; i++)
        for (int64_t j = 0; j < t->m; j++)
            total += (double)t->h.r[i * t->m + j] * t->h.x[t->a][t->ids[i] * t->m + j];
    return total;
}

static void test_embed(void **state)
{
    static const int32_t ids[] = {4, 0, 4, 4, 2, 1, 0};
    basic t = {.n = 7, .m = 9, .ids = ids};
    (void)state;
    h_init(&t.h);
    t.a = h_input(&t.h, 5, t.m);
    h_fill(&t.h, 1.0, t.n * t.m);
    rd_var *y = rd_op_embed(t.h.tape, h_var(&t.h, t.a), ids, t.n);
    h_check(&t.h, h_weighted(&t.h, &y, 1), embed_reference, &t, TOLERANCE);
    h_free(&t.h);
}

static double pick_reference(void *ctx)
{
    basic *t = ctx;
    const int64_t w = t->k + t->m;
    double total = 0.0;
    for (int64_t i = 0; i < t->n; i++) {
        for (int64_t j = 0; j < t->k && t->idx[0][i] >= 0; j++)
            total += (double)t->h.r[i * w + j] * t->h.x[t->a][t->idx[0][i] * t->k + j];
        for (int64_t j = 0; j < t->m && t->idx[1][i] >= 0; j++)
            total += (double)t->h.r[i * w + t->k + j] * t->h.x[t->b][t->idx[1][i] * t->m + j];
    }
    return total;
}

static void test_pick(void **state)
{
    static const int64_t a[] = {2, 2, 0, -1, 1, 3}, b[] = {-1, 0, 1, 1, 0, 0};
    basic t = {.n = 6, .k = 3, .m = 5, .idx = {a, b}};
    (void)state;
    h_init(&t.h);
    t.a = h_input(&t.h, 4, t.k);
    t.b = h_input(&t.h, 2, t.m);
    h_fill(&t.h, 1.0, t.n * (t.k + t.m));
    rd_var *in[] = {h_var(&t.h, t.a), h_var(&t.h, t.b)};
    rd_var *y = rd_op_pick(t.h.tape, 2, in, t.idx, t.n);
    h_check(&t.h, h_weighted(&t.h, &y, 1), pick_reference, &t, TOLERANCE);
    h_free(&t.h);
}

static double xent_reference(void *ctx)
{
    basic *t = ctx;
    double total = 0.0;
    for (int64_t i = 0; i < t->n; i++) {
        double sum = 0.0, right = 0.0;
        for (int64_t j = 0; j < t->m; j++) {
            double l = 0.0;
            for (int64_t k = 0; k < t->k; k++)
                l += t->h.x[t->a][i * t->k + k] * t->h.x[t->b][k * t->m + j];
            l /= (double)t->temperature;
            sum += exp(l);
            if (j == t->ids[i]) right = l;
        }
        total += log(sum) - right;
    }
    return total;
}

static void check_xent(const int64_t *s, size_t block_bytes)
{
    basic t = {.n = s[0], .k = s[1], .m = s[2], .temperature = s[0] == 9 ? 0.7f : 1.0f};
    int32_t ids[N_ROWS], argmax[N_ROWS];
    float nll[N_ROWS];
    int64_t same[N_ROWS];
    double sum = 0.0, by_row = 0.0;
    h_init(&t.h);
    rd_backend_set_block_bytes(t.h.be, block_bytes);
    for (int32_t i = 0; i < t.n; i++) {
        ids[i] = (int32_t)((i * 5) % t.m);
        same[i] = i;
    }
    t.ids = ids;
    t.a = h_input(&t.h, t.n, t.k);
    t.b = h_input(&t.h, t.k, t.m);
    h_fill(&t.h, 1.0, 1);
    const rd_xent x = {.target = ids,
                       .temperature = t.temperature,
                       .loss_sum = &sum,
                       .argmax = argmax,
                       .nll = nll};
    rd_var *a = h_var(&t.h, t.a);
    rd_var *loss = rd_op_softmax_xent(t.h.tape, &x,
                                      rd_op_pick(t.h.tape, 1, &a, (const int64_t *[]){same}, t.n),
                                      h_var(&t.h, t.b));
    h_check(&t.h, loss, xent_reference, &t, TOLERANCE);
    for (int64_t i = 0; i < t.n; i++) {
        int64_t best = 0;
        double top = -1e300;
        by_row += (double)nll[i];
        for (int64_t j = 0; j < t.m; j++) {
            double l = 0.0;
            for (int64_t k = 0; k < t.k; k++)
                l += t.h.x[t.a][i * t.k + k] * t.h.x[t.b][k * t.m + j];
            if (l > top) {
                top = l;
                best = j;
            }
        }
        assert_int_equal(argmax[i], best);
    }
    assert_true(fabs(by_row - sum) <= 1e-5 * fabs(sum) + 1e-6);
    h_free(&t.h);
}

static void test_xent(void **state)
{
    check_xent(*state, 0);
}

/* Of 70 rows 64, then 6. */
static void test_xent_in_blocks(void **state)
{
    check_xent(*state, 1);
}

/* The gradient must carry the tape's seed, wherever it is computed. */
static void test_seed(void **state)
{
    static const int32_t ids[] = {1, 0, 2};
    float once[15];
    (void)state;
    for (int round = 0; round < 2; round++) {
        rd_status st = {0};
        harness h;
        double sum;
        h_init(&h);
        const int a = h_input(&h, 3, 5), b = h_input(&h, 5, 4);
        h_fill(&h, 1.0, 1);
        rd_tape_set_seed(h.tape, round ? 1024.0f : 1.0f);
        const rd_xent x = {.target = ids, .temperature = 1.0f, .loss_sum = &sum};
        rd_var *rows = h_var(&h, a);
        rows = rd_op_pick(h.tape, 1, &rows, (const int64_t *[]){(int64_t[]){0, 1, 2}}, 3);
        rd_var *loss = rd_op_softmax_xent(h.tape, &x, rows, h_var(&h, b));
        rd_tape_check(h.tape, &st);
        rd_tape_backward(h.tape, loss, &st);
        must(&st);
        for (int k = 0; k < 15; k++) {
            const float g = test_grads(h.ps)[h.p[a]->offset + k];
            if (round)
                assert_true(fabsf(g / 1024.0f - once[k]) <= 1e-7f);
            else
                once[k] = g;
        }
        h_free(&h);
    }
}

/* ---- products, also with inputs of 16 bits ---- */
static double to_bf16(double x)
{
    union {
        float f;
        uint32_t u;
    } v = {(float)x};
    v.u = (v.u + 0x7fffu + ((v.u >> 16) & 1)) & 0xffff0000u;
    return (double)v.f;
}

/* 11 digits, the last of at least 2^-24. */
static double to_float16(double x)
{
    int e;
    (void)frexp(x, &e);
    const double unit = ldexp(1.0, (e < -13 ? -13 : e) - 11);
    return nearbyint(x / unit) * unit;
}

/* As this backend's mixed products round it. */
static double to_narrow(rd_backend *be, double x)
{
    return rd_backend_activations(be) == RD_FLOAT16 ? to_float16(x) : to_bf16(x);
}

/* rd_gemm on arrays of the host: C (m, n), A and B whole. */
static void multiply(rd_backend *be, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                     const float *A, const float *B, float *C)
{
    rd_status st = {0};
    rd_gpu *g = rd_gpu_of(be);
    if (g) {
        float *a, *b, *c;
        const size_t size_a = (size_t)(m * k) * 4, size_b = (size_t)(k * n) * 4,
                     size_c = (size_t)(m * n) * 4;
        if (rd_gpu_memory_new(g, size_a, &a, &st) == RD_OK &&
            rd_gpu_memory_new(g, size_b, &b, &st) == RD_OK &&
            rd_gpu_memory_new(g, size_c, &c, &st) == RD_OK) {
            rd_gpu_upload(g, a, A, size_a, &st);
            rd_gpu_upload(g, b, B, size_b, &st);
            rd_gpu_upload(g, c, C, size_c, &st);
            rd_gemm(be, ta, tb, m, n, k, 1.0f, a, ta ? m : k, b, tb ? k : n, 1.0f, c, n, &st);
            rd_gpu_download(g, C, c, size_c, &st);
        }
        rd_gpu_memory_free(g, a);
        rd_gpu_memory_free(g, b);
        rd_gpu_memory_free(g, c);
        must(&st);
        return;
    }
    rd_gemm(be, ta, tb, m, n, k, 1.0f, A, ta ? m : k, B, tb ? k : n, 1.0f, C, n, &st);
    must(&st);
}

static void products(bool mixed)
{
    rd_status st = {0};
    rd_backend *be;
    h_backend(1, mixed, &be);
    static const int64_t shapes[][3] = {
        {1, 1, 1}, {5, 7, 3}, {64, 32, 16}, {70, 24, 40}, {13, 8, 72}};
    for (size_t c = 0; c < sizeof shapes / sizeof *shapes; c++) {
        const int64_t m = shapes[c][0], n = shapes[c][1], k = shapes[c][2];
        float *A = malloc((size_t)((m + 8) * (k + 8)) * 4),
              *B = malloc((size_t)((k + 8) * (n + 8)) * 4), *C = malloc((size_t)((m + 8) * n) * 4);
        float *T = malloc((size_t)((m + 8) * k) * 4);
        rd_params *ps;
        rd_param *w;
        rd_params_new(&ps, &st);
        rd_params_add(ps, "w", 2, (int64_t[]){k + 2, n}, (rd_init){RD_INIT_CONST, 0, 0, 0}, 0, &w,
                      &st);
        rd_params_seal(ps, 1, NAN, &st);
        must(&st);
        rd_philox_uniform(rd_key_make(1, RD_RNG_TEST, c, 0), 0, m * k, A);
        rd_philox_uniform(rd_key_make(2, RD_RNG_TEST, c, 0), 0, k * n, B);
        memcpy(test_values(ps) + w->offset + n, B,
               (size_t)(k * n) * 4); /* rows 1 .. k of the parameter */
        rd_params_touch(ps);
        for (int ta = 0; ta < 2; ta++)
            for (int tb = 0; tb < 2; tb++) {
                for (int64_t i = 0; i < m * n; i++) C[i] = 0.5f;
                multiply(be, ta, tb, m, n, k, A, B, C);
                for (int64_t i = 0; i < m; i++)
                    for (int64_t j = 0; j < n; j++) {
                        double want = 0.5;
                        for (int64_t q = 0; q < k; q++) {
                            const double a = (double)A[ta ? q * m + i : i * k + q],
                                         b = (double)B[tb ? j * k + q : q * n + j];
                            want += mixed ? to_narrow(be, a) * to_narrow(be, b) : a * b;
                        }
                        if (fabs((double)C[i * n + j] - want) > 1e-5 * (1.0 + fabs(want)))
                            fail_msg("gemm %d%d [%d,%d]: %g, want %g", ta, tb, (int)i, (int)j,
                                     (double)C[i * n + j], want);
                    }
            }
        rd_cpu_packed *p = test_on_gpu()
                               ? NULL
                               : rd_cpu_packed_of(rd_cpu_of(be), ps, w, 1, k, &st); /* the CPU's */
        must(&st);
        if (p) assert_ptr_equal(p, rd_cpu_packed_of(rd_cpu_of(be), ps, w, 1, k, &st));
        for (int version = 0; p && version < 2;
             version++) { /* the second round after a change of the parameter */
            for (int add = 0; add < 2; add++) {
                for (int64_t i = 0; i < m * n; i++) C[i] = 0.25f;
                for (int64_t i = 0; i < m * k; i++) T[i] = 0.25f;
                rd_cpu_packed_mul(p, m, A, C, add, &st);
                must(&st);
                for (int64_t i = 0; i < m; i++)
                    for (int64_t j = 0; j < n; j++) {
                        double want = add ? 0.25 : 0.0;
                        for (int64_t q = 0; q < k; q++) {
                            const double a = (double)A[i * k + q],
                                         b = (double)test_values(ps)[w->offset + (q + 1) * n + j];
                            want += mixed ? to_bf16(a) * to_bf16(b) : a * b;
                        }
                        if (fabs((double)C[i * n + j] - want) > 1e-5 * (1.0 + fabs(want)))
                            fail_msg("packed [%d,%d]: %g, want %g", (int)i, (int)j,
                                     (double)C[i * n + j], want);
                    }
                float *Y = malloc((size_t)((m + 8) * n) * 4);
                rd_philox_uniform(rd_key_make(3, RD_RNG_TEST, c, 0), 0, m * n, Y);
                rd_cpu_packed_mul_t(p, m, Y, T, add, &st);
                must(&st);
                for (int64_t i = 0; i < m; i++)
                    for (int64_t q = 0; q < k; q++) {
                        double want = add ? 0.25 : 0.0;
                        for (int64_t j = 0; j < n; j++) {
                            const double a = (double)Y[i * n + j],
                                         b = (double)test_values(ps)[w->offset + (q + 1) * n + j];
                            want += mixed ? to_bf16(a) * to_bf16(b) : a * b;
                        }
                        if (fabs((double)T[i * k + q] - want) > 1e-5 * (1.0 + fabs(want)))
                            fail_msg("packed, transposed [%d,%d]: %g, want %g", (int)i, (int)q,
                                     (double)T[i * k + q], want);
                    }
                free(Y);
            }
            for (int64_t i = 0; i < w->n; i++) test_values(ps)[w->offset + i] *= -1.5f;
            rd_params_touch(ps);
        }
        free(A);
        free(B);
        free(C);
        free(T);
        rd_backend_free(be); /* owns the packed copies, which borrow the parameters */
        rd_params_free(ps);
        h_backend(1, mixed, &be);
    }
    rd_backend_free(be);
}

static void test_products(void **state)
{
    (void)state;
    products(false);
}

static void test_products_mixed(void **state)
{
    (void)state;
    products(true);
}

static void make_tests(test_list *l)
{
    static const char *const linear_names[] = {"linear 3x5x7", "linear 9x16x24", "linear 70x24x40",
                                               "linear 1x8x8", "linear 64x8x1"};
    static const char *const xent_names[] = {
        "softmax_xent 3x5x7", "softmax_xent 9x16x24, temperature", "softmax_xent 70x24x40",
        "softmax_xent 1x8x8", "softmax_xent of one class"};
    static char narrow_names[5][48];
    static const int64_t two_blocks[] = {N_ROWS, 24, 40};
    const test_entry first[] = {TEST(test_embed),
                                TEST(test_pick),
                                TEST(test_linear_threads),
                                TEST(test_linear_many),
                                TEST(test_seed),
                                TEST(test_products),
                                TEST(test_products_mixed),
                                {.name = "softmax_xent 70x24x40 in two blocks",
                                 .fn = test_xent_in_blocks,
                                 .state = two_blocks}};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) add_entry(l, &first[i]);
    for (int i = 0; i < 5; i++) {
        add_test(l, linear_names[i], test_linear, sizes[i]);
        add_test(l, xent_names[i], test_xent, sizes[i]);
        if (!test_on_gpu()) continue;
        snprintf(narrow_names[i], sizeof narrow_names[i], "%s, 16 bits", linear_names[i]);
        add_test(l, narrow_names[i], test_linear_narrow, sizes[i]);
    }
}

RD_TESTS_MADE("ops: embed, linear, pick, softmax_xent, products", make_tests)
