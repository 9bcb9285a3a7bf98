/* shortlist.h -- which target words a source word may become, from a lexicon file.
 *
 * A line of the file is "source TAB target TAB value". The values are probabilities or their
 * logarithms, as fast_align and Sockeye write them. For each source word the k target words with
 * the largest values are kept. */
#ifndef RD_SHORTLIST_H
#define RD_SHORTLIST_H

#include "rd/data.h"

RD_C_BEGIN

typedef struct rd_shortlist rd_shortlist;

/* Reads a lexicon: plain, compressed, or "archive!member". Pairs with a word that a vocabulary
 * lacks are left out and counted. A repeated pair counts once, with its larger value. RD_EDATA: a
 * line without three fields, a value that is no probability and no logarithm of one, both kinds in
 * one file, no pair at all; the message names file and line. The vocabularies are borrowed for the
 * call. The caller owns *out. */
rd_code rd_shortlist_new(const char *path, const rd_vocab *source, const rd_vocab *target,
                         int64_t k, rd_shortlist **out, rd_status *st);
/* Does the same for bytes in memory. */
rd_code rd_shortlist_new_mem(const char *name, const char *p, size_t n, const rd_vocab *source,
                             const rd_vocab *target, int64_t k, rd_shortlist **out, rd_status *st);
void rd_shortlist_free(rd_shortlist *s); /* NULL is fine */

/* Returns the number of pairs kept, of lines left out for an unknown word, and a hash of the
 * pairs. */
int64_t rd_shortlist_pairs(const rd_shortlist *s);
int64_t rd_shortlist_unknown(const rd_shortlist *s);
uint64_t rd_shortlist_hash(const rd_shortlist *s);

/* Lists the target ids of n sentences: those of all their source words and the special tokens,
 * ascending, each once. So the list of a sentence does not depend on its batch. src[off[i] ..
 * off[i + 1]): source ids of sentence i. (*id)[(*at)[i] .. (*at)[i + 1]): its target ids, memory of
 * the arena. */
rd_code rd_shortlist_sets(const rd_shortlist *s, int64_t n, const int32_t *src, const int64_t *off,
                          rd_arena *a, int64_t **at, int32_t **id, rd_status *st);

RD_C_END
#endif
