/* lm_documents.c -- the documents of texts: plain text, and JSON lines.
 *
 * A plain text is one document, or each of its lines, or each block of lines between blank lines.
 * Its bytes stay as they are. A document of any length takes a few megabytes here: it comes in
 * parts. */
#include "lm_impl.h"
#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

enum {
    PART_BYTES = 4 << 20, /* a longer document is cut */
    MOST_BYTES = 16 << 20 /* ... here even where the line before ends in a sign */
};

struct rd_docs {
    const rd_text_files *files;
    rd_doc_rules rules;
    int file; /* index of the file that is read */
    const char *mem_name;
    rd_lines *in;        /* owned; NULL: the next file is not open */
    int64_t before;      /* bytes of earlier files */
    int64_t disk_before; /* the same as the files are stored */
    rd_strbuf text;      /* of the document so far */
    size_t given;        /* bytes of text that the last part had */
    size_t last;         /* bytes of the last line */
    bool line_end;       /* a line end follows text */
    bool open;           /* a document has begun */
    json_t *object;      /* owned; the strings of the last part */
    rd_doc_form form;    /* of the lines of this file */
    int64_t lines;       /* of the file that was read last */
};

static rd_code docs_no_memory(rd_status *st)
{
    return rd_fail(st, RD_EENV, "out of memory while reading a text");
}

bool rd_docs_json(const char *name)
{
    return strstr(name, ".jsonl") || strstr(name, ".ndjson");
}

bool rd_docs_bin(const char *name)
{
    const size_t n = strlen(name);
    return n > 4 && strcmp(name + n - 4, ".bin") == 0;
}

void rd_docs_fetcher(const char *name, rd_status *st)
{
    rd_status_no_file(st, rd_docs_bin(name)
                              ? "; llm.c and nanoGPT write such files, and configs/get_novels "
                                "fetches novels as text"
                              : "; configs/get_novels fetches novels");
}

rd_code rd_docs_new(const rd_text_files *files, const rd_doc_rules *rules, rd_docs **out,
                    rd_status *st)
{
    rd_docs *d = *out = calloc(1, sizeof *d);
    if (!d) return docs_no_memory(st);
    d->files = files;
    d->rules = *rules;
    return RD_OK;
}

static bool docs_from_stdin(const char *name)
{
    return strcmp(name, "-") == 0;
}

/* Decides what the lines of a file are, as far as its name tells. */
static void docs_set_form(rd_docs *d, const char *name)
{
    d->form = d->rules.prompts ? d->rules.form : RD_DOC_AUTO;
    if (d->form != RD_DOC_AUTO) return;
    if (rd_docs_json(name))
        d->form = RD_DOC_JSON;
    else if (!d->rules.prompts || !docs_from_stdin(name))
        d->form = RD_DOC_TEXT;
}

rd_code rd_docs_new_mem(const char *name, const char *text, size_t n, int64_t lines_before,
                        const rd_doc_rules *rules, rd_docs **out, rd_status *st)
{
    rd_docs *d = *out = calloc(1, sizeof *d);
    if (!d) return docs_no_memory(st);
    d->rules = *rules;
    d->mem_name = name;
    d->rules.lines.lines_before = lines_before;
    docs_set_form(d, name);
    if (rd_lines_new_mem(name, text, n, d->rules.lines, &d->in, st) == RD_OK) return RD_OK;
    rd_docs_free(d);
    *out = NULL;
    return st->code;
}

void rd_docs_free(rd_docs *d)
{
    if (!d) return;
    rd_lines_free(d->in);
    rd_strbuf_release(&d->text);
    json_decref(d->object);
    free(d);
}

rd_doc_form rd_docs_form(const rd_docs *d)
{
    return d->form;
}

int64_t rd_docs_lines(const rd_docs *d)
{
    return d->in ? rd_lines_number(d->in) : d->lines;
}

int64_t rd_docs_bytes(const rd_docs *d)
{
    return d->before + (d->in ? rd_lines_bytes(d->in) : 0);
}

int64_t rd_docs_disk(const rd_docs *d)
{
    return d->disk_before + (d->in ? rd_lines_disk(d->in) : 0);
}

static const char *docs_name(const rd_docs *d)
{
    const char *name = d->files ? d->files->at[d->file] : d->mem_name;
    return docs_from_stdin(name) ? "standard input" : name;
}

