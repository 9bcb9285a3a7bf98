/* cuda_built.cu -- the GPUs that the kernels were compiled for. */
#include "cuda_convert.h"
#include <stdio.h>

#ifdef __CUDA_ARCH_LIST__
/* nvcc's list is "800,900". The Makefile adds PTX of the last one, which newer GPUs can use. */
extern "C" const char *rd_convert_built_for(void)
{
    static char text[128];
    const int arch[] = {__CUDA_ARCH_LIST__};
    size_t at = 0;
    for (int a : arch)
        if (at < sizeof text)
            at += (size_t)snprintf(text + at, sizeof text - at, "%ssm_%d", at ? ", " : "", a / 10);
    if (at < sizeof text) snprintf(text + at, sizeof text - at, " and newer");
    return text;
}
#endif
