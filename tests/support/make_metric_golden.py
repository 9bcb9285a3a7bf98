#!/usr/bin/env python3
"""Prints tests/unit/metric_golden.inc: synthetic sentence pairs with the scores that other programs give them.

    python3 tests/support/make_metric_golden.py > tests/unit/metric_golden.inc

BLEU is sacreBLEU's (tokenize none, smooth none: the numbers of multi-bleu.perl); Eval_BLEU_Score is NLTK 3.2.4's
corpus_bleu with emulate_multibleu, as OpenSeq2Seq called it; edit distances are rapidfuzz's. The second table has
sacreBLEU's figures with its own defaults: BLEU (tokenizer 13a, smoothing exp) and chrF2, also with several references,
and the third the words of its tokenizer 13a. Bytes that are not UTF-8 are read as Python's surrogateescape does.
Needs sacrebleu==2.6.0, nltk==3.2.4, rapidfuzz.
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
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

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


HELLO = "Hello, world! It's 3.14% of $1,000 (approx.) - e-mail: a@b.com"
PUNCTUATION = "Hello , world ! It 's 3.14 % of $ 1,000 ( approx. ) - e-mail : a@b.com"
SPACES = "".join(map(chr, [9, 11, 12, 13, 28, 29, 30, 31, 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029,
                           0x202F, 0x205F, 0x3000]))
NO_SPACES = "\x01\x1b\x7f\u0084\u00a1\u180e\u200b\u200d\u2027\u202a\u2060\u3001\ufeff"


def noise(rng, most):
    """Punctuation, digits, entities, spaces, characters of 1 to 4 bytes and bytes that are not UTF-8."""
    parts = list(".,-.,-0159 abc  &<>\"'{}~[]^_`!#$%()*+:;=?@/\\|") + ["&quot;", "&amp;", "&lt;", "&gt;", "<skipped>", "&amp;lt;"]
    parts += list(SPACES[9:]) + list("\u00e4\u00df\u0661\u20ac\u3042\u4e2d\U0001f600\u2019\u2026") + ["\udcff", "\udce2\udc80", "\udced\udca0\udc80"]
    return "".join(rng.choice(parts) for _ in range(rng.randint(0, most)))


def noisy_lines(seed, n, most, n_refs):
    """Lines of noise, with references that have a part in common with them."""
    rng = random.Random(seed)
    rows = []
    for _ in range(n):
        h = noise(rng, most)
        cut = [rng.randint(0, len(h)) for _ in range(n_refs)]
        rows.append((h, *(h[:c] + noise(rng, 6) + h[c + 2:] for c in cut)))
    return rows


def written(seed, n, n_refs):
    """Sentences as people write them: words with punctuation, and references that differ in words."""
    rng = random.Random(seed)
    vocab = ["the", "The", "cat,", "dog.", "it's", "3.5", "1,000", "(approx.)", "x-ray", "5-6", "U.S.", "na\u00efve", "\u201cso\u201d", "&amp;"]
    refs = [[rng.choice(vocab) for _ in range(rng.randint(1, 15))] for _ in range(n)]
    return [(" ".join(noisy(rng, r, vocab, 0.3)), *(" ".join(noisy(rng, r, vocab, 0.2)) for _ in range(n_refs))) for r in refs]


# Each row: a hypothesis and its references.
TEXTS = [
    ("as people write", written(11, 30, 1)),
    ("four references", written(12, 20, 4)),
    ("two or three references", written(13, 6, 2) + written(14, 6, 3)),
    ("one or three references", written(19, 3, 1) + written(20, 3, 3)),
    ("noise", noisy_lines(15, 60, 30, 1)),
    ("noise, three references", noisy_lines(16, 40, 30, 3)),
    ("short noise", noisy_lines(17, 60, 5, 1)),
    ("a long line", [(" ".join(h for h, _ in written(18, 150, 1)), " ".join(r for _, r in written(18, 150, 1)))]),
    ("tokenised text", [("the cat sat on the mat .", "the cat is on the mat ."), ("there is a dog in the garden", "a dog is in the garden .")]),
    ("untokenised hypothesis", [(HELLO, PUNCTUATION)]),
    ("two digits in turn", [("1 2 3 4 5 6 7 8 9", "1 2 3 4 5 6 7 9 8")]),
    ("no n-gram of four", [("a b c", "a b c d"), ("x y", "x y")]),
    ("an empty hypothesis", [("", "a b c d"), ("e f g h", "e f g h")]),
    ("empty hypotheses alone", [("", "a b c d"), ("", "e f g h")]),
    ("an empty reference", [("a b c d", ""), ("e f g h", "e f g h")]),
    ("an empty one of two references", [("a b c d e", "", "a b c d e")]),
    ("all empty", [("", "")]),
    ("two references, lengths as near", [("a b c d e", "a b c d", "a b c d e f")]),
    ("two references, the first is better", [("a b c d e", "a b c d e", "x y")]),
    ("two references, each has a part", [("a b c d e f g h", "a b c d x", "e f g h y")]),
    ("repeated words", [("a a a a a a a", "a a b a")]),
    ("digits", [("3 1 4 1 5 9 2 6", "3 1 4 1 5 9 2 6"), ("0 0 7", "0 7 0"), ("4", "4")]),
    ("no match", [("a b c d e", "v w x y z")]),
    ("one word", [("yes", "yes")]),
    ("one wrong word", [("yes", "no!")]),
    ("one word, two characters alike", [("nose", "noses")]),
    ("matches of one word", [("a x b y c", "a b c d e")]),
    ("matches of two words", [("a b x c d", "c d a b e f")]),
    ("case counts", [("The Cat sat on the mat today", "the cat sat on the mat today")]),
    ("Greek, Chinese, a face", [("\u03b1\u03b2 \u03b3 d e f \u4e2d\u6587 \U0001f600", "\u03b1\u03b2 \u03b3 d e g \u4e2d\u6587 \U0001f601")]),
    ("characters of the same last byte", [("\u00e4\u0124\u20a4 e \u0ae4 f", "\u0164\u00e4\u20a4 e \u0aa4 f")]),
    ("not UTF-8", [("a\udcff b\udce2\udc80 c d \udcc0\udc80", "a\udcff b\udce2\udc80 c d \udcf4\udc90\udc80\udc80")]),
    ("all white space", [("a".join(SPACES) + "b", "a" * (len(SPACES) - 1) + " b"), (" a ".join(SPACES), "a " * (len(SPACES) - 1))]),
    ("no white space", [(" c ".join(NO_SPACES), "c ".join(NO_SPACES)), ("c".join(NO_SPACES), "cc")]),
    ("white space alone", [(SPACES, "a b"), ("a b c d", SPACES)]),
]
WORDS = [
    HELLO, "5-6 and x-y, 1.5. 2,000,000 U.S.", "a.b,c .5 5. ,5 5,", "x.5", "5.x", "3.,4", "1,,2", "a...b", "a-1", "1-a", "10:30",
    "don't", "--", "", " ", ".", ",.", "5.", ".5", "-", "5-", "<skipped>", "a<skip<skipped>ped>b", "&quot;x&quot;", "&amp;lt;", "&amp;quot;",
    "&lt;&gt;&amp", "<skipped> &lt;skipped&gt;", "".join(map(chr, range(33, 127))), " ".join(map(chr, range(33, 127))),
    "\u00e4.\u00e4,5\u00e4", "\u0661.\u0662", "\u20ac5,-", "\udcff.\udcff", *(noise(random.Random(100 + k), 40) for k in range(40)),
]


def as_read(text):
    """The text as Python reads its bytes: parts of two characters may have become a new one."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def c_bytes(text):
    """A C string of any bytes: what is not plain ASCII in octal."""
    raw = text.encode("utf-8", "surrogateescape")
    quoted = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else "\\%03o" % b for b in raw)
    parts, at = [], 0
    while at < len(quoted) or not parts:  # lines of at most 90 characters, not cut inside an escape
        end = min(at + 90, len(quoted))
        while end < len(quoted) and "\\" in quoted[max(at, end - 3):end]:
            end -= 1
        parts.append('"%s"' % quoted[at:end])
        at = end
    return "\n      ".join(parts)


