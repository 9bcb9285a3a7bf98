/* input.c -- opens and reads files and folders, and tries again, see input.h. */
#include "rd/input.h"
#include "rd/clock.h"
#include "rd/file.h"
#include "rd/log.h"
#include <archive.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 1 << 17 };
static const double first_wait_s = 0.1, longest_wait_s = 30.0;
static const int64_t between_warnings_ns = INT64_C(10000000000);

static atomic_int retries_allowed = RD_USUAL_RETRIES;
static _Atomic int64_t n_retries, last_warning_ns;
static _Atomic(rd_log *) retries_log;

void rd_retries_allow(int n)
{
    atomic_store(&retries_allowed, n < 0 ? 0 : n > RD_MOST_RETRIES ? RD_MOST_RETRIES : n);
}

void rd_retries_log(rd_log *l)
{
    atomic_store(&retries_log, l);
}

int64_t rd_retries(void)
{
    return atomic_load(&n_retries);
}

/* ---- what an error means ---- */

bool rd_fault_passes(int err)
{
    switch (err) {
    case EIO:
    case EREMOTEIO:
    case ESTALE:
    case EAGAIN:
    case EBUSY:
    case EINTR:
    case ENFILE: /* of the whole machine: other processes close files */
    case ENOMEM:
    case ENOBUFS:
    case ETIMEDOUT:
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case ENOTCONN:
    case ESHUTDOWN:
    case ENETDOWN:
    case ENETUNREACH:
    case ENETRESET:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENOLINK:
    case ECOMM:
    case EPROTO:
    case ENONET:
        return true;
    default:
        return false;
    }
}

rd_code rd_fault_code(int err, rd_code code)
{
    switch (err) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EINVAL:
    case EILSEQ:
        return code;
    default:
        return RD_EENV;
    }
}

const char *rd_fault_remedy(int err)
{
    switch (err) {
    case ENOENT:
        return "; check the path";
    case ENOTDIR:
        return "; a part of the path is not a folder";
    case EACCES:
    case EPERM:
        return "; check the permissions of the file and its folders";
    case ENOSPC:
        return "; free space on that disk";
    case EFBIG:
        return "; raise the limit of the size of files (ulimit -f)";
    case EDQUOT:
        return "; delete files, or ask for a larger quota";
    case EROFS:
        return "; choose a place that is not read-only";
    case EMFILE:
    case ENFILE:
        return "; raise the limit of open files (ulimit -n)";
    case ENOMEM:
        return "; free memory on that machine";
    case EUCLEAN:
    case EBADMSG:
        return "; the file system is damaged, check it";
    default:
        return rd_fault_passes(err) ? "; the disk or the network file system reports a fault" : "";
    }
}

rd_code rd_input_fails_(rd_status *st, rd_code code, const char *where, const char *verb,
                        const char *path, int err, const char *remedy)
{
    const bool machine = rd_fault_code(err, RD_OK) != RD_OK;
    const char *text = strerrordesc_np(err);
    return rd_fail_(st, rd_fault_code(err, code), where, "cannot %s '%s': %s%s%s", verb, path,
                    text ? text : "unknown error", machine || !remedy ? "" : "; ",
                    machine  ? rd_fault_remedy(err)
                    : remedy ? remedy
                             : "");
}

/* ---- trying again ---- */

/* One call that is tried until it succeeds or fails for good. */
typedef struct attempt {
    const char *path;
    rd_presence presence;
    int n;           /* number of retries so far */
    int64_t from_ns; /* time of the first failure */
    bool said;       /* a warning was printed */
} attempt;

