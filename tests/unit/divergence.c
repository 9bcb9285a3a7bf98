/* divergence.c -- tests when a loss counts as growing without end, and that usual curves do not. */
#include "../../runner/run/divergence.h"
#include "test.h"
#include <math.h>

enum { N = 20000 };

/* Runs a curve of losses per target. Returns the step that ends the run; -1: none does. */
static int end_of(double floor, double limit, int64_t *count, int n, double (*loss)(int))
{
    divergence d = {.floor = floor};
    for (int i = 0; i < n; i++) {
        (void)divergence_add(&d, limit, loss(i), count);
        if (*count >= DIVERGENCE_STEPS) return i + 1;
    }
    return -1;
}

/* A fixed number in 0 .. 1 for each step. */
static double noise(int i)
{
    const double x = sin(12.9898 * (double)(i + 1)) * 43758.5453;
    return x - floor(x);
}

static double falls(int i)
{
    return 7.0 * exp(-(double)i / 500.0) + 0.01 * noise(i);
}
static double to_nothing_and_back(int i)
{
    return i < 5000 ? 7.0 * exp(-(double)i / 100.0) : 6.0;
}
static double high_start(int i) /* pixels of 0 .. 255: far above ln(classes) */
{
    return 500.0 * exp(-(double)i / 2000.0);
}
static double warm_up(int i) /* 60 steps of large losses at the start, then it learns */
{
    return i == 0 ? 7.0 : i <= 60 ? 5000.0 : 7.0 * exp(-(double)i / 500.0);
}
static double spikes(int i) /* one step in four is off by far */
{
    return noise(i) < 0.25 ? 1e6 : 2.0;
}
static double one_sample(int i) /* a batch of one: 0 or a very wrong guess */
{
    return noise(i) < 0.9 ? 0.0 : 60.0;
}
static double jumps(int i)
{
    return i < 100 ? 7.0 : 71.0;
}
static double grows(int i)
{
    return 7.0 * exp((double)i / 100.0);
}
static double large_at_once(int i) /* the first loss alone is that of the initial weights */
{
    return i == 0 ? 7.0 : 5000.0;
}
static double mostly_large(int i)
{
    return i < 100 ? 7.0 : noise(i) < 0.1 ? 6.0 : 1000.0;
}
static double high_and_grows(int i)
{
    return i < 100 ? 500.0 : i < 3000 ? 300.0 : 1e4;
}

static struct curve {
    const char *name;
    double (*loss)(int);
    int first, last; /* range of the step that ends the run; 0: none */
} curves[] = {
    {"falls", falls, 0, 0},
    {"falls to nothing and rises again", to_nothing_and_back, 0, 0},
    {"begins high", high_start, 0, 0},
    {"60 large steps", warm_up, 0, 0},
    {"spikes", spikes, 0, 0},
    {"batches of one sample", one_sample, 0, 0},
    /* The reference is the first loss, 7, as ln(1000) is 6.9. */
    {"jumps just above the limit", jumps, 200, 200},
    /* 7 exp(i / 100) > 70 from i = 231 on, which is step 232 */
    {"grows", grows, 331, 331},
    {"large from the second step on", large_at_once, 101, 101},
    {"mostly large", mostly_large, 200, 260},
    {"grows from a high start", high_and_grows, 3100, 3100},
};

static void check_curve(void **state)
{
    const struct curve *c = *state;
    int64_t count = 0;
    const int end = end_of(log(1000.0), 10.0, &count, N, c->loss);
    if (c->first == 0) {
        assert_int_equal(end, -1);
    } else {
        assert_in_range(end, c->first, c->last);
        count = 0;
        assert_int_equal(end_of(log(1000.0), 0.0, &count, N, c->loss), -1);
        assert_int_equal(count, 0);
    }
}

/* A run that resumes while it diverges does not take the large loss for its reference. */
static void test_resumed(void **state)
{
    int64_t count = 40;
    (void)state;
    assert_int_equal(end_of(log(10.0), 10.0, &count, N, high_start), 60);
    count = 0;
    assert_int_equal(end_of(log(10.0), 10.0, &count, N, high_start), -1);
}

RD_TESTS("divergence", TEST_ROWS(check_curve, curves), TEST(test_resumed))
