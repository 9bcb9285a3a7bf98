/* sample_order.c -- which samples make up global batch k of an epoch, and which of them a rank
 * computes.
 *
 * Nothing is stored. The position of a batch goes through a keyed permutation of all batches, which
 * gives a bucket and a range of positions in it. Each of these goes through a keyed permutation of
 * the bucket. So an epoch of five million samples starts at once, there is no generator state to
 * save, and the order does not depend on the number of ranks.
 *
 * Where the global batch changes within an epoch, the samples that are left are found by going
 * through the earlier parts of the epoch, and are stored.
 *
 * With `tokens` a batch is a number of target tokens instead: token_order.c. Where the dataset has
 * bucket_batch, that number decides how many samples a batch of a bucket has.
 *
 * With `independent` it does: each rank walks its own permutations, pass after pass, and an epoch
 * is a number of steps somewhere in these passes. */
#include "data_impl.h"
#include "rd/philox.h"
#include <inttypes.h>
#include <stdlib.h>

typedef struct item {
    int64_t id, length;
    int64_t at; /* position in the batch */
} item;

struct rd_order {
    const rd_dataset *d;
    uint64_t seed;
    int64_t epoch, global_batch, n_batches;
    rd_order_rules rules;
    int64_t *first_batch; /* [n_buckets + 1] shuffle: batches before bucket b, not permuted */
    int64_t n_whole;      /* number of batches of an epoch without parts */
    uint32_t *left;       /* [left_start[n_buckets]] ids that no part has used; NULL: no parts */
    int64_t *left_start;  /* [n_buckets + 1] where bucket b begins in `left` */
    uint32_t *kept;       /* [kept] no shuffle, some skipped: kept ids in file order; else NULL */
    rd_key batch_key;
    int64_t ids_of; /* batch whose ids are in `ids`; -1: none */
    int64_t n_ids;
    rd_windows *windows; /* owned; tokens: the batches; else NULL */
    int64_t *ids;        /* [global_batch] */
    item *items;         /* [global_batch] for sorting; NULL: samples have no length */
    int64_t *from;       /* [size + 1] independent: where the batch of each rank starts in ids */
    int64_t per_pass;    /* independent: number of batches in one pass of a rank */
};

static rd_code keep_file_order(rd_order *o, rd_status *st)
{
    const rd_dataset *d = o->d;
    if (d->kept == d->count) return RD_OK;
    o->kept = malloc((size_t)(d->kept + 1) * sizeof *o->kept);
    if (!o->kept)
        return rd_fail(st, RD_EENV, "out of memory for the order of %" PRId64 " samples", d->kept);
    int64_t n = 0;
    for (int64_t i = 0; i < d->count; i++)
        if (d->def->bucket(d->self, i) >= 0) o->kept[n++] = (uint32_t)i;
    return RD_OK;
}

static rd_code check_rules(const rd_dataset *d, int64_t global_batch, const rd_order_rules *r,
                           rd_status *st)
{
    if (global_batch < 1)
        return rd_fail(st, RD_EBUG, "a global batch of %" PRId64 " samples", global_batch);
    if (r->unit < 0) return rd_fail(st, RD_EBUG, "a unit of %" PRId64 " samples", r->unit);
    if (d->kept == 0 && !d->keep_all && d->count == 0)
        return rd_fail(st, RD_EDATA, "no sample to train on: '%s' is empty", d->def->name);
    if (d->kept == 0 && !d->keep_all)
        return rd_fail(st, RD_EDATA,
                       "no sample to train on: '%s' has %" PRId64
                       " sample%s, and the limits of lengths skip all of them; raise the bucket "
                       "limits",
                       d->def->name, d->count, RD_S(d->count));
    if (r->tokens > 0 && (!r->shuffle || r->independent || !d->def->tokens))
        return rd_fail(st, RD_EBUG, "batches by target tokens of '%s'", d->def->name);
    if (!r->independent) return RD_OK;
    if (r->size < 1 || global_batch % r->size != 0)
        return rd_fail(st, RD_EBUG, "a global batch of %" PRId64 " for %d ranks", global_batch,
                       r->size);
    if (d->sharded)
        return rd_fail(st, RD_EUSAGE,
                       "\"sampling\": \"independent\" needs all samples on every rank; remove "
                       "--split_data_per_rank");
    return RD_OK;
}

