/* config_errors.c -- every message that a wrong config or a wrong --set can meet, in full. */
#include "rd/options.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

typedef struct fields {
    int64_t batch_size, layers, large, signed_;
    bool use_decay;
    double keep, wide;
    const char *delimiter, *cell;
    rd_ints buckets;
} fields;

static const char *const cells[] = {"lstm", "gru", "glstm", NULL};
static const rd_option rows_[] = {
    RD_OPT_INT(fields, batch_size, batch_size, NULL, 1, 65536, "sentences per rank"),
    RD_OPT_INT(fields, encoder_layers, layers, "1", 1, 1000, "number of layers"),
    RD_OPT_BOOL(fields, use_decay, use_decay, "false", "turns the schedule on"),
    RD_OPT_REAL(fields, keep_prob, keep, "0.9", 0.0, 1.0, "keep probability"),
    RD_OPT_STRING(fields, delimiter, delimiter, "\" \"", "joins tokens"),
    RD_OPT_NAME(fields, cell_type, cell, "\"lstm\"", cells, "kind of cell"),
    RD_OPT_INT(fields, large, large, NULL, 0, 0x1p53, "a large integer"),
    RD_OPT_INT(fields, signed, signed_, NULL, -0x1p53, 0x1p53, "a larger one"),
    RD_OPT_REAL(fields, wide, wide, NULL, -1e300, 1e300, "any number"),
    RD_OPT_INTS(fields, bucket_src, buckets, "[50]", 1, 10000, "length limits"),
    RD_OPT_END,
};
static const rd_option_group group = {"test", "keys of this test", rows_, sizeof(fields)};
static const rd_option_group *const groups[] = {&group};

typedef struct row {
    const char *name;
    const char *text; /* of the file; for --set the assignment */
    size_t n;         /* 0: strlen(text) */
    const char *want; /* the whole message */
} row;

#define EMPTY "x.json: the config is empty; write one JSON object, {\"key\": value, ...}"
#define OBJECT \
    ": a config is one JSON object, {\"key\": value, ...}, in UTF-8, but this begins with "
#define ALLOW " (--allow_unknown_keys turns this into a warning)"
#define LIMITS "integers go to 9223372036854775807, other numbers to 1.79e308"

