/* subword_tool.c -- one call of a subword scheme, for scripts.
 *
 *     subword_tool train KIND SIZE MIN_COUNT TEXT MODEL    trains from the lines of a text
 *     subword_tool train_whole KIND SIZE MIN_COUNT TEXT MODEL   the whole text is one line
 *     subword_tool encode KIND MODEL TEXT                  writes the ids, 16 bits each
 *     subword_tool segment KIND MODEL TEXT                 writes the pieces; MODEL is "-": none
 *     subword_tool write KIND MODEL OTHER                  writes the model again */
#include "rd/file.h"
#include "rd/subword.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
    char *at; /* owned */
    size_t n, used;
    bool whole; /* the text is one line */
} text;

static rd_code next_line(void *ctx, const char **line, size_t *n, rd_status *st)
{
    text *t = ctx;
    (void)st;
    *line = t->used < t->n ? t->at + t->used : NULL;
    const char *end = *line && !t->whole ? memchr(*line, '\n', t->n - t->used) : NULL;
    *n = end ? (size_t)(end - *line) : t->n - t->used;
    t->used += *n + 1;
    return RD_OK;
}

static void write_ids(const rd_subword *s, rd_subword_scratch *w, const text *t)
{
    rd_subword_ids ids = {0};
    rd_subword_encode(s, w, t->at, t->n, &ids);
    for (size_t i = 0; i < ids.n; i++) {
        putchar(ids.at[i] & 0xFF);
        putchar(ids.at[i] >> 8 & 0xFF);
    }
    free(ids.at);
}

/* Prints the pieces of each line. */
static void segment(const rd_subword *s, rd_subword_scratch *w, text *t)
{
    rd_status st = {0};
    rd_strbuf out = {0};
    const char *line;
    size_t n;
    while (next_line(t, &line, &n, &st) == RD_OK && line) {
        rd_strbuf_reset(&out);
        rd_subword_segment(s, w, line, n, &out);
        puts(rd_strbuf_str(&out));
    }
    rd_strbuf_release(&out);
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    text t = {0};
    rd_subword *s = NULL;
    rd_subword_scratch *w = NULL;
    const char *what = argc > 4 ? argv[1] : "";
    if (argc == 7 && strncmp(what, "train", 5) == 0) {
        t.whole = strcmp(what, "train_whole") == 0;
        const rd_subword_lines lines = {&t, next_line, 0};
        const rd_subword_training how = {.size = strtoll(argv[3], NULL, 10),
                                         .min_count = strtoll(argv[4], NULL, 10)};
        RD_TRY(rd_file_read(argv[5], RD_EDATA, &t.at, &t.n, &st));
        RD_TRY(rd_subword_train(argv[2], &lines, &how, argv[6], &st));
    } else if (argc == 5) {
        RD_TRY(rd_subword_open(argv[2], strcmp(argv[3], "-") ? argv[3] : NULL, &s, &st));
        RD_TRY(rd_subword_scratch_new(s, &w, &st));
        if (strcmp(what, "write") == 0) RD_TRY(rd_subword_write(s, argv[4], &st));
        if (strcmp(what, "write") == 0) goto done;
        RD_TRY(rd_file_read(argv[4], RD_EDATA, &t.at, &t.n, &st));
        if (strcmp(what, "encode") == 0) write_ids(s, w, &t);
        if (strcmp(what, "segment") == 0) segment(s, w, &t);
    } else {
        rd_fail(&st, RD_EUSAGE, "see the head of tests/support/subword_tool.c");
    }
done:
    if (st.code != RD_OK) fprintf(stderr, "%s: %s\n", program_invocation_short_name, st.msg);
    rd_subword_scratch_free(w);
    rd_subword_free(s);
    free(t.at);
    return (int)st.code;
}
