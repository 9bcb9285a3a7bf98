/* attend.cu -- attend on a GPU: the choice between three ways, and the way by rows.
 *
 * By rows, in float32, and T is the type of queries, keys, values, the result and their gradients.
 * A warp has one query row (forward, dQ) or one key row (dK, dV) at a time. Its lanes have 32 keys
 * (or queries) of a tile while scores are computed, and 32 columns of the head while rows are
 * summed. The tile is in shared memory. One warp owns each result, and adds in a fixed order. */
#include "attend_gpu.h"
#include <stdlib.h>

enum { WARPS = 4 };

/* Returns the rows of a warp: wide heads have fewer, so that a block needs less than 48 KiB. */
static __host__ __device__ constexpr int warp_rows(int64_t head)
{
    return head <= 64 ? 4 : 2;
}

/* The numbers of rd_attend, without its host arrays. */
struct attend_shape {
    int64_t n_heads, n_kv_heads, head, q_at, k_at, v_at;
    float scale;
    bool causal;
};

template <typename T> struct attend_gpu {
    attend_shape a;
    const rd_attend_seq *seq;
    const rd_attend_tile *tile;
    const int32_t *key_row; /* NULL: rows in order */
    const T *q, *kv, *o, *d_o;
    T *out, *dq, *dkv;
    float *lse;
    uint32_t *mask;
    int64_t q_cols, k_cols, Nq;
    uint32_t limit;
    float inv_keep;
    bool drop;
};

template <typename T>
static __device__ inline const T *key_at(const attend_gpu<T> &g, const rd_attend_seq &s, int64_t k)
{
    const int64_t row = g.key_row ? g.key_row[s.k_first + k] : s.k_first + k;
    return g.kv + row * g.k_cols;
}

/* Returns how many keys query row i sees. */
template <typename T>
static __device__ inline int64_t keys_seen(const attend_gpu<T> &g, const rd_attend_seq &s,
                                           int64_t i)
{
    return g.a.causal ? i + s.k_len - s.q_len + 1 : s.k_len;
}

/* Returns how many keys the rows of a tile see; end: the row behind the tile. */
template <typename T>
static __device__ inline int64_t keys_of_tile(const attend_gpu<T> &g, const rd_attend_seq &s,
                                              int64_t end)
{
    return keys_seen(g, s, (end < s.q_len ? end : s.q_len) - 1);
}

static __device__ inline int64_t mask_word(const rd_attend_seq &s, int64_t head, int64_t i,
                                           int64_t k)
{
    return s.mask / 4 + (head * s.q_len + i) * ((s.k_len + 31) / 32) + k / 32;
}

/* Returns the 32 mask bits of keys k0 .. k0 + 31 of a query row. All lanes call it. */
static __device__ inline uint32_t draw_bits(rd_key key, int64_t sample, int64_t i, int64_t k0,
                                            uint32_t limit)
{
    const int lane = threadIdx.x % 32;
    const uint32_t byte = lane < 4 ? attend_drop_byte(key, sample, i, k0 / 8 + lane, limit) : 0;
    uint32_t bits = 0;
    for (int b = 0; b < 4; b++) bits |= __shfl_sync(0xffffffffu, byte, b) << 8 * b;
    return bits;
}

