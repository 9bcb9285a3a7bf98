/* parallel_keys.c -- the keys of a parallel text, and what they select: files, vocabularies, rules
 * for lines. */
#include "parallel_impl.h"

#define T rd_parallel_config
static const char *const utf8_choices[] = {
    [RD_UTF8_ERROR] = "error", [RD_UTF8_REPLACE] = "replace", NULL};
static const char *const ids_choices[] = {
    [RD_IDS_AUTO] = "auto", [RD_IDS_ALWAYS] = "always", [RD_IDS_NEVER] = "never", NULL};
static const char *const bucketings[] = {[RD_BUCKETS_WINDOWS] = "windows",
                                         [RD_BUCKETS_SOCKEYE] = "sockeye",
                                         [RD_BUCKETS_SOCKEYE_3_WORD] = "sockeye_3_word",
                                         [RD_BUCKETS_SOCKEYE_3_MAX_WORD] = "sockeye_3_max_word",
                                         NULL};

static const rd_option options[] = {
    RD_OPT_PATH(T, src_vocab_file, src_vocab_file, NULL,
                "source vocabulary: one word a line, a TAB ends it; or one of Sockeye, Marian or "
                "fairseq. Not given: made from the training text"),
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
               "subword bpe: a piece that is rarer on its side of the training text is split "
               "further, as with subword-nmt's --vocabulary-threshold. With given "
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
    RD_OPT_INTS(T, max_seq_len, max_seq_len, NULL, 1, RD_BUCKET_MOST - 2,
                "most tokens of source and target in training, start and end not counted; one "
                "number counts for both. Default without bucket_src: [100, 100], for subword char "
                "[500, 500]"),
    RD_OPT_ENUM(T, ids_in_memory, ids_in_memory, "\"auto\"", ids_choices,
                "never: 16 bytes a training pair, and lines are read again when they are used; "
                "plain files only. auto: so if the ids would need a quarter of the memory"),
    RD_OPT_INTS(T, bucket_src, bucket[0], NULL, 3, RD_BUCKET_MOST,
                "source length limits of the buckets in tokens, ascending. Start and end token "
                "count"),
    RD_OPT_INTS(T, bucket_tgt, bucket[1], NULL, 3, RD_BUCKET_MOST,
                "target length limits of the buckets in tokens, ascending"),
    RD_OPT_INTS(T, bucket_src_test, bucket_test[0], NULL, 3, RD_BUCKET_MOST,
                "replaces bucket_src outside training, where nothing is skipped"),
    RD_OPT_INTS(T, bucket_tgt_test, bucket_test[1], NULL, 3, RD_BUCKET_MOST,
                "replaces bucket_tgt outside training"),
    RD_OPT_ENUM(T, bucketing, bucketing, "\"windows\"", bucketings,
                "what a batch of batch_tokens has. windows: pairs of similar length; else: pairs "
                "of a bucket of Sockeye 1 and 2, or 3"),
    RD_OPT_INT(T, bucket_width, bucket_width, NULL, 1, RD_BUCKET_MOST,
               "of Sockeye's buckets. Default: 10, of sockeye_3 8", RD_GIVEN(T, has_bucket_width)),
    RD_OPT_BOOL(T, bucket_scaling, bucket_scaling, NULL,
                "the buckets of the shorter side are narrower, by the mean length ratio. Default: "
                "true with sockeye",
                RD_GIVEN(T, has_bucket_scaling)),
    RD_OPT_INT(T, bucket_multiple, bucket_multiple, "1", 1, 100000,
               "Sockeye's batches have a multiple of this number of pairs"),
    RD_OPT_STRING(T, delimiter, delimiter, "\" \"",
                  "joins the tokens of the output. Input is split at single spaces"),
    RD_OPT_BOOL(T, pad_vocabs_to_eight, pad_vocabs_to_eight, "false",
                "rounds both vocabulary sizes up to a multiple of 8"),
    RD_OPT_BOOL(T, bpe_used, bpe_used, "false", "removes \"@@ \" before scoring"),
    RD_OPT_BOOL(T, eval_bleu, eval_bleu, "true",
                "evaluation decodes and scores. false: the loss alone"),
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
    RD_OPT_INT(T, max_infer_tokens, max_infer_tokens, "4096", 1, RD_BUCKET_MOST,
               "most tokens of a line to translate, else an error: time grows with their square"),
    RD_OPT_BOOL(T, print_unk, print_unk, "false",
                "writes <UNK> for unknown words. false: leaves them out"),
    RD_OPT_END};
#undef T

const rd_option_group rd_group_parallel_text = {
    "parallel_text", "two text files, line by line translations of each other", options,
    sizeof(rd_parallel_config)};

const char *const rd_parallel_file_key[3][2] = {{"source_file", "target_file"},
                                                {"source_file_eval", "target_file_eval"},
                                                {"source_file_test", "target_file_test"}};
