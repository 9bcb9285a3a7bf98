/* train_save.c -- the log folder and the checkpoints of a training. */
#include "finite.h"
#include "recorder.h"
#include "replicas.h"
#include "resume.h"
#include "save.h"
#include "train_impl.h"
#include "fault.h"
#include "rd/checkpoint.h"
#include "rd/file.h"
#include "rd/input.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Most seconds until a failed save (a full disk) is tried again. */
static const int64_t retry_s = 300;

/* ---- log folder ---- */

/* Is this the name of a report: "rank_12.json", or the temporary file of one? */
static bool names_report(const char *name, bool *whole)
{
    const size_t digits = strncmp(name, "rank_", 5) == 0 ? strspn(name + 5, "0123456789") : 0;
    const char *end = name + 5 + digits;
    *whole = digits > 0 && strcmp(end, ".json") == 0;
    return *whole || (digits > 0 && strncmp(end, ".json.tmp.", 10) == 0);
}

/* Empties LOGDIR/errors of the reports of the start before: errors/ tells of the last start alone.
 * They replace those in errors/previous/. Rank 0 only, with the lock. */
static void move_reports(const rd_run *r)
{
    char dir[4200], old[4300], from[4600], to[4700];
    rd_folder f, before;
    rd_status own = {0};
    bool whole;
    int n = 0;
    (void)snprintf(dir, sizeof dir, "%.4000s/errors", r->cli->logdir);
    (void)snprintf(old, sizeof old, "%s/previous", dir);
    if (rd_folder_list(dir, RD_MAYBE, &f) != 0) return;
    for (int64_t i = 0; i < f.n; i++) n += names_report(f.entry[i].name, &whole);
    if (n == 0) goto done;
    if (rd_mkdirs(old, &own) == RD_OK && rd_folder_list(old, RD_MAYBE, &before) == 0) {
        for (int64_t i = 0; i < before.n; i++) {
            (void)snprintf(to, sizeof to, "%s/%.255s", old, before.entry[i].name);
            if (names_report(before.entry[i].name, &whole)) (void)unlink(to);
        }
        rd_folder_release(&before);
    }
    n = 0;
    for (int64_t i = 0; i < f.n; i++) {
        if (!names_report(f.entry[i].name, &whole)) continue;
        (void)snprintf(from, sizeof from, "%s/%.255s", dir, f.entry[i].name);
        (void)snprintf(to, sizeof to, "%s/%.255s", old, f.entry[i].name);
        n += whole;
        if ((!whole || rename(from, to) != 0) && unlink(from) != 0)
            rd_warn(r->log, "cannot move '%s', the report of an earlier failure: %s", from,
                    strerror(errno));
    }
    if (n > 0) rd_info(r->log, "%d report%s of the last failure moved to %s", n, RD_S(n), old);
done:
    rd_folder_release(&f);
}

rd_code train_open_logdir(trainer *t, rd_status *st)
{
    rd_run *r = t->run;
    const char *dir = r->cli->logdir;
    char path[4200], warning[RD_MSG_BYTES] = "";
    if (!dir || !dir[0]) {
        rd_fail(st, RD_EUSAGE,
                "--logdir is missing; name a folder for checkpoints and records, for example "
                "--logdir=logs/first (training goes on from what it holds)");
    } else if (strlen(dir) > 4000) {
        rd_fail(st, RD_EUSAGE, "--logdir is %zu bytes long; 4000 are allowed", strlen(dir));
    } else if (r->world->rank == 0) {
        RD_TRY(rd_mkdirs(dir, st));
        RD_TRY(rd_logdir_lock(dir, &r->lock, warning, st));
        if (warning[0]) rd_warn(r->log, "%s", warning);
        (void)snprintf(path, sizeof path, "%s/run.log", dir);
        RD_TRY(rd_log_tee(r->log, path, st));
        move_reports(r);
    }
done:
    r->owns_logdir = run_agree(r, st) == RD_OK;
    if (r->owns_logdir) (void)rd_logdir_mark(dir, r->lock_mark);
    return st->code;
}

/* ---- checkpoints ---- */

void train_set_next_save(trainer *t, int64_t in_s)
{
    t->next_save_ns = rd_now_ns() + in_s * INT64_C(1000000000);
}

bool train_in_trouble(const trainer *t)
{
    const run_progress *at = &t->run->progress;
    return at->skipped_in_row > 0 || at->diverging >= DIVERGENCE_SHOWN;
}

