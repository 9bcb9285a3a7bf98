/* supervise.c -- starts a launcher's command line again after a failure, as long as that gains
 * steps.
 *
 * The supervisor knows a run by its exit status and its log folder. The file `checkpoint` says how
 * far the run came, run.log whether it was asked to stop. That is enough to decide, and it stays
 * right when the run, the launcher or the supervisor is killed at any moment.
 *
 * - It starts the run again where another try may help: after a lost rank or host, a stall, a
 *   failure of the machine, a kill. It does not where each try would fail alike: after a wrong
 *   command line or config, ranks that disagree, bad data, a checkpoint that does not fit
 *   (supervise_meaning).
 * - It also starts again after a value that is not finite, and after a bug of run_dist. A flipped
 *   bit and a rare race do not come back. A failure that does come back gains no step.
 * - It gives up after three starts in a row without a newer checkpoint. A limit of one would be too
 *   strict: a run that saves every two hours would not survive two losses in that time.
 * - Between starts it waits 1 s (--restart_delay), then twice as long each time, at most 60 s.
 *   After a run of ten minutes it waits 1 s again. */
#include "rd/supervise.h"
#include "rd/checkpoint.h"
#include "rd/clock.h"
#include "rd/environment.h"
#include "rd/file.h"
#include "rd/home_path.h"
#include "rd/log.h"
#include "supervise_impl.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_WITHOUT_GAIN = 3 };
static const double longest_pause_s = 60.0, long_run_s = 600.0, probe_s = 10.0, lock_s = 30.0;

typedef struct supervisor {
    const rd_cli *cli;
    launch_line line;
    rd_log *log;
    child child;
    const char *logdir;
    char *home_logdir; /* owned; NULL: the line's logdir has no "~" */
    bool log_attached;
    double pause_s;
    int64_t n_restarts, step; /* of the newest checkpoint; -1: none */
    int without_gain;
} supervisor;

/* ---- meaning of an exit status ---- */

const char *supervise_meaning(int status, bool *again, char text[160])
{
    static const struct {
        int status;
        bool again;
        const char *text;
    } known[] = {
        {0, false, "done"},
        {1, true, "the launcher failed"},
        {RD_EUSAGE, false, "the command line, the config or the log folder is wrong"},
        {RD_EENV, true, "the machine: memory, disk, file server, device or library"},
        {RD_EDISAGREE, false, "ranks disagree"},
        {RD_EDATA, false, "the data is missing, damaged or malformed"},
        {RD_ECKPT, false, "a checkpoint cannot be read or does not fit the config"},
        {RD_ENUMERIC, true, "not finite, or ranks hold different weights"},
        {RD_ESTALL, true, "a rank made no progress"},
        {RD_EPEER, true, "a rank or a host was lost"},
        {RD_EBUG, true, "a bug of run_dist"},
        {RD_ESTOP, false, "stopped on request, checkpoint saved"},
        {110, false, "mpirun's own --timeout"},
        {124, false, "the time limit of `timeout`"},
        {126, false, "the command cannot be run"},
        {127, false, "a command was not found"},
        {205, true, "Open MPI lost a host"},
        {255, true, "ssh or the launcher failed"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].status == status) {
            *again = known[i].again;
            (void)snprintf(text, 160, "%s", known[i].text);
            return text;
        }
    *again = true;
    if (status > 128 && status <= 128 + SIGRTMAX && sigdescr_np(status - 128))
        (void)snprintf(text, 160, "a process was ended by signal %d, %s%s", status - 128,
                       sigdescr_np(status - 128),
                       status == 128 + SIGKILL
                           ? ": by hand, because memory ran out, or with a host that was lost"
                           : "");
    else
        (void)snprintf(text, 160, "the launcher's own");
    return text;
}

/* ---- the log folder ---- */

