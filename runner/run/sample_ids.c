/* sample_ids.c -- the ids of the samples that a step used, for samples.jsonl.
 *
 * The ids are those of the batches that the ranks computed, not of the planned order. So the file
 * shows which samples an epoch really had, over all restarts. */
#include "sample_ids.h"

#include <inttypes.h>
#include <stdlib.h>

rd_code sample_ids_add(sample_ids *s, const rd_batch *b, rd_status *st)
{
    if (s->n + b->n > s->capacity) {
        const int64_t capacity = 2 * s->capacity + b->n;
        struct sample_id *more = realloc(s->at, (size_t)capacity * sizeof *more);
        if (!more)
            return rd_fail(st, RD_EENV, "out of memory for the ids of %" PRId64 " samples",
                           s->n + b->n);
        s->at = more;
        s->capacity = capacity;
    }
    for (int64_t i = 0; i < b->n; i++)
        s->at[s->n++] = (struct sample_id){.epoch = b->epoch, .id = b->sample[i]};
    return RD_OK;
}

static int ids_in_order(const void *a, const void *b)
{
    const struct sample_id *x = a, *y = b;
    if (x->epoch != y->epoch) return x->epoch < y->epoch ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

rd_code sample_ids_write(rd_run *r, sample_ids *s, recorder *out, rd_status *st)
{
    char *bytes = NULL;
    int64_t *lens = NULL, n = 0;
    RD_TRY(rd_comm_gather(r->comm, s->at, s->n * (int64_t)sizeof *s->at, &bytes, &lens, st));
    s->n = 0;
    if (r->world->rank != 0) goto done;
    struct sample_id *all = (struct sample_id *)(void *)bytes;
    for (int i = 0; i < r->world->size; i++) n += lens[i] / (int64_t)sizeof *all;
    if (n > 0) qsort(all, (size_t)n, sizeof *all, ids_in_order);
    for (int64_t i = 0; i < n;) {
        const int64_t epoch = all[i].epoch;
        json_t *list = json_array();
        for (; i < n && all[i].epoch == epoch; i++)
            (void)json_array_append_new(list, json_integer((json_int_t)all[i].id));
        recorder_samples(out, r->progress.step, epoch, list);
    }
done:
    free(bytes);
    free(lens);
    return st->code;
}

void sample_ids_release(sample_ids *s)
{
    free(s->at);
}
