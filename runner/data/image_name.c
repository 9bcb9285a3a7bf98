/* image_name.c -- names a sample in messages and print-outs. */
#include "images_impl.h"
#include <inttypes.h>
#include <stdio.h>

void rd_images_name(const rd_images *m, int64_t i, char *out, size_t n)
{
    if (m->head.h > 0 || i < 0 || i >= m->head.n) {
        snprintf(out, n, "image %" PRId64, i);
        return;
    }
    const rd_sample *e = rd_images_sample(m, i);
    const char *name = m->block[RD_BLOCK_NAMES].p + e->name;
    if (e->shard == RD_IN_FILE)
        snprintf(out, n, "%s/%s", m->shards[0], name);
    else if (e->shard == RD_IN_MEMORY)
        snprintf(out, n, "%s", name);
    else
        snprintf(out, n, "%s!%s", m->shards[e->shard], name);
}
