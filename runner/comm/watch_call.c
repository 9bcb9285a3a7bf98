/* watch_call.c -- how the leaders of the hosts connect to rank 0, see watch_call.h.
 *
 * Other programs of the network can reach the port of rank 0, and a leader may reach the port of
 * another program. So both ends prove that they know the job's key, which MPI distributes:
 *
 *     rank 0 -> leader    nonce of rank 0
 *     leader -> rank 0    host, nonce of the leader, tag of the leader
 *     rank 0 -> leader    tag of rank 0
 *
 * A tag is SipHash-2-4 of the role, both nonces and the host. The key itself is never sent here, so
 * a stranger at either end learns nothing. A recorded tag is of no use: the nonces are new. One end
 * cannot send back the other's tag: the roles differ. SipHash is made for such short messages, is a
 * page of code, and has published test vectors. Its 64 bits suffice: a caller has one try in each
 * connection, within seconds. The messages that follow are not protected. Who can read or change
 * packets of the network must be trusted, as for MPI itself.
 *
 * Rank 0 serves all callers at the same time, each for CALLER_MS. If there are too many, the oldest
 * of those that have proved nothing is closed. A leader that was closed by that calls again. */
#include "watch_call.h"
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

enum { SLICE_MS = 100, CALLER_MS = 2000, MOST_STRANGERS = 64, BURST = 32 };

static void set_socket_options(int fd)
{
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* Time that counts for limits. Of a time in which the machine stood still only a slice or two
 * counts: bytes that arrived meanwhile are still received. */
typedef struct fair_clock {
    int64_t last_ns, spent_ns;
} fair_clock;

static fair_clock clock_begin(void)
{
    return (fair_clock){.last_ns = rd_now_ns()};
}

/* Returns the milliseconds that have counted since clock_begin. */
static int64_t clock_ms(fair_clock *c)
{
    const int64_t now = rd_now_ns(), most = 2 * SLICE_MS * INT64_C(1000000);
    c->spent_ns += now - c->last_ns < most ? now - c->last_ns : most;
    c->last_ns = now;
    return c->spent_ns / 1000000;
}

static bool random_bytes(void *p, size_t n)
{
    return getrandom(p, n, 0) == (ssize_t)n;
}

uint64_t rd_call_tag(const unsigned char key[RD_SIPHASH_KEY_BYTES], bool root,
                     const unsigned char root_nonce[RD_CALL_NONCE_BYTES],
                     const unsigned char nonce[RD_CALL_NONCE_BYTES], int32_t host)
{
    unsigned char text[8 + 2 * RD_CALL_NONCE_BYTES + sizeof host];
    memcpy(text, root ? "rank 0 !" : "a leader", 8);
    memcpy(text + 8, root_nonce, RD_CALL_NONCE_BYTES);
    memcpy(text + 8 + RD_CALL_NONCE_BYTES, nonce, RD_CALL_NONCE_BYTES);
    memcpy(text + 8 + 2 * RD_CALL_NONCE_BYTES, &host, sizeof host);
    return rd_siphash(key, text, sizeof text);
}

/* ---- addresses ---- */

int rd_call_own(rd_call_address out[RD_CALL_ADDRESSES])
{
    struct ifaddrs *all = NULL;
    int n = 0;
    if (getifaddrs(&all) != 0) return 0;
    for (const struct ifaddrs *i = all; i && n < RD_CALL_ADDRESSES; i = i->ifa_next) {
        if (!i->ifa_addr || !i->ifa_netmask || i->ifa_addr->sa_family != AF_INET) continue;
        if ((i->ifa_flags & IFF_LOOPBACK) || !(i->ifa_flags & IFF_UP)) continue;
        rd_call_address *a = &out[n++];
        *a = (rd_call_address){
            .addr = ((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr.s_addr,
            .mask = ((const struct sockaddr_in *)(const void *)i->ifa_netmask)->sin_addr.s_addr};
        (void)snprintf(a->name, sizeof a->name, "%s", i->ifa_name);
    }
    freeifaddrs(all);
    return n;
}

uint32_t rd_call_route(uint32_t to)
{
    const struct sockaddr_in there = {
        .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = to};
    struct sockaddr_in here = {.sin_family = AF_INET};
    socklen_t n = sizeof here;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool found = fd >= 0 && connect(fd, (const struct sockaddr *)&there, sizeof there) == 0 &&
                       getsockname(fd, (struct sockaddr *)&here, &n) == 0;
    if (fd >= 0) close(fd);
    return found ? here.sin_addr.s_addr : 0;
}

/* Returns whether a list of Open MPI, "eth0,10.0.0.0/8", names this address. */
static bool is_listed(const char *list, const rd_call_address *a)
{
    for (const char *p = list; p && *p;) {
        const size_t n = strcspn(p, ",");
        char word[64] = "", *slash;
        struct in_addr net;
        if (n < sizeof word) memcpy(word, p, n);
        p += n + (p[n] == ',');
        if (strcmp(word, a->name) == 0) return true;
        if (!(slash = strchr(word, '/'))) continue;
        *slash = '\0';
        const int bits = atoi(slash + 1);
        if (inet_pton(AF_INET, word, &net) != 1 || bits < 1 || bits > 32) continue;
        const uint32_t mask = htonl(UINT32_MAX << (32 - bits));
        if ((net.s_addr & mask) == (a->addr & mask)) return true;
    }
    return false;
}

static bool has_address(const rd_call_address *a, int n, uint32_t addr)
{
    for (int i = 0; i < n; i++)
        if (a[i].addr == addr) return true;
    return false;
}

/* Returns how well a host reaches `mine`. 2: it is in its network. 1: packets to the host leave
 * from `mine`. 0: neither. An address that both hosts have (docker0) leads nowhere. */
static int call_score(const rd_call_address *mine, const rd_call_address *own, int n_own,
                      const rd_call_address *theirs, int n, uint32_t (*route)(uint32_t to))
{
    int score = 0;
    for (int i = 0; i < n; i++) {
        if (has_address(own, n_own, theirs[i].addr)) continue;
        if ((theirs[i].addr & mine->mask) == (mine->addr & mine->mask)) return 2;
        if (route(theirs[i].addr) == mine->addr) score = 1;
    }
    return score;
}

int rd_call_choose(const rd_call_address *own, int n_own,
                   const rd_call_address (*theirs)[RD_CALL_ADDRESSES], const int *n_theirs,
                   int n_hosts, const char *include, const char *exclude,
                   uint32_t (*route)(uint32_t to), uint32_t best[RD_CALL_ADDRESSES])
{
    long score[RD_CALL_ADDRESSES] = {0};
    bool wanted = false, named = false;
    int n = 0;
    for (int i = 0; i < n_own; i++) named = named || is_listed(include, &own[i]);
    for (int i = 0; i < n_own; i++) {
        bool shared = false;
        if (named ? !is_listed(include, &own[i]) : is_listed(exclude, &own[i])) score[i] = -1;
        for (int h = 0; h < n_hosts && score[i] >= 0; h++) {
            shared = shared || has_address(theirs[h], n_theirs[h], own[i].addr);
            score[i] += call_score(&own[i], own, n_own, theirs[h], n_theirs[h], route);
        }
        if (shared && score[i] > 0) score[i] = 0;
        wanted = wanted || score[i] > 0;
    }
    /* Without a score all "hosts" are this machine, as in a test: any address will do. */
    for (;;) {
        int k = -1;
        for (int i = 0; i < n_own; i++)
            if (score[i] >= (wanted ? 1 : 0) && (k < 0 || score[i] > score[k])) k = i;
        if (k < 0) return n;
        score[k] = -1;
        best[n++] = own[k].addr;
    }
}

/* ---- rank 0 ---- */

int rd_call_listen(uint32_t address, uint16_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = address};
    socklen_t n = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, SOMAXCONN) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &n) != 0) {
        close(fd);
        return -1;
    }
    *port = at.sin_port;
    return fd;
}

