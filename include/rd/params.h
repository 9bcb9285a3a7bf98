/* params.h -- all parameters of a model in one flat float32 arena, in reverse order of use, so that buckets of
 * gradients, the optimizer, norms, checksums and checkpoints are operations on ranges. Shapes and order depend on the
 * config alone. Every rank declares the same ones; no function is collective. */
#ifndef RD_PARAMS_H
#define RD_PARAMS_H

#include "rd/arena.h"
#include "rd/backend_kind.h"
#include "rd/gpu.h"
#include <stdint.h>

RD_C_BEGIN

typedef enum rd_init_kind {
    RD_INIT_GLOROT, /* U(-l, l), l = sqrt(6 / (fan_in + fan_out)); or U(-init_scale, init_scale) where the config has
                          one */
    RD_INIT_CONST,     /* value; init_scale does not apply to this and the following */
    RD_INIT_NORMAL,    /* normal with standard deviation `value` */
    RD_INIT_TRUNCATED, /* the same, drawn again beyond two standard deviations */
    RD_INIT_UNIFORM    /* U(-value, value) */
} rd_init_kind;
typedef struct rd_init {
    rd_init_kind kind;
    double value;
    int64_t fan_in, fan_out; /* of the whole matrix of the original */
} rd_init;

enum {
    RD_PARAM_ROWS = 1, /* an embedding: rows that no token of the batch used have gradient zero */
    RD_PARAM_NO_DECAY =
        2, /* a bias or a norm's factor: weight_decay and the trust ratio of LARS pass it over */
    RD_PARAM_STATE = 4 /* not trained: see rd_params_add_state */
};

typedef struct rd_param {
    char name[160];
    int n_dim;
    int64_t dim[4];
    int64_t n;      /* elements */
    int64_t offset; /* first element in the arenas; a multiple of 16 */
    unsigned flags;
    rd_init init;
    double momentum; /* RD_PARAM_STATE */
    int64_t index;   /* in order of declaration */
} rd_param;

typedef struct rd_params rd_params;
/* The caller owns *out. */
rd_code rd_params_new(rd_params **out, rd_status *st);
void rd_params_free(rd_params *p); /* NULL is fine */
/* Declares a parameter of up to 4 dimensions (n_dim 0: a scalar); name is copied. *out is borrowed until
 * rd_params_free. RD_EBUG: the name is taken or too long, or the arenas are laid out; RD_EUSAGE: a size that the config
 * asks for and no memory holds. */
rd_code rd_params_add(rd_params *p, const char *name, int n_dim, const int64_t *dim, rd_init init,
                      unsigned flags, rd_param **out, rd_status *st);
/* Declares a running mean (n elements, all `value` at first) that follows statistics of the batches: what backward adds
 * to its gradient arena is summed over ranks and scaled as gradients are, so that it becomes the mean m over the
 * samples of the step, and the update is v = momentum v + (1 - momentum) m. So it is the same on all ranks at every
 * step. It lies behind all trained parameters in the arenas (from rd_params_trained_span on), does not count in
 * rd_params_count, norms, clipping or decay, has no optimizer slots, and is saved like a parameter. */
rd_code rd_params_add_state(rd_params *p, const char *name, int64_t n, double value,
                            double momentum, rd_param **out, rd_status *st);
/* Lays the arenas out (values, gradients; gaps stay zero) and initialises the values: element
 * i of a parameter is a function of (seed, name, i). init_scale: NAN when the config has none. Once, and no
 * rd_params_add afterwards: RD_EBUG. Out of memory: RD_EENV. */
rd_code rd_params_seal(rd_params *p, uint64_t seed, double init_scale, rd_status *st);
/* n_slots more float arenas of rd_params_trained_span elements, zero-filled (optimizer state); after rd_params_seal, 8
 * in all: RD_EBUG. */
rd_code rd_params_slots(rd_params *p, int n_slots, rd_status *st);

/* Gradients lie in g from now on ([span], zeros, 64-byte aligned; borrowed): memory that ranks share, say. After
 * rd_params_seal and before the first use. */
void rd_params_use_grads(rd_params *p, float *g);
/* The same of the values and of slot k, which hold what they held before; the length is the arena's. Those in use so far are
 * freed, if they are not borrowed too. */
void rd_params_use_values(rd_params *p, float *v);
void rd_params_use_slot(rd_params *p, int k, float *x);

int rd_params_n(const rd_params *p);
rd_param *rd_params_at(const rd_params *p, int i);              /* in order of declaration */
rd_param *rd_params_find(const rd_params *p, const char *name); /* NULL: none of this name */
int64_t rd_params_count(const rd_params *p); /* trainable parameters, without gaps */
int64_t rd_params_span(const rd_params *p);  /* elements of an arena, with gaps; gaps are zero */
int64_t rd_params_trained_span(
    const rd_params *p); /* the trained parameters lie in [0, this), state behind it */
/* Return the arenas of the host, [span] each ([trained_span] of a slot), 64-byte aligned; borrowed until rd_params_free.
 * NULL before rd_params_seal. They only return an address: where a GPU computes, see rd_params_sync_to_host. */
float *rd_params_values(const rd_params *p);
float *rd_params_grads(const rd_params *p);
float *rd_params_slot(const rd_params *p, int k);
int rd_params_n_slots(const rd_params *p);

/* ---- on a GPU ---- */
/* Values, gradients and slots exist twice: in the host's memory and in the GPU's. Whoever writes one side says so, and
 * whoever reads a side first has it brought up to date.
 *   written by the host:    rd_params_touch (values), rd_params_touch_slots, rd_params_touch_grads
 *   written by the GPU:     rd_params_device_changed (values and slots), rd_params_device_changed_grads
 *   read by the host:       rd_params_sync_to_host
 *   read by the GPU:        rd_params_sync_to_device
 * A side that is written in part is read, too. Without a GPU all of this does nothing but count versions.
 * g is borrowed and outlives p. After rd_params_seal. */
rd_code rd_params_use_gpu(rd_params *p, rd_gpu *g, rd_status *st);
rd_backend_kind rd_params_kind(const rd_params *p); /* RD_GPU after rd_params_use_gpu */
rd_gpu *rd_params_gpu(const rd_params *p);          /* NULL: there is the host's side alone */
enum { RD_VALUES = 1, RD_GRADS = 2, RD_SLOTS = 4 };
/* Copies to the host what the GPU wrote last; parts: RD_VALUES | RD_GRADS | RD_SLOTS. Waits for the GPU if it copies. */
rd_code rd_params_sync_to_host(rd_params *p, unsigned parts, rd_status *st);
/* Queues the copy to the GPU of what the host wrote last. */
rd_code rd_params_sync_to_device(rd_params *p, unsigned parts, rd_status *st);
/* Return the arenas of the GPU; without a GPU the host's. */
float *rd_params_device_values(const rd_params *p);
float *rd_params_device_grads(const rd_params *p);
float *rd_params_device_slot(const rd_params *p, int k);
void rd_params_touch_slots(rd_params *p);
void rd_params_touch_grads(rd_params *p);
void rd_params_device_changed(
    rd_params *p); /* values and slots, after an update; counts as rd_params_touch */
void rd_params_device_changed_grads(rd_params *p);

/* Grows by one whenever values change; packed copies compare it. Call rd_params_touch after each write to values. */
uint64_t rd_params_version(const rd_params *p);
void rd_params_touch(rd_params *p);

RD_C_END
#endif
