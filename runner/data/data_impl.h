/* data_impl.h -- what the files of runner/data share: lines of text, memory that the ranks of a host
 * share, and the inside of rd_dataset. */
#ifndef RD_DATA_IMPL_H
#define RD_DATA_IMPL_H

#include "rd/data.h"
#include "rd/hash.h"
#include <string.h>

/* ---- lines of a file (lines.c) ---- */
typedef struct rd_lines rd_lines;
typedef struct rd_lines_opts {
    bool
        cr_ends; /* a lone CR ends a line too (vocabularies); else LF alone does, and CR LF is stripped by the reader */
    bool
        replace; /* invalid UTF-8 and NUL become U+FFFD; else they are errors with file:line:byte */
    int64_t max_line_bytes; /* a longer line is an error */
} rd_lines_opts;

/* path: a file, plain or compressed (gzip, xz, bzip2, zstd: found by content), "archive!member" (tar, zip, any
 * compression) or
 * "-", standard input. The caller owns *out. */
rd_code rd_lines_new(const char *path, rd_lines_opts o, rd_lines **out, rd_status *st);
/* The same over bytes in memory, borrowed. name: for messages. */
rd_code rd_lines_new_mem(const char *name, const char *p, size_t n, rd_lines_opts o, rd_lines **out,
                         rd_status *st);
void rd_lines_free(rd_lines *l);
/* Next line without its end; *line is NULL after the last one. A last line without LF counts; a final LF starts no
 * line. The line is borrowed until the next call, valid UTF-8 without NUL, and 64 readable bytes follow it. */
rd_code rd_lines_next(rd_lines *l, const char **line, size_t *n, rd_status *st);
int64_t rd_lines_number(const rd_lines *l);   /* of the line last returned, from 1 */
int64_t rd_lines_bytes(const rd_lines *l);    /* read so far, after decompression */
bool rd_lines_bom(const rd_lines *l);         /* the file began with a byte order mark (skipped) */
int64_t rd_lines_replaced(const rd_lines *l); /* characters replaced by U+FFFD */
int64_t rd_lines_first_replaced(const rd_lines *l); /* line of the first one */
/* All that is left of path, with no rule for lines: for standard input, which one rank reads for all. The caller frees
 * *out. */
rd_code rd_lines_read_all(const char *path, char **out, size_t *n, rd_status *st);

/* ---- vocabulary (vocab.c) ---- */
rd_code rd_vocab_new_mem(const char *name, const char *p, size_t n, bool replace_invalid_utf8,
                         rd_vocab **out, rd_status *st);
bool rd_vocab_bom(const rd_vocab *v);
int64_t rd_vocab_replaced(const rd_vocab *v);
enum { RD_PIECES = 32 };
typedef struct rd_piece {
    const char *at; /* 16 bytes from here on can be read, whatever n is */
    size_t n;
} rd_piece;
void rd_vocab_ids(const rd_vocab *v, const rd_piece *piece, int n,
                  int32_t *ids); /* n <= RD_PIECES */

/* ---- UTF-8 (utf8.c) ---- */
/* Offset of the first byte that is not part of valid UTF-8, or is NUL; n when all is well. */
size_t rd_utf8_check(const char *s, size_t n);
/* Copies s with each maximal invalid part (and each NUL) replaced by U+FFFD, as Python's errors="replace" does; out has
 * room for 3 n bytes. Returns the length, adds to *replaced. */
size_t rd_utf8_replace(const char *s, size_t n, char *out, int64_t *replaced);
/* Length without trailing white space, by Python's str.isspace for valid UTF-8. */
size_t rd_utf8_rstrip(const char *s, size_t n);

/* ---- memory shared by the ranks of a host (share.c) ---- */
typedef struct rd_block {
    char *p;      /* NULL while empty; not writable on the ranks that map another's */
    size_t bytes; /* mapped */
    int fd;       /* of the memory file while it can grow; -1: private or sealed */
    bool shared;
} rd_block;

void rd_block_init(rd_block *b,
                   bool shared); /* empty; the memory file comes with the first growth */
rd_code rd_block_grow(rd_block *b, size_t bytes,
                      rd_status *st); /* at least this size; p may move; new bytes are zero */
rd_code rd_block_trim(rd_block *b, size_t bytes, rd_status *st); /* gives the rest back */
void rd_block_free(rd_block *b);
/* Collective among the ranks of a host: local rank 0's blocks become readable on the others. *have is false on a rank
 * that could not map them (other process namespaces): it has to make its own. */
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
    bool sharded, keep_all;
    int64_t count, kept;
    int n_buckets;
    const int64_t *start; /* [n_buckets + 1] in members */
    const uint32_t
        *members; /* ids of bucket 0 in file order, then of bucket 1, ...; NULL: 0 .. count - 1 */
    rd_block block[2];
};

#endif
