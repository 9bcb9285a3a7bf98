/* gpu_rnn.c -- see gpu_rnn.h.
 *
 * The library's LSTM has eight matrices [H, width], for the gates i, f, g, o of the input and of h,
 * and eight biases. Our LSTM has one kernel whose columns are the gates i, j, f, o; j is the
 * library's g. The weights are copied into the library's order once per change. The forget bias is
 * added to the bias of f on the input side; the second biases are zeros. The columns that gnmt
 * joins to h do not depend on the loop, so they count as input.
 *
 * The library's calls are no tasks of a CUDA graph. They stand between two graphs, because a call
 * may refuse, and then other work follows.
 *
 * The library has a layout for time-major packed rows with the longest sequence first. If all
 * sequences have one length, its padded layout is the same. Then x, y and dy are used in place,
 * unless the type differs or the batch is filled up. */
#include "gpu_rnn.h"
#include "gpu_graph.h"
#include "dnn_rnn.h"
#include "rd/environment.h"
#include <stdio.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { GATES = 4 };
static const int ours_of[GATES] = {0, 2, 1,
                                   3}; /* the library's gates i, f, g, o among i, j, f, o */

/* A layer's descriptor, and the places in its weight space. */
typedef struct layer {
    int64_t in, H;
    rd_rnn_algo algo;
    cudnnRNNDescriptor_t desc;
    size_t bytes; /* bytes of the weight space */
    /* first element of each matrix or bias: matrices of x, of h, biases of x, of h, by gate */
    int64_t at[RD_RNN_MATRICES];
    struct layer *next;
} layer;

/* A layer that the library refused. Refusals are compared by bytes. */
typedef struct refusal {
    int64_t in, H, n_steps, n_seq, algo;
} refusal;

struct rd_gpu_rnn {
    const rd_dnn_rnn *dnn; /* what made the descriptors; NULL: there are none */
    layer *first;
    cudnnRNNDataDescriptor_t x, y;
    cudnnTensorDescriptor_t state;
    /* length of each sequence, in the order that the library needs */
    int *length;
    int64_t cap_length;
    refusal *refused;
    int n_refused, cap_refused;
    char text[200]; /* text of the last refusal */
    char note[480];
    bool has_note;
    rd_gpu_rnn_counts counts;
};

#define TRY_DNN(call) RD_TRY(rd_gpu_dnn_result(g, (dnn->call), #call, RD_HERE, st))

/* Checks the result of a call. If the call reports that the sizes, the type or the GPU are not
 * supported, sets *no; this is no failure. The library does not say which status a persistent
 * algorithm gives if it lacks a kernel, so there every status is a refusal: a call that fails has
 * queued nothing, and if the device itself failed, own kernels report it. */
