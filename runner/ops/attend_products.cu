/* attend_products.cu -- attention on a GPU by products of the library, with scores in memory.
 *
 * Sequences of similar length form a group. A kernel copies their heads to arrays of one shape, and
 * rounds them to the operands of the products. Rows behind the end of a sequence are zeros. With
 * Tq, Tk the longest queries and keys, and for each sequence and key head:
 *
 *     forward    S = Q K^T,  P = drop(softmax(scale S)),  O = P V
 *     backward   S = Q K^T,  dP = dO V^T,  dV = P^T dO,  dQ = dS K,  dK = dS^T Q
 *
 * The query heads of one key head follow each other, so they are more rows of the same product. One
 * kernel has mask, softmax and dropout, another one their gradients. Both draw the masks; no mask
 * is stored. A group takes 5 launches forward and 8 backward.
 *
 * FLOPs: 4 Tq Tk head for each query head forward, 10 backward. Bytes of a score: forward 16 in
 * float32, 12 with 16-bit operands; backward 28 and 22 (written, read by the kernel, results
 * written, read by products, twice where two products read them). */
#include "attend_gpu.h"
#include <stdlib.h>

/* Scores of a group: at most 64 MiB. */
static const size_t GROUP_BYTES = (size_t)64 << 20;

/* A group and where its heads are. Tq, Tk and width are multiples of 8. */
struct products_group {
    const rd_attend_seq *seq;
    const int32_t *key_row; /* NULL: rows in order */
    int64_t n, Tq, Tk, width;
    int64_t n_heads, n_kv_heads, head, q_at, k_at, v_at, Nq;
    float scale;
    bool causal;
    attend_matrix q, kv;
};

/* The masks: keys of the heads, NULL without dropout. */
struct products_drop {
    const rd_key *key;
    uint32_t limit;
    float inv_keep;
};

/* A row of an array of the group: [n, heads, T] rows. A group has less than 2^32 of them, and
 * divisions of 32 bits are far cheaper. */
struct products_row {
    int64_t i, head;
    rd_attend_seq s;
};
static __device__ inline products_row row_at(const products_group &g, int64_t row, int64_t T,
                                             int64_t heads)
{
    const uint32_t head = (uint32_t)row / (uint32_t)T, s = head / (uint32_t)heads;
    return {row - (int64_t)head * T, head - s * (uint32_t)heads, g.seq[s]};
}

template <typename E>
static __device__ inline void pack_row(const attend_matrix &from, int64_t at, bool valid,
                                       int64_t head, int64_t width, E *to)
{
    for (int64_t c = threadIdx.x; c < width; c += 32)
        rd_put(to + c, valid && c < head ? attend_get(from, at + c) : 0.0f);
}

/* Copies heads to [n, heads, T, width], a warp for each row: Q, K, V, and dO unless it is NULL. */
template <typename E>
static __global__ void products_pack(products_group g, attend_matrix d_o, E *Q, E *K, E *V, E *dO)
{
    const int64_t nq = g.n * g.n_heads * g.Tq, nk = g.n * g.n_kv_heads * g.Tk,
                  n = (dO ? 2 : 1) * nq + 2 * nk, step = (int64_t)gridDim.x * blockDim.y;
    for (int64_t k = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; k < n; k += step) {
        if (k < 2 * nk) {
            const int64_t row = k < nk ? k : k - nk;
            const products_row r = row_at(g, row, g.Tk, g.n_kv_heads);
            const bool valid = r.i < r.s.k_len;
            const int64_t from = r.s.k_first + (valid ? r.i : 0),
                          at = (g.key_row ? g.key_row[from] : from) * g.kv.cols +
                               (k < nk ? g.k_at : g.v_at) + r.head * g.head;
            pack_row(g.kv, at, valid, g.head, g.width, (k < nk ? K : V) + row * g.width);
        } else {
            const bool queries = k - 2 * nk < nq;
            const int64_t row = k - 2 * nk - (queries ? 0 : nq);
            const products_row r = row_at(g, row, g.Tq, g.n_heads);
            const attend_matrix from = queries ? g.q : d_o;
            pack_row(from,
                     (r.s.q_first + r.i) * from.cols + (queries ? g.q_at : 0) + r.head * g.head,
                     r.i < r.s.q_len, g.head, g.width, (queries ? Q : dO) + row * g.width);
        }
    }
}

