/* fuzz_files.h -- for fuzz targets: what must hold, and files in memory for functions that take a
 * path.
 *
 * Nothing is left behind: a memory file ends with its process, and the folder is removed at exit.
 * After a crash the folder stays until the next start of any such target. */
#ifndef RD_FUZZ_FILES_H
#define RD_FUZZ_FILES_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FUZZ_PATH = 64 };

/* Ends the program unless the condition is true. */
#define must(condition) ((condition) ? (void)0 : fuzz_failed(__FILE__, __LINE__, #condition))
_Noreturn static inline void fuzz_failed(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: not true: %s\n", file, line, what);
    abort();
}

/* Writes n bytes into a file in memory, which all calls share. path: names it until the next
 * call. */
static inline void fuzz_memory_file(const void *p, size_t n, char path[FUZZ_PATH])
{
    static int fd = -1;
    if (fd < 0) fd = memfd_create("fuzz", MFD_CLOEXEC);
    must(fd >= 0 && ftruncate(fd, 0) == 0 && (n == 0 || pwrite(fd, p, n, 0) == (ssize_t)n));
    (void)snprintf(path, FUZZ_PATH, "/proc/self/fd/%d", fd);
}

/* Returns the number of entries of a folder. */
static inline int fuzz_count(const char *folder)
{
    int n = -2; /* "." and ".." */
    DIR *d = opendir(folder);
    must(d != NULL);
    while (readdir(d)) n++;
    (void)closedir(d);
    return n;
}

/* Removes all entries of a folder, and of the folders in it. */
static inline void fuzz_empty(const char *folder)
{
    char path[512];
    DIR *d = opendir(folder);
    must(d != NULL);
    for (const struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            (void)snprintf(path, sizeof path, "%.200s/%s", folder, e->d_name);
            if (remove(path) == 0) continue;
            must(errno == ENOTEMPTY || errno == EEXIST);
            fuzz_empty(path);
            must(rmdir(path) == 0);
        }
    (void)closedir(d);
}

static char fuzz_folder_path[FUZZ_PATH];
static const char fuzz_folder_name[] = "run_dist_fuzz.";

static inline void fuzz_remove_folder(void)
{
    fuzz_empty(fuzz_folder_path);
    (void)rmdir(fuzz_folder_path);
}

/* Removes the folders of targets that have crashed. */
static inline void fuzz_remove_stale(const char *parent)
{
    const size_t n = sizeof fuzz_folder_name - 1;
    DIR *d = opendir(parent);
    if (!d) return;
    for (const struct dirent *e; (e = readdir(d));) {
        char path[512];
        const long pid = strncmp(e->d_name, fuzz_folder_name, n) == 0
                             ? strtol(e->d_name + n, NULL, 10)
                             : 0;
        if (pid <= 0 || kill((pid_t)pid, 0) == 0 || errno != ESRCH) continue;
        (void)snprintf(path, sizeof path, "%.200s/%s", parent, e->d_name);
        fuzz_empty(path);
        (void)rmdir(path);
    }
    (void)closedir(d);
}

/* Returns an empty folder, in memory if the machine has /dev/shm. */
static inline const char *fuzz_folder(void)
{
    if (fuzz_folder_path[0]) {
        fuzz_empty(fuzz_folder_path);
        return fuzz_folder_path;
    }
    static const char *const parents[] = {"/dev/shm", "/tmp"};
    for (int k = 0; k < 2; k++) {
        fuzz_remove_stale(parents[k]);
        (void)snprintf(fuzz_folder_path, FUZZ_PATH, "%s/%s%d", parents[k], fuzz_folder_name,
                       (int)getpid());
        if (mkdir(fuzz_folder_path, 0700) == 0) {
            must(atexit(fuzz_remove_folder) == 0);
            return fuzz_folder_path;
        }
    }
    abort();
}

#endif
