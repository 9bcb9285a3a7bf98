/* gru.c -- Cho et al. 2014 as TF 1.4's GRUCell computes it (r multiplies h before the product; u keeps the old state):
 *   [r, u] = s([x; h] W_g + b_g)         W_g [(in + H), 2H], b_g [2H] starts at 1
 *   n = tanh([x; r h] W_c + b_c)         W_c [(in + H), H],  b_c [H]
 *   h' = u h + (1 - u) n
 * Backward:  dn = dh (1-u)(1-n^2),  du = dh (h-n) u(1-u),  drh = dn W_ch^T,  dr = drh h r(1-r),
 *            dh_prev = dh u + drh r + [dr, du] W_gh^T
 * A row of z is r, u, n (3H); the two products need contiguous operands and go through scratch. */
#include "../shared/cell.h"
#include "rd/vecmath.h"

static rd_code declare(const rd_cell_shape *s, rd_cell_emit *emit, void *ctx, rd_status *st)
{
    const int64_t rows = s->in + s->H, two = 2 * s->H;
    if (s->extra)
        return rd_fail(st, RD_EUSAGE,
                       "cell type 'gru' does not go with attention_type gnmt or gnmt_v2, which need a cell with an "
                       "LSTM state; use lstm, glstm or slstm");
    RD_TRY(emit(ctx, "gates_kernel", 2, (int64_t[]){rows, two}, (rd_init){RD_INIT_GLOROT, 0, rows, two}, st));
    RD_TRY(emit(ctx, "gates_bias", 1, &two, (rd_init){RD_INIT_CONST, 1, 0, 0}, st));
    RD_TRY(emit(ctx, "candidate_kernel", 2, (int64_t[]){rows, s->H}, (rd_init){RD_INIT_GLOROT, 0, rows, s->H}, st));
    RD_TRY(emit(ctx, "candidate_bias", 1, &s->H, (rd_init){RD_INIT_CONST, 0, 0, 0}, st));
done:
    return st->code;
}

/* Copies columns between a [n, 3H] array and a compact [n, w] one. */
static void split(int64_t n, int64_t H, const float *z, float *g, float *c)
{
    for (int64_t i = 0; i < n; i++) {
        if (g) memcpy(g + i * 2 * H, z + i * 3 * H, (size_t)(2 * H) * sizeof(float));
        if (c) memcpy(c + i * H, z + i * 3 * H + 2 * H, (size_t)H * sizeof(float));
    }
}

static void join(int64_t n, int64_t H, const float *g, const float *c, float *z)
{
    for (int64_t i = 0; i < n; i++) {
        if (g) memcpy(z + i * 3 * H, g + i * 2 * H, (size_t)(2 * H) * sizeof(float));
        if (c) memcpy(z + i * 3 * H + 2 * H, c + i * H, (size_t)H * sizeof(float));
    }
}

static rd_code two_blocks(rd_cell *k, int64_t n, float **g, float **c, rd_status *st)
{
    const rd_code r = rd_rows_get(k->scratch, n, 2 * k->s.H, g, st);
    return r == RD_OK ? rd_rows_get(k->scratch, n, k->s.H, c, st) : r;
}

static rd_code input(rd_cell *k, int64_t n, const float *x, const float *a, float *z, rd_status *st)
{
    const rd_mark mark = rd_arena_mark(k->scratch);
    float *g, *c;
    (void)a;
    RD_TRY(two_blocks(k, n, &g, &c, st));
    RD_TRY(rd_mul_rows(k, k->w[0], 0, k->s.in, n, x, g, false, st));
    RD_TRY(rd_mul_rows(k, k->w[2], 0, k->s.in, n, x, c, false, st));
    join(n, k->s.H, g, c, z);
done:
    rd_arena_rewind(k->scratch, mark);
    return st->code;
}

static rd_code step(rd_cell *k, int64_t n, const float *h_prev, const float *c_prev, const rd_cell_rows *r,
                    rd_status *st)
{
    const int64_t H = k->s.H;
    const rd_mark mark = rd_arena_mark(k->scratch);
    const float *bg = k->w[1]->v, *bc = k->w[3]->v;
    float *g, *c, *rh = r->tc; /* r h is kept: backward needs it for W_c */
    (void)c_prev;
    RD_TRY(two_blocks(k, n, &g, &c, st));
    if (h_prev) RD_TRY(rd_mul_rows(k, k->w[0], k->s.in, H, n, h_prev, g, false, st));
    for (int64_t i = 0; i < n; i++) {
        float *restrict z = r->z + i * 3 * H;
        const float *restrict gh = g + i * 2 * H;
        if (h_prev)
            for (int64_t q = 0; q < 2 * H; q++) z[q] = rd_sigmoidf(z[q] + gh[q] + bg[q]);
        else
            for (int64_t q = 0; q < 2 * H; q++) z[q] = rd_sigmoidf(z[q] + bg[q]);
        for (int64_t q = 0; q < H; q++) rh[i * H + q] = h_prev ? z[q] * h_prev[i * H + q] : 0.0f;
    }
    if (h_prev) RD_TRY(rd_mul_rows(k, k->w[2], k->s.in, H, n, rh, c, false, st));
    for (int64_t i = 0; i < n; i++) {
        float *restrict z = r->z + i * 3 * H, *restrict h = r->h + i * H;
        const float *restrict u = z + H;
        for (int64_t q = 0; q < H; q++) {
            const float cand = rd_tanhf(z[2 * H + q] + (h_prev ? c[i * H + q] : 0.0f) + bc[q]);
            z[2 * H + q] = cand;
            h[q] = u[q] * (h_prev ? h_prev[i * H + q] : 0.0f) + (1.0f - u[q]) * cand;
        }
    }
done:
    rd_arena_rewind(k->scratch, mark);
    return st->code;
}

