/* forecast.c -- the cluster that the user asks about: its keys, their effect on a measured step,
 * and the answer in one line. */
#include "forecast.h"

#include <math.h>
#include <string.h>

/* Assumed where a link was not measured: good Ethernet, and the memory of a small machine. */
static const forecast_link some_ethernet = {30e-6, 1.25e9, false},
                           some_memory = {5e-6, 1e10, false};

static const rd_option rows[] = {
    RD_OPT_REAL(forecast_config, link_gbit, link_gbit, NULL, 1e-6, 1e6,
                "plan mode: Gbit/s of a host's network; default: as measured",
                RD_GIVEN(forecast_config, has_link)),
    RD_OPT_REAL(forecast_config, latency_us, latency_us, NULL, 0, 1e9,
                "plan mode: microseconds that a message between hosts takes; default: as measured",
                RD_GIVEN(forecast_config, has_latency)),
    RD_OPT_INT(forecast_config, ranks_per_host, ranks_per_host, NULL, 1, 4096,
               "plan mode: number of ranks on a host; default: as measured",
               RD_GIVEN(forecast_config, has_ranks)),
    RD_OPT_END};

const rd_option_group rd_group_plan = {"plan", "Plan mode: the cluster that is asked about", rows,
                                       sizeof(forecast_config)};

/* ---- the cluster that the user asks about ---- */

/* Counts the buckets that the exchange cuts. The first one is small. */
static double bucket_count(double bytes, double bucket_mb)
{
    const double mb = 1048576.0;
    return bytes <= mb ? 1.0 : 1.0 + ceil((bytes - mb) / (bucket_mb * mb));
}

static void change_links(const forecast_config *c, forecast_step *m, int per_host, rd_strbuf *notes)
{
    if (c->has_link || c->has_latency) {
        if (!m->between.measured && !c->has_latency && m->between.alpha_s <= 0.0)
            m->between.alpha_s = some_ethernet.alpha_s;
        if (!m->between.measured && !c->has_link)
            m->between.bytes_per_s = some_ethernet.bytes_per_s;
        if (c->has_link) m->between.bytes_per_s = c->link_gbit * 1e9 / 8.0;
        if (c->has_latency) m->between.alpha_s = c->latency_us * 1e-6;
        m->between.measured = false;
    } else if (!m->between.measured) {
        m->between = some_ethernet;
        rd_strbuf_printf(notes, "no link between hosts was measured: 10 Gbit/s and 30 us are "
                                "assumed; --link_gbit and --latency_us set others\n");
    }
    if (!m->inside.measured && per_host > 1 && m->shared) {
        m->inside = some_memory;
        rd_strbuf_printf(notes, "the sum inside a host was not measured separately: 10 GB/s of bus "
                                "bandwidth are assumed\n");
    }
}

rd_code forecast_change(const rd_config *config, forecast_step *m, int *per_host, rd_strbuf *notes,
                        rd_status *st)
{
    forecast_config c;
    run_config run;
    *per_host = m->ranks / m->hosts > 0 ? m->ranks / m->hosts : 1;
    RD_TRY(rd_config_read(config, &rd_group_plan, RD_MODE_PLAN, &c, st));
    RD_TRY(rd_config_read(config, &rd_group_run, RD_MODE_PLAN, &run, st));
    if (m->ranks % m->hosts != 0)
        rd_strbuf_printf(notes,
                         "the hosts had different numbers of ranks: each is assumed to have %d\n",
                         *per_host);
    if (c.has_ranks) *per_host = (int)c.ranks_per_host;
    /* The measured total between hosts includes the sum inside a host where that was not measured
     * separately. */
    const bool whole = m->hosts > 1 && m->between.measured && !m->inside.measured && !c.has_link &&
                       !c.has_latency && !c.has_ranks;
    if (whole && *per_host > 1) {
        m->inside = (forecast_link){0.0, INFINITY, true};
        rd_strbuf_printf(notes, "the sum inside a host was not measured separately: its time "
                                "counts for the link between hosts\n");
    }
    change_links(&c, m, *per_host, notes);
    if (m->hosts == 1 || rd_config_has(config, "bucket_mb"))
        m->buckets = bucket_count(m->bytes, run.bucket_mb);
    if (m->hosts == 1) {
        m->overlaps = true;
        if (m->ranks > 1) m->shared = true;
    }
    if (rd_config_has(config, "allreduce_dtype"))
        m->wire = run.allreduce_dtype == RD_WIRE_F32 ? 1.0 : 0.5;
done:
    return st->code;
}

/* ---- one line each ---- */

void forecast_describe_step(const forecast_step *m, rd_strbuf *out)
{
    const double whole = m->step_s > 0.0 ? m->step_s / 100.0 : 1.0;
    rd_strbuf_printf(
        out, "a step of %.4g s: input %.1f %%, forward %.1f %%, backward %.1f %%, update %.1f %%",
        m->step_s, m->input_s / whole, m->forward_s / whole, m->backward_s / whole,
        m->update_s / whole);
    if (m->ranks > 1)
        rd_strbuf_printf(out, ", waiting for ranks %.1f %%, communication %.1f %%",
                         m->wait_s / whole, m->exposed_s / whole);
    if (m->ranks > 1 && m->comm_s > m->exposed_s * 1.02)
        rd_strbuf_printf(out, " (%.3g of %.3g ms, backward hides the rest)", m->exposed_s * 1e3,
                         m->comm_s * 1e3);
    else if (m->ranks > 1)
        rd_strbuf_printf(out, " (%.3g ms)", m->comm_s * 1e3);
}

void forecast_describe_hosts(const forecast_step *m, rd_strbuf *out)
{
    const int per_host = m->ranks / m->hosts > 0 ? m->ranks / m->hosts : 1;
    forecast_row r;
    rd_strbuf_printf(out, "efficiency by the model of this run: ");
    for (int h = 2, k = 0; h <= 1024; h *= 2, k++) {
        forecast_at(m, h, per_host, &r);
        rd_strbuf_printf(out, "%s%d%s %.0f %%", k ? ", " : "", h, k ? "" : " hosts",
                         100.0 * r.weak);
    }
    if (!m->between.measured)
        rd_strbuf_printf(out,
                         " (no network was measured: %g Gbit/s and %g us per message are assumed)",
                         m->between.bytes_per_s * 8e-9, m->between.alpha_s * 1e6);
}
