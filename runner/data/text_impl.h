/* text_impl.h -- one side of a parallel text in memory (text_side.c), as datasets/parallel_text.c uses it. */
#ifndef RD_TEXT_IMPL_H
#define RD_TEXT_IMPL_H

#include "data_impl.h"

/* What is known of a side besides its arrays; plain data, sent to the other ranks of the host. */
typedef struct rd_side_head {
    int64_t n_lines, n_tokens, n_unknown; /* tokens without start and end; of the whole file */
    int64_t n_bytes;                      /* after decompression */
    int64_t longest;                      /* tokens of the longest line, start and end included */
    int64_t n_replaced, first_replaced;   /* characters; line */
    uint64_t hash;                        /* of the lines: the same for every number of ranks */
    int32_t wide, bom;                    /* ids are int32_t, not uint16_t; byte order mark */
} rd_side_head;

enum { RD_SIDE_BLOCKS = 5 };

typedef struct rd_side {
    rd_side_head head;
    int rank, size; /* lines with line % size == rank are here; 0, 1: all */
    union {
        struct {
            rd_block ids;     /* start w1 .. wn end, of all lines that are here */
            rd_block off;     /* int64_t [n_here + 1] */
            rd_block len;     /* uint32_t [n_lines]: start and end included; only when size > 1 */
            rd_block raw;     /* the lines themselves, where kept */
            rd_block raw_off; /* int64_t [n_lines + 1] */
        };
        rd_block block[RD_SIDE_BLOCKS];
    };
} rd_side;

/* Reads l to its end. keep_raw: for rd_side_raw. shared: in memory that other ranks of the host can map. *side may be
 * all zero or released before; the caller owns it also after a failure. */
rd_code rd_side_read(rd_side *side, rd_lines *l, const rd_vocab *v, int rank, int size,
                     bool keep_raw, bool shared, rd_status *st);
void rd_side_release(rd_side *side);

int64_t rd_side_length(const rd_side *side, int64_t i);         /* start and end included */
int64_t rd_side_n_ids(const rd_side *side, int64_t i);          /* of a line that is here: exact */
void rd_side_ids(const rd_side *side, int64_t i, int32_t *out); /* of a line that is here */
const char *rd_side_raw(const rd_side *side, int64_t i, size_t *n); /* NULL: not kept */

#endif
