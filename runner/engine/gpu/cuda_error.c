/* cuda_error.c -- turns results of the CUDA runtime into a status: the call, the library's text,
 * what to do. */
#include "cuda_impl.h"
#include "cuda_convert.h"
#include "gpu_remedy.h"
#include <stdio.h>

/* Returns whether the device still works after e. */
static bool cuda_error_harmless(cudaError_t e)
{
    return e == cudaErrorMemoryAllocation || e == cudaErrorInvalidDevice || e == cudaErrorNoDevice;
}

rd_code rd_cuda_result(rd_gpu *g, cudaError_t e, const char *call, const char *where, rd_status *st)
{
    if (e == cudaSuccess) return st->code;
    /* else the next kernel would report this error */
    (void)cudaGetLastError();
    char help[RD_GPU_WHY_BYTES] = "";
    const char *what = rd_gpu_remedy(cudaGetErrorName(e));
    if (e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction)
        rd_gpu_not_built_for(rd_convert_built_for(), g ? g->info.name : NULL, g ? g->info.major : 0,
                             g ? g->info.minor : 0, help);
    else if (e == cudaErrorInsufficientDriver || e == cudaErrorNoDevice)
        (void)rd_gpu_count(help);
    else if (what)
        snprintf(help, sizeof help, "%s", what);
    char after[96] = "";
    if (g && g->last_kernel && !strstr(call, g->last_kernel))
        snprintf(after, sizeof after, ", seen after kernel %.64s", g->last_kernel);
    rd_fail_(st, RD_EENV, where, "GPU %d: %.*s: %s (%s%s)%s%s", g ? g->index : 0,
             rd_call_name(call), call, cudaGetErrorString(e), cudaGetErrorName(e), after,
             help[0] ? "; " : "", help);
    if (g && g->failure.code == RD_OK && !cuda_error_harmless(e)) g->failure = *st;
    return st->code;
}
