/* forecast_model.c -- the alpha-beta model of a step on h hosts with r ranks each; arithmetic
 * alone.
 *
 * The sum of n bytes of gradients in b buckets, w bytes on the wire for each byte, takes:
 *
 *     inside a host     b a_in + 2 (r - 1) / r n / B_in    shared memory; bus bandwidth, nccl-tests
 *     between hosts     b 2 R(h) a + 2 (1 - 1/h) n w / B  each rank exchanges the slice it summed
 *
 * R(h) is the number of rounds in one direction. A step takes:
 *
 *     step    = input + forward + backward + update + waiting, as measured, + exposed
 *     exposed = inside + max(between - backward, between / b)   where backward overlaps the sum
 *     exposed = inside + between                                otherwise
 *
 * If each host updates its part (key shard), the sum ends half-way: it takes half of `between`. The
 * weights then travel as float32 after the update, which backward does not hide:
 *
 *     weights = R(h) a + (1 - 1/h) n / B
 *
 * The update on h hosts takes 1/h of that on one. GPUs sum gradients whole, and each rank updates
 * its part. Their weights also travel inside a host: a_in + (r - 1) / r n / B_in.
 *
 * The last bucket is ready only when backward is over, hence between / b. The ranks compute the sum
 * inside a host themselves, so backward does not hide it.
 *
 * Limits. Compute time does not change with h; in strong scaling it falls with the batch. Waiting
 * for the slowest rank stays as measured, though more ranks wait longer. All hosts reach each other
 * at full speed at once (no oversubscribed switch). */
#include "forecast.h"

#include <math.h>

int forecast_rounds(int hosts)
{
    int k = 0;
    if (hosts <= 1) return 0;
    while (hosts % 2 == 0) {
        hosts /= 2;
        k++;
    }
    return (k + 2) / 3 + (hosts > 1);
}

void forecast_cost(int hosts, double bytes, double wire, double *alphas, double *link_bytes)
{
    *alphas = 2.0 * forecast_rounds(hosts);
    *link_bytes = hosts > 1 ? 2.0 * (1.0 - 1.0 / hosts) * bytes * wire : 0.0;
}

double forecast_inside_bytes(int per_host, double bytes)
{
    return per_host > 1 ? 2.0 * (per_host - 1.0) / per_host * bytes : 0.0;
}

static double per_byte(const forecast_link *l, double bytes)
{
    return bytes > 0.0 && l->bytes_per_s > 0.0 ? bytes / l->bytes_per_s : 0.0;
}

static double inside_s(const forecast_step *m, int per_host)
{
    if (!m->shared || per_host == 1) return 0.0;
    return m->buckets * m->inside.alpha_s +
           per_byte(&m->inside, forecast_inside_bytes(per_host, m->bytes));
}

static double between_s(const forecast_step *m, int hosts, int per_host)
{
    double alphas, link_bytes;
    /* Without shared memory, the exchange treats every rank as a host. */
    forecast_cost(m->shared ? hosts : hosts * per_host, m->bytes, m->wire, &alphas, &link_bytes);
    return (m->shard && !m->gpu ? 0.5 : 1.0) *
           (m->buckets * alphas * m->between.alpha_s + per_byte(&m->between, link_bytes));
}

bool forecast_shares(const forecast_step *m)
{
    return m->shared && !m->gpu;
}

/* Returns the number of parts that the key shard makes. */
static int most_parts(const forecast_step *m, int hosts, int per_host)
{
    return forecast_shares(m) ? hosts : hosts * per_host;
}

/* Returns how many parts of the weights are updated. */
static int n_parts(const forecast_step *m, int hosts, int per_host)
{
    return m->shard ? most_parts(m, hosts, per_host) : 1;
}

double forecast_memory(const forecast_step *m, int hosts, int per_host, bool shard)
{
    const double ranks = forecast_shares(m) ? per_host : 1.0,
                 parts = shard ? most_parts(m, hosts, per_host) : 1.0;
    return m->weight_bytes + ranks * m->gradient_bytes + m->state_bytes / parts;
}

static double weights_s(const forecast_step *m, int hosts, int per_host)
{
    double alphas, link_bytes;
    if (!m->shard) return 0.0;
    forecast_cost(m->shared ? hosts : hosts * per_host, m->bytes, 1.0, &alphas, &link_bytes);
    const double between = 0.5 * (alphas * m->between.alpha_s + per_byte(&m->between, link_bytes));
    if (!m->gpu || !m->shared || per_host == 1) return between;
    return between + m->inside.alpha_s +
           0.5 * per_byte(&m->inside, forecast_inside_bytes(per_host, m->bytes));
}

