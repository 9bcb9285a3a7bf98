/* watch_net.c -- the watch's own connections between hosts, see watch_net.h.
 *
 * The connections are plain TCP, one per host. Rank 0 learns the addresses of all hosts through the
 * communicator, chooses its own address that they reach, and listens there at a port that the
 * kernel chooses. It sends address, port and a random key to the other ranks through the
 * communicator. watch_call.c lets both ends of a connection prove that they know the key. If some
 * host does not arrive, rank 0 tries its next address once. Messages are structs of fixed layout.
 * All ranks run the same program, which is checked before.
 *
 * A message is sent whole or the connection is closed. A few hundred bytes per second do not fit
 * only if the connection has been dead for long. */
#include "watch_net.h"
#include "watch_call.h"
#include "rd/clock.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OPEN_MS = 3000, ANSWER_MS = 500, MOST_ROUNDS = 2 };

/* What rank 0 sends to the leaders before they connect. */
typedef struct invitation {
    unsigned char key[RD_SIPHASH_KEY_BYTES];
    uint32_t address; /* network order */
    uint16_t port;    /* network order; 0: rank 0 listens no more */
} invitation;

/* What a leader sends to rank 0 before that, through the communicator. */
typedef struct introduction {
    int32_t host, n_local, n_addresses;
    rd_call_address address[RD_CALL_ADDRESSES];
} introduction;

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

/* ---- start and end ---- */

/* What rank 0 knows of the other hosts. Index h belongs to host h + 1. */
typedef struct guests {
    rd_call_address (*address)[RD_CALL_ADDRESSES]; /* owned; [n_hosts - 1] */
    int *n_addresses, *n_local;                    /* owned; [n_hosts - 1]; n_local 0: unknown */
} guests;

static void guests_release(guests *g)
{
    free(g->address);
    free(g->n_addresses);
    free(g->n_local);
}

/* Collective. Rank 0 learns the addresses and the number of ranks of each host. */
static rd_code net_introduce(rd_comm *c, guests *g, rd_status *st)
{
    const rd_world *w = rd_comm_world(c);
    const bool leader = w->local_rank == 0 && w->host_index > 0;
    introduction mine = {.host = w->host_index, .n_local = w->local_size};
    char *all = NULL;
    int64_t *len = NULL;
    if (leader) mine.n_addresses = rd_call_own(mine.address);
    if (w->rank == 0) {
        const size_t n = (size_t)w->n_hosts;
        *g = (guests){calloc(n, sizeof *g->address), calloc(n, sizeof(int)),
                      calloc(n, sizeof(int))};
        if (!g->address || !g->n_addresses || !g->n_local)
            rd_fail(st, RD_EENV, "out of memory for the watch of %d hosts", w->n_hosts);
    }
    RD_TRY(rd_comm_gather(c, &mine, leader ? (int64_t)sizeof mine : 0, &all, &len, st));
    const char *at = all;
    for (int r = 0; w->rank == 0 && r < w->size; at += len[r++]) {
        introduction i;
        if (len[r] != (int64_t)sizeof i) continue;
        memcpy(&i, at, sizeof i);
        if (i.host < 1 || i.host >= w->n_hosts || i.n_local < 1 || i.n_local >= w->size ||
            i.n_addresses < 0 || i.n_addresses > RD_CALL_ADDRESSES)
            continue;
        memcpy(g->address[i.host - 1], i.address, sizeof i.address);
        g->n_addresses[i.host - 1] = i.n_addresses;
        g->n_local[i.host - 1] = i.n_local;
    }
done:
    free(all);
    free(len);
    return st->code;
}

/* For rank 0. Chooses its addresses, the best one first. Returns their number. */
static int net_choose(const rd_world *w, const guests *g, uint32_t best[RD_CALL_ADDRESSES])
{
    rd_call_address own[RD_CALL_ADDRESSES];
    const int n = rd_call_own(own);
    return rd_call_choose(own, n, (const rd_call_address(*)[RD_CALL_ADDRESSES])g->address,
                          g->n_addresses, w->n_hosts - 1, getenv("OMPI_MCA_btl_tcp_if_include"),
                          getenv("OMPI_MCA_btl_tcp_if_exclude"), rd_call_route, best);
}

/* Collective. Connects the hosts that have no connection yet, at one address of rank 0. missing:
 * [n_hosts]; 1: the host has no connection, the same on all ranks afterwards. */
static rd_code net_round(rd_comm *c, rd_net *net, uint32_t address, double *missing, bool *listens,
                         rd_status *st)
{
    const rd_world *w = rd_comm_world(c);
    const bool root = w->rank == 0, leader = net && !root;
    invitation v = {.address = address};
    int listener = -1, *fd = NULL;
    if (root) {
        fd = calloc((size_t)w->n_hosts, sizeof *fd);
        if (!fd) rd_fail(st, RD_EENV, "out of memory for the watch of %d hosts", w->n_hosts);
        if (fd && address && getrandom(v.key, sizeof v.key, 0) == (ssize_t)sizeof v.key)
            listener = rd_call_listen(address, &v.port);
    }
    RD_TRY(rd_comm_agree(c, st));
    RD_TRY(rd_comm_bcast(c, &v, sizeof v, 0, st));
    *listens = *listens || v.port != 0;
    for (int i = 0; v.port && root && i < net->n_lines; i++) fd[i] = net->line[i].fd;
    if (v.port && root) {
        rd_call_accept(listener, v.key, net->n_lines, fd, OPEN_MS + ANSWER_MS);
        for (int i = 0; i < net->n_lines; i++) net->line[i].fd = fd[i];
    } else if (v.port && leader && net->line[0].fd < 0) {
        net->line[0].fd = rd_call_root(v.address, v.port, v.key, w->host_index, OPEN_MS);
    }
    for (int i = 1; i < w->n_hosts; i++)
        missing[i] = (root && net->line[i - 1].fd < 0) ||
                     (leader && i == w->host_index && net->line[0].fd < 0);
    /* One end may have a connection and the other not. */
    RD_TRY(rd_comm_max_f64(c, missing, w->n_hosts, st));
    for (int i = 0; net && i < net->n_lines; i++) {
        watch_net_line *l = &net->line[i];
        if (l->fd < 0 || missing[root ? i + 1 : w->host_index] == 0.0) continue;
        close(l->fd);
        l->fd = -1;
    }
done:
    if (listener >= 0) close(listener);
    free(fd);
    return st->code;
}

