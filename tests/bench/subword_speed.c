/* subword_speed.c -- speed of the subword schemes on one core: MB of text per second.
 *
 *     subword_speed TEXT [SIZE]
 *
 * Trains each scheme from the text (SIZE 8,000) and prints the time, then the best of five passes:
 * `segment` writes the pieces of each line, `encode` the ids of the whole text. All times are CPU
 * time, so that other programs count little. */
#include "rd/file.h"
#include "rd/subword.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct text {
    char *at; /* owned */
    size_t n, used;
} text;

static rd_code next_line(void *ctx, const char **line, size_t *n, rd_status *st)
{
    text *t = ctx;
    (void)st;
    *line = t->used < t->n ? t->at + t->used : NULL;
    const char *end = *line ? memchr(*line, '\n', t->n - t->used) : NULL;
    *n = end ? (size_t)(end - *line) : t->n - t->used;
    t->used += *n + 1;
    return RD_OK;
}

/* Returns the seconds of CPU time of this process. */
static double cpu_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Returns the seconds of a pass over all lines. */
static double segment_pass(const rd_subword *s, rd_subword_scratch *w, text *t, rd_strbuf *out)
{
    rd_status st = {0};
    const char *line;
    size_t n;
    const double start = cpu_s();
    for (t->used = 0; next_line(t, &line, &n, &st) == RD_OK && line;) {
        rd_strbuf_reset(out);
        rd_subword_segment(s, w, line, n, out);
    }
    return cpu_s() - start;
}

static double encode_pass(const rd_subword *s, rd_subword_scratch *w, const text *t,
                          rd_subword_ids *ids)
{
    const double start = cpu_s();
    ids->n = 0;
    rd_subword_encode(s, w, t->at, t->n, ids);
    return cpu_s() - start;
}

static rd_code measure(const char *kind, text *t, int64_t size, rd_status *st)
{
    char path[64];
    rd_subword *s = NULL;
    rd_subword_scratch *w = NULL;
    rd_strbuf out = {0};
    rd_subword_ids ids = {0};
    const rd_subword_lines lines = {t, next_line, 0};
    const double start = cpu_s();
    t->used = 0;
    (void)snprintf(path, sizeof path, "/tmp/subword_speed.%d", (int)getpid());
    RD_TRY(rd_subword_train(kind, &lines, &(rd_subword_training){.size = size}, path, st));
    printf("%-14s trained in %6.2f s", kind, cpu_s() - start);
    RD_TRY(rd_subword_open(kind, path, &s, st));
    RD_TRY(rd_subword_scratch_new(s, &w, st));
    double best = 1e9, whole = 1e9;
    for (int pass = 0; pass < 5; pass++) {
        double x = segment_pass(s, w, t, &out);
        best = x < best ? x : best;
        x = rd_subword_size(s) > 0 ? encode_pass(s, w, t, &ids) : 1e9;
        whole = x < whole ? x : whole;
    }
    printf(", segment %6.1f MB/s", (double)t->n / 1e6 / best);
    if (rd_subword_size(s) > 0) printf(", encode %6.1f MB/s", (double)t->n / 1e6 / whole);
    puts("");
done:
    (void)unlink(path);
    free(ids.at);
    rd_strbuf_release(&out);
    rd_subword_scratch_free(w);
    rd_subword_free(s);
    return st->code;
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    text t = {0};
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: %s TEXT [SIZE]\n", program_invocation_short_name);
        return RD_EUSAGE;
    }
    if (rd_file_read(argv[1], RD_EDATA, &t.at, &t.n, &st) == RD_OK)
        for (int i = 0; rd_subword_kinds[i] && st.code == RD_OK; i++) {
            const char *kind = rd_subword_kinds[i];
            rd_status can = {0};
            if (rd_subword_needs_model(kind) && rd_subword_available(kind, &can) == RD_OK)
                (void)measure(kind, &t, argc > 2 ? strtoll(argv[2], NULL, 10) : 8000, &st);
        }
    if (st.code != RD_OK) fprintf(stderr, "%s: %s\n", program_invocation_short_name, st.msg);
    free(t.at);
    return (int)st.code;
}
