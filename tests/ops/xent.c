/* xent.c -- tests softmax_xent with a table as W, a bias, label smoothing, weights of rows and
 * classes that only fill a block, against a naive reference in double. basic.c tests the plain
 * form. */
#include "harness.h"
#include "../../runner/ops/shared/xent_block.h"

static const double TOLERANCE = 3e-5;
enum { MOST_ROWS = 520, MOST_CLASSES = 4200 };

typedef struct xent_case {
    const char *name;
    int64_t n, k, V, n_classes;
    bool by_rows, bias;
    float smoothing;
    bool smooth_others, weights;
    float temperature;
    bool tied; /* x has rows of W */
    float softcap, z_loss;
} xent_case;

static const xent_case cases[] = {
    {"table", 9, 16, 24, 0, true, false, 0.0f, false, false, 1.0f, false, 0.0f, 0.0f},
    {"table, one row", 1, 8, 37, 0, true, false, 0.0f, false, false, 1.0f, false, 0.0f, 0.0f},
    {"table, one class", 9, 8, 1, 0, true, true, 0.0f, false, false, 1.0f, false, 0.0f, 0.0f},
    {"bias", 9, 16, 24, 0, false, true, 0.0f, false, false, 1.0f, false, 0.0f, 0.0f},
    {"table, bias", 33, 5, 7, 0, true, true, 0.0f, false, false, 0.7f, false, 0.0f, 0.0f},
    {"uniform", 9, 16, 24, 0, false, false, 0.1f, false, false, 1.0f, false, 0.0f, 0.0f},
    {"fairseq", 9, 16, 24, 0, false, false, 0.1f, true, false, 1.0f, false, 0.0f, 0.0f},
    {"fairseq, two classes", 9, 16, 2, 0, true, true, 0.3f, true, false, 1.0f, false, 0.0f, 0.0f},
    {"uniform, one class", 9, 16, 1, 0, true, true, 0.3f, false, false, 1.0f, false, 0.0f, 0.0f},
    {"weights", 9, 16, 24, 0, false, false, 0.0f, false, true, 1.0f, false, 0.0f, 0.0f},
    {"classes", 9, 16, 24, 19, false, false, 0.0f, false, false, 1.0f, false, 0.0f, 0.0f},
    {"classes, table, bias", 9, 16, 24, 17, true, true, 0.0f, false, false, 1.0f, false, 0.0f,
     0.0f},
    {"all of it", 70, 12, 40, 37, true, true, 0.1f, false, true, 0.7f, false, 0.0f, 0.0f},
    {"all of it, fairseq", 70, 12, 40, 37, true, true, 0.2f, true, true, 1.3f, false, 0.0f, 0.0f},
    {"all of it, wide", 5, 8, 4200, 4111, true, true, 0.1f, false, true, 1.0f, false, 0.0f, 0.0f},
    {"tied", 33, 12, 24, 0, true, true, 0.1f, false, false, 1.0f, true, 0.0f, 0.0f},
    {"softcap", 9, 16, 24, 0, false, false, 0.0f, false, false, 1.0f, false, 1.5f, 0.0f},
    {"z loss", 9, 16, 24, 0, true, false, 0.0f, false, false, 1.0f, false, 0.0f, 0.3f},
    {"softcap, z loss, all of it", 70, 12, 40, 37, true, true, 0.1f, false, true, 0.7f, false, 2.0f,
     0.1f},
    {"softcap, z loss, wide", 5, 8, 4200, 4111, true, true, 0.1f, false, true, 1.0f, false, 2.0f,
     0.1f},
    {"tied, classes", 33, 12, 24, 21, true, false, 0.1f, true, true, 1.0f, true, 0.0f, 0.0f},
};

typedef struct xent_test {
    harness h;
    const xent_case *c;
    int x, W, b;
    int32_t target[MOST_ROWS], ids[MOST_ROWS], argmax[MOST_ROWS];
    float weight[MOST_ROWS], nll[MOST_ROWS];
    double loss_sum, nll_sum;
} xent_test;

