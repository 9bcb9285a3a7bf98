/* image_ops.c -- tests the ops on images, except the convolution, against naive references in
 * double.
 *
 * Each op runs on images in NHWC and in the order that convolutions write, on a GPU also on
 * 16-bit elements. */
#include "image_harness.h"

static const double TOLERANCE = 1e-4;

typedef enum op_kind {
    NORM,
    POOL_MAX,
    POOL_MEAN,
    GLOBAL_MEAN,
    FLATTEN,
    RELU,
    ADD,
    SHORTCUT,
    LRN
} op_kind;

typedef struct row {
    const char *name;
    op_kind op;
    size4 x;
    bool relu, with_add, eval; /* batch_norm, add */
    int64_t group;
    int64_t size, stride, pad[4], c_out;
    int threads;
} row;

static const row rows[] = {
    {.name = "batch_norm", .op = NORM, .x = {3, 5, 4, 16}},
    {.name = "batch_norm of 17 channels", .op = NORM, .x = {3, 5, 3, 17}},
    {.name = "batch_norm of one channel", .op = NORM, .x = {3, 5, 3, 1}},
    {.name = "batch_norm, relu", .op = NORM, .x = {2, 9, 9, 16}, .relu = true},
    {.name = "batch_norm, addition", .op = NORM, .x = {3, 3, 3, 24}, .with_add = true},
    {.name = "batch_norm, addition, relu",
     .op = NORM,
     .x = {2, 4, 5, 16},
     .with_add = true,
     .relu = true},
    {.name = "batch_norm in groups", .op = NORM, .x = {5, 3, 3, 16}, .group = 2},
    {.name = "batch_norm in groups, addition, relu",
     .op = NORM,
     .x = {5, 4, 3, 17},
     .group = 3,
     .with_add = true,
     .relu = true},
    {.name = "batch_norm, a group larger than the batch",
     .op = NORM,
     .x = {3, 3, 3, 8},
     .group = 32},
    {.name = "batch_norm, running statistics",
     .op = NORM,
     .x = {3, 4, 3, 17},
     .eval = true,
     .relu = true},
    {.name = "batch_norm, running statistics, addition",
     .op = NORM,
     .x = {3, 4, 3, 16},
     .eval = true,
     .with_add = true},
    {.name = "batch_norm of 65 channels, two threads",
     .op = NORM,
     .x = {2, 3, 3, 65},
     .relu = true,
     .threads = 2},
    {.name = "max pool 2x2", .op = POOL_MAX, .x = {2, 6, 8, 16}, .size = 2, .stride = 2},
    {.name = "max pool 2x2, odd size", .op = POOL_MAX, .x = {2, 5, 7, 17}, .size = 2, .stride = 2},
    {.name = "max pool 3x3 stride 2, padded around",
     .op = POOL_MAX,
     .x = {2, 8, 7, 16},
     .size = 3,
     .stride = 2,
     .pad = {1, 1, 1, 1}},
    {.name = "max pool 3x3 stride 2, padded after",
     .op = POOL_MAX,
     .x = {2, 8, 8, 3},
     .size = 3,
     .stride = 2,
     .pad = {0, 0, 1, 1}},
    {.name = "max pool 3x3 stride 2, each side padded otherwise",
     .op = POOL_MAX,
     .x = {2, 8, 9, 16},
     .size = 3,
     .stride = 2,
     .pad = {0, 2, 1, 0}},
    {.name = "max pool 3x3 stride 1",
     .op = POOL_MAX,
     .x = {1, 6, 5, 8},
     .size = 3,
     .stride = 1,
     .threads = 2},
    {.name = "max pool 1x1 stride 2", .op = POOL_MAX, .x = {1, 5, 5, 8}, .size = 1, .stride = 2},
    {.name = "max pool 17x17", .op = POOL_MAX, .x = {1, 17, 18, 8}, .size = 17, .stride = 1},
    {.name = "mean pool 2x2", .op = POOL_MEAN, .x = {2, 4, 6, 16}, .size = 2, .stride = 2},
    {.name = "mean pool 3x3 stride 2, padded",
     .op = POOL_MEAN,
     .x = {2, 8, 7, 17},
     .size = 3,
     .stride = 2,
     .pad = {1, 1, 1, 1}},
    {.name = "mean pool 3x3 stride 1, each side padded otherwise",
     .op = POOL_MEAN,
     .x = {2, 6, 5, 8},
     .size = 3,
     .stride = 1,
     .pad = {2, 0, 0, 1}},
    {.name = "global mean", .op = GLOBAL_MEAN, .x = {3, 4, 5, 17}},
    {.name = "lrn of 16 channels", .op = LRN, .x = {2, 3, 4, 16}, .size = 4},
    {.name = "lrn of 17 channels", .op = LRN, .x = {3, 2, 3, 17}, .size = 2, .threads = 2},
    {.name = "lrn, fewer channels than the window", .op = LRN, .x = {2, 2, 2, 3}, .size = 4},
    {.name = "lrn of single channels", .op = LRN, .x = {1, 3, 2, 9}, .size = 0},
    {.name = "flatten", .op = FLATTEN, .x = {3, 2, 3, 17}},
    {.name = "relu", .op = RELU, .x = {2, 3, 3, 17}},
    {.name = "add", .op = ADD, .x = {2, 3, 3, 17}},
    {.name = "add, relu", .op = ADD, .x = {2, 3, 3, 16}, .relu = true},
    {.name = "shortcut 16 to 32", .op = SHORTCUT, .x = {2, 6, 6, 16}, .stride = 2, .c_out = 32},
    {.name = "shortcut, odd numbers", .op = SHORTCUT, .x = {2, 5, 7, 17}, .stride = 2, .c_out = 20},
    {.name = "shortcut stride 3, no new channel",
     .op = SHORTCUT,
     .x = {1, 7, 7, 8},
     .stride = 3,
     .c_out = 8},
};
enum {
    N_ROWS = sizeof rows / sizeof *rows,
    N_ORDERS = 3,     /* as written, blocked, what is added written and x blocked */
    NARROW = N_ORDERS /* as written, of 16 bits */
};

