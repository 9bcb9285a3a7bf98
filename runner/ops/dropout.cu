/* dropout.cu -- dropout on a GPU; the formulas are those of dropout.c. The mask has one bit per
 * element. */
#include "../engine/gpu/element_device.h"
#include "../engine/gpu/philox_device.h"
#include "dropout.h"
#include "../engine/gpu/rows_grid.h"

/* A thread computes the eight elements of a row that one philox block decides: one byte of the
 * mask. */
template <typename T> struct dropped {
    rd_key key;
    uint32_t limit;
    float scale;
    int64_t n, width;
    const int64_t *sample;
    const T *x;
    T *y;
    uint8_t *mask;
    bool add;
};

/* Drops V elements, whose mask begins at bit 0 of keep. */
template <int V, typename T>
static __device__ inline void drop_lanes(const dropped<T> &d, const T *x, T *y, uint32_t keep)
{
    rd_lanes<V> v = rd_lanes_get<V>(x), old = {};
    if (d.add) old = rd_lanes_get<V>(y);
    for (int l = 0; l < V; l++) {
        const float w = keep >> l & 1 ? v.at[l] * d.scale : 0.0f;
        v.at[l] = d.add ? old.at[l] + w : w;
    }
    rd_lanes_put<V>(y, v);
}

/* DRAW: draws the mask; otherwise reads it. FOUR: rows are whole vectors of four. */
template <bool DRAW, bool FOUR, typename T> static __global__ void image_drop(dropped<T> d)
{
    const int64_t blocks = (d.width + 7) / 8;
    for (RD_EACH_ROW(i, d.n)) {
        const uint64_t sample = DRAW ? (uint64_t)d.sample[i] : 0;
        for (RD_EACH_COLUMN(b, blocks)) {
            uint32_t keep = 0;
            if (DRAW) {
                uint32_t word[4];
                rd_philox_block(d.key, sample, 0, (uint32_t)b, word);
#pragma unroll
                for (int j = 0; j < 8; j++) keep |= rd_philox_kept(word, j, d.limit) << j;
                d.mask[i * blocks + b] = (uint8_t)keep;
            } else {
                keep = d.mask[i * blocks + b];
            }
            const int64_t at = i * d.width + 8 * b, left = d.width - 8 * b;
            if (FOUR) {
                drop_lanes<4>(d, d.x + at, d.y + at, keep);
                if (left > 4) drop_lanes<4>(d, d.x + at + 4, d.y + at + 4, keep >> 4);
            } else {
                for (int j = 0; j < 8 && j < left; j++)
                    drop_lanes<1>(d, d.x + at + j, d.y + at + j, keep >> j);
            }
        }
    }
}

template <bool DRAW, typename T>
static rd_code drop_of(rd_gpu *gpu, const dropped<T> &d, rd_status *st)
{
    const dim3 grid = rd_rows_grid(d.n, (d.width + 7) / 8),
               block = rd_rows_block((d.width + 7) / 8);
    if (d.width % 4 == 0 && rd_by_four(d.x) && rd_by_four(d.y))
        return RD_LAUNCH(gpu, st, (image_drop<DRAW, true, T>), grid, block, 0, d);
    return RD_LAUNCH(gpu, st, (image_drop<DRAW, false, T>), grid, block, 0, d);
}

static size_t mask_bytes(int64_t n, int64_t width)
{
    return (size_t)(n * ((width + 7) / 8));
}

extern "C" rd_code rd_cuda_dropout_forward(rd_call *c, rd_status *st)
{
    const rd_dropout_op *a = static_cast<const rd_dropout_op *>(c->attr);
    const rd_var *x = c->in[0], *y = c->out[0];
    const rd_image_view v = rd_dropout_view(x);
    const float keep = a->d.keep;
    const int64_t *sample;
    uint8_t *mask;
    if (!rd_dropout_active(c)) return rd_dropout_copy(c, st);
    const rd_key key = rd_dropout_key(c);
    RD_TRY_OR_RETURN(rd_arena_get(c->device_kept, mask_bytes(v.n, v.sample), &mask, st));
    RD_TRY_OR_RETURN(rd_call_lend(c, c->device_scratch, a->sample, (size_t)v.n * sizeof *sample,
                                  &sample, st));
    c->saved = mask;
    RD_BY_ELEMENT(x->type, (drop_of<true, T>(rd_gpu_of(c->be),
                                             {key, rd_philox_limit(keep), 1.0f / keep, v.n,
                                              v.sample, sample, static_cast<const T *>(x->values),
                                              static_cast<T *>(y->values), mask, false},
                                             st)));
    return RD_OK;
}

static rd_code drop_back(rd_call *c, const rd_dropout_grad *to, rd_status *st)
{
    const rd_image_view v = rd_dropout_view(c->in[0]);
    const float keep = static_cast<const rd_dropout_op *>(c->attr)->d.keep;
    RD_BY_ELEMENT(c->in[0]->type, (drop_of<false, T>(rd_gpu_of(c->be),
                                                     {{{0, 0}},
                                                      0,
                                                      1.0f / keep,
                                                      v.n,
                                                      v.sample,
                                                      NULL,
                                                      static_cast<const T *>(to->dy),
                                                      static_cast<T *>(to->dx),
                                                      static_cast<uint8_t *>(c->saved),
                                                      to->add},
                                                     st)));
    return RD_OK;
}

extern "C" rd_code rd_cuda_dropout_backward(rd_call *c, rd_status *st)
{
    return rd_dropout_back_by(c, drop_back, st);
}
