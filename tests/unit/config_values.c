/* config_values.c -- a right config: values in the struct, their sources, missing keys,
 * placeholders, the records. */
#include "rd/options.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

typedef struct data_config {
    const char *data_location, *source_file, *target_file, *bench_file, *delimiter;
    int64_t batch_size;
    rd_ints buckets;
} data_config;
typedef enum cell_kind { CELL_LSTM, CELL_GRU } cell_kind;
typedef struct train_config {
    int64_t batch_size, wide;
    double lr, norm;
    bool has_norm, use_decay, has_cell;
    cell_kind cell;
} train_config;

enum { TRAINS = RD_MODE_TRAIN | RD_MODE_TRAIN_EVAL };
static const char *const cells[] = {[CELL_LSTM] = "lstm", [CELL_GRU] = "gru", NULL};
static const rd_option data_rows[] = {
    RD_OPT_STRING(data_config, data_location, data_location, NULL, "folder of the data"),
    RD_OPT_PATH(data_config, source_file, source_file, NULL, "training text", RD_REQUIRED(TRAINS)),
    RD_OPT_STRING(data_config, target_file, target_file, NULL, "its translation",
                  RD_REQUIRED(TRAINS)),
    RD_OPT_STRING(data_config, bench_file, bench_file, NULL, "no other mode needs it",
                  RD_REQUIRED(RD_MODE_BENCH)),
    RD_OPT_STRING(data_config, delimiter, delimiter, "\" \"", "joins tokens"),
    RD_OPT_INT(data_config, batch_size, batch_size, NULL, 1, 1000, "sentences per rank",
               RD_REQUIRED(TRAINS | RD_MODE_EVAL)),
    RD_OPT_INTS(data_config, bucket_src, buckets, "[50]", 1, 10000, "length limits"),
    RD_OPT_END,
};
static const rd_option train_rows[] = {
    RD_OPT_INT(train_config, batch_size, batch_size, NULL, 1, 512, "sentences per rank"),
    RD_OPT_INT(train_config, wide, wide, "-9223372036854775808", -0x1p63, 0x1p63, "any integer"),
    RD_OPT_REAL(train_config, learning_rate, lr, "0.001", 0.0, 10.0, "step size"),
    RD_OPT_REAL(train_config, max_grad_norm, norm, NULL, 0.0, 1e9, "clip to this norm",
                RD_GIVEN(train_config, has_norm)),
    RD_OPT_BOOL(train_config, use_decay, use_decay, "true", "turns the schedule on"),
    RD_OPT_ENUM(train_config, cell_type, cell, "\"gru\"", cells, "kind of cell",
                RD_GIVEN(train_config, has_cell)),
    RD_OPT_END,
};
static const rd_option_group data_group = {"data", "parallel text", data_rows, sizeof(data_config)};
static const rd_option_group train_group = {"train", "training", train_rows, sizeof(train_config)};
static const rd_option_group *const groups[] = {&data_group, &train_group};

static rd_config *config_of(const char *text, bool allow_unknown)
{
    rd_status st = {0};
    rd_config *c = NULL;
    rd_code rc = rd_config_new("x.json", text, strlen(text), groups, 2, allow_unknown, &c, &st);
    assert_string_equal(st.msg, "");
    assert_int_equal(rc, RD_OK);
    return c;
}

static void set(rd_config *c, const char *assignment)
{
    rd_status st = {0};
    const rd_code rc = rd_config_set(c, assignment, &st);
    assert_string_equal(st.msg, "");
    assert_int_equal(rc, RD_OK);
}

static train_config read_train(const rd_config *c)
{
    train_config t;
    rd_status st = {0};
    memset(&t, 0xAA, sizeof t); /* read must zero it */
    assert_int_equal(rd_config_read(c, &train_group, RD_MODE_TRAIN, &t, &st), RD_OK);
    return t;
}

static data_config read_data(const rd_config *c)
{
    data_config d;
    rd_status st = {0};
    memset(&d, 0xAA, sizeof d);
    assert_int_equal(rd_config_read(c, &data_group, RD_MODE_INFER, &d, &st), RD_OK);
    return d;
}

