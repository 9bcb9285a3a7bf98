/* cell.h -- recurrent cells. Each cell is one file in runner/ops/cells; make writes the registry.
 * The ops rnn_layer and attention_decoder use the cells, and so does decoding.
 *
 * A cell works on packed rows: N rows of all time steps. A time step is n consecutive rows. All row
 * arrays are contiguous and have RD_SLACK_ROWS rows of slack (see rd_backend_rounds_rows). The
 * symbols are those of the formulas:
 *   x [N, in]     input, after its dropout
 *   a [N, extra]  context that gnmt attention joins to the recurrent side
 *   h [N, R]      recurrent output
 *   c [N, H]      state
 *   z [N, Z]      pre-activations
 *
 * There is one source for all backends. On a GPU all float arrays are stored in GPU memory, and
 * each function queues its work. A step costs one product and one elementwise kernel, forward and
 * back. Only the products can fail. */
#ifndef RD_CELL_H
#define RD_CELL_H

#include "rd/ops.h"
#include "rd/vec.h"
#include <string.h>

RD_C_BEGIN

enum { RD_CELL_MAX_PARAMS = 72, RD_CELL_MAX_GROUPS = 64 };

typedef struct rd_cell rd_cell;

/* What a step keeps for backward. Each pointer points to the first row of the step. */
typedef struct rd_cell_rows {
    /* [n, Z] before the step: the input's share of the pre-activations; after the step: the
     * activated gates. The cell and the device choose the order of the columns. */
    float *z;
    float *c;  /* [n, H] new state; NULL: the cell has none */
    float *tc; /* [n, H] tanh(c) or r * h, as the cell chooses */
    float *m;  /* [n, H] output before the projection; NULL: no projection */
    float *h;  /* [n, R] output */
} rd_cell_rows;

/* Receives one parameter from rd_cell_def.declare. */
typedef rd_code rd_cell_emit(void *ctx, const char *name, int n_dim, const int64_t *dim,
                             rd_init init, rd_status *st);

struct rd_cell_def {
    const char *name;
    bool has_c; /* the cell has the state of an LSTM, which gnmt attention requires */
    bool can_project;
    int n_gates; /* Z = n_gates H */
    /* Checks the widths, and calls emit for each parameter in the order of w[]. RD_EUSAGE if the
     * sizes do not fit. */
    rd_code (*declare)(const rd_cell_shape *s, rd_cell_emit *emit, void *ctx, rd_status *st);
    /* Computes z = x W_x (+ a W_a) for n rows, for any n. */
    rd_code (*input)(rd_cell *k, int64_t n, const float *x, const float *a, float *z,
                     rd_status *st);
    /* Computes one time step of n rows. h_prev or c_prev NULL: zeros. */
    rd_code (*step)(rd_cell *k, int64_t n, const float *h_prev, const float *c_prev,
                    const rd_cell_rows *r, rd_status *st);
    /* Goes back through one step.
     *   dm      [n, H] gradient of the output before the projection
     *   dc      [n, H] in: gradient of c from the later step; out: gradient of c_prev
     *   dz      [n, Z] out
     *   dh_prev [n, R] out; NULL if h_prev is NULL. With add (GPU only) it is added to. */
    rd_code (*step_back)(rd_cell *k, int64_t n, const float *dm, float *dc, const float *h_prev,
                         const float *c_prev, const rd_cell_rows *r, float *dz, float *dh_prev,
                         bool add, rd_status *st);
    /* Computes dx (+)= dz W_x^T and da += dz W_a^T for n rows. dx and da may be NULL. */
    rd_code (*input_back)(rd_cell *k, int64_t n, const float *dz, float *dx, bool add_dx, float *da,
                          rd_status *st);
    /* Adds the parameter gradients of all N rows at once. h_prev [N, R] has zero rows where a
     * sequence begins. tc is that of rd_cell_rows. */
    rd_code (*weights_back)(rd_cell *k, int64_t N, const float *x, const float *a,
                            const float *h_prev, const float *tc, const float *dz, rd_status *st);
};

/* Begins the definition of a recurrent cell in a file of runner/ops/cells: RD_CELL(id) = {...};
 * make finds it and writes the registry. */
#define RD_CELL(id) const rd_cell_def rd_cell_##id

