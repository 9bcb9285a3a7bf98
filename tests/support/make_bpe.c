/* make_bpe.c -- splits words by byte pair encoding (Sennrich, Haddow and Birch 2016).
 *
 *     make_bpe learn N FILE... > codes        N merges at most, fewer when no pair occurs twice
 *     make_bpe apply CODES FILE > segmented   words in pieces; all but the last have the mark "@@"
 *
 * Files are those of subword-nmt 0.3 and later, and results are the same byte for byte.
 *
 * A word starts as its characters, with "</w>" appended to the last one. Learning repeatedly merges
 * the most frequent pair of neighbours. Of equally frequent pairs it takes the largest one in the
 * order of code points. Applying merges the pair that was learned first, at all its places from
 * left to right. The file of codes has the line "#version: 0.2", then one line "left right" per
 * merge. To undo the encoding, delete every "@@ ".
 *
 * Words share only counts. Learning therefore keeps, for each pair, its count and its words, and
 * after a merge counts only those words again. `make install` installs the program as
 * run_dist_make_bpe. */
#include "../../runner/data/data_impl.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct text {
    char *at;
    size_t n;
} text;

/* A set of strings, each stored once: symbols, or words before they are split. */
typedef struct pool {
    text *item;
    int32_t *slot; /* index + 1; 0: empty */
    size_t n, cap, mask;
} pool;

typedef struct pair {
    int32_t left, right;
    int64_t count;
    int32_t *words; /* indices of words; some are out of date or repeated */
    int32_t n_words, cap_words;
} pair;

typedef struct word {
    int32_t *symbol;
    int32_t n;
    int64_t count;
} word;

typedef struct bpe {
    pool symbols, words;
    word *word; /* learning: the words of words.item as symbols */
    pair *pair;
    int32_t *slot; /* hash table of pairs: index + 1 */
    size_t n_pairs, cap_pairs, pair_mask;
} bpe;

/* Reallocates. Out of memory ends the program, which is a tool for the command line. */
static void *grow(void *p, size_t bytes)
{
    void *q = realloc(p, bytes ? bytes : 1);
    if (!q) {
        fprintf(stderr, "%s: out of memory\n", program_invocation_short_name);
        exit(RD_EENV);
    }
    return q;
}

static void *zeroed(size_t n, size_t bytes)
{
    return memset(grow(NULL, n * bytes), 0, n * bytes);
}

static int32_t intern(pool *p, const char *at, size_t n)
{
    if (p->n * 2 >= p->mask) {
        free(p->slot);
        p->mask = p->mask ? p->mask * 2 + 1 : 4095;
        p->slot = zeroed(p->mask + 1, sizeof *p->slot);
        for (size_t k = 0; k < p->n; k++) {
            size_t i = rd_hash(0, p->item[k].at, p->item[k].n) & p->mask;
            while (p->slot[i]) i = (i + 1) & p->mask;
            p->slot[i] = (int32_t)k + 1;
        }
    }
    size_t i = rd_hash(0, at, n) & p->mask;
    for (; p->slot[i]; i = (i + 1) & p->mask) {
        const text *t = &p->item[p->slot[i] - 1];
        if (t->n == n && memcmp(t->at, at, n) == 0) return p->slot[i] - 1;
    }
    if (p->n == p->cap) p->item = grow(p->item, (p->cap = p->cap * 2 + 64) * sizeof *p->item);
    p->item[p->n] = (text){grow(NULL, n), n};
    if (n > 0) memcpy(p->item[p->n].at, at, n);
    p->slot[i] = (int32_t)++p->n;
    return (int32_t)p->n - 1;
}

static void free_pool(pool *p)
{
    for (size_t k = 0; k < p->n; k++) free(p->item[k].at);
    free(p->item);
    free(p->slot);
}

static int32_t joined(bpe *b, int32_t left, int32_t right)
{
    const text l = b->symbols.item[left], r = b->symbols.item[right];
    char *s = grow(NULL, l.n + r.n);
    memcpy(s, l.at, l.n);
    memcpy(s + l.n, r.at, r.n);
    const int32_t id = intern(&b->symbols, s, l.n + r.n);
    free(s);
    return id;
}

static size_t pair_hash(int32_t left, int32_t right)
{
    return (size_t)rd_fold(((uint64_t)(uint32_t)left << 32 | (uint32_t)right) ^ RD_WY0, RD_WY1);
}

