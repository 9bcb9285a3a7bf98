/* transformer_search.c -- the decoder of a Transformer one token at a time, for search. It has the
 * formulas of rd_tf_stack_apply; its rows are hypotheses. All backends use this source.
 *
 * Keys and values of all tokens so far are rows of one array for each layer. A step appends a row
 * for each hypothesis, and rows never move. A table lists for each hypothesis the rows of its
 * tokens, so a new beam copies a list of numbers, not keys. If the array is full, the rows of
 * hypotheses that were dropped are removed. The array grows if more than half of it is in use.
 *
 * A decoder with recurrent units has no such rows: a hypothesis has one state in each layer. A step
 * first copies the states of the parents. */
#include "rd/transformer_layers.h"
#include "search_found.h"
#include "transformer_blocks.h"
#include "transformer_coverage.h"
#include "rd/cell.h"
#include "rd/image.h"
#include <inttypes.h>
#include <string.h>

enum { FIRST_TOKENS = 32 }; /* tokens of a hypothesis that the first array has room for */

typedef struct tf_stepper {
    const rd_tf_decoder *d;
    rd_tape *t;
    rd_backend *be;
    rd_arena *a, *dev; /* of the host, of the backend; on a CPU the same */
    const rd_tf_rows *of;
    rd_var *memory_keys[RD_MAX_LAYERS]; /* (M, 2 d) keys and values of the memory */
    rd_var *output, *output_bias;

    /* The rows of all tokens: keys and values of layer l are keys + l cap 2 d, [cap, 2 d]. */
    float *keys;
    int64_t cap, used;
    float *spare; /* the array before the last removal, of spare_cap rows; NULL: none */
    int64_t spare_cap;
    /* [n, tokens] rows of the tokens of each hypothesis, before and after a step. */
    int32_t *table, *other;
    int64_t tokens; /* number of tokens that each hypothesis has */

    /* Recurrent units: the states of layer l are state + l most d, [most, d]. before: those of the
     * parents. NULL: the layers have self-attention. */
    float *state, *before;
    int32_t *parent; /* [most] */
    int64_t most;

    /* [most] of a step's rows */
    int64_t *first, *one, *position, *k_first, *k_len, *memory_first, *memory_len;
    int32_t *ids;
    rd_search_found found;
    const float *factor;  /* (n, d) of the output table, in this step */
    rd_short_output *few; /* logits of a shortlist; NULL: of all tokens */
    rd_tf_cover *cover;   /* attention of the last layer; NULL: it is not wanted */
    const rd_var *query;  /* (n, d) queries of the memory in the last layer, in this step */
} tf_stepper;

/* ---- the rows of tokens ---- */

/* Numbers the rows that the table of n hypotheses lists, in their order. old[i]: the row before.
 * Returns their number. */
static rd_code search_live_rows(tf_stepper *s, int64_t n, int32_t **old, int64_t *n_live,
                                rd_status *st)
{
    int32_t *number, *list;
    int64_t live = 0;
    RD_TRY(rd_arena_zero(s->a, (size_t)(s->used + 1) * sizeof *number, &number, st));
    RD_TRY(rd_arena_get(s->a, (size_t)(s->used + 1) * sizeof *list, &list, st));
    for (int64_t i = 0; i < n * s->tokens; i++) number[s->table[i]] = 1;
    for (int64_t r = 0; r < s->used; r++)
        if (number[r]) {
            list[live] = (int32_t)r;
            number[r] = (int32_t)live++;
        }
    for (int64_t i = 0; i < n * s->tokens; i++) s->table[i] = number[s->table[i]];
    *old = list;
    *n_live = live;
done:
    return st->code;
}

/* Makes room for n more rows. Called outside of a step: the new array stays. */
static rd_code search_make_room(tf_stepper *s, int64_t n, rd_status *st)
{
    const int64_t width = 2 * s->d->stack->c.d;
    const int layers = s->d->stack->n_layers;
    int32_t *old = NULL;
    const int32_t *lent;
    float *to;
    int64_t live = 0, cap = s->cap;
    if (s->used + n <= s->cap) return RD_OK;
    RD_TRY(search_live_rows(s, n, &old, &live, st));
    while (live + n > cap / 2) cap *= 2;
    if (cap > INT32_MAX)
        return rd_fail(st, RD_EUSAGE,
                       "decoding needs more than %d rows of keys; use a smaller batch or beam",
                       INT32_MAX);
    to = s->spare;
    if (!to || s->spare_cap != cap)
        RD_TRY(rd_arena_get(s->dev, (size_t)(layers * cap * width) * sizeof *to, &to, st));
    RD_TRY(rd_backend_lend(s->be, s->dev, old, (size_t)(live + 1) * sizeof *old,
                           (size_t)(live + 1) * sizeof *old, &lent, st));
    for (int l = 0; l < layers; l++) {
        const rd_picked p = {s->keys + l * s->cap * width, width, lent};
        RD_TRY(rd_rows_pick(s->be, 1, &p, live, to + l * cap * width, st));
    }
    s->spare = s->keys;
    s->spare_cap = s->cap;
    s->keys = to;
    s->cap = cap;
    s->used = live;
done:
    return st->code;
}

