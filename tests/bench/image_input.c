/* image_input.c -- measures how fast an image dataset makes batches, without a model.
 *
 *     build/release/tests/bench/image_input --dataset=idx --set data_dir=mnist
 *         --set augmentation=affine [--batch=128] [--epochs=1] [--seconds=S] [--eval] [--hash]
 *
 * Reads epochs in training order, batch by batch, and announces the next batch as the trainer does.
 * Prints images per second by the clock and by the CPU time of all threads, which is the speed of
 * one core. --hash prints a hash of all batches, which must be the same for every number of
 * threads. */
#include "../../runner/data/data_impl.h"
#include "rd/clock.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct flags {
    const char *dataset;
    int64_t batch, epochs;
    double seconds;
    bool eval, hash;
} flags;

typedef struct totals {
    int64_t n;
    double wall_s, cpu_s;
    uint64_t hash;
} totals;

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static rd_code epoch(const rd_dataset *d, const flags *f, int64_t e, rd_arena *a, totals *t,
                     rd_status *st)
{
    const rd_dataset_def *def = rd_dataset_def_of(d);
    void *self = rd_dataset_self(d);
    rd_order *p = NULL;
    int64_t *ids = malloc((size_t)f->batch * 2 * sizeof *ids), *next = ids + f->batch;
    if (!ids) return rd_fail(st, RD_EENV, "out of memory");
    RD_TRY(rd_order_new(d, 1, e, f->batch, &(rd_order_rules){.shuffle = !f->eval}, &p, st));
    int64_t n = rd_order_deal(p, 0, 0, 1, ids);
    for (int64_t k = 0; k < rd_order_n_batches(p); k++) {
        rd_batch b = {.step = k, .epoch = e};
        const double c0 = cpu_s();
        const int64_t t0 = rd_now_ns();
        RD_TRY(def->fetch(self, ids, n, a, &b, st));
        t->n += n;
        if (k + 1 < rd_order_n_batches(p)) {
            n = rd_order_deal(p, k + 1, 0, 1, next);
            if (def->prepare) def->prepare(self, next, n, e);
        }
        t->wall_s += (double)(rd_now_ns() - t0) * 1e-9;
        t->cpu_s += cpu_s() - c0;
        int64_t *swap = ids;
        ids = next;
        next = swap;
        const rd_field *x = rd_batch_field(&b, "image");
        if (f->hash) t->hash = rd_hash(t->hash, x->data, (size_t)x->off[b.n] * sizeof(float));
        rd_arena_reset(a);
        if (f->seconds > 0 && t->wall_s > f->seconds) break;
    }
done:
    free(ids < next ? ids : next);
    rd_order_free(p);
    return st->code;
}

static rd_code measure(rd_comm *comm, rd_log *log, rd_config *c, const flags *f, rd_status *st)
{
    rd_dataset *d = NULL;
    rd_arena *a = NULL;
    totals t = {0};
    rd_data_spec spec;
    const rd_dataset_args args = {.config = c,
                                  .mode = f->eval ? RD_MODE_EVAL : RD_MODE_TRAIN,
                                  .split = f->eval ? RD_SPLIT_EVAL : RD_SPLIT_TRAIN,
                                  .comm = comm,
                                  .log = log};
    const int64_t t0 = rd_now_ns();
    RD_TRY(rd_dataset_new(f->dataset, &args, &d, st));
    const double open_s = (double)(rd_now_ns() - t0) * 1e-9;
    RD_TRY(rd_arena_new((size_t)1 << 20, &a, st));
    for (int64_t e = 0; e < f->epochs && (f->seconds <= 0 || t.wall_s < f->seconds); e++)
        RD_TRY(epoch(d, f, e, a, &t, st));
    rd_dataset_def_of(d)->spec(rd_dataset_self(d), &spec);
    printf("%s: %" PRId64 " images of %" PRId64 " x %" PRId64 " x %" PRId64
           " in %.2f s: %.0f images/s, %.0f images/s of "
           "processor time; opened in %.2f s",
           f->dataset, t.n, spec.image_h, spec.image_w, spec.image_c, t.wall_s,
           (double)t.n / t.wall_s, (double)t.n / t.cpu_s, open_s);
    if (f->hash) printf("; hash %016" PRIx64, t.hash);
    printf("\n");
done:
    rd_dataset_free(d);
    rd_arena_free(a);
    return st->code;
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    rd_comm *comm = NULL;
    rd_config *c = NULL;
    rd_log *log = NULL;
    flags f = {.dataset = "idx", .batch = 128, .epochs = 1};
    const rd_option_group *groups[32] = {rd_dataset_find("idx")->group};
    int n_groups = 1, n_defs = 0;
    const rd_dataset_def *const *defs = rd_dataset_defs(&n_defs);
    for (int i = 0; i < n_defs && n_groups < 32; i++)
        if (defs[i]->group == groups[0] && defs[i]->own) groups[n_groups++] = defs[i]->own;
    RD_TRY(rd_comm_start(&argc, &argv, &comm, &st));
    RD_TRY(rd_log_new(0, "here", stderr, &log, &st));
    RD_TRY(rd_config_new("flags", "{}", 2, groups, n_groups, true, &c, &st));
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--dataset=", 10) == 0) f.dataset = argv[i] + 10;
        if (strncmp(argv[i], "--batch=", 8) == 0) f.batch = strtoll(argv[i] + 8, NULL, 10);
        if (strncmp(argv[i], "--epochs=", 9) == 0) f.epochs = strtoll(argv[i] + 9, NULL, 10);
        if (strncmp(argv[i], "--seconds=", 10) == 0) f.seconds = strtod(argv[i] + 10, NULL);
        if (strcmp(argv[i], "--eval") == 0) f.eval = true;
        if (strcmp(argv[i], "--hash") == 0) f.hash = true;
        if (strcmp(argv[i], "--set") == 0 && i + 1 < argc) RD_TRY(rd_config_set(c, argv[++i], &st));
    }
    if (f.batch < 1) RD_TRY(rd_fail(&st, RD_EUSAGE, "--batch must be at least 1"));
    (void)measure(comm, log, c, &f, &st);
done:
    if (st.code != RD_OK) fprintf(stderr, "image_input: %s\n", st.msg);
    rd_config_free(c);
    rd_log_free(log);
    rd_comm_free(comm);
    return (int)st.code;
}
