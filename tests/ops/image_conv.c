/* image_conv.c -- tests conv2d against a naive convolution in double: values directly, gradients
 * by differences.
 *
 * The shapes include some for which the library has fast kernels and some for which it has none.
 * On a GPU it also tests 16-bit elements. */
#include "image_harness.h"

typedef struct row {
    const char *name;
    size4 x;
    int64_t kh, kw, co, stride, pad[4]; /* top, left, bottom, right */
    bool bias, relu, blocked, mixed;
    int threads;
} row;

static const row rows[] = {
    {"one channel 3x3", {2, 9, 9, 1}, 3, 3, 32, 1, {0, 0, 0, 0}, true, true, false, false, 1},
    {"MNIST's second", {2, 8, 8, 32}, 3, 3, 64, 1, {0, 0, 0, 0}, true, true, true, false, 1},
    {"RGB 7x7 stride 2", {2, 15, 13, 3}, 7, 7, 16, 2, {3, 3, 3, 3}, false, false, false, false, 1},
    {"RGB 11x11 stride 4",
     {1, 23, 27, 3},
     11,
     11,
     16,
     4,
     {2, 2, 2, 2},
     true,
     true,
     false,
     false,
     1},
    {"RGB 11x11 stride 4, nothing reaches the last pixels",
     {1, 25, 26, 3},
     11,
     11,
     8,
     4,
     {0, 0, 0, 0},
     true,
     true,
     false,
     false,
     1},
    {"1x1", {2, 5, 7, 16}, 1, 1, 64, 1, {0, 0, 0, 0}, false, false, true, false, 1},
    {"1x1 stride 2", {2, 7, 5, 64}, 1, 1, 16, 2, {0, 0, 0, 0}, false, false, true, false, 1},
    {"1x1 stride 2, even size",
     {2, 6, 8, 16},
     1,
     1,
     32,
     2,
     {0, 0, 0, 0},
     false,
     false,
     true,
     false,
     1},
    {"3x3 stride 2", {2, 7, 9, 16}, 3, 3, 32, 2, {1, 1, 1, 1}, false, false, true, false, 1},
    {"3x3 stride 2, after alone",
     {2, 8, 8, 16},
     3,
     3,
     16,
     2,
     {0, 0, 1, 1},
     false,
     false,
     true,
     false,
     1},
    {"5x5 asymmetric padding",
     {2, 6, 7, 16},
     5,
     5,
     24,
     1,
     {2, 1, 0, 3},
     true,
     false,
     true,
     false,
     1},
    {"17 channels to 17", {2, 5, 5, 17}, 3, 3, 17, 1, {1, 1, 1, 1}, true, true, true, false, 1},
    {"3 channels to 5, as NHWC",
     {3, 6, 5, 3},
     3,
     3,
     5,
     1,
     {1, 0, 1, 2},
     true,
     true,
     false,
     false,
     1},
    {"16 channels, as NHWC", {2, 6, 5, 16}, 3, 3, 8, 1, {1, 1, 1, 1}, true, true, false, false, 1},
    {"1x1 image", {3, 1, 1, 16}, 3, 3, 16, 1, {1, 1, 1, 1}, true, false, true, false, 1},
    {"oblong kernel", {2, 6, 6, 8}, 1, 5, 16, 1, {0, 2, 0, 2}, true, true, true, false, 1},
    {"two threads", {5, 9, 9, 16}, 3, 3, 32, 1, {1, 1, 1, 1}, true, true, true, false, 2},
    {"mixed 3x3", {2, 7, 7, 16}, 3, 3, 16, 1, {1, 1, 1, 1}, true, true, true, true, 1},
    {"mixed one channel", {2, 9, 9, 1}, 3, 3, 32, 1, {0, 0, 0, 0}, true, false, false, true, 1},
    {"mixed RGB", {2, 9, 9, 3}, 3, 3, 8, 2, {1, 1, 1, 1}, true, false, false, true, 1},
};

typedef struct conv_test {
    harness h;
    const row *r;
    int x, w, b;
} conv_test;

static int64_t out_size(int64_t in, int64_t pads, int64_t k, int64_t stride)
{
    return (in + pads - k) / stride + 1;
}

