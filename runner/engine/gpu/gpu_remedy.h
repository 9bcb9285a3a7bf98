/* gpu_remedy.h -- what helps against a failure of CUDA, cuBLAS, cuDNN or NCCL.
 *
 * The key is the name that the library gives the failure. The file has only texts: it needs no
 * header of the libraries, and it is in every build. */
#ifndef RD_GPU_REMEDY_H
#define RD_GPU_REMEDY_H

#include "rd/status.h"

RD_C_BEGIN

enum { RD_GPU_WHY_BYTES = 256 };

/* Returns half a sentence to stand behind "; ". name: "cudaErrorECCUncorrectable",
 * "CUBLAS_STATUS_ALLOC_FAILED". NULL: the library's own text is all that is known. */
const char *rd_gpu_remedy(const char *name);

/* Explains why no GPU can be used. name and words: the result of cudaGetDeviceCount ("cudaSuccess":
 * there are no GPUs) and its text. driver and runtime: the versions of CUDA that they are for
 * (13020 is 13.2; driver 0: none). The last input is CUDA_VISIBLE_DEVICES (NULL: not set). */
void rd_gpu_no_gpu(const char *name, const char *words, int driver, int runtime,
                   const char *visible, char why[RD_GPU_WHY_BYTES]);

/* Explains that the program contains no kernels for this GPU. gpu: its name, NULL if unknown. */
void rd_gpu_not_built_for(const char *built_for, const char *gpu, int major, int minor,
                          char out[RD_GPU_WHY_BYTES]);

RD_C_END
#endif