static bool folder_is_there(const char *path)
{
    struct stat s;
    return path && stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

/* Returns the log. Lines also go to the run's run.log. Its folder may appear only with the first
 * start. */
static rd_log *supervise_log(supervisor *s)
{
    char path[4200];
    rd_status own = {0};
    if (!s->log_attached && folder_is_there(s->logdir) &&
        snprintf(path, sizeof path, "%s/run.log", s->logdir) < (int)sizeof path)
        s->log_attached = access(path, W_OK) == 0 && rd_log_tee(s->log, path, &own) == RD_OK;
    return s->log;
}

/* Does the last line that rank 0 wrote since begin_s report a stop on request? An mpirun that gets
 * TERM itself exits with 1, whatever its ranks did. */
static bool stopped_on_request(const supervisor *s, double begin_s)
{
    static const char *const message[] = {"stopped on request at step ", "stopped by "};
    char path[4200], tail[2048];
    const char *kind;
    struct stat at;
    ssize_t n = 0;
    if (snprintf(path, sizeof path, "%s/run.log", s->logdir) >= (int)sizeof path) return false;
    const int fd = rd_open_input(path, NULL, &kind);
    if (fd < 0) return false;
    if (fstat(fd, &at) == 0 &&
        (double)at.st_mtim.tv_sec + 1e-9 * (double)at.st_mtim.tv_nsec >= begin_s)
        n = pread(fd, tail, sizeof tail - 1,
                  at.st_size > (off_t)sizeof tail - 1 ? at.st_size - (off_t)sizeof tail + 1 : 0);
    (void)close(fd);
    if (n <= 0) return false;
    while (n > 0 && tail[n - 1] == '\n') n--;
    tail[n] = '\0';
    const char *last = strrchr(tail, '\n');
    last = rd_log_text(last ? last + 1 : tail);
    return !strncmp(last, message[0], strlen(message[0])) ||
           !strncmp(last, message[1], strlen(message[1]));
}

/* Waits until no process locks the folder: a rank on another host may outlive its launcher for a
 * moment. */
static bool wait_for_folder(supervisor *s)
{
    const int64_t end = rd_now_ns() + (int64_t)(lock_s * 1e9);
    while (rd_logdir_in_use(s->logdir) && rd_now_ns() < end)
        if (!child_pause(&s->child, 0.2)) return false;
    return true;
}

/* ---- one start ---- */

/* Tries an ssh login on every other host. Returns false when asked to stop. */
static bool probe_hosts(supervisor *s, rd_status *st)
{
    launch_line *l = &s->line;
    rd_strbuf *text = calloc((size_t)l->n_hosts + 1, sizeof *text), dead = {0};
    char ***words = calloc((size_t)l->n_hosts + 1, sizeof *words);
    int *status = calloc((size_t)l->n_hosts + 1, sizeof *status), n = 0;
    bool go_on = true;
    if (!text || !words || !status)
        rd_fail(st, RD_EENV, "out of memory for a look at %d hosts", l->n_hosts);
    for (int i = 0; st->code == RD_OK && i < l->n_hosts; i++) {
        l->host[i].dead = false;
        if (l->host[i].local) continue;
        if (!launch_probe(l, l->host[i].name, &text[i], &words[i]))
            rd_fail(st, RD_EUSAGE,
                    "--drop_dead_hosts looks at hosts by ssh, but this line reaches them by '%s'; "
                    "leave it out",
                    l->agent);
        n++;
    }
    RD_TRY(st->code);
    if (n > 0) go_on = child_run_all(&s->child, words, l->n_hosts, probe_s, status);
    for (int i = 0; go_on && i < l->n_hosts; i++) {
        l->host[i].dead = !l->host[i].local &&
                          (status[i] == -1 || status[i] == 255); /* 255: ssh itself failed */
        if (l->host[i].dead) rd_strbuf_printf(&dead, "%s%s", dead.n ? ", " : "", l->host[i].name);
    }
    if (dead.n)
        rd_warn(supervise_log(s), "no ssh login on %s within %g s: this start is without it",
                rd_strbuf_str(&dead), probe_s);
    /* The new first host has the folder's checkpoints only where hosts share the disk. */
    if (go_on && l->n_hosts > 1 && l->host[0].dead && !folder_is_there(s->logdir))
        rd_fail(st, RD_EENV,
                "host %s, the first, is dead, and '%s' is not visible here: the next host would "
                "begin at step 0; bring %s back, or put --logdir on a disk that all hosts share",
                l->host[0].name, s->logdir, l->host[0].name);
done:
    for (int i = 0; i < l->n_hosts; i++) {
        if (text) rd_strbuf_release(&text[i]);
        if (words) free(words[i]);
    }
    rd_strbuf_release(&dead);
    free(text);
    free(words);
    free(status);
    return go_on;
}

/* Starts the run once. Returns its status as a shell gives it, RD_ESTOP also where a run that
 * stopped on request ended with another status. A failure in *st: nothing was started. */
static int one_start(supervisor *s, rd_status *st)
{
    launch_words w = {0};
    int status = RD_ESTOP;
    const double begin_s = rd_wall_s() - 0.05; /* file systems keep coarser times */
    if (s->cli->drop_dead_hosts && s->n_restarts > 0 && !probe_hosts(s, st)) goto done;
    RD_TRY(st->code);
    RD_TRY(launch_without_dead(&s->line, &w, st));
    if (w.n_dead == s->line.n_hosts && w.n_dead > 0) {
        rd_warn(supervise_log(s), "no host answers");
        status = 255;
        goto done;
    }
    if (w.n_dead > 0 && w.n_ranks > 0)
        rd_info(supervise_log(s), "run_dist: %" PRId64 " ranks on %d of %d hosts", w.n_ranks,
                s->line.n_hosts - w.n_dead, s->line.n_hosts);
    RD_TRY(child_start(&s->child, w.argv, st));
    status = child_wait(&s->child);
    if (status != 0) child_clear(&s->child);
    s->child.pid = 0;
    if (status != 0 && stopped_on_request(s, begin_s)) status = RD_ESTOP;
done:
    launch_words_release(&w);
    return status;
}

/* ---- again or not ---- */

static int supervise_give_up(supervisor *s, int status, const char *why)
{
    bool again;
    char text[160];
    rd_status st = {0};
    rd_fail(&st, RD_EENV, "the run ended with %d (%s); %s", status,
            supervise_meaning(status, &again, text), why);
    rd_error(supervise_log(s), &st);
    return status;
}

/* Decides after a failure. Returns false when the run is over, with *code; true after the pause. */
static bool decide_again(supervisor *s, int status, double seconds, int *code)
{
    bool again;
    char text[160], gain[80], why[200];
    const int64_t step = rd_ckpt_newest_step(s->logdir), before = s->step;
    const char *meaning = supervise_meaning(status, &again, text);
    *code = status;
    if (step > before) s->step = step;
    s->without_gain = step > before ? 0 : s->without_gain + 1;
    if (s->child.stop_signal) { /* its ranks had no time to save, or did not run yet */
        rd_warn(supervise_log(s), "asked to stop, the run ended with %d (%s)%s", status, meaning,
                s->step >= 0 ? "; the last checkpoint is what the same command goes on from"
                             : "; there is no checkpoint");
        return false;
    }
    if (!again) {
        *code = supervise_give_up(s, status, "that would be the same at another start");
        return false;
    }
    if (s->n_restarts >= s->cli->restarts) {
        (void)snprintf(why, sizeof why, "no start is left of --restarts=%" PRId64,
                       s->cli->restarts);
        *code = supervise_give_up(s, status, why);
        return false;
    }
    if (s->without_gain >= MAX_WITHOUT_GAIN) {
        (void)snprintf(why, sizeof why,
                       "%d starts in a row have left no new checkpoint: see the messages above, or "
                       "save more often (--checkpoint_frequency)",
                       s->without_gain);
        *code = supervise_give_up(s, status, why);
        return false;
    }
    if (seconds > long_run_s) s->pause_s = s->cli->restart_delay;
    s->n_restarts++;
    if (step >= 0)
        (void)snprintf(gain, sizeof gain, "checkpoint of step %" PRId64 "%s", step,
                       step > before ? "" : " as before");
    else
        (void)snprintf(gain, sizeof gain, "no checkpoint yet");
    rd_warn(supervise_log(s),
            "restart %" PRId64 " of %" PRId64
            " in %g s: the run ended with %d (%s) after %.0f s, %s",
            s->n_restarts, s->cli->restarts, s->pause_s, status, meaning, seconds, gain);
    if (!child_pause(&s->child, s->pause_s) || !wait_for_folder(s)) {
        *code = RD_ESTOP;
        rd_info(supervise_log(s), "run_dist: asked to stop between two starts");
        return false;
    }
    s->pause_s = fmin(2.0 * s->pause_s, fmax(longest_pause_s, s->cli->restart_delay));
    return true;
}

static rd_code open_line(supervisor *s, rd_status *st)
{
    launch_read(s->cli->launch, s->cli->n_launch, &s->line);
    s->logdir = s->cli->logdir ? s->cli->logdir : s->line.logdir;
    /* run_dist behind -- does the same with its own flag. */
    if (s->logdir && rd_home_path(s->logdir, "--logdir", &s->home_logdir, st) != RD_OK)
        return st->code;
    if (s->home_logdir) s->logdir = s->home_logdir;
    if (!s->logdir || !s->logdir[0])
        return rd_fail(st, RD_EUSAGE,
                       "the command behind -- has no --logdir, which tells --restarts how far a "
                       "run has come; add it there, or in front of -- where a script holds it");
    if (getenv("OMPI_COMM_WORLD_RANK"))
        return rd_fail(st, RD_EUSAGE,
                       "--restarts starts mpirun, so mpirun must not start it: run_dist "
                       "--restarts=5 -- mpirun -np 4 run_dist ...");
    return s->cli->drop_dead_hosts ? launch_hosts(&s->line, st) : st->code;
}

/* Hands the time of the first start to all starts, for max_hours. */
static void set_job_start(void)
{
    char now[40];
    (void)snprintf(now, sizeof now, "%.3f", rd_wall_s());
    (void)setenv(RD_JOB_START, now, 0);
}

int rd_supervise(const rd_cli *cli)
{
    supervisor s = {.cli = cli, .pause_s = cli->restart_delay};
    rd_status st = {.rank = -1};
    int code = 0;
    RD_TRY(rd_log_new(0, "", stderr, &s.log, &st));
    RD_TRY(open_line(&s, &st));
    s.child.own_launcher = s.line.own_launcher;
    s.step = rd_ckpt_newest_step(s.logdir);
    child_prepare();
    set_job_start();
    for (;;) {
        const int64_t begin_ns = rd_now_ns();
        code = one_start(&s, &st);
        RD_TRY(st.code);
        if (code == 0 || code == RD_ESTOP) break;
        if (!decide_again(&s, code, (double)(rd_now_ns() - begin_ns) * 1e-9, &code)) break;
    }
done:
    if (st.code != RD_OK) {
        rd_error(s.log, &st);
        code = (int)st.code;
    }
    launch_release(&s.line);
    free(s.home_logdir);
    rd_log_free(s.log);
    return code;
}
