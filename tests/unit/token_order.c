/* token_order.c -- tests batches of about the same number of target tokens: each kept sample once,
 * their number, size and similar lengths, micro-batches of ranks, parts of an epoch. */
#include "../../runner/data/data_impl.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>

/* Sample i has 1 + i * 7 % 40 target tokens and a source of other lengths; samples with more than
 * 33 are skipped if `skip` says so. Buckets by target tokens. */
typedef struct fake {
    int64_t n;
    bool skip;
} fake;

static int64_t fake_tokens(void *self, int64_t i)
{
    (void)self;
    return 1 + i * 7 % 40;
}

static int64_t fake_length(void *self, int64_t i)
{
    return fake_tokens(self, i) + 2 + i % 5;
}

static int fake_bucket(void *self, int64_t i)
{
    const fake *f = self;
    const int64_t n = fake_tokens(self, i);
    if (f->skip && n > 33) return -1;
    return n > 20;
}

static const rd_dataset_def fake_def = {
    .name = "fake", .bucket = fake_bucket, .length = fake_length, .tokens = fake_tokens};

typedef struct fixture {
    fake f;
    rd_dataset d;
    int64_t start[3];
    uint32_t *members;
    int64_t tokens; /* of all kept samples */
} fixture;

static void make(fixture *x, int64_t n, bool skip)
{
    int64_t at = 0;
    *x = (fixture){.f = {n, skip}};
    x->members = malloc((size_t)(n + 1) * sizeof *x->members);
    assert_non_null(x->members);
    for (int b = 0; b < 2; b++) {
        for (int64_t i = 0; i < n; i++)
            if (fake_bucket(&x->f, i) == b) {
                x->members[at++] = (uint32_t)i;
                x->tokens += fake_tokens(NULL, i);
            }
        x->start[b + 1] = at;
    }
    x->d = (rd_dataset){.def = &fake_def,
                        .self = &x->f,
                        .count = n,
                        .kept = at,
                        .n_buckets = 2,
                        .start = x->start,
                        .members = x->members};
}

static rd_order *order_of(const rd_dataset *d, uint64_t seed, int64_t epoch, int64_t global_batch,
                          rd_order_rules rules)
{
    rd_status st = {0};
    rd_order *p = NULL;
    rules.shuffle = true;
    must_do(rd_order_new(d, seed, epoch, global_batch, &rules, &p, &st), &st);
    return p;
}

static struct row {
    const char *name;
    int64_t n;
    bool skip;
    int64_t tokens, want; /* number of batches: tokens of the data / tokens, rounded */
} rows[] = {
    /* 25 times the samples of 1 .. 40 tokens: 20,500; without those of 34 .. 40: 14,025 */
    {"one window", 1000, false, 500, 41},
    {"half is rounded up", 1000, false, 1000, 21},
    {"some skipped", 1000, true, 500, 28},
    {"two windows", 1000, false, 160, 128},
    {"many windows", 40000, false, 300, 2733},
    {"a batch of the whole epoch", 1000, false, 1000000, 1},
    {"fewer tokens than a sentence", 80, false, 1, 80},
    {"one sample", 1, false, 4096, 1},
    {"more batches than samples", 3, false, 2, 3},
};

static int64_t gap(int64_t a, int64_t b)
{
    return a > b ? a - b : b - a;
}

