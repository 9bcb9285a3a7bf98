/* parallel_text.c -- two texts; line k of one is the translation of line k of the other.
 *
 * A text is a file or a list of files. They are UTF-8: plain, compressed (recognised by content),
 * or a member of an archive, written "archive.tar.gz!member"; the archive is read without unpacking
 * it. "-" as source_file_test is standard input, which rank 0 reads for all. LF ends a line, CR LF
 * is tolerated, nothing else ends one. (In vocabularies a lone CR does.)
 *
 * Without vocabularies in the config, rank 0 makes them, and a subword model, from the training
 * text (text_kit.c).
 *
 * Token ids are stored in flat arrays that the ranks of a host share; local rank 0 reads the files.
 * With shard, every rank reads the files itself and keeps only its own lines. All ranks know the
 * lengths and buckets of all samples in either case. */
#include "../text_impl.h"
#include "../parallel_impl.h"
#include "rd/strbuf.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- what was read ---- */

/* Fails if a line to translate has too many tokens. */
static rd_code check_lengths(const rd_parallel *t, int64_t lines_before, rd_status *st)
{
    const int64_t most = t->max_infer_tokens + 2; /* start and end token */
    const rd_side *side = &t->side[0];
    if (!t->no_target || side->head.longest <= most) return RD_OK;
    for (int64_t i = 0; i < side->head.n_lines; i++) {
        int64_t line = i + 1;
        if (rd_side_length(side, i) <= most) continue;
        const int file = rd_side_file(side, i, &line);
        const bool fed = lines_before > 0 || strcmp(t->files[0].at[file], "-") == 0 ||
                         strcmp(t->files[0].at[file], "/dev/null") == 0;
        return rd_fail(st, RD_EDATA,
                       "%s:%" PRId64 ": a line of %" PRId64
                       " tokens, but the most to translate is %" PRId64
                       "; split it, or raise max_infer_tokens",
                       fed ? "standard input" : t->files[0].at[file], lines_before + line,
                       rd_side_length(side, i) - 2, t->max_infer_tokens);
    }
    return RD_OK;
}

static void parallel_fingerprint(rd_parallel *t)
{
    snprintf(t->fingerprint, sizeof t->fingerprint,
             "parallel_text %" PRId64 " lines, source %016" PRIx64 ", target %016" PRIx64
             ", vocabularies %" PRId64 " %016" PRIx64 ", %" PRId64 " %016" PRIx64,
             t->count, t->side[0].head.hash, t->side[1].head.hash, rd_vocab_size(t->kit.vocab[0]),
             rd_vocab_hash(t->kit.vocab[0]), rd_vocab_size(t->kit.vocab[1]),
             rd_vocab_hash(t->kit.vocab[1]));
    if (t->n_blank > 0) {
        const size_t used = strlen(t->fingerprint);
        snprintf(t->fingerprint + used, sizeof t->fingerprint - used, ", %" PRId64 " left out",
                 t->n_blank);
    }
    if (t->sockeye.n > 0) {
        const size_t used = strlen(t->fingerprint);
        snprintf(t->fingerprint + used, sizeof t->fingerprint - used,
                 ", Sockeye's buckets %d %" PRId64 " %" PRId64 " %d", (int)t->sockeye.kind,
                 t->bucket_width, t->sockeye.multiple, t->bucket_scaling);
    }
    if (t->kit.subword) {
        const size_t used = strlen(t->fingerprint);
        snprintf(t->fingerprint + used, sizeof t->fingerprint - used, ", subwords %016" PRIx64,
                 rd_text_kit_subword_hash(&t->kit));
    }
}