/* Is the path, or the nearest folder above it that can be seen, on a network file system? */
static bool on_network(const char *path)
{
    static const uint32_t types[] = {
        0x00006969,             /* NFS */
        0x0000517B, 0xFF534D42, /* SMB, CIFS */
        0xFE534D42,             /* SMB 2 */
        0x65735546,             /* FUSE: sshfs, s3fs, GlusterFS and others */
        0x0BD00BD0,             /* Lustre */
        0x47504653,             /* GPFS */
        0x00C36400,             /* Ceph */
        0x19830326,             /* BeeGFS */
        0xAAD7AAEA,             /* PanFS */
        0x20030528,             /* OrangeFS */
        0x18031977,             /* WekaFS */
        0x5346414F, 0x6B414653, /* AFS */
        0x73757245,             /* Coda */
        0x01021997,             /* 9P */
        0x7461636F, 0x01161970  /* OCFS2, GFS2 */
    };
    char part[4096];
    struct statfs f;
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part) return false;
    while (statfs(part, &f) != 0) {
        char *slash = strrchr(part, '/');
        if (errno != ENOENT && errno != ENOTDIR) return false;
        if (!slash && strcmp(part, ".") == 0) return false;
        if (slash == part && part[1] == '\0') return false;
        if (!slash)
            (void)snprintf(part, sizeof part, ".");
        else
            slash[slash == part ? 1 : 0] = '\0';
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if ((uint32_t)f.f_type == types[i]) return true;
    return false;
}

static double wait_before(int retry)
{
    double s = first_wait_s;
    for (int i = 0; i < retry && s < longest_wait_s; i++) s *= 2.0;
    return s < longest_wait_s ? s : longest_wait_s;
}

/* At most one warning in ten seconds: all readers of a lost server fail at once. */
static bool may_warn(void)
{
    const int64_t now = rd_now_ns();
    int64_t last = atomic_load(&last_warning_ns);
    return (last == 0 || now - last >= between_warnings_ns) &&
           atomic_compare_exchange_strong(&last_warning_ns, &last, now);
}

static void warn_of(attempt *a, int err)
{
    rd_log *l = atomic_load(&retries_log);
    const int allowed = atomic_load(&retries_allowed);
    const char *text = strerrordesc_np(err);
    double total = 0.0;
    if (!l || a->said || !may_warn()) return;
    for (int i = 0; i < allowed; i++) total += wait_before(i);
    a->said = true;
    rd_warn(l, "cannot read '%s': %s; trying again %d time%s, for %.3g s", a->path,
            text ? text : "unknown error", allowed, RD_S(allowed), total);
}

/* Decides whether the call is tried again after errno, and waits before. Keeps errno. */
static bool attempt_again(attempt *a)
{
    const int err = errno;
    if (err == EINTR) return true;
    if (!rd_fault_passes(err) &&
        !(err == ENOENT && a->presence == RD_LISTED && on_network(a->path))) {
        errno = err;
        return false;
    }
    if (a->n >= atomic_load(&retries_allowed)) {
        errno = err;
        return false;
    }
    if (a->n == 0) {
        a->from_ns = rd_now_ns();
        warn_of(a, err);
    }
    const double s = wait_before(a->n++);
    (void)atomic_fetch_add(&n_retries, 1);
    struct timespec left = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
    errno = err;
    return true;
}

/* Reports a call that succeeded, if its failure was reported. */
static void attempt_done(const attempt *a)
{
    rd_log *l = atomic_load(&retries_log);
    if (!a->said || !l) return;
    const int saved = errno;
    rd_warn(l, "'%s' could be read after %d more tr%s, %.3g s", a->path, a->n,
            a->n == 1 ? "y" : "ies", (double)(rd_now_ns() - a->from_ns) * 1e-9);
    errno = saved;
}

/* ---- files ---- */

struct rd_input {
    int fd;
    char *path;
    bool again; /* a regular file: a read may be tried again */
    int64_t pos;
    struct stat info;
    atomic_int error;
    unsigned char *block; /* for libarchive; owned; NULL: not needed yet */
};

static rd_input *input_new(int fd, const char *path)
{
    rd_input *in = calloc(1, sizeof *in);
    if (in) in->path = strdup(path);
    if (!in || !in->path) {
        if (in) free(in);
        errno = ENOMEM;
        return NULL;
    }
    in->fd = fd;
    return in;
}

