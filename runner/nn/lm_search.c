/* lm_search.c -- continues texts with a language model, token by token.
 *
 * The first step computes the prompts whole, in one pass, and keeps the keys and values of their
 * tokens. Each further step computes one row for each hypothesis. All keys are rows of one array
 * for each layer; rows never move. A table lists for each hypothesis the rows of its tokens, so
 * hypotheses of one prompt share its rows, and a new beam copies a list of numbers. */
#include "rd/transformer_layers.h"
#include "search_found.h"
#include "transformer_blocks.h"
#include "rd/cell.h"
#include <inttypes.h>
#include <string.h>

/* The logit of the end token of a model that has none: it is never chosen, and stays finite. */
static const float NEVER = -3e37f;

typedef struct lm_stepper {
    const rd_lm_decoder *d;
    const rd_lm_prompts *p;
    rd_tape *t;
    rd_backend *be;
    rd_arena *a, *dev; /* of the host, of the backend; on a CPU the same */
    rd_var *output;
    int64_t width; /* of keys and values of a token */
    int64_t V;     /* columns of the logits: the tokens, and an end token that the model lacks */

    /* The rows of all tokens: those of layer l are keys + l cap width, [cap, width]. */
    float *keys;
    int64_t cap, used;
    /* [n, stride] rows of the tokens of each hypothesis, and their numbers [n]; before and after a
     * step. */
    int32_t *table, *other;
    int64_t *length, *other_length;
    int64_t stride;
    bool begun; /* the prompts are computed */

    /* [most] of a step's rows */
    int64_t *first, *one, *position, *k_first;
    int32_t *ids, *key_row; /* key_row: [most stride] */
    rd_search_found found;
    const float *factor; /* (n, d) of the output table, in this step */
    float *plain, *low;  /* without an end token: [block, V - 1] logits; [block] NEVER */
} lm_stepper;

static rd_code lm_logits(void *ctx, int64_t first, int64_t n, float *logits, rd_status *st)
{
    const lm_stepper *s = ctx;
    const int64_t V = s->d->n_classes;
    const float *x = s->factor + first * s->d->stack->c.d;
    float *to = s->plain ? s->plain : logits;
    RD_TRY(rd_param_mul_t(s->be, s->d->ps, s->output, 0, V, n, x, to, false, st));
    if (s->d->softcap > 0.0) RD_TRY(rd_vec_softcap(s->be, n * V, (float)s->d->softcap, to, st));
    if (!s->plain) return RD_OK;
    RD_TRY(rd_rows_copy(s->be, n, V, to, V, logits, s->V, false, st));
    RD_TRY(rd_rows_copy(s->be, n, 1, s->low, 1, logits + V, s->V, false, st));
done:
    return st->code;
}

/* Records all layers for some rows, and stores their keys. self: attention of the rows; cached: to
 * the rows of keys, else among themselves. */
static rd_var *lm_layers(lm_stepper *s, const rd_tf_rows *rows, const int32_t *ids,
                         const rd_attend *self, bool cached)
{
    const rd_tf_stack *stack = s->d->stack;
    const rd_tf_config *c = &stack->c;
    const int64_t q_width = c->n_heads * c->head;
    rd_var *x = rd_tf_embedding_apply(s->t, s->d->embedding, rows, 0, ids);
    for (int l = 0; l < stack->n_layers && x; l++) {
        const rd_tf_attention *b = &stack->layer[l].self;
        rd_var keys = {
            .v = s->keys + l * s->cap * s->width, .rows = s->used + rows->N, .cols = s->width};
        rd_var *q = rd_tf_self_queries(s->t, c, b, rows, 0, x);
        if (!q || rd_rows_copy(s->be, rows->N, s->width, q->v + q_width, q->cols,
                               keys.v + s->used * s->width, s->width, false,
                               rd_tape_status(s->t)) != RD_OK)
            return NULL;
        x = rd_tf_attended(s->t, c, b, rows, 0, x, rd_op_attend(s->t, self, q, cached ? &keys : q));
        x = rd_tf_ff_apply(s->t, c, &stack->layer[l].ff, rows, 0, x);
    }
    return x;
}

