/* lm_keys.c -- the keys of texts for language models, and what they select: files, lengths, rules
 * for documents. */
#include "lm_impl.h"
#include <inttypes.h>
#include <stdio.h>

#define T rd_lm_config
static const char *const units[] = {
    [RD_DOC_FILE] = "file", [RD_DOC_BLANK_LINE] = "blank_line", [RD_DOC_LINE] = "line", NULL};
static const char *const forms[] = {
    [RD_DOC_AUTO] = "auto", [RD_DOC_TEXT] = "text", [RD_DOC_JSON] = "jsonl", NULL};
static const char *const caches[] = {
    [RD_TOKENS_AUTO] = "auto", [RD_TOKENS_MEMORY] = "memory", [RD_TOKENS_FILE] = "file", NULL};
static const char *const utf8_choices[] = {
    [RD_UTF8_ERROR] = "error", [RD_UTF8_REPLACE] = "replace", NULL};
enum { LONGEST = 1 << 20 };

static const rd_option options[] = {
    RD_OPT_PATHS(T, source_file, file[RD_SPLIT_TRAIN],
                 "training text: files, patterns, archives as for parallel_text. Names with "
                 ".jsonl: JSON lines; .bin: tokens"),
    RD_OPT_PATHS(T, source_file_eval, file[RD_SPLIT_EVAL],
                 "evaluation text; .bin: tokens; multiple choice of llm.c or HellaSwag (.jsonl)"),
    RD_OPT_PATHS(T, source_file_test, file[RD_SPLIT_TEST],
                 "prompts, one a line; - is standard input"),
    RD_OPT_ENUM(T, input_format, input_format, "\"auto\"", forms,
                "prompts: lines of text, or JSON lines. auto: by the name; of - by its first line"),
    RD_OPT_NAME(T, subword, subword, NULL, rd_subword_kinds,
                "how text becomes tokens: byte_bpe (default), char or sentencepiece"),
    RD_OPT_PATH(T, subword_model, subword_model, NULL,
                "tokenizer, such as tokenizer.json or meta.pkl. Not given: it is trained"),
    RD_OPT_INT(T, subword_size, subword_size, "8000", 1, RD_VOCAB_MOST,
               "number of tokens of a trained tokenizer"),
    RD_OPT_ENUM(T, document, document, "\"file\"", units,
                "a document of plain text: the file, a block between blank lines, a line"),
    RD_OPT_INT(T, seq_len, seq_len, NULL, 1, LONGEST,
               "number of tokens of a sample. Default: max_len of the model",
               RD_GIVEN(T, has_seq_len)),
    RD_OPT_INT(T, max_len, max_len, "1024", 1, LONGEST, "most tokens of a sequence of the model"),
    RD_OPT_INT(T, eval_stride, eval_stride, "0", 0, LONGEST,
               "evaluation: windows begin this number of tokens after each other, and score what "
               "none before has; 0: seq_len"),
    RD_OPT_INT(T, vocab_size, vocab_size, "0", 0, RD_VOCAB_MOST,
               "number of tokens of .bin files without subword_model. 0: the meta.pkl beside them"),
    RD_OPT_INT(T, end_id, end_id, NULL, 0, RD_VOCAB_MOST, "their token that ends a document",
               RD_GIVEN(T, has_end_id)),
    RD_OPT_ENUM(T, token_cache, token_cache, "\"auto\"", caches,
                "where tokens are kept. file: in the log folder, for later runs, too; auto: so if "
                "they need a quarter of the memory"),
    RD_OPT_PATH(T, data_location, data_location, NULL,
                "folder that replaces [..._DATA_LOCATION] in file names"),
    RD_OPT_ENUM(T, invalid_utf8, invalid_utf8, "\"error\"", utf8_choices, "as for parallel_text"),
    RD_OPT_INT(T, max_line_bytes, max_line_bytes, "1048576", 1, 1 << 30,
               "a line with more bytes is an error"),
    RD_OPT_END};
#undef T

const rd_option_group rd_group_lm_text = {"lm_text", "texts for language models", options,
                                          sizeof(rd_lm_config)};

static const char *const file_key[3] = {"source_file", "source_file_eval", "source_file_test"};

static rd_code lm_files(const rd_lm_config *c, const rd_dataset_args *a, rd_split split,
                        rd_text_files *out, rd_status *st)
{
    const rd_paths *f = &c->file[split];
    if (f->n == 0)
        return rd_fail(st, RD_EUSAGE, "%s key '%s': the %s; give it in the config",
                       rd_config_has(a->config, file_key[split]) ? "empty" : "missing",
                       file_key[split],
                       split == RD_SPLIT_TEST ? "prompts to continue" : "text of the model");
    for (int i = 0; i < f->n; i++) {
        if (!rd_config_placeholder(f->at[i])) continue;
        rd_fail(st, RD_EDATA,
                "'%s' names no folder yet; give the folder with --set data_location=FOLDER",
                f->at[i]);
        rd_docs_fetcher(f->at[i], st);
        return st->code;
    }
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->at[i], "-") == 0 && !(split == RD_SPLIT_TEST && f->n == 1))
            return rd_fail(st, RD_EUSAGE, "%s: '%s' cannot be standard input; only prompts can",
                           rd_config_where(a->config, file_key[split]), file_key[split]);
    if (rd_text_files_new(f, out, st) != RD_OK) {
        if (split != RD_SPLIT_TEST) rd_docs_fetcher(f->at[0], st);
        rd_status_prefix(st, "%s",
                         strcmp(rd_config_where(a->config, file_key[split]), "--input")
                             ? file_key[split]
                             : "--input");
    }
    return st->code;
}