typedef struct op_case {
    const row *r;
    int order;
} op_case;

typedef struct op_test {
    harness h;
    const row *r;
    int x, add, gamma, beta;
    rd_param *mean, *var, *same;
    size4 y;
} op_test;

static double at(const op_test *t, int input, int64_t i, int64_t p, int64_t q, int64_t c)
{
    const size4 s = t->r->x;
    return t->h.x[input][((i * s.h + p) * s.w + q) * s.c + c];
}

/* Mean and biased variance of channel c over the group that sample i is of. */
static void group_stats(const op_test *t, int64_t i, int64_t c, double *mean, double *var)
{
    const size4 s = t->r->x;
    const int64_t group = t->r->group ? t->r->group : s.n, i0 = i / group * group,
                  i1 = i0 + group < s.n ? i0 + group : s.n;
    double m = 0.0, v = 0.0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t k = i0; k < i1; k++)
            for (int64_t p = 0; p < s.h; p++)
                for (int64_t q = 0; q < s.w; q++) {
                    const double x = at(t, t->x, k, p, q, c), n = (double)((i1 - i0) * s.h * s.w);
                    if (pass)
                        v += (x - m) * (x - m) / n;
                    else
                        m += x / n;
                }
    *mean = m;
    *var = v;
}

static const double EPSILON = 1e-3;

/* Large enough numbers that each term of the formulas counts. */
static const rd_lrn norm_of_lrn = {.bias = 1.5f, .alpha = 0.25f, .beta = 0.75f};

static double lrn_at(const op_test *t, int64_t i, int64_t p, int64_t q, int64_t c)
{
    double sum = 0.0;
    for (int64_t j = c - t->r->size; j <= c + t->r->size; j++)
        if (j >= 0 && j < t->r->x.c) sum += at(t, t->x, i, p, q, j) * at(t, t->x, i, p, q, j);
    return at(t, t->x, i, p, q, c) / pow(1.5 + 0.25 * sum, 0.75);
}

static double pool_at(const op_test *t, int64_t i, int64_t p, int64_t q, int64_t c)
{
    const row *r = t->r;
    double best = -1e300, sum = 0.0, n = 0.0;
    for (int64_t a = 0; a < r->size; a++)
        for (int64_t b = 0; b < r->size; b++) {
            const int64_t u = p * r->stride + a - r->pad[0], v = q * r->stride + b - r->pad[1];
            if (u < 0 || v < 0 || u >= r->x.h || v >= r->x.w) continue;
            const double x = at(t, t->x, i, u, v, c);
            best = x > best ? x : best;
            sum += x;
            n += 1.0;
        }
    return r->op == POOL_MAX ? best : sum / n;
}

