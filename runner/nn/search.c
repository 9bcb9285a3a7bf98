/* search.c -- greedy and beam search with the rules of five systems, over any model that finds the
 * best tokens of a step.
 *
 * Only unfinished hypotheses are computed: a finished one has no row, and a sentence that ends
 * leaves the batch. The result of a sentence does not depend on the other sentences of the batch.
 *
 * The W best tokens of a row and the end token are enough. All tokens of a row have the same length
 * penalty, so their scores are in the order of their log probabilities, and at most W of them are
 * among the W best of the sentence.
 *
 * Two tokens with different log probabilities have different scores. The probabilities of a row sum
 * to 1, so at most one log probability is above -0.69. The others are floats that are at least
 * 2^-24 apart. A sum in double keeps this difference while the log probability of the sentence is
 * above -2^24. */
#include "rd/search.h"
#include "rd/philox.h"
#include "rd/vecmath.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One generated token. A hypothesis is the path from its last node back to the root. */
typedef struct node {
    int64_t parent; /* index of the previous node; -1: the first token */
    int32_t id;
} node;

typedef struct beam {
    double logp;    /* log probability, that of the end token included if it is finished */
    double score;   /* what orders it: see rd_length_form */
    int64_t length; /* number of tokens, without the end token */
    int64_t last;   /* index of the last node; -1: no token yet */
    int64_t row;    /* its row in the last step that computed it */
    bool finished;
} beam;

typedef struct candidate {
    double score, logp;
    int64_t k; /* index of its parent beam */
    int32_t id;
} candidate;

/* ---- the best tokens of a row ---- */

/* Replaces the worst of n tokens by token v with log probability x. The tokens are a heap with the
 * worst at its root. Of equal log probabilities the higher id is the worse one. */
static void replace_worst(int64_t n, float *logp, int32_t *id, float x, int32_t v)
{
    int64_t i = 0;
    for (int64_t c = 1; c < n; c = 2 * i + 1) {
        if (c + 1 < n && (logp[c + 1] < logp[c] || (logp[c + 1] == logp[c] && id[c + 1] > id[c])))
            c++;
        if (x < logp[c] || (x == logp[c] && v > id[c])) break;
        logp[i] = logp[c];
        id[i] = id[c];
        i = c;
    }
    logp[i] = x;
    id[i] = v;
}

enum { PART = 128 };

/* Returns the logarithm of the sum of exponentials. NaN: the logits are not finite. */
static float log_sum_exp(int64_t V, const float *restrict x)
{
    const float top = rd_maxf(x, V);
    /* Sum of the sums of parts: 200,000 additions in float32 would lose four digits. */
    double sum = 0.0;
    for (int64_t first = 0; first < V; first += PART) {
        const int64_t n = V - first < PART ? V - first : PART;
        const float *restrict y = x + first;
        float part = 0.0f;
#pragma omp simd reduction(+ : part)
        for (int64_t j = 0; j < n; j++) part += rd_expf(y[j] - top);
        sum += (double)part;
    }
    return top + (float)log(sum);
}

/* Returns 0 where log_sum_exp would return a number, and NaN where it would return NaN. */
static float zero_or_nan(int64_t V, const float *restrict x)
{
    const float top = rd_maxf(x, V);
    int odd = !(top < INFINITY) || top == -INFINITY;
#pragma omp simd reduction(| : odd)
    for (int64_t j = 0; j < V; j++) odd |= x[j] != x[j];
    return odd ? NAN : 0.0f;
}

static bool left_out(const rd_search_best *out, int32_t v)
{
    bool found = v == out->end;
    for (int i = 0; i < out->n_barred; i++) found |= v == out->barred[i];
    return found;
}

