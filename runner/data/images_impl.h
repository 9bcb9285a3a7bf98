/* images_impl.h -- what the image datasets share.
 *
 *     dataset file       reads labels, and small images as pixels; of encoded images, where the
 *     (idx.c, ...)       bytes are
 *       images.c         the rd_images that it fills, shared by the ranks of a host; the functions
 *                        of rd_dataset_def
 *       image_workers.c  threads that render the next batch
 *       image_render.c   one sample: bytes, jpeg.c or png_read.c, crop, resample.c or warp.c, flip,
 *                        normalisation
 *
 * A rendered sample is a function of (data, config, seed, epoch, sample id). It does not depend on
 * threads or ranks. */
#ifndef RD_IMAGES_IMPL_H
#define RD_IMAGES_IMPL_H

#include "data_impl.h"
#include "rd/image_walk.h"
#include "rd/strbuf.h"
#include <pthread.h>

/* ---- the config of all image datasets (images_config.c) ---- */
/* The values of these enums are in the order of the words of their keys. */
typedef enum rd_augment {
    RD_AUGMENT_NONE,
    RD_AUGMENT_AFFINE,
    RD_AUGMENT_CROP,
    RD_AUGMENT_PAD_CROP,
    RD_AUGMENT_FLIP
} rd_augment;
typedef enum rd_angle_unit { RD_DEGREES, RD_RADIANS } rd_angle_unit;
typedef enum rd_normalization {
    RD_NORM_UNIT,
    RD_NORM_SYMMETRIC,
    RD_NORM_NONE,
    RD_NORM_IMAGENET,
    RD_NORM_IMAGENET_MEAN,
    RD_NORM_CIFAR10,
    RD_NORM_MNIST,
    RD_NORM_CUSTOM
} rd_normalization;

typedef struct rd_images_config {
    const char *data_dir, *data_location;
    const char *data[3]; /* [rd_split] */
    int64_t n_classes, label_offset, image_size, image_width, image_channels, eval_resize;
    rd_augment augmentation;
    rd_angle_unit affine_shear_unit;
    rd_normalization normalization;
    const char *image_mean, *image_std;
    double affine_rotation, affine_shift, affine_shear, affine_zoom, affine_center_offset;
    double crop_scale_min, crop_scale_max, crop_ratio_min, crop_ratio_max;
    int64_t crop_pad, data_threads, seed;
    double max_bad_images;
} rd_images_config;
/* The keys of all image datasets. A key of one of them is in its own group, which fills a struct of
 * the dataset's file (rd_images.own). */
extern const rd_option_group rd_group_images;
/* Rows of the datasets whose labels are in separate files. T has `const char *labels[3]`. */
#define RD_OPT_LABELS(T)                                                                  \
    RD_OPT_PATH(T, eval_labels, labels[RD_SPLIT_EVAL], NULL,                              \
                "idx: label file of the evaluation data, if it does not have its usual "  \
                "name. imagenet_tar: labels of the flat validation archive, one image a " \
                "line: WordNet id, or ILSVRC id (with synsets_file), or file name and "   \
                "class"),                                                                 \
        RD_OPT_PATH(T, test_labels, labels[RD_SPLIT_TEST], NULL,                          \
                    "idx, imagenet_tar: label file of test_data, as eval_labels")

/* ---- how a sample is rendered: the config in numbers (images_config.c) ---- */
/* Ranges of the draws; angles in radians. */
typedef struct rd_affine {
    double rotation, shift, shear, zoom, center_offset;
} rd_affine;

typedef struct rd_render {
    rd_augment augment;
    rd_affine affine;
    double scale_min, scale_max, ratio_min, ratio_max; /* RD_AUGMENT_CROP */
    int64_t pad;           /* RD_AUGMENT_PAD_CROP: number of black pixels on each side */
    int64_t eval_resize;   /* short side before the centre crop; 0: that of the result */
    int64_t h, w, c;       /* size of the result; c is 1 or 3 */
    float mean[4], std[4]; /* by channel: value = (pixel - mean) / std */
    uint64_t seed;
} rd_render;

/* Reads rd_group_images. Fills all fields of *r except h, w and c. */
rd_code rd_images_config_read(const rd_dataset_args *a, rd_images_config *c, rd_render *r,
                              rd_status *st);

