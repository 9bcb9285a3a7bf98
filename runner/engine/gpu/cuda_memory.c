/* cuda_memory.c -- the memory of a GPU: copies to and from it, launches of kernels, waiting.
 *
 * All work is queued on the gpu's stream, in the order of the calls. Only arrays that are uploaded
 * ahead of their turn have another stream (cuda_ahead.c).
 *
 * Copies pass through pinned memory. From pageable memory the driver would also copy in the
 * caller's time, and would wait for the stream first. For uploads the pinned memory is a ring of
 * pieces. Small arrays (ids, offsets) share a piece. A piece is used again when the event behind
 * its last copy has passed, so the host waits only when it is a whole ring ahead. Large arrays in
 * pinned memory are uploaded from there. Code that writes to such an array again waits for the
 * event behind the upload. For downloads two pieces take turns: the GPU fills one while the host
 * empties the other. */
#include "cuda_impl.h"
#include <stddef.h>
#include <stdlib.h>

static rd_code stage_new(rd_gpu *g, rd_gpu_stage *s, int pieces, rd_status *st)
{
    TRY_CUDA(g, cudaMallocHost((void **)&s->host, (size_t)pieces * PIECE_BYTES));
    for (int i = 0; i < pieces; i++)
        TRY_CUDA(g, cudaEventCreateWithFlags(&s->done[i], cudaEventDisableTiming));
done:
    return st->code;
}

static void pinned_free(const rd_gpu_memory *m)
{
    for (int i = 0; i < RD_QUEUES; i++)
        if (m->read[i]) (void)cudaEventDestroy(m->read[i]);
    (void)cudaFreeHost(m->p);
}

static void stage_free(rd_gpu_stage *s)
{
    for (int i = 0; i < UP_PIECES; i++)
        if (s->done[i]) (void)cudaEventDestroy(s->done[i]);
    if (s->host) (void)cudaFreeHost(s->host);
}

rd_code rd_gpu_memory_open(rd_gpu *g, rd_status *st)
{
    RD_TRY(stage_new(g, &g->up, UP_PIECES, st));
    RD_TRY(stage_new(g, &g->down, DOWN_PIECES, st));
done:
    return st->code;
}

void rd_gpu_memory_close(rd_gpu *g)
{
    for (int i = 0; i < g->n_memory; i++) (void)cudaFree(g->memory[i].p);
    for (int i = 0; i < g->n_pinned; i++) pinned_free(&g->pinned[i]);
    free(g->memory);
    free(g->pinned);
    stage_free(&g->up);
    stage_free(&g->down);
}

/* The place of a failure that rd_gpu_short recognizes. */
#define SHORT_HERE "cuda_memory.c:rd_gpu_memory_new"

static double gib(uint64_t bytes)
{
    return (double)bytes / 1073741824.0;
}

/* Makes space for one more entry. */
static rd_code list_grow(rd_gpu_memory **list, int n, int *cap, rd_status *st)
{
    if (n < *cap) return st->code;
    const int more = *cap ? 2 * *cap : 64;
    rd_gpu_memory *m = realloc(*list, (size_t)more * sizeof *m);
    if (!m) return rd_fail(st, RD_EENV, "out of memory for the list of device memory");
    *list = m;
    *cap = more;
    return st->code;
}

/* Removes p from the list. The bytes of the result are 0 if p is not in the list. */
static rd_gpu_memory list_remove(rd_gpu_memory *list, int *n, const void *p)
{
    for (int i = 0; i < *n; i++) {
        if (list[i].p != p) continue;
        const rd_gpu_memory m = list[i];
        list[i] = list[--*n];
        return m;
    }
    return (rd_gpu_memory){0};
}