/* Draws the token of a row. The barred ones cannot be drawn. */
static void draw_of_row(const rd_search_best *out, int64_t row, int64_t V, float *x, float lse)
{
    const rd_search_draw *d = out->draw;
    float *logp = out->logp + row * out->n;
    int32_t *id = out->id + row * out->n;
    for (int64_t i = 0; i < out->n; i++) {
        logp[i] = -INFINITY;
        id[i] = -1;
    }
    for (int i = 0; i < out->n_barred; i++) x[out->barred[i]] = -INFINITY;
    if (!d->may_end[row]) x[out->end] = -INFINITY;
    if (out->n == 0 || lse != lse) return;
    id[0] = rd_search_sample(d->rules, V, x, d->u[row], d->scratch + row * d->stride);
    if (id[0] >= 0) logp[0] = x[id[0]] - lse;
}

static void best_of_row(const rd_search_best *out, int64_t row, int64_t V, float *restrict x)
{
    float *logp = out->logp + row * out->n;
    int32_t *id = out->id + row * out->n;
    const float lse = out->order_only ? zero_or_nan(V, x) : log_sum_exp(V, x);
    const bool fine = lse == lse; /* false: the whole row becomes -INFINITY */
    out->end_logp[row] = fine ? x[out->end] - lse : -INFINITY;
    if (out->draw) {
        draw_of_row(out, row, V, x, lse);
        return;
    }
    x[out->end] = -INFINITY;
    for (int i = 0; i < out->n_barred; i++) x[out->barred[i]] = -INFINITY;
    for (int64_t i = 0; i < out->n; i++) {
        logp[i] = -INFINITY;
        id[i] = INT32_MAX; /* an empty place: worse than all tokens */
    }
    for (int64_t first = 0; out->n > 0 && first < V; first += PART) {
        const int64_t n = V - first < PART ? V - first : PART;
        float *restrict y = x + first;
        for (int64_t j = 0; j < n; j++) y[j] = fine ? y[j] - lse : -INFINITY;
        if (id[0] != INT32_MAX && !(rd_maxf(y, n) > logp[0])) continue;
        for (int64_t j = 0; j < n; j++) {
            const int32_t v = (int32_t)(first + j);
            if ((y[j] > logp[0] || (y[j] == logp[0] && v < id[0])) && !left_out(out, v))
                replace_worst(out->n, logp, id, y[j], v);
        }
    }
    for (int64_t i = 0; i < out->n; i++)
        if (id[i] == INT32_MAX) id[i] = -1;
}

void rd_search_best_rows(const rd_search_best *out, int64_t first, int64_t n, int64_t V,
                         float *logits)
{
    for (int64_t i = 0; i < n; i++) best_of_row(out, first + i, V, logits + i * V);
}

/* ---- rules ---- */

int64_t rd_search_n_best(const rd_search_rules *r)
{
    return r->n_best < 1 ? 1 : r->n_best;
}

int64_t rd_search_limit(const rd_search_rules *r, int64_t n)
{
    const bool given = r->max_length_factor > 0.0 || r->max_length_offset > 0;
    const double most = given ? ceil(r->max_length_factor * (double)n) : 2.0 * (double)n;
    return (int64_t)most + r->max_length_offset;
}

static int64_t width_of(const rd_search_rules *r)
{
    return r->beam_width < 1 || r->samples ? 1 : r->beam_width;
}

int64_t rd_search_best_n(const rd_search_rules *r, int64_t V)
{
    const int64_t most = V - 1 - r->n_barred;
    return width_of(r) < most ? width_of(r) : most < 0 ? 0 : most;
}

/* Do finished hypotheses leave the beam? */
static bool has_list(const rd_search_rules *r)
{
    return r->form != RD_LENGTH_OPENSEQ2SEQ && r->form != RD_LENGTH_SOCKEYE;
}

/* Returns the number that divides the log probability of a hypothesis of n tokens. */
static double length_penalty(const rd_search_rules *r, int64_t n)
{
    const double a = r->length_penalty, b = r->length_const, x = (double)n;
    if (a == 0.0) return 1.0;
    switch (r->form) {
    case RD_LENGTH_SOCKEYE:
        return pow(b + x, a) / pow(b + 1.0, a);
    case RD_LENGTH_GNMT:
        return pow((b + x) / (b + 1.0), a);
    case RD_LENGTH_MARIAN:
    case RD_LENGTH_FAIRSEQ:
        return pow(x, a);
    case RD_LENGTH_OPENSEQ2SEQ:
        break;
    }
    return pow((5.0 + x) / 6.0, a);
}

