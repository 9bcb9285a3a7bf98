/* merge.c -- applies merges to a word: short words by looking at all pairs again, long ones with a
 * heap, so that a megabyte without a space takes no time of order n squared. */
#include "merge.h"
#include "rd/hash.h"
#include <stdlib.h>

enum { SHORT_WORD = 64, NO_RANK = INT32_MAX };

static size_t merge_hash(int32_t left, int32_t right)
{
    return (size_t)rd_fold(((uint64_t)(uint32_t)left << 32 | (uint32_t)right) ^ RD_WY0, RD_WY1);
}

static rd_merge *merge_slot(const rd_merges *m, int32_t left, int32_t right)
{
    size_t i = merge_hash(left, right) & m->mask;
    while (m->slot[i].left >= 0 && !(m->slot[i].left == left && m->slot[i].right == right))
        i = (i + 1) & m->mask;
    return &m->slot[i];
}

bool rd_merges_add(rd_merges *m, int32_t left, int32_t right, int32_t to, int32_t rank)
{
    if (m->n * 2 >= m->mask) {
        rd_merges big = {.mask = m->mask ? m->mask * 2 + 1 : 1023, .n = m->n};
        big.slot = malloc((big.mask + 1) * sizeof *big.slot);
        if (!big.slot) return false;
        for (size_t i = 0; i <= big.mask; i++) big.slot[i] = (rd_merge){.left = -1};
        for (size_t i = 0; m->slot && i <= m->mask; i++)
            if (m->slot[i].left >= 0)
                *merge_slot(&big, m->slot[i].left, m->slot[i].right) = m->slot[i];
        free(m->slot);
        m->slot = big.slot;
        m->mask = big.mask;
    }
    rd_merge *s = merge_slot(m, left, right);
    if (s->left >= 0) return true;
    *s = (rd_merge){left, right, to, rank};
    m->n++;
    return true;
}

const rd_merge *rd_merges_find(const rd_merges *m, int32_t left, int32_t right)
{
    if (!m->slot || left < 0 || right < 0) return NULL;
    const rd_merge *s = merge_slot(m, left, right);
    return s->left >= 0 ? s : NULL;
}

void rd_merges_release(rd_merges *m)
{
    free(m->slot);
    *m = (rd_merges){0};
}

bool rd_merge_room(rd_merge_word *w, size_t n)
{
    if (n <= w->cap) return true;
    const size_t cap = n * 2 + 64;
    int32_t *symbol = realloc(w->symbol, cap * sizeof *symbol);
    if (symbol) w->symbol = symbol;
    uint32_t *end = realloc(w->end, cap * sizeof *end);
    if (end) w->end = end;
    int32_t *rank = realloc(w->rank, cap * sizeof *rank);
    if (rank) w->rank = rank;
    if (!symbol || !end || !rank) return false;
    w->cap = cap;
    return true;
}

void rd_merge_release(rd_merge_word *w)
{
    free(w->symbol);
    free(w->end);
    free(w->rank);
    free(w->next);
    free(w->before);
    free(w->heap);
    *w = (rd_merge_word){0};
}

static int32_t rank_of(const rd_merges *m, int32_t left, int32_t right)
{
    const rd_merge *f = rd_merges_find(m, left, right);
    return f ? f->rank : NO_RANK;
}

/* ---- short words ---- */

/* Merges the place i of a short word. */
static void merge_place(const rd_merges *m, rd_merge_word *w, size_t i)
{
    w->symbol[i] = rd_merges_find(m, w->symbol[i], w->symbol[i + 1])->to;
    w->n--;
    for (size_t k = i; k < w->n; k++) {
        w->end[k] = w->end[k + 1];
        if (k > i) {
            w->symbol[k] = w->symbol[k + 1];
            w->rank[k] = w->rank[k + 1];
        }
    }
}

/* Computes the ranks of the two pairs that have symbol i. The last symbol's rank is that of no
 * pair. */
static void rank_around(const rd_merges *m, rd_merge_word *w, size_t i)
{
    if (i > 0) w->rank[i - 1] = rank_of(m, w->symbol[i - 1], w->symbol[i]);
    w->rank[i] = i + 1 < w->n ? rank_of(m, w->symbol[i], w->symbol[i + 1]) : NO_RANK;
}

