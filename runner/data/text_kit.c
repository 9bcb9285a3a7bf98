/* text_kit.c -- the subword model and the vocabularies of a raw text: made by rank 0, kept in the
 * log folder (text_store.c), read by all ranks. text_given.c does that for given vocabularies. */
#include "text_store.h"
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

const char rd_text_fetcher[] = "; configs/get_en_de fetches English-German text";

static const char *const side_word[2] = {"source", "target"};
static const char both[] = "both sides";

/* ---- rules ---- */

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

/* ---- the lines of both sides ---- */

typedef struct kit_lines {
    const rd_text_kit_args *a;
    rd_lines *in; /* owned; NULL: the next side is not open */
    int side;
    int64_t n; /* number of lines of this side so far */
    rd_progress progress;
} kit_lines;

static rd_code kit_open_side(const rd_text_kit_args *a, int side, rd_lines **out, rd_status *st)
{
    const rd_text_files *f = &a->files[side];
    if (rd_lines_new_list((const char *const *)f->at, f->n, a->lines, out, st) != RD_OK) {
        rd_status_no_file(st, rd_text_fetcher);
        rd_status_prefix(st, "%s_file", side_word[side]);
    }
    return st->code;
}

/* Gives the lines of the source, then those of the target, to the training of a model. */
static rd_code kit_next(void *ctx, const char **line, size_t *n, rd_status *st)
{
    kit_lines *k = ctx;
    *line = NULL;
    for (;;) {
        if (k->side == 2) return RD_OK;
        if (!k->in) {
            RD_TRY(kit_open_side(k->a, k->side, &k->in, st));
            rd_progress_start(&k->progress, k->a->log,
                              k->side == 0 ? "source text for the subword model read"
                                           : "target text for the subword model read",
                              rd_text_files_disk(&k->a->files[k->side]));
            k->n = 0;
        }
        RD_TRY(rd_lines_next(k->in, line, n, st));
        if (*line) {
            rd_progress_at(&k->progress, k->n++, k->in);
            *n = rd_utf8_rstrip(*line, *n);
            return RD_OK;
        }
        rd_progress_end(&k->progress);
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
                      rd_text_files_disk(&a->files[side]));
    RD_TRY(kit_open_side(a, side, &l, st));
    for (;; i++) {
        const char *line;
        size_t n;
        RD_TRY(rd_lines_next(l, &line, &n, st));
        if (!line) break;
        n = rd_utf8_rstrip(line, n);
        k->hash[side] = rd_hash(k->hash[side], line, n);
        if (i == 0) k->cr[side] = memchr(line, '\r', n) != NULL;
        rd_progress_at(&p, i, l);
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

static rd_code train_model(const rd_text_kit_args *a, const kit_scan *k, rd_store_bytes *b,
                           rd_status *st)
{
    kit_lines lines = {.a = a};
    char count[32], pieces[32];
    const int64_t begin_ns = rd_now_ns();
    const rd_subword_lines from = {&lines, kit_next, k->lines[0] + k->lines[1]};
    const rd_subword_training how = {.size = a->rules.subword_size, .log = a->log};
    RD_TRY(rd_subword_train_to(a->rules.subword, &from, &how, &b->part[RD_STORE_MODEL], st));
    if (a->log)
        rd_info(a->log, "subword model: %s, size %s, from %s lines of both sides, in %.1f s",
                a->rules.subword, rd_commas((double)a->rules.subword_size, pieces),
                rd_commas((double)from.n_lines, count), (double)(rd_now_ns() - begin_ns) * 1e-9);
done:
    rd_progress_end(&lines.progress);
    rd_lines_free(lines.in);
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
                      rd_text_files_disk(&a->files[side]));
    RD_TRY(rd_subword_scratch_new(sub, &w, st));
    RD_TRY(kit_open_side(a, side, &l, st));
    for (int64_t i = 0;; i++) {
        const char *line;
        size_t n;
        RD_TRY(rd_lines_next(l, &line, &n, st));
        if (!line) break;
        rd_strbuf_reset(&pieces);
        rd_subword_segment(sub, w, line, rd_utf8_rstrip(line, n), &pieces);
        if (pieces.failed) RD_TRY(rd_store_no_memory(st));
        RD_TRY(rd_word_counts_add(c, rd_strbuf_str(&pieces), pieces.n, st));
        rd_progress_at(&p, i, l);
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
static rd_code count_pieces(const rd_text_kit_args *a, rd_store_bytes *b, rd_status *st)
{
    rd_subword *sub = NULL;
    rd_word_counts *c = NULL;
    RD_TRY(rd_store_subword(b, -1, &sub, st));
    for (int s = 0; s < 2; s++) {
        rd_strbuf *out = &b->part[RD_STORE_PIECES + s];
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
                    "pieces of the %s: %" PRId64 " of %" PRId64 " occur%s %" PRId64
                    " times or more, the others are split",
                    side_word[s], n.words, n.distinct, n.words == 1 ? "s" : "", a->rules.threshold);
    }
done:
    rd_word_counts_free(c);
    rd_subword_free(sub);
    return st->code;
}

/* Counts words and writes the vocabularies. A shared one adds the counts of both sides first. */
static rd_code count_words(const rd_text_kit_args *a, rd_store_bytes *b, rd_status *st)
{
    rd_word_counts *c = NULL;
    rd_subword *sub = NULL;
    RD_TRY(rd_word_counts_new(&c, st));
    for (int s = 0; s < 2; s++) {
        RD_TRY(rd_store_subword(b, s, &sub, st));
        RD_TRY(count_side(a, s, sub, c, st));
        rd_subword_free(sub);
        sub = NULL;
        if (a->rules.shared_vocab) continue;
        RD_TRY(write_counted(a, c, side_word[s], &b->part[RD_STORE_SOURCE + s], st));
        rd_word_counts_free(c);
        c = NULL;
        if (s == 0) RD_TRY(rd_word_counts_new(&c, st));
    }
    if (!a->rules.shared_vocab) goto done;
    RD_TRY(write_counted(a, c, both, &b->part[RD_STORE_SOURCE], st));
    rd_strbuf_add(&b->part[RD_STORE_TARGET], b->part[RD_STORE_SOURCE].s,
                  b->part[RD_STORE_SOURCE].n);
    if (b->part[RD_STORE_TARGET].failed) (void)rd_store_no_memory(st);
done:
    rd_word_counts_free(c);
    rd_subword_free(sub);
    return st->code;
}

/* ---- rank 0 ---- */

static rd_code kit_make(const rd_text_kit_args *a, rd_store_bytes *b, rd_status *st)
{
    const rd_text_rules *r = &a->rules;
    kit_scan scan;
    RD_TRY(rd_subword_available(r->subword, st));
    if (a->saves) RD_TRY(rd_store_begin(a->logdir, st));
    RD_TRY(scan_text(a, &scan, st));
    memcpy(b->text_hash, scan.hash, sizeof b->text_hash);
    (void)snprintf(b->scheme, sizeof b->scheme, "%s", r->subword);
    b->shared = r->shared_vocab;
    if (r->subword_model) {
        if (rd_store_model(r->subword, r->subword_model, &b->part[RD_STORE_MODEL], st) != RD_OK)
            rd_status_prefix(st, "subword_model");
        RD_TRY(st->code);
    } else if (rd_subword_needs_model(r->subword)) {
        RD_TRY(train_model(a, &scan, b, st));
    }
    if (r->glossaries) {
        if (rd_store_file(r->glossaries, &b->part[RD_STORE_GLOSSARIES], st) != RD_OK)
            rd_status_prefix(st, "bpe_glossaries");
        RD_TRY(st->code);
    }
    if (r->threshold > 0) RD_TRY(count_pieces(a, b, st));
    RD_TRY(count_words(a, b, st));
    if (!a->saves) goto done;
    RD_TRY(rd_store_write(a->logdir, b, rules_json(r), false, st));
    if (a->log)
        rd_info(a->log, "vocabular%s%s kept in %s/text", r->shared_vocab ? "y" : "ies",
                b->part[RD_STORE_MODEL].n > 0 ? " and subword model" : "", a->logdir);
done:
    return st->code;
}

void rd_text_folder_of(const char *weights, char *out, size_t capacity)
{
    struct stat s;
    (void)snprintf(out, capacity, "%.4000s", weights);
    if (rd_path_stat(out, &s, RD_MAYBE) == 0 && S_ISDIR(s.st_mode)) return;
    char *end = strrchr(out, ':');
    if (end && !strchr(end, '/')) {
        *end = '\0';
        return;
    }
    end = strrchr(out, '/');
    if (end == out) end++;
    if (end)
        *end = '\0';
    else
        (void)snprintf(out, capacity, ".");
}

/* Takes the kit of the weights that the run begins with. *found: there is one. */
static rd_code kit_inherit(const rd_text_kit_args *a, rd_store_bytes *b, bool *found, rd_status *st)
{
    char dir[RD_STORE_PATH];
    json_t *o = NULL;
    *found = false;
    if (!a->weights) return RD_OK;
    rd_text_folder_of(a->weights, dir, sizeof dir);
    RD_TRY(rd_store_read(dir, &o, st));
    if (!o) return RD_OK;
    *found = true;
    RD_TRY(rd_store_load(dir, o, b, st));
    b->tied = true;
    if (a->saves) {
        RD_TRY(rd_store_begin(a->logdir, st));
        RD_TRY(rd_store_write(a->logdir, b, json_deep_copy(json_object_get(o, "rules")), true, st));
    }
    if (a->log)
        rd_info(a->log, "vocabularies of %s/text%s", dir,
                b->part[RD_STORE_MODEL].n > 0 ? ", and its subword model" : "");
done:
    json_decref(o);
    return st->code;
}

static rd_code kit_missing(const rd_text_kit_args *a, rd_status *st)
{
    RD_TRY(rd_text_no_logdir(a->logdir, st));
    return rd_fail(st, RD_EUSAGE,
                   "missing key 'src_vocab_file', and %s%s has no vocabularies; name the --logdir "
                   "of the training, or give 'src_vocab_file' and 'tgt_vocab_file'",
                   a->logdir ? a->logdir : "no log folder is named that", a->logdir ? "/text" : "");
done:
    return st->code;
}

/* Makes the kit anew where rules or text have changed. *make: it must be made. */
static rd_code kit_check(const rd_text_kit_args *a, const json_t *o, bool tied, bool *make,
                         rd_status *st)
{
    char what[160];
    const json_t *was = json_object_get(o, "rules");
    *make = false;
    if (json_is_true(json_object_get(o, "inherited"))) return RD_OK;
    if (rd_store_given(o) && tied)
        return rd_fail(st, RD_EUSAGE,
                       "missing key 'src_vocab_file': the checkpoints in '%s' were trained with "
                       "given vocabularies; give them, or start anew in another --logdir",
                       a->logdir);
    json_t *now = rules_json(&a->rules);
    const bool other = rules_differ(was, now, what);
    json_decref(now);
    if (!other) return RD_OK;
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
static rd_code kit_compare(const rd_text_kit_args *a, const rd_store_bytes *b, bool *make,
                           rd_status *st)
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

static rd_code kit_root(const rd_text_kit_args *a, rd_store_bytes *b, rd_status *st)
{
    json_t *o = NULL;
    bool make = a->anew, found = false;
    const bool tied = a->logdir && rd_ckpt_newest_step(a->logdir) >= 0;
    if (!make && a->logdir) RD_TRY(rd_store_read(a->logdir, &o, st));
    if (o) {
        if (a->makes) RD_TRY(kit_check(a, o, tied, &make, st));
        if (!make) {
            RD_TRY(rd_store_load(a->logdir, o, b, st));
            b->tied |= tied;
            if (a->compares) RD_TRY(kit_compare(a, b, &make, st));
        }
        if (!make) goto done;
        rd_store_bytes_release(b);
        *b = (rd_store_bytes){0};
    } else if (!make) {
        RD_TRY(kit_inherit(a, b, &found, st));
        if (found) goto done;
        if (!a->makes) return kit_missing(a, st);
    }
    if (a->logdir) RD_TRY(rd_text_of_other(a->logdir, rd_tokenizer_record, st));
    RD_TRY(kit_make(a, b, st));
done:
    json_decref(o);
    return st->code;
}

/* ---- all ranks ---- */

rd_code rd_text_kit_open(const rd_text_kit_args *a, rd_text_kit *out, rd_status *st)
{
    rd_store_bytes b = {0};
    *out = (rd_text_kit){0};
    if (rd_rank_of(a->comm) == 0) (void)kit_root(a, &b, st);
    RD_TRY(rd_agree(a->comm, st));
    RD_TRY(rd_store_spread(a->comm, RD_STORE_PARTS, &b, st));
    const bool limited = b.limited || b.part[RD_STORE_PIECES].n > 0 ||
                         b.part[RD_STORE_PIECES + 1].n > 0;
    if (rd_store_subword(&b, -1, &out->subword, st) == RD_OK)
        for (int s = 0; s < 2 && st->code == RD_OK; s++) {
            if (rd_vocab_new_mem(rd_store_name(b.shared, RD_STORE_SOURCE + s),
                                 rd_strbuf_str(&b.part[RD_STORE_SOURCE + s]),
                                 b.part[RD_STORE_SOURCE + s].n, b.replace, &out->vocab[s],
                                 st) == RD_OK &&
                limited)
                (void)rd_store_limited(&b, s, out->vocab[s], &out->limited[s], st);
        }
    RD_TRY(rd_agree(a->comm, st));
    memcpy(out->text_hash, b.text_hash, sizeof out->text_hash);
    out->kept = b.kept;
    out->is_tied = b.tied;
    for (int s = 0; s < 2; s++) out->file[s] = rd_store_name(b.shared, RD_STORE_SOURCE + s);
done:
    rd_store_bytes_release(&b);
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
