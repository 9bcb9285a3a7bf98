/* text_impl.h -- a parallel text: one side of it in memory (text_side.c), words and their counts
 * (word_counts.c), and what a run needs to turn lines into ids and back (text_kit.c), for
 * parallel_impl.h and lm_impl.h. */
#ifndef RD_TEXT_IMPL_H
#define RD_TEXT_IMPL_H

#include "data_impl.h"
#include "rd/subword.h"

/* What a text reader does with bytes that are not valid UTF-8. */
typedef enum rd_invalid_utf8 { RD_UTF8_ERROR, RD_UTF8_REPLACE } rd_invalid_utf8;

/* ---- progress of a long reading (text_progress.c) ---- */

typedef struct rd_progress {
    rd_log *log;      /* of rank 0; NULL: none */
    const char *what; /* "source text read" */
    const char *noun; /* "lines": what is counted */
    int64_t begin_ns, live_ns, line_ns;
    int64_t all; /* stored bytes to read; below 1: not known */
    bool shown;  /* a live line is on the terminal */
} rd_progress;

/* all: bytes of the text as it is stored; below 1: not known. */
void rd_progress_start(rd_progress *p, rd_log *log, const char *what, int64_t all);
/* Reports the lines and bytes so far, and the time that is left: on a terminal twice a second, in
 * the log after ten seconds and then each half minute. Cheap: to be called for each line. */
void rd_progress_at(rd_progress *p, int64_t lines, const rd_lines *l);
/* The same for another reader, and without a count of calls: bytes of text so far, and how many of
 * `all` are done. */
void rd_progress_bytes(rd_progress *p, int64_t lines, int64_t bytes, int64_t done);
void rd_progress_end(rd_progress *p);

/* What a message adds where a text is not there: "; NAME fetches ...". */
extern const char rd_text_fetcher[];

/* ---- one side (text_side.c) ---- */

/* What a side has besides its arrays. Plain data: local rank 0 sends it to the other ranks of the
 * host. */
typedef struct rd_side_head {
    int64_t n_lines;        /* number of lines of all files */
    int64_t n_tokens;       /* number of tokens of all files, without start and end */
    int64_t n_unknown;      /* number of unknown tokens, of the lines that are here */
    int64_t n_bytes;        /* number of bytes, after decompression */
    int64_t longest;        /* number of tokens of the longest line, with start and end */
    int64_t n_replaced;     /* number of characters replaced by U+FFFD */
    int64_t first_replaced; /* number of the first line with one, in its file */
    int64_t file_replaced;  /* index of its file */
    int64_t n_here;         /* number of tokens of the lines that are here */
    int64_t n_blank;        /* number of lines without a word, white space apart */
    int64_t first_blank;    /* number of the first of them, from 1, of all files */
    int64_t n_spaces;     /* number of lines with white space inside that is no blank (TAB, ...) */
    int64_t first_spaces; /* number of the first of them, from 1, of all files */
    int64_t unknown_line; /* number of the line of `unknown`, from 1, of all files */
    char unknown[64];     /* the first unknown word, cut to fit; "" without one */
    uint64_t hash;        /* of all lines: the same for every number of ranks */
    int32_t wide;         /* ids are int32_t, else uint16_t */
    int32_t bom;          /* a file began with a byte order mark */
    int32_t again;        /* ids are not kept: lines are read again at their offsets */
    int32_t n_files;      /* number of files */
} rd_side_head;

enum { RD_SIDE_BLOCKS = 8 };

typedef struct rd_side_again rd_side_again; /* what reads lines again */

typedef struct rd_side {
    rd_side_head head;
    int rank, size; /* lines with line % size == rank are here; rank 0, size 1: all */
    union {
        struct {
            rd_block ids;     /* "start w1 .. wn end" of all lines that are here */
            rd_block off;     /* int64_t [n_here + 1] where each line starts in ids */
            rd_block len;     /* uint32_t [n_lines] tokens with start and end; if size > 1 */
            rd_block raw;     /* the lines themselves, each with '\0', if kept */
            rd_block raw_off; /* int64_t [n_lines + 1] where each line starts in raw */
            rd_block blank;   /* int64_t [n_blank] numbers of the blank lines from 0, ascending */
            rd_block file;    /* int64_t [n_files + 1] number of lines before each file */
            /* uint64_t [n_lines] with `again`: the offset in the file (48 bits) and the number of
             * tokens with start and end, at most 65535 (16 bits) */
            rd_block at;
        };
        rd_block block[RD_SIDE_BLOCKS];
    };
    rd_side_again *reader; /* owned; NULL without `again` */
} rd_side;