/* Makes the table that of the n parents. */
static void search_follow(tf_stepper *s, int64_t n, const int64_t *parent)
{
    const size_t bytes = (size_t)s->tokens * sizeof *s->table;
    for (int64_t i = 0; i < n && s->tokens > 0; i++)
        memcpy(s->other + i * s->tokens, s->table + parent[i] * s->tokens, bytes);
    int32_t *swap = s->table;
    s->table = s->other;
    s->other = swap;
}

/* Appends the step's own rows to the table. */
static void search_append(tf_stepper *s, int64_t n)
{
    const int64_t have = s->tokens;
    for (int64_t i = 0; i < n; i++) {
        int32_t *to = s->other + i * (have + 1);
        memcpy(to, s->table + i * have, (size_t)have * sizeof *to);
        to[have] = (int32_t)(s->used + i);
        s->k_first[i] = i * (have + 1);
        s->k_len[i] = have + 1;
    }
    int32_t *swap = s->table;
    s->table = s->other;
    s->other = swap;
    s->tokens = have + 1;
    s->used += n;
}

/* Makes `before` the states of the n parents. */
static rd_code search_states(tf_stepper *s, int64_t n, const int64_t *parent, rd_status *st)
{
    const int64_t d = s->d->stack->c.d, layer = s->most * d;
    const size_t bytes = (size_t)n * sizeof *s->parent;
    const int32_t *lent;
    if (s->tokens == 0) return RD_OK;
    for (int64_t i = 0; i < n; i++) s->parent[i] = (int32_t)parent[i];
    RD_TRY(rd_backend_lend(s->be, s->dev, s->parent, bytes, bytes, &lent, st));
    for (int l = 0; l < s->d->stack->n_layers; l++) {
        const rd_picked p = {s->state + l * layer, d, lent};
        RD_TRY(rd_rows_pick(s->be, 1, &p, n, s->before + l * layer, st));
    }
done:
    return st->code;
}

/* ---- a step ---- */

static rd_code search_logits(void *ctx, int64_t first, int64_t n, float *logits, rd_status *st)
{
    const tf_stepper *s = ctx;
    const int64_t V = s->d->n_classes;
    const float *x = s->factor + first * s->d->stack->c.d;
    RD_TRY(rd_param_mul_t(s->be, s->d->ps, s->output, 0, V, n, x, logits, false, st));
    if (s->output_bias) RD_TRY(rd_add_bias(s->be, n, V, s->output_bias->v, logits, st));
done:
    return st->code;
}

/* Records the self-attention of layer l, and appends the step's keys and values to its rows. base:
 * the first of them. */
static rd_var *search_attention(tf_stepper *s, int l, const rd_attend *self, int64_t base,
                                const rd_tf_rows *rows, rd_var *x)
{
    const rd_tf_config *c = &s->d->stack->c;
    const rd_tf_attention *b = &s->d->stack->layer[l].self;
    const int64_t width = 2 * c->d;
    rd_var keys = {.v = s->keys + l * s->cap * width, .rows = s->used, .cols = width};
    rd_var *q = rd_tf_queries(s->t, c, b, x);
    if (!q || rd_rows_copy(s->be, rows->n, width, q->v + c->d, 3 * c->d, keys.v + base * width,
                           width, false, rd_tape_status(s->t)) != RD_OK)
        return NULL;
    return rd_tf_attended(s->t, c, b, rows, 0, x, rd_op_attend(s->t, self, q, &keys));
}

/* Records the recurrent unit of layer l, and stores its states. */
static rd_var *search_ssru(tf_stepper *s, int l, const rd_tf_rows *rows, rd_var *x)
{
    const rd_tf_config *c = &s->d->stack->c;
    const rd_tf_ssru *b = &s->d->stack->layer[l].ssru;
    const int64_t at = l * s->most * c->d;
    rd_var before = {.v = s->before + at, .rows = rows->n, .cols = c->d};
    rd_var *y = rd_tf_ssru_states(s->t, c, b, rows, x, s->tokens > 0 ? &before : NULL);
    if (!y || rd_vec_copy(s->be, rows->n * c->d, y->v, s->state + at, rd_tape_status(s->t)))
        return NULL;
    return rd_tf_ssru_out(s->t, c, b, rows, 0, x, y);
}

