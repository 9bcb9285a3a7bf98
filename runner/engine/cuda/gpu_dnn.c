/* gpu_dnn.c -- cuDNN: the library and its handle, and convolutions by version 9's graph interface, one operation a graph.
 *
 * Arrays are float32 and NHWC on both sides; products round to TF32 where the options allow it or are mixed. (Rounding
 * the operands to 16 bits would cost a pass over each, and a third over the result, for which cuDNN has no float32:
 * what the faster product saves. Before compute capability 8.0 there is no TF32, and mixed convolutions are float32.)
 * Filters are turned into cuDNN's order by a kernel, and gradients of filters back. A border that differs between top
 * and bottom or left and right is written out before and cut off after: for such cuDNN has few and slow engines. A
 * kernel of one pixel that leaves none out is a plain product of cuBLAS.
 *
 * The engine is the first of the library's own ranking that gives the same bytes in every run and sums in float32.
 * Nothing is timed: what wins a race differs from run to run, and with it the sums. Each shape is asked for once. */
#include "gpu_impl.h"
#include "convert.h"
#include "gpu_library.h"
#include "../gpu/dnn_rnn.h"
#include "../gpu/gpu_rnn.h"
#include <stdlib.h>

#define CALLS(X)                                                                                                       \
    X(cudnnGetVersion)                                                                                                 \
    X(cudnnGetErrorString)                                                                                             \
    X(cudnnGetLastErrorString)                                                                                         \
    X(cudnnCreate)                                                                                                     \
    X(cudnnDestroy)                                                                                                    \
    X(cudnnSetStream)                                                                                                  \
    X(cudnnBackendCreateDescriptor)                                                                                    \
    X(cudnnBackendDestroyDescriptor)                                                                                   \
    X(cudnnBackendFinalize)                                                                                            \
    X(cudnnBackendSetAttribute)                                                                                        \
    X(cudnnBackendGetAttribute)                                                                                        \
    X(cudnnBackendExecute)                                                                                             \
    RD_DNN_RNN_CALLS(X)
static struct {
    CALLS(RD_FIELD)
} dnn;
#define ENTRY(f) RD_ENTRY_OF(dnn, f)
static const rd_symbol symbols[] = {CALLS(ENTRY)};
static rd_library library = {.title = "cuDNN",
                             .names = {"libcudnn.so.9"},
                             .package = "cuDNN 9 (libcudnn9-cuda-13, or nvidia-cudnn-cu13 by pip)",
                             .symbol = symbols,
                             .n_symbol = sizeof symbols / sizeof *symbols,
                             .table = &dnn};

typedef cudnnBackendDescriptor_t part;
typedef enum kind { FORWARD, DATA, WEIGHTS } kind;

enum {
    MOST_ENGINES = 64,    /* of a ranking; those without tensor cores may come last */
    MOST_PARTS = 8,       /* of one plan: three tensors, geometry, operation, graph, engine, plan */
    MOST_PLANS = 1 << 10, /* last batches bring new shapes: when so many are kept, all are dropped */
    UID_X = 'x',
    UID_W = 'w',
    UID_Y = 'y'
};
static const int64_t most_workspace = (int64_t)1 << 30;

typedef struct key { /* compared by bytes */
    int64_t n, h, w, ci, co, kh, kw, oh, ow, stride, top, left, align, kind;
} key;

typedef struct plan {
    key key;
    part made[MOST_PARTS]; /* owned, destroyed last to first */
    int n_made;
    part run;
    int64_t workspace;
    uint64_t id; /* of no other, also later at the same address */
    struct plan *next;
} plan;

struct rd_gpu_dnn {
    cudnnHandle_t handle;
    rd_dnn_rnn rnn;
    plan *first;
    int n_plans;
    uint64_t last_id;
};

typedef struct convolution { /* as a task */
    const plan *plan;
    uint64_t id;
    const void *data[3]; /* x, w, y */
    void *workspace;
} convolution;

