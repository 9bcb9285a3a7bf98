/* idx.c -- images and labels in the IDX format of MNIST and Fashion-MNIST.
 *
 * A file has two zero bytes, the type, the number of dimensions, the sizes as big-endian 32-bit
 * numbers, then the data, last index fastest. Files may be compressed; the content decides. They
 * are searched in data_dir, then where torchvision and Keras leave them below it. */
#include "../images_impl.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

enum { TYPE_U8 = 0x08, MAX_DIM = 4, DEFAULT_CLASSES = 10 };

typedef struct idx_keys {
    const char *labels[3]; /* [rd_split] */
} idx_keys;

typedef struct idx_head {
    int n_dim;
    int64_t dim[MAX_DIM];
} idx_head;

/* Reads the header and checks that the stream can hold the data that the header promises. */
static rd_code read_head(rd_stream *s, const char *path, int n_dim, const char *what, idx_head *out,
                         rd_status *st)
{
    uint8_t b[4 + 4 * MAX_DIM];
    size_t got;
    RD_TRY(rd_stream_read(s, b, 4, &got, st));
    if (got < 4 || b[0] != 0 || b[1] != 0)
        return rd_fail(st, RD_EDATA,
                       "'%s' is not an IDX file: it does not begin with two zero bytes, type and "
                       "number of sizes",
                       path);
    if (b[2] != TYPE_U8)
        return rd_fail(
            st, RD_EDATA,
            "'%s': elements of type 0x%02X, but images and labels are unsigned bytes (0x08)", path,
            b[2]);
    out->n_dim = b[3];
    if (out->n_dim != n_dim && !(n_dim == 3 && out->n_dim == 4))
        return rd_fail(st, RD_EDATA,
                       "'%s' has %d dimension%s, but %s; are images and labels mixed up?", path,
                       out->n_dim, RD_S(out->n_dim), what);
    RD_TRY(rd_stream_read(s, b + 4, (size_t)out->n_dim * 4, &got, st));
    if (got < (size_t)out->n_dim * 4)
        return rd_fail(st, RD_EDATA, "'%s' ends within its header", path);
    int64_t bytes = 1;
    for (int k = 0; k < out->n_dim; k++) {
        const uint8_t *p = b + 4 + 4 * k;
        out->dim[k] = (int64_t)p[0] << 24 | (int64_t)p[1] << 16 | (int64_t)p[2] << 8 | p[3];
        if (__builtin_mul_overflow(bytes, out->dim[k], &bytes)) bytes = INT64_MAX;
    }
    if (bytes > rd_stream_limit(s))
        return rd_fail(st, RD_EDATA,
                       "'%s': its header promises %" PRId64 " bytes, more than the file can hold",
                       path, bytes);
done:
    return st->code;
}

/* Reads n bytes, after which the file must end. */
static rd_code read_data(rd_images *m, rd_stream *s, const char *path, uint8_t *p, int64_t n,
                         rd_status *st)
{
    size_t got = 0, more;
    uint8_t extra;
    for (int64_t at = 0; at < n; at += (int64_t)got) {
        const int64_t k = n - at < RD_PART_BYTES ? n - at : RD_PART_BYTES;
        RD_TRY(rd_stream_read(s, p + at, (size_t)k, &got, st));
        if ((int64_t)got < k)
            return rd_fail(st, RD_EDATA,
                           "'%s': %" PRId64 " bytes of data, but its header promises %" PRId64
                           "; the file is cut short",
                           path, at + (int64_t)got, n);
        rd_images_read_part(m, (double)(at + k), (double)n);
    }
    RD_TRY(rd_stream_read(s, &extra, 1, &more, st));
    if (more > 0)
        return rd_fail(st, RD_EDATA,
                       "'%s': more data than the %" PRId64 " bytes that its header promises", path,
                       n);
done:
    return st->code;
}

static rd_code read_images(rd_images *m, rd_stream *s, const char *path, rd_status *st)
{
    idx_head h = {0};
    RD_TRY(read_head(s, path, 3,
                     "images have three: number, height, width (or four, with channels)", &h, st));
    const int64_t c = h.n_dim == 4 ? h.dim[3] : 1;
    if (h.dim[0] < 1 || h.dim[1] < 1 || h.dim[2] < 1 || (c != 1 && c != 3))
        return rd_fail(st, RD_EDATA,
                       "'%s': %" PRId64 " images of %" PRId64 " x %" PRId64 " x %" PRId64, path,
                       h.dim[0], h.dim[1], h.dim[2], c);
    RD_TRY(rd_images_reserve(m, h.dim[0], h.dim[1], h.dim[2], c, st));
    RD_TRY(read_data(m, s, path, rd_images_pixels(m, 0), h.dim[0] * h.dim[1] * h.dim[2] * c, st));
done:
    return st->code;
}