static row file_rows[] = {
    /* not JSON */
    {"empty file", "", 0, EMPTY},
    {"white space only", " \t\r\n \n", 0, EMPTY},
    {"byte order mark only", "\xEF\xBB\xBF", 0, EMPTY},
    {"a list", "\n [1, 2]", 0, "x.json:2:2" OBJECT "'[1, 2]'"},
    {"null", "null", 0, "x.json:1:1" OBJECT "'null'"},
    {"UTF-16", "\xFF\xFE{\0}\0", 6, "x.json:1:1" OBJECT "'??{?}?'"},
    {"UTF-16 without a mark", "{\0\n\0}\0", 6,
     "x.json:1:3: not valid JSON: string or '}' expected near end of file; a NUL byte stands "
     "there; save the file as UTF-8"},
    {"NUL bytes behind it", "{}\0\0", 4,
     "x.json:1:4: not valid JSON: end of file expected near end of file; a NUL byte stands there; "
     "save the file as UTF-8"},
    {"escape sequence", "\x1B[31m{}", 0, "x.json:1:1" OBJECT "'?[31m{}'"},
    {"object not closed", "{\"batch_size\": 3", 0,
     "x.json:1:17: not valid JSON: '}' expected near end of file; a bracket or a quote is not "
     "closed"},
    {"string not closed", "{\"delimiter\": \"x", 0,
     "x.json:1:15: not valid JSON: premature end of input near '\"x'; a bracket or a quote is not "
     "closed"},
    {"string over two lines", "{\"delimiter\": \"x\ny\"}", 0,
     "x.json:1:15: not valid JSON: unexpected newline near '\"x'; close the string before the end "
     "of its line, or "
     "write "
     "\\n"},
    {"two commas", "{\"batch_size\": 3,,\n}", 0,
     "x.json:1:18: not valid JSON: string or '}' expected near ','; see json.org for the syntax"},
    {"a comma alone", "{,}", 0,
     "x.json:1:2: not valid JSON: string or '}' expected near ','; see json.org for the syntax"},
    {"a comma in place of a value", "{\"batch_size\":,}", 0,
     "x.json:1:15: not valid JSON: unexpected token near ','; see json.org for the syntax"},
    {"a comment without an end", "{\n  /* sizes\n\"batch_size\": 1}", 0,
     "x.json:2:3: not valid JSON: string or '}' expected near '/'; the comment that begins here "
     "has "
     "no end"},
    {"half of a comment", "{ / sizes\n\"batch_size\": 1}", 0,
     "x.json:1:3: not valid JSON: string or '}' expected near '/'; a comment begins with // or /*"},
    {"a mistake behind comments", "{ // one, {\n /* two\n \"three */ \"batch_size\": 0, }", 0,
     "x.json:3:26: 'batch_size' must be an integer, 1 .. 65536, not 0; meaning: sentences per "
     "rank"},
    {"columns behind a comment that is not ASCII",
     "{/* \xC3\xA9\xE2\x82\xAC */ \"encoder_layers\": 0}", 0,
     "x.json:1:29: 'encoder_layers' must be an integer, 1 .. 1000, not 0; meaning: number of "
     "layers"},
    {"a comment in a string is none", "{\"delimiter\": \"//\", \"cell_type\": \"/* */\"}", 0,
     "x.json:1:34: 'cell_type' must be one of lstm, gru, glstm, not \"/* */\"; meaning: kind of "
     "cell"},
    {"an escaped quote before the slashes", "{\"delimiter\": \"\\\" // \", \"encoder_layers\": 0}",
     0,
     "x.json:1:43: 'encoder_layers' must be an integer, 1 .. 1000, not 0; meaning: number of "
     "layers"},
    {"a file of comments", "// nothing\n/* else */", 0, EMPTY},
    {"comma missing", "{\"batch_size\": 3\n  \"keep_prob\": 1}", 0,
     "x.json:2:3: not valid JSON: '}' expected near '\"keep_prob\"'; is a comma missing before "
     "it?"},
    {"True", "{\"use_decay\": True}", 0,
     "x.json:1:15: not valid JSON: invalid token near 'True'; write true or false in lower case"},
    {"None", "{\"batch_size\": None}", 0,
     "x.json:1:16: not valid JSON: invalid token near 'None'; leave the key out instead"},
    {"NaN", "{\"keep_prob\": NaN}", 0,
     "x.json:1:15: not valid JSON: invalid token near 'NaN'; JSON has finite numbers only"},
    {"bare word", "{\"cell_type\": lstm}", 0,
     "x.json:1:15: not valid JSON: invalid token near 'lstm'; strings need double quotes"},
    {"bare key", "{batch_size: 1}", 0,
     "x.json:1:2: not valid JSON: string or '}' expected near 'batch'; keys and strings need "
     "double quotes"},
    {"single quotes", "{'batch_size': 1}", 0,
     "x.json:1:2: not valid JSON: string or '}' expected near '''; JSON strings have double "
     "quotes"},
    {"comment", "{\n# sizes\n\"batch_size\": 1}", 0,
     "x.json:2:1: not valid JSON: string or '}' expected near '#'; a comment begins with // or "
     "/*"},
    {"number begins with a point", "{\"keep_prob\": .5}", 0,
     "x.json:1:15: not valid JSON: invalid token near '.'; a number begins with a digit or -"},
    {"text after the object", "{}\n{}", 0,
     "x.json:2:1: not valid JSON: end of file expected near '{'; see json.org for the syntax"},
    {"1e999", "{\"keep_prob\": 1e999}", 0,
     "x.json:1:15: not valid JSON: real number overflow near '1e999'; " LIMITS},
    {"20 digits", "{\"batch_size\": 99999999999999999999}", 0,
     "x.json:1:16: not valid JSON: too big integer near '99999999999999999999'; " LIMITS},
    {"invalid UTF-8", "{\"delimiter\": \"\xFF\"}", 0,
     "x.json:1:15: not valid JSON: unable to decode byte 0xff near '\"'; save the file as UTF-8"},
    {"NUL byte", "{\"delimiter\": \"a\0b\"}", 20,
     "x.json:1:15: not valid JSON: control character 0x0 near '\"a'; write such a character as \\u "
     "and four hex "
     "digits"},
    {"NUL escape in a value", "{\"delimiter\": \"a\\u0000b\"}", 0,
     "x.json:1:15: not valid JSON: a string holds the NUL character \\u0000; take the NUL "
     "character out"},
    {"NUL escape in a key", "{\"a\\u0000\": 1}", 0,
     "x.json:1:2: not valid JSON: NUL byte in object key not supported near '\"a\\u0000\"'; take "
     "the NUL character "
     "out"},
    {"columns count characters", "{\"delimiter\": \"\xCE\xB1\xCE\xB2\", \"use_decay\": tru}", 0,
     "x.json:1:34: not valid JSON: invalid token near 'tru'; strings need double quotes"},
    {"byte order mark is no column", "\xEF\xBB\xBF{\"use_decay\": 1}", 0,
     "x.json:1:15: 'use_decay' must be true or false, not 1; meaning: turns the schedule on"},
    /* keys */
    {"unknown key", "{\r\n  \"keep_prob\": 1,\r\n  \"batch_sise\": 3\r\n}", 0,
     "x.json:3:3: unknown key 'batch_sise'; did you mean 'batch_size'?" ALLOW},
    {"key after lists and escaped quotes",
     "{\"bucket_src\": [1, 2], \"delimiter\": \"\\\"}, {\\\\\", \"batch_sise\": 3}", 0,
     "x.json:1:49: unknown key 'batch_sise'; did you mean 'batch_size'?" ALLOW},
    {"key after objects", "{\"keep_prob\": 0, \"x\": {\"a\": [{}, \"}\"], \"b\": 1}, \"y\": 3}", 0,
     "x.json:1:18: unknown key 'x'; --help=keys lists the keys" ALLOW},
    {"unknown key, nothing near", "{\"frobnicate\": 3}", 0,
     "x.json:1:2: unknown key 'frobnicate'; --help=keys lists the keys" ALLOW},
    {"unknown key of another case", "{\"Batch_Size\": 3}", 0,
     "x.json:1:2: unknown key 'Batch_Size'; did you mean 'batch_size'?" ALLOW},
    {"unknown key that clears the screen", "{\"\\u001b[2J\": 3}", 0,
     "x.json:1:2: unknown key '?[2J'; --help=keys lists the keys" ALLOW},
    {"unknown empty key", "{\"\": 3}", 0,
     "x.json:1:2: unknown key ''; --help=keys lists the keys" ALLOW},
    {"key twice", "{\"batch_size\": 1,\n \"keep_prob\": 1,\n \"batch_size\": 2}", 0,
     "x.json:3:2: key 'batch_size' is written twice, first in line 1; remove one of them"},
    {"key twice, once with an escape", "{\"batch_size\": 1,\n \"b\\u0061tch_size\": 2}", 0,
     "x.json:2:2: key 'batch_size' is written twice, first in line 1; remove one of them"},
    {"key twice in a value", "{\"batch_size\": {\"a\": 1, \"a\": 2}}", 0,
     "x.json: an object inside a value has a key twice; a config is one flat object"},
    {"$schema is text", "{\"$schema\": 1}", 0,
     "x.json:1:2: unknown key '$schema'; --help=keys lists the keys" ALLOW},
    /* values */
    {"integer: text", "{\n\n  \"encoder_layers\" : \"two\"}", 0,
     "x.json:3:22: 'encoder_layers' must be an integer, 1 .. 1000, not \"two\"; meaning: number of "
     "layers"},
    {"integer: a number as text", "{\"encoder_layers\": \"2\"}", 0,
     "x.json:1:20: 'encoder_layers' must be an integer, 1 .. 1000, not \"2\"; meaning: number of "
     "layers"},
    {"integer: fraction", "{\"encoder_layers\": 2.5}", 0,
     "x.json:1:20: 'encoder_layers' must be an integer, 1 .. 1000, not 2.5; meaning: number of "
     "layers"},
    {"integer: below", "{\"encoder_layers\": 0}", 0,
     "x.json:1:20: 'encoder_layers' must be an integer, 1 .. 1000, not 0; meaning: number of "
     "layers"},
    {"integer: above", "{\"encoder_layers\": 1001}", 0,
     "x.json:1:20: 'encoder_layers' must be an integer, 1 .. 1000, not 1001; meaning: number of "
     "layers"},
    {"integer: real far above", "{\"encoder_layers\": 1e300}", 0,
     "x.json:1:20: 'encoder_layers' must be an integer, 1 .. 1000, not 1e+300; meaning: number of "
     "layers"},
    /* As doubles these are the limits themselves. */
    {"integer: 2^53 + 1", "{\"large\": 9007199254740993}", 0,
     "x.json:1:11: 'large' must be an integer, 0 .. 9007199254740992, not 9007199254740993; "
     "meaning: a large integer"},
    {"integer: a real that may have been 2^53 + 1", "{\"large\": 9007199254740993.0}", 0,
     "x.json:1:11: 'large' must be an integer, 0 .. 9007199254740992, not 9007199254740992; "
     "meaning: a large integer"},
    {"integer: -2^53 - 1", "{\"signed\": -9007199254740993}", 0,
     "x.json:1:12: 'signed' must be an integer, -9007199254740992 .. 9007199254740992, not "
     "-9007199254740993; meaning: a larger one"},
    {"integer: truth", "{\"encoder_layers\": true}", 0,
     "x.json:1:20: 'encoder_layers' must be an integer, 1 .. 1000, not true; meaning: number of "
     "layers"},
    {"integer: null", "{\"encoder_layers\": null}", 0,
     "x.json:1:20: 'encoder_layers' must be an integer, 1 .. 1000, not null; meaning: number of "
     "layers"},
    {"number: below", "{\"keep_prob\": -0.1}", 0,
     "x.json:1:15: 'keep_prob' must be a number, 0 .. 1, not -0.1; meaning: keep probability"},
    {"number: integer above", "{\"keep_prob\": 2}", 0,
     "x.json:1:15: 'keep_prob' must be a number, 0 .. 1, not 2; meaning: keep probability"},
    {"number: object", "{\"keep_prob\": {\"a\": [1]}}", 0,
     "x.json:1:15: 'keep_prob' must be a number, 0 .. 1, not {\"a\": [1]}; meaning: keep "
     "probability"},
    {"number: 0 as float32", "{\"keep_prob\": 1e-300}", 0,
     "x.json:1:15: 'keep_prob' must be a number, 0 .. 1, not 1e-300 (below 1.18e-38, the smallest "
     "float32); meaning: keep probability"},
    {"number: a denormal float32", "{\"wide\": -1e-38}", 0,
     "x.json:1:10: 'wide' must be a number, -1e+300 .. 1e+300, not -1e-38 (below 1.18e-38, the "
     "smallest float32); meaning: any number"},
    {"number: infinite as float32", "{\"wide\": 1e39}", 0,
     "x.json:1:10: 'wide' must be a number, -1e+300 .. 1e+300, not 1e+39 (above 3.4e38, the "
     "largest float32); meaning: any number"},
    {"truth: text", "{\"use_decay\": \"true\"}", 0,
     "x.json:1:15: 'use_decay' must be true or false, not \"true\"; meaning: turns the schedule "
     "on"},
    {"text: number", "{\"delimiter\": 3}", 0,
     "x.json:1:15: 'delimiter' must be a string, not 3; meaning: joins tokens"},
    {"text: null", "{\"delimiter\": null}", 0,
     "x.json:1:15: 'delimiter' must be a string, not null; meaning: joins tokens"},
    {"choice: near", "{\"cell_type\": \"lstn\"}", 0,
     "x.json:1:15: 'cell_type' must be one of lstm, gru, glstm, not \"lstn\"; did you mean "
     "\"lstm\"?"},
    {"choice: far", "{\"cell_type\": \"transformer\"}", 0,
     "x.json:1:15: 'cell_type' must be one of lstm, gru, glstm, not \"transformer\"; meaning: kind "
     "of cell"},
    {"choice: number", "{\"cell_type\": 1}", 0,
     "x.json:1:15: 'cell_type' must be one of lstm, gru, glstm, not 1; meaning: kind of cell"},
    {"list: number", "{\"bucket_src\": 50}", 0,
     "x.json:1:16: 'bucket_src' must be a list of integers, each 1 .. 10000, not 50; meaning: "
     "length limits"},
    {"list: element", "{\"bucket_src\": [10, 20, \"x\"]}", 0,
     "x.json:1:16: 'bucket_src' must be a list of integers, each 1 .. 10000, not \"x\" (element "
     "3); meaning: length "
     "limits"},
    {"list: empty", "{\"bucket_src\": []}", 0,
     "x.json:1:16: 'bucket_src' must be a list of integers, each 1 .. 10000, not [] (an empty "
     "list); meaning: length limits"},
    {"long value is cut",
     "{\"use_decay\": "
     "\"\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9"
     "\xC3\xA9\xC3\xA9\xC3"
     "\xA9\xC3"
     "\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9"
     "\xC3\xA9\xC3\xA9\xC3"
     "\xA9"
     "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3"
     "\xA9\xC3\xA9\xC3\xA9"
     "\xC3"
     "\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\"}",
     0,
     "x.json:1:15: 'use_decay' must be true or false, not "
     "\"\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9"
     "\xC3\xA9\xC3\xA9\xC3"
     "\xA9\xC3"
     "\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9"
     "\xC3\xA9\xC3\xA9\xC3"
     "\xA9"
     "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3"
     "\xA9\xC3\xA9\xC3\xA9"
     "\xC3"
     "\xA9\xC3\xA9...; meaning: turns the schedule on"},
};