/* Is each bucket cut into batches of about `tokens` target tokens? */
static bool is_by_bucket(const rd_dataset *d, int64_t tokens)
{
    return tokens > 0 && d->def->bucket_batch && d->def->bucket_batch(d->self, 0, tokens) > 0;
}

/* Returns the number of samples of a whole batch of bucket b. */
static int64_t batch_of_bucket(const rd_dataset *d, int64_t global_batch, int64_t tokens, int b)
{
    return is_by_bucket(d, tokens) ? d->def->bucket_batch(d->self, b, tokens) : global_batch;
}

/* Counts the batches of each bucket into first_batch, and returns their sum. Smaller last batches
 * of target tokens stay. */
static int64_t cut_buckets(const rd_dataset *d, const int64_t *start, int64_t global_batch,
                           int64_t tokens, bool drop_last, int64_t *first_batch)
{
    first_batch[0] = 0;
    for (int b = 0; b < d->n_buckets; b++) {
        const int64_t n = start[b + 1] - start[b],
                      batch = batch_of_bucket(d, global_batch, tokens, b);
        first_batch[b + 1] = first_batch[b] + n / batch +
                             ((!drop_last || tokens > 0) && n % batch > 0);
    }
    return first_batch[d->n_buckets];
}

int64_t rd_order_n_updates(const rd_dataset *d, int64_t tokens, int64_t *in_all)
{
    const int64_t n = rd_windows_n_updates(d, tokens, in_all);
    if (!is_by_bucket(d, tokens)) return n;
    int64_t batches = 0;
    for (int b = 0; b < d->n_buckets; b++) {
        const int64_t batch = batch_of_bucket(d, 0, tokens, b);
        batches += (d->start[b + 1] - d->start[b] + batch - 1) / batch;
    }
    return batches;
}

/* Counts the batches of an epoch without parts. RD_EUSAGE if the rules leave none. */
static rd_code count_batches(rd_order *o, rd_status *st)
{
    const rd_dataset *d = o->d;
    const rd_order_rules *r = &o->rules;
    const int64_t gb = o->global_batch;
    int64_t in_all;
    if (r->tokens > 0 && !is_by_bucket(d, r->tokens)) {
        o->n_batches = rd_windows_n_updates(d, r->tokens, &in_all);
    } else if (r->independent) {
        const int64_t own = gb / r->size;
        o->per_pass = d->kept / own + (!r->drop_last && d->kept % own > 0);
        o->n_batches = d->kept / own / r->size;
    } else if (r->shuffle) {
        o->n_batches = cut_buckets(d, d->start, gb, r->tokens, r->drop_last, o->first_batch);
    } else {
        o->n_batches = d->kept / gb + (d->kept % gb > 0);
    }
    o->n_whole = o->n_batches;
    if (o->n_batches == 0 && d->kept > 0)
        return rd_fail(st, RD_EUSAGE,
                       "an epoch without a batch: %" PRId64 " sample%s, a global batch of %" PRId64
                       "%s; lower "
                       "batch_size or use fewer ranks",
                       d->kept, RD_S(d->kept), gb, r->drop_last ? " and no smaller last one" : "");
    return RD_OK;
}

/* ---- the parts of an epoch ---- */

/* Returns the key of the permutation of the batches of part k, counted from 0. Below 2^32 are the
 * keys of the buckets. */
static rd_key key_of_batches(const rd_order *o, uint64_t seed, int k)
{
    return rd_key_make(seed, RD_RNG_ORDER, (uint64_t)o->epoch, (uint64_t)k << 32);
}

static rd_key key_of_bucket(const rd_order *o, uint64_t seed, int b)
{
    return rd_key_make(seed, RD_RNG_ORDER, (uint64_t)o->epoch, (uint64_t)b + 1);
}

/* Returns the sample at position i of bucket b, which has n samples, in the first part. */
static int64_t sample_at(const rd_order *o, rd_key key, int b, int64_t n, int64_t i)
{
    const int64_t place = o->d->start[b] + (int64_t)rd_permute(key, (uint64_t)n, (uint64_t)i);
    return o->d->members ? o->d->members[place] : place;
}

