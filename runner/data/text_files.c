/* text_files.c -- the files of one side of a text: names, lists of names, and patterns. */
#include "data_impl.h"
#include "rd/checkpoint.h"
#include "rd/file.h"
#include "rd/gunzip.h"
#include "rd/strbuf.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MOST_FILES = 65536 };

static rd_code files_no_memory(rd_status *st)
{
    return rd_fail(st, RD_EENV, "out of memory for a list of files");
}

/* ctx of files_add: the list, and the "!member" that belongs to each name; "" for none. */
typedef struct files_to {
    rd_text_files *list;
    const char *member;
} files_to;

static rd_code files_add(void *ctx, const char *path, rd_status *st)
{
    const files_to *to = ctx;
    rd_text_files *f = to->list;
    if (f->n == MOST_FILES)
        return rd_fail(st, RD_EUSAGE, "more than %d text files; join some of them", MOST_FILES);
    if (f->n == f->cap) {
        const int cap = 2 * f->cap + 4;
        char **more = realloc(f->at, (size_t)cap * sizeof *more);
        if (!more) return files_no_memory(st);
        f->at = more;
        f->cap = cap;
    }
    if (asprintf(&f->at[f->n], "%s%s", path, to->member) < 0) return files_no_memory(st);
    f->n++;
    return RD_OK;
}

/* Is there something of this name? */
static bool files_there(const char *name)
{
    struct stat s;
    return rd_path_stat(name, &s, RD_MAYBE) == 0;
}

/* Is the part before a '!' there? It is then an archive, and the rest names a member. */
static bool files_archive_there(const char *name)
{
    char prefix[4096];
    for (const char *bang = strchr(name, '!'); bang; bang = strchr(bang + 1, '!')) {
        const int n = snprintf(prefix, sizeof prefix, "%.*s", (int)(bang - name), name);
        if (n > 0 && n < (int)sizeof prefix && files_there(prefix)) return true;
    }
    return false;
}

/* Has the name signs of a pattern: * ? {, or [ with a ] behind it? */
static bool files_pattern(const char *name)
{
    const char *set = strchr(name, '[');
    return strpbrk(name, "*?{") || (set && strchr(set, ']'));
}

static rd_code files_expand(rd_text_files *f, const char *name, rd_status *st)
{
    files_to to = {f, ""};
    const char *bang = strchr(name, '!');
    if (!files_pattern(name) || rd_config_placeholder(name) || files_there(name) ||
        files_archive_there(name))
        return files_add(&to, name, st);
    if (!bang) return rd_braces(name, files_add, &to, st);
    char *pattern = strndup(name, (size_t)(bang - name));
    if (!pattern) return files_no_memory(st);
    to.member = bang;
    (void)rd_braces(pattern, files_add, &to, st);
    free(pattern);
    return st->code;
}

rd_code rd_text_files_new(const rd_paths *names, rd_text_files *out, rd_status *st)
{
    *out = (rd_text_files){0};
    for (int i = 0; i < names->n; i++) RD_TRY(files_expand(out, names->at[i], st));
done:
    return st->code;
}

rd_code rd_text_files_exist(const rd_text_files *f, rd_status *st)
{
    for (int i = 0; i < f->n; i++) {
        rd_lines *l = NULL;
        if (files_there(f->at[i]) || files_archive_there(f->at[i])) continue;
        (void)rd_lines_new(f->at[i], (rd_lines_opts){0}, &l, st);
        rd_lines_free(l);
        RD_TRY(st->code);
    }
done:
    return st->code;
}

rd_code rd_text_no_logdir(const char *logdir, rd_status *st)
{
    bool there = true;
    if (logdir && rd_path_there(logdir, &there, st) == RD_OK && !there)
        rd_fail(st, RD_EUSAGE,
                "there is no log folder '%.600s'; name the --logdir of the training (--mode=runs "
                "lists log folders)",
                logdir);
    return st->code;
}

const char rd_text_record[] = "text.json", rd_tokenizer_record[] = "tokenizer.made.json";

rd_code rd_text_of_other(const char *logdir, const char *record, rd_status *st)
{
    char path[4300];
    bool there = false;
    (void)snprintf(path, sizeof path, "%.4200s/text/%s", logdir, record);
    RD_TRY(rd_path_there(path, &there, st));
    if (there && rd_ckpt_newest_step(logdir) >= 0)
        rd_fail(
            st, RD_EUSAGE,
            "the checkpoints in '%.600s' are those of a %s model, which needs what '%.600s/text' "
            "keeps; go on with its config, or start anew in another --logdir",
            logdir, record == rd_text_record ? "translation" : "language", logdir);
done:
    return st->code;
}

void rd_text_files_release(rd_text_files *f)
{
    for (int i = 0; i < f->n; i++) free(f->at[i]);
    free(f->at);
    *f = (rd_text_files){0};
}

const char *rd_text_files_name(const rd_text_files *f, char out[RD_FILES_NAME])
{
    const char *first = f->n > 0 ? f->at[0] : "";
    if (f->n <= 1)
        (void)snprintf(out, RD_FILES_NAME, "'%.300s'", first);
    else
        (void)snprintf(out, RD_FILES_NAME, "'%.300s' (and %d more file%s)", first, f->n - 1,
                       RD_S(f->n - 1));
    return out;
}

int64_t rd_text_files_disk(const rd_text_files *f)
{
    int64_t bytes = 0;
    for (int i = 0; i < f->n; i++) {
        char path[4096];
        struct stat at;
        int n = snprintf(path, sizeof path, "%s", f->at[i]);
        for (const char *bang = f->at[i]; n < (int)sizeof path && stat(path, &at) != 0;) {
            bang = strchr(bang, '!');
            if (!bang) return -1;
            n = snprintf(path, sizeof path, "%.*s", (int)(bang++ - f->at[i]), f->at[i]);
        }
        if (n >= (int)sizeof path || !S_ISREG(at.st_mode)) return -1;
        bytes += at.st_size;
    }
    return bytes;
}

int64_t rd_text_files_bytes(const rd_text_files *f)
{
    int64_t bytes = 0;
    for (int i = 0; i < f->n; i++) {
        const char *kind;
        unsigned char head[16];
        struct stat at;
        /* A pipe must not be opened twice; and what cannot be opened is reported later. */
        if (stat(f->at[i], &at) != 0 || !S_ISREG(at.st_mode)) return -1;
        rd_input *in = rd_input_open(f->at[i], RD_LISTED, &kind);
        const ssize_t n = in ? rd_input_pread(in, head, sizeof head, 0) : -1;
        rd_input_close(in);
        if (n < 0 || (n > 0 && rd_compressed(head, (size_t)n))) return -1;
        bytes += at.st_size;
    }
    return bytes;
}
