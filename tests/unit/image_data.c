/* image_data.c -- tests IDX, CIFAR, .npz and class folders: what is read is what was written. A
 * bad file is reported with its name and is RD_EDATA. */
#include "test.h"
#include "image_files.h"
#include "rd/npz.h"
#include "rd/strbuf.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N = 6, H = 5, W = 4 };

static void refuse(const char *dataset, const char *config, rd_mode mode, rd_split split,
                   rd_code code, const char *says)
{
    rd_status st = {0};
    rd_dataset *d;
    const rd_code got = images_open(dataset, files_dir(), config, mode, split, NULL, NULL, &d, &st);
    if (got != code || !strstr(st.msg, says))
        fail_msg("code %d, message '%s', but '%s' was expected", got, st.msg, says);
    assert_null(d);
}

static rd_dataset *open_ok(const char *dataset, const char *config, rd_mode mode, rd_split split)
{
    rd_status st = {0};
    rd_dataset *d;
    must_do(images_open(dataset, files_dir(), config, mode, split, NULL, NULL, &d, &st), &st);
    return d;
}

/* ---- IDX ---- */

static uint8_t pixel(int64_t i)
{
    return (uint8_t)(i * 37 % 251);
}

static size_t idx_images(uint8_t *out, int n)
{
    const uint8_t head[16] = {0, 0, 8, 3, 0, 0, 0, (uint8_t)n, 0, 0, 0, H, 0, 0, 0, W};
    memcpy(out, head, sizeof head);
    for (int i = 0; i < n * H * W; i++) out[16 + i] = pixel(i);
    return 16 + (size_t)n * H * W;
}

static size_t idx_labels(uint8_t *out, int n)
{
    const uint8_t head[8] = {0, 0, 8, 1, 0, 0, 0, (uint8_t)n};
    memcpy(out, head, sizeof head);
    for (int i = 0; i < n; i++) out[8 + i] = (uint8_t)(i * 3 % 10);
    return 8 + (size_t)n;
}

static void check_idx(rd_dataset *d)
{
    rd_status st = {0};
    float *x;
    int64_t n;
    int32_t labels[N];
    assert_int_equal(rd_dataset_def_of(d)->count(rd_dataset_self(d)), N);
    assert_int_equal(images_all(d, 4, 0, &x, &n, labels, &st), RD_OK);
    for (int i = 0; i < N * H * W; i++) assert_float_equal(x[i], (float)pixel(i) / 255.0f, 1e-7);
    for (int i = 0; i < N; i++) assert_int_equal(labels[i], i * 3 % 10);
    free(x);
    rd_dataset_free(d);
}

static struct spelling {
    const char *name, *images, *labels, *config;
    bool gz;
    rd_split split;
} spellings[] = {
    {"dashes", "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "{'data_dir': '@'}", false,
     RD_SPLIT_TRAIN},
    {"dashes, compressed", "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
     "{'data_dir': '@'}", true, RD_SPLIT_TRAIN},
    {"dots", "train-images.idx3-ubyte", "train-labels.idx1-ubyte", "{'data_dir': '@'}", false,
     RD_SPLIT_TRAIN},
    {"dots, compressed without .gz", "train-images.idx3-ubyte", "train-labels.idx1-ubyte",
     "{'data_dir': '@'}", true, RD_SPLIT_TRAIN},
    {".gz that is not compressed", "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
     "{'data_dir': '@'}", false, RD_SPLIT_TRAIN},
    {"evaluation", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz", "{'data_dir': '@'}",
     true, RD_SPLIT_EVAL},
    {"test", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "{'data_dir': '@'}", false,
     RD_SPLIT_TEST},
    {"a name of its own", "my-images-idx3", "my-labels-idx1",
     "{'data_dir': '@', 'train_data': 'my-images-idx3'}", false, RD_SPLIT_TRAIN},
    {"two names of their own", "a.idx", "b.idx",
     "{'train_data': '@/a.idx', 'train_labels': '@/b.idx'}", true, RD_SPLIT_TRAIN},
};

