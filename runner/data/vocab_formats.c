/* vocab_formats.c -- vocabularies of other programs: Sockeye (JSON), Marian (YAML), fairseq
 * (dict.txt).
 *
 * The bytes show the kind, not the name of the file. A word never holds a space, so a first line
 * "token: 7" or "token 7" is no line of one word. All further lines must then be alike.
 *
 * These programs number their special tokens in other ways. So only the order of the numbers is
 * used, and the ids are those of rd_vocab. */
#include "data_impl.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_ENTRIES = 1 << 22, MOST_DIGITS = 18 };

const char *rd_vocab_kind_name(rd_vocab_kind k)
{
    static const char *const names[] = {[RD_VOCAB_LINES] = "one word a line",
                                        [RD_VOCAB_JSON] = "JSON as of Sockeye",
                                        [RD_VOCAB_YAML] = "YAML as of Marian",
                                        [RD_VOCAB_COUNTS] = "a dict.txt as of fairseq"};
    return names[k];
}

typedef struct entry {
    size_t at, n; /* the word in list.text */
    int64_t number, line;
    bool overwrites; /* fairseq: the word may be there already */
} entry;

typedef struct entry_list {
    const char *name; /* of the file */
    entry *at;        /* owned */
    int64_t n, cap;
    rd_strbuf text; /* the words */
} entry_list;

/* Ends the word that was appended to list.text from `from` on. */
static rd_code list_add(entry_list *l, size_t from, int64_t number, int64_t line, bool overwrites,
                        rd_status *st)
{
    if (l->n == MOST_ENTRIES)
        return rd_fail(st, RD_EDATA, "'%s' has more than %d words, the most of a vocabulary",
                       l->name, MOST_ENTRIES);
    if (l->n == l->cap) {
        const int64_t cap = 2 * l->cap + 1024;
        entry *more = realloc(l->at, (size_t)cap * sizeof *more);
        if (!more) return rd_fail(st, RD_EENV, "out of memory for the words of '%s'", l->name);
        l->at = more;
        l->cap = cap;
    }
    if (l->text.failed) return rd_fail(st, RD_EENV, "out of memory for the words of '%s'", l->name);
    if (l->text.n == from)
        return rd_fail(st, RD_EDATA, "%s:%" PRId64 ": an empty word", l->name, line);
    l->at[l->n++] = (entry){from, l->text.n - from, number, line, overwrites};
    return RD_OK;
}

/* ---- characters of quoted strings ---- */

/* Appends a code point as UTF-8. Returns false for NUL, surrogates and numbers past the end. */
static bool quoted_put(rd_strbuf *b, uint32_t c)
{
    char s[4];
    size_t n = 0;
    if (c == 0 || (c >= 0xD800 && c < 0xE000) || c > 0x10FFFF) return false;
    if (c < 0x80) {
        s[n++] = (char)c;
    } else if (c < 0x800) {
        s[n++] = (char)(0xC0 | c >> 6);
    } else if (c < 0x10000) {
        s[n++] = (char)(0xE0 | c >> 12);
        s[n++] = (char)(0x80 | (c >> 6 & 0x3F));
    } else {
        s[n++] = (char)(0xF0 | c >> 18);
        s[n++] = (char)(0x80 | (c >> 12 & 0x3F));
        s[n++] = (char)(0x80 | (c >> 6 & 0x3F));
    }
    if (c >= 0x80) s[n++] = (char)(0x80 | (c & 0x3F));
    rd_strbuf_add(b, s, n);
    return true;
}

/* Reads n hexadecimal digits. */
static bool quoted_hex(const char *p, const char *end, int n, uint32_t *out)
{
    *out = 0;
    if (end - p < n) return false;
    for (int i = 0; i < n; i++) {
        const char c = p[i];
        const int d = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
        if (d < 0) return false;
        *out = *out * 16 + (uint32_t)d;
    }
    return true;
}

