/* bpe_limits.h -- what limits the pieces of byte pair encoding, as in subword-nmt: a vocabulary of
 * pieces, and glossaries, which are patterns of text that is not split. */
#ifndef RD_BPE_LIMITS_H
#define RD_BPE_LIMITS_H

#include "rd/strbuf.h"
#include "strings.h"

typedef struct bpe_limits bpe_limits;

/* Parses limits. pieces: lines "piece count"; the counts are not read. glossaries: a pattern of
 * PCRE2 in each line. n 0: none. The caller owns *out, which is NULL without limits. */
rd_code bpe_limits_new(const char *pieces, size_t n_pieces, const char *glossaries,
                       size_t n_glossaries, bpe_limits **out, rd_status *st);
void bpe_limits_free(bpe_limits *l); /* NULL is fine */

/* Returns a hash of the limits; 0: there are none. */
uint64_t bpe_limits_hash(const bpe_limits *l);
/* Returns whether a piece may be used. continues: another piece of the word follows. */
bool bpe_limits_allow(const bpe_limits *l, const char *piece, size_t n, bool continues);
/* Returns whether there is a vocabulary of pieces. */
bool bpe_limits_have_pieces(const bpe_limits *l);

/* The parts of a word: text to be split, and text that a glossary protects. */
typedef struct bpe_part {
    uint32_t from, n;
    bool whole; /* it is one piece */
} bpe_part;
typedef struct bpe_parts {
    bpe_part *at, *other; /* owned; free both */
    size_t n, cap;
} bpe_parts;
/* Cuts a word. Each glossary in turn cuts the parts so far. false: out of memory. Thread-safe. */
bool bpe_limits_cut(const bpe_limits *l, const char *word, size_t n, bpe_parts *out);

#endif
