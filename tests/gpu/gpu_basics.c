/* gpu_basics.c -- gpu.h itself: memory, products and convolutions against sums in double, sums over
 * ranks, marks.
 *
 * Without a GPU the test is skipped, unless RD_REQUIRE_GPU=1. */
#include "test.h"
#include "gpu_here.h"
#include "rd/gpu_parts.h"
#include "rd/philox.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static rd_gpu *gpu;

static int open_gpu(void **state)
{
    rd_status st = {0};
    const rd_gpu_options o = {.mixed = *state != NULL};
    rd_gpu_new(0, &o, &gpu, &st);
    must(&st);
    return 0;
}

static int close_gpu(void **state)
{
    (void)state;
    assert_int_equal(gpu_close(&gpu), 0);
    return 0;
}

/* Returns numbers in [-1, 1) that bfloat16 and float16 represent exactly. */
static float *numbers(int64_t n, uint64_t seed)
{
    float *x = malloc((size_t)(n + 8) * sizeof *x);
    rd_philox_uniform(rd_key_make(seed, RD_RNG_TEST, 0, 0), 0, n, x);
    for (int64_t i = 0; i < n; i++) x[i] = rintf((2.0f * x[i] - 1.0f) * 64.0f) / 64.0f;
    return x;
}

static float *on_device(const float *x, int64_t n)
{
    rd_status st = {0};
    float *d;
    rd_gpu_memory_new(gpu, (size_t)n * sizeof *x, &d, &st);
    rd_gpu_upload(gpu, d, x, (size_t)n * sizeof *x, &st);
    must(&st);
    return d;
}

/* ---- elements of 16 bits ---- */
/* Copies x to the device, rounded to a type. */
static void *on_device_as(const float *x, int64_t n, rd_element type)
{
    rd_status st = {0};
    float *d = on_device(x, n);
    void *narrow;
    if (type == RD_FLOAT32) return d;
    rd_gpu_memory_new(gpu, (size_t)n * rd_element_bytes(type), &narrow, &st);
    rd_gpu_cast(gpu, n, d, RD_FLOAT32, narrow, type, false, &st);
    rd_gpu_memory_free(gpu, d);
    must(&st);
    return narrow;
}

/* Returns n numbers of the device as float32; the caller frees them. */
static float *on_host(const void *device, int64_t n, rd_element type)
{
    rd_status st = {0};
    float *x = malloc((size_t)(n + 1) * sizeof *x), *wide;
    rd_gpu_memory_new(gpu, (size_t)n * sizeof *x, &wide, &st);
    rd_gpu_cast(gpu, n, device, type, wide, RD_FLOAT32, false, &st);
    rd_gpu_download(gpu, x, wide, (size_t)n * sizeof *x, &st);
    must(&st);
    rd_gpu_memory_free(gpu, wide);
    return x;
}

/* Returns the largest relative error of one rounding: half the distance from a number to the next
 * one. */
static double roundoff(rd_element type)
{
    return type == RD_FLOAT32 ? 0x1p-24 : type == RD_BFLOAT16 ? 0x1p-8 : 0x1p-11;
}

/* Returns the nearest number of a type, ties to even. */
static double nearest(double x, rd_element type)
{
    /* exponent of the smallest number */
    const int digits = type == RD_BFLOAT16 ? 8 : 11, least = type == RD_BFLOAT16 ? -133 : -24;
    const double most = type == RD_BFLOAT16 ? 0x1.fep127 : 65504.0,
                 past = type == RD_BFLOAT16 ? 0x1.ffp127 : 65520.0;
    int e;
    if (x == 0.0 || !isfinite(x)) return x;
    frexp(x, &e);
    const double unit = ldexp(1.0, e - digits > least ? e - digits : least),
                 y = rint(x / unit) * unit;
    return fabs(y) <= most ? y : fabs(x) >= past ? copysign(INFINITY, x) : copysign(most, x);
}

static void check_cast(rd_element from, rd_element to, const double *x, int64_t n, int64_t skip,
                       bool add)
{
    rd_status st = {0};
    float *v = malloc((size_t)n * sizeof *v), *old = numbers(n, 5);
    for (int64_t i = 0; i < n; i++) v[i] = (float)x[i];
    char *a = on_device_as(v, n, from), *b = on_device_as(old, n, to);
    rd_gpu_cast(gpu, n - skip, a + skip * (int64_t)rd_element_bytes(from), from,
                b + skip * (int64_t)rd_element_bytes(to), to, add, &st);
    must(&st);
    float *got = on_host(b, n, to);
    for (int64_t i = 0; i < n; i++) {
        const double in = from == RD_FLOAT32 ? (double)v[i] : nearest((double)v[i], from),
                     sum = i < skip ? (double)old[i]
                           : add    ? (double)((float)in + old[i])
                                    : in,
                     want = to == RD_FLOAT32 || i < skip ? (double)(float)sum : nearest(sum, to);
        if (!((double)got[i] == want && !signbit(got[i]) == !signbit(want)) &&
            !(isnan(got[i]) && isnan(want)))
            fail_msg("%a of type %d as type %d%s: %a, want %a", (double)v[i], from, to,
                     add ? ", added" : "", (double)got[i], want);
    }
    rd_gpu_memory_free(gpu, a);
    rd_gpu_memory_free(gpu, b);
    free(v);
    free(old);
    free(got);
}

/* Casts every number of each 16-bit type, the middle between neighbours, the numbers beside it,
 * numbers that overflow, and NaN. */
