/* text_kit.c -- the subword model and the vocabularies of a raw text: made by rank 0, kept in the
 * log folder, read by all ranks.
 *
 * LOGDIR/text has
 *   text.json         rules, hashes of the text, hash of each file; written last
 *   vocab.txt         the vocabulary of both sides, or
 *   vocab.source.txt  and vocab.target.txt
 *   subword.model     the model, if the scheme has one
 *   subword.source.pieces, subword.target.pieces, subword.glossaries: its limits, if it has some
 * Only rank 0 reads and writes them, so only its host needs the folder. */
#include "text_impl.h"
#include "rd/checkpoint.h"
#include "rd/clock.h"
#include "rd/file.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KIT_FORMAT = 1, PATH_BYTES = 4300 };
/* The parts; PIECES is that of the source, and that of the target follows. */
enum { MODEL, SOURCE, TARGET, PIECES, GLOSSARIES = PIECES + 2, N_PARTS };

static const char *const part_file[N_PARTS] = {"subword.model",         "vocab.source.txt",
                                               "vocab.target.txt",      "subword.source.pieces",
                                               "subword.target.pieces", "subword.glossaries"};
static const char shared_file[] = "vocab.txt";
static const char *const side_word[2] = {"source", "target"};
static const char both[] = "both sides";

/* The kit as bytes, on its way from rank 0 to the others. */
typedef struct kit_bytes {
    rd_strbuf part[N_PARTS];
    uint64_t text_hash[2];
    bool kept, tied, shared;
    char scheme[32];
} kit_bytes;

static void kit_bytes_release(kit_bytes *b)
{
    for (int i = 0; i < N_PARTS; i++) rd_strbuf_release(&b->part[i]);
}

static rd_code kit_no_memory(rd_status *st)
{
    return rd_fail(st, RD_EENV, "out of memory for a vocabulary or a subword model");
}

static void kit_path(const char *dir, const char *file, char out[PATH_BYTES])
{
    (void)snprintf(out, PATH_BYTES, "%.4000s/text%s%s", dir, file[0] ? "/" : "", file);
}

static void kit_hex(uint64_t v, char out[20])
{
    (void)snprintf(out, 20, "%016" PRIx64, v);
}

static uint64_t kit_hash(const rd_strbuf *b)
{
    return rd_hash(0, rd_strbuf_str(b), b->n);
}

/* ---- text.json ---- */

static json_t *rules_json(const rd_text_rules *r)
{
    const bool trained = !r->subword_model && rd_subword_needs_model(r->subword);
    return json_pack("{s:s, s:s?, s:o, s:b, s:I, s:I, s:o, s:s?}", "subword", r->subword,
                     "subword_model", r->subword_model, "subword_size",
                     trained ? json_integer((json_int_t)r->subword_size) : json_null(),
                     "shared_vocab", (int)r->shared_vocab, "word_min_count",
                     (json_int_t)r->word_min_count, "num_words", (json_int_t)r->num_words,
                     "bpe_vocab_threshold",
                     r->threshold > 0 ? json_integer((json_int_t)r->threshold) : json_null(),
                     "bpe_glossaries", r->glossaries);
}

static const char *part_name(const json_t *rules, int part)
{
    const bool shared = json_is_true(json_object_get(rules, "shared_vocab"));
    return shared && (part == SOURCE || part == TARGET) ? shared_file : part_file[part];
}

/* Names the first rule that differs, as "subword_size 8000 -> 4000". Returns false if none does. */
static bool rules_differ(const json_t *was, const json_t *now, char out[160])
{
    const char *key;
    const json_t *v;
    json_object_foreach((json_t *)(uintptr_t)now, key, v)
    {
        const json_t *w = json_object_get(was, key);
        if (json_equal((json_t *)(uintptr_t)w, (json_t *)(uintptr_t)v)) continue;
        if (!w && json_is_null(v)) continue; /* of a version before this rule */
        char *a = w ? json_dumps(w, JSON_ENCODE_ANY) : NULL, *b = json_dumps(v, JSON_ENCODE_ANY);
        (void)snprintf(out, 160, "%s %.50s -> %.50s", key, a ? a : "none", b ? b : "none");
        free(a);
        free(b);
        return true;
    }
    return false;
}

static rd_code kit_damaged(const char *path, const char *what, rd_status *st)
{
    return rd_fail(st, RD_EDATA,
                   "'%s' %s; restore it, or remove this folder, and training makes the files anew",
                   path, what);
}

