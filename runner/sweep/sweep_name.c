/* sweep_name.c -- names the folders of runs: "learning_rate=0.001,seed=1".
 *
 * A value may be a path or any text. Letters, digits and a few signs stay; what was replaced or cut
 * gets a hash of the whole behind a '~'. So a name is safe for a shell, bounded, and belongs to one
 * run. */
#include "sweep_impl.h"
#include "rd/hash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_VALUE = 32, HASH_DIGITS = 8 };

/* Appends a text in safe characters. Returns whether it is another text now. */
static bool add_safe(rd_strbuf *b, const char *s, size_t most)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
    const size_t n = strlen(s) < most ? strlen(s) : most;
    bool changed = n < strlen(s);
    for (size_t i = 0; i < n; i++) {
        const bool fine = strchr(safe, s[i]) != NULL;
        rd_strbuf_add(b, fine ? &s[i] : "_", 1);
        changed |= !fine;
    }
    return changed;
}

/* Appends a value: numbers in their shortest form, so that 1e-3 and 0.001 have one name. */
static bool add_value(rd_strbuf *b, const char *text)
{
    json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);
    char number[40];
    bool changed;
    if (json_is_number(v)) {
        (void)snprintf(number, sizeof number, "%.15g", json_number_value(v));
        changed = add_safe(b, number, MOST_VALUE);
    } else {
        changed = add_safe(b, json_is_string(v) ? json_string_value(v) : text, MOST_VALUE);
    }
    json_decref(v);
    return changed;
}

static uint64_t set_hash(const json_t *set)
{
    uint64_t h = RD_FNV_START;
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)set, key, v)
    {
        char *value = sweep_canonical(json_string_value(v));
        h = rd_fnv(h, key, strlen(key) + 1);
        if (value) h = rd_fnv(h, value, strlen(value) + 1);
        free(value);
    }
    return h;
}

/* digits 0: a hash only where the name needs one. */
static rd_code name_one(sweep_run *r, int digits, rd_status *st)
{
    rd_strbuf b = {0};
    const char *key;
    json_t *v;
    bool changed = digits > 0;
    int n = 0;
    json_object_foreach(r->set, key, v)
    {
        if (n++ > 0) rd_strbuf_puts(&b, ",");
        rd_strbuf_puts(&b, key);
        rd_strbuf_puts(&b, "=");
        changed |= add_value(&b, json_string_value(v));
    }
    if (n == 0) rd_strbuf_puts(&b, "base");
    const size_t room = SWEEP_MOST_NAME - 20;
    if (b.n > room) {
        b.n = room;
        b.s[room] = '\0';
        changed = true;
    }
    if (changed) {
        char hash[20];
        (void)snprintf(hash, sizeof hash, "%016" PRIx64, rd_mix64(set_hash(r->set)));
        rd_strbuf_printf(&b, "~%.*s", digits > 0 ? digits : HASH_DIGITS, hash);
    }
    free(r->name);
    r->name = b.failed ? NULL : b.s;
    if (b.failed) rd_strbuf_release(&b);
    return r->name ? RD_OK : rd_fail(st, RD_EENV, "out of memory for the name of a run");
}

static int by_name(const void *a, const void *b)
{
    return strcasecmp((*(sweep_run *const *)a)->name, (*(sweep_run *const *)b)->name);
}

rd_code sweep_name_all(sweep_list *l, rd_status *st)
{
    sweep_run **order = calloc((size_t)l->n + 1, sizeof *order);
    bool *twin = calloc((size_t)l->n + 1, sizeof *twin);
    if (!order || !twin) rd_fail(st, RD_EENV, "out of memory for the names of runs");
    RD_TRY(st->code);
    for (int i = 0; i < l->n; i++) {
        RD_TRY(name_one(&l->at[i], 0, st));
        order[i] = &l->at[i];
    }
    qsort(order, (size_t)l->n, sizeof *order, by_name);
    for (int i = 0; i + 1 < l->n; i++)
        if (by_name(&order[i], &order[i + 1]) == 0) twin[i] = twin[i + 1] = true;
    for (int i = 0; i < l->n; i++)
        if (twin[i]) RD_TRY(name_one(order[i], 16, st));
done:
    free(order);
    free(twin);
    return st->code;
}
