/* tape.c -- the tape: variables of a step, records of ops, and the backward pass. */
#include "rd/tape.h"
#include "image_layout.h"
#include "spare.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct tape_record {
    rd_call call;
    struct tape_record *prev;
    int64_t number;      /* in the order of forward; a segment's records have the segment's */
    rd_segment *segment; /* of rd_tape_recompute; call.attr is its ctx. NULL: an op */
} tape_record;

enum { MAX_HOOKS = 4 };

struct rd_tape {
    rd_backend *be;
    rd_params *params;
    rd_arena *step, *scratch;
    /* In the memory where the backend computes; on a CPU step and scratch. */
    rd_arena *device_step, *device_scratch;
    tape_record *last;
    /* The loss of rd_tape_backward. */
    const rd_var *loss;
    /* By param index: one variable per parameter and step. */
    rd_var **leaf;
    /* By param index: number of records that have not yet added their gradient. */
    int *uses;
    int *uses_before; /* those before a segment is computed again */
    bool in_segment;
    /* By param index: set of touched rows. NULL: no embedding. */
    uint64_t **touched;
    int n_leaf;
    spare_pool spare;
    int64_t n_records; /* numbers given so far */
    int64_t segment;   /* number of the segment's record, if in_segment */
    /* By param index: where a parameter's gradient is added while its own memory is lent to
     * variables. NULL: in its own memory. */
    float **aside;
    rd_arena *aside_arena;
    void *room; /* memory of gradients that the present kernel has; NULL: none */
    size_t room_bytes;
    bool in_backward;
    bool with_grad, training;
    float seed;
    rd_grad_hook *hook;
    void *hook_ctx;
    rd_op_hook *op_hook[MAX_HOOKS];
    void *op_ctx[MAX_HOOKS];
    int n_op_hooks;
    rd_status status;
};

static size_t touched_words(const rd_param *p)
{
    return p->n_dim > 0 ? (size_t)(p->n / p->dim[p->n_dim - 1] / 64 + 1) : 1;
}

/* Makes the arenas where the backend computes; on a CPU they are the arenas of the host. */
static rd_code device_arenas(rd_tape *t, rd_status *st)
{
    const rd_arena_source *source = rd_backend_memory(t->be);
    if (!source) {
        t->device_step = t->step;
        t->device_scratch = t->scratch;
        return RD_OK;
    }
    RD_TRY(rd_arena_new_from(source, (size_t)64 << 20, &t->device_step, st));
    RD_TRY(rd_arena_new_from(source, (size_t)64 << 20, &t->device_scratch, st));
done:
    return st->code;
}

rd_code rd_tape_new(rd_backend *be, rd_params *params, rd_tape **out, rd_status *st)
{
    rd_tape *t = *out = calloc(1, sizeof *t);
    if (!t) return rd_fail(st, RD_EENV, "out of memory for the tape");
    t->be = be;
    t->params = params;
    t->seed = 1.0f;
    t->n_leaf = params ? rd_params_n(params) : 0;
    t->leaf = calloc((size_t)t->n_leaf + 1, sizeof *t->leaf);
    t->uses = calloc((size_t)t->n_leaf + 1, sizeof *t->uses);
    t->uses_before = calloc((size_t)t->n_leaf + 1, sizeof *t->uses_before);
    t->touched = calloc((size_t)t->n_leaf + 1, sizeof *t->touched);
    t->aside = calloc((size_t)t->n_leaf + 1, sizeof *t->aside);
    if (!t->leaf || !t->uses || !t->uses_before || !t->touched || !t->aside) {
        rd_fail(st, RD_EENV, "out of memory for the tape");
        goto done;
    }
    for (int i = 0; i < t->n_leaf; i++) {
        const rd_param *p = rd_params_at(params, i);
        if (!(p->flags & RD_PARAM_ROWS)) continue;
        t->touched[i] = calloc(touched_words(p), sizeof **t->touched);
        if (t->touched[i]) continue;
        rd_fail(st, RD_EENV, "out of memory for the rows of '%s'", p->name);
        goto done;
    }
    RD_TRY(rd_arena_new((size_t)8 << 20, &t->step, st));
    RD_TRY(rd_arena_new((size_t)4 << 20, &t->scratch, st));
    RD_TRY(rd_arena_new(4096, &t->aside_arena, st));
    RD_TRY(device_arenas(t, st));
    RD_TRY(spare_open(&t->spare, params, t->device_step, t->device_step == t->step, st));
    rd_tape_reset(t, false, false);
done:
    if (st->code != RD_OK) {
        rd_tape_free(t);
        *out = NULL;
    }
    return st->code;
}

