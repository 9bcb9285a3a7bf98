/* short_output.c -- the logits of a shortlist: those of the tokens that a sentence may have.
 *
 * Each sentence has its own list of tokens, so its logits do not depend on its neighbours. A union
 * over the batch would be most of the vocabulary. A step waits for the reads of the table. So all
 * sentences use one block of the table, which fits a core's cache, before the next one. Each logit
 * is a sum in one fixed order. */
#include "rd/nn.h"
#include <string.h>

/* Consecutive rows of one sentence. */
typedef struct short_group {
    int64_t row, n, sentence;
} short_group;

enum { BLOCK_BYTES = 1 << 17 }; /* of the table */

struct rd_short_output {
    rd_backend *be;
    rd_output_table t;
    const rd_token_sets *sets;
    const float *table; /* rows of X numbers */
    const int32_t *at;  /* row of the table for each element of sets->id; NULL: the id is the row */
    /* With int8, in place of table: rows of X integers and their scales, and those of x. */
    int8_t *table8, *x8;
    float *scale8, *x_scale;
    int64_t widest; /* tokens of the longest list */
    float *logits;  /* [most, widest] */
    int64_t n_blocks;
    /* [n, n_blocks + 1] of each sentence the first pair of tokens of each block. Tokens 2 p and
     * 2 p + 1 of a list are pair p, and the first of them decides its block. */
    int32_t *begin;
    short_group *group; /* [most] groups of the present step */
    int64_t n_groups;
};

/* Numbers the tokens that a list has: s->at, and in *column the n_rows tokens. */
static rd_code short_number(rd_short_output *s, rd_arena *a, int64_t n_ids, int32_t **tokens,
                            int64_t *n_rows, rd_status *st)
{
    const int64_t V = s->t.V;
    int32_t *row, *at, *column;
    int64_t n = 0;
    RD_TRY(rd_arena_get(a, (size_t)(V + 1) * sizeof *row, &row, st));
    RD_TRY(rd_arena_get(a, (size_t)(V + 1) * sizeof *column, &column, st));
    RD_TRY(rd_arena_get(a, (size_t)(n_ids + 1) * sizeof *at, &at, st));
    memset(row, 0, (size_t)V * sizeof *row);
    for (int64_t i = 0; i < n_ids; i++) row[s->sets->id[i]] = 1;
    for (int64_t v = 0; v < V; v++)
        if (row[v]) {
            column[n] = (int32_t)v;
            row[v] = (int32_t)n++;
        }
    for (int64_t i = 0; i < n_ids; i++) at[i] = row[s->sets->id[i]];
    s->at = at;
    *tokens = column;
    *n_rows = n;
done:
    return st->code;
}

/* Copies the columns of w (X, V) that a list has, as rows. */
static rd_code short_gather(rd_short_output *s, rd_arena *a, int64_t n_ids, int64_t *n_rows,
                            rd_status *st)
{
    const int64_t V = s->t.V, X = s->t.X;
    int32_t *column;
    float *table;
    int64_t n;
    RD_TRY(short_number(s, a, n_ids, &column, &n, st));
    RD_TRY(rd_arena_get(a, (size_t)(n * X + 1) * sizeof *table, &table, st));
    enum { SIDE = 16 }; /* of a block: one cache line in each direction */
    for (int64_t j0 = 0; j0 < n; j0 += SIDE)
        for (int64_t k0 = 0; k0 < X; k0 += SIDE)
            for (int64_t j = j0; j < n && j < j0 + SIDE; j++)
                for (int64_t k = k0; k < X && k < k0 + SIDE; k++)
                    table[j * X + k] = s->t.w[k * V + column[j]];
    s->table = table;
    *n_rows = n;
done:
    return st->code;
}

typedef struct short_rows8 {
    int64_t X;
    const float *from;
    const int32_t *number; /* row i is number[i] of `from`; NULL: i */
    int8_t *to;
    float *scale;
} short_rows8;

static void short_round(void *ctx, int64_t lo, int64_t hi)
{
    const short_rows8 *j = ctx;
    for (int64_t i = lo; i < hi; i++)
        j->scale[i] = rd_int8_row(j->X, j->from + (j->number ? j->number[i] : i) * j->X,
                                  j->to + i * j->X);
}

/* Quantises the rows of w (V, X) that a list has. Their numbers are those of the whole product. */
static rd_code short_quantise(rd_short_output *s, rd_arena *a, int64_t n_ids, int64_t most,
                              int64_t *n_rows, rd_status *st)
{
    const int64_t X = s->t.X;
    int32_t *tokens;
    RD_TRY(short_number(s, a, n_ids, &tokens, n_rows, st));
    RD_TRY(rd_arena_get(a, (size_t)(*n_rows * X + 1), &s->table8, st));
    RD_TRY(rd_arena_get(a, (size_t)(*n_rows + 1) * sizeof *s->scale8, &s->scale8, st));
    RD_TRY(rd_arena_get(a, (size_t)(most * X + 1), &s->x8, st));
    RD_TRY(rd_arena_get(a, (size_t)(most + 1) * sizeof *s->x_scale, &s->x_scale, st));
    short_rows8 j = {X, s->t.w, tokens, s->table8, s->scale8};
    rd_parallel(s->be, *n_rows, 64, short_round, &j);
done:
    return st->code;
}

