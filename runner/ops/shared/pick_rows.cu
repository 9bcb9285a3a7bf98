/* pick_rows.cu -- picks rows by index on a GPU, forward and back. See pick_rows.h. */
#include "pick_rows.h"
#include "../../engine/gpu/rows_grid.h"
#include <inttypes.h>
#include <string.h>

/* Kernels move whole vectors. T is float, or float4 if widths and addresses allow. Widths are
 * counted in T. */
static __device__ inline void set_zero(float &x)
{
    x = 0.0f;
}
static __device__ inline void set_zero(float4 &x)
{
    x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}
static __device__ inline void add_to(float &x, float y)
{
    x += y;
}
static __device__ inline void add_to(float4 &x, float4 y)
{
    x = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
}

/* ---- forward ---- */
struct picked {
    const void *x[RD_MOST_PICKED];
    const int32_t *row[RD_MOST_PICKED];
    int64_t width[RD_MOST_PICKED];
    int64_t n, total;
    int parts;
};

template <class T> static __global__ void pick_rows(picked p, T *__restrict__ y)
{
    for (RD_EACH_ROW(i, p.n))
        for (RD_EACH_COLUMN(j, p.total)) {
            int64_t at = j, width = p.width[0];
            const void *x = p.x[0];
            const int32_t *rows = p.row[0];
#pragma unroll
            for (int k = 1; k < RD_MOST_PICKED; k++)
                if (k < p.parts && at >= width) {
                    at -= width;
                    width = p.width[k];
                    x = p.x[k];
                    rows = p.row[k];
                }
            const int32_t row = rows[i];
            T v;
            if (row < 0)
                set_zero(v);
            else
                v = static_cast<const T *>(x)[row * width + at];
            y[i * p.total + j] = v;
        }
}

static rd_code launch_pick(rd_backend *be, int n_parts, const rd_picked *part, int64_t n, float *y,
                           rd_status *st)
{
    rd_gpu *gpu = rd_gpu_of(be);
    bool four = rd_by_four(y);
    for (int k = 0; k < n_parts; k++)
        four = four && part[k].width % 4 == 0 && rd_by_four(part[k].x);
    picked p = {};
    p.n = n;
    p.parts = n_parts;
    for (int k = 0; k < n_parts; k++) {
        p.x[k] = part[k].x;
        p.row[k] = part[k].row;
        p.width[k] = part[k].width / (four ? 4 : 1);
        p.total += p.width[k];
    }
    const dim3 grid = rd_rows_grid(n, p.total), block = rd_rows_block(p.total);
    float4 *y_4 = reinterpret_cast<float4 *>(y);
    return four ? RD_LAUNCH(gpu, st, pick_rows<float4>, grid, block, 0, p, y_4)
                : RD_LAUNCH(gpu, st, pick_rows<float>, grid, block, 0, p, y);
}

/* ---- backward ---- */
/* The host sorts the rows of d by their row of g, stably. A piece is at most PIECE consecutive rows
 * of d with the same row of g. A row of g with several pieces, such as that of a frequent token, is
 * summed in two passes: the sums of its pieces go to scratch memory first. */
enum { PIECE = 32 };

struct piece {
    int32_t first, n; /* rows of d: order[first .. first + n) */
    int32_t row;      /* row of g; -1: the sum goes to row `slot` of the partial sums */
    int32_t slot;
};
/* g[row] += n partial sums from `slot` on. */
struct joined {
    int32_t row, slot, n;
};

template <class T>
static __global__ void add_each(int64_t n, int64_t width, const int32_t *__restrict__ row,
                                const T *__restrict__ d, int64_t ld, T *__restrict__ g)
{
    for (RD_EACH_ROW(i, n)) {
        const int32_t to = row[i];
        if (to < 0) continue;
        for (RD_EACH_COLUMN(j, width)) add_to(g[to * width + j], d[i * ld + j]);
    }
}

template <class T>
static __global__ void add_pieces(int64_t n, int64_t width, const piece *__restrict__ pieces,
                                  const int32_t *__restrict__ order, const T *__restrict__ d,
                                  int64_t ld, T *__restrict__ partial, T *__restrict__ g)
{
    for (RD_EACH_ROW(i, n)) {
        const piece p = pieces[i];
        for (RD_EACH_COLUMN(j, width)) {
            T sum;
            set_zero(sum);
#pragma unroll 8
            for (int32_t k = 0; k < p.n; k++) add_to(sum, d[order[p.first + k] * ld + j]);
            if (p.row < 0)
                partial[p.slot * width + j] = sum;
            else
                add_to(g[p.row * width + j], sum);
        }
    }
}

template <class T>
static __global__ void add_joined(int64_t n, int64_t width, const joined *__restrict__ rows,
                                  const T *__restrict__ partial, T *__restrict__ g)
{
    for (RD_EACH_ROW(i, n)) {
        const joined p = rows[i];
        for (RD_EACH_COLUMN(j, width)) {
            T sum;
            set_zero(sum);
#pragma unroll 8
            for (int32_t k = 0; k < p.n; k++) add_to(sum, partial[(p.slot + k) * width + j]);
            add_to(g[p.row * width + j], sum);
        }
    }
}

/* What the kernels read, in one block of memory: pieces, joined rows, order. */
struct plan {
    piece *pieces;
    joined *rows;
    int32_t *order;
    int64_t n_pieces, n_rows, n_order, n_slots;
    size_t bytes;
};

