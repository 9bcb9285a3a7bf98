/* config_owners.c -- keys that only other owners read: refused, noted, or of no concern. */
#include "rd/options.h"
#include "test.h"
#include <string.h>

typedef struct fields {
    double common, rate, power, beta;
    const char *optimizer;
} fields;
static const rd_option common_rows[] = {
    RD_OPT_STRING(fields, optimizer, optimizer, NULL, "which one"),
    RD_OPT_REAL(fields, shared, common, NULL, 0.0, 1.0, "also of all runs"), RD_OPT_END};
static const rd_option both_rows[] = {
    RD_OPT_REAL(fields, rate, rate, "0.5", 0.0, 1.0, "of two"),
    RD_OPT_REAL(fields, shared, common, NULL, 0.0, 1.0, "of two, and of all"), RD_OPT_END};
static const rd_option power_rows[] = {RD_OPT_REAL(fields, power, power, NULL, 0.0, 1.0, "of one"),
                                       RD_OPT_END};
static const rd_option beta_rows[] = {
    RD_OPT_REAL(fields, beta, beta, NULL, 0.0, 1.0, "carried along", RD_CARRIED), RD_OPT_END};
static const rd_option_group common = {"run", "all", common_rows, sizeof(fields)};
static const rd_option_group both = {"both", "two", both_rows, sizeof(fields)};
static const rd_option_group power = {"power", "one", power_rows, sizeof(fields)};
static const rd_option_group beta = {"beta", "one", beta_rows, sizeof(fields)};
static const rd_option_group *const groups[] = {&common, &both, &power, &beta};

static const struct owners_case {
    const char *name, *text, *chosen; /* chosen: the owner's name; NULL: none */
    bool allow_unknown;
    const char *message, *notes; /* "": none */
} cases[] = {
    {"nothing is written", "{}", "a", false, "", ""},
    {"keys of the chosen one", "{'rate': 0.1, 'power': 0.2}", "a", false, "", ""},
    {"a key of another one", "{'power': 0.2}", "b", false,
     "x.json:1:2: 'power' belongs to optimizer a; this run uses b; remove the key, or give --set "
     "power=null",
     ""},
    {"a key of two others", "{'rate': 0.2}", "c", false,
     "x.json:1:2: 'rate' belongs to optimizer a or b; this run uses c; remove the key, or give "
     "--set rate=null",
     ""},
    {"a key that every run reads too", "{'shared': 0.2}", "c", false, "", ""},
    {"a key that is carried along", "{'beta': 0.2}", "a", false, "",
     "x.json:1:2: 'beta' has no effect: it belongs to optimizer c, and this run uses a\n"},
    {"with unknown keys allowed", "{'power': 0.2}", "b", true, "",
     "x.json:1:2: 'power' has no effect: it belongs to optimizer a, and this run uses b\n"},
    {"none is chosen", "{'power': 0.2, 'rate': 0.3}", NULL, false, "", ""},
};

static rd_config *config_of(const char *text, bool allow_unknown)
{
    char json[128];
    rd_status st = {0};
    rd_config *c = NULL;
    assert_true(strlen(text) < sizeof json);
    for (size_t i = 0; i <= strlen(text); i++) json[i] = (char)(text[i] == '\'' ? '"' : text[i]);
    assert_int_equal(rd_config_new("x.json", json, strlen(json), groups, 4, allow_unknown, &c, &st),
                     RD_OK);
    return c;
}

static rd_code check_with(rd_config *c, const char *chosen, rd_strbuf *notes, rd_status *st)
{
    rd_option_owner owners[] = {{.kind = "optimizer", .name = "a", .group = {&both, &power}},
                                {.kind = "optimizer", .name = "b", .group = {&both, NULL}},
                                {.kind = "optimizer", .name = "c", .group = {NULL, &beta}}};
    for (int i = 0; i < 3; i++) owners[i].chosen = chosen && !strcmp(chosen, owners[i].name);
    return rd_config_check_owners(c, owners, 3, notes, st);
}

static void check_case(void **state)
{
    const struct owners_case *k = *state;
    rd_config *c = config_of(k->text, k->allow_unknown);
    rd_status st = {0};
    rd_strbuf notes = {0};
    const rd_code want = k->message[0] ? RD_EUSAGE : RD_OK;
    assert_int_equal(check_with(c, k->chosen, &notes, &st), want);
    assert_string_equal(st.msg, k->message);
    assert_string_equal(rd_strbuf_str(&notes), k->notes);
    rd_strbuf_release(&notes);
    rd_config_free(c);
}

/* --set counts as the file does; null, a dropped key and what the program puts do not. */
static void who_wrote_it(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_strbuf notes = {0};
    rd_config *c = config_of("{'power': 0.2}", false);
    assert_int_equal(rd_config_set(c, "power=null", &st), RD_OK);
    assert_int_equal(check_with(c, "b", &notes, &st), RD_OK);
    assert_int_equal(rd_config_put(c, "power", json_real(0.3), "--power", &st), RD_OK);
    assert_int_equal(check_with(c, "b", &notes, &st), RD_OK);
    assert_int_equal(rd_config_set(c, "power=0.4", &st), RD_OK);
    assert_int_equal(check_with(c, "b", &notes, &st), RD_EUSAGE);
    st = (rd_status){0};
    rd_config_drop(c, "power");
    assert_int_equal(check_with(c, "b", &notes, &st), RD_OK);
    rd_config_free(c);
    rd_strbuf_release(&notes);
}

RD_TESTS("config_owners", TEST_ROWS(check_case, cases), TEST(who_wrote_it))
