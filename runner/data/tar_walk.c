/* tar_walk.c -- the members of a tar archive and the offsets of their bytes.
 *
 * libarchive reads the headers. The bytes of an uncompressed archive are skipped, so that a walk
 * through a hundred gigabytes reads a few hundred megabytes.
 *
 * An archive that stops where a header could begin looks complete to libarchive (and to tar). Here
 * it counts as cut short unless two blocks of zeros follow, with which POSIX ends an archive.
 * Otherwise an incomplete copy would train on a part of the data without a message. */
#include "images_impl.h"
#include "rd/file.h"
#include "rd/gunzip.h"
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum {
    TAR_BLOCK = 512,
    END_BLOCKS = 2,
    READ_PLAIN = 2048, /* headers are far apart */
    MAX_RATIO = 100,
    SMALL = 1 << 20
};

/* A member that hard links lead to. */
typedef struct tar_link {
    char *name; /* owned */
    bool found;
    int64_t at, bytes; /* as in rd_tar_member */
    char *copy;        /* its bytes in a compressed archive; owned, unless shared */
    bool shared;       /* copy belongs to another link */
} tar_link;

struct rd_tar {
    char *name;
    struct archive *archive;
    rd_gunzip *gunzip; /* the archive reads from this; NULL: from read_at */
    rd_input *in;      /* NULL: in memory */
    bool own_in, compressed;
    const uint8_t *mem;  /* borrowed */
    int64_t base, size;  /* offset of the archive in the file, and its size, in bytes */
    int64_t pos;         /* libarchive's position in the archive */
    int64_t end;         /* position where the next header, or the end, must be */
    int64_t total;       /* bytes that the members so far claim to have */
    int64_t ignored;     /* number of links and devices skipped */
    char *first_ignored; /* owned; NULL: none */
    char *member;        /* name of the last member; owned */
    tar_link *link;      /* targets of hard links, sorted by name; owned */
    int64_t n_links;
    bool links_known;        /* link is filled */
    const tar_link *now;     /* the last member is a hard link to it; NULL: a file */
    void (*part)(void *ctx); /* hears of each part that is read; NULL: nobody does */
    void *part_ctx;
    uint8_t buf[READ_PLAIN];
};

/* Reads at most n bytes at position `at` of the archive. Returns their number; -1: see errno. */
static int64_t read_at(const rd_tar *t, int64_t at, void *p, int64_t n)
{
    const int64_t left = t->size - at;
    if (left <= 0) return 0;
    if (n > left) n = left;
    if (!t->in) {
        memcpy(p, t->mem + at, (size_t)n);
        return n;
    }
    return rd_input_pread(t->in, p, (size_t)n, t->base + at);
}

static la_ssize_t on_read(struct archive *a, void *self, const void **p)
{
    rd_tar *t = self;
    const int64_t k = read_at(t, t->pos, t->buf, READ_PLAIN);
    if (k < 0) {
        archive_set_error(a, errno, "%s", strerror(errno));
        return -1;
    }
    t->pos += k;
    *p = t->buf;
    return k;
}

static la_int64_t on_skip(struct archive *a, void *self, la_int64_t n)
{
    rd_tar *t = self;
    (void)a;
    if (n < 0) return 0;
    const int64_t left = t->size - t->pos, k = n < left ? n : left;
    t->pos += k;
    return k;
}

void rd_archive_fault(struct archive *a, const rd_input *in, const char *name, rd_status *st)
{
    const int err = rd_input_error(in); /* libarchive's own number may be another one */
    if (err != 0)
        rd_input_fails(st, RD_EDATA, "read", name, err, NULL);
    else if (archive_errno(a) == ENOMEM)
        rd_fail(st, RD_EENV, "out of memory while reading '%s'", name);
}

static rd_code fails(const rd_tar *t, rd_status *st)
{
    if (rd_gunzip_failed(t->gunzip, st)) return st->code;
    rd_archive_fault(t->archive, t->in, t->name, st);
    const char *why = archive_error_string(t->archive);
    return rd_fail(
        st, RD_EDATA,
        "'%s' is not a complete tar archive: %s; it may be cut short or damaged, copy it again",
        t->name, why ? why : "unknown error");
}