/* Reads what follows a backslash at p, which JSON and YAML share; yaml: also \x \U \0 \e \' and a
 * space. Returns the position behind it, NULL if it is no escape. */
static const char *quoted_escape(const char *p, const char *end, bool yaml, rd_strbuf *b)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    uint32_t c, low;
    if (p == end) return NULL;
    const char *known = *p ? strchr(from, *p) : NULL;
    if (known) {
        rd_strbuf_add(b, &to[known - from], 1);
        return p + 1;
    }
    const int digits = *p == 'u' ? 4 : yaml && *p == 'x' ? 2 : yaml && *p == 'U' ? 8 : 0;
    if (digits == 0 || !quoted_hex(p + 1, end, digits, &c)) return NULL;
    p += 1 + digits;
    if (c >= 0xD800 && c < 0xDC00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u' &&
        quoted_hex(p + 2, end, 4, &low) && low >= 0xDC00 && low < 0xE000) {
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
        p += 6;
    }
    return quoted_put(b, c) ? p : NULL;
}

/* Appends the string whose opening quote is before p. Returns the position behind the closing
 * quote; NULL: there is none in this line, or an escape is wrong. */
static const char *quoted_string(const char *p, const char *end, bool yaml, rd_strbuf *b)
{
    while (p < end && *p != '"') {
        if ((unsigned char)*p < 0x20 && *p != '\t') return NULL;
        if (*p == '\\') {
            if (!(p = quoted_escape(p + 1, end, yaml, b))) return NULL;
            continue;
        }
        const char *from = p;
        while (p < end && *p != '"' && *p != '\\' && ((unsigned char)*p >= 0x20 || *p == '\t')) p++;
        rd_strbuf_add(b, from, (size_t)(p - from));
    }
    return p < end ? p + 1 : NULL;
}

/* ---- JSON ---- */

typedef struct json_at {
    const char *begin, *p, *end, *line_begin;
    int64_t line;
} json_at;

static void json_space(json_at *j)
{
    for (; j->p < j->end && strchr(" \t\r\n", *j->p) && *j->p; j->p++)
        if (*j->p == '\n') {
            j->line++;
            j->line_begin = j->p + 1;
        }
}

static rd_code json_broken(const json_at *j, const char *name, const char *what, rd_status *st)
{
    return rd_fail(st, RD_EDATA,
                   "%s:%" PRId64 ":%" PRId64
                   ": %s; a JSON vocabulary is {\"token\": id, ...} with each id once",
                   name, j->line, (int64_t)(j->p - j->line_begin) + 1, what);
}

/* Reads a whole number from 0. Returns the position behind it; NULL: there is none. */
static const char *read_number(const char *p, const char *end, int64_t *out)
{
    int n = 0;
    *out = 0;
    for (; p < end && *p >= '0' && *p <= '9'; p++, n++) {
        if (n == MOST_DIGITS) return NULL;
        *out = *out * 10 + (*p - '0');
    }
    return n > 0 ? p : NULL;
}

/* Does the text begin as a JSON object of numbers: { "token" : 7? */
static bool json_begins(const char *p, size_t n)
{
    json_at j = {.begin = p, .p = p, .end = p + n, .line_begin = p, .line = 1};
    rd_strbuf word = {0};
    int64_t number;
    bool is = false;
    json_space(&j);
    if (j.p == j.end || *j.p++ != '{') return false;
    json_space(&j);
    if (j.p < j.end && *j.p == '"' && (j.p = quoted_string(j.p + 1, j.end, false, &word))) {
        json_space(&j);
        if (j.p < j.end && *j.p++ == ':') {
            json_space(&j);
            is = read_number(j.p, j.end, &number) != NULL;
        }
    }
    rd_strbuf_release(&word);
    return is;
}

