/* update_kernel.h -- the second sweep of optim_sweeps.c on a GPU. A file optimizers/x.cu defines a
 * rule, which updates one element:
 *
 *     struct momentum {
 *         enum { SLOTS = 1 };
 *         float lr, mu;
 *         momentum(const rd_optim_sweep *s) : lr((float)s->lr), mu((float)s->c->opt_momentum) {}
 *         __device__ void operator()(float &w, float g, float *slot) const { ... }
 *     };
 *     RD_GPU_RULE(momentum)
 *
 * A block of threads updates a block of at most 4096 elements. It scales and clips the gradient in
 * place, or leaves zeros for the next step. The rule gets the gradient after weight decay and the
 * factor of LARS. A rule with a fourth
 * argument, `float decay`, gets the weight decay of the parameter there, and not in the gradient.
 *
 * In blocks of rows, a warp updates each row. These are the blocks of optimizers that skip rows
 * without a gradient. The warp first looks for an element that is not zero, so a row of zeros costs
 * 4 bytes for each element. */
#ifndef RD_UPDATE_KERNEL_H
#define RD_UPDATE_KERNEL_H

#include "optim_gpu.h"
#include "../engine/gpu/kernel.h"

/* Returns the gradient that the rule gets. */
static __device__ inline float rd_prepared(float g, float w, float decay, float factor)
{
    return (decay != 0.0f ? g + decay * w : g) * factor;
}

/* Whether a rule has the fourth argument. */
template <class Rule>
constexpr bool rd_decouples =
    std::is_invocable<const Rule &, float &, float, float *, float>::value;

template <class Rule>
static __device__ inline void rd_apply(const Rule &rule, float &w, float g, float *slot,
                                       float decay, float factor)
{
    if constexpr (rd_decouples<Rule>)
        rule(w, g * factor, slot, decay);
    else
        rule(w, rd_prepared(g, w, decay, factor), slot);
}

/* Updates element i of the arenas, which is element `at` of a slot. */
template <class Rule>
static __device__ inline void rd_update_one(const Rule &rule, const rd_gpu_arrays &s, int64_t i,
                                            int64_t at, float clip, float decay, float factor)
{
    float slot[Rule::SLOTS + 1], w = s.w[i];
    const float g = s.g[i] * s.scale * clip;
    for (int k = 0; k < Rule::SLOTS; k++) slot[k] = s.slot[k][at];
    rd_apply(rule, w, g, slot, decay, factor);
    s.g[i] = s.zero ? 0.0f : g;
    s.w[i] = w;
    for (int k = 0; k < Rule::SLOTS; k++) s.slot[k][at] = slot[k];
}

struct alignas(16) rd_four { /* four floats that move as one vector */
    float at[4];
};

/* Updates four neighbours, which are aligned to 16 bytes. i, at: as in rd_update_one. */
template <class Rule>
static __device__ inline void rd_update_four(const Rule &rule, const rd_gpu_arrays &s, int64_t i,
                                             int64_t at, float clip, float decay, float factor)
{
    rd_four w = *reinterpret_cast<const rd_four *>(s.w + i),
            g = *reinterpret_cast<const rd_four *>(s.g + i);
    rd_four slots[Rule::SLOTS + 1];
    for (int k = 0; k < Rule::SLOTS; k++)
        slots[k] = *reinterpret_cast<const rd_four *>(s.slot[k] + at);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float slot[Rule::SLOTS + 1];
        for (int k = 0; k < Rule::SLOTS; k++) slot[k] = slots[k].at[j];
        g.at[j] = g.at[j] * s.scale * clip;
        rd_apply(rule, w.at[j], g.at[j], slot, decay, factor);
        for (int k = 0; k < Rule::SLOTS; k++) slots[k].at[j] = slot[k];
        g.at[j] = s.zero ? 0.0f : g.at[j];
    }
    *reinterpret_cast<rd_four *>(s.g + i) = g;
    *reinterpret_cast<rd_four *>(s.w + i) = w;
    for (int k = 0; k < Rule::SLOTS; k++) *reinterpret_cast<rd_four *>(s.slot[k] + at) = slots[k];
}

template <class Rule>
static __device__ void rd_update_rows(const Rule &rule, const rd_gpu_arrays &s,
                                      const rd_gpu_block &b, float clip, float decay, float factor)
{
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int r = threadIdx.x / 32; r < b.n / b.row; r += warps) {
        const int64_t lo = b.lo + (int64_t)r * b.row, at = b.at + (int64_t)r * b.row;
        bool any = false, stored = false;
        for (int i = lane; i < b.row; i += 32) {
            const float g = s.g[lo + i] * s.scale * clip;
            stored = stored || __float_as_uint(s.g[lo + i]) != 0;
            const float w = decay != 0.0f && !rd_decouples<Rule> ? s.w[lo + i] : 0.0f;
            any = any || rd_prepared(g, w, decay, factor) != 0.0f;
        }
        if (__ballot_sync(0xffffffffu, any) == 0) {
            /* Scaled numbers may be zeros while the stored ones are not. */
            for (int i = lane; i < b.row && stored && s.zero; i += 32) s.g[lo + i] = 0.0f;
            continue;
        }
        for (int i = lane; i < b.row; i += 32)
            rd_update_one(rule, s, lo + i, at + i, clip, decay, factor);
    }
}

/* With three blocks a multiprocessor the limit is 80 registers a thread; rules need up to 59.
 * Without the number ptxas aimed at 48 for adagrad on sm_90, and spilled. */
template <class Rule>
static __global__ void __launch_bounds__(RD_BLOCK, 3) rd_update_all(Rule rule, rd_gpu_arrays s)
{
    if (!s.outcome->finite) return;
    const float clip = s.outcome->clip;
    for (int64_t at = blockIdx.x; at < s.n_blocks; at += gridDim.x) {
        const rd_gpu_block b = s.block[at];
        const rd_gpu_param p = s.param[b.param];
        if (p.state) {
            for (int64_t i = b.lo + threadIdx.x; i < b.lo + b.n; i += blockDim.x) {
                const float g = s.g[i] * s.scale;
                s.g[i] = s.zero ? 0.0f : g;
                s.w[i] = p.keep * s.w[i] + p.rest * g;
            }
            continue;
        }
        const float factor = s.factor ? s.factor[b.param] : 1.0f;
        const float decay = rd_decouples<Rule> ? p.decoupled : p.decay;
        if (b.row > 0) {
            rd_update_rows(rule, s, b, clip, decay, factor);
            continue;
        }
        const int whole = b.n / 4 * 4;
        for (int i = 4 * threadIdx.x; i < whole; i += 4 * blockDim.x)
            rd_update_four(rule, s, b.lo + i, b.at + i, clip, decay, factor);
        const int rest = whole + (int)threadIdx.x;
        if (rest < b.n) rd_update_one(rule, s, b.lo + rest, b.at + rest, clip, decay, factor);
    }
}

#define RD_GPU_RULE(name)                                                                         \
    extern "C" rd_code rd_cuda_update_##name(rd_gpu *gpu, const rd_optim_sweep *s, rd_status *st) \
    {                                                                                             \
        const unsigned grid = (unsigned)(s->on.n_blocks < (1 << 20) ? s->on.n_blocks : 1 << 20);  \
        return RD_LAUNCH(gpu, st, rd_update_all<name>, grid, RD_BLOCK, 0, name(s), s->on);        \
    }

#endif
