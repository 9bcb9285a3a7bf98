/* edges.c -- tests where ops and search could fail silently.
 *
 * Operands that do not fit are refused with a message. Batches without rows do nothing. Numbers
 * that are not finite stay within bounds. */
#include "harness.h"
#include "rd/nn.h"
#include "rd/cell.h"

/* ---- refused, with a message ---- */
typedef struct misuse {
    const char *name, *want; /* part of the message */
    void (*call)(harness *h, int x, int W);
} misuse;

static void parameter_as_rows(harness *h, int x, int W)
{
    rd_op_linear(h->tape, h_var(h, x), h_var(h, W), NULL);
}

static void parameter_in_xent(harness *h, int x, int W)
{
    static const int32_t target[8];
    const rd_xent a = {.target = target, .temperature = 1.0f};
    rd_op_softmax_xent(h->tape, &a, h_var(h, x), h_var(h, W));
}

static rd_var *rows_of(harness *h, int x, int64_t n)
{
    static const int64_t same[] = {0, 1, 2, 3, 4, 5, 6, 7};
    rd_var *v = h_var(h, x);
    return rd_op_pick(h->tape, 1, &v, (const int64_t *[]){same}, n);
}

static void wrong_width(harness *h, int x, int W)
{
    rd_op_linear(h->tape, rows_of(h, W, 3), h_var(h, x), NULL);
}

static void five_picked(harness *h, int x, int W)
{
    static const int64_t zero[1];
    rd_var *v = h_var(h, x), *in[] = {v, v, v, v, v};
    const int64_t *idx[] = {zero, zero, zero, zero, zero};
    (void)W;
    rd_op_pick(h->tape, 5, in, idx, 1);
}

static void row_out_of_range(harness *h, int x, int W)
{
    static const int64_t idx[] = {3};
    rd_var *v = h_var(h, x);
    (void)W;
    rd_op_pick(h->tape, 1, &v, (const int64_t *[]){idx}, 1);
}

static void many_inputs(harness *h, int x, int W)
{
    rd_var *in[RD_MAX_IN + 1];
    (void)W;
    for (int i = 0; i <= RD_MAX_IN; i++) in[i] = h_var(h, x);
    h_weighted(h, in, RD_MAX_IN + 1);
}

static void late_parameter(harness *h, int x, int W)
{
    rd_param p = {.name = "late", .index = 2, .n = 1};
    (void)x;
    (void)W;
    rd_tape_param(h->tape, &p);
}

static const misuse misuses[] = {
    {"a parameter has no slack rows: linear", "parameter 'in0' has no slack rows",
     parameter_as_rows},
    {"a parameter has no slack rows: softmax_xent", "parameter 'in0' has no slack rows",
     parameter_in_xent},
    {"widths that do not fit", "linear: an input has 4 columns instead of 3", wrong_width},
    {"five inputs of pick", "pick: 5 inputs; at most 4 are allowed", five_picked},
    {"a row that is not there", "pick: row index 3 is outside an input of 3 rows",
     row_out_of_range},
    {"more inputs than fit", "'weighted_sum' has 321 inputs and 1 outputs", many_inputs},
    {"a parameter declared after the tape was made", "parameter 'late' was declared after the tape",
     late_parameter},
};

static void test_misuse(void **state)
{
    const misuse *m = *state;
    rd_status st = {0};
    harness h;
    h_init(&h);
    const int x = h_input(&h, 3, 5), W = h_input(&h, 5, 4);
    h_fill(&h, 1.0, 1);
    m->call(&h, x, W);
    assert_int_equal(rd_tape_check(h.tape, &st), RD_EBUG);
    if (!strstr(st.msg, m->want)) fail_msg("'%s' is not in '%s'", m->want, st.msg);
    assert_null(rows_of(&h, x, 3)); /* the failure sticks */
    rd_tape_reset(h.tape, true, true);
    assert_non_null(rows_of(&h, x, 3));
    h_free(&h);
}

