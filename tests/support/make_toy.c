/* make_toy.c -- writes the toy task of OpenSeq2Seq (create_toy_data.sh).
 *
 * Sentences have 5 to 50 words, which are ten Greek letters. The target is the source reversed. The
 * same seed gives the same files on every machine.
 *
 *     make_toy DIR [seed] [--train=N] [--dev=N] [--test=N] [--min_len=N] [--max_len=N]
 *
 * Writes DIR/{train,dev,test}/{source,target}.txt and DIR/vocab/{source,target}.txt. Vocabularies
 * are as those of the original script: "letter TAB count" in the order of first appearance. The
 * count is that of all three sets, and one too low. */
#include "rd/file.h"
#include "rd/philox.h"
#include "rd/strbuf.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LETTERS = 10, SETS = 3, MAX_LEN = 10000 };
static const char *const set_name[SETS] = {"train", "dev", "test"};

typedef struct toy {
    const char *dir;
    int64_t seed, n[SETS], min_len, max_len;
    int64_t count[LETTERS];
    int order[LETTERS], n_seen;
} toy;

static void put_letter(rd_strbuf *b, int letter)
{
    const char utf8[] = {(char)0xCE, (char)(0xB1 + letter), '\0'}; /* U+03B1 + letter */
    rd_strbuf_puts(b, utf8);
}

static void put_pair(toy *t, int set, int64_t i, rd_strbuf *source, rd_strbuf *target)
{
    const rd_key key = rd_key_make((uint64_t)t->seed, RD_RNG_TEST, (uint64_t)set, (uint64_t)i);
    int letter[MAX_LEN];
    uint32_t out[4];
    rd_philox((const uint32_t[4]){0, 0, 0, 1}, key, out);
    const int64_t n = t->min_len + out[0] % (t->max_len - t->min_len + 1);
    for (int64_t k = 0; k < n; k++) {
        if (k % 4 == 0) rd_philox((const uint32_t[4]){(uint32_t)(k / 4), 0, 0, 0}, key, out);
        letter[k] = (int)(out[k % 4] % LETTERS);
        if (t->count[letter[k]]++ == 0) t->order[t->n_seen++] = letter[k];
    }
    for (int64_t k = 0; k < n; k++) {
        put_letter(source, letter[k]);
        put_letter(target, letter[n - 1 - k]);
        rd_strbuf_puts(source, k + 1 < n ? " " : "\n");
        rd_strbuf_puts(target, k + 1 < n ? " " : "\n");
    }
}

static rd_code write_pair(const toy *t, const char *set, const rd_strbuf *source,
                          const rd_strbuf *target, rd_status *st)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", t->dir, set);
    RD_TRY(rd_mkdirs(path, st));
    snprintf(path, sizeof path, "%s/%s/source.txt", t->dir, set);
    RD_TRY(rd_file_write_atomic(path, rd_strbuf_str(source), source->n, st));
    snprintf(path, sizeof path, "%s/%s/target.txt", t->dir, set);
    RD_TRY(rd_file_write_atomic(path, rd_strbuf_str(target), target->n, st));
done:
    return st->code;
}

static rd_code write_toy(toy *t, rd_status *st)
{
    rd_strbuf source = {0}, target = {0};
    for (int s = 0; s < SETS; s++) {
        rd_strbuf_reset(&source);
        rd_strbuf_reset(&target);
        for (int64_t i = 0; i < t->n[s]; i++) put_pair(t, s, i, &source, &target);
        if (source.failed || target.failed) RD_TRY(rd_fail(st, RD_EENV, "out of memory"));
        RD_TRY(write_pair(t, set_name[s], &source, &target, st));
    }
    rd_strbuf_reset(&source);
    for (int k = 0; k < t->n_seen; k++) {
        put_letter(&source, t->order[k]);
        rd_strbuf_printf(&source, "\t%" PRId64 "\n", t->count[t->order[k]] - 1);
    }
    RD_TRY(write_pair(t, "vocab", &source, &source, st));
done:
    rd_strbuf_release(&source);
    rd_strbuf_release(&target);
    return st->code;
}

static int64_t number(const char *text, const char *what)
{
    char *end;
    const long long x = strtoll(text, &end, 10);
    if (*text == '\0' || *end != '\0' || x < 0) {
        fprintf(stderr, "make_toy: %s: '%s' is no number\n", what, text);
        exit(RD_EUSAGE);
    }
    return x;
}

int main(int argc, char **argv)
{
    toy t = {.seed = 1, .n = {10000, 1000, 2000}, .min_len = 5, .max_len = 50};
    const struct {
        const char *flag;
        int64_t *at;
    } flags[] = {{"--train=", &t.n[0]},
                 {"--dev=", &t.n[1]},
                 {"--test=", &t.n[2]},
                 {"--min_len=", &t.min_len},
                 {"--max_len=", &t.max_len}};
    int n_plain = 0;
    for (int i = 1; i < argc; i++) {
        size_t f = 0;
        const size_t n_flags = sizeof flags / sizeof flags[0];
        while (f < n_flags && strncmp(argv[i], flags[f].flag, strlen(flags[f].flag)) != 0) f++;
        if (f < n_flags)
            *flags[f].at = number(argv[i] + strlen(flags[f].flag), flags[f].flag);
        else if (strncmp(argv[i], "--", 2) == 0 || n_plain == 2)
            n_plain = 3;
        else if (n_plain++ == 0)
            t.dir = argv[i];
        else
            t.seed = number(argv[i], "seed");
    }
    if (!t.dir || n_plain > 2 || t.min_len < 1 || t.max_len < t.min_len || t.max_len > MAX_LEN) {
        fprintf(stderr, "usage: make_toy DIR [seed] [--train=N] [--dev=N] [--test=N] [--min_len=N] "
                        "[--max_len=N]\n");
        return RD_EUSAGE;
    }
    rd_status st = {0};
    if (write_toy(&t, &st) != RD_OK) fprintf(stderr, "make_toy: %s\n", st.msg);
    return (int)st.code;
}
