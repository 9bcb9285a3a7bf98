/* infer.c -- translates: one output line per input line, in order, for any number of ranks. An
 * image model writes the class of each image, by its name where the data has names.
 *
 * The input is processed in chunks of lines. Sentences of similar length in a chunk form batches
 * (decode.c). Every rank decodes its batches, and rank 0 puts the lines back in order. Chunks and
 * batches depend on the input alone, and so does the output. */
#include "console.h"
#include "decode.h"
#include "device.h"
#include "pictures.h"
#include "resume.h"
#include "run_modes.h"
#include "setup.h"
#include "world.h"
#include "rd/file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 8192 };

/* ---- output: standard output, a device or pipe, or a file that appears whole ---- */

typedef struct infer_sink {
    rd_tmpfile file; /* valid when to_file */
    int fd;          /* valid otherwise */
    bool to_file;
    const char *name; /* NULL: standard output */
} infer_sink;

static bool is_stdout(const char *path)
{
    return !path || !path[0] || strcmp(path, "stdout") == 0 || strcmp(path, "-") == 0;
}

static rd_code sink_fails(const infer_sink *o, int err, rd_status *st)
{
    if (!o->name) return rd_fail(st, RD_EENV, "cannot write to standard output: %s", strerror(err));
    return rd_fail(st, RD_EENV, "cannot write '%s': %s", o->name, strerror(err));
}

/* Renaming a temporary file would replace a pipe, a device (/dev/null) or a link by a file. So
 * pipes and devices are written to directly, and a link is followed. A folder is refused before the
 * work begins. */
static rd_code sink_open(infer_sink *o, const char *path, rd_status *st)
{
    struct stat there, out;
    char *real = NULL;
    o->fd = STDOUT_FILENO;
    if (is_stdout(path)) return RD_OK;
    if (stat(path, &there) == 0) {
        if (S_ISDIR(there.st_mode))
            return rd_fail(st, RD_EENV, "cannot write '%s': it is a folder; name a file in it",
                           path);
        if (fstat(STDOUT_FILENO, &out) == 0 && out.st_dev == there.st_dev &&
            out.st_ino == there.st_ino)
            return RD_OK;
        o->to_file = S_ISREG(there.st_mode);
        real = o->to_file ? realpath(path, NULL) : NULL;
    } else {
        o->to_file = true;
    }
    o->name = path;
    if (o->to_file)
        (void)rd_tmpfile_open(&o->file, real ? real : path, st);
    else if ((o->fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC)) < 0)
        (void)sink_fails(o, errno, st);
    free(real);
    return st->code;
}

static void sink_release(infer_sink *o)
{
    rd_tmpfile_release(&o->file);
    if (o->name && !o->to_file && o->fd >= 0) (void)close(o->fd);
}

