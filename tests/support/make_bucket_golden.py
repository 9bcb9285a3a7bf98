#!/usr/bin/env python3
"""make_bucket_golden.py -- the buckets and batch sizes of Sockeye 1, 2 and 3.1.

    tests/support/make_bucket_golden.py > tests/unit/bucket_golden.inc

Needs no module. Python's own round() and integer division are those of Sockeye. Lists are built step by step here,
with repeated pairs removed at the end; the program computes each limit.
"""


def one_side(most, width):
    """width, 2 width, ... and the longest length as the last."""
    out = []
    while not out or out[-1] < most:
        out.append(min((out[-1] if out else 0) + width, most))
    return out


def pairs(most, width, ratio):
    source = one_side(most[0], max(1, int(round(width / ratio))) if ratio >= 1 else width)
    target = one_side(most[1], max(1, int(round(width * ratio))) if ratio < 1 else width)
    while len(source) < len(target):
        source.append(source[-1])
    while len(target) < len(source):
        target.append(target[-1])
    found = {(max(2, s), max(2, t)): None for s, t in zip(source, target)}
    return sorted(found)


def batches(kind, buckets, means, words, multiple):
    out, most = [], 0
    for (s, t), mean in zip(buckets, means):
        if kind == "SOCKEYE_3_MAX_WORD":
            out.append(max(words // max(s, t) // multiple, 1) * multiple)
            continue
        out.append(multiple * max(1, round(words / (mean or t) / multiple)))
        most = max(most, out[-1] * max(s, t))
    while kind == "SOCKEYE" and out[-1] * max(buckets[-1]) < most:
        out[-1] += multiple
    return out


PAIRS = [((100, 100), 10, 1), ((96, 96), 8, 1), ((10, 10), 3, 1), ((100, 100), 10, 1.25), ((100, 100), 10, 0.8),
         ((50, 100), 10, 2), ((20, 20), 10, 4), ((102, 97), 8, 0.4375), ((7, 64), 10, 13), ((1, 1), 10, 1),
         ((30, 20), 1, 1.7), ((40, 40), 10, 0.35)]
LONG = [8.3, 15.2, 24.9, 34.7, 44.6, 54.5, 64.3, 74.4, 84.2, 94.1]
NARROW = [6.6, 12.3, 20.2, 28.1, 36.2, 44.1, 52.3, 60.2, 68.2, 76.1, 84.2, 92.1]
BATCHES = [("SOCKEYE", 100, 10, [0] * 10, 4096, 1), ("SOCKEYE", 100, 10, LONG, 4096, 1), ("SOCKEYE", 100, 10, LONG, 4096, 4),
           ("SOCKEYE_3_WORD", 96, 8, NARROW, 4096, 1), ("SOCKEYE_3_WORD", 96, 8, NARROW, 4096, 8),
           ("SOCKEYE_3_MAX_WORD", 96, 8, NARROW, 4096, 1), ("SOCKEYE_3_MAX_WORD", 96, 8, NARROW, 4096, 8),
           ("SOCKEYE", 100, 10, LONG, 60, 1), ("SOCKEYE_3_MAX_WORD", 96, 8, NARROW, 60, 8),
           ("SOCKEYE", 100, 10, LONG[:4] + [0, 0] + LONG[6:], 20000, 3)]


def braces(x):
    return "{%s}" % ", ".join(map(str, x))


def main():
    print("/* bucket_golden.inc -- made by tests/support/make_bucket_golden.py. */")
    print("static const pairs_row pairs_rows[] = {")
    for most, width, ratio in PAIRS:
        found = pairs(most, width, ratio)
        print('    {"buckets of %d and %d, width %d, ratio %g", {%d, %d}, %d, %r, %d,\n     {%s,\n      %s}},' % (
            *most, width, ratio, *most, width, float(ratio), len(found), braces(s for s, _ in found),
            braces(t for _, t in found)))
    print("};\nstatic const batches_row batches_rows[] = {")
    for kind, most, width, means, words, multiple in BATCHES:
        buckets = pairs((most, most), width, 1)
        print('    {"%s, %d words, multiple of %d%s", RD_BUCKETS_%s, %d, %d, %d, %d, %d,\n     %s,\n     %s},' % (
            kind.lower(), words, multiple, "" if any(means) else ", no means", kind, most, width, words, multiple, len(means),
            braces(map(float, means)), braces(batches(kind, buckets, means, words, multiple))))
    print("};")


main()
