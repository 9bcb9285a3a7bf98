/* doctor_hosts.c -- the doctor on the launching host.
 *
 * The doctor first asks all hosts over ssh at the same time: for their facts, and which ports of
 * the other hosts they reach. If no check has failed, it starts mpirun with the line that it
 * recommends. This program then examines the job from inside (doctor_ranks.c). The agents stay
 * until the end, to remove the processes of a job that hung. The whole examination takes about half
 * a minute at most. */
#include "doctor_peers.h"
#include "rd/clock.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Time limits in seconds: until all facts are there, for connections, and for the job. */
static const double facts_s = 25.0, calls_s = 3.0, job_s = 25.0, brief_s = 12.0;

typedef struct exam {
    const rd_cli *cli;
    doc_hosts hosts;
    doc_peer *peers; /* [hosts.n]; owned */
    json_t *facts;   /* facts of the hosts that answered; owned */
    int *peer_of;    /* facts[k] are those of peers[peer_of[k]]; owned */
    json_t *ranks;   /* rows of the job's ranks, NULL: it did not run; owned */
    char **ssh;      /* [n_ssh]: words of plm_rsh_args; owned */
    int n_ssh;
    char **line; /* [n_line]: words of the mpirun line; owned */
    int n_line;
    bool started; /* mpirun was started */
    bool brief;   /* only what is cheap */
    doc_report report;
} exam;

/* Returns the time of rd_now_ns after some seconds. */
static int64_t hosts_deadline(double seconds)
{
    return rd_now_ns() + (int64_t)(seconds * 1e9);
}

/* ---- on this host ---- */

static bool child_ended(void *child)
{
    const doc_child *c = child;
    return c->ended;
}

bool doc_mpirun_version(char out[128])
{
    char mpirun[] = "mpirun", version[] = "--version", *const argv[] = {mpirun, version, NULL};
    doc_child c, *one = &c;
    rd_status own = {0};
    out[0] = '\0';
    if (doc_child_start(&c, argv, &own) != RD_OK) return false;
    doc_children_poll(&one, 1, hosts_deadline(8.0), child_ended, &c);
    const char *text = rd_strbuf_str(&c.out_text), *open = strstr(text, "(Open MPI) ");
    if (open)
        (void)snprintf(out, 128, "Open MPI %.*s", (int)strcspn(open + 11, "\n "), open + 11);
    else
        (void)snprintf(out, 128, "%.*s",
                       (int)(strcspn(text, "\n") < 100 ? strcspn(text, "\n") : 100), text);
    doc_child_release(&c);
    return out[0] != '\0';
}

/* Returns the length of the part that names the series: "Open MPI 4.1" of "Open MPI 4.1.4". */
static size_t series_length(const char *version)
{
    const char *dot = strchr(version, '.');
    const char *second = dot ? strchr(dot + 1, '.') : NULL;
    return second ? (size_t)(second - version) : strlen(version);
}

static void check_mpirun(exam *e)
{
    const char *library = rd_comm_library_version();
    char launcher[128];
    if (!doc_mpirun_version(launcher)) {
        doc_add(&e->report, DOC_FAIL, "mpirun",
                "install openmpi-bin, or put its bin folder into PATH",
                "there is no mpirun in PATH on this host");
    } else if (strncmp(launcher, "Open MPI ", 9) == 0 && atof(launcher + 9) < 3.0) {
        doc_add(&e->report, DOC_FAIL, "mpirun", "install Open MPI 4.1 or newer",
                "mpirun is %s, which does not understand host:slots; 4.1 or newer is needed",
                launcher);
    } else if (series_length(launcher) != series_length(library) ||
               strncmp(launcher, library, series_length(library)) != 0) {
        doc_add(&e->report, DOC_FAIL, "mpirun",
                "start with the mpirun of the library that the program was built with",
                "mpirun is %s, the program's library %s: the ranks would not find each other",
                launcher, library);
    } else {
        doc_add(&e->report, DOC_OK, "mpirun", NULL, "%s, as the program's library", launcher);
    }
}

static bool variable_is_one(const char *variable)
{
    const char *value = getenv(variable);
    return value && strcmp(value, "1") == 0;
}

/* Checks that root may start jobs. mpirun refuses that unless a flag or two variables allow it. The
 * line that the doctor uses and prints has the flag. */
