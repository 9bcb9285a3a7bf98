/* piece_cache.h -- remembers the result for pieces of text that occur again, for one thread. */
#ifndef RD_PIECE_CACHE_H
#define RD_PIECE_CACHE_H

#include "rd/status.h"
#include <stdint.h>

typedef struct rd_cache_slot {
    uint64_t hash;
    uint32_t at; /* where value and key are in bytes; 0: an empty slot */
    uint16_t n_key, n_value;
} rd_cache_slot;

/* A struct of zeros is an empty cache. It is emptied when it is full: frequent pieces come back at
 * once. */
typedef struct rd_piece_cache {
    rd_cache_slot *slot; /* owned */
    char *bytes;         /* owned */
    size_t used;
    uint32_t n;
} rd_piece_cache;

/* Returns the value of a key, aligned to 4 bytes, and its length. NULL: it is not in the cache.
 * hash: rd_hash of the key. Borrowed until the next put. */
const void *rd_piece_cache_find(const rd_piece_cache *c, uint64_t hash, const char *key, size_t n,
                                size_t *n_value);
/* Stores a value for a key that is not in the cache, if both are short. Without memory nothing is
 * stored. */
void rd_piece_cache_put(rd_piece_cache *c, uint64_t hash, const char *key, size_t n,
                        const void *value, size_t n_value);
void rd_piece_cache_release(rd_piece_cache *c);

#endif
