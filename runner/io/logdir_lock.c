/* logdir_lock.c -- one process at a time writes to a log folder.
 *
 * The lock is an open file description lock of Linux on <dir>/.lock. It ends with its process,
 * however the process ends. Unlike the older kind, it is not lost when the process opens and closes
 * the file a second time. The file holds "<pid> <host>\n" for the message. It stays when the lock
 * is gone, and then means nothing.
 *
 * The lock is on a file, not on its name. If a user removes .lock or replaces the folder, another
 * run is let in. So before each save the name is compared with the file. */
#include "ckpt_impl.h"
#include "rd/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void host_name(char out[128])
{
    if (gethostname(out, 128) != 0) snprintf(out, 128, "unknown");
    out[127] = '\0';
}

/* Reads who wrote the file last. Returns false if the file does not say. */
static bool read_owner(int fd, long *pid, char host[128])
{
    char line[256];
    const ssize_t n = pread(fd, line, sizeof line - 1, 0);
    line[n > 0 ? n : 0] = '\0';
    return sscanf(line, "%ld %127s", pid, host) == 2;
}

static rd_code write_owner(int fd, const char *path, rd_status *st)
{
    char line[256], host[128];
    host_name(host);
    const int n = snprintf(line, sizeof line, "%ld %s\n", (long)getpid(), host);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, line, (size_t)n, 0) != n)
        rd_fail(st, RD_EENV,
                "cannot write '%s': %s; check the free space and the permissions of the log folder",
                path, strerror(errno));
    return st->code;
}

rd_lock_owner rd_logdir_lock_owner(const char *dir)
{
    char path[4200], host[128], here[128];
    long pid = 0;
    const char *kind;
    struct stat sb;
    rd_lock_owner owner = RD_LOCK_FREE;
    snprintf(path, sizeof path, "%s/.lock", dir);
    if (lstat(path, &sb) != 0 || !S_ISREG(sb.st_mode))
        return owner; /* no run locks through a link */
    const int fd = rd_open_input(path, NULL, &kind);
    if (fd < 0) return owner;
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK) {
        host_name(here);
        owner = read_owner(fd, &pid, host) && pid == (long)getpid() && strcmp(host, here) == 0
                    ? RD_LOCK_OURS
                    : RD_LOCK_OTHER;
    }
    (void)close(fd);
    return owner;
}

bool rd_logdir_in_use(const char *dir)
{
    return rd_logdir_lock_owner(dir) == RD_LOCK_OTHER;
}

/* ---- is it still this folder? ---- */

bool rd_logdir_mark(const char *dir, uint64_t mark[2])
{
    char path[4200];
    struct stat sb;
    mark[0] = mark[1] = 0;
    if (snprintf(path, sizeof path, "%s/.lock", dir) >= (int)sizeof path || lstat(path, &sb) != 0)
        return false;
    mark[0] = (uint64_t)sb.st_dev;
    mark[1] = (uint64_t)sb.st_ino;
    return true;
}

/* Returns whether <dir>/.lock is the open file. *gone: there is none. If the file system does not
 * answer, it counts as the same. */
static bool lock_is_there(const char *dir, int fd, bool *gone)
{
    struct stat ours;
    uint64_t mark[2];
    errno = 0;
    const bool found = rd_logdir_mark(dir, mark);
    *gone = !found && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP);
    if (!found) return !*gone;
    return fstat(fd, &ours) != 0 ||
           ((uint64_t)ours.st_dev == mark[0] && (uint64_t)ours.st_ino == mark[1]);
}

/* Writes "; its files are in '...'", if the folder was moved to another name on this host. */
static void moved_to(const char *dir, int fd, char out[1100])
{
    char link[40], path[1024], real[4096];
    out[0] = '\0';
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return;
    path[n] = '\0';
    char *name = strrchr(path, '/');
    if (!name || strcmp(name, "/.lock") != 0) return; /* it ends with " (deleted)" */
    *name = '\0';
    if (realpath(dir, real) && strcmp(real, path) == 0) return;
    (void)snprintf(out, 1100, "; what this run saved is in '%s'", path);
}

