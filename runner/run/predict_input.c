/* predict_input.c -- the paths of the images that infer mode classifies, see predict_input.h.
 *
 * A path is used as it is written, so relative ones begin in the current folder. A list may have
 * NUL bytes in place of line breaks, as find -print0 writes them. An empty line is an image without
 * a name: rows of the output and lines of the list have the same numbers. */
#include "predict_input.h"
#include "rd/file.h"
#include "rd/input.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LIST_MAX = 1 << 30, LONGEST_LINE = 1 << 16 };

/* A folder that is walked. */
typedef struct walked {
    predict_input *in;
    const char *root; /* as the user wrote it, without slashes at its end */
} walked;

static rd_code input_add(predict_input *in, const char *path, size_t n, rd_status *st)
{
    rd_strbuf_add(&in->paths, path, n);
    rd_strbuf_add(&in->paths, "", 1);
    in->n++;
    if (in->paths.failed) return rd_fail(st, RD_EENV, "out of memory for the paths of images");
    return RD_OK;
}

static rd_code input_image(void *ctx, const char *path, rd_status *st)
{
    const walked *w = ctx;
    rd_strbuf whole = {0};
    rd_strbuf_printf(&whole, "%s%s%s", w->root, strcmp(w->root, "/") == 0 ? "" : "/", path);
    if (whole.failed)
        rd_fail(st, RD_EENV, "out of memory for the paths of images");
    else
        (void)input_add(w->in, whole.s, whole.n, st);
    rd_strbuf_release(&whole);
    return st->code;
}

static void input_skip(void *ctx, rd_skip why, const char *path)
{
    predict_input *in = ((const walked *)ctx)->in;
    if (in->skipped[why]++ == 0) (void)snprintf(in->first[why], sizeof in->first[why], "%s", path);
}

static rd_code open_folder(predict_input *in, const char *name, rd_status *st)
{
    char *root = strdup(name);
    walked w = {in, root};
    const rd_image_walk walk = {&w, input_image, input_skip};
    if (!root) return rd_fail(st, RD_EENV, "out of memory for a path");
    for (size_t n = strlen(root); n > 1 && root[n - 1] == '/'; n--) root[n - 1] = '\0';
    if (rd_image_walk_below(root, "", &walk, st) == RD_OK && in->n == 0)
        rd_fail(st, RD_EDATA,
                "there is no image below '%s': no .jpg, .jpeg or .png%s%s; check --input", name,
                in->skipped[RD_SKIP_NAME] > 0 ? ", but files such as " : "",
                in->first[RD_SKIP_NAME]);
    free(root);
    return st->code;
}

static bool begins(const char *p, size_t n, const char *magic, size_t m)
{
    return n >= m && memcmp(p, magic, m) == 0;
}

static bool input_is_image(const char *p, size_t n)
{
    return begins(p, n, "\xFF\xD8\xFF", 3) || begins(p, n, "\x89PNG\r\n", 6);
}

/* Returns what the bytes are if they hold a whole data set. */
static const char *data_set_of(const char *p, size_t n)
{
    if (begins(p, n, "PK\3\4", 4)) return "a zip or .npz archive";
    if (n > 262 && memcmp(p + 257, "ustar", 5) == 0) return "a tar archive";
    if (n > 4 && p[0] == 0 && p[1] == 0 && p[2] == 8 && (p[3] == 1 || p[3] == 3)) return "IDX data";
    return NULL;
}

/* Can the bytes be a list of paths? */
static bool input_is_list(const char *p, size_t n)
{
    for (size_t i = 0; i < n && i < 4096; i++)
        if ((unsigned char)p[i] < 0x20 && !strchr("\t\n\r", p[i])) return false; /* NUL passes */
    return true;
}

/* Adds the paths of a list. The line breaks may be CR LF. */
static rd_code input_lines(predict_input *in, const char *p, size_t n, rd_status *st)
{
    const char end = memchr(p, '\0', n) ? '\0' : '\n', *last = p + n;
    while (p < last) {
        const char *stop = memchr(p, end, (size_t)(last - p));
        if (!stop) stop = last;
        size_t bytes = (size_t)(stop - p);
        if (end == '\n' && bytes > 0 && p[bytes - 1] == '\r') bytes--;
        RD_TRY(input_add(in, p, bytes, st));
        p = stop + 1;
    }
done:
    return st->code;
}

