/* text_given.c -- given vocabularies and subword models, and their copies in the log folder.
 *
 * A training copies what its config names to LOGDIR/text. So the folder can be moved, and the files
 * may go. Later starts read the files where they are there, and else the copies. */
#include "text_store.h"
#include "rd/input.h"
#include <stdlib.h>

enum { VOCAB_BYTES = 1 << 29 };

void rd_text_given_free(rd_store_bytes *bytes)
{
    if (!bytes) return;
    rd_store_bytes_release(bytes);
    free(bytes);
}

/* Is the file there? Of "archive!member" the archive counts. */
static rd_code given_there(const char *path, bool *there, rd_status *st)
{
    RD_TRY(rd_path_there(path, there, st));
    const char *mark = *there ? NULL : strrchr(path, '!');
    if (mark && mark > path) {
        char *archive = strndup(path, (size_t)(mark - path));
        if (!archive) return rd_fail(st, RD_EENV, "out of memory for a path");
        (void)rd_path_there(archive, there, st);
        free(archive);
    }
done:
    return st->code;
}

/* Finds out whether the copies count. *o: text.json of the log folder, if they do. */
static rd_code given_kept(const rd_text_given_args *a, json_t **o, rd_status *st)
{
    const char *const file[] = {a->vocab[0], a->vocab[1], a->rules.subword_model,
                                a->rules.glossaries};
    bool all = true;
    *o = NULL;
    if (!a->logdir) return RD_OK;
    for (int i = 0; i < 4 && all && !a->kept_first; i++)
        if (file[i]) RD_TRY(given_there(file[i], &all, st));
    if (all && !a->kept_first) return RD_OK;
    RD_TRY(rd_store_read(a->logdir, o, st));
    if (*o && !rd_store_given(*o)) {
        json_decref(*o);
        *o = NULL;
    }
done:
    return st->code;
}

/* Reads the files as bytes. */
static rd_code given_read(const rd_text_given_args *a, rd_store_bytes *b, rd_status *st)
{
    (void)snprintf(b->scheme, sizeof b->scheme, "%s", a->rules.subword);
    b->given = true;
    b->replace = a->replace;
    b->limited = a->rules.threshold > 0;
    b->shared = strcmp(a->vocab[0], a->vocab[1]) == 0;
    for (int s = 0; s < 2; s++) {
        char *p = NULL;
        size_t n = 0;
        bool there = true;
        rd_status own = {0};
        if (rd_lines_read_most(a->vocab[s], VOCAB_BYTES, &p, &n, st) != RD_OK) {
            if (a->remember || !a->logdir) rd_status_no_file(st, rd_text_fetcher);
            rd_status_prefix(st, "%s_vocab_file", s == 0 ? "src" : "tgt");
        }
        if (st->code != RD_OK && a->logdir && !a->remember &&
            given_there(a->vocab[s], &there, &own) == RD_OK && !there)
            rd_status_prefix(st, "'%.300s/text' has no copy of it", a->logdir);
        RD_TRY(st->code);
        rd_strbuf_add(&b->part[RD_STORE_SOURCE + s], p, n);
        free(p);
        if (b->part[RD_STORE_SOURCE + s].failed) return rd_store_no_memory(st);
    }
    const rd_text_rules *r = &a->rules;
    if (strcmp(r->subword, "none") == 0) return RD_OK;
    RD_TRY(rd_subword_available(r->subword, st));
    if (r->subword_model &&
        rd_store_model(r->subword, r->subword_model, &b->part[RD_STORE_MODEL], st) != RD_OK)
        rd_status_prefix(st, "subword_model");
    RD_TRY(st->code);
    if (r->glossaries && rd_store_file(r->glossaries, &b->part[RD_STORE_GLOSSARIES], st) != RD_OK)
        rd_status_prefix(st, "bpe_glossaries");
done:
    return st->code;
}

static rd_code given_root(const rd_text_given_args *a, rd_store_bytes *b, rd_status *st)
{
    json_t *o = NULL;
    RD_TRY(given_kept(a, &o, st));
    if (!o) {
        (void)given_read(a, b, st);
    } else if (rd_store_load(a->logdir, o, b, st) == RD_OK && a->log) {
        rd_info(a->log, "vocabular%s%s of %s/text", b->shared ? "y" : "ies",
                b->part[RD_STORE_MODEL].n > 0 ? " and subword model" : "", a->logdir);
    }
done:
    json_decref(o);
    return st->code;
}