static double element(const op_test *t, int64_t i, int64_t p, int64_t q, int64_t c)
{
    const row *r = t->r;
    double y = 0.0, m, v;
    switch (r->op) {
    case NORM:
        if (r->eval) {
            m = (double)test_values(t->h.ps)[t->mean->offset + c];
            v = (double)test_values(t->h.ps)[t->var->offset + c];
        } else {
            group_stats(t, i, c, &m, &v);
        }
        y = t->h.x[t->gamma][c] * (at(t, t->x, i, p, q, c) - m) / sqrt(v + EPSILON) +
            t->h.x[t->beta][c];
        break;
    case POOL_MAX:
    case POOL_MEAN:
        return pool_at(t, i, p, q, c);
    case LRN:
        return lrn_at(t, i, p, q, c);
    case GLOBAL_MEAN:
        for (int64_t a = 0; a < r->x.h; a++)
            for (int64_t b = 0; b < r->x.w; b++)
                y += at(t, t->x, i, a, b, c) / (double)(r->x.h * r->x.w);
        return y;
    case SHORTCUT:
        c -= (r->c_out - r->x.c) / 2;
        return c < 0 || c >= r->x.c ? 0.0 : at(t, t->x, i, p * r->stride, q * r->stride, c);
    default:
        y = at(t, t->x, i, p, q, c);
    }
    if (t->add >= 0) y += at(t, t->add, i, p, q, c);
    return (r->relu || r->op == RELU) && y < 0.0 ? 0.0 : y;
}

static double reference(void *ctx)
{
    const op_test *t = ctx;
    double total = 0.0;
    int64_t e = 0;
    for (int64_t i = 0; i < t->y.n; i++)
        for (int64_t p = 0; p < t->y.h; p++)
            for (int64_t q = 0; q < t->y.w; q++)
                for (int64_t c = 0; c < t->y.c; c++)
                    total += (double)t->h.r[e++] * element(t, i, p, q, c);
    return total;
}

static int64_t pooled(int64_t in, int64_t pads, const row *r)
{
    return (in + pads - r->size) / r->stride + 1;
}

static void check_statistics(const op_test *t, float seed)
{
    const size4 s = t->r->x;
    const int64_t group = t->r->group ? t->r->group : s.n;
    for (int64_t c = 0; c < s.c; c++) {
        double mean = 0.0, var = 0.0;
        for (int64_t i = 0; i < s.n && !t->r->eval; i++) {
            const int64_t i0 = i / group * group,
                          n = (s.n - i0 < group ? s.n - i0 : group) * s.h * s.w;
            double m, v;
            group_stats(t, i, c, &m, &v);
            mean += (double)seed * m;
            var += (double)seed * v * (double)n / (double)(n - 1);
        }
        const double m = (double)test_grads(t->h.ps)[t->mean->offset + c],
                     v = (double)test_grads(t->h.ps)[t->var->offset + c];
        if (!(fabs(m - mean) <= 1e-5 * (1.0 + fabs(mean))))
            fail_msg("running mean %g, want %g", m, mean);
        if (!(fabs(v - var) <= 1e-5 * (1.0 + fabs(var))))
            fail_msg("running variance %g, want %g", v, var);
    }
}

static rd_var *apply(op_test *t, rd_var *x, rd_var *add)
{
    const row *r = t->r;
    const rd_batch_norm bn = {(float)EPSILON, r->group, r->relu, t->mean, t->var};
    const rd_pool pool = {r->op == POOL_MAX ? RD_POOL_MAX : RD_POOL_MEAN,
                          r->size,
                          r->stride,
                          r->pad[0],
                          r->pad[1],
                          r->pad[2],
                          r->pad[3]};
    rd_tape *tape = t->h.tape;
    switch (r->op) {
    case NORM:
        return rd_op_batch_norm(tape, &bn, x, h_var(&t->h, t->gamma), h_var(&t->h, t->beta), add);
    case POOL_MAX:
    case POOL_MEAN:
        return rd_op_pool2d(tape, &pool, x);
    case GLOBAL_MEAN:
        return rd_op_global_mean(tape, x);
    case RELU:
        return rd_op_relu(tape, x);
    case ADD:
        return rd_op_add(tape, x, add, r->relu);
    case LRN: {
        rd_lrn lrn = norm_of_lrn;
        lrn.radius = r->size;
        return rd_op_lrn(tape, &lrn, x);
    }
    case SHORTCUT:
        return rd_op_shortcut(tape, x, r->stride, r->c_out);
    default:
        return x;
    }
}

/* Numbers that 16 bits hold. No two numbers of a sample's channel are equal, because a pool has
 * a kink there. No number is zero and no number of `halves` cancels another, because a relu has
 * a kink there. */