/* Fills *p. *twice false: no row occurs twice, and *p is not needed. */
static rd_code make_plan(rd_call *c, int64_t n, const int32_t *row, int64_t n_rows, plan *p,
                         bool *twice, rd_status *st)
{
    struct run {
        int32_t row, first, n;
    } * run;
    int32_t *count, *next, *order;
    int64_t n_runs = 0;
    *twice = false;
    RD_TRY_OR_RETURN(rd_arena_zero(c->scratch, (size_t)n_rows * sizeof *count, &count, st));
    for (int64_t i = 0; i < n; i++)
        if (row[i] >= 0) *twice |= count[row[i]]++ > 0;
    if (!*twice) return RD_OK;
    RD_TRY_OR_RETURN(rd_arena_get(c->scratch, (size_t)n_rows * sizeof *next, &next, st));
    RD_TRY_OR_RETURN(rd_arena_get(c->scratch, (size_t)n * sizeof *order, &order, st));
    RD_TRY_OR_RETURN(rd_arena_get(c->scratch, (size_t)n * sizeof *run, &run, st));
    for (int64_t i = 0; i < n; i++) {
        const int32_t r = row[i];
        if (r < 0) continue;
        if (count[r] > 0) { /* its first occurrence */
            const int32_t times = count[r], pieces = (times + PIECE - 1) / PIECE;
            run[n_runs].row = r;
            run[n_runs].first = next[r] = (int32_t)p->n_order;
            run[n_runs++].n = times;
            p->n_order += times;
            p->n_pieces += pieces;
            if (pieces > 1) p->n_slots += pieces, p->n_rows++;
            count[r] = 0;
        }
        order[next[r]++] = (int32_t)i;
    }
    p->bytes = (size_t)p->n_pieces * sizeof *p->pieces + (size_t)p->n_rows * sizeof *p->rows +
               (size_t)p->n_order * sizeof *order;
    RD_TRY_OR_RETURN(rd_arena_get(c->scratch, p->bytes, &p->pieces, st));
    p->rows = reinterpret_cast<joined *>(p->pieces + p->n_pieces);
    p->order = reinterpret_cast<int32_t *>(p->rows + p->n_rows);
    memcpy(p->order, order, (size_t)p->n_order * sizeof *order);
    piece *to = p->pieces;
    joined *row_to = p->rows;
    int32_t slot = 0;
    for (int64_t k = 0; k < n_runs; k++) {
        const int32_t pieces = (run[k].n + PIECE - 1) / PIECE;
        if (pieces > 1) *row_to++ = joined{run[k].row, slot, pieces};
        for (int32_t at = 0; at < run[k].n; at += PIECE) {
            const int32_t left = run[k].n - at;
            *to++ = piece{run[k].first + at, left < PIECE ? left : PIECE,
                          pieces > 1 ? -1 : run[k].row, pieces > 1 ? slot++ : -1};
        }
    }
    return RD_OK;
}

template <class T>
static rd_code add_picked(rd_call *c, int64_t n, const int32_t *row, const int32_t *lent,
                          int64_t n_rows, int64_t width, const T *d, int64_t ld, T *g,
                          rd_status *st)
{
    rd_gpu *gpu = rd_gpu_of(c->be);
    const dim3 block = rd_rows_block(width);
    plan p = {};
    bool twice;
    RD_TRY_OR_RETURN(make_plan(c, n, row, n_rows, &p, &twice, st));
    if (!twice)
        return RD_LAUNCH(gpu, st, add_each<T>, rd_rows_grid(n, width), block, 0, n, width, lent, d,
                         ld, g);
    const piece *pieces;
    T *partial;
    RD_TRY_OR_RETURN(rd_call_lend(c, c->device_scratch, p.pieces, p.bytes, &pieces, st));
    RD_TRY_OR_RETURN(rd_arena_get(c->device_scratch, (size_t)(p.n_slots * width) * sizeof(T),
                                  &partial, st));
    const joined *rows = reinterpret_cast<const joined *>(pieces + p.n_pieces);
    const int32_t *order = reinterpret_cast<const int32_t *>(rows + p.n_rows);
    const int64_t n_pieces = p.n_pieces, n_joined = p.n_rows;
    RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, add_pieces<T>, rd_rows_grid(n_pieces, width), block, 0,
                               n_pieces, width, pieces, order, d, ld, partial, g));
    return RD_LAUNCH(gpu, st, add_joined<T>, rd_rows_grid(n_joined, width), block, 0, n_joined,
                     width, rows, partial, g);
}

static rd_code launch_add_picked(rd_call *c, int64_t n, const int32_t *row, const int32_t *lent,
                                 int64_t n_rows, int64_t width, const float *d, int64_t ld,
                                 float *g, rd_status *st)
{
    if (n > INT32_MAX)
        return rd_fail(st, RD_EUSAGE, "%" PRId64 " picked rows in one call; a GPU takes at most %d",
                       n, INT32_MAX);
    if (width % 4 == 0 && ld % 4 == 0 && rd_by_four(d) && rd_by_four(g))
        return add_picked(c, n, row, lent, n_rows, width / 4, reinterpret_cast<const float4 *>(d),
                          ld / 4, reinterpret_cast<float4 *>(g), st);
    return add_picked(c, n, row, lent, n_rows, width, d, ld, g, st);
}

const rd_pick_kernels rd_cuda_pick = {launch_pick, launch_add_picked};
