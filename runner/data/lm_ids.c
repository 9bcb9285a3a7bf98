/* lm_ids.c -- the tokens of a text for language models.
 *
 * Local rank 0 makes them, in memory that the ranks of a host share, or in a file of the log
 * folder. */
#include "lm_impl.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct lm_maker {
    rd_lm *t;
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
    RD_TRY(rd_block_grow(&b[RD_LM_FIRST], (n + 2) * sizeof(int64_t), st));
    RD_TRY(rd_block_grow(&b[RD_LM_PROMPT], (n + 1) * sizeof(int32_t), st));
    ((int64_t *)(void *)b[RD_LM_FIRST].p)[n] = first;
    ((int32_t *)(void *)b[RD_LM_PROMPT].p)[n] = (int32_t)prompt;
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
    rd_lm *t = m->t;
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

rd_code rd_lm_make(rd_lm *t, rd_docs *docs, const char *path, uint64_t key, rd_status *st)
{
    rd_token_writer *w = calloc(1, sizeof *w);
    lm_maker m = {.t = t, .w = w};
    rd_progress progress;
    rd_progress_start(&progress, t->log, "text split into tokens", rd_text_files_disk(&t->files));
    progress.noun = "documents";
    int examples = 0, streams = 0;
    if (!w) return rd_fail(st, RD_EENV, "out of memory for tokens");
    RD_TRY(rd_subword_scratch_new(t->tokenizer, &m.scratch, st));
    RD_TRY(rd_token_writer_begin(w, t->V > 65536, &t->block[RD_LM_IDS], path, key, st));
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
        RD_TRY(rd_block_grow(&t->block[RD_LM_FIRST], (size_t)(m.n_first + 1) * sizeof(int64_t),
                             st));
        ((int64_t *)(void *)t->block[RD_LM_FIRST].p)[m.n_first] = w->head.n;
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
static uint64_t lm_key(const rd_lm *t, int64_t *bytes)
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
static void lm_cache_path(const rd_lm *t, const rd_lm_config *c, const rd_dataset_args *a,
                          uint64_t key, int64_t bytes, char path[RD_LM_PATH])
{
    const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    bool json = false;
    path[0] = '\0';
    for (int i = 0; i < t->files.n; i++) json |= rd_docs_json(t->files.at[i]);
    if (t->prompts || !a->logdir || !a->logdir[0] || a->scratch ||
        c->token_cache == RD_TOKENS_MEMORY)
        return;
    /* A token has some four bytes of text, and its id two. Compressed files count a third. */
    if (c->token_cache == RD_TOKENS_AUTO && (double)bytes / 2 < memory / 4) return;
    if (json && c->token_cache == RD_TOKENS_AUTO && (double)bytes / 2 < memory / 2) return;
    (void)snprintf(path, RD_LM_PATH, "%.4000s/text/ids-%016" PRIx64 ".bin", a->logdir, key);
}

void rd_lm_keep_form(rd_lm *t, const rd_docs *docs)
{
    const rd_doc_form form = rd_docs_form(docs);
    if (t->docs.form != RD_DOC_AUTO || form == RD_DOC_AUTO) return;
    t->docs.form = form;
    if (t->log && form == RD_DOC_JSON)
        rd_info(t->log, "standard input has JSON lines; with input_format text each line is a "
                        "prompt as it is");
}

/* Finds the tokens in the file, or makes them, there or in memory. */
static rd_code lm_find_or_make(rd_lm *t, const char *path, uint64_t key, rd_status *st)
{
    rd_docs *docs = NULL;
    bool found = false;
    char dir[RD_LM_PATH];
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
    RD_TRY(rd_lm_make(t, docs, path[0] ? path : NULL, key, st));
    if (strcmp(t->files.at[0], "-") == 0) rd_lm_keep_form(t, docs);
    if (path[0] && t->head.n_examples > 0)
        rd_fail(st, RD_EUSAGE,
                "%s has prompts and completions, whose tokens are kept in memory alone; set "
                "'token_cache' to memory",
                t->file_name);
done:
    rd_docs_free(docs);
    return st->code;
}

rd_code rd_lm_read_text(rd_lm *t, const rd_lm_config *c, const rd_dataset_args *a, rd_status *st)
{
    char path[RD_LM_PATH];
    int64_t bytes;
    bool found, have = true;
    const uint64_t key = lm_key(t, &bytes);
    const bool first = rd_local_rank_of(a->comm) == 0, shared = rd_local_size_of(a->comm) > 1;
    lm_cache_path(t, c, a, key, bytes, path);
    t->n_lists = 1;
    t->list = calloc(1, sizeof *t->list);
    if (!t->list) rd_fail(st, RD_EENV, "out of memory");
    for (int i = 0; i < RD_LM_BLOCKS; i++) rd_block_init(&t->block[i], shared && first);
    if (first && st->code == RD_OK) (void)lm_find_or_make(t, path, key, st);
    RD_TRY(rd_agree(a->comm, st));
    if (shared) {
        RD_TRY(rd_comm_local_bcast(a->comm, &t->head, sizeof t->head, 0, st));
        RD_TRY(rd_block_share(a->comm, t->block, RD_LM_BLOCKS, &have, st));
        if (!have && !first) (void)lm_find_or_make(t, path, key, st);
    }
    if (t->head.in_file && !t->list[0].in) {
        (void)rd_token_cache_open(path, key, &t->head, &t->list[0], &found, st);
        if (st->code == RD_OK && !found)
            rd_fail(st, RD_EENV, "'%s' is not there on this host, but local rank 0 has made it",
                    path);
    } else if (!t->head.in_file) {
        t->list[0] = (rd_token_list){
            .mem = t->block[RD_LM_IDS].p, .wide = t->head.wide, .n = t->head.n};
    }
    RD_TRY(rd_agree(a->comm, st));
done:
    return st->code;
}
