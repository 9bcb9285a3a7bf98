/* attention_loop.h -- the time loop of a decoder with input feeding, for the op. */
#ifndef RD_ATTENTION_LOOP_H
#define RD_ATTENTION_LOOP_H

#include "rd/attention.h"

RD_C_BEGIN

/* Inputs of the op. The parameters of the cells follow from RD_LOOP_CELLS on. */
enum {
    RD_LOOP_EMB,
    RD_LOOP_MEMORY,
    RD_LOOP_KEYS,
    RD_LOOP_QUERY,
    RD_LOOP_V,
    RD_LOOP_G,
    RD_LOOP_B,
    RD_LOOP_W,
    RD_LOOP_BIAS,
    RD_LOOP_CELLS
};

/* What a layer keeps, all N rows. */
typedef struct rd_attn_loop_rows {
    float *x, *xd; /* input before and after its dropout; the same array without dropout */
    uint8_t *mask_in, *mask_out;
    rd_cell_rows r; /* r.h is x of the next layer if nothing comes between */
    /* 16-bit copies, see rounded_rows.h; NULL: none */
    void *xd_copy, *h_copy, *tc_copy, *m_copy;
} rd_attn_loop_rows;

typedef struct rd_attn_loop_saved {
    float *cat; /* [N, E + M] the inputs [emb_t; ctx_{t-1}]; x of the first layer without W_in */
    float *qp;  /* [N, A], see rd_attention_step */
    float *al;  /* attention weights, sequence by sequence, src_len of them for each step */
    /* See rd_attention and rd_attention_back; stored where these read them. */
    const int64_t *first, *len, *place, *slot0;
    int64_t n_weights, max_len;
    rd_attn_loop_rows l[RD_MAX_LAYERS];
    void *out_copy, *cat_copy; /* the result is the operand of the query's product */
    void *fused;               /* what attention_decoder.cu keeps; NULL: rd_attn_loop_forward ran */
} rd_attn_loop_saved;

/* The state that both directions set up alike. */
typedef struct rd_attn_loop {
    const rd_attn_decoder *d;
    rd_cell cell[RD_MAX_LAYERS];
    rd_attention at;
    int64_t N, n0, E, M, R, A;
} rd_attn_loop;

/* Computes for each sequence its memory rows and the positions of its weights and steps, and lends
 * them to kernels. */
rd_code rd_attn_loop_lend(rd_call *c, rd_attn_loop_saved *v, rd_status *st);
/* Fills *x. */
rd_code rd_attn_loop_setup(rd_call *c, rd_attn_loop *x, const rd_attn_loop_saved *v, rd_status *st);
/* The loop for all cells, on all backends. */
rd_code rd_attn_loop_forward(rd_call *c, rd_status *st);
rd_code rd_attn_loop_backward(rd_call *c, rd_status *st);

RD_C_END
#endif
