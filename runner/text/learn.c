/* learn.c -- learns merges: the most frequent pair of neighbours becomes a symbol, again and again
 * (Sennrich, Haddow and Birch 2016).
 *
 * Words share only counts. Each pair has its count and a list of the words that have it. After a
 * merge only those words are counted again. A heap has the pairs by count. A count that has fallen
 * since is found when its entry comes to the top: the entry goes back with the new count. */
#include "learn.h"
#include "rd/clock.h"
#include "rd/hash.h"
#include <inttypes.h>
#include <stdlib.h>

typedef struct learn_pair {
    int32_t left, right;
    int64_t count;
    int32_t *words; /* indices of words; some are out of date or repeated */
    int32_t n_words, cap_words;
    bool grown; /* it is in rd_learner.grown */
} learn_pair;

typedef struct learn_word {
    size_t at; /* first of its symbols in rd_learner.symbol */
    uint32_t n;
    int64_t count;
} learn_word;

typedef struct learn_entry {
    int64_t count; /* of the pair when the entry was made */
    int32_t pair;
} learn_entry;

struct rd_learner {
    rd_strings symbols;
    int32_t *symbol; /* symbols of all words */
    size_t n_symbol, cap_symbol;
    learn_word *word;
    int32_t n_words, cap_words;
    learn_pair *pair;
    int32_t n_pairs, cap_pairs;
    int32_t *slot; /* hash table of pairs: index + 1 */
    size_t pair_mask;
    learn_entry *heap;
    size_t n_heap, cap_heap;
    int32_t *grown; /* pairs whose count grew in this merge */
    size_t n_grown, cap_grown;
    bool largest_string, failed;
};

/* Makes room for one more element; doubles the array. false: out of memory. */
static bool learn_room(void *array, size_t n, size_t *cap, size_t bytes)
{
    void *p;
    if (n < *cap) return true;
    memcpy(&p, array, sizeof p);
    p = realloc(p, (*cap * 2 + 64) * bytes);
    if (!p) return false;
    memcpy(array, &p, sizeof p);
    *cap = *cap * 2 + 64;
    return true;
}

static bool learn_room32(void *array, int32_t n, int32_t *cap, size_t bytes)
{
    size_t wide = (size_t)*cap;
    if (n >= INT32_MAX / 4 || !learn_room(array, (size_t)n, &wide, bytes)) return false;
    *cap = (int32_t)wide;
    return true;
}

bool rd_counts_add(rd_counts *c, const char *at, size_t n)
{
    const int32_t before = c->words.n, id = rd_strings_add(&c->words, at, n);
    if (id < 0) return false;
    if (id == before) {
        if (!learn_room32(&c->count, before, &c->cap, sizeof *c->count)) return false;
        c->count[id] = 0;
    }
    c->count[id]++;
    return true;
}

void rd_counts_release(rd_counts *c)
{
    rd_strings_release(&c->words);
    free(c->count);
    *c = (rd_counts){0};
}

/* ---- pairs ---- */

static size_t pair_hash(int32_t left, int32_t right)
{
    return (size_t)rd_fold(((uint64_t)(uint32_t)left << 32 | (uint32_t)right) ^ RD_WY0, RD_WY1);
}

static bool grow_slots(rd_learner *l)
{
    const size_t mask = l->pair_mask ? l->pair_mask * 2 + 1 : 65535;
    int32_t *slot = calloc(mask + 1, sizeof *slot);
    if (!slot) return false;
    for (int32_t k = 0; k < l->n_pairs; k++) {
        size_t i = pair_hash(l->pair[k].left, l->pair[k].right) & mask;
        while (slot[i]) i = (i + 1) & mask;
        slot[i] = k + 1;
    }
    free(l->slot);
    l->slot = slot;
    l->pair_mask = mask;
    return true;
}

/* Returns the pair, which is added if it is new. -1: out of memory. */
static int32_t pair_of(rd_learner *l, int32_t left, int32_t right)
{
    if ((size_t)l->n_pairs * 2 >= l->pair_mask && !grow_slots(l)) return -1;
    size_t i = pair_hash(left, right) & l->pair_mask;
    for (; l->slot[i]; i = (i + 1) & l->pair_mask) {
        const learn_pair *p = &l->pair[l->slot[i] - 1];
        if (p->left == left && p->right == right) return l->slot[i] - 1;
    }
    if (!learn_room32(&l->pair, l->n_pairs, &l->cap_pairs, sizeof *l->pair)) return -1;
    l->pair[l->n_pairs] = (learn_pair){.left = left, .right = right};
    l->slot[i] = ++l->n_pairs;
    return l->n_pairs - 1;
}

