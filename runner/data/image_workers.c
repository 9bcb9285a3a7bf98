/* image_workers.c -- threads that render the next batch while the model computes this one.
 *
 * There are two jobs: `ahead`, the announced batch, with its own buffer, and `now`, the batch being
 * fetched. If fetch asks for the announced batch, the fetching thread helps to finish it and copies
 * the result. (The copy takes a thousandth of the time of decoding.) A counter deals the samples in
 * small runs. A sample is a function of its id, so the result does not depend on which thread
 * renders it.
 *
 * A failure is kept with the position of its sample, and the lowest position wins: the message is
 * the same for every number of threads. The fetching thread reports damaged images, each once. */
#include "images_impl.h"
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>

enum { MAX_NAMED = 20, NOTES = 32 };

typedef struct note {
    int64_t sample;
    rd_rendered what;
} note;

typedef struct image_workers_job {
    bool active;
    int64_t *ids;
    int64_t n, cap, epoch;
    float *out;
    int64_t next;          /* position of the first sample not yet dealt */
    int64_t running, done; /* number of samples being rendered; rendered */
    int64_t failed_at;     /* position of the sample that failed with st; INT64_MAX: none */
    rd_status st;
} image_workers_job;

struct rd_workers {
    const rd_images *m;
    int64_t each, run;        /* floats per sample; samples dealt at a time */
    pthread_mutex_t fetching; /* one fetch at a time */
    pthread_mutex_t lock;     /* protects everything below */
    pthread_cond_t work, ready;
    image_workers_job now, ahead;
    float *buffer; /* output of ahead */
    size_t buffer_floats;
    bool stop;
    int n_threads, n_started;
    pthread_t *thread;
    rd_scratch scratch; /* used by the fetching thread */
    uint8_t *reported;  /* one bit per sample: it was damaged, and noted */
    note notes[NOTES];
    int n_notes;
    uint8_t *seen;                /* one bit per sample: it was rendered */
    int64_t n_seen;               /* number of different samples rendered */
    int64_t n_damaged, n_neutral; /* images decoded in part; replaced by grey */
    int64_t n_cut;                /* of n_damaged: files that end early */
    note first_bad;               /* the first unreadable image; else the first that is cut */
    int64_t n_named;              /* number of damaged images named in the log */
};

/* Notes a damaged sample, once. The caller holds the lock. */
static void add_note(rd_workers *w, int64_t sample, const rd_rendered *what)
{
    rd_assert(sample >= 0 && sample < w->m->head.n);
    if (w->reported[sample / 8] >> (sample % 8) & 1) return;
    w->reported[sample / 8] |= (uint8_t)(1u << (sample % 8));
    /* "Premature end of JPEG file" is TurboJPEG's; "the PNG ends ..." is png_read.c's. */
    const bool cut = what->answer == RD_DECODE_DAMAGED &&
                     (strstr(what->why, "Premature end") || strstr(what->why, " ends "));
    if (w->n_neutral == 0 && (what->answer == RD_DECODE_NONE || (cut && w->n_cut == 0)))
        w->first_bad = (note){sample, *what};
    w->n_cut += cut;
    *(what->answer == RD_DECODE_NONE ? &w->n_neutral : &w->n_damaged) += 1;
    if (w->n_notes < NOTES) w->notes[w->n_notes++] = (note){sample, *what};
}

/* Renders one run of job j; false: there is none left. The caller holds the lock; it is released in
 * between. */
static bool render_run(rd_workers *w, image_workers_job *j, rd_scratch *s)
{
    if (!j->active || j->next >= j->n) return false;
    const int64_t from = j->next, end = from + w->run < j->n ? from + w->run : j->n;
    rd_assert(end - from <= 64 && j->running >= 0);
    j->next = end;
    j->running += end - from;
    (void)pthread_mutex_unlock(&w->lock);
    rd_status st = {0};
    rd_rendered result[64]; /* w->run is at most 64 */
    int64_t k = from;
    for (; k < end && st.code == RD_OK; k++)
        (void)rd_render_sample(w->m, j->ids[k], j->epoch, s, j->out + k * w->each,
                               &result[k - from], &st);
    (void)pthread_mutex_lock(&w->lock);
    const int64_t good = st.code == RD_OK ? k : k - 1;
    for (int64_t i = from; i < good; i++) {
        const int64_t id = j->ids[i];
        if (!(w->seen[id / 8] >> (id % 8) & 1)) w->n_seen++;
        w->seen[id / 8] |= (uint8_t)(1u << (id % 8));
        if (w->m->result)
            w->m->result[id] = result[i - from];
        else if (result[i - from].answer != RD_DECODE_OK)
            add_note(w, id, &result[i - from]);
    }
    if (st.code != RD_OK && good < j->failed_at) {
        j->failed_at = good;
        j->st = st;
    }
    j->running -= end - from;
    j->done += end - from;
    rd_assert(j->running >= 0 && j->done + j->running <= j->n);
    if (j->running == 0) (void)pthread_cond_broadcast(&w->ready);
    return true;
}

