/* doctor_peers.c -- starts agents over ssh and reads their answers; see doctor_peers.h. */
#include "doctor_peers.h"
#include "rd/clock.h"
#include "rd/file.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- children ---- */

static void close_fd(int *fd)
{
    if (*fd >= 0) (void)close(*fd);
    *fd = -1;
}

rd_code doc_child_start(doc_child *c, char *const *argv, rd_status *st)
{
    int p[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    *c = (doc_child){.in = -1, .out = -1, .err = -1};
    for (int i = 0; i < 3; i++)
        if (rd_pipe(p[i]) != 0)
            rd_fail(st, RD_EENV, "no pipe for a child process: %s", strerror(errno));
    if (st->code == RD_OK) {
        c->pid = fork();
        if (c->pid < 0) {
            c->pid = 0;
            rd_fail(st, RD_EENV, "cannot start a process: %s", strerror(errno));
        }
    }
    if (st->code == RD_OK && c->pid == 0) {
        (void)setpgid(0, 0);
        /* If the keyboard ends the doctor, its children end, too. */
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        (void)dup2(p[0][0], 0);
        (void)dup2(p[1][1], 1);
        (void)dup2(p[2][1], 2);
        (void)signal(SIGPIPE, SIG_DFL);
        (void)execvp(argv[0], argv);
        (void)dprintf(2, "%s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    close_fd(&p[0][0]);
    close_fd(&p[1][1]);
    close_fd(&p[2][1]);
    if (st->code != RD_OK) {
        close_fd(&p[0][1]);
        close_fd(&p[1][0]);
        close_fd(&p[2][0]);
        return st->code;
    }
    (void)setpgid(c->pid, c->pid);
    c->in = p[0][1];
    c->out = p[1][0];
    c->err = p[2][0];
    (void)fcntl(c->out, F_SETFL, O_NONBLOCK);
    (void)fcntl(c->err, F_SETFL, O_NONBLOCK);
    (void)fcntl(c->in, F_SETFL, O_NONBLOCK);
    return st->code;
}

/* Reads all that a pipe holds now, and closes it at its end. Keeps 64 MiB at most. */
static void drain_pipe(int *fd, rd_strbuf *to)
{
    static const size_t most = (size_t)64 << 20;
    char block[16384];
    while (*fd >= 0) {
        const ssize_t k = read(*fd, block, sizeof block);
        if (k > 0 && to->n < most)
            rd_strbuf_add(to, block, (size_t)k);
        else if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR))
            close_fd(fd);
        else if (k < 0)
            return;
    }
}

/* Notices whether the child has ended. */
static void reap_child(doc_child *c)
{
    if (c->pid > 0 && !c->ended && waitpid(c->pid, &c->status, WNOHANG) == c->pid) c->ended = true;
}

void doc_children_poll(doc_child *const *c, int n, int64_t until_ns, bool (*done)(void *ctx),
                       void *ctx)
{
    struct pollfd *p = calloc((size_t)n * 2 + 1, sizeof *p);
    if (!p) return;
    while (!done(ctx)) {
        const int64_t left = until_ns - rd_now_ns();
        if (left <= 0) break;
        for (int i = 0; i < n; i++) {
            p[2 * i] = (struct pollfd){.fd = c[i]->out, .events = POLLIN};
            p[2 * i + 1] = (struct pollfd){.fd = c[i]->err, .events = POLLIN};
        }
        /* At most 100 ms: a child may end while a grandchild keeps its pipes open. */
        const int64_t wait_ms = left / 1000000 + 1;
        if (poll(p, (nfds_t)n * 2, wait_ms < 100 ? (int)wait_ms : 100) < 0 && errno != EINTR) break;
        for (int i = 0; i < n; i++) {
            drain_pipe(&c[i]->out, &c[i]->out_text);
            drain_pipe(&c[i]->err, &c[i]->err_text);
            reap_child(c[i]);
        }
    }
    /* Output between the last look and the end. */
    for (int i = 0; i < n; i++) {
        drain_pipe(&c[i]->out, &c[i]->out_text);
        drain_pipe(&c[i]->err, &c[i]->err_text);
    }
    free(p);
}

void doc_child_send(doc_child *c, const json_t *o)
{
    char *text = json_dumps(o, JSON_COMPACT);
    size_t n = text ? strlen(text) : 0, at = 0;
    if (text) text[n++] = '\n';
    const int64_t until = rd_now_ns() + 2000000000;
    while (at < n && c->in >= 0) {
        const ssize_t k = write(c->in, text + at, n - at);
        if (k > 0)
            at += (size_t)k;
        else if (k < 0 && errno == EAGAIN && rd_now_ns() < until)
            (void)poll(&(struct pollfd){.fd = c->in, .events = POLLOUT}, 1, 100);
        else if (k < 0 && errno != EINTR)
            close_fd(&c->in);
    }
    free(text);
}

void doc_child_end(doc_child *c)
{
    close_fd(&c->in);
    if (c->pid <= 0) return;
    for (int ms = 0; !c->ended && ms < 3000; ms += 20) {
        const struct timespec pause = {.tv_nsec = 20000000};
        /* Its input is closed: a healthy agent ends by itself. */
        if (ms == 200) (void)kill(-c->pid, SIGTERM);
        if (ms == 1200) (void)kill(-c->pid, SIGKILL);
        drain_pipe(&c->out, &c->out_text);
        drain_pipe(&c->err, &c->err_text);
        reap_child(c);
        if (!c->ended) (void)nanosleep(&pause, NULL);
    }
    /* Processes of the group that are left. */
    (void)kill(-c->pid, SIGKILL);
    c->pid = 0;
}

void doc_child_release(doc_child *c)
{
    doc_child_end(c);
    close_fd(&c->out);
    close_fd(&c->err);
    rd_strbuf_release(&c->out_text);
    rd_strbuf_release(&c->err_text);
}

/* ---- peers ---- */

bool doc_is_this_host(const char *name)
{
    char own[128] = "";
    bool here = false;
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    (void)gethostname(own, sizeof own - 1);
    if (strcmp(name, own) == 0 || strcmp(name, "localhost") == 0) return true;
    if (getaddrinfo(name, NULL, &hints, &found) != 0) return false;
    json_t *nets = doc_interfaces(), *net;
    for (const struct addrinfo *i = found; i; i = i->ai_next) {
        struct sockaddr_in a;
        char text[16];
        size_t k;
        memcpy(&a, i->ai_addr, sizeof a);
        doc_format_ipv4(ntohl(a.sin_addr.s_addr), text);
        json_array_foreach(nets, k, net)
        {
            here = here || strcmp(text, doc_text(net, "addr")) == 0;
        }
    }
    freeaddrinfo(found);
    json_decref(nets);
    return here;
}

/* Starts the agent of a peer, over ssh unless it is this host, and sends the request. */
static void start_agent(doc_peer *p, int ssh_port, char *const *ssh, int n_ssh,
                        const json_t *request)
{
    enum { MAX_ARGS = 64 };
    char *argv[MAX_ARGS] = {NULL}, port[16], path[4096], remote[4400];
    rd_status own = {0};
    int n = 0;
    const ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);
    path[len > 0 ? len : 0] = '\0';
    p->tries++;
    doc_child_release(&p->child);
    (void)snprintf(port, sizeof port, "%d", p->host->port ? p->host->port : ssh_port);
    (void)snprintf(remote, sizeof remote, "exec env RD_DOCTOR_AGENT=1 '%s' --mode=doctor", path);
    char program[] = "ssh", opt[] = "-o", batch[] = "BatchMode=yes", limit[] = "ConnectTimeout=8",
         tty[] = "-T", last[] = "--", dash_p[] = "-p", dash_l[] = "-l", env[] = "env",
         agent[] = "RD_DOCTOR_AGENT=1", mode[] = "--mode=doctor";
    if (p->here) {
        argv[n++] = env;
        argv[n++] = agent;
        argv[n++] = path;
        argv[n++] = mode;
    } else {
        char *const fixed[] = {program, tty, opt, batch, opt, limit};
        for (int i = 0; i < 6; i++) argv[n++] = fixed[i];
        for (int i = 0; i < n_ssh && n < MAX_ARGS - 8; i++) argv[n++] = ssh[i];
        if (strcmp(port, "0") != 0) {
            argv[n++] = dash_p;
            argv[n++] = port;
        }
        if (p->host->user[0]) {
            argv[n++] = dash_l;
            argv[n++] = (char *)(uintptr_t)p->host->user;
        }
        argv[n++] = last; /* what follows is no option */
        argv[n++] = (char *)(uintptr_t)p->host->name;
        argv[n++] = remote;
    }
    if (doc_child_start(&p->child, argv, &own) == RD_OK)
        doc_child_send(&p->child, request);
    else
        p->child.ended = true;
}

