/* cuda_dnn.c -- cuDNN: the library, its handle, and convolutions.
 *
 * Convolutions use the graph interface of version 9, with one operation in each graph.
 *
 * Images are NHWC on both sides and have one type. The type is float32 or the GPU's 16-bit type.
 * With float32, products round to TF32 if the options allow TF32 or are mixed. Before compute
 * capability 8.0 there is no TF32, and products are float32. With the 16-bit type, cuDNN needs
 * filters and their gradients in this type, too; it still sums in float32. A kernel converts
 * filters into cuDNN's order and type. Another kernel converts gradients of filters back and adds
 * them in float32.
 *
 * A border may differ between top and bottom, or left and right. For such borders cuDNN has few and
 * slow engines. Then a kernel writes the border out before, and cuts it off after. A 1x1
 * convolution with stride 1 is a plain product of cuBLAS.
 *
 * The engine is the first one in the library's own ranking that gives the same bytes in every run
 * and sums in float32. Nothing is timed: the winner of a race differs from run to run, and so do
 * the sums. The library is asked once for each shape. */
#include "cuda_impl.h"
#include "cuda_convert.h"
#include "cuda_library.h"
#include "gpu_remedy.h"
#include "dnn_rnn.h"
#include "gpu_rnn.h"
#include <inttypes.h>
#include <stdlib.h>

#define CALLS(X)                     \
    X(cudnnGetVersion)               \
    X(cudnnGetErrorString)           \
    X(cudnnGetLastErrorString)       \
    X(cudnnCreate)                   \
    X(cudnnDestroy)                  \
    X(cudnnSetStream)                \
    X(cudnnBackendCreateDescriptor)  \
    X(cudnnBackendDestroyDescriptor) \
    X(cudnnBackendFinalize)          \
    X(cudnnBackendSetAttribute)      \
    X(cudnnBackendGetAttribute)      \
    X(cudnnBackendExecute)           \
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

typedef cudnnBackendDescriptor_t descriptor;
typedef enum kind { FORWARD, DATA, WEIGHTS } kind;

enum {
    /* engines of a ranking; those without tensor cores may come last */
    MOST_ENGINES = 64,
    /* parts of one plan: three tensors, geometry, operation, graph, engine, plan */
    MOST_DESCRIPTORS = 8,
    /* number of plans kept; then all are dropped, because last batches bring new shapes */
    MOST_PLANS = 1 << 10,
    UID_X = 'x',
    UID_W = 'w',
    UID_Y = 'y'
};
static const int64_t most_workspace = (int64_t)1 << 30;

/* the key of a plan; keys are compared by bytes */
typedef struct key {
    int64_t n, h, w, ci, co, kh, kw, oh, ow, stride, top, left, align, kind, type;
} key;

typedef struct plan {
    key key;
    descriptor made[MOST_DESCRIPTORS]; /* owned, destroyed last to first */
    int n_made;
    descriptor run;
    int64_t workspace;
    uint64_t id; /* no other plan has it, also later at the same address */
    struct plan *next;
} plan;

struct rd_gpu_dnn {
    cudnnHandle_t handle;
    /* a GPU that is not present, for plans that never run (tests/gpu/dnn_plans.c); NULL: the
     * handle's GPU */
    descriptor device;
    rd_dnn_rnn rnn;
    plan *first;
    int n_plans;
    uint64_t last_id;
};

/* a convolution as a task */
typedef struct convolution {
    const plan *plan;
    uint64_t id;
    const void *data[3]; /* x, w, y */
    void *workspace;
} convolution;

/* Reports a failure of a call that does not depend on the shape. */
rd_code rd_gpu_dnn_result(rd_gpu *g, cudnnStatus_t r, const char *call, const char *where,
                          rd_status *st)
{
    if (r == CUDNN_STATUS_SUCCESS) return st->code;
    char more[200] = "";
    const char *name = dnn.cudnnGetErrorString(r), *help = rd_gpu_remedy(name);
    dnn.cudnnGetLastErrorString(more, sizeof more);
    rd_fail_(st, CUDNN_STATUS_CATEGORY(r) == CUDNN_STATUS_BAD_PARAM ? RD_EBUG : RD_EENV, where,
             "GPU %d: cuDNN: %.*s: %s%s%s%s%s", g->index, rd_call_name(call), call, name,
             more[0] ? ": " : "", more, help ? "; " : "", help ? help : "");
    if (g->failure.code == RD_OK) g->failure = *st;
    return st->code;
}
#define TRY_DNN(call) RD_TRY(rd_gpu_dnn_result(g, (dnn.call), #call, RD_HERE, st))

