/* parallel_text.c -- two text files; line k of one is the translation of line k of the other.
 *
 * Files are UTF-8: plain, compressed (recognised by content), or a member of an archive, written
 * "archive.tar.gz!member"; the archive is read without unpacking it. "-" as source_file_test is
 * standard input, which rank 0 reads for all. LF ends a line, CR LF is tolerated, nothing else ends
 * one. (In vocabularies a lone CR does.)
 *
 * Token ids are stored in flat arrays that the ranks of a host share; local rank 0 reads the files.
 * With shard, every rank reads the files itself and keeps only its own lines. All ranks know the
 * lengths and buckets of all samples in either case. */
#include "../text_impl.h"
#include "rd/strbuf.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

typedef enum invalid_utf8 { UTF8_ERROR, UTF8_REPLACE } invalid_utf8;

typedef struct text_config {
    const char *src_vocab_file, *tgt_vocab_file;
    const char *file[3][2]; /* [rd_split][side] */
    rd_ints bucket[2], bucket_test[2];
    const char *delimiter, *data_location;
    invalid_utf8 invalid_utf8;
    int64_t max_line_bytes, max_infer_tokens;
    double max_unknown;
    bool pad_vocabs_to_eight, bpe_used, eval_bleu, print_unk;
} text_config;

#define T text_config
static const char *const utf8_choices[] = {
    [UTF8_ERROR] = "error", [UTF8_REPLACE] = "replace", NULL};
enum {
    ALL_MODES = RD_MODE_TRAIN | RD_MODE_EVAL | RD_MODE_INFER | RD_MODE_TRAIN_EVAL,
    BUCKET_MAX = 65534 /* a larger limit counts as a mistake */
};

static const rd_option options[] = {
    RD_OPT_PATH(T, src_vocab_file, src_vocab_file, NULL,
                "source vocabulary: one word a line; a TAB and what follows it are ignored. "
                "run_dist_make_vocab makes it from text",
                RD_REQUIRED(ALL_MODES)),
    RD_OPT_PATH(T, tgt_vocab_file, tgt_vocab_file, NULL, "target vocabulary; may be the same file",
                RD_REQUIRED(ALL_MODES)),
    RD_OPT_PATH(T, source_file, file[RD_SPLIT_TRAIN][0], NULL,
                "source side of the training text: a file, x.gz, or x.tar.gz!member"),
    RD_OPT_PATH(T, target_file, file[RD_SPLIT_TRAIN][1], NULL,
                "target side of the training text, with the same number of lines"),
    RD_OPT_PATH(T, source_file_eval, file[RD_SPLIT_EVAL][0], NULL,
                "source side of the evaluation text"),
    RD_OPT_PATH(T, target_file_eval, file[RD_SPLIT_EVAL][1], NULL,
                "target side of the evaluation text"),
    RD_OPT_PATH(T, source_file_test, file[RD_SPLIT_TEST][0], NULL,
                "text to translate; - is standard input"),
    RD_OPT_PATH(T, target_file_test, file[RD_SPLIT_TEST][1], NULL,
                "its translation, for scores; translating does not need it"),
    RD_OPT_INTS(T, bucket_src, bucket[0], NULL, 3, BUCKET_MAX,
                "source length limits of the buckets in tokens, ascending. Start and end token "
                "count"),
    RD_OPT_INTS(T, bucket_tgt, bucket[1], NULL, 3, BUCKET_MAX,
                "target length limits of the buckets in tokens, ascending"),
    RD_OPT_INTS(T, bucket_src_test, bucket_test[0], NULL, 3, BUCKET_MAX,
                "replaces bucket_src outside training, where no sample is skipped for its length"),
    RD_OPT_INTS(T, bucket_tgt_test, bucket_test[1], NULL, 3, BUCKET_MAX,
                "replaces bucket_tgt outside training"),
    RD_OPT_STRING(T, delimiter, delimiter, "\" \"",
                  "joins the tokens of the output. Input is always split at single spaces"),
    RD_OPT_BOOL(T, pad_vocabs_to_eight, pad_vocabs_to_eight, "false",
                "rounds both vocabulary sizes up to a multiple of 8"),
    RD_OPT_BOOL(T, bpe_used, bpe_used, "false", "removes \"@@ \" before scoring"),
    RD_OPT_BOOL(T, eval_bleu, eval_bleu, "true",
                "evaluation decodes and scores. false: it computes the loss alone"),
    RD_OPT_PATH(T, data_location, data_location, NULL,
                "folder that replaces [..._DATA_LOCATION] in file names"),
    RD_OPT_ENUM(T, invalid_utf8, invalid_utf8, "\"error\"", utf8_choices,
                "invalid UTF-8 or a NUL byte in a text. error: the run stops; replace: U+FFFD is "
                "put in its place"),
    RD_OPT_INT(T, max_line_bytes, max_line_bytes, "1048576", 1, 1 << 30,
               "a line with more bytes is an error"),
    RD_OPT_REAL(T, max_unknown, max_unknown, "0.5", 0, 1,
                "largest share of unknown words in a side of the training text. More is an error; "
                "1 allows everything"),
    RD_OPT_INT(T, max_infer_tokens, max_infer_tokens, "4096", 1, BUCKET_MAX,
               "a line to translate with more tokens is an error: the time grows with the square "
               "of its length"),
    RD_OPT_BOOL(T, print_unk, print_unk, "false",
                "writes <UNK> for unknown words in output. false: leaves them out"),
    RD_OPT_END};
