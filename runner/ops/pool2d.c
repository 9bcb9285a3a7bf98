/* pool2d.c -- the maximum or the mean of windows of images, eight channels at once.
 *   max:  y = max over the window. Its first largest element, in (row, column) order, gets dy.
 *         Forward keeps the index of that element in the window, 16 bits per element. A NaN in the
 *         window is the largest element.
 *   mean: y = sum over the window without padding / number of its pixels without padding. Each of
 *         these pixels gets dy / number. */
#include "shared/image_op.h"
#include <inttypes.h>
#include <string.h>

typedef int32_t i8v __attribute__((vector_size(32)));
typedef uint16_t u8v __attribute__((vector_size(16)));
enum { MAX_SIZE = 255 };

static rd_code pool2d_infer(rd_call *c, rd_status *st)
{
    const rd_pool *a = c->attr;
    const rd_var *x = c->in[0];
    RD_TRY(rd_op_image_check("pool2d", x, st));
    if (a->size < 1 || a->stride < 1 || a->pad_top < 0 || a->pad_left < 0 || a->pad_bottom < 0 ||
        a->pad_right < 0)
        return rd_fail(st, RD_EBUG,
                       "pool2d: size %" PRId64 ", stride %" PRId64 ", or a padding below 0",
                       a->size, a->stride);
    const int64_t h = x->dim[1] + a->pad_top + a->pad_bottom - a->size,
                  w = x->dim[2] + a->pad_left + a->pad_right - a->size;
    if (h < 0 || w < 0 || a->size > MAX_SIZE)
        return rd_fail(st, RD_EUSAGE,
                       "a pool of %" PRId64 "x%" PRId64 " does not fit on images of %" PRId64
                       "x%" PRId64 " with their padding; the model needs larger images",
                       a->size, a->size, x->dim[1], x->dim[2]);
    const int64_t oh = h / a->stride + 1, ow = w / a->stride + 1;
    if (a->pad_top >= a->size || a->pad_left >= a->size ||
        (oh - 1) * a->stride >= x->dim[1] + a->pad_top ||
        (ow - 1) * a->stride >= x->dim[2] + a->pad_left)
        return rd_fail(st, RD_EUSAGE,
                       "a pool of %" PRId64 "x%" PRId64
                       " has a window that lies entirely in the padding",
                       a->size, a->size);
    rd_image_set(c->out[0], x->dim[0], oh, ow, x->dim[3], x->layout);
    c->out[0]->type = x->type;
    c->out[0]->rectified = a->kind == RD_POOL_MAX && x->rectified;
done:
    return st->code;
}

typedef struct pool2d_job {
    const rd_pool *a;
    rd_image_view x, y;
    float *vx, *vy;
    const float *dy; /* backward: vx is then dx */
    uint16_t *place; /* index of the maximum in its window, stored like y */
    bool add;
    bool mask; /* backward: only elements with y > 0 have a gradient */
    /* Every pixel is in exactly one window, and the gradient is not added to another one: windows
     * write instead of adding. */
    bool whole;
} pool2d_job;

typedef struct pool2d_window {
    int64_t r0, r1, s0, s1; /* rows and columns of the window inside the image */
    int64_t at;             /* first pixel of the window, which may be in the padding */
} pool2d_window;

static inline pool2d_window pool2d_window_at(const pool2d_job *j, int64_t p, int64_t q)
{
    const rd_pool *a = j->a;
    const int64_t top = p * a->stride - a->pad_top, left = q * a->stride - a->pad_left;
    return (pool2d_window){.r0 = top < 0 ? -top : 0,
                           .r1 = a->size < j->x.h - top ? a->size : j->x.h - top,
                           .s0 = left < 0 ? -left : 0,
                           .s1 = a->size < j->x.w - left ? a->size : j->x.w - left,
                           .at = top * j->x.w + left};
}

static inline rd_v8 pool2d_load(const float *x, int64_t lanes)
{
    rd_v8 v = {0};
    memcpy(&v, x, (size_t)lanes * sizeof(float));
    return v;
}

static inline rd_v8 pool2d_select(i8v m, rd_v8 a, rd_v8 b)
{
    return (rd_v8)((m & (i8v)a) | (~m & (i8v)b));
}

