/* memory_emulated.cc -- device memory on the host, for builds without a GPU: one range of addresses
 * that host code cannot touch.
 *
 * New memory contains NaN. */
#include "device_emulated.h"
#include <new>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

namespace
{

enum { ALIGN = 256, PAGE = 4096 };
const size_t FILLED = (size_t)1 << 20;

/* Allocations and free pieces of the range in order of address. Neighbouring free pieces are
 * joined. */
struct piece {
    piece *next;
    char *at;
    size_t bytes;
    const void *owner; /* nullptr: free */
};

char *range;
/* range_used: bytes from the start that were allocated at some time */
size_t range_bytes, range_used;
piece *pieces;
int open_depth;

void protect(int how)
{
    if (!range_used || mprotect(range, range_used, how) == 0) return;
    fprintf(stderr, "emulated GPU: the kernel refuses to protect device memory\n");
    abort();
}

} // namespace

extern "C" {

bool rd_emulated_range(size_t bytes)
{
    if (range) return true;
    void *p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    piece *all = new (std::nothrow) piece{nullptr, nullptr, 0, nullptr};
    if (p == MAP_FAILED || !all) return false;
    (void)madvise(p, bytes, MADV_HUGEPAGE); /* fewer pages to open and close */
    range = (char *)p;
    range_bytes = bytes;
    all->at = range;
    all->bytes = bytes;
    pieces = all;
    return true;
}

void rd_emulated_open(void)
{
    if (open_depth++ == 0) protect(PROT_READ | PROT_WRITE);
}

void rd_emulated_close(void)
{
    if (--open_depth == 0) protect(PROT_NONE);
}

bool rd_emulated_is_device(const void *p, size_t bytes)
{
    const char *at = (const char *)p;
    if (!range || at < range || at >= range + range_bytes) return false;
    if (bytes == 0) return true;
    for (const piece *q = pieces; q; q = q->next)
        if (q->owner && at >= q->at && at + bytes <= q->at + q->bytes) return true;
    return false;
}

size_t rd_emulated_padded(size_t bytes)
{
    return (bytes + ALIGN) / ALIGN * ALIGN; /* at least one */
}

void *rd_emulated_take(const void *owner, size_t bytes)
{
    const size_t need = rd_emulated_padded(bytes);
    piece *p = pieces;
    while (p && (p->owner || p->bytes < need)) p = p->next;
    if (!p) return nullptr;
    /* never a piece of no bytes: it would begin where the next one does */
    if (p->bytes > need) {
        piece *rest = new (std::nothrow) piece{p->next, p->at + need, p->bytes - need, nullptr};
        if (!rest) return nullptr;
        p->next = rest;
        p->bytes = need;
    }
    p->owner = owner;
    const size_t used = ((size_t)(p->at + need - range) + PAGE - 1) / PAGE * PAGE;
    if (used > range_used) range_used = used;
    if (open_depth) protect(PROT_READ | PROT_WRITE);
    rd_emulated_access access;
    memset(p->at, 0xff, need < FILLED ? need : FILLED); /* undefined contents: NaN */
    return p->at;
}

size_t rd_emulated_taken(const void *owner, const void *at)
{
    for (const piece *p = pieces; p; p = p->next)
        if (p->at == (const char *)at && p->owner && p->owner == owner) return p->bytes;
    return 0;
}

void rd_emulated_give_back(const void *at)
{
    piece *before = nullptr, *p = pieces;
    for (; p && p->at != (const char *)at; p = p->next) before = p;
    if (!p) return;
    p->owner = nullptr;
    for (piece *q = before && !before->owner ? before : p; q->next && !q->next->owner;) {
        piece *next = q->next;
        q->bytes += next->bytes;
        q->next = next->next;
        delete next;
    }
}

} // extern "C"
