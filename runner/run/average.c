/* average.c -- average mode: makes one checkpoint of several, without a model and without data. */
#include "progress.h"
#include "run_modes.h"
#include "rd/checkpoint.h"

#include <inttypes.h>
#include <stdlib.h>

static rd_code average_root(rd_run *r, rd_status *st)
{
    const bool best = r->cli->best > 0;
    const int n = (int)(best ? r->cli->best : r->cli->last);
    const int64_t begin_ns = rd_now_ns();
    rd_ckpt_parent *p = NULL;
    progress shown;
    char path[4096];
    progress_files(&shown, r, "reading checkpoints");
    (void)rd_ckpt_average(r->cli->logdir, n, best, &p, path, st);
    progress_end(&shown);
    RD_TRY(st->code);
    for (int i = 0; i < n; i++) {
        if (p[i].evaluated)
            rd_info(r->log, "  %s (%s %.6g)", p[i].name, p[i].figure, p[i].value);
        else
            rd_info(r->log, "  %s", p[i].name);
    }
    rd_info(r->log,
            "the mean of these %d checkpoint%s is %s (%.2f s); eval and infer use it with --set "
            "checkpoint=average, a new training with --set init_from=%s:average",
            n, RD_S(n), path, (double)(rd_now_ns() - begin_ns) * 1e-9, r->cli->logdir);
done:
    free(p);
    return st->code;
}

rd_code run_average(rd_run *r, rd_status *st)
{
    if (r->world->rank == 0) (void)average_root(r, st);
    return run_agree(r, st);
}
