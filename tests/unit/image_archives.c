/* image_archives.c -- tests that the same pictures give byte-identical batches as a class
 * folder, as WebDataset shards (plain and compressed) and as a tar of tars. Archives that are
 * cut short, inflated or lead elsewhere are refused. */
#include "../../runner/data/images_impl.h"
#include "test.h"
#include "image_files.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CLASSES = 3, EACH = 5, ALL = CLASSES * EACH };
static const char *const class_name[CLASSES] = {"ant", "bee", "cat"};

typedef struct fixture {
    char dir[256];
    uint8_t *jpeg[ALL];
    size_t n[ALL];
} fixture;

static const char *at(const fixture *f, char *buf, const char *name)
{
    snprintf(buf, 1024, "%s/%s", f->dir, name);
    return buf;
}

static void put_folder(fixture *f)
{
    char a[1024], b[1280];
    files_mkdir(at(f, a, "train"));
    for (int k = 0; k < CLASSES; k++) {
        snprintf(b, sizeof b, "%s/train/%s", f->dir, class_name[k]);
        files_mkdir(b);
        for (int i = 0; i < EACH; i++) {
            snprintf(b, sizeof b, "%s/train/%s/p%d.%s", f->dir, class_name[k], i,
                     i % 2 ? "jpg" : "JPEG");
            files_put(b, f->jpeg[k * EACH + i], f->n[k * EACH + i]);
        }
        snprintf(b, sizeof b, "%s/train/%s/notes.txt", f->dir, class_name[k]);
        files_put(b, "x", 1);
        snprintf(b, sizeof b, "%s/train/%s/._p0.jpg", f->dir, class_name[k]);
        files_put(b, "x", 1);
    }
}

/* Samples in the order of the folder, over two shards. */
static void put_shards(fixture *f, const char *pattern)
{
    char name[64], a[1024];
    for (int s = 0; s < 2; s++) {
        snprintf(name, sizeof name, pattern, s);
        tar_out *t = tar_out_new(at(f, a, name));
        for (int i = s ? 8 : 0; i < (s ? ALL : 8); i++) {
            const int n = snprintf(name, sizeof name, "%d\n", i / EACH);
            char key[64];
            snprintf(key, sizeof key, "dir.d/%06d.cls", i);
            if (i % 2) tar_out_put(t, key, name, (size_t)n);
            snprintf(key, sizeof key, "dir.d/%06d.jpg", i);
            tar_out_put(t, key, f->jpeg[i], f->n[i]);
            snprintf(key, sizeof key, "dir.d/%06d.json", i);
            tar_out_put(t, key, "{}", 2);
            snprintf(key, sizeof key, "dir.d/%06d.cls", i);
            if (i % 2 == 0) tar_out_put(t, key, name, (size_t)n);
            if (i == 3) tar_out_put(t, "dir.d/._000003.jpg", "mac", 3);
        }
        tar_out_end(t);
    }
}

/* Inner archives, and images in them, in an order that is not sorted. */
static void put_nested(fixture *f, const char *path, const char *inner_end)
{
    char name[64], a[1024];
    tar_out *outer = tar_out_new(path);
    for (int q = 0; q < CLASSES; q++) {
        const int k = (q + 1) % CLASSES;
        snprintf(name, sizeof name, "inner%s", inner_end);
        tar_out *t = tar_out_new(at(f, a, name));
        for (int j = 0; j < EACH; j++) {
            const int i = (j + 2) % EACH;
            snprintf(name, sizeof name, "%s_%d.JPEG", class_name[k], i);
            tar_out_put(t, name, f->jpeg[k * EACH + i], f->n[k * EACH + i]);
        }
        tar_out_end(t);
        size_t n;
        char *p = files_get(a, &n);
        snprintf(name, sizeof name, "%s%s", class_name[k], inner_end);
        tar_out_put(outer, name, p, n);
        free(p);
    }
    tar_out_end(outer);
}

