/* dnn_emulated.cc -- cuDNN's recurrent layers for gpu_rnn.c, in the emulated build: work is done at
 * once. */
#include "../../../runner/engine/gpu/dnn_rnn.h"
#include "../../../runner/engine/gpu/gpu_rnn.h"
#include "cudnn_emulated.h"
#include <stdlib.h>
#include <string.h>

struct cudnnContext {
    rd_gpu *g;
    rd_dnn_rnn calls;
};

bool rd_emulated_dnn_fails(const char *)
{
    return false;
}

cudnnStatus_t rd_emulated_dnn_queue(cudnnHandle_t, std::function<cudnnStatus_t()> work)
{
    rd_emulated_access access;
    return work();
}

extern "C" {

int rd_gpu_dnn_version(void)
{
    const char *e = getenv("RD_EMULATED_CUDNN");
    return e && *e ? atoi(e) : 91900;
}

rd_code rd_gpu_dnn_rnn(rd_gpu *g, const rd_dnn_rnn **out, rd_status *st)
{
    void **slot = rd_emulated_dnn_of(g);
    if (!*slot) {
        cudnnContext *h = (cudnnContext *)calloc(1, sizeof *h);
        if (!h) return rd_fail(st, RD_EENV, "out of memory for the emulated cuDNN");
        h->g = g;
#define FILL(f) h->calls.f = f;
        RD_DNN_RNN_CALLS(FILL)
        h->calls.handle = h;
        *slot = h;
    }
    *out = &((cudnnContext *)*slot)->calls;
    return st->code;
}

const char *rd_gpu_dnn_text(rd_gpu *, cudnnStatus_t r)
{
    return r == CUDNN_STATUS_SUCCESS ? "no failure" : rd_emulated_dnn_why;
}

rd_code rd_gpu_dnn_result(rd_gpu *g, cudnnStatus_t r, const char *call, const char *where,
                          rd_status *st)
{
    if (r == CUDNN_STATUS_SUCCESS) return st->code;
    rd_fail_(st, CUDNN_STATUS_CATEGORY(r) == CUDNN_STATUS_BAD_PARAM ? RD_EBUG : RD_EENV, where,
             "emulated GPU: cuDNN: %.*s: %s", (int)strcspn(call, "("), call, rd_emulated_dnn_why);
    return rd_emulated_stick(g, st);
}

rd_code rd_gpu_dnn_queued(rd_gpu *, const char *, rd_status *st)
{
    return st->code;
}

} // extern "C"
