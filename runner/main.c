/* main.c -- the process: flags, launcher, config, the run, the exit code.
 *
 * Requests that need no ranks (help, version, wrong flags) are answered before MPI starts.
 * Afterwards there are two kinds of failures. One is known to all ranks: each rank exits by itself
 * with the same code, and rank 0 reports it once. The other is known to this rank only: it reports
 * the failure and ends the job. */
#include "rd/clock.h"
#include "rd/cpu_needs.h"
#include "rd/doctor.h"
#include "rd/environment.h"
#include "rd/file.h"
#include "rd/input.h"
#include "rd/launch.h"
#include "rd/modes.h"
#include "rd/printable.h"
#include "rd/records.h"
#include "rd/runs.h"
#include "rd/strbuf.h"
#include "rd/supervise.h"
#include "rd/sweep.h"
#include "run/world.h"

#include <inttypes.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Limits how long idle OpenMP threads spin. By default they spin for milliseconds. On cores that
 * others use as well (a laptop, a shared node), each loop then waits for a thread that spins: the
 * toy config took 3.7 s a step instead of 0.4 s. A short spin keeps most of the gain on idle cores.
 * The library reads its settings when it is loaded, so the process has to start again. */
static void calm_threads(char **argv)
{
    cpu_set_t mine;
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    if (sched_getaffinity(0, sizeof mine, &mine) != 0 || CPU_COUNT(&mine) < 2) return;
    /* By its own path: /proc/self/exe would be the process' name in ps and top. If this fails, the
     * process continues unchanged. */
    char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0 || !rd_environment_default(RD_VAR_SPIN)) return;
    path[n] = '\0';
    (void)execv(path, argv);
}

/* Is this the rank that prints for all? The launcher's environment tells it without MPI. */
static bool is_first_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID", NULL};
    for (int i = 0; names[i]; i++) {
        const char *v = getenv(names[i]);
        if (v) return atoi(v) == 0;
    }
    return !rd_comm_foreign_follower();
}

/* Has the reader of standard output closed it (`| head`)? That is no failure. */
static bool reader_left(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 && (p.revents & POLLERR) != 0;
}

static rd_code finish_stdout(rd_status *st)
{
    errno = 0; /* an earlier write may have failed; only ferror knows of it */
    if ((fflush(stdout) != 0 || ferror(stdout)) && !reader_left())
        rd_fail(st, RD_EENV, "cannot write to standard output: %s",
                errno ? strerror(errno) : "not all of it was taken; is its disk full?");
    return st->code;
}

/* ctx: a bool, whether standard output is a terminal. */
static void print_scalar(void *ctx, int64_t step, double wall, const char *tag, const char *kind,
                         double value)
{
    rd_strbuf field = {0};
    rd_printable_csv(&field, tag, !*(const bool *)ctx);
    (void)printf("%" PRId64 ",%.6f,%s,%s,%.9g\n", step, wall, rd_strbuf_str(&field), kind, value);
    rd_strbuf_release(&field);
}

/* The launcher ends the job at the first rank that fails. So the other ranks give the first one
 * time to report. */
static void wait_for_first_rank(void)
{
    const struct timespec pause = {.tv_nsec = 300000000};
    if (!is_first_rank()) (void)nanosleep(&pause, NULL);
}

/* Prints a config to begin with, or writes the file of --config_file. */
static rd_code new_config(const rd_cli *cli, rd_status *st)
{
    rd_strbuf text = {0};
    const char *path = cli->config_file;
    RD_TRY(rd_new_config(cli->new_config, &text, st));
    if (!path) {
        (void)fputs(rd_strbuf_str(&text), stdout);
    } else if (access(path, F_OK) == 0) {
        rd_fail(st, RD_EUSAGE, "'%.300s' is there already; give --config_file a new name", path);
    } else if (rd_file_write_atomic(path, text.s, text.n, st) == RD_OK) {
        rd_strbuf shown = {0};
        rd_printable_add(&shown, path, strlen(path));
        (void)printf("%s is written; change its paths, then: run_dist --config_file=%s --check\n",
                     rd_strbuf_str(&shown), rd_strbuf_str(&shown));
        rd_strbuf_release(&shown);
    }
done:
    rd_strbuf_release(&text);
    return st->code;
}

