/* setup.c -- sets a run up and tears it down: config structs, data, model, parameters, optimizer, in the order in which
 * they need each other. Each phase that can fail on some ranks only ends with run_agree, so that all leave with the
 * same message. */
#include "run.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

rd_code run_agree(rd_run *r, rd_status *st)
{
    if (rd_comm_agree(r->comm, st) != RD_OK) r->agreed = true;
    return st->code;
}

double run_real(const rd_run *r, const char *key, double dflt)
{
    const json_t *v = rd_config_get(r->config, key);
    return json_is_number(v) ? json_number_value(v) : dflt;
}

bool run_flag(const rd_run *r, const char *key, bool dflt)
{
    const json_t *v = rd_config_get(r->config, key);
    return json_is_boolean(v) ? json_is_true(v) : dflt;
}

const char *run_string(const rd_run *r, const char *key, const char *dflt)
{
    const json_t *v = rd_config_get(r->config, key);
    return json_is_string(v) ? json_string_value(v) : dflt;
}

void run_decode_config(const rd_run *r, bool penalty, rd_decode_config *out)
{
    const bool beam = strcmp(run_string(r, "decoder_type", "greedy"), "beam_search") == 0;
    out->beam_width = beam ? (int64_t)run_real(r, "beam_width", 1.0) : 1;
    out->length_penalty = beam && penalty ? run_real(r, "length_penalty", 0.0) : 0.0;
}

/* Adds the text of ids without line breaks or other control characters: samples are foreign bytes, terminals obey them.
 */
void run_text(const rd_dataset *d, int side, const int32_t *ids, int64_t n, bool specials,
              rd_strbuf *out)
{
    const rd_dataset_def *def = rd_dataset_def_of(d);
    const size_t before = out->n;
    if (!def->text) return;
    def->text(rd_dataset_self(d), side, ids, n, specials, out);
    for (size_t i = before; i < out->n; i++)
        if ((unsigned char)out->s[i] < 0x20 || out->s[i] == 0x7f) out->s[i] = ' ';
}

double run_peak_bytes(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (double)u.ru_maxrss * 1024.0 : 0.0;
}

static rd_code find_model(rd_run *r, rd_status *st)
{
    int n = 0;
    const rd_model_def *const *defs = rd_model_defs(&n);
    r->model = rd_model_find(r->c.model);
    if (r->model) return RD_OK;
    rd_strbuf known = {0};
    for (int i = 0; i < n; i++) rd_strbuf_printf(&known, "%s%s", i ? ", " : "", defs[i]->name);
    rd_fail(st, RD_EUSAGE, "%s: 'model' is '%s', which does not exist; one of %s",
            rd_config_where(r->config, "model"), r->c.model, rd_strbuf_str(&known));
    rd_strbuf_release(&known);
    return st->code;
}

static rd_code find_metric(rd_run *r, rd_status *st)
{
    r->metric = rd_metric_find(r->c.metric);
    if (r->metric) return RD_OK;
    return rd_fail(st, RD_EBUG, "the file of metric '%s' gives it another name", r->c.metric);
}

/* What the mode forces into the config, said once. */
static rd_code force_keys(rd_run *r, rd_status *st)
{
    static const char *const eval_keys[] = {"source_file_eval", "target_file_eval", NULL};
    rd_cli_idle(r->cli, &r->notices);
    if (rd_config_has(r->config, "num_gpus")) {
        const json_t *v = rd_config_get(r->config, "num_gpus");
        if (json_is_integer(v) && json_integer_value(v) != 1)
            rd_strbuf_printf(
                &r->notices,
                "num_gpus %lld is ignored and set to 1: ranks are what counts (mpirun -np N)\n",
                (long long)json_integer_value(v));
        RD_TRY(rd_config_put(r->config, "num_gpus", json_integer(1), "forced", st));
    }
    if (r->mode == RD_MODE_TRAIN) {
        rd_strbuf said = {0};
        for (int i = 0; eval_keys[i]; i++) {
            if (!rd_config_has(r->config, eval_keys[i])) continue;
            rd_strbuf_printf(&said, "%s%s", said.n ? ", " : "", eval_keys[i]);
            rd_config_drop(r->config, eval_keys[i]);
        }
        if (said.n)
            rd_strbuf_printf(
                &r->notices,
                "%s: dropped, train mode does not evaluate (--mode=train_eval does, or --mode=eval "
                "afterwards)\n",
                rd_strbuf_str(&said));
        rd_strbuf_release(&said);
        if (rd_config_has(r->config, "plateau_factor"))
            rd_strbuf_puts(&r->notices, "plateau_factor is without effect: train mode does not "
                                        "evaluate (--mode=train_eval does)\n");
        if (rd_config_has(r->config, "num_epochs") && r->cli->max_steps_given)
            rd_strbuf_printf(&r->notices, "num_epochs is ignored: --max_steps %lld decides\n",
                             (long long)r->cli->max_steps);
    }
done:
    return st->code;
}

