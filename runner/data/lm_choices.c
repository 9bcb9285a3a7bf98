/* lm_choices.c -- questions with several answers; the model finds the likeliest one. The files are
 * llm.c's, such as its form of HellaSwag. JSON lines: lm_questions.c.
 *
 * A file begins with 256 int32: magic number, version, number of examples, bytes of the longest
 * one. An example is a list of uint16: 65535, its bytes, its number, the number of the right
 * answer, the number of answers, then a list of tokens for the context and for each answer, with
 * its length before it. */
#include "lm_impl.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

enum {
    CHOICES_HEADER = 1024,
    CHOICES_MAGIC = 20240522,
    CHOICES_VERSION = 1,
    CHOICES_BEGIN = 65535,
    CHOICES_HEAD = 6, /* numbers of an example before the tokens of the context */
    CHOICES_MOST = 1 << 30
};

/* A file while it is read. */
typedef struct choices_file {
    const char *path;
    const uint16_t *at; /* [n] */
    int64_t n, i;
    int64_t example;
} choices_file;

void rd_choices_release(rd_choices *c)
{
    free(c->ids);
    free(c->first);
    free(c->prompt);
    free(c->question);
    free(c->right);
    *c = (rd_choices){0};
}

rd_code rd_choices_are(const char *path, bool *are, rd_status *st)
{
    int32_t magic = 0;
    const char *kind;
    rd_input *in = rd_input_open(path, RD_LISTED, &kind);
    *are = false;
    if (!in) return rd_input_not_open(st, RD_EDATA, path, kind, errno, "check the path");
    const ssize_t k = rd_input_pread(in, &magic, sizeof magic, 0);
    if (k < 0) rd_input_fails(st, RD_EDATA, "read", path, errno, NULL);
    *are = k == (ssize_t)sizeof magic && magic == CHOICES_MAGIC;
    rd_input_close(in);
    return st->code;
}

static rd_code choices_bad(const choices_file *f, const char *what, rd_status *st)
{
    return rd_fail(st, RD_EDATA, "'%s': example %" PRId64 " at byte %" PRId64 " %s", f->path,
                   f->example, CHOICES_HEADER + 2 * f->i, what);
}

/* Makes room for another answer of n tokens. */
static rd_code choices_grow(rd_choices *c, int64_t n, rd_status *st)
{
    if (c->n_ids + n > c->cap_ids) {
        const int64_t cap = 2 * (c->n_ids + n) + 1024;
        int32_t *ids = realloc(c->ids, (size_t)cap * sizeof *ids);
        if (!ids) return rd_fail(st, RD_EENV, "out of memory for %" PRId64 " tokens", cap);
        c->ids = ids;
        c->cap_ids = cap;
    }
    if (c->n < c->cap) return RD_OK;
    const int64_t cap = 2 * c->cap + 256;
    int64_t *first = realloc(c->first, (size_t)(cap + 1) * sizeof *first);
    if (first) c->first = first;
    int32_t *prompt = realloc(c->prompt, (size_t)cap * sizeof *prompt);
    if (prompt) c->prompt = prompt;
    int32_t *question = realloc(c->question, (size_t)cap * sizeof *question);
    if (question) c->question = question;
    bool *right = realloc(c->right, (size_t)cap * sizeof *right);
    if (right) c->right = right;
    if (!first || !prompt || !question || !right)
        return rd_fail(st, RD_EENV, "out of memory for %" PRId64 " answers", cap);
    c->cap = cap;
    return RD_OK;
}

rd_code rd_choices_add(rd_choices *c, int64_t n_context, int64_t n_answer, bool right, int64_t most,
                       int32_t **context, int32_t **answer, int64_t *skip, rd_status *st)
{
    rd_assert(n_context >= 1 && n_answer >= 1 && n_answer < most);
    *skip = n_context + n_answer > most ? n_context + n_answer - most : 0;
    RD_TRY(choices_grow(c, n_context + n_answer, st));
    if (c->n == 0) c->first[0] = 0;
    *context = c->ids + c->n_ids;
    *answer = *context + n_context - *skip;
    c->n_ids += n_context - *skip + n_answer;
    c->prompt[c->n] = (int32_t)(n_context - *skip);
    c->question[c->n] = (int32_t)c->n_questions;
    c->right[c->n] = right;
    c->n_cut += *skip > 0;
    c->first[++c->n] = c->n_ids;
done:
    return st->code;
}

/* Adds an answer of a file. */
static rd_code choices_take(rd_choices *c, const choices_file *f, const uint16_t *context,
                            int64_t n_context, const uint16_t *answer, int64_t n_answer, bool right,
                            int64_t most, rd_status *st)
{
    char what[120];
    int32_t *to, *then;
    int64_t skip;
    if (n_answer + 1 > most) {
        (void)snprintf(what, sizeof what,
                       "has an answer of %" PRId64 " tokens, but seq_len is %" PRId64, n_answer,
                       most - 1);
        return choices_bad(f, what, st);
    }
    RD_TRY(rd_choices_add(c, n_context, n_answer, right, most, &to, &then, &skip, st));
    for (int64_t k = skip; k < n_context; k++) *to++ = context[k];
    for (int64_t k = 0; k < n_answer; k++) *then++ = answer[k];
done:
    return st->code;
}