/* Reads text.json of a log folder. *out is NULL if there is none. The caller owns it. */
static rd_code store_read(const char *dir, json_t **out, rd_status *st)
{
    char path[PATH_BYTES], *text = NULL;
    size_t n = 0;
    bool there = false;
    *out = NULL;
    kit_path(dir, "text.json", path);
    RD_TRY(rd_path_there(path, &there, st));
    if (!there) return RD_OK;
    RD_TRY(rd_file_read_limited(path, RD_EDATA, (size_t)1 << 20, "a text.json", &text, &n, st));
    json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    if (json_integer_value(json_object_get(o, "format")) > KIT_FORMAT)
        (void)rd_fail(st, RD_EDATA, "'%s' was written by a later version of this program", path);
    else if (!json_is_object(json_object_get(o, "rules")) ||
             !json_is_string(json_object_get(json_object_get(o, "rules"), "subword")) ||
             !json_is_object(json_object_get(o, "files")) ||
             !json_is_object(json_object_get(o, "text")))
        (void)kit_damaged(path, "is damaged", st);
    if (st->code != RD_OK) {
        json_decref(o);
        o = NULL;
    }
    *out = o;
done:
    free(text);
    return st->code;
}

/* Reads the files that text.json names, and compares their hashes. */
static rd_code store_load(const char *dir, const json_t *o, kit_bytes *b, rd_status *st)
{
    const json_t *rules = json_object_get(o, "rules"), *files = json_object_get(o, "files");
    (void)snprintf(b->scheme, sizeof b->scheme, "%s",
                   json_string_value(json_object_get(rules, "subword")));
    for (int s = 0; s < 2; s++) {
        const char *hex =
            json_string_value(json_object_get(json_object_get(o, "text"), side_word[s]));
        b->text_hash[s] = hex ? strtoull(hex, NULL, 16) : 0;
    }
    for (int i = 0; i < N_PARTS; i++) {
        char path[PATH_BYTES], now[20], *p = NULL;
        size_t n = 0;
        const char *file = part_name(rules, i),
                   *was = json_string_value(json_object_get(files, file));
        if (!was && i != SOURCE && i != TARGET) continue; /* the scheme has none */
        kit_path(dir, file, path);
        RD_TRY(rd_file_read(path, RD_EDATA, &p, &n, st));
        rd_strbuf_add(&b->part[i], p, n);
        free(p);
        if (b->part[i].failed) return kit_no_memory(st);
        kit_hex(kit_hash(&b->part[i]), now);
        if (!was || strcmp(was, now) != 0)
            return kit_damaged(path, "is not the file that was kept: its hash differs", st);
    }
    b->shared = part_name(rules, SOURCE) == shared_file;
    b->tied = json_is_true(json_object_get(o, "inherited"));
    b->kept = true;
done:
    return st->code;
}

static rd_code store_file(const char *dir, const char *file, const rd_strbuf *b, json_t *hashes,
                          rd_status *st)
{
    char path[PATH_BYTES], hex[20];
    kit_path(dir, file, path);
    kit_hex(kit_hash(b), hex);
    (void)json_object_set_new(hashes, file, json_string(hex));
    return rd_file_write_atomic(path, rd_strbuf_str(b), b->n, st);
}

/* Makes LOGDIR/text, and removes what is there: first text.json, which would no longer tell the
 * truth. */
static rd_code store_begin(const char *dir, rd_status *st)
{
    const char *const old[] = {"text.json",           part_file[MODEL],  part_file[SOURCE],
                               part_file[TARGET],     part_file[PIECES], part_file[PIECES + 1],
                               part_file[GLOSSARIES], shared_file};
    char path[PATH_BYTES];
    kit_path(dir, "", path);
    RD_TRY(rd_mkdirs(path, st));
    for (size_t i = 0; i < sizeof old / sizeof *old; i++) {
        kit_path(dir, old[i], path);
        if (unlink(path) != 0 && errno != ENOENT)
            return rd_fail(st, RD_EENV, "cannot remove '%s': %s", path, strerror(errno));
    }
done:
    return st->code;
}

