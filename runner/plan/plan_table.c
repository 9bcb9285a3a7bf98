/* plan_table.c -- prints the answer of plan mode, as tables or as JSON. */
#include "plan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void print_link(FILE *out, const char *where, const forecast_link *l, const char *of)
{
    if (isinf(l->bytes_per_s)) return;
    (void)fprintf(out, "%s: %.3g us per message, %.3g GB/s%s (%s)\n", where, l->alpha_s * 1e6,
                  l->bytes_per_s * 1e-9, of,
                  l->measured ? "fitted to this run" : "given or assumed");
}

/* Prints the memory of weights, gradients and optimizer, with and without the key shard. */
static void print_sizes(FILE *out, const forecast_step *m, int per_host)
{
    static const int hosts[] = {1, 2, 4, 8, 32, 128};
    const bool shares = forecast_shares(m);
    const double all = forecast_memory(m, 1, per_host, false);
    const char *before = "with shard optimizer:";
    char who[64] = "rank", times[32] = "";
    if (!(m->weight_bytes > 0.0)) return;
    if (shares && per_host > 1) {
        (void)snprintf(who, sizeof who, "host of %d ranks", per_host);
        (void)snprintf(times, sizeof times, "%d x ", per_host);
    }
    (void)fprintf(out,
                  "memory of a %s, without activations: weights %.4g MB, gradients %s%.4g MB, "
                  "optimizer %.4g MB; together %.4g MB\n",
                  who, m->weight_bytes * 1e-6, times, m->gradient_bytes * 1e-6,
                  m->state_bytes * 1e-6, all * 1e-6);
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        const double mine = forecast_memory(m, hosts[i], per_host, true);
        if (!(mine < all)) continue;
        (void)fprintf(out, "%s %.4g MB on %d host%s", before, mine * 1e-6, hosts[i],
                      RD_S(hosts[i]));
        before = ",";
    }
    if (*before == ',') (void)fprintf(out, "\n");
}

/* measured: the measured step; m: the step on the cluster that the user asks about. run: the log
 * folder of the run that measured it; NULL: this run. */
static void print_table(const forecast_step *measured, const forecast_step *m, int per_host,
                        const char *run, const char *notes, FILE *out)
{
    rd_strbuf line = {0};
    forecast_row r;
    forecast_describe_step(measured, &line);
    (void)fprintf(out, "measured: %s on %d host%s, %d rank%s, by ", m->model, m->hosts,
                  RD_S(m->hosts), m->ranks, RD_S(m->ranks));
    if (run)
        (void)fprintf(out, "the run of %s%s%s\n", run, *m->ended ? ", " : "", m->ended);
    else
        (void)fprintf(out, "this run\n");
    (void)fprintf(out, "%s\n", rd_strbuf_str(&line));
    rd_strbuf_release(&line);
    if (measured->between.measured && measured->comm_s > 0.0)
        (void)fprintf(
            out, "an exchange took %.4g ms; the model gives %.4g ms\n", measured->comm_s * 1e3,
            forecast_exchange_s(measured, measured->hosts, measured->ranks / measured->hosts) *
                1e3);
    (void)fprintf(out,
                  "\ngradients: %.4g MB in %.0f bucket%s, %s bytes per number between hosts, %s\n",
                  m->bytes * 1e-6, m->buckets, RD_S((int)m->buckets), m->wire < 1.0 ? "2" : "4",
                  m->overlaps ? "summed while backward runs" : "summed after backward");
    if (m->shard)
        (void)fprintf(out,
                      "shard optimizer: each %s updates its part, and sends the others these "
                      "weights after the update\n",
                      m->gpu ? "GPU" : "host");
    if (m->optimizer_bytes > 0.0)
        (void)fprintf(out, "optimizer state: %.4g MB on a %s of the measured run\n",
                      m->optimizer_bytes * 1e-6, forecast_shares(m) ? "host" : "rank");
    print_sizes(out, m, per_host);
    print_link(out, "between hosts", &m->between, "");
    if (per_host > 1 && m->shared)
        print_link(out, "inside a host", &m->inside, " of bus bandwidth");
    (void)fprintf(out, "%s\n%6s %6s %11s %11s %11s %14s %8s %8s\n", notes, "hosts", "ranks",
                  "step s", "exchange s", "exposed s", m->unit, "weak", "strong");
    (void)fprintf(out, "%6s %6s %11s %11s %11s %14s %8s %8s\n", "", "", "", "", "", "per second",
                  "scaling", "scaling");
    for (int h = 1; h <= 1 << (FORECAST_ROWS - 1); h *= 2) {
        char strong[32] = "-";
        forecast_at(m, h, per_host, &r);
        if (isfinite(r.strong)) (void)snprintf(strong, sizeof strong, "%.1f %%", 100.0 * r.strong);
        (void)fprintf(out, "%6d %6d %11.4g %11.4g %11.4g %14.5g %6.1f %% %8s\n", r.hosts, r.ranks,
                      r.step_s, r.comm_s, r.exposed_s, r.units_per_s, 100.0 * r.weak, strong);
    }
    (void)fprintf(
        out,
        "\nweak scaling: the batch of a rank is constant. Strong scaling: the global batch is "
        "constant, %.0f samples as in the measured run. Both against one host.\nThe model: alpha + "
        "bytes / bandwidth for each round of messages. exposed: the part that backward does not "
        "hide.\nThe model ignores switches that hosts share, ranks slower than those measured, and "
        "batches that are too small to be fast.\n",
        m->samples);
}