static __device__ inline float warp_max(float x)
{
    for (int d = 16; d > 0; d >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}

/* Loads 32 rows of a head into shared memory, zeros behind the last. at: first column. A row has
 * head + 1 floats, so that lanes which read a column hit different banks. */
template <typename T>
static __device__ inline void load_keys(const attend_gpu<T> &g, const rd_attend_seq &s, int64_t k0,
                                        int64_t at, float *to)
{
    const int head = (int)g.a.head;
    for (int e = threadIdx.x; e < 32 * head; e += blockDim.x) {
        const int k = e / head, c = e % head;
        to[k * (head + 1) + c] = k0 + k < s.k_len ? rd_get(key_at(g, s, k0 + k) + at + c) : 0.0f;
    }
}
/* Loads keys and values k0 .. k0 + 31 of a key head. All threads of the block call it. */
template <typename T>
static __device__ inline void load_tiles(const attend_gpu<T> &g, const rd_attend_seq &s, int64_t k0,
                                         int64_t kv_head, float *k_tile, float *v_tile)
{
    __syncthreads();
    load_keys(g, s, k0, g.a.k_at + kv_head * g.a.head, k_tile);
    load_keys(g, s, k0, g.a.v_at + kv_head * g.a.head, v_tile);
    __syncthreads();
}
template <typename T>
static __device__ inline void load_rows(const T *x, int64_t ld, int64_t n, int head, float *to)
{
    for (int e = threadIdx.x; e < 32 * head; e += blockDim.x) {
        const int i = e / head, c = e % head;
        to[i * (head + 1) + c] = i < n ? rd_get(x + i * ld + c) : 0.0f;
    }
}

/* Sums of products of a row in shared memory (the same for all lanes) with the lane's row. */
static __device__ inline float row_dot(const float *row, const float *lanes_row, int head)
{
    float sum = 0.0f;
    for (int c = 0; c < head; c++) sum += row[c] * lanes_row[c];
    return sum;
}

/* x += y */
template <typename T> static __device__ inline void add_to(T *x, float y)
{
    rd_put(x, rd_get(x) + y);
}

/* CPL: columns of the head for each lane. */
template <int CPL, int ROWS, typename T>
static __global__ void attend_fwd(attend_gpu<T> g, rd_key seed_key, const rd_key *keys)
{
    RD_SHARED(float, shared);
    const rd_attend_tile tile = g.tile[blockIdx.x];
    const rd_attend_seq s = g.seq[tile.seq];
    const int64_t head = blockIdx.y, kv_head = head / (g.a.n_heads / g.a.n_kv_heads);
    const int hs = (int)g.a.head, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float *k_tile = shared, *v_tile = k_tile + 32 * (hs + 1), *q_rows = v_tile + 32 * (hs + 1);
    const rd_key key = g.drop ? keys[head] : seed_key;
    float m[ROWS], l[ROWS], o[ROWS][CPL];
    for (int r = 0; r < ROWS; r++) {
        const int64_t i = tile.row0 + warp * ROWS + r;
        m[r] = -INFINITY;
        l[r] = 0.0f;
        for (int j = 0; j < CPL; j++) o[r][j] = 0.0f;
        for (int c = lane; c < hs; c += 32)
            q_rows[(warp * ROWS + r) * hs + c] =
                i < s.q_len ? rd_get(g.q + (s.q_first + i) * g.q_cols + g.a.q_at + head * hs + c)
                            : 0.0f;
    }
    const int64_t n_keys = keys_of_tile(g, s, tile.row0 + WARPS * ROWS);
    for (int64_t k0 = 0; k0 < n_keys; k0 += 32) {
        load_tiles(g, s, k0, kv_head, k_tile, v_tile);
        for (int r = 0; r < ROWS; r++) {
            const int64_t i = tile.row0 + warp * ROWS + r,
                          seen = i < s.q_len ? keys_seen(g, s, i) - k0 : 0;
            if (seen <= 0) continue; /* the whole warp */
            float x = row_dot(q_rows + (warp * ROWS + r) * hs, k_tile + lane * (hs + 1), hs) *
                      g.a.scale;
            if (lane >= seen) x = -INFINITY;
            const float most = fmaxf(m[r], warp_max(x)), shrink = k0 > 0 ? expf(m[r] - most) : 0.0f;
            float p = lane < seen ? expf(x - most) : 0.0f;
            l[r] = l[r] * shrink + rd_warp_sum(p);
            m[r] = most;
            if (g.drop) {
                const uint32_t bits = draw_bits(key, s.sample, i, k0, g.limit);
                if (g.mask && lane == 0) g.mask[mask_word(s, head, i, k0)] = bits;
                p = bits >> lane & 1 ? p * g.inv_keep : 0.0f;
            }
            for (int j = 0; j < CPL; j++) o[r][j] *= shrink;
            for (int k = 0; k < 32; k++) {
                const float w = __shfl_sync(0xffffffffu, p, k);
                for (int j = 0; j < CPL; j++)
                    if (lane + 32 * j < hs) o[r][j] += w * v_tile[k * (hs + 1) + lane + 32 * j];
            }
        }
    }
    for (int r = 0; r < ROWS; r++) {
        const int64_t i = tile.row0 + warp * ROWS + r;
        if (i >= s.q_len) continue;
        T *to = g.out + (s.q_first + i) * g.a.n_heads * hs + head * hs;
        for (int j = 0; j < CPL; j++)
            if (lane + 32 * j < hs) rd_put(to + lane + 32 * j, o[r][j] / l[r]);
        if (g.lse && lane == 0) g.lse[head * g.Nq + s.q_first + i] = m[r] + logf(l[r]);
    }
}

/* The lane's probability before dropout, and the gradient of its score. */
struct attend_pair {
    float p, dropped, ds;
};
template <typename T>
static __device__ inline attend_pair pair_of(const attend_gpu<T> &g, float x, float dp, float lse,
                                             float D, bool kept, bool seen)
{
    attend_pair r = {0.0f, 0.0f, 0.0f};
    if (!seen) return r;
    r.p = expf(x * g.a.scale - lse);
    const float w = g.drop ? (kept ? g.inv_keep : 0.0f) : 1.0f;
    r.dropped = r.p * w;
    r.ds = r.p * (dp * w - D) * g.a.scale;
    return r;
}

/* dQ: each warp has query rows. */
template <int CPL, int ROWS, typename T> static __global__ void attend_dq(attend_gpu<T> g)
{
    RD_SHARED(float, shared);
    const rd_attend_tile tile = g.tile[blockIdx.x];
    const rd_attend_seq s = g.seq[tile.seq];
    const int64_t head = blockIdx.y, kv_head = head / (g.a.n_heads / g.a.n_kv_heads),
                  width = g.a.n_heads * g.a.head;
    const int hs = (int)g.a.head, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float *k_tile = shared, *v_tile = k_tile + 32 * (hs + 1), *q_rows = v_tile + 32 * (hs + 1),
          *d_rows = q_rows + WARPS * ROWS * hs;
    float D[ROWS], lse[ROWS], dq[ROWS][CPL];
    for (int r = 0; r < ROWS; r++) {
        const int64_t i = tile.row0 + warp * ROWS + r, row = s.q_first + i;
        float sum = 0.0f;
        for (int j = 0; j < CPL; j++) dq[r][j] = 0.0f;
        for (int c = lane; c < hs; c += 32) {
            const int64_t at = row * width + head * hs + c;
            const float d = i < s.q_len ? rd_get(g.d_o + at) : 0.0f;
            q_rows[(warp * ROWS + r) * hs + c] =
                i < s.q_len ? rd_get(g.q + row * g.q_cols + g.a.q_at + head * hs + c) : 0.0f;
            d_rows[(warp * ROWS + r) * hs + c] = d;
            if (i < s.q_len) sum += d * rd_get(g.o + at);
        }
        D[r] = rd_warp_sum(sum);
        lse[r] = i < s.q_len ? g.lse[head * g.Nq + row] : 0.0f;
    }
    const int64_t n_keys = keys_of_tile(g, s, tile.row0 + WARPS * ROWS);
    for (int64_t k0 = 0; k0 < n_keys; k0 += 32) {
        load_tiles(g, s, k0, kv_head, k_tile, v_tile);
        for (int r = 0; r < ROWS; r++) {
            const int64_t i = tile.row0 + warp * ROWS + r,
                          seen = i < s.q_len ? keys_seen(g, s, i) - k0 : 0;
            if (seen <= 0) continue; /* the whole warp */
            const float *q = q_rows + (warp * ROWS + r) * hs, *d = d_rows + (warp * ROWS + r) * hs;
            const float x = row_dot(q, k_tile + lane * (hs + 1), hs),
                        dp = row_dot(d, v_tile + lane * (hs + 1), hs);
            const uint32_t bits = g.drop ? g.mask[mask_word(s, head, i, k0)] : 0;
            const float ds = pair_of(g, x, dp, lse[r], D[r], bits >> lane & 1, lane < seen).ds;
            for (int k = 0; k < 32; k++) {
                const float w = __shfl_sync(0xffffffffu, ds, k);
                for (int j = 0; j < CPL; j++)
                    if (lane + 32 * j < hs) dq[r][j] += w * k_tile[k * (hs + 1) + lane + 32 * j];
            }
        }
    }
    for (int r = 0; r < ROWS; r++) {
        const int64_t i = tile.row0 + warp * ROWS + r;
        if (i >= s.q_len) continue;
        T *to = g.dq + (s.q_first + i) * g.q_cols + g.a.q_at + head * hs;
        for (int j = 0; j < CPL; j++)
            if (lane + 32 * j < hs) add_to(to + lane + 32 * j, dq[r][j]);
    }
}

/* dK and dV: each warp has key rows. The query heads of a key head follow each other. */
template <int CPL, int ROWS, typename T> static __global__ void attend_dkv(attend_gpu<T> g)
{
    RD_SHARED(float, shared);
    const rd_attend_tile tile = g.tile[blockIdx.x];
    const rd_attend_seq s = g.seq[tile.seq];
    const int64_t kv_head = blockIdx.y, group = g.a.n_heads / g.a.n_kv_heads,
                  width = g.a.n_heads * g.a.head;
    const int hs = (int)g.a.head, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float *q_tile = shared, *d_tile = q_tile + 32 * (hs + 1), *k_rows = d_tile + 32 * (hs + 1),
          *v_rows = k_rows + WARPS * ROWS * hs, *D_tile = v_rows + WARPS * ROWS * hs;
    float dk[ROWS][CPL], dv[ROWS][CPL];
    for (int r = 0; r < ROWS; r++) {
        const int64_t k = tile.row0 + warp * ROWS + r;
        for (int j = 0; j < CPL; j++) dk[r][j] = dv[r][j] = 0.0f;
        for (int c = lane; c < hs; c += 32) {
            const T *x = g.kv + (s.k_first + k) * g.k_cols + kv_head * hs + c;
            k_rows[(warp * ROWS + r) * hs + c] = k < s.k_len ? rd_get(x + g.a.k_at) : 0.0f;
            v_rows[(warp * ROWS + r) * hs + c] = k < s.k_len ? rd_get(x + g.a.v_at) : 0.0f;
        }
    }
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int64_t q0 = 0; q0 < s.q_len; q0 += 32) {
            const int64_t n = s.q_len - q0 < 32 ? s.q_len - q0 : 32, row0 = s.q_first + q0;
            __syncthreads();
            load_rows(g.q + row0 * g.q_cols + g.a.q_at + head * hs, g.q_cols, n, hs, q_tile);
            load_rows(g.d_o + row0 * width + head * hs, width, n, hs, d_tile);
            __syncthreads();
            if ((int64_t)threadIdx.x < n) {
                const T *o = g.o + (row0 + threadIdx.x) * width + head * hs;
                const float *d = d_tile + threadIdx.x * (hs + 1);
                float sum = 0.0f;
                for (int c = 0; c < hs; c++) sum += rd_get(o + c) * d[c];
                D_tile[threadIdx.x] = sum;
            }
            __syncthreads();
            const int64_t i = q0 + lane;
            const float lse = lane < n ? g.lse[head * g.Nq + s.q_first + i] : 0.0f,
                        D = lane < n ? D_tile[lane] : 0.0f;
            for (int r = 0; r < ROWS; r++) {
                const int64_t k = tile.row0 + warp * ROWS + r;
                if (k >= s.k_len) continue; /* the whole warp */
                const bool seen = lane < n && k < keys_seen(g, s, i);
                const float x = row_dot(k_rows + (warp * ROWS + r) * hs, q_tile + lane * (hs + 1),
                                        hs),
                            dp = row_dot(v_rows + (warp * ROWS + r) * hs, d_tile + lane * (hs + 1),
                                         hs);
                const bool kept = g.drop && seen && g.mask[mask_word(s, head, i, k)] >> k % 32 & 1;
                const attend_pair w = pair_of(g, x, dp, lse, D, kept, seen);
                for (int m = 0; m < 32; m++) {
                    const float p = __shfl_sync(0xffffffffu, w.dropped, m),
                                ds = __shfl_sync(0xffffffffu, w.ds, m);
                    for (int j = 0; j < CPL; j++)
                        if (lane + 32 * j < hs) {
                            dv[r][j] += p * d_tile[m * (hs + 1) + lane + 32 * j];
                            dk[r][j] += ds * q_tile[m * (hs + 1) + lane + 32 * j];
                        }
                }
            }
        }
    for (int r = 0; r < ROWS; r++) {
        const int64_t k = tile.row0 + warp * ROWS + r;
        if (k >= s.k_len) continue;
        T *to = g.dkv + (s.k_first + k) * g.k_cols + kv_head * hs;
        for (int j = 0; j < CPL; j++)
            if (lane + 32 * j < hs) {
                add_to(to + g.a.k_at + lane + 32 * j, dk[r][j]);
                add_to(to + g.a.v_at + lane + 32 * j, dv[r][j]);
            }
    }
}

