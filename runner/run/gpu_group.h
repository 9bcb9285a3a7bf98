/* gpu_group.h -- the NCCL group of a run. */
#ifndef RD_RUN_GPU_GROUP_H
#define RD_RUN_GPU_GROUP_H

#include "run.h"

/* Collective. Opens a NCCL group of all ranks. *out NULL: the hosts sum; why holds the reason, or
 * "" where it needs no mention. The caller owns *out. */
rd_code gpu_group_open(rd_run *r, rd_gpu_group **out, char why[200], rd_status *st);

#endif
