/* sparse.c -- compares sums of an embedding's gradient: touched rows or the whole table.
 *
 *     mpirun -np 2 build/release/tests/bench/sparse [--rows=32768] [--dim=512] [--tokens=2560]
 *         [--calls=9]
 *
 * Every rank touches the rows of --tokens tokens (64 sentences of 40) that follow Zipf's law over
 * the vocabulary, as a training step does. Then the share of touched rows, which are drawn at
 * random, goes from 1 % to 100 %. Prints one line for each:
 *
 *     touched    rows of one rank, and of all ranks together
 *     whole      ms of rd_comm_sum_f32 over the table, in the shared arena that trainings use
 *     rows       ms of rd_comm_sum_rows_f32, with the exchange of the sets of rows
 *     zero       ms of zeroing the whole table before the next step, and of its touched rows
 *
 * Times are those of the slowest rank, medians over calls; whole and rows are measured in turns.
 * Works on any number of hosts. */
#include "median.h"
#include "rd/clock.h"
#include "rd/comm_rows.h"
#include "rd/philox.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CALLS = 101 };

typedef struct bench {
    rd_comm *comm;
    const rd_world *w;
    rd_comm_rows *t;
    int64_t rows, dim, tokens;
    int calls;
    float *x;             /* the table */
    uint64_t *mine, *all; /* sets of rows: of this rank, and of a call */
    double *sum;          /* [rows]: cumulative distribution of Zipf's law */
} bench;

static void draw_zipf(bench *b)
{
    const rd_key key = rd_key_make(7, RD_RNG_INIT, (uint64_t)b->w->rank, 0);
    float *u = malloc((size_t)b->tokens * sizeof *u);
    memset(b->mine, 0, (size_t)rd_row_set_words(b->rows) * sizeof *b->mine);
    if (!u) return;
    rd_philox_uniform(key, 0, b->tokens, u);
    for (int64_t i = 0; i < b->tokens; i++) {
        int64_t lo = 0, hi = b->rows - 1; /* searches the first row whose sum reaches the number */
        while (lo < hi) {
            const int64_t mid = (lo + hi) / 2;
            if (b->sum[mid] >= (double)u[i] * b->sum[b->rows - 1])
                hi = mid;
            else
                lo = mid + 1;
        }
        b->mine[lo / 64] |= UINT64_C(1) << lo % 64;
    }
    free(u);
}

static void draw_share(bench *b, double share)
{
    const rd_key key = rd_key_make(8, RD_RNG_INIT, (uint64_t)b->w->rank, (uint64_t)(share * 1e6));
    float *u = malloc((size_t)b->rows * sizeof *u);
    memset(b->mine, 0, (size_t)rd_row_set_words(b->rows) * sizeof *b->mine);
    if (!u) return;
    rd_philox_uniform(key, 0, b->rows, u);
    for (int64_t i = 0; i < b->rows; i++)
        if ((double)u[i] < share) b->mine[i / 64] |= UINT64_C(1) << i % 64;
    free(u);
}

/* Does what backward does: writes the rows of this rank; the others stay zero. */
static void fill(bench *b)
{
    for (int64_t i = 0; i < b->rows; i++)
        for (int64_t j = 0; j < b->dim && b->mine[i / 64] >> i % 64 & 1; j++)
            b->x[i * b->dim + j] = 1.0f;
}

enum { WHOLE, ROWS, ZERO_WHOLE, ZERO_ROWS, N_KINDS };

static rd_code once(bench *b, int kind, rd_status *st)
{
    const int64_t n = b->rows * b->dim;
    if (kind == WHOLE) return rd_comm_sum_f32(b->comm, b->x, n, st);
    if (kind == ROWS) return rd_comm_sum_rows_f32(b->t, b->x, b->all, NULL, st);
    if (kind == ZERO_WHOLE)
        memset(b->x, 0, (size_t)n * sizeof *b->x);
    else
        rd_row_set_zero(b->x, b->rows, b->dim, b->all);
    return st->code;
}

