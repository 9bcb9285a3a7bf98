/* launch.c -- starts the ranks, waits for them, and says in one line why they ended.
 *
 * mpirun runs in its own process group, so Ctrl-C reaches this process alone. The first request
 * becomes USR2 to mpirun, which passes it on to all ranks: they save and end with 75. The second
 * one is TERM, the third KILL, as with --restarts (supervise/supervise_child.c). If this process
 * dies, mpirun gets USR2, too. */
#include "rd/launch.h"
#include "launch_impl.h"
#include "../supervise/supervise_impl.h"
#include "rd/environment.h"
#include "rd/file.h"
#include "rd/printable.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct launch_job {
    const rd_cli *cli;
    doc_hosts hosts;
    start_facts facts;
    doc_found found;
    start_words line;
    char program[4096];
    child child;
    start_output output;
    int relay; /* the end of a pipe into which the terminal's input goes; -1: none */
} launch_job;

/* ---- who starts the ranks ---- */

static bool is_set(const char *name)
{
    const char *v = getenv(name);
    return v && *v;
}

/* Has another launcher started this process already? */
static bool inside_launcher(void)
{
    return is_set("OMPI_COMM_WORLD_RANK") || is_set("PMIX_RANK") || is_set("SLURM_STEP_NUM_TASKS");
}

/* Do variables of a batch system name the hosts? mpirun reads them itself. */
static bool inside_batch(void)
{
    return is_set("SLURM_JOB_ID") || is_set("PBS_NODEFILE") || is_set("LSB_HOSTS") ||
           is_set("PE_HOSTFILE");
}

/* Runs a command for at most 8 s. Returns whether its output has the word. */
static bool prints_word(const char *command, const char *word)
{
    char line[512];
    bool found = false;
    FILE *p = popen(command, "re");
    while (p && fgets(line, sizeof line, p))
        for (char *rest = NULL, *w = strtok_r(line, " \t\n,", &rest); w;
             w = strtok_r(NULL, " \t\n,", &rest))
            found |= strcmp(w, word) == 0;
    if (p) (void)pclose(p);
    return found;
}

/* Inside a Slurm job srun starts the ranks, where it can: its plugin for PMIx connects them. */
static start_way launch_way(const rd_cli *cli, const char **mpi)
{
    *mpi = getenv("RUN_DIST_MPI");
    if (!is_set("SLURM_JOB_ID") || cli->hosts || cli->hostfile || cli->mpirun_args)
        return START_MPIRUN;
    if (*mpi && **mpi) return START_SRUN;
    *mpi = "pmix";
    return prints_word("timeout 8 srun --mpi=list 2>&1", "pmix") ? START_SRUN : START_MPIRUN;
}

/* The number of tasks of the Slurm job; 0: it does not say. */
static int64_t job_ranks(void)
{
    const char *v = getenv("SLURM_NTASKS");
    return v ? rd_host_count(v, strlen(v), RD_MOST_RANKS) : 0;
}

static void print_warnings(const rd_strbuf *warnings)
{
    for (const char *s = rd_strbuf_str(warnings); *s; s += strcspn(s, "\n"), s += *s == '\n') {
        rd_strbuf line = {0};
        rd_printable_add(&line, s, strcspn(s, "\n"));
        (void)fprintf(stderr, "warning: %s\n", rd_strbuf_str(&line));
        rd_strbuf_release(&line);
    }
}

/* Examines the hosts. With --dry_run a failure is a warning: the line can still be shown. */
static rd_code launch_examine(launch_job *j, rd_status *st)
{
    rd_strbuf warnings = {0};
    rd_status found = {.rank = -1};
    char version[128];
    if (j->facts.way == START_MPIRUN) {
        if (doc_brief(j->cli, &j->hosts, &j->found, &warnings, &found) != RD_OK) {
            if (j->cli->dry_run)
                rd_strbuf_printf(&warnings, "%s\n", found.msg);
            else
                *st = found;
        }
        j->facts.major = doc_mpirun_version(version) ? start_major(version) : 0;
        if (j->facts.major == 0) j->facts.major = 4;
    }
    print_warnings(&warnings);
    rd_strbuf_release(&warnings);
    return st->code;
}

