/* attend_blocks.cu -- attention on a GPU with tensor cores, in blocks of queries and keys: no array
 * of scores is stored (Milakov and Gimelshein 2018; Dao et al. 2022). The formulas are those of
 * attend.c.
 *
 * A warp has 16 rows: queries in forward and for dQ, keys for dK and dV. The block of threads loads
 * tiles of the other side to shared memory, rounded to 16 bits. Scores, sums and results are
 * float32 and stay in registers. Probabilities and the gradients of scores are rounded to 16 bits
 * for the products that read them.
 *
 * Masks of dropout are drawn where they are needed, forward and backward. They depend on the
 * positions of query and key alone, so tiles cannot change them. A warp adds in a fixed order, and
 * no two warps add to the same number.
 *
 * FLOPs for each query and key that a tile contains: forward 4 head; backward 14 head, because both
 * passes compute the scores and the gradients of the probabilities. Rows of a tile behind the end
 * of a sequence, and keys of a tile that the causal mask hides, are computed too. Bytes: q, k, v
 * and the result once, and k, v again for each tile of queries, from L2. */
#include "attend_gpu.h"
#include "../engine/gpu/mma_device.h"

enum { ROWS = 16 };

/* Number of warps of a block forward, and backward, where wide heads need more shared memory. */
enum { FORWARD_WARPS = 4 };
static __host__ __device__ constexpr int backward_warps(int HS)
{
    return HS > 96 ? 2 : 4;
}
/* Rows of a tile of the other side. With 64 rows, heads of other widths would leave too few
 * registers, or need more than 48 KiB. */
static __host__ __device__ constexpr int tile_rows(int HS)
{
    return HS == 64 ? 64 : 32;
}
/* The distance of rows in shared memory: the eight rows of a block of rd_blocks_get are in
 * different banks. */
static __host__ __device__ constexpr int row_length(int HS)
{
    return HS + 8;
}

struct blocks_gpu {
    const rd_attend_seq *seq;
    const rd_attend_tile *tile;
    const int32_t *key_row; /* NULL: rows in order */
    const rd_key *key;      /* of the masks, by heads; NULL: no dropout */
    attend_matrix q, kv, o, d_o, dq, dkv;
    float *lse, *D; /* [n_heads, Nq] */
    int64_t n_heads, n_kv_heads, head, q_at, k_at, v_at, Nq;
    uint32_t limit;
    float scale, inv_keep;
    bool causal, by_eight; /* by_eight: eight columns of a head are aligned to 16 bytes */
};

/* The place of a block of threads, and of a lane. */
struct blocks_at {
    rd_attend_seq s;
    int64_t row0;          /* first row of the block */
    int64_t head, kv_head; /* head: of the queries; those of dK and dV change */
    int warp, g, t;        /* g, t: see mma_device.h */
};

static __device__ inline blocks_at blocks_begin(const blocks_gpu &b, bool keys)
{
    const rd_attend_tile tile = b.tile[blockIdx.x];
    const int64_t group = b.n_heads / b.n_kv_heads, y = blockIdx.y;
    const int lane = threadIdx.x % 32;
    return {b.seq[tile.seq],
            tile.row0,
            keys ? y * group : y,
            keys ? y : y / group,
            (int)threadIdx.x / 32,
            lane / 4,
            lane % 4};
}

/* Returns how many keys query i sees; 0 behind the last query. */
static __device__ inline int64_t blocks_seen(const blocks_gpu &b, const rd_attend_seq &s, int64_t i)
{
    return i >= s.q_len ? 0 : b.causal ? i + s.k_len - s.q_len + 1 : s.k_len;
}

template <typename E> static __device__ inline rd_element blocks_type()
{
    return std::is_same<E, rd_bf16>::value ? RD_BFLOAT16 : RD_FLOAT16;
}

/* Loads `rows` rows of a head to shared memory, rounded, with zeros behind row n and behind the
 * columns of the head. first: row of the matrix, or entry of key_row. */
