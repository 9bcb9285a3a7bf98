/* batch_norm.cu -- batch_norm on a GPU; the formulas are those of batch_norm.c.
 *
 * Forward has three kernels. The first sums every slice of the pixels of a group. The second
 * computes mean and variance from these sums. The third normalises, adds and rectifies. Backward
 * also has three: the first sums every slice, the second adds these sums, the third writes the
 * gradients. With several groups, one more kernel adds the shares of the groups.
 *
 * The first kernel computes for each slice its mean, and the sum of squares about that mean. It
 * works with differences from the mean of some values of the slice. Each thread sums its pixels in
 * float32, over short runs and then over the runs. Threads and slices are joined in double, in a
 * fixed order. So a mean far from 0 costs no digits.
 *
 * Memory: forward reads x twice and writes y; it reads `add` once. Backward reads x and d twice and
 * writes dx. If nothing was added, it computes the sign of y from x again. Otherwise it reads y;
 * only the first pass reads y if d itself is the gradient that is passed on to `add`. The last
 * kernel walks through every slice from the end, which the sums have read last and which the cache
 * may still hold. */
#include "rd/image.h"
#include "shared/channels.h"

enum { RUN = 64 /* pixels of a float32 sum */ };

/* Statistics of each group and channel, kept for backward: [groups, C]. */
typedef struct batch_norm_cuda_stats {
    float *mean, *r;
    float *var;   /* unbiased */
    float *scale; /* gamma r */
} batch_norm_cuda_stats;

/* T: element type of the images. */
template <typename T> struct job {
    rd_columns k;
    batch_norm_cuda_stats s;
    bool batch; /* the op uses the statistics of the batch, not the running statistics */
    bool relu;  /* forward: y = max(y, 0); backward: d is dy where y > 0 */
    float epsilon;
    int64_t P; /* pixels of a sample */
    const T *x, *add;
    const float *gamma, *beta, *run_mean, *run_var;
    T *y;
    /* [groups slices, C] forward: mean and sum of squares; backward: sum d and sum d (x - m). */
    double *part[2];
    /* backward */
    T *d;         /* dy; with keep_d it becomes d */
    T *dx, *dadd; /* dx may be d; NULL: not wanted */
    bool add_dx, add_dadd, keep_d;
    float *dgamma, *dbeta, *dmean, *dvar;
    /* [groups, C] mean(d) and r^2 mean(d (x - m)); 0 with running statistics. */
    float *shift, *slope;
    double *sum[2]; /* [groups, C] shares of dgamma and dbeta, if there are several groups */
    float seed;
};

/* Returns y before relu and rounding. Forward and backward share this formula, so that backward
 * sees the sign that forward saw. */
static __device__ inline float normalised(float x, float mean, float scale, float beta)
{
    return fmaf(x - mean, scale, beta);
}

template <int V, typename T> static __global__ void __launch_bounds__(RD_BLOCK) statistics(job<T> j)
{
    enum { SOME = 4 };
    const rd_columns &k = j.k;
    const rd_strip s = rd_strip_of<V>(k);
    const int64_t n = s.end - s.begin;
    float about[V] = {};
    float runs[2 * V] = {};
    if (s.inside && n > 0) {
        for (int i = 0; i < SOME; i++) {
            const rd_lanes<V> x = rd_lanes_get<V>(j.x + (s.begin + i * n / SOME) * k.C + s.c);
            for (int l = 0; l < V; l++) about[l] += x.at[l] * (1.0f / SOME);
        }
    }
    const int64_t end = s.end * k.C + s.c, step = s.step * k.C;
    for (int64_t e = s.first * k.C + s.c; e < end;) {
        const int64_t stop = e + RUN * step < end ? e + RUN * step : end;
        float a[V] = {}, q[V] = {};
#pragma unroll 4
        for (; e < stop; e += step) {
            const rd_lanes<V> x = rd_lanes_get<V>(j.x + e);
            for (int l = 0; l < V; l++) {
                const float u = x.at[l] - about[l];
                a[l] += u;
                q[l] = fmaf(u, u, q[l]);
            }
        }
        for (int l = 0; l < V; l++) {
            runs[l] += a[l];
            runs[V + l] += q[l];
        }
    }
    double sum[2 * V];
    for (int l = 0; l < 2 * V; l++) sum[l] = (double)runs[l];
    rd_down_sum(sum, k.across);
    if ((int)threadIdx.x >= k.across || !s.inside) return;
    for (int l = 0; l < V; l++) {
        const double e = n > 0 ? sum[l] / (double)n : 0.0, square = sum[V + l] - e * sum[l];
        j.part[0][s.part * k.C + s.c + l] = (double)about[l] + e;
        j.part[1][s.part * k.C + s.c + l] = square < 0.0 ? 0.0 : square; /* NaN stays NaN */
    }
}

