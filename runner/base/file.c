/* file.c -- reads and writes whole files, see file.h.
 *
 * Files are read straight into their buffer. A file that begins with gzip's two magic bytes is then
 * decompressed (gunzip.c). */
#include "rd/file.h"
#include "rd/gunzip.h"
#include "rd/input.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 1 << 18 };

/* Returns the system's text for an error number, in buf. Its first letter is lower case, unless it
 * begins an acronym. */
static const char *errno_text(int err, char buf[128])
{
    snprintf(buf, 128, "%s", strerrordesc_np(err) ? strerrordesc_np(err) : "unknown error");
    if (islower((unsigned char)buf[1])) buf[0] = (char)tolower((unsigned char)buf[0]);
    return buf;
}

/* Fails with "cannot <verb> '<path>': <reason>; <remedy>". */
static rd_code fail_errno(rd_status *st, rd_code code, const char *where, const char *verb,
                          const char *path, int err)
{
    char buf[128];
    return rd_fail_(st, code, where, "cannot %s '%s': %s%s", verb, path, errno_text(err, buf),
                    rd_fault_remedy(err));
}

/* ---- reading ---- */

/* A file that is being read. */
typedef struct source {
    rd_input *in;
    const char *name;
    unsigned char *block; /* BLOCK bytes */
    size_t n_held;        /* bytes of block that were read ahead and not yet delivered */
    size_t max;           /* most bytes of the result */
    const char *what;     /* what the file is, for the message about max */
} source;

typedef struct bytes {
    char *p; /* owned */
    size_t n, cap;
} bytes;

/* Makes space for `more` bytes and the '\0'. */
static rd_code bytes_reserve(bytes *b, size_t more, const char *name, rd_status *st)
{
    if (b->cap - b->n > more) return RD_OK; /* one byte stays free for the '\0' */
    if (more > SIZE_MAX / 4)
        return rd_fail(st, RD_EENV, "'%s' is too large for this machine's memory", name);
    size_t cap = b->cap + b->cap / 2;
    if (cap < b->n + more + 1) cap = b->n + more + 1;
    char *p = realloc(b->p, cap);
    if (!p) return rd_fail(st, RD_EENV, "out of memory: '%s' needs %zu bytes", name, cap);
    b->p = p;
    b->cap = cap;
    return RD_OK;
}

static rd_code check_size(const source *s, size_t n, rd_code code, rd_status *st)
{
    if (n <= s->max) return RD_OK;
    return rd_fail(st, code, "'%s' has more than %zu MiB, the most of %s; is it the right file?",
                   s->name, s->max >> 20, s->what);
}

static rd_code read_plain(source *s, rd_code code, bytes *b, rd_status *st)
{
    RD_TRY(bytes_reserve(b, s->n_held, s->name, st));
    memcpy(b->p, s->block, s->n_held);
    b->n = s->n_held;
    for (;;) {
        /* A file of known size has its space already. One byte more shows the end. */
        RD_TRY(bytes_reserve(b, b->cap - b->n > 1 ? 1 : BLOCK, s->name, st));
        const ssize_t got = rd_input_read(s->in, b->p + b->n, b->cap - b->n - 1);
        if (got < 0)
            return fail_errno(st, rd_fault_code(errno, code), RD_HERE, "read", s->name, errno);
        if (got == 0) break;
        b->n += (size_t)got;
        RD_TRY(check_size(s, b->n, code, st));
    }
done:
    return st->code;
}

/* Replaces the gzip bytes in b by what they decompress to. */
static rd_code unpack(const source *s, rd_code code, bytes *b, rd_status *st)
{
    const rd_gzip_input from = {.size = (int64_t)b->n, .mem = b->p};
    bytes all = {0};
    rd_gunzip *g = NULL;
    const void *p = NULL;
    ssize_t n;
    RD_TRY(rd_gunzip_new(s->name, &from, code, &g, st));
    RD_TRY(bytes_reserve(&all, 3 * b->n, s->name, st));
    while ((n = rd_gunzip_read(g, &p)) > 0) {
        RD_TRY(check_size(s, all.n + (size_t)n, code, st));
        RD_TRY(bytes_reserve(&all, (size_t)n, s->name, st));
        memcpy(all.p + all.n, p, (size_t)n);
        all.n += (size_t)n;
    }
    if (rd_gunzip_failed(g, st)) goto done;
    free(b->p);
    *b = all;
    all.p = NULL;
done:
    free(all.p);
    rd_gunzip_free(g);
    return st->code;
}

