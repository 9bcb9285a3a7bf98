/* setup.c -- sets a run up: config structs, data, model, parameters and optimizer, in the order in
 * which they need each other. Each phase that can fail on some ranks only ends with run_agree, so
 * that all ranks leave with the same message. */
#include "setup.h"
#include "decode.h"
#include "device.h"
#include "exchange.h"
#include "rd/input.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

static rd_code find_model(rd_run *r, rd_status *st)
{
    r->model = rd_model_find(r->config.model);
    if (r->model) return RD_OK;
    return rd_fail(st, RD_EBUG, "no model '%s': its name was not looked up", r->config.model);
}

static rd_code find_metric(rd_run *r, rd_status *st)
{
    r->metric = rd_metric_find(r->config.metric);
    if (r->config.second_metric) r->second_metric = rd_metric_find(r->config.second_metric);
    if (r->second_metric && r->second_metric == r->metric)
        return rd_fail(st, RD_EUSAGE, "%s: 'second_metric' is %s, as 'metric' is; leave it out",
                       rd_config_where(r->keys, "second_metric"), r->metric->name);
    if (r->metric) return RD_OK;
    return rd_fail(st, RD_EBUG, "the metric '%s' is registered under another name",
                   r->config.metric);
}

/* Applies what the mode forces on the config, and collects a notice for each change. */
static rd_code force_keys(rd_run *r, rd_status *st)
{
    static const char *const eval_keys[] = {"source_file_eval", "target_file_eval", NULL};
    rd_cli_idle(r->cli, &r->notices);
    if (rd_config_has(r->keys, "num_gpus")) {
        const json_t *v = rd_config_get(r->keys, "num_gpus");
        if (json_is_integer(v) && json_integer_value(v) != 1)
            rd_strbuf_printf(&r->notices,
                             "num_gpus %lld is ignored and set to 1: the number of ranks decides "
                             "(mpirun -np N)\n",
                             (long long)json_integer_value(v));
        RD_TRY(rd_config_put(r->keys, "num_gpus", json_integer(1), "forced", st));
    }
    if (r->mode == RD_MODE_TRAIN) {
        rd_strbuf dropped = {0};
        for (int i = 0; eval_keys[i]; i++) {
            if (!rd_config_has(r->keys, eval_keys[i])) continue;
            rd_strbuf_printf(&dropped, "%s%s", dropped.n ? ", " : "", eval_keys[i]);
            if (!r->dropped) r->dropped = json_object();
            (void)json_object_set_new(r->dropped, eval_keys[i],
                                      json_pack("{s:O, s:s}", "value",
                                                rd_config_get(r->keys, eval_keys[i]), "source",
                                                rd_config_where(r->keys, eval_keys[i])));
            rd_config_drop(r->keys, eval_keys[i]);
        }
        if (dropped.n)
            rd_strbuf_printf(&r->notices,
                             "%s: dropped, train mode does not evaluate (--mode=train_eval does, "
                             "or --mode=eval afterwards)\n",
                             rd_strbuf_str(&dropped));
        rd_strbuf_release(&dropped);
        if (rd_config_has(r->keys, "plateau_factor"))
            rd_strbuf_puts(&r->notices, "plateau_factor is without effect: train mode does not "
                                        "evaluate (--mode=train_eval does)\n");
        if (rd_config_has(r->keys, "num_epochs") && r->cli->max_steps_given)
            rd_strbuf_printf(&r->notices,
                             "num_epochs is ignored: --max_steps %" PRId64 " decides\n",
                             r->cli->max_steps);
    }
done:
    return st->code;
}

/* Warns that N ranks multiply the rate of a config of OpenSeq2Seq, which used it as it is. Such a
 * config has num_gpus, and never lr_scaling. */
static void warn_of_scaling(rd_run *r)
{
    const rd_schedule_config *c = &r->schedule_config;
    const double factor = rd_schedule_factor(c, run_schedule_ranks(r));
    if (rd_config_has(r->keys, "lr_scaling") && run_batch_is_global(r) &&
        c->lr_scaling != RD_SCALE_NONE)
        rd_strbuf_printf(&r->notices,
                         "lr_scaling %s is without effect: '%s' means the same update for every "
                         "number of ranks\n",
                         rd_option_word(&rd_group_schedule, "lr_scaling", (int)c->lr_scaling),
                         r->config.has_batch_tokens ? "batch_tokens" : "batch_sentences");
    if (factor <= 1.0 || !rd_config_has(r->keys, "num_gpus") ||
        rd_config_has(r->keys, "lr_scaling"))
        return;
    rd_strbuf_printf(
        &r->notices,
        "warning: learning_rate %.6g becomes %.6g with %d ranks, by lr_scaling %s; OpenSeq2Seq did "
        "not "
        "scale it: --set lr_scaling=none trains as there, lr_scaling=%s ends this warning\n",
        c->learning_rate, factor * c->learning_rate, r->world->size,
        rd_option_word(&rd_group_schedule, "lr_scaling", (int)c->lr_scaling),
        rd_option_word(&rd_group_schedule, "lr_scaling", (int)c->lr_scaling));
}

