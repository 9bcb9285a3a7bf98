/* nccl.h -- for CUDA=fake: the part of NCCL's interface that the driver uses; see
 * cuda_runtime_api.h. */
#ifndef RD_FAKE_NCCL_H
#define RD_FAKE_NCCL_H

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7
} ncclResult_t;
typedef enum { ncclFloat16 = 6, ncclFloat32 = 7, ncclBfloat16 = 9 } ncclDataType_t;
typedef enum { ncclSum = 0 } ncclRedOp_t;
typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef struct {
    size_t size;
    int blocking, maxCTAs;
} ncclConfig_t;
/* INT_MIN: not set */
#define NCCL_CONFIG_INITIALIZER                    \
    {                                              \
        sizeof(ncclConfig_t), INT32_MIN, INT32_MIN \
    }

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
const char *ncclGetErrorString(ncclResult_t r);
const char *ncclGetLastError(ncclComm_t c);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *c, int n_ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommFinalize(ncclComm_t c);
ncclResult_t ncclCommDestroy(ncclComm_t c);
ncclResult_t ncclCommAbort(ncclComm_t c);
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t type, int root,
                           ncclComm_t c, cudaStream_t s);
ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t c, cudaStream_t s);

#ifdef __cplusplus
}
#endif
#endif