/* ---- search ---- */

static bool beats(const candidate *a, const candidate *b)
{
    if (a->score != b->score) return a->score > b->score;
    return a->k != b->k ? a->k < b->k : a->id < b->id;
}

/* Inserts c into best[], which keeps the `most` best candidates, best first. Of equal scores the
 * one of the better beam comes first, then the lower id. */
static void offer(candidate *best, int64_t *n, int64_t most, candidate c)
{
    if (most == 0 || (*n == most && !beats(&c, &best[most - 1]))) return;
    int64_t i = *n < most ? (*n)++ : most - 1;
    for (; i > 0 && beats(&c, &best[i - 1]); i--) best[i] = best[i - 1];
    best[i] = c;
}

/* One sentence. */
typedef struct searched {
    beam *b;    /* [W] the beam; with a list: without finished hypotheses */
    beam *list; /* [W] finished hypotheses, best first */
    int64_t n;  /* number of hypotheses in b */
    int64_t n_listed;
    int64_t limit;
    int64_t source;        /* positions of the source */
    float *cover, *cover2; /* [W, source] of b, and of the next beam; NULL: no coverage */
    bool ended;
    bool odd; /* logits were not finite */
} searched;

typedef struct search {
    rd_arena *a;
    const rd_search_rules *rules;
    int64_t W, t; /* t: number of steps done */
    int32_t end;
    double *penalty; /* length penalty by number of tokens */
    bool order_only;
    node *nodes;
    int64_t n_nodes, cap_nodes;
    rd_search_draw draw;
    double *u;
    bool *may_end;
    candidate *words, *ends; /* scratch, [W] each */
    beam *next;              /* scratch, [W] */
} search;

static rd_code add_node(search *s, int64_t parent, int32_t id, int64_t *out, rd_status *st)
{
    if (s->n_nodes == s->cap_nodes) { /* the arena has no realloc: double and copy */
        node *more;
        const int64_t cap = 2 * s->cap_nodes;
        if (rd_arena_get(s->a, (size_t)cap * sizeof *more, &more, st) != RD_OK) return st->code;
        memcpy(more, s->nodes, (size_t)s->n_nodes * sizeof *more);
        s->nodes = more;
        s->cap_nodes = cap;
    }
    s->nodes[s->n_nodes] = (node){parent, id};
    *out = s->n_nodes++;
    return RD_OK;
}

/* Returns the score of a finished hypothesis. */
static double score_of(const search *s, double logp, int64_t length)
{
    return logp / s->penalty[length + (s->rules->form != RD_LENGTH_OPENSEQ2SEQ)];
}

/* May this sentence take words in this step, and the end token? */
static bool takes_words(const search *s, const searched *q)
{
    return s->t < q->limit;
}
static bool takes_end(const search *s, const searched *q)
{
    return s->t >= s->rules->min_length || !takes_words(s, q);
}

/* Replaces the beam of one sentence by that after one more token. rows: the best tokens of its
 * unfinished hypotheses. */
