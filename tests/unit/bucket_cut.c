/* How the gradient arena is cut into buckets. */
#include "../../runner/run/bucket_cut.h"
#include "test.h"
#include <string.h>

enum { MOST = 8 };
typedef struct cut {
    rd_flow_part bucket[MOST];
    int size[MOST], of[MOST], n;
} cut;

static cut cut_of(const bucket_param *p, int n, int64_t span, double first, double bytes)
{
    cut r = {.n = 0};
    r.n = bucket_cut(p, n, &(bucket_sizes){span, first, bytes}, r.bucket, r.size, r.of);
    return r;
}

/* want: from, n, parameters of each bucket. */
static void check(const cut *r, int n, const int64_t want[][3])
{
    assert_int_equal(r->n, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(r->bucket[i].from, want[i][0]);
        assert_int_equal(r->bucket[i].n, want[i][1]);
        assert_int_equal(r->size[i], want[i][2]);
    }
}

static void check_of(const cut *r, int n, const int want[])
{
    for (int i = 0; i < n; i++) assert_int_equal(r->of[i], want[i]);
}

static void test_sizes(void **state)
{
    (void)state;
    const bucket_param p[] = {
        {.offset = 0}, {.offset = 10}, {.offset = 20}, {.offset = 30}, {.offset = 50}};
    /* The first one is full with 40 bytes, the others with 100, and a parameter stays whole. */
    const cut r = cut_of(p, 5, 64, 40.0, 100.0);
    check(&r, 3, (const int64_t[][3]){{0, 10, 1}, {10, 40, 3}, {50, 14, 1}});
    check_of(&r, 5, (const int[]){0, 1, 1, 1, 2});
    /* One byte more, and it takes another parameter. */
    const cut more = cut_of(p, 5, 64, 41.0, 121.0);
    check(&more, 2, (const int64_t[][3]){{0, 20, 2}, {20, 44, 3}});
    const cut one = cut_of(p, 5, 64, 1e9, 1e9);
    check(&one, 1, (const int64_t[][3]){{0, 64, 5}});
    const cut each = cut_of(p, 5, 64, 0.0, 0.0);
    check(&each, 5,
          (const int64_t[][3]){{0, 10, 1}, {10, 10, 1}, {20, 10, 1}, {30, 20, 1}, {50, 14, 1}});
}

static void test_tables_and_state(void **state)
{
    (void)state;
    const bucket_param p[] = {
        {.offset = 0},  {.offset = 10, .table = true}, {.offset = 30},
        {.offset = 40}, {.offset = 50, .state = true}, {.offset = 60, .state = true},
        {.offset = 70}};
    const cut r = cut_of(p, 7, 80, 1e9, 1e9);
    check(&r, 4, (const int64_t[][3]){{0, 10, 1}, {30, 20, 2}, {50, 20, 2}, {70, 10, 1}});
    check_of(&r, 7, (const int[]){0, -1, 1, 1, 2, 2, 3});
    /* A table at the end, and nothing else. */
    const bucket_param tables[] = {{.offset = 0, .table = true}, {.offset = 5, .table = true}};
    const cut none = cut_of(tables, 2, 10, 8.0, 8.0);
    check(&none, 0, NULL);
    check_of(&none, 2, (const int[]){-1, -1});
    /* No limit is carried from a bucket that was closed by a table to the one behind it. */
    const bucket_param behind[] = {
        {.offset = 0}, {.offset = 100, .table = true}, {.offset = 110}, {.offset = 120}};
    const cut b = cut_of(behind, 4, 130, 8.0, 60.0);
    check(&b, 2, (const int64_t[][3]){{0, 100, 1}, {110, 20, 2}});
    const cut empty = cut_of(p, 0, 0, 8.0, 8.0);
    check(&empty, 0, NULL);
}

/* Whatever the sizes: each element that is no table's lies in one bucket, and all lie in order. */
static void test_whole(void **state)
{
    (void)state;
    uint32_t x = 7;
    for (int round = 0; round < 2000; round++) {
        bucket_param p[MOST];
        int64_t at = 0, tables = 0, in = 0, last = 0;
        const int n = 1 + round % MOST;
        for (int i = 0; i < n; i++) {
            x = x * 1664525u + 1013904223u;
            p[i] = (bucket_param){.offset = at, .table = x >> 29 == 0, .state = x >> 28 == 3};
            at += 1 + (x >> 8) % 50;
            if (p[i].table) tables += at - p[i].offset;
        }
        const cut r = cut_of(p, n, at, (double)((x >> 4) % 100), (double)((x >> 12) % 300));
        for (int b = 0; b < r.n; b++) {
            assert_true(r.bucket[b].n > 0 && r.bucket[b].from >= last && r.size[b] > 0);
            last = r.bucket[b].from + r.bucket[b].n;
            in += r.bucket[b].n;
        }
        assert_int_equal(in + tables, at);
        for (int i = 0; i < n; i++) {
            if (p[i].table) continue;
            const rd_flow_part *b = &r.bucket[r.of[i]];
            assert_true(p[i].offset >= b->from && p[i].offset < b->from + b->n);
        }
    }
}

RD_TESTS("bucket_cut", TEST(test_sizes), TEST(test_tables_and_state), TEST(test_whole))
