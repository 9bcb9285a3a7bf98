/* doctor_peers.h -- agents of the doctor on other hosts, and child processes in general: started together, asked
 * together, each with one deadline for all, and ended for sure. */
#ifndef RD_DOCTOR_PEERS_H
#define RD_DOCTOR_PEERS_H

#include "doctor_impl.h"
#include <sys/types.h>

/* A child process with pipes, leader of its own process group. */
typedef struct doc_child {
    pid_t pid;                    /* 0: none */
    int in, out, err;             /* ours; -1: closed */
    rd_strbuf out_text, err_text; /* owned: its standard output and error so far */
    size_t read_bytes;            /* of said: lines that were read */
    bool ended;
    int status; /* as of waitpid, when ended */
} doc_child;

typedef struct doc_peer {
    const doc_host *host;
    bool here; /* this very host: no ssh */
    doc_child child;
    json_t *answer;  /* owned; of the last request, NULL: none came */
    json_t *facts;   /* owned; NULL: it never answered */
    rd_strbuf noise; /* owned: lines that are not ours */
    int tries;
} doc_peer;

/* argv ends with NULL; strings are borrowed for the call. */
rd_code doc_child_start(doc_child *c, char *const *argv, rd_status *st);
/* Reads what n children have said and waits until done(ctx) or the deadline (rd_now_ns); notices who ended. */
void doc_children_poll(doc_child *const *c, int n, int64_t until_ns, bool (*done)(void *ctx),
                       void *ctx);
void doc_child_send(doc_child *c, const json_t *o);
/* Ends the group: TERM, KILL a second later. */
void doc_child_end(doc_child *c);
void doc_child_release(doc_child *c);

/* Starts the agents of all peers and asks for facts. ssh: words of plm_rsh_args, n_ssh of them. */
void doc_peers_start(doc_peer *p, int n, int ssh_port, char *const *ssh, int n_ssh,
                     const json_t *request, int64_t until_ns);
/* requests[i] for peer i (NULL: none); the same for all when only one is given. Answers come in p[i].answer. */
void doc_peers_ask(doc_peer *p, int n, json_t *const *requests, bool one_for_all, int64_t until_ns);
void doc_peers_release(doc_peer *p, int n);
/* Why a peer does not answer, in the words of its ssh, with what to do. */
void doc_peer_explain(const doc_peer *p, int ssh_port, doc_report *r);

#endif