static double reference(void *ctx)
{
    const conv_test *t = ctx;
    const row *r = t->r;
    const int64_t oh = out_size(r->x.h, r->pad[0] + r->pad[2], r->kh, r->stride),
                  ow = out_size(r->x.w, r->pad[1] + r->pad[3], r->kw, r->stride);
    double total = 0.0;
    int64_t e = 0;
    for (int64_t i = 0; i < r->x.n; i++)
        for (int64_t p = 0; p < oh; p++)
            for (int64_t q = 0; q < ow; q++)
                for (int64_t o = 0; o < r->co; o++, e++) {
                    double y = r->bias ? t->h.x[t->b][o] : 0.0;
                    for (int64_t a = 0; a < r->kh; a++)
                        for (int64_t b = 0; b < r->kw; b++) {
                            const int64_t u = p * r->stride + a - r->pad[0],
                                          v = q * r->stride + b - r->pad[1];
                            if (u < 0 || u >= r->x.h || v < 0 || v >= r->x.w) continue;
                            for (int64_t c = 0; c < r->x.c; c++)
                                y += t->h.x[t->x][((i * r->x.h + u) * r->x.w + v) * r->x.c + c] *
                                     t->h.x[t->w][((a * r->kw + b) * r->x.c + c) * r->co + o];
                        }
                    if (!(r->relu && y < 0.0)) total += (double)t->h.r[e] * y;
                }
    return total;
}

/* A GPU adds bias and relu to the result that it has stored as 16 bits. h_shorten leaves
 * products that are multiples of 2^-12. The biases are odd multiples of 2^-13, so no sum is
 * zero. Below 2^-5 the last place of 8 digits is 2^-13, so the stored sum is on the same side of
 * a relu's kink. */
static void small_bias(conv_test *t)
{
    float *b = test_values(t->h.ps) + t->h.p[t->b]->offset;
    for (int64_t o = 0; o < t->r->co; o++)
        t->h.x[t->b][o] = b[o] = (float)(2 * (o * 83 % 256) - 255) * 0x1p-13f;
    rd_params_touch(t->h.ps);
}

static void convolve(const row *r, bool narrow)
{
    conv_test t = {.r = r};
    h_init_as(&t.h, r->threads, r->mixed || narrow);
    t.x = h_image(&t.h, r->x);
    t.w = h_input4(&t.h, r->kh, r->kw, r->x.c, r->co);
    t.b = r->bias ? h_input(&t.h, 0, r->co) : -1;
    rd_param *same = h_identity(&t.h, r->x.c);
    const int64_t oh = out_size(r->x.h, r->pad[0] + r->pad[2], r->kh, r->stride),
                  ow = out_size(r->x.w, r->pad[1] + r->pad[3], r->kw, r->stride);
    h_fill(&t.h, 1.0, r->x.n * oh * ow * r->co);
    h_identity_fill(&t.h, same);
    /* bfloat16 holds the inputs exactly: only the gradient of the result is rounded, to 8 bits. */
    if (r->mixed || narrow) h_shorten(&t.h);
    if (narrow && r->bias) small_bias(&t);
    const rd_conv c = {r->stride, r->pad[0], r->pad[1], r->pad[2], r->pad[3], r->relu};
    rd_var *x = h_var(&t.h, t.x);
    if (narrow)
        x = h_narrowed(&t.h, x);
    else if (r->blocked)
        x = h_blocked(&t.h, same, x);
    rd_var *y = rd_op_conv2d(t.h.tape, &c, x, h_var(&t.h, t.w), h_var(&t.h, t.b));
    /* narrow: the kernel's gradient is rounded before it is added, the result before and after
     * the bias. mixed: bfloat16 keeps 8 bits, so the gradient that goes into a second
     * convolution is off by up to 1/512. */
    if (narrow)
        h_check_stored(&t.h, h_weighted_image(&t.h, rd_op_cast(t.h.tape, y, RD_FLOAT32)), reference,
                       &t, 1e-4,
                       (h_stored){h_roundoff(&t.h), 1u << t.x | 1u << t.w, r->bias ? 2 : 1});
    else
        h_check(&t.h, h_weighted_image(&t.h, y), reference, &t, r->mixed ? 4e-3 : 1e-4);
    h_free(&t.h);
}

