/* report_table.c -- reads the figures of metrics.jsonl for the curves of the report.
 *
 * A row holds the mean, the smallest and the largest value of as many lines as the table needs to
 * stay within its rows, so a spike is seen in a run of any length. In the page a value has 16 bits:
 * its place between the smallest and the largest of its column, on a scale of logarithms if they
 * are far apart. A figure that never changes is one number. */
#include "report_impl.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Fields that are no figures to draw. */
static bool column_ignored(const char *name, size_t n)
{
    static const char *const ignored[] = {
        "step",    "time",         "epoch",      "epoch_samples", "epoch_samples_hash",
        "samples", "slowest_rank", "comm_bytes", "targets",       "comm_wire_bytes"};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (strlen(ignored[i]) == n && !memcmp(ignored[i], name, n)) return true;
    return false;
}

static void column_start(report_column *c)
{
    c->n = 0;
    c->sum = 0.0;
    c->least = INFINITY;
    c->most = -INFINITY;
}

/* Finds a column, or makes it. Names come in the same order in each line, so the search begins at
 * `hint`. NULL: there are too many, or the name has other characters than ours. */
static report_column *column_of(report_table *t, const char *name, size_t n, int hint)
{
    for (int i = 0; i < t->n_columns; i++) {
        report_column *c = &t->column[(hint + i) % t->n_columns];
        if (strlen(c->name) == n && !memcmp(c->name, name, n)) return c;
    }
    if (t->n_columns == REPORT_COLUMNS || n == 0 || n >= REPORT_NAME) return NULL;
    for (size_t i = 0; i < n; i++)
        if (name[i] < ' ' || name[i] > '~' || name[i] == '\\') return NULL;
    report_column *c = &t->column[t->n_columns];
    c->mean = malloc(3 * (size_t)t->cap * sizeof *c->mean);
    if (!c->mean) {
        t->failed = true;
        return NULL;
    }
    c->low = c->mean + t->cap;
    c->high = c->low + t->cap;
    for (int i = 0; i < 3 * t->cap; i++) c->mean[i] = NAN;
    memcpy(c->name, name, n);
    c->name[n] = '\0';
    column_start(c);
    t->n_columns++;
    return c;
}

static void column_add(report_column *c, double v)
{
    if (!c || !isfinite(v) || fabs(v) > 1e30) return;
    c->sum += v;
    c->n++;
    c->least = fmin(c->least, v);
    c->most = fmax(c->most, v);
}

static float pair_mean(float a, float b)
{
    return isnan(a) ? b : isnan(b) ? a : 0.5f * a + 0.5f * b;
}

/* Makes one row of rows a and b; b = a: of one row. */
static void row_join(report_table *t, int a, int b, int to)
{
    t->step[to] = 0.5 * (t->step[a] + t->step[b]);
    t->time[to] = 0.5 * (t->time[a] + t->time[b]);
    for (int i = 0; i < t->n_columns; i++) {
        report_column *c = &t->column[i];
        c->mean[to] = pair_mean(c->mean[a], c->mean[b]);
        c->low[to] = fminf(c->low[a], c->low[b]);
        c->high[to] = fmaxf(c->high[a], c->high[b]);
    }
}

static void table_halve(report_table *t)
{
    for (int i = 0; i < t->n / 2; i++) row_join(t, 2 * i, 2 * i + 1, i);
    t->n /= 2;
    t->stride *= 2;
}

/* Makes room for a row at place `to`. */
static void table_shift(report_table *t, int to)
{
    const size_t k = (size_t)(t->n - to);
    memmove(t->step + to + 1, t->step + to, k * sizeof *t->step);
    memmove(t->time + to + 1, t->time + to, k * sizeof *t->time);
    for (int i = 0; i < t->n_columns; i++) {
        report_column *c = &t->column[i];
        memmove(c->mean + to + 1, c->mean + to, k * sizeof *c->mean);
        memmove(c->low + to + 1, c->low + to, k * sizeof *c->low);
        memmove(c->high + to + 1, c->high + to, k * sizeof *c->high);
    }
}

