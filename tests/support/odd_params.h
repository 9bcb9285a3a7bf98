/* odd_params.h -- parameters for tests of an update that ranks divide.
 *
 * Their shapes hit every way of cutting. Running statistics and a frozen parameter are between
 * them. */
#ifndef RD_TESTS_ODD_PARAMS_H
#define RD_TESTS_ODD_PARAMS_H

#include "rank_check.h"
#include "rd/params.h"
#include <math.h>

enum { ODD_FROZEN = 3, ODD_PARAMS = 8 };

/* Returns the parameters with the same values on every rank. The caller frees them. */
static rd_params *odd_params_new(void)
{
    static const struct {
        const char *name;
        int64_t dim[2];
        unsigned flags;
    } shapes[] = {{"matrix", {197, 231}, 0},
                  {"long_rows", {5, 5003}, RD_PARAM_ROWS},
                  {"table", {3301, 7}, RD_PARAM_ROWS},
                  {"bias", {13, 1}, RD_PARAM_NO_DECAY},
                  {"scalar", {1, 1}, 0},
                  {"last", {64, 300}, 0}};
    const rd_init init = {.kind = RD_INIT_NORMAL, .value = 0.5};
    rd_status st = {0};
    rd_params *p;
    rd_param *q;
    CHECK(rd_params_new(&p, &st) == RD_OK);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        CHECK(rd_params_add(p, shapes[i].name, 2, shapes[i].dim, init, shapes[i].flags, &q, &st) ==
              RD_OK);
        if (i + 1 != ODD_FROZEN) continue;
        CHECK(rd_params_add(p, "frozen", 2, (int64_t[]){43, 1003}, init, RD_PARAM_ROWS, &q, &st) ==
              RD_OK);
        rd_params_freeze(p, q);
        CHECK(rd_params_add_state(p, "mean", 5000, 1.0, 0.9, &q, &st) == RD_OK);
    }
    CHECK(rd_params_n(p) == ODD_PARAMS);
    CHECK(rd_params_at(p, ODD_FROZEN)->flags == RD_PARAM_FROZEN);
    CHECK(rd_params_seal(p, 7, NAN, &st) == RD_OK);
    return p;
}

#endif
