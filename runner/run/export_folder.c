/* export_folder.c -- a folder for transformers or PEFT; see export_folder.h.
 *
 * Where the run began with such a folder, and has its tokenizer, the files of the tokenizer are
 * copied from there. Else the tokenizer that the run keeps in its log folder is written. */
#include "export_folder.h"
#include "rd/file.h"
#include "rd/input.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4600, COPY_MOST = 512 << 20 };

/* Files of a folder that are copied; those of the tokenizer come first. */
static const char *const copied[] = {"tokenizer.json",
                                     "tokenizer.model",
                                     "tokenizer_config.json",
                                     "special_tokens_map.json",
                                     "added_tokens.json",
                                     "vocab.json",
                                     "merges.txt",
                                     "vocab.bpe",
                                     "chat_template.jinja"};
enum { N_COPIED = sizeof copied / sizeof *copied };
/* Files that are made. */
static const char *const made[] = {"model.safetensors", "config.json", "generation_config.json",
                                   "adapter_model.safetensors", "adapter_config.json"};
enum { N_MADE = sizeof made / sizeof *made };

bool export_folder_wanted(const rd_run *r)
{
    static const char end[] = ".safetensors";
    const char *out = r->cli->export_out ? r->cli->export_out : "";
    const size_t n = strlen(out), k = sizeof end - 1;
    return strcmp(r->cli->format, "safetensors") == 0 && r->model->folder &&
           !(n > k && strcmp(out + n - k, end) == 0);
}

bool export_adapter_wanted(const rd_run *r)
{
    return strcmp(r->cli->format, "peft") == 0;
}

/* Copies a file of a folder. *found: it was there. */
static rd_code copy_file(const char *from, const char *folder, const char *name, bool *found,
                         rd_status *st)
{
    char path[PATH_BYTES], *text = NULL;
    size_t n = 0;
    RD_TRY(rd_path_there(from, found, st));
    if (!*found) return RD_OK;
    RD_TRY(rd_file_read_limited(from, RD_EDATA, COPY_MOST, "a file of a tokenizer", &text, &n, st));
    (void)snprintf(path, sizeof path, "%.4400s/%s", folder, name);
    (void)rd_file_write_atomic(path, text, n, st);
done:
    free(text);
    return st->code;
}

static rd_code write_json(const char *folder, const char *name, const json_t *o, rd_status *st)
{
    char path[PATH_BYTES], *text = json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    (void)snprintf(path, sizeof path, "%.4400s/%s", folder, name);
    if (!text) return rd_fail(st, RD_EENV, "out of memory for '%s'", name);
    (void)rd_file_write_atomic(path, text, strlen(text), st);
    free(text);
    return st->code;
}

/* Returns the folder of weights that the run began with; NULL: there is none. */
static const char *began_with(const rd_run *r)
{
    bool there = false;
    rd_status own = {0};
    const char *from[] = {r->config.checkpoint, r->config.init_from};
    for (int i = 0; i < 2; i++)
        if (from[i] && rd_weights_there(from[i], &there, &own) == RD_OK && there) return from[i];
    return NULL;
}

/* Has the run the tokenizer of this folder? */
static bool same_tokenizer(const rd_run *r, const char *folder)
{
    const char *model = json_string_value(rd_config_get(r->keys, "subword_model"));
    const size_t n = strlen(folder);
    return folder && model && strncmp(model, folder, n) == 0 && (!model[n] || model[n] == '/');
}

/* Copies the files of the tokenizer from a folder. */
static rd_code copy_tokenizer(const char *from, const char *folder, int *n, rd_status *st)
{
    char path[PATH_BYTES];
    bool found = false;
    for (int i = 0; i < N_COPIED; i++) {
        (void)snprintf(path, sizeof path, "%.4200s/%s", from, copied[i]);
        RD_TRY(copy_file(path, folder, copied[i], &found, st));
        *n += found;
    }
done:
    return st->code;
}

/* Returns the name of a special token in a tokenizer.json. Borrowed. NULL: it has no such one. */
static const char *special_name(const json_t *tokenizer, int64_t id)
{
    const json_t *list = json_object_get(tokenizer, "added_tokens"), *v;
    size_t i;
    json_array_foreach(list, i, v)
    {
        if (json_integer_value(json_object_get(v, "id")) == id)
            return json_string_value(json_object_get(v, "content"));
    }
    return NULL;
}

/* Writes the tokenizer that the log folder keeps. */
static rd_code write_tokenizer(const rd_run *r, const char *folder, int *n, rd_status *st)
{
    char path[PATH_BYTES];
    const char *scheme = json_string_value(rd_config_get(r->keys, "subword")),
               *model = json_string_value(rd_config_get(r->keys, "subword_model"));
    const bool piece = scheme && strcmp(scheme, "sentencepiece") == 0;
    bool found = false;
    json_t *tokenizer = NULL, *config = NULL;
    if (scheme && !piece && strcmp(scheme, "byte_bpe") != 0) return RD_OK;
    (void)snprintf(path, sizeof path, "%.4200s/text/subword.model",
                   r->cli->logdir && r->cli->logdir[0] ? r->cli->logdir : ".");
    RD_TRY(rd_path_there(path, &found, st));
    if (!found && model) (void)snprintf(path, sizeof path, "%.4200s", model);
    RD_TRY(copy_file(path, folder, piece ? "tokenizer.model" : "tokenizer.json", &found, st));
    *n += found;
    if (!found || piece) goto done;
    RD_TRY(rd_weights_json(folder, "tokenizer.json", &tokenizer, st));
    const char *end = special_name(tokenizer, r->spec.end_id);
    config = json_pack("{s:s, s:b, s:s*, s:s*}", "tokenizer_class", "PreTrainedTokenizerFast",
                       "clean_up_tokenization_spaces", 0, "bos_token", end, "eos_token", end);
    RD_TRY(write_json(folder, "tokenizer_config.json", config, st));
    ++*n;
done:
    json_decref(config);
    json_decref(tokenizer);
    return st->code;
}