/* ---- pixels ---- */
typedef struct rd_pixels {
    const uint8_t *p; /* rows without gaps */
    int64_t h, w, c;  /* c: 1 grey, 3 RGB, 4 RGBx: RGB and an unused byte */
} rd_pixels;

/* A part of an image in pixels: edges, not centres. */
typedef struct rd_box {
    double y, x, h, w;
} rd_box;

/* Working memory of one thread (scratch.c), which grows as needed. All zero is an empty one. */
typedef struct rd_scratch {
    uint8_t *bytes;  /* an encoded image */
    uint8_t *pixels; /* a decoded image */
    uint8_t *wide;   /* pixels as RGBx; the PNG reader's streams */
    float *rows;     /* resample.c: one row of sums */
    float *weight;   /* resample.c: weights of both directions */
    int32_t *index;  /* resample.c: first taps of both directions */
    float *plane;    /* an image before it is warped or shifted */
    /* capacities in bytes */
    size_t n_bytes, n_pixels, n_wide, n_rows, n_plane, n_weight, n_index;
} rd_scratch;
void rd_scratch_release(rd_scratch *s);

/* Frees the buffers that a very large image has left. */
void rd_scratch_shrink(rd_scratch *s);

/* Gives *p, a pointer of any type, a capacity of n bytes; *have is the capacity so far. Contents
 * are lost. The 64 bytes behind can be read and written. */
rd_code rd_scratch_reserve(void *p, size_t *have, size_t n, rd_status *st);

/* ---- resample.c ---- */

/* Resamples a box of the image to h x w x min(in->c, 3) floats (0 .. 255), mirrored if flip is set.
 * in->c is 1 or 4. Bilinear with antialiasing, as Pillow's resize(box=...): a triangle filter,
 * widened where the image shrinks. */
rd_code rd_resample(const rd_pixels *in, const rd_box *box, int64_t h, int64_t w, bool flip,
                    rd_scratch *s, float *out, rd_status *st);

/* ---- warp.c: the affine warp of Keras (2018), as its MNIST example uses it ---- */

enum { RD_AFFINE_DRAWS = 6 };

/* Computes m, the rows of the 2 x 3 matrix that maps an output (row, column, 1) to the place it is
 * read from. u: draws in [0, 1) for rotation, shift of rows, shift of columns, shear, zoom of rows,
 * zoom of columns. */
void rd_affine_matrix(const rd_affine *a, int64_t h, int64_t w, const float u[RD_AFFINE_DRAWS],
                      double m[6]);
/* Warps an image: bilinear, coordinates outside are clamped to the edge. in and out: h x w x c
 * floats, not the same memory. */
void rd_warp(const float *in, int64_t h, int64_t w, int64_t c, const double m[6], float *out);

/* ---- jpeg.c: encoded images, recognised by content ---- */
typedef enum rd_decode {
    RD_DECODE_OK,
    RD_DECODE_DAMAGED, /* decoded as far as possible; the rest is grey */
    RD_DECODE_NONE     /* no pixels */
} rd_decode;

typedef struct rd_jpeg_head {
    int64_t h, w;
    int n_components;
    bool adobe; /* an APP14 marker: four components are inverted CMYK or YCCK */
} rd_jpeg_head;

enum {
    RD_JPEG_SIDE_MAX = 65500,      /* height and width */
    RD_JPEG_PIXELS_MAX = 1 << 27,  /* pixels of a file */
    RD_JPEG_DECODED_MAX = 1 << 26, /* pixels that are decoded, at full or reduced size */
    RD_JPEG_COEF_MAX = 1 << 29,    /* bytes of coefficients, which a JPEG of several scans needs */
    RD_WHY_BYTES = 160
};

/* Reads the markers up to the first frame header. Returns RD_DECODE_OK, or RD_DECODE_NONE and in
 * `why` what the bytes are instead. */
rd_decode rd_jpeg_read_head(const uint8_t *p, size_t n, rd_jpeg_head *out, char why[RD_WHY_BYTES]);

/* Decodes at 1 / den of the size (den 1, 2, 4, 8), to grey (c 1) or RGBx (c 4). *out borrows memory
 * of s; RD_EENV if there is not enough. *answer says how far the image could be decoded, `why` what
 * is wrong with it. */
rd_code rd_jpeg_decode(const uint8_t *p, size_t n, const rd_jpeg_head *head, int den, int64_t c,
                       rd_scratch *s, rd_pixels *out, rd_decode *answer, char why[RD_WHY_BYTES],
                       rd_status *st);

