/* parallel_report.c -- what rank 0 reports of a parallel text: empty lines, unknown words, pairs
 * that are left out. */
#include "parallel_impl.h"
#include "rd/strbuf.h"
#include <inttypes.h>
#include <stdio.h>

/* Names the first words that a vocabulary has twice, with their lines. */
static void report_repeats(const rd_parallel *t, const rd_dataset_args *a, int s, const char *path)
{
    const rd_vocab *v = t->kit.vocab[s];
    const rd_vocab_repeat *at = rd_vocab_repeats(v);
    const int64_t n = rd_vocab_duplicates(v);
    rd_strbuf b = {0};
    for (int64_t k = 0; k < n && k < RD_VOCAB_REPEATS; k++) {
        size_t len;
        const char *w = rd_vocab_word(v, (int32_t)(at[k].line - 1 + RD_N_SPECIAL), &len);
        if (len == 0)
            rd_strbuf_printf(&b, "%san empty line", k ? ", " : "");
        else
            rd_strbuf_printf(&b, "%s'%.60s'", k ? ", " : "", w);
        rd_strbuf_printf(&b, " in line %" PRId64 " and line %" PRId64, at[k].earlier, at[k].line);
    }
    rd_warn(a->log,
            "%s:%" PRId64 ": %" PRId64 " repeated word%s: %s%s; each keeps the id of its "
            "last line",
            path, at[0].line, n, RD_S(n), rd_strbuf_str(&b), n > RD_VOCAB_REPEATS ? ", ..." : "");
    rd_strbuf_release(&b);
}

/* Writes where a line is: "line 7", or "line 7 of 'b.txt'" if there are several files. line: from
 * 1, of all files. */
static const char *line_name(const rd_parallel *t, int s, int64_t line, char out[256])
{
    int64_t number;
    if (t->files[s].n <= 1) {
        (void)snprintf(out, 256, "line %" PRId64, line);
        return out;
    }
    const int file = rd_side_file(&t->side[s], line - 1, &number);
    (void)snprintf(out, 256, "line %" PRId64 " of '%.200s'", number, t->files[s].at[file]);
    return out;
}

static void report_blank(const rd_parallel *t, const rd_dataset_args *a)
{
    const rd_side_head *src = &t->side[0].head, *tgt = &t->side[1].head;
    char line[256];
    if (t->n_blank > 0) {
        char at[2][300] = {"", ""};
        for (int s = 0; s < 2; s++)
            if (t->side[s].head.n_blank > 0)
                snprintf(at[s], sizeof at[s], ", the first in %s",
                         line_name(t, s, t->side[s].head.first_blank, line));
        rd_warn(a->log,
                "%" PRId64 " of %" PRId64
                " training pairs left out, since a line is empty: %" PRId64 " of %s%s; %" PRId64
                " of %s%s",
                t->n_blank, t->count, src->n_blank, t->file_name[0], at[0], tgt->n_blank,
                t->file_name[1], at[1]);
        return;
    }
    for (int s = 0; s < 2 && !t->no_target; s++) {
        const rd_side_head *h = &t->side[s].head;
        if (h->n_blank > 0)
            rd_warn(a->log, "%s has %" PRId64 " empty line%s, the first is %s; %s", t->file_name[s],
                    h->n_blank, RD_S(h->n_blank), line_name(t, s, h->first_blank, line),
                    s == 0 ? "its translation is empty, the loss counts it as an unknown word"
                           : "it counts as a reference without words");
    }
}

/* Returns the share of words that the vocabulary does not have, without empty lines. */
static double unknown_share(const rd_side *s)
{
    int64_t blank_here = 0;
    for (int64_t k = 0; k < s->head.n_blank; k++)
        blank_here += ((const int64_t *)(const void *)s->blank.p)[k] % s->size == s->rank;
    const int64_t n = s->head.n_here - blank_here;
    return n > 0 ? (double)(s->head.n_unknown - blank_here) / (double)n : 0.0;
}

enum { UNKNOWN_BYTES = 512 };

/* Writes what is unknown, and what may be wrong. */
static void describe_unknown(const rd_parallel *t, int s, double share, char out[UNKNOWN_BYTES])
{
    const rd_side_head *h = &t->side[s].head;
    size_t n;
    const char *first = rd_vocab_word(t->kit.vocab[s], RD_N_SPECIAL, &n);
    const int blank = (int)strcspn(first, " ");
    char line[256];
    const int at = snprintf(out, UNKNOWN_BYTES,
                            "the vocabulary '%.80s' lacks %.1f %% of the words of %.82s, the "
                            "first is '%s' in %.120s",
                            t->vocab_name[s], 100.0 * share, t->file_name[s], h->unknown,
                            line_name(t, s, h->unknown_line, line));
    if (at < 0 || at >= UNKNOWN_BYTES) return;
    if (first[blank] == ' ')
        snprintf(out + at, UNKNOWN_BYTES - (size_t)at,
                 "; its line 1 is '%.40s', but a line is one word: cut -d' ' -f1 makes such a file",
                 first);
    else
        snprintf(out + at, UNKNOWN_BYTES - (size_t)at,
                 "; check that it is the vocabulary of this text, and that the text is split into "
                 "the same words or subwords");
}

