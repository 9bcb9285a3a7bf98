/* predict.c -- infer mode of image models: one row for each image, in the order of the input, with
 * its path and its most probable classes.
 *
 * The images are those that --input names, else those of the config's data. Rank 0 reads the paths
 * in blocks and gives them to all ranks. Each rank computes whole batches of a block, and rank 0
 * puts the rows in order. Blocks and batches of files depend on the input alone, and so does the
 * output. From a pipe a block also ends where the writer pauses.
 *
 * With --input the model needs no other data: the manifest of the checkpoint has the classes and
 * the size of the images. An image that cannot be read has a row that says why. */
#include "console.h"
#include "decode.h"
#include "device.h"
#include "fault.h"
#include "infer_sink.h"
#include "predict_format.h"
#include "predict_input.h"
#include "progress.h"
#include "resume.h"
#include "run_modes.h"
#include "setup.h"
#include "world.h"
#include "rd/image_net.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What every rank says of an image. */
typedef struct row_head {
    int64_t id, bytes; /* bytes: of the row, which follows */
    int64_t note;      /* bytes of "path: what is wrong" behind the row; 0: it has a class */
    int32_t odd;       /* its numbers were not finite */
    int32_t failed;    /* it could not be read */
} row_head;

typedef struct predict_job {
    rd_run *run;
    rd_output_format format;
    int64_t top;
    bool shown;       /* a terminal shows the output */
    infer_sink sink;  /* rank 0 */
    predict_input in; /* rank 0 */
    progress progress;
    int64_t *ids; /* owned; [PREDICT_CHUNK] */
    /* of the present block */
    rd_strbuf rows, path, names;
    predict_class *best; /* owned; [top] */
    int64_t n_here;      /* images that this rank has computed */
    /* rank 0: of all images */
    int64_t n, n_failed, n_odd;
    rd_strbuf first_failed, first_odd;
} predict_job;

/* ---- one block ---- */

/* Appends the row of sample i of a batch. logits: of that sample. */
static rd_code add_row(predict_job *j, const rd_batch *b, int64_t i, const float *logits,
                       rd_status *st)
{
    const rd_dataset *d = j->run->eval_data;
    const rd_dataset_def *def = rd_dataset_def_of(d);
    const int32_t id = (int32_t)b->sample[i];
    bool failed = false;
    row_head h = {.id = b->sample[i]};
    const char *trouble = def->trouble ? def->trouble(rd_dataset_self(d), h.id, &failed) : NULL;
    predict_row row = {.best = j->best, .trouble = trouble};
    h.failed = failed;
    rd_strbuf_reset(&j->path);
    rd_strbuf_reset(&j->names);
    if (def->text) def->text(rd_dataset_self(d), 0, &id, 1, false, &j->path);
    row.path = rd_strbuf_str(&j->path);
    h.odd = !failed && !predict_best(logits, j->run->spec.n_classes, j->top, j->best);
    if (h.odd) row.trouble = "the model's numbers are not finite";
    if (!failed && !h.odd) row.n = j->top;
    for (int64_t k = 0; k < row.n; k++) {
        rd_dataset_class_text(d, j->best[k].id, &j->names);
        rd_strbuf_add(&j->names, "", 1);
    }
    const char *name = rd_strbuf_str(&j->names);
    for (int64_t k = 0; k < row.n && !j->names.failed; k++, name += strlen(name) + 1)
        j->best[k].name = name;
    const size_t at = j->rows.n;
    rd_strbuf_add(&j->rows, &h, sizeof h);
    const size_t from = j->rows.n;
    if (!j->names.failed) predict_format(j->format, j->top, j->shown, &row, &j->rows);
    h.bytes = (int64_t)(j->rows.n - from);
    if (row.n == 0) rd_strbuf_printf(&j->rows, "%.300s: %.200s", row.path, row.trouble);
    h.note = (int64_t)(j->rows.n - from) - h.bytes;
    if (j->rows.failed || j->path.failed || j->names.failed)
        return rd_fail(st, RD_EENV, "out of memory for the rows of images");
    memcpy(j->rows.s + at, &h, sizeof h);
    progress_mine(&j->progress, ++j->n_here);
    return RD_OK;
}

