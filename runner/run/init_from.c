/* init_from.c -- begins a training with the weights of another run.
 *
 * Only weights are taken, by name. What does not fit is listed. It is an error, or with
 * init_allow_missing it keeps its initial value: a classifier of other classes keeps all layers but
 * the last. */
#include "init_from.h"
#include "finite.h"
#include "meaning.h"
#include "progress.h"
#include "published.h"
#include "replicas.h"
#include "resume.h"
#include "rd/checkpoint.h"
#include "rd/hash.h"
#include "rd/input.h"
#include "rd/npz.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SHOWN = 6 };

rd_code init_check_keys(const rd_run *r, rd_status *st)
{
    if (strcmp(r->config.checkpoint, "newest") == 0) return RD_OK;
    return rd_fail(
        st, RD_EUSAGE,
        "%s: 'checkpoint' is for eval and infer; a training begins with other weights by "
        "\"init_from\" (--set init_from=%s), and goes on from its own --logdir",
        rd_config_where(r->keys, "checkpoint"),
        strcmp(r->config.checkpoint, "best") == 0      ? "LOGDIR:best"
        : strcmp(r->config.checkpoint, "average") == 0 ? "LOGDIR:average"
                                                       : r->config.checkpoint);
}

/* Loads the named file, or the newest or best whole one of the named folder. */
static rd_code load_parent(rd_run *r, rd_ckpt *c, rd_status *st)
{
    const char *name = r->config.init_from, *colon = strrchr(name, ':');
    const size_t n = colon ? (size_t)(colon - name) : strlen(name);
    char path[4096], warning[RD_MSG_BYTES] = "";
    struct stat at;
    bool there;
    if (strlen(name) > 4000)
        return rd_fail(st, RD_EUSAGE, "'init_from' is %zu bytes long; 4000 are allowed",
                       strlen(name));
    if (rd_path_stat(name, &at, RD_MAYBE) == 0) {
        if (!S_ISDIR(at.st_mode)) return rd_ckpt_load(name, c, st);
        (void)rd_ckpt_load_newest(name, "model", c, warning, st);
    } else if (rd_fault_code(errno, RD_OK) != RD_OK) {
        rd_input_fails(st, RD_ECKPT, "open", name, errno, NULL);
    } else if (colon && (strcmp(colon, ":best") == 0 || strcmp(colon, ":average") == 0)) {
        (void)snprintf(path, sizeof path, "%.*s", (int)n, name);
        (void)rd_ckpt_load_newest(path, colon + 1, c, warning, st);
    } else if (colon && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1)) {
        (void)snprintf(path, sizeof path, "%.*s/model-%s.npz", (int)n, name, colon + 1);
        if (rd_path_there(path, &there, st) != RD_OK) return st->code;
        if (there) return rd_ckpt_load(path, c, st);
        (void)snprintf(path, sizeof path, "%.*s/best-%s.npz", (int)n, name, colon + 1);
        if (rd_path_there(path, &there, st) != RD_OK) return st->code;
        if (there) return rd_ckpt_load(path, c, st);
    }
    if (warning[0]) rd_warn(r->log, "%s", warning);
    if (st->code == RD_OK && !c->npz)
        rd_fail(st, RD_ECKPT,
                "init_from: '%s' names no checkpoint; name a file, a log "
                "folder, LOGDIR:best, LOGDIR:average or LOGDIR:STEP",
                name);
    return st->code;
}

static void init_note(rd_strbuf *list, int *n, const char *name, const char *what)
{
    if ((*n)++ < SHOWN) rd_strbuf_printf(list, "%s'%s' %s", list->n ? ", " : "", name, what);
    if (*n == SHOWN + 1) rd_strbuf_puts(list, ", ...");
}

/* Is the file without the adapters of the model? Where weights are frozen, the others are adapters,
 * which begin with their initial values then. */
static bool lacks_adapters(const rd_run *r, const rd_ckpt *c)
{
    if (rd_params_grad_span(r->params) == rd_params_span(r->params)) return false;
    for (int i = 0; i < rd_params_n(r->params); i++) {
        const rd_param *p = rd_params_at(r->params, i);
        if (rd_param_trains(p) && rd_npz_find(c->npz, p->name)) return false;
    }
    return true;
}

/* Copies the weights that fit, and lists the others. Returns how many do not fit. *absent: number
 * of arrays of adapters in a file without. */