static void *worker(void *arg)
{
    rd_workers *w = arg;
    rd_scratch s = {0};
    (void)pthread_mutex_lock(&w->lock);
    while (!w->stop)
        if (!render_run(w, &w->now, &s) && !render_run(w, &w->ahead, &s))
            (void)pthread_cond_wait(&w->work, &w->lock);
    (void)pthread_mutex_unlock(&w->lock);
    rd_scratch_release(&s);
    return NULL;
}

rd_code rd_workers_new(const rd_images *m, int n_threads, rd_workers **out, rd_status *st)
{
    rd_workers *w = calloc(1, sizeof *w);
    *out = w;
    if (!w) return rd_fail(st, RD_EENV, "out of memory");
    (void)pthread_mutex_init(&w->fetching, NULL);
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_cond_init(&w->work, NULL);
    (void)pthread_cond_init(&w->ready, NULL);
    w->m = m;
    w->each = m->render.h * m->render.w * m->render.c;
    w->run = 16384 / w->each; /* small images: about 20 us of work */
    w->run = w->run < 1 || m->head.h == 0 ? 1 : w->run > 64 ? 64 : w->run;
    w->reported = calloc((size_t)m->head.n / 8 + 1, 1);
    w->thread = calloc((size_t)n_threads + 1, sizeof *w->thread);
    w->seen = calloc((size_t)m->head.n / 8 + 1, 1);
    if (!w->reported || !w->seen || !w->thread) return rd_fail(st, RD_EENV, "out of memory");
    w->n_threads = n_threads;
    sigset_t all, before;
    (void)sigfillset(&all); /* the main thread handles signals */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = 0;
    while (w->n_started < n_threads &&
           (rc = pthread_create(&w->thread[w->n_started], NULL, worker, w)) == 0)
        w->n_started++;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return rd_fail(st, RD_EENV,
                       "cannot start thread %d of %d for input: %s; lower data_threads",
                       w->n_started + 1, n_threads, strerror(rc));
    return RD_OK;
}

void rd_workers_free(rd_workers *w)
{
    if (!w) return;
    (void)pthread_mutex_lock(&w->lock);
    w->stop = true;
    (void)pthread_cond_broadcast(&w->work);
    (void)pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n_started; i++) (void)pthread_join(w->thread[i], NULL);
    if (w->n_named > 0 && w->m->log)
        rd_warn(w->m->log,
                "%" PRId64 " damaged image%s decoded in part, %" PRId64 " replaced by grey",
                w->n_damaged, RD_S(w->n_damaged), w->n_neutral);
    rd_scratch_release(&w->scratch);
    (void)pthread_cond_destroy(&w->ready);
    (void)pthread_cond_destroy(&w->work);
    (void)pthread_mutex_destroy(&w->lock);
    (void)pthread_mutex_destroy(&w->fetching);
    free(w->now.ids);
    free(w->ahead.ids);
    free(w->buffer);
    free(w->reported);
    free(w->seen);
    free(w->thread);
    free(w);
}

/* Gives an idle job this batch; false: out of memory. The caller holds the lock. */
static bool set_job(image_workers_job *j, const int64_t *ids, int64_t n, int64_t epoch, float *out)
{
    if (j->cap < n) {
        free(j->ids);
        j->cap = 0;
        j->ids = malloc((size_t)n * sizeof *j->ids);
        if (!j->ids) return false;
        j->cap = n;
    }
    if (n > 0) memcpy(j->ids, ids, (size_t)n * sizeof *ids);
    rd_assert(!j->active || j->running == 0);
    j->n = n;
    j->epoch = epoch;
    j->out = out;
    j->next = j->running = j->done = 0;
    j->failed_at = INT64_MAX;
    j->st = (rd_status){0};
    j->active = true;
    return true;
}

/* Waits for the samples being rendered and drops the rest of the job. The caller holds the lock. */
static void drop_job(rd_workers *w, image_workers_job *j)
{
    j->next = j->n;
    while (j->running > 0) (void)pthread_cond_wait(&w->ready, &w->lock);
    j->active = false;
}

