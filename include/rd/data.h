/* data.h -- datasets, the order of samples, batches.
 *
 * A dataset answers by index and keeps no cursor. The order is a function of (seed, epoch, position): see rd_order. */
#ifndef RD_DATA_H
#define RD_DATA_H

#include "rd/arena.h"
#include "rd/comm.h"
#include "rd/log.h"
#include "rd/metric.h"
#include "rd/options.h"
#include "rd/strbuf.h"

RD_C_BEGIN

enum {
    RD_UNK = 0,
    RD_SOS = 1,
    RD_EOS = 2,
    RD_PAD = 3,
    RD_N_SPECIAL = 4
}; /* OpenSeq2Seq, January 2018 */

/* ---- vocabulary: file line k has id k + 4 ---- */
typedef struct rd_vocab rd_vocab;
/* path: as for text, see datasets/parallel_text.c (plain, compressed, or "archive!member"). RD_EDATA for what is wrong
 * with the file. One word a line, LF, CR LF or a lone CR ending it; trailing white space and whatever follows the first
 * TAB are no part of the word. A repeated word keeps the last id, counted in rd_vocab_duplicates. A file without any
 * word is an error. */
rd_code rd_vocab_new(const char *path, bool replace_invalid_utf8, rd_vocab **out, rd_status *st);
void rd_vocab_free(rd_vocab *v);
int64_t rd_vocab_size(const rd_vocab *v); /* largest id + 1 */
int64_t rd_vocab_duplicates(const rd_vocab *v);
int32_t rd_vocab_id(const rd_vocab *v, const char *word, size_t n); /* RD_UNK when unknown */
const char *rd_vocab_word(const rd_vocab *v, int32_t id,
                          size_t *n);      /* "<UNK>" "<S>" "</S>" "<PAD>"; "" past the end */
uint64_t rd_vocab_hash(const rd_vocab *v); /* of all words in id order */
/* The words of ids as a metric takes them: up to the first end token, without start, end, padding, ids past the end
 * and, unless print_unk, unknown ones. bpe: "@@ " joins removed (rd_tokens_bpe). Memory of the arena. */
rd_code rd_vocab_tokens(const rd_vocab *v, const int32_t *ids, int64_t n, bool print_unk, bool bpe,
                        rd_arena *a, rd_tokens *out, rd_status *st);

/* ---- batches ---- */
typedef enum rd_dtype { RD_F32, RD_I32, RD_U8 } rd_dtype;
typedef struct rd_field {
    const char *name; /* "source", "target", "image", "label" */
    rd_dtype dtype;
    const void *data; /* all samples one after the other, without padding */
    const int64_t
        *off;  /* [n + 1] element offsets: sample i is data[off[i]] .. data[off[i + 1] - 1] */
    int n_dim; /* shape of one sample when all are alike (images: H W C); 0: a list of any length */
    int64_t dim[4];
} rd_field;

enum { RD_MAX_FIELDS = 4 };
typedef struct rd_batch {
    int64_t step, epoch;   /* set before fetch: augmentation is keyed by the epoch */
    int64_t n_global;      /* samples in the batch of all ranks */
    int64_t n;             /* of this rank; may be 0 */
    const int64_t *sample; /* [n] ids in the dataset: key of dropout and augmentation */
    int n_fields;
    rd_field field[RD_MAX_FIELDS];
} rd_batch;

const rd_field *rd_batch_field(const rd_batch *b, const char *name); /* NULL: none */
/* Hash of what the work on a batch is shaped by: how many samples it has, and how many of each field are of which length. The order
 * of samples, ids and contents do not matter. */
uint64_t rd_batch_shape(const rd_batch *b);

/* ---- datasets: one file each in runner/data/datasets; make writes the registry ---- */
typedef enum rd_split { RD_SPLIT_TRAIN, RD_SPLIT_EVAL, RD_SPLIT_TEST } rd_split;

typedef struct rd_data_spec {               /* what a model needs to know of the data */
    int64_t src_vocab_size, tgt_vocab_size; /* sequences: as read, before pad_vocabs_to_eight */
    uint64_t src_vocab_hash, tgt_vocab_hash;
    const rd_vocab *src_vocab, *tgt_vocab;        /* borrowed from the dataset */
    int64_t n_classes, image_h, image_w, image_c; /* images */
    const char *const *
        class_names; /* [n_classes], borrowed from the dataset; "" where one has no name; NULL: none has */
    float pixel_mean[4],
        pixel_std
            [4]; /* by channel: pixel (0 .. 255) = value * pixel_std + pixel_mean; 0: no images */
} rd_data_spec;

typedef struct rd_dataset rd_dataset;
typedef struct rd_dataset_args {
    const rd_config *config;
    rd_mode mode;
    rd_split split;
    rd_comm *comm; /* open is collective */
    rd_log *log; /* NULL: silent; outlives the dataset (a damaged image is named when it is met) */
    bool shard;  /* --split_data_per_rank: keep the samples i with i % size == rank only */
    bool
        keep_all; /* inference and evaluation: no sample is skipped for its length; a target is not needed (infer) */
} rd_dataset_args;