static rd_code store_write(const char *dir, const kit_bytes *b, json_t *rules_stolen,
                           bool inherited, rd_status *st)
{
    char path[PATH_BYTES], hex[2][20], *text = NULL;
    json_t *hashes = json_object();
    for (int s = 0; s < 2; s++) kit_hex(b->text_hash[s], hex[s]);
    for (int i = 0; i < N_PARTS && st->code == RD_OK; i++) {
        if (i != SOURCE && i != TARGET && b->part[i].n == 0) continue;
        if (i == TARGET && part_name(rules_stolen, i) == shared_file) continue;
        (void)store_file(dir, part_name(rules_stolen, i), &b->part[i], hashes, st);
    }
    json_t *o = json_pack("{s:i, s:o, s:{s:s, s:s}, s:o, s:b}", "format", KIT_FORMAT, "rules",
                          rules_stolen, "text", side_word[0], hex[0], side_word[1], hex[1], "files",
                          hashes, "inherited", (int)inherited);
    text = o ? json_dumps(o, JSON_INDENT(2)) : NULL;
    if (st->code == RD_OK && !text) (void)kit_no_memory(st);
    kit_path(dir, "text.json", path);
    if (st->code == RD_OK) (void)rd_file_write_atomic(path, text, strlen(text), st);
    free(text);
    json_decref(o);
    return st->code;
}

/* ---- the lines of both sides ---- */

typedef struct kit_lines {
    const rd_text_kit_args *a;
    rd_lines *in; /* owned; NULL: the next side is not open */
    int side;
} kit_lines;

static rd_code kit_open_side(const rd_text_kit_args *a, int side, rd_lines **out, rd_status *st)
{
    const rd_text_files *f = &a->files[side];
    if (rd_lines_new_list((const char *const *)f->at, f->n, a->lines, out, st) != RD_OK)
        rd_status_prefix(st, "%s_file", side_word[side]);
    return st->code;
}

/* Gives the lines of the source, then those of the target, to the training of a model. */
static rd_code kit_next(void *ctx, const char **line, size_t *n, rd_status *st)
{
    kit_lines *k = ctx;
    *line = NULL;
    for (;;) {
        if (k->side == 2) return RD_OK;
        if (!k->in) RD_TRY(kit_open_side(k->a, k->side, &k->in, st));
        RD_TRY(rd_lines_next(k->in, line, n, st));
        if (*line) {
            *n = rd_utf8_rstrip(*line, *n);
            return RD_OK;
        }
        rd_lines_free(k->in);
        k->in = NULL;
        k->side++;
    }
done:
    return st->code;
}

static int64_t file_lines(const rd_side *s, int k)
{
    const int64_t *at = (const int64_t *)(const void *)s->file.p;
    return at[k + 1] - at[k];
}

rd_code rd_text_counts_differ(const rd_text_files *files, const rd_side *side,
                              const int64_t lines[2], rd_status *st)
{
    char names[2][RD_FILES_NAME], which[300] = "";
    for (int s = 0; s < 2; s++) (void)rd_text_files_name(&files[s], names[s]);
    for (int k = 0; side && files[0].n > 1 && files[0].n == files[1].n && k < files[0].n; k++) {
        const int64_t a = file_lines(&side[0], k), b = file_lines(&side[1], k);
        if (a == b) continue;
        (void)snprintf(which, sizeof which,
                       "; first in '%.100s' with %" PRId64 " and '%.100s' with %" PRId64,
                       files[0].at[k], a, files[1].at[k], b);
        break;
    }
    return rd_fail(st, RD_EDATA,
                   "%s has %" PRId64 " line%s, %s has %" PRId64
                   "; line k of one must be the translation of line k of the other%s",
                   names[0], lines[0], RD_S(lines[0]), names[1], lines[1], which);
}

/* What the first pass over the text finds. */
typedef struct kit_scan {
    int64_t lines[2];
    uint64_t hash[2];
    bool cr[2]; /* the first line has a CR inside */
} kit_scan;

static rd_code scan_side(const rd_text_kit_args *a, int side, kit_scan *k, rd_status *st)
{
    rd_lines *l = NULL;
    rd_progress p;
    int64_t i = 0;
    rd_progress_start(&p, a->log, side == 0 ? "source text counted" : "target text counted",
                      rd_text_files_bytes(&a->files[side]));
    RD_TRY(kit_open_side(a, side, &l, st));
    for (;; i++) {
        const char *line;
        size_t n;
        RD_TRY(rd_lines_next(l, &line, &n, st));
        if (!line) break;
        n = rd_utf8_rstrip(line, n);
        k->hash[side] = rd_hash(k->hash[side], line, n);
        if (i == 0) k->cr[side] = memchr(line, '\r', n) != NULL;
        rd_progress_at(&p, i, rd_lines_bytes(l));
    }
    k->lines[side] = i;
done:
    rd_progress_end(&p);
    rd_lines_free(l);
    return st->code;
}

