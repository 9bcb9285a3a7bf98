/* gpu_here.h -- finds a GPU for tests, and closes it. */
#ifndef RD_GPU_HERE_H
#define RD_GPU_HERE_H

#include "rd/gpu.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns whether there is a GPU. If not, prints why and the counts of tests: one is skipped, or
 * failed if RD_REQUIRE_GPU=1. main then returns *status. passed: number of tests that passed
 * without a GPU. */
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

/* Returns whether the GPU is one of the builds without a GPU: CUDA=emulated or CUDA=fake. */
static inline bool gpu_is_emulated(void)
{
    rd_status st = {.code = RD_OK};
    rd_gpu_info info;
    return rd_gpu_query(0, &info, &st) == RD_OK && strcmp(info.name, "emulated GPU") == 0;
}

/* Returns whether the driver is that of CUDA=emulated, which works at once. */
static inline bool gpu_is_at_once(void)
{
    return strcmp(rd_gpu_libraries(), "emulated") == 0;
}

/* Frees the GPU and sets *g to NULL; it may be NULL before. Returns the bytes of memory that its
 * users did not free. */
static inline uint64_t gpu_close(rd_gpu **g)
{
    const uint64_t left = *g ? rd_gpu_in_use(*g) - rd_gpu_kept(*g) : 0;
    rd_gpu_free(*g);
    *g = NULL;
    return left;
}

#endif