static void check_root(exam *e, char **args, int n_args)
{
    bool allowed = variable_is_one("OMPI_ALLOW_RUN_AS_ROOT") &&
                   variable_is_one("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM");
    if (geteuid() != 0) return;
    for (int i = 0; i < n_args; i++)
        allowed = allowed || strcmp(args[i] + strspn(args[i], "-"), "allow-run-as-root") == 0;
    if (allowed)
        doc_add(&e->report, DOC_OK, "root", NULL,
                "you are root, and mpirun's line or the environment allows it");
    else
        doc_add(&e->report, DOC_WARN, "root",
                "add --allow-run-as-root to your line, or export OMPI_ALLOW_RUN_AS_ROOT=1 "
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                "you are root: mpirun refuses to start a job without --allow-run-as-root");
}

static void check_slots(exam *e, int64_t n)
{
    rd_strbuf list = {0};
    const char *flag = e->cli->hosts ? "--hosts" : "--hostfile";
    bool local = false;
    for (int i = 0; i < e->hosts.n; i++) {
        rd_strbuf_printf(&list, "%s%s:%d", i ? "," : "", e->hosts.at[i].name, e->hosts.at[i].slots);
        local = local || strcmp(e->hosts.at[i].name, "localhost") == 0;
    }
    if (n > e->hosts.slots)
        doc_add(&e->report, DOC_FAIL, "slots", "use more slots or hosts, or a smaller -np",
                "-np %" PRId64 " asks for more than the %d slots of %s (%.300s)", n, e->hosts.slots,
                flag, rd_strbuf_str(&list));
    else
        doc_add(&e->report, DOC_OK, "slots", NULL, "%d on %d host%s (%.300s)", e->hosts.slots,
                e->hosts.n, e->hosts.n == 1 ? "" : "s", rd_strbuf_str(&list));
    if (local && e->hosts.n > 1)
        doc_add(
            &e->report, DOC_WARN, "slots", "write the host's own name",
            "'localhost' is in a list of several hosts: the others cannot reach it by that name");
    rd_strbuf_release(&list);
}

/* ---- from host to host ---- */

/* Makes the request for facts: with the user's words for mpirun, and with up to three of each range
 * of pinned ports (first, middle, last) for the server to listen on. */
static json_t *facts_request(exam *e)
{
    json_t *mca = doc_mca_new(e->cli->mpirun_args), *ports = json_array();
    static const char *const kinds[] = {"btl_tcp", "oob_tcp"};
    for (int k = 0; k < 2; k++) {
        int first, last;
        if (!doc_mca_ports(mca, kinds[k], &first, &last)) continue;
        json_array_append_new(ports, json_integer(first));
        if (last > first) json_array_append_new(ports, json_integer(last));
        if (last > first + 1)
            json_array_append_new(ports, json_integer(first + (last - first) / 2));
    }
    json_decref(mca);
    return json_pack("{s:s, s:s, s:o, s:o, s:b}", "ask", "facts", "args",
                     e->cli->mpirun_args ? e->cli->mpirun_args : "", "environment",
                     doc_mca_environment(), "ports", ports, "brief", e->brief);
}

/* Checks what the login of one host printed, and that it finds mpirun's daemon. */
static void check_login(exam *e, const doc_peer *p)
{
    const char *noise = rd_strbuf_str(&p->noise);
    if (*noise)
        doc_add(&e->report, DOC_WARN, "ssh",
                "make the shell's start files print nothing without a terminal",
                "%s: the shell's start files print "
                "'%.*s' at each login, which confuses programs that talk over ssh",
                p->host->name, (int)(strcspn(noise, "\r\n") < 100 ? strcspn(noise, "\r\n") : 100),
                noise);
    if (!*doc_text(p->facts, "daemon"))
        doc_add(
            &e->report, DOC_FAIL, "mpirun",
            "install the same Open MPI there; if it is in its own folder: mpirun --prefix FOLDER",
            "%s: mpirun's daemon (orted) is not in the PATH of a login by ssh", p->host->name);
}

/* Starts the agents and collects the facts. A host without an answer is a failure. */
static void ask_facts(exam *e)
{
    json_t *request = facts_request(e);
    const int port = (int)e->cli->ssh_port;
    doc_peers_start(e->peers, e->hosts.n, port, e->ssh, e->n_ssh, request,
                    hosts_deadline(e->brief ? brief_s : facts_s));
    json_decref(request);
    int n = 0;
    for (int i = 0; i < e->hosts.n; i++) {
        doc_peer *p = &e->peers[i];
        if (!p->facts) {
            doc_peer_explain(p, port, &e->report);
            continue;
        }
        json_object_set_new(p->facts, "listed", json_string(p->host->name));
        json_object_set_new(p->facts, "ranks", json_integer(p->host->slots));
        json_array_append(e->facts, p->facts);
        e->peer_of[n++] = i;
        check_login(e, p);
    }
    if (n == e->hosts.n)
        doc_add(&e->report, DOC_OK, "ssh", NULL, "%s",
                n == 1 ? "the host answers" : "all hosts answer");
}

