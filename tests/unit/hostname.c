/* hostname.c -- tests which names may be a word of an ssh line, and how an entry is taken apart. */
#include "rd/hostname.h"
#include "test.h"
#include <locale.h>
#include <stdio.h>
#include <string.h>

static void test_names(void **state)
{
    static const char *const good[] = {
        "a", "node1.example.org", "10.0.0.7", "_dmz", "a-", "A_b-c.", "::1", "fe80::1", "7"};
    static const char *const bad[] = {
        "",     "-a",  "-",     ".a",        "a b",          "a\n",   "a;b",  "a$b",
        "a`b`", "a'b", "a\"b",  "a/b",       "a@b",          "a,b",   "a:2",  "[::1]",
        "a*",   "~a",  "a\x01", "a\xc3\xa9", "fe80::1%eth0", "::1::", "a\\b", "+a"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!rd_host_name(good[i], strlen(good[i]))) fail_msg("'%s' is refused", good[i]);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
            if (rd_host_name(bad[i], strlen(bad[i]))) fail_msg("'%s' is accepted", bad[i]);
        if (!setlocale(LC_ALL, "C.UTF-8")) break;
    }
    (void)setlocale(LC_ALL, "C");
    assert_false(rd_host_name("a\0b", 3));
    char name[300];
    memset(name, 'a', sizeof name);
    assert_true(rd_host_name(name, 253));
    assert_false(rd_host_name(name, 254));
    assert_true(rd_host_user(name, 63));
    assert_false(rd_host_user(name, 64));
    assert_false(rd_host_user("-l", 2));
    assert_false(rd_host_user("a:b", 3));
}

static void test_counts(void **state)
{
    (void)state;
    assert_int_equal(rd_host_count("1", 1, 10), 1);
    assert_int_equal(rd_host_count("010", 3, 10), 10);
    assert_int_equal(rd_host_count("11", 2, 10), 0);
    assert_int_equal(rd_host_count("", 0, 10), 0);
    assert_int_equal(rd_host_count("0", 1, 10), 0);
    assert_int_equal(rd_host_count("+1", 2, 10), 0);
    assert_int_equal(rd_host_count("1 ", 2, 10), 0);
    assert_int_equal(rd_host_count("18446744073709551617", 20, INT64_C(1000000)), 0);
    assert_int_equal(rd_host_count("1000000", 7, RD_MOST_RANKS), RD_MOST_RANKS);
    assert_int_equal(rd_host_count("12345", 2, RD_MOST_RANKS), 12); /* only n characters count */
}

static void test_entries(void **state)
{
    static const struct {
        const char *entry, *user, *name, *slots; /* name NULL: an error */
    } t[] = {
        {"a", NULL, "a", NULL},
        {"a:2", NULL, "a", "2"},
        {"a:", NULL, "a", ""},
        {"me@a:x", "me", "a", "x"},
        {"::1", NULL, "::1", NULL},
        {"[::1]", NULL, "::1", NULL},
        {"me@[fe80::1]:2", "me", "fe80::1", "2"},
        {"fe80::1:2", NULL, "fe80::1:2", NULL},
        {"[::1]x", NULL, NULL, NULL},
        {"[::1", NULL, NULL, NULL},
        {"[a]:2", NULL, NULL, NULL},
        {"a:2:3", NULL, NULL, NULL},
        {"@a", NULL, NULL, NULL},
        {"me@", NULL, NULL, NULL},
        {"me@you@a", NULL, NULL, NULL},
        {"", NULL, NULL, NULL},
        {":2", NULL, NULL, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        rd_host_entry e;
        rd_status st = {0};
        char text[32];
        const rd_code code = rd_host_entry_read(t[i].entry, strlen(t[i].entry), "here", &e, &st);
        if (code != (t[i].name ? RD_OK : RD_EUSAGE)) fail_msg("'%s': %s", t[i].entry, st.msg);
        if (code != RD_OK) {
            assert_memory_equal(st.msg, "here: ", 6);
            continue;
        }
        snprintf(text, sizeof text, "%.*s", (int)e.n_name, e.name);
        assert_string_equal(text, t[i].name);
        assert_int_equal(e.user != NULL, t[i].user != NULL);
        if (e.user) snprintf(text, sizeof text, "%.*s", (int)e.n_user, e.user);
        if (e.user) assert_string_equal(text, t[i].user);
        assert_int_equal(e.slots != NULL, t[i].slots != NULL);
        if (e.slots) snprintf(text, sizeof text, "%.*s", (int)e.n_slots, e.slots);
        if (e.slots) assert_string_equal(text, t[i].slots);
    }
}

RD_TESTS("hostname", TEST(test_names), TEST(test_counts), TEST(test_entries))
