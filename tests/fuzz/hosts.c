/* hosts.c -- fuzz target: reads any text as a list of hosts, as a hostfile, and as the words of a
 * launcher's line, for the supervisor and for the doctor.
 *
 * The line that the supervisor writes without its dead hosts must name the living ones, and the
 * line that the doctor prints must have its words in a shell. The first byte chooses which hosts
 * are dead. */
#include "../../runner/doctor/doctor_impl.h"
#include "../../runner/supervise/supervise_impl.h"
#include "fuzz_files.h"
#include <ctype.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_WORDS = 64 };

/* Nothing of this machine may decide. */
static void clear_environment(void)
{
    static bool done;
    if (done) return;
    must(clearenv() == 0 && setenv("TMPDIR", fuzz_folder(), 1) == 0);
    done = true;
}

static void check_status(const rd_status *st, rd_code code)
{
    must(st->code == RD_OK || (st->code == code && st->msg[0] != '\0'));
}

/* ---- the supervisor ---- */

/* Returns whether ssh can take the name as one word that is no option. */
static bool is_plain(const char *name)
{
    for (const char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("._-:", *p)) return false;
    return name[0] != '-';
}

/* Returns the number of words that probe this host. */
static int probe_words(const launch_line *l, const char *host, bool *by_ssh)
{
    rd_strbuf text = {0};
    char **words = NULL;
    int n = 0;
    *by_ssh = launch_probe(l, host, &text, &words);
    if (*by_ssh) {
        while (words[n]) n++;
        must(n >= 3 && strcmp(words[n - 1], "true") == 0 && strcmp(words[n - 2], host) == 0);
    }
    free(words);
    rd_strbuf_release(&text);
    return n;
}

static void check_probes(const launch_line *l)
{
    bool by_ssh, as_well;
    const int n = probe_words(l, "h", &by_ssh);
    for (int i = 0; i < l->n_hosts; i++)
        if (is_plain(l->host[i].name))
            must(probe_words(l, l->host[i].name, &as_well) == n && as_well == by_ssh);
}

/* Reads the line w again and compares its hosts with those of l that are not dead. */
static void check_alive(const launch_line *l, const launch_words *w)
{
    launch_line again;
    rd_status st = {0};
    int alive = 0;
    launch_read(w->argv, l->n, &again);
    must(again.hosts_at == l->hosts_at && again.file_at == l->file_at && again.np_at == l->np_at);
    (void)launch_hosts(&again, &st);
    check_status(&st, RD_EUSAGE);
    for (int i = 0; i < l->n_hosts; i++) {
        if (l->host[i].dead) continue;
        must(alive < again.n_hosts);
        const launch_host *h = &again.host[alive++];
        must(strcmp(h->name, l->host[i].name) == 0 && h->slots == l->host[i].slots);
    }
    must(alive == again.n_hosts && (alive > 0) == (st.code == RD_OK));
    if (w->n_dead > 0 && w->np)
        must(w->n_ranks == strtoll(w->argv[l->np_at] + l->np_skip, NULL, 10));
    launch_release(&again);
}

/* file: the hostfile that the line gets, whatever name it has there. */
static void check_line(char *const *given, int n, const char *file, unsigned dead)
{
    char *argv[MOST_WORDS + 1], name[FUZZ_PATH + 300];
    launch_line l;
    rd_status st = {0};
    memcpy(argv, given, (size_t)n * sizeof *argv);
    argv[n] = NULL;
    launch_read(argv, n, &l);
    if (l.file_at >= 0) {
        (void)snprintf(name, sizeof name, "%.*s%s", (int)l.file_skip, argv[l.file_at], file);
        argv[l.file_at] = name;
    }
    (void)launch_hosts(&l, &st);
    check_status(&st, RD_EUSAGE);
    if (st.code == RD_OK) {
        launch_words w;
        int64_t np = l.np_at >= 0 ? strtoll(argv[l.np_at] + l.np_skip, NULL, 10) : 0;
        for (int i = 0; i < l.n_hosts; i++) {
            must(l.host[i].name[0] != '\0');
            l.host[i].dead = dead >> i % 8 & 1;
        }
        check_probes(&l);
        const int64_t fit = launch_fit(&l, np);
        must(np <= 0 ? fit == np : fit >= 1 && fit <= np);
        must(launch_without_dead(&l, &w, &st) == RD_OK);
        check_alive(&l, &w);
        launch_words_release(&w);
    }
    launch_release(&l);
}

