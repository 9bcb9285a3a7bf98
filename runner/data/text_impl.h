/* text_impl.h -- one side of a parallel text in memory (text_side.c), for
 * datasets/parallel_text.c. */
#ifndef RD_TEXT_IMPL_H
#define RD_TEXT_IMPL_H

#include "data_impl.h"

/* What a side has besides its arrays. Plain data: local rank 0 sends it to the other ranks of the
 * host. */
typedef struct rd_side_head {
    int64_t n_lines;        /* number of lines of the whole file */
    int64_t n_tokens;       /* number of tokens of the whole file, without start and end */
    int64_t n_unknown;      /* number of unknown tokens, of the lines that are here */
    int64_t n_bytes;        /* number of bytes, after decompression */
    int64_t longest;        /* number of tokens of the longest line, with start and end */
    int64_t n_replaced;     /* number of characters replaced by U+FFFD */
    int64_t first_replaced; /* number of the first line with one */
    int64_t n_here;         /* number of tokens of the lines that are here */
    int64_t n_blank;        /* number of lines without a word, white space apart */
    int64_t first_blank;    /* number of the first of them, from 1 */
    int64_t unknown_line;   /* number of the line of `unknown`, from 1 */
    char unknown[64];       /* the first unknown word, cut to fit; "" without one */
    uint64_t hash;          /* of all lines: the same for every number of ranks */
    int32_t wide;           /* ids are int32_t, else uint16_t */
    int32_t bom;            /* the file began with a byte order mark */
} rd_side_head;

enum { RD_SIDE_BLOCKS = 6 };

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
        };
        rd_block block[RD_SIDE_BLOCKS];
    };
} rd_side;

/* Reads all lines of l into *side, which must be all zero or released. keep_raw: keep the lines for
 * rd_side_raw. shared: use memory that other ranks of the host can map. The caller owns *side, also
 * after a failure. */
rd_code rd_side_read(rd_side *side, rd_lines *l, const rd_vocab *v, int rank, int size,
                     bool keep_raw, bool shared, rd_status *st);
void rd_side_release(rd_side *side);

/* Returns the number of tokens of line i, with start and end. */
int64_t rd_side_length(const rd_side *side, int64_t i);

/* Does the same for a line that is here, from its ids. */
int64_t rd_side_n_ids(const rd_side *side, int64_t i);

/* Returns whether line i has no word. */
bool rd_side_blank(const rd_side *side, int64_t i);

/* Copies the ids of a line that is here. */
void rd_side_ids(const rd_side *side, int64_t i, int32_t *out);

/* Returns line i as the file has it, and its length. Borrowed. NULL if lines are not kept. */
const char *rd_side_raw(const rd_side *side, int64_t i, size_t *n);

#endif
