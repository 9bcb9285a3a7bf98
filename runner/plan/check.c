/* check.c -- --check: what a training would be, before it is started.
 *
 * It does all that a start does but for the log folder: it reads config and data, makes model and
 * optimizer, and compares the ranks. With --check_steps it also does some steps, whose weights are
 * thrown away. It leaves no file. */
#include "plan.h"
#include "shadow.h"
#include "../run/device.h"
#include "../run/init_from.h"
#include "../run/memory_use.h"
#include "../run/progress.h"
#include "../run/setup.h"
#include "../run/stepper.h"
#include "../run/world.h"
#include "rd/checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/statvfs.h>

enum { WARM_STEPS = 2 };

static double check_mb(double bytes)
{
    return bytes * 1e-6;
}

/* Finds the last step as a training from step 0 does: the least of the limits that are set. *n:
 * batches of an epoch. */
static int64_t check_last_step(const rd_run *r, const stepper *s, int64_t *n)
{
    const int64_t epochs = setup_last_epoch(r);
    double last = (double)r->cli->max_steps;
    *n = rd_order_n_whole(s->order);
    if (epochs < INT64_MAX) {
        const double end = ceil((double)epochs * (double)*n / (double)run_batches(r));
        if (!r->cli->max_steps_given || end < last) last = end;
    }
    if (r->config.max_samples > 0)
        last = fmin(last, ceil((double)r->config.max_samples / (double)run_update_samples(r)));
    return last < 1e15 ? (int64_t)last : INT64_C(1000000000000000);
}

/* The schedule needs the length of an epoch and the end of the training. */
static void check_schedule(rd_run *r, int64_t last_step, int64_t n)
{
    rd_schedule_config *c = &r->schedule_config;
    const int64_t epochs = setup_last_epoch(r);
    c->epoch_steps = (double)n / (double)run_batches(r);
    c->end_epoch = r->config.has_num_epochs ? (double)r->config.num_epochs
                   : epochs < INT64_MAX && !r->cli->max_steps_given
                       ? (double)epochs
                       : (double)last_step / c->epoch_steps;
}

static void print_steps(rd_run *r, int64_t last_step, int64_t n)
{
    char a[32], b[32];
    const char *dir = r->cli->logdir;
    const int64_t there = dir && dir[0] ? rd_ckpt_newest_step(dir) : -1;
    rd_info(r->log, "steps: %s, %.4g epochs of %s batch%s", rd_commas((double)last_step, a),
            n > 0 ? (double)last_step * (double)run_batches(r) / (double)n : 0.0,
            rd_commas((double)n, b), n == 1 ? "" : "es");
    if (there >= 0)
        rd_info(r->log, "log folder: '%s' holds step %" PRId64 "; the training would go on from it",
                dir, there);
}

/* Largest of a value over the ranks. */
static rd_code check_largest(rd_run *r, double *v, rd_status *st)
{
    return rd_comm_max_f64(r->comm, v, 1, st);
}

static rd_code print_memory(rd_run *r, bool stepped, rd_status *st)
{
    const rd_shard *shard = rd_optim_shard_of(r->optim);
    double kept = 4.0 * (double)rd_optim_kept(r->optim);
    const int slots = rd_params_n_slots(r->params), parts = shard ? rd_shard_n_hosts(shard) : 1;
    memory_use m;
    /* The key shard would divide the state among these. */
    const int sharers = rd_optim_is_shared(r->optim) ? r->world->n_hosts : r->world->size;
    char of[80] = "", activations[96] = "not known without --check_steps=10";
    RD_TRY(memory_use_of(r, &m, st));
    RD_TRY(check_largest(r, &kept, st));
    if (shard)
        (void)snprintf(of, sizeof of, "; the largest part of %d %ss, shard optimizer", parts,
                       rd_shard_shares(shard) ? "host" : "rank");
    else if (sharers > 1 && slots > 0)
        (void)snprintf(of, sizeof of, "; %.1f MB with shard optimizer",
                       check_mb(kept * slots) / sharers);
    if (stepped && !r->gpu)
        (void)snprintf(activations, sizeof activations,
                       "%.1f MB, and %.1f MB in the memory of gradients", check_mb(m.activations),
                       check_mb(m.borrowed));
    else if (stepped)
        (void)snprintf(activations, sizeof activations, "in the GPU's %.0f MB", check_mb(m.gpu));
    rd_info(r->log, "memory of a rank%s:",
            rd_optim_is_shared(r->optim) ? " (the ranks of a host share weights and optimizer)"
                                         : "");
    rd_info(r->log, "  weights              %.1f MB", check_mb(m.weights));
    rd_info(r->log, "  gradients            %.1f MB", check_mb(m.gradients));
    rd_info(r->log, "  optimizer            %.1f MB (%s, %d value%s per weight%s)",
            check_mb(kept * slots), rd_optim_def(r->optim)->name, slots, slots == 1 ? "" : "s", of);
    rd_info(r->log, "  activations          %s", activations);
    rd_info(r->log, "  whole process        %.0f MB so far, with data and libraries",
            check_mb(m.process));
    if (r->gpu) rd_info(r->log, "  GPU                  %.0f MB so far", check_mb(m.gpu));
done:
    return run_agree(r, st);
}

