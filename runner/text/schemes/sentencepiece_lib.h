/* sentencepiece_lib.h -- the calls of the C++ library SentencePiece that sentencepiece.c needs, as
 * C functions. Built only if the library is installed. */
#ifndef RD_SENTENCEPIECE_LIB_H
#define RD_SENTENCEPIECE_LIB_H

#include "rd/status.h"

RD_C_BEGIN

typedef struct rd_spm rd_spm;
/* Gets text. ctx: that of the call. */
typedef void rd_spm_text(void *ctx, const char *text, size_t n);

/* Reads a model. NULL: the bytes are none; why gets the library's reason. The caller owns the
 * result. */
rd_spm *rd_spm_open(const char *bytes, size_t n, char *why, size_t cap);
void rd_spm_close(rd_spm *m);
int rd_spm_size(const rd_spm *m);
/* Returns the piece of an id, 0 to size - 1, and its length. Borrowed. */
const char *rd_spm_piece(const rd_spm *m, int id, size_t *n);
/* Returns the id of a piece, -1: it has none. */
int rd_spm_find(const rd_spm *m, const char *piece, size_t n);
/* Calls put with each piece, or with each id, of a text. false: out of memory. */
bool rd_spm_segment(const rd_spm *m, const char *text, size_t n, rd_spm_text *put, void *ctx);
bool rd_spm_encode(const rd_spm *m, const char *text, size_t n, void (*put)(void *ctx, int id),
                   void *ctx);
/* Calls put with the text of pieces that have one space between them. false: out of memory. */
bool rd_spm_join(const rd_spm *m, const char *pieces, size_t n, rd_spm_text *put, void *ctx);

/* Trains from the lines that next gives; NULL ends them. Calls put with the bytes of the model.
 * false: why gets the library's reason. */
bool rd_spm_train(long long size, const char *(*next)(void *ctx, size_t *n), rd_spm_text *put,
                  void *ctx, char *why, size_t cap);

RD_C_END
#endif