template <typename T>
static void attend_fill(rd_call *c, const rd_attend_saved *saved, attend_gpu<T> *g)
{
    const rd_attend *a = static_cast<const rd_attend *>(c->attr);
    g->a = {a->n_heads, a->n_kv_heads, a->head, a->q_at, a->k_at, a->v_at, a->scale, a->causal};
    g->q = static_cast<const T *>(c->in[0]->values);
    g->kv = static_cast<const T *>(c->in[1]->values);
    g->q_cols = c->in[0]->cols;
    g->k_cols = c->in[1]->cols;
    g->Nq = c->out[0]->rows;
    g->drop = rd_attend_drops(c);
    g->limit = rd_philox_limit(a->drop.keep);
    g->inv_keep = 1.0f / a->drop.keep;
    g->seq = saved->seq;
    g->mask = reinterpret_cast<uint32_t *>(saved->mask);
    g->lse = saved->lse;
}

#define BY_WIDTH(kernel, grid, shared, ...)                                                        \
    (g.a.head <= 32 ? RD_LAUNCH(gpu, st, (kernel<1, 4, T>), grid, 32 * WARPS, shared, __VA_ARGS__) \
     : g.a.head <= 64                                                                              \
         ? RD_LAUNCH(gpu, st, (kernel<2, 4, T>), grid, 32 * WARPS, shared, __VA_ARGS__)            \
         : RD_LAUNCH(gpu, st, (kernel<4, 2, T>), grid, 32 * WARPS, shared, __VA_ARGS__))

