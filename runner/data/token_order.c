/* token_order.c -- global batches of an epoch, each with about the same number of target tokens.
 *
 * The samples go through a keyed permutation, which is cut into windows of about 64 batches. A
 * window is sorted by the number of target tokens, so a batch holds sentences of similar length.
 * The sorted window is cut where the sum of target tokens passes equal parts. The batches of a
 * window then go through a keyed permutation.
 *
 * The number of batches of an epoch is its target tokens divided by those of a batch, rounded. It
 * is the same in every epoch. A window gets its share of them by the target tokens up to its end,
 * so no rounding adds up. Nothing depends on the number of ranks. */
#include "data_impl.h"
#include "rd/philox.h"
#include <inttypes.h>
#include <stdlib.h>

enum {
    WINDOW_BATCHES = 64,
    WINDOW_SAMPLES = 200000 /* a window with larger batches has fewer of them */
};

/* A sum of target tokens times a number of batches may not fit into 64 bits. */
typedef unsigned __int128 wide;

struct rd_windows {
    const rd_dataset *d;
    const uint32_t *list; /* borrowed; [n] the ids; NULL: 0 .. n - 1 */
    int64_t n;
    uint64_t seed, stream;
    int64_t epoch;
    rd_key places;
    int64_t n_windows, n_batches;
    int64_t *first;       /* owned; [n_windows + 1] the first batch of each window */
    int64_t sorted;       /* the window that `item` holds; -1: none */
    rd_window_item *item; /* owned; [samples of the largest window] */
    int64_t *cut;         /* owned; [batches of the largest window + 1] */
};

static int64_t id_at(const rd_windows *w, int64_t place)
{
    return w->list ? w->list[place] : place;
}

int64_t rd_windows_place(const rd_windows *w, int64_t i)
{
    return (int64_t)rd_permute(w->places, (uint64_t)w->n, (uint64_t)i);
}

/* Returns where window k begins among the permuted samples. */
static int64_t window_begin(const rd_windows *w, int64_t k)
{
    return (int64_t)((wide)w->n * (uint64_t)k / (uint64_t)w->n_windows);
}

static int64_t tokens_of(const rd_windows *w, int64_t place)
{
    return w->d->def->tokens(w->d->self, id_at(w, place));
}

static int64_t n_batches_of(int64_t tokens, int64_t per_batch, int64_t n)
{
    const int64_t k = tokens / per_batch + (2 * (tokens % per_batch) >= per_batch);
    return n == 0 ? 0 : k < 1 ? 1 : k > n ? n : k;
}

int64_t rd_windows_n_updates(const rd_dataset *d, int64_t tokens, int64_t *in_all)
{
    *in_all = 0;
    for (int64_t i = 0; d->def->tokens && i < d->kept; i++)
        *in_all += d->def->tokens(d->self, d->members ? d->members[i] : i);
    return n_batches_of(*in_all, tokens, d->kept);
}

/* Gives each window its batches: at least one, at most one a sample. in_all: all target tokens. */
static void share_batches(rd_windows *w, int64_t in_all)
{
    int64_t before = 0;
    for (int64_t k = 0; k < w->n_windows; k++) {
        const int64_t begin = window_begin(w, k), end = window_begin(w, k + 1);
        int64_t least = w->n_batches - (w->n - end), most = w->n_batches - (w->n_windows - k - 1);
        /* The last window takes what is left, and its tokens are not needed. */
        for (int64_t i = begin; i < end && k + 1 < w->n_windows; i++)
            before += tokens_of(w, rd_windows_place(w, i));
        int64_t to = k + 1 < w->n_windows
                         ? (int64_t)((2 * (wide)before * (wide)w->n_batches + (wide)in_all) /
                                     (2 * (wide)in_all))
                         : w->n_batches;
        if (least < w->first[k] + 1) least = w->first[k] + 1;
        if (most > w->first[k] + end - begin) most = w->first[k] + end - begin;
        to = to < least ? least : to;
        w->first[k + 1] = to > most ? most : to;
    }
}

