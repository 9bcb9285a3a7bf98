/* image_name.c -- names a sample in messages and print-outs. */
#include "images_impl.h"
#include <inttypes.h>
#include <stdio.h>

void rd_images_name_add(const rd_images *m, int64_t i, rd_strbuf *out)
{
    if (m->head.h > 0 || i < 0 || i >= m->head.n) {
        rd_strbuf_printf(out, "image %" PRId64, i);
        return;
    }
    const rd_sample *e = rd_images_sample(m, i);
    const char *name = m->block[RD_BLOCK_NAMES].p + e->name;
    if (e->shard == RD_IN_FILE)
        rd_strbuf_printf(out, m->shards[0][0] ? "%s/%s" : "%s%s", m->shards[0], name);
    else if (e->shard == RD_IN_MEMORY)
        rd_strbuf_puts(out, name);
    else
        rd_strbuf_printf(out, "%s!%s", m->shards[e->shard], name);
}

void rd_images_name(const rd_images *m, int64_t i, char *out, size_t n)
{
    rd_strbuf b = {0};
    rd_images_name_add(m, i, &b);
    (void)snprintf(out, n, "%s", rd_strbuf_str(&b));
    rd_strbuf_release(&b);
}