/* Computes the prompts of n sentences, and returns the last row of each. */
static rd_var *lm_begin(lm_stepper *s, int64_t n, const int64_t *sentence)
{
    const rd_lm_prompts *p = s->p;
    rd_status *st = rd_tape_status(s->t);
    rd_tf_rows rows;
    int64_t *len, *last, N = 0;
    int32_t *ids;
    for (int64_t i = 0; i < n; i++) N += p->off[sentence[i] + 1] - p->off[sentence[i]];
    RD_TRY(rd_arena_get(s->a, (size_t)(n + 1) * sizeof *len, &len, st));
    RD_TRY(rd_arena_get(s->a, (size_t)(n + 1) * sizeof *last, &last, st));
    RD_TRY(rd_arena_get(s->a, (size_t)(N + 1) * sizeof *ids, &ids, st));
    for (int64_t i = 0, at = 0; i < n; i++) {
        const int64_t from = p->off[sentence[i]];
        len[i] = p->off[sentence[i] + 1] - from;
        memcpy(ids + at, p->ids + from, (size_t)len[i] * sizeof *ids);
        for (int64_t k = 0; k < len[i]; k++)
            s->table[i * s->stride + k] = (int32_t)(s->used + at + k);
        s->length[i] = len[i];
        at += len[i];
        last[i] = at - 1;
    }
    RD_TRY(rd_tf_rows_list(s->a, n, len, sentence, &rows, st));
    rd_attend self = rd_tf_heads(&s->d->stack->c, s->d->stack->c.n_heads * s->d->stack->c.head);
    self.causal = true;
    self.n = n;
    self.q_first = self.k_first = rows.first;
    self.q_len = self.k_len = rows.len;
    rd_var *x = lm_layers(s, &rows, ids, &self, false);
    s->used += N;
    return x ? rd_op_pick(s->t, 1, &x, (const int64_t *const[]){last}, n) : NULL;
done:
    return NULL;
}

/* Makes the lists of rows those of the n parents, with the step's own row behind each. */
static void lm_follow(lm_stepper *s, int64_t n, const int64_t *parent)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t have = s->length[parent[i]];
        int32_t *to = s->other + i * s->stride;
        memcpy(to, s->table + parent[i] * s->stride, (size_t)have * sizeof *to);
        to[have] = (int32_t)(s->used + i);
        s->position[i] = have;
        s->other_length[i] = have + 1;
    }
    int32_t *table = s->table;
    int64_t *length = s->length;
    s->table = s->other;
    s->other = table;
    s->length = s->other_length;
    s->other_length = length;
}

/* Computes one row for each of n hypotheses. */
static rd_var *lm_continue(lm_stepper *s, int64_t n, const int32_t *ids, const int64_t *parent)
{
    int64_t at = 0;
    lm_follow(s, n, parent);
    for (int64_t i = 0; i < n; i++) {
        s->ids[i] = ids[i];
        s->k_first[i] = at;
        memcpy(s->key_row + at, s->table + i * s->stride,
               (size_t)s->length[i] * sizeof *s->key_row);
        at += s->length[i];
    }
    rd_attend self = rd_tf_heads(&s->d->stack->c, 0);
    self.n = n;
    self.q_first = s->first;
    self.q_len = s->one;
    self.k_first = s->k_first;
    self.k_len = s->length;
    self.key_row = s->key_row;
    self.n_key_row = at;
    const rd_tf_rows rows = {
        .n = n, .N = n, .first = s->first, .len = s->one, .position = s->position};
    rd_var *x = lm_layers(s, &rows, s->ids, &self, true);
    s->used += n;
    return x;
}

static rd_code lm_step(void *ctx, int64_t n, const int32_t *ids, const int64_t *parent,
                       const int64_t *sentence, const rd_search_best *out, rd_status *st)
{
    lm_stepper *s = ctx;
    const rd_mark host = rd_arena_mark(s->a), device = rd_arena_mark(s->dev);
    rd_var *x = s->begun ? lm_continue(s, n, ids, parent) : lm_begin(s, n, sentence);
    s->begun = true;
    x = rd_tf_norm_apply(s->t, &s->d->stack->c, &s->d->stack->last, x);
    RD_TRY(rd_tape_check(s->t, st));
    s->factor = x->v;
    RD_TRY(rd_search_found_best(&s->found, n, s->V, 1.0f, lm_logits, s, out, st));
    /* The step's variables end here. A GPU runs its queue in order, so the memory may be used
     * again. */
    if (s->dev != s->a) rd_arena_rewind(s->dev, device);
    rd_arena_rewind(s->a, host);
done:
    return st->code;
}

/* Allocates the buffers for `most` hypotheses: those of kernels from s->dev, those of the host from
 * s->a. */