/* Answers requests that need neither ranks nor a config. *answered false: this is none of them. */
static rd_code main_answer(const rd_cli *cli, bool *answered, rd_status *st)
{
    const rd_option_group *groups[RD_MAX_GROUPS];
    const int n = rd_option_groups(groups);
    *answered = rd_cli_answers(cli);
    if (!*answered || !is_first_rank()) return RD_OK;
    if (cli->help) {
        rd_option_owner owners[RD_MAX_OWNERS];
        const int n_owners = rd_option_owners(NULL, owners);
        (void)rd_help(cli->help_word, groups, n, owners, n_owners, stdout, st);
    } else if (cli->list) {
        rd_option_owner owners[RD_MAX_OWNERS];
        const int n_owners = rd_option_owners(NULL, owners);
        (void)rd_help_list(cli->list, owners, n_owners, stdout, st);
    } else if (cli->completion) {
        rd_option_owner owners[RD_MAX_OWNERS];
        const int n_owners = rd_option_owners(NULL, owners);
        (void)rd_help_completion(cli->completion, groups, n, owners, n_owners, stdout, st);
    } else if (cli->version) {
        rd_strbuf text = {0};
        rd_versions(&text);
        (void)fputs(rd_strbuf_str(&text), stdout);
        rd_strbuf_release(&text);
    } else if (cli->print_schema) {
        rd_option_owner owners[RD_MAX_OWNERS];
        json_t *schema = rd_options_schema(groups, n, owners, rd_option_owners(NULL, owners));
        char *text = schema ? json_dumps(schema, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
        if (!text)
            rd_fail(st, RD_EENV, "out of memory for the schema");
        else
            (void)printf("%s\n", text);
        free(text);
        json_decref(schema);
    } else if (cli->print_keys) {
        rd_options_markdown(groups, n, stdout);
    } else if (cli->print_topic) {
        (void)rd_help_markdown(cli->print_topic, stdout, st);
    } else if (cli->new_config) {
        (void)new_config(cli, st);
    } else if (cli->print_man) {
        rd_help_man(groups, n, stdout);
    } else {
        (void)puts("step,wall_time,tag,kind,value");
        bool terminal = isatty(STDOUT_FILENO) == 1;
        (void)rd_events_read(cli->events, print_scalar, &terminal, st);
    }
    return finish_stdout(st);
}

/* Reads the config of one run of a sweep, as that run does. */
static rd_code check_run(const rd_cli *cli, rd_config **out, rd_status *st)
{
    rd_comm *alone = NULL;
    rd_log *log = NULL;
    *out = NULL;
    /* As rank 1, which prints no notes: the run prints them. */
    if (rd_log_new(1, "", stderr, &log, st) == RD_OK &&
        rd_comm_start(NULL, NULL, &alone, st) == RD_OK)
        (void)rd_run_config_read(alone, log, cli, out, st);
    rd_comm_free(alone);
    rd_log_free(log);
    return st->code;
}

/* Mode doctor inside a job. A config is checked where one is given. */
static rd_code doctor(rd_comm *comm, rd_log *log, rd_guard *guard, const rd_cli *cli, rd_status *st)
{
    const rd_option_group *groups[RD_MAX_GROUPS];
    rd_config *config = NULL;
    rd_status unread = {.rank = -1};
    rd_strbuf versions = {0};
    const int n = rd_training_groups(groups);
    rd_versions(&versions);
    if (cli->config_file) (void)rd_run_config_read(comm, log, cli, &config, &unread);
    (void)rd_doctor_ranks(comm, guard, cli, config, &unread, groups, n, rd_strbuf_str(&versions),
                          st);
    if (rd_comm_world(comm)->rank == 0) (void)finish_stdout(st);
    rd_strbuf_release(&versions);
    rd_config_free(config);
    return st->code;
}

/* Everything between the start and the end of MPI. */
static rd_code with_ranks(rd_comm *comm, rd_guard **guard, const rd_cli *cli, int64_t started_ns,
                          rd_status *st)
{
    const rd_world *w = rd_comm_world(comm);
    /* In these modes standard output is for results. All else goes to standard error. */
    const bool results = cli->mode_bit == RD_MODE_INFER || cli->mode_bit == RD_MODE_BENCH ||
                         cli->mode_bit == RD_MODE_PLAN || cli->mode_bit == RD_MODE_DOCTOR ||
                         cli->print_config;
    rd_log *log = NULL;
    rd_config *config = NULL;
    bool agreed = true, reported = false;
    if (rd_log_new(w->rank, w->host, results ? stderr : stdout, &log, st) != RD_OK) agreed = false;
    RD_TRY(st->code);
    rd_retries_log(log);
    if (cli->mode_bit == RD_MODE_DOCTOR) {
        RD_TRY(doctor(comm, log, *guard, cli, st));
        goto done;
    }
    RD_TRY(rd_run_config_read(comm, log, cli, &config, st));
    if (cli->print_config) {
        if (w->rank == 0) rd_config_print(config, stdout);
        (void)finish_stdout(st);
    } else {
        (void)rd_run_mode(comm, log, cli, config, guard, started_ns, &agreed, st);
        reported = true;
    }
done:
    if (!reported) rd_run_report_failure(comm, log, cli, agreed, st);
    if (!agreed && st->code != RD_OK && w->size > 1) rd_comm_abort(comm, (int)st->code);
    rd_config_free(config);
    rd_retries_log(NULL);
    rd_log_free(log);
    return st->code;
}

/* Runs the doctor on the launching host, or as the agent on another host. Neither starts MPI.
 * *answered false: this process is a rank. */
static rd_code doctor_alone(const rd_cli *cli, bool *answered, rd_status *st)
{
    rd_strbuf versions = {0};
    if (cli->mode_bit != RD_MODE_DOCTOR ||
        !(*answered = rd_doctor_is_agent() || cli->hosts || cli->hostfile))
        return st->code;
    rd_versions(&versions);
    if (rd_doctor_is_agent())
        (void)rd_doctor_agent(rd_strbuf_str(&versions), st);
    else
        (void)rd_doctor_hosts(cli, st);
    rd_strbuf_release(&versions);
    return finish_stdout(st);
}

/* Starts MPI. First it looks for settings that make MPI hang, and it sets a time limit, which MPI
 * does not have. A training may wait for a large job to come up. The doctor waits less: users run
 * it because something does not start. */
static rd_code start_ranks(int *argc, char ***argv, const rd_cli *cli, rd_comm **comm,
                           rd_guard **guard, rd_status *st)
{
    const bool is_doctor = cli->mode_bit == RD_MODE_DOCTOR;
    rd_strbuf warnings = {0};
    (void)rd_doctor_before_mpi(&warnings, st);
    for (const char *s = rd_strbuf_str(&warnings); *s; s += strcspn(s, "\n"), s += *s == '\n') {
        rd_strbuf line = {0};
        rd_printable_add(&line, s, strcspn(s, "\n"));
        (void)fprintf(stderr, "warning: %s\n", rd_strbuf_str(&line));
        rd_strbuf_release(&line);
    }
    rd_strbuf_release(&warnings);
    if (st->code != RD_OK) {
        /* The failure may concern one host only, and rank 0 may be elsewhere, so the first rank of
         * each host reports it. Where all hosts fail, rank 0 is first and ends the job. */
        if (!is_first_rank() && rd_doctor_speaks_for_host()) {
            wait_for_first_rank();
            (void)fprintf(stderr, "run_dist: error: %s\n", st->msg);
        }
        return st->code;
    }
    *guard = rd_guard_new(is_doctor ? 10.0 : 30.0, is_doctor ? 15.0 : 300.0);
    (void)rd_comm_start(argc, argv, comm, st);
    if (!is_doctor) rd_guard_connected(*guard); /* until the watch begins */
    return st->code;
}

/* Returns whether the CPU has all instructions of this build. Otherwise it prints what to do. */
static bool main_fits_cpu(void)
{
    const char *lacks = rd_cpu_lacks(NULL);
    if (lacks)
        (void)fprintf(
            stderr,
            "run_dist: error: this program was built for CPUs with %s, which this CPU does "
            "not have; build it on this machine, or for all of them: make VARIANT=v3 "
            "ARCH=-march=x86-64-v3 (x86-64-v2 for CPUs before 2013)\n",
            lacks);
    return !lacks;
}

int main(int argc, char **argv)
{
    if (!main_fits_cpu()) return RD_EENV;
    rd_open_standard(); /* before any other file is opened */
    calm_threads(argv);
    const int64_t started_ns = rd_now_ns();
    rd_status st = {.rank = -1};
    rd_cli cli = {0};
    rd_comm *comm = NULL;
    rd_guard *guard = NULL;
    const rd_option_group *groups[RD_MAX_GROUPS];
    bool answered = false;
    (void)signal(SIGPIPE, SIG_IGN); /* a closed pipe is a failed write, with a message */
    (void)signal(SIGXFSZ, SIG_IGN); /* so is a file beyond ulimit -f */
    const int n_groups = rd_option_groups(groups);
    if (rd_cli_parse_with_keys(argc, argv, groups, n_groups, &cli, &st) == RD_OK &&
        main_answer(&cli, &answered, &st) == RD_OK && !answered)
        (void)rd_cli_check(&cli, &st);
    if (st.code == RD_OK && !answered) (void)doctor_alone(&cli, &answered, &st);
    if (st.code == RD_OK && !answered && rd_runs_is_mode(&cli)) {
        answered = true;
        if (is_first_rank() && rd_runs(&cli, stdout, &st) == RD_OK) (void)finish_stdout(&st);
    }
    if (st.code != RD_OK || answered) {
        if (st.code != RD_OK && is_first_rank())
            (void)fprintf(stderr, "run_dist: error: %s\n", st.msg);
        if (st.code != RD_OK) wait_for_first_rank();
        rd_cli_release(&cli);
        return (int)st.code;
    }
    if (rd_sweep_asked(&cli)) {
        const rd_sweep_config config = {check_run, rd_run_config_replaced};
        const int code = is_first_rank() ? rd_sweep(&cli, &config) : 0;
        rd_cli_release(&cli);
        return code;
    }
    if (cli.restarts_given || rd_cli_launches(&cli)) {
        if (!cli.restarts_given && cli.config_file && !cli.hosts && !cli.hostfile)
            (void)rd_config_is_there(&cli, &st);
        if (st.code != RD_OK) (void)fprintf(stderr, "run_dist: error: %s\n", st.msg);
        const int code = st.code != RD_OK     ? (int)st.code
                         : cli.restarts_given ? rd_supervise(&cli)
                                              : rd_launch(&cli);
        rd_cli_release(&cli);
        return code;
    }
    if (start_ranks(&argc, &argv, &cli, &comm, &guard, &st) == RD_OK)
        (void)with_ranks(comm, &guard, &cli, started_ns, &st);
    else if (is_first_rank())
        (void)fprintf(stderr, "run_dist: error: %s\n", st.msg);
    else
        wait_for_first_rank();
    rd_guard_free(guard);
    rd_comm_end(comm, (int)st.code);
    rd_cli_release(&cli);
    return (int)st.code;
}
