/* bucketing.c -- tests the buckets and batches of Sockeye: the values of make_bucket_golden.py, the
 * bucket of each pair of a text, and orders whose batches are of one bucket each. */
#include "../../runner/data/parallel_impl.h"
#include "dataset_open.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>

enum { MOST_BUCKETS = 40 };

typedef struct pairs_row {
    const char *name;
    int64_t most[2], width;
    double ratio;
    int n;
    int64_t limit[2][MOST_BUCKETS];
} pairs_row;

typedef struct batches_row {
    const char *name;
    rd_bucketing kind;
    int64_t most, width, words, multiple;
    int n;
    double mean[MOST_BUCKETS];
    int64_t batch[MOST_BUCKETS];
} batches_row;
#include "bucket_golden.inc"

static void test_pairs(void **state)
{
    const pairs_row *r = *state;
    rd_status st = {0};
    int64_t *limit[2] = {NULL, NULL};
    const int n = rd_sockeye_buckets(r->most, r->width, r->ratio, limit, &st);
    must(&st);
    assert_int_equal(n, r->n);
    for (int s = 0; s < 2; s++) {
        assert_memory_equal(limit[s], r->limit[s], (size_t)n * sizeof *limit[s]);
        free(limit[s]);
    }
}

static void test_batches(void **state)
{
    const batches_row *r = *state;
    rd_status st = {0};
    const int64_t most[2] = {r->most, r->most};
    double mean[MOST_BUCKETS];
    rd_sockeye_batches s = {.kind = r->kind, .mean = mean, .multiple = r->multiple};
    memcpy(mean, r->mean, sizeof mean);
    s.n = rd_sockeye_buckets(most, r->width, 1.0, s.limit, &st);
    must(&st);
    assert_int_equal(s.n, r->n);
    for (int b = 0; b < s.n; b++) assert_int_equal(rd_sockeye_batch(&s, b, r->words), r->batch[b]);
    for (int k = 0; k < 2; k++) free(s.limit[k]);
}

/* ---- a text ---- */

enum { PAIRS = 2000, EMPTY = 7 }; /* the target of every pair with i % 100 == EMPTY is empty */

/* Lengths in words of pair i: the target has about 3/2 of the source. */
static int64_t source_words(int64_t i)
{
    return 1 + i * 17 % 30;
}
static int64_t target_words(int64_t i)
{
    return i % 100 == EMPTY ? 0 : source_words(i) + (source_words(i) + i % 3) / 2;
}

static void put_side(const char *name, int64_t (*words)(int64_t))
{
    FILE *f = fopen(in_dir(name), "w");
    assert_non_null(f);
    for (int64_t i = 0; i < PAIRS; i++) {
        for (int64_t k = 0; k < words(i); k++) (void)fputs(k ? " a" : "a", f);
        (void)fputs("\n", f);
    }
    assert_int_equal(fclose(f), 0);
}

static int make_text(void **state)
{
    if (make_dir(state) != 0) return -1;
    put_side("src", source_words);
    put_side("tgt", target_words);
    FILE *f = fopen(in_dir("v"), "w");
    assert_non_null(f);
    (void)fputs("a\n", f);
    return fclose(f);
}

static rd_dataset *open_text(const char *keys, rd_status *st)
{
    char config[1024];
    const rd_dataset_args a = {.mode = RD_MODE_TRAIN, .split = RD_SPLIT_TRAIN};
    rd_dataset *d = NULL;
    (void)snprintf(config, sizeof config,
                   "{'src_vocab_file': '@/v', 'tgt_vocab_file': '@/v', 'source_file': '@/src', "
                   "'target_file': '@/tgt'%s}",
                   keys);
    (void)dataset_open("parallel_text", config, &a, &d, st);
    return d;
}

typedef struct text_row {
    const char *name, *keys;
    rd_bucketing kind;
    int64_t width, most[2], multiple;
    bool scaled;
} text_row;