static void test_cast(void **state)
{
    enum { EACH = 5, N = 65536 * EACH + 3 };
    static const rd_element narrow[] = {RD_BFLOAT16, RD_FLOAT16};
    double *x = malloc(N * sizeof *x);
    (void)state;
    for (int t = 0; t < 2; t++) {
        int64_t n = 0;
        for (uint32_t h = 0; h < 65536; h++) {
            const int bits = narrow[t] == RD_BFLOAT16 ? 7 : 10,
                      bias = narrow[t] == RD_BFLOAT16 ? 127 : 15;
            const int e = (int)(h >> bits) & (narrow[t] == RD_BFLOAT16 ? 255 : 31),
                      m = (int)(h & ((1u << bits) - 1));
            const double unit = ldexp(1.0, (e ? e : 1) - bias - bits), sign = h >> 15 ? -1.0 : 1.0;
            const double value = sign * (e ? m + (1 << bits) : m) * unit;
            /* infinity or NaN */
            if (e == (narrow[t] == RD_BFLOAT16 ? 255 : 31)) {
                x[n++] = m ? NAN : sign * INFINITY;
                continue;
            }
            for (int k = 0; k < EACH; k++)
                x[n++] = value + sign * unit * (0.5 * (k / 2) + (k % 2 ? 0.4 : 0.0));
        }
        for (int to = RD_FLOAT32; to <= RD_FLOAT16; to++) {
            check_cast(RD_FLOAT32, (rd_element)to, x, n, 0, false);
            check_cast(RD_FLOAT32, (rd_element)to, x, n - 3, 1, true);
            check_cast(narrow[t], (rd_element)to, x, n, 0, true);
            check_cast(narrow[t], (rd_element)to, x, n - 1, 3, false);
        }
        check_cast(RD_FLOAT32, narrow[t], x, 3, 0, false);
    }
    free(x);
}

/* ---- devices ---- */
static void test_device(void **state)
{
    rd_status st = {0};
    rd_gpu_info info;
    (void)state;
    rd_gpu_query(0, &info, &st);
    must(&st);
    assert_true(info.name[0] && strncmp(info.uuid, "GPU-", 4) == 0 && info.major >= 5 &&
                info.n_sm > 0);
    assert_true(info.memory > 0 && info.memory >= info.free_memory);
    assert_string_equal(rd_gpu_about(gpu)->uuid, info.uuid);
    if (!strstr(rd_gpu_describe(gpu), info.name))
        fail_msg("'%s' does not name '%s'", rd_gpu_describe(gpu), info.name);
    assert_true(rd_gpu_libraries()[0]);
    assert_int_equal(rd_gpu_query(100, &info, &st), RD_EENV);
}

/* ---- memory ---- */
static void test_memory(void **state)
{
    /* below and above the size that is copied at once */
    static const int64_t sizes[] = {1, 3, 1000, 65537, (int64_t)5 << 20};
    rd_status st = {0};
    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const int64_t n = sizes[k];
        float *x = numbers(n, k), *back = malloc((size_t)n * sizeof *back), *a = on_device(x, n),
              *b;
        memcpy(back, x, (size_t)n * sizeof *x);
        /* the upload has copied the array, so the host may change it */
        memset(x, 0, (size_t)n * sizeof *x);
        rd_gpu_memory_new(gpu, (size_t)n * sizeof *b, &b, &st);
        must(&st);
        assert_int_equal((uintptr_t)a % 256, 0);
        assert_int_equal((uintptr_t)b % 256, 0);
        rd_gpu_copy(gpu, b, a, (size_t)n * sizeof *b, &st);
        rd_gpu_zero(gpu, a, (size_t)n * sizeof *a, &st);
        rd_gpu_download(gpu, x, b, (size_t)n * sizeof *x, &st);
        must(&st);
        assert_memory_equal(x, back, (size_t)n * sizeof *x);
        rd_gpu_download(gpu, x, a, (size_t)n * sizeof *x, &st);
        must(&st);
        for (int64_t i = 0; i < n; i++) assert_true(x[i] == 0.0f);
        assert_true(rd_gpu_in_use(gpu) >= 2 * (uint64_t)n * sizeof *x &&
                    rd_gpu_peak(gpu) >= rd_gpu_in_use(gpu));
        rd_gpu_memory_free(gpu, a);
        rd_gpu_memory_free(gpu, b);
        free(x);
        free(back);
    }
    rd_gpu_memory_free(gpu, NULL);
    rd_gpu_wait(gpu, &st);
    must(&st);
}

/* On the emulator: writes to pinned memory before waiting for the copy from it. A child process
 * tries this, and the emulator ends it. */