#undef T

static const rd_option_group group = {"parallel_text",
                                      "two text files, line by line translations of each other",
                                      options, sizeof(text_config)};

typedef struct parallel_text {
    text_config c; /* all zero once the dataset is open */
    rd_vocab *vocab[2];
    rd_side side[2];
    bool no_target, keep_all, drop_blank;
    rd_lines_opts lines;
    rd_log *log;                  /* of rank 0; NULL: none */
    char vocab_name[256];         /* path of the source vocabulary */
    int64_t n_fed, n_fed_unknown; /* tokens of the texts that were fed; unknown ones */
    bool fed_warned;
    int64_t max_infer_tokens;
    int n_buckets;
    int64_t count, skipped, skipped_longest[2];
    int64_t n_blank; /* number of pairs that are left out of training since a side is blank */
    char delimiter[64], fingerprint[256]; /* the config may be freed before the dataset */
    bool print_unk;
    rd_ints limit[2]; /* [side] length limits of the buckets; n 0: no limit */
} parallel_text;

static const char *const file_key[3][2] = {{"source_file", "target_file"},
                                           {"source_file_eval", "target_file_eval"},
                                           {"source_file_test", "target_file_test"}};
static const char *const side_name[2] = {"source", "target"};
static const char *const bucket_key[2][2] = {{"bucket_src", "bucket_src_test"},
                                             {"bucket_tgt", "bucket_tgt_test"}};

/* ---- config ---- */

static rd_code read_limits(parallel_text *t, const rd_dataset_args *a, rd_status *st)
{
    for (int s = 0; s < 2; s++) {
        const bool test = a->split != RD_SPLIT_TRAIN && t->c.bucket_test[s].n > 0;
        const rd_ints *from = test ? &t->c.bucket_test[s] : &t->c.bucket[s];
        const char *key = bucket_key[s][test];
        if (from->n == 0 && a->keep_all) continue;
        if (from->n == 0)
            return rd_fail(st, RD_EUSAGE,
                           "missing key '%s': the length limits of the buckets, for example [50]; "
                           "add it to the config",
                           key);
        int64_t *at = malloc((size_t)from->n * sizeof *at);
        if (!at) return rd_fail(st, RD_EENV, "out of memory");
        t->limit[s] = (rd_ints){from->n, at};
        for (int k = 0; k < from->n; k++) {
            if (k > 0 && from->at[k] <= from->at[k - 1])
                return rd_fail(st, RD_EUSAGE,
                               "%s: '%s' must ascend, but %" PRId64 " follows %" PRId64,
                               rd_config_where(a->config, key), key, from->at[k], from->at[k - 1]);
            at[k] = from->at[k];
        }
        if (from->n > t->n_buckets) t->n_buckets = from->n;
    }
    if (t->n_buckets == 0) t->n_buckets = 1;
    return RD_OK;
}