template <typename E, int HS>
static __device__ inline void blocks_load(const blocks_gpu &b, const attend_matrix &x,
                                          const int32_t *key_row, int64_t first, int64_t n,
                                          int rows, int64_t at, uint16_t *to)
{
    constexpr int LD = row_length(HS), PARTS = HS / 8;
    for (int e = threadIdx.x; e < rows * PARTS; e += blockDim.x) {
        const int r = e / PARTS, c = e % PARTS * 8, left = (int)b.head - c;
        rd_lanes<8> v = {};
        if (r < n && left > 0) {
            const int64_t row = key_row ? key_row[first + r] : first + r, from = row * x.cols + at;
            if (b.by_eight && x.type == blocks_type<E>()) {
                *reinterpret_cast<rd_words<8> *>(to + r * LD + c) =
                    *reinterpret_cast<const rd_words<8> *>(static_cast<const E *>(x.at) + from + c);
                continue;
            }
            if (b.by_eight) {
                v = attend_get8(x, from + c);
            } else {
                for (int j = 0; j < 8; j++)
                    if (j < left) v.at[j] = attend_get(x, from + c + j);
            }
        }
        rd_lanes_put<8>(reinterpret_cast<E *>(to + r * LD + c), v);
    }
}
template <typename E, int HS>
static __device__ inline void load_queries(const blocks_gpu &b, const attend_matrix &x,
                                           const rd_attend_seq &s, int64_t i, int rows, int64_t at,
                                           uint16_t *to)
{
    blocks_load<E, HS>(b, x, NULL, s.q_first + i, s.q_len - i, rows, at, to);
}
template <typename E, int HS>
static __device__ inline void load_keys(const blocks_gpu &b, const rd_attend_seq &s, int64_t k,
                                        int rows, int64_t at, uint16_t *to)
{
    blocks_load<E, HS>(b, b.kv, b.key_row, s.k_first + k, s.k_len - k, rows, at, to);
}

/* C[16, N] += A[16, HS] B, with A in shared memory, and B the transposed of N rows there. */
template <typename E, int HS, int N>
static __device__ inline void multiply_turned(float (*c)[4], const uint16_t *A, const uint16_t *B)
{
    constexpr int LD = row_length(HS);
#pragma unroll
    for (int k = 0; k < HS; k += 16) {
        uint32_t a[4], w[4];
        rd_mma_a(a, A + k, LD);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            rd_mma_b_turned(w, B + 16 * n * LD + k, LD);
            rd_mma<E>(c[2 * n], a, w);
            rd_mma<E>(c[2 * n + 1], a, w + 2);
        }
    }
}
/* C[16, HS] += A[16, K] B, with A the rounded fragments of another product, and B as K rows in
 * shared memory. */
template <typename E, int HS, int K>
static __device__ inline void multiply_rows(float (*c)[4], float (*A)[4], const uint16_t *B)
{
    constexpr int LD = row_length(HS);
#pragma unroll
    for (int k = 0; k < K / 16; k++) {
        const uint32_t a[4] = {rd_pair_of<E>(A[2 * k][0], A[2 * k][1]),
                               rd_pair_of<E>(A[2 * k][2], A[2 * k][3]),
                               rd_pair_of<E>(A[2 * k + 1][0], A[2 * k + 1][1]),
                               rd_pair_of<E>(A[2 * k + 1][2], A[2 * k + 1][3])};
        uint32_t w[4];
#pragma unroll
        for (int n = 0; n < HS / 16; n++) {
            rd_mma_b(w, B + 16 * k * LD + 16 * n, LD);
            rd_mma<E>(c[2 * n], a, w);
            rd_mma<E>(c[2 * n + 1], a, w + 2);
        }
    }
}

template <int N> static __device__ inline void clear(float (*c)[4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) c[n][j] = 0.0f;
}

/* Draws the masks of keys k0 .. k0 + K - 1 for the lane's queries i and i + 8: bit j of bits[r][w]
 * is key k0 + 32 w + j. */
