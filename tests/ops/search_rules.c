/* search_rules.c -- tests the rules of beam search: scores, ends, n-best lists, limits, barred
 * tokens. The expected hypotheses are those of tests/support/make_search_golden.py. */
#include "rd/search.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { END = 2, SENTENCES = 10, MOST = 13, TOP = 3 };
static const int64_t limits[SENTENCES] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12};

typedef struct rule_hypothesis {
    double score;
    int64_t n;
    int32_t ids[MOST];
} rule_hypothesis;
typedef struct rule_case {
    const char *name;
    rd_length_form form;
    int64_t V, W;
    uint32_t levels, end;
    double a, b;
    int64_t min;
    int n_barred;
    double cover;
    rd_coverage_form cover_form;
    struct {
        int64_t n;
        rule_hypothesis best[TOP];
    } want[SENTENCES];
} rule_case;
#include "search_golden.inc"

/* ---- the model of the script ---- */

static uint32_t mixed(uint32_t prefix, uint32_t token)
{
    uint32_t x = prefix ^ token * 2654435761u;
    x = x * 2246822519u + 374761393u;
    x ^= x >> 15;
    x *= 3266489917u;
    return x ^ x >> 16;
}

/* Eighths of each position of the source; see attention() of the script. */
static void attend(uint32_t prefix, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++) to[i] = 0.0f;
    for (uint32_t i = 0; i < 8; i++) to[mixed(prefix, 100 + i) % (uint32_t)n] += 0.125f;
}

static int64_t source_len(int64_t sentence)
{
    return 1 + sentence % 4;
}

typedef struct model {
    const rule_case *c;
    int64_t V, n_steps;
    uint32_t sentence; /* number of the first sentence */
    uint32_t prefix[SENTENCES * 16], before[SENTENCES * 16];
} model;

static rd_code model_step(void *ctx, int64_t n, const int32_t *ids, const int64_t *parent,
                          const int64_t *sentence, const rd_search_best *out, rd_status *st)
{
    model *m = ctx;
    memcpy(m->before, m->prefix, sizeof m->before);
    for (int64_t i = 0; i < n; i++) {
        float logits[32];
        rd_search_best own = *out;
        if (m->n_steps == 0)
            m->prefix[i] = (uint32_t)sentence[i] + m->sentence + 1000;
        else
            m->prefix[i] = m->before[parent[i]] * 31 + (uint32_t)ids[i] + 7;
        if (i > 0) assert_true(sentence[i] >= sentence[i - 1]);
        for (int64_t v = 0; v < m->V; v++) {
            const uint32_t each = v == END ? m->c->end : 4;
            logits[v] = -(float)(8 + mixed(m->prefix[i], (uint32_t)v) % m->c->levels * each) /
                        16.0f;
        }
        /* These log probabilities do not add up to 1: as logits they count as they are. */
        own.order_only = true;
        if (out->attention)
            attend(m->prefix[i], source_len(sentence[i] + m->sentence),
                   out->attention + i * out->longest);
        rd_search_best_rows(&own, i, 1, m->V, logits);
    }
    m->n_steps++;
    return st->code;
}

static rd_search_rules rules_of(const rule_case *c)
{
    rd_search_rules r = {.beam_width = c->W,
                         .n_best = c->W < TOP ? c->W : TOP,
                         .form = c->form,
                         .length_penalty = c->a,
                         .length_const = c->b,
                         .min_length = c->min,
                         .barred = {0, 1, 3},
                         .n_barred = c->n_barred,
                         .coverage = c->cover,
                         .coverage_form = c->cover_form};
    return r;
}

static void check_hypothesis(const rd_hypothesis *got, const rule_hypothesis *want, bool scored)
{
    assert_int_equal(got->n, want->n);
    for (int64_t k = 0; k < want->n; k++) assert_int_equal(got->ids[k], want->ids[k]);
    if (scored && !(fabs(got->score - want->score) <= 1e-9 * (1.0 + fabs(want->score))))
        fail_msg("score: got %.12g, want %.12g", got->score, want->score);
    if (!scored) assert_true(got->score == 0.0);
}