/* Reads the next complete line of an answer into p->answer. Other lines are noise. */
static void read_answer(doc_peer *p)
{
    doc_child *c = &p->child;
    while (!p->answer) {
        const char *from = rd_strbuf_str(&c->out_text) + c->read_bytes, *end = strchr(from, '\n');
        if (!end) return;
        const char *ours = memmem(from, (size_t)(end - from), "RD1 {", 5);
        if (ours)
            p->answer = json_loadb(ours + 4, (size_t)(end - ours) - 4, 0, NULL);
        else
            rd_strbuf_add(&p->noise, from, (size_t)(end - from) + 1);
        c->read_bytes += (size_t)(end - from) + 1;
    }
}

/* What all_answered needs. Everything is borrowed. */
typedef struct wait_state {
    doc_peer *p; /* [n] */
    int n, ssh_port, n_ssh;
    char *const *ssh;
    const json_t *request; /* request for another start of an agent, NULL: no other start */
    const bool *asked;     /* [n]: the peer has received a request */
    int64_t until_ns;      /* deadline */
} wait_state;

/* Returns whether another try makes sense: the worker, or its name, may appear within seconds. */
static bool may_retry(const doc_peer *p)
{
    const char *e = rd_strbuf_str(&p->child.err_text);
    return p->tries < 3 && !p->here &&
           (strstr(e, "refused") || strstr(e, "not resolve") || strstr(e, "No route"));
}