static int64_t classes_of(const xent_case *c)
{
    return c->n_classes ? c->n_classes : c->V;
}

/* The logits of row i, divided by the temperature. */
static void logits_of(const xent_test *t, int64_t i, double *l)
{
    const xent_case *c = t->c;
    const double *W = t->h.x[t->W], *x = c->tied ? W + t->ids[i] * c->k : t->h.x[t->x] + i * c->k;
    for (int64_t v = 0; v < classes_of(c); v++) {
        l[v] = c->bias ? t->h.x[t->b][v] : 0.0;
        for (int64_t k = 0; k < c->k; k++)
            l[v] += x[k] * W[c->by_rows ? v * c->k + k : k * c->V + v];
        if (c->softcap > 0.0f) l[v] = (double)c->softcap * tanh(l[v] / (double)c->softcap);
        l[v] /= (double)c->temperature;
    }
}

/* -log of the softmax of n logits, at y. */
static double minus_log(int64_t n, const double *l, int64_t y)
{
    double sum = 0.0;
    for (int64_t v = 0; v < n; v++) sum += exp(l[v]);
    return log(sum) - l[y];
}

static double xent_reference(void *ctx)
{
    const xent_test *t = ctx;
    const xent_case *c = t->c;
    const int64_t n = classes_of(c);
    const double e = (double)c->smoothing;
    double total = 0.0, l[MOST_CLASSES];
    for (int64_t i = 0; i < c->n; i++) {
        double loss = 0.0;
        logits_of(t, i, l);
        const double log_sum = minus_log(n, l, 0) + l[0];
        for (int64_t v = 0; v < n; v++) {
            const bool right = v == t->target[i];
            const double q = c->smooth_others ? (right     ? 1.0 - e
                                                 : e > 0.0 ? e / (double)(n - 1)
                                                           : 0.0)
                                              : (right ? 1.0 - e : 0.0) + e / (double)n;
            loss += q * (log_sum - l[v]);
        }
        loss += (double)c->z_loss * log_sum * log_sum;
        total += (c->weights ? (double)t->weight[i] : 1.0) * loss;
    }
    return total;
}

static void xent_init(xent_test *t, const xent_case *c, int threads)
{
    *t = (xent_test){.c = c, .x = -1, .b = -1, .loss_sum = -1.0, .nll_sum = -1.0};
    for (int64_t i = 0; i < c->n; i++) {
        t->target[i] = (int32_t)(i * 5 % classes_of(c));
        t->ids[i] = (int32_t)(i * 7 % c->V);
        t->weight[i] = (float)(i % 4) * 0.5f; /* some are 0 */
    }
    h_init_as(&t->h, threads, false);
    if (!c->tied) t->x = h_input(&t->h, c->n, c->k);
    t->W = c->by_rows ? h_input(&t->h, c->V, c->k) : h_input(&t->h, c->k, c->V);
    if (c->bias) t->b = h_input(&t->h, 0, c->V);
    h_fill(&t->h, 1.0, 1);
}

static rd_xent xent_attr(xent_test *t)
{
    const xent_case *c = t->c;
    return (rd_xent){.target = t->target,
                     .temperature = c->temperature,
                     .loss_sum = &t->loss_sum,
                     .argmax = t->argmax,
                     .nll = t->nll,
                     .nll_sum = &t->nll_sum,
                     .smoothing = c->smoothing,
                     .smooth_others = c->smooth_others,
                     .weight = c->weights ? t->weight : NULL,
                     .n_classes = c->n_classes,
                     .by_rows = c->by_rows,
                     .softcap = c->softcap,
                     .z_loss = c->z_loss};
}