static void check_file(void **state)
{
    const row *r = *state;
    rd_status st = {0};
    rd_config *c = NULL;
    assert_int_equal(rd_config_new("x.json", r->text, r->n ? r->n : strlen(r->text), groups, 1,
                                   false, &c, &st),
                     RD_EUSAGE);
    assert_string_equal(st.msg, r->want);
    assert_null(c);
}

static row set_rows[] = {
    {"set: no equals sign", "batch_size", 0,
     "--set batch_size: not of the form key=value; an example: --set batch_size=32"},
    {"set: no key", "=3", 0,
     "--set =3: not of the form key=value; an example: --set batch_size=32"},
    {"set: unknown key", "batch_sise=3", 0,
     "--set batch_sise=3: unknown key 'batch_sise'; did you mean 'batch_size'?" ALLOW},
    {"set: not an integer", "batch_size=many", 0,
     "--set batch_size=many: 'batch_size' must be an integer, 1 .. 65536, not \"many\"; meaning: "
     "sentences per rank"},
    {"set: empty number", "batch_size=", 0,
     "--set batch_size=: 'batch_size' must be an integer, 1 .. 65536, not \"\"; meaning: sentences "
     "per rank"},
    {"set: nan", "keep_prob=nan", 0,
     "--set keep_prob=nan: 'keep_prob' must be a number, 0 .. 1, not \"nan\"; meaning: keep "
     "probability"},
    {"set: NaN", "keep_prob=NaN", 0,
     "--set keep_prob=NaN: 'keep_prob' must be a number, 0 .. 1, not \"NaN\"; meaning: keep "
     "probability"},
    {"set: Infinity", "keep_prob=Infinity", 0,
     "--set keep_prob=Infinity: 'keep_prob' must be a number, 0 .. 1, not \"Infinity\"; meaning: "
     "keep probability"},
    {"set: overflow", "keep_prob=1e999", 0,
     "--set keep_prob=1e999: 'keep_prob' must be a number, 0 .. 1, not \"1e999\"; meaning: keep "
     "probability"},
    {"set: True", "use_decay=True", 0,
     "--set use_decay=True: 'use_decay' must be true or false, not \"True\"; meaning: turns the "
     "schedule on"},
    {"set: null in capitals", "use_decay=NULL", 0,
     "--set use_decay=NULL: 'use_decay' must be true or false, not \"NULL\"; meaning: turns the "
     "schedule on"},
    {"set: null for a key that there is not", "frobnicate=null", 0,
     "--set frobnicate=null: unknown key 'frobnicate'; --help=keys lists the keys "
     "(--allow_unknown_keys "
     "turns this into a "
     "warning)"},
    {"set: a flag", "max_steps=3", 0,
     "--set max_steps=3: unknown key 'max_steps'; did you mean the flag '--max_steps'? "
     "(--allow_unknown_keys turns "
     "this into a warning)"},
    {"set: choice", "cell_type=gruu", 0,
     "--set cell_type=gruu: 'cell_type' must be one of lstm, gru, glstm, not \"gruu\"; did you "
     "mean \"gru\"?"},
    {"set: quote not closed", "delimiter=\"x", 0,
     "--set delimiter=\"x: the value begins with a double quote but is not a JSON string"},
    {"set: invalid UTF-8", "delimiter=\xFF", 0,
     "--set delimiter=?: not valid UTF-8; the config knows no other text"},
    {"set: invalid UTF-8 in the key", "d\xC3=1", 0,
     "--set d?=1: not valid UTF-8; the config knows no other text"},
    {"set: list element", "bucket_src=10,0", 0,
     "--set bucket_src=10,0: 'bucket_src' must be a list of integers, each 1 .. 10000, not 0 "
     "(element 2); meaning: "
     "length "
     "limits"},
    {"set: empty list", "bucket_src=", 0,
     "--set bucket_src=: 'bucket_src' must be a list of integers, each 1 .. 10000, not [] (an "
     "empty list); meaning: length limits"},
    {"set: list of words", "bucket_src=a,b", 0,
     "--set bucket_src=a,b: 'bucket_src' must be a list of integers, each 1 .. 10000, not \"a,b\"; "
     "meaning: length "
     "limits"},
};

