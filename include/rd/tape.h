/* tape.h -- eager tape of coarse ops.
 *
 * Each op runs at once and records its backward step; rd_tape_backward runs the records in
 * reverse. Errors stick: after a failure each call does nothing, and the caller asks once with
 * rd_tape_check.
 *
 * Variables are matrices (rows, cols). They can have a shape of more dimensions. RD_SLACK_ROWS
 * spare rows follow v and g (parameters have none: see rd_tape_param). Elements are float32. On
 * a GPU they can also have a 16-bit type, value and gradient alike: rd_op_cast makes such
 * variables, and ops that declare it (rd_op.narrow) pass them on. Memory belongs to the step's
 * arena and is invalid after rd_tape_reset. A tape belongs to the calling rank alone, and to one
 * thread.
 *
 * How to add an op x:
 *   1. runner/ops/x.c: infer, the CPU kernel, RD_OP(x) (end of this header), and rd_op_x, which
 *      calls rd_tape_apply.
 *   2. runner/ops/x.cu: the CUDA kernel. extern "C" rd_cuda_x_forward and rd_cuda_x_backward take
 *      the same rd_call as the CPU kernel. v and g of in[] and out[] are device pointers. Memory
 *      comes from c->device_scratch and c->device_kept. Host arrays go through rd_call_lend.
 *      RD_LAUNCH (runner/engine/gpu/kernel.h) starts a kernel on rd_gpu_of(c->be). What x.c and
 *      x.cu share (for example the attribute) is declared in runner/ops/x.h.
 *      An op needs no x.cu if it only calls functions with a backend (rd/vec.h, rd/cell.h,
 *      rd/attention.h, runner/ops/shared): it uses RD_EVERY_BACKEND. A new function of that kind is
 *      an entry in such a table: the CPU's loop is in its .c file, the GPU's kernel in the .cu file
 *      beside it.
 *   3. include/rd/ops.h, or image.h for images: declares rd_op_x.
 *   4. tests/ops/basic.c, sequence.c or image_ops.c: compares x with a reference in double and with
 *      finite differences.
 *   5. tests/gpu/op_kinds.h and ops.c: a case that compares the GPU with the CPU. A test fails if
 *      an op has none.
 *   6. A layer that uses the op: include/rd/nn.h or image_net.h, and runner/nn. */
#ifndef RD_TAPE_H
#define RD_TAPE_H

#include "rd/backend.h"
#include "rd/params.h"

RD_C_BEGIN

typedef struct rd_call rd_call;

typedef struct rd_var {
    /* Value; v if type is RD_FLOAT32. */
    union {
        float *v;
        void *values;
    };
    /* Gradient, zeroed before the first contribution. NULL: not needed. */
    union {
        float *g;
        void *grads;
    };
    /* Type of the elements of value and gradient. */
    rd_element type;
    int64_t rows, cols;
    /* Number of dimensions; 0: a plain matrix. */
    int n_dim;
    int64_t dim[5];
    /* Images: the backend's order of elements (see image.h). NULL: NHWC. */
    const void *layout;
    /* The parameter that this variable is the leaf of; NULL: not a leaf. */
    rd_param *param;
    bool needs_grad;
    /* Whether it is a leaf of a tape that records. */
    bool recorded;
    /* Whether the memory at v is released with this variable. */
    bool owns_values;
    /* Whether an op has overwritten v (rd_call_take_values): no other op may read it. */
    bool taken;
    /* The op that made it; NULL: none. */
    const struct rd_op *maker;
    /* The call of that op, if backward follows; else NULL. */
    rd_call *call;
    /* Whether backward computes v again (rd_tape_forget): v is NULL until then. */
    bool forgotten;
    /* A forgotten variable: the input of its call in whose memory v is; NULL: its own memory. */
    struct rd_var *shares;
    /* Number of calls that got it as an input so far. */
    int n_readers;
    /* Whether the op that made it ends in max(., 0) and its backward uses g only where v > 0. */
    bool rectified;
    /* For a rectified variable: g is already zero where v is zero. */
    bool g_masked;
    /* Number of the record in whose backward v and g are read last; -1: they live until the
     * reset. */
    int64_t ends;
} rd_var;

