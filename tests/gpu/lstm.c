/* lstm.c -- cuDNN's recurrent layers, called as gpu_rnn.c calls them, against torch.nn.LSTM
 * (tests/golden/make_lstm.py).
 *
 * On a GPU the test calls the library, in the emulated build its replacement. It covers layouts,
 * lengths, types, algorithms, initial and final states, and the places of weights. It also covers
 * rd_lstm_layer if the library refuses or fails.
 *
 * Tolerances, relative to 1 + the number: float32 2e-5, as in ops.c. With 16 bits, inputs are
 * exact. Results, states and gates have 8 bits, and six steps of them add up to a few 2^-8. */
#include "../../runner/engine/gpu/dnn_rnn.h"
#include "../../runner/engine/gpu/gpu_rnn.h"
#include "test.h"
#include "../golden/lstm_values.h"
#include "gpu_here.h"
#include "rd/philox.h"
#include <math.h>

enum { GATES = 4, CASES = sizeof lstm_cases / sizeof *lstm_cases };
typedef struct lstm_case lstm_case;

static rd_gpu *gpu;

static int open_as(bool mixed)
{
    rd_status st = {0};
    rd_gpu_new(0, &(rd_gpu_options){.mixed = mixed, .rnn = RD_RNN_ON}, &gpu, &st);
    must(&st);
    return 0;
}

static int open_gpu(void **state)
{
    (void)state;
    return open_as(false);
}

static int close_gpu(void **state)
{
    (void)state;
    assert_int_equal(gpu_close(&gpu), 0);
    return 0;
}

/* ---- numbers of a type on the device ---- */
static size_t bytes_of(cudnnDataType_t t)
{
    return t == CUDNN_DATA_FLOAT ? 4 : 2;
}

static float float_of_half(unsigned h)
{
    const int e = h >> 10 & 31, m = h & 1023;
    const float size = e ? ldexpf((float)(1024 + m), e - 25) : ldexpf((float)m, -24);
    return h & 0x8000 ? -size : size;
}

/* Multiples of 1/64 below 2, which all types represent exactly. */
static unsigned half_of(float x)
{
    for (unsigned h = 0; h < 0x4400; h++)
        if (float_of_half(h) == fabsf(x)) return h | (x < 0 ? 0x8000u : 0u);
    fail_msg("%g is no number that float16 holds", (double)x);
    return 0;
}

static void *room(size_t bytes)
{
    rd_status st = {0};
    void *d;
    rd_gpu_memory_new(gpu, bytes, &d, &st);
    rd_gpu_zero(gpu, d, bytes, &st);
    must(&st);
    return d;
}

static void put(cudnnDataType_t t, void *device, size_t at, size_t n, const float *x)
{
    rd_status st = {0};
    unsigned char *h = malloc(n * 4 + 4);
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof u);
        const uint16_t s = (uint16_t)(t == CUDNN_DATA_BFLOAT16 ? u >> 16
                                      : t == CUDNN_DATA_HALF   ? half_of(x[i])
                                                               : 0);
        if (t == CUDNN_DATA_FLOAT)
            memcpy(h + 4 * i, &u, 4);
        else
            memcpy(h + 2 * i, &s, 2);
    }
    rd_gpu_upload(gpu, (char *)device + at * bytes_of(t), h, n * bytes_of(t), &st);
    must(&st);
    free(h);
}

static float *fetch(cudnnDataType_t t, const void *device, size_t at, size_t n)
{
    rd_status st = {0};
    unsigned char *h = malloc(n * 4 + 4);
    float *x = malloc(n * sizeof *x + 4);
    rd_gpu_download(gpu, h, (const char *)device + at * bytes_of(t), n * bytes_of(t), &st);
    must(&st);
    for (size_t i = 0; i < n; i++) {
        uint16_t s;
        memcpy(&s, h + 2 * i, 2);
        const uint32_t u = (uint32_t)s << 16;
        if (t == CUDNN_DATA_FLOAT)
            memcpy(&x[i], h + 4 * i, 4);
        else if (t == CUDNN_DATA_BFLOAT16)
            memcpy(&x[i], &u, 4);
        else
            x[i] = float_of_half(s);
    }
    free(h);
    return x;
}