static rd_code extend_beam(search *s, searched *q, const rd_search_best *rows, rd_status *st)
{
    const bool raw = s->rules->form == RD_LENGTH_SOCKEYE;
    candidate *best = s->words;
    int64_t kept = 0, unfinished = 0;
    for (int64_t k = 0; k < q->n; k++) {
        const beam *b = &q->b[k];
        if (b->finished) {
            offer(best, &kept, s->W, (candidate){b->score, b->logp, k, s->end});
            continue;
        }
        const double with_end = s->penalty[b->length], with_word = s->penalty[b->length + 1];
        const double ended = b->logp + (double)rows->end_logp[b->row];
        if (takes_end(s, q))
            offer(best, &kept, s->W, (candidate){raw ? ended : ended / with_end, ended, k, s->end});
        for (int64_t i = b->row * rows->n; takes_words(s, q) && i < (b->row + 1) * rows->n; i++) {
            const double total = b->logp + (double)rows->logp[i];
            if (rows->id[i] >= 0)
                offer(best, &kept, s->W,
                      (candidate){raw ? total : total / with_word, total, k, rows->id[i]});
        }
    }
    for (int64_t i = 0; i < kept; i++) {
        const candidate *c = &best[i];
        const beam *from = &q->b[c->k];
        beam *to = &s->next[i];
        *to = (beam){.logp = c->logp,
                     .score = c->score,
                     .finished = from->finished || c->id == s->end,
                     .row = from->row,
                     .last = from->last};
        to->length = from->length + (to->finished ? 0 : 1);
        if (raw && to->finished && !from->finished) to->score = score_of(s, to->logp, to->length);
        if (!to->finished) RD_TRY(add_node(s, from->last, c->id, &to->last, st));
        unfinished += !to->finished;
    }
    memcpy(q->b, s->next, (size_t)kept * sizeof *q->b);
    q->n = kept;
    q->ended = unfinished == 0;
done:
    return st->code;
}

/* Does extend_beam's work for a hypothesis whose next token is drawn. */
static rd_code extend_drawn(search *s, searched *q, const rd_search_best *rows, rd_status *st)
{
    beam *b = &q->b[0];
    const int64_t at = b->row * rows->n;
    const bool words = takes_words(s, q) && rows->n > 0 && rows->id[at] >= 0;
    const int32_t id = words ? rows->id[at] : s->end;
    b->logp += (double)(words ? rows->logp[at] : rows->end_logp[b->row]);
    if (id == s->end) {
        b->finished = q->ended = true;
    } else {
        RD_TRY(add_node(s, b->last, id, &b->last, st));
        b->length++;
    }
    b->score = s->rules->form == RD_LENGTH_OPENSEQ2SEQ || b->finished
                   ? score_of(s, b->logp, b->length)
                   : b->logp;
done:
    return st->code;
}

/* ---- coverage ---- */

/* Adds the attention of this step to what the positions of the source have got. */
static void search_cover(searched *q, const rd_search_best *rows)
{
    for (int64_t k = 0; k < q->n; k++) {
        const float *a = rows->attention + q->b[k].row * rows->longest;
        float *c = q->cover + k * q->source;
        for (int64_t j = 0; j < q->source; j++) c[j] += a[j];
    }
}

/* Returns the coverage penalty of hypothesis k, which is at most 0. */
static double search_coverage(const search *s, const searched *q, int64_t k)
{
    const float *c = q->cover + k * q->source;
    double sum = 0.0;
    for (int64_t j = 0; j < q->source; j++) {
        const double got = (double)c[j];
        if (s->rules->coverage_form == RD_COVERAGE_SUMMARY)
            sum -= got > 1.0 ? got - 1.0 : 0.0;
        else if (got < 1.0)
            sum += log(got > 1e-30 ? got : 1e-30);
    }
    return s->rules->coverage * sum;
}

/* Allocates the coverage of all hypotheses, and the attention of a step. */
static rd_code prepare_coverage(search *s, searched *of, int64_t n, rd_search_best *found,
                                rd_status *st)
{
    for (int64_t i = 0; i < n; i++) {
        const size_t bytes = (size_t)(s->W * s->rules->source[i] + 1) * sizeof(float);
        of[i].source = s->rules->source[i];
        found->longest = of[i].source > found->longest ? of[i].source : found->longest;
        RD_TRY(rd_arena_zero(s->a, bytes, &of[i].cover, st));
        RD_TRY(rd_arena_zero(s->a, bytes, &of[i].cover2, st));
    }
    RD_TRY(rd_arena_zero(s->a, (size_t)(n * s->W * found->longest + 1) * sizeof(float),
                         &found->attention, st));
done:
    return st->code;
}