/* Removes the batches that part k used. What is left of a bucket keeps its order, so `left` can be
 * rewritten in place. A part that used all its batches ended the epoch: smaller last batches that
 * it left out do not come back. */
static rd_code remove_part(rd_order *o, int k, const rd_order_part *p, rd_status *st)
{
    const rd_dataset *d = o->d;
    const int64_t *start = k == 0 ? d->start : o->left_start;
    const int64_t n_batches = cut_buckets(d, start, p->global_batch, p->tokens, p->drop_last,
                                          o->first_batch);
    const bool ended = p->batches >= n_batches;
    const rd_key key = key_of_batches(o, p->seed, k);
    bool *used = calloc((size_t)n_batches + 1, sizeof *used);
    int64_t from = start[0], n_left = 0;
    if (!used)
        return rd_fail(st, RD_EENV, "out of memory for the order of %" PRId64 " batches",
                       n_batches);
    for (int64_t i = 0; i < p->batches && i < n_batches; i++)
        used[rd_permute(key, (uint64_t)n_batches, (uint64_t)i)] = true;
    for (int b = 0; b < d->n_buckets; b++) {
        const int64_t n = start[b + 1] - from;
        const int64_t size = batch_of_bucket(d, p->global_batch, p->tokens, b);
        const rd_key in_bucket = key_of_bucket(o, p->seed, b);
        for (int64_t i = 0; i < n && !ended; i++) {
            const int64_t batch = o->first_batch[b] + i / size;
            /* A smaller last batch that was left out is not one of the bucket's batches. */
            if (batch < o->first_batch[b + 1] && used[batch]) continue;
            o->left[n_left++] = k == 0 ? (uint32_t)sample_at(o, in_bucket, b, n, i)
                                       : o->left[from + i];
        }
        from = start[b + 1];
        o->left_start[b + 1] = n_left;
    }
    free(used);
    return RD_OK;
}

/* Removes the batches by target tokens that part k used. What is left of a bucket is in the order
 * of the permutation. */
static rd_code remove_token_part(rd_order *o, int k, const rd_order_part *p, rd_status *st)
{
    const rd_dataset *d = o->d;
    const uint32_t *list = k == 0 ? d->members : o->left;
    const int64_t n = k == 0 ? d->kept : o->left_start[d->n_buckets];
    rd_windows *w = NULL;
    bool *used = calloc((size_t)n + 1, sizeof *used);
    uint32_t *next = malloc((size_t)(d->kept + 1) * sizeof *next);
    int64_t *end = calloc((size_t)d->n_buckets + 1, sizeof *end);
    if (!d->def->tokens)
        rd_fail(st, RD_EBUG, "a part by target tokens of '%s'", d->def->name);
    else if (!used || !next || !end)
        rd_fail(st, RD_EENV, "out of memory for the order of %" PRId64 " samples", n);
    else
        (void)rd_windows_new(d, list, n, p->tokens, p->seed, o->epoch, k, &w, st);
    RD_TRY(st->code);
    const bool ended = p->batches >= rd_windows_n_batches(w);
    for (int64_t b = 0; b < p->batches && !ended; b++) {
        int64_t m;
        const rd_window_item *x = rd_windows_batch(w, b, &m);
        for (int64_t i = 0; i < m; i++) used[x[i].place] = true;
    }
    for (int pass = 0; pass < 2; pass++) { /* count, then fill */
        for (int64_t i = 0; i < n && !ended; i++) {
            const int64_t place = rd_windows_place(w, i), id = list ? list[place] : place;
            if (used[place]) continue;
            const int b = d->def->bucket(d->self, id);
            if (pass == 0)
                end[b + 1]++;
            else
                next[end[b]++] = (uint32_t)id;
        }
        if (pass == 1) break;
        for (int b = 0; b < d->n_buckets; b++) end[b + 1] += end[b];
        memcpy(o->left_start, end, (size_t)(d->n_buckets + 1) * sizeof *end);
    }
    free(o->left);
    o->left = next;
    next = NULL;
done:
    rd_windows_free(w);
    free(used);
    free(next);
    free(end);
    return st->code;
}

