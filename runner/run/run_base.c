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

rd_code run_decode_config(const rd_run *r, rd_decode_config *out, rd_search_keys *keys,
                          rd_status *st)
{
    const bool infer = r->mode == RD_MODE_INFER;
    memset(out, 0, sizeof *out);
    memset(keys, 0, sizeof *keys);
    if (!r->model->decode) return RD_OK;
    RD_TRY(rd_config_read(r->keys, &rd_group_search, r->mode, keys, st));
    if (!infer) keys->nbest = 1;
    RD_TRY(rd_search_rules_of(keys, r->model->bars_unk, &out->search, st));
    if (!infer && keys->length_penalty_type == RD_LENGTH_OPENSEQ2SEQ)
        out->search.length_penalty = 0.0; /* as the original did */
    if (!keys->has_output_format && keys->nbest > 1) keys->output_format = RD_FORMAT_NBEST;
    out->search.unscored = !infer || keys->output_format == RD_FORMAT_TEXT;
done:
    return st->code;
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
    (void)rd_comm_arena_new(r->comm, rd_params_span(r->params), &g, why, st);
    if (run_agree(r, st) != RD_OK) return st->code;
    rd_params_use_grads(r->params, g);
    if (why[0]) rd_info(r->log, "gradients are copied for their sum: %s", why);
    return RD_OK;
}

bool run_is_image(const rd_run *r)
{
    return r->spec.n_classes > 0 && r->spec.image_h > 0;
}