/* Records the layers for one row of each hypothesis. base: the first of their rows of keys. */
static rd_var *search_layers(tf_stepper *s, int64_t n, int64_t base, const rd_tf_rows *rows)
{
    const rd_tf_stack *stack = s->d->stack;
    const rd_tf_config *c = &stack->c;
    rd_attend self = rd_tf_heads(c, 0), memory = self;
    self.n = memory.n = n;
    self.q_first = memory.q_first = s->first;
    self.q_len = memory.q_len = s->one;
    self.k_first = s->k_first;
    self.k_len = s->k_len;
    self.key_row = s->table;
    self.n_key_row = n * s->tokens;
    memory.k_first = s->memory_first;
    memory.k_len = s->memory_len;
    rd_var *x = rd_tf_embedding_apply(s->t, s->d->embedding, rows, 0, s->ids);
    for (int l = 0; l < stack->n_layers && x; l++) {
        const rd_tf_layer *y = &stack->layer[l];
        x = s->state ? search_ssru(s, l, rows, x) : search_attention(s, l, &self, base, rows, x);
        rd_var *q = rd_tf_queries(s->t, c, &y->memory, x);
        s->query = q;
        x = rd_tf_attended(s->t, c, &y->memory, rows, 0, x,
                           rd_op_attend(s->t, &memory, q, s->memory_keys[l]));
        x = rd_tf_ff_apply(s->t, c, &y->ff, rows, 0, x);
    }
    return stack->last.gain ? rd_tf_norm_apply(s->t, c, &stack->last, x) : x;
}

static rd_code tf_step(void *ctx, int64_t n, const int32_t *ids, const int64_t *parent,
                       const int64_t *sentence, const rd_search_best *out, rd_status *st)
{
    tf_stepper *s = ctx;
    const int64_t at = s->tokens;
    if (!s->state) {
        search_follow(s, n, parent);
        RD_TRY(search_make_room(s, n, st));
    }
    const int64_t base = s->used;
    const rd_mark host = rd_arena_mark(s->a), device = rd_arena_mark(s->dev);
    if (s->state)
        RD_TRY(search_states(s, n, parent, st));
    else
        search_append(s, n);
    for (int64_t i = 0; i < n; i++) {
        s->position[i] = at;
        s->memory_first[i] = s->of->first[sentence[i]];
        s->memory_len[i] = s->of->len[sentence[i]];
        s->ids[i] = ids[i];
    }
    const rd_tf_rows rows = {
        .n = n, .N = n, .first = s->first, .len = s->one, .position = s->position};
    rd_var *x = search_layers(s, n, base, &rows);
    RD_TRY(rd_tape_check(s->t, st));
    s->tokens = at + 1;
    s->factor = x->v;
    if (out->attention) RD_TRY(rd_tf_cover_step(s->cover, n, s->query->v, sentence, out, st));
    if (s->few)
        RD_TRY(rd_short_output_best(s->few, n, s->factor, sentence, out, st));
    else
        RD_TRY(rd_search_found_best(&s->found, n, s->d->n_classes, 1.0f, search_logits, s, out,
                                    st));
    /* The step's variables end here. A GPU runs its queue in order, so the memory may be used
     * again. */
    if (s->dev != s->a) rd_arena_rewind(s->dev, device);
    rd_arena_rewind(s->a, host);
done:
    return st->code;
}

/* Allocates the rows of keys and their tables. */
static rd_code search_allocate_keys(tf_stepper *s, int64_t most, int64_t longest, rd_status *st)
{
    const int64_t width = 2 * s->d->stack->c.d,
                  tokens = longest + 1 < FIRST_TOKENS ? longest + 1 : FIRST_TOKENS;
    const size_t row = (size_t)(s->d->stack->n_layers * width) * sizeof(float),
                 table = (size_t)(most * (longest + 1)) * sizeof *s->table;
    RD_TRY(rd_arena_get(s->a, table, &s->table, st));
    RD_TRY(rd_arena_get(s->a, table, &s->other, st));
    s->cap = (int64_t)(rd_backend_block_bytes(s->be, (size_t)(most * tokens) * row) / row);
    if (s->cap < most) s->cap = most;
    RD_TRY(rd_arena_get(s->dev, (size_t)(s->cap + 1) * row, &s->keys, st));
done:
    return st->code;
}

