/* parallel_impl.h -- a parallel text in parts: its keys (parallel_keys.c), length limits and
 * buckets (parallel_buckets.c), Sockeye's rules (parallel_sockeye.c), reading (parallel_read.c),
 * and reports (parallel_report.c), for datasets/parallel_text.c. */
#ifndef RD_PARALLEL_IMPL_H
#define RD_PARALLEL_IMPL_H

#include "text_impl.h"

typedef enum rd_ids_kept { RD_IDS_AUTO, RD_IDS_ALWAYS, RD_IDS_NEVER } rd_ids_kept;
/* How batches of batch_tokens are made. */
typedef enum rd_bucketing {
    RD_BUCKETS_WINDOWS, /* by length, without buckets (token_order.c) */
    RD_BUCKETS_SOCKEYE, /* the others: parallel_sockeye.c */
    RD_BUCKETS_SOCKEYE_3_WORD,
    RD_BUCKETS_SOCKEYE_3_MAX_WORD
} rd_bucketing;
enum { RD_BUCKET_MOST = 65534 }; /* a larger limit counts as a mistake */

typedef struct rd_parallel_config {
    const char *src_vocab_file, *tgt_vocab_file;
    rd_paths file[3][2]; /* [rd_split][side] */
    const char *subword, *subword_model, *bpe_glossaries;
    int64_t subword_size, word_min_count, num_words, bpe_vocab_threshold;
    bool shared_vocab;
    rd_ints max_seq_len, bucket[2], bucket_test[2];
    rd_bucketing bucketing;
    int64_t bucket_width, bucket_multiple;
    bool bucket_scaling, has_bucket_width, has_bucket_scaling;
    rd_ids_kept ids_in_memory;
    const char *delimiter, *data_location;
    rd_invalid_utf8 invalid_utf8;
    int64_t max_line_bytes, max_infer_tokens;
    double max_unknown;
    bool pad_vocabs_to_eight, bpe_used, eval_bleu, print_unk;
} rd_parallel_config;
extern const rd_option_group rd_group_parallel_text;

/* What Sockeye's batches depend on. A bucket's limits count its end token, or start token. */
typedef struct rd_sockeye_batches {
    rd_bucketing kind;
    int n;             /* number of buckets */
    int64_t *limit[2]; /* [n] longest source and target of each bucket */
    int64_t *count;    /* [n] number of its pairs */
    double *mean;      /* [n] mean length of its targets; 0: it has none */
    int64_t multiple;  /* a batch has a multiple of this number of pairs */
} rd_sockeye_batches;

typedef struct rd_parallel {
    rd_parallel_config c;   /* all zero once the dataset is open */
    const char *scheme;     /* of the subword model */
    rd_text_files files[2]; /* of the split */
    char file_name[2][RD_FILES_NAME];
    rd_text_kit kit;
    struct rd_store_bytes *given; /* owned; rank 0: given vocabularies to keep; NULL: none */
    bool own_vocab; /* the vocabularies are not given: the kit has been made of a text */
    rd_side side[2];
    bool no_target, keep_all, drop_blank;
    rd_lines_opts lines;
    rd_log *log;                  /* of rank 0; NULL: none */
    char vocab_name[2][256];      /* path of the vocabulary */
    int64_t n_fed, n_fed_unknown; /* tokens of the texts that were fed; unknown ones */
    bool fed_warned;
    int64_t max_infer_tokens;
    int n_buckets;
    int64_t count, skipped, skipped_longest[2], too_long[2];
    double ratio, ratio_sd; /* target tokens by source tokens, over the pairs that are kept */
    int64_t n_blank; /* number of pairs that are left out of training since a side is blank */
    char delimiter[64], fingerprint[320]; /* the config may be freed before the dataset */
    bool print_unk;
    rd_ints limit[2];      /* [side] length limits of the buckets; n 0: no limit */
    int64_t max_length[2]; /* most tokens in training, start and end counted; 0: no limit */
    int64_t bucket_width;  /* of Sockeye's buckets, before scaling */
    bool bucket_scaling;
    rd_sockeye_batches sockeye; /* n 0: there are none */
} rd_parallel;

extern const char *const rd_parallel_file_key[3][2]; /* [rd_split][side] keys of the files */
/* Returns what the user named a side by: its key, or the flag --input. */
const char *rd_parallel_named(const rd_dataset_args *a, int side);
extern const char *const rd_parallel_side[2]; /* "source", "target" */

/* ---- keys (parallel_keys.c) ---- */

/* Reads all keys, finds the files, and sets the length limits. */
rd_code rd_parallel_config_read(rd_parallel *t, const rd_dataset_args *a, rd_status *st);

/* ---- length limits and buckets (parallel_buckets.c) ---- */

/* Reads the limits of lengths: those of the buckets, and in training max_seq_len. */
rd_code rd_parallel_limits(rd_parallel *t, const rd_dataset_args *a, rd_status *st);
/* Returns the number of tokens of side s of pair i, with start and end. */
int64_t rd_parallel_length(const rd_parallel *t, int s, int64_t i);
/* Returns the bucket of pair i; -1: training leaves the pair out. */
int rd_parallel_bucket(const rd_parallel *t, int64_t i);
/* Counts the pairs that training leaves out, and the length ratio of those that it keeps. */
void rd_parallel_count(rd_parallel *t);

/* Makes Sockeye's buckets, once the lengths are known. */
rd_code rd_parallel_sockeye(rd_parallel *t, rd_status *st);

/* ---- Sockeye's buckets and batches (parallel_sockeye.c) ---- */

/* Makes the buckets for lengths up to `most`, and returns their number. ratio: mean of target
 * length by source length, by which the buckets of the shorter side are scaled; 0: not. The caller
 * frees both arrays, also after a failure. */
int rd_sockeye_buckets(const int64_t most[2], int64_t width, double ratio, int64_t *limit[2],
                       rd_status *st);
/* Returns how many pairs a batch of bucket b has, of about `tokens` target tokens. */
int64_t rd_sockeye_batch(const rd_sockeye_batches *s, int b, int64_t tokens);

/* ---- reading (parallel_read.c) ---- */

/* Opens the given vocabularies, and the subword model if there is one. Collective. */
rd_code rd_parallel_open_given(rd_parallel *t, const rd_dataset_args *a, rd_status *st);
/* Makes vocabularies and subword model, or takes those of the log folder. Collective. */
rd_code rd_parallel_open_kit(rd_parallel *t, const rd_dataset_args *a, bool anew, rd_status *st);
/* Returns how the lines of side s become ids. */
rd_side_args rd_parallel_side_args(const rd_parallel *t, int s);
/* Reads the text, and makes vocabularies anew that were made of another text. Collective. */
rd_code rd_parallel_read(rd_parallel *t, const rd_dataset_args *a, rd_status *st);

/* ---- reports (parallel_report.c) ---- */

/* Fails if the training text has more unknown words than max_unknown allows. */
rd_code rd_parallel_check_unknown(const rd_parallel *t, const rd_dataset_args *a, rd_status *st);
/* Reports what was read, on rank 0. */
void rd_parallel_report(const rd_parallel *t, const rd_dataset_args *a);

#endif
