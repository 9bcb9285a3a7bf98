/* io_faults.c -- for LD_PRELOAD: makes calls for files fail, as the environment says.
 *
 *     IO_CALL    the call: "open", "read", "stat", "opendir", "readdir", "fsync", "rename"
 *     IO_PATH    text in the path of its file
 *     IO_ERRNO   number of the error; 0: none
 *     IO_SKIP    number of such calls that succeed first, in each process (0)
 *     IO_COUNT   number of such calls that fail then, in each process (1); -1: all
 *     IO_RANK    only this rank, by OMPI_COMM_WORLD_RANK; not set: all
 *     IO_FLAG    calls fail only while this file is there; not set: always
 *     IO_MOST    a read returns at most this number of bytes */
#include "io_faults.h"
#include <stdatomic.h>
#include <stdlib.h>

static long number(const char *name, long dflt)
{
    const char *v = getenv(name);
    return v ? atol(v) : dflt;
}

static int io_fault(const char *call, const char *path, size_t *n)
{
    static atomic_long seen;
    const char *part = getenv("IO_PATH"), *wanted = getenv("IO_CALL"), *flag = getenv("IO_FLAG"),
               *rank = getenv("IO_RANK"), *mine = getenv("OMPI_COMM_WORLD_RANK");
    if (!part || !strstr(path, part)) return 0;
    if (rank && (!mine || strcmp(rank, mine) != 0)) return 0;
    const long most = number("IO_MOST", 0);
    if (strcmp(call, "read") == 0 && most > 0 && *n > (size_t)most) *n = (size_t)most;
    if (!wanted || strcmp(call, wanted) != 0 || (flag && access(flag, F_OK) != 0)) return 0;
    const long k = atomic_fetch_add(&seen, 1), skip = number("IO_SKIP", 0),
               count = number("IO_COUNT", 1);
    if (k < skip || (count >= 0 && k >= skip + count)) return 0;
    return (int)number("IO_ERRNO", 0);
}