/* Finds the samples that the parts before have not used, and cuts them into batches. */
static rd_code take_left(rd_order *o, rd_status *st)
{
    const rd_dataset *d = o->d;
    const rd_order_rules *r = &o->rules;
    if (!r->shuffle || r->independent)
        return rd_fail(st, RD_EBUG, "parts of an epoch without a shuffled order");
    o->left = malloc((size_t)(d->kept + 1) * sizeof *o->left);
    o->left_start = calloc((size_t)d->n_buckets + 1, sizeof *o->left_start);
    if (!o->left || !o->left_start)
        return rd_fail(st, RD_EENV, "out of memory for the order of %" PRId64 " samples", d->kept);
    for (int k = 0; k < r->n_parts; k++) {
        if (r->parts[k].global_batch < 1 || r->parts[k].batches < 0)
            return rd_fail(st, RD_EBUG, "a part of %" PRId64 " batches of %" PRId64 " samples",
                           r->parts[k].batches, r->parts[k].global_batch);
        const bool by_window = r->parts[k].tokens > 0 && !is_by_bucket(d, r->parts[k].tokens);
        if ((by_window ? remove_token_part : remove_part)(o, k, &r->parts[k], st) != RD_OK)
            return st->code;
    }
    if (r->tokens > 0 && !is_by_bucket(d, r->tokens)) return RD_OK;
    o->batch_key = key_of_batches(o, o->seed, r->n_parts);
    o->n_batches = cut_buckets(d, o->left_start, o->global_batch, r->tokens, r->drop_last,
                               o->first_batch);
    return RD_OK;
}

/* Returns the number of samples of the largest batch, without windows. */
static int64_t largest_batch(const rd_order *o)
{
    int64_t most = 1;
    for (int b = 0; b < o->d->n_buckets; b++) {
        const int64_t n = batch_of_bucket(o->d, o->global_batch, o->rules.tokens, b);
        most = n > most ? n : most;
    }
    return most;
}

rd_code rd_order_new(const rd_dataset *d, uint64_t seed, int64_t epoch, int64_t global_batch,
                     const rd_order_rules *rules, rd_order **out, rd_status *st)
{
    *out = NULL;
    rd_order *o = NULL;
    RD_TRY(check_rules(d, global_batch, rules, st));
    o = calloc(1, sizeof *o);
    if (!o) return rd_fail(st, RD_EENV, "out of memory");
    o->d = d;
    o->seed = seed;
    o->epoch = epoch;
    o->global_batch = global_batch;
    o->rules = *rules;
    o->ids_of = -1;
    o->batch_key = key_of_batches(o, seed, 0);
    o->first_batch = calloc((size_t)d->n_buckets + 1, sizeof *o->first_batch);
    if (!o->first_batch) RD_TRY(rd_fail(st, RD_EENV, "out of memory"));
    RD_TRY(count_batches(o, st));
    if (rules->n_parts > 0) RD_TRY(take_left(o, st));
    if (rules->tokens > 0 && !is_by_bucket(d, rules->tokens)) {
        RD_TRY(rd_windows_new(d, o->left ? o->left : d->members,
                              o->left ? o->left_start[d->n_buckets] : d->kept, rules->tokens, seed,
                              epoch, rules->n_parts, &o->windows, st));
        o->n_batches = rd_windows_n_batches(o->windows);
    }
    /* independent: several ranks may have the same sample in one batch */
    const int64_t largest = largest_batch(o), capacity = o->windows ? rd_windows_longest(o->windows)
                                                         : largest < d->kept || rules->independent
                                                             ? largest
                                                             : d->kept;
    o->ids = malloc((size_t)(capacity + 1) * sizeof *o->ids);
    o->items = d->def->length ? malloc((size_t)(capacity + 1) * sizeof *o->items) : NULL;
    o->from = calloc((size_t)(rules->independent ? rules->size : 0) + 1, sizeof *o->from);
    if (!o->ids || !o->from || (d->def->length && !o->items))
        RD_TRY(rd_fail(st, RD_EENV, "out of memory for a batch of %" PRId64 " samples", capacity));
    o->rules.parts = NULL;
    if (!rules->shuffle && !rules->independent) RD_TRY(keep_file_order(o, st));
    *out = o;
    return RD_OK;
done:
    rd_order_free(o);
    return st->code;
}

void rd_order_free(rd_order *o)
{
    if (!o) return;
    rd_windows_free(o->windows);
    free(o->first_batch);
    free(o->left);
    free(o->left_start);
    free(o->kept);
    free(o->ids);
    free(o->items);
    free(o->from);
    free(o);
}

