/* tokenizer_json.c -- reads and writes the tokenizer.json of Hugging Face's tokenizers, as far as
 * it is byte-level BPE: GPT-2, Llama 3, SmolLM, Qwen 2 and 3, and those trained here.
 *
 * What would change ids and is not known here is an error: another model, normalizers that are no
 * normal forms of Unicode, other pre-tokenizers. The template that adds tokens at the ends of a
 * text (post_processor) is left out. */
#include "byte_bpe_impl.h"
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* Returns whether a value is missing, null, false, 0, "" or an empty list. */
static bool is_nothing(const json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) ||
           (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_number(v) && !(json_number_value(v) > 0.0)) ||
           (json_is_array(v) && json_array_size(v) == 0);
}

static bool is_true(const json_t *o, const char *key, bool otherwise)
{
    const json_t *v = json_object_get(o, key);
    return json_is_boolean(v) ? json_is_true(v) : otherwise;
}

static rd_code not_supported(const char *name, const char *what, rd_status *st)
{
    return rd_fail(st, RD_EDATA, "'%s': %s is not supported; supported is BPE with ByteLevel", name,
                   what);
}

/* ---- pre-tokenizers ---- */

static rd_code read_split(const json_t *o, const char *name, byte_bpe *m, rd_status *st)
{
    const json_t *pattern = json_object_get(o, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex");
    const json_t *plain = json_object_get(pattern, "String");
    const char *behavior = text_of(o, "behavior");
    /* Removed with invert keeps what matches: the same, since such patterns match all of a text. */
    const bool invert = is_true(o, "invert", false);
    if (strcmp(behavior, invert ? "Removed" : "Isolated") != 0)
        return not_supported(name, "a Split that is neither Isolated nor an inverted Removed", st);
    if (json_is_string(regex))
        return rd_splitter_add(m->split, json_string_value(regex), json_string_length(regex), name,
                               st);
    if (!json_is_string(plain) || json_string_length(plain) == 0 ||
        strstr(json_string_value(plain), "\\E"))
        return not_supported(name, "the pattern of a Split", st);
    rd_strbuf b = {0};
    rd_strbuf_printf(&b, "\\Q%s\\E", json_string_value(plain));
    (void)rd_splitter_add(m->split, rd_strbuf_str(&b), b.n, name, st);
    rd_strbuf_release(&b);
    return st->code;
}

/* Digits as SmolLM has them: each is a piece, or each run of them is. */
static rd_code read_digits(const json_t *o, const char *name, byte_bpe *m, rd_status *st)
{
    const char *pattern = is_true(o, "individual_digits", false) ? "\\p{N}" : "\\p{N}+";
    return rd_splitter_add(m->split, pattern, strlen(pattern), name, st);
}

static rd_code read_byte_level(const json_t *o, bool alone, const char *name, byte_bpe *m,
                               rd_status *st)
{
    m->prefix_space = is_true(o, "add_prefix_space", true);
    if (m->prefix_space && !alone)
        return not_supported(name, "ByteLevel with add_prefix_space behind a Split", st);
    if (!is_true(o, "use_regex", true)) return RD_OK;
    return rd_splitter_add(m->split, rd_splitter_gpt2, strlen(rd_splitter_gpt2), name, st);
}

static rd_code read_pre_tokenizer(const json_t *o, const char *name, byte_bpe *m, rd_status *st)
{
    const json_t *list = json_object_get(o, "pretokenizers"), *part;
    size_t i;
    if (strcmp(text_of(o, "type"), "ByteLevel") == 0) return read_byte_level(o, true, name, m, st);
    if (strcmp(text_of(o, "type"), "Sequence") != 0 || !json_is_array(list))
        return not_supported(name, "a pre_tokenizer without ByteLevel", st);
    bool byte_level = false;
    json_array_foreach(list, i, part)
    {
        const char *type = text_of(part, "type");
        if (!byte_level && strcmp(type, "Split") == 0) {
            RD_TRY(read_split(part, name, m, st));
        } else if (!byte_level && strcmp(type, "Digits") == 0) {
            RD_TRY(read_digits(part, name, m, st));
        } else if (!byte_level && strcmp(type, "ByteLevel") == 0) {
            byte_level = true;
            RD_TRY(read_byte_level(part, i == 0, name, m, st));
        } else {
            RD_TRY(not_supported(name,
                                 "a pre_tokenizer that is neither Split, Digits nor, as the "
                                 "last one, ByteLevel",
                                 st));
        }
    }
    if (!byte_level) RD_TRY(not_supported(name, "a pre_tokenizer without ByteLevel", st));
done:
    return st->code;
}

/* ---- normalizers ---- */

static rd_code read_normal_form(const json_t *o, const char *name, byte_bpe *m, rd_status *st)
{
    const char *type = text_of(o, "type");
    int form = 0;
    while (form < RD_NORMAL_FORMS && strcmp(type, rd_normal_names[form]) != 0) form++;
    if (form == RD_NORMAL_FORMS)
        return rd_fail(st, RD_EDATA,
                       "'%s': the normalizer '%.40s' is not supported, only NFC, NFD, NFKC and "
                       "NFKD; if your text is in that form already, write \"normalizer\": null",
                       name, type);
    if (rd_normalize_lacks())
        return rd_fail(st, RD_EENV, "'%s': the normalizer %s: %s", name, type,
                       rd_normalize_lacks());
    if (m->n_normal == RD_NORMAL_FORMS)
        return not_supported(name, "a sequence of more than four normalizers", st);
    m->normal[m->n_normal++] = (rd_normal_form)form;
    return RD_OK;
}

static rd_code read_normalizer(const json_t *o, const char *name, byte_bpe *m, rd_status *st)
{
    const json_t *list = json_object_get(o, "normalizers"), *part;
    size_t i;
    if (is_nothing(o)) return RD_OK;
    if (strcmp(text_of(o, "type"), "Sequence") != 0) return read_normal_form(o, name, m, st);
    json_array_foreach(list, i, part) RD_TRY(read_normal_form(part, name, m, st));
done:
    return st->code;
}

/* ---- the model ---- */

/* Adds an added token of text. */
static rd_code read_matched(const json_t *o, const char *text, int64_t id, const char *name,
                            byte_bpe *m, rd_status *st)
{
    const bool late = m->n_normal > 0 && is_true(o, "normalized", true);
    rd_strbuf b = {0};
    if (is_true(o, "lstrip", false) || is_true(o, "rstrip", false) ||
        is_true(o, "single_word", false))
        return not_supported(name, "an added token of text with lstrip, rstrip or single_word", st);
    if (late) byte_bpe_normalize(m, text, strlen(text), &b);
    if (b.failed)
        rd_fail(st, RD_EENV, "out of memory for '%s'", name);
    else if (late && strcmp(rd_strbuf_str(&b), text) != 0)
        not_supported(name, "an added token that is not in the form of its normalizer", st);
    else
        byte_bpe_added(m, text, strlen(text), id, late, name, st);
    rd_strbuf_release(&b);
    return st->code;
}

static rd_code read_added(const json_t *list, const char *name, byte_bpe *m, rd_status *st)
{
    const json_t *o;
    size_t i;
    json_array_foreach(list, i, o)
    {
        const json_t *content = json_object_get(o, "content"), *id = json_object_get(o, "id");
        const bool special = is_true(o, "special", false);
        if (!json_is_string(content) || !json_is_integer(id))
            RD_TRY(rd_fail(st, RD_EDATA, "'%s': added token %zu has no content or no id", name,
                           i + 1));
        if (special)
            RD_TRY(byte_bpe_special(m, json_string_value(content), json_string_length(content),
                                    json_integer_value(id), name, st));
        else
            RD_TRY(read_matched(o, json_string_value(content), json_integer_value(id), name, m,
                                st));
    }
done:
    return st->code;
}

static rd_code read_vocab(const json_t *vocab, const char *name, byte_bpe *m, rd_status *st)
{
    const char *shown;
    const json_t *id;
    json_object_foreach((json_t *)(uintptr_t)vocab, shown, id)
    {
        if (!json_is_integer(id))
            return rd_fail(st, RD_EDATA, "'%s': the id of '%.60s' is no integer", name, shown);
        RD_TRY(byte_bpe_entry(m, shown, strlen(shown), json_integer_value(id), name, st));
    }
done:
    return st->code;
}

/* Adds a merge, "left right" or [left, right]. */
static rd_code read_merge(const json_t *v, size_t number, const char *name, byte_bpe *m,
                          rd_strbuf *b, rd_status *st)
{
    char where[160];
    const char *left = json_string_value(json_array_get(v, 0));
    const char *right = json_string_value(json_array_get(v, 1));
    const char *space = json_is_string(v) ? strchr(json_string_value(v), ' ') : NULL;
    (void)snprintf(where, sizeof where, "'%.120s': merge %zu", name, number);
    if (space) {
        left = json_string_value(v);
        right = space + 1;
    }
    if (!left || !right || (space ? strchr(right, ' ') != NULL : json_array_size(v) != 2))
        return rd_fail(st, RD_EDATA, "%s is not two tokens", where);
    rd_strbuf_reset(b);
    byte_bpe_put_bytes(b, left, space ? (size_t)(space - left) : strlen(left));
    const size_t n = b->n;
    byte_bpe_put_bytes(b, right, strlen(right));
    if (b->failed) return rd_fail(st, RD_EENV, "out of memory for '%s'", name);
    return byte_bpe_merge(m, rd_strbuf_str(b), n, rd_strbuf_str(b) + n, b->n - n, where, st);
}

static rd_code read_model(const json_t *root, const char *name, byte_bpe *m, rd_status *st)
{
    static const char *const empty[] = {"dropout", "continuing_subword_prefix",
                                        "end_of_word_suffix", "byte_fallback"};
    const json_t *model = json_object_get(root, "model"), *v;
    const json_t *vocab = json_object_get(model, "vocab"),
                 *merges = json_object_get(model, "merges");
    rd_strbuf b = {0};
    size_t i;
    if (!json_is_object(vocab) || !json_is_array(merges) ||
        (json_object_get(model, "type") && strcmp(text_of(model, "type"), "BPE") != 0))
        RD_TRY(not_supported(name, "a model that is not BPE", st));
    for (i = 0; i < sizeof empty / sizeof *empty; i++)
        if (!is_nothing(json_object_get(model, empty[i])))
            RD_TRY(not_supported(name, empty[i], st));
    RD_TRY(read_normalizer(json_object_get(root, "normalizer"), name, m, st));
    m->ignore_merges = is_true(model, "ignore_merges", false);
    RD_TRY(rd_splitter_new(&m->split, st));
    RD_TRY(read_pre_tokenizer(json_object_get(root, "pre_tokenizer"), name, m, st));
    RD_TRY(read_added(json_object_get(root, "added_tokens"), name, m, st));
    RD_TRY(read_vocab(vocab, name, m, st));
    json_array_foreach(merges, i, v) RD_TRY(read_merge(v, i + 1, name, m, &b, st));
done:
    rd_strbuf_release(&b);
    return st->code;
}

rd_code byte_bpe_read_json(const char *text, size_t n, const char *name, byte_bpe *m, rd_status *st)
{
    json_error_t e;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (!root) return rd_fail(st, RD_EDATA, "%s:%d:%d: %s", name, e.line, e.column, e.text);
    if (json_object_get(root, "model"))
        (void)read_model(root, name, m, st);
    else
        rd_fail(st, RD_EDATA,
                "'%s' is no tokenizer.json: it has no \"model\"; with a vocab.json, name the "
                "merges.txt beside it",
                name);
    json_decref(root);
    return st->code;
}

/* ---- writing ---- */

static void put_json(rd_strbuf *out, const char *s, size_t n)
{
    rd_strbuf_add(out, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"' || s[i] == '\\')
            rd_strbuf_printf(out, "\\%c", s[i]);
        else if ((unsigned char)s[i] < 0x20)
            rd_strbuf_printf(out, "\\u%04x", (unsigned)s[i]);
        else
            rd_strbuf_add(out, s + i, 1);
    }
    rd_strbuf_add(out, "\"", 1);
}

static void put_normalizer(const byte_bpe *m, rd_strbuf *out)
{
    const bool several = m->n_normal > 1;
    rd_strbuf_printf(out, "  \"normalizer\": %s",
                     several ? "{\"type\": \"Sequence\", \"normalizers\": [" : "");
    for (int k = 0; k < m->n_normal; k++)
        rd_strbuf_printf(out, "%s{\"type\": \"%s\"}", k ? ", " : "", rd_normal_names[m->normal[k]]);
    rd_strbuf_puts(out, several ? "]},\n" : m->n_normal == 0 ? "null,\n" : ",\n");
}

static void put_split(const byte_bpe *m, rd_strbuf *out)
{
    const int n = rd_splitter_count(m->split);
    const bool gpt2 = n > 0 && strcmp(rd_splitter_pattern(m->split, n - 1), rd_splitter_gpt2) == 0;
    rd_strbuf_puts(out, "  \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n");
    for (int k = 0; k < n - gpt2; k++) {
        const char *pattern = rd_splitter_pattern(m->split, k);
        rd_strbuf_puts(out, "    {\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        put_json(out, pattern, strlen(pattern));
        rd_strbuf_puts(out, "}, \"behavior\": \"Isolated\", \"invert\": false},\n");
    }
    rd_strbuf_printf(out,
                     "    {\"type\": \"ByteLevel\", \"add_prefix_space\": %s, "
                     "\"trim_offsets\": true, \"use_regex\": %s}]},\n",
                     m->prefix_space ? "true" : "false", gpt2 ? "true" : "false");
}

/* Appends the printable form of an id. */
static void put_shown(const byte_bpe *m, int32_t id, rd_strbuf *out)
{
    const char *s = rd_strbuf_str(&m->shown) + m->shown_at[id];
    put_json(out, s, m->shown_at[id + 1] - m->shown_at[id] - 1);
}

void byte_bpe_write_json(const byte_bpe *m, rd_strbuf *out)
{
    size_t n;
    rd_strbuf_puts(out,
                   "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
                   "  \"added_tokens\": [");
    for (int32_t k = 0; k < m->specials.n; k++) {
        const char *s = rd_strings_at(&m->specials, k, &n);
        rd_strbuf_printf(out, "%s\n    {\"id\": %" PRId32 ", \"content\": ", k ? "," : "",
                         m->special_id[k]);
        put_json(out, s, n);
        rd_strbuf_printf(out,
                         ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                         "\"normalized\": %s, \"special\": %s}",
                         byte_bpe_is_late(m, k) ? "true" : "false",
                         byte_bpe_is_matched(m, k) ? "false" : "true");
    }
    rd_strbuf_puts(out, "],\n");
    put_normalizer(m, out);
    put_split(m, out);
    rd_strbuf_puts(out, "  \"post_processor\": null,\n"
                        "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                        "\"trim_offsets\": true, \"use_regex\": true},\n");
    rd_strbuf_printf(out,
                     "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null,\n"
                     "    \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null,\n"
                     "    \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": %s,\n"
                     "    \"vocab\": {",
                     m->ignore_merges ? "true" : "false");
    /* In the order of ids, which not every file has. */
    for (int32_t id = 0, k = 0; id < m->n_ids; id++) {
        if (m->shown_at[id + 1] == m->shown_at[id]) continue;
        rd_strbuf_puts(out, k++ ? ",\n      " : "\n      ");
        const int32_t special = m->special_of[id];
        if (special >= 0) {
            const char *s = rd_strings_at(&m->specials, special, &n);
            put_json(out, s, n);
        } else {
            put_shown(m, id, out);
        }
        rd_strbuf_printf(out, ": %" PRId32, id);
    }
    rd_strbuf_puts(out, "},\n    \"merges\": [");
    for (int32_t k = 0; k < m->n_pairs; k++) {
        const byte_bpe_pair *p = &m->pair[k];
        const char *left = rd_strbuf_str(&m->shown) + m->shown_at[p->left];
        const char *right = rd_strbuf_str(&m->shown) + m->shown_at[p->right];
        rd_strbuf both = {0};
        rd_strbuf_add(&both, left, m->shown_at[p->left + 1] - m->shown_at[p->left]);
        rd_strbuf_add(&both, right, m->shown_at[p->right + 1] - m->shown_at[p->right] - 1);
        rd_strbuf_puts(out, k ? ",\n      " : "\n      ");
        put_json(out, rd_strbuf_str(&both), both.n);
        out->failed |= both.failed;
        rd_strbuf_release(&both);
    }
    rd_strbuf_puts(out, "]}\n}\n");
}
