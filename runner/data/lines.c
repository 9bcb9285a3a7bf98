/* lines.c -- reads text line by line: a file, a compressed file (recognised by content, not by
 * name), a member of an archive, or standard input.
 *
 * All lines come from one buffer, so a corpus of any size takes a megabyte here. LF ends a line.
 * With cr_ends, CR LF and a lone CR do, too. No other character does: line k of a file is what wc,
 * sed and head call line k. A byte order mark at the start is skipped. */
#include "data_impl.h"
#include "rd/file.h"
#include "rd/gunzip.h"
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <locale.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK_BYTES = 1 << 20, SLACK_BYTES = 64 };

struct rd_lines {
    char *name;               /* for messages */
    const char *const *files; /* [n_files] borrowed; NULL: one text */
    int n_files, file;        /* file: index of the one that is read */
    rd_lines_opts o;
    rd_input *in;            /* owned; NULL: none */
    struct archive *archive; /* NULL: none */
    rd_gunzip *gunzip; /* decompresses for the archive, or for us; NULL: from the file itself */
    const char *mem;   /* the text, borrowed, if there is neither fd nor archive */
    size_t mem_left;
    char *buf; /* holds buf[begin .. end - 1], not yet returned */
    size_t cap, begin, end;
    char *fix; /* the last line, with U+FFFD in it */
    size_t fix_cap;
    bool eof, bom;
    bool skip_lf;  /* a CR ended the last line: an LF that follows belongs to it */
    int64_t line;  /* number of the last line returned */
    int64_t at;    /* offset of the last line returned, in its file */
    int64_t taken; /* number of bytes of this file in the lines returned */
    int64_t bytes; /* number of bytes read, after decompression */
    /* for the share that is done: */
    int64_t bytes_before; /* `bytes` when the file was opened */
    int64_t disk_before;  /* size of the files before it, as stored */
    int64_t member; /* bytes of the member, after decompression; 0: not a member, or unknown */
    int64_t replaced, first_replaced;
    int file_replaced; /* index of the file of first_replaced */
};

static rd_code lines_no_memory(const char *name, rd_status *st)
{
    return rd_fail(st, RD_EENV, "out of memory while reading '%s'", name);
}

/* Returns whether the path is a file. Fails if the machine cannot tell. */
static bool is_file(const char *path, rd_status *st)
{
    struct stat s;
    if (rd_path_stat(path, &s, RD_MAYBE) == 0) return !S_ISDIR(s.st_mode);
    if (rd_fault_code(errno, RD_OK) != RD_OK)
        rd_input_fails(st, RD_EDATA, "open", path, errno, NULL);
    return false;
}

static rd_code archive_fails(const rd_lines *l, rd_status *st)
{
    if (rd_gunzip_failed(l->gunzip, st)) return st->code;
    rd_archive_fault(l->archive, l->in, l->name, st);
    const char *why = archive_error_string(l->archive);
    if (why && strcmp(why, "Unrecognized archive format") == 0)
        return rd_fail(st, RD_EDATA,
                       "cannot read '%s': it is neither a tar nor a zip archive; these two can be "
                       "read, plain or compressed with gzip, bzip2, xz or zstd",
                       l->name);
    return rd_fail(st, RD_EDATA, "cannot read '%s': %s; the file may be cut short or damaged",
                   l->name, why ? why : "unknown error");
}

enum { NAMES_BYTES = 256 };

/* Appends a name to a list; ", ..." stands for those that do not fit. Bytes that are not UTF-8
 * become U+FFFD. */
static void list_name(char names[NAMES_BYTES], const char *name, int64_t *replaced)
{
    char shown[3 * NAMES_BYTES];
    const size_t have = strlen(names), n = strlen(name);
    const size_t more = n < NAMES_BYTES ? rd_utf8_replace(name, n, shown, replaced) : n;
    if (have + more + 8 < NAMES_BYTES) {
        if (have) strcat(names, ", ");
        strncat(names, shown, more);
    } else if (have && names[have - 1] != '.') {
        strcat(names, ", ...");
    }
}

