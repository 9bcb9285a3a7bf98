/* checkpoint.c -- tests that the saved state, or an older one with a reason, is restored: with
 * damage at any byte, a full disk, and a kill at any moment. */
#include "rd/checkpoint.h"
#include "rd/file.h"
#include "test.h"
#include "scratch_dir.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static bool exists(const char *name)
{
    return access(in_dir(name), F_OK) == 0;
}

static void put_file(const char *name, const void *p, size_t n)
{
    FILE *f = fopen(in_dir(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Names in the folder, but for the lock, sorted, with spaces between. */
static const char *listing(void)
{
    static char text[2048];
    struct dirent **e;
    const int n = scandir(dir, &e, NULL, alphasort);
    assert_true(n >= 0);
    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        if (e[i]->d_name[0] != '.') {
            strcat(text, text[0] ? " " : "");
            strcat(text, e[i]->d_name);
        }
        free(e[i]);
    }
    free(e);
    return text;
}

/* Two arrays whose content is a function of the step. */
static rd_code save(const char *prefix, int64_t step, int64_t n, int keep, rd_status *st)
{
    float *x = malloc(sizeof *x * (size_t)n);
    const int32_t ids[3] = {1, (int32_t)step, 3};
    if (!x) abort();
    for (int64_t i = 0; i < n; i++) x[i] = (float)step + (float)(i % 7);
    const rd_array a[2] = {
        {.name = "param/w",
         .descr = "<f4",
         .n_dim = 1,
         .dim = {n},
         .data = x,
         .bytes = sizeof *x * (size_t)n},
        {.name = "ids",
         .descr = "<i4",
         .n_dim = 2,
         .dim = {3, 1},
         .data = ids,
         .bytes = sizeof ids},
    };
    json_t *meta = json_pack("{s:i, s:s}", "epoch", 4, "config", "a \"quoted\" text");
    (void)rd_ckpt_save(dir, prefix, step, a, 2, meta, keep, st);
    json_decref(meta);
    free(x);
    return st->code;
}

static void check_content(const rd_ckpt *c)
{
    const rd_array *a = rd_npz_find(c->npz, "param/w"), *ids = rd_npz_find(c->npz, "ids");
    assert_non_null(a);
    assert_non_null(ids);
    for (int64_t i = 0; i < a->dim[0]; i++)
        assert_true(((const float *)a->data)[i] == (float)c->step + (float)(i % 7));
    assert_int_equal(((const int32_t *)ids->data)[1], c->step);
    assert_int_equal(json_integer_value(json_object_get(c->meta, "epoch")), 4);
}

static void saved_comes_back(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_ckpt c;
    char warning[RD_MSG_BYTES], *text;
    size_t n;
    empty_dir();
    assert_int_equal(rd_ckpt_load_newest(dir, "model", &c, warning, &st), RD_OK);
    assert_null(c.npz);
    assert_int_equal(save("model", 500, 1000, 5, &st), RD_OK);
    assert_string_equal(listing(), "checkpoint model-500.npz");
    assert_int_equal(rd_file_read(in_dir("checkpoint"), RD_ECKPT, &text, &n, &st), RD_OK);
    assert_string_equal(text, "model-500.npz\n");
    free(text);
    assert_int_equal(rd_ckpt_load_newest(dir, "model", &c, warning, &st), RD_OK);
    assert_string_equal(warning, "");
    assert_int_equal(c.step, 500);
    assert_string_equal(c.path, in_dir("model-500.npz"));
    check_content(&c);
    assert_string_equal(json_string_value(json_object_get(c.meta, "config")), "a \"quoted\" text");
    assert_int_equal(json_integer_value(json_object_get(c.meta, "step")), 500);
    rd_ckpt_release(&c);
    rd_ckpt_release(&c); /* an empty one is fine */
}

static void a_missing_folder_holds_none(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_ckpt c;
    char warning[RD_MSG_BYTES];
    assert_int_equal(rd_ckpt_load_newest(in_dir("nowhere"), "model", &c, warning, &st), RD_OK);
    assert_null(c.npz);
    assert_int_equal(rd_ckpt_load(in_dir("nowhere/model-1.npz"), &c, &st), RD_ECKPT);
    assert_non_null(strstr(st.msg, "nowhere/model-1.npz"));
}

static void same_state_same_bytes(void **state)
{
    (void)state;
    rd_status st = {0};
    char *one, *two;
    size_t n_one, n_two;
    empty_dir();
    assert_int_equal(save("model", 7, 1000, 5, &st), RD_OK);
    assert_int_equal(rd_file_read(in_dir("model-7.npz"), RD_ECKPT, &one, &n_one, &st), RD_OK);
    assert_int_equal(save("model", 7, 1000, 5, &st), RD_OK);
    assert_int_equal(rd_file_read(in_dir("model-7.npz"), RD_ECKPT, &two, &n_two, &st), RD_OK);
    assert_int_equal(n_one, n_two);
    assert_memory_equal(one, two, n_one);
    free(one);
    free(two);
}

/* ---- which ones stay ---- */

static struct keep_row {
    const char *name;
    int keep, n;
    int64_t steps[8]; /* saved in this order */
    const char *want;
} keep_rows[] = {
    {"newest two", 2, 4, {1, 2, 3, 4}, "checkpoint model-3.npz model-4.npz"},
    {"by number, not by name", 2, 3, {9, 10, 100}, "checkpoint model-10.npz model-100.npz"},
    {"all", 0, 3, {1, 2, 3}, "checkpoint model-1.npz model-2.npz model-3.npz"},
    {"only the last", 1, 3, {1, 2, 3}, "checkpoint model-3.npz"},
    {"taken up from an earlier step", 1, 2, {500, 450}, "checkpoint model-450.npz"},
    {"later ones go before earlier ones",
     2,
     3,
     {100, 500, 450},
     "checkpoint model-100.npz model-450.npz"},
    {"step 0", 2, 2, {0, 5}, "checkpoint model-0.npz model-5.npz"},
};

static void check_keep(void **state)
{
    const struct keep_row *r = *state;
    rd_status st = {0};
    empty_dir();
    for (int i = 0; i < r->n; i++) {
        /* The first ones without a limit, so that the rule meets them all at once. */
        assert_int_equal(save("model", r->steps[i], 10, i + 1 < r->n ? 0 : r->keep, &st), RD_OK);
    }
    assert_string_equal(listing(), r->want);
}

static void best_lives_beside_model(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_ckpt c;
    char warning[RD_MSG_BYTES];
    empty_dir();
    assert_int_equal(save("model", 10, 10, 1, &st), RD_OK);
    assert_int_equal(save("best", 8, 10, 1, &st), RD_OK);
    assert_int_equal(save("best", 20, 10, 1, &st), RD_OK);
    assert_string_equal(listing(), "best-20.npz checkpoint model-10.npz");
    assert_int_equal(rd_ckpt_load_newest(dir, "best", &c, warning, &st), RD_OK);
    assert_int_equal(c.step, 20);
    rd_ckpt_release(&c);
}

/* Keeps only the first half of a file. */
static void cut(const char *name)
{
    char *file;
    size_t n;
    rd_status st = {0};
    assert_int_equal(rd_file_read(in_dir(name), RD_ECKPT, &file, &n, &st), RD_OK);
    put_file(name, file, n / 2);
    free(file);
}

/* Loads the newest one with this prefix, and compares its file name. */
static void expect_newest(const char *prefix, const char *file, bool warns)
{
    rd_status st = {0};
    rd_ckpt c;
    char warning[RD_MSG_BYTES];
    assert_int_equal(rd_ckpt_load_newest(dir, prefix, &c, warning, &st), RD_OK);
    assert_non_null(c.npz);
    assert_string_equal(c.path, in_dir(file));
    assert_int_equal(warning[0] != '\0', warns);
    check_content(&c);
    rd_ckpt_release(&c);
}

static void newest_whole_file_wins_whatever_its_name(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_ckpt c;
    char warning[RD_MSG_BYTES];
    empty_dir();
    assert_int_equal(rd_ckpt_newest_step(dir), -1);
    assert_int_equal(save("best", 30, 10, 0, &st), RD_OK); /* killed before the first model file */
    expect_newest("model", "best-30.npz", false);
    assert_int_equal(rd_ckpt_newest_step(dir), 30);
    assert_int_equal(save("model", 20, 10, 0, &st), RD_OK);
    expect_newest("model", "best-30.npz", false);
    assert_int_equal(rd_ckpt_newest_step(dir), 30);
    assert_int_equal(save("model", 30, 10, 0, &st), RD_OK); /* of the same step */
    expect_newest("model", "model-30.npz", false);
    cut("model-30.npz");
    expect_newest("model", "best-30.npz", true);
    cut("best-30.npz");
    expect_newest("model", "model-20.npz", true);
    assert_int_equal(save("best", 10, 10, 0, &st), RD_OK);
    expect_newest("model", "model-20.npz", true);
    expect_newest("best", "best-10.npz", true); /* never a model file */
    cut("model-20.npz");
    expect_newest("model", "best-10.npz", true);
    cut("best-10.npz"); /* a start at step 0 would hide the loss */
    assert_int_equal(rd_ckpt_load_newest(dir, "model", &c, warning, &st), RD_ECKPT);
    rd_ckpt_remove(dir, "best", 10);
    rd_ckpt_remove(dir, "best", 11);
    rd_ckpt_remove(dir, "best", -1);
    assert_string_equal(listing(), "best-30.npz checkpoint model-20.npz model-30.npz");
}

static void a_named_file_that_is_gone_is_reported(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_ckpt c;
    char warning[RD_MSG_BYTES];
    empty_dir();
    put_file("checkpoint", "model-9.npz\n", 12);
    assert_int_equal(rd_ckpt_newest_step(dir), 9);
    assert_int_equal(rd_ckpt_load_newest(dir, "model", &c, warning, &st), RD_ECKPT);
    assert_non_null(strstr(st.msg, "names model-9.npz, which is not there"));
    st = (rd_status){0};
    assert_int_equal(save("best", 4, 10, 0, &st), RD_OK);
    expect_newest("model", "best-4.npz", true);
}

/* ---- damage ---- */

static void damaged_newest_gives_the_older_one(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_ckpt c;
    char warning[RD_MSG_BYTES], *file;
    size_t n;
    empty_dir();
    assert_int_equal(save("model", 1, 100, 5, &st), RD_OK);
    assert_int_equal(save("model", 2, 100, 5, &st), RD_OK);
    assert_int_equal(rd_file_read(in_dir("model-2.npz"), RD_ECKPT, &file, &n, &st), RD_OK);
    put_file("model-2.npz", file, n / 2);
    assert_int_equal(rd_ckpt_load_newest(dir, "model", &c, warning, &st), RD_OK);
    assert_int_equal(c.step, 1);
    check_content(&c);
    assert_non_null(strstr(warning, "model-2.npz"));
    rd_ckpt_release(&c);
    put_file("model-1.npz", file, 0);
    assert_int_equal(rd_ckpt_load_newest(dir, "model", &c, warning, &st), RD_ECKPT);
    assert_null(c.npz);
    assert_non_null(strstr(st.msg, "no whole checkpoint is left"));
    assert_non_null(strstr(warning, "model-1.npz"));
    free(file);
}

/* Cut anywhere, one bit turned anywhere: refused, or every array is what was saved. */
static void no_damage_is_believed(void **state)
{
    (void)state;
    rd_status st = {0};
    char *file;
    size_t n;
    empty_dir();
    assert_int_equal(save("model", 3, 200, 5, &st), RD_OK);
    assert_int_equal(rd_file_read(in_dir("model-3.npz"), RD_ECKPT, &file, &n, &st), RD_OK);
    for (size_t cut = 0; cut < n; cut++) {
        rd_ckpt c;
        rd_status one = {0};
        put_file("cut.npz", file, cut);
        assert_int_equal(rd_ckpt_load(in_dir("cut.npz"), &c, &one), RD_ECKPT);
    }
    int refused = 0;
    for (size_t i = 0; i < n; i++) {
        rd_ckpt c;
        rd_status one = {0};
        file[i] ^= (char)(1 << i % 8);
        put_file("cut.npz", file, n);
        file[i] ^= (char)(1 << i % 8);
        if (rd_ckpt_load(in_dir("cut.npz"), &c, &one) == RD_OK) {
            check_content(&c);
            rd_ckpt_release(&c);
        } else {
            assert_int_equal(one.code, RD_ECKPT);
            refused++;
        }
    }
    assert_true(refused > 1200); /* 800 bytes of data, two headers, the manifest, the directory */
    free(file);
}

/* The archive holds one array, x = float 1 2. */
#define ONE_ARRAY(name, shape, dtype, crc)                                        \
    "{'format_version':1, 'step':3, 'arrays':[{'name':'" name "', 'shape':" shape \
    ", 'dtype':'" dtype "', 'crc32c':'" crc "'}]}"
static struct manifest_row {
    const char *name, *manifest, *want; /* ' stands for " */
} manifest_rows[] = {
    {"whole", ONE_ARRAY("x", "[2]", "<f4", "%s"), NULL},
    {"no manifest", NULL, "not a checkpoint of run_dist"},
    {"no JSON", "{", "not a JSON object"},
    {"an array", "[]", "not a JSON object"},
    {"no version", "{'step':3, 'arrays':[]}", "no 'format_version'"},
    {"newer", "{'format_version':2}", "written by a newer run_dist (checkpoint format 2"},
    {"no step", "{'format_version':1, 'arrays':[]}", "lacks 'step'"},
    {"negative step", "{'format_version':1, 'step':-1, 'arrays':[]}", "lacks 'step'"},
    {"one array too many", "{'format_version':1, 'step':3, 'arrays':[]}",
     "1 arrays in the archive, 0"},
    {"another name", ONE_ARRAY("y", "[2]", "<f4", "0"), "'y' is missing"},
    {"another shape", ONE_ARRAY("x", "[2, 1]", "<f4", "0"), "differs from the manifest"},
    {"shape of text", ONE_ARRAY("x", "['2']", "<f4", "0"), "differs from the manifest"},
    {"another type", ONE_ARRAY("x", "[2]", "<i4", "0"), "differs from the manifest"},
    {"another checksum", ONE_ARRAY("x", "[2]", "<f4", "1"), "'x' is damaged"},
    {"another checksum of that length", ONE_ARRAY("x", "[2]", "<f4", "0badc0de"), "'x' is damaged"},
    {"an entry of text", "{'format_version':1, 'step':3, 'arrays':['x']}", "an entry without name"},
#define PROGRESS(text) "{'format_version':1, 'step':3, " text ", 'arrays':[]}"
    {"epoch -1", PROGRESS("'epoch':-1"),
     "'epoch' is not a whole number from 0 to 1000000000000000"},
    {"epoch -2^63", PROGRESS("'epoch':-9223372036854775808"), "'epoch' is not"},
    {"epoch 2^63 - 1", PROGRESS("'epoch':9223372036854775807"), "'epoch' is not"},
    {"a real epoch", PROGRESS("'epoch':1.5"), "'epoch' is not"},
    {"updates -1", PROGRESS("'updates':-1"), "'updates' is not"},
    {"many updates", PROGRESS("'updates':1000000000000001"), "'updates' is not"},
    {"skipped", PROGRESS("'skipped':9223372036854775807"), "'skipped' is not"},
    {"batch", PROGRESS("'batch':-5"), "'batch' is not"},
    {"samples of text", PROGRESS("'samples':'7'"), "'samples' is not"},
    {"global batch", PROGRESS("'global_batch':-1"), "'global_batch' is not"},
    {"best step", PROGRESS("'best_step':-2"), "'best_step' is not a whole number from -1"},
    {"good steps", PROGRESS("'loss_scale_good_steps':-1"), "'loss_scale_good_steps' is not"},
    {"plateau wait", PROGRESS("'plateau':{'factor':1.0, 'wait':-1}"), "'wait' is not"},
    {"plateau factor", PROGRESS("'plateau':{'factor':-1.0}"), "the plateau's 'factor' is not in"},
    {"a plateau that raises the rate", PROGRESS("'plateau':{'factor':1.5}"),
     "the plateau's 'factor' is not in"},
    {"an inner manifest", PROGRESS("'meta':{'epoch':-1}"), "'epoch' is not"},
    {"loss scale", PROGRESS("'loss_scale':0.0"), "'loss_scale' is not larger than 0"},
    {"many steps", "{'format_version':1, 'step':1000000000000001, 'arrays':[]}", "'step' is not"},
    {"a part", PROGRESS("'parts':[{'global_batch':8, 'batches':-1}]"), "'batches' is not"},
    {"tokens of a batch", PROGRESS("'batch_tokens':0"),
     "'batch_tokens' is not a whole number from 1"},
    {"tokens of a part", PROGRESS("'parts':[{'global_batch':8, 'batches':1, 'batch_tokens':0.5}]"),
     "'batch_tokens' is not a whole number from 1"},
    {"a part of none", PROGRESS("'parts':[{'global_batch':0, 'batches':1}]"),
     "'global_batch' is not a whole number from 1"},
    {"a part of text", PROGRESS("'parts':['8']"), "a part has no 'global_batch' or"},
    {"samples of the schedule", PROGRESS("'schedule':{'samples':1000000000000001}"),
     "'samples' is not a whole number"},
    {"epoch of the schedule", PROGRESS("'schedule':{'epoch':-0.5}"),
     "'epoch' is not a number from 0"},
    {"samples of a step", PROGRESS("'schedule':{'step_samples':0}"), "'step_samples' is not"},
    {"a later step of the schedule", PROGRESS("'schedule':{'step':4}"),
     "the schedule's 'step' is later"},
    {"sums", PROGRESS("'epoch_sums':{'loss':1.5, 'weight':-1.0}"), "'weight' is not a number"},
    {"no sum of the loss", PROGRESS("'epoch_sums':{'weight':1.0}"), "the 'loss' of 'epoch_sums'"},
    {"counts of classes", PROGRESS("'epoch_sums':{'loss':1.5, 'classes':['a', -1.0]}"),
     "a count of 'classes'"},
    {"a whole position",
     PROGRESS("'parts':[{'global_batch':8, 'batches':2}], 'schedule':{'step':3, 'samples':16, "
              "'epoch':0.5, 'step_samples':8}, 'epoch_sums':{'loss':1e300, 'weight':2}"),
     "1 arrays in"},
    {"largest epoch", PROGRESS("'epoch':1000000000000000"), "1 arrays in the archive, 0"},
    {"step -1 is no best step", PROGRESS("'best_step':-1, 'best_before':-1"), "1 arrays in"},
};

static void check_manifest_row(void **state)
{
    const struct manifest_row *r = *state;
    static const float x[2] = {1, 2};
    const rd_array a = {
        .name = "x", .descr = "<f4", .n_dim = 1, .dim = {2}, .data = x, .bytes = sizeof x};
    rd_status st = {0};
    rd_ckpt c;
    char text[512], warning[RD_MSG_BYTES];
    empty_dir();
    if (r->manifest) {
        char crc[16];
        snprintf(crc, sizeof crc, "%08" PRIx32, rd_crc32c(0, x, sizeof x));
        const char *at = strstr(r->manifest, "%s");
        snprintf(text, sizeof text, "%.*s%s%s",
                 at ? (int)(at - r->manifest) : (int)strlen(r->manifest), r->manifest,
                 at ? crc : "", at ? at + 2 : "");
        for (char *p = text; *p; p++) *p = *p == '\'' ? '"' : *p;
    }
    /* An older, whole checkpoint stands beside it: a newer format must not fall back to it, damage
     * must. */
    assert_int_equal(save("model", 1, 10, 5, &st), RD_OK);
    assert_int_equal(rd_npz_write(in_dir("model-3.npz"), &a, 1, r->manifest ? text : NULL, &st),
                     RD_OK);
    put_file("checkpoint", "model-3.npz\n", 12);
    (void)rd_ckpt_load(in_dir("model-3.npz"), &c, &st);
    if (!r->want) {
        assert_string_equal(st.msg, "");
        assert_int_equal(c.step, 3);
        rd_ckpt_release(&c);
        return;
    }
    assert_int_equal(st.code, RD_ECKPT);
    if (!strstr(st.msg, r->want)) fail_msg("'%s' is not in '%s'", r->want, st.msg);
    st = (rd_status){0};
    if (strcmp(r->name, "newer") == 0) {
        assert_int_equal(rd_ckpt_load_newest(dir, "model", &c, warning, &st), RD_ECKPT);
        assert_non_null(strstr(st.msg, "newer run_dist"));
    } else {
        assert_int_equal(rd_ckpt_load_newest(dir, "model", &c, warning, &st), RD_OK);
        assert_int_equal(c.step, 1);
        assert_non_null(strstr(warning, r->want));
        rd_ckpt_release(&c);
    }
}

static struct pointer_row {
    const char *name, *text;
    int64_t want;
    bool warns;
} pointer_rows[] = {
    /* A kill between the two renames of a save leaves this. */
    {"names an older one", "model-2.npz\n", 3, false},
    {"names the newest one", "model-3.npz\n", 3, false},
    {"without newline", "model-3.npz", 3, false},
    {"with CRLF", "model-3.npz\r\n", 3, false},
    {"empty", "", 3, true},
    {"names a missing one", "model-9.npz\n", 3, true},
    {"leading zero", "model-03.npz\n", 3, true},
    {"another prefix", "best-1.npz\n", 3, true},
    {"a path", "../model-1.npz\n", 3, true},
    {"a temporary", "model-1.npz.tmp.5", 3, true},
    {"a step too large", "model-99999999999999999999.npz\n", 3, true},
};

static void check_pointer(void **state)
{
    const struct pointer_row *r = *state;
    rd_status st = {0};
    rd_ckpt c;
    char warning[RD_MSG_BYTES];
    empty_dir();
    for (int64_t s = 1; s <= 3; s++) assert_int_equal(save("model", s, 10, 0, &st), RD_OK);
    put_file("checkpoint", r->text, strlen(r->text));
    assert_int_equal(rd_ckpt_load_newest(dir, "model", &c, warning, &st), RD_OK);
    assert_int_equal(c.step, r->want);
    assert_int_equal(warning[0] != '\0', r->warns);
    rd_ckpt_release(&c);
}

/* ---- space ---- */

static void full_disk_keeps_the_previous_one(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_ckpt c;
    char warning[RD_MSG_BYTES];
    struct rlimit was, now;
    empty_dir();
    assert_int_equal(save("model", 1, 5000, 5, &st), RD_OK);
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    now = was;
    for (rlim_t limit = 0; limit < 20000; limit += 1013) {
        rd_status one = {0};
        now.rlim_cur = limit;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
        (void)save("model", 2, 5000, 5, &one);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
        assert_int_equal(one.code, RD_EENV);
        assert_non_null(strstr(one.msg, "earlier checkpoints are intact"));
        assert_string_equal(listing(), "checkpoint model-1.npz");
    }
    (void)signal(SIGXFSZ, old);
    assert_int_equal(rd_ckpt_load_newest(dir, "model", &c, warning, &st), RD_OK);
    assert_int_equal(c.step, 1);
    check_content(&c);
    rd_ckpt_release(&c);
    assert_int_equal(save("model", 2, 5000, 5, &st), RD_OK); /* and goes on when there is room */
}

static void space_is_asked_for_first(void **state)
{
    (void)state;
    rd_status st = {0};
    char was[sizeof dir];
    empty_dir();
    if (mount("none", dir, "tmpfs", 0, "size=256k") != 0) skip(); /* needs root */
    assert_int_equal(save("model", 1, 10000, 5, &st), RD_OK);
    assert_int_equal(save("model", 2, 100000, 5, &st), RD_EENV);
    const bool told = strstr(st.msg, "bytes needed") && strstr(st.msg, "free") &&
                      strstr(st.msg, "free space");
    memcpy(was, listing(), sizeof was);
    (void)umount(dir);
    assert_true(told);
    assert_string_equal(was, "checkpoint model-1.npz");
}

static void a_lost_folder_is_told(void **state)
{
    (void)state;
    static const float x[1];
    const rd_array a = {
        .name = "x", .descr = "<f4", .n_dim = 1, .dim = {1}, .data = x, .bytes = sizeof x};
    rd_status st = {0};
    assert_int_equal(rd_ckpt_save(in_dir("gone"), "model", 1, &a, 1, NULL, 5, &st), RD_EENV);
    assert_non_null(strstr(st.msg, "gone"));
}

/* ---- lock and temporary files ---- */

static void lock_has_one_owner(void **state)
{
    (void)state;
    rd_status st = {0};
    char warning[RD_MSG_BYTES], want[64], host[64];
    int fd, second, to_parent[2], rc;
    empty_dir();
    assert_int_equal(pipe(to_parent), 0);
    const pid_t child = fork();
    if (child == 0) {
        (void)alarm(60); /* a test that fails leaves it behind */
        rd_status mine = {0};
        char w[RD_MSG_BYTES], ok = rd_logdir_lock(dir, &fd, w, &mine) == RD_OK && !w[0];
        if (write(to_parent[1], &ok, 1) != 1) _exit(1);
        for (;;) pause();
    }
    char ok = 0;
    assert_int_equal(read(to_parent[0], &ok, 1), 1);
    assert_true(ok);
    assert_int_equal(rd_logdir_lock(dir, &second, warning, &st), RD_EUSAGE);
    assert_int_equal(second, -1);
    snprintf(want, sizeof want, "process %ld on host", (long)child);
    assert_non_null(strstr(st.msg, want));
    assert_int_equal(gethostname(host, sizeof host), 0);
    assert_non_null(strstr(st.msg, host));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &rc, 0), child);
    st = (rd_status){0};
    assert_int_equal(rd_logdir_lock(dir, &fd, warning, &st), RD_OK); /* died with its owner */
    assert_int_equal(rd_logdir_lock(dir, &second, warning, &st),
                     RD_EUSAGE); /* also within a process */
    assert_int_equal(close(fd), 0);
    st = (rd_status){0};
    assert_int_equal(rd_logdir_lock(dir, &fd, warning, &st), RD_OK);
    assert_int_equal(close(fd), 0);
    assert_int_equal(rd_logdir_lock(in_dir("nowhere"), &fd, warning, &st), RD_EENV);
    close(to_parent[0]);
    close(to_parent[1]);
}

