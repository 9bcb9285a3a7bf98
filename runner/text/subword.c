/* subword.c -- the schemes by name, and the calls that every scheme serves. make writes the list of
 * the schemes. */
#include "subword_impl.h"
#include "normalize.h"
#include "rd/file.h"
#include "rd/hash.h"
#include <stdlib.h>
#include <string.h>

#define RD_ENTRY(id) extern const rd_subword_def rd_subword_##id;
#include "subwords.inc"
#undef RD_ENTRY
#define RD_ENTRY(id) &rd_subword_##id,
static const rd_subword_def *const all[] = {
#include "subwords.inc"
    NULL,
};
#undef RD_ENTRY
#define RD_ENTRY(id) #id,
const char *const rd_subword_kinds[] = {
#include "subwords.inc"
    NULL,
};
#undef RD_ENTRY

struct rd_subword {
    const rd_subword_def *def;
    void *self; /* the scheme's model; NULL: it has none */
};

struct rd_subword_scratch {
    const rd_subword_def *def;
    void *w; /* the scheme's scratch; NULL: it needs none */
};

static const rd_subword_def *scheme_of(const char *kind)
{
    for (int i = 0; all[i]; i++)
        if (strcmp(all[i]->name, kind) == 0) return all[i];
    return NULL;
}

/* Returns the scheme if this program can use it, else NULL and a failure. */
static const rd_subword_def *scheme_usable(const char *kind, rd_status *st)
{
    const rd_subword_def *d = scheme_of(kind);
    if (d && !d->library) return d;
    if (d) {
        rd_fail(st, RD_EENV, "subword '%s': %s", kind, d->library);
        return NULL;
    }
    rd_strbuf names = {0};
    for (int i = 0; all[i]; i++) rd_strbuf_printf(&names, "%s%s", i ? ", " : "", all[i]->name);
    rd_fail(st, RD_EUSAGE, "no subword scheme is called '%s'; there are %s", kind,
            rd_strbuf_str(&names));
    rd_strbuf_release(&names);
    return NULL;
}

const char *rd_subword_about(const char *kind)
{
    const rd_subword_def *d = scheme_of(kind);
    return d ? d->about : NULL;
}

bool rd_subword_needs_model(const char *kind)
{
    const rd_subword_def *d = scheme_of(kind);
    return d && d->needs_model;
}

rd_code rd_subword_available(const char *kind, rd_status *st)
{
    return scheme_usable(kind, st) ? RD_OK : rd_failed_(st->code);
}

rd_code rd_subword_open(const char *kind, const char *path, rd_subword **out, rd_status *st)
{
    *out = NULL;
    const rd_subword_def *d = scheme_usable(kind, st);
    if (!d) return rd_failed_(st->code);
    if (d->needs_model && !path)
        return rd_fail(st, RD_EUSAGE, "subword '%s' needs the file of a model", kind);
    if (!d->open && path)
        return rd_fail(st, RD_EUSAGE, "subword '%s' has no model, so '%s' cannot be one", kind,
                       path);
    rd_subword *s = calloc(1, sizeof *s);
    if (!s) return rd_fail(st, RD_EENV, "out of memory for the subword model");
    s->def = d;
    if (d->open && path && d->open(path, &s->self, st) != RD_OK) {
        rd_subword_free(s);
        return rd_failed_(st->code);
    }
    *out = s;
    return RD_OK;
}

void rd_subword_free(rd_subword *s)
{
    if (!s) return;
    if (s->def->close && s->self) s->def->close(s->self);
    free(s);
}

rd_code rd_subword_limit(rd_subword *s, const rd_subword_limits *l, rd_status *st)
{
    if (!s->def->limit || !s->self)
        return rd_fail(st, RD_EUSAGE,
                       "subword '%s' has no limits of pieces and no glossaries; use bpe",
                       s->def->name);
    return s->def->limit(s->self, l, st);
}

