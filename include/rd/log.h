/* log.h -- what a person reads: stdout and, on rank 0, run.log. One write call per line, so that lines of many ranks
 * do not mix. Ranks other than 0 print warnings and errors only, with "[rank r, host] " in front. A terminal or pipe that
 * takes nothing for ten seconds holds nobody up: lines are left out there until it does, and then it says how many. */
#ifndef RD_LOG_H
#define RD_LOG_H

#include "rd/status.h"
#include <stdio.h>

RD_C_BEGIN

/* "1 line", "2 lines": ("%d line%s", n, RD_S(n)) */
#define RD_S(n) ((n) == 1 ? "" : "s")

typedef struct rd_log rd_log;

/* out: where info lines go (stdout; stderr when stdout carries results). tty is asked from out itself. */
rd_code rd_log_new(int rank, const char *host, FILE *out, rd_log **log, rd_status *st);
void rd_log_free(rd_log *l); /* NULL is fine; ends a live line */
rd_code rd_log_tee(rd_log *l, const char *path,
                   rd_status *st); /* rank 0: also append to this file */
bool rd_log_is_tty(const rd_log *l);
/* From now on a terminal or pipe has a tenth of a second for what it is behind. For signal handlers; of all logs. */
void rd_log_hurry(void);

void rd_info(rd_log *l, const char *fmt, ...) RD_PRINTF(2, 3); /* rank 0 only; others: nothing */
void rd_warn(rd_log *l, const char *fmt, ...)
    RD_PRINTF(2, 3); /* any rank: "warning: ..." on stderr and in run.log */
void rd_error(rd_log *l, const rd_status *st); /* "run_dist: error: ..." on stderr and in run.log */
/* The same line at the end of a file that is there, in one write, and nowhere else: for run.log, by a rank that ends the job in rank 0's
 * place. It waits for no other thread. */
void rd_error_append(const rd_log *l, const char *path, const rd_status *st);
/* The live line of a terminal: rewritten in place, never in run.log; NULL clears it. No-op where out is no terminal. */
void rd_live(rd_log *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

RD_C_END
#endif
