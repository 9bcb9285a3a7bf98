/* runs_read.c -- reads the log folder of one run: what it was, how far it came, how it ended.
 *
 * The folder may be of another version of the program, may belong to a run that was killed in the
 * middle of a line, or may be no log folder at all. Each file is read for what it gives. Only
 * regular files are opened, so no pipe and no device can hold the program up, and the number of
 * bytes that are read of each file has a limit. */
#include "runs_impl.h"
#include "rd/checkpoint.h"
#include "rd/class_metric.h"
#include "rd/file.h"
#include "rd/input.h"
#include "rd/metric.h"
#include "rd/printable.h"

#include <archive.h>
#include <archive_entry.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const int64_t most_step = INT64_C(1000000000000000);
enum {
    CONFIG_MOST = 8 << 20, /* bytes of config.json and of a manifest */
    REPORT_MOST = 1 << 20, /* bytes of errors/rank_<r>.json */
    BLOCK = 1 << 20,       /* bytes read at once; a longer line is left out */
    LOG_TAIL = 256 << 10,  /* bytes at the end of run.log that tell how the run ended */
    LOG_BANNER = 32 << 20  /* bytes at its end in which the last start is searched */
};
static const int64_t metrics_most = INT64_C(4) << 30; /* bytes of a metrics.jsonl */

const char *runs_state_name(runs_state s)
{
    static const char *const names[] = {"running", "done", "stopped", "failed", "unknown"};
    return names[s];
}

void runs_path(const char *folder, const char *file, char out[RUNS_PATH])
{
    (void)snprintf(out, RUNS_PATH, "%.4000s/%.300s", folder, file);
}

static void read_damage(runs_facts *f, const char *what)
{
    if (!f->damage[0]) (void)snprintf(f->damage, sizeof f->damage, "%s", what);
}

static void read_printable(const char *s, size_t n, char *out, size_t cap)
{
    (void)rd_printable(s, n, false, out, cap);
}

/* ---- config.json ---- */

/* Reads a JSON object from a file. NULL: there is none. *there: something is at the path. */
static json_t *read_object(const char *path, size_t most, bool *there)
{
    rd_status own = {0};
    struct stat sb;
    char *text = NULL;
    size_t n = 0;
    json_t *o = NULL;
    *there = lstat(path, &sb) == 0;
    if (!*there) return NULL;
    if (rd_file_read_limited(path, RD_EDATA, most, "a record", &text, &n, &own) == RD_OK)
        o = json_loadb(text, n, 0, NULL);
    free(text);
    if (json_is_object(o)) return o;
    json_decref(o);
    return NULL;
}

/* Takes the values of {"key": {"value": v, "source": s}, ...}, or of {"key": v, ...}. */
static void read_config(runs_facts *f)
{
    char path[RUNS_PATH];
    const char *key;
    json_t *entry;
    bool there;
    runs_path(f->folder, "config.json", path);
    json_t *all = read_object(path, CONFIG_MOST, &there);
    if (!all) {
        read_damage(f, there ? "config.json cannot be read" : "config.json is missing");
        return;
    }
    json_object_foreach(all, key, entry)
    {
        json_t *v = json_is_object(entry) ? json_object_get(entry, "value") : entry;
        const char *source = json_string_value(json_object_get(entry, "source"));
        if (!v) continue;
        (void)json_object_set(f->config, key, v);
        if (!source || (strcmp(source, "default") != 0 && strcmp(source, "not set") != 0))
            (void)json_object_set_new(f->set, key, json_string(source ? source : ""));
    }
    json_decref(all);
}

/* ---- metrics.jsonl ---- */

