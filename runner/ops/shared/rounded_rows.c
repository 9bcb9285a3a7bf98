/* rounded_rows.c -- see rounded_rows.h. */
#include "rounded_rows.h"
#include "rd/rounded.h"

/* The list of copies that a device has. */
typedef struct rounded_list {
    rd_code (*begin)(rd_gpu *g, const float *x, int64_t n, void *copy, rd_status *st);
    void *(*of)(const rd_gpu *g, const float *x);
    void (*end)(rd_gpu *g);
} rounded_list;
static const rounded_list list[RD_BACKENDS] = {[RD_GPU] = {RD_GPU_ENTRY(rd_gpu_rounded_begin),
                                                           RD_GPU_ENTRY(rd_gpu_rounded_of),
                                                           RD_GPU_ENTRY(rd_gpu_rounded_end)}};

rd_code rd_rounded_new(rd_backend *be, rd_arena *a, int64_t rows, int64_t cols, const float *x,
                       void **copy, rd_status *st)
{
    const rd_element type = rd_backend_activations(be);
    *copy = NULL;
    if (!x || type == RD_FLOAT32 || cols % 8 != 0) return st->code;
    RD_TRY(rd_arena_get(a, (size_t)(rows * cols) * rd_element_bytes(type), copy, st));
    RD_TRY(rd_rounded_again(be, rows, cols, x, *copy, st));
done:
    return st->code;
}

rd_code rd_rounded_again(rd_backend *be, int64_t rows, int64_t cols, const float *x, void *copy,
                         rd_status *st)
{
    if (!copy) return st->code;
    return list[rd_backend_kind_of(be)].begin(rd_gpu_of(be), x, rows * cols, copy, st);
}

rd_code rd_rounded_write(rd_backend *be, int64_t n, const float *x, rd_status *st)
{
    const rounded_list *l = &list[rd_backend_kind_of(be)];
    void *copy = l->of && x ? l->of(rd_gpu_of(be), x) : NULL;
    if (!copy || n == 0) return st->code;
    return rd_backend_cast(be, n, x, RD_FLOAT32, copy, rd_backend_activations(be), false, st);
}

void rd_rounded_end(rd_backend *be)
{
    if (list[rd_backend_kind_of(be)].end) list[rd_backend_kind_of(be)].end(rd_gpu_of(be));
}