typedef struct rd_tape rd_tape;

typedef struct rd_kernel {
    rd_code (*forward)(rd_call *c, rd_status *st);
    /* Adds to the gradients of in[]. NULL: no gradient flows. */
    rd_code (*backward)(rd_call *c, rd_status *st);
} rd_kernel;

typedef enum rd_op_reads {
    RD_READS_ALL,
    /* Which elements are above 0. An element that has become 0 is not asked for again if its
     * gradient is 0. */
    RD_READS_SIGNS,
    RD_READS_NOTHING
} rd_op_reads;

typedef struct rd_op {
    const char *name, *about;
    /* Checks shapes; sets rows and cols of out[]. */
    rd_code (*infer)(rd_call *c, rd_status *st);
    rd_kernel kernel[RD_BACKENDS];
    /* RD_NARROW(i) bits: in[i] may have 16-bit elements. The other inputs must be float32, else
     * RD_EBUG. */
    unsigned narrow;
    /* Whether backward reports with rd_tape_touched which rows of an embedding got a gradient. */
    bool marks_rows;
    /* Whether backward asks for the gradients of in[] by rd_call_grad, and needs neither values nor
     * gradients of out[] afterwards: g of out[] becomes NULL, and so does a large v. Their memory
     * serves other gradients. */
    bool own_grads;
    /* Whether forward already adds to gradients of parameters. */
    bool early_grads;
    /* What backward reads of the values of out[]. */
    rd_op_reads reads_out;
    /* Returns whether forward may run a second time, in backward. It then computes out[0] again
     * from the values of in[], to the last bit, with `saved` as the first run left it. NULL:
     * never. */
    bool (*again)(const rd_call *c);
} rd_op;

#define RD_NARROW(i) (1u << (i))

enum { RD_MAX_IN = 320, RD_MAX_OUT = 4 };

struct rd_call {
    rd_tape *tape;
    const rd_op *op;
    rd_backend *be;
    /* Arena of the step: outputs. */
    rd_arena *step;
    /* Arena that is rewound after the call. */
    rd_arena *scratch;
    /* Arena for what only backward needs: the step's arena, or scratch if no backward follows. */
    rd_arena *kept;
    /* scratch and kept in the memory where the backend computes; on a CPU the arenas above. */
    rd_arena *device_scratch, *device_kept;
    const rd_params *params;
    /* Gradient that the loss will get: see rd_tape_set_seed. */
    float seed;
    /* Copied into the step's arena. Pointers inside it must stay valid for the whole step. */
    const void *attr;
    /* Set by forward for backward. */
    void *saved;
    int n_in, n_out;
    /* [n_in], in the step's arena. An optional input may be NULL. */
    rd_var **in;
    rd_var *out[RD_MAX_OUT];
    /* Whether dropout is on. */
    bool training;
    /* Whether backward will follow: forward saves what backward needs. */
    bool keep;
};

/* Finds where an op with own_grads writes the gradient of in[i], in backward. g: address of any
 * object pointer. *g is set to memory for elements of in[i]->type, or to NULL if no gradient is
 * needed. *add true: the memory holds contributions already. *add false: its contents are
 * undefined, and the op writes all of it (also zeros in channels that pad a block). An input
 * that occurs twice needs two calls, and the op fills the first before the second call. */
rd_code rd_call_grad(rd_call *c, int i, void *g, bool *add, rd_status *st);
/* Makes the gradient of in[i], if it needs one: zeros before the first contribution. For an op with
 * own_grads that can only add. */
rd_code rd_call_zero_grad(rd_call *c, int i, rd_status *st);
/* Makes the memory of out[0]->g the gradient of in[i], without a copy. Conditions: in[i] has no
 * gradient yet, the two have the same shape and type, and no other input got this memory. Returns
 * false and does nothing otherwise. The caller may change out[0]->g before the call, and until
 * backward returns. */
