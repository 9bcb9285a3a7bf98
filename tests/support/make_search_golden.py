#!/usr/bin/env python3
"""make_search_golden.py -- searches of a made-up model by the rules of Sockeye, GNMT, Marian and fairseq, some with the
coverage penalties of GNMT (Wu et al. 2016) and OpenNMT-py.

    tests/support/make_search_golden.py > tests/ops/search_golden.inc

Each search here sees the log probability of every token, keeps whole token lists, and never stops early. Needs no
module. The model is a hash of the sentence and its tokens; its log probabilities are multiples of 1/16, so all sums
are exact and many are equal. So is its attention: eighths of the sentence's source of 1 to 4 positions.
"""
from math import log

MASK = 0xFFFFFFFF
END = 2


def mixed(prefix, token):
    x = (prefix ^ token * 2654435761) & MASK
    x = (x * 2246822519 + 374761393) & MASK
    x ^= x >> 15
    x = x * 3266489917 & MASK
    return x ^ x >> 16


def logp(case, prefix, token):
    each = 4 if token != END else case["end"]
    return -(8 + mixed(prefix, token) % case["levels"] * each) / 16


def prefix_of(sentence, tokens):
    x = sentence + 1000
    for t in tokens:
        x = (x * 31 + t + 7) & MASK
    return x


def tokens_of(case, sentence, tokens, limit):
    """Yields (token, log probability) of what may follow."""
    for v in range(case["V"]):
        if v == END and len(tokens) < case["min"] and len(tokens) < limit:
            continue
        if v != END and (len(tokens) >= limit or v in case["barred"]):
            continue
        yield v, logp(case, prefix_of(sentence, tokens), v)


def score(case, total, n):
    a, b = case["a"], case["b"]
    if a == 0:
        return total
    return total / {"sockeye": lambda: (b + n) ** a / (b + 1) ** a, "gnmt": lambda: ((b + n) / (b + 1)) ** a,
                    "marian": lambda: n ** a, "fairseq": lambda: n ** a}[case["form"]]()


def attention(sentence, tokens):
    """Eighths of each position of the source, for the token that follows."""
    n = 1 + sentence % 4
    parts = [0] * n
    for i in range(8):
        parts[mixed(prefix_of(sentence, tokens), 100 + i) % n] += 1
    return [x / 8 for x in parts]


def coverage(case, sentence, tokens):
    """The penalty of a hypothesis with its end token, times its weight."""
    if not case["cover"]:
        return 0.0
    total = [0.0] * (1 + sentence % 4)
    for k in range(len(tokens) + 1):
        total = [t + a for t, a in zip(total, attention(sentence, tokens[:k]))]
    if case["cover_form"] == "summary":
        return -case["cover"] * (sum(max(t, 1.0) for t in total) - len(total))
    return case["cover"] * sum(log(max(min(t, 1.0), 1e-30)) for t in total)


def sockeye(case, sentence, limit):
    # (score, tokens, finished); the order in the list is the order of the step before
    beam = [(0.0, [], False)]
    while not all(done for _, _, done in beam):
        found = []
        for k, (s, tokens, done) in enumerate(beam):
            if done:
                found.append((-s, k, END, tokens, True))
                continue
            for v, p in tokens_of(case, sentence, tokens, limit):
                found.append((-(s + p), k, v, tokens if v == END else tokens + [v], False))
        beam_next = []
        for minus, k, v, tokens, was_done in sorted(found, key=lambda f: f[:3])[:case["W"]]:
            s = -minus
            if v == END and not was_done:
                s = score(case, s, len(tokens) + 1)
            beam_next.append((s, tokens, v == END))
        beam = beam_next
    return sorted(((s, tokens) for s, tokens, _ in beam), key=lambda h: -h[0])


