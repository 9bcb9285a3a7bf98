/* ops.c -- every op on the CPU and on the GPU with the same parameters and inputs: results, every gradient, numbers that ops
 * leave on the host. Each case runs
 *   - on parameters; on results of other ops, where gradients are first written and not added; twice on the same ones, where
 *     they are added; without recording;
 *   - with mixed products, against float32 of the CPU;
 *   - ops on images and rows that take 16-bit elements: on such, once and twice, against the CPU with every stored number and gradient
 *     rounded to 16 bits at the same places (stored_*).
 * With RD_TEST_CUDNN_RNN=off or on, recurrent layers alone: by our kernels, or by cuDNN where it computes the same model; else the
 * rule of "auto" decides. An op or a cell of the registries that has no case is a failure. Without a GPU all is skipped, but with RD_REQUIRE_GPU=1.
 *
 * Tolerance, of the largest number in an array. float32: both sides round each of K products and sums of a dot product, in
 * different orders; rounding errors add up like a random walk, sqrt(K) 2^-24 of the largest sum: 2e-6 at K = 1000, and a chain of
 * six time steps or two products after each other multiplies that by less than ten. Where terms cancel (the gradient of a scalar,
 * say), the error is of the size of the terms: no gradient counts as smaller than 1/100 of the case's largest. mixed: operands keep 8 bits (bfloat16), 2^-9
 * each; inputs are multiples of 1/64, which it holds, so that what a first op computes, and so the sign at a relu, is exact, and
 * the gradients of a chain are off by a few 2^-9. On 16-bit elements a number that both sides round may lie near the middle of two, and go
 * to either: twice what one rounding changes at most, 2^-8 (bfloat16) or 2^-11; applied twice, the GPU also rounds the first gradient, and
 * both where they are added: twice that. */
#include "gpu_here.h"
#include "../ops/image_harness.h"
#include "../../runner/ops/shared/cell.h"

static const double FLOAT32 = 2e-5, MIXED = 3e-2;
enum { TO_EITHER = 2 /* roundings */ };
enum { MOST_ELEMENTS = 1 << 19, MOST_OUT = 8, MOST_LISTS = 8, MOST_SIZES = 13 };

typedef enum way { ON_PARAMETERS, ON_RESULTS, TWICE, NO_GRADIENT, MIXED_PRODUCTS, NARROW, NARROW_TWICE, N_WAYS } way;
static const char *const way_names[] = {"on parameters", "on results", "twice", "without gradients", "mixed", "16 bits", "16 bits, twice"};

typedef struct trial trial;
typedef struct op_case {
    const char *op, *name;
    void (*declare)(trial *t);
    void (*apply)(trial *t);
    int64_t size[MOST_SIZES];
    const char *cell;
    double number[2];
    bool is_loss; /* backward starts at its result */
    bool zeros;   /* the same elements are exactly zero */
    bool narrow;  /* takes 16-bit elements */
    bool wide;    /* the result is float32 all the same */
} op_case;

typedef struct list { /* integers that an op left on the host */
    const int32_t *at;
    int64_t n;
} list;

struct trial {
    harness h;
    const op_case *c;
    way how;
    bool gpu;
    int in[MOST_INPUTS], n_in; /* of the harness, in the order of declare */
    rd_var *result[MOST_INPUTS];
    rd_param *state[2];
    rd_var *out[MOST_OUT], *loss;
    int n_out;
    double sum[MOST_LISTS]; /* left on the host */
    int n_sums;
    list lists[MOST_LISTS];
    int n_lists;
    /* What is compared. */
    float *values, *grads;
    int64_t n_values;
    int32_t *integers;
    int64_t n_integers;
};

/* ---- 16 bits on the CPU: float32 whose numbers are rounded where a GPU stores them ---- */
static rd_element narrow_type; /* of the GPU's mixed products */

static double roundoff(void) { return narrow_type == RD_BFLOAT16 ? 0x1p-8 : 0x1p-11; }

/* The nearest number of the type, ties to even; none of these tests comes near its largest. */
static float rounded(float x)
{
    const int digits = narrow_type == RD_BFLOAT16 ? 8 : 11, least = narrow_type == RD_BFLOAT16 ? -133 : -24;
    int e;
    if (x == 0.0f) return x;
    (void)frexpf(x, &e);
    const double unit = ldexp(1.0, e - digits > least ? e - digits : least);
    return (float)(rint((double)x / unit) * unit);
}

typedef struct stored_attr {
    int n_dim;
    int64_t dim[4];
    bool relu;
} stored_attr;

/* y = R(x); with a bias or relu, which a GPU adds to what it has stored: R(max(R(x) + b, 0)). In the shape of the attribute. */
static rd_code stored_infer(rd_call *c, rd_status *st)
{
    const stored_attr *a = c->attr;
    const rd_var *x = c->in[0];
    rd_var *y = c->out[0];
    (void)st;
    y->n_dim = a->n_dim;
    memcpy(y->dim, a->dim, sizeof a->dim);
    y->rows = a->n_dim ? a->dim[0] * a->dim[1] * a->dim[2] : x->rows;
    y->cols = a->n_dim ? a->dim[3] : x->cols;
    return RD_OK;
}
static rd_code stored_forward(rd_call *c, rd_status *st)
{
    const stored_attr *a = c->attr;
    const rd_var *x = c->in[0], *b = c->in[1], *y = c->out[0];
    (void)st;
    for (int64_t i = 0; i < y->rows * y->cols; i++) {
        float v = rounded(x->v[i]);
        if (b) v += b->v[i % y->cols];
        if (a->relu && v < 0.0f) v = 0.0f;
        y->v[i] = rounded(v);
    }
    return RD_OK;
}
static rd_code stored_backward(rd_call *c, rd_status *st)
{
    const stored_attr *a = c->attr;
    const rd_var *x = c->in[0], *b = c->in[1], *y = c->out[0];
    (void)st;
    for (int64_t i = 0; i < y->rows * y->cols; i++) {
        const float d = a->relu && !(y->v[i] > 0.0f) ? 0.0f : rounded(y->g[i]);
        if (x->g) x->g[i] += d;
        if (b && b->g) b->g[i % y->cols] += d;
    }
    return RD_OK;
}
static const rd_op stored_op = {.name = "stored", .infer = stored_infer, .cpu = {stored_forward, stored_backward}};

static bool is_narrow(const trial *t) { return t->how == NARROW || t->how == NARROW_TWICE; }

static rd_var *stored_with(trial *t, rd_var *x, rd_var *bias, bool relu)
{
    stored_attr a = {.relu = relu};
    if (!x) return NULL;
    if (x->n_dim == 4 && !x->param) {
        a.n_dim = 4;
        memcpy(a.dim, x->dim, sizeof a.dim);
        x = rd_op_flatten(t->h.tape, x); /* out of the order that convolutions of a CPU have */
    } else if (x->n_dim == 4) {
        a.n_dim = 4;
        memcpy(a.dim, x->dim, sizeof a.dim);
    }
    return rd_tape_apply(t->h.tape, &stored_op, &a, sizeof a, (rd_var *[]){x, bias}, 2, NULL, 1);
}