static void fill_distinct(harness *h, int input, size4 s, bool halves)
{
    float *v = test_values(h->ps) + h->p[input]->offset;
    const uint64_t n = halves ? 256 : 512;
    assert_true((uint64_t)(s.h * s.w) <= n);
    for (int64_t e = 0; e < count4(s); e++) {
        const int64_t c = e % s.c, i = e / s.c / (s.h * s.w), at = e / s.c % (s.h * s.w);
        const int64_t k = (int64_t)rd_permute(
            rd_key_make(11, RD_RNG_TEST, (uint64_t)(i * s.c + c), 0), n, (uint64_t)at);
        h->x[input][e] = halves ? (double)(2 * k - 255) / 512.0
                                : (double)(k < 256 ? k - 256 : k - 255) / 256.0;
        v[e] = (float)h->x[input][e];
    }
    rd_params_touch(h->ps);
}

static void test_op(void **state)
{
    const op_case *k = *state;
    const bool narrow = k->order == NARROW;
    const row *r = k->r;
    op_test t = {.r = r, .x = -1, .add = -1, .gamma = -1, .beta = -1, .y = r->x};
    rd_status st = {0};
    h_init_as(&t.h, r->threads > 1 ? r->threads : 1, narrow);
    t.x = h_image(&t.h, r->x);
    if (r->with_add || r->op == ADD) t.add = h_image(&t.h, r->x);
    if (r->op == NORM) {
        t.gamma = h_input(&t.h, 0, r->x.c);
        t.beta = h_input(&t.h, 0, r->x.c);
        rd_params_add_state(t.h.ps, "mean", r->x.c, 0.25, 0.9, &t.mean, &st);
        rd_params_add_state(t.h.ps, "var", r->x.c, 0.5, 0.9, &t.var, &st);
        must(&st);
    } else if (r->op == POOL_MAX || r->op == POOL_MEAN) {
        t.y.h = pooled(r->x.h, r->pad[0] + r->pad[2], r);
        t.y.w = pooled(r->x.w, r->pad[1] + r->pad[3], r);
    } else if (r->op == GLOBAL_MEAN) {
        t.y.h = t.y.w = 1;
    } else if (r->op == SHORTCUT) {
        t.y = (size4){r->x.n, (r->x.h - 1) / r->stride + 1, (r->x.w - 1) / r->stride + 1, r->c_out};
    }
    t.same = h_identity(&t.h, r->x.c);
    h_fill(&t.h, 1.0, count4(t.y));
    h_identity_fill(&t.h, t.same);
    if (narrow) {
        h_shorten(&t.h);
        fill_distinct(&t.h, t.x, r->x, false);
        if (t.add >= 0) fill_distinct(&t.h, t.add, r->x, true);
    }
    rd_tape_reset(t.h.tape, true, !r->eval);
    rd_var *x = h_var(&t.h, t.x), *add = h_var(&t.h, t.add);
    if (narrow) {
        x = h_narrowed(&t.h, x);
        add = h_narrowed(&t.h, add);
    } else if (k->order > 0) {
        x = h_blocked(&t.h, t.same, x);
        if (add && k->order == 1) add = h_blocked(&t.h, t.same, add);
    }
    rd_var *y = rd_op_cast(t.h.tape, apply(&t, x, add), RD_FLOAT32);
    rd_tape_check(t.h.tape, &st);
    must(&st);
    rd_var *loss = r->op == GLOBAL_MEAN ? h_weighted(&t.h, &y, 1) : h_weighted_image(&t.h, y);
    const unsigned images = 1u << t.x | (t.add >= 0 ? 1u << t.add : 0);
    h_check_stored(&t.h, loss, reference, &t, TOLERANCE, (h_stored){h_roundoff(&t.h), images, 1});
    if (r->op == NORM) check_statistics(&t, 1.0f);
    h_free(&t.h);
}

/* ---- x used three times, so that gradients are added and passed on ---- */
static double sum_reference(void *ctx)
{
    const op_test *t = ctx;
    double total = 0.0;
    for (int64_t e = 0; e < count4(t->y); e++) {
        const double x = t->h.x[t->x][e], y = (x > 0.0 ? x : 0.0) + x;
        total += (double)t->h.r[e] * (2.0 * y + x);
    }
    return total;
}

/* With 16 bits each has two roundings, because 2 r is exact. Gradient: r + 2 r, then that sum +
 * 2 r. Value: y, then 2 y + x. */
