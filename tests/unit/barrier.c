/* barrier.c -- tests the barrier of host_barrier.c, with threads in the place of ranks.
 *
 * What one thread wrote before the barrier, all threads read after it: in 10,000 rounds, with more
 * threads than cores, and while other threads keep the cores busy. barrier.sh runs it under
 * ThreadSanitizer. */
#include "../../runner/comm/host_sum.h"
#include "test.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 9, LOAD = 3 };

typedef struct team {
    int n, rounds, spins;
    unsigned char *map;
    int64_t said[MOST]; /* plain memory: only the barrier orders it */
} team;

typedef struct member {
    team *t;
    int me;
    int64_t wrong;
} member;

static void *take_part(void *p)
{
    member *m = p;
    team *t = m->t;
    rd_host w = {.me = m->me, .n_local = t->n, .spins = t->spins, .map = t->map};
    for (int i = 0; i < t->rounds; i++) {
        t->said[m->me] = (int64_t)i * t->n + m->me;
        rd_host_barrier(&w);
        for (int r = 0; r < t->n; r++) m->wrong += t->said[r] != (int64_t)i * t->n + r;
        rd_host_barrier(&w);
        if ((i * 7 + m->me) % 997 == 0)
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL); /* late now and then */
    }
    return NULL;
}

static void *keep_busy(void *stop)
{
    while (!atomic_load((atomic_bool *)stop)) sched_yield();
    return NULL;
}

static void run(int n, int rounds, int spins, int n_load)
{
    team t = {.n = n,
              .rounds = rounds,
              .spins = spins,
              .map = aligned_alloc(128, rd_host_barrier_bytes(MOST))};
    pthread_t id[MOST], load[LOAD];
    member m[MOST];
    atomic_bool stop = false;
    assert_non_null(t.map);
    memset(t.map, 0, rd_host_barrier_bytes(MOST));
    for (int i = 0; i < n_load; i++)
        assert_int_equal(pthread_create(&load[i], NULL, keep_busy, &stop), 0);
    for (int i = 0; i < n; i++) {
        m[i] = (member){.t = &t, .me = i};
        assert_int_equal(pthread_create(&id[i], NULL, take_part, &m[i]), 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(id[i], NULL);
        assert_int_equal(m[i].wrong, 0);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < n_load; i++) pthread_join(load[i], NULL);
    free(t.map);
}

static int rounds(int n) /* RD_ROUNDS: under a sanitizer fewer are enough */
{
    const char *text = getenv("RD_ROUNDS");
    return text && atoi(text) > 0 && atoi(text) < n ? atoi(text) : n;
}

static void test_one(void **state)
{
    (void)state;
    run(1, rounds(100), 0, 0);
}

static void test_two_that_spin(void **state)
{
    (void)state;
    run(2, rounds(10000), 4000, 0);
}

static void test_crowd(void **state)
{
    (void)state;
    run(MOST, rounds(1000), 0, 0);
}

static void test_under_load(void **state)
{
    (void)state;
    run(3, rounds(10000), 0, LOAD);
}

RD_TESTS("barrier", TEST(test_one), TEST(test_two_that_spin), TEST(test_crowd),
         TEST(test_under_load))