void rd_tape_free(rd_tape *t)
{
    if (!t) return;
    spare_close(&t->spare);
    if (t->device_step != t->step) rd_arena_free(t->device_step);
    if (t->device_scratch != t->scratch) rd_arena_free(t->device_scratch);
    rd_arena_free(t->step);
    rd_arena_free(t->scratch);
    rd_arena_free(t->aside_arena);
    free(t->aside);
    free(t->leaf);
    free(t->uses);
    free(t->uses_before);
    for (int i = 0; i < t->n_leaf && t->touched; i++) free(t->touched[i]);
    free(t->touched);
    free(t);
}

void rd_tape_reset(rd_tape *t, bool with_grad, bool training)
{
    rd_arena_reset(t->step);
    rd_arena_reset(t->scratch);
    if (t->device_step != t->step) rd_arena_reset(t->device_step);
    if (t->device_scratch != t->scratch) rd_arena_reset(t->device_scratch);
    rd_arena_reset(t->aside_arena);
    spare_reset(&t->spare);
    t->room = NULL;
    t->last = NULL;
    t->in_segment = t->in_backward = false;
    t->n_records = 0;
    memset(t->aside, 0, (size_t)t->n_leaf * sizeof *t->aside);
    memset(t->leaf, 0, (size_t)t->n_leaf * sizeof *t->leaf);
    memset(t->uses, 0, (size_t)t->n_leaf * sizeof *t->uses);
    t->with_grad = with_grad;
    t->training = training;
    memset(&t->status, 0, sizeof t->status);
}

rd_backend *rd_tape_backend(rd_tape *t)
{
    return t->be;
}
rd_arena *rd_tape_arena(rd_tape *t)
{
    return t->step;
}
rd_arena *rd_tape_device_arena(rd_tape *t)
{
    return t->device_step;
}
rd_status *rd_tape_status(rd_tape *t)
{
    return &t->status;
}

rd_code rd_tape_check(rd_tape *t, rd_status *st)
{
    if (t->status.code != RD_OK && st->code == RD_OK) *st = t->status;
    return st->code;
}

uint64_t *rd_tape_touched(rd_tape *t, const rd_param *p)
{
    return p->index < t->n_leaf ? t->touched[p->index] : NULL;
}

void rd_tape_on_grad_ready(rd_tape *t, rd_grad_hook *hook, void *ctx)
{
    t->hook = hook;
    t->hook_ctx = ctx;
}

void rd_tape_on_op(rd_tape *t, rd_op_hook *hook, void *ctx)
{
    rd_assert(t->n_op_hooks < MAX_HOOKS);
    if (t->n_op_hooks == MAX_HOOKS) return;
    t->op_hook[t->n_op_hooks] = hook;
    t->op_ctx[t->n_op_hooks++] = ctx;
}

static void call_op_hooks(const rd_tape *t, const rd_op *op, bool backward, bool ends)
{
    for (int i = 0; i < t->n_op_hooks; i++) t->op_hook[i](t->op_ctx[i], op, backward, ends);
}

static rd_var *new_var(rd_tape *t, float *v, int64_t rows, int64_t cols)
{
    rd_var *x;
    if (t->status.code != RD_OK || rd_arena_zero(t->step, sizeof *x, &x, &t->status) != RD_OK)
        return NULL;
    x->v = v;
    rd_assert(rows >= 0 && cols > 0);
    x->rows = rows;
    x->cols = cols;
    return x;
}

rd_var *rd_tape_const(rd_tape *t, float *v, int64_t rows, int64_t cols)
{
    const size_t n = (size_t)(rows * cols), capacity = (size_t)((rows + RD_SLACK_ROWS) * cols);
    rd_var *x = new_var(t, NULL, rows, cols);
    if (x)
        (void)rd_backend_lend(t->be, t->device_step, v, n * sizeof *v, capacity * sizeof *v, &x->v,
                              &t->status);
    return t->status.code == RD_OK ? x : NULL;
}

