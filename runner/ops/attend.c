/* attend.c -- scaled dot-product attention in blocks, with dropout by position.
 *
 * Forward keeps for each query row a running maximum m and sum l, so that no row of probabilities
 * is stored whole (Milakov and Gimelshein 2018; Dao et al. 2022):
 *
 *     S = scale Q K^T,  m' = max(m, max S),  P = exp(S - m'),
 *     l = l exp(m - m') + sum P,  O = O exp(m - m') + drop(P) V
 *     at the end the output is O / l, and lse = m + log l
 *
 * Backward computes P = exp(S - lse) again, and with M the mask times 1 / keep:
 *
 *     D_i = dO_i . O_i,  dV += (P M)^T dO,  dS = P (dO V^T M - D) scale
 *     dQ += dS K,  dK += dS^T Q
 *
 * One thread owns one sequence and key head: no sum depends on the number of threads or on the
 * other sequences of the batch. Operations: 4 q k head forward and 10 q k head backward for each
 * head of q queries and k keys; half as many where the mask is causal. */
#include "attend.h"
#include "rd/turn.h"
#include "rd/vecmath.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>
#ifdef __FMA__
#include <immintrin.h>
#endif

#ifdef __AVX512F__
enum { LANES = 16, TILE = 8 };
#else
enum { LANES = 8, TILE = 4 };
#endif
enum { Q_BLOCK = 64, K_BLOCK = 128, PAIR = 2 * LANES };
typedef float vec __attribute__((vector_size(LANES * 4)));
/* The same in memory, where rows begin anywhere. */
typedef float loose __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

/* Returns x y + z in one instruction where the CPU has it: ISO C does not contract the two. */
static inline vec attend_fma(float x, vec y, vec z)
{
#if defined(__AVX512F__)
    return (vec)_mm512_fmadd_ps(_mm512_set1_ps(x), (__m512)y, (__m512)z);
#elif defined(__FMA__)
    return (vec)_mm256_fmadd_ps(_mm256_set1_ps(x), (__m256)y, (__m256)z);
#else
    return x * y + z;
#endif
}

static rd_code attend_infer(rd_call *c, rd_status *st)
{
    const rd_attend *a = c->attr;
    const rd_var *q = c->in[0], *kv = c->in[1];
    const int64_t wq = a->n_heads * a->head, wk = a->n_kv_heads * a->head;
    int64_t next = 0;
    if (a->head < 1 || a->n_kv_heads < 1 || a->n_heads < 1 || a->n_heads % a->n_kv_heads != 0)
        return rd_fail(st, RD_EBUG,
                       "attend: queries of %" PRId64 " heads do not fit keys of %" PRId64,
                       a->n_heads, a->n_kv_heads);
    if (a->q_at < 0 || a->q_at + wq > q->cols || a->k_at < 0 || a->k_at + wk > kv->cols ||
        a->v_at < 0 || a->v_at + wk > kv->cols)
        return rd_fail(st, RD_EBUG,
                       "attend: the heads lie outside of %" PRId64 " and %" PRId64 " columns",
                       q->cols, kv->cols);
    if (q->type != kv->type)
        return rd_fail(st, RD_EBUG, "attend: queries and keys have different element types");
    if (c->training && !(a->drop.keep > 0.0f))
        return rd_fail(st, RD_EBUG,
                       "attend: the probability to keep an element is %g; it must be above 0",
                       (double)a->drop.keep);
    if (a->key_row && c->keep)
        return rd_fail(st, RD_EBUG, "attend: a list of key rows has no backward pass");
    for (int64_t s = 0; s < a->n; s++) {
        const int64_t most = a->key_row ? a->n_key_row : kv->rows;
        if (a->q_first[s] != next || a->q_len[s] < 0 || a->k_first[s] < 0 || a->k_len[s] < 1 ||
            a->k_first[s] + a->k_len[s] > most || (a->causal && a->k_len[s] < a->q_len[s]))
            return rd_fail(st, RD_EBUG,
                           "attend: sequence %" PRId64 " has %" PRId64 " queries from row %" PRId64
                           " and %" PRId64 " keys from row %" PRId64,
                           s, a->q_len[s], a->q_first[s], a->k_len[s], a->k_first[s]);
        next += a->q_len[s];
    }
    for (int64_t i = 0; a->key_row && i < a->n_key_row; i++)
        if (a->key_row[i] < 0 || a->key_row[i] >= kv->rows)
            return rd_fail(st, RD_EBUG, "attend: key row %d is outside %" PRId64 " rows",
                           a->key_row[i], kv->rows);
    if (next != q->rows)
        return rd_fail(st, RD_EBUG,
                       "attend: the sequences have %" PRId64 " queries of %" PRId64 " rows", next,
                       q->rows);
    c->out[0]->rows = next;
    c->out[0]->cols = wq;
    c->out[0]->type = q->type;
    return RD_OK;
}

/* ---- small products ---- */

/* C (+)= A B for TILE rows and `vecs` vectors of columns, one or two:
 * c[m][n] (+)= sum_r a[m a_row + r a_red] b[r ldb + n]. */
