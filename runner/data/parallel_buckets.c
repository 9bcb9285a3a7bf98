/* parallel_buckets.c -- length limits of a parallel text: the bucket of each pair, and which pairs
 * training leaves out. */
#include "parallel_impl.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum {
    USUAL_LENGTH = 100, /* max_seq_len where neither it nor the buckets are given */
    USUAL_CHARS = 500,  /* ... for subword char */
    USUAL_BUCKETS = 10
};

static const char *const bucket_key[2][2] = {{"bucket_src", "bucket_src_test"},
                                             {"bucket_tgt", "bucket_tgt_test"}};

/* Makes the usual buckets: ten of the same width, up to the most tokens of a side. */
static rd_code usual_limits(rd_parallel *t, int s, rd_status *st)
{
    const int64_t most = t->max_length[s] - 2;
    int64_t *at = malloc(USUAL_BUCKETS * sizeof *at);
    int n = 0;
    if (!at) return rd_fail(st, RD_EENV, "out of memory");
    for (int k = 1; k <= USUAL_BUCKETS; k++) {
        const int64_t limit = (k * most + USUAL_BUCKETS - 1) / USUAL_BUCKETS + 2;
        if (n == 0 || limit > at[n - 1]) at[n++] = limit;
    }
    t->limit[s] = (rd_ints){n, at};
    if (n > t->n_buckets) t->n_buckets = n;
    return RD_OK;
}

static rd_code given_limits(rd_parallel *t, const rd_dataset_args *a, int s, const rd_ints *from,
                            const char *key, rd_status *st)
{
    int64_t *at = malloc((size_t)from->n * sizeof *at);
    if (!at) return rd_fail(st, RD_EENV, "out of memory");
    t->limit[s] = (rd_ints){from->n, at};
    for (int k = 0; k < from->n; k++) {
        if (k > 0 && from->at[k] <= from->at[k - 1])
            return rd_fail(st, RD_EUSAGE, "%s: '%s' must ascend, but %" PRId64 " follows %" PRId64,
                           rd_config_where(a->config, key), key, from->at[k], from->at[k - 1]);
        at[k] = from->at[k];
    }
    if (from->n > t->n_buckets) t->n_buckets = from->n;
    return RD_OK;
}

/* Reads the keys of Sockeye's buckets, which are made when the lengths are known. */
static rd_code sockeye_keys(rd_parallel *t, const rd_dataset_args *a, rd_status *st)
{
    const rd_parallel_config *c = &t->c;
    const bool old = c->bucketing == RD_BUCKETS_SOCKEYE;
    if (a->split != RD_SPLIT_TRAIN || a->keep_all || c->bucketing == RD_BUCKETS_WINDOWS)
        return RD_OK;
    if (c->bucket[0].n > 0)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'bucketing' makes the buckets, but 'bucket_src' names others; remove "
                       "bucket_src and bucket_tgt, or bucketing",
                       rd_config_where(a->config, "bucketing"));
    t->sockeye.kind = c->bucketing;
    t->sockeye.multiple = c->bucket_multiple;
    t->bucket_width = c->has_bucket_width ? c->bucket_width : old ? 10 : 8;
    t->bucket_scaling = c->has_bucket_scaling ? c->bucket_scaling : old;
    return RD_OK;
}

/* Reads the limits of lengths: those of the buckets, and in training max_seq_len. */
rd_code rd_parallel_limits(rd_parallel *t, const rd_dataset_args *a, rd_status *st)
{
    const rd_ints *most = &t->c.max_seq_len;
    if (most->n > 2)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'max_seq_len' has %d numbers; one for the source and one for the "
                       "target, or one for both",
                       rd_config_where(a->config, "max_seq_len"), most->n);
    if ((t->c.bucket[0].n == 0) != (t->c.bucket[1].n == 0) && !a->keep_all)
        return rd_fail(st, RD_EUSAGE,
                       "missing key '%s': the length limits of the buckets, for example [50]; "
                       "add it to the config",
                       bucket_key[t->c.bucket[0].n > 0][0]);
    RD_TRY(sockeye_keys(t, a, st));
    for (int s = 0; s < 2; s++) {
        const bool test = a->split != RD_SPLIT_TRAIN && t->c.bucket_test[s].n > 0;
        const rd_ints *from = test ? &t->c.bucket_test[s] : &t->c.bucket[s];
        if (most->n > 0 && !a->keep_all) t->max_length[s] = most->at[most->n == 2 ? s : 0] + 2;
        if (from->n > 0) {
            RD_TRY(given_limits(t, a, s, from, bucket_key[s][test], st));
            continue;
        }
        if (a->keep_all) continue;
        if (most->n == 0)
            t->max_length[s] = (strcmp(t->scheme, "char") == 0 ? USUAL_CHARS : USUAL_LENGTH) + 2;
        if (t->sockeye.kind == RD_BUCKETS_WINDOWS) RD_TRY(usual_limits(t, s, st));
    }
    if (t->n_buckets == 0) t->n_buckets = 1;
