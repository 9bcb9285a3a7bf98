/* signals.h -- requests from outside: save, stop. */
#ifndef RD_RUN_SIGNALS_H
#define RD_RUN_SIGNALS_H

#include "rd/log.h"

#include <stdbool.h>
#include <stdint.h>

/* Installs the handlers. TERM, INT, USR2 and HUP: save and stop; a second one: exit at once. USR1:
 * save. log: reports a request to stop that takes longer than a second; borrowed until
 * signals_quiet. NULL: does not. */
void signals_start(rd_log *log);
/* Reports no request any more. */
void signals_quiet(void);

/* Sets the time of rd_now_ns() from which on signals_stop returns SIGNALS_LATE; 0: never. */
void signals_limit(int64_t at_ns);
/* Returns the number of seconds until that time, at least 0; INFINITY: there is none. */
double signals_left_s(void);

/* Returns the number of the signal that asked to stop, SIGNALS_LATE, or 0. */
enum { SIGNALS_LATE = -1 };
int signals_stop(void);

/* Returns true once per USR1. */
bool signals_take_save(void);

#endif
