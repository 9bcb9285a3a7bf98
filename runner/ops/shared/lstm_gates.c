/* lstm_gates.c -- the elementwise part of lstm, slstm and glstm on a CPU. The formulas are in
 * cell.h. */
#include "cell_kernels.h"
#include "rd/vecmath.h"

typedef struct lstm_gates_job {
    int64_t H;
    const float *hz, *const *bias, *c_prev, *dm;
    rd_cell_rows r;
    float *m, *dc, *dz;
} lstm_gates_job;

static void gates_rows(void *ctx, int64_t lo, int64_t hi)
{
    const lstm_gates_job *j = ctx;
    const int64_t H = j->H;
    for (int64_t row = lo; row < hi; row++) {
        float *restrict z = j->r.z + row * 4 * H, *restrict c = j->r.c + row * H,
                        *restrict tc = j->r.tc + row * H, *restrict m = j->m + row * H;
        for (int64_t gate = 0; gate < 4; gate++) {
            const float *restrict b = j->bias[gate];
            float *restrict to = z + gate * H;
            if (j->hz) {
                const float *restrict hz = j->hz + row * 4 * H + gate * H;
                for (int64_t q = 0; q < H; q++) to[q] += hz[q] + b[q];
            } else {
                for (int64_t q = 0; q < H; q++) to[q] += b[q];
            }
        }
        for (int64_t q = 0; q < H; q++) z[q] = rd_sigmoidf(z[q]);
        for (int64_t q = H; q < 2 * H; q++) z[q] = rd_tanhf(z[q]);
        for (int64_t q = 2 * H; q < 3 * H; q++) z[q] = rd_sigmoidf(z[q] + 1.0f);
        for (int64_t q = 3 * H; q < 4 * H; q++) z[q] = rd_sigmoidf(z[q]);
        if (j->c_prev) {
            const float *restrict cp = j->c_prev + row * H;
            for (int64_t q = 0; q < H; q++) c[q] = cp[q] * z[2 * H + q] + z[q] * z[H + q];
        } else {
            for (int64_t q = 0; q < H; q++) c[q] = z[q] * z[H + q];
        }
        for (int64_t q = 0; q < H; q++) {
            tc[q] = rd_tanhf(c[q]);
            m[q] = z[3 * H + q] * tc[q];
        }
    }
}

static rd_code cpu_gates(rd_backend *be, int64_t n, int64_t H, int64_t groups, const float *hz,
                         const float *const bias[4], const float *c_prev, const rd_cell_rows *r,
                         rd_status *st)
{
    (void)groups, (void)st;
    lstm_gates_job j = {
        .H = H, .hz = hz, .bias = bias, .c_prev = c_prev, .r = *r, .m = r->m ? r->m : r->h};
    rd_parallel(be, n, 8, gates_rows, &j);
    return RD_OK;
}

static void lstm_gates_back_rows(void *ctx, int64_t lo, int64_t hi)
{
    const lstm_gates_job *j = ctx;
    const int64_t H = j->H;
    for (int64_t row = lo; row < hi; row++) {
        const float *restrict i = j->r.z + row * 4 * H, *restrict g = i + H,
                              *restrict f = i + 2 * H, *restrict o = i + 3 * H;
        const float *restrict tc = j->r.tc + row * H, *restrict dm = j->dm + row * H;
        float *restrict dc = j->dc + row * H;
        float *restrict di = j->dz + row * 4 * H, *restrict dg = di + H, *restrict df = di + 2 * H,
                        *restrict d_o = di + 3 * H;
        for (int64_t q = 0; q < H; q++) {
            const float dtc = dm[q] * o[q] * (1.0f - tc[q] * tc[q]) + dc[q];
            di[q] = dtc * g[q] * i[q] * (1.0f - i[q]);
            dg[q] = dtc * i[q] * (1.0f - g[q] * g[q]);
            d_o[q] = dm[q] * tc[q] * o[q] * (1.0f - o[q]);
            dc[q] = dtc * f[q];
            df[q] = dtc * f[q] * (1.0f - f[q]);
        }
        if (j->c_prev) {
            const float *restrict cp = j->c_prev + row * H;
            for (int64_t q = 0; q < H; q++) df[q] *= cp[q];
        } else {
            for (int64_t q = 0; q < H; q++) df[q] = 0.0f;
        }
    }
}

static rd_code cpu_gates_back(rd_backend *be, int64_t n, int64_t H, int64_t groups, const float *dm,
                              float *dc, const float *c_prev, const rd_cell_rows *r, float *dz,
                              rd_status *st)
{
    (void)groups, (void)st;
    lstm_gates_job j = {.H = H, .c_prev = c_prev, .dm = dm, .r = *r, .dc = dc, .dz = dz};
    rd_parallel(be, n, 8, lstm_gates_back_rows, &j);
    return RD_OK;
}

static const rd_lstm_kernels cpu_lstm = {cpu_gates, cpu_gates_back};
static const rd_lstm_kernels *const lstm_kernels[RD_BACKENDS] = {
    [RD_CPU] = &cpu_lstm, [RD_GPU] = RD_GPU_ENTRY(&rd_cuda_lstm)};

rd_code rd_lstm_gates(rd_backend *be, int64_t n, int64_t H, int64_t groups, const float *hz,
                      const float *const bias[4], const float *c_prev, const rd_cell_rows *r,
                      rd_status *st)
{
    return lstm_kernels[rd_backend_kind_of(be)]->gates(be, n, H, groups, hz, bias, c_prev, r, st);
}

rd_code rd_lstm_gates_back(rd_backend *be, int64_t n, int64_t H, int64_t groups, const float *dm,
                           float *dc, const float *c_prev, const rd_cell_rows *r, float *dz,
                           rd_status *st)
{
    return lstm_kernels[rd_backend_kind_of(be)]->gates_back(be, n, H, groups, dm, dc, c_prev, r, dz,
                                                            st);
}
