/* lm_tokenizer.c -- the tokenizer of a language model: made by rank 0, kept in the log folder, read
 * by all ranks.
 *
 * Ids of tokens are those of the model, so a tokenizer.json from elsewhere keeps its ids. */
#include "lm_impl.h"
#include "rd/checkpoint.h"
#include "rd/clock.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATH_BYTES = 4300 };

static const char end_of_text[] = "<|endoftext|>";

static void made_path(const char *dir, const char *file, char out[PATH_BYTES])
{
    (void)snprintf(out, PATH_BYTES, "%.4000s/text%s%s", dir, file[0] ? "/" : "", file);
}

static json_t *made_rules(const rd_tokenizer_args *a)
{
    const bool trained = !a->model;
    return json_pack("{s:s, s:s?, s:o}", "subword", a->scheme, "subword_model",
                     a->model_rule ? a->model_rule : a->model, "subword_size",
                     trained && strcmp(a->scheme, "char") != 0 ? json_integer((json_int_t)a->size)
                                                               : json_null());
}

/* Reads the rules that a folder's tokenizer was made with. *out is NULL if there is none. */
static rd_code made_read(const char *dir, json_t **out, rd_status *st)
{
    char path[PATH_BYTES], *text = NULL;
    size_t n = 0;
    bool there = false;
    *out = NULL;
    made_path(dir, rd_tokenizer_record, path);
    RD_TRY(rd_path_there(path, &there, st));
    if (!there) return RD_OK;
    RD_TRY(rd_file_read_limited(path, RD_EDATA, (size_t)1 << 20, "a tokenizer.made.json", &text, &n,
                                st));
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_string(json_object_get(*out, "subword"))) {
        json_decref(*out);
        *out = NULL;
        (void)rd_fail(st, RD_EDATA,
                      "'%s' is damaged; restore it, or remove it, and training makes the tokenizer "
                      "anew",
                      path);
    }
done:
    free(text);
    return st->code;
}

rd_code rd_tokenizer_kept(const char *logdir, const char *weights, bool *kept, rd_status *st)
{
    char dir[PATH_BYTES], path[PATH_BYTES];
    *kept = false;
    if (logdir && logdir[0]) {
        made_path(logdir, rd_tokenizer_record, path);
        RD_TRY(rd_path_there(path, kept, st));
    }
    if (!*kept && weights) {
        rd_text_folder_of(weights, dir, sizeof dir);
        made_path(dir, rd_tokenizer_record, path);
        RD_TRY(rd_path_there(path, kept, st));
    }
done:
    return st->code;
}

/* Keeps a model in the log folder. rules: borrowed. */
static rd_code made_keep(const char *dir, const char *scheme, const char *from, const json_t *rules,
                         rd_status *st)
{
    char path[PATH_BYTES], *text = NULL;
    rd_subword *s = NULL;
    made_path(dir, "", path);
    RD_TRY(rd_mkdirs(path, st));
    for (int i = 0; i < 2; i++) { /* no record names the old model from here on */
        made_path(dir, i ? rd_text_record : rd_tokenizer_record, path);
        if (unlink(path) != 0 && errno != ENOENT)
            return rd_fail(st, RD_EENV, "cannot remove '%s': %s", path, strerror(errno));
    }
    RD_TRY(rd_subword_open(scheme, from, &s, st));
    made_path(dir, "subword.model", path);
    RD_TRY(rd_subword_write(s, path, st));
    text = json_dumps(rules, JSON_INDENT(2));
    if (!text) return rd_fail(st, RD_EENV, "out of memory for a tokenizer");
    made_path(dir, rd_tokenizer_record, path);
    RD_TRY(rd_file_write_atomic(path, text, strlen(text), st));
done:
    free(text);
    rd_subword_free(s);
    return st->code;
}

/* ---- training ---- */

typedef struct made_text {
    rd_docs *docs;
    const rd_text_files *files;
    rd_progress progress;
    int64_t n; /* number of documents so far */
} made_text;

