/* watch_net.c -- the watch's own connections between hosts, see watch_net.h.
 *
 * The connections are plain TCP, one per host. Rank 0 listens on a port that the kernel chooses. It
 * sends its addresses and a random token to the other ranks through the communicator, and accepts
 * the connections that return the token. Messages are structs of fixed layout. All ranks run the
 * same program, which is checked before.
 *
 * A message is sent whole or the connection is closed. A few hundred bytes per second do not fit
 * only if the connection has been dead for long. */
#include "watch_net.h"
#include "rd/clock.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_ADDRESSES = 16, SLICE_MS = 100, OPEN_SLICES = 30, TOKEN_SLICES = 5 };

/* What rank 0 sends to the leaders before they connect. */
typedef struct invitation {
    uint64_t token;
    uint16_t port; /* network order; 0: rank 0 cannot listen */
    int16_t n;
    uint32_t address[MAX_ADDRESSES]; /* network order */
} invitation;

/* The first message of a leader. */
typedef struct hello {
    uint64_t token;
    int32_t host, n_local;
} hello;

/* The head of a message of a leader; the beats follow. */
typedef struct watch_net_head {
    int32_t n, abort_code;
} watch_net_head;

/* One connection. */
typedef struct watch_net_line {
    int fd;            /* -1: closed */
    bool lost;         /* closed by the other end, or by this one after a failure */
    int64_t heard_ns;  /* when bytes arrived last */
    unsigned char *in; /* owned; [want]: the message that is being received */
    size_t have, want; /* bytes received, bytes of a message */
} watch_net_line;

struct rd_net {
    bool root;
    int n_lines;          /* rank 0: the other hosts; a leader: 1 */
    int n_local;          /* beats in a message of this leader; rank 0 expects this number */
    watch_net_line *line; /* owned; [n_lines] */
};

static void set_socket_options(int fd)
{
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* Waits for an event of fd. *slices: how many times to poll at most. It is not a point in time: on
 * a machine that stood still meanwhile, bytes that arrived are still received. */
static bool wait_fd(int fd, short what, int *slices)
{
    for (; *slices > 0; --*slices) {
        struct pollfd p = {.fd = fd, .events = what};
        const int r = poll(&p, 1, SLICE_MS);
        if (r > 0) return true;
        if (r < 0 && errno != EINTR) return false;
    }
    return false;
}

/* Sends or receives exactly n bytes. */
static bool transfer_all(int fd, void *p, size_t n, bool out, int slices)
{
    for (size_t at = 0; at < n;) {
        const ssize_t r = out ? send(fd, (char *)p + at, n - at, MSG_NOSIGNAL)
                              : recv(fd, (char *)p + at, n - at, 0);
        if (r > 0)
            at += (size_t)r;
        else if (r == 0 || (errno != EAGAIN && errno != EINTR) ||
                 !wait_fd(fd, out ? POLLOUT : POLLIN, &slices))
            return false;
    }
    return true;
}

/* ---- start and end ---- */

/* Listens, and fills in the invitation. Returns the socket; -1: failed. */
static int net_listen(invitation *v)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t n = sizeof any;
    struct ifaddrs *all = NULL;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof any) != 0 || listen(fd, 64) != 0 ||
        getsockname(fd, (struct sockaddr *)&any, &n) != 0 || getifaddrs(&all) != 0 ||
        getrandom(&v->token, sizeof v->token, 0) != (ssize_t)sizeof v->token) {
        if (all) freeifaddrs(all);
        if (fd >= 0) close(fd);
        return -1;
    }
    for (const struct ifaddrs *i = all; i && v->n < MAX_ADDRESSES; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET) continue;
        if ((i->ifa_flags & IFF_LOOPBACK) || !(i->ifa_flags & IFF_UP)) continue;
        v->address[v->n++] =
            ((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr.s_addr;
    }
    freeifaddrs(all);
    v->port = any.sin_port;
    set_socket_options(fd);
    return fd;
}

/* Connects to all addresses at once, because some may belong to a bridge that nobody reaches.
 * Returns the number of connections in progress. */
static int net_connect_all(const invitation *v, struct pollfd p[MAX_ADDRESSES])
{
    int n = 0;
    for (int i = 0; i < v->n; i++) {
        const struct sockaddr_in to = {
            .sin_family = AF_INET, .sin_port = v->port, .sin_addr.s_addr = v->address[i]};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof to) != 0 &&
            errno != EINPROGRESS) {
            close(fd);
            fd = -1;
        }
        p[i] = (struct pollfd){.fd = fd, .events = POLLOUT};
        n += fd >= 0;
    }
    return n;
}

/* Connects to rank 0. Returns the socket; -1: none. It tries again if rank 0 closed the connection:
 * rank 0 waits only a short time for the first message, which a busy machine may delay. */