/* Returns whether each asked peer has answered or ended. Starts agents again that could not
 * connect, while time is left. */
static bool all_answered(void *ctx)
{
    const wait_state *r = ctx;
    bool all = true;
    for (int i = 0; i < r->n; i++) {
        doc_peer *p = &r->p[i];
        if (!r->asked[i]) continue;
        read_answer(p);
        if (p->answer) continue;
        if (p->child.ended && r->request && may_retry(p) &&
            r->until_ns - rd_now_ns() > 3000000000) {
            const struct timespec pause = {.tv_nsec = 700000000};
            (void)nanosleep(&pause, NULL);
            start_agent(p, r->ssh_port, r->ssh, r->n_ssh, r->request);
        }
        all = all && p->child.ended;
    }
    return all;
}

static void wait_answers(wait_state *r, int64_t until_ns)
{
    doc_child **c = calloc((size_t)r->n + 1, sizeof *c);
    if (!c) return;
    for (int i = 0; i < r->n; i++) c[i] = &r->p[i].child;
    r->until_ns = until_ns;
    doc_children_poll(c, r->n, until_ns, all_answered, r);
    for (int i = 0; i < r->n; i++)
        if (r->asked[i]) read_answer(&r->p[i]);
    free(c);
}

void doc_peers_start(doc_peer *p, int n, int ssh_port, char *const *ssh, int n_ssh,
                     const json_t *request, int64_t until_ns)
{
    bool *asked = calloc((size_t)n + 1, sizeof *asked);
    if (!asked) return;
    for (int i = 0; i < n; i++) {
        p[i].child = (doc_child){.in = -1, .out = -1, .err = -1};
        p[i].here = doc_is_this_host(p[i].host->name);
        start_agent(&p[i], ssh_port, ssh, n_ssh, request);
        asked[i] = true;
    }
    wait_state r = {.p = p,
                    .n = n,
                    .ssh_port = ssh_port,
                    .ssh = ssh,
                    .n_ssh = n_ssh,
                    .request = request,
                    .asked = asked};
    wait_answers(&r, until_ns);
    for (int i = 0; i < n; i++) {
        p[i].facts = p[i].answer;
        p[i].answer = NULL;
    }
    free(asked);
}

void doc_peers_ask(doc_peer *p, int n, json_t *const *requests, bool one_for_all, int64_t until_ns)
{
    bool *asked = calloc((size_t)n + 1, sizeof *asked);
    if (!asked) return;
    for (int i = 0; i < n; i++) {
        const json_t *o = one_for_all ? requests[0] : requests[i];
        json_decref(p[i].answer);
        p[i].answer = NULL;
        asked[i] = o && p[i].facts && !p[i].child.ended;
        if (asked[i]) doc_child_send(&p[i].child, o);
    }
    wait_state r = {.p = p, .n = n, .asked = asked};
    wait_answers(&r, until_ns);
    free(asked);
}

