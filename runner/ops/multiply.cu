/* multiply.cu -- multiply on a GPU: the formulas of multiply.c. */
#include "../engine/gpu/kernel.h"
#include "multiply.h"
#include "shared/image_op.h"

static __global__ void multiply_each(rd_multiply_pass p)
{
    for (RD_EACH(i, p.n)) {
        const float y = p.a[i] * p.b[i];
        p.y[i] = p.add ? p.y[i] + y : y;
    }
}

static rd_code multiply_pass(rd_call *c, const rd_multiply_pass *p, rd_status *st)
{
    return RD_LAUNCH(rd_gpu_of(c->be), st, multiply_each, rd_grid(p->n), RD_BLOCK, 0, *p);
}

extern "C" rd_code rd_cuda_multiply_forward(rd_call *c, rd_status *st)
{
    const rd_multiply_pass p = {rd_op_elements(c->out[0]), c->in[0]->v, c->in[1]->v, c->out[0]->v,
                                false};
    return multiply_pass(c, &p, st);
}

extern "C" rd_code rd_cuda_multiply_backward(rd_call *c, rd_status *st)
{
    return rd_multiply_back(c, multiply_pass, st);
}