/* A failure of a call that cannot fail because of the shape. */
rd_code rd_gpu_dnn_result(rd_gpu *g, cudnnStatus_t r, const char *call, const char *where, rd_status *st)
{
    if (r == CUDNN_STATUS_SUCCESS) return st->code;
    char more[200] = "";
    dnn.cudnnGetLastErrorString(more, sizeof more);
    rd_fail_(st, CUDNN_STATUS_CATEGORY(r) == CUDNN_STATUS_BAD_PARAM ? RD_EBUG : RD_EENV, where,
             "GPU %d: cuDNN: %.*s: %s%s%s", g->index, rd_call_name(call), call, dnn.cudnnGetErrorString(r),
             more[0] ? ": " : "", more);
    if (g->failure.code == RD_OK) g->failure = *st;
    return st->code;
}
#define DNN(call) RD_TRY(rd_gpu_dnn_result(g, (dnn.call), #call, RD_HERE, st))

int rd_gpu_dnn_version(void)
{
    rd_status own = {.code = RD_OK};
    return rd_library_load(&library, &own) == RD_OK ? (int)dnn.cudnnGetVersion() : 0;
}

static rd_code begin(rd_gpu *g, rd_status *st)
{
    RD_TRY(rd_gpu_alive(g, st));
    if (g->dnn && g->dnn->handle) return st->code;
    RD_TRY(rd_library_load(&library, st));
    if (!g->dnn) g->dnn = calloc(1, sizeof *g->dnn);
    if (!g->dnn) return rd_fail(st, RD_EENV, "out of memory for cuDNN");
    DNN(cudnnCreate(&g->dnn->handle));
    DNN(cudnnSetStream(g->dnn->handle, g->stream));
    g->dnn->rnn.handle = g->dnn->handle;
#define FILL(f) g->dnn->rnn.f = dnn.f;
    RD_DNN_RNN_CALLS(FILL)
done:
    return st->code;
}

/* ---- what gpu_rnn.c is lent ---- */

rd_code rd_gpu_dnn_rnn(rd_gpu *g, const rd_dnn_rnn **out, rd_status *st)
{
    RD_TRY(begin(g, st));
    *out = &g->dnn->rnn;
done:
    return st->code;
}

const char *rd_gpu_dnn_text(rd_gpu *g, cudnnStatus_t r)
{
    (void)g;
    return dnn.cudnnGetErrorString(r);
}

rd_code rd_gpu_dnn_queued(rd_gpu *g, const char *call, rd_status *st)
{
    g->last_kernel = call;
    if (g->sync) CUDA(g, cudaStreamSynchronize(g->stream));
done:
    return st->code;
}

rd_gpu_rnn **rd_gpu_rnn_of(rd_gpu *g)
{
    return &g->rnn;
}

const rd_gpu_options *rd_gpu_options_of(const rd_gpu *g)
{
    return &g->options;
}

static void parts_free(plan *p)
{
    while (p->n_made > 0) (void)dnn.cudnnBackendDestroyDescriptor(p->made[--p->n_made]);
}

static void drop_plans(rd_gpu_dnn *d)
{
    while (d->first) {
        plan *p = d->first;
        d->first = p->next;
        parts_free(p);
        free(p);
    }
    d->n_plans = 0;
}

void rd_gpu_dnn_free(rd_gpu *g)
{
    if (!g->dnn) return;
    drop_plans(g->dnn);
    if (g->dnn->handle) (void)dnn.cudnnDestroy(g->dnn->handle);
    free(g->dnn);
    g->dnn = NULL;
}

/* ---- graphs ---- */

static rd_code part_new(rd_gpu *g, plan *p, cudnnBackendDescriptorType_t type, part *out, rd_status *st)
{
    DNN(cudnnBackendCreateDescriptor(type, out));
    p->made[p->n_made++] = *out;
done:
    return st->code;
}

#define SET(d, attribute, type, n, values) DNN(cudnnBackendSetAttribute((d), (attribute), (type), (n), (values)))