rd_code rd_file_read(const char *path, rd_code code, char **out, size_t *n, rd_status *st)
{
    return rd_file_read_limited(path, code, SIZE_MAX / 4, "a file", out, n, st);
}

rd_code rd_file_read_limited(const char *path, rd_code code, size_t max, const char *what,
                             char **out, size_t *n, rd_status *st)
{
    const bool is_stdin = strcmp(path, "-") == 0 || strcmp(path, "/dev/stdin") == 0;
    source s = {.name = is_stdin ? "standard input" : path, .max = max, .what = what};
    bytes b = {0};
    const char *kind = NULL;
    *out = NULL;
    *n = 0;
    if (path[0] == '\0') return rd_fail(st, code, "the name of a file to read is empty");
    const int std_in = is_stdin ? dup(STDIN_FILENO) : -1;
    s.in = !is_stdin    ? rd_input_open_or_pipe(path, RD_MAYBE, &kind)
           : std_in < 0 ? NULL
                        : rd_input_of(std_in, s.name);
    if (!s.in && kind)
        return rd_fail(st, code, "cannot read '%s': it is %s, not a file", path, kind);
    if (!s.in) {
        const int err = errno;
        if (std_in >= 0) close(std_in);
        return fail_errno(st, rd_fault_code(err, code), RD_HERE, "open", s.name, err);
    }
    const struct stat *info = rd_input_stat(s.in);
    if (S_ISDIR(info->st_mode)) {
        rd_fail(st, code, "cannot read '%s': it is a folder, not a file", s.name);
        goto done;
    }
    s.block = malloc(BLOCK);
    if (!s.block) {
        rd_fail(st, RD_EENV, "out of memory reading '%s'", s.name);
        goto done;
    }
    while (s.n_held < 2) { /* a pipe may deliver one byte at a time */
        const ssize_t got = rd_input_read(s.in, s.block + s.n_held, BLOCK - s.n_held);
        if (got < 0) {
            fail_errno(st, rd_fault_code(errno, code), RD_HERE, "read", s.name, errno);
            goto done;
        }
        if (got == 0) break;
        s.n_held += (size_t)got;
    }
    const bool gzip = rd_gzip_begins(s.block, s.n_held);
    const size_t known = S_ISREG(info->st_mode) && info->st_size > 0 ? (size_t)info->st_size : 0;
    RD_TRY(check_size(&s, known, code, st));
    RD_TRY(bytes_reserve(&b, known > s.n_held ? known + 1 : s.n_held + 1, s.name, st));
    RD_TRY(read_plain(&s, code, &b, st));
    if (gzip) RD_TRY(unpack(&s, code, &b, st));
    b.p[b.n] = '\0';
    if (b.cap - b.n > 4096) { /* the estimate was too high: return the rest */
        char *p = realloc(b.p, b.n + 1);
        if (p) b.p = p;
    }
    *out = b.p;
    *n = b.n;
    b.p = NULL;
done:
    free(b.p);
    free(s.block);
    rd_input_close(s.in);
    return st->code;
}

/* ---- writing ---- */

/* The temporary files that are open now. rd_tmpfile_abandon unlinks them, so a dying process leaves
 * none behind. The list has no locks, because a signal handler reads it. A file that finds no free
 * place is not listed; the next start removes it (rd_ckpt_remove_stale). */
enum { MAX_OPEN = 8, SLOT_FREE = 0, SLOT_FILLING, SLOT_LISTED };
static struct {
    _Atomic int state;
    char tmp[sizeof((rd_tmpfile *)NULL)->tmp];
} open_now[MAX_OPEN];
static atomic_bool abandoned;