static rd_code check_text(rd_parallel *t, const rd_dataset_args *a, rd_status *st)
{
    const int64_t n[2] = {t->side[0].head.n_lines,
                          t->no_target ? t->side[0].head.n_lines : t->side[1].head.n_lines};
    if (n[0] != n[1]) return rd_text_counts_differ(t->files, t->side, n, st);
    if (n[0] == 0 && !a->keep_all)
        return rd_fail(st, RD_EDATA, "%s is empty; it needs one sentence a line", t->file_name[0]);
    if (n[0] > UINT32_MAX)
        return rd_fail(st, RD_EDATA, "%s has more than %" PRIu32 " lines", t->file_name[0],
                       UINT32_MAX);
    t->count = n[0];
    RD_TRY(rd_parallel_sockeye(t, st));
    rd_parallel_count(t);
    RD_TRY(rd_parallel_check_unknown(t, a, st));
    RD_TRY(check_lengths(t, 0, st));
    if (t->count > 0 && t->n_blank == t->count)
        return rd_fail(st, RD_EDATA,
                       "no pair of %s and %s has words in both lines: there is nothing to "
                       "train on",
                       t->file_name[0], t->file_name[1]);
    if (t->count > 0 && t->skipped + t->n_blank == t->count && t->max_length[0] > 0)
        return rd_fail(st, RD_EDATA,
                       "no pair of %s fits max_seq_len [%" PRId64 ", %" PRId64
                       "], longest source %" PRId64 ", target %" PRId64 " tokens; raise the limits",
                       t->file_name[0], t->max_length[0] - 2, t->max_length[1] - 2,
                       t->skipped_longest[0] - 2, t->skipped_longest[1] - 2);
    if (t->count > 0 && t->skipped + t->n_blank == t->count)
        return rd_fail(st, RD_EDATA,
                       "no pair of %s fits the buckets: bucket_src ends at %" PRId64
                       ", bucket_tgt at %" PRId64 ", longest source %" PRId64 ", target %" PRId64
                       "; raise the limits",
                       t->file_name[0], t->limit[0].at[t->limit[0].n - 1],
                       t->limit[1].at[t->limit[1].n - 1], t->skipped_longest[0],
                       t->skipped_longest[1]);
    parallel_fingerprint(t);
done:
    return st->code;
}

/* ---- the functions of rd_dataset_def ---- */

static void text_close(void *self)
{
    rd_parallel *t = self;
    if (!t) return;
    rd_text_kit_release(&t->kit);
    rd_text_given_free(t->given);
    for (int s = 0; s < 2; s++) {
        rd_side_release(&t->side[s]);
        rd_text_files_release(&t->files[s]);
        free((void *)(uintptr_t)t->limit[s].at);
        free(t->sockeye.limit[s]);
    }
    free(t->sockeye.mean);
    free(t->sockeye.count);
    free(t);
}

static rd_code text_open(const rd_dataset_args *a, void **self, rd_status *st)
{
    rd_parallel *t = calloc(1, sizeof *t);
    *self = NULL;
    if (!t)
        rd_fail(st, RD_EENV, "out of memory");
    else
        (void)rd_parallel_config_read(t, a, st);
    RD_TRY(rd_agree(a->comm, st));
    if (!t) /* Never happens: all ranks share the failure. */
        return rd_fail(st, RD_EBUG, "ranks agree without a dataset");
    if (t->own_vocab)
        RD_TRY(rd_parallel_open_kit(t, a, false, st));
    else
        RD_TRY(rd_parallel_open_given(t, a, st));
    if (a->mode == RD_MODE_PREPARE || a->mode == RD_MODE_EXPORT) {
        /* the kit is all that is wanted */
        parallel_fingerprint(t);
        memset(&t->c, 0, sizeof t->c);
        *self = t;
        return RD_OK;
    }
    RD_TRY(rd_parallel_read(t, a, st));
    (void)check_text(t, a, st);
    RD_TRY(rd_agree(a->comm, st));
    rd_parallel_report(t, a);
    memset(&t->c, 0, sizeof t->c); /* its strings belong to the config, which may be freed */
    *self = t;
    return RD_OK;
done:
    text_close(t);
    return st->code;
}

static int64_t text_count(void *self)
{
    return ((const rd_parallel *)self)->count;
}
static int text_n_buckets(void *self)
{
    return ((const rd_parallel *)self)->n_buckets;
}
static const char *text_fingerprint(void *self)
{
    return ((const rd_parallel *)self)->fingerprint;
}