static bool is_flag(const char *name, const char **key)
{
    *key = !strcmp(name, "lr") ? "learning_rate" : NULL;
    return *key || !strcmp(name, "max_steps");
}

static void check_set(void **state)
{
    const row *r = *state;
    rd_status st = {0};
    rd_config *c = NULL;
    assert_int_equal(
        rd_config_new_with_flags("x.json", "{}", 2, groups, 1, false, is_flag, &c, &st), RD_OK);
    assert_int_equal(rd_config_set(c, r->text, &st), RD_EUSAGE);
    assert_string_equal(st.msg, r->want);
    assert_string_equal(rd_config_where(c, "keep_prob"), "default"); /* nothing was changed */
    rd_config_free(c);
}

/* The depth at which Jansson gives up, and deep values below it. The second walk has no
 * recursion. */
static void check_depth(void **state)
{
    (void)state;
    static const struct {
        int depth;
        const char *want;
    } deep[] = {
        {3000, "x.json:1:2062: not valid JSON: maximum parsing depth reached near '['; a config is "
               "one flat object"},
        {2000, "x.json:1:15: 'use_decay' must be true or false, not "
               "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
               "[[[[[[[[[...; "
               "meaning: turns "
               "the schedule on"},
    };
    for (int i = 0; i < 2; i++) {
        char text[8000] = "{\"use_decay\": ";
        size_t n = strlen(text);
        for (int k = 0; k < deep[i].depth; k++) text[n++] = '[';
        for (int k = 0; k < deep[i].depth; k++) text[n++] = ']';
        text[n++] = '}';
        rd_status st = {0};
        rd_config *c = NULL;
        assert_int_equal(rd_config_new("x.json", text, n, groups, 1, false, &c, &st), RD_EUSAGE);
        assert_string_equal(st.msg, deep[i].want);
    }
}