static void check_spelling(void **state)
{
    const struct spelling *r = *state;
    uint8_t b[512];
    void (*put)(const char *, const void *, size_t) = r->gz ? files_put_gz : files_put;
    put(files_at(r->images), b, idx_images(b, N));
    put(files_at(r->labels), b, idx_labels(b, N));
    check_idx(open_ok("idx", r->config, r->split == RD_SPLIT_TRAIN ? RD_MODE_TRAIN : RD_MODE_EVAL,
                      r->split));
    unlink(files_at(r->images));
    unlink(files_at(r->labels));
}

/* One byte changed, or bytes cut off or added. */
static struct idx_row {
    const char *name;
    bool labels;
    int at, value, resize;
    const char *says;
} idx_rows[] = {
    {"wrong magic", false, 0, 1, 0, "is not an IDX file"},
    {"text", false, 1, 'e', 0, "is not an IDX file"},
    {"floats", false, 2, 0x0D, 0, "elements of type 0x0D"},
    {"two dimensions", false, 3, 2, 0, "has 2 dimensions, but images have three"},
    {"labels as images", false, 3, 1, 0, "has 1 dimension, but images have three"},
    {"more images than bytes", false, 7, 200, 0,
     "promises 4000 bytes, more than the file can hold"},
    {"a huge number", false, 4, 255, 0, "more than the file can hold"},
    {"fewer images than bytes", false, 7, 5, 0, "more data than the 100 bytes"},
    {"no image", false, 7, 0, 0, "0 images of 5 x 4 x 1"},
    {"no height", false, 11, 0, 0, "6 images of 0 x 4 x 1"},
    {"cut short", false, -1, 0, -1, "119 bytes of data, but its header promises 120"},
    {"cut within the header", false, -1, 0, -122, "ends within its header"},
    {"cut within the magic", false, -1, 0, -134, "is not an IDX file"},
    {"nothing", false, -1, 0, -136, "is not an IDX file"},
    {"a byte too many", false, -1, 0, 1, "more data than the 120 bytes"},
    {"labels: wrong magic", true, 1, 2, 0, "is not an IDX file"},
    {"labels: three dimensions", true, 3, 3, 0, "has 3 dimensions, but labels have one"},
    {"labels: another number", true, 7, 5, -1, "has 5 labels, but '"},
    {"labels: out of range", true, 8 + 3, 10, 0,
     "label 10 of sample 3 is out of range: there are 10 classes"},
    {"labels: cut short", true, -1, 0, -2, "4 bytes of data, but its header promises 6"},
    {"labels: a byte too many", true, -1, 0, 1, "more data than the 6 bytes"},
};