/* The result of an op between others, as a GPU stores it. */
static rd_var *stored(trial *t, rd_var *x) { return is_narrow(t) && !t->gpu ? stored_with(t, x, NULL, false) : x; }

/* x with 16-bit elements. */
static rd_var *narrowed(trial *t, rd_var *x) { return is_narrow(t) && t->gpu ? rd_op_cast(t->h.tape, x, narrow_type) : stored(t, x); }

/* ---- for declare and apply ---- */
static void matrix(trial *t, int64_t rows, int64_t cols) { t->in[t->n_in++] = h_input(&t->h, rows, cols); }
static void image(trial *t, size4 s) { t->in[t->n_in++] = h_image(&t->h, s); }

static void *step_memory(trial *t, int64_t n, size_t bytes)
{
    rd_status st = {0};
    void *p;
    rd_arena_zero(rd_tape_arena(t->h.tape), (size_t)(n + 1) * bytes, &p, &st);
    must(&st);
    return p;
}

/* Some number below n, the same at every call. */
static int64_t pseudo(int64_t i, int64_t n, uint64_t seed)
{
    uint32_t r[4];
    rd_philox((const uint32_t[]){(uint32_t)i, 0, 0, 0}, rd_key_make(seed, RD_RNG_TEST, 0, 0), r);
    return (int64_t)(r[0] % (uint64_t)n);
}

static int32_t *ids_below(trial *t, int64_t n, int64_t V)
{
    int32_t *id = step_memory(t, n, sizeof *id);
    for (int64_t i = 0; i < n; i++) id[i] = (int32_t)pseudo(i, V, 3);
    return id;
}

static int64_t *rows_in_order(trial *t, int64_t n)
{
    int64_t *at = step_memory(t, n, sizeof *at);
    for (int64_t i = 0; i < n; i++) at[i] = i;
    return at;
}

static rd_var *direct(trial *t, int i) { return h_var(&t->h, t->in[i]); }

/* A matrix that is the result of an op, with room behind its rows. */
static rd_var *rows_of(trial *t, int i)
{
    rd_var *x = direct(t, i);
    if (!t->result[i]) t->result[i] = rd_op_pick(t->h.tape, 1, &x, (const int64_t *[]){rows_in_order(t, x->rows)}, x->rows);
    return t->result[i];
}

/* Input i: the parameter itself, or a result. */
static rd_var *input(trial *t, int i)
{
    rd_var *x = direct(t, i);
    if (is_narrow(t)) {
        if (!t->result[i]) t->result[i] = narrowed(t, x);
        return t->result[i];
    }
    if (t->how != ON_RESULTS && t->how != TWICE) return x;
    if (x->n_dim != 4) return rows_of(t, i);
    if (!t->result[i]) t->result[i] = rd_op_shortcut(t->h.tape, x, 1, x->cols); /* the same image */
    return t->result[i];
}

static void give(trial *t, rd_var *y)
{
    if (!t->c->wide) y = stored(t, y);
    y = rd_op_cast(t->h.tape, y, RD_FLOAT32);
    if (y && y->n_dim == 4) y = rd_op_flatten(t->h.tape, y); /* in the order of elements that both devices share */
    assert_true(t->n_out < MOST_OUT);
    t->out[t->n_out++] = y;
}

static double *sum_out(trial *t)
{
    assert_true(t->n_sums < MOST_LISTS);
    t->sum[t->n_sums] = -1.0;
    return &t->sum[t->n_sums++];
}

static int32_t *list_out(trial *t, int64_t n)
{
    int32_t *at = step_memory(t, n, sizeof *at);
    assert_true(t->n_lists < MOST_LISTS);
    t->lists[t->n_lists++] = (list){at, n};
    return at;
}

/* ---- the cases ---- */
static void embed_declare(trial *t) { matrix(t, t->c->size[0], t->c->size[1]); }
static void embed_apply(trial *t)
{
    const int64_t n = t->c->size[2];
    give(t, rd_op_embed(t->h.tape, input(t, 0), ids_below(t, n, t->c->size[0]), n));
}

static void linear_declare(trial *t)
{
    matrix(t, t->c->size[0], t->c->size[1]);
    matrix(t, t->c->size[1], t->c->size[2]);
    if (t->c->size[3]) matrix(t, 0, t->c->size[2]);
}
static void linear_apply(trial *t)
{
    if (is_narrow(t) && !t->result[0]) t->result[0] = narrowed(t, rows_of(t, 0));
    give(t, rd_op_linear(t->h.tape, t->result[0] ? t->result[0] : rows_of(t, 0), direct(t, 1), t->c->size[3] ? direct(t, 2) : NULL));
}

/* size: n, then rows and columns of each input. */
static void pick_declare(trial *t)
{
    for (int i = 0; i < 4 && t->c->size[1 + 2 * i]; i++) matrix(t, t->c->size[1 + 2 * i], t->c->size[2 + 2 * i]);
}
static void pick_apply(trial *t)
{
    const int64_t n = t->c->size[0];
    rd_var *x[4];
    const int64_t *idx[4];
    for (int i = 0; i < t->n_in; i++) {
        const int64_t rows = t->c->size[1 + 2 * i];
        int64_t *at = step_memory(t, n, sizeof *at);
        for (int64_t k = 0; k < n; k++) at[k] = pseudo(k, rows + 1, 5 + (uint64_t)i) - 1; /* -1: zeros */
        x[i] = input(t, i);
        idx[i] = at;
    }
    give(t, rd_op_pick(t->h.tape, t->n_in, x, idx, n));
}

static void xent_declare(trial *t)
{
    matrix(t, t->c->size[0], t->c->size[1]);
    matrix(t, t->c->size[1], t->c->size[2]);
}
static void xent_apply(trial *t)
{
    const int64_t N = t->c->size[0];
    float *nll = step_memory(t, N, sizeof *nll);
    const rd_xent a = {ids_below(t, N, t->c->size[2]), (float)t->c->number[0], sum_out(t), list_out(t, N), nll};
    give(t, t->loss = rd_op_softmax_xent(t->h.tape, &a, rows_of(t, 0), direct(t, 1)));
    double *by_row = sum_out(t);
    *by_row = 0.0;
    for (int64_t i = 0; i < N && t->loss; i++) *by_row += (double)nll[i] * (double)(i + 1);
}