static void defaults(void **state)
{
    (void)state;
    rd_config *c = config_of("{}", false);
    const train_config t = read_train(c);
    const data_config d = read_data(c);
    assert_int_equal(t.batch_size, 0);
    assert_true(t.wide == INT64_MIN);
    assert_true(t.lr == 0.001 && t.norm == 0.0 && !t.has_norm && t.use_decay && !t.has_cell);
    assert_int_equal(t.cell, CELL_GRU);
    assert_string_equal(rd_option_word(&train_group, "cell_type", t.cell), "gru");
    assert_null(rd_option_word(&train_group, "cell_type", 2));
    assert_null(rd_option_word(&train_group, "cell_type", -1));
    assert_null(rd_option_word(&train_group, "use_decay", 0));
    assert_string_equal(d.delimiter, " ");
    assert_null(d.source_file);
    assert_int_equal(d.buckets.n, 1);
    assert_int_equal(d.buckets.at[0], 50);
    assert_false(rd_config_has(c, "learning_rate"));
    assert_true(json_real_value(rd_config_get(c, "learning_rate")) == 0.001);
    assert_null(rd_config_get(c, "batch_size"));
    assert_null(rd_config_get(c, "no such key"));
    rd_config_free(c);
}

/* Integers and reals are converted without loss. Choices get the list's spelling. CRLF and a byte
 * order mark are fine. */
static void values_of_a_file(void **state)
{
    (void)state;
    rd_config *c = config_of("\xEF\xBB\xBF{\r\n \"$schema\": \"schema.json\",\r\n \"batch_size\": "
                             "64.0, \"learning_rate\": 1,\r\n"
                             "  \"max_grad_norm\": 0.5, \"use_decay\": false, \"cell_type\": "
                             "\"LSTM\", \"bucket_src\": [7, 9],\r\n"
                             "  \"wide\": 9223372036854775807, \"delimiter\": \"\", "
                             "\"source_f\\u0069le\": \"\\u03b1/\\\"\"}\r\n",
                             false);
    const train_config t = read_train(c);
    const data_config d = read_data(c);
    assert_int_equal(t.batch_size, 64);
    assert_true(t.wide == INT64_MAX);
    assert_true(t.lr == 1.0 && t.norm == 0.5 && t.has_norm && !t.use_decay && t.has_cell);
    assert_int_equal(t.cell, CELL_LSTM);
    assert_string_equal(d.delimiter, "");
    assert_string_equal(d.source_file, "\xCE\xB1/\"");
    assert_int_equal(d.buckets.n, 2);
    assert_int_equal(d.buckets.at[1], 9);
    assert_string_equal(rd_config_where(c, "batch_size"), "x.json:3:2");
    assert_string_equal(rd_config_where(c, "cell_type"), "x.json:4:45");
    assert_string_equal(rd_config_where(c, "source_file"), "x.json:5:49");
    assert_string_equal(rd_config_where(c, "$schema"), "not set");
    assert_true(rd_config_has(c, "batch_size"));
    rd_config_free(c);
}

static struct set_row {
    const char *name, *assignment, *want; /* want: the line of the effective config */
} set_rows[] = {
    {"set integer", "batch_size=32", "\"batch_size\": {\"value\": 32, \"source\": \"--set\"}"},
    {"set number", "learning_rate=3e-4",
     "\"learning_rate\": {\"value\": 0.0003, \"source\": \"--set\"}"},
    {"set 17 digits", "learning_rate=0.10000000000000002",
     "\"learning_rate\": {\"value\": 0.10000000000000002, \"source\": \"--set\"}"},
    {"set number by an integer", "learning_rate=2",
     "\"learning_rate\": {\"value\": 2, \"source\": \"--set\"}"},
    {"set truth", "use_decay=false", "\"use_decay\": {\"value\": false, \"source\": \"--set\"}"},
    {"set bare word", "delimiter=_", "\"delimiter\": {\"value\": \"_\", \"source\": \"--set\"}"},
    {"set text in quotes", "delimiter=\"a b\"",
     "\"delimiter\": {\"value\": \"a b\", \"source\": \"--set\"}"},
    {"set text that looks like a number", "source_file=123",
     "\"source_file\": {\"value\": \"123\", \"source\": \"--set\"}"},
    {"set text null in quotes", "delimiter=\"null\"",
     "\"delimiter\": {\"value\": \"null\", \"source\": \"--set\"}"},
    {"set null: the default is back", "learning_rate=null",
     "\"learning_rate\": {\"value\": 0.001, \"source\": \"--set\"}"},
    {"set null: no default", "batch_size=null",
     "\"batch_size\": {\"value\": null, \"source\": \"--set\"}"},
    {"set null: text", "delimiter=null",
     "\"delimiter\": {\"value\": \" \", \"source\": \"--set\"}"},
    {"set null: list", "bucket_src=null",
     "\"bucket_src\": {\"value\": [50], \"source\": \"--set\"}"},
    {"set text with an equals sign", "source_file=a=b",
     "\"source_file\": {\"value\": \"a=b\", \"source\": \"--set\"}"},
    {"set empty text", "delimiter=", "\"delimiter\": {\"value\": \"\", \"source\": \"--set\"}"},
    {"set list", "bucket_src=[10, 20]",
     "\"bucket_src\": {\"value\": [10, 20], \"source\": \"--set\"}"},
    {"set list without brackets", "bucket_src=10,20",
     "\"bucket_src\": {\"value\": [10, 20], \"source\": \"--set\"}"},
    {"set list of one", "bucket_src=10",
     "\"bucket_src\": {\"value\": [10], \"source\": \"--set\"}"},
};