static void check_row(void **state)
{
    const struct row *r = *state;
    fixture x;
    rd_order_tokens count;
    int64_t in_all, n, tokens = 0, padded = 0, spread = 0;
    make(&x, r->n, r->skip);
    assert_int_equal(rd_order_n_updates(&x.d, r->tokens, &in_all), r->want);
    assert_int_equal(in_all, x.tokens);
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        rd_order *p = order_of(&x.d, 5, epoch, 1, (rd_order_rules){.tokens = r->tokens});
        int *seen = calloc((size_t)r->n, sizeof *seen);
        assert_int_equal(rd_order_n_batches(p), r->want);
        assert_int_equal(rd_order_n_whole(p), r->want);
        assert_int_equal(rd_order_n_samples(p), x.d.kept);
        tokens = padded = spread = 0;
        for (int64_t k = 0; k < r->want; k++) {
            int64_t sum = 0, least = INT64_MAX, most = 0;
            const int64_t *ids = rd_order_batch(p, k, &n);
            assert_true(n > 0);
            for (int64_t i = 0; i < n; i++) {
                const int64_t t = fake_tokens(NULL, ids[i]);
                seen[ids[i]]++;
                sum += t;
                least = t < least ? t : least;
                most = t > most ? t : most;
            }
            /* A cut is within half a sentence of its goal; a window has whole batches. */
            if (r->want > 1 && r->tokens > 100)
                assert_true(gap(sum, x.tokens / r->want) <= 40 + r->tokens / 10);
            spread += most - least;
            tokens += sum;
            padded += n * most;
        }
        for (int64_t i = 0; i < r->n; i++) assert_int_equal(seen[i], fake_bucket(&x.f, i) >= 0);
        rd_order_count_tokens(p, INT64_MAX, &count);
        free(seen);
        rd_order_free(p);
    }
    assert_int_equal(tokens, x.tokens);
    assert_int_equal(count.batches, r->want);
    assert_int_equal(count.samples, x.d.kept);
    assert_int_equal(count.tokens, x.tokens);
    assert_int_equal(count.padded, padded);
    assert_true(count.least * r->want <= x.tokens && count.most * r->want >= x.tokens);
    /* Sentences of a batch have similar lengths: at least 28 batches share 40 lengths. */
    if (r->want >= 28) assert_true(spread <= 3 * r->want);
    free(x.members);
}

/* Seed, epoch and position alone decide; the batches of a window are in no order of length. */
static void test_a_function_of_the_seed(void **state)
{
    fixture x;
    int64_t n, m, same = 0, grows = 0, last = 0;
    (void)state;
    make(&x, 4000, false);
    const rd_order_rules rules = {.tokens = 400};
    rd_order *a = order_of(&x.d, 5, 1, 1, rules), *b = order_of(&x.d, 5, 1, 64, rules),
             *c = order_of(&x.d, 6, 1, 1, rules), *e = order_of(&x.d, 5, 2, 1, rules);
    const int64_t n_batches = rd_order_n_batches(a);
    for (int64_t k = n_batches - 1; k >= 0; k--) {
        int64_t one[400];
        const int64_t *ids = rd_order_batch(a, k, &n);
        assert_in_range(n, 1, 400);
        memcpy(one, ids, (size_t)n * sizeof *one);
        ids = rd_order_batch(b, n_batches - 1 - k, &m); /* in another order of requests */
        ids = rd_order_batch(b, k, &m);
        assert_int_equal(m, n);
        assert_memory_equal(one, ids, (size_t)n * sizeof *one);
        ids = rd_order_batch(c, k, &m);
        same += m == n && memcmp(one, ids, (size_t)n * sizeof *one) == 0;
        ids = rd_order_batch(e, k, &m);
        same += m == n && memcmp(one, ids, (size_t)n * sizeof *one) == 0;
        grows += fake_tokens(NULL, one[0]) >= last;
        last = fake_tokens(NULL, one[0]);
    }
    assert_int_equal(same, 0);
    assert_in_range(grows, n_batches / 4, n_batches * 3 / 4);
    rd_order_free(a);
    rd_order_free(b);
    rd_order_free(c);
    rd_order_free(e);
    free(x.members);
}

/* Ranks and their micro-batches share a batch: each sample once, about the same number of tokens;
 * of sharded data a rank computes its own samples alone. */