/* Collective. Fails if weights or optimizer state are not finite. All ranks hold the same values,
 * so rank 0 looks; if hosts keep parts of the state, a rank of each. */
static rd_code check_weights(rd_run *r, rd_status *st)
{
    char name[320];
    const bool parts = rd_optim_shard_of(r->optim) != NULL,
               lead = !rd_optim_is_shared(r->optim) || r->world->local_rank == 0;
    if ((r->world->rank == 0 || (parts && lead)) &&
        rd_params_sync_to_host(r->params, RD_VALUES | RD_SLOTS, st) == RD_OK &&
        finite_find_other(r, name))
        rd_fail(st, RD_ENUMERIC,
                "after step %" PRId64
                " '%s' holds inf or NaN; it is not saved; lower learning_rate, or set "
                "max_grad_norm, and start again from the last checkpoint",
                r->progress.step, name);
    return run_agree(r, st);
}

bool train_logdir_lost(trainer *t, int64_t now_ns)
{
    rd_status own = {0};
    if (now_ns - t->looked_ns < INT64_C(10000000000)) return false;
    t->looked_ns = now_ns;
    return rd_logdir_check(t->run->cli->logdir, t->run->lock, &own) != RD_OK;
}

/* Returns the seconds until a failed save is tried again: --checkpoint_frequency, at least 1 and at
 * most retry_s, and twice as long after each further failure. */
static int64_t next_try_s(const trainer *t)
{
    const int64_t every = t->run->cli->checkpoint_frequency;
    int64_t s = every < 1 ? 1 : every;
    for (int64_t i = 1; i < t->failed_saves && s < retry_s; i++) s *= 2;
    return s < retry_s ? s : retry_s;
}

/* Rank 0: saves. In trouble no older checkpoint is removed. Fails if the log folder is another one
 * now, or if must is set. */
static rd_code save_root(trainer *t, bool must, rd_status *st)
{
    rd_run *r = t->run;
    rd_status own = {0};
    const int64_t begin_ns = rd_now_ns();
    const int keep = train_in_trouble(t) ? 0 : (int)r->config.checkpoint_keep;
    recorder_flush(t->records);
    RD_TRY(rd_logdir_check(r->cli->logdir, r->lock, st));
    if (run_save(r, "model", keep, &own) == RD_OK) {
        rd_info(r->log, "checkpoint model-%" PRId64 ".npz saved in %.2f s", r->progress.step,
                (double)(rd_now_ns() - begin_ns) * 1e-9);
        t->failed_saves = 0;
        train_set_next_save(t, r->cli->checkpoint_frequency);
        t->saved_step = r->progress.step;
        goto done;
    }
    RD_TRY(rd_logdir_check(r->cli->logdir, r->lock, st));
    if (must) {
        *st = own;
    } else {
        t->failed_saves++;
        rd_warn(r->log,
                "%s; training goes on, next try in %" PRId64 " s (%" PRId64
                " failed save%s in a row)",
                own.msg, next_try_s(t), t->failed_saves, RD_S(t->failed_saves));
        train_set_next_save(t, next_try_s(t));
    }
done:
    return st->code;
}

rd_code train_save(trainer *t, bool must, rd_status *st)
{
    rd_run *r = t->run;
    RD_TRY(run_phase(r, RD_PHASE_SAVE, r->progress.step, st));
    RD_TRY(run_check_replicas(r, st));
    RD_TRY(check_weights(r, st));
    if (r->world->rank == 0) (void)save_root(t, must, st);
    (void)run_lend_state(r, st);
    RD_TRY(run_agree(r, st));
    if (r->world->rank != 0) t->saved_step = r->progress.step;
    t->last_save_ns = rd_now_ns();
    rd_watch_beat(r->watch, RD_PHASE_UPDATE, r->progress.step);
    times_enter(r, TIMES_NONE);
done:
    return st->code;
}

void train_save_before_end(trainer *t)
{
    rd_run *r = t->run;
    rd_status own = {.rank = -1};
    if (r->progress.step == 0 || t->saved_step == r->progress.step) return;
    r->agreed = false;
    if (r->world->rank == 0)
        rd_warn(r->log,
                "the run ends with a failure; step %" PRId64 ", the last whole one, is "
                "saved first",
                r->progress.step);
    if (train_save(t, true, &own) == RD_OK)
        r->agreed = true;
    else if (r->world->rank == 0 || !r->agreed)
        rd_warn(r->log, "step %" PRId64 " is not saved: %s", r->progress.step, own.msg);
}
