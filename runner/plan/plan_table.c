/* plan_table.c -- the keys of plan mode, what they change in a measured step, and the answer as a table or as JSON. */
#include "../run/forecast.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is taken for a link that was not measured: good Ethernet, and memory as a small machine has it. */
static const plan_link some_ethernet = {30e-6, 1.25e9, false}, some_memory = {5e-6, 1e10, false};

static const rd_option rows[] = {
    {.key = "link_gbit",
     .type = RD_REAL,
     .at = offsetof(plan_config, link_gbit),
     .given_at = offsetof(plan_config, has_link),
     .min = 1e-6,
     .max = 1e6,
     .help = "plan mode: Gbit/s of a host's network, in place of what was measured"},
    {.key = "latency_us",
     .type = RD_REAL,
     .at = offsetof(plan_config, latency_us),
     .given_at = offsetof(plan_config, has_latency),
     .min = 0,
     .max = 1e9,
     .help = "plan mode: microseconds that a message between hosts takes, in place of what was "
             "measured"},
    {.key = "ranks_per_host",
     .type = RD_INT,
     .at = offsetof(plan_config, ranks_per_host),
     .given_at = offsetof(plan_config, has_ranks),
     .min = 1,
     .max = 4096,
     .help = "plan mode: ranks on a host; default: as measured"},
    RD_OPT_END};

const rd_option_group rd_group_plan = {"plan", "Plan mode: the cluster that is asked about", rows,
                                       sizeof(plan_config)};

/* ---- another cluster ---- */

/* Buckets as the exchange cuts them: the first one is small. */
static double bucket_count(double bytes, double bucket_mb)
{
    const double mb = 1048576.0;
    return bytes <= mb ? 1.0 : 1.0 + ceil((bytes - mb) / (bucket_mb * mb));
}

static double plan_table_number_of(const rd_config *c, const char *key, double dflt)
{
    const json_t *v = rd_config_get(c, key);
    return json_is_number(v) ? json_number_value(v) : dflt;
}

static void change_links(const plan_config *c, plan_run *m, int per_host, rd_strbuf *notes)
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
        rd_strbuf_printf(notes, "no link between hosts was measured: one of 10 Gbit/s and 30 us is "
                                "taken; --link_gbit and "
                                "--latency_us name another\n");
    }
    if (!m->inside.measured && per_host > 1 && m->shared) {
        m->inside = some_memory;
        rd_strbuf_printf(notes, "the sum inside a host was not measured by itself: 10 GB/s of bus "
                                "bandwidth are taken\n");
    }
}

rd_code plan_change(const rd_config *config, plan_run *m, int *per_host, rd_strbuf *notes,
                    rd_status *st)
{
    plan_config c;
    *per_host = m->ranks / m->hosts > 0 ? m->ranks / m->hosts : 1;
    RD_TRY(rd_config_read(config, &rd_group_plan, RD_MODE_PLAN, &c, st));
    if (m->ranks % m->hosts != 0)
        rd_strbuf_printf(notes, "the hosts had different numbers of ranks: %d each are taken\n",
                         *per_host);
    if (c.has_ranks) *per_host = (int)c.ranks_per_host;
    /* The measured total between hosts holds what is inside a host, where that was not told apart. */
    const bool whole = m->hosts > 1 && m->between.measured && !m->inside.measured && !c.has_link &&
                       !c.has_latency && !c.has_ranks;
    if (whole && *per_host > 1) {
        m->inside = (plan_link){0.0, INFINITY, true};
        rd_strbuf_printf(notes, "the sum inside a host was not told apart: its time counts for the "
                                "link between hosts\n");
    }
    change_links(&c, m, *per_host, notes);
    if (m->hosts == 1 || rd_config_has(config, "bucket_mb"))
        m->buckets = bucket_count(m->bytes, plan_table_number_of(config, "bucket_mb", 4.0));
    if (m->hosts == 1) {
        m->overlaps = true;
        if (m->ranks > 1) m->shared = true;
    }
    if (rd_config_has(config, "allreduce_dtype")) {
        const char *type = json_string_value(rd_config_get(config, "allreduce_dtype"));
        m->wire = !type || strcmp(type, "float32") == 0 ? 1.0 : 0.5;
    }
done:
    return st->code;
}

/* ---- lines ---- */

void plan_shares(const plan_run *m, rd_strbuf *out)
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

void plan_short(const plan_run *m, rd_strbuf *out)
{
    const int per_host = m->ranks / m->hosts > 0 ? m->ranks / m->hosts : 1;
    plan_row r;
    rd_strbuf_printf(out, "efficiency by the model of this run: ");
    for (int h = 2, k = 0; h <= 1024; h *= 2, k++) {
        plan_at(m, h, per_host, &r);
        rd_strbuf_printf(out, "%s%d%s %.0f %%", k ? ", " : "", h, k ? "" : " hosts",
                         100.0 * r.weak);
    }
    if (!m->between.measured)
        rd_strbuf_printf(out, " (no network was measured: %g Gbit/s and %g us a message are taken)",
                         m->between.bytes_per_s * 8e-9, m->between.alpha_s * 1e6);
}

static void say_link(FILE *out, const char *where, const plan_link *l, const char *of)
{
    if (isinf(l->bytes_per_s)) return;
    (void)fprintf(out, "%s: %.3g us a message, %.3g GB/s%s (%s)\n", where, l->alpha_s * 1e6,
                  l->bytes_per_s * 1e-9, of, l->measured ? "fitted to this run" : "given or taken");
}