static int copy_fitting(rd_run *r, const rd_ckpt *c, rd_strbuf *list, int *absent)
{
    const bool no_adapters = lacks_adapters(r, c);
    int n = 0;
    *absent = 0;
    for (int i = 0; i < rd_params_n(r->params); i++) {
        const rd_param *p = rd_params_at(r->params, i);
        const rd_array *a = rd_npz_find(c->npz, p->name);
        bool same = a && a->n_dim == p->n_dim && strcmp(a->descr, "<f4") == 0;
        for (int d = 0; same && d < a->n_dim; d++) same = a->dim[d] == p->dim[d];
        if (same)
            memcpy(rd_params_values(r->params) + p->offset, a->data, (size_t)p->n * sizeof(float));
        else if (no_adapters && rd_param_trains(p))
            ++*absent;
        else
            init_note(list, &n, p->name, a ? "has another shape there" : "is missing there");
    }
    return n;
}

/* Lists the weights of the file that the model does not have. */
static int list_unused(const rd_run *r, const rd_ckpt *c, rd_strbuf *list)
{
    int n = 0;
    for (int i = 0; i < rd_npz_n(c->npz); i++) {
        const rd_array *a = rd_npz_at(c->npz, i);
        const char *slash = strrchr(a->name, '/');
        char owner[sizeof a->name];
        if (strcmp(a->name, "manifest.json") == 0 || rd_params_find(r->params, a->name)) continue;
        (void)snprintf(owner, sizeof owner, "%.*s", slash ? (int)(slash - a->name) : 0, a->name);
        if (slash && (rd_params_find(r->params, owner) || rd_npz_find(c->npz, owner)))
            continue; /* an optimizer array */
        init_note(list, &n, a->name, "is not in the model");
    }
    return n;
}

/* Returns the first adapter of the file that the model lacks; NULL: there is none. The other
 * weights alone are another model. */
static const char *other_adapter(const rd_run *r, const rd_ckpt *c)
{
    const json_t *list = json_object_get(c->meta, "trained"), *v;
    size_t i;
    json_array_foreach(list, i, v)
    {
        const char *name = json_string_value(v);
        if (name && !rd_params_find(r->params, name)) return name;
    }
    return NULL;
}

/* Warns where the adapters of the file count another number of times. */
static void report_scale(const rd_run *r, const rd_ckpt *c)
{
    static const char *const keys[] = {"lora_alpha", "lora_rslora"};
    const json_t *old = json_object_get(c->meta, "config");
    json_t *was = json_object(), *now = json_object();
    rd_strbuf list = {0};
    for (int i = 0; i < 2; i++) {
        json_t *a = json_object_get(old, keys[i]);
        const json_t *b = rd_config_get(r->keys, keys[i]);
        if (a) (void)json_object_set(was, keys[i], a);
        if (b) (void)json_object_set(now, keys[i], (json_t *)(uintptr_t)b);
    }
    if (json_object_get(c->meta, "trained") && meaning_difference(was, now, 0, &list))
        rd_warn(r->log, "init_from: the adapters had another scale there: %s",
                rd_strbuf_str(&list));
    rd_strbuf_release(&list);
    json_decref(was);
    json_decref(now);
}

/* Names vocabularies and classes that give the same numbers another meaning. Returns how many. */
static int list_meanings(const rd_run *r, const rd_ckpt *c, rd_strbuf *list)
{
    const uint64_t now[2] = {r->spec.src_vocab_hash, r->spec.tgt_vocab_hash};
    int n = 0;
    for (int i = 0; i < 2; i++) {
        char text[20];
        const char *was = json_string_value(json_object_get(c->meta, i == 0 ? "src_vocab_hash"
                                                                            : "tgt_vocab_hash"));
        (void)snprintf(text, sizeof text, "%016" PRIx64, now[i]);
        if (was && strcmp(was, text) != 0)
            init_note(list, &n, i == 0 ? "source vocabulary" : "target vocabulary",
                      "is another one there");
    }
    const char *sub = json_string_value(json_object_get(c->meta, "subword_hash"));
    char text[20];
    (void)snprintf(text, sizeof text, "%016" PRIx64, r->spec.subword_hash);
    if (sub ? strcmp(sub, text) != 0 : r->spec.subword_hash != 0)
        init_note(list, &n, "subword model", sub ? "is another one there" : "is missing there");
    rd_strbuf why = {0};
    if (meaning_other_classes(json_object_get(c->meta, "classes"), &r->spec, &why))
        init_note(list, &n, "classes", rd_strbuf_str(&why));
    rd_strbuf_release(&why);
    return n;
}

