"""Writes lines that tf_cnn_benchmarks and Horovod's synthetic benchmark print for given step times.

The formulas are theirs, in NumPy.

    python tests/support/make_bench_golden.py > tests/unit/bench_golden.inc
"""

import numpy as np


def tfcnn(units, times):
    """get_perf_timing of benchmark_cnn.py, where units are the same in every step."""
    speeds = np.array(units) / np.array(times)
    mean = np.sum(units) / np.sum(times)
    uncertainty = np.std(speeds) / np.sqrt(float(len(speeds)))
    jitter = 1.4826 * np.median(np.abs(speeds - np.median(speeds)))
    return "images/sec: %.1f +/- %.1f (jitter = %.1f)" % (mean, uncertainty, jitter)


def horovod(units, times, each, size):
    rates = [np.sum(units[i:i + each]) / np.sum(times[i:i + each]) for i in range(0, len(times), each)]
    lines = ["Iter #%d: %.1f img/sec per CPU" % (i, r) for i, r in enumerate(rates)]
    mean, conf = np.mean(rates), 1.96 * np.std(rates)
    lines.append("Img/sec per CPU: %.1f +-%.1f" % (mean, conf))
    lines.append("Total img/sec on %d CPU(s): %.1f +-%.1f" % (size, size * mean, size * conf))
    return lines


def row(name, size, display, units, times):
    shown = [i for i in range(1, len(times) + 1) if i == 1 or i % display == 0]
    step = ["%d\t%s\t%.3f" % (i, tfcnn(units[:i], times[:i]), 6.9) for i in shown]
    text = lambda lines: "".join(l.replace("\t", "\\t") + "\\n" for l in lines)
    print('{"%s", %d, %d, %d,\n {%s},\n {%s},' % (name, size, display, len(times), ", ".join("%r" % float(u) for u in units),
                                             ", ".join("%r" % float(t) for t in times)))
    print(' "%s",\n "%s"},' % (text(step), text(horovod(units, times, display, size))))


def main():
    rng = np.random.default_rng(1)
    row("one step", 1, 10, [32], [0.25])
    row("two steps", 1, 1, [32, 32], [0.25, 0.125])
    row("even number", 1, 2, [16] * 4, [0.1, 0.2, 0.4, 0.3])
    row("last iteration smaller", 2, 3, [16] * 7, [0.11, 0.1, 0.12, 0.1, 0.1, 0.35, 0.1])
    row("all alike", 4, 5, [64] * 10, [0.5] * 10)
    row("random", 8, 4, [128] * 12, np.round(rng.uniform(0.05, 0.15, 12), 6))
    row("steps of different size", 1, 3, rng.integers(100, 900, 9), np.round(rng.uniform(0.05, 0.15, 9), 6))


if __name__ == "__main__":
    main()
