/* row_product.c -- products with a parameter in evaluation and decoding. The bytes of a row do not
 * depend on the number of rows, on the row's place among them, or on the number of threads. Each
 * kind of kernel that the CPU has is tested, in a process in which oneDNN uses these instructions.
 * Products of training with an odd number of terms read nothing else. */
#include "rd/backend.h"
#include "rd/params.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 300, SLACK = 64 };

typedef struct shape {
    int64_t rows, cols;
} shape;

/* Whole strips of 16, 32, 48 and 64 columns and rests; sums of one and of several chains. Each
 * shape is used in both orientations: k is rows, then cols. */
static const shape shapes[] = {{96, 192},  {70, 101},  {40, 1},    {3, 5},     {1003, 96},
                               {512, 64},  {1024, 48}, {1025, 33}, {1500, 48}, {2048, 80},
                               {3072, 16}, {4096, 64}, {5120, 20}, {8192, 32}};
static const int64_t counts[] = {1, 2, 3, 5, 7, 8, 13, 63, 64, 65, ROWS};

/* Ends the child process with a message. */
#define wrong(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), _exit(1))

static void need(const rd_status *st)
{
    if (st->code != RD_OK) wrong("%s (%s)", st->msg, st->where);
}

static float *room(int64_t n)
{
    float *x = aligned_alloc(64, (size_t)((n + SLACK) * 4 + 63) / 64 * 64);
    if (!x) wrong("out of memory");
    return x;
}

/* Returns an array with a part of one sequence of numbers. */
static float *numbers(int64_t n, int64_t from)
{
    static float one[ROWS * 8192 + 1000];
    static bool made;
    for (int64_t i = 0; !made && i < ROWS * 8192 + 1000; i++)
        one[i] = (float)sin(1.3 * (double)(i + 1));
    made = true;
    float *x = room(n);
    memcpy(x, one + from, (size_t)n * sizeof *x);
    return x;
}

static float rounded(float x, bool mixed)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if (mixed) u = (u + 0x7fffu + ((u >> 16) & 1)) & 0xffff0000u;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Compares a row with sums in double. */
static void check_values(const shape *s, bool turned, bool mixed, const float *w, const float *x,
                         const float *old, const float *y, bool add)
{
    const int64_t k = turned ? s->cols : s->rows, n = turned ? s->rows : s->cols;
    for (int64_t c = 0; c < n; c++) {
        double want = add ? (double)old[c] : 0.0, size = 1.0;
        for (int64_t i = 0; i < k; i++) {
            const float a = w[turned ? c * s->cols + i : i * s->cols + c];
            const double z = (double)rounded(x[i], mixed) * (double)rounded(a, mixed);
            want += z;
            size += fabs(z);
        }
        if (!(fabs((double)y[c] - want) < 1e-6 * size))
            wrong("%d x %d, column %d: %.9g, not %.9g", (int)s->rows, (int)s->cols, (int)c,
                  (double)y[c], want);
    }
}

static void check(const shape *s, bool turned, bool add, bool mixed)
{
    rd_status st = {0};
    rd_params *ps;
    rd_param *p;
    const int64_t dim[] = {s->rows, s->cols}, k = turned ? s->cols : s->rows,
                  n = turned ? s->rows : s->cols;
    rd_params_new(&ps, &st);
    rd_params_add(ps, "w", 2, dim, (rd_init){RD_INIT_NORMAL, 0.1, 0, 0}, 0, &p, &st);
    rd_params_seal(ps, 1, NAN, &st);
    need(&st);
    const float *v = rd_params_values(ps) + p->offset;
    const rd_leaf_rows w = {p, v, p->dim[1], 0, p->dim[0], false};
    float *x = numbers(ROWS * k, 0), *old = numbers(ROWS * n, 1000), *all = numbers(ROWS * n, 1000),
          *y = room(ROWS * n);
    for (int threads = 1; threads <= 2; threads++) {
        rd_backend *be;
        rd_backend_cpu_new(threads, mixed, &be, &st);
        need(&st);
        if (threads == 1)
            (turned ? rd_leaf_mul_t : rd_leaf_mul)(be, ps, &w, ROWS, x, all, add, &st);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            const int64_t m = counts[i], first = (ROWS - m) / 2;
            if (threads == 2 && i % 3 != 0) continue;
            memcpy(y, old + first * n, (size_t)(m * n) * sizeof *y);
            (turned ? rd_leaf_mul_t : rd_leaf_mul)(be, ps, &w, m, x + first * k, y, add, &st);
            need(&st);
            for (int64_t r = 0; r < m; r++)
                if (memcmp(y + r * n, all + (first + r) * n, (size_t)n * sizeof *y) != 0)
                    wrong("%d x %d%s%s, %d threads: row %d of %d has other bytes than among %d",
                          (int)s->rows, (int)s->cols, turned ? ", turned" : "",
                          add ? ", added" : "", threads, (int)r, (int)m, ROWS);
        }
        rd_backend_free(be);
    }
    for (int64_t r = 0; r < ROWS; r += 149)
        check_values(s, turned, mixed, v, x + r * k, old + r * n, all + r * n, add);
    free(x);
    free(old);
    free(all);
    free(y);
    rd_params_free(ps);
}

