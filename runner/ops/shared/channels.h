/* channels.h -- for kernels that treat each channel of images in NHWC order by itself.
 *
 * The pixels are rows of C channels. Consecutive rows form groups: the samples that batch_norm
 * normalises together, or all rows.
 *
 * A block has RD_BLOCK threads. It covers `across` vectors of V channels side by side and RD_BLOCK
 * / across rows, and it walks down a slice of the rows of a group. So each thread keeps its
 * channels, and neighbouring threads read neighbouring memory. The sum over a group is the sum of
 * the sums of its slices; a second kernel adds these in their order (rd_slices_sum). The cut of a
 * group into slices depends on the shape of the group alone. It depends neither on the GPU nor on
 * the number of groups. */
#ifndef RD_CHANNELS_H
#define RD_CHANNELS_H

#include "../../engine/gpu/element_device.h"

typedef struct rd_columns {
    int64_t C;              /* number of channels */
    int64_t total;          /* number of rows */
    int64_t rows;           /* rows of a group; the last group may have fewer */
    int64_t groups, slices; /* number of groups, and of slices in a group */
    int64_t per;            /* rows of a slice */
    int across;             /* vectors of a block side by side: a power of two, at most 32 */
} rd_columns;

enum {
    /* Blocks of a large group. This gives several blocks to each multiprocessor of any GPU, and
     * leaves few sums to add. */
    RD_COLUMNS_BLOCKS = 512,
    /* Smallest number of rows of a thread, if the group has enough rows. */
    RD_COLUMNS_LEAST = 4
};

/* Returns the channels of a vector: four if every row begins at a multiple of four elements. */
static inline int rd_columns_lanes(int64_t C)
{
    return C % 4 == 0 ? 4 : 1;
}

/* Returns the number of blocks side by side that cover the channels. */
static inline int64_t rd_columns_tiles(const rd_columns &k)
{
    const int64_t width = k.across * rd_columns_lanes(k.C);
    return (k.C + width - 1) / width;
}

/* Returns the cut for `total` rows in groups of `rows`. C, total and rows are above 0. */
static inline rd_columns rd_columns_of(int64_t C, int64_t total, int64_t rows)
{
    rd_columns k = {C, total, rows, (total + rows - 1) / rows, 1, 0, 1};
    while (k.across < 32 && k.across * rd_columns_lanes(C) < C) k.across *= 2;
    const int64_t down = RD_BLOCK / k.across, tiles = rd_columns_tiles(k),
                  most = tiles < RD_COLUMNS_BLOCKS ? RD_COLUMNS_BLOCKS / tiles : 1;
    k.per = (rows + most - 1) / most;
    if (k.per < RD_COLUMNS_LEAST * down) k.per = RD_COLUMNS_LEAST * down;
    k.per = (k.per + down - 1) / down * down;
    k.slices = (rows + k.per - 1) / k.per;
    return k;
}

/* Returns the grid of a kernel with one block per slice and tile of channels. */
static inline dim3 rd_columns_grid(const rd_columns &k)
{
    return dim3((unsigned)(k.groups * k.slices), (unsigned)rd_columns_tiles(k));
}

/* The part of a thread of that grid: channels c .. c + V - 1 of rows first, first + step, ... below
 * end. */
typedef struct rd_strip {
    int64_t group;
    int64_t part;       /* number of the slice among the slices of all groups */
    int64_t c;          /* first channel */
    int64_t begin, end; /* rows of the slice */
    int64_t first;      /* first row of the thread */
    int step;
    /* The channels exist. Otherwise the thread only takes part in sums, with 0. */
    bool inside;
} rd_strip;

template <int V> static __device__ inline rd_strip rd_strip_of(const rd_columns &k)
{
    rd_strip s;
    const int x = threadIdx.x % k.across, y = threadIdx.x / k.across;
    s.part = blockIdx.x;
    s.group = s.part / k.slices;
    s.c = ((int64_t)blockIdx.y * k.across + x) * V;
    s.inside = s.c < k.C;
    const int64_t r0 = s.group * k.rows, r1 = r0 + k.rows < k.total ? r0 + k.rows : k.total;
    s.begin = r0 + (s.part - s.group * k.slices) * k.per;
    if (s.begin > r1) s.begin = r1; /* the last group is smaller */
    s.end = s.begin + k.per < r1 ? s.begin + k.per : r1;
    s.first = s.inside ? s.begin + y : s.end;
    s.step = RD_BLOCK / k.across;
    return s;
}

/* Returns the number of rows of a slice. */
static __device__ inline int64_t rd_slice_rows(const rd_columns &k, int64_t group, int64_t slice)
{
    const int64_t left = k.total - group * k.rows, rows = left < k.rows ? left : k.rows,
                  n = rows - slice * k.per;
    return n < 0 ? 0 : n < k.per ? n : k.per;
}

/* Sums v over the threads of the block whose numbers are equal modulo `across` (a power of two), in
 * a fixed tree. Each of these threads gets the sums in v. All threads of the block must call it. */
template <int N> static __device__ inline void rd_down_sum(double (&v)[N], int across)
{
    __shared__ double part[N][RD_BLOCK];
    const int t = (int)threadIdx.x;
    __syncthreads();
    for (int i = 0; i < N; i++) part[i][t] = v[i];
    for (int d = RD_BLOCK / 2; d >= across; d /= 2) {
        __syncthreads();
        if (t < d)
            for (int i = 0; i < N; i++) part[i][t] += part[i][t + d];
    }
    __syncthreads();
    for (int i = 0; i < N; i++) v[i] = part[i][t % across];
}

/* For kernels that add slices: a block of RD_BLOCK threads has RD_SLICES_ACROSS channels of a
 * group. */
enum { RD_SLICES_ACROSS = 8 };
static inline dim3 rd_slices_grid(const rd_columns &k)
{
    return dim3((unsigned)k.groups, (unsigned)((k.C + RD_SLICES_ACROSS - 1) / RD_SLICES_ACROSS));
}
/* Returns the sum over the slices of the block's group. part: [groups slices, C]. c: the thread's
 * channel; may be past the last channel. */
static __device__ inline double rd_slices_sum(const rd_columns &k, const double *part, int64_t c)
{
    double sum[1] = {0.0};
    const double *p = part + (int64_t)blockIdx.x * k.slices * k.C + c;
    if (c < k.C)
        for (int64_t s = threadIdx.x / RD_SLICES_ACROSS; s < k.slices;
             s += RD_BLOCK / RD_SLICES_ACROSS)
            sum[0] += p[s * k.C];
    rd_down_sum(sum, RD_SLICES_ACROSS);
    return sum[0];
}

/* RD_LANES(C, launch): runs the expression `launch`, which uses V, with the V for C channels. */
#define RD_LANES(C, ...)                   \
    do {                                   \
        if (rd_columns_lanes(C) == 4) {    \
            enum { V = 4 };                \
            RD_TRY_OR_RETURN(__VA_ARGS__); \
        } else {                           \
            enum { V = 1 };                \
            RD_TRY_OR_RETURN(__VA_ARGS__); \
        }                                  \
    } while (0)

#endif