/* "~/" of a path is the home folder, also in the file and from the program. Other texts and other
 * places of a '~' stay. */
static void home_folder(void **state)
{
    static const struct {
        const char *home, *path, *want; /* want NULL: refused */
    } t[] = {
        {"/h", "~", "/h"},      {"/h", "~/a/~/b", "/h/a/~/b"},
        {"/h/", "~/a", "/h/a"}, {"/h", "a/~/b", "a/~/b"},
        {"/h", "./~a", "./~a"}, {"/h", "", ""},
        {"/h", "~bob/a", NULL}, {"/h", "~a", NULL},
        {"", "~/a", NULL},      {"home", "~/a", NULL},
        {NULL, "~/a", NULL},    {NULL, "a", "a"},
    };
    char *before = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char text[100], assignment[100];
        assert_int_equal(t[i].home ? setenv("HOME", t[i].home, 1) : unsetenv("HOME"), 0);
        snprintf(text, sizeof text, "{\"source_file\": \"%s\", \"delimiter\": \"~\"}", t[i].path);
        snprintf(assignment, sizeof assignment, "source_file=%s", t[i].path);
        for (int way = 0; way < 3; way++) {
            rd_config *c = NULL;
            rd_status st = {0};
            (void)rd_config_new("x.json", way == 0 ? text : "{\"delimiter\": \"~\"}",
                                way == 0 ? strlen(text) : 18, groups, 2, false, &c, &st);
            if (way == 1) (void)rd_config_set(c, assignment, &st);
            if (way == 2)
                (void)rd_config_put(c, "source_file", json_string(t[i].path), "--source", &st);
            assert_int_equal(st.code, t[i].want ? RD_OK : RD_EUSAGE);
            if (t[i].want)
                assert_string_equal(json_string_value(rd_config_get(c, "source_file")), t[i].want);
            else
                assert_non_null(strstr(st.msg, way == 0   ? "x.json:1:17: the "
                                               : way == 1 ? "--set source_file=~"
                                                          : "--source: the "));
            if (c) assert_string_equal(json_string_value(rd_config_get(c, "delimiter")), "~");
            rd_config_free(c);
        }
    }
    if (before) assert_int_equal(setenv("HOME", before, 1), 0);
    free(before);
}

static char *written(const rd_config *c, void (*how)(const rd_config *, FILE *))
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    how(c, f);
    assert_int_equal(fclose(f), 0);
    return text;
}

static void check_set(void **state)
{
    const struct set_row *r = *state;
    rd_config *c = config_of(
        "{\"batch_size\": 7, \"learning_rate\": 5, \"delimiter\": \"x\", \"bucket_src\": [3]}",
        false);
    set(c, r->assignment);
    char *text = written(c, rd_config_write);
    if (!strstr(text, r->want)) fail_msg("%s is not in %s", r->want, text);
    free(text);
    rd_config_free(c);
}

/* A value must fit every group that has the key: batch_size is up to 1000 in one, up to 512 in the
 * other. */