void rd_workers_prepare(rd_workers *w, const int64_t *ids, int64_t n, int64_t epoch)
{
    if (w->n_started == 0 || n == 0) return;
    (void)pthread_mutex_lock(&w->lock);
    drop_job(w, &w->ahead);
    const size_t floats = (size_t)(n * w->each);
    if (w->buffer_floats < floats) {
        free(w->buffer);
        w->buffer = aligned_alloc(64, (floats * sizeof *w->buffer + 127) / 64 * 64);
        w->buffer_floats = w->buffer ? floats : 0;
    }
    if (w->buffer && set_job(&w->ahead, ids, n, epoch, w->buffer))
        (void)pthread_cond_broadcast(&w->work);
    /* Without memory nothing is prepared; fetch reports it. */
    (void)pthread_mutex_unlock(&w->lock);
}

/* Renders along with the workers, then waits for them. The caller holds the lock. */
static void finish_job(rd_workers *w, image_workers_job *j)
{
    while (render_run(w, j, &w->scratch)) {
    }
    while (j->running > 0) (void)pthread_cond_wait(&w->ready, &w->lock);
}

/* Fails if too many images cannot be decoded. A few never are too many, unless they are most of
 * those that this rank has seen. So are files that are cut short, as by a copy that broke off. The
 * caller holds the lock. */
static rd_code check_bad(const rd_workers *w, rd_status *st)
{
    enum { FEW = 3, EARLY = 32 };
    const int64_t bad = w->n_neutral, seen = w->n_seen;
    const int64_t mine = (w->m->head.n + w->m->n_ranks - 1) / w->m->n_ranks;
    const int64_t of = seen > mine ? seen : mine, early = mine < EARLY ? mine : EARLY;
    const double max = w->m->max_bad;
    const bool cut = seen >= early && 2 * (bad + w->n_cut) > seen && bad + w->n_cut > FEW;
    const bool most = cut || (seen >= early && 2 * bad > seen);
    const bool many = (double)bad > max * (double)of && (bad > FEW || max <= 0.0);
    if (max >= 1.0 || (!most && !many)) return RD_OK;
    char name[512];
    rd_images_name(w->m, w->first_bad.sample, name, sizeof name);
    return rd_fail(st, RD_EDATA,
                   "%" PRId64 " of the %" PRId64
                   " images read so far cannot be decoded%s, such as '%s': %s; check the files, or "
                   "raise max_bad_images (%g)",
                   cut ? bad + w->n_cut : bad, seen, cut && w->n_cut > 0 ? " or are cut short" : "",
                   name, w->first_bad.what.why[0] ? w->first_bad.what.why : "damaged", max);
}

static void image_workers_report(rd_workers *w, const note *notes, int n)
{
    for (int i = 0; i < n && w->m->log; i++) {
        char name[512];
        if (w->n_named == MAX_NAMED)
            rd_warn(w->m->log, "further damaged images are counted but not named");
        if (w->n_named++ >= MAX_NAMED) continue;
        rd_images_name(w->m, notes[i].sample, name, sizeof name);
        rd_warn(w->m->log, "'%s': %s; %s", name,
                notes[i].what.why[0] ? notes[i].what.why : "damaged",
                notes[i].what.answer == RD_DECODE_NONE ? "replaced by a grey image"
                                                       : "used as far as it could be decoded");
    }
}

rd_code rd_workers_fetch(rd_workers *w, const int64_t *ids, int64_t n, int64_t epoch, float *out,
                         rd_status *st)
{
    note notes[NOTES];
    int n_notes;
    (void)pthread_mutex_lock(&w->fetching);
    (void)pthread_mutex_lock(&w->lock);
    image_workers_job *j = &w->ahead;
    const bool same = j->active && j->n == n && j->epoch == epoch &&
                      (n == 0 || memcmp(j->ids, ids, (size_t)n * sizeof *ids) == 0);
    if (!same) {
        j = &w->now;
        if (!set_job(j, ids, n, epoch, out))
            rd_fail(st, RD_EENV, "out of memory for a batch of %" PRId64, n);
        (void)pthread_cond_broadcast(&w->work);
    }
    if (st->code == RD_OK) {
        finish_job(w, j);
        if (j->st.code != RD_OK) rd_fail(st, j->st.code, "%s", j->st.msg);
    }
    j->active = false;
    if (st->code == RD_OK) (void)check_bad(w, st);
    n_notes = w->n_notes;
    memcpy(notes, w->notes, (size_t)n_notes * sizeof *notes);
    w->n_notes = 0;
    (void)pthread_mutex_unlock(&w->lock);
    /* Only prepare changes the buffer, and the fetching thread calls prepare. */
    if (same && st->code == RD_OK && n > 0)
        memcpy(out, w->buffer, (size_t)(n * w->each) * sizeof *out);
    image_workers_report(w, notes, n_notes);
    (void)pthread_mutex_unlock(&w->fetching);
    return st->code;
}
