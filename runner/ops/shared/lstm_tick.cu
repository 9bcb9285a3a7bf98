/* lstm_tick.cu -- the kernels of lstm_tick.h: one thread for each unit and row of each layer. */
#include "lstm_tick.h"
#include "lstm_device.h"
#include "../../engine/gpu/element_device.h"
#include "../../engine/gpu/rows_grid.h"

static __device__ inline float tick_dropped(float x, const uint8_t *mask, int64_t at, float keep)
{
    return !mask ? x : mask[at] ? x * (1.0f / keep) : 0.0f;
}

/* What a thread knows about its layer. */
struct tick_place {
    int64_t layer, slot, t, at, n, later;
    bool above; /* there is a layer above this one */
};

static __device__ inline tick_place tick_place_of(const rd_lstm_tick &a)
{
    tick_place p;
    p.layer = a.first + blockIdx.z;
    p.slot = a.n_layers - 1 - p.layer;
    p.t = a.tick - p.layer;
    p.at = a.off[p.t];
    p.n = a.off[p.t + 1] - p.at;
    p.later = p.t + 1 < a.n_steps ? a.off[p.t + 2] - a.off[p.t + 1] : 0;
    p.above = p.layer + 1 < a.n_layers;
    return p;
}

static __device__ inline bool tick_residual(const rd_lstm_tick &a, int64_t layer)
{
    return layer >= 0 && layer < a.n_layers && (a.residual >> layer & 1u);
}

/* Writes x to column `col` of the operand of step row i; `row` is its row among all steps. */
template <typename T>
static __device__ inline void tick_operand_put(const rd_tick_operand &o, int64_t slot, int64_t i,
                                               int64_t row, int64_t col, float x)
{
    if (o.now) rd_put(static_cast<T *>(o.now) + slot * o.slot_now + i * o.ld + col, x);
    if (o.all) rd_put(static_cast<T *>(o.all) + slot * o.slot_all + row * o.ld + col, x);
}

/* Computes unit q of row i. Returns the layer's output, after its dropout and its residual sum. */
template <typename T>
static __device__ inline float tick_unit(const rd_lstm_tick &a, const tick_place &p, int64_t i,
                                         int64_t q)
{
    const int64_t row = p.at + i, unit = row * a.H + q, c_row = a.z ? row : i;
    const float *z = a.product + p.slot * a.slot_product + i * 4 * a.H + q,
                *b = a.bias + p.slot * a.slot_bias + q;
    float *c = a.c + p.slot * a.slot_c, c_prev = 0.0f;
    if (p.t > 0) c_prev = c[(a.z ? a.off[p.t - 1] + i : i) * a.H + q];
    const rd_lstm_unit u = rd_lstm_unit_of(z[0] + b[0], z[a.H] + b[a.H], z[2 * a.H] + b[2 * a.H],
                                           z[3 * a.H] + b[3 * a.H], c_prev);
    c[c_row * a.H + q] = u.c;
    if (a.z) {
        float *gate = a.z + p.slot * a.slot_z + row * 4 * a.H + q;
        gate[0] = u.i;
        gate[a.H] = u.j;
        gate[2 * a.H] = u.f;
        gate[3 * a.H] = u.o;
        a.tc[p.slot * a.slot_c + unit] = u.tc;
    }
    if (i < p.later) tick_operand_put<T>(a.own, p.slot, i, a.off[p.t + 1] + i, a.own.h_at + q, u.m);
    float y = tick_dropped(u.m, a.mask_out ? a.mask_out + p.slot * a.slot_mask : nullptr, unit,
                           a.keep_out);
    if (tick_residual(a, p.layer))
        y += p.layer == 0 ? a.x[unit]
                          : a.y[(a.tick + 1) % 2 * a.odd_y + (p.slot + 1) * a.slot_y + i * a.H + q];
    return y;
}

template <typename T> static __global__ void lstm_tick_forward(rd_lstm_tick a)
{
    const tick_place p = tick_place_of(a);
    for (RD_EACH_ROW(i, p.n))
        for (RD_EACH_COLUMN(q, a.H)) {
            const int64_t row = p.at + i, unit = row * a.H + q;
            const float y = p.layer < 0 ? a.x[unit] : tick_unit<T>(a, p, i, q);
            if (!p.above) {
                a.out[unit] = y;
                if (a.out_narrow) rd_put(static_cast<T *>(a.out_narrow) + row * a.ld_narrow + q, y);
                continue;
            }
            if (tick_residual(a, p.layer + 1) && p.layer >= 0)
                a.y[a.y_packed ? unit : a.tick % 2 * a.odd_y + p.slot * a.slot_y + i * a.H + q] = y;
            const int64_t slot = p.slot - 1;
            tick_operand_put<T>(a.above, slot, i, row, q,
                                tick_dropped(y,
                                             a.mask_in ? a.mask_in + slot * a.slot_mask : nullptr,
                                             unit, a.keep_in));
            /* No output before the first step. */
            if (p.t == 0) tick_operand_put<T>(a.above, slot, i, row, a.above.h_at + q, 0.0f);
            for (int64_t k = q; k < a.extra; k += a.H)
                tick_operand_put<T>(a.above, slot, i, row, a.above.h_at + a.H + k,
                                    a.att[row * a.extra + k]);
        }
}

/* Returns the gradient of the output of a layer: that of the op's output, or that of the input of
 * the layer above. */
