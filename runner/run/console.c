/* console.c -- lines for the user: one per summary, and a live line on a terminal in between. */
#include "console.h"
#include "rd/clock.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

double console_real(double v)
{
    /* Not fabs(v): gcc takes exp(x) for positive and leaves fabs out. Its NaN can have a sign. */
    return isnan(v) ? (double)NAN : v;
}

static void describe_image(const rd_run *r, const step_record *s, char *out, size_t n)
{
    char speed[32];
    (void)snprintf(out, n, "  loss %.4f%s  lr %.4g  %s %s/s  input wait %.1f %%",
                   console_real(s->loss), s->class_line, s->learning_rate,
                   rd_commas(s->samples_per_s, speed), r->model->unit ? r->model->unit : "samples",
                   100.0 * s->input_wait);
}

static void describe_text(const step_record *s, char *out, size_t n)
{
    char all[32], target[32];
    (void)snprintf(out, n, "  loss %.4f  ppl %.4g  lr %.4g  %s tokens/s (%s target)",
                   console_real(s->loss), console_real(exp(s->nll_per_token)), s->learning_rate,
                   rd_commas(s->tokens_per_s, all), rd_commas(s->target_tokens_per_s, target));
}

/* The terminal may cut the end of a live line, so there the remaining time comes early. */
static void console_describe(const rd_run *r, const step_record *s, bool live, char *out, size_t n)
{
    char figures[640], count[32], time[32], eta[48];
    if (run_is_image(r))
        describe_image(r, s, figures, sizeof figures);
    else
        describe_text(s, figures, sizeof figures);
    (void)snprintf(eta, sizeof eta, "  eta %s", rd_duration_text(s->eta_s, time));
    (void)snprintf(out, n, "step %s  epoch %.2f%s%s%s", rd_commas((double)s->step, count),
                   (double)s->epoch + s->epoch_part, live ? eta : "", figures, live ? "" : eta);
}

void console_step(rd_run *r, const step_record *s)
{
    char line[768], comm[48] = "";
    console_describe(r, s, false, line, sizeof line);
    if (s->ranks)
        (void)snprintf(comm, sizeof comm, "  exchange %.1f %%", 100.0 * s->ranks->exposed_share);
    rd_info(r->log, "%s  norm %.4g  %.4g s/step%s", line, console_real(s->grad_norm), s->step_s,
            comm);
}

/* mpirun gives its ranks their own terminal even when its output goes to a file. What matters is
 * mpirun's standard output. */
bool console_watched(const rd_run *r)
{
    char link[64], target[64];
    if (!rd_log_is_tty(r->log)) return false;
    if (strcmp(r->world->comm, "self") == 0) return true;
    (void)snprintf(link, sizeof link, "/proc/%d/fd/1", (int)getppid());
    const ssize_t n = readlink(link, target, sizeof target - 1);
    target[n > 0 ? n : 0] = '\0';
    return strncmp(target, "/dev/pts/", 9) == 0 || strncmp(target, "/dev/tty", 8) == 0 ||
           strcmp(target, "/dev/console") == 0;
}

void console_live(rd_run *r, const step_record *s)
{
    char line[768];
    console_describe(r, s, true, line, sizeof line);
    rd_live(r->log, "%s", line);
}

void console_sample(rd_run *r, const char *source, const char *target, const char *predicted)
{
    rd_info(r->log, "  Train Source[0]:     %s", source);
    rd_info(r->log, "  Train Target[0]:     %s", target);
    rd_info(r->log, "  Train Prediction[0]: %s", predicted);
}
