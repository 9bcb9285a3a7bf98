/* progress.c -- how far a phase is, see progress.h. */
#include "progress.h"
#include "console.h"
#include "rd/npz.h"

void progress_start(progress *p, rd_run *r, const char *what, const char *noun, int64_t all)
{
    const int64_t now = rd_now_ns();
    *p = (progress){.run = r,
                    .what = what,
                    .noun = noun,
                    .all = all,
                    .begin_ns = now,
                    .shown_ns = now,
                    .watched = r->world->rank == 0 && console_watched(r)};
}

void progress_at(progress *p, int64_t done)
{
    static const int64_t live_ns = INT64_C(500000000), line_ns = INT64_C(60000000000);
    const int64_t now = rd_now_ns();
    char a[32], b[32], eta[32], count[96] = "", line[192];
    if (!p->run || p->run->world->rank != 0 || done < 1) return;
    if (now - p->shown_ns < (p->watched ? live_ns : line_ns)) return;
    p->shown_ns = now;
    if (p->all > 0 && done > p->all) done = p->all;
    if (p->all > 0 && p->noun)
        (void)snprintf(count, sizeof count, "%s of %s %s%s  ", rd_commas((double)done, a),
                       rd_commas((double)p->all, b), p->noun, RD_S(p->all));
    if (p->all > 0)
        (void)snprintf(line, sizeof line, "%s: %s%.0f %%  eta %s", p->what, count,
                       100.0 * (double)done / (double)p->all,
                       rd_duration_text((double)(now - p->begin_ns) * 1e-9 *
                                            (double)(p->all - done) / (double)done,
                                        eta));
    else
        (void)snprintf(line, sizeof line, "%s: %s %s%s", p->what, rd_commas((double)done, a),
                       p->noun, RD_S(done));
    if (p->watched)
        rd_live(p->run->log, "%s", line);
    else
        rd_info(p->run->log, "%s", line);
}

void progress_mine(progress *p, int64_t done_here)
{
    if (p->run) progress_at(p, done_here * p->run->world->size);
}

/* Called with bytes. */
static void progress_of_file(void *ctx, double done, double all)
{
    progress *p = ctx;
    if (done < p->last) p->begin_ns = rd_now_ns(); /* another file */
    p->last = done;
    p->all = (int64_t)all;
    if (all >= 1.0) progress_at(p, (int64_t)done);
}

void progress_files(progress *p, rd_run *r, const char *what)
{
    progress_start(p, r, what, NULL, 1);
    p->files = true;
    rd_arrays_on_progress(progress_of_file, p);
}

void progress_end(progress *p)
{
    if (p->files) rd_arrays_on_progress(NULL, NULL);
    p->files = false;
    if (p->run && p->watched) rd_live(p->run->log, NULL);
    p->run = NULL;
}
