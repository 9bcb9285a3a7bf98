/* forecast_record.c -- the measured step of a run, in LOGDIR/step.json when the run ends. So plan
 * mode does not need the machines again. */
#include "forecast.h"
#include "device.h"

#include "rd/clock.h"
#include "rd/ping.h"
#include "rd/file.h"
#include "rd/printable.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char file_name[] = "step.json";

/* between.alpha_s is half a round trip before the fit. */
void forecast_fit_links(const rd_run *r, forecast_step *m)
{
    double alphas[EXCHANGE_SIZES], bytes[EXCHANGE_SIZES], seconds[EXCHANGE_SIZES];
    const int per_host = m->ranks / m->hosts, hosts = m->shared ? m->hosts : m->ranks;
    const run_times *t = &r->times;
    int n = 0;
    for (int i = 0; i < t->n_sizes; i++) {
        double inside_s = 0.0;
        if (hosts > 1) {
            forecast_cost(hosts, t->sizes[i].bytes, m->wire, &alphas[n], &bytes[n]);
            if (m->shard && !m->gpu) { /* each host keeps its part of the sum */
                alphas[n] *= 0.5;
                bytes[n] *= 0.5;
            }
            if (m->inside.measured)
                inside_s = m->inside.alpha_s + forecast_inside_bytes(per_host, t->sizes[i].bytes) /
                                                   m->inside.bytes_per_s;
        } else {
            alphas[n] = 1.0;
            bytes[n] = forecast_inside_bytes(per_host, t->sizes[i].bytes);
        }
        seconds[n++] = times_exchange(&t->sizes[i]) - inside_s;
    }
    (void)forecast_fit(alphas, bytes, seconds, n, hosts > 1 ? &m->between : &m->inside);
}

void forecast_sums_start(forecast_sums *s, const rd_run *r)
{
    *s = (forecast_sums){.exchanges_before = r->times.n_exchanges};
    memcpy(s->before, r->times.seconds, sizeof s->before);
}

void forecast_sums_add(forecast_sums *s, const stepper *from, double seconds, double samples,
                       double units)
{
    s->steps++;
    s->seconds += seconds;
    s->samples += samples;
    s->units += units;
    s->comm_s += from->comm.total_s;
    s->exposed_s += from->comm.exposed_s;
    s->bytes += from->comm.bytes;
    s->sent += from->comm.wire_bytes;
    s->overlaps = from->comm.overlaps;
}