static int64_t short_row(const rd_short_output *s, int64_t i)
{
    return s->at ? s->at[i] : s->sets->id[i];
}

/* Cuts the lists into blocks of the table, which has n_rows rows. */
static rd_code short_cut(rd_short_output *s, rd_arena *a, int64_t n, int64_t n_rows, rd_status *st)
{
    const int64_t each = s->table8 ? 1 : (int64_t)sizeof(float), fit = BLOCK_BYTES / each / s->t.X,
                  rows = fit < 8 ? 8 : fit;
    s->n_blocks = n_rows / rows + 1;
    RD_TRY(rd_arena_get(a, (size_t)(n * (s->n_blocks + 1) + 1) * sizeof *s->begin, &s->begin, st));
    for (int64_t i = 0; i < n; i++) {
        const int64_t first = s->sets->at[i], pairs = (s->sets->at[i + 1] - first + 1) / 2;
        int32_t *begin = s->begin + i * (s->n_blocks + 1);
        int64_t p = 0;
        for (int64_t b = 0; b < s->n_blocks; b++) {
            begin[b] = (int32_t)p;
            while (p < pairs && short_row(s, first + 2 * p) < (b + 1) * rows) p++;
        }
        begin[s->n_blocks] = (int32_t)pairs;
    }
done:
    return st->code;
}

rd_code rd_short_output_new(rd_arena *a, rd_backend *be, const rd_output_table *t, int64_t n,
                            const rd_token_sets *sets, int64_t most, rd_short_output **out,
                            rd_status *st)
{
    rd_short_output *s;
    RD_TRY(rd_arena_zero(a, sizeof *s, &s, st));
    *s = (rd_short_output){.be = be, .t = *t, .sets = sets, .table = t->w};
    for (int64_t i = 0; i < n; i++) {
        const int64_t len = sets->at[i + 1] - sets->at[i];
        s->widest = len > s->widest ? len : s->widest;
        for (int64_t k = sets->at[i]; k < sets->at[i + 1]; k++)
            if (sets->id[k] < 0 || sets->id[k] >= t->V)
                return rd_fail(st, RD_EBUG, "a shortlist has a token that is not in the table");
    }
    int64_t n_rows = t->V;
    const int64_t n_ids = n > 0 ? sets->at[n] : 0;
    if (!t->rows)
        RD_TRY(short_gather(s, a, n_ids, &n_rows, st));
    else if (rd_backend_uses_int8(be))
        RD_TRY(short_quantise(s, a, n_ids, most, &n_rows, st));
    RD_TRY(short_cut(s, a, n, n_rows, st));
    RD_TRY(rd_arena_get(a, (size_t)(most * s->widest + 1) * sizeof *s->logits, &s->logits, st));
    RD_TRY(rd_arena_get(a, (size_t)(most + 1) * sizeof *s->group, &s->group, st));
    *out = s;
done:
    return st->code;
}

/* Computes the products of two vectors of the table with two rows of x. */
static void short_dots(int64_t X, const float *restrict w0, const float *restrict w1,
                       const float *restrict x0, const float *restrict x1, float out[4])
{
    float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
#pragma omp simd reduction(+ : a, b, c, d)
    for (int64_t k = 0; k < X; k++) {
        a += w0[k] * x0[k];
        b += w1[k] * x0[k];
        c += w0[k] * x1[k];
        d += w1[k] * x1[k];
    }
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
}

/* Does the same with integers: a sum is exact. row, scale: scales of x0, x1, w0, w1. */
static void short_dots8(int64_t X, const int8_t *restrict w0, const int8_t *restrict w1,
                        const int8_t *restrict x0, const int8_t *restrict x1, const float scale[2],
                        const float row[2], float out[4])
{
    int32_t a = 0, b = 0, c = 0, d = 0;
#pragma omp simd reduction(+ : a, b, c, d)
    for (int64_t k = 0; k < X; k++) {
        a += w0[k] * x0[k];
        b += w1[k] * x0[k];
        c += w0[k] * x1[k];
        d += w1[k] * x1[k];
    }
    out[0] = (float)a * (row[0] * scale[0]);
    out[1] = (float)b * (row[0] * scale[1]);
    out[2] = (float)c * (row[1] * scale[0]);
    out[3] = (float)d * (row[1] * scale[1]);
}

typedef struct short_job {
    rd_short_output *s;
    const float *x;
    const rd_search_best *best;
} short_job;