static inline __attribute__((always_inline)) void attend_tile_of(
    const int vecs, int64_t n_red, const float *restrict a, int64_t a_row, int64_t a_red,
    const float *restrict b, int64_t ldb, float *restrict c, int64_t ldc, bool add)
{
    vec acc[TILE][2];
    for (int m = 0; m < TILE; m++)
        for (int h = 0; h < vecs; h++) acc[m][h] = (vec){0};
    for (int64_t r = 0; r < n_red; r++) {
        vec y[2];
        for (int h = 0; h < vecs; h++) y[h] = *(const loose *)(b + r * ldb + h * LANES);
        for (int m = 0; m < TILE; m++) {
            const float x = a[m * a_row + r * a_red];
            for (int h = 0; h < vecs; h++) acc[m][h] = attend_fma(x, y[h], acc[m][h]);
        }
    }
    for (int m = 0; m < TILE; m++)
        for (int h = 0; h < vecs; h++) {
            loose *to = (loose *)(c + m * ldc + h * LANES);
            if (add) acc[m][h] += *to;
            *to = acc[m][h];
        }
}

/* The same for the columns [0, n), rounded up to whole vectors. There are at most two vectors. */
static inline void attend_tile(int64_t n, int64_t n_red, const float *a, int64_t a_row,
                               int64_t a_red, const float *b, int64_t ldb, float *c, int64_t ldc,
                               bool add)
{
    if (n > LANES)
        attend_tile_of(2, n_red, a, a_row, a_red, b, ldb, c, ldc, add);
    else
        attend_tile_of(1, n_red, a, a_row, a_red, b, ldb, c, ldc, add);
}

/* A block of scores, nq queries by nk keys: query i sees its first i + shift keys. */
typedef struct attend_block {
    int64_t nq, nk, shift;
} attend_block;

/* Returns how many keys of the block query i sees. */
static int64_t attend_seen(const attend_block *b, int64_t i)
{
    const int64_t seen = i + b->shift;
    return seen < 0 ? 0 : seen < b->nk ? seen : b->nk;
}

/* Returns how many keys a query of the tile from query m on sees. */
static int64_t attend_tile_seen(const attend_block *b, int64_t m)
{
    return attend_seen(b, m + TILE < b->nq ? m + TILE - 1 : b->nq - 1);
}

/* Returns the first query that sees key k, or nq. */
static int64_t attend_first(const attend_block *b, int64_t k)
{
    const int64_t i = k + 1 - b->shift;
    return i < 0 ? 0 : i < b->nq ? i : b->nq;
}

/* The products of a block skip the tiles that no query sees. Rows and columns are rounded up to
 * whole tiles, and all arrays have room for them. */

/* s = a kt: rows of `a` are queries; kt: [head][K_BLOCK]. */
static void attend_scores(const attend_block *b, int64_t head, const float *a, int64_t lda,
                          const float *kt, float *s)
{
    for (int64_t n = 0; n < b->nk; n += PAIR)
        for (int64_t m = attend_first(b, n) / TILE * TILE; m < b->nq; m += TILE)
            attend_tile(attend_tile_seen(b, m) - n, head, a + m * lda, lda, 1, kt + n, K_BLOCK,
                        s + m * K_BLOCK + n, K_BLOCK, false);
}

/* o += p v: rows of v and o have `width` columns. */
static void attend_values(const attend_block *b, int64_t width, const float *p, const float *v,
                          int64_t ldv, float *o)
{
    for (int64_t n = 0; n < width; n += PAIR)
        for (int64_t m = 0; m < b->nq; m += TILE)
            attend_tile(PAIR, attend_tile_seen(b, m), p + m * K_BLOCK, K_BLOCK, 1, v + n, ldv,
                        o + m * width + n, width, true);
}

/* dk += ds^T q: rows of q and dk have `width` columns. */
static void attend_keys_back(const attend_block *b, int64_t width, const float *ds, const float *q,
                             int64_t ldq, float *dk)
{
    for (int64_t n = 0; n < width; n += PAIR)
        for (int64_t m = 0; m < b->nk; m += TILE) {
            const int64_t i = attend_first(b, m);
            attend_tile(PAIR, b->nq - i, ds + i * K_BLOCK + m, 1, K_BLOCK, q + i * ldq + n, ldq,
                        dk + m * width + n, width, true);
        }
}

