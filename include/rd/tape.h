/* tape.h -- eager tape of coarse ops. Each op runs at once and records how to go back;
 * rd_tape_backward runs the records in reverse. Errors stick: after a failure each call does
 * nothing, and the caller asks once with rd_tape_check.
 *
 * Variables are matrices (rows, cols) with an optional shape of more dimensions. RD_SLACK_ROWS spare
 * rows follow v and g, but not those of a parameter (see rd_tape_param). Elements are float32. On a
 * GPU they can also have a 16-bit type, value and gradient alike: rd_op_cast makes such variables,
 * and ops that say so (rd_op.narrow) pass them on. Memory belongs to the step's arena and is gone at
 * rd_tape_reset. A tape belongs to the calling rank alone, and to one thread.
 *
 * How to add an op x:
 *
 *   1. runner/ops/x.c has infer, the CPU kernel, RD_OP(x) (see the end of this header) and the
 *      constructor rd_op_x, which calls rd_tape_apply.
 *   2. runner/ops/x.cu has the CUDA kernel: rd_cuda_x_forward and rd_cuda_x_backward, extern "C".
 *      They take the same rd_call as the CPU kernel. v and g of in[] and out[] are device pointers.
 *      Memory comes from c->device_scratch and c->device_kept. rd_call_lend uploads host arrays.
 *      RD_LAUNCH (runner/engine/gpu/kernel.h) starts a kernel on rd_gpu_of(c->be).
 *      runner/ops/x.h declares what both files use, for example the attribute.
 *   3. include/rd/ops.h, or image.h for images, declares rd_op_x.
 *   4. tests/ops/basic.c, sequence.c or image_ops.c compares x with a reference in double.
 *   5. tests/gpu/op_kinds.h and ops.c have a case that compares the GPU with the CPU. A test fails
 *      while an op has none.
 *   6. A layer that uses the op: include/rd/nn.h or image_net.h, and runner/nn.
 *
 * An op without loops over elements needs no step 2. It only calls functions that take a backend
 * (rd/backend.h, rd/vec.h, rd/cell.h, rd/attention.h, runner/ops/shared) and says RD_EVERY_BACKEND.
 * To add such a function, add an entry to the table of its header. The .c file there has the CPU's
 * loop, and the .cu file of the same name has the GPU's kernel. */
#ifndef RD_TAPE_H
#define RD_TAPE_H

#include "rd/backend.h"
#include "rd/params.h"

RD_C_BEGIN

typedef struct rd_var {
    union { /* value: v where type is RD_FLOAT32 */
        float *v;
        void *values;
    };
    union { /* gradient, zeroed before the first contribution; NULL: not needed */
        float *g;
        void *grads;
    };
    rd_element type; /* of the elements */
    int64_t rows, cols;
    int n_dim; /* 0: a plain matrix */
    int64_t dim[5];
    const void *
        layout; /* images: the backend's own order of elements (see image.h); NULL: as they are written */
    rd_param *param; /* leaf of this parameter, else NULL */
    bool needs_grad;
    bool
        rectified; /* the op that made it ends in max(., 0), and its backward passes g on where v > 0 alone */
    bool g_masked; /* of a rectified one: g is zero already where v is */
} rd_var;

typedef struct rd_tape rd_tape;
typedef struct rd_call rd_call;

typedef struct rd_kernel {
    rd_code (*forward)(rd_call *c, rd_status *st);
    rd_code (*backward)(rd_call *c,
                        rd_status *st); /* adds to the gradients of in[]; NULL: no gradient flows */
} rd_kernel;

typedef struct rd_op {
    const char *name, *about;
    rd_code (*infer)(rd_call *c, rd_status *st); /* checks shapes, sets rows and cols of out[] */
    rd_kernel kernel[RD_BACKENDS];
    unsigned
        narrow; /* RD_NARROW(i): in[i] may have 16-bit elements. Others get float32: RD_EBUG else */
    bool
        marks_rows; /* backward says with rd_tape_touched which rows of an embedding got a gradient */
    bool
        own_grads; /* backward asks for the gradients of in[] by rd_call_grad, and does not need out[]->g afterwards */
} rd_op;

#define RD_NARROW(i) (1u << (i))

enum { RD_MAX_IN = 320, RD_MAX_OUT = 4 };

struct rd_call {
    rd_tape *tape;
    const rd_op *op;
    rd_backend *be;
    rd_arena *step;    /* outputs */
    rd_arena *scratch; /* rewound after the call */
    rd_arena *
        kept; /* for what backward alone needs: the step's arena, or scratch when no backward follows */
    rd_arena *device_scratch,
        *device_kept; /* the same of the memory that v and g lie in: on a CPU, the arenas above */
    const rd_params *params;
    float seed; /* gradient that the loss will get: see rd_tape_set_seed */
    const void
        *attr;   /* copied into the step arena; pointers inside it must live as long as the step */
    void *saved; /* set by forward for backward */
    int n_in, n_out;
    rd_var **in; /* [n_in], in the step arena; an optional input may be NULL */
    rd_var *out[RD_MAX_OUT];
    bool training; /* dropout on */
    bool keep;     /* backward will follow: save what it needs */
};