static void writes_too_early(float *d, float *pinned, int64_t n, bool ahead)
{
    const size_t bytes = (size_t)n * sizeof *pinned;
    const pid_t child = gpu_is_at_once() ? fork() : -1;
    rd_status st = {0};
    int status = 0;
    if (child == 0) {
        (void)freopen("/dev/null", "w", stderr);
        if (ahead)
            rd_gpu_up_ahead(gpu, pinned, bytes, &st);
        else
            rd_gpu_upload(gpu, d, pinned, bytes, &st);
        signal(SIGSEGV, SIG_DFL);
        pinned[n / 2] = 1.0f;
        _exit(0);
    }
    if (!gpu_is_at_once()) return;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Pinned memory: an upload contains the bytes that the array had when rd_gpu_upload was called,
 * large or small. A write that comes too early would change them; the emulator ends a process that
 * does this. */
static void test_pinned(void **state)
{
    static const int64_t sizes[] = {1, 1000, 20000, (int64_t)3 << 20};
    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const int64_t n = sizes[k];
        const size_t bytes = (size_t)n * sizeof(float);
        rd_status st = {0};
        float *x = numbers(n, k), *back = malloc(bytes), *d, *pinned;
        rd_gpu_memory_new(gpu, bytes, &d, &st);
        rd_gpu_host_new(gpu, bytes, &pinned, &st);
        must(&st);
        for (int round = 0; round < 3; round++) {
            rd_gpu_host_wait(gpu, pinned + n / 2, &st);
            must(&st);
            for (int64_t i = 0; i < n; i++) pinned[i] = x[i] * (float)(round + 1);
            rd_gpu_upload(gpu, d, pinned, bytes, &st);
        }
        rd_gpu_host_wait(gpu, pinned, &st);
        memset(pinned, 0, bytes);
        rd_gpu_download(gpu, back, d, bytes, &st);
        must(&st);
        for (int64_t i = 0; i < n; i++) assert_true(back[i] == 3.0f * x[i]);
        rd_gpu_host_wait(gpu, back, &st); /* ordinary memory: nothing to wait for */
        must(&st);
        for (int ahead = 0; ahead < 2 && bytes > 1 << 16; ahead++)
            writes_too_early(d, pinned, n, ahead);
        rd_gpu_host_free(gpu, pinned);
        rd_gpu_memory_free(gpu, d);
        free(x);
        free(back);
    }
    rd_gpu_host_free(gpu, NULL);
}

static rd_gpu_ahead_counts ahead_counts(void)
{
    rd_gpu_ahead_counts c;
    rd_gpu_count_ahead(gpu, &c);
    return c;
}

/* Arrays are uploaded on their own stream. In every second round that stream is late; in the others
 * the ops' stream is late, as far as a GPU can be delayed. The emulator delays all work until
 * something waits for it. */
static void test_ahead(void **state)
{
    enum { ROUNDS = 8 };
    const int64_t n = gpu_is_emulated() ? 20000 : (int64_t)8 << 20;
    const size_t bytes = (size_t)n * sizeof(float);
    rd_status st = {0};
    float *x = numbers(n, 5), *back = malloc(bytes), *d[ROUNDS], *busy[2], *host[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        rd_gpu_host_new(gpu, bytes, &host[i], &st);
        rd_gpu_memory_new(gpu, bytes, &busy[i], &st);
    }
    for (int k = 0; k < ROUNDS; k++) {
        float *h = host[k % 2];
        rd_gpu_memory_new(gpu, bytes, &d[k], &st);
        rd_gpu_host_wait(gpu, h, &st);
        must(&st);
        for (int64_t i = 0; i < n; i++) h[i] = x[i] * (float)(k + 1);
        if (k % 4 < 2) rd_gpu_wait(gpu, &st);
        rd_gpu_up_ahead(gpu, h, bytes, &st);
        for (int i = 0; i < 200 && k % 4 >= 2 && !gpu_is_emulated(); i++)
            rd_gpu_copy(gpu, busy[1], busy[0], bytes, &st);
        rd_gpu_upload(gpu, d[k], h, bytes, &st);
    }
    for (int k = 0; k < ROUNDS; k++) {
        rd_gpu_download(gpu, back, d[k], bytes, &st);
        must(&st);
        for (int64_t i = 0; i < n; i++) assert_true(back[i] == (float)(k + 1) * x[i]);
    }
    rd_gpu_ahead_counts c = ahead_counts();
    assert_true(c.sent == ROUNDS && c.taken == ROUNDS && c.late == 0 && !c.is_short);
    assert_true(c.bytes >= bytes && c.bytes <= rd_gpu_kept(gpu));

    /* cancelled: other numbers are uploaded instead */
    rd_gpu_up_ahead(gpu, host[0], bytes, &st);
    rd_gpu_host_wait(gpu, host[0] + n / 2, &st);
    memcpy(host[0], x, bytes);
    rd_gpu_upload(gpu, d[0], host[0], bytes, &st);
    rd_gpu_up_ahead(gpu, x, bytes, &st);         /* ordinary memory */
    rd_gpu_up_ahead(gpu, host[1], 1 << 16, &st); /* too few */
    rd_gpu_download(gpu, back, d[0], bytes, &st);
    must(&st);
    assert_memory_equal(back, x, bytes);
    c = ahead_counts();
    assert_true(c.sent == ROUNDS + 1 && c.taken == ROUNDS && c.late == 1);
    rd_gpu_up_ahead(gpu, host[0], bytes, &st); /* never taken */
    must(&st);
    for (int i = 0; i < 2; i++) {
        rd_gpu_host_free(gpu, host[i]);
        rd_gpu_memory_free(gpu, busy[i]);
    }
    for (int k = 0; k < ROUNDS; k++) rd_gpu_memory_free(gpu, d[k]);
    free(x);
    free(back);
}