static int64_t attend_padded(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* ---- the work of one sequence and key head ---- */

typedef struct attend_job {
    const rd_attend *a;
    const rd_attend_seq *seq;
    rd_var *q, *kv, *o;
    float *lse;         /* [n_heads, Nq]; NULL: not wanted */
    uint8_t *mask;      /* NULL: no dropout */
    int64_t n_rows;     /* Nq */
    int64_t workers;    /* pieces of the work */
    const int64_t *cut; /* [workers + 1] first task of each piece */
    float *memory;      /* [workers, per_worker] */
    int64_t per_worker;
    int64_t longest; /* largest k_len, rounded up to K_BLOCK */
    int64_t width;   /* head, rounded up to PAIR */
    /* Gradients are written where nothing was before; otherwise they are added. */
    bool set_q, set_kv;
} attend_job;

/* Scratch of one thread. */
typedef struct attend_room {
    float *kt, *vt;     /* [blocks of K_BLOCK keys][head][K_BLOCK] */
    float *k, *v;       /* [longest, width] */
    float *dk, *dv;     /* [longest, width] */
    float *q, *o, *d_o; /* [Q_BLOCK, width] */
    float *s, *p;       /* [Q_BLOCK, K_BLOCK] */
} attend_room;

static int64_t attend_room_floats(int64_t longest, int64_t width, bool back)
{
    return longest * width * (back ? 6 : 2) + Q_BLOCK * width * (back ? 3 : 2) +
           Q_BLOCK * K_BLOCK * (back ? 2 : 1);
}

static attend_room attend_room_of(const attend_job *j, int64_t worker, bool back)
{
    attend_room r = {0};
    float *at = j->memory + worker * j->per_worker;
    const int64_t keys = j->longest * j->width;
    r.kt = at, at += keys;
    r.v = at, at += keys;
    if (back) {
        r.vt = at, at += keys;
        r.k = at, at += keys;
        r.dk = at, at += keys;
        r.dv = at, at += keys;
    }
    r.q = at, at += Q_BLOCK * j->width;
    r.o = at, at += Q_BLOCK * j->width;
    if (back) r.d_o = at, at += Q_BLOCK * j->width;
    r.s = at, at += Q_BLOCK * K_BLOCK;
    if (back) r.p = at;
    return r;
}

/* Rows of a head: where they are, and the distance from one to the next. */
typedef struct attend_rows {
    const float *at;
    int64_t ld;
} attend_rows;

/* A key that is not there. */
enum { ATTEND_NOTHING = 256 };
static const float attend_nothing[ATTEND_NOTHING];

static const float *attend_key(const attend_job *j, const rd_attend_seq *s, int64_t k)
{
    const int64_t row = j->a->key_row ? j->a->key_row[s->k_first + k] : s->k_first + k;
    return j->kv->v + row * j->kv->cols;
}

/* Copies the rows of a head to [n, width]; zeros behind them. */
static void attend_rows_get(const float *x, int64_t ld, int64_t n, int64_t head, int64_t most,
                            int64_t width, float *restrict to)
{
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + i * width, x + i * ld, (size_t)head * sizeof *to);
        memset(to + i * width + head, 0, (size_t)(width - head) * sizeof *to);
    }
    memset(to + n * width, 0, (size_t)((most - n) * width) * sizeof *to);
}

/* Copies keys or values from column `at` on: by rows to [k_len, width], and transposed in blocks
 * [.., head, K_BLOCK], with zeros up to the next whole vector of keys. A target may be NULL. */
static void attend_keys_get(const attend_job *j, const rd_attend_seq *s, int64_t at, float *rows,
                            float *restrict turned)
{
    const int64_t head = j->a->head, most = attend_padded(s->k_len, LANES);
    for (int64_t k = 0; rows && k < s->k_len; k++) {
        memcpy(rows + k * j->width, attend_key(j, s, k) + at, (size_t)head * sizeof *rows);
        memset(rows + k * j->width + head, 0, (size_t)(j->width - head) * sizeof *rows);
    }
    for (int64_t k = 0; turned && k < most; k += 8) {
        /* eight keys at a time: each line of the target is written once */
        const float *x[8];
        float *restrict to = turned + k / K_BLOCK * K_BLOCK * head + k % K_BLOCK;
        for (int64_t i = 0; i < 8; i++)
            x[i] = k + i < s->k_len ? attend_key(j, s, k + i) + at : attend_nothing;
        const bool all = k + 8 <= s->k_len || head <= ATTEND_NOTHING;
        int64_t c = 0;
        for (; all && c + 8 <= head; c += 8) rd_turn8(x, c, to + c * K_BLOCK, K_BLOCK);
        for (; c < head; c++)
            for (int64_t i = 0; i < 8; i++) to[c * K_BLOCK + i] = k + i < s->k_len ? x[i][c] : 0.0f;
    }
}

/* Whether products read rows of a head where they are: few rows, which a cache holds at any
 * distance from each other, whole vectors, and a variable whose slack makes the rows behind the
 * last one readable. What these rows hold does not matter, because their products are not used. */
static bool attend_in_place(const attend_job *j, const rd_var *x, int64_t n)
{
    enum { FEW = 32 };
    return n <= FEW && j->a->head == j->width && !x->param;
}

/* Returns n rows of a head of `of`, from x on, for products that read up to `most` rows and
 * j->width columns: the rows themselves, or a copy in `room`. */
static attend_rows attend_rows_of(const attend_job *j, const rd_var *of, const float *x, int64_t n,
                                  int64_t most, float *room)
{
    if (attend_in_place(j, of, n)) return (attend_rows){x, of->cols};
    attend_rows_get(x, of->cols, n, j->a->head, most, j->width, room);
    return (attend_rows){room, j->width};
}

