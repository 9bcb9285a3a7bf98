/* watch_call.c -- tests how leaders connect to rank 0, with strangers at both ends, and which
 * address rank 0 chooses. */
#include "../../runner/comm/watch_call.h"
#include "rd/clock.h"
#include "test.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LIMIT_MS = 60000 };
static const unsigned char key[16] = "0123456789abcdef", other_key[16] = "0123456789abcdeF";

static uint32_t ip(const char *text)
{
    struct in_addr a;
    assert_int_equal(inet_pton(AF_INET, text, &a), 1);
    return a.s_addr;
}

/* A connection of a stranger, which blocks. */
static int dial(uint16_t port)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = ip("127.0.0.1")};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

typedef struct leader {
    uint16_t port;
    int host, limit_ms, fd;
    const unsigned char *key;
    pthread_t thread;
} leader;

static void *leader_main(void *arg)
{
    leader *l = arg;
    l->fd = rd_call_root(ip("127.0.0.1"), l->port, l->key, l->host, l->limit_ms);
    return NULL;
}

static void leader_start(leader *l, uint16_t port, int host, const unsigned char *with)
{
    *l = (leader){.port = port, .host = host, .limit_ms = LIMIT_MS, .key = with};
    assert_int_equal(pthread_create(&l->thread, NULL, leader_main, l), 0);
}

/* Both ends of a connection belong together: a byte arrives. */
static void check_pair(int a, int b)
{
    char c = 0;
    struct pollfd p = {.fd = b, .events = POLLIN};
    assert_true(a >= 0 && b >= 0);
    assert_int_equal(send(a, "x", 1, 0), 1);
    assert_int_equal(poll(&p, 1, LIMIT_MS), 1);
    assert_int_equal(recv(b, &c, 1, 0), 1);
    assert_int_equal(c, 'x');
    close(a);
    close(b);
}

static void test_leaders_connect(void **state)
{
    leader l[3];
    int fd[3] = {-1, -1, -1};
    uint16_t port = 0;
    const int listener = rd_call_listen(ip("127.0.0.1"), &port);
    (void)state;
    assert_true(listener >= 0 && port != 0);
    for (int h = 0; h < 3; h++) leader_start(&l[h], port, h + 1, key);
    rd_call_accept(listener, key, 3, fd, LIMIT_MS);
    for (int h = 0; h < 3; h++) {
        pthread_join(l[h].thread, NULL);
        check_pair(l[h].fd, fd[h]);
    }
    close(listener);
}

/* The listener has one address: another one of this host is refused. */
static void test_listens_at_one_address(void **state)
{
    uint16_t port = 0;
    struct sockaddr_in at = {0};
    socklen_t n = sizeof at;
    const int listener = rd_call_listen(ip("127.0.0.1"), &port),
              fd = socket(AF_INET, SOCK_STREAM, 0);
    (void)state;
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    assert_int_equal(at.sin_addr.s_addr, ip("127.0.0.1"));
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = ip("127.0.0.2")};
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), -1);
    assert_int_equal(errno, ECONNREFUSED);
    close(fd);
    close(listener);
}

/* 100 callers connect before the leaders and say nothing. Were they heard one after the other, each
 * for its time, the limit would pass first. */
static void test_silent_callers(void **state)
{
    enum { SILENT = 100 };
    int silent[SILENT], fd[2] = {-1, -1};
    leader l[2];
    uint16_t port = 0;
    const int listener = rd_call_listen(ip("127.0.0.1"), &port);
    (void)state;
    for (int i = 0; i < SILENT; i++) silent[i] = dial(port);
    for (int h = 0; h < 2; h++) leader_start(&l[h], port, h + 1, key);
    rd_call_accept(listener, key, 2, fd, LIMIT_MS);
    for (int h = 0; h < 2; h++) {
        pthread_join(l[h].thread, NULL);
        check_pair(l[h].fd, fd[h]);
    }
    for (int i = 0; i < SILENT; i++) close(silent[i]);
    close(listener);
}

/* Returns what rank 0 sends back to an answer: 8 bytes, or 0: it closed the connection. */
static ssize_t answer(int fd, rd_call_answer *a, const unsigned char *with, bool root,
                      const unsigned char *nonce)
{
    unsigned char root_nonce[RD_CALL_NONCE_BYTES];
    uint64_t tag;
    assert_int_equal(recv(fd, root_nonce, sizeof root_nonce, MSG_WAITALL), sizeof root_nonce);
    a->tag = rd_call_tag(with, root, nonce ? nonce : root_nonce, a->nonce, a->host);
    for (size_t i = 0; i < sizeof *a; i++) /* byte by byte: a message may come in pieces */
        if (send(fd, (unsigned char *)a + i, 1, MSG_NOSIGNAL) != 1) break;
    const ssize_t n = recv(fd, &tag, sizeof tag, MSG_WAITALL);
    if (n == (ssize_t)sizeof tag)
        assert_true(tag == rd_call_tag(key, true, root_nonce, a->nonce, a->host));
    return n > 0 ? n : 0;
}