/* Writes the rows of O [n, n_heads, Tq, width] to their places. */
static __global__ void products_unpack(products_group g, const float *O, attend_matrix out)
{
    const int64_t n = g.n * g.n_heads * g.Tq, step = (int64_t)gridDim.x * blockDim.y;
    for (int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; row < n; row += step) {
        const products_row r = row_at(g, row, g.Tq, g.n_heads);
        if (r.i >= r.s.q_len) continue;
        for (int64_t c = threadIdx.x; c < g.head; c += 32)
            attend_put(out, (r.s.q_first + r.i) * out.cols + r.head * g.head + c,
                       O[row * g.width + c]);
    }
}

static __device__ inline void add_row(const attend_matrix &to, int64_t at, int64_t head,
                                      const float *from)
{
    for (int64_t c = threadIdx.x; c < head; c += 32)
        attend_put(to, at + c, attend_get(to, at + c) + from[c]);
}

/* Adds the gradients of the heads at their places. dq or dkv may have no address: not wanted. */
static __global__ void products_add(products_group g, const float *dQ, const float *dK,
                                    const float *dV, attend_matrix dq, attend_matrix dkv)
{
    const int64_t nq = dq.at ? g.n * g.n_heads * g.Tq : 0,
                  nk = dkv.at ? g.n * g.n_kv_heads * g.Tk : 0, n = nq + 2 * nk,
                  step = (int64_t)gridDim.x * blockDim.y;
    for (int64_t k = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; k < n; k += step) {
        if (k < nq) {
            const products_row r = row_at(g, k, g.Tq, g.n_heads);
            if (r.i < r.s.q_len)
                add_row(dq, (r.s.q_first + r.i) * dq.cols + g.q_at + r.head * g.head, g.head,
                        dQ + k * g.width);
        } else {
            const bool is_k = k - nq < nk;
            const int64_t row = k - nq - (is_k ? 0 : nk);
            const products_row r = row_at(g, row, g.Tk, g.n_kv_heads);
            if (r.i < r.s.k_len)
                add_row(dkv,
                        (r.s.k_first + r.i) * dkv.cols + (is_k ? g.k_at : g.v_at) + r.head * g.head,
                        g.head, (is_k ? dK : dV) + row * g.width);
        }
    }
}

/* Returns how many keys a row of scores sees; 0 behind the end of the sequence. */
static __device__ inline int64_t row_sees(const products_group &g, const products_row &r)
{
    return r.i >= r.s.q_len ? 0 : g.causal ? r.i + r.s.k_len - r.s.q_len + 1 : r.s.k_len;
}

/* Returns the factors of dropout for the keys from 8 block on. */
static __device__ inline rd_lanes<8> row_drop(const products_drop &d, const products_row &r,
                                              int64_t block)
{
    rd_lanes<8> w;
    const uint32_t byte = d.key ? attend_drop_byte(d.key[r.head], r.s.sample, r.i, block, d.limit)
                                : 0xffu;
    for (int j = 0; j < 8; j++) w.at[j] = byte >> j & 1 ? d.inv_keep : 0.0f;
    return w;
}

/* P = drop(softmax(scale S)) row by row. `lanes` threads have a row, and each of them eight keys at
 * a time. P may be S. lse: NULL, or [n_heads, Nq]. */