bool run_any(const rd_run *r)
{
    return strcmp(r->c.deterministic, "any") == 0;
}

static bool power_of_two(int64_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

/* The same bytes for every number of ranks: what that asks of the config and of where the ranks are. */
static rd_code check_any(rd_run *r, rd_status *st)
{
    const rd_world *w = r->world;
    const char *at = rd_config_where(r->config, "deterministic");
    if (!run_any(r)) {
        if (r->c.micro_batches > 0)
            rd_strbuf_printf(&r->notices,
                             "micro_batches is without effect: deterministic is %s, not any\n",
                             r->c.deterministic);
        return st->code;
    }
    if (!power_of_two(r->c.micro_batches))
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'deterministic' any needs 'micro_batches', a power of two: the parts "
                       "of a global batch; "
                       "8 serves 1, 2, 4 and 8 ranks",
                       at);
    if (r->c.micro_batches % w->size != 0)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'micro_batches' %" PRId64
                       " cannot be shared by %d ranks; start 1, 2, 4, ... ranks, at most "
                       "so many",
                       rd_config_where(r->config, "micro_batches"), r->c.micro_batches, w->size);
    if (r->c.micro_batches > r->global_batch)
        return rd_fail(st, RD_EUSAGE,
                       "%s: a global batch of %" PRId64 " samples has no %" PRId64
                       " 'micro_batches'",
                       rd_config_where(r->config, "micro_batches"), r->global_batch,
                       r->c.micro_batches);
    if (r->c.iter_size > 1)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'iter_size' with 'deterministic' any; a larger batch_size with more "
                       "'micro_batches' takes no "
                       "more memory either",
                       rd_config_where(r->config, "iter_size"));
    if (strcmp(r->c.sampling, "independent") == 0 || r->cli->split_data_per_rank)
        return rd_fail(
            st, RD_EUSAGE,
            "%s: 'deterministic' any with %s, where the samples of a step depend on the number of "
            "ranks",
            at, r->cli->split_data_per_rank ? "--split_data_per_rank" : "'sampling' independent");
    if (run_wire(r) != RD_WIRE_F32)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'allreduce_dtype' %s with 'deterministic' any: sums would depend on "
                       "the number of hosts; take "
                       "float32",
                       rd_config_where(r->config, "allreduce_dtype"), r->c.allreduce_dtype);
    if (w->local_size * w->n_hosts != w->size || w->rank / w->local_size != w->host_index)
        return rd_fail(st, RD_EENV,
                       "'deterministic' any needs the same number of ranks on each host, "
                       "neighbours together; mpirun "
                       "--map-by slot with equal slots does that");
    if (r->c.threads == 0) {
        r->c.threads = 1; /* products may add in another order with other threads */
        rd_strbuf_puts(
            &r->notices,
            "deterministic any: 1 thread a rank, where 'threads' does not say how many\n");
    }
    return st->code;
}

static rd_code run_read_config(rd_run *r, rd_status *st)
{
    r->mode = r->cli->mode_bit == RD_MODE_PLAN ? RD_MODE_BENCH
                                               : r->cli->mode_bit; /* the steps of bench mode */
    RD_TRY(force_keys(r, st));
    RD_TRY(rd_config_read(r->config, &rd_group_run, r->mode, &r->c, st));
    if (!r->c.has_eval_batch_size) r->c.eval_batch_size = r->c.batch_size;
    r->seed = (uint64_t)r->c.seed;
    RD_TRY(find_model(r, st));
    if (r->mode != RD_MODE_INFER) {
        RD_TRY(rd_optim_read(r->config, r->mode, &r->oc, st));
        RD_TRY(rd_optim_check(&r->oc, r->config, st));
        RD_TRY(rd_schedule_read(r->config, r->mode, &r->sc, st));
        RD_TRY(rd_schedule_check(&r->sc, r->config, st));
        if (strcasecmp(r->oc.optimizer, "adadelta") == 0 && r->sc.learning_rate < 0.1)
            rd_strbuf_printf(&r->notices,
                             "adadelta with learning_rate %g: its rule was published with 1.0, and "
                             "newer Keras' default "
                             "of 0.001 is known to train next to nothing\n",
                             r->sc.learning_rate);
    }
    if (r->mode == RD_MODE_EVAL || r->mode == RD_MODE_TRAIN_EVAL) RD_TRY(find_metric(r, st));
    if (__builtin_mul_overflow(r->c.batch_size, (int64_t)r->world->size, &r->global_batch))
        rd_fail(st, RD_EUSAGE, "batch_size %lld times %d ranks is too large a global batch",
                (long long)r->c.batch_size, r->world->size);
    if (st->code == RD_OK && (r->mode == RD_MODE_TRAIN || r->mode == RD_MODE_TRAIN_EVAL))
        (void)check_any(r, st);
done:
    return run_agree(r, st);
}

