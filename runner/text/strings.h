/* strings.h -- a set of byte strings, each stored once. Ids 0, 1, ... have the order of adding. */
#ifndef RD_STRINGS_H
#define RD_STRINGS_H

#include "rd/status.h"
#include <stdint.h>

typedef struct rd_string {
    size_t at; /* where it begins in rd_strings.bytes */
    uint32_t n;
} rd_string;

/* A struct of zeros is an empty set. */
typedef struct rd_strings {
    char *bytes; /* owned */
    size_t n_bytes, cap_bytes;
    rd_string *item; /* [n] */
    int32_t n, cap;
    int32_t *slot; /* id + 1; 0: empty */
    size_t mask;
    bool failed; /* an allocation failed; nothing is added since */
} rd_strings;

/* Returns the id of a string, and adds it if it is new. -1: out of memory, which is in `failed`, or
 * a string of 4 GiB. */
int32_t rd_strings_add(rd_strings *s, const char *at, size_t n);
/* Returns the id of a string, -1: the set does not have it. */
int32_t rd_strings_find(const rd_strings *s, const char *at, size_t n);
/* Adds the string of two ids, one behind the other. */
int32_t rd_strings_join(rd_strings *s, int32_t left, int32_t right);
/* Returns a string and its length. Borrowed until the set changes. */
static inline const char *rd_strings_at(const rd_strings *s, int32_t id, size_t *n)
{
    *n = s->item[id].n;
    return s->bytes + s->item[id].at;
}
/* Compares two strings as bytes, the shorter one first if it is the begin of the other: < 0, 0 or
 * > 0. For UTF-8 it is the order of code points. */
int rd_strings_compare(const rd_strings *s, int32_t a, int32_t b);
void rd_strings_release(rd_strings *s);

#endif
