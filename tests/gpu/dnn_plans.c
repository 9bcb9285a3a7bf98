/* dnn_plans.c -- the plans of cuda_dnn.c for convolutions, from the real cuDNN, for GPUs that are
 * not present.
 *
 * The library makes plans for a GPU that is described to it, and needs no GPU for that. The test
 * covers every convolution of ResNet-50 that is no plain product, those of the small networks, and
 * odd sizes and alignments, in float32 and in the 16-bit type. Forward and both gradients have a
 * reproducible engine. It uses tensor cores if operands have 16 bits and channels are multiples of
 * 8. Without cuDNN, or with a version that is too old, the test is skipped. */
#include "../../runner/engine/gpu/cuda_dnn.c"
#include "test.h"
#include <math.h>
#include <stdio.h>

/* A GPU, by data sheets and CUDA's table of compute capabilities. */
typedef struct gpu_model {
    const char *name;
    int major, minor, n_sm, shared_optin, threads_sm, blocks_sm, sm_khz, memory_khz, l2;
    int64_t memory;
} gpu_model;
static const gpu_model gpu_models[] = {
    {"Tesla T4", 7, 5, 40, 65536, 1024, 16, 1590000, 5001000, 4194304, 15843721216},
    {"NVIDIA A100-SXM4-80GB", 8, 0, 108, 166912, 2048, 32, 1410000, 1593000, 41943040, 85520809984},
    {"NVIDIA H100 80GB HBM3", 9, 0, 132, 232448, 2048, 32, 1980000, 2619000, 52428800, 85045280768},
};
enum { N_GPU_MODELS = sizeof gpu_models / sizeof *gpu_models };

typedef struct shape {
    const char *what;
    /* align: in elements; 0 means 16 */
    int64_t n, h, w, ci, co, size, stride, pad, align;
} shape;
static const shape shapes[] = {
    {"resnet50 conv1", 256, 224, 224, 3, 64, 7, 2, 3, 0},
    {"resnet50 stage2", 256, 56, 56, 64, 64, 3, 1, 1, 0},
    {"resnet50 stage3", 256, 28, 28, 128, 128, 3, 1, 1, 0},
    {"resnet50 stage4", 256, 14, 14, 256, 256, 3, 1, 1, 0},
    {"resnet50 stage5", 256, 7, 7, 512, 512, 3, 1, 1, 0},
    {"resnet50 stage3, first", 256, 56, 56, 256, 128, 1, 2, 0, 0},
    {"resnet50 stage4, first", 256, 28, 28, 512, 256, 1, 2, 0, 0},
    {"resnet50 stage5, first", 256, 14, 14, 1024, 512, 1, 2, 0, 0},
    {"resnet50 stage3, projection", 256, 56, 56, 256, 512, 1, 2, 0, 0},
    {"resnet50 stage4, projection", 256, 28, 28, 512, 1024, 1, 2, 0, 0},
    {"resnet50 stage5, projection", 256, 14, 14, 1024, 2048, 1, 2, 0, 0},
    {"resnet50 v1.5 stage3, first", 256, 56, 56, 128, 128, 3, 2, 1, 0},
    {"resnet50 stage2, a last batch of 7", 7, 56, 56, 64, 64, 3, 1, 1, 0},
    {"resnet20", 128, 32, 32, 16, 16, 3, 1, 1, 0},
    {"resnet20 conv1", 128, 32, 32, 3, 16, 3, 1, 1, 0},
    {"mnist_cnn conv1", 128, 28, 28, 1, 32, 3, 1, 0, 0},
    {"mnist_cnn conv2", 128, 26, 26, 32, 64, 3, 1, 0, 0},
    {"lenet conv1", 32, 28, 28, 1, 32, 5, 1, 2, 0},
    {"alexnet conv1", 128, 227, 227, 3, 64, 11, 4, 0, 0},
    {"17 channels to 17", 3, 9, 9, 17, 17, 3, 1, 1, 1},
    {"one pixel", 3, 1, 1, 16, 16, 3, 1, 1, 0},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static rd_gpu gpu;

static bool described(const gpu_model *c, char *out, size_t size)
{
    return snprintf(
               out, size,
               "{\"deviceName\":\"%s\",\"deviceVer\":%d,\"multiProcessorCount\":%d,"
               "\"maxSharedMemoryPerBlockOptin\":%d,\"maxThreadsPerSM\":%d,\"maxCtasPerSM\":%d,"
               "\"smClockRateKHz\":%d,\"memClockRateKHz\":%d,\"l2CacheSize\":%d,\"totalGlobalMem\":"
               "%lld,\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
               "\"regsPerBlock\":65536,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
               "\"reservedSharedMemoryPerBlock\":%d,\"maxRegistersPerSM\":65536,"
               "\"maxThreadsPerBlock\":1024,\"pciDeviceId\":0,\"isTccDriver\":0,"
               "\"supportCoopLaunch\":1,\"cudaDeviceId\":0,\"driverVer\":13000}",
               c->name, c->major * 100 + c->minor * 10, c->n_sm, c->shared_optin, c->threads_sm,
               c->blocks_sm, c->sm_khz, c->memory_khz, c->l2, (long long)c->memory,
               c->major >= 8 ? 1024 : 0) < (int)size;
}

static bool describe(const gpu_model *c)
{
    char text[2048];
    descriptor d;
    if (!described(c, text, sizeof text) ||
        dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d))
        return false;
    if (dnn.cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                     (int64_t)strlen(text) + 1, text) ||
        dnn.cudnnBackendFinalize(d)) {
        char more[200] = "";
        dnn.cudnnGetLastErrorString(more, sizeof more);
        printf("cuDNN does not take the description of %s: %s\n", c->name, more);
        (void)dnn.cudnnBackendDestroyDescriptor(d);
        return false;
    }
    gpu.info.major = c->major;
    gpu.info.minor = c->minor;
    snprintf(gpu.info.name, sizeof gpu.info.name, "%s", c->name);
    gpu.dnn->device = d;
    return true;
}

