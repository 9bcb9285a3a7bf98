/* cell.h -- recurrent cells, one file each in runner/ops/cells; make writes the registry. Shared by the ops rnn_layer
 * and attention_decoder and by decoding.
 *
 * A cell works on packed rows: N rows (all time steps), of which a time step is n consecutive ones. All row arrays are
 * contiguous and have RD_SLACK_ROWS rows of slack (see rd_backend_rounds_rows). Letters as in the formulas: x [N, in] input
 * (already dropped out), a [N, extra] what gnmt joins to the recurrent side, h [N, R] recurrent output, c [N, H] state,
 * z [N, Z] pre-activations.
 *
 * One source for all backends: with a GPU's all float arrays lie in its memory, each function queues its work,
 * and what a step costs is a product and an elementwise kernel, forward and back. Failures are those of the products.
 */
#ifndef RD_CELL_H
#define RD_CELL_H

#include "rd/ops.h"
#include "rd/vec.h"
#include <string.h>

RD_C_BEGIN

enum { RD_CELL_MAX_PARAMS = 72, RD_CELL_MAX_GROUPS = 64 };

typedef struct rd_cell rd_cell;

/* What a step leaves for backward; pointers to the step's first row. */
typedef struct rd_cell_rows {
    float *
        z; /* in: the input's share of the pre-activations; after step: activated gates [n, Z]. The order of columns
                  is the  cell's own, and of the device */
    float *c;  /* [n, H] new state (NULL: the cell has none) */
    float *tc; /* [n, H] cell's own: tanh(c) or r * h */
    float *m;  /* [n, H] output before the projection (NULL: no projection) */
    float *h;  /* [n, R] */
} rd_cell_rows;

typedef rd_code rd_cell_emit(void *ctx, const char *name, int n_dim, const int64_t *dim,
                             rd_init init, rd_status *st);

struct rd_cell_def {
    const char *name;
    bool has_c; /* LSTM-type state: gnmt attention accepts it */
    bool can_project;
    int n_gates; /* Z = n_gates H */
    /* Widths and parameters: calls emit for each parameter, in the order of w[]. RD_EUSAGE when the sizes do not fit.
     */
    rd_code (*declare)(const rd_cell_shape *s, rd_cell_emit *emit, void *ctx, rd_status *st);
    /* z = x W_x (+ a W_a) for n rows; any n. */
    rd_code (*input)(rd_cell *k, int64_t n, const float *x, const float *a, float *z,
                     rd_status *st);
    /* One time step of n rows: h_prev, c_prev NULL: zeros. */
    rd_code (*step)(rd_cell *k, int64_t n, const float *h_prev, const float *c_prev,
                    const rd_cell_rows *r, rd_status *st);
    /* Back through one step. dm [n, H]: gradient of the output before the projection. dc [n, H]: in: gradient of c from
     * the later step; out: gradient of c_prev. dz [n, Z] out. dh_prev [n, R] (+)= (NULL when h_prev is); add: on a GPU
     * alone. */
    rd_code (*step_back)(rd_cell *k, int64_t n, const float *dm, float *dc, const float *h_prev,
                         const float *c_prev, const rd_cell_rows *r, float *dz, float *dh_prev,
                         bool add, rd_status *st);
    /* dx (+)= dz W_x^T for n rows, da += dz W_a^T; either may be NULL. */
    rd_code (*input_back)(rd_cell *k, int64_t n, const float *dz, float *dx, bool add_dx, float *da,
                          rd_status *st);
    /* Parameter gradients of all N rows at once (+=). h_prev [N, R]: zero rows where a sequence begins. tc as in
     * rd_cell_rows. */
    rd_code (*weights_back)(rd_cell *k, int64_t N, const float *x, const float *a,
                            const float *h_prev, const float *tc, const float *dz, rd_status *st);
};

/* Begins the definition of a recurrent cell: RD_CELL(id) = {...}; in a file of runner/ops/cells. make
 * finds it and writes the registry. */