static void test_rules(void **state)
{
    const rule_case *c = *state;
    rd_search_rules r = rules_of(c);
    rd_status st = {0};
    rd_arena *a;
    rd_hypothesis out[SENTENCES * TOP];
    int64_t source[SENTENCES];
    for (int64_t i = 0; i < SENTENCES; i++) source[i] = source_len(i);
    r.source = source;
    must_do(rd_arena_new(4096, &a, &st), &st);
    for (int unscored = 0; unscored < 2; unscored++) {
        model m = {.c = c, .V = c->V};
        r.unscored = unscored;
        must_do(rd_search(a, SENTENCES, limits, c->V, 1, END, &r, model_step, &m, out, &st), &st);
        for (int64_t i = 0; i < SENTENCES; i++)
            for (int64_t k = 0; k < r.n_best; k++) {
                const rd_hypothesis *got = &out[i * r.n_best + k];
                assert_true((got->ids != NULL) == (k < c->want[i].n));
                if (got->ids) check_hypothesis(got, &c->want[i].best[k], !unscored || c->W > 1);
            }
    }
    for (int64_t i = 0; i < SENTENCES; i++) { /* alone as among others */
        model m = {.c = c, .V = c->V, .sentence = (uint32_t)i};
        r.unscored = false;
        r.source = &source[i];
        must_do(rd_search(a, 1, &limits[i], c->V, 1, END, &r, model_step, &m, out, &st), &st);
        assert_true(m.n_steps <= limits[i] + 1);
        check_hypothesis(out, &c->want[i].best[0], true);
    }
    rd_arena_free(a);
}

/* ---- length penalties ---- */

typedef struct penalty_row {
    const char *name;
    rd_length_form form;
    double a, b;
    int64_t n;
    double penalty;
} penalty_row;

/* Sockeye's and GNMT's formulas, computed by other programs. n counts the end token, and for
 * openseq2seq it does not. */
static const penalty_row penalties[] = {
    {"sockeye, a 1, b 0: n itself", RD_LENGTH_SOCKEYE, 1, 0, 20, 20},
    {"sockeye, a 0.6, b 5, n 1", RD_LENGTH_SOCKEYE, 0.6, 5, 1, 1},
    {"sockeye, a 0.6, b 5, n 5", RD_LENGTH_SOCKEYE, 0.6, 5, 5, 1.358655},
    {"sockeye, a 0.6, b 5, n 10", RD_LENGTH_SOCKEYE, 0.6, 5, 10, 1.732862},
    {"sockeye, a 0.6, b 5, n 20", RD_LENGTH_SOCKEYE, 0.6, 5, 20, 2.354362},
    {"sockeye, a 0.6, b 5, n 50", RD_LENGTH_SOCKEYE, 0.6, 5, 50, 3.778565},
    {"sockeye, a 1, b 5, n 5", RD_LENGTH_SOCKEYE, 1, 5, 5, 1.666667},
    {"sockeye, a 1, b 5, n 50", RD_LENGTH_SOCKEYE, 1, 5, 50, 9.166667},
    {"sockeye, a 0.6, b 0, n 5", RD_LENGTH_SOCKEYE, 0.6, 0, 5, 2.626528},
    {"sockeye, a 0.6, b 0, n 10", RD_LENGTH_SOCKEYE, 0.6, 0, 10, 3.981072},
    {"sockeye, a 0.6, b 0, n 50", RD_LENGTH_SOCKEYE, 0.6, 0, 50, 10.456396},
    {"gnmt, a 0.6, n 10", RD_LENGTH_GNMT, 0.6, 5, 10, 1.732862},
    {"gnmt, a 1, n 10", RD_LENGTH_GNMT, 1, 5, 10, 2.5},
    {"marian, a 0.6, n 10", RD_LENGTH_MARIAN, 0.6, 0, 10, 3.981072},
    {"fairseq, a 1, n 7", RD_LENGTH_FAIRSEQ, 1, 0, 7, 7},
    {"fairseq, a 0, n 7", RD_LENGTH_FAIRSEQ, 0, 0, 7, 1},
    {"openseq2seq, a 0.6, n 10", RD_LENGTH_OPENSEQ2SEQ, 0.6, 0, 10, 1.732862},
};

/* Every token has the log probability -1, the end token as well. */
static rd_code flat_step(void *ctx, int64_t n, const int32_t *ids, const int64_t *parent,
                         const int64_t *sentence, const rd_search_best *out, rd_status *st)
{
    (void)ctx, (void)ids, (void)parent, (void)sentence;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < out->n; k++) {
            out->id[i * out->n + k] = (int32_t)k + 4;
            out->logp[i * out->n + k] = -1.0f;
        }
        out->end_logp[i] = -1.0f;
    }
    return st->code;
}

static void test_penalty(void **state)
{
    const penalty_row *p = *state;
    const bool counts_end = p->form != RD_LENGTH_OPENSEQ2SEQ;
    const int64_t n = counts_end ? p->n - 1 : p->n;
    rd_status st = {0};
    rd_arena *a;
    rd_hypothesis out;
    for (int64_t width = 1; width < 5; width += 3) {
        const rd_search_rules r = {.beam_width = width,
                                   .form = p->form,
                                   .length_penalty = p->a,
                                   .length_const = p->b,
                                   .min_length = n};
        must_do(rd_arena_new(4096, &a, &st), &st);
        must_do(rd_search(a, 1, &(int64_t){n > 0 ? n : 1}, 9, 1, END, &r, flat_step, NULL, &out,
                          &st),
                &st);
        if (p->n > 1) assert_int_equal(out.n, n);
        if (p->n > 1 && !(fabs(out.score + (double)p->n / p->penalty) <= 1e-5))
            fail_msg("score: got %.9g, want %.9g", out.score, -(double)p->n / p->penalty);
        rd_arena_free(a);
    }
}