static text_row text_rows[] = {
    {"sockeye",
     ", 'bucketing': 'sockeye', 'max_seq_len': [39]",
     RD_BUCKETS_SOCKEYE,
     10,
     {40, 40},
     1,
     true},
    {"sockeye, without scaling, width 3",
     ", 'bucketing': 'sockeye', 'max_seq_len': [31, 50], 'bucket_scaling': false, "
     "'bucket_width': 3, 'bucket_multiple': 4",
     RD_BUCKETS_SOCKEYE,
     3,
     {32, 51},
     4,
     false},
    {"sockeye 3",
     ", 'bucketing': 'sockeye_3_word'",
     RD_BUCKETS_SOCKEYE_3_WORD,
     8,
     {101, 101},
     1,
     false},
    {"sockeye 3, max-word, scaled",
     ", 'bucketing': 'sockeye_3_max_word', 'bucket_scaling': true, 'bucket_multiple': 8",
     RD_BUCKETS_SOCKEYE_3_MAX_WORD,
     8,
     {101, 101},
     8,
     true},
};

/* Does the text row keep pair i? */
static bool is_kept(const text_row *r, int64_t i)
{
    return target_words(i) > 0 && source_words(i) < r->most[0] && target_words(i) < r->most[1];
}

/* Makes the buckets of a row from the lengths of the text. mean: [MOST_BUCKETS], zeros. */
static void expected_buckets(const text_row *r, rd_sockeye_batches *s, double *mean)
{
    rd_status st = {0};
    int64_t count[MOST_BUCKETS] = {0}, kept = 0;
    double ratio = 0.0;
    for (int64_t i = 0; i < PAIRS; i++) {
        if (!is_kept(r, i)) continue;
        ratio += (double)(target_words(i) + 1) / (double)(source_words(i) + 1);
        kept++;
    }
    *s = (rd_sockeye_batches){.kind = r->kind, .mean = mean, .multiple = r->multiple};
    s->n = rd_sockeye_buckets(r->most, r->width, r->scaled ? ratio / (double)kept : 1.0, s->limit,
                              &st);
    must(&st);
    assert_true(s->n < MOST_BUCKETS);
    for (int64_t i = 0; i < PAIRS; i++) {
        int b = 0;
        if (!is_kept(r, i)) continue;
        while (source_words(i) + 1 > s->limit[0][b] || target_words(i) + 1 > s->limit[1][b]) b++;
        mean[b] += (double)(target_words(i) + 1);
        count[b]++;
    }
    for (int b = 0; b < s->n; b++)
        if (count[b] > 0) mean[b] /= (double)count[b];
}

/* Each pair is in the first bucket that holds it, and the batches have the sizes of the rule. */
static void test_text(void **state)
{
    const text_row *r = *state;
    rd_status st = {0};
    rd_sockeye_batches s;
    double mean[MOST_BUCKETS] = {0};
    rd_dataset *d = open_text(r->keys, &st);
    must(&st);
    const rd_dataset_def *def = rd_dataset_def_of(d);
    void *self = rd_dataset_self(d);
    expected_buckets(r, &s, mean);
    assert_int_equal(def->n_buckets(self), s.n);
    for (int64_t i = 0; i < PAIRS; i++) {
        int b = 0;
        if (!is_kept(r, i)) {
            assert_int_equal(def->bucket(self, i), -1);
            continue;
        }
        while (source_words(i) + 1 > s.limit[0][b] || target_words(i) + 1 > s.limit[1][b]) b++;
        assert_int_equal(def->bucket(self, i), b);
    }
    for (int b = 0; b < s.n; b++)
        assert_int_equal(def->bucket_batch(self, b, 300), rd_sockeye_batch(&s, b, 300));
    assert_non_null(strstr(def->fingerprint(self), "Sockeye's buckets"));
    for (int k = 0; k < 2; k++) free(s.limit[k]);
    rd_dataset_free(d);
}

/* ---- orders ---- */

static rd_order *order_of(const rd_dataset *d, int64_t epoch, const rd_order_part *parts, int n)
{
    rd_status st = {0};
    rd_order *o = NULL;
    const rd_order_rules rules = {
        .shuffle = true, .drop_last = true, .tokens = 300, .parts = parts, .n_parts = n};
    must_do(rd_order_new(d, 5, epoch, 12, &rules, &o, &st), &st);
    return o;
}

/* Counts the samples of batches [0, n) in seen, and checks that each is of one bucket. *small:
 * number of batches that are not whole. */
