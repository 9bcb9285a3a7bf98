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
#include "rd/strbuf.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum invalid_utf8 { UTF8_ERROR, UTF8_REPLACE } invalid_utf8;
typedef enum ids_kept { IDS_AUTO, IDS_ALWAYS, IDS_NEVER } ids_kept;

typedef struct text_config {
    const char *src_vocab_file, *tgt_vocab_file;
    rd_paths file[3][2]; /* [rd_split][side] */
    const char *subword, *subword_model, *bpe_glossaries;
    int64_t subword_size, word_min_count, num_words, bpe_vocab_threshold;
    bool shared_vocab;
    rd_ints max_seq_len, bucket[2], bucket_test[2];
    ids_kept ids_in_memory;
    const char *delimiter, *data_location;
    invalid_utf8 invalid_utf8;
    int64_t max_line_bytes, max_infer_tokens;
    double max_unknown;
    bool pad_vocabs_to_eight, bpe_used, eval_bleu, print_unk;
} text_config;

#define T text_config
static const char *const utf8_choices[] = {
    [UTF8_ERROR] = "error", [UTF8_REPLACE] = "replace", NULL};
static const char *const ids_choices[] = {
    [IDS_AUTO] = "auto", [IDS_ALWAYS] = "always", [IDS_NEVER] = "never", NULL};
enum {
    BUCKET_MAX = 65534, /* a larger limit counts as a mistake */
    USUAL_LENGTH = 100, /* max_seq_len where neither it nor the buckets are given */
    USUAL_CHARS = 500,  /* ... for subword char */
    USUAL_BUCKETS = 10
};

static const rd_option options[] = {
    RD_OPT_PATH(T, src_vocab_file, src_vocab_file, NULL,
                "source vocabulary: one word a line, a TAB and what follows it are ignored; or a "
                "vocabulary of Sockeye, Marian or fairseq. Not given: made from the training text"),
    RD_OPT_PATH(T, tgt_vocab_file, tgt_vocab_file, NULL, "target vocabulary; may be the same file"),
    RD_OPT_PATHS(T, source_file, file[RD_SPLIT_TRAIN][0],
                 "source side of the training text: a file, x.gz, x.tar.gz!member, a pattern such "
                 "as part-*.gz or part-{00..11}, or a list of these"),
    RD_OPT_PATHS(T, target_file, file[RD_SPLIT_TRAIN][1],
                 "target side of the training text, with the same number of lines"),
    RD_OPT_PATHS(T, source_file_eval, file[RD_SPLIT_EVAL][0], "source side of the evaluation text"),
    RD_OPT_PATHS(T, target_file_eval, file[RD_SPLIT_EVAL][1], "target side of the evaluation text"),
    RD_OPT_PATHS(T, source_file_test, file[RD_SPLIT_TEST][0],
                 "text to translate; - is standard input"),
    RD_OPT_PATHS(T, target_file_test, file[RD_SPLIT_TEST][1],
                 "its translation, for scores; translating does not need it"),
    RD_OPT_NAME(T, subword, subword, NULL, rd_subword_kinds,
                "how lines become tokens; none: at single blanks. Output is joined again. Default: "
                "none if the vocabularies are given, else byte_bpe"),
    RD_OPT_PATH(T, subword_model, subword_model, NULL,
                "model of subword, such as codes of subword-nmt or tokenizer.json. Not given: "
                "trained on both sides of the training text"),
    RD_OPT_INT(T, subword_size, subword_size, "8000", 1, RD_VOCAB_MOST,
               "size of a trained model: bpe merges, byte_bpe and sentencepiece pieces"),
    RD_OPT_INT(T, bpe_vocab_threshold, bpe_vocab_threshold, "0", 0, 1e15,
               "subword bpe: a piece that occurs less often on its side of the training text is "
               "split further, as with subword-nmt's --vocabulary-threshold. With given "
               "vocabularies: a piece that is not in that of its side. 0: none"),
    RD_OPT_PATH(T, bpe_glossaries, bpe_glossaries, NULL,
                "subword bpe: file with a regular expression in each line; text that one matches "
                "is not split, as with subword-nmt's --glossaries"),
    RD_OPT_BOOL(T, shared_vocab, shared_vocab, "false",
                "one vocabulary for both sides: the counts of both are added before the limits"),
    RD_OPT_INT(T, word_min_count, word_min_count, "1", 1, 1e15,
               "a vocabulary that is made has words that occur at least this often"),
    RD_OPT_INT(T, num_words, num_words, "0", 0, RD_VOCAB_MOST,
               "a vocabulary that is made has at most this number of words; 0: no limit"),
    RD_OPT_INTS(T, max_seq_len, max_seq_len, NULL, 1, BUCKET_MAX - 2,
                "most tokens of source and target in training, start and end not counted; one "
                "number counts for both. Default without bucket_src: [100, 100], for subword char "
                "[500, 500]"),
    RD_OPT_ENUM(T, ids_in_memory, ids_in_memory, "\"auto\"", ids_choices,
                "never: 16 bytes a training pair, and lines are read again when they are used; "
                "plain files only. auto: so if the ids would need a quarter of the memory"),
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
    text_config c;          /* all zero once the dataset is open */
    const char *scheme;     /* of the subword model */
    rd_text_files files[2]; /* of the split */
    char file_name[2][RD_FILES_NAME];
    rd_text_kit kit;
    struct rd_store_bytes *given; /* owned; rank 0: given vocabularies to keep; NULL: none */
    bool own_vocab; /* the vocabularies are not given: the kit has been made of a text */
    rd_side side[2];
    bool no_target, keep_all, drop_blank;
    rd_lines_opts lines;
    rd_log *log;                  /* of rank 0; NULL: none */
    char vocab_name[2][256];      /* path of the vocabulary */
    int64_t n_fed, n_fed_unknown; /* tokens of the texts that were fed; unknown ones */
    bool fed_warned;
    int64_t max_infer_tokens;
    int n_buckets;
    int64_t count, skipped, skipped_longest[2], too_long[2];
    double ratio, ratio_sd; /* target tokens by source tokens, over the pairs that are kept */
    int64_t n_blank; /* number of pairs that are left out of training since a side is blank */
    char delimiter[64], fingerprint[256]; /* the config may be freed before the dataset */
    bool print_unk;
    rd_ints limit[2];      /* [side] length limits of the buckets; n 0: no limit */
    int64_t max_length[2]; /* most tokens in training, start and end counted; 0: no limit */
} parallel_text;

