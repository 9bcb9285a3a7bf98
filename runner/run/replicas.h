/* replicas.h -- comparison of the ranks' copies of the weights. */
#ifndef RD_RUN_REPLICAS_H
#define RD_RUN_REPLICAS_H

#include "run.h"

/* Collective. Compares weights and gradient norm of all ranks. RD_ENUMERIC names the rank or host,
 * and the array. */
rd_code run_check_replicas(rd_run *r, rd_status *st);

/* Collective. Copies values and optimizer slots of rank 0 to all copies.
 *
 * If hosts keep parts of the slots (key shard), rank 0 has no whole slots. `slots` then fills
 * x[0, n) with elements [lo, lo + n) of slot k, on rank 0; its gaps are zero. NULL on rank 0: the
 * slots begin anew. */
typedef void run_slot_source(void *ctx, int k, int64_t lo, int64_t n, float *x);
rd_code run_spread_weights(rd_run *r, run_slot_source *slots, void *ctx, rd_status *st);

#endif
