/* search.h -- greedy and beam search over any model that finds the best tokens of a step.
 *
 * Each translation system has its own score, its own way to end a hypothesis, and its own way to
 * end a sentence. rd_length_form selects them together. The result of a sentence does not depend on
 * the other sentences of the batch. */
#ifndef RD_SEARCH_H
#define RD_SEARCH_H

#include "rd/arena.h"
#include "rd/options.h"

RD_C_BEGIN

/* Values of the key decoder_type. */
typedef enum rd_decoder_type {
    RD_DECODER_GREEDY,
    RD_DECODER_BEAM_SEARCH,
    RD_DECODER_SAMPLING
} rd_decoder_type;

/* Whose search it is. P: the log probability of the tokens so far, the end token included once the
 * hypothesis has it. n: number of tokens, the end token included. W: beam_width. a, b:
 * length_penalty, length_penalty_const.
 *
 * OPENSEQ2SEQ: score P / ((5 + n) / 6)^a, where n leaves out the end token. The W best by score
 * stay. A finished hypothesis keeps its place while it is among them. A sentence ends when all W
 * are finished, or at its limit without an end token.
 *
 * SOCKEYE: score P / ((b + n)^a / (b + 1)^a). An unfinished hypothesis competes with P, a finished
 * one keeps its place with its score. A sentence ends when all W are finished.
 *
 * GNMT, MARIAN, FAIRSEQ: hypotheses compete with P. One that takes its end token is put on a list
 * with its score. A sentence ends when the list has W hypotheses, or n_best of them that no
 * unfinished one can reach any more.
 *   GNMT: score P / ((b + n) / (b + 1))^a. An end token counts if it is better than the W-th best
 *   of the other tokens. The W best hypotheses without an end token go on.
 *   FAIRSEQ: score P / n^a. An end token counts if it is among the W best tokens of all
 *   hypotheses. The W best hypotheses without an end token go on.
 *   MARIAN: score P / n^a. Of the W best those without an end token go on, so the beam shrinks.
 *
 * All but OPENSEQ2SEQ take the end token at the limit. */
typedef enum rd_length_form {
    RD_LENGTH_OPENSEQ2SEQ,
    RD_LENGTH_SOCKEYE,
    RD_LENGTH_GNMT,
    RD_LENGTH_MARIAN,
    RD_LENGTH_FAIRSEQ
} rd_length_form;

/* What a finished hypothesis gets beside its score, by the rules with a list: coverage times a sum
 * over the positions of the source. c: the attention that a position has got, summed over the
 * tokens of the hypothesis, the end token included. */
typedef enum rd_coverage_form {
    RD_COVERAGE_GNMT,   /* log(min(c, 1)), with c of at least 1e-30; Wu et al. 2016 */
    RD_COVERAGE_SUMMARY /* -max(c - 1, 0) */
} rd_coverage_form;

enum {
    RD_SEARCH_WIDEST = 1024, /* the largest beam_width on a GPU */
    RD_MOST_BARRED = 4
};

/* How to draw tokens. The probabilities are those of logits / temperature. Only the top_k most
 * probable tokens stay (0: all), and all that are as probable as the last of them. Of these the
 * fewest stay whose probabilities add up to top_p. Tokens are in the order of falling probability,
 * then rising id. */
typedef struct rd_sampling {
    double temperature; /* 0: the most probable token */
    int64_t top_k;
    double top_p; /* 1: all */
    uint64_t seed;
    int64_t before; /* number of sentences before the first one of the data */
} rd_sampling;

/* Sees each token of greedy search and of sampling when it is chosen, the end token left out. */
typedef struct rd_search_watch {
    /* Returns whether the sentence ends with this token. sentence: its index in the batch. */
    bool (*token)(void *ctx, int64_t sentence, int32_t id);
    void *ctx;
} rd_search_watch;

/* How to search. All zero: greedy search of OpenSeq2Seq. */
typedef struct rd_search_rules {
    int64_t beam_width; /* 0 and 1: greedy */
    int64_t n_best;     /* hypotheses to return for each sentence, at most beam_width; 0: 1 */
    rd_length_form form;
    double length_penalty, length_const;
    double coverage; /* 0: none */
    rd_coverage_form coverage_form;
    const int64_t *source; /* [n] positions of each source, borrowed; NULL: there is no coverage */
    int64_t min_length;    /* number of tokens before the end token is allowed */
    /* A source of n tokens gives at most factor * n + offset tokens. Both 0: 2 n. */
    double max_length_factor;
    int64_t max_length_offset;
    /* Tokens that are never chosen; the end token is not among them. */
    int32_t barred[RD_MOST_BARRED];
    int n_barred;
    /* The scores are not needed: greedy search may compare logits, and scores are 0. */
    bool unscored;
    /* Draw tokens; beam_width is then 1. The number that decides token t of a sentence is a
     * function of (seed, before + number of the sentence, t). */
    bool samples;
    rd_sampling sampling;
    const int64_t *number;        /* [n] number of each sentence of the batch; NULL: 0, 1, ... */
    const rd_search_watch *watch; /* borrowed; NULL: none. A beam of several is not watched */
} rd_search_rules;

/* Values of the key output_format. */
typedef enum rd_output_format {
    RD_FORMAT_TEXT,
    RD_FORMAT_NBEST,
    RD_FORMAT_JSON,
    RD_FORMAT_TSV /* image models */
} rd_output_format;

