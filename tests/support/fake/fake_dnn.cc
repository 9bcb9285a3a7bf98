/* fake_dnn.cc -- cuDNN of the fake runtime: handles, and the graph interface for one convolution.
 * Recurrent layers: cudnn_emulated.cc.
 *
 * A ranking offers engines that the driver must not take (other sums from run to run, rounded
 * inputs), one that cannot be finished, and then one that can. For an odd number of channels only
 * the fallback ranking has an engine. RD_FAKE_NO_ENGINE=1: no ranking has one.
 *
 * Arrays: NHWC, filters (co, kh, kw, ci). Sums are float32 or better; results are rounded once. */
#include "fake_runtime.h"
#include "../emulated/cudnn_emulated.h"
#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

using namespace fake;

struct cudnnContext {
    cudaStream_t stream;
};

namespace
{

typedef cudnnBackendDescriptorType_t type_of;
typedef std::map<cudnnBackendAttributeName_t, std::vector<unsigned char>> attributes;

/* A convolution with its numbers; all sizes as the driver's. */
struct convolution {
    type_of what;
    cudnnDataType_t type;
    int64_t n, ci, h, w, co, kh, kw, oh, ow, stride, top, left, align;
};

struct descriptor {
    type_of type;
    bool final;
    attributes set;
    int engine;       /* of an engine, a configuration, a plan: its number */
    convolution conv; /* of a graph, and of what is made from it */
};

descriptor *of(cudnnBackendDescriptor_t d)
{
    return (descriptor *)d;
}

cudnnStatus_t bad(const char *text)
{
    snprintf(rd_emulated_dnn_why, sizeof rd_emulated_dnn_why, "%s", text);
    return CUDNN_STATUS_BAD_PARAM;
}

size_t bytes_of(cudnnBackendAttributeType_t t)
{
    switch (t) {
    case CUDNN_TYPE_INT64:
        return sizeof(int64_t);
    case CUDNN_TYPE_FLOAT:
        return sizeof(float);
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return sizeof(void *);
    default:
        return sizeof(int); /* an enum */
    }
}

template <typename T> T value(const descriptor *d, cudnnBackendAttributeName_t name, size_t i = 0)
{
    T x{};
    const auto at = d->set.find(name);
    if (at == d->set.end() || at->second.size() < (i + 1) * sizeof x)
        mistake("cudnnBackendFinalize", "attribute %d was not set", (int)name);
    memcpy(&x, at->second.data() + i * sizeof x, sizeof x);
    return x;
}

const descriptor *part(const descriptor *d, cudnnBackendAttributeName_t name)
{
    const descriptor *p = of(value<cudnnBackendDescriptor_t>(d, name));
    if (!p || !p->final) mistake("cudnnBackendFinalize", "a part of a descriptor is not final");
    return p;
}

/* The engines of a ranking, by number. */
enum engine { CHANGES, ROUNDS, BROKEN, TENSOR_CORES, PLAIN, N_ENGINES };

/* Reads the operation of a graph. False: its parts do not fit. */
bool read_graph(const descriptor *graph, convolution *c)
{
    const descriptor *op = part(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    const bool forward = op->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
               data = op->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
    const cudnnBackendAttributeName_t first = forward ? CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X
                                              : data
                                                  ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX
                                                  : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X;
    /* x, w, y, geometry, alpha, beta follow each other for each operation */
    const auto name = [=](int i) { return (cudnnBackendAttributeName_t)(first + i); };
    const descriptor *x = part(op, name(0)), *w = part(op, name(1)), *y = part(op, name(2)),
                     *how = part(op, name(3));
    if (value<float>(op, name(4)) != 1.0f || value<float>(op, name(5)) != 0.0f) return false;
    const auto dim = [](const descriptor *t, size_t i) {
        return value<int64_t>(t, CUDNN_ATTR_TENSOR_DIMENSIONS, i);
    };
    for (const descriptor *t : {x, w, y}) {
        const int64_t want[] = {dim(t, 1) * dim(t, 2) * dim(t, 3), 1, dim(t, 3) * dim(t, 1),
                                dim(t, 1)};
        for (size_t i = 0; i < 4; i++)
            if (value<int64_t>(t, CUDNN_ATTR_TENSOR_STRIDES, i) != want[i]) return false;
    }
    *c = {op->type,
          value<cudnnDataType_t>(x, CUDNN_ATTR_TENSOR_DATA_TYPE),
          dim(x, 0),
          dim(x, 1),
          dim(x, 2),
          dim(x, 3),
          dim(w, 0),
          dim(w, 2),
          dim(w, 3),
          dim(y, 2),
          dim(y, 3),
          value<int64_t>(how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
          value<int64_t>(how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0),
          value<int64_t>(how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 1),
          value<int64_t>(x, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)};
    const int64_t bottom = value<int64_t>(how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0),
                  right = value<int64_t>(how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 1);
    return value<cudnnConvolutionMode_t>(how, CUDNN_ATTR_CONVOLUTION_CONV_MODE) ==
               CUDNN_CROSS_CORRELATION &&
           dim(w, 1) == c->ci && dim(y, 0) == c->n && dim(y, 1) == c->co &&
           (c->h + c->top + bottom - c->kh) / c->stride + 1 == c->oh &&
           (c->w + c->left + right - c->kw) / c->stride + 1 == c->ow;
}

/* ---- the work ---- */

rd_element element_of(cudnnDataType_t t)
{
    return t == CUDNN_DATA_FLOAT ? RD_FLOAT32 : t == CUDNN_DATA_BFLOAT16 ? RD_BFLOAT16 : RD_FLOAT16;
}

int64_t size_x(const convolution &c)
{
    return c.n * c.h * c.w * c.ci;
}
int64_t size_w(const convolution &c)
{
    return c.co * c.kh * c.kw * c.ci;
}
int64_t size_y(const convolution &c)
{
    return c.n * c.oh * c.ow * c.co;
}

std::vector<float> read(rd_element t, const void *p, int64_t n)
{
    std::vector<float> x((size_t)n);
    for (int64_t i = 0; i < n; i++) x[(size_t)i] = rd_emulated_get(t, p, i);
    return x;
}

void write(rd_element t, void *p, const std::vector<float> &x)
{
    for (size_t i = 0; i < x.size(); i++) rd_emulated_put(t, p, (int64_t)i, x[i]);
}

/* Calls use(pixel of x, tap, pixel of y) for each combination that contributes. A tap is the place
 * in the filters of output channel 0. */
template <typename Use> void each(const convolution &c, Use use)
{
    for (int64_t i = 0; i < c.n; i++)
        for (int64_t p = 0; p < c.oh; p++)
            for (int64_t q = 0; q < c.ow; q++)
                for (int64_t u = 0; u < c.kh; u++)
                    for (int64_t v = 0; v < c.kw; v++) {
                        const int64_t r = p * c.stride + u - c.top, s = q * c.stride + v - c.left;
                        if (r < 0 || r >= c.h || s < 0 || s >= c.w) continue;
                        use(((i * c.h + r) * c.w + s) * c.ci, (u * c.kw + v) * c.ci,
                            ((i * c.oh + p) * c.ow + q) * c.co);
                    }
}

void convolve(const convolution &c, void *px, void *pw, void *py)
{
    const rd_element t = element_of(c.type);
    const int64_t filter = c.kh * c.kw * c.ci, ci = c.ci, co = c.co;
    const bool forward = c.what == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
               data = c.what == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
    if (forward) {
        const std::vector<float> x = read(t, px, size_x(c)), w = read(t, pw, size_w(c));
        std::vector<float> y((size_t)size_y(c));
        each(c, [&](int64_t ix, int64_t iw, int64_t iy) {
            for (int64_t o = 0; o < co; o++) {
                const float *a = &x[(size_t)ix], *b = &w[(size_t)(o * filter + iw)];
                float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
                for (int64_t k = 0; k < ci; k++) sum += a[k] * b[k];
                y[(size_t)(iy + o)] += sum;
            }
        });
        write(t, py, y);
    } else if (data) {
        const std::vector<float> dy = read(t, py, size_y(c)), w = read(t, pw, size_w(c));
        std::vector<float> dx((size_t)size_x(c));
        each(c, [&](int64_t ix, int64_t iw, int64_t iy) {
            for (int64_t o = 0; o < co; o++) {
                const float a = dy[(size_t)(iy + o)], *b = &w[(size_t)(o * filter + iw)];
                float *to = &dx[(size_t)ix];
#pragma omp simd
                for (int64_t k = 0; k < ci; k++) to[k] += a * b[k];
            }
        });
        write(t, px, dx);
    } else {
        const std::vector<float> x = read(t, px, size_x(c)), dy = read(t, py, size_y(c));
        std::vector<double> sum((size_t)size_w(c));
        each(c, [&](int64_t ix, int64_t iw, int64_t iy) {
            for (int64_t o = 0; o < co; o++) {
                const double a = (double)dy[(size_t)(iy + o)];
                const float *b = &x[(size_t)ix];
                double *to = &sum[(size_t)(o * filter + iw)];
#pragma omp simd
                for (int64_t k = 0; k < ci; k++) to[k] += a * (double)b[k];
            }
        });
        write(t, pw, std::vector<float>(sum.begin(), sum.end()));
    }
}

} // namespace

/* ---- for cudnn_emulated.cc ---- */
bool rd_emulated_dnn_fails(const char *call)
{
    return fails(call);
}

cudnnStatus_t rd_emulated_dnn_queue(cudnnHandle_t h, std::function<cudnnStatus_t()> run)
{
    if (device_failure() != cudaSuccess) return CUDNN_STATUS_EXECUTION_FAILED;
    queue(
        h->stream,
        [run] {
            if (run() == CUDNN_STATUS_SUCCESS) return true;
            fprintf(stderr, "fake CUDA: cuDNN: %s\n", rd_emulated_dnn_why);
            break_device(cudaErrorLaunchFailure);
            return true;
        },
        "cudnnRNN");
    return CUDNN_STATUS_SUCCESS;
}

#define DNN_CALL()                                                                        \
    do {                                                                                  \
        if (!fails(__func__)) break;                                                      \
        snprintf(rd_emulated_dnn_why, sizeof rd_emulated_dnn_why, "asked for by a test"); \
        return CUDNN_STATUS_INTERNAL_ERROR;                                               \
    } while (0)

extern "C" {

size_t cudnnGetVersion(void)
{
    return (size_t)number_of_environment("RD_EMULATED_CUDNN", 91900);
}

const char *cudnnGetErrorString(cudnnStatus_t s)
{
    switch (s) {
    case CUDNN_STATUS_SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
        return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_INTERNAL_ERROR:
        return "CUDNN_STATUS_INTERNAL_ERROR";
    default:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    }
}

void cudnnGetLastErrorString(char *out, size_t bytes)
{
    snprintf(out, bytes, "%s", rd_emulated_dnn_why);
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *h)
{
    *h = nullptr;
    DNN_CALL();
    *h = new cudnnContext{nullptr};
    count_object(1);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t h)
{
    const bool fail = fails(__func__);
    delete h;
    count_object(-1);
    return fail ? CUDNN_STATUS_INTERNAL_ERROR : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s)
{
    DNN_CALL();
    h->stream = s;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- descriptors ---- */
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out)
{
    *out = nullptr;
    DNN_CALL();
    *out = new descriptor{type, false, {}, 0, {}};
    count_object(1);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    const bool fail = fails(__func__);
    delete of(d);
    count_object(-1);
    return fail ? CUDNN_STATUS_INTERNAL_ERROR : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n,
                                       const void *values)
{
    DNN_CALL();
    if (of(d)->final) return bad("a final descriptor cannot change");
    const unsigned char *v = (const unsigned char *)values;
    of(d)->set[name].assign(v, v + (size_t)n * bytes_of(type));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t handle)
{
    descriptor *d = of(handle);
    DNN_CALL();
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        for (size_t i = 0; i < 4; i++)
            if (value<int64_t>(d, CUDNN_ATTR_TENSOR_DIMENSIONS, i) < 1) return bad("a dimension");
        break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        if (!value<cudnnHandle_t>(d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE)) return bad("no handle");
        if (!read_graph(d, &d->conv)) return bad("the parts of a convolution do not fit");
        break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        d->conv = part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->conv;
        break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
        const descriptor *config =
            of(value<cudnnBackendDescriptor_t>(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG));
        if (is_capturing()) mistake(__func__, "a plan is made during a capture");
        counts.plans_beside_sums += sums_queued > 0;
        if (config->engine == BROKEN) return CUDNN_STATUS_NOT_SUPPORTED;
        d->conv = config->conv;
        break;
    }
    default:
        break;
    }
    d->final = true;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t most, int64_t *n,
                                       void *values)
{
    descriptor *d = of(handle);
    DNN_CALL();
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
        const bool fallback = value<cudnnBackendHeurMode_t>(d, CUDNN_ATTR_ENGINEHEUR_MODE) ==
                              CUDNN_HEUR_MODE_FALLBACK;
        cudnnBackendDescriptor_t *config = (cudnnBackendDescriptor_t *)values;
        const bool none = number_of_environment("RD_FAKE_NO_ENGINE", 0) ||
                          (!fallback && d->conv.ci % 2 == 1);
        *n = none ? (int64_t)TENSOR_CORES : (int64_t)N_ENGINES;
        for (int64_t i = 0; i < *n && i < most; i++) {
            of(config[i])->engine = (int)i;
            of(config[i])->conv = d->conv;
            of(config[i])->final = true;
        }
    } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
        of(*(cudnnBackendDescriptor_t *)values)->engine = d->engine;
        *n = 1;
    } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
        static const cudnnBackendNumericalNote_t note[] = {
            [CHANGES] = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
            [ROUNDS] = CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
            [BROKEN] = CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
            [TENSOR_CORES] = CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
        *n = d->engine == PLAIN ? 0 : 1;
        if (*n) memcpy(values, &note[d->engine], sizeof *note);
    } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
        const int64_t bytes = 256;
        memcpy(values, &bytes, sizeof bytes);
        *n = 1;
    } else {
        return bad("no such attribute");
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    DNN_CALL();
    if (device_failure() != cudaSuccess) return CUDNN_STATUS_EXECUTION_FAILED;
    const convolution c = of(plan)->conv;
    const size_t size = rd_element_bytes(element_of(c.type));
    const int64_t n[] = {size_x(c), size_w(c), size_y(c)};
    void *at[3] = {};
    static const char uid[] = "xwy";
    for (size_t i = 0; i < 3; i++) {
        const int64_t u = value<int64_t>(of(pack), CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i);
        for (size_t k = 0; k < 3; k++)
            if (u == uid[k])
                at[k] = value<void *>(of(pack), CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
    }
    for (size_t i = 0; i < 3; i++) {
        need_device(__func__, "an array of a convolution", at[i], (size_t)n[i] * size);
        if ((uintptr_t)at[i] % (uintptr_t)c.align)
            mistake(__func__, "an array has not the alignment of its plan");
    }
    need_device(__func__, "the workspace",
                value<void *>(of(pack), CUDNN_ATTR_VARIANT_PACK_WORKSPACE), 256);
    queue(
        h->stream,
        [=] {
            counts.convolutions++;
            count_in_graph();
            convolve(c, at[0], at[1], at[2]);
            return true;
        },
        __func__);
    return CUDNN_STATUS_SUCCESS;
}

} // extern "C"