static rd_code seek_member(rd_lines *l, const char *path, const char *member, rd_status *st)
{
    struct archive_entry *e;
    char names[NAMES_BYTES] = "";
    int64_t replaced = 0;
    int rc;
    while ((rc = archive_read_next_header(l->archive, &e)) == ARCHIVE_OK || rc == ARCHIVE_WARN) {
        const char *name = archive_entry_pathname(e);
        if (archive_entry_filetype(e) != AE_IFREG) continue;
        if (!name) name = "\xFF"; /* libarchive cannot read the name */
        if (strncmp(name, "./", 2) == 0) name += 2;
        if (strcmp(name, member) == 0) {
            l->member = archive_entry_size(e);
            return RD_OK;
        }
        list_name(names, name, &replaced);
    }
    if (rc != ARCHIVE_EOF) return archive_fails(l, st);
    return rd_fail(st, RD_EDATA, "'%s' has no member '%s'; it has: %s%s", path, member,
                   names[0] ? names : "nothing",
                   replaced
                       ? "; a name that is not UTF-8 cannot be given here; create the archive again"
                       : "");
}

/* Moves to the member, or fails with a list of the members. libarchive returns names that are
 * marked as UTF-8 in a UTF-8 locale only; the program's locale is C. */
static rd_code find_member(rd_lines *l, const char *path, const char *member, rd_status *st)
{
    const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    const locale_t before = uselocale(utf8); /* if utf8 is 0, the locale stays */
    (void)seek_member(l, path, member, st);
    (void)uselocale(before);
    if (utf8) freelocale(utf8);
    return st->code;
}

/* Opens a compressed file; with `member` an archive, compressed or not. */
static rd_code open_archive(rd_lines *l, const char *path, const char *member, rd_status *st)
{
    unsigned char head[16];
    const char *kind;
    l->in = rd_input_open(path, RD_LISTED, &kind);
    if (!l->in) return rd_input_not_open(st, RD_EDATA, path, kind, errno, "check the path");
    const rd_gzip_input from = {.in = l->in, .size = rd_input_stat(l->in)->st_size};
    const ssize_t k = rd_input_pread(l->in, head, sizeof head, 0);
    if (k < 0) return rd_input_fails(st, RD_EDATA, "read", path, errno, NULL);
    if (k > 0 && rd_compressed(head, (size_t)k))
        RD_TRY(rd_gunzip_new(path, &from, RD_EDATA, &l->gunzip, st));
    if (!member) return st->code;
    l->archive = archive_read_new();
    if (!l->archive) return lines_no_memory(l->name, st);
    (void)archive_read_support_format_tar(l->archive);
    (void)archive_read_support_format_zip(l->archive);
    const int opened = l->gunzip ? rd_gunzip_open(l->gunzip, l->archive)
                                 : rd_input_archive(l->in, l->archive);
    if (opened != ARCHIVE_OK) return archive_fails(l, st);
    return find_member(l, path, member, st);
done:
    return st->code;
}

/* Reads up to n bytes to p; *got is 0 at the end only. */
static rd_code lines_read_some(rd_lines *l, char *p, size_t n, size_t *got, rd_status *st)
{
    *got = 0;
    if (l->archive) {
        const la_ssize_t k = archive_read_data(l->archive, p, n);
        if (k < 0) return archive_fails(l, st);
        if (l->gunzip && k == 0) RD_TRY(rd_gunzip_end(l->gunzip, st));
        *got = (size_t)k;
    } else if (l->gunzip) {
        const ssize_t k = rd_gunzip_copy(l->gunzip, p, n);
        if (k < 0 && rd_gunzip_failed(l->gunzip, st)) return st->code;
        *got = (size_t)k;
    } else if (l->in) {
        const ssize_t k = rd_input_read(l->in, p, n);
        if (k < 0) return rd_input_fails(st, RD_EDATA, "read", l->name, errno, NULL);
        *got = (size_t)k;
    } else {
        *got = n < l->mem_left ? n : l->mem_left;
        if (*got > 0) memcpy(p, l->mem, *got);
        l->mem += *got;
        l->mem_left -= *got;
    }
    l->bytes += (int64_t)*got;
done:
    return st->code;
}

