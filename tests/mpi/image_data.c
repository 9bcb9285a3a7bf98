/* image_data.c -- tests image datasets on N ranks.
 *
 * Each host has one copy of the pixels and of the index. The samples are the same for every
 * number of ranks. All ranks share failures. tests/mpi/image_data.sh runs it with 1 to 4 ranks. */
#include "test.h"
#include "rank_check.h"
#include "../../runner/data/data_impl.h"
#include "image_files.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { N = 57, SIDE = 9 };

static char dir[256];

#define COMMON \
    "'data_dir': '@', 'augmentation': '%s', 'seed': 4, 'n_classes': 10, 'data_threads': %d"

static struct set {
    const char *dataset, *config;
} sets[] = {
    {"idx", "{" COMMON "}"},
    {"webdataset", "{" COMMON ", 'train_data': 'shard-{0..1}.tar', 'image_size': 9}"},
    {"webdataset", "{" COMMON ", 'train_data': 'packed.tar.gz', 'image_size': 9}"},
    {"synthetic_images", "{" COMMON ", 'synthetic_samples': 57, 'image_size': 9}"},
};
enum { SETS = sizeof sets / sizeof sets[0] };

static rd_code open_set(const struct set *s, const char *augment, int threads, rd_comm *c,
                        rd_dataset **d, rd_status *st)
{
    char config[512];
    snprintf(config, sizeof config, s->config, augment, threads);
    return images_open(s->dataset, dir, config, RD_MODE_TRAIN, RD_SPLIT_TRAIN, c, NULL, d, st);
}

/* The plan's batches, dealt to the ranks: together what a world of one has. */
static void check_dealt(const rd_dataset *d, const float *want, int64_t each)
{
    rd_status st = {0};
    rd_order *p;
    rd_arena *a;
    int64_t ids[20], seen[N] = {0};
    CHECK(rd_arena_new(1 << 16, &a, &st) == RD_OK);
    CHECK(rd_order_new(d, 1, 2, 20, &(rd_order_rules){.shuffle = true, .unit = 4}, &p, &st) ==
          RD_OK);
    for (int64_t k = 0; k < rd_order_n_batches(p); k++) {
        const int64_t n = rd_order_deal(p, k, world->rank, world->size, ids);
        rd_batch b = {.epoch = 2};
        CHECK(rd_dataset_def_of(d)->fetch(rd_dataset_self(d), ids, n, a, &b, &st) == RD_OK);
        CHECK(b.n == n && b.epoch == 2);
        for (int64_t i = 0; i < n; i++) {
            CHECK(memcmp((const float *)b.field[0].data + i * each, want + ids[i] * each,
                         (size_t)each * sizeof *want) == 0);
            seen[ids[i]]++;
        }
        rd_arena_reset(a);
    }
    CHECK(rd_comm_sum_i64(comm, seen, N, &st) == RD_OK);
    for (int i = 0; i < N; i++) CHECK(seen[i] == 1);
    rd_order_free(p);
    rd_arena_free(a);
}

static void test_same_on_all(void **state)
{
    (void)state;
    for (int k = 0; k < SETS; k++) {
        rd_status st = {0};
        rd_dataset *alone, *d;
        rd_data_spec spec;
        float *want;
        int64_t n;
        CHECK(open_set(&sets[k], "crop_flip", 0, NULL, &alone, &st) == RD_OK);
        CHECK(images_all(alone, 10, 2, &want, &n, NULL, &st) == RD_OK);
        CHECK(n == N);
        CHECK(open_set(&sets[k], "crop_flip", world->rank % 3, comm, &d, &st) == RD_OK);
        rd_dataset_def_of(d)->spec(rd_dataset_self(d), &spec);
        check_dealt(d, want, spec.image_h * spec.image_w * spec.image_c);
        CHECK(rd_comm_same(comm, "data", rd_dataset_def_of(d)->fingerprint(rd_dataset_self(d)),
                           &st) == RD_OK);
        CHECK(strcmp(rd_dataset_def_of(d)->fingerprint(rd_dataset_self(d)),
                     rd_dataset_def_of(alone)->fingerprint(rd_dataset_self(alone))) == 0);
        rd_dataset_free(d);
        rd_dataset_free(alone);
        free(want);
    }
}

