/* doctor_sockets.c -- tests TCP connections between hosts, with deadlines and without MPI.
 *
 * A firewall that drops packets makes MPI wait for ever without a message. The server sends its
 * token to each caller. By the token the caller notices that it has reached another machine, where
 * two hosts have one address. Then the caller hangs up, or sends for a while and receives the
 * number of bytes that arrived. */
#include "doctor_impl.h"
#include "rd/clock.h"
#include "rd/file.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TOKEN_BYTES = 40, MAX_PORTS = 16, BLOCK = 256 << 10 };

struct doc_server {
    int fd[MAX_PORTS], port[MAX_PORTS], n; /* listening sockets and their ports, [n] */
    int stop[2];                           /* a pipe; closing stop[1] ends the thread */
    char token[TOKEN_BYTES];
    pthread_t thread;
    char *block; /* [BLOCK]: buffer of the thread; owned */
};

/* Waits until a socket is ready. Returns false at the deadline. */
static bool wait_fd(int fd, short what, int64_t until_ns)
{
    struct pollfd p = {.fd = fd, .events = what};
    for (;;) {
        const int64_t left = until_ns - rd_now_ns();
        const int n = poll(&p, 1, left > 0 ? (int)(left / 1000000) + 1 : 0);
        /* Also after the deadline: this process may not have run for a while. */
        if (n > 0) return true;
        if (left <= 0 || (n < 0 && errno != EINTR)) return false;
    }
}

/* Sends n bytes. Returns false on an error, or at the deadline. */
static bool send_all(int fd, const void *p, size_t n, int64_t until_ns)
{
    const char *s = p;
    while (n > 0) {
        const ssize_t k = send(fd, s, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k > 0) {
            s += k;
            n -= (size_t)k;
        } else if (k < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (!wait_fd(fd, POLLOUT, until_ns)) return false;
        } else {
            return false;
        }
    }
    return true;
}

/* Receives n bytes. Returns false on an error, or at the deadline. */
static bool recv_all(int fd, void *p, size_t n, int64_t until_ns)
{
    char *s = p;
    while (n > 0) {
        const ssize_t k = recv(fd, s, n, MSG_DONTWAIT);
        if (k > 0) {
            s += k;
            n -= (size_t)k;
        } else if (k < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (!wait_fd(fd, POLLIN, until_ns)) return false;
        } else {
            return false;
        }
    }
    return true;
}

static int64_t socket_deadline(double seconds)
{
    return rd_now_ns() + (int64_t)(seconds * 1e9);
}

void doc_token(char out[33])
{
    unsigned char b[16];
    if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
        for (size_t i = 0; i < sizeof b; i++) b[i] = (unsigned char)(rd_now_ns() >> (i % 8 * 8));
    for (size_t i = 0; i < sizeof b; i++) (void)snprintf(out + 2 * i, 3, "%02x", b[i]);
}

/* ---- server ---- */

/* Receives until the caller stops sending. Answers with two int64_t: the bytes after the first
 * block, and the nanoseconds from the first block to the last one. */
static void count_stream(doc_server *s, int fd)
{
    const int64_t until = socket_deadline(5.0);
    int64_t sum[2] = {0, 0}, first = 0;
    for (;;) {
        const ssize_t k = recv(fd, s->block, BLOCK, MSG_DONTWAIT);
        if (k == 0) break;
        if (k > 0) {
            const int64_t now = rd_now_ns();
            /* The bytes of the first block were under way before the clock started. */
            if (!first)
                first = now;
            else
                sum[0] += k;
            sum[1] = now - first;
        } else if (errno != EAGAIN && errno != EINTR) {
            return;
        } else if (!wait_fd(fd, POLLIN, until)) {
            return;
        }
    }
    (void)send_all(fd, sum, sizeof sum, until);
}

/* Sends the token to one caller. Command 'q': it hangs up; 's': it sends a stream. */
static void serve_caller(doc_server *s, int listener)
{
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    char command = 'q';
    if (fd < 0) return;
    const int64_t until = socket_deadline(1.0);
    if (send_all(fd, s->token, sizeof s->token, until) && recv_all(fd, &command, 1, until) &&
        command == 's')
        count_stream(s, fd);
    (void)close(fd);
}