static rd_code scan_text(const rd_text_kit_args *a, kit_scan *k, rd_status *st)
{
    char name[RD_FILES_NAME];
    *k = (kit_scan){0};
    for (int s = 0; s < 2; s++) RD_TRY(scan_side(a, s, k, st));
    for (int s = 0; s < 2; s++)
        if (k->cr[s] && k->lines[s] == 1)
            return rd_fail(st, RD_EDATA,
                           "%s is one line with CRs inside: its lines end in CR alone; convert it "
                           "with tr '\\r' '\\n'",
                           rd_text_files_name(&a->files[s], name));
    if (k->lines[0] != k->lines[1]) return rd_text_counts_differ(a->files, NULL, k->lines, st);
    if (k->lines[0] == 0)
        return rd_fail(st, RD_EDATA, "%s is empty; it needs one sentence a line",
                       rd_text_files_name(&a->files[0], name));
done:
    return st->code;
}

/* ---- the model ---- */

/* Appends a whole file. */
static rd_code take_file(const char *path, rd_strbuf *out, rd_status *st)
{
    char *p = NULL;
    size_t n = 0;
    RD_TRY(rd_file_read(path, RD_EDATA, &p, &n, st));
    rd_strbuf_add(out, p, n);
    if (out->failed) (void)kit_no_memory(st);
done:
    free(p);
    return st->code;
}

/* Makes an empty file for a model on its way. */
static rd_code passing_file(char path[PATH_BYTES], rd_status *st)
{
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(path, PATH_BYTES, "%.3900s/run_dist-subword.XXXXXX",
                   tmp && tmp[0] ? tmp : "/tmp");
    const int fd = mkstemp(path);
    if (fd < 0) return rd_fail(st, RD_EENV, "cannot make a file '%s': %s", path, strerror(errno));
    (void)close(fd);
    return RD_OK;
}

/* Appends the bytes of a model, in the form that rd_subword_write gives it. */
static rd_code model_bytes(const char *scheme, const char *path, rd_strbuf *out, rd_status *st)
{
    rd_subword *s = NULL;
    char to[PATH_BYTES] = "";
    RD_TRY(rd_subword_open(scheme, path, &s, st));
    RD_TRY(passing_file(to, st));
    RD_TRY(rd_subword_write(s, to, st));
    RD_TRY(take_file(to, out, st));
done:
    if (to[0]) (void)unlink(to);
    rd_subword_free(s);
    return st->code;
}

static rd_code train_model(const rd_text_kit_args *a, const kit_scan *k, kit_bytes *b,
                           rd_status *st)
{
    kit_lines lines = {.a = a};
    char count[32], pieces[32];
    const int64_t begin_ns = rd_now_ns();
    const rd_subword_lines from = {&lines, kit_next, k->lines[0] + k->lines[1]};
    const rd_subword_training how = {.size = a->rules.subword_size, .log = a->log};
    RD_TRY(rd_subword_train_to(a->rules.subword, &from, &how, &b->part[MODEL], st));
    if (a->log)
        rd_info(a->log, "subword model: %s, size %s, from %s lines of both sides, in %.1f s",
                a->rules.subword, rd_commas((double)a->rules.subword_size, pieces),
                rd_commas((double)from.n_lines, count), (double)(rd_now_ns() - begin_ns) * 1e-9);
done:
    rd_lines_free(lines.in);
    return st->code;
}

/* Opens a model from its bytes, without limits. */
static rd_code open_plain(const char *scheme, const rd_strbuf *b, rd_subword **out, rd_status *st)
{
    char path[64];
    if (b->n == 0) return rd_subword_open(scheme, NULL, out, st);
    const int fd = memfd_create("run_dist-subword", MFD_CLOEXEC);
    if (fd < 0)
        return rd_fail(st, RD_EENV, "cannot make memory for a subword model: %s", strerror(errno));
    size_t at = 0;
    while (at < b->n) {
        const ssize_t k = write(fd, b->s + at, b->n - at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) {
            rd_fail(st, RD_EENV, "no memory for a subword model: %s", strerror(errno));
            break;
        }
        at += (size_t)k;
    }
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (st->code == RD_OK) (void)rd_subword_open(scheme, path, out, st);
    (void)close(fd);
    return st->code;
}

/* Opens the model of a side; -1: that of both, without a list of pieces. */
static rd_code open_model(const kit_bytes *b, int side, rd_subword **out, rd_status *st)
{
    const rd_strbuf *pieces = side >= 0 ? &b->part[PIECES + side] : NULL,
                    *gloss = &b->part[GLOSSARIES];
    const rd_subword_limits l = {pieces ? pieces->s : NULL, pieces ? pieces->n : 0, gloss->s,
                                 gloss->n};
    RD_TRY(open_plain(b->scheme, &b->part[MODEL], out, st));
    if ((l.n_pieces > 0 || l.n_glossaries > 0) && rd_subword_limit(*out, &l, st) != RD_OK)
        rd_status_prefix(st, "limits of subwords");
done:
    return st->code;
}