/* Stores the row that is not whole yet. A row of evaluations takes its place by its step, and
 * replaces that of an earlier evaluation of the step. */
static void table_row(report_table *t)
{
    const double step = t->step_sum / (double)t->filled;
    int to = t->n;
    while (t->by_step && to > 0 && t->step[to - 1] >= step) to--;
    if (to == t->n || t->step[to] != step) {
        table_shift(t, to);
        t->n++;
    }
    t->step[to] = step;
    t->time[to] = t->time_sum / (double)t->filled;
    for (int i = 0; i < t->n_columns; i++) {
        report_column *c = &t->column[i];
        c->mean[to] = c->n > 0 ? (float)(c->sum / (double)c->n) : NAN;
        c->low[to] = c->n > 0 ? (float)c->least : NAN;
        c->high[to] = c->n > 0 ? (float)c->most : NAN;
        column_start(c);
    }
    t->filled = 0;
    t->step_sum = t->time_sum = 0.0;
}

/* Seconds of training until a time; pauses between starts do not count. */
static void table_clock(report_table *t, double time)
{
    double from = t->time_before;
    while (t->next_start < t->n_starts && t->start[t->next_start] <= time)
        from = t->start[t->next_start++];
    if (isnan(t->seconds)) t->seconds = 0.0;
    if (!isnan(from) && time > from) t->seconds += time - from;
    t->time_before = time;
}

static void on_line(void *ctx, const rd_runs_field *f, int n)
{
    report_table *t = ctx;
    const double step = rd_runs_number(f, n, "step"), time = rd_runs_number(f, n, "time");
    int hint = 0;
    if (!(step >= 0.0 && step <= 1e15) || t->failed) return;
    if (t->by_step ? t->stride > 1 && step < t->last_step : step <= t->last_step) return;
    if (!isnan(time)) table_clock(t, time);
    for (int i = 0; i < n; i++) {
        const char first = f[i].text[0];
        if ((first != '-' && (first < '0' || first > '9')) ||
            column_ignored(f[i].key, (size_t)f[i].n_key))
            continue;
        report_column *c = column_of(t, f[i].key, (size_t)f[i].n_key, hint);
        if (!c) continue;
        hint = (int)(c - t->column) + 1;
        column_add(c, rd_runs_number(&f[i], 1, c->name));
    }
    const double exposed = rd_runs_number(f, n, "comm_exposed_s"),
                 whole = rd_runs_number(f, n, "step_s");
    if (exposed >= 0.0 && whole > 0.0)
        column_add(column_of(t, "exchange_share", 14, hint), fmin(exposed / whole, 1.0));
    t->last_step = step;
    t->step_sum += step;
    t->time_sum += t->seconds;
    if (++t->filled < t->stride) return;
    table_row(t);
    if (t->n == t->cap) table_halve(t);
}

void report_table_read(report_table *t, const char *path, int cap, const double *starts,
                       int n_starts)
{
    *t = (report_table){.cap = cap,
                        .stride = 1,
                        .by_step = starts == NULL,
                        .last_step = -1.0,
                        .start = starts,
                        .n_starts = n_starts,
                        .time_before = (double)NAN,
                        .seconds = (double)NAN};
    t->step = malloc((size_t)cap * sizeof *t->step);
    t->time = malloc((size_t)cap * sizeof *t->time);
    t->failed = !t->step || !t->time;
    if (t->failed) return;
    (void)runs_each_line(path, on_line, t);
    if (t->filled > 0) table_row(t);
    t->start = NULL;
}

void report_table_release(report_table *t)
{
    for (int i = 0; i < t->n_columns; i++) free(t->column[i].mean);
    free(t->step);
    free(t->time);
    *t = (report_table){.cap = 0};
}

/* ---- the table in the page ---- */