/* Asks for more memory than the GPU has: a message with numbers, and the GPU still works. */
static void test_short(void **state)
{
    rd_status st = {0}, later = {0};
    uint64_t asked, left;
    void *p;
    (void)state;
    assert_false(rd_gpu_short(gpu, &st, &asked, &left));
    assert_int_equal(rd_gpu_memory_new(gpu, (size_t)1 << 50, &p, &st), RD_EENV);
    assert_non_null(strstr(st.msg, "memory"));
    assert_true(rd_gpu_short(gpu, &st, &asked, &left));
    assert_true(asked == (uint64_t)1 << 50 && left > 0 && left <= rd_gpu_about(gpu)->memory);
    float *x = on_device((const float[]){1.0f}, 1);
    rd_gpu_wait(gpu, &later);
    must(&later);
    rd_gpu_memory_free(gpu, x);
    rd_status_prefix(&st, "the weights");
    assert_true(rd_gpu_short(gpu, &st, &asked, &left));
    assert_false(rd_gpu_short(gpu, &later, &asked, &left));
    /* the program handled that shortage, so a later failure is not caused by it */
    rd_fail(&later, RD_EENV, "something else");
    assert_false(rd_gpu_short(gpu, &later, &asked, &left));
}

/* ---- products ---- */
typedef struct product {
    /* more: number of elements by which the leading dimensions are wider */
    int64_t m, n, k, more;
    float alpha, beta;
} product;
static const product products[] = {
    {1, 1, 1, 0, 1, 0},       {5, 7, 3, 0, 1, 1},       {64, 32, 16, 0, 1, 0},
    {70, 24, 40, 3, 0.5f, 0}, {13, 8, 72, 8, 1, -1.5f}, {1, 300, 65, 0, 1, 1},
    {257, 1, 33, 1, 1, 0},    {129, 131, 517, 5, 1, 1}, {3, 5, 0, 0, 1, 0.5f},
    {3, 5, 0, 0, 1, 0},       {40, 40, 8, 0, 0, 0.5f},  {0, 5, 4, 0, 1, 0},
    {5, 0, 4, 0, 1, 1},
};

static void test_products(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof products / sizeof *products; c++)
        for (int t = 0; t < 4; t++) {
            const product p = products[c];
            const bool ta = t & 1, tb = t & 2;
            enum { BATCH = 3 };
            const int64_t lda = (ta ? p.m : p.k) + p.more, ldb = (tb ? p.k : p.n) + p.more,
                          ldc = p.n + p.more + (p.n == 0), sa = lda * (ta ? p.k : p.m) + 4,
                          sb = ldb * (tb ? p.n : p.k) + 4, sc = ldc * p.m + 4;
            rd_status st = {0};
            float *A = numbers(BATCH * sa, 1), *B = numbers(BATCH * sb, 2),
                  *C = numbers(BATCH * sc, 3);
            if (p.beta == 0.0f) /* C is not read */
                for (int64_t i = 0; i < BATCH * sc; i++) C[i] = NAN;
            float *a = on_device(A, BATCH * sa), *b = on_device(B, BATCH * sb),
                  *d = on_device(C, BATCH * sc), *got = malloc((size_t)(BATCH * sc) * sizeof *got);
            for (int batched = 0; batched < 2; batched++) {
                rd_gpu_upload(gpu, d, C, (size_t)(BATCH * sc) * sizeof *C, &st);
                if (batched)
                    rd_gpu_gemm_batched(gpu, ta, tb, p.m, p.n, p.k, p.alpha, a, lda, sa, b, ldb, sb,
                                        p.beta, d, ldc, sc, BATCH, &st);
                else
                    rd_gpu_gemm(gpu, ta, tb, p.m, p.n, p.k, p.alpha, a, lda, b, ldb, p.beta, d, ldc,
                                &st);
                rd_gpu_download(gpu, got, d, (size_t)(BATCH * sc) * sizeof *got, &st);
                must(&st);
                for (int64_t q = 0; q < BATCH; q++)
                    for (int64_t i = 0; i < sc; i++) {
                        const int64_t row = i / ldc, col = i % ldc;
                        const bool within = row < p.m && col < p.n && (batched || q == 0);
                        double want = (double)C[q * sc + i], size = 0.0;
                        if (within) {
                            double sum = 0.0;
                            for (int64_t k = 0; k < p.k; k++) {
                                const double x =
                                    (double)A[q * sa + (ta ? k * lda + row : row * lda + k)] *
                                    (double)B[q * sb + (tb ? col * ldb + k : k * ldb + col)];
                                sum += x;
                                size += fabs(x);
                            }
                            want = (double)p.alpha * sum +
                                   (p.beta == 0.0f ? 0.0 : (double)p.beta * want);
                        }
                        const double have = (double)got[q * sc + i];
                        if (!(fabs(have - want) <= 1e-6 * (size + 1.0)) &&
                            !(!within && isnan(have) && isnan(want)))
                            fail_msg("product %d%d of %d x %d x %d%s, element %d: %.9g, want %.9g",
                                     ta, tb, (int)p.m, (int)p.n, (int)p.k,
                                     batched ? ", batched" : "", (int)i, have, want);
                    }
            }
            rd_gpu_memory_free(gpu, a);
            rd_gpu_memory_free(gpu, b);
            rd_gpu_memory_free(gpu, d);
            free(A);
            free(B);
            free(C);
            free(got);
        }
}

/* Operands of 16 bits, each alone and together, with a result of each type. A result of 16 bits is
 * rounded once. */
