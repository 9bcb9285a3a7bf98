/* subword_lines.h -- for tests of subwords: lines from an array to train from, and round trips. */
#ifndef RD_TESTS_SUBWORD_LINES_H
#define RD_TESTS_SUBWORD_LINES_H

#include "rd/subword.h"
#include "test.h"
#include <stdio.h>

/* Text in memory whose lines end in LF. */
typedef struct text_lines {
    const char *at;
    size_t left;
} text_lines;

static inline rd_code text_lines_next(void *ctx, const char **line, size_t *n, rd_status *st)
{
    text_lines *t = ctx;
    (void)st;
    *line = t->left > 0 ? t->at : NULL;
    const char *end = t->left > 0 ? memchr(t->at, '\n', t->left) : NULL;
    *n = end ? (size_t)(end - t->at) : t->left;
    const size_t used = *n + (end != NULL);
    t->at += used;
    t->left -= used;
    return RD_OK;
}

/* Trains from a text. */
static inline rd_code train_text(const char *kind, const char *text, size_t n,
                                 rd_subword_training how, const char *path, rd_status *st)
{
    text_lines t = {text, n};
    const rd_subword_lines lines = {&t, text_lines_next, 0};
    return rd_subword_train(kind, &lines, &how, path, st);
}

/* Returns the segmented line. Valid until b changes. */
static inline const char *segmented(const rd_subword *s, rd_subword_scratch *w, const char *line,
                                    size_t n, rd_strbuf *b)
{
    rd_strbuf_reset(b);
    rd_subword_segment(s, w, line, n, b);
    assert_false(b->failed);
    return rd_strbuf_str(b);
}

/* Fails unless the text comes back after segmenting and joining. */
static inline void same_after_join(const rd_subword *s, rd_subword_scratch *w, const char *line,
                                   size_t n, const char *want, size_t n_want)
{
    rd_strbuf pieces = {0}, text = {0};
    rd_subword_segment(s, w, line, n, &pieces);
    rd_subword_join(s, rd_strbuf_str(&pieces), pieces.n, &text);
    if (text.n != n_want || (n_want > 0 && memcmp(text.s, want, n_want) != 0))
        fail_msg("pieces '%s' became '%s'", rd_strbuf_str(&pieces), rd_strbuf_str(&text));
    rd_strbuf_release(&pieces);
    rd_strbuf_release(&text);
}

#endif