static void plan_add_real(json_t *o, const char *key, double v)
{
    (void)json_object_set_new(o, key, isfinite(v) ? json_real(v) : json_null());
}

static rd_code print_json(const forecast_step *measured, const forecast_step *m, int per_host,
                          FILE *out, rd_status *st)
{
    json_t *o = json_object(), *list = json_array();
    char *text = NULL;
    (void)json_object_set_new(o, "measured", forecast_to_json(measured));
    (void)json_object_set_new(o, "ranks_per_host", json_integer(per_host));
    plan_add_real(o, "latency_s", m->between.alpha_s);
    plan_add_real(o, "link_bytes_per_s", m->between.bytes_per_s);
    plan_add_real(o, "measured_comm_s_model",
                  forecast_exchange_s(measured, measured->hosts,
                                      measured->ranks / measured->hosts));
    for (int h = 1; h <= 1 << (FORECAST_ROWS - 1); h *= 2) {
        forecast_row r;
        forecast_at(m, h, per_host, &r);
        json_t *row = json_pack("{s:i, s:i}", "hosts", r.hosts, "ranks", r.ranks);
        plan_add_real(row, "step_s", r.step_s);
        plan_add_real(row, "comm_s", r.comm_s);
        plan_add_real(row, "exposed_s", r.exposed_s);
        plan_add_real(row, "samples_per_s", r.samples_per_s);
        plan_add_real(row, "units_per_s", r.units_per_s);
        plan_add_real(row, "weak", r.weak);
        plan_add_real(row, "strong_step_s", r.strong_step_s);
        plan_add_real(row, "strong", r.strong);
        if (m->weight_bytes > 0.0) {
            plan_add_real(row, "memory_bytes", forecast_memory(m, h, per_host, false));
            plan_add_real(row, "memory_shard_bytes", forecast_memory(m, h, per_host, true));
        }
        (void)json_array_append_new(list, row);
    }
    (void)json_object_set_new(o, "hosts", list);
    text = json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
    json_decref(o);
    if (!text) return rd_fail(st, RD_EENV, "out of memory for the plan");
    (void)fprintf(out, "%s\n", text);
    free(text);
    return RD_OK;
}

rd_code plan_print(rd_run *r, forecast_step *m, const char *run, FILE *out, rd_status *st)
{
    const forecast_step measured = *m;
    rd_strbuf notes = {0};
    int per_host = 1;
    RD_TRY(forecast_change(r->keys, m, &per_host, &notes, st));
    if (r->cli->json)
        RD_TRY(print_json(&measured, m, per_host, out, st));
    else
        print_table(&measured, m, per_host, run, rd_strbuf_str(&notes), out);
    /* A reader that has closed the output (`| head`) is no failure. */
    if ((fflush(out) != 0 || ferror(out)) && errno != EPIPE)
        rd_fail(st, RD_EENV, "cannot write the plan to standard output");
done:
    rd_strbuf_release(&notes);
    return st->code;
}