typedef struct root {
    int listener, fd[2];
    pthread_t thread;
} root;

static void *root_main(void *arg)
{
    root *r = arg;
    rd_call_accept(r->listener, key, 2, r->fd, LIMIT_MS);
    return NULL;
}

/* What a stranger can claim. */
static void test_strangers_are_refused(void **state)
{
    static const struct {
        int32_t host;
        const unsigned char *with;
        bool root, old_nonce;
        ssize_t back;
    } t[] = {
        {1, other_key, false, false, 0}, /* another key */
        {1, key, true, false, 0},        /* the proof of the other end */
        {1, key, false, true, 0},        /* a proof that was recorded earlier */
        {0, key, false, false, 0},       /* hosts that do not exist */
        {3, key, false, false, 0},         {-1, key, false, false, 0},
        {INT32_MAX, key, false, false, 0}, {INT32_MIN, key, false, false, 0},
        {1, key, false, false, 8}, /* and the right ones */
        {2, key, false, false, 8},
    };
    unsigned char zeros[RD_CALL_NONCE_BYTES] = {0};
    uint16_t port = 0;
    root r = {.listener = rd_call_listen(ip("127.0.0.1"), &port), .fd = {-1, -1}};
    int last[2] = {-1, -1};
    (void)state;
    assert_int_equal(pthread_create(&r.thread, NULL, root_main, &r), 0);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        const int fd = dial(port);
        rd_call_answer a = {.host = t[i].host};
        assert_int_equal(answer(fd, &a, t[i].with, t[i].root, t[i].old_nonce ? zeros : NULL),
                         t[i].back);
        if (t[i].back)
            last[t[i].host - 1] = fd;
        else
            close(fd);
    }
    pthread_join(r.thread, NULL);
    check_pair(last[0], r.fd[0]);
    check_pair(last[1], r.fd[1]);
    close(r.listener);
}

/* A leader that reaches another program does not take it for rank 0, and tells it no secret. */
static void test_false_root(void **state)
{
    static const unsigned char nonce[RD_CALL_NONCE_BYTES] = "nonce of no root";
    uint16_t port = 0;
    unsigned char got[2][sizeof(rd_call_answer)];
    const int listener = rd_call_listen(ip("127.0.0.1"), &port);
    leader l = {.port = port, .host = 1, .limit_ms = 5000, .key = key};
    (void)state;
    (void)fcntl(listener, F_SETFL, 0);
    assert_int_equal(pthread_create(&l.thread, NULL, leader_main, &l), 0);
    for (int i = 0; i < 2; i++) {
        struct pollfd called = {.fd = listener, .events = POLLIN};
        assert_int_equal(poll(&called, 1, 10000), 1); /* it calls again after the first deceit */
        const int fd = accept(listener, NULL, NULL);
        rd_call_answer a;
        assert_int_equal(send(fd, nonce, sizeof nonce, MSG_NOSIGNAL), sizeof nonce);
        assert_int_equal(recv(fd, got[i], sizeof got[i], MSG_WAITALL), sizeof got[i]);
        memcpy(&a, got[i], sizeof a);
        (void)send(fd, &a.tag, sizeof a.tag, MSG_NOSIGNAL); /* its own proof, sent back */
        close(fd);
    }
    close(listener); /* the leader calls until its limit, and is refused */
    pthread_join(l.thread, NULL);
    assert_int_equal(l.fd, -1);
    assert_memory_not_equal(got[0], got[1], sizeof got[0]); /* each call has its own nonce */
    for (size_t i = 0; i + sizeof key <= sizeof got[0]; i++)
        assert_memory_not_equal(got[0] + i, key, sizeof key);
}

/* ---- the choice of an address ---- */

/* The made host sends by 10.1.0.1 to 10.1.0.0/24, and by 10.0.0.1 to all others. */
static uint32_t made_route(uint32_t to)
{
    return ip((ntohl(to) >> 8) == 0x0A0100 ? "10.1.0.1" : "10.0.0.1");
}

typedef struct choice {
    const char *name, *own, *theirs, *include, *exclude, *want;
} choice;