template <int K>
static __device__ inline void draw_rows(const blocks_gpu &b, rd_key key, const blocks_at &at,
                                        int64_t i, int64_t k0, uint32_t (*bits)[K / 32])
{
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int w = 0; w < K / 32; w++) {
            uint32_t x =
                attend_drop_byte(key, at.s.sample, i + 8 * r, k0 / 8 + 4 * w + at.t, b.limit)
                << 8 * at.t;
            x |= __shfl_xor_sync(0xffffffffu, x, 1);
            bits[r][w] = x | __shfl_xor_sync(0xffffffffu, x, 2);
        }
}
/* Returns whether the masks keep element j of fragment n. */
template <int K>
static __device__ inline bool row_keeps(uint32_t (*bits)[K / 32], int t, int n, int j)
{
    return bits[j / 2][n / 4] >> (n % 4 * 8 + 2 * t + j % 2) & 1;
}

static __device__ inline float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

static const float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

template <typename E, int HS>
static __global__ void __launch_bounds__(32 * FORWARD_WARPS, 2) blocks_forward(blocks_gpu b)
{
    constexpr int KEYS = tile_rows(HS), LD = row_length(HS), BLOCK = ROWS * FORWARD_WARPS;
    RD_SHARED(uint16_t, shared);
    uint16_t *q_tile = shared, *k_tile = q_tile + BLOCK * LD, *v_tile = k_tile + KEYS * LD;
    const blocks_at at = blocks_begin(b, false);
    const uint16_t *mine = q_tile + at.warp * ROWS * LD;
    const int64_t i0 = at.row0 + at.warp * ROWS, i = i0 + at.g;
    const float scale = b.scale * LOG2_E;
    float m[2] = {-INFINITY, -INFINITY}, l[2] = {0.0f, 0.0f}, o[HS / 8][4];
    clear<HS / 8>(o);
    load_queries<E, HS>(b, b.q, at.s, at.row0, BLOCK, b.q_at + at.head * b.head, q_tile);
    const int64_t last = at.row0 + BLOCK < at.s.q_len ? at.row0 + BLOCK : at.s.q_len,
                  n_keys = blocks_seen(b, at.s, last - 1),
                  last_here = i0 + ROWS < last ? i0 + ROWS : last,
                  n_here = i0 < last ? blocks_seen(b, at.s, last_here - 1) : 0;
    for (int64_t k0 = 0; k0 < n_keys; k0 += KEYS) {
        __syncthreads();
        load_keys<E, HS>(b, at.s, k0, KEYS, b.k_at + at.kv_head * b.head, k_tile);
        load_keys<E, HS>(b, at.s, k0, KEYS, b.v_at + at.kv_head * b.head, v_tile);
        __syncthreads();
        if (k0 >= n_here) continue; /* the whole warp */
        float p[KEYS / 8][4], base[2];
        uint32_t bits[2][KEYS / 32];
        clear<KEYS / 8>(p);
        multiply_turned<E, HS, KEYS>(p, mine, k_tile);
        if (b.key) draw_rows<KEYS>(b, b.key[at.head], at, i, k0, bits);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int64_t more = blocks_seen(b, at.s, i + 8 * r) - k0;
            const int seen = more < 0 ? 0 : more < KEYS ? (int)more : KEYS;
            float most = m[r];
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int j = 2 * r; j < 2 * r + 2; j++) {
                    p[n][j] = 8 * n + 2 * at.t + j % 2 < seen ? p[n][j] * scale : -INFINITY;
                    most = fmaxf(most, p[n][j]);
                }
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
            base[r] = most == -INFINITY ? 0.0f : most; /* no key seen yet: exp2(-inf - 0) = 0 */
            const float shrink = exp2f(m[r] - base[r]);
            m[r] = most;
            l[r] *= shrink;
#pragma unroll
            for (int n = 0; n < HS / 8; n++)
#pragma unroll
                for (int j = 2 * r; j < 2 * r + 2; j++) o[n][j] *= shrink;
        }
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                p[n][j] = exp2f(p[n][j] - base[j / 2]);
                l[j / 2] += p[n][j];
                if (b.key && !row_keeps<KEYS>(bits, at.t, n, j)) p[n][j] = 0.0f;
            }
        multiply_rows<E, HS, KEYS>(o, p, v_tile);
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int64_t row = at.s.q_first + i + 8 * r;
        const float sum = quad_sum(l[r]), inv = b.inv_keep / sum;
        if (i + 8 * r >= at.s.q_len) continue;