static void class_declare(trial *t) { matrix(t, t->c->size[0], t->c->size[1]); }
static void class_apply(trial *t)
{
    const int64_t N = t->c->size[0];
    float *p = step_memory(t, N, sizeof *p);
    const rd_class_loss a = {ids_below(t, N, t->c->size[1]), (float)t->c->number[0], sum_out(t), sum_out(t),
                             list_out(t, N), list_out(t, N), p};
    rd_var *y = rd_op_class_loss(t->h.tape, &a, input(t, 0));
    give(t, y);
    double *by_row = sum_out(t);
    *by_row = 0.0;
    for (int64_t i = 0; i < N && y; i++) *by_row += (double)p[i] * (double)(i + 1);
}

/* ---- sequences ---- */
/* size: sequences, longest, in, H, projection, extra, groups, residual; number: what dropout keeps of input and output. */
enum { SEQUENCES, LONGEST, IN, UNITS, PROJECTION, EXTRA, GROUPS, RESIDUAL };

static int64_t *offsets; /* of the packing being made */

static rd_packing packing(trial *t, int64_t n_seq, int64_t longest)
{
    int64_t *off = step_memory(t, longest + 1, sizeof *off), *sample = step_memory(t, n_seq, sizeof *sample);
    for (int64_t i = 0; i < n_seq; i++) sample[i] = 1000 + 37 * i;
    for (int64_t s = 0; s < longest; s++) { /* lengths fall from `longest` to 1 */
        int64_t n = 0;
        for (int64_t i = 0; i < n_seq; i++) n += longest - (longest - 1) * i / n_seq > s;
        off[s + 1] = off[s] + n;
    }
    offsets = off;
    return (rd_packing){longest, off, sample};
}

static int64_t packed_rows(int64_t n_seq, int64_t longest)
{
    int64_t n = 0;
    for (int64_t i = 0; i < n_seq && longest; i++) n += longest - (longest - 1) * i / n_seq;
    return n;
}

static rd_code emit(void *ctx, const char *name, int n_dim, const int64_t *dim, rd_init init, rd_status *st)
{
    (void)name, (void)init, (void)st;
    matrix(ctx, n_dim == 2 ? dim[0] : 0, dim[n_dim - 1]);
    return RD_OK;
}

static rd_layer layer_of(const trial *t, int64_t in)
{
    const int64_t *s = t->c->size;
    return (rd_layer){.cell = rd_cell_find(t->c->cell),
                      .shape = {in, s[UNITS], s[PROJECTION] ? s[PROJECTION] : s[UNITS], s[EXTRA], s[GROUPS], s[PROJECTION] > 0},
                      .drop_in = {5, 2, 3, (float)t->c->number[0]},
                      .drop_out = {5, 2, 4, (float)t->c->number[1]},
                      .residual = s[RESIDUAL]};
}

static void rnn_declare(trial *t)
{
    const int64_t *s = t->c->size, N = packed_rows(s[SEQUENCES], s[LONGEST]);
    rd_status st = {0};
    const rd_layer l = layer_of(t, s[IN]);
    matrix(t, N ? N : 1, s[IN]);
    matrix(t, N ? N : 1, s[EXTRA] ? s[EXTRA] : 1);
    l.cell->declare(&l.shape, emit, t, &st);
    must(&st);
}

/* All rows of input i, none where the batch has none. */
static rd_var *packed_input(trial *t, int i, int64_t N)
{
    rd_var *x = direct(t, i);
    if (!t->result[i]) t->result[i] = rd_op_pick(t->h.tape, 1, &x, (const int64_t *[]){rows_in_order(t, N)}, N);
    return t->result[i];
}

static void rnn_apply(trial *t)
{
    const int64_t *s = t->c->size;
    const rd_packing p = packing(t, s[SEQUENCES], s[LONGEST]);
    const rd_layer l = layer_of(t, s[IN]);
    rd_var *w[MOST_INPUTS];
    for (int k = 2; k < t->n_in; k++) w[k - 2] = direct(t, k);
    rd_var *x = packed_input(t, 0, p.off[p.n_steps]), *a = s[EXTRA] ? packed_input(t, 1, p.off[p.n_steps]) : NULL;
    give(t, rd_op_rnn_layer(t->h.tape, &l, &p, x, a, w, t->n_in - 2));
}

/* size as above, then: kind, E, M, width of W_in (0: none), layers. */
enum { KIND = 8, E, M, W_IN, LAYERS };
typedef struct decoder_inputs {
    int query, v, g, b, W, bias, cells, per_cell;
} decoder_inputs;

static decoder_inputs decoder_declared(trial *t, bool declare)
{
    const int64_t *s = t->c->size, N = packed_rows(s[SEQUENCES], s[LONGEST]), R = s[PROJECTION] ? s[PROJECTION] : s[UNITS];
    const bool additive = s[KIND] == RD_ATT_BAHDANAU || s[KIND] == RD_ATT_BAHDANAU_NORM,
               gained = s[KIND] == RD_ATT_BAHDANAU_NORM || s[KIND] == RD_ATT_LUONG_SCALED;
    const int64_t A = additive ? R + 3 : R; /* luong multiplies keys with the query itself */
    decoder_inputs d = {-1, -1, -1, -1, -1, -1, 0, 0};
    rd_status st = {0};
    int64_t S = 0;
    int n = 3;
    for (int64_t i = 0; i < s[SEQUENCES]; i++) S += 1 + i * 3 % 7;
    if (declare) {
        matrix(t, N ? N : 1, s[E]);
        matrix(t, S ? S : 1, s[M]);
        matrix(t, S ? S : 1, A);
    }
#define TAKES(field, when, rows, cols)            \
    do {                                          \
        if (when) {                               \
            if (declare) matrix(t, (rows), (cols)); \
            d.field = n++;                        \
        }                                         \
    } while (0)
    TAKES(query, additive, R, A);
    TAKES(v, additive, 0, A);
    TAKES(g, gained, 0, 0);
    TAKES(b, s[KIND] == RD_ATT_BAHDANAU_NORM, 0, A);
    TAKES(W, s[W_IN] > 0, s[E] + s[M], s[W_IN]);
    TAKES(bias, s[W_IN] > 0, 0, s[W_IN]);
#undef TAKES
    d.cells = n;
    for (int k = 0; k < s[LAYERS] && declare; k++) {
        const rd_layer l = layer_of(t, k ? R : s[W_IN] ? s[W_IN] : s[E] + s[M]);
        l.cell->declare(&l.shape, emit, t, &st);
        must(&st);
    }
    d.per_cell = (t->n_in - d.cells) / (int)s[LAYERS];
    return d;
}

static void decoder_declare(trial *t) { decoder_declared(t, true); }