/* Puts a finished hypothesis on the list. Of equal scores the earlier one comes first. */
static void put_on_list(search *s, searched *q, const candidate *c)
{
    const beam *from = &q->b[c->k];
    if (q->n_listed == s->W) return;
    beam b = {.logp = c->logp, .finished = true, .length = from->length, .last = from->last};
    b.score = score_of(s, b.logp, b.length) + (q->cover ? search_coverage(s, q, c->k) : 0.0);
    int64_t i = q->n_listed++;
    for (; i > 0 && b.score > q->list[i - 1].score; i--) q->list[i] = q->list[i - 1];
    q->list[i] = b;
}

/* Can no unfinished hypothesis reach the n_best-th of the list? Log probabilities only fall, the
 * length penalty only grows, and no coverage penalty is above 0. */
static bool list_is_final(const search *s, const searched *q)
{
    const int64_t n = rd_search_n_best(s->rules);
    if (q->n_listed < n) return false;
    for (int64_t k = 0; k < q->n; k++) {
        const beam *b = &q->b[k];
        const double now = score_of(s, b->logp, b->length), late = score_of(s, b->logp, q->limit);
        if (!((now > late ? now : late) <= q->list[n - 1].score)) return false;
    }
    return true;
}

/* Does extend_beam's work for the rules with a list. */
static rd_code extend_list(search *s, searched *q, const rd_search_best *rows, rd_status *st)
{
    const bool shrinks = s->rules->form == RD_LENGTH_MARIAN;
    /* Does an end token take one of the W places? */
    const bool ends_count = s->rules->form != RD_LENGTH_GNMT;
    const int64_t W = shrinks ? s->W - q->n_listed : s->W;
    int64_t n_words = 0, n_ends = 0, taken = 0;
    if (q->cover) search_cover(q, rows);
    for (int64_t k = 0; k < q->n; k++) {
        const beam *b = &q->b[k];
        const double ended = b->logp + (double)rows->end_logp[b->row];
        if (takes_end(s, q)) offer(s->ends, &n_ends, s->W, (candidate){ended, ended, k, s->end});
        for (int64_t i = b->row * rows->n; takes_words(s, q) && i < (b->row + 1) * rows->n; i++) {
            const double total = b->logp + (double)rows->logp[i];
            if (rows->id[i] >= 0)
                offer(s->words, &n_words, W, (candidate){total, total, k, rows->id[i]});
        }
    }
    for (int64_t i = 0; i < n_ends; i++) {
        int64_t better = ends_count ? i : 0;
        for (int64_t k = 0; k < n_words; k++) better += beats(&s->words[k], &s->ends[i]);
        if (better >= W) break;
        put_on_list(s, q, &s->ends[i]);
        taken++;
    }
    if (shrinks && n_words > W - taken) n_words = W - taken;
    for (int64_t i = 0; i < n_words; i++) {
        const candidate *c = &s->words[i];
        const beam *from = &q->b[c->k];
        s->next[i] = (beam){
            .logp = c->logp, .score = c->score, .row = from->row, .length = from->length + 1};
        RD_TRY(add_node(s, from->last, c->id, &s->next[i].last, st));
        if (q->cover)
            memcpy(q->cover2 + i * q->source, q->cover + c->k * q->source,
                   (size_t)q->source * sizeof *q->cover);
    }
    float *swap = q->cover;
    q->cover = q->cover2;
    q->cover2 = swap;
    memcpy(q->b, s->next, (size_t)n_words * sizeof *q->b);
    q->n = n_words;
    q->ended = q->n == 0 || q->n_listed == s->W || list_is_final(s, q);
done:
    return st->code;
}

static rd_code trace_back(search *s, const beam *b, rd_hypothesis *out, rd_status *st)
{
    int64_t n = b->length;
    int32_t *ids;
    RD_TRY(rd_arena_get(s->a, (size_t)(n + 1) * sizeof *ids, &ids, st));
    *out = (rd_hypothesis){ids, n, s->order_only ? 0.0 : b->score};
    for (int64_t k = b->last; k >= 0; k = s->nodes[k].parent) ids[--n] = s->nodes[k].id;
done:
    return st->code;
}

