/* sweep.c -- the way of a sweep: its runs, what is done already, starts and ends, the table.
 *
 * A run is known by its folder and by sweep.json. The sweep locks its folder, and each run locks
 * that of the run. The sweep waits for runs that a process of an earlier start still holds. */
#include "rd/sweep.h"
#include "sweep_impl.h"
#include "../runs/runs_impl.h"
#include "rd/checkpoint.h"
#include "rd/clock.h"
#include "rd/file.h"
#include "rd/printable.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct sweep {
    const rd_cli *cli;
    sweep_common common;
    sweep_list list;
    sweep_lanes lanes;
    sweep_pool pool;
    sweep_rounds rounds;
    rd_config *config; /* owned; of the first run */
    json_t *dropped;   /* owned; the config's keys that some run has not, with their texts */
    rd_log *log;
    int lock;
    int64_t limit;          /* step of the present round; 0: none */
    int n_before;           /* runs that were done at the start */
    double run_s;           /* time of the runs that have ended in this start */
    int n_timed, n_started; /* their number; runs started in this start */
    int64_t waiting_ns;     /* since when only runs of other processes are left; 0: no */
    bool said_waiting;
} sweep;

bool rd_sweep_asked(const rd_cli *cli)
{
    return cli->n_sweep > 0;
}

/* ---- before the first run ---- */

static rd_code check_command(const rd_cli *cli, rd_status *st)
{
    char shown[512];
    if (!cli->logdir || !cli->logdir[0])
        return rd_fail(st, RD_EUSAGE,
                       "--logdir is missing; name the folder for the runs of the sweep, for "
                       "example --logdir=logs/sweep");
    if (strlen(cli->logdir) > 3500)
        return rd_fail(st, RD_EUSAGE, "--logdir is %zu bytes long; a sweep allows 3500",
                       strlen(cli->logdir));
    if (cli->trace)
        return rd_fail(st, RD_EUSAGE,
                       "--trace writes one file, and a sweep has several runs; trace one of them");
    if (cli->print_config)
        return rd_fail(st, RD_EUSAGE,
                       "--print_config prints one config, and a sweep has several; leave --sweep "
                       "out, or give --check to see its runs");
    if (runs_is_run(cli->logdir))
        return rd_fail(st, RD_EUSAGE,
                       "'%s' is the log folder of a run; give the sweep another folder",
                       rd_printable(cli->logdir, strlen(cli->logdir), false, shown, sizeof shown));
    return st->code;
}

/* The command line of a run. */
typedef struct run_line {
    rd_cli cli;
    sweep_words sets; /* texts behind --set */
} run_line;

static rd_code run_line_make(const sweep *s, const sweep_run *r, run_line *out, rd_status *st)
{
    const char *key;
    json_t *v;
    *out = (run_line){.cli = *s->cli};
    for (int i = 0; i < s->cli->n_set; i++) sweep_words_add(&out->sets, "%s", s->cli->set[i]);
    json_object_foreach(r->set, key, v)
    {
        sweep_words_add(&out->sets, "%s=%s", key, json_string_value(v));
    }
    json_object_foreach(r->drop, key, v)
    {
        sweep_words_add(&out->sets, "%s=null", key);
    }
    out->cli.set = (const char **)(uintptr_t)out->sets.at;
    out->cli.n_set = out->sets.n;
    if (out->sets.failed) rd_fail(st, RD_EENV, "out of memory for a run's keys");
    return st->code;
}

/* Finds the keys that a run has not, and checks its config. The caller owns *out. */
static rd_code check_run_config(sweep *s, const rd_sweep_config *config, sweep_run *r,
                                rd_config **out, rd_status *st)
{
    run_line line;
    r->drop = json_object();
    if (run_line_make(s, r, &line, st) == RD_OK)
        (void)config->replaced(&line.cli, r->set, r->drop, st);
    sweep_words_release(&line.sets);
    (void)json_object_update_missing(s->dropped, r->drop);
    RD_TRY(st->code);
    if (run_line_make(s, r, &line, st) == RD_OK) (void)config->read(&line.cli, out, st);
    sweep_words_release(&line.sets);
done:
    return st->code;
}

