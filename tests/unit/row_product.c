/* row_product.c -- products of one row with a parameter, as in writing one text. They must be those
 * of oneDNN's products for several rows to the last bit, for every number of threads. */
#include "rd/backend.h"
#include "rd/params.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 5, SLACK = 64 };

typedef struct shape {
    const char *name;
    int64_t rows, cols;
} shape;

/* Strips of 16, 32, 48 and 64 columns, whole and in part, and sums of more than one chain. */
static const shape shapes[] = {{"whole strips", 96, 192},      {"a rest of a strip", 70, 101},
                               {"one column", 40, 1},          {"few numbers", 3, 5},
                               {"a head", 1003, 384},          {"long sums", 3072, 80},
                               {"long sums, turned", 48, 1500}};

static float *numbers(int64_t n, double step)
{
    float *x = aligned_alloc(64, (size_t)((n + SLACK) * 4 + 63) / 64 * 64);
    assert_non_null(x);
    for (int64_t i = 0; i < n + SLACK; i++) x[i] = (float)sin(step * (double)(i + 1));
    return x;
}

static void product(rd_backend *be, rd_params *ps, const rd_param *p, bool turned, int64_t n,
                    const float *x, float *y, bool add)
{
    rd_status st = {0};
    const rd_leaf_rows w = {p, rd_params_values(ps) + p->offset, p->dim[1], 0, p->dim[0], false};
    must_do((turned ? rd_leaf_mul_t : rd_leaf_mul)(be, ps, &w, n, x, y, add, &st), &st);
}

static void check(const shape *s, bool turned, bool add)
{
    rd_status st = {0};
    rd_params *ps;
    rd_param *p;
    const int64_t dim[] = {s->rows, s->cols}, k = turned ? s->cols : s->rows,
                  n = turned ? s->rows : s->cols;
    must_do(rd_params_new(&ps, &st), &st);
    must_do(rd_params_add(ps, "w", 2, dim, (rd_init){RD_INIT_NORMAL, 0.1, 0, 0}, 0, &p, &st), &st);
    must_do(rd_params_seal(ps, 1, NAN, &st), &st);
    const float *w = rd_params_values(ps) + p->offset;
    float *x = numbers((ROWS + 16) * k, 1.3), *all = numbers((ROWS + 16) * n, 0.7);
    for (int threads = 1; threads <= 3; threads += 2) {
        rd_backend *be;
        must_do(rd_backend_cpu_new(threads, false, &be, &st), &st);
        if (threads == 1) product(be, ps, p, turned, ROWS, x, all, add);
        for (int64_t r = 0; r < ROWS; r++) {
            float *old = numbers((ROWS + 16) * n, 0.7), *y = numbers(16 * n, 0.7);
            memcpy(y, old + r * n, (size_t)n * sizeof *y);
            product(be, ps, p, turned, 1, x + r * k, y, add);
            for (int64_t c = 0; c < n; c++) {
                double want = add ? (double)old[r * n + c] : 0.0, size = 1.0;
                for (int64_t i = 0; i < k; i++) {
                    const double z = (double)x[r * k + i] *
                                     (double)w[turned ? c * s->cols + i : i * s->cols + c];
                    want += z;
                    size += fabs(z);
                }
                if (!(fabs((double)y[c] - want) < 1e-6 * size))
                    fail_msg("row %d, column %d: %.9g, not %.9g", (int)r, (int)c, (double)y[c],
                             want);
                if (k <= 1024 && y[c] != all[r * n + c])
                    fail_msg("row %d, column %d: %.9g alone, %.9g beside others", (int)r, (int)c,
                             (double)y[c], (double)all[r * n + c]);
            }
            free(old);
            free(y);
        }
        rd_backend_free(be);
    }
    free(x);
    free(all);
    rd_params_free(ps);
}

static void test_shape(void **state)
{
    for (int i = 0; i < 4; i++) check(*state, i & 1, i & 2);
}

RD_TESTS("row_product", TEST_ROWS(test_shape, shapes))