/* ---- the library against torch ---- */
typedef struct setting {
    const char *name;
    cudnnDataType_t type;
    cudnnRNNAlgo_t algo;
    cudnnRNNDataLayout_t layout;
    double tolerance;
} setting;

static const setting settings[] = {
    {"padded", CUDNN_DATA_FLOAT, CUDNN_RNN_ALGO_STANDARD, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED,
     2e-5},
    {"packed", CUDNN_DATA_FLOAT, CUDNN_RNN_ALGO_STANDARD, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED,
     2e-5},
    {"batch first", CUDNN_DATA_FLOAT, CUDNN_RNN_ALGO_STANDARD,
     CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED, 2e-5},
    {"persistent", CUDNN_DATA_FLOAT, CUDNN_RNN_ALGO_PERSIST_STATIC,
     CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, 2e-5},
    {"small h", CUDNN_DATA_FLOAT, CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H,
     CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, 2e-5},
    {"bfloat16", CUDNN_DATA_BFLOAT16, CUDNN_RNN_ALGO_STANDARD,
     CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, 3e-2},
    {"bfloat16, small h", CUDNN_DATA_BFLOAT16, CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H,
     CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, 3e-2},
    {"float16", CUDNN_DATA_HALF, CUDNN_RNN_ALGO_STANDARD, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED,
     5e-3},
};

/* Returns the row of sequence s at step t. */
static size_t row_at(const lstm_case *c, cudnnRNNDataLayout_t layout, int t, int s)
{
    size_t row = 0;
    if (layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED) return (size_t)(t * c->batch + s);
    if (layout == CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED) return (size_t)(s * c->steps + t);
    for (int u = 0; u < t; u++)
        for (int i = 0; i < c->batch; i++) row += c->length[i] > u;
    return row + (size_t)s;
}

static void put_doubles(cudnnDataType_t t, void *device, size_t at, size_t n, const double *x)
{
    float *f = malloc(n * sizeof *f);
    for (size_t i = 0; i < n; i++) f[i] = (float)x[i];
    put(t, device, at, n, f);
    free(f);
}

static void *rows_up(const lstm_case *c, const setting *s, int width, const double *x)
{
    void *d = room((size_t)(c->steps * c->batch * width) * bytes_of(s->type));
    for (int t = 0; x && t < c->steps; t++)
        for (int i = 0; i < c->batch; i++)
            if (t < c->length[i])
                put_doubles(s->type, d, row_at(c, s->layout, t, i) * (size_t)width, (size_t)width,
                            x + (t * c->batch + i) * width);
    return d;
}

static void same(const setting *s, int c, const char *what, size_t n, const double *want,
                 cudnnDataType_t t, const void *device, size_t at)
{
    float *got = fetch(t, device, at, n);
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= s->tolerance * (1.0 + fabs(want[i]))))
            fail_msg("case %d, %s: %s, element %d: %g, torch has %g", c, s->name, what, (int)i,
                     (double)got[i], want[i]);
    free(got);
}

static void same_rows(const setting *s, int k, const char *what, int width, const double *want,
                      const void *device)
{
    const lstm_case *c = &lstm_cases[k];
    for (int t = 0; t < c->steps; t++)
        for (int i = 0; i < c->batch; i++)
            if (t < c->length[i] || s->layout != CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED)
                same(s, k, what, (size_t)width, want + (t * c->batch + i) * width, s->type, device,
                     row_at(c, s->layout, t, i) * (size_t)width);
}

#define OK(call) assert_int_equal((call), CUDNN_STATUS_SUCCESS)

/* Returns whether a call refused. A persistent algorithm may, in any call and with any status,
 * since these sizes are small; without a GPU only for a reason that the library is known to have.
 * The sizes that must not be refused: test_persistent. */
static bool was_refused(const setting *s, const lstm_case *c, cudnnStatus_t r)
{
    if (r == CUDNN_STATUS_SUCCESS) return false;
    assert_true(s->algo != CUDNN_RNN_ALGO_STANDARD);
    assert_true(!gpu_is_emulated() || s->type == CUDNN_DATA_BFLOAT16 ||
                c->length[c->batch - 1] < c->steps);
    return true;
}