static void *server_main(void *arg)
{
    doc_server *s = arg;
    struct pollfd p[MAX_PORTS + 1];
    for (int i = 0; i < s->n; i++) p[i] = (struct pollfd){.fd = s->fd[i], .events = POLLIN};
    p[s->n] = (struct pollfd){.fd = s->stop[0], .events = POLLIN};
    while (poll(p, (nfds_t)s->n + 1, -1) >= 0 || errno == EINTR) {
        if (p[s->n].revents) break;
        for (int i = 0; i < s->n; i++)
            if (p[i].revents) serve_caller(s, s->fd[i]);
    }
    return NULL;
}

/* Listens on one more port, 0: a free one. If the port is in use, nothing changes. */
static void add_listener(doc_server *s, int port)
{
    const struct sockaddr_in want = {.sin_family = AF_INET,
                                     .sin_port = htons((uint16_t)port),
                                     .sin_addr.s_addr = htonl(INADDR_ANY)};
    struct sockaddr_in got = {0};
    socklen_t n = sizeof got;
    const int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || s->n == MAX_PORTS) goto fail;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (const struct sockaddr *)&want, sizeof want) != 0 || listen(fd, 128) != 0)
        goto fail;
    if (getsockname(fd, (struct sockaddr *)&got, &n) != 0) goto fail;
    s->fd[s->n] = fd;
    s->port[s->n++] = ntohs(got.sin_port);
    return;
fail:
    if (fd >= 0) (void)close(fd);
}

rd_code doc_server_new(const char *token, const int *ports, int n, doc_server **out, rd_status *st)
{
    *out = NULL;
    doc_server *s = calloc(1, sizeof *s);
    if (!s) return rd_fail(st, RD_EENV, "out of memory for a listening socket");
    (void)snprintf(s->token, sizeof s->token, "%s", token);
    s->block = malloc(BLOCK);
    s->stop[0] = s->stop[1] = -1;
    add_listener(s, 0);
    for (int i = 0; i < n && s->n > 0; i++) add_listener(s, ports[i]);
    if (!s->block || s->n == 0 || rd_pipe(s->stop) != 0) {
        rd_fail(st, RD_EENV, "no socket to listen on: %s", strerror(errno));
    } else if (pthread_create(&s->thread, NULL, server_main, s) != 0) {
        (void)close(s->stop[1]);
        s->stop[1] = -1;
        rd_fail(st, RD_EENV, "no thread for the doctor's server");
    } else {
        *out = s;
        return RD_OK;
    }
    doc_server_free(s);
    return st->code;
}

void doc_server_free(doc_server *s)
{
    if (!s) return;
    if (s->stop[1] >= 0) {
        (void)close(s->stop[1]);
        (void)pthread_join(s->thread, NULL);
    }
    if (s->stop[0] >= 0) (void)close(s->stop[0]);
    for (int i = 0; i < s->n; i++) (void)close(s->fd[i]);
    free(s->block);
    free(s);
}

int doc_server_listens(const doc_server *s, int k)
{
    return k < s->n ? s->port[k] : 0;
}

int doc_server_port(const doc_server *s)
{
    return s->port[0];
}

/* ---- callers ---- */

/* Starts to connect and returns the socket. Returns -1 and sets *way if that failed at once. */
static int start_connect(uint32_t addr, int port, doc_way *way)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(addr)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *way = DOC_WAY_SILENT;
    if (fd < 0) {
        *way = DOC_WAY_NONE;
        return -1;
    }
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) == 0 || errno == EINPROGRESS)
        return fd;
    *way = errno == ECONNREFUSED ? DOC_WAY_REFUSED : DOC_WAY_NONE;
    (void)close(fd);
    return -1;
}

/* Continues a call that poll reported. Returns whether its outcome is known. got: bytes of the
 * token so far. began: when the call started. */