static void test_narrow_products(void **state)
{
    const rd_element type = rd_gpu_narrow(gpu);
    (void)state;
    assert_true(type != RD_FLOAT32);
    for (size_t c = 0; c < sizeof products / sizeof *products; c++)
        for (int way = 0; way < 32; way++) {
            const product p = products[c];
            const bool ta = way & 1, tb = way & 2;
            const float beta = p.beta == 0.0f ? 0.0f : 1.0f;
            const rd_element type_a = way & 4 || !(way & 8) ? type : RD_FLOAT32,
                             type_b = way & 8 ? type : RD_FLOAT32,
                             type_c = way & 16 ? type : RD_FLOAT32;
            const int64_t lda = (ta ? p.m : p.k) + p.more, ldb = (tb ? p.k : p.n) + p.more,
                          ldc = p.n + (p.n == 0);
            const int64_t na = lda * (ta ? p.k : p.m), nb = ldb * (tb ? p.n : p.k), nc = ldc * p.m;
            rd_status st = {0};
            float *A = numbers(na, 1), *B = numbers(nb, 2), *C = numbers(nc, 3);
            void *a = on_device_as(A, na, type_a), *b = on_device_as(B, nb, type_b),
                 *d = on_device_as(C, nc, type_c);
            rd_gpu_product(gpu, ta, tb, p.m, p.n, p.k, (rd_gpu_operand){a, type_a, lda},
                           (rd_gpu_operand){b, type_b, ldb}, beta, (rd_gpu_operand){d, type_c, ldc},
                           &st);
            must(&st);
            float *got = on_host(d, nc, type_c);
            for (int64_t i = 0; i < p.m * p.n; i++) {
                const int64_t row = i / p.n, col = i % p.n;
                double want = (double)beta * (double)C[row * ldc + col], size = 0.0;
                for (int64_t k = 0; k < p.k; k++) {
                    const double x = (double)A[ta ? k * lda + row : row * lda + k] *
                                     (double)B[tb ? col * ldb + k : k * ldb + col];
                    want += x;
                    size += fabs(x);
                }
                if (!(fabs((double)got[row * ldc + col] - want) <=
                      1e-6 * (size + 1.0) + roundoff(type_c) * fabs(want)))
                    fail_msg("product %d, way %d, element %d: %.9g, want %.9g", (int)c, way, (int)i,
                             (double)got[row * ldc + col], want);
            }
            void *const device[] = {a, b, d}, *const host[] = {A, B, C, got};
            for (int i = 0; i < 3; i++) rd_gpu_memory_free(gpu, device[i]);
            for (int i = 0; i < 4; i++) free(host[i]);
        }
}

/* Held weights: the copies that products keep follow a change. */
static void test_held(void **state)
{
    enum { N = 24 };
    rd_status st = {0};
    float *W = numbers(N * N, 1), *x = numbers(N, 2), y[N];
    float *w = on_device(W, N * N), *in = on_device(x, N), *out = on_device(x, N);
    (void)state;
    rd_gpu_hold(gpu, w, N * N, &st);
    for (int round = 0; round < 3; round++) {
        for (int again = 0; again < 2; again++) {
            rd_gpu_gemm(gpu, false, false, 1, N, N, 1.0f, in, N, w, N, 0.0f, out, N, &st);
            rd_gpu_download(gpu, y, out, sizeof y, &st);
            must(&st);
            for (int j = 0; j < N; j++) {
                double want = 0.0;
                for (int k = 0; k < N; k++) want += (double)x[k] * (double)W[k * N + j];
                if (!(fabs((double)y[j] - want) < 1e-5 * (1.0 + fabs(want))))
                    fail_msg("round %d: %g, want %g", round, (double)y[j], want);
            }
        }
        for (int i = 0; i < N * N; i++) W[i] *= -0.5f;
        rd_gpu_upload(gpu, w, W, (size_t)(N * N) * sizeof *W, &st);
        rd_gpu_weights_changed(gpu);
    }
    rd_gpu_memory_free(gpu, w);
    rd_gpu_memory_free(gpu, in);
    rd_gpu_memory_free(gpu, out);
    free(W);
    free(x);
}

/* ---- convolutions ---- */
typedef struct conv_case {
    int64_t n, h, w, ci, co, kh, kw, stride, pad[4]; /* top, left, bottom, right */
} conv_case;
static const conv_case convs[] = {
    {2, 9, 9, 1, 32, 3, 3, 1, {0}},           {2, 15, 13, 3, 16, 7, 7, 2, {3, 3, 3, 3}},
    {1, 5, 7, 16, 64, 1, 1, 1, {0}},          {2, 8, 8, 16, 16, 3, 3, 2, {0, 0, 1, 1}},
    {2, 6, 7, 16, 24, 5, 5, 1, {2, 1, 0, 3}}, {2, 5, 5, 17, 17, 3, 3, 1, {1, 1, 1, 1}},
    {3, 6, 5, 3, 5, 3, 3, 1, {1, 0, 1, 2}},   {3, 1, 1, 16, 16, 3, 3, 1, {1, 1, 1, 1}},
    {2, 6, 6, 8, 16, 1, 5, 1, {0, 2, 0, 2}},  {1, 23, 27, 3, 8, 11, 11, 4, {2, 2, 2, 2}},
    {1, 25, 26, 3, 8, 11, 11, 4, {0}},
};

typedef struct conv_sums {
    double *y, *dx, *dW;
} conv_sums;