rd_code rd_tape_read(rd_tape *t, const rd_var *x, bool gradient, float *out, rd_status *st)
{
    const void *from = gradient ? x->grads : x->values;
    if (!from)
        return rd_fail(st, RD_EBUG, "rd_tape_read: the variable has no %s",
                       gradient ? "gradient" : "values");
    return rd_backend_read(t->be, t->device_scratch, x->rows * x->cols, from, x->type, out, st);
}

rd_code rd_call_lend(rd_call *c, rd_arena *a, const void *host, size_t bytes, void *out,
                     rd_status *st)
{
    return rd_backend_lend(c->be, a, host, bytes, bytes, out, st);
}

rd_var *rd_tape_param(rd_tape *t, rd_param *p)
{
    if (!p || t->status.code != RD_OK) return NULL;
    if (p->index >= t->n_leaf) {
        rd_fail(&t->status, RD_EBUG, "parameter '%s' was declared after the tape was made",
                p->name);
        return NULL;
    }
    /* p belongs to the parameters that rd_tape_new got. */
    rd_assert(rd_params_at(t->params, p->index) == p);
    if (t->leaf[p->index]) return t->leaf[p->index];
    float *v, *g;
    const bool trained = t->with_grad && !(p->flags & RD_PARAM_FROZEN);
    (void)rd_backend_leaf(t->be, t->params, p, trained, &v, &g, &t->status);
    rd_var *x = new_var(t, v, 1, 1);
    if (!x) return NULL;
    x->cols = p->n_dim ? p->dim[p->n_dim - 1] : 1;
    x->rows = p->n / x->cols;
    x->n_dim = p->n_dim;
    for (int i = 0; i < p->n_dim; i++) x->dim[i] = p->dim[i];
    x->param = p;
    x->needs_grad = trained;
    x->recorded = t->with_grad;
    x->g = g;
    return t->leaf[p->index] = x;
}

static const rd_kernel *kernel_of(const rd_tape *t, const rd_op *op)
{
    return &op->kernel[rd_backend_kind_of(t->be)];
}

/* Runs one kernel of a call. Scratch memory belongs to this call alone. The next call may reuse
 * it: a GPU runs its queue in order, so the work of this call comes first. */
static rd_code run_kernel(rd_tape *t, rd_call *c, rd_code (*fn)(rd_call *, rd_status *),
                          bool backward, rd_status *st)
{
    const rd_mark host = rd_arena_mark(t->scratch), device = rd_arena_mark(t->device_scratch);
    call_op_hooks(t, c->op, backward, false);
    if (fn(c, st) != RD_OK) return st->code;
    call_op_hooks(t, c->op, backward, true);
    spare_keep(&t->spare, &t->room, t->room_bytes);
    t->room = NULL;
    if (t->device_scratch != t->scratch) rd_arena_rewind(t->device_scratch, device);
    rd_arena_rewind(t->scratch, host);
    return RD_OK;
}

int64_t rd_var_elements(const rd_var *x)
{
    if (x->layout) {
        const rd_image_view v = rd_image_view_of(x);
        return v.n * v.sample;
    }
    return x->param ? x->rows * x->cols : (x->rows + RD_SLACK_ROWS) * x->cols;
}

/* Returns the bytes stored at v, or at g. */
static size_t bytes_of(const rd_var *x)
{
    return (size_t)rd_var_elements(x) * rd_element_bytes(x->type);
}

/* ---- the memory of the parameters' gradients ---- */

void rd_tape_borrow_grads(rd_tape *t)
{
    spare_borrow(&t->spare);
}

bool rd_tape_borrows(const rd_tape *t, const rd_param *p)
{
    return spare_borrows(&t->spare, p);
}

void rd_tape_return_grads(rd_tape *t)
{
    spare_return_all(&t->spare);
}

rd_code spare_room(rd_call *c, size_t bytes, void *out, rd_status *st)
{
    rd_tape *t = c->tape;
    rd_assert(!t->room);
    spare_take_lent(&t->spare, bytes, &t->room);
    t->room_bytes = bytes;
    memcpy(out, &t->room, sizeof t->room);
    return t->room ? st->code : rd_arena_get(c->device_scratch, bytes, out, st);
}

size_t rd_tape_borrowed_peak(const rd_tape *t)
{
    return t->spare.lent_peak;
}

