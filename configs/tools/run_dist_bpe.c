/* run_dist_bpe.c -- splits words by byte pair encoding (Sennrich, Haddow and Birch 2016).
 *
 *     run_dist-bpe learn N FILE... > codes        N merges at most, fewer when no pair occurs twice
 * run_dist-bpe apply CODES FILE > segmented   words in pieces; all but the last have the mark "@@"
 *
 * Files are those of subword-nmt 0.3 and later, and results are the same byte for byte: see
 * runner/text/schemes/bpe.c. To undo the encoding, delete every "@@ ". */
#include "../../runner/data/data_impl.h"
#include "rd/subword.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* The lines of several files, one after the other. */
typedef struct files {
    char **path;
    int n;
    rd_lines *now; /* owned; NULL: the next file is to be opened */
} files;

static rd_code next_line(void *ctx, const char **line, size_t *n, rd_status *st)
{
    files *f = ctx;
    for (*line = NULL; f->n > 0; f->path++, f->n--) {
        if (!f->now)
            RD_TRY(rd_lines_new(*f->path, (rd_lines_opts){.max_line_bytes = 1 << 30}, &f->now, st));
        RD_TRY(rd_lines_next(f->now, line, n, st));
        if (*line) break;
        rd_lines_free(f->now);
        f->now = NULL;
    }
done:
    return st->code;
}

static rd_code learn(int64_t n_merges, char **paths, int n_paths, rd_status *st)
{
    files f = {paths, n_paths, NULL};
    rd_strbuf codes = {0};
    const rd_subword_lines lines = {&f, next_line, 0};
    const rd_subword_training how = {.size = n_merges};
    if (rd_subword_train_to("bpe", &lines, &how, &codes, st) == RD_OK)
        fwrite(codes.s, 1, codes.n, stdout);
    rd_strbuf_release(&codes);
    rd_lines_free(f.now);
    return st->code;
}

static rd_code apply(const char *codes, const char *path, rd_status *st)
{
    rd_lines *l = NULL;
    rd_subword *s = NULL;
    rd_subword_scratch *w = NULL;
    rd_strbuf out = {0};
    RD_TRY(rd_subword_open("bpe", codes, &s, st));
    RD_TRY(rd_subword_scratch_new(s, &w, st));
    RD_TRY(rd_lines_new(path, (rd_lines_opts){.max_line_bytes = 1 << 30}, &l, st));
    for (;;) {
        const char *line;
        size_t n, from = 0, end;
        RD_TRY(rd_lines_next(l, &line, &n, st));
        if (!line) break;
        if (n > 0 && line[n - 1] == '\r') n--;
        for (end = n; end > 0 && line[end - 1] == ' ';) end--;
        while (from < end && line[from] == ' ') from++;
        rd_strbuf_reset(&out);
        rd_subword_segment(s, w, line + from, end - from, &out);
        if (out.failed) RD_TRY(rd_fail(st, RD_EENV, "out of memory"));
        fwrite(line, 1, from, stdout); /* outer spaces stay as they are */
        if (out.n > 0) fwrite(out.s, 1, out.n, stdout);
        fwrite(line + end, 1, n - end, stdout);
        putchar('\n');
    }
done:
    rd_lines_free(l);
    rd_strbuf_release(&out);
    rd_subword_scratch_free(w);
    rd_subword_free(s);
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
static rd_code run_command(int argc, char **argv, rd_status *st)
{
    if (argc >= 4 && strcmp(argv[1], "learn") == 0) {
        char *end;
        errno = 0;
        const int64_t n = strtoll(argv[2], &end, 10);
        if (end == argv[2] || *end || errno || n < 1)
            return rd_fail(st, RD_EUSAGE, "'%.40s' is no number of merges from 1", argv[2]);
        return learn(n, argv + 3, argc - 3, st);
    }
    if (argc == 4 && strcmp(argv[1], "apply") == 0) return apply(argv[2], argv[3], st);
    return RD_EUSAGE;
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    const char *me = program_invocation_short_name;
    const bool help = argc == 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0);
    const rd_code rc = help ? RD_EUSAGE : run_command(argc, argv, &st);
    if (rc == RD_EUSAGE && st.code == RD_OK) {
        fprintf(help ? stdout : stderr, usage, me, me);
        return !help ? RD_EUSAGE : fflush(stdout) == 0 ? RD_OK : RD_EENV;
    }
    if ((fflush(stdout) != 0 || ferror(stdout)) && st.code == RD_OK)
        rd_fail(&st, RD_EENV, "cannot write to standard output");
    if (st.code != RD_OK) fprintf(stderr, "%s: %s\n", me, st.msg);
    return (int)st.code;
}