/* Makes the object of rank 0 or of a leader. */
static rd_net *net_new(const rd_world *w, rd_status *st)
{
    rd_net *net = calloc(1, sizeof *net);
    if (net) net->line = calloc((size_t)w->n_hosts, sizeof *net->line);
    if (!net || !net->line) {
        rd_fail(st, RD_EENV, "out of memory for the watch of %d hosts", w->n_hosts);
        free(net);
        return NULL;
    }
    net->root = w->rank == 0;
    net->n_local = w->local_size;
    net->n_lines = net->root ? w->n_hosts - 1 : 1;
    for (int i = 0; i < net->n_lines; i++) net->line[i].fd = -1;
    return net;
}

rd_code rd_net_open(rd_comm *c, rd_net **out, char why[200], rd_status *st)
{
    const rd_world *w = rd_comm_world(c);
    const bool root = w->rank == 0, leader = w->local_rank == 0 && w->host_index > 0;
    guests g = {0};
    uint32_t best[RD_CALL_ADDRESSES] = {0};
    double *missing = NULL; /* [n_hosts]; 1: the host has no connection to rank 0's host */
    int n_missing = 0, n_best = 0;
    bool listens = false;
    rd_net *net = NULL;
    *out = NULL;
    why[0] = '\0';
    if (w->n_hosts == 1) return st->code;
    missing = calloc((size_t)w->n_hosts, sizeof *missing);
    if (!missing) rd_fail(st, RD_EENV, "out of memory for the watch of %d hosts", w->n_hosts);
    if (root || leader) net = net_new(w, st);
    RD_TRY(rd_comm_agree(c, st));
    RD_TRY(net_introduce(c, &g, st));
    if (root) n_best = net_choose(w, &g, best);
    for (int k = 0; k < MOST_ROUNDS && (k == 0 || n_missing > 0); k++) {
        RD_TRY(net_round(c, net, k < n_best ? best[k] : 0, missing, &listens, st));
        n_missing = 0;
        for (int i = 1; i < w->n_hosts; i++) n_missing += missing[i] != 0.0;
    }
    for (int i = 0; net && i < net->n_lines; i++) {
        watch_net_line *l = &net->line[i];
        l->heard_ns = rd_now_ns();
        if (l->fd < 0) continue;
        l->want = root ? (size_t)g.n_local[i] * sizeof(rd_beat) + sizeof(watch_net_head)
                       : sizeof(rd_net_order);
        l->in = malloc(l->want);
        if (!l->in) rd_fail(st, RD_EENV, "out of memory for the watch");
    }
    RD_TRY(rd_comm_agree(c, st));
    if (n_missing > 0)
        snprintf(why, 200,
                 "%d of %d other hosts cannot open a TCP connection to rank 0's host (%s); let a "
                 "firewall pass all ports between the hosts",
                 n_missing, w->n_hosts - 1, listens ? "no answer in 3 s" : "it cannot listen");
    if (leader && missing[w->host_index] != 0.0) goto done; /* it watches only its own host */
    *out = net;
    net = NULL;
done:
    free(missing);
    guests_release(&g);
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

/* Returns whether a peer may name this code, or 0. */
static bool is_exit_code(int32_t code)
{
    return code >= 0 && code <= 255;
}

/* Returns whether a leader may send these bytes as a beat: only of a rank of its host, in a known
 * phase. */
static bool beat_is_sound(const unsigned char *bytes, int host, int n_all, rd_beat *b)
{
    /* A bool that holds another byte may not even be read. */
    if (bytes[offsetof(rd_beat, still)] > 1 || bytes[offsetof(rd_beat, gone)] > 1) return false;
    memcpy(b, bytes, sizeof *b);
    return b->rank >= 0 && b->rank < n_all && b->host_index == host && b->phase >= 0 &&
           b->phase < RD_N_PHASES && isfinite(b->age_s) && memchr(b->host, '\0', sizeof b->host);
}

bool rd_net_receive_order(rd_net *n, rd_net_order *o)
{
    bool any = false;
    while (n && net_receive_one(&n->line[0])) {
        memcpy(o, n->line[0].in, sizeof *o);
        any = true;
        if (o->abort_code != RD_NET_DONE && !is_exit_code(o->abort_code)) o->abort_code = 0;
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
            if (is_exit_code(h.abort_code) && !*abort_code) *abort_code = h.abort_code;
            for (int k = 0; k < h.n && sizeof h + (size_t)(k + 1) * sizeof *all <= l->want; k++) {
                rd_beat b;
                if (beat_is_sound(l->in + sizeof h + (size_t)k * sizeof b, i + 1, n_all, &b))
                    all[b.rank] = b;
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