rd_code rd_subword_train_to(const char *kind, const rd_subword_lines *lines,
                            const rd_subword_training *training, rd_strbuf *model, rd_status *st)
{
    const rd_subword_def *d = scheme_usable(kind, st);
    if (!d) return rd_failed_(st->code);
    if (!d->train) return rd_fail(st, RD_EUSAGE, "subword '%s' has no model to train", kind);
    if (d->train(lines, training, model, st) == RD_OK && model->failed)
        return rd_fail(st, RD_EENV, "out of memory for the subword model");
    return st->code;
}

rd_code rd_subword_train(const char *kind, const rd_subword_lines *lines,
                         const rd_subword_training *training, const char *path, rd_status *st)
{
    rd_strbuf model = {0};
    if (rd_subword_train_to(kind, lines, training, &model, st) == RD_OK)
        (void)rd_file_write_atomic(path, model.s, model.n, st);
    rd_strbuf_release(&model);
    return st->code;
}

rd_code rd_subword_scratch_new(const rd_subword *s, rd_subword_scratch **out, rd_status *st)
{
    *out = NULL;
    rd_subword_scratch *w = calloc(1, sizeof *w);
    if (!w) return rd_fail(st, RD_EENV, "out of memory for the subword scratch");
    w->def = s->def;
    if (s->def->scratch_new && s->def->scratch_new(s->self, &w->w, st) != RD_OK) {
        free(w);
        return rd_failed_(st->code);
    }
    *out = w;
    return RD_OK;
}

void rd_subword_scratch_free(rd_subword_scratch *w)
{
    if (!w) return;
    if (w->def->scratch_free && w->w) w->def->scratch_free(w->w);
    free(w);
}

void rd_subword_segment(const rd_subword *s, rd_subword_scratch *w, const char *line, size_t n,
                        rd_strbuf *out)
{
    s->def->segment(s->self, w->w, line, n, out);
}

void rd_subword_join(const rd_subword *s, const char *pieces, size_t n, rd_strbuf *out)
{
    s->def->join(s->self, pieces, n, out);
}

int32_t rd_subword_size(const rd_subword *s)
{
    return s->def->size && s->self ? s->def->size(s->self) : 0;
}

void rd_subword_piece(const rd_subword *s, int32_t id, rd_strbuf *out)
{
    if (id >= 0 && id < rd_subword_size(s)) s->def->piece(s->self, id, out);
}

int32_t rd_subword_find(const rd_subword *s, const char *piece, size_t n)
{
    return rd_subword_size(s) > 0 ? s->def->find(s->self, piece, n) : -1;
}

void rd_subword_encode(const rd_subword *s, rd_subword_scratch *w, const char *text, size_t n,
                       rd_subword_ids *out)
{
    rd_assert(rd_subword_size(s) > 0);
    if (rd_subword_size(s) > 0) s->def->encode(s->self, w->w, text, n, out);
}

rd_code rd_subword_write(const rd_subword *s, const char *path, rd_status *st)
{
    rd_strbuf text = {0};
    if (!s->def->write || !s->self) return RD_OK;
    s->def->write(s->self, &text);
    if (text.failed)
        rd_fail(st, RD_EENV, "out of memory for '%s'", path);
    else
        (void)rd_file_write_atomic(path, text.s, text.n, st);
    rd_strbuf_release(&text);
    return st->code;
}

uint64_t rd_subword_hash(const rd_subword *s)
{
    const uint64_t h = rd_fnv(RD_FNV_START, s->def->name, strlen(s->def->name));
    return s->def->hash && s->self ? rd_hash_numbers(h, s->def->hash(s->self), 0, 0) : h;
}

void rd_subword_libraries(rd_strbuf *out)
{
    for (int i = 0; all[i]; i++)
        if (all[i]->library_version) rd_strbuf_printf(out, "%s\n", all[i]->library_version());
    if (!rd_normalize_lacks()) rd_strbuf_printf(out, "%s\n", rd_normalize_library());
}

const char *rd_subword_kind(const rd_subword *s)
{
    return s->def->name;
}