/* For the backward of ops with own_grads. g: address of any object pointer; it gets where the gradient of in[i] is to go,
 * elements of in[i]->type, NULL when none is needed. *add: it has contributions already; else its contents are undefined,
 * and all of it must be written (channels that pad a block, too: zeros). An input that occurs twice is asked for twice, and
 * the first time filled before the second. */
rd_code rd_call_grad(rd_call *c, int i, void *g, bool *add, rd_status *st);
/* Makes the memory of out[0]->g the gradient of in[i], as it is: where none is there yet, the two are of one shape and type, and it
 * has not been passed to another input. False: nothing was done. The caller may have changed out[0]->g before, and may
 * until it returns. */
bool rd_call_pass_grad(rd_call *c, int i);
/* In backward: the gradient of out[0] where that is the very loss rd_tape_backward started at, else NAN; known without a wait for
 * a GPU. */
float rd_call_loss_seed(const rd_call *c);
/* Elements behind v and g: with the slack rows, or of the layout. */
int64_t rd_var_elements(const rd_var *x);

/* be and params (NULL: none; sealed, no parameter is added later) are borrowed and outlive *out, which the caller owns.
 */
rd_code rd_tape_new(rd_backend *be, rd_params *params, rd_tape **out, rd_status *st);
void rd_tape_free(rd_tape *t); /* NULL is fine */
/* A new step: all variables and the arena's contents are gone, the sticky status is clear. with_grad: record for
 * backward. training: dropout on. */
void rd_tape_reset(rd_tape *t, bool with_grad, bool training);
rd_backend *rd_tape_backend(rd_tape *t);
rd_arena *rd_tape_arena(rd_tape *t); /* the step's arena, for index lists and attributes */
rd_arena *rd_tape_device_arena(
    rd_tape *t); /* the step's arena of the memory that v and g lie in; on a CPU the same */
rd_status *rd_tape_status(rd_tape *t);            /* the sticky status */
rd_code rd_tape_check(rd_tape *t, rd_status *st); /* copies the sticky status into st */

/* The leaf of a parameter, one per step: value and gradient lie in the parameter arenas (no slack rows: it cannot be
 * what rd_op_linear multiplies from the left). NULL param gives NULL. */
rd_var *rd_tape_param(rd_tape *t, rd_param *p);
/* No gradient. v is of the host, borrowed until the reset and has RD_SLACK_ROWS readable rows behind it. */
rd_var *rd_tape_const(rd_tape *t, float *v, int64_t rows, int64_t cols);
/* Runs op. attr is copied. Returns out[0] (and fills out when not NULL); NULL after a failure. RD_EBUG: more than
 * RD_MAX_IN inputs or RD_MAX_OUT outputs. */
rd_var *rd_tape_apply(rd_tape *t, const rd_op *op, const void *attr, size_t attr_bytes,
                      rd_var *const *in, int n_in, rd_var **out, int n_out);
/* The gradient that the loss gets in rd_tape_backward, usually the config's loss_scale; 1 at first, kept over resets.
 * It must be known before the forward pass: softmax_xent writes its gradients while it has the logits. */
void rd_tape_set_seed(rd_tape *t, float seed);
/* loss: (1, 1) of a tape that records, else RD_EBUG. Parameter gradients are added to the arena (the caller zeroes it).
 * The hook, where set, is called when a parameter's gradient has had its last contribution; not for parameters that no
 * record of the step used (a rank without samples has no record at all). Once per step. */
rd_code rd_tape_backward(rd_tape *t, rd_var *loss, rd_status *st);
/* The rows of an embedding (RD_PARAM_ROWS) that backward gave a gradient, of all steps since the caller last cleared the
 * set: bit i % 64 of word i / 64. Ops that do not mark rows touch all of them. Borrowed from the tape; NULL: no embedding. */
uint64_t *rd_tape_touched(rd_tape *t, const rd_param *p);
typedef void rd_grad_hook(void *ctx, rd_param *p);
void rd_tape_on_grad_ready(rd_tape *t, rd_grad_hook *hook, void *ctx);
/* Adds a hook, at most four: called before and after (ends) each op's forward or backward kernel. Kernels do not nest. */
typedef void rd_op_hook(void *ctx, const rd_op *op, bool backward, bool ends);
void rd_tape_on_op(rd_tape *t, rd_op_hook *hook, void *ctx);

/* Values (or gradients) of x to the host as float32: rows * cols elements, of an image n h w c in its variable's order. Waits for a GPU. */
rd_code rd_tape_read(rd_tape *t, const rd_var *x, bool gradient, float *out, rd_status *st);
/* A host array of this call where the op's kernels can read it, in `a` (device_scratch or device_kept); on a CPU the array itself.
 * *out: address of any object pointer. */
rd_code rd_call_lend(rd_call *c, rd_arena *a, const void *host, size_t bytes, void *out,
                     rd_status *st);

/* ---- how an op is defined, in a file of runner/ops; make finds RD_OP and writes the registry ----
 *     RD_OP(x) = {.name = "x", .infer = ..., .kernel = ...};
 * .kernel is one of two:
 *     {[RD_CPU] = {x_forward, x_backward}, [RD_GPU] = RD_GPU_KERNEL(x)}    the op computes on elements; see x.cu
 *     RD_EVERY_BACKEND(x_forward, x_backward)                              it only calls functions with a backend */
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
