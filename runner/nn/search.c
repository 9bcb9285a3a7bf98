/* search.c -- greedy and beam search, OpenSeq2Seq 4.10, over any model that gives logits step by step. Unfinished
 * hypotheses alone are computed; a finished one stays in its beam with its score. Per sentence nothing depends on the
 * other sentences of the batch. */
#include "rd/nn.h"
#include "rd/vecmath.h"
#include <float.h>
#include <math.h>
#include <string.h>

typedef struct node { /* one generated token; the hypothesis is the way back to the root */
    int64_t parent;   /* index of the node before, -1 */
    int32_t id;
} node;

typedef struct beam {
    double logp, score;
    int64_t length; /* tokens, the end token not counted */
    int64_t last;   /* node */
    int64_t row;    /* row of the last step that computed it */
    bool finished;
} beam;

typedef struct candidate {
    double score, logp;
    int64_t k; /* beam */
    int32_t id;
} candidate;

/* Turns a row of logits into log probabilities. */
static void log_softmax(float *x, int64_t V)
{
    const float top = rd_maxf(x, V);
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t v = 0; v < V; v++) sum += rd_expf(x[v] - top);
    const float lse = top + logf(sum);
    for (int64_t v = 0; v < V; v++) x[v] -= lse;
}

static double penalty(int64_t length, double a)
{
    return a == 0.0 ? 1.0 : pow((5.0 + (double)length) / 6.0, a);
}

/* Keeps the W best in best[], best first; candidates come in the order of ties. */
static void offer(candidate *best, int64_t *n, int64_t W, candidate c)
{
    if (*n == W && c.score <= best[W - 1].score) return;
    int64_t i = *n < W ? (*n)++ : W - 1;
    for (; i > 0 && best[i - 1].score < c.score; i--) best[i] = best[i - 1];
    best[i] = c;
}

typedef struct search {
    rd_arena *a;
    int64_t V, W;
    int32_t end;
    double alpha;
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

/* New beams of one sentence from the log probabilities of its unfinished ones. b[0 .. *n) in and out, best first. */
static rd_code extend(search *s, beam *b, int64_t *n, const float *logp, candidate *best, beam *next, rd_status *st)
{
    int64_t kept = 0;
    for (int64_t k = 0; k < *n; k++) {
        if (b[k].finished) {
            offer(best, &kept, s->W, (candidate){b[k].logp / penalty(b[k].length, s->alpha), b[k].logp, k, s->end});
            continue;
        }
        const float *row = logp + b[k].row * s->V;
        const double with_end = penalty(b[k].length, s->alpha), with_word = penalty(b[k].length + 1, s->alpha);
        for (int64_t v = 0; v < s->V; v++) {
            const double total = b[k].logp + (double)row[v], score = total / (v == s->end ? with_end : with_word);
            if (kept == s->W && score <= best[s->W - 1].score) continue;
            offer(best, &kept, s->W, (candidate){score, total, k, (int32_t)v});
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

rd_code rd_search(rd_arena *a, int64_t n_sentences, const int64_t *limit, int64_t V, int32_t start, int32_t end,
                  int64_t beam_width, double length_penalty, rd_search_step *step, void *ctx, rd_hypothesis *out,
                  rd_status *st)
{
    search s = {
        .a = a, .V = V, .W = beam_width < 1 ? 1 : beam_width, .end = end, .alpha = length_penalty, .cap_nodes = 1024};
    const int64_t most = n_sentences * s.W;
    beam *b, *next;
    candidate *best;
    int64_t *n, *parent, *sentence;
    int32_t *ids;
    float *logits;
    RD_TRY(rd_arena_get(a, (size_t)s.cap_nodes * sizeof *s.nodes, &s.nodes, st));
    RD_TRY(rd_arena_zero(a, (size_t)(most + 1) * sizeof *b, &b, st));
    RD_TRY(rd_arena_get(a, (size_t)(s.W + 1) * sizeof *next, &next, st));
    RD_TRY(rd_arena_get(a, (size_t)(s.W + 1) * sizeof *best, &best, st));
    RD_TRY(rd_arena_get(a, (size_t)(n_sentences + 1) * sizeof *n, &n, st));
    RD_TRY(rd_arena_get(a, (size_t)(most + 1) * sizeof *parent, &parent, st));
    RD_TRY(rd_arena_get(a, (size_t)(most + 1) * sizeof *sentence, &sentence, st));
    RD_TRY(rd_arena_get(a, (size_t)(most + 8) * sizeof *ids, &ids, st));
    RD_TRY(rd_arena_get(a, (size_t)((most + 8) * V) * sizeof *logits, &logits, st));
    for (int64_t i = 0; i < n_sentences; i++) { /* one hypothesis at first: the empty one */
        n[i] = 1;
        b[i * s.W] = (beam){.last = -1};
    }
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
        RD_TRY(step(ctx, rows, ids, parent, sentence, logits, st));
        for (int64_t r = 0; r < rows; r++) log_softmax(logits + r * V, V);
        for (int64_t i = 0; i < n_sentences; i++) {
            bool running = false;
            for (int64_t k = 0; k < n[i]; k++) running |= !b[i * s.W + k].finished;
            if (running && t < limit[i]) RD_TRY(extend(&s, b + i * s.W, &n[i], logits, best, next, st));
        }
    }
    for (int64_t i = 0; i < n_sentences; i++) RD_TRY(trace_back(&s, b + i * s.W, &out[i], st));
done:
    return st->code;
}