/* Reads a file that is no image by its name: a list, or an image after all. */
static rd_code open_file(predict_input *in, const char *name, rd_status *st)
{
    char *p = NULL;
    size_t n = 0;
    const bool stdin_ = strcmp(name, "-") == 0;
    RD_TRY(rd_file_read_limited(name, RD_EDATA, LIST_MAX, "a list of images", &p, &n, st));
    const char *set = data_set_of(p, n);
    if (set && !stdin_)
        rd_fail(st, RD_EDATA,
                "'%s' is %s, and --input takes an image, a folder or a list of paths; give it as "
                "test_data: --set test_data=PATH, with its absolute path",
                name, set);
    else if (stdin_ && (input_is_image(p, n) || !input_is_list(p, n)))
        rd_fail(st, RD_EDATA,
                "standard input is no list of paths; give an image by its name: --input=FILE");
    else if (input_is_image(p, n) || !input_is_list(p, n))
        (void)input_add(in, name, strlen(name), st);
    else
        (void)input_lines(in, begins(p, n, "\xEF\xBB\xBF", 3) ? p + 3 : p,
                          begins(p, n, "\xEF\xBB\xBF", 3) ? n - 3 : n, st);
done:
    free(p);
    return st->code;
}

rd_code predict_input_open(predict_input *in, const char *name, rd_status *st)
{
    struct stat sb;
    char here[1024];
    *in = (predict_input){.pipe = {.lines = PREDICT_CHUNK,
                                   .end = '\n',
                                   .may_nul = true,
                                   .most = LONGEST_LINE,
                                   .pause_ms = 100}};
    if (strcmp(name, "-") == 0) {
        if (fstat(STDIN_FILENO, &sb) != 0)
            return rd_fail(st, RD_EDATA, "cannot read standard input: %s", strerror(errno));
        in->piped = S_ISFIFO(sb.st_mode) || S_ISSOCK(sb.st_mode) || S_ISCHR(sb.st_mode);
        return in->piped ? RD_OK : open_file(in, name, st);
    }
    if (rd_path_stat(name, &sb, RD_MAYBE) != 0) {
        if (errno != ENOENT) return rd_input_fails(st, RD_EDATA, "open", name, errno, NULL);
        return rd_fail(st, RD_EDATA,
                       "there is no '%s'; --input names an image, a folder, or a list with one "
                       "path a line; relative paths begin in %s",
                       name, getcwd(here, sizeof here) ? here : "the current folder");
    }
    if (S_ISDIR(sb.st_mode)) return open_folder(in, name, st);
    if (S_ISREG(sb.st_mode) && rd_image_named(name)) return input_add(in, name, strlen(name), st);
    return open_file(in, name, st);
}

static rd_code next_of_pipe(predict_input *in, size_t *bytes, bool *ended, rd_status *st)
{
    const bool first = in->n == 0;
    size_t n = 0;
    rd_strbuf_reset(&in->paths);
    RD_TRY(infer_pipe_wait(&in->pipe, &n, st));
    *ended = in->pipe.ended && n == in->pipe.n;
    if (first && n > 0 && input_is_image(in->pipe.buf, n))
        return rd_fail(st, RD_EDATA,
                       "standard input is an image, but --input=- reads paths, one a line; give "
                       "the image by its name: --input=FILE");
    RD_TRY(input_lines(in, in->pipe.buf ? in->pipe.buf : "", n, st));
    infer_pipe_drop(&in->pipe, n);
    *bytes = in->paths.n;
done:
    return st->code;
}

rd_code predict_input_next(predict_input *in, const char **paths, size_t *bytes, bool *ended,
                           rd_status *st)
{
    size_t end = in->at;
    *bytes = 0;
    *ended = false;
    if (in->piped) {
        RD_TRY(next_of_pipe(in, bytes, ended, st));
        *paths = rd_strbuf_str(&in->paths);
        goto done;
    }
    for (int64_t k = 0; k < PREDICT_CHUNK && end < in->paths.n; k++)
        end += strlen(in->paths.s + end) + 1;
    *paths = rd_strbuf_str(&in->paths) + in->at;
    *bytes = end - in->at;
    *ended = end == in->paths.n;
    in->at = end;
done:
    return st->code;
}

void predict_input_release(predict_input *in)
{
    rd_strbuf_release(&in->paths);
    free(in->pipe.buf);
}
