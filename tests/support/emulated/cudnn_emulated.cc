/* cudnn_emulated.cc -- a replacement for cuDNN's recurrent layers, for builds without a GPU.
 *
 * It follows the library's documentation and is compared with PyTorch's nn.LSTM (tests/gpu/lstm.c):
 * one LSTM layer in one direction, all layouts, lengths, both biases, initial and final states and
 * their gradients. It computes in double. The arrays that the library stores (x, y, states,
 * weights) have the data type.
 *
 * It is stricter than the library where a mistake would only sometimes show there. Spaces must have
 * the size that it asked for. Each array must be within one allocation of device memory. Shapes and
 * types must agree. Backward must follow its forward, and the gradients of weights those of data.
 * The weight space has gaps, and a different order for each algorithm, so code that does not ask
 * for the place of a matrix fails. Like the library, it has no persistent algorithm for bfloat16,
 * and says so late: in cudnnRNNForward.
 *
 * Environment:
 *     RD_EMULATED_CUDNN=version      91900 by default; 0: there is no cuDNN
 *     RD_EMULATED_CUDNN_REFUSES      name of a call that reports "not supported"
 *     RD_EMULATED_CUDNN_FAILS        name of a call that fails
 *     RD_EMULATED_CUDNN_TRANSPOSED=1 the descriptors report transposed matrices */
#include "cudnn_emulated.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

struct cudnnTensorStruct {
    cudnnDataType_t type;
    int n, dim[8], stride[8];
};

struct cudnnRNNStruct {
    bool set;
    cudnnRNNAlgo_t algo;
    cudnnRNNBiasMode_t bias;
    cudnnDataType_t type;
    int in, hidden;
    bool padded_io;
};

struct cudnnRNNDataStruct {
    cudnnDataType_t type;
    cudnnRNNDataLayout_t layout;
    int steps, batch, width;
    std::vector<int> length;
    bool fills;
    double fill;
};

char rd_emulated_dnn_why[200];

