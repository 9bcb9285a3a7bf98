/* text_store.c -- the vocabularies and the subword model of a text in the log folder.
 *
 * LOGDIR/text has
 *   text.json         rules, hashes of the text, hash of each file; written last
 *   vocab.txt         the vocabulary of both sides, or
 *   vocab.source.txt  and vocab.target.txt
 *   subword.model     the model, if the scheme has one
 *   subword.source.pieces, subword.target.pieces, subword.glossaries: its limits, if it has some
 * Only rank 0 reads and writes them, so only its host needs the folder. */
#include "text_store.h"
#include "rd/file.h"
#include "rd/input.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STORE_FORMAT = 1 };

static const char *const part_file[RD_STORE_PARTS] = {
    "subword.model",    "subword.glossaries",    "vocab.source.txt",
    "vocab.target.txt", "subword.source.pieces", "subword.target.pieces"};
static const char shared_file[] = "vocab.txt";
static const char *const side_word[2] = {"source", "target"};

void rd_store_bytes_release(rd_store_bytes *b)
{
    for (int i = 0; i < RD_STORE_PARTS; i++) rd_strbuf_release(&b->part[i]);
}

rd_code rd_store_no_memory(rd_status *st)
{
    return rd_fail(st, RD_EENV, "out of memory for a vocabulary or a subword model");
}

void rd_store_path(const char *dir, const char *file, char out[RD_STORE_PATH])
{
    (void)snprintf(out, RD_STORE_PATH, "%.4000s/text%s%s", dir, file[0] ? "/" : "", file);
}

static void store_hex(uint64_t v, char out[20])
{
    (void)snprintf(out, 20, "%016" PRIx64, v);
}

static uint64_t store_hash(const rd_strbuf *b)
{
    return rd_hash(0, rd_strbuf_str(b), b->n);
}

/* ---- text.json ---- */

const char *rd_store_name(bool shared, int part)
{
    return shared && (part == RD_STORE_SOURCE || part == RD_STORE_TARGET) ? shared_file
                                                                          : part_file[part];
}

static const char *part_name(const json_t *rules, int part)
{
    return rd_store_name(json_is_true(json_object_get(rules, "shared_vocab")), part);
}

bool rd_store_given(const json_t *o)
{
    return json_is_true(json_object_get(json_object_get(o, "rules"), "given"));
}

static rd_code store_damaged(const char *path, const char *what, rd_status *st)
{
    return rd_fail(st, RD_EDATA,
                   "'%s' %s; restore it, or remove this folder, and training makes the files anew",
                   path, what);
}

rd_code rd_store_read(const char *dir, json_t **out, rd_status *st)
{
    char path[RD_STORE_PATH], *text = NULL;
    size_t n = 0;
    bool there = false;
    *out = NULL;
    rd_store_path(dir, rd_text_record, path);
    RD_TRY(rd_path_there(path, &there, st));
    if (!there) return RD_OK;
    RD_TRY(rd_file_read_limited(path, RD_EDATA, (size_t)1 << 20, "a text.json", &text, &n, st));
    json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    if (json_integer_value(json_object_get(o, "format")) > STORE_FORMAT)
        (void)rd_fail(st, RD_EDATA, "'%s' was written by a later version of this program", path);
    else if (!json_is_object(json_object_get(o, "rules")) ||
             !json_is_string(json_object_get(json_object_get(o, "rules"), "subword")) ||
             !json_is_object(json_object_get(o, "files")) ||
             !json_is_object(json_object_get(o, "text")))
        (void)store_damaged(path, "is damaged", st);
    if (st->code != RD_OK) {
        json_decref(o);
        o = NULL;
    }
    *out = o;
done:
    free(text);
    return st->code;
}

rd_code rd_store_load(const char *dir, const json_t *o, rd_store_bytes *b, rd_status *st)
{
    const json_t *rules = json_object_get(o, "rules"), *files = json_object_get(o, "files");
    (void)snprintf(b->scheme, sizeof b->scheme, "%s",
                   json_string_value(json_object_get(rules, "subword")));
    for (int s = 0; s < 2; s++) {
        const char *hex =
            json_string_value(json_object_get(json_object_get(o, "text"), side_word[s]));
        b->text_hash[s] = hex ? strtoull(hex, NULL, 16) : 0;
    }
    for (int i = 0; i < RD_STORE_PARTS; i++) {
        char path[RD_STORE_PATH], now[20], *p = NULL;
        size_t n = 0;
        const char *file = part_name(rules, i),
                   *was = json_string_value(json_object_get(files, file));
        if (!was && i != RD_STORE_SOURCE && i != RD_STORE_TARGET)
            continue; /* the scheme has none */
        rd_store_path(dir, file, path);
        RD_TRY(rd_file_read(path, RD_EDATA, &p, &n, st));
        rd_strbuf_add(&b->part[i], p, n);
        free(p);
        if (b->part[i].failed) return rd_store_no_memory(st);
        store_hex(store_hash(&b->part[i]), now);
        if (!was || strcmp(was, now) != 0)
            return store_damaged(path, "is not the file that was kept: its hash differs", st);
    }
    b->shared = json_is_true(json_object_get(rules, "shared_vocab"));
    b->given = rd_store_given(o);
    b->replace = json_is_true(json_object_get(rules, "replace_utf8"));
    b->limited = json_is_true(json_object_get(rules, "limited"));
    b->tied = json_is_true(json_object_get(o, "inherited"));
    b->kept = true;
done:
    return st->code;
}