/* Ends the file, and says whether another one follows. */
static bool docs_next_file(rd_docs *d)
{
    d->disk_before = rd_docs_disk(d);
    d->before = rd_docs_bytes(d);
    d->lines = rd_docs_lines(d);
    rd_lines_free(d->in);
    d->in = NULL;
    return d->files && ++d->file < d->files->n;
}

/* ---- JSON lines ---- */

static rd_code docs_bad_line(const rd_docs *d, const char *what, rd_status *st)
{
    return rd_fail(st, RD_EDATA, "%s:%" PRId64 ": %s; a line is an object with %s", docs_name(d),
                   rd_lines_number(d->in), what,
                   d->rules.prompts ? "\"prompt\" or \"text\""
                                    : "\"text\", or with \"prompt\" and \"completion\"");
}

/* Returns the string of a key; NULL: there is none. Other values are RD_EDATA. */
static const char *docs_string(const rd_docs *d, const char *key, size_t *n, rd_status *st)
{
    char what[64];
    const json_t *v = json_object_get(d->object, key);
    *n = 0;
    if (!v) return NULL;
    if (json_is_string(v)) {
        *n = json_string_length(v);
        return json_string_value(v);
    }
    (void)snprintf(what, sizeof what, "\"%s\" is not a string", key);
    (void)docs_bad_line(d, what, st);
    return NULL;
}

static rd_code docs_object(rd_docs *d, const char *line, size_t n, rd_doc_part *out, rd_status *st)
{
    json_error_t e;
    size_t n_text, n_prompt, n_completion;
    char what[240];
    json_decref(d->object);
    d->object = json_loadb(line, n, JSON_REJECT_DUPLICATES, &e);
    if (!d->object) {
        (void)snprintf(what, sizeof what, "not JSON: %.160s in column %d", e.text, e.column);
        return docs_bad_line(d, what, st);
    }
    if (!json_is_object(d->object)) return docs_bad_line(d, "not an object", st);
    const char *text = docs_string(d, "text", &n_text, st),
               *prompt = docs_string(d, "prompt", &n_prompt, st),
               *completion = docs_string(d, "completion", &n_completion, st);
    RD_TRY(st->code);
    *out = (rd_doc_part){.text = text, .n = n_text, .ends = true};
    if (d->rules.prompts && prompt) {
        out->text = prompt;
        out->n = n_prompt;
        return RD_OK;
    }
    if (text && (prompt || completion))
        return docs_bad_line(d, "\"text\" beside \"prompt\" or \"completion\"", st);
    if (text) return RD_OK;
    if (json_object_get(d->object, "endings"))
        return docs_bad_line(d, "a question of multiple choice, which source_file_eval takes", st);
    if (!prompt || !completion || d->rules.prompts)
        return docs_bad_line(d,
                             prompt             ? "\"completion\" is missing"
                             : d->rules.prompts ? "neither \"prompt\" nor \"text\""
                                                : "neither \"text\" nor \"prompt\"",
                             st);
    rd_strbuf_reset(&d->text);
    rd_strbuf_add(&d->text, prompt, n_prompt);
    rd_strbuf_add(&d->text, completion, n_completion);
    if (d->text.failed) return docs_no_memory(st);
    *out = (rd_doc_part){.text = rd_strbuf_str(&d->text),
                         .n = d->text.n,
                         .prompt = n_prompt,
                         .is_example = true,
                         .ends = true};
done:
    return st->code;
}

/* ---- plain text ---- */

/* Returns where a text of n bytes may be cut: before a line end. 0: nowhere. */
static size_t docs_cut(const char *s, size_t n)
{
    for (size_t i = n; i-- > 1;)
        if (s[i] == '\n' && isalnum((unsigned char)s[i - 1])) return i;
    if (n < MOST_BYTES) return 0;
    for (size_t i = n; i-- > 1;)
        if (s[i] == '\n' && !isspace((unsigned char)s[i - 1])) return i;
    return 0;
}

/* Removes from the text what the last part had. */
static void docs_take(rd_docs *d)
{
    if (d->given > 0) memmove(d->text.s, d->text.s + d->given, d->text.n - d->given);
    d->text.n -= d->given;
    if (d->text.s) d->text.s[d->text.n] = '\0';
    d->given = 0;
}