/* Fails if the training text has more unknown words than max_unknown allows. */
rd_code rd_parallel_check_unknown(const rd_parallel *t, const rd_dataset_args *a, rd_status *st)
{
    char text[UNKNOWN_BYTES];
    for (int s = 0; s < 2 && a->split == RD_SPLIT_TRAIN; s++) {
        const double share = unknown_share(&t->side[s]);
        if (share <= t->c.max_unknown) continue;
        describe_unknown(t, s, share, text);
        return rd_fail(st, RD_EDATA, "%s; to train all the same, raise max_unknown (%g)", text,
                       t->c.max_unknown);
    }
    return RD_OK;
}

static void report_unknown(const rd_parallel *t, const rd_dataset_args *a)
{
    static const double many = 0.2;
    char text[UNKNOWN_BYTES];
    for (int s = 0; s < (t->no_target ? 1 : 2); s++) {
        const double share = unknown_share(&t->side[s]);
        if (share <= many) continue;
        describe_unknown(t, s, share, text);
        rd_warn(a->log, "%s", text);
    }
}

static void report_skipped(const rd_parallel *t, const rd_dataset_args *a)
{
    const bool by_length = t->max_length[0] > 0;
    if (t->skipped > 0 && by_length)
        rd_warn(a->log,
                "%" PRId64 " of %" PRId64 " pairs skipped: longer than max_seq_len [%" PRId64
                ", %" PRId64 "] (%" PRId64 " by the source, %" PRId64
                " by the target; longest %" PRId64 " and %" PRId64 " tokens)",
                t->skipped, t->count, t->max_length[0] - 2, t->max_length[1] - 2, t->too_long[0],
                t->too_long[1], t->skipped_longest[0] - 2, t->skipped_longest[1] - 2);
    else if (t->skipped > 0)
        rd_warn(a->log,
                "%" PRId64 " of %" PRId64
                " pairs skipped: longer than the last bucket (longest source %" PRId64
                ", target %" PRId64 " tokens, start and end included)",
                t->skipped, t->count, t->skipped_longest[0], t->skipped_longest[1]);
    if (!t->own_vocab || a->split != RD_SPLIT_TRAIN) return;
    const int64_t kept = t->count - t->skipped - t->n_blank;
    rd_info(a->log,
            "lines become tokens by subword %s; training takes at most %" PRId64 " and %" PRId64
            " of them",
            rd_subword_kind(t->kit.subword), t->limit[0].at[t->limit[0].n - 1] - 2,
            t->limit[1].at[t->limit[1].n - 1] - 2);
    rd_info(a->log,
            "training pairs: %" PRId64 " read, %" PRId64 " kept, %" PRId64 " too long, %" PRId64
            " with an empty side; target/source length %.3f (sd %.3f)",
            t->count, kept, t->skipped, t->n_blank, t->ratio, t->ratio_sd);
    double bytes = 0.0;
    for (int s = 0; s < 2; s++) bytes += rd_side_bytes(&t->side[s]);
    rd_info(a->log, "the text takes %.1f MB, %.0f bytes a pair: %s", bytes * 1e-6,
            bytes / (double)t->count,
            t->side[0].head.again ? "lines are read again when they are used"
                                  : "the ids of all lines are kept");
}

/* Reports Sockeye's buckets, as its log does. */
static void report_buckets(const rd_parallel *t, const rd_dataset_args *a)
{
    const rd_sockeye_batches *s = &t->sockeye;
    char pairs[32];
    for (int b = 0; b < s->n; b++)
        if (s->count[b] > 0)
            rd_info(a->log, "bucket (%" PRId64 ", %" PRId64 "): %s pair%s, mean target length %.1f",
                    s->limit[0][b], s->limit[1][b], rd_commas((double)s->count[b], pairs),
                    RD_S(s->count[b]), s->mean[b]);
}

/* Does the scheme keep white space inside its pieces? Else a blank alone separates words. */
static bool is_text(const rd_parallel *t)
{
    const char *kind = t->kit.subword ? rd_subword_kind(t->kit.subword) : "none";
    return strcmp(kind, "none") != 0 && strcmp(kind, "bpe") != 0;
}