static void groups_agree(void **state)
{
    (void)state;
    rd_config *c = config_of("{\"batch_size\": 512}", false);
    rd_status st = {0};
    assert_int_equal(rd_config_set(c, "batch_size=513", &st), RD_EUSAGE);
    assert_string_equal(st.msg, "--set batch_size=513: 'batch_size' must be an integer, 1 .. 512, "
                                "not 513; meaning: sentences per rank");
    assert_int_equal(read_train(c).batch_size, 512);
    st = (rd_status){0};
    assert_int_equal(rd_config_set(c, "wide=9223372036854775808.0", &st),
                     RD_EUSAGE); /* 2^63: no int64_t */
    assert_string_equal(st.msg, "--set wide=9223372036854775808.0: 'wide' must be an integer, not "
                                "9.223372036854776e+18; meaning: any integer");
    assert_int_equal(read_data(c).batch_size, 512);
    rd_config_free(c);
}

/* null removes a key of the file: it is no longer given, its source is --set, and a later value
 * counts again. */
static void set_null(void **state)
{
    (void)state;
    rd_config *c = config_of("{\"max_grad_norm\": 1, \"cell_type\": \"lstm\"}", false);
    assert_true(read_train(c).has_norm && read_train(c).has_cell);
    set(c, "max_grad_norm=null");
    set(c, "cell_type=null");
    assert_false(rd_config_has(c, "max_grad_norm"));
    assert_null(rd_config_get(c, "max_grad_norm"));
    assert_true(!read_train(c).has_norm && !read_train(c).has_cell);
    assert_int_equal(read_train(c).cell, CELL_GRU);
    assert_string_equal(rd_config_where(c, "max_grad_norm"), "--set");
    char *text = written(c, rd_config_print);
    assert_non_null(
        strstr(text, "max_grad_norm                    =     from --set; range 0 .. 1000000000\n"));
    free(text);
    set(c, "max_grad_norm=2");
    assert_true(read_train(c).has_norm && read_train(c).norm == 2.0);
    rd_config_free(c);
}

static void put_and_drop(void **state)
{
    (void)state;
    rd_config *c = config_of("{\"learning_rate\": 0.5, \"max_grad_norm\": 1}", false);
    rd_status st = {0};
    assert_int_equal(rd_config_put(c, "learning_rate", json_real(0.25), "--lr", &st), RD_OK);
    assert_true(read_train(c).lr == 0.25);
    assert_string_equal(rd_config_where(c, "learning_rate"), "--lr");
    rd_config_drop(c, "learning_rate");
    rd_config_drop(c, "max_grad_norm");
    rd_config_drop(c, "no such key");
    assert_true(read_train(c).lr == 0.001 && !read_train(c).has_norm);
    assert_string_equal(rd_config_where(c, "learning_rate"), "default");
    assert_string_equal(rd_config_where(c, "max_grad_norm"), "not set");
    assert_int_equal(rd_config_put(c, "learning_rate", json_real(11.0), "--lr", &st), RD_EUSAGE);
    assert_string_equal(
        st.msg, "--lr: 'learning_rate' must be a number, 0 .. 10, not 11; meaning: step size");
    st = (rd_status){0};
    assert_int_equal(rd_config_put(c, "lr", json_real(1.0), "--lr", &st), RD_EBUG);
    assert_string_equal(st.msg, "the program sets key 'lr', which is in no option table");
    st = (rd_status){0};
    assert_int_equal(rd_config_put(c, "learning_rate", NULL, "--lr", &st), RD_EENV);
    rd_config_free(c);
}

static void unknown_keys(void **state)
{
    (void)state;
    rd_config *c = config_of("{\"num_unit\": 3, \"batch_size\": 1, \"other\": [1]}", true);
    set(c, "third=word");
    set(c, "other={\"a\": 1}");
    assert_string_equal(rd_config_unknown(c, 0), "num_unit");
    assert_string_equal(rd_config_unknown(c, 1), "other");
    assert_string_equal(rd_config_unknown(c, 2), "third");
    assert_null(rd_config_unknown(c, 3));
    assert_null(rd_config_unknown(c, -1));
    assert_string_equal(rd_config_where(c, "num_unit"), "x.json:1:2");
    assert_string_equal(rd_config_where(c, "other"), "--set");
    char *text = written(c, rd_config_write);
    assert_non_null(strstr(
        text,
        "\"num_unit\": {\"value\": 3, \"source\": \"x.json:1:2\"},\n  \"other\": {\"value\": "
        "{\"a\": 1}, "
        "\"source\": \"--set\"},\n  \"third\": {\"value\": \"word\", \"source\": \"--set\"}\n}\n"));
    free(text);
    rd_config_free(c);
}