static void check_idx_row(void **state)
{
    const struct idx_row *r = *state;
    uint8_t b[2][512] = {{0}};
    size_t n[2] = {idx_images(b[0], N), idx_labels(b[1], N)};
    if (r->at >= 0) b[r->labels][r->at] = (uint8_t)r->value;
    n[r->labels] = (size_t)((int)n[r->labels] + r->resize);
    files_put(files_at("train-images-idx3-ubyte"), b[0], n[0]);
    files_put(files_at("train-labels-idx1-ubyte"), b[1], n[1]);
    refuse("idx", "{'data_dir': '@'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA, r->says);
    refuse("idx", "{'data_dir': '@'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
           r->labels ? "train-labels" : "train-images");
    unlink(files_at("train-images-idx3-ubyte"));
    unlink(files_at("train-labels-idx1-ubyte"));
}

static void test_idx_elsewhere(void **state)
{
    (void)state;
    uint8_t b[512];
    refuse("idx", "{'data_dir': '@'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
           "has no train-images-idx3-ubyte(.gz)");
    refuse("idx", "{'data_dir': '@/none'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
           "there is no folder");
    refuse("idx", "{}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EUSAGE, "missing key 'data_dir'");
    refuse("idx", "{'data_dir': ''}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EUSAGE,
           "empty key 'data_dir'");
    refuse("idx", "{'data_dir': '[MNIST_DATA_LOCATION]'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
           "--set data_location=FOLDER");
    files_put(files_at("x.idx"), b, idx_images(b, N));
    refuse("idx", "{'data_dir': '@', 'train_data': 'x.idx'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN,
           RD_EUSAGE, "train_labels");
    refuse("idx", "{'data_dir': '@', 'train_data': '', 'train_labels': 'y'}", RD_MODE_TRAIN,
           RD_SPLIT_TRAIN, RD_EDATA, "has no train-images");
    files_put_gz(files_at("gz-images-idx3"), b,
                 60); /* the compressed stream is whole, the data in it is not */
    files_put(files_at("gz-labels-idx1"), b, idx_labels(b, N));
    refuse("idx", "{'data_dir': '@', 'train_data': 'gz-images-idx3'}", RD_MODE_TRAIN,
           RD_SPLIT_TRAIN, RD_EDATA, "the file is cut short");
    (void)idx_images(b, N);
    /* 1.9 billion images in a compressed file of a hundred bytes: refused before any memory is
     * allocated. */
    b[4] = 0x70;
    files_put_gz(files_at("gz-images-idx3"), b, 136);
    refuse("idx", "{'data_dir': '@', 'train_data': 'gz-images-idx3'}", RD_MODE_TRAIN,
           RD_SPLIT_TRAIN, RD_EDATA, "more than the file can hold");
    size_t n;
    files_put_gz(files_at("gz-images-idx3"), b, idx_images(b, N));
    char *p = files_get(files_at("gz-images-idx3"), &n);
    files_put(files_at("gz-images-idx3"), p, n / 2);
    refuse("idx", "{'data_dir': '@', 'train_data': 'gz-images-idx3'}", RD_MODE_TRAIN,
           RD_SPLIT_TRAIN, RD_EDATA, "cut short");
    free(p);
}

/* Where torchvision and Keras leave the files below the folder that they are given. */
static void test_idx_roots(void **state)
{
    static const struct {
        const char *folder, *config;
        bool gz;
    } rows[] = {
        {"tv/MNIST/raw", "{'data_dir': '@/tv'}", false},
        {"tv/MNIST/raw", "{'data_dir': '@/tv/MNIST'}", true},
        {"tv/MNIST/raw", "{'data_dir': '@/tv/MNIST/raw'}", false},
        {"tv/FashionMNIST/raw", "{'data_dir': '@/tv'}", true},
        {"tv/fashion-mnist", "{'data_dir': '@/tv'}", true},
    };
    static const char *const parts[] = {"tv",
                                        "tv/MNIST",
                                        "tv/MNIST/raw",
                                        "tv/FashionMNIST",
                                        "tv/FashionMNIST/raw",
                                        "tv/fashion-mnist"};
    static const char *const sets[] = {"train", "t10k"};
    char name[128];
    uint8_t b[512];
    (void)state;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_int_equal(mkdir(files_at(parts[i]), 0700), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void (*put)(const char *, const void *, size_t) = rows[i].gz ? files_put_gz : files_put;
        const char *gz = rows[i].gz ? ".gz" : "";
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "%s/%s-images-idx3-ubyte%s", rows[i].folder, sets[k], gz);
            put(files_at(name), b, idx_images(b, N));
            snprintf(name, sizeof name, "%s/%s-labels-idx1-ubyte%s", rows[i].folder, sets[k], gz);
            put(files_at(name), b, idx_labels(b, N));
            check_idx(open_ok("idx", rows[i].config, k ? RD_MODE_EVAL : RD_MODE_TRAIN,
                              k ? RD_SPLIT_EVAL : RD_SPLIT_TRAIN));
        }
        for (int k = 0; k < 4; k++) {
            snprintf(name, sizeof name, "%s/%s-%s-ubyte%s", rows[i].folder, sets[k / 2],
                     k % 2 ? "labels-idx1" : "images-idx3", gz);
            assert_int_equal(unlink(files_at(name)), 0);
        }
    }
    files_put(files_at("tv/MNIST/raw/train-images-idx3-ubyte"), b, idx_images(b, N));
    refuse("idx", "{'data_dir': '@/tv'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
           "has no train-labels-idx1-ubyte(.gz)");
    files_put(files_at("tv/FashionMNIST/raw/train-images-idx3-ubyte"), b, idx_images(b, N));
    refuse("idx", "{'data_dir': '@/tv'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
           "has images in both MNIST/raw/ and FashionMNIST/raw/; set data_dir to one");
    refuse("idx", "{'data_dir': '@/tv/MNIST/raw/train-images-idx3-ubyte'}", RD_MODE_TRAIN,
           RD_SPLIT_TRAIN, RD_EDATA, "is a file, but dataset idx reads a folder");
    files_put(files_at("tv/mnist.npz"), b, 10);
    refuse("idx", "{'data_dir': '@/tv'}", RD_MODE_EVAL, RD_SPLIT_EVAL, RD_EDATA,
           "for its mnist.npz --set dataset=npz_images");
}

