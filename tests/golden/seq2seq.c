/* seq2seq.c -- compares the models of sentence pairs, seq2seq and transformer, with PyTorch in
 * float64.
 *
 * The cases of seq2seq are every legal cell x encoder x attention, those of transformer its forms.
 * Compared are the loss, gradients, ten Adam updates, searches and coverage penalties. README.md of
 * this folder describes the cases and how they were made. With RD_TEST_DEVICE=cuda all runs
 * on a GPU.
 *
 * Tolerances:
 *   losses       1e-5 relative: float32 PyTorch is within 1e-7 of float64; run_dist sums in another
 *                order
 *   gradients    1e-4 of the largest element of the same parameter
 *   updates      1e-3 of the sum of squares after ten updates: Adam makes a gradient near zero a
 *                full step
 *   scores       1e-4 relative plus 1e-5: log softmax subtracts float32 numbers as large as the
 *                logits, up to about 20
 *   mixed        losses LOSS_MIXED relative: operands of products, and on a GPU values inside a
 *                layer, are off by up to 0.2 %; gradients NARROW_ERRORS of the error that PyTorch's
 *                own bfloat16 gradient of the case has */
#include "golden_model.h"
#include "rd/npz.h"
#include "rd/optim.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/golden"
enum { MOST_CASES = 200, MOST_ROWS = 16 };
static const double LOSS_MIXED = 3e-3, NARROW_ERRORS = 2.0;

typedef struct fixture {
    golden_model m;
    rd_npz *z;
    json_t *info;
    rd_batch batch;
} fixture;

static const rd_array *member(const rd_npz *z, const char *name)
{
    const rd_array *a = rd_npz_find(z, name);
    if (!a) fail_msg("no member '%s'", name);
    return a;
}

static double info_number(const fixture *f, const char *key)
{
    const json_t *v = json_object_get(f->info, key);
    assert_non_null(v);
    return json_number_value(v);
}

static void set_params(fixture *f, double scale)
{
    const float *all = member(f->z, "params")->data;
    const json_t *list = json_object_get(f->info, "parameters");
    assert_int_equal(json_array_size(list), rd_params_n(f->m.ps));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        rd_param *p = rd_params_find(f->m.ps, json_string_value(json_array_get(row, 0)));
        const json_t *shape = json_array_get(row, 1);
        if (!p)
            fail_msg("the model has no parameter '%s'", json_string_value(json_array_get(row, 0)));
        assert_int_equal(json_array_size(shape), p->n_dim);
        for (int k = 0; k < p->n_dim; k++)
            assert_int_equal(json_integer_value(json_array_get(shape, (size_t)k)), p->dim[k]);
        const float *from = all + json_integer_value(json_array_get(row, 2));
        for (int64_t k = 0; k < p->n; k++)
            test_values(f->m.ps)[p->offset + k] = (float)((double)from[k] * scale);
    }
    rd_params_touch(f->m.ps);
}

static fixture *open_case_as(const char *name, bool mixed)
{
    rd_status st = {0};
    fixture *f = calloc(1, sizeof *f);
    char path[512];
    assert_non_null(f);
    snprintf(path, sizeof path, FOLDER "/%s", name);
    must_do(rd_npz_new(path, &f->z, &st), &st);
    const rd_array *cj = member(f->z, "case_json"), *conf = member(f->z, "config_json");
    f->info = json_loadb(cj->data, cj->bytes, 0, NULL);
    assert_non_null(f->info);
    const rd_data_spec spec = {.src_vocab_size = (int64_t)info_number(f, "src_vocab_size"),
                               .tgt_vocab_size = (int64_t)info_number(f, "tgt_vocab_size")};
    golden_open(&f->m, name, conf->data, conf->bytes, GOLDEN_UNKNOWN_KEYS, &spec);
    must_do(rd_params_seal(f->m.ps, 1, NAN, &st), &st);
    set_params(f, 1.0);
    golden_start_as(&f->m, mixed);
    static const int64_t ids[MOST_ROWS] = {0, 1, 2, 3, 4, 5, 6, 7};
    const rd_array *so = member(f->z, "src_off"), *to = member(f->z, "tgt_off");
    f->batch = (rd_batch){
        .n = so->dim[0] - 1, .n_global = so->dim[0] - 1, .sample = ids, .n_fields = 2};
    assert_true(f->batch.n <= MOST_ROWS);
    f->batch.field[0] = (rd_field){
        .name = "source", .dtype = RD_I32, .data = member(f->z, "src")->data, .off = so->data};
    f->batch.field[1] = (rd_field){
        .name = "target", .dtype = RD_I32, .data = member(f->z, "tgt")->data, .off = to->data};
    return f;
}

