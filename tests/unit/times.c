/* times.c -- tests the figures of a window of steps over the ranks. */
#include "../../runner/comm/comm_impl.h"
#include "../../runner/run/run.h"
#include "../../runner/run/times.h"
#include "test.h"

/* The share of the exchange is that of the rank's own time, which is longer than its steps: half of
 * this window came between steps. */
static void test_exposed_share(void **state)
{
    rd_status st = {0};
    rd_run r = {0};
    rank_times out;
    const times_window w = {
        .steps = 4.0, .busy_s = 1.0, .comm_s = 2.0, .exposed_s = 2.0, .bytes = 8.0, .wall_s = 8.0};
    (void)state;
    must_do(rd_comm_self_new(&r.comm, &st), &st);
    r.world = rd_comm_world(r.comm);
    must_do(times_gather(&r, &w, &out, &st), &st);
    assert_true(out.exposed_share == 0.25);
    assert_true(out.exposed_s == 0.5 && out.bytes == 2.0 && out.mean_s == 0.25);
    rd_comm_free(r.comm);
}

RD_TESTS("times", TEST(test_exposed_share))
