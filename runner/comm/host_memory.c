/* host_memory.c -- memory that the ranks of one host share.
 *
 * The mapping is an anonymous file (memfd) that the other ranks open through /proc. There are three
 * reasons not to use MPI_Win_allocate_shared. A memfd is not in /dev/shm, whose 64 MB in a
 * container make that call hang. A killed run leaves nothing behind. A failure is an answer that
 * all ranks get. */
#include "host_memory.h"
#include "mpi_error.h"
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* What local rank 0 sends to the other ranks of the host about the memory that it made. The
 * memory contains the mark, too, because a process with the same pid in another container
 * would have other memory. */
typedef struct host_memory_offer {
    int64_t pid, fd, err, mark;
} host_memory_offer;

static int make_memory(size_t bytes, host_memory_offer *o)
{
    const int fd = memfd_create("run_dist", MFD_CLOEXEC);
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    *o = (host_memory_offer){
        .pid = getpid(), .fd = fd, .mark = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec};
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) o->err = errno;
    return fd;
}

static void *map_memory(int fd, size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return NULL;
    /* For systems that give large pages to shared memory on request. */
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

void rd_host_memory_why(int err, size_t bytes, char why[200])
{
    const char *remedy = err == ENOMEM || err == ENOSPC
                             ? "; raise the memory limit of the job or its container"
                         : err == EACCES || err == EPERM
                             ? "; start all ranks of a host as one user and in one container"
                         : err == ENOENT || err == ESTALE
                             ? "; start all ranks of a host in one container, or let their "
                               "containers share processes (--pid=host)"
                         : err == ENOSYS ? "; let the sandbox allow memfd_create"
                                         : "";
    snprintf(why, 200, "a host's ranks cannot share %.1f MiB: %s%s", (double)bytes / 1048576,
             strerrordesc_np(err), remedy);
}

int rd_host_memory_new(MPI_Comm local, size_t bytes, size_t mark_at, unsigned char **map,
                       rd_status *st)
{
    host_memory_offer o = {0};
    int fd = -1, err = 0, me = 0;
    *map = NULL;
    MPI_Comm_rank(local, &me);
    if (me == 0) {
        fd = make_memory(bytes, &o);
        if (o.err == 0 && !(*map = map_memory(fd, bytes))) o.err = errno;
        if (*map) memcpy(*map + mark_at, &o.mark, sizeof o.mark);
    }
    if (RD_MPI(MPI_Bcast(&o, (int)sizeof o, MPI_BYTE, 0, local), st) != RD_OK) err = EIO;
    if (err == 0) err = (int)o.err;
    if (err == 0 && me != 0) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%" PRId64 "/fd/%" PRId64, o.pid, o.fd);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0 || lseek(fd, 0, SEEK_END) != (off_t)bytes)
            err = fd < 0 ? errno : ESTALE;
        else if (!(*map = map_memory(fd, bytes)))
            err = errno;
        else if (memcmp(*map + mark_at, &o.mark, sizeof o.mark) != 0)
            err = ESTALE;
    }
    if (err == 0 && !*map) err = EIO;
    /* Local rank 0's descriptor stays open until all ranks have opened it. */
    (void)RD_MPI(MPI_Barrier(local), st);
    if (fd >= 0) close(fd);
    return err;
}
