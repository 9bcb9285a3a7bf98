/* overlap.c -- measures how much of the gradient sum between hosts backward hides.
 *
 * Also measures what narrow types on the wire save.
 *
 *     tests/bench/links                      on simulated hosts with links of 1 and 10 Gbit/s
 *     mpirun -np 2 -H a,b build/release/tests/bench/overlap [--mib=64] [--bucket_mib=4] [--calls=5]
 *         [--ways=late,calls,thread,core] [--wires=float32,bfloat16,float16]
 *
 * Backward is simulated: the rank sleeps, and a bucket becomes ready after each equal part of that
 * time. Ranks that share too few cores therefore do not disturb each other. Backward takes 0, 1/2,
 * 1 and 2 times as long as the sum, for each way in which a bucket may be sent (see rd_flow_mode)
 * and each wire type. Each line has the numbers of the slowest rank, medians over calls:
 *
 *     alone     time of the sum without backward, measured in turns with the others
 *     total     time from the start of the first bucket to the end of the last one
 *     exposed   time of the step - time of backward without polling
 *     could     max(alone - backward, time of one bucket): the last bucket is ready when
 *               backward ends, so exposed cannot be less
 *     ratio     exposed / could
 *     over      (exposed - could) / alone. If backward takes as long as the sum, could is one
 *               bucket, and the ratio says little
 *     MB        sent between hosts, all ranks together */
#include "median.h"
#include "rd/clock.h"
#include "rd/comm.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_PARTS = 4096, MAX_CALLS = 101 };

typedef struct bench {
    rd_comm *comm;
    const rd_world *w;
    float *x;
    rd_flow_part part[MAX_PARTS];
    int n_parts, calls;
} bench;

static void sleep_s(double s)
{
    struct timespec t = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    while (s > 0.0 && nanosleep(&t, &t) != 0) continue;
}

typedef struct figures {
    double alone_s, total_s, exposed_s, bytes;
} figures;

/* Runs one step with buckets as in the training loop. In CALLS mode the loop polls between ops,
 * here a hundred times. backward_s 0: nothing is sent before the end. */
static rd_code step(bench *b, rd_flow *f, double backward_s, double s[2], rd_status *st)
{
    enum { SLICES = 100 };
    RD_TRY(rd_comm_barrier(b->comm, st));
    const int64_t begin_ns = rd_now_ns();
    for (int k = 1; k <= SLICES && backward_s > 0.0; k++) {
        sleep_s(backward_s * k / SLICES - (double)(rd_now_ns() - begin_ns) * 1e-9);
        rd_flow_ready(f, b->n_parts * k / SLICES);
        rd_flow_poll(f);
    }
    rd_flow_pause(f);
    RD_TRY(rd_flow_finish(f, st));
    s[0] = rd_flow_last(f)->total_s;
    s[1] = (double)(rd_now_ns() - begin_ns) * 1e-9 - backward_s;
    RD_TRY(rd_comm_max_f64(b->comm, s, 2, st));
done:
    return st->code;
}

/* Measures steps without and with a backward in turns, so that other load affects both. */
static rd_code measure(bench *b, rd_wire wire, rd_flow_mode mode, double backward_s, figures *out,
                       rd_status *st)
{
    double alone[MAX_CALLS], total[MAX_CALLS], exposed[MAX_CALLS], s[2];
    rd_flow *f = NULL;
    RD_TRY(rd_flow_new(b->comm, b->x, b->part, b->n_parts, wire, mode, &f, st));
    for (int i = 0; i < 2; i++) RD_TRY(step(b, f, 0.0, s, st)); /* warm-up */
    for (int i = 0; i < b->calls; i++) {
        RD_TRY(step(b, f, 0.0, s, st));
        alone[i] = s[0];
        RD_TRY(step(b, f, backward_s, s, st));
        total[i] = s[0];
        exposed[i] = s[1];
    }
    double bytes = (double)rd_flow_last(f)->wire_bytes;
    RD_TRY(rd_comm_sum_f64(b->comm, &bytes, 1, st));
    *out = (figures){median(alone, b->calls), median(total, b->calls), median(exposed, b->calls),
                     bytes};
done:
    rd_flow_free(f);
    return st->code;
}

