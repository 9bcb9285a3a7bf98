/* sequence.c -- tests rnn_layer and attention_decoder against naive references in double.
 *
 * The sizes take every path of the backend: multiples of 8 and others, below and above one block of
 * rows. Lengths are ragged, with dropout, residuals and projection. */
#include "harness.h"
#include "rd/cell.h"

enum { MOST_STEPS = 8, MOST_SEQ = 80 };
static const double TOLERANCE = 3e-5; /* float32 sums of up to a few hundred products of size one */

typedef struct shape {
    const char *name, *cell;
    int64_t n_seq, in, H, P, extra, groups;
    float keep_in, keep_out;
    bool residual;
} shape;

static const shape rnn_shapes[] = {
    {"lstm, small and odd", "lstm", 3, 5, 7, 0, 0, 0, 1, 1, false},
    {"lstm, multiples of 8", "lstm", 5, 16, 24, 0, 0, 0, 1, 1, false},
    {"lstm, more than a block of sequences", "lstm", 70, 16, 8, 0, 0, 0, 1, 1, false},
    {"lstm, dropout on both sides, residual", "lstm", 5, 16, 16, 0, 0, 0, 0.8f, 0.7f, true},
    {"lstm, projection", "lstm", 5, 8, 24, 16, 0, 0, 1, 1, false},
    {"lstm, projection, residual, dropout", "lstm", 5, 16, 24, 16, 0, 0, 0.6f, 0.9f, true},
    {"lstm, joined context", "lstm", 5, 16, 8, 0, 24, 0, 0.8f, 1, false},
    {"gru", "gru", 5, 16, 24, 0, 0, 0, 1, 1, false},
    {"gru, odd, dropout, residual", "gru", 4, 9, 9, 0, 0, 0, 0.7f, 0.8f, true},
    {"slstm", "slstm", 5, 16, 24, 0, 0, 0, 1, 1, false},
    {"slstm, joined context is not read", "slstm", 5, 8, 8, 0, 16, 0, 0.9f, 0.9f, true},
    {"glstm, one group", "glstm", 5, 16, 24, 0, 0, 1, 1, 1, false},
    {"glstm, two groups", "glstm", 5, 16, 32, 0, 0, 2, 0.8f, 0.8f, false},
    {"glstm, three groups, projection", "glstm", 5, 12, 24, 18, 0, 3, 1, 1, false},
    {"glstm, four groups, joined context over group borders", "glstm", 5, 16, 32, 0, 16, 4, 1, 1,
     false},
};

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

typedef struct layer { /* a naive layer: parameters as matrices in double */
    const shape *s;
    int64_t R;
    double *w[40];
} layer;

/* y[cols] += x[n] W[row0 .. row0 + n) */
static void mul(const double *x, int64_t n, const double *W, int64_t row0, int64_t cols, double *y)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < cols; j++) y[j] += x[i] * W[(row0 + i) * cols + j];
}

