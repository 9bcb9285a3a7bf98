#!/usr/bin/env python3
"""Writes tests/unit/plan_golden.inc: predictions of the alpha-beta model of plan mode, computed without run_dist.

The formulas are written down again here from the literature, as sums over the messages that a rank sends, not as the closed
forms of runner/run/forecast_model.c: a sum over 2^k hosts by exchanges of halves in radix 8 (Thakur, Rabenseifner and Gropp 2005),
the busiest host's bytes counted message by message. The fits are numpy.linalg.lstsq.

    python3 tests/support/make_plan_golden.py > tests/unit/plan_golden.inc
"""
import math

import numpy as np


def radices(hosts):
    """Factors: 8 as often as possible for the power of two, then the rest at once."""
    out, odd = [], hosts
    while odd % 2 == 0:
        odd //= 2
    two = hosts // odd
    while two > 1:
        out.append(min(8, two))
        two //= out[-1]
    if odd > 1:
        out.append(odd)
    return out


def messages(hosts, bytes_):
    """Rounds, and bytes that a rank sends: scatter-reduce, then gather."""
    rounds, sent, part = 0, 0.0, bytes_
    for radix in radices(hosts):
        sent += (radix - 1) * part / radix
        part /= radix
        rounds += 1
    for radix in reversed(radices(hosts)):
        sent += (radix - 1) * part
        part *= radix
        rounds += 1
    return rounds, sent


def halves(hosts, bytes_):
    """Rounds and bytes of the scatter-reduce, and of the gather."""
    out = []
    for way in (radices(hosts), list(reversed(radices(hosts)))):
        sent, part = 0.0, float(bytes_) if not out else bytes_ / hosts
        for radix in way:
            if not out:
                sent += (radix - 1) * part / radix
                part /= radix
            else:
                sent += (radix - 1) * part
                part *= radix
        out.append((len(way), sent))
    return out


def exchange(m, hosts, per_host):
    """Time inside a host, between hosts, and of the weights after the update. With shard, gradients are only scattered, and
    weights are gathered as float32. GPUs get the whole sums, and gather weights inside a host, too."""
    t = 0.0
    if per_host > 1:
        t += m["buckets"] * m["in_alpha"] + 2 * (per_host - 1) / per_host * m["bytes"] / m["in_beta"]
    if m.get("gpu"):
        rounds, sent = messages(hosts, m["bytes"] * m["wire"])
        after, gathered = halves(hosts, m["bytes"])[1]
        w = after * m["alpha"] + gathered / m["beta"]
        if per_host > 1:
            w += m["in_alpha"] + sum(m["bytes"] / per_host for _ in range(per_host - 1)) / m["in_beta"]
        return t, m["buckets"] * rounds * m["alpha"] + sent / m["beta"], w
    if m.get("shard"):
        rounds, sent = halves(hosts, m["bytes"] * m["wire"])[0]
        after, gathered = halves(hosts, m["bytes"])[1]
        return t, m["buckets"] * rounds * m["alpha"] + sent / m["beta"], after * m["alpha"] + gathered / m["beta"]
    rounds, sent = messages(hosts, m["bytes"] * m["wire"])
    return t, m["buckets"] * rounds * m["alpha"] + sent / m["beta"], 0.0


def step(m, hosts, per_host, share):
    inside, between, weights = exchange(m, hosts, per_host)
    comm = inside + between + weights
    exposed = comm
    if hosts > 1 and m["overlaps"]:
        exposed = inside + max(between / m["buckets"], between - share * m["backward"]) + weights
    update = m["update"] * m["hosts"] / hosts if m.get("shard") else m["update"]
    work = share * (m["input"] + m["forward"] + m["backward"]) + m["wait"] + update + m["other"]
    return comm, exposed, work + exposed


def show(x):
    return "NAN" if math.isnan(x) else repr(float(x))


