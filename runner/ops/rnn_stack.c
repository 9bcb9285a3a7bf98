/* rnn_stack.c -- recurrent layers one above the other. A GPU computes layers of one shape along the
 * diagonal: at tick k, layer l computes its time step k - l, and all layers share one batched
 * product and one kernel (shared/lstm_tick.h). So L layers of T steps take 2 (T + L - 1) launches
 * forward instead of 2 L T, and products are large enough to fill the GPU.
 *
 * All other layers are ops rnn_layer: on a CPU, where cuDNN computes the layer, and where a layer
 * differs from its neighbours. */
#include "rnn_stack.h"
#include "../engine/lstm_kernels.h"
#include "rd/cell.h"

/* Returns whether the layers may share a product: one shape, with equal widths of x and h. */
static bool stack_alike(const rd_layer *a, const rd_layer *b)
{
    return a->cell == b->cell && strcmp(a->cell->name, "lstm") == 0 && !a->shape.projects &&
           a->shape.in == a->shape.H && a->shape.in == b->shape.in && a->shape.H == b->shape.H &&
           !b->shape.projects && a->shape.extra == b->shape.extra &&
           a->drop_in.keep == b->drop_in.keep && a->drop_out.keep == b->drop_out.keep;
}

/* Returns the number of layers, from the first of n, that one op can compute together: 1 or more.
 * w: kernel and bias of each layer. */
static int stack_height(rd_tape *t, int n, const rd_layer *l, const rd_packing *p,
                        const rd_var *att, rd_var *const *w, int n_w)
{
    rd_backend *be = rd_tape_backend(t);
    if (rd_backend_kind_of(be) != RD_GPU || n_w != 2 || p->off[p->n_steps] == 0 ||
        (l->shape.extra > 0) != (att != NULL))
        return 1;
    const int64_t far = n > 1 ? w[0]->v - w[2]->v : 0;
    int height = 1;
    while (height < n && stack_alike(l, &l[height])) {
        rd_var *const *under = w + 2 * (height - 1), *const *over = w + 2 * height;
        /* A frozen parameter has no gradient, and another place in the arena. */
        if (over[0]->needs_grad != w[0]->needs_grad || over[1]->needs_grad != w[0]->needs_grad ||
            w[1]->needs_grad != w[0]->needs_grad)
            break;
        if (far <= 0 || under[0]->v - over[0]->v != far || under[1]->v - over[1]->v != far) break;
        height++;
    }
    const rd_lstm_layer one = {.in = l->shape.in,
                               .extra = l->shape.extra,
                               .H = l->shape.H,
                               .n_steps = p->n_steps,
                               .off = p->off};
    return height > 1 && rd_lstm_own(be, l->cell->name, &one, w[0]->needs_grad) ? height : 1;
}

static rd_code rnn_stack_infer(rd_call *c, rd_status *st)
{
    const rd_rnn_stack *a = c->attr;
    const rd_cell_shape *s = &a->layer[0].shape;
    RD_TRY(rd_rows_check("rnn_stack", c->in[0], s->in, st));
    if (c->in[1]) RD_TRY(rd_rows_check("rnn_stack", c->in[1], s->extra, st));
    if (c->in[0]->rows != a->p.off[a->p.n_steps] ||
        (c->in[1] && c->in[1]->rows != c->in[0]->rows) || (s->extra > 0) != (c->in[1] != NULL))
        return rd_fail(st, RD_EBUG, "rnn_stack: an input does not fit the rows of the batch");
    c->out[0]->rows = c->in[0]->rows;
    c->out[0]->cols = s->H;
done:
    return st->code;
}

RD_OP(rnn_stack) = {.name = "rnn_stack",
                    .about = "recurrent layers of one shape, along the diagonal",
                    .infer = rnn_stack_infer,
                    .kernel = {[RD_GPU] = RD_GPU_KERNEL(rnn_stack)}};

rd_var *rd_op_rnn_stack(rd_tape *t, int n, const rd_layer *l, const rd_packing *p, rd_var *x,
                        rd_var *att, rd_var *const *w, int n_w)
{
    rd_rnn_stack *a;
    if (rd_arena_zero(rd_tape_arena(t), sizeof *a, &a, rd_tape_status(t)) != RD_OK) return NULL;
    for (int i = 0; i < n * n_w; i++)
        if (!w[i]) return NULL;
    for (int k = 0; k < n && x; k += a->n_layers) {
        rd_var *in[RD_MAX_IN] = {x, att};
        a->p = *p;
        a->n_layers = stack_height(t, n - k, l + k, p, att, w + k * n_w, n_w);
        if (a->n_layers == 1) {
            x = rd_op_rnn_layer(t, &l[k], p, x, att, w + k * n_w, n_w);
            continue;
        }
        for (int i = 0; i < a->n_layers; i++) a->layer[i] = l[k + i];
        for (int i = 0; i < a->n_layers * n_w; i++) in[2 + i] = w[k * n_w + i];
        x = rd_tape_apply(t, &rd_op_def_rnn_stack, a, sizeof *a, in, 2 + a->n_layers * n_w, NULL,
                          1);
    }
    return x;
}
