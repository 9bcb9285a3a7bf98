/* gpu_hold.c -- weights that are kept in another form until they change: as 16 bits for products, as (co, kh, kw, ci)
 * for cuDNN. */
#include "gpu_impl.h"
#include "convert.h"
#include <stdlib.h>

typedef struct range {
    const float *p;
    int64_t n;
    uint16_t *narrow; /* of all n; NULL: not wanted so far */
    uint64_t generation;
} range;

typedef struct filters {
    const float *W;
    int64_t n;
    float *out;
    uint64_t generation;
} filters;

struct rd_gpu_held {
    range *range;
    filters *filters;
    int n_range, cap_range, n_filters, cap_filters;
};

static bool grow(void **list, int n, int *cap, size_t size)
{
    if (n < *cap) return true;
    const int more = *cap ? 2 * *cap : 16;
    void *p = realloc(*list, (size_t)more * size);
    if (!p) return false;
    *list = p;
    *cap = more;
    return true;
}

rd_code rd_gpu_hold(rd_gpu *g, const float *p, int64_t n, rd_status *st)
{
    if (!g->held) g->held = calloc(1, sizeof *g->held);
    rd_gpu_held *h = g->held;
    void *list = h ? h->range : NULL;
    if (!h || !grow(&list, h->n_range, &h->cap_range, sizeof *h->range))
        return rd_fail(st, RD_EENV, "out of memory for the list of weights");
    h->range = list;
    h->range[h->n_range++] = (range){.p = p, .n = n};
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
    *out = NULL;
    if (!r) return st->code;
    if (!r->narrow || r->generation != g->generation) {
        /* All at once: it costs six bytes an element, and one launch instead of one for each weight. */
        const int64_t room = (r->n + 7) / 8 * 8;
        if (!r->narrow) RD_TRY(rd_gpu_get(g, (size_t)room * sizeof *r->narrow, &r->narrow, st));
        const rd_narrow_job job = {
            .x = r->p, .y = r->narrow, .batch = 1, .rows = 1, .cols = r->n, .ld_x = r->n, .ld_y = room};
        RD_TRY(rd_convert_narrow(g, rd_gpu_is_ampere(g) ? RD_NARROW_BF16 : RD_NARROW_HALF16, &job, 1, st));
        r->generation = g->generation;
    }
    *out = r->narrow + (x - r->p);
done:
    return st->code;
}

rd_code rd_gpu_held_filters(rd_gpu *g, const float *W, int64_t taps, int64_t ci, int64_t co, rd_gpu_room *room,
                            const float **out, rd_status *st)
{
    const int64_t n = taps * ci * co;
    *out = NULL;
    if (!range_of(g, W)) {
        RD_TRY(rd_gpu_room_get(g, room, (size_t)n * sizeof(float), st));
        RD_TRY(rd_convert_filters(g, taps, ci, co, W, room->p, st));
        *out = room->p;
        return st->code;
    }
    rd_gpu_held *h = g->held;
    filters *f = NULL;
    for (int i = 0; i < h->n_filters && !f; i++)
        if (h->filters[i].W == W && h->filters[i].n == n) f = &h->filters[i];
    if (!f) {
        void *list = h->filters;
        if (!grow(&list, h->n_filters, &h->cap_filters, sizeof *h->filters))
            return rd_fail(st, RD_EENV, "out of memory for the list of filters");
        h->filters = list;
        float *own;
        RD_TRY(rd_gpu_get(g, (size_t)n * sizeof *own, &own, st));
        f = &h->filters[h->n_filters++];
        *f = (filters){.W = W, .n = n, .out = own, .generation = g->generation - 1};
    }
    if (f->generation != g->generation) {
        RD_TRY(rd_convert_filters(g, taps, ci, co, W, f->out, st));
        f->generation = g->generation;
    }
    *out = f->out;
done:
    return st->code;
}

void rd_gpu_held_forget(rd_gpu *g, const void *p)
{
    rd_gpu_held *h = g->held;
    for (int i = h ? h->n_range - 1 : -1; i >= 0; i--) {
        if (h->range[i].p != p) continue;
        const range r = h->range[i];
        h->range[i] = h->range[--h->n_range];
        for (int k = h->n_filters - 1; k >= 0; k--) {
            const filters f = h->filters[k];
            if (f.W < r.p || f.W >= r.p + r.n) continue;
            h->filters[k] = h->filters[--h->n_filters];
            rd_gpu_put(g, f.out);
        }
        rd_gpu_put(g, r.narrow);
    }
}

void rd_gpu_held_free(rd_gpu *g)
{
    if (!g->held) return;
    free(g->held->range); /* device memory goes with the gpu's own list */
    free(g->held->filters);
    free(g->held);
    g->held = NULL;
}