static bool power_of_two(int64_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

/* Checks what deterministic any (the same bytes for every number of ranks) asks of the config and
 * of the ranks' placement. */
static rd_code check_any(rd_run *r, rd_status *st)
{
    const rd_world *w = r->world;
    const char *at = rd_config_where(r->keys, "deterministic");
    if (!run_any(r)) {
        if (r->config.micro_batches > 0)
            rd_strbuf_printf(&r->notices,
                             "micro_batches is without effect: deterministic is %s, not any\n",
                             run_word("deterministic", (int)r->config.deterministic));
        return st->code;
    }
    if (!power_of_two(r->config.micro_batches))
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'deterministic' any needs 'micro_batches', a power of two: the number "
                       "of parts of a global batch; 8 works for 1, 2, 4 and 8 ranks",
                       at);
    if (r->config.micro_batches % w->size != 0)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'micro_batches' %" PRId64
                       " cannot be shared by %d ranks; start 1, 2, 4, ... ranks, at most as many",
                       rd_config_where(r->keys, "micro_batches"), r->config.micro_batches, w->size);
    if (!r->config.has_batch_tokens && r->config.micro_batches > r->global_batch)
        return rd_fail(st, RD_EUSAGE,
                       "%s: a global batch of %" PRId64 " samples has no %" PRId64
                       " 'micro_batches'",
                       rd_config_where(r->keys, "micro_batches"), r->global_batch,
                       r->config.micro_batches);
    if (r->config.iter_size > 1)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'iter_size' with 'deterministic' any; a larger batch with more "
                       "'micro_batches' needs no more memory either",
                       rd_config_where(r->keys, "iter_size"));
    if (r->config.sampling == RUN_SAMPLING_INDEPENDENT || r->cli->split_data_per_rank)
        return rd_fail(
            st, RD_EUSAGE,
            "%s: 'deterministic' any with %s, where the samples of a step depend on the number of "
            "ranks",
            at, r->cli->split_data_per_rank ? "--split_data_per_rank" : "'sampling' independent");
    if (r->config.allreduce_dtype != RD_WIRE_F32)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'allreduce_dtype' %s with 'deterministic' any: sums would depend on "
                       "the number of hosts; use float32",
                       rd_config_where(r->keys, "allreduce_dtype"),
                       rd_wire_name(r->config.allreduce_dtype));
    if (w->local_size * w->n_hosts != w->size || w->rank / w->local_size != w->host_index)
        return rd_fail(
            st, RD_EENV,
            "'deterministic' any needs the same number of ranks on each host, with consecutive "
            "ranks on a host; mpirun --map-by slot with equal slots does that");
    if (r->config.threads == 0) {
        r->config.threads = 1; /* with more threads, products may add in another order */
        rd_strbuf_puts(&r->notices,
                       "deterministic any: 1 thread per rank, since 'threads' is not set\n");
    }
    return st->code;
}

/* Checks the keys that give the size of a batch, and computes the global batch. That of
 * batch_tokens is known with the data (setup_updates). Bench mode without batch_size times the
 * updates of a training. */
