/* generate.c -- speed of a language model that writes one text, against the memory of the machine.
 *
 *     generate [CONFIG.json [KEY=VALUE...]]
 *
 * Each token reads every weight once, so the memory sets the limit. The program makes the model of
 * CONFIG.json (tests/bench/gpt_124m.json) with random weights, and measures in turns, on one
 * thread:
 *
 *     read    the sum of an array that no cache holds, the fastest of several ways to read it
 *     copy    memcpy of such an array; the bytes read and the bytes written count
 *     tokens  completion of one prompt as --mode=infer does, without and with the rounds' further
 *             tokens; the difference counts
 *
 * Bytes of a token: those of all parameters but tables of which one row is read. Every time is CPU
 * time, so that other programs count little. */
#include "rd/file.h"
#include "rd/model.h"
#include "rd/modes.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PROMPT = 16, FEW = 4, MANY = 36, ROUNDS = 5, LANES = 16, STREAMS = 8 };
static const size_t BYTES = (size_t)512 << 20;

typedef float lanes __attribute__((vector_size(LANES * 4)));

static double cpu_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static volatile float sink;

/* Returns the seconds that the sum of n numbers takes. They are read as n_streams arrays side by
 * side. */
static double read_s(const float *x, size_t n, size_t n_streams)
{
    const size_t part = n / n_streams;
    lanes sum[STREAMS] = {{0}};
    const double start = cpu_s();
    for (size_t i = 0; i < part; i += LANES * STREAMS / n_streams)
        for (size_t s = 0; s < STREAMS; s++)
            sum[s] += *(const lanes *)(const void *)(x + s % n_streams * part + i +
                                                     s / n_streams * LANES);
    const double seconds = cpu_s() - start;
    for (int s = 1; s < STREAMS; s++) sum[0] += sum[s];
    sink = sum[0][0];
    return seconds;
}

static double copy_s(float *to, const float *from)
{
    const double start = cpu_s();
    memcpy(to, from, BYTES);
    sink = to[1];
    return cpu_s() - start;
}

typedef struct memory_speed {
    float *x, *y;
    double read, copy; /* bytes/s, the best so far */
} memory_speed;

static void measure_memory(memory_speed *m)
{
    for (size_t streams = 1; streams <= STREAMS; streams *= 2)
        m->read = fmax(m->read, (double)BYTES / read_s(m->x, BYTES / sizeof(float), streams));
    m->copy = fmax(m->copy, 2.0 * (double)BYTES / copy_s(m->y, m->x));
}

typedef struct writer {
    rd_config *config;
    rd_params *ps;
    rd_backend *be;
    rd_tape *tape;
    const rd_model_def *def;
    void *model;
    int64_t n_classes;
} writer;

/* Puts "KEY=VALUE", the keys that the model gives, and the vocabulary. */
static rd_code writer_keys(writer *w, char **set, int n, rd_status *st)
{
    for (int i = 0; i < n; i++) {
        char *value = strchr(set[i], '=');
        json_t *v = value ? json_loads(value + 1, JSON_DECODE_ANY, NULL) : NULL;
        if (!v)
            return rd_fail(st, RD_EUSAGE, "'%s' is not KEY=VALUE with a number or JSON text",
                           set[i]);
        *value = '\0';
        RD_TRY(rd_config_put(w->config, set[i], v, "command line", st));
    }
    const char *name = json_string_value(rd_config_get(w->config, "model"));
    w->def = name ? rd_model_find(name) : NULL;
    if (!w->def || !w->def->continues)
        return rd_fail(st, RD_EUSAGE, "model '%s' writes no texts; use gpt", name ? name : "");
    for (const rd_model_key *k = w->def->keys; k->key; k++)
        if (!rd_config_has(w->config, k->key))
            RD_TRY(rd_config_put(w->config, k->key, json_loads(k->value, JSON_DECODE_ANY, NULL),
                                 "model", st));
    w->n_classes = json_integer_value(rd_config_get(w->config, "bench_vocab"));
    if (w->n_classes < 5) return rd_fail(st, RD_EUSAGE, "the config has no bench_vocab");
done:
    return st->code;
}

