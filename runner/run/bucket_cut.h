/* bucket_cut.h -- how the gradient arena is cut into buckets, each of which is summed over ranks by itself. Pure functions. */
#ifndef RD_BUCKET_PLAN_H
#define RD_BUCKET_PLAN_H

#include "rd/comm.h"

typedef struct
    bucket_param { /* a parameter's place in the arena: from its offset to the next one's, the last one's to the end */
    int64_t offset; /* elements */
    bool table;     /* is summed by rows, and so in no bucket */
    bool state;     /* running statistics */
} bucket_param;

typedef struct bucket_sizes {
    int64_t span; /* elements of the arena */
    double first,
        bytes; /* a bucket ends with the parameter that makes it as large as this: the first one, the others */
} bucket_sizes;

/* p[n]: in the order of the arena. bucket[n] gets from and n of each bucket, size[n] its parameters (zeros before), bucket_of[n] the
 * bucket of each parameter, -1: in none. Returns how many buckets there are.
 *
 * Buckets are whole parameters that are neighbours. Running statistics have buckets of their own: no record of the tape says when they
 * are ready. */
int bucket_plan(const bucket_param *p, int n, const bucket_sizes *s, rd_flow_part *bucket,
                int *size, int *bucket_of);

#endif