static pid_t dead_pid(void)
{
    int rc;
    const pid_t p = fork();
    if (p == 0) _exit(0);
    assert_int_equal(waitpid(p, &rc, 0), p);
    return p;
}

static void touch_temporaries(pid_t pid)
{
    static const char *const names[] = {"model-5.npz",   "best-5.npz", "checkpoint",
                                        "metrics.jsonl", "step.json",  "data.json",
                                        "samples.jsonl", "notes",      "model-x.npz"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.tmp.%ld", names[i], (long)pid);
        put_file(name, "x", 1);
    }
}

static void stale_temporaries_go(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_ckpt c;
    char warning[RD_MSG_BYTES], foreign[128];
    int fd;
    /* Nobody holds the lock: those of the dead go, those of the living and of others stay. */
    const pid_t dead = dead_pid();
    snprintf(foreign, sizeof foreign, "model-x.npz.tmp.%ld notes.tmp.%ld", (long)dead, (long)dead);
    empty_dir();
    touch_temporaries(dead);
    char living[64];
    snprintf(living, sizeof living, "model-5.npz.tmp.%ld", (long)getppid());
    put_file(living, "x", 1);
    assert_int_equal(rd_ckpt_load_newest(dir, "model", &c, warning, &st), RD_OK);
    assert_true(exists(living));
    assert_int_equal(unlink(in_dir(living)), 0);
    assert_string_equal(listing(), foreign);

    /* We hold it: the number may be a living process's by now. */
    empty_dir();
    assert_int_equal(rd_logdir_lock(dir, &fd, warning, &st), RD_OK);
    put_file(living, "x", 1);
    assert_int_equal(rd_ckpt_load_newest(dir, "model", &c, warning, &st), RD_OK);
    assert_string_equal(listing(), "");
    assert_int_equal(rd_logdir_lock(dir, &(int){0}, warning, &(rd_status){0}),
                     RD_EUSAGE); /* looking did not lose the lock */

    /* Another process holds it: nothing is touched. */
    touch_temporaries(dead);
    const pid_t child = fork();
    if (child == 0) _exit(rd_ckpt_load_newest(dir, "model", &c, warning, &st) != RD_OK);
    int rc;
    assert_int_equal(waitpid(child, &rc, 0), child);
    assert_int_equal(rc, 0);
    char one[64];
    snprintf(one, sizeof one, "model-5.npz.tmp.%ld", (long)dead);
    assert_true(exists(one));
    assert_int_equal(close(fd), 0);
}