static void merge_short(const rd_merges *m, rd_merge_word *w)
{
    for (size_t i = 0; i + 1 < w->n; i++) w->rank[i] = rank_of(m, w->symbol[i], w->symbol[i + 1]);
    w->rank[w->n - 1] = NO_RANK;
    for (;;) {
        int32_t best = NO_RANK;
        size_t at = 0;
        for (size_t i = 0; i < w->n; i++)
            if (w->rank[i] < best) {
                best = w->rank[i];
                at = i;
            }
        if (best == NO_RANK) return;
        if (!m->whole_pair) {
            merge_place(m, w, at);
            rank_around(m, w, at);
            continue;
        }
        /* A pair that overlaps a merged one is gone: x x x with x x -> xx gives xx x. */
        const int32_t left = w->symbol[at], right = w->symbol[at + 1];
        for (size_t i = at; i + 1 < w->n; i++)
            if (w->symbol[i] == left && w->symbol[i + 1] == right) merge_place(m, w, i);
        for (size_t i = at; i < w->n; i++) rank_around(m, w, i);
    }
}

/* ---- long words: places are entries (rank, place) of a heap ---- */

static bool heap_push(rd_merge_word *w, int32_t rank, uint32_t place)
{
    if (w->n_heap == w->cap_heap) {
        const size_t cap = w->cap_heap * 2 + 1024;
        uint64_t *p = realloc(w->heap, cap * sizeof *p);
        if (!p) return false;
        w->heap = p;
        w->cap_heap = cap;
    }
    size_t i = w->n_heap++;
    const uint64_t x = (uint64_t)(uint32_t)rank << 32 | place;
    while (i > 0 && w->heap[(i - 1) / 2] > x) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = x;
    return true;
}

static uint64_t heap_pop(rd_merge_word *w)
{
    const uint64_t top = w->heap[0], x = w->heap[--w->n_heap];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < w->n_heap; i = k) {
        if (k + 1 < w->n_heap && w->heap[k + 1] < w->heap[k]) k++;
        if (w->heap[k] >= x) break;
        w->heap[i] = w->heap[k];
    }
    w->heap[i] = x;
    return top;
}

/* Pushes the pair that begins at a place, if it has a merge. */
static bool push_place(const rd_merges *m, rd_merge_word *w, uint32_t at)
{
    if (at == UINT32_MAX || w->next[at] == UINT32_MAX) return true;
    const int32_t rank = rank_of(m, w->symbol[at], w->symbol[w->next[at]]);
    return rank == NO_RANK || heap_push(w, rank, at);
}

/* Merges the pair at a place, if it still has this rank. *merged: whether it did. A symbol of -2 is
 * a place that is gone. */
static bool merge_listed(const rd_merges *m, rd_merge_word *w, uint64_t entry)
{
    const uint32_t at = (uint32_t)entry, right = w->next[at];
    if (w->symbol[at] == -2 || right == UINT32_MAX) return false;
    const rd_merge *f = rd_merges_find(m, w->symbol[at], w->symbol[right]);
    if (!f || f->rank != (int32_t)(entry >> 32)) return false;
    w->symbol[at] = f->to;
    w->end[at] = w->end[right];
    w->symbol[right] = -2;
    w->next[at] = w->next[right];
    if (w->next[at] != UINT32_MAX) w->before[w->next[at]] = at;
    return true;
}

static bool merge_long(const rd_merges *m, rd_merge_word *w)
{
    if (w->n > w->cap_list) {
        uint32_t *next = realloc(w->next, w->cap * sizeof *next);
        if (next) w->next = next;
        uint32_t *before = realloc(w->before, w->cap * sizeof *before);
        if (before) w->before = before;
        if (!next || !before) return false;
        w->cap_list = w->cap;
    }
    const uint32_t n = (uint32_t)w->n;
    w->n_heap = 0;
    for (uint32_t i = 0; i < n; i++) {
        w->next[i] = i + 1 < n ? i + 1 : UINT32_MAX;
        w->before[i] = i > 0 ? i - 1 : UINT32_MAX;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!push_place(m, w, i)) return false;
    while (w->n_heap > 0) {
        /* With whole_pair the new pairs of all places of this rank enter the heap together. rank,
         * which long words do not use, keeps the places. */
        const uint64_t rank = w->heap[0] >> 32;
        size_t n_merged = 0;
        do {
            const uint64_t entry = heap_pop(w);
            if (merge_listed(m, w, entry)) w->rank[n_merged++] = (int32_t)(uint32_t)entry;
        } while (m->whole_pair && w->n_heap > 0 && w->heap[0] >> 32 == rank);
        for (size_t k = 0; k < n_merged; k++) {
            const uint32_t at = (uint32_t)w->rank[k];
            if (!push_place(m, w, w->before[at]) || !push_place(m, w, at)) return false;
        }
    }
    size_t k = 0;
    for (uint32_t i = 0; i != UINT32_MAX; i = w->next[i], k++) {
        w->symbol[k] = w->symbol[i];
        w->end[k] = w->end[i];
    }
    w->n = k;
    return true;
}

bool rd_merge_apply(const rd_merges *m, rd_merge_word *w)
{
    if (w->n < 2) return true;
    if (w->n > SHORT_WORD) return merge_long(m, w);
    merge_short(m, w);
    return true;
}
