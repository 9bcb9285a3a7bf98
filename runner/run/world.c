/* world.c -- the agreement of all ranks before step 0, the banner, and the text of --version. */
#include "world.h"
#include "console.h"
#include "defaults.h"
#include "exchange.h"
#include "rd/hash.h"
#include "rd/program.h"
#include "rd/subword.h"

#ifdef __clang__
#define RD_COMPILER "compiler"
#else
#define RD_COMPILER "gcc"
#endif

#include <archive.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef RD_VERSION
#define RD_VERSION "unknown"
#endif
#ifndef RD_COMMIT
#define RD_COMMIT "unknown"
#endif

const char *world_version(void)
{
    return RD_VERSION;
}

const char *world_commit(void)
{
    return RD_COMMIT;
}

void rd_versions(rd_strbuf *out)
{
    rd_strbuf_printf(out, "run_dist %s (commit %s, %s " __VERSION__ ")\n", RD_VERSION, RD_COMMIT,
                     RD_COMPILER);
    rd_strbuf_printf(out, "Jansson %s\n%s\n%s\n%s\n", jansson_version_str(),
                     archive_version_string(), rd_comm_library_version(), rd_backend_library());
    rd_subword_libraries(out);
    rd_strbuf_puts(out, rd_gpu_compiled() ? "backends: cpu, cuda\n" : "backends: cpu\n");
}

/* Collective. Compares a text of all ranks. The failure names a rank that differs and its value;
 * all ranks know of it. */
static rd_code world_same(rd_run *r, const char *name, const char *text, rd_status *st)
{
    if (rd_comm_same(r->comm, name, text, st) != RD_OK) r->agreed = true;
    return st->code;
}

static void show_value(const json_t *entry, char out[160])
{
    char *text = json_dumps(json_object_get(entry, "value"), JSON_ENCODE_ANY | JSON_COMPACT);
    (void)snprintf(out, 160, "%.150s", text ? text : "nothing");
    free(text);
}

/* Collective. Compares the config. All ranks have rank 0's file, but --set may differ where a
 * launcher starts ranks with different arguments. */
static rd_code same_config(rd_run *r, const json_t *mine, const char *dump, rd_status *st)
{
    int64_t n = (int64_t)strlen(dump);
    char *theirs = NULL, a[160], b[160];
    json_t *first = NULL, *v;
    const char *key;
    RD_TRY(rd_comm_bcast(r->comm, &n, sizeof n, 0, st));
    theirs = malloc((size_t)n + 1);
    if (!theirs) rd_fail(st, RD_EENV, "out of memory for the config");
    if (run_agree(r, st) != RD_OK || !theirs) goto done;
    if (r->world->rank == 0) memcpy(theirs, dump, (size_t)n);
    RD_TRY(rd_comm_bcast(r->comm, theirs, n, 0, st));
    first = json_loadb(theirs, (size_t)n, 0, NULL);
    json_object_foreach((json_t *)(uintptr_t)mine, key, v)
    {
        const json_t *w = json_object_get(first, key);
        if (json_equal(json_object_get(v, "value"), json_object_get(w, "value"))) continue;
        show_value(v, a);
        show_value(w, b);
        rd_fail(st, RD_EDISAGREE,
                "config key '%s' differs: rank %d (%s) has %s, rank 0 has %s; all ranks need the "
                "same program, config and data",
                key, r->world->rank, r->world->host, a, b);
        break;
    }
    RD_TRY(run_agree(r, st));
done:
    json_decref(first);
    free(theirs);
    return st->code;
}

