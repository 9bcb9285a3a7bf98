/* watch_call.h -- how the leaders of the hosts connect to rank 0, and how both ends prove that they
 * belong to one job. Uses no MPI. */
#ifndef RD_WATCH_CALL_H
#define RD_WATCH_CALL_H

#include "rd/siphash.h"

enum { RD_CALL_ADDRESSES = 16, RD_CALL_NONCE_BYTES = 16 };

/* An IPv4 address of an interface that is up, without the loopback. */
typedef struct rd_call_address {
    uint32_t addr, mask; /* network order */
    char name[16];       /* of the interface */
} rd_call_address;

/* Writes the addresses of this host. Returns their number, at most RD_CALL_ADDRESSES. */
int rd_call_own(rd_call_address out[RD_CALL_ADDRESSES]);
/* Returns the address of this host from which packets to `to` leave, without sending one. 0: there
 * is no way. All in network order. */
uint32_t rd_call_route(uint32_t to);
/* Chooses the addresses of this host at which the other hosts can reach it: best[0] first. own: of
 * this host. theirs[h]: the addresses of host h, n_theirs[h] of them. include, exclude: Open MPI's
 * btl_tcp_if_include and btl_tcp_if_exclude, NULL: not set. Returns the number of addresses. */
int rd_call_choose(const rd_call_address *own, int n_own,
                   const rd_call_address (*theirs)[RD_CALL_ADDRESSES], const int *n_theirs,
                   int n_hosts, const char *include, const char *exclude,
                   uint32_t (*route)(uint32_t to), uint32_t best[RD_CALL_ADDRESSES]);

/* Listens at this address alone, at a port that the kernel chooses. Returns the socket; -1: it
 * cannot. *port: in network order. */
int rd_call_listen(uint32_t address, uint16_t *port);
/* For rank 0. Accepts hosts 1 .. n_hosts until all of fd[0 .. n_hosts) are >= 0, or for limit_ms.
 * Callers without the key are closed, and silent ones do not delay others. */
void rd_call_accept(int listener, const unsigned char key[RD_SIPHASH_KEY_BYTES], int n_hosts,
                    int *fd, int limit_ms);
/* For a leader. Connects host `host` to rank 0. Returns the socket; -1: no rank 0 of this job
 * answered within limit_ms. */
int rd_call_root(uint32_t address, uint16_t port, const unsigned char key[RD_SIPHASH_KEY_BYTES],
                 int host, int limit_ms);

/* ---- the messages, for the test ---- */
/* What a leader answers to the nonce that rank 0 sends first. */
typedef struct rd_call_answer {
    int32_t host;
    unsigned char nonce[RD_CALL_NONCE_BYTES];
    uint64_t tag; /* rd_call_tag of the leader; rank 0 then sends its own */
} __attribute__((packed)) rd_call_answer;
/* Returns the proof of one end: the keyed hash of its role, of both nonces and of the host. */
uint64_t rd_call_tag(const unsigned char key[RD_SIPHASH_KEY_BYTES], bool root,
                     const unsigned char root_nonce[RD_CALL_NONCE_BYTES],
                     const unsigned char nonce[RD_CALL_NONCE_BYTES], int32_t host);

#endif
