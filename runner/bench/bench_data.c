/* bench_data.c -- synthetic data of bench mode, the same for every number of ranks.
 *
 * Images: one batch, made before the first step and used in every step, as in tf_cnn_benchmarks.
 * Pixels come from a normal distribution of mean 127 and deviation 60, cut at two deviations,
 * mapped by x / 127.5 - 1. Labels are uniform. So input costs nothing.
 *
 * Sentences: random words, new in every step because lengths determine a step's cost. Lengths are
 * uniform in [bench_min_len, bench_max_len], or pairs drawn from bench_lengths. The pairs of a step
 * are sorted by length and dealt to the ranks, as in training. Making them takes less than a
 * thousandth of the step. */
#include "bench.h"
#include "../run/device.h"
#include "../run/setup.h"
#include "../run/world.h"
#include "rd/philox.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct data_shape {
    /* dataset: default dataset of the models with images of this shape */
    const char *name, *dataset;
    int64_t h, w, c, n_classes, n_epoch;
} data_shape;
static const data_shape shapes[] = {{"imagenet", "image_folder", 224, 224, 3, 1000, 1281167},
                                    {"cifar10", "cifar", 32, 32, 3, 10, 50000},
                                    {"cifar100", NULL, 32, 32, 3, 100, 50000},
                                    {"mnist", "idx", 28, 28, 1, 10, 60000}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };
const char *const bench_data_names[] = {"imagenet", "cifar10", "cifar100", "mnist", NULL};

rd_code bench_synthetic_spec(bench *b, rd_data_spec *out, rd_status *st)
{
    static const char *const labels[N_SHAPES] = {"imagenet (synthetic)", "cifar10 (synthetic)",
                                                 "cifar100 (synthetic)", "mnist (synthetic)"};
    const char *want = b->config.bench_data, *dataset = b->run->model->default_dataset;
    int k = -1;
    if (!b->images) {
        if (b->config.bench_lengths.n % 2 != 0)
            return rd_fail(st, RD_EUSAGE,
                           "%s: 'bench_lengths' has %d numbers; it needs two for each pair, the "
                           "lengths of source and target",
                           rd_config_where(b->run->keys, "bench_lengths"),
                           b->config.bench_lengths.n);
        *out = (rd_data_spec){.src_vocab_size = b->config.bench_vocab,
                              .tgt_vocab_size = b->config.bench_vocab};
        b->data = "sentences (synthetic)";
        return RD_OK;
    }
    for (int i = 0; i < N_SHAPES && k < 0; i++) {
        const char *is = want ? shapes[i].name : shapes[i].dataset;
        if (is && strcmp(is, want ? want : dataset ? dataset : "") == 0) k = i;
    }
    if (k < 0)
        return rd_fail(st, RD_EUSAGE,
                       "the shape of the images for model '%s' is not known; set 'bench_data', or "
                       "use real data (key 'dataset')",
                       b->run->model->name);
    const int64_t h = (int64_t)run_real(b->run, "image_size", 0.0),
                  w = (int64_t)run_real(b->run, "image_width", 0.0),
                  c = (int64_t)run_real(b->run, "image_channels", 0.0),
                  v = (int64_t)run_real(b->run, "n_classes", 0.0);
    *out = (rd_data_spec){.n_classes = v > 0 ? v : shapes[k].n_classes,
                          .image_h = h > 0 ? h : shapes[k].h,
                          .image_w = w > 0   ? w
                                     : h > 0 ? h
                                             : shapes[k].w,
                          .image_c = c > 0 ? c : shapes[k].c};
    b->data = labels[k];
    b->n_epoch = shapes[k].n_epoch;
    return RD_OK;
}

/* Draws n normal numbers, again beyond two deviations: sample by sample, by Box and Muller. */
static void normal(rd_key key, uint64_t sample, int64_t n, float *out)
{
    enum { BLOCK = 4096 };
    float u[BLOCK];
    uint64_t block = 0;
    for (int64_t i = 0; i < n; block++) {
        rd_philox_uniform(key, (sample << 24) + block, BLOCK, u);
        for (int j = 0; j + 1 < BLOCK && i < n; j += 2) {
            const float r = sqrtf(-2.0f * logf(1.0f - u[j])), a = 6.2831853f * u[j + 1];
            const float z[2] = {r * cosf(a), r * sinf(a)};
            for (int k = 0; k < 2 && i < n; k++)
                if (fabsf(z[k]) <= 2.0f) out[i++] = (127.0f + 60.0f * z[k]) / 127.5f - 1.0f;
        }
    }
}