/* ---- batches without rows ---- */
static void test_no_rows(void **state)
{
    static const int64_t off[] = {0, 0};
    static const int64_t none[1];
    rd_status st = {0};
    harness h;
    rd_var *w[2], *ctx;
    double sum = -1.0;
    (void)state;
    h_init(&h);
    const int table = h_input(&h, 3, 8), kernel = h_input(&h, 16, 32), bias = h_input(&h, 0, 32),
              W = h_input(&h, 8, 5), first = h_input(&h, 24, 32), query = h_input(&h, 8, 8),
              v = h_input(&h, 0, 8);
    h_fill(&h, 0.5, 1);
    for (int steps = 0; steps < 2; steps++) { /* no time step at all, and one without sequences */
        rd_tape_reset(h.tape, true, true);
        const rd_packing p = {steps, off, none};
        const rd_cell_def *lstm = rd_cell_find("lstm");
        const rd_dropout drop = {.keep = 0.5f};
        rd_layer l = {
            .cell = lstm, .shape = {.in = 8, .H = 8, .R = 8}, .drop_in = drop, .drop_out = drop};
        w[0] = h_var(&h, kernel);
        w[1] = h_var(&h, bias);
        rd_var *x = rd_op_embed(h.tape, h_var(&h, table), NULL, 0);
        rd_var *y = rd_op_rnn_layer(h.tape, &l, &p, x, NULL, w, 2);
        rd_attn_decoder d = {.kind = RD_ATT_BAHDANAU,
                             .packing = p,
                             .src_first = none,
                             .src_len = none,
                             .n_layers = 1};
        l.shape.in = 16;
        d.layer[0] = l;
        d.n_w[0] = 2;
        w[0] = h_var(&h, first);
        rd_var *q = rd_op_attention_decoder(h.tape, &d, y, y, y, h_var(&h, query), h_var(&h, v),
                                            NULL, NULL, NULL, NULL, w, &ctx);
        assert_non_null(q);
        const rd_xent a = {.temperature = 1.0f, .loss_sum = &sum};
        rd_var *loss = rd_op_softmax_xent(h.tape, &a, ctx, h_var(&h, W));
        rd_tape_check(h.tape, &st);
        rd_tape_backward(h.tape, loss, &st);
        must(&st);
        assert_true(sum == 0.0 && h_scalar(&h, loss) == 0.0f);
        const float *g = test_grads(h.ps);
        for (int64_t i = 0; i < rd_params_span(h.ps); i++) assert_true(g[i] == 0.0f);
    }
    h_free(&h);
}

/* ---- what is kept ---- */
/* Without backward a layer leaves only its result in the step's arena: long texts are decoded
 * layer by layer. */
static void test_kept(void **state)
{
    static const int64_t off[] = {0, 4, 8}, sample[] = {0, 1, 2, 3};
    size_t used[2];
    (void)state;
    h_cpu_alone(); /* looks at the host's arena */
    for (int grad = 0; grad < 2; grad++) {
        rd_status st = {0};
        harness h;
        h_init(&h);
        const int x = h_input(&h, 8, 64), kernel = h_input(&h, 128, 256),
                  bias = h_input(&h, 0, 256);
        h_fill(&h, 0.5, 1);
        rd_tape_reset(h.tape, grad, false);
        rd_var *w[] = {h_var(&h, kernel), h_var(&h, bias)}, *rows = rows_of(&h, x, 8);
        const rd_layer l = {.cell = rd_cell_find("lstm"), .shape = {.in = 64, .H = 64, .R = 64}};
        const rd_packing p = {2, off, sample};
        const size_t before = rd_arena_used(rd_tape_arena(h.tape));
        assert_non_null(rd_op_rnn_layer(h.tape, &l, &p, rows, NULL, w, 2));
        used[grad] = rd_arena_used(rd_tape_arena(h.tape)) - before;
        must(&st);
        h_free(&h);
    }
    const size_t result = (8 + RD_SLACK_ROWS) * 64 * sizeof(float);
    assert_in_range(used[0], result, 3 * result); /* with the record of the call */
    assert_true(used[1] >= 7 * result);           /* four gates, the state and its tanh besides */
}

