/* doctor_impl.h -- what the files of this folder share: the report, the facts of a host and the
 * rules over them, sockets that test connections between hosts, and mpirun's settings.
 *
 * Facts are JSON objects because they travel: from an agent over ssh, from a rank through MPI. A
 * rule reads the facts of all hosts and adds checks to the report. It never looks at a machine, so
 * tests can call it with made-up facts. */
#ifndef RD_DOCTOR_IMPL_H
#define RD_DOCTOR_IMPL_H

#include "rd/doctor.h"
#include "rd/hostname.h"
#include <stdint.h>
#include <stdio.h>

/* ---- doctor_report.c ---- */

typedef enum doc_level { DOC_OK, DOC_WARN, DOC_FAIL } doc_level;

typedef struct doc_report {
    json_t *checks; /* array of {id, level, text, remedy}; owned */
    int n[3];       /* number of checks of each doc_level */
    bool differ;    /* a failure is that hosts or ranks differ */
} doc_report;

/* Makes an empty report. RD_EENV: out of memory. */
rd_code doc_report_init(doc_report *r, rd_status *st);

/* Frees what the report owns. */
void doc_report_release(doc_report *r);

/* Adds a check. id: its name, such as "ssh". remedy: what to do, NULL: nothing. */
void doc_add(doc_report *r, doc_level level, const char *id, const char *remedy, const char *fmt,
             ...) RD_PRINTF(5, 6);

/* Adds the checks of another report. Leaves out a check at level ok if r has that id already. */
void doc_merge(doc_report *r, const json_t *checks);

/* Returns "ok", "warning" or "failure": the worst level of the report. */
const char *doc_verdict(const doc_report *r);

/* Prints one line for each check, and one for its remedy. */
void doc_print_checks(const doc_report *r, FILE *out);

/* Prints a table with one row per rank. ranks: array of facts of ranks. */
void doc_print_ranks(const json_t *ranks, FILE *out);

/* Prints the verdict and the number of checks, warnings and failures. */
void doc_print_verdict(const doc_report *r, FILE *out);

/* Prints one JSON object with the keys hosts, ranks, checks and verdict. hosts: NULL leaves the key
 * out. ranks: NULL is an empty array. RD_EENV: out of memory. */
rd_code doc_print_json(const doc_report *r, const json_t *hosts, const json_t *ranks, FILE *out,
                       rd_status *st);

/* Returns the report as a status. Failures give RD_EDISAGREE if `differ`, else RD_EENV, with the
 * ids of the failed checks. */
rd_code doc_result(const doc_report *r, rd_status *st);

/* Return a field of facts; "" or 0 if it is missing. The text is borrowed from o. */
const char *doc_text(const json_t *o, const char *key);
double doc_number(const json_t *o, const char *key);

/* ---- doctor_mca.c: settings of Open MPI ---- */

/* Returns the settings as an object: {"btl_tcp_if_include": {"value": .., "source": ..}, ..}.
 * args: words of an mpirun line, which take precedence; NULL: none. The caller owns the result;
 * NULL: out of memory. */
json_t *doc_mca_new(const char *args);

/* Returns the settings of this process's environment alone. The caller owns the result; NULL: out
 * of memory. */
json_t *doc_mca_environment(void);

/* The same as doc_mca_new, with the environment of another process, such as mpirun's, which takes
 * precedence over that of this one. environment: NULL is empty. */
json_t *doc_mca_with(const json_t *environment, const char *args);

/* Returns the value of a setting, NULL: not set. Borrowed from mca. */
const char *doc_mca(const json_t *mca, const char *name);

/* Returns where a setting comes from, "" if it is not set. Borrowed from mca. */
const char *doc_mca_source(const json_t *mca, const char *name);

/* Stores the first and the last port that the settings pin. which: "btl_tcp" or "oob_tcp". Returns
 * false if they pin none. */
bool doc_mca_ports(const json_t *mca, const char *which, int *first, int *last);

/* Splits a text into words. Quotes hold words together, as in a shell. The caller owns *words and
 * frees it with doc_words_free, also after a failure. RD_EUSAGE: a quote is not closed. */
rd_code doc_words(const char *text, char ***words, int *n, rd_status *st);
void doc_words_free(char **words, int n);

/* ---- doctor_facts.c ---- */

/* Returns all facts of this host that rules need. full: runs nvidia-smi, too, for the memory of
 * GPUs. mca: the settings; the function takes ownership. The caller owns the result; NULL: out of
 * memory. */
json_t *doc_facts(const char *versions, json_t *mca, bool full);

/* Returns the IPv4 interfaces of this host: [{name, addr, prefix, up, loopback}]. The caller owns
 * the result. */
json_t *doc_interfaces(void);

/* Returns whether a name is this host: its own name, localhost, one of its addresses, or a name
 * that resolves to one. */
