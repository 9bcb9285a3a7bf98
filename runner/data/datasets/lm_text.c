/* lm_text.c -- texts for language models: raw text, JSON lines, or tokens of llm.c and nanoGPT.
 *
 * The documents of all files become one stream of tokens, with an end token after each. A sample is
 * a window of seq_len + 1 tokens, and the next window begins seq_len tokens later, so each token
 * but the first is a target once. The last window of a file of tokens, or of the text, is shorter.
 * A file of multiple choice has a sample for each answer, which alone counts: tokens of llm.c, or
 * JSON lines of HellaSwag's form.
 * JSON lines with prompt and completion are samples by themselves; only the completion counts.
 *
 * Local rank 0 makes the tokens of a text, in memory that the ranks of a host share, or in a file
 * of the log folder. Tokens in files are read when they are used. */
#include "../lm_impl.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum kept_tokens { TOKENS_AUTO, TOKENS_MEMORY, TOKENS_FILE } kept_tokens;
enum { PATH_BYTES = 4300 };

typedef enum invalid_utf8 { UTF8_ERROR, UTF8_REPLACE } invalid_utf8;

typedef struct lm_config {
    rd_paths file[3]; /* [rd_split] */
    const char *subword, *subword_model, *data_location;
    int64_t subword_size, seq_len, max_len, eval_stride, vocab_size, end_id, max_line_bytes;
    rd_doc_unit document;
    rd_doc_form input_format;
    kept_tokens token_cache;
    invalid_utf8 invalid_utf8;
    bool has_seq_len, has_end_id;
} lm_config;

#define T lm_config
static const char *const units[] = {
    [RD_DOC_FILE] = "file", [RD_DOC_BLANK_LINE] = "blank_line", [RD_DOC_LINE] = "line", NULL};
static const char *const forms[] = {
    [RD_DOC_AUTO] = "auto", [RD_DOC_TEXT] = "text", [RD_DOC_JSON] = "jsonl", NULL};
static const char *const caches[] = {
    [TOKENS_AUTO] = "auto", [TOKENS_MEMORY] = "memory", [TOKENS_FILE] = "file", NULL};
static const char *const utf8_choices[] = {
    [UTF8_ERROR] = "error", [UTF8_REPLACE] = "replace", NULL};
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

static const rd_option_group group = {"lm_text", "texts for language models", options,
                                      sizeof(lm_config)};

enum { LM_IDS, LM_FIRST, LM_PROMPT, LM_BLOCKS };

typedef struct lm_text {
    rd_text_files files; /* of the split */
    rd_text_files train; /* the training text, if the tokenizer is made of it; else empty */
    char file_name[RD_FILES_NAME];
    char train_bin[PATH_BYTES]; /* the first training file, if it has tokens; else "" */
    char meta[PATH_BYTES];      /* the meta.pkl beside the tokens; "": none */
    rd_subword *tokenizer;      /* owned; NULL: tokens come from files */
    int32_t *id_bytes;          /* owned; [V] NULL: not known */
    int64_t V, T, stride;
    int32_t end;
    bool end_is_own; /* the tokenizer has no end token: it is number V - 1 */
    bool prompts;    /* the samples are texts to continue */
    rd_doc_rules docs;
    rd_token_head head;
    int64_t n_fed; /* number of lines of all texts of `feed` */
    /* LM_IDS: the tokens. Examples and prompts: LM_FIRST int64_t [n_examples + 1] first token of
     * each, LM_PROMPT int32_t [n_examples] number of tokens of its prompt. */
    rd_block block[LM_BLOCKS];
    rd_choices choices;  /* n 0: the data are none */
    rd_token_list *list; /* owned; [n_lists] */
    int n_lists;
    int64_t *first_window; /* owned; [n_lists + 1] windows before each list */
    int64_t count;
    char fingerprint[256];
    rd_log *log;    /* of rank 0; NULL: none */
    int rank, size; /* --split_data_per_rank: samples of this rank; else 0 and 1 */
} lm_text;

static const char *const file_key[3] = {"source_file", "source_file_eval", "source_file_test"};

/* ---- config ---- */

static rd_code lm_files(const lm_config *c, const rd_dataset_args *a, rd_split split,
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
        rd_status_prefix(st, "%s", file_key[split]);
    }
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

/* Do the prompts come by feed? */
static bool lm_fed(const lm_text *t)
{
    return t->prompts && strcmp(t->files.at[0], "/dev/null") == 0;
}