/* Checks the config of each run, before any run begins. Keeps that of the first one. */
static rd_code check_configs(sweep *s, const rd_sweep_config *config, rd_status *st)
{
    s->dropped = json_object();
    for (int i = 0; i < s->list.n; i++) {
        rd_config *own = NULL;
        if (check_run_config(s, config, &s->list.at[i], &own, st) != RD_OK) {
            if (s->list.n > 1) rd_status_prefix(st, "run %s", s->list.at[i].name);
            return st->code;
        }
        if (i == 0)
            s->config = own;
        else
            rd_config_free(own);
    }
    return RD_OK;
}

static rd_code name_folders(sweep *s, rd_status *st)
{
    rd_strbuf files = {0};
    const char *root = s->cli->logdir;
    size_t n = strlen(root);
    while (n > 1 && root[n - 1] == '/') n--;
    RD_TRY(rd_config_files_read(s->cli->config_file, &files, st));
    for (int i = 0; i < s->list.n; i++) {
        sweep_run *r = &s->list.at[i];
        if (asprintf(&r->folder, "%.*s/%s", (int)n, root, r->name) < 0) {
            r->folder = NULL;
            rd_fail(st, RD_EENV, "out of memory for the folders of the runs");
        }
        RD_TRY(st->code);
        r->hash = sweep_command_hash(&s->common, r, &files);
    }
done:
    rd_strbuf_release(&files);
    return st->code;
}

/* Makes all runs, with names and folders, and checks them. */
static rd_code sweep_plan(sweep *s, const rd_sweep_config *config, rd_status *st)
{
    RD_TRY(check_command(s->cli, st));
    RD_TRY(sweep_command_program(s->common.program, st));
    RD_TRY(sweep_spec_read(s->cli, &s->list, st));
    RD_TRY(sweep_name_all(&s->list, st));
    RD_TRY(check_configs(s, config, st));
    RD_TRY(sweep_rounds_read(s->cli, s->config, &s->rounds, st));
    if (s->rounds.steps > 0 && !rd_config_has(s->config, "eval_frequency") &&
        json_number_value(rd_config_get(s->config, "eval_epochs")) == 0.0 &&
        json_number_value(rd_config_get(s->config, "checkpoint_steps")) == 0.0)
        s->common.eval_every = s->rounds.steps;
    RD_TRY(name_folders(s, st));
done:
    return st->code;
}

/* ---- progress ---- */

/* Does the run need no start any more? A training that diverged would diverge again. */
static bool is_over(const sweep_run *r)
{
    return r->code == 0 || r->code == RD_ENUMERIC;
}

/* Is the run ready for this round? */
static bool run_waits(const sweep *s, const sweep_run *r)
{
    return s->limit > 0 && r->paused >= s->limit;
}

/* Returns the number of runs that are over, or that halving has left behind. */
static int sweep_n_over(const sweep *s)
{
    int n = 0;
    for (int i = 0; i < s->list.n; i++) n += is_over(&s->list.at[i]) || s->list.at[i].out;
    return n;
}

/* Says in a few words how a run ended. */
static void sweep_describe(const sweep_run *r, bool waits, double seconds, rd_strbuf *b)
{
    runs_facts f;
    rd_status own = {0};
    char time[32];
    if (runs_read(r->folder, r->name, &f, NULL, &own) != RD_OK) return;
    if (r->code == 0)
        rd_strbuf_puts(b, "done");
    else if (waits)
        rd_strbuf_puts(b, "waits for the round");
    else if (r->code == RD_ESTOP)
        rd_strbuf_puts(b, "stopped");
    else if (r->code > 128)
        rd_strbuf_printf(b, "killed by signal %d", r->code - 128);
    else
        rd_strbuf_printf(b, "failed %d", r->code);
    if (f.step >= 0) rd_strbuf_printf(b, ", step %" PRIi64, f.step);
    if (!isnan(f.best)) rd_strbuf_printf(b, ", best %s %.5g", f.figure, f.best);
    rd_strbuf_printf(b, ", %s", runs_duration(seconds, time));
    if (r->code > 0 && r->code < 128 && r->code != RD_ESTOP && f.why[0])
        rd_strbuf_printf(b, ": %s", f.why);
    runs_facts_release(&f);
}

