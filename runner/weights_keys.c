/* weights_keys.c -- keys from the config.json beside published weights. Only rank 0 reads it; the
 * others get the keys. */
#include "weights_keys.h"
#include "rd/file.h"
#include "rd/input.h"
#include "rd/model.h"
#include "rd/weights_folder.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4400, TOKENIZER_MOST = 256 << 20 };

/* Returns the path that names the weights; NULL: none does. */
static const char *keys_path(const rd_config *c, const rd_cli *cli)
{
    const char *own = json_string_value(rd_config_get(c, "checkpoint"));
    const bool trains = cli->mode_bit & (RD_MODE_TRAIN | RD_MODE_TRAIN_EVAL | RD_MODE_BENCH |
                                         RD_MODE_PLAN | RD_MODE_PREPARE);
    if (!trains && own && strcmp(own, "newest") != 0 && strcmp(own, "best") != 0 &&
        strcmp(own, "average") != 0)
        return own;
    return json_string_value(rd_config_get(c, "init_from"));
}

static rd_code keys_file_there(const char *folder, const char *file, bool *there, rd_status *st)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%.4000s/%s", folder, file);
    return rd_path_there(path, there, st);
}

/* Finds the folder's tokenizer. A tokenizer.json without ByteLevel is that of a SentencePiece
 * model, which is then beside it. */
static rd_code keys_tokenizer(const char *folder, json_t *keys, rd_status *st)
{
    static const char *const bpe[] = {"tokenizer.json", "merges.txt", "vocab.bpe"};
    char path[PATH_BYTES], *text = NULL;
    size_t n = 0;
    bool there = false, piece = false;
    RD_TRY(keys_file_there(folder, "tokenizer.model", &piece, st));
    for (size_t i = 0; i < sizeof bpe / sizeof *bpe && !there; i++)
        RD_TRY(keys_file_there(folder, bpe[i], &there, st));
    (void)snprintf(path, sizeof path, "%.4000s/tokenizer.json", folder);
    if (there && piece) {
        RD_TRY(keys_file_there(folder, bpe[0], &there, st));
        if (there)
            RD_TRY(rd_file_read_limited(path, RD_ECKPT, TOKENIZER_MOST, "a tokenizer", &text, &n,
                                        st));
        there = there && memmem(text, n, "ByteLevel", 9);
    }
    if (!there && !piece) goto done;
    (void)snprintf(path, sizeof path, "%.4000s%s", folder, there ? "" : "/tokenizer.model");
    (void)json_object_set_new(keys, "subword", json_string(there ? "byte_bpe" : "sentencepiece"));
    (void)json_object_set_new(keys, "subword_model", json_string(path));
done:
    free(text);
    return st->code;
}

/* Says why a path gives no keys: it is not there, and keys are missing; or it has weights in
 * another form. */
static rd_code keys_none(const rd_config *c, const rd_model_def *m, const rd_cli *cli,
                         const char *path, rd_strbuf *notices, rd_status *st)
{
    static const char *const also[] = {NULL};
    struct stat s;
    bool old = false;
    if (rd_path_stat(path, &s, RD_MAYBE) != 0) {
        rd_status own = {0};
        if (!strchr(path, ':') &&
            rd_config_check_required(c, &m->own, 1, cli->mode_bit, also, &own) != RD_OK)
            rd_strbuf_printf(notices, "'%s' is not there, so no key comes from its config.json\n",
                             path);
        return RD_OK;
    }
    if (!S_ISDIR(s.st_mode)) return RD_OK;
    RD_TRY(keys_file_there(path, "pytorch_model.bin", &old, st));
    if (old)
        rd_fail(st, RD_ECKPT,
                "'%s' has pytorch_model.bin, which this program does not read; save_pretrained of "
                "transformers writes model.safetensors",
                path);
done:
    return st->code;
}

/* Adds the keys of the adapter that the weights begin with, if there is one. A log folder has these
 * keys, and goes on without the adapter's folder. */
static rd_code keys_adapter(const rd_config *c, const rd_model_def *m, json_t *keys, rd_status *st)
{
    const char *folder = json_string_value(rd_config_get(c, "lora_from"));
    char path[PATH_BYTES];
    json_t *config = NULL;
    bool there = false;
    if (!folder || !m->folder->adapter_keys) return RD_OK;
    (void)snprintf(path, sizeof path, "%.4000s/adapter_config.json", folder);
    RD_TRY(rd_path_there(path, &there, st));
    if (!there && rd_config_has(c, "lora_rank")) return RD_OK;
    RD_TRY(rd_weights_json(folder, "adapter_config.json", &config, st));
    RD_TRY(m->folder->adapter_keys(config, path, keys, st));
done:
    json_decref(config);
    return st->code;
}

/* Returns the keys of the folder, as JSON; NULL: the path names no such folder. Rank 0 only. The
 * caller owns it. */
