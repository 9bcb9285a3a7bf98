/* rotary.cu -- rotary on a GPU: the formulas of rotary.c, with sines in double. A warp has a head
 * of a row. T is the type of rows and their gradients. */
#include "../engine/gpu/element_device.h"
#include "../engine/gpu/rows_grid.h"
#include "rotary.h"

enum { WARPS = 8 };

template <typename T> struct rotary_rows {
    int64_t N, cols, head, n_heads, heads, chunk;
    float eps;
    const float *table, *q_gain, *k_gain;
    const T *x, *dy;
    const int32_t *row;
    T *y; /* in backward dx, which may be dy */
    float *r;
    bool add;
};

/* The heads of this warp, with all lanes: head w % heads of row w / heads. */
#define EACH_WARP_HEAD(w, n)                                    \
    int64_t w = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; \
    w < (n);                                                    \
    w += (int64_t)gridDim.x * WARPS

static __global__ void rotary_table(int64_t n, int64_t half, const int64_t *__restrict__ position,
                                    const double *__restrict__ rate, float *__restrict__ table)
{
    for (RD_EACH_ROW(i, n))
        for (RD_EACH_COLUMN(k, half)) {
            const double angle = (double)position[i] * (rate ? rate[k] : 0.0);
            table[i * 2 * half + k] = (float)cos(angle);
            table[i * 2 * half + half + k] = (float)sin(angle);
        }
}

template <typename T> static __global__ void rotary_fwd(rotary_rows<T> n)
{
    const int lane = threadIdx.x % 32;
    const int64_t half = n.head / 2;
    for (EACH_WARP_HEAD(w, n.N * n.heads)) {
        const int64_t i = w / n.heads, h = w % n.heads, at = i * n.cols + h * n.head;
        const float *gain = h < n.n_heads ? n.q_gain : n.k_gain, *c = n.table + n.row[i] * n.head;
        float r = 1.0f, sum = 0.0f;
        if (gain) {
            for (int64_t k = lane; k < n.head; k += 32)
                sum += rd_get(n.x + at + k) * rd_get(n.x + at + k);
            r = 1.0f / sqrtf(rd_warp_sum(sum) / (float)n.head + n.eps);
            if (n.r && lane == 0) n.r[w] = r;
        }
        for (int64_t k = lane; k < half; k += 32) {
            const float a = rd_get(n.x + at + k) * (gain ? r * gain[k] : 1.0f),
                        b = rd_get(n.x + at + half + k) * (gain ? r * gain[half + k] : 1.0f);
            rd_put(n.y + at + k, a * c[k] - b * c[half + k]);
            rd_put(n.y + at + half + k, b * c[k] + a * c[half + k]);
        }
    }
}

/* Columns behind the heads. */
template <typename T> static __global__ void rotary_rest(rotary_rows<T> n, const T *from)
{
    const int64_t first = n.heads * n.head;
    for (RD_EACH_ROW(i, n.N))
        for (RD_EACH_COLUMN(k, n.cols - first)) {
            const int64_t at = i * n.cols + first + k;
            const float v = rd_get(from + at);
            rd_put(n.y + at, n.add ? rd_get(n.y + at) + v : v);
        }
}

template <typename T> static __global__ void rotary_bwd(rotary_rows<T> n)
{
    const int lane = threadIdx.x % 32;
    const int64_t half = n.head / 2;
    for (EACH_WARP_HEAD(w, n.N * n.heads)) {
        const int64_t i = w / n.heads, h = w % n.heads, at = i * n.cols + h * n.head;
        const float *gain = h < n.n_heads ? n.q_gain : n.k_gain, *c = n.table + n.row[i] * n.head,
                    *s = c + half;
        const float r = gain ? n.r[w] : 1.0f;
        float sum = 0.0f;
        for (int64_t k = lane; k < half && gain; k += 32) {
            const float p = rd_get(n.dy + at + k), q = rd_get(n.dy + at + half + k);
            sum += (p * c[k] + q * s[k]) * gain[k] * (rd_get(n.x + at + k) * r) +
                   (q * c[k] - p * s[k]) * gain[half + k] * (rd_get(n.x + at + half + k) * r);
        }
        const float mean = gain ? rd_warp_sum(sum) / (float)n.head : 0.0f;
        for (int64_t k = lane; k < half; k += 32) {
            const float p = rd_get(n.dy + at + k), q = rd_get(n.dy + at + half + k);
            float a = p * c[k] + q * s[k], b = q * c[k] - p * s[k];
            if (gain) {
                a = r * (a * gain[k] - rd_get(n.x + at + k) * r * mean);
                b = r * (b * gain[half + k] - rd_get(n.x + at + half + k) * r * mean);
            }
            rd_put(n.y + at + k, n.add ? rd_get(n.y + at + k) + a : a);
            rd_put(n.y + at + half + k, n.add ? rd_get(n.y + at + half + k) + b : b);
        }
    }
}

