/* idx.c -- fuzz target: reads any bytes as a pair of IDX files, images and labels.
 *
 * The first two bytes are the length of the first file. Each file may be compressed. */
#include "../../runner/data/images_impl.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const rd_images_kind kind = {.name = "idx"};
    if (size < 2) return 0;
    const size_t left = size - 2, claimed = (size_t)data[0] << 8 | data[1],
                 n = claimed < left ? claimed : left;
    rd_status st = {0};
    rd_stream *s[2] = {NULL, NULL};
    rd_images m = {.kind = &kind};
    for (int k = 0; k < RD_IMAGE_BLOCKS; k++) rd_block_init(&m.block[k], false);
    if (rd_stream_new_mem("images", data + 2, n, &s[0], &st) == RD_OK &&
        rd_stream_new_mem("labels", data + 2 + n, left - n, &s[1], &st) == RD_OK &&
        rd_idx_load(&m, s[0], "images", s[1], "labels", &st) == RD_OK) {
        unsigned sum = 0;
        for (int64_t i = 0; i < m.head.n * m.head.h * m.head.w * m.head.c; i++)
            sum += rd_images_pixels(&m, 0)[i];
        for (int64_t i = 0; i < m.head.n; i++)
            if (((const int32_t *)(const void *)m.block[RD_BLOCK_LABELS].p)[i] >= m.head.n_classes)
                abort();
        volatile unsigned sink = sum;
        (void)sink;
    } else if (st.code == RD_OK || st.msg[0] == '\0') {
        abort();
    }
    for (int k = 0; k < 2; k++) rd_stream_free(s[k]);
    for (int k = 0; k < RD_IMAGE_BLOCKS; k++) rd_block_free(&m.block[k]);
    return 0;
}