/* ---- keys ---- */

typedef struct keys_row {
    const char *name;
    rd_search_keys keys;
    bool bars_unk;
    const char *error; /* NULL: none */
    double penalty, constant;
    int64_t width, limit; /* limit: of a source of 7 tokens */
    int n_barred;
} keys_row;
#define BEAM .decoder_type = RD_DECODER_BEAM_SEARCH, .beam_width = 5, .nbest = 1
#define FACTOR .max_length_factor = 2

static const keys_row keys_rows[] = {
    {"defaults", {.beam_width = 4, .nbest = 1, FACTOR}, false, NULL, 0, 0, 1, 14, 0},
    {"a model that bars unknown words", {BEAM, FACTOR}, true, NULL, 0, 0, 5, 14, 3},
    {"bar_unk false", {BEAM, FACTOR, .has_bar_unk = true}, true, NULL, 0, 0, 5, 14, 0},
    {"bar_unk true", {BEAM, FACTOR, .has_bar_unk = true, .bar_unk = true}, 0, NULL, 0, 0, 5, 14, 3},
    {"sockeye", {BEAM, FACTOR, .length_penalty_type = RD_LENGTH_SOCKEYE}, 0, NULL, 1, 0, 5, 14, 0},
    {"gnmt", {BEAM, FACTOR, .length_penalty_type = RD_LENGTH_GNMT}, 0, NULL, 0.6, 5, 5, 14, 0},
    {"fairseq's limit",
     {BEAM, .max_length_offset = 200, .length_penalty_type = RD_LENGTH_FAIRSEQ},
     0,
     NULL,
     1,
     0,
     5,
     200,
     0},
    {"a half token counts",
     {BEAM, .max_length_factor = 1.5, .max_length_offset = 3},
     0,
     NULL,
     0,
     0,
     5,
     14,
     0},
    {"a penalty of 0",
     {BEAM, FACTOR, .length_penalty_type = RD_LENGTH_SOCKEYE, .has_length_penalty = true},
     0,
     NULL,
     0,
     0,
     5,
     14,
     0},
    {"no length", {BEAM}, 0, "both 0", 0, 0, 0, 0, 0},
    {"coverage of a beam whose finished hypotheses stay",
     {BEAM, FACTOR, .coverage_penalty = 0.2},
     0,
     "needs length_penalty_type gnmt, fairseq or marian, but it is openseq2seq",
     0,
     0,
     0,
     0,
     0},
    {"coverage",
     {BEAM, FACTOR, .coverage_penalty = 0.2, .length_penalty_type = RD_LENGTH_GNMT},
     0,
     NULL,
     0.6,
     5,
     5,
     14,
     0},
    {"a list wider than the beam",
     {.decoder_type = RD_DECODER_BEAM_SEARCH, .beam_width = 2, .nbest = 3, FACTOR},
     0,
     "beam_width is 2; add --beam_width=3",
     0,
     0,
     0,
     0,
     0},
    {"a list of greedy search",
     {.beam_width = 9, .nbest = 3, FACTOR},
     0,
     "beam_width is 1",
     0,
     0,
     0,
     0,
     0},
    {"a list as text",
     {.decoder_type = RD_DECODER_BEAM_SEARCH,
      .beam_width = 4,
      .nbest = 3,
      FACTOR,
      .has_output_format = true},
     0,
     "output_format nbest or json",
     0,
     0,
     0,
     0,
     0},
};

static void test_keys(void **state)
{
    const keys_row *r = *state;
    rd_search_rules rules;
    rd_status st = {0};
    (void)rd_search_rules_of(&r->keys, r->bars_unk, &rules, &st);
    if (r->error) {
        assert_int_equal(st.code, RD_EUSAGE);
        if (!strstr(st.msg, r->error)) fail_msg("'%s' is not in: %s", r->error, st.msg);
        return;
    }
    must(&st);
    assert_true(rules.length_penalty == r->penalty);
    assert_true(rules.length_const == r->constant);
    assert_true(rules.coverage == r->keys.coverage_penalty);
    assert_int_equal(rules.beam_width, r->width);
    assert_int_equal(rd_search_limit(&rules, 7), r->limit);
    assert_int_equal(rules.n_barred, r->n_barred);
}

RD_TESTS("ops: search rules", TEST_ROWS(test_rules, rule_cases), TEST_ROWS(test_penalty, penalties),
         TEST_ROWS(test_keys, keys_rows))
