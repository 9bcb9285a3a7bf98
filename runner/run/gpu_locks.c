/* gpu_locks.c -- GPUs of a host that a job has for itself among the jobs that share a folder of
 * locks, as Sockeye's --lock-dir.
 *
 * The folder has a file for each GPU, which flock(2) locks, and one that is locked while a job
 * takes its GPUs: two jobs never have a half of them each. The system ends a lock with its process,
 * also after a crash. So files may stay, and their text (process and host) is for people. */
#include "gpu_locks.h"
#include "rd/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Opens the file of a lock. Another user's file may be readable alone, which is enough. */
static int gpu_lock_open(const char *dir, const char *name, rd_status *st)
{
    char path[4400];
    const char *kind;
    (void)snprintf(path, sizeof path, "%s/run_dist.%s.lock", dir, name);
    int fd = rd_open_output(path, O_RDWR | O_CREAT, &kind);
    const int err = errno;
    if (fd < 0 && !kind && err == EACCES) fd = rd_open_input(path, NULL, &kind);
    if (fd < 0 && kind)
        rd_fail(st, RD_EENV, "lock_dir: '%s' is %s, not a regular file; remove it", path, kind);
    else if (fd < 0)
        rd_fail(st, RD_EENV,
                "lock_dir: cannot write '%s': %s; name a folder that all users of the GPUs can "
                "write, or leave the key out",
                path, strerror(err));
    return fd;
}

static void gpu_lock_sign(int fd)
{
    char text[160], host[96] = "";
    (void)gethostname(host, sizeof host - 1);
    const int n = snprintf(text, sizeof text, "process %ld on %s\n", (long)getpid(), host);
    if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)n, 0) != n) (void)ftruncate(fd, 0);
}

static void gpu_lock_holder(int fd, char out[96])
{
    const ssize_t n = pread(fd, out, 95, 0);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    for (char *p = out; *p; p++)
        if ((unsigned char)*p < 0x20 || (unsigned char)*p > 0x7e) *p = '?';
}

bool gpu_locks_try(gpu_locks *l, const char *dir, int n, const char name[][GPU_LOCKS_NAME],
                   int wanted, int *index, rd_status *st)
{
    *l = (gpu_locks){0};
    const int all = gpu_lock_open(dir, "gpus", st);
    if (all < 0) return false;
    while (flock(all, LOCK_EX) != 0 && errno == EINTR) {
    }
    for (int i = 0; i < n && l->n < wanted && l->n < GPU_LOCKS_MOST; i++) {
        const int fd = gpu_lock_open(dir, name[i], st);
        if (fd < 0) break;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            index[l->n] = i;
            l->fd[l->n++] = fd;
            continue;
        }
        if (!l->holder[0]) gpu_lock_holder(fd, l->holder);
        (void)close(fd);
    }
    const bool enough = st->code == RD_OK && l->n == wanted;
    for (int k = 0; k < l->n && enough; k++) gpu_lock_sign(l->fd[k]);
    if (!enough) gpu_locks_release(l);
    (void)close(all);
    return enough;
}

void gpu_locks_release(gpu_locks *l)
{
    for (int k = 0; k < l->n; k++) (void)close(l->fd[k]);
    l->n = 0;
}