int64_t runs_each_line(const char *path, runs_line_fn *fn, void *ctx)
{
    const char *kind;
    rd_runs_field fields[RD_RUNS_FIELDS];
    rd_input *in = rd_input_open(path, RD_MAYBE, &kind);
    char *block = in ? malloc(BLOCK) : NULL;
    int64_t at = 0, bad = block ? 0 : -1;
    size_t kept = 0;
    bool skip = false; /* the rest of a line that is too long */
    const int64_t size = in ? (int64_t)rd_input_stat(in)->st_size : 0;
    while (block) {
        if (size > metrics_most && at >= metrics_most / 2 && at < size - metrics_most / 2) {
            at = size - metrics_most / 2;
            skip = true;
            kept = 0;
        }
        const ssize_t got = rd_input_pread(in, block + kept, BLOCK - kept, at);
        if (got <= 0) break;
        at += got;
        const size_t n = kept + (size_t)got;
        size_t from = 0;
        for (;;) {
            const char *end = memchr(block + from, '\n', n - from);
            if (!end) break;
            const size_t len = (size_t)(end - (block + from));
            const int k = skip || len == 0 ? -1 : rd_runs_split(block + from, len, fields);
            if (k >= 0)
                fn(ctx, fields, k);
            else if (len > 0)
                bad += (int64_t)len;
            skip = false;
            from += len + 1;
        }
        kept = n - from;
        if (kept == BLOCK) {
            bad += BLOCK;
            kept = 0;
            skip = true;
        }
        if (from > 0 && kept > 0) memmove(block, block + from, kept);
    }
    /* The last line has no newline yet: a run is writing it, or its disk was full. */
    if (block && kept > 0 && !skip) {
        const int k = rd_runs_split(block, kept, fields);
        if (k >= 0) fn(ctx, fields, k);
    }
    free(block);
    rd_input_close(in);
    return bad;
}

/* What is collected from the records of the training. */
typedef struct training_sums {
    runs_facts *f;
    runs_curves *curves;
    const double *start; /* [n_starts] rising times of starts */
    int n_starts, next_start;
    double before; /* time of the record before; NAN: none */
    double least;  /* smallest mean loss */
    int64_t least_step;
} training_sums;

static double field_of(const rd_runs_field *f, int n, const char *key, const char *other)
{
    const double v = rd_runs_number(f, n, key);
    return isnan(v) && other ? rd_runs_number(f, n, other) : v;
}

/* Adds the time since the record before, or since the start in between. */
static void add_time(training_sums *t, double time)
{
    double from = t->before;
    while (t->next_start < t->n_starts && t->start[t->next_start] <= time) {
        from = t->start[t->next_start++];
        if (isnan(t->f->started)) t->f->started = from;
    }
    if (isnan(t->f->started)) t->f->started = time;
    if (!isnan(from) && time > from)
        t->f->seconds = (isnan(t->f->seconds) ? 0.0 : t->f->seconds) + (time - from);
    t->before = t->f->last_time = time;
}

static void on_training(void *ctx, const rd_runs_field *f, int n)
{
    static const char *const speeds[] = {"tokens_per_s", "images_per_s", "samples_per_s"};
    training_sums *t = ctx;
    const double step = rd_runs_number(f, n, "step");
    if (!(step >= 0.0 && step <= 1e15)) return;
    t->f->step = (int64_t)step;
    const double loss = field_of(f, n, "loss_mean", "loss"), time = rd_runs_number(f, n, "time");
    t->f->loss = loss;
    if (!isnan(loss) && (isnan(t->least) || loss < t->least)) {
        t->least = loss;
        t->least_step = t->f->step;
    }
    if (!isnan(time)) add_time(t, time);
    for (size_t i = 0; i < sizeof speeds / sizeof *speeds; i++) {
        const double v = rd_runs_number(f, n, speeds[i]);
        if (isnan(v)) continue;
        t->f->units_per_s = v;
        (void)snprintf(t->f->unit, sizeof t->f->unit, "%.*s", (int)strcspn(speeds[i], "_"),
                       speeds[i]);
        break;
    }
    if (!t->curves) return;
    runs_curve_add(&t->curves->loss, step, loss);
    runs_curve_add(&t->curves->rate, step, rd_runs_number(f, n, "learning_rate"));
}