/* Figures that most readers look at first. */
static bool column_is_main(const report_column *c)
{
    static const char *const names[] = {"loss_mean", "loss", "accuracy_mean",
                                        "accuracy",  "BLEU", "perplexity"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(c->name, names[i])) return true;
    return false;
}

/* A figure of single steps is left out where there is its mean. */
static bool column_in_page(const report_table *t, const report_column *c)
{
    char mean[REPORT_NAME + 8];
    (void)snprintf(mean, sizeof mean, "%s_mean", c->name);
    for (int i = 0; i < t->n_columns; i++)
        if (!strcmp(t->column[i].name, mean)) return false;
    for (int i = 0; i < t->n; i++)
        if (!isnan(c->mean[i])) return true;
    return false;
}

static bool column_constant(const report_table *t, const report_column *c)
{
    for (int i = 0; i < t->n; i++)
        if (isnan(c->mean[i]) || c->low[i] != c->low[0] || c->high[i] != c->low[0]) return false;
    return true;
}

static int points_of(int n, int k)
{
    return (int)(((int64_t)n + (1 << k) - 1) >> k);
}

/* The number of halvings that bring n points to at most `most`. */
static int halvings(int n, int most)
{
    int k = 0;
    while (points_of(n, k) > most && k < 24) k++;
    return k;
}

static int column_halvings(const report_table *t, const report_column *c, int main, int other)
{
    return halvings(t->n, column_is_main(c) ? main : other);
}

/* The rows themselves are as fine as the finest column. */
static int table_halvings(const report_table *t, int main, int other)
{
    int least = halvings(t->n, main > other ? main : other);
    for (int i = 0; i < t->n_columns; i++) {
        const int k = column_halvings(t, &t->column[i], main, other);
        least = k < least ? k : least;
    }
    return least;
}

int64_t report_table_bytes(const report_table *t, int main, int other)
{
    int64_t bytes = 64 + 8 * (int64_t)points_of(t->n, table_halvings(t, main, other));
    for (int i = 0; i < t->n_columns; i++) {
        const report_column *c = &t->column[i];
        const int k = column_halvings(t, c, main, other);
        if (!column_in_page(t, c)) continue;
        bytes += 96;
        if (!column_constant(t, c))
            bytes += (int64_t)points_of(t->n, k) * (k == 0 && t->stride == 1 ? 3 : 8);
    }
    return t->n > 0 ? bytes : 0;
}

static void put16(rd_strbuf *b, unsigned v)
{
    const unsigned char at[2] = {(unsigned char)(v & 0xFF), (unsigned char)(v >> 8)};
    rd_strbuf_add(b, at, 2);
}

/* How the values of a column become numbers of 16 bits. */
typedef struct scale {
    double from, to;
    bool log;
} scale;

enum { LARGEST = 65534, NONE = 65535 };

static scale scale_of(const float *low, const float *high, int n)
{
    scale s = {INFINITY, -INFINITY, false};
    for (int i = 0; i < n; i++) {
        if (isnan(low[i])) continue;
        s.from = fmin(s.from, (double)low[i]);
        s.to = fmax(s.to, (double)high[i]);
    }
    s.log = s.from > 0.0 && s.to / s.from > 100.0;
    if (s.log) {
        s.from = log(s.from);
        s.to = log(s.to);
    }
    return s;
}

static unsigned scaled(const scale *s, double v)
{
    if (isnan(v)) return NONE;
    if (s->log) v = log(v);
    const double part = s->to > s->from ? (v - s->from) / (s->to - s->from) : 0.0;
    return (unsigned)lround(fmin(fmax(part, 0.0), 1.0) * LARGEST);
}

