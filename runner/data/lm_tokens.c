/* lm_tokens.c -- tokens that follow each other: in memory, in files of llm.c or nanoGPT, or in a
 * file that this program keeps in the log folder.
 *
 * A file is read where it is needed, so tokens of any number take no memory, and ranks of a host
 * share the system's copy of the file. Files of llm.c begin with 256 int32: magic number, version,
 * number of tokens. Those of nanoGPT are bare; so are files of 32 bits of other programs. Ours
 * begin with 64 bytes. */
#include "lm_impl.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LLMC_HEADER = 1024,
    LLMC_MAGIC = 20240520,
    LLMC_MAGIC_32 = 20240801,
    LLMC_CHOICES = 20240522,
    LLMC_VERSION = 1,
    LLMC_VERSION_32 = 7
};

/* The head of our file. */
typedef struct cache_head {
    char magic[8];
    uint64_t key, hash;
    int64_t n, n_docs, n_bytes, wide, spare;
} cache_head;
static const char cache_magic[8] = "RDIDS\0\0\1";

void rd_token_list_release(rd_token_list *l)
{
    rd_input_close(l->in);
    free(l->name);
    *l = (rd_token_list){0};
}

static size_t token_bytes(bool wide)
{
    return wide ? sizeof(uint32_t) : sizeof(uint16_t);
}

/* Opens the file, and reads its first n bytes, fewer if it is shorter. */
static rd_code token_file(const char *path, void *head, size_t n, size_t *got, rd_token_list *out,
                          rd_status *st)
{
    const char *kind;
    out->name = strdup(path);
    if (!out->name) return rd_fail(st, RD_EENV, "out of memory while opening '%s'", path);
    out->in = rd_input_open(path, RD_LISTED, &kind);
    if (!out->in) return rd_input_not_open(st, RD_EDATA, path, kind, errno, "check the path");
    const ssize_t k = rd_input_pread(out->in, head, n, 0);
    if (k < 0) return rd_input_fails(st, RD_EDATA, "read", path, errno, NULL);
    *got = (size_t)k;
    return RD_OK;
}

/* Reads the header of a file of llm.c. */
static rd_code token_llmc(const char *path, const int32_t *head, size_t got, int64_t size,
                          rd_token_list *out, rd_status *st)
{
    const int32_t want = head[0] == LLMC_MAGIC ? LLMC_VERSION : LLMC_VERSION_32;
    if (got < LLMC_HEADER)
        return rd_fail(st, RD_EDATA,
                       "'%s' begins as a file of llm.c, but has %" PRId64
                       " bytes, less than the header of %d; it is cut short",
                       path, size, LLMC_HEADER);
    if (head[1] != want)
        return rd_fail(st, RD_EDATA,
                       "'%s': version %d in a file of llm.c with magic number %d, but it must be "
                       "%d",
                       path, head[1], head[0], want);
    out->wide = head[0] == LLMC_MAGIC_32;
    out->begin = LLMC_HEADER;
    out->n = head[2];
    const int64_t need = LLMC_HEADER + out->n * (int64_t)token_bytes(out->wide);
    if (out->n < 0 || size != need)
        return rd_fail(st, RD_EDATA,
                       "'%s': the header announces %" PRId64
                       " tokens, so the file must have %" PRId64 " bytes, but has %" PRId64
                       "; copy it again",
                       path, out->n, need, size);
    return RD_OK;
}

/* Does a file without a header look as if its tokens had 32 bits? Their upper halves are all 0, and
 * the lower ones are not. In a text of 16 bits not every second token is token 0. */
static bool token_looks_wide(const int32_t *head, size_t got, int64_t size)
{
    enum { ENOUGH = 16 };
    const uint16_t *x = (const uint16_t *)(const void *)head;
    bool low = false;
    if (size % 4 != 0 || got < ENOUGH * sizeof *head) return false;
    for (size_t i = 0; i + 1 < got / sizeof *x; i += 2) {
        if (x[i + 1] != 0) return false;
        low |= x[i] != 0;
    }
    return low;
}