static rd_code tar_walk_start(rd_tar *t, rd_status *st)
{
    unsigned char head[16];
    const int64_t k = read_at(t, 0, head, sizeof head);
    if (k < 0) return rd_input_fails(st, RD_EDATA, "read", t->name, errno, NULL);
    if (k == 0) return rd_fail(st, RD_EDATA, "'%s' is empty, not a tar archive", t->name);
    t->compressed = rd_compressed(head, (size_t)k);
    t->archive = archive_read_new();
    if (!t->archive) return rd_fail(st, RD_EENV, "out of memory while reading '%s'", t->name);
    (void)archive_read_support_format_tar(t->archive);
    if (t->compressed) {
        RD_TRY(rd_gunzip_new(t->name, &(rd_gzip_input){t->in, t->base, t->size, t->mem}, RD_EDATA,
                             &t->gunzip, st));
        if (rd_gunzip_open(t->gunzip, t->archive) != ARCHIVE_OK) return fails(t, st);
        return RD_OK;
    }
    (void)archive_read_set_read_callback(t->archive, on_read);
    (void)archive_read_set_skip_callback(t->archive, on_skip);
    (void)archive_read_set_callback_data(t->archive, t);
    if (archive_read_open1(t->archive) != ARCHIVE_OK) return fails(t, st);
done:
    return st->code;
}

static rd_code tar_walk_make(const char *name, rd_tar **out, rd_status *st)
{
    rd_tar *t = calloc(1, sizeof *t);
    *out = t;
    if (!t || !(t->name = strdup(name)))
        return rd_fail(st, RD_EENV, "out of memory while reading '%s'", name);
    return RD_OK;
}

rd_code rd_tar_new(const char *path, rd_tar **out, rd_status *st)
{
    const char *kind;
    RD_TRY(tar_walk_make(path, out, st));
    rd_tar *t = *out;
    t->own_in = true;
    t->in = rd_input_open(path, RD_MAYBE, &kind);
    if (!t->in) return rd_input_not_open(st, RD_EDATA, path, kind, errno, "check the path");
    t->size = rd_input_stat(t->in)->st_size;
    RD_TRY(tar_walk_start(t, st));
done:
    return st->code;
}

rd_code rd_tar_new_inner(rd_tar *outer, const rd_tar_member *m, rd_tar **out, rd_status *st)
{
    rd_strbuf name = {0};
    *out = NULL;
    rd_strbuf_printf(&name, "%s!%s", outer->name, m->name);
    RD_TRY(tar_walk_make(rd_strbuf_str(&name), out, st));
    rd_tar *t = *out;
    t->in = outer->in;
    t->mem = outer->mem ? outer->mem + m->at : NULL;
    t->base = outer->base + (outer->mem ? 0 : m->at - outer->base);
    t->size = m->bytes;
    RD_TRY(tar_walk_start(t, st));
done:
    rd_strbuf_release(&name);
    return st->code;
}

rd_code rd_tar_new_mem(const char *name, const void *p, size_t n, rd_tar **out, rd_status *st)
{
    RD_TRY(tar_walk_make(name, out, st));
    (*out)->mem = p;
    (*out)->size = (int64_t)n;
    RD_TRY(tar_walk_start(*out, st));
done:
    return st->code;
}

void rd_tar_free(rd_tar *t)
{
    if (!t) return;
    (void)archive_read_free(t->archive);
    rd_gunzip_free(t->gunzip);
    if (t->own_in) rd_input_close(t->in);
    for (int64_t i = 0; i < t->n_links; i++) {
        free(t->link[i].name);
        if (!t->link[i].shared) free(t->link[i].copy);
    }
    free(t->link);
    free(t->first_ignored);
    free(t->member);
    free(t->name);
    free(t);
}