/* Returns the index of the pair, -1: the pair is new and shall not be added. */
static int32_t find_pair(bpe *b, int32_t left, int32_t right, bool make)
{
    if (b->n_pairs * 2 >= b->pair_mask) {
        free(b->slot);
        b->pair_mask = b->pair_mask ? b->pair_mask * 2 + 1 : 65535;
        b->slot = zeroed(b->pair_mask + 1, sizeof *b->slot);
        for (size_t k = 0; k < b->n_pairs; k++) {
            size_t i = pair_hash(b->pair[k].left, b->pair[k].right) & b->pair_mask;
            while (b->slot[i]) i = (i + 1) & b->pair_mask;
            b->slot[i] = (int32_t)k + 1;
        }
    }
    size_t i = pair_hash(left, right) & b->pair_mask;
    for (; b->slot[i]; i = (i + 1) & b->pair_mask) {
        const pair *p = &b->pair[b->slot[i] - 1];
        if (p->left == left && p->right == right) return b->slot[i] - 1;
    }
    if (!make) return -1;
    if (b->n_pairs == b->cap_pairs)
        b->pair = grow(b->pair, (b->cap_pairs = b->cap_pairs * 2 + 1024) * sizeof *b->pair);
    b->pair[b->n_pairs] = (pair){.left = left, .right = right};
    b->slot[i] = (int32_t)++b->n_pairs;
    return (int32_t)b->n_pairs - 1;
}

static size_t char_bytes(const char *s, size_t n)
{
    const unsigned char c = (unsigned char)s[0];
    const size_t k = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    return k < n ? k : n;
}

/* Splits a word into its characters, with "</w>" appended to the last one. The caller frees
 * *out. */
static int32_t split_word(bpe *b, const char *at, size_t n, int32_t **out)
{
    int32_t k = 0, *s = grow(NULL, n * sizeof *s);
    for (size_t i = 0; i < n;) {
        const size_t m = char_bytes(at + i, n - i);
        char last[16];
        if (i + m == n) {
            memcpy(last, at + i, m);
            memcpy(last + m, "</w>", 4);
            s[k++] = intern(&b->symbols, last, m + 4);
        } else {
            s[k++] = intern(&b->symbols, at + i, m);
        }
        i += m;
    }
    *out = s;
    return k;
}

/* Replaces every (left, right) by `to`, from left to right. Returns the new length. */
static int32_t merge(int32_t *s, int32_t n, int32_t left, int32_t right, int32_t to)
{
    int32_t m = 0;
    for (int32_t i = 0; i < n; i++) {
        const bool here = i + 1 < n && s[i] == left && s[i + 1] == right;
        s[m++] = here ? to : s[i];
        i += here;
    }
    return m;
}

/* ---- learning ---- */

/* Adds the word to the lists of its pairs that contain the symbol `fresh` (-1: of all its pairs).
 * The other pairs have the word already. */
static void count_pairs(bpe *b, int32_t w, int64_t sign, bool list, int32_t fresh)
{
    for (int32_t i = 0; i + 1 < b->word[w].n; i++) {
        const int32_t left = b->word[w].symbol[i], right = b->word[w].symbol[i + 1];
        const int32_t at = find_pair(b, left, right, true);
        pair *p = &b->pair[at];
        p->count += sign * b->word[w].count;
        if (!list || (fresh >= 0 && left != fresh && right != fresh) ||
            (p->n_words > 0 && p->words[p->n_words - 1] == w))
            continue;
        if (p->n_words == p->cap_words)
            p->words = grow(p->words,
                            (size_t)(p->cap_words = p->cap_words * 2 + 4) * sizeof *p->words);
        p->words[p->n_words++] = w;
    }
}

static int compare(const text *a, const text *b)
{
    const int c = memcmp(a->at, b->at, a->n < b->n ? a->n : b->n);
    return c ? c : (a->n > b->n) - (a->n < b->n);
}

static bool is_better(const bpe *b, const pair *p, const pair *best)
{
    if (p->count != best->count) return p->count > best->count;
    const text *s = b->symbols.item;
    const int c = compare(&s[p->left], &s[best->left]);
    return c ? c > 0 : compare(&s[p->right], &s[best->right]) > 0;
}

static bool has_pair(const word *w, int32_t left, int32_t right)
{
    for (int32_t i = 0; i + 1 < w->n; i++)
        if (w->symbol[i] == left && w->symbol[i + 1] == right) return true;
    return false;
}