void rd_parallel_report(const rd_parallel *t, const rd_dataset_args *a)
{
    char line[256];
    static const char *const split[] = {"training", "evaluation", "test"};
    if (!a->log || rd_rank_of(a->comm) != 0) return;
    for (int s = 0; s < 2 && !t->own_vocab; s++) {
        if (a->split != RD_SPLIT_TRAIN && a->mode == RD_MODE_TRAIN_EVAL)
            continue; /* reported when the training data was opened */
        if (s == 1 && strcmp(t->vocab_name[0], t->vocab_name[1]) == 0) continue; /* reported */
        const rd_vocab_kind kind = rd_vocab_kind_of(t->kit.vocab[s]);
        const char *slash = strrchr(t->vocab_name[s], '/');
        /* Words with counts may also be a list that was meant to hold words alone. */
        if (kind == RD_VOCAB_COUNTS &&
            strncmp(slash ? slash + 1 : t->vocab_name[s], "dict", 4) != 0)
            rd_warn(a->log,
                    "%s: each line has a word, a blank and a count, so it is read as a vocabulary "
                    "of fairseq; for a file of words alone: cut -d' ' -f1",
                    t->vocab_name[s]);
        else if (kind != RD_VOCAB_LINES)
            rd_info(a->log, "%s: %s; ids by the order of its words", t->vocab_name[s],
                    rd_vocab_kind_name(kind));
        if (rd_vocab_duplicates(t->kit.vocab[s]) > 0) report_repeats(t, a, s, t->vocab_name[s]);
        if (rd_vocab_bom(t->kit.vocab[s]))
            rd_warn(a->log, "%s: byte order mark skipped", t->vocab_name[s]);
        if (rd_vocab_replaced(t->kit.vocab[s]) > 0)
            rd_warn(a->log, "%s: %" PRId64 " invalid character%s replaced by U+FFFD",
                    t->vocab_name[s], rd_vocab_replaced(t->kit.vocab[s]),
                    RD_S(rd_vocab_replaced(t->kit.vocab[s])));
    }
    for (int s = 0; s < 2; s++) {
        const rd_side_head *h = &t->side[s].head;
        if (s == 1 && t->no_target) break;
        const char *path = t->files[s].at[h->file_replaced];
        if (h->bom) rd_warn(a->log, "%s: byte order mark skipped", t->files[s].at[0]);
        if (h->n_replaced > 0)
            rd_warn(a->log,
                    "%s: %" PRId64
                    " invalid character%s replaced by U+FFFD, the first in line %" PRId64 "%s%s",
                    t->files[s].n > 1 ? t->file_name[s] : path, h->n_replaced, RD_S(h->n_replaced),
                    h->first_replaced, t->files[s].n > 1 ? " of " : "",
                    t->files[s].n > 1 ? path : "");
        if (h->n_spaces > 0)
            rd_info(a->log,
                    "%s: %" PRId64 " line%s with other white space than blanks (TAB, no-break "
                    "space), the first is %s; %s",
                    t->file_name[s], h->n_spaces, RD_S(h->n_spaces),
                    line_name(t, s, h->first_spaces, line),
                    is_text(t) ? "the subword model treats it as text" : "it separates no words");
    }
    for (int s = 0; s < (t->no_target ? 1 : 2); s++) {
        const rd_side_head *h = &t->side[s].head;
        if (t->no_target && h->n_lines == 0) continue; /* the lines come later, from a pipe */
        if (a->shard)
            rd_info(a->log,
                    "%s data, %s: %" PRId64 " line%s, %" PRId64
                    " token%s, split among %d rank%s; vocabulary %" PRId64,
                    split[a->split], rd_parallel_side[s], h->n_lines, RD_S(h->n_lines), h->n_tokens,
                    RD_S(h->n_tokens), rd_size_of(a->comm), RD_S(rd_size_of(a->comm)),
                    rd_vocab_size(t->kit.vocab[s]));
        else
            rd_info(a->log,
                    "%s data, %s: %" PRId64 " line%s, %" PRId64
                    " token%s, %.2f %% unknown; vocabulary %" PRId64,
                    split[a->split], rd_parallel_side[s], h->n_lines, RD_S(h->n_lines), h->n_tokens,
                    RD_S(h->n_tokens),
                    h->n_tokens ? 100.0 * (double)h->n_unknown / (double)h->n_tokens : 0.0,
                    rd_vocab_size(t->kit.vocab[s]));
    }
    report_unknown(t, a);
    report_blank(t, a);
    report_skipped(t, a);
    report_buckets(t, a);
}