/* Prepares the gradients of the parameters that a record uses, before its forward pass. */
static rd_code grads_before(rd_tape *t, const rd_call *c, rd_status *st)
{
    for (int i = 0; i < c->n_in && !t->in_backward; i++) {
        rd_var *x = c->in[i];
        if (!x || !x->param || !x->needs_grad) continue;
        if (spare_is_lent(&t->spare, x->param) && !t->aside[x->param->index]) {
            RD_TRY(rd_arena_zero(t->aside_arena, (size_t)x->param->n * sizeof(float),
                                 &t->aside[x->param->index], st));
            x->g = t->aside[x->param->index];
        } else if (c->op->early_grads) {
            spare_return(&t->spare, x->param);
        }
    }
done:
    return st->code;
}

/* Lends the gradients of the parameters that a record uses, after its forward pass. A table of rows
 * may be used again, as the output layer. */
static void grads_after(rd_tape *t, const rd_call *c, int64_t number)
{
    for (int i = 0; i < c->n_in && !t->in_backward; i++)
        if (c->in[i] && c->in[i]->param && c->in[i]->needs_grad)
            spare_used(&t->spare, c->in[i]->param, number, !c->op->marks_rows);
}

/* Moves a gradient to its own memory, after its last contribution. */
static void grad_complete(rd_tape *t, const rd_param *p)
{
    float **aside = &t->aside[p->index];
    if (!*aside) return;
    spare_return(&t->spare, p); /* unless a record has done so */
    t->leaf[p->index]->g = rd_params_grads(t->params) + p->offset;
    memcpy(t->leaf[p->index]->g, *aside, (size_t)p->n * sizeof **aside);
    *aside = NULL;
}

/* ---- ops ---- */

rd_var *rd_tape_apply(rd_tape *t, const rd_op *op, const void *attr, size_t attr_bytes,
                      rd_var *const *in, int n_in, rd_var **out, int n_out)
{
    rd_status *st = &t->status;
    tape_record *r = NULL;
    bool needs = false;
    if (st->code != RD_OK) return NULL;
    if (n_in > RD_MAX_IN || n_out > RD_MAX_OUT) {
        rd_fail(st, RD_EBUG, "op '%s' has %d inputs and %d outputs; %d and %d fit", op->name, n_in,
                n_out, RD_MAX_IN, RD_MAX_OUT);
        return NULL;
    }
    RD_TRY(rd_arena_zero(t->step, sizeof *r + (size_t)n_in * sizeof *in, &r, st));
    r->number = t->in_segment ? t->segment : t->n_records++;
    rd_call *c = &r->call;
    c->in = (rd_var **)(void *)(r + 1);
    c->tape = t;
    c->op = op;
    c->be = t->be;
    c->step = t->step;
    c->scratch = t->scratch;
    c->params = t->params;
    c->seed = t->seed;
    c->n_in = n_in;
    c->n_out = n_out;
    c->training = t->training;
    if (attr) {
        void *copy;
        RD_TRY(rd_arena_get(t->step, attr_bytes, &copy, st));
        memcpy(copy, attr, attr_bytes);
        c->attr = copy;
    }
    for (int i = 0; i < n_in; i++) {
        c->in[i] = in[i];
        if (in[i] && in[i]->taken) {
            rd_fail(st, RD_EBUG, "op '%s': an op has overwritten the values of input %d", op->name,
                    i);
            goto done;
        }
        if (in[i] && in[i]->forgotten) {
            rd_fail(st, RD_EBUG, "op '%s': the values of input %d are forgotten", op->name, i);
            goto done;
        }
        if (in[i]) in[i]->n_readers++;
        needs |= in[i] && in[i]->needs_grad;
        if (!in[i] || in[i]->type == RD_FLOAT32 || (i < 32 && op->narrow >> i & 1)) continue;
        rd_fail(st, RD_EBUG,
                "op '%s' takes float32, but its input %d has 16-bit elements; convert them with "
                "rd_op_cast",
                op->name, i);
        goto done;
    }
    const rd_kernel *k = kernel_of(t, op);
    if (!k->forward) {
        rd_fail(st, RD_EBUG, "op '%s' has no CUDA kernel; set \"device\": \"cpu\"", op->name);
        goto done;
    }
    c->keep = needs && k->backward;
    c->kept = c->keep ? t->step : t->scratch;
    c->device_scratch = t->device_scratch;
    c->device_kept = c->keep ? t->device_step : t->device_scratch;
    for (int i = 0; i < n_out; i++) {
        RD_TRY(rd_arena_zero(t->step, sizeof(rd_var), &c->out[i], st));
        c->out[i]->needs_grad = c->keep;
        c->out[i]->maker = op;
        c->out[i]->call = c->keep ? c : NULL;
        c->out[i]->ends = c->keep && op->own_grads ? r->number : -1;
    }
    RD_TRY(op->infer(c, st));
    for (int i = 0; i < n_out; i++) rd_assert(c->out[i]->rows >= 0 && c->out[i]->cols > 0);
    for (int i = 0; i < n_out; i++) {
        if (c->out[i]->values) continue; /* the memory of an input */
        RD_TRY(spare_take(&t->spare, bytes_of(c->out[i]), c->out[i]->ends, &c->out[i]->values, st));
        c->out[i]->owns_values = true;
    }
    if (c->keep) RD_TRY(grads_before(t, c, st));
    RD_TRY(run_kernel(t, c, k->forward, false, st));
    if (c->keep) {
        r->prev = t->last;
        t->last = r;
        for (int i = 0; i < n_in; i++)
            if (in[i] && in[i]->param) t->uses[in[i]->param->index]++;
        if (!t->in_segment) grads_after(t, c, r->number);
    }
    for (int i = 0; i < n_out && out; i++) out[i] = c->out[i];
done:
    return st->code == RD_OK ? r->call.out[0] : NULL;
}