static void one(const setting *s, int k)
{
    const lstm_case *c = &lstm_cases[k];
    const cudnnDataType_t type = s->type;
    const int H = c->units, I = c->width, dim[] = {1, c->batch, H}, stride[] = {c->batch * H, H, 1};
    const size_t state_bytes = (size_t)(c->batch * H) * bytes_of(type);
    const bool packed = s->layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED;
    const rd_dnn_rnn *d;
    rd_status st = {0};
    cudnnRNNDescriptor_t rnn;
    cudnnRNNDataDescriptor_t xd, yd;
    cudnnTensorDescriptor_t sd, wd;
    float zero[2] = {0};
    size_t weight_bytes = 0, work_bytes = 0, reserve_bytes = 0, at[2][8];
    rd_gpu_dnn_rnn(gpu, &d, &st);
    must(&st);
    OK(d->cudnnCreateRNNDescriptor(&rnn));
    OK(d->cudnnCreateRNNDataDescriptor(&xd));
    OK(d->cudnnCreateRNNDataDescriptor(&yd));
    OK(d->cudnnCreateTensorDescriptor(&sd));
    OK(d->cudnnCreateTensorDescriptor(&wd));
    cudnnStatus_t r = d->cudnnSetRNNDescriptor_v8(
        rnn, s->algo, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT,
        type, CUDNN_DATA_FLOAT, type == CUDNN_DATA_FLOAT ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH, I,
        H, H, 1, NULL, packed ? CUDNN_RNN_PADDED_IO_DISABLED : CUDNN_RNN_PADDED_IO_ENABLED);
    OK(d->cudnnSetRNNDataDescriptor(xd, type, s->layout, c->steps, c->batch, I, c->length, zero));
    OK(d->cudnnSetRNNDataDescriptor(yd, type, s->layout, c->steps, c->batch, H, c->length, zero));
    OK(d->cudnnSetTensorNdDescriptor(sd, type, 3, dim, stride));
    if (r == CUDNN_STATUS_SUCCESS)
        r = d->cudnnGetRNNTempSpaceSizes(d->handle, rnn, CUDNN_FWD_MODE_TRAINING, xd, &work_bytes,
                                         &reserve_bytes);
    if (was_refused(s, c, r)) goto refused;
    OK(d->cudnnGetRNNWeightSpaceSize(d->handle, rnn, &weight_bytes));
    char *w = room(weight_bytes), *dw = room(weight_bytes);
    const double *const weights[] = {c->W_x, c->W_h, c->b_x, c->b_h}, *const dweights[] = {
                                                                          c->dW_x, c->dW_h, c->db_x,
                                                                          c->db_h};
    for (int g = 0; g < 2 * GATES; g++)
        for (int bias = 0; bias < 2; bias++) {
            const int cols = bias ? 1 : g < GATES ? I : H;
            void *p = NULL;
            OK(d->cudnnGetRNNWeightParams(d->handle, rnn, 0, weight_bytes, w, g, bias ? NULL : wd,
                                          bias ? NULL : &p, bias ? wd : NULL, bias ? &p : NULL));
            at[bias][g] = (size_t)((char *)p - w) / bytes_of(type);
            put_doubles(type, w, at[bias][g], (size_t)(H * cols),
                        weights[2 * bias + g / GATES] + g % GATES * H * cols);
        }
    void *x = rows_up(c, s, I, c->x), *y = rows_up(c, s, H, NULL), *dy = rows_up(c, s, H, c->dy),
         *dx = rows_up(c, s, I, NULL);
    void *state[8]; /* hx cx hy cy dhy dcy dhx dcx */
    for (int i = 0; i < 8; i++) state[i] = room(state_bytes);
    const double *const given[] = {c->hx, c->cx, NULL, NULL, c->dhy, c->dcy};
    for (int i = 0; i < 6; i++)
        if (given[i]) put_doubles(type, state[i], 0, (size_t)(c->batch * H), given[i]);
    void *work = room(work_bytes + 1), *reserve = room(reserve_bytes + 1);
    r = d->cudnnRNNForward(d->handle, rnn, CUDNN_FWD_MODE_TRAINING, NULL, xd, x, yd, y, sd,
                           state[0], state[2], sd, state[1], state[3], weight_bytes, w, work_bytes,
                           work, reserve_bytes, reserve);
    if (was_refused(s, c, r)) goto done;
    same_rows(s, k, "y", H, c->y, y);
    same(s, k, "h", (size_t)(c->batch * H), c->hy, type, state[2], 0);
    same(s, k, "c", (size_t)(c->batch * H), c->cy, type, state[3], 0);
    if (gpu_is_at_once())
        assert_int_equal(d->cudnnRNNBackwardWeights_v8(d->handle, rnn, CUDNN_WGRAD_MODE_ADD, NULL,
                                                       xd, x, sd, state[0], yd, y, weight_bytes, dw,
                                                       work_bytes, work, reserve_bytes, reserve),
                         CUDNN_STATUS_BAD_PARAM);
    r = d->cudnnRNNBackwardData_v8(d->handle, rnn, NULL, yd, y, dy, xd, dx, sd, state[0], state[4],
                                   state[6], sd, state[1], state[5], state[7], weight_bytes, w,
                                   work_bytes, work, reserve_bytes, reserve);
    if (was_refused(s, c, r)) goto done;
    r = d->cudnnRNNBackwardWeights_v8(d->handle, rnn, CUDNN_WGRAD_MODE_ADD, NULL, xd, x, sd,
                                      state[0], yd, y, weight_bytes, dw, work_bytes, work,
                                      reserve_bytes, reserve);
    if (was_refused(s, c, r)) goto done;
    same_rows(s, k, "gradient of x", I, c->dx, dx);
    same(s, k, "gradient of h", (size_t)(c->batch * H), c->dhx, type, state[6], 0);
    same(s, k, "gradient of c", (size_t)(c->batch * H), c->dcx, type, state[7], 0);
    for (int g = 0; g < 2 * GATES; g++)
        for (int bias = 0; bias < 2; bias++) {
            const int cols = bias ? 1 : g < GATES ? I : H;
            same(s, k, bias ? "gradient of a bias" : "gradient of a matrix", (size_t)(H * cols),
                 dweights[2 * bias + g / GATES] + g % GATES * H * cols, type, dw, at[bias][g]);
        }
done:
    for (int i = 0; i < 8; i++) rd_gpu_memory_free(gpu, state[i]);
    void *const more[] = {x, y, dy, dx, w, dw, work, reserve};
    for (int i = 0; i < 8; i++) rd_gpu_memory_free(gpu, more[i]);
refused:
    OK(d->cudnnDestroyRNNDescriptor(rnn));
    OK(d->cudnnDestroyRNNDataDescriptor(xd));
    OK(d->cudnnDestroyRNNDataDescriptor(yd));
    OK(d->cudnnDestroyTensorDescriptor(sd));
    OK(d->cudnnDestroyTensorDescriptor(wd));
}

