/* gpu_remedy.c -- see gpu_remedy.h. */
#include "gpu_remedy.h"
#include <stdio.h>
#include <string.h>

static const char old_driver[] =
    "the driver is too old for this program's CUDA: update it, or build with an older CUDA Toolkit";
static const char failed[] =
    "a kernel failed, this one or one before it: with RD_CUDA_SYNC=1 in the environment the "
    "message names it; after Xid messages in `dmesg` the GPU may be at fault";
static const char full[] = "the GPU's memory is full: other programs may hold it (`nvidia-smi`), "
                           "or batch_size is too large";
static const char mps[] = "the MPS service of this machine does not answer or has no place: end "
                          "it, or unset CUDA_MPS_PIPE_DIRECTORY";
static const char peers[] =
    "the GPUs cannot reach each other: NCCL_P2P_DISABLE=1 lets them go through the host";
static const char dnn_parts[] = "the files of cuDNN are of different versions: only one version's "
                                "folder may be in LD_LIBRARY_PATH (`tests/gpu/libraries list`)";
static const char dnn_whole[] =
    "a file of cuDNN is missing: install the whole package, not libcudnn.so.9 alone";
static const char dnn_other[] = "this cuDNN is for another CUDA, driver or GPU: install cuDNN 9 "
                                "for the CUDA that `run_dist --version` names";
static const char nccl_debug[] = "NCCL_DEBUG=WARN in the environment makes NCCL print more";

typedef struct remedy {
    const char *name, *text;
} remedy;

static const remedy remedies[] = {
    {"cudaErrorMemoryAllocation", full},
    {"cudaErrorLaunchOutOfResources",
     "a kernel needs more registers or memory than the GPU has: that is a mistake of this program"},
    {"cudaErrorInitializationError",
     "the driver does not start: `nvidia-smi` must work for this user, and /dev/nvidia* be there "
     "(in a container: start it with --gpus all)"},
    {"cudaErrorStubLibrary",
     "libcuda.so.1 is the CUDA Toolkit's stub: take its folder (.../stubs) out of LD_LIBRARY_PATH"},
    {"cudaErrorUnsupportedPtxVersion", old_driver},
    {"cudaErrorCallRequiresNewerDriver", old_driver},
    {"cudaErrorCompatNotSupportedOnDevice",
     "a compatibility package of CUDA (cuda-compat) is in LD_LIBRARY_PATH and does not support "
     "this GPU: take it out, or update the driver"},
    {"cudaErrorSystemDriverMismatch", "the driver's kernel module and its libraries differ in "
                                      "version: load the new module, or start the machine again"},
    {"cudaErrorECCUncorrectable", "the GPU's memory is damaged: look at `nvidia-smi -q -d ECC`, "
                                  "and use another GPU until this one was reset"},
    {"cudaErrorContained", "a fault of the GPU's memory ended this process alone: start it again; "
                           "when it recurs, look at `nvidia-smi -q -d ECC`"},
    {"cudaErrorIllegalAddress", failed},
    {"cudaErrorMisalignedAddress", failed},
    {"cudaErrorInvalidAddressSpace", failed},
    {"cudaErrorInvalidPc", failed},
    {"cudaErrorIllegalInstruction", failed},
    {"cudaErrorHardwareStackError", failed},
    {"cudaErrorLaunchFailure", failed},
    {"cudaErrorAssert", failed},
    {"cudaErrorLaunchTimeout",
     "a display on this GPU limits the time of a kernel: use a GPU without one"},
    {"cudaErrorDevicesUnavailable", "another process has the GPU for itself (compute mode, "
                                    "`nvidia-smi -q -d COMPUTE`), or it is being reset"},
    {"cudaErrorSystemNotReady",
     "GPUs with NVSwitch need the service nvidia-fabricmanager: start it"},
    {"cudaErrorMpsConnectionFailed", mps},
    {"cudaErrorMpsRpcFailure", mps},
    {"cudaErrorMpsServerNotReady", mps},
    {"cudaErrorMpsMaxClientsReached", mps},
    {"cudaErrorMpsMaxConnectionsReached", mps},
    {"cudaErrorMpsClientTerminated", "another client of the MPS service failed, and the service "
                                     "ended all of them: start again, or without the service"},
    {"cudaErrorNvlinkUncorrectable", "an NVLink connection failed: look at `nvidia-smi nvlink -e`"},
    {"cudaErrorPeerAccessUnsupported", peers},
    {"cudaErrorTooManyPeers", peers},
    {"cudaErrorOperatingSystem", "a call to the operating system failed: /dev/shm or the limits of "
                                 "the container may be too small"},
    {"cudaErrorUnknown", "the driver gives no reason: `dmesg` may have an Xid message; loading the "
                         "module nvidia_uvm again, or a restart of the machine, often helps"},

    {"CUBLAS_STATUS_NOT_INITIALIZED",
     "cuBLAS found no memory on the GPU, or a driver older than itself: `nvidia-smi` shows both"},
    {"CUBLAS_STATUS_ALLOC_FAILED", full},
    {"CUBLAS_STATUS_ARCH_MISMATCH",
     "this cuBLAS has nothing for the GPU: install the one of a CUDA Toolkit that supports it"},
    {"CUBLAS_STATUS_EXECUTION_FAILED", failed},
    {"CUBLAS_STATUS_INTERNAL_ERROR",
     "often cuBLAS is of another CUDA than the driver allows: `run_dist --version` names both"},
    {"CUBLAS_STATUS_NOT_SUPPORTED",
     "this cuBLAS cannot compute such a product on this GPU: install a newer one"},

    {"CUDNN_STATUS_NOT_INITIALIZED",
     "cuDNN found no memory on the GPU, a driver older than itself, or not all of its files: "
     "`nvidia-smi` and `tests/gpu/libraries list` show which"},
    {"CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH", dnn_parts},
    {"CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH", dnn_parts},
    {"CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED", dnn_whole},
    {"CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE", dnn_whole},
    {"CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER", dnn_other},
    {"CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART", dnn_other},
    {"CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH", dnn_other},
    {"CUDNN_STATUS_ALLOC_FAILED", full},
    {"CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED", "the host's memory is full"},
    {"CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", full},
    {"CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED",
     "cuDNN compiles some kernels when they are needed, which needs NVRTC of the same CUDA "
     "(libnvrtc; nvidia-cuda-nvrtc by pip)"},
    {"CUDNN_STATUS_EXECUTION_FAILED", failed},
    {"CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER", failed},
    {"CUDNN_STATUS_EXECUTION_FAILED_CUBLAS", failed},
    {"CUDNN_STATUS_EXECUTION_FAILED_CUDART", failed},

    {"ncclUnhandledCudaError",
     "NCCL_DEBUG=WARN in the environment makes NCCL print which call of CUDA it was"},
    {"ncclSystemError", "NCCL_DEBUG=WARN prints which; often it is /dev/shm being too small, or "
                        "the wrong network: NCCL_SOCKET_IFNAME names the one to take"},
    {"ncclInvalidUsage", "NCCL_DEBUG=WARN prints why; two ranks on one GPU need NCCL 2.30 and "
                         "NCCL_MULTI_RANK_GPU_ENABLE=1, and all ranks the same version"},
    {"ncclRemoteError", "another rank ended or its network failed: its own message says why"},
    {"ncclInternalError", nccl_debug},
    {"ncclInvalidArgument", nccl_debug},
};