typedef struct rd_dataset_def {
    const char *name, *about;
    /* The keys that it reads, which other datasets may read too, and keys that it alone reads. NULL: none. */
    const rd_option_group *group, *own;
    rd_code (*open)(const rd_dataset_args *a, void **self, rd_status *st); /* Collective */
    void (*close)(void *self);
    int64_t (*count)(void *self); /* samples before skipping, of all ranks */
    int (*n_buckets)(void *self);
    int (*bucket)(void *self, int64_t i); /* 0 .. n_buckets - 1; -1: skipped */
    /* Cost of a sample (source + target tokens), to share work evenly; NULL: all alike, each rank computes a run of
     * neighbours in plan order (see rd_order_rules.unit). */
    int64_t (*length)(void *self, int64_t i);
    bool (*here)(void *self, int64_t i); /* in this rank's memory? */
    /* Fills n, sample, n_fields and field of *out with the samples ids[0..n-1]; memory from the arena. Thread-safe for
     * different arenas. out comes with epoch set. Images: fields "image" (RD_F32, dim h w c, as the model takes it:
     * augmented in the train split, normalised) and "label" (RD_I32, one per sample). */
    rd_code (*fetch)(void *self, const int64_t *ids, int64_t n, rd_arena *a, rd_batch *out,
                     rd_status *st);
    /* Optional: says that fetch will be called with these ids and this epoch soon; worker threads may begin. Returns at
     * once. What was announced and is never fetched is dropped at the next announcement. */
    void (*prepare)(void *self, const int64_t *ids, int64_t n, int64_t epoch);
    void (*spec)(void *self, rd_data_spec *out);
    const char *(*fingerprint)(
        void *self); /* text that must be equal on all ranks and after a resume */
    /* Optional: the source text line of sample i for print-outs, and the text of decoded ids of one side. Images: side 0,
     * names of samples; side 1, names of classes, or their numbers. */
    void (*text)(void *self, int side /* 0 source, 1 target */, const int32_t *ids, int64_t n,
                 bool specials, rd_strbuf *out);
    /* Optional: the target line of sample i as the file has it (unknown words and all), for scores that agree with
     * those of other tools on the same files; borrowed. NULL when it is not kept: training data, sharded data, no
     * target. May itself be NULL. */
    const char *(*reference)(void *self, int64_t i, size_t *n);
} rd_dataset_def;

/* Begins the definition of a dataset: RD_DATASET(id) = {...}; in a file of runner/data/datasets. make
 * finds it, also as RD_DATASET_...(id, ...), and writes the registry. */
#define RD_DATASET(id) const rd_dataset_def rd_dataset_##id

/* Collective. */
rd_code rd_dataset_new(const char *name, const rd_dataset_args *a, rd_dataset **out, rd_status *st);
void rd_dataset_free(rd_dataset *d);
const rd_dataset_def *rd_dataset_def_of(const rd_dataset *d);
void *rd_dataset_self(const rd_dataset *d);
const rd_dataset_def *const *rd_dataset_defs(int *n);    /* the registry, by name */
const rd_dataset_def *rd_dataset_find(const char *name); /* NULL: unknown */

/* ---- the order of one epoch ---- */
typedef struct rd_order rd_order;
typedef struct rd_order_rules {
    bool shuffle;
    bool drop_last; /* with shuffle: batches smaller than global_batch are left out */
    int64_t
        unit; /* datasets without length: a rank's run begins and ends at multiples of this many samples (statistics of
                         batch norm are over such units); 0: 1 */
    bool
        independent; /* every rank goes through a permutation of its own of all samples, as in Horovod's MNIST example:
                         see rd_order_deal. An epoch has floor(floor(samples / batch per rank) / ranks) batches */
    int size; /* ranks; for independent alone */
} rd_order_rules;
/* The global batches of one epoch, a function of (dataset, seed, epoch, global_batch) alone. With shuffle: a keyed
 * permutation of each bucket, cut into batches of global_batch samples of one bucket (the last one of each bucket
 * smaller: every kept sample is in exactly one batch), then a keyed permutation of the batches. Without: file order,
 * buckets disregarded. Positions are computed when asked for, so a plan of any size is made at once and takes memory
 * for one batch only. RD_EDATA when no sample is kept, except with keep_all (an empty input: no batch); RD_EUSAGE when
 * there are samples but the rules leave no batch. The caller owns *out; d is borrowed. */
rd_code rd_order_new(const rd_dataset *d, uint64_t seed, int64_t epoch, int64_t global_batch,
                     const rd_order_rules *rules, rd_order **out, rd_status *st);
void rd_order_free(rd_order *o);
int64_t rd_order_n_batches(const rd_order *o);
int64_t rd_order_n_samples(
    const rd_order *o); /* in all batches; with independent, small last batches counted as full */
/* All sample ids of global batch k in plan order; borrowed until the next call with this plan. A plan belongs to one
 * thread. */
const int64_t *rd_order_batch(const rd_order *o, int64_t k, int64_t *n);
/* The ids of batch k that rank r of size computes, into ids (room for *n of rd_order_batch). Samples with lengths: longest
 * first, dealt so that every rank has about the same sum of lengths and the same number of samples (+- 1). Without: a run
 * of neighbours in plan order, so many units as other ranks have (+- 1). independent: the rank's own part. With a sharded
 * dataset, the rank that holds a sample computes it. Together the ranks' lists are the batch. */
int64_t rd_order_deal(const rd_order *o, int64_t k, int rank, int size, int64_t *ids);

RD_C_END
#endif
