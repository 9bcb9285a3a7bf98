/* cell_kernels.cu -- the elementwise parts of recurrent cells on a GPU. The formulas are in cell.h
 * and gru.c. A step has few elements, so it waits for memory and cannot use the whole bandwidth.
 * One thread per unit and row keeps the most loads in flight. */
#include "cell_kernels.h"
#include "lstm_device.h"
#include "../../engine/gpu/rounded_device.h"
#include "../../engine/gpu/rows_grid.h"

typedef struct lstm {
    int64_t n, H;
    int64_t width; /* width of a gate in a group */
    const float *bias[4], *c_prev, *dm;
    float *z, *c, *tc, *m, *dc, *dz;
    rd_rounded_copy copy; /* of m; backward: of dz */
} lstm;

/* Returns the index of unit q of the first gate in row i of z. The gates are `width` apart. */
static __device__ inline int64_t first_gate(const lstm &a, int64_t i, int64_t q)
{
    const unsigned width = (unsigned)a.width, group = (unsigned)q / width;
    return i * 4 * a.H + group * 4 * a.width + ((unsigned)q - group * width);
}

static __global__ void lstm_gates(lstm a)
{
    for (RD_EACH_ROW(row, a.n))
        for (RD_EACH_COLUMN(q, a.H)) {
            const int64_t at = row * a.H + q;
            float *z = a.z + first_gate(a, row, q);
            const rd_lstm_unit u = rd_lstm_unit_of(z[0] + a.bias[0][q], z[a.width] + a.bias[1][q],
                                                   z[2 * a.width] + a.bias[2][q],
                                                   z[3 * a.width] + a.bias[3][q],
                                                   a.c_prev ? a.c_prev[at] : 0.0f);
            z[0] = u.i;
            z[a.width] = u.j;
            z[2 * a.width] = u.f;
            z[3 * a.width] = u.o;
            a.c[at] = u.c;
            a.tc[at] = u.tc;
            a.m[at] = u.m;
            rd_rounded_put(a.copy, at, u.m);
        }
}

static rd_code launch_lstm_gates(rd_backend *be, int64_t n, int64_t H, int64_t groups,
                                 const float *, const float *const bias[4], const float *c_prev,
                                 const rd_cell_rows *r, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(be);
    lstm a = {};
    a.n = n;
    a.H = H;
    a.width = H / groups;
    for (int k = 0; k < 4; k++) a.bias[k] = bias[k];
    a.c_prev = c_prev;
    a.z = r->z;
    a.c = r->c;
    a.tc = r->tc;
    a.m = r->m ? r->m : r->h;
    a.copy = rd_rounded_copy_of(g, a.m);
    return RD_LAUNCH(g, st, lstm_gates, rd_rows_grid(n, H), rd_rows_block(H), 0, a);
}

static __global__ void lstm_gates_back(lstm a)
{
    for (RD_EACH_ROW(row, a.n))
        for (RD_EACH_COLUMN(q, a.H)) {
            const int64_t at = row * a.H + q, gate = first_gate(a, row, q);
            const float *z = a.z + gate;
            float *dz = a.dz + gate;
            rd_lstm_unit u = {};
            u.i = z[0], u.j = z[a.width], u.f = z[2 * a.width], u.o = z[3 * a.width];
            u.tc = a.tc[at];
            const rd_lstm_unit_grad d = rd_lstm_unit_back(u, a.c_prev ? a.c_prev[at] : 0.0f,
                                                          a.dm[at], a.dc[at]);
            dz[0] = d.i;
            dz[a.width] = d.j;
            dz[2 * a.width] = d.f;
            dz[3 * a.width] = d.o;
            rd_rounded_put(a.copy, gate, d.i);
            rd_rounded_put(a.copy, gate + a.width, d.j);
            rd_rounded_put(a.copy, gate + 2 * a.width, d.f);
            rd_rounded_put(a.copy, gate + 3 * a.width, d.o);
            a.dc[at] = d.c_prev;
        }
}

static rd_code launch_lstm_gates_back(rd_backend *be, int64_t n, int64_t H, int64_t groups,
                                      const float *dm, float *dc, const float *c_prev,
                                      const rd_cell_rows *r, float *dz, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(be);
    lstm a = {};
    a.n = n;
    a.H = H;
    a.width = H / groups;
    a.c_prev = c_prev;
    a.dm = dm;
    a.z = r->z;
    a.tc = r->tc;
    a.dc = dc;
    a.dz = dz;
    a.copy = rd_rounded_copy_of(g, dz);
    return RD_LAUNCH(g, st, lstm_gates_back, rd_rows_grid(n, H), rd_rows_block(H), 0, a);
}

static __global__ void gru_gates(int64_t n, int64_t H, const float *__restrict__ bias,
                                 const float *__restrict__ h_prev, float *__restrict__ z,
                                 float *__restrict__ rh, rd_rounded_copy copy)
{
    for (RD_EACH_ROW(i, n))
        for (RD_EACH_COLUMN(q, H)) {
            float *row = z + i * 3 * H;
            const float r = rd_sigmoid(row[q] + bias[q]), u = rd_sigmoid(row[H + q] + bias[H + q]);
            row[q] = r;
            row[H + q] = u;
            const float product = h_prev ? r * h_prev[i * H + q] : 0.0f;
            rh[i * H + q] = product;
            rd_rounded_put(copy, i * H + q, product);
        }
}

