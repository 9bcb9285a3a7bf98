/* help_impl.h -- what the files behind --help share. */
#ifndef RD_HELP_IMPL_H
#define RD_HELP_IMPL_H

#include "cli_impl.h"
#include "config_impl.h"

RD_C_BEGIN

enum { RD_HELP_WIDTH = 80 }; /* columns */

/* ---- help_text.c ---- */
/* Prints the words of text from column `col` on. Lines have at most RD_HELP_WIDTH columns and begin
 * with `indent` blanks. Ends the line. */
void rd_help_wrapped(FILE *out, const char *text, int col, int indent);
/* Prints "left text" with the text at column `indent`, or in the next line if `left` is too
 * long. */
void rd_help_pair(FILE *out, const char *left, const char *text, int indent);
/* Prints text without the backquotes that mark words to type. Returns the number of columns. */
int rd_help_plain(FILE *out, const char *text);
/* Returns the name of a value's type: "integer", "list of integers". */
const char *rd_option_type_name(const rd_option *o);

/* ---- help_topics.c ---- */
/* One table of a topic. Words to type are in `backquotes`. */
enum { RD_TOPIC_COLUMNS = 4 };
typedef struct rd_topic {
    const char *name;  /* "exit-codes" */
    const char *title; /* "EXIT STATUS": a section of the man page */
    const char *about; /* one sentence */
    int columns;
    const char *head[RD_TOPIC_COLUMNS];
    const char *const (*rows)[RD_TOPIC_COLUMNS];
    int n_rows;
    const char *const *notes; /* sentences below the table; ends with NULL */
} rd_topic;
extern const rd_topic rd_topics[];
extern const int rd_n_topics;
const rd_topic *rd_topic_named(const char *name); /* NULL: none */

/* ---- help_configs.c ---- */
/* Prints which experiments of the configs folder set a key, and the folder. indent: of every
 * line. */
void rd_help_configs(const char *key, int indent, FILE *out);
/* Prints each experiment of the configs folder, with its model and its data, and the folder.
 * RD_EENV: there is no folder. */
rd_code rd_help_list_configs(FILE *out, rd_status *st);

/* ---- help_list.c ---- */
/* What --list takes; ends with NULL. */
extern const char *const rd_list_words[];

/* ---- help.c ---- */
/* The examples of --help and of the man page: a command and what it does; ends with NULL. */
extern const char *const rd_help_examples[][2];

RD_C_END
#endif