rd_code rd_logdir_check(const char *dir, int fd, rd_status *st)
{
    char path[4200], saved[1100], host[128];
    const char *kind;
    struct stat sb;
    long pid;
    bool gone;
    if (fd < 0 || lock_is_there(dir, fd, &gone)) return st->code;
    moved_to(dir, fd, saved);
    if (rd_logdir_lock_owner(dir) != RD_LOCK_FREE) {
        (void)snprintf(path, sizeof path, "%s/.lock", dir);
        const int other = rd_open_input(path, NULL, &kind);
        const bool known = other >= 0 && read_owner(other, &pid, host);
        if (other >= 0) (void)close(other);
        if (known)
            return rd_fail(st, RD_EUSAGE,
                           "log folder '%s' was replaced, or lost its .lock, and is now in use by "
                           "process %ld on host '%s'; nothing more is saved there%s",
                           dir, pid, host, saved);
        return rd_fail(st, RD_EUSAGE,
                       "log folder '%s' was replaced, or lost its .lock, and is now in use by "
                       "another process; nothing more is saved there%s",
                       dir, saved);
    }
    if (!gone)
        return rd_fail(st, RD_EENV,
                       "log folder '%s' was replaced by another one during the run; nothing more "
                       "is saved there%s",
                       dir, saved);
    if (stat(dir, &sb) == 0)
        return rd_fail(st, RD_EENV,
                       "the file .lock of log folder '%s' was removed during the run, so another "
                       "run may write there; nothing more is saved; the same command goes on from "
                       "the last checkpoint%s",
                       dir, saved);
    return rd_fail(st, RD_EENV,
                   "log folder '%s' was moved or removed during the run; nothing more is saved%s",
                   dir, saved);
}

/* ---- the lock ---- */

/* Opens and locks the file once. */
static rd_code lock_once(const char *dir, const char *path, int *fd, char *warning, rd_status *st)
{
    *fd = -1;
    warning[0] = '\0';
    const int f = rd_open_record(path, O_RDWR | O_CREAT,
                                 "choose a --logdir that this user may write to", st);
    if (f < 0) return st->code;
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int rc;
    while ((rc = fcntl(f, F_OFD_SETLK, &l)) != 0 && errno == EINTR) continue;
    if (rc != 0 && (errno == EAGAIN || errno == EACCES)) {
        long pid;
        char host[128];
        /* The owner writes its name right after it gets the lock: wait a moment. */
        bool known = false;
        for (int i = 0; i < 20 && !(known = read_owner(f, &pid, host)); i++)
            (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        if (known)
            rd_fail(st, RD_EUSAGE,
                    "log folder '%s' is in use by process %ld on host '%s'; wait for it to end, "
                    "stop it, or choose another --logdir",
                    dir, pid, host);
        else
            rd_fail(st, RD_EUSAGE,
                    "log folder '%s' is in use by another process; wait for it to end, stop it, or "
                    "choose another --logdir",
                    dir);
    } else if (rc != 0) {
        snprintf(
            warning, RD_MSG_BYTES,
            "the file system of log folder '%s' has no locks (%s): make sure that only one run "
            "writes there",
            dir, strerror(errno));
        *fd = f;
        return st->code;
    } else {
        write_owner(f, path, st);
    }
    if (st->code == RD_OK)
        *fd = f;
    else
        (void)close(f);
    return st->code;
}

rd_code rd_logdir_lock(const char *dir, int *fd, char *warning, rd_status *st)
{
    enum { TRIES = 5 };
    char path[4200];
    bool gone;
    *fd = -1;
    warning[0] = '\0';
    if (snprintf(path, sizeof path, "%s/.lock", dir) >= (int)sizeof path)
        return rd_fail(st, RD_EUSAGE,
                       "the name of log folder '%.200s...' is too long; choose a shorter --logdir",
                       dir);
    /* Between the two calls the folder or the file may be replaced. */
    for (int i = 0; i < TRIES; i++) {
        if (lock_once(dir, path, fd, warning, st) != RD_OK || lock_is_there(dir, *fd, &gone))
            return st->code;
        (void)close(*fd);
        *fd = -1;
    }
    return rd_fail(st, RD_EENV,
                   "log folder '%s' is replaced again and again, or its .lock is; is another "
                   "program at work there?",
                   dir);
}