template <typename T> static __device__ inline double group_pixels(const job<T> &j, int64_t g)
{
    const int64_t left = j.k.total - g * j.k.rows;
    return (double)(left < j.k.rows ? left : j.k.rows);
}

/* Computes mean and variance of a group, from its slices or from the running statistics, and what
 * the next kernels need of them. */
template <typename T> static __global__ void __launch_bounds__(RD_BLOCK) join_statistics(job<T> j)
{
    const rd_columns &k = j.k;
    const int64_t g = blockIdx.x,
                  c = (int64_t)blockIdx.y * RD_SLICES_ACROSS + threadIdx.x % RD_SLICES_ACROSS,
                  at = g * k.C + c;
    const double M = group_pixels(j, g);
    double mean = 0.0, var = 0.0;
    if (j.batch) {
        double sum[1] = {0.0}, square[1] = {0.0};
        for (int64_t i = threadIdx.x / RD_SLICES_ACROSS; i < k.slices && c < k.C;
             i += RD_BLOCK / RD_SLICES_ACROSS)
            sum[0] += (double)rd_slice_rows(k, g, i) * j.part[0][(g * k.slices + i) * k.C + c];
        rd_down_sum(sum, RD_SLICES_ACROSS);
        mean = sum[0] / M;
        for (int64_t i = threadIdx.x / RD_SLICES_ACROSS; i < k.slices && c < k.C;
             i += RD_BLOCK / RD_SLICES_ACROSS) {
            const int64_t p = (g * k.slices + i) * k.C + c;
            const double off = j.part[0][p] - mean;
            square[0] += j.part[1][p] + (double)rd_slice_rows(k, g, i) * off * off;
        }
        rd_down_sum(square, RD_SLICES_ACROSS);
        var = square[0] / M;
    } else if (c < k.C) {
        mean = (double)j.run_mean[c];
        var = (double)j.run_var[c];
    }
    if (threadIdx.x >= RD_SLICES_ACROSS || c >= k.C) return;
    const double r = 1.0 / sqrt(var + (double)j.epsilon);
    j.s.mean[at] = (float)mean;
    j.s.r[at] = (float)r;
    j.s.var[at] = (float)(M > 1.0 ? var * M / (M - 1.0) : var);
    j.s.scale[at] = (float)(r * (double)j.gamma[c]);
}