#pragma unroll
        for (int n = 0; n < HS / 8; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int c = 8 * n + 2 * at.t + j;
                if (c < b.head)
                    attend_put(b.o, row * b.o.cols + at.head * b.head + c, o[n][2 * r + j] * inv);
            }
        if (b.lse && at.t == 0) b.lse[at.head * b.Nq + row] = m[r] * LN_2 + logf(sum);
    }
}

/* D = dO . O of each query row and head, a warp for each. */
static __global__ void blocks_dots(blocks_gpu b)
{
    const int64_t k = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (k >= b.Nq * b.n_heads) return;
    const int64_t row = k / b.n_heads, head = k % b.n_heads;
    float sum = 0.0f;
    for (int64_t c = threadIdx.x; c < b.head; c += 32)
        sum += attend_get(b.o, row * b.o.cols + head * b.head + c) *
               attend_get(b.d_o, row * b.d_o.cols + head * b.head + c);
    sum = rd_warp_sum(sum);
    if (threadIdx.x == 0) b.D[head * b.Nq + row] = sum;
}

/* Adds the lane's elements of a result to rows row0 + g and row0 + g + 8 that are in front of
 * `end`. first: the matrix' row of row 0. */
template <int HS>
static __device__ inline void add_rows(const blocks_gpu &b, const attend_matrix &to, int64_t first,
                                       int64_t row, int64_t end, int64_t at, int t, float (*x)[4])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (row + 8 * r >= end) continue;
#pragma unroll
        for (int n = 0; n < HS / 8; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int c = 8 * n + 2 * t + j;
                const int64_t e = (first + row + 8 * r) * to.cols + at + c;
                if (c < b.head) attend_put(to, e, attend_get(to, e) + x[n][2 * r + j]);
            }
    }
}

template <typename E, int HS>
static __global__ void __launch_bounds__(32 * backward_warps(HS), 2) blocks_dq(blocks_gpu b)
{
    constexpr int KEYS = tile_rows(HS), LD = row_length(HS), BLOCK = ROWS * backward_warps(HS);
    RD_SHARED(uint16_t, shared);
    uint16_t *q_tile = shared, *d_tile = q_tile + BLOCK * LD, *k_tile = d_tile + BLOCK * LD,
             *v_tile = k_tile + KEYS * LD;
    const blocks_at at = blocks_begin(b, false);
    const int64_t i0 = at.row0 + at.warp * ROWS, i = i0 + at.g;
    const float scale = b.scale * LOG2_E;
    float level[2], D[2], dq[HS / 8][4];
    clear<HS / 8>(dq);
    load_queries<E, HS>(b, b.q, at.s, at.row0, BLOCK, b.q_at + at.head * b.head, q_tile);
    load_queries<E, HS>(b, b.d_o, at.s, at.row0, BLOCK, at.head * b.head, d_tile);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int64_t row = at.head * b.Nq + at.s.q_first + i + 8 * r;
        const bool valid = i + 8 * r < at.s.q_len;
        level[r] = valid ? b.lse[row] * LOG2_E : 0.0f;
        D[r] = valid ? b.D[row] : 0.0f;
    }
    const int64_t last = at.row0 + BLOCK < at.s.q_len ? at.row0 + BLOCK : at.s.q_len,
                  n_keys = blocks_seen(b, at.s, last - 1),
                  last_here = i0 + ROWS < last ? i0 + ROWS : last,
                  n_here = i0 < last ? blocks_seen(b, at.s, last_here - 1) : 0;
    for (int64_t k0 = 0; k0 < n_keys; k0 += KEYS) {
        __syncthreads();
        load_keys<E, HS>(b, at.s, k0, KEYS, b.k_at + at.kv_head * b.head, k_tile);
        load_keys<E, HS>(b, at.s, k0, KEYS, b.v_at + at.kv_head * b.head, v_tile);
        __syncthreads();
        if (k0 >= n_here) continue; /* the whole warp */
        float x[KEYS / 8][4], dp[KEYS / 8][4];
        uint32_t bits[2][KEYS / 32];
        clear<KEYS / 8>(x);
        clear<KEYS / 8>(dp);
        multiply_turned<E, HS, KEYS>(x, q_tile + at.warp * ROWS * LD, k_tile);
        multiply_turned<E, HS, KEYS>(dp, d_tile + at.warp * ROWS * LD, v_tile);
        if (b.key) draw_rows<KEYS>(b, b.key[at.head], at, i, k0, bits);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int64_t more = blocks_seen(b, at.s, i + 8 * r) - k0;
            const int seen = more < 0 ? 0 : more < KEYS ? (int)more : KEYS;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int j = 2 * r; j < 2 * r + 2; j++) {
                    const bool keeps = !b.key || row_keeps<KEYS>(bits, at.t, n, j);
                    const float p = exp2f(x[n][j] * scale - level[r]),
                                w = keeps ? b.inv_keep : 0.0f;
                    x[n][j] = 8 * n + 2 * at.t + j % 2 < seen ? p * (dp[n][j] * w - D[r]) * b.scale
                                                              : 0.0f;
                }
        }
        multiply_rows<E, HS, KEYS>(dq, x, k_tile);
    }
    add_rows<HS>(b, b.dq, at.s.q_first, i, at.s.q_len, b.q_at + at.head * b.head, at.t, dq);
}