static rd_code idx_read_labels(rd_images *m, rd_stream *s, const char *path, const char *images,
                               rd_status *st)
{
    idx_head h = {0};
    uint8_t some[4096];
    const int64_t n_classes = m->config_classes > 0 ? m->config_classes - m->label_offset
                                                    : DEFAULT_CLASSES;
    RD_TRY(read_head(s, path, 1, "labels have one: their number", &h, st));
    if (h.dim[0] != m->head.n)
        return rd_fail(st, RD_EDATA, "'%s' has %" PRId64 " labels, but '%s' %" PRId64 " images",
                       path, h.dim[0], images, m->head.n);
    m->head.n_classes = n_classes;
    for (int64_t i = 0; i < m->head.n;) {
        const int64_t left = m->head.n - i,
                      k = left < (int64_t)sizeof some ? left : (int64_t)sizeof some;
        if (k < left) {
            size_t got;
            RD_TRY(rd_stream_read(s, some, (size_t)k, &got, st));
            if (got < (size_t)k)
                return rd_fail(st, RD_EDATA,
                               "'%s': %" PRId64 " labels, but its header promises %" PRId64
                               "; it is cut short",
                               path, i + (int64_t)got, h.dim[0]);
        } else {
            RD_TRY(read_data(m, s, path, some, k, st)); /* the last labels: nothing may follow */
        }
        for (int64_t j = 0; j < k; j++)
            RD_TRY(rd_images_label(m, i + j, some[j], n_classes, path, st));
        i += k;
    }
done:
    return st->code;
}

/* Finds the file in data_dir/below under its usual names: both spellings, with and without .gz.
 * *found false: it is not there. */
static rd_code usual_name(const rd_images *m, const char *below, const char *what, int n_dim,
                          char out[RD_PATH_BYTES], bool *found, rd_status *st)
{
    char name[128];
    const char *set = rd_images_train_like(m) ? "train" : "t10k";
    *found = false;
    for (int k = 0; k < 4 && !*found; k++) {
        snprintf(name, sizeof name, "%s%s-%s%cidx%d-ubyte%s", below, set, what, k & 1 ? '.' : '-',
                 n_dim, k & 2 ? "" : ".gz");
        RD_TRY(rd_images_path(m, name, out, st));
        RD_TRY(rd_path_there(out, found, st));
    }
done:
    return st->code;
}

/* Says why data_dir has none of the usual files. */
static rd_code no_usual_name(const rd_images *m, const char *what, int n_dim, rd_status *st)
{
    char npz[RD_PATH_BYTES];
    struct stat sb;
    const char *dir = m->c.data_dir, *set = rd_images_train_like(m) ? "train" : "t10k";
    if (rd_path_stat(dir, &sb, RD_MAYBE) != 0)
        return errno == ENOENT ? rd_fail(st, RD_EDATA, "there is no folder '%s'; check data_dir%s",
                                         dir, rd_images_fetcher(m))
                               : rd_input_fails(st, RD_EDATA, "open", dir, errno, "check data_dir");
    if (!S_ISDIR(sb.st_mode))
        return rd_fail(st, RD_EDATA,
                       "'%s' is a file, but dataset idx reads a folder; an .npz file needs --set "
                       "dataset=npz_images",
                       dir);
    bool has_npz;
    RD_TRY(rd_images_path(m, "mnist.npz", npz, st));
    RD_TRY(rd_path_there(npz, &has_npz, st));
    return rd_fail(
        st, RD_EDATA,
        "'%s' has no %s-%s-idx%d-ubyte(.gz), nor %s-%s.idx%d-ubyte(.gz); check data_dir, or name "
        "the file with %s%s%s",
        dir, set, what, n_dim, set, what, n_dim,
        rd_images_train_like(m) ? "train_data" : "eval_data",
        has_npz ? "; for its mnist.npz --set dataset=npz_images" : "",
        has_npz ? "" : rd_images_fetcher(m));
done:
    return st->code;
}

/* Folders below data_dir in which torchvision and Keras leave the files. */
static const char *const below_root[] = {"raw/",        "MNIST/raw/",     "FashionMNIST/raw/",
                                         "KMNIST/raw/", "fashion-mnist/", NULL};