/* Finds a list of tokens, all below V. */
static rd_code choices_list(choices_file *f, int64_t end, int64_t n, int64_t V,
                            const uint16_t **out, rd_status *st)
{
    char what[120];
    if (n < 1) return choices_bad(f, "has a list without tokens", st);
    if (n > end - f->i) return choices_bad(f, "has more tokens than bytes", st);
    *out = f->at + f->i;
    for (int64_t k = 0; k < n; k++) {
        if ((*out)[k] < V) continue;
        (void)snprintf(what, sizeof what,
                       "has token %d, outside of the vocabulary of %" PRId64 " tokens", (*out)[k],
                       V);
        return choices_bad(f, what, st);
    }
    f->i += n;
    return RD_OK;
}

static rd_code choices_example(rd_choices *c, choices_file *f, int64_t most, int64_t V,
                               rd_status *st)
{
    const uint16_t *h = f->at + f->i, *context, *answer;
    char what[120];
    if (f->n - f->i < CHOICES_HEAD)
        return rd_fail(st, RD_EDATA,
                       "'%s' ends in example %" PRId64 "; it is cut short, copy it again", f->path,
                       f->example);
    if (h[0] != CHOICES_BEGIN) {
        (void)snprintf(what, sizeof what, "begins with %d, not with %d", h[0], CHOICES_BEGIN);
        return choices_bad(f, what, st);
    }
    const int64_t bytes = h[1], label = h[3], n_answers = h[4], n_context = h[5];
    const int64_t end = f->i + bytes / 2;
    if (bytes % 2 != 0 || bytes < 2 * CHOICES_HEAD || end > f->n) {
        (void)snprintf(what, sizeof what,
                       "has a length of %" PRId64 " bytes, which does not fit the file", bytes);
        return choices_bad(f, what, st);
    }
    if (n_answers < 2 || label >= n_answers) {
        (void)snprintf(what, sizeof what,
                       "has %" PRId64 " answers, and answer %" PRId64 " is right", n_answers,
                       label);
        return choices_bad(f, what, st);
    }
    f->i += CHOICES_HEAD;
    RD_TRY(choices_list(f, end, n_context, V, &context, st));
    for (int64_t k = 0; k < n_answers; k++) {
        if (f->i >= end) return choices_bad(f, "has fewer answers than it says", st);
        const int64_t n = f->at[f->i++];
        RD_TRY(choices_list(f, end, n, V, &answer, st));
        RD_TRY(choices_take(c, f, context, n_context, answer, n, k == label, most, st));
    }
    if (f->i != end) return choices_bad(f, "ends before its length", st);
    c->n_questions++;
done:
    return st->code;
}

/* Reads the examples from the bytes of a file. */
static rd_code choices_parse(rd_choices *c, const char *path, const void *bytes, int64_t size,
                             int64_t most, int64_t V, rd_status *st)
{
    const int32_t *head = bytes;
    if (size < CHOICES_HEADER || size % 2 != 0)
        return rd_fail(st, RD_EDATA,
                       "'%s' has %" PRId64 " bytes; a file of multiple choice has a header of %d, "
                       "and an even number",
                       path, size, CHOICES_HEADER);
    if (head[0] != CHOICES_MAGIC || head[1] != CHOICES_VERSION)
        return rd_fail(st, RD_EDATA,
                       "'%s': magic number %d and version %d in a file of multiple choice, but "
                       "they must be %d and %d",
                       path, head[0], head[1], CHOICES_MAGIC, CHOICES_VERSION);
    if (head[2] < 1)
        return rd_fail(st, RD_EDATA, "'%s': the header announces %d examples", path, head[2]);
    choices_file f = {.path = path,
                      .at = (const uint16_t *)bytes + CHOICES_HEADER / 2,
                      .n = (size - CHOICES_HEADER) / 2};
    for (; f.example < head[2]; f.example++) RD_TRY(choices_example(c, &f, most, V, st));
    if (f.i != f.n)
        return rd_fail(st, RD_EDATA,
                       "'%s' has %" PRId64 " bytes behind its %d examples; the header is wrong",
                       path, 2 * (f.n - f.i), head[2]);
done:
    return st->code;
}

rd_code rd_choices_read(rd_choices *c, const char *path, int64_t most, int64_t V, rd_status *st)
{
    const char *kind;
    void *bytes = NULL;
    rd_input *in = rd_input_open(path, RD_LISTED, &kind);
    if (!in) return rd_input_not_open(st, RD_EDATA, path, kind, errno, "check the path");
    const int64_t size = rd_input_stat(in)->st_size;
    if (size > CHOICES_MOST)
        rd_fail(st, RD_EDATA,
                "'%s' has %" PRId64 " bytes; a file of multiple choice has at most %d", path, size,
                CHOICES_MOST);
    else if (!(bytes = malloc((size_t)size + 1)))
        rd_fail(st, RD_EENV, "out of memory for the %" PRId64 " bytes of '%s'", size, path);
    RD_TRY(st->code);
    const ssize_t k = rd_input_pread(in, bytes, (size_t)size, 0);
    if (k < 0)
        rd_input_fails(st, RD_EDATA, "read", path, errno, NULL);
    else
        (void)choices_parse(c, path, bytes, k, most, V, st);
done:
    free(bytes);
    rd_input_close(in);
    return st->code;
}
