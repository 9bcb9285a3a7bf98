/* gpu_parts.h -- copies of parts of an array between the ranks of a group (rd/gpu.h). */
#ifndef RD_GPU_PARTS_H
#define RD_GPU_PARTS_H

#include "rd/gpu.h"

RD_C_BEGIN

/* Elements [from, from + n) of an array, which one rank has. */
typedef struct rd_gpu_part {
    int64_t from, n;
    int rank;
} rd_gpu_part;

/* Queues the copy of each part of x from its rank to all other ranks. It takes its turn among the
 * sums of the group, on their stream, and counts as a sum for rd_gpu_group_join, _wait and _times.
 * All ranks give the same parts. Collective. */
rd_code rd_gpu_group_spread(rd_gpu_group *q, float *x, const rd_gpu_part *part, int n_parts,
                            rd_status *st);

RD_C_END
#endif