static rd_code lm_read_config(lm_text *t, lm_config *c, const rd_dataset_args *a, bool *tokens,
                              rd_status *st)
{
    bool train_tokens = false;
    RD_TRY(rd_config_read(a->config, &group, a->mode, c, st));
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
                             .lines = {.replace = c->invalid_utf8 == UTF8_REPLACE,
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
    RD_TRY(lm_are_tokens(&t->files, tokens, st));
    (void)rd_text_files_name(&t->files, t->file_name);
    if (t->prompts && (lm_fed(t) || strcmp(t->files.at[0], "-") == 0))
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

/* ---- the tokenizer ---- */

/* Finds out on rank 0 where the tokenizer of tokens is, if no key says so: *kept in the folder of
 * the run or of its weights, and in the meta.pkl that nanoGPT writes beside tokens of characters.
 * bin: a file of tokens; NULL: none. Collective. */
static rd_code lm_find_tokenizer(lm_text *t, const lm_config *c, const rd_dataset_args *a,
                                 const char *bin, bool *kept, rd_status *st)
{
    int32_t found[2] = {0, 0};
    const char *slash = bin ? strrchr(bin, '/') : NULL;
    const int n_dir = slash ? (int)(slash - bin) + 1 : 0;
    *kept = false;
    if (c->subword_model || c->vocab_size > 0) return RD_OK;
    if (rd_rank_of(a->comm) == 0) {
        bool is = false;
        (void)rd_tokenizer_kept(a->logdir, a->weights, &is, st);
        found[0] = is;
        (void)snprintf(t->meta, sizeof t->meta, "%.*smeta.pkl", n_dir, bin ? bin : "");
        is = false;
        if (st->code == RD_OK && bin && n_dir < PATH_BYTES - 16 &&
            (!c->subword || strcmp(c->subword, "char") == 0))
            (void)rd_path_there(t->meta, &is, st);
        found[1] = is;
    }
    RD_TRY(rd_agree(a->comm, st));
    if (rd_size_of(a->comm) > 1) RD_TRY(rd_comm_bcast(a->comm, found, sizeof found, 0, st));
    *kept = found[0] != 0;
    if (!found[1])
        t->meta[0] = '\0';
    else if (!t->meta[0]) /* rank 0 reads the file for all */
        (void)snprintf(t->meta, sizeof t->meta, "meta.pkl");
done:
    return st->code;
}

static rd_code lm_tokenizer(lm_text *t, const lm_config *c, const rd_dataset_args *a, bool tokens,
                            rd_status *st)
{
    const bool trains = a->mode == RD_MODE_TRAIN || a->mode == RD_MODE_TRAIN_EVAL ||
                        a->mode == RD_MODE_PREPARE;
    const bool has_dir = a->logdir && a->logdir[0];
    bool kept;
    rd_tokenizer_args k = {.comm = a->comm,
                           .log = t->log,
                           .logdir = has_dir ? a->logdir : NULL,
                           .weights = a->weights,
                           .scheme = c->subword ? c->subword : "byte_bpe",
                           .model = c->subword_model,
                           .size = c->subword_size,
                           .files = &t->train,
                           .docs = t->docs};
    const char *end = c->subword_model ? strrchr(c->subword_model, '.') : NULL;
    if (!c->subword && end && strcmp(end, ".pkl") == 0) k.scheme = "char";
    k.docs.prompts = false;
    k.makes = a->split == RD_SPLIT_TRAIN && (trains || a->mode == RD_MODE_BENCH) && t->train.n > 0;
    k.saves = k.makes && trains && has_dir;
    if (strcmp(k.scheme, "none") == 0 || strcmp(k.scheme, "bpe") == 0)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'subword' %s has no ids; a language model needs byte_bpe, char or "
                       "sentencepiece",
                       rd_config_where(a->config, "subword"), k.scheme);
    const char *bin = tokens && t->files.n > 0 ? t->files.at[0] : t->train_bin;
    RD_TRY(lm_find_tokenizer(t, c, a, bin[0] ? bin : NULL, &kept, st));
    if (t->meta[0]) {
        k.scheme = "char";
        k.model = t->meta;
        k.model_rule = "meta.pkl"; /* the folder of the data may change */
        if (t->log && !kept) rd_info(t->log, "tokenizer: the characters of %s", t->meta);
    }
    if (tokens && !k.model && !kept) {
        if (c->vocab_size == 0)
            return rd_fail(st, RD_EUSAGE,
                           "missing key 'vocab_size': the number of tokens of the .bin files; or "
                           "give 'subword_model', their tokenizer; nanoGPT's meta.pkl is not "
                           "beside them");
        t->V = c->vocab_size;
        t->end = c->has_end_id && c->end_id < t->V ? (int32_t)c->end_id : -1;
        return RD_OK;
    }
    if (tokens && trains && a->split == RD_SPLIT_TRAIN && k.model) k.makes = k.saves = has_dir;
    RD_TRY(rd_tokenizer_open(&k, &t->tokenizer, st));
    t->V = rd_subword_size(t->tokenizer);
    t->end = rd_tokenizer_end(t->tokenizer);
    t->end_is_own = t->end < 0 && !tokens && (c->document != RD_DOC_FILE);
    for (int i = 0; i < t->train.n && t->end < 0; i++)
        t->end_is_own |= rd_docs_json(t->train.at[i]);
    const rd_paths *named = &c->file[RD_SPLIT_TRAIN];
    for (int i = 0; i < named->n && t->end < 0 && a->mode == RD_MODE_EXPORT; i++)
        t->end_is_own |= rd_docs_json(named->at[i]);
    if (t->end_is_own) t->end = (int32_t)t->V++;
    t->id_bytes = rd_tokenizer_bytes(t->tokenizer);
    if (t->id_bytes && t->end_is_own) {
        int32_t *more = realloc(t->id_bytes, (size_t)(t->V + 1) * sizeof *more);
        if (more) {
            t->id_bytes = more;
            more[t->V - 1] = 0;
        } else {
            free(t->id_bytes);
            t->id_bytes = NULL;
        }
    }
    if (!t->id_bytes) return rd_fail(st, RD_EENV, "out of memory for a vocabulary");
done:
    return st->code;
}

/* ---- tokens of a text ---- */

typedef struct lm_maker {
    lm_text *t;
    rd_token_writer *w;
    rd_subword_scratch *scratch;
    rd_subword_ids ids;
    int64_t n_first; /* number of examples so far */
} lm_maker;

/* Appends an example: its first token, and the tokens of its prompt. */
static rd_code lm_add_example(lm_maker *m, int64_t first, int64_t prompt, rd_status *st)
{
    rd_block *b = m->t->block;
    const size_t n = (size_t)m->n_first++;
    RD_TRY(rd_block_grow(&b[LM_FIRST], (n + 2) * sizeof(int64_t), st));
    RD_TRY(rd_block_grow(&b[LM_PROMPT], (n + 1) * sizeof(int32_t), st));
    ((int64_t *)(void *)b[LM_FIRST].p)[n] = first;
    ((int32_t *)(void *)b[LM_PROMPT].p)[n] = (int32_t)prompt;
done:
    return st->code;
}

static rd_code lm_encode(lm_maker *m, const char *text, size_t n, rd_status *st)
{
    const size_t from = m->ids.n;
    rd_subword_encode(m->t->tokenizer, m->scratch, text, n, &m->ids);
    if (m->ids.failed) return rd_fail(st, RD_EENV, "out of memory for the tokens of a document");
    for (size_t i = from; i < m->ids.n; i++)
        if (m->ids.at[i] < 0)
            return rd_fail(st, RD_EDATA,
                           "%s has a character that the tokenizer (%s) cannot express; use another "
                           "tokenizer, such as byte_bpe",
                           m->t->file_name, rd_subword_kind(m->t->tokenizer));
    return RD_OK;
}

/* Adds a part of a document to the tokens. */
static rd_code lm_add_part(lm_maker *m, const rd_doc_part *p, rd_status *st)
{
    lm_text *t = m->t;
    m->ids.n = 0;
    RD_TRY(lm_encode(m, p->text, p->is_example ? p->prompt : p->n, st));
    const size_t prompt = m->ids.n;
    if (p->is_example) RD_TRY(lm_encode(m, p->text + p->prompt, p->n - p->prompt, st));
    size_t n = m->ids.n;
    if (p->is_example || t->prompts) {
        const size_t most = t->prompts ? SIZE_MAX : (size_t)t->T + 1;
        const bool ends = !t->prompts && t->end >= 0;
        if (n + ends > most) {
            /* The end of the completion is left out, and its end token. */
            m->w->head.n_cut++;
            n = most;
        }
        RD_TRY(lm_add_example(m, m->w->head.n, (int64_t)(prompt < n ? prompt : n), st));
        RD_TRY(rd_token_writer_add(m->w, m->ids.at, n, st));
        if (ends && n == m->ids.n) RD_TRY(rd_token_writer_add(m->w, &t->end, 1, st));
    } else {
        RD_TRY(rd_token_writer_add(m->w, m->ids.at, n, st));
        if (p->ends && t->end >= 0) RD_TRY(rd_token_writer_add(m->w, &t->end, 1, st));
    }
    m->w->head.n_bytes += (int64_t)p->n;
    m->w->head.n_docs += p->ends;
done:
    return st->code;
}

/* Makes the tokens of the documents. path NULL: in memory. */
static rd_code lm_make(lm_text *t, rd_docs *docs, const char *path, uint64_t key, rd_status *st)
{
    rd_token_writer *w = calloc(1, sizeof *w);
    lm_maker m = {.t = t, .w = w};
    rd_progress progress;
    rd_progress_start(&progress, t->log, "text split into tokens", rd_text_files_disk(&t->files));
    progress.noun = "documents";
    int examples = 0, streams = 0;
    if (!w) return rd_fail(st, RD_EENV, "out of memory for tokens");
    RD_TRY(rd_subword_scratch_new(t->tokenizer, &m.scratch, st));
    RD_TRY(rd_token_writer_begin(w, t->V > 65536, &t->block[LM_IDS], path, key, st));
    for (;;) {
        rd_doc_part p;
        bool more;
        RD_TRY(rd_docs_next(docs, &p, &more, st));
        if (!more) break;
        examples |= p.is_example;
        streams |= !p.is_example && !t->prompts;
        if (examples && streams)
            RD_TRY(rd_fail(st, RD_EDATA,
                           "%s has lines with \"text\" and lines with \"prompt\"; put them in two "
                           "files, and train on one",
                           t->file_name));
        RD_TRY(lm_add_part(&m, &p, st));
        rd_progress_bytes(&progress, w->head.n_docs, rd_docs_bytes(docs), rd_docs_disk(docs));
    }
    w->head.n_examples = m.n_first;
    if (m.n_first > 0 || t->prompts) {
        RD_TRY(rd_block_grow(&t->block[LM_FIRST], (size_t)(m.n_first + 1) * sizeof(int64_t), st));
        ((int64_t *)(void *)t->block[LM_FIRST].p)[m.n_first] = w->head.n;
    }
    RD_TRY(rd_token_writer_end(w, st));
    t->head = w->head;
done:
    rd_progress_end(&progress);
    rd_token_writer_release(w);
    free(w);
    rd_subword_scratch_free(m.scratch);
    free(m.ids.at);
    return st->code;
}

/* Returns a hash of what the tokens of the files depend on, and in *bytes their size. */
static uint64_t lm_key(const lm_text *t, int64_t *bytes)
{
    uint64_t h = rd_fnv_step(RD_FNV_START, rd_subword_hash(t->tokenizer));
    *bytes = 0;
    h = rd_fnv_step(h, (uint64_t)t->docs.unit * 2 + t->docs.lines.replace);
    h = rd_fnv_step(h, (uint64_t)(t->end + 1));
    for (int i = 0; i < t->files.n; i++) {
        struct stat s;
        h = rd_fnv(h, t->files.at[i], strlen(t->files.at[i]) + 1);
        if (stat(t->files.at[i], &s) != 0) continue; /* a member of an archive */
        *bytes += s.st_size;
        h = rd_fnv_step(h, (uint64_t)s.st_size);
        h = rd_fnv_step(h, (uint64_t)s.st_mtim.tv_sec * UINT64_C(1000000000) +
                               (uint64_t)s.st_mtim.tv_nsec);
    }
    return h;
}

/* Decides whether the tokens are kept in a file, and writes its name; "": they are not. */
static void lm_cache_path(const lm_text *t, const lm_config *c, const rd_dataset_args *a,
                          uint64_t key, int64_t bytes, char path[4300])
{
    const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    bool json = false;
    path[0] = '\0';
    for (int i = 0; i < t->files.n; i++) json |= rd_docs_json(t->files.at[i]);
    if (t->prompts || !a->logdir || !a->logdir[0] || a->scratch || c->token_cache == TOKENS_MEMORY)
        return;
    /* A token has some four bytes of text, and its id two. Compressed files count a third. */
    if (c->token_cache == TOKENS_AUTO && (double)bytes / 2 < memory / 4) return;
    if (json && c->token_cache == TOKENS_AUTO && (double)bytes / 2 < memory / 2) return;
    (void)snprintf(path, 4300, "%.4000s/text/ids-%016" PRIx64 ".bin", a->logdir, key);
}

/* The first line of standard input decides for all. */
static void lm_keep_form(lm_text *t, const rd_docs *docs)
{
    const rd_doc_form form = rd_docs_form(docs);
    if (t->docs.form != RD_DOC_AUTO || form == RD_DOC_AUTO) return;
    t->docs.form = form;
    if (t->log && form == RD_DOC_JSON)
        rd_info(t->log, "standard input has JSON lines; with input_format text each line is a "
                        "prompt as it is");
}

/* Finds the tokens in the file, or makes them, there or in memory. */
static rd_code lm_find_or_make(lm_text *t, const char *path, uint64_t key, rd_status *st)
{
    rd_docs *docs = NULL;
    bool found = false;
    char dir[4300];
    if (path[0]) {
        RD_TRY(rd_token_cache_open(path, key, &t->head, &t->list[0], &found, st));
        if (found) {
            if (t->log) rd_info(t->log, "tokens of %s: those of %s", t->file_name, path);
            return RD_OK;
        }
        (void)snprintf(dir, sizeof dir, "%s", path);
        *strrchr(dir, '/') = '\0';
        RD_TRY(rd_mkdirs(dir, st));
    }
    RD_TRY(rd_docs_new(&t->files, &t->docs, &docs, st));
    RD_TRY(lm_make(t, docs, path[0] ? path : NULL, key, st));
    if (strcmp(t->files.at[0], "-") == 0) lm_keep_form(t, docs);
    if (path[0] && t->head.n_examples > 0)
        rd_fail(st, RD_EUSAGE,
                "%s has prompts and completions, whose tokens are kept in memory alone; set "
                "'token_cache' to memory",
                t->file_name);
done:
    rd_docs_free(docs);
    return st->code;
}

/* Local rank 0 makes the tokens, the others map its memory or open its file. Collective. */
static rd_code lm_read_text(lm_text *t, const lm_config *c, const rd_dataset_args *a, rd_status *st)
{
    char path[4300];
    int64_t bytes;
    bool found, have = true;
    const uint64_t key = lm_key(t, &bytes);
    const bool first = rd_local_rank_of(a->comm) == 0, shared = rd_local_size_of(a->comm) > 1;
    lm_cache_path(t, c, a, key, bytes, path);
    t->n_lists = 1;
    t->list = calloc(1, sizeof *t->list);
    if (!t->list) rd_fail(st, RD_EENV, "out of memory");
    for (int i = 0; i < LM_BLOCKS; i++) rd_block_init(&t->block[i], shared && first);
    if (first && st->code == RD_OK) (void)lm_find_or_make(t, path, key, st);
    RD_TRY(rd_agree(a->comm, st));
    if (shared) {
        RD_TRY(rd_comm_local_bcast(a->comm, &t->head, sizeof t->head, 0, st));
        RD_TRY(rd_block_share(a->comm, t->block, LM_BLOCKS, &have, st));
        if (!have && !first) (void)lm_find_or_make(t, path, key, st);
    }
    if (t->head.in_file && !t->list[0].in) {
        (void)rd_token_cache_open(path, key, &t->head, &t->list[0], &found, st);
        if (st->code == RD_OK && !found)
            rd_fail(st, RD_EENV, "'%s' is not there on this host, but local rank 0 has made it",
                    path);
    } else if (!t->head.in_file) {
        t->list[0] = (rd_token_list){
            .mem = t->block[LM_IDS].p, .wide = t->head.wide, .n = t->head.n};
    }
    RD_TRY(rd_agree(a->comm, st));
done:
    return st->code;
}

/* ---- tokens of files ---- */

/* Adds the size and some of the tokens of a file to the hash of the data. */
static rd_code lm_hash_list(lm_text *t, const rd_token_list *l, rd_status *st)
{
    enum { SOME = 4096 };
    int32_t ids[SOME];
    const int64_t n = l->n < SOME ? l->n : SOME;
    t->head.hash = rd_fnv_step(t->head.hash, (uint64_t)l->n);
    for (int k = 0; k < 3; k++) {
        RD_TRY(rd_token_list_get(l, k * ((l->n - n) / 2), n, t->V, ids, st));
        t->head.hash = rd_hash(t->head.hash, ids, (size_t)n * sizeof *ids);
    }
done:
    return st->code;
}

/* Makes the samples of questions of multiple choice. */
static rd_code lm_take_choices(lm_text *t, rd_status *st)
{
    const rd_choices *c = &t->choices;
    t->list = calloc(1, sizeof *t->list);
    if (!t->list) return rd_fail(st, RD_EENV, "out of memory");
    t->n_lists = 1;
    t->list[0] = (rd_token_list){.mem = c->ids, .wide = true, .n = c->n_ids};
    t->head.n = c->n_ids;
    t->head.hash = rd_hash(t->head.hash, c->ids, (size_t)c->n_ids * sizeof *c->ids);
    return RD_OK;
}

/* Reads files of multiple choice. */
static rd_code lm_open_choices(lm_text *t, rd_status *st)
{
    rd_choices *c = &t->choices;
    for (int i = 0; i < t->files.n; i++) {
        bool are;
        RD_TRY(rd_choices_are(t->files.at[i], &are, st));
        if (!are)
            return rd_fail(st, RD_EUSAGE,
                           "'%s' is no file of multiple choice, but another file of "
                           "'source_file_eval' is; evaluate them by themselves",
                           t->files.at[i]);
        RD_TRY(rd_choices_read(c, t->files.at[i], t->T + 1, t->V, st));
    }
    RD_TRY(lm_take_choices(t, st));
done:
    return st->code;
}

static rd_code lm_open_questions(lm_text *t, rd_status *st)
{
    RD_TRY(rd_questions_read(&t->choices, &t->files, &t->docs.lines, t->tokenizer, t->T + 1, st));
    RD_TRY(lm_take_choices(t, st));
done:
    return st->code;
}

static rd_code lm_open_tokens(lm_text *t, rd_split split, rd_status *st)
{
    bool choices = false;
    for (int i = 0; i < t->files.n && split == RD_SPLIT_EVAL && !choices; i++)
        RD_TRY(rd_choices_are(t->files.at[i], &choices, st));
    if (choices) return lm_open_choices(t, st);
    t->list = calloc((size_t)t->files.n, sizeof *t->list);
    if (!t->list) return rd_fail(st, RD_EENV, "out of memory");
    for (int i = 0; i < t->files.n; i++) {
        t->n_lists = i + 1;
        RD_TRY(rd_token_list_open(t->files.at[i], t->V, &t->list[i], st));
        RD_TRY(lm_hash_list(t, &t->list[i], st));
        t->head.n += t->list[i].n;
    }
done:
    rd_docs_fetcher(t->files.at[0], st);
    return st->code;
}

/* ---- samples ---- */

/* Returns the number of windows of n tokens. The first has up to T targets, each further one
 * `stride` more. */
static int64_t lm_windows(const lm_text *t, int64_t n)
{
    if (n < 2) return 0;
    return n - 1 <= t->T ? 1 : 1 + (n - 1 - t->T + t->stride - 1) / t->stride;
}

static rd_code lm_count(lm_text *t, rd_status *st)
{
    if (t->choices.n > 0) {
        t->count = t->choices.n;
        return RD_OK;
    }
    if (t->head.n_examples > 0 || t->prompts) {
        t->count = t->head.n_examples;
        return RD_OK;
    }
    t->first_window = calloc((size_t)t->n_lists + 1, sizeof *t->first_window);
    if (!t->first_window) return rd_fail(st, RD_EENV, "out of memory");
    for (int i = 0; i < t->n_lists; i++)
        t->first_window[i + 1] = t->first_window[i] + lm_windows(t, t->list[i].n);
    t->count = t->first_window[t->n_lists];
    if (t->count == 0)
        return rd_fail(st, RD_EDATA, "%s has %" PRId64 " token%s; a sample needs at least two",
                       t->file_name, t->head.n, RD_S(t->head.n));
    return RD_OK;
}

/* Where the tokens of a sample are. */
typedef struct lm_place {
    const rd_token_list *list;
    int64_t first, n;
    int64_t before; /* number of first tokens that are no targets; at least 1 */
} lm_place;

static lm_place lm_place_of(const lm_text *t, int64_t i)
{
    if (t->choices.n > 0) {
        const int64_t *at = t->choices.first + i;
        return (lm_place){&t->list[0], at[0], at[1] - at[0], t->choices.prompt[i]};
    }
    if (!t->first_window) {
        const int64_t *at = (const int64_t *)(const void *)t->block[LM_FIRST].p + i;
        const int32_t prompt = ((const int32_t *)(const void *)t->block[LM_PROMPT].p)[i];
        return (lm_place){&t->list[0], at[0], at[1] - at[0], prompt > 1 ? prompt : 1};
    }
    int lo = 0, hi = t->n_lists;
    while (hi - lo > 1) {
        const int mid = lo + (hi - lo) / 2;
        if (i < t->first_window[mid])
            hi = mid;
        else
            lo = mid;
    }
    const int64_t k = i - t->first_window[lo], first = k * t->stride, left = t->list[lo].n - first;
    return (lm_place){&t->list[lo], first, left < t->T + 1 ? left : t->T + 1,
                      k > 0 ? t->T - t->stride + 1 : 1};
}

static int64_t lm_n_targets(const lm_text *t, int64_t i)
{
    const lm_place p = lm_place_of(t, i);
    return p.n - p.before;
}

/* ---- the functions of rd_dataset_def ---- */

static void lm_close(void *self)
{
    lm_text *t = self;
    if (!t) return;
    for (int i = 0; i < t->n_lists && t->list; i++) rd_token_list_release(&t->list[i]);
    for (int i = 0; i < LM_BLOCKS; i++)
        if (t->block[i].p) rd_block_free(&t->block[i]);
    rd_choices_release(&t->choices);
    free(t->list);
    free(t->first_window);
    free(t->id_bytes);
    rd_subword_free(t->tokenizer);
    rd_text_files_release(&t->files);
    rd_text_files_release(&t->train);
    free(t);
}

static void lm_report(const lm_text *t)
{
    char a[32], b[32], c[32];
    const rd_token_head *h = &t->head;
    if (!t->log || t->prompts) return;
    if (t->choices.n > 0) {
        rd_info(t->log, "%s: %s questions with %s answers, %s tokens", t->file_name,
                rd_commas((double)t->choices.n_questions, a), rd_commas((double)t->choices.n, b),
                rd_commas((double)h->n, c));
        if (t->choices.n_cut > 0)
            rd_warn(t->log,
                    "%" PRId64 " of %" PRId64 " answers are longer with their context than "
                    "seq_len + 1 = %" PRId64 " tokens; the beginning of each is left out",
                    t->choices.n_cut, t->choices.n, t->T + 1);
        return;
    }
    if (!t->tokenizer || h->n_docs == 0) {
        rd_info(t->log, "%s: %s tokens, %s windows of %" PRId64, t->file_name,
                rd_commas((double)h->n, a), rd_commas((double)t->count, b), t->T);
        return;
    }
    rd_info(t->log, "%s: %s tokens of %s bytes in %s document%s, %.2f bytes a token", t->file_name,
            rd_commas((double)h->n, a), rd_commas((double)h->n_bytes, b),
            rd_commas((double)h->n_docs, c), RD_S(h->n_docs),
            h->n > 0 ? (double)h->n_bytes / (double)h->n : 0.0);
    if (h->n_examples > 0)
        rd_info(t->log, "samples are %s prompts with completions; only completions count",
                rd_commas((double)h->n_examples, a));
    if (h->n_cut > 0)
        rd_warn(t->log,
                "%" PRId64 " of %" PRId64 " examples are longer than seq_len + 1 = %" PRId64
                " tokens; the rest of each is left out",
                h->n_cut, h->n_examples, t->T + 1);
}

static rd_code lm_open(const rd_dataset_args *a, void **self, rd_status *st)
{
    lm_text *t = calloc(1, sizeof *t);
    lm_config c = {0};
    bool tokens = false, questions = false;
    *self = NULL;
    if (!t)
        rd_fail(st, RD_EENV, "out of memory");
    else
        (void)lm_read_config(t, &c, a, &tokens, st);
    RD_TRY(rd_agree(a->comm, st));
    if (!t) /* Never happens: all ranks share the failure. */
        return rd_fail(st, RD_EBUG, "ranks agree without a dataset");
    RD_TRY(lm_tokenizer(t, &c, a, tokens, st));
    *self = t;
    if (a->mode == RD_MODE_PREPARE && !tokens && c.token_cache != TOKENS_FILE) return RD_OK;
    if (a->mode == RD_MODE_EXPORT) return RD_OK;
    if (lm_fed(t)) {
        t->n_lists = 0;
        return RD_OK;
    }
    if (a->split == RD_SPLIT_EVAL && !tokens) {
        (void)rd_questions_are(&t->files, &t->docs.lines, &questions, st);
        RD_TRY(rd_agree(a->comm, st));
    }
    if (tokens)
        (void)lm_open_tokens(t, a->split, st);
    else if (questions)
        (void)lm_open_questions(t, st);
    else
        RD_TRY(lm_read_text(t, &c, a, st));
    if (st->code == RD_OK) (void)lm_count(t, st);
    RD_TRY(rd_agree(a->comm, st));
    snprintf(t->fingerprint, sizeof t->fingerprint,
             "text %" PRId64 " tokens %016" PRIx64 ", %" PRId64 " samples of %" PRId64
             " by %" PRId64 ", vocabulary %" PRId64 " %016" PRIx64,
             t->head.n, t->head.hash, t->count, t->T, t->stride, t->V,
             t->tokenizer ? rd_subword_hash(t->tokenizer) : 0);
    lm_report(t);
    return RD_OK;
done:
    *self = NULL;
    lm_close(t);
    return st->code;
}

static bool lm_choice(void *self, int64_t i, rd_choice *out)
{
    const rd_choices *c = &((const lm_text *)self)->choices;
    if (c->n == 0) return false;
    *out = (rd_choice){.question = c->question[i], .right = c->right[i]};
    return true;
}

static int64_t lm_n_samples(void *self)
{
    return ((const lm_text *)self)->count;
}
static int lm_n_buckets(void *self)
{
    (void)self;
    return 1;
}
static int lm_bucket(void *self, int64_t i)
{
    const lm_text *t = self;
    return t->prompts || lm_n_targets(t, i) > 0 ? 0 : -1;
}
static int64_t lm_length(void *self, int64_t i)
{
    return lm_place_of(self, i).n;
}
static int64_t lm_targets(void *self, int64_t i)
{
    return lm_n_targets(self, i);
}
static bool lm_here(void *self, int64_t i)
{
    const lm_text *t = self;
    return i % t->size == t->rank;
}
static const char *lm_fingerprint(void *self)
{
    return ((const lm_text *)self)->fingerprint;
}
static bool lm_blank(void *self, int64_t i)
{
    const lm_text *t = self;
    return t->prompts && t->end < 0 && lm_place_of(t, i).n == 0;
}

static rd_code lm_fetch(void *self, const int64_t *ids, int64_t n, rd_arena *a, rd_batch *out,
                        rd_status *st)
{
    const lm_text *t = self;
    int64_t *sample, *off, *each;
    int32_t *data, *before, some = 0;
    RD_TRY(rd_arena_get(a, (size_t)(n + 1) * sizeof *sample, &sample, st));
    RD_TRY(rd_arena_get(a, (size_t)(n + 1) * sizeof *off, &off, st));
    RD_TRY(rd_arena_get(a, (size_t)(n + 1) * sizeof *each, &each, st));
    RD_TRY(rd_arena_get(a, (size_t)(n + 1) * sizeof *before, &before, st));
    off[0] = 0;
    for (int64_t k = 0; k < n; k++) {
        if (ids[k] < 0 || ids[k] >= t->count || !lm_here(self, ids[k]))
            return rd_fail(st, RD_EBUG, "sample %" PRId64 " of %" PRId64 " is not on this rank",
                           ids[k], t->count);
        const lm_place p = lm_place_of(t, ids[k]);
        /* An empty prompt begins a document. */
        off[k + 1] = off[k] + (p.n > 0 ? p.n : 1);
    }
    RD_TRY(rd_arena_get(a, (size_t)(off[n] + 1) * sizeof *data, &data, st));
    for (int64_t k = 0; k < n; k++) {
        const lm_place p = lm_place_of(t, ids[k]);
        sample[k] = ids[k];
        before[k] = (int32_t)p.before;
        each[k] = k;
        some |= p.before > 1;
        data[off[k]] = t->end;
        RD_TRY(rd_token_list_get(p.list, p.first, p.n, t->V, data + off[k], st));
    }
    each[n] = n;
    out->n = n;
    out->sample = sample;
    out->n_fields = 1;
    out->field[0] = (rd_field){
        .name = t->prompts ? "source" : "target", .dtype = RD_I32, .data = data, .off = off};
    if (t->prompts || !some) return RD_OK;
    out->n_fields = 2;
    out->field[1] = (rd_field){.name = "prompt", .dtype = RD_I32, .data = before, .off = each};
done:
    return st->code;
}

static void lm_spec(void *self, rd_data_spec *out)
{
    const lm_text *t = self;
    const uint64_t hash = t->tokenizer ? rd_subword_hash(t->tokenizer)
                                       : rd_fnv_step(RD_FNV_START, (uint64_t)t->V);
    *out = (rd_data_spec){.src_vocab_size = t->V,
                          .tgt_vocab_size = t->V,
                          .src_vocab_hash = hash,
                          .tgt_vocab_hash = hash,
                          .subword_hash = t->tokenizer ? hash : 0,
                          .joins = t->tokenizer != NULL,
                          .end_id = t->end,
                          .id_bytes = t->id_bytes};
}

static void lm_words(void *self, int side, const int32_t *ids, int64_t n, bool specials,
                     rd_strbuf *out)
{
    const lm_text *t = self;
    rd_strbuf pieces = {0};
    (void)side;
    for (int64_t k = 0; k < n; k++) {
        if (!t->tokenizer) {
            rd_strbuf_printf(out, "%s%d", k ? " " : "", ids[k]);
            continue;
        }
        if (ids[k] == t->end && (t->end_is_own || !specials)) continue;
        if (pieces.n > 0) rd_strbuf_add(&pieces, " ", 1);
        rd_subword_piece(t->tokenizer, ids[k], &pieces);
    }
    if (pieces.n > 0) rd_subword_join(t->tokenizer, rd_strbuf_str(&pieces), pieces.n, out);
    out->failed |= pieces.failed;
    rd_strbuf_release(&pieces);
}

static rd_code lm_feed(void *self, const char *text, size_t n, int64_t lines_before, rd_status *st)
{
    lm_text *t = self;
    rd_docs *docs = NULL;
    t->count = 0;
    for (int i = 0; i < LM_BLOCKS; i++) {
        if (t->block[i].p) rd_block_free(&t->block[i]);
        rd_block_init(&t->block[i], false);
    }
    if (!t->list) t->list = calloc(1, sizeof *t->list);
    if (!t->list) return rd_fail(st, RD_EENV, "out of memory");
    t->n_lists = 1;
    /* Blank lines between JSON lines are no samples, and the caller counts samples. */
    const int64_t before = t->docs.form == RD_DOC_JSON ? t->n_fed : lines_before;
    RD_TRY(rd_docs_new_mem("-", text, n, before, &t->docs, &docs, st));
    RD_TRY(lm_make(t, docs, NULL, 0, st));
    t->n_fed = rd_docs_lines(docs);
    lm_keep_form(t, docs);
    t->list[0] = (rd_token_list){.mem = t->block[LM_IDS].p, .wide = t->head.wide, .n = t->head.n};
    t->count = t->head.n_examples;
done:
    rd_docs_free(docs);
    return st->code;
}

RD_DATASET(lm_text) = {
    .name = "lm_text",
    .about = "texts for language models: raw, JSON lines, or tokens",
    .group = &group,
    .prepares = true,
    .open = lm_open,
    .close = lm_close,
    .count = lm_n_samples,
    .n_buckets = lm_n_buckets,
    .bucket = lm_bucket,
    .length = lm_length,
    .tokens = lm_targets,
    .here = lm_here,
    .fetch = lm_fetch,
    .spec = lm_spec,
    .fingerprint = lm_fingerprint,
    .text = lm_words,
    .choice = lm_choice,
    .blank = lm_blank,
    .feed = lm_feed,
};