/* Computes the maximum of one window, for up to eight channels. */
static inline void pool2d_max_of(const pool2d_job *j, const pool2d_window *w, int64_t size,
                                 const float *x, int64_t B, int64_t lanes, float *y,
                                 uint16_t *place)
{
    rd_v8 best = {0};
    i8v at = {0};
    for (int64_t r = w->r0; r < w->r1; r++)
        for (int64_t s = w->s0; s < w->s1; s++) {
            const rd_v8 v = pool2d_load(x + (r * j->x.w + s) * B, lanes);
            const int32_t here = (int32_t)(r * size + s);
            const i8v all = {here, here, here, here, here, here, here, here};
            i8v m = (v > best) | (v != v);
            if (r == w->r0 && s == w->s0) m = (i8v){-1, -1, -1, -1, -1, -1, -1, -1};
            best = pool2d_select(m, v, best);
            at = (m & all) | (~m & at);
        }
    memcpy(y, &best, (size_t)lanes * sizeof(float));
    if (!place) return;
    const u8v small = __builtin_convertvector(at, u8v);
    memcpy(place, &small, (size_t)lanes * sizeof *place);
}

static inline void pool2d_max_back(const pool2d_job *j, const pool2d_window *w, int64_t size,
                                   float *dx, int64_t B, int64_t lanes, const float *y,
                                   const float *dy, const uint16_t *place)
{
    u8v small = {0};
    memcpy(&small, place, (size_t)lanes * sizeof *place);
    const i8v at = __builtin_convertvector(small, i8v);
    rd_v8 g = pool2d_load(dy, lanes);
    if (j->mask) g = (rd_v8)((i8v)g & (pool2d_load(y, lanes) > 0.0f));
    for (int64_t r = w->r0; r < w->r1; r++)
        for (int64_t s = w->s0; s < w->s1; s++) {
            float *to = dx + (r * j->x.w + s) * B;
            const int32_t here = (int32_t)(r * size + s);
            const i8v all = {here, here, here, here, here, here, here, here};
            rd_v8 sum = (rd_v8)((i8v)g & (at == all));
            if (!j->whole) sum += pool2d_load(to, lanes);
            memcpy(to, &sum, (size_t)lanes * sizeof(float));
        }
}

static inline void pool2d_mean_of(const pool2d_job *j, const pool2d_window *w, const float *x,
                                  int64_t B, int64_t lanes, float *y)
{
    rd_v8 sum = {0};
    for (int64_t r = w->r0; r < w->r1; r++)
        for (int64_t s = w->s0; s < w->s1; s++) sum += pool2d_load(x + (r * j->x.w + s) * B, lanes);
    sum /= (float)((w->r1 - w->r0) * (w->s1 - w->s0));
    memcpy(y, &sum, (size_t)lanes * sizeof(float));
}

static inline void pool2d_mean_back(const pool2d_job *j, const pool2d_window *w, float *dx,
                                    int64_t B, int64_t lanes, const float *dy)
{
    const rd_v8 g = pool2d_load(dy, lanes) / (float)((w->r1 - w->r0) * (w->s1 - w->s0));
    for (int64_t r = w->r0; r < w->r1; r++)
        for (int64_t s = w->s0; s < w->s1; s++) {
            float *to = dx + (r * j->x.w + s) * B;
            const rd_v8 sum = j->whole ? g : pool2d_load(to, lanes) + g;
            memcpy(to, &sum, (size_t)lanes * sizeof(float));
        }
}

/* Computes all windows of a plane: a block of channels of one sample. Arguments that the compiler
 * should know are constants. full: size of the windows if no window reaches the padding; 0: each
 * window is checked. */
static inline __attribute__((always_inline)) void pool2d_plane(const pool2d_job *j, bool back,
                                                               int64_t full, int64_t at_x,
                                                               int64_t at_y, int64_t B, int64_t l,
                                                               int64_t lanes)
{
    const bool max = j->a->kind == RD_POOL_MAX;
    const int64_t size = full ? full : j->a->size;
    for (int64_t p = 0; p < j->y.h; p++)
        for (int64_t q = 0; q < j->y.w; q++) {
            pool2d_window w = pool2d_window_at(j, p, q);
            if (full) w = (pool2d_window){0, full, 0, full, w.at};
            float *x = j->vx + at_x + w.at * B + l;
            const int64_t e = at_y + (p * j->y.w + q) * B + l;
            uint16_t *place = j->place ? j->place + e : NULL;
            if (max && !back)
                pool2d_max_of(j, &w, size, x, B, lanes, j->vy + e, place);
            else if (max)
                pool2d_max_back(j, &w, size, x, B, lanes, j->vy + e, j->dy + e, place);
            else if (!back)
                pool2d_mean_of(j, &w, x, B, lanes, j->vy + e);
            else
                pool2d_mean_back(j, &w, x, B, lanes, j->dy + e);
        }
}

