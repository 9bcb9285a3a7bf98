/* sample_order.c -- the order of an epoch, and how a batch is dealt to ranks: each kept sample
 * exactly once, whatever the number of ranks. */
#include "../../runner/data/data_impl.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>

/* A dataset made up of numbers: sample i has length 3 + i * 7 % 40, bucket by length (limits 13,
 * 23, 33), the longest skipped. */
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

static const rd_dataset_def fake_def = {
    .name = "fake", .bucket = fake_bucket, .length = fake_length};

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
            rd_order *p = NULL;
            x.d.sharded = sharded;
            assert_int_equal(rd_order_new(&x.d, 5, 2, r->global_batch,
                                          &(rd_order_rules){.shuffle = r->shuffle}, &p, &st),
                             RD_OK);
            assert_int_equal(rd_order_n_samples(p), x.d.kept);
            int *seen = calloc((size_t)r->n, sizeof *seen);
            int64_t *mine = malloc((size_t)r->global_batch * sizeof *mine), next = 0, n_small = 0;
            for (int64_t k = 0; k < rd_order_n_batches(p); k++) {
                int64_t n, sum = 0, fewest = INT64_MAX, most = 0;
                const int64_t *ids = rd_order_batch(p, k, &n);
                assert_in_range(n, 1, r->global_batch);
                n_small += n < r->global_batch;
                const int b = fake_bucket(&x.f, ids[0]);
                for (int64_t i = 0; i < n; i++) {
                    if (r->shuffle) assert_int_equal(fake_bucket(&x.f, ids[i]), b);
                    while (!r->shuffle && fake_bucket(&x.f, next) < 0) next++;
                    if (!r->shuffle) assert_int_equal(ids[i], next++);
                }
                for (int rank = 0; rank < size; rank++) {
                    const int64_t m = rd_order_deal(p, k, rank, size, mine);
                    for (int64_t i = 0; i < m; i++) {
                        seen[mine[i]]++;
                        if (i > 0)
                            assert_true(fake_length(NULL, mine[i - 1]) >=
                                        fake_length(NULL, mine[i]));
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
            rd_order_free(p);
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
    rd_order *p = NULL;
    assert_int_equal(rd_order_new(&x.d, 1, 0, 256, &(rd_order_rules){.shuffle = true}, &p, &st),
                     RD_OK);
    int64_t mine[256];
    for (int64_t k = 0; k + 1 < rd_order_n_batches(p); k++)
        for (int size = 2; size <= 8; size *= 2) {
            int64_t least = INT64_MAX, most = 0;
            for (int rank = 0; rank < size; rank++) {
                int64_t sum = 0;
                const int64_t m = rd_order_deal(p, k, rank, size, mine);
                for (int64_t i = 0; i < m; i++) sum += fake_length(NULL, mine[i]);
                least = sum < least ? sum : least;
                most = sum > most ? sum : most;
            }
            assert_true(most - least <= 20); /* of 5,600 / size: the longest sample is 42 */
        }
    rd_order_free(p);
    free(x.members);
}

static int64_t same_places(const rd_dataset *d, uint64_t seed, int64_t epoch, uint64_t seed2,
                           int64_t epoch2)
{
    rd_status st = {0};
    rd_order *p = NULL, *q = NULL;
    assert_int_equal(rd_order_new(d, seed, epoch, 50, &(rd_order_rules){.shuffle = true}, &p, &st),
                     RD_OK);
    assert_int_equal(
        rd_order_new(d, seed2, epoch2, 50, &(rd_order_rules){.shuffle = true}, &q, &st), RD_OK);
    int64_t same = 0;
    for (int64_t k = 0; k < rd_order_n_batches(p); k++) {
        int64_t n, m;
        const int64_t *a = rd_order_batch(p, k, &n), *b = rd_order_batch(q, k, &m);
        for (int64_t i = 0; i < n && i < m; i++) same += a[i] == b[i];
    }
    rd_order_free(p);
    rd_order_free(q);
    return same;
}

/* The same (seed, epoch) gives the same order; another seed or epoch, or file order, has few
 * samples in the same place. */
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

/* Batches mix: neighbours in the file are spread over the epoch (a shuffle of blocks would keep
 * them together). */
static void test_order_mixes(void **state)
{
    (void)state;
    fixture x;
    make(&x, 4000, 1, false);
    rd_status st = {0};
    rd_order *p = NULL;
    int *batch_of = malloc(4000 * sizeof *batch_of), together = 0;
    assert_non_null(batch_of);
    assert_int_equal(rd_order_new(&x.d, 1, 0, 40, &(rd_order_rules){.shuffle = true}, &p, &st),
                     RD_OK);
    for (int64_t k = 0; k < rd_order_n_batches(p); k++) {
        int64_t n;
        const int64_t *ids = rd_order_batch(p, k, &n);
        for (int64_t i = 0; i < n; i++) batch_of[ids[i]] = (int)k;
    }
    for (int i = 1; i < 4000; i++) together += batch_of[i] == batch_of[i - 1];
    assert_in_range(together, 5, 100); /* 39 expected, standard deviation 6 */
    free(batch_of);
    rd_order_free(p);
    free(x.members);
}

/* The batches of three buckets come in another order in each epoch. */
static void test_batches_mix(void **state)
{
    (void)state;
    fixture x;
    make(&x, 4000, 3, false);
    rd_status st = {0};
    int bucket[2][200], n_batches = 0, same = 0;
    for (int epoch = 0; epoch < 2; epoch++) {
        rd_order *p = NULL;
        must_do(rd_order_new(&x.d, 1, epoch, 40, &(rd_order_rules){.shuffle = true}, &p, &st), &st);
        n_batches = (int)rd_order_n_batches(p);
        assert_in_range(n_batches, 100, 103);
        for (int k = 0; k < n_batches; k++) {
            int64_t n;
            bucket[epoch][k] = fake_bucket(&x.f, rd_order_batch(p, k, &n)[0]);
        }
        rd_order_free(p);
    }
    for (int k = 0; k < n_batches; k++) same += bucket[0][k] == bucket[1][k];
    assert_in_range(same, 1, n_batches * 3 / 4); /* a third or half, by chance */
    free(x.members);
}

static void test_nothing_kept(void **state)
{
    (void)state;
    fixture x;
    make(&x, 5, 1, false);
    x.d.kept = 0;
    rd_status st = {0};
    rd_order *p = NULL;
    assert_int_equal(rd_order_new(&x.d, 1, 0, 8, &(rd_order_rules){.shuffle = true}, &p, &st),
                     RD_EDATA);
    assert_null(p);
    assert_non_null(strstr(st.msg, "'fake' has 5 samples, and the limits of lengths skip all"));
    free(x.members);
}

/* ---- images: no lengths ---- */

static int one_bucket(void *self, int64_t i)
{
    (void)self;
    (void)i;
    return 0;
}

static const rd_dataset_def image_def = {.name = "images", .bucket = one_bucket};

static rd_dataset images_of(int64_t n, int64_t start[2])
{
    start[0] = 0;
    start[1] = n;
    return (rd_dataset){.def = &image_def, .count = n, .kept = n, .n_buckets = 1, .start = start};
}

static rd_order *order_of(const rd_dataset *d, int64_t epoch, int64_t global_batch,
                          rd_order_rules rules)
{
    rd_status st = {0};
    rd_order *p;
    assert_int_equal(rd_order_new(d, 11, epoch, global_batch, &rules, &p, &st), RD_OK);
    return p;
}

/* MNIST with batches of 128 a rank, as in Horovod's example. */
static struct steps_row {
    const char *name;
    int64_t n;
    int ranks;
    bool drop_last, independent;
    int64_t want;
} steps_rows[] = {
    {"60,000 images, 1 rank", 60000, 1, true, false, 468},
    {"60,000 images, 2 ranks", 60000, 2, true, false, 234},
    {"60,000 images, 4 ranks", 60000, 4, true, false, 117},
    {"60,000 images, 8 ranks", 60000, 8, true, false, 58},
    {"independent, 1 rank", 60000, 1, false, true, 468},
    {"independent, 2 ranks", 60000, 2, false, true, 234},
    {"independent, 4 ranks", 60000, 4, true, true, 117},
    {"independent, 8 ranks", 60000, 8, false, true, 58},
    {"the last one kept", 60000, 4, false, false, 118},
    {"ImageNet", 1281167, 64, true, false, 156},
};

static void check_steps(void **state)
{
    const struct steps_row *r = *state;
    int64_t start[2], n;
    const rd_dataset d = images_of(r->n, start);
    const rd_order_rules rules = {.shuffle = true,
                                  .drop_last = r->drop_last,
                                  .independent = r->independent,
                                  .size = r->ranks};
    rd_order *p = order_of(&d, 3, (int64_t)r->ranks * 128, rules);
    assert_int_equal(rd_order_n_batches(p), r->want);
    if (r->drop_last || r->independent)
        assert_int_equal(rd_order_n_samples(p), r->want * r->ranks * 128);
    else
        assert_int_equal(rd_order_n_samples(p), r->n);
    for (int64_t k = 0; k < r->want && r->drop_last; k += 13) {
        (void)rd_order_batch(p, k, &n);
        assert_int_equal(n, r->ranks * 128);
    }
    rd_order_free(p);
}

/* Runs in the order of the epoch, at multiples of the unit, a unit more or less; the same batch for
 * every number of ranks. */
static struct unit_row {
    const char *name;
    int64_t n, global_batch, unit;
    bool drop_last;
} unit_rows[] = {
    {"no unit", 1000, 64, 0, false},
    {"units of one", 1000, 64, 1, true},
    {"units that divide", 1000, 64, 8, true},
    {"units that do not divide the batch", 1000, 50, 8, false},
    {"units larger than a share", 300, 64, 32, false},
    {"one unit", 300, 64, 64, true},
    {"units larger than the batch", 300, 64, 100, false},
    {"the last batch smaller than a unit", 67, 64, 8, false},
};

static void check_unit(void **state)
{
    const struct unit_row *r = *state;
    int64_t start[2], mine[128], all[128];
    const rd_dataset d = images_of(r->n, start);
    const int64_t unit = r->unit ? r->unit : 1;
    static const int sizes[] = {1, 2, 3, 4, 7, 16, 100};
    rd_order *p =
        order_of(&d, 0, r->global_batch,
                 (rd_order_rules){.shuffle = true, .drop_last = r->drop_last, .unit = r->unit});
    int *seen = calloc((size_t)r->n, sizeof *seen);
    assert_non_null(seen);
    for (int64_t k = 0; k < rd_order_n_batches(p); k++) {
        int64_t n;
        const int64_t *batch = rd_order_batch(p, k, &n);
        if (r->drop_last) assert_int_equal(n, r->global_batch);
        for (int64_t i = 0; i < n; i++) seen[batch[i]]++;
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            int64_t at = 0, fewest = INT64_MAX, most = 0;
            for (int rank = 0; rank < sizes[s]; rank++) {
                const int64_t m = rd_order_deal(p, k, rank, sizes[s], mine),
                              units = (m + unit - 1) / unit;
                if (m > 0) assert_int_equal(at % unit, 0);
                memcpy(all + at, mine, (size_t)m * sizeof *mine);
                at += m;
                fewest = units < fewest ? units : fewest;
                most = units > most ? units : most;
            }
            assert_int_equal(at, n);
            assert_memory_equal(all, batch, (size_t)n * sizeof *all);
            assert_true(most - fewest <= 1);
        }
    }
    int64_t n_seen = 0;
    for (int64_t i = 0; i < r->n; i++) {
        assert_in_range(seen[i], 0, 1);
        n_seen += seen[i];
    }
    assert_int_equal(n_seen, rd_order_n_samples(p));
    assert_int_equal(n_seen, r->drop_last ? r->n / r->global_batch * r->global_batch : r->n);
    free(seen);
    rd_order_free(p);
}

/* Sharded images: the rank that holds a sample computes it. */
static void test_sharded_images(void **state)
{
    (void)state;
    int64_t start[2], mine[64], n;
    rd_dataset d = images_of(500, start);
    d.sharded = true;
    rd_order *p = order_of(&d, 0, 64, (rd_order_rules){.shuffle = true, .unit = 4});
    for (int64_t k = 0; k < rd_order_n_batches(p); k++) {
        int64_t sum = 0;
        (void)rd_order_batch(p, k, &n);
        for (int rank = 0; rank < 3; rank++) {
            const int64_t m = rd_order_deal(p, k, rank, 3, mine);
            for (int64_t i = 0; i < m; i++) assert_int_equal(mine[i] % 3, rank);
            sum += m;
        }
        assert_int_equal(sum, n);
    }
    rd_order_free(p);
}

/* Horovod's example: every rank walks all samples before it begins again, over epochs; ranks walk
 * different ways. */
static void test_independent(void **state)
{
    (void)state;
    enum { N = 1000, OWN = 32, RANKS = 3, PASS = 32 /* 31 whole batches and one of 8 */ };
    int64_t start[2], mine[OWN], other[OWN];
    const rd_dataset d = images_of(N, start);
    int *seen = calloc(N, sizeof *seen), step = 0, n_small = 0;
    int64_t same = 0, moved = 0;
    assert_non_null(seen);
    for (int64_t epoch = 0; step < 3 * PASS; epoch++) {
        rd_order *p =
            order_of(&d, epoch, OWN * RANKS,
                     (rd_order_rules){.shuffle = true, .independent = true, .size = RANKS});
        assert_int_equal(rd_order_n_batches(p), N / OWN / RANKS);
        for (int64_t k = 0; k < rd_order_n_batches(p) && step < 3 * PASS; k++, step++) {
            int64_t n, sum = 0;
            const int64_t *batch = rd_order_batch(p, k, &n);
            for (int rank = 0; rank < RANKS; rank++) {
                const int64_t m = rd_order_deal(p, k, rank, RANKS, rank == 1 ? mine : other);
                assert_memory_equal(rank == 1 ? mine : other, batch + sum,
                                    (size_t)m * sizeof *mine);
                sum += m;
                if (rank != 1) continue;
                n_small += m < OWN;
                assert_true(m == OWN || m == N % OWN);
                moved += step % PASS != PASS - 1 && m < OWN;
                for (int64_t i = 0; i < m; i++) seen[mine[i]]++;
            }
            assert_int_equal(sum, n);
            for (int64_t i = 0; i < OWN; i++) same += mine[i] == other[i];
        }
        rd_order_free(p);
        const int passes = step / PASS;
        for (int64_t i = 0; i < N; i++) assert_in_range(seen[i], passes, passes + 1);
    }
    for (int64_t i = 0; i < N; i++) assert_int_equal(seen[i], 3);
    assert_int_equal(n_small, 3);
    assert_in_range(moved, 1, 3); /* the small batch is not always the last of a pass */
    assert_in_range(same, 0, 30); /* 3 expected */
    free(seen);
}

/* The epoch of a checkpoint may be so large that epoch * batches does not fit into 64 bits. */
static void test_independent_late(void **state)
{
    (void)state;
    enum { N = 21, OWN = 3 };
    int64_t start[2], n;
    const rd_dataset d = images_of(N, start);
    rd_order *p = order_of(&d, INT64_MAX - 1, OWN,
                           (rd_order_rules){.shuffle = true, .independent = true, .size = 1});
    int seen[N] = {0};
    assert_int_equal(rd_order_n_batches(p), N / OWN);
    for (int64_t k = 0; k < N / OWN; k++) {
        const int64_t *batch = rd_order_batch(p, k, &n);
        assert_int_equal(n, OWN);
        for (int64_t i = 0; i < n; i++) {
            assert_in_range(batch[i], 0, N - 1);
            assert_int_equal(++seen[batch[i]], 1);
        }
    }
    rd_order_free(p);
}

static void test_no_batch(void **state)
{
    (void)state;
    int64_t start[2];
    rd_dataset d = images_of(100, start);
    rd_order *p;
    static const rd_order_rules rules[] = {{.shuffle = true, .drop_last = true},
                                           {.shuffle = true, .independent = true, .size = 2}};
    for (int k = 0; k < 2; k++) {
        rd_status st = {0};
        assert_int_equal(rd_order_new(&d, 1, 0, 128, &rules[k], &p, &st), RD_EUSAGE);
        assert_null(p);
        assert_non_null(strstr(st.msg,
                               "an epoch without a batch: 100 samples, a global batch of 128"));
    }
    rd_status st = {0};
    d.sharded = true;
    assert_int_equal(rd_order_new(&d, 1, 0, 32, &rules[1], &p, &st), RD_EUSAGE);
    assert_non_null(strstr(st.msg, "--split_data_per_rank"));
}

/* ---- an epoch whose global batch changes ---- */

static struct parts_row {
    const char *name;
    int64_t n;
    int n_buckets;
    bool skip, drop_last;
    int64_t batches; /* of each part; the last part has what is left */
    int64_t global_batch[6];
} parts_rows[] = {
    {"np 1, 2, 3, 4", 1000, 1, false, false, 7, {16, 32, 48, 64}},
    {"with buckets", 1000, 3, false, false, 5, {16, 32, 48, 64, 1, 37}},
    {"with buckets, some skipped", 1000, 3, true, false, 3, {64, 1, 7, 2, 300}},
    {"a batch of the whole epoch at last", 1000, 3, true, false, 3, {8, 5000}},
    {"one sample at a time", 100, 3, false, false, 4, {1, 2, 1, 3, 1}},
    {"small batches dropped", 1000, 3, true, true, 3, {16, 32, 48, 64, 16}},
    {"those of a small last batch come back", 130, 1, false, true, 1, {64, 1}},
    {"all used in the first part", 64, 1, false, false, 4, {16, 8}},
    {"a part without a batch", 1000, 3, false, false, 0, {16, 32, 48}},
};

/* Each sample comes once in all parts together, in a batch of its bucket. With drop_last fewer
 * samples than a global batch of the last part stay away in each bucket. */
static void check_parts(void **state)
{
    const struct parts_row *r = *state;
    fixture x;
    rd_order_part part[6];
    int n_parts = 0, away[3] = {0};
    int64_t n_used = 0, n;
    make(&x, r->n, r->n_buckets, r->skip);
    int *seen = calloc((size_t)r->n, sizeof *seen);
    while (n_parts < 6 && r->global_batch[n_parts] > 0) {
        const bool last = n_parts == 5 || r->global_batch[n_parts + 1] == 0;
        const int64_t gb = r->global_batch[n_parts];
        rd_order *p = order_of(
            &x.d, 2, gb,
            (rd_order_rules){
                .shuffle = true, .drop_last = r->drop_last, .parts = part, .n_parts = n_parts});
        const int64_t n_batches = rd_order_n_batches(p);
        int64_t k = 0, n_small = 0;
        for (; k < n_batches && (last || k < r->batches); k++) {
            const int64_t *ids = rd_order_batch(p, k, &n);
            assert_in_range(n, r->drop_last ? gb : 1, gb);
            n_small += n < gb;
            for (int64_t i = 0; i < n; i++) {
                seen[ids[i]]++;
                assert_int_equal(fake_bucket(&x.f, ids[i]), fake_bucket(&x.f, ids[0]));
            }
            n_used += n;
        }
        assert_true(n_small <= r->n_buckets);
        if (last) assert_int_equal(rd_order_n_samples(p), n_used);
        if (!r->drop_last) assert_int_equal(rd_order_n_samples(p), x.d.kept);
        part[n_parts++] = (rd_order_part){
            .global_batch = gb, .batches = k, .seed = 11, .drop_last = r->drop_last};
        rd_order_free(p);
    }
    for (int64_t i = 0; i < r->n; i++) {
        const int b = fake_bucket(&x.f, i);
        assert_in_range(seen[i], 0, 1);
        if (b < 0) assert_int_equal(seen[i], 0);
        if (b >= 0) away[b] += !seen[i];
    }
    for (int b = 0; b < r->n_buckets; b++)
        assert_true(r->drop_last ? away[b] < r->global_batch[n_parts - 1] : away[b] == 0);
    free(seen);
    free(x.members);
}

/* Another seed in the second part: still each sample once, and in another order. Parts that no run
 * can have end in a defined way. */
static void test_parts_of_other_seeds(void **state)
{
    fixture x;
    int64_t n, m, same = 0;
    (void)state;
    make(&x, 600, 3, false);
    const rd_order_part first = {.global_batch = 20, .batches = 10, .seed = 3};
    const rd_order_rules rules = {.shuffle = true, .parts = &first, .n_parts = 1};
    rd_status st = {0};
    rd_order *a, *b, *c;
    assert_int_equal(rd_order_new(&x.d, 3, 0, 10, &rules, &a, &st), RD_OK);
    assert_int_equal(rd_order_new(&x.d, 4, 0, 10, &rules, &b, &st), RD_OK);
    assert_int_equal(rd_order_new(&x.d, 3, 0, 20, &(rd_order_rules){.shuffle = true}, &c, &st),
                     RD_OK);
    int seen[600] = {0}, seen_b[600] = {0};
    for (int64_t k = 0; k < 10; k++) {
        const int64_t *ids = rd_order_batch(c, k, &n);
        for (int64_t i = 0; i < n; i++) seen[ids[i]]++, seen_b[ids[i]]++;
    }
    for (int64_t k = 0; k < rd_order_n_batches(a); k++) {
        const int64_t *ids = rd_order_batch(a, k, &n), *ids_b = rd_order_batch(b, k, &m);
        same += n == m && memcmp(ids, ids_b, (size_t)n * sizeof *ids) == 0;
        for (int64_t i = 0; i < n; i++) seen[ids[i]]++;
        for (int64_t i = 0; i < m; i++) seen_b[ids_b[i]]++;
    }
    for (int i = 0; i < 600; i++) assert_true(seen[i] == 1 && seen_b[i] == 1);
    assert_true(same < rd_order_n_batches(a) / 2);
    rd_order_free(b);
    rd_order_free(c);
    c = order_of(&x.d, 0, 10, (rd_order_rules){.shuffle = true});
    assert_int_equal(rd_order_n_whole(a), rd_order_n_batches(c));
    rd_order_free(a);
    rd_order_free(c);
    const rd_order_part many = {
        .global_batch = 1000000000000000, .batches = 1000000000000000, .seed = UINT64_MAX};
    assert_int_equal(rd_order_new(&x.d, 3, 0, 10,
                                  &(rd_order_rules){.shuffle = true, .parts = &many, .n_parts = 1},
                                  &a, &st),
                     RD_OK);
    assert_int_equal(rd_order_n_batches(a), 0);
    assert_int_equal(rd_order_n_samples(a), 600);
    rd_order_free(a);
    free(x.members);
}

/* The only batch of a part is used, and the two samples of a smaller last one were left out. */
static void test_ended_part(void **state)
{
    static const rd_order_part ended = {
        .global_batch = 128, .batches = 1, .seed = 11, .drop_last = true};
    int64_t start[2];
    (void)state;
    const rd_dataset d = images_of(130, start);
    rd_order *p = order_of(&d, 0, 1,
                           (rd_order_rules){
                               .shuffle = true, .drop_last = true, .parts = &ended, .n_parts = 1});
    assert_int_equal(rd_order_n_batches(p), 0);
    assert_int_equal(rd_order_n_whole(p), 130);
    rd_order_free(p);
}

RD_TESTS("plan", TEST_ROWS(check_row, rows), TEST_ROWS(check_steps, steps_rows),
         TEST_ROWS(check_unit, unit_rows), TEST_ROWS(check_parts, parts_rows),
         TEST(test_parts_of_other_seeds), TEST(test_ended_part), TEST(test_deal_is_even),
         TEST(test_order_is_a_function), TEST(test_order_mixes), TEST(test_nothing_kept),
         TEST(test_sharded_images), TEST(test_independent), TEST(test_no_batch),
         TEST(test_independent_late), TEST(test_batches_mix))
