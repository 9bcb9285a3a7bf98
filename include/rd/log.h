/* log.h -- what a person reads: stdout, stderr and, on rank 0, run.log.
 *
 * On a terminal, a line that is longer than the terminal is wide continues on the next one, at a
 * blank, and some words are coloured, unless NO_COLOR is set or TERM is dumb. A pipe, a file and
 * run.log get each line whole and without colours. Under mpirun the terminal is that of mpirun.
 *
 * Each line is one write call, so lines of several ranks do not mix. Ranks other than 0 print only
 * warnings and errors, with "[rank r, host] " in front. Characters that may not be shown are
 * escaped (printable.h), the newline too: a message is one line. A terminal or pipe that accepts
 * nothing for ten seconds does not block the run: lines are left out until it accepts bytes again,
 * and then a line reports how many are missing. */
#ifndef RD_LOG_H
#define RD_LOG_H

#include "rd/status.h"
#include "rd/strbuf.h"
#include <stdio.h>

RD_C_BEGIN

/* "1 line", "2 lines": ("%d line%s", n, RD_S(n)) */
#define RD_S(n) ((n) == 1 ? "" : "s")

typedef struct rd_log rd_log;

/* Makes a log. out: the stream of info lines: stdout, or stderr if stdout carries results. host may
 * be NULL. The caller owns *log. */
rd_code rd_log_new(int rank, const char *host, FILE *out, rd_log **log, rd_status *st);
void rd_log_free(rd_log *l); /* NULL is fine; ends a live line */
/* Appends all later lines to this file, too, each with its time in front: "2026-11-29 20:01:02 ".
 * For rank 0. */
rd_code rd_log_tee(rd_log *l, const char *path, rd_status *st);
/* Returns the text of a line of that file, behind its time if there is one. */
const char *rd_log_text(const char *line);
/* Returns whether `out` is a terminal. mpirun gives its ranks their own terminal. */
bool rd_log_is_tty(const rd_log *l);
/* Returns whether a terminal shows `out`, also through mpirun. */
bool rd_log_watched(const rd_log *l);
/* Returns how many columns a line of `out` has: COLUMNS if it is set, else those of the terminal,
 * else 80. At least 20. */
int rd_log_columns(const rd_log *l);
/* Returns whether terminals of this process get colours: TERM names one that has them, and NO_COLOR
 * is empty. In ranks of --np the launcher decides: RD_TERMINAL is "colours" or "plain" where a
 * terminal shows its output. */
bool rd_log_has_colours(void);
/* Appends a line with "error:" or "warning:" as a terminal of this width shows it: continued at a
 * blank and, with `colours`, that word in colour. */
void rd_log_show(rd_strbuf *out, const char *line, int columns, bool colours);
/* Shortens the ten seconds to a tenth of a second, for all logs of the process. Signal handlers may
 * call it. */
void rd_log_hurry(void);

/* Prints a line on rank 0. Other ranks print nothing. */
void rd_info(rd_log *l, const char *fmt, ...) RD_PRINTF(2, 3);
/* The same for good news, which a terminal shows in green. */
void rd_good(rd_log *l, const char *fmt, ...) RD_PRINTF(2, 3);
/* The same for a line whose end may be missing on a terminal: it is cut to the width. */
void rd_info_cut(rd_log *l, const char *fmt, ...) RD_PRINTF(2, 3);
/* Prints "warning: ..." on stderr and in run.log, on any rank. */
void rd_warn(rd_log *l, const char *fmt, ...) RD_PRINTF(2, 3);
/* Prints "run_dist: error: ..." on stderr and in run.log. */
void rd_error(rd_log *l, const rd_status *st);
/* Appends the line of rd_error to an existing file, in one write, and prints it nowhere else. It
 * serves run.log if a rank ends the job in place of rank 0. It waits for no other thread. */
void rd_error_append(const rd_log *l, const char *path, const rd_status *st);
/* Rewrites the live line of a terminal in place; NULL clears it. The live line is never in run.log.
 * Does nothing if `out` is not a terminal, and on ranks other than 0. */
void rd_live(rd_log *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

RD_C_END
#endif
