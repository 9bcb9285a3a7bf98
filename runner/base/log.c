/* log.c -- lines for a person, see log.h.
 *
 * A line is first built in memory and then written with one write(2). If a live line is shown, the
 * escape sequence that clears it comes first. A mutex separates the watch thread's warnings from
 * the main thread's lines.
 *
 * What may not be shown is escaped here, once for all messages: a name of the data cannot begin a
 * new line, and an escape sequence in it does not reach the terminal.
 *
 * Terminals and pipes are opened a second time, without blocking. An mpirun that was asked to stop
 * reads no more, and a rank that waited for it would never save. */
#include "rd/log.h"
#include "rd/clock.h"
#include "rd/file.h"
#include "rd/printable.h"
#include "rd/strbuf.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 10000, HURRY_MS = 100, SLICE_MS = 50 };

typedef struct console {
    int fd;
    int reopened; /* fd if console_open opened it; else -1 */
    bool stuck;   /* accepted nothing in time; lines are left out until it accepts bytes again */
    long lost;    /* lines left out since then */
} console;

static const char clear_line[] = "\r\033[K";

/* What a terminal does with a line. */
typedef enum look { LOOK_PLAIN, LOOK_GOOD, LOOK_WARNING, LOOK_ERROR, LOOK_CUT } look;

struct rd_log {
    pthread_mutex_t lock;
    FILE *out;
    console to_out, to_err;
    int rank;
    int tee_fd; /* run.log; -1: none */
    bool tty, live, tee_failed;
    bool out_watched, err_watched; /* a terminal shows the stream */
    bool colours;
    int terminal; /* owned; the terminal of mpirun; -1: not needed */
    char host[64];
};

/* A signal handler sets it and can reach no log object. */
static volatile sig_atomic_t hurried;

void rd_log_hurry(void)
{
    hurried = 1;
}

/* Writes all n bytes, however long that takes. Returns false after a failure: a reader that has
 * gone away is no reason to stop a run. */
static bool log_write(int fd, const char *s, size_t n)
{
    while (n > 0) {
        const ssize_t w = write(fd, s, n);
        if (w < 0 && errno == EINTR) continue;
        if (w <= 0) return false;
        s += w;
        n -= (size_t)w;
    }
    return true;
}

/* Sets up output to fd. Terminals and pipes are opened again, so that writes do not block. */
static void console_open(console *c, int fd)
{
    struct stat s;
    char path[40];
    *c = (console){.fd = fd, .reopened = -1};
    if (fstat(fd, &s) != 0 || !(S_ISFIFO(s.st_mode) || S_ISCHR(s.st_mode))) return;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    c->reopened = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (c->reopened >= 0) c->fd = c->reopened;
}

/* Waits at most ms milliseconds. Returns whether the console accepts bytes. */
static bool console_accepts(const console *c, int ms)
{
    struct pollfd p = {.fd = c->fd, .events = POLLOUT};
    return poll(&p, 1, ms) > 0;
}

/* Writes n bytes while the console accepts them in time. Returns false if some are missing; the
 * console is then stuck. */
static bool console_write(console *c, const char *s, size_t n)
{
    const int64_t begin = rd_now_ns();
    int64_t hurry = 0;
    while (n > 0) {
        const ssize_t w = write(c->fd, s, n);
        if (w > 0) {
            s += w;
            n -= (size_t)w;
            continue;
        }
        if (w < 0 && errno == EINTR) continue;
        if (w == 0 || errno != EAGAIN) return true; /* nobody will ever read the line */
        const int64_t now = rd_now_ns();
        if (hurried && hurry == 0) hurry = now;
        if (now - begin > PATIENCE_MS * INT64_C(1000000) ||
            (hurry && now - hurry > HURRY_MS * INT64_C(1000000))) {
            c->stuck = true;
            return false;
        }
        (void)console_accepts(c, SLICE_MS);
    }
    return true;
}

