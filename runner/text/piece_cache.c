/* piece_cache.c -- remembers results for pieces of text: a hash table and one block of bytes. */
#include "piece_cache.h"
#include <stdlib.h>
#include <string.h>

enum {
    CACHE_SLOTS = 1 << 17, /* at most half of them are used */
    CACHE_BYTES = 4 << 20,
    LONGEST_KEY = 128,
    LONGEST_VALUE = 1024
};

static rd_cache_slot *cache_slot(const rd_piece_cache *c, uint64_t hash, const char *key, size_t n)
{
    size_t i = hash & (CACHE_SLOTS - 1);
    for (; c->slot[i].at; i = (i + 1) & (CACHE_SLOTS - 1)) {
        const rd_cache_slot *s = &c->slot[i];
        if (s->hash == hash && s->n_key == n && memcmp(c->bytes + s->at + s->n_value, key, n) == 0)
            break;
    }
    return &c->slot[i];
}

const void *rd_piece_cache_find(const rd_piece_cache *c, uint64_t hash, const char *key, size_t n,
                                size_t *n_value)
{
    if (!c->slot || n > LONGEST_KEY) return NULL;
    const rd_cache_slot *s = cache_slot(c, hash, key, n);
    *n_value = s->n_value;
    return s->at ? c->bytes + s->at : NULL;
}

void rd_piece_cache_put(rd_piece_cache *c, uint64_t hash, const char *key, size_t n,
                        const void *value, size_t n_value)
{
    if (n > LONGEST_KEY || n_value > LONGEST_VALUE || n_value == 0) return;
    if (!c->slot) {
        c->slot = calloc(CACHE_SLOTS, sizeof *c->slot);
        c->bytes = malloc(CACHE_BYTES);
        if (!c->slot || !c->bytes) {
            rd_piece_cache_release(c);
            return;
        }
        c->used = 4;
    }
    if (c->n >= CACHE_SLOTS / 2 || c->used + n + n_value + 4 > CACHE_BYTES) {
        memset(c->slot, 0, CACHE_SLOTS * sizeof *c->slot);
        c->used = 4;
        c->n = 0;
    }
    rd_cache_slot *s = cache_slot(c, hash, key, n);
    if (s->at) return;
    *s = (rd_cache_slot){hash, (uint32_t)c->used, (uint16_t)n, (uint16_t)n_value};
    memcpy(c->bytes + c->used, value, n_value);
    memcpy(c->bytes + c->used + n_value, key, n);
    c->used += (n + n_value + 3) & ~(size_t)3;
    c->n++;
}

void rd_piece_cache_release(rd_piece_cache *c)
{
    free(c->slot);
    free(c->bytes);
    *c = (rd_piece_cache){0};
}
