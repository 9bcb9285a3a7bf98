/* prepare.c -- prepare mode: makes what a training makes of its text, and ends.
 *
 * That is a subword model and vocabularies, in the log folder. A training with the same --logdir
 * then begins with them. */
#include "run_modes.h"
#include "setup.h"
#include "train_impl.h"

rd_code run_prepare(rd_run *r, rd_status *st)
{
    trainer t = {.run = r};
    const char *name = setup_dataset_name(r);
    const rd_dataset_def *def = rd_dataset_find(name);
    if (def && !def->prepares)
        rd_fail(st, RD_EUSAGE,
                "mode prepare has nothing to do for dataset %s; train at once, this mode makes the "
                "vocabularies of texts",
                def->name);
    RD_TRY(run_agree(r, st));
    RD_TRY(train_open_logdir(&t, st));
    RD_TRY(setup_data(r, RD_SPLIT_TRAIN, &r->train_data, st));
    rd_info(r->log, "prepared; train with --logdir=%s", r->cli->logdir);
done:
    return st->code;
}