static void decoder_apply(trial *t)
{
    const int64_t *s = t->c->size, R = s[PROJECTION] ? s[PROJECTION] : s[UNITS], n_seq = s[SEQUENCES];
    const decoder_inputs in = decoder_declared(t, false);
    rd_attn_decoder d = {.kind = (rd_attention_kind)s[KIND], .packing = packing(t, n_seq, s[LONGEST]), .n_layers = (int)s[LAYERS]};
    int64_t *first = step_memory(t, n_seq, sizeof *first), *len = step_memory(t, n_seq, sizeof *len), S = 0;
    rd_var *w[MOST_INPUTS], *ctx = NULL;
    for (int64_t i = 0; i < n_seq; i++) {
        first[i] = S;
        S += len[i] = 1 + i * 3 % 7;
    }
    d.src_first = first;
    d.src_len = len;
    for (int k = 0; k < d.n_layers; k++) {
        d.layer[k] = layer_of(t, k ? R : s[W_IN] ? s[W_IN] : s[E] + s[M]);
        d.layer[k].drop_in.site += 10 * (uint32_t)k;
        d.layer[k].drop_out.site += 10 * (uint32_t)k;
        d.n_w[k] = in.per_cell;
    }
    for (int k = in.cells; k < t->n_in; k++) w[k - in.cells] = direct(t, k);
#define GIVEN(i) ((i) < 0 ? NULL : direct(t, (i)))
    rd_var *q = rd_op_attention_decoder(t->h.tape, &d, packed_input(t, 0, d.packing.off[d.packing.n_steps]), packed_input(t, 1, S),
                                        packed_input(t, 2, S), GIVEN(in.query), GIVEN(in.v), GIVEN(in.g), GIVEN(in.b), GIVEN(in.W),
                                        GIVEN(in.bias), w, &ctx);
#undef GIVEN
    give(t, q);
    give(t, ctx);
}

/* ---- images: size n, h, w, c, then the op's own ---- */
static size4 image_size(const trial *t) { return (size4){t->c->size[0], t->c->size[1], t->c->size[2], t->c->size[3]}; }

/* kh, kw, co, stride, padding (top, left, bottom, right as decimal digits), 1: bias, 2: relu, 4: and a max pool behind. */
static void conv_declare(trial *t)
{
    const int64_t *s = t->c->size;
    image(t, image_size(t));
    t->in[t->n_in++] = h_input4(&t->h, s[4], s[5], s[3], s[6]);
    if (s[9] & 1) matrix(t, 0, s[6]);
}
static rd_var *convolved(trial *t, rd_conv c, rd_var *bias)
{
    const rd_conv bare = {c.stride, c.pad_top, c.pad_left, c.pad_bottom, c.pad_right, false};
    if (!is_narrow(t) || t->gpu) return rd_op_conv2d(t->h.tape, &c, input(t, 0), direct(t, 1), bias);
    return stored_with(t, rd_op_conv2d(t->h.tape, &bare, input(t, 0), direct(t, 1), NULL), bias, c.relu);
}
static void conv_apply(trial *t)
{
    const int64_t *s = t->c->size;
    rd_var *y = convolved(t, (rd_conv){s[7], s[8] / 1000, s[8] / 100 % 10, s[8] / 10 % 10, s[8] % 10, (s[9] & 2) != 0},
                          s[9] & 1 ? direct(t, 2) : NULL);
    if (s[9] & 4) y = rd_op_pool2d(t->h.tape, &(rd_pool){.kind = RD_POOL_MAX, .size = 2, .stride = 2}, y);
    give(t, y);
}

/* group, 1: relu, 2: add. */
static void norm_declare(trial *t)
{
    rd_status st = {0};
    const size4 s = image_size(t);
    image(t, s);
    matrix(t, 0, s.c);
    matrix(t, 0, s.c);
    if (t->c->size[5] & 2) image(t, s);
    rd_params_add_state(t->h.ps, "mean", s.c, 0.25, 0.9, &t->state[0], &st);
    rd_params_add_state(t->h.ps, "variance", s.c, 0.5, 0.9, &t->state[1], &st);
    must(&st);
}
static void norm_apply(trial *t)
{
    const int64_t *s = t->c->size;
    const rd_batch_norm bn = {1e-3f, s[4], (s[5] & 1) != 0, t->state[0], t->state[1]};
    give(t, rd_op_batch_norm(t->h.tape, &bn, input(t, 0), direct(t, 1), direct(t, 2), s[5] & 2 ? input(t, 3) : NULL));
}

static void one_image(trial *t) { image(t, image_size(t)); }
static void two_images(trial *t)
{
    image(t, image_size(t));
    image(t, image_size(t));
}

/* kind, size, stride, padding. */
static void pool_apply(trial *t)
{
    const int64_t *s = t->c->size;
    const rd_pool p = {(rd_pool_kind)s[4], s[5], s[6], s[7] / 1000, s[7] / 100 % 10, s[7] / 10 % 10, s[7] % 10};
    give(t, rd_op_pool2d(t->h.tape, &p, input(t, 0)));
}

static void mean_apply(trial *t) { give(t, rd_op_global_mean(t->h.tape, input(t, 0))); }
static void flatten_apply(trial *t) { give(t, rd_op_flatten(t->h.tape, input(t, 0))); }
static void relu_apply(trial *t) { give(t, rd_op_relu(t->h.tape, input(t, 0))); }
static void add_apply(trial *t) { give(t, rd_op_add(t->h.tape, input(t, 0), input(t, t->c->size[5] ? 0 : 1), t->c->size[4])); }
static void shortcut_apply(trial *t) { give(t, rd_op_shortcut(t->h.tape, input(t, 0), t->c->size[4], t->c->size[5])); }

static void dropout_declare(trial *t)
{
    if (t->c->size[2])
        one_image(t);
    else
        matrix(t, t->c->size[0], t->c->size[1]);
}
static void dropout_apply(trial *t)
{
    int64_t *sample = step_memory(t, t->c->size[0], sizeof *sample);
    for (int64_t i = 0; i < t->c->size[0]; i++) sample[i] = i % 3 ? (int64_t)1 << (20 + i) : 7;
    give(t, rd_op_dropout(t->h.tape, &(rd_dropout){3, 2, 9, (float)t->c->number[0]}, sample, input(t, 0)));
}

/* relu behind a dropout behind a convolution: what is rectified, and what may be masked already. */
static void chain_apply(trial *t)
{
    const rd_conv c = {.stride = 1, .relu = true};
    int64_t *sample = step_memory(t, t->c->size[0], sizeof *sample);
    rd_var *y = convolved(t, c, direct(t, 2));
    give(t, rd_op_relu(t->h.tape, stored(t, rd_op_dropout(t->h.tape, &(rd_dropout){3, 2, 9, 0.5f}, sample, y))));
    give(t, rd_op_add(t->h.tape, y, y, true));
}

/* The batch of images as data: no gradient reaches it. */
static void image_apply(trial *t)
{
    const size4 s = image_size(t);
    float *x = step_memory(t, count4(s), sizeof *x);
    for (int64_t i = 0; i < count4(s); i++) x[i] = (float)pseudo(i, 256, 11) / 256.0f;
    rd_var *y = narrowed(t, rd_op_image(t->h.tape, x, s.n, s.h, s.w, s.c));
    give(t, rd_op_add(t->h.tape, y, input(t, 0), false));
}

