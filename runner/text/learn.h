/* learn.h -- learns the merges of byte pair encoding from words and their counts. */
#ifndef RD_LEARN_H
#define RD_LEARN_H

#include "rd/log.h"
#include "strings.h"

/* ---- words and how often they occur ---- */

/* A struct of zeros is empty. */
typedef struct rd_counts {
    rd_strings words;
    int64_t *count; /* [words.n] */
    int32_t cap;
} rd_counts;

/* Counts one more occurrence of a word. false: out of memory. */
bool rd_counts_add(rd_counts *c, const char *at, size_t n);
void rd_counts_release(rd_counts *c);

/* ---- learning ---- */

typedef struct rd_learner rd_learner;

typedef struct rd_learn_rule {
    int64_t n_merges;  /* number of merges at most */
    int32_t n_symbols; /* stop at this number of symbols; 0: no limit */
    int64_t min_count; /* least count of a pair, at least 1 */
    /* Of equally frequent pairs: the one whose strings are largest, left before right
     * (subword-nmt). Else the one whose ids are lowest (GPT-2). */
    bool largest_string;
    rd_log *log; /* progress; NULL: none */
} rd_learn_rule;

/* The caller owns *out. */
rd_code rd_learner_new(rd_learner **out, rd_status *st);
void rd_learner_free(rd_learner *l); /* NULL is fine */
/* Returns the symbols. The caller adds those that words begin with. */
rd_strings *rd_learner_symbols(rd_learner *l);
/* Adds a word of n symbols that occurs `count` times. */
rd_code rd_learner_word(rd_learner *l, const int32_t *symbol, size_t n, int64_t count,
                        rd_status *st);
/* Learns. Calls emit for each merge, in order: `left right` becomes the symbol `to`. The words are
 * merged afterwards. */
rd_code rd_learner_run(rd_learner *l, const rd_learn_rule *rule,
                       void (*emit)(void *ctx, int32_t left, int32_t right, int32_t to), void *ctx,
                       rd_status *st);

#endif