/* "eth0 10.0.0.1/24, ..." of one host; hosts are divided by ';'. */
static const choice choices[] = {
    {"one network", "eth0 10.0.0.1/24", "eth0 10.0.0.2/24", NULL, NULL, "10.0.0.1"},
    {"the bridge that all hosts have", "docker0 172.17.0.1/16, eth0 10.0.0.1/24",
     "docker0 172.17.0.1/16, eth0 10.0.0.2/24", NULL, NULL, "10.0.0.1"},
    {"the network of most hosts", "a 10.0.0.1/24, b 10.1.0.1/24",
     "a 10.0.0.2/24; b 10.1.0.2/24; b 10.1.0.3/24", NULL, NULL, "10.1.0.1 10.0.0.1"},
    {"behind a router", "docker0 172.17.0.1/16, eth0 10.0.0.1/24",
     "docker0 172.17.0.1/16, eth0 10.9.0.2/24", NULL, NULL, "10.0.0.1"},
    {"a bridge of another host alone", "docker0 172.17.0.1/16, eth0 10.0.0.1/24",
     "br0 172.18.0.1/16, eth0 10.0.0.2/24", NULL, NULL, "10.0.0.1"},
    {"included by its name", "a 10.0.0.1/24, b 10.1.0.1/24", "a 10.0.0.2/24, b 10.1.0.2/24", "b,c",
     NULL, "10.1.0.1"},
    {"included by its network", "a 10.0.0.1/24, b 10.1.0.1/24", "a 10.0.0.2/24, b 10.1.0.2/24",
     "10.1.0.0/16", NULL, "10.1.0.1"},
    {"excluded", "a 10.0.0.1/24, b 10.1.0.1/24", "a 10.0.0.2/24, b 10.1.0.2/24", NULL,
     "lo,10.0.0.0/24", "10.1.0.1"},
    {"included elsewhere only", "a 10.0.0.1/24", "a 10.0.0.2/24", "ib0", NULL, "10.0.0.1"},
    {"hosts that are this machine", "eth0 10.0.0.1/24, docker0 172.17.0.1/16",
     "eth0 10.0.0.1/24, docker0 172.17.0.1/16", NULL, NULL, "10.0.0.1 172.17.0.1"},
    {"no network", "", "eth0 10.0.0.2/24", NULL, NULL, ""},
};

static int read_addresses(const char *text, rd_call_address out[RD_CALL_ADDRESSES])
{
    int n = 0;
    char copy[300], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *w = strtok_r(copy, ",", &rest); w; w = strtok_r(NULL, ",", &rest)) {
        char name[16], addr[32];
        int bits = 0;
        if (sscanf(w, " %15s %31[0-9.]/%d", name, addr, &bits) != 3) continue;
        out[n] = (rd_call_address){.addr = ip(addr), .mask = htonl(UINT32_MAX << (32 - bits))};
        snprintf(out[n++].name, sizeof name, "%s", name);
    }
    return n;
}

static void check_choice(void **state)
{
    const choice *t = *state;
    rd_call_address own[RD_CALL_ADDRESSES], theirs[4][RD_CALL_ADDRESSES];
    uint32_t best[RD_CALL_ADDRESSES];
    int n_theirs[4], n_hosts = 0;
    char copy[300], got[300] = "", *rest = NULL;
    const int n_own = read_addresses(t->own, own);
    snprintf(copy, sizeof copy, "%s", t->theirs);
    for (char *w = strtok_r(copy, ";", &rest); w; w = strtok_r(NULL, ";", &rest), n_hosts++)
        n_theirs[n_hosts] = read_addresses(w, theirs[n_hosts]);
    const int n = rd_call_choose(own, n_own, (const rd_call_address(*)[RD_CALL_ADDRESSES])theirs,
                                 n_theirs, n_hosts, t->include, t->exclude, made_route, best);
    for (int i = 0; i < n; i++) {
        char text[32];
        assert_non_null(inet_ntop(AF_INET, &best[i], text, sizeof text));
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i ? " " : "", text);
    }
    assert_string_equal(got, t->want);
}

static void test_route(void **state)
{
    (void)state;
    assert_int_equal(rd_call_route(ip("127.0.0.1")), ip("127.0.0.1"));
}

RD_TESTS("watch_call", TEST(test_leaders_connect), TEST(test_listens_at_one_address),
         TEST(test_silent_callers), TEST(test_strangers_are_refused), TEST(test_false_root),
         TEST_ROWS(check_choice, choices), TEST(test_route))