rd_code run_open_data(rd_run *r, rd_split split, rd_dataset **out, rd_status *st)
{
    const char *name = r->c.dataset && r->c.dataset[0] ? r->c.dataset : r->model->default_dataset;
    const bool train = split == RD_SPLIT_TRAIN;
    const rd_dataset_args a = {.config = r->config,
                               .mode = r->mode,
                               .split = split,
                               .comm = r->comm,
                               .log = r->log,
                               .shard = train && r->cli->split_data_per_rank,
                               .keep_all = !train};
    (void)rd_dataset_new(name, &a, out, st);
    return run_agree(r, st);
}

rd_code run_share_gradients(rd_run *r, rd_status *st)
{
    char why[200];
    float *g;
    (void)rd_comm_arena_new(r->comm, rd_params_span(r->params), &g, why, st);
    if (run_agree(r, st) != RD_OK) return st->code;
    rd_params_use_grads(r->params, g);
    if (why[0]) rd_info(r->log, "gradients are copied for their sum: %s", why);
    return RD_OK;
}

/* Collective. One copy of weights and optimizer state for the ranks of a host, each of which updates its share. */
static rd_code share_weights(rd_run *r, rd_status *st)
{
    char why[200];
    (void)rd_optim_share(r->optim, r->comm, why, st);
    if (run_agree(r, st) != RD_OK) return st->code;
    if (why[0]) rd_info(r->log, "every rank keeps and updates all weights for itself: %s", why);
    return RD_OK;
}

rd_code run_open_model(rd_run *r, const rd_data_spec *spec, bool with_optim, rd_status *st)
{
    const int threads = r->c.threads > 0 ? (int)r->c.threads : r->world->n_cpus;
    r->spec = *spec;
    RD_TRY(device_open(r, threads, st));
    RD_TRY(rd_params_new(&r->params, st));
    const rd_model_args a = {.def = r->model,
                             .config = r->config,
                             .mode = r->mode,
                             .data = spec,
                             .seed = r->seed,
                             .params = r->params,
                             .backend = r->backend,
                             .log = r->log};
    RD_TRY(r->model->create(&a, &r->model_self, st));
    RD_TRY(rd_params_seal(r->params, r->seed, run_real(r, "init_scale", NAN), st));
    if (run_gpu(r)) RD_TRY(rd_params_use_gpu(r->params, run_gpu(r), st));
    if (with_optim) RD_TRY(rd_optim_new(&r->oc, r->params, threads, &r->optim, st));
    RD_TRY(rd_tape_new(r->backend, r->params, &r->tape, st));
    if (with_optim) r->at.loss_scale = device_first_scale(r);
    RD_TRY(device_batches(r, st));
done:
    if (run_agree(r, st) == RD_OK && with_optim && r->world->size > 1 && !run_gpu(r) &&
        run_share_gradients(r, st) == RD_OK)
        (void)share_weights(r, st);
    if (st->code == RD_OK && with_optim) {
        (void)exchange_new(r, &r->exchange, st);
        (void)run_agree(r, st);
    }
    device_note_fixed(r);
    return st->code;
}

/* Sums between GPUs end first: all that waits for the device would hang with one that lacks a rank. The watch ends last. */
static void run_release(rd_run *r)
{
    exchange_free(r->exchange);
    trace_free(r->trace);
    device_free_batches(r);
    rd_tape_free(r->tape);
    rd_optim_free(r->optim);
    if (r->model_self) r->model->destroy(r->model_self);
    rd_params_free(r->params);
    device_close(r);
    rd_dataset_free(r->train);
    rd_dataset_free(r->held);
    rd_strbuf_release(&r->notices);
    rd_watch_stop(r->watch);
}