static rd_code make_images(bench *b, rd_status *st)
{
    const rd_run *r = b->run;
    const int64_t n = r->config.batch_size, first = r->world->rank * n, h = r->spec.image_h,
                  w = r->spec.image_w, c = r->spec.image_c, each = h * w * c;
    const rd_key pixels = rd_key_make(r->seed, RD_RNG_TEST, 2, 0),
                 classes = rd_key_make(r->seed, RD_RNG_TEST, 3, 0);
    int64_t *off = NULL, *one = NULL, *sample = NULL;
    float *x = NULL;
    int32_t *label = NULL;
    size_t bytes = 0;
    if (__builtin_mul_overflow((size_t)n * sizeof *x, (size_t)each, &bytes))
        return rd_fail(st, RD_EUSAGE,
                       "a batch of %" PRId64 " images of %" PRId64 " x %" PRId64
                       " does not fit into memory",
                       n, h, w);
    RD_TRY(rd_arena_get(r->batch_arena, bytes, &x, st));
    RD_TRY(rd_arena_get(r->batch_arena, (size_t)n * sizeof *label, &label, st));
    RD_TRY(rd_arena_get(r->batch_arena, (size_t)n * sizeof *sample, &sample, st));
    RD_TRY(rd_arena_get(r->batch_arena, (size_t)(n + 1) * sizeof *off, &off, st));
    RD_TRY(rd_arena_get(r->batch_arena, (size_t)(n + 1) * sizeof *one, &one, st));
    for (int64_t i = 0; i < n; i++) {
        float u = 0.0f;
        rd_philox_uniform(classes, (uint64_t)(first + i), 1, &u);
        label[i] = (int32_t)(u * (float)r->spec.n_classes);
        if (label[i] >= r->spec.n_classes)
            label[i] = (int32_t)r->spec.n_classes - 1; /* the product was rounded up */
        normal(pixels, (uint64_t)(first + i), each, x + i * each);
        sample[i] = first + i;
    }
    for (int64_t i = 0; i <= n; i++) off[i] = i * each, one[i] = i;
    b->fixed = (rd_batch){.n_global = r->global_batch, .n = n, .sample = sample, .n_fields = 2};
    b->fixed.field[0] = (rd_field){
        .name = "image", .dtype = RD_F32, .data = x, .off = off, .n_dim = 3, .dim = {h, w, c}};
    b->fixed.field[1] = (rd_field){.name = "label", .dtype = RD_I32, .data = label, .off = one};
done:
    return st->code;
}

/* Returns the largest length of a side. */
static int64_t side_longest(const bench_config *c, uint64_t side)
{
    int64_t most = c->bench_max_len > c->bench_min_len ? c->bench_max_len : c->bench_min_len;
    if (c->bench_lengths.n > 0) most = 0;
    for (int i = (int)side; i < c->bench_lengths.n; i += 2)
        if (c->bench_lengths.at[i] > most) most = c->bench_lengths.at[i];
    return most;
}

/* Returns the length of a side of pair `sample`. u: uniform in [0, 1), for this side alone. */
static int64_t side_length(const bench *b, uint64_t sample, uint64_t side, float u)
{
    const bench_config *c = &b->config;
    const int64_t lo = c->bench_min_len, n = c->bench_lengths.n / 2;
    float both;
    if (n == 0) return lo + (int64_t)((double)u * (double)(side_longest(c, side) - lo + 1));
    rd_philox_uniform(rd_key_make(b->run->seed, RD_RNG_TEST, 4, 0), sample, 1, &both);
    return c->bench_lengths.at[2 * (int64_t)((double)both * (double)n) + (int64_t)side];
}

/* A pair of a step, and the sum of its lengths. */
typedef struct pair {
    int64_t sample, length;
} pair;

static int longest_first(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    if (x->length != y->length) return x->length > y->length ? -1 : 1;
    return (x->sample > y->sample) - (x->sample < y->sample);
}

/* Returns whether all pairs have the same lengths. */
static bool same_lengths(const bench_config *c)
{
    for (int i = 2; i < c->bench_lengths.n; i++)
        if (c->bench_lengths.at[i] != c->bench_lengths.at[i - 2]) return false;
    return c->bench_lengths.n > 0 || c->bench_max_len <= c->bench_min_len;
}

/* Deals the pairs of a step to the ranks. first: number of its first sample; sample: [n] of this
 * rank. */
