/* watch_net.h -- the watch's own connections between hosts.
 *
 * Rank 0 and the leader of each other host (its lowest rank) exchange messages once a second. No
 * function here blocks, except rd_net_open, which takes up to three seconds for each of two
 * addresses of rank 0. */
#ifndef RD_WATCH_NET_H
#define RD_WATCH_NET_H

#include "rd/watch.h"
#include <stdint.h>

typedef struct rd_net rd_net;

enum { RD_NET_DONE = -1 };
/* What rank 0 sends to the leaders. */
typedef struct rd_net_order {
    /* The code with which the job ends. 0: go on. RD_NET_DONE: rank 0 leaves, its work is done. */
    int32_t abort_code;
} rd_net_order;

/* Collective. Opens the connections; most ranks do nothing. *out is NULL if this rank has nothing
 * to connect: there is one host, or the rank is not a leader. why: "", or why a connection is
 * missing. The caller owns *out. */
rd_code rd_net_open(rd_comm *c, rd_net **out, char why[200], rd_status *st);
void rd_net_close(rd_net *n); /* NULL is fine */
/* Writes the file descriptors to wait for to fd, at most cap. Returns their number. */
int rd_net_fds(const rd_net *n, int *fd, int cap);
/* For a leader. Sends this host's beats, or none and the code with which it ends the job. */
void rd_net_send_beats(rd_net *n, const rd_beat *b, int n_beats, int abort_code);
/* For a leader. Receives rank 0's last order. Returns false if none arrived. */
bool rd_net_receive_order(rd_net *n, rd_net_order *o);
/* For rank 0. Sends the order to every leader. */
void rd_net_send_order(rd_net *n, const rd_net_order *o);
/* For rank 0. Receives what the leaders sent: replaces all[rank], and sets *abort_code if a leader
 * ends the job. */
void rd_net_receive_beats(rd_net *n, rd_beat *all, int n_all, int *abort_code);
/* Returns the seconds since connection k delivered something. On rank 0, connection k leads to host
 * k + 1. A leader has only connection 0. */
double rd_net_silence_s(const rd_net *n, int k);
/* Returns whether the other end of connection k has closed it. */
bool rd_net_broken(const rd_net *n, int k);
/* Adds a time in which this process could not receive, so it does not count as
 * silence of the others. */
void rd_net_add_pause(rd_net *n, int64_t ns);

#endif