static void docs_give(rd_docs *d, size_t n, bool ends, rd_doc_part *out)
{
    d->given = n;
    if (ends) d->open = d->line_end = false;
    *out = (rd_doc_part){.text = rd_strbuf_str(&d->text), .n = n, .ends = ends};
}

static bool docs_blank(const char *line, size_t n)
{
    return rd_utf8_rstrip(line, n) == 0;
}

/* Did the last line of the file end in LF? */
static bool docs_file_ends_in_lf(const rd_docs *d)
{
    return rd_lines_bytes(d->in) > rd_lines_offset(d->in) + (int64_t)d->last;
}

/* Reads lines until a part is complete. *more is false after the last one. */
static rd_code docs_plain(rd_docs *d, rd_doc_part *out, bool *more, rd_status *st)
{
    const rd_doc_unit unit = d->rules.prompts ? RD_DOC_LINE : d->rules.unit;
    const char *line;
    size_t n;
    docs_take(d);
    for (;;) {
        RD_TRY(rd_lines_next(d->in, &line, &n, st));
        if (!line) break;
        if (unit == RD_DOC_LINE) {
            if (docs_blank(line, n) && !d->rules.prompts) continue;
            *out = (rd_doc_part){.text = line, .n = n, .ends = true};
            return RD_OK;
        }
        if (unit == RD_DOC_BLANK_LINE && docs_blank(line, n)) {
            if (!d->open) continue;
            docs_give(d, d->text.n, true, out);
            return RD_OK;
        }
        if (d->line_end) rd_strbuf_add(&d->text, "\n", 1);
        rd_strbuf_add(&d->text, line, n);
        if (d->text.failed) return docs_no_memory(st);
        d->open = d->line_end = true;
        d->last = n;
        if (d->text.n < PART_BYTES) continue;
        const size_t cut = docs_cut(d->text.s, d->text.n);
        if (cut == 0) continue;
        docs_give(d, cut, false, out);
        return RD_OK;
    }
    if (d->open && unit == RD_DOC_FILE && docs_file_ends_in_lf(d)) rd_strbuf_add(&d->text, "\n", 1);
    if (d->text.failed) return docs_no_memory(st);
    *more = d->open;
    if (d->open) docs_give(d, d->text.n, true, out);
done:
    return st->code;
}

/* Is the line an object with a prompt? */
static bool docs_is_prompt(const char *line, size_t n)
{
    json_t *o = json_loadb(line, n, 0, NULL);
    const bool is = json_is_string(json_object_get(o, "prompt")) ||
                    json_is_string(json_object_get(o, "text"));
    json_decref(o);
    return is;
}

static rd_code docs_of_file(rd_docs *d, rd_doc_part *out, bool *more, rd_status *st)
{
    const char *line;
    size_t n;
    *more = true;
    if (d->form == RD_DOC_TEXT) return docs_plain(d, out, more, st);
    for (;;) {
        RD_TRY(rd_lines_next(d->in, &line, &n, st));
        *more = line != NULL;
        if (!line) return RD_OK;
        const bool blank = docs_blank(line, n);
        if (d->form == RD_DOC_AUTO) {
            if (!blank) d->form = docs_is_prompt(line, n) ? RD_DOC_JSON : RD_DOC_TEXT;
            if (d->form != RD_DOC_JSON) {
                *out = (rd_doc_part){.text = line, .n = n, .ends = true};
                return RD_OK;
            }
        }
        if (!blank) return docs_object(d, line, n, out, st);
    }
done:
    return st->code;
}

rd_code rd_docs_next(rd_docs *d, rd_doc_part *out, bool *more, rd_status *st)
{
    *more = false;
    for (;;) {
        if (!d->in) {
            if (!d->files || d->file >= d->files->n) return RD_OK;
            if (rd_lines_new(d->files->at[d->file], d->rules.lines, &d->in, st) != RD_OK &&
                !d->rules.prompts)
                rd_docs_fetcher(docs_name(d), st);
            RD_TRY(st->code);
            docs_set_form(d, d->files->at[d->file]);
        }
        RD_TRY(docs_of_file(d, out, more, st));
        if (*more) return RD_OK;
        docs_take(d);
        if (!docs_next_file(d)) return RD_OK;
    }
done:
    return st->code;
}