/* Stores how far the clock of each host is ahead of this one's, and the error of that number. */
static void ask_clocks(exam *e)
{
    json_t *request = json_pack("{s:s}", "ask", "time");
    const double before = rd_wall_s();
    doc_peers_ask(e->peers, e->hosts.n, &request, true, hosts_deadline(3.0));
    const double now = rd_wall_s();
    size_t k;
    json_t *h;
    json_array_foreach(e->facts, k, h)
    {
        const json_t *answer = e->peers[e->peer_of[k]].answer;
        if (!answer) continue;
        json_object_set_new(h, "clock_ahead_s",
                            json_real(doc_number(answer, "wall_s") - (before + now) / 2));
        json_object_set_new(h, "clock_error_s", json_real((now - before) / 2 + 0.05));
    }
    json_decref(request);
}

/* Lets all hosts call each other, and checks the outcome. */
static void ask_calls(exam *e)
{
    json_t **requests = calloc((size_t)e->hosts.n + 1, sizeof *requests), *results = json_array();
    size_t k;
    json_t *h;
    if (!requests) return;
    json_array_foreach(e->facts, k, h)
    {
        requests[e->peer_of[k]] = json_pack("{s:s, s:o, s:f}", "ask", "call", "targets",
                                            doc_targets(e->facts, k), "deadline_s", calls_s);
    }
    doc_peers_ask(e->peers, e->hosts.n, requests, false, hosts_deadline(calls_s + 5.0));
    json_array_foreach(e->facts, k, h)
    {
        json_t *list = json_object_get(e->peers[e->peer_of[k]].answer, "results");
        if (list)
            json_array_append(results, list);
        else
            json_array_append_new(results, json_array());
    }
    doc_check_ways(&e->report, e->facts, results);
    json_decref(results);
    for (int i = 0; i < e->hosts.n; i++) json_decref(requests[i]);
    free(requests);
}

static void examine_hosts(exam *e)
{
    ask_facts(e);
    if (json_array_size(e->facts) == 0) return;
    doc_check_program(&e->report, e->facts);
    doc_check_names(&e->report, e->facts);
    doc_check_btl(&e->report, e->facts);
    doc_check_interfaces(&e->report, e->facts);
    doc_check_addresses(&e->report, e->facts);
    doc_check_space(&e->report, e->facts);
    doc_check_left(&e->report, e->facts);
    ask_clocks(e);
    doc_check_clocks(&e->report, e->facts);
    if (json_array_size(e->facts) > 1) ask_calls(e);
}

/* ---- the job ---- */

/* Makes e->line, the line for the user, and *argv: the same words, a mark by which agents find the
 * job's processes, and this program. The caller frees *argv with doc_words_free. */
static rd_code build_job_line(exam *e, char ***argv, int *n, const char *job, rd_status *st)
{
    char network[32], path[4096];
    char **w = NULL;
    const bool root = geteuid() == 0;
    *argv = NULL;
    *n = 0;
    doc_common_network(e->facts, network);
    RD_TRY(doc_line(&e->hosts, (int)e->cli->ssh_port, e->cli->mpirun_args, network, root, &e->line,
                    &e->n_line, st));
    const ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);
    path[len > 0 ? len : 0] = '\0';
    w = calloc((size_t)e->n_line + (size_t)e->cli->n_set * 2 + 16, sizeof *w);
    if (!w)
        rd_fail(st, RD_EENV, "out of memory for mpirun's line");
    else {
        int k = 0;
        const rd_cli *c = e->cli;
        for (int i = 0; i < e->n_line; i++) w[k++] = strdup(e->line[i]);
        w[k++] = strdup("--mca");
        w[k++] = strdup("rd_doctor_job");
        w[k++] = strdup(job);
        w[k++] = strdup(path);
        w[k++] = strdup("--mode=doctor");
        w[k++] = strdup("--json");
        for (int i = 0; i < c->n_set; i++) {
            w[k++] = strdup("--set");
            w[k++] = strdup(c->set[i]);
        }
        if (c->config_file && asprintf(&w[k], "--config_file=%s", c->config_file) >= 0) k++;
        if (c->logdir && asprintf(&w[k], "--logdir=%s", c->logdir) >= 0) k++;
        for (int i = 0; i < k; i++)
            if (!w[i]) rd_fail(st, RD_EENV, "out of memory for mpirun's line");
        *n = k;
        *argv = w;
    }
