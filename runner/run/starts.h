/* starts.h -- starts.jsonl: how, when, where and by what program a training was started. */
#ifndef RD_RUN_STARTS_H
#define RD_RUN_STARTS_H

#include "run.h"

/* Collective. Appends the begin of this start to LOGDIR/starts.jsonl: command line, time, hosts,
 * versions, the keys that differ from config.json, which is that of the start before, and where the
 * weights come from. A record that cannot be written is a warning. */
rd_code starts_begin(rd_run *r, rd_status *st);

/* Appends its end: time, step, exit code and message. Does nothing where there is no begin. */
void starts_end(rd_run *r, const rd_status *st);

#endif
