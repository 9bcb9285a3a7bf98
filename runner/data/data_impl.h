/* data_impl.h -- what the files of runner/data share: lines of text, memory that the ranks of a
 * host share, and the inside of rd_dataset. */
#ifndef RD_DATA_IMPL_H
#define RD_DATA_IMPL_H

#include "rd/data.h"
#include "rd/hash.h"
#include "rd/input.h"
#include <string.h>

/* ---- lines of a file (lines.c) ---- */

typedef struct rd_lines rd_lines;

typedef struct rd_lines_opts {
    bool cr_ends; /* CR LF and a lone CR end a line, too (vocabularies); else only LF does */
    bool
        replace; /* invalid UTF-8 and NUL become U+FFFD; else they are errors with file:line:byte */
    int64_t max_line_bytes; /* a longer line is an error */
    int64_t lines_before;   /* number of lines that other texts had: lines are counted from there */
    bool any_kind; /* a named pipe, a socket or a device is read, too; the call waits for them */
} rd_lines_opts;

/* Opens a file: plain or compressed (gzip, xz, bzip2, zstd, recognised by content),
 * "archive!member" (tar or zip, plain or compressed), the pipe of a shell's <(command), or "-",
 * standard input. The caller owns *out. */
rd_code rd_lines_new(const char *path, rd_lines_opts o, rd_lines **out, rd_status *st);

/* Opens plain text in memory, which is borrowed. name: for messages. */
rd_code rd_lines_new_mem(const char *name, const char *p, size_t n, rd_lines_opts o, rd_lines **out,
                         rd_status *st);
/* Opens n files, at least one, as one text: the lines of the first file, then those of the second,
 * ... The last line of a file ends with the file. Each file may have its own byte order mark and
 * its own compression. paths: borrowed until rd_lines_free. */
rd_code rd_lines_new_list(const char *const *paths, int n, rd_lines_opts o, rd_lines **out,
                          rd_status *st);
void rd_lines_free(rd_lines *l); /* NULL is fine */

/* Returns the next line without its end; *line is NULL after the last one. A last line without LF
 * counts; a final LF starts no line. Without cr_ends a CR before the LF belongs to the line
 * (rd_utf8_rstrip drops it). The line is valid UTF-8 without NUL, and the 64 bytes after it can be
 * read. Borrowed until the next call. */
rd_code rd_lines_next(rd_lines *l, const char **line, size_t *n, rd_status *st);

int64_t rd_lines_number(const rd_lines *l); /* number of the last line in its file, from 1 */
int rd_lines_file(const rd_lines *l);       /* index of its file; 0: the only one */
int64_t rd_lines_offset(const rd_lines *l); /* offset of its first byte in the text of the file */
int64_t rd_lines_bytes(const rd_lines *l);  /* bytes read so far, after decompression */
/* Returns how much of the files' stored bytes is done, compressed ones included. A member counts as
 * its whole archive. */
int64_t rd_lines_disk(const rd_lines *l);
bool rd_lines_bom(const rd_lines *l); /* the file began with a byte order mark, which was skipped */
int64_t rd_lines_replaced(const rd_lines *l);       /* number of characters replaced by U+FFFD */
int64_t rd_lines_first_replaced(const rd_lines *l); /* number of the first line with one */
int rd_lines_file_replaced(const rd_lines *l);      /* index of its file */

/* Reads all bytes that path gives, without splitting them into lines. One rank reads standard input
 * so for all. The caller frees *out. */
rd_code rd_lines_read_all(const char *path, char **out, size_t *n, rd_status *st);

/* Does the same, and stops soon after `most` bytes: *n is then larger than `most`. */
rd_code rd_lines_read_most(const char *path, size_t most, char **out, size_t *n, rd_status *st);

/* Fails if libarchive has failed because the machine has: `in` could not be read (NULL: memory), or
 * there is no memory. Otherwise the archive is damaged, and the caller says so. */
struct archive;
void rd_archive_fault(struct archive *a, const rd_input *in, const char *name, rd_status *st);

/* ---- names of files (braces.c, text_files.c) ---- */

/* Expands "a-{000..012}-{x,y}.tar" as a shell does, then matches * ? [ against the existing files.
 * Calls each(ctx, path) in order. RD_EUSAGE: braces that are not closed, more than a million
 * names. */
rd_code rd_braces(const char *pattern, rd_code (*each)(void *ctx, const char *path, rd_status *st),
                  void *ctx, rd_status *st);

/* The files of one side of a text. */
typedef struct rd_text_files {
    char **at; /* owned list of owned names, in the order in which they are read */
    int n, cap;
} rd_text_files;

/* Makes the list of files that the names and patterns of a key stand for. A name that exists is
 * that file, whatever signs it has. Other names with * ? [ or braces are patterns (rd_braces), also
 * in front of "!member". The caller owns *out, also after a failure. */
