/* new_config.c -- the config of --new_config is right for every model: it is read, it has all keys
 * that a run needs and none of other parts, and each key of its second part may be taken as it
 * stands. */
#include "rd/model.h"
#include "rd/modes.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

static rd_config *config_of(const char *name, const rd_strbuf *text)
{
    const rd_option_group *groups[RD_MAX_GROUPS];
    rd_status st = {0};
    rd_config *c = NULL;
    must_do(rd_config_new(name, text->s, text->n, groups, rd_option_groups(groups), false, &c, &st),
            &st);
    return c;
}

/* Puts the values that the model itself gives, as the program does. */
static void put_model_keys(rd_config *c, const char *name)
{
    rd_status st = {0};
    for (const rd_model_key *k = rd_model_find(name)->keys; k && k->key; k++)
        if (!rd_config_has(c, k->key))
            must_do(rd_config_put(c, k->key, json_loads(k->value, JSON_DECODE_ANY, NULL), "model",
                                  &st),
                    &st);
}

static void check_config(const char *name, const rd_strbuf *text)
{
    static const rd_mode modes[] = {RD_MODE_TRAIN, RD_MODE_TRAIN_EVAL, RD_MODE_EVAL, RD_MODE_INFER};
    const rd_option_group *read[RD_MAX_GROUPS];
    rd_option_owner owners[RD_MAX_OWNERS];
    rd_strbuf notes = {0};
    rd_status st = {0};
    rd_config *c = config_of(name, text);
    /* The model's own recipe counts: the config has no batch, rate or size beside it. */
    for (const rd_model_key *k = rd_model_find(name)->keys; k && k->key; k++)
        assert_false(rd_config_has(c, k->key));
    put_model_keys(c, name);
    assert_int_equal(rd_config_has(c, "batch_size") + rd_config_has(c, "batch_tokens") +
                         rd_config_has(c, "batch_sentences"),
                     1);
    must_do(rd_config_check_owners(c, owners, rd_option_owners(c, owners), &notes, &st), &st);
    assert_string_equal(rd_strbuf_str(&notes), "");
    const int n = rd_option_groups_read(c, read);
    for (int i = 0; i < 4; i++)
        must_do(rd_config_check_required(c, read, n, modes[i], NULL, &st), &st);
    assert_string_equal(json_string_value(rd_config_get(c, "model")), name);
    rd_config_free(c);
}

static void test_all_models(void **state)
{
    int n = 0;
    const rd_model_def *const *defs = rd_model_defs(&n);
    (void)state;
    assert_true(n > 10);
    for (int i = 0; i < n; i++) {
        rd_strbuf text = {0};
        rd_status st = {0};
        must_do(rd_new_config(defs[i]->name, &text, &st), &st);
        for (const char *s = text.s; *s; s += strcspn(s, "\n"), s += *s == '\n')
            assert_true(strcspn(s, "\n") <= 120);
        check_config(defs[i]->name, &text);
        /* Nothing that stands there waits to be filled in. */
        assert_null(strstr(text.s, "\"FILE\""));
        assert_null(strstr(text.s, "\"TEXT\""));
        assert_null(strstr(text.s, "\n    \"src_vocab_file\"")); /* made from the text */
        rd_strbuf_release(&text);
    }
}

/* Every key of the second part but those without a default works without its two slashes, and then
 * has its default. */
static void test_second_part(void **state)
{
    rd_strbuf text = {0}, all = {0};
    rd_status st = {0};
    int taken = 0;
    (void)state;
    must_do(rd_new_config("seq2seq", &text, &st), &st);
    for (const char *s = text.s; *s;) {
        const size_t n = strcspn(s, "\n");
        if (n > 8 && !strncmp(s, "    // \"", 8) && memmem(s, n, "\": ", 3) &&
            !memmem(s, n, ": null,", 7)) {
            rd_strbuf_add(&all, s + 7, n - 7);
            taken++;
        } else {
            rd_strbuf_add(&all, s, n);
        }
        rd_strbuf_puts(&all, "\n");
        s += n + (s[n] == '\n');
    }
    assert_true(taken > 40);
    check_config("seq2seq", &all);
    rd_strbuf_release(&text);
    rd_strbuf_release(&all);
}

static void test_unknown(void **state)
{
    rd_strbuf text = {0};
    rd_status st = {0};
    (void)state;
    assert_int_equal(rd_new_config("seq2sec", &text, &st), RD_EUSAGE);
    assert_non_null(strstr(st.msg, "there is no model 'seq2sec'; one of alexnet, "));
    assert_non_null(strstr(st.msg, "did you mean 'seq2seq'?"));
    assert_int_equal(text.n, 0);
}

RD_TESTS("new_config", TEST(test_all_models), TEST(test_second_part), TEST(test_unknown))