const char *rd_gpu_remedy(const char *name)
{
    for (size_t i = 0; name && i < sizeof remedies / sizeof *remedies; i++)
        if (strcmp(remedies[i].name, name) == 0) return remedies[i].text;
    return NULL;
}

static void gpu_remedy_version_text(int v, char out[16])
{
    (void)snprintf(out, 16, "%d.%d", v / 1000, v % 1000 / 10);
}

/* Returns the driver's branch that came with this major version of CUDA. Older drivers do not run
 * it. */
static int driver_branch(int runtime)
{
    switch (runtime / 1000) {
    case 11:
        return 450;
    case 12:
        return 525;
    default:
        return 580;
    }
}

void rd_gpu_no_gpu(const char *name, const char *words, int driver, int runtime,
                   const char *visible, char why[RD_GPU_WHY_BYTES])
{
    char has[16], wants[16];
    const bool none = strcmp(name, "cudaErrorNoDevice") == 0 || strcmp(name, "cudaSuccess") == 0;
    gpu_remedy_version_text(driver, has);
    gpu_remedy_version_text(runtime, wants);
    if (driver == 0)
        (void)snprintf(why, RD_GPU_WHY_BYTES,
                       "NVIDIA's driver is not installed, or libcuda.so.1 is not found (in a "
                       "container: start it with --gpus all)");
    else if (strcmp(name, "cudaErrorInsufficientDriver") == 0 || driver < runtime / 1000 * 1000)
        (void)snprintf(why, RD_GPU_WHY_BYTES,
                       "the driver is too old: it is for CUDA %s, this program was built with CUDA "
                       "%s and needs driver %d or newer",
                       has, wants, driver_branch(runtime));
    else if (visible && (none || strcmp(name, "cudaErrorInvalidDevice") == 0))
        (void)snprintf(
            why, RD_GPU_WHY_BYTES,
            "CUDA_VISIBLE_DEVICES is '%.64s', which leaves none (`nvidia-smi -L` lists them)",
            visible);
    else if (none)
        (void)snprintf(why, RD_GPU_WHY_BYTES,
                       "the driver sees no GPU (`nvidia-smi -L` lists them)");
    else
        (void)snprintf(why, RD_GPU_WHY_BYTES, "%.60s (%s)%s%s", words, name,
                       rd_gpu_remedy(name) ? "; " : "",
                       rd_gpu_remedy(name) ? rd_gpu_remedy(name) : "");
}

void rd_gpu_not_built_for(const char *built_for, const char *gpu, int major, int minor,
                          char out[RD_GPU_WHY_BYTES])
{
    if (gpu)
        (void)snprintf(out, RD_GPU_WHY_BYTES,
                       "this program was built for %.70s and the GPU is sm_%d%d (%.40s): build it "
                       "with `make CUDA=1 SM=%d%d`",
                       built_for, major, minor, gpu, major, minor);
    else
        (void)snprintf(out, RD_GPU_WHY_BYTES,
                       "this program was built for %.70s and the GPU is another: `nvidia-smi "
                       "--query-gpu=compute_cap --format=csv` names it, build it with `make CUDA=1 "
                       "SM=` that number without its point",
                       built_for);
}
