/* doctor_impl.h -- what the files of this folder share: the report, the facts of a host and the rules over them,
 * sockets that test the way between hosts, and mpirun's settings.
 *
 * Facts are JSON objects, for they travel: from an agent over ssh, from a rank through MPI. A rule takes the facts of
 * all hosts and adds to the report; it asks no machine anything, so that it can be tested with made-up facts. */
#ifndef RD_DOCTOR_IMPL_H
#define RD_DOCTOR_IMPL_H

#include "rd/doctor.h"
#include <stdint.h>
#include <stdio.h>

/* ---- doctor_report.c ---- */
typedef enum doc_level { DOC_OK, DOC_WARN, DOC_FAIL } doc_level;
typedef struct doc_report {
    json_t *checks; /* owned; array of {id, level, text, remedy} */
    int n[3];
    bool differ; /* a failure was that hosts or ranks differ */
} doc_report;
rd_code doc_report_init(doc_report *r, rd_status *st);
void doc_report_release(doc_report *r);
/* remedy: what to do, or NULL. */
void doc_add(doc_report *r, doc_level level, const char *id, const char *remedy, const char *fmt,
             ...) RD_PRINTF(5, 6);
void doc_merge(
    doc_report *r,
    const json_t
        *checks); /* adds those of another report; what is fine and known already is left out */
const char *doc_verdict(const doc_report *r); /* "ok", "warning" or "failure" */
void doc_print_checks(const doc_report *r, FILE *out);
void doc_print_ranks(const json_t *ranks, FILE *out);
void doc_print_verdict(const doc_report *r, FILE *out);
/* One object: hosts (where not NULL), ranks, checks, verdict. */
rd_code doc_print_json(const doc_report *r, const json_t *hosts, const json_t *ranks, FILE *out,
                       rd_status *st);
rd_code doc_result(const doc_report *r,
                   rd_status *st); /* the report as a status: its first failure */

/* Fields of facts, with "" or 0 where they are missing. */
const char *doc_text(const json_t *o, const char *key);
double doc_number(const json_t *o, const char *key);

/* ---- doctor_mca.c: settings of Open MPI, {"btl_tcp_if_include": {"value": .., "source": ..}, ..} ---- */
/* args: words of an mpirun line, which win; NULL: none. */
json_t *doc_mca_new(const char *args);
const char *doc_mca(const json_t *mca, const char *name);        /* NULL: not set */
const char *doc_mca_source(const json_t *mca, const char *name); /* "" when not set */
/* First and last port of what a setting pins: of btl_tcp or oob_tcp. false: it pins none. */
bool doc_mca_ports(const json_t *mca, const char *which, int *first, int *last);
/* Words of a text, where quotes hold words together, as a shell would. *words and its texts are the caller's, freed
 * with doc_words_free; RD_EUSAGE for a quote without end. */
rd_code doc_words(const char *text, char ***words, int *n, rd_status *st);
void doc_words_free(char **words, int n);

/* ---- doctor_facts.c ---- */
/* All of this host that rules ask for; the caller owns it, NULL: out of memory. mca: stolen. */
json_t *doc_facts(const char *versions, json_t *mca, bool full);
json_t *doc_interfaces(void); /* [{name, addr, prefix, up, loopback}], IPv4 */

/* ---- doctor_nets.c: rules of interfaces and addresses; hosts is an array of facts ---- */
bool doc_parse_ipv4(const char *s, uint32_t *out);
void doc_format_ipv4(uint32_t a, char out[16]);
/* Does a list like "eth0,10.0.0.0/8" name this interface? */
bool doc_listed(const char *list, const json_t *net);
bool doc_net_used(const json_t *mca, const json_t *net); /* would MPI send data through it? */
bool doc_shared_address(const json_t *hosts,
                        const json_t *net); /* is its address on another host, too? */
/* The network all hosts have a usable address of their own in, "10.0.0.0/24"; "" when there is none. */
void doc_common_network(const json_t *hosts, char out[32]);
void doc_check_interfaces(doc_report *r, const json_t *hosts);
void doc_check_addresses(doc_report *r, const json_t *hosts);
/* A bridge of containers or virtual machines by its name? Such have the same address everywhere. */
bool doc_is_bridge(const char *name);

