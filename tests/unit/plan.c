/* plan.c -- the order of an epoch, and how a batch is dealt to ranks: each kept sample exactly once, whatever the
 * number of ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "../../runner/data/data_impl.h"
#include <stdio.h>
#include <stdlib.h>

/* A dataset made up of numbers: sample i has length 3 + i * 7 % 40, bucket by length (limits 13, 23, 33), the longest
 * skipped. */
typedef struct fake {
    int64_t n;
    int n_buckets;
    bool skip;
} fake;

static int64_t fake_length(void *self, int64_t i)
{
    (void)self;
    return 3 + i * 7 % 40;
}

static int fake_bucket(void *self, int64_t i)
{
    const fake *f = self;
    const int64_t n = fake_length(self, i);
    if (f->skip && n > 33) return -1;
    const int b = n <= 13 ? 0 : n <= 23 ? 1 : 2;
    return b < f->n_buckets ? b : f->n_buckets - 1;
}

static const rd_dataset_def fake_def = {.name = "fake", .bucket = fake_bucket, .length = fake_length};

typedef struct fixture {
    fake f;
    rd_dataset d;
    int64_t start[4];
    uint32_t *members;
} fixture;

static void make(fixture *x, int64_t n, int n_buckets, bool skip)
{
    memset(x, 0, sizeof *x);
    x->f = (fake){n, n_buckets, skip};
    x->members = malloc((size_t)(n + 1) * sizeof *x->members);
    assert_non_null(x->members);
    int64_t at = 0;
    for (int b = 0; b < n_buckets; b++) {
        for (int64_t i = 0; i < n; i++)
            if (fake_bucket(&x->f, i) == b) x->members[at++] = (uint32_t)i;
        x->start[b + 1] = at;
    }
    x->d = (rd_dataset){.def = &fake_def,
                        .self = &x->f,
                        .count = n,
                        .kept = at,
                        .n_buckets = n_buckets,
                        .start = x->start,
                        .members = x->members};
    if (n_buckets == 1 && !skip) x->d.members = NULL;
}

static struct row {
    const char *name;
    int64_t n;
    int n_buckets;
    bool skip;
    int64_t global_batch;
    bool shuffle;
} rows[] = {
    {"one bucket", 1000, 1, false, 64, true},
    {"three buckets", 1000, 3, false, 64, true},
    {"three buckets, some skipped", 1000, 3, true, 64, true},
    {"batches of one", 50, 3, true, 1, true},
    {"a batch larger than the data", 10, 3, false, 64, true},
    {"one sample", 1, 1, false, 64, true},
    {"exact batches", 640, 1, false, 64, true},
    {"file order", 1000, 1, false, 64, false},
    {"file order, some skipped", 1000, 3, true, 64, false},
    {"file order, three buckets", 100, 3, false, 7, false},
};

static void check_row(void **state)
{
    const struct row *r = *state;
    fixture x;
    make(&x, r->n, r->n_buckets, r->skip);
    static const int sizes[] = {1, 2, 3, 4, 7, 100};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const int size = sizes[s];
        for (int sharded = 0; sharded < 2; sharded++) {
            rd_status st = {0};
            rd_plan *p = NULL;
            x.d.sharded = sharded;
            assert_int_equal(rd_plan_new(&x.d, 5, 2, r->global_batch, &(rd_plan_rules){.shuffle = r->shuffle}, &p, &st), RD_OK);
            assert_int_equal(rd_plan_n_samples(p), x.d.kept);
            int *seen = calloc((size_t)r->n, sizeof *seen);
            int64_t *mine = malloc((size_t)r->global_batch * sizeof *mine), next = 0, n_small = 0;
            for (int64_t k = 0; k < rd_plan_n_batches(p); k++) {
                int64_t n, sum = 0, fewest = INT64_MAX, most = 0;
                const int64_t *ids = rd_plan_batch(p, k, &n);
                assert_in_range(n, 1, r->global_batch);
                n_small += n < r->global_batch;
                const int b = fake_bucket(&x.f, ids[0]);
                for (int64_t i = 0; i < n; i++) {
                    if (r->shuffle) assert_int_equal(fake_bucket(&x.f, ids[i]), b);
                    while (!r->shuffle && fake_bucket(&x.f, next) < 0) next++;
                    if (!r->shuffle) assert_int_equal(ids[i], next++);
                }
                for (int rank = 0; rank < size; rank++) {
                    const int64_t m = rd_plan_deal(p, k, rank, size, mine);
                    for (int64_t i = 0; i < m; i++) {
                        seen[mine[i]]++;
                        if (i > 0) assert_true(fake_length(NULL, mine[i - 1]) >= fake_length(NULL, mine[i]));
                        if (sharded) assert_int_equal(mine[i] % size, rank);
                    }
                    sum += m;
                    fewest = m < fewest ? m : fewest;
                    most = m > most ? m : most;
                }
                assert_int_equal(sum, n);
                if (!sharded) assert_true(most - fewest <= 1);
            }
            assert_true(n_small <= (r->shuffle ? r->n_buckets : 1));
            for (int64_t i = 0; i < r->n; i++) assert_int_equal(seen[i], fake_bucket(&x.f, i) >= 0);
            free(seen);
            free(mine);
            rd_plan_free(p);
        }
    }
    free(x.members);
}