/* A connection that has proved nothing yet. */
typedef struct caller {
    int fd;
    int64_t until_ms; /* of the accepting clock */
    unsigned char nonce[RD_CALL_NONCE_BYTES];
    unsigned char in[sizeof(rd_call_answer)];
    size_t have; /* bytes of `in` */
} caller;

static void drop_caller(caller *c, int *n, int k)
{
    if (c[k].fd >= 0) close(c[k].fd);
    memmove(&c[k], &c[k + 1], (size_t)(*n - k - 1) * sizeof *c); /* they stay in order of age */
    --*n;
}

/* Accepts the connections that wait, and sends a nonce to each. */
static void welcome_callers(int listener, caller *c, int *n, int cap, int64_t now_ms)
{
    for (int i = 0; i < BURST; i++) {
        caller new = {.until_ms = now_ms + CALLER_MS};
        new.fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (new.fd < 0) {
            /* Without a free descriptor nobody could be accepted. */
            if ((errno == EMFILE || errno == ENFILE) && *n > 0) drop_caller(c, n, 0);
            return;
        }
        set_socket_options(new.fd);
        if (!random_bytes(new.nonce, sizeof new.nonce) ||
            send(new.fd, new.nonce, sizeof new.nonce, MSG_NOSIGNAL) != (ssize_t)sizeof new.nonce) {
            close(new.fd);
            continue;
        }
        if (*n == cap) drop_caller(c, n, 0);
        c[(*n)++] = new;
    }
}

/* Receives what a caller has sent. Returns false if it is to be closed. *host: set if the caller is
 * the leader of that host; 0: it has not proved it yet. */