int64_t rd_order_n_batches(const rd_order *o)
{
    return o->n_batches;
}

int64_t rd_order_n_whole(const rd_order *o)
{
    return o->n_whole;
}

int64_t rd_order_n_samples(const rd_order *o)
{
    const bool whole = o->rules.independent ||
                       (o->rules.shuffle && o->rules.drop_last && o->rules.tokens == 0);
    const int64_t used = o->left ? o->d->kept - o->left_start[o->d->n_buckets] : 0;
    return whole ? used + o->n_batches * o->global_batch : o->d->kept;
}

static int64_t fill_shuffled(const rd_order *o, int64_t k)
{
    const rd_dataset *d = o->d;
    const int64_t at = (int64_t)rd_permute(o->batch_key, (uint64_t)o->n_batches, (uint64_t)k);
    int b = 0;
    while (at >= o->first_batch[b + 1]) b++;
    const int64_t *start = o->left ? o->left_start : d->start;
    const int64_t batch = batch_of_bucket(d, o->global_batch, o->rules.tokens, b);
    const int64_t n = start[b + 1] - start[b], from = (at - o->first_batch[b]) * batch;
    const int64_t m = n - from < batch ? n - from : batch;
    rd_assert(b < d->n_buckets && from >= 0 && m > 0);
    const rd_key key = key_of_bucket(o, o->seed, b);
    for (int64_t i = 0; i < m; i++)
        o->ids[i] = o->left ? o->left[start[b] + from + i] : sample_at(o, key, b, n, from + i);
    return m;
}

/* Rank r is at step epoch * n_batches + k of its walk. Each pass has its own permutation of samples
 * and one of batches: the smaller last batch is not always the last. */
static int64_t fill_independent(const rd_order *o, int64_t k)
{
    const rd_dataset *d = o->d;
    /* The epoch of a checkpoint may be any number; the product may not fit into 64 bits. */
    const unsigned __int128 step = (unsigned __int128)o->epoch * (uint64_t)o->n_batches +
                                   (uint64_t)k;
    const uint64_t pass = (uint64_t)(step / (uint64_t)o->per_pass),
                   at = (uint64_t)(step % (uint64_t)o->per_pass);
    const int64_t own = o->global_batch / o->rules.size;
    int64_t m = 0;
    for (int r = 0; r < o->rules.size; r++) {
        const uint64_t stream = (uint64_t)(r + 1) << 32; /* above the numbers of buckets */
        const rd_key order = rd_key_make(o->seed, RD_RNG_ORDER, pass, stream);
        const rd_key places = rd_key_make(o->seed, RD_RNG_ORDER, pass, stream + 1);
        const int64_t from = own * (int64_t)rd_permute(order, (uint64_t)o->per_pass, at);
        o->from[r] = m;
        for (int64_t i = from; i < from + own && i < d->kept; i++) {
            const int64_t place = (int64_t)rd_permute(places, (uint64_t)d->kept, (uint64_t)i);
            o->ids[m++] = d->members ? d->members[place] : place;
        }
    }
    rd_assert(m <= o->global_batch);
    o->from[o->rules.size] = m;
    return m;
}

static int64_t fill_in_order(const rd_order *o, int64_t k)
{
    const int64_t from = k * o->global_batch, left = o->d->kept - from;
    const int64_t m = left < o->global_batch ? left : o->global_batch;
    rd_assert(m > 0 && from + m <= o->d->kept);
    for (int64_t i = 0; i < m; i++) o->ids[i] = o->kept ? o->kept[from + i] : from + i;
    return m;
}

static int64_t fill_by_tokens(const rd_order *o, int64_t k)
{
    int64_t n;
    const rd_window_item *x = rd_windows_batch(o->windows, k, &n);
    for (int64_t i = 0; i < n; i++) o->ids[i] = x[i].id;
    return n;
}

