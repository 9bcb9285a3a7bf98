/* residual.cu -- residual on a GPU: the formulas and the masks of residual.c. */
#include "../engine/gpu/element_device.h"
#include "../engine/gpu/philox_device.h"
#include "../engine/gpu/rows_grid.h"
#include "residual.h"

/* What a pass does with the mask: it draws and stores it, reads it, or keeps all elements. */
enum residual_mask { DRAW, READ, KEEP_ALL };

/* A thread computes the eight elements of a row that one philox block decides: one byte of the
 * mask. X, Z and Y: types of the elements. */
template <typename X, typename Z, typename Y> struct residual_rows {
    rd_key key;
    uint32_t limit;
    float scale;
    int64_t n, d;
    const int64_t *sample, *position;
    const X *x;
    const Z *z;
    Y *y; /* may be x or z */
    uint8_t *mask;
};

/* Computes V elements, whose mask begins at bit 0 of keep. */
template <residual_mask MASK, int V, typename X, typename Z, typename Y>
static __device__ inline void residual_lanes(const residual_rows<X, Z, Y> &r, int64_t at,
                                             uint32_t keep)
{
    rd_lanes<V> v = rd_lanes_get<V>(r.z + at), x = {};
    if (r.x) x = rd_lanes_get<V>(r.x + at);
#pragma unroll
    for (int l = 0; l < V; l++) {
        const float z = MASK == KEEP_ALL ? v.at[l] : keep >> l & 1 ? v.at[l] * r.scale : 0.0f;
        v.at[l] = r.x ? x.at[l] + z : z;
    }
    rd_lanes_put<V>(r.y + at, v);
}

/* WHOLE: rows are whole vectors of eight. */
template <residual_mask MASK, bool WHOLE, typename X, typename Z, typename Y>
static __global__ void residual_sum(residual_rows<X, Z, Y> r)
{
    const int64_t blocks = (r.d + 7) / 8;
    for (RD_EACH_ROW(i, r.n)) {
        for (RD_EACH_COLUMN(b, blocks)) {
            uint32_t keep = 0;
            if (MASK == DRAW) {
                uint32_t word[4];
                rd_philox_block(r.key, (uint64_t)r.sample[i], (uint32_t)r.position[i], (uint32_t)b,
                                word);
#pragma unroll
                for (int j = 0; j < 8; j++) keep |= rd_philox_kept(word, j, r.limit) << j;
                r.mask[i * blocks + b] = (uint8_t)keep;
            } else if (MASK == READ) {
                keep = r.mask[i * blocks + b];
            }
            const int64_t at = i * r.d + 8 * b, left = r.d - 8 * b;
            if (WHOLE)
                residual_lanes<MASK, 8>(r, at, keep);
            else
                for (int j = 0; j < 8 && j < left; j++)
                    residual_lanes<MASK, 1>(r, at + j, keep >> j);
        }
    }
}

/* The arguments of a pass that do not depend on types. */
struct residual_draw {
    rd_key key;
    const int64_t *sample, *position;
};

template <residual_mask MASK, typename X, typename Z, typename Y>
static rd_code residual_launch(rd_call *c, const rd_residual_pass *p, const residual_draw &draw,
                               rd_status *st)
{
    const float keep = static_cast<const rd_residual *>(c->attr)->drop.keep;
    rd_gpu *gpu = rd_gpu_of(c->be);
    residual_rows<X, Z, Y> r = {};
    r.key = draw.key;
    r.limit = rd_philox_limit(keep);
    r.scale = 1.0f / keep;
    r.n = c->in[1]->rows;
    r.d = c->in[1]->cols;
    r.sample = draw.sample;
    r.position = draw.position;
    r.x = static_cast<const X *>(p->x);
    r.z = static_cast<const Z *>(p->z);
    r.y = static_cast<Y *>(p->y);
    r.mask = static_cast<uint8_t *>(c->saved);
    const int64_t blocks = (r.d + 7) / 8;
    const dim3 grid = rd_rows_grid(r.n, blocks), block = rd_rows_block(blocks);
    if (r.d % 8 == 0 && rd_by_four(r.x) && rd_by_four(r.z) && rd_by_four(r.y))
        return RD_LAUNCH(gpu, st, (residual_sum<MASK, true, X, Z, Y>), grid, block, 0, r);
    return RD_LAUNCH(gpu, st, (residual_sum<MASK, false, X, Z, Y>), grid, block, 0, r);
}

/* T: the 16-bit type of the pass, or float. */
template <residual_mask MASK, typename T>
static rd_code residual_typed(rd_call *c, const rd_residual_pass *p, const residual_draw &draw,
                              rd_status *st)
{
    const bool x = p->of_x == RD_FLOAT32, z = p->of_z == RD_FLOAT32, y = p->of_y == RD_FLOAT32;
    if (x && z && y) return residual_launch<MASK, float, float, float>(c, p, draw, st);
    if (!x && !z && !y) return residual_launch<MASK, T, T, T>(c, p, draw, st);
    if (x && !z && y) return residual_launch<MASK, float, T, float>(c, p, draw, st);
    if (!x && !z && y) return residual_launch<MASK, T, T, float>(c, p, draw, st);
    if (!x && z && !y) return residual_launch<MASK, T, float, T>(c, p, draw, st);
    return rd_fail(st, RD_EBUG, "residual: no kernel has these types");
}

template <residual_mask MASK>
static rd_code residual_pass(rd_call *c, const rd_residual_pass *p, const residual_draw &draw,
                             rd_status *st)
{
    if (p->of_z == RD_FLOAT16 || p->of_y == RD_FLOAT16)
        return residual_typed<MASK, rd_f16>(c, p, draw, st);
    return residual_typed<MASK, rd_bf16>(c, p, draw, st);
}

static rd_code residual_masked(rd_call *c, const rd_residual_pass *p, rd_status *st)
{
    const residual_draw none = {};
    return residual_pass<READ>(c, p, none, st);
}

extern "C" rd_code rd_cuda_residual_forward(rd_call *c, rd_status *st)
{
    const rd_residual *a = static_cast<const rd_residual *>(c->attr);
    const rd_residual_pass p = rd_residual_forward_pass(c);
    const int64_t n = c->in[1]->rows;
    residual_draw draw = {};
    if (!rd_residual_drops(c)) {
        if (p.of_x == p.of_y && p.of_z == p.of_y) return rd_residual_plain(c, st);
        return residual_pass<KEEP_ALL>(c, &p, draw, st);
    }
    if (c->saved) return residual_masked(c, &p, st);
    RD_TRY_OR_RETURN(rd_arena_get(
        c->device_kept, (size_t)(n * rd_residual_mask_bytes(c->in[1]->cols) + 1), &c->saved, st));
    if (n == 0) return RD_OK;
    draw.key = rd_residual_key(c);
    RD_TRY_OR_RETURN(rd_call_lend(c, c->device_scratch, a->sample, (size_t)n * sizeof *a->sample,
                                  &draw.sample, st));
    RD_TRY_OR_RETURN(rd_call_lend(c, c->device_scratch, a->position,
                                  (size_t)n * sizeof *a->position, &draw.position, st));
    return residual_pass<DRAW>(c, &p, draw, st);
}

extern "C" rd_code rd_cuda_residual_backward(rd_call *c, rd_status *st)
{
    return rd_residual_back(c, residual_masked, st);
}