static rd_code lm_allocate(lm_stepper *s, int64_t most, int64_t n_best, rd_status *st)
{
    const rd_tf_stack *stack = s->d->stack;
    const size_t each = (size_t)(most + 1) * sizeof(int64_t),
                 table = (size_t)(most * s->stride + 1) * sizeof *s->table,
                 row = (size_t)(stack->n_layers * s->width) * sizeof *s->keys;
    int64_t **const lists[] = {&s->first,   &s->one,    &s->position,
                               &s->k_first, &s->length, &s->other_length};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        RD_TRY(rd_arena_get(s->a, each, lists[i], st));
    for (int64_t i = 0; i < most; i++) {
        s->first[i] = i;
        s->one[i] = 1;
    }
    RD_TRY(rd_arena_get(s->a, each, &s->ids, st));
    RD_TRY(rd_arena_get(s->a, table, &s->table, st));
    RD_TRY(rd_arena_get(s->a, table, &s->other, st));
    RD_TRY(rd_arena_get(s->a, table, &s->key_row, st));
    RD_TRY(rd_arena_get(s->dev, (size_t)(s->cap + 1) * row, &s->keys, st));
    RD_TRY(rd_search_found_new(s->be, s->dev, s->a, most, n_best, s->V, true, &s->found, st));
    if (s->d->end >= 0) return RD_OK;
    float *low;
    const float *lent;
    const int64_t block = s->found.block;
    const size_t bytes = (size_t)(block + 1) * sizeof *low;
    RD_TRY(rd_rows_get(s->dev, block, s->d->n_classes, &s->plain, st));
    RD_TRY(rd_arena_get(s->a, bytes, &low, st));
    for (int64_t i = 0; i <= block; i++) low[i] = NEVER;
    RD_TRY(rd_backend_lend(s->be, s->dev, low, bytes, bytes, &lent, st));
    s->low = (float *)(uintptr_t)lent;
done:
    return st->code;
}

/* Computes how many tokens each sentence may get. *rows: number of rows of keys that all need. */
static rd_code lm_limits(const lm_stepper *s, int64_t width, int64_t *limit, int64_t *rows,
                         int64_t *longest, rd_status *st)
{
    const rd_lm_prompts *p = s->p;
    *rows = *longest = 0;
    for (int64_t i = 0; i < p->n; i++) {
        const int64_t len = p->off[i + 1] - p->off[i], room = s->d->max_len - len + 1;
        if (len < 1) return rd_fail(st, RD_EBUG, "lm_search: prompt %" PRId64 " is empty", i);
        if (room < 1)
            return rd_fail(st, RD_EUSAGE,
                           "a prompt has %" PRId64 " tokens, but 'max_len' is %" PRId64
                           "; make it shorter",
                           len, s->d->max_len);
        limit[i] = p->most < room ? p->most : room;
        *rows += len + width * limit[i];
        if (len + limit[i] > *longest) *longest = len + limit[i];
    }
    if (*rows >= INT32_MAX)
        return rd_fail(st, RD_EUSAGE,
                       "completion needs more than %d rows of keys; use a smaller batch or beam",
                       INT32_MAX);
    return RD_OK;
}

rd_code rd_lm_search(rd_tape *t, const rd_lm_decoder *d, const rd_lm_prompts *p,
                     const rd_search_rules *rules, rd_hypothesis *out, rd_status *st)
{
    const int64_t width = rules->beam_width < 1 ? 1 : rules->beam_width, n = p->n;
    const bool no_end = d->end < 0;
    lm_stepper *s;
    int64_t *limit, longest;
    RD_TRY(rd_tape_check(t, st));
    RD_TRY(rd_arena_zero(rd_tape_arena(t), sizeof *s, &s, st));
    s->d = d;
    s->p = p;
    s->t = t;
    s->be = rd_tape_backend(t);
    s->a = rd_tape_arena(t);
    s->dev = rd_tape_device_arena(t);
    s->width = 2 * d->stack->c.n_kv_heads * d->stack->c.head;
    s->V = d->n_classes + no_end;
    RD_TRY(rd_search_kernels_check(s->be, width, false, st));
    /* The leaves of all parameters are made now, since a step's variables end with it. */
    for (int i = 0; i < rd_params_n(d->ps); i++) (void)rd_tape_param(t, rd_params_at(d->ps, i));
    s->output = rd_tape_param(t, d->output);
    RD_TRY(rd_tape_check(t, st));
    RD_TRY(rd_arena_get(s->a, (size_t)(n + 1) * sizeof *limit, &limit, st));
    RD_TRY(lm_limits(s, width, limit, &s->cap, &longest, st));
    s->stride = longest + 1;
    RD_TRY(lm_allocate(s, n * width + RD_SLACK_ROWS, rd_search_best_n(rules, s->V), st));
    RD_TRY(rd_search(s->a, n, limit, s->V, 0, no_end ? (int32_t)d->n_classes : d->end, rules,
                     lm_step, s, out, st));
done:
    return st->code;
}
