/* scratch.c -- working memory of one thread that reads images. Buffers grow as needed and are
 * reused from image to image. Those of one very large image are not kept. */
#include "images_impl.h"
#include <stdlib.h>

enum { KEEP_BYTES = 1 << 27 }; /* a larger buffer is freed after its image */

static void scratch_drop(uint8_t **p, size_t *have)
{
    if (*have <= KEEP_BYTES) return;
    free(*p);
    *p = NULL;
    *have = 0;
}

void rd_scratch_shrink(rd_scratch *s)
{
    scratch_drop(&s->bytes, &s->n_bytes);
    scratch_drop(&s->pixels, &s->n_pixels);
    scratch_drop(&s->wide, &s->n_wide);
}

void rd_scratch_release(rd_scratch *s)
{
    free(s->bytes);
    free(s->pixels);
    free(s->wide);
    free(s->rows);
    free(s->plane);
    free(s->weight);
    free(s->index);
    *s = (rd_scratch){0};
}

rd_code rd_scratch_reserve(void *at, size_t *have, size_t n, rd_status *st)
{
    void *p;
    if (n <= *have) return RD_OK;
    memcpy(&p, at, sizeof p); /* `at` points to a pointer of any type */
    free(p);
    *have = 0;
#ifdef RD_DEBUG
    const size_t more = n; /* AddressSanitizer then sees what is read behind */
#else
    const size_t more = n < KEEP_BYTES ? n + n / 2 : n;
#endif
    p = aligned_alloc(64, (more + 64 + 63) / 64 * 64);
    memcpy(at, &p, sizeof p);
    if (!p) return rd_fail(st, RD_EENV, "out of memory for an image of %zu bytes", more);
    *have = more;
    return RD_OK;
}