static int by_time(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int runs_starts(const char *folder, double start[RUNS_STARTS])
{
    static const char prefix[] = "events.out.tfevents.";
    rd_folder list;
    int n = 0;
    if (rd_folder_list(folder, RD_MAYBE, &list) != 0) return 0;
    for (int64_t i = 0; i < list.n && n < RUNS_STARTS; i++) {
        const char *name = list.entry[i].name;
        char *end;
        if (strncmp(name, prefix, sizeof prefix - 1) != 0) continue;
        const double t = strtod(name + sizeof prefix - 1, &end);
        if (*end == '.' && t > 0.0 && t < 1e12) start[n++] = t;
    }
    rd_folder_release(&list);
    qsort(start, (size_t)n, sizeof *start, by_time);
    return n;
}

/* ---- eval/metrics.jsonl ---- */

/* The figures that may decide which evaluation is best, in the order of preference. */
enum { MOST_FIGURES = 8 };
typedef struct figures_known {
    rd_figure at[MOST_FIGURES];
    int n;
} figures_known;

static void figures_add(figures_known *k, const char *name, bool higher)
{
    if (k->n == MOST_FIGURES || !name[0]) return;
    (void)snprintf(k->at[k->n].name, sizeof k->at[k->n].name, "%s", name);
    k->at[k->n++].higher_is_better = higher;
}

/* Lists the first figure of the run's metric, then the one that decides for images. */
static void figures_of(const runs_facts *f, figures_known *k)
{
    const int64_t none[RD_METRIC_COUNTS] = {0};
    const char *name = json_string_value(json_object_get(f->config, "metric"));
    const rd_metric_def *m = rd_metric_find(name ? name : "");
    int n_defs, n = 0;
    const rd_class_metric_def *const *defs = rd_class_metric_defs(&n_defs);
    k->n = 0;
    rd_figure out[RD_METRIC_FIGURES] = {{.name = ""}};
    if (m) n = m->figures(none, out);
    if (n > 0) figures_add(k, out[0].name, out[0].higher_is_better);
    for (int i = 0; i < n_defs; i++) {
        int64_t counts[64] = {0};
        if (!defs[i]->decides || !defs[i]->figures || defs[i]->n_counts(2) > 64) continue;
        const rd_class_counts c = {.at = counts, .n_samples = 0, .n_classes = 2};
        if (defs[i]->figures(&c, out) > 0) figures_add(k, out[0].name, out[0].higher_is_better);
    }
}

typedef struct evaluation_sums {
    runs_facts *f;
    runs_curves *curves;
    figures_known known;
    int64_t n;         /* evaluations so far */
    int64_t until;     /* later steps are left out */
    double least_loss; /* NAN: none */
} evaluation_sums;

static bool field_there(const rd_runs_field *f, int n, const char *key)
{
    for (int i = 0; i < n; i++)
        if ((size_t)f[i].n_key == strlen(key) && !memcmp(f[i].key, key, (size_t)f[i].n_key))
            return true;
    return false;
}

/* Chooses the figure by the first evaluation. Accuracy decides for images, which have no
 * perplexity. */
static void choose_figure(evaluation_sums *e, const rd_runs_field *f, int n)
{
    const bool text = field_there(f, n, "perplexity");
    (void)snprintf(e->f->figure, sizeof e->f->figure, "loss");
    e->f->higher = false;
    const char *monitor = json_string_value(json_object_get(e->f->config, "best_monitor"));
    if (monitor && !strcmp(monitor, "loss")) return;
    for (int i = 0; i < e->known.n; i++) {
        const rd_figure *k = &e->known.at[i];
        if (!field_there(f, n, k->name) || (text && !strcmp(k->name, "accuracy"))) continue;
        (void)snprintf(e->f->figure, sizeof e->f->figure, "%s", k->name);
        e->f->higher = k->higher_is_better;
        return;
    }
}

static void on_evaluation(void *ctx, const rd_runs_field *f, int n)
{
    evaluation_sums *e = ctx;
    const double step = rd_runs_number(f, n, "step");
    if (!(step >= 0.0 && step <= (double)e->until)) return;
    if (e->n++ == 0) choose_figure(e, f, n);
    const double v = rd_runs_number(f, n, e->f->figure), loss = rd_runs_number(f, n, "loss");
    if (!(loss >= e->least_loss)) e->least_loss = loss;
    if (isnan(v)) return;
    e->f->last = v;
    if (e->curves) runs_curve_add(&e->curves->figure, step, v);
    if (!isnan(e->f->best) && (e->f->higher ? v <= e->f->best : v >= e->f->best)) return;
    e->f->best = v;
    e->f->best_step = (int64_t)step;
}

static void read_metrics(runs_facts *f, runs_curves *curves)
{
    char path[RUNS_PATH];
    static double start[RUNS_STARTS]; /* the program has one thread here */
    training_sums t = {.f = f,
                       .curves = curves,
                       .start = start,
                       .n_starts = runs_starts(f->folder, start),
                       .before = (double)NAN,
                       .least = (double)NAN};
    evaluation_sums e = {.f = f, .curves = curves, .until = most_step, .least_loss = (double)NAN};
    runs_path(f->folder, "metrics.jsonl", path);
    if (runs_each_line(path, on_training, &t) > 0)
        read_damage(f, "metrics.jsonl has lines that are not whole");
    figures_of(f, &e.known);
    runs_path(f->folder, "eval/metrics.jsonl", path);
    if (runs_each_line(path, on_evaluation, &e) > 0)
        read_damage(f, "eval/metrics.jsonl has lines that are not whole");
    if (!f->figure[0] && !isnan(t.least)) {
        (void)snprintf(f->figure, sizeof f->figure, "train loss");
        f->best = t.least;
        f->best_step = t.least_step;
        f->last = f->loss;
    }
    if (!curves) return;
    runs_curve_end(&curves->loss);
    runs_curve_end(&curves->figure);
    runs_curve_end(&curves->rate);
}

double runs_best_until(const runs_facts *f, int64_t step, double *loss)
{
    char path[4400];
    runs_facts part = {.config = f->config, .best = (double)NAN};
    evaluation_sums e = {.f = &part, .until = step, .least_loss = (double)NAN};
    runs_path(f->folder, "eval/metrics.jsonl", path);
    figures_of(&part, &e.known);
    (void)runs_each_line(path, on_evaluation, &e);
    *loss = e.least_loss;
    return part.best;
}

/* ---- run.log and errors/ ---- */

/* Reads at most `most` bytes at the end of a file. NULL: there is none. The caller owns it; one
 * '\0' follows. */
static char *read_tail(const char *path, int64_t most, size_t *n)
{
    const char *kind;
    rd_input *in = rd_input_open(path, RD_MAYBE, &kind);
    *n = 0;
    if (!in) return NULL;
    const int64_t size = (int64_t)rd_input_stat(in)->st_size;
    const int64_t from = size > most ? size - most : 0;
    const size_t want = (size_t)(size - from);
    char *text = malloc(want + 1);
    while (text && *n < want) {
        const ssize_t got = rd_input_pread(in, text + *n, want - *n, from + (int64_t)*n);
        if (got <= 0) break;
        *n += (size_t)got;
    }
    if (text) text[*n] = '\0';
    rd_input_close(in);
    return text;
}

/* Skips a time stamp, and the name of a rank in brackets, at the beginning of a line. */
static const char *log_text(const char *s, const char *end)
{
    const char *p = s;
    while (p < end && *p && strchr("0123456789-:.TZ+ ", *p)) p++;
    if (p < end && *p == '[') {
        const char *close = memchr(p, ']', (size_t)(end - p));
        if (close && close + 1 < end && close[1] == ' ') p = close + 2;
    }
    return p;
}

/* Returns the text behind a word that the line begins with; NULL: it does not. */
static const char *log_after(const char *s, const char *end, const char *word)
{
    const size_t n = strlen(word);
    return (size_t)(end - s) >= n && !memcmp(s, word, n) ? s + n : NULL;
}

/* "run_dist 1.2.3: train, config ..." begins a start. */
static bool begins_start(const char *s, const char *end)
{
    const char *p = log_after(s, end, "run_dist ");
    return p && p < end && *p >= '0' && *p <= '9' && memchr(p, ':', (size_t)(end - p));
}

/* Copies the word that s begins with, "max_steps". */
static void log_word(const char *s, const char *end, char out[24])
{
    size_t n = 0;
    while (s + n < end && n < 23 && ((s[n] >= 'a' && s[n] <= 'z') || s[n] == '_')) n++;
    memcpy(out, s, n);
    out[n] = '\0';
}

/* How the last start ended, by run.log. */
static void read_log_end(runs_facts *f)
{
    char path[RUNS_PATH];
    size_t n;
    runs_path(f->folder, "run.log", path);
    char *text = read_tail(path, LOG_TAIL, &n);
    f->state = RUNS_UNKNOWN;
    if (!text) return;
    bool started = n == LOG_TAIL; /* a line of a start may be before this part */
    char done_by[sizeof f->end] = "";
    for (const char *s = text; s < text + n;) {
        const char *end = memchr(s, '\n', (size_t)(text + n - s)), *p, *found;
        if (!end) end = text + n;
        p = log_text(s, end);
        if (begins_start(p, end)) {
            if (f->state == RUNS_DONE) (void)snprintf(done_by, sizeof done_by, "%s", f->end);
            started = true;
            f->state = RUNS_UNKNOWN;
            f->end[0] = f->why[0] = '\0';
            f->to_step = -1;
        } else if (log_after(p, end, "optimizer: ")) {
            found = memmem(p, (size_t)(end - p), "up to step ", 11);
            char number[32];
            size_t k = 0;
            for (found = found ? found + 11 : end;
                 found < end && k + 1 < sizeof number &&
                 ((*found >= '0' && *found <= '9') || *found == ',');
                 found++)
                if (*found != ',') number[k++] = *found;
            number[k] = '\0';
            if (k > 0 && k < 17) f->to_step = strtoll(number, NULL, 10);
        } else if (log_after(p, end, "done: step ")) {
            f->state = RUNS_DONE;
            found = memmem(p, (size_t)(end - p), ", ended by ", 11);
            log_word(found ? found + 11 : end, end, f->end);
        } else if (log_after(p, end, "nothing to do: ")) {
            f->state = RUNS_DONE;
            (void)snprintf(f->end, sizeof f->end, "%s", done_by);
        } else if (log_after(p, end, "stopped on request at step ")) {
            f->state = RUNS_STOPPED;
            (void)snprintf(f->end, sizeof f->end, "request");
        } else if ((found = log_after(p, end, "stopped by "))) {
            f->state = RUNS_STOPPED;
            log_word(found, end, f->end);
        } else if ((found = log_after(p, end, "run_dist: error: "))) {
            f->state = RUNS_FAILED;
            read_printable(found, (size_t)(end - found), f->why, sizeof f->why);
        }
        s = end + 1;
    }
    free(text);
    if (f->state == RUNS_UNKNOWN && started) {
        f->state = RUNS_FAILED;
        (void)snprintf(f->why, sizeof f->why,
                       "run.log has no end: the run was killed, or its host was lost");
    }
}

/* Takes the report of the lowest rank in errors/. A new start moves reports away. */
static void read_reports(runs_facts *f)
{
    char path[RUNS_PATH], best[300] = "";
    long lowest = -1;
    rd_folder list;
    bool there;
    runs_path(f->folder, "errors", path);
    if (rd_folder_list(path, RD_MAYBE, &list) != 0) return;
    for (int64_t i = 0; i < list.n; i++) {
        const char *name = list.entry[i].name;
        char *end;
        if (strncmp(name, "rank_", 5) != 0 || name[5] < '0' || name[5] > '9') continue;
        const long rank = strtol(name + 5, &end, 10);
        if (strcmp(end, ".json") != 0 || (lowest >= 0 && rank >= lowest)) continue;
        lowest = rank;
        (void)snprintf(best, sizeof best, "errors/%.200s", name);
    }
    rd_folder_release(&list);
    if (lowest < 0) return;
    runs_path(f->folder, best, path);
    json_t *o = read_object(path, REPORT_MOST, &there);
    f->state = RUNS_FAILED;
    f->end[0] = '\0';
    const char *why = json_string_value(json_object_get(o, "message"));
    const json_int_t code = json_integer_value(json_object_get(o, "exit_code"));
    if (code > 0 && code < 256) f->exit_code = (int)code;
    if (why)
        read_printable(why, strlen(why), f->why, sizeof f->why);
    else
        (void)snprintf(f->why, sizeof f->why, "%s cannot be read", best);
    json_decref(o);
}

/* Finds the last start in a text of run.log. */
static const char *last_start(const char *text, size_t n)
{
    const char *found = NULL;
    for (const char *s = text; s < text + n;) {
        const char *end = memchr(s, '\n', (size_t)(text + n - s));
        if (!end) end = text + n;
        const char *p = log_text(s, end);
        if (begins_start(p, end)) found = s;
        s = end + 1;
    }
    return found;
}

void runs_banner_read(const char *folder, runs_banner *out)
{
    char path[RUNS_PATH];
    size_t n;
    const struct {
        const char *begins;
        char *to;
        size_t cap;
    } lines[] = {
        {"world: ", out->world, sizeof out->world},
        {"device: ", out->device, sizeof out->device},
        {"model: ", out->model, sizeof out->model},
        {"data: ", out->data, sizeof out->data},
        {"vocabulary: ", out->vocabulary, sizeof out->vocabulary},
        {"images: ", out->vocabulary, sizeof out->vocabulary},
        {"global batch: ", out->batch, sizeof out->batch},
        {"optimizer: ", out->optimizer, sizeof out->optimizer},
    };
    *out = (runs_banner){.program = ""};
    runs_path(folder, "run.log", path);
    char *text = read_tail(path, LOG_BANNER, &n);
    const char *s = text ? last_start(text, n) : NULL;
    for (int i = 0; s && s < text + n && i < 64; i++) {
        const char *end = memchr(s, '\n', (size_t)(text + n - s));
        if (!end) end = text + n;
        const char *p = log_text(s, end);
        const char *colon = memchr(p, ':', (size_t)(end - p));
        if (i == 0 && colon) {
            read_printable(p, (size_t)(colon - p), out->program, sizeof out->program);
            if (colon + 2 < end)
                read_printable(colon + 2, (size_t)(end - colon - 2), out->config,
                               sizeof out->config);
        }
        for (size_t k = 0; i > 0 && k < sizeof lines / sizeof *lines; k++) {
            const char *value = log_after(p, end, lines[k].begins);
            if (value && !lines[k].to[0])
                read_printable(value, (size_t)(end - value), lines[k].to, lines[k].cap);
        }
        s = end + 1;
    }
    free(text);
}

/* ---- a checkpoint's manifest ---- */

json_t *runs_manifest(const char *folder)
{
    char path[RUNS_PATH], name[64];
    const char *kind;
    json_t *o = NULL;
    const int64_t step = rd_ckpt_newest_step(folder);
    struct archive *a = NULL;
    struct archive_entry *e;
    rd_input *in = NULL;
    static const char *const prefix[] = {"model", "best"};
    for (int i = 0; i < 2 && !in && step >= 0; i++) {
        (void)snprintf(name, sizeof name, "%s-%" PRId64 ".npz", prefix[i], step);
        runs_path(folder, name, path);
        in = rd_input_open(path, RD_MAYBE, &kind);
    }
    if (!in) return NULL;
    a = archive_read_new();
    if (a && archive_read_support_format_zip_seekable(a) == ARCHIVE_OK &&
        rd_input_archive(in, a) == ARCHIVE_OK) {
        while (!o && archive_read_next_header(a, &e) == ARCHIVE_OK) {
            const char *member = archive_entry_pathname(e);
            if (!member || strcmp(member, "manifest.json") != 0) continue;
            char *text = malloc(CONFIG_MOST);
            const la_ssize_t n = text ? archive_read_data(a, text, CONFIG_MOST) : -1;
            if (n > 0 && n < CONFIG_MOST) o = json_loadb(text, (size_t)n, 0, NULL);
            free(text);
            break;
        }
    }
    (void)archive_read_free(a);
    rd_input_close(in);
    if (json_is_object(o)) return o;
    json_decref(o);
    return NULL;
}

/* ---- the folder ---- */

rd_code runs_read(const char *folder, const char *name, runs_facts *out, runs_curves *curves,
                  rd_status *st)
{
    rd_strbuf shown = {0};
    rd_printable_add(&shown, name, strlen(name));
    *out = (runs_facts){.folder = strdup(folder),
                        .name = shown.failed || !shown.s ? NULL : strdup(shown.s),
                        .state = RUNS_UNKNOWN,
                        .step = -1,
                        .to_step = -1,
                        .best_step = -1,
                        .seconds = (double)NAN,
                        .started = (double)NAN,
                        .last_time = (double)NAN,
                        .loss = (double)NAN,
                        .units_per_s = (double)NAN,
                        .best = (double)NAN,
                        .last = (double)NAN,
                        .config = json_object(),
                        .set = json_object()};
    rd_strbuf_release(&shown);
    if (!out->folder || !out->name || !out->config || !out->set) {
        runs_facts_release(out);
        return rd_fail(st, RD_EENV, "out of memory for the runs");
    }
    read_config(out);
    read_metrics(out, curves);
    read_log_end(out);
    read_reports(out);
    if (rd_logdir_in_use(folder)) {
        out->state = RUNS_RUNNING;
        out->end[0] = '\0';
        out->exit_code = 0;
        out->why[0] = '\0';
    }
    return RD_OK;
}

void runs_facts_release(runs_facts *f)
{
    free(f->folder);
    free(f->name);
    json_decref(f->config);
    json_decref(f->set);
    *f = (runs_facts){.folder = NULL};
}
