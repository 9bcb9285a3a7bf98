/* watch_net.c -- see watch_net.h. Plain TCP, one connection per host: rank 0 listens on a port that the kernel gives, tells
 * its addresses and a random word by the communicator, and takes the connections that send the word back. Messages are
 * structs of fixed layout: the ranks run one and the same program (that is checked before).
 *
 * A message goes out whole or the connection is given up: a line so full that a second's few hundred bytes do not fit has
 * been dead for long. */
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

enum { MAX_ADDRESSES = 16, SLICE_MS = 100, OPEN_SLICES = 30, WORD_SLICES = 5 };

typedef struct invitation {
    uint64_t word;
    uint16_t port; /* network order; 0: nobody listens */
    int16_t n;
    uint32_t address[MAX_ADDRESSES]; /* network order */
} invitation;

typedef struct hello {
    uint64_t word;
    int32_t host, n_local;
} hello;

typedef struct watch_net_head {
    int32_t n, abort_code;
} watch_net_head;

typedef struct watch_net_line { /* one connection */
    int fd;                     /* -1: closed */
    bool lost;                  /* closed by the other end or given up */
    int64_t heard_ns;
    unsigned char *in; /* of a message that is on its way */
    size_t have, want;
} watch_net_line;

struct rd_net {
    bool root;
    int n_lines; /* rank 0: the other hosts; a leader: 1 */
    int n_local; /* beats that a message of this leader has: rank 0 waits for so many */
    watch_net_line *at;
};

static void set_up(int fd)
{
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* *slices: how often to look, at most. Not a moment in time: on a machine that stands still meanwhile, what came is
 * still taken. */
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

static bool move_all(int fd, void *p, size_t n, bool out, int slices)
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

/* ---- opening ---- */

static int invite(invitation *v)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t n = sizeof any;
    struct ifaddrs *all = NULL;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof any) != 0 || listen(fd, 64) != 0 ||
        getsockname(fd, (struct sockaddr *)&any, &n) != 0 || getifaddrs(&all) != 0 ||
        getrandom(&v->word, sizeof v->word, 0) != (ssize_t)sizeof v->word) {
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
    set_up(fd);
    return fd;
}

/* All at once: an address may be that of a bridge nobody reaches. Returns how many are under way. */
static int dial(const invitation *v, struct pollfd p[MAX_ADDRESSES])
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

/* Calls again when rank 0 hung up: it does not wait long for a caller that says nothing, as a busy machine may make
 * this one. */