static const char *const file_key[3][2] = {{"source_file", "target_file"},
                                           {"source_file_eval", "target_file_eval"},
                                           {"source_file_test", "target_file_test"}};
static const char *const side_name[2] = {"source", "target"};
static const char *const bucket_key[2][2] = {{"bucket_src", "bucket_src_test"},
                                             {"bucket_tgt", "bucket_tgt_test"}};

/* ---- config ---- */

/* Makes the usual buckets: ten of the same width, up to the most tokens of a side. */
static rd_code usual_limits(parallel_text *t, int s, rd_status *st)
{
    const int64_t most = t->max_length[s] - 2;
    int64_t *at = malloc(USUAL_BUCKETS * sizeof *at);
    int n = 0;
    if (!at) return rd_fail(st, RD_EENV, "out of memory");
    for (int k = 1; k <= USUAL_BUCKETS; k++) {
        const int64_t limit = (k * most + USUAL_BUCKETS - 1) / USUAL_BUCKETS + 2;
        if (n == 0 || limit > at[n - 1]) at[n++] = limit;
    }
    t->limit[s] = (rd_ints){n, at};
    if (n > t->n_buckets) t->n_buckets = n;
    return RD_OK;
}

static rd_code given_limits(parallel_text *t, const rd_dataset_args *a, int s, const rd_ints *from,
                            const char *key, rd_status *st)
{
    int64_t *at = malloc((size_t)from->n * sizeof *at);
    if (!at) return rd_fail(st, RD_EENV, "out of memory");
    t->limit[s] = (rd_ints){from->n, at};
    for (int k = 0; k < from->n; k++) {
        if (k > 0 && from->at[k] <= from->at[k - 1])
            return rd_fail(st, RD_EUSAGE, "%s: '%s' must ascend, but %" PRId64 " follows %" PRId64,
                           rd_config_where(a->config, key), key, from->at[k], from->at[k - 1]);
        at[k] = from->at[k];
    }
    if (from->n > t->n_buckets) t->n_buckets = from->n;
    return RD_OK;
}