done:
    return st->code;
}

/* ---- buckets ---- */

static int bucket_of(const rd_ints *limit, int64_t length)
{
    for (int k = 0; k < limit->n; k++)
        if (length <= limit->at[k]) return k;
    return -1;
}

int64_t rd_parallel_length(const rd_parallel *t, int s, int64_t i)
{
    return s == 1 && t->no_target ? 2 : rd_side_length(&t->side[s], i);
}

/* Returns whether the pair is left out of training, since a side has no word. */
static bool is_dropped(const rd_parallel *t, int64_t i)
{
    return t->drop_blank && (rd_side_blank(&t->side[0], i) || rd_side_blank(&t->side[1], i));
}

/* Returns whether side s of the pair has more tokens than training takes. */
static bool is_too_long(const rd_parallel *t, int s, int64_t i)
{
    return t->max_length[s] > 0 && rd_parallel_length(t, s, i) > t->max_length[s];
}

int rd_parallel_bucket(const rd_parallel *t, int64_t i)
{
    int b = 0;
    if (is_dropped(t, i)) return -1;
    for (int s = 0; s < 2; s++) {
        if (is_too_long(t, s, i)) return -1;
        if (t->limit[s].n == 0) continue; /* no limit: bucket 0 */
        const int k = bucket_of(&t->limit[s], rd_parallel_length(t, s, i));
        if (k < 0) return t->keep_all ? t->n_buckets - 1 : -1;
        if (k > b) b = k;
    }
    return b;
}

rd_code rd_parallel_sockeye(rd_parallel *t, rd_status *st)
{
    rd_sockeye_batches *s = &t->sockeye;
    int64_t most[2], kept = 0;
    double sum = 0.0;
    if (s->kind == RD_BUCKETS_WINDOWS) return RD_OK;
    for (int64_t i = 0; i < t->count; i++) {
        if (rd_parallel_bucket(t, i) < 0) continue;
        sum += (double)(rd_parallel_length(t, 1, i) - 1) /
               (double)(rd_parallel_length(t, 0, i) - 1);
        kept++;
    }
    for (int k = 0; k < 2; k++) most[k] = t->max_length[k] - 1;
    s->n = rd_sockeye_buckets(most, t->bucket_width,
                              t->bucket_scaling && kept > 0 ? sum / (double)kept : 0.0, s->limit,
                              st);
    RD_TRY(st->code);
    s->mean = calloc((size_t)s->n, sizeof *s->mean);
    s->count = calloc((size_t)s->n, sizeof *s->count);
    if (!s->mean || !s->count) RD_TRY(rd_fail(st, RD_EENV, "out of memory"));
    for (int k = 0; k < 2; k++) {
        int64_t *at = malloc((size_t)s->n * sizeof *at);
        if (!at) RD_TRY(rd_fail(st, RD_EENV, "out of memory"));
        for (int b = 0; b < s->n; b++) at[b] = s->limit[k][b] + 1;
        t->limit[k] = (rd_ints){s->n, at};
    }
    t->n_buckets = s->n;
    for (int64_t i = 0; i < t->count; i++) {
        const int b = rd_parallel_bucket(t, i);
        if (b < 0) continue;
        s->mean[b] += (double)(rd_parallel_length(t, 1, i) - 1);
        s->count[b]++;
    }
    for (int b = 0; b < s->n; b++)
        if (s->count[b] > 0) s->mean[b] /= (double)s->count[b];
done:
    return st->code;
}

void rd_parallel_count(rd_parallel *t)
{
    double sum = 0.0, squares = 0.0;
    int64_t kept = 0;
    if (t->keep_all) return;
    for (int64_t i = 0; i < t->count; i++) {
        if (rd_parallel_bucket(t, i) >= 0) {
            const double ratio = (double)(rd_parallel_length(t, 1, i) - 2) /
                                 (double)(rd_parallel_length(t, 0, i) - 2);
            sum += ratio;
            squares += ratio * ratio;
            kept++;
            continue;
        }
        if (is_dropped(t, i)) {
            t->n_blank++;
            continue;
        }
        t->skipped++;
        for (int s = 0; s < 2; s++) {
            const int64_t n = rd_parallel_length(t, s, i);
            t->too_long[s] += is_too_long(t, s, i);
            if (n > t->skipped_longest[s]) t->skipped_longest[s] = n;
        }
    }
    if (kept == 0) return;
    t->ratio = sum / (double)kept;
    t->ratio_sd = sqrt(fmax(0.0, squares / (double)kept - t->ratio * t->ratio));
}