static rd_code predict_batch(predict_job *j, const rd_batch *b, rd_status *st)
{
    rd_run *r = j->run;
    const int64_t V = r->spec.n_classes;
    rd_loss_out out = {0};
    float *logits;
    rd_tape_reset(r->tape, false, false);
    (void)decode_forward(r, b, &out, st);
    RD_TRY(device_explain(r, "infer_batch_size", r->config.infer_batch_size, st));
    device_report_fallback(r);
    RD_TRY(rd_arena_get(rd_tape_arena(r->tape), (size_t)(b->n * V) * sizeof *logits, &logits, st));
    RD_TRY(rd_tape_read(r->tape, out.logits, false, logits, st));
    for (int64_t i = 0; i < b->n; i++) RD_TRY(add_row(j, b, i, logits + i * V, st));
done:
    return st->code;
}

/* Rank 0: counts and writes the rows of the ids [first, first + n), from the gathered bytes. */
static rd_code write_rows(predict_job *j, const char *all, int64_t bytes, int64_t first, int64_t n,
                          rd_status *st)
{
    const char **at = calloc((size_t)n + 1, sizeof *at);
    rd_strbuf out = {0};
    row_head h;
    if (!at) return rd_fail(st, RD_EENV, "out of memory for the rows of images");
    for (int64_t i = 0; i < bytes; i += (int64_t)sizeof h + h.bytes + h.note) {
        memcpy(&h, all + i, sizeof h);
        rd_assert(h.id >= first && h.id < first + n);
        at[h.id - first] = all + i;
    }
    for (int64_t k = 0; k < n; k++) {
        rd_assert(at[k] != NULL);
        memcpy(&h, at[k], sizeof h);
        const char *row = at[k] + sizeof h, *note = row + h.bytes;
        rd_strbuf_add(&out, row, (size_t)h.bytes);
        if (h.failed && j->n_failed++ == 0) rd_strbuf_add(&j->first_failed, note, (size_t)h.note);
        if (h.odd && j->n_odd++ == 0) rd_strbuf_add(&j->first_odd, note, (size_t)h.note);
    }
    if (out.failed)
        rd_fail(st, RD_EENV, "out of memory for the rows of images");
    else
        (void)infer_sink_write(&j->sink, rd_strbuf_str(&out), out.n, st);
    rd_strbuf_release(&out);
    free(at);
    return st->code;
}

/* Collective. Classifies the samples [first, first + n). */
static rd_code predict_block(predict_job *j, int64_t first, int64_t n, rd_status *st)
{
    rd_run *r = j->run;
    char *all = NULL;
    int64_t *lens = NULL, bytes = 0;
    const decode_batches batches = {.ids = j->ids, .n = n, .size = r->config.infer_batch_size};
    for (int64_t i = 0; i < n; i++) j->ids[i] = first + i;
    rd_strbuf_reset(&j->rows);
    for (int64_t k = r->world->rank; k * batches.size < n && st->code == RD_OK;
         k += r->world->size) {
        rd_batch b = {0};
        if (decode_batch(r, r->eval_data, &batches, k, &b, st) == RD_OK)
            (void)predict_batch(j, &b, st);
    }
    RD_TRY(run_agree(r, st));
    RD_TRY(rd_comm_gather(r->comm, j->rows.s, (int64_t)j->rows.n, &all, &lens, st));
    if (r->world->rank == 0) {
        for (int i = 0; i < r->world->size; i++) bytes += lens[i];
        (void)write_rows(j, all, bytes, first, n, st);
        j->n_here = (j->n + first + n) / r->world->size;
    }
    (void)run_agree(r, st);
done:
    free(all);
    free(lens);
    return st->code;
}

