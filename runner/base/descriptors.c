/* descriptors.c -- the numbers 0, 1 and 2 belong to standard input, output and error, see file.h.
 *
 * A daemon, cron or a shell with `<&- >&- 2>&-` may start the program without them. */
#include "rd/file.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

void rd_open_standard(void)
{
    /* As if still closed: reading 0 fails, and so does writing 1 or 2. Results are not lost without
     * a word. */
    static const int flags[] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int i = 0; i < 3; i++) {
        if (fcntl(i, F_GETFD) >= 0 || errno != EBADF) continue;
        int fd = open("/dev/null", flags[i]);
        if (fd < 0) fd = open("/", O_RDONLY | O_DIRECTORY); /* a root without /dev */
        if (fd > i) (void)close(fd);                        /* another thread took the number */
    }
}

int rd_pipe(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    for (int i = 0; i < 2; i++) {
        if (ends[i] > STDERR_FILENO) continue;
        const int higher = fcntl(ends[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1), err = errno;
        (void)close(ends[i]);
        ends[i] = higher;
        if (higher >= 0) continue;
        (void)close(ends[1 - i]);
        ends[0] = ends[1] = -1;
        errno = err;
        return -1;
    }
    return 0;
}