const char *const rd_parallel_side[2] = {"source", "target"};

static const char *const limit_key[2] = {"bpe_vocab_threshold", "bpe_glossaries"};

/* Reads which vocabularies are given, and how lines become tokens. */
static rd_code read_vocab_keys(rd_parallel *t, const rd_dataset_args *a, rd_status *st)
{
    rd_parallel_config *c = &t->c;
    const char **file[2] = {&c->src_vocab_file, &c->tgt_vocab_file};
    const bool given[2] = {*file[0] != NULL, *file[1] != NULL};
    for (int s = 0; s < 2; s++)
        if (given[s] && !(*file[s])[0])
            return rd_fail(st, RD_EUSAGE,
                           "empty key '%s_vocab_file': the %s vocabulary; give it, or leave the "
                           "key out, and it is made from the training text",
                           s == 0 ? "src" : "tgt", rd_parallel_side[s]);
    for (int s = 0; s < 2; s++)
        if (!given[s] && given[1 - s] && c->shared_vocab) *file[s] = *file[1 - s];
    t->own_vocab = !*file[0] && !*file[1];
    t->scheme = c->subword ? c->subword : t->own_vocab ? "byte_bpe" : "none";
    for (int s = 0; s < 2; s++) {
        if (!*file[s] && !t->own_vocab)
            return rd_fail(st, RD_EUSAGE,
                           "missing key '%s_vocab_file': the %s vocabulary, since the other one is "
                           "given; give both, or neither, and they are made from the training text",
                           s == 0 ? "src" : "tgt", rd_parallel_side[s]);
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

/* Looks for the evaluation text before a long training text is read and made into vocabularies. */
static rd_code check_eval_files(const rd_parallel *t, const rd_dataset_args *a, rd_status *st)
{
    if (a->split != RD_SPLIT_TRAIN || a->mode != RD_MODE_TRAIN_EVAL) return RD_OK;
    for (int s = 0; s < 2; s++) {
        if (rd_text_files_exist(&t->files[s], st) == RD_OK) continue;
        rd_status_no_file(st, rd_text_fetcher);
        rd_status_prefix(st, "%s", rd_parallel_named(a, s));
        return st->code;
    }
    for (int s = 0; s < 2; s++) {
        rd_text_files f = {0};
        if (rd_text_files_new(&t->c.file[RD_SPLIT_EVAL][s], &f, st) != RD_OK ||
            rd_text_files_exist(&f, st) != RD_OK) {
            rd_status_no_file(st, rd_text_fetcher);
            rd_status_prefix(st, "%s", rd_parallel_file_key[RD_SPLIT_EVAL][s]);
        }
        rd_text_files_release(&f);
        RD_TRY(st->code);
    }
done:
    return st->code;
}

const char *rd_parallel_named(const rd_dataset_args *a, int side)
{
    const char *key = rd_parallel_file_key[a->split][side];
    return strcmp(rd_config_where(a->config, key), "--input") == 0 ? "--input" : key;
}

rd_code rd_parallel_config_read(rd_parallel *t, const rd_dataset_args *a, rd_status *st)
{
    RD_TRY(rd_config_read(a->config, &rd_group_parallel_text, a->mode, &t->c, st));
    t->keep_all = a->keep_all;
    t->no_target = a->mode == RD_MODE_INFER;
    t->drop_blank = a->split == RD_SPLIT_TRAIN && !a->keep_all;
    t->lines = (rd_lines_opts){.replace = t->c.invalid_utf8 == RD_UTF8_REPLACE,
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
        const char *key = rd_parallel_file_key[a->split][s];
        const rd_paths *f = &t->c.file[a->split][s];
        if (f->n == 0)
            return rd_fail(st, RD_EUSAGE,
                           "%s key '%s': the text of the %s side; give it in the config",
                           rd_config_has(a->config, key) ? "empty" : "missing", key,
                           rd_parallel_side[s]);
        for (int i = 0; i < f->n; i++)
            if (strcmp(f->at[i], "-") == 0 && !(t->no_target && s == 0 && f->n == 1))
                return rd_fail(st, RD_EUSAGE,
                               "%s: '%s' cannot be standard input; only the text to translate can",
                               rd_config_where(a->config, key), key);
        if (rd_text_files_new(f, &t->files[s], st) != RD_OK) {
            if (!t->no_target) rd_status_no_file(st, rd_text_fetcher);
            rd_status_prefix(st, "%s", rd_parallel_named(a, s));
        }
        RD_TRY(st->code);
        (void)rd_text_files_name(&t->files[s], t->file_name[s]);
    }
    RD_TRY(check_eval_files(t, a, st));
    RD_TRY(rd_parallel_limits(t, a, st));
done:
    return st->code;
}