static rd_var *xent_rows_of(xent_test *t, int64_t n)
{
    int64_t all[MOST_ROWS];
    if (t->c->tied) return rd_op_embed(t->h.tape, h_var(&t->h, t->W), t->ids, n);
    for (int64_t i = 0; i < n; i++) all[i] = i;
    rd_var *x = h_var(&t->h, t->x);
    /* pick borrows its list until the reset */
    int64_t *kept;
    rd_status st = {0};
    rd_arena_get(rd_tape_arena(t->h.tape), sizeof all, &kept, &st);
    must(&st);
    memcpy(kept, all, sizeof all);
    return rd_op_pick(t->h.tape, 1, &x, (const int64_t *[]){kept}, n);
}

static rd_var *xent_apply(xent_test *t)
{
    const rd_xent a = xent_attr(t);
    return rd_op_softmax_xent_bias(t->h.tape, &a, xent_rows_of(t, t->c->n), h_var(&t->h, t->W),
                                   h_var(&t->h, t->b));
}

static void check_xent(const xent_case *c, size_t block_bytes)
{
    xent_test t;
    double l[MOST_CLASSES], nll_sum = 0.0;
    const int64_t n = classes_of(c);
    xent_init(&t, c, 1);
    rd_backend_set_block_bytes(t.h.be, block_bytes);
    rd_var *loss = xent_apply(&t);
    h_check(&t.h, loss, xent_reference, &t, TOLERANCE);
    const double want = xent_reference(&t);
    assert_true(fabs(t.loss_sum - want) <= TOLERANCE * fmax(1.0, fabs(want)));
    for (int64_t i = 0; i < c->n; i++) {
        int64_t best = 0;
        logits_of(&t, i, l);
        const double nll = minus_log(n, l, t.target[i]);
        assert_float_equal(t.nll[i], nll, TOLERANCE * fmax(1.0, nll));
        nll_sum += (c->weights ? (double)t.weight[i] : 1.0) * nll;
        for (int64_t v = 1; v < n; v++)
            if (l[v] > l[best]) best = v;
        assert_int_equal(t.argmax[i], best);
    }
    assert_true(fabs(t.nll_sum - nll_sum) <= TOLERANCE * fmax(1.0, nll_sum));
    /* what only fills the block gets no gradient at all */
    const float *g = test_grads(t.h.ps) + t.h.p[t.W]->offset;
    for (int64_t v = n; v < c->V; v++) {
        for (int64_t k = 0; k < c->k && !c->tied; k++)
            assert_true(g[c->by_rows ? v * c->k + k : k * c->V + v] == 0.0f);
        if (c->bias) assert_true(test_grads(t.h.ps)[t.h.p[t.b]->offset + v] == 0.0f);
    }
    h_free(&t.h);
}

static void test_xent(void **state)
{
    check_xent(*state, 0);
}

/* Of 70 rows 64, then 6. */
static void test_in_blocks(void **state)
{
    check_xent(*state, 1);
}

/* One row of logits (2, 1, 0, -1), class 0, smoothing 0.1: values of PyTorch and fairseq. */
static void test_known(void **state)
{
    static const struct {
        float smoothing;
        bool others;
        double loss, gradient[4];
    } known[] = {{0.0f, false, 0.440190, {0.643914 - 1.0, 0.236883, 0.087144, 0.032059}},
                 {0.1f, false, 0.590190, {-0.281086, 0.211883, 0.062144, 0.007059}},
                 {0.1f, true, 0.640190, {-0.256086, 0.203549, 0.053811, -0.001275}}};
    static const float z[] = {2.0f, 1.0f, 0.0f, -1.0f};
    (void)state;
    for (int k = 0; k < 6; k++) {
        const xent_case c = {"",
                             1,
                             4,
                             4,
                             0,
                             k % 2,
                             false,
                             known[k / 2].smoothing,
                             known[k / 2].others,
                             false,
                             1.0f,
                             false,
                             0.0f,
                             0.0f};
        xent_test t;
        rd_status st = {0};
        xent_init(&t, &c, 1);
        float *x = test_values(t.h.ps);
        for (int i = 0; i < 4; i++) x[t.h.p[t.x]->offset + i] = z[i];
        for (int i = 0; i < 16; i++) x[t.h.p[t.W]->offset + i] = i % 5 == 0 ? 1.0f : 0.0f;
        rd_params_touch(t.h.ps);
        rd_var *loss = xent_apply(&t);
        rd_tape_check(t.h.tape, &st);
        must(&st);
        rd_tape_backward(t.h.tape, loss, &st);
        must(&st);
        assert_float_equal(t.loss_sum, known[k / 2].loss, 1e-6);
        assert_float_equal(t.nll_sum, 0.440190, 1e-6);
        for (int i = 0; i < 4; i++)
            assert_float_equal(test_grads(t.h.ps)[t.h.p[t.x]->offset + i], known[k / 2].gradient[i],
                               1e-6);
        h_free(&t.h);
    }
}

