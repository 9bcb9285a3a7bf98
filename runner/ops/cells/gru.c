/* gru.c -- Cho et al. 2014, as GRUCell of TF 1.4 computes it. r multiplies h before the product; u
 * keeps the old state.
 *   [r, u] = s([x; h] W_g + b_g)         W_g [(in + H), 2H], b_g [2H], whose initial value is 1
 *   n = tanh([x; r h] W_c + b_c)         W_c [(in + H), H],  b_c [H]
 *   h' = u h + (1 - u) n
 * Backward:
 *   dn = dh (1-u)(1-n^2),  du = dh (h-n) u(1-u),  drh = dn W_ch^T,  dr = drh h r(1-r)
 *   dh_prev = dh u + drh r + [dr, du] W_gh^T
 * A row of z is r, u, n (3H). */
#include "../shared/cell_kernels.h"
#include "rd/vecmath.h"

static rd_code gru_declare(const rd_cell_shape *s, rd_cell_emit *emit, void *ctx, rd_status *st)
{
    const int64_t rows = s->in + s->H, two = 2 * s->H;
    if (s->extra)
        return rd_fail(st, RD_EUSAGE,
                       "cell type 'gru' does not go with attention_type gnmt or gnmt_v2, which "
                       "need a cell with an LSTM state; use lstm, glstm or slstm");
    RD_TRY(emit(ctx, "gates_kernel", 2, (int64_t[]){rows, two},
                (rd_init){RD_INIT_GLOROT, 0, rows, two}, st));
    RD_TRY(emit(ctx, "gates_bias", 1, &two, (rd_init){RD_INIT_CONST, 1, 0, 0}, st));
    RD_TRY(emit(ctx, "candidate_kernel", 2, (int64_t[]){rows, s->H},
                (rd_init){RD_INIT_GLOROT, 0, rows, s->H}, st));
    RD_TRY(emit(ctx, "candidate_bias", 1, &s->H, (rd_init){RD_INIT_CONST, 0, 0, 0}, st));
done:
    return st->code;
}

static rd_code gru_input(rd_cell *k, int64_t n, const float *x, const float *a, float *z,
                         rd_status *st)
{
    const int64_t in = k->s.in, H = k->s.H;
    (void)a;
    RD_TRY(rd_mul_strided(k, k->w[0], 0, in, n, x, in, z, 3 * H, false, st));
    RD_TRY(rd_mul_strided(k, k->w[2], 0, in, n, x, in, z + 2 * H, 3 * H, false, st));
done:
    return st->code;
}

/* ---- the elementwise passes on a CPU ---- */

static rd_code cpu_gates(rd_backend *be, int64_t n, int64_t H, const float *gh, const float *bias,
                         const float *h_prev, float *z_rows, float *rh, rd_status *st)
{
    const float *restrict b = bias;
    (void)be, (void)st;
    for (int64_t i = 0; i < n; i++) {
        float *restrict z = z_rows + i * 3 * H;
        if (gh) {
            const float *restrict g = gh + i * 2 * H;
            for (int64_t q = 0; q < 2 * H; q++) z[q] = rd_sigmoidf(z[q] + g[q] + b[q]);
        } else {
            for (int64_t q = 0; q < 2 * H; q++) z[q] = rd_sigmoidf(z[q] + b[q]);
        }
        for (int64_t q = 0; q < H; q++) rh[i * H + q] = h_prev ? z[q] * h_prev[i * H + q] : 0.0f;
    }
    return RD_OK;
}

static rd_code cpu_output(rd_backend *be, int64_t n, int64_t H, const float *ch, const float *bias,
                          const float *h_prev, float *z_rows, float *h_rows, rd_status *st)
{
    const float *restrict b = bias;
    (void)be, (void)st;
    for (int64_t i = 0; i < n; i++) {
        float *restrict z = z_rows + i * 3 * H, *restrict h = h_rows + i * H;
        const float *restrict u = z + H;
        for (int64_t q = 0; q < H; q++) {
            const float cand = rd_tanhf(z[2 * H + q] + (ch ? ch[i * H + q] : 0.0f) + b[q]);
            z[2 * H + q] = cand;
            h[q] = u[q] * (h_prev ? h_prev[i * H + q] : 0.0f) + (1.0f - u[q]) * cand;
        }
    }
    return RD_OK;
}

