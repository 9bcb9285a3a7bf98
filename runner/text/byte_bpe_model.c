/* byte_bpe_model.c -- the tables of a byte-level BPE model: bytes in printable form, tokens,
 * merges. */
#include "byte_bpe_impl.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- bytes in printable form (GPT-2's encoder) ---- */

static bool is_shown_itself(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/* Returns the code point of a byte. */
static int code_of_byte(int byte)
{
    if (is_shown_itself(byte)) return byte;
    /* The others, in order: 0 to 32, 127 to 160, 173. */
    return 256 + (byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 33 + 34);
}

static int byte_of_code(int code)
{
    if (code < 256) return is_shown_itself(code) ? code : -1;
    code -= 256;
    return code <= 32 ? code : code < 33 + 34 ? code - 33 + 127 : code == 33 + 34 ? 173 : -1;
}

int byte_bpe_byte(int32_t order)
{
    if (order >= 188) return byte_of_code(order - 188 + 256);
    return order < 94 ? order + 33 : order < 94 + 12 ? order - 94 + 161 : order - 94 - 12 + 174;
}

size_t byte_bpe_show(int byte, char out[2])
{
    const int code = code_of_byte(byte);
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xC0 | code >> 6);
    out[1] = (char)(0x80 | (code & 0x3F));
    return 2;
}

int byte_bpe_unshow(const char *s, size_t n, size_t *k)
{
    const unsigned char *u = (const unsigned char *)s;
    *k = 1;
    if (u[0] < 0x80) return byte_of_code(u[0]);
    if (u[0] < 0xC2 || u[0] > 0xC5 || n < 2 || (u[1] & 0xC0) != 0x80) return -1;
    const int byte = byte_of_code((u[0] & 0x1F) << 6 | (u[1] & 0x3F));
    if (byte >= 0) *k = 2;
    return byte;
}

void byte_bpe_put_shown(rd_strbuf *out, const char *bytes, size_t n)
{
    char s[2];
    for (size_t i = 0; i < n; i++) rd_strbuf_add(out, s, byte_bpe_show((unsigned char)bytes[i], s));
}

void byte_bpe_put_bytes(rd_strbuf *out, const char *shown, size_t n)
{
    for (size_t i = 0, k; i < n; i += k) {
        const int byte = byte_bpe_unshow(shown + i, n - i, &k);
        if (byte >= 0)
            rd_strbuf_add(out, (const char[]){(char)byte}, 1);
        else
            rd_strbuf_add(out, shown + i, k);
    }
}

/* ---- tokens and merges ---- */

static rd_code model_no_memory(const char *name, rd_status *st)
{
    return rd_fail(st, RD_EENV, "out of memory for the tokenizer of '%s'", name);
}

/* Adds a string with its id to one of the two sets. */
static rd_code add_string(rd_strings *set, int32_t **ids, int32_t *cap, const char *text, size_t n,
                          int64_t id, const char *name, rd_status *st)
{
    const int32_t before = set->n;
    if (id < 0 || id >= BYTE_BPE_MOST_IDS)
        return rd_fail(st, RD_EDATA, "'%s': '%.*s' has the id %" PRId64 ", which is not 0 to %d",
                       name, (int)(n < 60 ? n : 60), text, id, BYTE_BPE_MOST_IDS - 1);
    if (n == 0) return rd_fail(st, RD_EDATA, "'%s': id %" PRId64 " has an empty text", name, id);
    const int32_t k = rd_strings_add(set, text, n);
    if (k < 0) return model_no_memory(name, st);
    if (k < before) {
        if ((*ids)[k] == id) return RD_OK;
        return rd_fail(st, RD_EDATA, "'%s': '%.*s' has two ids, %" PRId32 " and %" PRId64, name,
                       (int)(n < 60 ? n : 60), text, (*ids)[k], id);
    }
    if (k >= *cap) {
        const int32_t more = *cap * 2 + 1024;
        int32_t *p = realloc(*ids, (size_t)more * sizeof *p);
        if (!p) return model_no_memory(name, st);
        *ids = p;
        *cap = more;
    }
    (*ids)[k] = (int32_t)id;
    return RD_OK;
}