static int text_bucket(void *self, int64_t i)
{
    return rd_parallel_bucket(self, i);
}

static bool text_blank(void *self, int64_t i)
{
    const rd_parallel *t = self;
    return rd_side_blank(&t->side[0], i);
}

static int64_t text_length(void *self, int64_t i)
{
    const rd_parallel *t = self;
    return rd_parallel_length(t, 0, i) + rd_parallel_length(t, 1, i);
}

static int64_t text_bucket_batch(void *self, int bucket, int64_t tokens)
{
    const rd_parallel *t = self;
    return t->sockeye.n > 0 ? rd_sockeye_batch(&t->sockeye, bucket, tokens) : 0;
}

static int64_t text_tokens(void *self, int64_t i)
{
    return rd_parallel_length(self, 1, i) - 1; /* the start token is no label */
}

static bool text_here(void *self, int64_t i)
{
    const rd_parallel *t = self;
    return i % t->side[0].size == t->side[0].rank;
}

/* Warns once if most of what was fed is unknown. */
static void warn_fed(rd_parallel *t, int64_t lines_before)
{
    enum { ENOUGH = 20 };
    const rd_side_head *h = &t->side[0].head;
    t->n_fed += h->n_here - h->n_blank;
    t->n_fed_unknown += h->n_unknown - h->n_blank;
    if (!t->log || t->fed_warned || t->n_fed < ENOUGH || 2 * t->n_fed_unknown <= t->n_fed) return;
    t->fed_warned = true;
    rd_warn(t->log,
            "the vocabulary '%s' lacks %" PRId64 " of the first %" PRId64
            " words of standard input, such as '%s' in line %" PRId64
            "; check that the text is split into the same words or subwords",
            t->vocab_name[0], t->n_fed_unknown, t->n_fed, h->unknown,
            lines_before + h->unknown_line);
}

static rd_code text_feed(void *self, const char *text, size_t n, int64_t lines_before,
                         rd_status *st)
{
    rd_parallel *t = self;
    rd_lines *l = NULL;
    rd_lines_opts o = t->lines;
    o.lines_before = lines_before;
    rd_side_release(&t->side[0]);
    t->count = 0;
    if (!t->no_target) return rd_fail(st, RD_EBUG, "a dataset with targets is fed");
    RD_TRY(rd_lines_new_mem("standard input", text, n, o, &l, st));
    const rd_side_args sa = rd_parallel_side_args(t, 0);
    RD_TRY(rd_side_read(&t->side[0], l, &sa, st));
    RD_TRY(check_lengths(t, lines_before, st));
    t->count = t->side[0].head.n_lines;
    warn_fed(t, lines_before);
done:
    rd_lines_free(l);
    return st->code;
}

static rd_code text_fetch(void *self, const int64_t *ids, int64_t n, rd_arena *a, rd_batch *out,
                          rd_status *st)
{
    rd_parallel *t = self;
    int64_t *sample;
    RD_TRY(rd_arena_get(a, (size_t)(n + 1) * sizeof *sample, &sample, st));
    for (int64_t k = 0; k < n; k++) {
        sample[k] = ids[k];
        if (ids[k] < 0 || ids[k] >= t->count || !text_here(t, ids[k]))
            return rd_fail(st, RD_EBUG, "sample %" PRId64 " of %" PRId64 " is not on this rank",
                           ids[k], t->count);
    }
    out->n = n;
    out->sample = sample;
    out->n_fields = 2;
    for (int s = 0; s < 2; s++) {
        /* Without a target: start and end token only, without even an empty token. */
        const bool made_up = s == 1 && t->no_target;
        int64_t *off;
        int32_t *data;
        RD_TRY(rd_arena_get(a, (size_t)(n + 1) * sizeof *off, &off, st));
        off[0] = 0;
        for (int64_t k = 0; k < n; k++)
            off[k + 1] = off[k] + (made_up ? 2 : rd_side_n_ids(&t->side[s], ids[k]));
        RD_TRY(rd_arena_get(a, (size_t)(off[n] + 1) * sizeof *data, &data, st));
        for (int64_t k = 0; k < n; k++) {
            if (!made_up) {
                RD_TRY(rd_side_ids(&t->side[s], ids[k], data + off[k], st));
                continue;
            }
            data[off[k]] = RD_SOS;
            data[off[k] + 1] = RD_EOS;
        }
        out->field[s] = (rd_field){
            .name = rd_parallel_side[s], .dtype = RD_I32, .data = data, .off = off};
    }
done:
    return st->code;
}

