/* device.c -- the device of the ranks, and what a GPU needs: an explanation when its memory is
 * full, and a loss scale where gradients are float16. */
#include "device.h"
#include "rd/near_cores.h"
#include "signals.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Looks for this rank's GPU. A GPU without the libraries is no failure yet: with "device" auto the
 * CPU computes. */
static rd_code device_look(const rd_run *r, int claimed, rd_gpu_seat *s, rd_status *st)
{
    memset(s, 0, sizeof *s);
    (void)snprintf(s->host, sizeof s->host, "%s", r->world->host);
    s->host_index = r->world->host_index;
    s->local_rank = r->world->local_rank;
    return rd_gpu_seat_look(r->model->unit != NULL, claimed, s, st);
}

/* Waits until the GPUs for `wanted` ranks are free, and locks them. Writes their indices. */
static rd_code device_wait(rd_run *r, int n, const char name[][GPU_LOCKS_NAME], int wanted,
                           int *index, rd_status *st)
{
    enum { PAUSE_S = 2 };
    for (int64_t t = 0;
         !gpu_locks_try(&r->gpu_locks, r->config.lock_dir, n, name, wanted, index, st); t++) {
        RD_TRY(st->code);
        if (t == 0 && r->log)
            rd_info(r->log, "waiting for %d free GPU%s of %d: '%s' has locks of other jobs, %s",
                    wanted, RD_S(wanted), n, r->config.lock_dir, r->gpu_locks.holder);
        for (int k = 0; k < PAUSE_S * 10; k++) {
            if (signals_stop() != 0)
                return rd_fail(st, RD_EENV, "stopped while it waited for free GPUs");
            (void)nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        }
    }
done:
    return st->code;
}

/* Collective among the ranks of a host. The first of them locks a GPU for each rank, where lock_dir
 * says so. *claimed: the GPU of this rank; -1: the local rank decides. */
static rd_code device_claim(rd_run *r, int *claimed, rd_status *st)
{
    char name[GPU_LOCKS_MOST][GPU_LOCKS_NAME], why[256];
    int index[GPU_LOCKS_MOST] = {0}, got = 0; /* number of GPUs in index */
    *claimed = -1;
    if (!device_waits(r)) return st->code;
    if (r->world->local_rank == 0) {
        int n = rd_gpu_count(why), wanted = r->world->local_size;
        n = n < GPU_LOCKS_MOST ? n : GPU_LOCKS_MOST;
        for (int i = 0; i < n && st->code == RD_OK; i++) {
            rd_gpu_info info;
            (void)rd_gpu_query(i, &info, st);
            (void)snprintf(name[i], sizeof name[i], "%s", info.uuid);
        }
        wanted = wanted < n ? wanted : n;
        if (st->code == RD_OK && n > 0 && device_wait(r, n, name, wanted, index, st) == RD_OK)
            got = wanted;
    }
    RD_TRY(run_agree(r, st));
    RD_TRY(rd_comm_local_bcast(r->comm, &got, sizeof got, 0, st));
    RD_TRY(rd_comm_local_bcast(r->comm, index, sizeof index, 0, st));
    if (got > 0) *claimed = index[r->world->local_rank % got];
done:
    return st->code;
}

/* Collective. Gathers the GPUs of all ranks, by rank. The caller frees *out. */
static rd_code look_together(rd_run *r, rd_gpu_seat **out, rd_status *st)
{
    rd_gpu_seat mine = {0};
    int claimed;
    *out = calloc((size_t)r->world->size, sizeof **out);
    RD_TRY(device_claim(r, &claimed, st));
    if (*out)
        (void)device_look(r, claimed, &mine, st);
    else
        rd_fail(st, RD_EENV, "out of memory for the GPUs of %d ranks", r->world->size);
    RD_TRY(run_agree(r, st));
    r->gpu_index = mine.index;
    RD_TRY(rd_comm_allgather(r->comm, &mine, *out, (int64_t)sizeof mine, st));
done:
    return st->code;
}