done:
    return st->code;
}

/* Returns whether the line is a ruler of dashes. */
static bool is_ruler(const char *line, size_t n)
{
    size_t dashes = 0;
    while (dashes < n && line[dashes] == '-') dashes++;
    return n > 0 && dashes == n;
}

/* Returns the text of the first block between rulers that is no mere warning; the whole text if
 * there is none. */
static const char *first_block(const char *text)
{
    static const char *const ruler = "----------\n";
    for (const char *s = strstr(text, ruler); s; s = strstr(s, ruler)) {
        s += strlen(ruler);
        const bool closes = *s == '-' || !*s;
        if (!closes && strncmp(s, "WARNING", 7) != 0 && strncmp(s, "By default", 10) != 0 &&
            strstr(s, ruler))
            return s;
    }
    return text;
}

/* Copies the whole sentences with which a text begins, up to a ruler, as one line. A blank line
 * ends a sentence, too. Without a sentence that fits, the copy ends between two words. marked: also
 * takes a line that begins with "[host:pid]", and no more than one. */
static void whole_sentences(const char *text, bool marked, char *out, size_t cap)
{
    size_t k = 0, whole = 0, word = 0;
    for (const char *s = text; *s && k + 2 < cap;) {
        const size_t n = strcspn(s, "\n");
        if (marked && k > 0) { /* such lines repeat each other */
            whole = k;
            break;
        }
        const bool left_out = is_ruler(s, n) || (*s == '[' && !marked);
        if (is_ruler(s, n) && k > 0) {
            if (whole == 0) whole = k;
            break;
        }
        if (n == 0 && k > 0) whole = k;
        for (size_t i = 0; i <= n && !left_out && k + 2 < cap; i++) {
            const unsigned char c = i < n ? (unsigned char)s[i] : ' ';
            if (c == ' ' && (k == 0 || out[k - 1] == ' ')) continue;
            if (c == ' ' && strchr(".!?", out[k - 1])) whole = k;
            if (c == ' ') word = k;
            out[k++] = (char)(c < 0x20 || c >= 0x7f ? '?' : c);
        }
        s += n + (s[n] == '\n');
        if (!*s && k + 2 < cap) whole = k;
    }
    out[whole > 0 ? whole : word] = '\0';
    if (whole == 0 && word > 0 && word + 5 < cap) strcpy(out + word, " ...");
    for (k = strlen(out); k > 0 && out[k - 1] == ' ';) out[--k] = '\0';
}

/* Writes what the program or MPI gave as the reason why a job ended, in whole sentences. */
void doc_complaint(const char *text, char out[600])
{
    static const char *const ours = "run_dist: error: ";
    const char *own = strstr(text, ours);
    if (!own) {
        whole_sentences(first_block(text), false, out, 600);
        if (!*out) whole_sentences(text, true, out, 600);
        return;
    }
    own += strlen(ours);
    (void)snprintf(out, 600, "%.*s", (int)strcspn(own, "\n"), own);
}

/* Adds a failure: why the job gave no report. */
static void job_failed(exam *e, const doc_child *c, bool in_time)
{
    const char *complaint = rd_strbuf_str(&c->err_text);
    const bool clean = e->report.n[DOC_WARN] + e->report.n[DOC_FAIL] == 0;
    char said[600];
    rd_strbuf remedy = {0};
    doc_complaint(complaint, said);
    rd_strbuf_printf(&remedy, "%s%s", clean ? "" : "see the checks above; ",
                     in_time ? "" : "mpirun's settings may hide a cause; ");
    rd_strbuf_puts(&remedy, "try the line by hand: ");
    doc_line_text(e->line, e->n_line, &remedy);
    rd_strbuf_puts(&remedy, " run_dist --mode=doctor");
    if (!in_time)
        doc_add(&e->report, DOC_FAIL, "job", rd_strbuf_str(&remedy),
                "mpirun's job did not answer within %.0f s and was "
                "ended%s%s",
                job_s, *said ? ": " : "", said);
    else if (strstr(complaint, "not enough slots"))
        doc_add(&e->report, DOC_FAIL, "slots", "use more slots or hosts, or a smaller -np",
                "mpirun finds not enough slots: %.300s", said);
    else
        doc_add(&e->report, DOC_FAIL, "job", rd_strbuf_str(&remedy),
                "mpirun's job ended with %s %d before it could report%s%s",
                WIFSIGNALED(c->status) ? "signal" : "status",
                WIFSIGNALED(c->status) ? WTERMSIG(c->status) : WEXITSTATUS(c->status),
                *said ? ": " : ", and printed nothing", said);
    rd_strbuf_release(&remedy);
}