/* Reads the limits of lengths: those of the buckets, and in training max_seq_len. */
static rd_code read_limits(parallel_text *t, const rd_dataset_args *a, rd_status *st)
{
    const rd_ints *most = &t->c.max_seq_len;
    if (most->n > 2)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'max_seq_len' has %d numbers; one for the source and one for the "
                       "target, or one for both",
                       rd_config_where(a->config, "max_seq_len"), most->n);
    if ((t->c.bucket[0].n == 0) != (t->c.bucket[1].n == 0) && !a->keep_all)
        return rd_fail(st, RD_EUSAGE,
                       "missing key '%s': the length limits of the buckets, for example [50]; "
                       "add it to the config",
                       bucket_key[t->c.bucket[0].n > 0][0]);
    for (int s = 0; s < 2; s++) {
        const bool test = a->split != RD_SPLIT_TRAIN && t->c.bucket_test[s].n > 0;
        const rd_ints *from = test ? &t->c.bucket_test[s] : &t->c.bucket[s];
        if (most->n > 0 && !a->keep_all) t->max_length[s] = most->at[most->n == 2 ? s : 0] + 2;
        if (from->n > 0) {
            RD_TRY(given_limits(t, a, s, from, bucket_key[s][test], st));
            continue;
        }
        if (a->keep_all) continue;
        if (most->n == 0)
            t->max_length[s] = (strcmp(t->scheme, "char") == 0 ? USUAL_CHARS : USUAL_LENGTH) + 2;
        RD_TRY(usual_limits(t, s, st));
    }
    if (t->n_buckets == 0) t->n_buckets = 1;
done:
    return st->code;
}

static const char *const limit_key[2] = {"bpe_vocab_threshold", "bpe_glossaries"};

/* Reads which vocabularies are given, and how lines become tokens. */
static rd_code read_vocab_keys(parallel_text *t, const rd_dataset_args *a, rd_status *st)
{
    text_config *c = &t->c;
    const char **file[2] = {&c->src_vocab_file, &c->tgt_vocab_file};
    const bool given[2] = {*file[0] != NULL, *file[1] != NULL};
    for (int s = 0; s < 2; s++)
        if (given[s] && !(*file[s])[0])
            return rd_fail(st, RD_EUSAGE,
                           "empty key '%s_vocab_file': the %s vocabulary; give it, or leave the "
                           "key out, and it is made from the training text",
                           s == 0 ? "src" : "tgt", side_name[s]);
    for (int s = 0; s < 2; s++)
        if (!given[s] && given[1 - s] && c->shared_vocab) *file[s] = *file[1 - s];
    t->own_vocab = !*file[0] && !*file[1];
    t->scheme = c->subword ? c->subword : t->own_vocab ? "byte_bpe" : "none";
    for (int s = 0; s < 2; s++) {
        if (!*file[s] && !t->own_vocab)
            return rd_fail(st, RD_EUSAGE,
                           "missing key '%s_vocab_file': the %s vocabulary, since the other one is "
                           "given; give both, or neither, and they are made from the training text",
                           s == 0 ? "src" : "tgt", side_name[s]);
        if (!t->own_vocab) snprintf(t->vocab_name[s], sizeof t->vocab_name[s], "%s", *file[s]);
    }
    if (!t->own_vocab && rd_subword_needs_model(t->scheme) && !c->subword_model)
        return rd_fail(st, RD_EUSAGE,
                       "missing key 'subword_model': the model of subword %s, which the given "
                       "vocabularies belong to",
                       t->scheme);
    for (int k = 0; k < 2; k++)
        if ((k ? c->bpe_glossaries != NULL : c->bpe_vocab_threshold > 0) &&
            strcmp(t->scheme, "bpe") != 0)
            return rd_fail(st, RD_EUSAGE, "%s: '%s' works with subword bpe, not %s",
                           rd_config_where(a->config, limit_key[k]), limit_key[k], t->scheme);
    if (c->subword_model && !rd_subword_needs_model(t->scheme) && strcmp(t->scheme, "char") != 0)
        return rd_fail(st, RD_EUSAGE, "%s: 'subword_model' with subword %s, which has no model",
                       rd_config_where(a->config, "subword_model"), t->scheme);
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
    RD_TRY(read_vocab_keys(t, a, st));
    const int n_sides = a->mode == RD_MODE_EXPORT ? 0 : t->no_target ? 1 : 2;
    for (int s = 0; s < n_sides; s++) {
        const char *key = file_key[a->split][s];
        const rd_paths *f = &t->c.file[a->split][s];
        if (f->n == 0)
            return rd_fail(st, RD_EUSAGE,
                           "%s key '%s': the text of the %s side; give it in the config",
                           rd_config_has(a->config, key) ? "empty" : "missing", key, side_name[s]);
        for (int i = 0; i < f->n; i++)
            if (strcmp(f->at[i], "-") == 0 && !(t->no_target && s == 0 && f->n == 1))
                return rd_fail(st, RD_EUSAGE,
                               "%s: '%s' cannot be standard input; only the text to translate can",
                               rd_config_where(a->config, key), key);
        if (rd_text_files_new(f, &t->files[s], st) != RD_OK) {
            rd_status_no_file(st, rd_text_fetcher);
            rd_status_prefix(st, "%s", key);
        }
        RD_TRY(st->code);
        (void)rd_text_files_name(&t->files[s], t->file_name[s]);
    }
    RD_TRY(read_limits(t, a, st));
done:
    return st->code;
}