/* ---- numbers that are not finite ---- */
static void test_xent_not_finite(void **state)
{
    static const int32_t target[] = {1, 0, 2};
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    (void)state;
    for (int b = 0; b < 3; b++)
        for (int64_t at = 0; at < 5; at++) {
            rd_status st = {0};
            harness h;
            int32_t argmax[3] = {-1, -1, -1};
            double sum = 0.0;
            h_init(&h);
            const int x = h_input(&h, 3, 5), W = h_input(&h, 5, 4);
            h_fill(&h, 1.0, 1);
            test_values(h.ps)[h.p[x]->offset + 5 + at] = bad[b]; /* the middle row */
            rd_params_touch(h.ps);
            rd_tape_set_seed(h.tape, 1.0f);
            const rd_xent a = {
                .target = target, .temperature = 1.0f, .loss_sum = &sum, .argmax = argmax};
            rd_op_softmax_xent(h.tape, &a, rows_of(&h, x, 3), h_var(&h, W));
            rd_tape_check(h.tape, &st);
            must(&st);
            assert_false(isfinite(sum));
            for (int i = 0; i < 3; i++) assert_in_range(argmax[i], 0, 3);
            h_free(&h);
        }
}

/* ---- search over a model of our own ---- */
enum { V = 5, END = 2 };

typedef struct fake { /* token t has logit[t] in every step */
    float logit[V];
    int64_t n_steps;
} fake;

static rd_code fake_step(void *ctx, int64_t n, const int32_t *ids, const int64_t *parent,
                         const int64_t *sentence, const rd_search_best *out, rd_status *st)
{
    fake *f = ctx;
    float logits[V];
    (void)ids;
    (void)parent;
    (void)sentence;
    (void)st;
    f->n_steps++;
    for (int64_t i = 0; i < n; i++) {
        memcpy(logits, f->logit, sizeof logits);
        rd_search_best_rows(out, i, 1, V, logits);
    }
    return RD_OK;
}

typedef struct search_row {
    const char *name;
    float logit[V];
    int64_t beam, limit[2];
    int64_t want_n[2];
    int64_t want_steps;
} search_row;

static const search_row searches[] = {
    {"limit 0 gives an empty sentence at once", {0, 0, 0, 0, 0}, 1, {0, 0}, {0, 0}, 0},
    {"limit 0 beside a longer one", {0, 1, 0, 0, 0}, 1, {0, 3}, {0, 3}, 3},
    {"the end token ends", {0, 0, 9, 0, 0}, 1, {4, 4}, {0, 0}, 1},
    {"a beam wider than the vocabulary", {0, 0, 9, 0, 0}, 12, {3, 3}, {0, 0}, 3},
    {"not a number runs to the limit, greedy", {NAN, NAN, NAN, NAN, NAN}, 1, {4, 2}, {4, 2}, 4},
    {"not a number runs to the limit, beam", {NAN, NAN, NAN, NAN, NAN}, 7, {4, 2}, {-1, -1}, 4},
    {"one logit is infinite", {0, INFINITY, 0, 0, 0}, 3, {4, 2}, {-1, -1}, 4},
};

static void test_search(void **state)
{
    const search_row *r = *state;
    rd_status st = {0};
    rd_arena *a;
    rd_hypothesis out[2];
    fake f = {0};
    memcpy(f.logit, r->logit, sizeof f.logit);
    rd_arena_new(4096, &a, &st);
    const rd_search_rules rules = {.beam_width = r->beam};
    rd_search(a, 2, r->limit, V, 1, END, &rules, fake_step, &f, out, &st);
    must(&st);
    for (int i = 0; i < 2; i++) {
        if (r->want_n[i] >= 0) assert_int_equal(out[i].n, r->want_n[i]);
        assert_in_range(out[i].n, 0, r->limit[i]);
        for (int64_t k = 0; k < out[i].n; k++) assert_in_range(out[i].ids[k], 0, V - 1);
    }
    assert_true(f.n_steps <= r->want_steps);
    rd_arena_free(a);
}

RD_TESTS("ops: edges", TEST(test_no_rows), TEST(test_kept), TEST(test_xent_not_finite),
         TEST_ROWS(test_misuse, misuses), TEST_ROWS(test_search, searches))
