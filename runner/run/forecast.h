/* forecast.h -- how large a cluster pays: what a run has measured, the alpha-beta model of its exchange, and what the
 * model says of other numbers of hosts. plan_model.c is arithmetic alone; plan_record.c keeps the figures of a run in
 * its log folder; plan_mode.c measures; plan_table.c prints. */
#ifndef RD_PLAN_IMPL_H
#define RD_PLAN_IMPL_H

#include "run.h"

/* Time of a message of n bytes: alpha_s + n / bytes_per_s. */
typedef struct plan_link {
    double alpha_s, bytes_per_s;
    bool measured; /* else assumed, or given by a person */
} plan_link;

/* A step as it was measured; seconds are means over steps and ranks. */
typedef struct plan_run {
    char model[64], unit[32]; /* "images" or "tokens" */
    int hosts, ranks;
    double steps; /* that the figures are of */
    double step_s, input_s, forward_s, backward_s, wait_s, exposed_s, update_s, other_s;
    double comm_s;         /* of the exchange, hidden or not */
    double bytes;          /* of the gradients, float32 */
    double buckets;        /* pieces that are exchanged one by one */
    double wire;           /* bytes of a number between hosts over 4 */
    double samples, units; /* of a step, all ranks */
    bool overlaps;         /* between hosts: buckets travel while backward runs */
    bool shared;           /* the ranks of a host sum through memory they share */
    plan_link inside, between;
} plan_run;

/* What the model says of so many hosts. */
typedef struct plan_row {
    int hosts, ranks;
    double comm_s, exposed_s, step_s;
    double samples_per_s, units_per_s,
        weak;                     /* the same batch on every rank; efficiency against one host */
    double strong_step_s, strong; /* the same global batch; NAN: less than a sample for a rank */
} plan_row;

enum { PLAN_ROWS = 11 }; /* 1, 2, 4, ... 1,024 hosts */

/* ---- plan_model.c ---- */
/* Rounds of messages of the sum over hosts, there and back: the power of two in it in steps of up to 8, the odd rest at
 * once. */
int plan_rounds(int hosts);
/* Messages' latencies and bytes on a host's link that an exchange of `bytes` costs. */
void plan_cost(int hosts, double bytes, double wire, double *alphas, double *link_bytes);
/* Bytes that stand for the sum inside a host in bus-bandwidth terms. */
double plan_inside_bytes(int per_host, double bytes);
double plan_exchange_s(const plan_run *m, int hosts, int per_host);
/* alpha_s and bytes_per_s so that seconds[i] is about alphas[i] * alpha_s + bytes[i] / bytes_per_s: least squares of
 * relative errors, neither negative. With one size alone, or sizes that tell nothing of it, alpha_s stays as it
 * was, up to half of the time of that size. False: nothing to fit, *out is as it was. */
bool plan_fit(const double *alphas, const double *bytes, const double *seconds, int n,
              plan_link *out);
/* Scales both links so that an exchange takes by the model what it took in the steps, and returns by how much:
 * exchanges of steps are buckets that travel together, while ranks work. */
double plan_calibrate(plan_run *m);
void plan_at(const plan_run *m, int hosts, int per_host, plan_row *out);

/* ---- plan_record.c ---- */
typedef struct plan_sums { /* of this rank, since its first steps, which are slower, were done */
    double steps, seconds, samples, units, comm_s, exposed_s, bytes;
    double before[TRACE_N], exchanges_before; /* of r->times, then */
    bool overlaps;
} plan_sums;
void plan_sums_start(plan_sums *s, const rd_run *r);
/* After a step: how long it took, and what of all ranks was in it. */
void plan_sums_add(plan_sums *s, const stepper *from, double seconds, double samples, double units);
/* Collective. From the times of a run to the figures of a step; all ranks get them. */
rd_code plan_collect(rd_run *r, const plan_sums *sums, plan_run *out, rd_status *st);
/* The links again, from r->times as they are now. Where ranks share hosts of several, inside has to be known before. */
void plan_fit_links(const rd_run *r, plan_run *m);
json_t *plan_to_json(const plan_run *m);
rd_code plan_write(const plan_run *m, const char *logdir,
                   rd_status *st); /* rank 0; LOGDIR/step.json */
rd_code plan_read(const char *logdir, plan_run *out, rd_status *st);

/* ---- plan_table.c ---- */
typedef struct plan_config {
    double link_gbit, latency_us;
    int64_t ranks_per_host;
    bool has_link, has_latency, has_ranks;
} plan_config;
extern const rd_option_group rd_group_plan;
/* Another link, another number of ranks, buckets and wire type, where the config says so. What was said goes to *notes,
 * a line each. */
rd_code plan_change(const rd_config *config, plan_run *m, int *per_host, rd_strbuf *notes,
                    rd_status *st);
void plan_shares(const plan_run *m, rd_strbuf *out); /* what a step consists of, one line */
void plan_short(const plan_run *m, rd_strbuf *out);  /* what the model says, one line */
/* Rank 0: the whole answer, for people or as one JSON object. */
rd_code plan_print(rd_run *r, plan_run *m, FILE *out, rd_status *st);

/* ---- plan_mode.c ---- */
/* run_plan and run_plan_recorded are declared in run.h */

#endif