/* ---- the vocabularies ---- */

/* Counts the words of one side, segmented. */
static rd_code count_side(const rd_text_kit_args *a, int side, const rd_subword *sub,
                          rd_word_counts *c, rd_status *st)
{
    rd_lines *l = NULL;
    rd_subword_scratch *w = NULL;
    rd_strbuf pieces = {0};
    rd_progress p;
    rd_progress_start(&p, a->log,
                      side == 0 ? "words of the source counted" : "words of the target counted",
                      rd_text_files_bytes(&a->files[side]));
    RD_TRY(rd_subword_scratch_new(sub, &w, st));
    RD_TRY(kit_open_side(a, side, &l, st));
    for (int64_t i = 0;; i++) {
        const char *line;
        size_t n;
        RD_TRY(rd_lines_next(l, &line, &n, st));
        if (!line) break;
        rd_strbuf_reset(&pieces);
        rd_subword_segment(sub, w, line, rd_utf8_rstrip(line, n), &pieces);
        if (pieces.failed) RD_TRY(kit_no_memory(st));
        RD_TRY(rd_word_counts_add(c, rd_strbuf_str(&pieces), pieces.n, st));
        rd_progress_at(&p, i, rd_lines_bytes(l));
    }
done:
    rd_progress_end(&p);
    rd_lines_free(l);
    rd_subword_scratch_free(w);
    rd_strbuf_release(&pieces);
    return st->code;
}

static const char *article(const char *what)
{
    return strcmp(what, both) == 0 ? "" : "the ";
}

static void report_counted(const rd_text_kit_args *a, const char *what, const rd_counted *n,
                           int64_t unfit)
{
    char words[32], all[32], total[32];
    if (!a->log) return;
    rd_info(a->log, "vocabulary, %s: %s of %s different words, %.2f %% of %s in the text", what,
            rd_commas((double)n->words, words), rd_commas((double)n->distinct, all),
            n->total > 0 ? 100.0 * (double)n->covered / (double)n->total : 0.0,
            rd_commas((double)n->total, total));
    if (unfit > 0)
        rd_warn(a->log, "%" PRId64 " word%s of %s%s with a TAB or CR inside stay%s unknown", unfit,
                RD_S(unfit), article(what), what, unfit == 1 ? "s" : "");
}

static rd_code write_counted(const rd_text_kit_args *a, const rd_word_counts *c, const char *what,
                             rd_strbuf *out, rd_status *st)
{
    rd_counted n;
    RD_TRY(rd_word_counts_write(c, a->rules.word_min_count, a->rules.num_words, out, &n, st));
    report_counted(a, what, &n, rd_word_counts_unfit(c));
    if (n.distinct == 0) return rd_fail(st, RD_EDATA, "the training text, %s, has no word", what);
    if (n.words == 0)
        return rd_fail(st, RD_EDATA,
                       "no word of %s%s occurs %" PRId64
                       " times, so there is no vocabulary; lower word_min_count",
                       article(what), what, a->rules.word_min_count);
done:
    return st->code;
}

/* Lists the pieces of each side that occur often enough, as "piece count". */
static rd_code count_pieces(const rd_text_kit_args *a, kit_bytes *b, rd_status *st)
{
    rd_subword *sub = NULL;
    rd_word_counts *c = NULL;
    RD_TRY(open_model(b, -1, &sub, st));
    for (int s = 0; s < 2; s++) {
        rd_strbuf *out = &b->part[PIECES + s];
        rd_counted n;
        RD_TRY(rd_word_counts_new(&c, st));
        RD_TRY(count_side(a, s, sub, c, st));
        RD_TRY(rd_word_counts_write(c, a->rules.threshold, 0, out, &n, st));
        rd_word_counts_free(c);
        c = NULL;
        if (n.words == 0)
            RD_TRY(rd_fail(st, RD_EDATA,
                           "no piece of the %s occurs %" PRId64 " times; lower bpe_vocab_threshold",
                           side_word[s], a->rules.threshold));
        for (size_t i = 0; i < out->n; i++)
            if (out->s[i] == '\t') out->s[i] = ' ';
        if (a->log)
            rd_info(a->log,
                    "pieces of the %s: %" PRId64 " of %" PRId64 " occur %" PRId64
                    " times or more, the others are split",
                    side_word[s], n.words, n.distinct, a->rules.threshold);
    }
done:
    rd_word_counts_free(c);
    rd_subword_free(sub);
    return st->code;
}

