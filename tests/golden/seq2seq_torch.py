"""The sequence-to-sequence family of OpenSeq2Seq (January 2018), in PyTorch, for golden values.

The models use padded batches and masks, one time step after the other, directly from the formulas: no recurrent
module, no attention module, and nothing of run_dist. Gradients are autograd's. Names and shapes of the parameters
are those of the C model.
"""

from collections import OrderedDict

import torch


def width(c, side):
    """Width of a cell's output on one side: that of the projection, if there is one, else that of the cell."""
    cell = c[side + "_cell_type"]
    return c["proj_size"] if "proj_size" in c and cell in ("lstm", "glstm") else c[side + "_cell_units"]


def is_gnmt(c):
    return c["attention_type"] in ("gnmt", "gnmt_v2")


def memory_width(c):
    return width(c, "encoder") * (2 if c["encoder_type"] == "bidirectional" else 1)


def normalised(c):
    return is_gnmt(c) or (c["attention_type"] == "bahdanau" and c.get("bahdanau_normalize", False))


def cell_shapes(c, side, prefix, n_in, extra=0):
    """Parameters of one cell. extra: width of the input that is concatenated to h on the recurrent side."""
    kind, h, r = c[side + "_cell_type"], c[side + "_cell_units"], width(c, side)
    out = OrderedDict()
    if kind == "lstm":
        out["kernel"] = (n_in + r + extra, 4 * h)
        out["bias"] = (4 * h,)
    elif kind == "gru":
        assert extra == 0, "gru knows no gnmt attention"
        out["gates_kernel"] = (n_in + h, 2 * h)
        out["gates_bias"] = (2 * h,)
        out["candidate_kernel"] = (n_in + h, h)
        out["candidate_bias"] = (h,)
    elif kind == "glstm":
        g = c["num_groups"]
        assert h % g == 0 and r % g == 0 and n_in % g == 0 and (r + extra) % g == 0, "widths that num_groups does not divide"
        for k in range(g):
            out["group%d_kernel" % k] = (n_in // g + (r + extra) // g, 4 * h // g)
        for b in "ijfo":
            out["bias_" + b] = (h,)
    elif kind == "slstm":
        out["kernel"] = (n_in, 4 * h)
        out["bias"] = (4 * h,)
    else:
        raise ValueError(kind)
    if kind in ("lstm", "glstm") and "proj_size" in c:
        out["projection"] = (h, r)
    return OrderedDict((prefix + "/" + k, v) for k, v in out.items())


def shapes(c, v_s, v_t):
    """All parameters of a configuration: name -> shape."""
    r_e, r_d, m, a = width(c, "encoder"), width(c, "decoder"), memory_width(c), c["attention_layer_size"]
    p = OrderedDict(src_embedding=(v_s, c["src_emb_size"]))
    layers, kind = c["encoder_layers"], c["encoder_type"]
    if kind == "gnmt":
        p.update(cell_shapes(c, "encoder", "encoder/layer0/fw", c["src_emb_size"]))
        p.update(cell_shapes(c, "encoder", "encoder/layer0/bw", c["src_emb_size"]))
        for l in range(1, layers):
            p.update(cell_shapes(c, "encoder", "encoder/layer%d" % l, 2 * r_e if l == 1 else r_e))
    else:
        for d in ("fw/", "bw/") if kind == "bidirectional" else ("",):
            for l in range(layers):
                p.update(cell_shapes(c, "encoder", "encoder/%slayer%d" % (d, l), r_e if l else c["src_emb_size"]))
    p["tgt_embedding"] = (v_t, c["tgt_emb_size"])
    p["attention/memory_kernel"] = (m, a)
    if c["attention_type"] == "luong":
        assert a == r_d, "luong: attention_layer_size is the decoder's width"
        if c.get("luong_scale", False):
            p["attention/g"] = ()
    else:
        p["attention/query_kernel"] = (r_d, a)
        p["attention/v"] = (a,)
        if normalised(c):
            p["attention/g"] = ()
            p["attention/b"] = (a,)
    n_in = c["tgt_emb_size"] + m
    if not is_gnmt(c) and c["decoder_use_skip_connections"]:
        p["decoder/input_kernel"] = (n_in, c["decoder_cell_units"])
        p["decoder/input_bias"] = (c["decoder_cell_units"],)
        n_in = c["decoder_cell_units"]
    for l in range(c["decoder_layers"]):
        extra = m if l and is_gnmt(c) and c["decoder_cell_type"] != "slstm" else 0
        p.update(cell_shapes(c, "decoder", "decoder/layer%d" % l, r_d if l else n_in, extra))
    p["output_kernel"] = (r_d if is_gnmt(c) else m, v_t)
    return p


def cell_step(c, side, p, prefix, x, state, att=None):
    """One time step of one cell: x [B,in], state (c [B,H], h [B,R]) -> output [B,R], state."""
    kind = c[side + "_cell_type"]
    w = {k[len(prefix) + 1:]: v for k, v in p.items() if k.startswith(prefix + "/")}
    mem, h = state
    if kind == "gru":
        z = torch.sigmoid(torch.cat([x, h], 1) @ w["gates_kernel"] + w["gates_bias"])
        r, u = z.chunk(2, 1)
        n = torch.tanh(torch.cat([x, r * h], 1) @ w["candidate_kernel"] + w["candidate_bias"])
        h = u * h + (1 - u) * n
        return h, (mem, h)
    rec = h if att is None else torch.cat([h, att], 1)
    if kind == "lstm":
        i, j, f, o = (torch.cat([x, rec], 1) @ w["kernel"] + w["bias"]).chunk(4, 1)
    elif kind == "slstm":
        i, j, f, o = (x @ w["kernel"] + w["bias"]).chunk(4, 1)
    else:
        g = c["num_groups"]
        parts = [(torch.cat([xk, rk], 1) @ w["group%d_kernel" % k]).chunk(4, 1)
                 for k, (xk, rk) in enumerate(zip(x.chunk(g, 1), rec.chunk(g, 1)))]
        i, j, f, o = (torch.cat([q[gate] for q in parts], 1) + w["bias_" + b] for gate, b in enumerate("ijfo"))
    mem = mem * torch.sigmoid(f + 1.0) + torch.sigmoid(i) * torch.tanh(j)
    out = torch.sigmoid(o) * torch.tanh(mem)
    if "projection" in w:
        out = out @ w["projection"]
    return out, (mem, out)


def zero_state(c, side, n, like):
    return like.new_zeros(n, c[side + "_cell_units"]), like.new_zeros(n, width(c, side))


def reverse(x, length):
    """Reverses each sequence of x [B,S,..] within its length; padding stays at the end."""
    s = torch.arange(x.shape[1])[None, :]
    at = torch.where(s < length[:, None], length[:, None] - 1 - s, s)
    return torch.gather(x, 1, at[:, :, None].expand(-1, -1, x.shape[2]))


def rnn(c, p, prefix, x, length, residual):
    """One encoder layer over a padded batch. Past the end, outputs are 0 and the state does not change."""
    state, outs = zero_state(c, "encoder", x.shape[0], x), []
    for t in range(x.shape[1]):
        out, new = cell_step(c, "encoder", p, prefix, x[:, t], state)
        if residual:
            out = out + x[:, t]
        live = (t < length)[:, None]
        state = tuple(torch.where(live, b, a) for a, b in zip(state, new))
        outs.append(torch.where(live, out, torch.zeros_like(out)))
    return torch.stack(outs, 1)


def encode(c, p, x, length):
    """Token ids [B,S] -> memory [B,S,M], zero past each length."""
    e = p["src_embedding"][x]
    back = reverse(e, length)
    if c["encoder_type"] == "gnmt":
        cur = torch.cat([rnn(c, p, "encoder/layer0/fw", e, length, False),
                         reverse(rnn(c, p, "encoder/layer0/bw", back, length, False), length)], 2)
        for l in range(1, c["encoder_layers"]):
            cur = rnn(c, p, "encoder/layer%d" % l, cur, length, l >= 2)
    else:
        sides = []
        for d, cur in (("fw/", e), ("bw/", back)) if c["encoder_type"] == "bidirectional" else (("", e),):
            for l in range(c["encoder_layers"]):
                cur = rnn(c, p, "encoder/%slayer%d" % (d, l), cur, length, c["encoder_use_skip_connections"])
            sides.append(reverse(cur, length) if d == "bw/" else cur)
        cur = torch.cat(sides, 2)
    live = torch.arange(x.shape[1])[None, :] < length[:, None]
    return cur * live[:, :, None]


def attend(c, p, memory, keys, live, q):
    """Context [B,M] of the query q [B,R]."""
    if c["attention_type"] == "luong":
        score = torch.einsum("bsa,ba->bs", keys, q)
        if c.get("luong_scale", False):
            score = p["attention/g"] * score
    else:
        z = keys + (q @ p["attention/query_kernel"])[:, None]
        v = p["attention/v"]
        if normalised(c):
            z = z + p["attention/b"]
            v = p["attention/g"] * v / torch.sqrt((v * v).sum())
        score = torch.tanh(z) @ v
    a = torch.softmax(score.masked_fill(~live, float("-inf")), 1)
    return torch.einsum("bs,bsm->bm", a, memory)


def teacher_forced_logits(c, p, x, len_x, y):
    """Logits [B,T-1,V_t] for the inputs y[:, :-1]."""
    memory = encode(c, p, x, len_x)
    keys = memory @ p["attention/memory_kernel"]
    live = torch.arange(x.shape[1])[None, :] < len_x[:, None]
    n, layers = x.shape[0], c["decoder_layers"]
    state = [zero_state(c, "decoder", n, memory) for _ in range(layers)]
    ctx, outs = memory.new_zeros(n, memory.shape[2]), []
    skip = not is_gnmt(c) and c["decoder_use_skip_connections"]
    for t in range(y.shape[1] - 1):
        cur = torch.cat([p["tgt_embedding"][y[:, t]], ctx], 1)
        if is_gnmt(c):
            cur, state[0] = cell_step(c, "decoder", p, "decoder/layer0", cur, state[0])
            new_ctx = attend(c, p, memory, keys, live, cur)
            att = ctx if c["attention_type"] == "gnmt" else new_ctx
            for l in range(1, layers):
                out, state[l] = cell_step(c, "decoder", p, "decoder/layer%d" % l, cur, state[l], att)
                cur = cur + out if l >= 2 else out
            ctx = new_ctx
            outs.append(cur @ p["output_kernel"])
        else:
            if skip:
                cur = cur @ p["decoder/input_kernel"] + p["decoder/input_bias"]
            for l in range(layers):
                out, state[l] = cell_step(c, "decoder", p, "decoder/layer%d" % l, cur, state[l])
                cur = cur + out if skip else out
            ctx = attend(c, p, memory, keys, live, cur)
            outs.append(ctx @ p["output_kernel"])
    return torch.stack(outs, 1) / c.get("softmax_temperature", 1.0)


def loss(c, p, x, len_x, y, len_y):
    """Returns the loss of each sentence, summed over words [B], the weight that divides the sum, and the number of
    right arguments of the maximum."""
    logp = torch.log_softmax(teacher_forced_logits(c, p, x, len_x, y), 2)
    target = y[:, 1:]
    live = torch.arange(target.shape[1])[None, :] < (len_y - 1)[:, None]
    nll = -torch.gather(logp, 2, target[:, :, None])[:, :, 0] * live
    weight = float(live.sum()) if c.get("average_across_timesteps", False) else float(len(len_y))
    return nll.sum(1), weight, int(((logp.argmax(2) == target) & live).sum())