static void naive_conv(const rd_gpu_conv *c, const float *x, const float *W, const float *dy,
                       conv_sums *s)
{
    for (int64_t i = 0; i < c->n; i++)
        for (int64_t p = 0; p < c->oh; p++)
            for (int64_t q = 0; q < c->ow; q++)
                for (int64_t a = 0; a < c->kh; a++)
                    for (int64_t b = 0; b < c->kw; b++) {
                        const int64_t u = p * c->stride + a - c->pad_top,
                                      v = q * c->stride + b - c->pad_left;
                        if (u < 0 || v < 0 || u >= c->h || v >= c->w) continue;
                        for (int64_t k = 0; k < c->ci; k++)
                            for (int64_t o = 0; o < c->co; o++) {
                                const int64_t ix = ((i * c->h + u) * c->w + v) * c->ci + k,
                                              iw = ((a * c->kw + b) * c->ci + k) * c->co + o,
                                              iy = ((i * c->oh + p) * c->ow + q) * c->co + o;
                                s->y[iy] += (double)x[ix] * (double)W[iw];
                                s->dx[ix] += (double)dy[iy] * (double)W[iw];
                                s->dW[iw] += (double)dy[iy] * (double)x[ix];
                            }
                    }
}

/* Checks sums. The sum, and the number to which it was added, may have been rounded to 16 bits.
 * device: an array of that type. */
static void check_sums(const char *what, size_t c, int64_t n, const double *want,
                       const float *before, const void *device, rd_element type, bool rounds)
{
    float *got = on_host(device, n, type);
    double most = 1.0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(want[i]));
    for (int64_t i = 0; i < n; i++) {
        const double w = want[i] + (before ? (double)before[i] : 0.0),
                     u = roundoff(rounds ? rd_gpu_narrow(gpu) : RD_FLOAT32),
                     bound = 1e-5 * most + u * fabs(want[i]) +
                             (before && type != RD_FLOAT32 ? u * (1.0 + u) * fabs(w) : 0.0);
        if (!(fabs((double)got[i] - w) <= bound))
            fail_msg("convolution %d, %s, element %d: %g, want %g", (int)c, what, (int)i,
                     (double)got[i], w);
    }
    free(got);
}

/* Convolutions of images of a type. */
static void convs_of(rd_element type)
{
    const bool rounds = type != RD_FLOAT32;
    for (size_t c = 0; c < sizeof convs / sizeof *convs; c++) {
        const conv_case *k = &convs[c];
        rd_status st = {0};
        rd_gpu_conv v = {k->n,
                         k->h,
                         k->w,
                         k->ci,
                         k->co,
                         k->kh,
                         k->kw,
                         (k->h + k->pad[0] + k->pad[2] - k->kh) / k->stride + 1,
                         (k->w + k->pad[1] + k->pad[3] - k->kw) / k->stride + 1,
                         k->stride,
                         k->pad[0],
                         k->pad[1],
                         k->pad[2],
                         k->pad[3],
                         type};
        const int64_t nx = v.n * v.h * v.w * v.ci, nw = v.kh * v.kw * v.ci * v.co,
                      ny = v.n * v.oh * v.ow * v.co;
        float *x = numbers(nx, 1), *W = numbers(nw, 2), *dy = numbers(ny, 3), *old = numbers(nx, 4),
              *bad = malloc((size_t)(nx + ny) * sizeof *bad);
        for (int64_t i = 0; i < nx + ny; i++)
            bad[i] = NAN; /* an array that is written and not added to is not read */
        conv_sums s = {calloc((size_t)ny, sizeof(double)), calloc((size_t)nx, sizeof(double)),
                       calloc((size_t)nw, sizeof(double))};
        void *d_x = on_device_as(x, nx, type), *d_dy = on_device_as(dy, ny, type),
             *y = on_device_as(bad, ny, type), *dx = on_device_as(bad, nx, type),
             *added = on_device_as(old, nx, type);
        float *d_W = on_device(W, nw), *dW = on_device(W, nw);
        naive_conv(&v, x, W, dy, &s);
        rd_gpu_conv_forward(gpu, &v, d_x, d_W, y, &st);
        rd_gpu_conv_data(gpu, &v, d_dy, d_W, dx, false, &st);
        rd_gpu_conv_weights(gpu, &v, d_x, d_dy, dW, &st);
        must(&st);
        check_sums("result", c, ny, s.y, NULL, y, type, rounds);
        check_sums("gradient of x", c, nx, s.dx, NULL, dx, type, rounds);
        check_sums("gradient of W", c, nw, s.dW, W, dW, RD_FLOAT32, rounds);
        rd_gpu_conv_data(gpu, &v, d_dy, d_W, added, true, &st);
        must(&st);
        check_sums("gradient of x, added", c, nx, s.dx, old, added, type, rounds);
        void *const device[] = {d_x, d_W, d_dy, y, dx, dW, added};
        for (int i = 0; i < 7; i++) rd_gpu_memory_free(gpu, device[i]);
        void *const host[] = {x, W, dy, old, bad, s.y, s.dx, s.dW};
        for (int i = 0; i < 8; i++) free(host[i]);
    }
}

static void test_convs(void **state)
{
    (void)state;
    convs_of(RD_FLOAT32);
}

static void test_narrow_convs(void **state)
{
    (void)state;
    convs_of(rd_gpu_narrow(gpu));
}

/* ---- sums over ranks ---- */
static float at_rank(int64_t i, int rank)
{
    return (float)((i * 7 + rank * 3) % 64 - 32) / 64.0f;
} /* exact on every wire */

/* Sums several times in a row, and once more after a join. waits: a rank may be lost, so the host
 * waits for the sums before it waits for the device. */
