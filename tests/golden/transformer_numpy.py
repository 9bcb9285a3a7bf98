"""The Transformer for translation, one sentence at a time and without padding, in NumPy.

It has no cache: a step computes all words so far again. The searches are those of seq2seq_numpy.py.
"""

import math

import numpy as np

from seq2seq_numpy import beam_search, greedy, log_softmax  # noqa: F401 (the searches are part of this module)

_erf = np.vectorize(math.erf)


def activation(name, x):
    if name == "gelu_erf":
        return (x * (1 + _erf(x / math.sqrt(2.0))) / 2).astype(x.dtype)
    if name == "gelu_tanh":
        return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))
    if name == "silu":
        return x / (1 + np.exp(-x))
    return np.maximum(x, 0) ** (2 if name == "relu2" else 1)


def place(c, p, d):
    """The vector of position p."""
    out, half = np.zeros(d), d // 2
    for i in range(half):
        if c["positions"] == "t2t":
            angle = p * math.exp(-i * math.log(10000.0) / (half - 1))
        else:
            angle = p / 10000.0 ** (2.0 * i / d)
        at = (2 * i, 2 * i + 1) if c["positions"] == "interleaved" else (i, half + i)
        if c["positions"] != "none":
            out[at[0]], out[at[1]] = math.sin(angle), math.cos(angle)
    return out


class Model:
    def __init__(self, cfg, params):
        self.c, self.w = cfg, params
        table = next(k for k in ("output_kernel", "embedding", "tgt_embedding") if k in params)
        self.p = {"output_kernel": params[table][:cfg["classes"]].T}   # its width is the number of words

    def norm(self, at, x):
        mean = x.mean(1, keepdims=True)
        y = (x - mean) / np.sqrt(((x - mean) ** 2).mean(1, keepdims=True) + self.c["norm_eps"])
        return (y * self.w[at + "/norm_gain"] + self.w[at + "/norm_bias"]).astype(x.dtype)

    def linear(self, at, x):
        y = x @ self.w[at + "_kernel"]
        return y + self.w[at + "_bias"] if at + "_bias" in self.w else y

    def heads(self, q, k, v, causal):
        h, out, last = self.c["n_heads"], [], []
        for qh, kh, vh in zip(np.split(q, h, 1), np.split(k, h, 1), np.split(v, h, 1)):
            for i in range(len(q)):
                n = i + 1 if causal else len(k)
                s = kh[:n] @ qh[i] / math.sqrt(qh.shape[1])
                p = np.exp(log_softmax(s))
                out.append(p @ vh[:n])
            last.append(p)
        self.attention = np.mean(last, 0)   # of the last row; the last call is that of the decoder's last layer
        return np.stack(out).reshape(h, len(q), -1).transpose(1, 0, 2).reshape(len(q), -1).astype(q.dtype)

    def block(self, at, x, f):
        return x + f(self.norm(at, x)) if self.c["norm"] == "pre" else self.norm(at, x + f(x))

    def feed(self, at, x):
        w = self.w
        y = activation(self.c["activation"], x @ w[at + "/kernel1"] + w[at + "/bias1"])
        if at + "/gate_kernel" in w:
            y = y * (x @ w[at + "/gate_kernel"] + w[at + "/gate_bias"])
        return y @ w[at + "/kernel2"] + w[at + "/bias2"]

    def unit(self, at, x):
        """A simpler simple recurrent unit, row by row."""
        state, out = np.zeros(x.shape[1], x.dtype), []
        for row in x:
            f = (1 + np.tanh((row @ self.w[at + "/gate_kernel"] + self.w[at + "/gate_bias"]) / 2)) / 2
            state = f * state + (1 - f) * (row @ self.w[at + "/kernel"])
            out.append(np.maximum(state, 0))
        return np.stack(out)

    def layers(self, side, x, memory=None):
        for l in range(self.c[side + "_layers"]):
            at = "%s/layer%d" % (side, l)

            def own(y):
                return self.linear(at + "/attention/out", self.heads(
                    *np.split(self.linear(at + "/attention/qkv", y), 3, 1), causal=memory is not None))

            def other(y):
                k, v = np.split(self.linear(at + "/memory/kv", memory), 2, 1)
                return self.linear(at + "/memory/out", self.heads(self.linear(at + "/memory/q", y), k, v, causal=False))

            if at + "/ssru/kernel" in self.w:
                x = self.block(at + "/ssru", x, lambda y: self.unit(at + "/ssru", y))
            else:
                x = self.block(at + "/attention", x, own)
            if memory is not None:
                x = self.block(at + "/memory", x, other)
            x = self.block(at + "/ff", x, lambda y: self.feed(at + "/ff", y))
        return self.norm(side, x) if self.c["norm"] == "pre" else x

    def embed(self, side, ids):
        c, w = self.c, self.w
        x = w["embedding" if "embedding" in w else side + "_embedding"][ids]
        if c.get("embedding_scale", True):
            x = x * math.sqrt(c["d_model"])
        if c["positions"] == "learned":
            return x + w[side + "_positions"][np.minimum(np.arange(len(ids)), c["max_positions"] - 1)]
        return (x + np.stack([place(c, i, c["d_model"]) for i in range(len(ids))])).astype(next(iter(w.values())).dtype)

    def memory(self, ids):
        return self.layers("encoder", self.embed("src", ids))

    def logp(self, memory, words):
        top = self.layers("decoder", self.embed("tgt", words), memory)[-1]
        bias = self.w["output_bias"][:self.c["classes"]] if "output_bias" in self.w else 0
        return log_softmax(top @ self.p["output_kernel"] + bias)

    def start(self, memory):
        return []

    def step(self, memory, state, word):
        """Returns the log-probabilities of the next word, and the words so far."""
        words = state + [word]
        return self.logp(memory, np.asarray(words)), words

    def nll(self, src, tgt):
        """The loss of a sentence, with label smoothing."""
        memory, total, e, V = self.memory(src), 0.0, self.c.get("label_smoothing", 0.0), self.c["classes"]
        for n, target in enumerate(tgt[1:]):
            lp = self.logp(memory, np.asarray(tgt[:n + 1]))
            share = np.full(V, e / V)
            if self.c.get("label_smoothing_form") == "fairseq":
                share = np.full(V, e / (V - 1))
                share[target] = 0
            share[target] += 1 - e
            total -= share @ lp
        return total
