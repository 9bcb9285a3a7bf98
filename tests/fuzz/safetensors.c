/* safetensors.c -- fuzz target: reads any bytes as a safetensors file.
 *
 * The target reads every byte of an accepted file, so that the sanitizer sees a wrong place, and
 * checks that the arrays fill the data. */
#include "rd/safetensors.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rd_status st = {0};
    rd_safetensors *s;
    size_t bytes = 0;
    unsigned sum = 0;
    if (rd_safetensors_new_mem(data, size, &s, &st) == RD_OK) {
        for (int i = 0; i < rd_safetensors_n(s); i++) {
            const rd_array *a = rd_safetensors_at(s, i);
            unsigned char *copy = malloc(a->bytes + 1);
            if (!copy || rd_safetensors_read(s, i, copy, &st) != RD_OK) abort();
            for (size_t k = 0; k < a->bytes; k++) sum += copy[k];
            if (rd_safetensors_find(s, a->name) != a || a->data) abort();
            bytes += a->bytes;
            free(copy);
        }
        if (bytes + 8 > size) abort();
        rd_safetensors_free(s);
    } else if (s || !st.msg[0]) {
        abort();
    }
    volatile unsigned sink = sum;
    (void)sink;
    return 0;
}