double rd_tar_share(const rd_tar *t)
{
    const int64_t pos = t->gunzip ? rd_gunzip_taken(t->gunzip) : t->pos;
    return t->size > 0 && pos < t->size ? (double)pos / (double)t->size : 1.0;
}

void rd_tar_on_part(rd_tar *t, void (*fn)(void *ctx), void *ctx)
{
    t->part = fn;
    t->part_ctx = ctx;
}

int64_t rd_tar_ignored(const rd_tar *t, const char **first)
{
    *first = t->first_ignored ? t->first_ignored : "";
    return t->ignored;
}

/* Checks that two blocks of zeros follow the last member. */
static rd_code check_end(rd_tar *t, rd_status *st)
{
    uint8_t zero[END_BLOCKS * TAR_BLOCK];
    bool whole;
    if (t->compressed) {
        /* libarchive consumes both blocks, if they are there. */
        whole = archive_filter_bytes(t->archive, 0) >= t->end + END_BLOCKS * TAR_BLOCK;
    } else {
        const int64_t k = read_at(t, t->end, zero, sizeof zero);
        if (k < 0) return rd_input_fails(st, RD_EDATA, "read", t->name, errno, NULL);
        whole = k == (int64_t)sizeof zero;
        for (size_t i = 0; i < sizeof zero && whole; i++) whole = zero[i] == 0;
    }
    if (whole) return t->gunzip ? rd_gunzip_end(t->gunzip, st) : RD_OK;
    return rd_fail(st, RD_EDATA,
                   "'%s' ends at byte %" PRId64
                   " without the two empty blocks that end a tar archive: it is cut short, copy "
                   "it again",
                   t->name, t->size);
}

/* Is the name absolute, or does it have ".."? */
static bool leads_out(const char *name)
{
    if (name[0] == '/') return true;
    for (const char *p = name; *p; p += strcspn(p, "/"), p += *p == '/')
        if (strncmp(p, "..", 2) == 0 && (p[2] == '/' || p[2] == '\0')) return true;
    return false;
}

/* Takes the name of a member. */
static rd_code take_name(rd_tar *t, struct archive_entry *e, rd_tar_member *m, rd_status *st)
{
    const char *name = archive_entry_pathname(e);
    if (!name) name = archive_entry_pathname_utf8(e);
    if (!name || !name[0])
        return rd_fail(st, RD_EDATA, "'%s' has a member whose name cannot be read", t->name);
    if (leads_out(name))
        return rd_fail(st, RD_EDATA,
                       "'%s': the member '%s' leads out of the archive; this is not a data set",
                       t->name, name);
    while (strncmp(name, "./", 2) == 0) name += 2;
    free(t->member);
    t->member = strdup(name);
    if (!t->member) return rd_fail(st, RD_EENV, "out of memory while reading '%s'", t->name);
    m->name = t->member;
    return RD_OK;
}

/* Counts the bytes that members claim to have, against what the archive can hold. */
static rd_code take_bytes(rd_tar *t, int64_t bytes, rd_status *st)
{
    const int64_t limit = t->compressed ? t->size * MAX_RATIO + SMALL : t->size;
    if (bytes > limit - t->total)
        return rd_fail(st, RD_EDATA,
                       "'%s' claims to hold more than %" PRId64 " bytes, in a file of %" PRId64,
                       t->name, limit, t->size);
    t->total += bytes;
    return RD_OK;
}

