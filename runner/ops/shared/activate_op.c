/* activate_op.c -- functions that activate.c and activate.cu share; see activate.h. */
#include "../activate.h"

rd_code rd_activate_gradient(rd_call *c, void **dx, bool *add, rd_status *st)
{
    *dx = c->out[0]->grads;
    *add = false;
    return rd_call_pass_grad(c, 0) ? RD_OK : rd_call_grad(c, 0, dx, add, st);
}