static void put_flat(fixture *f)
{
    char name[64], a[1024];
    tar_out *t = tar_out_new(at(f, a, "ILSVRC2012_img_val.tar"));
    FILE *words = fopen(at(f, a, "val_words.txt"), "w"),
         *numbers = fopen(at(f, a, "val_numbers.txt"), "w");
    FILE *named = fopen(at(f, a, "val_named.txt"), "w"),
         *synsets = fopen(at(f, a, "synsets.txt"), "w");
    assert_true(words && numbers && named && synsets);
    static const int ilsvrc[CLASSES] = {2, 3, 1}; /* another order than that of the names */
    for (int j = 0; j < ALL; j++) {               /* the lists go by name, the archive does not */
        const int i = (j * 4) % ALL;
        snprintf(name, sizeof name, "ILSVRC2012_val_%08d.JPEG", i + 1);
        tar_out_put(t, name, f->jpeg[i], f->n[i]);
        fprintf(words, "%s\n", class_name[j / EACH]);
        fprintf(numbers, "%d\n", ilsvrc[j / EACH]);
        fprintf(named, "%s %d\n", name, i / EACH);
    }
    for (int k = 0; k < CLASSES; k++) fprintf(synsets, "%s %d a_name\n", class_name[k], ilsvrc[k]);
    fclose(words);
    fclose(numbers);
    fclose(named);
    fclose(synsets);
    tar_out_end(t);
}

static fixture *shared_fixture; /* the state of a test is its row */

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    char a[1024];
    assert_non_null(f);
    files_begin(f->dir);
    for (int i = 0; i < ALL; i++)
        f->n[i] = picture_jpeg(40 + 7 * (i % 4), 50 + 9 * (i % 3), i % 5 == 4 ? 1 : 3, (unsigned)i,
                               &f->jpeg[i]);
    put_folder(f);
    put_shards(f, "s-%02d.tar");
    put_shards(f, "c-%02d.tar.gz");
    put_nested(f, at(f, a, "ILSVRC2012_img_train.tar"), ".tar");
    put_nested(f, at(f, a, "packed.tar.gz"), ".tar");
    put_nested(f, at(f, a, "inside.tar"), ".tar.gz");
    put_flat(f);
    shared_fixture = f;
    (void)state;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = shared_fixture;
    (void)state;
    files_end(f->dir);
    for (int i = 0; i < ALL; i++) free(f->jpeg[i]);
    free(f);
    return 0;
}

#define COMMON                                                                          \
    "'data_dir': '@', 'image_size': 24, 'augmentation': 'crop_flip', 'normalization': " \
    "'imagenet', 'seed': 5"

static void read_all(const fixture *f, const char *dataset, const char *config, rd_split split,
                     float **x, int32_t *labels)
{
    rd_status st = {0};
    rd_dataset *d;
    int64_t n;
    const rd_mode mode = split == RD_SPLIT_TRAIN ? RD_MODE_TRAIN : RD_MODE_EVAL;
    must_do(images_open(dataset, f->dir, config, mode, split, NULL, NULL, &d, &st), &st);
    must_do(images_all(d, 4, 3, x, &n, labels, &st), &st);
    assert_int_equal(n, ALL);
    rd_dataset_free(d);
}

static struct same_row {
    const char *name, *dataset, *config;
} same_rows[] = {
    {"shards", "webdataset", "{" COMMON ", 'train_data': 's-{00..01}.tar', 'n_classes': 3}"},
    {"shards, three threads", "webdataset",
     "{" COMMON ", 'train_data': 's-{00..01}.tar', 'n_classes': 3, 'data_threads': 3}"},
    {"shards by pattern", "webdataset", "{" COMMON ", 'train_data': 's-*.tar', 'n_classes': 3}"},
    {"compressed shards", "webdataset",
     "{" COMMON ", 'train_data': 'c-{00,01}.tar.gz', 'n_classes': 3}"},
    {"tar of tars", "imagenet_tar", "{" COMMON "}"},
    {"tar of tars, two threads", "imagenet_tar", "{" COMMON ", 'data_threads': 2}"},
    {"compressed tar of tars", "imagenet_tar", "{" COMMON ", 'train_data': 'packed.tar.gz'}"},
    {"tar of compressed tars", "imagenet_tar", "{" COMMON ", 'train_data': 'inside.tar'}"},
    {"folder, two threads", "image_folder", "{" COMMON ", 'data_threads': 2}"},
};

