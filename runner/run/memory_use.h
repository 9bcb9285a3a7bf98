/* memory_use.h -- what the memory of a rank consists of. */
#ifndef RD_RUN_MEMORY_USE_H
#define RD_RUN_MEMORY_USE_H

#include "run.h"

/* Bytes, the largest of a rank. */
typedef struct memory_use {
    double weights, gradients;
    double optimizer;   /* of one rank, where the ranks of a host share it */
    double activations; /* peak of a step, in memory that serves nothing else */
    double borrowed;    /* peak of a step, in the memory of gradients; a GPU has none */
    double process;     /* peak of the process so far */
    double gpu;         /* peak of the GPU's memory so far */
} memory_use;

/* Collective. */
rd_code memory_use_of(rd_run *r, memory_use *out, rd_status *st);
/* Returns what the process has besides: libraries, data, temporaries of ops. */
double memory_use_rest(const memory_use *m);

#endif
