/* subword_threads.c -- threads share a model: each has its own scratch, and all have the pieces
 * that one thread has. make tsan runs it, too. */
#include "rd/file.h"
#include "rd/subword.h"
#include "test.h"
#include <pthread.h>

enum { THREADS = 4, PASSES = 3 };

static const struct model {
    const char *name, *path;
} models[] = {
    {"none", NULL},
    {"char", NULL},
    {"bpe", "tests/unit/subword/odd.codes"},
    {"byte_bpe", "tests/unit/subword/llama.json"},
    {"sentencepiece", "tests/unit/subword/unigram.model"},
};

typedef struct segment_job {
    const rd_subword *s;
    const char *text;
    size_t n;
    rd_strbuf pieces; /* of all lines, several times */
} segment_job;

/* Segments all lines. */
static void *work(void *arg)
{
    segment_job *j = arg;
    rd_status st = {0};
    rd_subword_scratch *w = NULL;
    for (int pass = 0; pass < PASSES; pass++)
        for (size_t at = 0, n; at < j->n; at += n + 1) {
            const char *lf = memchr(j->text + at, '\n', j->n - at);
            n = lf ? (size_t)(lf - (j->text + at)) : j->n - at;
            if (!w && rd_subword_scratch_new(j->s, &w, &st) != RD_OK) return NULL;
            rd_subword_segment(j->s, w, j->text + at, n, &j->pieces);
            rd_strbuf_add(&j->pieces, "\n", 1);
        }
    rd_subword_scratch_free(w);
    return NULL;
}

static void check_model(void **state)
{
    const struct model *m = *state;
    rd_status st = {0};
    rd_subword *s = NULL;
    char *text = NULL;
    size_t n;
    if (rd_subword_available(m->name, &st) != RD_OK) skip();
    must_do(rd_file_read("tests/unit/subword/odd.txt", RD_EDATA, &text, &n, &st), &st);
    must_do(rd_subword_open(m->name, m->path, &s, &st), &st);
    segment_job alone = {s, text, n, {0}}, job[THREADS];
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) {
        job[i] = (segment_job){s, text, n, {0}};
        assert_int_equal(pthread_create(&thread[i], NULL, work, &job[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
    (void)work(&alone);
    assert_true(alone.pieces.n > n);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(job[i].pieces.n, alone.pieces.n);
        assert_memory_equal(job[i].pieces.s, alone.pieces.s, alone.pieces.n);
        rd_strbuf_release(&job[i].pieces);
    }
    rd_strbuf_release(&alone.pieces);
    rd_subword_free(s);
    free(text);
}

RD_TESTS("subword_threads", TEST_ROWS(check_model, models))