/* Makes the gradient of a variable, if it needs one. Parameters have theirs already; the others get
 * zeros. */
static rd_code want_grad(rd_tape *t, rd_var *x, rd_status *st)
{
    if (!x || !x->needs_grad) return RD_OK;
    x->g_masked = false;
    if (x->grads) return RD_OK;
    RD_TRY(spare_take(&t->spare, bytes_of(x), x->ends, &x->grads, st));
    RD_TRY(rd_backend_zero(t->be, x->grads, bytes_of(x), st));
done:
    return st->code;
}

rd_code rd_call_grad(rd_call *c, int i, void *g, bool *add, rd_status *st)
{
    rd_assert(i >= 0 && i < c->n_in);
    rd_var *x = c->in[i];
    void *none = NULL;
    memcpy(g, &none, sizeof none);
    *add = false;
    if (!x || !x->needs_grad) return RD_OK;
    x->g_masked = false;
    *add = x->grads != NULL;
    if (!x->grads) RD_TRY(spare_take(&c->tape->spare, bytes_of(x), x->ends, &x->grads, st));
    memcpy(g, &x->grads, sizeof x->grads);
done:
    return st->code;
}

rd_code rd_call_zero_grad(rd_call *c, int i, rd_status *st)
{
    rd_assert(i >= 0 && i < c->n_in);
    return want_grad(c->tape, c->in[i], st);
}

bool rd_call_pass_grad(rd_call *c, int i)
{
    rd_assert(i >= 0 && i < c->n_in && c->n_out > 0);
    rd_var *x = c->in[i], *y = c->out[0];
    if (!x || !x->needs_grad || x->g || x->type != y->type || x->layout != y->layout ||
        x->rows != y->rows || x->cols != y->cols || rd_var_elements(x) != rd_var_elements(y))
        return false;
    for (int k = 0; k < c->n_in; k++)
        if (c->in[k] && c->in[k]->g == y->g) return false;
    if (!spare_fits(&c->tape->spare, y->grads, bytes_of(y), x->ends)) return false;
    x->g_masked = false;
    x->g = y->g;
    return true;
}

bool rd_call_take_values(rd_call *c, int i, bool signs)
{
    rd_assert(i >= 0 && i < c->n_in);
    rd_var *x = c->in[i], *y = c->out[0];
    if (!x || !x->maker || !x->owns_values || x->n_readers != 1 ||
        rd_backend_kind_of(c->be) != RD_CPU || x->type != y->type || x->layout != y->layout ||
        x->rows != y->rows || x->cols != y->cols ||
        x->maker->reads_out < (signs ? RD_READS_SIGNS : RD_READS_NOTHING) ||
        !spare_fits(&c->tape->spare, x->values, bytes_of(x), y->ends))
        return false;
    y->values = x->values;
    y->owns_values = true;
    x->owns_values = false;
    return x->taken = true;
}