static rd_code read_config(parallel_text *t, const rd_dataset_args *a, rd_status *st)
{
    RD_TRY(rd_config_read(a->config, &group, a->mode, &t->c, st));
    t->keep_all = a->keep_all;
    t->no_target = a->mode == RD_MODE_INFER;
    t->drop_blank = a->split == RD_SPLIT_TRAIN && !a->keep_all;
    t->lines = (rd_lines_opts){.replace = t->c.invalid_utf8 == UTF8_REPLACE,
                               .max_line_bytes = t->c.max_line_bytes};
    t->max_infer_tokens = t->c.max_infer_tokens;
    t->log = rd_rank_of(a->comm) == 0 ? a->log : NULL;
    t->print_unk = t->c.print_unk;
    if (strlen(t->c.delimiter) >= sizeof t->delimiter)
        return rd_fail(st, RD_EUSAGE, "%s: 'delimiter' is longer than %zu bytes",
                       rd_config_where(a->config, "delimiter"), sizeof t->delimiter - 1);
    strcpy(t->delimiter, t->c.delimiter);
    const char *const vocab_file[2] = {t->c.src_vocab_file, t->c.tgt_vocab_file};
    for (int s = 0; s < 2; s++) {
        if (!vocab_file[s] || !vocab_file[s][0])
            return rd_fail(
                st, RD_EUSAGE,
                "%s key '%s_vocab_file': the %s vocabulary, which run_dist_make_vocab makes "
                "from text; give it in the config",
                vocab_file[s] ? "empty" : "missing", s == 0 ? "src" : "tgt", side_name[s]);
        if (s == 0) snprintf(t->vocab_name, sizeof t->vocab_name, "%s", vocab_file[s]);
        if (s == 1 && t->no_target) continue;
        const char *f = t->c.file[a->split][s];
        if (!f || !f[0])
            return rd_fail(st, RD_EUSAGE,
                           "%s key '%s': the text of the %s side; give it in the config",
                           f ? "empty" : "missing", file_key[a->split][s], side_name[s]);
        if (strcmp(f, "-") == 0 && !(t->no_target && s == 0))
            return rd_fail(st, RD_EUSAGE,
                           "%s: '%s' cannot be standard input; only the text to translate can",
                           rd_config_where(a->config, file_key[a->split][s]),
                           file_key[a->split][s]);
    }
    RD_TRY(read_limits(t, a, st));
done:
    return st->code;
}

/* ---- reading ---- */

static rd_code read_side(parallel_text *t, const rd_dataset_args *a, int s, const char *in,
                         size_t n_in, rd_status *st)
{
    rd_lines *l = NULL;
    const char *path = t->c.file[a->split][s];
    rd_lines_opts o = t->lines;
    o.any_kind = t->no_target; /* the text to translate */
    const bool shared = !a->shard && rd_local_size_of(a->comm) > 1 &&
                        rd_local_rank_of(a->comm) == 0;
    if (in)
        RD_TRY(rd_lines_new_mem("standard input", in, n_in, o, &l, st));
    else if (rd_lines_new(path, o, &l, st) != RD_OK)
        rd_status_prefix(st, "%s", file_key[a->split][s]);
    RD_TRY(st->code);
    RD_TRY(rd_side_read(&t->side[s], l, t->vocab[s], a->shard ? rd_rank_of(a->comm) : 0,
                        a->shard ? rd_size_of(a->comm) : 1, s == 1 && a->keep_all && !a->shard,
                        shared, st));
done:
    rd_lines_free(l);
    return st->code;
}