static rd_code cpu_output_back(rd_backend *be, int64_t n, int64_t H, const float *dh_rows,
                               const float *h_prev, const float *z, float *dz, rd_status *st)
{
    (void)be, (void)st;
    for (int64_t i = 0; i < n; i++) {
        const float *restrict u = z + i * 3 * H + H, *restrict cand = u + H,
                              *restrict dh = dh_rows + i * H;
        float *restrict du = dz + i * 3 * H + H, *restrict dn = du + H;
        for (int64_t q = 0; q < H; q++) {
            const float hp = h_prev ? h_prev[i * H + q] : 0.0f;
            dn[q] = dh[q] * (1.0f - u[q]) * (1.0f - cand[q] * cand[q]);
            du[q] = dh[q] * (hp - cand[q]) * u[q] * (1.0f - u[q]);
        }
    }
    return RD_OK;
}

static rd_code cpu_gates_back(rd_backend *be, int64_t n, int64_t H, const float *dh,
                              const float *drh, const float *h_prev, const float *z, float *dz,
                              float *dh_prev, bool add, rd_status *st)
{
    (void)be, (void)dh, (void)dh_prev, (void)add, (void)st;
    for (int64_t i = 0; i < n; i++) {
        const float *restrict r = z + i * 3 * H;
        float *restrict dr = dz + i * 3 * H;
        for (int64_t q = 0; q < H; q++)
            dr[q] = h_prev ? drh[i * H + q] * h_prev[i * H + q] * r[q] * (1.0f - r[q]) : 0.0f;
    }
    return RD_OK;
}

static rd_code cpu_state_back(rd_backend *be, int64_t n, int64_t H, const float *dh,
                              const float *drh, const float *z, float *dh_prev, rd_status *st)
{
    (void)be, (void)st;
    for (int64_t i = 0; i < n; i++) {
        const float *restrict r = z + i * 3 * H, *restrict u = r + H;
        for (int64_t q = 0; q < H; q++)
            dh_prev[i * H + q] += dh[i * H + q] * u[q] + drh[i * H + q] * r[q];
    }
    return RD_OK;
}

static const rd_gru_kernels cpu_gru = {cpu_gates,      cpu_output, cpu_output_back,
                                       cpu_gates_back, false,      cpu_state_back};
static const rd_gru_kernels *const gru_kernels[RD_BACKENDS] = {
    [RD_CPU] = &cpu_gru, [RD_GPU] = RD_GPU_ENTRY(&rd_cuda_gru)};

/* ---- steps ---- */

static rd_code gru_step(rd_cell *k, int64_t n, const float *h_prev, const float *c_prev,
                        const rd_cell_rows *r, rd_status *st)
{
    const rd_gru_kernels *kernels = gru_kernels[rd_backend_kind_of(k->be)];
    const int64_t in = k->s.in, H = k->s.H;
    const rd_mark mark = rd_arena_mark(k->scratch);
    float *gh = NULL, *ch = NULL, *rh = r->tc; /* kept: backward needs r h for W_c */
    (void)c_prev;
    if (h_prev) RD_TRY(rd_mul_for_step(k, k->w[0], in, H, n, h_prev, r->z, 3 * H, &gh, st));
    RD_TRY(kernels->gates(k->be, n, H, gh, k->w[1]->v, h_prev, r->z, rh, st));
    if (h_prev) RD_TRY(rd_mul_for_step(k, k->w[2], in, H, n, rh, r->z + 2 * H, 3 * H, &ch, st));
    RD_TRY(kernels->output(k->be, n, H, ch, k->w[3]->v, h_prev, r->z, r->h, st));
done:
    rd_arena_rewind(k->scratch, mark);
    return st->code;
}