static rd_code launch_prepare(launch_job *j, rd_status *st)
{
    const rd_cli *cli = j->cli;
    start_facts *f = &j->facts;
    const ssize_t n = readlink("/proc/self/exe", j->program, sizeof j->program - 1);
    if (n <= 0) return rd_fail(st, RD_EENV, "the program's own path is unknown: /proc is missing");
    j->program[n] = '\0';
    if (inside_launcher())
        return rd_fail(
            st, RD_EUSAGE,
            "mpirun or srun has started this process as a rank, and --%s starts ranks, too; "
            "leave one of the two out",
            cli->np      ? "np"
            : cli->hosts ? "hosts"
                         : "hostfile");
    f->way = launch_way(cli, &f->mpi);
    f->hosts = &j->hosts;
    f->batch = inside_batch();
    f->root = geteuid() == 0;
    f->program = j->program;
    f->input = cli->mode_bit == RD_MODE_INFER;
    RD_TRY(start_hosts(cli, &j->hosts, &f->np, st));
    if (f->way == START_SRUN && job_ranks() > 0 && f->np > job_ranks() &&
        !is_set("SLURM_OVERCOMMIT"))
        rd_fail(st, RD_EUSAGE,
                "--np=%" PRId64 " asks for more ranks than the %" PRId64
                " tasks of this Slurm job; "
                "give a smaller --np, or a job with more tasks (sbatch --ntasks)",
                f->np, job_ranks());
    RD_TRY(st->code);
    RD_TRY(launch_examine(j, st));
    f->network = j->found.network;
    f->yield = j->found.yield;
    RD_TRY(start_line(f, cli, &j->line, st));
done:
    return st->code;
}

/* ---- the run ---- */

/* Copies the terminal's input to the launcher, which is in the background and may not read it. */
static void *relay_main(void *arg)
{
    launch_job *j = arg;
    char block[4096];
    ssize_t n;
    while ((n = read(STDIN_FILENO, block, sizeof block)) > 0 || (n < 0 && errno == EINTR))
        for (ssize_t at = 0; at < n;) {
            const ssize_t k = write(j->relay, block + at, (size_t)(n - at));
            if (k < 0 && errno != EINTR) return NULL;
            if (k > 0) at += k;
        }
    (void)close(j->relay);
    return NULL;
}

/* Gives the launcher an input: the file or pipe of this process, or what the relay reads from the
 * terminal. -1: none is needed. */
static int launch_input(launch_job *j, int ends[2])
{
    ends[0] = ends[1] = -1;
    if (!j->facts.input || fcntl(STDIN_FILENO, F_GETFD) < 0) return -1;
    if (!isatty(STDIN_FILENO)) return STDIN_FILENO;
    return rd_pipe(ends) == 0 ? ends[0] : -1;
}

/* Returns the width of the terminal that a stream is; 0: it is none. */
static int terminal_columns(int fd)
{
    enum { USUAL = 80, LEAST = 20 };
    struct winsize w = {0};
    if (!isatty(fd)) return 0;
    return ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col >= LEAST ? w.ws_col : USUAL;
}

/* Tells the ranks how wide the terminal is and whether it has colours. mpirun gives them another
 * terminal, or none on other hosts. */
static void launch_terminal(void)
{
    char text[16];
    const int columns = terminal_columns(STDOUT_FILENO);
    (void)unsetenv("RD_TERMINAL");
    if (columns == 0) return;
    (void)snprintf(text, sizeof text, "%d", columns);
    (void)setenv("COLUMNS", text, 1);
    (void)setenv("RD_TERMINAL", rd_log_has_colours() ? "colours" : "plain", 1);
}

