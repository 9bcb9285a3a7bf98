/* json_relaxed.c -- makes strict JSON of JSON with comments and trailing commas.
 *
 * A comment is // up to the end of its line, or is between the two marks of C. A comma is a
 * trailing one if only blanks and comments follow, and then ']' or '}'. Both become blanks of the
 * same number of bytes, and newlines stay. So each byte that is left has its line and its offset,
 * and strict JSON comes out as it was: outside of strings it has no '/'. */
#include "config_impl.h"
#include <string.h>

/* Returns the offset behind a string whose quote is at `at`. */
static size_t behind_string(const char *s, size_t n, size_t at)
{
    for (at++; at < n && s[at] != '"'; at++)
        if (s[at] == '\\') at++;
    return at < n ? at + 1 : n;
}

/* Returns the offset behind a comment that begins at `at`; 0: none does, or it does not end. */
static size_t behind_comment(const char *s, size_t n, size_t at)
{
    if (at + 1 >= n || s[at] != '/') return 0;
    if (s[at + 1] == '/') {
        const char *end = memchr(s + at, '\n', n - at);
        return end ? (size_t)(end - s) : n;
    }
    if (s[at + 1] != '*') return 0;
    const char *end = memmem(s + at + 2, n - at - 2, "*/", 2);
    return end ? (size_t)(end - s) + 2 : 0;
}

void rd_json_relax(char *s, size_t n)
{
    /* The last two characters that count, and the offset of the last one. */
    char before = '\0', last = '\0';
    size_t last_at = 0;
    for (size_t at = 0; at < n;) {
        const char c = s[at];
        const size_t behind = behind_comment(s, n, at);
        if (behind) {
            for (; at < behind; at++)
                if (s[at] != '\n' && s[at] != '\r') s[at] = ' ';
        } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
            at++;
        } else {
            /* [,] and [1,,] stay wrong. */
            if ((c == ']' || c == '}') && last == ',' && before && !strchr("[{,:", before))
                s[last_at] = ' ';
            before = last;
            last = c;
            last_at = at;
            at = c == '"' ? behind_string(s, n, at) : at + 1;
        }
    }
}