/* Looks for the evaluation text before a long training text is read and made into a tokenizer. */
static rd_code lm_check_eval_files(const rd_text_files *train, const rd_lm_config *c,
                                   const rd_dataset_args *a, rd_status *st)
{
    rd_text_files f = {0};
    if (a->split != RD_SPLIT_TRAIN || a->mode != RD_MODE_TRAIN_EVAL) return RD_OK;
    if (rd_text_files_exist(train, st) != RD_OK) rd_docs_fetcher(train->at[0], st);
    RD_TRY(st->code);
    RD_TRY(lm_files(c, a, RD_SPLIT_EVAL, &f, st));
    if (rd_text_files_exist(&f, st) != RD_OK) rd_docs_fetcher(f.at[0], st);
done:
    rd_text_files_release(&f);
    return st->code;
}

/* Are the files tokens? A list of both is an error. */
static rd_code lm_are_tokens(const rd_text_files *f, bool *tokens, rd_status *st)
{
    int n = 0;
    for (int i = 0; i < f->n; i++) n += rd_docs_bin(f->at[i]);
    *tokens = n > 0;
    if (n > 0 && n < f->n)
        return rd_fail(st, RD_EUSAGE,
                       "some of the files end in .bin, which are tokens, and others do not; use "
                       "one kind");
    return RD_OK;
}

bool rd_lm_fed(const rd_lm *t)
{
    return t->prompts && strcmp(t->files.at[0], "/dev/null") == 0;
}

rd_code rd_lm_config_read(rd_lm *t, rd_lm_config *c, const rd_dataset_args *a, bool *tokens,
                          rd_status *st)
{
    bool train_tokens = false;
    RD_TRY(rd_config_read(a->config, &rd_group_lm_text, a->mode, c, st));
    t->log = rd_rank_of(a->comm) == 0 ? a->log : NULL;
    t->T = c->has_seq_len ? c->seq_len : c->max_len;
    t->stride = a->split == RD_SPLIT_EVAL && c->eval_stride > 0 ? c->eval_stride : t->T;
    t->prompts = a->split == RD_SPLIT_TEST;
    t->size = 1;
    if (a->shard) {
        t->rank = rd_rank_of(a->comm);
        t->size = rd_size_of(a->comm);
    }
    if (t->stride > t->T)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'eval_stride' %" PRId64 " is above 'seq_len' %" PRId64
                       ", so tokens would be left out",
                       rd_config_where(a->config, "eval_stride"), t->stride, t->T);
    if (t->T > c->max_len)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'seq_len' %" PRId64 " is above 'max_len' %" PRId64 " of the model",
                       rd_config_where(a->config, "seq_len"), t->T, c->max_len);
    t->docs = (rd_doc_rules){.unit = c->document,
                             .lines = {.replace = c->invalid_utf8 == RD_UTF8_REPLACE,
                                       .max_line_bytes = c->max_line_bytes,
                                       .any_kind = t->prompts},
                             .prompts = t->prompts,
                             .form = c->input_format};
    if (a->mode == RD_MODE_EXPORT) { /* the names alone count; the files may be gone */
        for (int split = 0; split < 2; split++)
            for (int i = 0; i < c->file[split].n; i++) *tokens |= rd_docs_bin(c->file[split].at[i]);
        return RD_OK;
    }
    RD_TRY(lm_files(c, a, a->split, &t->files, st));
    RD_TRY(lm_check_eval_files(&t->files, c, a, st));
    RD_TRY(lm_are_tokens(&t->files, tokens, st));
    (void)rd_text_files_name(&t->files, t->file_name);
    if (t->prompts && (rd_lm_fed(t) || strcmp(t->files.at[0], "-") == 0))
        (void)snprintf(t->file_name, sizeof t->file_name, "standard input");
    if (*tokens && t->prompts)
        return rd_fail(st, RD_EUSAGE, "%s: prompts are text, not tokens (.bin)",
                       rd_config_where(a->config, "source_file_test"));
    if (c->file[RD_SPLIT_TRAIN].n > 0) {
        RD_TRY(lm_files(c, a, RD_SPLIT_TRAIN, &t->train, st));
        RD_TRY(lm_are_tokens(&t->train, &train_tokens, st));
    }
    if (train_tokens) {
        (void)snprintf(t->train_bin, sizeof t->train_bin, "%.4200s", t->train.at[0]);
        rd_text_files_release(&t->train);
    }
done:
    return st->code;
}