/* Collective. Binds this rank to the cores near its GPU, and adds a line for the banner. */
static rd_code bind_cores(rd_run *r, const char *pci, rd_status *st)
{
    rd_near_cores *all = calloc((size_t)r->world->size, sizeof *all);
    char text[320];
    if (!all) rd_fail(st, RD_EENV, "out of memory for the cores of %d ranks", r->world->size);
    RD_TRY(run_agree(r, st));
    RD_TRY(rd_comm_bind_near(r->comm, pci, all, st));
    const bool warns = rd_near_text(all, r->world->size, text);
    if (text[0]) rd_strbuf_printf(&r->notices, "%s%s\n", warns ? "warning: " : "", text);
done:
    free(all);
    return st->code;
}

bool device_waits(const rd_run *r)
{
    return rd_gpu_compiled() && r->config.device != RD_DEVICE_CPU && r->config.lock_dir &&
           r->config.lock_dir[0];
}

rd_code device_choose(rd_run *r, rd_status *st)
{
    const rd_device asked = r->config.device;
    const bool compiled = rd_gpu_compiled();
    rd_gpu_seat *seat = NULL;
    r->device.device = RD_DEVICE_CPU;
    if (compiled && asked != RD_DEVICE_CPU) RD_TRY(look_together(r, &seat, st));
    (void)rd_gpu_choose(asked, r->config.allow_shared_gpu, compiled, seat, r->world->size,
                        &r->device, st);
    RD_TRY(run_agree(r, st));
    if (r->device.device == RD_DEVICE_CUDA && r->config.cpu_binding == RUN_BINDING_AUTO)
        RD_TRY(bind_cores(r, seat[r->world->rank].pci, st));
    if (r->device.text[0] && (r->world->size > 1 || r->device.device == RD_DEVICE_CPU))
        rd_strbuf_printf(&r->notices, "device %s: %s\n", run_word("device", (int)r->config.device),
                         r->device.text);
done:
    free(seat);
    return st->code;
}

rd_code device_open(rd_run *r, int threads, rd_status *st)
{
    const bool mixed = r->config.dtype == RUN_DTYPE_MIXED;
    if (r->device.device == RD_DEVICE_CUDA) {
        const rd_gpu_options o = {.mixed = mixed,
                                  .tf32 = r->config.tf32,
                                  .shared = r->device.shared,
                                  .graphs = r->config.cuda_graphs != RUN_GRAPHS_OFF,
                                  .rnn = r->config.cudnn_rnn};
        RD_TRY(rd_gpu_new(r->gpu_index, &o, &r->gpu, st));
        RD_TRY(rd_backend_gpu_new(r->gpu, threads, &r->backend, st));
        return st->code;
    }
    RD_TRY(rd_backend_cpu_new(threads, mixed, &r->backend, st));
done:
    return st->code;
}

void device_close(rd_run *r)
{
    rd_backend_free(r->backend);
    rd_gpu_free(r->gpu);
    gpu_locks_release(&r->gpu_locks);
}

rd_code device_check(const rd_run *r, rd_status *st)
{
    return run_gpu(r) ? rd_gpu_wait(run_gpu(r), st) : st->code;
}

void device_report_fallback(const rd_run *r)
{
    const char *note = run_gpu(r) ? rd_gpu_take_note(run_gpu(r)) : NULL;
    if (note) rd_info(r->log, "%s", note);
}

/* ---- memory ---- */

double device_peak_bytes(const rd_run *r)
{
    return run_gpu(r) ? (double)rd_gpu_peak(run_gpu(r)) : 0.0;
}

void device_report_work(const rd_run *r)
{
    if (!run_gpu(r)) return;
    rd_gpu_ahead_counts a;
    rd_gpu_count_ahead(run_gpu(r), &a);
    if (a.taken > 0 || a.is_short)
        rd_info(r->log,
                "batches: %" PRId64 " of %" PRId64
                " %s uploaded during the step before, through %.1f MB of GPU memory%s",
                a.taken, a.taken + a.late, a.taken == 1 ? "was" : "were", (double)a.bytes * 1e-6,
                a.is_short ? ", which was full" : "");
    rd_gpu_rnn_counts n;
    rd_gpu_count_rnn(run_gpu(r), &n);
    if (n.cudnn + n.own > 0)
        rd_info(r->log,
                "LSTM layers in training: %" PRId64 " passes by cuDNN, %" PRId64
                " by own kernels%s%s%s",
                n.cudnn, n.own, n.own ? " (" : "", n.own ? n.why : "", n.own ? ")" : "");
    rd_gpu_graph_counts c;
    rd_gpu_count_graphs(run_gpu(r), &c);
    if (c.started > 0)
        rd_info(r->log,
                "CUDA graphs: %" PRId64 " of %" PRId64
                " launches of the steps (%.1f %%) in %" PRId64 " starts; %" PRId64
                " graph%s, %.1f MB",
                c.tasks, c.all, 100.0 * (double)c.tasks / (double)c.all, c.started, c.graphs,
                RD_S(c.graphs), (double)c.bytes * 1e-6);
}