void rd_order_count_tokens(const rd_order *o, int64_t samples, rd_order_tokens *out)
{
    const rd_dataset *d = o->d;
    *out = (rd_order_tokens){0};
    if (o->windows) rd_windows_count(o->windows, samples, out);
    if (o->windows || o->rules.tokens == 0) return;
    for (int64_t k = 0; k < o->n_batches && out->samples < samples; k++) {
        int64_t n, tokens = 0, longest = 0;
        const int64_t *ids = rd_order_batch(o, k, &n);
        for (int64_t i = 0; i < n; i++) {
            const int64_t m = d->def->tokens(d->self, ids[i]);
            tokens += m;
            longest = m > longest ? m : longest;
        }
        rd_order_tokens_add(out, n, tokens, longest);
    }
}

const int64_t *rd_order_batch(const rd_order *o, int64_t k, int64_t *n)
{
    rd_assert(k >= 0 && k < o->n_batches);
    if (k != o->ids_of) {
        /* The ids of the last batch are kept: callers ask for its size and then deal it. */
        rd_order *w = (rd_order *)(uintptr_t)o;
        w->n_ids = o->windows             ? fill_by_tokens(o, k)
                   : o->rules.independent ? fill_independent(o, k)
                   : o->rules.shuffle     ? fill_shuffled(o, k)
                                          : fill_in_order(o, k);
        w->ids_of = k;
    }
    *n = o->n_ids;
    return o->ids;
}

static int longest_first(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->length != y->length) return x->length > y->length ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* Computes where a rank's run of the ids starts, and returns its length. independent: the rank's
 * own batch. Else whole units, at most one more than another rank has. */
static int64_t deal_run(const rd_order *o, int64_t n, int rank, int size, int64_t *from)
{
    if (o->rules.independent) {
        *from = rank < o->rules.size ? o->from[rank] : n;
        return rank < o->rules.size ? o->from[rank + 1] - *from : 0;
    }
    const int64_t unit = o->rules.unit > 0 ? o->rules.unit : 1, n_units = n / unit + (n % unit > 0);
    *from = n_units * rank / size * unit;
    const int64_t end = n_units * (rank + 1) / size * unit;
    rd_assert(*from >= 0 && *from <= end);
    if (*from > n) *from = n;
    return (end < n ? end : n) - *from;
}

bool rd_order_is_dealt(int64_t i, int rank, int size)
{
    const int64_t row = i / size, col = i % size;
    return (row % 2 == 0 ? col : size - 1 - col) == rank;
}

/* Deals the samples that a rank holds among its micro-batches. *here: number of them so far. */
static bool deal_shard(const rd_order *o, int64_t id, int64_t *here, int rank, int size)
{
    const int n_own = o->rules.n_own > 0 ? o->rules.n_own : 1;
    return id % (size / n_own) == rank / n_own && rd_order_is_dealt((*here)++, rank % n_own, n_own);
}

static int64_t deal_by_length(const rd_order *o, const int64_t *batch, int64_t n, int rank,
                              int size, int64_t *ids)
{
    int64_t mine = 0, here = 0;
    for (int64_t i = 0; i < n; i++)
        o->items[i] = (item){batch[i], o->d->def->length(o->d->self, batch[i]), i};
    qsort(o->items, (size_t)n, sizeof *o->items, longest_first);
    for (int64_t i = 0; i < n; i++) {
        const int64_t id = o->items[i].id;
        if (o->d->sharded ? deal_shard(o, id, &here, rank, size) : rd_order_is_dealt(i, rank, size))
            ids[mine++] = id;
    }
    return mine;
}

int64_t rd_order_deal(const rd_order *o, int64_t k, int rank, int size, int64_t *ids)
{
    int64_t n, from, mine = 0, here = 0;
    rd_assert(rank >= 0 && rank < size);
    const int64_t *batch = rd_order_batch(o, k, &n);
    const bool by_length = o->d->def->length != NULL;
    if (o->d->sharded && !by_length) {
        for (int64_t i = 0; i < n; i++)
            if (deal_shard(o, batch[i], &here, rank, size)) ids[mine++] = batch[i];
        return mine;
    }
    if (by_length && !o->rules.independent) return deal_by_length(o, batch, n, rank, size, ids);
    mine = deal_run(o, n, rank, size, &from);
    rd_assert(mine >= 0 && from >= 0 && from + mine <= n);
    if (mine > 0 && by_length) return deal_by_length(o, batch + from, mine, 0, 1, ids);
    if (mine > 0) memcpy(ids, batch + from, (size_t)mine * sizeof *ids);
    return mine;
}
