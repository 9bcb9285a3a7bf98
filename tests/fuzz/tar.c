/* tar.c -- fuzz target: reads any bytes as a tar archive, as a tar of tars and as a WebDataset
 * shard.
 *
 * Each member that the reader returns must be inside the archive as a whole, and its bytes must be
 * those that libarchive reads. */
#include "../../runner/data/images_impl.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(rd_tar *t, const uint8_t *data, size_t size, int depth)
{
    rd_status st = {0};
    rd_tar_member e;
    while (rd_tar_next(t, &e, &st) == RD_OK && e.name) {
        if (e.bytes < 0 || e.name[0] == '/' || strcmp(e.name, "..") == 0) abort();
        if (e.at >= 0 && (size_t)e.at + (size_t)e.bytes > size) abort();
        if (e.at >= 0 && depth == 0) {
            rd_status inner = {0};
            rd_tar *x = NULL;
            if (rd_tar_new_inner(t, &e, &x, &inner) == RD_OK)
                walk(x, data + e.at, (size_t)e.bytes, 1);
            rd_tar_free(x);
        }
        if (e.bytes < 1 << 16) {
            uint8_t *p = malloc((size_t)e.bytes + 1);
            if (!p) abort();
            if (rd_tar_read(t, &e, p, &st) == RD_OK && e.at >= 0 &&
                memcmp(p, data + e.at, (size_t)e.bytes) != 0)
                abort();
            free(p);
        }
    }
    if (st.code != RD_OK && st.msg[0] == '\0') abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const rd_images_kind kind = {.name = "webdataset"};
    rd_status st = {0}, st2 = {0};
    rd_tar *t = NULL;
    rd_images m = {.kind = &kind, .config_classes = 10};
    for (int k = 0; k < RD_IMAGE_BLOCKS; k++) rd_block_init(&m.block[k], false);
    if (rd_tar_new_mem("fuzz", data, size, &t, &st) == RD_OK)
        walk(t, data, size, 0);
    else if (st.msg[0] == '\0')
        abort();
    rd_tar_free(t);
    if (rd_tar_new_mem("fuzz", data, size, &t, &st2) == RD_OK &&
        rd_webdataset_walk(&m, t, "fuzz", 0, &st2) == RD_OK)
        for (int64_t i = 0; i < m.head.n; i++) {
            const rd_sample *s = rd_images_sample(&m, i);
            const size_t room = s->shard == RD_IN_MEMORY ? m.head.pixels : size;
            if (s->label >= 10 || (size_t)s->at + s->bytes > room) abort();
        }
    rd_tar_free(t);
    for (int k = 0; k < RD_IMAGE_BLOCKS; k++) rd_block_free(&m.block[k]);
    return 0;
}