static void walk(const rd_dataset *d, const rd_order *o, int64_t n, int *seen, int64_t *small)
{
    const rd_dataset_def *def = rd_dataset_def_of(d);
    void *self = rd_dataset_self(d);
    *small = 0;
    for (int64_t k = 0; k < n; k++) {
        int64_t m;
        const int64_t *ids = rd_order_batch(o, k, &m);
        const int b = def->bucket(self, ids[0]);
        const int64_t whole = def->bucket_batch(self, b, 300);
        assert_true(m > 0 && m <= whole);
        *small += m < whole;
        for (int64_t i = 0; i < m; i++) {
            assert_int_equal(def->bucket(self, ids[i]), b);
            seen[ids[i]]++;
        }
    }
}

static void test_order(void **state)
{
    const text_row *r = &text_rows[0];
    rd_status st = {0};
    int64_t in_all, small, tokens = 0;
    int seen[PAIRS], order[2] = {0};
    rd_order_tokens count;
    (void)state;
    rd_dataset *d = open_text(r->keys, &st);
    must(&st);
    for (int64_t i = 0; i < PAIRS; i++) tokens += is_kept(r, i) ? target_words(i) + 1 : 0;
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        rd_order *o = order_of(d, epoch, NULL, 0);
        int64_t m;
        memset(seen, 0, sizeof seen);
        assert_int_equal(rd_order_n_batches(o), rd_order_n_updates(d, 300, &in_all));
        assert_int_equal(in_all, tokens);
        assert_int_equal(rd_order_n_samples(o), rd_dataset_kept(d));
        walk(d, o, rd_order_n_batches(o), seen, &small);
        for (int64_t i = 0; i < PAIRS; i++) assert_int_equal(seen[i], is_kept(r, i));
        /* At most one batch of a bucket is not whole. */
        assert_true(small <= rd_dataset_def_of(d)->n_buckets(rd_dataset_self(d)));
        rd_order_count_tokens(o, INT64_MAX, &count);
        assert_int_equal(count.tokens, tokens);
        assert_int_equal(count.batches, rd_order_n_batches(o));
        assert_true(count.padded > tokens && count.most < 500);
        order[epoch] = rd_dataset_def_of(d)->bucket(rd_dataset_self(d), *rd_order_batch(o, 0, &m)) +
                       1000 * (int)*rd_order_batch(o, 1, &m);
        rd_order_free(o);
    }
    assert_int_not_equal(order[0], order[1]);
    rd_dataset_free(d);
}

/* After a restart inside an epoch, with another number of tokens, each sample comes once. */
static void test_parts(void **state)
{
    const text_row *r = &text_rows[0];
    rd_status st = {0};
    int64_t small;
    int seen[PAIRS] = {0};
    (void)state;
    rd_dataset *d = open_text(r->keys, &st);
    must(&st);
    rd_order_part part[2] = {{.global_batch = 12, .batches = 30, .tokens = 300, .seed = 5},
                             {.global_batch = 40, .batches = 11, .tokens = 0, .seed = 5}};
    rd_order *o = order_of(d, 0, NULL, 0);
    walk(d, o, 30, seen, &small);
    rd_order_free(o);
    /* 11 batches of 40 samples, whatever their tokens, then the rest */
    rd_order_rules rules = {.shuffle = true, .parts = part, .n_parts = 1};
    must_do(rd_order_new(d, 5, 0, 40, &rules, &o, &st), &st);
    for (int64_t k = 0; k < 11; k++) {
        int64_t m;
        const int64_t *ids = rd_order_batch(o, k, &m);
        for (int64_t i = 0; i < m; i++) seen[ids[i]]++;
    }
    rd_order_free(o);
    o = order_of(d, 0, part, 2);
    walk(d, o, rd_order_n_batches(o), seen, &small);
    for (int64_t i = 0; i < PAIRS; i++) assert_int_equal(seen[i], is_kept(r, i));
    rd_order_free(o);
    rd_dataset_free(d);
}

static void test_conflict(void **state)
{
    rd_status st = {0};
    (void)state;
    rd_dataset_free(open_text(", 'bucketing': 'sockeye', 'bucket_src': [20], 'bucket_tgt': [20]",
                              &st));
    assert_int_equal(st.code, RD_EUSAGE);
    assert_non_null(strstr(st.msg, "'bucketing' makes the buckets, but 'bucket_src' names others"));
}

RD_TESTS_WITH("bucketing", make_text, remove_dir, TEST_ROWS(test_pairs, pairs_rows),
              TEST_ROWS(test_batches, batches_rows), TEST_ROWS(test_text, text_rows),
              TEST(test_order), TEST(test_parts), TEST(test_conflict))