/* One step of one sequence, straight from the formulas. h [R], c [H] in and out. */
static void naive_cell(const layer *l, const double *x, const double *a, double *h, double *c)
{
    const shape *s = l->s;
    const int64_t H = s->H, R = l->R, in = s->in;
    double z[4 * 64] = {0}, m[64] = {0}, rec[256];
    assert_true(H <= 64);
    if (strcmp(s->cell, "gru") == 0) {
        double g[128], n[64], rh[64] = {0};
        memcpy(g, l->w[1], (size_t)(2 * H) * sizeof *g);
        memcpy(n, l->w[3], (size_t)H * sizeof *n);
        mul(x, in, l->w[0], 0, 2 * H, g);
        mul(h, H, l->w[0], in, 2 * H, g);
        for (int64_t q = 0; q < H; q++) rh[q] = sigmoid(g[q]) * h[q];
        mul(x, in, l->w[2], 0, H, n);
        mul(rh, H, l->w[2], in, H, n);
        for (int64_t q = 0; q < H; q++)
            h[q] = sigmoid(g[H + q]) * h[q] + (1.0 - sigmoid(g[H + q])) * tanh(n[q]);
        return;
    }
    memcpy(rec, h, (size_t)R * sizeof *rec);
    if (s->extra) memcpy(rec + R, a, (size_t)s->extra * sizeof *rec);
    int proj = 2;
    if (strcmp(s->cell, "glstm") == 0) {
        const int64_t G = s->groups, w = H / G, xi = in / G, ri = (R + s->extra) / G;
        for (int64_t g = 0; g < G; g++) {
            double part[4 * 64] = {0};
            mul(x + g * xi, xi, l->w[g], 0, 4 * w, part);
            mul(rec + g * ri, ri, l->w[g], xi, 4 * w, part);
            for (int64_t q = 0; q < 4; q++)
                for (int64_t k = 0; k < w; k++)
                    z[q * H + g * w + k] = part[q * w + k] + l->w[G + q][g * w + k];
        }
        proj = (int)G + 4;
    } else {
        memcpy(z, l->w[1], (size_t)(4 * H) * sizeof *z);
        mul(x, in, l->w[0], 0, 4 * H, z);
        if (strcmp(s->cell, "lstm") == 0) mul(rec, R + s->extra, l->w[0], in, 4 * H, z);
    }
    for (int64_t q = 0; q < H; q++) {
        c[q] = c[q] * sigmoid(z[2 * H + q] + 1.0) + sigmoid(z[q]) * tanh(z[H + q]);
        m[q] = sigmoid(z[3 * H + q]) * tanh(c[q]);
    }
    memset(h, 0, (size_t)R * sizeof *h);
    if (s->P)
        mul(m, H, l->w[proj], 0, R, h);
    else
        memcpy(h, m, (size_t)H * sizeof *h);
}

/* Declares a layer's parameters as inputs of the harness; returns how many. */
static int first_input, n_inputs;
static rd_code emit(void *ctx, const char *name, int n_dim, const int64_t *dim, rd_init init,
                    rd_status *st)
{
    (void)name;
    (void)init;
    (void)st;
    const int i = h_input(ctx, n_dim == 2 ? dim[0] : 0, dim[n_dim - 1]);
    if (n_inputs++ == 0) first_input = i;
    return RD_OK;
}

static rd_layer fast_layer(harness *h, const shape *s, uint32_t site, int *first, int *n)
{
    rd_status st = {0};
    rd_layer l = {.cell = rd_cell_find(s->cell),
                  .residual = s->residual,
                  .shape = {s->in, s->H, s->P ? s->P : s->H, s->extra, s->groups, s->P > 0},
                  .drop_in = {5, 2, site, s->keep_in},
                  .drop_out = {5, 2, site + 1, s->keep_out}};
    n_inputs = 0;
    l.cell->declare(&l.shape, emit, h, &st);
    must(&st);
    *first = first_input;
    *n = n_inputs;
    return l;
}

typedef struct packed {
    int64_t n_seq, n_steps, len[MOST_SEQ], off[MOST_STEPS + 1], sample[MOST_SEQ];
} packed;

static void pack(packed *p, int64_t n_seq)
{
    *p = (packed){.n_seq = n_seq};
    for (int64_t i = 0; i < n_seq; i++) {
        p->len[i] = 6 - 5 * i / n_seq; /* 6 .. 1, descending */
        p->sample[i] = 1000 + 37 * i;
        p->n_steps = p->len[i] > p->n_steps ? p->len[i] : p->n_steps;
    }
    for (int64_t t = 0; t < p->n_steps; t++) {
        int64_t n = 0;
        while (n < n_seq && p->len[n] > t) n++;
        p->off[t + 1] = p->off[t] + n;
    }
}

/* x * mask / keep of one row, by the rule that philox.h states. */
static void naive_dropout(const rd_dropout *d, int64_t sample, int64_t t, int64_t n,
                          const double *x, double *y)
{
    uint8_t keep[512];
    if (d->keep >= 1.0f) {
        memcpy(y, x, (size_t)n * sizeof *y);
        return;
    }
    rd_philox_keep(rd_key_make(d->seed, RD_RNG_DROPOUT, d->site, d->epoch), (uint64_t)sample,
                   (uint32_t)t, d->keep, n, keep);
    for (int64_t i = 0; i < n; i++) y[i] = keep[i] ? x[i] / (double)d->keep : 0.0;
}