#define RD_CELL(id) const rd_cell_def rd_cell_##id

struct rd_cell {
    const rd_cell_def *def;
    rd_cell_shape s;
    int64_t Z;
    rd_backend *be;
    const rd_params *ps;
    rd_arena *scratch; /* of memory that the products compute in */
    rd_var *w
        [RD_CELL_MAX_PARAMS]; /* in order of declare; the projection, where there is one, is last */
    int n_w;
};

const rd_cell_def *rd_cell_find(const char *name); /* NULL: unknown */
const rd_cell_def *const *rd_cell_defs(int *n);
/* scratch: device_scratch of a call. */
rd_code rd_cell_init(rd_cell *k, const rd_cell_def *d, const rd_cell_shape *s, rd_backend *be,
                     const rd_params *ps, rd_arena *scratch, rd_var *const *w, int n_w,
                     rd_status *st);

/* step with the projection h = m W_p; m and h may be the same array when the cell does not project. */
rd_code rd_cell_step(rd_cell *k, int64_t n, const float *h_prev, const float *c_prev,
                     const rd_cell_rows *r, rd_status *st);
/* step_back from dh [n, R] (the projection's share included). dh_prev (+)=; with add no row behind the n ones changes,
 * so that it may lie among the gradients of other steps. */
rd_code rd_cell_step_back(rd_cell *k, int64_t n, const float *dh, float *dc, const float *h_prev,
                          const float *c_prev, const rd_cell_rows *r, float *dz, float *dh_prev,
                          bool add, rd_status *st);
/* The projection's gradient, all rows at once: dh_total [N, R], m [N, H]. */
rd_code rd_cell_projection_back(rd_cell *k, int64_t N, const float *m, const float *dh_total,
                                rd_status *st);

/* The rows of r from `row` on: what a time step gets that begins there. */
static inline rd_cell_rows rd_cell_rows_at(const rd_cell *k, const rd_cell_rows *r, int64_t row)
{
    return (rd_cell_rows){r->z + row * k->Z, r->c ? r->c + row * k->s.H : NULL,
                          r->tc + row * k->s.H, r->m ? r->m + row * k->s.H : NULL,
                          r->h + row * k->s.R};
}

/* ---- small helpers of the cells and ops ---- */
/* A row array [rows, cols] with its slack, contents undefined; rd_rows_zero: zeros, the slack too. */
rd_code rd_rows_get(rd_arena *a, int64_t rows, int64_t cols, float **out, rd_status *st);
rd_code rd_rows_zero(rd_arena *a, int64_t rows, int64_t cols, float **out, rd_status *st);
/* RD_EBUG when x is a parameter, which has no slack rows, or not of `cols` columns; op for the message. */
rd_code rd_rows_check(const char *op, const rd_var *x, int64_t cols, rd_status *st);
/* Products with rows [row0, row0 + rows) of a parameter's leaf w: y = x W (+ y) for n rows, and x = y W^T (+ x). On a
 * CPU rd_packed_mul with the parameter's packed copy. */
rd_code rd_param_mul(rd_backend *be, const rd_params *ps, const rd_var *w, int64_t row0,
                     int64_t rows, int64_t n, const float *x, float *y, bool add, rd_status *st);
rd_code rd_param_mul_t(rd_backend *be, const rd_params *ps, const rd_var *w, int64_t row0,
                       int64_t rows, int64_t n, const float *y, float *x, bool add, rd_status *st);
/* Gradient of rows [row0, row0 + rows) of w: += x^T dy over N rows; nothing where w wants none. */
rd_code rd_param_grad(rd_backend *be, const rd_var *w, int64_t row0, int64_t rows, int64_t N,
                      const float *x, const float *dy, rd_status *st);
/* The same of a cell. */
rd_code rd_mul_rows(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t n, const float *x,
                    float *y, bool add, rd_status *st);
rd_code rd_mul_rows_t(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t n, const float *y,
                      float *x, bool add, rd_status *st);