/* A cell in use: its definition, sizes and parameters. */
struct rd_cell {
    const rd_cell_def *def;
    rd_cell_shape s;
    int64_t Z;
    rd_backend *be;
    const rd_params *ps;
    rd_arena *scratch; /* memory that the products compute in */
    /* Parameters in the order of declare. The projection, if there is one, is the last. */
    rd_var *w[RD_CELL_MAX_PARAMS];
    int n_w;
};

/* Returns the cell with this name. NULL: there is none. */
const rd_cell_def *rd_cell_find(const char *name);
/* Returns all cells, and their number in *n. */
const rd_cell_def *const *rd_cell_defs(int *n);
/* Fills *k. The cell borrows all arguments. scratch: device_scratch of a call. */
rd_code rd_cell_init(rd_cell *k, const rd_cell_def *d, const rd_cell_shape *s, rd_backend *be,
                     const rd_params *ps, rd_arena *scratch, rd_var *const *w, int n_w,
                     rd_status *st);

/* Computes a step and the projection h = m W_p. m and h may be the same array if the cell does not
 * project. */
rd_code rd_cell_step(rd_cell *k, int64_t n, const float *h_prev, const float *c_prev,
                     const rd_cell_rows *r, rd_status *st);
/* Goes back through a step from dh [n, R], the gradient of the output after the projection. With
 * add, the gradient is added to dh_prev, and no row after the first n changes. dh_prev may
 * therefore be part of an array of the gradients of several steps. */
rd_code rd_cell_step_back(rd_cell *k, int64_t n, const float *dh, float *dc, const float *h_prev,
                          const float *c_prev, const rd_cell_rows *r, float *dz, float *dh_prev,
                          bool add, rd_status *st);
/* Adds the projection's gradient of all rows at once. dh_total [N, R], m [N, H]. */
rd_code rd_cell_projection_back(rd_cell *k, int64_t N, const float *m, const float *dh_total,
                                rd_status *st);

/* Returns the rows of r from index `row` on: the argument of the time step that begins there. */
static inline rd_cell_rows rd_cell_rows_at(const rd_cell *k, const rd_cell_rows *r, int64_t row)
{
    return (rd_cell_rows){r->z + row * k->Z, r->c ? r->c + row * k->s.H : NULL,
                          r->tc + row * k->s.H, r->m ? r->m + row * k->s.H : NULL,
                          r->h + row * k->s.R};
}

/* ---- small helpers of the cells and ops ---- */
/* Allocates a row array [rows, cols] with its slack. rd_rows_get: undefined contents. rd_rows_zero:
 * zeros, the slack included. */
rd_code rd_rows_get(rd_arena *a, int64_t rows, int64_t cols, float **out, rd_status *st);
rd_code rd_rows_zero(rd_arena *a, int64_t rows, int64_t cols, float **out, rd_status *st);
/* Checks that x has `cols` columns and is no parameter, because a parameter has no slack rows.
 * RD_EBUG otherwise. op: name for the message. */
rd_code rd_rows_check(const char *op, const rd_var *x, int64_t cols, rd_status *st);
/* Multiplies with the rows [row0, row0 + rows) of parameter w, for n rows of x and y.
 *   rd_param_mul:    y = x W    (+ y if add)
 *   rd_param_mul_t:  x = y W^T  (+ x if add)
 * On a CPU the product reads the packed copy of the parameter. */
rd_code rd_param_mul(rd_backend *be, const rd_params *ps, const rd_var *w, int64_t row0,
                     int64_t rows, int64_t n, const float *x, float *y, bool add, rd_status *st);
rd_code rd_param_mul_t(rd_backend *be, const rd_params *ps, const rd_var *w, int64_t row0,
                       int64_t rows, int64_t n, const float *y, float *x, bool add, rd_status *st);
/* Adds x^T dy over N rows to the gradient of the rows [row0, row0 + rows) of w. Does nothing if w
 * has no gradient. */
rd_code rd_param_grad(rd_backend *be, const rd_var *w, int64_t row0, int64_t rows, int64_t N,
                      const float *x, const float *dy, rd_status *st);
/* The three products above, with the backend and parameters of a cell. */
rd_code rd_mul_rows(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t n, const float *x,
                    float *y, bool add, rd_status *st);
rd_code rd_mul_rows_t(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t n, const float *y,
                      float *x, bool add, rd_status *st);
