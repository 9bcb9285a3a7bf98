/* fake_loader.cc -- finds the fake libraries where the driver opens the real ones: the linker sends
 * dlopen, dlsym, dlerror and dlclose of this program here (-Wl,--wrap).
 *
 * A library is missing if its version in the environment is 0: RD_EMULATED_CUBLAS, _CUDNN, _NCCL.
 * RD_FAKE_LACKS names a function that no library has. */
#include "fake_runtime.h"
#include "../emulated/cudnn.h"
#include "cublasLt.h"
#include "nccl.h"
#include <stdio.h>
#include <string.h>

namespace
{

struct function {
    const char *name;
    void *at;
};
#define F(f)          \
    {                 \
#f, (void *)f \
    }

const function blas[] = {F(cublasLtGetVersion),
                         F(cublasLtGetStatusString),
                         F(cublasLtGetStatusName),
                         F(cublasLtCreate),
                         F(cublasLtDestroy),
                         F(cublasLtMatmul),
                         F(cublasLtMatmulDescCreate),
                         F(cublasLtMatmulDescDestroy),
                         F(cublasLtMatmulDescSetAttribute),
                         F(cublasLtMatrixLayoutCreate),
                         F(cublasLtMatrixLayoutDestroy),
                         F(cublasLtMatrixLayoutSetAttribute),
                         F(cublasLtMatmulPreferenceCreate),
                         F(cublasLtMatmulPreferenceDestroy),
                         F(cublasLtMatmulPreferenceSetAttribute),
                         F(cublasLtMatmulAlgoGetHeuristic),
                         {}};
const function dnn[] = {F(cudnnGetVersion),
                        F(cudnnGetErrorString),
                        F(cudnnGetLastErrorString),
                        F(cudnnCreate),
                        F(cudnnDestroy),
                        F(cudnnSetStream),
                        F(cudnnBackendCreateDescriptor),
                        F(cudnnBackendDestroyDescriptor),
                        F(cudnnBackendFinalize),
                        F(cudnnBackendSetAttribute),
                        F(cudnnBackendGetAttribute),
                        F(cudnnBackendExecute),
                        F(cudnnCreateRNNDescriptor),
                        F(cudnnDestroyRNNDescriptor),
                        F(cudnnSetRNNDescriptor_v8),
                        F(cudnnCreateRNNDataDescriptor),
                        F(cudnnDestroyRNNDataDescriptor),
                        F(cudnnSetRNNDataDescriptor),
                        F(cudnnCreateTensorDescriptor),
                        F(cudnnDestroyTensorDescriptor),
                        F(cudnnSetTensorNdDescriptor),
                        F(cudnnGetTensorNdDescriptor),
                        F(cudnnGetRNNTempSpaceSizes),
                        F(cudnnGetRNNWeightSpaceSize),
                        F(cudnnGetRNNWeightParams),
                        F(cudnnRNNForward),
                        F(cudnnRNNBackwardData_v8),
                        F(cudnnRNNBackwardWeights_v8),
                        {}};
const function nccl[] = {F(ncclGetVersion),         F(ncclGetUniqueId),
                         F(ncclGetErrorString),     F(ncclGetLastError),
                         F(ncclCommInitRankConfig), F(ncclCommFinalize),
                         F(ncclCommDestroy),        F(ncclCommAbort),
                         F(ncclCommGetAsyncError),  F(ncclGroupStart),
                         F(ncclBroadcast),          F(ncclGroupEnd),
                         F(ncclAllReduce),          {}};

/* NVIDIA's driver has this library. */
struct nvml_memory {
    unsigned long long total, free, used;
};
int nvmlInit_v2()
{
    return 0;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    const bool instance = fake::number_of_environment("RD_FAKE_MIG", 0) != 0;
    *device = nullptr;
    return strncmp(uuid, instance ? "MIG-" : "GPU-", 4) == 0 ? 0 : 6; /* not found */
}
int nvmlDeviceGetMemoryInfo(void *, nvml_memory *m)
{
    m->total = m->free = (unsigned long long)fake::number_of_environment("RD_EMULATED_MEMORY",
                                                                         (int64_t)8 << 30);
    m->used = 0;
    return 0;
}
int nvmlShutdown()
{
    return 0;
}
const function nvml[] = {
    F(nvmlInit_v2), F(nvmlDeviceGetHandleByUUID), F(nvmlDeviceGetMemoryInfo), F(nvmlShutdown), {}};

const struct library {
    const char *name, *version; /* the variable with its version */
    const function *functions;
} libraries[] = {{"libcublasLt.so.13", "RD_EMULATED_CUBLAS", blas},
                 {"libcudnn.so.9", "RD_EMULATED_CUDNN", dnn},
                 {"libnccl.so.2", "RD_EMULATED_NCCL", nccl},
                 {"libnvidia-ml.so.1", "RD_FAKE_NVML", nvml}};

char why[128];

} // namespace

extern "C" {

void *__wrap_dlopen(const char *file, int)
{
    for (const library &l : libraries) {
        if (strcmp(file, l.name) != 0) continue;
        if (fake::number_of_environment(l.version, 1) != 0)
            return const_cast<function *>(l.functions);
        snprintf(why, sizeof why, "%s is 0", l.version);
        return nullptr;
    }
    snprintf(why, sizeof why, "%.80s: cannot open shared object file", file);
    return nullptr;
}

void *__wrap_dlsym(void *handle, const char *name)
{
    const char *lacks = getenv("RD_FAKE_LACKS");
    if (lacks && strcmp(lacks, name) == 0) return nullptr;
    for (const function *f = (const function *)handle; f->name; f++)
        if (strcmp(f->name, name) == 0) return f->at;
    return nullptr;
}

char *__wrap_dlerror(void)
{
    return why;
}

int __wrap_dlclose(void *)
{
    return 0;
}

} // extern "C"
