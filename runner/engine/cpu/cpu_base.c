/* cpu_base.c -- oneDNN's errors as a status, rounding to bfloat16, and growing buffers for the CPU
 * backend. */
#include "cpu_impl.h"
#include <stdlib.h>

rd_code rd_dnnl_result(dnnl_status_t r, const char *call, rd_status *st)
{
    static const char *const text[] = {"success",
                                       "out of memory",
                                       "invalid arguments",
                                       "unimplemented",
                                       "last implementation reached",
                                       "runtime error",
                                       "not required"};
    if (r == dnnl_success) return RD_OK;
    const char *why = (int)r > 0 && (int)r < (int)(sizeof text / sizeof *text) ? text[r]
                                                                               : "unknown error";
    return rd_fail(st, r == dnnl_out_of_memory ? RD_EENV : RD_EBUG, "oneDNN: %s: %s", call, why);
}

void rd_to_half(const float *x, uint16_t *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, 4);
        y[i] = (uint16_t)(rd_round_bits(u) >> 16);
    }
}
void rd_to_soft(const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, 4);
        u = rd_round_bits(u) & 0xffff0000u;
        memcpy(y + i, &u, 4);
    }
}

rd_code rd_cpu_buffer_reserve(rd_cpu_buffer *r, size_t bytes, rd_status *st)
{
    if (r->cap >= bytes) return RD_OK;
    free(r->p);
    r->cap = 0;
    const size_t want = (bytes + bytes / 4 + 4095) / 4096 * 4096;
    r->p = aligned_alloc(64, want);
    if (!r->p) return rd_fail(st, RD_EENV, "out of memory for a buffer of %zu bytes", bytes);
    r->cap = want;
    return RD_OK;
}
void rd_cpu_buffer_free(rd_cpu_buffer *r)
{
    free(r->p);
    *r = (rd_cpu_buffer){0};
}