rd_code rd_windows_new(const rd_dataset *d, const uint32_t *list, int64_t n, int64_t tokens,
                       uint64_t seed, int64_t epoch, int part, rd_windows **out, rd_status *st)
{
    rd_windows *w = *out = calloc(1, sizeof *w);
    int64_t in_all = 0, samples = 0, batches = 0;
    if (!w) return rd_fail(st, RD_EENV, "out of memory");
    /* Above the numbers of buckets and below those of the next part; see sample_order.c. */
    w->stream = ((uint64_t)part << 32) + (UINT64_C(1) << 31);
    *w = (rd_windows){.d = d,
                      .list = list,
                      .n = n,
                      .seed = seed,
                      .stream = w->stream,
                      .epoch = epoch,
                      .places = rd_key_make(seed, RD_RNG_ORDER, (uint64_t)epoch, w->stream),
                      .sorted = -1};
    for (int64_t i = 0; i < n; i++) in_all += tokens_of(w, i);
    w->n_batches = n_batches_of(in_all, tokens, n);
    w->n_windows = w->n_batches / WINDOW_BATCHES;
    if (w->n_windows < n / WINDOW_SAMPLES) w->n_windows = n / WINDOW_SAMPLES;
    if (w->n_windows > w->n_batches) w->n_windows = w->n_batches;
    if (w->n_windows < 1) w->n_windows = 1;
    w->first = calloc((size_t)w->n_windows + 1, sizeof *w->first);
    if (w->first && n > 0) share_batches(w, in_all);
    for (int64_t k = 0; w->first && k < w->n_windows; k++) {
        const int64_t m = window_begin(w, k + 1) - window_begin(w, k);
        samples = m > samples ? m : samples;
        batches = w->first[k + 1] - w->first[k] > batches ? w->first[k + 1] - w->first[k] : batches;
    }
    w->item = malloc((size_t)(samples + 1) * sizeof *w->item);
    w->cut = malloc((size_t)(batches + 1) * sizeof *w->cut);
    if (w->first && w->item && w->cut) return RD_OK;
    rd_windows_free(w);
    *out = NULL;
    return rd_fail(st, RD_EENV, "out of memory for the order of %" PRId64 " samples", n);
}

void rd_windows_free(rd_windows *w)
{
    if (!w) return;
    free(w->first);
    free(w->item);
    free(w->cut);
    free(w);
}

int64_t rd_windows_n_batches(const rd_windows *w)
{
    return w->n_batches;
}

int64_t rd_windows_longest(const rd_windows *w)
{
    int64_t most = 0;
    for (int64_t k = 0; k < w->n_windows; k++) {
        const int64_t m = window_begin(w, k + 1) - window_begin(w, k);
        most = m > most ? m : most;
    }
    return most;
}

static int by_tokens(const void *a, const void *b)
{
    const rd_window_item *x = a, *y = b;
    if (x->tokens != y->tokens) return x->tokens < y->tokens ? -1 : 1;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* Sorts window k and cuts it into batches. */
static void sort_window(rd_windows *w, int64_t k)
{
    const int64_t begin = window_begin(w, k), n = window_begin(w, k + 1) - begin,
                  m = w->first[k + 1] - w->first[k];
    int64_t in_all = 0, sum = 0, i = 0;
    if (w->sorted == k) return;
    for (int64_t j = 0; j < n; j++) {
        const int64_t place = rd_windows_place(w, begin + j), id = id_at(w, place);
        w->item[j] = (rd_window_item){
            .id = id,
            .place = place,
            .at = j,
            .tokens = w->d->def->tokens(w->d->self, id),
            .length = w->d->def->length ? w->d->def->length(w->d->self, id) : 0};
        in_all += w->item[j].tokens;
    }
    qsort(w->item, (size_t)n, sizeof *w->item, by_tokens);
    w->cut[0] = 0;
    for (int64_t j = 1; j <= m; j++) {
        const int64_t goal = (int64_t)((wide)in_all * (uint64_t)j / (uint64_t)m);
        /* The nearest cut, which leaves a sample for this batch and for each one after it. */
        while (i < n - (m - j) &&
               (i < w->cut[j - 1] + 1 || j == m || 2 * (goal - sum) >= w->item[i].tokens))
            sum += w->item[i++].tokens;
        w->cut[j] = i;
    }
    rd_assert(w->cut[m] == n);
    w->sorted = k;
}

const rd_window_item *rd_windows_batch(rd_windows *w, int64_t k, int64_t *n)
{
    int64_t lo = 0, hi = w->n_windows;
    rd_assert(k >= 0 && k < w->n_batches);
    while (hi - lo > 1) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (k < w->first[mid])
            hi = mid;
        else
            lo = mid;
    }
    sort_window(w, lo);
    const rd_key key = rd_key_make(w->seed, RD_RNG_ORDER, (uint64_t)w->epoch,
                                   w->stream + 1 + (uint64_t)lo);
    const int64_t j = (int64_t)rd_permute(key, (uint64_t)(w->first[lo + 1] - w->first[lo]),
                                          (uint64_t)(k - w->first[lo]));
    *n = w->cut[j + 1] - w->cut[j];
    return w->item + w->cut[j];
}

void rd_order_tokens_add(rd_order_tokens *out, int64_t n, int64_t tokens, int64_t longest)
{
    out->least = out->batches == 0 || tokens < out->least ? tokens : out->least;
    out->most = tokens > out->most ? tokens : out->most;
    out->batches++;
    out->samples += n;
    out->tokens += tokens;
    out->padded += n * longest;
}

void rd_windows_count(rd_windows *w, int64_t samples, rd_order_tokens *out)
{
    *out = (rd_order_tokens){0};
    for (int64_t k = 0; k < w->n_batches && out->samples < samples; k++) {
        int64_t n, tokens = 0, longest = 0;
        const rd_window_item *x = rd_windows_batch(w, k, &n);
        for (int64_t i = 0; i < n; i++) {
            tokens += x[i].tokens;
            longest = x[i].tokens > longest ? x[i].tokens : longest;
        }
        rd_order_tokens_add(out, n, tokens, longest);
    }
}