namespace
{

typedef std::vector<double> numbers;
enum { GATES = 4, LINEAR = 8, ALIGN = 64, MAGIC = 0x4c53544d };

char *const why = rd_emulated_dnn_why;
const size_t WHY = sizeof rd_emulated_dnn_why;

cudnnStatus_t bad(const char *text)
{
    snprintf(why, WHY, "%s", text);
    return CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t unsupported(const char *text)
{
    snprintf(why, WHY, "%s", text);
    return CUDNN_STATUS_NOT_SUPPORTED;
}

bool named(const char *variable, const char *call)
{
    const char *e = getenv(variable);
    return e && strcmp(e, call) == 0;
}

/* Returns the result that the environment asks of a call. */
cudnnStatus_t wanted(const char *call)
{
    if (named("RD_EMULATED_CUDNN_REFUSES", call)) return unsupported("RD_EMULATED_CUDNN_REFUSES");
    if (rd_emulated_dnn_fails(call))
        snprintf(why, WHY, "a failure that the test asked for");
    else if (named("RD_EMULATED_CUDNN_FAILS", call))
        snprintf(why, WHY, "RD_EMULATED_CUDNN_FAILS");
    else
        return CUDNN_STATUS_SUCCESS;
    return CUDNN_STATUS_EXECUTION_FAILED;
}
#define WANTED()                                             \
    do {                                                     \
        const cudnnStatus_t wanted_ = wanted(__func__);      \
        if (wanted_ != CUDNN_STATUS_SUCCESS) return wanted_; \
    } while (0)
#define CHECKED(call)                                          \
    do {                                                       \
        const cudnnStatus_t checked_ = (call);                 \
        if (checked_ != CUDNN_STATUS_SUCCESS) return checked_; \
    } while (0)

/* ---- numbers of a type ---- */

size_t bytes_of(cudnnDataType_t t)
{
    return t == CUDNN_DATA_FLOAT ? 4 : 2;
}

rd_element element_of(cudnnDataType_t t)
{
    return t == CUDNN_DATA_FLOAT ? RD_FLOAT32 : t == CUDNN_DATA_BFLOAT16 ? RD_BFLOAT16 : RD_FLOAT16;
}

double get(cudnnDataType_t t, const void *p, size_t i)
{
    return (double)rd_emulated_get(element_of(t), p, (int64_t)i);
}
void put(cudnnDataType_t t, void *p, size_t i, double x)
{
    rd_emulated_put(element_of(t), p, (int64_t)i, (float)x);
}

float rounded(cudnnDataType_t t, double x)
{
    return t == CUDNN_DATA_FLOAT      ? (float)x
           : t == CUDNN_DATA_BFLOAT16 ? rd_emulated_bfloat16((float)x)
                                      : rd_emulated_float16((float)x);
}

bool on_device(const void *p, size_t bytes)
{
    return p && rd_emulated_is_device(p, bytes);
}

/* ---- the weight space ---- */

/* Returns the element where matrix or bias `gate` begins (0 .. 3 of the input, 4 .. 7 of h: i, f,
 * g, o). For `gate` LINEAR: the number of all elements. */
size_t place(const cudnnRNNStruct *d, int gate, bool bias)
{
    size_t at = d->algo == CUDNN_RNN_ALGO_STANDARD ? 0 : ALIGN;
    const bool small = d->algo ==
                       CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H; /* biases first, gates backwards */
    for (int part = 0; part < 2; part++)
        for (int i = 0; i < LINEAR; i++) {
            const bool is_bias = (part == 1) != small;
            const int k = small ? LINEAR - 1 - i : i;
            if (k == gate && is_bias == bias) return at;
            const size_t cols = is_bias ? 1 : (size_t)(k < GATES ? d->in : d->hidden);
            at += ((size_t)d->hidden * cols + ALIGN - 1) / ALIGN * ALIGN;
        }
    return at;
}

size_t weight_bytes_of(const cudnnRNNStruct *d)
{
    return place(d, LINEAR, false) * bytes_of(d->type);
}

/* ---- spaces ---- */

size_t rows_of(const cudnnRNNDataStruct *x)
{
    return (size_t)x->steps * (size_t)x->batch;
}

size_t work_bytes_of(const cudnnRNNStruct *d, const cudnnRNNDataStruct *x)
{
    return (size_t)x->batch * (size_t)d->hidden * LINEAR * sizeof(float) + 128;
}

/* The head of a reserve space. It is followed by numbers in double for each step and sequence: i,
 * f, g, o, c, and after backward their gradients. */
struct reserved {
    int magic, stage; /* 1: forward is done, 2: backward of data is done */
    int steps, batch, in, hidden, algo, type;
};

size_t reserve_bytes_of(const cudnnRNNStruct *d, const cudnnRNNDataStruct *x)
{
    return sizeof(reserved) + rows_of(x) * (size_t)d->hidden * (2 * GATES + 1) * sizeof(double);
}

/* the memory of a reserve space */
struct memory {
    double *gate, *c, *dgate;
    size_t H;
    memory(const cudnnRNNStruct *d, const cudnnRNNDataStruct *x, void *reserve)
        : H((size_t)d->hidden)
    {
        gate = (double *)((char *)reserve + sizeof(reserved));
        c = gate + rows_of(x) * H * GATES;
        dgate = c + rows_of(x) * H;
    }
};

/* ---- rows ---- */

/* Returns the element where the vector of a step of a sequence begins. */
size_t vector_at(const cudnnRNNDataStruct *d, int t, int s)
{
    size_t row = 0;
    if (d->layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED)
        row = (size_t)t * (size_t)d->batch + (size_t)s;
    if (d->layout == CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED)
        row = (size_t)s * (size_t)d->steps + (size_t)t;
    if (d->layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED) {
        for (int i = 0; i < d->batch; i++)
            row += (size_t)(d->length[(size_t)i] < t ? d->length[(size_t)i] : t);
        row += (size_t)s;
    }
    return row * (size_t)d->width;
}

size_t elements_of(const cudnnRNNDataStruct *d)
{
    size_t rows = rows_of(d);
    if (d->layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED) {
        rows = 0;
        for (int n : d->length) rows += (size_t)n;
    }
    return rows * (size_t)d->width;
}

bool one_length(const cudnnRNNDataStruct *d)
{
    for (int n : d->length)
        if (n != d->steps) return false;
    return true;
}

cudnnStatus_t check(const cudnnRNNStruct *d, const cudnnRNNDataStruct *x,
                    const cudnnRNNDataStruct *y, const cudnnTensorStruct *h,
                    const cudnnTensorStruct *c, const int32_t *dev_lengths)
{
    if (!d || !d->set || !x || !y || !h || !c) return bad("a descriptor is missing or was not set");
    const bool packed = x->layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED;
    if (dev_lengths) return bad("devSeqLengths is no longer looked at: it should be NULL");
    if (x->type != d->type || y->type != d->type || h->type != d->type || c->type != d->type)
        return bad("types differ");
    if (x->width != d->in || y->width != d->hidden)
        return bad("x or y has another width than the layer");
    if (x->layout != y->layout || x->steps != y->steps || x->batch != y->batch ||
        x->length != y->length)
        return bad("x and y differ");
    if (!d->padded_io && !packed) return bad("a padded layout needs CUDNN_RNN_PADDED_IO_ENABLED");
    for (const cudnnTensorStruct *s : {h, c})
        if (s->n != 3 || s->dim[0] != 1 || s->dim[1] != x->batch || s->dim[2] != d->hidden ||
            s->stride[2] != 1 || s->stride[1] != d->hidden || s->stride[0] != d->hidden * x->batch)
            return bad("a state is (layers, batch, hidden), without gaps");
    if (d->algo != CUDNN_RNN_ALGO_STANDARD && !one_length(x))
        return unsupported("persistent algorithms want sequences of one length");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_spaces(const cudnnRNNStruct *d, const cudnnRNNDataStruct *x,
                           size_t weight_bytes, const void *weights, size_t work_bytes, void *work)
{
    if (weight_bytes != weight_bytes_of(d) || !on_device(weights, weight_bytes))
        return bad("weight space");
    if (work_bytes < work_bytes_of(d, x) || !on_device(work, work_bytes)) return bad("work space");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_reserve(const cudnnRNNStruct *d, const cudnnRNNDataStruct *x, size_t bytes,
                            const void *reserve)
{
    if (bytes < reserve_bytes_of(d, x) || !on_device(reserve, bytes)) return bad("reserve space");
    return CUDNN_STATUS_SUCCESS;
}

reserved header_of(const cudnnRNNStruct *d, const cudnnRNNDataStruct *x, int stage)
{
    return {MAGIC, stage, x->steps, x->batch, d->in, d->hidden, (int)d->algo, (int)d->type};
}

bool is_after(const void *reserve, const reserved &r)
{
    return memcmp(reserve, &r, sizeof r) == 0;
}

/* ---- the cell ---- */

struct layer {
    const cudnnRNNStruct *d;
    numbers W[LINEAR], b[LINEAR];
    layer(const cudnnRNNStruct *d_, const void *space) : d(d_)
    {
        for (int k = 0; k < LINEAR; k++) {
            const size_t n = (size_t)d->hidden * (size_t)(k < GATES ? d->in : d->hidden);
            for (size_t i = 0; i < n; i++)
                W[k].push_back(get(d->type, space, place(d, k, false) + i));
            for (size_t i = 0; i < (size_t)d->hidden; i++)
                b[k].push_back(get(d->type, space, place(d, k, true) + i));
        }
    }
};

double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

numbers vector_of(cudnnDataType_t t, const void *p, size_t at, size_t n)
{
    numbers v(n);
    for (size_t i = 0; p && i < n; i++) v[i] = get(t, p, at + i);
    return v;
}

void store(cudnnDataType_t t, void *p, size_t at, const numbers &v)
{
    for (size_t i = 0; p && i < v.size(); i++) put(t, p, at + i, v[i]);
}

double row_times(const numbers &W, size_t row, const numbers &x)
{
    double sum = 0.0;
    for (size_t k = 0; k < x.size(); k++) sum += W[row * x.size() + k] * x[k];
    return sum;
}

/* ---- the passes; they may run after the call ---- */

cudnnStatus_t forward(const cudnnRNNStruct *d, const cudnnRNNDataStruct *xd, const void *x,
                      const cudnnRNNDataStruct *yd, void *y, const void *hx, void *hy,
                      const void *cx, void *cy, const void *weights, size_t work_bytes, void *work,
                      void *reserve, bool trains)
{
    const size_t H = (size_t)d->hidden;
    const layer l(d, weights);
    /* nothing in it is kept */
    memset(work, 0xff, work_bytes);
    if (yd->fills)
        for (size_t i = 0; i < elements_of(yd); i++) put(d->type, y, i, yd->fill);
    for (int s = 0; s < xd->batch; s++) {
        numbers h = vector_of(d->type, hx, (size_t)s * H, H),
                c = vector_of(d->type, cx, (size_t)s * H, H);
        for (int t = 0; t < xd->length[(size_t)s]; t++) {
            const numbers in = vector_of(d->type, x, vector_at(xd, t, s), (size_t)d->in);
            const size_t cell = (size_t)t * (size_t)xd->batch + (size_t)s;
            numbers out(H);
            for (size_t u = 0; u < H; u++) {
                double g[GATES];
                for (int k = 0; k < GATES; k++) {
                    const double z = row_times(l.W[k], u, in) + row_times(l.W[GATES + k], u, h) +
                                     l.b[k][u] + l.b[GATES + k][u];
                    g[k] = k == 2 ? tanh(z) : sigmoid(z);
                }
                c[u] = (double)rounded(d->type, g[1] * c[u] + g[0] * g[2]);
                out[u] = (double)rounded(d->type, g[3] * tanh(c[u]));
                if (!trains) continue;
                const memory m(d, xd, reserve);
                for (size_t k = 0; k < GATES; k++)
                    m.gate[(cell * GATES + k) * H + u] = (double)rounded(d->type, g[k]);
                m.c[cell * H + u] = c[u];
            }
            h = out;
            store(d->type, y, vector_at(yd, t, s), h);
        }
        store(d->type, hy, (size_t)s * H, h);
        store(d->type, cy, (size_t)s * H, c);
    }
    if (trains) {
        const reserved r = header_of(d, xd, 1);
        memcpy(reserve, &r, sizeof r);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t backward_data(const cudnnRNNStruct *d, const cudnnRNNDataStruct *yd, const void *dy,
                            const cudnnRNNDataStruct *xd, void *dx, const void *dhy, void *dhx,
                            const void *cx, const void *dcy, void *dcx, const void *weights,
                            size_t work_bytes, void *work, void *reserve)
{
    if (!is_after(reserve, header_of(d, xd, 1)))
        return bad("no forward pass in training mode left this reserve space");
    const size_t H = (size_t)d->hidden;
    const layer l(d, weights);
    const memory m(d, xd, reserve);
    memset(work, 0xff, work_bytes);
    if (xd->fills)
        for (size_t i = 0; i < elements_of(xd); i++) put(d->type, dx, i, xd->fill);
    memset(m.dgate, 0, rows_of(xd) * H * GATES * sizeof(double));
    for (int s = 0; s < xd->batch; s++) {
        numbers dh = vector_of(d->type, dhy, (size_t)s * H, H),
                dc = vector_of(d->type, dcy, (size_t)s * H, H);
        const numbers c0 = vector_of(d->type, cx, (size_t)s * H, H);
        for (int t = xd->length[(size_t)s] - 1; t >= 0; t--) {
            const size_t cell = (size_t)t * (size_t)xd->batch + (size_t)s,
                         before = cell - (size_t)xd->batch;
            const numbers of_y = vector_of(d->type, dy, vector_at(yd, t, s), H);
            numbers dz[GATES], in((size_t)d->in), back(H);
            for (int k = 0; k < GATES; k++) dz[k].resize(H);
            for (size_t u = 0; u < H; u++) {
                double g[GATES];
                for (size_t k = 0; k < GATES; k++) g[k] = m.gate[(cell * GATES + k) * H + u];
                const double th = tanh(m.c[cell * H + u]), d_out = dh[u] + of_y[u],
                             d_c = dc[u] + d_out * g[3] * (1.0 - th * th);
                const double old = t ? m.c[before * H + u] : c0[u];
                dz[0][u] = d_c * g[2] * g[0] * (1.0 - g[0]);
                dz[1][u] = d_c * old * g[1] * (1.0 - g[1]);
                dz[2][u] = d_c * g[0] * (1.0 - g[2] * g[2]);
                dz[3][u] = d_out * th * g[3] * (1.0 - g[3]);
                dc[u] = d_c * g[1];
                for (size_t k = 0; k < GATES; k++) {
                    dz[k][u] = (double)rounded(d->type, dz[k][u]);
                    m.dgate[(cell * GATES + k) * H + u] = dz[k][u];
                }
            }
            for (int k = 0; k < GATES; k++)
                for (size_t u = 0; u < H; u++) {
                    for (size_t j = 0; j < in.size(); j++)
                        in[j] += dz[k][u] * l.W[k][u * in.size() + j];
                    for (size_t j = 0; j < H; j++) back[j] += dz[k][u] * l.W[GATES + k][u * H + j];
                }
            store(d->type, dx, vector_at(xd, t, s), in);
            dh = back;
        }
        store(d->type, dhx, (size_t)s * H, dh);
        store(d->type, dcx, (size_t)s * H, dc);
    }
    const reserved r = header_of(d, xd, 2);
    memcpy(reserve, &r, sizeof r);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t backward_weights(const cudnnRNNStruct *d, const cudnnRNNDataStruct *xd, const void *x,
                               const void *hx, const cudnnRNNDataStruct *yd, const void *y,
                               void *dweights, void *reserve)
{
    if (!is_after(reserve, header_of(d, xd, 2)))
        return bad("gradients of weights come after those of data");
    const size_t H = (size_t)d->hidden, I = (size_t)d->in;
    const memory m(d, xd, reserve);
    for (int k = 0; k < LINEAR; k++) {
        const size_t cols = k < GATES ? I : H;
        numbers W(H * cols), b(H);
        for (int s = 0; s < xd->batch; s++)
            for (int t = 0; t < xd->length[(size_t)s]; t++) {
                const size_t cell = (size_t)t * (size_t)xd->batch + (size_t)s;
                const numbers in = k < GATES ? vector_of(d->type, x, vector_at(xd, t, s), I)
                                   : t       ? vector_of(d->type, y, vector_at(yd, t - 1, s), H)
                                             : vector_of(d->type, hx, (size_t)s * H, H);
                for (size_t u = 0; u < H; u++) {
                    const double dz = m.dgate[(cell * GATES + (size_t)(k % GATES)) * H + u];
                    b[u] += dz;
                    for (size_t j = 0; j < cols; j++) W[u * cols + j] += dz * in[j];
                }
            }
        for (size_t i = 0; i < W.size(); i++)
            W[i] += get(d->type, dweights, place(d, k, false) + i);
        for (size_t i = 0; i < H; i++) b[i] += get(d->type, dweights, place(d, k, true) + i);
        store(d->type, dweights, place(d, k, false), W);
        store(d->type, dweights, place(d, k, true), b);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_tensor(cudnnTensorDescriptor_t d, cudnnDataType_t type, int n, const int dim[],
                         const int stride[])
{
    if (n < 3 || n > 8) return bad("3 to 8 dimensions");
    d->type = type;
    d->n = n;
    for (int i = 0; i < n; i++) {
        if (dim[i] < 1) return bad("a dimension is below 1");
        d->dim[i] = dim[i];
        d->stride[i] = stride[i];
    }
    return CUDNN_STATUS_SUCCESS;
}

} // namespace

extern "C" {

/* ---- descriptors ---- */
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *out)
{
    WANTED();
    *out = new cudnnTensorStruct();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t d)
{
    delete d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t d, cudnnDataType_t type, int n,
                                         const int dim[], const int stride[])
{
    WANTED();
    return set_tensor(d, type, n, dim, stride);
}

cudnnStatus_t cudnnGetTensorNdDescriptor(cudnnTensorDescriptor_t d, int most, cudnnDataType_t *type,
                                         int *n, int dim[], int stride[])
{
    WANTED();
    *type = d->type;
    *n = d->n;
    for (int i = 0; i < most && i < d->n; i++) {
        dim[i] = d->dim[i];
        stride[i] = d->stride[i];
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t *out)
{
    WANTED();
    *out = new cudnnRNNStruct();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t d)
{
    delete d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetRNNDescriptor_v8(
    cudnnRNNDescriptor_t d, cudnnRNNAlgo_t algo, cudnnRNNMode_t cell, cudnnRNNBiasMode_t bias,
    cudnnDirectionMode_t direction, cudnnRNNInputMode_t input, cudnnDataType_t type,
    cudnnDataType_t precision, cudnnMathType_t, int32_t in, int32_t hidden, int32_t projected,
    int32_t layers, cudnnDropoutDescriptor_t, uint32_t flags)
{
    WANTED();
    if (in < 1 || hidden < 1 || projected < 1 || projected > hidden || layers < 1)
        return bad("a size is below 1");
    if (precision != CUDNN_DATA_FLOAT) return bad("mathPrec is CUDNN_DATA_FLOAT for these types");
    if (cell != CUDNN_LSTM || direction != CUDNN_UNIDIRECTIONAL || input != CUDNN_LINEAR_INPUT ||
        layers != 1 || projected != hidden || bias != CUDNN_RNN_DOUBLE_BIAS ||
        algo == CUDNN_RNN_ALGO_PERSIST_DYNAMIC)
        return unsupported("the stand-in has one LSTM layer with two biases");
    *d = {true, algo, bias, type, in, hidden, (flags & CUDNN_RNN_PADDED_IO_ENABLED) != 0};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t *out)
{
    WANTED();
    *out = new cudnnRNNDataStruct();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t d)
{
    delete d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t d, cudnnDataType_t type,
                                        cudnnRNNDataLayout_t layout, int steps, int batch,
                                        int width, const int length[], void *fill)
{
    WANTED();
    if (steps < 1 || batch < 1 || width < 1) return bad("a size is below 1");
    for (int i = 0; i < batch; i++)
        if (length[i] < 1 || length[i] > steps)
            return bad("a length is not within 1 .. maxSeqLength");
    for (int i = 1; i < batch && layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED; i++)
        if (length[i] > length[i - 1]) return bad("packed sequences go from long to short");
    *d = {type,
          layout,
          steps,
          batch,
          width,
          std::vector<int>(length, length + batch),
          fill != nullptr,
          fill ? get(type, fill, 0) : 0.0};
    return CUDNN_STATUS_SUCCESS;
}

/* ---- sizes and places ---- */
cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t h, cudnnRNNDescriptor_t d, size_t *bytes)
{
    WANTED();
    if (!h || !d || !d->set) return bad("a descriptor was not set");
    *bytes = weight_bytes_of(d);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t h, cudnnRNNDescriptor_t d, int32_t one,
                                      size_t bytes, const void *space, int32_t gate,
                                      cudnnTensorDescriptor_t matrix, void **matrix_at,
                                      cudnnTensorDescriptor_t bias, void **bias_at)
{
    WANTED();
    if (!h || !d || !d->set || one != 0 || gate < 0 || gate >= LINEAR || bytes < weight_bytes_of(d))
        return bad("no such weights");
    const int cols = gate < GATES ? d->in : d->hidden, of_matrix[] = {1, d->hidden, cols},
              of_bias[] = {1, d->hidden, 1};
    const int matrix_stride[] = {d->hidden * cols, cols, 1}, bias_stride[] = {d->hidden, 1, 1};
    if (matrix && getenv("RD_EMULATED_CUDNN_TRANSPOSED")) {
        const int other[] = {1, cols, d->hidden}, other_stride[] = {d->hidden * cols, d->hidden, 1};
        CHECKED(set_tensor(matrix, d->type, 3, other, other_stride));
        *matrix_at = (char *)space + place(d, gate, false) * bytes_of(d->type);
    } else if (matrix) {
        CHECKED(set_tensor(matrix, d->type, 3, of_matrix, matrix_stride));
        *matrix_at = (char *)space + place(d, gate, false) * bytes_of(d->type);
    }
    if (bias) {
        CHECKED(set_tensor(bias, d->type, 3, of_bias, bias_stride));
        *bias_at = (char *)space + place(d, gate, true) * bytes_of(d->type);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t h, cudnnRNNDescriptor_t d,
                                        cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                                        size_t *work, size_t *reserve)
{
    WANTED();
    if (!h || !d || !d->set || !x || x->width != d->in) return bad("a descriptor does not fit");
    if (d->algo != CUDNN_RNN_ALGO_STANDARD && !one_length(x))
        return unsupported("persistent algorithms want sequences of one length");
    if (work) *work = work_bytes_of(d, x);
    if (reserve) *reserve = mode == CUDNN_FWD_MODE_TRAINING ? reserve_bytes_of(d, x) : 0;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- forward ---- */
cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t d, cudnnForwardMode_t mode,
                              const int32_t dev_lengths[], cudnnRNNDataDescriptor_t xd,
                              const void *x, cudnnRNNDataDescriptor_t yd, void *y,
                              cudnnTensorDescriptor_t hd, const void *hx, void *hy,
                              cudnnTensorDescriptor_t cd, const void *cx, void *cy,
                              size_t weight_bytes, const void *weights, size_t work_bytes,
                              void *work, size_t reserve_bytes, void *reserve)
{
    WANTED();
    CHECKED(check(d, xd, yd, hd, cd, dev_lengths));
    CHECKED(check_spaces(d, xd, weight_bytes, weights, work_bytes, work));
    const bool trains = mode == CUDNN_FWD_MODE_TRAINING;
    if (trains) CHECKED(check_reserve(d, xd, reserve_bytes, reserve));
    if (!handle || !on_device(x, elements_of(xd) * bytes_of(d->type)) ||
        !on_device(y, elements_of(yd) * bytes_of(d->type)))
        return bad("x or y is no memory of the device");
    if (d->type == CUDNN_DATA_BFLOAT16 && d->algo != CUDNN_RNN_ALGO_STANDARD)
        return unsupported("no persistent algorithm for bfloat16");
    rd_emulated_count(RD_EMULATED_RECURRENT);
    /* The caller may change its descriptors before the work is done. */
    return rd_emulated_dnn_queue(handle, [d_ = *d, xd_ = *xd, yd_ = *yd, x, y, hx, hy, cx, cy,
                                          weights, work_bytes, work, reserve, trains] {
        return forward(&d_, &xd_, x, &yd_, y, hx, hy, cx, cy, weights, work_bytes, work, reserve,
                       trains);
    });
}

/* ---- backward ---- */
cudnnStatus_t cudnnRNNBackwardData_v8(
    cudnnHandle_t handle, cudnnRNNDescriptor_t d, const int32_t dev_lengths[],
    cudnnRNNDataDescriptor_t yd, const void *y, const void *dy, cudnnRNNDataDescriptor_t xd,
    void *dx, cudnnTensorDescriptor_t hd, const void *hx, const void *dhy, void *dhx,
    cudnnTensorDescriptor_t cd, const void *cx, const void *dcy, void *dcx, size_t weight_bytes,
    const void *weights, size_t work_bytes, void *work, size_t reserve_bytes, void *reserve)
{
    WANTED();
    CHECKED(check(d, xd, yd, hd, cd, dev_lengths));
    CHECKED(check_spaces(d, xd, weight_bytes, weights, work_bytes, work));
    CHECKED(check_reserve(d, xd, reserve_bytes, reserve));
    const size_t bytes_x = elements_of(xd) * bytes_of(d->type),
                 bytes_y = elements_of(yd) * bytes_of(d->type);
    if (!handle || !on_device(dx, bytes_x) || !on_device(y, bytes_y) || !on_device(dy, bytes_y))
        return bad("y, dy or dx");
    (void)hx;
    rd_emulated_count(RD_EMULATED_RECURRENT);
    return rd_emulated_dnn_queue(handle, [d_ = *d, yd_ = *yd, dy, xd_ = *xd, dx, dhy, dhx, cx, dcy,
                                          dcx, weights, work_bytes, work, reserve] {
        return backward_data(&d_, &yd_, dy, &xd_, dx, dhy, dhx, cx, dcy, dcx, weights, work_bytes,
                             work, reserve);
    });
}

cudnnStatus_t cudnnRNNBackwardWeights_v8(
    cudnnHandle_t handle, cudnnRNNDescriptor_t d, cudnnWgradMode_t add, const int32_t dev_lengths[],
    cudnnRNNDataDescriptor_t xd, const void *x, cudnnTensorDescriptor_t hd, const void *hx,
    cudnnRNNDataDescriptor_t yd, const void *y, size_t weight_bytes, void *dweights,
    size_t work_bytes, void *work, size_t reserve_bytes, void *reserve)
{
    WANTED();
    CHECKED(check(d, xd, yd, hd, hd, dev_lengths));
    CHECKED(check_spaces(d, xd, weight_bytes, dweights, work_bytes, work));
    CHECKED(check_reserve(d, xd, reserve_bytes, reserve));
    if (add != CUDNN_WGRAD_MODE_ADD) return bad("gradients of weights are added");
    if (!handle || !on_device(x, elements_of(xd) * bytes_of(d->type)) ||
        !on_device(y, elements_of(yd) * bytes_of(d->type)))
        return bad("x or y is no memory of the device");
    rd_emulated_count(RD_EMULATED_RECURRENT);
    return rd_emulated_dnn_queue(handle, [d_ = *d, xd_ = *xd, x, hx, yd_ = *yd, y, dweights,
                                          reserve] {
        return backward_weights(&d_, &xd_, x, hx, &yd_, y, dweights, reserve);
    });
}

} // extern "C"
