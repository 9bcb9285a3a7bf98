/* update_speed.c -- measures the optimizer's update, alone and shared by the ranks of a host.
 *
 *     [mpirun -np 2] build/release/tests/bench/update_speed [--million=16]
 *
 * Prints one line per optimizer, each with clipping. Times are those of the best call, on its
 * slowest rank:
 *
 *     alone      every rank updates all weights in its own memory
 *     shared     each rank updates its share of one copy (with one rank there is nothing to share)
 *     memory     GB/s of the shared update, and its share of the GB/s that all ranks together reach
 *                with a[i] = b[i] + s c[i]. Bytes per element: 4 for the norm, 8 for the scaled
 *                gradient, 8 for the weight, 8 for each slot
 *     checksums  CPU time of rd_optim_checksums / CPU time of the update. A check or a save needs
 *                the checksums
 *
 * "ratio, cpu" is a ratio of CPU times, which other programs on the machine disturb less. */
#include "rd/clock.h"
#include "rd/optim.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CALLS = 15, WARM = 2 };

typedef struct bench {
    rd_comm *comm;
    const rd_world *w;
    int64_t n;
    rd_optim *o; /* optimizer of the current measurement */
    int64_t t;
    float *a, *b, *c;
    int64_t n_triad;
} bench;

static rd_code update(bench *b, rd_status *st)
{
    rd_optim_stats s = {0};
    return rd_optim_step(b->o, ++b->t, 1e-4, 0.5, &s, st);
}

static rd_code checksums(bench *b, rd_status *st)
{
    uint64_t sums[2];
    int damaged;
    return rd_optim_checksums(b->o, sums, &damaged, st);
}

static rd_code triad(bench *b, rd_status *st)
{
    float *restrict a = b->a, *restrict x = b->b, *restrict y = b->c;
    for (int64_t i = 0; i < b->n_triad; i++) a[i] = x[i] + 0.5f * y[i];
    return st->code;
}

typedef struct duration {
    double s, cpu_s;
} duration;

static double cpu_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static rd_code measure(bench *b, rd_code (*f)(bench *, rd_status *), duration *best, rd_status *st)
{
    *best = (duration){INFINITY, INFINITY};
    for (int i = 0; i < CALLS + WARM; i++) {
        RD_TRY(rd_comm_barrier(b->comm, st));
        const int64_t begin = rd_now_ns();
        const double begin_cpu = cpu_s();
        RD_TRY(f(b, st));
        double s[2] = {(double)(rd_now_ns() - begin) * 1e-9, cpu_s() - begin_cpu};
        RD_TRY(rd_comm_max_f64(b->comm, s, 2, st));
        if (i >= WARM && s[0] < best->s) best->s = s[0];
        if (i >= WARM && s[1] < best->cpu_s) best->cpu_s = s[1];
    }
done:
    return st->code;
}

/* Returns GB/s of all ranks together, each on its part of arrays of n elements. */
static rd_code measure_memory(bench *b, double *gb_per_s, rd_status *st)
{
    duration d;
    b->n_triad = b->n / b->w->size;
    const size_t bytes = (size_t)b->n_triad * sizeof(float);
    b->a = malloc(bytes + 64);
    b->b = malloc(bytes + 64);
    b->c = malloc(bytes + 64);
    if (!b->a || !b->b || !b->c) rd_fail(st, RD_EENV, "out of memory; lower --million");
    RD_TRY(rd_comm_agree(b->comm, st));
    for (int64_t i = 0; i < b->n_triad; i++) b->a[i] = b->b[i] = b->c[i] = (float)(i & 7);
    RD_TRY(measure(b, triad, &d, st));
    *gb_per_s = 12.0 * (double)b->n_triad * b->w->size / d.s * 1e-9;
done:
    free(b->a);
    free(b->b);
    free(b->c);
    return st->code;
}