static int higher_score_first(const void *a, const void *b)
{
    const beam *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* Writes the best hypotheses of a sentence. */
static rd_code search_results(search *s, searched *q, rd_hypothesis *out, rd_status *st)
{
    const int64_t n = rd_search_n_best(s->rules);
    const beam *from = q->n_listed > 0 ? q->list : q->b;
    const int64_t n_from = q->n_listed > 0 ? q->n_listed : q->n;
    if (s->rules->form == RD_LENGTH_SOCKEYE) { /* its beam is in the order of the last step */
        for (int64_t k = 0; k < q->n; k++) q->b[k].row = k;
        qsort(q->b, (size_t)q->n, sizeof *q->b, higher_score_first);
    }
    for (int64_t k = 0; k < n; k++) {
        out[k] = (rd_hypothesis){0};
        if (k >= n_from) continue;
        RD_TRY(trace_back(s, &from[k], &out[k], st));
        if (q->odd) out[k].score = NAN;
    }
done:
    return st->code;
}

/* Does a step have rows for this sentence? */
static bool is_searched(const search *s, const searched *q)
{
    return !q->ended && (s->t < q->limit || s->rules->form != RD_LENGTH_OPENSEQ2SEQ);
}

/* Extends a sentence by a token, which the watch sees. */
static rd_code search_extend(search *s, searched *q, int64_t sentence, const rd_search_best *found,
                             rd_status *st)
{
    const rd_search_watch *w = s->W == 1 ? s->rules->watch : NULL;
    const int64_t last = q->b[0].last;
    RD_TRY((s->rules->samples    ? extend_drawn
            : has_list(s->rules) ? extend_list
                                 : extend_beam)(s, q, found, st));
    if (w && q->n > 0 && q->b[0].last != last &&
        w->token(w->ctx, sentence, s->nodes[q->b[0].last].id))
        q->ended = true;
done:
    return st->code;
}

/* Returns a number in [0, 1) that depends on the sentence and the position alone. */
static double uniform_of(const rd_search_rules *r, int64_t sentence, int64_t t)
{
    const uint64_t n = (uint64_t)((r->number ? r->number[sentence] : sentence) +
                                  r->sampling.before);
    const uint32_t at[4] = {(uint32_t)t, (uint32_t)n, (uint32_t)(n >> 32), 0};
    uint32_t bits[4];
    rd_philox(at, rd_key_make(r->sampling.seed, RD_RNG_SAMPLE, 0, 0), bits);
    return ((double)(bits[0] >> 5) * 67108864.0 + (double)(bits[1] >> 6)) / 9007199254740992.0;
}

/* Allocates what drawing needs. */
static rd_code prepare_draw(search *s, int64_t most, int64_t V, rd_search_best *found,
                            rd_status *st)
{
    RD_TRY(rd_arena_get(s->a, (size_t)(most + 1) * sizeof *s->u, &s->u, st));
    RD_TRY(rd_arena_get(s->a, (size_t)(most + 1) * sizeof *s->may_end, &s->may_end, st));
    s->draw = (rd_search_draw){
        .rules = &s->rules->sampling, .u = s->u, .may_end = s->may_end, .stride = V};
    RD_TRY(rd_arena_get(s->a, (size_t)(most * V + 1) * sizeof(int32_t), &s->draw.scratch, st));
    found->draw = &s->draw;
done:
    return st->code;
}

rd_code rd_search(rd_arena *a, int64_t n_sentences, const int64_t *limit, int64_t V, int32_t start,
                  int32_t end, const rd_search_rules *rules, rd_search_step *step, void *ctx,
                  rd_hypothesis *out, rd_status *st)
{
    search s = {.a = a, .rules = rules, .W = width_of(rules), .end = end, .cap_nodes = 1024};
    const int64_t most = n_sentences * s.W;
    rd_search_best found = {
        .n = rd_search_best_n(rules, V), .end = end, .n_barred = rules->n_barred};
    int64_t *parent, *sentence, longest = 0;
    int32_t *ids;
    searched *of;
    beam *b;
    s.order_only = rules->unscored && s.W == 1 &&
                   (rules->form != RD_LENGTH_OPENSEQ2SEQ || rules->length_penalty == 0.0);
    found.order_only = s.order_only;
    memcpy(found.barred, rules->barred, sizeof found.barred);
    RD_TRY(rd_arena_get(a, (size_t)s.cap_nodes * sizeof *s.nodes, &s.nodes, st));
    RD_TRY(rd_arena_zero(a, (size_t)(n_sentences + 1) * sizeof *of, &of, st));
    RD_TRY(rd_arena_zero(a, (size_t)(2 * most + 1) * sizeof *b, &b, st));
    RD_TRY(rd_arena_get(a, (size_t)(s.W + 1) * sizeof *s.next, &s.next, st));
    RD_TRY(rd_arena_get(a, (size_t)(s.W + 1) * sizeof *s.words, &s.words, st));
    RD_TRY(rd_arena_get(a, (size_t)(s.W + 1) * sizeof *s.ends, &s.ends, st));
    RD_TRY(rd_arena_get(a, (size_t)(most + 1) * sizeof *parent, &parent, st));
    RD_TRY(rd_arena_get(a, (size_t)(most + 1) * sizeof *sentence, &sentence, st));
    RD_TRY(rd_arena_get(a, (size_t)(most + 8) * sizeof *ids, &ids, st));
    RD_TRY(rd_arena_get(a, (size_t)(most * found.n + 1) * sizeof(int32_t), &found.id, st));
    RD_TRY(rd_arena_get(a, (size_t)(most * found.n + 1) * sizeof(float), &found.logp, st));
    RD_TRY(rd_arena_get(a, (size_t)(most + 1) * sizeof(float), &found.end_logp, st));
    if (rules->samples) RD_TRY(prepare_draw(&s, most, V, &found, st));
    for (int64_t i = 0; i < n_sentences; i++) { /* the first hypothesis is empty */
        of[i] = (searched){.b = b + 2 * i * s.W,
                           .list = b + (2 * i + 1) * s.W,
                           .n = 1,
                           .limit = limit[i],
                           .ended = limit[i] <= 0};
        of[i].b[0] = (beam){.last = -1};
        longest = limit[i] > longest ? limit[i] : longest;
    }
    if (rules->coverage > 0.0 && rules->source && has_list(rules) && !rules->samples)
        RD_TRY(prepare_coverage(&s, of, n_sentences, &found, st));
    RD_TRY(rd_arena_get(a, (size_t)(longest + 2) * sizeof *s.penalty, &s.penalty, st));
    for (int64_t i = 0; i < longest + 2; i++) s.penalty[i] = length_penalty(rules, i);
    for (;; s.t++) {
        int64_t rows = 0;
        for (int64_t i = 0; i < n_sentences; i++)
            for (int64_t k = 0; k < of[i].n && is_searched(&s, &of[i]); k++) {
                beam *h = &of[i].b[k];
                if (h->finished) continue;
                parent[rows] = h->row;
                sentence[rows] = i;
                ids[rows] = h->last < 0 ? start : s.nodes[h->last].id;
                if (rules->samples) {
                    s.u[rows] = uniform_of(rules, i, s.t);
                    s.may_end[rows] = takes_end(&s, &of[i]);
                }
                h->row = rows++;
                if (s.order_only) h->logp = 0.0;
            }
        if (rows == 0) break;
        RD_TRY(step(ctx, rows, ids, parent, sentence, &found, st));
        for (int64_t i = 0; i < rows; i++)
            if (found.end_logp[i] == -INFINITY) of[sentence[i]].odd = true;
        for (int64_t i = 0; i < n_sentences; i++)
            if (is_searched(&s, &of[i])) RD_TRY(search_extend(&s, &of[i], i, &found, st));
    }
    for (int64_t i = 0; i < n_sentences; i++)
        RD_TRY(search_results(&s, &of[i], out + i * rd_search_n_best(rules), st));
done:
    return st->code;
}
