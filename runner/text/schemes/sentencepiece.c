/* sentencepiece.c -- SentencePiece, by its library.
 *
 * Training makes a unigram model with the library's own settings, and with byte_fallback: what is
 * no piece becomes the pieces of its bytes. The library keeps the whole text in memory, so a larger
 * text is thinned to 10,000,000 lines. It leaves out lines of more than 4192 bytes; they are
 * counted here. */
#include "../subword_impl.h"
#include "rd/file.h"
#include "rd/hash.h"
#ifdef RD_SENTENCEPIECE
#include "sentencepiece_lib.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_LINE = 4192, USUAL_LINES = 10000000 };

typedef struct sp_model {
    rd_spm *library;
    char *bytes; /* the file */
    size_t n;
} sp_model;

static void sp_close(void *self)
{
    sp_model *m = self;
    if (m->library) rd_spm_close(m->library);
    free(m->bytes);
    free(m);
}

static rd_code sp_open(const char *path, void **self, rd_status *st)
{
    char why[256] = "";
    sp_model *m = calloc(1, sizeof *m);
    if (!m) return rd_fail(st, RD_EENV, "out of memory for '%s'", path);
    RD_TRY(rd_file_read(path, RD_EDATA, &m->bytes, &m->n, st));
    m->library = rd_spm_open(m->bytes, m->n, why, sizeof why);
    if (!m->library)
        RD_TRY(rd_fail(st, RD_EDATA, "'%s' is no model of SentencePiece: %s", path, why));
    *self = m;
    m = NULL;
done:
    if (m) sp_close(m);
    return st->code;
}

/* A piece of a model that does not escape white space can hold a space. */
static void put_piece(void *ctx, const char *piece, size_t n)
{
    rd_strbuf *out = ctx;
    for (size_t i = 0; i < n; i++)
        if (piece[i] == ' ')
            rd_strbuf_puts(out, "\xE2\x96\x81");
        else
            rd_strbuf_add(out, piece + i, 1);
    if (n > 0) rd_strbuf_add(out, " ", 1);
}

static void sp_segment(const void *self, void *w, const char *line, size_t n, rd_strbuf *out)
{
    const sp_model *m = self;
    const size_t before = out->n;
    (void)w;
    if (!rd_spm_segment(m->library, line, n, put_piece, out)) out->failed = true;
    if (out->n > before) out->s[--out->n] = '\0'; /* the space behind the last piece */
}

static void put_joined(void *ctx, const char *text, size_t n)
{
    rd_subword_put_text(ctx, text, n);
}

static void sp_join(const void *self, const char *pieces, size_t n, rd_strbuf *out)
{
    const sp_model *m = self;
    if (!rd_spm_join(m->library, pieces, n, put_joined, out)) out->failed = true;
}

static int32_t sp_size(const void *self)
{
    return rd_spm_size(((const sp_model *)self)->library);
}

static void sp_piece(const void *self, int32_t id, rd_strbuf *out)
{
    size_t n;
    const char *s = rd_spm_piece(((const sp_model *)self)->library, id, &n);
    put_piece(out, s, n);
    if (n > 0 && out->n > 0) out->s[--out->n] = '\0';
}

static int32_t sp_find(const void *self, const char *piece, size_t n)
{
    return rd_spm_find(((const sp_model *)self)->library, piece, n);
}

static void put_id(void *ctx, int id)
{
    rd_subword_put(ctx, id);
}

static void sp_encode(const void *self, void *w, const char *text, size_t n, rd_subword_ids *out)
{
    (void)w;
    if (!rd_spm_encode(((const sp_model *)self)->library, text, n, put_id, out)) out->failed = true;
}

static void sp_write(const void *self, rd_strbuf *out)
{
    const sp_model *m = self;
    rd_strbuf_add(out, m->bytes, m->n);
}

static uint64_t sp_hash(const void *self)
{
    const sp_model *m = self;
    return rd_hash(rd_hash(0, RD_SENTENCEPIECE, sizeof RD_SENTENCEPIECE), m->bytes, m->n);
}

/* ---- training ---- */

typedef struct sp_training {
    const rd_subword_lines *lines;
    int64_t most; /* number of lines that shall be used */
    int64_t number, used, n_long;
    rd_strbuf *model;
    rd_status *st;
} sp_training;

/* Returns whether the line with this number belongs to the sample. Of a text whose number of lines
 * is not known these are the first ones. */
static bool is_sampled(const sp_training *t, int64_t number)
{
    if (t->lines->n_lines <= 0) return number < t->most;
    if (t->lines->n_lines <= t->most) return true;
    const double share = (double)t->most / (double)t->lines->n_lines;
    return (double)(rd_splitmix64((uint64_t)number) >> 11) * 0x1p-53 < share;
}

static const char *next_sampled(void *ctx, size_t *n)
{
    sp_training *t = ctx;
    for (;;) {
        const char *line;
        if (t->lines->next(t->lines->ctx, &line, n, t->st) != RD_OK || !line) return NULL;
        if (!is_sampled(t, t->number++)) continue;
        t->n_long += *n > LONGEST_LINE;
        t->used++;
        if (*n <= LONGEST_LINE) return line;
    }
}

static void put_model(void *ctx, const char *bytes, size_t n)
{
    sp_training *t = ctx;
    rd_strbuf_add(t->model, bytes, n);
}

static rd_code sp_train(const rd_subword_lines *lines, const rd_subword_training *how,
                        rd_strbuf *model, rd_status *st)
{
    char why[512] = "";
    sp_training t = {.lines = lines,
                     .most = how->max_lines > 0 ? how->max_lines : USUAL_LINES,
                     .model = model,
                     .st = st};
    if (how->size < 1)
        return rd_fail(st, RD_EUSAGE, "%" PRId64 " is no number of pieces from 1", how->size);
    const bool good = rd_spm_train(how->size, next_sampled, put_model, &t, why, sizeof why);
    if (st->code != RD_OK) return st->code; /* the text could not be read */
    if (!good)
        return rd_fail(st, RD_EDATA,
                       "SentencePiece cannot train %" PRId64 " pieces from %" PRId64 " line%s: %s",
                       how->size, t.used, RD_S(t.used), why);
    if (how->log) {
        rd_info(how->log,
                "sentencepiece: %" PRId64 " pieces from %" PRId64 " of %" PRId64 " line%s",
                how->size, t.used - t.n_long, t.number, RD_S(t.number));
        if (t.n_long > 0)
            rd_warn(how->log, "sentencepiece: %" PRId64 " line%s of more than %d bytes left out",
                    t.n_long, RD_S(t.n_long), LONGEST_LINE);
    }
    return RD_OK;
}

static const char *sp_library(void)
{
    return "SentencePiece " RD_SENTENCEPIECE;
}
#endif

RD_SUBWORD(sentencepiece) = {
    .name = "sentencepiece",
    .about = "subwords of SentencePiece, if its library is installed",
    .needs_model = true,
#ifdef RD_SENTENCEPIECE
    .open = sp_open,
    .close = sp_close,
    .train = sp_train,
    .segment = sp_segment,
    .join = sp_join,
    .size = sp_size,
    .piece = sp_piece,
    .find = sp_find,
    .encode = sp_encode,
    .write = sp_write,
    .hash = sp_hash,
    .library_version = sp_library,
#else
    .library = "this program was built without SentencePiece; on Debian: apt-get install "
               "libsentencepiece-dev, and build it again",
#endif
};