bool rd_call_pass_grad(rd_call *c, int i);
/* Makes the memory of in[i]->values that of out[0]->values, in infer: forward overwrites it. The
 * caller overwrites an element by what has the same sign or, if its gradient becomes 0, by 0, when
 * `signs`; else by anything. Returns false and does nothing if the maker of in[i] or another op
 * needs the values, and on a GPU. */
bool rd_call_take_values(rd_call *c, int i, bool signs);
/* Returns the gradient of out[0], in backward, if out[0] is the loss at which rd_tape_backward
 * started; else NAN. Does not wait for a GPU. */
float rd_call_loss_seed(const rd_call *c);
/* Returns the number of elements stored at v and g: slack rows included, or that of the layout. */
int64_t rd_var_elements(const rd_var *x);

/* Makes a tape, which the caller owns. be and params are borrowed and outlive *out. params may be
 * NULL (no parameters), is sealed, and gets no parameter later. */
rd_code rd_tape_new(rd_backend *be, rd_params *params, rd_tape **out, rd_status *st);
/* Frees the tape and its arenas. NULL is allowed. */
void rd_tape_free(rd_tape *t);
/* Starts a new step: deletes all variables and the arena's contents, and clears the sticky status.
 * with_grad: record for backward. training: dropout is on. */
void rd_tape_reset(rd_tape *t, bool with_grad, bool training);
/* Returns the backend that rd_tape_new got. */
rd_backend *rd_tape_backend(rd_tape *t);
/* Returns the step's arena, for index lists and attributes. */
rd_arena *rd_tape_arena(rd_tape *t);
/* Returns the step's arena in the memory that stores v and g; on a CPU rd_tape_arena. */
rd_arena *rd_tape_device_arena(rd_tape *t);
/* Returns the sticky status. */
rd_status *rd_tape_status(rd_tape *t);
/* Copies the sticky status into st. */
rd_code rd_tape_check(rd_tape *t, rd_status *st);

/* Returns the leaf of a parameter, one per step. The parameter arenas store its value and gradient.
 * It has no slack rows, so it cannot be the left operand of rd_op_linear. NULL param: NULL. */
rd_var *rd_tape_param(rd_tape *t, rd_param *p);
/* Returns a variable without gradient. v is a host array, borrowed until the reset, with
 * RD_SLACK_ROWS readable rows behind it. */
rd_var *rd_tape_const(rd_tape *t, float *v, int64_t rows, int64_t cols);
/* Runs op. Copies attr. Returns out[0] and fills out if it is not NULL. NULL after a failure.
 * RD_EBUG: more than RD_MAX_IN inputs or RD_MAX_OUT outputs. */
rd_var *rd_tape_apply(rd_tape *t, const rd_op *op, const void *attr, size_t attr_bytes,
                      rd_var *const *in, int n_in, rd_var **out, int n_out);
/* A part of a step that backward computes again: records ops on in[] and returns the last result,
 * which has the shape and type of in[0]. The same inputs and parameters give the same ops. */
typedef rd_var *rd_segment(rd_tape *t, const void *ctx, rd_var *const *in);
enum { RD_SEGMENT_IN = 4 };
/* Runs a segment, and keeps its result alone: backward runs it again, and records it then. All
 * values and gradients are the same to the last bit. ctx is copied; pointers inside it stay valid
 * for the whole step. in: 1 to RD_SEGMENT_IN variables. A tape that does not record only runs it.
 * NULL after a failure. A segment inside a segment is RD_EBUG. */
rd_var *rd_tape_recompute(rd_tape *t, rd_segment *f, const void *ctx, size_t ctx_bytes,
                          rd_var *const *in, int n_in);
/* Frees the memory of x for other values: no op recorded later may read x. Backward computes x
 * again from the inputs of its op. Values and gradients stay the same to the last bit. Does nothing
 * if no backward follows, in a segment, for a small x, and if the op of x cannot run again
 * (rd_op.again). x NULL: does nothing. */
void rd_tape_forget(rd_tape *t, rd_var *x);
/* Sets the gradient that the loss gets in rd_tape_backward, usually the config's loss_scale. It
 * is 1 at first and survives resets. Set it before the forward pass: softmax_xent writes its
 * gradients while it has the logits. */