static void test_against_torch(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        for (int k = 0; k < CASES; k++) one(&settings[i], k);
}

/* ---- rd_gpu_lstm: refusals and failures ---- */
static void *arena_get(void *ctx, size_t bytes, rd_status *st)
{
    void *p = NULL;
    (void)ctx;
    rd_gpu_memory_new(gpu, bytes, &p, st);
    return p;
}
static void arena_put(void *ctx, void *p)
{
    (void)ctx;
    rd_gpu_memory_free(gpu, p);
}
static rd_code arena_zero(void *ctx, void *p, size_t bytes, rd_status *st)
{
    (void)ctx;
    return rd_gpu_zero(gpu, p, bytes, st);
}

/* Runs a layer of H units forward and back: up to 128 by a persistent algorithm. `variable` makes
 * the call `call` refuse or fail. */
static void with(int H, const char *variable, const char *call, rd_rnn_algo *algo, bool *refused,
                 rd_status *st)
{
    enum { IN = 4, T = 3, N = 24 };
    static const int64_t off[] = {0, 8, 16, 24};
    const size_t wide = (size_t)((IN + H) * 4 * H) * sizeof(float), of_h = (size_t)H * 4;
    rd_arena *a;
    rd_lstm_kept v;
    rd_arena_new_from(&(rd_arena_source){.get = arena_get, .put = arena_put, .zero = arena_zero},
                      1 << 20, &a, st);
    float *x = room(N * IN * 4), *y = room(N * of_h), *dx = room(N * IN * 4), *W = room(wide),
          *b = room(4 * of_h);
    const rd_lstm_layer l = {.in = IN,
                             .H = H,
                             .n_steps = T,
                             .off = off,
                             .W = W,
                             .b = b,
                             .dW = room(wide),
                             .db = room(4 * of_h)};
    *refused = false;
    if (variable) setenv(variable, call, 1);
    for (int again = 0; again < 2; again++) {
        rd_gpu_lstm_forward(gpu, "lstm", &l, x, NULL, y, true, a, a, &v, st);
        *algo = v.choice.algo;
        if (st->code == RD_OK && *algo != RD_RNN_OWN)
            rd_gpu_lstm_backward(gpu, &l, &v, y, dx, false, NULL, a, refused, st);
        if (*refused) break;
    }
    if (variable) unsetenv(variable);
    rd_arena_free(a);
    void *const all[] = {x, y, dx, W, b, l.dW, l.db};
    for (int i = 0; i < 7; i++) rd_gpu_memory_free(gpu, all[i]);
}

