/* cuda_hold.c -- keeps weights in another form until they change.
 *
 * The forms are: 16 bits for products, the order (co, kh, kw, ci) for cuDNN's convolutions, and the
 * order of cuDNN's recurrent layers. The file also keeps the list of rounded.h. */
#include "cuda_impl.h"
#include "cuda_convert.h"
#include "rd/rounded.h"
#include <stdlib.h>

typedef struct range {
    const float *p;
    int64_t n;
    /* 16-bit copies of all n elements; NULL: not needed so far */
    uint16_t *narrow;
    uint64_t generation;
} range;

/* a copy; its key is W, form and bytes */
typedef struct copy {
    const float *W;
    int form;
    size_t bytes;
    void *out;
    uint64_t generation;
} copy;

/* an array of rounded.h */
typedef struct rounded {
    const float *x;
    int64_t n;
    uint16_t *copy;
} rounded;

struct rd_gpu_held {
    range *range;
    copy *copy;
    rounded *rounded;
    int n_range, cap_range, n_copy, cap_copy, n_rounded, cap_rounded;
};

/* Returns the lists, made at the first call. NULL after a failure. */
static rd_gpu_held *hold_lists(rd_gpu *g, rd_status *st)
{
    if (!g->held) g->held = calloc(1, sizeof *g->held);
    if (!g->held) rd_fail(st, RD_EENV, "out of memory for lists of arrays on the GPU");
    return g->held;
}

/* Makes room for one more entry. list: the address of a pointer to n entries of this size. */
static rd_code hold_grow(void *list, int n, int *cap, size_t size, rd_status *st)
{
    void *p;
    if (n < *cap) return RD_OK;
    const int more = *cap ? 2 * *cap : 16;
    memcpy(&p, list, sizeof p);
    p = realloc(p, (size_t)more * size);
    if (!p) return rd_fail(st, RD_EENV, "out of memory for a list of arrays on the GPU");
    memcpy(list, &p, sizeof p);
    *cap = more;
    return RD_OK;
}

/* Frees the memory of the ranges that begin at p. */
static void hold_forget(rd_gpu *g, const void *p)
{
    rd_gpu_held *h = g->held;
    for (int i = h ? h->n_range - 1 : -1; i >= 0; i--) {
        if (h->range[i].p != p) continue;
        const range r = h->range[i];
        h->range[i] = h->range[--h->n_range];
        for (int k = h->n_copy - 1; k >= 0; k--) {
            const copy c = h->copy[k];
            if (c.W < r.p || c.W >= r.p + r.n) continue;
            h->copy[k] = h->copy[--h->n_copy];
            rd_gpu_memory_free(g, c.out);
        }
        rd_gpu_memory_free(g, r.narrow);
    }
}

rd_code rd_gpu_hold(rd_gpu *g, const float *p, int64_t n, rd_status *st)
{
    rd_gpu_held *h = hold_lists(g, st);
    if (!h) return st->code;
    RD_TRY(hold_grow(&h->range, h->n_range, &h->cap_range, sizeof *h->range, st));
    h->range[h->n_range++] = (range){.p = p, .n = n};
    g->forget = hold_forget;
done:
    return st->code;
}

void rd_gpu_weights_changed(rd_gpu *g)
{
    g->generation++;
}

static range *range_of(const rd_gpu *g, const float *x)
{
    for (int i = 0; g->held && i < g->held->n_range; i++) {
        range *r = &g->held->range[i];
        if (x >= r->p && x < r->p + r->n) return r;
    }
    return NULL;
}

