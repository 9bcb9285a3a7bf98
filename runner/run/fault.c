/* fault.c -- begins a phase of this rank, and raises faults on request, for the tests of what
 * follows a fault.
 *
 *     RD_FAULT=KIND:RANK:STEP:PHASE   environment of all ranks; PHASE as rd_phase_name gives it;
 *                                     more faults after commas
 *     KIND:RANK:STEP:PHASE:N          the same, when the phase begins for the Nth time in that step
 *
 *     kill, stop, exit     ends the process: SIGKILL, SIGSTOP, _exit without a message
 *     int                  asks the job to save and stop: SIGINT
 *     hang, slow           sleeps for ever; for 1.5 seconds
 *     data, memory         fails with the code of bad data; of missing memory
 *     nan, flip            makes a gradient NaN; flips one bit of one weight in memory
 *     wrong, wrongfirst    flips a bit as if an update had computed it; in the model's first array
 *     inf, infslot         makes a weight inf; a number of the optimizer's state
 *     grad                 changes one number of the gradient where it belongs to that rank alone
 *     disk                 lets no file grow beyond 1 KB from now on */
#include "fault.h"
#include "device.h"
#include "signals.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

typedef struct fault {
    char kind[16], phase[16];
    int rank;
    long long step;
    long long nth; /* 0: each time */
} fault;

static bool wanted(const rd_run *r, rd_phase phase, int64_t step, fault *f)
{
    static long long begun; /* number of times that the phase of a fault with N began */
    const char *text = getenv("RD_FAULT");
    for (; text && *text; text += strcspn(text, ","), text += *text == ',') {
        f->nth = 0;
        if (sscanf(text, "%15[a-z]:%d:%lld:%15[a-z]:%lld", f->kind, &f->rank, &f->step, f->phase,
                   &f->nth) >= 4 &&
            f->rank == r->world->rank && f->step == step &&
            strcmp(f->phase, rd_phase_name(phase)) == 0 && (f->nth == 0 || ++begun == f->nth))
            return true;
    }
    return false;
}

static void sleep_s(double s)
{
    struct timespec t = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    while (nanosleep(&t, &t) != 0) {
    }
}

static rd_code happen(rd_run *r, const fault *f, rd_status *st)
{
    if (strcmp(f->kind, "kill") == 0) (void)raise(SIGKILL);
    if (strcmp(f->kind, "stop") == 0) (void)raise(SIGSTOP);
    if (strcmp(f->kind, "int") == 0) {
        (void)kill(getpid(), SIGINT);
        while (!signals_stop()) sleep_s(0.001); /* another thread runs the handler */
    }
    if (strcmp(f->kind, "exit") == 0) _exit(0);
    if (strcmp(f->kind, "hang") == 0) sleep_s(1e6);
    if (strcmp(f->kind, "slow") == 0) sleep_s(1.5);
    if (strcmp(f->kind, "data") == 0)
        return rd_fail(st, RD_EDATA, "a fault was requested: bad data at step %lld", f->step);
    if (strcmp(f->kind, "memory") == 0)
        return rd_fail(st, RD_EENV, "a fault was requested: no memory at step %lld", f->step);
    rd_tape_return_grads(r->tape); /* the gradients begin at what is written below */
    if (rd_params_sync_to_host(r->params, RD_VALUES | RD_GRADS, st) != RD_OK) return st->code;
    if (strcmp(f->kind, "nan") == 0) {
        rd_params_grads(r->params)[0] = NAN;
        rd_params_touch_grads(r->params);
    }
    if (strcmp(f->kind, "inf") == 0) {
        rd_params_values(r->params)[0] = INFINITY;
        rd_params_touch(r->params);
    }
    if (strcmp(f->kind, "infslot") == 0) {
        RD_TRY(rd_params_sync_to_host(r->params, RD_SLOTS, st));
        rd_params_slot(r->params, 0)[0] = INFINITY;
        rd_params_touch_slots(r->params);
    }
    if (strcmp(f->kind, "grad") == 0) {
        rd_params_grads(r->params)[0] += 1.0f;
        rd_params_touch_grads(r->params);
    }
    if (strcmp(f->kind, "flip") == 0 || strncmp(f->kind, "wrong", 5) == 0) {
        float *w = rd_params_values(r->params) +
                   (strcmp(f->kind, "wrongfirst") == 0 ? rd_params_at(r->params, 0)->offset : 0);
        uint32_t bits;
        memcpy(&bits, w, sizeof bits);
        bits ^= 1u << 12;
        memcpy(w, &bits, sizeof bits);
        if (f->kind[0] == 'w')
            rd_params_touch(r->params);
        else if (run_gpu(r)) /* a bit that flips in memory marks nothing as changed */
            RD_TRY(rd_gpu_upload(
                run_gpu(r), rd_params_device_values(r->params) + (w - rd_params_values(r->params)),
                w, sizeof *w, st));
    }
    if (strcmp(f->kind, "disk") == 0) {
        const struct rlimit small = {1024, 1024};
        (void)signal(SIGXFSZ, SIG_IGN);
        (void)setrlimit(RLIMIT_FSIZE, &small);
    }
done:
    return st->code;
}

rd_code run_phase(rd_run *r, rd_phase phase, int64_t step, rd_status *st)
{
    fault f;
    rd_watch_beat(r->watch, phase, step);
    times_phase(r, phase);
    return wanted(r, phase, step, &f) ? happen(r, &f, st) : st->code;
}
