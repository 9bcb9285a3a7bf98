/* params.h -- all parameters of a model in one flat float32 arena, in reverse order of use.
 *
 * Gradient buckets, the optimizer, norms, checksums and checkpoints are then operations on ranges
 * of the arena. The config alone determines shapes and order. Every rank declares the same
 * parameters; no function is collective. */
#ifndef RD_PARAMS_H
#define RD_PARAMS_H

#include "rd/arena.h"
#include "rd/backend_kind.h"
#include "rd/gpu.h"
#include <stdint.h>

RD_C_BEGIN

typedef enum rd_init_kind {
    /* U(-l, l) with l = init_scale if the config has one, else sqrt(6 / (fan_in + fan_out)). The
     * other kinds ignore init_scale. */
    RD_INIT_GLOROT,
    /* `value` everywhere. */
    RD_INIT_CONST,
    /* Normal with mean 0 and standard deviation `value`. */
    RD_INIT_NORMAL,
    /* Normal with standard deviation `value`, drawn again beyond two standard deviations. */
    RD_INIT_TRUNCATED,
    /* U(-value, value). */
    RD_INIT_UNIFORM
} rd_init_kind;
typedef struct rd_init {
    rd_init_kind kind;
    double value;
    /* Of the whole matrix of the original. */
    int64_t fan_in, fan_out;
} rd_init;

enum {
    /* An embedding: rows that no token of the batch used have gradient zero. */
    RD_PARAM_ROWS = 1,
    /* A bias, or the factor of a norm: weight_decay and the trust ratio of LARS skip it. */
    RD_PARAM_NO_DECAY = 2,
    /* Not trained: see rd_params_add_state. */
    RD_PARAM_STATE = 4,
    /* Not trained: see rd_params_freeze. */
    RD_PARAM_FROZEN = 8
};

typedef struct rd_param {
    char name[160];
    /* Number of dimensions; 0: a scalar. */
    int n_dim;
    int64_t dim[4];
    /* Number of elements. */
    int64_t n;
    /* Index of the first element in the arenas, a multiple of 16. */
    int64_t offset;
    unsigned flags;
    rd_init init;
    /* Momentum of the running mean; for RD_PARAM_STATE only. */
    double momentum;
    /* Position in the order of declaration. */
    int64_t index;
} rd_param;

/* Returns whether updates change a parameter by its gradient. */
static inline bool rd_param_trains(const rd_param *p)
{
    return !(p->flags & (RD_PARAM_STATE | RD_PARAM_FROZEN));
}

typedef struct rd_params rd_params;
/* Makes an empty set of parameters. The caller owns *out. */
rd_code rd_params_new(rd_params **out, rd_status *st);
/* Frees the parameters and the arenas that p owns. NULL is allowed. */
void rd_params_free(rd_params *p);
/* Declares a parameter with up to 4 dimensions (n_dim 0: a scalar). Copies name. *out is borrowed
 * until rd_params_free. RD_EBUG: the name exists or is too long, or the arenas are laid out.
 * RD_EUSAGE: the config asks for a size that no memory holds. */
rd_code rd_params_add(rd_params *p, const char *name, int n_dim, const int64_t *dim, rd_init init,
                      unsigned flags, rd_param **out, rd_status *st);
/* Declares a running mean of n elements that follows statistics of the batches. All elements are
 * `value` at first. What backward adds to its gradient arena is summed over ranks and scaled like a
 * gradient. The result is the mean m over the samples of the step. The update is
 *
 *     v = momentum v + (1 - momentum) m
 *
 * so all ranks hold the same v at every step. The arenas store it behind all trained parameters
 * (from rd_params_trained_span on). It does not count in rd_params_count, norms, clipping or decay,
 * and has no optimizer slots. Checkpoints contain it like a parameter. */
rd_code rd_params_add_state(rd_params *p, const char *name, int64_t n, double value,
                            double momentum, rd_param **out, rd_status *st);
/* Freezes a parameter: its values stay as they are. It has no gradient and no optimizer slots, and
 * does not count in rd_params_count. The arenas store it behind running statistics (from
 * rd_params_grad_span on). Checkpoints contain it. Call it before rd_params_seal. */
void rd_params_freeze(rd_params *p, rd_param *q);
/* Lays out the arenas (values, gradients; gaps stay zero) and initialises the values. Element i
 * of a parameter is a function of (seed, name, i). init_scale: NAN if the config has none.
 * RD_EBUG: a second call, or a later rd_params_add. RD_EENV: out of memory. */
rd_code rd_params_seal(rd_params *p, uint64_t seed, double init_scale, rd_status *st);
/* Adds n_slots float arenas for optimizer state, n elements each, all zero. n:
 * rd_params_trained_span, or less if this process keeps a part of the state (rd_optim_shard).
 * RD_EBUG: before rd_params_seal, or more than 8 slots in all. */
