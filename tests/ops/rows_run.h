/* rows_run.h -- what the tests of ops on rows share: a run of one op, the same bytes on any number
 * of threads, no rows. */
#ifndef RD_TESTS_OPS_ROWS_RUN_H
#define RD_TESTS_OPS_ROWS_RUN_H

#include "harness.h"

/* A run of one op, which a test describes. */
typedef struct rows_run rows_run;
typedef rd_var *rows_apply(rows_run *t);
struct rows_run {
    harness h;
    rows_apply *apply;
    const void *test_case;
    int64_t n, d;
    int in[3]; /* inputs of the harness; -1: none */
};

/* Output and gradients have the same bytes on 1, 2 and 4 threads. init: makes the inputs. */
static inline void rows_same_bytes(void (*init)(rows_run *t, const void *test_case, int threads),
                                   const void *test_case)
{
    static const int threads[] = {1, 2, 4};
    float *first[2] = {NULL, NULL};
    for (int k = 0; k < 3; k++) {
        rows_run t = {0};
        rd_status st = {0};
        init(&t, test_case, threads[k]);
        rd_var *y = t.apply(&t), *loss = h_weighted(&t.h, &y, 1);
        rd_tape_check(t.h.tape, &st);
        must(&st);
        float *v = h_read(&t.h, y, false);
        rd_tape_backward(t.h.tape, loss, &st);
        must(&st);
        const float *g = test_grads(t.h.ps);
        const size_t n = (size_t)(y->rows * y->cols) * sizeof *v,
                     n_g = (size_t)rd_params_span(t.h.ps) * sizeof *g;
        if (!k) {
            first[0] = v;
            first[1] = malloc(n_g);
            memcpy(first[1], g, n_g);
        } else {
            assert_memory_equal(v, first[0], n);
            assert_memory_equal(g, first[1], n_g);
            free(v);
        }
        h_free(&t.h);
    }
    free(first[0]);
    free(first[1]);
}

/* Returns no rows of an input. */
static inline rd_var *rows_none(rows_run *t, int i)
{
    rd_var *x = h_var(&t->h, i);
    return rd_op_pick(t->h.tape, 1, &x, (const int64_t *[]){(const int64_t[]){0}}, 0);
}

/* Runs backward of an op that got no rows: its gradients stay zero. */
static inline void rows_check_none(rows_run *t, rd_var *y)
{
    rd_status st = {0};
    rd_tape_check(t->h.tape, &st);
    must(&st);
    assert_int_equal(y->rows, 0);
    rd_tape_backward(t->h.tape, h_weighted(&t->h, &y, 1), &st);
    must(&st);
    for (int i = 0; i < t->h.n; i++)
        for (int64_t k = 0; k < t->h.p[i]->n; k++)
            assert_true(test_grads(t->h.ps)[t->h.p[i]->offset + k] == 0.0f);
}

#endif
