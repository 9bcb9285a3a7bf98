/* data.h -- datasets, the order of samples, and batches.
 *
 * A dataset answers by index and keeps no cursor. The order of samples is a function of (seed,
 * epoch, position): see rd_order. */
#ifndef RD_DATA_H
#define RD_DATA_H

#include "rd/arena.h"
#include "rd/comm.h"
#include "rd/log.h"
#include "rd/metric.h"
#include "rd/options.h"
#include "rd/strbuf.h"

RD_C_BEGIN

/* Ids of the special tokens, as in OpenSeq2Seq of January 2018. */
enum { RD_UNK = 0, RD_SOS = 1, RD_EOS = 2, RD_PAD = 3, RD_N_SPECIAL = 4 };

/* ---- vocabulary: line k of the file, counted from 0, has id k + 4 ---- */

typedef struct rd_vocab rd_vocab;

/* Reads a vocabulary: one word a line. LF, CR LF or a lone CR ends a line. Trailing white space and
 * everything from the first TAB on do not belong to the word. A repeated word keeps its last id;
 * rd_vocab_duplicates counts them. path may be plain, compressed, or "archive!member", as for texts
 * (datasets/parallel_text.c). RD_EDATA if something is wrong with the file, also if it has no word
 * at all. The caller owns *out. */
rd_code rd_vocab_new(const char *path, bool replace_invalid_utf8, rd_vocab **out, rd_status *st);
void rd_vocab_free(rd_vocab *v); /* NULL is fine */

/* Returns the largest id + 1. */
int64_t rd_vocab_size(const rd_vocab *v);

/* Returns how many lines repeat a word of an earlier line. */
int64_t rd_vocab_duplicates(const rd_vocab *v);

/* Returns the id of a word of n bytes, RD_UNK if the vocabulary does not have it. */
int32_t rd_vocab_id(const rd_vocab *v, const char *word, size_t n);

/* Returns the word of an id and its length: "<UNK>", "<S>", "</S>", "<PAD>" for the special ones,
 * "" past the end. Borrowed from v. */
const char *rd_vocab_word(const rd_vocab *v, int32_t id, size_t *n);

/* Returns a hash of all words in the order of their ids. */
uint64_t rd_vocab_hash(const rd_vocab *v);

/* Turns ids into the words that a metric reads. The first end token ends the sentence. Start
 * tokens, padding, ids past the end and, unless print_unk is set, unknown words are left out. bpe:
 * subwords are joined (rd_tokens_bpe). Memory comes from the arena. */
rd_code rd_vocab_tokens(const rd_vocab *v, const int32_t *ids, int64_t n, bool print_unk, bool bpe,
                        rd_arena *a, rd_tokens *out, rd_status *st);

/* ---- batches ---- */

typedef enum rd_dtype { RD_F32, RD_I32, RD_U8 } rd_dtype;

typedef struct rd_field {
    const char *name; /* "source", "target", "image", "label" */
    rd_dtype dtype;
    const void *data;   /* all samples one after the other, without padding */
    const int64_t *off; /* [n + 1] sample i is data[off[i]] .. data[off[i + 1] - 1] */
    int n_dim;          /* dimensions of one sample (images: 3); 0: lists of different lengths */
    int64_t dim[4];     /* shape of one sample (images: height, width, channels) */
} rd_field;

enum { RD_MAX_FIELDS = 4 };

typedef struct rd_batch {
    int64_t step, epoch;   /* set before fetch: augmentation depends on the epoch */
    int64_t n_global;      /* number of samples in the batch of all ranks */
    int64_t n;             /* number of samples on this rank; may be 0 */
    const int64_t *sample; /* [n] ids in the dataset: the key of dropout and augmentation */
    int n_fields;
    rd_field field[RD_MAX_FIELDS];
} rd_batch;

/* Returns the field of that name, NULL if there is none. */
const rd_field *rd_batch_field(const rd_batch *b, const char *name);

/* Returns a hash of the shape of the work: the number of samples, and for each field how many
 * samples have which length. It does not depend on the order of the samples, their ids or their
 * contents. */
uint64_t rd_batch_shape(const rd_batch *b);

/* ---- datasets: one file each in runner/data/datasets; make writes the registry ---- */

typedef enum rd_split { RD_SPLIT_TRAIN, RD_SPLIT_EVAL, RD_SPLIT_TEST } rd_split;