/* Tables that contradict themselves are our bug, said at once. */
static void check_tables(void **state)
{
    (void)state;
    static const rd_option bad_json[] = {RD_OPT_INT(fields, layers, layers, "one", 1, 2, "x"),
                                         RD_OPT_END};
    static const rd_option bad_range[] = {RD_OPT_INT(fields, layers, layers, "3", 1, 2, "x"),
                                          RD_OPT_END};
    static const rd_option other_type[] = {RD_OPT_REAL(fields, keep_prob, keep, "0.8", 0, 1, "x"),
                                           RD_OPT_END};
    const rd_option_group bad[] = {{"a", "", bad_json, sizeof(fields)},
                                   {"b", "", bad_range, sizeof(fields)},
                                   {"c", "", other_type, sizeof(fields)}};
    static const char *const want[] = {
        "default of 'layers' in option group 'a' is not JSON: one",
        "option group 'b': default: 'layers' must be an integer, 1 .. 2, not 3; meaning: x",
        "key 'keep_prob' of option group 'c' has another type or default than in an earlier group",
    };
    for (int i = 0; i < 3; i++) {
        const rd_option_group *const both[] = {&group, &bad[i]};
        rd_status st = {0};
        rd_config *c = NULL;
        assert_int_equal(rd_config_new("x.json", "{}", 2, both, 2, false, &c, &st), RD_EBUG);
        assert_string_equal(st.msg, want[i]);
    }
}

RD_TESTS("config_errors", TEST_ROWS(check_file, file_rows), TEST_ROWS(check_set, set_rows),
         TEST(check_depth), TEST(check_tables))
