/* braces.c -- expands names of shards as people write them: "train-{000000..001281}.tar",
 * "{a,b}-{0..9}.tar", "train-*.tar". */
#include "images_impl.h"
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_NAMES = 1000000, MAX_DEPTH = 16 };

typedef rd_code (*each_fn)(void *ctx, const char *path, rd_status *st);

typedef struct expansion {
    const char *pattern; /* for messages */
    each_fn each;
    void *ctx;
    int64_t n;
} expansion;

static rd_code braces_matches(expansion *x, const char *path, rd_status *st)
{
    glob_t g = {0};
    if (!strpbrk(path, "*?[")) {
        RD_TRY(x->each(x->ctx, path, st));
        goto done;
    }
    const int rc = glob(path, 0, NULL, &g); /* sorted */
    if (rc == GLOB_NOMATCH)
        rd_fail(st, RD_EDATA, "no file matches '%s'", path);
    else if (rc != 0)
        rd_fail(st, RD_EDATA, "cannot search for files that match '%s'", path);
    for (size_t k = 0; k < g.gl_pathc && st->code == RD_OK; k++)
        (void)x->each(x->ctx, g.gl_pathv[k], st);
done:
    globfree(&g);
    return st->code;
}

static rd_code expand(expansion *x, const char *done_part, const char *rest, int depth,
                      rd_status *st);

static rd_code expand_with(expansion *x, const char *done_part, const char *word, size_t n_word,
                           const char *rest, int depth, rd_status *st)
{
    rd_strbuf b = {0};
    rd_strbuf_puts(&b, done_part);
    rd_strbuf_add(&b, word, n_word);
    if (b.failed)
        rd_fail(st, RD_EENV, "out of memory");
    else
        (void)expand(x, rd_strbuf_str(&b), rest, depth + 1, st);
    rd_strbuf_release(&b);
    return st->code;
}

/* Reads "000..012": two numbers. *width is the length of the longer one if a number has leading
 * zeros, else 1. */
static bool is_range(const char *p, size_t n, int64_t *from, int64_t *to, int *width)
{
    int used = 0, a0 = 0, a1 = 0, b0 = 0, b1 = 0;
    char text[64];
    if (n >= sizeof text) return false;
    memcpy(text, p, n);
    text[n] = '\0';
    if (sscanf(text, "%n%18" SCNd64 "%n..%n%18" SCNd64 "%n", &a0, from, &a1, &b0, to, &b1) != 2)
        return false;
    used = b1;
    if (used != (int)n || text[0] == '-' || text[0] == '+' || text[0] == ' ' || text[b0] < '0' ||
        text[b0] > '9')
        return false;
    const bool padded = (text[a0] == '0' && a1 - a0 > 1) || (text[b0] == '0' && b1 - b0 > 1);
    *width = !padded ? 1 : a1 - a0 > b1 - b0 ? a1 - a0 : b1 - b0;
    return true;
}

static rd_code expand(expansion *x, const char *done_part, const char *rest, int depth,
                      rd_status *st)
{
    const char *open = strchr(rest, '{');
    if (!open) {
        if (++x->n > MAX_NAMES)
            return rd_fail(st, RD_EUSAGE, "'%s' names more than %d files", x->pattern, MAX_NAMES);
        rd_strbuf b = {0};
        rd_strbuf_printf(&b, "%s%s", done_part, rest);
        if (b.failed)
            rd_fail(st, RD_EENV, "out of memory");
        else
            (void)braces_matches(x, rd_strbuf_str(&b), st);
        rd_strbuf_release(&b);
        return st->code;
    }
    const char *close = strchr(open, '}');
    if (!close || memchr(open + 1, '{', (size_t)(close - open - 1)) || depth >= MAX_DEPTH)
        return rd_fail(st, RD_EUSAGE,
                       "'%s': braces are not closed, or are nested; write {000..012} or {a,b}",
                       x->pattern);
    const size_t n_head = (size_t)(open - rest), n_in = (size_t)(close - open - 1);
    const char *in = open + 1;
    rd_strbuf head = {0};
    int64_t from, to;
    int width;
    rd_strbuf_puts(&head, done_part);
    rd_strbuf_add(&head, rest, n_head);
    if (head.failed) {
        rd_fail(st, RD_EENV, "out of memory");
    } else if (is_range(in, n_in, &from, &to, &width)) {
        if (to < from)
            rd_fail(st, RD_EUSAGE, "'%s': {%" PRId64 "..%" PRId64 "} descends", x->pattern, from,
                    to);
        for (int64_t k = from; k <= to && st->code == RD_OK; k++) {
            char word[32];
            const int n = snprintf(word, sizeof word, "%0*" PRId64, width, k);
            (void)expand_with(x, rd_strbuf_str(&head), word, (size_t)n, close + 1, depth, st);
        }
    } else {
        for (const char *p = in; st->code == RD_OK;) {
            const char *e = memchr(p, ',', (size_t)(close - p));
            if (!e) e = close;
            (void)expand_with(x, rd_strbuf_str(&head), p, (size_t)(e - p), close + 1, depth, st);
            if (e == close) break;
            p = e + 1;
        }
    }
    rd_strbuf_release(&head);
    return st->code;
}

rd_code rd_braces(const char *pattern, each_fn each, void *ctx, rd_status *st)
{
    expansion x = {pattern, each, ctx, 0};
    return expand(&x, "", pattern, 0, st);
}
