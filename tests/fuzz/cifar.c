/* cifar.c -- fuzz target: reads any bytes as CIFAR's archive.
 *
 * The first byte chooses the split (bit 0) and n_classes: none, 10, 20 or 100 (bits 1 and 2). */
#include "../../runner/data/images_impl.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const rd_images_kind kind = {.name = "cifar"};
    static const int64_t n_classes[4] = {0, 10, 20, 100};
    if (size == 0) return 0;
    rd_status st = {0};
    rd_tar *t = NULL;
    rd_images m = {.kind = &kind,
                   .split = data[0] & 1 ? RD_SPLIT_TRAIN : RD_SPLIT_EVAL,
                   .config_classes = n_classes[data[0] >> 1 & 3]};
    for (int k = 0; k < RD_IMAGE_BLOCKS; k++) rd_block_init(&m.block[k], false);
    if (rd_tar_new_mem("fuzz", data + 1, size - 1, &t, &st) == RD_OK &&
        rd_cifar_load(&m, t, "fuzz", &st) == RD_OK) {
        unsigned sum = 0;
        for (int64_t i = 0; i < m.head.n * 32 * 32 * 3; i++) sum += rd_images_pixels(&m, 0)[i];
        for (int64_t i = 0; i < m.head.n; i++)
            if (((const int32_t *)(const void *)m.block[RD_BLOCK_LABELS].p)[i] >= m.head.n_classes)
                abort();
        volatile unsigned sink = sum;
        (void)sink;
    } else if (st.code == RD_OK || st.msg[0] == '\0') {
        abort();
    }
    rd_tar_free(t);
    for (int k = 0; k < RD_IMAGE_BLOCKS; k++) rd_block_free(&m.block[k]);
    return 0;
}