template <int V, typename T>
static __global__ void __launch_bounds__(RD_BLOCK, 4) batch_norm_normalise(job<T> j)
{
    enum { U = 2 };
    const rd_columns &k = j.k;
    const rd_strip s = rd_strip_of<V>(k);
    rd_lanes<V> mean = {}, scale = {}, beta = {};
    if (s.inside) {
        mean = rd_lanes_get<V>(j.s.mean + s.group * k.C + s.c);
        scale = rd_lanes_get<V>(j.s.scale + s.group * k.C + s.c);
        beta = rd_lanes_get<V>(j.beta + s.c);
    }
    const int64_t rows = s.end - s.begin, last = (s.end - 1) * k.C + s.c;
    for (int64_t r = s.first - s.begin; r < rows; r += U * s.step) {
        rd_lanes<V> x[U] = {}, add[U] = {};
#pragma unroll
        for (int u = 0; u < U; u++)
            if (r + u * s.step < rows) {
                const int64_t e = last - (r + u * s.step) * k.C;
                x[u] = rd_lanes_get<V>(j.x + e);
                if (j.add) add[u] = rd_lanes_get<V>(j.add + e);
            }
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (r + u * s.step >= rows) break;
            for (int l = 0; l < V; l++) {
                float y = normalised(x[u].at[l], mean.at[l], scale.at[l], beta.at[l]);
                if (j.add) y += add[u].at[l];
                x[u].at[l] = j.relu && y < 0.0f ? 0.0f : y; /* NaN stays NaN */
            }
            rd_lanes_put<V>(j.y + last - (r + u * s.step) * k.C, x[u]);
        }
    }
}

/* Returns d of a vector: dy where y > 0. */
template <int V, typename T>
static __device__ inline rd_lanes<V> batch_norm_cuda_where_positive(
    const job<T> &j, rd_lanes<V> d, const rd_lanes<V> &x, const rd_lanes<V> &y,
    const rd_lanes<V> &mean, const rd_lanes<V> &scale, const rd_lanes<V> &beta)
{
    for (int l = 0; l < V; l++) {
        const float v = j.add ? y.at[l] : normalised(x.at[l], mean.at[l], scale.at[l], beta.at[l]);
        if (!(v > rd_rounds_to_zero<T>())) d.at[l] = 0.0f;
    }
    return d;
}

template <int V, typename T>
static __global__ void __launch_bounds__(RD_BLOCK, sizeof(T) == 2 ? 3 : 4) gradient_sums(job<T> j)
{
    /* Both types have the same number of bytes under way. */
    enum { U = sizeof(T) == 2 ? 2 : 1 };
    const rd_columns &k = j.k;
    const rd_strip s = rd_strip_of<V>(k);
    float runs[2 * V] = {};
    rd_lanes<V> mean = {}, scale = {}, beta = {};
    if (s.inside) {
        mean = rd_lanes_get<V>(j.s.mean + s.group * k.C + s.c);
        scale = rd_lanes_get<V>(j.s.scale + s.group * k.C + s.c);
        beta = rd_lanes_get<V>(j.beta + s.c);
    }
    const int64_t end = s.end * k.C + s.c, step = s.step * k.C;
    for (int64_t e = s.first * k.C + s.c; e < end;) {
        const int64_t stop = e + RUN * step < end ? e + RUN * step : end;
        float a[V] = {}, q[V] = {};
        for (; e < stop; e += U * step) {
            rd_lanes<V> d[U] = {}, x[U] = {}, y[U] = {};
#pragma unroll
            for (int u = 0; u < U; u++)
                if (u == 0 || e + u * step < stop) {
                    d[u] = rd_lanes_get<V>(j.d + e + u * step);
                    x[u] = rd_lanes_get<V>(j.x + e + u * step);
                    if (j.relu && j.add) y[u] = rd_lanes_get<V>(j.y + e + u * step);
                }
#pragma unroll
            for (int u = 0; u < U; u++) {
                if (u > 0 && e + u * step >= stop) break;
                if (j.relu)
                    d[u] = batch_norm_cuda_where_positive<V>(j, d[u], x[u], y[u], mean, scale,
                                                             beta);
                if (j.keep_d) rd_lanes_put<V>(j.d + e + u * step, d[u]);
                for (int l = 0; l < V; l++) {
                    a[l] += d[u].at[l];
                    q[l] = fmaf(d[u].at[l], x[u].at[l] - mean.at[l], q[l]);
                }
            }
        }
        for (int l = 0; l < V; l++) {
            runs[l] += a[l];
            runs[V + l] += q[l];
        }
    }
    double sum[2 * V];
    for (int l = 0; l < 2 * V; l++) sum[l] = (double)runs[l];
    rd_down_sum(sum, k.across);
    if ((int)threadIdx.x >= k.across || !s.inside) return;
    for (int l = 0; l < V; l++) {
        j.part[0][s.part * k.C + s.c + l] = sum[l];
        j.part[1][s.part * k.C + s.c + l] = sum[V + l];
    }
}