/* Values of the key decode_dtype. */
typedef enum rd_decode_dtype { RD_DECODE_FLOAT32, RD_DECODE_INT8 } rd_decode_dtype;

/* The keys of decoding, for every model that decodes, and what they fill. */
typedef struct rd_search_keys {
    rd_decoder_type decoder_type;
    rd_length_form length_penalty_type;
    rd_coverage_form coverage_penalty_type;
    int64_t beam_width, min_length, max_length_offset;
    int64_t nbest, shortlist_k, sampling_top_k;
    const char *shortlist_file; /* NULL or "": none */
    rd_output_format output_format;
    rd_decode_dtype decode_dtype;
    double length_penalty, length_penalty_const, coverage_penalty, max_length_factor;
    double sampling_temperature, sampling_top_p;
    bool has_length_penalty, has_length_penalty_const, bar_unk, has_bar_unk, has_output_format;
} rd_search_keys;
extern const rd_option_group rd_group_search;
/* Returns the rules of these keys. bars_unk: the value of bar_unk if the config has none.
 * RD_EUSAGE: keys that do not fit together. */
rd_code rd_search_rules_of(const rd_search_keys *k, bool bars_unk, rd_search_rules *out,
                           rd_status *st);

/* Returns how many hypotheses rd_search writes for each sentence. */
int64_t rd_search_n_best(const rd_search_rules *r);
/* Returns the largest number of tokens, without the end token, for a source of n tokens. */
int64_t rd_search_limit(const rd_search_rules *r, int64_t n);
/* Returns how many tokens a step finds for each row, of V tokens. */
int64_t rd_search_best_n(const rd_search_rules *r, int64_t V);

/* How a step draws the tokens of its rows, on a CPU. */
typedef struct rd_search_draw {
    const rd_sampling *rules;
    const double *u;     /* [rows] uniform in [0, 1) */
    const bool *may_end; /* [rows] the end token may be drawn */
    int32_t *scratch;    /* [rows, stride] */
    int64_t stride;      /* at least the number of tokens */
} rd_search_draw;

/* What a step finds for each of its rows: the n best tokens, the end token and barred ones left
 * out, and the log probability of the end token. */
typedef struct rd_search_best {
    int64_t n;       /* rd_search_best_n */
    int32_t end;     /* the end token */
    int32_t *id;     /* [rows, n] the tokens, in any order; of equally probable ones the lowest ids.
                    * -1: there are no more tokens */
    float *logp;     /* [rows, n] their log probabilities; -INFINITY replaces NaN */
    float *end_logp; /* [rows] log probability of the end token; -INFINITY replaces NaN */
    int32_t barred[RD_MOST_BARRED];
    int n_barred;
    /* Logits may stand in place of log probabilities: only their order in a row counts. */
    bool order_only;
    /* The first token is drawn, and may be the end token; there are no others. NULL: none is. */
    const rd_search_draw *draw;
    /* [rows, longest] in host memory: the attention that each position of the source gets from the
     * token that follows. NULL: it is not wanted. */
    float *attention;
    int64_t longest; /* positions of the longest source */
} rd_search_best;
/* Fills rows [first, first + n) of out from their logits [n, V]. Destroys the logits. */
void rd_search_best_rows(const rd_search_best *out, int64_t first, int64_t n, int64_t V,
                         float *logits);

/* The tokens that sentences may have: those of sentence i are id[at[i] .. at[i + 1]), ascending. */
typedef struct rd_token_sets {
    const int64_t *at;
    const int32_t *id;
} rd_token_sets;

/* Draws a token of n by log probabilities or logits x[0, n). -INFINITY: the token cannot be drawn.
 * -1: there is none. u: uniform in [0, 1). scratch: [n]. */
int32_t rd_search_sample(const rd_sampling *r, int64_t n, const float *x, double u,
                         int32_t *scratch);

/* Computes one step of n hypotheses and fills rows [0, n) of out. Row i continues row parent[i] of
 * the previous call, for sentence sentence[i], with token ids[i]. The first call ignores parent.
 * Rows of a sentence follow each other, sentences ascend, and finished hypotheses have no row. */
typedef rd_code rd_search_step(void *ctx, int64_t n, const int32_t *ids, const int64_t *parent,
                               const int64_t *sentence, const rd_search_best *out, rd_status *st);
typedef struct rd_hypothesis {
    const int32_t *ids; /* [n] the tokens, without the end token; NULL: there is no hypothesis */
    int64_t n;
    double score; /* see rd_length_form; NAN: a step of the sentence had logits not finite */
} rd_hypothesis;
/* Finds the best hypotheses of each sentence, best first. A beam follows hypotheses, not slots.
 *
 * limit[s]: the largest number of tokens of sentence s; 0: it is empty. start, end: token ids below
 * V. ctx: first argument of step. Of equal scores the one of the better parent hypothesis wins,
 * then the lower token id. out[n_sentences * rd_search_n_best(rules)]: memory of the arena. Logits
 * that are not finite are safe, and end no sentence early. */
rd_code rd_search(rd_arena *a, int64_t n_sentences, const int64_t *limit, int64_t V, int32_t start,
                  int32_t end, const rd_search_rules *rules, rd_search_step *step, void *ctx,
                  rd_hypothesis *out, rd_status *st);

RD_C_END
#endif
