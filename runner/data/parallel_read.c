/* parallel_read.c -- reads a parallel text: its vocabularies and subword model, then both sides. */
#include "parallel_impl.h"
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- vocabularies ---- */

static rd_text_rules text_rules(const rd_parallel *t)
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
rd_code rd_parallel_open_given(rd_parallel *t, const rd_dataset_args *a, rd_status *st)
{
    const bool trains = a->mode == RD_MODE_TRAIN || a->mode == RD_MODE_TRAIN_EVAL;
    const rd_text_given_args g = {
        .comm = a->comm,
        .log = t->log,
        .logdir = a->logdir && a->logdir[0] ? a->logdir : NULL,
        .vocab = {t->c.src_vocab_file, t->c.tgt_vocab_file},
        .rules = text_rules(t),
        .replace = t->c.invalid_utf8 == RD_UTF8_REPLACE,
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
rd_code rd_parallel_open_kit(rd_parallel *t, const rd_dataset_args *a, bool anew, rd_status *st)
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
static rd_code decide_again(const rd_parallel *t, const rd_dataset_args *a, bool *again,
                            rd_status *st)
{
    *again = false;
    if (t->c.ids_in_memory == RD_IDS_ALWAYS || a->shard || a->split != RD_SPLIT_TRAIN ||
        a->keep_all)
        return RD_OK;
    int64_t bytes = 0;
    for (int s = 0; s < 2; s++) {
        const int64_t n = rd_text_files_bytes(&t->files[s]);
        if (n < 0 && t->c.ids_in_memory == RD_IDS_NEVER)
            return rd_fail(st, RD_EUSAGE,
                           "%s: 'ids_in_memory' never, but %s is no plain file; unpack it, or "
                           "leave the key out",
                           rd_config_where(a->config, "ids_in_memory"), t->file_name[s]);
        if (n < 0) return RD_OK;
        bytes += n;
    }
    /* A token has some four bytes of text, and its id two. */
    const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    *again = t->c.ids_in_memory == RD_IDS_NEVER || (double)bytes / 2 > memory / 4;
    return RD_OK;
}

rd_side_args rd_parallel_side_args(const rd_parallel *t, int s)
{
    return (rd_side_args){
        .vocab = t->kit.vocab[s], .subword = rd_text_kit_subword(&t->kit, s), .size = 1};
}

static rd_code read_side(rd_parallel *t, const rd_dataset_args *a, int s, bool again,
                         const char *in, size_t n_in, rd_status *st)
{
    static const char *const what[] = {"source text read", "target text read"};
    rd_lines *l = NULL;
    rd_progress p;
    rd_lines_opts o = t->lines;
    rd_side_args sa = rd_parallel_side_args(t, s);
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
        rd_status_prefix(st, "%s", rd_parallel_named(a, s));
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
static rd_code open_again(rd_parallel *t, rd_status *st)
{
    for (int s = 0; s < 2; s++) {
        const rd_side_args sa = rd_parallel_side_args(t, s);
        if (t->side[s].head.again)
            RD_TRY(rd_side_open(&t->side[s], &t->files[s], &t->lines, &sa, st));
    }
done:
    return st->code;
}

/* Local rank 0 reads, the others map its memory; a rank that cannot map it reads, too.
 * Collective. */
static rd_code parallel_read_text(rd_parallel *t, const rd_dataset_args *a, rd_status *st)
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
rd_code rd_parallel_read(rd_parallel *t, const rd_dataset_args *a, rd_status *st)
{
    RD_TRY(parallel_read_text(t, a, st));
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
    RD_TRY(rd_parallel_open_kit(t, a, true, st));
    RD_TRY(parallel_read_text(t, a, st));
done:
    return st->code;
}