/* Counts words and writes the vocabularies. A shared one adds the counts of both sides first. */
static rd_code count_words(const rd_text_kit_args *a, kit_bytes *b, rd_status *st)
{
    rd_word_counts *c = NULL;
    rd_subword *sub = NULL;
    RD_TRY(rd_word_counts_new(&c, st));
    for (int s = 0; s < 2; s++) {
        RD_TRY(open_model(b, s, &sub, st));
        RD_TRY(count_side(a, s, sub, c, st));
        rd_subword_free(sub);
        sub = NULL;
        if (a->rules.shared_vocab) continue;
        RD_TRY(write_counted(a, c, side_word[s], &b->part[SOURCE + s], st));
        rd_word_counts_free(c);
        c = NULL;
        if (s == 0) RD_TRY(rd_word_counts_new(&c, st));
    }
    if (!a->rules.shared_vocab) goto done;
    RD_TRY(write_counted(a, c, both, &b->part[SOURCE], st));
    rd_strbuf_add(&b->part[TARGET], b->part[SOURCE].s, b->part[SOURCE].n);
    if (b->part[TARGET].failed) (void)kit_no_memory(st);
done:
    rd_word_counts_free(c);
    rd_subword_free(sub);
    return st->code;
}

/* ---- rank 0 ---- */

static rd_code kit_make(const rd_text_kit_args *a, kit_bytes *b, rd_status *st)
{
    const rd_text_rules *r = &a->rules;
    kit_scan scan;
    RD_TRY(rd_subword_available(r->subword, st));
    if (a->saves) RD_TRY(store_begin(a->logdir, st));
    RD_TRY(scan_text(a, &scan, st));
    memcpy(b->text_hash, scan.hash, sizeof b->text_hash);
    (void)snprintf(b->scheme, sizeof b->scheme, "%s", r->subword);
    b->shared = r->shared_vocab;
    if (r->subword_model) {
        if (model_bytes(r->subword, r->subword_model, &b->part[MODEL], st) != RD_OK)
            rd_status_prefix(st, "subword_model");
        RD_TRY(st->code);
    } else if (rd_subword_needs_model(r->subword)) {
        RD_TRY(train_model(a, &scan, b, st));
    }
    if (r->glossaries) {
        if (take_file(r->glossaries, &b->part[GLOSSARIES], st) != RD_OK)
            rd_status_prefix(st, "bpe_glossaries");
        RD_TRY(st->code);
    }
    if (r->threshold > 0) RD_TRY(count_pieces(a, b, st));
    RD_TRY(count_words(a, b, st));
    if (!a->saves) goto done;
    RD_TRY(store_write(a->logdir, b, rules_json(r), false, st));
    if (a->log)
        rd_info(a->log, "vocabular%s%s kept in %s/text", r->shared_vocab ? "y" : "ies",
                b->part[MODEL].n > 0 ? " and subword model" : "", a->logdir);
done:
    return st->code;
}

/* Finds the log folder of weights: a folder, a file in it, FOLDER:best or FOLDER:STEP. */
static rd_code folder_of(const char *weights, char out[PATH_BYTES], rd_status *st)
{
    struct stat s;
    (void)snprintf(out, PATH_BYTES, "%.4000s", weights);
    if (rd_path_stat(out, &s, RD_MAYBE) == 0 && S_ISDIR(s.st_mode)) return RD_OK;
    char *end = strrchr(out, ':');
    if (end && !strchr(end, '/')) {
        *end = '\0';
        return RD_OK;
    }
    end = strrchr(out, '/');
    if (end == out) end++;
    if (end)
        *end = '\0';
    else
        (void)snprintf(out, PATH_BYTES, ".");
    return st->code;
}

/* Takes the kit of the weights that the run begins with. *found: there is one. */
static rd_code kit_inherit(const rd_text_kit_args *a, kit_bytes *b, bool *found, rd_status *st)
{
    char dir[PATH_BYTES];
    json_t *o = NULL;
    *found = false;
    if (!a->weights) return RD_OK;
    RD_TRY(folder_of(a->weights, dir, st));
    RD_TRY(store_read(dir, &o, st));
    if (!o) return RD_OK;
    *found = true;
    RD_TRY(store_load(dir, o, b, st));
    b->tied = true;
    if (a->saves) {
        RD_TRY(store_begin(a->logdir, st));
        RD_TRY(store_write(a->logdir, b, json_deep_copy(json_object_get(o, "rules")), true, st));
    }
    if (a->log)
        rd_info(a->log, "vocabularies of %s/text%s", dir,
                b->part[MODEL].n > 0 ? ", and its subword model" : "");
done:
    json_decref(o);
    return st->code;
}