/* Adds a file to the list. Returns 1 + its place, or 0 if the list is full. */
static int list_temporary(const char *tmp)
{
    for (int i = 0; i < MAX_OPEN; i++) {
        int was = SLOT_FREE;
        if (!atomic_compare_exchange_strong(&open_now[i].state, &was, SLOT_FILLING)) continue;
        snprintf(open_now[i].tmp, sizeof open_now[i].tmp, "%s", tmp);
        atomic_store(&open_now[i].state, SLOT_LISTED);
        return i + 1;
    }
    return 0;
}

static void unlist_temporary(rd_tmpfile *f)
{
    if (f->listed) atomic_store(&open_now[f->listed - 1].state, SLOT_FREE);
    f->listed = 0;
}

/* Waits for the end of the process, which is ending while this thread writes a file. */
static void wait_for_exit(const char *tmp)
{
    unlink(tmp);
    for (;;) pause();
}

void rd_tmpfile_abandon(void)
{
    const int saved = errno;
    atomic_store(&abandoned, true);
    for (int i = 0; i < MAX_OPEN; i++)
        if (atomic_load(&open_now[i].state) == SLOT_LISTED) unlink(open_now[i].tmp);
    errno = saved;
}

/* Opens a new file, never one that was there. An earlier process of the same number may have left
 * its file: in a container the numbers start anew. */
static int open_temporary(const char *tmp)
{
    const char *kind;
    int fd = -1;
    for (int i = 0; i < 3; i++) {
        fd = rd_open_output(tmp, O_WRONLY | O_CREAT | O_EXCL, &kind);
        if (fd >= 0 || errno != EEXIST || unlink(tmp) != 0) break;
    }
    return fd;
}

rd_code rd_tmpfile_open(rd_tmpfile *f, const char *path, rd_status *st)
{
    f->fd = f->listed = 0;
    const int len = snprintf(f->path, sizeof f->path, "%s", path);
    if (len <= 0 || (size_t)len >= sizeof f->path)
        return rd_fail(st, RD_EENV,
                       "cannot write '%.80s': its name has %d bytes, 1 to %zu are possible", path,
                       len, sizeof f->path - 1);
    snprintf(f->tmp, sizeof f->tmp, "%s.tmp.%ld", path, (long)getpid());
    f->listed = list_temporary(f->tmp);
    /* No file is begun any more. The launcher may already be killing this process, and the file
     * would stay behind. The launcher wakes stopped ranks first, and a rank that waited for them
     * may then reach the next checkpoint. */
    if (atomic_load(&abandoned)) wait_for_exit(f->tmp);
    int fd = open_temporary(f->tmp);
    if (fd == 0) { /* standard input was closed; 0 means empty here */
        fd = fcntl(0, F_DUPFD_CLOEXEC, 3);
        const int err = errno;
        close(0);
        errno = err;
    }
    if (fd < 0) {
        fail_errno(st, RD_EENV, RD_HERE, "write", path, errno);
        unlist_temporary(f);
        return st->code;
    }
    /* rd_tmpfile_abandon may have read the list before this file was in it. */
    if (atomic_load(&abandoned)) wait_for_exit(f->tmp);
    f->fd = fd;
    return RD_OK;
}

rd_code rd_tmpfile_write(rd_tmpfile *f, const void *p, size_t n, rd_status *st)
{
    rd_assert(f->fd > 0);
    const char *at = p;
    while (n > 0) {
        const ssize_t written = write(f->fd, at, n > (1u << 30) ? 1u << 30 : n);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0)
            return fail_errno(st, RD_EENV, RD_HERE, "write", f->path, written < 0 ? errno : ENOSPC);
        at += written;
        n -= (size_t)written;
    }
    return RD_OK;
}

/* Syncs a file or folder. A pipe, or a folder on some file systems, cannot be synced;
 * that is not a failure. */
static int sync_fd(int fd)
{
    int rc;
    do rc = fsync(fd);
    while (rc != 0 && errno == EINTR);
    return rc == 0 || errno == EINVAL || errno == ENOTSUP || errno == EROFS ? 0 : -1;
}

