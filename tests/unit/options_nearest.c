/* options_nearest.c -- which known word is near. The distances are by hand, from the definition. */
#include "rd/options.h"
#include "test.h"
#include <string.h>

static const char *const known[] = {"batch_size", "num_gpus",       "lr",
                                    "optimizer",  "encoder_layers", "decoder_layers"};

static struct row {
    const char *name, *word, *want;
} rows[] = {
    {"same", "lr", "lr"},
    {"another letter", "batch_sise", "batch_size"},
    {"letter missing", "optimzer", "optimizer"},
    {"letter too much", "optimmizer", "optimizer"},
    {"letters swapped", "rl", "lr"},           /* a swap is one edit: distance 1, at most 1 + 2/4 */
    {"two edits of a short word", "xy", NULL}, /* distance 2 from lr */
    {"three edits of eight letters", "nmugpu",
     NULL},                                      /* swap and two missing: 3, at most 1 + 6/4 = 2 */
    {"swap and missing", "nmu_gpu", "num_gpus"}, /* 2 of 2 */
    {"case does not count", "BATCH_SIZE", "batch_size"},
    {"first of two alike", "xncoder_layers", "encoder_layers"},
    {"nearest of two", "dncoder_layers", "encoder_layers"}, /* 1 and 2 */
    {"empty", "", NULL},
    {"nothing near", "frobnicate", NULL},
    {"bytes above 127", "b\xC3\xA4tch_size", "batch_size"},
    {"longest allowed",
     "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", NULL},
    {"too long",
     "batch_sizeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee",
     NULL},
};

static void check_row(void **state)
{
    const struct row *r = *state;
    const char *got = rd_nearest(r->word, known, sizeof known / sizeof *known);
    if (r->want)
        assert_string_equal(got ? got : "nothing", r->want);
    else
        assert_null(got);
}

/* Editing between two swapped characters: "ca" is 2 from "abc" (swap, insert); the restricted
 * distance is 3. */
static void swap_with_insertion(void **state)
{
    (void)state;
    static const char *const abc[] = {"abcdefgh"};
    assert_string_equal(rd_nearest("cadefg", abc, 1) ? "near" : "far",
                        "far"); /* 3 edits, 2 allowed */
    assert_string_equal(rd_nearest("cadefgh", abc, 1) ? "near" : "far",
                        "near"); /* 2 edits; restricted: 3 */
    assert_null(rd_nearest("lr", NULL, 0));
}

RD_TESTS("options_nearest", TEST_ROWS(check_row, rows), TEST(swap_with_insertion))