template <typename E>
static __global__ void products_softmax(products_group g, products_drop d, int lanes,
                                        const float *S, E *P, float *lse)
{
    const int64_t rows = g.n * g.n_heads * g.Tq,
                  me = (int64_t)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes,
                  row = me < rows ? me : 0;
    const int lane = threadIdx.x % lanes;
    const products_row r = row_at(g, row, g.Tq, g.n_heads);
    const int64_t seen = me < rows ? row_sees(g, r) : 0;
    const float *x = S + row * g.Tk;
    float m = -INFINITY, l = 0.0f;
    for (int64_t b = 8 * lane; b < seen; b += 8 * lanes) {
        const rd_lanes<8> v = rd_lanes_get<8>(x + b);
        for (int j = 0; j < 8; j++)
            if (b + j < seen) m = fmaxf(m, v.at[j] * g.scale);
    }
    for (int k = lanes / 2; k > 0; k /= 2) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, k));
    for (int64_t b = 8 * lane; b < seen; b += 8 * lanes) {
        const rd_lanes<8> v = rd_lanes_get<8>(x + b);
        for (int j = 0; j < 8; j++)
            if (b + j < seen) l += expf(v.at[j] * g.scale - m);
    }
    for (int k = lanes / 2; k > 0; k /= 2) l += __shfl_xor_sync(0xffffffffu, l, k);
    if (me >= rows) return;
    const float inv = 1.0f / l;
    for (int64_t b = 8 * lane; b < g.Tk; b += 8 * lanes) {
        rd_lanes<8> p = {};
        if (b < seen) {
            const rd_lanes<8> v = rd_lanes_get<8>(x + b), w = row_drop(d, r, b / 8);
            for (int j = 0; j < 8; j++)
                if (b + j < seen) p.at[j] = expf(v.at[j] * g.scale - m) * inv * w.at[j];
        }
        rd_lanes_put<8>(P + row * g.Tk + b, p);
    }
    if (lse && lane == 0 && seen > 0) lse[r.head * g.Nq + r.s.q_first + r.i] = m + logf(l);
}

/* From S and dP: P after dropout, and the gradients of the scores,
 *     dS = scale p (w dP - D),  D = sum p w dP,  p = exp(scale S - lse),  w: factors of dropout.
 * P may be S, and dS may be dP. */
template <typename E>
static __global__ void products_grads(products_group g, products_drop d, int lanes, const float *S,
                                      const float *dP, const float *lse, E *P, E *dS)
{
    const int64_t rows = g.n * g.n_heads * g.Tq,
                  me = (int64_t)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes,
                  row = me < rows ? me : 0;
    const int lane = threadIdx.x % lanes;
    const products_row r = row_at(g, row, g.Tq, g.n_heads);
    const int64_t seen = me < rows ? row_sees(g, r) : 0;
    const float *x = S + row * g.Tk, *y = dP + row * g.Tk,
                level = seen > 0 ? lse[r.head * g.Nq + r.s.q_first + r.i] : 0.0f;
    float D = 0.0f;
    for (int64_t b = 8 * lane; b < seen; b += 8 * lanes) {
        const rd_lanes<8> v = rd_lanes_get<8>(x + b), dp = rd_lanes_get<8>(y + b),
                          w = row_drop(d, r, b / 8);
        for (int j = 0; j < 8; j++)
            if (b + j < seen) D += expf(v.at[j] * g.scale - level) * w.at[j] * dp.at[j];
    }
    for (int k = lanes / 2; k > 0; k /= 2) D += __shfl_xor_sync(0xffffffffu, D, k);
    if (me >= rows) return;
    for (int64_t b = 8 * lane; b < g.Tk; b += 8 * lanes) {
        rd_lanes<8> p = {}, ds = {};
        if (b < seen) {
            const rd_lanes<8> v = rd_lanes_get<8>(x + b), dp = rd_lanes_get<8>(y + b),
                              w = row_drop(d, r, b / 8);
            for (int j = 0; j < 8; j++) {
                if (b + j >= seen) continue;
                const float e = expf(v.at[j] * g.scale - level);
                p.at[j] = e * w.at[j];
                ds.at[j] = e * (w.at[j] * dp.at[j] - D) * g.scale;
            }
        }
        rd_lanes_put<8>(P + row * g.Tk + b, p);
        rd_lanes_put<8>(dS + row * g.Tk + b, ds);
    }
}

/* ---- host ---- */

/* Sequences [first, first + n) of the sorted list. */
struct products_part {
    int64_t first, n, Tq, Tk;
};

