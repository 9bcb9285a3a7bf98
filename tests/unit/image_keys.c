/* image_keys.c -- which files of a WebDataset shard are one sample, also with dots in keys; hard
 * links in archives; what is said about files that are skipped. */
#include "../../runner/data/images_impl.h"
#include "test.h"
#include "image_files.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SHARD "{'data_dir': '@', 'train_data': 'k.tar%s', 'n_classes': 10, 'image_size': 8}"

static rd_code open_shard(const char *gz, rd_dataset **d, rd_status *st)
{
    char config[256];
    snprintf(config, sizeof config, SHARD, gz);
    return images_open("webdataset", files_dir(), config, RD_MODE_TRAIN, RD_SPLIT_TRAIN, NULL, NULL,
                       d, st);
}

/* ---- keys: a file NAME.cls=3 has that class, every other is an image ---- */
static struct key_row {
    const char *name, *files, *samples; /* "image label, ..." */
    const char *says;                   /* instead of samples */
} key_rows[] = {
    {"plain keys", "1.jpg 1.cls=3 2.cls=4 2.png", "1.jpg 3, 2.png 4", NULL},
    {"dots in keys", "n01.10.jpg n01.10.cls=1 n01.11.jpg n01.11.cls=2 n02.5.jpg n02.5.cls=0",
     "n01.10.jpg 1, n01.11.jpg 2, n02.5.jpg 0", NULL},
    {"many dots, class first", "img.v2.final.0007.cls=7 img.v2.final.0007.jpeg",
     "img.v2.final.0007.jpeg 7", NULL},
    {"a folder with a dot", "d.1/a.jpg d.1/a.cls=1 d.1/b.jpg d.1/b.cls=2",
     "d.1/a.jpg 1, d.1/b.jpg 2", NULL},
    {"extra fields of a plain key", "1.jpg 1.mask.png 1.cls=3 1.depth.png 1.json 2.jpg 2.cls=1",
     "1.jpg 3, 2.jpg 1", NULL},
    {"extra fields with an image and a class",
     "1.left.jpg 1.left.cls=9 1.jpg 1.cls=3 2.jpg 2.cls=1", "1.jpg 3, 2.jpg 1", NULL},
    {"an extra class that is no number", "1.jpg 1.cls=3 1.fine.cls=cat 1.fine.jpg", "1.jpg 3",
     NULL},
    {"two extra images of one name", "1.a.jpg 1.a.png 1.jpg 1.cls=3", "1.jpg 3", NULL},
    {"dots and other fields", "a.1.json a.1.jpg a.1.cls=1 a.2.jpg a.2.txt a.2.cls=2",
     "a.1.jpg 1, a.2.jpg 2", NULL},
    {"plain and dotted keys", "7.jpg 7.cls=1 8.1.jpg 8.1.cls=2 9.jpg 9.cls=3",
     "7.jpg 1, 8.1.jpg 2, 9.jpg 3", NULL},
    {"a dotted key without a class", "a.1.jpg a.1.cls=1 a.2.jpg", NULL, "'a.2' has no .cls file"},
    {"a dotted key without an image", "a.1.cls=1 a.2.jpg a.2.cls=1", NULL,
     "'a.1' has no .jpg file"},
    {"a dotted class that is no number", "a.1.jpg a.1.cls=cat", NULL,
     "'a.1.cls' is not a class number but \"cat\""},
    {"a dotted class out of range", "a.1.jpg a.1.cls=10", NULL, "label 10 of 'a.1.cls' is out of"},
    {"a plain key without a class", "1.jpg 1.mask.png 2.jpg 2.cls=1", NULL, "'1' has no .cls file"},
    {"a plain class, dotted images", "1.cls=1 1.left.jpg", NULL, "'1' has no .jpg file"},
    {"other fields alone", "1.json 1.seg.npy 2.jpg 2.cls=1", NULL, "'1' has no .jpg file"},
    {"samples apart", "a.1.jpg a.2.jpg a.1.cls=1 a.2.cls=1", NULL, "'a.1' has no .cls file"},
};

static void check_key(void **state)
{
    const struct key_row *r = *state;
    for (int gz = 0; gz < 2; gz++) {
        char list[512], *save = NULL, got[512] = "";
        rd_status st = {0};
        rd_dataset *d;
        snprintf(list, sizeof list, "%s", r->files);
        tar_out *t = tar_out_new(files_at(gz ? "k.tar.gz" : "k.tar"));
        for (char *f = strtok_r(list, " ", &save); f; f = strtok_r(NULL, " ", &save)) {
            char *eq = strchr(f, '=');
            if (eq) *eq = '\0';
            tar_out_put(t, f, eq ? eq + 1 : f, strlen(eq ? eq + 1 : f));
        }
        tar_out_end(t);
        const rd_code code = open_shard(gz ? ".gz" : "", &d, &st);
        if (r->says) {
            if (code != RD_EDATA || !strstr(st.msg, r->says)) fail_msg("%s", st.msg);
            continue;
        }
        must(&st);
        const rd_images *m = rd_dataset_self(d);
        for (int64_t i = 0; i < m->head.n; i++) {
            const rd_sample *s = rd_images_sample(m, i);
            const char *name = m->block[RD_BLOCK_NAMES].p + s->name;
            const size_t n = strlen(got);
            snprintf(got + n, sizeof got - n, "%s%s %d", i ? ", " : "", name, s->label);
            /* An image holds its own name. */
            assert_int_equal(s->bytes, strlen(name));
            if (gz) assert_memory_equal(m->block[RD_BLOCK_PIXELS].p + s->at, name, s->bytes);
        }
        assert_string_equal(got, r->samples);
        rd_dataset_free(d);
    }
}

