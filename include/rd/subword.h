/* subword.h -- splits text into pieces, and joins pieces to text: words, characters, subwords. One
 * file each in runner/text/schemes.
 *
 * A segmented line is its pieces with one space between them. So a piece holds no space; each
 * scheme escapes spaces in its own way:
 *   none           the words of the line; runs of spaces count as one
 *   char           one character each; a space is U+2581, and a backslash begins the escape of what
 *                  a list of pieces cannot hold (schemes/char.c)
 *   bpe            subwords of subword-nmt; a piece that continues ends in "@@"
 *   byte_bpe       subwords of GPT-2, in printable form: a space is U+0120
 *   sentencepiece  subwords of SentencePiece; a space is U+2581
 *
 * Segmenting accepts any bytes, also invalid UTF-8 and NUL. A line has no line end, except in char,
 * byte_bpe and rd_subword_ids, where it is text like any other. char and byte_bpe restore each
 * valid line byte for byte, byte_bpe in the normal form that its tokenizer.json asks for.
 *
 * A model does not change after it is opened, so threads share it. Each thread has its own
 * scratch. */
#ifndef RD_SUBWORD_H
#define RD_SUBWORD_H
#include "rd/log.h"
#include "rd/strbuf.h"
#include <stdint.h>
RD_C_BEGIN

typedef struct rd_subword rd_subword;
typedef struct rd_subword_scratch rd_subword_scratch;

/* The names of all schemes, sorted; ends with NULL. For RD_OPT_NAME. */
extern const char *const rd_subword_kinds[];

/* Returns one sentence about the scheme; NULL: there is none of that name. */
const char *rd_subword_about(const char *kind);
/* Returns whether the scheme needs a model: bpe, byte_bpe, sentencepiece. */
bool rd_subword_needs_model(const char *kind);
/* Fails with RD_EENV if this program was built without the library of the scheme; the message names
 * the Debian package. An unknown name is RD_EUSAGE. */
rd_code rd_subword_available(const char *kind, rd_status *st);

/* Opens a model. The caller owns *out.
 *   none           path is NULL
 *   char           a list of characters (rd_subword_train), or a meta.pkl of nanoGPT; NULL: splits
 *                  and joins, has no ids
 *   bpe            the codes of subword-nmt, version 0.2
 *   byte_bpe       tokenizer.json, a .tiktoken file, merges.txt, or a folder: vocab.json is read
 *                  beside merges.txt
 *   sentencepiece  a .model file
 * A file that is wrong is RD_EDATA: the message names the file and, where it can, the line. */
rd_code rd_subword_open(const char *kind, const char *path, rd_subword **out, rd_status *st);
void rd_subword_free(rd_subword *s); /* NULL is fine */

/* Limits of bpe, as subword-nmt has them. Borrowed for the call; n 0: none. */
typedef struct rd_subword_limits {
    /* Lines "piece count". A piece that no line has is split into the two that it was merged from,
     * and so on (--vocabulary). */
    const char *pieces;
    size_t n_pieces; /* bytes */
    /* Lines with a regular expression each. Text that one matches is not split (--glossaries). */
    const char *glossaries;
    size_t n_glossaries; /* bytes */
} rd_subword_limits;
/* Limits the pieces of a model, before its first scratch is made. Other schemes than bpe:
 * RD_EUSAGE. */
rd_code rd_subword_limit(rd_subword *s, const rd_subword_limits *l, rd_status *st);

/* Lines of text to train from. */
typedef struct rd_subword_lines {
    void *ctx; /* borrowed; the first argument of next */
    /* Returns the next line, borrowed until the next call; *line is NULL after the last one. */
    rd_code (*next)(void *ctx, const char **line, size_t *n, rd_status *st);
    int64_t n_lines; /* number of lines, for progress and sampling; 0: unknown */
} rd_subword_lines;

typedef struct rd_subword_training {
    /* bpe: number of merges at most. byte_bpe, sentencepiece: size of the vocabulary. char: number
     * of characters at most, the most frequent ones; 0: all. */
    int64_t size;
    int64_t min_count;    /* least count of a merge or a character; 0: the scheme's (bpe 2) */
    int64_t max_lines;    /* sentencepiece: number of lines at most, a sample; 0: 10,000,000 */
    const char *specials; /* byte_bpe: special tokens, with one space between; NULL: none */
    rd_log *log;          /* progress; NULL: none */
} rd_subword_training;

/* Trains a model and writes it to path, whole or not at all. Schemes: char, bpe, byte_bpe,
 * sentencepiece. The result depends on the lines, their order and the settings only. */
rd_code rd_subword_train(const char *kind, const rd_subword_lines *lines,
                         const rd_subword_training *training, const char *path, rd_status *st);
/* Does the same and appends the bytes of the file to model. */
rd_code rd_subword_train_to(const char *kind, const rd_subword_lines *lines,
                            const rd_subword_training *training, rd_strbuf *model, rd_status *st);

/* Makes the scratch of one thread: buffers and a cache of pieces. The model outlives it. The caller
 * owns *out. */
rd_code rd_subword_scratch_new(const rd_subword *s, rd_subword_scratch **out, rd_status *st);
void rd_subword_scratch_free(rd_subword_scratch *w); /* NULL is fine */

/* Appends the pieces of a line to out, with one space between them; nothing for a line without
 * pieces. Out of memory sets out->failed. */
void rd_subword_segment(const rd_subword *s, rd_subword_scratch *w, const char *line, size_t n,
                        rd_strbuf *out);
/* Appends the text of the pieces, which have one space between them. A piece that is not of the
 * model, such as <unk>, is kept as it is. Bytes that are not UTF-8 become U+FFFD. Out of memory
 * sets out->failed. Threads may call it without a scratch. sentencepiece writes U+2047 for its
 * unknown piece. */
void rd_subword_join(const rd_subword *s, const char *pieces, size_t n, rd_strbuf *out);

/* Returns the number of ids of the model. 0: the scheme has none (none, bpe, char without a
 * file). */
int32_t rd_subword_size(const rd_subword *s);
/* Appends the piece of an id, as rd_subword_segment writes it. An id without a piece appends
 * nothing. */
void rd_subword_piece(const rd_subword *s, int32_t id, rd_strbuf *out);
/* Returns the id of a piece, -1: it has none. */
int32_t rd_subword_find(const rd_subword *s, const char *piece, size_t n);

/* Ids that grow. A struct of zeros is empty. */
typedef struct rd_subword_ids {
    int32_t *at; /* owned, from malloc; the caller frees it with free() */
    size_t n, cap;
    bool failed; /* out of memory: ids are missing */
} rd_subword_ids;
/* Appends the ids of a line, or of any text: line ends are text, too. The model has ids. What the
 * model cannot express has the id of its unknown piece, or -1 if there is none. */
void rd_subword_encode(const rd_subword *s, rd_subword_scratch *w, const char *text, size_t n,
                       rd_subword_ids *out);

/* Writes the model to a file that rd_subword_open reads, whole or not at all. byte_bpe writes a
 * tokenizer.json. A scheme without a model writes nothing. */
rd_code rd_subword_write(const rd_subword *s, const char *path, rd_status *st);
/* Returns a hash of the scheme and everything that its results depend on. */
uint64_t rd_subword_hash(const rd_subword *s);
/* Appends a line for each library that the schemes use, with its version. */
void rd_subword_libraries(rd_strbuf *out);
/* Returns the name of the scheme. */
const char *rd_subword_kind(const rd_subword *s);

RD_C_END
#endif