/* Reads "token": id. */
static rd_code json_pair(json_at *j, entry_list *l, rd_status *st)
{
    const size_t from = l->text.n;
    const json_at start = *j;
    int64_t number;
    const char *next = *j->p == '"' ? quoted_string(j->p + 1, j->end, false, &l->text) : NULL;
    if (!next) return json_broken(j, l->name, "no token in double quotes", st);
    j->p = next;
    json_space(j);
    if (j->p == j->end || *j->p != ':') return json_broken(j, l->name, "no ':' behind a token", st);
    j->p++;
    json_space(j);
    next = read_number(j->p, j->end, &number);
    if (!next || (next < j->end && !strchr(" \t\r\n,}", *next)))
        return json_broken(j, l->name, "no whole number from 0 behind a token", st);
    j->p = next;
    return list_add(l, from, number, start.line, false, st);
}

static rd_code json_read(const char *p, size_t n, entry_list *l, rd_status *st)
{
    json_at j = {.begin = p, .p = p, .end = p + n, .line_begin = p, .line = 1};
    json_space(&j);
    j.p++; /* '{' */
    for (;;) {
        json_space(&j);
        if (j.p == j.end) return json_broken(&j, l->name, "the file ends inside the object", st);
        RD_TRY(json_pair(&j, l, st));
        json_space(&j);
        if (j.p < j.end && *j.p == ',') {
            j.p++;
            continue;
        }
        if (j.p == j.end || *j.p != '}')
            return json_broken(&j, l->name, "neither ',' nor '}' behind a number", st);
        j.p++;
        json_space(&j);
        if (j.p < j.end) return json_broken(&j, l->name, "more behind the end of the object", st);
        return RD_OK;
    }
done:
    return st->code;
}

/* ---- lines of two parts ---- */

/* Returns the length of the part before the last `gap` and a number at the end; 0: there is no such
 * part. */
static size_t before_number(const char *line, size_t n, const char *gap, int64_t *number)
{
    const size_t n_gap = strlen(gap);
    size_t k = n;
    while (k > 0 && line[k - 1] >= '0' && line[k - 1] <= '9') k--;
    if (k == n || k <= n_gap || memcmp(line + k - n_gap, gap, n_gap) != 0) return 0;
    return read_number(line + k, line + n, number) ? k - n_gap : 0;
}

static size_t yaml_part(const char *line, size_t n, int64_t *number)
{
    return before_number(line, n, ": ", number);
}

/* fairseq: "token count", or "token count #fairseq:overwrite". */
static size_t counts_part(const char *line, size_t n, int64_t *number, bool *overwrites)
{
    static const char flag[] = " #fairseq:overwrite";
    const size_t n_flag = sizeof flag - 1;
    *overwrites = n > n_flag && memcmp(line + n - n_flag, flag, n_flag) == 0;
    if (*overwrites) n -= n_flag;
    const size_t k = before_number(line, n, " ", number);
    return k > 0 && !memchr(line, ' ', k) ? k : 0;
}

/* What the lines of a text look like. */
typedef struct line_kinds {
    int64_t n;                    /* number of lines that are not empty */
    int64_t bad_yaml, bad_counts; /* first line that is no line of that kind; 0: none */
    bool rising, falling;         /* the numbers rise; they do not rise */
} line_kinds;

typedef struct text_line {
    const char *at;
    size_t n;
    int64_t number; /* from 1 */
} text_line;

/* Moves to the next line that is not empty. Returns false at the end. */
static bool next_line(const char **p, const char *end, text_line *l)
{
    while (*p < end) {
        const char *lf = memchr(*p, '\n', (size_t)(end - *p)), *stop = lf ? lf : end;
        l->at = *p;
        l->n = rd_utf8_rstrip(*p, (size_t)(stop - *p));
        l->number++;
        *p = lf ? lf + 1 : end;
        if (l->n > 0) return true;
    }
    return false;
}