/* Finds the folder with the images: data_dir itself, or one below it, as "MNIST/raw/". RD_EDATA:
 * there is none, or there are two. */
static rd_code usual_folder(const rd_images *m, char images[RD_PATH_BYTES], const char **below,
                            rd_status *st)
{
    char other[RD_PATH_BYTES];
    bool found;
    *below = "";
    RD_TRY(usual_name(m, "", "images", 3, images, &found, st));
    if (found) return RD_OK;
    *below = NULL;
    for (int i = 0; below_root[i]; i++) {
        RD_TRY(usual_name(m, below_root[i], "images", 3, *below ? other : images, &found, st));
        if (found && *below)
            return rd_fail(st, RD_EDATA, "'%s' has images in both %s and %s; set data_dir to one",
                           m->c.data_dir, *below, below_root[i]);
        if (found) *below = below_root[i];
    }
    if (!*below) (void)no_usual_name(m, "images", 3, st);
done:
    return st->code;
}

/* Derives the name of the label file: "x-images-idx3-ubyte.gz" -> "x-labels-idx1-ubyte.gz". */
static rd_code labels_beside(const char *images, char out[RD_PATH_BYTES], rd_status *st)
{
    const char *slash = strrchr(images, '/'), *at = strstr(slash ? slash : images, "images");
    const char *idx = at ? strstr(at, "idx3") : NULL;
    if (!at || !idx)
        return rd_fail(
            st, RD_EUSAGE,
            "cannot derive the name of the label file from '%s'; give it with train_labels or "
            "eval_labels",
            images);
    const int n = snprintf(out, RD_PATH_BYTES, "%.*slabels%.*sidx1%s", (int)(at - images), images,
                           (int)(idx - at) - 6, at + 6, idx + 4);
    if (n >= RD_PATH_BYTES)
        return rd_fail(st, RD_EDATA, "the path is too long: '%.200s...'", images);
    return RD_OK;
}

static rd_code find_files(const rd_images *m, char images[RD_PATH_BYTES],
                          char labels[RD_PATH_BYTES], rd_status *st)
{
    const idx_keys *keys = m->own;
    const char *given = rd_images_given(m), *given_labels = rd_images_labels_given(m, keys->labels);
    const char *below = "";
    bool found = true;
    if (given)
        RD_TRY(rd_images_path(m, given, images, st));
    else
        RD_TRY(usual_folder(m, images, &below, st));
    if (given_labels)
        RD_TRY(rd_images_path(m, given_labels, labels, st));
    else if (given)
        RD_TRY(labels_beside(images, labels, st));
    else
        RD_TRY(usual_name(m, below, "labels", 1, labels, &found, st));
    if (!found) (void)no_usual_name(m, "labels", 1, st);
done:
    return st->code;
}

static rd_code idx_load(rd_images *m, rd_status *st)
{
    char images[RD_PATH_BYTES], labels[RD_PATH_BYTES];
    rd_stream *s[2] = {NULL, NULL};
    RD_TRY(find_files(m, images, labels, st));
    RD_TRY(rd_stream_new(images, &s[0], st));
    RD_TRY(rd_stream_new(labels, &s[1], st));
    RD_TRY(rd_idx_load(m, s[0], images, s[1], labels, st));
done:
    rd_stream_free(s[0]);
    rd_stream_free(s[1]);
    return st->code;
}

rd_code rd_idx_load(rd_images *m, rd_stream *images, const char *images_name, rd_stream *labels,
                    const char *labels_name, rd_status *st)
{
    RD_TRY(read_images(m, images, images_name, st));
    RD_TRY(idx_read_labels(m, labels, labels_name, images_name, st));
done:
    return st->code;
}

static const rd_option idx_rows[] = {
    RD_OPT_PATH(idx_keys, train_labels, labels[RD_SPLIT_TRAIN], NULL,
                "idx: label file of the training data, if it does not have its usual name"),
    RD_OPT_LABELS(idx_keys), RD_OPT_END};
static const rd_option_group idx_group = {"idx", "dataset idx: label files", idx_rows,
                                          sizeof(idx_keys)};

static const rd_images_kind idx = {
    .name = "idx",
    .load = idx_load,
    .fetcher = "; configs/get_mnist and configs/get_fashion fetch MNIST and Fashion-MNIST"};

RD_DATASET_IMAGES_OWN(
    idx,
    "MNIST's IDX files, plain or compressed: train-images-idx3-ubyte.gz and its three companions",
    idx, &idx_group);