/* Reads standard input on rank 0 and sends the bytes to all. The caller frees *in. Collective. */
static rd_code read_stdin(const rd_dataset_args *a, char **in, size_t *n, rd_status *st)
{
    int64_t bytes = 0;
    if (rd_rank_of(a->comm) == 0) {
        (void)rd_lines_read_all("-", in, n, st);
        bytes = (int64_t)*n;
    }
    RD_TRY(rd_agree(a->comm, st));
    if (!a->comm || rd_size_of(a->comm) == 1) return RD_OK;
    RD_TRY(rd_comm_bcast(a->comm, &bytes, sizeof bytes, 0, st));
    if (rd_rank_of(a->comm) != 0 && !(*in = malloc((size_t)bytes + 1)))
        rd_fail(st, RD_EENV, "out of memory for %" PRId64 " bytes of standard input", bytes);
    *n = (size_t)bytes;
    RD_TRY(rd_agree(a->comm, st));
    RD_TRY(rd_comm_bcast(a->comm, *in, bytes, 0, st));
done:
    return st->code;
}

/* Local rank 0 reads, the others map its memory; a rank that cannot map it reads, too.
 * Collective. */
static rd_code parallel_text_read_text(parallel_text *t, const rd_dataset_args *a, rd_status *st)
{
    char *in = NULL;
    size_t n_in = 0;
    const int n_sides = t->no_target ? 1 : 2;
    const bool all_read = a->shard || rd_local_rank_of(a->comm) == 0;
    if (strcmp(t->c.file[a->split][0], "-") == 0) RD_TRY(read_stdin(a, &in, &n_in, st));
    for (int s = 0; s < n_sides && all_read && st->code == RD_OK; s++)
        (void)read_side(t, a, s, s == 0 ? in : NULL, n_in, st);
    RD_TRY(rd_agree(a->comm, st));
    for (int s = 0; s < n_sides && !a->shard && rd_local_size_of(a->comm) > 1; s++) {
        bool have;
        RD_TRY(rd_comm_local_bcast(a->comm, &t->side[s].head, sizeof t->side[s].head, 0, st));
        RD_TRY(rd_block_share(a->comm, t->side[s].block, RD_SIDE_BLOCKS, &have, st));
        t->side[s].size = 1;
        if (!have) (void)read_side(t, a, s, s == 0 ? in : NULL, n_in, st);
    }
    RD_TRY(rd_agree(a->comm, st));
done:
    free(in);
    return st->code;
}

/* ---- what was read ---- */

static int bucket_of(const rd_ints *limit, int64_t length)
{
    for (int k = 0; k < limit->n; k++)
        if (length <= limit->at[k]) return k;
    return -1;
}

static int64_t side_length(const parallel_text *t, int s, int64_t i)
{
    return s == 1 && t->no_target ? 2 : rd_side_length(&t->side[s], i);
}

static bool text_blank(void *self, int64_t i)
{
    const parallel_text *t = self;
    return rd_side_blank(&t->side[0], i);
}

/* Returns whether the pair is left out of training, since a side has no word. */
static bool is_dropped(const parallel_text *t, int64_t i)
{
    return t->drop_blank && (rd_side_blank(&t->side[0], i) || rd_side_blank(&t->side[1], i));
}

static int text_bucket(void *self, int64_t i)
{
    const parallel_text *t = self;
    int b = 0;
    if (is_dropped(t, i)) return -1;
    for (int s = 0; s < 2; s++) {
        if (t->limit[s].n == 0) continue; /* no limit: bucket 0 */
        const int k = bucket_of(&t->limit[s], side_length(t, s, i));
        if (k < 0) return t->keep_all ? t->n_buckets - 1 : -1;
        if (k > b) b = k;
    }
    return b;
}

static void count_skipped(parallel_text *t)
{
    if (t->keep_all) return;
    for (int64_t i = 0; i < t->count; i++) {
        if (text_bucket(t, i) >= 0) continue;
        if (is_dropped(t, i)) {
            t->n_blank++;
            continue;
        }
        t->skipped++;
        for (int s = 0; s < 2; s++) {
            const int64_t n = side_length(t, s, i);
            if (n > t->skipped_longest[s]) t->skipped_longest[s] = n;
        }
    }
}