/* Prints the error that ends the run. */
static void launch_error(const char *text)
{
    static const char own[] = "run_dist: error: ";
    const int columns = terminal_columns(STDERR_FILENO);
    rd_strbuf line = {0}, b = {0};
    rd_strbuf_printf(&line, "%s%s", strncmp(text, own, sizeof own - 1) ? own : "", text);
    if (columns > 0)
        rd_log_show(&b, rd_strbuf_str(&line), columns, rd_log_has_colours());
    else
        rd_strbuf_puts(&b, rd_strbuf_str(&line));
    (void)fprintf(stderr, "%s\n", line.failed || b.failed ? text : rd_strbuf_str(&b));
    rd_strbuf_release(&line);
    rd_strbuf_release(&b);
}

/* Prints why the run ended, and returns the exit code. */
static int launch_end(launch_job *j, int status)
{
    const start_output *o = &j->output;
    const int asked = j->child.stop_signal;
    char text[700];
    int code = status;
    /* Open MPI 5 ends with 0 when a host is lost. */
    if ((status == 0 && !start_lost(rd_strbuf_str(&o->kept))) || status == RD_ESTOP) return status;
    if (o->held) { /* a rank is gone */
        if (start_cause_signal(rd_strbuf_str(&o->kept), text))
            launch_error(text);
        else
            launch_error(rd_strbuf_str(&o->cause));
        return RD_EPEER;
    }
    if (o->cause.n > 0) {
        if (!o->cause_is_last) launch_error(rd_strbuf_str(&o->cause));
        return status == 205 || status == 255 ? RD_EPEER : status;
    }
    if (asked) {
        (void)fprintf(stderr, "run_dist: stopped by signal %d (%s); nothing was saved\n", asked,
                      sigdescr_np(asked));
        return 128 + asked;
    }
    start_cause(rd_strbuf_str(&o->kept), status, &code, text);
    launch_error(text);
    return code;
}

static int launch_run(launch_job *j, rd_status *st)
{
    int err[2] = {-1, -1}, in[2], status = 0;
    pthread_t relay;
    if (rd_pipe(err) != 0)
        return rd_fail(st, RD_EENV, "no pipe for the launcher's output: %s", strerror(errno));
    j->child = (child){.own_launcher = true, .streams = true, .err = err[1]};
    j->output = (start_output){.from = err[0], .to = STDERR_FILENO, .all = j->cli->verbose};
    j->output.columns = terminal_columns(STDERR_FILENO);
    j->output.colours = rd_log_has_colours();
    child_prepare();
    j->child.in = launch_input(j, in);
    (void)child_start(&j->child, j->line.at, st);
    (void)close(err[1]);
    if (in[0] >= 0) (void)close(in[0]);
    j->relay = in[1];
    if (st->code != RD_OK) goto done;
    if (j->relay >= 0 && pthread_create(&relay, NULL, relay_main, j) == 0)
        (void)pthread_detach(relay);
    if (!start_output_thread(&j->output))
        rd_fail(st, RD_EENV, "no thread for the launcher's output: %s", strerror(errno));
    status = child_wait(&j->child);
    if (status != 0) child_clear(&j->child);
    start_output_join(&j->output);
    if (st->code == RD_OK) status = launch_end(j, status);
done:
    (void)close(err[0]);
    return status;
}

int rd_launch(const rd_cli *cli)
{
    launch_job j = {.cli = cli, .relay = -1};
    rd_status st = {.rank = -1};
    rd_strbuf text = {0};
    int code = 0;
    if (!cli->dry_run) launch_terminal();
    RD_TRY(launch_prepare(&j, &st));
    if (cli->dry_run || cli->verbose) {
        doc_line_text(j.line.at, j.line.n, &text);
        (void)fprintf(cli->dry_run ? stdout : stderr, "%s\n", rd_strbuf_str(&text));
    }
    if (!cli->dry_run) code = launch_run(&j, &st);
done:
    if (st.code != RD_OK) {
        launch_error(st.msg);
        code = (int)st.code;
    }
    rd_strbuf_release(&text);
    start_output_release(&j.output);
    start_words_free(&j.line);
    doc_hosts_release(&j.hosts);
    return code;
}
