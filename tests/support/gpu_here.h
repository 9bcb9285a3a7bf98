/* gpu_here.h -- for tests of a GPU: whether there is one, and its end. */
#ifndef RD_GPU_HERE_H
#define RD_GPU_HERE_H

#include "rd/gpu.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* False: none, which stdout says with the count of one skipped test; *status is then what main returns, a failure where
 * RD_REQUIRE_GPU=1 asks for one. `passed` tests did without. */
static inline bool gpu_here(int passed, int *status)
{
    char why[256];
    const char *required = getenv("RD_REQUIRE_GPU");
    const bool must = required && strcmp(required, "1") == 0;
    *status = 0;
    if (rd_gpu_count(why) > 0) return true;
    *status = must;
    printf("%s: no GPU: %s\n%d passed, %d failed, %d skipped\n", must ? "failed" : "skip", why,
           passed, must, !must);
    return false;
}

/* *g is NULL then, as it may be before. Returns the bytes of its memory that nobody had given back. */
static inline uint64_t gpu_close(rd_gpu **g)
{
    const uint64_t left = *g ? rd_gpu_in_use(*g) : 0;
    rd_gpu_free(*g);
    *g = NULL;
    return left;
}

#endif
