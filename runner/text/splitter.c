/* splitter.c -- splits text by regular expressions: PCRE2, and for GPT-2's pattern a scanner.
 *
 * The scanner knows each code point's class (letter, number, space, other) from a table of two bits
 * a code point. PCRE2 fills the table at the first use, so both ways have the same Unicode version.
 *
 * \s means Unicode's White_Space, as in Oniguruma and in Rust. PCRE2's own \s has U+180E, too, so
 * it is replaced in patterns. $ is the end of a line, as in Oniguruma's default syntax. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "splitter.h"
#include "rd/printable.h"
#include "rd/strbuf.h"
#include <pcre2.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

const char rd_splitter_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char rd_splitter_cl100k[] =
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| "
    "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s";

typedef struct split_rule {
    char *pattern;
    pcre2_code *code; /* NULL: GPT-2's pattern, for the scanner */
} split_rule;

struct rd_splitter {
    split_rule *rule;
    int n;
};

struct rd_splitter_work {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* ---- classes of code points ---- */

enum { OTHER, LETTER, NUMBER, SPACE, N_POINTS = 0x110000 };
static uint8_t class_bits[N_POINTS / 4];
static bool class_filled;
static pthread_once_t class_once = PTHREAD_ONCE_INIT;

static inline int class_of(uint32_t c)
{
    return class_bits[c / 4] >> c % 4 * 2 & 3;
}

static void class_set(uint32_t c, int class)
{
    class_bits[c / 4] = (uint8_t)(class_bits[c / 4] & ~(3 << c % 4 * 2)) |
                        (uint8_t)(class << c % 4 * 2);
}

/* Returns the code point of a valid character at s, and its bytes in *k. */
static inline uint32_t point_at(const char *s, size_t *k)
{
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) {
        *k = 1;
        return u[0];
    }
    if (u[0] < 0xE0) {
        *k = 2;
        return (u[0] & 0x1Fu) << 6 | (u[1] & 0x3Fu);
    }
    if (u[0] < 0xF0) {
        *k = 3;
        return (u[0] & 0x0Fu) << 12 | (u[1] & 0x3Fu) << 6 | (u[2] & 0x3Fu);
    }
    *k = 4;
    return (u[0] & 0x07u) << 18 | (u[1] & 0x3Fu) << 12 | (u[2] & 0x3Fu) << 6 | (u[3] & 0x3Fu);
}

static pcre2_code *split_compile(const char *pattern, size_t n, int *error, size_t *at)
{
    pcre2_code *c = pcre2_compile((PCRE2_SPTR)pattern, n, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE,
                                  error, at, NULL);
    if (c) (void)pcre2_jit_compile(c, PCRE2_JIT_COMPLETE); /* without it, matching is slower */
    return c;
}

/* Gives a class to all characters of `all` that the pattern matches. */
static bool class_fill(const char *all, size_t n, const char *pattern, int class)
{
    int error;
    size_t at = 0;
    pcre2_code *code = split_compile(pattern, strlen(pattern), &error, &at);
    pcre2_match_data *match = code ? pcre2_match_data_create_from_pattern(code, NULL) : NULL;
    for (at = 0;
         match && pcre2_match(code, (PCRE2_SPTR)all, n, at, PCRE2_NO_UTF_CHECK, match, NULL) > 0;) {
        const size_t *range = pcre2_get_ovector_pointer(match);
        for (size_t i = range[0], k; i < range[1]; i += k) class_set(point_at(all + i, &k), class);
        at = range[1];
    }
    pcre2_match_data_free(match);
    pcre2_code_free(code);
    return match != NULL;
}

/* Writes all code points but the surrogates, and lets PCRE2 find the classes. */
static void class_fill_all(void)
{
    rd_strbuf all = {0};
    for (uint32_t c = 0; c < N_POINTS; c++) {
        char s[4];
        size_t n = 0;
        if (c >= 0xD800 && c < 0xE000) continue;
        if (c >= 0x10000) s[n++] = (char)(0xF0 | c >> 18);
        if (c >= 0x800) s[n++] = (char)((c >= 0x10000 ? 0x80 | (c >> 12 & 0x3F) : 0xE0 | c >> 12));
        if (c >= 0x80) s[n++] = (char)((c >= 0x800 ? 0x80 | (c >> 6 & 0x3F) : 0xC0 | c >> 6));
        s[n++] = (char)(c >= 0x80 ? 0x80 | (c & 0x3F) : c);
        rd_strbuf_add(&all, s, n);
    }
    class_filled = !all.failed && class_fill(all.s, all.n, "\\p{L}+", LETTER) &&
                   class_fill(all.s, all.n, "\\p{N}+", NUMBER) &&
                   class_fill(all.s, all.n, "\\p{White_Space}+", SPACE);
    rd_strbuf_release(&all);
}

