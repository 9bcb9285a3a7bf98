/* params.c -- the arenas of a model's parameters, their initial values, and their copies on a GPU.
 *
 * Offsets run backwards: the parameter that is declared last comes first in the arenas. It is used
 * last, so its gradient is ready first. Running statistics follow all trained parameters, and
 * frozen parameters follow both. */
#include "rd/params.h"
#include "rd/hash.h"
#include "rd/philox.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ROUND: elements, 64 bytes. MAPPED: arenas of at least this number of bytes are mapped. */
enum { MAX_SLOTS = 8, ROUND = 16, MAPPED = 1 << 20 };

typedef struct arena {
    float *x;
    /* Number of elements. */
    int64_t n;
    /* Owned. NULL: x is borrowed. */
    void *base;
    /* Mapped bytes; 0: base came from calloc. */
    size_t mapped;
    /* The arena on a GPU; NULL: none. */
    float *device;
    enum { SAME, HOST_NEWER, DEVICE_NEWER } newer;
} arena;

struct rd_params {
    /* In order of declaration. Each is allocated alone, so that pointers stay valid. */
    rd_param **at;
    int n, cap, n_slots;
    int64_t span, grad_span, trained_span, count, frozen;
    arena values, grads, slot[MAX_SLOTS];
    bool sealed;
    uint64_t version, frozen_version;
    /* Borrowed. NULL: parameters are on the CPU only. */
    rd_gpu *gpu;
};

/* Allocates n zeros, 64-byte aligned. A large arena takes no memory before its first use, and
 * returns the memory at once: ranks that share memory replace most arenas. */
static bool params_arena_new(arena *a, int64_t n)
{
    /* One vector of slack, and the cost of the alignment. */
    const size_t bytes = (size_t)n * sizeof(float) + 192;
    *a = (arena){.n = n};
    if (bytes >= MAPPED) {
        a->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (a->base == MAP_FAILED) a->base = NULL;
        /* Ops sweep over the whole arena: huge pages need fewer lookups. */
        if (a->base) (void)madvise(a->base, bytes, MADV_HUGEPAGE);
        a->mapped = bytes;
    } else {
        a->base = calloc(1, bytes);
    }
    a->x = (float *)(void *)(((uintptr_t)a->base + 63) / 64 * 64);
    return a->base != NULL;
}

static void arena_release(arena *a)
{
    if (a->base && a->mapped) munmap(a->base, a->mapped);
    if (a->base && !a->mapped) free(a->base);
    *a = (arena){0};
}

static void arena_borrow(arena *a, float *x)
{
    float *device = a->device;
    const int64_t n = a->n;
    arena_release(a);
    a->x = x;
    a->n = n;
    a->device = device;
    a->newer = HOST_NEWER;
}

static rd_code to_host(const rd_params *p, arena *a, rd_status *st)
{
    if (!a->device || a->newer != DEVICE_NEWER) return st->code;
    if (rd_gpu_download(p->gpu, a->x, a->device, (size_t)a->n * sizeof(float), st) == RD_OK)
        a->newer = SAME;
    return st->code;
}

static rd_code to_device(const rd_params *p, arena *a, rd_status *st)
{
    if (!p->gpu || a->newer != HOST_NEWER) return st->code;
    if (rd_gpu_upload(p->gpu, a->device, a->x, (size_t)a->n * sizeof(float), st) != RD_OK)
        return st->code;
    a->newer = SAME;
    rd_gpu_weights_changed(p->gpu);
    return st->code;
}

static rd_code device_arena_new(rd_params *p, arena *a, const char *what, rd_status *st)
{
    if (rd_gpu_memory_new(p->gpu, (size_t)(a->n + ROUND) * sizeof(float), &a->device, st) != RD_OK)
        rd_status_prefix(st,
                         "%s cannot fit into the GPU's memory, whatever the batch_size; use a "
                         "smaller model, or a GPU with more memory",
                         what);
    a->newer = HOST_NEWER;
    return st->code;
}

static void device_arena_free(rd_params *p, arena *a)
{
    if (p->gpu) rd_gpu_memory_free(p->gpu, a->device);
    a->device = NULL;
}

rd_code rd_params_new(rd_params **out, rd_status *st)
{
    *out = calloc(1, sizeof **out);
    return *out ? RD_OK : rd_fail(st, RD_EENV, "out of memory for parameters");
}

