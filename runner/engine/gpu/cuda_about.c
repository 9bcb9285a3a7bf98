/* cuda_about.c -- the number of GPUs, and the texts that describe a gpu. */
#include "cuda_impl.h"
#include "gpu_remedy.h"
#include "rd/environment.h"
#include <stdlib.h>

int rd_gpu_count(char why[256])
{
    int n = 0, driver = 0, runtime = 0;
    why[0] = '\0';
    (void)rd_environment_default(RD_VAR_DEVICE_ORDER); /* before the runtime's first call */
    const cudaError_t e = cudaGetDeviceCount(&n);
    if (e == cudaSuccess && n > 0) return n;
    (void)cudaGetLastError();
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    rd_gpu_no_gpu(cudaGetErrorName(e), cudaGetErrorString(e), driver, runtime,
                  getenv("CUDA_VISIBLE_DEVICES"), why);
    return 0;
}

const rd_gpu_info *rd_gpu_about(const rd_gpu *g)
{
    return &g->info;
}

const char *rd_gpu_describe(const rd_gpu *g)
{
    return g->text;
}

rd_element rd_gpu_narrow(const rd_gpu *g)
{
    return !g->options.mixed ? RD_FLOAT32 : rd_gpu_is_bfloat16(g) ? RD_BFLOAT16 : RD_FLOAT16;
}

bool rd_gpu_uses_float16(const rd_gpu *g)
{
    return g->options.mixed && !rd_gpu_is_bfloat16(g);
}