/* Arrays of the largest group. */
struct products_room {
    void *Q, *K, *V, *dO; /* of the operands' type */
    void *P, *dS;         /* the same; in float32 they are S and dP */
    float *S, *dP;
    float *O, *dK, *dV; /* O: also dQ */
};

struct products_job {
    products_group g;
    products_drop drop;
    rd_element type; /* of the operands */
    const products_part *part;
    int64_t n_parts;
    products_room room;
};

static int64_t products_padded(int64_t n)
{
    return (n + 7) / 8 * 8;
}

static int products_by_length(const void *a, const void *b)
{
    const rd_attend_seq *x = static_cast<const rd_attend_seq *>(a),
                        *y = static_cast<const rd_attend_seq *>(b);
    if (x->k_len != y->k_len) return x->k_len > y->k_len ? -1 : 1;
    if (x->q_len != y->q_len) return x->q_len > y->q_len ? -1 : 1;
    return x->q_first < y->q_first ? -1 : x->q_first > y->q_first;
}

/* Sorts the sequences that have queries, the longest first, and cuts them into groups. */
static rd_code products_cut(rd_call *c, products_job *j, rd_status *st)
{
    const rd_attend *a = static_cast<const rd_attend *>(c->attr);
    const int64_t most = (int64_t)(rd_backend_block_bytes(c->be, GROUP_BYTES) / sizeof(float));
    rd_attend_seq *list;
    products_part *part;
    int64_t mask_bytes, n = 0;
    RD_TRY_OR_RETURN(rd_attend_list(c->scratch, a, &list, &mask_bytes, st));
    for (int64_t s = 0; s < a->n; s++)
        if (list[s].q_len > 0) list[n++] = list[s];
    qsort(list, (size_t)n, sizeof *list, products_by_length);
    RD_TRY_OR_RETURN(rd_arena_get(c->scratch, (size_t)(n + 1) * sizeof *part, &part, st));
    j->n_parts = 0;
    for (int64_t s = 0; s < n; s++) {
        const int64_t q = products_padded(list[s].q_len), k = products_padded(list[s].k_len);
        products_part *p = part + j->n_parts - 1;
        const int64_t Tq = j->n_parts > 0 && p->Tq > q ? p->Tq : q;
        if (j->n_parts > 0 && (p->n + 1) * a->n_heads * Tq * p->Tk <= most) {
            p->n++;
            p->Tq = Tq;
        } else {
            part[j->n_parts++] = {s, 1, q, k};
        }
    }
    j->part = part;
    return rd_call_lend(c, c->device_scratch, list, (size_t)(n + 1) * sizeof *list, &j->g.seq, st);
}

static rd_code products_memory(rd_call *c, products_job *j, bool back, rd_status *st)
{
    const products_group &g = j->g;
    products_room *r = &j->room;
    int64_t q = 0, k = 0, x = 0;
    const size_t e = rd_element_bytes(j->type);
    for (int64_t i = 0; i < j->n_parts; i++) {
        const products_part &p = j->part[i];
        const int64_t rows = p.n * g.n_heads * p.Tq, keys = p.n * g.n_kv_heads * p.Tk;
        if (rows > q) q = rows;
        if (keys > k) k = keys;
        if (rows * p.Tk > x) x = rows * p.Tk;
    }
    q *= g.width;
    k *= g.width;
    const struct {
        void *to;
        size_t bytes;
    } all[] = {{&r->Q, (size_t)q * e},
               {&r->K, (size_t)k * e},
               {&r->V, (size_t)k * e},
               {&r->S, (size_t)x * sizeof(float)},
               {&r->O, (size_t)q * sizeof(float)},
               {&r->dO, back ? (size_t)q * e : 0},
               {&r->dP, back ? (size_t)x * sizeof(float) : 0},
               {&r->dK, back ? (size_t)k * sizeof(float) : 0},
               {&r->dV, back ? (size_t)k * sizeof(float) : 0},
               {&r->P, j->type == RD_FLOAT32 ? 0 : (size_t)x * e},
               {&r->dS, j->type == RD_FLOAT32 || !back ? 0 : (size_t)x * e}};
    for (const auto &one : all)
        if (one.bytes) RD_TRY_OR_RETURN(rd_arena_get(c->device_scratch, one.bytes, one.to, st));
    if (j->type == RD_FLOAT32) {
        r->P = r->S;
        r->dS = r->dP;
    }
    return st->code;
}

