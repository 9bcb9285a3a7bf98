/* search.c -- tests the parts of decoding.
 *
 * The best tokens of a row of logits are compared with a sort of all tokens. Beam search that
 * sees only the best tokens is compared with one that sees every token. States follow their
 * hypotheses. RD_TEST_DEVICE=cuda: the kernels of a GPU, and decoding there against the CPU. */
#include "rd/nn.h"
#include "harness.h"
#ifdef RD_CUDA
#include "../../runner/nn/search_kernels.h"
#endif

static double uniform(uint64_t key, uint32_t i, uint32_t j)
{
    uint32_t r[4];
    rd_philox((const uint32_t[]){i, j, 0, 0}, rd_key_make(key, RD_RNG_TEST, 0, 0), r);
    return (double)r[0] / 4294967296.0;
}

static void *memory(size_t n, size_t size)
{
    void *p = calloc(n + 1, size);
    assert_non_null(p);
    return p;
}

/* ---- the best tokens of a row ---- */

typedef enum kind {
    MANY_LEVELS,
    FEW_LEVELS,
    EQUAL,
    FALLING,
    ONE_CORNER,
    HALF_MINUS_INFINITE,
    END_IS_BEST,
    BARRED_ARE_BEST,
    NOT_A_NUMBER,
    INFINITE,
    ALL_MINUS_INFINITE
} kind;

typedef struct best_case {
    const char *name;
    int64_t V, n;
    kind kind;
    float temperature;
    int n_barred; /* of the tokens 0, 1, 3 */
} best_case;

static const best_case bests[] = {
    {"one of five", 5, 1, MANY_LEVELS, 1, 0},
    {"all of five", 5, 4, MANY_LEVELS, 1, 0},
    {"greedy", 32000, 1, MANY_LEVELS, 1, 0},
    {"ten of many", 32000, 10, MANY_LEVELS, 1, 0},
    {"ten of many, few of them different", 32000, 10, FEW_LEVELS, 1, 0},
    {"ten of many, a temperature", 32000, 10, MANY_LEVELS, 2.5f, 0},
    {"one block of 128 threads, full", 4096, 12, FEW_LEVELS, 1, 0},
    {"one token more", 4097, 12, FEW_LEVELS, 1, 0},
    {"the first ones are best", 5000, 20, FALLING, 1, 0},
    {"all alike", 9000, 7, EQUAL, 1, 0},
    {"the best ones are some threads'", 200000, 10, ONE_CORNER, 1, 0},
    {"a wide beam", 33000, 300, MANY_LEVELS, 1, 0},
    {"a thousand, few of them different", 33000, 1000, FEW_LEVELS, 1, 0},
    {"a thousand and all that there are", 1025, 1024, MANY_LEVELS, 1, 0},
    {"wider than there are numbers", 300, 200, HALF_MINUS_INFINITE, 1, 0},
    {"the end token is best", 700, 3, END_IS_BEST, 1, 0},
    {"barred tokens are best", 700, 3, BARRED_ARE_BEST, 1, 3},
    {"all but barred ones", 9, 5, MANY_LEVELS, 1, 3},
    {"barred ones of few levels", 5000, 40, FEW_LEVELS, 1, 2},
    {"barred ones of a wide beam", 33000, 300, BARRED_ARE_BEST, 1, 3},
    {"barred ones without numbers", 300, 200, HALF_MINUS_INFINITE, 1, 3},
    {"not a number", 700, 5, NOT_A_NUMBER, 1, 0},
    {"an infinite one", 700, 5, INFINITE, 1, 0},
    {"minus infinity throughout", 5000, 5, ALL_MINUS_INFINITE, 1, 0},
};
enum { N_BEST = sizeof bests / sizeof *bests, ROWS = 3, FIRST = 2, END = 2 };