/* Pages of the memory file are mapped once by each rank of the host, and gone with the dataset. */
static int n_mapped(void)
{
    char line[512];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f)) n += strstr(line, "run_dist-data") != NULL;
    if (f) fclose(f);
    return n;
}

static void test_one_copy_per_host(void **state)
{
    (void)state;
    for (int k = 0; k < SETS; k++) {
        rd_status st = {0};
        rd_dataset *d;
        CHECK(open_set(&sets[k], "none", 0, comm, &d, &st) == RD_OK);
        CHECK((n_mapped() > 0) == (world->local_size > 1));
        rd_dataset_free(d);
        CHECK(n_mapped() == 0);
    }
}

/* The reading rank alone finds it; all leave with its words. */
static void test_failures_are_shared(void **state)
{
    (void)state;
    static const struct {
        struct set set;
        rd_code code;
        const char *says;
    } bad[] = {
        {{"idx", "{" COMMON ", 'train_data': 'none-images-idx3'}"}, RD_EDATA, "No such file"},
        {{"webdataset", "{" COMMON ", 'train_data': 'shard-{0..2}.tar'}"}, RD_EDATA, "shard-2.tar"},
        {{"webdataset", "{" COMMON "}"}, RD_EUSAGE, "train_data"},
        {{"image_folder", "{" COMMON "}"}, RD_EDATA, "there is no folder"},
    };
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        rd_status st = {0}, same = {0};
        rd_dataset *d;
        CHECK(open_set(&bad[k].set, "none", 0, comm, &d, &st) == bad[k].code);
        CHECK(d == NULL && strstr(st.msg, bad[k].says));
        CHECK(rd_comm_same(comm, "message", st.msg, &same) == RD_OK);
    }
}

static const char *at(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void put_tar(const char *name, int from, int to)
{
    tar_out *t = tar_out_new(at(name));
    for (int i = from; i < to; i++) {
        char key[32], text[8];
        uint8_t *p;
        const size_t n = picture_jpeg(20, 30, 3, (unsigned)i, &p);
        snprintf(key, sizeof key, "%03d.jpg", i);
        tar_out_put(t, key, p, n);
        free(p);
        snprintf(key, sizeof key, "%03d.cls", i);
        tar_out_put(t, key, text, (size_t)snprintf(text, sizeof text, "%d", i % 10));
    }
    tar_out_end(t);
}

static void make_files(void)
{
    rd_status st = {0};
    if (world->rank == 0) {
        files_begin(dir);
        uint8_t images[16 + N * SIDE * SIDE] = {0, 0, 8, 3,    0, 0, 0, N,
                                                0, 0, 0, SIDE, 0, 0, 0, SIDE};
        uint8_t labels[8 + N] = {0, 0, 8, 1, 0, 0, 0, N};
        picture(N * SIDE, SIDE, 1, 3, images + 16);
        for (int i = 0; i < N; i++) labels[8 + i] = (uint8_t)(i % 10);
        files_put_gz(at("train-images-idx3-ubyte.gz"), images, sizeof images);
        files_put(at("train-labels-idx1-ubyte"), labels, sizeof labels);
        put_tar("shard-0.tar", 0, 30);
        put_tar("shard-1.tar", 30, N);
        put_tar("packed.tar.gz", 0, N);
    }
    CHECK(rd_comm_bcast(comm, dir, sizeof dir, 0, &st) == RD_OK);
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    if (rd_comm_start(&argc, &argv, &comm, &st) != RD_OK) {
        fprintf(stderr, "%s\n", st.msg);
        return (int)st.code;
    }
    world = rd_comm_world(comm);
    make_files();
    const struct CMUnitTest t[] = {cmocka_unit_test(test_same_on_all),
                                   cmocka_unit_test(test_one_copy_per_host),
                                   cmocka_unit_test(test_failures_are_shared)};
    if (world->rank != 0 && !freopen("/dev/null", "w", stdout))
        return 1; /* rank 0 alone prints the closing lines */
    const int bad = cmocka_run_group_tests_name("image data", t, NULL, NULL);
    (void)rd_comm_barrier(comm, &st);
    if (world->rank == 0) files_end(dir);
    rd_comm_free(comm);
    return bad != 0;
}