/* dK and dV: scores are transposed, S^T = K Q^T, so that a warp has 16 keys. The query heads of a
 * key head follow each other. */
template <typename E, int HS>
static __global__ void __launch_bounds__(32 * backward_warps(HS), 2) blocks_dkv(blocks_gpu b)
{
    constexpr int QUERIES = tile_rows(HS), LD = row_length(HS), BLOCK = ROWS * backward_warps(HS);
    RD_SHARED(uint16_t, shared);
    uint16_t *k_tile = shared, *v_tile = k_tile + BLOCK * LD, *q_tile = v_tile + BLOCK * LD,
             *d_tile = q_tile + QUERIES * LD;
    float *level = reinterpret_cast<float *>(d_tile + QUERIES * LD), *D = level + QUERIES;
    const blocks_at at = blocks_begin(b, true);
    const rd_attend_seq &s = at.s;
    const int64_t key0 = at.row0 + at.warp * ROWS, key = key0 + at.g;
    const int lane = threadIdx.x % 32;
    const float scale = b.scale * LOG2_E;
    float dk[HS / 8][4], dv[HS / 8][4];
    clear<HS / 8>(dk);
    clear<HS / 8>(dv);
    load_keys<E, HS>(b, s, at.row0, BLOCK, b.k_at + at.kv_head * b.head, k_tile);
    load_keys<E, HS>(b, s, at.row0, BLOCK, b.v_at + at.kv_head * b.head, v_tile);
    /* the first query that sees a key of the block */
    const int64_t hidden = b.causal ? at.row0 - (s.k_len - s.q_len) : 0,
                  first = hidden > 0 ? hidden / QUERIES * QUERIES : 0,
                  heads = b.n_heads / b.n_kv_heads;
    for (int64_t head = at.head; head < at.head + heads; head++)
        for (int64_t q0 = first; q0 < s.q_len; q0 += QUERIES) {
            __syncthreads();
            load_queries<E, HS>(b, b.q, s, q0, QUERIES, b.q_at + head * b.head, q_tile);
            load_queries<E, HS>(b, b.d_o, s, q0, QUERIES, head * b.head, d_tile);
            for (int e = threadIdx.x; e < QUERIES; e += blockDim.x) {
                const int64_t row = head * b.Nq + s.q_first + q0 + e;
                const bool valid = q0 + e < s.q_len;
                level[e] = valid ? b.lse[row] * LOG2_E : 0.0f;
                D[e] = valid ? b.D[row] : 0.0f;
            }
            __syncthreads();
            float x[QUERIES / 8][4], dp[QUERIES / 8][4];
            clear<QUERIES / 8>(x);
            clear<QUERIES / 8>(dp);
            multiply_turned<E, HS, QUERIES>(x, k_tile + at.warp * ROWS * LD, q_tile);
            multiply_turned<E, HS, QUERIES>(dp, v_tile + at.warp * ROWS * LD, d_tile);
#pragma unroll
            for (int n = 0; n < QUERIES / 8; n += 2) {
                /* The lane draws for query n 8 + lane % 16 and eight of the 16 keys. */
                const uint32_t byte = b.key ? attend_drop_byte(b.key[head], s.sample,
                                                               q0 + 8 * n + lane % 16,
                                                               key0 / 8 + lane / 16, b.limit)
                                            : 0;
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    const int j = e % 4, col = e / 4 * 8 + 2 * at.t + j % 2, i = 8 * n + col;
                    const uint32_t bits = b.key ? __shfl_sync(0xffffffffu, byte, j / 2 * 16 + col)
                                                : 0xffu;
                    float *px = &x[n + e / 4][j], *pd = &dp[n + e / 4][j];
                    const float p = key + j / 2 * 8 < blocks_seen(b, s, q0 + i)
                                        ? exp2f(*px * scale - level[i])
                                        : 0.0f,
                                w = bits >> at.g & 1 ? b.inv_keep : 0.0f;
                    *px = p * w;
                    *pd = p * (*pd * w - D[i]) * b.scale;
                }
            }
            multiply_rows<E, HS, QUERIES>(dv, x, d_tile);
            multiply_rows<E, HS, QUERIES>(dk, dp, q_tile);
        }
    add_rows<HS>(b, b.dkv, s.k_first, key, s.k_len, b.k_at + at.kv_head * b.head, at.t, dk);
    add_rows<HS>(b, b.dkv, s.k_first, key, s.k_len, b.v_at + at.kv_head * b.head, at.t, dv);
}