rd_code rd_mul_grad(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t N, const float *x,
                    const float *dy, rd_status *st);
/* The same where rows of x lie ldx and those of y ldy elements apart: on a CPU what has gaps goes through a copy
 * without. */
rd_code rd_mul_strided(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t n, const float *x,
                       int64_t ldx, float *y, int64_t ldy, bool add, rd_status *st);
rd_code rd_mul_strided_t(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t n,
                         const float *y, int64_t ldy, float *x, int64_t ldx, bool add,
                         rd_status *st);
rd_code rd_mul_strided_grad(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t N,
                            const float *x, int64_t ldx, const float *dy, int64_t ldy,
                            rd_status *st);
/* x [n, cols] as an operand of several of these: on a CPU without gaps, in scratch memory where it has some. */
rd_code rd_mul_operand(rd_cell *k, int64_t n, int64_t cols, const float *x, int64_t ld,
                       const float **out, int64_t *ld_out, rd_status *st);
/* The product that a step adds to columns of z [n, ldz]. On a GPU it is added at once, and *y is NULL; on a CPU it is
 * left for the elementwise pass to add: *y [n, columns of w] in scratch memory. */
rd_code rd_mul_for_step(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t n,
                        const float *x, float *z, int64_t ldz, float **y, rd_status *st);

/* The LSTM's elementwise part, shared by lstm, slstm and glstm. z [n, 4H] pre-activations i, j, f, o take up hz [n, 4H]
 * (NULL: nothing) and bias and become activated gates: c = c_prev s(f + 1) + s(i) tanh(j),  tc = tanh(c),  m = s(o) tc
 * c_prev NULL: zeros; m: r->m, or r->h without one. On a GPU a row of z is `groups` groups one behind the other, each
 * with its H / groups units of i, then of j, f and o. */
rd_code rd_lstm_gates(rd_backend *be, int64_t n, int64_t H, int64_t groups, const float *hz,
                      const float *const bias[4], const float *c_prev, const rd_cell_rows *r,
                      rd_status *st);
/* With gates after activation and dtc = dm o (1 - tc^2) + dc:
 *   di = dtc j i(1-i),  dj = dtc i (1-j^2),  df = dtc c_prev f(1-f),  do = dm tc o(1-o);  dc becomes dtc f. */
rd_code rd_lstm_gates_back(rd_backend *be, int64_t n, int64_t H, int64_t groups, const float *dm,
                           float *dc, const float *c_prev, const rd_cell_rows *r, float *dz,
                           rd_status *st);

/* ---- packed sequences ---- */
/* A packing where kernels can read it: the arrays of p themselves on a CPU. */
typedef struct rd_packing_lent {
    const rd_packing *p;
    const int64_t *off, *sample;
} rd_packing_lent;
/* a: device_scratch or device_kept. p is borrowed. */
rd_code rd_packing_lend(rd_call *c, const rd_packing *p, rd_arena *a, rd_packing_lent *out,
                        rd_status *st);
/* y = (residual +) x * mask / keep for the rows of steps t0 .. t1 - 1 (mask [N, width] bytes out). width of x; pointers
 * to the first of these rows; residual NULL: none; x, residual and y NULL: the mask alone. */
rd_code rd_dropout_rows(rd_backend *be, const rd_dropout *d, const rd_packing_lent *p, int64_t t0,
                        int64_t t1, int64_t width, const float *x, const float *residual, float *y,
                        uint8_t *mask, rd_status *st);
/* dx (+)= dy * mask / keep; dx may be dy. */
rd_code rd_dropout_back(rd_backend *be, float keep, int64_t n, const float *dy, const uint8_t *mask,
                        float *dx, bool add, rd_status *st);
/* out[row] = h of the same sequence one step earlier; zeros in step 0. Rows of `width`. */
rd_code rd_shift_rows(rd_backend *be, const rd_packing_lent *p, int64_t width, const float *h,
                      float *out, rd_status *st);

RD_C_END
#endif