double forecast_exchange_s(const forecast_step *m, int hosts, int per_host)
{
    return inside_s(m, per_host) + between_s(m, hosts, per_host) + weights_s(m, hosts, per_host);
}

bool forecast_fit(const double *alphas, const double *bytes, const double *seconds, int n,
                  forecast_link *out)
{
    /* Normal equations of sum over i of ((x a_i + y b_i) / t_i - 1)^2. */
    double aa = 0.0, ab = 0.0, bb = 0.0, a1 = 0.0, b1 = 0.0, x = 0.0, y = 0.0;
    int used = 0;
    for (int i = 0; i < n; i++) {
        if (!(seconds[i] > 0.0) || !isfinite(seconds[i])) continue;
        const double a = alphas[i] / seconds[i], b = bytes[i] / seconds[i];
        aa += a * a;
        ab += a * b;
        bb += b * b;
        a1 += a;
        b1 += b;
        used++;
    }
    if (used == 0 || bb <= 0.0) return false;
    const double det = aa * bb - ab * ab;
    if (det > 1e-6 * aa * bb) {
        x = (a1 * bb - b1 * ab) / det;
        y = (b1 * aa - a1 * ab) / det;
    } else {
        /* There is one size: keep the latency. On a busy machine, messages may have taken longer
         * than the whole exchange, so at most half of its time counts as latency. */
        x = aa > 0.0 ? fmin(out->alpha_s, 0.5 * a1 / aa) : out->alpha_s;
        y = (b1 - x * ab) / bb;
    }
    if (x < 0.0) {
        x = 0.0;
        y = b1 / bb;
    }
    if (y <= 0.0) return false;
    *out = (forecast_link){.alpha_s = x, .bytes_per_s = 1.0 / y, .measured = true};
    return true;
}

double forecast_calibrate(forecast_step *m)
{
    const double model_s = forecast_exchange_s(m, m->hosts, m->ranks / m->hosts),
                 f = m->comm_s / model_s;
    if (!(model_s > 0.0) || !(f > 0.0) || !isfinite(f)) return 1.0;
    for (int i = 0; i < 2; i++) {
        forecast_link *l = i == 0 ? &m->inside : &m->between;
        l->alpha_s *= f;
        l->bytes_per_s /= f;
    }
    return f;
}

/* Returns the seconds of a step without the exchange, with `share` of the measured batch on a
 * rank. */
static double own_s(const forecast_step *m, int hosts, int per_host, double share)
{
    const double parts = (double)n_parts(m, m->hosts, m->ranks / m->hosts) /
                         n_parts(m, hosts, per_host);
    return share * (m->input_s + m->forward_s + m->backward_s) + m->wait_s + parts * m->update_s +
           m->other_s;
}

static double exposed_s(const forecast_step *m, int hosts, int per_host, double backward_s)
{
    const double seconds = between_s(m, hosts, per_host),
                 rest = inside_s(m, per_host) + weights_s(m, hosts, per_host);
    if (hosts == 1 || !m->overlaps) return rest + seconds;
    return rest + fmax(seconds / m->buckets, seconds - backward_s);
}

void forecast_at(const forecast_step *m, int hosts, int per_host, forecast_row *out)
{
    const double one_comm_s = forecast_exchange_s(m, 1, per_host);
    const double comm_s = forecast_exchange_s(m, hosts, per_host);
    const int ranks = hosts * per_host;
    *out = (forecast_row){
        .hosts = hosts, .ranks = ranks, .comm_s = comm_s, .strong = NAN, .strong_step_s = NAN};
    out->exposed_s = exposed_s(m, hosts, per_host, m->backward_s);
    out->step_s = own_s(m, hosts, per_host, 1.0) + out->exposed_s;
    const double more = (double)ranks / m->ranks;
    out->samples_per_s = m->samples * more / out->step_s;
    out->units_per_s = m->units * more / out->step_s;
    out->weak = (own_s(m, 1, per_host, 1.0) + one_comm_s) / out->step_s;
    if (m->samples < ranks) return;
    const double share = 1.0 / more,
                 one = own_s(m, 1, per_host, (double)m->ranks / per_host) + one_comm_s;
    out->strong_step_s = own_s(m, hosts, per_host, share) +
                         exposed_s(m, hosts, per_host, share * m->backward_s);
    out->strong = one / (hosts * out->strong_step_s);
}