/* Adds to the gradients of the parameters, and to those of the running statistics:
 *   seed * sum over groups of (samples of the group) * (measured value) */
template <typename T>
static __device__ inline void batch_norm_add_to_parameters(const job<T> &j, int64_t c,
                                                           double dgamma, double dbeta)
{
    if (j.dgamma) j.dgamma[c] += (float)dgamma;
    if (j.dbeta) j.dbeta[c] += (float)dbeta;
    if (!j.batch || !j.dmean || !j.dvar) return;
    double mean = 0.0, var = 0.0;
    for (int64_t g = 0; g < j.k.groups; g++) {
        const double n = group_pixels(j, g) / (double)j.P;
        mean += n * (double)j.s.mean[g * j.k.C + c];
        var += n * (double)j.s.var[g * j.k.C + c];
    }
    j.dmean[c] += (float)((double)j.seed * mean);
    j.dvar[c] += (float)((double)j.seed * var);
}

template <typename T>
static __global__ void __launch_bounds__(RD_BLOCK) join_gradient_sums(job<T> j)
{
    const rd_columns &k = j.k;
    const int64_t g = blockIdx.x,
                  c = (int64_t)blockIdx.y * RD_SLICES_ACROSS + threadIdx.x % RD_SLICES_ACROSS,
                  at = g * k.C + c;
    const double sd = rd_slices_sum(k, j.part[0], c), sdx = rd_slices_sum(k, j.part[1], c);
    if (threadIdx.x >= RD_SLICES_ACROSS || c >= k.C) return;
    const double r = (double)j.s.r[at], M = group_pixels(j, g);
    j.shift[at] = j.batch ? (float)(sd / M) : 0.0f;
    j.slope[at] = j.batch ? (float)(sdx / M * r * r) : 0.0f;
    if (k.groups == 1) {
        batch_norm_add_to_parameters(j, c, sdx * r, sd);
    } else {
        j.sum[0][at] = sdx * r;
        j.sum[1][at] = sd;
    }
}

template <typename T> static __global__ void __launch_bounds__(RD_BLOCK) join_groups(job<T> j)
{
    for (RD_EACH(c, j.k.C)) {
        double dgamma = 0.0, dbeta = 0.0;
        for (int64_t g = 0; g < j.k.groups; g++) {
            dgamma += j.sum[0][g * j.k.C + c];
            dbeta += j.sum[1][g * j.k.C + c];
        }
        batch_norm_add_to_parameters(j, c, dgamma, dbeta);
    }
}