/* ---- host ---- */

static bool by_eight(const attend_matrix &x, int64_t at)
{
    return ((uintptr_t)x.at & 15) == 0 && x.cols % 8 == 0 && at % 8 == 0;
}

static rd_code blocks_fill(rd_call *c, const rd_attend_saved *saved, blocks_gpu *b, rd_status *st)
{
    const rd_attend *a = static_cast<const rd_attend *>(c->attr);
    b->seq = saved->seq;
    b->lse = saved->lse;
    b->q = attend_values(c->in[0]);
    b->kv = attend_values(c->in[1]);
    b->o = attend_values(c->out[0]);
    b->n_heads = a->n_heads;
    b->n_kv_heads = a->n_kv_heads;
    b->head = a->head;
    b->q_at = a->q_at;
    b->k_at = a->k_at;
    b->v_at = a->v_at;
    b->Nq = c->out[0]->rows;
    b->limit = rd_philox_limit(a->drop.keep);
    b->scale = a->scale;
    b->causal = a->causal;
    b->by_eight = a->head % 8 == 0 && by_eight(b->q, a->q_at) && by_eight(b->kv, a->k_at) &&
                  by_eight(b->kv, a->v_at) && by_eight(b->o, 0);
    RD_TRY_OR_RETURN(rd_attend_mask_keys(c, &b->key, st));
    b->inv_keep = b->key ? 1.0f / a->drop.keep : 1.0f;
    if (a->key_row)
        RD_TRY_OR_RETURN(rd_call_lend(c, c->device_scratch, a->key_row,
                                      (size_t)a->n_key_row * sizeof *a->key_row, &b->key_row, st));
    return st->code;
}

