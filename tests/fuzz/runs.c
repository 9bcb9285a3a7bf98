/* runs.c -- fuzz target: reads any bytes as the files of a log folder, in the modes runs, show,
 * diff and report.
 *
 * A line "@NAME" in the input begins the file NAME of the folder. What is printed must be UTF-8
 * without control characters, and JSON where JSON was asked for. A page has the scripts that it
 * should have, and no other. Texts of TensorBoard are lines of text here, for their checksums would
 * stop most inputs: "TAG STEP" and the text follow "@texts" or "@eval/texts". */
#include "rd/printable.h"
#include "rd/records.h"
#include "rd/runs.h"
#include "fuzz_files.h"
#include <jansson.h>
#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {
    "metrics.jsonl", "config.json", "run.log", "eval/metrics.jsonl", "errors/rank_0.json",
    "checkpoint",    "model-7.npz", "texts",   "eval/texts"};
enum { N_NAMES = sizeof names / sizeof *names };

/* Removes the event files of a folder: their names hold the time. */
static void clear_events(const char *folder)
{
    char path[512];
    DIR *d = opendir(folder);
    if (!d) return;
    for (const struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, "events.", 7) != 0) continue;
        (void)snprintf(path, sizeof path, "%.200s/%s", folder, e->d_name);
        (void)unlink(path);
    }
    (void)closedir(d);
}

static void clear(const char *folder)
{
    char path[256];
    clear_events(folder);
    (void)snprintf(path, sizeof path, "%s/eval", folder);
    clear_events(path);
    for (int i = 0; i < N_NAMES; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    (void)snprintf(path, sizeof path, "%s/eval", folder);
    (void)rmdir(path);
    (void)snprintf(path, sizeof path, "%s/errors", folder);
    (void)rmdir(path);
}

static void put_file(const char *folder, const char *name, const uint8_t *p, size_t n)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/eval", folder);
    if (!strncmp(name, "eval/", 5)) (void)mkdir(path, 0700);
    (void)snprintf(path, sizeof path, "%s/errors", folder);
    if (!strncmp(name, "errors/", 7)) (void)mkdir(path, 0700);
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "ab");
    must(f && fwrite(p, 1, n, f) == n && fclose(f) == 0);
}

/* Splits the input into files. */
static void put_files(const char *folder, const uint8_t *data, size_t size)
{
    const char *name = names[0];
    for (size_t at = 0; at < size;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        const size_t n = end ? (size_t)(end - data) + 1 - at : size - at;
        bool is_name = false;
        for (int i = 0; data[at] == '@' && i < N_NAMES; i++)
            if (n == strlen(names[i]) + 2 && !memcmp(data + at + 1, names[i], n - 2)) {
                name = names[i];
                is_name = true;
            }
        if (!is_name) put_file(folder, name, data + at, n);
        at += n;
    }
}

/* Makes an event file of one text: the first line is its tag. */
static void put_events(const char *folder, const char *name)
{
    char from[256], to[256];
    rd_status st = {0};
    rd_events *e;
    (void)snprintf(from, sizeof from, "%s/%stexts", folder, name);
    (void)snprintf(to, sizeof to, "%s/%s", folder, name);
    FILE *f = fopen(from, "rb");
    char tag[64], *text = calloc(1, 1 << 16);
    must(text != NULL);
    if (f && fgets(tag, sizeof tag, f)) {
        tag[strcspn(tag, "\n")] = '\0';
        (void)!fread(text, 1, (1 << 16) - 1, f);
        must(rd_events_new(to, 0, &e, &st) == RD_OK);
        must(rd_events_text(e, 7, tag, text, &st) == RD_OK);
        rd_events_free(e);
    }
    if (f) (void)fclose(f);
    free(text);
}

static int count_of(const char *s, const char *word)
{
    int n = 0;
    for (const char *p = s; (p = strstr(p, word)); p += strlen(word)) n++;
    return n;
}

