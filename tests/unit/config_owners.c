/* config_owners.c -- keys that only other owners read: refused, noted, or of no concern. */
#include "rd/options.h"
#include "test.h"
#include <string.h>

typedef struct fields {
    double common, rate, power, beta;
    int64_t num_gpus;
    const char *optimizer;
} fields;
static const rd_option common_rows[] = {
    RD_OPT_STRING(fields, optimizer, optimizer, NULL, "which one"),
    RD_OPT_INT(fields, num_gpus, num_gpus, NULL, 0, 9, "the sign of OpenSeq2Seq's configs"),
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
    {"a key that is carried along", "{'num_gpus': 2, 'beta': 0.2}", "a", false, "",
     "x.json:1:17: 'beta' has no effect: it belongs to optimizer c, and this run uses a\n"},
    {"the same key in a config of our own", "{'beta': 0.2}", "a", false,
     "x.json:1:2: 'beta' belongs to optimizer c; this run uses a; remove the key, or give --set "
     "beta=null",
     ""},
    {"another key in a config of OpenSeq2Seq", "{'num_gpus': 2, 'power': 0.2}", "b", false,
     "x.json:1:17: 'power' belongs to optimizer a; this run uses b; remove the key, or give --set "
     "power=null",
     ""},
    {"a carried key of a log folder", "{'beta': {'value': 0.2, 'source': '--set'}}", "a", false, "",
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

/* Who gave a key and its partner, and what follows. The config is "file", then --set. */
static const struct refuse_case {
    const char *name, *file, *set[2], *put; /* put: the source of rd_config_put for beta */
    bool refused;
    rd_origin origin; /* of beta */
} refuse_cases[] = {
    {"one file", "{'optimizer': 'a', 'beta': 0.2}", {NULL}, NULL, true, RD_ORIGIN_FILE},
    {"the partner later", "{'beta': 0.2}", {"optimizer=a"}, NULL, false, RD_ORIGIN_FILE},
    {"the partner removed later",
     "{'optimizer': 'a', 'beta': 0.2}",
     {"optimizer=null"},
     NULL,
     false,
     RD_ORIGIN_FILE},
    {"the key later", "{'optimizer': 'a'}", {"beta=0.2"}, NULL, true, RD_ORIGIN_SET},
    {"both later", "{}", {"beta=0.2", "optimizer=a"}, NULL, true, RD_ORIGIN_SET},
    {"another order", "{}", {"optimizer=a", "beta=0.2"}, NULL, true, RD_ORIGIN_SET},
    {"OpenSeq2Seq", "{'num_gpus': 1, 'beta': 0.2}", {NULL}, NULL, false, RD_ORIGIN_OPENSEQ2SEQ},
    {"OpenSeq2Seq and --set", "{'num_gpus': 1}", {"beta=0.2"}, NULL, true, RD_ORIGIN_SET},
    {"num_gpus of --set", "{'beta': 0.2}", {"num_gpus=1"}, NULL, true, RD_ORIGIN_FILE},
    {"a flag", "{}", {NULL}, "--beta", true, RD_ORIGIN_SET},
    {"the program", "{}", {NULL}, "model x", false, RD_ORIGIN_NONE},
    {"another spelling", "{'beta': 0.2}", {NULL}, "x.json:1:2", true, RD_ORIGIN_FILE},
};

static void check_refuses(void **state)
{
    static const char *const partners[] = {"optimizer", NULL};
    const struct refuse_case *k = *state;
    rd_status st = {0};
    rd_config *c = config_of(k->file, false);
    for (int i = 0; i < 2 && k->set[i]; i++)
        assert_int_equal(rd_config_set(c, k->set[i], &st), RD_OK);
    if (k->put) assert_int_equal(rd_config_put(c, "beta", json_real(0.3), k->put, &st), RD_OK);
    assert_int_equal(rd_config_origin(c, "beta"), k->origin);
    assert_int_equal(rd_config_refuses(c, "beta", partners), k->refused);
    rd_config_free(c);
}

/* A file that is based on another one comes later. */
static void later_files(void **state)
{
    static const char *const partners[] = {"optimizer", NULL};
    static const struct {
        const char *base, *top;
        bool refused;
    } pairs[] = {{"{\"beta\": 0.2}", "{\"optimizer\": \"a\"}", false},
                 {"{\"beta\": 0.2, \"optimizer\": \"a\"}", "{\"optimizer\": null}", false},
                 {"{\"optimizer\": \"a\"}", "{\"beta\": 0.2}", true},
                 {"{\"num_gpus\": 1}", "{\"beta\": 0.2}", true},
                 {"{\"num_gpus\": 1, \"beta\": 0.2}", "{}", false}};
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const char *text[2] = {pairs[i].base, pairs[i].top}, *name[2] = {"b.json", "t.json"};
        rd_strbuf files = {0};
        rd_config *c = NULL;
        rd_status st = {0};
        for (int f = 0; f < 2; f++) {
            const int64_t size[2] = {(int64_t)strlen(name[f]) + 1, (int64_t)strlen(text[f])};
            rd_strbuf_add(&files, size, sizeof size);
            rd_strbuf_add(&files, name[f], (size_t)size[0]);
            rd_strbuf_add(&files, text[f], (size_t)size[1]);
        }
        must_do(rd_config_new_of_files(files.s, files.n, groups, 4, false, NULL, &c, &st), &st);
        assert_int_equal(rd_config_refuses(c, "beta", partners), pairs[i].refused);
        rd_config_free(c);
        rd_strbuf_release(&files);
    }
}

RD_TESTS("config_owners", TEST_ROWS(check_case, cases), TEST(who_wrote_it),
         TEST_ROWS(check_refuses, refuse_cases), TEST(later_files))