rd_code byte_bpe_token(byte_bpe *m, const char *bytes, size_t n, int64_t id, const char *name,
                       rd_status *st)
{
    return add_string(&m->tokens, &m->token_id, &m->cap_tokens, bytes, n, id, name, st);
}

rd_code byte_bpe_special(byte_bpe *m, const char *text, size_t n, int64_t id, const char *name,
                         rd_status *st)
{
    return add_string(&m->specials, &m->special_id, &m->cap_specials, text, n, id, name, st);
}

rd_code byte_bpe_added(byte_bpe *m, const char *text, size_t n, int64_t id, bool late,
                       const char *name, rd_status *st)
{
    const int32_t before = m->specials.n;
    RD_TRY(byte_bpe_special(m, text, n, id, name, st));
    if (m->specials.n == before) return RD_OK;
    int32_t *p = realloc(m->matched, ((size_t)m->n_matched + 1) * sizeof *p);
    if (!p) return model_no_memory(name, st);
    m->matched = p;
    bool *q = realloc(m->late, ((size_t)m->n_matched + 1) * sizeof *q);
    if (!q) return model_no_memory(name, st);
    m->late = q;
    int32_t k = m->n_matched++;
    for (; k > 0 && m->specials.item[p[k - 1]].n < n; k--) {
        p[k] = p[k - 1];
        q[k] = q[k - 1];
    }
    p[k] = before;
    q[k] = late;
    m->in_text[(unsigned char)text[0]] = true;
done:
    return st->code;
}

bool byte_bpe_is_matched(const byte_bpe *m, int32_t special)
{
    for (int32_t i = 0; i < m->n_matched; i++)
        if (m->matched[i] == special) return true;
    return false;
}

bool byte_bpe_is_late(const byte_bpe *m, int32_t special)
{
    for (int32_t i = 0; i < m->n_matched; i++)
        if (m->matched[i] == special) return m->late[i];
    return false;
}

void byte_bpe_normalize(const byte_bpe *m, const char *text, size_t n, rd_strbuf *out)
{
    rd_strbuf before = {0};
    for (int k = 0; k < m->n_normal; k++) {
        const size_t at = out->n;
        rd_normalize(m->normal[k], text, n, out);
        if (k + 1 == m->n_normal || out->failed) break;
        rd_strbuf_reset(&before); /* the next form takes what this one wrote */
        rd_strbuf_add(&before, out->s + at, out->n - at);
        out->n = at;
        text = rd_strbuf_str(&before);
        n = before.n;
    }
    out->failed |= before.failed;
    rd_strbuf_release(&before);
}

static bool is_ascii(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] >= 0x80) return false;
    return true;
}

rd_code byte_bpe_entry(byte_bpe *m, const char *shown, size_t n, int64_t id, const char *name,
                       rd_status *st)
{
    rd_strbuf bytes = {0};
    const int32_t k_special = rd_strings_find(&m->specials, shown, n);
    bool special = k_special >= 0;
    if (special && byte_bpe_is_matched(m, k_special) && is_ascii(shown, n)) {
        RD_TRY(byte_bpe_special(m, shown, n, id, name, st)); /* the ids must agree */
        special = false;
    }
    for (size_t i = 0, k; i < n && !special; i += k)
        special = byte_bpe_unshow(shown + i, n - i, &k) < 0;
    if (special) return byte_bpe_special(m, shown, n, id, name, st);
    byte_bpe_put_bytes(&bytes, shown, n);
    if (bytes.failed)
        (void)model_no_memory(name, st);
    else
        (void)byte_bpe_token(m, rd_strbuf_str(&bytes), bytes.n, id, name, st);
done:
    rd_strbuf_release(&bytes);
    return st->code;
}

rd_code byte_bpe_merge(byte_bpe *m, const char *left, size_t n, const char *right, size_t n_right,
                       const char *where, rd_status *st)
{
    if (m->n_pairs == m->cap_pairs) {
        const int32_t cap = m->cap_pairs * 2 + 1024;
        byte_bpe_pair *p = realloc(m->pair, (size_t)cap * sizeof *p);
        if (!p) return model_no_memory(where, st);
        m->pair = p;
        m->cap_pairs = cap;
    }
    const int32_t l = rd_strings_find(&m->tokens, left, n);
    const int32_t r = rd_strings_find(&m->tokens, right, n_right);
    int32_t to = -1;
    if (l >= 0 && r >= 0) {
        const int32_t before = m->tokens.n;
        to = rd_strings_join(&m->tokens, l, r);
        if (to < 0) return model_no_memory(where, st);
        if (to == before)
            return rd_fail(st, RD_EDATA, "%s: the result of a merge is no token", where);
    }
    if (to < 0) return rd_fail(st, RD_EDATA, "%s: a part of a merge is no token", where);
    m->pair[m->n_pairs++] = (byte_bpe_pair){m->token_id[l], m->token_id[r], m->token_id[to]};
    return RD_OK;
}