static void sum_as(rd_gpu_group *q, int rank, int size, bool waits, rd_status *st)
{
    static const int64_t counts[] = {1, 1000, 70001, 0, 16};
    enum { N = sizeof counts / sizeof *counts };
    float *x[N], *h = malloc(70001 * sizeof *h);
    rd_gpu_sum_time time[N];
    int n = -1;
    for (int wire = RD_GPU_WIRE_F32; wire <= RD_GPU_WIRE_F16; wire++) {
        for (int k = 0; k < N; k++) {
            for (int64_t i = 0; i < counts[k]; i++) h[i] = at_rank(i + k, rank);
            rd_gpu_memory_new(gpu, (size_t)counts[k] * sizeof *h, &x[k], st);
            rd_gpu_upload(gpu, x[k], h, (size_t)counts[k] * sizeof *h, st);
            rd_gpu_group_sum(q, x[k], counts[k], (rd_gpu_wire)wire, st);
        }
        rd_gpu_group_join(q, st);
        if (wire || waits) rd_gpu_group_wait(q, 60.0, st);
        if (st->code != RD_OK) break; /* a wait for the device would hang */
        for (int k = 0; k < N; k++) {
            rd_gpu_download(gpu, h, x[k], (size_t)counts[k] * sizeof *h, st);
            for (int64_t i = 0; i < counts[k] && st->code == RD_OK; i++) {
                float want = 0.0f;
                for (int r = 0; r < size; r++) want += at_rank(i + k, r);
                if (h[i] != want)
                    rd_fail(st, RD_EBUG, "wire %d, sum %d, element %d: %g, want %g", wire, k,
                            (int)i, (double)h[i], (double)want);
            }
            rd_gpu_memory_free(gpu, x[k]);
        }
        rd_gpu_group_times(q, time, N, &n, st);
        if (st->code == RD_OK && n != N - 1) rd_fail(st, RD_EBUG, "times of %d sums", n);
        for (int k = 0; k < n && st->code == RD_OK; k++)
            if (!(time[k].end_s >= 0.0 && time[k].begin_s >= time[k].end_s &&
                  (!all_cases() || time[k].begin_s < 60.0) &&
                  (k == 0 || time[k].begin_s <= time[k - 1].end_s)))
                rd_fail(st, RD_EBUG, "sum %d from %g to %g s ago", k, time[k].begin_s,
                        time[k].end_s);
    }
    free(h);
}

/* Each rank has some parts of an array, and gets the others. An element of no part stays. */
static void spread_as(rd_gpu_group *q, int rank, int size, rd_status *st)
{
    enum { N = 70001, PARTS = 5 };
    static const int64_t ends[] = {1, 1000, 1000, 65537, N - 1};
    rd_gpu_part part[PARTS];
    rd_gpu_sum_time time[2];
    float *h = malloc(N * sizeof *h), *x;
    int n = -1;
    for (int k = 0; k < PARTS; k++) {
        const int64_t from = k > 0 ? ends[k - 1] : 0;
        part[k] = (rd_gpu_part){.from = from, .n = ends[k] - from, .rank = k % size};
    }
    for (int64_t i = 0; i < N; i++) h[i] = at_rank(i, rank);
    rd_gpu_memory_new(gpu, N * sizeof *h, &x, st);
    rd_gpu_upload(gpu, x, h, N * sizeof *h, st);
    rd_gpu_group_spread(q, x, part, PARTS, st);
    rd_gpu_group_join(q, st);
    rd_gpu_group_wait(q, 60.0, st);
    if (st->code == RD_OK) rd_gpu_download(gpu, h, x, N * sizeof *h, st);
    for (int64_t i = 0, k = 0; i < N && st->code == RD_OK; i++) {
        while (k < PARTS && i >= ends[k]) k++;
        const float want = at_rank(i, k < PARTS ? part[k].rank : rank);
        if (h[i] != want)
            rd_fail(st, RD_EBUG, "part %d, element %d: %g, want %g", (int)k, (int)i, (double)h[i],
                    (double)want);
    }
    rd_gpu_group_times(q, time, 2, &n, st);
    if (st->code == RD_OK && !(n == 1 && time[0].begin_s >= time[0].end_s))
        rd_fail(st, RD_EBUG, "times of %d copies", n);
    if (st->code == RD_OK) rd_gpu_memory_free(gpu, x); /* a wait for the device would hang */
    free(h);
}

/* The time between two sums belongs to neither sum. */
static void sum_with_gap(rd_gpu_group *q, rd_status *st)
{
    const struct timespec gap = {.tv_nsec = 300000000};
    float *x = on_device((const float[]){1.0f}, 1);
    rd_gpu_sum_time time[2];
    int n = 0;
    rd_gpu_group_sum(q, x, 1, RD_GPU_WIRE_F32, st);
    rd_gpu_group_wait(q, 60.0, st);
    nanosleep(&gap, NULL);
    rd_gpu_group_sum(q, x, 1, RD_GPU_WIRE_F32, st);
    rd_gpu_group_join(q, st);
    rd_gpu_group_times(q, time, 2, &n, st);
    if (st->code == RD_OK &&
        !(n == 2 && time[0].end_s - time[1].begin_s > (all_cases() ? 0.29 : 0.0)))
        rd_fail(st, RD_EBUG, "no gap between %d sums", n);
    rd_gpu_memory_free(gpu, x);
}

static void test_one_rank(void **state)
{
    rd_status st = {0};
    rd_gpu_group_options o = {.size = 1, .open_s = 60.0, .sum_s = 60.0};
    rd_gpu_group *q = NULL;
    (void)state;
    if (rd_gpu_group_id(gpu, o.id, &st) == RD_OK && rd_gpu_group_new(gpu, &o, &q, &st) == RD_OK) {
        sum_as(q, 0, 1, false, &st);
        sum_with_gap(q, &st);
        spread_as(q, 0, 1, &st);
    }
    rd_gpu_group_free(q);
    must(&st);
}

