/* gpu_error.c -- results of the CUDA runtime as a status: the call, the library's words, what to do. */
#include "gpu_impl.h"
#include "convert.h"
#include <stdio.h>

/* What helps; NULL: the library's words say all that is known. */
static const char *remedy(cudaError_t e)
{
    switch ((int)e) {
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorCallRequiresNewerDriver:
        return "the driver is too old for this program's CUDA: update it, or build with an older CUDA Toolkit";
    case cudaErrorSystemDriverMismatch:
        return "the driver's kernel module and its libraries differ in version: load the new module, or start the "
               "machine again";
    case cudaErrorECCUncorrectable:
        return "the card's memory is damaged: look at `nvidia-smi -q -d ECC`, and use another card until this one was "
               "reset";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
        return "a kernel failed, this one or one before it: with RD_CUDA_SYNC=1 in the environment the message names "
               "it; after Xid "
               "messages in `dmesg` the card may be at fault";
    case cudaErrorLaunchTimeout:
        return "a display on this card limits the time of a kernel: use a card without one";
    case cudaErrorDevicesUnavailable:
        return "another process has the card for itself (compute mode, `nvidia-smi -q -d COMPUTE`), or it is being "
               "reset";
    case cudaErrorSystemNotReady:
        return "cards with NVSwitch need the service nvidia-fabricmanager: start it";
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsServerNotReady:
    case cudaErrorMpsMaxClientsReached:
    case cudaErrorMpsMaxConnectionsReached:
        return "the MPS service of this machine does not answer or has no place: end it, or unset "
               "CUDA_MPS_PIPE_DIRECTORY";
    case cudaErrorNvlinkUncorrectable:
        return "an NVLink connection failed: look at `nvidia-smi nvlink -e`";
    case cudaErrorPeerAccessUnsupported:
    case cudaErrorTooManyPeers:
        return "the cards cannot reach each other: NCCL_P2P_DISABLE=1 lets them go through the host";
    default:
        return NULL;
    }
}

/* Whether the device works on after e. */
static bool harmless(cudaError_t e)
{
    return e == cudaErrorMemoryAllocation || e == cudaErrorInvalidDevice || e == cudaErrorNoDevice;
}

rd_code rd_cuda_result(rd_gpu *g, cudaError_t e, const char *call, const char *where, rd_status *st)
{
    if (e == cudaSuccess) return st->code;
    (void)cudaGetLastError(); /* else the next kernel would be blamed */
    char help[400] = "";
    if (e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction) {
        char sm[64] = "another card";
        if (g) snprintf(sm, sizeof sm, "sm_%d%d (%.40s)", g->info.major, g->info.minor, g->info.name);
        snprintf(help, sizeof help,
                 "; this program was built for %.100s and the card is %s: build it with `make CUDA=1 SM=%d%d`",
                 rd_convert_built_for(), sm, g ? g->info.major : 0, g ? g->info.minor : 0);
    } else if (e == cudaErrorInsufficientDriver || e == cudaErrorNoDevice) {
        char why[256];
        if (rd_gpu_count(why) == 0) snprintf(help, sizeof help, "; %s", why);
    } else if (e == cudaErrorMemoryAllocation) {
        snprintf(help, sizeof help,
                 "; other programs on the card may hold it (`nvidia-smi`), or batch_size is too large");
    } else if (remedy(e)) {
        snprintf(help, sizeof help, "; %s", remedy(e));
    }
    char after[96] = "";
    if (g && g->last_kernel && !strstr(call, g->last_kernel))
        snprintf(after, sizeof after, ", seen after kernel %.64s", g->last_kernel);
    rd_fail_(st, RD_EENV, where, "GPU %d: %.*s: %s (%s%s)%s", g ? g->index : 0, rd_call_name(call), call,
             cudaGetErrorString(e), cudaGetErrorName(e), after, help);
    if (g && g->failure.code == RD_OK && !harmless(e)) g->failure = *st;
    return st->code;
}