/* How lines become ids. Pointers are borrowed. */
typedef struct rd_side_args {
    const rd_vocab *vocab;
    const rd_subword *subword; /* segments each line; NULL: single blanks separate the words */
    int rank, size;            /* as in rd_side */
    bool keep_raw;             /* keeps the lines for rd_side_raw */
    bool shared;               /* in memory that other ranks of the host can map */
    bool again;                /* keeps offsets in place of ids; size 1, plain files */
    rd_progress *progress;     /* NULL: none */
} rd_side_args;

/* Reads all lines of l into *side, which must be all zero or released. The caller owns *side, also
 * after a failure. */
rd_code rd_side_read(rd_side *side, rd_lines *l, const rd_side_args *a, rd_status *st);
void rd_side_release(rd_side *side);

/* Opens the files of a side with `again`, on every rank that fetches its lines. `files`, o and a
 * are borrowed until rd_side_release, except o and a themselves. */
rd_code rd_side_open(rd_side *side, const rd_text_files *files, const rd_lines_opts *o,
                     const rd_side_args *a, rd_status *st);

/* Returns the number of tokens of line i, with start and end. */
int64_t rd_side_length(const rd_side *side, int64_t i);

/* Does the same for a line that is here, from its ids. */
int64_t rd_side_n_ids(const rd_side *side, int64_t i);

/* Returns the bytes that the lines take in memory. */
double rd_side_bytes(const rd_side *side);

/* Returns whether line i has no word. */
bool rd_side_blank(const rd_side *side, int64_t i);

/* Copies the ids of a line that is here: rd_side_n_ids of them. With `again` this reads the line,
 * and fails if it has changed. Thread-safe. */
rd_code rd_side_ids(const rd_side *side, int64_t i, int32_t *out, rd_status *st);

/* Returns line i as the file has it, and its length. Borrowed. NULL if lines are not kept. */
const char *rd_side_raw(const rd_side *side, int64_t i, size_t *n);

/* Returns the index of the file that line i, from 0, is in. *line: its number there, from 1. */
int rd_side_file(const rd_side *side, int64_t i, int64_t *line);

/* ---- counts of words (word_counts.c) ---- */

typedef struct rd_word_counts rd_word_counts;

/* The caller owns *out, also after a failure. */
rd_code rd_word_counts_new(rd_word_counts **out, rd_status *st);
void rd_word_counts_free(rd_word_counts *c); /* NULL is fine */

/* Counts the words of a line, which blanks separate. Empty words do not count. */
rd_code rd_word_counts_add(rd_word_counts *c, const char *line, size_t n, rd_status *st);

/* Returns the number of words that were not counted, since they hold a TAB or CR. */
int64_t rd_word_counts_unfit(const rd_word_counts *c);

typedef struct rd_counted {
    int64_t words, distinct; /* number of words written, of different words counted */
    int64_t covered, total;  /* number of words of the text: those written, all */
} rd_counted;

/* Appends "word TAB count" of each word that occurs at least min_count times, the most frequent
 * first, at most num_words of them; 0: all. */
rd_code rd_word_counts_write(const rd_word_counts *c, int64_t min_count, int64_t num_words,
                             rd_strbuf *out, rd_counted *what, rd_status *st);

/* ---- what turns lines into ids and back (text_kit.c) ---- */

/* The keys that decide it. Strings are borrowed. */
typedef struct rd_text_rules {
    const char *subword;       /* the scheme, "none" for words */
    const char *subword_model; /* the model's file; NULL: it is trained */
    int64_t subword_size;
    bool shared_vocab;
    int64_t word_min_count, num_words; /* num_words 0: all */
    int64_t threshold;                 /* least count of a piece of bpe on its side; 0: no limit */
    const char *glossaries;            /* file of patterns for bpe; NULL: none */
} rd_text_rules;