rd_code device_recurs(const rd_run *r, uint64_t key, rd_status *st)
{
    return run_gpu(r) ? rd_gpu_recurs(run_gpu(r), key, st) : st->code;
}

rd_code device_recurred(const rd_run *r, rd_status *st)
{
    const char *note;
    if (!run_gpu(r)) return st->code;
    (void)rd_gpu_recurred(run_gpu(r), st);
    note = rd_gpu_take_graph_note(run_gpu(r));
    if (note) rd_info(r->log, "%s", note);
    return st->code;
}

/* ---- batches ---- */

/* Where no memory can be pinned, ordinary memory is used. The first byte of the head says which one
 * it is. */
enum { HEAD = 256 };

static void *pinned_alloc(void *gpu, size_t bytes, rd_status *st)
{
    rd_status own = {.code = RD_OK};
    unsigned char *p;
    const bool locked = rd_gpu_host_new(gpu, bytes + HEAD, &p, &own) == RD_OK;
    if (!locked) p = aligned_alloc(HEAD, (bytes + 2 * HEAD - 1) / HEAD * HEAD);
    if (!p) {
        rd_fail(st, RD_EENV, "out of memory for a batch: %zu bytes", bytes);
        return NULL;
    }
    *p = locked;
    return p + HEAD;
}

static void pinned_free(void *gpu, void *p)
{
    if (!p) return;
    unsigned char *at = (unsigned char *)p - HEAD;
    if (*at)
        rd_gpu_host_free(gpu, at);
    else
        free(at);
}

static rd_code pinned_zero(void *gpu, void *p, size_t bytes, rd_status *st)
{
    (void)gpu;
    memset(p, 0, bytes);
    return st->code;
}

static rd_code pinned_settle(void *gpu, void *p, rd_status *st)
{
    return rd_gpu_host_wait(gpu, p, st);
}

rd_code device_open_batches(rd_run *r, rd_status *st)
{
    enum { CHUNK = 1 << 20 };
    if (run_gpu(r)) {
        r->pinned = (rd_arena_source){r->gpu, pinned_alloc, pinned_free, pinned_zero,
                                      pinned_settle};
        RD_TRY(rd_arena_new_from(&r->pinned, CHUNK, &r->batch_arena, st));
        RD_TRY(rd_arena_new_from(&r->pinned, CHUNK, &r->other_batch_arena, st));
        return st->code;
    }
    RD_TRY(rd_arena_new(CHUNK, &r->batch_arena, st));
done:
    return st->code;
}

rd_code device_send_ahead(rd_run *r, const rd_batch *b, rd_status *st)
{
    if (!run_gpu(r)) return st->code;
    for (int i = 0; i < b->n_fields; i++) {
        const rd_field *f = &b->field[i];
        if (f->dtype == RD_F32 && b->n > 0)
            RD_TRY(rd_gpu_up_ahead(run_gpu(r), f->data, (size_t)f->off[b->n] * sizeof(float), st));
    }
done:
    return st->code;
}

void device_close_batches(rd_run *r)
{
    rd_arena_free(r->batch_arena);
    rd_arena_free(r->other_batch_arena);
}

void device_swap_batches(rd_run *r)
{
    rd_arena *last = r->batch_arena;
    r->batch_swaps++;
    if (!r->other_batch_arena) return;
    r->batch_arena = r->other_batch_arena;
    r->other_batch_arena = last;
}

rd_code device_fresh_batch(rd_run *r, rd_status *st)
{
    device_swap_batches(r);
    RD_TRY(rd_arena_settle(r->batch_arena, st));
    rd_arena_reset(r->batch_arena);
done:
    return st->code;
}

