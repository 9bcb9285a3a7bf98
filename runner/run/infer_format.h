/* infer_format.h -- the forms in which infer mode writes translations. */
#ifndef RD_RUN_INFER_FORMAT_H
#define RD_RUN_INFER_FORMAT_H

#include "rd/search.h"
#include "rd/strbuf.h"

/* One translation of a line. */
typedef struct infer_text {
    const char *text; /* [bytes] */
    size_t bytes;
    int64_t n_tokens; /* without the end token */
    double score;     /* not finite: the model's numbers were not; the text is then empty */
} infer_text;

/* One line of the input. */
typedef struct infer_line {
    int64_t number;   /* of the line, from 0 */
    int64_t n_source; /* source tokens; a blank line has 0 */
    int n;            /* number of translations, best first; at least 1 */
    const infer_text *best;
} infer_line;

/* Appends the output of a line. A line break ends each line but the last. Line breaks in a text
 * become spaces (json: escapes). */
void infer_format(rd_output_format format, const infer_line *line, rd_strbuf *out);
/* Appends a JSON string. Bytes that are not UTF-8 become U+FFFD, since JSON is UTF-8. */
void infer_json_string(rd_strbuf *out, const char *text, size_t n);
/* Returns the number of words of a text: runs of bytes that are no white space. */
int64_t infer_words(const char *text, size_t n);

#endif