rd_code rd_token_list_open(const char *path, int64_t V, rd_token_list *out, rd_status *st)
{
    int32_t head[LLMC_HEADER / 4] = {0};
    size_t got;
    *out = (rd_token_list){0};
    RD_TRY(token_file(path, head, sizeof head, &got, out, st));
    const int64_t size = rd_input_stat(out->in)->st_size;
    if (size == 0) return rd_fail(st, RD_EDATA, "'%s' is empty; it needs tokens", path);
    if (got >= 4 && head[0] == LLMC_CHOICES)
        return rd_fail(st, RD_EDATA,
                       "'%s' is a file of multiple choice of llm.c, not one of tokens", path);
    if (got >= 4 && (head[0] == LLMC_MAGIC || head[0] == LLMC_MAGIC_32))
        return token_llmc(path, head, got, size, out, st);
    if (V <= 65536 && size % 2 != 0)
        return rd_fail(st, RD_EDATA,
                       "'%s' has %" PRId64
                       " bytes, an odd number, but its tokens have 16 bits each",
                       path, size);
    if (V > 65536 && size % 4 != 0)
        return rd_fail(st, RD_EDATA,
                       "'%s' has %" PRId64 " bytes, no multiple of 4, but its tokens have 32 bits "
                       "each, since the vocabulary has %" PRId64 " tokens",
                       path, size, V);
    out->wide = V > 65536 || token_looks_wide(head, got, size);
    out->n = size / (int64_t)token_bytes(out->wide);
done:
    return st->code;
}

rd_code rd_token_list_get(const rd_token_list *l, int64_t first, int64_t n, int64_t V, int32_t *out,
                          rd_status *st)
{
    const size_t each = token_bytes(l->wide);
    const char *from = l->mem;
    if (first < 0 || n < 0 || first > l->n - n)
        return rd_fail(st, RD_EBUG, "tokens %" PRId64 " + %" PRId64 " of %" PRId64, first, n, l->n);
    if (!l->mem) {
        /* The place of n narrow tokens is in the second half of out. */
        char *at = (char *)out + (size_t)n * (sizeof *out - each);
        const ssize_t k = rd_input_pread(l->in, at, (size_t)n * each,
                                         l->begin + first * (int64_t)each);
        if (k < 0) return rd_input_fails(st, RD_EDATA, "read", l->name, errno, NULL);
        if (k != (ssize_t)((size_t)n * each))
            return rd_fail(st, RD_EDATA,
                           "'%s' ends before token %" PRId64 ": it was cut while it was read",
                           l->name, first + n);
        from = at;
    } else {
        from += (size_t)first * each;
    }
    for (int64_t i = 0; i < n; i++) {
        uint32_t wide = 0;
        uint16_t narrow = 0;
        if (l->wide)
            memcpy(&wide, from + i * 4, sizeof wide);
        else
            memcpy(&narrow, from + i * 2, sizeof narrow);
        const uint32_t id = l->wide ? wide : narrow;
        if (id >= V)
            return rd_fail(st, RD_EDATA,
                           "%s%s%stoken %" PRIu32 " at position %" PRId64
                           " is outside of the vocabulary of %" PRId64 " tokens",
                           l->name ? "'" : "", l->name ? l->name : "", l->name ? "': " : "", id,
                           first + i, V);
        out[i] = (int32_t)id;
    }
    return RD_OK;
}

/* ---- writing ---- */

rd_code rd_token_writer_begin(rd_token_writer *w, bool wide, rd_block *mem, const char *path,
                              uint64_t key, rd_status *st)
{
    const cache_head empty = {.magic = ""};
    memset(w, 0, sizeof *w);
    w->head.wide = wide;
    w->head.in_file = path != NULL;
    w->key = key;
    w->mem = path ? NULL : mem;
    if (!path) return RD_OK;
    RD_TRY(rd_tmpfile_open(&w->file, path, st));
    RD_TRY(rd_tmpfile_write(&w->file, &empty, sizeof empty, st));
done:
    return st->code;
}