/* ---- vocabularies ---- */

static rd_text_rules text_rules(const parallel_text *t)
{
    return (rd_text_rules){.subword = t->scheme,
                           .subword_model = t->c.subword_model,
                           .subword_size = t->c.subword_size,
                           .shared_vocab = t->c.shared_vocab,
                           .word_min_count = t->c.word_min_count,
                           .num_words = t->c.num_words,
                           .threshold = t->c.bpe_vocab_threshold,
                           .glossaries = t->c.bpe_glossaries};
}

/* Opens the given vocabularies, and the subword model if there is one. Collective. */
static rd_code open_given(parallel_text *t, const rd_dataset_args *a, rd_status *st)
{
    const bool trains = a->mode == RD_MODE_TRAIN || a->mode == RD_MODE_TRAIN_EVAL;
    const rd_text_given_args g = {
        .comm = a->comm,
        .log = t->log,
        .logdir = a->logdir && a->logdir[0] ? a->logdir : NULL,
        .vocab = {t->c.src_vocab_file, t->c.tgt_vocab_file},
        .rules = text_rules(t),
        .replace = t->c.invalid_utf8 == UTF8_REPLACE,
        .kept_first = a->config_is_record && !trains &&
                      strcmp(rd_config_where(a->config, "src_vocab_file"), "--set") != 0 &&
                      strcmp(rd_config_where(a->config, "tgt_vocab_file"), "--set") != 0 &&
                      strcmp(rd_config_where(a->config, "subword_model"), "--set") != 0,
        .remember = trains && a->split == RD_SPLIT_TRAIN};
    RD_TRY(rd_text_given_open(&g, &t->kit, &t->given, st));
    for (int s = 0; s < 2 && t->kit.kept; s++)
        snprintf(t->vocab_name[s], sizeof t->vocab_name[s], "%.200s/text/%s", a->logdir,
                 t->kit.file[s]);
done:
    return st->code;
}

/* Makes vocabularies and subword model, or takes those of the log folder. Collective. */
static rd_code open_kit(parallel_text *t, const rd_dataset_args *a, bool anew, rd_status *st)
{
    const bool trains = a->mode == RD_MODE_TRAIN || a->mode == RD_MODE_TRAIN_EVAL ||
                        a->mode == RD_MODE_PREPARE;
    const bool makes = a->split == RD_SPLIT_TRAIN && (trains || a->mode == RD_MODE_BENCH);
    const rd_text_kit_args k = {.comm = a->comm,
                                .log = t->log,
                                .logdir = a->logdir && a->logdir[0] ? a->logdir : NULL,
                                .weights = a->weights,
                                .makes = makes,
                                .saves = makes && trains && a->logdir && a->logdir[0],
                                .anew = anew,
                                .compares = a->mode == RD_MODE_PREPARE,
                                .rules = text_rules(t),
                                .files = t->files,
                                .lines = t->lines};
    rd_text_kit_release(&t->kit);
    RD_TRY(rd_text_kit_open(&k, &t->kit, st));
    for (int s = 0; s < 2; s++)
        snprintf(t->vocab_name[s], sizeof t->vocab_name[s], "%.200s/text/%s",
                 a->logdir ? a->logdir : "", t->kit.file[s]);
done:
    return st->code;
}

