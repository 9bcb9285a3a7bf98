/* splitter.h -- splits text into the pieces of byte-level BPE by regular expressions. */
#ifndef RD_SPLITTER_H
#define RD_SPLITTER_H

#include "rd/status.h"

/* Patterns that are applied one after the other: the pieces of the first one are split by the
 * second one. What no pattern matches is a piece, too. Threads share it. */
typedef struct rd_splitter rd_splitter;
/* The buffers of one thread. */
typedef struct rd_splitter_work rd_splitter_work;

/* GPT-2's pattern, and that of cl100k (Radford and others 2019; tiktoken). */
extern const char rd_splitter_gpt2[], rd_splitter_cl100k[];

/* Makes a split without a pattern: each text is one piece. The caller owns *out. */
rd_code rd_splitter_new(rd_splitter **out, rd_status *st);
/* Adds a pattern. name: of the file, for messages. A pattern that PCRE2 does not compile is
 * RD_EDATA. */
rd_code rd_splitter_add(rd_splitter *s, const char *pattern, size_t n, const char *name,
                        rd_status *st);
void rd_splitter_free(rd_splitter *s); /* NULL is fine */
/* Returns the number of patterns; pattern k. Borrowed. */
int rd_splitter_count(const rd_splitter *s);
const char *rd_splitter_pattern(const rd_splitter *s, int k);

/* Makes the buffers of one thread. NULL: out of memory. The caller owns the result. */
rd_splitter_work *rd_splitter_work_new(void);
void rd_splitter_work_free(rd_splitter_work *w); /* NULL is fine */

/* Calls piece for each piece of the text, in order, until it returns false. Bytes that are not
 * UTF-8 are pieces, too: each run of them is one, and the text on both sides is split as if it
 * began or ended there. Returns false if piece did, out of memory, or if a pattern needs more steps
 * than PCRE2 allows. */
bool rd_splitter_text(const rd_splitter *s, rd_splitter_work *w, const char *text, size_t n,
                      bool (*piece)(void *ctx, const char *at, size_t n), void *ctx);

/* Returns "PCRE2" and its version. */
const char *rd_splitter_library(void);

#endif