/* All files of these folders are the program's own. Through a link they may be another run's. */
static void stale_temporaries_go_inside(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_ckpt c;
    char warning[RD_MSG_BYTES], name[64];
    const pid_t dead = dead_pid();
    for (int link = 0; link < 2; link++) {
        empty_dir();
        assert_int_equal(mkdir(in_dir("real"), 0755), 0);
        if (link)
            assert_int_equal(symlink("real", in_dir("text")), 0);
        else
            assert_int_equal(rename(in_dir("real"), in_dir("text")), 0);
        snprintf(name, sizeof name, "text/ids-1.bin.tmp.%ld", (long)dead);
        put_file(name, "x", 1);
        put_file("text/ids-1.bin", "x", 1);
        assert_int_equal(rd_ckpt_load_newest(dir, "model", &c, warning, &st), RD_OK);
        assert_int_equal(exists(name), link);
        assert_true(exists("text/ids-1.bin"));
        (void)unlink(in_dir(name));
        assert_int_equal(unlink(in_dir("text/ids-1.bin")), 0);
        assert_int_equal(link ? unlink(in_dir("text")) : rmdir(in_dir("text")), 0);
        if (link) assert_int_equal(rmdir(in_dir("real")), 0);
    }
}

/* A writer is killed at 30 moments. Each time the named checkpoint is whole, and the next writer
 * continues from it. */