/* The free bytes of the disk of a folder, or of the nearest one above it that exists. < 0: not
 * known. */
static double free_bytes(const char *dir)
{
    struct statvfs v;
    char path[4096];
    if (snprintf(path, sizeof path, "%s", dir) >= (int)sizeof path) return -1.0;
    for (;;) {
        if (statvfs(path, &v) == 0) return (double)v.f_bavail * (double)v.f_frsize;
        char *slash = strrchr(path, '/');
        if (!slash && !strcmp(path, ".")) return -1.0;
        if (!slash)
            (void)snprintf(path, sizeof path, ".");
        else if (slash == path && !path[1])
            return -1.0;
        else
            slash[slash == path] = '\0';
    }
}

static void print_disk(rd_run *r)
{
    const double one = 4.0 * (double)rd_params_span(r->params) +
                       4.0 * (double)rd_params_trained_span(r->params) *
                           rd_params_n_slots(r->params);
    const bool best = r->mode == RD_MODE_TRAIN_EVAL;
    const double n = (double)r->config.checkpoint_keep + best;
    const char *dir = r->cli->logdir;
    char room[64] = "";
    const double left = dir && dir[0] ? free_bytes(dir) : -1.0;
    if (left >= 0.0) (void)snprintf(room, sizeof room, "; %.1f GB are free", left * 1e-9);
    rd_info(r->log, "disk: a checkpoint of about %.1f MB, %.0f of them%s: %.1f MB%s", check_mb(one),
            n - best, best ? " and the best" : "", check_mb(n * one), room);
    /* One more is there while the oldest one is removed. */
    if (left >= 0.0 && left < (n + 1.0) * one)
        rd_warn(r->log,
                "the disk of '%s' has no room for the checkpoints; free some, or set "
                "checkpoint_keep",
                dir);
}

/* Does some steps, and prints how long all of them would take. */
static rd_code check_steps(rd_run *r, stepper *s, int64_t last_step, rd_status *st)
{
    const int64_t n = r->cli->check_steps;
    double seconds = 0.0;
    progress p;
    progress_start(&p, r, "checking", "step", WARM_STEPS + n);
    for (int64_t i = 0; i < WARM_STEPS + n; i++) {
        const step_sums in = {0};
        step_sums sum = {0};
        rd_optim_stats stats = {0};
        const int64_t begin_ns = rd_now_ns();
        RD_TRY(stepper_step(s,
                            rd_schedule_at(&r->schedule_config, r->progress.step, r->world->size),
                            &in, &sum, &stats, st));
        if (i >= WARM_STEPS) seconds += (double)(rd_now_ns() - begin_ns) * 1e-9;
        progress_at(&p, i + 1);
    }
    progress_end(&p);
    RD_TRY(check_largest(r, &seconds, st));
    const double all = seconds / (double)n * (double)last_step;
    char steps[32], unit[64];
    if (all < 600.0)
        (void)snprintf(unit, sizeof unit, all < 9.95 ? "%.1f s" : "%.0f s", all);
    else if (all < 36000.0)
        (void)snprintf(unit, sizeof unit, "%.0f minutes", all / 60.0);
    else
        (void)snprintf(unit, sizeof unit, "%.1f hours", all / 3600.0);
    rd_info(r->log,
            "time: %.4g s a step over %" PRId64 " step%s; %s steps would take %s, without "
            "evaluations and saves",
            seconds / (double)n, n, RD_S(n), rd_commas((double)last_step, steps), unit);
done:
    progress_end(&p);
    return run_agree(r, st);
}

rd_code run_check(rd_run *r, rd_status *st)
{
    rd_data_spec spec = {0};
    stepper s;
    int64_t n, last_step;
    const bool steps = r->cli->check_steps > 0;
    stepper_init(&s, r);
    (void)init_check_keys(r, st);
    RD_TRY(run_agree(r, st));
    RD_TRY(shadow_new(r, st));
    RD_TRY(setup_data(r, RD_SPLIT_TRAIN, &r->train_data, st));
    RD_TRY(setup_updates(r, st));
    if (r->mode == RD_MODE_TRAIN_EVAL) RD_TRY(setup_data(r, RD_SPLIT_EVAL, &r->eval_data, st));
    shadow_free(r, st);
    rd_dataset_def_of(r->train_data)->spec(rd_dataset_self(r->train_data), &spec);
    RD_TRY(setup_model(r, &spec, true, st));
    RD_TRY(world_check(r, st));
    s.n_epochs = INT64_MAX;
    (void)stepper_prepare(&s, st);
    RD_TRY(run_agree(r, st));
    last_step = check_last_step(r, &s, &n);
    s.last_step = r->progress.step + WARM_STEPS + r->cli->check_steps;
    check_schedule(r, last_step, n);
    world_banner(r, last_step, n, rd_order_n_samples(s.order));
    print_steps(r, last_step, n);
    if (steps) RD_TRY(check_steps(r, &s, last_step, st));
    RD_TRY(print_memory(r, steps, st));
    if (r->world->rank == 0) print_disk(r);
    rd_info(r->log, "checked: config, data and model fit; nothing was written");
done:
    shadow_free(r, st);
    stepper_release(&s);
    return st->code;
}