/* Adds sign times the word's count to its pairs. The word enters the lists of its pairs that
 * contain the symbol `fresh` (-1: of all of them); the other pairs have the word already. */
static bool count_pairs(rd_learner *l, int32_t w, int sign, int32_t fresh)
{
    const learn_word *word = &l->word[w];
    const int32_t *s = l->symbol + word->at;
    for (uint32_t i = 0; i + 1 < word->n; i++) {
        const int32_t at = pair_of(l, s[i], s[i + 1]);
        if (at < 0) return false;
        learn_pair *p = &l->pair[at];
        p->count += sign * word->count;
        if (sign < 0 || (fresh >= 0 && s[i] != fresh && s[i + 1] != fresh)) continue;
        if (p->n_words == 0 || p->words[p->n_words - 1] != w) {
            if (!learn_room32(&p->words, p->n_words, &p->cap_words, sizeof *p->words)) return false;
            p->words[p->n_words++] = w;
        }
        if (fresh < 0 || p->grown) continue;
        p->grown = true;
        if (!learn_room(&l->grown, l->n_grown, &l->cap_grown, sizeof *l->grown)) return false;
        l->grown[l->n_grown++] = at;
    }
    return true;
}

/* ---- the heap of pairs ---- */

static bool is_better(const rd_learner *l, learn_entry a, learn_entry b)
{
    if (a.count != b.count) return a.count > b.count;
    const learn_pair *x = &l->pair[a.pair], *y = &l->pair[b.pair];
    if (!l->largest_string) return x->left != y->left ? x->left < y->left : x->right < y->right;
    const int c = rd_strings_compare(&l->symbols, x->left, y->left);
    return c ? c > 0 : rd_strings_compare(&l->symbols, x->right, y->right) > 0;
}

static bool learn_push(rd_learner *l, int32_t pair)
{
    if (!learn_room(&l->heap, l->n_heap, &l->cap_heap, sizeof *l->heap)) return false;
    const learn_entry e = {l->pair[pair].count, pair};
    size_t i = l->n_heap++;
    while (i > 0 && is_better(l, e, l->heap[(i - 1) / 2])) {
        l->heap[i] = l->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    l->heap[i] = e;
    return true;
}

static learn_entry learn_pop(rd_learner *l)
{
    const learn_entry top = l->heap[0], e = l->heap[--l->n_heap];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < l->n_heap; i = k) {
        if (k + 1 < l->n_heap && is_better(l, l->heap[k + 1], l->heap[k])) k++;
        if (!is_better(l, l->heap[k], e)) break;
        l->heap[i] = l->heap[k];
    }
    l->heap[i] = e;
    return top;
}

/* Returns the most frequent pair, -1: none occurs min_count times. */
static int32_t best_pair(rd_learner *l, int64_t min_count)
{
    while (l->n_heap > 0) {
        const learn_entry e = learn_pop(l);
        const int64_t count = l->pair[e.pair].count;
        if (e.count == count) return count >= min_count ? e.pair : -1;
        /* A larger count has an entry itself. The place of the popped one is free. */
        if (count < e.count && count >= min_count) (void)learn_push(l, e.pair);
    }
    return -1;
}

/* ---- learning ---- */

static bool has_pair(const int32_t *s, uint32_t n, int32_t left, int32_t right)
{
    for (uint32_t i = 0; i + 1 < n; i++)
        if (s[i] == left && s[i + 1] == right) return true;
    return false;
}

/* Replaces every (left, right) by `to`, from left to right. Returns the new length. */
static uint32_t replace_pair(int32_t *s, uint32_t n, int32_t left, int32_t right, int32_t to)
{
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++) {
        const bool here = i + 1 < n && s[i] == left && s[i + 1] == right;
        s[m++] = here ? to : s[i];
        i += here;
    }
    return m;
}