/* Converts pixels of four bytes to one byte each, in place. */
void rd_rgbx_to_grey(uint8_t *p, int64_t n);

/* ---- png_read.c: the same for PNG ---- */
typedef struct rd_png_head {
    int64_t h, w;
    int depth;  /* bits of a sample */
    int colour; /* colour type, as PNG numbers them */
} rd_png_head;

bool rd_png_is(const uint8_t *p, size_t n);
rd_decode rd_png_read_head(const uint8_t *p, size_t n, rd_png_head *out, char why[RD_WHY_BYTES]);
rd_code rd_png_decode(const uint8_t *p, size_t n, const rd_png_head *head, int64_t c, rd_scratch *s,
                      rd_pixels *out, rd_decode *answer, char why[RD_WHY_BYTES], rd_status *st);

/* ---- the images of one split (images.c) ---- */

/* Values of rd_sample.shard that are not the number of a shard. */
#define RD_IN_FILE UINT32_MAX         /* a file; its name is the path below the root */
#define RD_IN_MEMORY (UINT32_MAX - 1) /* in block RD_BLOCK_PIXELS */

enum { RD_ENCODED_MAX = 1 << 28 }; /* bytes of one encoded image */

/* An encoded image. */
typedef struct rd_sample {
    int64_t at;     /* offset of the encoded bytes in their shard */
    uint32_t bytes; /* number of encoded bytes; 0: to the end of the file */
    uint32_t shard; /* number of the shard, RD_IN_FILE or RD_IN_MEMORY */
    uint32_t name;  /* offset in block RD_BLOCK_NAMES */
    int32_t label;
} rd_sample;

enum { RD_SKIPPED_BYTES = 160 };

/* What the images have besides their blocks. Plain data: local rank 0 sends it to the other ranks
 * of the host. */
typedef struct rd_images_head {
    int64_t n;         /* number of images */
    int64_t n_classes; /* number of classes, without those below label_offset */
    int64_t n_shards;
    int64_t n_named;             /* number of classes with a name in block RD_BLOCK_CLASSES */
    int64_t h, w, c;             /* size of every image; 0: encoded, each with its own size */
    int64_t n_skipped[RD_SKIPS]; /* number of files skipped, by reason */
    char skipped[RD_SKIPS][RD_SKIPPED_BYTES]; /* the first of them, cut to fit */
    uint64_t hash;                            /* of labels, and of pixels or names */
    size_t names, pixels, classes, shards;    /* bytes used in the blocks */
} rd_images_head;

enum {
    RD_BLOCK_SAMPLES, /* rd_sample [n]; only if the images are encoded */
    RD_BLOCK_LABELS,  /* int32_t [n] */
    RD_BLOCK_PIXELS,  /* [n, h, w, c], or encoded images one after the other */
    RD_BLOCK_NAMES,   /* strings */
    RD_BLOCK_CLASSES, /* [n_named] strings */
    RD_BLOCK_SHARDS,  /* [n_shards] strings, the paths */
    RD_IMAGE_BLOCKS
};

typedef struct rd_images rd_images;

/* A kind of image dataset. */
typedef struct rd_images_kind {
    const char *name;
    /* Fills head and blocks with the rd_images_* functions below. Called on one rank of each
     * host. */
    rd_code (*load)(rd_images *m, rd_status *st);
    /* Computes the pixels of sample i, h x w x c. NULL: they are in block RD_BLOCK_PIXELS, or
     * encoded. */
    void (*make)(const rd_images *m, int64_t i, uint8_t *out);
    int64_t side;        /* image_size if neither the config nor the data give one */
    const char *fetcher; /* what fetches such data, for messages; NULL: nothing is known */
} rd_images_kind;

/* How far the reading of a split is. */
typedef struct rd_images_reading {
    int64_t begin_ns, live_ns, line_ns; /* begin_ns 0: nothing was read yet */
    double done, all;                   /* folders, shards or bytes */
    bool shown;                         /* a live line is on the terminal */
} rd_images_reading;

typedef struct rd_workers rd_workers;
typedef struct rd_shard_files rd_shard_files;

