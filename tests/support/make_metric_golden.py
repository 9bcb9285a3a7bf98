#!/usr/bin/env python3
"""Prints tests/unit/metric_golden.inc: synthetic sentence pairs with the scores that other programs give them.

    python3 tests/support/make_metric_golden.py > tests/unit/metric_golden.inc

BLEU is sacreBLEU's (tokenize none, smooth none: the numbers of multi-bleu.perl); Eval_BLEU_Score is NLTK 3.2.4's
corpus_bleu with emulate_multibleu, as OpenSeq2Seq called it; edit distances are rapidfuzz's. Needs sacrebleu,
nltk==3.2.4, rapidfuzz.
"""
import inspect
import random

if not hasattr(inspect, "formatargspec"):  # NLTK 3.2.4 needs it at its import; Python 3.11 has removed it
    inspect.formatargspec = lambda *a, **k: ""

import nltk
import rapidfuzz
import sacrebleu
from nltk.translate.bleu_score import corpus_bleu
from rapidfuzz.distance import Levenshtein
from sacrebleu.metrics import BLEU

assert nltk.__version__ == "3.2.4", nltk.__version__


def noisy(rng, words, vocab, rate):
    out = []
    for w in words:
        x = rng.random()
        if x < rate / 3:
            continue
        if x < 2 * rate / 3:
            out.append(rng.choice(vocab))
        else:
            out.append(w)
            if x > 1 - rate / 3:
                out.append(rng.choice(vocab))
    return out


def corpus(seed, n, longest, n_words, rate, shortest=1):
    rng = random.Random(seed)
    vocab = ["w%d" % k for k in range(n_words)]
    refs = [[rng.choice(vocab) for _ in range(rng.randint(shortest, longest))] for _ in range(n)]
    return [noisy(rng, r, vocab, rate) for r in refs], refs


def fixed(text):
    hyps, refs = zip(*(line.split("|") for line in text.strip().split("\n")))
    return [h.split() for h in hyps], [r.split() for r in refs]


CASES = [
    ("near", *corpus(1, 12, 20, 9, 0.2)),
    ("far", *corpus(2, 12, 20, 6, 0.6)),
    ("short sentences", *corpus(3, 20, 5, 3, 0.3)),
    ("repeated words", *corpus(4, 10, 25, 2, 0.3)),
    ("equal", *([corpus(5, 6, 12, 20, 0.0)[1]] * 2)),
    ("too short a hypothesis", *fixed("a b c d e|a b c d e f g h\na b c d|a b c d e f")),
    ("too long a hypothesis", *fixed("a b c d e f g h|a b c d e\nx a b c d y|a b c d")),
    ("no match of four", *fixed("a b c x d e f|a b c y d e f")),
    ("no word right", *fixed("a b c d e|v w x y z")),
    ("an empty hypothesis among others", *fixed("|a b\na b c d e|a b c d e")),
    ("an empty reference among others", *fixed("a b|\na b c d e|a b c d e")),
    ("empty hypotheses alone", *fixed("|a b\n|a")),
    ("case counts", *fixed("The Cat sat on the mat today|the cat sat on the mat today")),
    ("bytes of many", *fixed("\u03b1\u03b2 \u03b3 d e f|\u03b1\u03b2 \u03b3 d e g")),
]


def c_string(words):
    return '"%s"' % " ".join(words)


def main():
    print("/* Written by tests/support/make_metric_golden.py with sacreBLEU %s, NLTK %s, rapidfuzz %s. */"
          % (sacrebleu.__version__, nltk.__version__, rapidfuzz.__version__))
    bleu = BLEU(tokenize="none", smooth_method="none", force=True)
    rows = []
    for k, (name, hyps, refs) in enumerate(CASES):
        b = bleu.corpus_score([" ".join(h) for h in hyps], [[" ".join(r) for r in refs]])
        score = corpus_bleu([[r] for r in refs], hyps, emulate_multibleu=True)
        edits = sum(Levenshtein.distance(h, r) for h, r in zip(hyps, refs))
        print("static const char *const pairs_%d[][2] = {" % k)
        for h, r in zip(hyps, refs):
            print("    { %s,\n      %s }," % (c_string(h), c_string(r)))
        print("};")
        rows.append('    { "%s", pairs_%d, %d, { %s }, { %s }, %d, %d, %.10f, %.10f, %.4f, %d, %d },' % (
            name, k, len(hyps), ", ".join(map(str, b.counts)), ", ".join(map(str, b.totals)), b.sys_len, b.ref_len, b.score, b.bp,
            score, edits, sum(h != r for h, r in zip(hyps, refs))))
    print("static struct golden {\n    const char *name;\n    const char *const (*pairs)[2];\n    int n;\n"
          "    int64_t match[4], total[4], hyp_len, ref_len;\n    double bleu, bp, eval_bleu_score;\n    int64_t edits, wrong;\n"
          "} golden[] = {")
    print("\n".join(rows))
    print("};")


if __name__ == "__main__":
    main()