static void test_many_uses(void **state)
{
    const bool narrow = *(const int *)*state == NARROW;
    op_test t = {.y = {2, 40, 8, 17}, .x = -1};
    h_init_as(&t.h, 1, narrow);
    t.x = h_image(&t.h, t.y);
    t.same = h_identity(&t.h, t.y.c);
    h_fill(&t.h, 1.0, count4(t.y));
    h_identity_fill(&t.h, t.same);
    if (narrow) {
        h_shorten(&t.h);
        fill_distinct(&t.h, t.x, t.y, false);
    }
    rd_tape *tape = t.h.tape;
    rd_var *x = narrow ? h_narrowed(&t.h, h_var(&t.h, t.x))
                       : h_blocked(&t.h, t.same, h_var(&t.h, t.x));
    rd_var *y = rd_op_add(tape, rd_op_relu(tape, x), x, false);
    y = rd_op_add(tape, rd_op_add(tape, y, y, false), x, false);
    h_check_stored(&t.h, h_weighted_image(&t.h, rd_op_cast(tape, y, RD_FLOAT32)), sum_reference, &t,
                   TOLERANCE, (h_stored){2.0 * h_roundoff(&t.h), 1u << t.x, 1});
    h_free(&t.h);
}

/* A pool behind something rectified takes the mask of the relu over. */
static double chain_reference(void *ctx)
{
    const op_test *t = ctx;
    double total = 0.0;
    int64_t e = 0;
    for (int64_t i = 0; i < 2; i++)
        for (int64_t p = 0; p < 4; p++)
            for (int64_t q = 0; q < 4; q++)
                for (int64_t c = 0; c < 16; c++, e++) {
                    double best = 0.0;
                    for (int64_t k = 0; k < 4; k++) {
                        const int64_t u = 2 * p + k / 2, v = 2 * q + k % 2;
                        best = fmax(best, t->h.x[t->x][((i * 8 + u) * 8 + v) * 16 + c] - 0.5);
                    }
                    total += (double)t->h.r[e] * best;
                    if (t->add >= 0) /* a second use, which does not mask */
                        total += (double)t->h.r[e] *
                                 fmax(0.0,
                                      t->h.x[t->x][((i * 8 + 2 * p) * 8 + 2 * q) * 16 + c] - 0.5);
                }
    return total;
}

static void test_chain(void **state)
{
    const int uses = *(const int *)*state;
    op_test t = {.x = -1, .add = uses - 2};
    rd_status st = {0};
    rd_param *bias;
    h_init(&t.h);
    t.x = h_image(&t.h, (size4){2, 8, 8, 16});
    t.same = h_identity(&t.h, 16);
    rd_params_add(t.h.ps, "bias", 1, (int64_t[]){16}, (rd_init){RD_INIT_CONST, -0.5, 0, 0}, 0,
                  &bias, &st);
    must(&st);
    h_fill(&t.h, 1.0, 2 * 4 * 4 * 16);
    h_identity_fill(&t.h, t.same);
    rd_tape *tape = t.h.tape;
    rd_var *x = rd_op_conv2d(tape, &(rd_conv){.stride = 1, .relu = true}, h_var(&t.h, t.x),
                             rd_tape_param(tape, t.same), rd_tape_param(tape, bias));
    /* Recorded first, it goes back last: to a gradient that the pool has masked. */
    rd_var *other = uses == 2 ? rd_op_shortcut(tape, x, 2, 16) : NULL;
    rd_var *y = rd_op_pool2d(tape, &(rd_pool){.kind = RD_POOL_MAX, .size = 2, .stride = 2}, x);
    if (other) y = rd_op_add(tape, y, other, false);
    h_check(&t.h, h_weighted_image(&t.h, y), chain_reference, &t, TOLERANCE);
    h_free(&t.h);
}

/* Of equal largest elements the first gets the gradient. */
static void test_ties(void **state)
{
    harness h;
    rd_status st = {0};
    (void)state;
    h_init(&h);
    const int x = h_image(&h, (size4){1, 3, 3, 8});
    h_fill(&h, 1.0, 8);
    float *v = test_values(h.ps) + h.p[x]->offset;
    for (int64_t i = 0; i < 72; i++) v[i] = i / 8 >= 4 ? 2.0f : 1.0f; /* pixels 4 .. 8 */
    rd_params_touch(h.ps);
    rd_var *y = rd_op_pool2d(h.tape, &(rd_pool){.kind = RD_POOL_MAX, .size = 3, .stride = 1},
                             h_var(&h, x));
    rd_var *loss = h_weighted_image(&h, y);
    rd_tape_backward(h.tape, loss, &st);
    must(&st);
    for (int64_t i = 0; i < 72; i++) {
        const float g = test_grads(h.ps)[h.p[x]->offset + i], want = i / 8 == 4 ? h.r[i % 8] : 0.0f;
        if (fabsf(g - want) > 1e-6f)
            fail_msg("element %d: %g, want %g", (int)i, (double)g, (double)want);
    }
    h_free(&h);
}