static rd_code sweep(bench *b, rd_wire wire, const char *ways, rd_status *st)
{
    static const double shares[] = {0.0, 0.5, 1.0, 2.0};
    static const char *const names[] = {"late", "calls", "thread", "core"};
    figures f = {0};
    RD_TRY(measure(b, wire, RD_FLOW_LATE, 0.0, &f, st));
    const double whole = f.alone_s;
    for (int mode = RD_FLOW_LATE; mode <= RD_FLOW_CORE; mode++) {
        if (ways && !strstr(ways, names[mode])) continue;
        for (size_t i = mode == RD_FLOW_LATE ? 0 : 1; i < sizeof shares / sizeof *shares; i++) {
            const double backward = shares[i] * whole;
            RD_TRY(measure(b, wire, (rd_flow_mode)mode, backward, &f, st));
            const double hidden = mode == RD_FLOW_LATE ? 0.0 : backward;
            const double could = fmax(f.alone_s / b->n_parts, f.alone_s - hidden);
            if (b->w->rank == 0)
                printf("%-9s %-7s %9.1f %9.1f %9.1f %9.1f %9.1f %8.2f %5.0f %% %9.1f\n",
                       rd_wire_name(wire), names[mode], backward * 1e3, f.alone_s * 1e3,
                       f.total_s * 1e3, f.exposed_s * 1e3, could * 1e3, f.exposed_s / could,
                       100.0 * (f.exposed_s - could) / f.alone_s, f.bytes * 1e-6);
        }
    }
    if (b->w->rank == 0) fflush(stdout);
done:
    return st->code;
}

static const char *text_option(int argc, char **argv, const char *name)
{
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], name, strlen(name)) == 0) return argv[i] + strlen(name);
    return NULL;
}

static double option(int argc, char **argv, const char *name, double dflt)
{
    const char *text = text_option(argc, argv, name);
    return text ? atof(text) : dflt;
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    bench b = {0};
    char why[200];
    const char *ways = text_option(argc, argv, "--ways="),
               *wires = text_option(argc, argv, "--wires=");
    const double mib = option(argc, argv, "--mib=", 64.0),
                 bucket = option(argc, argv, "--bucket_mib=", 4.0);
    const int64_t n = (int64_t)(mib * 262144.0), piece = (int64_t)(bucket * 262144.0);
    b.calls = (int)option(argc, argv, "--calls=", 5.0);
    if (b.calls < 1 || b.calls > MAX_CALLS || piece < 1 || n < piece || n / piece >= MAX_PARTS) {
        fprintf(stderr,
                "usage: overlap [--mib=64] [--bucket_mib=4] [--calls=5, at most %d] "
                "[--ways=late,calls,thread,core] "
                "[--wires=float32,bfloat16,float16]\n",
                MAX_CALLS);
        return 2;
    }
    for (int64_t at = 0; at < n; at += piece)
        b.part[b.n_parts++] = (rd_flow_part){.from = at, .n = at + piece < n ? piece : n - at};
    RD_TRY(rd_comm_start(&argc, &argv, &b.comm, &st));
    b.w = rd_comm_world(b.comm);
    RD_TRY(rd_comm_arena_new(b.comm, n, &b.x, why, &st));
    memset(b.x, 0, (size_t)n * sizeof *b.x);
    if (b.w->n_hosts < 2) {
        rd_fail(
            &st, RD_EUSAGE,
            "one host sends nothing to others; start ranks on several (or with RD_COMM_HOSTS=2)");
        goto done;
    }
    if (b.w->rank == 0)
        printf("%d ranks on %d hosts, %.0f MiB in buckets of %.1f MiB\n%-9s %-7s %9s %9s %9s %9s "
               "%9s %8s %7s %9s\n",
               b.w->size, b.w->n_hosts, mib, bucket, "wire", "way", "backward", "alone ms",
               "total ms", "exposed", "could", "ratio", "over", "MB sent");
    for (int wire = RD_WIRE_F32; wire <= RD_WIRE_F16; wire++)
        if (!wires || strstr(wires, rd_wire_name((rd_wire)wire)))
            RD_TRY(sweep(&b, (rd_wire)wire, ways, &st));
done:
    if (st.code != RD_OK) fprintf(stderr, "overlap: %s\n", st.msg);
    if (st.code != RD_OK && b.comm) rd_comm_abort(b.comm, (int)st.code);
    rd_comm_free(b.comm);
    return (int)st.code;
}