runs = [
    dict(hosts=1, ranks=2, input=0.002, forward=0.1, backward=0.2, wait=0.003, update=0.01, other=0.001, bytes=96e6, buckets=24,
         wire=1.0, samples=128, units=5000, overlaps=1, in_alpha=2e-6, in_beta=20e9, alpha=30e-6, beta=1.25e9),
    dict(hosts=2, ranks=8, input=0.0, forward=0.02, backward=0.04, wait=0.001, update=0.004, other=0.0, bytes=400e6, buckets=98,
         wire=0.5, samples=512, units=512, overlaps=1, in_alpha=9e-6, in_beta=8e9, alpha=120e-6, beta=0.118e9),
    dict(hosts=3, ranks=3, input=0.05, forward=0.3, backward=0.6, wait=0.0, update=0.02, other=0.0, bytes=10e6, buckets=3, wire=1.0,
         samples=30, units=900, overlaps=0, in_alpha=0.0, in_beta=1.0, alpha=5e-6, beta=12.5e9),
    dict(hosts=4, ranks=8, input=0.001, forward=0.2, backward=0.4, wait=0.002, update=0.03, other=0.0, bytes=500e6, buckets=60,
         wire=0.5, samples=256, units=9000, overlaps=1, in_alpha=3e-6, in_beta=9e9, alpha=40e-6, beta=1.25e9, shard=True),
    dict(hosts=2, ranks=16, input=0.001, forward=0.02, backward=0.05, wait=0.002, update=0.004, other=0.0, bytes=500e6, buckets=20,
         wire=0.5, samples=256, units=9000, overlaps=1, in_alpha=8e-6, in_beta=200e9, alpha=20e-6, beta=40e9, shard=True, gpu=True),
]
print("/* Written by tests/support/make_plan_golden.py. */")
print("#ifdef PLAN_ROUNDS")
for hosts in list(range(1, 18)) + [24, 32, 48, 64, 96, 100, 128, 256, 512, 1000, 1024]:
    rounds, sent = messages(hosts, 1.0)
    print(f"{{{hosts}, {rounds}.0, {show(sent)}}},")
print("#endif\n#ifdef PLAN_RUNS")
for m in runs:
    per_host = m["ranks"] // m["hosts"]
    print("{{.hosts = %d, .ranks = %d, .steps = 20, .step_s = 1, .input_s = %r, .forward_s = %r, .backward_s = %r, .wait_s = %r,"
          % (m["hosts"], m["ranks"], m["input"], m["forward"], m["backward"], m["wait"]))
    print("  .update_s = %r, .other_s = %r, .bytes = %r, .buckets = %d, .wire = %r, .samples = %d, .units = %d, .overlaps = %d,"
          % (m["update"], m["other"], m["bytes"], m["buckets"], m["wire"], m["samples"], m["units"], m["overlaps"]))
    print("  .shared = true, .inside = {%r, %r, true}, .between = {%r, %r, true}%s}," % (m["in_alpha"], m["in_beta"], m["alpha"], m["beta"],
          (", .shard = true" if m.get("shard") else "") + (", .gpu = true" if m.get("gpu") else "")))
    print(" {")
    for h in [2 ** k for k in range(11)]:
        comm, exposed, s = step(m, h, per_host, 1.0)
        one = step(m, 1, per_host, 1.0)[2]
        ranks = h * per_host
        strong_s = strong = float("nan")
        if m["samples"] >= ranks:
            strong_s = step(m, h, per_host, m["ranks"] / ranks)[2]
            strong = step(m, 1, per_host, m["ranks"] / per_host)[2] / (h * strong_s)
        row = [comm, exposed, s, m["samples"] * ranks / m["ranks"] / s, m["units"] * ranks / m["ranks"] / s, one / s, strong_s, strong]
        print("  {%d, %d, %s}," % (h, ranks, ", ".join(show(x) for x in row)))
    print(" }},")
print("#endif\n#ifdef PLAN_FITS")
rng = np.random.default_rng(7)
for name, hosts, alpha, beta, noise in [("exact", 2, 3e-5, 1.2e8, 0.0), ("exact, 8 hosts", 8, 5e-6, 1.2e10, 0.0),
                                        ("a twentieth of noise", 4, 1e-4, 1e9, 0.05), ("no latency to see", 2, 0.0, 1e8, 0.0)]:
    sizes = 4.0 ** np.arange(7, 14)
    cost = [messages(hosts, b) for b in sizes]
    a, b = np.array([c[0] for c in cost], float), np.array([c[1] for c in cost])
    t = (a * alpha + b / beta) * (1 + noise * rng.standard_normal(len(sizes)))
    x = np.linalg.lstsq(np.stack([a / t, b / t], 1), np.ones(len(t)), rcond=None)[0]
    print('{"%s", %s, %s,' % (name, show(max(x[0], 0.0)), show(1 / x[1])))
    for v in (a, b, t):
        print(" {%s}," % ", ".join(show(y) for y in v))
    print("},")
print("#endif")