static rd_code deal_pairs(const bench *b, int64_t first, int64_t n, int64_t *sample, rd_status *st)
{
    rd_run *r = b->run;
    const int64_t all = n * r->world->size,
                  hi[2] = {side_longest(&b->config, 0), side_longest(&b->config, 1)};
    int64_t mine = 0;
    pair *p = NULL;
    float *u = NULL; /* as in make_side: the last one draws the length */
    RD_TRY(rd_arena_get(r->batch_arena, (size_t)all * sizeof *p, &p, st));
    RD_TRY(rd_arena_get(r->batch_arena, (size_t)(hi[0] + hi[1] + 1) * sizeof *u, &u, st));
    for (int64_t i = 0; i < all; i++) {
        p[i] = (pair){.sample = first + i};
        for (uint64_t side = 0; side < 2 && !same_lengths(&b->config); side++) {
            u[hi[side]] = 0.0f;
            if (b->config.bench_lengths.n == 0)
                rd_philox_uniform(rd_key_make(r->seed, RD_RNG_TEST, side, 0), (uint64_t)(first + i),
                                  hi[side] + 1, u);
            p[i].length += side_length(b, (uint64_t)(first + i), side, u[hi[side]]);
        }
    }
    qsort(p, (size_t)all, sizeof *p, longest_first);
    for (int64_t i = 0; i < all; i++)
        if (rd_order_is_dealt(i, r->world->rank, r->world->size)) sample[mine++] = p[i].sample;
    rd_assert(mine == n);
done:
    return st->code;
}

static rd_code make_side(const bench *b, const char *name, const int64_t *sample, int64_t n,
                         uint64_t side, rd_field *f, rd_status *st)
{
    rd_run *r = b->run;
    const int64_t hi = side_longest(&b->config, side);
    const rd_key key = rd_key_make(r->seed, RD_RNG_TEST, side, 0);
    int64_t *off = NULL, total = 0;
    int32_t *ids = NULL;
    float *u = NULL;
    RD_TRY(rd_arena_get(r->batch_arena, (size_t)(n + 1) * sizeof *off, &off, st));
    RD_TRY(rd_arena_get(r->batch_arena, (size_t)(n * hi + 1) * sizeof *ids, &ids, st));
    RD_TRY(rd_arena_get(r->batch_arena, (size_t)(hi + 1) * sizeof *u, &u, st));
    for (int64_t i = 0; i < n; i++) {
        rd_philox_uniform(key, (uint64_t)sample[i], hi + 1, u);
        const int64_t len = side_length(b, (uint64_t)sample[i], side, u[hi]);
        off[i] = total;
        for (int64_t t = 0; t < len; t++)
            ids[total++] = (int32_t)(RD_N_SPECIAL + (int64_t)(u[t] * (float)(b->config.bench_vocab -
                                                                             RD_N_SPECIAL)));
        ids[off[i]] = RD_SOS;
        ids[total - 1] = RD_EOS;
    }
    off[n] = total;
    *f = (rd_field){.name = name, .dtype = RD_I32, .data = ids, .off = off};
done:
    return st->code;
}

rd_code bench_synthetic_batch(stepper *s, rd_batch *out, rd_status *st)
{
    bench *b = (bench *)(void *)s;
    rd_run *r = b->run;
    const int64_t n = r->config.batch_size, first = r->progress.step * r->global_batch;
    int64_t *sample = NULL;
    if (b->images) {
        if (b->fixed.n == 0) RD_TRY(make_images(b, st));
        *out = b->fixed;
        /* the epoch makes other dropout masks in each step */
        out->step = out->epoch = r->progress.step;
        return RD_OK;
    }
    RD_TRY(device_fresh_batch(r, st));
    RD_TRY(rd_arena_get(r->batch_arena, (size_t)n * sizeof *sample, &sample, st));
    RD_TRY(deal_pairs(b, first, n, sample, st));
    *out = (rd_batch){.step = r->progress.step,
                      .n_global = r->global_batch,
                      .n = n,
                      .sample = sample,
                      .n_fields = 2};
    RD_TRY(make_side(b, "source", sample, n, 0, &out->field[0], st));
    RD_TRY(make_side(b, "target", sample, n, 1, &out->field[1], st));
done:
    return st->code;
}

rd_code bench_open(bench *b, rd_status *st)
{
    rd_run *r = b->run;
    rd_data_spec spec = {0};
    if (st->code == RD_OK && b->config.bench_synthetic && !r->config.has_batch_size)
        rd_fail(st, RD_EUSAGE,
                "%s: 'bench_synthetic' needs 'batch_size', the samples of each rank; add --set "
                "batch_size=32, or measure the training data",
                rd_config_where(r->keys, "bench_synthetic"));
    if (st->code == RD_OK && b->config.bench_synthetic) (void)bench_synthetic_spec(b, &spec, st);
    RD_TRY(run_agree(r, st));
    if (b->config.bench_synthetic) {
        b->stepper.make = bench_synthetic_batch;
    } else {
        RD_TRY(setup_data(r, RD_SPLIT_TRAIN, &r->train_data, st));
        rd_dataset_def_of(r->train_data)->spec(rd_dataset_self(r->train_data), &spec);
        b->data = rd_dataset_def_of(r->train_data)->name;
        if (!r->config.has_batch_size) {
            RD_TRY(setup_updates(r, st));
            r->config.batch_size = (r->global_batch + r->world->size - 1) / r->world->size;
        }
    }
    RD_TRY(setup_model(r, &spec, true, st));
    RD_TRY(world_check(r, st));
done:
    return st->code;
}