/* ---- hard links, as tar writes them ---- */

static void shell(const char *what)
{
    char cmd[2048];
    snprintf(cmd, sizeof cmd, "cd '%s' && %s", files_dir(), what);
    assert_int_equal(system(cmd), 0);
}

/* The bytes of all members, one after the other, with their names. */
static char *members(const char *path, int64_t *ignored)
{
    static char out[1024];
    rd_status st = {0};
    rd_tar *t = NULL;
    rd_tar_member e;
    const char *first;
    size_t n = 0;
    must_do(rd_tar_new(path, &t, &st), &st);
    for (;;) {
        char text[256] = "";
        must_do(rd_tar_next(t, &e, &st), &st);
        if (!e.name) break;
        assert_true(e.bytes < 200);
        must_do(rd_tar_read(t, &e, text, &st), &st);
        n += (size_t)snprintf(out + n, sizeof out - n, "%s=%s ", e.name, text);
    }
    *ignored = rd_tar_ignored(t, &first);
    rd_tar_free(t);
    return out;
}

static struct link_row {
    const char *name, *make, *members;
    int64_t ignored;
} link_rows[] = {
    {"a link behind its target", "echo -n one > a && ln a b && echo -n two > c && tar -cf L a b c",
     "a=one b=one c=two ", 0},
    {"many links, several targets",
     "echo -n one > a && ln a b && ln a c && echo -n two > d && ln d e && tar -cf L a d b e c",
     "a=one d=two b=one e=two c=one ", 0},
    {"names with ./ in front", "echo -n one > a && ln a b && tar -cf L ./a ./b", "a=one b=one ", 0},
    {"the target is in another folder",
     "mkdir p q && echo -n one > p/a && ln p/a q/b && tar -cf L p/a q/b", "p/a=one q/b=one ", 0},
    {"pax", "echo -n one > a && ln a b && tar --format=pax -cf L a b", "a=one b=one ", 0},
    {"a symbolic link is none", "echo -n one > a && ln -s a s && tar -cf L a s", "a=one ", 1},
    {"a target that is not in the archive",
     "echo -n one > a && ln a b && echo -n two > c && tar -cf L a b c && tar --delete -f L a",
     "c=two ", 1},
    {"an empty target", ": > a && ln a b && echo -n x > c && tar -cf L a b c", "a= b= c=x ", 0},
};

static void check_link(void **state)
{
    const struct link_row *r = *state;
    static const char *const packed[] = {"L", "L.gz", "L.xz"};
    char cmd[1024];
    int64_t ignored;
    snprintf(cmd, sizeof cmd, "rm -rf l && mkdir l && cd l && %s && gzip -k L && xz -k L", r->make);
    shell(cmd);
    for (int k = 0; k < 3; k++) {
        char path[64];
        snprintf(path, sizeof path, "l/%s", packed[k]);
        assert_string_equal(members(files_at(path), &ignored), r->members);
        assert_int_equal(ignored, r->ignored);
    }
    shell("rm -r l");
}

/* A shard and a tar of tars with links are read like those without links: the same pixels, labels
 * and order. */
static void test_linked_sets(void **state)
{
    (void)state;
    uint8_t *jpeg;
    const size_t n = picture_jpeg(20, 24, 3, 5, &jpeg);
    shell("rm -rf l && mkdir l");
    files_put(files_at("l/1.jpg"), jpeg, n);
    files_put(files_at("l/1.cls"), "3", 1);
    free(jpeg);
    shell("cd l && ln 1.jpg 2.jpg && ln 1.cls 2.cls && tar -cf ../k.tar 1.jpg 1.cls 2.jpg 2.cls && "
          "tar -czf ../k.tar.gz 1.jpg 1.cls 2.jpg 2.cls && tar -cf n01.tar 1.jpg 2.jpg && "
          "tar -cf n02.tar 2.jpg 1.jpg && tar -cf ../nested.tar n01.tar n02.tar");
    static const struct {
        const char *dataset, *config;
        int64_t n;
    } sets[] = {
        {"webdataset", "{'data_dir': '@', 'train_data': 'k.tar', 'n_classes': 10, 'image_size': 8}",
         2},
        {"webdataset",
         "{'data_dir': '@', 'train_data': 'k.tar.gz', 'n_classes': 10, 'image_size': 8}", 2},
        {"imagenet_tar", "{'data_dir': '@', 'train_data': 'nested.tar', 'image_size': 8}", 4},
    };
    for (int k = 0; k < 3; k++) {
        rd_status st = {0};
        rd_dataset *d;
        float *x;
        int64_t got;
        must_do(images_open(sets[k].dataset, files_dir(), sets[k].config, RD_MODE_TRAIN,
                            RD_SPLIT_TRAIN, NULL, NULL, &d, &st),
                &st);
        must_do(images_all(d, 3, 0, &x, &got, NULL, &st), &st);
        assert_int_equal(got, sets[k].n);
        for (int64_t i = 1; i < got; i++)
            assert_memory_equal(x, x + i * 8 * 8 * 3, 8 * 8 * 3 * sizeof *x);
        assert_float_not_equal(x[0], 0.5f, 0.001);
        free(x);
        rd_dataset_free(d);
    }
    shell("rm -r l");
}

RD_TESTS_WITH("image_keys", files_set_up, files_tear_down, TEST(test_linked_sets),
              TEST_ROWS(check_key, key_rows), TEST_ROWS(check_link, link_rows))