/* Computes the logits of pair p of a group. A last single token is its own neighbour, and so is a
 * last single row: each logit is computed by the same function. */
static void short_pair(const short_job *j, const short_group *q, int64_t p)
{
    rd_short_output *s = j->s;
    const int64_t X = s->t.X, first = s->sets->at[q->sentence],
                  len = s->sets->at[q->sentence + 1] - first, k0 = 2 * p,
                  k1 = k0 + 1 < len ? k0 + 1 : k0;
    const int32_t id0 = s->sets->id[first + k0], id1 = s->sets->id[first + k1];
    const int64_t t0 = short_row(s, first + k0), t1 = short_row(s, first + k1);
    const float b0 = s->t.bias ? s->t.bias[id0] : 0.0f, b1 = s->t.bias ? s->t.bias[id1] : 0.0f;
    for (int64_t i = 0; i < q->n; i += 2) {
        const int64_t r0 = q->row + i, r1 = i + 1 < q->n ? r0 + 1 : r0;
        float d[4], *l0 = s->logits + r0 * s->widest, *l1 = s->logits + r1 * s->widest;
        if (s->table8)
            short_dots8(X, s->table8 + t0 * X, s->table8 + t1 * X, s->x8 + r0 * X, s->x8 + r1 * X,
                        (const float[]){s->scale8[t0], s->scale8[t1]},
                        (const float[]){s->x_scale[r0], s->x_scale[r1]}, d);
        else
            short_dots(X, s->table + t0 * X, s->table + t1 * X, j->x + r0 * X, j->x + r1 * X, d);
        l0[k0] = (d[0] + b0) / s->t.temperature;
        l0[k1] = (d[1] + b1) / s->t.temperature;
        l1[k0] = (d[2] + b0) / s->t.temperature;
        l1[k1] = (d[3] + b1) / s->t.temperature;
    }
}

/* Computes the logits of all groups in blocks [lo, hi) of the table. */
static void short_blocks(void *ctx, int64_t lo, int64_t hi)
{
    const short_job *j = ctx;
    const rd_short_output *s = j->s;
    for (int64_t b = lo; b < hi; b++)
        for (int64_t g = 0; g < s->n_groups; g++) {
            const int32_t *begin = s->begin + s->group[g].sentence * (s->n_blocks + 1) + b;
            for (int64_t p = begin[0]; p < begin[1]; p++) short_pair(j, &s->group[g], p);
        }
}

/* Returns the place of a token in a list, or -1. */
static int64_t short_place(const int32_t *id, int64_t n, int32_t token)
{
    int64_t lo = 0, hi = n;
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (id[mid] < token)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && id[lo] == token ? lo : -1;
}

/* Finds the best tokens of the rows of groups [lo, hi), as places of a list, and then their ids. */
static void short_best(void *ctx, int64_t lo, int64_t hi)
{
    const short_job *j = ctx;
    rd_short_output *s = j->s;
    for (int64_t g = lo; g < hi; g++) {
        const short_group *q = &s->group[g];
        const int32_t *id = s->sets->id + s->sets->at[q->sentence];
        const int64_t len = s->sets->at[q->sentence + 1] - s->sets->at[q->sentence];
        rd_search_best own = *j->best;
        own.end = (int32_t)short_place(id, len, j->best->end);
        own.n_barred = 0;
        for (int i = 0; i < j->best->n_barred; i++) {
            const int64_t at = short_place(id, len, j->best->barred[i]);
            if (at >= 0) own.barred[own.n_barred++] = (int32_t)at;
        }
        for (int64_t r = q->row; r < q->row + q->n; r++) {
            rd_search_best_rows(&own, r, 1, len, s->logits + r * s->widest);
            for (int64_t k = r * own.n; k < (r + 1) * own.n; k++)
                if (own.id[k] >= 0) own.id[k] = id[own.id[k]];
        }
    }
}

rd_code rd_short_output_best(rd_short_output *s, int64_t n, const float *x, const int64_t *sentence,
                             const rd_search_best *best, rd_status *st)
{
    short_job j = {s, x, best};
    s->n_groups = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i > 0 && sentence[i] == sentence[i - 1]) {
            s->group[s->n_groups - 1].n++;
            continue;
        }
        const int64_t at = s->sets->at[sentence[i]], len = s->sets->at[sentence[i] + 1] - at;
        if (short_place(s->sets->id + at, len, best->end) < 0)
            return rd_fail(st, RD_EBUG, "the shortlist of a sentence lacks the end token");
        s->group[s->n_groups++] = (short_group){i, 1, sentence[i]};
    }
    short_rows8 rounding = {s->t.X, x, NULL, s->x8, s->x_scale};
    if (s->table8) rd_parallel(s->be, n, 64, short_round, &rounding);
    rd_parallel(s->be, s->n_blocks, 1, short_blocks, &j);
    rd_parallel(s->be, s->n_groups, 1, short_best, &j);
    return st->code;
}
