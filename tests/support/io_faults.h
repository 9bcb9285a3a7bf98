/* io_faults.h -- stands in front of libc's calls for files, so that a test can make them fail.
 *
 * The file that includes it defines io_fault(), which decides. A program that includes it calls
 * these functions in place of libc's, also from librd.a; preload/io_faults.c makes a library of
 * them for LD_PRELOAD. */
#ifndef RD_TESTS_IO_FAULTS_H
#define RD_TESTS_IO_FAULTS_H

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Called before each call. call: "open", "read" (and pread), "stat", "opendir", "readdir", "fsync",
 * "rename". path: its file; of rename the new name. Returns 0, or the error with which the call
 * fails. *n: number of bytes wanted; it may be made smaller. */
static int io_fault(const char *call, const char *path, size_t *n);

/* Returns the next definition of a function, libc's. */
#define IO_REAL(NAME, TYPE) ((TYPE)(uintptr_t)dlsym(RTLD_NEXT, NAME))

static int io_stopped(const char *call, const char *path, size_t *n)
{
    size_t all = 0;
    const int saved = errno, err = io_fault(call, path, n ? n : &all);
    errno = err ? err : saved;
    return err;
}

static const char *io_path_of(int fd, char path[4096])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, 4095);
    path[n > 0 ? n : 0] = '\0';
    return path;
}

#define IO_OPEN(NAME)                                                                     \
    int NAME(const char *path, int flags, ...);                                           \
    int NAME(const char *path, int flags, ...)                                            \
    {                                                                                     \
        va_list a;                                                                        \
        va_start(a, flags);                                                               \
        const int mode = va_arg(a, int);                                                  \
        va_end(a);                                                                        \
        if ((flags & O_ACCMODE) == O_RDONLY && io_stopped("open", path, NULL)) return -1; \
        return IO_REAL(#NAME, int (*)(const char *, int, ...))(path, flags, mode);        \
    }
IO_OPEN(open)
IO_OPEN(open64)

ssize_t read(int fd, void *p, size_t n)
{
    char path[4096];
    if (io_stopped("read", io_path_of(fd, path), &n)) return -1;
    return IO_REAL("read", ssize_t(*)(int, void *, size_t))(fd, p, n);
}

#define IO_PREAD(NAME, OFFSET)                                                        \
    ssize_t NAME(int fd, void *p, size_t n, OFFSET at)                                \
    {                                                                                 \
        char path[4096];                                                              \
        if (io_stopped("read", io_path_of(fd, path), &n)) return -1;                  \
        return IO_REAL(#NAME, ssize_t(*)(int, void *, size_t, OFFSET))(fd, p, n, at); \
    }
IO_PREAD(pread, off_t)
IO_PREAD(pread64, off64_t)

int stat(const char *path, struct stat *out)
{
    if (io_stopped("stat", path, NULL)) return -1;
    return IO_REAL("stat", int (*)(const char *, struct stat *))(path, out);
}

DIR *opendir(const char *path)
{
    if (io_stopped("opendir", path, NULL)) return NULL;
    return IO_REAL("opendir", DIR * (*)(const char *))(path);
}

struct dirent *readdir(DIR *d)
{
    char path[4096];
    if (io_stopped("readdir", io_path_of(dirfd(d), path), NULL)) return NULL;
    return IO_REAL("readdir", struct dirent * (*)(DIR *))(d);
}

int fsync(int fd)
{
    char path[4096];
    if (io_stopped("fsync", io_path_of(fd, path), NULL)) return -1;
    return IO_REAL("fsync", int (*)(int))(fd);
}

int rename(const char *from, const char *to)
{
    if (io_stopped("rename", to, NULL)) return -1;
    return IO_REAL("rename", int (*)(const char *, const char *))(from, to);
}

#endif