/* Makes the vocabularies. Other ranks than 0 read files that are no copies themselves. */
static rd_code given_vocab(const rd_text_given_args *a, const rd_store_bytes *b, bool here,
                           rd_text_kit *out, rd_status *st)
{
    for (int s = 0; s < 2; s++) {
        const rd_strbuf *p = &b->part[RD_STORE_SOURCE + s];
        const char *name = b->kept ? rd_store_name(b->shared, RD_STORE_SOURCE + s) : a->vocab[s];
        if (here)
            (void)rd_vocab_new_mem(name, rd_strbuf_str(p), p->n, b->replace, &out->vocab[s], st);
        else
            (void)rd_vocab_new(name, b->replace, &out->vocab[s], st);
        if (st->code != RD_OK) rd_status_prefix(st, "%s_vocab_file", s == 0 ? "src" : "tgt");
        RD_TRY(st->code);
    }
done:
    return st->code;
}

rd_code rd_text_subword_open(rd_comm *comm, const rd_text_rules *r, rd_subword **out, rd_status *st)
{
    rd_store_bytes b = {.given = false};
    *out = NULL;
    if (rd_rank_of(comm) == 0) {
        (void)snprintf(b.scheme, sizeof b.scheme, "%s", r->subword);
        if (rd_subword_available(r->subword, st) == RD_OK && r->subword_model &&
            rd_store_model(r->subword, r->subword_model, &b.part[RD_STORE_MODEL], st) != RD_OK)
            rd_status_prefix(st, "subword_model");
    }
    RD_TRY(rd_agree(comm, st));
    RD_TRY(rd_store_spread(comm, RD_STORE_SOURCE, &b, st));
    (void)rd_store_subword(&b, -1, out, st);
    RD_TRY(rd_agree(comm, st));
done:
    rd_store_bytes_release(&b);
    return st->code;
}

rd_code rd_text_given_open(const rd_text_given_args *a, rd_text_kit *out, rd_store_bytes **bytes,
                           rd_status *st)
{
    const bool root = rd_rank_of(a->comm) == 0;
    rd_store_bytes b = {.given = false};
    *out = (rd_text_kit){0};
    *bytes = NULL;
    if (root) (void)given_root(a, &b, st);
    RD_TRY(rd_agree(a->comm, st));
    int32_t kept = b.kept;
    if (rd_size_of(a->comm) > 1) RD_TRY(rd_comm_bcast(a->comm, &kept, sizeof kept, 0, st));
    RD_TRY(rd_store_spread(a->comm, kept ? RD_STORE_PARTS : RD_STORE_SOURCE, &b, st));
    if (given_vocab(a, &b, root || kept, out, st) == RD_OK)
        (void)rd_store_subword(&b, -1, &out->subword, st);
    for (int s = 0; s < 2 && b.limited && out->subword && st->code == RD_OK; s++)
        (void)rd_store_limited(&b, s, out->vocab[s], &out->limited[s], st);
    RD_TRY(rd_agree(a->comm, st));
    out->kept = b.kept;
    for (int s = 0; s < 2 && kept; s++) out->file[s] = rd_store_name(b.shared, RD_STORE_SOURCE + s);
    if (root && a->remember && !b.kept) {
        *bytes = malloc(sizeof **bytes);
        if (*bytes) {
            for (int i = RD_STORE_PIECES; i < RD_STORE_PARTS; i++) rd_strbuf_release(&b.part[i]);
            **bytes = b;
            return RD_OK;
        }
        rd_fail(st, RD_EENV, "out of memory for a vocabulary");
    }
done:
    rd_store_bytes_release(&b);
    return st->code;
}

/* Has the folder the same bytes, whole? */
static bool given_same(const rd_store_bytes *b, const char *logdir, const json_t *o)
{
    rd_store_bytes was = {.given = false};
    rd_status own = {0};
    bool same = rd_store_load(logdir, o, &was, &own) == RD_OK &&
                strcmp(was.scheme, b->scheme) == 0 && was.replace == b->replace &&
                was.limited == b->limited;
    for (int i = 0; same && i < RD_STORE_PIECES; i++)
        same = was.part[i].n == b->part[i].n &&
               memcmp(rd_strbuf_str(&was.part[i]), rd_strbuf_str(&b->part[i]), was.part[i].n) == 0;
    rd_store_bytes_release(&was);
    return same;
}

rd_code rd_text_given_keep(const rd_store_bytes *bytes, const char *logdir, rd_status *st)
{
    json_t *o = NULL;
    rd_status own = {0};
    /* A damaged text.json is written anew. */
    const bool read = rd_store_read(logdir, &o, &own) == RD_OK;
    if (read && o && (!rd_store_given(o) || given_same(bytes, logdir, o))) goto done;
    RD_TRY(rd_store_begin(logdir, st));
    RD_TRY(rd_store_write(logdir, bytes,
                          json_pack("{s:b, s:s, s:b, s:b, s:b}", "given", 1, "subword",
                                    bytes->scheme, "shared_vocab", (int)bytes->shared,
                                    "replace_utf8", (int)bytes->replace, "limited",
                                    (int)bytes->limited),
                          false, st));
done:
    json_decref(o);
    return st->code;
}