/* The same for the keys or values of a sequence, from column `at` on. */
static attend_rows attend_keys_of(const attend_job *j, const rd_attend_seq *s, int64_t at,
                                  float *room)
{
    if (!j->a->key_row && attend_in_place(j, j->kv, s->k_len))
        return (attend_rows){attend_key(j, s, 0) + at, j->kv->cols};
    attend_keys_get(j, s, at, room, NULL);
    return (attend_rows){room, j->width};
}

/* Returns the block of nq queries from q0 on and nk keys from k0 on. */
static attend_block attend_block_of(const rd_attend *a, const rd_attend_seq *s, int64_t q0,
                                    int64_t nq, int64_t k0, int64_t nk)
{
    return (attend_block){nq, nk, a->causal ? q0 + s->k_len - s->q_len + 1 - k0 : nk};
}

/* Returns how many keys the queries before q1 see. */
static int64_t attend_keys_seen(const rd_attend *a, const rd_attend_seq *s, int64_t q1)
{
    return a->causal ? q1 + s->k_len - s->q_len : s->k_len;
}

static uint8_t *attend_mask_of(const attend_job *j, const rd_attend_seq *s, int64_t head, int64_t i)
{
    const int64_t ld = rd_attend_mask_bytes(s->k_len);
    return j->mask + s->mask + (head * s->q_len + i) * ld;
}

/* Draws the masks of nq queries from q0 on, for the keys that they see. */
static void attend_draw(const attend_job *j, const rd_attend_seq *s, int64_t head, int64_t q0,
                        int64_t nq)
{
    enum { TOGETHER = 16 };
    const rd_key key = rd_attend_key(j->a, head);
    for (int64_t i = q0; i < q0 + nq; i += TOGETHER) {
        const int64_t n = q0 + nq - i < TOGETHER ? q0 + nq - i : TOGETHER;
        rd_philox_keep_bits(key, (uint64_t)s->sample, (uint32_t)i, n, j->a->drop.keep,
                            attend_keys_seen(j->a, s, i + n), attend_mask_of(j, s, head, i),
                            rd_attend_mask_bytes(s->k_len));
    }
}

/* x[k] = scale x[k] where bit k of the mask is set, else 0; n is rounded up to whole vectors, for
 * which the mask has bytes. */
static void attend_drop(float *restrict x, const uint8_t *bits, int64_t n, float scale)
{
#ifdef __AVX512F__
    const __m512 y = _mm512_set1_ps(scale);
    for (int64_t k = 0; k < n; k += LANES) {
        uint16_t set;
        memcpy(&set, bits + k / 8, sizeof set);
        _mm512_storeu_ps(x + k, _mm512_maskz_mul_ps(set, _mm512_loadu_ps(x + k), y));
    }
#else
    typedef int32_t i8 __attribute__((vector_size(32)));
    const i8 bit = {1, 2, 4, 8, 16, 32, 64, 128};
    for (int64_t k = 0; k < n; k += LANES) {
        const i8 set = ((int32_t)bits[k / 8] & bit) != 0;
        const vec y = *(const loose *)(x + k) * scale;
        *(loose *)(x + k) = (vec)((i8)y & set);
    }
#endif
}

/* Returns the largest of n >= 1 numbers. */
static float attend_top(const float *p, int64_t n)
{
    float top = p[0];
#pragma omp simd reduction(max : top)
    for (int64_t k = 0; k < n; k++) top = p[k] > top ? p[k] : top;
    return top;
}