static rd_code may_refuse(rd_gpu *g, rd_rnn_algo algo, cudnnStatus_t r, const char *call,
                          const char *where, bool *no, rd_status *st)
{
    struct rd_gpu_rnn *s = *rd_gpu_rnn_of(g);
    *no = r != CUDNN_STATUS_SUCCESS &&
          (algo != RD_RNN_STANDARD || CUDNN_STATUS_CATEGORY(r) == CUDNN_STATUS_NOT_SUPPORTED);
    if (!*no) return rd_gpu_dnn_result(g, r, call, where, st);
    (void)snprintf(s->text, sizeof s->text, "%.*s: %s", (int)strcspn(call, "("), call,
                   rd_gpu_dnn_text(g, r));
    return st->code;
}
#define TRY_OR_REFUSE(algo, call, no)                                         \
    do {                                                                      \
        RD_TRY(may_refuse(g, (algo), (dnn->call), #call, RD_HERE, (no), st)); \
        if (*(no)) goto done;                                                 \
    } while (0)

void rd_gpu_rnn_begin(void)
{
    (void)rd_environment_default(RD_VAR_CUBLAS_BUFFERS);
}

static void layers_free(const rd_dnn_rnn *dnn, struct rd_gpu_rnn *s)
{
    while (s->first) {
        layer *l = s->first;
        s->first = l->next;
        if (l->desc) (void)dnn->cudnnDestroyRNNDescriptor(l->desc);
        free(l);
    }
}

void rd_gpu_rnn_free(rd_gpu *g)
{
    struct rd_gpu_rnn **s = rd_gpu_rnn_of(g);
    if (!*s) return;
    const rd_dnn_rnn *dnn = (*s)->dnn;
    if (dnn) {
        layers_free(dnn, *s);
        if ((*s)->x) (void)dnn->cudnnDestroyRNNDataDescriptor((*s)->x);
        if ((*s)->y) (void)dnn->cudnnDestroyRNNDataDescriptor((*s)->y);
        if ((*s)->state) (void)dnn->cudnnDestroyTensorDescriptor((*s)->state);
    }
    free((*s)->length);
    free((*s)->refused);
    free(*s);
    *s = NULL;
}

/* Returns what the GPU's recurrent layers have in common; makes it first if it is not there. NULL:
 * out of memory. */
static struct rd_gpu_rnn *gpu_rnn_common(rd_gpu *g, rd_status *st)
{
    struct rd_gpu_rnn **s = rd_gpu_rnn_of(g);
    if (!*s) *s = calloc(1, sizeof **s);
    if (!*s) rd_fail(st, RD_EENV, "out of memory for recurrent layers");
    return *s;
}

void rd_gpu_count_rnn(rd_gpu *g, rd_gpu_rnn_counts *out)
{
    const struct rd_gpu_rnn *s = *rd_gpu_rnn_of(g);
    *out = s ? s->counts : (rd_gpu_rnn_counts){.cudnn = 0};
    if (!out->why) out->why = "";
}

const char *rd_gpu_take_note(rd_gpu *g)
{
    struct rd_gpu_rnn *s = *rd_gpu_rnn_of(g);
    if (!s || !s->has_note) return NULL;
    s->has_note = false;
    return s->note;
}

/* ---- what was refused ---- */

static refusal refusal_of(const rd_lstm_layer *l, const rd_rnn_choice *c)
{
    return (refusal){l->in + l->extra, l->H, l->n_steps, c->n_seq, (int64_t)c->algo};
}

static bool was_refused(const struct rd_gpu_rnn *s, const refusal *r)
{
    for (int i = 0; s && i < s->n_refused; i++)
        if (memcmp(&s->refused[i], r, sizeof *r) == 0) return true;
    return false;
}

/* Remembers a refusal, so the same sizes are not tried again and a resumed run computes as the
 * first one. One note reports all refusals. */
static rd_code gpu_rnn_refuse(struct rd_gpu_rnn *s, const rd_lstm_layer *l, const rd_rnn_choice *c,
                              rd_status *st)
{
    if (s->n_refused == s->cap_refused) {
        const int more = s->cap_refused ? 2 * s->cap_refused : 16;
        refusal *list = realloc(s->refused, (size_t)more * sizeof *list);
        if (!list) return rd_fail(st, RD_EENV, "out of memory for the list of recurrent layers");
        s->refused = list;
        s->cap_refused = more;
    }
    s->refused[s->n_refused++] = refusal_of(l, c);
    if (s->n_refused > 1) return st->code;
    s->has_note = true;
    (void)snprintf(s->note, sizeof s->note,
                   "recurrent layer of %" PRId64 " units, %" PRId64 " sequences of %" PRId64
                   " steps: not by cuDNN, which does not support it (%s), but by own kernels, like "
                   "other layers that it refuses",
                   l->H, c->n_seq, l->n_steps, s->text);
    return st->code;
}

/* ---- descriptors ---- */

static rd_rnn_type gpu_rnn_type_of(const rd_gpu *g)
{
    return !rd_gpu_options_of(g)->mixed ? RD_RNN_F32
           : rd_gpu_uses_float16(g)     ? RD_RNN_F16
                                        : RD_RNN_BF16;
}

static cudnnDataType_t data_type(rd_rnn_type t)
{
    return t == RD_RNN_F32    ? CUDNN_DATA_FLOAT
           : t == RD_RNN_BF16 ? CUDNN_DATA_BFLOAT16
                              : CUDNN_DATA_HALF;
}

static size_t element(rd_rnn_type t)
{
    return t == RD_RNN_F32 ? sizeof(float) : sizeof(uint16_t);
}

static cudnnMathType_t math_type(const rd_gpu *g)
{
    const rd_gpu_options *o = rd_gpu_options_of(g);
    return o->mixed ? CUDNN_TENSOR_OP_MATH : o->tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
}

static cudnnRNNAlgo_t algorithm(rd_rnn_algo a)
{
    return a == RD_RNN_PERSIST_STATIC ? CUDNN_RNN_ALGO_PERSIST_STATIC
           : a == RD_RNN_SMALL_H      ? CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H
                                      : CUDNN_RNN_ALGO_STANDARD;
}

/* Returns the place of a matrix or a bias, counted from `base`, a weight space. *no: its shape is
 * not the one for which the weights are rearranged. */
static rd_code gpu_rnn_place(rd_gpu *g, const rd_dnn_rnn *dnn, const layer *l, const void *base,
                             int gate, bool bias, int64_t cols, int64_t *at, bool *no,
                             rd_status *st)
{
    enum { DIMS = 3 };
    void *p = NULL;
    cudnnDataType_t type;
    int dim[DIMS] = {0}, stride[DIMS] = {0}, n = 0;
    struct rd_gpu_rnn *s = *rd_gpu_rnn_of(g);
    if (bias)
        TRY_OR_REFUSE(l->algo,
                      cudnnGetRNNWeightParams(dnn->handle, l->desc, 0, l->bytes, base, gate, NULL,
                                              NULL, s->state, &p),
                      no);
    else
        TRY_OR_REFUSE(l->algo,
                      cudnnGetRNNWeightParams(dnn->handle, l->desc, 0, l->bytes, base, gate,
                                              s->state, &p, NULL, NULL),
                      no);
    TRY_DNN(cudnnGetTensorNdDescriptor(s->state, DIMS, &type, &n, dim, stride));
    const size_t offset = (size_t)((uintptr_t)p - (uintptr_t)base),
                 size = element(gpu_rnn_type_of(g));
    const bool row_major = bias ||
                           ((dim[1] == 1 || stride[1] == cols) && (cols == 1 || stride[2] == 1));
    if (!p || type != data_type(gpu_rnn_type_of(g)) || n != DIMS ||
        (int64_t)dim[0] * dim[1] * dim[2] != l->H * cols ||
        (!bias && (dim[1] != l->H || dim[2] != cols)) || !row_major || offset % size != 0 ||
        offset + (size_t)(l->H * cols) * size > l->bytes) {
        *no = true;
        (void)snprintf(s->text, sizeof s->text,
                       "cudnnGetRNNWeightParams: weights are stored in an unknown order");
    }
    *at = (int64_t)(offset / size);
done:
    return st->code;
}

static rd_code layer_new(rd_gpu *g, const rd_dnn_rnn *dnn, const rd_lstm_layer *shape,
                         rd_rnn_algo algo, layer **out, bool *no, rd_status *st)
{
    layer *l = *out = calloc(1, sizeof *l);
    void *base = NULL;
    if (!l) return rd_fail(st, RD_EENV, "out of memory for a recurrent layer");
    l->in = shape->in + shape->extra;
    l->H = shape->H;
    l->algo = algo;
    const uint32_t io = algo == RD_RNN_STANDARD ? CUDNN_RNN_PADDED_IO_DISABLED
                                                : CUDNN_RNN_PADDED_IO_ENABLED;
    TRY_DNN(cudnnCreateRNNDescriptor(&l->desc));
    TRY_OR_REFUSE(algo,
                  cudnnSetRNNDescriptor_v8(l->desc, algorithm(algo), CUDNN_LSTM,
                                           CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL,
                                           CUDNN_LINEAR_INPUT, data_type(gpu_rnn_type_of(g)),
                                           CUDNN_DATA_FLOAT, math_type(g), (int32_t)l->in,
                                           (int32_t)l->H, (int32_t)l->H, 1, NULL, io),
                  no);
    TRY_OR_REFUSE(algo, cudnnGetRNNWeightSpaceSize(dnn->handle, l->desc, &l->bytes), no);
    RD_TRY(rd_gpu_memory_new(g, l->bytes, &base,
                             st)); /* the library needs a base to return addresses */
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < GATES; k++) {
            const int gate = side * GATES + k;
            RD_TRY(gpu_rnn_place(g, dnn, l, base, gate, false, side ? l->H : l->in, &l->at[gate],
                                 no, st));
            if (*no) goto done;
            RD_TRY(gpu_rnn_place(g, dnn, l, base, gate, true, 1, &l->at[2 * GATES + gate], no, st));
            if (*no) goto done;
        }
done:
    rd_gpu_memory_free(g, base);
    if (st->code != RD_OK || *no) {
        if (l->desc) (void)dnn->cudnnDestroyRNNDescriptor(l->desc);
        free(l);
        *out = NULL;
    }
    return st->code;
}

static rd_code layer_for(rd_gpu *g, const rd_dnn_rnn *dnn, const rd_lstm_layer *shape,
                         rd_rnn_algo algo, layer **out, bool *no, rd_status *st)
{
    struct rd_gpu_rnn *s = *rd_gpu_rnn_of(g);
    for (layer *l = s->first; l; l = l->next)
        if (l->in == shape->in + shape->extra && l->H == shape->H && l->algo == algo) {
            *out = l;
            return st->code;
        }
    RD_TRY(layer_new(g, dnn, shape, algo, out, no, st));
    if (*no) return st->code;
    (*out)->next = s->first;
    s->first = *out;
done:
    return st->code;
}

/* Computes the lengths of a batch, by row of the first step. Sequences that fill the batch up are
 * as long as the longest one. */
static rd_code lengths(struct rd_gpu_rnn *s, const rd_lstm_layer *l, const rd_rnn_choice *c,
                       rd_status *st)
{
    if (s->cap_length < c->n_seq) {
        int *more = realloc(s->length, (size_t)c->n_seq * sizeof *more);
        if (!more)
            return rd_fail(st, RD_EENV, "out of memory for the lengths of %" PRId64 " sequences",
                           c->n_seq);
        s->length = more;
        s->cap_length = c->n_seq;
    }
    for (int64_t i = 0; i < c->n_seq; i++) s->length[i] = (int)l->n_steps;
    if (c->algo != RD_RNN_STANDARD) return st->code;
    /* longest first: the number of rows in the last step is the number of sequences with full
     * length */
    for (int64_t t = l->n_steps - 1, i = 0; t >= 0; t--) {
        const int64_t n = l->off[t + 1] - l->off[t];
        for (; i < n; i++) s->length[i] = (int)t + 1;
    }
    return st->code;
}

/* The arguments of a call that depend on the batch. */
typedef struct batch {
    const rd_dnn_rnn *dnn;
    struct rd_gpu_rnn *s;
    layer *l;
    size_t work, reserve;
} batch;

static rd_code gpu_rnn_begin(rd_gpu *g, const rd_lstm_layer *l, const rd_rnn_choice *c, bool keep,
                             batch *b, bool *no, rd_status *st)
{
    struct rd_gpu_rnn *s = gpu_rnn_common(g, st);
    const rd_dnn_rnn *dnn;
    *no = false;
    if (!s) return st->code;
    RD_TRY(rd_gpu_dnn_rnn(g, &dnn, st));
    s->dnn = dnn;
    if (!s->x) TRY_DNN(cudnnCreateRNNDataDescriptor(&s->x));
    if (!s->y) TRY_DNN(cudnnCreateRNNDataDescriptor(&s->y));
    if (!s->state) TRY_DNN(cudnnCreateTensorDescriptor(&s->state));
    *b = (batch){.dnn = dnn, .s = s};
    RD_TRY(layer_for(g, dnn, l, c->algo, &b->l, no, st));
    if (*no) goto done;
    RD_TRY(lengths(s, l, c, st));
    const cudnnDataType_t type = data_type(gpu_rnn_type_of(g));
    const cudnnRNNDataLayout_t layout = c->algo == RD_RNN_STANDARD
                                            ? CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED
                                            : CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
    const int dim[] = {1, (int)c->n_seq, (int)l->H},
              stride[] = {(int)(c->n_seq * l->H), (int)l->H, 1};
    float zero[2] = {0.0f, 0.0f}; /* zero in every type */
    TRY_OR_REFUSE(c->algo,
                  cudnnSetRNNDataDescriptor(s->x, type, layout, (int)l->n_steps, (int)c->n_seq,
                                            (int)b->l->in, s->length, zero),
                  no);
    TRY_OR_REFUSE(c->algo,
                  cudnnSetRNNDataDescriptor(s->y, type, layout, (int)l->n_steps, (int)c->n_seq,
                                            (int)l->H, s->length, zero),
                  no);
    TRY_DNN(cudnnSetTensorNdDescriptor(s->state, type, 3, dim, stride));
    TRY_OR_REFUSE(c->algo,
                  cudnnGetRNNTempSpaceSizes(dnn->handle, b->l->desc,
                                            keep ? CUDNN_FWD_MODE_TRAINING
                                                 : CUDNN_FWD_MODE_INFERENCE,
                                            s->x, &b->work, keep ? &b->reserve : NULL),
                  no);
done:
    return st->code;
}

/* ---- weights ---- */

static rd_rnn_weights matrices(const rd_lstm_layer *l, const layer *at)
{
    rd_rnn_weights w = {
        .H = l->H, .ld = (int64_t)GATES * l->H, .most_cols = at->in > l->H ? at->in : l->H};
    for (int k = 0; k < GATES; k++) {
        const int64_t column = ours_of[k] * l->H, h = l->in * w.ld + column;
        w.m[k] = (rd_rnn_matrix){.from = l->W + column,
                                 .to = l->dW ? l->dW + column : NULL,
                                 .cols = at->in,
                                 .split = l->in,
                                 .gap = l->H};
        w.m[GATES + k] = (rd_rnn_matrix){
            .from = l->W + h, .to = l->dW ? l->dW + h : NULL, .cols = l->H, .split = l->H};
        w.m[2 * GATES + k] = (rd_rnn_matrix){.from = l->b + column,
                                             .to = l->db ? l->db + column : NULL,
                                             .cols = 1,
                                             .split = 1,
                                             .plus = ours_of[k] == 2 ? 1.0f : 0.0f};
        w.m[3 * GATES + k] = (rd_rnn_matrix){.cols = 1, .split = 1};
    }
    for (int i = 0; i < RD_RNN_MATRICES; i++) w.m[i].at = at->at[i];
    return w;
}

/* Returns the weights in the library's order: kept with held weights, else in scratch memory. */
static rd_code weight_space(rd_gpu *g, const rd_lstm_layer *l, const layer *at, rd_arena *scratch,
                            void **out, rd_status *st)
{
    bool current = false;
    RD_TRY(rd_gpu_hold_copy(g, l->W, 1 + (int)at->algo, at->bytes, out, &current, st));
    if (!*out) RD_TRY(rd_arena_get(scratch, at->bytes, out, st));
    if (current) goto done;
    const rd_rnn_weights w = matrices(l, at);
    RD_TRY(rd_cuda_rnn_weights_in(g, gpu_rnn_type_of(g), &w, *out, st));
done:
    return st->code;
}

/* ---- the layer ---- */

static rd_rnn_rows gpu_rnn_rows_of(const rd_lstm_layer *l, const rd_rnn_choice *c, int64_t width,
                                   int64_t extra)
{
    const bool packed = !c->padded;
    const int64_t rows = l->off[l->n_steps];
    return (rd_rnn_rows){.n_steps = packed ? 1 : l->n_steps,
                         .n_seq = packed ? rows : c->n_seq,
                         .off = packed ? NULL : l->device_off,
                         .in = width,
                         .extra = extra};
}

static size_t rows_bytes(const rd_rnn_rows *r, rd_rnn_type t)
{
    return (size_t)(r->n_steps * r->n_seq * (r->in + r->extra)) * element(t);
}

static const char refused_why[] = "cuDNN refused the sizes";

static rd_rnn_choice gpu_rnn_choose(rd_gpu *g, const char *cell, const rd_lstm_layer *l,
                                    bool trains)
{
    const rd_gpu_info *i = rd_gpu_about(g);
    const rd_gpu_options *o = rd_gpu_options_of(g);
    const rd_rnn_case k = {.asked = o->rnn,
                           .cell = cell,
                           .projects = l->projects,
                           .in = l->in + l->extra,
                           .H = l->H,
                           .n_steps = l->n_steps,
                           .n_seq = l->n_steps ? l->off[1] : 0,
                           .rows = l->off[l->n_steps],
                           .mixed = o->mixed,
                           .bfloat16 = o->mixed && !rd_gpu_uses_float16(g),
                           .trains = trains,
                           .major = i->major,
                           .minor = i->minor,
                           .n_sm = i->n_sm,
                           .library = o->rnn == RD_RNN_OFF ? 0 : rd_gpu_dnn_version(),
                           .one_buffer = rd_rnn_one_buffer(getenv("CUBLAS_WORKSPACE_CONFIG"))};
    return rd_rnn_choose(&k);
}

bool rd_gpu_lstm_own(rd_gpu *g, const char *cell, const rd_lstm_layer *l, bool trains)
{
    const rd_rnn_choice c = gpu_rnn_choose(g, cell, l, trains);
    const refusal key = refusal_of(l, &c);
    return c.algo == RD_RNN_OWN || was_refused(*rd_gpu_rnn_of(g), &key);
}

/* Computes the layer by cuDNN if `v->choice` says so and cuDNN does not refuse. Else v->choice
 * becomes RD_RNN_OWN. */
static rd_code gpu_rnn_forward(rd_gpu *g, const rd_lstm_layer *l, const float *x, const float *a,
                               float *y, bool keep, rd_arena *kept, rd_arena *scratch,
                               rd_lstm_kept *v, rd_status *st)
{
    const rd_mark mark = rd_arena_mark(scratch), mark_kept = rd_arena_mark(kept);
    const rd_rnn_type type = gpu_rnn_type_of(g);
    const rd_dnn_rnn *dnn;
    bool no = false;
    batch b;
    void *w, *work;
    const rd_rnn_choice c = v->choice;
    if (c.algo == RD_RNN_OWN) return st->code;
    const refusal key = refusal_of(l, &c);
    if (was_refused(*rd_gpu_rnn_of(g), &key)) {
        v->choice.algo = RD_RNN_OWN;
        v->choice.why = refused_why;
        return st->code;
    }
    RD_TRY(gpu_rnn_begin(g, l, &c, keep, &b, &no, st));
    if (no) goto done;
    dnn = b.dnn;
    RD_TRY(weight_space(g, l, b.l, scratch, &w, st));
    const rd_rnn_rows in = gpu_rnn_rows_of(l, &c, l->in, l->extra),
                      out = gpu_rnn_rows_of(l, &c, l->H, 0);
    const bool as_it_is = type == RD_RNN_F32 && !c.padded;
    void *to = y;
    v->x = x;
    if (!as_it_is || l->extra) {
        void *own;
        RD_TRY(rd_arena_get(kept, rows_bytes(&in, type), &own, st));
        RD_TRY(rd_cuda_rnn_rows_in(g, type, &in, x, a, own, st));
        v->x = own;
    }
    if (!as_it_is) RD_TRY(rd_arena_get(kept, rows_bytes(&out, type), &to, st));
    v->y = to;
    if (keep) RD_TRY(rd_arena_get(kept, b.reserve, &v->reserve, st));
    v->reserve_bytes = b.reserve;
    RD_TRY(rd_arena_get(scratch, b.work, &work, st));
    RD_TRY(rd_graphs_flush(rd_gpu_graphs(g), st));
    TRY_OR_REFUSE(c.algo,
                  cudnnRNNForward(dnn->handle, b.l->desc,
                                  keep ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE, NULL,
                                  b.s->x, v->x, b.s->y, to, b.s->state, NULL, NULL, b.s->state,
                                  NULL, NULL, b.l->bytes, w, b.work, work, b.reserve, v->reserve),
                  &no);
    RD_TRY(rd_gpu_dnn_queued(g, "cudnnRNNForward", st));
    if (!as_it_is) RD_TRY(rd_cuda_rnn_rows_out(g, type, &out, to, y, false, NULL, st));
done:
    rd_arena_rewind(scratch, mark);
    if (no && st->code == RD_OK) {
        rd_arena_rewind(kept, mark_kept);
        v->choice.algo = RD_RNN_OWN;
        v->choice.why = refused_why;
        return gpu_rnn_refuse(*rd_gpu_rnn_of(g), l, &c, st);
    }
    return st->code;
}

rd_code rd_gpu_lstm_forward(rd_gpu *g, const char *cell, const rd_lstm_layer *l, const float *x,
                            const float *a, float *y, bool keep, rd_arena *kept, rd_arena *scratch,
                            rd_lstm_kept *v, rd_status *st)
{
    struct rd_gpu_rnn *s = gpu_rnn_common(g, st);
    if (!s) return st->code;
    *v = (rd_lstm_kept){.choice = gpu_rnn_choose(g, cell, l, keep)};
    RD_TRY(gpu_rnn_forward(g, l, x, a, y, keep, kept, scratch, v, st));
    if (!keep || strcmp(cell, "lstm") != 0) return st->code;
    if (v->choice.algo == RD_RNN_OWN) {
        s->counts.own++;
        s->counts.why = v->choice.why;
    } else {
        s->counts.cudnn++;
    }
done:
    return st->code;
}

rd_code rd_gpu_lstm_backward(rd_gpu *g, const rd_lstm_layer *l, const rd_lstm_kept *v,
                             const float *dy, float *dx, bool add_dx, float *da, rd_arena *scratch,
                             bool *refused, rd_status *st)
{
    const rd_mark mark = rd_arena_mark(scratch);
    const rd_rnn_type type = gpu_rnn_type_of(g);
    const rd_rnn_choice c = v->choice;
    const rd_dnn_rnn *dnn;
    batch b;
    void *w, *work, *dx_all, *dw = NULL;
    const void *dy_all = dy;
    *refused = false;
    RD_TRY(gpu_rnn_begin(g, l, &c, true, &b, refused, st));
    if (*refused) goto done;
    dnn = b.dnn;
    RD_TRY(weight_space(g, l, b.l, scratch, &w, st));
    const rd_rnn_rows in = gpu_rnn_rows_of(l, &c, l->in, l->extra),
                      out = gpu_rnn_rows_of(l, &c, l->H, 0);
    if (type != RD_RNN_F32 || c.padded) {
        void *own;
        RD_TRY(rd_arena_get(scratch, rows_bytes(&out, type), &own, st));
        RD_TRY(rd_cuda_rnn_rows_in(g, type, &out, dy, NULL, own, st));
        dy_all = own;
    }
    RD_TRY(rd_arena_get(scratch, rows_bytes(&in, type), &dx_all, st));
    RD_TRY(rd_arena_get(scratch, b.work, &work, st));
    RD_TRY(rd_graphs_flush(rd_gpu_graphs(g), st));
    TRY_OR_REFUSE(c.algo,
                  cudnnRNNBackwardData_v8(dnn->handle, b.l->desc, NULL, b.s->y, v->y, dy_all,
                                          b.s->x, dx_all, b.s->state, NULL, NULL, NULL, b.s->state,
                                          NULL, NULL, NULL, b.l->bytes, w, b.work, work,
                                          v->reserve_bytes, v->reserve),
                  refused);
    RD_TRY(rd_gpu_dnn_queued(g, "cudnnRNNBackwardData_v8", st));
    /* the library adds its gradients to zeros, and a kernel adds the sums to the old values */
    if (l->dW || l->db) {
        RD_TRY(rd_arena_zero(scratch, b.l->bytes, &dw, st));
        RD_TRY(rd_graphs_flush(rd_gpu_graphs(g), st));
        TRY_OR_REFUSE(c.algo,
                      cudnnRNNBackwardWeights_v8(dnn->handle, b.l->desc, CUDNN_WGRAD_MODE_ADD, NULL,
                                                 b.s->x, v->x, b.s->state, NULL, b.s->y, v->y,
                                                 b.l->bytes, dw, b.work, work, v->reserve_bytes,
                                                 v->reserve),
                      refused);
        RD_TRY(rd_gpu_dnn_queued(g, "cudnnRNNBackwardWeights_v8", st));
        const rd_rnn_weights m = matrices(l, b.l);
        RD_TRY(rd_cuda_rnn_weights_out(g, type, &m, dw, st));
    }
    if (dx || da) RD_TRY(rd_cuda_rnn_rows_out(g, type, &in, dx_all, dx, add_dx, da, st));
done:
    rd_arena_rewind(scratch, mark);
    if (*refused && st->code == RD_OK) return gpu_rnn_refuse(*rd_gpu_rnn_of(g), l, &c, st);
    return st->code;
}