static void check_same(void **state)
{
    const struct same_row *r = *state;
    float *want, *got;
    int32_t want_labels[ALL], labels[ALL];
    read_all(shared_fixture, "image_folder", "{" COMMON "}", RD_SPLIT_TRAIN, &want, want_labels);
    read_all(shared_fixture, r->dataset, r->config, RD_SPLIT_TRAIN, &got, labels);
    assert_memory_equal(labels, want_labels, sizeof labels);
    assert_memory_equal(got, want, sizeof(float) * ALL * 24 * 24 * 3);
    for (int i = 0; i < ALL; i++) assert_int_equal(labels[i], i / EACH);
    free(want);
    free(got);
}

static struct same_row flat_rows[] = {
    {"validation labels by WordNet id", "imagenet_tar", "'eval_labels': 'val_words.txt'"},
    {"validation labels by ILSVRC id", "imagenet_tar",
     "'eval_labels': 'val_numbers.txt', 'synsets_file': 'synsets.txt'"},
    {"validation labels by file name", "imagenet_tar", "'eval_labels': 'val_named.txt'"},
    {"validation labels without the training archive", "imagenet_tar",
     "'eval_labels': 'val_words.txt', 'train_data': 'none.tar'"},
};

static void check_flat(void **state)
{
    const struct same_row *r = *state;
    char config[512];
    float *want, *got;
    int32_t labels[ALL];
    const char *common = "'data_dir': '@', 'image_size': 24, 'eval_resize': 30";
    snprintf(config, sizeof config, "{%s, 'eval_data': 'train'}", common);
    read_all(shared_fixture, "image_folder", config, RD_SPLIT_EVAL, &want, NULL);
    snprintf(config, sizeof config, "{%s, %s}", common, r->config);
    read_all(shared_fixture, r->dataset, config, RD_SPLIT_EVAL, &got, labels);
    assert_memory_equal(got, want, sizeof(float) * ALL * 24 * 24 * 3);
    for (int i = 0; i < ALL; i++) assert_int_equal(labels[i], i / EACH);
    free(want);
    free(got);
}

static void test_names(void **state)
{
    const fixture *f = shared_fixture;
    (void)state;
    rd_status st = {0};
    rd_dataset *d;
    rd_data_spec spec;
    rd_strbuf b = {0};
    assert_int_equal(images_open("imagenet_tar", f->dir, "{" COMMON "}", RD_MODE_TRAIN,
                                 RD_SPLIT_TRAIN, NULL, NULL, &d, &st),
                     RD_OK);
    const rd_dataset_def *def = rd_dataset_def_of(d);
    def->spec(rd_dataset_self(d), &spec);
    assert_int_equal(spec.n_classes, CLASSES);
    assert_non_null(spec.class_names);
    for (int k = 0; k < CLASSES; k++) assert_string_equal(spec.class_names[k], class_name[k]);
    def->text(rd_dataset_self(d), 1, (const int32_t[]){1, 2}, 2, false, &b);
    assert_string_equal(rd_strbuf_str(&b), "bee cat");
    rd_strbuf_reset(&b);
    def->text(rd_dataset_self(d), 0, (const int32_t[]){5}, 1, false, &b);
    assert_non_null(strstr(rd_strbuf_str(&b), "ILSVRC2012_img_train.tar!bee/bee_0.JPEG"));
    rd_strbuf_release(&b);
    rd_dataset_free(d);
}

/* More classes than there are, and one below them all: names where the model sees them. */
static void test_more_classes(void **state)
{
    const fixture *f = shared_fixture;
    (void)state;
    rd_status st = {0};
    rd_dataset *d;
    rd_data_spec spec;
    rd_strbuf b = {0};
    const char *config = "{" COMMON ", 'n_classes': 6, 'label_offset': 1}";
    assert_int_equal(images_open("image_folder", f->dir, config, RD_MODE_TRAIN, RD_SPLIT_TRAIN,
                                 NULL, NULL, &d, &st),
                     RD_OK);
    const rd_dataset_def *def = rd_dataset_def_of(d);
    def->spec(rd_dataset_self(d), &spec);
    assert_int_equal(spec.n_classes, 6);
    assert_string_equal(spec.class_names[0], "");
    assert_string_equal(spec.class_names[1], "ant");
    assert_string_equal(spec.class_names[3], "cat");
    assert_string_equal(spec.class_names[5], "");
    def->text(rd_dataset_self(d), 1, (const int32_t[]){0, 2, 5, 6, -1}, 5, false, &b);
    assert_string_equal(rd_strbuf_str(&b), "0 bee 5 6 -1");
    rd_strbuf_release(&b);
    rd_dataset_free(d);
}

