/* bench_data.c -- tests how the synthetic pairs of a step are dealt to the ranks. */
#include "../../runner/bench/bench.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

enum { BATCH = 64, MAX_RANKS = 5 };

/* Makes the batch of one rank. Returns the sum of its lengths, and marks its samples. */
static int64_t dealt(int rank, int size, int64_t step, rd_ints lengths, int *seen, int64_t *longest)
{
    const rd_world world = {.rank = rank, .size = size};
    rd_status st = {0};
    rd_run run = {.world = &world, .seed = 7, .global_batch = (int64_t)BATCH * size};
    bench b = {
        .run = &run,
        .config = {
            .bench_lengths = lengths, .bench_min_len = 3, .bench_max_len = 60, .bench_vocab = 100}};
    rd_batch out;
    int64_t sum = 0;
    run.config.batch_size = BATCH;
    run.progress.step = step;
    must_do(rd_arena_new(1 << 20, &run.batch_arena, &st), &st);
    must_do(bench_synthetic_batch(&b.stepper, &out, &st), &st);
    assert_int_equal(out.n, BATCH);
    for (int64_t i = 0; i < out.n; i++) {
        const int64_t at = out.sample[i] - step * run.global_batch;
        int64_t length = 0;
        assert_true(at >= 0 && at < run.global_batch);
        seen[at]++;
        for (int k = 0; k < 2; k++) length += out.field[k].off[i + 1] - out.field[k].off[i];
        if (length > *longest) *longest = length;
        sum += length;
    }
    rd_arena_free(run.batch_arena);
    return sum;
}

/* Every sample belongs to one rank. The sums of the ranks differ by at most the longest pair. */
static void test_dealing(void **state)
{
    const int64_t of_text[] = {4, 6, 5, 9, 30, 24, 57, 64, 12, 13};
    const rd_ints lists[] = {{0}, {.at = of_text, .n = 10}};
    (void)state;
    for (int size = 1; size <= MAX_RANKS; size++)
        for (int64_t step = 0; step < 3; step++)
            for (int k = 0; k < 2; k++) {
                int seen[BATCH * MAX_RANKS] = {0};
                int64_t least = INT64_MAX, most = 0, longest = 0;
                for (int rank = 0; rank < size; rank++) {
                    const int64_t sum = dealt(rank, size, step, lists[k], seen, &longest);
                    if (sum < least) least = sum;
                    if (sum > most) most = sum;
                }
                for (int i = 0; i < BATCH * size; i++) assert_int_equal(seen[i], 1);
                assert_true(most - least <= longest);
            }
}

RD_TESTS("bench_data", TEST(test_dealing))