/* ---- doctor_rules.c ---- */
void doc_check_program(doc_report *r, const json_t *hosts);
void doc_check_names(doc_report *r, const json_t *hosts);
void doc_check_space(doc_report *r,
                     const json_t *hosts); /* /dev/shm, memory, locked memory, TMPDIR */
void doc_check_gpus(doc_report *r, const json_t *hosts);
void doc_check_left(doc_report *r, const json_t *hosts);
void doc_check_copy(doc_report *r, const json_t *hosts);
void doc_check_cpus(doc_report *r, const json_t *hosts, const json_t *ranks);
void doc_check_clocks(doc_report *r,
                      const json_t *hosts); /* "clock_ahead_s" and "clock_error_s" of each */
/* gbit_per_s[n * n], from row to column; 0: not measured. */
void doc_check_links(doc_report *r, const json_t *hosts, const double *gbit_per_s);

/* ---- doctor_sockets.c: TCP without MPI ---- */
void doc_token(char out[33]); /* random letters */
typedef struct doc_server doc_server;
/* Listens on a port of its own, on all addresses, and on those of ports[n] that are free; each caller is told the
 * token. */
rd_code doc_server_new(const char *token, const int *ports, int n, doc_server **out, rd_status *st);
void doc_server_free(doc_server *s);
int doc_server_port(const doc_server *s);
/* k-th port that it listens on, 0 past the end; the first is doc_server_port. */
int doc_server_listens(const doc_server *s, int k);

typedef enum doc_way {
    DOC_WAY_OPEN,
    DOC_WAY_REFUSED,
    DOC_WAY_SILENT,
    DOC_WAY_NONE,
    DOC_WAY_WRONG
} doc_way;
typedef struct doc_call {
    uint32_t addr;
    int port;
    char token[40]; /* expected */
    doc_way way;    /* out */
    double ms;      /* out, when open */
} doc_call;
void doc_call_all(doc_call *calls, int n, double deadline_s); /* all at the same time */
const char *doc_way_text(doc_way w);
/* Sends for so long, and asks how much came through; 0: it did not work. */
double doc_stream_gbit_per_s(uint32_t addr, int port, double seconds);

/* targets: [{to, addr, port, token, kind}]; result: the same objects with "way" and "ms". */
json_t *doc_calls_json(const json_t *targets, double deadline_s);
/* results[i]: of host i. kind: "address" (a free port at each address), "pinned". */
void doc_check_ways(doc_report *r, const json_t *hosts, const json_t *results);
/* What host i should call: every address that MPI would use of every other host, and pinned ports. The caller owns it.
 */
json_t *doc_targets(const json_t *hosts, size_t i);

/* ---- doctor_line.c: hosts and the mpirun line ---- */
typedef struct doc_host {
    char name[128], user[64];
    int slots, port; /* port 0: ssh's own */
} doc_host;
typedef struct doc_hosts {
    doc_host *at; /* owned */
    int n, slots;
} doc_hosts;
/* "h1:2,h2:2" of --hosts, or lines of a file ("h1 slots=2 port=12345 user=me"). RD_EUSAGE names the entry. */
rd_code doc_hosts_parse(const char *list, doc_hosts *out, rd_status *st);
rd_code doc_hosts_read(const char *path, doc_hosts *out, rd_status *st);
void doc_hosts_release(doc_hosts *h);
/* The -np of such words, 0: none. */
int64_t doc_line_ranks(char *const *words, int n);
/* Adds words to *out until "mpirun ... PROGRAM" is there; network: what to include, "" for none. NULL-ended, freed with
 * doc_words_free. */
rd_code doc_line(const doc_hosts *h, int ssh_port, const char *args, const char *network, bool root,
                 char ***out, int *n, rd_status *st);
void doc_line_text(char *const *words, int n, rd_strbuf *out); /* as one types it */

/* ---- doctor_data.c ---- */
/* Collective: keys of the config, then the training data on every rank. Adds on rank 0. */
void doc_check_config(doc_report *r, rd_comm *comm, rd_config *config,
                      const rd_option_group *const *groups, int n_groups);
void doc_check_logdir(doc_report *r, rd_comm *comm, const char *logdir,
                      int64_t keep); /* Collective */

#endif
