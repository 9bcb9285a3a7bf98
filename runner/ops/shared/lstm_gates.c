/* lstm_gates.c -- the elementwise part of the LSTM family; formulas in cell.h. */
#include "cell.h"
#include "rd/vecmath.h"

void rd_lstm_gates(int64_t n, int64_t H, const float *c_prev, float *z_rows, float *c_rows, float *tc_rows,
                   float *m_rows)
{
    for (int64_t row = 0; row < n; row++) {
        float *restrict z = z_rows + row * 4 * H, *restrict c = c_rows + row * H, *restrict tc = tc_rows + row * H,
                        *restrict m = m_rows + row * H;
        for (int64_t q = 0; q < H; q++) z[q] = rd_sigmoidf(z[q]);
        for (int64_t q = H; q < 2 * H; q++) z[q] = rd_tanhf(z[q]);
        for (int64_t q = 2 * H; q < 3 * H; q++) z[q] = rd_sigmoidf(z[q] + 1.0f);
        for (int64_t q = 3 * H; q < 4 * H; q++) z[q] = rd_sigmoidf(z[q]);
        if (c_prev) {
            const float *restrict cp = c_prev + row * H;
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

void rd_lstm_gates_back(int64_t n, int64_t H, const float *dm_rows, float *dc_rows, const float *c_prev,
                        const rd_cell_rows *r, float *dz)
{
    for (int64_t row = 0; row < n; row++) {
        const float *restrict i = r->z + row * 4 * H, *restrict g = i + H, *restrict f = i + 2 * H,
                              *restrict o = i + 3 * H;
        const float *restrict tc = r->tc + row * H, *restrict dm = dm_rows + row * H;
        float *restrict dc = dc_rows + row * H;
        float *restrict di = dz + row * 4 * H, *restrict dg = di + H, *restrict df = di + 2 * H,
                        *restrict d_o = di + 3 * H;
        for (int64_t q = 0; q < H; q++) {
            const float dtc = dm[q] * o[q] * (1.0f - tc[q] * tc[q]) + dc[q];
            di[q] = dtc * g[q] * i[q] * (1.0f - i[q]);
            dg[q] = dtc * i[q] * (1.0f - g[q] * g[q]);
            d_o[q] = dm[q] * tc[q] * o[q] * (1.0f - o[q]);
            dc[q] = dtc * f[q];
            df[q] = dtc * f[q] * (1.0f - f[q]);
        }
        if (c_prev) {
            const float *restrict cp = c_prev + row * H;
            for (int64_t q = 0; q < H; q++) df[q] *= cp[q];
        } else {
            for (int64_t q = 0; q < H; q++) df[q] = 0.0f;
        }
    }
}
