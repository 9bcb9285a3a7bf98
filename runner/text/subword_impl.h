/* subword_impl.h -- what the files of runner/text share: a scheme as a table of functions. */
#ifndef RD_SUBWORD_IMPL_H
#define RD_SUBWORD_IMPL_H

#include "rd/subword.h"

/* A scheme. `self` is its model, `w` its scratch of one thread. A NULL function: the scheme has no
 * such thing. */
typedef struct rd_subword_def {
    const char *name, *about;
    bool needs_model;    /* a path must be given */
    const char *library; /* why this program cannot use it; NULL: it can */

    /* Opens the file and stores the model in *self. path is NULL only if needs_model is false. */
    rd_code (*open)(const char *path, void **self, rd_status *st);
    void (*close)(void *self);
    /* Limits the pieces of a model that is not in use yet. */
    rd_code (*limit)(void *self, const rd_subword_limits *l, rd_status *st);
    /* Appends the bytes of the model's file; the caller checks model->failed. */
    rd_code (*train)(const rd_subword_lines *lines, const rd_subword_training *t, rd_strbuf *model,
                     rd_status *st);
    rd_code (*scratch_new)(const void *self, void **w, rd_status *st);
    void (*scratch_free)(void *w);
    void (*segment)(const void *self, void *w, const char *line, size_t n, rd_strbuf *out);
    void (*join)(const void *self, const char *pieces, size_t n, rd_strbuf *out);
    int32_t (*size)(const void *self);
    void (*piece)(const void *self, int32_t id, rd_strbuf *out);
    int32_t (*find)(const void *self, const char *piece, size_t n);
    void (*encode)(const void *self, void *w, const char *text, size_t n, rd_subword_ids *out);
    /* Appends the bytes of a file that open reads. */
    void (*write)(const void *self, rd_strbuf *out);
    uint64_t (*hash)(const void *self);
    /* Returns name and version of its library. */
    const char *(*library_version)(void);
} rd_subword_def;

/* Begins the definition of a scheme: RD_SUBWORD(id) = {...}; in a file of runner/text/schemes. make
 * finds it and writes the registry. */
#define RD_SUBWORD(id) const rd_subword_def rd_subword_##id

/* Appends one id, or n of them. */
void rd_subword_put(rd_subword_ids *out, int32_t id);
void rd_subword_put_all(rd_subword_ids *out, const int32_t *id, size_t n);

/* Appends text; each maximal part that is not UTF-8 becomes U+FFFD. */
void rd_subword_put_text(rd_strbuf *out, const char *s, size_t n);

#endif
