/* What is said of failures of CUDA and its libraries. No GPU and no header of theirs is needed. */
#include "../../runner/engine/gpu/gpu_remedy.h"
#include "test.h"
#include <string.h>

static void has(const char *text, const char *piece)
{
    if (!text || !strstr(text, piece)) fail_msg("'%s' has no '%s'", text ? text : "NULL", piece);
}

static void test_by_name(void **state)
{
    static const char *const row[][2] = {
        {"cudaErrorMemoryAllocation", "batch_size"},
        {"cudaErrorCallRequiresNewerDriver", "too old"},
        {"cudaErrorUnsupportedPtxVersion", "too old"},
        {"cudaErrorStubLibrary", "stubs"},
        {"cudaErrorPeerAccessUnsupported", "NCCL_P2P_DISABLE"},
        {"cudaErrorNvlinkUncorrectable", "nvlink"},
        {"cudaErrorIllegalAddress", "RD_CUDA_SYNC"},
        {"cudaErrorSystemDriverMismatch", "differ in version"},
        {"CUBLAS_STATUS_ALLOC_FAILED", "nvidia-smi"},
        {"CUBLAS_STATUS_NOT_INITIALIZED", "no memory"},
        {"CUBLAS_STATUS_ARCH_MISMATCH", "GPU"},
        {"CUDNN_STATUS_NOT_INITIALIZED", "no memory"},
        {"CUDNN_STATUS_ALLOC_FAILED", "nvidia-smi"},
        {"CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", "nvidia-smi"},
        {"CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH", "different versions"},
        {"CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED", "whole package"},
        {"CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER", "another CUDA"},
        {"ncclSystemError", "NCCL_SOCKET_IFNAME"},
        {"ncclRemoteError", "another rank"},
        {"ncclInvalidUsage", "two ranks on one GPU"},
        {"ncclInternalError", "NCCL_DEBUG=WARN"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) has(rd_gpu_remedy(row[i][0]), row[i][1]);
    assert_null(rd_gpu_remedy("cudaErrorInvalidValue"));
    assert_null(rd_gpu_remedy("cudaErrorMemory"));
    assert_null(rd_gpu_remedy(NULL));
}

static void test_no_gpu(void **state)
{
    char why[RD_GPU_WHY_BYTES];
    (void)state;
    rd_gpu_no_gpu("cudaErrorInsufficientDriver", "words", 0, 13000, NULL, why);
    has(why, "driver is not installed");
    has(why, "--gpus all");
    rd_gpu_no_gpu("cudaErrorInsufficientDriver", "words", 12040, 13000, NULL, why);
    assert_string_equal(why, "the driver is too old: it is for CUDA 12.4, this program was built "
                             "with CUDA 13.0 and needs driver 580 or newer");
    rd_gpu_no_gpu("cudaErrorUnknown", "words", 11080, 12020, "0", why);
    has(why, "needs driver 525 or newer");
    rd_gpu_no_gpu("cudaErrorInsufficientDriver", "words", 10020, 11080, NULL, why);
    has(why, "needs driver 450 or newer");
    rd_gpu_no_gpu("cudaErrorNoDevice", "words", 13000, 13000, "7", why);
    has(why, "CUDA_VISIBLE_DEVICES is '7', which leaves none");
    rd_gpu_no_gpu("cudaErrorInvalidDevice", "words", 13000, 13000, "", why);
    has(why, "CUDA_VISIBLE_DEVICES is ''");
    rd_gpu_no_gpu("cudaSuccess", "no error", 13000, 13000, NULL, why);
    has(why, "the driver sees no GPU");
    rd_gpu_no_gpu("cudaErrorSystemNotReady", "system not yet initialized", 13000, 13000, NULL, why);
    assert_string_equal(why, "system not yet initialized (cudaErrorSystemNotReady); GPUs with "
                             "NVSwitch need the service nvidia-fabricmanager: start it");
    rd_gpu_no_gpu("cudaErrorInvalidValue", "invalid argument", 13000, 13000, "0", why);
    assert_string_equal(why, "invalid argument (cudaErrorInvalidValue)");
    /* The longest one is not cut. */
    rd_gpu_no_gpu("cudaErrorLaunchFailure", "unspecified launch failure", 13000, 13000, NULL, why);
    has(why, "may be at fault");
}

static void test_not_built_for(void **state)
{
    char out[RD_GPU_WHY_BYTES];
    (void)state;
    rd_gpu_not_built_for("sm_80, sm_90", "Tesla V100-SXM2-32GB", 7, 0, out);
    assert_string_equal(out, "this program was built for sm_80, sm_90 and the GPU is sm_70 (Tesla "
                             "V100-SXM2-32GB): build it with `make CUDA=1 SM=70`");
    rd_gpu_not_built_for("sm_80, sm_90", NULL, 0, 0, out);
    has(out, "compute_cap");
    assert_null(strstr(out, "SM=00"));
}

RD_TESTS("gpu_remedy", TEST(test_by_name), TEST(test_no_gpu), TEST(test_not_built_for))