static void test_idx_classes(void **state)
{
    (void)state;
    uint8_t b[512];
    rd_data_spec spec;
    files_put(files_at("k-images-idx3"), b, idx_images(b, N));
    files_put(files_at("k-labels-idx1"), b, idx_labels(b, N));
    refuse("idx", "{'data_dir': '@', 'train_data': 'k-images-idx3', 'n_classes': 9}", RD_MODE_TRAIN,
           RD_SPLIT_TRAIN, RD_EDATA, "label 9 of sample 3 is out of range");
    rd_dataset *d = open_ok(
        "idx",
        "{'data_dir': '@', 'train_data': 'k-images-idx3', 'n_classes': 27, 'label_offset': 1}",
        RD_MODE_TRAIN, RD_SPLIT_TRAIN);
    rd_status st = {0};
    float *x;
    int64_t n;
    int32_t labels[N];
    rd_dataset_def_of(d)->spec(rd_dataset_self(d), &spec);
    assert_int_equal(spec.n_classes, 27);
    assert_int_equal(images_all(d, 6, 0, &x, &n, labels, &st), RD_OK);
    for (int i = 0; i < N; i++) assert_int_equal(labels[i], 1 + i * 3 % 10);
    free(x);
    rd_dataset_free(d);
}

/* ---- CIFAR ---- */

enum { REC10 = 3073, REC100 = 3074 };

/* n records; byte j of plane k of record i is different from its neighbours. */
static size_t cifar_bytes(uint8_t *out, int n, int n_labels, int from)
{
    uint8_t *p = out;
    for (int i = 0; i < n; i++) {
        if (n_labels == 2) *p++ = (uint8_t)((from + i) % 20);
        *p++ = (uint8_t)((from + i) * 7 % (n_labels == 2 ? 100 : 10));
        for (int j = 0; j < 3072; j++) *p++ = (uint8_t)((from + i) * 13 + j * 11 + j / 1024 * 5);
    }
    return (size_t)(p - out);
}

static void check_cifar(rd_dataset *d, int n_want, int n_labels, bool coarse, int n_classes)
{
    rd_status st = {0};
    float *x;
    int64_t n;
    int32_t labels[64];
    rd_data_spec spec;
    uint8_t *raw = malloc((size_t)n_want * REC100);
    assert_non_null(raw);
    rd_dataset_def_of(d)->spec(rd_dataset_self(d), &spec);
    assert_int_equal(spec.n_classes, n_classes);
    assert_int_equal(images_all(d, 5, 0, &x, &n, labels, &st), RD_OK);
    assert_int_equal(n, n_want);
    (void)cifar_bytes(raw, n_want, n_labels, 0);
    for (int i = 0; i < n_want; i++) {
        const uint8_t *rec = raw + (size_t)i * (size_t)(n_labels + 3072);
        assert_int_equal(labels[i], rec[coarse ? 0 : n_labels - 1]);
        for (int j = 0; j < 1024; j++)
            for (int k = 0; k < 3; k++)
                assert_float_equal(x[(i * 1024 + j) * 3 + k], rec[n_labels + k * 1024 + j], 1e-4);
    }
    free(raw);
    free(x);
    rd_dataset_free(d);
}