bool doc_is_this_host(const char *name);

/* ---- doctor_nets.c: rules for interfaces and addresses ----
 * hosts is an array of facts; net is one entry of a host's "nets"; mca are that host's settings. */

bool doc_parse_ipv4(const char *s, uint32_t *out);
void doc_format_ipv4(uint32_t a, char out[16]);

/* Returns whether a list like "eth0,10.0.0.0/8" contains this interface. */
bool doc_listed(const char *list, const json_t *net);

/* Returns whether MPI would send data through this interface. */
bool doc_net_used(const json_t *mca, const json_t *net);

/* Returns whether another host has the address of this interface, too. */
bool doc_shared_address(const json_t *hosts, const json_t *net);

/* Finds a network in which every host has a usable address that no other host has. Writes it as
 * "10.0.0.0/24"; "" if there is none. */
void doc_common_network(const json_t *hosts, char out[32]);

/* Returns whether the name is that of a bridge of containers or virtual machines. Such bridges have
 * the same address on every host. */
bool doc_is_bridge(const char *name);

void doc_check_interfaces(doc_report *r, const json_t *hosts);
void doc_check_addresses(doc_report *r, const json_t *hosts);

/* ---- doctor_btl.c ---- */

/* Checks that the list `btl` leaves ways by which the ranks reach each other. */
void doc_check_btl(doc_report *r, const json_t *hosts);

/* ---- doctor_rules.c: rules for everything else ----
 * hosts is an array of facts, ranks an array of rows for the table of ranks. */

/* Checks that all hosts have one program, one MPI library, and the same versions. */
void doc_check_program(doc_report *r, const json_t *hosts);

/* Checks that each host has its own name and is listed once. */
void doc_check_names(doc_report *r, const json_t *hosts);

/* Checks /dev/shm, memory, the limit on locked memory, and TMPDIR. */
void doc_check_space(doc_report *r, const json_t *hosts);

/* Checks that no host has more ranks than GPUs, if the program uses GPUs. */
void doc_check_gpus(doc_report *r, const json_t *hosts);

/* Checks that no daemon of an earlier job is left. */
void doc_check_left(doc_report *r, const json_t *hosts);

/* Checks whether ranks of a host may read each other's memory. */
void doc_check_copy(doc_report *r, const json_t *hosts);

/* Checks that ranks do not share CPUs and are not bound too tightly. */
void doc_check_cpus(doc_report *r, const json_t *hosts, const json_t *ranks);

/* Checks that the clocks agree, by "clock_ahead_s" and "clock_error_s" of each host. */
void doc_check_clocks(doc_report *r, const json_t *hosts);

/* Checks the speed of the links. gbit_per_s[n][n]: from the host of the row to the host of the
 * column, 0: not measured. */
void doc_check_links(doc_report *r, const json_t *hosts, const double *gbit_per_s);

/* ---- doctor_sockets.c: TCP without MPI ---- */

/* Makes a random token of 32 hexadecimal digits. */
void doc_token(char out[33]);

/* A thread that listens on ports and sends a token to each caller. */
typedef struct doc_server doc_server;

/* Listens on all addresses: on a free port, and on each of ports[n] that is free. The caller frees
 * *out with doc_server_free. RD_EENV: no socket, thread or memory. */
rd_code doc_server_new(const char *token, const int *ports, int n, doc_server **out, rd_status *st);

/* Stops the server. NULL is allowed. */
void doc_server_free(doc_server *s);

/* Returns the free port that the server chose. */
int doc_server_port(const doc_server *s);

/* Returns the k-th port that the server listens on, 0 past the end. Port 0 is doc_server_port. */
int doc_server_listens(const doc_server *s, int k);

/* Outcome of a call to a port. */
typedef enum doc_way {
    DOC_WAY_OPEN,    /* the expected server answered */
    DOC_WAY_REFUSED, /* nothing listens on the port */
    DOC_WAY_SILENT,  /* no answer before the deadline */
    DOC_WAY_NONE,    /* no route, or another error */
    DOC_WAY_WRONG    /* another server answered: its token differs */
} doc_way;

typedef struct doc_call {
    uint32_t addr;  /* IPv4 address to call, in host byte order */
    int port;       /* port to call */
    char token[40]; /* token that the server should send */
    doc_way way;    /* result: outcome */
    double ms;      /* result: milliseconds until the answer came, if open */
} doc_call;

/* Makes n calls, up to 128 at the same time. deadline_s: seconds for each such set. */
void doc_call_all(doc_call *calls, int n, double deadline_s);

/* Returns the outcome as a text for a message. */
const char *doc_way_text(doc_way w);

/* Sends to a server for some seconds and returns the rate at which the data arrived, in Gbit/s.
 * 0: the connection failed. */
