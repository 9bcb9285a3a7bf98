/* data.c -- tests datasets on N ranks.
 *
 * Each host has one copy of the text. The shards together are the text. Every sample is dealt once.
 * All ranks share failures and standard input. tests/mpi/data.sh runs it with 1 to 4 ranks and with
 * 120 lines "a ... b" on standard input. */
#include "test.h"
#include "rank_check.h"
#include "../../runner/data/data_impl.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LINES = 1003 };

static char dir[64];

static int tokens_of(int64_t i, int side)
{
    return 1 + (int)(i * (side ? 11 : 7) % 23);
}

static void put(const char *name, int lines, int side)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    rd_status st = {0};
    CHECK(f);
    for (int i = 0; i < lines; i++)
        for (int k = 0, n = tokens_of(i, side); k < n; k++)
            fprintf(f, "w%d%c", (i + k) % 50, k + 1 < n ? ' ' : '\n');
    CHECK(fclose(f) == 0);
}

static rd_code open_text(const char *target, rd_mode mode, bool shard, rd_dataset **d,
                         rd_status *st)
{
    char text[1024];
    const int n = snprintf(
        text, sizeof text,
        "{\"src_vocab_file\": \"%s/v\", \"tgt_vocab_file\": \"%s/v\", \"bucket_src\": [10, 20], "
        "\"bucket_tgt\": [22], \"source_file\": \"%s/a\", \"target_file\": \"%s/%s\", "
        "\"source_file_test\": \"-\"}",
        dir, dir, dir, dir, target);
    const rd_option_group *group = rd_dataset_find("parallel_text")->group;
    rd_config *c = NULL;
    *d = NULL;
    if (rd_config_new("test.json", text, (size_t)n, &group, 1, false, &c, st) == RD_OK) {
        const rd_dataset_args a = {.config = c,
                                   .mode = mode,
                                   .split = mode == RD_MODE_INFER ? RD_SPLIT_TEST : RD_SPLIT_TRAIN,
                                   .comm = comm,
                                   .shard = shard,
                                   .keep_all = mode == RD_MODE_INFER};
        (void)rd_dataset_new("parallel_text", &a, d, st);
    }
    rd_config_free(c);
    return st->code;
}

static bool right_sample(const rd_dataset *d, int64_t i, rd_arena *a, rd_status *st)
{
    rd_batch b = {0};
    const rd_mark m = rd_arena_mark(a);
    bool ok = rd_dataset_def_of(d)->fetch(rd_dataset_self(d), &i, 1, a, &b, st) == RD_OK;
    for (int side = 0; side < 2 && ok; side++) {
        const rd_field *f = rd_batch_field(&b, side ? "target" : "source");
        const int n = tokens_of(i, side);
        const int32_t *id = (const int32_t *)f->data;
        ok = f->off[1] == n + 2 && id[0] == RD_SOS && id[n + 1] == RD_EOS;
        for (int k = 0; k < n && ok; k++) ok = id[k + 1] == (i + k) % 50 + 4;
    }
    rd_arena_rewind(a, m);
    return ok;
}

static void check_all(bool shard, char fingerprint[256])
{
    rd_status st = {0};
    rd_dataset *d = NULL;
    rd_arena *a = NULL;
    CHECK(open_text("b", RD_MODE_TRAIN, shard, &d, &st) == RD_OK);
    CHECK(rd_arena_new(1 << 16, &a, &st) == RD_OK);
    const rd_dataset_def *def = rd_dataset_def_of(d);
    void *self = rd_dataset_self(d);
    CHECK(def->count(self) == LINES && def->n_buckets(self) == 2);
    int64_t kept = 0;
    for (int64_t i = 0; i < LINES; i++) {
        const int s = tokens_of(i, 0) + 2, t = tokens_of(i, 1) + 2;
        const int bucket = s > 20 || t > 22 ? -1 : s > 10;
        CHECK(def->bucket(self, i) == bucket);
        CHECK(def->length(self, i) == s + t);
        CHECK(def->here(self, i) == (!shard || i % world->size == world->rank));
        if (def->here(self, i)) CHECK(right_sample(d, i, a, &st));
        kept += bucket >= 0;
    }
    CHECK(kept < LINES && kept > LINES / 2);
    snprintf(fingerprint, 256, "%s", def->fingerprint(self));
    CHECK(rd_comm_same(comm, "data", fingerprint, &st) == RD_OK);

    rd_order *p = NULL;
    int64_t *seen = calloc(LINES, sizeof *seen), mine[64];
    CHECK(seen);
    CHECK(rd_order_new(d, 3, 1, 64, &(rd_order_rules){.shuffle = true}, &p, &st) == RD_OK);
    for (int64_t k = 0; k < rd_order_n_batches(p); k++) {
        const int64_t n = rd_order_deal(p, k, world->rank, world->size, mine);
        for (int64_t i = 0; i < n; i++) {
            CHECK(def->here(self, mine[i]));
            seen[mine[i]]++;
        }
    }
    CHECK(rd_comm_sum_i64(comm, seen, LINES, &st) == RD_OK);
    for (int64_t i = 0; i < LINES; i++) CHECK(seen[i] == (def->bucket(self, i) >= 0));
    CHECK(rd_comm_barrier(comm, &st) == RD_OK);
    free(seen);
    rd_order_free(p);
    rd_arena_free(a);
    rd_dataset_free(d);
}