static __device__ inline float tick_dout(const rd_lstm_tick &a, const tick_place &p, int64_t i,
                                         int64_t q)
{
    const int64_t unit = (p.at + i) * a.H + q, slot = p.slot - 1;
    if (!p.above) return a.dout[unit];
    float d = tick_dropped(a.back_above[slot * a.slot_back + i * a.ld_back_above + q],
                           a.mask_in ? a.mask_in + slot * a.slot_mask : nullptr, unit, a.keep_in);
    if (tick_residual(a, p.layer + 1))
        d += a.dy[(a.tick + 1) % 2 * a.odd_y + slot * a.slot_y + i * a.H + q];
    return d;
}

template <typename T> static __global__ void lstm_tick_back(rd_lstm_tick a)
{
    const tick_place p = tick_place_of(a);
    for (RD_EACH_ROW(i, p.n))
        for (RD_EACH_COLUMN(q, a.H)) {
            const int64_t row = p.at + i, unit = row * a.H + q;
            const float dout = tick_dout(a, p, i, q);
            if (p.layer < 0) {
                a.dx[unit] += dout;
                continue;
            }
            if (tick_residual(a, p.layer))
                a.dy[a.tick % 2 * a.odd_y + p.slot * a.slot_y + i * a.H + q] = dout;
            float dm = tick_dropped(dout, a.mask_out ? a.mask_out + p.slot * a.slot_mask : nullptr,
                                    unit, a.keep_out);
            if (i < p.later) dm += a.back[p.slot * a.slot_back + i * a.ld_back + a.own.h_at + q];
            const float *z = a.z + p.slot * a.slot_z + row * 4 * a.H + q,
                        *c = a.c + p.slot * a.slot_c;
            float *dc = a.dc + p.slot * a.slot_dc + i * a.H + q;
            rd_lstm_unit u = {};
            u.i = z[0];
            u.j = z[a.H];
            u.f = z[2 * a.H];
            u.o = z[3 * a.H];
            u.tc = a.tc[p.slot * a.slot_c + unit];
            const rd_lstm_unit_grad d =
                rd_lstm_unit_back(u, p.t > 0 ? c[(a.off[p.t - 1] + i) * a.H + q] : 0.0f, dm, *dc);
            *dc = d.c_prev;
            T *all = static_cast<T *>(a.dz) + p.slot * a.slot_dz + row * a.ld_dz + q;
            rd_put(all, d.i);
            rd_put(all + a.H, d.j);
            rd_put(all + 2 * a.H, d.f);
            rd_put(all + 3 * a.H, d.o);
            if (!a.dz_now) continue;
            T *now = static_cast<T *>(a.dz_now) + p.slot * a.slot_dz_now + i * a.ld_dz + q;
            rd_put(now, d.i);
            rd_put(now + a.H, d.j);
            rd_put(now + 2 * a.H, d.f);
            rd_put(now + 3 * a.H, d.o);
        }
}

static dim3 tick_grid(const rd_lstm_tick *t)
{
    dim3 grid = rd_rows_grid(t->rows, t->H);
    grid.z = (unsigned)t->n;
    return grid;
}

rd_code rd_lstm_tick_forward(rd_gpu *g, const rd_lstm_tick *t, rd_status *st)
{
    RD_BY_ELEMENT(t->type,
                  RD_LAUNCH(g, st, lstm_tick_forward<T>, tick_grid(t), rd_rows_block(t->H), 0, *t));
    return st->code;
}

rd_code rd_lstm_tick_back(rd_gpu *g, const rd_lstm_tick *t, rd_status *st)
{
    RD_BY_ELEMENT(t->type,
                  RD_LAUNCH(g, st, lstm_tick_back<T>, tick_grid(t), rd_rows_block(t->H), 0, *t));
    return st->code;
}

/* ---- sums of columns: each row of threads adds every DEEP-th row, then they are added ---- */
enum { LANES = 32, DEEP = RD_BLOCK / LANES };

template <typename T>
static __global__ void tick_bias(int64_t N, int64_t width, const T *__restrict__ dz, int64_t ld,
                                 int64_t slot_dz, float *dbias, int64_t slot_bias)
{
    __shared__ float part[DEEP][LANES];
    const int64_t col = (int64_t)blockIdx.x * LANES + threadIdx.x;
    const T *z = dz + blockIdx.z * slot_dz;
    float s = 0.0f;
    if (col < width)
        for (int64_t i = threadIdx.y; i < N; i += DEEP) s += rd_get(z + i * ld + col);
    part[threadIdx.y][threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.y > 0 || col >= width) return;
    for (int k = 1; k < DEEP; k++) s += part[k][threadIdx.x];
    dbias[blockIdx.z * slot_bias + col] += s;
}

rd_code rd_lstm_tick_bias(rd_gpu *g, rd_element type, int64_t n_layers, int64_t N, int64_t width,
                          const void *dz, int64_t ld, int64_t slot_dz, float *dbias,
                          int64_t slot_bias, rd_status *st)
{
    const dim3 grid((unsigned)((width + LANES - 1) / LANES), 1, (unsigned)n_layers);
    if (!dbias) return st->code;
    RD_BY_ELEMENT(type, RD_LAUNCH(g, st, tick_bias<T>, grid, dim3(LANES, DEEP), 0, N, width,
                                  static_cast<const T *>(dz), ld, slot_dz, dbias, slot_bias));
    return st->code;
}
