/* Who computes a recurrent layer: cell, options, sizes, type, card, library. No GPU is needed. */
#include "rd/rnn_choose.h"
#include "test.h"

/* gnmt_8x1024 on an H100, with RD_CUDA_FLOAT16=1. */
static rd_rnn_case wide(void)
{
    return (rd_rnn_case){.asked = RD_RNN_AUTO,
                         .cell = "lstm",
                         .in = 1024,
                         .H = 1024,
                         .n_steps = 50,
                         .n_seq = 128,
                         .rows = 6400,
                         .trains = true,
                         .mixed = true,
                         .major = 9,
                         .n_sm = 132,
                         .library = 91900,
                         .one_buffer = true};
}

/* The encoder of the toy config. */
static rd_rnn_case narrow(void)
{
    return (rd_rnn_case){.asked = RD_RNN_AUTO,
                         .cell = "lstm",
                         .in = 128,
                         .H = 128,
                         .n_steps = 50,
                         .n_seq = 64,
                         .rows = 3200,
                         .trains = true,
                         .major = 9,
                         .n_sm = 132,
                         .library = 91900,
                         .one_buffer = true};
}

static void expect(const rd_rnn_case *c, rd_rnn_algo algo, int64_t n_seq, bool padded)
{
    const rd_rnn_choice k = rd_rnn_choose(c);
    assert_int_equal(k.algo, algo);
    assert_true((algo == RD_RNN_OWN) == (k.why[0] != '\0'));
    if (algo == RD_RNN_OWN) return;
    assert_int_equal(k.n_seq, n_seq);
    assert_int_equal(k.padded, padded);
}

#define OTHER(base, field, value, ...) \
    do {                               \
        rd_rnn_case c_ = base();       \
        c_.field = (value);            \
        expect(&c_, __VA_ARGS__);      \
    } while (0)
#define OWN RD_RNN_OWN, 0, false

static void test_names(void **state)
{
    (void)state;
    assert_int_equal(rd_rnn_asked_of("auto"), RD_RNN_AUTO);
    assert_int_equal(rd_rnn_asked_of("off"), RD_RNN_OFF);
    assert_int_equal(rd_rnn_asked_of("on"), RD_RNN_ON);
}

static void test_taken(void **state)
{
    (void)state;
    const rd_rnn_case w = wide(), n = narrow();
    expect(&w, RD_RNN_PERSIST_STATIC, 128, false);
    expect(&n, RD_RNN_SMALL_H, 64, false);
    OTHER(wide, in, 2048, RD_RNN_PERSIST_STATIC, 128, false);
    OTHER(narrow, mixed, true, RD_RNN_SMALL_H, 64, false);
    OTHER(narrow, n_sm, 4, RD_RNN_SMALL_H, 64, false);
    OTHER(narrow, in, 7, RD_RNN_SMALL_H, 64, false);
    OTHER(narrow, trains, false, OWN);
    rd_rnn_case c = narrow();
    c.trains = false, c.asked = RD_RNN_ON;
    expect(&c, RD_RNN_SMALL_H, 64, false);
}

/* Another model, or none the library promises to repeat. */
static void test_never(void **state)
{
    static const char *const cells[] = {"gru", "slstm", "glstm"};
    (void)state;
    for (int on = 0; on < 2; on++) {
        for (int i = 0; i < 3; i++) {
            rd_rnn_case c = narrow();
            c.asked = on ? RD_RNN_ON : RD_RNN_AUTO;
            c.cell = cells[i];
            expect(&c, OWN);
        }
        rd_rnn_case base = narrow();
        base.asked = on ? RD_RNN_ON : RD_RNN_AUTO;
        rd_rnn_case c = base;
        c.projects = true;
        expect(&c, OWN);
        c = base, c.rows = c.n_seq = c.n_steps = 0;
        expect(&c, OWN);
        c = base, c.library = 0;
        expect(&c, OWN);
        c = base, c.library = 8907;
        expect(&c, OWN);
        c = base, c.major = 5;
        expect(&c, OWN);
        c = base, c.one_buffer = false;
        expect(&c, OWN);
        c = base, c.mixed = c.bfloat16 = true, c.library = 91200;
        expect(&c, OWN);
        c.bfloat16 = false, c.major = 7, c.minor = 5; /* float16 */
        expect(&c, RD_RNN_SMALL_H, 64, false);
    }
    OTHER(narrow, asked, RD_RNN_OFF, OWN);
}

/* cuDNN has no persistent algorithm for bfloat16. */
static void test_bfloat16(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        rd_rnn_case c = i ? wide() : narrow();
        c.mixed = c.bfloat16 = true;
        expect(&c, OWN);
        c.asked = RD_RNN_ON;
        expect(&c, RD_RNN_STANDARD, c.n_seq, false);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    OTHER(wide, mixed, false, OWN);
    OTHER(narrow, n_steps, (int64_t)1 << 25, OWN);
    OTHER(narrow, H, (int64_t)1 << 21, OWN);
    OTHER(wide, H, 1152, OWN);
    OTHER(wide, H, 320, OWN);
    OTHER(wide, in, 1000, OWN);
    OTHER(wide, n_sm, 60, OWN);
    OTHER(wide, major, 7, OWN);
    rd_rnn_case c = wide();
    c.major = 8, c.minor = 6;
    expect(&c, OWN);
    c.minor = 0, c.n_sm = 108;
    expect(&c, RD_RNN_PERSIST_STATIC, 128, false);
    c = wide(), c.n_seq = 136, c.rows = 136 * 50;
    expect(&c, OWN);
    c.asked = RD_RNN_ON;
    expect(&c, RD_RNN_STANDARD, 136, false);
    c = wide(), c.asked = RD_RNN_ON, c.mixed = false;
    expect(&c, RD_RNN_STANDARD, 128, false);
}

/* Filled up to sequences of one length, and to a multiple of eight, where that is not too much. */
static void test_padding(void **state)
{
    (void)state;
    OTHER(narrow, rows, 3199, RD_RNN_SMALL_H, 64, true);
    OTHER(narrow, rows, 800, RD_RNN_SMALL_H, 64, true);
    OTHER(narrow, rows, 799, OWN);
    OTHER(wide, rows, 4267, RD_RNN_PERSIST_STATIC, 128, true);
    OTHER(wide, rows, 4266, OWN);
    rd_rnn_case c = narrow();
    c.n_seq = 61, c.rows = 61 * 50;
    expect(&c, RD_RNN_SMALL_H, 64, true);
    c.n_seq = 5, c.rows = 5 * 50;
    expect(&c, RD_RNN_SMALL_H, 8, true);
    c.n_seq = 1, c.rows = 50;
    expect(&c, OWN);
    c.asked = RD_RNN_ON;
    expect(&c, RD_RNN_STANDARD, 1, false);
    c.n_seq = 121, c.rows = 121 * 50, c.H = 1024, c.in = 1024, c.mixed = true;
    expect(&c, RD_RNN_PERSIST_STATIC, 128, true);
}

static void test_buffers(void **state)
{
    (void)state;
    assert_false(rd_rnn_one_buffer(NULL));
    assert_false(rd_rnn_one_buffer(""));
    assert_false(rd_rnn_one_buffer(":16:8:4096:2"));
    assert_true(rd_rnn_one_buffer(":4096:2"));
    assert_true(rd_rnn_one_buffer(":16:8"));
}

RD_TESTS("rnn_choose", TEST(test_names), TEST(test_taken), TEST(test_never), TEST(test_bfloat16),
         TEST(test_sizes), TEST(test_padding), TEST(test_buffers))