/* ---- dropout ---- */
static void test_dropout(void **state)
{
    const int order = *(const int *)*state; /* 0: NHWC, 1: blocked, 2: rows; of 16 bits NHWC */
    static const int64_t sample[] = {7, 1000003, 2, 7};
    const size4 s = {4, 3, 5, 17};
    const rd_dropout d = {.seed = 3, .epoch = 2, .site = 9, .keep = 0.75f};
    harness h;
    rd_status st = {0};
    uint8_t want[4][3 * 5 * 17];
    int64_t kept = 0;
    h_init_as(&h, 1, order == NARROW);
    const double unit = h_roundoff(&h);
    const int x = order == 2 ? h_input(&h, s.n, s.h * s.w * s.c) : h_image(&h, s);
    rd_param *same = h_identity(&h, s.c);
    h_fill(&h, 1.0, count4(s));
    h_identity_fill(&h, same);
    if (order == NARROW) h_shorten(&h);
    rd_var *in = h_var(&h, x);
    if (order == 1) in = h_blocked(&h, same, in);
    if (order == NARROW) in = h_narrowed(&h, in);
    rd_var *y = rd_op_cast(h.tape, rd_op_dropout(h.tape, &d, sample, in), RD_FLOAT32);
    if (order != 2) y = rd_op_flatten(h.tape, y);
    rd_var *loss = h_weighted(&h, &y, 1);
    rd_tape_check(h.tape, &st);
    must(&st);
    rd_tape_backward(h.tape, loss, &st);
    must(&st);
    for (int64_t i = 0; i < s.n; i++)
        rd_philox_keep(rd_key_make(3, RD_RNG_DROPOUT, 9, 2), (uint64_t)sample[i], 0, 0.75f,
                       3 * 5 * 17, want[i]);
    float *result = h_read(&h, y, false);
    for (int64_t i = 0; i < s.n; i++)
        for (int64_t e = 0; e < 255; e++) {
            const double v = want[i][e] ? h.x[x][i * 255 + e] / 0.75 : 0.0,
                         r = want[i][e] ? (double)h.r[i * 255 + e] / 0.75 : 0.0;
            const double got = (double)result[i * 255 + e],
                         g = (double)test_grads(h.ps)[h.p[x]->offset + i * 255 + e];
            kept += want[i][e];
            if (fabs(got - v) > 1e-6 + unit * fabs(v))
                fail_msg("sample %d, element %d: %g", (int)i, (int)e, got);
            if (fabs(g - r) > 1e-6 + unit * fabs(r))
                fail_msg("gradient %d, element %d: %g", (int)i, (int)e, g);
        }
    assert_true(kept > 4 * 255 * 7 / 10 && kept < 4 * 255 * 8 / 10);
    assert_memory_equal(want[0], want[3], 255);
    /* Without training: the same values. */
    rd_tape_reset(h.tape, false, false);
    in = h_var(&h, x);
    if (order == 1) in = h_blocked(&h, same, in);
    if (order == NARROW) in = h_narrowed(&h, in);
    y = rd_op_cast(h.tape, rd_op_dropout(h.tape, &d, sample, in), RD_FLOAT32);
    if (order != 2) y = rd_op_flatten(h.tape, y);
    rd_tape_check(h.tape, &st);
    must(&st);
    free(result);
    result = h_read(&h, y, false);
    for (int64_t e = 0; e < count4(s); e++) assert_true((double)result[e] == h.x[x][e]);
    free(result);
    h_free(&h);
}

/* ---- class_loss ---- */
typedef struct loss_test {
    harness h;
    int l;
    int64_t n, V;
    double smoothing;
    const int32_t *label;
} loss_test;

static double loss_reference(void *ctx)
{
    const loss_test *t = ctx;
    double total = 0.0;
    for (int64_t i = 0; i < t->n; i++) {
        const double *l = t->h.x[t->l] + i * t->V;
        double sum = 0.0;
        for (int64_t v = 0; v < t->V; v++) sum += exp(l[v]);
        for (int64_t v = 0; v < t->V; v++)
            total -= ((v == t->label[i] ? 1.0 - t->smoothing : 0.0) + t->smoothing / (double)t->V) *
                     (l[v] - log(sum));
    }
    return total;
}