static rd_code products_begin(rd_call *c, products_job *j, bool back, rd_status *st)
{
    const rd_attend *a = static_cast<const rd_attend *>(c->attr);
    products_group *g = &j->g;
    *g = {};
    g->width = products_padded(a->head);
    g->n_heads = a->n_heads;
    g->n_kv_heads = a->n_kv_heads;
    g->head = a->head;
    g->q_at = a->q_at;
    g->k_at = a->k_at;
    g->v_at = a->v_at;
    g->Nq = c->out[0]->rows;
    g->scale = a->scale;
    g->causal = a->causal;
    g->q = attend_values(c->in[0]);
    g->kv = attend_values(c->in[1]);
    if (a->key_row)
        RD_TRY_OR_RETURN(rd_call_lend(c, c->device_scratch, a->key_row,
                                      (size_t)a->n_key_row * sizeof *a->key_row, &g->key_row, st));
    j->type = rd_gpu_narrow(rd_gpu_of(c->be));
    j->drop = {NULL, rd_philox_limit(a->drop.keep), 1.0f};
    RD_TRY_OR_RETURN(rd_attend_mask_keys(c, &j->drop.key, st));
    if (j->drop.key) j->drop.inv_keep = 1.0f / a->drop.keep;
    RD_TRY_OR_RETURN(products_cut(c, j, st));
    return products_memory(c, j, back, st);
}

static products_group products_of(const products_job *j, int64_t part)
{
    products_group g = j->g;
    const products_part &p = j->part[part];
    g.seq += p.first;
    g.n = p.n;
    g.Tq = p.Tq;
    g.Tk = p.Tk;
    return g;
}

/* Returns the threads that have a row of scores: a power of two, up to a warp. */
static int products_lanes(int64_t Tk)
{
    int lanes = 1;
    while (lanes < 32 && lanes * 8 < Tk) lanes *= 2;
    return lanes;
}

static unsigned products_grid(const products_group &g, int lanes)
{
    return (unsigned)((g.n * g.n_heads * g.Tq * lanes + RD_BLOCK - 1) / RD_BLOCK);
}

enum { ROW_WARPS = 8 };
static const dim3 ROW_BLOCK(32, ROW_WARPS);

/* C = op(A) op(B) for each sequence and key head of a group; `rows`, `inner`, `cols` of one. */
static rd_code products_multiply(rd_call *c, const products_group &g, rd_element type, bool ta,
                                 bool tb, int64_t rows, int64_t cols, int64_t inner, void *A,
                                 void *B, float *C, rd_status *st)
{
    return rd_gpu_product_batched(rd_gpu_of(c->be), ta, tb, rows, cols, inner,
                                  {A, type, ta ? rows : inner}, rows * inner,
                                  {B, type, tb ? inner : cols}, inner * cols, 0.0f,
                                  {C, RD_FLOAT32, cols}, rows * cols, g.n * g.n_kv_heads, st);
}