struct rd_images {
    rd_images_reading reading;
    const rd_images_kind *kind;
    rd_images_config c; /* all zero once the dataset is open */
    void *own; /* owned; struct of the dataset's own group. Its strings are valid in load */
    rd_mode mode;
    rd_split split;
    rd_render render;
    rd_images_head head;
    rd_block block[RD_IMAGE_BLOCKS];
    const char *
        *class_names; /* [n_classes + label_offset] "" for a class without a name; NULL: no names */
    const char **shards; /* [n_shards] paths; shard 0 is the root of RD_IN_FILE */
    int rank, size;      /* size is above 1 with --split_data_per_rank only */
    int n_ranks;         /* number of ranks that share the reading */
    double max_bad;      /* max_bad_images */
    rd_log *log;
    char fingerprint[256];
    rd_shard_files *files;
    rd_workers *workers;
    json_t *kept;           /* owned; data.json of the log folder; NULL: none, or a training */
    int64_t config_classes; /* n_classes of the config; 0: not given */
    int64_t label_offset;
    int n_threads;
    /* The images come from rd_images_feed: */
    bool fed;
    struct rd_rendered *result; /* owned; [n] how well each could be decoded, once it was fetched */
};

/* ---- for rd_images_kind.load ---- */

/* Reserves memory for the pixels and labels of n images, all of this size. */
rd_code rd_images_reserve(rd_images *m, int64_t n, int64_t h, int64_t w, int64_t c, rd_status *st);

/* Returns the pixels of image i, to be filled. */
uint8_t *rd_images_pixels(rd_images *m, int64_t i);

/* Sets the label of image i, as the data has it. RD_EDATA if it is not below n_classes. from: the
 * file, for the message. */
rd_code rd_images_label(rd_images *m, int64_t i, int64_t label, int64_t n_classes, const char *from,
                        rd_status *st);

/* Tells how much is read, such as `done` of `all` folders or bytes. On a terminal a live line shows
 * the images so far and the time that is left; the log gets a line after ten seconds and then each
 * half minute. Cheap: to be called for each image. */
void rd_images_read_part(rd_images *m, double done, double all);

/* Adds a class with this name, or a shard with this path; *index is its number. */
rd_code rd_images_add_class(rd_images *m, const char *name, rd_status *st);
rd_code rd_images_add_shard(rd_images *m, const char *path, uint32_t *index, rd_status *st);

/* Adds an encoded image. The label is checked when all classes are known. */
rd_code rd_images_add(rd_images *m, uint32_t shard, int64_t at, int64_t bytes, int64_t label,
                      const char *name, rd_status *st);

/* Does the same with a copy of its bytes in memory. */
rd_code rd_images_add_bytes(rd_images *m, const void *p, size_t n, int64_t label, const char *name,
                            rd_status *st);

/* Counts n files that are skipped; the name of the first one is kept for the report. */
void rd_images_skip(rd_images *m, rd_skip why, const char *name, int64_t n);

/* Sorts the encoded images by label, then name: the order of a folder. */
rd_code rd_images_sort(rd_images *m, rd_status *st);

/* Bytes of a large file that are read at once, between two reports of how far the reading is. */
enum { RD_PART_BYTES = 4 << 20 };

enum { RD_PATH_BYTES = 4096 };

/* Writes the path of `name` below data_dir to out; an absolute name is its own path. RD_EUSAGE
 * without data_dir; RD_EDATA if the path is too long. */
rd_code rd_images_path(const rd_images *m, const char *name, char out[RD_PATH_BYTES],
                       rd_status *st);

/* Returns the value of train_data, eval_data or test_data, as the split is. Without test_data:
 * eval_data. NULL: not given. */
const char *rd_images_given(const rd_images *m);

/* Returns the same for train_labels, eval_labels and test_labels. */
const char *rd_images_labels_given(const rd_images *m, const char *const labels[3]);

/* ---- images_keep.c: data.json of the log folder ---- */

/* Reads data.json on rank 0, and gives it to all ranks. Collective. *out NULL: there is none. The
 * caller owns it. RD_EDATA: its hash differs. */
rd_code rd_images_kept(const rd_dataset_args *a, json_t **out, rd_status *st);
/* The function keep of rd_dataset_def. */
rd_code rd_images_keep(void *self, const char *logdir, rd_status *st);

/* Returns whether the split is the training split. */
bool rd_images_train_like(const rd_images *m);

/* Returns the kind's fetcher for a message about data that is not there: "; configs/get_cifar10
 * fetches CIFAR-10"; "" if nothing is known to fetch it. */
const char *rd_images_fetcher(const rd_images *m);

/* ---- for all of them ---- */