/* The page, and the data in it. */
static void check_page(char *s)
{
    char *data = strstr(s, "id=\"data\">");
    must(strncmp(s, "<!DOCTYPE html>", 15) == 0 && data != NULL);
    must(count_of(s, "<script") == 2 && count_of(s, "</script") == 2);
    must(count_of(s, "<style") == 1 && count_of(s, "</style") == 1);
    must(count_of(s, "<img ") == count_of(s, "src=\"data:image/"));
    data += strlen("id=\"data\">");
    char *end = strstr(data, "</script>");
    must(end != NULL);
    *end = '\0';
    json_t *o = json_loads(data, JSON_REJECT_DUPLICATES, NULL);
    must(json_is_object(o));
    json_decref(o);
}

static void answer(const char *mode, const char *folder, const char *format)
{
    char text[128], form[32], name[] = "run_dist", *argv[6] = {name};
    char word_mode[32], logdir[128];
    rd_cli cli;
    rd_status st = {0};
    char *out = NULL;
    size_t n = 0;
    int argc = 1;
    (void)snprintf(text, sizeof text, "%s", folder);
    (void)snprintf(logdir, sizeof logdir, "--logdir=%s", folder);
    (void)snprintf(word_mode, sizeof word_mode, "--mode=%s", mode);
    const bool page = !strcmp(mode, "report");
    (void)snprintf(form, sizeof form, page ? "--report_out=%s" : "--format=%s", format);
    argv[argc++] = word_mode;
    argv[argc++] = form;
    argv[argc++] = logdir;
    if (!strcmp(mode, "show") || !strcmp(mode, "diff")) argv[argc++] = text;
    if (!strcmp(mode, "diff")) argv[argc++] = text;
    must(rd_cli_parse(argc, argv, &cli, &st) == RD_OK && rd_cli_check(&cli, &st) == RD_OK);
    FILE *f = tmpfile();
    must(f != NULL);
    const bool done = rd_runs(&cli, f, &st) == RD_OK;
    must(done || (st.code == RD_EUSAGE && st.msg[0]));
    must(fflush(f) == 0);
    n = (size_t)ftell(f);
    rewind(f);
    out = malloc(n + 1);
    must(out && fread(out, 1, n, f) == n && fclose(f) == 0);
    out[n] = '\0';
    for (size_t i = 0; i < n;) {
        const size_t k = out[i] == '\n' ? 1 : rd_printable_bytes(out + i, n - i);
        must(k > 0);
        i += k;
    }
    if (done && !strcmp(format, "json")) {
        json_t *o = json_loadb(out, n, JSON_REJECT_DUPLICATES, NULL);
        must(json_is_object(o));
        json_decref(o);
    }
    if (done && page) check_page(out);
    free(out);
    rd_cli_release(&cli);
}

/* What is split as a whole line is one for Jansson, too, unless only a value is wrong. */
static void check_lines(const uint8_t *data, size_t size)
{
    rd_runs_field f[RD_RUNS_FIELDS];
    for (size_t at = 0; at < size;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        const size_t n = end ? (size_t)(end - data) - at : size - at;
        char *line = malloc(n + !n);
        must(line != NULL);
        memcpy(line, data + at, n);
        const int fields = rd_runs_split(line, n, f);
        json_t *o = json_loadb(line, n, 0, NULL);
        if (json_is_object(o)) must(fields >= 0);
        for (int i = 0; i < fields; i++) {
            must(f[i].key >= line && f[i].key + f[i].n_key < line + n);
            must(f[i].text > f[i].key && f[i].n_text > 0 && f[i].text + f[i].n_text < line + n);
        }
        const double v = fields >= 0 ? rd_runs_number(f, fields, "step") : NAN;
        must(isnan(v) || isfinite(v));
        json_decref(o);
        free(line);
        at += n + 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const formats[] = {"text", "csv", "json"};
    static char folder[FUZZ_PATH];
    if (!folder[0]) (void)snprintf(folder, sizeof folder, "%s", fuzz_folder());
    check_lines(data, size);
    clear(folder);
    put_files(folder, data, size);
    put_events(folder, "");
    put_events(folder, "eval/");
    for (int i = 0; i < 3; i++) {
        answer("runs", folder, formats[i]);
        answer("diff", folder, formats[i]);
        if (i != 1) answer("show", folder, formats[i]);
    }
    answer("report", folder, "-");
    clear(folder);
    return 0;
}