typedef struct rnn_case {
    harness h;
    const shape *s;
    packed p;
    rd_layer l;
    int x, a, w, n_w;
} rnn_case;

static double rnn_reference(void *ctx)
{
    rnn_case *c = ctx;
    const shape *s = c->s;
    layer l = {s, s->P ? s->P : s->H, {0}};
    double total = 0.0;
    for (int k = 0; k < c->n_w; k++) l.w[k] = c->h.x[c->w + k];
    for (int64_t i = 0; i < c->p.n_seq; i++) {
        double hh[128] = {0}, cc[64] = {0}, xd[128], y[128];
        for (int64_t t = 0; t < c->p.len[i]; t++) {
            const int64_t row = c->p.off[t] + i;
            const double *x = c->h.x[c->x] + row * s->in;
            naive_dropout(&c->l.drop_in, c->p.sample[i], t, s->in, x, xd);
            naive_cell(&l, xd, c->a >= 0 ? c->h.x[c->a] + row * s->extra : NULL, hh, cc);
            naive_dropout(&c->l.drop_out, c->p.sample[i], t, l.R, hh, y);
            for (int64_t q = 0; q < l.R; q++)
                total += (double)c->h.r[row * l.R + q] * (y[q] + (s->residual ? x[q] : 0.0));
        }
    }
    return total;
}

static void test_rnn(void **state)
{
    rnn_case c = {.s = *state, .a = -1};
    const shape *s = c.s;
    rd_var *w[MOST_INPUTS];
    h_init(&c.h);
    pack(&c.p, s->n_seq);
    const int64_t N = c.p.off[c.p.n_steps];
    c.x = h_input(&c.h, N, s->in);
    if (s->extra) c.a = h_input(&c.h, N, s->extra);
    c.l = fast_layer(&c.h, s, 3, &c.w, &c.n_w);
    h_fill(&c.h, 0.6, N * c.l.shape.R);
    for (int k = 0; k < c.n_w; k++) w[k] = h_var(&c.h, c.w + k);
    const rd_packing p = {c.p.n_steps, c.p.off, c.p.sample};
    /* In a model the layer's input is no parameter: it needs a gradient with slack rows. A pick
     * makes such a copy. */
    int64_t same[MOST_SEQ * MOST_STEPS];
    for (int64_t i = 0; i < N; i++) same[i] = i;
    rd_var *xv = h_var(&c.h, c.x), *av = h_var(&c.h, c.a);
    rd_var *x = rd_op_pick(c.h.tape, 1, &xv, (const int64_t *[]){same}, N);
    rd_var *a = av ? rd_op_pick(c.h.tape, 1, &av, (const int64_t *[]){same}, N) : NULL;
    rd_var *y = rd_op_rnn_layer(c.h.tape, &c.l, &p, x, a, w, c.n_w);
    h_check(&c.h, h_weighted(&c.h, &y, 1), rnn_reference, &c, TOLERANCE);
    h_free(&c.h);
}

/* ---- the decoder ---- */
typedef struct dec_shape {
    const char *name;
    rd_attention_kind kind;
    int n_layers;
    shape layer[3];
    int64_t n_seq, E, M, A, W; /* W: width after W_in, 0: none */
} dec_shape;

#define LSTM(in, H)                                \
    {                                              \
        "", "lstm", 0, in, H, 0, 0, 0, 1, 1, false \
    }