void rd_params_free(rd_params *p)
{
    if (!p) return;
    for (int i = 0; i < p->n; i++) free(p->at[i]);
    free(p->at);
    device_arena_free(p, &p->values);
    device_arena_free(p, &p->grads);
    for (int k = 0; k < p->n_slots; k++) device_arena_free(p, &p->slot[k]);
    arena_release(&p->values);
    arena_release(&p->grads);
    for (int k = 0; k < p->n_slots; k++) arena_release(&p->slot[k]);
    free(p);
}

rd_param *rd_params_find(const rd_params *p, const char *name)
{
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->at[i]->name, name) == 0) return p->at[i];
    return NULL;
}

rd_code rd_params_add(rd_params *p, const char *name, int n_dim, const int64_t *dim, rd_init init,
                      unsigned flags, rd_param **out, rd_status *st)
{
    *out = NULL;
    if (p->sealed)
        return rd_fail(st, RD_EBUG, "parameter '%s' declared after the arenas were laid out", name);
    if (rd_params_find(p, name))
        return rd_fail(st, RD_EBUG, "parameter '%s' is declared twice", name);
    if (n_dim < 0 || n_dim > 4 || strlen(name) >= sizeof((*out)->name))
        return rd_fail(st, RD_EBUG, "parameter '%s' has a bad shape or name", name);
    if (p->n == p->cap) {
        const int cap = p->cap ? 2 * p->cap : 32;
        rd_param **at = realloc(p->at, (size_t)cap * sizeof *at);
        if (!at) return rd_fail(st, RD_EENV, "out of memory for parameters");
        p->at = at;
        p->cap = cap;
    }
    rd_param *q = calloc(1, sizeof *q);
    if (!q) return rd_fail(st, RD_EENV, "out of memory for parameters");
    strcpy(q->name, name);
    q->n_dim = n_dim;
    q->n = 1;
    for (int i = 0; i < n_dim; i++) {
        q->dim[i] = dim[i];
        if (dim[i] <= 0 || __builtin_mul_overflow(q->n, dim[i], &q->n) || q->n > INT64_MAX / 64) {
            free(q);
            return rd_fail(
                st, RD_EUSAGE,
                "parameter '%s' would have a size that no memory holds; look at the sizes in the "
                "config",
                name);
        }
    }
    q->init = init;
    q->flags = flags;
    q->index = p->n;
    p->at[p->n++] = q;
    if (!(flags & RD_PARAM_STATE)) p->count += q->n;
    *out = q;
    return RD_OK;
}

rd_code rd_params_add_state(rd_params *p, const char *name, int64_t n, double value,
                            double momentum, rd_param **out, rd_status *st)
{
    const rd_init init = {.kind = RD_INIT_CONST, .value = value};
    if (rd_params_add(p, name, 1, &n, init, RD_PARAM_STATE | RD_PARAM_NO_DECAY, out, st) == RD_OK)
        (*out)->momentum = momentum;
    return st->code;
}

void rd_params_freeze(rd_params *p, rd_param *q)
{
    rd_assert(!p->sealed && !(q->flags & (RD_PARAM_STATE | RD_PARAM_FROZEN)));
    q->flags = (q->flags & ~(unsigned)RD_PARAM_ROWS) | RD_PARAM_FROZEN;
    p->count -= q->n;
    p->frozen += q->n;
}

/* Draws two independent normals by Box and Muller from block (i, try) of the key's stream. */
static void draw_normals(rd_key key, int64_t i, uint32_t try, double z[2])
{
    const uint32_t ctr[4] = {(uint32_t)i, (uint32_t)((uint64_t)i >> 32), try, 0};
    uint32_t r[4];
    rd_philox(ctr, key, r);
    /* u in (0, 1], v in [0, 1). */
    const double u = ((double)r[0] + 1.0) * 0x1p-32, v = (double)r[1] * 0x1p-32;
    const double length = sqrt(-2.0 * log(u)), angle = 6.283185307179586 * v;
    z[0] = length * cos(angle);
    z[1] = length * sin(angle);
}

/* Fills w with normals. Elements 2 i and 2 i + 1 share block (i, 0). */
static void fill_normal(rd_key key, int64_t n, double std, float *w)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < (n + 1) / 2; i++) {
        double z[2];
        draw_normals(key, i, 0, z);
        w[2 * i] = (float)(std * z[0]);
        if (2 * i + 1 < n) w[2 * i + 1] = (float)(std * z[1]);
    }
}