static rd_code search_allocate_states(tf_stepper *s, int64_t most, rd_status *st)
{
    const size_t bytes = (size_t)(s->d->stack->n_layers * most * s->d->stack->c.d) * sizeof(float);
    s->most = most;
    RD_TRY(rd_arena_get(s->a, (size_t)most * sizeof *s->parent, &s->parent, st));
    RD_TRY(rd_arena_get(s->dev, bytes, &s->state, st));
    RD_TRY(rd_arena_get(s->dev, bytes, &s->before, st));
done:
    return st->code;
}

/* Allocates the buffers for `most` rows and `longest` tokens: those of kernels from s->dev, those
 * of the host from s->a. */
static rd_code search_allocate(tf_stepper *s, int64_t most, int64_t longest, int64_t n_best,
                               rd_status *st)
{
    const size_t each = (size_t)(most + 1) * sizeof(int64_t);
    int64_t **const lists[] = {&s->first, &s->one,          &s->position,  &s->k_first,
                               &s->k_len, &s->memory_first, &s->memory_len};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        RD_TRY(rd_arena_get(s->a, each, lists[i], st));
    for (int64_t i = 0; i < most; i++) {
        s->first[i] = i;
        s->one[i] = 1;
    }
    RD_TRY(rd_arena_get(s->a, each, &s->ids, st));
    if (s->d->stack->c.ssru)
        RD_TRY(search_allocate_states(s, most, st));
    else
        RD_TRY(search_allocate_keys(s, most, longest, st));
    RD_TRY(rd_search_found_new(s->be, s->dev, s->a, most, n_best, s->d->n_classes, !s->few,
                               &s->found, st));
done:
    return st->code;
}

rd_code rd_tf_search(rd_tape *t, const rd_tf_decoder *d, rd_var *memory, const rd_tf_rows *of,
                     const rd_search_rules *rules, const rd_token_sets *sets, rd_hypothesis *out,
                     rd_status *st)
{
    const int64_t width = rules->beam_width < 1 ? 1 : rules->beam_width, n = of->n;
    tf_stepper *s;
    rd_search_rules with_source = *rules;
    int64_t *limit, longest = 0;
    RD_TRY(rd_tape_check(t, st));
    RD_TRY(rd_arena_zero(rd_tape_arena(t), sizeof *s, &s, st));
    s->d = d;
    s->t = t;
    s->be = rd_tape_backend(t);
    s->a = rd_tape_arena(t);
    s->dev = rd_tape_device_arena(t);
    s->of = of;
    RD_TRY(rd_search_kernels_check(s->be, width, sets != NULL, st));
    /* The leaves of all parameters are made now, since a step's variables end with it. */
    for (int i = 0; i < rd_params_n(d->ps); i++) (void)rd_tape_param(t, rd_params_at(d->ps, i));
    s->output = rd_tape_param(t, d->output);
    s->output_bias = rd_tape_param(t, d->output_bias);
    memory = rd_op_cast(t, memory, RD_FLOAT32);
    for (int l = 0; l < d->stack->n_layers; l++)
        s->memory_keys[l] = rd_tf_memory_keys(t, &d->stack->layer[l].memory, memory);
    RD_TRY(rd_tape_check(t, st));
    RD_TRY(rd_arena_get(s->a, (size_t)(n + 1) * sizeof *limit, &limit, st));
    for (int64_t i = 0; i < n; i++) {
        limit[i] = rd_search_limit(rules, of->len[i]);
        longest = limit[i] > longest ? limit[i] : longest;
    }
    if (sets) {
        const rd_output_table table = {.w = s->output->v,
                                       .rows = true,
                                       .bias = s->output_bias ? s->output_bias->v : NULL,
                                       .X = d->stack->c.d,
                                       .V = d->n_classes,
                                       .temperature = 1.0f};
        RD_TRY(rd_short_output_new(s->a, s->be, &table, n, sets, n * width, &s->few, st));
    }
    with_source.source = of->len;
    if (rules->coverage > 0.0)
        RD_TRY(rd_tf_cover_new(s->a, s->be, &d->stack->c, s->memory_keys[d->stack->n_layers - 1],
                               of, n * width, &s->cover, st));
    RD_TRY(search_allocate(s, n * width + RD_SLACK_ROWS, longest,
                           rd_search_best_n(rules, d->n_classes), st));
    RD_TRY(rd_search(s->a, n, limit, d->n_classes, d->start, d->end, &with_source, tf_step, s, out,
                     st));
done:
    return st->code;
}