/* Writes checkpoints until it is killed. A byte into `told` reports that the first one is whole. */
static _Noreturn void save_for_ever(int64_t step, int told)
{
    rd_status st = {0};
    char w[RD_MSG_BYTES];
    int fd;
    (void)alarm(60);
    if (rd_logdir_lock(dir, &fd, w, &st) != RD_OK) _exit(1);
    for (int64_t s = step + 1;; s++) {
        if (save("model", s, 300000, 3, &st) != RD_OK) _exit(1);
        if (s == step + 1 && write(told, "", 1) != 1) _exit(1);
    }
}

/* Most rounds let the writer finish one checkpoint, so that a busy machine cannot keep it from ever
 * saving. Each fifth round does not. */
static void killed_at_any_moment(void **state)
{
    (void)state;
    uint32_t random = 12345;
    int64_t step = 0;
    int in_write = 0;
    empty_dir();
    for (int round = 0; round < 30; round++) {
        const bool patient = round % 5 != 0;
        const int64_t before = step;
        int ends[2];
        char byte;
        assert_int_equal(pipe(ends), 0);
        const pid_t child = fork();
        if (child == 0) save_for_ever(step, ends[1]);
        (void)close(ends[1]);
        if (patient) assert_int_equal(read(ends[0], &byte, 1), 1);
        random = random * 1664525 + 1013904223;
        (void)nanosleep(&(struct timespec){.tv_nsec = 2000000 + random % 30000000}, NULL);
        int rc;
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &rc, 0), child);
        (void)close(ends[0]);
        assert_true(WIFSIGNALED(rc) && WTERMSIG(rc) == SIGKILL);
        in_write += strstr(listing(), ".tmp.") != NULL;

        rd_status st = {0};
        rd_ckpt c;
        char warning[RD_MSG_BYTES];
        assert_int_equal(rd_ckpt_load_newest(dir, "model", &c, warning, &st), RD_OK);
        assert_string_equal(warning, "");
        assert_null(strstr(listing(), ".tmp."));
        if (c.npz) {
            assert_true(c.step >= before + patient);
            step = c.step;
            check_content(&c);
        } else {
            assert_true(step == 0 && !patient);
        }
        rd_ckpt_release(&c);
    }
    assert_true(step >= 24);   /* one at least in each patient round */
    assert_true(in_write > 3); /* else the moments missed what they are for */
}

/* What check_npz.py reads, last so that it stays. */
static void leaves_one_for_numpy(void **state)
{
    (void)state;
    rd_status st = {0};
    empty_dir();
    assert_int_equal(save("model", 42, 1000, 5, &st), RD_OK);
}

RD_TESTS_WITH("checkpoint", make_dir, remove_dir, TEST(saved_comes_back),
              TEST(a_missing_folder_holds_none), TEST(same_state_same_bytes),
              TEST(best_lives_beside_model), TEST(newest_whole_file_wins_whatever_its_name),
              TEST(a_named_file_that_is_gone_is_reported), TEST(damaged_newest_gives_the_older_one),
              TEST(no_damage_is_believed), TEST(full_disk_keeps_the_previous_one),
              TEST(space_is_asked_for_first), TEST(a_lost_folder_is_told), TEST(lock_has_one_owner),
              TEST(stale_temporaries_go), TEST(stale_temporaries_go_inside),
              TEST(killed_at_any_moment), TEST_ROWS(check_keep, keep_rows),
              TEST_ROWS(check_manifest_row, manifest_rows), TEST_ROWS(check_pointer, pointer_rows),
              TEST(leaves_one_for_numpy))