static inline __attribute__((always_inline)) void pool2d_part(
    const pool2d_job *j, const bool back, const int64_t full, int64_t lo, int64_t hi)
{
    for (int64_t u = lo; u < hi; u++) {
        const int64_t x = u * j->x.P * j->x.B, y = u * j->y.P * j->y.B, B = j->x.B;
        if (back && !j->add && !j->whole)
            memset(j->vx + x, 0, (size_t)(j->x.P * B) * sizeof(float));
        if (B == 8) {
            pool2d_plane(j, back, full, x, y, 8, 0, 8);
        } else if (B == 16) {
            pool2d_plane(j, back, full, x, y, 16, 0, 8);
            pool2d_plane(j, back, full, x, y, 16, 8, 8);
        } else {
            int64_t l = 0;
            for (; l + 8 <= B; l += 8) pool2d_plane(j, back, full, x, y, B, l, 8);
            if (l < B) pool2d_plane(j, back, full, x, y, B, l, B - l);
        }
    }
}

/* Returns the size of the common pools without padding, which become constants; 0: another pool. */
static int64_t pool2d_full_size(const pool2d_job *j)
{
    const rd_pool *a = j->a;
    const bool inside = !a->pad_top && !a->pad_left &&
                        (j->y.h - 1) * a->stride + a->size <= j->x.h &&
                        (j->y.w - 1) * a->stride + a->size <= j->x.w;
    return inside && a->size <= 3 ? a->size : 0;
}

static void pool2d_forward_part(void *ctx, int64_t lo, int64_t hi)
{
    const pool2d_job *j = ctx;
    if (pool2d_full_size(j) == 2)
        pool2d_part(j, false, 2, lo, hi);
    else if (pool2d_full_size(j) == 3)
        pool2d_part(j, false, 3, lo, hi);
    else
        pool2d_part(j, false, 0, lo, hi);
}
static void pool2d_backward_part(void *ctx, int64_t lo, int64_t hi)
{
    const pool2d_job *j = ctx;
    if (pool2d_full_size(j) == 2)
        pool2d_part(j, true, 2, lo, hi);
    else if (pool2d_full_size(j) == 3)
        pool2d_part(j, true, 3, lo, hi);
    else
        pool2d_part(j, true, 0, lo, hi);
}

static rd_code pool2d_forward(rd_call *c, rd_status *st)
{
    pool2d_job j = {
        .a = c->attr, .x = rd_image_view_of(c->in[0]), .y = rd_image_view_of(c->out[0])};
    j.vx = c->in[0]->v;
    j.vy = c->out[0]->v;
    if (j.a->kind == RD_POOL_MAX && c->keep)
        RD_TRY(rd_arena_get(c->kept, (size_t)(j.y.n * j.y.sample) * sizeof *j.place, &j.place, st));
    c->saved = j.place;
    rd_parallel(c->be, j.x.n * j.x.K, 1, pool2d_forward_part, &j);
done:
    return st->code;
}

static rd_code pool2d_backward(rd_call *c, rd_status *st)
{
    rd_var *x = c->in[0];
    const rd_var *y = c->out[0];
    pool2d_job j = {.a = c->attr,
                    .x = rd_image_view_of(x),
                    .y = rd_image_view_of(y),
                    .vy = y->v,
                    .dy = y->g,
                    .place = c->saved};
    RD_TRY(rd_call_grad(c, 0, &j.vx, &j.add, st));
    if (!j.vx) goto done;
    /* A window whose maximum is 0 gives its gradient to a pixel with x = 0. The op that made x
     * drops that gradient anyway. */
    j.mask = y->rectified && !y->g_masked;
    j.whole = !j.add && j.a->size == j.a->stride && j.y.P * j.a->size * j.a->size == j.x.P &&
              pool2d_full_size(&j) != 0;
    rd_parallel(c->be, j.x.n * j.x.K, 1, pool2d_backward_part, &j);
    x->g_masked = y->rectified && !j.add;
done:
    return st->code;
}

RD_OP(pool2d) = {
    .name = "pool2d",
    .about = "largest value or mean of windows of images",
    .infer = pool2d_infer,
    .kernel = {[RD_CPU] = {pool2d_forward, pool2d_backward}, [RD_GPU] = RD_GPU_KERNEL(pool2d)},
    .narrow = RD_NARROW(0),
    .own_grads = true};

rd_var *rd_op_pool2d(rd_tape *t, const rd_pool *p, rd_var *x)
{
    return x ? rd_tape_apply(t, &rd_op_def_pool2d, p, sizeof *p, &x, 1, NULL, 1) : NULL;
}
