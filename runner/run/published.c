/* published.c -- a run that begins with weights of another program. */
#include "published.h"
#include "finite.h"
#include "rd/hash.h"
#include <inttypes.h>
#include <stdlib.h>

rd_code published_there(const rd_run *r, const char *path, bool *there, rd_status *st)
{
    RD_TRY(rd_weights_there(path, there, st));
    if (*there && !r->model->folder)
        rd_fail(st, RD_EUSAGE,
                "'%s' holds weights of transformers, which model %s does not read; \"model\": "
                "\"gpt\" does",
                path, r->model->name);
done:
    return st->code;
}

/* Describes the folder that the weights come from. A hash of all weights names them. */
static json_t *published_parent(const rd_run *r, const char *folder)
{
    char hash[20], at[4096];
    (void)snprintf(hash, sizeof hash, "%016" PRIx64,
                   rd_hash(0, rd_params_values(r->params),
                           (size_t)rd_params_span(r->params) * sizeof(float)));
    if (!realpath(folder, at)) (void)snprintf(at, sizeof at, "%.4000s", folder);
    json_t *path = json_string(at);
    return json_pack("{s:o, s:I, s:s, s:s}", "path", path ? path : json_string("?"), "step",
                     (json_int_t)0, "hash", hash, "model", r->model->name);
}

/* Reads the adapter that the weights begin with, if there is one. */
static rd_code published_adapter(const rd_run *r, rd_status *st)
{
    const char *folder = json_string_value(rd_config_get(r->keys, "lora_from"));
    rd_weights *w = NULL;
    rd_strbuf list = {0};
    int n = 0;
    if (!folder || !r->model->folder->load_adapter) return RD_OK;
    RD_TRY(rd_weights_new_file(folder, "adapter_model.safetensors", &w, st));
    RD_TRY(r->model->folder->load_adapter(r->model_self, w, &list, &n, st));
    if (n > 0)
        RD_TRY(rd_fail(st, RD_ECKPT, "'%s' does not fit the model: %s", folder,
                       rd_strbuf_str(&list)));
    rd_info(r->log, "adapter from %s: %d arrays", folder, rd_weights_n(w));
done:
    rd_strbuf_release(&list);
    rd_weights_free(w);
    return st->code;
}

rd_code published_load(rd_run *r, const char *folder, rd_status *st)
{
    rd_weights *w = NULL;
    rd_strbuf list = {0};
    char bad[320], count[32];
    int n = 0;
    RD_TRY(rd_weights_new(folder, &w, st));
    RD_TRY(rd_params_sync_to_host(r->params, RD_VALUES | RD_SLOTS, st));
    RD_TRY(r->model->folder->load(r->model_self, w, &list, &n, st));
    if (n > 0 && !r->config.init_allow_missing)
        RD_TRY(rd_fail(st, RD_ECKPT,
                       "'%s' does not fit the model: %s; \"init_allow_missing\": true begins all "
                       "the same, with new values for weights that do not fit",
                       folder, rd_strbuf_str(&list)));
    RD_TRY(published_adapter(r, st));
    if (finite_find_other(r, bad))
        RD_TRY(rd_fail(st, RD_ENUMERIC, "'%s': '%s' holds inf or NaN", folder, bad));
    json_decref(r->parent);
    r->parent = published_parent(r, folder);
    rd_info(r->log, "weights from %s: %d arrays, %s parameters", folder, rd_weights_n(w),
            rd_commas((double)rd_params_total(r->params), count));
    if (n > 0) rd_warn(r->log, "%s: %s", folder, rd_strbuf_str(&list));
done:
    rd_strbuf_release(&list);
    rd_weights_free(w);
    return st->code;
}
