/* file_open.c -- opens files by name, see file.h.
 *
 * open(2) of a named pipe waits for the process at its other end, and open(2) for writing follows a
 * symbolic link. Every name that comes from outside is opened here: without waiting, and for
 * writing without following a link. */
#include "rd/file.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

const char *rd_file_kind(unsigned mode)
{
    return S_ISREG(mode)    ? NULL
           : S_ISDIR(mode)  ? "a folder"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISLNK(mode)  ? "a symbolic link"
                            : "a device";
}

/* After a failed open: a socket, or a pipe without a reader, is named as what it is. errno is kept.
 */
static int open_failed(const char *path, bool follow, const char **kind)
{
    struct stat sb;
    const int err = errno;
    if ((err == ENXIO || err == ELOOP || err == EISDIR || err == ENODEV) &&
        (follow ? stat(path, &sb) : lstat(path, &sb)) == 0)
        *kind = rd_file_kind(sb.st_mode);
    errno = err;
    return -1;
}

/* Is it the pipe of a shell's <(command)? It has no name, so its writer held it before. */
static bool is_nameless_pipe(int fd, mode_t mode)
{
    struct statfs fs;
    return S_ISFIFO(mode) && fstatfs(fd, &fs) == 0 && fs.f_type == PIPEFS_MAGIC;
}

/* Accepts or closes an open file. */
static int open_checked(int fd, bool pipes, int64_t *size, const char **kind)
{
    struct stat sb;
    if (fstat(fd, &sb) != 0) {
        const int err = errno;
        (void)close(fd);
        errno = err;
        return -1;
    }
    *kind = rd_file_kind(sb.st_mode);
    if (pipes && is_nameless_pipe(fd, sb.st_mode)) *kind = NULL;
    if (*kind) {
        (void)close(fd);
        errno = EINVAL;
        return -1;
    }
    const int now = fcntl(fd, F_GETFL);
    if (now >= 0) (void)fcntl(fd, F_SETFL, now & ~O_NONBLOCK);
    if (size) *size = S_ISREG(sb.st_mode) ? (int64_t)sb.st_size : -1;
    return fd;
}

static int open_to_read(const char *path, int more, bool pipes, int64_t *size, const char **kind)
{
    *kind = NULL;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | more);
    return fd < 0 ? open_failed(path, !(more & O_NOFOLLOW), kind)
                  : open_checked(fd, pipes, size, kind);
}

int rd_open_input(const char *path, int64_t *size, const char **kind)
{
    return open_to_read(path, 0, false, size, kind);
}

int rd_open_input_or_pipe(const char *path, int64_t *size, const char **kind)
{
    return open_to_read(path, 0, true, size, kind);
}

int rd_open_output(const char *path, int flags, const char **kind)
{
    *kind = NULL;
    /* O_TRUNC comes last: nothing is emptied before it is known to be a regular file. */
    const int fd = open(path, (flags & ~O_TRUNC) | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC,
                        0666);
    if (fd < 0) return open_failed(path, false, kind);
    if (open_checked(fd, false, NULL, kind) < 0) return -1;
    if ((flags & O_TRUNC) && ftruncate(fd, 0) != 0) {
        const int err = errno;
        (void)close(fd);
        errno = err;
        return -1;
    }
    return fd;
}

int rd_open_record(const char *path, int flags, const char *remedy, rd_status *st)
{
    const char *kind;
    const int fd = rd_open_output(path, flags, &kind);
    if (fd < 0 && kind)
        rd_fail(st, RD_EENV, "cannot write '%s': it is %s, not a regular file; remove it", path,
                kind);
    else if (fd < 0)
        rd_fail(st, RD_EENV, "cannot write '%s': %s; %s", path, strerror(errno), remedy);
    return fd;
}