static void attend_forward_head(const attend_job *j, const rd_attend_seq *s, int64_t head,
                                attend_rows v, const attend_room *r)
{
    const rd_attend *a = j->a;
    const int64_t width = j->width, hs = a->head;
    for (int64_t q0 = 0; q0 < s->q_len; q0 += Q_BLOCK) {
        const int64_t nq = s->q_len - q0 < Q_BLOCK ? s->q_len - q0 : Q_BLOCK,
                      rows = attend_padded(nq, TILE), keys = attend_keys_seen(a, s, q0 + nq);
        float m[Q_BLOCK], l[Q_BLOCK];
        const attend_rows q =
            attend_rows_of(j, j->q, j->q->v + (s->q_first + q0) * j->q->cols + a->q_at + head * hs,
                           nq, rows, r->q);
        memset(r->o, 0, (size_t)(rows * width) * sizeof *r->o);
        for (int64_t i = 0; i < nq; i++) m[i] = -INFINITY, l[i] = 0.0f;
        if (j->mask) attend_draw(j, s, head, q0, nq);
        for (int64_t k0 = 0; k0 < keys; k0 += K_BLOCK) {
            const int64_t nk = keys - k0 < K_BLOCK ? keys - k0 : K_BLOCK;
            const attend_block b = attend_block_of(a, s, q0, nq, k0, nk);
            attend_scores(&b, hs, q.at, q.ld, r->kt + k0 * hs, r->s);
            for (int64_t i = 0; i < nq; i++) {
                float *restrict p = r->s + i * K_BLOCK;
                const int64_t seen = attend_seen(&b, i),
                              cols = attend_padded(attend_tile_seen(&b, i / TILE * TILE), LANES);
                if (seen == 0) {
                    memset(p, 0, (size_t)cols * sizeof *p);
                    continue;
                }
                for (int64_t k = seen; k < cols; k++) p[k] = -INFINITY;
                const float top = attend_top(p, cols) * a->scale, most = top > m[i] ? top : m[i],
                            scale = a->scale;
                float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
                for (int64_t k = 0; k < cols; k++) {
                    p[k] = rd_expf(p[k] * scale - most);
                    sum += p[k];
                }
                for (int64_t k = seen; k < cols; k++) p[k] = 0.0f;
                if (k0 > 0) {
                    const float shrink = rd_expf(m[i] - most);
                    float *restrict o = r->o + i * width;
                    for (int64_t c = 0; c < width; c++) o[c] *= shrink;
                    sum += l[i] * shrink;
                }
                l[i] = sum;
                m[i] = most;
                if (j->mask)
                    attend_drop(p, attend_mask_of(j, s, head, q0 + i) + k0 / 8, seen,
                                1.0f / a->drop.keep);
            }
            attend_values(&b, width, r->s, v.at + k0 * v.ld, v.ld, r->o);
        }
        for (int64_t i = 0; i < nq; i++) {
            const float *o = r->o + i * width;
            float *restrict out = j->o->v + (s->q_first + q0 + i) * j->o->cols + head * hs;
            const float inv = 1.0f / l[i];
            for (int64_t c = 0; c < hs; c++) out[c] = o[c] * inv;
            if (j->lse) j->lse[head * j->n_rows + s->q_first + q0 + i] = m[i] + logf(l[i]);
        }
    }
}

/* ---- one query row alone, as in decoding: every key is read once, so nothing is copied ---- */

typedef float attend_four __attribute__((vector_size(16)));

/* Returns the sums of the lanes of four vectors. */
static inline attend_four attend_sums(const vec v[4])
{
    attend_four part[4], sum;
    for (int i = 0; i < 4; i++) {
        attend_four quarter[LANES / 4];
        memcpy(quarter, &v[i], sizeof quarter);
        part[i] = quarter[0];
        for (int k = 1; k < LANES / 4; k++) part[i] += quarter[k];
    }
    for (int i = 0; i < 4; i++) sum[i] = (part[i][0] + part[i][1]) + (part[i][2] + part[i][3]);
    return sum;
}

/* p[k] = scale q . x[k] for four keys of hs numbers. */
static inline void attend_row_scores(const float *q, const float *const x[4], int64_t hs,
                                     float scale, float p[4])
{
    vec acc[4] = {{0}};
    int64_t c = 0;
    for (; c + LANES <= hs; c += LANES)
        for (int i = 0; i < 4; i++) acc[i] += *(const loose *)(q + c) * *(const loose *)(x[i] + c);
    attend_four sum = attend_sums(acc);
    for (; c < hs; c++)
        for (int i = 0; i < 4; i++) sum[i] += q[c] * x[i][c];
    for (int i = 0; i < 4; i++) p[i] = sum[i] * scale;
}

/* out += sum_k p[k] x[k] for four values of hs numbers. */
static inline void attend_row_values(const float p[4], const float *const x[4], int64_t hs,
                                     float *restrict out)
{
    int64_t c = 0;
    for (; c + LANES <= hs; c += LANES) {
        vec o = *(const loose *)(out + c);
        for (int i = 0; i < 4; i++) o = attend_fma(p[i], *(const loose *)(x[i] + c), o);
        *(loose *)(out + c) = o;
    }
    for (; c < hs; c++)
        for (int i = 0; i < 4; i++) out[c] += p[i] * x[i][c];
}

/* p = softmax(p), n numbers; zeros behind them up to a multiple of 4. */
static void attend_row_softmax(float *restrict p, int64_t n)
{
    const float top = rd_maxf(p, n);
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < n; k++) {
        p[k] = rd_expf(p[k] - top);
        sum += p[k];
    }
    const float inv = 1.0f / sum;
    for (int64_t k = 0; k < n; k++) p[k] *= inv;
    for (int64_t k = n; k % 4 != 0; k++) p[k] = 0.0f;
}

/* The query heads [h0, h1) of one row. All heads of a key are read together, since keys may be far
 * apart in memory. key: the rows of the sequence's keys. p: room for a multiple of 4 numbers for
 * each key and head. */
