/* run_modes.h -- the modes of this folder. modes.c calls them. */
#ifndef RD_RUN_MODES_H
#define RD_RUN_MODES_H

#include "run.h"

/* Collective. --mode=train and train_eval. */
rd_code run_train(rd_run *r, rd_status *st);

/* Collective. --mode=eval. */
rd_code run_eval(rd_run *r, rd_status *st);

/* Collective. --mode=prepare. */
rd_code run_prepare(rd_run *r, rd_status *st);

/* Collective. --mode=infer. */
rd_code run_infer(rd_run *r, rd_status *st);

/* Collective. --mode=infer of image models; run_infer calls it. */
rd_code run_predict(rd_run *r, rd_status *st);

/* Collective. --mode=export. */
rd_code run_export(rd_run *r, rd_status *st);

/* Collective. --mode=average, which needs no config. */
rd_code run_average(rd_run *r, rd_status *st);

#endif