static rd_code made_next(void *ctx, const char **line, size_t *n, rd_status *st)
{
    made_text *t = ctx;
    rd_doc_part p;
    bool more;
    *line = NULL;
    if (rd_docs_next(t->docs, &p, &more, st) != RD_OK || !more) {
        char name[RD_FILES_NAME];
        rd_progress_end(&t->progress);
        if (st->code == RD_OK && rd_docs_bytes(t->docs) == 0)
            rd_fail(st, RD_EDATA, "%s is empty; a tokenizer needs text to learn from",
                    rd_text_files_name(t->files, name));
        return st->code;
    }
    t->n += p.ends;
    rd_progress_bytes(&t->progress, t->n, rd_docs_bytes(t->docs), rd_docs_disk(t->docs));
    *line = p.text;
    *n = p.n;
    return RD_OK;
}

static rd_code made_train(const rd_tokenizer_args *a, char path[PATH_BYTES], rd_status *st)
{
    const char *tmp = getenv("TMPDIR");
    const int64_t begin_ns = rd_now_ns();
    made_text text = {.files = a->files};
    char size[32];
    const bool bpe = strcmp(a->scheme, "byte_bpe") == 0, all = strcmp(a->scheme, "char") == 0;
    const rd_subword_training how = {
        .size = all ? 0 : a->size, .log = a->log, .specials = bpe ? end_of_text : NULL};
    RD_TRY(rd_subword_available(a->scheme, st));
    RD_TRY(rd_docs_new(a->files, &a->docs, &text.docs, st));
    rd_progress_start(&text.progress, a->log, "text of the tokenizer read",
                      rd_text_files_disk(a->files));
    text.progress.noun = "documents";
    (void)snprintf(path, PATH_BYTES, "%.3900s/run_dist-subword.XXXXXX",
                   tmp && tmp[0] ? tmp : "/tmp");
    const int fd = mkstemp(path);
    if (fd < 0) {
        const int err = errno;
        (void)rd_fail(st, RD_EENV, "cannot make a file '%s': %s", path, strerror(err));
        path[0] = '\0';
        goto done;
    }
    (void)close(fd);
    const rd_subword_lines lines = {&text, made_next, 0};
    RD_TRY(rd_subword_train(a->scheme, &lines, &how, path, st));
    if (a->log)
        rd_info(a->log, "tokenizer: %s%s%s, trained in %.1f s", a->scheme, all ? "" : ", size ",
                all ? "" : rd_commas((double)a->size, size),
                (double)(rd_now_ns() - begin_ns) * 1e-9);
done:
    rd_progress_end(&text.progress);
    rd_docs_free(text.docs);
    return st->code;
}

/* ---- rank 0 ---- */

/* Checks that the rules of the kept tokenizer are those of the config. *make: it is made anew. */
static rd_code made_check(const rd_tokenizer_args *a, const json_t *was, bool *make, rd_status *st)
{
    json_t *now = made_rules(a);
    const char *key;
    json_t *v;
    char what[200] = "";
    json_object_foreach(now, key, v)
    {
        json_t *w = json_object_get(was, key);
        if (what[0] || json_equal(v, w)) continue;
        char *old = w ? json_dumps(w, JSON_ENCODE_ANY) : NULL,
             *text = json_dumps(v, JSON_ENCODE_ANY);
        (void)snprintf(what, sizeof what, "%s %.70s -> %.70s", key, old ? old : "none",
                       text ? text : "none");
        free(old);
        free(text);
    }
    json_decref(now);
    *make = what[0] != '\0';
    if (*make && rd_ckpt_newest_step(a->logdir) >= 0)
        return rd_fail(st, RD_EUSAGE,
                       "%s: the checkpoints in '%s' were trained with the other value; go on with "
                       "it, or start anew in another --logdir",
                       what, a->logdir);
    if (*make && a->log)
        rd_info(a->log, "the tokenizer of %s/text was made with other rules (%s): it is made anew",
                a->logdir, what);
    return RD_OK;
}