rd_code world_check_start(rd_run *r, rd_status *st)
{
    char text[256], id[64], steps[40] = "";
    rd_strbuf all = {0};
    json_t *effective = rd_config_effective(r->keys);
    char *dump = effective ? json_dumps(effective, JSON_COMPACT) : NULL;
    rd_versions(&all);
    if (!dump || all.failed) rd_fail(st, RD_EENV, "out of memory for the config");
    RD_TRY(run_agree(r, st));
    rd_program_id(id);
    (void)snprintf(text, sizeof text, "%.40s, %s, libraries %016" PRIx64, RD_VERSION, id,
                   rd_fnv(RD_FNV_START, all.s, all.n));
    RD_TRY(world_same(r, "program file and library versions", text, st));
    if (r->cli->max_steps_given)
        (void)snprintf(steps, sizeof steps, " --max_steps=%" PRId64, r->cli->max_steps);
    (void)snprintf(text, sizeof text, "--mode=%s%s --summary_frequency=%" PRId64 "%s%s%s",
                   r->cli->mode, steps, r->cli->summary_frequency,
                   r->cli->split_data_per_rank ? " --split_data_per_rank" : "",
                   r->cli->trace ? " --trace" : "",
                   r->cli->mode_bit == RD_MODE_PLAN && r->cli->config_file ? " --config_file" : "");
    RD_TRY(world_same(r, "flags", text, st));
    RD_TRY(same_config(r, effective, dump, st));
done:
    rd_strbuf_release(&all);
    json_decref(effective);
    free(dump);
    return st->code;
}

rd_code world_check(rd_run *r, rd_status *st)
{
    char text[256];
    uint64_t h = RD_FNV_START;
    for (int i = 0; i < rd_params_n(r->params); i++) {
        const rd_param *p = rd_params_at(r->params, i);
        h = rd_fnv(h, p->name, strlen(p->name));
        h = rd_fnv(h, p->dim, sizeof p->dim[0] * (size_t)p->n_dim);
        h = rd_fnv(h, &p->offset, sizeof p->offset);
    }
    (void)snprintf(text, sizeof text, "%" PRId64 " parameters, %016" PRIx64,
                   rd_params_count(r->params), h);
    RD_TRY(world_same(r, "parameters", text, st));
    const rd_dataset *d = r->train_data ? r->train_data : r->eval_data;
    if (d) RD_TRY(world_same(r, "data", rd_dataset_def_of(d)->fingerprint(rd_dataset_self(d)), st));
done:
    return st->code;
}

static void banner_lines(rd_run *r, const char *indent, const char *text)
{
    while (*text) {
        const char *end = strchr(text, '\n');
        const int n = end ? (int)(end - text) : (int)strlen(text);
        if (n > 0) rd_info(r->log, "%s%.*s", indent, n, text);
        text += n + (end ? 1 : 0);
    }
}

/* Prints the size of an update, and how ranks share it. */
static void world_batch(const rd_run *r)
{
    const run_config *c = &r->config;
    const int n = r->world->size;
    char a[32], b[32], parts[80] = "";
    if (run_batch_is_global(r) && c->iter_size > 1)
        (void)snprintf(parts, sizeof parts, ", each in %" PRId64 " parts (iter_size)",
                       c->iter_size);
    if (c->has_batch_tokens)
        rd_info(r->log, "update: about %s target tokens, %s sample%s on average, by %d rank%s%s",
                rd_commas((double)c->batch_tokens, a), rd_commas((double)r->global_batch, b),
                RD_S(r->global_batch), n, RD_S(n), parts);
    else if (c->has_batch_sentences)
        rd_info(r->log, "update: %s sample%s, by %d rank%s%s",
                rd_commas((double)c->batch_sentences, a), RD_S(c->batch_sentences), n, RD_S(n),
                parts);
    else
        rd_info(r->log, "global batch: %s = %" PRId64 " per rank x %d rank%s%s",
                rd_commas((double)run_update_samples(r), a), c->batch_size, n, RD_S(n),
                c->iter_size > 1 ? " x iter_size" : "");
}

/* Warns of a warm-up without effect, and says how to get one. */
static void world_idle_warmup(rd_run *r)
{
    const rd_schedule_config *c = &r->schedule_config;
    const bool steps = c->warmup_steps > 0;
    rd_warn(r->log,
            "'%s' has no effect: 'lr_scaling' none has no factor to grow, so the rate begins at "
            "its full value; to warm up from near 0, add \"warmup_start\": %.2g",
            steps ? "warmup_steps" : "warmup_epochs",
            steps ? 1.0 / ((double)c->warmup_steps + 1.0) : 0.01);
}