static void attend_forward_row(const attend_job *j, const rd_attend_seq *s, int64_t h0, int64_t h1,
                               const float *const *key, float *restrict p)
{
    const rd_attend *a = j->a;
    const int64_t hs = a->head, n = s->k_len, ld = attend_padded(n, 4),
                  group = a->n_heads / a->n_kv_heads;
    const float *q = j->q->v + s->q_first * j->q->cols + a->q_at;
    float *out = j->o->v + s->q_first * j->o->cols;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t k0 = 0; k0 < n; k0 += 4)
            for (int64_t h = h0; h < h1; h++) {
                const int64_t at = (pass ? a->v_at : a->k_at) + h / group * hs;
                const float *x[4];
                float *to = p + (h - h0) * ld + k0;
                for (int i = 0; i < 4; i++) x[i] = key[k0 + i < n ? k0 + i : n - 1] + at;
                if (pass)
                    attend_row_values(to, x, hs, out + h * hs);
                else
                    attend_row_scores(q + h * hs, x, hs, a->scale, to);
            }
        for (int64_t h = h0; h < h1 && pass == 0; h++) attend_row_softmax(p + (h - h0) * ld, n);
        if (pass == 0) memset(out + h0 * hs, 0, (size_t)((h1 - h0) * hs) * sizeof *out);
    }
}

/* The key heads [g0, g1) of a sequence of one row. */
static void attend_forward_alone(const attend_job *j, const rd_attend_seq *s, int64_t g0,
                                 int64_t g1, const attend_room *r)
{
    const int64_t group = j->a->n_heads / j->a->n_kv_heads, end = g1 * group;
    const float **key = (const float **)(void *)r->v;
    for (int64_t k = 0; k < s->k_len; k++) key[k] = attend_key(j, s, k);
    /* r->kt has `width` numbers for each key. */
    for (int64_t h = g0 * group; h < end; h += j->width)
        attend_forward_row(j, s, h, h + j->width < end ? h + j->width : end, key, r->kt);
}

static void attend_forward_part(void *ctx, int64_t lo, int64_t hi)
{
    const attend_job *j = ctx;
    const rd_attend *a = j->a;
    const int64_t n_kv = a->n_kv_heads, group = a->n_heads / n_kv;
    for (int64_t w = lo; w < hi; w++) {
        const attend_room r = attend_room_of(j, w, false);
        int64_t g1;
        for (int64_t task = j->cut[w]; task < j->cut[w + 1]; task += g1 - task % n_kv) {
            const rd_attend_seq *s = &j->seq[task / n_kv];
            const int64_t g = task % n_kv, left = j->cut[w + 1] - task;
            g1 = g + 1;
            if (s->q_len == 0) continue;
            if (s->q_len == 1 && !j->lse && !j->mask) {
                g1 = g + left < n_kv ? g + left : n_kv;
                attend_forward_alone(j, s, g, g1, &r);
                continue;
            }
            attend_keys_get(j, s, a->k_at + g * a->head, NULL, r.kt);
            const attend_rows v = attend_keys_of(j, s, a->v_at + g * a->head, r.v);
            for (int64_t h = g * group; h < (g + 1) * group; h++)
                attend_forward_head(j, s, h, v, &r);
        }
    }
}

/* Writes n numbers of a gradient, or adds them. */
static void attend_give(const float *restrict from, int64_t n, bool add, float *restrict to)
{
    if (add)
        for (int64_t c = 0; c < n; c++) to[c] += from[c];
    else
        memcpy(to, from, (size_t)n * sizeof *to);
}

/* Fetches the first n rows of a head into the cache; they are too far apart for the CPU to foresee
 * them. */
static void attend_fetch(const float *x, int64_t ld, int64_t n, int64_t head)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < head; c += 16) __builtin_prefetch(x + i * ld + c);
}

/* Fetches what backward reads of the queries from q0 on, up to Q_BLOCK. */
static void attend_fetch_back(const attend_job *j, const rd_attend_seq *s, int64_t head, int64_t q0)
{
    const int64_t left = s->q_len - q0, n = left < Q_BLOCK ? left : Q_BLOCK, hs = j->a->head,
                  row = s->q_first + q0, at = row * j->o->cols + head * hs;
    attend_fetch(j->o->v + at, j->o->cols, n, hs);
    attend_fetch(j->o->g + at, j->o->cols, n, hs);
    attend_fetch(j->q->v + row * j->q->cols + j->a->q_at + head * hs, j->q->cols, n, hs);
}

