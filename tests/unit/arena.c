/* arena.c -- alignment, slack, marks, and that the second step asks the system for nothing new. */
#include "rd/arena.h"
#include "test.h"
#include <string.h>

static void test_alignment_and_slack(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_arena *a;
    assert_int_equal(rd_arena_new(4096, &a, &st), RD_OK);
    unsigned char *last = NULL;
    for (size_t n = 0; n < 10000; n = n * 3 + 1) {
        unsigned char *p;
        assert_int_equal(rd_arena_get(a, n, &p, &st), RD_OK);
        assert_int_equal((uintptr_t)p % 64, 0);
        memset(p, 1, n + 64); /* the slack belongs to it */
        if (last) assert_int_equal(last[0], 1);
        unsigned char *z;
        assert_int_equal(rd_arena_zero(a, n + 1, &z, &st), RD_OK);
        assert_true(z >= p + n + 64 || z + n + 1 <= p);
        for (size_t i = 0; i <= n; i++) assert_int_equal(z[i], 0);
        last = p;
    }
    rd_arena_free(a);
    rd_arena_free(NULL);
}

static void test_marks(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_arena *a;
    void *p, *q, *again;
    assert_int_equal(rd_arena_new(4096, &a, &st), RD_OK);
    const rd_mark start = rd_arena_mark(a);
    assert_int_equal(rd_arena_get(a, 1000, &p, &st), RD_OK);
    const size_t used = rd_arena_used(a);
    const rd_mark m = rd_arena_mark(a);
    assert_int_equal(rd_arena_get(a, 500, &q, &st), RD_OK);
    for (int i = 0; i < 20; i++)
        assert_int_equal(rd_arena_get(a, 3000, &again, &st), RD_OK); /* several chunks */
    assert_true(rd_arena_used(a) >= 61500);
    rd_arena_rewind(a, m);
    assert_int_equal(rd_arena_used(a), used);
    assert_int_equal(rd_arena_get(a, 500, &again, &st), RD_OK);
    assert_ptr_equal(again, q);
    assert_true(rd_arena_peak(a) >= 61500);
    rd_arena_rewind(a, start);
    assert_int_equal(rd_arena_used(a), 0);
    assert_int_equal(rd_arena_get(a, 1, &again, &st), RD_OK);
    assert_ptr_equal(again, p);
    rd_arena_free(a);
}

static void test_second_step_fits_one_chunk(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_arena *a;
    char *p[50], *q[50];
    assert_int_equal(rd_arena_new(4096, &a, &st), RD_OK);
    for (int i = 0; i < 50; i++) assert_int_equal(rd_arena_get(a, 3000, &p[i], &st), RD_OK);
    const size_t peak = rd_arena_peak(a);
    rd_arena_reset(a);
    assert_int_equal(rd_arena_used(a), 0);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(rd_arena_get(a, 3000, &p[i], &st), RD_OK);
        if (i) assert_ptr_equal(p[i], p[i - 1] + 3072); /* one after the other */
    }
    rd_arena_reset(a);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(rd_arena_get(a, 3000, &q[i], &st), RD_OK);
        assert_ptr_equal(q[i], p[i]);
    }
    assert_int_equal(rd_arena_peak(a), peak);
    rd_arena_free(a);
}

static void test_too_much(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_arena *a;
    void *p = &p;
    assert_int_equal(rd_arena_new(0, &a, &st), RD_OK);
    assert_int_equal(rd_arena_get(a, SIZE_MAX - 3, &p, &st), RD_EENV);
    assert_null(p);
    assert_non_null(strstr(st.msg, "does not fit"));
    st = (rd_status){0};
    assert_int_equal(rd_arena_get(a, (size_t)1 << 60, &p, &st), RD_EENV);
    assert_non_null(strstr(st.msg, "1152921504606846976 bytes asked for with 0 in use"));
    st = (rd_status){0};
    assert_int_equal(rd_arena_get(a, 10, &p, &st), RD_OK); /* and it goes on */
    rd_arena_free(a);
}

#ifdef __SANITIZE_ADDRESS__
enum { REWOUND, REWOUND_CHUNK, RESET, GAP, N_WAYS };

/* Reads an array that the arena has taken back, or (GAP) the bytes behind the slack of an array. */
static void read_free_memory(void *way)
{
    const int how = *(int *)way;
    rd_status st = {0};
    rd_arena *a;
    unsigned char *first, *p;
    must_do(rd_arena_new(4096, &a, &st), &st);
    if (how != REWOUND_CHUNK) must_do(rd_arena_get(a, 10, &first, &st), &st);
    const rd_mark m = rd_arena_mark(a);
    must_do(rd_arena_get(a, 100, &p, &st), &st);
    memset(p, 1, 100 + 64);
    if (how == RESET) rd_arena_reset(a);
    if (how == REWOUND || how == REWOUND_CHUNK) rd_arena_rewind(a, m);
    *(volatile unsigned char *)(p + (how == GAP ? 100 + 64 + 8 : 50));
}
#endif

static void test_poison(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    char said[8192];
    for (int way = 0; way < N_WAYS; way++) {
        if (run_in_child(read_free_memory, &way, said, sizeof said) == 0)
            fail_msg("way %d: the child ended well", way);
        assert_non_null(strstr(said, "use-after-poison"));
    }
#else
    skip();
#endif
}

RD_TESTS("arena", TEST(test_alignment_and_slack), TEST(test_marks),
         TEST(test_second_step_fits_one_chunk), TEST(test_too_much), TEST(test_poison))
