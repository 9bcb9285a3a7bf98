/* shadow.h -- a folder that stands for the log folder while --check reads the data. */
#ifndef RD_PLAN_SHADOW_H
#define RD_PLAN_SHADOW_H

#include "../run/run.h"

/* Collective. Makes the folder where the dataset keeps something in the log folder, such as a
 * vocabulary, and names it in r->shadow. */
rd_code shadow_new(rd_run *r, rd_status *st);
/* Removes it, and puts the name of the log folder for its name into a failure. */
void shadow_free(rd_run *r, rd_status *st);

#endif