/* Cut at every block: a message, or, once both empty blocks are there, all of the data. */
static void check_cut(const fixture *f, const char *dataset, const char *name, const char *config,
                      int64_t n_whole)
{
    char a[1024];
    size_t n;
    char *p = files_get(at(f, a, name), &n);
    int n_refused = 0, n_whole_seen = 0;
    for (size_t k = 0; k <= n; k += 512) {
        rd_status st = {0};
        rd_dataset *d;
        files_put(at(f, a, "cut.tar"), p, k);
        if (images_open(dataset, f->dir, config, RD_MODE_TRAIN, RD_SPLIT_TRAIN, NULL, NULL, &d,
                        &st) == RD_OK) {
            assert_int_equal(rd_dataset_def_of(d)->count(rd_dataset_self(d)), n_whole);
            n_whole_seen++;
            rd_dataset_free(d);
            continue;
        }
        assert_int_equal(st.code, RD_EDATA);
        assert_null(d);
        assert_non_null(strstr(st.msg, "cut.tar"));
        n_refused++;
    }
    assert_true(n_refused > 10);
    assert_in_range(n_whole_seen, 1, 20); /* the zeros that fill up the last record */
    unlink(at(f, a, "cut.tar"));
    free(p);
}

static void test_cut(void **state)
{
    const fixture *f = shared_fixture;
    (void)state;
    check_cut(f, "webdataset", "s-00.tar",
              "{'data_dir': '@', 'train_data': 'cut.tar', 'n_classes': 3}", 8);
    check_cut(f, "imagenet_tar", "ILSVRC2012_img_train.tar",
              "{'data_dir': '@', 'train_data': 'cut.tar'}", ALL);
}

static void test_cut_compressed(void **state)
{
    const fixture *f = shared_fixture;
    (void)state;
    char a[1024];
    size_t n;
    char *p = files_get(at(f, a, "c-00.tar.gz"), &n);
    for (size_t k = 0; k<n; k += n - k> 16 ? 1 + n / 60 : 1) {
        rd_status st = {0};
        rd_dataset *d;
        files_put(at(f, a, "cut.tar.gz"), p, k);
        assert_int_equal(
            images_open("webdataset", f->dir,
                        "{'data_dir': '@', 'train_data': 'cut.tar.gz', 'n_classes': 3}",
                        RD_MODE_TRAIN, RD_SPLIT_TRAIN, NULL, NULL, &d, &st),
            RD_EDATA);
    }
    unlink(at(f, a, "cut.tar.gz"));
    free(p);
}

/* The checksum at the end is wrong. In inside.tar it is the checksum of the first archive, whose
 * end comes before the next header. */
static void test_flipped(void **state)
{
    const fixture *f = shared_fixture;
    (void)state;
    static const struct {
        const char *file, *dataset, *says;
    } rows[] = {{"c-00.tar.gz", "webdataset", "flipped.tar': the checksum at its end"},
                {"packed.tar.gz", "imagenet_tar", "flipped.tar': the checksum at its end"},
                {"inside.tar", "imagenet_tar", "flipped.tar!bee.tar.gz': the checksum at its end"}};
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        char a[1024];
        size_t n;
        rd_status st = {0};
        rd_dataset *d;
        char *p = files_get(at(f, a, rows[k].file), &n);
        const bool inside = p[0] != 0x1F;
        size_t end = inside ? 512 + strtoul(p + 124, NULL, 8) : n;
        p[end - 8] ^= 1;
        files_put(at(f, a, "flipped.tar"), p, n);
        free(p);
        assert_int_equal(
            images_open(rows[k].dataset, f->dir,
                        "{'data_dir': '@', 'train_data': 'flipped.tar', 'n_classes': 3}",
                        RD_MODE_TRAIN, RD_SPLIT_TRAIN, NULL, NULL, &d, &st),
            RD_EDATA);
        assert_non_null(strstr(st.msg, "cannot trust '"));
        if (!strstr(st.msg, rows[k].says)) fail_msg("%s", st.msg);
        unlink(at(f, a, "flipped.tar"));
    }
}

