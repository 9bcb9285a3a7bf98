/* progress.h -- shows how far a phase that lasts is, and how long it will take. */
#ifndef RD_RUN_PROGRESS_H
#define RD_RUN_PROGRESS_H

#include "run.h"

/* One phase. On a terminal a live line shows it from its first half second on. Elsewhere a line is
 * printed every minute, so short phases print nothing. */
typedef struct progress {
    rd_run *run;
    const char *what; /* "evaluation"; borrowed */
    const char *noun; /* "image": what is counted; borrowed. NULL: only the share is shown */
    int64_t all;      /* 0: not known */
    int64_t begin_ns, shown_ns;
    bool watched; /* a terminal shows the live line */
    bool files;   /* see progress_files */
    double last;  /* bytes when it last heard of them */
} progress;

/* Begins a phase of `all` steps. Only rank 0 shows something. */
void progress_start(progress *p, rd_run *r, const char *what, const char *noun, int64_t all);
/* Shows that `done` steps are done. */
void progress_at(progress *p, int64_t done);
/* The same for a rank's own share of steps that the ranks divide evenly. */
void progress_mine(progress *p, int64_t done_here);
/* Begins a phase that reads or writes arrays, such as a checkpoint. The functions of rd/npz.h and
 * the like say themselves how far they are. */
void progress_files(progress *p, rd_run *r, const char *what);
/* Ends the phase, and removes the live line. */
void progress_end(progress *p);

#endif