/* ---- when memory is full ---- */

void device_measure_fixed(rd_run *r)
{
    if (run_gpu(r)) r->fixed_bytes = rd_gpu_in_use(run_gpu(r));
}

/* Writes what the key shard would free on each GPU, for a message; "": nothing. */
static void name_shard(const rd_run *r, char out[96])
{
    const double n = r->world->size, state = r->optim
                                                 ? 4.0 * (double)rd_params_trained_span(r->params) *
                                                       rd_optim_n_slots(r->optim)
                                                 : 0.0;
    out[0] = '\0';
    if (n > 1.0 && state > 0.0 && !r->optim_config.sharded)
        (void)snprintf(out, 96, "; \"shard\": \"optimizer\" would free %.1f MiB on each GPU",
                       (1.0 - 1.0 / n) * state / 1048576.0);
}

rd_code device_explain_state(const rd_run *r, rd_status *st)
{
    uint64_t asked, left;
    const int parts = run_gpu(r) ? r->world->size : r->world->n_hosts;
    if (st->code != RD_EENV || parts == 1 || r->optim_config.sharded) return st->code;
    if (run_gpu(r) && !rd_gpu_short(run_gpu(r), st, &asked, &left)) return st->code;
    rd_status_prefix(st,
                     "set \"shard\": \"optimizer\", with which each of %d %s keeps 1/%d of the "
                     "optimizer's state",
                     parts, run_gpu(r) ? "GPUs" : "hosts", parts);
    return st->code;
}

rd_code device_explain(const rd_run *r, const char *key, int64_t batch, rd_status *st)
{
    uint64_t asked, left;
    char remedy[256], shard[96];
    if (!run_gpu(r) || st->code != RD_EENV || !rd_gpu_short(run_gpu(r), st, &asked, &left))
        return st->code;
    const uint64_t used = rd_gpu_in_use(run_gpu(r));
    const int64_t fits = rd_gpu_batch_that_fits(batch, r->fixed_bytes, used, asked, left);
    name_shard(r, shard);
    if (fits > 0)
        (void)snprintf(remedy, sizeof remedy, "'%s' %" PRId64 " may fit%s", key, fits, shard);
    else
        (void)snprintf(remedy, sizeof remedy,
                       "not even one sample fits; use a smaller model, or a GPU with more memory%s",
                       shard);
    rd_status_prefix(
        st,
        "'%s' %" PRId64
        " is too much for the memory of the GPU (%.1f MiB of weights, gradients and optimizer, "
        "%.1f MiB of the step so far, %.1f MiB more wanted, %.1f MiB free); %s",
        key, batch, (double)r->fixed_bytes / 1048576.0, (double)(used - r->fixed_bytes) / 1048576.0,
        (double)asked / 1048576.0, (double)left / 1048576.0, remedy);
    return st->code;
}

/* ---- loss scale ---- */

enum { SCALE_FIRST = 1 << 15, SCALE_MOST = 1 << 24, GOOD_STEPS = 2000 };

bool device_scales_loss(const rd_run *r)
{
    return run_gpu(r) && rd_gpu_uses_float16(run_gpu(r));
}

const char *device_product(const rd_run *r)
{
    if (r->config.dtype != RUN_DTYPE_MIXED)
        return run_gpu(r) && r->config.tf32 ? "TF32" : "float32";
    if (run_gpu(r)) return rd_gpu_uses_float16(run_gpu(r)) ? "float16" : "bfloat16";
    return rd_backend_has_bf16(r->backend) ? "bfloat16" : "float32";
}

double device_first_scale(const rd_run *r)
{
    return device_scales_loss(r) && !r->optim_config.has_loss_scale ? SCALE_FIRST
                                                                    : r->optim_config.loss_scale;
}

void device_adapt_scale(rd_run *r, bool finite)
{
    run_progress *at = &r->progress;
    if (!device_scales_loss(r)) return;
    at->good_steps = finite ? at->good_steps + 1 : 0;
    if (!finite && at->loss_scale > 1.0) at->loss_scale *= 0.5;
    if (at->good_steps < GOOD_STEPS) return;
    at->good_steps = 0;
    if (at->loss_scale < SCALE_MOST) at->loss_scale *= 2.0;
}