static rd_code sink_write(infer_sink *o, const char *p, size_t n, rd_status *st)
{
    if (o->to_file) return rd_tmpfile_write(&o->file, p, n, st);
    while (n > 0) {
        const ssize_t got = write(o->fd, p, n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return sink_fails(o, errno, st);
        p += got;
        n -= (size_t)got;
    }
    return RD_OK;
}

/* ---- one chunk ---- */

typedef struct line_head {
    int64_t id, bytes;
} line_head;

typedef struct collector {
    const rd_dataset *d;
    bool classes;  /* an id is a class */
    rd_strbuf out; /* line_head, text, line_head, text ... */
    rd_strbuf text;
} collector;

static rd_code infer_collect(void *ctx, int64_t id, const rd_decoded *d, rd_status *st)
{
    collector *c = ctx;
    const rd_dataset_def *def = rd_dataset_def_of(c->d);
    rd_strbuf_reset(&c->text);
    if (c->classes)
        rd_dataset_class_text(c->d, d->ids[0], &c->text);
    else
        def->text(rd_dataset_self(c->d), 1, d->ids, d->n, false, &c->text);
    const line_head h = {id, (int64_t)c->text.n};
    rd_strbuf_add(&c->out, &h, sizeof h);
    rd_strbuf_add(&c->out, c->text.s ? c->text.s : "", c->text.n);
    if (c->out.failed || c->text.failed)
        return rd_fail(st, RD_EENV, "out of memory for decoded sentences");
    return RD_OK;
}

/* Rank 0: writes the lines of ids [first, first + n) in order, from the gathered bytes. */
static rd_code write_lines(infer_sink *o, const char *all, int64_t bytes, int64_t first, int64_t n,
                           rd_status *st)
{
    const char **at = calloc((size_t)n + 1, sizeof *at);
    rd_strbuf lines = {0};
    if (!at) return rd_fail(st, RD_EENV, "out of memory for %" PRId64 " lines", n);
    for (int64_t i = 0; i < bytes;) {
        line_head h;
        memcpy(&h, all + i, sizeof h);
        if (h.id >= first && h.id < first + n) at[h.id - first] = all + i;
        i += (int64_t)sizeof h + h.bytes;
    }
    for (int64_t k = 0; k < n; k++) {
        line_head h = {0};
        if (at[k]) {
            memcpy(&h, at[k], sizeof h);
            rd_strbuf_add(&lines, at[k] + sizeof h, (size_t)h.bytes);
        }
        rd_strbuf_puts(&lines, "\n");
    }
    if (lines.failed)
        rd_fail(st, RD_EENV, "out of memory for %" PRId64 " lines", n);
    else
        (void)sink_write(o, lines.s, lines.n, st);
    rd_strbuf_release(&lines);
    free(at);
    return st->code;
}

static rd_code translate_chunk(rd_run *r, infer_sink *o, int64_t first, int64_t n, int64_t *ids,
                               rd_status *st)
{
    collector c = {.d = r->eval_data, .classes = !r->model->decode};
    rd_decode_config dc;
    char *all = NULL;
    int64_t *lens = NULL, bytes = 0;
    run_decode_config(r, true, &dc);
    for (int64_t i = 0; i < n; i++) ids[i] = first + i;
    decode_sort(r->eval_data, ids, n);
    (void)decode_share(r, r->eval_data, ids, n, r->config.infer_batch_size, &dc, infer_collect, &c,
                       st);
    RD_TRY(run_agree(r, st));
    RD_TRY(rd_comm_gather(r->comm, c.out.s, (int64_t)c.out.n, &all, &lens, st));
    if (r->world->rank == 0) {
        for (int i = 0; i < r->world->size; i++) bytes += lens[i];
        (void)write_lines(o, all, bytes, first, n, st);
    }
    (void)run_agree(r, st);
done:
    free(all);
    free(lens);
    rd_strbuf_release(&c.out);
    rd_strbuf_release(&c.text);
    return st->code;
}

static rd_code translate(rd_run *r, rd_status *st)
{
    const rd_dataset_def *def = rd_dataset_def_of(r->eval_data);
    const int64_t n = def->count(rd_dataset_self(r->eval_data)), begin_ns = rd_now_ns();
    int64_t *ids = malloc(CHUNK * sizeof *ids);
    const bool watched = console_watched(r);
    const char *noun = run_is_image(r) ? "image" : "line";
    infer_sink o = {0};
    char a[32], b[32];
    if (!ids) rd_fail(st, RD_EENV, "out of memory");
    if (st->code == RD_OK && r->world->rank == 0) (void)sink_open(&o, r->cli->inference_out, st);
    RD_TRY(run_agree(r, st));
    if (!ids) goto done; /* all ranks agree on that failure */
    for (int64_t first = 0; first < n; first += CHUNK) {
        RD_TRY(translate_chunk(r, &o, first, n - first < CHUNK ? n - first : CHUNK, ids, st));
        if (!watched) continue;
        const double seconds = (double)(rd_now_ns() - begin_ns) * 1e-9;
        const int64_t done_n = first + CHUNK < n ? first + CHUNK : n;
        rd_live(r->log, "%s of %s %ss  eta %.0f s", rd_commas((double)done_n, a),
                rd_commas((double)n, b), noun, seconds * (double)(n - done_n) / (double)done_n);
    }
    rd_live(r->log, NULL);
    if (r->world->rank == 0 && o.to_file) (void)rd_tmpfile_commit(&o.file, st);
    RD_TRY(run_agree(r, st));
    rd_info(r->log, "%s %s%s in %.1f s%s%s", rd_commas((double)n, a), noun, RD_S(n),
            (double)(rd_now_ns() - begin_ns) * 1e-9, o.name ? ", written to " : "",
            o.name ? o.name : "");
done:
    sink_release(&o);
    free(ids);
    return st->code;
}

/* ---- interactive use ---- */

/* Splits at single spaces, as the reader of files does, and adds start and end tokens. */
static rd_code ids_of_line(const rd_vocab *v, const char *line, size_t n, rd_arena *a,
                           int32_t **ids, int64_t *n_ids, rd_status *st)
{
    int64_t k = 0;
    RD_TRY(rd_arena_get(a, (n + 3) * sizeof **ids, ids, st));
    (*ids)[k++] = RD_SOS;
    for (size_t i = 0;;) {
        const char *end = memchr(line + i, ' ', n - i);
        const size_t len = end ? (size_t)(end - (line + i)) : n - i;
        (*ids)[k++] = rd_vocab_id(v, line + i, len);
        if (!end) break;
        i += len + 1;
    }
    (*ids)[k++] = RD_EOS;
    *n_ids = k;
done:
    return st->code;
}

static rd_code infer_report(void *ctx, int64_t id, const rd_decoded *d, rd_status *st)
{
    rd_run *r = ctx;
    rd_strbuf text = {0};
    infer_sink o = {.fd = STDOUT_FILENO};
    (void)id;
    rd_dataset_text(r->eval_data, 1, d->ids, d->n, false, &text);
    rd_strbuf_puts(&text, "\n");
    (void)sink_write(&o, text.s, text.n, st);
    rd_strbuf_release(&text);
    return st->code;
}

static rd_code translate_typed_lines(rd_run *r, rd_status *st)
{
    static const int64_t one_sample[1] = {0};
    static const int32_t ends[2] = {RD_SOS, RD_EOS};
    static const int64_t ends_off[2] = {0, 2};
    rd_decode_config dc;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    run_decode_config(r, true, &dc);
    rd_info(r->log, "one sentence per line, tokens separated by single spaces; end with Ctrl-D");
    while ((n = getline(&line, &cap, stdin)) >= 0) {
        while (n > 0 && isspace((unsigned char)line[n - 1])) n--;
        int32_t *ids = NULL;
        int64_t off[2] = {0, 0};
        RD_TRY(device_fresh_batch(r, st));
        RD_TRY(ids_of_line(r->spec.src_vocab, line, (size_t)n, r->batch_arena, &ids, &off[1], st));
        const rd_batch b = {
            .n_global = 1,
            .n = 1,
            .sample = one_sample,
            .n_fields = 2,
            .field = {{.name = "source", .dtype = RD_I32, .data = ids, .off = off},
                      {.name = "target", .dtype = RD_I32, .data = ends, .off = ends_off}}};
        RD_TRY(decode_one(r, &b, &dc, infer_report, r, st));
    }
done:
    free(line);
    return st->code;
}

rd_code run_infer(rd_run *r, rd_status *st)
{
    const bool interactive = r->world->size == 1 && r->model->decode && r->cli->input &&
                             strcmp(r->cli->input, "-") == 0 && isatty(STDIN_FILENO) &&
                             is_stdout(r->cli->inference_out);
    rd_data_spec spec = {0};
    /* An empty file still gives the reader its vocabularies. */
    if (interactive)
        (void)rd_config_put(r->keys, "source_file_test", json_string("/dev/null"), "--input", st);
    RD_TRY(st->code);
    RD_TRY(run_check_weights_source(r, st));
    RD_TRY(setup_data(r, RD_SPLIT_TEST, &r->eval_data, st));
    rd_dataset_def_of(r->eval_data)->spec(rd_dataset_self(r->eval_data), &spec);
    RD_TRY(setup_model(r, &spec, false, st));
    if (run_is_image(r) && r->cli->input)
        rd_fail(st, RD_EUSAGE,
                "--input is text to translate, but model %s classifies images; name them with "
                "--set test_data=FOLDER, or as the dataset requires",
                r->model->name);
    if (!run_is_image(r) && (!r->model->decode || !rd_dataset_def_of(r->eval_data)->text))
        rd_fail(st, RD_EUSAGE,
                "the model '%s' produces no output for a sample; --mode=eval computes its loss",
                r->model->name);
    RD_TRY(run_agree(r, st));
    RD_TRY(world_check(r, st));
    RD_TRY(run_load_required(r, st));
    RD_TRY(interactive ? translate_typed_lines(r, st) : translate(r, st));
done:
    return st->code;
}