/* The compressed stream is whole, what is in it is not. */
static void test_cut_then_compressed(void **state)
{
    const fixture *f = shared_fixture;
    (void)state;
    char a[1024];
    size_t n;
    char *p = files_get(at(f, a, "s-00.tar"), &n);
    int n_refused = 0;
    for (size_t k = 512; k <= n; k += 512) {
        rd_status st = {0};
        rd_dataset *d;
        files_put_gz(at(f, a, "cut.tar.gz"), p, k);
        if (images_open("webdataset", f->dir,
                        "{'data_dir': '@', 'train_data': 'cut.tar.gz', 'n_classes': 3}",
                        RD_MODE_TRAIN, RD_SPLIT_TRAIN, NULL, NULL, &d, &st) == RD_OK) {
            assert_int_equal(rd_dataset_def_of(d)->count(rd_dataset_self(d)), 8);
            rd_dataset_free(d);
            continue;
        }
        assert_int_equal(st.code, RD_EDATA);
        n_refused++;
    }
    assert_in_range(n / 512 - (size_t)n_refused, 1, 20);
    unlink(at(f, a, "cut.tar.gz"));
    free(p);
}

/* ---- refused ---- */

static void refuse(const fixture *f, const char *dataset, const char *config, rd_code code,
                   const char *says)
{
    rd_status st = {0};
    rd_dataset *d;
    const rd_code got = images_open(dataset, f->dir, config, RD_MODE_TRAIN, RD_SPLIT_TRAIN, NULL,
                                    NULL, &d, &st);
    if (got != code || !strstr(st.msg, says))
        fail_msg("code %d, message '%s', but '%s' was expected", got, st.msg, says);
    assert_null(d);
}

static struct bad_row {
    const char *name;
    const char *member[4], *content[4];
    rd_code code;
    const char *says;
} bad_rows[] = {
    {"a path that leads up", {"../x.jpg"}, {"j"}, RD_EDATA, "leads out of the archive"},
    {"a path that leads up later", {"a/../../x.jpg"}, {"j"}, RD_EDATA, "leads out of the archive"},
    {"an absolute path", {"/etc/x.jpg"}, {"j"}, RD_EDATA, "leads out of the archive"},
    {"no class", {"a.jpg", "b.cls"}, {"j", "1"}, RD_EDATA, "'a' has no .cls file"},
    {"no image", {"a.cls", "b.jpg"}, {"1", "j"}, RD_EDATA, "'a' has no .jpg file"},
    {"a class that is no number",
     {"a.jpg", "a.cls"},
     {"j", "dog"},
     RD_EDATA,
     "is not a class number but \"dog\""},
    {"an empty class", {"a.jpg", "a.cls"}, {"j", ""}, RD_EDATA, "is not a class number"},
    {"a class out of range",
     {"a.jpg", "a.cls"},
     {"j", "3"},
     RD_EDATA,
     "label 3 of 'a.cls' is out of range"},
    {"a negative class",
     {"a.jpg", "a.cls"},
     {"j", "-1"},
     RD_EDATA,
     "label -1 of 'a.cls' is out of range"},
    {"a sample with two images",
     {"a.jpg", "a.jpeg", "a.cls"},
     {"j", "j", "1"},
     RD_EDATA,
     "has two images"},
    {"a sample with two classes",
     {"a.jpg", "a.cls", "a.cls"},
     {"j", "1", "1"},
     RD_EDATA,
     "has two .cls files"},
    {"no sample", {"README"}, {"j"}, RD_EDATA, "no image in the training data"},
};

static void check_bad(void **state)
{
    const struct bad_row *r = *state;
    char a[1024];
    tar_out *t = tar_out_new(at(shared_fixture, a, "bad.tar"));
    for (int k = 0; k < 4 && r->member[k]; k++)
        tar_out_put(t, r->member[k], r->content[k], strlen(r->content[k]));
    tar_out_end(t);
    refuse(shared_fixture, "webdataset",
           "{'data_dir': '@', 'train_data': 'bad.tar', 'n_classes': 3}", r->code, r->says);
}

