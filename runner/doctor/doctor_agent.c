/* doctor_agent.c -- the other end of `run_dist --mode=doctor --hosts`: answers requests on a host.
 *
 * The launching host starts the agent over ssh. A request is one JSON object on a line of standard
 * input; its answer is one line of standard output. Each answer begins with RD1, which
 * distinguishes it from what the shell's start files print. The agent ends when its input ends (ssh
 * has ended, or the launching host is gone), and after 90 seconds at the latest.
 *
 *   request                                               answer
 *   {"ask": "facts", "args": "-np 4 ..",                  facts, with token and ports of a server
 *    "environment": {..}, "ports": [..],
 *    "brief": false}
 *   {"ask": "time"}                                       {"wall_s": ..}
 *   {"ask": "call", "targets": [..], "deadline_s": ..}    {"results": [..]}, see doc_calls_json
 *   {"ask": "sweep", "job": j}                            {"ended": n}
 *
 * "args" are words of mpirun's line, "environment" are the settings in mpirun's environment, which
 * its ranks get. "sweep" kills n processes: those of this user whose
 * environment or command line contains j. */
#include "doctor_impl.h"
#include "rd/clock.h"
#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool rd_doctor_is_agent(void)
{
    return getenv("RD_DOCTOR_AGENT") != NULL;
}

/* Prints one answer and frees it. */
static void agent_reply(json_t *o)
{
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    (void)printf("RD1 %s\n", text ? text : "{}");
    (void)fflush(stdout);
    free(text);
    json_decref(o);
}

/* Returns whether the first 256 KiB of a file contain a text. */
static bool file_contains(const char *path, const char *what)
{
    static const size_t cap = 1 << 18;
    bool found = false;
    FILE *f = fopen(path, "re");
    char *p = f ? malloc(cap) : NULL;
    if (p) {
        const size_t n = fread(p, 1, cap, f);
        found = memmem(p, n, what, strlen(what)) != NULL;
    }
    free(p);
    if (f) fclose(f);
    return found;
}

/* Kills the processes of a job, other than this one, and returns their number. */
static int agent_sweep(const char *job)
{
    int ended = 0;
    DIR *d = strlen(job) >= 8 ? opendir("/proc") : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        char dir[300], path[330];
        struct stat s;
        if (!isdigit((unsigned char)e->d_name[0]) || atoi(e->d_name) == (int)getpid()) continue;
        (void)snprintf(dir, sizeof dir, "/proc/%s", e->d_name);
        if (stat(dir, &s) != 0 || s.st_uid != getuid()) continue;
        (void)snprintf(path, sizeof path, "%s/cmdline", dir);
        bool ours = file_contains(path, job);
        (void)snprintf(path, sizeof path, "%s/environ", dir);
        ours = ours || file_contains(path, job);
        if (ours && kill(atoi(e->d_name), SIGKILL) == 0) ended++;
    }
    if (d) closedir(d);
    return ended;
}

/* Returns the facts of this host. Starts the server at the first request. */
static json_t *agent_facts(const json_t *ask, const char *versions, doc_server **server)
{
    int ports[8], n = 0;
    char token[33];
    size_t i;
    json_t *p;
    rd_status st = {0};
    json_t *o = doc_facts(versions,
                          doc_mca_with(json_object_get(ask, "environment"), doc_text(ask, "args")),
                          !json_is_true(json_object_get(ask, "brief"))),
           *listens = json_array();
    json_array_foreach(json_object_get(ask, "ports"), i, p)
    {
        if (n < 8) ports[n++] = (int)json_integer_value(p);
    }
    doc_token(token);
    if (!*server) (void)doc_server_new(token, ports, n, server, &st);
    for (int k = 0; *server && doc_server_listens(*server, k); k++)
        json_array_append_new(listens, json_integer(doc_server_listens(*server, k)));
    json_object_set_new(o, "ports", listens);
    json_object_set_new(o, "token", json_string(token));
    return o;
}

rd_code rd_doctor_agent(const char *versions, rd_status *st)
{
    char *line = NULL;
    size_t cap = 0;
    doc_server *server = NULL;
    (void)alarm(90);
    while (getline(&line, &cap, stdin) > 0) {
        json_t *ask = json_loads(line, 0, NULL);
        const char *what = doc_text(ask, "ask");
        if (strcmp(what, "facts") == 0)
            agent_reply(agent_facts(ask, versions, &server));
        else if (strcmp(what, "time") == 0)
            agent_reply(json_pack("{s:f}", "wall_s", rd_wall_s()));
        else if (strcmp(what, "sweep") == 0)
            agent_reply(json_pack("{s:i}", "ended", agent_sweep(doc_text(ask, "job"))));
        else if (strcmp(what, "call") == 0)
            agent_reply(json_pack("{s:o}", "results",
                                  doc_calls_json(json_object_get(ask, "targets"),
                                                 doc_number(ask, "deadline_s"))));
        else
            agent_reply(json_pack("{s:s}", "error", "an unknown request"));
        json_decref(ask);
    }
    free(line);
    doc_server_free(server);
    return st->code;
}
