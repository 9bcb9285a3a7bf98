/* channels.h -- for kernels on images in NHWC order that treat each channel by itself. The pixels are rows of C channels; some
 * rows that follow each other are a group (samples that batch_norm takes together, or all rows).
 *
 * A block of RD_BLOCK threads lies over `across` vectors of V channels side by side and RD_BLOCK / across rows, and goes down a
 * slice of a group's rows: a thread stays with its channels, and neighbours touch neighbouring memory. A sum over a group is the
 * sum of its slices' sums, which a second kernel adds in their order (rd_slices_sum). How a group is cut depends on its shape
 * alone: not on the card, and not on how many groups there are. */
#ifndef RD_CHANNELS_H
#define RD_CHANNELS_H

#include "../../engine/gpu/element_device.h"

typedef struct rd_columns {
    int64_t C, total, rows; /* channels, rows in all and of a group (the last one may have fewer) */
    int64_t groups, slices, per; /* per: rows of a slice */
    int across;                  /* a power of two, at most 32 */
} rd_columns;

enum {
    RD_COLUMNS_BLOCKS =
        512, /* of a large group: some for each multiprocessor of any GPU, and few to add up */
    RD_COLUMNS_LEAST = 4 /* rows of a thread, where there are so many */
};

/* Vectors of four where every row begins at a multiple of four elements. */
static inline int rd_columns_lanes(int64_t C)
{
    return C % 4 == 0 ? 4 : 1;
}

static inline int64_t rd_columns_tiles(const rd_columns &k)
{
    const int64_t width = k.across * rd_columns_lanes(k.C);
    return (k.C + width - 1) / width;
}

/* C, total, rows > 0. */
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

static inline dim3 rd_columns_grid(const rd_columns &k)
{
    return dim3((unsigned)(k.groups * k.slices), (unsigned)rd_columns_tiles(k));
}

/* What a thread of that grid works on: channels c .. c + V - 1, the rows first, first + step, ... below end. */
typedef struct rd_strip {
    int64_t group, part; /* part: the number of the slice among those of all groups */
    int64_t c;
    int64_t begin, end; /* rows of the slice */
    int64_t first;
    int step;
    bool
        inside; /* there are such channels; else the thread takes part in sums alone, with nothing */
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

/* Rows of a slice. */
static __device__ inline int64_t rd_slice_rows(const rd_columns &k, int64_t group, int64_t slice)
{
    const int64_t left = k.total - group * k.rows, rows = left < k.rows ? left : k.rows,
                  n = rows - slice * k.per;
    return n < 0 ? 0 : n < k.per ? n : k.per;
}

/* Adds v over the threads of the block whose numbers are equal modulo `across` (a power of two), in a fixed tree; each of them
 * gets the sums. All threads of the block call it. */
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

/* Kernels that add up slices: a block of RD_BLOCK threads has RD_SLICES_ACROSS channels of a group. */
enum { RD_SLICES_ACROSS = 8 };
static inline dim3 rd_slices_grid(const rd_columns &k)
{
    return dim3((unsigned)k.groups, (unsigned)((k.C + RD_SLICES_ACROSS - 1) / RD_SLICES_ACROSS));
}
/* The block's sums over the slices of its group: part is [groups slices, C]. c: the thread's channel, may be past the last. */
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

/* RD_LANES(C, launch): runs `launch`, an expression that uses V, with the V of C channels. */
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