/* Opens the path and fills *info. Returns the descriptor; -1: see errno and *kind. */
static int open_once(const char *path, bool pipes, struct stat *info, const char **kind)
{
    const int fd = pipes ? rd_open_input_or_pipe(path, NULL, kind)
                         : rd_open_input(path, NULL, kind);
    if (fd < 0 || fstat(fd, info) == 0) return fd;
    const int err = errno;
    (void)close(fd);
    errno = err;
    return -1;
}

static rd_input *input_open(const char *path, rd_presence presence, bool pipes, const char **kind)
{
    attempt a = {.path = path, .presence = presence};
    rd_input *in = input_new(-1, path);
    *kind = NULL;
    if (!in) return NULL;
    do in->fd = open_once(path, pipes, &in->info, kind);
    while (in->fd < 0 && !*kind && attempt_again(&a));
    if (in->fd < 0) {
        const int err = errno;
        rd_input_close(in);
        errno = err;
        return NULL;
    }
    attempt_done(&a);
    in->again = S_ISREG(in->info.st_mode);
    return in;
}

rd_input *rd_input_open(const char *path, rd_presence presence, const char **kind)
{
    return input_open(path, presence, false, kind);
}

rd_input *rd_input_open_or_pipe(const char *path, rd_presence presence, const char **kind)
{
    return input_open(path, presence, true, kind);
}

rd_input *rd_input_of(int fd, const char *name)
{
    rd_input *in = input_new(fd, name);
    if (in) (void)fstat(fd, &in->info);
    return in;
}

void rd_input_close(rd_input *in)
{
    if (!in) return;
    if (in->fd >= 0) (void)close(in->fd);
    free(in->block);
    free(in->path);
    free(in);
}

const struct stat *rd_input_stat(const rd_input *in)
{
    return &in->info;
}

int rd_input_error(const rd_input *in)
{
    return in ? atomic_load(&in->error) : 0;
}

/* Opens a file whose handle is stale by its name, if it is still the same file. The descriptor
 * keeps its number, so other threads that read from it see the new file. */
static void open_stale_again(rd_input *in)
{
    struct stat now;
    const char *kind;
    const int fd = open_once(in->path, false, &now, &kind);
    if (fd < 0) return;
    if (now.st_size == in->info.st_size && now.st_mtim.tv_sec == in->info.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == in->info.st_mtim.tv_nsec)
        (void)dup3(fd, in->fd, O_CLOEXEC);
    (void)close(fd);
}

/* Waits until a pipe that does not block has something to read. */
static void wait_for_input(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    (void)poll(&p, 1, -1);
}

/* Reads once at `at`; below 0: where the descriptor is. */
static ssize_t input_read_some(rd_input *in, void *p, size_t n, int64_t at)
{
    attempt a = {.path = in->path};
    ssize_t got;
    if (n > 1u << 30) n = 1u << 30; /* Linux reads less than 2 GiB per call */
    for (;;) {
        got = at < 0 ? read(in->fd, p, n) : pread(in->fd, p, n, (off_t)at);
        if (got >= 0) break;
        if (!in->again) { /* a pipe or a terminal */
            if (errno == EAGAIN)
                wait_for_input(in->fd);
            else if (errno != EINTR)
                break;
            continue;
        }
        const bool stale = errno == ESTALE;
        if (!attempt_again(&a)) break;
        if (stale) open_stale_again(in);
    }
    if (got >= 0) {
        attempt_done(&a);
        return got;
    }
    int none = 0;
    const int err = errno;
    (void)atomic_compare_exchange_strong(&in->error, &none, err);
    errno = err;
    return -1;
}

ssize_t rd_input_pread(rd_input *in, void *p, size_t n, int64_t at)
{
    size_t got = 0;
    while (got < n) {
        const ssize_t k = input_read_some(in, (char *)p + got, n - got, at + (int64_t)got);
        if (k < 0) return -1;
        if (k == 0) break;
        got += (size_t)k;
    }
    return (ssize_t)got;
}

ssize_t rd_input_read(rd_input *in, void *p, size_t n)
{
    if (!in->again) return input_read_some(in, p, n, -1);
    const ssize_t got = rd_input_pread(in, p, n, in->pos);
    if (got > 0) in->pos += got;
    return got;
}

