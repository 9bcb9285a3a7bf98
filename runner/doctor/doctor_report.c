/* doctor_report.c -- collects checks and prints them for users, as JSON, and as an exit code. */
#include "doctor_impl.h"
#include "rd/printable.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *const level_names[] = {"ok", "warning", "failure"};

const char *doc_text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

double doc_number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

rd_code doc_report_init(doc_report *r, rd_status *st)
{
    *r = (doc_report){.checks = json_array()};
    if (!r->checks) rd_fail(st, RD_EENV, "out of memory for the doctor's report");
    return st->code;
}

void doc_report_release(doc_report *r)
{
    json_decref(r->checks);
    r->checks = NULL;
}

static void append_check(doc_report *r, doc_level level, const char *id, const char *remedy,
                         const char *text)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:s?}", "id", id, "level", level_names[level], "text",
                          text, "remedy", remedy);
    json_array_append_new(r->checks, o);
    r->n[level]++;
}

void doc_add(doc_report *r, doc_level level, const char *id, const char *remedy, const char *fmt,
             ...)
{
    char raw[2048], text[2048], safe[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    if (remedy) remedy = rd_printable(remedy, strlen(remedy), false, safe, sizeof safe);
    append_check(r, level, id, remedy, rd_printable(raw, strlen(raw), false, text, sizeof text));
}

void doc_merge(doc_report *r, const json_t *checks)
{
    size_t i;
    json_t *o;
    json_array_foreach(checks, i, o)
    {
        doc_level level = DOC_OK;
        bool known = false;
        size_t k;
        json_t *mine;
        json_array_foreach(r->checks, k, mine)
        {
            known = known || strcmp(doc_text(mine, "id"), doc_text(o, "id")) == 0;
        }
        if (known && strcmp(doc_text(o, "level"), level_names[DOC_OK]) == 0) continue;
        while (level < DOC_FAIL && strcmp(doc_text(o, "level"), level_names[level]) != 0) level++;
        r->n[level]++;
        json_array_append(r->checks, o);
    }
}

const char *doc_verdict(const doc_report *r)
{
    return level_names[r->n[DOC_FAIL] ? DOC_FAIL : r->n[DOC_WARN] ? DOC_WARN : DOC_OK];
}

/* Returns a text that another host sent, as it may be shown. b holds it until its next use. */
static const char *peer_text(const json_t *o, const char *key, rd_strbuf *b)
{
    rd_strbuf_reset(b);
    rd_printable_add(b, doc_text(o, key), strlen(doc_text(o, key)));
    return rd_strbuf_str(b);
}

void doc_print_checks(const doc_report *r, FILE *out)
{
    size_t i;
    json_t *o;
    rd_strbuf level = {0}, id = {0}, text = {0};
    json_array_foreach(r->checks, i, o)
    {
        const bool bad = strcmp(doc_text(o, "level"), "failure") == 0;
        fprintf(out, "%-8s %-11s %s\n", bad ? "FAILURE" : peer_text(o, "level", &level),
                peer_text(o, "id", &id), peer_text(o, "text", &text));
        if (*doc_text(o, "remedy"))
            fprintf(out, "%-8s %-11s do: %s\n", "", "", peer_text(o, "remedy", &text));
    }
    rd_strbuf_release(&level);
    rd_strbuf_release(&id);
    rd_strbuf_release(&text);
}

static void print_row(FILE *out, const char *const cells[7], const int width[7])
{
    for (int c = 0; c < 6; c++) fprintf(out, "%-*s  ", width[c], cells[c]);
    fprintf(out, "%s\n", cells[6]);
}

void doc_print_ranks(const json_t *ranks, FILE *out)
{
    static const char *const head[7] = {"rank",  "host",    "local", "pid",
                                        "cores", "threads", "device"};
    int width[7];
    rd_strbuf host = {0}, cores = {0}, device = {0};
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 0)
            for (int c = 0; c < 7; c++) width[c] = (int)strlen(head[c]);
        else
            print_row(out, head, width);
        size_t i;
        json_t *o;
        json_array_foreach(ranks, i, o)
        {
            char number[4][24];
            static const char *const keys[] = {"rank", "local_rank", "pid", "threads"};
            for (int k = 0; k < 4; k++)
                snprintf(number[k], sizeof number[k], "%.0f", doc_number(o, keys[k]));
            const char *cells[7] = {number[0],
                                    peer_text(o, "host", &host),
                                    number[1],
                                    number[2],
                                    peer_text(o, "cores", &cores),
                                    number[3],
                                    peer_text(o, "device", &device)};
            for (int c = 0; c < 7 && pass == 0; c++)
                if ((int)strlen(cells[c]) > width[c]) width[c] = (int)strlen(cells[c]);
            if (pass == 1) print_row(out, cells, width);
        }
    }
    rd_strbuf_release(&host);
    rd_strbuf_release(&cores);
    rd_strbuf_release(&device);
}

void doc_print_verdict(const doc_report *r, FILE *out)
{
    const int n = r->n[DOC_OK] + r->n[DOC_WARN] + r->n[DOC_FAIL];
    fprintf(out, "verdict: %s (%d check%s, %d warning%s, %d failure%s)\n", doc_verdict(r), n,
            n == 1 ? "" : "s", r->n[DOC_WARN], r->n[DOC_WARN] == 1 ? "" : "s", r->n[DOC_FAIL],
            r->n[DOC_FAIL] == 1 ? "" : "s");
}

rd_code doc_print_json(const doc_report *r, const json_t *hosts, const json_t *ranks, FILE *out,
                       rd_status *st)
{
    json_t *o = json_object();
    if (hosts) json_object_set(o, "hosts", (json_t *)(uintptr_t)hosts);
    json_object_set_new(o, "ranks", ranks ? json_incref((json_t *)(uintptr_t)ranks) : json_array());
    json_object_set(o, "checks", r->checks);
    json_object_set_new(o, "verdict", json_string(doc_verdict(r)));
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    if (text)
        fprintf(out, "%s\n", text);
    else
        rd_fail(st, RD_EENV, "out of memory for the doctor's report");
    free(text);
    json_decref(o);
    return st->code;
}

rd_code doc_result(const doc_report *r, rd_status *st)
{
    char ids[300];
    const char *last = "";
    size_t i, n = 0;
    json_t *o;
    json_array_foreach(r->checks, i, o)
    {
        if (strcmp(doc_text(o, "level"), "failure") != 0) continue;
        if (n < 250 && strcmp(last, doc_text(o, "id")) != 0)
            n += (size_t)snprintf(ids + n, sizeof ids - n, "%s%.40s", n ? ", " : "",
                                  doc_text(o, "id"));
        last = doc_text(o, "id");
    }
    if (n)
        rd_fail(st, r->differ ? RD_EDISAGREE : RD_EENV,
                "the doctor found what would make a run fail: %s; see its report", ids);
    return st->code;
}