/* Sums and gradients have the same bytes on 1, 2 and 4 threads. */
static void test_threads(void **state)
{
    (void)state;
    for (int k = 12; k < 21; k++) {
        float *first = NULL;
        double loss_sum = 0.0, nll_sum = 0.0;
        for (int threads = 1; threads <= 4; threads *= 2) {
            xent_test t;
            rd_status st = {0};
            xent_init(&t, &cases[k], threads);
            rd_tape_backward(t.h.tape, xent_apply(&t), &st);
            must(&st);
            const size_t bytes = (size_t)rd_params_span(t.h.ps) * sizeof(float);
            if (!first) {
                first = malloc(bytes);
                memcpy(first, test_grads(t.h.ps), bytes);
                loss_sum = t.loss_sum;
                nll_sum = t.nll_sum;
            }
            assert_memory_equal(first, test_grads(t.h.ps), bytes);
            assert_true(t.loss_sum == loss_sum && t.nll_sum == nll_sum);
            h_free(&t.h);
        }
        free(first);
    }
}

/* 256 rows of logits of this vocabulary take more than a usual block. Blocks of 260 rows and of 64
 * give the same losses, and the same gradients up to rounding. A float32 sum of n terms is wrong by
 * about sqrt(n) 2^-24 of its terms: 1.1e-5 for 33,000 classes. */
static void test_large_vocabulary(void **state)
{
    static const xent_case c = {"",   520,   3,     33000, 0,     true, false,
                                0.0f, false, false, 1.0f,  false, 0.0f, 0.0f};
    float *first = NULL;
    double loss_sum = 0.0;
    (void)state;
    for (int round = 0; round < 2; round++) {
        xent_test t;
        rd_status st = {0};
        xent_init(&t, &c, 1);
        rd_backend_set_block_bytes(t.h.be, (size_t)round);
        rd_tape_backward(t.h.tape, xent_apply(&t), &st);
        must(&st);
        const int64_t n = rd_params_span(t.h.ps);
        const float *g = test_grads(t.h.ps);
        if (round == 0) {
            first = malloc((size_t)n * sizeof *first);
            memcpy(first, g, (size_t)n * sizeof *first);
            loss_sum = t.loss_sum;
        }
        assert_true(fabs(t.loss_sum - loss_sum) <= 1e-6 * loss_sum);
        double largest = 0.0;
        for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs((double)first[i]));
        for (int64_t i = 0; i < n; i++)
            assert_true(fabs((double)g[i] - (double)first[i]) <= 1e-5 * largest);
        assert_true(largest > 0.1);
        h_free(&t.h);
    }
    free(first);
}