/* What a model needs to know of the data. Pointers are borrowed from the dataset. */
typedef struct rd_data_spec {
    /* sequences */
    int64_t src_vocab_size, tgt_vocab_size; /* as read, before pad_vocabs_to_eight */
    uint64_t src_vocab_hash, tgt_vocab_hash;
    const rd_vocab *src_vocab, *tgt_vocab;
    uint64_t subword_hash; /* of the subword model; 0: there is none */
    bool joins;            /* `text` joins subwords, so texts are compared as people write them */
    /* Texts for language models: the token that ends a document, -1: none, and the bytes of text of
      * each token, [tgt_vocab_size]; NULL: not known. */
    int32_t end_id;
    const int32_t *id_bytes;
    /* images; all zero for other data */
    int64_t n_classes, image_h, image_w, image_c;
    const char *const *class_names; /* [n_classes] "" for a class without a name; NULL: no names */
    float pixel_mean[4]; /* by channel: pixel (0 .. 255) = value * pixel_std + pixel_mean */
    float pixel_std[4];
} rd_data_spec;

/* A possible answer of a question of multiple choice. */
typedef struct rd_choice {
    int64_t question; /* the answers of a question follow each other */
    bool right;
} rd_choice;

typedef struct rd_dataset rd_dataset;

typedef struct rd_dataset_args {
    const rd_config *config;
    rd_mode mode; /* infer: a target is not needed */
    rd_split split;
    rd_comm *comm;      /* open is collective; NULL: one rank */
    rd_log *log;        /* outlives the dataset, which reports damaged images; NULL: no log */
    bool shard;         /* --split_data_per_rank: keep only the samples with i % size == rank */
    bool keep_all;      /* evaluation and inference: skip no sample for its length */
    const char *logdir; /* log folder: what is made of the data is kept there; NULL: none */
    bool scratch;       /* logdir is only on rank 0's host, and soon removed: no large files */
    const char
        *weights; /* file or log folder of weights from elsewhere, whose ids count; or NULL */
    /* Infer mode, images: the samples come from `feed`, and have the classes and the size of this
     * one, which is borrowed during the call. NULL: the config's data. */
    const rd_data_spec *like;
    /* The config is the record of the log folder: what is kept there counts before files that the
     * config names. */
    bool config_is_record;
} rd_dataset_args;

/* A kind of dataset. Functions take what open stored in *self; i is a sample id, 0 .. count - 1. */
typedef struct rd_dataset_def {
    const char *name, *about;
    const rd_option_group *group; /* keys that it reads and other datasets may read, too; or NULL */
    const rd_option_group *own;   /* keys that only this dataset reads; or NULL */
    bool prepares; /* opened in RD_MODE_PREPARE, it makes what is kept in the log folder, and reads
                      no sample. In RD_MODE_EXPORT a dataset reads what is kept, and no sample where
                      that is enough */

    /* Opens the dataset. Collective. */
    rd_code (*open)(const rd_dataset_args *a, void **self, rd_status *st);
    void (*close)(void *self);

    /* Returns the number of samples of all ranks, before any are skipped. */
    int64_t (*count)(void *self);

    /* Returns the number of buckets. */
    int (*n_buckets)(void *self);

    /* Returns the bucket of a sample, 0 .. n_buckets - 1; -1 if the sample is skipped. */
    int (*bucket)(void *self, int64_t i);

    /* Returns the cost of a sample (source and target tokens), by which work is shared evenly.
     * NULL: all samples cost the same, and each rank computes a run of neighbours in the order (see
     * rd_order_rules.unit). */
    int64_t (*length)(void *self, int64_t i);

    /* Returns the number of target tokens of a sample: its words and the end token. The sample is
     * one of those that bucket() keeps, and need not be here. NULL: samples have no target tokens,
     * so batch_tokens cannot count them. */
    int64_t (*tokens)(void *self, int64_t i);

    /* Returns how many samples a batch of a bucket has, for batches of about `tokens` target
     * tokens. 0: such batches do not depend on buckets (token_order.c). NULL: 0. */
    int64_t (*bucket_batch)(void *self, int bucket, int64_t tokens);

    /* Returns whether this rank has the sample in memory. */
    bool (*here)(void *self, int64_t i);

    /* Fills n, sample, n_fields and field of *out with the samples ids[0 .. n - 1]. Memory comes
     * from the arena. The caller has set out->epoch. Thread-safe for different arenas. Images: the
     * fields are "image" (RD_F32, shape h w c, as the model takes it: augmented in the train split,
     * normalised) and "label" (RD_I32, one per sample). */
    rd_code (*fetch)(void *self, const int64_t *ids, int64_t n, rd_arena *a, rd_batch *out,
                     rd_status *st);

    /* Announces that fetch will soon be called with these ids and this epoch, so that worker
     * threads can begin. Returns at once. The next announcement drops one that was never fetched.
     * May be NULL. */
    void (*prepare)(void *self, const int64_t *ids, int64_t n, int64_t epoch);

    /* Fills *out with what a model needs to know. */
    void (*spec)(void *self, rd_data_spec *out);

    /* Returns a text that must be equal on all ranks and after a resume. */
    const char *(*fingerprint)(void *self);

    /* Appends readable text for print-outs: the words of the decoded ids of one side (0 source, 1
     * target). Images: side 0, the names of samples; side 1, the names of classes, or their
     * numbers. specials: start and end tokens are written, too. May be NULL. */
    void (*text)(void *self, int side, const int32_t *ids, int64_t n, bool specials,
                 rd_strbuf *out);

    /* Returns the target line of sample i exactly as the file has it, also words that the
     * vocabulary lacks. Scores then agree with those of other tools on the same files. Borrowed.
     * NULL if the line is not kept: training data, sharded data, no target. The function may be
     * NULL, too. */
    const char *(*reference)(void *self, int64_t i, size_t *n);

    /* Returns whether sample i is an answer of multiple choice, and fills *out. All samples are, or
     * none. NULL: none. */
    bool (*choice)(void *self, int64_t i, rd_choice *out);

    /* Returns whether sample i has nothing to translate: its source line is blank. Its output is
     * then empty. NULL: never. */
    bool (*blank)(void *self, int64_t i);

    /* Replaces the samples by the lines of a text, which is borrowed during the call. Infer mode
     * alone. lines_before: number of lines of the texts before, for messages. Not collective; all
     * ranks call it with the same text. NULL: the dataset reads no text. Images: the text consists
     * of paths that each end with '\0', and rd_dataset_args.like is needed. */
    rd_code (*feed)(void *self, const char *text, size_t n, int64_t lines_before, rd_status *st);

    /* Returns what is wrong with image i, which came from `feed` and was fetched; NULL: nothing.
     * *unusable: nothing of it could be decoded, and grey replaces it. Borrowed until the next
     * feed. The function may be NULL. */
    const char *(*trouble)(void *self, int64_t i, bool *unusable);

    /* Keeps in the log folder what a later start needs of the data besides its samples:
     * vocabularies, names of classes. Rank 0 calls it after the checkpoint was found to fit the
     * data. NULL: nothing is kept. */
    rd_code (*keep)(void *self, const char *logdir, rd_status *st);
} rd_dataset_def;

