/* gpu_remedy.h -- what helps against a failure of CUDA, cuBLAS, cuDNN or NCCL, by the name that the library gives it. Texts only: no
 * header of theirs is needed, and the file is in every build. */
#ifndef RD_GPU_REMEDY_H
#define RD_GPU_REMEDY_H

#include "rd/status.h"

RD_C_BEGIN

enum { RD_GPU_WHY_BYTES = 256 };

/* "cudaErrorECCUncorrectable", "CUBLAS_STATUS_ALLOC_FAILED": half a sentence to stand behind "; ". NULL: the library's own words say
 * all that is known. */
const char *rd_gpu_remedy(const char *name);

/* Why no GPU can be used, from the result of cudaGetDeviceCount by name ("cudaSuccess": there were none), its words, the versions of CUDA
 * that driver (0: none) and runtime are for (13020 is 13.2), and CUDA_VISIBLE_DEVICES (NULL: not set). */
void rd_gpu_no_gpu(const char *name, const char *words, int driver, int runtime,
                   const char *visible, char why[RD_GPU_WHY_BYTES]);

/* A kernel is not in the program for this card. card: NULL where it is not known. */
void rd_gpu_not_built_for(const char *built_for, const char *card, int major, int minor,
                          char out[RD_GPU_WHY_BYTES]);

RD_C_END
#endif