static int net_call_root(const invitation *v, const hello *h)
{
    struct pollfd p[MAX_ADDRESSES];
    int found = -1, under_way = 0;
    for (int left = OPEN_SLICES; found < 0 && left > 0; left--) {
        if (under_way == 0) under_way = net_connect_all(v, p);
        if (poll(p, (nfds_t)v->n, SLICE_MS) < 0 && errno != EINTR) break;
        for (int i = 0; i < v->n && found < 0; i++) {
            if (p[i].fd < 0 || !p[i].revents) continue;
            int err = 0;
            uint64_t echo = 0;
            socklen_t n = sizeof err;
            hello mine = *h;
            (void)getsockopt(p[i].fd, SOL_SOCKET, SO_ERROR, &err, &n);
            if (err == 0 && transfer_all(p[i].fd, &mine, sizeof mine, true, TOKEN_SLICES) &&
                transfer_all(p[i].fd, &echo, sizeof echo, false, OPEN_SLICES) && echo == ~v->token)
                found = p[i].fd;
            else
                close(p[i].fd);
            p[i].fd = -1;
            under_way--;
        }
        if (found < 0 && under_way == 0) (void)poll(NULL, 0, SLICE_MS); /* refused at once */
    }
    for (int i = 0; under_way > 0 && i < v->n; i++)
        if (p[i].fd >= 0) close(p[i].fd);
    if (found >= 0) set_socket_options(found);
    return found;
}

/* Accepts the connections of the other hosts' leaders. A leader that connects again has given up
 * its first connection. */
static void net_accept_leaders(rd_net *net, int listener, uint64_t token)
{
    int missing = net->n_lines, slices = OPEN_SLICES + TOKEN_SLICES;
    while (missing > 0 && wait_fd(listener, POLLIN, &slices)) {
        const int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        hello h = {0};
        uint64_t echo = ~token;
        if (fd < 0 || !transfer_all(fd, &h, sizeof h, false, TOKEN_SLICES) || h.token != token ||
            h.host < 1 || h.host > net->n_lines ||
            !transfer_all(fd, &echo, sizeof echo, true, TOKEN_SLICES)) {
            if (fd >= 0) close(fd);
            slices--;
            continue;
        }
        set_socket_options(fd);
        watch_net_line *l = &net->line[h.host - 1];
        if (l->fd >= 0)
            close(l->fd);
        else
            missing--;
        l->fd = fd;
        l->want = (size_t)h.n_local * sizeof(rd_beat) + sizeof(watch_net_head);
    }
}

rd_code rd_net_open(rd_comm *c, rd_net **out, char why[200], rd_status *st)
{
    const rd_world *w = rd_comm_world(c);
    const bool root = w->rank == 0, leader = w->local_rank == 0 && w->host_index > 0;
    invitation v = {0};
    int listener = -1;
    double *missing = NULL; /* [n_hosts]; 1: the host has no connection to rank 0's host */
    int n_missing = 0;
    rd_net *net = NULL;
    *out = NULL;
    why[0] = '\0';
    if (w->n_hosts == 1) return st->code;
    missing = calloc((size_t)w->n_hosts, sizeof *missing);
    if (!missing) rd_fail(st, RD_EENV, "out of memory for the watch of %d hosts", w->n_hosts);
    if (root || leader) {
        net = calloc(1, sizeof *net);
        if (net) net->line = calloc((size_t)w->n_hosts, sizeof *net->line);
        if (!net || !net->line)
            rd_fail(st, RD_EENV, "out of memory for the watch of %d hosts", w->n_hosts);
        if (net && net->line) {
            net->root = root;
            net->n_local = w->local_size;
            net->n_lines = root ? w->n_hosts - 1 : 1;
            for (int i = 0; i < net->n_lines; i++) net->line[i].fd = -1;
            if (root) listener = net_listen(&v);
        }
    }
    RD_TRY(rd_comm_agree(c, st));
    RD_TRY(rd_comm_bcast(c, &v, sizeof v, 0, st));
    if (net && v.port) {
        if (root)
            net_accept_leaders(net, listener, v.token);
        else {
            const hello h = {v.token, w->host_index, w->local_size};
            net->line[0].fd = net_call_root(&v, &h);
            net->line[0].want = sizeof(rd_net_order);
        }
    }
    for (int i = 0; net && i < net->n_lines; i++) {
        watch_net_line *l = &net->line[i];
        l->heard_ns = rd_now_ns();
        if (l->fd < 0) {
            missing[root ? i + 1 : w->host_index] = 1.0;
            continue;
        }
        l->in = malloc(l->want);
        if (!l->in) rd_fail(st, RD_EENV, "out of memory for the watch");
    }
    RD_TRY(rd_comm_agree(c, st));
    /* One end may have a connection and the other not. */
    RD_TRY(rd_comm_max_f64(c, missing, w->n_hosts, st));
    for (int i = 1; i < w->n_hosts; i++) {
        if (missing[i] == 0.0) continue;
        n_missing++;
        if (root && net->line[i - 1].fd >= 0) {
            close(net->line[i - 1].fd);
            net->line[i - 1].fd = -1;
        }
    }
    if (n_missing > 0)
        snprintf(why, 200,
                 "%d of %d other hosts cannot open a TCP connection to rank 0's host (%s); let a "
                 "firewall pass all ports between the hosts",
                 n_missing, w->n_hosts - 1, v.port ? "no answer in 3 s" : "it cannot listen");
    if (leader && missing[w->host_index] != 0.0) goto done; /* it watches only its own host */
    *out = net;
    net = NULL;
done:
    free(missing);
    if (listener >= 0) close(listener);
    rd_net_close(net);
    return st->code;
}

