/* forecast.h -- how large a cluster pays: the measured step of a run, an alpha-beta model of its
 * exchange, and the model's step times for other numbers of hosts.
 *
 * forecast_model.c is arithmetic alone. forecast_sweep.c measures the links. forecast_record.c
 * keeps the measured step in the log folder. forecast.c changes it to the cluster that the user
 * asks about. Plan mode measures and prints tables. */
#ifndef RD_RUN_FORECAST_H
#define RD_RUN_FORECAST_H

#include "stepper.h"

/* A message of n bytes takes alpha_s + n / bytes_per_s. */
typedef struct forecast_link {
    double alpha_s, bytes_per_s;
    bool measured; /* false: assumed, or given by the user */
} forecast_link;

/* A measured step. Seconds are means over steps and ranks. */
typedef struct forecast_step {
    char model[64], unit[32]; /* unit: "images" or "tokens" */
    int hosts, ranks;
    double steps; /* number of measured steps */
    double step_s, input_s, forward_s, backward_s, wait_s, exposed_s, update_s, other_s;
    double comm_s;  /* of the exchange, hidden or not */
    double bytes;   /* of the gradients, float32 */
    double buckets; /* number of pieces that are exchanged one by one */
    double wire;    /* bytes of a number between hosts / 4 */
    /* Of the optimizer's state, on the host that keeps most; of a step, sent to other hosts by a
     * rank. 0: not known. */
    double optimizer_bytes, sent_bytes;
    /* Of whole arrays: the weights, the gradients, the optimizer's state. 0: not known. */
    double weight_bytes, gradient_bytes, state_bytes;
    double samples; /* per step, all ranks */
    double units;   /* per step, all ranks */
    bool overlaps;  /* buckets are sent between hosts while backward runs */
    bool shared;    /* the ranks of a host sum through shared memory */
    bool shard;     /* hosts or GPUs update parts, and send each other weights (key shard) */
    bool gpu;       /* every rank has a GPU, and all get whole sums */
    char ended[24]; /* end of the measurement, UTC: 2026-11-29T20:15:00Z. "": not known */
    forecast_link inside, between;
} forecast_step;

/* The model's answer for a number of hosts. */
typedef struct forecast_row {
    int hosts, ranks;
    /* weak scaling: the same batch on every rank */
    double comm_s, exposed_s, step_s;
    double samples_per_s, units_per_s;
    double weak; /* efficiency against one host */
    /* strong scaling: the same global batch; NAN: less than one sample per rank */
    double strong_step_s, strong;
} forecast_row;

enum { FORECAST_ROWS = 11 }; /* 1, 2, 4, ... 1,024 hosts */

/* ---- forecast_model.c ---- */

/* Returns the number of message rounds of the sum over hosts in one direction. The power of two in
 * `hosts` is done in factors of up to 8, the odd rest in one round. */
int forecast_rounds(int hosts);

/* Computes what an exchange of `bytes` costs: latencies of messages, and bytes on a host's link. */
void forecast_cost(int hosts, double bytes, double wire, double *alphas, double *link_bytes);

/* Returns the bytes that the sum inside a host counts in terms of bus bandwidth. */
double forecast_inside_bytes(int per_host, double bytes);
/* Returns what the exchange of a step takes, hidden or not: that of the weights included. */
double forecast_exchange_s(const forecast_step *m, int hosts, int per_host);

/* Returns whether the ranks of a host share one copy of the weights. */
bool forecast_shares(const forecast_step *m);
/* Returns the bytes of weights, gradients and optimizer state on a host whose ranks share a copy,
 * else on a rank. shard: with that key. 0: not known. */
double forecast_memory(const forecast_step *m, int hosts, int per_host, bool shard);

/* Fits alpha_s and bytes_per_s so that seconds[i] is about alphas[i] * alpha_s + bytes[i] /
 * bytes_per_s. It minimises the squares of relative errors; neither value is negative. Where the
 * sizes do not determine alpha_s, it stays as it was, up to half of the measured time. False: there
 * is nothing to fit, and *out is unchanged. */
bool forecast_fit(const double *alphas, const double *bytes, const double *seconds, int n,
                  forecast_link *out);

/* Scales both links so that the model's exchange takes the time measured in the steps. Returns the
 * factor. Exchanges of steps take longer than single ones: buckets share the link, and ranks
 * compute meanwhile. */
double forecast_calibrate(forecast_step *m);
void forecast_at(const forecast_step *m, int hosts, int per_host, forecast_row *out);

/* ---- forecast_record.c ---- */

/* Sums of this rank since its warm-up steps. */
typedef struct forecast_sums {
    double steps, seconds, samples, units, comm_s, exposed_s, bytes, sent;
    double before[TIMES_N];  /* r->times.seconds at the begin */
    double exchanges_before; /* r->times.n_exchanges at the begin */
    bool overlaps;
} forecast_sums;
void forecast_sums_start(forecast_sums *s, const rd_run *r);

/* Adds a step. seconds: of this rank; samples and units: of all ranks. */
void forecast_sums_add(forecast_sums *s, const stepper *from, double seconds, double samples,
                       double units);

/* Collective. Computes the measured step on all ranks. */
rd_code forecast_collect(rd_run *r, const forecast_sums *sums, forecast_step *out, rd_status *st);

/* Fits the links to r->times. Where several hosts have several ranks each, m->inside must be
 * known. */
void forecast_fit_links(const rd_run *r, forecast_step *m);

/* Collective, between steps. Measures exchanges of many sizes by themselves, each begun together,
 * as float32. The median of a size counts, since others may use the machine, too. Sets both links
 * of *m, where there are several ranks. Gradients are overwritten. size_s: seconds for one size. */
rd_code forecast_sweep(rd_run *r, double size_s, forecast_step *m, rd_status *st);

/* The caller owns the value; NULL: out of memory. */
json_t *forecast_to_json(const forecast_step *m);

/* LOGDIR/step.json. Rank 0 only. */
rd_code forecast_write(const forecast_step *m, const char *logdir, rd_status *st);
rd_code forecast_read(const char *logdir, forecast_step *out, rd_status *st);

/* ---- forecast.c ---- */

typedef struct forecast_config {
    bool has_link;
    double link_gbit;
    bool has_latency;
    double latency_us;
    bool has_ranks;
    int64_t ranks_per_host;
} forecast_config;
extern const rd_option_group rd_group_plan;

/* Replaces link, ranks per host, buckets and wire type by those of the config, where the config has
 * them. Each assumption adds a line to *notes. */
rd_code forecast_change(const rd_config *config, forecast_step *m, int *per_host, rd_strbuf *notes,
                        rd_status *st);

/* Appends one line: the shares of a step. */
void forecast_describe_step(const forecast_step *m, rd_strbuf *out);

/* Appends one line: the efficiency on more hosts. */
void forecast_describe_hosts(const forecast_step *m, rd_strbuf *out);

#endif