static rd_code store_put(const char *dir, const char *file, const rd_strbuf *b, json_t *hashes,
                         rd_status *st)
{
    char path[RD_STORE_PATH], hex[20];
    rd_store_path(dir, file, path);
    store_hex(store_hash(b), hex);
    (void)json_object_set_new(hashes, file, json_string(hex));
    return rd_file_write_atomic(path, rd_strbuf_str(b), b->n, st);
}

rd_code rd_store_begin(const char *dir, rd_status *st)
{
    /* First text.json, which would no longer tell the truth. */
    const char *const old[] = {rd_text_record,
                               rd_tokenizer_record,
                               part_file[RD_STORE_MODEL],
                               part_file[RD_STORE_SOURCE],
                               part_file[RD_STORE_TARGET],
                               part_file[RD_STORE_PIECES],
                               part_file[RD_STORE_PIECES + 1],
                               part_file[RD_STORE_GLOSSARIES],
                               shared_file};
    char path[RD_STORE_PATH];
    rd_store_path(dir, "", path);
    RD_TRY(rd_mkdirs(path, st));
    for (size_t i = 0; i < sizeof old / sizeof *old; i++) {
        rd_store_path(dir, old[i], path);
        if (unlink(path) != 0 && errno != ENOENT)
            return rd_fail(st, RD_EENV, "cannot remove '%s': %s", path, strerror(errno));
    }
done:
    return st->code;
}

rd_code rd_store_write(const char *dir, const rd_store_bytes *b, json_t *rules_stolen,
                       bool inherited, rd_status *st)
{
    char path[RD_STORE_PATH], hex[2][20], *text = NULL;
    json_t *hashes = json_object();
    for (int s = 0; s < 2; s++) store_hex(b->text_hash[s], hex[s]);
    for (int i = 0; i < RD_STORE_PARTS && st->code == RD_OK; i++) {
        if (i != RD_STORE_SOURCE && i != RD_STORE_TARGET && b->part[i].n == 0) continue;
        if (i == RD_STORE_TARGET && part_name(rules_stolen, i) == shared_file) continue;
        (void)store_put(dir, part_name(rules_stolen, i), &b->part[i], hashes, st);
    }
    json_t *o = json_pack("{s:i, s:o, s:{s:s, s:s}, s:o, s:b}", "format", STORE_FORMAT, "rules",
                          rules_stolen, "text", side_word[0], hex[0], side_word[1], hex[1], "files",
                          hashes, "inherited", (int)inherited);
    text = o ? json_dumps(o, JSON_INDENT(2)) : NULL;
    if (st->code == RD_OK && !text) (void)rd_store_no_memory(st);
    rd_store_path(dir, rd_text_record, path);
    if (st->code == RD_OK) (void)rd_file_write_atomic(path, text, strlen(text), st);
    free(text);
    json_decref(o);
    return st->code;
}

/* ---- the subword model ---- */

rd_code rd_store_file(const char *path, rd_strbuf *out, rd_status *st)
{
    char *p = NULL;
    size_t n = 0;
    RD_TRY(rd_file_read(path, RD_EDATA, &p, &n, st));
    rd_strbuf_add(out, p, n);
    if (out->failed) (void)rd_store_no_memory(st);
done:
    free(p);
    return st->code;
}

/* Makes an empty file for a model on its way. */
static rd_code passing_file(char path[RD_STORE_PATH], rd_status *st)
{
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(path, RD_STORE_PATH, "%.3900s/run_dist-subword.XXXXXX",
                   tmp && tmp[0] ? tmp : "/tmp");
    const int fd = mkstemp(path);
    if (fd < 0) return rd_fail(st, RD_EENV, "cannot make a file '%s': %s", path, strerror(errno));
    (void)close(fd);
    return RD_OK;
}

rd_code rd_store_model(const char *scheme, const char *path, rd_strbuf *out, rd_status *st)
{
    rd_subword *s = NULL;
    char to[RD_STORE_PATH] = "";
    RD_TRY(rd_subword_open(scheme, path, &s, st));
    RD_TRY(passing_file(to, st));
    RD_TRY(rd_subword_write(s, to, st));
    RD_TRY(rd_store_file(to, out, st));
done:
    if (to[0]) (void)unlink(to);
    rd_subword_free(s);
    return st->code;
}