void rd_net_close(rd_net *n)
{
    if (!n) return;
    for (int i = 0; n->line && i < n->n_lines; i++) {
        if (n->line[i].fd >= 0) close(n->line[i].fd);
        free(n->line[i].in);
    }
    free(n->line);
    free(n);
}

/* ---- messages ---- */

int rd_net_fds(const rd_net *n, int *fd, int cap)
{
    int k = 0;
    for (int i = 0; n && i < n->n_lines && k < cap; i++)
        if (n->line[i].fd >= 0) fd[k++] = n->line[i].fd;
    return k;
}

/* Closes a connection for good. */
static void net_close_line(watch_net_line *l)
{
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
    l->lost = true;
}

static void net_send_whole(watch_net_line *l, const void *p, size_t n)
{
    if (l->fd >= 0 && send(l->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
        net_close_line(l);
}

/* Receives a message. Returns whether l->in holds a whole one; the next call then
 * receives the next one. */
static bool net_receive_one(watch_net_line *l)
{
    if (l->have == l->want) l->have = 0;
    while (l->fd >= 0 && l->have < l->want) {
        const ssize_t r = recv(l->fd, l->in + l->have, l->want - l->have, MSG_DONTWAIT);
        if (r > 0) {
            l->have += (size_t)r;
            l->heard_ns = rd_now_ns();
        } else if (r == 0 || (errno != EAGAIN && errno != EINTR)) {
            net_close_line(l);
        } else {
            return false;
        }
    }
    return l->want > 0 && l->have == l->want;
}

void rd_net_send_beats(rd_net *n, const rd_beat *b, int n_beats, int abort_code)
{
    const size_t bytes = n ? sizeof(watch_net_head) + (size_t)n->n_local * sizeof *b : 0;
    unsigned char *m = n && n_beats <= n->n_local && n->line[0].fd >= 0 ? calloc(1, bytes) : NULL;
    const watch_net_head h = {n_beats, abort_code};
    if (!m) return;
    memcpy(m, &h, sizeof h);
    if (n_beats > 0) memcpy(m + sizeof h, b, (size_t)n_beats * sizeof *b);
    net_send_whole(&n->line[0], m, bytes);
    free(m);
}

bool rd_net_receive_order(rd_net *n, rd_net_order *o)
{
    bool any = false;
    while (n && net_receive_one(&n->line[0])) {
        memcpy(o, n->line[0].in, sizeof *o);
        any = true;
    }
    return any;
}

void rd_net_send_order(rd_net *n, const rd_net_order *o)
{
    for (int i = 0; n && i < n->n_lines; i++) net_send_whole(&n->line[i], o, sizeof *o);
}

void rd_net_receive_beats(rd_net *n, rd_beat *all, int n_all, int *abort_code)
{
    for (int i = 0; n && i < n->n_lines; i++) {
        watch_net_line *l = &n->line[i];
        while (net_receive_one(l)) {
            watch_net_head h;
            memcpy(&h, l->in, sizeof h);
            if (h.abort_code && !*abort_code) *abort_code = h.abort_code;
            for (int k = 0; k < h.n && sizeof h + (size_t)(k + 1) * sizeof *all <= l->want; k++) {
                rd_beat b;
                memcpy(&b, l->in + sizeof h + (size_t)k * sizeof b, sizeof b);
                if (b.rank >= 0 && b.rank < n_all) all[b.rank] = b;
            }
        }
    }
}

double rd_net_silence_s(const rd_net *n, int k)
{
    return n && k < n->n_lines ? (double)(rd_now_ns() - n->line[k].heard_ns) * 1e-9 : 0.0;
}

void rd_net_add_pause(rd_net *n, int64_t ns)
{
    for (int i = 0; n && i < n->n_lines; i++) n->line[i].heard_ns += ns;
}

bool rd_net_broken(const rd_net *n, int k)
{
    return n && k < n->n_lines && n->line[k].lost;
}