/* ---- the whole input ---- */

/* Gives the paths of a block, which rank 0 has, to all ranks. *paths is owned by the caller on the
 * other ranks. Collective. */
static rd_code spread_paths(predict_job *j, char **paths, int64_t *bytes, bool *ended,
                            rd_status *st)
{
    rd_run *r = j->run;
    const bool root = r->world->rank == 0;
    const char *mine = NULL;
    int64_t now[2] = {0, 0};
    size_t n = 0;
    if (root) {
        (void)predict_input_next(&j->in, &mine, &n, ended, st);
        now[0] = (int64_t)n;
        now[1] = *ended;
    }
    RD_TRY(run_agree(r, st));
    RD_TRY(rd_comm_bcast(r->comm, now, sizeof now, 0, st));
    *bytes = now[0];
    *ended = now[1] != 0;
    *paths = malloc((size_t)*bytes + 1);
    if (!*paths) rd_fail(st, RD_EENV, "out of memory for the paths of images");
    RD_TRY(run_agree(r, st));
    if (root && *bytes > 0) memcpy(*paths, mine, (size_t)*bytes);
    if (*bytes > 0) RD_TRY(rd_comm_bcast(r->comm, *paths, *bytes, 0, st));
done:
    return st->code;
}

/* Classifies the images of --input. */
static rd_code predict_fed(predict_job *j, rd_status *st)
{
    rd_run *r = j->run;
    const rd_dataset_def *def = rd_dataset_def_of(r->eval_data);
    void *self = rd_dataset_self(r->eval_data);
    for (bool ended = false; !ended;) {
        char *paths = NULL;
        int64_t bytes = 0;
        /* A silent writer is no hang. */
        RD_TRY(run_phase(r, RD_PHASE_EVALUATE, r->progress.step, st));
        if (spread_paths(j, &paths, &bytes, &ended, st) == RD_OK && bytes > 0)
            (void)def->feed(self, paths, (size_t)bytes, j->n, st);
        free(paths);
        RD_TRY(run_agree(r, st));
        const int64_t n = bytes > 0 ? def->count(self) : 0;
        if (n > 0) RD_TRY(predict_block(j, 0, n, st));
        j->n += n;
    }
done:
    return st->code;
}

/* Classifies the images of the config's data. */
static rd_code predict_data(predict_job *j, rd_status *st)
{
    const rd_dataset *d = j->run->eval_data;
    const int64_t n = rd_dataset_def_of(d)->count(rd_dataset_self(d));
    for (int64_t at = 0; at < n; at += PREDICT_CHUNK)
        RD_TRY(predict_block(j, at, n - at < PREDICT_CHUNK ? n - at : PREDICT_CHUNK, st));
    j->n = n;
done:
    return st->code;
}