float rd_call_loss_seed(const rd_call *c)
{
    return c->out[0] == c->tape->loss ? c->tape->seed : NAN;
}

/* Keeps the memory of the outputs after the backward of a record: their gradients, unless an input
 * took them over (rd_call_pass_grad), and their values, unless those belong to an input. */
static void keep_spare(rd_tape *t, rd_call *c)
{
    for (int k = 0; k < c->n_out; k++) {
        rd_var *y = c->out[k];
        bool passed = false;
        for (int i = 0; i < c->n_in; i++) {
            rd_var *x = c->in[i];
            passed |= x && x->g == y->g;
            if (!x || !x->taken || x->values != y->values) continue;
            x->owns_values = y->owns_values; /* the backward of its maker comes later */
            y->owns_values = false;
        }
        if (!passed) spare_keep(&t->spare, &y->grads, bytes_of(y));
        if (y->owns_values) spare_keep(&t->spare, &y->values, bytes_of(y));
        y->g = NULL;
    }
}

/* ---- values that backward computes again ---- */

/* Returns the input of a call in whose memory out[0] is, or NULL. */
static rd_var *shared_input(const rd_call *c)
{
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i] && c->in[i]->values == c->out[0]->values) return c->in[i];
    return NULL;
}

/* Returns whether backward can compute x again: its op can, and so can that of the input whose
 * memory it has. */
static bool can_run_again(const rd_var *x)
{
    for (const rd_var *v = x; v; v = shared_input(v->call))
        if (!v->call || v->forgotten || !v->call->op->again || !v->call->op->again(v->call) ||
            v->call->n_out != 1 || (v != x && v->n_readers != 1))
            return false;
    return true;
}

void rd_tape_forget(rd_tape *t, rd_var *x)
{
    if (!x || t->status.code != RD_OK || t->in_segment || bytes_of(x) < SPARE_LEAST ||
        spare_full(&t->spare) || !can_run_again(x))
        return;
    void *at = x->values;
    const size_t bytes = bytes_of(x);
    for (rd_var *v = x; v; v = v->shares) {
        v->shares = shared_input(v->call);
        v->forgotten = true;
    }
    for (rd_var *v = x; v; v = v->shares) v->values = NULL;
    spare_keep(&t->spare, &at, bytes);
}

/* Computes the values of a forgotten variable, and before them the forgotten inputs of its op. */
static rd_code compute_again(rd_tape *t, rd_var *x, rd_status *st)
{
    rd_call *c = x->call;
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i] && c->in[i]->forgotten) RD_TRY(compute_again(t, c->in[i], st));
    if (x->shares)
        x->values = x->shares->values;
    else
        RD_TRY(spare_take(&t->spare, bytes_of(x), x->ends, &x->values, st));
    RD_TRY(run_kernel(t, c, kernel_of(t, c->op)->forward, false, st));
    x->forgotten = false;
done:
    return st->code;
}

/* Computes the forgotten values that backward of a call reads. */
static rd_code remember(rd_tape *t, rd_call *c, rd_status *st)
{
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i] && c->in[i]->forgotten) RD_TRY(compute_again(t, c->in[i], st));
    for (int i = 0; i < c->n_out && c->op->reads_out != RD_READS_NOTHING; i++)
        if (c->out[i]->forgotten) RD_TRY(compute_again(t, c->out[i], st));
done:
    return st->code;
}

void rd_tape_set_seed(rd_tape *t, float seed)
{
    t->seed = seed;
}

/* ---- segments ---- */

static const rd_op segment_op = {.name = "recompute", .about = "ops that backward runs again"};

typedef struct tape_position {
    rd_mark host, device;
    spare_list spare;
    size_t lent_bytes;
} tape_position;

static void segment_begin(rd_tape *t, const tape_record *r, tape_position *p)
{
    t->in_segment = true;
    t->segment = r->number;
    p->host = rd_arena_mark(t->step);
    p->device = rd_arena_mark(t->device_step);
    p->spare = t->spare.list;
    p->lent_bytes = t->spare.lent_bytes;
}

/* Frees the memory of the segment's variables and records. Spare memory from before, which served
 * them, is spare again. */
