/* modes.c -- lists the option groups of the program, picks the mode and runs it, and reports
 * failures. */
#include "rd/modes.h"
#include "bench/bench.h"
#include "plan/plan.h"
#include "run/device.h"
#include "run/exchange.h"
#include "run/run_modes.h"
#include "run/setup.h"
#include "run/signals.h"
#include "run/starts.h"
#include "run/trace.h"
#include "run/world.h"

#include "rd/file.h"
#include "rd/input.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int rd_option_groups(const rd_option_group *out[RD_MAX_GROUPS])
{
    int n = 0, n_data = 0, n_models = 0;
    const rd_dataset_def *const *data = rd_dataset_defs(&n_data);
    const rd_model_def *const *models = rd_model_defs(&n_models);
    n = rd_groups_add(out, n, &rd_group_run);
    for (int i = 0; i < n_data; i++)
        n = rd_groups_add(out, rd_groups_add(out, n, data[i]->group), data[i]->own);
    for (int i = 0; i < n_models; i++)
        n = rd_groups_add(out, rd_groups_add(out, n, models[i]->group), models[i]->own);
    n = rd_training_groups_add(out, n);
    n = rd_groups_add(out, n, &rd_group_bench);
    n = rd_groups_add(out, n, &rd_group_plan);
    return n;
}

/* Frees the run. Sums between GPUs end first: whatever waits for the GPU would hang in a sum that
 * lacks a rank. The watch ends last. */
static void run_release(rd_run *r)
{
    exchange_free(r->exchange);
    trace_free(r->trace);
    device_close_batches(r);
    rd_tape_free(r->tape);
    rd_optim_free(r->optim);
    if (r->model_self) r->model->destroy(r->model_self);
    rd_params_free(r->params);
    device_close(r);
    rd_shortlist_free(r->shortlist);
    rd_dataset_free(r->train_data);
    rd_dataset_free(r->eval_data);
    rd_strbuf_release(&r->notices);
    json_decref(r->best_measure);
    json_decref(r->dropped);
    json_decref(r->parent);
    if (r->lock >= 0) (void)close(r->lock);
    rd_watch_stop(r->watch);
}

/* Writes LOGDIR/errors/rank_<r>.json, if this host sees the log folder. This is the only file that
 * a rank other than 0 may write. */
static void write_error_file(const rd_run *r, int64_t step, const rd_status *st)
{
    char path[4200];
    rd_status own = {0};
    if (!run_owns_logdir(r) || (r->agreed && (st->rank > 0 ? st->rank : 0) != r->world->rank))
        return;
    if (access(r->cli->logdir, F_OK) != 0) /* rank 0's folder is on another host's disk */
        return;
    json_t *o = json_pack("{s:i, s:s, s:i, s:I, s:f, s:s, s:s}", "rank", r->world->rank, "host",
                          r->world->host, "exit_code", (int)st->code, "step", (json_int_t)step,
                          "time", rd_wall_s(), "where", st->where, "message", st->msg);
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (!text) return;
    (void)snprintf(path, sizeof path, "%.4000s/errors", r->cli->logdir);
    if (rd_mkdir_inside(path, &own) == RD_OK) {
        (void)snprintf(path, sizeof path, "%.4000s/errors/rank_%d.json", r->cli->logdir,
                       r->world->rank);
        (void)rd_file_write_atomic(path, text, strlen(text), &own);
    }
    free(text);
}

/* Appends the reason to run.log. A rank other than 0 does this itself: rank 0 no longer hears of
 * the failure. */
static void append_error_line(const rd_run *r, const rd_status *why)
{
    char path[4200];
    if (!run_owns_logdir(r) || r->world->rank == 0) return;
    (void)snprintf(path, sizeof path, "%.4000s/run.log", r->cli->logdir);
    rd_error_append(r->log, path, why);
}

static void before_watch_abort(void *ctx, int64_t step, const rd_status *why)
{
    append_error_line(ctx, why); /* first, since it does not wait for a disk */
    write_error_file(ctx, step, why);
}

void rd_run_report_failure(rd_comm *comm, rd_log *log, const rd_cli *cli, bool agreed,
                           const rd_status *st)
{
    if (st->code == RD_OK || st->code == RD_ESTOP || (rd_comm_world(comm)->rank != 0 && agreed))
        return;
    rd_error(log, st);
    if (cli->verbose) rd_info(log, "seen at %s", st->where);
}

/* The watch begins, or the mode may wait for a user. */
static void start_is_over(rd_guard **guard)
{
    rd_guard_free(*guard);
    *guard = NULL;
}