void world_banner(rd_run *r, int64_t last_step, int64_t n_batches, int64_t n_samples)
{
    const rd_world *w = r->world;
    char a[32], b[32], some[96] = "";
    rd_strbuf s = {0};
    if (w->rank != 0) return;
    rd_info(r->log, "run_dist %s: %s, config %s%s%s", RD_VERSION, r->cli->mode,
            r->cli->config_file                   ? r->cli->config_file
            : r->cli->logdir && r->cli->logdir[0] ? "of the log folder"
                                                  : "from flags",
            r->cli->logdir && r->cli->logdir[0] ? ", logdir " : "",
            r->cli->logdir ? r->cli->logdir : "");
    banner_lines(r, "", rd_strbuf_str(&r->notices));
    rd_info(r->log, "world: %d rank%s on %d host%s (%s%s%s), %d thread%s per rank", w->size,
            w->size == 1 ? "" : "s", w->n_hosts, w->n_hosts == 1 ? "" : "s", w->comm,
            w->library[0] ? ", " : "", w->library, rd_backend_threads(r->backend),
            rd_backend_threads(r->backend) == 1 ? "" : "s");
    if (w->size > 1) rd_info(r->log, "%s", rd_comm_note(r->comm));
    if (r->exchange) exchange_describe(r->exchange, &s);
    banner_lines(r, "", rd_strbuf_str(&s));
    rd_strbuf_reset(&s);
    rd_info(r->log, "device: %s", rd_backend_describe(r->backend));
    const double all = (double)rd_params_total(r->params),
                 trained = (double)rd_params_count(r->params);
    if (trained < all)
        (void)snprintf(some, sizeof some,
                       "; %s of them are trained (%.2f %%), the others are frozen",
                       rd_commas(trained, b), 100.0 * trained / all);
    rd_info(r->log, "model: %s, %s parameters (%.1f MB)%s", r->model->name, rd_commas(all, a),
            all * 4e-6, some);
    if (r->model->continues)
        rd_info(r->log, "vocabulary: %s tokens", rd_commas((double)r->spec.tgt_vocab_size, a));
    else if (r->spec.src_vocab_size > 0)
        rd_info(r->log, "vocabulary: source %s, target %s",
                rd_commas((double)r->spec.src_vocab_size, a),
                rd_commas((double)r->spec.tgt_vocab_size, b));
    if (run_is_image(r))
        rd_info(r->log, "images: %" PRId64 " x %" PRId64 " x %" PRId64 ", %s class%s",
                r->spec.image_h, r->spec.image_w, r->spec.image_c,
                rd_commas((double)r->spec.n_classes, a), r->spec.n_classes == 1 ? "" : "es");
    if (n_samples > 0)
        rd_info(r->log, "data: %s sample%s, %s batch%s an epoch", rd_commas((double)n_samples, a),
                RD_S(n_samples), rd_commas((double)n_batches, b), n_batches == 1 ? "" : "es");
    if (r->mode == RD_MODE_TRAIN || r->mode == RD_MODE_TRAIN_EVAL) {
        world_batch(r);
        rd_info(r->log, "optimizer: %s, seed %" PRIu64 ", up to step %s",
                rd_optim_def(r->optim)->name, r->seed, rd_commas((double)last_step, a));
        rd_schedule_describe(&r->schedule_config, run_schedule_ranks(r), &s);
        rd_info(r->log, "learning rate:");
        banner_lines(r, "  ", rd_strbuf_str(&s));
        if (rd_schedule_idle_warmup(&r->schedule_config)) world_idle_warmup(r);
        if (r->spec.joins) defaults_report(r);
    }
    rd_strbuf_release(&s);
}