/* Sums of a chunk of rows: part[chunk][0][head] of the gain of queries, part[chunk][1][head] of
 * that of keys. It reads dy before rotary_bwd overwrites it. */
template <typename T>
static __global__ void rotary_chunks(rotary_rows<T> n, int64_t chunks, float *part)
{
    const int64_t half = n.head / 2;
    for (RD_EACH(e, chunks * 2 * half)) {
        const int64_t chunk = e / (2 * half), key = e / half % 2, k = e % half,
                      end = (chunk + 1) * n.chunk < n.N ? (chunk + 1) * n.chunk : n.N;
        float low = 0.0f, high = 0.0f;
        for (int64_t i = chunk * n.chunk; i < end; i++) {
            const float *c = n.table + n.row[i] * n.head, cosine = c[k], sine = c[half + k];
            for (int64_t h = key ? n.n_heads : 0; h < (key ? n.heads : n.n_heads); h++) {
                const int64_t at = i * n.cols + h * n.head;
                const float p = rd_get(n.dy + at + k), q = rd_get(n.dy + at + half + k),
                            r = n.r[i * n.heads + h];
                low += (p * cosine + q * sine) * (rd_get(n.x + at + k) * r);
                high += (q * cosine - p * sine) * (rd_get(n.x + at + half + k) * r);
            }
        }
        part[(chunk * 2 + key) * n.head + k] = low;
        part[(chunk * 2 + key) * n.head + half + k] = high;
    }
}

static __global__ void rotary_sums(int64_t chunks, int64_t head, const float *part, float *q_gain,
                                   float *k_gain)
{
    for (RD_EACH(k, 2 * head)) {
        float *to = k < head ? q_gain : k_gain, sum = 0.0f;
        if (!to) continue;
        for (int64_t c = 0; c < chunks; c++) sum += part[c * 2 * head + k];
        to[k % head] += sum;
    }
}

template <typename T> static rotary_rows<T> rotary_rows_of(const rd_call *c)
{
    const rd_rotary *a = static_cast<const rd_rotary *>(c->attr);
    rotary_rows<T> n = {};
    n.N = c->in[0]->rows;
    n.cols = c->in[0]->cols;
    n.head = a->head;
    n.n_heads = a->n_heads;
    n.heads = a->n_heads + a->n_kv_heads;
    n.chunk = rd_rotary_chunk(n.N);
    n.eps = a->eps;
    n.x = static_cast<const T *>(c->in[0]->values);
    n.q_gain = c->in[1] ? c->in[1]->v : NULL;
    n.k_gain = c->in[2] ? c->in[2]->v : NULL;
    return n;
}

template <typename T>
static rd_code rest(rd_gpu *gpu, const rotary_rows<T> &n, const T *from, rd_status *st)
{
    const int64_t columns = n.cols - n.heads * n.head;
    if (columns == 0) return RD_OK;
    return RD_LAUNCH(gpu, st, rotary_rest<T>, rd_rows_grid(n.N, columns), rd_rows_block(columns), 0,
                     n, from);
}