static rd_code keys_root(const rd_config *c, const rd_cli *cli, const char *folder, char **out,
                         rd_strbuf *notices, rd_status *st)
{
    char path[PATH_BYTES];
    json_t *config = NULL, *keys = NULL;
    const rd_model_def *m = rd_model_find(json_string_value(rd_config_get(c, "model")));
    bool there = false;
    *out = NULL;
    RD_TRY(rd_weights_there(folder, &there, st));
    if (!there) return m->folder ? keys_none(c, m, cli, folder, notices, st) : RD_OK;
    if (!m->folder)
        RD_TRY(
            rd_fail(st, RD_EUSAGE,
                    "'%s' holds weights of transformers, which model %s does not read; \"model\": "
                    "\"gpt\" does",
                    folder, m->name));
    (void)snprintf(path, sizeof path, "%.4000s/config.json", folder);
    RD_TRY(rd_weights_json(folder, "config.json", &config, st));
    keys = json_object();
    if (!keys) RD_TRY(rd_fail(st, RD_EENV, "out of memory for keys"));
    RD_TRY(m->folder->keys(config, path, keys, st));
    RD_TRY(keys_adapter(c, m, keys, st));
    if (!rd_config_has(c, "subword") && !rd_config_has(c, "subword_model"))
        RD_TRY(keys_tokenizer(folder, keys, st));
    *out = json_dumps(keys, JSON_COMPACT);
    if (!*out) rd_fail(st, RD_EENV, "out of memory for keys");
done:
    json_decref(keys);
    json_decref(config);
    return st->code;
}

/* Do both values mean the same for this key? */
static bool keys_same(const char *key, const json_t *user, const json_t *folder)
{
    if (strcmp(key, "tie_embeddings") == 0)
        return (strcmp(json_string_value(user), "none") == 0) ==
               (strcmp(json_string_value(folder), "none") == 0);
    if (json_is_number(user) && json_is_number(folder)) {
        const double a = json_number_value(user), b = json_number_value(folder);
        return fabs(a - b) <= 1e-12 * fabs(b);
    }
    if (json_is_string(user) && json_is_string(folder))
        return strcasecmp(json_string_value(user), json_string_value(folder)) == 0;
    return json_equal((json_t *)(uintptr_t)user, (json_t *)(uintptr_t)folder);
}

/* Is the key in a list of keys that are separated by spaces? */
static bool keys_listed(const char *list, const char *key)
{
    const size_t n = strlen(key);
    for (const char *s = list; s && (s = strstr(s, key)); s += n)
        if ((s == list || s[-1] == ' ') && (s[n] == ' ' || s[n] == '\0')) return true;
    return false;
}

static rd_code keys_take(rd_config *c, const char *folder, const char *key, json_t *v,
                         const rd_model_folder *f, rd_strbuf *notices, rd_status *st)
{
    const json_t *user = rd_config_get(c, key);
    const bool adapter = strncmp(key, "lora_", 5) == 0;
    const char *from = adapter ? json_string_value(rd_config_get(c, "lora_from")) : folder;
    char source[160];
    /* 0 means "as usual" in the keys of heads and rows. */
    const bool open = json_is_integer(user) && json_integer_value(user) == 0;
    (void)snprintf(source, sizeof source, "%s",
                   adapter ? "adapter_config.json of lora_from" : "config.json of the weights");
    if (!rd_config_has(c, key) || open) return rd_config_put(c, key, json_incref(v), source, st);
    if (keys_same(key, user, v)) return RD_OK;
    char *mine = json_dumps(user, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)),
         *theirs = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    if (keys_listed("seq_len vocab_size", key)) {
        /* They are keys of the data. */
    } else if (keys_listed(f->free_keys, key) &&
               (strcmp(key, "max_len") != 0 ||
                strcmp(json_string_value(rd_config_get(c, "pos")), "learned") != 0)) {
        rd_strbuf_printf(notices, "%s is %.60s, and the weights were trained with %.60s\n", key,
                         mine ? mine : "?", theirs ? theirs : "?");
    } else {
        rd_fail(st, RD_EUSAGE,
                "%s: '%s' is %.60s, but %sconfig.json of '%.1000s' means %.60s; leave it out",
                rd_config_where(c, key), key, mine ? mine : "?", adapter ? "adapter_" : "", from,
                theirs ? theirs : "?");
    }
    free(mine);
    free(theirs);
    return st->code;
}

rd_code weights_keys_put(rd_config *c, rd_comm *comm, const rd_cli *cli, rd_strbuf *notices,
                         rd_status *st)
{
    const char *model = json_string_value(rd_config_get(c, "model")), *key;
    const rd_model_def *m = model ? rd_model_find(model) : NULL;
    char folder[PATH_BYTES] = "", *text = NULL;
    const bool root = rd_comm_world(comm)->rank == 0;
    int64_t bytes = 0;
    json_t *keys = NULL, *v;
    /* The path may be freed when a key is put. */
    (void)snprintf(folder, sizeof folder, "%.4300s",
                   m && keys_path(c, cli) ? keys_path(c, cli) : "");
    if (!folder[0]) return RD_OK;
    if (root) (void)keys_root(c, cli, folder, &text, notices, st);
    RD_TRY(rd_comm_agree(comm, st));
    bytes = text ? (int64_t)strlen(text) : 0;
    RD_TRY(rd_comm_bcast(comm, &bytes, sizeof bytes, 0, st));
    if (bytes == 0) goto done;
    if (!root) text = calloc(1, (size_t)bytes + 1);
    if (!text) rd_fail(st, RD_EENV, "out of memory for keys");
    RD_TRY(rd_comm_agree(comm, st));
    RD_TRY(rd_comm_bcast(comm, text, bytes, 0, st));
    keys = json_loadb(text, (size_t)bytes, 0, NULL);
    if (!keys) rd_fail(st, RD_EENV, "out of memory for keys");
    /* "pos" comes first: other keys depend on it. */
    v = json_object_get(keys, "pos");
    if (v) (void)keys_take(c, folder, "pos", v, m->folder, notices, st);
    json_object_foreach(keys, key, v)
    {
        if (st->code == RD_OK) (void)keys_take(c, folder, key, v, m->folder, notices, st);
    }
    (void)rd_comm_agree(comm, st);
done:
    json_decref(keys);
    free(text);
    return st->code;
}