static bool hear_caller(caller *c, const unsigned char key[RD_SIPHASH_KEY_BYTES], int n_hosts,
                        int *host)
{
    rd_call_answer a;
    const ssize_t r = recv(c->fd, c->in + c->have, sizeof c->in - c->have, 0);
    *host = 0;
    if (r < 0) return errno == EAGAIN || errno == EINTR;
    if (r == 0) return false;
    c->have += (size_t)r;
    if (c->have < sizeof c->in) return true;
    memcpy(&a, c->in, sizeof a);
    if (a.host < 1 || a.host > n_hosts ||
        a.tag != rd_call_tag(key, false, c->nonce, a.nonce, a.host))
        return false;
    const uint64_t mine = rd_call_tag(key, true, c->nonce, a.nonce, a.host);
    if (send(c->fd, &mine, sizeof mine, MSG_NOSIGNAL) != (ssize_t)sizeof mine) return false;
    *host = a.host;
    return true;
}

void rd_call_accept(int listener, const unsigned char key[RD_SIPHASH_KEY_BYTES], int n_hosts,
                    int *fd, int limit_ms)
{
    const int cap = n_hosts + MOST_STRANGERS;
    caller *c = calloc((size_t)cap + 1, sizeof *c);
    struct pollfd *p = calloc((size_t)cap + 1, sizeof *p);
    fair_clock clock = clock_begin();
    int n = 0, missing = 0;
    for (int h = 0; h < n_hosts; h++) missing += fd[h] < 0;
    for (int64_t now; c && p && missing > 0 && (now = clock_ms(&clock)) < limit_ms;) {
        const int polled = n;
        p[0] = (struct pollfd){.fd = listener, .events = POLLIN};
        for (int i = 0; i < n; i++) p[i + 1] = (struct pollfd){.fd = c[i].fd, .events = POLLIN};
        if (poll(p, (nfds_t)n + 1, SLICE_MS) < 0 && errno != EINTR) break;
        for (int i = polled - 1; i >= 0; i--) {
            int host = 0;
            const bool stays = p[i + 1].revents ? hear_caller(&c[i], key, n_hosts, &host)
                                                : now < c[i].until_ms;
            if (host > 0) { /* a leader that calls again has given up its first connection */
                if (fd[host - 1] >= 0)
                    close(fd[host - 1]);
                else
                    missing--;
                fd[host - 1] = c[i].fd;
                c[i].fd = -1;
            }
            if (!stays || host > 0 || now >= c[i].until_ms) drop_caller(c, &n, i);
        }
        if (p[0].revents) welcome_callers(listener, c, &n, cap, now);
    }
    while (n > 0) drop_caller(c, &n, n - 1);
    free(c);
    free(p);
}

/* ---- a leader ---- */

/* Waits until fd is ready, at most until limit_ms of the clock. */
static bool wait_fd(int fd, short what, fair_clock *clock, int64_t limit_ms)
{
    while (clock_ms(clock) < limit_ms) {
        struct pollfd p = {.fd = fd, .events = what};
        const int r = poll(&p, 1, SLICE_MS);
        if (r > 0) return true;
        if (r < 0 && errno != EINTR) return false;
    }
    return false;
}

/* Receives exactly n bytes. */
static bool receive_all(int fd, void *p, size_t n, fair_clock *clock, int64_t limit_ms)
{
    for (size_t at = 0; at < n;) {
        const ssize_t r = recv(fd, (char *)p + at, n - at, 0);
        if (r > 0)
            at += (size_t)r;
        else if (r == 0 || (errno != EAGAIN && errno != EINTR) ||
                 !wait_fd(fd, POLLIN, clock, limit_ms))
            return false;
    }
    return true;
}

/* Lets both ends prove that they know the key. */
static bool prove_to_root(int fd, const unsigned char key[RD_SIPHASH_KEY_BYTES], int host,
                          fair_clock *clock, int64_t limit_ms)
{
    unsigned char root_nonce[RD_CALL_NONCE_BYTES];
    rd_call_answer a = {.host = host};
    uint64_t tag = 0;
    if (!random_bytes(a.nonce, sizeof a.nonce) ||
        !receive_all(fd, root_nonce, sizeof root_nonce, clock, limit_ms))
        return false;
    a.tag = rd_call_tag(key, false, root_nonce, a.nonce, host);
    return send(fd, &a, sizeof a, MSG_NOSIGNAL) == (ssize_t)sizeof a &&
           receive_all(fd, &tag, sizeof tag, clock, limit_ms) &&
           tag == rd_call_tag(key, true, root_nonce, a.nonce, host);
}

int rd_call_root(uint32_t address, uint16_t port, const unsigned char key[RD_SIPHASH_KEY_BYTES],
                 int host, int limit_ms)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = address};
    fair_clock clock = clock_begin();
    while (clock_ms(&clock) < limit_ms) {
        int err = 0;
        socklen_t n = sizeof err;
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0) return -1;
        set_socket_options(fd);
        const bool begun = connect(fd, (const struct sockaddr *)&to, sizeof to) == 0 ||
                           errno == EINPROGRESS;
        if (begun && wait_fd(fd, POLLOUT, &clock, limit_ms) &&
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &n) == 0 && err == 0 &&
            prove_to_root(fd, key, host, &clock, limit_ms))
            return fd;
        close(fd);
        (void)poll(NULL, 0, SLICE_MS); /* rank 0 may have closed it, or does not listen yet */
    }
    return -1;
}
