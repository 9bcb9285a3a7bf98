/* op_trial.h -- one run of one case of ops.c: its inputs and results, in the way of the run, and
 * the numbers that it left on the host. */
#ifndef RD_TESTS_GPU_OP_TRIAL_H
#define RD_TESTS_GPU_OP_TRIAL_H

#include "../ops/image_harness.h"
#include "stored.h"

enum { MOST_ELEMENTS = 1 << 19, MOST_OUT = 8, MOST_LISTS = 8, MOST_SIZES = 13 };

typedef enum way {
    ON_PARAMETERS,
    ON_RESULTS,
    TWICE,
    NO_GRADIENT,
    MIXED_PRODUCTS,
    MIXED_NO_GRADIENT,
    NARROW,
    NARROW_TWICE,
    N_WAYS
} way;
static const char *const way_names[] = {"on parameters",     "on results",    "twice",
                                        "without gradients", "mixed",         "mixed, no gradients",
                                        "16 bits",           "16 bits, twice"};

typedef struct trial trial;
typedef struct op_case {
    const char *op, *name;
    void (*declare)(trial *t);
    void (*apply)(trial *t);
    int64_t size[MOST_SIZES];
    const char *cell;
    double number[2];
    bool is_loss; /* backward starts at its result */
    bool zeros;   /* the same elements are exactly zero on both sides */
    bool narrow;  /* accepts 16-bit elements */
    bool wide;    /* the result is always float32 */
    bool infers;  /* another computation without gradients, also in mixed */
} op_case;

/* integers that an op left on the host */
typedef struct list {
    const int32_t *at;
    int64_t n;
} list;

struct trial {
    harness h;
    const op_case *c;
    way how;
    bool gpu;
    int in[MOST_INPUTS], n_in; /* inputs of the harness, in the order of declare */
    rd_var *result[MOST_INPUTS];
    rd_param *state[2];
    rd_var *out[MOST_OUT], *loss;
    int n_out;
    double sum[MOST_LISTS]; /* sums left on the host */
    int n_sums;
    list lists[MOST_LISTS];
    int n_lists;
    /* The numbers that are compared. */
    float *values, *grads;
    int64_t n_values;
    int32_t *integers;
    int64_t n_integers;
};

static bool has_gradient(way how)
{
    return how != NO_GRADIENT && how != MIXED_NO_GRADIENT;
}

static bool is_narrow(const trial *t)
{
    return t->how == NARROW || t->how == NARROW_TWICE;
}

static rd_var *stored_with(trial *t, rd_var *x, rd_var *bias, bool relu)
{
    stored_attr a = {.relu = relu};
    if (!x) return NULL;
    if (x->n_dim == 4 && !x->param) {
        a.n_dim = 4;
        memcpy(a.dim, x->dim, sizeof a.dim);
        /* undoes the order that convolutions of a CPU use */
        x = rd_op_flatten(t->h.tape, x);
    } else if (x->n_dim == 4) {
        a.n_dim = 4;
        memcpy(a.dim, x->dim, sizeof a.dim);
    }
    return rd_tape_apply(t->h.tape, &stored_op, &a, sizeof a, (rd_var *[]){x, bias}, 2, NULL, 1);
}

/* Returns the result of an op between others, as a GPU stores it. */
static rd_var *stored(trial *t, rd_var *x)
{
    return is_narrow(t) && !t->gpu ? stored_with(t, x, NULL, false) : x;
}

/* Returns x with 16-bit elements. */
static rd_var *narrowed(trial *t, rd_var *x)
{
    return is_narrow(t) && t->gpu ? rd_op_cast(t->h.tape, x, narrow_type) : stored(t, x);
}

/* ---- for declare and apply ---- */
static void matrix(trial *t, int64_t rows, int64_t cols)
{
    t->in[t->n_in++] = h_input(&t->h, rows, cols);
}
static void image(trial *t, size4 s)
{
    t->in[t->n_in++] = h_image(&t->h, s);
}

static void *step_memory(trial *t, int64_t n, size_t bytes)
{
    rd_status st = {0};
    void *p;
    rd_arena_zero(rd_tape_arena(t->h.tape), (size_t)(n + 1) * bytes, &p, &st);
    must(&st);
    return p;
}

/* Returns a number below n, the same in every call. */
static int64_t pseudo(int64_t i, int64_t n, uint64_t seed)
{
    uint32_t r[4];
    rd_philox((const uint32_t[]){(uint32_t)i, 0, 0, 0}, rd_key_make(seed, RD_RNG_TEST, 0, 0), r);
    return (int64_t)(r[0] % (uint64_t)n);
}

static int32_t *ids_below(trial *t, int64_t n, int64_t V)
{
    int32_t *id = step_memory(t, n, sizeof *id);
    for (int64_t i = 0; i < n; i++) id[i] = (int32_t)pseudo(i, V, 3);
    return id;
}

static int64_t *rows_in_order(trial *t, int64_t n)
{
    int64_t *at = step_memory(t, n, sizeof *at);
    for (int64_t i = 0; i < n; i++) at[i] = i;
    return at;
}

static rd_var *direct(trial *t, int i)
{
    return h_var(&t->h, t->in[i]);
}

/* Returns a matrix that is the result of an op, with extra capacity behind its rows. */
static rd_var *rows_of(trial *t, int i)
{
    rd_var *x = direct(t, i);
    if (!t->result[i])
        t->result[i] = rd_op_pick(t->h.tape, 1, &x, (const int64_t *[]){rows_in_order(t, x->rows)},
                                  x->rows);
    return t->result[i];
}

/* Returns input i: the parameter itself, or a result. */
static rd_var *input(trial *t, int i)
{
    rd_var *x = direct(t, i);
    if (is_narrow(t)) {
        if (!t->result[i]) t->result[i] = narrowed(t, x);
        return t->result[i];
    }
    if (t->how != ON_RESULTS && t->how != TWICE) return x;
    if (x->n_dim != 4) return rows_of(t, i);
    /* the same image */
    if (!t->result[i]) t->result[i] = rd_op_shortcut(t->h.tape, x, 1, x->cols);
    return t->result[i];
}

/* Returns an input that stays float32 in all ways. */
static rd_var *wide_input(trial *t, int i)
{
    return is_narrow(t) ? direct(t, i) : input(t, i);
}

/* wide: a GPU stores y as float32. */
static void give_stored(trial *t, rd_var *y, bool wide)
{
    if (!wide) y = stored(t, y);
    y = rd_op_cast(t->h.tape, y, RD_FLOAT32);
    /* in the order of elements that both devices share */
    if (y && y->n_dim == 4) y = rd_op_flatten(t->h.tape, y);
    assert_true(t->n_out < MOST_OUT);
    t->out[t->n_out++] = y;
}
static void give(trial *t, rd_var *y)
{
    give_stored(t, y, t->c->wide);
}

static double *sum_out(trial *t)
{
    assert_true(t->n_sums < MOST_LISTS);
    t->sum[t->n_sums] = -1.0;
    return &t->sum[t->n_sums++];
}

static int32_t *list_out(trial *t, int64_t n)
{
    int32_t *at = step_memory(t, n, sizeof *at);
    assert_true(t->n_lists < MOST_LISTS);
    t->lists[t->n_lists++] = (list){at, n};
    return at;
}

#endif
