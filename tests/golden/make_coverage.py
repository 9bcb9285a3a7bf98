"""Writes coverage.json: the coverage of the source by greedy search, for each case of seq2seq/ and transformer/.

    python make_coverage.py

Needs numpy. No code of run_dist is used: seq2seq_numpy.py and transformer_numpy.py compute the attention of each word
of the stored result of greedy search, and of the end token behind it. A row is a sentence: the sum over its source of
log(min(c, 1)) with c of at least 1e-30, and of max(c, 1) - 1. c is the attention that a position has got (Wu et al.
2016; OpenNMT-py).
"""

import glob
import json
import os

import numpy as np

import seq2seq_numpy
import transformer_numpy

HERE = os.path.dirname(os.path.abspath(__file__))
SOS = 1


def pieces(z, name, n):
    off = z[name + "_off"]
    return [z[name if name != "decode" else "decode_ids"][off[i]:off[i + 1]] for i in range(n)]


def model_of(z):
    info, config = (json.loads(bytes(z[k]).decode()) for k in ("case_json", "config_json"))
    params = {name: z["params"][at:at + int(np.prod(shape))].reshape(shape).astype(np.float64) * info["decode_scale"]
              for name, shape, at in info["parameters"]}
    if config.get("model") == "transformer":
        return transformer_numpy.Model(dict(config, classes=info["tgt_vocab_size"]), params)
    return seq2seq_numpy.Model(config, params)


def coverage(model, src, ids):
    memory = model.memory(src)
    state, total = model.start(memory), np.zeros(len(src))
    for word in [SOS] + list(ids):
        _, state = model.step(memory, state, word)
        total += model.attention
    return [float("%.8g" % x) for x in (np.log(np.clip(total, 1e-30, 1)).sum(), (np.maximum(total, 1) - 1).sum())]


def main():
    out = []
    for path in sorted(glob.glob(os.path.join(HERE, "seq2seq", "*.npz")) +
                       glob.glob(os.path.join(HERE, "transformer", "*.npz"))):
        z = np.load(path)
        rows = [coverage(model_of(z), s, t) for s, t in zip(pieces(z, "src", 5), pieces(z, "decode", 5))]
        out.append('"%s": %s' % (os.path.relpath(path, HERE), json.dumps(rows)))
    with open(os.path.join(HERE, "coverage.json"), "w") as f:
        f.write("{\n" + ",\n".join(out) + "\n}\n")


if __name__ == "__main__":
    main()