void rd_tape_set_seed(rd_tape *t, float seed);
/* Computes all gradients from loss, (1, 1), of a tape that records (else RD_EBUG). Adds the
 * gradients of parameters to their arena; the caller zeroes it, except for borrowed ones. Calls the
 * hook, if set, when a parameter has its last contribution. Parameters that no record of the step
 * used get no call (a rank without samples has no record at all). Call it once per step. */
rd_code rd_tape_backward(rd_tape *t, rd_var *loss, rd_status *st);
/* Borrows the memory of the parameters' gradients for the next forward pass. A gradient is free
 * from the last use of its parameter until backward arrives there, so the memory holds values of
 * later ops, and gradients of these. The tape zeroes it in time. Gradients are the same to the last
 * bit.
 * Call it before a forward pass whose gradients begin at zero. On a GPU it does nothing. */
void rd_tape_borrow_grads(rd_tape *t);
/* Returns whether the gradient of p is borrowed: its contents are undefined, and the caller does
 * not zero it. */
bool rd_tape_borrows(const rd_tape *t, const rd_param *p);
/* Zeroes the gradients that are still borrowed, and ends that. rd_tape_backward does it at its end;
 * where no backward follows, the caller does. */
void rd_tape_return_grads(rd_tape *t);
/* Returns the largest number of bytes of borrowed memory that were in use so far. */
size_t rd_tape_borrowed_peak(const rd_tape *t);
/* Returns the set of rows of an embedding (RD_PARAM_ROWS) that got a gradient in backward, over all
 * steps since the caller last cleared the set. Row i is bit i % 64 of element i / 64. An op that
 * does not mark rows adds all of them. Borrowed from the tape. NULL: p is no embedding. */
uint64_t *rd_tape_touched(rd_tape *t, const rd_param *p);
typedef void rd_grad_hook(void *ctx, rd_param *p);
/* Sets the hook of rd_tape_backward. */
void rd_tape_on_grad_ready(rd_tape *t, rd_grad_hook *hook, void *ctx);
/* Adds a hook, at most four. It is called before (ends false) and after (ends true) each op's
 * forward or backward kernel. Kernels do not nest. */
typedef void rd_op_hook(void *ctx, const rd_op *op, bool backward, bool ends);
void rd_tape_on_op(rd_tape *t, rd_op_hook *hook, void *ctx);

/* Copies the values (or gradients) of x to the host as float32: rows * cols elements, an image
 * (n, h, w, c) in its variable's order. Waits for a GPU. */
rd_code rd_tape_read(rd_tape *t, const rd_var *x, bool gradient, float *out, rd_status *st);
/* Makes a host array readable for the kernels of this call: a copy in `a` (device_scratch or
 * device_kept), on a CPU the array itself. *out: address of any object pointer. */
rd_code rd_call_lend(rd_call *c, rd_arena *a, const void *host, size_t bytes, void *out,
                     rd_status *st);

/* ---- how a file in runner/ops defines an op; make finds RD_OP and writes the registry ----
 *     RD_OP(x) = {.name = "x", .infer = ..., .kernel = ...};
 * .kernel is one of two:
 *     {[RD_CPU] = {x_forward, x_backward}, [RD_GPU] = RD_GPU_KERNEL(x)}
 *         the op computes on elements; see x.cu
 *     RD_EVERY_BACKEND(x_forward, x_backward)
 *         the op only calls functions with a backend */
#define RD_OP(name)                                               \
    rd_code rd_cuda_##name##_forward(rd_call *c, rd_status *st);  \
    rd_code rd_cuda_##name##_backward(rd_call *c, rd_status *st); \
    extern const rd_op rd_op_def_##name;                          \
    const rd_op rd_op_def_##name
#define RD_GPU_KERNEL(name)                                                             \
    {                                                                                   \
        RD_GPU_ENTRY(rd_cuda_##name##_forward), RD_GPU_ENTRY(rd_cuda_##name##_backward) \
    }
#define RD_EVERY_BACKEND(forward, backward)                              \
    {                                                                    \
        [RD_CPU] = {forward, backward}, [RD_GPU] = { forward, backward } \
    }

RD_C_END
#endif