/* ---- the doctor ---- */

static void check_hosts(const doc_hosts *h, const rd_status *st)
{
    int64_t slots = 0;
    check_status(st, RD_EUSAGE);
    for (int i = 0; i < h->n; i++) {
        const doc_host *one = &h->at[i];
        must(one->name[0] != '\0' && is_plain(one->name) && !strchr(one->name, ':'));
        must(one->slots >= 1 && one->port >= 0 && one->port <= 65535);
        slots += one->slots;
    }
    must(slots == h->slots);
}

/* The line as it is printed must have the same words where it is typed. */
static void check_doctor_line(const doc_hosts *h, const char *args)
{
    rd_status st = {0}, st2 = {0};
    rd_strbuf text = {0};
    char **words, **again = NULL;
    int n, m = 0;
    if (doc_line(h, 22, args, "10.0.0.0/8", true, &words, &n, &st) == RD_OK) {
        must(n > 0 && words[n] == NULL && strcmp(words[0], "mpirun") == 0);
        doc_line_text(words, n, &text);
        must(doc_words(rd_strbuf_str(&text), &again, &m, &st2) == RD_OK && m == n);
        for (int i = 0; i < n; i++) must(strcmp(words[i], again[i]) == 0);
        doc_words_free(again, m);
        (void)doc_line_ranks(words, n);
    }
    check_status(&st, RD_EUSAGE);
    doc_words_free(words, n);
    rd_strbuf_release(&text);
}

static void check_settings(const char *args)
{
    static const char *const kinds[] = {"btl_tcp", "oob_tcp"};
    json_t *mca = doc_mca_new(args);
    must(mca != NULL);
    for (int k = 0; k < 2; k++) {
        int first, last;
        if (doc_mca_ports(mca, kinds[k], &first, &last))
            must(first > 0 && last >= first && last <= 65535);
    }
    json_decref(mca);
}

static void check_doctor(const char *text, const char *file)
{
    rd_status st = {0}, st2 = {0};
    doc_hosts list, lines;
    (void)doc_hosts_parse(text, &list, &st);
    check_hosts(&list, &st);
    (void)doc_hosts_read(file, &lines, &st2);
    check_hosts(&lines, &st2);
    if (list.n > 0) check_doctor_line(&list, text);
    if (lines.n > 0) check_doctor_line(&lines, text);
    check_settings(text);
    doc_hosts_release(&list);
    doc_hosts_release(&lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    char file[FUZZ_PATH], mpirun[] = "mpirun", option[] = "-H", np[] = "-np", count[] = "7",
                          hostfile[] = "--hostfile", here[] = "x";
    char *text = malloc(size), **words = NULL;
    int n = 0;
    rd_status st = {0};
    must(text != NULL);
    clear_environment();
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    for (size_t i = 0; i + 1 < size; i++)
        if (!text[i]) text[i] = '\n';
    fuzz_memory_file(text, size - 1, file);
    check_doctor(text, file);
    check_line((char *const[]){mpirun, option, text, np, count}, 5, file, data[0]);
    check_line((char *const[]){mpirun, np, count, hostfile, here}, 5, file, data[0]);
    if (doc_words(text, &words, &n, &st) == RD_OK)
        check_line(words, n < MOST_WORDS ? n : MOST_WORDS, file, data[0]);
    check_status(&st, RD_EUSAGE);
    doc_words_free(words, n);
    free(text);
    must(fuzz_count(getenv("TMPDIR")) == 0); /* no hostfile is left */
    return 0;
}
