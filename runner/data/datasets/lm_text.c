/* lm_text.c -- texts for language models: raw text, JSON lines, or tokens of llm.c and nanoGPT.
 *
 * The documents of all files become one stream of tokens, with an end token after each. A sample is
 * a window of seq_len + 1 tokens, and the next window begins seq_len tokens later, so each token
 * but the first is a target once. The last window of a file of tokens, or of the text, is shorter.
 * A file of multiple choice has a sample for each answer, which alone counts: tokens of llm.c, or
 * JSON lines of HellaSwag's form.
 * JSON lines with prompt and completion are samples by themselves; only the completion counts.
 *
 * The tokens of a text are made once a host (lm_ids.c). Tokens in files are read when they are
 * used. */
#include "../lm_impl.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the tokenizer ---- */

/* Finds out on rank 0 where the tokenizer of tokens is, if no key says so: *kept in the folder of
 * the run or of its weights, and in the meta.pkl that nanoGPT writes beside tokens of characters.
 * bin: a file of tokens; NULL: none. Collective. */
static rd_code lm_find_tokenizer(rd_lm *t, const rd_lm_config *c, const rd_dataset_args *a,
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
        if (st->code == RD_OK && bin && n_dir < RD_LM_PATH - 16 &&
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

static rd_code lm_tokenizer(rd_lm *t, const rd_lm_config *c, const rd_dataset_args *a, bool tokens,
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

/* ---- tokens of files ---- */

/* Adds the size and some of the tokens of a file to the hash of the data. */
static rd_code lm_hash_list(rd_lm *t, const rd_token_list *l, rd_status *st)
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
static rd_code lm_take_choices(rd_lm *t, rd_status *st)
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
static rd_code lm_open_choices(rd_lm *t, rd_status *st)
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

static rd_code lm_open_questions(rd_lm *t, rd_status *st)
{
    RD_TRY(rd_questions_read(&t->choices, &t->files, &t->docs.lines, t->tokenizer, t->T + 1, st));
    RD_TRY(lm_take_choices(t, st));
done:
    return st->code;
}

static rd_code lm_open_tokens(rd_lm *t, rd_split split, rd_status *st)
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
static int64_t lm_windows(const rd_lm *t, int64_t n)
{
    if (n < 2) return 0;
    return n - 1 <= t->T ? 1 : 1 + (n - 1 - t->T + t->stride - 1) / t->stride;
}

static rd_code lm_count(rd_lm *t, rd_status *st)
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

static lm_place lm_place_of(const rd_lm *t, int64_t i)
{
    if (t->choices.n > 0) {
        const int64_t *at = t->choices.first + i;
        return (lm_place){&t->list[0], at[0], at[1] - at[0], t->choices.prompt[i]};
    }
    if (!t->first_window) {
        const int64_t *at = (const int64_t *)(const void *)t->block[RD_LM_FIRST].p + i;
        const int32_t prompt = ((const int32_t *)(const void *)t->block[RD_LM_PROMPT].p)[i];
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

static int64_t lm_n_targets(const rd_lm *t, int64_t i)
{
    const lm_place p = lm_place_of(t, i);
    return p.n - p.before;
}

/* ---- the functions of rd_dataset_def ---- */

static void lm_close(void *self)
{
    rd_lm *t = self;
    if (!t) return;
    for (int i = 0; i < t->n_lists && t->list; i++) rd_token_list_release(&t->list[i]);
    for (int i = 0; i < RD_LM_BLOCKS; i++)
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

static void lm_report(const rd_lm *t)
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
                    "%" PRId64 " of %" PRId64 " answers %s longer, with the context, than "
                    "seq_len + 1 = %" PRId64 " tokens; the beginning of each is left out",
                    t->choices.n_cut, t->choices.n, t->choices.n_cut == 1 ? "is" : "are", t->T + 1);
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
                "%" PRId64 " of %" PRId64 " examples %s longer than seq_len + 1 = %" PRId64
                " tokens; the rest of each is left out",
                h->n_cut, h->n_examples, h->n_cut == 1 ? "is" : "are", t->T + 1);
}

static rd_code lm_open(const rd_dataset_args *a, void **self, rd_status *st)
{
    rd_lm *t = calloc(1, sizeof *t);
    rd_lm_config c = {0};
    bool tokens = false, questions = false;
    *self = NULL;
    if (!t)
        rd_fail(st, RD_EENV, "out of memory");
    else
        (void)rd_lm_config_read(t, &c, a, &tokens, st);
    RD_TRY(rd_agree(a->comm, st));
    if (!t) /* Never happens: all ranks share the failure. */
        return rd_fail(st, RD_EBUG, "ranks agree without a dataset");
    RD_TRY(lm_tokenizer(t, &c, a, tokens, st));
    *self = t;
    if (a->mode == RD_MODE_PREPARE && !tokens && c.token_cache != RD_TOKENS_FILE) return RD_OK;
    if (a->mode == RD_MODE_EXPORT) return RD_OK;
    if (rd_lm_fed(t)) {
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
        RD_TRY(rd_lm_read_text(t, &c, a, st));
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
    const rd_choices *c = &((const rd_lm *)self)->choices;
    if (c->n == 0) return false;
    *out = (rd_choice){.question = c->question[i], .right = c->right[i]};
    return true;
}

static int64_t lm_n_samples(void *self)
{
    return ((const rd_lm *)self)->count;
}
static int lm_n_buckets(void *self)
{
    (void)self;
    return 1;
}
static int lm_bucket(void *self, int64_t i)
{
    const rd_lm *t = self;
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
    const rd_lm *t = self;
    return i % t->size == t->rank;
}
static const char *lm_fingerprint(void *self)
{
    return ((const rd_lm *)self)->fingerprint;
}
static bool lm_blank(void *self, int64_t i)
{
    const rd_lm *t = self;
    return t->prompts && t->end < 0 && lm_place_of(t, i).n == 0;
}

static rd_code lm_fetch(void *self, const int64_t *ids, int64_t n, rd_arena *a, rd_batch *out,
                        rd_status *st)
{
    const rd_lm *t = self;
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
    const rd_lm *t = self;
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
    const rd_lm *t = self;
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
    rd_lm *t = self;
    rd_docs *docs = NULL;
    t->count = 0;
    for (int i = 0; i < RD_LM_BLOCKS; i++) {
        if (t->block[i].p) rd_block_free(&t->block[i]);
        rd_block_init(&t->block[i], false);
    }
    if (!t->list) t->list = calloc(1, sizeof *t->list);
    if (!t->list) return rd_fail(st, RD_EENV, "out of memory");
    t->n_lists = 1;
    /* Blank lines between JSON lines are no samples, and the caller counts samples. */
    const int64_t before = t->docs.form == RD_DOC_JSON ? t->n_fed : lines_before;
    RD_TRY(rd_docs_new_mem("-", text, n, before, &t->docs, &docs, st));
    RD_TRY(rd_lm_make(t, docs, NULL, 0, st));
    t->n_fed = rd_docs_lines(docs);
    rd_lm_keep_form(t, docs);
    t->list[0] = (rd_token_list){
        .mem = t->block[RD_LM_IDS].p, .wide = t->head.wide, .n = t->head.n};
    t->count = t->head.n_examples;
done:
    rd_docs_free(docs);
    return st->code;
}

RD_DATASET(lm_text) = {
    .name = "lm_text",
    .about = "texts for language models: raw, JSON lines, or tokens",
    .group = &rd_group_lm_text,
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