rd_code rd_params_slots(rd_params *p, int n_slots, int64_t n, rd_status *st);

/* Stores gradients in g from now on, for example in memory that ranks share. g: [grad_span], zeros,
 * 64-byte aligned; borrowed. Call it after rd_params_seal and before the first use. */
void rd_params_use_grads(rd_params *p, float *g);
/* Store the values, or slot k, in the given memory from now on. The memory holds the current
 * contents already and is as long as the arena; borrowed. The old arena is freed if it was not
 * borrowed. */
void rd_params_use_values(rd_params *p, float *v);
void rd_params_use_slot(rd_params *p, int k, float *x);

/* Returns the number of elements from a parameter's offset to the next one's. */
int64_t rd_params_place(const rd_param *q);
/* Returns the number of parameters. */
int rd_params_n(const rd_params *p);
/* Returns parameter i in the order of declaration. */
rd_param *rd_params_at(const rd_params *p, int i);
/* Returns the parameter with this name. NULL: there is none. */
rd_param *rd_params_find(const rd_params *p, const char *name);
/* Returns the number of trainable elements, without gaps. */
int64_t rd_params_count(const rd_params *p);
/* Returns the same with the frozen elements. */
int64_t rd_params_total(const rd_params *p);
/* Returns the number of elements of the values, gaps included. Gaps are zero. */
int64_t rd_params_span(const rd_params *p);
/* Returns the number of elements of the gradients: frozen parameters are [end, span). */
int64_t rd_params_grad_span(const rd_params *p);
/* Returns the end of the trained parameters: they are [0, end) of an arena, state follows. */
int64_t rd_params_trained_span(const rd_params *p);
/* Return the arenas of the host: values [span], gradients [grad_span], a slot [trained_span],
 * 64-byte aligned. Borrowed until rd_params_free. NULL before rd_params_seal. They only return an
 * address; where a GPU computes, call rd_params_sync_to_host first. */
float *rd_params_values(const rd_params *p);
float *rd_params_grads(const rd_params *p);
float *rd_params_slot(const rd_params *p, int k);
/* Returns the number of slots. */
int rd_params_n_slots(const rd_params *p);

/* ---- on a GPU ---- */
/* Values, gradients and slots exist twice: in the host's memory and in the GPU's. Code that writes
 * one side reports the write. Code that reads a side updates it first. Code that writes only part
 * of a side also reads it.
 *
 *   after a write by the host    rd_params_touch (values), rd_params_touch_slots,
 *                                rd_params_touch_grads
 *   after a write by the GPU     rd_params_device_changed (values and slots),
 *                                rd_params_device_changed_grads
 *   before a read by the host    rd_params_sync_to_host
 *   before a read by the GPU     rd_params_sync_to_device
 *
 * Without a GPU these functions only count versions. */

/* Allocates the arenas on the GPU. g is borrowed and outlives p. Call it after rd_params_seal. */
rd_code rd_params_use_gpu(rd_params *p, rd_gpu *g, rd_status *st);
/* Returns RD_GPU after rd_params_use_gpu, else RD_CPU. */
rd_backend_kind rd_params_kind(const rd_params *p);
/* Returns the GPU. NULL: there is only the host's side. */
rd_gpu *rd_params_gpu(const rd_params *p);
enum { RD_VALUES = 1, RD_GRADS = 2, RD_SLOTS = 4 };
/* Copies to the host what the GPU wrote last. parts: RD_VALUES | RD_GRADS | RD_SLOTS. Waits for the
 * GPU if it copies. */
rd_code rd_params_sync_to_host(rd_params *p, unsigned parts, rd_status *st);
/* Queues the copy to the GPU of what the host wrote last. */
rd_code rd_params_sync_to_device(rd_params *p, unsigned parts, rd_status *st);
/* Return the arenas of the GPU; without a GPU those of the host. */
float *rd_params_device_values(const rd_params *p);
float *rd_params_device_grads(const rd_params *p);
float *rd_params_device_slot(const rd_params *p, int k);
/* Report that the host wrote the slots, or the gradients. */
void rd_params_touch_slots(rd_params *p);
void rd_params_touch_grads(rd_params *p);
/* Reports that the GPU wrote values and slots (an update). Counts as rd_params_touch. */
void rd_params_device_changed(rd_params *p);
/* Reports that the GPU wrote gradients. */
void rd_params_device_changed_grads(rd_params *p);

/* Returns the version of the values. It grows by one at each change; copies in other layouts
 * compare it with their own. */
uint64_t rd_params_version(const rd_params *p);
/* Returns the version of the values of q: updates do not change that of a frozen parameter. */
uint64_t rd_params_version_of(const rd_params *p, const rd_param *q);
/* Reports that the host wrote values. Call it after each write. */
void rd_params_touch(rd_params *p);
/* Reports the same of an update, which writes no frozen value. */
void rd_params_updated(rd_params *p);

RD_C_END
#endif
