/* search.c -- greedy and beam search, OpenSeq2Seq 4.10, over any model that finds the best tokens
 * of a step.
 *
 * Only unfinished hypotheses are computed. A finished hypothesis stays in its beam with its score.
 * The result of a sentence does not depend on the other sentences of the batch.
 *
 * The W best tokens of a row and the end token are enough. All tokens of a row have the same length
 * penalty, so their scores are in the order of their log probabilities, and at most W of them are
 * among the W best of the sentence.
 *
 * Two tokens with different log probabilities have different scores. The probabilities of a row sum
 * to 1, so at most one log probability is above -0.69. The others are floats that are at least
 * 2^-24 apart. A sum in double keeps this difference while the log probability of the sentence is
 * above -2^24. */
#include "rd/nn.h"
#include "rd/vecmath.h"
#include <math.h>
#include <string.h>

/* One generated token. A hypothesis is the path from its last node back to the root. */
typedef struct node {
    int64_t parent; /* index of the previous node; -1: the first token */
    int32_t id;
} node;

typedef struct beam {
    double logp, score;
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

static void best_of_row(const rd_search_best *out, int64_t row, int64_t V, float *restrict x)
{
    enum { PART = 128 };
    float *logp = out->logp + row * out->n;
    int32_t *id = out->id + row * out->n;
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
    const float lse = top + (float)log(sum);
    const bool fine = lse == lse; /* false: the whole row becomes -INFINITY */
    out->end_logp[row] = fine ? x[out->end] - lse : -INFINITY;
    x[out->end] = -INFINITY;
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
            if ((y[j] > logp[0] || (y[j] == logp[0] && v < id[0])) && v != out->end)
                replace_worst(out->n, logp, id, y[j], v);
        }
    }
}

void rd_search_best_rows(const rd_search_best *out, int64_t first, int64_t n, int64_t V,
                         float *logits)
{
    for (int64_t i = 0; i < n; i++) best_of_row(out, first + i, V, logits + i * V);
}

/* ---- search ---- */

static bool beats(const candidate *a, const candidate *b)
{
    if (a->score != b->score) return a->score > b->score;
    return a->k != b->k ? a->k < b->k : a->id < b->id;
}

/* Inserts c into best[], which keeps the W best candidates, best first. Of equal scores the one of
 * the better beam comes first, then the lower id. */
static void offer(candidate *best, int64_t *n, int64_t W, candidate c)
{
    if (*n == W && !beats(&c, &best[W - 1])) return;
    int64_t i = *n < W ? (*n)++ : W - 1;
    for (; i > 0 && beats(&c, &best[i - 1]); i--) best[i] = best[i - 1];
    best[i] = c;
}