static void cast_apply(trial *t) { give(t, rd_op_cast(t->h.tape, input(t, 0), RD_FLOAT32)); }

#define CAST .op = "cast", .declare = one_image, .apply = cast_apply, .narrow = true
#define EMBED .op = "embed", .declare = embed_declare, .apply = embed_apply
#define LINEAR .op = "linear", .declare = linear_declare, .apply = linear_apply, .narrow = true, .wide = true
#define PICK .op = "pick", .declare = pick_declare, .apply = pick_apply
#define XENT .op = "softmax_xent", .declare = xent_declare, .apply = xent_apply, .is_loss = true
#define CLASS .op = "class_loss", .declare = class_declare, .apply = class_apply
#define RNN .op = "rnn_layer", .declare = rnn_declare, .apply = rnn_apply
#define DECODER .op = "attention_decoder", .declare = decoder_declare, .apply = decoder_apply
#define CONV .op = "conv2d", .declare = conv_declare, .apply = conv_apply, .narrow = true
#define NORM .op = "batch_norm", .declare = norm_declare, .apply = norm_apply, .narrow = true
#define POOL .op = "pool2d", .declare = one_image, .apply = pool_apply, .narrow = true
#define MEAN .op = "global_mean", .declare = one_image, .apply = mean_apply, .narrow = true
#define FLATTEN .op = "flatten", .declare = one_image, .apply = flatten_apply, .narrow = true
#define RELU .op = "relu", .declare = one_image, .apply = relu_apply, .narrow = true
#define ADD .op = "add", .declare = two_images, .apply = add_apply, .narrow = true
#define SHORTCUT .op = "shortcut", .declare = one_image, .apply = shortcut_apply, .narrow = true
#define DROPOUT .op = "dropout", .declare = dropout_declare, .apply = dropout_apply, .zeros = true, .narrow = true
#define CHAIN .op = "dropout", .declare = conv_declare, .apply = chain_apply, .zeros = true, .narrow = true
#define IMAGE .op = "image", .declare = one_image, .apply = image_apply, .narrow = true