void doc_peers_release(doc_peer *p, int n)
{
    /* Without input all agents begin to end at the same time. */
    for (int i = 0; p && i < n; i++) close_fd(&p[i].child.in);
    for (int i = 0; p && i < n; i++) {
        doc_child_release(&p[i].child);
        json_decref(p[i].answer);
        json_decref(p[i].facts);
        rd_strbuf_release(&p[i].noise);
    }
}

/* Returns the last line of a text, with '?' for characters that are not printable ASCII. */
static void last_line(const char *text, char out[300])
{
    size_t n = strlen(text);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r')) n--;
    size_t from = n;
    while (from > 0 && text[from - 1] != '\n') from--;
    (void)snprintf(out, 300, "%.*s", (int)(n - from < 299 ? n - from : 299), text + from);
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f) *c = '?';
}

void doc_peer_explain(const doc_peer *p, int ssh_port, doc_report *r)
{
    const char *name = p->host->name, *e = rd_strbuf_str(&p->child.err_text);
    const int given = p->host->port ? p->host->port : ssh_port;
    char last[300], port[32] = "ssh's port", remedy[400];
    if (given) (void)snprintf(port, sizeof port, "port %d", given);
    last_line(e, last);
    if (strstr(e, "not resolve") || strstr(e, "not known")) {
        size_t digits = strlen(name);
        while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') digits--;
        (void)snprintf(remedy, sizeof remedy,
                       "write the host's name as in DNS or /etc/hosts, or its address");
        if (name[digits] && name[digits + 1] && p->host->slots == 1)
            (void)snprintf(remedy, sizeof remedy,
                           "the entry has no ':slots'; did you mean %.*s:%s?",
                           (int)strlen(name) - 1, name, name + strlen(name) - 1);
        doc_add(r, DOC_FAIL, "ssh", remedy, "%s: the name cannot be resolved", name);
    } else if (strstr(e, "Connection refused")) {
        doc_add(r, DOC_FAIL, "ssh",
                "start the worker's sshd there, or give its port: --ssh_port=12345 (mpirun: "
                "--mca plm_rsh_args \"-p 12345\")",
                "%s: ssh to %s is refused: no sshd listens there", name, port);
    } else if (strstr(e, "timed out") || strstr(e, "No route") || strstr(e, "unreachable")) {
        doc_add(r, DOC_FAIL, "ssh",
                "check that the host is up and that its firewall lets this port in",
                "%s: ssh to %s gets no answer: the host is down, or a firewall drops it", name,
                port);
    } else if (strstr(e, "Permission denied") || strstr(e, "Too many authentication")) {
        doc_add(r, DOC_FAIL, "ssh",
                "put the public key into .ssh/authorized_keys there; .ssh belongs to that user and "
                "has mode 700, its files have 600",
                "%s: ssh refuses the login%s%s without a password: %s", name,
                p->host->user[0] ? " of " : "", p->host->user, last);
    } else if (strstr(e, "Host key verification failed") ||
               strstr(e, "HOST IDENTIFICATION HAS CHANGED")) {
        (void)snprintf(remedy, sizeof remedy,
                       "check the key, then: ssh-keyscan%s%.20s %.128s >> ~/.ssh/known_hosts",
                       given ? " -p " : "", given ? port + 5 : "", name);
        doc_add(r, DOC_FAIL, "ssh", remedy, "%s: ssh does not know the host's key", name);
    } else if (strstr(e, "No such file") || strstr(e, "not found")) {
        if (strncmp(e, "ssh:", 4) == 0)
            doc_add(r, DOC_FAIL, "ssh", "install an ssh client here (openssh-client)",
                    "there is no ssh on this host: %s", last);
        else
            doc_add(r, DOC_FAIL, "program", "install the same build on all hosts, at the same path",
                    "%s: the program is not there: %s", name, last);
    } else if (p->child.ended) {
        doc_add(r, DOC_FAIL, "ssh", "run by hand: ssh HOST true",
                "%s: ssh, or the program there, ended at once: %s", name,
                *last ? last : "without a message");
    } else {
        doc_add(
            r, DOC_FAIL, "ssh",
            "run ssh HOST true by hand; if it hangs, check the host, its firewall, and the start "
            "files of the shell there",
            "%s: no answer over ssh (%s) in time%s%s", name, port, *last ? ": " : "", last);
    }
}