double doc_stream_gbit_per_s(uint32_t addr, int port, double seconds);

/* Makes the calls of doc_targets. Returns the same objects with two more keys: "way", the doc_way,
 * and "ms". The caller owns the result. */
json_t *doc_calls_json(const json_t *targets, double deadline_s);

/* Returns the calls that host i should make: to every address of every other host that is up, and
 * to the pinned ports on one address that MPI would use. The result is an array of {to, addr, name,
 * port, token, used, pinned}. to: index of the host. name: the interface. used: MPI would use this
 * address. pinned: the port is one that the settings pin. The caller owns the result. */
json_t *doc_targets(const json_t *hosts, size_t i);

/* Checks the outcome of the calls. results[i]: result of doc_calls_json on host i. */
void doc_check_ways(doc_report *r, const json_t *hosts, const json_t *results);

/* ---- doctor_line.c: hosts and the mpirun line ---- */

typedef struct doc_host {
    char name[RD_HOST_BYTES], user[RD_USER_BYTES]; /* user "": the user of the launching host */
    int slots;                                     /* number of ranks that the host may have */
    int port;                                      /* port of sshd, 0: as ssh is configured */
} doc_host;

typedef struct doc_hosts {
    doc_host *at;     /* [n]; owned */
    int n;            /* number of hosts */
    int slots;        /* sum of the slots of all hosts */
    bool slots_given; /* an entry says its slots; else each host has one */
} doc_hosts;

/* Reads the list of --hosts, "h1:2,h2:2". RD_EUSAGE: a wrong entry; the message names it. The
 * caller frees *out with doc_hosts_release, also after a failure. */
rd_code doc_hosts_parse(const char *list, doc_hosts *out, rd_status *st);

/* Reads a file with lines like "h1 slots=2 port=12345 user=me". Otherwise as doc_hosts_parse. */
rd_code doc_hosts_read(const char *path, doc_hosts *out, rd_status *st);
void doc_hosts_release(doc_hosts *h);

/* Returns the number of ranks (-np, -n or -c) among words of an mpirun line, 0: not given. */
int64_t doc_line_ranks(char *const *words, int n);

/* Makes the line "mpirun ... " for these hosts, up to the name of the program. ssh_port: 0 leaves
 * the port to ssh. args: the user's words, which are never repeated or contradicted; NULL: none.
 * network: network to include, "": none. root: the user is root. The caller owns *out[*n], which
 * ends with NULL, and frees it with doc_words_free, also after a failure. */
rd_code doc_line(const doc_hosts *h, int ssh_port, const char *args, const char *network, bool root,
                 char ***out, int *n, rd_status *st);

/* Appends the words as a user would type them, with quotes where a shell needs them. */
void doc_line_text(char *const *words, int n, rd_strbuf *out);

/* ---- doctor_hosts.c ---- */

/* Runs `mpirun --version`. Returns false if there is no mpirun. out: "Open MPI 4.1.4", or the first
 * line that another mpirun prints. */
bool doc_mpirun_version(char out[128]);

/* What the cheap part of the doctor found. */
typedef struct doc_found {
    char network[32]; /* a network in which all hosts are, "10.0.0.0/24"; "": none, or one host */
    bool yield;       /* a host has more ranks than CPUs */
} doc_found;

/* Does the cheap part of the doctor before a run: mpirun here, and on the other hosts, over ssh,
 * the program, its version, names, settings and space. hosts: borrowed; n = 0: this host alone.
 * Adds a line to *warnings for each check that warns. RD_EENV, RD_EDISAGREE: the first check that
 * failed, with its remedy. */
rd_code doc_brief(const rd_cli *cli, const doc_hosts *hosts, doc_found *out, rd_strbuf *warnings,
                  rd_status *st);

/* Writes the reason for the end of a job from what it printed: the program's own error, else the
 * first whole sentences of MPI's text. */
void doc_complaint(const char *text, char out[600]);

/* ---- doctor_data.c ---- */

/* Checks the keys of the config, then opens the training data on every rank. Collective; adds to
 * the report of rank 0 and to those of the other ranks, which are discarded. */
void doc_check_config(doc_report *r, rd_comm *comm, rd_config *config,
                      const rd_option_group *const *groups, int n_groups);

/* Checks that the device of the config can be used: GPUs, if it asks for them. Collective; adds to
 * the report of rank 0 and to those of the other ranks, which are discarded. */
void doc_check_device(doc_report *r, rd_comm *comm, const rd_config *config);

/* Checks that rank 0 can write to the log folder, whether the other hosts see it, and that its disk
 * has space for `keep` checkpoints and the next one. Collective; adds to the report of rank 0. */
void doc_check_logdir(doc_report *r, rd_comm *comm, const char *logdir, int64_t keep);

#endif