static rd_code writer_open(writer *w, const char *path, char **set, int n_set, rd_status *st)
{
    const rd_option_group *groups[RD_MAX_GROUPS];
    const int n_groups = rd_option_groups(groups);
    char *text = NULL;
    size_t n;
    rd_log *log = NULL;
    RD_TRY(rd_file_read(path, RD_EDATA, &text, &n, st));
    RD_TRY(rd_config_new(path, text, n, groups, n_groups, false, &w->config, st));
    RD_TRY(writer_keys(w, set, n_set, st));
    RD_TRY(rd_params_new(&w->ps, st));
    RD_TRY(rd_backend_cpu_new(1, false, &w->be, st));
    RD_TRY(rd_log_new(0, "generate", stdout, &log, st));
    /* no end token: all texts have the same length */
    const rd_data_spec spec = {
        .src_vocab_size = w->n_classes, .tgt_vocab_size = w->n_classes, .end_id = -1};
    const rd_model_args a = {.def = w->def,
                             .config = w->config,
                             .mode = RD_MODE_INFER,
                             .data = &spec,
                             .seed = 1,
                             .params = w->ps,
                             .backend = w->be,
                             .log = log};
    RD_TRY(w->def->create(&a, &w->model, st));
    RD_TRY(rd_params_seal(w->ps, 1, NAN, st));
    RD_TRY(rd_tape_new(w->be, w->ps, &w->tape, st));
done:
    rd_log_free(log);
    free(text);
    return st->code;
}

static void writer_close(writer *w)
{
    rd_tape_free(w->tape);
    if (w->model) w->def->destroy(w->model);
    rd_backend_free(w->be);
    rd_params_free(w->ps);
    rd_config_free(w->config);
}

/* Returns the bytes of weights that a token reads. A table of one row for each token is read whole
 * only if it is that of the output, too. */
static double writer_bytes(const writer *w)
{
    double bytes = 0.0;
    for (int i = 0; i < rd_params_n(w->ps); i++) {
        const rd_param *p = rd_params_at(w->ps, i);
        if (!(p->flags & RD_PARAM_ROWS)) bytes += 4.0 * (double)p->n;
    }
    return bytes;
}

/* Writes n tokens after a prompt. */
static rd_code writer_complete(writer *w, int64_t n, double *seconds, rd_status *st)
{
    static const int64_t off[] = {0, PROMPT}, sample[] = {0};
    int32_t ids[PROMPT];
    rd_decoded out;
    for (int i = 0; i < PROMPT; i++) ids[i] = (int32_t)(i * 37 % w->n_classes);
    rd_batch b = {.n = 1, .n_global = 1, .sample = sample, .n_fields = 1};
    b.field[0] = (rd_field){.name = "source", .dtype = RD_I32, .data = ids, .off = off};
    const rd_decode_config c = {
        .max_new_tokens = n,
        .search = {.unscored = true,
                   .samples = true,
                   .sampling = {.temperature = 0.8, .top_k = 200, .top_p = 1.0}}};
    const double start = cpu_s();
    rd_tape_reset(w->tape, false, false);
    RD_TRY(w->def->decode(w->model, w->tape, &b, &c, &out, st));
    *seconds = cpu_s() - start;
    if (out.n != n) return rd_fail(st, RD_EBUG, "the text has %d tokens", (int)out.n);
done:
    return st->code;
}

static rd_code measure(writer *w, rd_status *st)
{
    memory_speed m = {.x = aligned_alloc(64, BYTES), .y = aligned_alloc(64, BYTES)};
    double best = INFINITY, few, many;
    if (!m.x || !m.y) {
        rd_fail(st, RD_EENV, "out of memory for two arrays of %zu bytes", BYTES);
        goto done;
    }
    for (size_t i = 0; i < BYTES / sizeof(float); i++) m.x[i] = m.y[i] = (float)(i % 7);
    RD_TRY(writer_complete(w, FEW, &few, st)); /* copies the weights into their layout */
    for (int i = 0; i < ROUNDS; i++) {
        measure_memory(&m);
        RD_TRY(writer_complete(w, FEW, &few, st));
        RD_TRY(writer_complete(w, MANY, &many, st));
        best = fmin(best, (many - few) / (MANY - FEW));
    }
    const double bytes = writer_bytes(w), speed = bytes / best;
    printf("memory: read %.2f GB/s, copy %.2f GB/s (read and written)\n", m.read * 1e-9,
           m.copy * 1e-9);
    printf(
        "%.1f MB of weights a token, %.1f tokens/s, %.2f GB/s: %.1f %% of read, %.1f %% of copy\n",
        bytes * 1e-6, 1.0 / best, speed * 1e-9, 100.0 * speed / m.read, 100.0 * speed / m.copy);
done:
    free(m.x);
    free(m.y);
    return st->code;
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    writer w = {0};
    const char *path = argc > 1 ? argv[1] : "tests/bench/gpt_124m.json";
    if (writer_open(&w, path, argv + 2, argc > 2 ? argc - 2 : 0, &st) == RD_OK)
        (void)measure(&w, &st);
    writer_close(&w);
    if (st.code != RD_OK) fprintf(stderr, "%s: %s\n", program_invocation_short_name, st.msg);
    return (int)st.code;
}