static void test_class_loss(void **state)
{
    const double smoothing = *(const double *)*state;
    static const int32_t label[] = {0, 10, 4, 4, 7};
    loss_test t = {.n = 5, .V = 11, .smoothing = (double)(float)smoothing, .label = label};
    double sum = 0.0, nll = 0.0, plain = 0.0;
    int32_t argmax[5], rank[5];
    float probability[5];
    h_init(&t.h);
    t.l = h_input(&t.h, t.n, t.V);
    h_fill(&t.h, 3.0, 1);
    const rd_class_loss a = {label, (float)smoothing, &sum, &nll, argmax, rank, probability};
    rd_var *loss = rd_op_class_loss(t.h.tape, &a, h_var(&t.h, t.l));
    h_check(&t.h, loss, loss_reference, &t, 3e-5);
    assert_true(fabs(sum - loss_reference(&t)) < 1e-5 * sum);
    for (int64_t i = 0; i < t.n; i++) {
        const double *l = t.h.x[t.l] + i * t.V;
        int32_t best = 0, above = 0;
        double total = 0.0;
        for (int32_t v = 0; v < t.V; v++) {
            if (l[v] > l[best]) best = v;
            above += l[v] > l[label[i]];
            total += exp(l[v]);
        }
        plain += log(total) - l[label[i]];
        assert_int_equal(argmax[i], best);
        assert_int_equal(rank[i], above);
        assert_true(fabs((double)probability[i] - exp(l[best]) / total) < 1e-5);
    }
    assert_true(fabs(nll - plain) < 1e-5 * plain);
    h_free(&t.h);
}

static void test_class_ties(void **state)
{
    static const int32_t label[] = {2, 0, 3, 5, 5, 1};
    static const int32_t want_rank[] = {1, 0, 2, 4, 3, 3}, want_best[] = {1, 0, 1, 0, 2, 2};
    static const float logits[6][6] = {{0, 3, 3, 3, 0, 0},    {1, 1, 1, 1, 1, 1},
                                       {0, 3, 3, 3, 0, 0},    {4, 4, 4, 4, 0, 0.5f},
                                       {-9, -9, 7, 7, 7, -2}, {0, 1, 2, 2, 2, 1}};
    harness h;
    double sum;
    int32_t argmax[6], rank[6];
    (void)state;
    h_init(&h);
    h_input(&h, 6, 6);
    h_fill(&h, 1.0, 1);
    float *l;
    memcpy(&l, &(const float *){logits[0]}, sizeof l);
    const rd_class_loss a = {.label = label, .loss_sum = &sum, .argmax = argmax, .rank = rank};
    rd_tape_reset(h.tape, false, false);
    assert_non_null(rd_op_class_loss(h.tape, &a, rd_tape_const(h.tape, l, 6, 6)));
    for (int i = 0; i < 6; i++) {
        if (argmax[i] != want_best[i] || rank[i] != want_rank[i])
            fail_msg("row %d: class %d, rank %d", i, (int)argmax[i], (int)rank[i]);
    }
    const int32_t bad[] = {2, 0, 3, 6, 5, 1};
    const rd_class_loss b = {.label = bad, .loss_sum = &sum};
    assert_null(rd_op_class_loss(h.tape, &b, rd_tape_const(h.tape, l, 6, 6)));
    assert_int_equal(rd_tape_status(h.tape)->code, RD_EBUG);
    h_free(&h);
}

/* ---- sizes that do not fit ---- */
static void test_bad_pool(void **state)
{
    static const rd_pool bad[] = {{RD_POOL_MAX, 5, 1, 0, 0, 0, 0},
                                  {RD_POOL_MAX, 2, 1, 2, 0, 0, 0},
                                  {RD_POOL_MEAN, 2, 2, 0, 0, 0, 4}};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        harness h;
        rd_status st = {0};
        h_init(&h);
        const int x = h_image(&h, (size4){1, 4, 4, 8});
        h_fill(&h, 1.0, 1);
        assert_null(rd_op_pool2d(h.tape, &bad[i], h_var(&h, x)));
        assert_int_equal(rd_tape_check(h.tape, &st), RD_EUSAGE);
        h_free(&h);
    }
}

/* The state's gradient carries the tape's seed and is added to. */
static void test_statistics_seed(void **state)
{
    static const row r = {.op = NORM, .x = {3, 2, 2, 8}};
    op_test t = {.r = &r, .add = -1};
    rd_status st = {0};
    (void)state;
    h_init(&t.h);
    t.x = h_image(&t.h, r.x);
    t.gamma = h_input(&t.h, 0, 8);
    t.beta = h_input(&t.h, 0, 8);
    rd_params_add_state(t.h.ps, "mean", 8, 0.0, 0.9, &t.mean, &st);
    rd_params_add_state(t.h.ps, "var", 8, 1.0, 0.9, &t.var, &st);
    h_fill(&t.h, 1.0, count4(r.x));
    rd_tape_set_seed(t.h.tape, 128.0f);
    rd_var *loss = h_weighted_image(&t.h, apply(&t, h_var(&t.h, t.x), NULL));
    rd_tape_backward(t.h.tape, loss, &st);
    must(&st);
    check_statistics(&t, 128.0f);
    h_free(&t.h);
}