static rd_code kit_missing(const rd_text_kit_args *a, rd_status *st)
{
    return rd_fail(st, RD_EUSAGE,
                   "missing key 'src_vocab_file', and %s%s has no vocabularies; name the --logdir "
                   "of the training, or give 'src_vocab_file' and 'tgt_vocab_file'",
                   a->logdir ? a->logdir : "no log folder is named that", a->logdir ? "/text" : "");
}

/* Makes the kit anew where rules or text have changed. *make: it must be made. */
static rd_code kit_check(const rd_text_kit_args *a, const json_t *o, bool tied, bool *make,
                         rd_status *st)
{
    char what[160];
    json_t *now = rules_json(&a->rules);
    const json_t *was = json_object_get(o, "rules");
    const bool other = rules_differ(was, now, what),
               inherited = json_is_true(json_object_get(o, "inherited"));
    *make = false;
    json_decref(now);
    if (!other || inherited) return RD_OK;
    if (tied)
        return rd_fail(st, RD_EUSAGE,
                       "%s: the checkpoints in '%s' were trained with the other value; go on with "
                       "it, or start anew in another --logdir",
                       what, a->logdir);
    if (a->log)
        rd_info(a->log, "%s/text was made with other rules (%s): it is made anew", a->logdir, what);
    *make = true;
    return RD_OK;
}

/* Compares the text with the one that the kit was made of. *make: it must be made anew. */
static rd_code kit_compare(const rd_text_kit_args *a, const kit_bytes *b, bool *make, rd_status *st)
{
    kit_scan scan;
    *make = false;
    RD_TRY(scan_text(a, &scan, st));
    const bool same = memcmp(scan.hash, b->text_hash, sizeof scan.hash) == 0;
    if (same || b->tied) {
        if (a->log)
            rd_info(
                a->log, "%s/text is there already%s", a->logdir,
                same ? ", made of this text"
                     : "; it was made of another text and stays, since checkpoints depend on it");
        return RD_OK;
    }
    if (a->log) rd_info(a->log, "%s/text was made of another text: it is made anew", a->logdir);
    *make = true;
done:
    return st->code;
}

static rd_code kit_root(const rd_text_kit_args *a, kit_bytes *b, rd_status *st)
{
    json_t *o = NULL;
    bool make = a->anew, found = false;
    const bool tied = a->logdir && rd_ckpt_newest_step(a->logdir) >= 0;
    if (!make && a->logdir) RD_TRY(store_read(a->logdir, &o, st));
    if (o) {
        if (a->makes) RD_TRY(kit_check(a, o, tied, &make, st));
        if (!make) {
            RD_TRY(store_load(a->logdir, o, b, st));
            b->tied |= tied;
            if (a->compares) RD_TRY(kit_compare(a, b, &make, st));
        }
        if (!make) goto done;
        kit_bytes_release(b);
        *b = (kit_bytes){0};
    } else if (!make) {
        RD_TRY(kit_inherit(a, b, &found, st));
        if (found) goto done;
        if (!a->makes) return kit_missing(a, st);
    }
    RD_TRY(kit_make(a, b, st));
done:
    json_decref(o);
    return st->code;
}

/* ---- all ranks ---- */

/* Gives the bytes of rank 0 to all ranks. Collective. */
static rd_code kit_spread(rd_comm *comm, kit_bytes *b, rd_status *st)
{
    struct {
        int64_t n[N_PARTS];
        uint64_t text_hash[2];
        char scheme[32];
        int32_t kept, tied, shared;
    } head;
    const bool root = rd_rank_of(comm) == 0;
    if (rd_size_of(comm) == 1) return RD_OK;
    memset(&head, 0, sizeof head);
    for (int i = 0; i < N_PARTS; i++) head.n[i] = (int64_t)b->part[i].n;
    memcpy(head.text_hash, b->text_hash, sizeof head.text_hash);
    memcpy(head.scheme, b->scheme, sizeof head.scheme);
    head.kept = b->kept;
    head.tied = b->tied;
    head.shared = b->shared;
    RD_TRY(rd_comm_bcast(comm, &head, sizeof head, 0, st));
    for (int i = 0; i < N_PARTS && !root; i++) {
        rd_strbuf *p = &b->part[i];
        if (head.n[i] == 0) continue;
        p->s = malloc((size_t)head.n[i] + 1);
        if (!p->s) {
            (void)kit_no_memory(st);
            continue;
        }
        p->s[head.n[i]] = '\0';
        p->n = (size_t)head.n[i];
        p->cap = p->n + 1;
    }
    RD_TRY(rd_agree(comm, st));
    for (int i = 0; i < N_PARTS; i++)
        if (head.n[i] > 0) RD_TRY(rd_comm_bcast(comm, b->part[i].s, head.n[i], 0, st));
    memcpy(b->text_hash, head.text_hash, sizeof b->text_hash);
    memcpy(b->scheme, head.scheme, sizeof b->scheme);
    b->kept = head.kept;
    b->tied = head.tied;
    b->shared = head.shared;
done:
    return st->code;
}

