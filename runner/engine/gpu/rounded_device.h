/* rounded_device.h -- for kernels that write an array and its 16-bit copy (see rd/rounded.h). */
#ifndef RD_ROUNDED_DEVICE_H
#define RD_ROUNDED_DEVICE_H

#include "element_device.h"
#include "rd/rounded.h"

/* The copy of an array that a kernel writes. at NULL: there is none. */
struct rd_rounded_copy {
    void *at;
    int64_t type; /* an rd_element; 64 bits, so that the struct has no padding */
};

/* Returns the copy of the array that begins at x. x may be NULL. */
static inline rd_rounded_copy rd_rounded_copy_of(const rd_gpu *g, const float *x)
{
    rd_rounded_copy c = {};
    if (!x) return c;
    c.at = rd_gpu_rounded_of(g, x);
    c.type = rd_gpu_narrow(g);
    return c;
}

/* Writes V neighbouring numbers to the copy, from element i on. With V > 1, i is a multiple of V
 * and the array begins at a multiple of V elements. */
template <int V>
static __device__ inline void rd_rounded_put(const rd_rounded_copy &c, int64_t i,
                                             const rd_lanes<V> &v)
{
    if (!c.at) return;
    if (c.type == RD_BFLOAT16)
        rd_lanes_put<V>(static_cast<rd_bf16 *>(c.at) + i, v);
    else
        rd_lanes_put<V>(static_cast<rd_f16 *>(c.at) + i, v);
}
static __device__ inline void rd_rounded_put(const rd_rounded_copy &c, int64_t i, float v)
{
    rd_lanes<1> one;
    one.at[0] = v;
    rd_rounded_put<1>(c, i, one);
}

#endif