static rd_code step_back(rd_cell *k, int64_t n, const float *dm, float *dc, const float *h_prev, const float *c_prev,
                         const rd_cell_rows *r, float *dz, float *dh_prev, rd_status *st)
{
    const int64_t H = k->s.H;
    const rd_mark mark = rd_arena_mark(k->scratch);
    float *dg, *dn, *drh;
    (void)dc;
    (void)c_prev;
    RD_TRY(two_blocks(k, n, &dg, &dn, st));
    RD_TRY(rd_rows_get(k->scratch, n, H, &drh, st));
    for (int64_t i = 0; i < n; i++) {
        const float *restrict u = r->z + i * 3 * H + H, *restrict cand = u + H, *restrict dh = dm + i * H;
        for (int64_t q = 0; q < H; q++) {
            const float hp = h_prev ? h_prev[i * H + q] : 0.0f;
            dn[i * H + q] = dh[q] * (1.0f - u[q]) * (1.0f - cand[q] * cand[q]);
            dg[i * 2 * H + H + q] = dh[q] * (hp - cand[q]) * u[q] * (1.0f - u[q]);
        }
    }
    if (h_prev) RD_TRY(rd_mul_rows_t(k, k->w[2], k->s.in, H, n, dn, drh, false, st));
    for (int64_t i = 0; i < n; i++) {
        const float *restrict g = r->z + i * 3 * H;
        for (int64_t q = 0; q < H; q++)
            dg[i * 2 * H + q] = h_prev ? drh[i * H + q] * h_prev[i * H + q] * g[q] * (1.0f - g[q]) : 0.0f;
    }
    join(n, H, dg, dn, dz);
    if (h_prev && dh_prev) {
        RD_TRY(rd_mul_rows_t(k, k->w[0], k->s.in, H, n, dg, dh_prev, false, st));
        for (int64_t i = 0; i < n; i++) {
            const float *restrict g = r->z + i * 3 * H, *restrict u = g + H;
            for (int64_t q = 0; q < H; q++) dh_prev[i * H + q] += dm[i * H + q] * u[q] + drh[i * H + q] * g[q];
        }
    }
done:
    rd_arena_rewind(k->scratch, mark);
    return st->code;
}

static rd_code input_back(rd_cell *k, int64_t n, const float *dz, float *dx, bool add_dx, float *da, rd_status *st)
{
    const rd_mark mark = rd_arena_mark(k->scratch);
    float *g, *c;
    (void)da;
    if (!dx) return RD_OK;
    RD_TRY(two_blocks(k, n, &g, &c, st));
    split(n, k->s.H, dz, g, c);
    RD_TRY(rd_mul_rows_t(k, k->w[0], 0, k->s.in, n, g, dx, add_dx, st));
    RD_TRY(rd_mul_rows_t(k, k->w[2], 0, k->s.in, n, c, dx, true, st));
done:
    rd_arena_rewind(k->scratch, mark);
    return st->code;
}

static rd_code weights_back(rd_cell *k, int64_t N, const float *x, const float *a, const float *h_prev, const float *tc,
                            const float *dz, rd_status *st)
{
    const int64_t H = k->s.H;
    const rd_mark mark = rd_arena_mark(k->scratch);
    float *g, *c;
    (void)a;
    RD_TRY(two_blocks(k, N, &g, &c, st));
    split(N, H, dz, g, c);
    RD_TRY(rd_mul_grad(k, k->w[0], 0, k->s.in, N, x, g, 2 * H, st));
    RD_TRY(rd_mul_grad(k, k->w[0], k->s.in, H, N, h_prev, g, 2 * H, st));
    rd_add_columns(k->be, N, 2 * H, g, 2 * H, k->w[1]->g);
    RD_TRY(rd_mul_grad(k, k->w[2], 0, k->s.in, N, x, c, H, st));
    RD_TRY(rd_mul_grad(k, k->w[2], k->s.in, H, N, tc, c, H, st));
    rd_add_columns(k->be, N, H, c, H, k->w[3]->g);
done:
    rd_arena_rewind(k->scratch, mark);
    return st->code;
}

const rd_cell_def rd_cell_gru = {.name = "gru",
                                 .has_c = false,
                                 .can_project = false,
                                 .declare = declare,
                                 .n_gates = 3,
                                 .input = input,
                                 .step = step,
                                 .step_back = step_back,
                                 .input_back = input_back,
                                 .weights_back = weights_back};