rd_code rd_text_files_new(const rd_paths *names, rd_text_files *out, rd_status *st);
void rd_text_files_release(rd_text_files *f);

/* Fails as reading them would if one of the files does not exist. Reads nothing of a file that
 * does, which may be a pipe. */
rd_code rd_text_files_exist(const rd_text_files *f, rd_status *st);

/* Fails if a log folder, which should have a vocabulary or a tokenizer, does not exist. NULL: none
 * is named, and nothing happens. */
rd_code rd_text_no_logdir(const char *logdir, rd_status *st);

/* The file of LOGDIR/text that text_store.c writes last for parallel texts, and that of
 * lm_tokenizer.c for language models. */
extern const char rd_text_record[], rd_tokenizer_record[];

/* Fails if a log folder with checkpoints has this record, since what it keeps in LOGDIR/text
 * belongs to another kind of model and would be overwritten. */
rd_code rd_text_of_other(const char *logdir, const char *record, rd_status *st);

/* Returns the bytes of all files; -1: one of them is compressed, or no regular file. */
int64_t rd_text_files_bytes(const rd_text_files *f);
/* Returns the sum of the sizes of the files as they are stored: compressed, and for a member its
 * whole archive. -1: not known, as with a pipe. */
int64_t rd_text_files_disk(const rd_text_files *f);

enum { RD_FILES_NAME = 384 };

/* Writes "'a'", or "'a' (and 2 more files)", for messages. */
const char *rd_text_files_name(const rd_text_files *f, char out[RD_FILES_NAME]);

/* ---- vocabulary (vocab.c) ---- */

/* The programs whose vocabularies can be read. */
typedef enum rd_vocab_kind {
    RD_VOCAB_LINES, /* one word a line, as in rd_vocab_new */
    RD_VOCAB_JSON,  /* Sockeye, also vocab.json: {"token": id} */
    RD_VOCAB_YAML,  /* Marian: "token: id" in each line */
    RD_VOCAB_COUNTS /* fairseq's dict.txt: "token count" in each line */
} rd_vocab_kind;

/* Returns what a file of this kind is, for messages: "Sockeye's JSON". */
const char *rd_vocab_kind_name(rd_vocab_kind k);

/* Finds the kind of a vocabulary by its bytes. If it is not RD_VOCAB_LINES, appends its words to
 * *words, each with a '\0' behind it, in the order of their numbers. The special tokens of these
 * programs and entries that only fill a table are left out: the words count, not the numbers.
 * RD_EDATA with file and line: a line of another kind, a word or number twice, a kind that cannot
 * be told. */
rd_code rd_vocab_foreign(const char *name, const char *p, size_t n, rd_vocab_kind *kind,
                         rd_strbuf *words, rd_status *st);

/* Returns the kind of the file that v comes from. */
rd_vocab_kind rd_vocab_kind_of(const rd_vocab *v);

/* Does the same as rd_vocab_new for bytes in memory. */
rd_code rd_vocab_new_mem(const char *name, const char *p, size_t n, bool replace_invalid_utf8,
                         rd_vocab **out, rd_status *st);
bool rd_vocab_bom(const rd_vocab *v);         /* as rd_lines_bom */
int64_t rd_vocab_replaced(const rd_vocab *v); /* as rd_lines_replaced */

/* A line of a vocabulary whose word an earlier line has, too. Both are counted from 1. */
typedef struct rd_vocab_repeat {
    int64_t earlier, line;
} rd_vocab_repeat;
enum { RD_VOCAB_REPEATS = 3 };

/* Returns the first RD_VOCAB_REPEATS such lines; only as many as rd_vocab_duplicates says are
 * valid. */
const rd_vocab_repeat *rd_vocab_repeats(const rd_vocab *v);

/* The most words that a vocabulary may have. */
enum { RD_VOCAB_MOST = 1 << 22 };

enum { RD_PIECES = 32 };

typedef struct rd_piece {
    const char *at; /* 16 bytes from here on can be read, whatever n is */
    size_t n;
} rd_piece;

/* Looks up the ids of n pieces of text, at most RD_PIECES. */
void rd_vocab_ids(const rd_vocab *v, const rd_piece *piece, int n, int32_t *ids);

/* ---- UTF-8 (utf8.c) ---- */

/* Returns the offset of the first byte that is NUL or not part of valid UTF-8; n if there is
 * none. */
size_t rd_utf8_check(const char *s, size_t n);

/* Copies s and replaces each maximal invalid part, and each NUL, by U+FFFD, as Python's
 * errors="replace" does. out has a capacity of 3 n bytes. Returns the length and adds the number of
 * replacements to *replaced. */