template <typename E>
static rd_code products_group_forward(rd_call *c, const products_job *j, const products_group &g,
                                      float *lse, rd_status *st)
{
    rd_gpu *gpu = rd_gpu_of(c->be);
    const products_room &r = j->room;
    const int64_t rows = g.n_heads / g.n_kv_heads * g.Tq, all = g.n * g.n_heads * g.Tq;
    const int lanes = products_lanes(g.Tk);
    const attend_matrix none = {};
    RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, (products_pack<E>),
                               rd_grid(all + 2 * g.n * g.n_kv_heads * g.Tk, ROW_WARPS), ROW_BLOCK,
                               0, g, none, static_cast<E *>(r.Q), static_cast<E *>(r.K),
                               static_cast<E *>(r.V), static_cast<E *>(NULL)));
    RD_TRY_OR_RETURN(products_multiply(c, g, j->type, false, true, rows, g.Tk, g.width, r.Q, r.K,
                                       r.S, st));
    RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, (products_softmax<E>), products_grid(g, lanes), RD_BLOCK, 0,
                               g, j->drop, lanes, r.S, static_cast<E *>(r.P), lse));
    RD_TRY_OR_RETURN(products_multiply(c, g, j->type, false, false, rows, g.width, g.Tk, r.P, r.V,
                                       r.O, st));
    return RD_LAUNCH(gpu, st, products_unpack, rd_grid(all, ROW_WARPS), ROW_BLOCK, 0, g, r.O,
                     attend_values(c->out[0]));
}

template <typename E>
static rd_code products_group_backward(rd_call *c, const products_job *j, const products_group &g,
                                       const float *lse, rd_status *st)
{
    rd_gpu *gpu = rd_gpu_of(c->be);
    const products_room &r = j->room;
    const int64_t rows = g.n_heads / g.n_kv_heads * g.Tq, all = g.n * g.n_heads * g.Tq,
                  keys = g.n * g.n_kv_heads * g.Tk;
    const int lanes = products_lanes(g.Tk);
    const attend_matrix dq = attend_grads(c->in[0]), dkv = attend_grads(c->in[1]);
    RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, (products_pack<E>), rd_grid(2 * all + 2 * keys, ROW_WARPS),
                               ROW_BLOCK, 0, g, attend_grads(c->out[0]), static_cast<E *>(r.Q),
                               static_cast<E *>(r.K), static_cast<E *>(r.V),
                               static_cast<E *>(r.dO)));
    RD_TRY_OR_RETURN(products_multiply(c, g, j->type, false, true, rows, g.Tk, g.width, r.Q, r.K,
                                       r.S, st));
    RD_TRY_OR_RETURN(products_multiply(c, g, j->type, false, true, rows, g.Tk, g.width, r.dO, r.V,
                                       r.dP, st));
    RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, (products_grads<E>), products_grid(g, lanes), RD_BLOCK, 0,
                               g, j->drop, lanes, r.S, r.dP, lse, static_cast<E *>(r.P),
                               static_cast<E *>(r.dS)));
    if (dkv.at) {
        RD_TRY_OR_RETURN(products_multiply(c, g, j->type, true, false, g.Tk, g.width, rows, r.P,
                                           r.dO, r.dV, st));
        RD_TRY_OR_RETURN(products_multiply(c, g, j->type, true, false, g.Tk, g.width, rows, r.dS,
                                           r.Q, r.dK, st));
    }
    if (dq.at)
        RD_TRY_OR_RETURN(products_multiply(c, g, j->type, false, false, rows, g.width, g.Tk, r.dS,
                                           r.K, r.O, st));
    return RD_LAUNCH(gpu, st, products_add,
                     rd_grid((dq.at ? all : 0) + (dkv.at ? 2 * keys : 0), ROW_WARPS), ROW_BLOCK, 0,
                     g, r.O, r.dK, r.dV, dq, dkv);
}

rd_code rd_attend_products_forward(rd_call *c, const rd_attend_saved *saved, rd_status *st)
{
    products_job j = {};
    RD_TRY_OR_RETURN(products_begin(c, &j, false, st));
    for (int64_t i = 0; i < j.n_parts; i++)
        RD_BY_ELEMENT(j.type, products_group_forward<T>(c, &j, products_of(&j, i), saved->lse, st));
    return st->code;
}

rd_code rd_attend_products_backward(rd_call *c, const rd_attend_saved *saved, rd_status *st)
{
    products_job j = {};
    RD_TRY_OR_RETURN(products_begin(c, &j, true, st));
    for (int64_t i = 0; i < j.n_parts; i++)
        RD_BY_ELEMENT(j.type,
                      products_group_backward<T>(c, &j, products_of(&j, i), saved->lse, st));
    return st->code;
}