template <typename E, int HS>
static rd_code forward_of(rd_gpu *g, const blocks_gpu &b, int64_t n_tiles, rd_status *st)
{
    const size_t shared = (size_t)((ROWS * FORWARD_WARPS + 2 * tile_rows(HS)) * row_length(HS)) *
                          sizeof(uint16_t);
    return RD_LAUNCH(g, st, (blocks_forward<E, HS>), dim3((unsigned)n_tiles, (unsigned)b.n_heads),
                     32 * FORWARD_WARPS, shared, b);
}

/* dQ, or dK and dV, by the tiles of b. */
template <typename E, int HS>
static rd_code backward_of(rd_gpu *g, const blocks_gpu &b, bool keys, int64_t n_tiles,
                           rd_status *st)
{
    const int64_t tile = tile_rows(HS);
    const size_t shared = (size_t)(2 * (ROWS * backward_warps(HS) + tile) * row_length(HS)) *
                              sizeof(uint16_t) +
                          (size_t)(keys ? 2 * tile : 0) * sizeof(float);
    const dim3 grid((unsigned)n_tiles, (unsigned)(keys ? b.n_kv_heads : b.n_heads));
    return keys ? RD_LAUNCH(g, st, (blocks_dkv<E, HS>), grid, 32 * backward_warps(HS), shared, b)
                : RD_LAUNCH(g, st, (blocks_dq<E, HS>), grid, 32 * backward_warps(HS), shared, b);
}

/* Calls f<E, HS>(...) with the operands' type E and the width HS for the head. */
#define BLOCKS_BY_HEAD(E, f, ...)           \
    (b.head <= 32   ? f<E, 32>(__VA_ARGS__) \
     : b.head <= 64 ? f<E, 64>(__VA_ARGS__) \
     : b.head <= 96 ? f<E, 96>(__VA_ARGS__) \
                    : f<E, 128>(__VA_ARGS__))
#define BLOCKS_BY_TYPE(type, f, ...)                                 \
    ((type) == RD_BFLOAT16 ? BLOCKS_BY_HEAD(rd_bf16, f, __VA_ARGS__) \
                           : BLOCKS_BY_HEAD(rd_f16, f, __VA_ARGS__))

rd_code rd_attend_blocks_forward(rd_call *c, const rd_attend_saved *saved, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(c->be);
    blocks_gpu b = {};
    int64_t n;
    RD_TRY_OR_RETURN(blocks_fill(c, saved, &b, st));
    RD_TRY_OR_RETURN(rd_attend_tiles(c, false, ROWS * FORWARD_WARPS, &b.tile, &n, st));
    return BLOCKS_BY_TYPE(rd_gpu_narrow(g), forward_of, g, b, n, st);
}

rd_code rd_attend_blocks_backward(rd_call *c, const rd_attend_saved *saved, rd_status *st)
{
    enum { DOT_WARPS = 8 };
    rd_gpu *g = rd_gpu_of(c->be);
    blocks_gpu b = {};
    RD_TRY_OR_RETURN(blocks_fill(c, saved, &b, st));
    b.d_o = attend_grads(c->out[0]);
    b.dq = attend_grads(c->in[0]);
    b.dkv = attend_grads(c->in[1]);
    b.by_eight = b.by_eight && by_eight(b.d_o, 0);
    RD_TRY_OR_RETURN(rd_arena_get(c->device_scratch, (size_t)(b.n_heads * (b.Nq + 1)) * sizeof *b.D,
                                  &b.D, st));
    RD_TRY_OR_RETURN(RD_LAUNCH(g, st, blocks_dots,
                               (unsigned)((b.Nq * b.n_heads + DOT_WARPS - 1) / DOT_WARPS),
                               dim3(32, DOT_WARPS), 0, b));
    for (int keys = 0; keys < 2; keys++) {
        int64_t n;
        if (!(keys ? b.dkv.at : b.dq.at)) continue;
        RD_TRY_OR_RETURN(rd_attend_tiles(c, keys, ROWS * backward_warps(b.head > 96 ? 128 : 96),
                                         &b.tile, &n, st));
        RD_TRY_OR_RETURN(BLOCKS_BY_TYPE(rd_gpu_narrow(g), backward_of, g, b, keys != 0, n, st));
    }
    return st->code;
}