static bool merge_pair(rd_learner *l, int32_t best, int32_t to)
{
    const learn_pair p = l->pair[best]; /* the table moves while words are counted again */
    bool good = true;
    l->pair[best].words = NULL;
    l->pair[best].n_words = l->pair[best].cap_words = 0;
    l->n_grown = 0;
    for (int32_t i = 0; i < p.n_words && good; i++) {
        learn_word *w = &l->word[p.words[i]];
        int32_t *s = l->symbol + w->at;
        if (!has_pair(s, w->n, p.left, p.right)) continue;
        good = count_pairs(l, p.words[i], -1, -1);
        w->n = replace_pair(s, w->n, p.left, p.right, to);
        good = good && count_pairs(l, p.words[i], 1, to);
    }
    free(p.words);
    for (size_t i = 0; i < l->n_grown && good; i++) {
        l->pair[l->grown[i]].grown = false;
        good = learn_push(l, l->grown[i]);
    }
    return good;
}

static rd_code learn_no_memory(const rd_learner *l, rd_status *st)
{
    return rd_fail(st, RD_EENV,
                   "out of memory while merges are learned: %" PRId32 " different words, %" PRId32
                   " pairs; train from fewer lines",
                   l->n_words, l->n_pairs);
}

rd_code rd_learner_new(rd_learner **out, rd_status *st)
{
    *out = calloc(1, sizeof **out);
    return *out ? RD_OK : rd_fail(st, RD_EENV, "out of memory");
}

void rd_learner_free(rd_learner *l)
{
    if (!l) return;
    for (int32_t i = 0; i < l->n_pairs; i++) free(l->pair[i].words);
    rd_strings_release(&l->symbols);
    free(l->symbol);
    free(l->word);
    free(l->pair);
    free(l->slot);
    free(l->heap);
    free(l->grown);
    free(l);
}

rd_strings *rd_learner_symbols(rd_learner *l)
{
    return &l->symbols;
}

rd_code rd_learner_word(rd_learner *l, const int32_t *symbol, size_t n, int64_t count,
                        rd_status *st)
{
    if (n < 2) return RD_OK;
    if (l->symbols.failed || n > UINT32_MAX ||
        !learn_room32(&l->word, l->n_words, &l->cap_words, sizeof *l->word))
        return learn_no_memory(l, st);
    if (l->n_symbol + n > l->cap_symbol) {
        const size_t cap = (l->n_symbol + n) * 2;
        int32_t *p = realloc(l->symbol, cap * sizeof *p);
        if (!p) return learn_no_memory(l, st);
        l->symbol = p;
        l->cap_symbol = cap;
    }
    memcpy(l->symbol + l->n_symbol, symbol, n * sizeof *symbol);
    l->word[l->n_words] = (learn_word){l->n_symbol, (uint32_t)n, count};
    l->n_symbol += n;
    if (!count_pairs(l, l->n_words++, 1, -1)) return learn_no_memory(l, st);
    return RD_OK;
}

rd_code rd_learner_run(rd_learner *l, const rd_learn_rule *rule,
                       void (*emit)(void *ctx, int32_t left, int32_t right, int32_t to), void *ctx,
                       rd_status *st)
{
    const int64_t begin = rd_now_ns(), room = rule->n_symbols - l->symbols.n,
                  most = rule->n_symbols > 0 && room < rule->n_merges ? room : rule->n_merges;
    int64_t told = begin, k = 0;
    char eta[32];
    bool good = !l->symbols.failed;
    l->largest_string = rule->largest_string;
    for (int32_t i = 0; i < l->n_pairs && good; i++) good = learn_push(l, i);
    for (; k < rule->n_merges && good; k++) {
        if (rule->n_symbols > 0 && l->symbols.n >= rule->n_symbols) break;
        const int32_t best = best_pair(l, rule->min_count);
        if (best < 0) break;
        const int32_t left = l->pair[best].left, right = l->pair[best].right;
        const int64_t count = l->pair[best].count;
        const int32_t to = rd_strings_join(&l->symbols, left, right);
        good = to >= 0;
        if (!good) break;
        emit(ctx, left, right, to);
        good = merge_pair(l, best, to);
        if (rule->log && rd_now_ns() - told > INT64_C(5000000000)) {
            told = rd_now_ns();
            rd_info(rule->log,
                    "merges: %" PRId64 " of at most %" PRId64 " learned, eta %s, the last one "
                    "occurs %" PRId64 " times",
                    k + 1, most,
                    rd_duration_text((double)(told - begin) * 1e-9 * (double)(most - k - 1) /
                                         (double)(k + 1),
                                     eta),
                    count);
        }
    }
    return good ? RD_OK : learn_no_memory(l, st);
}