static rd_code launch_gru_gates(rd_backend *be, int64_t n, int64_t H, const float *,
                                const float *bias, const float *h_prev, float *z, float *rh,
                                rd_status *st)
{
    rd_gpu *g = rd_gpu_of(be);
    return RD_LAUNCH(g, st, gru_gates, rd_rows_grid(n, H), rd_rows_block(H), 0, n, H, bias, h_prev,
                     z, rh, rd_rounded_copy_of(g, rh));
}

static __global__ void gru_output(int64_t n, int64_t H, const float *__restrict__ bias,
                                  const float *__restrict__ h_prev, float *__restrict__ z,
                                  float *__restrict__ h, rd_rounded_copy copy)
{
    for (RD_EACH_ROW(i, n))
        for (RD_EACH_COLUMN(q, H)) {
            float *row = z + i * 3 * H;
            const float u = row[H + q], cand = tanhf(row[2 * H + q] + bias[q]);
            row[2 * H + q] = cand;
            const float y = (h_prev ? u * h_prev[i * H + q] : 0.0f) + (1.0f - u) * cand;
            h[i * H + q] = y;
            rd_rounded_put(copy, i * H + q, y);
        }
}

static rd_code launch_gru_output(rd_backend *be, int64_t n, int64_t H, const float *,
                                 const float *bias, const float *h_prev, float *z, float *h,
                                 rd_status *st)
{
    rd_gpu *g = rd_gpu_of(be);
    return RD_LAUNCH(g, st, gru_output, rd_rows_grid(n, H), rd_rows_block(H), 0, n, H, bias, h_prev,
                     z, h, rd_rounded_copy_of(g, h));
}

static __global__ void gru_output_back(int64_t n, int64_t H, const float *__restrict__ dh,
                                       const float *__restrict__ h_prev,
                                       const float *__restrict__ z, float *__restrict__ dz,
                                       rd_rounded_copy copy)
{
    for (RD_EACH_ROW(i, n))
        for (RD_EACH_COLUMN(q, H)) {
            const float *row = z + i * 3 * H;
            float *to = dz + i * 3 * H;
            const float u = row[H + q], cand = row[2 * H + q], d = dh[i * H + q],
                        hp = h_prev ? h_prev[i * H + q] : 0.0f;
            const float du = d * (hp - cand) * u * (1.0f - u),
                        dn = d * (1.0f - u) * (1.0f - cand * cand);
            to[H + q] = du;
            to[2 * H + q] = dn;
            rd_rounded_put(copy, i * 3 * H + H + q, du);
            rd_rounded_put(copy, i * 3 * H + 2 * H + q, dn);
        }
}

static rd_code launch_gru_output_back(rd_backend *be, int64_t n, int64_t H, const float *dh,
                                      const float *h_prev, const float *z, float *dz, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(be);
    return RD_LAUNCH(g, st, gru_output_back, rd_rows_grid(n, H), rd_rows_block(H), 0, n, H, dh,
                     h_prev, z, dz, rd_rounded_copy_of(g, dz));
}

static __global__ void gru_gates_back(int64_t n, int64_t H, const float *__restrict__ dh,
                                      const float *__restrict__ drh,
                                      const float *__restrict__ h_prev, const float *__restrict__ z,
                                      float *__restrict__ dz, float *__restrict__ dh_prev, bool add,
                                      rd_rounded_copy copy)
{
    for (RD_EACH_ROW(i, n))
        for (RD_EACH_COLUMN(q, H)) {
            const int64_t at = i * H + q;
            const float r = z[i * 3 * H + q];
            const float dr = h_prev ? drh[at] * h_prev[at] * r * (1.0f - r) : 0.0f;
            dz[i * 3 * H + q] = dr;
            rd_rounded_put(copy, i * 3 * H + q, dr);
            if (!dh_prev) continue;
            const float back = dh[at] * z[i * 3 * H + H + q] + drh[at] * r;
            dh_prev[at] = add ? dh_prev[at] + back : back;
        }
}

static rd_code launch_gru_gates_back(rd_backend *be, int64_t n, int64_t H, const float *dh,
                                     const float *drh, const float *h_prev, const float *z,
                                     float *dz, float *dh_prev, bool add, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(be);
    return RD_LAUNCH(g, st, gru_gates_back, rd_rows_grid(n, H), rd_rows_block(H), 0, n, H, dh, drh,
                     h_prev, z, dz, dh_prev, add, rd_rounded_copy_of(g, dz));
}

/* gates_back has already added this part. */
static rd_code no_state_back(rd_backend *, int64_t, int64_t, const float *, const float *,
                             const float *, float *, rd_status *)
{
    return RD_OK;
}

const rd_lstm_kernels rd_cuda_lstm = {launch_lstm_gates, launch_lstm_gates_back};
const rd_gru_kernels rd_cuda_gru = {
    launch_gru_gates, launch_gru_output, launch_gru_output_back, launch_gru_gates_back, true,
    no_state_back};
