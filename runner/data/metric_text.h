/* metric_text.h -- texts as metrics compare them: words of tokenizer 13a, characters, n-grams.
 *
 * The functions return false when memory is short. The sentence then stays without a score. */
#ifndef RD_METRIC_TEXT_H
#define RD_METRIC_TEXT_H
#include "rd/metric.h"

/* The version in the signatures: the sacreBLEU that the tests compare with, and who computed it. */
#define METRIC_VERSION "2.6.0-run_dist"

/* Words or characters as numbers. Equal numbers are equal words. */
typedef struct metric_text {
    const uint32_t *at; /* [n], each below UINT32_MAX */
    int64_t n;
} metric_text;

/* Counts the n-grams of up to `order` items that hyp and the references share. match[k] is that of
 * k + 1 items: each n-gram counts as often as in hyp, at most as often as in the reference that
 * has most of it. Comparison is exact, not by hashes. */
bool metric_match(const metric_text *hyp, const metric_text *refs, int64_t n_refs, int order,
                  int64_t *match);

/* The same for words, as bytes. */
bool metric_match_words(const rd_tokens *hyp, const rd_tokens *refs, int64_t n_refs, int order,
                        int64_t *match);

/* Words with their own memory. metric_words_free releases it, also after a failure. */
typedef struct metric_words {
    rd_tokens tokens;
    char *text;      /* owned */
    const char **at; /* owned */
    int32_t *len;    /* owned */
} metric_words;

/* Joins the tokens by spaces and splits the line as sacreBLEU's tokenizer 13a (mteval-v13a.pl).
 * White space is that of Unicode. Other bytes stay as they are, valid UTF-8 or not. */
bool metric_words_13a(const rd_tokens *in, metric_words *out);
void metric_words_free(metric_words *w);

/* Writes the characters of the tokens without white space: code points. A byte that is not part of
 * valid UTF-8 is one character, 0xDC00 plus the byte as in Python's surrogateescape.
 * *at is owned by the caller, also after a failure. */
bool metric_chars(const rd_tokens *in, uint32_t **at, int64_t *n);

/* Counts of numbers of references, which add up over sentences. */
enum { METRIC_SENTENCES = 0, METRIC_REFS = 1, METRIC_SQUARES = 2, METRIC_REF_COUNTS = 3 };
void metric_refs_add(int64_t counts[METRIC_REF_COUNTS], int64_t n_refs);

/* Writes sacreBLEU's word for the number of references: "1", "4", or "var" if it varies. */
const char *metric_refs_word(const int64_t counts[METRIC_REF_COUNTS], char out[24]);

#endif