/* Reads more bytes to buf[end] and behind; sets eof at the end. */
static rd_code lines_fill(rd_lines *l, rd_status *st)
{
    if (l->begin > 0) {
        memmove(l->buf, l->buf + l->begin, l->end - l->begin);
        l->end -= l->begin;
        l->begin = 0;
    }
    if (l->end == l->cap) {
        const bool small = !l->in && !l->archive && l->mem_left < CHUNK_BYTES;
        const size_t cap = l->cap ? l->cap * 2 : small ? l->mem_left / 4 + 16 : CHUNK_BYTES;
        char *p = realloc(l->buf, cap + SLACK_BYTES);
        if (!p) return lines_no_memory(l->name, st);
        l->buf = p;
        l->cap = cap;
    }
    size_t got = 0;
    RD_TRY(lines_read_some(l, l->buf + l->end, l->cap - l->end, &got, st));
    if (got == 0) l->eof = true;
    l->end += got;
    memset(l->buf + l->end, 0, SLACK_BYTES);
done:
    return st->code;
}

static rd_code lines_make(const char *name, rd_lines_opts o, rd_lines **out, rd_status *st)
{
    rd_lines *l = calloc(1, sizeof *l);
    *out = NULL;
    if (!l || !(l->name = strdup(name))) {
        free(l);
        return lines_no_memory(name, st);
    }
    l->o = o;
    l->line = o.lines_before;
    *out = l;
    return RD_OK;
}

static rd_code cannot_open(const char *path, int err, rd_status *st)
{
    if (strchr(path, '[') && strstr(path, "DATA_LOCATION]"))
        return rd_fail(st, RD_EDATA,
                       "'%s' names no folder yet; give the folder with --set data_location=FOLDER",
                       path);
    return rd_input_fails(st, RD_EDATA, "open", path, err, "check the path");
}

/* Opens path: sets fd or archive. */
static rd_code lines_open(rd_lines *l, const char *path, rd_status *st)
{
    const char *kind = NULL;
    if (strcmp(path, "-") == 0) {
        const int fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
        if (fd < 0) return rd_input_fails(st, RD_EDATA, "read", l->name, errno, NULL);
        if (!(l->in = rd_input_of(fd, l->name))) {
            close(fd);
            return lines_no_memory(l->name, st);
        }
        return RD_OK;
    }
    const bool plain = is_file(path, st);
    RD_TRY(st->code);
    if (!plain) /* "archive!member": the shortest prefix that is a file */
        for (const char *bang = strchr(path, '!'); bang; bang = strchr(bang + 1, '!')) {
            char prefix[4096];
            const size_t n = (size_t)(bang - path);
            if (n == 0 || n >= sizeof prefix) continue;
            memcpy(prefix, path, n);
            prefix[n] = '\0';
            const bool archive = is_file(prefix, st);
            RD_TRY(st->code);
            if (archive) return open_archive(l, prefix, bang + 1, st);
        }
    struct stat s = {0};
    if (l->o.any_kind && stat(path, &s) == 0 && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode)) {
        const int fd = open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC);
        if (fd < 0) return cannot_open(path, errno, st);
        if (!(l->in = rd_input_of(fd, l->name))) {
            close(fd);
            return lines_no_memory(l->name, st);
        }
    } else {
        l->in = rd_input_open_or_pipe(path, plain ? RD_LISTED : RD_MAYBE, &kind);
    }
    if (!l->in && kind) return rd_fail(st, RD_EDATA, "'%s' is %s, not a file", path, kind);
    if (!l->in) return cannot_open(path, errno, st);
    RD_TRY(lines_fill(l, st)); /* enough to recognise the compression */
    if (S_ISREG(rd_input_stat(l->in)->st_mode) &&
        rd_compressed((const unsigned char *)l->buf, l->end)) {
        rd_input_close(l->in);
        l->in = NULL;
        l->begin = l->end = 0;
        l->bytes = 0;
        l->eof = false;
        RD_TRY(open_archive(l, path, NULL, st));
    }
done:
    return st->code;
}

rd_code rd_lines_new(const char *path, rd_lines_opts o, rd_lines **out, rd_status *st)
{
    if (lines_make(strcmp(path, "-") == 0 ? "standard input" : path, o, out, st) == RD_OK)
        (void)lines_open(*out, path, st);
    if (st->code != RD_OK) {
        rd_lines_free(*out);
        *out = NULL;
    }
    return *out ? RD_OK : rd_failed_(st->code);
}