static rd_code fill_member(rd_tar *t, struct archive_entry *e, rd_tar_member *m, rd_status *st)
{
    RD_TRY(take_name(t, e, m, st));
    m->bytes = archive_entry_size(e);
    const int64_t at = archive_filter_bytes(t->archive, 0);
    if (m->bytes < 0 || archive_entry_sparse_count(e) > 0)
        return rd_fail(st, RD_EDATA, "'%s': the member '%s' is sparse, or has no size", t->name,
                       m->name);
    if (!t->compressed && (at > t->size || m->bytes > t->size - at))
        return rd_fail(st, RD_EDATA,
                       "'%s': the member '%s' has %" PRId64 " bytes, but only %" PRId64
                       " follow: the archive is cut short, copy it again",
                       t->name, m->name, m->bytes, t->size > at ? t->size - at : 0);
    RD_TRY(take_bytes(t, m->bytes, st));
    m->at = t->compressed ? -1 : t->base + at;
    t->end = at + (m->bytes + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
done:
    return st->code;
}

/* ---- hard links: their bytes are those of another member ---- */

/* Returns the name that a header gives, without "./" in front; "" without one. */
static const char *plain_name(const char *name)
{
    if (!name) return "";
    while (strncmp(name, "./", 2) == 0) name += 2;
    return name;
}

/* Returns the target of a hard link that has no bytes itself; NULL: the header is no such link. */
static const char *link_target(struct archive_entry *e)
{
    const char *to = archive_entry_hardlink(e);
    return to && !(archive_entry_size_is_set(e) && archive_entry_size(e) > 0) ? plain_name(to)
                                                                              : NULL;
}

static int link_by_name(const void *a, const void *b)
{
    return strcmp(((const tar_link *)a)->name, ((const tar_link *)b)->name);
}

static tar_link *find_link(const rd_tar *t, const char *name)
{
    const tar_link key = {.name = (char *)(uintptr_t)name};
    return t->n_links > 0
               ? bsearch(&key, t->link, (size_t)t->n_links, sizeof *t->link, link_by_name)
               : NULL;
}

/* Opens the same archive once more. */
static rd_code open_again(const rd_tar *t, rd_tar **out, rd_status *st)
{
    RD_TRY(tar_walk_make(t->name, out, st));
    (*out)->in = t->in;
    (*out)->mem = t->mem;
    (*out)->base = t->base;
    (*out)->size = t->size;
    RD_TRY(tar_walk_start(*out, st));
done:
    return st->code;
}

/* Lists the targets of all hard links, each once. */
static rd_code list_targets(rd_tar *t, rd_status *st)
{
    rd_tar *again = NULL;
    struct archive_entry *e;
    int64_t cap = 0;
    int rc;
    RD_TRY(open_again(t, &again, st));
    while ((rc = archive_read_next_header(again->archive, &e)) == ARCHIVE_OK ||
           rc == ARCHIVE_WARN) {
        const char *to = link_target(e);
        if (!to) continue;
        if (t->n_links == cap) {
            cap = 2 * cap + 64;
            tar_link *more = realloc(t->link, (size_t)cap * sizeof *more);
            if (!more) RD_TRY(rd_fail(st, RD_EENV, "out of memory while reading '%s'", t->name));
            t->link = more;
        }
        t->link[t->n_links] = (tar_link){.name = strdup(to)};
        if (!t->link[t->n_links++].name)
            RD_TRY(rd_fail(st, RD_EENV, "out of memory while reading '%s'", t->name));
    }
    if (rc != ARCHIVE_EOF) RD_TRY(fails(again, st));
    qsort(t->link, (size_t)t->n_links, sizeof *t->link, link_by_name);
    int64_t kept = 0;
    for (int64_t i = 0; i < t->n_links; i++) {
        if (kept > 0 && strcmp(t->link[kept - 1].name, t->link[i].name) == 0)
            free(t->link[i].name);
        else
            t->link[kept++] = t->link[i];
    }
    t->n_links = kept;
done:
    rd_tar_free(again);
    return st->code;
}

/* Notes where the bytes of the targets are; keeps them if the archive is compressed. */
static rd_code find_targets(rd_tar *t, rd_status *st)
{
    rd_tar *again = NULL;
    struct archive_entry *e;
    rd_tar_member m;
    int rc;
    RD_TRY(open_again(t, &again, st));
    while ((rc = archive_read_next_header(again->archive, &e)) == ARCHIVE_OK ||
           rc == ARCHIVE_WARN) {
        const char *to = link_target(e);
        if (!to && archive_entry_filetype(e) != AE_IFREG) continue;
        tar_link *mine = find_link(t, plain_name(archive_entry_pathname(e)));
        if (to) { /* a link to a link */
            const tar_link *from = find_link(t, to);
            if (!mine || mine->found || !from->found) continue;
            mine->at = from->at;
            mine->bytes = from->bytes;
            mine->copy = from->copy;
            mine->shared = mine->found = true;
            continue;
        }
        RD_TRY(fill_member(again, e, &m, st));
        if (!mine || mine->found) continue;
        mine->at = m.at;
        mine->bytes = m.bytes;
        if (m.at < 0) {
            mine->copy = malloc((size_t)m.bytes + 1);
            if (!mine->copy)
                RD_TRY(rd_fail(st, RD_EENV, "out of memory for %" PRId64 " bytes of '%s'", m.bytes,
                               m.name));
            RD_TRY(rd_tar_read(again, &m, mine->copy, st));
        }
        mine->found = true;
    }
    if (rc != ARCHIVE_EOF) RD_TRY(fails(again, st));
done:
    rd_tar_free(again);
    return st->code;
}

/* Fills *m with the hard link of the header e. m->name is NULL if it leads to no file. */
static rd_code fill_link(rd_tar *t, struct archive_entry *e, const char *to, rd_tar_member *m,
                         rd_status *st)
{
    if (!t->links_known) {
        t->links_known = true;
        RD_TRY(list_targets(t, st));
        RD_TRY(find_targets(t, st));
    }
    const tar_link *l = find_link(t, to);
    if (!l || !l->found) return RD_OK;
    RD_TRY(take_name(t, e, m, st));
    m->at = l->at;
    m->bytes = l->bytes;
    t->now = l;
    if (l->at < 0) RD_TRY(take_bytes(t, l->bytes, st)); /* each link is copied by the caller */
done:
    return st->code;
}

rd_code rd_tar_next(rd_tar *t, rd_tar_member *m, rd_status *st)
{
    struct archive_entry *e;
    *m = (rd_tar_member){0};
    t->now = NULL;
    for (;;) {
        const int rc = archive_read_next_header(t->archive, &e);
        if (rc == ARCHIVE_EOF) return check_end(t, st);
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN) return fails(t, st);
        const char *to = link_target(e);
        if (!to && archive_entry_filetype(e) == AE_IFREG) return fill_member(t, e, m, st);
        t->end = archive_filter_bytes(t->archive, 0);
        if (to) RD_TRY(fill_link(t, e, to, m, st));
        if (m->name) return RD_OK;
        if (archive_entry_filetype(e) == AE_IFDIR) continue;
        if (t->ignored++ == 0) t->first_ignored = strdup(plain_name(archive_entry_pathname(e)));
    }
done:
    return st->code;
}