static void look_at_lines(const char *p, size_t n, line_kinds *k)
{
    const char *end = p + n;
    text_line l = {0};
    int64_t number, before = -1;
    bool overwrites;
    *k = (line_kinds){.rising = true, .falling = true};
    while (next_line(&p, end, &l)) {
        const bool yaml = yaml_part(l.at, l.n, &number) > 0,
                   counts = counts_part(l.at, l.n, &number, &overwrites) > 0;
        k->n++;
        if (!yaml && k->bad_yaml == 0) k->bad_yaml = l.number;
        if (!counts && k->bad_counts == 0) k->bad_counts = l.number;
        if (k->n == 1 && !yaml && !counts) return; /* one word a line */
        if (k->n > 1 && number <= before) k->rising = false;
        if (k->n > 1 && number > before) k->falling = false;
        before = number;
    }
}

/* Finds the kind of a text that is no JSON. Marian's "a: 7" may also be the token "a:" of fairseq.
 * Then the order decides: ids rise, counts fall. */
static rd_code kind_of_lines(const char *name, const char *p, size_t n, rd_vocab_kind *kind,
                             rd_status *st)
{
    line_kinds k;
    *kind = RD_VOCAB_LINES;
    look_at_lines(p, n, &k);
    if (k.n == 0 || (k.bad_yaml > 0 && k.bad_counts > 0 && k.n == 1)) return RD_OK;
    if (k.bad_yaml == 0 && k.bad_counts == 0) {
        if (k.n > 1 && k.rising != k.falling) {
            *kind = k.rising ? RD_VOCAB_YAML : RD_VOCAB_COUNTS;
            return RD_OK;
        }
        return rd_fail(st, RD_EDATA,
                       "%s: the lines may be \"token: id\" of Marian or \"token: count\" of "
                       "fairseq, for the numbers neither rise nor fall; sort them by the number",
                       name);
    }
    if (k.bad_yaml == 0 || k.bad_counts == 0) {
        *kind = k.bad_yaml == 0 ? RD_VOCAB_YAML : RD_VOCAB_COUNTS;
        return RD_OK;
    }
    const bool yaml = k.bad_yaml > k.bad_counts;
    return rd_fail(st, RD_EDATA,
                   "%s:%" PRId64 ": not \"%s\" as the lines before; a vocabulary has one word in "
                   "each line, or the same form in all lines",
                   name, yaml ? k.bad_yaml : k.bad_counts, yaml ? "token: id" : "token count");
}

/* Appends a token of YAML: plain, in double or in single quotes. */
static bool yaml_token(const char *at, size_t n, rd_strbuf *b)
{
    if (at[0] == '"') {
        const char *end = quoted_string(at + 1, at + n, true, b);
        return end == at + n;
    }
    if (at[0] != '\'') {
        rd_strbuf_add(b, at, n);
        return true;
    }
    for (size_t i = 1; i < n; i++) {
        if (at[i] == '\'' && i + 1 == n) return true;
        if (at[i] == '\'' && at[++i] != '\'') return false;
        rd_strbuf_add(b, at + i, 1);
    }
    return false;
}

static rd_code lines_read(const char *p, size_t n, rd_vocab_kind kind, entry_list *l, rd_status *st)
{
    const char *end = p + n;
    text_line line = {0};
    int64_t number = 0;
    while (next_line(&p, end, &line)) {
        const size_t from = l->text.n;
        bool overwrites = false;
        if (kind == RD_VOCAB_YAML) {
            const size_t k = yaml_part(line.at, line.n, &number);
            if (!yaml_token(line.at, k, &l->text))
                return rd_fail(st, RD_EDATA, "%s:%" PRId64 ": a token whose quotes are not closed",
                               l->name, line.number);
        } else {
            const size_t k = counts_part(line.at, line.n, &number, &overwrites);
            rd_strbuf_add(&l->text, line.at, k);
            if (strncmp(line.at, "madeupword", 10) == 0 && number == 0) {
                l->text.n = from; /* fills fairseq's table up to a multiple */
                continue;
            }
            number = l->n; /* a count is no id: the order of the lines counts */
        }
        RD_TRY(list_add(l, from, number, line.number, overwrites, st));
    }
done:
    return st->code;
}