/* Names the first words that a vocabulary has twice, with their lines. */
static void report_repeats(const parallel_text *t, const rd_dataset_args *a, int s,
                           const char *path)
{
    const rd_vocab *v = t->vocab[s];
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

static void report_blank(const parallel_text *t, const rd_dataset_args *a)
{
    const rd_side_head *src = &t->side[0].head, *tgt = &t->side[1].head;
    const char *const *path = t->c.file[a->split];
    if (t->n_blank > 0) {
        char at[2][64] = {"", ""};
        for (int s = 0; s < 2; s++)
            if (t->side[s].head.n_blank > 0)
                snprintf(at[s], sizeof at[s], ", the first in line %" PRId64,
                         t->side[s].head.first_blank);
        rd_warn(a->log,
                "%" PRId64 " of %" PRId64
                " training pairs left out, since a line is empty: %" PRId64 " of '%s'%s; %" PRId64
                " of '%s'%s",
                t->n_blank, t->count, src->n_blank, path[0], at[0], tgt->n_blank, path[1], at[1]);
        return;
    }
    for (int s = 0; s < 2 && !t->no_target; s++) {
        const rd_side_head *h = &t->side[s].head;
        if (h->n_blank > 0)
            rd_warn(a->log, "'%s' has %" PRId64 " empty line%s, the first is line %" PRId64 "; %s",
                    path[s], h->n_blank, RD_S(h->n_blank), h->first_blank,
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
static void describe_unknown(const parallel_text *t, const rd_dataset_args *a, int s, double share,
                             char out[UNKNOWN_BYTES])
{
    const char *vocab = s == 0 ? t->c.src_vocab_file : t->c.tgt_vocab_file;
    const rd_side_head *h = &t->side[s].head;
    size_t n;
    const char *first = rd_vocab_word(t->vocab[s], RD_N_SPECIAL, &n);
    const int blank = (int)strcspn(first, " ");
    const int at = snprintf(out, UNKNOWN_BYTES,
                            "the vocabulary '%.80s' lacks %.1f %% of the words of '%.80s', the "
                            "first is '%s' in line %" PRId64,
                            vocab, 100.0 * share, t->c.file[a->split][s], h->unknown,
                            h->unknown_line);
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
static rd_code check_unknown(const parallel_text *t, const rd_dataset_args *a, rd_status *st)
{
    char text[UNKNOWN_BYTES];
    for (int s = 0; s < 2 && a->split == RD_SPLIT_TRAIN; s++) {
        const double share = unknown_share(&t->side[s]);
        if (share <= t->c.max_unknown) continue;
        describe_unknown(t, a, s, share, text);
        return rd_fail(st, RD_EDATA, "%s; to train all the same, raise max_unknown (%g)", text,
                       t->c.max_unknown);
    }
    return RD_OK;
}

static void report_unknown(const parallel_text *t, const rd_dataset_args *a)
{
    static const double many = 0.2;
    char text[UNKNOWN_BYTES];
    for (int s = 0; s < (t->no_target ? 1 : 2); s++) {
        const double share = unknown_share(&t->side[s]);
        if (share <= many) continue;
        describe_unknown(t, a, s, share, text);
        rd_warn(a->log, "%s", text);
    }
}

static void parallel_text_report(const parallel_text *t, const rd_dataset_args *a)
{
    static const char *const split[] = {"training", "evaluation", "test"};
    if (!a->log || rd_rank_of(a->comm) != 0) return;
    const char *const vocab_file[2] = {t->c.src_vocab_file, t->c.tgt_vocab_file};
    for (int s = 0; s < 2; s++) {
        if (a->split != RD_SPLIT_TRAIN && a->mode == RD_MODE_TRAIN_EVAL)
            continue; /* reported when the training data was opened */
        if (s == 1 && strcmp(vocab_file[0], vocab_file[1]) == 0) continue; /* reported */
        if (rd_vocab_duplicates(t->vocab[s]) > 0) report_repeats(t, a, s, vocab_file[s]);
        if (rd_vocab_bom(t->vocab[s]))
            rd_warn(a->log, "%s: byte order mark skipped", vocab_file[s]);
        if (rd_vocab_replaced(t->vocab[s]) > 0)
            rd_warn(a->log, "%s: %" PRId64 " invalid character%s replaced by U+FFFD", vocab_file[s],
                    rd_vocab_replaced(t->vocab[s]), RD_S(rd_vocab_replaced(t->vocab[s])));
    }
    for (int s = 0; s < 2; s++) {
        const rd_side_head *h = &t->side[s].head;
        const char *path = t->c.file[a->split][s];
        if (h->bom) rd_warn(a->log, "%s: byte order mark skipped", path);
        if (h->n_replaced > 0)
            rd_warn(a->log,
                    "%s: %" PRId64
                    " invalid character%s replaced by U+FFFD, the first in line %" PRId64,
                    path, h->n_replaced, RD_S(h->n_replaced), h->first_replaced);
    }
    for (int s = 0; s < (t->no_target ? 1 : 2); s++) {
        const rd_side_head *h = &t->side[s].head;
        if (t->no_target && h->n_lines == 0) continue; /* the lines come later, from a pipe */
        if (a->shard)
            rd_info(a->log,
                    "%s data, %s: %" PRId64 " line%s, %" PRId64
                    " token%s, split among %d rank%s; vocabulary %" PRId64,
                    split[a->split], side_name[s], h->n_lines, RD_S(h->n_lines), h->n_tokens,
                    RD_S(h->n_tokens), rd_size_of(a->comm), RD_S(rd_size_of(a->comm)),
                    rd_vocab_size(t->vocab[s]));
        else
            rd_info(a->log,
                    "%s data, %s: %" PRId64 " line%s, %" PRId64
                    " token%s, %.2f %% unknown; vocabulary %" PRId64,
                    split[a->split], side_name[s], h->n_lines, RD_S(h->n_lines), h->n_tokens,
                    RD_S(h->n_tokens),
                    h->n_tokens ? 100.0 * (double)h->n_unknown / (double)h->n_tokens : 0.0,
                    rd_vocab_size(t->vocab[s]));
    }
    report_unknown(t, a);
    report_blank(t, a);
    if (t->skipped > 0)
        rd_warn(a->log,
                "%" PRId64 " of %" PRId64
                " pairs skipped: longer than the last bucket (longest source %" PRId64
                ", target %" PRId64 " tokens, start and end included)",
                t->skipped, t->count, t->skipped_longest[0], t->skipped_longest[1]);
}

/* Fails if a line to translate has too many tokens. */
static rd_code check_lengths(const parallel_text *t, int64_t lines_before, const char *path,
                             rd_status *st)
{
    const int64_t most = t->max_infer_tokens + 2; /* start and end token */
    if (!t->no_target || t->side[0].head.longest <= most) return RD_OK;
    for (int64_t i = 0; i < t->side[0].head.n_lines; i++)
        if (rd_side_length(&t->side[0], i) > most)
            return rd_fail(st, RD_EDATA,
                           "%s:%" PRId64 ": a line of %" PRId64 " tokens, but %" PRId64
                           " are the most to translate; split it, or raise max_infer_tokens",
                           strcmp(path, "-") == 0 ? "standard input" : path, lines_before + i + 1,
                           rd_side_length(&t->side[0], i) - 2, t->max_infer_tokens);
    return RD_OK;
}

static rd_code check_text(parallel_text *t, const rd_dataset_args *a, rd_status *st)
{
    const char *const *file = t->c.file[a->split];
    const int64_t n[2] = {t->side[0].head.n_lines,
                          t->no_target ? t->side[0].head.n_lines : t->side[1].head.n_lines};
    if (n[0] != n[1])
        return rd_fail(st, RD_EDATA,
                       "'%s' has %" PRId64 " line%s, '%s' has %" PRId64
                       "; line k of one must be the translation of "
                       "line k of the other",
                       file[0], n[0], RD_S(n[0]), file[1], n[1]);
    if (n[0] == 0 && !a->keep_all)
        return rd_fail(st, RD_EDATA, "'%s' is empty; it needs one sentence a line", file[0]);
    if (n[0] > UINT32_MAX)
        return rd_fail(st, RD_EDATA, "'%s' has more than %" PRIu32 " lines", file[0], UINT32_MAX);
    t->count = n[0];
    count_skipped(t);
    RD_TRY(check_unknown(t, a, st));
    RD_TRY(check_lengths(t, 0, file[0], st));
    if (t->count > 0 && t->n_blank == t->count)
        return rd_fail(st, RD_EDATA,
                       "no pair of '%s' and '%s' has words in both lines: there is nothing to "
                       "train on",
                       file[0], file[1]);
    if (t->count > 0 && t->skipped + t->n_blank == t->count)
        return rd_fail(st, RD_EDATA,
                       "no pair of '%s' fits the buckets: bucket_src ends at %" PRId64
                       ", bucket_tgt at %" PRId64 ", longest source %" PRId64 ", target %" PRId64
                       "; raise the limits",
                       file[0], t->limit[0].at[t->limit[0].n - 1],
                       t->limit[1].at[t->limit[1].n - 1], t->skipped_longest[0],
                       t->skipped_longest[1]);
    snprintf(t->fingerprint, sizeof t->fingerprint,
             "parallel_text %" PRId64 " lines, source %016" PRIx64 ", target %016" PRIx64
             ", vocabularies %" PRId64 " %016" PRIx64 ", %" PRId64 " %016" PRIx64,
             t->count, t->side[0].head.hash, t->side[1].head.hash, rd_vocab_size(t->vocab[0]),
             rd_vocab_hash(t->vocab[0]), rd_vocab_size(t->vocab[1]), rd_vocab_hash(t->vocab[1]));
    if (t->n_blank > 0) {
        const size_t used = strlen(t->fingerprint);
        snprintf(t->fingerprint + used, sizeof t->fingerprint - used, ", %" PRId64 " left out",
                 t->n_blank);
    }
done:
    return st->code;
}

/* ---- the functions of rd_dataset_def ---- */

static void text_close(void *self)
{
    parallel_text *t = self;
    if (!t) return;
    for (int s = 0; s < 2; s++) {
        rd_vocab_free(t->vocab[s]);
        rd_side_release(&t->side[s]);
        free((void *)(uintptr_t)t->limit[s].at);
    }
    free(t);
}

static rd_code text_open(const rd_dataset_args *a, void **self, rd_status *st)
{
    parallel_text *t = calloc(1, sizeof *t);
    *self = NULL;
    if (!t) {
        rd_fail(st, RD_EENV, "out of memory");
    } else if (read_config(t, a, st) == RD_OK) {
        const bool replace = t->c.invalid_utf8 == UTF8_REPLACE;
        if (rd_vocab_new(t->c.src_vocab_file, replace, &t->vocab[0], st) != RD_OK)
            rd_status_prefix(st, "src_vocab_file");
        else if (rd_vocab_new(t->c.tgt_vocab_file, replace, &t->vocab[1], st) != RD_OK)
            rd_status_prefix(st, "tgt_vocab_file");
    }
    RD_TRY(rd_agree(a->comm, st));
    if (!t) /* Never happens: all ranks share the failure. */
        return rd_fail(st, RD_EBUG, "ranks agree without a dataset");
    RD_TRY(parallel_text_read_text(t, a, st));
    (void)check_text(t, a, st);
    RD_TRY(rd_agree(a->comm, st));
    parallel_text_report(t, a);
    memset(&t->c, 0, sizeof t->c); /* its strings belong to the config, which may be freed */
    *self = t;
    return RD_OK;
done:
    text_close(t);
    return st->code;
}

static int64_t text_count(void *self)
{
    return ((const parallel_text *)self)->count;
}
static int text_n_buckets(void *self)
{
    return ((const parallel_text *)self)->n_buckets;
}
static const char *text_fingerprint(void *self)
{
    return ((const parallel_text *)self)->fingerprint;
}

static int64_t text_length(void *self, int64_t i)
{
    const parallel_text *t = self;
    return side_length(t, 0, i) + side_length(t, 1, i);
}

static int64_t text_tokens(void *self, int64_t i)
{
    return side_length(self, 1, i) - 1; /* the start token is no label */
}

static bool text_here(void *self, int64_t i)
{
    const parallel_text *t = self;
    return i % t->side[0].size == t->side[0].rank;
}

/* Warns once if most of what was fed is unknown. */
static void warn_fed(parallel_text *t, int64_t lines_before)
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
            t->vocab_name, t->n_fed_unknown, t->n_fed, h->unknown, lines_before + h->unknown_line);
}

static rd_code text_feed(void *self, const char *text, size_t n, int64_t lines_before,
                         rd_status *st)
{
    parallel_text *t = self;
    rd_lines *l = NULL;
    rd_lines_opts o = t->lines;
    o.lines_before = lines_before;
    rd_side_release(&t->side[0]);
    t->count = 0;
    if (!t->no_target) return rd_fail(st, RD_EBUG, "a dataset with targets is fed");
    RD_TRY(rd_lines_new_mem("standard input", text, n, o, &l, st));
    RD_TRY(rd_side_read(&t->side[0], l, t->vocab[0], 0, 1, false, false, st));
    RD_TRY(check_lengths(t, lines_before, "-", st));
    t->count = t->side[0].head.n_lines;
    warn_fed(t, lines_before);
done:
    rd_lines_free(l);
    return st->code;
}

static rd_code text_fetch(void *self, const int64_t *ids, int64_t n, rd_arena *a, rd_batch *out,
                          rd_status *st)
{
    parallel_text *t = self;
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
                rd_side_ids(&t->side[s], ids[k], data + off[k]);
                continue;
            }
            data[off[k]] = RD_SOS;
            data[off[k] + 1] = RD_EOS;
        }
        out->field[s] = (rd_field){.name = side_name[s], .dtype = RD_I32, .data = data, .off = off};
    }
done:
    return st->code;
}