static rd_code read_link(rd_tar *t, const rd_tar_member *m, char *p, rd_status *st)
{
    if (t->now->copy) {
        memcpy(p, t->now->copy, (size_t)m->bytes);
        return RD_OK;
    }
    for (int64_t got = 0; got < m->bytes;) {
        const int64_t k = read_at(t, m->at - t->base + got, p + got, m->bytes - got);
        if (k < 0) return rd_input_fails(st, RD_EDATA, "read", t->name, errno, NULL);
        if (k == 0)
            return rd_fail(st, RD_EDATA, "'%s': the member '%s' ends early", t->name, m->name);
        got += k;
    }
    return RD_OK;
}

rd_code rd_tar_read(rd_tar *t, const rd_tar_member *m, void *out, rd_status *st)
{
    char *p = out;
    int64_t left = m->bytes;
    if (t->now) return read_link(t, m, p, st);
    while (left > 0) {
        const int64_t most = left < RD_PART_BYTES ? left : RD_PART_BYTES;
        const la_ssize_t k = archive_read_data(t->archive, p, (size_t)most);
        if (k < 0) return fails(t, st);
        if (k == 0)
            return rd_fail(st, RD_EDATA, "'%s': the member '%s' ends early", t->name, m->name);
        p += k;
        left -= k;
        if (t->part) t->part(t->part_ctx);
    }
    return RD_OK;
}