int64_t rd_input_at(const rd_input *in)
{
    return in->pos;
}

/* ---- libarchive ---- */

static la_ssize_t input_on_read(struct archive *to, void *self, const void **p)
{
    rd_input *in = self;
    const ssize_t n = rd_input_read(in, in->block, BLOCK);
    if (n < 0) archive_set_error(to, errno, "%s", strerror(errno));
    *p = in->block;
    return n;
}

static la_int64_t input_on_skip(struct archive *to, void *self, la_int64_t n)
{
    rd_input *in = self;
    (void)to;
    if (!in->again || n <= 0) return 0; /* libarchive reads instead */
    const int64_t left = in->info.st_size - in->pos, k = left < 0 ? 0 : n < left ? n : left;
    in->pos += k;
    return k;
}

static la_int64_t input_on_seek(struct archive *to, void *self, la_int64_t at, int whence)
{
    rd_input *in = self;
    const int64_t to_pos = whence == SEEK_SET   ? at
                           : whence == SEEK_CUR ? in->pos + at
                                                : in->info.st_size + at;
    if (!in->again || to_pos < 0) {
        archive_set_error(to, ESPIPE, "cannot move in '%s'", in->path);
        return ARCHIVE_FATAL;
    }
    return in->pos = to_pos;
}

int rd_input_archive(rd_input *in, struct archive *to)
{
    if (!in->block) in->block = malloc(BLOCK);
    if (!in->block) {
        archive_set_error(to, ENOMEM, "out of memory");
        return ARCHIVE_FATAL;
    }
    (void)archive_read_set_read_callback(to, input_on_read);
    (void)archive_read_set_skip_callback(to, input_on_skip);
    if (in->again) (void)archive_read_set_seek_callback(to, input_on_seek);
    (void)archive_read_set_callback_data(to, in);
    return archive_read_open1(to);
}

/* ---- paths and folders ---- */

int rd_path_stat(const char *path, struct stat *out, rd_presence presence)
{
    attempt a = {.path = path, .presence = presence};
    int rc;
    do rc = stat(path, out);
    while (rc != 0 && attempt_again(&a));
    if (rc == 0) attempt_done(&a);
    return rc;
}

rd_code rd_path_there(const char *path, bool *there, rd_status *st)
{
    struct stat info;
    *there = rd_path_stat(path, &info, RD_MAYBE) == 0;
    if (*there || rd_fault_code(errno, RD_OK) == RD_OK) return RD_OK;
    return rd_input_fails(st, RD_EENV, "look at", path, errno, NULL);
}

static bool folder_add(rd_folder *f, const struct dirent *e)
{
    if (f->n == f->capacity) {
        const int64_t capacity = 2 * f->capacity + 64;
        rd_folder_entry *more = realloc(f->entry, (size_t)capacity * sizeof *more);
        if (!more) return false;
        f->entry = more;
        f->capacity = capacity;
    }
    f->entry[f->n] = (rd_folder_entry){strdup(e->d_name), e->d_type};
    return f->entry[f->n].name && ++f->n;
}

/* Lists a folder once. Returns 0 or an error number. */
static int folder_read(const char *path, rd_folder *out)
{
    DIR *d = opendir(path);
    int err = 0;
    if (!d) return errno;
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (!e) {
            err = errno;
            break;
        }
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (!folder_add(out, e)) {
            err = ENOMEM;
            break;
        }
    }
    (void)closedir(d);
    return err;
}

int rd_folder_list(const char *path, rd_presence presence, rd_folder *out)
{
    attempt a = {.path = path, .presence = presence};
    *out = (rd_folder){0};
    for (;;) {
        errno = folder_read(path, out);
        if (errno == 0) break;
        rd_folder_release(out);
        if (!attempt_again(&a)) return -1;
    }
    attempt_done(&a);
    return 0;
}

void rd_folder_release(rd_folder *f)
{
    const int saved = errno;
    for (int64_t i = 0; i < f->n; i++) free(f->entry[i].name);
    free(f->entry);
    *f = (rd_folder){0};
    errno = saved;
}