/* Fills shown, shown_at and special_of: what every id is. */
static rd_code show_ids(byte_bpe *m, const char *name, rd_status *st)
{
    int32_t *token = malloc((size_t)m->n_ids * sizeof *token);
    m->special_of = malloc((size_t)m->n_ids * sizeof *m->special_of);
    m->shown_at = malloc(((size_t)m->n_ids + 1) * sizeof *m->shown_at);
    if (!token || !m->special_of || !m->shown_at) RD_TRY(model_no_memory(name, st));
    memset(token, 0xFF, (size_t)m->n_ids * sizeof *token); /* -1 */
    memset(m->special_of, 0xFF, (size_t)m->n_ids * sizeof *m->special_of);
    for (int32_t k = 0; k < m->tokens.n + m->specials.n; k++) {
        const bool special = k >= m->tokens.n;
        const int32_t id = special ? m->special_id[k - m->tokens.n] : m->token_id[k];
        const bool both = special && token[id] >= 0 && m->special_of[id] < 0 &&
                          byte_bpe_is_matched(m, k - m->tokens.n);
        if (!both && (token[id] >= 0 || m->special_of[id] >= 0))
            RD_TRY(rd_fail(st, RD_EDATA, "'%s': two tokens have the id %" PRId32, name, id));
        if (special)
            m->special_of[id] = k - m->tokens.n;
        else
            token[id] = k;
    }
    for (int32_t id = 0; id < m->n_ids; id++) {
        size_t n = 0;
        const char *s = "";
        m->shown_at[id] = m->shown.n;
        if (token[id] >= 0) s = rd_strings_at(&m->tokens, token[id], &n);
        if (m->special_of[id] >= 0) s = rd_strings_at(&m->specials, m->special_of[id], &n);
        byte_bpe_put_shown(&m->shown, s, n);
        if (n > 0) rd_strbuf_add(&m->shown, " ", 1);
    }
    m->shown_at[m->n_ids] = m->shown.n;
    if (m->shown.failed) RD_TRY(model_no_memory(name, st));
done:
    free(token);
    return st->code;
}

rd_code byte_bpe_finish(byte_bpe *m, const char *name, rd_status *st)
{
    for (int b = 0; b < 256; b++) {
        const int32_t k = rd_strings_find(&m->tokens, (const char[]){(char)b}, 1);
        if (k < 0)
            return rd_fail(st, RD_EDATA,
                           "'%s': the byte 0x%02X has no token; the tokenizer must be byte-level "
                           "with an alphabet of all 256 bytes",
                           name, b);
        m->byte_id[b] = m->token_id[k];
    }
    for (int32_t k = 0; k < m->tokens.n; k++)
        if (m->token_id[k] >= m->n_ids) m->n_ids = m->token_id[k] + 1;
    for (int32_t k = 0; k < m->specials.n; k++)
        if (m->special_id[k] >= m->n_ids) m->n_ids = m->special_id[k] + 1;
    for (int32_t k = 0; k < m->n_pairs; k++) {
        const byte_bpe_pair *p = &m->pair[k];
        if (!rd_merges_add(&m->merges, p->left, p->right, p->to, m->by_id ? p->to : k))
            return model_no_memory(name, st);
    }
    return show_ids(m, name, st);
}

void byte_bpe_release(byte_bpe *m)
{
    rd_strings_release(&m->tokens);
    rd_strings_release(&m->specials);
    rd_merges_release(&m->merges);
    rd_strbuf_release(&m->shown);
    free(m->shown_at);
    free(m->special_of);
    free(m->token_id);
    free(m->special_id);
    free(m->matched);
    free(m->late);
    free(m->pair);
    rd_splitter_free(m->split);
    *m = (byte_bpe){0};
}