/* ---- time ---- */
static void test_marks(void **state)
{
    rd_status st = {0};
    double seconds = -1.0;
    float *x = numbers(1 << 16, 1), *a = on_device(x, 1 << 16);
    (void)state;
    rd_gpu_mark(gpu, 0, &st);
    for (int k = 0; k < 4; k++)
        rd_gpu_gemm(gpu, false, false, 256, 256, 256, 1.0f, a, 256, a, 256, 0.0f, a, 256, &st);
    rd_gpu_mark(gpu, 15, &st);
    rd_gpu_between(gpu, 0, 15, &seconds, &st);
    must(&st);
    assert_true(seconds > 0.0 && seconds < 60.0);
    rd_gpu_memory_free(gpu, a);
    free(x);
}

/* ---- several ranks, a process each: where they can share a machine without a GPU ---- */
typedef struct shared {
    unsigned char id[RD_GPU_ID_BYTES];
    rd_status result[4];
} shared;

/* Starts one process for each rank. lost: this rank ends before its sums. late: this rank never
 * comes. */
static void as_ranks(int size, int lost, int late, shared *s)
{
    rd_status st = {0};
    pid_t child[4];
    rd_gpu_group_id(gpu, s->id, &st);
    must(&st);
    for (int r = 0; r < size; r++) {
        child[r] = fork();
        if (child[r] != 0) continue;
        rd_gpu_group *q;
        rd_status *own = &s->result[r];
        rd_gpu_group_options o = {.rank = r, .size = size, .open_s = 60.0, .sum_s = 60.0};
        memcpy(o.id, s->id, sizeof o.id);
        rd_gpu_group_new(gpu, &o, &q, own);
        if (r == lost) _exit(0);
        if (r == late) {
            pause();
            _exit(0);
        }
        if (late >= 0) {
            float *x = on_device((const float[]){1.0f}, 1);
            rd_gpu_group_sum(q, x, 1, RD_GPU_WIRE_F32, own);
            rd_gpu_group_wait(q, 0.3, own);
        } else {
            sum_as(q, r, size, lost >= 0, own);
            if (own->code == RD_OK) spread_as(q, r, size, own);
        }
        rd_gpu_group_free(q);
        _exit(0);
    }
    for (int r = 0; r < size; r++) {
        assert_true(child[r] > 0);
        if (r == late) continue;
        assert_int_equal(waitpid(child[r], NULL, 0), child[r]);
    }
    if (late < 0) return;
    kill(child[late], SIGKILL);
    waitpid(child[late], NULL, 0);
}

static void test_ranks(void **state)
{
    (void)state;
    if (!gpu_is_emulated()) skip_because("ranks need a GPU each, and this machine has one");
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s != MAP_FAILED);
    as_ranks(3, -1, -1, s);
    for (int r = 0; r < 3; r++) must(&s->result[r]);
    memset(s, 0, sizeof *s);
    as_ranks(3, 1, -1, s);
    assert_int_equal(s->result[0].code, RD_EPEER);
    assert_int_equal(s->result[2].code, RD_EPEER);
    memset(s, 0, sizeof *s);
    as_ranks(2, -1, 1, s);
    assert_int_equal(s->result[0].code, RD_ESTALL);
    munmap(s, sizeof *s);
}

/* A rank whose peers never come. */
static void test_alone(void **state)
{
    rd_status st = {0}, later = {0};
    rd_gpu_group_options o = {.size = 2, .open_s = 0.2, .sum_s = 60.0};
    rd_gpu_group *q;
    (void)state;
    if (!gpu_is_emulated()) skip_because("ranks need a GPU each, and this machine has one");
    rd_gpu_group_id(gpu, o.id, &st);
    must(&st);
    assert_int_equal(rd_gpu_group_new(gpu, &o, &q, &st), RD_ESTALL);
    assert_null(q);
    rd_gpu_wait(gpu, &later); /* does not stick */
    must(&later);
}

int main(void)
{
    static int mixed;
#define ON_GPU(name, test, as)              \
    {                                       \
        name, test, open_gpu, close_gpu, as \
    }
    const struct CMUnitTest t[] = {
        ON_GPU("what a GPU says of itself", test_device, NULL),
        ON_GPU("memory", test_memory, NULL),
        ON_GPU("pinned memory", test_pinned, NULL),
        ON_GPU("arrays ahead of their turn", test_ahead, NULL),
        ON_GPU("memory is short", test_short, NULL),
        ON_GPU("products", test_products, NULL),
        ON_GPU("products, mixed", test_products, &mixed),
        ON_GPU("held weights", test_held, NULL),
        ON_GPU("held weights, mixed", test_held, &mixed),
        ON_GPU("convolutions", test_convs, NULL),
        ON_GPU("convolutions, mixed", test_convs, &mixed),
        ON_GPU("sums of one rank", test_one_rank, NULL),
        ON_GPU("elements of other types", test_cast, NULL),
        ON_GPU("products of 16 bits", test_narrow_products, &mixed),
        ON_GPU("convolutions of 16 bits", test_narrow_convs, &mixed),
        ON_GPU("marks", test_marks, NULL),
        ON_GPU("sums of several ranks", test_ranks, NULL),
        ON_GPU("a rank that nobody joins", test_alone, NULL),
    };
    int status;
    return gpu_here(0, &status) ? cmocka_run_group_tests_name("gpu.h", t, NULL, NULL) != 0 : status;
}
