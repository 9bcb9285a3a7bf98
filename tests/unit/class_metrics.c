/* class_metrics.c -- class metrics: what every definition promises, and accuracy, top-5 and the
 * confusion matrix of a batch that a reader can count. */
#include "../../runner/run/class_counts.h"
#include "test.h"
#include <math.h>

enum { N = 5, CLASSES = 7 };

static const int32_t labels[N] = {0, 1, 1, 6, 6}, predicted[N] = {0, 1, 2, 6, 0},
                     ranks[N] = {0, 0, 4, 0, 5};

/* Counts the batch above. */
static class_counts counted(bool in_training, bool pictures, int64_t n_classes)
{
    const rd_batch b = {
        .n = N, .n_fields = 1, .field = {{.name = "label", .dtype = RD_I32, .data = labels}}};
    const rd_loss_out out = {.argmax = predicted, .rank = ranks};
    class_counts k = {.in_training = in_training, .pictures = pictures, .n_classes = n_classes};
    k.at = calloc((size_t)class_counts_n(&k) + 1, sizeof *k.at);
    assert_non_null(k.at);
    class_counts_add(&k, &b, &out);
    assert_int_equal(k.n_samples, N);
    return k;
}

static void test_definitions(void **state)
{
    int n, n_deciding = 0;
    const rd_class_metric_def *const *defs = rd_class_metric_defs(&n);
    (void)state;
    assert_int_equal(n, CLASS_METRICS);
    for (int i = 0; i < n; i++) {
        const rd_class_metric_def *m = defs[i];
        assert_true(m->name[0] && m->about[0] && m->n_counts && m->add);
        if (m->in_training) assert_in_range(m->n_counts(1000), 0, RD_CLASS_STEP_COUNTS);
        assert_true(m->in_training || (!m->epoch_tag && !m->bench_column));
        assert_true(m->figures || (!m->decides && !m->epoch_tag && !m->bench_column));
        n_deciding += m->decides;
        if (i > 1) assert_true(strcmp(defs[i - 1]->name, m->name) < 0);
    }
    assert_int_equal(n_deciding, 1);
    assert_true(defs[0]->decides);
}

static rd_figure figure_named(const class_counts *k, const char *name)
{
    rd_figure f[CLASS_FIGURES];
    const int n = class_figures(k, f);
    for (int i = 0; i < n; i++)
        if (strcmp(f[i].name, name) == 0) return f[i];
    fail_msg("no figure %s", name);
    return f[0];
}

static void check_figures(const class_counts *k)
{
    rd_figure f;
    assert_float_equal(figure_named(k, "accuracy").value, 0.6, 1e-12);
    assert_float_equal(figure_named(k, "accuracy_top5").value, 0.8, 1e-12);
    assert_true(figure_named(k, "accuracy_top5").higher_is_better);
    assert_true(class_deciding_figure(k, &f));
    assert_string_equal(f.name, "accuracy");
}

static void test_evaluation(void **state)
{
    class_counts k = counted(false, true, CLASSES);
    char line[256];
    (void)state;
    check_figures(&k);
    class_lines(&k, RD_CLASS_EVALUATION, "; ", line, sizeof line);
    assert_string_equal(line, "; accuracy 60.000 % (3 of 5); top-5 80.000 %");
    free(k.at);
    k = counted(false, true, 5); /* five classes: top-5 says nothing */
    class_lines(&k, RD_CLASS_EVALUATION, "; ", line, sizeof line);
    assert_string_equal(line, "; accuracy 60.000 % (3 of 5)");
    free(k.at);
}

/* Counts of a training step are sums in double. */
static void test_training(void **state)
{
    class_counts k = counted(true, false, CLASSES);
    double sums[STEP_CLASS_COUNTS];
    int64_t at[STEP_CLASS_COUNTS];
    char line[256];
    (void)state;
    for (int i = 0; i < STEP_CLASS_COUNTS; i++) sums[i] = (double)k.at[i];
    free(k.at);
    k = class_counts_of_sums(sums, N, CLASSES, at);
    check_figures(&k);
    class_lines(&k, RD_CLASS_STEP, "  ", line, sizeof line);
    assert_string_equal(line, "  accuracy 60.00 %  top-5 80.00 %");
    class_lines(&k, RD_CLASS_EPOCH, ", ", line, sizeof line);
    assert_string_equal(line, ", accuracy 60.000 %");
    k = class_counts_of_sums((double[STEP_CLASS_COUNTS]){0}, 0.0, CLASSES, at);
    assert_true(isnan(figure_named(&k, "accuracy").value));
    class_lines(&k, RD_CLASS_EPOCH, ", ", line, sizeof line);
    assert_string_equal(line, ", accuracy nan %");
}

/* The confusion matrix counts for pictures only, and for at most 100 classes. Wrong labels do not
 * count. */
static void test_confusion(void **state)
{
    int n, found = -1;
    const rd_class_metric_def *const *defs = rd_class_metric_defs(&n);
    int64_t at[9] = {0};
    const rd_class_counts c = {.at = at, .n_classes = 3};
    (void)state;
    for (int i = 0; i < n; i++)
        if (strcmp(defs[i]->name, "confusion") == 0) found = i;
    assert_true(found >= 0);
    const class_counts without = {.n_classes = 10}, with = {.n_classes = 10, .pictures = true};
    assert_int_equal(class_counts_n(&with) - class_counts_n(&without), 100);
    assert_int_equal(defs[found]->n_counts(100), 10000);
    assert_int_equal(defs[found]->n_counts(101), 0);
    const rd_class_sample sample[] = {{0, 0, 0}, {0, 2, 1}, {0, 2, 1}, {3, 1, 0}, {-1, 1, 0}};
    for (int i = 0; i < 5; i++) defs[found]->add(&c, &sample[i]);
    const int64_t want[9] = {1, 0, 2, 0, 0, 0, 0, 0, 0};
    assert_memory_equal(at, want, sizeof want);
}

RD_TESTS("class_metrics", TEST(test_definitions), TEST(test_evaluation), TEST(test_training),
         TEST(test_confusion))