static inline const rd_sample *rd_images_sample(const rd_images *m, int64_t i)
{
    return (const rd_sample *)(const void *)m->block[RD_BLOCK_SAMPLES].p + i;
}

/* Writes the name of a sample for people: "train/nuts/H001.jpeg", "shard.tar!000123.jpg", "image
 * 17" (image_name.c). */
void rd_images_name(const rd_images *m, int64_t i, char *out, size_t n);
/* Appends the whole name. */
void rd_images_name_add(const rd_images *m, int64_t i, rd_strbuf *out);

/* ---- the functions of rd_dataset_def that all image datasets use ---- */

/* own: see rd_dataset_def. */
rd_code rd_images_open(const rd_images_kind *k, const rd_option_group *own,
                       const rd_dataset_args *a, void **self, rd_status *st);
void rd_images_close(void *self);
int64_t rd_images_count(void *self);
int rd_images_n_buckets(void *self);
int rd_images_bucket(void *self, int64_t i);
bool rd_images_here(void *self, int64_t i);
rd_code rd_images_fetch(void *self, const int64_t *ids, int64_t n, rd_arena *a, rd_batch *out,
                        rd_status *st);
void rd_images_prepare(void *self, const int64_t *ids, int64_t n, int64_t epoch);
void rd_images_spec(void *self, rd_data_spec *out);
const char *rd_images_fingerprint(void *self);
void rd_images_text(void *self, int side, const int32_t *ids, int64_t n, bool specials,
                    rd_strbuf *b);
rd_code rd_images_feed(void *self, const char *text, size_t n, int64_t lines_before, rd_status *st);
const char *rd_images_trouble(void *self, int64_t i, bool *unusable);

/* Defines rd_dataset_NAME with its open function. kind_: the file's rd_images_kind. own_: the group
 * of the keys that this dataset alone reads. */
#define RD_DATASET_IMAGES(name_, about_, kind_) RD_DATASET_IMAGES_OWN(name_, about_, kind_, NULL)
#define RD_DATASET_IMAGES_OWN(name_, about_, kind_, own_)                             \
    static rd_code name_##_open(const rd_dataset_args *a, void **self, rd_status *st) \
    {                                                                                 \
        return rd_images_open(&(kind_), (own_), a, self, st);                         \
    }                                                                                 \
    RD_DATASET(name_) = {                                                             \
        .name = #name_,                                                               \
        .about = (about_),                                                            \
        .group = &rd_group_images,                                                    \
        .own = (own_),                                                                \
        .open = name_##_open,                                                         \
        .close = rd_images_close,                                                     \
        .count = rd_images_count,                                                     \
        .n_buckets = rd_images_n_buckets,                                             \
        .bucket = rd_images_bucket,                                                   \
        .here = rd_images_here,                                                       \
        .fetch = rd_images_fetch,                                                     \
        .prepare = rd_images_prepare,                                                 \
        .spec = rd_images_spec,                                                       \
        .fingerprint = rd_images_fingerprint,                                         \
        .text = rd_images_text,                                                       \
        .feed = rd_images_feed,                                                       \
        .trouble = rd_images_trouble,                                                 \
        .keep = rd_images_keep,                                                       \
    }

/* ---- shard_files.c: encoded bytes, read in place ---- */

/* paths: borrowed. */
rd_code rd_shard_files_new(const char *const *paths, int64_t n, rd_shard_files **out,
                           rd_status *st);
void rd_shard_files_free(rd_shard_files *f);

/* Reads exactly n bytes. Thread-safe. */
rd_code rd_shard_files_read(rd_shard_files *f, uint32_t shard, int64_t at, size_t n, uint8_t *out,
                            rd_status *st);

/* Reads the whole file root/name into s->bytes; *n is its size. root "": the file `name`, which
 * need not be there. */
rd_code rd_image_file(const char *root, const char *name, rd_scratch *s, size_t *n, rd_status *st);

/* ---- image_render.c ---- */

/* How well a sample could be decoded, and what is wrong with it. */
typedef struct rd_rendered {
    rd_decode answer;
    char why[RD_WHY_BYTES];
} rd_rendered;

/* Renders sample i as the model takes it: h x w x c floats. Thread-safe if each thread has its own
 * scratch. */
rd_code rd_render_sample(const rd_images *m, int64_t i, int64_t epoch, rd_scratch *s, float *out,
                         rd_rendered *result, rd_status *st);

/* ---- image_workers.c ---- */