rd_code rd_lines_new_mem(const char *name, const char *p, size_t n, rd_lines_opts o, rd_lines **out,
                         rd_status *st)
{
    RD_TRY(lines_make(name, o, out, st));
    (*out)->mem = p;
    (*out)->mem_left = n;
done:
    return st->code;
}

/* Closes the file that is read. */
static void lines_close(rd_lines *l)
{
    if (l->archive) archive_read_free(l->archive);
    rd_gunzip_free(l->gunzip);
    rd_input_close(l->in);
    l->archive = NULL;
    l->gunzip = NULL;
    l->in = NULL;
}

rd_code rd_lines_new_list(const char *const *paths, int n, rd_lines_opts o, rd_lines **out,
                          rd_status *st)
{
    rd_assert(n > 0);
    RD_TRY(rd_lines_new(paths[0], o, out, st));
    (*out)->files = paths;
    (*out)->n_files = n;
done:
    return st->code;
}

/* Returns the size of the file that is read, as stored; 0: it has none. */
static int64_t lines_disk(const rd_lines *l)
{
    return l->in && S_ISREG(rd_input_stat(l->in)->st_mode) ? rd_input_stat(l->in)->st_size : 0;
}

/* Opens the next file. Its lines are counted from 1. */
static rd_code lines_next_file(rd_lines *l, rd_status *st)
{
    const int64_t bytes = l->bytes;
    char *name = strdup(l->files[++l->file]);
    if (!name) return lines_no_memory(l->name, st);
    free(l->name);
    l->name = name;
    l->disk_before += lines_disk(l);
    l->bytes_before = bytes;
    l->member = 0;
    lines_close(l);
    l->begin = l->end = 0;
    l->eof = l->skip_lf = false;
    l->line = l->taken = 0;
    l->bytes = 0; /* reading a head twice must not count twice */
    (void)lines_open(l, name, st);
    l->bytes += bytes;
    return st->code;
}

void rd_lines_free(rd_lines *l)
{
    if (!l) return;
    lines_close(l);
    free(l->name);
    free(l->buf);
    free(l->fix);
    free(l);
}

/* Checks that the line is UTF-8. If it is not: fails, or with the option `replace` repairs it in
 * l->fix. */
static rd_code clean_line(rd_lines *l, const char **line, size_t *n, rd_status *st)
{
    const size_t bad = rd_utf8_check(*line, *n);
    if (bad == *n) return RD_OK;
    const unsigned char *p = (const unsigned char *)*line;
    if (!l->o.replace) {
        const bool utf16 = l->line == 1 && *n >= 2 &&
                           ((p[0] == 0xFF && p[1] == 0xFE) || (p[0] == 0xFE && p[1] == 0xFF));
        if (utf16)
            return rd_fail(st, RD_EDATA,
                           "%s:1:1: UTF-16 text, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8",
                           l->name);
        if (p[bad] == 0)
            return rd_fail(st, RD_EDATA,
                           "%s:%" PRId64
                           ":%zu: a NUL byte; is this a text file? \"invalid_utf8\": \"replace\" "
                           "puts U+FFFD in its place",
                           l->name, l->line, bad + 1);
        return rd_fail(st, RD_EDATA,
                       "%s:%" PRId64
                       ":%zu: invalid UTF-8 (byte 0x%02X); convert the file, or put U+FFFD in "
                       "its place with \"invalid_utf8\": \"replace\"",
                       l->name, l->line, bad + 1, p[bad]);
    }
    if (l->fix_cap < *n * 3) {
        char *q = realloc(l->fix, *n * 3 + SLACK_BYTES);
        if (!q) return lines_no_memory(l->name, st);
        l->fix = q;
        l->fix_cap = *n * 3;
    }
    if (l->replaced == 0) {
        l->first_replaced = l->line;
        l->file_replaced = l->file;
    }
    *n = rd_utf8_replace(*line, *n, l->fix, &l->replaced);
    memset(l->fix + *n, 0, SLACK_BYTES);
    *line = l->fix;
    return RD_OK;
}

