/* touched.c -- tests which rows of an embedding backward reports as touched.
 *
 * They are the rows of the ids, over all steps since the set was cleared. If an op that does not
 * mark rows uses the table, they are all rows. */
#include "harness.h"

enum { V = 130, K = 3, MOST = 6 };

typedef struct table {
    harness h;
    rd_param *p, *w;
    uint64_t *set;
} table;

static void make(table *t)
{
    rd_status st = {0};
    const int64_t dim[2] = {V, K}, out[2] = {K, 4};
    h_init(&t->h);
    rd_params_add(t->h.ps, "table", 2, dim, (rd_init){RD_INIT_UNIFORM, 1, 0, 0}, RD_PARAM_ROWS,
                  &t->p, &st);
    rd_params_add(t->h.ps, "w", 2, out, (rd_init){RD_INIT_UNIFORM, 1, 0, 0}, 0, &t->w, &st);
    rd_params_seal(t->h.ps, 3, NAN, &st);
    h_use_gpu(&t->h, &st);
    rd_tape_new(t->h.be, t->h.ps, &t->h.tape, &st);
    must(&st);
    t->set = rd_tape_touched(t->h.tape, t->p);
    assert_non_null(t->set);
    assert_null(rd_tape_touched(t->h.tape, t->w));
}

static void release(table *t)
{
    rd_tape_free(t->h.tape);
    rd_params_free(t->h.ps);
    rd_backend_free(t->h.be);
}

/* Forward and backward of some ids; by_pick: with an op that marks no rows. */
static void step(table *t, const int32_t *ids, int64_t n, bool backward, bool by_pick)
{
    static const int32_t target[MOST] = {0, 1, 2, 3, 0, 1};
    rd_status st = {0};
    double loss = 0.0;
    int64_t idx[MOST];
    for (int64_t i = 0; i < n; i++) idx[i] = ids[i];
    rd_tape_reset(t->h.tape, true, true);
    rd_var *W = rd_tape_param(t->h.tape, t->p);
    rd_var *x = by_pick ? rd_op_pick(t->h.tape, 1, &W, (const int64_t *[]){idx}, n)
                        : rd_op_embed(t->h.tape, W, ids, n);
    const rd_xent xent = {.target = target, .temperature = 1.0f, .loss_sum = &loss};
    rd_var *sum = rd_op_softmax_xent(t->h.tape, &xent, x, rd_tape_param(t->h.tape, t->w));
    rd_tape_check(t->h.tape, &st);
    if (backward) rd_tape_backward(t->h.tape, sum, &st);
    must(&st);
}

static bool marked(const table *t, int64_t row)
{
    return t->set[row / 64] >> row % 64 & 1;
}

static void test_marks(void **state)
{
    (void)state;
    table t;
    make(&t);
    step(&t, (const int32_t[]){5, 5, 129, 0, 64, 5}, 6, false, false);
    for (int i = 0; i < V; i++) assert_false(marked(&t, i)); /* no gradient without backward */
    step(&t, (const int32_t[]){5, 5, 129, 0, 64, 5}, 6, true, false);
    const float *g = test_grads(t.h.ps) + t.p->offset;
    for (int i = 0; i < V; i++) {
        const bool used = i == 0 || i == 5 || i == 64 || i == 129;
        assert_int_equal(marked(&t, i), used);
        for (int j = 0; j < K; j++) assert_true((g[i * K + j] != 0.0f) == used);
    }
    step(&t, (const int32_t[]){63, 5}, 2, true, false); /* the next micro-step adds its rows */
    for (int i = 0; i < V; i++)
        assert_int_equal(marked(&t, i), i == 0 || i == 5 || i == 63 || i == 64 || i == 129);
    memset(t.set, 0, 3 * sizeof *t.set);
    step(&t, (const int32_t[]){128}, 1, true, false);
    for (int i = 0; i < V; i++) assert_int_equal(marked(&t, i), i == 128);
    release(&t);
}

static void test_other_op(void **state)
{
    (void)state;
    table t;
    make(&t);
    step(&t, (const int32_t[]){7, 8}, 2, true, true);
    for (int i = 0; i < V; i++) assert_true(marked(&t, i));
    release(&t);
}

RD_TESTS("ops: touched", TEST(test_marks), TEST(test_other_op))