static rd_code sync_folder_of(const char *path, rd_status *st)
{
    char dir[4096];
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (!slash)
        snprintf(dir, sizeof dir, ".");
    else
        slash[slash == dir ? 1 : 0] = '\0';
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES ? RD_OK
                               : fail_errno(st, RD_EENV, RD_HERE, "sync folder", dir, errno);
    if (sync_fd(fd) != 0) fail_errno(st, RD_EENV, RD_HERE, "sync folder", dir, errno);
    close(fd);
    return st->code;
}

rd_code rd_tmpfile_commit(rd_tmpfile *f, rd_status *st)
{
    if (f->fd <= 0) return rd_fail(st, RD_EBUG, "a file that is not open was committed");
    int err = sync_fd(f->fd) == 0 ? 0 : errno;
    if (close(f->fd) != 0 && err == 0 && errno != EINTR) err = errno; /* NFS reports a full disk */
    f->fd = 0;
    if (err == 0 && rename(f->tmp, f->path) != 0) err = errno;
    if (err != 0 && atomic_load(&abandoned)) wait_for_exit(f->tmp);
    unlist_temporary(f);
    if (err != 0) {
        unlink(f->tmp);
        return fail_errno(st, RD_EENV, RD_HERE, "write", f->path, err);
    }
    return sync_folder_of(f->path, st);
}

void rd_tmpfile_release(rd_tmpfile *f)
{
    if (f->fd <= 0) return;
    close(f->fd);
    unlink(f->tmp);
    unlist_temporary(f);
    f->fd = 0;
}

rd_code rd_file_write_atomic(const char *path, const void *p, size_t n, rd_status *st)
{
    rd_tmpfile f;
    f.fd = 0;
    RD_TRY(rd_tmpfile_open(&f, path, st));
    RD_TRY(rd_tmpfile_write(&f, p, n, st));
    RD_TRY(rd_tmpfile_commit(&f, st));
done:
    rd_tmpfile_release(&f);
    return st->code;
}

bool rd_link_dangles(const char *path, char *target, size_t capacity)
{
    struct stat info;
    const ssize_t n = readlink(path, target, capacity - 1);
    target[n > 0 ? n : 0] = '\0';
    return n > 0 && stat(path, &info) != 0 && errno == ENOENT;
}

rd_code rd_mkdirs(const char *path, rd_status *st)
{
    char part[4096];
    struct stat info;
    const size_t len = strlen(path);
    if (len == 0 || len >= sizeof part)
        return rd_fail(st, RD_EENV,
                       "cannot make folder '%.80s': its name has %zu bytes, 1 to %zu are possible",
                       path, len, sizeof part - 1);
    memcpy(part, path, len + 1);
    for (size_t i = 1; i <= len; i++) {
        if (part[i] != '/' && part[i] != '\0') continue;
        const char was = part[i];
        part[i] = '\0';
        if (mkdir(part, 0777) != 0) {
            /* EEXIST, but also EACCES or EROFS above a folder that exists. */
            const int err = errno;
            char target[256];
            if (rd_link_dangles(part, target, sizeof target))
                return rd_fail(st, RD_EENV,
                               "cannot make folder '%s': '%s' is a link to '%s', which is not "
                               "there; make that folder, or remove the link",
                               path, part, target);
            if (stat(part, &info) != 0)
                return fail_errno(st, RD_EENV, RD_HERE, "make folder", part,
                                  err == EEXIST ? errno : err);
            if (!S_ISDIR(info.st_mode))
                return rd_fail(st, RD_EENV,
                               "cannot make folder '%s': '%s' is a file; choose another place",
                               path, part);
        }
        part[i] = was;
    }
    return RD_OK;
}

rd_code rd_mkdir_inside(const char *path, rd_status *st)
{
    struct stat info;
    if (mkdir(path, 0777) == 0) return RD_OK;
    const int err = errno;
    if (err != EEXIST || lstat(path, &info) != 0)
        return fail_errno(st, RD_EENV, RD_HERE, "make folder", path, err);
    if (!S_ISDIR(info.st_mode))
        return rd_fail(st, RD_EENV, "cannot make folder '%s': there is %s; remove it", path,
                       S_ISLNK(info.st_mode) ? "a symbolic link" : "a file");
    return RD_OK;
}
