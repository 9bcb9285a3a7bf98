/* split.h -- splits text into the pieces of byte-level BPE by regular expressions. */
#ifndef RD_SPLIT_H
#define RD_SPLIT_H

#include "rd/status.h"

/* Patterns that are applied one after the other: the pieces of the first one are split by the
 * second one. What no pattern matches is a piece, too. Threads share it. */
typedef struct rd_split rd_split;
/* The buffers of one thread. */
typedef struct rd_split_work rd_split_work;

/* GPT-2's pattern, and that of cl100k (Radford and others 2019; tiktoken). */
extern const char rd_split_gpt2[], rd_split_cl100k[];

/* Makes a split without a pattern: each text is one piece. The caller owns *out. */
rd_code rd_split_new(rd_split **out, rd_status *st);
/* Adds a pattern. name: of the file, for messages. A pattern that PCRE2 does not compile is
 * RD_EDATA. */
rd_code rd_split_add(rd_split *s, const char *pattern, size_t n, const char *name, rd_status *st);
void rd_split_free(rd_split *s); /* NULL is fine */
/* Returns the number of patterns; pattern k. Borrowed. */
int rd_split_count(const rd_split *s);
const char *rd_split_pattern(const rd_split *s, int k);

/* Makes the buffers of one thread. NULL: out of memory. The caller owns the result. */
rd_split_work *rd_split_work_new(void);
void rd_split_work_free(rd_split_work *w); /* NULL is fine */

/* Calls piece for each piece of the text, in order, until it returns false. Bytes that are not
 * UTF-8 are pieces, too: each run of them is one, and the text on both sides is split as if it
 * began or ended there. Returns false if piece did, out of memory, or if a pattern needs more steps
 * than PCRE2 allows. */
bool rd_split_text(const rd_split *s, rd_split_work *w, const char *text, size_t n,
                   bool (*piece)(void *ctx, const char *at, size_t n), void *ctx);

/* Returns "PCRE2" and its version. */
const char *rd_split_library(void);

#endif