/* Computes dx (+)= scale (d - shift - (x - mean) slope) and dadd (+)= d. */
template <int V, typename T> static __global__ void __launch_bounds__(RD_BLOCK) gradient(job<T> j)
{
    enum { U = 2 };
    const rd_columns &k = j.k;
    const rd_strip s = rd_strip_of<V>(k);
    const bool relu = j.relu && !j.keep_d; /* else d is masked already */
    const bool reads_y = relu && j.add, reads_x = j.dx || (relu && !j.add);
    rd_lanes<V> mean = {}, scale = {}, beta = {}, shift = {}, slope = {};
    if (s.inside) {
        const int64_t at = s.group * k.C + s.c;
        mean = rd_lanes_get<V>(j.s.mean + at);
        scale = rd_lanes_get<V>(j.s.scale + at);
        beta = rd_lanes_get<V>(j.beta + s.c);
        shift = rd_lanes_get<V>(j.shift + at);
        slope = rd_lanes_get<V>(j.slope + at);
    }
    const int64_t rows = s.end - s.begin, last = (s.end - 1) * k.C + s.c;
    for (int64_t r = s.first - s.begin; r < rows; r += U * s.step) {
        rd_lanes<V> d[U] = {}, x[U] = {}, y[U] = {};
#pragma unroll
        for (int u = 0; u < U; u++)
            if (r + u * s.step < rows) {
                const int64_t e = last - (r + u * s.step) * k.C;
                d[u] = rd_lanes_get<V>(j.d + e);
                if (reads_x) x[u] = rd_lanes_get<V>(j.x + e);
                if (reads_y) y[u] = rd_lanes_get<V>(j.y + e);
            }
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (r + u * s.step >= rows) break;
            const int64_t e = last - (r + u * s.step) * k.C;
            if (relu)
                d[u] = batch_norm_cuda_where_positive<V>(j, d[u], x[u], y[u], mean, scale, beta);
            if (j.dadd) {
                rd_lanes<V> sum = {};
                if (j.add_dadd) sum = rd_lanes_get<V>(j.dadd + e);
                for (int l = 0; l < V; l++) sum.at[l] += d[u].at[l];
                rd_lanes_put<V>(j.dadd + e, sum);
            }
            if (!j.dx) continue;
            rd_lanes<V> sum = {};
            if (j.add_dx) sum = rd_lanes_get<V>(j.dx + e); /* dx may be dadd or d */
            for (int l = 0; l < V; l++)
                sum.at[l] += (d[u].at[l] - shift.at[l] - (x[u].at[l] - mean.at[l]) * slope.at[l]) *
                             scale.at[l];
            rd_lanes_put<V>(j.dx + e, sum);
        }
    }
}

template <typename T> static job<T> batch_norm_cuda_job_of(const rd_call *c)
{
    const rd_batch_norm *a = (const rd_batch_norm *)c->attr;
    const rd_var *x = c->in[0];
    const int64_t n = x->dim[0], group = a->group > 0 && c->training && a->group < n ? a->group : n;
    job<T> j = {};
    j.P = x->dim[1] * x->dim[2];
    j.k = rd_columns_of(x->dim[3], x->rows, group * j.P);
    j.batch = c->training;
    j.epsilon = a->epsilon;
    j.x = static_cast<const T *>(x->values);
    j.y = static_cast<T *>(c->out[0]->values);
    j.gamma = c->in[1]->v;
    j.beta = c->in[2]->v;
    j.add = c->in[3] ? static_cast<const T *>(c->in[3]->values) : NULL;
    j.run_mean = c->in[4]->v;
    j.run_var = c->in[5]->v;
    j.seed = c->seed;
    return j;
}

/* Returns the elements of an array [rows, C], rounded up so that the next array is aligned. */
template <typename T> static int64_t batch_norm_padded(const job<T> &j, int64_t rows)
{
    return (rows * j.k.C + 3) / 4 * 4;
}

template <typename T> static rd_code new_parts(rd_call *c, job<T> *j, rd_status *st)
{
    const int64_t n = batch_norm_padded(*j, j->k.groups * j->k.slices);
    RD_TRY_OR_RETURN(rd_arena_get(c->device_scratch, (size_t)(2 * n) * sizeof(double), &j->part[0],
                                  st));
    j->part[1] = j->part[0] + n;
    return RD_OK;
}