static rd_code one_line(bench *b, const char *label, rd_status *st)
{
    static double t[N_KINDS][MAX_CALLS];
    double ms[N_KINDS];
    const size_t words = (size_t)rd_row_set_words(b->rows);
    static const int order[N_KINDS] = {WHOLE, ZERO_WHOLE, ROWS, ZERO_ROWS};
    for (int i = -1; i < b->calls; i++) /* call -1 is the warm-up */
        for (int k = 0; k < N_KINDS; k++) {
            if (order[k] == WHOLE || order[k] == ROWS) fill(b);
            if (order[k] == ROWS) memcpy(b->all, b->mine, words * sizeof *b->all);
            RD_TRY(rd_comm_barrier(b->comm, st));
            const int64_t begin = rd_now_ns();
            RD_TRY(once(b, order[k], st));
            double s = (double)(rd_now_ns() - begin) * 1e-6;
            RD_TRY(rd_comm_max_f64(b->comm, &s, 1, st));
            if (i >= 0) t[order[k]][i] = s;
        }
    for (int k = 0; k < N_KINDS; k++) ms[k] = median(t[k], b->calls);
    if (b->w->rank == 0) {
        printf("%8s %8lld %8lld %10.3f %10.3f %7.2fx %10.3f %10.3f\n", label,
               (long long)rd_row_set_count(b->mine, b->rows),
               (long long)rd_row_set_count(b->all, b->rows), ms[WHOLE], ms[ROWS],
               ms[WHOLE] / ms[ROWS], ms[ZERO_WHOLE], ms[ZERO_ROWS]);
        fflush(stdout);
    }
done:
    return st->code;
}

static rd_code run(bench *b, rd_status *st)
{
    static const double shares[] = {0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0};
    char why[200], label[16];
    const size_t words = (size_t)rd_row_set_words(b->rows);
    RD_TRY(rd_comm_arena_new(b->comm, b->rows * b->dim, &b->x, why, st));
    RD_TRY(rd_comm_rows_new(b->comm, b->rows, b->dim, RD_WIRE_F32, &b->t, st));
    b->mine = calloc(words, sizeof *b->mine);
    b->all = calloc(words, sizeof *b->all);
    b->sum = calloc((size_t)b->rows, sizeof *b->sum);
    if (!b->mine || !b->all || !b->sum) rd_fail(st, RD_EENV, "out of memory; lower --rows");
    RD_TRY(rd_comm_agree(b->comm, st));
    for (int64_t i = 0; i < b->rows; i++)
        b->sum[i] = (i ? b->sum[i - 1] : 0.0) + 1.0 / (double)(i + 1);
    if (b->w->rank == 0) {
        printf("%d ranks on %d hosts, a table of %lld x %lld (%.1f MiB), %s\n", b->w->size,
               b->w->n_hosts, (long long)b->rows, (long long)b->dim,
               (double)(b->rows * b->dim) * 4 / 1048576, rd_comm_note(b->comm));
        printf("%8s %8s %8s %10s %10s %8s %10s %10s\n", "touched", "a rank", "together", "whole ms",
               "rows ms", "faster", "zero whole", "zero rows");
    }
    draw_zipf(b);
    RD_TRY(one_line(b, "Zipf", st));
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        snprintf(label, sizeof label, "%.0f %%", shares[i] * 100);
        draw_share(b, shares[i]);
        RD_TRY(one_line(b, label, st));
    }
done:
    rd_comm_rows_free(b->t);
    free(b->mine);
    free(b->all);
    free(b->sum);
    return st->code;
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    bench b = {.rows = 32768, .dim = 512, .tokens = 64 * 40, .calls = 9};
    if (rd_comm_start(&argc, &argv, &b.comm, &st) == RD_OK) {
        b.w = rd_comm_world(b.comm);
        for (int i = 1; i < argc; i++) {
            if (strncmp(argv[i], "--rows=", 7) == 0) b.rows = strtoll(argv[i] + 7, NULL, 10);
            if (strncmp(argv[i], "--dim=", 6) == 0) b.dim = strtoll(argv[i] + 6, NULL, 10);
            if (strncmp(argv[i], "--tokens=", 9) == 0) b.tokens = strtoll(argv[i] + 9, NULL, 10);
            if (strncmp(argv[i], "--calls=", 8) == 0) b.calls = atoi(argv[i] + 8);
        }
        if (b.w->size < 2 || b.rows < 1 || b.dim < 1 || b.tokens < 0 || b.calls < 1 ||
            b.calls > MAX_CALLS || b.rows > INT64_C(1) << 32 || b.dim > 1 << 20)
            rd_fail(&st, RD_EUSAGE,
                    "start it with 2 ranks or more, --rows, --dim, --tokens above 0, --calls to %d",
                    (int)MAX_CALLS);
        else
            (void)run(&b, &st);
    }
    if (st.code != RD_OK) fprintf(stderr, "sparse: %s\n", st.msg);
    if (st.code != RD_OK && b.w && b.w->size > 1 && st.code != RD_EUSAGE)
        rd_comm_abort(b.comm, st.code);
    rd_comm_free(b.comm);
    return st.code;
}