static void segment_end(rd_tape *t, const tape_position *p)
{
    t->in_segment = false;
    if (t->device_step != t->step) rd_arena_rewind(t->device_step, p->device);
    rd_arena_rewind(t->step, p->host);
    t->spare.list = p->spare;
    t->spare.lent_bytes = p->lent_bytes;
}

/* Runs the ops of a segment. */
static rd_var *segment_run(rd_tape *t, const tape_record *r)
{
    const rd_var *x = r->call.in[0];
    rd_var *y = r->segment(t, r->call.attr, r->call.in);
    if (!y) return NULL;
    bool other = y->rows == x->rows && y->cols == x->cols && y->type == x->type && !y->layout;
    for (int i = 0; i < r->call.n_in; i++) other &= y != r->call.in[i];
    if (other) return y;
    rd_fail(&t->status, RD_EBUG, "recompute: the result of a segment is no variable like input 0");
    return NULL;
}

static rd_code segment_record(rd_tape *t, rd_segment *f, const void *ctx, size_t ctx_bytes,
                              rd_var *const *in, int n_in, tape_record **out, rd_status *st)
{
    tape_record *r;
    void *copy;
    if (n_in < 1 || n_in > RD_SEGMENT_IN || t->in_segment)
        return rd_fail(st, RD_EBUG, "recompute: %d inputs%s", n_in,
                       t->in_segment ? " of a segment inside a segment" : "");
    RD_TRY(rd_arena_zero(t->step, sizeof *r + (size_t)n_in * sizeof *in, &r, st));
    RD_TRY(rd_arena_get(t->step, ctx_bytes + 1, &copy, st));
    if (ctx_bytes > 0) memcpy(copy, ctx, ctx_bytes);
    r->number = t->n_records++;
    r->segment = f;
    r->call = (rd_call){.tape = t,
                        .op = &segment_op,
                        .be = t->be,
                        .attr = copy,
                        .in = (rd_var **)(void *)(r + 1),
                        .n_in = n_in,
                        .n_out = 1};
    for (int i = 0; i < n_in; i++) {
        r->call.in[i] = in[i];
        in[i]->n_readers++; /* no op of the segment overwrites it */
        if (in[i]->param) t->uses[in[i]->param->index]++;
    }
    rd_var *y;
    RD_TRY(rd_arena_zero(t->step, sizeof *y, &y, st));
    r->call.out[0] = y;
    y->rows = in[0]->rows;
    y->cols = in[0]->cols;
    y->type = in[0]->type;
    y->needs_grad = y->owns_values = true;
    y->maker = &segment_op;
    y->ends = r->number;
    RD_TRY(spare_take(&t->spare, bytes_of(y), y->ends, &y->values, st));
    *out = r;
done:
    return st->code;
}

rd_var *rd_tape_recompute(rd_tape *t, rd_segment *f, const void *ctx, size_t ctx_bytes,
                          rd_var *const *in, int n_in)
{
    rd_status *st = &t->status;
    tape_record *r = NULL;
    for (int i = 0; i < n_in; i++)
        if (!in[i] || st->code != RD_OK) return NULL;
    if (!t->with_grad) return f(t, ctx, in);
    /* The leaves of all parameters are made now, since the variables of the segment end with it. */
    for (int i = 0; i < t->n_leaf; i++) (void)rd_tape_param(t, rd_params_at(t->params, i));
    RD_TRY(segment_record(t, f, ctx, ctx_bytes, in, n_in, &r, st));
    tape_record *const last = t->last;
    tape_position p;
    memcpy(t->uses_before, t->uses, (size_t)t->n_leaf * sizeof *t->uses);
    segment_begin(t, r, &p);
    const rd_var *y = segment_run(t, r);
    rd_var *out = r->call.out[0];
    if (y)
        (void)rd_backend_copy(t->be, out->values, y->values,
                              (size_t)(y->rows * y->cols) * rd_element_bytes(y->type), st);
    segment_end(t, &p);
    for (int i = 0; i < t->n_leaf; i++)
        if (t->uses[i] > t->uses_before[i])
            spare_used(&t->spare, rd_params_at(t->params, i), r->number, true);
    r->prev = last;
    t->last = r;
done:
    return st->code == RD_OK ? r->call.out[0] : NULL;
}

static rd_code run_records(rd_tape *t, tape_record *last, rd_status *st);

/* Runs the ops of a segment again and then backward. Memory of the segment ends with it, so the
 * gradients of its inputs are copied to memory from before. */
