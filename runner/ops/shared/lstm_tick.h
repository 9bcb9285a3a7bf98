/* lstm_tick.h -- the work of a GPU between two products of LSTM layers, in one kernel.
 *
 * Layers lie one above the other. At tick k, layer l computes its time step t = k - l. So the
 * products of all layers at a tick do not depend on each other: they are one batched product
 *   p = [x; h; a] W
 * of operands that the kernels write. A row of an operand has the layer's input after its dropout,
 * the layer's output of the step before, and the joined context. W are the rows of the cell's
 * kernel, in this order.
 *
 * Arrays of several layers have a slot for each layer, the highest layer first, because the
 * parameter arena stores the highest layer first. A distance of 0 means that one layer uses the
 * array. */
#ifndef RD_LSTM_TICK_H
#define RD_LSTM_TICK_H

#include "rd/gpu.h"

RD_C_BEGIN

/* The operands of layers, of rd_lstm_tick.type. */
typedef struct rd_tick_operand {
    void *now; /* [rows of a step, ld] operand of the next product; NULL: the product reads all */
    void *all; /* [N, ld] operands of all steps; NULL: backward does not follow */
    int64_t slot_now, slot_all; /* distance of slots, in elements */
    int64_t ld;
    int64_t h_at; /* first column of h; columns of x come first */
} rd_tick_operand;

/* The arrays of a tick. Steps are those of the packing: step t has the rows off[t] .. off[t + 1].
 * */
typedef struct rd_lstm_tick {
    rd_element type;       /* of operands and dz */
    int64_t n_layers;      /* number of layers of the arrays */
    int64_t first, n;      /* layers of this launch; layer -1 passes the op's input to layer 0 */
    int64_t rows;          /* largest number of rows of a layer in this launch */
    int64_t tick, n_steps; /* layer l computes step tick - l */
    int64_t H;
    const int64_t *off; /* where kernels read it */
    uint32_t residual;  /* bit l: layer l adds its input to its output */
    float keep_in, keep_out;
    const uint8_t *mask_in, *mask_out; /* [N, H] of each layer; NULL: no dropout */
    int64_t slot_mask;
    /* Gates after activation [N, 4H], c [N, H] and tanh(c) [N, H]. z NULL: backward does not
     * follow; then c has the rows of one step, and there is no tc. */
    float *z, *c, *tc;
    int64_t slot_z, slot_c;

    /* ---- forward ---- */
    const float *product; /* [rows of a step, 4H] p of each layer */
    int64_t slot_product;
    const float *bias;
    int64_t slot_bias;
    const float *x;   /* [N, H] input of layer 0, before its dropout */
    const float *att; /* [N, extra] joined context; NULL: none */
    int64_t extra;
    rd_tick_operand own, above; /* of a layer, of the layer above it (the slot before) */
    /* Outputs of layers below a residual sum: [N, H] of layer 0 if y_packed, else [rows of a step,
     * H] for even and odd ticks, slot_y and odd_y apart. */
    float *y;
    int64_t slot_y, odd_y;
    bool y_packed;
    float *out;       /* [N, H] output of the highest layer */
    void *out_narrow; /* [N, ld_narrow] the same in `type`; NULL: not needed */
    int64_t ld_narrow;

    /* ---- back ---- */
    const float *dout; /* [N, H] gradient of out */
    /* dz W^T of a layer at the tick before: columns of x, then of h. */
    const float *back, *back_above;
    int64_t slot_back, ld_back, ld_back_above;
    float *dc; /* [rows of a step, H] */
    int64_t slot_dc;
    float *dy; /* gradients of the outputs of layers with a residual sum, as y without y_packed */
    void *dz;  /* [N, 4H] all steps; may be z */
    void *dz_now; /* [rows of a step, 4H] operand of the next product; NULL: it reads dz */
    int64_t slot_dz, slot_dz_now, ld_dz;
    float *dx; /* [N, H] gradient of x, added to; NULL: not wanted */
} rd_lstm_tick;

/* Computes a step of layers [first, first + n) from their products, and writes the operands that
 * the results are part of. */
rd_code rd_lstm_tick_forward(rd_gpu *g, const rd_lstm_tick *t, rd_status *st);
/* Computes dz of these layers. */
rd_code rd_lstm_tick_back(rd_gpu *g, const rd_lstm_tick *t, rd_status *st);
/* Adds the sums of the columns of dz [N, width] to the gradient of the bias of each layer, with the
 * distances slot_dz and slot_bias. dbias NULL: does nothing. */
rd_code rd_lstm_tick_bias(rd_gpu *g, rd_element type, int64_t n_layers, int64_t N, int64_t width,
                          const void *dz, int64_t ld, int64_t slot_dz, float *dbias,
                          int64_t slot_bias, rd_status *st);

RD_C_END
#endif
