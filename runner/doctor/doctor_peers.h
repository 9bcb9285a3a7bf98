/* doctor_peers.h -- starts agents of the doctor on other hosts, and child processes in general.
 *
 * All agents are started at the same time and receive their requests at the same time. One deadline
 * holds for all of them. No child outlives the doctor. */
#ifndef RD_DOCTOR_PEERS_H
#define RD_DOCTOR_PEERS_H

#include "doctor_impl.h"
#include <sys/types.h>

/* A child process with pipes. It is the leader of its process group. */
typedef struct doc_child {
    pid_t pid;                    /* process id, 0: none */
    int in, out, err;             /* our ends of its standard streams, -1: closed */
    rd_strbuf out_text, err_text; /* its standard output and standard error so far; owned */
    size_t read_bytes;            /* bytes of out_text whose lines were read */
    bool ended;                   /* waitpid has returned its status */
    int status;                   /* status of waitpid, valid if ended */
} doc_child;

/* An agent of the doctor on a host. */
typedef struct doc_peer {
    const doc_host *host; /* borrowed */
    bool here;            /* the host is this one; the agent needs no ssh */
    doc_child child;      /* ssh, or the agent itself */
    json_t *answer;       /* answer to the last request, NULL: none; owned */
    json_t *facts;        /* facts of the host, NULL: the agent never answered; owned */
    rd_strbuf noise;      /* lines of output that are no answers; owned */
    int tries;            /* number of times the agent was started */
} doc_peer;

/* Starts argv[0], which is searched for in PATH. argv ends with NULL and is borrowed for the call.
 * RD_EENV: no pipe or no process. */
rd_code doc_child_start(doc_child *c, char *const *argv, rd_status *st);

/* Reads the output of n children until done(ctx) returns true or rd_now_ns reaches until_ns. Sets
 * `ended` of children that have ended. */
void doc_children_poll(doc_child *const *c, int n, int64_t until_ns, bool (*done)(void *ctx),
                       void *ctx);

/* Writes o as one line to the child's standard input, within two seconds. */
void doc_child_send(doc_child *c, const json_t *o);

/* Ends the child's process group: closes its input, sends TERM, and KILL a second later. */
void doc_child_end(doc_child *c);

/* Ends the child and frees what it owns. */
void doc_child_release(doc_child *c);

/* Starts the agents of n peers and waits for their facts until until_ns. request: the request for
 * facts. ssh[n_ssh]: more words for ssh, those of plm_rsh_args. ssh_port: 0 leaves the port to ssh.
 * All are borrowed for the call. Sets p[i].facts. */
void doc_peers_start(doc_peer *p, int n, int ssh_port, char *const *ssh, int n_ssh,
                     const json_t *request, int64_t until_ns);

/* Sends requests[i] to peer i (NULL: none), or requests[0] to all peers if one_for_all. Waits for
 * the answers until until_ns and stores them in p[i].answer. */
void doc_peers_ask(doc_peer *p, int n, json_t *const *requests, bool one_for_all, int64_t until_ns);

/* Ends all agents and frees what the peers own. p: NULL is allowed. */
void doc_peers_release(doc_peer *p, int n);

/* Adds a failure to the report: why the peer does not answer, from the messages of its ssh, and
 * what to do. */
void doc_peer_explain(const doc_peer *p, int ssh_port, doc_report *r);

#endif