rd_code forecast_collect(rd_run *r, const forecast_sums *sums, forecast_step *m, rd_status *st)
{
    enum { N = TIMES_N + 8 };
    const run_times *t = &r->times;
    const double size = r->world->size;
    rd_clock_offset clock;
    double v[N], ping_s = 0.0;
    for (int i = 0; i < TIMES_N; i++) v[i] = t->seconds[i] - sums->before[i];
    const double own[] = {sums->seconds, sums->comm_s, sums->exposed_s, sums->bytes,
                          sums->samples, sums->units,  sums->sent,      sums->steps};
    memcpy(v + TIMES_N, own, sizeof own);
    *m = (forecast_step){
        .hosts = r->world->n_hosts,
        .ranks = r->world->size,
        .wire = r->config.allreduce_dtype == RD_WIRE_F32 ? 1.0 : 0.5,
        .optimizer_bytes = 4.0 * (double)rd_optim_kept(r->optim) * rd_optim_n_slots(r->optim),
        .weight_bytes = 4.0 * (double)rd_params_span(r->params),
        .gradient_bytes = 4.0 * (double)rd_params_grad_span(r->params),
        .state_bytes = 4.0 * (double)rd_params_trained_span(r->params) * rd_optim_n_slots(r->optim),
        .overlaps = sums->overlaps,
        .gpu = run_gpu(r) != NULL,
        .shard = r->config.shard == RUN_SHARD_OPTIMIZER};
    RD_TRY(rd_comm_max_f64(r->comm, &m->optimizer_bytes, 1, st));
    RD_TRY(rd_comm_sum_f64(r->comm, v, N, st));
    RD_TRY(rd_clock_compare(r->comm, 16, &clock, st));
    if (clock.round_ns > 0) ping_s = (double)clock.round_ns * 0.5e-9;
    RD_TRY(rd_comm_max_f64(r->comm, &ping_s, 1, st));
    const double steps = v[N - 1] > 0.0 ? v[N - 1] : 1.0; /* of all ranks */
    m->steps = steps / size;
    m->step_s = v[TIMES_N] / steps;
    m->exposed_s = v[TIMES_N + 2] / steps;
    m->comm_s = fmax(m->exposed_s, v[TIMES_N + 1] / steps);
    m->bytes = v[TIMES_N + 3] / steps;
    /* every rank has counted the samples of all ranks */
    m->samples = v[TIMES_N + 4] / steps;
    m->units = v[TIMES_N + 5] / steps;
    m->sent_bytes = v[TIMES_N + 6] / steps;
    m->input_s = v[TIMES_INPUT] / steps;
    m->forward_s = v[TIMES_FORWARD] / steps;
    m->backward_s = v[TIMES_BACKWARD] / steps;
    m->wait_s = v[TIMES_WAIT] / steps;
    m->update_s = v[TIMES_UPDATE] / steps;
    m->other_s = fmax(0.0, m->step_s - m->input_s - m->forward_s - m->backward_s - m->wait_s -
                               m->update_s - m->exposed_s);
    if (m->bytes <= 0.0) m->bytes = 4.0 * (double)rd_params_grad_span(r->params);
    m->buckets = fmax(
        1.0, sums->steps > 0.0 ? (t->n_exchanges - sums->exchanges_before) / sums->steps : 1.0);
    m->shared = r->world->size == 1 || strncmp(rd_comm_note(r->comm), "sums by messages", 16) != 0;
    m->between.alpha_s = ping_s;
    if (r->world->rank == 0) forecast_fit_links(r, m);
    RD_TRY(rd_comm_bcast(r->comm, &m->inside, sizeof m->inside, 0, st));
    RD_TRY(rd_comm_bcast(r->comm, &m->between, sizeof m->between, 0, st));
    rd_utc_text(rd_wall_s(), m->ended, sizeof m->ended);
    (void)snprintf(m->model, sizeof m->model, "%s", r->model->name);
    (void)snprintf(m->unit, sizeof m->unit, "%s", r->model->unit ? r->model->unit : "tokens");
done:
    return st->code;
}

/* ---- the file ---- */

typedef struct field {
    const char *key;
    size_t at;
} field;
#define F(name)                              \
    {                                        \
#name, offsetof(forecast_step, name) \
    }
static const field fields[] = {F(steps),  F(step_s),    F(input_s),  F(forward_s), F(backward_s),
                               F(wait_s), F(exposed_s), F(update_s), F(other_s),   F(comm_s),
                               F(bytes),  F(buckets),   F(wire),     F(samples),   F(units)};
/* Files of an earlier program lack some of these. */
static const field sizes[] = {F(optimizer_bytes), F(sent_bytes), F(weight_bytes), F(gradient_bytes),
                              F(state_bytes)};
#undef F
enum { N_FIELDS = sizeof fields / sizeof *fields, N_SIZES = sizeof sizes / sizeof *sizes };

static json_t *link_to_json(const forecast_link *l)
{
    if (!l->measured || !isfinite(l->bytes_per_s)) return json_null();
    return json_pack("{s:f, s:f}", "alpha_s", l->alpha_s, "bytes_per_s", l->bytes_per_s);
}

json_t *forecast_to_json(const forecast_step *m)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:i, s:i, s:b, s:b, s:b, s:b}", "model", m->model,
                          "unit", m->unit, "ended", m->ended, "hosts", m->hosts, "ranks", m->ranks,
                          "overlaps", (int)m->overlaps, "shared", (int)m->shared, "shard",
                          (int)m->shard, "gpu", (int)m->gpu);
    for (int i = 0; o && i < N_SIZES; i++) {
        double v;
        memcpy(&v, (const char *)m + sizes[i].at, sizeof v);
        (void)json_object_set_new(o, sizes[i].key, json_real(v));
    }
    for (int i = 0; o && i < N_FIELDS; i++) {
        double v;
        memcpy(&v, (const char *)m + fields[i].at, sizeof v);
        (void)json_object_set_new(o, fields[i].key, isfinite(v) ? json_real(v) : json_null());
    }
    if (o) (void)json_object_set_new(o, "inside", link_to_json(&m->inside));
    if (o) (void)json_object_set_new(o, "between", link_to_json(&m->between));
    return o;
}

