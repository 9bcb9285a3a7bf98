/* conv2d.c -- the op conv2d: the backend's convolution, then max(y, 0) if relu is set.
 *   y[i, p, q, o] = b[o] + sum over r, s, c of
 *                   x[i, p stride + r - top, q stride + s - left, c] W[r, s, c, o]
 * Backward goes through the relu first, in the memory of dy, unless the next op has already done
 * so. */
#include "shared/image_op.h"
#include <inttypes.h>

static rd_code conv2d_shape_of(const rd_call *c, rd_conv_shape *s, int64_t *oh, int64_t *ow,
                               rd_status *st)
{
    const rd_conv *a = c->attr;
    const rd_var *x = c->in[0], *W = c->in[1], *b = c->in[2];
    RD_TRY(rd_op_image_check("conv2d", x, st));
    if (!W->param || W->n_dim != 4 || W->dim[2] != x->dim[3] ||
        (b && (!b->param || b->rows * b->cols != W->dim[3])))
        return rd_fail(st, RD_EBUG,
                       "conv2d: an image of %" PRId64
                       " channels does not fit kernel '%s' and its bias",
                       x->dim[3], W->param ? W->param->name : "(no parameter)");
    *s = (rd_conv_shape){.n = x->dim[0],
                         .h = x->dim[1],
                         .w = x->dim[2],
                         .ci = x->dim[3],
                         .kh = W->dim[0],
                         .kw = W->dim[1],
                         .co = W->dim[3],
                         .stride = a->stride,
                         .top = a->pad_top,
                         .left = a->pad_left,
                         .bottom = a->pad_bottom,
                         .right = a->pad_right,
                         .block = x->layout ? rd_image_view_of(x).B : 0,
                         .bias = b != NULL,
                         .relu = a->relu};
    const int64_t h = s->h + s->top + s->bottom - s->kh, w = s->w + s->left + s->right - s->kw;
    if (s->stride < 1 || s->top < 0 || s->left < 0 || s->bottom < 0 || s->right < 0)
        return rd_fail(st, RD_EBUG, "conv2d: a stride below 1 or a padding below 0");
    if (h < 0 || w < 0)
        return rd_fail(st, RD_EUSAGE,
                       "a convolution of %" PRId64 "x%" PRId64
                       " ('%s') does not fit on images of %" PRId64 "x%" PRId64
                       " with their padding; the model needs larger images",
                       s->kh, s->kw, W->param->name, s->h, s->w);
    *oh = h / s->stride + 1;
    *ow = w / s->stride + 1;
done:
    return st->code;
}

static rd_code conv2d_infer(rd_call *c, rd_status *st)
{
    const rd_conv *a = c->attr;
    rd_conv_shape s = {0};
    int64_t oh = 0, ow = 0;
    const void *layout = NULL;
    RD_TRY(conv2d_shape_of(c, &s, &oh, &ow, st));
    RD_TRY(rd_conv_layout(c->be, &layout, st));
    rd_image_set(c->out[0], s.n, oh, ow, s.co, layout);
    c->out[0]->type = c->in[0]->type;
    c->out[0]->rectified = a->relu;
done:
    return st->code;
}

static rd_code conv2d_forward(rd_call *c, rd_status *st)
{
    rd_conv_shape s = {0};
    int64_t oh = 0, ow = 0;
    RD_TRY(conv2d_shape_of(c, &s, &oh, &ow, st));
    RD_TRY(rd_conv_forward(c->be, &s, c->params, c->in[1]->param, c->in[0]->v,
                           c->in[2] ? c->in[2]->v : NULL, c->out[0]->v, st));
done:
    return st->code;
}

static rd_code conv2d_backward(rd_call *c, rd_status *st)
{
    rd_conv_shape s = {0};
    int64_t oh = 0, ow = 0;
    const rd_var *y = c->out[0];
    float *dx, *dW, *db;
    bool add, had;
    RD_TRY(conv2d_shape_of(c, &s, &oh, &ow, st));
    if (s.relu && !y->g_masked)
        RD_TRY(rd_op_mask(c->be, y->type, rd_op_elements(y), y->values, y->grads, st));
    RD_TRY(rd_call_grad(c, 1, &dW, &had, st));
    RD_TRY(rd_call_grad(c, 2, &db, &had, st));
    RD_TRY(rd_call_grad(c, 0, &dx, &add, st));
    RD_TRY(rd_conv_backward(c->be, &s, c->params, c->in[1]->param, c->in[0]->v, y->g, dx, add, dW,
                            db, st));
done:
    return st->code;
}

RD_OP(conv2d) = {
    .name = "conv2d",
    .about = "convolution of images, bias, relu",
    .infer = conv2d_infer,
    .kernel = {[RD_CPU] = {conv2d_forward, conv2d_backward}, [RD_GPU] = RD_GPU_KERNEL(conv2d)},
    .narrow = RD_NARROW(0),
    .own_grads = true};

rd_var *rd_op_conv2d(rd_tape *t, const rd_conv *c, rd_var *x, rd_var *W, rd_var *b)
{
    rd_var *in[] = {x, W, b};
    return x && W ? rd_tape_apply(t, &rd_op_def_conv2d, c, sizeof *c, in, 3, NULL, 1) : NULL;
}