static const op_case cases[] = {
    {EMBED, .name = "odd sizes", .size = {5, 9, 7}},
    {EMBED, .name = "one row", .size = {1, 1, 1}},
    {EMBED, .name = "one id many times", .size = {1, 33, 700}},
    {EMBED, .name = "more ids than a block", .size = {300, 64, 1500}},
    {EMBED, .name = "wide", .size = {40, 1030, 65}},
    {EMBED, .name = "no ids", .size = {5, 8, 0}},
    {LINEAR, .name = "1x1x1", .size = {1, 1, 1, 1}},
    {LINEAR, .name = "3x5x7", .size = {3, 5, 7, 1}},
    {LINEAR, .name = "70x24x40", .size = {70, 24, 40, 1}},
    {LINEAR, .name = "257x33x129, no bias", .size = {257, 33, 129, 0}},
    {LINEAR, .name = "one column", .size = {600, 8, 1, 1}},
    {LINEAR, .name = "one row", .size = {1, 300, 65, 1}},
    {PICK, .name = "one input", .size = {9, 4, 5}},
    {PICK, .name = "two inputs", .size = {70, 4, 3, 2, 5}},
    {PICK, .name = "four inputs, many of a row", .size = {600, 3, 16, 1, 1, 40, 8, 7, 33}},
    {PICK, .name = "nothing picked", .size = {0, 4, 3, 2, 5}},
    {XENT, .name = "3x5x7", .size = {3, 5, 7}, .number = {1.0}},
    {XENT, .name = "temperature", .size = {9, 16, 24}, .number = {0.7}},
    {XENT, .name = "one class", .size = {33, 8, 1}, .number = {1.0}},
    {XENT, .name = "one row", .size = {1, 8, 37}, .number = {1.0}},
    {XENT, .name = "more rows than a block", .size = {300, 16, 130}, .number = {1.0}},
    {XENT, .name = "a row wider than shared memory", .size = {5, 8, 20011}, .number = {1.0}},
    {CLASS, .name = "odd sizes", .size = {5, 11}, .number = {0.0}},
    {CLASS, .name = "smoothing", .size = {37, 10}, .number = {0.1}},
    {CLASS, .name = "1000 classes", .size = {9, 1000}, .number = {0.1}},
    {CLASS, .name = "one sample, one class", .size = {1, 1}, .number = {0.1}},
    {CLASS, .name = "many samples", .size = {600, 3}, .number = {0.0}},
    {RNN, .name = "lstm, odd", .cell = "lstm", .size = {3, 6, 5, 7}, .number = {1, 1}},
    {RNN, .name = "lstm, one sequence", .cell = "lstm", .size = {1, 6, 1, 1}, .number = {1, 1}},
    {RNN, .name = "lstm, one step", .cell = "lstm", .size = {9, 1, 5, 7}, .number = {1, 1}},
    {RNN, .name = "lstm, no sequence", .cell = "lstm", .size = {0, 1, 5, 7}, .number = {1, 1}},
    {RNN, .name = "lstm, no step", .cell = "lstm", .size = {0, 0, 5, 7}, .number = {1, 1}},
    {RNN, .name = "lstm, many sequences", .cell = "lstm", .size = {70, 6, 16, 8}, .number = {1, 1}},
    {RNN, .name = "lstm, wide", .cell = "lstm", .size = {5, 4, 64, 130}, .number = {1, 1}},
    {RNN, .name = "lstm, dropout, residual", .cell = "lstm", .size = {5, 6, 16, 16, [RESIDUAL] = 1}, .number = {0.8, 0.7}},
    {RNN, .name = "lstm, projection", .cell = "lstm", .size = {5, 6, 8, 24, 16}, .number = {1, 1}},
    {RNN, .name = "lstm, projection, dropout, residual", .cell = "lstm", .size = {5, 6, 17, 24, 17, [RESIDUAL] = 1}, .number = {0.6, 0.9}},
    {RNN, .name = "lstm, joined context", .cell = "lstm", .size = {5, 6, 16, 8, 0, 23}, .number = {0.8, 1}},
    {RNN, .name = "gru", .cell = "gru", .size = {5, 6, 16, 24}, .number = {1, 1}},
    {RNN, .name = "gru, odd, dropout, residual", .cell = "gru", .size = {4, 6, 9, 9, [RESIDUAL] = 1}, .number = {0.7, 0.8}},
    {RNN, .name = "gru, many sequences", .cell = "gru", .size = {70, 3, 16, 40}, .number = {1, 1}},
    {RNN, .name = "gru, no sequence", .cell = "gru", .size = {0, 1, 16, 40}, .number = {1, 1}},
    {RNN, .name = "slstm", .cell = "slstm", .size = {5, 6, 16, 24}, .number = {1, 1}},
    {RNN, .name = "slstm, joined context, dropout, residual", .cell = "slstm", .size = {5, 6, 8, 8, 0, 16, [RESIDUAL] = 1}, .number = {0.9, 0.9}},
    {RNN, .name = "slstm, odd", .cell = "slstm", .size = {37, 3, 5, 7}, .number = {1, 1}},
    {RNN, .name = "slstm, no sequence", .cell = "slstm", .size = {0, 1, 16, 24}, .number = {1, 1}},
    {RNN, .name = "glstm, one group", .cell = "glstm", .size = {5, 6, 16, 24, 0, 0, 1}, .number = {1, 1}},
    {RNN, .name = "glstm, two groups, dropout", .cell = "glstm", .size = {5, 6, 16, 32, 0, 0, 2}, .number = {0.8, 0.8}},
    {RNN, .name = "glstm, three groups, projection", .cell = "glstm", .size = {40, 3, 12, 24, 18, 0, 3}, .number = {1, 1}},
    {RNN, .name = "glstm, four groups, joined context", .cell = "glstm", .size = {5, 6, 16, 32, 0, 16, 4}, .number = {1, 1}},
    {RNN, .name = "glstm, no sequence", .cell = "glstm", .size = {0, 1, 16, 32, 0, 0, 2}, .number = {1, 1}},
    {DECODER, .name = "bahdanau, odd", .cell = "lstm", .size = {4, 6, 0, 7, 0, 0, 0, 0, RD_ATT_BAHDANAU, 5, 6, 0, 1}, .number = {1, 1}},
    {DECODER, .name = "bahdanau, one sequence, one step", .cell = "lstm", .size = {1, 1, 0, 7, 0, 0, 0, 0, RD_ATT_BAHDANAU, 5, 6, 0, 1}, .number = {1, 1}},
    {DECODER, .name = "bahdanau normalised, two layers", .cell = "lstm", .size = {5, 6, 0, 16, 0, 0, 0, 0, RD_ATT_BAHDANAU_NORM, 8, 16, 0, 2}, .number = {1, 1}},
    {DECODER, .name = "bahdanau normalised, many sequences", .cell = "lstm", .size = {70, 4, 0, 8, 0, 0, 0, 0, RD_ATT_BAHDANAU_NORM, 8, 8, 0, 1}, .number = {1, 1}},
    {DECODER, .name = "bahdanau normalised, wide", .cell = "lstm", .size = {3, 3, 0, 130, 0, 0, 0, 0, RD_ATT_BAHDANAU_NORM, 33, 260, 0, 1}, .number = {1, 1}},
    {DECODER, .name = "luong", .cell = "lstm", .size = {5, 6, 0, 16, 0, 0, 0, 0, RD_ATT_LUONG, 8, 16, 0, 1}, .number = {1, 1}},
    {DECODER, .name = "luong, odd, many sequences", .cell = "gru", .size = {70, 3, 0, 13, 0, 0, 0, 0, RD_ATT_LUONG, 5, 11, 0, 1}, .number = {1, 1}},
    {DECODER, .name = "luong scaled, dropout", .cell = "lstm", .size = {5, 6, 0, 16, 0, 0, 0, 0, RD_ATT_LUONG_SCALED, 8, 16, 0, 1}, .number = {0.8, 0.7}},
    {DECODER, .name = "bahdanau, W_in, dropout, two layers", .cell = "lstm", .size = {5, 6, 0, 16, 0, 0, 0, 0, RD_ATT_BAHDANAU, 8, 16, 16, 2}, .number = {0.7, 0.8}},
    {DECODER, .name = "bahdanau, W_in, dropout, residual", .cell = "lstm", .size = {5, 6, 0, 16, 0, 0, 0, 1, RD_ATT_BAHDANAU, 8, 16, 16, 2}, .number = {0.7, 0.8}},
    {DECODER, .name = "luong, projection", .cell = "lstm", .size = {5, 6, 0, 16, 8, 0, 0, 0, RD_ATT_LUONG, 8, 16, 0, 1}, .number = {1, 1}},
    {DECODER, .name = "bahdanau normalised, gru, dropout", .cell = "gru", .size = {5, 6, 0, 16, 0, 0, 0, 0, RD_ATT_BAHDANAU_NORM, 8, 16, 0, 2}, .number = {0.9, 1}},
    {DECODER, .name = "no sequence", .cell = "lstm", .size = {0, 1, 0, 8, 0, 0, 0, 0, RD_ATT_BAHDANAU, 8, 8, 0, 1}, .number = {1, 1}},
    {CONV, .name = "one channel 3x3", .size = {2, 9, 9, 1, 3, 3, 32, 1, 0, 3}},
    {CONV, .name = "7x7 stride 2", .size = {2, 15, 13, 3, 7, 7, 16, 2, 3333, 0}},
    {CONV, .name = "11x11 stride 4", .size = {1, 23, 27, 3, 11, 11, 8, 4, 2222, 3}},
    {CONV, .name = "1x1", .size = {2, 5, 7, 16, 1, 1, 64, 1, 0, 0}},
    {CONV, .name = "1x1 stride 2, even size", .size = {2, 6, 8, 16, 1, 1, 32, 2, 0, 0}},
    {CONV, .name = "3x3 stride 2, padding after alone", .size = {2, 8, 8, 16, 3, 3, 16, 2, 11, 1}},
    {CONV, .name = "5x5, asymmetric padding", .size = {2, 6, 7, 16, 5, 5, 24, 1, 2103, 1}},
    {CONV, .name = "17 channels to 17", .size = {2, 5, 5, 17, 3, 3, 17, 1, 1111, 3}},
    {CONV, .name = "3 channels to 5", .size = {3, 6, 5, 3, 3, 3, 5, 1, 1012, 3}},
    {CONV, .name = "1x1 image", .size = {3, 1, 1, 16, 3, 3, 16, 1, 1111, 1}},
    {CONV, .name = "oblong kernel", .size = {2, 6, 6, 8, 1, 5, 16, 1, 202, 3}},
    {CONV, .name = "slices of rows", .size = {4, 30, 31, 8, 3, 3, 20, 1, 1111, 3}},
    {CONV, .name = "relu, then a pool", .size = {2, 8, 8, 3, 3, 3, 16, 1, 1111, 7}},
    {NORM, .name = "16 channels", .size = {3, 5, 4, 16, 0, 0}},
    {NORM, .name = "17 channels, relu", .size = {3, 5, 3, 17, 0, 1}},
    {NORM, .name = "one channel", .size = {3, 5, 3, 1, 0, 0}},
    {NORM, .name = "addition", .size = {3, 3, 3, 24, 0, 2}},
    {NORM, .name = "addition, relu, 130 channels", .size = {2, 4, 5, 130, 0, 3}},
    {NORM, .name = "groups", .size = {5, 3, 3, 16, 2, 0}},
    {NORM, .name = "groups, addition, relu", .size = {5, 4, 3, 17, 3, 3}},
    {NORM, .name = "a group larger than the batch", .size = {3, 3, 3, 8, 32, 0}},
    {NORM, .name = "many pixels", .size = {4, 33, 31, 4, 0, 1}},
    {NORM, .name = "slices of rows", .size = {8, 24, 23, 16, 0, 1}},
    {NORM, .name = "slices of rows, 3 channels", .size = {6, 40, 31, 3, 0, 0}},
    {NORM, .name = "slices of rows, groups, addition, relu", .size = {5, 16, 15, 132, 2, 3}},
    {NORM, .name = "slices of rows, 65 channels", .size = {4, 18, 17, 65, 0, 2}},
    {POOL, .name = "max 2x2", .size = {2, 6, 8, 16, RD_POOL_MAX, 2, 2, 0}},
    {POOL, .name = "max 2x2, odd", .size = {2, 5, 7, 17, RD_POOL_MAX, 2, 2, 0}},
    {POOL, .name = "max 3x3 stride 2, padded", .size = {2, 8, 7, 16, RD_POOL_MAX, 3, 2, 1111}},
    {POOL, .name = "max 3x3 stride 2, padded after", .size = {2, 8, 8, 3, RD_POOL_MAX, 3, 2, 11}},
    {POOL, .name = "max 3x3 stride 1", .size = {1, 6, 5, 8, RD_POOL_MAX, 3, 1, 0}},
    {POOL, .name = "max 1x1 stride 2", .size = {1, 5, 5, 8, RD_POOL_MAX, 1, 2, 0}},
    {POOL, .name = "max 3x3 stride 2, padded, many", .size = {2, 28, 29, 64, RD_POOL_MAX, 3, 2, 1111}},
    {POOL, .name = "max 16x16", .size = {1, 17, 18, 8, RD_POOL_MAX, 16, 1, 0}},
    {POOL, .name = "max 17x17", .size = {1, 17, 18, 8, RD_POOL_MAX, 17, 1, 0}},
    {POOL, .name = "mean 2x2", .size = {2, 4, 6, 16, RD_POOL_MEAN, 2, 2, 0}},
    {POOL, .name = "mean 3x3 stride 2, padded", .size = {2, 8, 7, 17, RD_POOL_MEAN, 3, 2, 1111}},
    {MEAN, .name = "17 channels", .size = {3, 4, 5, 17}},
    {MEAN, .name = "one pixel", .size = {3, 1, 1, 64}},
    {MEAN, .name = "many channels", .size = {2, 7, 7, 520}},
    {FLATTEN, .name = "17 channels", .size = {3, 2, 3, 17}},
    {RELU, .name = "17 channels", .size = {2, 3, 3, 17}},
    {RELU, .name = "multiple of 4", .size = {2, 3, 3, 16}},
    {ADD, .name = "17 channels", .size = {2, 3, 3, 17, 0}},
    {ADD, .name = "relu", .size = {2, 3, 3, 16, 1}},
    {ADD, .name = "an image to itself, relu", .size = {2, 3, 3, 16, 1, 1}},
    {SHORTCUT, .name = "16 to 32", .size = {2, 6, 6, 16, 2, 32}},
    {SHORTCUT, .name = "odd", .size = {2, 5, 7, 17, 2, 20}},
    {SHORTCUT, .name = "stride 3, no new channel", .size = {1, 7, 7, 8, 3, 8}},
    {DROPOUT, .name = "images", .size = {4, 3, 5, 17}, .number = {0.75}},
    {DROPOUT, .name = "rows", .size = {5, 101}, .number = {0.5}},
    {DROPOUT, .name = "rows, multiple of 8", .size = {9, 256}, .number = {0.9}},
    {DROPOUT, .name = "keeps all", .size = {3, 16}, .number = {1.0}},
    {CHAIN, .name = "rectified, dropped out, rectified", .size = {3, 4, 4, 5, 1, 1, 8, 1, 0, 3}},
    {IMAGE, .name = "a batch", .size = {2, 5, 3, 3}},
    {CAST, .name = "17 channels", .size = {2, 5, 3, 17}},
    {CAST, .name = "16 channels", .size = {2, 3, 3, 16}},
};
enum { N_CASES = sizeof cases / sizeof *cases };