static void text_spec(void *self, rd_data_spec *out)
{
    const rd_parallel *t = self;
    *out = (rd_data_spec){.src_vocab_size = rd_vocab_size(t->kit.vocab[0]),
                          .tgt_vocab_size = rd_vocab_size(t->kit.vocab[1]),
                          .src_vocab_hash = rd_vocab_hash(t->kit.vocab[0]),
                          .tgt_vocab_hash = rd_vocab_hash(t->kit.vocab[1]),
                          .src_vocab = t->kit.vocab[0],
                          .tgt_vocab = t->kit.vocab[1],
                          .subword_hash = rd_text_kit_subword_hash(&t->kit),
                          .joins = t->kit.subword != NULL};
}

/* Appends the words of ids. skip: leaves out start and end tokens; a skipped end ends the text. */
static void text_words(const rd_parallel *t, int side, const int32_t *ids, int64_t n,
                       const char *between, bool skip, rd_strbuf *b)
{
    const rd_vocab *v = t->kit.vocab[side];
    bool any = false;
    for (int64_t k = 0; k < n; k++) {
        const int32_t id = ids[k];
        if (id == RD_EOS && skip) break;
        if (id < 0 || id >= rd_vocab_size(v)) continue;
        if (id < RD_N_SPECIAL && (id == RD_UNK ? !t->print_unk : skip)) continue;
        size_t m;
        const char *w = rd_vocab_word(v, id, &m);
        if (any) rd_strbuf_puts(b, between);
        rd_strbuf_add(b, w, m);
        any = true;
    }
}

static void text_text(void *self, int side, const int32_t *ids, int64_t n, bool specials,
                      rd_strbuf *b)
{
    const rd_parallel *t = self;
    const rd_subword *sub = t->kit.subword;
    rd_strbuf pieces = {0};
    int64_t from = 0, to;
    if (!sub) {
        text_words(t, side, ids, n, t->delimiter, !specials, b);
        return;
    }
    while (from < n && ids[from] == RD_SOS) from++;
    for (to = from; to < n && ids[to] != RD_EOS;) to++;
    if (specials && from > 0) rd_strbuf_puts(b, "<S> ");
    text_words(t, side, ids + from, to - from, " ", true, &pieces);
    if (pieces.n > 0) rd_subword_join(sub, pieces.s, pieces.n, b);
    if (specials && to < n) rd_strbuf_puts(b, " </S>");
    b->failed |= pieces.failed;
    rd_strbuf_release(&pieces);
}

static rd_code text_keep(void *self, const char *logdir, rd_status *st)
{
    const rd_parallel *t = self;
    return t->given ? rd_text_given_keep(t->given, logdir, st) : RD_OK;
}

static const char *text_reference(void *self, int64_t i, size_t *n)
{
    const rd_parallel *t = self;
    return t->no_target ? NULL : rd_side_raw(&t->side[1], i, n);
}

RD_DATASET(parallel_text) = {
    .name = "parallel_text",
    .about = "two text files, line by line translations of each other",
    .group = &rd_group_parallel_text,
    .prepares = true,
    .open = text_open,
    .close = text_close,
    .count = text_count,
    .n_buckets = text_n_buckets,
    .bucket = text_bucket,
    .length = text_length,
    .tokens = text_tokens,
    .bucket_batch = text_bucket_batch,
    .here = text_here,
    .fetch = text_fetch,
    .spec = text_spec,
    .fingerprint = text_fingerprint,
    .text = text_text,
    .reference = text_reference,
    .blank = text_blank,
    .feed = text_feed,
    .keep = text_keep,
};