size_t rd_utf8_replace(const char *s, size_t n, char *out, int64_t *replaced);

/* Returns the number of bytes of the white space character at s, 0 if there is none. White space is
 * what Python's str.isspace says. */
size_t rd_utf8_space(const char *s, size_t n);

/* Returns the length without trailing white space. */
size_t rd_utf8_rstrip(const char *s, size_t n);

/* ---- memory shared by the ranks of a host (share.c) ---- */

typedef struct rd_block {
    char *p;      /* NULL while empty; read-only on the ranks that map another rank's memory */
    size_t bytes; /* mapped bytes, whole pages */
    int fd; /* descriptor of the memory file while it can grow; -1: private or shared already */
    bool shared; /* the memory comes from a memory file, if the system has them */
} rd_block;

/* Makes an empty block. The memory file is created when the block first grows. */
void rd_block_init(rd_block *b, bool shared);

/* Makes the block at least this large. p may move; new bytes are zero. */
rd_code rd_block_grow(rd_block *b, size_t bytes, rd_status *st);

/* Makes the block this large, up to whole pages, and gives the rest back to the system. */
rd_code rd_block_trim(rd_block *b, size_t bytes, rd_status *st);
void rd_block_free(rd_block *b);

/* Makes the n blocks of local rank 0 readable on the other ranks of the host. *have is false on a
 * rank that cannot map them (another process namespace): that rank has to fill its own. Collective
 * among the ranks of a host. */
rd_code rd_block_share(rd_comm *c, rd_block *b, int n, bool *have, rd_status *st);

/* ---- world of a communicator that may be NULL (a world of one) ---- */

static inline int rd_size_of(const rd_comm *c)
{
    return c ? rd_comm_world(c)->size : 1;
}
static inline int rd_rank_of(const rd_comm *c)
{
    return c ? rd_comm_world(c)->rank : 0;
}
static inline int rd_local_size_of(const rd_comm *c)
{
    return c ? rd_comm_world(c)->local_size : 1;
}
static inline int rd_local_rank_of(const rd_comm *c)
{
    return c ? rd_comm_world(c)->local_rank : 0;
}
static inline rd_code rd_agree(rd_comm *c, rd_status *st)
{
    return c ? rd_comm_agree(c, st) : st->code;
}

/* ---- a dataset, with its samples sorted into buckets once ---- */

struct rd_dataset {
    const rd_dataset_def *def;
    void *self;
    bool sharded, keep_all; /* as in rd_dataset_args; one rank alone never counts as sharded */
    int64_t count, kept;    /* number of samples; of those that a bucket takes */
    int n_buckets;
    const int64_t *start; /* [n_buckets + 1] where each bucket starts in members */
    /* [kept] ids of bucket 0 in file order, then those of bucket 1, ... NULL: 0 .. count - 1. */
    const uint32_t *members;
    rd_block block[2]; /* memory of start, of members */
};

/* ---- batches of about the same number of target tokens (token_order.c) ---- */

/* A sample of a sorted window. */
typedef struct rd_window_item {
    int64_t id;
    int64_t place; /* index in the list that the windows were made of */
    int64_t at;    /* position in the window before it was sorted */
    int64_t tokens, length;
} rd_window_item;

typedef struct rd_windows rd_windows;

/* Puts n samples of a dataset with target tokens into batches. list: their ids, borrowed; NULL: 0
 * .. n - 1. part: the number of the epoch's part, from 0. The caller owns *out. */
rd_code rd_windows_new(const rd_dataset *d, const uint32_t *list, int64_t n, int64_t tokens,
                       uint64_t seed, int64_t epoch, int part, rd_windows **out, rd_status *st);
void rd_windows_free(rd_windows *w); /* NULL is fine */
int64_t rd_windows_n_batches(const rd_windows *w);
/* Returns the number of samples of the largest window. */
int64_t rd_windows_longest(const rd_windows *w);
/* Returns the samples of batch k and their number. Borrowed until the next call. */
const rd_window_item *rd_windows_batch(rd_windows *w, int64_t k, int64_t *n);
/* Returns the place of the i-th sample of the permutation. */
int64_t rd_windows_place(const rd_windows *w, int64_t i);
/* Returns the number of batches of all samples, and writes their target tokens to *in_all; 0: they
 * have none. */
int64_t rd_windows_n_updates(const rd_dataset *d, int64_t tokens, int64_t *in_all);
/* Adds a batch of n samples. longest: target tokens of the longest one. */
void rd_order_tokens_add(rd_order_tokens *out, int64_t n, int64_t tokens, int64_t longest);
/* Does what rd_order_count_tokens says. */
void rd_windows_count(rd_windows *w, int64_t samples, rd_order_tokens *out);

#endif