/* Rank 0: warns of the files of a folder that are skipped. */
static void report_skipped(const predict_job *j)
{
    const struct {
        rd_skip why;
        const char *what;
    } kinds[] = {{RD_SKIP_NAME, "not named .jpg, .jpeg or .png"},
                 {RD_SKIP_LOOP, "a link that leads back to a folder above it"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (j->in.skipped[kinds[i].why] > 0)
            rd_warn(j->run->log, "%" PRId64 " file%s skipped: %s, such as '%s'",
                    j->in.skipped[kinds[i].why], RD_S(j->in.skipped[kinds[i].why]), kinds[i].what,
                    j->in.first[kinds[i].why]);
    if (j->in.skipped[RD_SKIP_HIDDEN] > 0)
        rd_info(j->run->log, "%" PRId64 " hidden file%s skipped, such as '%s'",
                j->in.skipped[RD_SKIP_HIDDEN], RD_S(j->in.skipped[RD_SKIP_HIDDEN]),
                j->in.first[RD_SKIP_HIDDEN]);
}

/* Collective. Reports the end, and fails if no row or a wrong one came out. */
static rd_code predict_report(predict_job *j, rd_status *st)
{
    rd_run *r = j->run;
    char a[32], failed[64] = "";
    const double seconds = (double)(rd_now_ns() - j->progress.begin_ns) * 1e-9;
    int64_t counts[3] = {j->n, j->n_failed, j->n_odd};
    if (r->world->rank == 0) (void)infer_sink_commit(&j->sink, st);
    RD_TRY(run_agree(r, st));
    RD_TRY(rd_comm_bcast(r->comm, counts, sizeof counts, 0, st));
    if (counts[1] > 0)
        (void)snprintf(failed, sizeof failed, ", %" PRId64 " could not be read", counts[1]);
    rd_info(r->log, "%s image%s in %.1f s%s%s%s", rd_commas((double)counts[0], a), RD_S(counts[0]),
            seconds, failed, j->sink.name ? ", written to " : "", j->sink.name ? j->sink.name : "");
    if (counts[1] == 0 && counts[2] == 0) return RD_OK;
    r->agreed = true; /* all ranks have the same counts */
    if (counts[2] > 0)
        rd_fail(st, RD_ENUMERIC,
                "the model's numbers were not finite for %" PRId64 " of %" PRId64
                " images, first: %s; use an earlier checkpoint (--set checkpoint=FILE)",
                counts[2], counts[0], rd_strbuf_str(&j->first_odd));
    else if (counts[1] == counts[0])
        rd_fail(st, RD_EDATA, "%s: %s",
                counts[0] == 1 ? "the image could not be read"
                               : "none of the images could be read, first",
                rd_strbuf_str(&j->first_failed));
    else
        r->agreed = false;
done:
    return st->code;
}

static void predict_release(predict_job *j)
{
    progress_end(&j->progress);
    infer_sink_release(&j->sink);
    predict_input_release(&j->in);
    rd_strbuf_release(&j->rows);
    rd_strbuf_release(&j->path);
    rd_strbuf_release(&j->names);
    rd_strbuf_release(&j->first_failed);
    rd_strbuf_release(&j->first_odd);
    free(j->ids);
    free(j->best);
}

/* Reads the keys of the output. All ranks have the same keys, and fail alike. */
static rd_code read_keys(predict_job *j, rd_status *st)
{
    rd_image_config c = {0};
    rd_run *r = j->run;
    RD_TRY(rd_config_read(r->keys, &rd_group_image_model, r->mode, &c, st));
    j->format = c.has_output_format ? c.output_format : RD_FORMAT_TSV;
    j->top = c.top_k < r->spec.n_classes ? c.top_k : r->spec.n_classes;
    if (j->format == RD_FORMAT_NBEST)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'output_format' nbest is for translations; an image model has tsv, "
                       "json or text, with the number of classes in top_k",
                       rd_config_where(r->keys, "output_format"));
done:
    return st->code;
}

/* Collective. Opens the output, and writes its first line. */
static rd_code open_output(predict_job *j, rd_status *st)
{
    rd_run *r = j->run;
    rd_strbuf head = {0};
    int32_t shown = 0;
    j->ids = malloc(PREDICT_CHUNK * sizeof *j->ids);
    j->best = malloc((size_t)(j->top + 1) * sizeof *j->best);
    if (!j->ids || !j->best) rd_fail(st, RD_EENV, "out of memory");
    if (st->code == RD_OK && r->world->rank == 0 &&
        infer_sink_open(&j->sink, r->cli->inference_out, st) == RD_OK) {
        shown = j->sink.terminal;
        if (j->format == RD_FORMAT_TSV) predict_head(j->top, &head);
        (void)infer_sink_write(&j->sink, rd_strbuf_str(&head), head.n, st);
    }
    rd_strbuf_release(&head);
    RD_TRY(run_agree(r, st));
    RD_TRY(rd_comm_bcast(r->comm, &shown, sizeof shown, 0, st));
    j->shown = shown != 0;
done:
    return st->code;
}

/* ---- classes and size ---- */

static int64_t size_of(const json_t *image, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(image, key));
}

