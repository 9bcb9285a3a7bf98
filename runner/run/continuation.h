/* continuation.h -- the text that a language model adds to a prompt, token by token, and where a
 * stop string ends it. */
#ifndef RD_RUN_CONTINUATION_H
#define RD_RUN_CONTINUATION_H

#include "rd/data.h"

/* Strings that end a text. They do not belong to it. */
typedef struct stop_strings {
    const char **at; /* owned; [n] the strings are borrowed from the config */
    int n;
    size_t longest; /* bytes */
} stop_strings;

/* Reads the value of the key stop_strings: a string, or a list. NULL and other values: none. The
 * caller releases *out. */
rd_code stop_strings_new(const json_t *value, stop_strings *out, rd_status *st);
void stop_strings_release(stop_strings *s);

/* The text of the tokens so far. A struct of zeros has none. */
typedef struct continuation {
    rd_strbuf text;
    bool stopped; /* a stop string ended the text */
    int64_t n;    /* number of tokens added */
    int32_t
        *recent; /* owned; [n_recent] the first one is context: its text is not part of `text` */
    int64_t n_recent, cap;
    size_t context; /* bytes of text of recent[0] */
    size_t whole;   /* bytes of `text` that the tokens before recent[1] gave */
} continuation;

/* Begins a text. before: last token of the prompt, since the text of a token can depend on the one
 * before; -1: there is none. Keeps the memory of an earlier text. */
void continuation_begin(continuation *c, const rd_dataset *d, int32_t before);
/* Adds a token. Returns whether the text has ended at a stop string; it then changes no more.
 * c->text.failed: out of memory. */
bool continuation_add(continuation *c, const rd_dataset *d, const stop_strings *s, int32_t id);
/* Returns the number of first bytes of the text that no further token can change: whole characters
 * that are not the beginning of a stop string. */
size_t continuation_sure(const continuation *c, const stop_strings *s);
void continuation_release(continuation *c);

#endif
