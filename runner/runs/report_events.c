/* report_events.c -- takes the samples, the mistakes and the confusion matrix of a run from its
 * event files.
 *
 * The newest files are read first, and a run's last samples count. The number of bytes that are
 * read has a limit, for histograms make the files large. */
#include "report_impl.h"
#include "rd/input.h"
#include "rd/records.h"

#include <stdlib.h>
#include <string.h>

static const int64_t events_most = INT64_C(2) << 30; /* bytes of a folder's event files */
enum { MOST_FILES = 4096, TEXT_MOST = 1 << 20 };

/* Takes over the bytes, if they are newer than the record. */
static void record_take(report_record *r, int64_t step, const void *p, size_t n)
{
    if (step <= r->step) return;
    char *copy = malloc(n + 1);
    if (!copy) return;
    memcpy(copy, p, n);
    copy[n] = '\0';
    free(r->bytes);
    *r = (report_record){.step = step, .bytes = copy, .n = n};
}

/* Keeps the samples with the largest steps. Of two of a step the first counts: newer files come
 * first. */
static void sample_take(report_extras *x, int64_t step, const char *p, size_t n)
{
    int at = 0;
    while (at < x->n_samples && x->sample[at].step > step) at++;
    if (at == REPORT_SAMPLES || (at < x->n_samples && x->sample[at].step == step)) return;
    char *text = malloc(n + 1);
    if (!text) return;
    memcpy(text, p, n);
    text[n] = '\0';
    if (x->n_samples == REPORT_SAMPLES) free(x->sample[--x->n_samples].text);
    memmove(x->sample + at + 1, x->sample + at, sizeof *x->sample * (size_t)(x->n_samples - at));
    x->sample[at] = (report_sample){.step = step, .text = text};
    x->n_samples++;
}

static void on_blob(void *ctx, const rd_event_blob *e)
{
    report_extras *x = ctx;
    if (!e->image && e->n > TEXT_MOST) return;
    if (!strcmp(e->tag, "sample") && !e->image)
        sample_take(x, e->step, (const char *)e->bytes, e->n);
    else if (!strcmp(e->tag, "mistakes") && e->image)
        record_take(&x->pictures, e->step, e->bytes, e->n);
    else if (!strcmp(e->tag, "mistakes/names") && !e->image)
        record_take(&x->names, e->step, e->bytes, e->n);
    else if (!strcmp(e->tag, "mistakes/confusion_counts") && !e->image)
        record_take(&x->confusion, e->step, e->bytes, e->n);
    else if (!strcmp(e->tag, "mistakes/confusions") && !e->image)
        record_take(&x->confusions, e->step, e->bytes, e->n);
}

static int by_name_down(const void *a, const void *b)
{
    return strcmp(*(char *const *)b, *(char *const *)a);
}

/* Reads the event files of a folder, the newest first: their names begin with their time. */
static void scan_folder(const char *folder, const char *const *tags, report_extras *x)
{
    char path[RUNS_PATH], **names = malloc(MOST_FILES * sizeof *names);
    rd_folder list;
    int n = 0;
    int64_t left = events_most;
    if (!names || rd_folder_list(folder, RD_MAYBE, &list) != 0) {
        free(names);
        return;
    }
    for (int64_t i = 0; i < list.n && n < MOST_FILES; i++)
        if (!strncmp(list.entry[i].name, "events.out.tfevents.", 20))
            names[n++] = list.entry[i].name;
    qsort(names, (size_t)n, sizeof *names, by_name_down);
    for (int i = 0; i < n && left > 0; i++) {
        runs_path(folder, names[i], path);
        left -= rd_events_scan(path, tags, left, on_blob, x);
    }
    rd_folder_release(&list);
    free(names);
}

void report_extras_read(const char *folder, report_extras *out)
{
    static const char *const of_training[] = {"sample", NULL};
    static const char *const of_evaluations[] = {"mistakes", NULL};
    char path[RUNS_PATH];
    *out = (report_extras){
        .pictures.step = -1, .names.step = -1, .confusion.step = -1, .confusions.step = -1};
    scan_folder(folder, of_training, out);
    runs_path(folder, "eval", path);
    scan_folder(path, of_evaluations, out);
}

void report_extras_release(report_extras *x)
{
    for (int i = 0; i < x->n_samples; i++) free(x->sample[i].text);
    free(x->pictures.bytes);
    free(x->names.bytes);
    free(x->confusion.bytes);
    free(x->confusions.bytes);
    *x = (report_extras){.n_samples = 0};
}