static void missing_keys(void **state)
{
    (void)state;
    rd_config *c = config_of("{\"batch_size\": 1}", false);
    data_config d;
    rd_status st = {0};
    assert_int_equal(rd_config_read(c, &data_group, RD_MODE_EVAL, &d, &st),
                     RD_OK); /* needed to train only */
    assert_int_equal(rd_config_read(c, &data_group, RD_MODE_TRAIN_EVAL, &d, &st), RD_EUSAGE);
    assert_string_equal(st.msg, "x.json: key 'source_file' is missing, which mode train_eval "
                                "needs; meaning: training text; add it, or "
                                "give --set source_file=VALUE; missing too: 'target_file'");
    set(c, "source_file=s");
    st = (rd_status){0};
    assert_int_equal(rd_config_read(c, &data_group, RD_MODE_TRAIN, &d, &st), RD_EUSAGE);
    assert_string_equal(st.msg, "x.json: key 'target_file' is missing, which mode train needs; "
                                "meaning: its translation; add it, or "
                                "give --set target_file=VALUE");
    set(c, "target_file=t");
    st = (rd_status){0};
    assert_int_equal(rd_config_read(c, &data_group, RD_MODE_TRAIN, &d, &st), RD_OK);
    static const rd_option stray_rows[] = {RD_OPT_BOOL(train_config, stray, use_decay, "true", "x"),
                                           RD_OPT_END};
    const rd_option_group stray = {"stray", "", stray_rows, sizeof(train_config)};
    train_config t;
    assert_int_equal(rd_config_read(c, &stray, RD_MODE_TRAIN, &t, &st), RD_EBUG);
    assert_string_equal(st.msg, "option group 'stray' is not among the groups of the config");
    rd_config_free(c);
}

static struct place_row {
    const char *name, *file, *location, *want,
        *left; /* left: what rd_config_placeholder finds in want */
} place_rows[] = {
    {"placeholder", "[WMT16_DATA_LOCATION]/train.de", "/data", "/data/train.de", NULL},
    {"placeholder without a name", "[DATA_LOCATION]/a", "/data", "/data/a", NULL},
    {"two placeholders", "x[A_DATA_LOCATION][B2_DATA_LOCATION]", "d", "xdd", NULL},
    {"placeholder stays", "[WMT16_DATA_LOCATION]/train.de", NULL, "[WMT16_DATA_LOCATION]/train.de",
     "[WMT16_DATA_LOCATION]/train.de"},
    {"empty location is none", "a/[DATA_LOCATION]", "", "a/[DATA_LOCATION]", "[DATA_LOCATION]"},
    {"lower case is no placeholder", "[wmt_data_location]", "d", "[wmt_data_location]", NULL},
    {"other word is no placeholder", "[WMT16_DATA_LOCATIONS]", "d", "[WMT16_DATA_LOCATIONS]", NULL},
    {"not closed is no placeholder", "[WMT16_DATA_LOCATION", "d", "[WMT16_DATA_LOCATION", NULL},
    {"placeholder after a bracket", "[[X_DATA_LOCATION]]", "d", "[d]", NULL},
    {"location is not looked at again", "[X_DATA_LOCATION]", "[Y_DATA_LOCATION]/x",
     "[Y_DATA_LOCATION]/x", "[Y_DATA_LOCATION]/x"},
};

static void check_place(void **state)
{
    const struct place_row *r = *state;
    rd_config *c = config_of("{}", false);
    rd_status st = {0};
    assert_int_equal(rd_config_put(c, "source_file", json_string(r->file), "x", &st), RD_OK);
    if (r->location)
        assert_int_equal(rd_config_put(c, "data_location", json_string(r->location), "x", &st),
                         RD_OK);
    const data_config d = read_data(c);
    assert_string_equal(d.source_file, r->want);
    if (r->location) assert_string_equal(d.data_location, r->location);
    const char *left = rd_config_placeholder(d.source_file);
    assert_true(!left == !r->left);
    if (left) assert_string_equal(left, r->left);
    rd_config_free(c);
}