/* Writes a line. Writes nothing while the console is stuck, and afterwards reports how many lines
 * are missing. */
static void console_write_line(console *c, const char *s, size_t n)
{
    char gap[120];
    if (c->stuck && !console_accepts(c, 0)) {
        c->lost++;
        return;
    }
    if (c->stuck) {
        const int m = snprintf(
            gap, sizeof gap,
            "\n(%ld line%s not shown: nothing was read here for a while; run.log has them)\n",
            c->lost, c->lost == 1 ? " was" : "s were");
        c->stuck = false;
        if (console_write(c, gap, (size_t)m)) c->lost = 0;
    }
    if (c->stuck || !console_write(c, s, n)) c->lost++;
}

/* Does a terminal show this stream? mpirun gives its ranks their own terminal even when its output
 * goes to a file. What matters is mpirun's own stream. path: of that terminal; "": none. */
static bool log_is_watched(int fd, char path[64])
{
    char link[64];
    path[0] = '\0';
    /* The launcher of --np knows what it shows. Its own stream may be on another host. */
    if (fd == STDOUT_FILENO && getenv("RD_TERMINAL")) return true;
    if (!getenv("OMPI_COMM_WORLD_RANK") && !getenv("PMIX_RANK") && !getenv("PMI_RANK"))
        return isatty(fd) == 1;
    (void)snprintf(link, sizeof link, "/proc/%d/fd/%d", (int)getppid(), fd);
    const ssize_t n = readlink(link, path, 63);
    path[n > 0 ? n : 0] = '\0';
    if (strncmp(path, "/dev/pts/", 9) == 0 || strncmp(path, "/dev/tty", 8) == 0 ||
        strcmp(path, "/dev/console") == 0)
        return true;
    path[0] = '\0';
    return false;
}

bool rd_log_has_colours(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM"), *told = getenv("RD_TERMINAL");
    if (told) return strcmp(told, "colours") == 0;
    return !(no && no[0]) && term && term[0] && strcmp(term, "dumb") != 0;
}

rd_code rd_log_new(int rank, const char *host, FILE *out, rd_log **log, rd_status *st)
{
    rd_log *l = *log = calloc(1, sizeof *l);
    if (!l) return rd_fail(st, RD_EENV, "out of memory for the log");
    pthread_mutex_init(&l->lock, NULL);
    l->out = out;
    l->rank = rank;
    l->tee_fd = -1;
    l->tty = isatty(fileno(out)) == 1;
    char path[64];
    l->err_watched = log_is_watched(STDERR_FILENO, path);
    l->out_watched = log_is_watched(fileno(out), path);
    l->terminal = path[0] ? open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
    l->colours = rd_log_has_colours();
    console_open(&l->to_out, fileno(out));
    console_open(&l->to_err, STDERR_FILENO);
    snprintf(l->host, sizeof l->host, "%s", host ? host : "");
    return RD_OK;
}

static void log_end_live(rd_log *l)
{
    if (!l->live) return;
    l->live = false;
    if (!l->to_out.stuck) (void)console_write(&l->to_out, clear_line, sizeof clear_line - 1);
}

