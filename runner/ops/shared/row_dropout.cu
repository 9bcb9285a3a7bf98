/* row_dropout.cu -- masks of packed rows on a GPU, bit for bit the masks of row_dropout.c, and rows
 * of the step before. */
#include "../../engine/gpu/philox_device.h"
#include "cell_kernels.h"
#include "../../engine/gpu/rounded_device.h"
#include "../../engine/gpu/rows_grid.h"

/* Returns the step of a row: the last t of [lo, hi] with off[t] <= row. */
static __device__ inline int64_t step_of(const int64_t *__restrict__ off, int64_t lo, int64_t hi,
                                         int64_t row)
{
    while (lo < hi) {
        const int64_t mid = (lo + hi + 1) / 2;
        if (off[mid] <= row)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

static __device__ inline float dropped(float x, uint32_t kept, float scale)
{
    return kept ? x * scale : 0.0f;
}

static __device__ inline float4 four_of(const float *p)
{
    return *(const float4 *)p;
}

/* A thread computes the eight elements of one block of random numbers. WIDE: rows are whole blocks,
 * and the addresses allow vectors. */
template <bool WIDE>
static __global__ void dropout_rows(rd_mask_rows m, uint32_t limit, float scale,
                                    const float *__restrict__ x, const float *__restrict__ residual,
                                    float *__restrict__ y, uint8_t *__restrict__ mask,
                                    rd_rounded_copy copy)
{
    const int64_t blocks = (m.width + 7) / 8;
    for (RD_EACH_ROW(i, m.n)) {
        const int64_t row = m.first + i, t = step_of(m.off, m.t0, m.t1 - 1, row);
        const uint64_t sample = (uint64_t)m.sample[row - m.off[t]];
        for (RD_EACH_COLUMN(b, blocks)) {
            const int64_t at = i * m.width + 8 * b;
            uint32_t draw[4];
            rd_philox_block(m.key, sample, (uint32_t)t, (uint32_t)b, draw);
            if (WIDE) {
                uint32_t kept[8];
                for (int j = 0; j < 8; j++) kept[j] = rd_philox_kept(draw, j, limit);
                *(uint2 *)(mask +
                           at) = make_uint2(kept[0] | kept[1] << 8 | kept[2] << 16 | kept[3] << 24,
                                            kept[4] | kept[5] << 8 | kept[6] << 16 | kept[7] << 24);
                rd_lanes<8> all;
                for (int h = 0; h < 2 && y; h++) {
                    const float4 v = four_of(x + at + 4 * h);
                    float4 d = make_float4(dropped(v.x, kept[4 * h], scale),
                                           dropped(v.y, kept[4 * h + 1], scale),
                                           dropped(v.z, kept[4 * h + 2], scale),
                                           dropped(v.w, kept[4 * h + 3], scale));
                    if (residual) {
                        const float4 r = four_of(residual + at + 4 * h);
                        d = make_float4(d.x + r.x, d.y + r.y, d.z + r.z, d.w + r.w);
                    }
                    *(float4 *)(y + at + 4 * h) = d;
                    all.at[4 * h] = d.x, all.at[4 * h + 1] = d.y;
                    all.at[4 * h + 2] = d.z, all.at[4 * h + 3] = d.w;
                }
                if (y) rd_rounded_put<8>(copy, at, all);
            } else {
                for (int j = 0; j < 8 && 8 * b + j < m.width; j++) {
                    const uint32_t kept = rd_philox_kept(draw, j, limit);
                    mask[at + j] = (uint8_t)kept;
                    if (!y) continue;
                    const float d = dropped(x[at + j], kept, scale) +
                                    (residual ? residual[at + j] : 0.0f);
                    y[at + j] = d;
                    rd_rounded_put(copy, at + j, d);
                }
            }
        }
    }
}

static rd_code launch_dropout_rows(rd_backend *be, const rd_mask_rows *rows, const float *x,
                                   const float *residual, float *y, uint8_t *mask, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(be);
    const rd_mask_rows m = *rows;
    const int64_t blocks = (m.width + 7) / 8;
    const uint32_t limit = rd_philox_limit(m.keep);
    const float scale = 1.0f / m.keep;
    const rd_rounded_copy copy = rd_rounded_copy_of(g, y);
    if (m.width % 8 == 0 && rd_by_four(x) && rd_by_four(residual) && rd_by_four(y) &&
        (uintptr_t)mask % 8 == 0)
        return RD_LAUNCH(g, st, dropout_rows<true>, rd_rows_grid(m.n, blocks),
                         rd_rows_block(blocks), 0, m, limit, scale, x, residual, y, mask, copy);
    return RD_LAUNCH(g, st, dropout_rows<false>, rd_rows_grid(m.n, blocks), rd_rows_block(blocks),
                     0, m, limit, scale, x, residual, y, mask, copy);
}

static __global__ void dropout_back(int64_t n, float scale, const float *dy, const uint8_t *mask,
                                    float *dx, bool add)
{
    for (RD_EACH(i, n)) {
        const float d = dropped(dy[i], mask[i], scale);
        dx[i] = add ? dx[i] + d : d;
    }
}

static __global__ void dropout_back_by_four(int64_t n, float scale, const float4 *dy,
                                            const uint32_t *mask, float4 *dx, bool add)
{
    for (RD_EACH(i, n)) {
        const float4 v = dy[i];
        const uint32_t m = mask[i];
        float4 d = make_float4(dropped(v.x, m & 0xFFu, scale), dropped(v.y, m >> 8 & 0xFFu, scale),
                               dropped(v.z, m >> 16 & 0xFFu, scale), dropped(v.w, m >> 24, scale));
        if (add) {
            const float4 a = dx[i];
            d = make_float4(a.x + d.x, a.y + d.y, a.z + d.z, a.w + d.w);
        }
        dx[i] = d;
    }
}

static rd_code launch_dropout_back(rd_backend *be, float scale, int64_t n, const float *dy,
                                   const uint8_t *mask, float *dx, bool add, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(be);
    if (n <= 0) return RD_OK;
    if (n % 4 == 0 && rd_by_four(dy) && rd_by_four(dx) && (uintptr_t)mask % 4 == 0)
        return RD_LAUNCH(g, st, dropout_back_by_four, rd_grid(n / 4), RD_BLOCK, 0, n / 4, scale,
                         (const float4 *)dy, (const uint32_t *)mask, (float4 *)dx, add);
    return RD_LAUNCH(g, st, dropout_back, rd_grid(n), RD_BLOCK, 0, n, scale, dy, mask, dx, add);
}

/* V: number of columns that a thread copies at once. Widths are counted in V. */
template <int V>
static __global__ void shift_rows(int64_t n_steps, const int64_t *__restrict__ off, int64_t n,
                                  int64_t width, const float *__restrict__ h,
                                  float *__restrict__ out, rd_rounded_copy copy)
{
    for (RD_EACH_ROW(row, n)) {
        const int64_t t = step_of(off, 0, n_steps - 1, row);
        const float *from = t ? h + (off[t - 1] + row - off[t]) * width * V : nullptr;
        for (RD_EACH_COLUMN(j, width)) {
            rd_lanes<V> v = {};
            if (from) v = rd_lanes_get<V>(from + j * V);
            rd_lanes_put<V>(out + (row * width + j) * V, v);
            rd_rounded_put<V>(copy, (row * width + j) * V, v);
        }
    }
}

static rd_code launch_shift_rows(rd_backend *be, const rd_packing_lent *p, int64_t width,
                                 const float *h, float *out, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(be);
    const int64_t *off = p->off, n_steps = p->p->n_steps, n = p->p->off[n_steps];
    const rd_rounded_copy copy = rd_rounded_copy_of(g, out);
    if (width % 4 == 0 && rd_by_four(h) && rd_by_four(out))
        return RD_LAUNCH(g, st, shift_rows<4>, rd_rows_grid(n, width / 4), rd_rows_block(width / 4),
                         0, n_steps, off, n, width / 4, h, out, copy);
    return RD_LAUNCH(g, st, shift_rows<1>, rd_rows_grid(n, width), rd_rows_block(width), 0, n_steps,
                     off, n, width, h, out, copy);
}

/* Lends offsets and samples to kernels, in one copy. */
static rd_code lend_packing(rd_call *c, const rd_packing *p, rd_arena *a, rd_packing_lent *out,
                            rd_status *st)
{
    if (p->n_steps == 0) return RD_OK;
    const int64_t n_off = p->n_steps + 1, n = n_off + p->off[1];
    int64_t *both;
    const int64_t *lent;
    RD_TRY_OR_RETURN(rd_arena_get(c->scratch, (size_t)n * sizeof *both, &both, st));
    memcpy(both, p->off, (size_t)n_off * sizeof *both);
    memcpy(both + n_off, p->sample, (size_t)p->off[1] * sizeof *both);
    RD_TRY_OR_RETURN(rd_call_lend(c, a, both, (size_t)n * sizeof *both, &lent, st));
    out->off = lent;
    out->sample = lent + n_off;
    return RD_OK;
}

const rd_row_kernels rd_cuda_rows = {lend_packing, launch_dropout_rows, launch_dropout_back,
                                     launch_shift_rows};