/* Fills w with truncated normals. Element i is the first draw within two standard deviations from
 * blocks (i, 0), (i, 1), ... */
static void fill_truncated(rd_key key, int64_t n, double std, float *w)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
        double z[2] = {3.0, 3.0};
        for (uint32_t try = 0; fabs(z[0]) > 2.0 && fabs(z[1]) > 2.0; try++)
            draw_normals(key, i, try, z);
        w[i] = (float)(std * (fabs(z[0]) <= 2.0 ? z[0] : z[1]));
    }
}

static void init_one(const rd_params *p, const rd_param *q, uint64_t seed, double init_scale)
{
    float *w = p->values.x + q->offset;
    rd_assert(q->offset % ROUND == 0 && q->offset + q->n <= p->span);
    if (q->init.kind == RD_INIT_CONST) {
        for (int64_t i = 0; i < q->n; i++) w[i] = (float)q->init.value;
        return;
    }
    const rd_key key = rd_key_make(seed, RD_RNG_INIT,
                                   rd_fnv(RD_FNV_START, q->name, strlen(q->name)), 0);
    if (q->init.kind == RD_INIT_NORMAL) {
        fill_normal(key, q->n, q->init.value, w);
        return;
    }
    if (q->init.kind == RD_INIT_TRUNCATED) {
        fill_truncated(key, q->n, q->init.value, w);
        return;
    }
    double l = q->init.value;
    if (q->init.kind == RD_INIT_GLOROT)
        l = isnan(init_scale) ? sqrt(6.0 / (double)(q->init.fan_in + q->init.fan_out)) : init_scale;
    rd_philox_uniform(key, 0, q->n, w);
    for (int64_t i = 0; i < q->n; i++) w[i] = (float)((2.0 * (double)w[i] - 1.0) * l);
}

int64_t rd_params_place(const rd_param *q)
{
    return (q->n + ROUND - 1) / ROUND * ROUND;
}

rd_code rd_params_seal(rd_params *p, uint64_t seed, double init_scale, rd_status *st)
{
    if (p->sealed) return rd_fail(st, RD_EBUG, "parameters are laid out twice");
    static const unsigned kinds[] = {0, RD_PARAM_STATE, RD_PARAM_FROZEN};
    int64_t *const ends[] = {&p->trained_span, &p->grad_span, &p->span};
    int64_t end = 0;
    for (int k = 0; k < 3; k++) {
        for (int i = p->n - 1; i >= 0; i--) {
            if ((p->at[i]->flags & (RD_PARAM_STATE | RD_PARAM_FROZEN)) != kinds[k]) continue;
            p->at[i]->offset = end;
            end += rd_params_place(p->at[i]);
        }
        *ends[k] = end;
    }
    rd_assert(p->trained_span <= p->grad_span && p->grad_span <= p->span);
    if (!params_arena_new(&p->values, p->span) || !params_arena_new(&p->grads, p->grad_span))
        return rd_fail(st, RD_EENV,
                       "out of memory for %" PRId64
                       " parameters (%.1f MiB, and %.1f MiB for gradients)",
                       p->count + p->frozen, (double)p->span * 4 / 1048576,
                       (double)p->grad_span * 4 / 1048576);
    p->sealed = true;
    for (int i = 0; i < p->n; i++) init_one(p, p->at[i], seed, init_scale);
    p->version = p->frozen_version = 1;
    return RD_OK;
}

rd_code rd_params_slots(rd_params *p, int n_slots, int64_t n, rd_status *st)
{
    if (!p->sealed || p->n_slots + n_slots > MAX_SLOTS)
        return rd_fail(st, RD_EBUG, "bad number of optimizer slots");
    for (int k = 0; k < n_slots; k++) {
        if (!params_arena_new(&p->slot[p->n_slots], n))
            return rd_fail(st, RD_EENV,
                           "out of memory for the optimizer's state (%.1f MiB per slot)",
                           (double)n * 4 / 1048576);
        if (p->gpu &&
            device_arena_new(p, &p->slot[p->n_slots], "the optimizer's state", st) != RD_OK)
            return st->code;
        p->n_slots++;
    }
    return RD_OK;
}

void rd_params_use_grads(rd_params *p, float *g)
{
    arena_borrow(&p->grads, g);
}

void rd_params_use_values(rd_params *p, float *v)
{
    arena_borrow(&p->values, v);
}

