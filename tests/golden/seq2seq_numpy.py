"""The same models a second time, in NumPy: one sentence at a time, with vectors, without padding and masks.

They check the padded PyTorch version (both must give the same loss), and decode: greedy and beam search.
"""

import numpy as np

LOWEST = -float(np.finfo(np.float32).max)


def sig(x):
    return (1 + np.tanh(x / 2)) / 2


def log_softmax(x):
    x = x - x.max()
    return x - np.log(np.exp(x).sum())


class Cell:
    """One recurrent cell; state is a pair (c, h)."""

    def __init__(self, cfg, side, params, prefix):
        self.kind, self.units = cfg[side + "_cell_type"], cfg[side + "_cell_units"]
        self.w = {k.rsplit("/", 1)[1]: v for k, v in params.items() if k.rsplit("/", 1)[0] == prefix}
        self.groups = cfg.get("num_groups", 1)
        self.out = self.w["projection"].shape[1] if "projection" in self.w else self.units
        self.dtype = next(iter(self.w.values())).dtype

    def start(self):
        return np.zeros(self.units, self.dtype), np.zeros(self.out, self.dtype)

    def __call__(self, x, state, att=()):
        w, (c, h) = self.w, state
        if self.kind == "gru":
            gates = sig(np.concatenate([x, h]) @ w["gates_kernel"] + w["gates_bias"])
            r, u = gates[:self.units], gates[self.units:]
            n = np.tanh(np.concatenate([x, r * h]) @ w["candidate_kernel"] + w["candidate_bias"])
            h = u * h + (1 - u) * n
            return c, h
        rec = np.concatenate([h, np.asarray(att, self.dtype)])
        if self.kind == "glstm":
            gates = np.zeros((4, self.units), self.dtype)
            nx, nr, nh = len(x) // self.groups, len(rec) // self.groups, self.units // self.groups
            for k in range(self.groups):
                part = np.concatenate([x[k * nx:(k + 1) * nx], rec[k * nr:(k + 1) * nr]]) @ w["group%d_kernel" % k]
                gates[:, k * nh:(k + 1) * nh] = part.reshape(4, nh)
            gates += np.stack([w["bias_" + b] for b in "ijfo"])
        else:
            z = x if self.kind == "slstm" else np.concatenate([x, rec])
            gates = (z @ w["kernel"] + w["bias"]).reshape(4, self.units)
        i, j, f, o = gates
        c = c * sig(f + 1) + sig(i) * np.tanh(j)
        m = sig(o) * np.tanh(c)
        return c, (m @ w["projection"] if "projection" in w else m)

    def over(self, xs):
        state, out = self.start(), []
        for x in xs:
            state = self(x, state)
            out.append(state[1])
        return np.stack(out)


