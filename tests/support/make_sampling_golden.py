#!/usr/bin/env python3
"""make_sampling_golden.py -- tokens drawn by temperature, top-k and top-p.

    tests/support/make_sampling_golden.py > tests/ops/sampling_golden.inc

All tokens are sorted and all sums are exact fractions of doubles. Rows whose number lies within 1e-6 of the border of two
tokens are left out. Needs no module.
"""
from fractions import Fraction
from math import exp, inf, log

ROWS = {
    "p .5 .3 .15 .05": [log(p) for p in (.5, .3, .15, .05)],
    "equal ones": [0, 1, 1, -2, 1, 0, 1],
    "one without probability": [0.5, -inf, 2, 1.25, -1],
    "many": [((v * 37) % 101) / 16 - 2 for v in range(300)],
    "far apart": [-90, 0, 5, -20, 40],
}


def draw(logits, temperature, top_k, top_p, u):
    order = sorted((v for v in range(len(logits)) if logits[v] > -inf), key=lambda v: (-logits[v], v))
    if temperature == 0:
        return order[0], 1
    top = logits[order[0]]
    weight = {v: Fraction(exp((logits[v] - top) / temperature)) for v in order}
    if top_k:
        order = [v for v in order if logits[v] >= logits[order[min(top_k, len(order)) - 1]]]
    total, kept = sum(weight[v] for v in order), []
    border = inf
    for v in order:
        if kept and sum(weight[w] for w in kept) >= Fraction(top_p) * total:
            break
        kept.append(v)
        border = min(border, abs(sum(weight[w] for w in kept) / total - Fraction(top_p)) if top_p < 1 else inf)
    total, below = sum(weight[v] for v in kept), Fraction(0)
    for v in kept:
        below += weight[v]
        border = min(border, abs(below / total - Fraction(u)) if v != kept[-1] else inf)
        if below > Fraction(u) * total:
            return v, border
    return kept[-1], border


print("/* sampling_golden.inc -- made by tests/support/make_sampling_golden.py. */")
for i, row in enumerate(ROWS.values()):
    text = ["-INFINITY" if x == -inf else "%.9gf" % x if "." in "%.9g" % x or "e" in "%.9g" % x else "%.9g.0f" % x
            for x in row]
    print("static const float sampled_%d[] = {%s};" % (i, ", ".join(text)))
print("static const sample_row sample_rows[] = {")
for i, row in enumerate(ROWS.values()):
    for t in (0, 0.5, 2):
        for k in (0, 1, 3):
            for p in (1, 0.7, 0.45):
                if t == 0 and (k or p != 1):
                    continue
                for u in (0, 0.05, 0.123, 0.234, 0.345, 0.456, 0.567, 0.678, 0.789, 0.89, 0.95, 0.999999):
                    v, border = draw(row, t, k, p, u)
                    if border > 1e-6:
                        print("    {sampled_%d, %d, %g, %d, %g, %.6f, %d}," % (i, len(row), t, k, p, u, v))
print("};")