static rd_code check_batch(rd_run *r, rd_status *st)
{
    const run_config *c = &r->config;
    const char *global = c->has_batch_tokens ? "batch_tokens" : "batch_sentences";
    const bool train = r->mode == RD_MODE_TRAIN || r->mode == RD_MODE_TRAIN_EVAL ||
                       (r->mode == RD_MODE_BENCH && !c->has_batch_size);
    if (!c->has_eval_batch_size) r->config.eval_batch_size = c->has_batch_size ? c->batch_size : 64;
    if (!train && r->mode != RD_MODE_BENCH) return RD_OK;
    if (train && c->has_batch_tokens + c->has_batch_sentences + c->has_batch_size > 1)
        return rd_fail(st, RD_EUSAGE,
                       "%s: '%s' beside '%s', which %s; remove one of them (--set %s=null)",
                       rd_config_where(r->keys, global), global,
                       c->has_batch_size ? "batch_size" : "batch_sentences",
                       c->has_batch_size ? "is the batch of one rank" : "counts samples",
                       c->has_batch_size ? "batch_size" : "batch_sentences");
    if (train && !c->has_batch_size && !run_batch_is_global(r))
        return rd_fail(st, RD_EUSAGE,
                       "missing key 'batch_size': the samples of a rank and forward pass; add it "
                       "to the config, or 'batch_tokens' or 'batch_sentences', which count those "
                       "of all ranks");
    if (train && run_batch_is_global(r) && c->sampling == RUN_SAMPLING_INDEPENDENT)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'sampling' independent has a batch for each rank, and '%s' is that of "
                       "all ranks; use batch_size, or sampling shard",
                       rd_config_where(r->keys, "sampling"), global);
    if (c->has_batch_sentences && train)
        r->global_batch = c->batch_sentences;
    else if (c->has_batch_tokens && train)
        r->global_batch = 1; /* until setup_updates */
    else if (__builtin_mul_overflow(c->batch_size, (int64_t)r->world->size, &r->global_batch))
        return rd_fail(st, RD_EUSAGE,
                       "batch_size %" PRId64 " times %d ranks: the global batch is too large",
                       c->batch_size, r->world->size);
    if (r->global_batch < r->world->size && c->has_batch_sentences && train)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'batch_sentences' %" PRId64 " is less than one sample for each of %d "
                       "ranks; start fewer ranks",
                       rd_config_where(r->keys, "batch_sentences"), c->batch_sentences,
                       r->world->size);
    return RD_OK;
}

rd_code setup_updates(rd_run *r, rd_status *st)
{
    const rd_dataset *d = r->train_data;
    const int64_t tokens = r->config.batch_tokens;
    int64_t in_all, samples = 0;
    if (!r->config.has_batch_tokens) return RD_OK;
    const int64_t n = rd_order_n_updates(d, tokens, &in_all);
    if (!rd_dataset_def_of(d)->tokens) {
        rd_fail(st, RD_EUSAGE,
                "%s: 'batch_tokens' counts target tokens, which the samples of '%s' do not have; "
                "use batch_sentences, which counts samples",
                rd_config_where(r->keys, "batch_tokens"), rd_dataset_def_of(d)->name);
    } else if (n > 0) {
        samples = rd_dataset_kept(d);
        r->global_batch = (2 * samples + n) / (2 * n);
        if (run_any(r) && r->config.micro_batches > r->global_batch)
            rd_fail(st, RD_EUSAGE,
                    "%s: an update of %" PRId64 " target tokens has %" PRId64
                    " samples on average, too few for %" PRId64 " 'micro_batches'",
                    rd_config_where(r->keys, "micro_batches"), tokens, r->global_batch,
                    r->config.micro_batches);
    }
    return run_agree(r, st);
}

rd_code setup_config(rd_run *r, rd_status *st)
{
    r->mode = r->cli->mode_bit == RD_MODE_PLAN ? RD_MODE_BENCH
                                               /* plan mode runs the steps of bench mode */
                                               : r->cli->mode_bit;
    RD_TRY(force_keys(r, st));
    RD_TRY(rd_config_read(r->keys, &rd_group_run, r->mode, &r->config, st));
    RD_TRY(check_batch(r, st));
    rd_retries_allow((int)r->config.read_retries);
    r->seed = (uint64_t)r->config.seed;
    RD_TRY(find_model(r, st));
    if (r->mode != RD_MODE_INFER && r->mode != RD_MODE_PREPARE && r->mode != RD_MODE_EXPORT) {
        RD_TRY(rd_optim_read(r->keys, r->mode, &r->optim_config, st));
        RD_TRY(rd_optim_check(&r->optim_config, r->keys, st));
        RD_TRY(rd_schedule_read(r->keys, r->mode, &r->schedule_config, st));
        RD_TRY(rd_schedule_check(&r->schedule_config, r->keys, st));
        if (r->mode == RD_MODE_TRAIN || r->mode == RD_MODE_TRAIN_EVAL) warn_of_scaling(r);
        if (r->optim_config.optimizer && strcasecmp(r->optim_config.optimizer, "adadelta") == 0 &&
            r->schedule_config.learning_rate < 0.1)
            rd_strbuf_printf(&r->notices,
                             "adadelta with learning_rate %g: the rule was published with 1.0; "
                             "with newer Keras' default of 0.001 it learns almost nothing\n",
                             r->schedule_config.learning_rate);
    }
    if (r->mode == RD_MODE_EVAL || r->mode == RD_MODE_TRAIN_EVAL) RD_TRY(find_metric(r, st));
    if (st->code == RD_OK && (r->mode == RD_MODE_TRAIN || r->mode == RD_MODE_TRAIN_EVAL))
        (void)check_any(r, st);
done:
    return run_agree(r, st);
}

const char *setup_dataset_name(const rd_run *r)
{
    return r->config.dataset && r->config.dataset[0] ? r->config.dataset
                                                     : r->model->default_dataset;
}