template <typename T> static rd_code rotary_forward(rd_call *c, rd_status *st)
{
    const rd_rotary *a = static_cast<const rd_rotary *>(c->attr);
    rd_gpu *gpu = rd_gpu_of(c->be);
    rotary_rows<T> n = rotary_rows_of<T>(c);
    const int64_t half = n.head / 2;
    rd_rotary_saved *s;
    rd_position_set set;
    const int64_t *position;
    const double *rate = NULL;
    float *table;
    RD_TRY_OR_RETURN(rd_arena_zero(c->kept, sizeof *s, &s, st));
    c->saved = s;
    if (n.N == 0) return RD_OK;
    RD_TRY_OR_RETURN(rd_position_set_of(c->kept, n.N, a->position, &set, st));
    RD_TRY_OR_RETURN(rd_call_lend(c, c->device_scratch, set.position,
                                  (size_t)set.n * sizeof *position, &position, st));
    if (a->rate)
        RD_TRY_OR_RETURN(rd_call_lend(c, c->device_scratch, a->rate, (size_t)half * sizeof *rate,
                                      &rate, st));
    RD_TRY_OR_RETURN(rd_call_lend(c, c->device_kept, set.row, (size_t)n.N * sizeof *s->row, &s->row,
                                  st));
    RD_TRY_OR_RETURN(rd_arena_get(c->device_kept, (size_t)(set.n * n.head) * sizeof *table, &table,
                                  st));
    if (c->keep && n.q_gain)
        RD_TRY_OR_RETURN(rd_arena_get(c->device_kept, (size_t)(n.N * n.heads + 1) * sizeof *s->r,
                                      &s->r, st));
    RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, rotary_table, rd_rows_grid(set.n, half),
                               rd_rows_block(half), 0, set.n, half, position, rate, table));
    s->table = n.table = table;
    n.row = s->row;
    n.r = s->r;
    n.y = static_cast<T *>(c->out[0]->values);
    RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, rotary_fwd<T>, rd_grid(n.N * n.heads, WARPS), 32 * WARPS, 0,
                               n));
    return rest(gpu, n, n.x, st);
}

template <typename T> static rd_code rotary_backward(rd_call *c, rd_status *st)
{
    const rd_rotary_saved *s = static_cast<const rd_rotary_saved *>(c->saved);
    rd_gpu *gpu = rd_gpu_of(c->be);
    rotary_rows<T> n = rotary_rows_of<T>(c);
    const int64_t chunks = (n.N + n.chunk - 1) / n.chunk;
    float *part;
    void *dx;
    RD_TRY_OR_RETURN(rd_rotary_gradient(c, &dx, &n.add, st));
    n.y = static_cast<T *>(dx);
    for (int i = 1; i < 3; i++)
        if (c->in[i]) RD_TRY_OR_RETURN(rd_call_zero_grad(c, i, st));
    if (n.N == 0) return RD_OK;
    if (!n.y) return rd_fail(st, RD_EBUG, "rotary: the heads need no gradient");
    n.table = s->table;
    n.row = s->row;
    n.r = s->r;
    n.dy = static_cast<const T *>(c->out[0]->grads);
    if (n.q_gain) {
        RD_TRY_OR_RETURN(rd_arena_get(c->device_scratch,
                                      (size_t)(chunks * 2 * n.head) * sizeof *part, &part, st));
        RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, rotary_chunks<T>, rd_grid(chunks * n.head), RD_BLOCK, 0,
                                   n, chunks, part));
        RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, rotary_sums, rd_grid(2 * n.head), RD_BLOCK, 0, chunks,
                                   n.head, part, c->in[1]->g, c->in[2]->g));
    }
    RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, rotary_bwd<T>, rd_grid(n.N * n.heads, WARPS), 32 * WARPS, 0,
                               n));
    return n.y == n.dy ? RD_OK : rest(gpu, n, n.dy, st);
}

extern "C" rd_code rd_cuda_rotary_forward(rd_call *c, rd_status *st)
{
    RD_BY_ELEMENT(c->in[0]->type, (rotary_forward<T>(c, st)));
    return RD_OK;
}

extern "C" rd_code rd_cuda_rotary_backward(rd_call *c, rd_status *st)
{
    RD_BY_ELEMENT(c->in[0]->type, (rotary_backward<T>(c, st)));
    return RD_OK;
}