/* ---- reading ---- */

/* Decides whether lines are read again when they are used, in place of keeping ids. */
static rd_code decide_again(const parallel_text *t, const rd_dataset_args *a, bool *again,
                            rd_status *st)
{
    *again = false;
    if (t->c.ids_in_memory == IDS_ALWAYS || a->shard || a->split != RD_SPLIT_TRAIN || a->keep_all)
        return RD_OK;
    int64_t bytes = 0;
    for (int s = 0; s < 2; s++) {
        const int64_t n = rd_text_files_bytes(&t->files[s]);
        if (n < 0 && t->c.ids_in_memory == IDS_NEVER)
            return rd_fail(st, RD_EUSAGE,
                           "%s: 'ids_in_memory' never, but %s is no plain file; unpack it, or "
                           "leave the key out",
                           rd_config_where(a->config, "ids_in_memory"), t->file_name[s]);
        if (n < 0) return RD_OK;
        bytes += n;
    }
    /* A token has some four bytes of text, and its id two. */
    const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    *again = t->c.ids_in_memory == IDS_NEVER || (double)bytes / 2 > memory / 4;
    return RD_OK;
}

static rd_side_args side_args(const parallel_text *t, int s)
{
    return (rd_side_args){
        .vocab = t->kit.vocab[s], .subword = rd_text_kit_subword(&t->kit, s), .size = 1};
}