/* Returns the file or folder of the weights that the run begins with; NULL: those of its log
 * folder, or new ones. */
static const char *weights_from(const rd_run *r)
{
    const char *c = r->config.checkpoint;
    if (r->mode != RD_MODE_EVAL && r->mode != RD_MODE_INFER && r->mode != RD_MODE_EXPORT)
        return r->config.init_from;
    return c && strcmp(c, "newest") != 0 && strcmp(c, "best") != 0 ? c : NULL;
}

static rd_code setup_open(rd_run *r, rd_split split, const rd_data_spec *like, rd_dataset **out,
                          rd_status *st)
{
    const char *name = setup_dataset_name(r);
    const bool train = split == RD_SPLIT_TRAIN;
    const rd_dataset_args a = {.config = r->keys,
                               .mode = r->mode,
                               .split = split,
                               .comm = r->comm,
                               .log = r->log,
                               .shard = train && r->cli->split_data_per_rank,
                               .keep_all = !train,
                               .logdir = r->shadow[0] ? r->shadow : r->cli->logdir,
                               .scratch = r->shadow[0] != '\0',
                               .config_is_record = !(r->cli->config_file && r->cli->config_file[0]),
                               .weights = weights_from(r),
                               .like = like};
    (void)rd_dataset_new(name, &a, out, st);
    return run_agree(r, st);
}

rd_code setup_data(rd_run *r, rd_split split, rd_dataset **out, rd_status *st)
{
    return setup_open(r, split, NULL, out, st);
}

rd_code setup_data_like(rd_run *r, const rd_data_spec *like, rd_dataset **out, rd_status *st)
{
    return setup_open(r, RD_SPLIT_TEST, like, out, st);
}

/* Collective. Lets the ranks of a host share one copy of weights and optimizer state. Each rank
 * updates its part. With the key shard, each host or GPU keeps a part of the state. */
static rd_code share_weights(rd_run *r, rd_status *st)
{
    char why[200];
    if (r->optim_config.sharded)
        (void)rd_optim_shard(r->optim, r->comm, exchange_shard(r->exchange), why, st);
    else
        (void)rd_optim_share(r->optim, r->comm, why, st);
    if (run_agree(r, st) != RD_OK) return st->code;
    if (why[0]) rd_info(r->log, "every rank keeps and updates all weights for itself: %s", why);
    return RD_OK;
}

rd_code setup_model(rd_run *r, const rd_data_spec *spec, bool with_optim, rd_status *st)
{
    const int threads = r->config.threads > 0 ? (int)r->config.threads : r->world->n_cpus;
    bool shares;
    r->spec = *spec;
    RD_TRY(device_open(r, threads, st));
    RD_TRY(decode_check(r, st));
    r->optim_config.sharded = r->config.shard == RUN_SHARD_OPTIMIZER && r->world->size > 1;
    RD_TRY(rd_params_new(&r->params, st));
    const rd_model_args a = {.def = r->model,
                             .config = r->keys,
                             .mode = r->mode,
                             .data = spec,
                             .seed = r->seed,
                             .params = r->params,
                             .backend = r->backend,
                             .log = r->log};
    RD_TRY(r->model->create(&a, &r->model_self, st));
    RD_TRY(rd_params_seal(r->params, r->seed, run_real(r, "init_scale", NAN), st));
    if (run_gpu(r)) RD_TRY(rd_params_use_gpu(r->params, run_gpu(r), st));
    if (with_optim) {
        (void)rd_optim_new(&r->optim_config, r->params, threads, &r->optim, st);
        RD_TRY(device_explain_state(r, st));
    }
    RD_TRY(rd_tape_new(r->backend, r->params, &r->tape, st));
    if (with_optim) r->progress.loss_scale = device_first_scale(r);
    RD_TRY(device_open_batches(r, st));
done:
    shares = with_optim && r->world->size > 1 && !run_gpu(r);
    if (run_agree(r, st) == RD_OK && shares) (void)run_share_gradients(r, st);
    if (st->code == RD_OK && with_optim) {
        (void)exchange_new(r, &r->exchange, st);
        (void)run_agree(r, st);
    }
    if (st->code == RD_OK && with_optim && (shares || r->optim_config.sharded))
        (void)share_weights(r, st);
    device_measure_fixed(r);
    return st->code;
}

int64_t setup_last_epoch(const rd_run *r)
{
    const int64_t most = r->config.max_epochs > 0 ? r->config.max_epochs : INT64_MAX,
                  n = r->config.has_num_epochs && !r->cli->max_steps_given ? r->config.num_epochs
                                                                           : INT64_MAX;
    return n < most ? n : most;
}
