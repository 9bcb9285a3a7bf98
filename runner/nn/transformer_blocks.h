/* transformer_blocks.h -- the pieces of a layer, for training (transformer_layers.c) and for search
 * (transformer_search.c), which differ in the keys that attention sees. */
#ifndef RD_TRANSFORMER_BLOCKS_H
#define RD_TRANSFORMER_BLOCKS_H

#include "rd/transformer_layers.h"

RD_C_BEGIN

/* Records a norm. */
rd_var *rd_tf_norm_apply(rd_tape *t, const rd_tf_config *c, const rd_tf_norm *n, rd_var *x);
/* Returns attention with the sizes of the model, without sequences. k_at: first column of keys;
 * values follow. */
rd_attend rd_tf_heads(const rd_tf_config *c, int64_t k_at);
/* Records the first part of an attention block: queries (N, d) of a memory, or queries, keys and
 * values (N, 3 d). */
rd_var *rd_tf_queries(rd_tape *t, const rd_tf_config *c, const rd_tf_attention *b, rd_var *x);
/* Does the same for self-attention, with the adapters, norms of heads and rotary positions of the
 * model. */
rd_var *rd_tf_self_queries(rd_tape *t, const rd_tf_config *c, const rd_tf_attention *b,
                           const rd_tf_rows *rows, uint64_t epoch, rd_var *x);
/* Records keys and values (M, 2 d) of a memory. */
rd_var *rd_tf_memory_keys(rd_tape *t, const rd_tf_attention *b, rd_var *memory);
/* Records the last part of an attention block. x: its input; y: what rd_op_attend returned. */
rd_var *rd_tf_attended(rd_tape *t, const rd_tf_config *c, const rd_tf_attention *b,
                       const rd_tf_rows *rows, uint64_t epoch, rd_var *x, rd_var *y);
/* Records the first part of a recurrent block: the states (N, d). before (n, d): those before each
 * sentence; NULL: zeros. */
rd_var *rd_tf_ssru_states(rd_tape *t, const rd_tf_config *c, const rd_tf_ssru *b,
                          const rd_tf_rows *rows, rd_var *x, rd_var *before);
/* Records the last part. x: the input of the block; states: what rd_tf_ssru_states returned, whose
 * memory the call may overwrite outside of training. */
rd_var *rd_tf_ssru_out(rd_tape *t, const rd_tf_config *c, const rd_tf_ssru *b,
                       const rd_tf_rows *rows, uint64_t epoch, rd_var *x, rd_var *states);
/* Records a feed-forward block. */
rd_var *rd_tf_ff_apply(rd_tape *t, const rd_tf_config *c, const rd_tf_ff *b, const rd_tf_rows *rows,
                       uint64_t epoch, rd_var *x);

RD_C_END
#endif