/* Joins groups of 2^k values: 0 their mean, 1 the smallest, 2 the largest. */
static void put_values(const float *x, int n, int k, int what, const scale *s, rd_strbuf *b)
{
    rd_strbuf bytes = {0};
    for (int from = 0; from < n; from += 1 << k) {
        const int end = from + (1 << k) < n ? from + (1 << k) : n;
        double sum = 0.0, v = (double)NAN;
        int count = 0;
        for (int i = from; i < end; i++) {
            if (isnan(x[i])) continue;
            count++;
            sum += (double)x[i];
            v = what == 1 ? fmin(v, (double)x[i]) : fmax(v, (double)x[i]);
        }
        put16(&bytes, scaled(s, what == 0 && count > 0 ? sum / count : v));
    }
    rd_strbuf_puts(b, "\"");
    report_base64(b, rd_strbuf_str(&bytes), bytes.n);
    rd_strbuf_puts(b, "\"");
    b->failed |= bytes.failed;
    rd_strbuf_release(&bytes);
}

static void put_scale(const scale *s, rd_strbuf *b)
{
    rd_strbuf_printf(b, ",\"from\":%.9g,\"to\":%.9g,\"log\":%s", s->from, s->to,
                     s->log ? "true" : "false");
}

static void put_column(const report_table *t, const report_column *c, int k, int base, rd_strbuf *b)
{
    const scale s = scale_of(c->low, c->high, t->n);
    rd_strbuf_puts(b, "{\"name\":");
    report_json_text(b, c->name);
    rd_strbuf_printf(b, ",\"k\":%d", k - base);
    if (column_constant(t, c)) {
        rd_strbuf_printf(b, ",\"c\":%.9g}", (double)c->low[0]);
        return;
    }
    put_scale(&s, b);
    rd_strbuf_puts(b, ",\"m\":");
    put_values(c->mean, t->n, k, 0, &s, b);
    if (k > 0 || t->stride > 1) {
        rd_strbuf_puts(b, ",\"l\":");
        put_values(c->low, t->n, k, 1, &s, b);
        rd_strbuf_puts(b, ",\"h\":");
        put_values(c->high, t->n, k, 2, &s, b);
    }
    rd_strbuf_puts(b, "}");
}

/* Appends the steps as float32, and the seconds of training on the scale of columns. */
static void put_rows(const report_table *t, int k, rd_strbuf *b)
{
    rd_strbuf steps = {0};
    float *time = malloc((size_t)t->n * sizeof *time);
    bool known = time != NULL;
    for (int from = 0; from < t->n; from += 1 << k) {
        const int end = from + (1 << k) < t->n ? from + (1 << k) : t->n;
        double sum = 0.0;
        for (int i = from; i < end; i++) sum += t->step[i];
        const float mean = (float)(sum / (end - from));
        rd_strbuf_add(&steps, &mean, sizeof mean);
    }
    rd_strbuf_puts(b, "{\"step\":\"");
    report_base64(b, rd_strbuf_str(&steps), steps.n);
    rd_strbuf_puts(b, "\"");
    for (int i = 0; known && i < t->n; i++) {
        time[i] = (float)t->time[i];
        known = isfinite(time[i]);
    }
    if (known) {
        const scale s = scale_of(time, time, t->n);
        const scale even = {0.0, s.log ? exp(s.to) : s.to, false};
        rd_strbuf_printf(b, ",\"seconds\":%.9g,\"time\":", even.to);
        put_values(time, t->n, k, 0, &even, b);
    }
    rd_strbuf_puts(b, ",\"columns\":[");
    b->failed |= steps.failed;
    rd_strbuf_release(&steps);
    free(time);
}

void report_table_json(const report_table *t, int main, int other, rd_strbuf *b)
{
    const int base = table_halvings(t, main, other);
    const char *separator = "";
    if (t->n == 0) {
        rd_strbuf_puts(b, "null");
        return;
    }
    put_rows(t, base, b);
    for (int i = 0; i < t->n_columns; i++) {
        const report_column *c = &t->column[i];
        if (!column_in_page(t, c)) continue;
        rd_strbuf_puts(b, separator);
        put_column(t, c, column_halvings(t, c, main, other), base, b);
        separator = ",";
    }
    rd_strbuf_puts(b, "]}");
    b->failed |= t->failed;
}
