/* start_output.c -- what the launcher prints on standard error while the run lasts.
 *
 * The ranks' own lines are passed on as they come. Open MPI adds its own texts: blocks between
 * two rulers of dashes, and lines that begin with [host:pid]. srun reports each rank that ended.
 * These are kept, and the end of the run says in one line what they mean. The program's own error
 * comes first: with it, the texts of the launcher say nothing new. */
#include "launch_impl.h"
#include "rd/file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { RULER = 60, LONGEST_BLOCK = 65536 };
static const char own_error[] = "run_dist: error: ";

static void output_write(start_output *o, const char *s, size_t n)
{
    while (n > 0) {
        const ssize_t k = write(o->to, s, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return; /* nobody reads it; run.log has what counts */
        s += k;
        n -= (size_t)k;
    }
}

static bool output_ruler(const char *s, size_t n)
{
    size_t k = 0;
    while (k < n && s[k] == '-') k++;
    return k == n && n >= RULER;
}

/* "[node1:1234] ", "[node1][[1234,1],0]" */
static bool output_of_mpi(const char *s, size_t n)
{
    size_t k = 1;
    if (n < 4 || s[0] != '[') return false;
    while (k < n && (isalnum((unsigned char)s[k]) || strchr("._-", s[k]))) k++;
    if (k == 1 || k >= n) return false;
    if (s[k] == ']') return k + 1 < n && s[k + 1] == '[';
    const size_t colon = k;
    if (s[k++] != ':') return false;
    while (k < n && isdigit((unsigned char)s[k])) k++;
    return k > colon + 1 && k < n && s[k] == ']';
}

static bool output_begins(const char *s, size_t n, const char *with)
{
    return n >= strlen(with) && memcmp(s, with, strlen(with)) == 0;
}

/* What mpirun says about a signal, and srun about each rank that ended. */
static bool output_notice(const char *s, size_t n)
{
    return output_begins(s, n, "mpirun: Forwarding signal") ||
           output_begins(s, n, "mpirun: Error: ") || output_begins(s, n, "Type 'mpirun --help'") ||
           output_begins(s, n, "slurmstepd") || output_begins(s, n, "srun: Terminating") ||
           output_begins(s, n, "srun: Job step aborted") ||
           output_begins(s, n, "srun: launch/slurm:") ||
           output_begins(s, n, "srun: forcing job termination") ||
           (output_begins(s, n, "srun: error: ") &&
            (memmem(s, n, ": task", 6) != NULL || memmem(s, n, "Node failure", 12) != NULL));
}

/* Returns the error of a rank in a line, from "run_dist: error: " on; NULL: the line has none. A
 * rank other than 0 writes "[rank 3, node2] " in front. */
static const char *output_error(const char *s, size_t n)
{
    const char *end = output_begins(s, n, "[rank ") ? memchr(s, ']', n) : NULL;
    const char *from = end && end + 2 < s + n ? end + 2 : s;
    return output_begins(from, n - (size_t)(from - s), own_error) ? from : NULL;
}

/* Is the line a warning of a rank? */
static bool output_warning(const char *s, size_t n)
{
    const char *end = output_begins(s, n, "[rank ") ? memchr(s, ']', n) : NULL;
    const char *from = end && end + 2 < s + n ? end + 2 : s;
    return output_begins(from, n - (size_t)(from - s), "warning: ");
}

static void output_write_shown(start_output *o, const char *s, size_t n)
{
    rd_strbuf plain = {0}, b = {0};
    rd_strbuf_add(&plain, s, n);
    rd_log_show(&b, rd_strbuf_str(&plain), o->columns, o->colours);
    rd_strbuf_add(&b, "\n", 1);
    if (!plain.failed && !b.failed) output_write(o, b.s, b.n);
    rd_strbuf_release(&plain);
    rd_strbuf_release(&b);
}

static void output_pass(start_output *o, const char *s, size_t n)
{
    const size_t before = o->passed;
    const char *error = before == 0 ? output_error(s, n) : NULL;
    o->passed = 0;
    if (error) {
        const bool first = o->cause.n == 0;
        if (first) rd_strbuf_add(&o->cause, error, n - (size_t)(error - s));
        /* The other errors follow from the first one. Which rank went first, mpirun knows best, and
         * it says so in a moment. */
        o->held |= first && memmem(error, n - (size_t)(error - s), " is gone", 8) != NULL;
        if ((!first || o->held) && !o->all) return;
        o->cause_is_last = first || o->cause_is_last;
    } else if (n > 0) {
        o->cause_is_last = false;
    }
    if (o->columns > 0 && before == 0 && (error || output_warning(s, n))) {
        output_write_shown(o, s, n);
        return;
    }
    output_write(o, s + before, n - before);
    output_write(o, "\n", 1);
}

static void output_keep(start_output *o, const char *s, size_t n)
{
    if (o->kept.n < LONGEST_BLOCK) {
        rd_strbuf_add(&o->kept, s, n);
        rd_strbuf_puts(&o->kept, "\n");
    }
    if (o->all) output_pass(o, s, n);
}

/* Open MPI 5 writes a NUL behind its blocks. */
static bool output_nothing(const char *s, size_t n)
{
    size_t k = 0;
    while (k < n && s[k] == '\0') k++;
    return n > 0 && k == n;
}

/* One line without its end. */
static void output_line(start_output *o, const char *s, size_t n)
{
    if (o->passed == 0 && output_nothing(s, n)) return;
    if (o->passed > 0) {
        output_pass(o, s, n);
    } else if (output_ruler(s, n)) {
        o->in_block = !o->in_block;
        output_keep(o, s, n);
    } else if (o->in_block || output_of_mpi(s, n) || output_notice(s, n)) {
        output_keep(o, s, n);
    } else {
        output_pass(o, s, n);
    }
}

/* Passes on the begin of a line that cannot become a text of the launcher, such as a prompt. */
static void output_begin(start_output *o)
{
    const char *s = rd_strbuf_str(&o->line);
    if (o->in_block || o->line.n == 0 || !*s || strchr("[-Tmrs", *s)) return;
    output_write(o, s + o->passed, o->line.n - o->passed);
    o->passed = o->line.n;
    o->cause_is_last = false;
}

void start_output_take(start_output *o, const char *s, size_t n)
{
    while (n > 0) {
        const char *end = memchr(s, '\n', n);
        const size_t k = end ? (size_t)(end - s) : n;
        rd_strbuf_add(&o->line, s, k);
        if (end) {
            output_line(o, rd_strbuf_str(&o->line), o->line.n);
            rd_strbuf_reset(&o->line);
            o->passed = 0;
        }
        s += k + (end != NULL);
        n -= k + (end != NULL);
    }
    output_begin(o);
}

void start_output_end(start_output *o)
{
    if (o->line.n > 0 && o->passed == 0) output_line(o, rd_strbuf_str(&o->line), o->line.n);
    rd_strbuf_reset(&o->line);
    o->passed = 0;
}

/* ---- the thread ---- */

static bool output_read(start_output *o)
{
    char block[16384];
    for (;;) {
        const ssize_t k = read(o->from, block, sizeof block);
        if (k > 0)
            start_output_take(o, block, (size_t)k);
        else if (k == 0 || (errno != EINTR && errno != EAGAIN))
            return false;
        else if (errno == EAGAIN)
            return true;
    }
}

static void *output_main(void *arg)
{
    start_output *o = arg;
    struct pollfd p[2] = {{.fd = o->from, .events = POLLIN}, {.fd = o->stop[0], .events = POLLIN}};
    for (;;) {
        if (poll(p, 2, -1) < 0 && errno != EINTR) break;
        const bool more = output_read(o);
        if (!more || p[1].revents) break;
    }
    start_output_end(o);
    return NULL;
}

bool start_output_thread(start_output *o)
{
    if (rd_pipe(o->stop) != 0) return false;
    (void)fcntl(o->from, F_SETFL, O_NONBLOCK);
    o->running = pthread_create(&o->thread, NULL, output_main, o) == 0;
    return o->running;
}

void start_output_join(start_output *o)
{
    if (!o->running) return;
    (void)!write(o->stop[1], "", 1);
    (void)pthread_join(o->thread, NULL);
    (void)close(o->stop[0]);
    (void)close(o->stop[1]);
    o->running = false;
}

void start_output_release(start_output *o)
{
    rd_strbuf_release(&o->line);
    rd_strbuf_release(&o->kept);
    rd_strbuf_release(&o->cause);
}

/* ---- the cause ---- */

/* Copies the text behind `label` up to the end of its line, without blanks around it. */
static bool cause_field(const char *text, const char *label, char out[200])
{
    const char *s = strstr(text, label);
    if (!s) return false;
    s += strlen(label);
    s += strspn(s, " \t");
    size_t n = strcspn(s, "\n");
    while (n > 0 && s[n - 1] == ' ') n--;
    (void)snprintf(out, 200, "%.*s", (int)(n < 199 ? n : 199), s);
    return n > 0;
}

bool start_cause_signal(const char *text, char out[700])
{
    int rank = 0, number = 0;
    char host[128] = "";
    const char *s = strstr(text, "process rank "), *on = s ? strstr(s, "exited on signal ") : NULL;
    const char *node = s ? strstr(s, "on node ") : NULL;
    if (!on || !node || sscanf(s, "process rank %d", &rank) != 1 ||
        sscanf(on, "exited on signal %d", &number) != 1 || sscanf(node, "on node %127s", host) != 1)
        return false;
    (void)snprintf(out, 700, "rank %d on %s was ended by signal %d%s", rank, host, number,
                   number == 9    ? ", by hand or because memory ran out; the same command goes on "
                                    "from the newest checkpoint"
                   : number == 11 ? ", a crash; please report it with what was printed above"
                                  : "");
    return true;
}

/* The lost host is the node behind "daemon", where Open MPI names it, or behind "Remote daemon:" or
 * "on node". */
static void cause_lost(const char *text, char out[700])
{
    char host[200] = "";
    const char *s = strstr(text, "Remote daemon"), *on = s ? strstr(s, " on node ") : NULL;
    if (on) (void)snprintf(host, sizeof host, "%.*s", (int)strcspn(on + 9, " \n"), on + 9);
    (void)snprintf(
        out, 700,
        "%s%s was lost: its power, its network, or mpirun's daemon there; the same command "
        "goes on from the newest checkpoint",
        host[0] ? "host " : "a host", host);
}

bool start_lost(const char *kept)
{
    return strstr(kept, "has lost communication with a remote daemon") != NULL;
}

void start_cause(const char *kept, int status, int *code, char out[700])
{
    char program[200], node[200], said[600];
    *code = status;
    /* 205 of Open MPI 4.1, and 213 of 5.0 without a text: a daemon is gone. */
    if (start_lost(kept) || status == 205 || (status == 213 && !*kept)) {
        *code = RD_EPEER;
        cause_lost(kept, out);
    } else if (strstr(kept, "not enough slots")) {
        *code = RD_EUSAGE;
        (void)snprintf(out, 700,
                       "mpirun finds not enough slots for the ranks; give a smaller --np, or "
                       "more slots in --hosts");
    } else if (cause_field(kept, "Executable:", program) && cause_field(kept, "Node:", node)) {
        *code = RD_EENV;
        (void)snprintf(out, 700,
                       "%s: there is no program %s; install the same build on all hosts, at "
                       "the same path",
                       node, program);
    } else if (strstr(kept, "mpirun: Error: unknown option")) {
        *code = RD_EUSAGE;
        (void)cause_field(kept, "unknown option", program);
        (void)snprintf(out, 700, "mpirun has no option %s; correct --mpirun_args", program);
    } else if (!*kept && status > 128 && status < 128 + SIGRTMIN) {
        (void)snprintf(
            out, 700,
            "the launcher was ended by signal %d (%s); the same command goes on from the "
            "newest checkpoint",
            status - 128, sigdescr_np(status - 128));
    } else if (start_cause_signal(kept, out)) {
        *code = RD_EPEER;
    } else {
        if (status < 128) *code = RD_EENV;
        doc_complaint(kept, said);
        if (*said)
            (void)snprintf(out, 700,
                           "the ranks could not be started, or ended: %s; --verbose shows all "
                           "of it",
                           said);
        else
            (void)snprintf(out, 700,
                           "the launcher ended with status %d and no message; run_dist "
                           "--mode=doctor examines the hosts",
                           status);
    }
}
