/* lm_questions.c -- questions of multiple choice as JSON lines, in the form of HellaSwag's authors.
 *
 * A line is an object with "ctx" (the context), "endings" (the answers) and "label" (the number of
 * the right one, from 0); other keys do not count. As in llm.c and in the evaluation of GPT-2, the
 * tokens of the context and those of each answer are made apart, and a space is put before an
 * answer. */
#include "lm_impl.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

enum { ANSWERS_MOST = 1000 };

/* JSON lines while they are read. */
typedef struct questions {
    rd_choices *c;
    const char *name;
    rd_lines *in; /* owned */
    const rd_subword *tokenizer;
    rd_subword_scratch *scratch; /* owned */
    rd_subword_ids context, answer;
    rd_strbuf text;
    int64_t most;
} questions;

static rd_code questions_bad(const questions *q, const char *what, rd_status *st)
{
    return rd_fail(st, RD_EDATA,
                   "%s:%" PRId64 ": %s; a question is an object with \"ctx\", \"endings\" and "
                   "\"label\"",
                   q->name, rd_lines_number(q->in), what);
}

/* Makes the tokens of a text. what: its key, for messages. */
static rd_code questions_encode(questions *q, const char *text, size_t n, const char *what,
                                rd_subword_ids *out, rd_status *st)
{
    char why[120];
    out->n = 0;
    rd_subword_encode(q->tokenizer, q->scratch, text, n, out);
    if (out->failed) return rd_fail(st, RD_EENV, "out of memory for the tokens of a question");
    for (size_t i = 0; i < out->n; i++)
        if (out->at[i] < 0) {
            (void)snprintf(why, sizeof why,
                           "\"%s\" has a character that the tokenizer (%s) cannot express", what,
                           rd_subword_kind(q->tokenizer));
            return questions_bad(q, why, st);
        }
    if (out->n > 0) return RD_OK;
    (void)snprintf(why, sizeof why, "\"%s\" has no token", what);
    return questions_bad(q, why, st);
}

/* Returns the number of the right answer, -1: there is none. Copies of the data as tables have it
 * as a string. */
static int64_t questions_label(const json_t *v, int64_t n_answers)
{
    int64_t label = json_is_integer(v) ? (int64_t)json_integer_value(v) : -1;
    const char *s = json_string_value(v);
    if (s && s[0] >= '0' && s[0] <= '9' && s[1] == '\0') label = s[0] - '0';
    return label < n_answers ? label : -1;
}

static rd_code questions_answer(questions *q, const char *text, size_t n, bool right, rd_status *st)
{
    char why[120];
    int32_t *to, *then;
    int64_t skip;
    rd_strbuf_reset(&q->text);
    rd_strbuf_add(&q->text, " ", 1);
    rd_strbuf_add(&q->text, text, n);
    if (q->text.failed) return rd_fail(st, RD_EENV, "out of memory for a question");
    RD_TRY(questions_encode(q, q->text.s, q->text.n, "endings", &q->answer, st));
    const int64_t n_context = (int64_t)q->context.n, n_answer = (int64_t)q->answer.n;
    if (n_answer + 1 > q->most) {
        (void)snprintf(why, sizeof why, "an answer has %" PRId64 " tokens, but seq_len is %" PRId64,
                       n_answer, q->most - 1);
        return questions_bad(q, why, st);
    }
    RD_TRY(rd_choices_add(q->c, n_context, n_answer, right, q->most, &to, &then, &skip, st));
    memcpy(to, q->context.at + skip, (size_t)(n_context - skip) * sizeof *to);
    memcpy(then, q->answer.at, (size_t)n_answer * sizeof *then);
done:
    return st->code;
}

