/* text_store.h -- the folder LOGDIR/text and its files as bytes: for text_kit.c and
 * text_given.c. */
#ifndef RD_TEXT_STORE_H
#define RD_TEXT_STORE_H

#include "text_impl.h"
#include <jansson.h>

/* The parts; RD_STORE_PIECES is that of the source, and that of the target follows. */
enum {
    RD_STORE_MODEL,
    RD_STORE_GLOSSARIES,
    RD_STORE_SOURCE,
    RD_STORE_TARGET,
    RD_STORE_PIECES,
    RD_STORE_PARTS = RD_STORE_PIECES + 2
};
enum { RD_STORE_PATH = 4300 };

/* The files as bytes, on their way from rank 0 to the others. All zero: empty. */
typedef struct rd_store_bytes {
    rd_strbuf part[RD_STORE_PARTS]; /* owned */
    uint64_t text_hash[2];
    bool kept;       /* they come from the folder */
    bool tied;       /* weights depend on them */
    bool shared;     /* both vocabularies are one file */
    bool given;      /* the vocabularies were given, not made of a text */
    bool limited;    /* given: a side may use the words of its vocabulary alone */
    bool replace;    /* invalid UTF-8 of the vocabularies is replaced by U+FFFD */
    char scheme[32]; /* of the subword model */
} rd_store_bytes;
void rd_store_bytes_release(rd_store_bytes *b);

/* Returns the file that a part has; shared: there is one vocabulary. */
const char *rd_store_name(bool shared, int part);
/* Writes LOGDIR/text/FILE; file "": the folder. */
void rd_store_path(const char *logdir, const char *file, char out[RD_STORE_PATH]);
/* Fails, since memory is missing. */
rd_code rd_store_no_memory(rd_status *st);
/* Reads text.json of a log folder. *out is NULL if there is none. The caller owns it. */
rd_code rd_store_read(const char *logdir, json_t **out, rd_status *st);
/* Were the vocabularies given, and not made of a text? */
bool rd_store_given(const json_t *o);
/* Reads the files that text.json names, and compares their hashes. */
rd_code rd_store_load(const char *logdir, const json_t *o, rd_store_bytes *b, rd_status *st);
/* Makes LOGDIR/text, and removes what is there. */
rd_code rd_store_begin(const char *logdir, rd_status *st);
/* Writes the files, and text.json as the last one. inherited: they come from another log folder. */
rd_code rd_store_write(const char *logdir, const rd_store_bytes *b, json_t *rules_stolen,
                       bool inherited, rd_status *st);

/* Appends the bytes of a model file, in the form that rd_subword_write gives it. */
rd_code rd_store_model(const char *scheme, const char *path, rd_strbuf *out, rd_status *st);
/* Appends a whole file. */
rd_code rd_store_file(const char *path, rd_strbuf *out, rd_status *st);
/* Opens the model of a side; -1: that of both, without a list of pieces. NULL: given vocabularies
 * without a scheme, whose words single blanks separate. */
rd_code rd_store_subword(const rd_store_bytes *b, int side, rd_subword **out, rd_status *st);
/* Opens the model of a side with its pieces: those of the folder or, with b->limited, the words of
 * its vocabulary. */
rd_code rd_store_limited(rd_store_bytes *b, int side, const rd_vocab *v, rd_subword **out,
                         rd_status *st);
/* Gives the first n_parts parts of rank 0, and all else, to all ranks. Collective. */
rd_code rd_store_spread(rd_comm *comm, int n_parts, rd_store_bytes *b, rd_status *st);

#endif