static rd_code read_side(parallel_text *t, const rd_dataset_args *a, int s, bool again,
                         const char *in, size_t n_in, rd_status *st)
{
    static const char *const what[] = {"source text read", "target text read"};
    rd_lines *l = NULL;
    rd_progress p;
    rd_lines_opts o = t->lines;
    rd_side_args sa = side_args(t, s);
    o.any_kind = t->no_target; /* the text to translate */
    rd_progress_start(&p, t->log, what[s], in ? (int64_t)n_in : rd_text_files_disk(&t->files[s]));
    sa.progress = &p;
    sa.again = again;
    sa.keep_raw = s == 1 && a->keep_all && !a->shard;
    sa.shared = !a->shard && rd_local_size_of(a->comm) > 1 && rd_local_rank_of(a->comm) == 0;
    if (a->shard) {
        sa.rank = rd_rank_of(a->comm);
        sa.size = rd_size_of(a->comm);
    }
    if (in)
        RD_TRY(rd_lines_new_mem("standard input", in, n_in, o, &l, st));
    else if (rd_lines_new_list((const char *const *)t->files[s].at, t->files[s].n, o, &l, st) !=
             RD_OK) {
        if (!t->no_target) rd_status_no_file(st, rd_text_fetcher);
        rd_status_prefix(st, "%s", file_key[a->split][s]);
    }
    RD_TRY(st->code);
    RD_TRY(rd_side_read(&t->side[s], l, &sa, st));
done:
    rd_progress_end(&p);
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

/* Opens the files once more on every rank, if lines are read again. */
static rd_code open_again(parallel_text *t, rd_status *st)
{
    for (int s = 0; s < 2; s++) {
        const rd_side_args sa = side_args(t, s);
        if (t->side[s].head.again)
            RD_TRY(rd_side_open(&t->side[s], &t->files[s], &t->lines, &sa, st));
    }
done:
    return st->code;
}

/* Local rank 0 reads, the others map its memory; a rank that cannot map it reads, too.
 * Collective. */
static rd_code parallel_text_read_text(parallel_text *t, const rd_dataset_args *a, rd_status *st)
{
    char *in = NULL;
    size_t n_in = 0;
    bool again = false;
    const int n_sides = t->no_target ? 1 : 2;
    const bool all_read = a->shard || rd_local_rank_of(a->comm) == 0;
    if (strcmp(t->files[0].at[0], "-") == 0) RD_TRY(read_stdin(a, &in, &n_in, st));
    if (all_read) (void)decide_again(t, a, &again, st);
    for (int s = 0; s < n_sides && all_read && st->code == RD_OK; s++)
        (void)read_side(t, a, s, again, s == 0 ? in : NULL, n_in, st);
    RD_TRY(rd_agree(a->comm, st));
    for (int s = 0; s < n_sides && !a->shard && rd_local_size_of(a->comm) > 1; s++) {
        bool have;
        RD_TRY(rd_comm_local_bcast(a->comm, &t->side[s].head, sizeof t->side[s].head, 0, st));
        RD_TRY(rd_block_share(a->comm, t->side[s].block, RD_SIDE_BLOCKS, &have, st));
        t->side[s].size = 1;
        if (!have) (void)read_side(t, a, s, t->side[s].head.again, s == 0 ? in : NULL, n_in, st);
    }
    if (st->code == RD_OK) (void)open_again(t, st);
    RD_TRY(rd_agree(a->comm, st));
done:
    free(in);
    return st->code;
}

/* Reads the text, and makes vocabularies anew that were made of another text. Collective. */
static rd_code read_with_kit(parallel_text *t, const rd_dataset_args *a, rd_status *st)
{
    RD_TRY(parallel_text_read_text(t, a, st));
    if (!t->own_vocab || a->split != RD_SPLIT_TRAIN || !t->kit.kept || a->mode == RD_MODE_BENCH)
        return RD_OK;
    const bool same = t->kit.text_hash[0] == t->side[0].head.hash &&
                      t->kit.text_hash[1] == t->side[1].head.hash;
    if (same) {
        if (t->log) rd_info(t->log, "vocabularies of %s/text, made of this text", a->logdir);
        return RD_OK;
    }
    if (t->kit.is_tied) {
        if (t->log)
            rd_info(t->log, "vocabularies of %s/text, made of another text: weights depend on them",
                    a->logdir);
        return RD_OK;
    }
    if (t->log) rd_info(t->log, "%s/text was made of another text: it is made anew", a->logdir);
    for (int s = 0; s < 2; s++) rd_side_release(&t->side[s]);
    RD_TRY(open_kit(t, a, true, st));
    RD_TRY(parallel_text_read_text(t, a, st));
done:
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

/* Returns whether side s of the pair has more tokens than training takes. */
static bool is_too_long(const parallel_text *t, int s, int64_t i)
{
    return t->max_length[s] > 0 && side_length(t, s, i) > t->max_length[s];
}

static int text_bucket(void *self, int64_t i)
{
    const parallel_text *t = self;
    int b = 0;
    if (is_dropped(t, i)) return -1;
    for (int s = 0; s < 2; s++) {
        if (is_too_long(t, s, i)) return -1;
        if (t->limit[s].n == 0) continue; /* no limit: bucket 0 */
        const int k = bucket_of(&t->limit[s], side_length(t, s, i));
        if (k < 0) return t->keep_all ? t->n_buckets - 1 : -1;
        if (k > b) b = k;
    }
    return b;
}

static void count_skipped(parallel_text *t)
{
    double sum = 0.0, squares = 0.0;
    int64_t kept = 0;
    if (t->keep_all) return;
    for (int64_t i = 0; i < t->count; i++) {
        if (text_bucket(t, i) >= 0) {
            const double ratio = (double)(side_length(t, 1, i) - 2) /
                                 (double)(side_length(t, 0, i) - 2);
            sum += ratio;
            squares += ratio * ratio;
            kept++;
            continue;
        }
        if (is_dropped(t, i)) {
            t->n_blank++;
            continue;
        }
        t->skipped++;
        for (int s = 0; s < 2; s++) {
            const int64_t n = side_length(t, s, i);
            t->too_long[s] += is_too_long(t, s, i);
            if (n > t->skipped_longest[s]) t->skipped_longest[s] = n;
        }
    }
    if (kept == 0) return;
    t->ratio = sum / (double)kept;
    t->ratio_sd = sqrt(fmax(0.0, squares / (double)kept - t->ratio * t->ratio));
}

/* Names the first words that a vocabulary has twice, with their lines. */
static void report_repeats(const parallel_text *t, const rd_dataset_args *a, int s,
                           const char *path)
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
static const char *line_name(const parallel_text *t, int s, int64_t line, char out[256])
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

static void report_blank(const parallel_text *t, const rd_dataset_args *a)
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
static void describe_unknown(const parallel_text *t, int s, double share, char out[UNKNOWN_BYTES])
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
static rd_code check_unknown(const parallel_text *t, const rd_dataset_args *a, rd_status *st)
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

static void report_unknown(const parallel_text *t, const rd_dataset_args *a)
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

static void report_skipped(const parallel_text *t, const rd_dataset_args *a)
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

/* Does the scheme keep white space inside its pieces? Else a blank alone separates words. */
static bool is_text(const parallel_text *t)
{
    const char *kind = t->kit.subword ? rd_subword_kind(t->kit.subword) : "none";
    return strcmp(kind, "none") != 0 && strcmp(kind, "bpe") != 0;
}

static void parallel_text_report(const parallel_text *t, const rd_dataset_args *a)
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
                    split[a->split], side_name[s], h->n_lines, RD_S(h->n_lines), h->n_tokens,
                    RD_S(h->n_tokens), rd_size_of(a->comm), RD_S(rd_size_of(a->comm)),
                    rd_vocab_size(t->kit.vocab[s]));
        else
            rd_info(a->log,
                    "%s data, %s: %" PRId64 " line%s, %" PRId64
                    " token%s, %.2f %% unknown; vocabulary %" PRId64,
                    split[a->split], side_name[s], h->n_lines, RD_S(h->n_lines), h->n_tokens,
                    RD_S(h->n_tokens),
                    h->n_tokens ? 100.0 * (double)h->n_unknown / (double)h->n_tokens : 0.0,
                    rd_vocab_size(t->kit.vocab[s]));
    }
    report_unknown(t, a);
    report_blank(t, a);
    report_skipped(t, a);
}