typedef struct search {
    rd_arena *a;
    int64_t W;
    int32_t end;
    double *penalty; /* length penalty by number of tokens */
    node *nodes;
    int64_t n_nodes, cap_nodes;
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

/* Replaces the beams b[0 .. *n) of one sentence, best first, by those after one more token. rows:
 * the best tokens of its unfinished beams. best, next: scratch for W elements. */
static rd_code extend(search *s, beam *b, int64_t *n, const rd_search_best *rows, candidate *best,
                      beam *next, rd_status *st)
{
    int64_t kept = 0;
    for (int64_t k = 0; k < *n; k++) {
        const double with_end = s->penalty[b[k].length], with_word = s->penalty[b[k].length + 1];
        if (b[k].finished) {
            offer(best, &kept, s->W, (candidate){b[k].logp / with_end, b[k].logp, k, s->end});
            continue;
        }
        const double ended = b[k].logp + (double)rows->end_logp[b[k].row];
        offer(best, &kept, s->W, (candidate){ended / with_end, ended, k, s->end});
        for (int64_t i = b[k].row * rows->n; i < (b[k].row + 1) * rows->n; i++) {
            const double total = b[k].logp + (double)rows->logp[i];
            offer(best, &kept, s->W, (candidate){total / with_word, total, k, rows->id[i]});
        }
    }
    for (int64_t i = 0; i < kept; i++) {
        const candidate *c = &best[i];
        const beam *from = &b[c->k];
        next[i] = (beam){.logp = c->logp,
                         .score = c->score,
                         .finished = from->finished || c->id == s->end,
                         .row = from->row,
                         .last = from->last};
        next[i].length = from->length + (next[i].finished ? 0 : 1);
        if (!from->finished) RD_TRY(add_node(s, from->last, c->id, &next[i].last, st));
    }
    memcpy(b, next, (size_t)kept * sizeof *b);
    *n = kept;
done:
    return st->code;
}

static rd_code trace_back(search *s, const beam *b, rd_hypothesis *out, rd_status *st)
{
    int64_t n = 0;
    int32_t *ids;
    for (int64_t k = b->last; k >= 0; k = s->nodes[k].parent) n += s->nodes[k].id != s->end;
    RD_TRY(rd_arena_get(s->a, (size_t)(n + 1) * sizeof *ids, &ids, st));
    out->ids = ids;
    out->n = n;
    out->score = b->score;
    for (int64_t k = b->last; k >= 0; k = s->nodes[k].parent)
        if (s->nodes[k].id != s->end) ids[--n] = s->nodes[k].id;
done:
    return st->code;
}

rd_code rd_search(rd_arena *a, int64_t n_sentences, const int64_t *limit, int64_t V, int32_t start,
                  int32_t end, int64_t beam_width, double length_penalty, rd_search_step *step,
                  void *ctx, rd_hypothesis *out, rd_status *st)
{
    search s = {.a = a, .W = beam_width < 1 ? 1 : beam_width, .end = end, .cap_nodes = 1024};
    const int64_t most = n_sentences * s.W;
    rd_search_best found = {.n = s.W < V - 1 ? s.W : V - 1, .end = end};
    beam *b, *next;
    candidate *best;
    int64_t *n, *parent, *sentence, longest = 0;
    int32_t *ids;
    bool *odd; /* [n_sentences] logits were not finite */
    RD_TRY(rd_arena_get(a, (size_t)s.cap_nodes * sizeof *s.nodes, &s.nodes, st));
    RD_TRY(rd_arena_zero(a, (size_t)(most + 1) * sizeof *b, &b, st));
    RD_TRY(rd_arena_get(a, (size_t)(s.W + 1) * sizeof *next, &next, st));
    RD_TRY(rd_arena_get(a, (size_t)(s.W + 1) * sizeof *best, &best, st));
    RD_TRY(rd_arena_get(a, (size_t)(n_sentences + 1) * sizeof *n, &n, st));
    RD_TRY(rd_arena_zero(a, (size_t)(n_sentences + 1) * sizeof *odd, &odd, st));
    RD_TRY(rd_arena_get(a, (size_t)(most + 1) * sizeof *parent, &parent, st));
    RD_TRY(rd_arena_get(a, (size_t)(most + 1) * sizeof *sentence, &sentence, st));
    RD_TRY(rd_arena_get(a, (size_t)(most + 8) * sizeof *ids, &ids, st));
    RD_TRY(rd_arena_get(a, (size_t)(most * found.n + 1) * sizeof(int32_t), &found.id, st));
    RD_TRY(rd_arena_get(a, (size_t)(most * found.n + 1) * sizeof(float), &found.logp, st));
    RD_TRY(rd_arena_get(a, (size_t)(most + 1) * sizeof(float), &found.end_logp, st));
    for (int64_t i = 0; i < n_sentences; i++) { /* the first hypothesis is empty */
        n[i] = 1;
        b[i * s.W] = (beam){.last = -1};
        longest = limit[i] > longest ? limit[i] : longest;
    }
    RD_TRY(rd_arena_get(a, (size_t)(longest + 2) * sizeof *s.penalty, &s.penalty, st));
    for (int64_t i = 0; i < longest + 2; i++)
        s.penalty[i] = length_penalty == 0.0 ? 1.0 : pow((5.0 + (double)i) / 6.0, length_penalty);
    for (int64_t t = 0;; t++) {
        int64_t rows = 0;
        for (int64_t i = 0; i < n_sentences; i++)
            for (int64_t k = 0; k < n[i] && t < limit[i]; k++) {
                beam *h = &b[i * s.W + k];
                if (h->finished) continue;
                parent[rows] = h->row;
                sentence[rows] = i;
                ids[rows] = h->last < 0 ? start : s.nodes[h->last].id;
                h->row = rows++;
            }
        if (rows == 0) break;
        RD_TRY(step(ctx, rows, ids, parent, sentence, &found, st));
        for (int64_t i = 0; i < rows; i++)
            if (found.end_logp[i] == -INFINITY) odd[sentence[i]] = true;
        for (int64_t i = 0; i < n_sentences; i++) {
            bool running = false;
            for (int64_t k = 0; k < n[i]; k++) running |= !b[i * s.W + k].finished;
            if (running && t < limit[i])
                RD_TRY(extend(&s, b + i * s.W, &n[i], &found, best, next, st));
        }
    }
    for (int64_t i = 0; i < n_sentences; i++) {
        RD_TRY(trace_back(&s, b + i * s.W, &out[i], st));
        if (odd[i]) out[i].score = NAN;
    }
done:
    return st->code;
}