rd_code rd_gpu_held_narrow(rd_gpu *g, const float *x, const uint16_t **out, rd_status *st)
{
    range *r = range_of(g, x);
    *out = rd_gpu_rounded_of(g, x);
    if (*out || !r) return st->code;
    if (!r->narrow || r->generation != g->generation) {
        /* Converts all weights at once. This costs six bytes for each element, and one launch
         * instead of one launch for each weight. */
        const int64_t padded = (r->n + 7) / 8 * 8;
        if (!r->narrow)
            RD_TRY(rd_gpu_memory_keep(g, (size_t)padded * sizeof *r->narrow, &r->narrow, st));
        const rd_narrow_job job = {.x = r->p,
                                   .y = r->narrow,
                                   .batch = 1,
                                   .rows = 1,
                                   .cols = r->n,
                                   .ld_x = r->n,
                                   .ld_y = padded};
        RD_TRY(rd_convert_narrow(g, rd_gpu_is_bfloat16(g) ? RD_NARROW_BF16 : RD_NARROW_HALF16, &job,
                                 1, st));
        r->generation = g->generation;
    }
    *out = r->narrow + (x - r->p);
done:
    return st->code;
}

/* ---- rounded.h ---- */

rd_code rd_gpu_rounded_begin(rd_gpu *g, const float *x, int64_t n, void *narrow, rd_status *st)
{
    rd_gpu_held *h = hold_lists(g, st);
    if (!h) return st->code;
    RD_TRY(hold_grow(&h->rounded, h->n_rounded, &h->cap_rounded, sizeof *h->rounded, st));
    h->rounded[h->n_rounded++] = (rounded){.x = x, .n = n, .copy = narrow};
done:
    return st->code;
}

void rd_gpu_rounded_end(rd_gpu *g)
{
    if (g->held) g->held->n_rounded = 0;
}

void *rd_gpu_rounded_of(const rd_gpu *g, const float *x)
{
    for (int i = g->held ? g->held->n_rounded - 1 : -1; i >= 0; i--) {
        const rounded *r = &g->held->rounded[i];
        if (x >= r->x && x < r->x + r->n) return r->copy + (x - r->x);
    }
    return NULL;
}

/* ---- other forms of weights ---- */

rd_code rd_gpu_hold_copy(rd_gpu *g, const float *w, int form, size_t bytes, void *out,
                         bool *current, rd_status *st)
{
    rd_gpu_held *h = g->held;
    copy *c = NULL;
    void *p = NULL;
    *current = false;
    memcpy(out, &p, sizeof p);
    if (!range_of(g, w)) return st->code;
    for (int i = 0; i < h->n_copy && !c; i++)
        if (h->copy[i].W == w && h->copy[i].form == form && h->copy[i].bytes == bytes)
            c = &h->copy[i];
    if (!c) {
        RD_TRY(hold_grow(&h->copy, h->n_copy, &h->cap_copy, sizeof *h->copy, st));
        RD_TRY(rd_gpu_memory_keep(g, bytes, &p, st));
        c = &h->copy[h->n_copy++];
        *c = (copy){
            .W = w, .form = form, .bytes = bytes, .out = p, .generation = g->generation - 1};
    }
    *current = c->generation == g->generation;
    c->generation = g->generation;
    memcpy(out, &c->out, sizeof c->out);
done:
    return st->code;
}

rd_code rd_gpu_held_filters(rd_gpu *g, const float *W, int64_t taps, int64_t ci, int64_t co,
                            rd_element type, rd_gpu_scratch *scratch, const void **out,
                            rd_status *st)
{
    const size_t bytes = (size_t)(taps * ci * co) * rd_element_bytes(type);
    bool current;
    void *to;
    RD_TRY(rd_gpu_hold_copy(g, W, 0, bytes, &to, &current,
                            st)); /* the types have different sizes */
    if (!to) {
        RD_TRY(rd_gpu_scratch_get(g, scratch, bytes, st));
        to = scratch->p;
    }
    if (!current) RD_TRY(rd_convert_filters(g, taps, ci, co, W, type, to, st));
    *out = to;
done:
    return st->code;
}

void rd_gpu_held_free(rd_gpu *g)
{
    if (!g->held) return;
    free(g->held->range); /* the gpu's own list frees device memory */
    free(g->held->copy);
    free(g->held->rounded);
    free(g->held);
    g->held = NULL;
    g->forget = NULL;
}