/* ---- the words by number ---- */

static int by_number(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return x->line < y->line ? -1 : x->line > y->line;
}

static int by_word(const void *a, const void *b, void *text)
{
    const entry *x = a, *y = b;
    const char *t = text;
    const int c = memcmp(t + x->at, t + y->at, x->n < y->n ? x->n : y->n);
    if (c) return c;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return x->line < y->line ? -1 : x->line > y->line;
}

/* Refuses a word that occurs twice. fairseq's overwriting line replaces the earlier one, whose word
 * becomes empty. */
static rd_code check_words(entry_list *l, rd_status *st)
{
    const char *text = rd_strbuf_str(&l->text);
    if (l->n > 0) qsort_r(l->at, (size_t)l->n, sizeof *l->at, by_word, l->text.s);
    for (int64_t k = 1; k < l->n; k++) {
        entry *x = &l->at[k - 1];
        const entry *y = &l->at[k];
        if (x->n != y->n || memcmp(text + x->at, text + y->at, x->n) != 0) continue;
        if (!y->overwrites)
            return rd_fail(st, RD_EDATA,
                           "%s:%" PRId64 ": the word '%.*s' is in line %" PRId64 " already",
                           l->name, y->line, (int)(y->n < 60 ? y->n : 60), text + y->at, x->line);
        x->n = 0;
    }
    return RD_OK;
}

/* Is it a token that stands for no word of the text? */
static bool is_special(const entry_list *l, const entry *e)
{
    static const char *const names[] = {"<pad>", "<unk>", "<s>", "</s>"};
    const char *w = l->text.s + e->at;
    char fill[32];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == e->n && memcmp(w, names[i], e->n) == 0) return true;
    /* Sockeye fills its table up to a multiple of 8 with such entries. */
    const int n = snprintf(fill, sizeof fill, "<pad%" PRId64 ">", e->number);
    return (size_t)n == e->n && memcmp(w, fill, e->n) == 0;
}

static rd_code list_words(entry_list *l, rd_strbuf *words, rd_status *st)
{
    RD_TRY(check_words(l, st));
    if (l->n > 0) qsort(l->at, (size_t)l->n, sizeof *l->at, by_number);
    for (int64_t k = 0; k < l->n; k++) {
        const entry *e = &l->at[k];
        if (k > 0 && e->number == l->at[k - 1].number)
            return rd_fail(st, RD_EDATA,
                           "%s:%" PRId64 ": the id %" PRId64 " is in line %" PRId64 " already",
                           l->name, e->line, e->number, l->at[k - 1].line);
        if (e->n == 0 || is_special(l, e)) continue;
        rd_strbuf_add(words, l->text.s + e->at, e->n);
        rd_strbuf_add(words, "", 1);
    }
    if (words->failed) return rd_fail(st, RD_EENV, "out of memory for the words of '%s'", l->name);
done:
    return st->code;
}

rd_code rd_vocab_foreign(const char *name, const char *p, size_t n, rd_vocab_kind *kind,
                         rd_strbuf *words, rd_status *st)
{
    entry_list l = {.name = name};
    *kind = RD_VOCAB_LINES;
    if (n >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0) {
        p += 3;
        n -= 3;
    }
    if (n == 0) return RD_OK;
    if (json_begins(p, n))
        *kind = RD_VOCAB_JSON;
    else
        RD_TRY(kind_of_lines(name, p, n, kind, st));
    if (*kind == RD_VOCAB_LINES) return RD_OK;
    RD_TRY(*kind == RD_VOCAB_JSON ? json_read(p, n, &l, st) : lines_read(p, n, *kind, &l, st));
    RD_TRY(list_words(&l, words, st));
done:
    free(l.at);
    rd_strbuf_release(&l.text);
    return st->code;
}