static const dec_shape dec_shapes[] = {
    {"bahdanau, one layer, odd sizes", RD_ATT_BAHDANAU, 1, {LSTM(11, 7)}, 4, 5, 6, 9, 0},
    {"bahdanau normalised, two layers",
     RD_ATT_BAHDANAU_NORM,
     2,
     {LSTM(24, 16), LSTM(16, 16)},
     5,
     8,
     16,
     24,
     0},
    {"luong", RD_ATT_LUONG, 1, {LSTM(24, 16)}, 5, 8, 16, 16, 0},
    {"luong scaled, dropout",
     RD_ATT_LUONG_SCALED,
     1,
     {{"", "lstm", 0, 24, 16, 0, 0, 0, 0.8f, 0.7f, false}},
     5,
     8,
     16,
     16,
     0},
    {"bahdanau, skip connections and W_in, dropout",
     RD_ATT_BAHDANAU,
     2,
     {{"", "lstm", 0, 16, 16, 0, 0, 0, 0.8f, 0.9f, true},
      {"", "lstm", 0, 16, 16, 0, 0, 0, 0.7f, 0.8f, true}},
     5,
     8,
     16,
     8,
     16},
    {"gru, normalised",
     RD_ATT_BAHDANAU_NORM,
     2,
     {{"", "gru", 0, 24, 16, 0, 0, 0, 1, 1, false}, {"", "gru", 0, 16, 8, 0, 0, 0, 0.9f, 1, false}},
     5,
     8,
     16,
     8,
     0},
    {"projection",
     RD_ATT_LUONG,
     1,
     {{"", "lstm", 0, 24, 16, 8, 0, 0, 1, 1, false}},
     5,
     8,
     16,
     8,
     0},
    {"more than a block of sequences", RD_ATT_BAHDANAU_NORM, 1, {LSTM(16, 8)}, 70, 8, 8, 8, 0},
};

typedef struct dec_case {
    harness h;
    const dec_shape *s;
    packed p;
    rd_attn_decoder d;
    int emb, memory, keys, query, v, g, b, W, bias, w[3];
    int64_t first[MOST_SEQ], len[MOST_SEQ];
} dec_case;

static double dec_reference(void *ctx)
{
    dec_case *c = ctx;
    const dec_shape *s = c->s;
    double **X = c->h.x, total = 0.0;
    const int64_t R = c->d.layer[s->n_layers - 1].shape.R, N = c->p.off[c->p.n_steps];
    layer l[3];
    for (int k = 0; k < s->n_layers; k++) {
        l[k] = (layer){&s->layer[k], c->d.layer[k].shape.R, {0}};
        for (int i = 0; i < c->d.n_w[k]; i++) l[k].w[i] = X[c->w[k] + i];
    }
    double vnorm = 0.0;
    for (int64_t q = 0; c->v >= 0 && q < s->A; q++) vnorm += X[c->v][q] * X[c->v][q];
    const double gain = c->g >= 0 ? X[c->g][0] : 1.0,
                 vs = s->kind == RD_ATT_BAHDANAU_NORM ? gain / sqrt(vnorm) : 1.0;
    for (int64_t i = 0; i < c->p.n_seq; i++) {
        double hh[3][64] = {{0}}, cc[3][64] = {{0}}, att[64] = {0};
        for (int64_t t = 0; t < c->p.len[i]; t++) {
            const int64_t row = c->p.off[t] + i;
            double x[128], xd[128], y[128], cat[128] = {0};
            memcpy(cat, X[c->emb] + row * s->E, (size_t)s->E * sizeof *cat);
            memcpy(cat + s->E, att, (size_t)s->M * sizeof *cat);
            if (s->W) {
                memcpy(x, X[c->bias], (size_t)s->W * sizeof *x);
                mul(cat, s->E + s->M, X[c->W], 0, s->W, x);
            } else {
                memcpy(x, cat, sizeof cat);
            }
            for (int k = 0; k < s->n_layers; k++) {
                naive_dropout(&c->d.layer[k].drop_in, c->p.sample[i], t, s->layer[k].in, x, xd);
                naive_cell(&l[k], xd, NULL, hh[k], cc[k]);
                naive_dropout(&c->d.layer[k].drop_out, c->p.sample[i], t, l[k].R, hh[k], y);
                for (int64_t q = 0; q < l[k].R; q++)
                    x[q] = y[q] + (s->layer[k].residual ? x[q] : 0.0);
            }
            double score[16], sum = 0.0, qp[64] = {0};
            if (c->query >= 0) mul(x, R, X[c->query], 0, s->A, qp);
            for (int64_t j = 0; j < c->len[i]; j++) {
                const double *K = X[c->keys] + (c->first[i] + j) * s->A;
                score[j] = 0.0;
                for (int64_t q = 0; q < s->A; q++)
                    score[j] += c->v >= 0 ? vs * X[c->v][q] *
                                                tanh(K[q] + qp[q] + (c->b >= 0 ? X[c->b][q] : 0.0))
                                          : gain * x[q] * K[q];
                sum += exp(score[j]);
            }
            memset(att, 0, sizeof att);
            for (int64_t j = 0; j < c->len[i]; j++)
                for (int64_t q = 0; q < s->M; q++)
                    att[q] += exp(score[j]) / sum * X[c->memory][(c->first[i] + j) * s->M + q];
            for (int64_t q = 0; q < R; q++) total += (double)c->h.r[row * R + q] * x[q];
            for (int64_t q = 0; q < s->M; q++)
                total += (double)c->h.r[N * R + row * s->M + q] * att[q];
        }
    }
    return total;
}