static rd_code memory_new(rd_gpu *g, size_t bytes, bool kept, void *out, rd_status *st)
{
    void *p = NULL;
    memcpy(out, &p, sizeof p);
    RD_TRY(rd_gpu_alive(g, st));
    RD_TRY(list_grow(&g->memory, g->n_memory, &g->cap_memory, st));
    const cudaError_t e = cudaMalloc(&p, bytes ? bytes : 1);
    if (e == cudaErrorMemoryAllocation) {
        size_t left = 0, total = 0;
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&left, &total);
        g->short_asked = bytes;
        g->short_left = left;
        return rd_fail_(st, RD_EENV, SHORT_HERE,
                        "GPU %d is out of memory: %.3f GiB asked for, %.2f GiB in use by this "
                        "rank, %.2f of %.2f GiB free on %s%s",
                        g->index, gib(bytes), gib(g->in_use), gib(left), gib(total), g->info.name,
                        gib(total) - gib(left) > gib(g->in_use) + 2.0
                            ? "; other programs on it hold memory (`nvidia-smi`)"
                            : "");
    }
    RD_TRY(rd_cuda_result(g, e, "cudaMalloc", RD_HERE, st));
    g->memory[g->n_memory++] = (rd_gpu_memory){.p = p, .bytes = bytes, .kept = kept};
    g->in_use += bytes;
    if (kept) g->kept += bytes;
    if (g->in_use > g->peak) g->peak = g->in_use;
    memcpy(out, &p, sizeof p);
done:
    return st->code;
}

rd_code rd_gpu_memory_new(rd_gpu *g, size_t bytes, void *out, rd_status *st)
{
    return memory_new(g, bytes, false, out, st);
}

rd_code rd_gpu_memory_keep(rd_gpu *g, size_t bytes, void *out, rd_status *st)
{
    return memory_new(g, bytes, true, out, st);
}

void rd_gpu_memory_free(rd_gpu *g, void *p)
{
    rd_status own = {.code = RD_OK};
    if (!p || g->lost) return;
    (void)rd_gpu_flush(g, &own); /* a failure sticks */
    if (g->forget) g->forget(g, p);
    (void)cudaStreamSynchronize(g->stream);
    const rd_gpu_memory m = list_remove(g->memory, &g->n_memory, p);
    g->in_use -= m.bytes;
    if (m.kept) g->kept -= m.bytes;
    (void)cudaFree(p);
    /* a failure here happens again in the next call that has a status */
    (void)cudaGetLastError();
}

rd_code rd_gpu_host_new(rd_gpu *g, size_t bytes, void *out, rd_status *st)
{
    void *p = NULL;
    memcpy(out, &p, sizeof p);
    RD_TRY(rd_gpu_alive(g, st));
    RD_TRY(list_grow(&g->pinned, g->n_pinned, &g->cap_pinned, st));
    const cudaError_t e = cudaMallocHost(&p, bytes ? bytes : 1);
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return rd_fail(st, RD_EENV, "no %zu bytes of pinned memory (`ulimit -l` may limit it)",
                       bytes);
    }
    RD_TRY(rd_cuda_result(g, e, "cudaMallocHost", RD_HERE, st));
    rd_gpu_memory *m = &g->pinned[g->n_pinned++];
    *m = (rd_gpu_memory){.p = p, .bytes = bytes};
    for (int i = 0; i < RD_QUEUES; i++)
        TRY_CUDA(g, cudaEventCreateWithFlags(&m->read[i], cudaEventDisableTiming));
    memcpy(out, &p, sizeof p);
done:
    return st->code;
}

void rd_gpu_host_free(rd_gpu *g, void *p)
{
    rd_status own = {.code = RD_OK};
    if (!p || g->lost) return;
    (void)rd_gpu_flush(g, &own);
    for (int i = 0; i < RD_QUEUES; i++) (void)cudaStreamSynchronize(rd_gpu_stream(g, i));
    const rd_gpu_memory m = list_remove(g->pinned, &g->n_pinned, p);
    rd_ahead_forget(g->ahead, m.p, m.bytes);
    if (m.p) pinned_free(&m);
    (void)cudaGetLastError();
}

rd_gpu_memory *rd_gpu_pinned_of(const rd_gpu *g, const void *p, size_t bytes)
{
    const unsigned char *at = p;
    for (int i = 0; i < g->n_pinned; i++) {
        const unsigned char *from = g->pinned[i].p;
        if (at >= from && at + bytes <= from + g->pinned[i].bytes) return &g->pinned[i];
    }
    return NULL;
}

rd_code rd_gpu_will_read(rd_gpu *g, rd_gpu_memory *m, rd_gpu_queue stream, rd_status *st)
{
    TRY_CUDA(g, cudaEventRecord(m->read[stream], rd_gpu_stream(g, stream)));
    m->pending[stream] = true;
done:
    return st->code;
}