/* The gradients carry the tape's seed; without recording the sums are the same. */
static void test_seed(void **state)
{
    const xent_case *c = &cases[12];
    float *once = NULL;
    double loss_sum = 0.0;
    (void)state;
    for (int round = 0; round < 3; round++) {
        xent_test t;
        rd_status st = {0};
        xent_init(&t, c, 1);
        if (round == 1) rd_tape_set_seed(t.h.tape, 1024.0f);
        if (round == 2) rd_tape_reset(t.h.tape, false, false);
        rd_var *loss = xent_apply(&t);
        rd_tape_check(t.h.tape, &st);
        must(&st);
        if (round == 0) loss_sum = t.loss_sum;
        assert_true(t.loss_sum == loss_sum);
        if (round < 2) rd_tape_backward(t.h.tape, loss, &st);
        must(&st);
        const float *g = test_grads(t.h.ps);
        const int64_t n = rd_params_span(t.h.ps);
        if (!once) {
            once = malloc((size_t)n * sizeof *once);
            memcpy(once, g, (size_t)n * sizeof *once);
        }
        for (int64_t i = 0; i < n && round == 1; i++)
            assert_float_equal(g[i] / 1024.0f, once[i], 1e-6);
        h_free(&t.h);
    }
    free(once);
}

static void test_no_rows(void **state)
{
    xent_test t;
    rd_status st = {0};
    (void)state;
    xent_init(&t, &cases[12], 1);
    const rd_xent a = xent_attr(&t);
    rd_var *loss = rd_op_softmax_xent_bias(t.h.tape, &a, xent_rows_of(&t, 0), h_var(&t.h, t.W),
                                           h_var(&t.h, t.b));
    rd_tape_backward(t.h.tape, loss, &st);
    must(&st);
    assert_true(t.loss_sum == 0.0 && t.nll_sum == 0.0);
    for (int64_t i = 0; i < rd_params_span(t.h.ps); i++) assert_true(test_grads(t.h.ps)[i] == 0.0f);
    h_free(&t.h);
}

static void test_refused(void **state)
{
    (void)state;
    for (int k = 0; k < 8; k++) {
        xent_test t;
        rd_status st = {0};
        xent_init(&t, &cases[12], 1);
        rd_xent a = xent_attr(&t);
        if (k == 0) a.n_classes = 41;
        if (k == 1) a.n_classes = -1;
        if (k == 2) a.n_classes = 36; /* a target is 36 */
        if (k == 3) a.smoothing = 1.0f;
        if (k == 4) a.smoothing = -0.1f;
        if (k == 5) a.smoothing = NAN;
        if (k == 6) a.by_rows = false;
        if (k == 2) t.target[3] = 36;
        assert_null(rd_op_softmax_xent_bias(t.h.tape, &a, xent_rows_of(&t, t.c->n),
                                            h_var(&t.h, t.W), h_var(&t.h, k == 7 ? t.W : t.b)));
        assert_int_equal(rd_tape_check(t.h.tape, &st), RD_EBUG);
        h_free(&t.h);
    }
    /* e / (V - 1) of one class */
    const xent_case one = {"", 1, 4, 1, 0, true, false, 0.1f, true, false, 1.0f, false, 0.0f, 0.0f};
    xent_test t;
    rd_status st = {0};
    xent_init(&t, &one, 1);
    assert_null(xent_apply(&t));
    assert_int_equal(rd_tape_check(t.h.tape, &st), RD_EBUG);
    h_free(&t.h);
}

/* A part of the memory, whatever a driver reserves of it. */
static void test_block_bytes(void **state)
{
    static const struct {
        uint64_t memory;
        size_t mib;
    } row[] = {{0, 256},
               {8589934592u, 256},
               {16928407552u, 256},
               {25430786048u, 512},
               {42297786368u, 1024},
               {84929347584u, 2048},
               {85899345920u, 2048},
               {150754820096u, 4096}};
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        assert_int_equal(rd_xent_block_bytes(row[i].memory), row[i].mib << 20);
}

RD_TESTS("xent", TEST_ROWS(test_xent, cases), TEST_ROWS(test_in_blocks, cases), TEST(test_known),
         TEST(test_threads), TEST(test_large_vocabulary), TEST(test_seed), TEST(test_no_rows),
         TEST(test_refused), TEST(test_block_bytes))
