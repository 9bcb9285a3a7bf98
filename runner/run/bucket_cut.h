/* bucket_cut.h -- cuts the gradient arena into buckets. Each bucket is summed over ranks by itself.
 * Pure functions. */
#ifndef RD_BUCKET_CUT_H
#define RD_BUCKET_CUT_H

#include "rd/comm.h"

/* A parameter's place in the arena: from its offset to the next one's offset, for the last one to
 * the end. */
typedef struct bucket_param {
    int64_t offset; /* elements */
    bool table;     /* summed by rows, so in no bucket */
    bool state;     /* running statistics */
} bucket_param;

/* A bucket ends with the parameter that makes it reach its size. */
typedef struct bucket_sizes {
    int64_t span; /* elements of the arena */
    double first; /* bytes of the first bucket */
    double bytes; /* bytes of the other buckets */
} bucket_sizes;

/* Cuts p[n], in the order of the arena, and returns the number of buckets.
 *
 * bucket[n]:    .from and .n of each bucket size[n]:      number of parameters of each bucket;
 * zeros before the call bucket_of[n]: bucket of each parameter; -1: none
 *
 * A bucket consists of whole parameters that are neighbours. Running statistics have their own
 * buckets, since no record of the tape says when they are ready. */
int bucket_cut(const bucket_param *p, int n, const bucket_sizes *s, rd_flow_part *bucket, int *size,
               int *bucket_of);

#endif