rd_code rd_gpu_host_wait(rd_gpu *g, const void *p, rd_status *st)
{
    rd_gpu_memory *m = rd_gpu_pinned_of(g, p, 1);
    RD_TRY(rd_gpu_alive(g, st));
    if (!m) return st->code;
    for (int i = 0; i < RD_QUEUES; i++) {
        if (m->pending[i]) TRY_CUDA(g, cudaEventSynchronize(m->read[i]));
        m->pending[i] = false;
    }
    rd_ahead_forget(g->ahead, m->p, m->bytes);
done:
    return st->code;
}

bool rd_gpu_short(const rd_gpu *g, const rd_status *st, uint64_t *asked, uint64_t *left)
{
    *asked = g->short_asked;
    *left = g->short_left;
    return st->code == RD_EENV && strcmp(st->where, SHORT_HERE) == 0;
}

uint64_t rd_gpu_in_use(const rd_gpu *g)
{
    return g->in_use;
}

uint64_t rd_gpu_kept(const rd_gpu *g)
{
    return g->kept;
}

uint64_t rd_gpu_peak(const rd_gpu *g)
{
    return g->peak;
}

rd_code rd_gpu_scratch_get(rd_gpu *g, rd_gpu_scratch *r, size_t bytes, rd_status *st)
{
    if (r->bytes >= bytes) return st->code;
    rd_gpu_scratch_free(g, r);
    const size_t want = (bytes + bytes / 4 + 0xfffff) / 0x100000 * 0x100000;
    if (rd_gpu_memory_keep(g, want, &r->p, st) == RD_OK) r->bytes = want;
    return st->code;
}

void rd_gpu_scratch_free(rd_gpu *g, rd_gpu_scratch *r)
{
    rd_gpu_memory_free(g, r->p);
    *r = (rd_gpu_scratch){0};
}

/* Moves to the next piece of the ring, and waits until the GPU has read its old contents. */
static rd_code next_piece(rd_gpu *g, rd_status *st)
{
    rd_gpu_stage *s = &g->up;
    TRY_CUDA(g, cudaEventRecord(s->done[s->piece], g->stream));
    s->piece = (s->piece + 1) % UP_PIECES;
    s->used = 0;
    TRY_CUDA(g, cudaEventSynchronize(s->done[s->piece]));
done:
    return st->code;
}

rd_code rd_gpu_upload(rd_gpu *g, void *device, const void *host, size_t bytes, rd_status *st)
{
    RD_TRY(rd_gpu_alive(g, st));
    if (bytes > 0 && !rd_graphs_up(g->graphs, device, host, bytes, st) &&
        !rd_ahead_take(g->ahead, device, host, bytes, st))
        RD_TRY(rd_gpu_up_now(g, device, host, bytes, st));
done:
    return st->code;
}

rd_code rd_gpu_up_now(rd_gpu *g, void *device, const void *host, size_t bytes, rd_status *st)
{
    rd_gpu_stage *s = &g->up;
    const unsigned char *from = host;
    unsigned char *to = device;
    RD_TRY(rd_gpu_alive(g, st));
    rd_gpu_memory *m = bytes > DIRECT ? rd_gpu_pinned_of(g, from, bytes) : NULL;
    if (m) {
        TRY_CUDA(g, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, g->stream));
        rd_ahead_late(g->ahead);
        return rd_gpu_will_read(g, m, RD_QUEUE_OPS, st);
    }
    while (bytes > 0) {
        const size_t free_bytes = PIECE_BYTES - s->used;
        if (free_bytes == 0 || (free_bytes < bytes && bytes <= PIECE_BYTES)) {
            RD_TRY(next_piece(g, st));
            continue;
        }
        const size_t n = bytes < free_bytes ? bytes : free_bytes;
        unsigned char *pinned = s->host + (size_t)s->piece * PIECE_BYTES + s->used;
        memcpy(pinned, from, n);
        TRY_CUDA(g, cudaMemcpyAsync(to, pinned, n, cudaMemcpyHostToDevice, g->stream));
        s->used += (n + 63) / 64 * 64;
        from += n;
        to += n;
        bytes -= n;
    }
done:
    return st->code;
}