/* Sums of lengths of the ranks: within the longest sample of each other. */
static void test_deal_is_even(void **state)
{
    (void)state;
    fixture x;
    make(&x, 5000, 1, false);
    rd_status st = {0};
    rd_plan *p = NULL;
    assert_int_equal(rd_plan_new(&x.d, 1, 0, 256, &(rd_plan_rules){.shuffle = true}, &p, &st), RD_OK);
    int64_t mine[256];
    for (int64_t k = 0; k + 1 < rd_plan_n_batches(p); k++)
        for (int size = 2; size <= 8; size *= 2) {
            int64_t least = INT64_MAX, most = 0;
            for (int rank = 0; rank < size; rank++) {
                int64_t sum = 0;
                const int64_t m = rd_plan_deal(p, k, rank, size, mine);
                for (int64_t i = 0; i < m; i++) sum += fake_length(NULL, mine[i]);
                least = sum < least ? sum : least;
                most = sum > most ? sum : most;
            }
            assert_true(most - least <= 20); /* of 5,600 / size: the longest sample is 42 */
        }
    rd_plan_free(p);
    free(x.members);
}

static int64_t same_places(const rd_dataset *d, uint64_t seed, int64_t epoch, uint64_t seed2, int64_t epoch2)
{
    rd_status st = {0};
    rd_plan *p = NULL, *q = NULL;
    assert_int_equal(rd_plan_new(d, seed, epoch, 50, &(rd_plan_rules){.shuffle = true}, &p, &st), RD_OK);
    assert_int_equal(rd_plan_new(d, seed2, epoch2, 50, &(rd_plan_rules){.shuffle = true}, &q, &st), RD_OK);
    int64_t same = 0;
    for (int64_t k = 0; k < rd_plan_n_batches(p); k++) {
        int64_t n, m;
        const int64_t *a = rd_plan_batch(p, k, &n), *b = rd_plan_batch(q, k, &m);
        for (int64_t i = 0; i < n && i < m; i++) same += a[i] == b[i];
    }
    rd_plan_free(p);
    rd_plan_free(q);
    return same;
}

/* The same (seed, epoch) gives the same order; another seed or epoch, or file order, has few samples in the same place.
 */
static void test_order_is_a_function(void **state)
{
    (void)state;
    fixture x;
    make(&x, 2000, 1, false);
    assert_int_equal(same_places(&x.d, 7, 3, 7, 3), 2000);
    assert_in_range(same_places(&x.d, 7, 3, 7, 4), 0, 20); /* 1 expected */
    assert_in_range(same_places(&x.d, 7, 3, 8, 3), 0, 20);
    free(x.members);
}

/* Batches mix: neighbours in the file are spread over the epoch (a shuffle of blocks would keep them together). */
static void test_order_mixes(void **state)
{
    (void)state;
    fixture x;
    make(&x, 4000, 1, false);
    rd_status st = {0};
    rd_plan *p = NULL;
    int *batch_of = malloc(4000 * sizeof *batch_of), together = 0;
    assert_non_null(batch_of);
    assert_int_equal(rd_plan_new(&x.d, 1, 0, 40, &(rd_plan_rules){.shuffle = true}, &p, &st), RD_OK);
    for (int64_t k = 0; k < rd_plan_n_batches(p); k++) {
        int64_t n;
        const int64_t *ids = rd_plan_batch(p, k, &n);
        for (int64_t i = 0; i < n; i++) batch_of[ids[i]] = (int)k;
    }
    for (int i = 1; i < 4000; i++) together += batch_of[i] == batch_of[i - 1];
    assert_in_range(together, 5, 100); /* 39 expected, standard deviation 6 */
    free(batch_of);
    rd_plan_free(p);
    free(x.members);
}

static void test_nothing_kept(void **state)
{
    (void)state;
    fixture x;
    make(&x, 5, 1, false);
    x.d.kept = 0;
    rd_status st = {0};
    rd_plan *p = NULL;
    assert_int_equal(rd_plan_new(&x.d, 1, 0, 8, &(rd_plan_rules){.shuffle = true}, &p, &st), RD_EDATA);
    assert_null(p);
    assert_non_null(strstr(st.msg, "all 5 of 'fake' are skipped"));
    free(x.members);
}

int main(void)
{
    static const struct CMUnitTest rest[] = {cmocka_unit_test(test_deal_is_even),
                                             cmocka_unit_test(test_order_is_a_function),
                                             cmocka_unit_test(test_order_mixes), cmocka_unit_test(test_nothing_kept)};
    enum { ROWS = sizeof rows / sizeof rows[0], REST = sizeof rest / sizeof rest[0] };
    struct CMUnitTest t[ROWS + REST];
    for (int i = 0; i < ROWS; i++) t[i] = (struct CMUnitTest){rows[i].name, check_row, NULL, NULL, &rows[i]};
    for (int i = 0; i < REST; i++) t[ROWS + i] = rest[i];
    return cmocka_run_group_tests_name("plan", t, NULL, NULL) != 0;
}