class Model:
    def __init__(self, cfg, params):
        self.cfg, self.p = cfg, params
        self.dec = [Cell(cfg, "decoder", params, "decoder/layer%d" % l) for l in range(cfg["decoder_layers"])]
        self.gnmt = cfg["attention_type"] in ("gnmt", "gnmt_v2")

    def enc(self, name):
        return Cell(self.cfg, "encoder", self.p, "encoder/" + name)

    def memory(self, ids):
        cfg, e = self.cfg, self.p["src_embedding"][ids]
        n = cfg["encoder_layers"]
        if cfg["encoder_type"] == "gnmt":
            x = np.hstack([self.enc("layer0/fw").over(e), self.enc("layer0/bw").over(e[::-1])[::-1]])
            for l in range(1, n):
                y = self.enc("layer%d" % l).over(x)
                x = x + y if l > 1 else y
            return x

        def stack(x, where):
            for l in range(n):
                y = self.enc("%slayer%d" % (where, l)).over(x)
                x = x + y if cfg["encoder_use_skip_connections"] else y
            return x
        if cfg["encoder_type"] == "unidirectional":
            return stack(e, "")
        return np.hstack([stack(e, "fw/"), stack(e[::-1], "bw/")[::-1]])

    def attend(self, memory, q):
        cfg, p = self.cfg, self.p
        keys = memory @ p["attention/memory_kernel"]
        if cfg["attention_type"] == "luong":
            score = keys @ q * (p["attention/g"] if cfg.get("luong_scale") else 1)
        elif "attention/b" in p:
            unit = p["attention/v"] / np.linalg.norm(p["attention/v"])
            score = p["attention/g"] * (np.tanh(keys + q @ p["attention/query_kernel"] + p["attention/b"]) @ unit)
        else:
            score = np.tanh(keys + q @ p["attention/query_kernel"]) @ p["attention/v"]
        self.attention = np.exp(log_softmax(score))     # of the last step
        return self.attention @ memory

    def start(self, memory):
        return [cell.start() for cell in self.dec], np.zeros(memory.shape[1], memory.dtype)

    def step(self, memory, state, word):
        """Returns the log-probabilities of the next word, and the next state. Does not change the given state."""
        cfg, p = self.cfg, self.p
        cells, ctx = list(state[0]), state[1]
        x = np.concatenate([p["tgt_embedding"][word], ctx])
        if self.gnmt:
            cells[0] = self.dec[0](x, cells[0])
            q = x = cells[0][1]
            new = self.attend(memory, q)
            for l in range(1, len(self.dec)):
                cells[l] = self.dec[l](x, cells[l], ctx if cfg["attention_type"] == "gnmt" else new)
                x = (x if l > 1 else 0) + cells[l][1]
            ctx, top = new, x
        else:
            skip = cfg["decoder_use_skip_connections"]
            if skip:
                x = x @ p["decoder/input_kernel"] + p["decoder/input_bias"]
            for l, cell in enumerate(self.dec):
                cells[l] = cell(x, cells[l])
                x = (x if skip else 0) + cells[l][1]
            ctx = top = self.attend(memory, x)
        return log_softmax(top @ p["output_kernel"] / cfg.get("softmax_temperature", 1.0)), (cells, ctx)

    def nll(self, src, tgt):
        memory = self.memory(src)
        state, total = self.start(memory), 0.0
        for word, target in zip(tgt[:-1], tgt[1:]):
            logp, state = self.step(memory, state, word)
            total -= logp[target]
        return total


def greedy(model, src, sos, eos, limit):
    """Returns ids without the end, log-probability, whether the end came, and the smallest gap between the best
    two."""
    memory = model.memory(src)
    state, word, ids, score, gap = model.start(memory), sos, [], 0.0, np.inf
    for _ in range(limit):
        logp, state = model.step(memory, state, word)
        word = int(np.argmax(logp))
        gap = min(gap, logp[word] - np.delete(logp, word).max())
        score += logp[word]
        if word == eos:
            return ids, score, True, gap
        ids.append(word)
    return ids, score, False, gap


def beam_search(model, src, sos, eos, limit, width, penalty):
    """Returns the same as greedy. The gap is the smallest that decides anything: between the last candidate kept
    and the first one dropped, in any step, and between the best two at the end. (The order within the beam changes
    nothing.)"""
    memory = model.memory(src)
    beams = [dict(state=model.start(memory), word=sos, lp=0.0, done=False, n=0, ids=[])]
    gap = np.inf
    for _ in range(limit):
        found = []
        for k, b in enumerate(beams):
            if b["done"]:
                logp, state = np.full(model.p["output_kernel"].shape[1], LOWEST), b["state"]
                logp[eos] = 0.0
            else:
                logp, state = model.step(memory, b["state"], b["word"])
            for v, l in enumerate(logp):
                total = b["lp"] + float(l)
                n = b["n"] + (0 if b["done"] or v == eos else 1)
                found.append((-(total / ((5.0 + n) / 6.0) ** penalty), k, v, total, state))
        found.sort(key=lambda f: f[:3])
        if len(found) > width:
            gap = min(gap, found[width][0] - found[width - 1][0])
        new = []
        for score, k, v, total, state in found[:width]:
            done = beams[k]["done"] or v == eos
            new.append(dict(state=state, word=v, lp=total, done=done, n=beams[k]["n"] + (not done), score=-score,
                            ids=beams[k]["ids"] if done else beams[k]["ids"] + [v]))
        beams = new
        if all(b["done"] for b in beams):
            break
    if width > 1:
        gap = min(gap, beams[0]["score"] - beams[1]["score"])
    return beams[0]["ids"], beams[0]["score"], beams[0]["done"], gap