static fixture *open_case(const char *name)
{
    return open_case_as(name, false);
}

static void close_case(fixture *f)
{
    golden_close(&f->m);
    json_decref(f->info);
    rd_npz_free(f->z);
    free(f);
}

static void test_gradients(void **state)
{
    fixture *f = open_case(*state);
    const rd_loss_out out = golden_loss(&f->m, &f->batch, true);
    golden_near(out.loss_sum, info_number(f, "loss_sum"), 1e-5, "loss");
    golden_near(out.weight, info_number(f, "weight"), 0, "weight");
    golden_near(out.n_correct, info_number(f, "n_correct"), 0, "right words");
    const float *want = member(f->z, "grads")->data;
    const json_t *list = json_object_get(f->info, "parameters");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        const rd_param *p = rd_params_find(f->m.ps, json_string_value(json_array_get(row, 0)));
        const float *w = want + json_integer_value(json_array_get(row, 2)),
                    *g = test_grads(f->m.ps) + p->offset;
        double most = 0, gap = 0;
        for (int64_t k = 0; k < p->n; k++) {
            const double d = fabs((double)g[k] / out.weight - (double)w[k]);
            most = fmax(most, fabs((double)w[k]));
            gap = d > gap || isnan(d) ? d : gap;
        }
        if (!(gap <= 1e-4 * most))
            fail_msg("gradient of %s: off by %.3g of %.3g", p->name, gap, most);
    }
    close_case(f);
}

/* Of a Transformer. */
static void test_mixed(void **state)
{
    fixture *f = open_case_as(*state, true);
    const rd_loss_out out = golden_loss(&f->m, &f->batch, true);
    const double want = info_number(f, "loss_sum"),
                 most = NARROW_ERRORS * info_number(f, "narrow_error");
    double norm = 0.0, gap = 0.0;
    golden_near(out.loss_sum, want, LOSS_MIXED, "loss in mixed precision");
    assert_true(fabs(out.loss_sum - want) > 1e-6 * want);
    const float *grads = member(f->z, "grads")->data;
    const json_t *list = json_object_get(f->info, "parameters");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        const rd_param *p = rd_params_find(f->m.ps, json_string_value(json_array_get(row, 0)));
        const float *w = grads + json_integer_value(json_array_get(row, 2)),
                    *g = test_grads(f->m.ps) + p->offset;
        for (int64_t k = 0; k < p->n; k++) {
            const double d = (double)g[k] / out.weight - (double)w[k];
            gap += d * d;
            norm += (double)w[k] * (double)w[k];
        }
    }
    if (!(gap <= most * most * norm))
        fail_msg("gradient: off by %.3g of %.3g, at most %.3g is allowed", sqrt(gap), sqrt(norm),
                 most * sqrt(norm));
    close_case(f);
}