/* Returns whether the engine of a plan uses tensor cores, by its notes. */
static bool uses_tensor_cores(const plan *p)
{
    enum { MOST = 32 };
    cudnnBackendNumericalNote_t note[MOST];
    descriptor engine;
    int64_t n = 0, one = 0;
    bool found = false;
    assert_int_equal(dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine), 0);
    assert_int_equal(dnn.cudnnBackendGetAttribute(p->made[p->n_made - 2],
                                                  CUDNN_ATTR_ENGINECFG_ENGINE,
                                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one, &engine),
                     0);
    assert_int_equal(dnn.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                  CUDNN_TYPE_NUMERICAL_NOTE, MOST, &n, note),
                     0);
    for (int64_t i = 0; i < n; i++) {
        assert_int_not_equal(note[i], CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
        assert_int_not_equal(note[i], CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
        found |= note[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    }
    (void)dnn.cudnnBackendDestroyDescriptor(engine);
    return found;
}

static void check(const gpu_model *c, const shape *s, bool mixed, rd_element type)
{
    for (int what = FORWARD; what <= WEIGHTS; what++) {
        rd_status st = {.code = RD_OK};
        plan *p;
        gpu.options = (rd_gpu_options){.mixed = mixed};
        const int64_t oh = (s->h + 2 * s->pad - s->size) / s->stride + 1,
                      ow = (s->w + 2 * s->pad - s->size) / s->stride + 1;
        const key k = {.n = s->n,
                       .h = s->h,
                       .w = s->w,
                       .ci = s->ci,
                       .co = s->co,
                       .kh = s->size,
                       .kw = s->size,
                       .oh = oh,
                       .ow = ow,
                       .stride = s->stride,
                       .top = s->pad,
                       .left = s->pad,
                       .align = s->align ? (int64_t)rd_element_bytes(type) : 16,
                       .kind = what,
                       .type = type};
        if (cuda_dnn_plan_new(&gpu, &k, &p, &st) != RD_OK)
            fail_msg("%s, %s, kind %d, type %d: %s", c->name, s->what, what, type, st.msg);
        const bool tensor = uses_tensor_cores(p);
        if (type == RD_FLOAT32 && !mixed && tensor)
            fail_msg("%s, %s, kind %d: float32 on tensor cores", c->name, s->what, what);
        if (type != RD_FLOAT32 && s->ci % 8 == 0 && s->co % 8 == 0 && s->n >= 32 && !tensor)
            fail_msg("%s, %s, kind %d: 16 bits without tensor cores", c->name, s->what, what);
        descriptors_free(p);
        free(p);
    }
}

static void test_gpu_model(void **state)
{
    const gpu_model *c = *state;
    assert_true(describe(c));
    for (int i = 0; i < N_SHAPES; i++) {
        const rd_element narrow = c->major >= 8 ? RD_BFLOAT16 : RD_FLOAT16;
        check(c, &shapes[i], true, narrow);
        if (i % 4 == 0) check(c, &shapes[i], false, RD_FLOAT32);
    }
    (void)dnn.cudnnBackendDestroyDescriptor(gpu.dnn->device);
    gpu.dnn->device = NULL;
}

int main(void)
{
    static gpu_model copies[N_GPU_MODELS]; /* cmocka's state is not const */
    struct CMUnitTest t[N_GPU_MODELS];
    rd_status st = {.code = RD_OK};
    rd_gpu_dnn d = {.handle = NULL};
    gpu.dnn = &d;
    if (rd_library_load(&library, &st) != RD_OK || dnn.cudnnGetVersion() < 91000 ||
        !describe(&gpu_models[N_GPU_MODELS - 1])) {
        printf("skip: no cuDNN of 9.10 or later: %s\n0 passed, 0 failed, 1 skipped\n", st.msg);
        return 0;
    }
    (void)dnn.cudnnBackendDestroyDescriptor(d.device);
    d.device = NULL;
    memcpy(copies, gpu_models, sizeof copies);
    for (int i = 0; i < N_GPU_MODELS; i++)
        t[i] = (struct CMUnitTest){copies[i].name, test_gpu_model, NULL, NULL, &copies[i]};
    return cmocka_run_group_tests_name("plans of cuDNN", t, NULL, NULL) != 0;
}