rd_code rd_gpu_download(rd_gpu *g, void *host, const void *device, size_t bytes, rd_status *st)
{
    rd_gpu_stage *s = &g->down;
    const unsigned char *from = device;
    unsigned char *to = host;
    RD_TRY(rd_gpu_alive(g, st));
    RD_TRY(rd_gpu_flush(g, st));
    const size_t pieces = (bytes + PIECE_BYTES - 1) / PIECE_BYTES;
    for (size_t i = 0; i < pieces + 1; i++) {
        if (i < pieces) {
            const size_t at = i * PIECE_BYTES,
                         n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
            TRY_CUDA(g, cudaMemcpyAsync(s->host + i % DOWN_PIECES * PIECE_BYTES, from + at, n,
                                        cudaMemcpyDeviceToHost, g->stream));
            TRY_CUDA(g, cudaEventRecord(s->done[i % DOWN_PIECES], g->stream));
        }
        if (i > 0) {
            const size_t k = i - 1, at = k * PIECE_BYTES,
                         n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
            TRY_CUDA(g, cudaEventSynchronize(s->done[k % DOWN_PIECES]));
            memcpy(to + at, s->host + k % DOWN_PIECES * PIECE_BYTES, n);
        }
    }
done:
    return st->code;
}

rd_code rd_gpu_run_copy(rd_gpu *g, const void *args, rd_status *st)
{
    const rd_gpu_move *m = args;
    TRY_CUDA(g, cudaMemcpyAsync(m->to, m->from, m->bytes, cudaMemcpyDeviceToDevice, g->stream));
done:
    return st->code;
}

rd_code rd_gpu_run_zero(rd_gpu *g, const void *args, rd_status *st)
{
    const rd_gpu_move *m = args;
    TRY_CUDA(g, cudaMemsetAsync(m->to, 0, m->bytes, g->stream));
done:
    return st->code;
}

rd_code rd_gpu_copy(rd_gpu *g, void *to, const void *from, size_t bytes, rd_status *st)
{
    const rd_gpu_move m = {to, from, bytes};
    RD_TRY(rd_gpu_alive(g, st));
    if (bytes > 0) RD_TRY(rd_gpu_task_of(g, rd_gpu_run_copy, &m, sizeof m, 0, st));
done:
    return st->code;
}

rd_code rd_gpu_zero(rd_gpu *g, void *device, size_t bytes, rd_status *st)
{
    const rd_gpu_move m = {device, NULL, bytes};
    RD_TRY(rd_gpu_alive(g, st));
    if (bytes > 0) RD_TRY(rd_gpu_task_of(g, rd_gpu_run_zero, &m, sizeof m, 0, st));
done:
    return st->code;
}

rd_code rd_gpu_wait(rd_gpu *g, rd_status *st)
{
    RD_TRY(rd_gpu_alive(g, st));
    RD_TRY(rd_gpu_flush(g, st));
    for (int i = 0; i < RD_QUEUES; i++) TRY_CUDA(g, cudaStreamSynchronize(rd_gpu_stream(g, i)));
done:
    return st->code;
}

/* ---- kernels ---- */

rd_code rd_gpu_run_kernel(rd_gpu *g, const void *args, rd_status *st)
{
    const rd_kernel_call *c = args;
    const dim3 grid = {c->grid[0], c->grid[1], c->grid[2]},
               block = {c->block[0], c->block[1], c->block[2]};
    void *param[RD_MOST_PARAMS];
    RD_TRY(rd_gpu_alive(g, st));
    rd_kernel_params(c, param);
    RD_TRY(rd_cuda_result(g,
                          cudaLaunchKernel(c->function, grid, block, param, c->shared, g->current),
                          c->name, RD_HERE, st));
    g->last_kernel = c->name;
    if (g->sync) RD_TRY(rd_cuda_result(g, cudaStreamSynchronize(g->current), c->name, RD_HERE, st));
done:
    return st->code;
}

rd_code rd_gpu_launch(rd_gpu *g, const rd_kernel_call *c, size_t bytes, rd_status *st)
{
    return rd_gpu_task_of(g, rd_gpu_run_kernel, c, bytes, offsetof(rd_kernel_call, grid), st);
}

rd_graphs *rd_gpu_graphs(const rd_gpu *g)
{
    return g->graphs;
}