static void test_adam(void **state)
{
    fixture *f = open_case(*state);
    rd_status st = {0};
    rd_optim *o;
    rd_optim_config c;
    const rd_array *losses = member(f->z, "adam_loss");
    const double *want = losses->data, *sum = member(f->z, "adam_sum")->data,
                 *sumsq = member(f->z, "adam_sumsq")->data;
    must_do(rd_optim_read(f->m.config, RD_MODE_TRAIN, &c, &st), &st);
    must_do(rd_optim_new(&c, f->m.ps, 1, &o, &st), &st);
    for (int64_t i = 0; i < losses->dim[0]; i++) {
        const rd_loss_out out = golden_loss(&f->m, &f->batch, true);
        golden_near(out.loss_sum / out.weight, want[i], 1e-5, "loss of an Adam step");
        rd_optim_stats stats = {0};
        must_do(rd_optim_step(o, i + 1, 0.01, 1.0 / out.weight, &stats, &st), &st);
    }
    const rd_loss_out out = golden_loss(&f->m, &f->batch, true);
    golden_near(out.loss_sum / out.weight, info_number(f, "adam_loss_after"), 1e-5,
                "loss after ten Adam steps");
    const json_t *list = json_object_get(f->info, "parameters");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const rd_param *p =
            rd_params_find(f->m.ps, json_string_value(json_array_get(json_array_get(list, i), 0)));
        double s = 0, q = 0;
        for (int64_t k = 0; k < p->n; k++) {
            const double w = (double)test_values(f->m.ps)[p->offset + k];
            s += w;
            q += w * w;
        }
        golden_near(q, sumsq[i], 1e-3, p->name);
        if (fabs(s - sum[i]) > 1e-3 * sqrt(sumsq[i] * (double)p->n))
            fail_msg("sum of %s: got %.6g, want %.6g", p->name, s, sum[i]);
    }
    rd_optim_free(o);
    close_case(f);
}

/* Decodes n sentences of the batch, from sentence `first` on, and compares them with search s. */
static void search_near(fixture *f, size_t s, int64_t first, int64_t n, rd_decoded *out)
{
    rd_status st = {0};
    const json_t *row = json_array_get(json_object_get(f->info, "decode_searches"), s);
    const int32_t *ids = member(f->z, "decode_ids")->data;
    const int64_t *off = member(f->z, "decode_off")->data,
                  width = json_integer_value(json_array_get(row, 0));
    const double *score = member(f->z, "decode_score")->data;
    const rd_decode_config c = {
        .search = {.beam_width = width ? width : 1,
                   .length_penalty = json_number_value(json_array_get(row, 1))}};
    rd_batch b = f->batch;
    b.n = b.n_global = n;
    b.sample += first;
    for (int k = 0; k < b.n_fields; k++) b.field[k].off += first;
    rd_tape_reset(f->m.tape, false, false);
    must_do(f->m.def->decode(f->m.model, f->m.tape, &b, &c, out, &st), &st);
    for (int64_t i = 0; i < n; i++) {
        const int64_t piece = (int64_t)s * f->batch.n + first + i,
                      len = off[piece + 1] - off[piece];
        if (out[i].n != len || memcmp(out[i].ids, ids + off[piece], (size_t)len * sizeof *ids) != 0)
            fail_msg("search %zu (beam %lld), sentence %lld: %lld tokens that differ from the "
                     "reference's %lld",
                     s, (long long)width, (long long)(first + i), (long long)out[i].n,
                     (long long)len);
        if (!(fabs(out[i].score - score[piece]) <= 1e-5 + 1e-4 * fabs(score[piece])))
            fail_msg("score: got %.9g, want %.9g", out[i].score, score[piece]);
    }
}

/* All sentences at once; the same with the smallest arrays, which grow and lose rows; and each
 * sentence alone, which changes no bit on a CPU. */
static void test_search(void **state)
{
    fixture *f = open_case(*state);
    rd_backend *be = f->m.device ? f->m.device : f->m.be;
    const int64_t n = f->batch.n;
    set_params(f, info_number(f, "decode_scale"));
    for (size_t s = 0; s < json_array_size(json_object_get(f->info, "decode_searches")); s++) {
        rd_decoded out[MOST_ROWS], alone;
        double score[MOST_ROWS];
        search_near(f, s, 0, n, out);
        for (int64_t i = 0; i < n; i++) score[i] = out[i].score;
        rd_backend_set_block_bytes(be, 1);
        search_near(f, s, 0, n, out);
        rd_backend_set_block_bytes(be, 0);
        for (int64_t i = 0; i < n; i++) {
            search_near(f, s, i, 1, &alone);
            if (!f->m.device && !(alone.score == score[i]))
                fail_msg("score of a sentence alone: %.9g, with others %.9g", alone.score,
                         score[i]);
        }
    }
    close_case(f);
}