def with_list(case, sentence, limit):
    W, form = case["W"], case["form"]
    beam, listed = [(0.0, [])], []
    while beam and len(listed) < W:
        found = []
        for k, (s, tokens) in enumerate(beam):
            for v, p in tokens_of(case, sentence, tokens, limit):
                found.append((-(s + p), k, v, tokens))
        found.sort(key=lambda f: f[:3])
        words = [f for f in found if f[2] != END]
        if form == "marian":
            top = found[:W - len(listed)]
            ends, words = [f for f in top if f[2] == END], [f for f in top if f[2] != END]
        elif form == "fairseq":
            ends = [f for f in found[:W] if f[2] == END]
        else:
            last = words[W - 1][:3] if len(words) >= W else (float("inf"), 0, 0)
            ends = [f for f in found if f[2] == END and f[:3] < last]
        for minus, _, _, tokens in ends:
            if len(listed) < W:
                listed.append((score(case, -minus, len(tokens) + 1) + coverage(case, sentence, tokens), tokens))
        beam = [(-minus, tokens + [v]) for minus, _, v, tokens in words[:W]]
    return sorted(listed, key=lambda h: -h[0])


CASES = [
    dict(form="sockeye", W=1, a=1, b=0, V=9, levels=30, end=4),
    dict(form="sockeye", W=4, a=1, b=0, V=9, levels=3, end=2),
    dict(form="sockeye", W=5, a=0.6, b=5, V=30, levels=60, end=1),
    dict(form="gnmt", W=1, a=0.6, b=5, V=12, levels=9, end=4),
    dict(form="gnmt", W=4, a=0.6, b=5, V=9, levels=4, end=2),
    dict(form="gnmt", W=6, a=2, b=5, V=20, levels=50, end=1, barred=[0, 1, 3]),
    dict(form="marian", W=1, a=0, b=0, V=12, levels=9, end=4),
    dict(form="marian", W=5, a=0.6, b=0, V=9, levels=5, end=2),
    dict(form="marian", W=8, a=1, b=0, V=25, levels=50, end=1, min=3),
    dict(form="fairseq", W=1, a=1, b=0, V=12, levels=9, end=4),
    dict(form="fairseq", W=5, a=1, b=0, V=9, levels=4, end=2),
    dict(form="fairseq", W=5, a=0, b=0, V=30, levels=70, end=1),
    dict(form="fairseq", W=4, a=2, b=0, V=20, levels=50, end=1, min=2, barred=[0, 1, 3]),
    dict(form="gnmt", W=9, a=1, b=5, V=5, levels=6, end=3),
    dict(form="gnmt", W=4, a=0.6, b=5, V=9, levels=4, end=1, cover=0.2),
    dict(form="gnmt", W=5, a=0, b=5, V=12, levels=9, end=1, cover=2, cover_form="summary"),
    dict(form="fairseq", W=6, a=1, b=0, V=20, levels=50, end=1, cover=0.5),
    dict(form="marian", W=5, a=0.6, b=0, V=9, levels=5, end=1, cover=1, min=2),
]
SENTENCES, LIMITS = 10, [1, 2, 3, 4, 5, 6, 7, 8, 9, 12]

print("/* search_golden.inc -- made by tests/support/make_search_golden.py. */")
print("static const rule_case rule_cases[] = {")
for case in CASES:
    case.setdefault("min", 0)
    case.setdefault("barred", [])
    case.setdefault("cover", 0)
    case.setdefault("cover_form", "gnmt")
    what = ", coverage %g" % case["cover"] if case["cover"] else ""
    print('    {"%s, beam %d, a %g%s", RD_LENGTH_%s, %d, %d, %d, %d, %g, %g, %d, %d, %g, RD_COVERAGE_%s,'
          % (case["form"], case["W"], case["a"], what, case["form"].upper(), case["V"], case["W"], case["levels"],
             case["end"], case["a"], case["b"], case["min"], len(case["barred"]), case["cover"],
             case["cover_form"].upper()))
    print("     {")
    for i in range(SENTENCES):
        hypotheses = (sockeye if case["form"] == "sockeye" else with_list)(case, i, LIMITS[i])
        n = min(3, case["W"])
        print("         {%d, {%s}}," % (min(n, len(hypotheses)), ", ".join(
            "{%.10g, %d, {%s}}" % (s, len(tokens), ", ".join(map(str, tokens)) or "0") for s, tokens in hypotheses[:n])))
    print("     }},")
print("};")