template <typename T>
static rd_code rows_forward(rd_call *c, rd_attend_saved *saved, int64_t mask_bytes, rd_status *st)
{
    const rd_attend *a = static_cast<const rd_attend *>(c->attr);
    rd_gpu *gpu = rd_gpu_of(c->be);
    attend_gpu<T> g = {};
    const rd_key *key;
    int64_t n_tiles;
    if (c->keep && rd_attend_drops(c))
        RD_TRY_OR_RETURN(rd_arena_get(c->device_kept, (size_t)mask_bytes + 4, &saved->mask, st));
    attend_fill(c, saved, &g);
    g.out = static_cast<T *>(c->out[0]->values);
    if (a->key_row)
        RD_TRY_OR_RETURN(rd_call_lend(c, c->device_scratch, a->key_row,
                                      (size_t)a->n_key_row * sizeof *a->key_row, &g.key_row, st));
    RD_TRY_OR_RETURN(rd_attend_mask_keys(c, &key, st));
    RD_TRY_OR_RETURN(rd_attend_tiles(c, false, WARPS * warp_rows(a->head), &g.tile, &n_tiles, st));
    const dim3 grid((unsigned)n_tiles, (unsigned)a->n_heads);
    const size_t shared = (size_t)(64 * (a->head + 1) + WARPS * warp_rows(a->head) * a->head) *
                          sizeof(float);
    const rd_key none = {};
    return BY_WIDTH(attend_fwd, grid, shared, g, none, key);
}