static void records(void **state)
{
    (void)state;
    rd_config *c = config_of("{\"learning_rate\": 0.1, \"batch_size\": 8}", true);
    set(c, "extra=1.5");
    json_t *effective = rd_config_effective(c);
    char *text = written(c, rd_config_write);
    json_t *again = json_loads(text, 0, NULL);
    assert_non_null(again);
    assert_true(json_equal(effective, again));
    assert_string_equal(text,
                        "{\n"
                        "  \"data_location\": {\"value\": null, \"source\": \"not set\"},\n"
                        "  \"source_file\": {\"value\": null, \"source\": \"not set\"},\n"
                        "  \"target_file\": {\"value\": null, \"source\": \"not set\"},\n"
                        "  \"bench_file\": {\"value\": null, \"source\": \"not set\"},\n"
                        "  \"delimiter\": {\"value\": \" \", \"source\": \"default\"},\n"
                        "  \"batch_size\": {\"value\": 8, \"source\": \"x.json:1:24\"},\n"
                        "  \"bucket_src\": {\"value\": [50], \"source\": \"default\"},\n"
                        "  \"wide\": {\"value\": -9223372036854775808, \"source\": \"default\"},\n"
                        "  \"learning_rate\": {\"value\": 0.1, \"source\": \"x.json:1:2\"},\n"
                        "  \"max_grad_norm\": {\"value\": null, \"source\": \"not set\"},\n"
                        "  \"use_decay\": {\"value\": true, \"source\": \"default\"},\n"
                        "  \"cell_type\": {\"value\": \"gru\", \"source\": \"default\"},\n"
                        "  \"extra\": {\"value\": 1.5, \"source\": \"--set\"}\n"
                        "}\n");
    free(text);
    text = written(c, rd_config_print);
    assert_non_null(strstr(text, "learning_rate                    = 0.1    from x.json:1:2; "
                                 "default 0.001; range 0 .. 10\n"));
    assert_non_null(
        strstr(text, "max_grad_norm                    =     not set; range 0 .. 1000000000\n"));
    assert_non_null(strstr(text, "delimiter                        = \" \"    default\n"));
    assert_non_null(strstr(text,
                           "extra                            = 1.5    from --set; unknown key\n"));
    free(text);
    json_decref(again);
    json_decref(effective);
    rd_config_free(c);
}

/* Strings and lists handed out live as long as the config, whatever happens to the key. */
static void borrowed_values_stay(void **state)
{
    (void)state;
    rd_config *c = config_of("{\"source_file\": \"abc\", \"bucket_src\": [1, 2]}", false);
    const data_config d = read_data(c);
    set(c, "source_file=other");
    rd_config_drop(c, "source_file");
    set(c, "bucket_src=9,9");
    assert_string_equal(d.source_file, "abc");
    assert_int_equal(d.buckets.at[1], 2);
    rd_config_free(c);
    rd_config_free(NULL);
}

/* RD_OTHER_WORDS: a word that is not among the choices counts as the first one. */
static void other_words(void **state)
{
    (void)state;
    typedef struct open_config {
        cell_kind cell;
    } open_config;
    static const rd_option rows[] = {
        RD_OPT_ENUM(open_config, mood, cell, "\"gru\"", cells, "a mood", RD_OTHER_WORDS),
        RD_OPT_END,
    };
    static const rd_option_group group = {"open", "moods", rows, sizeof(open_config)};
    static const rd_option_group *const list[] = {&group};
    static const struct {
        const char *text;
        cell_kind expected;
    } tries[] = {{"{\"mood\": \"gru\"}", CELL_GRU},
                 {"{\"mood\": \"GRU\"}", CELL_GRU},
                 {"{\"mood\": \"greedy\"}", CELL_LSTM},
                 {"{\"mood\": \"\"}", CELL_LSTM},
                 {"{}", CELL_GRU}};
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        rd_status st = {0};
        rd_config *c = NULL;
        open_config t;
        assert_int_equal(rd_config_new("x.json", tries[i].text, strlen(tries[i].text), list, 1,
                                       false, &c, &st),
                         RD_OK);
        assert_int_equal(rd_config_choice(c, "mood"), tries[i].expected);
        assert_int_equal(rd_config_choice(c, "nothing"), -1);
        assert_int_equal(rd_config_read(c, &group, RD_MODE_TRAIN, &t, &st), RD_OK);
        assert_int_equal(t.cell, tries[i].expected);
        rd_config_free(c);
    }
}

RD_TESTS("config_values", TEST(defaults), TEST(other_words), TEST(values_of_a_file),
         TEST(home_folder), TEST(groups_agree), TEST(put_and_drop), TEST(set_null),
         TEST(unknown_keys), TEST(missing_keys), TEST(records), TEST(borrowed_values_stay),
         TEST_ROWS(check_set, set_rows), TEST_ROWS(check_place, place_rows))