/* Adds the gradients of query head `head` to dq, r->dk and r->dv. */
static void attend_backward_head(const attend_job *j, const rd_attend_seq *s, int64_t head,
                                 attend_rows key, const attend_room *r)
{
    const rd_attend *a = j->a;
    const int64_t width = j->width, hs = a->head;
    const float inv = 1.0f / a->drop.keep;
    for (int64_t q0 = 0; q0 < s->q_len; q0 += Q_BLOCK) {
        const int64_t nq = s->q_len - q0 < Q_BLOCK ? s->q_len - q0 : Q_BLOCK,
                      rows = attend_padded(nq, TILE), row0 = s->q_first + q0,
                      keys = attend_keys_seen(a, s, q0 + nq);
        float D[Q_BLOCK];
        const attend_rows q = attend_rows_of(j, j->q,
                                             j->q->v + row0 * j->q->cols + a->q_at + head * hs, nq,
                                             rows, r->q),
                          d_o = attend_rows_of(j, j->o, j->o->g + row0 * j->o->cols + head * hs, nq,
                                               rows, r->d_o);
        for (int64_t i = 0; i < nq; i++) {
            const float *o = j->o->v + (row0 + i) * j->o->cols + head * hs,
                        *d = d_o.at + i * d_o.ld;
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int64_t c = 0; c < hs; c++) sum += o[c] * d[c];
            D[i] = sum;
        }
        if (q0 + nq < s->q_len)
            attend_fetch_back(j, s, head, q0 + nq);
        else if (head + 1 < a->n_heads)
            attend_fetch_back(j, s, head + 1, 0);
        memset(r->o, 0, (size_t)(rows * width) * sizeof *r->o); /* dq of the block */
        for (int64_t k0 = 0; k0 < keys; k0 += K_BLOCK) {
            const int64_t nk = keys - k0 < K_BLOCK ? keys - k0 : K_BLOCK;
            const attend_block b = attend_block_of(a, s, q0, nq, k0, nk);
            attend_scores(&b, hs, q.at, q.ld, r->kt + k0 * hs, r->p);
            attend_scores(&b, hs, d_o.at, d_o.ld, r->vt + k0 * hs, r->s);
            for (int64_t i = 0; i < nq; i++) {
                float *restrict p = r->p + i * K_BLOCK, *restrict ds = r->s + i * K_BLOCK;
                const int64_t seen = attend_seen(&b, i),
                              cols = attend_padded(attend_tile_seen(&b, i / TILE * TILE), LANES);
                const float lse = j->lse[head * j->n_rows + row0 + i];
                const uint8_t *bits = j->mask ? attend_mask_of(j, s, head, q0 + i) + k0 / 8 : NULL;
                const float d = D[i], scale = a->scale;
                if (bits) attend_drop(ds, bits, seen, inv);
#pragma omp simd
                for (int64_t k = 0; k < cols; k++) {
                    p[k] = rd_expf(p[k] * scale - lse);
                    ds[k] = p[k] * (ds[k] - d) * scale;
                }
                for (int64_t k = seen; k < cols; k++) p[k] = ds[k] = 0.0f;
                if (bits) attend_drop(p, bits, seen, inv);
            }
            attend_keys_back(&b, width, r->p, d_o.at, d_o.ld, r->dv + k0 * width);
            attend_keys_back(&b, width, r->s, q.at, q.ld, r->dk + k0 * width);
            attend_values(&b, width, r->s, key.at + k0 * key.ld, key.ld, r->o);
        }
        for (int64_t i = 0; j->q->g && i < nq; i++)
            attend_give(r->o + i * width, hs, !j->set_q,
                        j->q->g + (row0 + i) * j->q->cols + a->q_at + head * hs);
    }
}

static void attend_backward_part(void *ctx, int64_t lo, int64_t hi)
{
    const attend_job *j = ctx;
    const rd_attend *a = j->a;
    const int64_t group = a->n_heads / a->n_kv_heads, hs = a->head;
    for (int64_t w = lo; w < hi; w++) {
        const attend_room r = attend_room_of(j, w, true);
        for (int64_t task = j->cut[w]; task < j->cut[w + 1]; task++) {
            const rd_attend_seq *s = &j->seq[task / a->n_kv_heads];
            const int64_t g = task % a->n_kv_heads;
            const size_t all = (size_t)(attend_padded(s->k_len, TILE) * j->width);
            if (s->q_len == 0) continue;
            const attend_rows key = attend_keys_of(j, s, a->k_at + g * hs, r.k);
            attend_keys_get(j, s, a->k_at + g * hs, NULL, r.kt);
            attend_keys_get(j, s, a->v_at + g * hs, NULL, r.vt);
            memset(r.dk, 0, all * sizeof *r.dk);
            memset(r.dv, 0, all * sizeof *r.dv);
            for (int64_t h = g * group; h < (g + 1) * group; h++)
                attend_backward_head(j, s, h, key, &r);
            for (int64_t k = 0; j->kv->g && k < s->k_len; k++) {
                float *to = j->kv->g + (s->k_first + k) * j->kv->cols + g * hs;
                attend_give(r.dk + k * j->width, hs, !j->set_kv, to + a->k_at);
                attend_give(r.dv + k * j->width, hs, !j->set_kv, to + a->v_at);
            }
        }
    }
}

/* Cuts the tasks into one piece for each thread, of about equal work, and allocates their memory.
 * */