def print_texts():
    print("static const char golden_sacrebleu[] = \"%s\";" % sacrebleu.__version__)
    table = []
    for k, (name, rows) in enumerate(TEXTS):
        rows = [[as_read(t) for t in r] for r in rows]
        most = max(len(r) for r in rows) - 1
        hyps = [r[0] for r in rows]
        refs = [[r[i + 1] if i + 1 < len(r) else None for r in rows] for i in range(most)]
        bleu, chrf = BLEU(force=True), CHRF()
        b, c = bleu.corpus_score(hyps, refs), chrf.corpus_score(hyps, refs)
        print("static const char *const texts_%d[][%d] = {" % (k, most + 2))
        for r in rows:
            print("    { %s }," % ",\n      ".join([c_bytes(t) for t in r] + ["NULL"] * (most + 2 - len(r))))
        print("};")
        form = b.format(width=2)
        table.append('    { "%s", &texts_%d[0][0], %d, %d, %.10f, %.10f, "%s",\n      "%s", "%s" },' % (
            name, k, len(rows), most + 2, b.score, c.score, form.partition(" = ")[2],
            str(bleu.get_signature()).partition("|version")[0], str(chrf.get_signature()).partition("|version")[0]))
    print("static struct golden_text {\n    const char *name;\n    const char *const *text; /* rows: a hypothesis, references, NULL */\n"
          "    int n, stride;\n    double bleu, chrf;\n    const char *form, *bleu_signature, *chrf_signature;\n} golden_texts[] = {")
    print("\n".join(table))
    print("};")
    print("static const char *const golden_words[][2] = {")
    for text in map(as_read, WORDS):
        print("    { %s,\n      %s }," % (c_bytes(text), c_bytes(Tokenizer13a()(text))))
    print("};")


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
    print_texts()


if __name__ == "__main__":
    main()