/* Multiples of 1/64, so that no rounding makes two different ones equal. */
static float logit_of(const best_case *c, int64_t row, int64_t v)
{
    const double u = uniform(11, (uint32_t)row, (uint32_t)v);
    if (c->kind == END_IS_BEST && v == END) return 20.0f;
    if (c->kind == BARRED_ARE_BEST && v < 4) return 20.0f + (float)v;
    if (c->kind == NOT_A_NUMBER && v == 100) return NAN;
    if (c->kind == INFINITE && v == 100) return INFINITY;
    if (c->kind == ALL_MINUS_INFINITE || (c->kind == HALF_MINUS_INFINITE && u < 0.5))
        return -INFINITY;
    if (c->kind == EQUAL) return 0.25f;
    if (c->kind == FALLING) return (float)(c->V - v) / 64.0f;
    if (c->kind == FEW_LEVELS) return (float)floor(u * 5.0);
    if (c->kind == ONE_CORNER)
        return v % 512 / 8 == 3 ? 3.0f + (float)floor(u * 64.0) / 64.0f : -20.0f;
    return (float)(floor(u * 1024.0) / 64.0) - 8.0f;
}

typedef struct word {
    float logit;
    int32_t id;
} word;

static int better_first(const void *a, const void *b)
{
    const word *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static const int32_t barred[] = {0, 1, 3};
static bool is_barred(const best_case *c, int64_t v)
{
    bool found = false;
    for (int i = 0; i < c->n_barred; i++) found |= v == barred[i];
    return found;
}

/* By sorting; lse in double. Numbers that are none come last. */
static void expected(const best_case *c, const float *logits, int32_t *id, double *logp,
                     double *end_logp)
{
    word *w = memory((size_t)c->V, sizeof *w);
    double top = -INFINITY, sum = 0.0;
    int64_t n = 0;
    for (int64_t v = 0; v < c->V; v++) top = fmax(top, (double)logits[v]);
    for (int64_t v = 0; v < c->V; v++)
        sum += exp(((double)logits[v] - top) / (double)c->temperature);
    const double lse = top / (double)c->temperature + log(sum);
    for (int64_t v = 0; v < c->V; v++)
        if (v != END && !is_barred(c, v))
            w[n++] = (word){isnan(lse) ? -INFINITY : logits[v], (int32_t)v};
    qsort(w, (size_t)n, sizeof *w, better_first);
    for (int64_t i = 0; i < c->n; i++) {
        id[i] = w[i].id;
        logp[i] = isnan(lse) ? -INFINITY : (double)w[i].logit / (double)c->temperature - lse;
    }
    *end_logp = isnan(lse) ? -INFINITY : (double)logits[END] / (double)c->temperature - lse;
    free(w);
}

#ifdef RD_CUDA
static void best_on_gpu(rd_backend *be, const best_case *c, const float *logits,
                        const rd_search_best *host)
{
    const size_t n = (size_t)((FIRST + ROWS) * c->n);
    rd_status st = {0};
    rd_gpu *g = rd_gpu_of(be);
    rd_search_best out = *host;
    float *l;
    rd_gpu_memory_new(g, (size_t)(ROWS * c->V) * sizeof *l, &l, &st);
    rd_gpu_memory_new(g, n * sizeof *out.id, &out.id, &st);
    rd_gpu_memory_new(g, n * sizeof *out.logp, &out.logp, &st);
    rd_gpu_memory_new(g, (FIRST + ROWS) * sizeof *out.end_logp, &out.end_logp, &st);
    must(&st);
    rd_gpu_upload(g, l, logits, (size_t)(ROWS * c->V) * sizeof *l, &st);
    rd_cuda_search.best(be, &out, FIRST, ROWS, c->V, c->temperature, l, &st);
    rd_gpu_download(g, host->id, out.id, n * sizeof *out.id, &st);
    rd_gpu_download(g, host->logp, out.logp, n * sizeof *out.logp, &st);
    rd_gpu_download(g, host->end_logp, out.end_logp, (FIRST + ROWS) * sizeof *out.end_logp, &st);
    must(&st);
    rd_gpu_memory_free(g, l);
    rd_gpu_memory_free(g, out.id);
    rd_gpu_memory_free(g, out.logp);
    rd_gpu_memory_free(g, out.end_logp);
}
#endif

/* A log probability rounds the difference of two floats. Its sum of exponentials adds n numbers one
 * after the other in float32. Each addition rounds by at most 2^-25 of the sum; at worst all in the
 * same direction. n is 128 on a CPU. On a GPU each of 512 threads adds its share of 200,000: n is
 * 391. */
enum { CHAIN = 391 };
static void near(double got, double want, int64_t n, const char *what)
{
    const double most = 1e-6 * (1.0 + fabs(want)) + (double)n / (1 << 25);
    if (got != want && !(fabs(got - want) <= most))
        fail_msg("%s: got %.9g, want %.9g", what, got, want);
}

static void test_best(void **state)
{
    const best_case *c = *state;
    const size_t n = (size_t)((FIRST + ROWS) * c->n);
    rd_backend *be;
    float *logits = memory((size_t)(ROWS * c->V), sizeof *logits),
          *work = memory((size_t)(ROWS * c->V), sizeof *work);
    int32_t *id = memory((size_t)c->n, sizeof *id);
    double *logp = memory((size_t)c->n, sizeof *logp), end_logp;
    rd_search_best out = {.n = c->n,
                          .end = END,
                          .n_barred = c->n_barred,
                          .id = memory(n, sizeof(int32_t)),
                          .logp = memory(n, sizeof(float)),
                          .end_logp = memory(FIRST + ROWS, sizeof(float))};
    for (int64_t i = 0; i < ROWS * c->V; i++) logits[i] = logit_of(c, i / c->V, i % c->V);
    memcpy(out.barred, barred, sizeof barred);
    h_backend(1, false, &be);
#ifdef RD_CUDA
    if (rd_gpu_of(be)) best_on_gpu(be, c, logits, &out);
#endif
    if (!rd_gpu_of(be)) {
        for (int64_t i = 0; i < ROWS * c->V; i++) work[i] = logits[i] / c->temperature;
        rd_search_best_rows(&out, FIRST, ROWS, c->V, work);
    }
    for (int64_t row = 0; row < ROWS; row++) {
        word *got = memory((size_t)c->n, sizeof *got);
        expected(c, logits + row * c->V, id, logp, &end_logp);
        for (int64_t i = 0; i < c->n; i++) {
            const int64_t at = (FIRST + row) * c->n + i;
            got[i] = (word){out.logp[at], out.id[at]};
        }
        qsort(got, (size_t)c->n, sizeof *got, better_first); /* they come in any order */
        for (int64_t i = 0; i < c->n; i++) {
            if (got[i].id != id[i])
                fail_msg("row %lld, number %lld: got token %d, want %d", (long long)row,
                         (long long)i, got[i].id, id[i]);
            near((double)got[i].logit, logp[i], CHAIN, "a log probability");
        }
        near((double)out.end_logp[FIRST + row], end_logp, CHAIN, "that of the end token");
        free(got);
    }
    rd_backend_free(be);
    free(out.id);
    free(out.logp);
    free(out.end_logp);
    free(logits);
    free(work);
    free(id);
    free(logp);
}

/* ---- beam search by the best tokens, and by all ---- */

typedef struct search_case {
    const char *name;
    int64_t V, width;
    double penalty;
    int levels; /* different log probabilities of a row: the fewer, the more ties */
} search_case;

static const search_case searches[] = {
    {"greedy, ties", 12, 1, 0.0, 3},
    {"greedy of a length penalty", 12, 1, 0.8, 60},
    {"beam 2", 12, 2, 0.0, 50},
    {"beam 4, ties", 9, 4, 0.0, 2},
    {"beam 4, ties, length penalty 1", 9, 4, 1.0, 3},
    {"beam 5, length penalty 0.6", 30, 5, 0.6, 100},
    {"beam 7, length penalty 2", 8, 7, 2.0, 40},
    {"wider than the vocabulary", 6, 9, 0.6, 3},
};
enum { N_SEARCH = sizeof searches / sizeof *searches, SENTENCES = 12, LONGEST = 9 };

/* A model whose log probabilities are a function of the sentence and the tokens so far; they
 * need not add up to 1. If long sentences are favoured, the end token needs a good score to win
 * sometimes. */
static float logp_of(const search_case *c, uint32_t prefix, int64_t v)
{
    const float each = v == END && c->penalty > 0.0 ? 0.0625f : 0.25f;
    return -0.5f - (float)floor(uniform(17, prefix, (uint32_t)v) * c->levels) * each;
}
static uint32_t grow(uint32_t prefix, int32_t id)
{
    return prefix * 31u + (uint32_t)id + 7u;
}

typedef struct model {
    const search_case *c;
    uint32_t *prefix, *before;
    int64_t rows;
} model;

static rd_code model_step(void *ctx, int64_t n, const int32_t *ids, const int64_t *parent,
                          const int64_t *sentence, const rd_search_best *out, rd_status *st)
{
    model *m = ctx;
    memcpy(m->before, m->prefix, (size_t)m->rows * sizeof *m->before);
    for (int64_t i = 0; i < n; i++) {
        word w[64];
        int64_t k = 0;
        m->prefix[i] = m->rows ? grow(m->before[parent[i]], ids[i]) : (uint32_t)sentence[i] + 1000u;
        for (int64_t v = 0; v < m->c->V; v++)
            if (v != END) w[k++] = (word){logp_of(m->c, m->prefix[i], v), (int32_t)v};
        qsort(w, (size_t)k, sizeof *w, better_first);
        for (int64_t j = 0; j < out->n; j++) {
            out->id[i * out->n + j] = w[out->n - 1 - j].id; /* the worst first: any order will do */
            out->logp[i * out->n + j] = w[out->n - 1 - j].logit;
        }
        out->end_logp[i] = logp_of(m->c, m->prefix[i], END);
    }
    m->rows = n;
    return st->code;
}

typedef struct path { /* a hypothesis of the other search */
    double logp, score;
    int64_t from; /* place in the beam before, and the token */
    int32_t id, ids[LONGEST];
    int n;
    bool ended;
    uint32_t prefix;
} path;

static int higher_first(const void *a, const void *b)
{
    const path *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static double penalised(double logp, int n, double penalty)
{
    return logp / pow((5.0 + n) / 6.0, penalty);
}

/* Every token of every hypothesis, sorted. */
static path whole_search(const search_case *c, uint32_t sentence, int64_t limit)
{
    path *beam = memory((size_t)c->width, sizeof *beam),
         *all = memory((size_t)(c->width * c->V), sizeof *all);
    int64_t n = 1;
    beam[0] = (path){.prefix = sentence + 1000u};
    for (int64_t t = 0; t < limit; t++) {
        int64_t k = 0;
        for (int64_t i = 0; i < n; i++) {
            if (beam[i].ended) {
                all[k] = beam[i];
                all[k].from = i;
                all[k].score = penalised(all[k].logp, all[k].n, c->penalty);
                all[k++].id = END;
                continue;
            }
            for (int32_t v = 0; v < c->V; v++) {
                path p = beam[i];
                p.logp += (double)logp_of(c, p.prefix, v);
                p.from = i;
                p.id = v;
                p.ended = v == END;
                if (!p.ended) p.ids[p.n++] = v;
                p.score = penalised(p.logp, p.n, c->penalty);
                p.prefix = grow(p.prefix, v);
                all[k++] = p;
            }
        }
        qsort(all, (size_t)k, sizeof *all, higher_first);
        n = k < c->width ? k : c->width;
        memcpy(beam, all, (size_t)n * sizeof *beam);
    }
    const path best = beam[0];
    free(beam);
    free(all);
    return best;
}

static void test_search(void **state)
{
    const search_case *c = *state;
    rd_status st = {0};
    rd_arena *a;
    rd_hypothesis out[SENTENCES];
    int64_t limit[SENTENCES], ended = 0;
    model m = {.c = c,
               .prefix = memory((size_t)(SENTENCES * c->width), sizeof *m.prefix),
               .before = memory((size_t)(SENTENCES * c->width), sizeof *m.before)};
    for (int64_t i = 0; i < SENTENCES; i++) limit[i] = i % LONGEST + 1;
    rd_arena_new(4096, &a, &st);
    const rd_search_rules rules = {.beam_width = c->width, .length_penalty = c->penalty};
    rd_search(a, SENTENCES, limit, c->V, 1, END, &rules, model_step, &m, out, &st);
    must(&st);
    for (int64_t i = 0; i < SENTENCES; i++) {
        const path want = whole_search(c, (uint32_t)i, limit[i]);
        assert_int_equal(out[i].n, want.n);
        for (int k = 0; k < want.n; k++) assert_int_equal(out[i].ids[k], want.ids[k]);
        near(out[i].score, want.score, 0, "the score");
        ended += want.ended;
    }
    assert_true(ended > 0); /* else the end token was no test */
    rd_arena_free(a);
    free(m.prefix);
    free(m.before);
}

/* ---- on a GPU ---- */

#ifdef RD_CUDA
static void test_follow(void **state)
{
    enum { N = 37, ARRAYS = 3 };
    const int64_t widths[2][ARRAYS] = {{8, 64, 1024}, {8, 7, 33}};
    rd_backend *be;
    (void)state;
    h_backend(1, false, &be);
    rd_gpu *g = rd_gpu_of(be);
    for (int w = 0; w < 2; w++) {
        rd_status st = {0};
        rd_states s = {.n_arrays = ARRAYS};
        int32_t parent[N], *lent;
        float *from[ARRAYS], *to = memory((size_t)(N * 1024), sizeof *to);
        for (int i = 0; i < N; i++) parent[i] = (int32_t)(uniform(5, (uint32_t)i, 0) * N);
        rd_gpu_memory_new(g, sizeof parent, &lent, &st);
        rd_gpu_upload(g, lent, parent, sizeof parent, &st);
        for (int k = 0; k < ARRAYS; k++) {
            const size_t n = (size_t)(N * widths[w][k]);
            float *at[2];
            from[k] = memory(n, sizeof *from[k]);
            for (size_t i = 0; i < n; i++) from[k][i] = (float)uniform(6, (uint32_t)i, (uint32_t)k);
            for (int side = 0; side < 2; side++)
                rd_gpu_memory_new(g, n * sizeof(float), &at[side], &st);
            rd_gpu_upload(g, at[0], from[k], n * sizeof(float), &st);
            s.from[k] = at[0];
            s.to[k] = at[1];
            s.width[k] = widths[w][k];
        }
        rd_cuda_search.follow(be, &s, N, lent, &st);
        must(&st);
        for (int k = 0; k < ARRAYS; k++) {
            const int64_t width = widths[w][k];
            rd_gpu_download(g, to, s.to[k], (size_t)(N * width) * sizeof *to, &st);
            must(&st);
            for (int i = 0; i < N; i++)
                assert_memory_equal(to + i * width, from[k] + parent[i] * width,
                                    (size_t)width * sizeof *to);
            rd_gpu_memory_free(g, (void *)(uintptr_t)s.from[k]);
            rd_gpu_memory_free(g, s.to[k]);
            free(from[k]);
        }
        rd_gpu_memory_free(g, lent);
        free(to);
    }
    rd_backend_free(be);
}

/* A decoder with a vocabulary so large that it never stores the logits of all rows at once. Most
 * rows are never used. */
enum { MANY = 1100000, N_DECODED = 70, WIDTH = 4 };
static rd_decoder *many_tokens(rd_params *ps)
{
    rd_status st = {0};
    rd_decoder *d = memory(1, sizeof *d);
    uint32_t site = 0;
    const rd_cell_config c = {.type = "lstm", .units = WIDTH, .keep_in = 1, .keep_out = 1};
    rd_decoder_add(ps, RD_DEC_WRAPPED, RD_ATT_BAHDANAU, 1, MANY, WIDTH, WIDTH, WIDTH, &c, false,
                   1.0, 1, &site, d, &st);
    rd_params_seal(ps, 3, 2.0, &st);
    must(&st);
    float *w = test_values(ps) + d->W_out->offset;
    memset(w, 0, (size_t)d->W_out->n * sizeof *w);
    for (int64_t i = 0; i < 60 * WIDTH; i++)
        w[i % WIDTH * MANY + 17 + i / WIDTH * 18000] = (float)uniform(8, (uint32_t)i, 0) * 20.0f -
                                                       10.0f;
    rd_params_touch(ps);
    return d;
}

static void decode(rd_backend *be, rd_params *ps, rd_decoder *d, int32_t ids[N_DECODED][2],
                   int64_t n[N_DECODED])
{
    rd_status st = {0};
    rd_tape *t;
    rd_hypothesis out[N_DECODED];
    int64_t first[N_DECODED], len[N_DECODED];
    static float memory_rows[(N_DECODED + RD_SLACK_ROWS) * WIDTH];
    for (int64_t i = 0; i < N_DECODED; i++) {
        first[i] = i;
        len[i] = 1;
        for (int k = 0; k < WIDTH; k++)
            memory_rows[i * WIDTH + k] = (float)uniform(9, (uint32_t)i, (uint32_t)k) * 2.0f - 1.0f;
    }
    rd_tape_new(be, ps, &t, &st);
    must(&st);
    rd_decoder_search(t, d, ps, N_DECODED, rd_tape_const(t, memory_rows, N_DECODED, WIDTH), first,
                      len, 1, &(rd_search_rules){0}, NULL, out, &st);
    must(&st);
    for (int64_t i = 0; i < N_DECODED; i++) {
        n[i] = out[i].n;
        for (int64_t k = 0; k < 2; k++) ids[i][k] = k < out[i].n ? out[i].ids[k] : -1;
    }
    rd_tape_free(t);
}

static void test_many_tokens(void **state)
{
    rd_status st = {0};
    rd_params *ps;
    rd_backend *cpu, *gpu;
    int32_t want[N_DECODED][2], got[N_DECODED][2];
    int64_t want_n[N_DECODED], n[N_DECODED], different = 0;
    (void)state;
    rd_params_new(&ps, &st);
    rd_decoder *d = many_tokens(ps);
    rd_backend_cpu_new(1, false, &cpu, &st);
    must(&st);
    h_backend(1, false, &gpu);
    decode(cpu, ps, d, want, want_n);
    rd_params_use_gpu(ps, rd_gpu_of(gpu), &st);
    must(&st);
    decode(gpu, ps, d, got, n);
    for (int64_t i = 0; i < N_DECODED; i++) {
        assert_int_equal(n[i], want_n[i]);
        assert_memory_equal(got[i], want[i], sizeof got[i]);
        different += want[i][0] != want[0][0] || want[i][1] != want[0][1];
    }
    assert_true(different > N_DECODED / 4);
    rd_backend_free(cpu);
    rd_backend_free(gpu);
    rd_params_free(ps);
    free(d);
}
#endif

static void make_tests(test_list *l)
{
    for (int i = 0; i < N_BEST; i++) add_test(l, bests[i].name, test_best, &bests[i]);
    for (int i = 0; i < N_SEARCH && !test_on_gpu(); i++) /* the host's part alone */
        add_test(l, searches[i].name, test_search, &searches[i]);
#ifdef RD_CUDA
    if (test_on_gpu()) {
        add_test(l, "test_follow", test_follow, NULL);
        add_test(l, "test_many_tokens", test_many_tokens, NULL);
    }
#endif
}

RD_TESTS_MADE("ops: search", make_tests)