/* Opens a model from its bytes, without limits. */
static rd_code open_plain(const char *scheme, const rd_strbuf *b, rd_subword **out, rd_status *st)
{
    char path[64];
    if (b->n == 0) return rd_subword_open(scheme, NULL, out, st);
    const int fd = memfd_create("run_dist-subword", MFD_CLOEXEC);
    if (fd < 0)
        return rd_fail(st, RD_EENV, "cannot make memory for a subword model: %s", strerror(errno));
    size_t at = 0;
    while (at < b->n) {
        const ssize_t k = write(fd, b->s + at, b->n - at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) {
            rd_fail(st, RD_EENV, "no memory for a subword model: %s", strerror(errno));
            break;
        }
        at += (size_t)k;
    }
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (st->code == RD_OK) (void)rd_subword_open(scheme, path, out, st);
    (void)close(fd);
    return st->code;
}

rd_code rd_store_subword(const rd_store_bytes *b, int side, rd_subword **out, rd_status *st)
{
    const rd_strbuf *pieces = side >= 0 ? &b->part[RD_STORE_PIECES + side] : NULL,
                    *gloss = &b->part[RD_STORE_GLOSSARIES];
    const rd_subword_limits l = {pieces ? pieces->s : NULL, pieces ? pieces->n : 0, gloss->s,
                                 gloss->n};
    *out = NULL;
    if (b->given && strcmp(b->scheme, "none") == 0) return RD_OK;
    RD_TRY(open_plain(b->scheme, &b->part[RD_STORE_MODEL], out, st));
    if ((l.n_pieces > 0 || l.n_glossaries > 0) && rd_subword_limit(*out, &l, st) != RD_OK)
        rd_status_prefix(st, "limits of subwords");
done:
    return st->code;
}

/* Appends the words of a vocabulary as a list of pieces. */
static rd_code store_pieces(const rd_vocab *v, rd_strbuf *out, rd_status *st)
{
    for (int32_t id = RD_N_SPECIAL; id < rd_vocab_size(v); id++) {
        size_t n;
        const char *w = rd_vocab_word(v, id, &n);
        rd_strbuf_add(out, w, n);
        rd_strbuf_puts(out, " 1\n");
    }
    return out->failed ? rd_store_no_memory(st) : RD_OK;
}

rd_code rd_store_limited(rd_store_bytes *b, int side, const rd_vocab *v, rd_subword **out,
                         rd_status *st)
{
    rd_strbuf *pieces = &b->part[RD_STORE_PIECES + side];
    *out = NULL;
    if (b->limited && pieces->n == 0) RD_TRY(store_pieces(v, pieces, st));
    (void)rd_store_subword(b, side, out, st);
done:
    return st->code;
}

/* ---- all ranks ---- */

rd_code rd_store_spread(rd_comm *comm, int n_parts, rd_store_bytes *b, rd_status *st)
{
    struct {
        int64_t n[RD_STORE_PARTS];
        uint64_t text_hash[2];
        char scheme[32];
        int32_t kept, tied, shared, given, replace, limited;
    } head;
    const bool root = rd_rank_of(comm) == 0;
    if (rd_size_of(comm) == 1) return RD_OK;
    memset(&head, 0, sizeof head);
    for (int i = 0; i < n_parts; i++) head.n[i] = (int64_t)b->part[i].n;
    memcpy(head.text_hash, b->text_hash, sizeof head.text_hash);
    memcpy(head.scheme, b->scheme, sizeof head.scheme);
    head.kept = b->kept;
    head.tied = b->tied;
    head.shared = b->shared;
    head.given = b->given;
    head.replace = b->replace;
    head.limited = b->limited;
    RD_TRY(rd_comm_bcast(comm, &head, sizeof head, 0, st));
    for (int i = 0; i < n_parts && !root; i++) {
        rd_strbuf *p = &b->part[i];
        if (head.n[i] == 0) continue;
        p->s = malloc((size_t)head.n[i] + 1);
        if (!p->s) {
            (void)rd_store_no_memory(st);
            continue;
        }
        p->s[head.n[i]] = '\0';
        p->n = (size_t)head.n[i];
        p->cap = p->n + 1;
    }
    RD_TRY(rd_agree(comm, st));
    for (int i = 0; i < n_parts; i++)
        if (head.n[i] > 0) RD_TRY(rd_comm_bcast(comm, b->part[i].s, head.n[i], 0, st));
    memcpy(b->text_hash, head.text_hash, sizeof b->text_hash);
    memcpy(b->scheme, head.scheme, sizeof b->scheme);
    b->kept = head.kept;
    b->tied = head.tied;
    b->shared = head.shared;
    b->given = head.given;
    b->replace = head.replace;
    b->limited = head.limited;
done:
    return st->code;
}