static const char *line_end(const rd_lines *l, size_t from)
{
    if (from >= l->end) return NULL; /* also before the first read */
    const char *p = l->buf + from, *lf = memchr(p, '\n', l->end - from);
    if (!l->o.cr_ends) return lf;
    const char *cr = memchr(p, '\r', (size_t)((lf ? lf : l->buf + l->end) - p));
    return cr ? cr : lf;
}

/* Returns the next line of the file that is read. */
static rd_code lines_take(rd_lines *l, const char **line, size_t *n, rd_status *st)
{
    *line = NULL;
    *n = 0;
    bool ended;
    size_t seen = 0; /* bytes of this line that hold no line end */
    for (;;) {
        if (l->skip_lf && l->begin < l->end) {
            if (l->buf[l->begin] == '\n') l->begin++;
            l->skip_lf = false;
        }
        const char *e = line_end(l, l->begin + seen);
        if (!e) seen = l->end - l->begin;
        const size_t length = e ? (size_t)(e - (l->buf + l->begin)) : seen;
        if ((int64_t)length > l->o.max_line_bytes)
            return rd_fail(st, RD_EDATA,
                           "%s:%" PRId64 ": a line of more than %" PRId64
                           " bytes; split it, or raise max_line_bytes",
                           l->name, l->line + 1, l->o.max_line_bytes);
        if (!e && !l->eof) {
            RD_TRY(lines_fill(l, st));
            continue;
        }
        if (!e && length == 0) return RD_OK;
        *line = l->buf + l->begin;
        *n = length;
        ended = e != NULL;
        l->at = l->taken;
        l->taken += (int64_t)length + ended;
        l->begin += length + ended;
        l->skip_lf = e && *e == '\r';
        break;
    }
    l->line++;
    if (l->line == 1 && *n >= 3 && memcmp(*line, "\xEF\xBB\xBF", 3) == 0) {
        l->bom = true;
        *line += 3;
        *n -= 3;
        if (*n == 0 && !ended) { /* the file has only the mark */
            *line = NULL;
            return RD_OK;
        }
    }
    RD_TRY(clean_line(l, line, n, st));
    return RD_OK;
done:
    *line = NULL;
    return st->code;
}

rd_code rd_lines_next(rd_lines *l, const char **line, size_t *n, rd_status *st)
{
    RD_TRY(lines_take(l, line, n, st));
    while (!*line && l->file + 1 < l->n_files) {
        RD_TRY(lines_next_file(l, st));
        RD_TRY(lines_take(l, line, n, st));
    }
done:
    return st->code;
}

int64_t rd_lines_number(const rd_lines *l)
{
    return l->line;
}
int rd_lines_file(const rd_lines *l)
{
    return l->file;
}
int64_t rd_lines_offset(const rd_lines *l)
{
    return l->at;
}
int64_t rd_lines_bytes(const rd_lines *l)
{
    return l->bytes;
}
int64_t rd_lines_disk(const rd_lines *l)
{
    const int64_t size = lines_disk(l), read = l->bytes - l->bytes_before;
    int64_t here = read;
    if (l->archive)
        here = l->member > 0 ? (int64_t)((double)size * (double)read / (double)l->member) : 0;
    else if (l->gunzip)
        here = rd_gunzip_taken(l->gunzip);
    return l->disk_before + (l->in && here > size ? size : here);
}
bool rd_lines_bom(const rd_lines *l)
{
    return l->bom;
}
int64_t rd_lines_replaced(const rd_lines *l)
{
    return l->replaced;
}
int64_t rd_lines_first_replaced(const rd_lines *l)
{
    return l->first_replaced;
}

int rd_lines_file_replaced(const rd_lines *l)
{
    return l->file_replaced;
}

rd_code rd_lines_read_all(const char *path, char **out, size_t *n, rd_status *st)
{
    return rd_lines_read_most(path, SIZE_MAX, out, n, st);
}

rd_code rd_lines_read_most(const char *path, size_t most, char **out, size_t *n, rd_status *st)
{
    rd_lines *l = NULL;
    *out = NULL;
    *n = 0;
    RD_TRY(rd_lines_new(path, (rd_lines_opts){0}, &l, st));
    while (!l->eof && l->end <= most) RD_TRY(lines_fill(l, st));
    *out = l->buf;
    *n = l->end;
    l->buf = NULL;
done:
    rd_lines_free(l);
    return st->code;
}
