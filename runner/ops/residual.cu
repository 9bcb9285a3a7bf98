/* residual.cu -- residual on a GPU: the formulas and the masks of residual.c. */
#include "../engine/gpu/philox_device.h"
#include "../engine/gpu/rows_grid.h"
#include "residual.h"

/* A thread computes the eight elements of a row that one philox block decides: one byte of the
 * mask. */
struct residual_rows {
    rd_key key;
    uint32_t limit;
    float scale;
    int64_t n, d;
    const int64_t *sample, *position;
    const float *x, *z;
    float *y; /* may be x or z */
    uint8_t *mask;
};

/* DRAW: draws the mask; otherwise reads it. FOUR: rows are whole vectors of four. */
template <bool DRAW, bool FOUR> static __global__ void residual_sum(residual_rows r)
{
    const int64_t blocks = (r.d + 7) / 8;
    for (RD_EACH_ROW(i, r.n)) {
        for (RD_EACH_COLUMN(b, blocks)) {
            uint32_t keep = 0;
            if (DRAW) {
                uint32_t word[4];
                rd_philox_block(r.key, (uint64_t)r.sample[i], (uint32_t)r.position[i], (uint32_t)b,
                                word);
#pragma unroll
                for (int j = 0; j < 8; j++) keep |= rd_philox_kept(word, j, r.limit) << j;
                r.mask[i * blocks + b] = (uint8_t)keep;
            } else {
                keep = r.mask[i * blocks + b];
            }
            const int64_t at = i * r.d + 8 * b, left = r.d - 8 * b;
            if (FOUR) {
                for (int j = 0; j < 8 && j < left; j += 4) {
                    const float4 z = *(const float4 *)(r.z + at + j);
                    float4 v = make_float4(keep >> j & 1 ? z.x * r.scale : 0.0f,
                                           keep >> (j + 1) & 1 ? z.y * r.scale : 0.0f,
                                           keep >> (j + 2) & 1 ? z.z * r.scale : 0.0f,
                                           keep >> (j + 3) & 1 ? z.w * r.scale : 0.0f);
                    if (r.x) {
                        const float4 x = *(const float4 *)(r.x + at + j);
                        v = make_float4(x.x + v.x, x.y + v.y, x.z + v.z, x.w + v.w);
                    }
                    *(float4 *)(r.y + at + j) = v;
                }
            } else {
                for (int j = 0; j < 8 && j < left; j++) {
                    const float v = keep >> j & 1 ? r.z[at + j] * r.scale : 0.0f;
                    r.y[at + j] = r.x ? r.x[at + j] + v : v;
                }
            }
        }
    }
}

template <bool DRAW>
static rd_code residual_launch(rd_gpu *gpu, const residual_rows &rows, rd_status *st)
{
    const residual_rows r = rows;
    const int64_t blocks = (r.d + 7) / 8;
    const dim3 grid = rd_rows_grid(r.n, blocks), block = rd_rows_block(blocks);
    if (r.d % 4 == 0 && rd_by_four(r.x) && rd_by_four(r.z) && rd_by_four(r.y))
        return RD_LAUNCH(gpu, st, (residual_sum<DRAW, true>), grid, block, 0, r);
    return RD_LAUNCH(gpu, st, (residual_sum<DRAW, false>), grid, block, 0, r);
}

static residual_rows residual_rows_of(const rd_call *c)
{
    const float keep = static_cast<const rd_residual *>(c->attr)->drop.keep;
    residual_rows r = {};
    r.limit = rd_philox_limit(keep);
    r.scale = 1.0f / keep;
    r.n = c->in[1]->rows;
    r.d = c->in[1]->cols;
    return r;
}

static rd_code residual_masked(rd_call *c, const rd_residual_pass *p, rd_status *st)
{
    residual_rows r = residual_rows_of(c);
    r.x = p->x;
    r.z = p->z;
    r.y = p->y;
    r.mask = static_cast<uint8_t *>(c->saved);
    return residual_launch<false>(rd_gpu_of(c->be), r, st);
}

extern "C" rd_code rd_cuda_residual_forward(rd_call *c, rd_status *st)
{
    const rd_residual *a = static_cast<const rd_residual *>(c->attr);
    residual_rows r = residual_rows_of(c);
    if (!rd_residual_drops(c)) return rd_residual_plain(c, st);
    if (c->saved) {
        const rd_residual_pass p = {c->in[0] ? c->in[0]->v : NULL, c->in[1]->v, c->out[0]->v};
        return residual_masked(c, &p, st);
    }
    r.key = rd_residual_key(c);
    r.x = c->in[0] ? c->in[0]->v : NULL;
    r.z = c->in[1]->v;
    r.y = c->out[0]->v;
    RD_TRY_OR_RETURN(rd_arena_get(c->device_kept, (size_t)(r.n * rd_residual_mask_bytes(r.d) + 1),
                                  &r.mask, st));
    c->saved = r.mask;
    if (r.n == 0) return RD_OK;
    RD_TRY_OR_RETURN(rd_call_lend(c, c->device_scratch, a->sample, (size_t)r.n * sizeof *r.sample,
                                  &r.sample, st));
    RD_TRY_OR_RETURN(rd_call_lend(c, c->device_scratch, a->position,
                                  (size_t)r.n * sizeof *r.position, &r.position, st));
    return residual_launch<true>(rd_gpu_of(c->be), r, st);
}

extern "C" rd_code rd_cuda_residual_backward(rd_call *c, rd_status *st)
{
    return rd_residual_back(c, residual_masked, st);
}
