/* printable.h -- makes text of unknown origin fit for a terminal, a log line or a message.
 *
 * Names of files, words of a vocabulary, host names and texts of other programs may hold any bytes:
 * an escape sequence that moves the cursor, a newline that begins a false line, a character that
 * reverses the order of what follows. Printable characters of valid UTF-8 stay as they are. */
#ifndef RD_PRINTABLE_H
#define RD_PRINTABLE_H

#include "rd/strbuf.h"

RD_C_BEGIN

/* Returns the number of bytes of the valid UTF-8 character at s (1 to 4). 0: none (RFC 3629). */
size_t rd_utf8_bytes(const char *s, size_t n);
bool rd_utf8_valid(const char *s, size_t n);
/* Returns the number of bytes of the character at s if it may be shown as it is. 0: it is invalid
 * UTF-8, a control character (C0, DEL, C1), a separator of lines or paragraphs (U+2028, U+2029), or
 * a control of the direction of text (U+202A to U+202E, U+2066 to U+2069). */
size_t rd_printable_bytes(const char *s, size_t n);
/* Appends s[0..n). What may not be shown becomes \n, \r, \t, \u001b, \u202e, or \xff for a byte
 * that is not UTF-8. Its own output stays unchanged: it contains no character to replace. */
void rd_printable_add(rd_strbuf *b, const char *s, size_t n);
/* The same into out[0..cap), cap at least 1. A text that does not fit is cut before a character.
 * keep_lines: a newline stays. Returns out. */
char *rd_printable(const char *s, size_t n, bool keep_lines, char *out, size_t cap);
/* Appends s as a cell of a Markdown table: also escapes '|'. */
void rd_printable_cell(rd_strbuf *b, const char *s, size_t n);
/* Appends s as a field of CSV (RFC 4180): in double quotes where it holds a comma, a double quote
 * or a line break. keep_lines: line breaks stay; else they are escaped like other controls. */
void rd_printable_csv(rd_strbuf *b, const char *s, bool keep_lines);

RD_C_END
#endif
