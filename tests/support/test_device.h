/* test_device.h -- runs tests of parameters on a GPU if RD_TEST_DEVICE=cuda, else on the host. */
#ifndef RD_TEST_DEVICE_H
#define RD_TEST_DEVICE_H

#include "rd/params.h"
#include <stdlib.h>
#include <string.h>

static inline bool test_on_gpu(void)
{
    const char *device = getenv("RD_TEST_DEVICE");
    return device && strcmp(device, "cuda") == 0;
}

/* Returns whether cuDNN computes recurrent layers, by RD_TEST_CUDNN_RNN: auto, off or on. */
static inline rd_rnn_asked rnn_asked(void)
{
    const char *asked = getenv("RD_TEST_CUDNN_RNN");
    return rd_rnn_asked_of(asked ? asked : "auto");
}

#ifdef RD_CUDA
static rd_gpu *test_gpus[2]; /* float32, mixed; made at the first use */

static inline void test_gpu_free(void)
{
    for (int i = 0; i < 2; i++) rd_gpu_free(test_gpus[i]);
}

/* Moves sealed parameters to the GPU, if the tests use one. mixed: that with mixed products. */
static inline rd_code test_use_device_as(rd_params *p, bool mixed, rd_status *st)
{
    if (!test_on_gpu()) return RD_OK;
    if (!test_gpus[0] && !test_gpus[1]) (void)atexit(test_gpu_free);
    if (!test_gpus[mixed])
        RD_TRY(rd_gpu_new(0, &(rd_gpu_options){.rnn = rnn_asked(), .mixed = mixed},
                          &test_gpus[mixed], st));
    RD_TRY(rd_params_use_gpu(p, test_gpus[mixed], st));
done:
    return st->code;
}
#else
static inline rd_code test_use_device_as(rd_params *p, bool mixed, rd_status *st)
{
    (void)p, (void)mixed;
    return test_on_gpu()
               ? rd_fail(st, RD_EENV, "RD_TEST_DEVICE=cuda, and this build has no GPU backend")
               : RD_OK;
}
#endif

static inline rd_code test_use_device(rd_params *p, rd_status *st)
{
    return test_use_device_as(p, false, st);
}

/* Marks values, gradients and slots as written by the host. A test calls it after it has written
 * any. */
static inline void test_written(rd_params *p)
{
    rd_params_touch(p);
    rd_params_touch_grads(p);
    rd_params_touch_slots(p);
}

/* Downloads the values, and returns the address of the host's array. */
static inline float *test_values(rd_params *p)
{
    rd_status st = {0};
    (void)rd_params_sync_to_host(p, RD_VALUES, &st);
    return rd_params_values(p);
}
static inline float *test_grads(rd_params *p)
{
    rd_status st = {0};
    (void)rd_params_sync_to_host(p, RD_GRADS, &st);
    return rd_params_grads(p);
}

/* Afterwards the host's arrays are what the last update left, where they have been since before. */
static inline void test_fetch(rd_params *p)
{
    rd_status st = {0};
    (void)rd_params_sync_to_host(p, RD_VALUES | RD_GRADS | RD_SLOTS, &st);
}

#endif