/* ---- running and comparing ---- */
static void keep_results(trial *t)
{
    for (int k = 0; k < t->n_out; k++) t->n_values += t->out[k]->rows * t->out[k]->cols;
    t->values = malloc((size_t)(t->n_values + 1) * sizeof *t->values);
    float *to = t->values;
    for (int k = 0; k < t->n_out; k++) {
        const int64_t n = t->out[k]->rows * t->out[k]->cols;
        float *x = h_read(&t->h, t->out[k], false);
        memcpy(to, x, (size_t)n * sizeof *to);
        free(x);
        to += n;
    }
    for (int k = 0; k < t->n_lists; k++) t->n_integers += t->lists[k].n;
    t->integers = malloc((size_t)(t->n_integers + 1) * sizeof *t->integers);
    int32_t *i = t->integers;
    for (int k = 0; k < t->n_lists; i += t->lists[k++].n)
        if (t->lists[k].n) memcpy(i, t->lists[k].at, (size_t)t->lists[k].n * sizeof *i);
    const size_t bytes = (size_t)rd_params_span(t->h.ps) * sizeof *t->grads;
    t->grads = malloc(bytes + 1);
    memcpy(t->grads, rd_params_grads(t->h.ps), bytes);
}

/* To numbers that bfloat16 and float16 hold. */
static void shorten(trial *t)
{
    float *v = rd_params_values(t->h.ps);
    for (int i = 0; i < t->h.n; i++)
        for (int64_t k = 0; k < t->h.p[i]->n; k++) {
            float *x = &v[t->h.p[i]->offset + k];
            *x = rintf(*x * 64.0f) / 64.0f;
        }
    for (int64_t k = 0; k < t->h.n_r; k++) t->h.r[k] = rintf(t->h.r[k] * 64.0f) / 64.0f;
    rd_params_touch(t->h.ps);
}

static void run(trial *t, const op_case *c, way how, bool gpu)
{
    rd_status st = {0};
    rd_backend *be;
    const bool grad = how != NO_GRADIENT;
    *t = (trial){.c = c, .how = how, .gpu = gpu};
    if (gpu)
        h_gpu_backend(1, how >= MIXED_PRODUCTS, &be, &st);
    else
        rd_backend_cpu_new(1, false, &be, &st);
    must(&st);
    h_init_with(&t->h, be);
    c->declare(t);
    h_fill(&t->h, 0.6, MOST_ELEMENTS);
    if (how >= MIXED_PRODUCTS) shorten(t);
    rd_tape_reset(t->h.tape, grad, grad);
    c->apply(t);
    if (how == TWICE || how == NARROW_TWICE) c->apply(t);
    rd_tape_check(t->h.tape, &st);
    must(&st);
    if (grad) {
        int64_t n = 0;
        for (int k = 0; k < t->n_out; k++) n += t->out[k]->rows * t->out[k]->cols;
        assert_true(n <= MOST_ELEMENTS);
        rd_var *loss = t->loss ? t->loss : h_weighted(&t->h, t->out, t->n_out);
        rd_tape_check(t->h.tape, &st);
        must(&st);
        rd_tape_backward(t->h.tape, loss, &st);
        must(&st);
    }
    keep_results(t);
}