/* Returns the share of a run that is done, by its records. */
static double run_share(const sweep *s, const sweep_run *r)
{
    runs_facts f;
    rd_status own = {0};
    double share = 0.0;
    if (runs_read(r->folder, r->name, &f, NULL, &own) != RD_OK) return 0.0;
    const int64_t to = s->limit > 0 ? s->limit : f.to_step;
    if (f.step > 0 && to > 0) share = (double)f.step / (double)to;
    runs_facts_release(&f);
    return share < 1.0 ? share : 1.0;
}

/* Rewrites the live line: what runs, how much is left. */
static void sweep_live(const sweep *s)
{
    double share = 0.0, elapsed = 0.0;
    int running = 0, left = 0;
    char time[32];
    if (!rd_log_is_tty(s->log)) return;
    for (int i = 0; i < s->lanes.n; i++) {
        const sweep_lane *lane = &s->lanes.at[i];
        if (lane->busy < 0) continue;
        running++;
        share += run_share(s, &s->list.at[lane->busy]);
        elapsed += (double)(rd_now_ns() - lane->start_ns) * 1e-9;
    }
    for (int i = 0; i < s->list.n; i++) {
        const sweep_run *r = &s->list.at[i];
        left += !is_over(r) && !r->out && !run_waits(s, r);
    }
    const double work = (double)left - share;
    const double each = s->n_timed > 0 ? s->run_s / s->n_timed
                        : share > 0.05 ? elapsed / share
                                       : (double)NAN;
    const double more_s = running > 0 ? each * work / running : (double)NAN;
    rd_live(s->log, "%d of %d runs over, %d running%s%s", sweep_n_over(s), s->list.n, running,
            isfinite(more_s) ? ", about " : "",
            isfinite(more_s) ? strcat(runs_duration(more_s, time), " left") : "");
}

/* ---- runs ---- */

static rd_code start_run(sweep *s, sweep_lane *lane, int i, rd_status *st)
{
    sweep_run *r = &s->list.at[i];
    sweep_words w = {0};
    char out[4400];
    for (char **p = lane->launcher; p && *p; p++) sweep_words_add(&w, "%s", *p);
    sweep_command(&s->common, r, s->limit, &w);
    (void)snprintf(out, sizeof out, "%.4000s/sweep.out", r->folder);
    if (w.failed) rd_fail(st, RD_EENV, "out of memory for a command");
    if (st->code == RD_OK && rd_mkdirs(r->folder, st) == RD_OK)
        (void)sweep_pool_start(lane, w.at, out, st);
    sweep_words_release(&w);
    if (st->code != RD_OK) return st->code;
    lane->busy = i;
    r->code = -1;
    s->n_started++;
    return RD_OK;
}

/* Starts a run. One that cannot be started has failed, and the others go on. */
static void start_or_fail(sweep *s, sweep_lane *lane, int i)
{
    rd_status own = {.rank = -1};
    if (start_run(s, lane, i, &own) == RD_OK) return;
    s->list.at[i].code = (int)own.code;
    rd_live(s->log, NULL);
    rd_warn(s->log, "%s: %s", s->list.at[i].name, own.msg);
}

/* Is a lane at work on the run? */
static bool run_runs(const sweep *s, int i)
{
    for (int k = 0; k < s->lanes.n; k++)
        if (s->lanes.at[k].busy == i) return true;
    return false;
}

/* Returns the next run to start; -1: none now. *held: runs that another process holds. */
static int next_run(const sweep *s, const bool *tried, int *held)
{
    *held = 0;
    for (int i = 0; i < s->list.n; i++) {
        const sweep_run *r = &s->list.at[i];
        if (tried[i] || r->out || is_over(r) || run_waits(s, r) || run_runs(s, i)) continue;
        if (!rd_logdir_in_use(r->folder)) return i;
        ++*held;
    }
    return -1;
}