static void learn_merges(bpe *b, int64_t n_merges)
{
    puts("#version: 0.2");
    for (int64_t k = 0; k < n_merges; k++) {
        size_t best = 0;
        for (size_t i = 1; i < b->n_pairs; i++)
            if (is_better(b, &b->pair[i], &b->pair[best])) best = i;
        if (b->n_pairs == 0 || b->pair[best].count < 2) break;
        const pair p = b->pair[best]; /* the table moves while words are counted again */
        const text l = b->symbols.item[p.left], r = b->symbols.item[p.right];
        printf("%.*s %.*s\n", (int)l.n, l.at, (int)r.n, r.at);
        const int32_t to = joined(b, p.left, p.right);
        b->pair[best].words = NULL;
        b->pair[best].n_words = b->pair[best].cap_words = 0;
        for (int32_t i = 0; i < p.n_words; i++) {
            word *w = &b->word[p.words[i]];
            if (!has_pair(w, p.left, p.right)) continue;
            count_pairs(b, p.words[i], -1, false, -1);
            w->n = merge(w->symbol, w->n, p.left, p.right, to);
            count_pairs(b, p.words[i], 1, true, to);
        }
        free(p.words);
    }
}

static rd_code read_words(bpe *b, const char *path, rd_status *st)
{
    rd_lines *l = NULL;
    size_t cap = b->words.n;
    RD_TRY(rd_lines_new(path, (rd_lines_opts){.max_line_bytes = 1 << 30}, &l, st));
    for (;;) {
        const char *line;
        size_t n;
        RD_TRY(rd_lines_next(l, &line, &n, st));
        if (!line) break;
        if (n > 0 && line[n - 1] == '\r') n--;
        for (size_t i = 0, from = 0; i <= n; i++) {
            if (i < n && line[i] != ' ') continue;
            if (i > from) {
                const size_t before = b->words.n;
                const int32_t w = intern(&b->words, line + from, i - from);
                if (b->words.n > cap)
                    b->word = grow(b->word, (cap = b->words.n * 2) * sizeof *b->word);
                if (b->words.n > before) b->word[w] = (word){0};
                b->word[w].count++;
            }
            from = i + 1;
        }
    }
done:
    rd_lines_free(l);
    return st->code;
}

static rd_code learn(bpe *b, int64_t n_merges, char **paths, int n_paths, rd_status *st)
{
    for (int i = 0; i < n_paths; i++) RD_TRY(read_words(b, paths[i], st));
    for (size_t w = 0; w < b->words.n; w++) {
        b->word[w].n = split_word(b, b->words.item[w].at, b->words.item[w].n, &b->word[w].symbol);
        count_pairs(b, (int32_t)w, 1, true, -1);
    }
    learn_merges(b, n_merges);
done:
    return st->code;
}

/* ---- applying: the count of a pair is its place in the file of codes ---- */

static rd_code read_codes(bpe *b, const char *path, rd_status *st)
{
    rd_lines *l = NULL;
    RD_TRY(rd_lines_new(path, (rd_lines_opts){.max_line_bytes = 1 << 20}, &l, st));
    for (;;) {
        const char *line;
        size_t n;
        RD_TRY(rd_lines_next(l, &line, &n, st));
        if (!line) break;
        if (n > 0 && line[n - 1] == '\r') n--;
        const char *space = n > 0 ? memchr(line, ' ', n) : NULL;
        if (rd_lines_number(l) == 1) {
            if (n != 13 || memcmp(line, "#version: 0.2", 13) != 0)
                RD_TRY(rd_fail(st, RD_EDATA, "'%s' does not begin with '#version: 0.2'", path));
            continue;
        }
        if (!space || space == line || space + 1 == line + n ||
            memchr(space + 1, ' ', (size_t)(line + n - space - 1)))
            RD_TRY(rd_fail(st, RD_EDATA, "%s:%" PRId64 ": not two symbols with one space between",
                           path, rd_lines_number(l)));
        const int32_t left = intern(&b->symbols, line, (size_t)(space - line));
        const int32_t right = intern(&b->symbols, space + 1, (size_t)(line + n - space - 1));
        const size_t before = b->n_pairs;
        const int32_t p = find_pair(b, left, right, true);
        if (b->n_pairs > before) b->pair[p].count = rd_lines_number(l);
    }
    if (rd_lines_number(l) == 0) RD_TRY(rd_fail(st, RD_EDATA, "'%s' is empty", path));
done:
    rd_lines_free(l);
    return st->code;
}

