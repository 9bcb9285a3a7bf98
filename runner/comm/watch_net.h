/* watch_net.h -- the watch's own connections between hosts: what the leader of each host (its lowest rank) and rank 0
 * tell each other once a second. Nothing here blocks, but for rd_net_open's three seconds. */
#ifndef RD_WATCH_NET_H
#define RD_WATCH_NET_H

#include "rd/watch.h"
#include <stdint.h>

typedef struct rd_net rd_net;

enum { RD_NET_DONE = -1 };
typedef struct rd_net_order { /* from rank 0 to the leaders */
    int32_t abort_code;       /* 0: all is well; RD_NET_DONE: rank 0 leaves, its work is done */
} rd_net_order;

/* Collective, by all ranks (most do nothing). *out NULL where there is nothing to connect: one host, or no leader. why: ""
 * or the reason for which a connection is missing. */
rd_code rd_net_open(rd_comm *c, rd_net **out, char why[200], rd_status *st);
void rd_net_close(rd_net *n); /* NULL is fine */
/* File descriptors to wait on, at most cap; returns their number. */
int rd_net_fds(const rd_net *n, int *fd, int cap);
/* A leader: sends this host's beats, or none and the code with which it ends the job; takes rank 0's order, false: none came. */
void rd_net_tell(rd_net *n, const rd_beat *b, int n_beats, int abort_code);
bool rd_net_ordered(rd_net *n, rd_net_order *o);
/* Rank 0: sends the order to every leader; takes what came from them: all[rank] is replaced, *abort_code set when a leader
 * ends the job. */
void rd_net_order_all(rd_net *n, const rd_net_order *o);
void rd_net_take(rd_net *n, rd_beat *all, int n_all, int *abort_code);
/* Connection k (rank 0: to host k + 1; a leader: 0): seconds since something came; whether the other end has closed. */
double rd_net_silence_s(const rd_net *n, int k);
bool rd_net_broken(const rd_net *n, int k);
/* For so long nobody here could hear anything: no silence of the others. */
void rd_net_stood_still(rd_net *n, int64_t ns);

#endif