rd_code rd_gpu_dnn_load(rd_status *st)
{
    return rd_library_load(&library, st);
}

int rd_gpu_dnn_version(void)
{
    rd_status own = {.code = RD_OK};
    return rd_library_load(&library, &own) == RD_OK ? (int)dnn.cudnnGetVersion() : 0;
}

static rd_code cuda_dnn_begin(rd_gpu *g, rd_status *st)
{
    RD_TRY(rd_gpu_alive(g, st));
    if (g->dnn && g->dnn->handle) return st->code;
    RD_TRY(rd_library_load(&library, st));
    if (!g->dnn) g->dnn = calloc(1, sizeof *g->dnn);
    if (!g->dnn) return rd_fail(st, RD_EENV, "out of memory for cuDNN");
    TRY_DNN(cudnnCreate(&g->dnn->handle));
    TRY_DNN(cudnnSetStream(g->dnn->handle, g->stream));
    g->dnn->rnn.handle = g->dnn->handle;
#define FILL(f) g->dnn->rnn.f = dnn.f;
    RD_DNN_RNN_CALLS(FILL)
done:
    return st->code;
}

/* ---- for gpu_rnn.c ---- */

rd_code rd_gpu_dnn_rnn(rd_gpu *g, const rd_dnn_rnn **out, rd_status *st)
{
    RD_TRY(cuda_dnn_begin(g, st));
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
    if (g->sync) TRY_CUDA(g, cudaStreamSynchronize(g->stream));
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

static void descriptors_free(plan *p)
{
    while (p->n_made > 0) (void)dnn.cudnnBackendDestroyDescriptor(p->made[--p->n_made]);
}

static void cuda_dnn_drop_plans(rd_gpu_dnn *d)
{
    while (d->first) {
        plan *p = d->first;
        d->first = p->next;
        descriptors_free(p);
        free(p);
    }
    d->n_plans = 0;
}

void rd_gpu_dnn_free(rd_gpu *g)
{
    if (!g->dnn) return;
    cuda_dnn_drop_plans(g->dnn);
    if (g->dnn->handle) (void)dnn.cudnnDestroy(g->dnn->handle);
    free(g->dnn);
    g->dnn = NULL;
}

/* ---- graphs ---- */

static rd_code descriptor_new(rd_gpu *g, plan *p, cudnnBackendDescriptorType_t type,
                              descriptor *out, rd_status *st)
{
    TRY_DNN(cudnnBackendCreateDescriptor(type, out));
    p->made[p->n_made++] = *out;
done:
    return st->code;
}

#define TRY_SET(d, attribute, type, n, values) \
    TRY_DNN(cudnnBackendSetAttribute((d), (attribute), (type), (n), (values)))

static cudnnDataType_t cuda_dnn_type_of(int64_t element)
{
    return element == RD_FLOAT32    ? CUDNN_DATA_FLOAT
           : element == RD_BFLOAT16 ? CUDNN_DATA_BFLOAT16
                                    : CUDNN_DATA_HALF;
}

/* Makes a tensor descriptor. NHWC: cuDNN counts dimensions as (n, c, h, w), with c innermost in
 * memory. */
static rd_code tensor(rd_gpu *g, plan *p, int64_t uid, int64_t n, int64_t c, int64_t h, int64_t w,
                      descriptor *out, rd_status *st)
{
    const int64_t dim[] = {n, c, h, w}, stride[] = {h * w * c, 1, w * c, c}, align = p->key.align;
    const cudnnDataType_t type = cuda_dnn_type_of(p->key.type);
    RD_TRY(descriptor_new(g, p, CUDNN_BACKEND_TENSOR_DESCRIPTOR, out, st));
    TRY_SET(*out, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    TRY_SET(*out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    TRY_SET(*out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    TRY_SET(*out, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    TRY_SET(*out, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    TRY_DNN(cudnnBackendFinalize(*out));
done:
    return st->code;
}

static rd_code geometry(rd_gpu *g, plan *p, descriptor *out, rd_status *st)
{
    const key *k = &p->key;
    const int64_t dims = 2, pad[] = {k->top, k->left}, stride[] = {k->stride, k->stride},
                  dilation[] = {1, 1};
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    RD_TRY(descriptor_new(g, p, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, out, st));
    TRY_SET(*out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims);
    TRY_SET(*out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    TRY_SET(*out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    TRY_SET(*out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    TRY_SET(*out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    TRY_SET(*out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    TRY_SET(*out, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    TRY_DNN(cudnnBackendFinalize(*out));
done:
    return st->code;
}

/* The names of the attributes of one operation. */
static const struct names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, w, y, geometry, alpha, beta;
} names[] = {
    [FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [WEIGHTS] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static rd_code graph_new(rd_gpu *g, plan *p, descriptor *out, rd_status *st)
{
    const key *k = &p->key;
    const struct names *a = &names[k->kind];
    const float one = 1.0f, zero = 0.0f;
    descriptor x, w, y, how, op;
    RD_TRY(tensor(g, p, UID_X, k->n, k->ci, k->h, k->w, &x, st));
    RD_TRY(tensor(g, p, UID_W, k->co, k->ci, k->kh, k->kw, &w, st));
    RD_TRY(tensor(g, p, UID_Y, k->n, k->co, k->oh, k->ow, &y, st));
    RD_TRY(geometry(g, p, &how, st));
    RD_TRY(descriptor_new(g, p, a->type, &op, st));
    TRY_SET(op, a->x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
    TRY_SET(op, a->w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w);
    TRY_SET(op, a->y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
    TRY_SET(op, a->geometry, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    TRY_SET(op, a->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    TRY_SET(op, a->beta, CUDNN_TYPE_FLOAT, 1, &zero);
    TRY_DNN(cudnnBackendFinalize(op));
    RD_TRY(descriptor_new(g, p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, out, st));
    TRY_SET(*out, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &op);
    if (!g->dnn->device)
        TRY_SET(*out, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->dnn->handle);
    TRY_DNN(cudnnBackendFinalize(*out));
done:
    return st->code;
}

/* ---- engines ---- */

/* Returns whether an engine gives the same bytes in every run, and sums as exactly as float32.
 * Tensor cores are allowed if operands may be rounded for them. */
static bool exact_enough(const cudnnBackendNumericalNote_t *note, int64_t n, bool tensor_cores)
{
    for (int64_t i = 0; i < n; i++) switch ((int)note[i]) {
        case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        case CUDNN_NUMERICAL_NOTE_FFT:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
            return false;
        case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
            if (!tensor_cores) return false;
        }
    return true;
}

/* Sets the GPU of a plan. */
static cudnnStatus_t cuda_dnn_place(const rd_gpu_dnn *d, descriptor run)
{
    if (d->device)
        return dnn.cudnnBackendSetAttribute(run, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &d->device);
    return dnn.cudnnBackendSetAttribute(run, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                        &d->handle);
}

/* Makes p->run from one engine. False: the engine cannot do it. */
static bool plan_of(rd_gpu *g, plan *p, descriptor config, bool tensor_cores)
{
    enum { MOST_NOTES = 32 };
    cudnnBackendNumericalNote_t note[MOST_NOTES];
    int64_t n = 0, one = 0;
    descriptor engine, run;
    if (dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine)) return false;
    const bool known =
        !dnn.cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one, &engine) &&
        !dnn.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                      CUDNN_TYPE_NUMERICAL_NOTE, MOST_NOTES, &n, note);
    (void)dnn.cudnnBackendDestroyDescriptor(engine);
    if (!known || !exact_enough(note, n, tensor_cores) ||
        dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &run))
        return false;
    if (cuda_dnn_place(g->dnn, run) ||
        dnn.cudnnBackendSetAttribute(run, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config) ||
        dnn.cudnnBackendFinalize(run) ||
        dnn.cudnnBackendGetAttribute(run, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                     CUDNN_TYPE_INT64, 1, &one, &p->workspace) ||
        p->workspace > most_workspace) {
        (void)dnn.cudnnBackendDestroyDescriptor(run);
        return false;
    }
    p->run = run;
    return true;
}

/* Makes a plan from the first acceptable engine in one of the library's rankings. p->run stays NULL
 * if there is none. */
static rd_code cuda_dnn_choose(rd_gpu *g, plan *p, descriptor graph, cudnnBackendHeurMode_t mode,
                               bool tensor_cores, rd_status *st)
{
    descriptor ranking = NULL, config[MOST_ENGINES] = {NULL};
    int64_t n = 0, used = -1;
    TRY_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &ranking));
    TRY_SET(ranking, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
            &graph);
    TRY_SET(ranking, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (g->dnn->device)
        TRY_SET(ranking, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                &g->dnn->device);
    for (int i = 0; i < MOST_ENGINES; i++)
        TRY_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[i]));
    if (dnn.cudnnBackendFinalize(ranking) == CUDNN_STATUS_SUCCESS &&
        dnn.cudnnBackendGetAttribute(ranking, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_ENGINES, &n,
                                     config) == CUDNN_STATUS_SUCCESS)
        for (int64_t i = 0; i < n && i < MOST_ENGINES && used < 0; i++)
            if (plan_of(g, p, config[i], tensor_cores)) used = i;
    if (used >= 0) { /* the plan may read it later */
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

static rd_code cuda_dnn_plan_new(rd_gpu *g, const key *k, plan **out, rd_status *st)
{
    static const char *const what[] = {"convolution", "gradient of a convolution's input",
                                       "gradient of a convolution's kernel"};
    static const char *const types[] = {
        [RD_FLOAT32] = "float32", [RD_BFLOAT16] = "bfloat16", [RD_FLOAT16] = "float16"};
    const bool tensor_cores = k->type != RD_FLOAT32 ||
                              ((g->options.tf32 || g->options.mixed) && rd_gpu_is_ampere(g));
    descriptor graph;
    plan *p = *out = calloc(1, sizeof *p);
    if (!p) return rd_fail(st, RD_EENV, "out of memory for a convolution's plan");
    p->key = *k;
    RD_TRY(graph_new(g, p, &graph, st));
    RD_TRY(cuda_dnn_choose(g, p, graph, CUDNN_HEUR_MODE_A, tensor_cores, st));
    if (!p->run) RD_TRY(cuda_dnn_choose(g, p, graph, CUDNN_HEUR_MODE_FALLBACK, tensor_cores, st));
    if (!p->run)
        rd_fail(st, RD_EENV,
                "cuDNN %d.%d has no reproducible %s for %s of %" PRId64 "x%" PRId64 "x%" PRId64
                "x%" PRId64 ", a kernel of %" PRId64 "x%" PRId64 " to %" PRId64
                " channels, stride %" PRId64
                " on %s; a newer version may, \"device\": \"cpu\" does without",
                (int)dnn.cudnnGetVersion() / 10000, (int)dnn.cudnnGetVersion() % 10000 / 100,
                what[k->kind], types[k->type], k->n, k->h, k->w, k->ci, k->kh, k->kw, k->co,
                k->stride, g->info.name);
done:
    if (st->code != RD_OK) {
        descriptors_free(p);
        free(p);
        *out = NULL;
    }
    return st->code;
}

static rd_code cuda_dnn_plan_for(rd_gpu *g, const key *k, plan **out, rd_status *st)
{
    rd_gpu_dnn *d = g->dnn;
    for (plan **at = &d->first; *at; at = &(*at)->next) {
        plan *p = *at;
        if (memcmp(&p->key, k, sizeof *k) != 0) continue;
        /* move to the front: a model asks for the same plans again and again */
        *at = p->next;
        p->next = d->first;
        *out = d->first = p;
        return st->code;
    }
    if (d->n_plans == MOST_PLANS) {
        RD_TRY(rd_gpu_flush(g, st)); /* recorded tasks name these plans */
        cuda_dnn_drop_plans(d);
    }
    RD_TRY(cuda_dnn_plan_new(g, k, out, st));
    (*out)->id = ++d->last_id;
    (*out)->next = d->first;
    d->first = *out;
    d->n_plans++;
done:
    return st->code;
}

static int64_t cuda_dnn_alignment(rd_element type, const void *x, const void *w, const void *y)
{
    return ((uintptr_t)x | (uintptr_t)w | (uintptr_t)y) % 16 == 0 ? 16
                                                                  : (int64_t)rd_element_bytes(type);
}

static rd_code run_convolution(rd_gpu *g, const void *args, rd_status *st)
{
    static const int64_t uid[] = {UID_X, UID_W, UID_Y};
    const convolution *c = args;
    descriptor pack = NULL;
    TRY_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    TRY_SET(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, uid);
    TRY_SET(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, c->data);
    TRY_SET(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &c->workspace);
    TRY_DNN(cudnnBackendFinalize(pack));
    g->last_kernel = "cudnnBackendExecute";
    TRY_DNN(cudnnBackendExecute(g->dnn->handle, c->plan->run, pack));
    if (g->sync) TRY_CUDA(g, cudaStreamSynchronize(g->stream));
done:
    if (pack) (void)dnn.cudnnBackendDestroyDescriptor(pack);
    return st->code;
}

/* Runs one convolution. It reads two of the three arrays and writes the third. w: (co, kh, kw, ci).
 * The border is the same on both sides. */
static rd_code cuda_dnn_run(rd_gpu *g, kind what, const rd_gpu_conv *c, const void *x,
                            const void *w, const void *y, rd_status *st)
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
                   .align = cuda_dnn_alignment(c->type, x, w, y),
                   .kind = what,
                   .type = c->type};
    plan *p = NULL;
    RD_TRY(cuda_dnn_plan_for(g, &k, &p, st));
    RD_TRY(rd_gpu_scratch_get(g, &g->scratch[2], (size_t)p->workspace, st));
    const convolution j = {.plan = p, .id = p->id, .data = {x, w, y}, .workspace = g->scratch[2].p};
    RD_TRY(rd_gpu_task_of(g, run_convolution, &j, sizeof j, sizeof j, st));
done:
    return st->code;
}

/* ---- convolutions ---- */

static bool is_product(const rd_gpu_conv *c)
{
    return c->kh == 1 && c->kw == 1 && c->stride == 1 && c->oh == c->h && c->ow == c->w &&
           c->pad_top == 0 && c->pad_left == 0;
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
    return (rd_borders){c->n,       c->h,        c->w,          c->ci,
                        c->pad_top, c->pad_left, c->pad_bottom, c->pad_right};
}

/* Returns the same convolution for images that contain their borders. */
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
    return (size_t)(c->n * c->h * c->w * c->ci) * rd_element_bytes(c->type);
}

/* Makes borders even. If the borders of *x are uneven, *x becomes a copy with borders, and *c its
 * shape. */
static rd_code even_input(rd_gpu *g, rd_gpu_conv *c, const void **x, rd_status *st)
{
    if (!is_uneven(c)) return st->code;
    const rd_borders b = borders_of(c);
    *c = with_borders(c);
    RD_TRY(rd_gpu_scratch_get(g, &g->scratch[0], image_bytes(c), st));
    RD_TRY(rd_convert_pad(g, &b, c->type, *x, g->scratch[0].p, st));
    *x = g->scratch[0].p;
done:
    return st->code;
}

/* Computes a 1x1 convolution with stride 1 as C = op(A) op(B) + beta C. Operands have 16 bits, or
 * are float32 or TF32. */
static rd_code cuda_dnn_multiply(rd_gpu *g, const rd_product *shape, rd_status *st)
{
    rd_product p = *shape;
    p.alpha = 1.0f;
    p.batch = 1;
    return rd_gpu_multiply(g, &p, p.type_a != RD_FLOAT32, st);
}

rd_code rd_gpu_conv_forward(rd_gpu *g, const rd_gpu_conv *shape, const void *x, const float *W,
                            void *y, rd_status *st)
{
    rd_gpu_conv c = *shape;
    const int64_t pixels = c.n * c.oh * c.ow;
    const void *w;
    if (is_empty(&c)) return st->code;
    if (is_product(&c)) {
        const rd_product p = {.m = pixels,
                              .n = c.co,
                              .k = c.ci,
                              .A = x,
                              .type_a = c.type,
                              .lda = c.ci,
                              .B = W,
                              .ldb = c.co,
                              .C = y,
                              .type_c = c.type,
                              .ldc = c.co};
        return cuda_dnn_multiply(g, &p, st);
    }
    RD_TRY(cuda_dnn_begin(g, st));
    RD_TRY(rd_gpu_held_filters(g, W, c.kh * c.kw, c.ci, c.co, c.type, &g->scratch[1], &w, st));
    RD_TRY(even_input(g, &c, &x, st));
    RD_TRY(cuda_dnn_run(g, FORWARD, &c, x, w, y, st));
done:
    return st->code;
}

rd_code rd_gpu_conv_data(rd_gpu *g, const rd_gpu_conv *shape, const void *dy, const float *W,
                         void *dx, bool add, rd_status *st)
{
    rd_gpu_conv c = *shape;
    const int64_t pixels = c.n * c.oh * c.ow;
    const void *w;
    if (is_empty(&c)) return add ? st->code : rd_gpu_zero(g, dx, image_bytes(&c), st);
    if (is_product(&c)) {
        const rd_product p = {.tb = true,
                              .m = pixels,
                              .n = c.ci,
                              .k = c.co,
                              .A = dy,
                              .type_a = c.type,
                              .lda = c.co,
                              .B = W,
                              .ldb = c.co,
                              .beta = add ? 1.0f : 0.0f,
                              .C = dx,
                              .type_c = c.type,
                              .ldc = c.ci};
        return cuda_dnn_multiply(g, &p, st);
    }
    RD_TRY(cuda_dnn_begin(g, st));
    RD_TRY(rd_gpu_held_filters(g, W, c.kh * c.kw, c.ci, c.co, c.type, &g->scratch[1], &w, st));
    if (!is_uneven(&c) && !add) return cuda_dnn_run(g, DATA, &c, dx, w, dy, st);
    rd_borders b = borders_of(&c);
    if (is_uneven(&c))
        c = with_borders(&c);
    else
        b.top = b.left = b.bottom = b.right = 0; /* cuDNN leaves them out */
    RD_TRY(rd_gpu_scratch_get(g, &g->scratch[0], image_bytes(&c), st));
    RD_TRY(cuda_dnn_run(g, DATA, &c, g->scratch[0].p, w, dy, st));
    RD_TRY(rd_convert_crop(g, &b, c.type, g->scratch[0].p, add, dx, st));
done:
    return st->code;
}

rd_code rd_gpu_conv_weights(rd_gpu *g, const rd_gpu_conv *shape, const void *x, const void *dy,
                            float *dW, rd_status *st)
{
    rd_gpu_conv c = *shape;
    const int64_t pixels = c.n * c.oh * c.ow, taps = c.kh * c.kw;
    if (is_empty(&c)) return st->code;
    if (is_product(&c)) {
        const rd_product p = {.ta = true,
                              .m = c.ci,
                              .n = c.co,
                              .k = pixels,
                              .A = x,
                              .type_a = c.type,
                              .lda = c.ci,
                              .B = dy,
                              .type_b = c.type,
                              .ldb = c.co,
                              .beta = 1.0f,
                              .C = dW,
                              .ldc = c.co};
        return cuda_dnn_multiply(g, &p, st);
    }
    RD_TRY(cuda_dnn_begin(g, st));
    RD_TRY(rd_gpu_scratch_get(g, &g->scratch[1],
                              (size_t)(taps * c.ci * c.co) * rd_element_bytes(c.type), st));
    RD_TRY(even_input(g, &c, &x, st));
    RD_TRY(cuda_dnn_run(g, WEIGHTS, &c, x, g->scratch[1].p, dy, st));
    RD_TRY(rd_convert_filters_add(g, taps, c.ci, c.co, g->scratch[1].p, c.type, dW, st));
done:
    return st->code;
}
