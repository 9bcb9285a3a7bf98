/* cuda_devices.c -- the description of a GPU before it is opened, and the versions of the
 * libraries. */
#include "cuda_impl.h"
#include "gpu_rnn.h"
#include "gpu_remedy.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* Writes a version as CUDA counts them: 13020 is 13.2. */
static void cuda_devices_version_text(int v, char out[16])
{
    snprintf(out, 16, "%d.%d", v / 1000, v % 1000 / 10);
}

/* ---- NVML: the free memory of a GPU that this process has not opened ----
 *
 * The driver brings the library. The few functions used here are declared by hand, because not
 * every CUDA Toolkit contains the header. */

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

/* Finds the free memory of the GPU with that UUID. If the UUID is that of a MIG instance, changes
 * its prefix, which the runtime does not know. */
static bool nvml_free(char uuid[48], uint64_t *bytes)
{
    int (*init)(void), (*by_uuid)(const char *, void **), (*memory)(void *, nvml_memory *),
        (*end)(void);
    void *h = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL), *device = NULL;
    if (!h) return false;
    void *f[] = {dlsym(h, "nvmlInit_v2"), dlsym(h, "nvmlDeviceGetHandleByUUID"),
                 dlsym(h, "nvmlDeviceGetMemoryInfo"), dlsym(h, "nvmlShutdown")};
    bool ok = f[0] && f[1] && f[2] && f[3];
    if (ok) {
        memcpy(&init, &f[0], sizeof init);
        memcpy(&by_uuid, &f[1], sizeof by_uuid);
        memcpy(&memory, &f[2], sizeof memory);
        memcpy(&end, &f[3], sizeof end);
        nvml_memory m = {0};
        ok = init() == 0;
        if (ok) {
            ok = by_uuid(uuid, &device) == 0;
            if (!ok) {
                char instance[48];
                snprintf(instance, sizeof instance, "MIG%.44s", uuid + 3);
                ok = by_uuid(instance, &device) == 0;
                if (ok) memcpy(uuid, instance, sizeof instance);
            }
            ok = ok && memory(device, &m) == 0;
            (void)end();
        }
        *bytes = m.free;
    }
    dlclose(h);
    return ok;
}

rd_code rd_cuda_query(int index, bool has_context, rd_gpu_info *out, rd_status *st)
{
    struct cudaDeviceProp p;
    *out = (rd_gpu_info){.major = 0};
    TRY_CUDA(NULL, cudaGetDeviceProperties(&p, index));
    snprintf(out->name, sizeof out->name, "%.95s", p.name);
    const unsigned char *u = (const unsigned char *)p.uuid.bytes;
    snprintf(out->uuid, sizeof out->uuid,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
             u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
             u[15]);
    out->major = p.major;
    out->minor = p.minor;
    out->n_sm = p.multiProcessorCount;
    out->memory = p.totalGlobalMem;
    TRY_CUDA(NULL, cudaDeviceGetPCIBusId(out->pci, sizeof out->pci, index));
    size_t left = 0, total = 0;
    if (!nvml_free(out->uuid, &out->free_memory)) out->free_memory = 0;
    /* without a context cudaMemGetInfo would create one, of some hundred MiB on that GPU */
    if (has_context && cudaMemGetInfo(&left, &total) == cudaSuccess) out->free_memory = left;
done:
    return st->code;
}

rd_code rd_gpu_query(int index, rd_gpu_info *out, rd_status *st)
{
    return rd_cuda_query(index, false, out, st);
}

rd_code rd_gpu_need_libraries(bool convolutions, rd_status *st)
{
    RD_TRY(rd_gpu_blas_load(st));
    if (convolutions) RD_TRY(rd_gpu_dnn_load(st));
done:
    return st->code;
}

static void add_version(char *text, size_t size, const char *title, int v)
{
    const size_t n = strlen(text);
    if (v > 0) snprintf(text + n, size - n, ", %s %d.%d", title, v / 10000, v % 10000 / 100);
}

const char *rd_gpu_libraries(void)
{
    static char text[160];
    if (text[0]) return text;
    int driver = 0, runtime = 0;
    char v[16];
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaDriverGetVersion(&driver);
    cuda_devices_version_text(runtime, v);
    size_t n = (size_t)snprintf(text, sizeof text, "CUDA %s", v);
    cuda_devices_version_text(driver, v);
    if (driver > 0) snprintf(text + n, sizeof text - n, ", driver %s", v);
    add_version(text, sizeof text, "cuBLAS", rd_gpu_blas_version());
    add_version(text, sizeof text, "cuDNN", rd_gpu_dnn_version());
    add_version(text, sizeof text, "NCCL", rd_gpu_nccl_version());
    return text;
}