static rd_code token_flush(rd_token_writer *w, rd_status *st)
{
    const size_t at = (size_t)w->head.n * token_bytes(w->head.wide) - w->fill;
    if (w->fill == 0) return RD_OK;
    w->head.hash = rd_hash(w->head.hash, w->buf, w->fill);
    if (w->mem) {
        RD_TRY(rd_block_grow(w->mem, at + w->fill, st));
        memcpy(w->mem->p + at, w->buf, w->fill);
    } else {
        RD_TRY(rd_tmpfile_write(&w->file, w->buf, w->fill, st));
    }
    w->fill = 0;
done:
    return st->code;
}

rd_code rd_token_writer_add(rd_token_writer *w, const int32_t *ids, size_t n, rd_status *st)
{
    const size_t each = token_bytes(w->head.wide);
    for (size_t i = 0; i < n; i++) {
        if (w->fill + each > sizeof w->buf) RD_TRY(token_flush(w, st));
        const uint32_t wide = (uint32_t)ids[i];
        const uint16_t narrow = (uint16_t)ids[i];
        memcpy(w->buf + w->fill, w->head.wide ? (const void *)&wide : (const void *)&narrow, each);
        w->fill += each;
        w->head.n++;
    }
done:
    return st->code;
}

rd_code rd_token_writer_end(rd_token_writer *w, rd_status *st)
{
    cache_head h = {.key = w->key};
    RD_TRY(token_flush(w, st));
    if (w->mem) return rd_block_trim(w->mem, (size_t)w->head.n * token_bytes(w->head.wide), st);
    memcpy(h.magic, cache_magic, sizeof h.magic);
    h.hash = w->head.hash;
    h.n = w->head.n;
    h.n_docs = w->head.n_docs;
    h.n_bytes = w->head.n_bytes;
    h.wide = w->head.wide;
    if (lseek(w->file.fd, 0, SEEK_SET) < 0)
        return rd_fail(st, RD_EENV, "cannot write '%s': %s", w->file.path, strerror(errno));
    RD_TRY(rd_tmpfile_write(&w->file, &h, sizeof h, st));
    RD_TRY(rd_tmpfile_commit(&w->file, st));
done:
    return st->code;
}

void rd_token_writer_release(rd_token_writer *w)
{
    rd_tmpfile_release(&w->file);
}

rd_code rd_token_cache_open(const char *path, uint64_t key, rd_token_head *head, rd_token_list *out,
                            bool *found, rd_status *st)
{
    cache_head h;
    size_t got;
    bool there;
    *found = false;
    *out = (rd_token_list){0};
    RD_TRY(rd_path_there(path, &there, st));
    if (!there) return RD_OK;
    RD_TRY(token_file(path, &h, sizeof h, &got, out, st));
    const int64_t size = rd_input_stat(out->in)->st_size;
    *found = got == sizeof h && memcmp(h.magic, cache_magic, sizeof h.magic) == 0 && h.key == key &&
             h.n >= 0 && (h.wide == 0 || h.wide == 1) &&
             h.n <= (size - (int64_t)sizeof h) / (int64_t)token_bytes(h.wide == 1) &&
             size == (int64_t)sizeof h + h.n * (int64_t)token_bytes(h.wide == 1);
    if (!*found) {
        rd_token_list_release(out);
        return RD_OK;
    }
    out->begin = (int64_t)sizeof h;
    out->wide = h.wide == 1;
    out->n = h.n;
    *head = (rd_token_head){.n = h.n,
                            .n_docs = h.n_docs,
                            .n_bytes = h.n_bytes,
                            .hash = h.hash,
                            .wide = (int32_t)h.wide,
                            .in_file = 1};
done:
    return st->code;
}