/* Runs the job and merges its report. If it hung, the agents kill its processes on all hosts. */
static void run_job(exam *e)
{
    char **argv = NULL, job[40] = "rdjob";
    int n = 0;
    rd_status own = {0};
    doc_child c = {.in = -1, .out = -1, .err = -1}, *one = &c;
    json_t *answer = NULL, *sweep = NULL;
    doc_token(job + 5);
    if (build_job_line(e, &argv, &n, job, &own) != RD_OK ||
        doc_child_start(&c, argv, &own) != RD_OK) {
        doc_add(&e->report, DOC_FAIL, "job", NULL, "%s", own.msg);
        goto done;
    }
    e->started = true;
    doc_children_poll(&one, 1, hosts_deadline(job_s), child_ended, &c);
    const bool in_time = c.ended;
    if (!c.ended) doc_child_end(&c);
    const char *object = strstr(rd_strbuf_str(&c.out_text), "{\"");
    answer = object ? json_loads(object, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    if (answer) {
        e->ranks = json_incref(json_object_get(answer, "ranks"));
        doc_merge(&e->report, json_object_get(answer, "checks"));
        if (WIFEXITED(c.status) && WEXITSTATUS(c.status) == RD_EDISAGREE) e->report.differ = true;
    } else {
        job_failed(e, &c, in_time);
    }
    if (!answer || !in_time) {
        sweep = json_pack("{s:s, s:s}", "ask", "sweep", "job", job);
        doc_peers_ask(e->peers, e->hosts.n, &sweep, true, hosts_deadline(3.0));
    }
done:
    json_decref(answer);
    json_decref(sweep);
    doc_child_release(&c);
    doc_words_free(argv, n);
}

/* Adds the line for mpirun to the report if no check failed. */
static void report_line(exam *e)
{
    rd_strbuf text = {0};
    doc_line_text(e->line, e->n_line, &text);
    if (e->n_line > 0 && e->report.n[DOC_FAIL] == 0)
        doc_add(&e->report, DOC_OK, "line", NULL, "%s run_dist ...", rd_strbuf_str(&text));
    rd_strbuf_release(&text);
}

/* Adds a warning for each check that warns, and fails with the first one that fails. */
static void brief_result(const exam *e, rd_strbuf *warnings, rd_status *st)
{
    const json_t *c, *first = NULL;
    size_t i;
    json_array_foreach(e->report.checks, i, c)
    {
        const char *level = doc_text(c, "level"), *remedy = doc_text(c, "remedy");
        if (strcmp(level, "warning") == 0)
            rd_strbuf_printf(warnings, "%s%s%s\n", doc_text(c, "text"), *remedy ? "; " : "",
                             remedy);
        if (!first && strcmp(level, "failure") == 0) first = c;
    }
    if (!first) return;
    const char *remedy = doc_text(first, "remedy");
    char more[120] = "";
    if (e->report.n[DOC_FAIL] > 1)
        (void)snprintf(more, sizeof more,
                       " (and %d more; run_dist --mode=doctor with these hosts shows all)",
                       e->report.n[DOC_FAIL] - 1);
    rd_fail(st, e->report.differ ? RD_EDISAGREE : RD_EENV, "%.500s%s%.300s%s",
            doc_text(first, "text"), *remedy ? "; " : "", remedy, more);
}

/* Examines the hosts without a call between them and without a job. */
static void brief_exam(exam *e, doc_found *out)
{
    size_t i;
    json_t *h;
    ask_facts(e);
    if (json_array_size(e->facts) == 0) return;
    doc_check_program(&e->report, e->facts);
    doc_check_names(&e->report, e->facts);
    doc_check_btl(&e->report, e->facts);
    doc_check_interfaces(&e->report, e->facts);
    doc_check_space(&e->report, e->facts);
    if (json_array_size(e->facts) > 1) doc_common_network(e->facts, out->network);
    json_array_foreach(e->facts, i, h)
    {
        const double cpus = doc_number(h, "processors");
        out->yield |= doc_number(h, "ranks") > cpus;
    }
}

rd_code doc_brief(const rd_cli *cli, const doc_hosts *hosts, doc_found *out, rd_strbuf *warnings,
                  rd_status *st)
{
    exam e = {.cli = cli, .hosts = *hosts, .facts = json_array(), .brief = true};
    json_t *mca = doc_mca_new(cli->mpirun_args);
    bool here = true;
    *out = (doc_found){0};
    RD_TRY(doc_report_init(&e.report, st));
    if (doc_mca(mca, "plm_rsh_args"))
        RD_TRY(doc_words(doc_mca(mca, "plm_rsh_args"), &e.ssh, &e.n_ssh, st));
    e.peers = calloc((size_t)hosts->n + 1, sizeof *e.peers);
    e.peer_of = calloc((size_t)hosts->n + 1, sizeof *e.peer_of);
    if (!e.peers || !e.peer_of || !e.facts) {
        rd_fail(st, RD_EENV, "out of memory for %d hosts", hosts->n);
        goto done;
    }
    for (int i = 0; i < hosts->n; i++) {
        e.peers[i].host = &hosts->at[i];
        here = here && doc_is_this_host(hosts->at[i].name);
    }
    check_mpirun(&e);
    if (!here && e.report.n[DOC_FAIL] == 0) brief_exam(&e, out);
    brief_result(&e, warnings, st);
done:
    doc_peers_release(e.peers, hosts->n);
    free(e.peers);
    free(e.peer_of);
    json_decref(e.facts);
    json_decref(mca);
    doc_words_free(e.ssh, e.n_ssh);
    doc_report_release(&e.report);
    return st->code;
}

rd_code rd_doctor_hosts(const rd_cli *cli, rd_status *st)
{
    exam e = {.cli = cli, .facts = json_array()};
    char **args = NULL;
    int n_args = 0;
    json_t *mca = doc_mca_new(cli->mpirun_args);
    RD_TRY(doc_report_init(&e.report, st));
    RD_TRY(cli->hosts ? doc_hosts_parse(cli->hosts, &e.hosts, st)
                      : doc_hosts_read(cli->hostfile, &e.hosts, st));
    RD_TRY(doc_words(cli->mpirun_args ? cli->mpirun_args : "", &args, &n_args, st));
    if (doc_mca(mca, "plm_rsh_args"))
        RD_TRY(doc_words(doc_mca(mca, "plm_rsh_args"), &e.ssh, &e.n_ssh, st));
    e.peers = calloc((size_t)e.hosts.n, sizeof *e.peers);
    e.peer_of = calloc((size_t)e.hosts.n, sizeof *e.peer_of);
    if (!e.peers || !e.peer_of || !e.facts) {
        rd_fail(st, RD_EENV, "out of memory for %d hosts", e.hosts.n);
        goto done;
    }
    for (int i = 0; i < e.hosts.n; i++) e.peers[i].host = &e.hosts.at[i];
    check_mpirun(&e);
    check_root(&e, args, n_args);
    check_slots(&e, doc_line_ranks(args, n_args));
    examine_hosts(&e);
    if (e.report.n[DOC_FAIL] == 0) run_job(&e);
    report_line(&e);
    if (cli->json) {
        RD_TRY(doc_print_json(&e.report, e.facts, e.ranks, stdout, st));
    } else {
        if (json_array_size(e.ranks) > 0) doc_print_ranks(e.ranks, stdout);
        if (json_array_size(e.ranks) > 0) (void)puts("");
        doc_print_checks(&e.report, stdout);
        if (!e.started)
            (void)puts("the job itself was not started: fix the failures above first");
        else if (!e.ranks)
            (void)puts("the job itself was started, and ended without a report of its ranks");
        doc_print_verdict(&e.report, stdout);
    }
    (void)fflush(stdout);
    (void)doc_result(&e.report, st);
done:
    doc_peers_release(e.peers, e.hosts.n);
    free(e.peers);
    free(e.peer_of);
    json_decref(e.facts);
    json_decref(e.ranks);
    json_decref(mca);
    doc_words_free(e.ssh, e.n_ssh);
    doc_words_free(e.line, e.n_line);
    doc_words_free(args, n_args);
    doc_hosts_release(&e.hosts);
    doc_report_release(&e.report);
    return st->code;
}