/* Describes the checkpoint that the weights come from. Its manifest holds a checksum of each array,
 * so a hash of the manifest names the weights. NULL: out of memory. */
static json_t *init_parent(const rd_ckpt *c)
{
    char hash[20], at[4096];
    const rd_array *text = rd_npz_find(c->npz, "manifest.json");
    (void)snprintf(hash, sizeof hash, "%016" PRIx64, rd_hash(0, text->data, text->bytes));
    if (!realpath(c->path, at)) (void)snprintf(at, sizeof at, "%s", c->path);
    json_t *path = json_string(at);
    return json_pack("{s:o, s:I, s:s, s:s?}", "path", path ? path : json_string("?"), "step",
                     (json_int_t)c->step, "hash", hash, "model",
                     json_string_value(json_object_get(c->meta, "model")));
}

static rd_code init_root(rd_run *r, rd_status *st)
{
    rd_ckpt c = {0};
    rd_strbuf missing = {0}, unused = {0};
    char bad[320];
    bool published = false;
    int n_absent = 0;
    RD_TRY(published_there(r, r->config.init_from, &published, st));
    if (published) {
        RD_TRY(published_load(r, r->config.init_from, st));
        rd_optim_start_ema(r->optim);
        goto done;
    }
    if (rd_config_has(r->keys, "lora_from"))
        RD_TRY(rd_fail(st, RD_EUSAGE,
                       "%s: 'lora_from' needs 'init_from' to be the folder of the weights that the "
                       "adapter belongs to; '%s' is none",
                       rd_config_where(r->keys, "lora_from"), r->config.init_from));
    RD_TRY(load_parent(r, &c, st));
    resume_report_renamed(r, &c);
    RD_TRY(rd_params_sync_to_host(r->params, RD_VALUES | RD_SLOTS, st));
    const int n_other = list_meanings(r, &c, &missing),
              n_missing = copy_fitting(r, &c, &missing, &n_absent),
              n_unused = list_unused(r, &c, &unused);
    const char *adapter = other_adapter(r, &c);
    if (adapter) {
        rd_fail(
            st, RD_ECKPT,
            "%s has adapters (LoRA) that the model lacks, first '%s'; set the lora_ keys of its "
            "config, or begin with the folder that --mode=export --format=safetensors writes, "
            "in which they are merged",
            c.path, adapter);
    } else if (n_missing + n_absent == rd_params_n(r->params)) {
        rd_fail(st, RD_ECKPT, "%s has no weight of this model: %s", c.path,
                rd_strbuf_str(&missing));
    } else if (finite_find_other(r, bad)) {
        rd_fail(st, RD_ENUMERIC,
                "%s: '%s' holds inf or NaN, so no training can begin with it; name an earlier "
                "checkpoint",
                c.path, bad);
    } else if (n_missing + n_other > 0 && !r->config.init_allow_missing) {
        rd_fail(st, RD_ECKPT,
                "%s does not fit the model: %s; \"init_allow_missing\": true begins all the same, "
                "with new values for weights that do not fit",
                c.path, rd_strbuf_str(&missing));
    } else {
        json_decref(r->parent);
        r->parent = init_parent(&c);
        rd_info(r->log, "weights from %s, step %" PRId64 ": %d of %d; a new run begins at step 0",
                c.path, c.step, rd_params_n(r->params) - n_missing - n_absent,
                rd_params_n(r->params));
        report_scale(r, &c);
        if (n_absent > 0)
            rd_info(r->log, "the other %d are adapters, which begin with new values", n_absent);
        rd_optim_start_ema(r->optim);
        if (missing.n) rd_warn(r->log, "init_from: %s", rd_strbuf_str(&missing));
        if (n_unused) rd_warn(r->log, "init_from: %s", rd_strbuf_str(&unused));
    }
done:
    rd_strbuf_release(&missing);
    rd_strbuf_release(&unused);
    rd_ckpt_release(&c);
    return st->code;
}

rd_code init_weights(rd_run *r, rd_status *st)
{
    if (r->world->rank == 0) {
        progress shown;
        progress_files(&shown, r, "reading weights");
        (void)init_root(r, st);
        progress_end(&shown);
    }
    RD_TRY(run_agree(r, st));
    RD_TRY(run_spread_weights(r, NULL, NULL, st));
done:
    return st->code;
}