static void test_shared_and_sharded(void **state)
{
    (void)state;
    char shared[256], sharded[256];
    check_all(false, shared);
    check_all(true, sharded);
    assert_string_equal(shared, sharded);
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
    rd_status st = {0};
    rd_dataset *d = NULL;
    CHECK(open_text("b", RD_MODE_TRAIN, false, &d, &st) == RD_OK);
    CHECK((n_mapped() > 0) == (world->local_size > 1));
    rd_dataset_free(d);
    CHECK(n_mapped() == 0);
    CHECK(open_text("b", RD_MODE_TRAIN, true, &d, &st) ==
          RD_OK); /* the text itself is private, the buckets are not */
    rd_dataset_free(d);
}

static void test_failures_are_shared(void **state)
{
    (void)state;
    for (int shard = 0; shard < 2; shard++) {
        rd_status st = {0}, again = {0};
        rd_dataset *d = NULL;
        CHECK(open_text("short", RD_MODE_TRAIN, shard, &d, &st) == RD_EDATA);
        CHECK(d == NULL && strstr(st.msg, "has 1003 lines") && strstr(st.msg, "has 1000"));
        CHECK(rd_comm_same(comm, "message", st.msg, &again) == RD_OK);
        rd_status none = {0};
        CHECK(open_text("nothing", RD_MODE_TRAIN, shard, &d, &none) == RD_EDATA);
        CHECK(strstr(none.msg, "No such file"));
    }
}

/* Only rank 0 has standard input. */
static void test_standard_input(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_dataset *d = NULL;
    CHECK(open_text("b", RD_MODE_INFER, false, &d, &st) == RD_OK);
    const rd_dataset_def *def = rd_dataset_def_of(d);
    CHECK(def->count(rd_dataset_self(d)) == 120);
    for (int64_t i = 0; i < 120; i++)
        CHECK(def->length(rd_dataset_self(d), i) == 2 + (i % 9 + 1) + 2);
    CHECK(rd_comm_same(comm, "data", def->fingerprint(rd_dataset_self(d)), &st) == RD_OK);
    rd_dataset_free(d);
}

static void make_files(void)
{
    rd_status st = {0};
    if (world->rank == 0) {
        snprintf(dir, sizeof dir, "/tmp/rd-data-XXXXXX");
        CHECK(mkdtemp(dir));
        put("a", LINES, 0);
        put("b", LINES, 1);
        put("short", 1000, 1);
        char path[128];
        snprintf(path, sizeof path, "%s/v", dir);
        FILE *f = fopen(path, "w");
        for (int i = 0; f && i < 50; i++) fprintf(f, "w%d\n", i);
        CHECK(f && fclose(f) == 0);
    }
    CHECK(rd_comm_bcast(comm, dir, sizeof dir, 0, &st) == RD_OK);
}

static void remove_files(void)
{
    static const char *const names[] = {"a", "b", "short", "v"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
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
    const struct CMUnitTest t[] = {
        cmocka_unit_test(test_shared_and_sharded), cmocka_unit_test(test_one_copy_per_host),
        cmocka_unit_test(test_failures_are_shared), cmocka_unit_test(test_standard_input)};
    if (world->rank != 0 && !freopen("/dev/null", "w", stdout))
        return 1; /* rank 0 alone prints the closing lines */
    const int bad = cmocka_run_group_tests_name("data", t, NULL, NULL);
    (void)rd_comm_barrier(comm, &st);
    if (world->rank == 0) remove_files();
    rd_comm_free(comm);
    return bad != 0;
}
