/* gpu_cast.cu -- converts elements of one type to another.
 *
 * A thread converts eight elements if both arrays begin at a multiple of 16 bytes. */
#include "element_device.h"

template <int V, typename From, typename To>
static __global__ void __launch_bounds__(RD_BLOCK, 3)
    cast(int64_t n, const From *x, To *y, bool add)
{
    for (RD_EACH(i, n / V)) {
        rd_lanes<V> v = rd_lanes_get<V>(x + i * V);
        if (add) {
            const rd_lanes<V> old = rd_lanes_get<V>(y + i * V);
            for (int l = 0; l < V; l++) v.at[l] = old.at[l] + v.at[l];
        }
        rd_lanes_put<V>(y + i * V, v);
    }
    for (RD_EACH(i, n % V)) {
        const int64_t at = n / V * V + i;
        const float v = rd_get(x + at);
        rd_put(y + at, add ? rd_get(y + at) + v : v);
    }
}

template <typename From, typename To>
static rd_code cast_to(rd_gpu *g, int64_t n, const void *x, void *y, bool add, rd_status *st)
{
    const From *a = static_cast<const From *>(x);
    To *b = static_cast<To *>(y);
    if ((((uintptr_t)x | (uintptr_t)y) & 15) == 0)
        return RD_LAUNCH(g, st, (cast<8, From, To>), rd_grid((n + 7) / 8), RD_BLOCK, 0, n, a, b,
                         add);
    return RD_LAUNCH(g, st, (cast<1, From, To>), rd_grid(n), RD_BLOCK, 0, n, a, b, add);
}

template <typename From>
static rd_code cast_from(rd_gpu *g, int64_t n, const void *x, void *y, rd_element to, bool add,
                         rd_status *st)
{
    RD_BY_ELEMENT(to, (cast_to<From, T>(g, n, x, y, add, st)));
    return RD_OK;
}

extern "C" rd_code rd_gpu_cast(rd_gpu *g, int64_t n, const void *x, rd_element from, void *y,
                               rd_element to, bool add, rd_status *st)
{
    RD_BY_ELEMENT(from, (cast_from<T>(g, n, x, y, to, add, st)));
    return RD_OK;
}
