/* console.h -- lines for the user: one per summary, and a live line on a terminal. */
#ifndef RD_RUN_CONSOLE_H
#define RD_RUN_CONSOLE_H

#include "recorder.h"

/* Prints the line of a summary. */
void console_step(rd_run *r, const step_record *s);

/* Does a terminal show this output, so that a live line makes sense? */
bool console_watched(const rd_run *r);
void console_live(rd_run *r, const step_record *s);

/* Prints the texts of a training sample. */
void console_sample(rd_run *r, const char *source, const char *target, const char *predicted);

/* Returns a NaN without its sign, so that no "-nan" is printed; other numbers unchanged. */
double console_real(double v);

#endif
