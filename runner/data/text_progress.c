/* text_progress.c -- reports how far a long reading of text is. */
#include "text_impl.h"
#include "rd/clock.h"
#include <inttypes.h>

enum { LIVE_MS = 500, FIRST_MS = 10000, NEXT_MS = 30000, LINES = 4096 };

void rd_progress_start(rd_progress *p, rd_log *log, const char *what, int64_t all)
{
    const int64_t now = rd_now_ns();
    *p = (rd_progress){.log = log,
                       .what = what,
                       .noun = "lines",
                       .all = all,
                       .begin_ns = now,
                       .live_ns = now + LIVE_MS * INT64_C(1000000),
                       .line_ns = now + FIRST_MS * INT64_C(1000000)};
}

void rd_progress_at(rd_progress *p, int64_t lines, const rd_lines *l)
{
    if (p && p->log && lines % LINES == 0)
        rd_progress_bytes(p, lines, rd_lines_bytes(l), rd_lines_disk(l));
}

void rd_progress_bytes(rd_progress *p, int64_t lines, int64_t bytes, int64_t done)
{
    char a[32], b[32], left[48] = "", eta[32];
    if (!p || !p->log) return;
    const int64_t now = rd_now_ns();
    if (now < p->live_ns && now < p->line_ns) return;
    const double s = (double)(now - p->begin_ns) * 1e-9, mb = (double)bytes * 1e-6;
    rd_commas((double)lines, a);
    rd_commas(mb, b);
    if (done > 0 && p->all >= done)
        (void)snprintf(left, sizeof left, ", eta %s",
                       rd_duration_text(s * (double)(p->all - done) / (double)done, eta));
    if (now >= p->line_ns) {
        rd_live(p->log, NULL);
        rd_info(p->log, "%s: %s %s, %s MB in %.0f s%s", p->what, a, p->noun, b, s, left);
        p->line_ns = now + NEXT_MS * INT64_C(1000000);
    } else {
        rd_live(p->log, "%s: %s %s, %s MB, %.1f MB/s%s", p->what, a, p->noun, b, mb / s, left);
        p->shown = true;
    }
    p->live_ns = now + LIVE_MS * INT64_C(1000000);
}

void rd_progress_end(rd_progress *p)
{
    if (p->shown) rd_live(p->log, NULL);
}