static rd_code attend_plan(rd_call *c, attend_job *j, bool back, rd_status *st)
{
    const rd_attend *a = c->attr;
    const int64_t tasks = a->n * a->n_kv_heads;
    double all = 0.0, done_so_far = 0.0;
    int64_t *cut, w = 0;
    j->a = a;
    j->q = c->in[0];
    j->kv = c->in[1];
    j->o = c->out[0];
    j->n_rows = c->out[0]->rows;
    j->width = attend_padded(a->head, PAIR);
    j->workers = rd_backend_threads(c->be);
    for (int64_t s = 0; s < a->n; s++) {
        const int64_t keys = attend_padded(a->k_len[s], K_BLOCK);
        if (keys > j->longest) j->longest = keys;
        all += (double)(a->q_len[s] + 8) * (double)(a->k_len[s] + 8) * (double)a->n_kv_heads;
    }
    RD_TRY(rd_arena_get(c->scratch, (size_t)(j->workers + 1) * sizeof *cut, &cut, st));
    for (int64_t t = 0; t < tasks; t++) {
        const int64_t s = t / a->n_kv_heads;
        while (w < j->workers && done_so_far * (double)j->workers >= all * (double)w) cut[w++] = t;
        done_so_far += (double)(a->q_len[s] + 8) * (double)(a->k_len[s] + 8);
    }
    while (w <= j->workers) cut[w++] = tasks;
    j->cut = cut;
    j->per_worker = attend_room_floats(j->longest, j->width, back);
    RD_TRY(rd_arena_get(c->scratch, (size_t)(j->workers * j->per_worker) * sizeof(float),
                        &j->memory, st));
done:
    return st->code;
}

static rd_code attend_forward(rd_call *c, rd_status *st)
{
    const rd_attend *a = c->attr;
    attend_job j = {0};
    rd_attend_saved *saved;
    int64_t mask_bytes;
    RD_TRY(rd_arena_zero(c->kept, sizeof *saved, &saved, st));
    c->saved = saved;
    RD_TRY(rd_attend_list(c->kept, a, &saved->seq, &mask_bytes, st));
    if (c->keep)
        RD_TRY(rd_arena_get(c->kept, (size_t)(a->n_heads * (c->out[0]->rows + 1)) * sizeof(float),
                            &saved->lse, st));
    if (rd_attend_drops(c)) RD_TRY(rd_arena_get(c->kept, (size_t)mask_bytes + 1, &saved->mask, st));
    j.seq = saved->seq;
    j.lse = saved->lse;
    j.mask = saved->mask;
    RD_TRY(attend_plan(c, &j, false, st));
    rd_parallel(c->be, j.workers, 1, attend_forward_part, &j);
done:
    return st->code;
}

static bool attend_apart(int64_t a, int64_t n_a, int64_t b, int64_t n_b)
{
    return a + n_a <= b || b + n_b <= a;
}

/* Returns whether backward computes every number of the gradient of input i: those of the queries
 * (0), or of keys and values (1), or of all, if one input has all. */
static bool attend_covers(const rd_call *c, int i)
{
    const rd_attend *a = c->attr;
    const bool both = c->in[0] == c->in[1];
    const int64_t wq = a->n_heads * a->head, wk = a->n_kv_heads * a->head;
    int64_t rows = 0;
    if (c->in[i]->cols != (both ? wq + 2 * wk : i == 0 ? wq : 2 * wk)) return false;
    if (!attend_apart(a->k_at, wk, a->v_at, wk)) return false;
    if (both && !(attend_apart(a->q_at, wq, a->k_at, wk) && attend_apart(a->q_at, wq, a->v_at, wk)))
        return false;
    for (int64_t s = 0; s < a->n && (both || i == 1); s++) {
        if (a->q_len[s] == 0 || a->k_first[s] != rows) return false;
        rows += a->k_len[s];
    }
    return both || i == 1 ? rows == c->in[i]->rows : true;
}

/* Makes the gradient of input i; *set: as in attend_job. */
static rd_code attend_gradient(rd_call *c, int i, bool *set, rd_status *st)
{
    float *g;
    bool add;
    *set = false;
    if (!attend_covers(c, i)) return rd_call_zero_grad(c, i, st);
    RD_TRY(rd_call_grad(c, i, &g, &add, st));
    *set = !add;
done:
    return st->code;
}

static rd_code attend_backward(rd_call *c, rd_status *st)
{
    const rd_attend_saved *saved = c->saved;
    attend_job j = {.seq = saved->seq, .lse = saved->lse, .mask = saved->mask};
    RD_TRY(attend_gradient(c, 0, &j.set_q, st));
    j.set_kv = j.set_q;
    if (c->in[1] != c->in[0]) RD_TRY(attend_gradient(c, 1, &j.set_kv, st));
    RD_TRY(attend_plan(c, &j, true, st));
    rd_parallel(c->be, j.workers, 1, attend_backward_part, &j);
done:
    return st->code;
}

RD_OP(attend) = {
    .name = "attend",
    .about = "attention with several heads",
    .infer = attend_infer,
    .kernel = {[RD_CPU] = {attend_forward, attend_backward}, [RD_GPU] = RD_GPU_KERNEL(attend)},
    .narrow = RD_NARROW(0) | RD_NARROW(1),
    .own_grads = true};

rd_var *rd_op_attend(rd_tape *t, const rd_attend *a, rd_var *queries, rd_var *keys)
{
    rd_var *in[] = {queries, keys};
    return queries && keys ? rd_tape_apply(t, &rd_op_def_attend, a, sizeof *a, in, 2, NULL, 1)
                           : NULL;
}