/* errors/rank_<r>.json in the log folder, where that is to be seen: the one file a rank other than 0 may write. */
static void leave_error(const rd_run *r, int64_t step, const rd_status *st)
{
    char path[4200];
    rd_status own = {0};
    if (!r->owns_logdir || (r->agreed && (st->rank > 0 ? st->rank : 0) != r->world->rank)) return;
    if (access(r->cli->logdir, F_OK) != 0)
        return; /* another host's disk: rank 0's folder is not to be seen here */
    json_t *o = json_pack("{s:i, s:s, s:i, s:I, s:f, s:s, s:s}", "rank", r->world->rank, "host",
                          r->world->host, "exit_code", (int)st->code, "step", (json_int_t)step,
                          "time", rd_wall_s(), "where", st->where, "message", st->msg);
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (!text) return;
    (void)snprintf(path, sizeof path, "%.4000s/errors", r->cli->logdir);
    if (rd_mkdirs(path, &own) == RD_OK) {
        (void)snprintf(path, sizeof path, "%.4000s/errors/rank_%d.json", r->cli->logdir,
                       r->world->rank);
        (void)rd_file_write_atomic(path, text, strlen(text), &own);
    }
    free(text);
}

/* The reason in run.log, by another rank than 0, which does not hear of it any more. */
static void leave_line(const rd_run *r, const rd_status *why)
{
    char path[4200];
    if (!r->owns_logdir || r->world->rank == 0) return;
    (void)snprintf(path, sizeof path, "%.4000s/run.log", r->cli->logdir);
    rd_error_append(r->log, path, why);
}

static void watch_ends(void *ctx, int64_t step, const rd_status *why)
{
    leave_line(ctx, why); /* first: it waits for no disk */
    leave_error(ctx, step, why);
}

void rd_run_tell(rd_comm *comm, rd_log *log, const rd_cli *cli, bool agreed, const rd_status *st)
{
    if (st->code == RD_OK || st->code == RD_ESTOP || (rd_comm_world(comm)->rank != 0 && agreed))
        return;
    rd_error(log, st);
    if (cli->verbose) rd_info(log, "seen at %s", st->where);
}

rd_code rd_run_go(rd_comm *comm, rd_log *log, const rd_cli *cli, rd_config *config,
                  int64_t started_ns, bool *agreed, rd_status *st)
{
    rd_run r = {.comm = comm,
                .world = rd_comm_world(comm),
                .log = log,
                .cli = cli,
                .config = config,
                .started_ns = started_ns,
                .at = {.best_step = -1, .plateau = {.factor = 1.0}}};
    /* Where there is nothing to save, a request ends the process, as it always does. */
    if (cli->mode_bit == RD_MODE_TRAIN || cli->mode_bit == RD_MODE_TRAIN_EVAL) signals_start();
    RD_TRY(world_check_start(&r, st));
    if (cli->mode_bit == RD_MODE_PLAN && !cli->config_file) {
        (void)run_plan_recorded(&r, st);
        goto done;
    }
    RD_TRY(run_read_config(&r, st));
    RD_TRY(device_choose(&r, st));
    /* Alone in infer mode, a rank may be waiting for a person to type. */
    if (r.mode != RD_MODE_INFER || r.world->size > 1) {
        (void)rd_watch_start(
            comm, log, &(rd_watch_limits){r.c.stall_warn_s, r.c.stall_abort_s, watch_ends, &r},
            &r.watch, st);
        RD_TRY(run_agree(&r, st));
    }
    switch (r.mode) {
    case RD_MODE_TRAIN:
    case RD_MODE_TRAIN_EVAL:
        RD_TRY(run_train(&r, st));
        break;
    case RD_MODE_EVAL:
        RD_TRY(run_eval(&r, st));
        break;
    case RD_MODE_INFER:
        RD_TRY(run_infer(&r, st));
        break;
    case RD_MODE_BENCH:
        RD_TRY(cli->mode_bit == RD_MODE_PLAN ? run_plan(&r, st) : run_bench(&r, st));
        break;
    case RD_MODE_PLAN:   /* is one of the above */
    case RD_MODE_DOCTOR: /* needs no run */
        break;
    }
done:
    if (st->code != RD_OK && st->code != RD_ESTOP) {
        /* Rank 0 may be writing, and two hosts of a network file system do not see each other's end of a file. */
        if (!r.agreed && r.world->host_index == 0) leave_line(&r, st);
        leave_error(&r, r.at.step, st);
    }
    *agreed = r.agreed;
    rd_run_tell(comm, log, cli, r.agreed, st); /* what is released may hang with what has failed */
    if (st->code != RD_OK && !r.agreed && r.world->size > 1) rd_watch_leaving(r.watch, st->code);
    run_release(&r);
    return st->code;
}
