/* test.h -- for every test with cmocka: cmocka itself, must(), a main from a list of tests.
 *
 *     #include "rd/npz.h"
 *     #include "test.h"
 *
 *     static void test_empty(void **state)
 *     {
 *         (void)state;
 *         ...
 *     }
 *
 *     RD_TESTS("npz", TEST(test_empty), TEST_ROWS(check_file, file_rows))
 *
 * cmocka.h needs the four headers in front of it, in this order. */
#ifndef RD_TESTS_TEST_H
#define RD_TESTS_TEST_H

#include "rd/status.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Fails the test with the message of st, unless st is RD_OK. */
static inline void must(const rd_status *st)
{
    if (st->code != RD_OK) fail_msg("%s (%s)", st->msg, st->where);
}

/* The same for a call that returns its code: must_do(rd_npz_read(..., &st), &st). */
static inline void must_do(rd_code code, const rd_status *st)
{
    if (code != RD_OK) fail_msg("%s (%s)", st->msg, st->where);
}

/* Skips the test and prints the reason, which tests/gpu/check demands. */
#define skip_because(reason)          \
    do {                              \
        printf("skip: %s\n", reason); \
        skip();                       \
    } while (0)

/* Returns whether CASES=all is set (make test-all): tests run every case. */
static inline bool all_cases(void)
{
    const char *text = getenv("CASES");
    return text && strcmp(text, "all") == 0;
}

/* Returns whether tests check seconds of CPU time: with CASES=all, without sanitizers. */
static inline bool counts_seconds(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false;
#else
    return all_cases();
#endif
}

/* Runs fn(arg) in a child process, for code that ends the program. Returns the child's wait
 * status, 0 if fn returned; said gets what the child wrote to stderr, cut at n bytes. */
static inline int run_in_child(void (*fn)(void *), void *arg, char *said, size_t n)
{
    int ends[2], status = -1;
    size_t used = 0;
    if (pipe(ends) != 0) fail_msg("no pipe");
    const pid_t pid = fork();
    if (pid == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        fn(arg);
        _exit(0);
    }
    (void)close(ends[1]);
    for (char part[512]; pid > 0;) {
        const ssize_t k = read(ends[0], part, sizeof part);
        if (k <= 0) break;
        for (ssize_t i = 0; i < k && used + 1 < n; i++) said[used++] = part[i];
    }
    said[used] = '\0';
    (void)close(ends[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid) fail_msg("no child process");
    return status;
}

/* ---- lists of tests ---- */

/* One entry of RD_TESTS: one test, or one test for each row of a table. */
typedef struct test_entry {
    const char *name;
    CMUnitTestFunction fn;
    CMFixtureFunction setup, teardown;
    const void *state; /* what fn gets as *state; with n > 0 the table, and fn gets a row */
    size_t n, size;    /* number of rows, bytes of a row */
    size_t name_at;    /* offset of the row's name, a const char * */
} test_entry;

/* The test f, by the name of the function. */
#define TEST(f)              \
    {                        \
        .name = #f, .fn = f, \
    }
/* The same, between a setup and a teardown of its own; either may be NULL. */
#define TEST_WITH(f, set_up, tear_down)                              \
    {                                                                \
        .name = #f, .fn = f, .setup = set_up, .teardown = tear_down, \
    }
/* The test f under another name, with what it gets as *state (NULL is fine). */
#define TEST_NAMED(title, f, data)             \
    {                                          \
        .name = title, .fn = f, .state = data, \
    }
/* One test for each row of a table: f gets a pointer to the row as *state. The row's member `name`,
 * or another member, is the name of the test. */
#define TEST_ROWS(f, table) TEST_ROWS_BY(f, table, name)
#define TEST_ROWS_BY(f, table, member)                                                          \
    {                                                                                           \
        .fn = f, .state = table, .n = sizeof(table) / sizeof *(table), .size = sizeof *(table), \
        .name_at = offsetof(__typeof__(*(table)), member),                                      \
    }

/* The tests of a program, in their order. */
typedef struct test_list {
    struct CMUnitTest *tests;
    size_t n, capacity;
} test_list;

/* Adds a test. The name and the state are borrowed until the tests have run. */
static inline void add_test(test_list *l, const char *name, CMUnitTestFunction fn,
                            const void *state)
{
    if (l->n == l->capacity) {
        l->capacity = 2 * l->capacity + 16;
        l->tests = realloc(l->tests, l->capacity * sizeof *l->tests);
        if (!l->tests) abort();
    }
    l->tests[l->n++] = (struct CMUnitTest){
        .name = name, .test_func = fn, .initial_state = (void *)(uintptr_t)state};
}

/* Adds the tests of one entry of RD_TESTS. */
static inline void add_entry(test_list *l, const test_entry *e)
{
    for (size_t i = 0; i < (e->n > 0 ? e->n : 1); i++) {
        const char *row = e->n > 0 ? (const char *)e->state + i * e->size : NULL, *name = e->name;
        if (row) memcpy(&name, row + e->name_at, sizeof name);
        add_test(l, name, e->fn, row ? row : e->state);
        l->tests[l->n - 1].setup_func = e->setup;
        l->tests[l->n - 1].teardown_func = e->teardown;
    }
}

/* Runs the tests between setup and teardown, which may be NULL, frees the list, and returns the
 * exit status. RD_TEST_ONLY='text of *' runs only tests whose name matches, with * and ?. */
static inline int run_list(const char *group, test_list *l, CMFixtureFunction setup,
                           CMFixtureFunction teardown)
{
    const char *only = getenv("RD_TEST_ONLY");
    if (only) cmocka_set_test_filter(only);
    const int failures = _cmocka_run_group_tests(group, l->tests, l->n, setup, teardown);
    free(l->tests);
    return failures != 0;
}

static inline int run_entries(const char *group, const test_entry *e, size_t n,
                              CMFixtureFunction setup, CMFixtureFunction teardown)
{
    test_list l = {.n = 0};
    for (size_t i = 0; i < n; i++) add_entry(&l, &e[i]);
    return run_list(group, &l, setup, teardown);
}

/* The main of a test program: runs the entries as a group of that name. */
#define RD_TESTS(group, ...) RD_TESTS_WITH(group, NULL, NULL, __VA_ARGS__)
/* The same, with what runs once before all of them and once after; either may be NULL. */
#define RD_TESTS_WITH(group, set_up, tear_down, ...)                                             \
    int main(void)                                                                               \
    {                                                                                            \
        const test_entry entries[] = {__VA_ARGS__};                                              \
        return run_entries(group, entries, sizeof entries / sizeof *entries, set_up, tear_down); \
    }
/* The main of a program whose tests depend on the build or on files: `make` adds them to a
 * test_list. */
#define RD_TESTS_MADE(group, make)                 \
    int main(void)                                 \
    {                                              \
        test_list list = {.n = 0};                 \
        make(&list);                               \
        return run_list(group, &list, NULL, NULL); \
    }

#endif