rd_code rd_mul_grad(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t N, const float *x,
                    const float *dy, rd_status *st);
/* The three products above, for rows of x ldx elements apart and rows of y ldy elements apart. On a
 * CPU an operand with gaps between its rows is first copied without gaps. */
rd_code rd_mul_strided(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t n, const float *x,
                       int64_t ldx, float *y, int64_t ldy, bool add, rd_status *st);
rd_code rd_mul_strided_t(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t n,
                         const float *y, int64_t ldy, float *x, int64_t ldx, bool add,
                         rd_status *st);
rd_code rd_mul_strided_grad(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t N,
                            const float *x, int64_t ldx, const float *dy, int64_t ldy,
                            rd_status *st);
/* Prepares x [n, cols] as an operand of several strided products. On a CPU, rows with gaps are
 * copied to scratch memory. *out and *ld_out are the operand and its leading dimension. */
rd_code rd_mul_operand(rd_cell *k, int64_t n, int64_t cols, const float *x, int64_t ld,
                       const float **out, int64_t *ld_out, rd_status *st);
/* Computes the product that a step adds to columns of z [n, ldz]. A GPU adds it at once, and *y is
 * NULL. On a CPU *y [n, columns of w] is the product, in scratch memory, and the elementwise pass
 * adds it. */
rd_code rd_mul_for_step(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t n,
                        const float *x, float *z, int64_t ldz, float **y, rd_status *st);

/* Computes the elementwise part of an LSTM, shared by lstm, slstm and glstm. hz (NULL: none) and
 * bias are added to z [n, 4H], the pre-activations i, j, f, o. z then holds the activated gates:
 *   c = c_prev s(f + 1) + s(i) tanh(j),  tc = tanh(c),  m = s(o) tc
 * c_prev NULL: zeros. m is stored in r->m or, if that is NULL, in r->h. On a GPU a row of z
 * consists of `groups` groups one after the other. Each group has its H / groups units of i, then
 * of j, f and o. */
rd_code rd_lstm_gates(rd_backend *be, int64_t n, int64_t H, int64_t groups, const float *hz,
                      const float *const bias[4], const float *c_prev, const rd_cell_rows *r,
                      rd_status *st);
/* Goes back through rd_lstm_gates. The gates are those after activation:
 *   dtc = dm o (1 - tc^2) + dc
 *   di = dtc j i (1 - i),  dj = dtc i (1 - j^2),  df = dtc c_prev f (1 - f),  do = dm tc o (1 - o)
 *   dc_prev = dtc f, stored in dc */
rd_code rd_lstm_gates_back(rd_backend *be, int64_t n, int64_t H, int64_t groups, const float *dm,
                           float *dc, const float *c_prev, const rd_cell_rows *r, float *dz,
                           rd_status *st);

/* ---- packed sequences ---- */
/* A packing whose arrays kernels can read. On a CPU these are the arrays of p. */
typedef struct rd_packing_lent {
    const rd_packing *p;
    const int64_t *off, *sample;
} rd_packing_lent;
/* Makes a packing readable for kernels. a: device_scratch or device_kept. p is borrowed. */
rd_code rd_packing_lend(rd_call *c, const rd_packing *p, rd_arena *a, rd_packing_lent *out,
                        rd_status *st);
/* Computes y = (residual +) x * mask / keep for the rows of steps t0 .. t1 - 1. All pointers point
 * to the first of these rows. width: columns of x. mask [N, width] out, one byte per element.
 * residual NULL: none. With x, residual and y NULL the function only writes the mask. */
rd_code rd_dropout_rows(rd_backend *be, const rd_dropout *d, const rd_packing_lent *p, int64_t t0,
                        int64_t t1, int64_t width, const float *x, const float *residual, float *y,
                        uint8_t *mask, rd_status *st);
/* Computes dx (+)= dy * mask / keep. dx may be dy. */
rd_code rd_dropout_back(rd_backend *be, float keep, int64_t n, const float *dy, const uint8_t *mask,
                        float *dx, bool add, rd_status *st);
/* Copies to out[row] the h of the same sequence one step earlier; zeros in step 0. Rows have
 * `width` elements. */
rd_code rd_shift_rows(rd_backend *be, const rd_packing_lent *p, int64_t width, const float *h,
                      float *out, rd_status *st);

RD_C_END
#endif