static void text_spec(void *self, rd_data_spec *out)
{
    const parallel_text *t = self;
    *out = (rd_data_spec){.src_vocab_size = rd_vocab_size(t->vocab[0]),
                          .tgt_vocab_size = rd_vocab_size(t->vocab[1]),
                          .src_vocab_hash = rd_vocab_hash(t->vocab[0]),
                          .tgt_vocab_hash = rd_vocab_hash(t->vocab[1]),
                          .src_vocab = t->vocab[0],
                          .tgt_vocab = t->vocab[1]};
}

static void text_text(void *self, int side, const int32_t *ids, int64_t n, bool specials,
                      rd_strbuf *b)
{
    const parallel_text *t = self;
    const rd_vocab *v = t->vocab[side];
    bool any = false;
    for (int64_t k = 0; k < n; k++) {
        const int32_t id = ids[k];
        if (id == RD_EOS && !specials) break;
        if (id < 0 || id >= rd_vocab_size(v)) continue;
        if (id < RD_N_SPECIAL && (id == RD_UNK ? !t->print_unk : !specials)) continue;
        size_t m;
        const char *w = rd_vocab_word(v, id, &m);
        if (any) rd_strbuf_puts(b, t->delimiter);
        rd_strbuf_add(b, w, m);
        any = true;
    }
}

static const char *text_reference(void *self, int64_t i, size_t *n)
{
    const parallel_text *t = self;
    return t->no_target ? NULL : rd_side_raw(&t->side[1], i, n);
}

RD_DATASET(parallel_text) = {
    .name = "parallel_text",
    .about = "two text files, line by line translations of each other",
    .group = &group,
    .open = text_open,
    .close = text_close,
    .count = text_count,
    .n_buckets = text_n_buckets,
    .bucket = text_bucket,
    .length = text_length,
    .tokens = text_tokens,
    .here = text_here,
    .fetch = text_fetch,
    .spec = text_spec,
    .fingerprint = text_fingerprint,
    .text = text_text,
    .reference = text_reference,
    .blank = text_blank,
    .feed = text_feed,
};
