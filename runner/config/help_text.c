/* help_text.c -- lines of help: words wrapped at the width of the screen. */
#include "help_impl.h"
#include <string.h>

static int columns_of(const char *text, size_t n)
{
    int width = 0;
    for (size_t i = 0; i < n; i++)
        width += text[i] != '`' && ((unsigned char)text[i] & 0xC0) != 0x80;
    return width;
}

static int put_plain(FILE *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] != '`') fputc(text[i], out);
    return columns_of(text, n);
}

int rd_help_plain(FILE *out, const char *text)
{
    return put_plain(out, text, strlen(text));
}

void rd_help_wrapped(FILE *out, const char *text, int col, int indent)
{
    bool fresh = true; /* nothing of the text is in this line yet */
    while (*text) {
        while (*text == ' ') text++;
        const size_t n = strcspn(text, " ");
        const int width = columns_of(text, n);
        if (n == 0) break;
        if (!fresh && col + 1 + width > RD_HELP_WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            col = indent;
            fresh = true;
        }
        if (!fresh) fputc(' ', out);
        put_plain(out, text, n);
        col += width + !fresh;
        fresh = false;
        text += n;
    }
    fputc('\n', out);
}

void rd_help_pair(FILE *out, const char *left, const char *text, int indent)
{
    const int width = columns_of(left, strlen(left));
    put_plain(out, left, strlen(left));
    if (width + 1 > indent)
        fprintf(out, "\n%*s", indent, "");
    else
        fprintf(out, "%*s", indent - width, "");
    rd_help_wrapped(out, text, indent, indent);
}

const char *rd_option_type_name(const rd_option *o)
{
    static const char *const names[] = {
        [RD_BOOL] = "bool",
        [RD_INT] = "integer",
        [RD_REAL] = "number",
        [RD_STRING] = "string",
        [RD_INTS] = "list of integers",
        [RD_ENUM] = "string",
        [RD_PATHS] = "string or list",
    };
    return names[o->type];
}