template <typename T> static rd_code batch_norm_cuda_forward(rd_call *c, rd_status *st)
{
    rd_gpu *gpu = rd_gpu_of(c->be);
    batch_norm_cuda_stats *s;
    float *mem;
    if (c->in[0]->rows == 0) return RD_OK;
    job<T> j = batch_norm_cuda_job_of<T>(c);
    const int64_t n = batch_norm_padded(j, j.k.groups);
    RD_TRY_OR_RETURN(rd_arena_get(c->kept, sizeof *s, &s, st));
    RD_TRY_OR_RETURN(rd_arena_get(c->device_kept, (size_t)(4 * n) * sizeof *mem, &mem, st));
    s->mean = mem;
    s->r = mem + n;
    s->var = mem + 2 * n;
    s->scale = mem + 3 * n;
    c->saved = s;
    j.s = *s;
    j.relu = ((const rd_batch_norm *)c->attr)->relu;
    if (j.batch) {
        RD_TRY_OR_RETURN(new_parts(c, &j, st));
        RD_LANES(j.k.C,
                 RD_LAUNCH(gpu, st, (statistics<V, T>), rd_columns_grid(j.k), RD_BLOCK, 0, j));
    }
    RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, join_statistics<T>, rd_slices_grid(j.k), RD_BLOCK, 0, j));
    RD_LANES(j.k.C, RD_LAUNCH(gpu, st, (batch_norm_normalise<V, T>), rd_columns_grid(j.k), RD_BLOCK,
                              0, j));
    return RD_OK;
}

template <typename T> static rd_code batch_norm_cuda_backward(rd_call *c, rd_status *st)
{
    rd_gpu *gpu = rd_gpu_of(c->be);
    const rd_batch_norm *a = (const rd_batch_norm *)c->attr;
    const rd_var *y = c->out[0], *add = c->in[3];
    bool had;
    if (y->rows == 0) return RD_OK;
    job<T> j = batch_norm_cuda_job_of<T>(c);
    j.s = *(const batch_norm_cuda_stats *)c->saved;
    j.relu = a->relu && !y->g_masked;
    j.d = static_cast<T *>(y->grads);
    j.dmean = c->in[4]->g;
    j.dvar = c->in[5]->g;
    RD_TRY_OR_RETURN(rd_call_grad(c, 1, &j.dgamma, &had, st));
    RD_TRY_OR_RETURN(rd_call_grad(c, 2, &j.dbeta, &had, st));
    if (add && add->needs_grad) {
        if (rd_call_pass_grad(c, 3))
            j.keep_d = j.relu;
        else
            RD_TRY_OR_RETURN(rd_call_grad(c, 3, &j.dadd, &j.add_dadd, st));
    }
    if (rd_call_pass_grad(c, 0))
        j.dx = j.d;
    else
        RD_TRY_OR_RETURN(rd_call_grad(c, 0, &j.dx, &j.add_dx, st));
    const int64_t n = batch_norm_padded(j, j.k.groups);
    RD_TRY_OR_RETURN(new_parts(c, &j, st));
    RD_TRY_OR_RETURN(rd_arena_get(c->device_scratch, (size_t)(2 * n) * sizeof(float), &j.shift,
                                  st));
    j.slope = j.shift + n;
    if (j.k.groups > 1) {
        RD_TRY_OR_RETURN(rd_arena_get(c->device_scratch, (size_t)(2 * n) * sizeof(double),
                                      &j.sum[0], st));
        j.sum[1] = j.sum[0] + n;
    }
    RD_LANES(j.k.C,
             RD_LAUNCH(gpu, st, (gradient_sums<V, T>), rd_columns_grid(j.k), RD_BLOCK, 0, j));
    RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, join_gradient_sums<T>, rd_slices_grid(j.k), RD_BLOCK, 0,
                               j));
    if (j.k.groups > 1)
        RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, join_groups<T>, rd_grid(j.k.C), RD_BLOCK, 0, j));
    if (j.dx || j.dadd)
        RD_LANES(j.k.C, RD_LAUNCH(gpu, st, (gradient<V, T>), rd_columns_grid(j.k), RD_BLOCK, 0, j));
    return RD_OK;
}

extern "C" rd_code rd_cuda_batch_norm_forward(rd_call *c, rd_status *st)
{
    RD_BY_ELEMENT(c->in[0]->type, batch_norm_cuda_forward<T>(c, st));
    return RD_OK;
}

extern "C" rd_code rd_cuda_batch_norm_backward(rd_call *c, rd_status *st)
{
    RD_BY_ELEMENT(c->in[0]->type, batch_norm_cuda_backward<T>(c, st));
    return RD_OK;
}
