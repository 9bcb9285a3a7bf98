/* shard_files.c -- reads encoded images in place: from shards with pread at an offset, files of a
 * folder whole.
 *
 * A shard is opened when its first sample is needed. Only MAX_OPEN shards stay open, so that a set
 * of a thousand shards does not need a thousand descriptors. An open shard that no thread is
 * reading from is closed to make way for another. */
#include "images_impl.h"
#include "rd/file.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MAX_OPEN = 64 };
static const uint32_t no_shard = UINT32_MAX; /* slot.shard of an empty slot */

typedef struct slot {
    uint32_t shard;
    rd_input *in; /* owned; NULL: empty */
    int users;    /* number of threads that read from it */
} slot;

struct rd_shard_files {
    const char *const *paths; /* borrowed */
    int64_t n;
    pthread_mutex_t lock;
    pthread_cond_t freed; /* signalled when a slot has no more users */
    slot slot[MAX_OPEN];
    int hand; /* slot at which the search for a shard to close continues */
};

rd_code rd_shard_files_new(const char *const *paths, int64_t n, rd_shard_files **out, rd_status *st)
{
    rd_shard_files *f = calloc(1, sizeof *f);
    *out = f;
    if (!f) return rd_fail(st, RD_EENV, "out of memory");
    f->paths = paths;
    f->n = n;
    (void)pthread_mutex_init(&f->lock, NULL);
    (void)pthread_cond_init(&f->freed, NULL);
    for (int i = 0; i < MAX_OPEN; i++) f->slot[i] = (slot){no_shard, NULL, 0};
    return RD_OK;
}

void rd_shard_files_free(rd_shard_files *f)
{
    if (!f) return;
    for (int i = 0; i < MAX_OPEN; i++) rd_input_close(f->slot[i].in);
    (void)pthread_cond_destroy(&f->freed);
    (void)pthread_mutex_destroy(&f->lock);
    free(f);
}

/* Returns the slot that holds the shard, or an empty one; closes a shard without users if none is
 * empty, and waits if all are in use. The caller holds the lock. */
static slot *find_slot(rd_shard_files *f, uint32_t shard)
{
    for (int i = 0; i < MAX_OPEN; i++)
        if (f->slot[i].shard == shard) return &f->slot[i];
    for (;;) {
        for (int i = 0; i < MAX_OPEN; i++)
            if (f->slot[i].shard == no_shard) return &f->slot[i];
        for (int i = 0; i < MAX_OPEN; i++) {
            slot *s = &f->slot[f->hand];
            f->hand = (f->hand + 1) % MAX_OPEN;
            if (s->users > 0) continue;
            rd_input_close(s->in);
            *s = (slot){no_shard, NULL, 0};
            return s;
        }
        (void)pthread_cond_wait(&f->freed, &f->lock);
    }
}

static rd_code acquire_slot(rd_shard_files *f, uint32_t shard, slot **out, rd_status *st)
{
    if (shard >= f->n) return rd_fail(st, RD_EBUG, "shard %u of %" PRId64, shard, f->n);
    (void)pthread_mutex_lock(&f->lock);
    slot *s = find_slot(f, shard);
    if (s->shard != shard) {
        const char *kind;
        s->in = rd_input_open(f->paths[shard], RD_LISTED, &kind);
        if (s->in)
            s->shard = shard;
        else if (kind)
            rd_fail(st, RD_EDATA, "'%s' is %s, not a regular file; it was one when the run began",
                    f->paths[shard], kind);
        else
            rd_input_fails(st, RD_EDATA, "open", f->paths[shard], errno,
                           "it existed when the run began");
    }
    if (st->code == RD_OK) s->users++;
    (void)pthread_mutex_unlock(&f->lock);
    *out = s;
    return st->code;
}

static void release_slot(rd_shard_files *f, slot *s)
{
    (void)pthread_mutex_lock(&f->lock);
    if (--s->users == 0) (void)pthread_cond_signal(&f->freed);
    (void)pthread_mutex_unlock(&f->lock);
}

rd_code rd_shard_files_read(rd_shard_files *f, uint32_t shard, int64_t at, size_t n, uint8_t *out,
                            rd_status *st)
{
    slot *s;
    RD_TRY(acquire_slot(f, shard, &s, st));
    const ssize_t k = rd_input_pread(s->in, out, n, at);
    if (k < 0)
        rd_input_fails(st, RD_EDATA, "read", f->paths[shard], errno, NULL);
    else if ((size_t)k < n)
        rd_fail(st, RD_EDATA,
                "cannot read '%s' at byte %" PRId64 ": it became shorter during the run",
                f->paths[shard], at + k);
    release_slot(f, s);
done:
    return st->code;
}

rd_code rd_image_file(const char *root, const char *name, rd_scratch *s, size_t *n, rd_status *st)
{
    rd_strbuf path = {0};
    const char *kind;
    rd_input *in = NULL;
    *n = 0;
    rd_strbuf_printf(&path, root[0] ? "%s/%s" : "%s%s", root, name);
    if (path.failed) {
        rd_fail(st, RD_EENV, "out of memory");
        goto done;
    }
    in = rd_input_open(path.s, root[0] ? RD_LISTED : RD_MAYBE, &kind);
    if (!in) {
        if (kind)
            rd_fail(st, RD_EDATA, "'%s' is %s, not a regular file", path.s, kind);
        else
            rd_input_fails(st, RD_EDATA, "read", path.s, errno, NULL);
        goto done;
    }
    const struct stat *sb = rd_input_stat(in);
    if (sb->st_size > RD_ENCODED_MAX) {
        rd_fail(st, RD_EDATA, "'%s' is larger than an image may be: %d bytes", path.s,
                RD_ENCODED_MAX);
        goto done;
    }
    RD_TRY(rd_scratch_reserve(&s->bytes, &s->n_bytes, (size_t)sb->st_size, st));
    /* If the file became shorter, the decoder reports what is missing. */
    const ssize_t k = rd_input_read(in, s->bytes, (size_t)sb->st_size);
    if (k < 0)
        rd_input_fails(st, RD_EDATA, "read", path.s, errno, NULL);
    else
        *n = (size_t)k;
done:
    rd_input_close(in);
    rd_strbuf_release(&path);
    return st->code;
}