static int call_root(const invitation *v, const hello *h)
{
    struct pollfd p[MAX_ADDRESSES];
    int found = -1, under_way = 0;
    for (int left = OPEN_SLICES; found < 0 && left > 0; left--) {
        if (under_way == 0) under_way = dial(v, p);
        if (poll(p, (nfds_t)v->n, SLICE_MS) < 0 && errno != EINTR) break;
        for (int i = 0; i < v->n && found < 0; i++) {
            if (p[i].fd < 0 || !p[i].revents) continue;
            int err = 0;
            uint64_t echo = 0;
            socklen_t n = sizeof err;
            hello mine = *h;
            (void)getsockopt(p[i].fd, SOL_SOCKET, SO_ERROR, &err, &n);
            if (err == 0 && move_all(p[i].fd, &mine, sizeof mine, true, WORD_SLICES) &&
                move_all(p[i].fd, &echo, sizeof echo, false, OPEN_SLICES) && echo == ~v->word)
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
    if (found >= 0) set_up(found);
    return found;
}

/* Takes the calls of the other hosts' leaders. One that calls again has given its first call up. */
static void answer_leaders(rd_net *net, int listener, uint64_t word)
{
    int missing = net->n_lines, slices = OPEN_SLICES + WORD_SLICES;
    while (missing > 0 && wait_fd(listener, POLLIN, &slices)) {
        const int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        hello h = {0};
        uint64_t echo = ~word;
        if (fd < 0 || !move_all(fd, &h, sizeof h, false, WORD_SLICES) || h.word != word ||
            h.host < 1 || h.host > net->n_lines ||
            !move_all(fd, &echo, sizeof echo, true, WORD_SLICES)) {
            if (fd >= 0) close(fd);
            slices--;
            continue;
        }
        set_up(fd);
        watch_net_line *l = &net->at[h.host - 1];
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
    double *missing = NULL; /* [n_hosts]: 1: has no connection to rank 0's host */
    int n_missing = 0;
    rd_net *net = NULL;
    *out = NULL;
    why[0] = '\0';
    if (w->n_hosts == 1) return st->code;
    missing = calloc((size_t)w->n_hosts, sizeof *missing);
    if (!missing) rd_fail(st, RD_EENV, "out of memory for the watch of %d hosts", w->n_hosts);
    if (root || leader) {
        net = calloc(1, sizeof *net);
        if (net) net->at = calloc((size_t)w->n_hosts, sizeof *net->at);
        if (!net || !net->at)
            rd_fail(st, RD_EENV, "out of memory for the watch of %d hosts", w->n_hosts);
        if (net && net->at) {
            net->root = root;
            net->n_local = w->local_size;
            net->n_lines = root ? w->n_hosts - 1 : 1;
            for (int i = 0; i < net->n_lines; i++) net->at[i].fd = -1;
            if (root) listener = invite(&v);
        }
    }
    RD_TRY(rd_comm_agree(c, st));
    RD_TRY(rd_comm_bcast(c, &v, sizeof v, 0, st));
    if (net && v.port) {
        if (root)
            answer_leaders(net, listener, v.word);
        else {
            const hello h = {v.word, w->host_index, w->local_size};
            net->at[0].fd = call_root(&v, &h);
            net->at[0].want = sizeof(rd_net_order);
        }
    }
    for (int i = 0; net && i < net->n_lines; i++) {
        watch_net_line *l = &net->at[i];
        l->heard_ns = rd_now_ns();
        if (l->fd < 0) {
            missing[root ? i + 1 : w->host_index] = 1.0;
            continue;
        }
        l->in = malloc(l->want);
        if (!l->in) rd_fail(st, RD_EENV, "out of memory for the watch");
    }
    RD_TRY(rd_comm_agree(c, st));
    RD_TRY(rd_comm_max_f64(c, missing, w->n_hosts, st)); /* one end may have it and the other not */
    for (int i = 1; i < w->n_hosts; i++) {
        if (missing[i] == 0.0) continue;
        n_missing++;
        if (root && net->at[i - 1].fd >= 0) {
            close(net->at[i - 1].fd);
            net->at[i - 1].fd = -1;
        }
    }
    if (n_missing > 0)
        snprintf(why, 200,
                 "%d of %d other hosts cannot open a TCP connection to rank 0's host (%s); let a "
                 "firewall pass "
                 "all ports between the hosts",
                 n_missing, w->n_hosts - 1, v.port ? "no answer in 3 s" : "it cannot listen");
    if (leader && missing[w->host_index] != 0.0) goto done; /* it watches its own host alone */
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
    for (int i = 0; n->at && i < n->n_lines; i++) {
        if (n->at[i].fd >= 0) close(n->at[i].fd);
        free(n->at[i].in);
    }
    free(n->at);
    free(n);
}

/* ---- at work ---- */

int rd_net_fds(const rd_net *n, int *fd, int cap)
{
    int k = 0;
    for (int i = 0; n && i < n->n_lines && k < cap; i++)
        if (n->at[i].fd >= 0) fd[k++] = n->at[i].fd;
    return k;
}

static void watch_net_give_up(watch_net_line *l)
{
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
    l->lost = true;
}

static void send_whole(watch_net_line *l, const void *p, size_t n)
{
    if (l->fd >= 0 && send(l->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
        watch_net_give_up(l);
}

/* Is there a whole message in l->in? Then the next call takes the next one. */
static bool take_one(watch_net_line *l)
{
    if (l->have == l->want) l->have = 0;
    while (l->fd >= 0 && l->have < l->want) {
        const ssize_t r = recv(l->fd, l->in + l->have, l->want - l->have, MSG_DONTWAIT);
        if (r > 0) {
            l->have += (size_t)r;
            l->heard_ns = rd_now_ns();
        } else if (r == 0 || (errno != EAGAIN && errno != EINTR)) {
            watch_net_give_up(l);
        } else {
            return false;
        }
    }
    return l->want > 0 && l->have == l->want;
}

void rd_net_tell(rd_net *n, const rd_beat *b, int n_beats, int abort_code)
{
    const size_t bytes = n ? sizeof(watch_net_head) + (size_t)n->n_local * sizeof *b : 0;
    unsigned char *m = n && n_beats <= n->n_local && n->at[0].fd >= 0 ? calloc(1, bytes) : NULL;
    const watch_net_head h = {n_beats, abort_code};
    if (!m) return;
    memcpy(m, &h, sizeof h);
    if (n_beats > 0) memcpy(m + sizeof h, b, (size_t)n_beats * sizeof *b);
    send_whole(&n->at[0], m, bytes);
    free(m);
}

bool rd_net_ordered(rd_net *n, rd_net_order *o)
{
    bool any = false;
    while (n && take_one(&n->at[0])) {
        memcpy(o, n->at[0].in, sizeof *o);
        any = true;
    }
    return any;
}

void rd_net_order_all(rd_net *n, const rd_net_order *o)
{
    for (int i = 0; n && i < n->n_lines; i++) send_whole(&n->at[i], o, sizeof *o);
}

void rd_net_take(rd_net *n, rd_beat *all, int n_all, int *abort_code)
{
    for (int i = 0; n && i < n->n_lines; i++) {
        watch_net_line *l = &n->at[i];
        while (take_one(l)) {
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
    return n && k < n->n_lines ? (double)(rd_now_ns() - n->at[k].heard_ns) * 1e-9 : 0.0;
}

void rd_net_stood_still(rd_net *n, int64_t ns)
{
    for (int i = 0; n && i < n->n_lines; i++) n->at[i].heard_ns += ns;
}

bool rd_net_broken(const rd_net *n, int k)
{
    return n && k < n->n_lines && n->at[k].lost;
}