static void test_refused(void **state)
{
    const fixture *f = shared_fixture;
    (void)state;
    char a[1024];
    refuse(f, "webdataset", "{'data_dir': '@', 'n_classes': 3}", RD_EUSAGE,
           "missing key 'train_data'");
    refuse(f, "webdataset", "{'data_dir': '@', 'train_data': 's-00.tar'}", RD_EUSAGE,
           "missing key 'n_classes'");
    refuse(f, "webdataset", "{'data_dir': '@', 'train_data': 's-{00..07}.tar', 'n_classes': 3}",
           RD_EDATA, "s-02.tar");
    refuse(f, "webdataset", "{'data_dir': '@', 'train_data': 's-{00..', 'n_classes': 3}", RD_EUSAGE,
           "braces are not closed");
    refuse(f, "webdataset", "{'data_dir': '@', 'train_data': 'q-*.tar', 'n_classes': 3}", RD_EDATA,
           "no file matches");
    refuse(f, "webdataset", "{'train_data': 's-00.tar', 'n_classes': 3}", RD_EUSAGE,
           "missing key 'data_dir'");
    files_put(at(f, a, "text.tar"), "this is no archive at all, but it goes on for some bytes", 56);
    refuse(f, "webdataset", "{'data_dir': '@', 'train_data': 'text.tar', 'n_classes': 3}", RD_EDATA,
           "is not a complete tar archive");
    files_put(at(f, a, "empty.tar"), "", 0);
    refuse(f, "webdataset", "{'data_dir': '@', 'train_data': 'empty.tar', 'n_classes': 3}",
           RD_EDATA, "is empty");
    refuse(f, "imagenet_tar", "{'data_dir': '@', 'train_data': 's-00.tar'}", RD_EDATA,
           "is not a tar of one tar for each class");
    refuse(f, "imagenet_tar", "{'data_dir': '@', 'n_classes': 2}", RD_EDATA,
           "the data has 3 classes, but n_classes is 2");
}

/* 200 MB of zeros in 200 kB. */
static void test_bomb(void **state)
{
    const fixture *f = shared_fixture;
    (void)state;
    char a[1024];
    const size_t n = (size_t)200 << 20;
    void *zeros = calloc(n, 1);
    assert_non_null(zeros);
    tar_out *t = tar_out_new(at(f, a, "bomb.tar.gz"));
    tar_out_put(t, "a.jpg", zeros, n);
    tar_out_put(t, "a.cls", "1", 1);
    tar_out_end(t);
    free(zeros);
    refuse(f, "webdataset", "{'data_dir': '@', 'train_data': 'bomb.tar.gz', 'n_classes': 3}",
           RD_EDATA, "claims to hold more than");
    unlink(at(f, a, "bomb.tar.gz"));
}

/* ---- names in braces ---- */

static rd_code collect(void *ctx, const char *path, rd_status *st)
{
    rd_strbuf_printf(ctx, "%s ", path);
    return st->code;
}

static struct brace_row {
    const char *name, *pattern, *want;
} brace_rows[] = {
    {"no braces", "a.tar", "a.tar "},
    {"a range", "a{0..2}.tar", "a0.tar a1.tar a2.tar "},
    {"a range with zeros", "{08..11}", "08 09 10 11 "},
    {"a range of one width", "{8..11}", "8 9 10 11 "},
    {"a list", "{a,b,}c", "ac bc c "},
    {"two of them", "{a,b}{1..2}", "a1 a2 b1 b2 "},
    {"one word", "{x}", "x "},
    {"a range that is none", "{1..b}", "1..b "},
};

static void check_braces(void **state)
{
    const struct brace_row *r = *state;
    rd_status st = {0};
    rd_strbuf b = {0};
    assert_int_equal(rd_braces(r->pattern, collect, &b, &st), RD_OK);
    assert_string_equal(rd_strbuf_str(&b), r->want);
    rd_strbuf_release(&b);
}

static void test_braces_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"{a", "{a{b}}", "{5..2}", "{0..9999999}",
                                      "{0..999}{0..9999}"};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        rd_status st = {0};
        rd_strbuf b = {0};
        assert_int_equal(rd_braces(bad[k], collect, &b, &st), RD_EUSAGE);
        rd_strbuf_release(&b);
    }
}

RD_TESTS_WITH("image_archives", set_up, tear_down, TEST_ROWS(check_same, same_rows),
              TEST_ROWS(check_flat, flat_rows), TEST_ROWS(check_bad, bad_rows),
              TEST_ROWS(check_braces, brace_rows), TEST(test_names), TEST(test_more_classes),
              TEST(test_cut), TEST(test_cut_compressed), TEST(test_flipped),
              TEST(test_cut_then_compressed), TEST(test_refused), TEST(test_bomb),
              TEST(test_braces_refused))