/* Fails if a line to translate has too many tokens. */
static rd_code check_lengths(const parallel_text *t, int64_t lines_before, rd_status *st)
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
                       "%s:%" PRId64 ": a line of %" PRId64 " tokens, but %" PRId64
                       " are the most to translate; split it, or raise max_infer_tokens",
                       fed ? "standard input" : t->files[0].at[file], lines_before + line,
                       rd_side_length(side, i) - 2, t->max_infer_tokens);
    }
    return RD_OK;
}

static void parallel_text_fingerprint(parallel_text *t)
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
    if (t->kit.subword) {
        const size_t used = strlen(t->fingerprint);
        snprintf(t->fingerprint + used, sizeof t->fingerprint - used, ", subwords %016" PRIx64,
                 rd_text_kit_subword_hash(&t->kit));
    }
}

static rd_code check_text(parallel_text *t, const rd_dataset_args *a, rd_status *st)
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
    count_skipped(t);
    RD_TRY(check_unknown(t, a, st));
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
    parallel_text_fingerprint(t);
done:
    return st->code;
}

/* ---- the functions of rd_dataset_def ---- */

static void text_close(void *self)
{
    parallel_text *t = self;
    if (!t) return;
    rd_text_kit_release(&t->kit);
    rd_text_given_free(t->given);
    for (int s = 0; s < 2; s++) {
        rd_side_release(&t->side[s]);
        rd_text_files_release(&t->files[s]);
        free((void *)(uintptr_t)t->limit[s].at);
    }
    free(t);
}

static rd_code text_open(const rd_dataset_args *a, void **self, rd_status *st)
{
    parallel_text *t = calloc(1, sizeof *t);
    *self = NULL;
    if (!t)
        rd_fail(st, RD_EENV, "out of memory");
    else
        (void)read_config(t, a, st);
    RD_TRY(rd_agree(a->comm, st));
    if (!t) /* Never happens: all ranks share the failure. */
        return rd_fail(st, RD_EBUG, "ranks agree without a dataset");
    if (t->own_vocab)
        RD_TRY(open_kit(t, a, false, st));
    else
        RD_TRY(open_given(t, a, st));
    if (a->mode == RD_MODE_PREPARE || a->mode == RD_MODE_EXPORT) {
        /* the kit is all that is wanted */
        parallel_text_fingerprint(t);
        memset(&t->c, 0, sizeof t->c);
        *self = t;
        return RD_OK;
    }
    RD_TRY(read_with_kit(t, a, st));
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
            t->vocab_name[0], t->n_fed_unknown, t->n_fed, h->unknown,
            lines_before + h->unknown_line);
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
    const rd_side_args sa = side_args(t, 0);
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
                RD_TRY(rd_side_ids(&t->side[s], ids[k], data + off[k], st));
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
static void text_words(const parallel_text *t, int side, const int32_t *ids, int64_t n,
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
    const parallel_text *t = self;
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
    const parallel_text *t = self;
    return t->given ? rd_text_given_keep(t->given, logdir, st) : RD_OK;
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
    .prepares = true,
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
    .keep = text_keep,
};
