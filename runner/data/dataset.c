/* dataset.c -- the datasets by name, and what they have in common. make writes the list of the
 * datasets.
 *
 * Opening a dataset also sorts its samples into buckets, once for all epochs and for all ranks of
 * the host. */
#include "data_impl.h"
#include "rd/printable.h"
#include <inttypes.h>
#include <stdlib.h>
#include <strings.h>

#define RD_ENTRY(name) extern const rd_dataset_def rd_dataset_##name;
#include "datasets.inc"
#undef RD_ENTRY
#define RD_ENTRY(name) &rd_dataset_##name,
static const rd_dataset_def *const all[] = {
#include "datasets.inc"
    NULL,
};
#undef RD_ENTRY

const rd_dataset_def *const *rd_dataset_defs(int *n)
{
    *n = (int)(sizeof all / sizeof all[0]) - 1;
    return all;
}

const rd_dataset_def *rd_dataset_def_of(const rd_dataset *d)
{
    return d->def;
}
int64_t rd_dataset_kept(const rd_dataset *d)
{
    return d->kept;
}

void *rd_dataset_self(const rd_dataset *d)
{
    return d->self;
}

void rd_dataset_text(const rd_dataset *d, int side, const int32_t *ids, int64_t n, bool specials,
                     rd_strbuf *out)
{
    const rd_dataset_def *def = d->def;
    const size_t before = out->n;
    if (!def->text) return;
    def->text(d->self, side, ids, n, specials, out);
    for (size_t i = before; i < out->n; i++)
        if ((unsigned char)out->s[i] < 0x20 || out->s[i] == 0x7f) out->s[i] = ' ';
}

void rd_dataset_class_text(const rd_dataset *d, int32_t k, rd_strbuf *out)
{
    const size_t before = out->n;
    rd_dataset_text(d, 1, &k, 1, false, out);
    if (out->n == before) rd_strbuf_printf(out, "%" PRId32, k);
}

/* Appends the text as a cell, and releases it. */
static void add_cell(rd_strbuf *text, rd_strbuf *out)
{
    rd_printable_cell(out, rd_strbuf_str(text), text->n);
    out->failed = out->failed || text->failed;
    rd_strbuf_release(text);
}

void rd_dataset_class_cell(const rd_dataset *d, int32_t k, rd_strbuf *out)
{
    rd_strbuf name = {0};
    rd_dataset_class_text(d, k, &name);
    add_cell(&name, out);
}

void rd_dataset_text_cell(const rd_dataset *d, int side, const int32_t *ids, int64_t n,
                          rd_strbuf *out)
{
    rd_strbuf text = {0};
    rd_dataset_text(d, side, ids, n, false, &text);
    add_cell(&text, out);
}

const rd_field *rd_batch_field(const rd_batch *b, const char *name)
{
    for (int i = 0; i < b->n_fields; i++)
        if (strcmp(b->field[i].name, name) == 0) return &b->field[i];
    return NULL;
}

static uint64_t dataset_hash_of(int64_t what, int field, int64_t times)
{
    return rd_hash_numbers((uint64_t)what, (uint64_t)field, (uint64_t)times, 0);
}

uint64_t rd_batch_shape(const rd_batch *b)
{
    uint64_t h = dataset_hash_of(b->n, 0, b->n_fields);
    for (int i = 0; i < b->n_fields; i++) {
        const rd_field *f = &b->field[i];
        const int which = i + 1;
        for (int k = 0; k < f->n_dim; k++) h += dataset_hash_of(f->dim[k], which, k + 1);
        for (int64_t j = 0; j < b->n && f->n_dim == 0; j++)
            h += dataset_hash_of(f->off[j + 1] - f->off[j], which, 0);
    }
    return h;
}

const rd_dataset_def *rd_dataset_find(const char *name)
{
    for (int i = 0; all[i]; i++)
        if (strcasecmp(all[i]->name, name) == 0) return all[i];
    return NULL;
}

