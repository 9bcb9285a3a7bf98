/* run_base.c -- functions of a run that every file of this folder may use. */
#include "run.h"
#include "rd/checkpoint.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

rd_code run_agree(rd_run *r, rd_status *st)
{
    if (rd_comm_agree(r->comm, st) != RD_OK) r->agreed = true;
    return st->code;
}

double run_real(const rd_run *r, const char *key, double dflt)
{
    const json_t *v = rd_config_get(r->keys, key);
    return json_is_number(v) ? json_number_value(v) : dflt;
}

bool run_flag(const rd_run *r, const char *key, bool dflt)
{
    const json_t *v = rd_config_get(r->keys, key);
    return json_is_boolean(v) ? json_is_true(v) : dflt;
}

double run_peak_bytes(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (double)u.ru_maxrss * 1024.0 : 0.0;
}

bool run_owns_logdir(const rd_run *r)
{
    uint64_t now[2];
    if (!r->owns_logdir) return false;
    if (!r->lock_mark[1]) return true; /* this host saw no .lock */
    return rd_logdir_mark(r->cli->logdir, now) && now[0] == r->lock_mark[0] &&
           now[1] == r->lock_mark[1];
}

bool run_batch_is_global(const rd_run *r)
{
    return r->config.has_batch_tokens || r->config.has_batch_sentences;
}

int64_t run_batches(const rd_run *r)
{
    return run_batch_is_global(r) ? 1 : r->config.iter_size;
}

int64_t run_update_samples(const rd_run *r)
{
    int64_t n;
    return __builtin_mul_overflow(r->global_batch, run_batches(r), &n) ? INT64_MAX : n;
}

int run_schedule_ranks(const rd_run *r)
{
    return run_batch_is_global(r) ? 1 : r->world->size;
}

bool run_any(const rd_run *r)
{
    return r->config.deterministic == RUN_DETERMINISTIC_ANY;
}

void run_next_epoch(run_progress *at)
{
    at->epoch++;
    at->batch = at->samples = at->samples_hash = 0;
    at->n_parts = 0;
}

rd_code run_share_gradients(rd_run *r, rd_status *st)
{
    char why[200];
    float *g;
    (void)rd_comm_arena_new(r->comm, rd_params_grad_span(r->params), &g, why, st);
    if (run_agree(r, st) != RD_OK) return st->code;
    rd_params_use_grads(r->params, g);
    if (why[0]) rd_info(r->log, "gradients are copied for their sum: %s", why);
    return RD_OK;
}

bool run_scores(const rd_run *r)
{
    return r->model->decode && !r->model->continues && run_flag(r, "eval_bleu", true);
}

bool run_is_image(const rd_run *r)
{
    return r->spec.n_classes > 0 && r->spec.image_h > 0;
}
