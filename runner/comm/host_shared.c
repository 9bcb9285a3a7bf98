/* host_shared.c -- memory that the ranks of a host share, for modules that keep one copy per host.
 * If the sums of a job do not go through shared memory, nothing else does. */
#include "comm_impl.h"
#include <stdio.h>
#include <sys/mman.h>

enum {
    MARK_BYTES = 64
}; /* after the caller's bytes: the mark by which `share` knows its own memory */

rd_code rd_comm_shared(rd_comm *c, size_t bytes, void **out, char why[200], rd_status *st)
{
    *out = NULL;
    why[0] = '\0';
    if (c->w.local_size == 1 || !c->vt->share) return st->code;
    if (!c->shares) {
        (void)snprintf(why, 200, "the ranks of a host share no memory");
        return st->code;
    }
    bytes = (bytes + MARK_BYTES - 1) / MARK_BYTES * MARK_BYTES;
    if (c->vt->share(c, bytes + MARK_BYTES, bytes, out, why, st) != RD_OK) return st->code;
    return st->code;
}

void rd_comm_unshare(void *p, size_t bytes)
{
    if (p) munmap(p, (bytes + MARK_BYTES - 1) / MARK_BYTES * MARK_BYTES + MARK_BYTES);
}