/* measured: as it was; m: with what is asked. */
static void print_table(const plan_run *measured, const plan_run *m, int per_host,
                        const char *notes, FILE *out)
{
    rd_strbuf line = {0};
    plan_row r;
    plan_shares(measured, &line);
    (void)fprintf(out, "measured: %s on %d host%s, %d rank%s\n%s\n", m->model, m->hosts,
                  RD_S(m->hosts), m->ranks, RD_S(m->ranks), rd_strbuf_str(&line));
    rd_strbuf_release(&line);
    if (measured->between.measured && measured->comm_s > 0.0)
        (void)fprintf(
            out, "an exchange took %.4g ms, and takes %.4g ms by the model\n",
            measured->comm_s * 1e3,
            plan_exchange_s(measured, measured->hosts, measured->ranks / measured->hosts) * 1e3);
    (void)fprintf(out,
                  "\ngradients: %.4g MB in %.0f bucket%s, %s bytes a number between hosts, %s\n",
                  m->bytes * 1e-6, m->buckets, RD_S((int)m->buckets), m->wire < 1.0 ? "2" : "4",
                  m->overlaps ? "summed while backward runs" : "summed after backward");
    say_link(out, "between hosts", &m->between, "");
    if (per_host > 1 && m->shared) say_link(out, "inside a host", &m->inside, " of bus bandwidth");
    (void)fprintf(out, "%s\n%6s %6s %11s %11s %11s %14s %8s %8s\n", notes, "hosts", "ranks",
                  "step s", "exchange s", "exposed s", m->unit, "weak", "strong");
    (void)fprintf(out, "%6s %6s %11s %11s %11s %14s %8s %8s\n", "", "", "", "", "", "per second",
                  "scaling", "scaling");
    for (int h = 1; h <= 1 << (PLAN_ROWS - 1); h *= 2) {
        char strong[32] = "-";
        plan_at(m, h, per_host, &r);
        if (isfinite(r.strong)) (void)snprintf(strong, sizeof strong, "%.1f %%", 100.0 * r.strong);
        (void)fprintf(out, "%6d %6d %11.4g %11.4g %11.4g %14.5g %6.1f %% %8s\n", r.hosts, r.ranks,
                      r.step_s, r.comm_s, r.exposed_s, r.units_per_s, 100.0 * r.weak, strong);
    }
    (void)fprintf(out,
                  "\nweak scaling: the batch of a rank stays; strong: the global batch of the "
                  "measured run, %.0f "
                  "samples. Both against "
                  "one host.\nThe model: alpha + bytes / bandwidth for each round of messages; "
                  "exposed is what "
                  "backward does not hide. "
                  "It knows\nno switch that hosts share, no rank that is slower than those "
                  "measured, and no batch that "
                  "is too small to be "
                  "fast.\n",
                  m->samples);
}

static void plan_table_put(json_t *o, const char *key, double v)
{
    (void)json_object_set_new(o, key, isfinite(v) ? json_real(v) : json_null());
}

static rd_code print_json(const plan_run *measured, const plan_run *m, int per_host, FILE *out,
                          rd_status *st)
{
    json_t *o = json_object(), *list = json_array();
    char *text = NULL;
    (void)json_object_set_new(o, "measured", plan_to_json(measured));
    (void)json_object_set_new(o, "ranks_per_host", json_integer(per_host));
    plan_table_put(o, "latency_s", m->between.alpha_s);
    plan_table_put(o, "link_bytes_per_s", m->between.bytes_per_s);
    plan_table_put(o, "measured_comm_s_model",
                   plan_exchange_s(measured, measured->hosts, measured->ranks / measured->hosts));
    for (int h = 1; h <= 1 << (PLAN_ROWS - 1); h *= 2) {
        plan_row r;
        plan_at(m, h, per_host, &r);
        json_t *row = json_pack("{s:i, s:i}", "hosts", r.hosts, "ranks", r.ranks);
        plan_table_put(row, "step_s", r.step_s);
        plan_table_put(row, "comm_s", r.comm_s);
        plan_table_put(row, "exposed_s", r.exposed_s);
        plan_table_put(row, "samples_per_s", r.samples_per_s);
        plan_table_put(row, "units_per_s", r.units_per_s);
        plan_table_put(row, "weak", r.weak);
        plan_table_put(row, "strong_step_s", r.strong_step_s);
        plan_table_put(row, "strong", r.strong);
        (void)json_array_append_new(list, row);
    }
    (void)json_object_set_new(o, "hosts", list);
    text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(o);
    if (!text) return rd_fail(st, RD_EENV, "out of memory for the plan");
    (void)fprintf(out, "%s\n", text);
    free(text);
    return RD_OK;
}

rd_code plan_print(rd_run *r, plan_run *m, FILE *out, rd_status *st)
{
    const plan_run measured = *m;
    rd_strbuf notes = {0};
    int per_host = 1;
    RD_TRY(plan_change(r->config, m, &per_host, &notes, st));
    if (r->cli->json)
        RD_TRY(print_json(&measured, m, per_host, out, st));
    else
        print_table(&measured, m, per_host, rd_strbuf_str(&notes), out);
    /* A reader that has seen enough (`| head`) is no failure. */
    if ((fflush(out) != 0 || ferror(out)) && errno != EPIPE)
        rd_fail(st, RD_EENV, "cannot write the plan to standard output");
done:
    rd_strbuf_release(&notes);
    return st->code;
}