static rd_code find_def(const char *name, const rd_dataset_def **out, rd_status *st)
{
    char known[256] = "";
    if ((*out = rd_dataset_find(name))) return RD_OK;
    for (int i = 0; all[i]; i++) {
        if (strlen(known) + strlen(all[i]->name) + 3 < sizeof known) {
            if (known[0]) strcat(known, ", ");
            strcat(known, all[i]->name);
        }
    }
    return rd_fail(st, RD_EUSAGE, "no dataset '%s'; known: %s", name, known);
}

/* Fills block 0 with the start of each bucket and block 1 with the members. One bucket without
 * skipped samples needs no members. */
static rd_code sort_samples(rd_dataset *d, bool shared, rd_status *st)
{
    const int n = d->n_buckets;
    rd_block_init(&d->block[0], shared);
    rd_block_init(&d->block[1], shared);
    RD_TRY(rd_block_grow(&d->block[0], (size_t)(n + 1) * sizeof(int64_t), st));
    int64_t *start = (int64_t *)(void *)d->block[0].p;
    for (int64_t i = 0; i < d->count; i++) {
        const int b = d->def->bucket(d->self, i);
        if (b < -1 || b >= n) return rd_fail(st, RD_EBUG, "bucket %d of %d", b, n);
        if (b >= 0) start[b + 1]++;
    }
    for (int b = 0; b < n; b++) start[b + 1] += start[b];
    if (n == 1 && start[1] == d->count) return RD_OK;
    RD_TRY(rd_block_trim(&d->block[1], (size_t)start[n] * sizeof(uint32_t), st));
    uint32_t *members = (uint32_t *)(void *)d->block[1].p;
    for (int64_t i = 0; i < d->count; i++) {
        const int b = d->def->bucket(d->self, i);
        if (b >= 0) members[start[b]++] = (uint32_t)i;
    }
    /* Each start has moved to that of the next bucket: move them back. */
    for (int b = n; b > 0; b--) start[b] = start[b - 1];
    start[0] = 0;
done:
    return st->code;
}

/* Sorts the samples on local rank 0 and shares the result. Collective. */
static rd_code make_index(rd_dataset *d, rd_comm *c, rd_status *st)
{
    bool have = true;
    if (rd_local_rank_of(c) == 0) (void)sort_samples(d, rd_local_size_of(c) > 1, st);
    RD_TRY(rd_agree(c, st));
    RD_TRY(rd_block_share(c, d->block, 2, &have, st));
    if (!have) (void)sort_samples(d, false, st);
    RD_TRY(rd_agree(c, st));
    d->start = (const int64_t *)(const void *)d->block[0].p;
    d->members = (const uint32_t *)(const void *)d->block[1].p;
    d->kept = d->start[d->n_buckets];
    rd_assert(d->start[0] == 0 && d->kept >= 0 && d->kept <= d->count);
done:
    return st->code;
}

rd_code rd_dataset_new(const char *name, const rd_dataset_args *a, rd_dataset **out, rd_status *st)
{
    rd_dataset *d = calloc(1, sizeof *d);
    *out = NULL;
    if (d) {
        rd_block_init(&d->block[0], false);
        rd_block_init(&d->block[1], false);
        (void)find_def(name, &d->def, st);
    } else {
        rd_fail(st, RD_EENV, "out of memory");
    }
    RD_TRY(rd_agree(a->comm, st));
    if (!d || !d->def) /* Never happens: all ranks share the failure. */
        return rd_fail(st, RD_EBUG, "ranks agree without a dataset");
    RD_TRY(d->def->open(a, &d->self, st));
    d->sharded = a->shard && rd_size_of(a->comm) > 1;
    d->keep_all = a->keep_all;
    d->count = d->def->count(d->self);
    d->n_buckets = d->def->n_buckets(d->self);
    RD_TRY(make_index(d, a->comm, st));
    *out = d;
    return RD_OK;
done:
    rd_dataset_free(d);
    return st->code;
}

void rd_dataset_free(rd_dataset *d)
{
    if (!d) return;
    if (d->self) d->def->close(d->self);
    rd_block_free(&d->block[0]);
    rd_block_free(&d->block[1]);
    free(d);
}
