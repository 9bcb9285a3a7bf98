/* bucket_cut.c -- cuts the gradient arena into buckets. */
#include "bucket_cut.h"

int bucket_cut(const bucket_param *p, int n, const bucket_sizes *s, rd_flow_part *bucket, int *size,
               int *bucket_of)
{
    int made = 0;
    bool open = false; /* the last bucket may grow */
    for (int i = 0; i < n; i++) {
        const int64_t end = i + 1 < n ? p[i + 1].offset : s->span;
        bucket_of[i] = -1;
        rd_assert(p[i].offset < end); /* in the order of the arena, without empty parameters */
        if (p[i].table) {
            open = false;
            continue;
        }
        if (open && ((double)bucket[made - 1].n * 4.0 >= (made == 1 ? s->first : s->bytes) ||
                     p[i].state != p[i - 1].state))
            open = false;
        if (!open) bucket[made++] = (rd_flow_part){.from = p[i].offset};
        open = true;
        bucket[made - 1].n = end - bucket[made - 1].from;
        bucket_of[i] = made - 1;
        size[made - 1]++;
    }
    rd_assert(made <= n);
    return made;
}