/* A mean that is large against the deviation costs few digits. */
static void test_far_from_zero(void **state)
{
    const size4 s = {4, 16, 16, 16};
    harness h;
    rd_status st = {0};
    rd_param *mean, *var;
    (void)state;
    h_init(&h);
    const int x = h_image(&h, s), gamma = h_input(&h, 0, 16), beta = h_input(&h, 0, 16);
    rd_params_add_state(h.ps, "mean", 16, 0.0, 0.9, &mean, &st);
    rd_params_add_state(h.ps, "var", 16, 1.0, 0.9, &var, &st);
    h_fill(&h, 1.0, count4(s));
    float *v = test_values(h.ps) + h.p[x]->offset;
    for (int64_t e = 0; e < count4(s); e++) v[e] += 1000.0f;
    rd_params_touch(h.ps);
    rd_var *y = rd_op_batch_norm(h.tape,
                                 &(rd_batch_norm){.mean = mean, .variance = var, .epsilon = 1e-5f},
                                 h_var(&h, x), h_var(&h, gamma), h_var(&h, beta), NULL);
    rd_tape_backward(h.tape, h_weighted_image(&h, y), &st);
    must(&st);
    for (int64_t c = 0; c < 16; c++) {
        const int64_t M = s.n * s.h * s.w;
        double m = 0.0, q = 0.0;
        for (int64_t e = 0; e < M; e++) m += (double)v[e * 16 + c] / (double)M;
        for (int64_t e = 0; e < M; e++)
            q += ((double)v[e * 16 + c] - m) * ((double)v[e * 16 + c] - m) / (double)(M - 1);
        const double got = (double)test_grads(h.ps)[var->offset + c] / (double)s.n;
        if (!(fabs(got - q) < 1e-5 * q)) fail_msg("variance %g, want %g", got, q);
    }
    h_free(&h);
}

static void make_tests(test_list *l)
{
    static op_case cases[N_ROWS * (N_ORDERS + 1)];
    static char names[N_ROWS * (N_ORDERS + 1)][96];
    static const int use[] = {1, 2}, order[] = {0, 1, 2, NARROW};
    static const double smoothing[] = {0.0, 0.1};
    size_t n = 0;
    for (int i = 0; i < N_ROWS; i++)
        for (int o = 0; o < N_ORDERS + test_on_gpu(); o++) {
            const bool two = rows[i].with_add || rows[i].op == ADD;
            if (o == 2 && !two) continue;
            snprintf(names[n], sizeof names[n], "%s%s", rows[i].name,
                     o == 0        ? ", NHWC"
                     : o == 1      ? ", blocked"
                     : o == NARROW ? ", 16 bits"
                                   : ", both orders");
            cases[n] = (op_case){&rows[i], o};
            add_test(l, names[n], test_op, &cases[n]);
            n++;
        }
    add_test(l, "many uses", test_many_uses, &order[0]);
    if (test_on_gpu()) add_test(l, "many uses, 16 bits", test_many_uses, &order[NARROW]);
    add_test(l, "relu and pool", test_chain, &use[0]);
    add_test(l, "relu, pool and another use", test_chain, &use[1]);
    add_test(l, "ties of a pool", test_ties, NULL);
    add_test(l, "dropout, NHWC", test_dropout, &order[0]);
    add_test(l, "dropout, blocked", test_dropout, &order[1]);
    add_test(l, "dropout, rows", test_dropout, &order[2]);
    if (test_on_gpu()) add_test(l, "dropout, 16 bits", test_dropout, &order[NARROW]);
    add_test(l, "class_loss", test_class_loss, &smoothing[0]);
    add_test(l, "class_loss, smoothing", test_class_loss, &smoothing[1]);
    add_test(l, "class_loss, ties", test_class_ties, NULL);
    add_test(l, "pools that do not fit", test_bad_pool, NULL);
    add_test(l, "statistics carry the seed", test_statistics_seed, NULL);
    add_test(l, "statistics far from zero", test_far_from_zero, NULL);
}

RD_TESTS_MADE("ops: images", make_tests)
