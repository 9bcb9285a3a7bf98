/* replicas.h -- comparison of the ranks' copies of the weights. */
#ifndef RD_RUN_REPLICAS_H
#define RD_RUN_REPLICAS_H

#include "run.h"

/* Collective. Compares weights and gradient norm of all ranks. RD_ENUMERIC names the rank or host,
 * and the array. */
rd_code run_check_replicas(rd_run *r, rd_status *st);

/* Collective. Copies values and optimizer slots of rank 0 to all copies. */
rd_code run_spread_weights(rd_run *r, rd_status *st);

#endif