/* Has a run that stopped reached the step of the round? A stop request may have come before its
 * evaluation. The next start makes that. */
static bool reached_round(const sweep *s, const sweep_run *r)
{
    if (s->limit <= 0 || rd_ckpt_newest_step(r->folder) < s->limit) return false;
    json_t *manifest = runs_manifest(r->folder);
    const bool due = json_is_true(json_object_get(manifest, "eval_due"));
    json_decref(manifest);
    return !due;
}

/* Records the end of a run. */
static rd_code end_run(sweep *s, sweep_lane *lane, int status, rd_status *st)
{
    sweep_run *r = &s->list.at[lane->busy];
    const double seconds = (double)(rd_now_ns() - lane->start_ns) * 1e-9;
    rd_strbuf text = {0};
    lane->busy = -1;
    r->code = status;
    const bool waits = status == RD_ESTOP && reached_round(s, r);
    if (waits) r->paused = s->limit;
    sweep_describe(r, waits, seconds, &text);
    if (waits) r->code = -1;
    if (status == 0 || waits) {
        s->run_s += seconds;
        s->n_timed++;
    }
    rd_live(s->log, NULL);
    rd_info(s->log, "[%d/%d] %s: %s", sweep_n_over(s), s->list.n, r->name, rd_strbuf_str(&text));
    rd_strbuf_release(&text);
    return sweep_state_write(s->cli->logdir, s->cli->sweep_halving, &s->list, st);
}

/* Waits a moment for an end. Says so if only another process' runs are left. */
static rd_code sweep_wait(sweep *s, int running, int held, rd_status *st)
{
    int status;
    if (running == 0 && held > 0 && !s->waiting_ns) s->waiting_ns = rd_now_ns();
    if (running > 0) s->waiting_ns = 0;
    if (s->waiting_ns && !s->said_waiting && rd_now_ns() - s->waiting_ns > INT64_C(3000000000)) {
        s->said_waiting = true;
        rd_info(s->log,
                "%d run%s in use by another process, perhaps of an earlier start that still saves; "
                "waiting for the end",
                held, held == 1 ? " is" : "s are");
    }
    sweep_live(s);
    sweep_lane *lane = sweep_pool_wait(&s->pool, held > 0 ? 0.2 : 2.0, &status);
    return lane ? end_run(s, lane, status, st) : RD_OK;
}

/* Runs what is left of a round, each run at most once. */
static rd_code sweep_round(sweep *s, rd_status *st)
{
    bool *tried = calloc((size_t)s->list.n + 1, sizeof *tried);
    if (!tried) return rd_fail(st, RD_EENV, "out of memory for the runs");
    for (;;) {
        int running = 0, held = 0, i = -1;
        for (int k = 0; k < s->lanes.n; k++) {
            sweep_lane *lane = &s->lanes.at[k];
            if (lane->busy < 0 && !s->pool.stop_signal && st->code == RD_OK &&
                (i = next_run(s, tried, &held)) >= 0) {
                tried[i] = true;
                start_or_fail(s, lane, i);
            }
            running += lane->busy >= 0;
        }
        if (running == 0 && (held == 0 || s->pool.stop_signal || st->code != RD_OK)) break;
        (void)sweep_wait(s, running, held, st);
    }
    free(tried);
    return st->code;
}

/* Makes the lanes for the runs of a round, which may be fewer than before. */
static rd_code sweep_open_lanes(sweep *s, rd_status *st)
{
    int left = 0;
    for (int i = 0; i < s->list.n; i++)
        left += !is_over(&s->list.at[i]) && !s->list.at[i].out && !run_waits(s, &s->list.at[i]);
    sweep_lanes_release(&s->lanes);
    s->pool.lanes = &s->lanes;
    return sweep_lanes_make(s->cli, s->config, left, &s->lanes, st);
}

