/* npz.c -- fuzz target: reads any bytes as a NumPy archive.
 *
 * The target reads every byte of an accepted array, so that the sanitizer sees a wrong size. */
#include "rd/npz.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rd_status st = {0};
    rd_npz *z;
    unsigned sum = 0;
    if (rd_npz_new_mem(data, size, &z, &st) == RD_OK) {
        for (int i = 0; i < rd_npz_n(z); i++) {
            const rd_array *a = rd_npz_at(z, i);
            for (size_t k = 0; k < a->bytes; k++) sum += ((const unsigned char *)a->data)[k];
            if (rd_npz_find(z, a->name) != a) abort();
        }
        rd_npz_free(z);
    } else if (z || !st.msg[0]) {
        abort();
    }
    volatile unsigned sink = sum;
    (void)sink;
    return 0;
}