/* Takes the ids of special tokens from the folder that the run began with. */
static rd_code keep_ids(const char *from, json_t *config, rd_status *st)
{
    static const char *const ids[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    json_t *was = NULL;
    RD_TRY(rd_weights_json(from, "config.json", &was, st));
    for (int i = 0; i < 3; i++)
        if (json_object_get(was, ids[i]))
            (void)json_object_set(config, ids[i], json_object_get(was, ids[i]));
done:
    json_decref(was);
    return st->code;
}

static rd_code fill_folder(rd_run *r, const char *folder, const json_t *metadata, int *n,
                           rd_status *st)
{
    char path[PATH_BYTES];
    const char *from = began_with(r);
    const bool same = from && same_tokenizer(r, from);
    bool found = false;
    json_t *config = NULL, *generation = NULL;
    RD_TRY(r->model->folder->save(r->model_self, folder, metadata, &config, st));
    if (same) RD_TRY(keep_ids(from, config, st));
    RD_TRY(write_json(folder, "config.json", config, st));
    RD_TRY(same ? copy_tokenizer(from, folder, n, st) : write_tokenizer(r, folder, n, st));
    if (same) {
        (void)snprintf(path, sizeof path, "%.4200s/generation_config.json", from);
        RD_TRY(copy_file(path, folder, "generation_config.json", &found, st));
    }
    if (!found) {
        generation = json_pack("{s:O?, s:O?}", "bos_token_id",
                               json_object_get(config, "bos_token_id"), "eos_token_id",
                               json_object_get(config, "eos_token_id"));
        RD_TRY(write_json(folder, "generation_config.json", generation, st));
    }
done:
    json_decref(generation);
    json_decref(config);
    return st->code;
}

/* Removes what fill_folder may have written. */
static void empty_folder(const char *folder)
{
    char path[PATH_BYTES];
    for (int i = 0; i < N_COPIED + N_MADE; i++) {
        (void)snprintf(path, sizeof path, "%.4400s/%s", folder,
                       i < N_MADE ? made[i] : copied[i - N_MADE]);
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

/* Fills the folder of an adapter. *n stays as it is. */
static rd_code fill_adapter(rd_run *r, const char *folder, const json_t *metadata, int *n,
                            rd_status *st)
{
    char at[4096];
    const char *from = began_with(r);
    json_t *config = NULL;
    (void)n;
    if (from && !realpath(from, at)) (void)snprintf(at, sizeof at, "%.4000s", from);
    RD_TRY(r->model->folder->save_adapter(r->model_self, folder, from ? at : NULL, metadata,
                                          &config, st));
    RD_TRY(write_json(folder, "adapter_config.json", config, st));
done:
    json_decref(config);
    return st->code;
}

/* Makes a folder of this path, whole or not at all. */
static rd_code export_whole(rd_run *r, const char *path, const json_t *metadata,
                            rd_code (*fill)(rd_run *r, const char *folder, const json_t *metadata,
                                            int *n, rd_status *st),
                            int *n, rd_status *st)
{
    char tmp[PATH_BYTES];
    (void)snprintf(tmp, sizeof tmp, "%.4400s.tmp.%ld", path, (long)getpid());
    RD_TRY(rd_params_sync_to_host(r->params, RD_VALUES, st));
    RD_TRY(rd_mkdir_inside(tmp, st));
    if (fill(r, tmp, metadata, n, st) == RD_OK && rename(tmp, path) != 0)
        rd_fail(st, RD_EENV, "cannot rename '%s' to '%s': %s", tmp, path, strerror(errno));
    if (st->code != RD_OK) empty_folder(tmp);
done:
    return st->code;
}

rd_code export_adapter(rd_run *r, const char *path, const json_t *metadata, rd_status *st)
{
    char count[32];
    int n = 0;
    if (!r->model->folder || !r->model->folder->save_adapter)
        return rd_fail(st, RD_EUSAGE,
                       "model %s has no adapters; --format=safetensors and npz write its weights",
                       r->model->name);
    RD_TRY(export_whole(r, path, metadata, fill_adapter, &n, st));
    rd_info(r->log,
            "%s is written: adapter_config.json and adapter_model.safetensors, %s parameters of "
            "step %" PRId64,
            path, rd_commas((double)rd_params_count(r->params), count), r->progress.step);
    if (!began_with(r))
        rd_info(r->log, "the frozen weights come from no folder of transformers that is there; "
                        "models/LORA.md tells how to write them");
done:
    return st->code;
}

rd_code export_folder(rd_run *r, const char *path, const json_t *metadata, rd_status *st)
{
    char count[32];
    int n = 0;
    RD_TRY(export_whole(r, path, metadata, fill_folder, &n, st));
    rd_info(r->log, "%s is written: config.json, model.safetensors and %d file%s of the tokenizer",
            path, n, RD_S(n));
    if (n == 0) rd_info(r->log, "this tokenizer has no form there; it stays with the log folder");
    /* Adapters are merged into the frozen weights. */
    const int64_t all = rd_params_total(r->params), trained = rd_params_count(r->params);
    rd_info(r->log,
            "%s parameters of model %s, step %" PRId64 "%s; models/WEIGHTS.md tells how other "
            "programs read them",
            rd_commas((double)(trained < all ? all - trained : all), count), r->model->name,
            r->progress.step, trained < all ? ", adapters are merged" : "");
done:
    return st->code;
}