static void done(trial *t)
{
    free(t->values);
    free(t->grads);
    free(t->integers);
    h_free(&t->h);
}

static double largest(int64_t n, const float *x)
{
    double most = 0.0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs((double)x[i]));
    return most;
}

static void compare(const trial *a, const char *what, int64_t n, const float *want, const float *got, double least,
                    double tolerance)
{
    const double most = fmax(largest(n, want), least);
    const bool zeros = a->c->zeros && a->how != NARROW_TWICE; /* two that were rounded before they were added may cancel, or not quite */
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= tolerance * most) || (zeros && (got[i] == 0.0f) != (want[i] == 0.0f)))
            fail_msg("%s, %s: %s, element %lld of %lld: %.9g on the GPU, %.9g on the CPU (largest %.3g)", a->c->name,
                     way_names[a->how], what, (long long)i, (long long)n, (double)got[i], (double)want[i], most);
}

static void test_case(void **state)
{
    const op_case *c = *state;
    for (int how = 0; how < N_WAYS; how++) {
        trial cpu, gpu;
        const double tolerance = how == MIXED_PRODUCTS  ? MIXED
                                 : how == NARROW        ? TO_EITHER * roundoff()
                                 : how == NARROW_TWICE  ? 2 * TO_EITHER * roundoff()
                                                        : FLOAT32;
        if ((how == TWICE && c->is_loss) || (how >= NARROW && !c->narrow)) continue;
        run(&cpu, c, (way)how, false);
        run(&gpu, c, (way)how, true);
        assert_int_equal(cpu.n_values, gpu.n_values);
        compare(&cpu, "result", cpu.n_values, cpu.values, gpu.values, 0.0, tolerance);
        const double least = largest(rd_params_span(cpu.h.ps), cpu.grads) / 100.0;
        for (int i = 0; i < rd_params_n(cpu.h.ps); i++) {
            const rd_param *p = rd_params_at(cpu.h.ps, i);
            char what[192];
            snprintf(what, sizeof what, "gradient of %s", p->name);
            compare(&cpu, what, p->n, cpu.grads + p->offset, gpu.grads + p->offset, least, tolerance);
        }
        assert_int_equal(cpu.n_integers, gpu.n_integers);
        for (int64_t i = 0; i < cpu.n_integers && how < MIXED_PRODUCTS; i++)
            if (cpu.integers[i] != gpu.integers[i])
                fail_msg("%s, %s: integer %lld: %d on the GPU, %d on the CPU", c->name, way_names[how], (long long)i,
                         (int)gpu.integers[i], (int)cpu.integers[i]);
        for (int k = 0; k < cpu.n_sums; k++)
            if (!(fabs(cpu.sum[k] - gpu.sum[k]) <= tolerance * fabs(cpu.sum[k]) + 1e-12))
                fail_msg("%s, %s: sum %d: %.9g on the GPU, %.9g on the CPU", c->name, way_names[how], k, gpu.sum[k], cpu.sum[k]);
        done(&cpu);
        done(&gpu);
    }
}

/* ---- none is forgotten ---- */
#define RD_ENTRY(name) #name,
static const char *const all_ops[] = {
#include "ops.inc"
};
static const char *const all_cells[] = {
#include "cells.inc"
};
#undef RD_ENTRY

static void test_all_have_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof all_ops / sizeof *all_ops; i++) {
        bool has = false;
        for (int k = 0; k < N_CASES; k++) has |= strcmp(cases[k].op, all_ops[i]) == 0;
        if (!has) fail_msg("op %s has no case in tests/gpu/ops.c", all_ops[i]);
    }
    for (size_t i = 0; i < sizeof all_cells / sizeof *all_cells; i++) {
        bool has = false;
        for (int k = 0; k < N_CASES; k++) has |= cases[k].cell && strcmp(cases[k].cell, all_cells[i]) == 0;
        if (!has) fail_msg("cell %s has no case in tests/gpu/ops.c", all_cells[i]);
    }
}

/* An op that does not say it takes 16 bits never sees them; a variable of them is read as float32. */
static void test_guard(void **state)
{
    (void)state;
    trial t = {.how = NARROW, .gpu = true};
    rd_status st = {0};
    rd_backend *be;
    h_gpu_backend(1, true, &be, &st);
    must(&st);
    h_init_with(&t.h, be);
    matrix(&t, 3, 5);
    h_fill(&t.h, 0.6, MOST_ELEMENTS);
    rd_var *x = input(&t, 0);
    rd_tape_check(t.h.tape, &st);
    must(&st);
    assert_int_equal(x->type, narrow_type);
    float *got = h_read(&t.h, x, false);
    for (int i = 0; i < 15; i++) assert_true(got[i] == rounded((float)t.h.x[0][i]));
    free(got);
    assert_null(rd_op_pick(t.h.tape, 1, &x, (const int64_t *[]){rows_in_order(&t, 3)}, 3));
    assert_int_equal(rd_tape_check(t.h.tape, &st), RD_EBUG);
    assert_non_null(strstr(st.msg, "op 'pick' takes float32"));
    h_free(&t.h);
}

int main(void)
{
    static op_case copies[N_CASES]; /* cmocka's state is not const */
    static char names[N_CASES][128];
    const struct CMUnitTest complete[] = {cmocka_unit_test(test_all_have_cases)};
    struct CMUnitTest t[N_CASES + 1];
    int status = cmocka_run_group_tests_name("cases", complete, NULL, NULL);
    if (status != 0 || !gpu_here(1, &status)) return status != 0;
    if (getenv("RD_TEST_CUDNN_RNN")) cmocka_set_test_filter("rnn_layer: *");
    memcpy(copies, cases, sizeof copies);
    rd_status st = {0};
    rd_backend *mixed;
    h_gpu_backend(1, true, &mixed, &st);
    narrow_type = rd_backend_activations(mixed);
    rd_backend_free(mixed);
    for (int i = 0; i < N_CASES; i++) {
        snprintf(names[i], sizeof names[i], "%s: %s", cases[i].op, cases[i].name);
        t[i] = (struct CMUnitTest){names[i], test_case, NULL, NULL, &copies[i]};
    }
    t[N_CASES] = (struct CMUnitTest){"16 bits for an op of float32", test_guard, NULL, NULL, NULL};
    return cmocka_run_group_tests_name("ops: the GPU against the CPU", t, NULL, NULL) != 0;
}