/* Can the round be compared: has each of its runs ended it? */
static bool round_is_whole(const sweep *s)
{
    for (int i = 0; i < s->list.n; i++) {
        const sweep_run *r = &s->list.at[i];
        if (!r->out && r->code == RD_ESTOP && !run_waits(s, r)) return false;
    }
    return !s->pool.stop_signal;
}

static rd_code sweep_rounds_run(sweep *s, rd_status *st)
{
    for (;;) {
        int in = 0;
        for (int i = 0; i < s->list.n; i++) in += !s->list.at[i].out;
        s->limit = sweep_rounds_limit(&s->rounds, s->cli, s->list.decided, in);
        RD_TRY(sweep_open_lanes(s, st));
        if (s->lanes.n > 0) RD_TRY(sweep_round(s, st));
        if (s->limit == 0 || !round_is_whole(s)) break;
        RD_TRY(sweep_rounds_decide(&s->rounds, &s->list, s->limit, s->log, st));
        RD_TRY(sweep_state_write(s->cli->logdir, s->cli->sweep_halving, &s->list, st));
    }
done:
    return st->code;
}

/* ---- the end ---- */

/* Keeps the runs of this sweep, marks the best one and sorts it to the top. */
static void keep_own(sweep *s, runs_list *l)
{
    int kept = 0;
    for (int i = 0; i < l->n; i++) {
        bool own = false;
        for (int k = 0; k < s->list.n && !own; k++)
            own = strcmp(l->at[i].name, s->list.at[k].name) == 0;
        if (own)
            l->at[kept++] = l->at[i];
        else
            runs_facts_release(&l->at[i]);
    }
    l->n = kept;
}

static rd_code sweep_table(sweep *s, rd_status *st)
{
    runs_list l = {.at = NULL};
    rd_strbuf b = {0};
    RD_TRY(runs_find(s->cli->logdir, &l, st));
    keep_own(s, &l);
    RD_TRY(runs_sort(&l, "best", s->cli, st));
    const bool any = l.n > 0 && !isnan(l.at[0].best);
    if (any) l.at[0].best_of_all = true;
    if (l.n > 0) runs_table_text(&l, runs_width(stdout), &b);
    if (b.failed) rd_fail(st, RD_EENV, "out of memory for the table");
    (void)fputs(rd_strbuf_str(&b), stdout);
    (void)fflush(stdout);
    if (any)
        rd_info(s->log, "best: %s (%s %.6g at step %" PRIi64 ")", l.at[0].name, l.at[0].figure,
                l.at[0].best, l.at[0].best_step);
done:
    rd_strbuf_release(&b);
    runs_list_release(&l);
    return st->code;
}

/* Says what is left, and returns the exit code. */
static int sweep_result(sweep *s)
{
    int failed = 0, first = 0, left = 0;
    for (int i = 0; i < s->list.n; i++) {
        const sweep_run *r = &s->list.at[i];
        left += !r->out && (r->code < 0 || r->code == RD_ESTOP);
        if (r->code <= 0 || r->code == RD_ESTOP) continue;
        if (failed++ == 0) first = r->code > 128 || r->code == 1 ? RD_EPEER : r->code;
        if (failed <= 20)
            rd_warn(s->log, "%s has failed; what it printed: %s/sweep.out", r->name, r->folder);
    }
    if (failed > 0)
        rd_info(s->log, "%d of %d runs failed%s", failed, s->list.n,
                s->rounds.steps > 0 ? "" : "; the same command tries again, unless they diverged");
    if (left > 0)
        rd_info(s->log, "%d of %d runs %s left; the same command goes on", left, s->list.n,
                left == 1 ? "is" : "are");
    return left > 0 ? RD_ESTOP : first;
}

/* Says which keys of the config some runs have not. */
static void say_dropped(const sweep *s)
{
    const char *key;
    json_t *v;
    json_object_foreach(s->dropped, key, v)
    {
        rd_info(s->log, "%s; runs with another one go without it", json_string_value(v));
    }
}

