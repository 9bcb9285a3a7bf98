/* json_text.c -- parses the JSON text of a config and finds the place of each key.
 *
 * Jansson parses the text, after comments and trailing commas have become blanks. It reports the
 * place of a syntax error, but not the places of keys. Once the text is known to be JSON, a second
 * walk notes the line and column of each key of the outermost object and of its value. Lines end
 * with LF. */
#include "config_impl.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A place in the text that only moves forward. */
typedef struct cursor {
    const char *s;
    const char *written; /* as the user wrote it; columns count its characters */
    size_t n, at;
    int64_t line, col;
} cursor;

static void json_text_step(cursor *c)
{
    const unsigned char u = (unsigned char)c->s[c->at++];
    if (u == '\n') {
        c->line++;
        c->col = 1;
    } else if (c->at >= c->n || ((unsigned char)c->written[c->at] & 0xC0) != 0x80) {
        c->col++; /* the character ends here */
    }
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_blanks(cursor *c)
{
    while (c->at < c->n && is_blank(c->s[c->at])) json_text_step(c);
}

/* From the opening quote of a string to behind the closing one. */
static void skip_string(cursor *c)
{
    json_text_step(c);
    while (c->at < c->n && c->s[c->at] != '"') {
        if (c->s[c->at] == '\\') json_text_step(c);
        if (c->at < c->n) json_text_step(c);
    }
    if (c->at < c->n) json_text_step(c);
}

/* Up to the ',' or '}' of the outermost object. Without recursion, so values may be of any
 * depth. */
static void skip_value(cursor *c)
{
    int64_t depth = 0;
    while (c->at < c->n) {
        const char k = c->s[c->at];
        if (k == '"') {
            skip_string(c);
            continue;
        }
        if (depth == 0 && (k == ',' || k == '}')) return;
        if (k == '{' || k == '[') depth++;
        if (k == '}' || k == ']') depth--;
        json_text_step(c);
    }
}

void rd_places_release(rd_places *p)
{
    for (int i = 0; i < p->n; i++) free(p->at[i].key);
    free(p->at);
    *p = (rd_places){0};
}

static rd_code json_text_no_memory(const char *path, rd_status *st)
{
    return rd_fail(st, RD_EENV, "%s: out of memory for the config", path);
}

static rd_code add_place(rd_places *p, const cursor *key, size_t key_bytes, rd_place **out,
                         const char *path, rd_status *st)
{
    if (p->n == p->cap) {
        const int cap = p->cap ? 2 * p->cap : 64;
        rd_place *at = realloc(p->at, (size_t)cap * sizeof *at);
        if (!at) return json_text_no_memory(path, st);
        p->at = at;
        p->cap = cap;
    }
    json_t *word = json_loadb(key->s + key->at, key_bytes, JSON_DECODE_ANY,
                              NULL); /* undoes the escapes */
    char *copy = word ? strdup(json_string_value(word)) : NULL;
    json_decref(word);
    if (!copy) return json_text_no_memory(path, st);
    p->at[p->n] = (rd_place){.key = copy, .line = key->line, .col = key->col};
    *out = &p->at[p->n++];
    return RD_OK;
}

static rd_code find_places(const char *path, const char *text, const char *written, size_t n,
                           rd_places *out, rd_status *st)
{
    cursor c = {.s = text, .written = written, .n = n, .line = 1, .col = 1};
    skip_blanks(&c);
    json_text_step(&c); /* { */
    for (;;) {
        skip_blanks(&c);
        if (c.at >= c.n || c.s[c.at] != '"') return RD_OK;
        const cursor key = c;
        rd_place *p = NULL;
        skip_string(&c);
        if (add_place(out, &key, c.at - key.at, &p, path, st) != RD_OK) return st->code;
        skip_blanks(&c);
        if (c.at < c.n) json_text_step(&c); /* : */
        skip_blanks(&c);
        p->value_line = c.line;
        p->value_col = c.col;
        skip_value(&c);
        if (c.at < c.n) json_text_step(&c); /* , or the last } */
    }
}

/* ---- syntax errors ---- */

static size_t word_bytes(const char *s, size_t n)
{
    size_t k = 0;
    while (k < n && ((s[k] >= 'a' && s[k] <= 'z') || (s[k] >= 'A' && s[k] <= 'Z'))) k++;
    return k;
}

static bool is_word(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && !strncmp(s, word, n);
}

bool rd_json_no_memory(const json_error_t *e)
{
    return json_error_code(e) == json_error_out_of_memory || !e->text[0];
}

/* Returns what to do about common mistakes, from the text at the place of the error. */
static const char *json_text_remedy(const char *text, size_t n, size_t at, const json_error_t *e)
{
    const enum json_error_code code = json_error_code(e);
    size_t before = at;
    while (before > 0 && is_blank(text[before - 1])) before--;
    const char last = before ? text[before - 1] : '\0', here = at < n ? text[at] : '\0';
    const size_t word = at < n ? word_bytes(text + at, n - at) : 0;
    if (code == json_error_invalid_utf8) return "save the file as UTF-8";
    if (strstr(e->text, "end of file") && memchr(text, '\0', n))
        return "a NUL byte stands there; save the file as UTF-8";
    if (code == json_error_null_character || code == json_error_null_byte_in_key)
        return "take the NUL character out";
    if (code == json_error_stack_overflow) return "a config is one flat object";
    if (code == json_error_numeric_overflow)
        return "integers go to 9223372036854775807, other numbers to 1.79e308";
    if (strstr(e->text, "unexpected newline"))
        return "close the string before the end of its line, or write \\n";
    if (strstr(e->text, "control character"))
        return "write such a character as \\u and four hex digits";
    if (at >= n || code == json_error_premature_end_of_input)
        return "a bracket or a quote is not closed";
    if (here == '/' && at + 1 < n && text[at + 1] == '*')
        return "the comment that begins here has no end";
    if (last == ',' && (here == '}' || here == ']')) return "remove the comma before it";
    if (here == '#' || here == '/') return "a comment begins with // or /*";
    if (here == '\'') return "JSON strings have double quotes";
    if (is_word(text + at, word, "True") || is_word(text + at, word, "False"))
        return "write true or false in lower case";
    if (is_word(text + at, word, "None")) return "leave the key out instead";
    if (is_word(text + at, word, "NaN") || is_word(text + at, word, "Infinity"))
        return "JSON has finite numbers only";
    if (here == '"' && last != ',' && last != '{' && last != '[' && last != ':')
        return "is a comma missing before it?";
    if (last == ':' && word > 0) return "strings need double quotes";
    if ((last == '{' || last == ',') && word > 0) return "keys and strings need double quotes";
    if (here == '.' || here == '+') return "a number begins with a digit or -";
    return "see json.org for the syntax";
}

static void locate(const char *text, size_t n, size_t at, int64_t *line, int64_t *col)
{
    cursor c = {.s = text, .written = text, .n = n, .line = 1, .col = 1};
    while (c.at < at && c.at < n) json_text_step(&c);
    *line = c.line;
    *col = c.col;
}

static rd_code syntax_error(const char *path, const char *text, const char *written, size_t n,
                            const json_error_t *e, rd_status *st)
{
    char shown[2 * RD_SHOWN_BYTES];
    const enum json_error_code code = json_error_code(e);
    if (rd_json_no_memory(e)) return json_text_no_memory(path, st);
    size_t at = e->position > 0 ? (size_t)e->position : 0;
    if (at > n) at = n;
    /* Jansson points behind the token that it could not use. Users look for its first character. */
    const char *near = strstr(e->text, " near '");
    if (near) {
        near += strlen(" near '");
        const size_t len = strlen(near) - 1; /* without the closing quote */
        if (len <= at && !memcmp(text + at - len, near, len)) at -= len;
    } else if (code == json_error_invalid_utf8 && at > 0) {
        at--;
    }
    int64_t line, col;
    locate(written, n, at, &line, &col);
    const char *what = e->text;
    if (code == json_error_null_character) what = "a string holds the NUL character \\u0000";
    return rd_fail(st, RD_EUSAGE, "%s:%" PRId64 ":%" PRId64 ": not valid JSON: %s; %s", path, line,
                   col, rd_shown_bytes(what, strlen(what), shown, sizeof shown),
                   json_text_remedy(text, n, at, e));
}

static rd_code duplicate_key(const char *path, const rd_places *p, rd_status *st)
{
    char shown[RD_SHOWN_BYTES];
    json_t *seen = json_object(); /* key -> the line where it is first */
    for (int i = 0; seen && i < p->n && st->code == RD_OK; i++) {
        const rd_place *at = &p->at[i];
        const json_t *first = json_object_get(seen, at->key);
        if (first)
            rd_fail(st, RD_EUSAGE,
                    "%s:%" PRId64 ":%" PRId64 ": key '%s' is written twice, first in line %" PRId64
                    "; remove one of them",
                    path, at->line, at->col, rd_shown(at->key, shown),
                    (int64_t)json_integer_value(first));
        else if (json_object_set_new(seen, at->key, json_integer(at->line)) != 0)
            (void)json_text_no_memory(path, st);
    }
    if (!seen) (void)json_text_no_memory(path, st);
    json_decref(seen);
    return st->code; /* inside a value: the check of the value reports it */
}

/* Parses text, which is `written` after rd_json_relax. */
static rd_code load_relaxed(const char *path, const char *text, const char *written, size_t n,
                            json_t **root, rd_places *places, rd_status *st)
{
    json_error_t e;
    *root = NULL;
    *places = (rd_places){0};
    size_t first = 0;
    while (first < n && is_blank(text[first])) first++;
    if (first == n)
        return rd_fail(st, RD_EUSAGE,
                       "%s: the config is empty; write one JSON object, {\"key\": value, ...}",
                       path);
    if (text[first] != '{') {
        int64_t line, col;
        char shown[16];
        locate(written, n, first, &line, &col);
        return rd_fail(st, RD_EUSAGE,
                       "%s:%" PRId64 ":%" PRId64
                       ": a config is one JSON object, {\"key\": value, ...}, in UTF-8, "
                       "but this begins with '%s'",
                       path, line, col,
                       rd_shown_bytes(text + first, n - first, shown, sizeof shown));
    }
    *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    const bool twice = !*root && json_error_code(&e) == json_error_duplicate_key;
    if (twice) *root = json_loadb(text, n, 0, &e); /* to say where both are */
    if (!*root) return syntax_error(path, text, written, n, &e, st);
    if (find_places(path, text, written, n, places, st) == RD_OK && twice &&
        duplicate_key(path, places, st) == RD_OK)
        (void)rd_fail(st, RD_EUSAGE,
                      "%s: an object inside a value has a key twice; a config is one flat object",
                      path);
    if (st->code == RD_OK && (size_t)places->n != json_object_size(*root))
        (void)rd_fail(st, RD_EBUG, "%s: found %d of %zu keys in the text", path, places->n,
                      json_object_size(*root));
    if (st->code != RD_OK) {
        json_decref(*root);
        *root = NULL;
        rd_places_release(places);
    }
    return st->code;
}

rd_code rd_json_load(const char *path, const char *text, size_t n, json_t **root, rd_places *places,
                     rd_status *st)
{
    *root = NULL;
    *places = (rd_places){0};
    if (n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) text += 3, n -= 3; /* byte order mark */
    char *relaxed = malloc(n + 1);
    if (!relaxed) return json_text_no_memory(path, st);
    memcpy(relaxed, text, n);
    relaxed[n] = '\0';
    rd_json_relax(relaxed, n);
    (void)load_relaxed(path, relaxed, text, n, root, places, st);
    free(relaxed);
    return st->code;
}
