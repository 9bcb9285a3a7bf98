/* share.c -- arrays that one rank of a host writes and all ranks of the host read.
 *
 * The array is stored in a memory file (memfd_create). Such a file has no name, needs no writable
 * folder, cannot meet a full disk and vanishes with its last user, even if that one is killed.
 * Other ranks open it as /proc/<pid>/fd/<fd>. If that is impossible (no memfd, ranks in different
 * process namespaces), the block is private memory and *have is false: the rank then fills its own
 * copy. */
#include "data_impl.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_SHARED = 12 };

/* What local rank 0 sends to the other ranks of its host. */
typedef struct message {
    int64_t pid, n, fd[MAX_SHARED], bytes[MAX_SHARED];
} message;

void rd_block_init(rd_block *b, bool shared)
{
    *b = (rd_block){.fd = -1, .shared = shared};
}

/* Rounds up to whole pages. */
static size_t pages(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static rd_code resize(rd_block *b, size_t bytes, rd_status *st)
{
    rd_assert(bytes > 0);
    bytes = pages(bytes);
    if (bytes == b->bytes) return RD_OK;
    if (!b->p && b->shared && b->fd < 0) {
        b->fd = memfd_create("run_dist-data", MFD_CLOEXEC);
        if (b->fd < 0) b->shared = false;
    }
    if (b->fd >= 0 && ftruncate(b->fd, (off_t)bytes) != 0) goto failed;
    void *p;
    if (b->p)
        p = mremap(b->p, b->bytes, bytes, MREMAP_MAYMOVE);
    else
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                 b->fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, b->fd, 0);
    if (p == MAP_FAILED) goto failed;
    b->p = p;
    b->bytes = bytes;
    return RD_OK;
failed:
    return rd_fail(st, RD_EENV, "out of memory for %zu MiB of training data: %s", bytes >> 20,
                   strerror(errno));
}

rd_code rd_block_grow(rd_block *b, size_t bytes, rd_status *st)
{
    if (bytes <= b->bytes) return RD_OK;
    size_t more = b->bytes + b->bytes / 2; /* untouched pages take no memory */
    if (more < (size_t)1 << 16) more = (size_t)1 << 16;
    return resize(b, bytes > more ? bytes : more, st);
}

rd_code rd_block_trim(rd_block *b, size_t bytes, rd_status *st)
{
    return resize(b, bytes > 0 ? bytes : 1, st);
}

void rd_block_free(rd_block *b)
{
    if (b->p) munmap(b->p, b->bytes);
    if (b->fd >= 0) close(b->fd);
    rd_block_init(b, false);
}

static bool map_block(rd_block *b, const message *m, int64_t i)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/fd/%" PRId64, m->pid, m->fd[i]);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    /* In another namespace the number may be that of another process: compare the size. */
    const off_t size = lseek(fd, 0, SEEK_END);
    void *p = size == (off_t)m->bytes[i]
                  ? mmap(NULL, (size_t)m->bytes[i], PROT_READ, MAP_SHARED, fd, 0)
                  : MAP_FAILED;
    close(fd);
    if (p == MAP_FAILED) return false;
    b->p = p;
    b->bytes = (size_t)m->bytes[i];
    return true;
}

rd_code rd_block_share(rd_comm *c, rd_block *b, int n, bool *have, rd_status *st)
{
    *have = true;
    if (rd_local_size_of(c) == 1) return RD_OK;
    if (n > MAX_SHARED)
        return rd_fail(st, RD_EBUG, "%d blocks to share, at most %d are possible", n, MAX_SHARED);
    rd_assert(n > 0);
    const bool root = rd_local_rank_of(c) == 0;
    message m = {.pid = getpid(), .n = n};
    for (int i = 0; root && i < n; i++) {
        m.fd[i] = b[i].p ? b[i].fd : -2; /* -2: empty; -1: private memory, cannot be shared */
        m.bytes[i] = (int64_t)b[i].bytes;
    }
    RD_TRY(rd_comm_local_bcast(c, &m, sizeof m, 0, st));
    for (int i = 0; !root && i < n; i++) rd_block_init(&b[i], true);
    for (int i = 0; !root && i < n && *have; i++)
        if (m.fd[i] != -2) *have = m.fd[i] >= 0 && map_block(&b[i], &m, i);
    for (int i = 0; !root && !*have && i < n; i++) rd_block_free(&b[i]);
    RD_TRY(rd_comm_local_barrier(c, st)); /* the files stay open until all have mapped them */
    for (int i = 0; root && i < n; i++)
        if (b[i].fd >= 0) {
            close(b[i].fd);
            b[i].fd = -1;
        }
done:
    return st->code;
}