static void say_begin(sweep *s)
{
    const int done = sweep_n_over(s);
    char before[64] = "";
    if (done > 0) (void)snprintf(before, sizeof before, ", %d of them over before", done);
    rd_info(s->log, "sweep: %d run%s%s, %d rank%s each, %s, in %s", s->list.n, RD_S(s->list.n),
            before, s->lanes.ranks, RD_S(s->lanes.ranks),
            done < s->list.n ? s->lanes.about : "nothing to start", s->cli->logdir);
    if (s->common.eval_every > 0)
        rd_info(s->log, "eval_frequency is %" PRIi64 ", from --sweep_halving",
                s->common.eval_every);
}

/* Prints the runs, and starts none. */
static void print_runs(const sweep *s)
{
    for (int i = 0; i < s->list.n; i++) (void)printf("%s\n", s->list.at[i].folder);
    rd_info(s->log, "%d run%s; nothing was started", s->list.n, RD_S(s->list.n));
}

static rd_code write_script(sweep *s, rd_status *st)
{
    const char *path = s->cli->sweep_slurm;
    const int ranks = s->lanes.ranks > 0 ? s->lanes.ranks : 1;
    rd_strbuf shown = {0};
    if (s->rounds.steps > 0)
        return rd_fail(st, RD_EUSAGE,
                       "--sweep_halving compares runs while they wait, which a job array cannot; "
                       "leave it or --sweep_slurm out");
    RD_TRY(rd_mkdirs(s->cli->logdir, st));
    RD_TRY(sweep_slurm_write(&s->common, path, &s->list, ranks, (int)s->cli->sweep_jobs, st));
    rd_printable_add(&shown, path, strlen(path));
    rd_info(s->log, "%s is written: %d task%s; set its resources, then: sbatch %s",
            rd_strbuf_str(&shown), s->list.n, RD_S(s->list.n), rd_strbuf_str(&shown));
done:
    rd_strbuf_release(&shown);
    return st->code;
}

/* Locks the folder, runs what is left and prints the table. *code: of the process. */
static rd_code sweep_go(sweep *s, int *code, rd_status *st)
{
    char warning[RD_MSG_BYTES] = "", path[4200];
    RD_TRY(rd_mkdirs(s->cli->logdir, st));
    RD_TRY(rd_logdir_lock(s->cli->logdir, &s->lock, warning, st));
    if (warning[0]) rd_warn(s->log, "%s", warning);
    (void)snprintf(path, sizeof path, "%.4000s/sweep.log", s->cli->logdir);
    RD_TRY(rd_log_tee(s->log, path, st));
    sweep_state_read(s->cli->logdir, s->cli->sweep_halving, &s->list);
    sweep_pool_prepare();
    RD_TRY(sweep_open_lanes(s, st));
    say_begin(s);
    if (sweep_rounds_run(s, st) != RD_OK) goto done;
    rd_live(s->log, NULL);
    RD_TRY(sweep_table(s, st));
    *code = sweep_result(s);
done:
    return st->code;
}

int rd_sweep(const rd_cli *cli, const rd_sweep_config *config)
{
    sweep s = {.cli = cli, .common = {.cli = cli}, .lock = -1};
    rd_status st = {.rank = -1};
    int code = 0, under = 0;
    RD_TRY(rd_log_new(0, "", stderr, &s.log, &st));
    RD_TRY(sweep_lanes_leave_job(&under, &st));
    s.lanes.ranks = (int)(cli->sweep_ranks > 0 ? cli->sweep_ranks : cli->np > 0 ? cli->np : under);
    RD_TRY(sweep_plan(&s, config, &st));
    say_dropped(&s);
    if (cli->check)
        print_runs(&s);
    else if (cli->sweep_slurm)
        (void)write_script(&s, &st);
    else
        (void)sweep_go(&s, &code, &st);
done:
    if (st.code != RD_OK) {
        rd_error(s.log, &st);
        code = (int)st.code;
    }
    sweep_lanes_release(&s.lanes);
    sweep_list_release(&s.list);
    rd_config_free(s.config);
    json_decref(s.dropped);
    if (s.lock >= 0) (void)close(s.lock);
    rd_log_free(s.log);
    return code;
}