/* A subword model and two vocabularies. A struct of zeros is empty. */
typedef struct rd_text_kit {
    rd_subword *subword; /* owned; NULL: single blanks separate the words */
    /* Owned: the same with the pieces that each side may use; NULL: there is no such limit. */
    rd_subword *limited[2];
    rd_vocab *vocab[2];  /* owned; source, target */
    const char *file[2]; /* names of their files in LOGDIR/text; NULL: they are given */
    /* From the log folder: the hashes (rd_side_head.hash) of the text that it was made of. */
    uint64_t text_hash[2];
    bool kept;    /* it comes from a log folder, and was not made now */
    bool is_tied; /* weights depend on it: it stays as it is, whatever the text is */
} rd_text_kit;

typedef struct rd_text_kit_args {
    rd_comm *comm;
    rd_log *log;         /* of rank 0; NULL: none */
    const char *logdir;  /* its folder "text" has the files; NULL: none */
    const char *weights; /* file or log folder of weights from elsewhere; NULL: none */
    bool makes;          /* makes what is missing, from files */
    bool saves;          /* ... and keeps it in logdir */
    bool anew;           /* ... even if logdir has it */
    bool compares;       /* compares the text with the one that the kit in logdir was made of */
    rd_text_rules rules;
    const rd_text_files *files; /* [2] the training text */
    rd_lines_opts lines;
} rd_text_kit_args;

/* Makes the kit on rank 0, or reads it from the log folder, and gives it to all ranks. Collective.
 * The caller owns *out, also after a failure.
 *
 * LOGDIR/text holds text.json, the vocabularies and the model. text.json is written last and has
 * the rules, the hashes of the text, and the hash of each file. A folder without it is not whole,
 * and the kit is made anew. With other rules the kit is made anew, unless a checkpoint depends on
 * it: then RD_EUSAGE. A file with another hash is RD_EDATA. */
rd_code rd_text_kit_open(const rd_text_kit_args *a, rd_text_kit *out, rd_status *st);
void rd_text_kit_release(rd_text_kit *k);
/* Returns what segments the lines of a side. Borrowed. NULL: single blanks separate the words. */
const rd_subword *rd_text_kit_subword(const rd_text_kit *k, int side);
/* Returns a hash of all that segmenting depends on; 0: there is no scheme. */
uint64_t rd_text_kit_subword_hash(const rd_text_kit *k);

/* Fails, since the sides of a text have different numbers of lines. side [2]: tells how many lines
 * each file has; NULL: not known. */
rd_code rd_text_counts_differ(const rd_text_files *files, const rd_side *side,
                              const int64_t lines[2], rd_status *st);

/* ---- given vocabularies (text_given.c) ---- */

struct rd_store_bytes; /* text_store.h */

typedef struct rd_text_given_args {
    rd_comm *comm;
    rd_log *log;          /* of rank 0; NULL: none */
    const char *logdir;   /* its folder "text" may have copies; NULL: none */
    const char *vocab[2]; /* the files */
    /* Of them: subword ("none": single blanks separate the words), subword_model (NULL: the scheme
     * has none), glossaries, and threshold: a side may then use the words of its vocabulary
     * alone. */
    rd_text_rules rules;
    bool replace;    /* invalid UTF-8 is replaced by U+FFFD */
    bool kept_first; /* the copies count, not the files */
    bool remember;   /* rank 0 remembers the bytes, for rd_text_given_keep */
} rd_text_given_args;

/* Reads given vocabularies and a subword model. Where a file is not there, the copies in the log
 * folder count. Collective. The caller owns *out and *bytes, also after a failure. *bytes is NULL
 * where nothing is remembered. A copy with another hash is RD_EDATA. */
rd_code rd_text_given_open(const rd_text_given_args *a, rd_text_kit *out,
                           struct rd_store_bytes **bytes, rd_status *st);
/* Copies them to the log folder, unless it has the same copies. Rank 0 only. */
rd_code rd_text_given_keep(const struct rd_store_bytes *bytes, const char *logdir, rd_status *st);
void rd_text_given_free(struct rd_store_bytes *bytes); /* NULL is fine */

/* Writes the log folder of weights to out: a folder, a file in it, FOLDER:best or FOLDER:STEP. */
void rd_text_folder_of(const char *weights, char *out, size_t capacity);

/* Opens a subword model: rank 0 reads it, all ranks get it. Collective. The caller owns *out. */
rd_code rd_text_subword_open(rd_comm *comm, const rd_text_rules *r, rd_subword **out,
                             rd_status *st);

#endif
