/* config.c -- fuzz target: reads any bytes as a config, as the assignment of a --set, and as the
 * words of a command line.
 *
 * Any answer is right except a crash, a leak, or a failure without a printable message. Comments
 * and trailing commas become blanks: strict JSON stays as it is, and so do all newlines. */
#include "rd/cli.h"
#include "../../runner/config/config_impl.h"
#include <float.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct fields {
    int64_t n, any;
    double r, x;
    bool b, has_n;
    const char *text, *choice, *location, *path;
    int word;
    rd_ints list;
} fields;

static const char *const choices[] = {"lstm", "gru", "glstm", "slstm", NULL};
static const rd_option rows[] = {
    RD_OPT_INT(fields, batch_size, n, NULL, 1, 1e6, "sentences per rank", RD_GIVEN(fields, has_n),
               RD_REQUIRED(RD_MODE_TRAIN)),
    RD_OPT_INT(fields, any, any, "0", -0x1p63, 0x1p63, "any integer"),
    RD_OPT_REAL(fields, keep_prob, r, "0.9", 0.0, 1.0, "keep probability"),
    RD_OPT_REAL(fields, x, x, NULL, -DBL_MAX, DBL_MAX, "any number"),
    RD_OPT_BOOL(fields, use_decay, b, "false", "a switch"),
    RD_OPT_STRING(fields, delimiter, text, "\" \"", "joins tokens"),
    RD_OPT_STRING(fields, data_location, location, NULL, "folder of the data"),
    RD_OPT_STRING(fields, source_file, path, "\"[WMT16_DATA_LOCATION]/a\"", "text"),
    RD_OPT_ENUM(fields, attention_type, word, NULL, choices, "a word by its index"),
    RD_OPT_NAME(fields, cell_type, choice, "\"lstm\"", choices, "kind of cell"),
    RD_OPT_INTS(fields, bucket_src, list, "[50]", 1, 10000, "length limits"),
    RD_OPT_END,
};
static const rd_option_group group = {"fuzz", "keys of this target", rows, sizeof(fields)};
static const rd_option_group *const groups[] = {&group};

static void must(bool ok)
{
    if (!ok) abort();
}

static void check_status(const rd_status *st)
{
    if (st->code == RD_OK) return;
    must(st->code == RD_EUSAGE || st->code == RD_EENV);
    must(st->msg[0] != '\0' && memchr(st->msg, '\0', sizeof st->msg));
    for (const char *s = st->msg; *s; s++) must((unsigned char)*s >= 0x20 && *s != 0x7F);
    json_t *text = json_string(st->msg); /* NULL for invalid UTF-8 */
    must(text);
    json_decref(text);
}

static void use(rd_config *c)
{
    static const rd_mode modes[] = {RD_MODE_TRAIN, RD_MODE_INFER};
    for (int i = 0; i < 2; i++) {
        fields f;
        rd_status st = {0};
        if (rd_config_read(c, &group, modes[i], &f, &st) == RD_OK) {
            must(f.r >= 0.0 && f.r <= 1.0 && (!f.has_n || (f.n >= 1 && f.n <= 1000000)));
            for (int k = 0; k < f.list.n; k++) must(f.list.at[k] >= 1 && f.list.at[k] <= 10000);
            (void)rd_config_placeholder(f.path);
        }
        check_status(&st);
    }
    /* A config that is written and read again must be the same. */
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    must(out);
    rd_config_write(c, out);
    must(fclose(out) == 0);
    json_t *again = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL),
           *effective = rd_config_effective(c);
    must(again && effective && json_object_size(again) == json_object_size(effective));
    json_decref(again);
    json_decref(effective);
    free(text);
    for (int i = 0; rd_config_unknown(c, i); i++)
        must(rd_config_where(c, rd_config_unknown(c, i)) != NULL);
}

static void as_config(const char *text, size_t n, bool allow_unknown)
{
    rd_status st = {0};
    rd_config *c = NULL;
    must((rd_config_new("fuzz.json", text, n, groups, 1, allow_unknown, &c, &st) == RD_OK) ==
         (c != NULL));
    check_status(&st);
    if (c) use(c);
    rd_config_free(c);
}

static void as_assignment(const char *text, bool allow_unknown)
{
    rd_status st = {0};
    rd_config *c = NULL;
    must(rd_config_new("fuzz.json", "{}", 2, groups, 1, allow_unknown, &c, &st) == RD_OK);
    (void)rd_config_set(c, text, &st);
    check_status(&st);
    use(c);
    rd_config_free(c);
}

static void as_words(char *text)
{
    char name[] = "run_dist", *argv[18] = {name}, *rest = NULL;
    int argc = 1;
    for (char *w = strtok_r(text, "\n", &rest); w && argc < 17; w = strtok_r(NULL, "\n", &rest))
        argv[argc++] = w;
    rd_status st = {0};
    rd_cli cli;
    if (rd_cli_parse_with_keys(argc, argv, groups, 1, &cli, &st) == RD_OK)
        (void)rd_cli_check(&cli, &st);
    check_status(&st);
    rd_cli_release(&cli);
}

static void relaxed(const char *text, size_t n)
{
    char *once = malloc(n + !n), *twice = malloc(n + !n); /* exact, for the sanitizer */
    must(once && twice);
    memcpy(once, text, n);
    rd_json_relax(once, n);
    memcpy(twice, once, n);
    rd_json_relax(twice, n);
    must(memcmp(once, twice, n) == 0);
    for (size_t i = 0; i < n; i++)
        must(once[i] == text[i] || (once[i] == ' ' && text[i] != '\n' && text[i] != '\r'));
    json_t *strict = json_loadb(text, n, JSON_DECODE_ANY, NULL);
    if (strict) must(memcmp(once, text, n) == 0);
    json_decref(strict);
    free(once);
    free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size) relaxed((const char *)data, size);
    as_config((const char *)data, size, false);
    as_config((const char *)data, size, true);
    char *text = malloc(size + 1);
    must(text);
    if (size) memcpy(text, data, size);
    text[size] = '\0';
    as_assignment(text, false);
    as_assignment(text, true);
    as_words(text);
    free(text);
    return 0;
}
