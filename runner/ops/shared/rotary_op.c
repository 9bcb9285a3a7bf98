/* rotary_op.c -- functions that rotary.c and rotary.cu share; see rotary.h. */
#include "../rotary.h"

rd_code rd_rotary_gradient(rd_call *c, void **dx, bool *add, rd_status *st)
{
    *dx = c->out[0]->grads;
    *add = false;
    return rd_call_pass_grad(c, 0) ? RD_OK : rd_call_grad(c, 0, dx, add, st);
}