/* NHWC: as cuDNN counts dimensions, (n, c, h, w) with c innermost. */
static rd_code tensor(rd_gpu *g, plan *p, int64_t uid, int64_t n, int64_t c, int64_t h, int64_t w, int64_t align,
                      part *out, rd_status *st)
{
    const int64_t dim[] = {n, c, h, w}, stride[] = {h * w * c, 1, w * c, c};
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    RD_TRY(part_new(g, p, CUDNN_BACKEND_TENSOR_DESCRIPTOR, out, st));
    SET(*out, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    SET(*out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    SET(*out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    SET(*out, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    SET(*out, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    DNN(cudnnBackendFinalize(*out));
done:
    return st->code;
}

static rd_code geometry(rd_gpu *g, plan *p, part *out, rd_status *st)
{
    const key *k = &p->key;
    const int64_t dims = 2, pad[] = {k->top, k->left}, stride[] = {k->stride, k->stride}, dilation[] = {1, 1};
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    RD_TRY(part_new(g, p, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, out, st));
    SET(*out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims);
    SET(*out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    SET(*out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    SET(*out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    SET(*out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    SET(*out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    SET(*out, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    DNN(cudnnBackendFinalize(*out));
done:
    return st->code;
}

/* The names of one operation's attributes. */
static const struct names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, w, y, geometry, alpha, beta;
} names[] = {
    [FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [WEIGHTS] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static rd_code graph_new(rd_gpu *g, plan *p, part *out, rd_status *st)
{
    const key *k = &p->key;
    const struct names *a = &names[k->kind];
    const float one = 1.0f, zero = 0.0f;
    part x, w, y, how, op;
    RD_TRY(tensor(g, p, UID_X, k->n, k->ci, k->h, k->w, k->align, &x, st));
    RD_TRY(tensor(g, p, UID_W, k->co, k->ci, k->kh, k->kw, k->align, &w, st));
    RD_TRY(tensor(g, p, UID_Y, k->n, k->co, k->oh, k->ow, k->align, &y, st));
    RD_TRY(geometry(g, p, &how, st));
    RD_TRY(part_new(g, p, a->type, &op, st));
    SET(op, a->x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
    SET(op, a->w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w);
    SET(op, a->y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
    SET(op, a->geometry, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    SET(op, a->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    SET(op, a->beta, CUDNN_TYPE_FLOAT, 1, &zero);
    DNN(cudnnBackendFinalize(op));
    RD_TRY(part_new(g, p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, out, st));
    SET(*out, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &op);
    SET(*out, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->dnn->handle);
    DNN(cudnnBackendFinalize(*out));
done:
    return st->code;
}

/* ---- engines ---- */

/* The same bytes in every run, and float32's accuracy, or TF32's where that is allowed. */
static bool exact_enough(const cudnnBackendNumericalNote_t *note, int64_t n, bool tf32)
{
    for (int64_t i = 0; i < n; i++)
        switch ((int)note[i]) {
        case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        case CUDNN_NUMERICAL_NOTE_FFT:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
            return false;
        case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
            if (!tf32) return false;
        }
    return true;
}

/* Makes p->run of one engine; false: not with this one. */
static bool plan_of(rd_gpu *g, plan *p, part config, bool tf32)
{
    enum { MOST_NOTES = 32 };
    cudnnBackendNumericalNote_t note[MOST_NOTES];
    int64_t n = 0, one = 0;
    part engine, run;
    if (dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine)) return false;
    const bool known = !dnn.cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                     1, &one, &engine) &&
                       !dnn.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                     CUDNN_TYPE_NUMERICAL_NOTE, MOST_NOTES, &n, note);
    (void)dnn.cudnnBackendDestroyDescriptor(engine);
    if (!known || !exact_enough(note, n, tf32) ||
        dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &run))
        return false;
    if (dnn.cudnnBackendSetAttribute(run, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->dnn->handle) ||
        dnn.cudnnBackendSetAttribute(run, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                     &config) ||
        dnn.cudnnBackendFinalize(run) ||
        dnn.cudnnBackendGetAttribute(run, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &one,
                                     &p->workspace) ||
        p->workspace > most_workspace) {
        (void)dnn.cudnnBackendDestroyDescriptor(run);
        return false;
    }
    p->run = run;
    return true;
}

/* The first acceptable engine of one of the library's rankings; p->run stays NULL when there is none. */
static rd_code choose(rd_gpu *g, plan *p, part graph, cudnnBackendHeurMode_t mode, bool tf32, rd_status *st)
{
    part ranking = NULL, config[MOST_ENGINES] = {NULL};
    int64_t n = 0, used = -1;
    DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &ranking));
    SET(ranking, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    SET(ranking, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    for (int i = 0; i < MOST_ENGINES; i++)
        DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[i]));
    if (dnn.cudnnBackendFinalize(ranking) == CUDNN_STATUS_SUCCESS &&
        dnn.cudnnBackendGetAttribute(ranking, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                     MOST_ENGINES, &n, config) == CUDNN_STATUS_SUCCESS)
        for (int64_t i = 0; i < n && i < MOST_ENGINES && used < 0; i++)
            if (plan_of(g, p, config[i], tf32)) used = i;
    if (used >= 0) { /* the plan may look at it later */
        p->made[p->n_made++] = config[used];
        p->made[p->n_made++] = p->run;
        config[used] = NULL;
    }
done:
    for (int i = 0; i < MOST_ENGINES; i++)
        if (config[i]) (void)dnn.cudnnBackendDestroyDescriptor(config[i]);
    if (ranking) (void)dnn.cudnnBackendDestroyDescriptor(ranking);
    return st->code;
}

static rd_code plan_new(rd_gpu *g, const key *k, plan **out, rd_status *st)
{
    static const char *const what[] = {"convolution", "gradient of a convolution's input",
                                       "gradient of a convolution's kernel"};
    const bool tf32 = (g->options.tf32 || g->options.mixed) && rd_gpu_is_ampere(g);
    part graph;
    plan *p = *out = calloc(1, sizeof *p);
    if (!p) return rd_fail(st, RD_EENV, "out of memory for a convolution's plan");
    p->key = *k;
    RD_TRY(graph_new(g, p, &graph, st));
    RD_TRY(choose(g, p, graph, CUDNN_HEUR_MODE_A, tf32, st));
    if (!p->run) RD_TRY(choose(g, p, graph, CUDNN_HEUR_MODE_FALLBACK, tf32, st));
    if (!p->run)
        rd_fail(st, RD_EENV,
                "cuDNN %d.%d has no reproducible %s for %lldx%lldx%lldx%lld, a kernel of %lldx%lld to %lld channels, "
                "stride %lld on %s; a newer version may, \"device\": \"cpu\" does without",
                (int)dnn.cudnnGetVersion() / 10000, (int)dnn.cudnnGetVersion() % 10000 / 100, what[k->kind],
                (long long)k->n, (long long)k->h, (long long)k->w, (long long)k->ci, (long long)k->kh, (long long)k->kw,
                (long long)k->co, (long long)k->stride, g->info.name);
done:
    if (st->code != RD_OK) {
        parts_free(p);
        free(p);
        *out = NULL;
    }
    return st->code;
}

static rd_code plan_for(rd_gpu *g, const key *k, plan **out, rd_status *st)
{
    rd_gpu_dnn *d = g->dnn;
    for (plan **at = &d->first; *at; at = &(*at)->next) {
        plan *p = *at;
        if (memcmp(&p->key, k, sizeof *k) != 0) continue;
        *at = p->next; /* to the front: a model asks for the same ones again and again */
        p->next = d->first;
        *out = d->first = p;
        return st->code;
    }
    if (d->n_plans == MOST_PLANS) {
        RD_TRY(rd_gpu_flush(g, st)); /* what is written down names them */
        drop_plans(d);
    }
    RD_TRY(plan_new(g, k, out, st));
    (*out)->id = ++d->last_id;
    (*out)->next = d->first;
    d->first = *out;
    d->n_plans++;
done:
    return st->code;
}

static int64_t alignment(const void *x, const void *w, const void *y)
{
    return ((uintptr_t)x | (uintptr_t)w | (uintptr_t)y) % 16 == 0 ? 16 : 4;
}

static rd_code run_convolution(rd_gpu *g, const void *args, rd_status *st)
{
    static const int64_t uid[] = {UID_X, UID_W, UID_Y};
    const convolution *c = args;
    part pack = NULL;
    DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    SET(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, uid);
    SET(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, c->data);
    SET(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &c->workspace);
    DNN(cudnnBackendFinalize(pack));
    g->last_kernel = "cudnnBackendExecute";
    DNN(cudnnBackendExecute(g->dnn->handle, c->plan->run, pack));
    if (g->sync) CUDA(g, cudaStreamSynchronize(g->stream));
done:
    if (pack) (void)dnn.cudnnBackendDestroyDescriptor(pack);
    return st->code;
}

/* Two of the three are read, the third is written. w: (co, kh, kw, ci). The border is the same on both sides. */
static rd_code run(rd_gpu *g, kind what, const rd_gpu_conv *c, const float *x, const float *w, const float *y,
                   rd_status *st)
{
    const key k = {.n = c->n,
                   .h = c->h,
                   .w = c->w,
                   .ci = c->ci,
                   .co = c->co,
                   .kh = c->kh,
                   .kw = c->kw,
                   .oh = c->oh,
                   .ow = c->ow,
                   .stride = c->stride,
                   .top = c->pad_top,
                   .left = c->pad_left,
                   .align = alignment(x, w, y),
                   .kind = what};
    plan *p;
    RD_TRY(plan_for(g, &k, &p, st));
    RD_TRY(rd_gpu_room_get(g, &g->room[2], (size_t)p->workspace, st));
    const convolution j = {.plan = p, .id = p->id, .data = {x, w, y}, .workspace = g->room[2].p};
    RD_TRY(rd_gpu_task_of(g, run_convolution, &j, sizeof j, sizeof j, st));
done:
    return st->code;
}

/* ---- convolutions ---- */

static bool is_product(const rd_gpu_conv *c)
{
    return c->kh == 1 && c->kw == 1 && c->stride == 1 && c->oh == c->h && c->ow == c->w && c->pad_top == 0 &&
           c->pad_left == 0;
}

static bool is_uneven(const rd_gpu_conv *c)
{
    return c->pad_top != c->pad_bottom || c->pad_left != c->pad_right;
}

static bool is_empty(const rd_gpu_conv *c)
{
    return c->n == 0 || c->oh == 0 || c->ow == 0;
}

static rd_borders borders_of(const rd_gpu_conv *c)
{
    return (rd_borders){c->n, c->h, c->w, c->ci, c->pad_top, c->pad_left, c->pad_bottom, c->pad_right};
}

/* The same convolution on images that have their borders. */
static rd_gpu_conv with_borders(const rd_gpu_conv *c)
{
    rd_gpu_conv wide = *c;
    wide.h += c->pad_top + c->pad_bottom;
    wide.w += c->pad_left + c->pad_right;
    wide.pad_top = wide.pad_left = wide.pad_bottom = wide.pad_right = 0;
    return wide;
}

static size_t image_bytes(const rd_gpu_conv *c)
{
    return (size_t)(c->n * c->h * c->w * c->ci) * sizeof(float);
}

/* *x: with borders written out where they are uneven, and *c for that. */
static rd_code even_input(rd_gpu *g, rd_gpu_conv *c, const float **x, rd_status *st)
{
    if (!is_uneven(c)) return st->code;
    const rd_borders b = borders_of(c);
    *c = with_borders(c);
    RD_TRY(rd_gpu_room_get(g, &g->room[0], image_bytes(c), st));
    RD_TRY(rd_convert_pad(g, &b, *x, g->room[0].p, st));
    *x = g->room[0].p;
done:
    return st->code;
}

/* A 1x1 convolution with stride 1: C = op(A) op(B) + beta C, in float32 (or TF32). */
static rd_code multiply(rd_gpu *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *A, int64_t lda, const float *B,
                        int64_t ldb, float beta, float *C, int64_t ldc, rd_status *st)
{
    const rd_product p = {.ta = ta, .tb = tb, .m = m, .n = n, .k = k, .alpha = 1.0f, .beta = beta, .A = A, .lda = lda,
                          .B = B, .ldb = ldb, .C = C, .ldc = ldc, .batch = 1};
    return rd_gpu_multiply(g, &p, false, st);
}

rd_code rd_gpu_conv_forward(rd_gpu *g, const rd_gpu_conv *shape, const float *x, const float *W, float *y,
                            rd_status *st)
{
    rd_gpu_conv c = *shape;
    const int64_t pixels = c.n * c.oh * c.ow;
    const float *w;
    if (is_empty(&c)) return st->code;
    if (is_product(&c)) {
        return multiply(g, false, false, pixels, c.co, c.ci, x, c.ci, W, c.co, 0.0f, y, c.co, st);
    }
    RD_TRY(begin(g, st));
    RD_TRY(rd_gpu_held_filters(g, W, c.kh * c.kw, c.ci, c.co, &g->room[1], &w, st));
    RD_TRY(even_input(g, &c, &x, st));
    RD_TRY(run(g, FORWARD, &c, x, w, y, st));
done:
    return st->code;
}

rd_code rd_gpu_conv_data(rd_gpu *g, const rd_gpu_conv *shape, const float *dy, const float *W, float *dx, bool add,
                         rd_status *st)
{
    rd_gpu_conv c = *shape;
    const int64_t pixels = c.n * c.oh * c.ow;
    const float *w;
    if (is_empty(&c)) return add ? st->code : rd_gpu_zero(g, dx, image_bytes(&c), st);
    if (is_product(&c)) {
        return multiply(g, false, true, pixels, c.ci, c.co, dy, c.co, W, c.co, add ? 1.0f : 0.0f, dx, c.ci, st);
    }
    RD_TRY(begin(g, st));
    RD_TRY(rd_gpu_held_filters(g, W, c.kh * c.kw, c.ci, c.co, &g->room[1], &w, st));
    if (!is_uneven(&c) && !add) return run(g, DATA, &c, dx, w, dy, st);
    rd_borders b = borders_of(&c);
    if (is_uneven(&c))
        c = with_borders(&c);
    else
        b.top = b.left = b.bottom = b.right = 0; /* cuDNN leaves them out */
    RD_TRY(rd_gpu_room_get(g, &g->room[0], image_bytes(&c), st));
    RD_TRY(run(g, DATA, &c, g->room[0].p, w, dy, st));
    RD_TRY(rd_convert_crop(g, &b, g->room[0].p, add, dx, st));
done:
    return st->code;
}

rd_code rd_gpu_conv_weights(rd_gpu *g, const rd_gpu_conv *shape, const float *x, const float *dy, float *dW,
                            rd_status *st)
{
    rd_gpu_conv c = *shape;
    const int64_t pixels = c.n * c.oh * c.ow, taps = c.kh * c.kw;
    if (is_empty(&c)) return st->code;
    if (is_product(&c)) {
        return multiply(g, true, false, c.ci, c.co, pixels, x, c.ci, dy, c.co, 1.0f, dW, c.co, st);
    }
    RD_TRY(begin(g, st));
    RD_TRY(rd_gpu_room_get(g, &g->room[1], (size_t)(taps * c.ci * c.co) * sizeof(float), st));
    RD_TRY(even_input(g, &c, &x, st));
    RD_TRY(run(g, WEIGHTS, &c, x, g->room[1].p, dy, st));
    RD_TRY(rd_convert_filters_add(g, taps, c.ci, c.co, g->room[1].p, dW, st));
done:
    return st->code;
}