static void test_cifar(void **state)
{
    (void)state;
    uint8_t *b = malloc(8 * REC100);
    char path[600];
    assert_non_null(b);
    files_mkdir(files_at("c"));
    files_mkdir(files_at("c/cifar-10-batches-bin"));
    tar_out *t = tar_out_new(files_at("c10.tar.gz"));
    for (int k = 5; k >= 1; k--) { /* in the archive they are not in order */
        snprintf(path, sizeof path, "cifar-10-batches-bin/data_batch_%d.bin", k);
        const size_t n = cifar_bytes(b, 3, 1, (k - 1) * 3);
        tar_out_put(t, path, b, n);
        snprintf(path, sizeof path, "%s/c/cifar-10-batches-bin/data_batch_%d.bin", files_dir(), k);
        files_put(path, b, n);
    }
    static const char names[] =
        "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n";
    tar_out_put(t, "cifar-10-batches-bin/batches.meta.txt", names, sizeof names - 1);
    const size_t n = cifar_bytes(b, 4, 1, 0);
    tar_out_put(t, "cifar-10-batches-bin/test_batch.bin", b, n);
    tar_out_end(t);
    files_put(files_at("c/cifar-10-batches-bin/test_batch.bin"), b, n);
    check_cifar(open_ok("cifar", "{'data_dir': '@/c10.tar.gz', 'normalization': 'none'}",
                        RD_MODE_TRAIN, RD_SPLIT_TRAIN),
                15, 1, false, 10);
    check_cifar(open_ok("cifar", "{'data_dir': '@/c10.tar.gz', 'normalization': 'none'}",
                        RD_MODE_EVAL, RD_SPLIT_EVAL),
                4, 1, false, 10);
    check_cifar(open_ok("cifar", "{'data_dir': '@/c', 'normalization': 'none'}", RD_MODE_TRAIN,
                        RD_SPLIT_TRAIN),
                15, 1, false, 10);
    check_cifar(open_ok("cifar",
                        "{'data_dir': '@/c/cifar-10-batches-bin', 'normalization': 'none'}",
                        RD_MODE_EVAL, RD_SPLIT_EVAL),
                4, 1, false, 10);
    rd_dataset *d = open_ok("cifar", "{'data_dir': '@/c10.tar.gz'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN);
    rd_strbuf s = {0};
    rd_dataset_def_of(d)->text(rd_dataset_self(d), 1, (const int32_t[]){3}, 1, false, &s);
    assert_string_equal(rd_strbuf_str(&s), "cat");
    rd_strbuf_release(&s);
    rd_dataset_free(d);

    files_mkdir(files_at("h"));
    t = tar_out_new(files_at("h/cifar-100-binary.tar.gz"));
    tar_out_put(t, "cifar-100-binary/train.bin", b, cifar_bytes(b, 6, 2, 0));
    tar_out_put(t, "cifar-100-binary/test.bin", b, cifar_bytes(b, 2, 2, 0));
    tar_out_end(t);
    check_cifar(open_ok("cifar", "{'data_dir': '@/h', 'normalization': 'none'}", RD_MODE_TRAIN,
                        RD_SPLIT_TRAIN),
                6, 2, false, 100);
    check_cifar(open_ok("cifar", "{'data_dir': '@/h', 'normalization': 'none', 'n_classes': 20}",
                        RD_MODE_TRAIN, RD_SPLIT_TRAIN),
                6, 2, true, 20);
    free(b);
}

static void test_cifar_refused(void **state)
{
    (void)state;
    uint8_t *b = malloc(4 * REC100);
    assert_non_null(b);
    files_mkdir(files_at("bad"));
    refuse("cifar", "{'data_dir': '@/bad'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
           "has neither the files of CIFAR");
    refuse("cifar", "{'data_dir': '@/none'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
           "configs/get_cifar10 fetches");
    const size_t n = cifar_bytes(b, 3, 1, 0);
    files_put(files_at("bad/data_batch_1.bin"), b, n - 1);
    refuse("cifar", "{'data_dir': '@/bad'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
           "'data_batch_1.bin' has 9218 bytes, not a multiple of the 3073");
    files_put(files_at("bad/data_batch_1.bin"), b, 0);
    refuse("cifar", "{'data_dir': '@/bad'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
           "has 0 bytes");
    b[REC10] = 10;
    files_put(files_at("bad/data_batch_1.bin"), b, n);
    refuse("cifar", "{'data_dir': '@/bad'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
           "label 10 of sample 1 is out of range");
    refuse("cifar", "{'data_dir': '@/bad', 'n_classes': 100}", RD_MODE_TRAIN, RD_SPLIT_TRAIN,
           RD_EDATA, "has neither the files of CIFAR");
    refuse("cifar", "{'data_dir': '@/bad'}", RD_MODE_EVAL, RD_SPLIT_EVAL, RD_EDATA,
           "has neither the files of CIFAR");
    files_put(files_at("bad/train.bin"), b, cifar_bytes(b, 1, 2, 0));
    refuse("cifar", "{'data_dir': '@/bad'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
           "holds both CIFAR-10 and CIFAR-100");
    files_put(files_at("bad.tar"), b, 3073);
    refuse("cifar", "{'data_dir': '@/bad.tar'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
           "is not a complete tar archive");
    tar_out *t = tar_out_new(files_at("other.tar"));
    tar_out_put(t, "readme", "x", 1);
    tar_out_end(t);
    refuse("cifar", "{'data_dir': '@/other.tar'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
           "has no data_batch_1.bin");
    free(b);
}

/* ---- .npz ---- */

static void test_npz(void **state)
{
    (void)state;
    rd_status st = {0};
    uint8_t x[N * H * W], y1[N];
    int64_t y8[N];
    for (int i = 0; i < N * H * W; i++) x[i] = pixel(i);
    for (int i = 0; i < N; i++) y8[i] = y1[i] = (uint8_t)(i * 3 % 10);
    const rd_array whole[] = {{"x_train", "|u1", 3, {N, H, W}, .data = x, .bytes = sizeof x},
                              {"y_train", "|u1", 1, {N}, .data = y1, .bytes = sizeof y1},
                              {"x_test", "|u1", 4, {N, H, W, 1}, .data = x, .bytes = sizeof x},
                              {"y_test", "<i8", 2, {N, 1}, .data = y8, .bytes = sizeof y8}};
    assert_int_equal(rd_npz_write(files_at("mnist.npz"), whole, 4, NULL, &st), RD_OK);
    check_idx(open_ok("npz_images", "{'data_dir': '@'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN));
    check_idx(open_ok("npz_images", "{'data_dir': '@'}", RD_MODE_EVAL, RD_SPLIT_EVAL));
    check_idx(open_ok("npz_images", "{'data_dir': '@/mnist.npz'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN));
    check_idx(open_ok("npz_images", "{'data_dir': '@/mnist.npz'}", RD_MODE_EVAL, RD_SPLIT_EVAL));
    check_idx(open_ok("npz_images", "{'eval_data': '@/mnist.npz'}", RD_MODE_INFER, RD_SPLIT_TEST));

    static const struct {
        const char *says;
        int which;
        rd_array a;
    } bad[] = {
        {"has no array 'x_train'; it has: ", 0, {"x", "|u1", 3, {N, H, W}, .bytes = N * H * W}},
        {"3 dimensions of type <f4, but images", 0, {"x_train", "<f4", 3, {2, 2, 2}, .bytes = 32}},
        {"2 dimensions of type |u1, but images", 0, {"x_train", "|u1", 2, {N, H}, .bytes = N * H}},
        {"5 images in 'x_train', 6 labels in 'y_train'",
         0,
         {"x_train", "|u1", 3, {5, H, W}, .bytes = 5 * H * W}},
        {"6 images of 5 x 2 x 2", 0, {"x_train", "|u1", 4, {N, H, 2, 2}, .bytes = N * H * 4}},
        {"1 dimensions of type <f4, but labels", 1, {"y_train", "<f4", 1, {N}, .bytes = 4 * N}},
        {"label -1 of sample 0 is out of range", 1, {"y_train", "|i1", 1, {N}, .bytes = N}},
        {"has no array 'y_train'", 1, {"y", "|i1", 1, {N}, .bytes = N}},
    };
    uint8_t junk[4 * N * H * W];
    memset(junk, 255, sizeof junk);
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        rd_array two[2] = {whole[0], whole[1]};
        two[bad[k].which] = bad[k].a;
        two[bad[k].which].data = junk;
        assert_int_equal(rd_npz_write(files_at("bad.npz"), two, 2, NULL, &st), RD_OK);
        refuse("npz_images", "{'train_data': '@/bad.npz'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
               bad[k].says);
    }
    files_put(files_at("bad.npz"), junk, 100);
    refuse("npz_images", "{'train_data': '@/bad.npz'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
           "not a whole zip archive");
    refuse("npz_images", "{'train_data': '@/none.npz'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
           "cannot open");
}

/* ---- class folders ---- */

static void put_jpeg(const char *name, unsigned seed)
{
    uint8_t *p;
    const size_t n = picture_jpeg(32, 40, 3, seed, &p);
    files_put(files_at(name), p, n);
    free(p);
}

static void test_folder(void **state)
{
    (void)state;
    rd_status st = {0};
    int32_t labels[8];
    float *x;
    int64_t n;
    files_mkdir(files_at("f"));
    refuse("image_folder", "{'data_dir': '@/f'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
           "there is no folder '");
    files_mkdir(files_at("f/train"));
    refuse("image_folder", "{'data_dir': '@/f'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
           "has no folder for a class; each class");
    put_jpeg("f/train/x.jpg", 1);
    refuse("image_folder", "{'data_dir': '@/f'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
           "has no folder for a class, only files");
    for (int k = 0; k < 3; k++) {
        static const char *const folder[] = {"f/train/b", "f/train/a", "f/train/c"};
        files_mkdir(files_at(folder[k]));
    }
    put_jpeg("f/train/a/1.jpg", 1);
    put_jpeg("f/train/b/1.jpg", 2);
    refuse("image_folder", "{'data_dir': '@/f'}", RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EDATA,
           "f/train/c' has no .jpg");
    files_mkdir(files_at("f/train/c/deep"));
    put_jpeg("f/train/c/deep/2.jpeg", 3);
    put_jpeg("f/train/c/1.JPG", 4);
    rd_dataset *d = open_ok("image_folder", "{'data_dir': '@/f', 'image_size': 8}", RD_MODE_TRAIN,
                            RD_SPLIT_TRAIN);
    assert_int_equal(images_all(d, 3, 0, &x, &n, labels, &st), RD_OK);
    assert_int_equal(n, 4);
    assert_memory_equal(labels, ((const int32_t[]){0, 1, 2, 2}), 4 * sizeof(int32_t));
    free(x);
    rd_dataset_free(d);

    /* Evaluation: classes are those of training, even where some are missing. */
    files_mkdir(files_at("f/val"));
    files_mkdir(files_at("f/val/c"));
    put_jpeg("f/val/c/9.jpg", 5);
    d = open_ok("image_folder", "{'data_dir': '@/f', 'image_size': 8}", RD_MODE_EVAL,
                RD_SPLIT_EVAL);
    assert_int_equal(images_all(d, 3, 0, &x, &n, labels, &st), RD_OK);
    assert_int_equal(n, 1);
    assert_int_equal(labels[0], 2);
    free(x);
    rd_dataset_free(d);
    files_mkdir(files_at("f/val/dog"));
    refuse("image_folder", "{'data_dir': '@/f', 'image_size': 8}", RD_MODE_EVAL, RD_SPLIT_EVAL,
           RD_EDATA, "has a class 'dog' that the training data does not have");

    /* Inference: images without classes, in the order of their names. */
    files_mkdir(files_at("f/new"));
    put_jpeg("f/new/2.jpg", 6);
    put_jpeg("f/new/1.jpg", 7);
    d = open_ok("image_folder", "{'data_dir': '@/f', 'test_data': 'new', 'image_size': 8}",
                RD_MODE_INFER, RD_SPLIT_TEST);
    rd_strbuf s = {0};
    rd_dataset_def_of(d)->text(rd_dataset_self(d), 0, (const int32_t[]){0}, 1, false, &s);
    assert_non_null(strstr(rd_strbuf_str(&s), "f/new/1.jpg"));
    assert_int_equal(rd_dataset_def_of(d)->count(rd_dataset_self(d)), 2);
    rd_strbuf_release(&s);
    rd_dataset_free(d);
}

/* A file disappears, or cannot be read, during the run: fetch reports it, for every number of
 * threads. */
static void test_folder_unreadable(void **state)
{
    (void)state;
    files_mkdir(files_at("u"));
    files_mkdir(files_at("u/train"));
    files_mkdir(files_at("u/train/a"));
    for (int k = 0; k < 6; k++) {
        char name[32];
        snprintf(name, sizeof name, "u/train/a/%d.jpg", k);
        put_jpeg(name, (unsigned)k);
    }
    for (int threads = 0; threads < 3; threads++) {
        char config[128];
        rd_status st = {0};
        float *x;
        int64_t n;
        snprintf(config, sizeof config, "{'data_dir': '@/u', 'image_size': 8, 'data_threads': %d}",
                 threads);
        rd_dataset *d = open_ok("image_folder", config, RD_MODE_TRAIN, RD_SPLIT_TRAIN);
        unlink(files_at("u/train/a/3.jpg"));
        unlink(files_at("u/train/a/5.jpg"));
        assert_int_equal(images_all(d, 2, 0, &x, &n, NULL, &st), RD_EDATA);
        assert_non_null(strstr(st.msg, "u/train/a/3.jpg"));
        rd_dataset_free(d);
        put_jpeg("u/train/a/3.jpg", 3);
        put_jpeg("u/train/a/5.jpg", 5);
    }
}

/* ---- keys ---- */

static struct key_row {
    const char *name, *config, *says;
} key_rows[] = {
    {"two channels", "{'image_channels': 2}", "'image_channels' is 1 (grey) or 3"},
    {"width without height", "{'image_width': 8}", "'image_width' without 'image_size'"},
    {"crop scales the wrong way", "{'crop_scale_min': 0.9, 'crop_scale_max': 0.5}",
     "'crop_scale_min' is 0.9, above 'crop_scale_max', 0.5"},
    {"crop ratios the wrong way", "{'crop_ratio_min': 2, 'crop_ratio_max': 1}",
     "'crop_ratio_min' is 2"},
    {"custom without numbers", "{'normalization': 'custom'}", "needs one number or three"},
    {"custom with two numbers",
     "{'normalization': 'custom', 'image_mean': '0.5 0.5', 'image_std': '1'}",
     "'image_mean' is \"0.5 0.5\""},
    {"custom with a word", "{'normalization': 'custom', 'image_mean': '0.5 x', 'image_std': '1'}",
     "'image_mean' is \"0.5 x\""},
    {"a spread that is 0 as float",
     "{'normalization': 'custom', 'image_mean': '0.5', 'image_std': '1e-300'}",
     "'image_std' not so small that"},
    /* FLT_MIN is 1.2e-38 and FLT_MAX 3.4e38; 255 / (255 * 2e-39) is 5e38. */
    {"a spread that is a denormal float32",
     "{'normalization': 'custom', 'image_mean': '0.5', 'image_std': '1e-41'}",
     "'image_std' not so small that"},
    {"a spread that makes pixels infinite",
     "{'normalization': 'custom', 'image_mean': '0.5', 'image_std': '2e-39'}",
     "'image_std' not so small that"},
    {"a mean that makes pixels infinite",
     "{'normalization': 'custom', 'image_mean': '1e30', 'image_std': '1e-20'}",
     "'image_std' not so small that"},
    {"a mean that is no float",
     "{'normalization': 'custom', 'image_mean': '1e300', 'image_std': '1'}",
     "must be numbers of float32"},
    {"no spread", "{'normalization': 'custom', 'image_mean': '0.5', 'image_std': '0'}",
     "'image_std' must be above 0"},
    {"unknown augmentation", "{'augmentation': 'cutmix'}", "augmentation"},
    {"classes below the offset", "{'n_classes': 1, 'label_offset': 1}",
     "'n_classes' includes the classes below label_offset"},
    {"eval_resize too small", "{'image_size': 16, 'eval_resize': 8}",
     "'eval_resize' is 8, less than the image size of 16"},
};

static void check_key(void **state)
{
    const struct key_row *r = *state;
    refuse("synthetic_images", r->config, RD_MODE_TRAIN, RD_SPLIT_TRAIN, RD_EUSAGE, r->says);
}

RD_TESTS_WITH("image_data", files_set_up, files_tear_down, TEST_ROWS(check_spelling, spellings),
              TEST_ROWS(check_idx_row, idx_rows), TEST_ROWS(check_key, key_rows),
              TEST(test_idx_elsewhere), TEST(test_idx_roots), TEST(test_idx_classes),
              TEST(test_cifar), TEST(test_cifar_refused), TEST(test_npz), TEST(test_folder),
              TEST(test_folder_unreadable))
