/* signals.h -- requests from outside: save, stop. */
#ifndef RD_RUN_SIGNALS_H
#define RD_RUN_SIGNALS_H

#include <stdbool.h>

/* Installs the handlers. TERM, INT, USR2 and HUP: save and stop; a second one: exit at once. USR1:
 * save. */
void signals_start(void);

/* Returns the number of the signal that asked to stop, or 0. */
int signals_stop(void);

/* Returns true once per USR1. */
bool signals_take_save(void);

#endif