static void test_decoder(void **state)
{
    dec_case c = {.s = *state, .query = -1, .v = -1, .g = -1, .b = -1, .W = -1, .bias = -1};
    const dec_shape *s = c.s;
    const bool additive = s->kind == RD_ATT_BAHDANAU || s->kind == RD_ATT_BAHDANAU_NORM;
    rd_var *w[MOST_INPUTS], *ctx;
    int n = 0;
    h_init(&c.h);
    pack(&c.p, s->n_seq);
    const int64_t N = c.p.off[c.p.n_steps], R = s->layer[s->n_layers - 1].P
                                                    ? s->layer[s->n_layers - 1].P
                                                    : s->layer[s->n_layers - 1].H;
    int64_t S = 0;
    for (int64_t i = 0; i < s->n_seq; i++) { /* source lengths in another order than the target's */
        c.first[i] = S;
        c.len[i] = 1 + (i * 3) % 5;
        S += c.len[i];
    }
    c.emb = h_input(&c.h, N, s->E);
    c.memory = h_input(&c.h, S, s->M);
    c.keys = h_input(&c.h, S, s->A);
    if (additive) c.query = h_input(&c.h, R, s->A);
    if (additive) c.v = h_input(&c.h, 0, s->A);
    if (s->kind == RD_ATT_BAHDANAU_NORM || s->kind == RD_ATT_LUONG_SCALED)
        c.g = h_input(&c.h, 0, 0);
    if (s->kind == RD_ATT_BAHDANAU_NORM) c.b = h_input(&c.h, 0, s->A);
    if (s->W) c.W = h_input(&c.h, s->E + s->M, s->W);
    if (s->W) c.bias = h_input(&c.h, 0, s->W);
    c.d = (rd_attn_decoder){.kind = s->kind,
                            .packing = {c.p.n_steps, c.p.off, c.p.sample},
                            .src_first = c.first,
                            .src_len = c.len,
                            .n_layers = s->n_layers};
    for (int k = 0; k < s->n_layers; k++)
        c.d.layer[k] = fast_layer(&c.h, &s->layer[k], 10 + 2 * (uint32_t)k, &c.w[k], &c.d.n_w[k]);
    h_fill(&c.h, 0.6, N * (R + s->M));
    for (int k = 0; k < s->n_layers; k++)
        for (int i = 0; i < c.d.n_w[k]; i++) w[n++] = h_var(&c.h, c.w[k] + i);
    rd_var *q = rd_op_attention_decoder(c.h.tape, &c.d, h_var(&c.h, c.emb), h_var(&c.h, c.memory),
                                        h_var(&c.h, c.keys), h_var(&c.h, c.query), h_var(&c.h, c.v),
                                        h_var(&c.h, c.g), h_var(&c.h, c.b), h_var(&c.h, c.W),
                                        h_var(&c.h, c.bias), w, &ctx);
    h_check(&c.h, h_weighted(&c.h, (rd_var *[]){q, ctx}, 2), dec_reference, &c, TOLERANCE);
    h_free(&c.h);
}

RD_TESTS("ops: rnn_layer, attention_decoder", TEST_ROWS(test_rnn, rnn_shapes),
         TEST_ROWS(test_decoder, dec_shapes))