/* Begins the definition of a dataset: RD_DATASET(id) = {...}; in a file of runner/data/datasets.
 * make finds it, also as RD_DATASET_...(id, ...), and writes the registry. */
#define RD_DATASET(id) const rd_dataset_def rd_dataset_##id

/* Opens the dataset `name`. Collective. The caller owns *out. */
rd_code rd_dataset_new(const char *name, const rd_dataset_args *a, rd_dataset **out, rd_status *st);
void rd_dataset_free(rd_dataset *d); /* NULL is fine */
/* Returns the kind of the dataset. */
const rd_dataset_def *rd_dataset_def_of(const rd_dataset *d);
/* Returns what the functions of its definition take as first argument. */
void *rd_dataset_self(const rd_dataset *d);
/* Returns the number of samples that are not skipped. */
int64_t rd_dataset_kept(const rd_dataset *d);

/* Appends what rd_dataset_def.text says. Control characters become spaces: samples come from
 * outside, and terminals obey them. */
void rd_dataset_text(const rd_dataset *d, int side, const int32_t *ids, int64_t n, bool specials,
                     rd_strbuf *out);

/* Appends the name of class k, or its number if the dataset has no names. */
void rd_dataset_class_text(const rd_dataset *d, int32_t k, rd_strbuf *out);
/* Appends a cell of a Markdown table: the name of class k, or the text of some ids, escaped
 * (rd_printable_cell). */
void rd_dataset_class_cell(const rd_dataset *d, int32_t k, rd_strbuf *out);
void rd_dataset_text_cell(const rd_dataset *d, int side, const int32_t *ids, int64_t n,
                          rd_strbuf *out);

/* Returns all kinds of dataset, sorted by name. */
const rd_dataset_def *const *rd_dataset_defs(int *n);

/* Returns the kind of that name, NULL if there is none. */
const rd_dataset_def *rd_dataset_find(const char *name);

/* ---- the order of one epoch ---- */

typedef struct rd_order rd_order;

/* A part of an epoch in which nothing that decides the order has changed: the first `batches`
 * batches of the order with this global batch, seed and drop_last have been used. */
typedef struct rd_order_part {
    int64_t global_batch, batches;
    int64_t tokens; /* as rd_order_rules.tokens */
    uint64_t seed;
    bool drop_last;
} rd_order_part;