static void test_micro_batches(void **state)
{
    fixture x;
    int64_t n, mine[2000];
    (void)state;
    make(&x, 2000, false);
    for (int sharded = 0; sharded < 2; sharded++)
        for (int size = 1; size <= 4; size++)
            for (int own = 1; own <= 4; own++) {
                x.d.sharded = sharded && size > 1;
                rd_order *p = order_of(&x.d, 5, 0, 1,
                                       (rd_order_rules){.tokens = 900, .n_own = own});
                int *seen = calloc(2000, sizeof *seen);
                for (int64_t k = 0; k < rd_order_n_batches(p); k++) {
                    int64_t least = INT64_MAX, most = 0;
                    (void)rd_order_batch(p, k, &n);
                    for (int at = 0; at < size * own; at++) {
                        int64_t sum = 0;
                        const int64_t m = rd_order_deal(p, k, at, size * own, mine);
                        for (int64_t i = 0; i < m; i++) {
                            seen[mine[i]]++;
                            sum += fake_tokens(NULL, mine[i]);
                            if (sharded && size > 1) assert_int_equal(mine[i] % size, at / own);
                        }
                        least = sum < least ? sum : least;
                        most = sum > most ? sum : most;
                    }
                    if (!sharded) assert_true(most - least <= 48);
                }
                for (int64_t i = 0; i < 2000; i++) assert_int_equal(seen[i], 1);
                free(seen);
                rd_order_free(p);
            }
    free(x.members);
}

static struct parts_row {
    const char *name;
    bool skip;
    int64_t batches; /* of each part; the last part has what is left */
    int64_t size[6]; /* > 0: tokens of a batch; < 0: samples of a batch */
} parts_rows[] = {
    {"other numbers of tokens", false, 7, {300, 500, 100, 2000}},
    {"some skipped", true, 5, {300, 500, 100, 1}},
    {"tokens, then samples", false, 6, {300, -32, 400, -7}},
    {"samples, then tokens", true, 6, {-16, 300, -64, 100}},
    {"a part without a batch", false, 0, {300, 200, -32}},
    {"all used in the first part", false, 1000, {300, 100}},
};

static void check_parts(void **state)
{
    const struct parts_row *r = *state;
    fixture x;
    rd_order_part part[6];
    int n_parts = 0;
    int64_t n, n_used = 0;
    make(&x, 1000, r->skip);
    int *seen = calloc(1000, sizeof *seen);
    while (n_parts < 6 && r->size[n_parts] != 0) {
        const bool last = n_parts == 5 || r->size[n_parts + 1] == 0;
        const int64_t size = r->size[n_parts], tokens = size > 0 ? size : 0,
                      samples = size > 0 ? 20 : -size;
        const uint64_t seed = 11 + (uint64_t)n_parts % 2;
        rd_order *p =
            order_of(&x.d, seed, 2, samples,
                     (rd_order_rules){.tokens = tokens, .parts = part, .n_parts = n_parts});
        int64_t k = 0;
        for (; k < rd_order_n_batches(p) && (last || k < r->batches); k++) {
            const int64_t *ids = rd_order_batch(p, k, &n);
            for (int64_t i = 0; i < n; i++) seen[ids[i]]++;
            n_used += n;
        }
        assert_int_equal(rd_order_n_samples(p), x.d.kept);
        part[n_parts++] = (rd_order_part){
            .global_batch = samples, .tokens = tokens, .batches = k, .seed = seed};
        rd_order_free(p);
    }
    assert_int_equal(n_used, x.d.kept);
    for (int64_t i = 0; i < 1000; i++) assert_int_equal(seen[i], fake_bucket(&x.f, i) >= 0);
    free(seen);
    free(x.members);
}

/* Rules that no caller may combine. */
static void test_refused(void **state)
{
    fixture x;
    rd_status st = {0};
    rd_order *p = NULL;
    int64_t in_all;
    (void)state;
    make(&x, 10, false);
    assert_int_equal(rd_order_new(&x.d, 1, 0, 1, &(rd_order_rules){.tokens = 9}, &p, &st), RD_EBUG);
    st = (rd_status){0};
    const rd_dataset_def none = {.name = "none", .bucket = fake_bucket};
    x.d.def = &none;
    assert_int_equal(rd_order_new(&x.d, 1, 0, 1, &(rd_order_rules){.shuffle = true, .tokens = 9},
                                  &p, &st),
                     RD_EBUG);
    (void)rd_order_n_updates(&x.d, 9, &in_all);
    assert_int_equal(in_all, 0);
    free(x.members);
}

RD_TESTS("token_order", TEST_ROWS(check_row, rows), TEST_ROWS(check_parts, parts_rows),
         TEST(test_a_function_of_the_seed), TEST(test_micro_batches), TEST(test_refused))
