/* cube.c -- the op cube against a reference in double, and its gradient against differences. */
#include "harness.h"

enum { ROWS = 37, COLS = 19 };

static double cube_reference(void *ctx)
{
    const harness *h = ctx;
    double total = 0.0;
    for (int64_t i = 0; i < ROWS * COLS; i++)
        total += (double)h->r[i] * h->x[0][i] * h->x[0][i] * h->x[0][i];
    return total;
}

static void test_cube(void **state)
{
    harness h;
    (void)state;
    h_init(&h);
    (void)h_input(&h, ROWS, COLS);
    h_fill(&h, 1.0, ROWS * COLS);
    rd_var *y = rd_op_cube(h.tape, h_var(&h, 0));
    h_check(&h, h_weighted(&h, &y, 1), cube_reference, &h, 3e-5);
    h_free(&h);
}

RD_TESTS("cube", TEST(test_cube))