void rd_log_free(rd_log *l)
{
    if (!l) return;
    log_end_live(l);
    if (l->tee_fd >= 0) close(l->tee_fd);
    if (l->terminal >= 0) close(l->terminal);
    if (l->to_out.reopened >= 0) close(l->to_out.reopened);
    if (l->to_err.reopened >= 0) close(l->to_err.reopened);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

rd_code rd_log_tee(rd_log *l, const char *path, rd_status *st)
{
    const int fd = rd_open_record(path, O_WRONLY | O_CREAT | O_APPEND, "choose another --logdir",
                                  st);
    if (fd < 0) return st->code;
    pthread_mutex_lock(&l->lock);
    if (l->tee_fd >= 0) close(l->tee_fd);
    l->tee_fd = fd;
    pthread_mutex_unlock(&l->lock);
    return RD_OK;
}

bool rd_log_is_tty(const rd_log *l)
{
    return l->tty;
}

bool rd_log_watched(const rd_log *l)
{
    return l->out_watched;
}

int rd_log_columns(const rd_log *l)
{
    enum { LEAST = 20, MOST = 10000, USUAL = 80 };
    const char *given = getenv("COLUMNS");
    struct winsize w = {0};
    const int asked = given ? atoi(given) : 0;
    if (asked >= LEAST && asked <= MOST) return asked;
    const int fd = l->terminal >= 0 ? l->terminal : fileno(l->out);
    if (!l->out_watched || ioctl(fd, TIOCGWINSZ, &w) != 0 || w.ws_col == 0) return USUAL;
    return w.ws_col < LEAST ? LEAST : w.ws_col;
}

/* Returns how many bytes of s fit into `columns` UTF-8 characters, one column each. A line that
 * wraps could not be rewritten in place. */
static size_t text_fit(const char *s, size_t n, int columns)
{
    size_t i = 0;
    for (int c = 0; i < n; i++) {
        if (s[i] == '\n') return i;
        if (((unsigned char)s[i] & 0xC0) != 0x80 && c++ == columns) return i;
    }
    return i;
}

/* Appends a line as a terminal of this width shows it: cut at its end, or continued on the next
 * line at a blank. A word that is too long stays whole. */
static void log_add_folded(rd_strbuf *b, const char *text, int columns, look how)
{
    enum { INDENT = 4 };
    size_t left = strlen(text);
    for (int room = columns;; room = columns - INDENT) {
        size_t fit = text_fit(text, left, room), end;
        if (fit < left && text[fit] == '\n') { /* an error of several lines */
            rd_strbuf_add(b, text, fit + 1);
            text += fit + 1;
            left -= fit + 1;
            continue;
        }
        if (fit < left && how == LOOK_CUT) {
            rd_strbuf_add(b, text, text_fit(text, left, room > 3 ? room - 3 : room));
            rd_strbuf_puts(b, "...");
            return;
        }
        for (end = fit; fit < left && end > 0 && (text[end] != ' ' || text[end + 1] == '%');
             end--) {
        }
        while (end > 0 && text[end - 1] == ' ') end--;
        if (fit < left && end == 0) { /* no blank: the word goes on */
            const char *blank = memchr(text + fit, ' ', left - fit);
            end = blank ? (size_t)(blank - text) : left;
        }
        if (fit == left) end = left;
        rd_strbuf_add(b, text, end);
        while (end < left && text[end] == ' ') end++;
        text += end;
        left -= end;
        if (left == 0) return;
        rd_strbuf_printf(b, "\n%*s", INDENT, "");
    }
}

/* Appends a line with the colours of its look. */
static void log_add_coloured(rd_strbuf *b, const char *line, look how)
{
    const char *word = how == LOOK_WARNING ? "warning:"
                       : how == LOOK_ERROR ? "error:"
                                           : NULL,
               *at = word ? strstr(line, word) : NULL;
    if (how == LOOK_GOOD) {
        rd_strbuf_printf(b, "\033[32m%s\033[0m", line);
    } else if (at) {
        const int n = (int)(at - line) + (int)strlen(word);
        rd_strbuf_printf(b, "\033[%sm%.*s\033[0m%s", how == LOOK_ERROR ? "1;31" : "33", n, line,
                         line + n);
    } else {
        rd_strbuf_puts(b, line);
    }
}

void rd_log_show(rd_strbuf *out, const char *line, int columns, bool colours)
{
    rd_strbuf folded = {0};
    log_add_folded(&folded, line, columns - 1, LOOK_PLAIN);
    if (colours)
        log_add_coloured(out, rd_strbuf_str(&folded),
                         strstr(line, "error:") ? LOOK_ERROR : LOOK_WARNING);
    else
        rd_strbuf_puts(out, rd_strbuf_str(&folded));
    out->failed |= folded.failed;
    rd_strbuf_release(&folded);
}

/* Appends a text whose foreign parts are escaped, and escapes all else but newlines. */
static void log_add_lines(rd_strbuf *b, const char *text)
{
    for (const char *s = text; *s;) {
        const size_t n = strcspn(s, "\n");
        rd_printable_add(b, s, n);
        s += n;
        if (*s == '\n') rd_strbuf_add(b, s++, 1);
    }
}

/* Appends the time of a line of run.log: "2026-11-29 20:01:02 ", by the clock of the host. */
static void log_add_time(rd_strbuf *b)
{
    char text[32];
    struct tm at;
    const time_t now = time(NULL);
    if (localtime_r(&now, &at) && strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S ", &at) > 0)
        rd_strbuf_puts(b, text);
}

const char *rd_log_text(const char *line)
{
    static const char form[] = "0000-00-00 00:00:00 ";
    for (size_t i = 0; i < sizeof form - 1; i++) {
        const bool digit = line[i] >= '0' && line[i] <= '9';
        if (form[i] == '0' ? !digit : line[i] != form[i]) return line;
    }
    return line + sizeof form - 1;
}

/* Appends one line to run.log. */
static bool log_tee_line(const rd_log *l, const char *line, size_t n)
{
    rd_strbuf b = {0};
    log_add_time(&b);
    rd_strbuf_add(&b, line, n);
    const bool whole = b.failed || log_write(l->tee_fd, b.s, b.n);
    rd_strbuf_release(&b);
    return whole;
}

/* Writes one line to the console and to run.log. text: the line without its '\n'. to_err: to
 * stderr, else to the log's stream. l may be NULL: then to stderr alone. */
static void log_write_line(rd_log *l, bool to_err, look how, const char *text)
{
    rd_strbuf b = {0}, folded = {0};
    FILE *f = to_err || !l ? stderr : l->out;
    const bool watched = l && (to_err ? l->err_watched : l->out_watched);
    if (l) pthread_mutex_lock(&l->lock);
    if (l && l->live) {
        if (to_err && fileno(l->out) != STDERR_FILENO)
            log_end_live(l); /* the live line is on another stream */
        else
            rd_strbuf_add(&b, clear_line, sizeof clear_line - 1);
        l->live = false;
    }
    if (watched) log_add_folded(&folded, text, rd_log_columns(l) - 1, how);
    if (watched && l->colours)
        log_add_coloured(&b, rd_strbuf_str(&folded), how);
    else
        rd_strbuf_puts(&b, watched ? rd_strbuf_str(&folded) : text);
    rd_strbuf_add(&b, "\n", 1);
    b.failed = b.failed || folded.failed;
    rd_strbuf_release(&folded);
    fflush(f); /* text that others printed through stdio comes first */
    const char *line = b.failed ? "out of memory for a log line\n" : b.s;
    const size_t n = b.failed ? strlen(line) : b.n;
    if (l)
        console_write_line(f == l->out ? &l->to_out : &l->to_err, line, n);
    else
        log_write(fileno(f), line, n);
    rd_strbuf_reset(&b);
    rd_strbuf_puts(&b, text);
    rd_strbuf_add(&b, "\n", 1);
    if (!b.failed && l && l->tee_fd >= 0 && !log_tee_line(l, b.s, b.n) && !l->tee_failed) {
        static const char lost[] =
            "warning: run.log cannot be written any more (is the disk full?)\n";
        l->tee_failed = true;
        console_write_line(&l->to_err, lost, sizeof lost - 1);
    }
    if (l) pthread_mutex_unlock(&l->lock);
    rd_strbuf_release(&b);
}

/* Adds the rank and its host, unless it is rank 0. */
static void log_add_rank(rd_strbuf *b, const rd_log *l)
{
    if (!l || l->rank == 0) return;
    rd_strbuf_printf(b, "[rank %d, ", l->rank);
    rd_printable_add(b, l->host, strlen(l->host));
    rd_strbuf_puts(b, "] ");
}

static void log_report(rd_log *l, look how, const char *before, const char *fmt, va_list ap)
{
    char text[4096];
    rd_strbuf b = {0};
    log_add_rank(&b, l);
    rd_strbuf_puts(&b, before);
    va_list again;
    va_copy(again, ap);
    const int n = vsnprintf(text, sizeof text, fmt, ap);
    if (n >= 0 && (size_t)n < sizeof text)
        rd_printable_add(&b, text, (size_t)n);
    else if (n >= 0) {
        char *big = malloc((size_t)n + 1);
        if (big) vsnprintf(big, (size_t)n + 1, fmt, again);
        rd_printable_add(&b, big ? big : text, strlen(big ? big : text));
        free(big);
    }
    va_end(again);
    log_write_line(l, how == LOOK_WARNING, how, rd_strbuf_str(&b));
    rd_strbuf_release(&b);
}

void rd_info(rd_log *l, const char *fmt, ...)
{
    if (!l || l->rank != 0) return;
    va_list ap;
    va_start(ap, fmt);
    log_report(l, LOOK_PLAIN, "", fmt, ap);
    va_end(ap);
}

void rd_good(rd_log *l, const char *fmt, ...)
{
    if (!l || l->rank != 0) return;
    va_list ap;
    va_start(ap, fmt);
    log_report(l, LOOK_GOOD, "", fmt, ap);
    va_end(ap);
}

void rd_info_cut(rd_log *l, const char *fmt, ...)
{
    if (!l || l->rank != 0) return;
    va_list ap;
    va_start(ap, fmt);
    log_report(l, LOOK_CUT, "", fmt, ap);
    va_end(ap);
}

void rd_warn(rd_log *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    log_report(l, LOOK_WARNING, "warning: ", fmt, ap);
    va_end(ap);
}

static void log_add_error(rd_strbuf *b, const rd_log *l, const rd_status *st)
{
    const bool elsewhere = st->rank > 0 && (!l || st->rank != l->rank);
    log_add_rank(b, l);
    rd_strbuf_puts(b, "run_dist: error: ");
    if (elsewhere) rd_strbuf_printf(b, "rank %d: ", st->rank);
    log_add_lines(b, st->msg); /* rd_fail escapes newlines, so these are the program's own */
}

void rd_error(rd_log *l, const rd_status *st)
{
    rd_strbuf b = {0};
    log_add_error(&b, l, st);
    log_write_line(l, true, LOOK_ERROR, rd_strbuf_str(&b));
    rd_strbuf_release(&b);
}

void rd_error_append(const rd_log *l, const char *path, const rd_status *st)
{
    rd_strbuf b = {0};
    const char *kind;
    const int fd = rd_open_output(path, O_WRONLY | O_APPEND, &kind);
    if (fd < 0) return;
    log_add_time(&b);
    log_add_error(&b, l, st);
    rd_strbuf_add(&b, "\n", 1);
    if (!b.failed) (void)log_write(fd, b.s, b.n);
    (void)close(fd);
    rd_strbuf_release(&b);
}

void rd_live(rd_log *l, const char *fmt, ...)
{
    if (!l || !l->tty || l->rank != 0) return;
    pthread_mutex_lock(&l->lock);
    if (!fmt)
        log_end_live(l);
    else {
        char raw[1024], text[1024], line[1100];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(raw, sizeof raw, fmt, ap);
        va_end(ap);
        (void)rd_printable(raw, strlen(raw), false, text, sizeof text);
        const int columns = rd_log_columns(l) - 1;
        const int n = snprintf(line, sizeof line, "\r%.*s\033[K",
                               (int)text_fit(text, strlen(text), columns), text);
        fflush(l->out);
        if (!l->to_out.stuck) (void)console_write(&l->to_out, line, (size_t)n);
        l->live = true;
    }
    pthread_mutex_unlock(&l->lock);
}