/* Fills *like from the manifest. names: memory for the names of classes, owned by the caller.
 * Returns false if the manifest is of an earlier program. */
static bool like_manifest(const json_t *manifest, rd_data_spec *like, const char ***names)
{
    const json_t *image = json_object_get(manifest, "image"),
                 *classes = json_object_get(manifest, "classes");
    const int64_t n = size_of(image, "classes");
    *like = (rd_data_spec){.n_classes = n,
                           .image_h = size_of(image, "height"),
                           .image_w = size_of(image, "width"),
                           .image_c = size_of(image, "channels")};
    if (n < 1 || n > INT32_MAX / 2 || like->image_h < 1 || like->image_w < 1 || like->image_c < 1)
        return false;
    if (json_array_size(classes) != (size_t)n) return true;
    if (!(*names = malloc((size_t)n * sizeof **names))) return false;
    for (size_t k = 0; k < (size_t)n; k++) {
        const char *name = json_string_value(json_array_get(classes, k));
        (*names)[k] = name ? name : "";
    }
    like->class_names = *names;
    return true;
}

/* Collective. Opens a dataset for the images of --input. */
static rd_code open_like(rd_run *r, rd_status *st)
{
    json_t *manifest = NULL;
    rd_dataset *data = NULL;
    rd_data_spec like = {0};
    const char **names = NULL;
    RD_TRY(run_manifest(r, &manifest, st));
    if (!manifest) (void)run_no_checkpoint(r, st);
    RD_TRY(run_agree(r, st));
    if (!like_manifest(manifest, &like, &names)) {
        RD_TRY(setup_data(r, RD_SPLIT_TEST, &data, st));
        rd_dataset_def_of(data)->spec(rd_dataset_self(data), &like);
    }
    RD_TRY(setup_data_like(r, &like, &r->eval_data, st));
    if (!rd_dataset_def_of(r->eval_data)->feed)
        rd_fail(st, RD_EUSAGE, "dataset %s has no images that --input could name",
                setup_dataset_name(r));
    RD_TRY(run_agree(r, st));
done:
    rd_dataset_free(data);
    json_decref(manifest);
    free(names);
    return st->code;
}

rd_code run_predict(rd_run *r, rd_status *st)
{
    const char *input = r->cli->input && r->cli->input[0] ? r->cli->input : NULL;
    predict_job j = {.run = r};
    rd_data_spec spec = {0};
    RD_TRY(run_check_weights_source(r, st));
    if (input && r->world->rank == 0) (void)predict_input_open(&j.in, input, st);
    RD_TRY(run_agree(r, st));
    RD_TRY(input ? open_like(r, st) : setup_data(r, RD_SPLIT_TEST, &r->eval_data, st));
    rd_dataset_def_of(r->eval_data)->spec(rd_dataset_self(r->eval_data), &spec);
    RD_TRY(setup_model(r, &spec, false, st));
    RD_TRY(world_check(r, st));
    RD_TRY(run_load_required(r, st));
    RD_TRY(read_keys(&j, st));
    RD_TRY(open_output(&j, st));
    if (r->world->rank == 0) report_skipped(&j);
    if (input && r->world->rank == 0 && j.in.piped && isatty(STDIN_FILENO))
        rd_info(r->log, "one path of an image per line; end with Ctrl-D");
    progress_start(&j.progress, r, "images", "image",
                   !input ? rd_dataset_def_of(r->eval_data)->count(rd_dataset_self(r->eval_data))
                   : j.in.piped ? 0
                                : j.in.n);
    RD_TRY(input ? predict_fed(&j, st) : predict_data(&j, st));
    if (j.progress.watched) rd_live(r->log, NULL);
    RD_TRY(predict_report(&j, st));
done:
    predict_release(&j);
    return st->code;
}
