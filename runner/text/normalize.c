/* normalize.c -- the normal forms of Unicode, by the library utf8proc (Unicode Standard Annex 15).
 * Most text is in its form already, which its first bytes of characters tell at once. */
#include "normalize.h"
#ifdef RD_UTF8PROC
#include <utf8proc.h>
#include <stdio.h>
#include <stdlib.h>
#endif

const char *const rd_normal_names[RD_NORMAL_FORMS] = {
    [RD_NFC] = "NFC", [RD_NFD] = "NFD", [RD_NFKC] = "NFKC", [RD_NFKD] = "NFKD"};

#ifdef RD_UTF8PROC
const char *rd_normalize_lacks(void)
{
    return NULL;
}

const char *rd_normalize_library(void)
{
    static char name[64];
    if (!name[0])
        (void)snprintf(name, sizeof name, "utf8proc with Unicode %s", utf8proc_unicode_version());
    return name;
}

/* Returns the number of bytes of the character at s, 0: it is not UTF-8. */
static size_t normal_character(const char *s, size_t n)
{
    utf8proc_int32_t code;
    const utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n,
                                                &code);
    return k > 0 ? (size_t)k : 0;
}

/* Appends a text that is UTF-8. */
static void normal_put(utf8proc_option_t options, const char *text, size_t n, rd_strbuf *out)
{
    utf8proc_uint8_t *to = NULL;
    const utf8proc_ssize_t k = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n,
                                            &to, options);
    if (k >= 0)
        rd_strbuf_add(out, (const char *)to, (size_t)k);
    else
        out->failed = true;
    free(to);
}

void rd_normalize(rd_normal_form form, const char *text, size_t n, rd_strbuf *out)
{
    static const utf8proc_option_t options[RD_NORMAL_FORMS] = {
        [RD_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [RD_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [RD_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [RD_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT};
    /* All characters below U+0300 are in the form NFC, and ASCII is in all forms. */
    const unsigned char first = form == RD_NFC ? 0xCC : 0x80;
    size_t at = 0, from = 0;
    while (at < n && (unsigned char)text[at] < first) at++;
    if (at == n) {
        rd_strbuf_add(out, text, n);
        return;
    }
    for (at = 0; at < n;) {
        const size_t k = normal_character(text + at, n - at);
        if (k == 0) {
            if (at > from) normal_put(options[form], text + from, at - from, out);
            rd_strbuf_add(out, text + at, 1);
            from = at + 1;
        }
        at += k > 0 ? k : 1;
    }
    if (n > from) normal_put(options[form], text + from, n - from, out);
}
#else
const char *rd_normalize_lacks(void)
{
    return "this program was built without utf8proc; on Debian: apt-get install libutf8proc-dev, "
           "and build it again";
}

const char *rd_normalize_library(void)
{
    return "";
}

void rd_normalize(rd_normal_form form, const char *text, size_t n, rd_strbuf *out)
{
    (void)form;
    rd_strbuf_add(out, text, n);
}
#endif