rd_code rd_run_mode(rd_comm *comm, rd_log *log, const rd_cli *cli, rd_config *config,
                    rd_guard **guard, int64_t started_ns, bool *agreed, rd_status *st)
{
    rd_run r = {.comm = comm,
                .world = rd_comm_world(comm),
                .log = log,
                .cli = cli,
                .keys = config,
                .started_ns = started_ns,
                .lock = -1,
                .progress = {.best_step = -1,
                             .best_before = -1,
                             .plateau = {.factor = 1.0},
                             .evaluated = {.step = -1}}};
    /* Other modes have nothing to save, so a signal ends the process as usual. */
    if (!cli->check && (cli->mode_bit == RD_MODE_TRAIN || cli->mode_bit == RD_MODE_TRAIN_EVAL))
        signals_start(r.world->rank == 0 ? log : NULL);
    RD_TRY(world_check_start(&r, st));
    if (cli->mode_bit == RD_MODE_PLAN && !cli->config_file) {
        start_is_over(guard);
        (void)run_plan_recorded(&r, st);
        goto done;
    }
    if (cli->mode_bit == RD_MODE_AVERAGE) {
        start_is_over(guard);
        (void)run_average(&r, st);
        goto done;
    }
    RD_TRY(setup_config(&r, st));
    rd_comm_end_within(comm, r.config.stall_abort_s);
    if (device_waits(&r)) start_is_over(guard);
    if (r.mode != RD_MODE_PREPARE) RD_TRY(device_choose(&r, st));
    /* A single rank in infer mode may be waiting for the user to type. In prepare mode all ranks
     * wait for rank 0, and a large text takes hours. */
    if (r.mode != RD_MODE_PREPARE && (r.mode != RD_MODE_INFER || r.world->size > 1)) {
        (void)rd_watch_start(comm, log,
                             &(rd_watch_limits){r.config.stall_warn_s, r.config.stall_abort_s,
                                                before_watch_abort, &r},
                             &r.watch, st);
        RD_TRY(run_agree(&r, st));
    }
    start_is_over(guard);
    switch (r.mode) {
    case RD_MODE_TRAIN:
    case RD_MODE_TRAIN_EVAL:
        RD_TRY(cli->check ? run_check(&r, st) : run_train(&r, st));
        break;
    case RD_MODE_EVAL:
        RD_TRY(run_eval(&r, st));
        break;
    case RD_MODE_INFER:
        RD_TRY(run_infer(&r, st));
        break;
    case RD_MODE_PREPARE:
        RD_TRY(run_prepare(&r, st));
        break;
    case RD_MODE_EXPORT:
        RD_TRY(run_export(&r, st));
        break;
    case RD_MODE_BENCH:
        RD_TRY(cli->mode_bit == RD_MODE_PLAN ? run_plan(&r, st) : run_bench(&r, st));
        break;
    case RD_MODE_AVERAGE:
    case RD_MODE_PLAN:   /* runs one of the above */
    case RD_MODE_DOCTOR: /* needs no run */
    case RD_MODE_RUNS:   /* these read log folders, without ranks */
    case RD_MODE_DIFF:
    case RD_MODE_SHOW:
    case RD_MODE_REPORT:
        break;
    }
done:
    signals_quiet();
    /* A training counts the retries of all ranks itself (run/train.c). */
    if (r.mode != RD_MODE_TRAIN && r.mode != RD_MODE_TRAIN_EVAL && rd_retries() > 0)
        rd_warn(log, "%" PRId64 " read%s tried again; check the disk or the file server",
                rd_retries(), rd_retries() == 1 ? " was" : "s were");
    /* Another rank failed, and its code and message have the cause. */
    if (st->code == RD_EPEER && !r.agreed && r.world->size > 1) rd_watch_yield(r.watch);
    starts_end(&r, st);
    if (st->code != RD_OK && st->code != RD_ESTOP) {
        /* Rank 0 may be writing to run.log, and two hosts of a network file system do not see each
         * other's end of a file. */
        if (!r.agreed && r.world->host_index == 0) append_error_line(&r, st);
        write_error_file(&r, r.progress.step, st);
    }
    *agreed = r.agreed;
    rd_run_report_failure(comm, log, cli, r.agreed,
                          /* report before the release, which may hang because of the failure */
                          st);
    if (st->code != RD_OK && !r.agreed && r.world->size > 1) rd_watch_leaving(r.watch, st->code);
    run_release(&r);
    return st->code;
}