static rd_code segment_back(rd_tape *t, tape_record *r, rd_status *st)
{
    rd_call *c = &r->call;
    rd_var *y = c->out[0];
    tape_position p;
    void *to[RD_SEGMENT_IN] = {NULL};
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i]->needs_grad && !c->in[i]->grads)
            RD_TRY(spare_take(&t->spare, bytes_of(c->in[i]), c->in[i]->ends, &to[i], st));
    memcpy(t->uses_before, t->uses, (size_t)t->n_leaf * sizeof *t->uses);
    t->last = NULL;
    segment_begin(t, r, &p);
    rd_var *again = segment_run(t, r);
    RD_TRY(rd_tape_check(t, st));
    memcpy(t->uses, t->uses_before, (size_t)t->n_leaf * sizeof *t->uses);
    again->grads = y->grads;
    again->g_masked = y->g_masked;
    RD_TRY(run_records(t, t->last, st));
    for (int i = 0; i < c->n_in; i++) {
        rd_var *x = c->in[i];
        if (!to[i] || !x->grads) continue;
        RD_TRY(rd_backend_copy(t->be, to[i], x->grads,
                               (size_t)(x->rows * x->cols) * rd_element_bytes(x->type), st));
        x->grads = to[i];
        to[i] = NULL;
    }
    segment_end(t, &p);
    for (int i = 0; i < c->n_in; i++)
        if (to[i]) spare_keep(&t->spare, &to[i], bytes_of(c->in[i]));
    spare_keep(&t->spare, &y->grads, bytes_of(y));
    spare_keep(&t->spare, &y->values, bytes_of(y));
    y->g = NULL;
done:
    return st->code;
}

/* Runs the backward kernel of a record that has a gradient. */
static rd_code record_back(rd_tape *t, tape_record *r, rd_status *st)
{
    rd_call *c = &r->call;
    RD_TRY(remember(t, c, st));
    if (r->segment) return segment_back(t, r, st);
    for (int i = 0; i < c->n_out; i++)
        if (!c->out[i]->g) RD_TRY(want_grad(t, c->out[i], st));
    for (int i = 0; i < c->n_in && !c->op->own_grads; i++) RD_TRY(want_grad(t, c->in[i], st));
    RD_TRY(run_kernel(t, c, kernel_of(t, c->op)->backward, true, st));
    if (c->op->own_grads) keep_spare(t, c);
done:
    return st->code;
}

/* Runs the records up to `last` in reverse. */
static rd_code run_records(rd_tape *t, tape_record *last, rd_status *st)
{
    for (tape_record *r = last; r; r = r->prev) {
        rd_call *c = &r->call;
        bool any = false;
        spare_return_from(&t->spare, r->number);
        for (int i = 0; i < c->n_out; i++) any |= c->out[i]->g != NULL;
        /* Without any gradient no path leads from this record to the loss. */
        if (any) RD_TRY(record_back(t, r, st));
        for (int i = 0; i < c->n_in; i++) {
            rd_param *p = c->in[i] ? c->in[i]->param : NULL;
            if (p && t->touched[p->index] && !c->op->marks_rows)
                memset(t->touched[p->index], 0xff, touched_words(p) * sizeof **t->touched);
            rd_assert(!p || t->uses[p->index] > 0);
            if (!p || --t->uses[p->index] > 0) continue;
            grad_complete(t, p);
            if (t->hook) t->hook(t->hook_ctx, p);
        }
    }
done:
    return st->code;
}

rd_code rd_tape_backward(rd_tape *t, rd_var *loss, rd_status *st)
{
    RD_TRY(rd_tape_check(t, st));
    if (!loss || loss->rows != 1 || loss->cols != 1 || loss->type != RD_FLOAT32 || !t->with_grad)
        return rd_fail(st, RD_EBUG, "backward needs a scalar loss of a tape that records");
    RD_TRY(want_grad(t, loss, st));
    if (loss->g) RD_TRY(rd_backend_upload(t->be, loss->g, &t->seed, sizeof t->seed, st));
    t->loss = loss;
    t->in_backward = true;
    if (t->params) rd_params_device_changed_grads(t->params);
    RD_TRY(run_records(t, t->last, st));
    rd_tape_return_grads(t);
done:
    return st->code;
}