static rd_code questions_line(questions *q, const char *line, size_t n, rd_status *st)
{
    json_error_t e;
    char why[240];
    json_t *o = json_loadb(line, n, JSON_REJECT_DUPLICATES, &e);
    const json_t *context = json_object_get(o, "ctx"), *list = json_object_get(o, "endings"),
                 *right = json_object_get(o, "label");
    const size_t n_answers = json_array_size(list);
    const int64_t label = questions_label(right, (int64_t)n_answers);
    if (!o) {
        (void)snprintf(why, sizeof why, "not JSON: %.160s in column %d", e.text, e.column);
        return questions_bad(q, why, st);
    }
    if (!json_is_object(o))
        (void)questions_bad(q, "not an object", st);
    else if (!json_is_string(context))
        (void)questions_bad(q, context ? "\"ctx\" is not a string" : "\"ctx\" is missing", st);
    else if (n_answers < 2 || n_answers > ANSWERS_MOST)
        (void)questions_bad(q, "\"endings\" is no list of at least two answers", st);
    else if (!right)
        (void)questions_bad(
            q, "\"label\" is missing, as in a test set without solutions; take the validation set",
            st);
    else if (label < 0)
        (void)questions_bad(q, "\"label\" is not the number of an answer, from 0", st);
    RD_TRY(st->code);
    RD_TRY(questions_encode(q, json_string_value(context), json_string_length(context), "ctx",
                            &q->context, st));
    for (size_t k = 0; k < n_answers; k++) {
        const json_t *answer = json_array_get(list, k);
        if (!json_is_string(answer)) {
            (void)questions_bad(q, "an answer of \"endings\" is not a string", st);
            goto done;
        }
        RD_TRY(questions_answer(q, json_string_value(answer), json_string_length(answer),
                                (int64_t)k == label, st));
    }
    q->c->n_questions++;
done:
    json_decref(o);
    return st->code;
}

/* Reads the lines that are open. */
static rd_code questions_lines(questions *q, rd_status *st)
{
    const char *line;
    size_t n;
    for (;;) {
        RD_TRY(rd_lines_next(q->in, &line, &n, st));
        if (!line) break;
        if (rd_utf8_rstrip(line, n) > 0) RD_TRY(questions_line(q, line, n, st));
    }
done:
    rd_lines_free(q->in);
    q->in = NULL;
    return st->code;
}

static void questions_release(questions *q)
{
    rd_subword_scratch_free(q->scratch);
    free(q->context.at);
    free(q->answer.at);
    rd_strbuf_release(&q->text);
}

rd_code rd_questions_read(rd_choices *c, const rd_text_files *files, const rd_lines_opts *lines,
                          const rd_subword *tokenizer, int64_t most, rd_status *st)
{
    questions q = {.c = c, .tokenizer = tokenizer, .most = most};
    RD_TRY(rd_subword_scratch_new(tokenizer, &q.scratch, st));
    for (int i = 0; i < files->n; i++) {
        q.name = files->at[i];
        RD_TRY(rd_lines_new(q.name, *lines, &q.in, st));
        RD_TRY(questions_lines(&q, st));
    }
done:
    questions_release(&q);
    return st->code;
}

rd_code rd_questions_read_mem(rd_choices *c, const char *name, const char *text, size_t n,
                              const rd_lines_opts *lines, const rd_subword *tokenizer, int64_t most,
                              rd_status *st)
{
    questions q = {.c = c, .name = name, .tokenizer = tokenizer, .most = most};
    RD_TRY(rd_subword_scratch_new(tokenizer, &q.scratch, st));
    RD_TRY(rd_lines_new_mem(name, text, n, *lines, &q.in, st));
    RD_TRY(questions_lines(&q, st));
done:
    questions_release(&q);
    return st->code;
}

rd_code rd_questions_are(const rd_text_files *files, const rd_lines_opts *lines, bool *are,
                         rd_status *st)
{
    rd_lines *in = NULL;
    const char *line;
    size_t n;
    *are = false;
    if (files->n == 0 || !rd_docs_json(files->at[0])) return RD_OK;
    RD_TRY(rd_lines_new(files->at[0], *lines, &in, st));
    for (;;) {
        RD_TRY(rd_lines_next(in, &line, &n, st));
        if (!line) break;
        if (rd_utf8_rstrip(line, n) == 0) continue;
        json_t *o = json_loadb(line, n, 0, NULL);
        *are = json_object_get(o, "endings") != NULL;
        json_decref(o);
        break;
    }
done:
    rd_lines_free(in);
    return st->code;
}
