/* sample_order.c -- which samples make up global batch k of an epoch, and which of them a rank
 * computes.
 *
 * Nothing is stored. The position of a batch goes through a keyed permutation of all batches, which
 * gives a bucket and a range of positions in it. Each of these goes through a keyed permutation of
 * the bucket. So an epoch of five million samples starts at once, there is no generator state to
 * save, and the order does not depend on the number of ranks.
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
    uint32_t *kept;       /* [kept] no shuffle, some skipped: kept ids in file order; else NULL */
    rd_key batch_key;
    int64_t ids_of; /* batch whose ids are in `ids`; -1: none */
    int64_t n_ids;
    int64_t *ids;     /* [global_batch] */
    item *items;      /* [global_batch] for sorting; NULL: samples have no length */
    int64_t *from;    /* [size + 1] independent: where the batch of each rank starts in ids */
    int64_t per_pass; /* independent: number of batches in one pass of a rank */
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
                       "no sample to train on: all %" PRId64
                       " of '%s' are skipped for their length; raise the bucket "
                       "limits",
                       d->count, d->def->name);
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

/* Counts the batches of the epoch. RD_EUSAGE if the rules leave none. */
static rd_code count_batches(rd_order *o, rd_status *st)
{
    const rd_dataset *d = o->d;
    const rd_order_rules *r = &o->rules;
    const int64_t gb = o->global_batch;
    if (r->independent) {
        const int64_t own = gb / r->size;
        o->per_pass = d->kept / own + (!r->drop_last && d->kept % own > 0);
        o->n_batches = d->kept / own / r->size;
    } else if (r->shuffle) {
        for (int b = 0; b < d->n_buckets; b++) {
            const int64_t n = d->start[b + 1] - d->start[b];
            o->first_batch[b + 1] = o->first_batch[b] + n / gb + (!r->drop_last && n % gb > 0);
        }
        o->n_batches = o->first_batch[d->n_buckets];
    } else {
        o->n_batches = d->kept / gb + (d->kept % gb > 0);
    }
    if (o->n_batches == 0 && d->kept > 0)
        return rd_fail(st, RD_EUSAGE,
                       "an epoch without a batch: %" PRId64 " sample%s, a global batch of %" PRId64
                       "%s; lower "
                       "batch_size or use fewer ranks",
                       d->kept, RD_S(d->kept), gb, r->drop_last ? " and no smaller last one" : "");
    return RD_OK;
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
    o->batch_key = rd_key_make(seed, RD_RNG_ORDER, (uint64_t)epoch, 0);
    /* independent: several ranks may have the same sample in one batch */
    const int64_t capacity = global_batch < d->kept || rules->independent ? global_batch : d->kept;
    o->ids = malloc((size_t)(capacity + 1) * sizeof *o->ids);
    o->items = d->def->length ? malloc((size_t)(capacity + 1) * sizeof *o->items) : NULL;
    o->first_batch = calloc((size_t)d->n_buckets + 1, sizeof *o->first_batch);
    o->from = calloc((size_t)(rules->independent ? rules->size : 0) + 1, sizeof *o->from);
    if (!o->ids || !o->first_batch || !o->from || (d->def->length && !o->items))
        RD_TRY(rd_fail(st, RD_EENV, "out of memory for a batch of %" PRId64 " samples", capacity));
    RD_TRY(count_batches(o, st));
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
    free(o->first_batch);
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

int64_t rd_order_n_samples(const rd_order *o)
{
    const bool whole = o->rules.independent || (o->rules.shuffle && o->rules.drop_last);
    return whole ? o->n_batches * o->global_batch : o->d->kept;
}

static int64_t fill_shuffled(const rd_order *o, int64_t k)
{
    const rd_dataset *d = o->d;
    const int64_t at = (int64_t)rd_permute(o->batch_key, (uint64_t)o->n_batches, (uint64_t)k);
    int b = 0;
    while (at >= o->first_batch[b + 1]) b++;
    const int64_t n = d->start[b + 1] - d->start[b],
                  from = (at - o->first_batch[b]) * o->global_batch;
    const int64_t m = n - from < o->global_batch ? n - from : o->global_batch;
    rd_assert(b < d->n_buckets && from >= 0 && m > 0 && m <= o->global_batch);
    const rd_key key = rd_key_make(o->seed, RD_RNG_ORDER, (uint64_t)o->epoch, (uint64_t)b + 1);
    for (int64_t i = 0; i < m; i++) {
        const int64_t place = d->start[b] +
                              (int64_t)rd_permute(key, (uint64_t)n, (uint64_t)(from + i));
        o->ids[i] = d->members ? d->members[place] : place;
    }
    return m;
}

/* Rank r is at step epoch * n_batches + k of its walk. Each pass has its own permutation of samples
 * and one of batches: the smaller last batch is not always the last. */
static int64_t fill_independent(const rd_order *o, int64_t k)
{
    const rd_dataset *d = o->d;
    const int64_t step = o->epoch * o->n_batches + k, pass = step / o->per_pass,
                  own = o->global_batch / o->rules.size;
    int64_t m = 0;
    for (int r = 0; r < o->rules.size; r++) {
        const uint64_t stream = (uint64_t)(r + 1) << 32; /* above the numbers of buckets */
        const rd_key order = rd_key_make(o->seed, RD_RNG_ORDER, (uint64_t)pass, stream);
        const rd_key places = rd_key_make(o->seed, RD_RNG_ORDER, (uint64_t)pass, stream + 1);
        const int64_t from = own * (int64_t)rd_permute(order, (uint64_t)o->per_pass,
                                                       (uint64_t)(step % o->per_pass));
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

const int64_t *rd_order_batch(const rd_order *o, int64_t k, int64_t *n)
{
    rd_assert(k >= 0 && k < o->n_batches);
    if (k != o->ids_of) {
        /* The ids of the last batch are kept: callers ask for its size and then deal it. */
        rd_order *w = (rd_order *)(uintptr_t)o;
        w->n_ids = o->rules.independent ? fill_independent(o, k)
                   : o->rules.shuffle   ? fill_shuffled(o, k)
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

static int64_t deal_by_length(const rd_order *o, const int64_t *batch, int64_t n, int rank,
                              int size, int64_t *ids)
{
    int64_t mine = 0;
    for (int64_t i = 0; i < n; i++)
        o->items[i] = (item){batch[i], o->d->def->length(o->d->self, batch[i]), i};
    qsort(o->items, (size_t)n, sizeof *o->items, longest_first);
    for (int64_t i = 0; i < n; i++) {
        if (o->d->sharded) {
            if (o->items[i].id % size == rank) ids[mine++] = o->items[i].id;
            continue;
        }
        /* Back and forth: ranks 0 .. size - 1, then size - 1 .. 0, so that no rank always gets the
         * longer one. */
        const int64_t row = i / size, col = i % size;
        if ((row % 2 == 0 ? col : size - 1 - col) == rank) ids[mine++] = o->items[i].id;
    }
    return mine;
}

int64_t rd_order_deal(const rd_order *o, int64_t k, int rank, int size, int64_t *ids)
{
    int64_t n, from, mine = 0;
    rd_assert(rank >= 0 && rank < size);
    const int64_t *batch = rd_order_batch(o, k, &n);
    const bool by_length = o->d->def->length != NULL;
    if (o->d->sharded && !by_length) {
        for (int64_t i = 0; i < n; i++)
            if (batch[i] % size == rank) ids[mine++] = batch[i];
        return mine;
    }
    if (by_length && !o->rules.independent) return deal_by_length(o, batch, n, rank, size, ids);
    mine = deal_run(o, n, rank, size, &from);
    rd_assert(mine >= 0 && from >= 0 && from + mine <= n);
    if (mine > 0 && by_length) return deal_by_length(o, batch + from, mine, 0, 1, ids);
    if (mine > 0) memcpy(ids, batch + from, (size_t)mine * sizeof *ids);
    return mine;
}
