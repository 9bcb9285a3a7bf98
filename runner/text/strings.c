/* strings.c -- a set of byte strings with ids. */
#include "strings.h"
#include "rd/hash.h"
#include <stdlib.h>

static bool strings_grow_slots(rd_strings *s)
{
    const size_t mask = s->mask ? s->mask * 2 + 1 : 1023;
    int32_t *slot = calloc(mask + 1, sizeof *slot);
    if (!slot) return false;
    for (int32_t k = 0; k < s->n; k++) {
        size_t i = rd_hash(0, s->bytes + s->item[k].at, s->item[k].n) & mask;
        while (slot[i]) i = (i + 1) & mask;
        slot[i] = k + 1;
    }
    free(s->slot);
    s->slot = slot;
    s->mask = mask;
    return true;
}

/* Makes room for one more string of n bytes. */
static bool strings_grow(rd_strings *s, size_t n)
{
    if (s->n_bytes + n > s->cap_bytes) {
        const size_t cap = (s->n_bytes + n) * 2 + 4096;
        char *p = realloc(s->bytes, cap);
        if (!p) return false;
        s->bytes = p;
        s->cap_bytes = cap;
    }
    if (s->n == s->cap) {
        if (s->cap > INT32_MAX / 4) return false;
        const int32_t cap = s->cap * 2 + 256;
        rd_string *p = realloc(s->item, (size_t)cap * sizeof *p);
        if (!p) return false;
        s->item = p;
        s->cap = cap;
    }
    return (size_t)s->n * 2 < s->mask || strings_grow_slots(s);
}

/* Returns the slot that has the string, or where it would be. */
static size_t strings_slot(const rd_strings *s, const char *at, size_t n)
{
    size_t i = rd_hash(0, at, n) & s->mask;
    for (; s->slot[i]; i = (i + 1) & s->mask) {
        const rd_string *t = &s->item[s->slot[i] - 1];
        if (t->n == n && (n == 0 || memcmp(s->bytes + t->at, at, n) == 0)) break;
    }
    return i;
}

int32_t rd_strings_find(const rd_strings *s, const char *at, size_t n)
{
    return s->slot ? s->slot[strings_slot(s, at, n)] - 1 : -1;
}

int32_t rd_strings_add(rd_strings *s, const char *at, size_t n)
{
    const int32_t known = rd_strings_find(s, at, n);
    if (known >= 0) return known;
    if (n > UINT32_MAX || s->failed || !strings_grow(s, n)) {
        s->failed = true;
        return -1;
    }
    s->slot[strings_slot(s, at, n)] = s->n + 1;
    if (n > 0) memcpy(s->bytes + s->n_bytes, at, n);
    s->item[s->n] = (rd_string){s->n_bytes, (uint32_t)n};
    s->n_bytes += n;
    return s->n++;
}

int32_t rd_strings_join(rd_strings *s, int32_t left, int32_t right)
{
    const size_t n = s->item[left].n, m = s->item[right].n;
    /* The joined string is built behind the others, where adding it leaves it. */
    if (s->failed || !strings_grow(s, n + m)) {
        s->failed = true;
        return -1;
    }
    char *p = s->bytes + s->n_bytes;
    memcpy(p, s->bytes + s->item[left].at, n);
    memcpy(p + n, s->bytes + s->item[right].at, m);
    const size_t i = strings_slot(s, p, n + m);
    if (s->slot[i]) return s->slot[i] - 1;
    s->slot[i] = s->n + 1;
    s->item[s->n] = (rd_string){s->n_bytes, (uint32_t)(n + m)};
    s->n_bytes += n + m;
    return s->n++;
}

int rd_strings_compare(const rd_strings *s, int32_t a, int32_t b)
{
    const rd_string x = s->item[a], y = s->item[b];
    const int c = memcmp(s->bytes + x.at, s->bytes + y.at, x.n < y.n ? x.n : y.n);
    return c ? c : (x.n > y.n) - (x.n < y.n);
}

void rd_strings_release(rd_strings *s)
{
    free(s->bytes);
    free(s->item);
    free(s->slot);
    *s = (rd_strings){0};
}
