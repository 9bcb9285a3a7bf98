/* dataset_open.h -- opens a dataset of a config in which short forms stand for paths and quotes. */
#ifndef RD_TESTS_DATASET_OPEN_H
#define RD_TESTS_DATASET_OPEN_H

#include "rd/data.h"
#include "rd/strbuf.h"
#include "scratch_dir.h"

/* Opens a dataset of this kind. In the config "@" stands for the folder of the test, and "'" for a
 * double quote. as: all arguments but the config. */
static inline rd_code dataset_open(const char *kind, const char *config, const rd_dataset_args *as,
                                   rd_dataset **d, rd_status *st)
{
    const rd_option_group *group = rd_dataset_find(kind)->group;
    rd_strbuf b = {0};
    rd_config *c = NULL;
    *d = NULL;
    for (const char *p = config; *p; p++) {
        if (*p == '@')
            rd_strbuf_puts(&b, dir);
        else
            rd_strbuf_add(&b, *p == '\'' ? "\"" : p, 1);
    }
    if (rd_config_new("test.json", rd_strbuf_str(&b), b.n, &group, 1, false, &c, st) == RD_OK) {
        rd_dataset_args a = *as;
        a.config = c;
        (void)rd_dataset_new(kind, &a, d, st);
    }
    rd_config_free(c); /* the dataset must not need it any more */
    rd_strbuf_release(&b);
    return st->code;
}

/* Writes a file in the folder of the test. */
static inline void put_bytes(const char *name, const void *p, size_t n)
{
    FILE *f = fopen(in_dir(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

#endif