/* ---- patterns ---- */

static rd_code split_no_memory(rd_status *st)
{
    return rd_fail(st, RD_EENV, "out of memory for the pattern of the tokenizer");
}

rd_code rd_splitter_new(rd_splitter **out, rd_status *st)
{
    *out = calloc(1, sizeof **out);
    return *out ? RD_OK : split_no_memory(st);
}

/* Appends the pattern with White_Space in the place of \s and \S. */
static void put_pattern(rd_strbuf *b, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const bool escape = p[i] == '\\' && i + 1 < n;
        if (escape && p[i + 1] == 's')
            rd_strbuf_puts(b, "\\p{White_Space}");
        else if (escape && p[i + 1] == 'S')
            rd_strbuf_puts(b, "\\P{White_Space}");
        else
            rd_strbuf_add(b, p + i, escape ? 2 : 1);
        i += escape;
    }
}

rd_code rd_splitter_add(rd_splitter *s, const char *pattern, size_t n, const char *name,
                        rd_status *st)
{
    rd_strbuf text = {0};
    split_rule *rule = realloc(s->rule, ((size_t)s->n + 1) * sizeof *rule), r = {0};
    if (!rule) return split_no_memory(st);
    s->rule = rule;
    r.pattern = strndup(pattern, n);
    if (!r.pattern) return split_no_memory(st);
    if (strcmp(r.pattern, rd_splitter_gpt2) == 0) {
        (void)pthread_once(&class_once, class_fill_all);
        if (!class_filled) RD_TRY(split_no_memory(st));
    } else {
        int error = 0;
        size_t at = 0;
        put_pattern(&text, pattern, n);
        if (text.failed) RD_TRY(split_no_memory(st));
        r.code = split_compile(rd_strbuf_str(&text), text.n, &error, &at);
        if (!r.code) {
            char why[128] = "";
            (void)pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
            RD_TRY(rd_fail(st, RD_EDATA, "'%s': PCRE2 cannot use the pattern '%.200s': %s", name,
                           r.pattern, why));
        }
    }
    s->rule[s->n++] = r;
    r.pattern = NULL;
done:
    free(r.pattern);
    rd_strbuf_release(&text);
    return st->code;
}

void rd_splitter_free(rd_splitter *s)
{
    if (!s) return;
    for (int i = 0; i < s->n; i++) {
        free(s->rule[i].pattern);
        pcre2_code_free(s->rule[i].code);
    }
    free(s->rule);
    free(s);
}

int rd_splitter_count(const rd_splitter *s)
{
    return s->n;
}

const char *rd_splitter_pattern(const rd_splitter *s, int k)
{
    return s->rule[k].pattern;
}

rd_splitter_work *rd_splitter_work_new(void)
{
    rd_splitter_work *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->match = pcre2_match_data_create(1, NULL);
    w->context = pcre2_match_context_create(NULL);
    w->stack = pcre2_jit_stack_create(32 << 10, 16 << 20, NULL); /* NULL: the thread's own stack */
    if (!w->match || !w->context) {
        rd_splitter_work_free(w);
        return NULL;
    }
    if (w->stack) pcre2_jit_stack_assign(w->context, NULL, w->stack);
    return w;
}

void rd_splitter_work_free(rd_splitter_work *w)
{
    if (!w) return;
    pcre2_match_data_free(w->match);
    pcre2_match_context_free(w->context);
    pcre2_jit_stack_free(w->stack);
    free(w);
}

static char library_text[80] = "PCRE2 ";
static pthread_once_t library_once = PTHREAD_ONCE_INIT;