void rd_params_use_slot(rd_params *p, int k, float *x)
{
    arena_borrow(&p->slot[k], x);
}

int rd_params_n(const rd_params *p)
{
    return p->n;
}
rd_param *rd_params_at(const rd_params *p, int i)
{
    return p->at[i];
}
int64_t rd_params_count(const rd_params *p)
{
    return p->count;
}
int64_t rd_params_total(const rd_params *p)
{
    return p->count + p->frozen;
}
int64_t rd_params_grad_span(const rd_params *p)
{
    return p->grad_span;
}
int64_t rd_params_span(const rd_params *p)
{
    return p->span;
}
int64_t rd_params_trained_span(const rd_params *p)
{
    return p->trained_span;
}
float *rd_params_values(const rd_params *p)
{
    return p->values.x;
}
float *rd_params_grads(const rd_params *p)
{
    return p->grads.x;
}
float *rd_params_slot(const rd_params *p, int k)
{
    return p->slot[k].x;
}
static float *device_side(const rd_params *p, const arena *a)
{
    return p->gpu ? a->device : a->x;
}
float *rd_params_device_values(const rd_params *p)
{
    return device_side(p, &p->values);
}
float *rd_params_device_grads(const rd_params *p)
{
    return device_side(p, &p->grads);
}
float *rd_params_device_slot(const rd_params *p, int k)
{
    return device_side(p, &p->slot[k]);
}

rd_code rd_params_sync_to_host(rd_params *p, unsigned parts, rd_status *st)
{
    if (parts & RD_VALUES) RD_TRY(to_host(p, &p->values, st));
    if (parts & RD_GRADS) RD_TRY(to_host(p, &p->grads, st));
    for (int k = 0; parts & RD_SLOTS && k < p->n_slots; k++) RD_TRY(to_host(p, &p->slot[k], st));
done:
    return st->code;
}

rd_code rd_params_sync_to_device(rd_params *p, unsigned parts, rd_status *st)
{
    if (parts & RD_VALUES) RD_TRY(to_device(p, &p->values, st));
    if (parts & RD_GRADS) RD_TRY(to_device(p, &p->grads, st));
    for (int k = 0; parts & RD_SLOTS && k < p->n_slots; k++) RD_TRY(to_device(p, &p->slot[k], st));
done:
    return st->code;
}

rd_backend_kind rd_params_kind(const rd_params *p)
{
    return p->gpu ? RD_GPU : RD_CPU;
}

rd_gpu *rd_params_gpu(const rd_params *p)
{
    return p->gpu;
}

rd_code rd_params_use_gpu(rd_params *p, rd_gpu *g, rd_status *st)
{
    p->gpu = g;
    RD_TRY(device_arena_new(p, &p->values, "the weights", st));
    RD_TRY(rd_gpu_hold(g, p->values.device, p->span, st));
    RD_TRY(device_arena_new(p, &p->grads, "the gradients", st));
    for (int k = 0; k < p->n_slots; k++)
        RD_TRY(device_arena_new(p, &p->slot[k], "the optimizer's state", st));
done:
    return st->code;
}

void rd_params_touch_slots(rd_params *p)
{
    for (int k = 0; k < p->n_slots; k++) p->slot[k].newer = HOST_NEWER;
}
void rd_params_touch_grads(rd_params *p)
{
    p->grads.newer = HOST_NEWER;
}
void rd_params_device_changed(rd_params *p)
{
    p->version++;
    p->values.newer = DEVICE_NEWER;
    if (p->gpu) rd_gpu_weights_changed(p->gpu);
    for (int k = 0; k < p->n_slots; k++) p->slot[k].newer = DEVICE_NEWER;
}
void rd_params_device_changed_grads(rd_params *p)
{
    if (p->gpu) p->grads.newer = DEVICE_NEWER;
}
int rd_params_n_slots(const rd_params *p)
{
    return p->n_slots;
}
uint64_t rd_params_version(const rd_params *p)
{
    return p->version;
}
uint64_t rd_params_version_of(const rd_params *p, const rd_param *q)
{
    return q->flags & RD_PARAM_FROZEN ? p->frozen_version : p->version;
}
void rd_params_updated(rd_params *p)
{
    p->version++;
    p->values.newer = HOST_NEWER;
}
void rd_params_touch(rd_params *p)
{
    rd_params_updated(p);
    p->frozen_version = p->version;
}