static void put_word(bpe *b, const char *at, size_t n, bool first)
{
    int32_t *s, m = split_word(b, at, n, &s);
    for (;;) {
        int32_t best = -1;
        for (int32_t i = 0; i + 1 < m; i++) {
            const int32_t p = find_pair(b, s[i], s[i + 1], false);
            if (p >= 0 && (best < 0 || b->pair[p].count < b->pair[best].count)) best = p;
        }
        if (best < 0) break;
        const int32_t left = b->pair[best].left, right = b->pair[best].right;
        m = merge(s, m, left, right, joined(b, left, right));
    }
    for (int32_t i = 0; i < m; i++) {
        const text t = b->symbols.item[s[i]];
        if (!first || i > 0) putchar(' ');
        const size_t bytes = i + 1 < m ? t.n : t.n - 4;
        fwrite(t.at, 1, bytes, stdout);
        if (i + 1 < m) fputs("@@", stdout);
    }
    free(s);
}

static rd_code apply(bpe *b, const char *codes, const char *path, rd_status *st)
{
    rd_lines *l = NULL;
    RD_TRY(read_codes(b, codes, st));
    RD_TRY(rd_lines_new(path, (rd_lines_opts){.max_line_bytes = 1 << 30}, &l, st));
    for (;;) {
        const char *line;
        size_t n, from = 0, end;
        RD_TRY(rd_lines_next(l, &line, &n, st));
        if (!line) break;
        if (n > 0 && line[n - 1] == '\r') n--;
        for (end = n; end > 0 && line[end - 1] == ' ';) /* outer spaces stay as they are */
            end--;
        while (from < end && line[from] == ' ') from++;
        fwrite(line, 1, from, stdout);
        bool first = true;
        for (size_t i = from; i <= end; i++) {
            if (i < end && line[i] != ' ') continue;
            if (i > from) {
                put_word(b, line + from, i - from, first);
                first = false;
            }
            from = i + 1;
        }
        fwrite(line + end, 1, n - end, stdout);
        putchar('\n');
    }
done:
    rd_lines_free(l);
    return st->code;
}

static const char usage[] =
    "usage: %s learn N FILE... > codes\n"
    "       %s apply CODES FILE > segmented\n"
    "Learns at most N merges of subwords (byte pair encoding) from text files, or splits the words "
    "of a text by them.\n"
    "Files are those of subword-nmt. A FILE is plain, compressed, or \"archive!member\".\n"
    "To undo the encoding, delete every \"@@ \".\n";

/* Runs one of the two commands. RD_EUSAGE without a message: the words make no command. */
static rd_code run_command(bpe *b, int argc, char **argv, rd_status *st)
{
    if (argc >= 4 && strcmp(argv[1], "learn") == 0) {
        char *end;
        errno = 0;
        const int64_t n = strtoll(argv[2], &end, 10);
        if (end == argv[2] || *end || errno || n < 1)
            return rd_fail(st, RD_EUSAGE, "'%.40s' is no number of merges from 1", argv[2]);
        return learn(b, n, argv + 3, argc - 3, st);
    }
    if (argc == 4 && strcmp(argv[1], "apply") == 0) return apply(b, argv[2], argv[3], st);
    return RD_EUSAGE;
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    bpe b = {0};
    const char *me = program_invocation_short_name;
    const bool help = argc == 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0);
    const rd_code rc = help ? RD_EUSAGE : run_command(&b, argc, argv, &st);
    if (rc == RD_EUSAGE && st.code == RD_OK) {
        fprintf(help ? stdout : stderr, usage, me, me);
        return !help ? RD_EUSAGE : fflush(stdout) == 0 ? RD_OK : RD_EENV;
    }
    if ((fflush(stdout) != 0 || ferror(stdout)) && st.code == RD_OK)
        rd_fail(&st, RD_EENV, "cannot write to standard output");
    if (st.code != RD_OK) fprintf(stderr, "%s: %s\n", me, st.msg);
    for (size_t w = 0; b.word && w < b.words.n; w++) free(b.word[w].symbol);
    for (size_t p = 0; p < b.n_pairs; p++) free(b.pair[p].words);
    free(b.word);
    free(b.pair);
    free(b.slot);
    free_pool(&b.symbols);
    free_pool(&b.words);
    return (int)st.code;
}
