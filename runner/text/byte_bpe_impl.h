/* byte_bpe_impl.h -- the inside of a byte-level BPE model: for its readers, its writer, its use. */
#ifndef RD_BYTE_BPE_IMPL_H
#define RD_BYTE_BPE_IMPL_H

#include "merge.h"
#include "normalize.h"
#include "rd/strbuf.h"
#include "splitter.h"
#include "strings.h"

/* Vocabularies have bytes in printable form: a byte that is a printable character of Latin-1 is
 * itself, the other 68 are U+0100 and later, in order. So a space is U+0120. */

/* Returns the byte of an id of GPT-2's 256 first ones: the bytes that are themselves, then the
 * others. */
int byte_bpe_byte(int32_t order);
/* Writes the character of a byte. Returns its length. */
size_t byte_bpe_show(int byte, char out[2]);
/* Returns the byte of the character at s, -1: it is that of none. *k: the bytes used. */
int byte_bpe_unshow(const char *s, size_t n, size_t *k);
/* Appends bytes in printable form, or the bytes of a printable form. What is no such character
 * stays. */
void byte_bpe_put_shown(rd_strbuf *out, const char *bytes, size_t n);
void byte_bpe_put_bytes(rd_strbuf *out, const char *shown, size_t n);

typedef struct byte_bpe_pair {
    int32_t left, right, to; /* ids */
} byte_bpe_pair;

/* A struct of zeros is an empty model. */
typedef struct byte_bpe {
    rd_strings tokens;   /* the bytes of tokens that text can become */
    int32_t *token_id;   /* [tokens.n] */
    rd_strings specials; /* the text of tokens that text never becomes */
    int32_t *special_id; /* [specials.n] */
    bool in_text[256];   /* a special that text does become begins with this byte */
    int32_t *matched;    /* [n_matched] those specials, by their place; the longest first */
    int32_t n_matched;
    bool *late; /* [n_matched] is found in the normalised text, not in the text itself */
    rd_normal_form normal[RD_NORMAL_FORMS]; /* [n_normal] what happens to the text first */
    int n_normal;
    int32_t cap_tokens, cap_specials;
    byte_bpe_pair *pair; /* [n_pairs] merges by rank */
    int32_t n_pairs, cap_pairs;
    bool by_id;         /* the id of the result is the rank of a merge (tiktoken) */
    bool ignore_merges; /* a piece that is a token is that token at once */
    bool prefix_space;  /* a text that does not begin with a space gets one */
    rd_splitter *split; /* owned */
    /* Made by byte_bpe_finish: */
    rd_merges merges;
    int32_t byte_id[256];
    int32_t n_ids;       /* largest id + 1 */
    rd_strbuf shown;     /* printable forms of all ids, each with a space behind it */
    size_t *shown_at;    /* [n_ids + 1] */
    int32_t *special_of; /* [n_ids] place of the special that has this id, -1 */
} byte_bpe;

enum { BYTE_BPE_MOST_IDS = 1 << 24 };

/* Adds a token or a special token. An id that is too large, or a text that is there with another
 * id, is RD_EDATA. name: of the file. */
rd_code byte_bpe_token(byte_bpe *m, const char *bytes, size_t n, int64_t id, const char *name,
                       rd_status *st);
rd_code byte_bpe_special(byte_bpe *m, const char *text, size_t n, int64_t id, const char *name,
                         rd_status *st);
/* Adds a special that is found in text, too; late: in the normalised text. */
rd_code byte_bpe_added(byte_bpe *m, const char *text, size_t n, int64_t id, bool late,
                       const char *name, rd_status *st);
bool byte_bpe_is_matched(const byte_bpe *m, int32_t special);
/* Is it found in the normalised text? */
bool byte_bpe_is_late(const byte_bpe *m, int32_t special);
/* Appends the text as the model's normal forms leave it. */
void byte_bpe_normalize(const byte_bpe *m, const char *text, size_t n, rd_strbuf *out);
/* Adds a token of a vocabulary, given in printable form. What is no such form, or is a special
 * already, is a special. A special that is found in text, too, can also be the result of merges. */
rd_code byte_bpe_entry(byte_bpe *m, const char *shown, size_t n, int64_t id, const char *name,
                       rd_status *st);
/* Adds the merge of two tokens, whose result is a token, too. Its rank is the number of merges
 * before. */
rd_code byte_bpe_merge(byte_bpe *m, const char *left, size_t n, const char *right, size_t n_right,
                       const char *where, rd_status *st);
/* Makes the tables. Fails if a byte has no token, or two tokens have one id. */
rd_code byte_bpe_finish(byte_bpe *m, const char *name, rd_status *st);
void byte_bpe_release(byte_bpe *m);

/* Reads a file or folder (byte_bpe_files.c, tokenizer_json.c). The caller finishes the model. */
rd_code byte_bpe_read(const char *path, byte_bpe *m, rd_status *st);
/* The same for the text of a tokenizer.json. */
rd_code byte_bpe_read_json(const char *text, size_t n, const char *name, byte_bpe *m,
                           rd_status *st);
/* Appends a tokenizer.json. */
void byte_bpe_write_json(const byte_bpe *m, rd_strbuf *out);

#endif