enum { NARROW = 8, WIDE = 136 }; /* units: a persistent algorithm; the standard one */

static void test_refused(void **state)
{
    static const char *const calls[] = {"cudnnSetRNNDescriptor_v8",  "cudnnGetRNNWeightSpaceSize",
                                        "cudnnGetRNNWeightParams",   "cudnnSetRNNDataDescriptor",
                                        "cudnnGetRNNTempSpaceSizes", "cudnnRNNForward",
                                        "cudnnRNNBackwardData_v8",   "cudnnRNNBackwardWeights_v8"};
    enum { N = sizeof calls / sizeof *calls, FORWARD = 6 };
    rd_rnn_algo algo;
    bool refused;
    (void)state;
    if (!gpu_is_emulated()) skip_because("the real cuDNN fails at no given call");
    for (int i = 0; i < N; i++)
        for (int how = 0; how < 3; how++) {
            /* "not supported" of both algorithms; of a persistent one any status */
            const char *variable = how == 2 ? "RD_EMULATED_CUDNN_FAILS"
                                            : "RD_EMULATED_CUDNN_REFUSES";
            const int H = how == 1 ? WIDE : NARROW;
            rd_status st = {0};
            open_as(false);
            with(H, variable, calls[i], &algo, &refused, &st);
            must(&st);
            assert_int_equal(refused, i >= FORWARD);
            if (i < FORWARD) assert_int_equal(algo, RD_RNN_OWN);
            const char *note = rd_gpu_take_note(gpu);
            assert_non_null(note);
            if (!strstr(note, calls[i])) fail_msg("'%s' does not name %s", note, calls[i]);
            assert_null(rd_gpu_take_note(gpu));        /* once */
            with(H, NULL, NULL, &algo, &refused, &st); /* the same sizes are not tried again */
            must(&st);
            assert_int_equal(algo, RD_RNN_OWN);
            close_gpu(NULL);
        }
}

/* Weights in an unknown order: our own kernels compute the layer. */
static void test_places(void **state)
{
    rd_status st = {0};
    rd_rnn_algo algo;
    bool refused;
    (void)state;
    if (!gpu_is_emulated()) skip_because("the real cuDNN fails at no given call");
    open_as(false);
    with(NARROW, "RD_EMULATED_CUDNN_TRANSPOSED", "1", &algo, &refused, &st);
    must(&st);
    assert_int_equal(algo, RD_RNN_OWN);
    const char *note = rd_gpu_take_note(gpu);
    assert_true(note && strstr(note, "unknown order"));
    close_gpu(NULL);
}

/* The standard algorithm has no reason to fail. */
static void test_fails(void **state)
{
    static const char *const calls[] = {"cudnnSetRNNDescriptor_v8",
                                        "cudnnGetRNNWeightSpaceSize",
                                        "cudnnGetRNNWeightParams",
                                        "cudnnGetRNNTempSpaceSizes",
                                        "cudnnRNNForward",
                                        "cudnnRNNBackwardData_v8",
                                        "cudnnRNNBackwardWeights_v8",
                                        "cudnnSetRNNDataDescriptor"};
    rd_rnn_algo algo;
    bool refused;
    (void)state;
    if (!gpu_is_emulated()) skip_because("the real cuDNN fails at no given call");
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        rd_status st = {0}, later = {0};
        open_as(false);
        with(WIDE, "RD_EMULATED_CUDNN_FAILS", calls[i], &algo, &refused, &st);
        assert_int_equal(st.code, RD_EENV);
        if (!strstr(st.msg, calls[i])) fail_msg("'%s' does not name %s", st.msg, calls[i]);
        assert_int_equal(rd_gpu_wait(gpu, &later), RD_EENV); /* sticks */
        close_gpu(NULL);
    }
}