static void library_ask(void)
{
    const size_t name = strlen(library_text);
    if (pcre2_config(PCRE2_CONFIG_VERSION, NULL) < (int)(sizeof library_text - name))
        (void)pcre2_config(PCRE2_CONFIG_VERSION, library_text + name);
}

const char *rd_splitter_library(void)
{
    (void)pthread_once(&library_once, library_ask);
    return library_text;
}

/* ---- splitting ---- */

typedef struct split_call {
    const rd_splitter *s;
    rd_splitter_work *w;
    bool (*piece)(void *ctx, const char *at, size_t n);
    void *ctx;
} split_call;

/* Returns the length of an English contraction at s: 's 't 'm 'd 're 've 'll; 0: none. */
static size_t contraction(const char *s, size_t n)
{
    if (n < 2) return 0;
    switch (s[1]) {
    case 's':
    case 't':
    case 'm':
    case 'd':
        return 2;
    case 'r':
    case 'v':
        return n > 2 && s[2] == 'e' ? 3 : 0;
    case 'l':
        return n > 2 && s[2] == 'l' ? 3 : 0;
    default:
        return 0;
    }
}

/* Returns the length of GPT-2's piece at s, which is valid UTF-8. */
static size_t gpt2_piece(const char *s, size_t n)
{
    size_t k, i = 0;
    if (s[0] == '\'' && (k = contraction(s, n)) > 0) return k;
    int class = class_of(point_at(s, &k));
    if (s[0] == ' ' && n > 1) { /* a space before a word belongs to it */
        size_t m;
        const int after = class_of(point_at(s + 1, &m));
        if (after != SPACE) {
            class = after;
            i = 1;
            k = m;
        }
    }
    size_t last = i; /* where the last character begins */
    for (i += k; i < n; i += k) {
        if (class_of(point_at(s + i, &k)) != class) break;
        last = i;
    }
    /* White space gives up its last character to the word behind it. */
    return class == SPACE && i < n && last > 0 ? last : i;
}

static bool split_by(const split_call *c, int rule, const char *text, size_t n);

static bool split_further(const split_call *c, int rule, const char *text, size_t n)
{
    return rule + 1 < c->s->n ? split_by(c, rule + 1, text, n) : c->piece(c->ctx, text, n);
}

/* Splits valid text by a rule and those behind it. */
static bool split_by(const split_call *c, int rule, const char *text, size_t n)
{
    const pcre2_code *code = c->s->rule[rule].code;
    size_t at = 0;
    if (!code) {
        for (size_t k; at < n; at += k) {
            k = gpt2_piece(text + at, n - at);
            if (!split_further(c, rule, text + at, k)) return false;
        }
        return true;
    }
    for (size_t from = 0; at < n;) {
        const int rc = pcre2_match(code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, c->w->match,
                                   c->w->context);
        if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) return false;
        const size_t *range = pcre2_get_ovector_pointer(c->w->match);
        const size_t begin = rc < 0 ? n : range[0], end = rc < 0 ? n : range[1];
        if (begin > from && !split_further(c, rule, text + from, begin - from)) return false;
        if (end > begin && !split_further(c, rule, text + begin, end - begin)) return false;
        from = end;
        at = end;
        if (end == begin && end < n) { /* an empty match: go on behind the next character */
            size_t k;
            (void)point_at(text + end, &k);
            at += k;
        }
        if (at >= n && from < n) return split_further(c, rule, text + from, n - from);
    }
    return true;
}

bool rd_splitter_text(const rd_splitter *s, rd_splitter_work *w, const char *text, size_t n,
                      bool (*piece)(void *ctx, const char *at, size_t n), void *ctx)
{
    const split_call c = {s, w, piece, ctx};
    for (size_t from = 0; from < n;) {
        size_t end = from, k;
        while (end < n &&
               (k = (unsigned char)text[end] < 0x80 ? 1 : rd_utf8_bytes(text + end, n - end)) > 0)
            end += k;
        if (end > from && !(s->n > 0 ? split_by(&c, 0, text + from, end - from)
                                     : piece(ctx, text + from, end - from)))
            return false;
        for (from = end; end < n && rd_utf8_bytes(text + end, n - end) == 0;) end++;
        if (end > from && !piece(ctx, text + from, end - from)) return false;
        from = end;
    }
    return true;
}
