/* export.c -- export mode: the weights of a checkpoint for other programs.
 *
 * The model is made as for inference, and its weights are loaded. Then rank 0 writes them by their
 * names (npz, safetensors, peft), or the model as graphs (onnx). A file that exists is never
 * replaced.
 * Texts beside the weights tell what they are: model, step, names of classes, normalization. */
#include "export_folder.h"
#include "meaning.h"
#include "progress.h"
#include "resume.h"
#include "run_modes.h"
#include "setup.h"
#include "world.h"
#include "rd/file.h"
#include "rd/input.h"
#include "rd/npz.h"
#include "rd/onnx.h"
#include "rd/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4400, MOST_GRAPHS = 8 };

/* The files of an export. */
typedef struct export_files {
    char path[MOST_GRAPHS][PATH_BYTES];
    int n;
} export_files;

/* ---- names ---- */

/* Writes LOGDIR/export/NAME, where NAME is that of the checkpoint without ".npz". */
static void usual_stem(const rd_run *r, char out[PATH_BYTES])
{
    const char *slash = strrchr(r->loaded, '/'), *name = slash ? slash + 1 : r->loaded;
    const size_t n = strlen(name), ending = n > 4 && strcmp(name + n - 4, ".npz") == 0 ? 4 : 0;
    (void)snprintf(out, PATH_BYTES, "%.4000s/export/%.*s",
                   r->cli->logdir && r->cli->logdir[0] ? r->cli->logdir : ".",
                   (int)(n - ending > 200 ? 200 : n - ending), name);
}

/* Makes the list of files. Several graphs have their names in front of the ending. */
static rd_code name_files(const rd_run *r, export_files *f, rd_status *st)
{
    static const char *const one[] = {"", NULL};
    const bool onnx = strcmp(r->cli->format, "onnx") == 0;
    const char *const *graph = onnx ? r->model->graphs : one;
    char stem[PATH_BYTES], end[24];
    (void)snprintf(end, sizeof end, ".%.16s", r->cli->format);
    if (r->cli->export_out && r->cli->export_out[0]) {
        const size_t n = strlen(r->cli->export_out), k = strlen(end);
        if (n > 4000)
            return rd_fail(st, RD_EUSAGE, "--export_out is %zu bytes long; 4000 are allowed", n);
        (void)snprintf(stem, sizeof stem, "%s", r->cli->export_out);
        if (n > k && strcmp(stem + n - k, end) == 0)
            stem[n - k] = '\0';
        else if (!graph || !graph[1])
            end[0] = '\0'; /* the name is whole */
    } else {
        usual_stem(r, stem);
    }
    if (!graph)
        return rd_fail(st, RD_EUSAGE,
                       "model %s has no form in ONNX; --format=safetensors and npz write its "
                       "weights",
                       r->model->name);
    for (f->n = 0; graph[f->n] && f->n < MOST_GRAPHS; f->n++)
        (void)snprintf(f->path[f->n], PATH_BYTES, "%.4200s%s%.64s%s", stem,
                       graph[f->n][0] ? "." : "", graph[f->n], end);
    return RD_OK;
}

/* Cuts the ending and slashes: a folder has none. */
static void end_stem(char path[PATH_BYTES])
{
    static const char end[] = ".safetensors";
    size_t n = strlen(path), k = sizeof end - 1;
    if (n > k && strcmp(path + n - k, end) == 0) path[n -= k] = '\0';
    while (n > 1 && path[n - 1] == '/') path[--n] = '\0';
}

/* Fails if one of the files exists, also as a link to nothing. */
static rd_code check_new(const export_files *f, rd_status *st)
{
    struct stat s;
    for (int i = 0; i < f->n; i++)
        if (lstat(f->path[i], &s) == 0)
            return rd_fail(st, RD_EUSAGE,
                           "'%s' exists already; remove it, or give another name with --export_out",
                           f->path[i]);
    return RD_OK;
}

/* Makes the folder of the usual name. Another one must exist. */
static rd_code make_folder(const rd_run *r, const export_files *f, rd_status *st)
{
    char folder[PATH_BYTES];
    if (r->cli->export_out && r->cli->export_out[0]) return RD_OK;
    (void)snprintf(folder, sizeof folder, "%s", f->path[0]);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = '\0';
    return slash ? rd_mkdir_inside(folder, st) : RD_OK;
}

/* ---- what the weights are ---- */

/* Adds a value as text: strings as they are, all else as JSON. */
static void add_text(json_t *o, const char *key, json_t *value_stolen)
{
    char *text = json_is_string(value_stolen)
                     ? NULL
                     : json_dumps(value_stolen,
                                  JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    if (json_is_string(value_stolen))
        (void)json_object_set(o, key, value_stolen);
    else if (text)
        (void)json_object_set_new(o, key, json_string(text));
    free(text);
    json_decref(value_stolen);
}

static json_t *channel_list(const float *x, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n && i < 4; i++)
        (void)json_array_append_new(list, json_real((double)x[i]));
    return list;
}