static rd_code gru_step_back(rd_cell *k, int64_t n, const float *dm, float *dc, const float *h_prev,
                             const float *c_prev, const rd_cell_rows *r, float *dz, float *dh_prev,
                             bool add, rd_status *st)
{
    const rd_gru_kernels *kernels = gru_kernels[rd_backend_kind_of(k->be)];
    const int64_t in = k->s.in, H = k->s.H;
    const rd_mark mark = rd_arena_mark(k->scratch);
    float *drh, *back = h_prev ? dh_prev : NULL;
    (void)dc;
    (void)c_prev;
    RD_TRY(rd_rows_get(k->scratch, n, H, &drh, st));
    RD_TRY(kernels->output_back(k->be, n, H, dm, h_prev, r->z, dz, st));
    if (h_prev)
        RD_TRY(rd_mul_strided_t(k, k->w[2], in, H, n, dz + 2 * H, 3 * H, drh, H, false, st));
    RD_TRY(kernels->gates_back(k->be, n, H, dm, drh, h_prev, r->z, dz, back, add, st));
    if (!back) goto done;
    RD_TRY(rd_mul_strided_t(k, k->w[0], in, H, n, dz, 3 * H, back, H, kernels->product_adds, st));
    RD_TRY(kernels->state_back(k->be, n, H, dm, drh, r->z, back, st));
done:
    rd_arena_rewind(k->scratch, mark);
    return st->code;
}

static rd_code gru_input_back(rd_cell *k, int64_t n, const float *dz, float *dx, bool add_dx,
                              float *da, rd_status *st)
{
    const int64_t in = k->s.in, H = k->s.H;
    (void)da;
    if (!dx) return RD_OK;
    RD_TRY(rd_mul_strided_t(k, k->w[0], 0, in, n, dz, 3 * H, dx, in, add_dx, st));
    RD_TRY(rd_mul_strided_t(k, k->w[2], 0, in, n, dz + 2 * H, 3 * H, dx, in, true, st));
done:
    return st->code;
}

static rd_code gru_weights_back(rd_cell *k, int64_t N, const float *x, const float *a,
                                const float *h_prev, const float *tc, const float *dz,
                                rd_status *st)
{
    const int64_t in = k->s.in, H = k->s.H;
    const rd_mark mark = rd_arena_mark(k->scratch);
    const float *g, *c;
    int64_t ld_g, ld_c;
    (void)a;
    RD_TRY(rd_mul_operand(k, N, 2 * H, dz, 3 * H, &g, &ld_g, st));
    RD_TRY(rd_mul_operand(k, N, H, dz + 2 * H, 3 * H, &c, &ld_c, st));
    RD_TRY(rd_mul_strided_grad(k, k->w[0], 0, in, N, x, in, g, ld_g, st));
    RD_TRY(rd_mul_strided_grad(k, k->w[0], in, H, N, h_prev, H, g, ld_g, st));
    RD_TRY(rd_add_columns(k->be, k->scratch, N, 2 * H, g, ld_g, k->w[1]->g, st));
    RD_TRY(rd_mul_strided_grad(k, k->w[2], 0, in, N, x, in, c, ld_c, st));
    RD_TRY(rd_mul_strided_grad(k, k->w[2], in, H, N, tc, H, c, ld_c, st));
    RD_TRY(rd_add_columns(k->be, k->scratch, N, H, c, ld_c, k->w[3]->g, st));
done:
    rd_arena_rewind(k->scratch, mark);
    return st->code;
}

RD_CELL(gru) = {.name = "gru",
                .has_c = false,
                .can_project = false,
                .declare = gru_declare,
                .n_gates = 3,
                .input = gru_input,
                .step = gru_step,
                .step_back = gru_step_back,
                .input_back = gru_input_back,
                .weights_back = gru_weights_back};