rd_code rd_text_kit_open(const rd_text_kit_args *a, rd_text_kit *out, rd_status *st)
{
    kit_bytes b = {0};
    *out = (rd_text_kit){0};
    if (rd_rank_of(a->comm) == 0) (void)kit_root(a, &b, st);
    RD_TRY(rd_agree(a->comm, st));
    RD_TRY(kit_spread(a->comm, &b, st));
    const bool limited = b.part[PIECES].n > 0 || b.part[PIECES + 1].n > 0;
    if (open_model(&b, -1, &out->subword, st) == RD_OK)
        for (int s = 0; s < 2 && st->code == RD_OK; s++) {
            if (limited) RD_TRY(open_model(&b, s, &out->limited[s], st));
            (void)rd_vocab_new_mem(part_file[SOURCE + s], rd_strbuf_str(&b.part[SOURCE + s]),
                                   b.part[SOURCE + s].n, false, &out->vocab[s], st);
        }
    RD_TRY(rd_agree(a->comm, st));
    memcpy(out->text_hash, b.text_hash, sizeof out->text_hash);
    out->kept = b.kept;
    out->is_tied = b.tied;
    for (int s = 0; s < 2; s++) out->file[s] = b.shared ? shared_file : part_file[SOURCE + s];
done:
    kit_bytes_release(&b);
    return st->code;
}

/* Appends the words of a vocabulary as a list of pieces. */
static rd_code vocab_pieces(const rd_vocab *v, rd_strbuf *out, rd_status *st)
{
    for (int32_t id = RD_N_SPECIAL; id < rd_vocab_size(v); id++) {
        size_t n;
        const char *w = rd_vocab_word(v, id, &n);
        rd_strbuf_add(out, w, n);
        rd_strbuf_puts(out, " 1\n");
    }
    return out->failed ? kit_no_memory(st) : RD_OK;
}

rd_code rd_text_subword_open(rd_comm *comm, const rd_text_rules *r, rd_text_kit *k, rd_status *st)
{
    kit_bytes b = {0};
    if (rd_rank_of(comm) == 0) {
        (void)snprintf(b.scheme, sizeof b.scheme, "%s", r->subword);
        if (rd_subword_available(r->subword, st) == RD_OK && r->subword_model &&
            model_bytes(r->subword, r->subword_model, &b.part[MODEL], st) != RD_OK)
            rd_status_prefix(st, "subword_model");
        if (st->code == RD_OK && r->glossaries &&
            take_file(r->glossaries, &b.part[GLOSSARIES], st) != RD_OK)
            rd_status_prefix(st, "bpe_glossaries");
    }
    RD_TRY(rd_agree(comm, st));
    RD_TRY(kit_spread(comm, &b, st));
    (void)open_model(&b, -1, &k->subword, st);
    for (int s = 0; s < 2 && r->threshold > 0 && st->code == RD_OK; s++)
        if (vocab_pieces(k->vocab[s], &b.part[PIECES + s], st) == RD_OK)
            (void)open_model(&b, s, &k->limited[s], st);
    RD_TRY(rd_agree(comm, st));
done:
    kit_bytes_release(&b);
    return st->code;
}

const rd_subword *rd_text_kit_subword(const rd_text_kit *k, int side)
{
    return k->limited[side] ? k->limited[side] : k->subword;
}

uint64_t rd_text_kit_subword_hash(const rd_text_kit *k)
{
    if (!k->subword) return 0;
    const uint64_t h = rd_subword_hash(k->subword);
    if (!k->limited[0] || !k->limited[1]) return h;
    return rd_hash_numbers(h, rd_subword_hash(k->limited[0]), rd_subword_hash(k->limited[1]), 0);
}

void rd_text_kit_release(rd_text_kit *k)
{
    rd_subword_free(k->subword);
    for (int s = 0; s < 2; s++) {
        rd_subword_free(k->limited[s]);
        rd_vocab_free(k->vocab[s]);
    }
    *k = (rd_text_kit){0};
}