typedef struct kind_row {
    const char *name;
    const char *isa; /* what oneDNN may use at most */
    bool mixed, all; /* all: only with CASES=all */
} kind_row;

static const kind_row kinds[] = {{"best", "DEFAULT", false, false},
                                 {"best, mixed", "DEFAULT", true, false},
                                 {"AVX-512, mixed", "AVX512_CORE", true, true},
                                 {"AVX2", "AVX2", false, false},
                                 {"AVX2, mixed", "AVX2", true, true},
                                 {"SSE4.1", "SSE41", false, true}};

static void all_shapes(void *arg)
{
    const kind_row *kind = arg;
    (void)setenv("ONEDNN_MAX_CPU_ISA", kind->isa, 1);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int i = 0; i < 4; i++) check(&shapes[s], i & 1, i & 2, kind->mixed);
}

/* Products of training with an odd k, after one whose operand was not finite. Kernels that read
 * pairs of bfloat16 numbers also read the first number behind a row. */
static void odd_sums(void *arg)
{
    const kind_row *kind = arg;
    static const shape odd[] = {{7, 9}, {9, 3}, {33, 101}, {1001, 35}};
    enum { MOST = 40, K = 1001 };
    (void)setenv("ONEDNN_MAX_CPU_ISA", kind->isa, 1);
    for (size_t s = 0; s < sizeof odd / sizeof *odd; s++)
        for (int i = 0; i < 4; i++) {
            const bool turned = i & 1, add = i & 2;
            rd_status st = {0};
            rd_params *ps;
            rd_param *p;
            rd_backend *be;
            const int64_t dim[] = {odd[s].rows, odd[s].cols}, k = turned ? dim[1] : dim[0],
                          n = turned ? dim[0] : dim[1];
            rd_params_new(&ps, &st);
            rd_params_add(ps, "w", 2, dim, (rd_init){RD_INIT_NORMAL, 0.1, 0, 0}, 0, &p, &st);
            rd_params_seal(ps, 1, NAN, &st);
            rd_backend_cpu_new(1, kind->mixed, &be, &st);
            need(&st);
            const float *v = rd_params_values(ps) + p->offset;
            const rd_leaf_rows w = {p, v, dim[1], 0, dim[0], true};
            float *x = room((MOST + RD_SLACK_ROWS) * K), *y = room((MOST + RD_SLACK_ROWS) * K),
                  *old = numbers(MOST * n, 1000), *good = numbers(MOST * k, 0);
            for (int64_t m = 1; m <= MOST; m++) {
                for (int64_t j = 0; j < (MOST + RD_SLACK_ROWS) * K; j++) x[j] = NAN;
                (turned ? rd_leaf_mul_t : rd_leaf_mul)(be, ps, &w, MOST, x, y, false, &st);
                memcpy(x, good, (size_t)(m * k) * sizeof *x);
                memcpy(y, old, (size_t)(m * n) * sizeof *y);
                (turned ? rd_leaf_mul_t : rd_leaf_mul)(be, ps, &w, m, x, y, add, &st);
                need(&st);
                for (int64_t r = 0; r < m; r++)
                    check_values(&odd[s], turned, kind->mixed, v, x + r * k, old + r * n, y + r * n,
                                 add);
            }
            free(x);
            free(y);
            free(old);
            free(good);
            rd_backend_free(be);
            rd_params_free(ps);
        }
}

static void in_child(void (*fn)(void *), void *kind)
{
    char said[400];
    const int status = run_in_child(fn, kind, said, sizeof said);
    if (status != 0) fail_msg("status %d: %s", status, said);
}

static void test_odd(void **state)
{
    const kind_row *kind = *state;
    if (kind->all && !all_cases()) skip_because("needs CASES=all");
    in_child(odd_sums, *state);
}

static void test_kind(void **state)
{
    const kind_row *kind = *state;
    if (kind->all && !all_cases()) skip_because("needs CASES=all");
    in_child(all_shapes, *state);
}

RD_TESTS("row_product", TEST_ROWS(test_kind, kinds), TEST_ROWS(test_odd, kinds))