static bool advance_call(doc_call *c, int fd, char *token, size_t *got, int64_t began)
{
    int err = 0;
    socklen_t n = sizeof err;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &n) != 0 || err != 0) {
        c->way = err == ECONNREFUSED ? DOC_WAY_REFUSED
                 : err == ETIMEDOUT  ? DOC_WAY_SILENT
                                     : DOC_WAY_NONE;
        return true;
    }
    const ssize_t k = recv(fd, token + *got, TOKEN_BYTES - *got, MSG_DONTWAIT);
    if (k < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (k > 0) *got += (size_t)k;
    if (k > 0 && *got < TOKEN_BYTES) return false;
    c->ms = (double)(rd_now_ns() - began) * 1e-6;
    token[TOKEN_BYTES - 1] = '\0';
    c->way = k > 0 && strcmp(token, c->token) == 0 ? DOC_WAY_OPEN : DOC_WAY_WRONG;
    (void)send(fd, "q", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    return true;
}

/* The deadline is a number of time slices in which nothing arrived, not a moment in time. If this
 * machine stands still for a while, an answer that was late for that reason is no firewall. */
void doc_call_all(doc_call *calls, int n, double deadline_s)
{
    enum { AT_ONCE = 128, SLICE_MS = 100 };
    struct pollfd p[AT_ONCE];
    char token[AT_ONCE][TOKEN_BYTES];
    size_t got[AT_ONCE];
    for (int from = 0; from < n; from += AT_ONCE) {
        const int m = n - from < AT_ONCE ? n - from : AT_ONCE;
        const int64_t began = rd_now_ns();
        int open = 0, slices = (int)(deadline_s * 1e3 / SLICE_MS + 0.5);
        for (int i = 0; i < m; i++) {
            doc_call *c = &calls[from + i];
            got[i] = 0;
            p[i] = (struct pollfd){.fd = start_connect(c->addr, c->port, &c->way),
                                   .events = POLLOUT};
            open += p[i].fd >= 0;
        }
        while (open > 0 && slices > 0) {
            const int ready = poll(p, (nfds_t)m, SLICE_MS);
            if (ready < 0 && errno != EINTR) break;
            slices -= ready <= 0;
            for (int i = 0; i < m && ready > 0; i++) {
                if (p[i].fd < 0 || !p[i].revents) continue;
                /* Connected or failed. If connected, the token comes next. */
                p[i].events = POLLIN;
                if (!advance_call(&calls[from + i], p[i].fd, token[i], &got[i], began)) continue;
                (void)close(p[i].fd);
                p[i].fd = -1;
                open--;
            }
        }
        /* The outcome of the others stays "silent". */
        for (int i = 0; i < m; i++)
            if (p[i].fd >= 0) (void)close(p[i].fd);
    }
}

const char *doc_way_text(doc_way w)
{
    static const char *const texts[] = {"open", "refused", "no answer", "no route",
                                        "another host answers"};
    return texts[w];
}

double doc_stream_gbit_per_s(uint32_t addr, int port, double seconds)
{
    doc_way way;
    char token[TOKEN_BYTES];
    int64_t sum[2] = {0, 0};
    double rate = 0.0;
    char *block = calloc(1, BLOCK);
    const int fd = block ? start_connect(addr, port, &way) : -1;
    if (fd < 0) goto done;
    if (!recv_all(fd, token, sizeof token, socket_deadline(2.0)) ||
        !send_all(fd, "s", 1, socket_deadline(1.0)))
        goto done;
    for (const int64_t until = socket_deadline(seconds); rd_now_ns() < until;)
        if (!send_all(fd, block, BLOCK, socket_deadline(2.0))) goto done;
    (void)shutdown(fd, SHUT_WR);
    if (recv_all(fd, sum, sizeof sum, socket_deadline(3.0)) && sum[1] > 0)
        rate = (double)sum[0] * 8.0 / (double)sum[1];
done:
    if (fd >= 0) (void)close(fd);
    free(block);
    return rate;
}

/* ---- calls as JSON ---- */

json_t *doc_calls_json(const json_t *targets, double deadline_s)
{
    const size_t n = json_array_size(targets);
    json_t *out = json_array();
    doc_call *calls = calloc(n + 1, sizeof *calls);
    size_t i;
    json_t *t;
    if (!calls) return out;
    json_array_foreach(targets, i, t)
    {
        (void)doc_parse_ipv4(doc_text(t, "addr"), &calls[i].addr);
        calls[i].port = (int)doc_number(t, "port");
        (void)snprintf(calls[i].token, sizeof calls[i].token, "%s", doc_text(t, "token"));
    }
    doc_call_all(calls, (int)n, deadline_s);
    json_array_foreach(targets, i, t)
    {
        json_t *o = json_copy(t);
        json_object_set_new(o, "way", json_integer(calls[i].way));
        json_object_set_new(o, "ms", json_real(calls[i].ms));
        json_array_append_new(out, o);
    }
    free(calls);
    return out;
}

json_t *doc_targets(const json_t *hosts, size_t i)
{
    json_t *out = json_array(), *h, *net, *port;
    size_t k, m, q;
    const json_t *me = json_array_get(hosts, i);
    json_array_foreach(hosts, k, h)
    {
        if (k == i || strcmp(doc_text(h, "machine"), doc_text(me, "machine")) == 0) continue;
        const json_t *ports = json_object_get(h, "ports");
        bool pinned = false;
        json_array_foreach(json_object_get(h, "nets"), m, net)
        {
            if (json_is_true(json_object_get(net, "loopback")) ||
                !json_is_true(json_object_get(net, "up")))
                continue;
            const bool used = doc_net_used(json_object_get(h, "mca"), net) &&
                              !doc_shared_address(hosts, net);
            json_array_foreach(ports, q, port)
            {
                if (q > 0 && (pinned || !used)) continue;
                json_array_append_new(out, json_pack("{s:I, s:s, s:s, s:O, s:s, s:b, s:b}", "to",
                                                     (json_int_t)k, "addr", doc_text(net, "addr"),
                                                     "name", doc_text(net, "name"), "port", port,
                                                     "token", doc_text(h, "token"), "used", used,
                                                     "pinned", q > 0));
            }
            pinned = pinned || used;
        }
    }
    return out;
}

/* Adds one failure per pair of hosts and kind of ports: the ports of a kind are open or closed
 * together. */
void doc_check_ways(doc_report *r, const json_t *hosts, const json_t *results)
{
    const int before = r->n[DOC_FAIL];
    size_t i, k, n_open = 0;
    json_t *list, *t;
    double slowest = 0.0;
    char last_key[64] = "";
    json_array_foreach(results, i, list)
    {
        json_array_foreach(list, k, t)
        {
            const doc_way way = (doc_way)doc_number(t, "way");
            const size_t to = (size_t)doc_number(t, "to");
            const bool pinned = json_is_true(json_object_get(t, "pinned"));
            const char *from = doc_text(json_array_get(hosts, i), "listed"),
                       *host = doc_text(json_array_get(hosts, to), "listed");
            char key[64];
            if (way == DOC_WAY_OPEN) {
                n_open++;
                if (doc_number(t, "ms") > slowest) slowest = doc_number(t, "ms");
                continue;
            }
            /* The check of addresses reports an address that several hosts have. An address that
             * MPI does not use does not matter. */
            if (!json_is_true(json_object_get(t, "used")) || way == DOC_WAY_WRONG) continue;
            (void)snprintf(key, sizeof key, "%zu %zu %d", i, to, pinned);
            if (strcmp(key, last_key) == 0) continue;
            (void)snprintf(last_key, sizeof last_key, "%s", key);
            if (pinned)
                doc_add(
                    r, DOC_FAIL, "ports",
                    "open the pinned ports between all hosts (btl_tcp_port_min_v4 and _range_v4, "
                    "oob_tcp_dynamic_ipv4_ports)",
                    "%s -> %s: port %.0f of the range set for MPI: %s: a firewall", from, host,
                    doc_number(t, "port"), doc_way_text(way));
            else
                doc_add(r, DOC_FAIL, "ports",
                        "open all ports between the hosts; or pin some and open those: "
                        "--mca oob_tcp_dynamic_ipv4_ports 46000-46049 "
                        "--mca btl_tcp_port_min_v4 46050 --mca btl_tcp_port_range_v4 100",
                        "%s -> %s: %s (%s) port %.0f: %s, though ssh is open: a firewall; MPI "
                        "would hang without a message",
                        from, host, doc_text(t, "addr"), doc_text(t, "name"), doc_number(t, "port"),
                        doc_way_text(way));
        }
    }
    if (r->n[DOC_FAIL] == before && json_array_size(hosts) > 1)
        doc_add(r, n_open ? DOC_OK : DOC_WARN, "ports", n_open ? NULL : "see the checks above",
                "%zu connection%s made between hosts, the slowest in %.1f ms", n_open,
                n_open == 1 ? " was" : "s were", slowest);
}