rd_code forecast_write(const forecast_step *m, const char *logdir, rd_status *st)
{
    char path[4200], *text = NULL;
    json_t *o = forecast_to_json(m);
    if (o) text = json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(o);
    (void)snprintf(path, sizeof path, "%.4000s/%s", logdir, file_name);
    if (!text) return rd_fail(st, RD_EENV, "out of memory for %.256s", path);
    (void)rd_file_write_atomic(path, text, strlen(text), st);
    free(text);
    return st->code;
}

static bool read_link(const json_t *o, forecast_link *l)
{
    const json_t *a = json_object_get(o, "alpha_s"), *b = json_object_get(o, "bytes_per_s");
    *l = (forecast_link){0};
    if (json_is_null(o)) return true;
    if (!json_is_number(a) || !json_is_number(b)) return false;
    *l = (forecast_link){json_number_value(a), json_number_value(b), true};
    return isfinite(l->alpha_s) && l->alpha_s >= 0.0 && isfinite(l->bytes_per_s) &&
           l->bytes_per_s > 0.0;
}

static bool read_step(const json_t *o, forecast_step *m)
{
    const char *model = json_string_value(json_object_get(o, "model")),
               *unit = json_string_value(json_object_get(o, "unit"));
    const char *ended = json_string_value(json_object_get(o, "ended"));
    const json_t *hosts = json_object_get(o, "hosts"), *ranks = json_object_get(o, "ranks");
    if (!model || !unit || !json_is_integer(hosts) || !json_is_integer(ranks)) return false;
    (void)rd_printable(model, strlen(model), false, m->model, sizeof m->model);
    (void)rd_printable(unit, strlen(unit), false, m->unit, sizeof m->unit);
    if (ended) (void)rd_printable(ended, strlen(ended), false, m->ended, sizeof m->ended);
    const json_int_t n_hosts = json_integer_value(hosts), n_ranks = json_integer_value(ranks);
    if (n_hosts < 1 || n_ranks < n_hosts || n_ranks > 1 << 24 || n_ranks / n_hosts > 1 << 20)
        return false;
    m->hosts = (int)n_hosts;
    m->ranks = (int)n_ranks;
    m->overlaps = json_is_true(json_object_get(o, "overlaps"));
    m->shared = json_is_true(json_object_get(o, "shared"));
    m->shard = json_is_true(json_object_get(o, "shard"));
    m->gpu = json_is_true(json_object_get(o, "gpu"));
    for (int i = 0; i < N_SIZES; i++) {
        const double x = json_number_value(json_object_get(o, sizes[i].key));
        if (x > 0.0) memcpy((char *)m + sizes[i].at, &x, sizeof x);
    }
    for (int i = 0; i < N_FIELDS; i++) {
        const json_t *v = json_object_get(o, fields[i].key);
        const double x = json_number_value(v);
        if (!json_is_number(v) || !(x >= 0.0) || !isfinite(x)) return false;
        memcpy((char *)m + fields[i].at, &x, sizeof x);
    }
    return m->step_s > 0.0 && m->wire > 0.0 && m->buckets >= 1.0 &&
           read_link(json_object_get(o, "inside"), &m->inside) &&
           read_link(json_object_get(o, "between"), &m->between);
}

rd_code forecast_read(const char *logdir, forecast_step *out, rd_status *st)
{
    char path[4200], *text = NULL;
    size_t n = 0;
    json_error_t error;
    json_t *o = NULL;
    *out = (forecast_step){0};
    (void)snprintf(path, sizeof path, "%.4000s/%s", logdir, file_name);
    if (rd_file_read(path, RD_EUSAGE, &text, &n, st) != RD_OK) {
        rd_status_prefix(st, "no measured step to plan from (a training of ten steps or more "
                             "leaves one when it ends)");
        goto done;
    }
    o = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (!o || !read_step(o, out))
        rd_fail(st, RD_EDATA,
                "%.512s is not what a training leaves there; train again, or measure with "
                "--config_file=FILE",
                path);
done:
    json_decref(o);
    free(text);
    return st->code;
}