typedef struct rd_order_rules {
    bool shuffle;
    bool drop_last; /* with shuffle: leave out batches smaller than global_batch */
    /* Datasets without length: a rank's run begins and ends at multiples of this number of samples,
     * since batch norm takes its statistics over such units. 0: 1. */
    int64_t unit;
    /* Every rank walks its own permutation of all samples, as in Horovod's MNIST example: see
     * rd_order_deal. An epoch has floor(floor(samples / batch per rank) / ranks) batches. */
    bool independent;
    int size; /* number of ranks; used by independent only */
    /* With shuffle, without independent: the earlier parts of this epoch, borrowed for
     * rd_order_new. The order then holds the samples that these parts have not used. */
    const rd_order_part *parts;
    int n_parts;
    /* > 0, with shuffle, without independent: a global batch has about this number of target
     * tokens, and global_batch has no effect. 0: it has global_batch samples. */
    int64_t tokens;
    int n_own; /* number of micro-batches of a rank in rd_order_deal; 0: 1 */
} rd_order_rules;

/* Makes the global batches of one epoch: a function of (dataset, seed, epoch, global_batch, parts)
 * alone.
 *
 * With shuffle: a keyed permutation of each bucket is cut into batches of global_batch samples. The
 * last batch of a bucket is smaller: every kept sample is in exactly one batch. Then the batches go
 * through a keyed permutation. Without shuffle: file order, buckets disregarded.
 *
 * With tokens: a keyed permutation of all samples is cut into windows, and each window is sorted by
 * length and cut into batches of about that number of target tokens; buckets are disregarded. The
 * batches of a window go through a keyed permutation. An epoch has tokens of the epoch / `tokens`
 * batches, rounded, and each kept sample is in exactly one. Making the order takes one pass over
 * the lengths, and memory for one window. Where the dataset has bucket_batch, each bucket is cut
 * into batches of that number of samples instead, as without tokens.
 *
 * Without tokens a position is computed when it is asked for. An order of any size is therefore
 * made at once and takes memory for one batch only. RD_EDATA if no sample is kept; with keep_all an
 * empty input is an order without batches. RD_EUSAGE if there are samples but the rules leave no
 * batch. The caller owns *out; d is borrowed.
 *
 * With parts: each bucket keeps the samples that no part has used, in the order of the part before,
 * and these are cut into batches anew. So each sample comes once in all parts together. That order
 * takes four bytes a sample, and it may have no batch. */
rd_code rd_order_new(const rd_dataset *d, uint64_t seed, int64_t epoch, int64_t global_batch,
                     const rd_order_rules *rules, rd_order **out, rd_status *st);
void rd_order_free(rd_order *o); /* NULL is fine */
/* Returns the number of global batches. With parts: of those that are left. */
int64_t rd_order_n_batches(const rd_order *o);

/* Returns the number of global batches of an epoch without parts. */
int64_t rd_order_n_whole(const rd_order *o);

/* Returns the number of samples in all batches, those of earlier parts included. With independent,
 * smaller last batches are counted as full. */
int64_t rd_order_n_samples(const rd_order *o);

/* Returns the ids of all samples of global batch k, in order, and their number. Borrowed until the
 * next call with this order, which only one thread may use. */
const int64_t *rd_order_batch(const rd_order *o, int64_t k, int64_t *n);

/* Writes the ids of batch k that this rank of `size` computes to ids, which has a capacity of *n of
 * rd_order_batch, and returns their number. Together the lists of all ranks are the batch.
 *
 * size: number of ranks times rules.n_own; micro-batch j of rank r has the number r n_own + j.
 *
 * Samples with lengths: longest first, dealt so that every rank has about the same sum of lengths
 * and the same number of samples (+- 1). Samples without: a run of neighbours, with as many units
 * as other ranks have (+- 1). independent: the rank's own batch. Sharded dataset: the rank that
 * holds a sample computes it. */
int64_t rd_order_deal(const rd_order *o, int64_t k, int rank, int size, int64_t *ids);
/* Returns whether rank gets sample i of a global batch that is sorted by length: dealt back and
 * forth, ranks 0 .. size - 1, then size - 1 .. 0, so that no rank always gets the longer one. */
bool rd_order_is_dealt(int64_t i, int rank, int size);

/* Returns the number of global batches of an epoch with about `tokens` target tokens each, and
 * writes the target tokens of the epoch to *in_all; 0: the samples have no target tokens. */
int64_t rd_order_n_updates(const rd_dataset *d, int64_t tokens, int64_t *in_all);

/* What the batches of an order with tokens hold. */
typedef struct rd_order_tokens {
    int64_t batches; /* number of batches that were counted */
    int64_t samples;
    int64_t tokens, least, most; /* target tokens: of all, of the smallest and largest batch */
    int64_t padded;              /* target tokens if each batch were padded to its longest target */
} rd_order_tokens;

/* Counts the first batches of an order with tokens, until they hold `samples` samples. It sorts
 * their windows. */
void rd_order_count_tokens(const rd_order *o, int64_t samples, rd_order_tokens *out);

RD_C_END
#endif