template <typename T>
static rd_code rows_backward(rd_call *c, const rd_attend_saved *saved, rd_status *st)
{
    const rd_attend *a = static_cast<const rd_attend *>(c->attr);
    rd_gpu *gpu = rd_gpu_of(c->be);
    attend_gpu<T> g = {};
    const int64_t per_block = WARPS * warp_rows(a->head);
    int64_t n_tiles;
    const size_t shared = (size_t)(64 * (a->head + 1) + 2 * per_block * a->head + 32) *
                          sizeof(float);
    attend_fill(c, saved, &g);
    g.o = static_cast<const T *>(c->out[0]->values);
    g.d_o = static_cast<const T *>(c->out[0]->grads);
    g.dq = static_cast<T *>(c->in[0]->grads);
    g.dkv = static_cast<T *>(c->in[1]->grads);
    if (g.dq) {
        RD_TRY_OR_RETURN(rd_attend_tiles(c, false, per_block, &g.tile, &n_tiles, st));
        const dim3 grid((unsigned)n_tiles, (unsigned)a->n_heads);
        RD_TRY_OR_RETURN(BY_WIDTH(attend_dq, grid, shared, g));
    }
    if (g.dkv) {
        RD_TRY_OR_RETURN(rd_attend_tiles(c, true, per_block, &g.tile, &n_tiles, st));
        const dim3 grid((unsigned)n_tiles, (unsigned)a->n_kv_heads);
        RD_TRY_OR_RETURN(BY_WIDTH(attend_dkv, grid, shared, g));
    }
    return RD_OK;
}