/* The coverage penalty of greedy search is that of coverage.json. */
static void test_coverage(void **state)
{
    rd_status st = {0};
    fixture *f = open_case(*state);
    json_t *all = json_load_file(FOLDER "/coverage.json", 0, NULL);
    const json_t *rows = json_object_get(all, *state);
    rd_decoded out[MOST_ROWS];
    double plain[MOST_ROWS];
    set_params(f, info_number(f, "decode_scale"));
    assert_int_equal(json_array_size(rows), f->batch.n);
    for (int k = -1; k < 2; k++) { /* without coverage, then both forms */
        const rd_decode_config c = {
            .search = {.beam_width = 1,
                       .form = RD_LENGTH_GNMT,
                       .coverage = k < 0 ? 0.0 : 0.5,
                       .coverage_form = k == 1 ? RD_COVERAGE_SUMMARY : RD_COVERAGE_GNMT}};
        rd_tape_reset(f->m.tape, false, false);
        must_do(f->m.def->decode(f->m.model, f->m.tape, &f->batch, &c, out, &st), &st);
        for (int64_t i = 0; i < f->batch.n; i++) {
            if (k < 0) {
                plain[i] = out[i].score;
                continue;
            }
            const double sum =
                json_number_value(json_array_get(json_array_get(rows, (size_t)i), (size_t)k));
            const double want = k == 1 ? -sum / 2.0 : sum / 2.0, got = out[i].score - plain[i];
            if (!(fabs(got - want) <= 1e-4 + 1e-4 * fabs(want)))
                fail_msg("form %d, sentence %lld: coverage penalty %.9g, want %.9g", k,
                         (long long)i, got, want);
        }
    }
    json_decref(all);
    close_case(f);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds the files of a folder. Returns their number. */
static int list_cases(const char *folder, char (*name)[128])
{
    int n = 0;
    char path[256];
    snprintf(path, sizeof path, FOLDER "/%s", folder);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strlen(e->d_name) > 4 && strcmp(e->d_name + strlen(e->d_name) - 4, ".npz") == 0 &&
            n < MOST_CASES)
            snprintf(name[n++], sizeof *name, "%s/%.100s", folder, e->d_name);
    if (d) closedir(d);
    return n;
}

static void make_tests(test_list *l)
{
    static char title[8 * MOST_CASES][160], name[2 * MOST_CASES][128];
    const char *names[2 * MOST_CASES];
    const int n_seq2seq = list_cases("seq2seq", name),
              n = n_seq2seq + list_cases("transformer", name + n_seq2seq);
    int k = 0;
    for (int i = 0; i < n; i++) names[i] = name[i];
    if (n_seq2seq < 60 || n - n_seq2seq < 8) {
        fprintf(stderr,
                "%s holds %d and %d cases, at least 60 and 8 are expected; run from the project's "
                "folder\n",
                FOLDER, n_seq2seq, n - n_seq2seq);
        exit(1);
    }
    qsort(names, (size_t)n, sizeof *names, by_name);
    static const struct {
        const char *what;
        CMUnitTestFunction fn;
    } kinds[] = {{"loss and gradients", test_gradients},
                 {"ten Adam steps", test_adam},
                 {"greedy and beam search", test_search},
                 {"coverage penalty", test_coverage}};
    for (int i = 0; i < n; i++)
        for (int w = 0; w < 4; w++, k++) {
            snprintf(title[k], sizeof title[k], "%.100s: %s", names[i], kinds[w].what);
            add_test(l, title[k], kinds[w].fn, names[i]);
        }
    for (int i = 0; i < n; i++) {
        if (strncmp(names[i], "transformer/", 12) != 0) continue;
        snprintf(title[k], sizeof title[k], "%.100s: mixed", names[i]);
        add_test(l, title[k++], test_mixed, names[i]);
    }
}

RD_TESTS_MADE("golden seq2seq", make_tests)