/* ---- sizes for which the library has a persistent kernel ---- */

/* Numbers in [-scale, scale], multiples of scale / 32. */
static float *some(size_t n, uint64_t seed, float scale)
{
    float *x = malloc(n * sizeof *x);
    rd_philox_uniform(rd_key_make(seed, RD_RNG_TEST, 0, 0), 0, (int64_t)n, x);
    for (size_t i = 0; i < n; i++) x[i] = rintf((2.0f * x[i] - 1.0f) * 32.0f) / 32.0f * scale;
    return x;
}

/* An LSTM in double; W[in + H][4 H] with the gates i, j, f, o, forget bias 1. */
typedef struct wide_layer {
    size_t T, N, in, H;
    const float *x, *W, *dy;
    double *gate, *c, *y, *dx;
} wide_layer;

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static void wide_forward(const wide_layer *l)
{
    const size_t H = l->H, G = 4 * H;
    for (size_t t = 0; t < l->T; t++)
        for (size_t s = 0; s < l->N; s++) {
            const size_t row = t * l->N + s;
            double *g = l->gate + row * G;
            for (size_t k = 0; k < l->in + H; k++) {
                const double v = k < l->in ? (double)l->x[row * l->in + k]
                                 : t       ? l->y[(row - l->N) * H + k - l->in]
                                           : 0.0;
                for (size_t j = 0; j < G; j++) g[j] += v * (double)l->W[k * G + j];
            }
            for (size_t u = 0; u < H; u++) {
                g[u] = sigmoid(g[u]);
                g[H + u] = tanh(g[H + u]);
                g[2 * H + u] = sigmoid(g[2 * H + u] + 1.0);
                g[3 * H + u] = sigmoid(g[3 * H + u]);
                l->c[row * H + u] = g[u] * g[H + u] +
                                    (t ? g[2 * H + u] * l->c[(row - l->N) * H + u] : 0.0);
                l->y[row * H + u] = g[3 * H + u] * tanh(l->c[row * H + u]);
            }
        }
}

static void wide_backward(const wide_layer *l)
{
    const size_t H = l->H, G = 4 * H;
    double *dh = calloc(l->N * H, sizeof *dh), *dc = calloc(l->N * H, sizeof *dc),
           *dz = malloc(G * sizeof *dz);
    for (size_t t = l->T; t-- > 0;)
        for (size_t s = 0; s < l->N; s++) {
            const size_t row = t * l->N + s;
            const double *g = l->gate + row * G;
            for (size_t u = 0; u < H; u++) {
                const double th = tanh(l->c[row * H + u]),
                             d = dh[s * H + u] + (double)l->dy[row * H + u],
                             d_c = dc[s * H + u] + d * g[3 * H + u] * (1.0 - th * th),
                             old = t ? l->c[(row - l->N) * H + u] : 0.0;
                dz[u] = d_c * g[H + u] * g[u] * (1.0 - g[u]);
                dz[H + u] = d_c * g[u] * (1.0 - g[H + u] * g[H + u]);
                dz[2 * H + u] = d_c * old * g[2 * H + u] * (1.0 - g[2 * H + u]);
                dz[3 * H + u] = d * th * g[3 * H + u] * (1.0 - g[3 * H + u]);
                dc[s * H + u] = d_c * g[2 * H + u];
            }
            for (size_t k = 0; k < l->in + H; k++) {
                double sum = 0.0;
                for (size_t j = 0; j < G; j++) sum += dz[j] * (double)l->W[k * G + j];
                if (k < l->in)
                    l->dx[row * l->in + k] = sum;
                else
                    dh[s * H + k - l->in] = sum;
            }
        }
    free(dh);
    free(dc);
    free(dz);
}

static void near(const char *what, size_t n, const double *want, const float *device, double within)
{
    float *got = fetch(CUDNN_DATA_FLOAT, device, 0, n);
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= within * (1.0 + fabs(want[i]))))
            fail_msg("%s, element %d: %g, want %g", what, (int)i, (double)got[i], want[i]);
    free(got);
}