/* Returns texts by name, for all formats. The caller owns it. NULL: out of memory. */
static json_t *describe(const rd_run *r)
{
    const rd_data_spec *s = &r->spec;
    const char *slash = strrchr(r->loaded, '/');
    json_t *o = json_object(), *classes = meaning_classes(s);
    if (!o) return NULL;
    add_text(o, "format", json_string("pt")); /* what readers of safetensors expect */
    add_text(o, "program", json_pack("s+", "run_dist ", world_version()));
    add_text(o, "model", json_string(r->model->name));
    add_text(o, "checkpoint", json_string(slash ? slash + 1 : r->loaded));
    add_text(o, "step", json_integer((json_int_t)r->progress.step));
    if (run_real(r, "ema", 0.0) > 0.0) add_text(o, "ema", json_true());
    if (s->n_classes > 0) {
        add_text(o, "n_classes", json_integer((json_int_t)s->n_classes));
        add_text(o, "image",
                 json_pack("[I, I, I]", (json_int_t)s->image_h, (json_int_t)s->image_w,
                           (json_int_t)s->image_c));
        add_text(o, "pixel_mean", channel_list(s->pixel_mean, s->image_c));
        add_text(o, "pixel_std", channel_list(s->pixel_std, s->image_c));
    }
    if (classes) add_text(o, "classes", classes);
    if (s->src_vocab_size > 0) {
        add_text(o, "source_words", json_integer((json_int_t)s->src_vocab_size));
        add_text(o, "target_words", json_integer((json_int_t)s->tgt_vocab_size));
    }
    add_text(o, "config", meaning_config(r));
    return o;
}

/* ---- the forms ---- */

/* Lists the weights. The caller frees *out. */
static rd_code list_weights(const rd_run *r, rd_array **out, int *n, rd_status *st)
{
    const rd_params *ps = r->params;
    *n = rd_params_n(ps);
    *out = calloc((size_t)*n + 1, sizeof **out);
    if (!*out) return rd_fail(st, RD_EENV, "out of memory for a list of weights");
    for (int i = 0; i < *n; i++) {
        const rd_param *p = rd_params_at(ps, i);
        rd_array *a = &(*out)[i];
        *a = (rd_array){.descr = "<f4",
                        .n_dim = p->n_dim,
                        .data = rd_params_values(ps) + p->offset,
                        .bytes = (size_t)p->n * sizeof(float)};
        (void)snprintf(a->name, sizeof a->name, "%s", p->name);
        for (int d = 0; d < p->n_dim; d++) a->dim[d] = p->dim[d];
    }
    return RD_OK;
}

static rd_code write_weights(const rd_run *r, const char *path, const json_t *about, rd_status *st)
{
    rd_array *a = NULL;
    int n = 0;
    char *text = NULL;
    RD_TRY(list_weights(r, &a, &n, st));
    if (strcmp(r->cli->format, "safetensors") == 0) {
        (void)rd_safetensors_write(path, a, n, about, st);
    } else if ((text = json_dumps(about, JSON_INDENT(1)))) {
        (void)rd_npz_write(path, a, n, text, st);
    } else {
        rd_fail(st, RD_EENV, "out of memory for a manifest");
    }
done:
    free(text);
    free(a);
    return st->code;
}

/* Makes all graphs before the first file, so that a failure leaves none. */
static rd_code write_graphs(const rd_run *r, const export_files *f, const json_t *about,
                            rd_status *st)
{
    rd_onnx *g[MOST_GRAPHS] = {NULL};
    char name[128];
    int written = 0;
    for (int i = 0; i < f->n; i++) {
        const char *graph = r->model->graphs[i];
        (void)snprintf(name, sizeof name, "%.60s%s%.60s", r->model->name, graph[0] ? "." : "",
                       graph);
        RD_TRY(rd_onnx_new(name, &g[i], st));
        RD_TRY(r->model->graph(r->model_self, i, g[i], st));
    }
    for (; written < f->n; written++)
        RD_TRY(rd_onnx_write(g[written], f->path[written], world_version(), about, st));
done:
    for (int i = 0; i < written && st->code != RD_OK; i++) (void)unlink(f->path[i]);
    for (int i = 0; i < f->n; i++) rd_onnx_free(g[i]);
    return st->code;
}

static rd_code export_root(rd_run *r, rd_status *st)
{
    export_files *f = calloc(1, sizeof *f);
    json_t *about = describe(r);
    char count[32];
    struct stat s;
    progress shown = {0};
    if (!f || !about) {
        rd_fail(st, RD_EENV, "out of memory for an export");
        goto done;
    }
    RD_TRY(name_files(r, f, st));
    if (export_folder_wanted(r)) end_stem(f->path[0]);
    RD_TRY(check_new(f, st));
    RD_TRY(make_folder(r, f, st));
    progress_files(&shown, r, "writing weights");
    if (export_folder_wanted(r) || export_adapter_wanted(r)) {
        (void)(export_adapter_wanted(r) ? export_adapter : export_folder)(r, f->path[0], about, st);
        goto done;
    }
    RD_TRY(rd_params_sync_to_host(r->params, RD_VALUES, st));
    if (strcmp(r->cli->format, "onnx") == 0)
        RD_TRY(write_graphs(r, f, about, st));
    else
        RD_TRY(write_weights(r, f->path[0], about, st));
    progress_end(&shown);
    for (int i = 0; i < f->n; i++)
        rd_info(r->log, "%s is written (%s bytes)", f->path[i],
                rd_commas(stat(f->path[i], &s) == 0 ? (double)s.st_size : 0.0, count));
    rd_info(r->log,
            "%s parameters of model %s, step %" PRId64 "; logs/EXPORT.md has names and "
            "layouts",
            rd_commas((double)rd_params_total(r->params), count), r->model->name, r->progress.step);
done:
    progress_end(&shown);
    json_decref(about);
    free(f);
    return st->code;
}

rd_code run_export(rd_run *r, rd_status *st)
{
    rd_data_spec spec = {0};
    RD_TRY(run_check_weights_source(r, st));
    RD_TRY(setup_data(r, RD_SPLIT_EVAL, &r->eval_data, st));
    rd_dataset_def_of(r->eval_data)->spec(rd_dataset_self(r->eval_data), &spec);
    RD_TRY(setup_model(r, &spec, false, st));
    RD_TRY(world_check(r, st));
    RD_TRY(run_load_required(r, st));
    if (r->world->rank == 0) (void)export_root(r, st);
    (void)run_agree(r, st);
done:
    return st->code;
}
