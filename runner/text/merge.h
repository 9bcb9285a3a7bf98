/* merge.h -- applies the merges of byte pair encoding to the symbols of one word. */
#ifndef RD_MERGE_H
#define RD_MERGE_H

#include "rd/status.h"
#include <stdint.h>

/* A pair of symbols becomes the symbol `to`. Pairs of lower rank come first. */
typedef struct rd_merge {
    int32_t left, right;
    int32_t to, rank; /* left < 0: an empty slot */
} rd_merge;

/* A hash table of merges. A struct of zeros is empty. */
typedef struct rd_merges {
    rd_merge *slot; /* owned */
    size_t n, mask;
    /* All places of the best pair are merged from left to right, then the next best one is chosen
     * (subword-nmt). Else after each merge the best place is chosen again (GPT-2). They differ only
     * if a merge can make a pair of lower rank. */
    bool whole_pair;
} rd_merges;

/* Adds a merge, unless the pair has one already. false: out of memory. */
bool rd_merges_add(rd_merges *m, int32_t left, int32_t right, int32_t to, int32_t rank);
/* Returns the merge of a pair, NULL: it has none. */
const rd_merge *rd_merges_find(const rd_merges *m, int32_t left, int32_t right);
void rd_merges_release(rd_merges *m);

/* A word while it is merged: symbol i covers the bytes from end[i - 1] to end[i]. A struct of zeros
 * is empty; the caller fills symbol and end up to n. */
typedef struct rd_merge_word {
    int32_t *symbol;
    uint32_t *end;
    int32_t *rank; /* for short words: rank of the pair (i, i + 1) */
    size_t n, cap;
    uint32_t *next, *before; /* for long words: a list of the places */
    uint64_t *heap;
    size_t n_heap, cap_heap, cap_list;
} rd_merge_word;

/* Makes room for n symbols. false: out of memory. */
bool rd_merge_room(rd_merge_word *w, size_t n);
/* Merges until no pair has a merge. false: out of memory. Takes time of order n log n. */
bool rd_merge_apply(const rd_merges *m, rd_merge_word *w);
void rd_merge_release(rd_merge_word *w);

#endif
