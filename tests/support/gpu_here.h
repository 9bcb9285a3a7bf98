/* gpu_here.h -- for main of tests of a GPU: whether there is one. */
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
    printf("%s: no GPU: %s\n%d passed, %d failed, %d skipped\n", must ? "failed" : "skip", why, passed, must, !must);
    return false;
}

#endif