/* Runs a layer by the library, and compares it with sums in double. expected: the algorithm, which
 * must not refuse. */
static void persistent(int units, bool half, rd_rnn_algo expected)
{
    enum { T = 3, N = 8 };
    static const int64_t off[] = {0, N, 2 * N, 3 * N};
    const size_t H = (size_t)units, rows = T * N, of_w = 2 * H * 4 * H;
    float *x = some(rows * H, 1, 1.0f), *W = some(of_w, 2, 0.0625f), *dy = some(rows * H, 3, 1.0f);
    wide_layer l = {T,
                    N,
                    H,
                    H,
                    x,
                    W,
                    dy,
                    calloc(rows * 4 * H, sizeof(double)),
                    calloc(rows * H, sizeof(double)),
                    calloc(rows * H, sizeof(double)),
                    calloc(rows * H, sizeof(double))};
    const double within = half ? 5e-3 : 2e-5;
    rd_status st = {0};
    const rd_arena_source memory = {.get = arena_get, .put = arena_put, .zero = arena_zero};
    rd_arena *a, *kept;
    rd_lstm_kept v;
    bool refused = false;
    wide_forward(&l);
    wide_backward(&l);
    if (half) setenv("RD_CUDA_FLOAT16", "1", 1);
    open_as(half);
    rd_arena_new_from(&memory, 1 << 20, &a, &st);
    rd_arena_new_from(&memory, 1 << 20, &kept, &st);
    float *d_x = room(rows * H * 4), *d_y = room(rows * H * 4), *d_dy = room(rows * H * 4),
          *d_dx = room(rows * H * 4), *d_W = room(of_w * 4), *d_b = room(4 * H * 4);
    put(CUDNN_DATA_FLOAT, d_x, 0, rows * H, x);
    put(CUDNN_DATA_FLOAT, d_dy, 0, rows * H, dy);
    put(CUDNN_DATA_FLOAT, d_W, 0, of_w, W);
    const rd_lstm_layer layer = {.in = units,
                                 .H = units,
                                 .n_steps = T,
                                 .off = off,
                                 .W = d_W,
                                 .b = d_b,
                                 .dW = room(of_w * 4),
                                 .db = room(4 * H * 4)};
    rd_gpu_lstm_forward(gpu, "lstm", &layer, d_x, NULL, d_y, true, kept, a, &v, &st);
    must(&st);
    const char *note = rd_gpu_take_note(gpu);
    if (v.choice.algo != expected)
        fail_msg("%d units, %s: %s", units, half ? "float16" : "float32",
                 note ? note : v.choice.why);
    near("y", rows * H, l.y, d_y, within);
    rd_gpu_lstm_backward(gpu, &layer, &v, d_dy, d_dx, false, NULL, a, &refused, &st);
    must(&st);
    assert_false(refused);
    near("gradient of x", rows * H, l.dx, d_dx, within);
    rd_arena_free(a);
    rd_arena_free(kept);
    void *const device[] = {d_x, d_y, d_dy, d_dx, d_W, d_b, layer.dW, layer.db};
    for (int i = 0; i < 8; i++) rd_gpu_memory_free(gpu, device[i]);
    close_gpu(NULL);
    unsetenv("RD_CUDA_FLOAT16");
    void *const host[] = {x, W, dy, l.gate, l.c, l.y, l.dx};
    for (int i = 0; i < 7; i++) free(host[i]);
}

static void test_persistent(void **state)
{
    rd_status st = {0};
    rd_gpu_info info;
    (void)state;
    rd_gpu_query(0, &info, &st);
    must(&st);
    persistent(128, false, RD_RNN_SMALL_H);
    persistent(128, true, RD_RNN_SMALL_H);
    /* large GPUs */
    if (info.major < 8 || info.n_sm < 98) return;
    persistent(gpu_is_emulated() ? 256 : 1024, true, RD_RNN_PERSIST_STATIC);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test_setup_teardown(test_against_torch, open_gpu, close_gpu),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_fails),
        cmocka_unit_test(test_persistent),
    };
    int status;
    return gpu_here(0, &status)
               ? cmocka_run_group_tests_name("recurrent layers by cuDNN", t, NULL, NULL) != 0
               : status;
}