/* ---- the choice ---- */

enum attend_way { BY_ROWS, BY_PRODUCTS, BY_BLOCKS, N_WAYS };
static const char *const way_names[N_WAYS] = {"rows", "products", "blocks"};
enum {
    /* With at most this number of queries in each sequence, decoding reads keys where they are. */
    FEW_QUERIES = 15,
    /* With more keys, scores are not stored. In float32 products are so much faster than rows that
     * the limit is memory: 2 x 16 MiB for each head of a sequence. */
    MOST_STORED = 2048,
    /* In 16 bits, tiles of 64 x 64 would be at most a quarter full. */
    MOST_STORED_NARROW = 32
};

/* Whether a way can compute this call. */
static bool attend_can(const rd_call *c, int way)
{
    const rd_attend *a = static_cast<const rd_attend *>(c->attr);
    const rd_gpu *g = rd_gpu_of(c->be);
    return way == BY_PRODUCTS ||
           (a->head <= ATTEND_WIDEST &&
            (way == BY_ROWS || (rd_gpu_narrow(g) != RD_FLOAT32 && rd_gpu_about(g)->major >= 8)));
}

/* Returns the way of computing a call, a function of its shape and of the type of products. The
 * environment variable RD_CUDA_ATTEND names another way, for tests and measurements; it counts
 * where that way can compute the call. */
static attend_way attend_choose(const rd_call *c)
{
    const rd_attend *a = static_cast<const rd_attend *>(c->attr);
    const char *asked = getenv("RD_CUDA_ATTEND");
    int64_t q = 0, k = 0;
    for (int64_t s = 0; s < a->n; s++) {
        if (a->q_len[s] > q) q = a->q_len[s];
        if (a->k_len[s] > k) k = a->k_len[s];
    }
    for (int w = BY_ROWS; asked && w < N_WAYS; w++)
        if (strcmp(asked, way_names[w]) == 0 && attend_can(c, w)) return (attend_way)w;
    if (!attend_can(c, BY_ROWS)) return BY_PRODUCTS;
    if (!c->keep && (a->key_row || q <= FEW_QUERIES)) return BY_ROWS;
    if (attend_can(c, BY_BLOCKS)) return k > MOST_STORED_NARROW ? BY_BLOCKS : BY_PRODUCTS;
    return k > MOST_STORED ? BY_ROWS : BY_PRODUCTS;
}

extern "C" rd_code rd_cuda_attend_forward(rd_call *c, rd_status *st)
{
    const rd_attend *a = static_cast<const rd_attend *>(c->attr);
    rd_attend_saved *saved;
    rd_attend_seq *list;
    const attend_way way = attend_choose(c);
    int64_t mask_bytes;
    RD_TRY_OR_RETURN(rd_arena_zero(c->kept, sizeof *saved, &saved, st));
    c->saved = saved;
    RD_TRY_OR_RETURN(rd_attend_list(c->scratch, a, &list, &mask_bytes, st));
    RD_TRY_OR_RETURN(rd_call_lend(c, c->device_kept, list, (size_t)(a->n + 1) * sizeof *list,
                                  &saved->seq, st));
    if (c->keep)
        RD_TRY_OR_RETURN(rd_arena_get(c->device_kept,
                                      (size_t)(a->n_heads * (c->out[0]->rows + 1)) * sizeof(float),
                                      &saved->lse, st));
    if (way == BY_PRODUCTS) return rd_attend_products_forward(c, saved, st);
    if (way == BY_BLOCKS) return rd_attend_blocks_forward(c, saved, st);
    RD_BY_ELEMENT(c->in[0]->type, rows_forward<T>(c, saved, mask_bytes, st));
    return st->code;
}

extern "C" rd_code rd_cuda_attend_backward(rd_call *c, rd_status *st)
{
    const rd_attend_saved *saved = static_cast<const rd_attend_saved *>(c->saved);
    const attend_way way = attend_choose(c);
    for (int i = 0; i < 2; i++) RD_TRY_OR_RETURN(rd_call_zero_grad(c, i, st));
    if (way == BY_PRODUCTS) return rd_attend_products_backward(c, saved, st);
    if (way == BY_BLOCKS) return rd_attend_blocks_backward(c, saved, st);
    RD_BY_ELEMENT(c->in[0]->type, rows_backward<T>(c, saved, st));
    return st->code;
}