/* Starts n_threads threads. m is borrowed. The caller owns *out, also after a failure. */
rd_code rd_workers_new(const rd_images *m, int n_threads, rd_workers **out, rd_status *st);
void rd_workers_free(rd_workers *w); /* joins the threads; NULL is fine */

/* As prepare and fetch of rd_dataset_def. */
void rd_workers_prepare(rd_workers *w, const int64_t *ids, int64_t n, int64_t epoch);
rd_code rd_workers_fetch(rd_workers *w, const int64_t *ids, int64_t n, int64_t epoch, float *out,
                         rd_status *st);

/* ---- byte_stream.c: bytes of a file, plain or compressed (gzip, xz, bzip2, zstd) ---- */

typedef struct rd_stream rd_stream;

/* Opens a file, or memory, which is borrowed. The caller owns *out, also after a failure. */
rd_code rd_stream_new(const char *path, rd_stream **out, rd_status *st);
rd_code rd_stream_new_mem(const char *name, const void *p, size_t n, rd_stream **out,
                          rd_status *st);
void rd_stream_free(rd_stream *s); /* NULL is fine */

/* Reads n bytes; *got is smaller than n at the end only. */
rd_code rd_stream_read(rd_stream *s, void *p, size_t n, size_t *got, rd_status *st);

/* Returns the largest number of bytes that the stream may give: the size of the file, or 100 times
 * that plus 1 MiB if it is compressed. Readers compare a size that a header claims with it before
 * they allocate memory. */
int64_t rd_stream_limit(const rd_stream *s);

/* ---- tar_walk.c: the members of a tar archive, in order ---- */

typedef struct rd_tar rd_tar;

typedef struct rd_tar_member {
    const char *name; /* without "./"; NULL: the end. Borrowed until the next call */
    int64_t at;       /* offset of its bytes in the file; -1: the archive is compressed */
    int64_t bytes;
} rd_tar_member;

/* Opens a tar archive: a file, the member m of an outer archive, or memory. Outer archive and
 * memory are borrowed. RD_EDATA, here or in rd_tar_next: not a tar archive, damaged, cut short
 * (also where a header would begin), a name that is absolute or has "..". The caller owns *out,
 * also after a failure. */
rd_code rd_tar_new(const char *path, rd_tar **out, rd_status *st);
rd_code rd_tar_new_inner(rd_tar *outer, const rd_tar_member *m, rd_tar **out, rd_status *st);
rd_code rd_tar_new_mem(const char *name, const void *p, size_t n, rd_tar **out, rd_status *st);
void rd_tar_free(rd_tar *t); /* NULL is fine */

/* Moves to the next regular file and describes it. A hard link to a member is such a file, too: its
 * bytes are those of that member. */
rd_code rd_tar_next(rd_tar *t, rd_tar_member *m, rd_status *st);

/* Reads all m->bytes bytes of the last member. */
rd_code rd_tar_read(rd_tar *t, const rd_tar_member *m, void *out, rd_status *st);

/* Returns the number of symbolic links, devices, and hard links to no member, which are skipped.
 * *first, borrowed, is the name of the first one, "" without one. */
int64_t rd_tar_ignored(const rd_tar *t, const char **first);

/* Returns the share of the archive's bytes that is read, 0 .. 1. */
double rd_tar_share(const rd_tar *t);
/* Makes rd_tar_read call fn(ctx) after each part of RD_PART_BYTES. */
void rd_tar_on_part(rd_tar *t, void (*fn)(void *ctx), void *ctx);

/* ---- readers of one format, from any stream: the fuzz targets use them, too ---- */

/* Reads images and labels in the IDX format (datasets/idx.c). */
rd_code rd_idx_load(rd_images *m, rd_stream *images, const char *images_name, rd_stream *labels,
                    const char *labels_name, rd_status *st);

/* Reads CIFAR from an archive, or, if it is NULL, from the folder `from` (datasets/cifar.c). */
rd_code rd_cifar_load(rd_images *m, rd_tar *archive, const char *from, rd_status *st);

/* Reads Keras' .npz (datasets/npz_images.c). */
rd_code rd_npz_images_load(rd_images *m, const char *path, rd_status *st);

/* Adds the samples of one shard (datasets/webdataset.c). Images are read later, from shard number
 * `shard`. */
rd_code rd_webdataset_walk(rd_images *m, rd_tar *t, const char *path, uint32_t shard,
                           rd_status *st);

#endif