/* sums: time of the checksums; NAN if nothing is shared. */
static rd_code one(bench *b, const char *optimizer, bool share, duration *update_s, duration *sums,
                   int *n_slots, rd_status *st)
{
    const rd_optim_config c = {.optimizer = optimizer,
                               .opt_momentum = 0.9,
                               .loss_scale = 1.0,
                               .max_grad_norm = 1.0,
                               .has_max_grad_norm = true};
    rd_params *p = NULL;
    rd_param *q;
    char why[200] = "";
    *update_s = *sums = (duration){NAN, NAN};
    b->o = NULL;
    b->t = 0;
    (void)rd_params_new(&p, st);
    const rd_init init = {.kind = RD_INIT_UNIFORM, .value = 0.1};
    if (st->code == RD_OK) (void)rd_params_add(p, "w", 1, &b->n, init, 0, &q, st);
    if (st->code == RD_OK) (void)rd_params_seal(p, 1, NAN, st);
    if (st->code == RD_OK) (void)rd_optim_new(&c, p, 1, &b->o, st);
    RD_TRY(rd_comm_agree(b->comm, st));
    if (share) RD_TRY(rd_optim_share(b->o, b->comm, why, st));
    if (why[0] && b->w->rank == 0) printf("nothing is shared: %s\n", why);
    *n_slots = rd_optim_def(b->o)->n_slots;
    for (int64_t i = 0; i < b->n; i++)
        rd_params_grads(p)[i] = (float)((i * 2654435761u) % 1000) * 1e-3f - 0.5f;
    if (share && !rd_optim_is_shared(b->o)) goto done;
    RD_TRY(measure(b, update, update_s, st));
    if (share) RD_TRY(measure(b, checksums, sums, st));
done:
    rd_optim_free(b->o);
    rd_params_free(p);
    return st->code;
}

static rd_code run(bench *b, rd_status *st)
{
    static const char *const names[] = {"sgd", "momentum", "adam"};
    double most = 0.0;
    RD_TRY(measure_memory(b, &most, st));
    if (b->w->rank == 0) {
        printf("%d rank%s, %lld weights (%.0f MiB); memory gives all of them %.1f GB/s\n",
               b->w->size, b->w->size == 1 ? "" : "s", (long long)b->n, (double)b->n * 4 / 1048576,
               most);
        printf("%-10s %10s %10s %8s %10s %8s %10s %10s %10s\n", "update", "alone ms", "shared ms",
               "ratio", "ratio, cpu", "bytes", "GB/s", "of memory", "checksums");
    }
    for (int i = 0; i < 3; i++) {
        duration alone, shared, sums, none;
        int n_slots = 0;
        RD_TRY(one(b, names[i], false, &alone, &none, &n_slots, st));
        RD_TRY(one(b, names[i], true, &shared, &sums, &n_slots, st));
        const bool has = !isnan(shared.s);
        const double bytes = 20.0 + 8.0 * n_slots, s = has ? shared.s : alone.s;
        const double gb_per_s = bytes * (double)b->n * (has ? 1 : b->w->size) / s * 1e-9;
        if (b->w->rank != 0) continue;
        printf("%-10s %10.2f ", names[i], alone.s * 1e3);
        if (has)
            printf("%10.2f %7.2fx %9.2fx ", shared.s * 1e3, alone.s / shared.s,
                   alone.cpu_s / shared.cpu_s);
        else
            printf("%10s %8s %10s ", "-", "-", "-");
        printf("%8.0f %10.2f %9.0f%% ", bytes, gb_per_s, 100.0 * gb_per_s / most);
        if (has)
            printf("%9.1f%%\n", 100.0 * sums.cpu_s / shared.cpu_s);
        else
            printf("%10s\n", "-");
        fflush(stdout);
    }
done:
    return st->code;
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    bench b = {0};
    int64_t million = 16;
    if (rd_comm_start(&argc, &argv, &b.comm, &st) == RD_OK) {
        b.w = rd_comm_world(b.comm);
        for (int i = 1; i < argc; i++)
            if (strncmp(argv[i], "--million=", 10) == 0) million = strtoll(argv[i] + 10, NULL, 10);
        b.n = million * 1000000;
        if (million < 1 || million > 1000 || b.w->n_hosts > 1)
            rd_fail(&st, RD_EUSAGE, "start it on one host, --million from 1 to 1000");
        else
            (void)run(&b, &st);
    }
    if (st.code != RD_OK) fprintf(stderr, "update_speed: %s\n", st.msg);
    if (st.code != RD_OK && b.w && b.w->size > 1 && st.code != RD_EUSAGE)
        rd_comm_abort(b.comm, st.code);
    rd_comm_free(b.comm);
    return st.code;
}