/* Finds the file of the tokenizer, and its scheme. *own: the file is temporary. */
static rd_code made_root(const rd_tokenizer_args *a, char scheme[32], char path[PATH_BYTES],
                         bool *own, rd_status *st)
{
    json_t *was = NULL;
    char dir[PATH_BYTES] = "";
    bool make = false;
    (void)snprintf(scheme, 32, "%s", a->scheme);
    if (a->logdir) RD_TRY(made_read(a->logdir, &was, st));
    if (was && a->makes) RD_TRY(made_check(a, was, &make, st));
    if (was && !make) {
        (void)snprintf(dir, sizeof dir, "%.4000s", a->logdir);
    } else if (!make && a->weights) {
        rd_text_folder_of(a->weights, dir, sizeof dir);
        json_decref(was);
        RD_TRY(made_read(dir, &was, st));
    }
    if (was && !make) {
        (void)snprintf(scheme, 32, "%s", json_string_value(json_object_get(was, "subword")));
        made_path(dir, "subword.model", path);
        if (a->log) rd_info(a->log, "tokenizer: %s of %s/text", scheme, dir);
        if (a->saves && strcmp(dir, a->logdir) != 0)
            RD_TRY(made_keep(a->logdir, scheme, path, was, st));
        goto done;
    }
    if (a->saves) RD_TRY(rd_text_of_other(a->logdir, rd_text_record, st));
    json_decref(was);
    was = made_rules(a);
    if (a->model) {
        (void)snprintf(path, PATH_BYTES, "%.4200s", a->model);
    } else if (a->makes) {
        *own = true;
        RD_TRY(made_train(a, path, st));
    } else {
        RD_TRY(rd_text_no_logdir(a->logdir, st));
        (void)rd_fail(
            st, RD_EUSAGE,
            "missing key 'subword_model', and %s%s has no tokenizer; name the --logdir of "
            "the training, or give 'subword_model'",
            a->logdir ? a->logdir : "no log folder is named that", a->logdir ? "/text" : "");
        goto done;
    }
    if (a->saves) RD_TRY(made_keep(a->logdir, scheme, path, was, st));
done:
    json_decref(was);
    return st->code;
}

rd_code rd_tokenizer_open(const rd_tokenizer_args *a, rd_subword **out, rd_status *st)
{
    char path[PATH_BYTES] = "", scheme[32] = "";
    bool own = false;
    *out = NULL;
    if (rd_rank_of(a->comm) == 0) (void)made_root(a, scheme, path, &own, st);
    RD_TRY(rd_agree(a->comm, st));
    const rd_text_rules rules = {.subword = scheme, .subword_model = path[0] ? path : NULL};
    RD_TRY(rd_text_subword_open(a->comm, &rules, out, st));
    if (rd_subword_size(*out) == 0)
        (void)rd_fail(st, RD_EDATA, "the tokenizer (%s) has no token", rd_subword_kind(*out));
done:
    if (own && path[0]) (void)unlink(path);
    return st->code;
}

int32_t rd_tokenizer_end(const rd_subword *s)
{
    static const char *const names[] = {end_of_text, "<|end_of_text|>", "<|im_end|>", "</s>",
                                        "<eos>"};
    if (strcmp(rd_subword_kind(s), "char") == 0) return -1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const int32_t id = rd_subword_find(s, names[i], strlen(names[i]));
        if (id >= 0) return id;
    }
    return -1;
}

/* Returns the number of characters of UTF-8. */
static int32_t made_characters(const rd_strbuf *b)
{
    int32_t n = 0;
    for (size_t i = 0; i < b->n; i++) n += ((unsigned char)b->s[i] & 0xC0) != 0x80;
    return n;
}

int32_t *rd_tokenizer_bytes(const rd_subword *s)
{
    const int32_t V = rd_subword_size(s), end = rd_tokenizer_end(s);
    const bool bpe = strcmp(rd_subword_kind(s), "byte_bpe") == 0;
    int32_t *bytes = calloc((size_t)V + 1, sizeof *bytes);
    rd_strbuf piece = {0}, text = {0};
    for (int32_t i = 0; bytes && i < V; i++) {
        rd_strbuf_reset(&piece);
        rd_strbuf_reset(&text);
        rd_subword_piece(s, i, &piece);
        /* A byte is one printable character there. */
        if (!bpe && piece.n > 0) rd_subword_join(s, rd_strbuf_str(&piece), piece.n, &text);
        bytes[i] = i == end ? 0 : bpe ? made_characters(&piece) : (int32_t)text.n;
    }
    if (piece.failed || text.failed) {
        free(bytes);
        bytes = NULL;
    }
    rd_strbuf_release(&piece);
    rd_strbuf_release(&text);
    return bytes;
}