static void test_conv(void **state)
{
    convolve(*state, false);
}

static void test_narrow(void **state)
{
    convolve(*state, true);
}

/* ---- more than one use, another version of the weights, the same bytes again ---- */
static double twice_reference(void *ctx)
{
    return 2.0 * reference(ctx);
}

/* x goes into the same convolution twice: the second gradient is added to the first. */
static void test_twice(void **state)
{
    static const row r = {"",           {2, 6, 6, 16}, 3,     3,    16,    1,
                          {1, 1, 1, 1}, true,          false, true, false, 1};
    conv_test t = {.r = &r};
    (void)state;
    h_init(&t.h);
    t.x = h_image(&t.h, r.x);
    t.w = h_input4(&t.h, 3, 3, 16, 16);
    t.b = h_input(&t.h, 0, 16);
    rd_param *same = h_identity(&t.h, 16);
    h_fill(&t.h, 1.0, 2 * 36 * 16);
    h_identity_fill(&t.h, same);
    const rd_conv c = {1, 1, 1, 1, 1, false};
    rd_var *x = h_blocked(&t.h, same, h_var(&t.h, t.x));
    rd_var *y = rd_op_add(t.h.tape,
                          rd_op_conv2d(t.h.tape, &c, x, h_var(&t.h, t.w), h_var(&t.h, t.b)),
                          rd_op_conv2d(t.h.tape, &c, x, h_var(&t.h, t.w), h_var(&t.h, t.b)), false);
    h_check(&t.h, h_weighted_image(&t.h, y), twice_reference, &t, 1e-4);
    h_free(&t.h);
}

static void test_new_weights(void **state)
{
    harness h;
    rd_status st = {0};
    (void)state;
    h_init(&h);
    const int x = h_image(&h, (size4){1, 4, 4, 16}), w = h_input4(&h, 1, 1, 16, 16);
    h_fill(&h, 1.0, 4 * 4 * 16);
    float got[2];
    for (int round = 0; round < 2; round++) {
        rd_tape_reset(h.tape, false, false);
        rd_var *y = rd_op_conv2d(h.tape, &(rd_conv){.stride = 1}, h_var(&h, x), h_var(&h, w), NULL);
        rd_var *loss = h_weighted_image(&h, y);
        rd_tape_check(h.tape, &st);
        must(&st);
        got[round] = h_scalar(&h, loss);
        float *v = test_values(h.ps) + h.p[w]->offset;
        for (int64_t i = 0; i < h.p[w]->n; i++) v[i] *= 2.0f;
        rd_params_touch(h.ps);
    }
    assert_true(fabsf(got[1] - 2.0f * got[0]) <= 1e-5f * fabsf(got[1]));
    h_free(&h);
}

static void test_too_small(void **state)
{
    harness h;
    rd_status st = {0};
    (void)state;
    h_init(&h);
    const int x = h_image(&h, (size4){1, 4, 4, 16}), w = h_input4(&h, 5, 3, 16, 16);
    h_fill(&h, 1.0, 1);
    rd_var *y = rd_op_conv2d(h.tape, &(rd_conv){.stride = 1}, h_var(&h, x), h_var(&h, w), NULL);
    assert_null(y);
    assert_int_equal(rd_tape_check(h.tape, &st), RD_EUSAGE);
    assert_non_null(strstr(st.msg, "5x3"));
    h_free(&h);
}

static void make_tests(test_list *l)
{
    enum { N = sizeof rows / sizeof *rows };
    static char names[N][96];
    for (int i = 0; i < N; i++) {
        add_test(l, rows[i].name, test_conv, &rows[i]);
        if (!test_on_gpu() || rows[i].mixed) continue;
        snprintf(names[i], sizeof names[i], "%s, 16 bits", rows[i].name);
        add_test(l, names[i], test_narrow, &rows[i]);
    }
    add_test(l, "twice", test_twice, NULL);
    add_test(l, "new weights", test_new_weights, NULL);
    add_test(l, "too small", test_too_small, NULL);
}

RD_TESTS_MADE("ops: conv2d", make_tests)
