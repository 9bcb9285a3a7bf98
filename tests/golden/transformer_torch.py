"""The Transformer for translation as torch.nn.Transformer: padded batches with masks, gradients from autograd.

Parameters are those of run_dist: kernels are [inputs, outputs], and the projections of queries, keys and values are
one matrix. torch.nn.Transformer has [outputs, inputs]. Embeddings, positions, output and loss are outside of it.
"""

import math

import torch
from torch.nn import functional as F

ACTIVATIONS = {
    "relu": F.relu,
    "relu2": lambda x: F.relu(x) ** 2,
    "gelu_erf": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


def rows(c, v):
    return (v + 7) // 8 * 8 if c.get("pad_vocabs_to_eight") else v


def tie(c, v_s, v_t):
    return c.get("tie_embeddings", "all" if v_s == v_t else "target")


def has_units(c):
    return c.get("decoder_layer") == "ssru"


class Unit(torch.nn.Module):
    """The simpler simple recurrent unit, in the place of the self-attention of a torch.nn.TransformerDecoderLayer."""

    batch_first = True

    def __init__(self, d, dtype):
        super().__init__()
        self.input = torch.nn.Linear(d, d, bias=False, dtype=dtype)
        self.gate = torch.nn.Linear(d, d, dtype=dtype)

    def forward(self, x):
        u, f, states = self.input(x), torch.sigmoid(self.gate(x)), []
        for t in range(x.shape[1]):
            state = states[-1] if states else torch.zeros_like(u[:, 0])
            states.append(f[:, t] * state + (1 - f[:, t]) * u[:, t])
        return F.relu(torch.stack(states, 1))


def norm_shapes(at, d):
    return {at + "/norm_gain": (d,), at + "/norm_bias": (d,)}


def attention_shapes(c, at, kernels):
    d, out = c["d_model"], norm_shapes(at, c["d_model"])
    for name, parts in kernels:
        out["%s/%s_kernel" % (at, name)] = (d, parts * d)
        if c.get("attention_bias"):
            out["%s/%s_bias" % (at, name)] = (parts * d,)
    return out


def shapes(c, v_s, v_t):
    """name -> shape, in the order in which run_dist declares them."""
    d, f, tied = c["d_model"], c["ff_dim"], tie(c, v_s, v_t)
    out = {"embedding": (rows(c, v_s), d)} if tied == "all" else {
        "src_embedding": (rows(c, v_s), d), "tgt_embedding": (rows(c, v_t), d)}
    if c["positions"] == "learned":
        out.update(src_positions=(c["max_positions"], d), tgt_positions=(c["max_positions"], d))
    for side in ("encoder", "decoder"):
        for l in range(c[side + "_layers"]):
            at = "%s/layer%d" % (side, l)
            if side == "decoder" and has_units(c):
                out.update(norm_shapes(at + "/ssru", d))
                out.update({at + "/ssru/kernel": (d, d), at + "/ssru/gate_kernel": (d, d), at + "/ssru/gate_bias": (d,)})
            else:
                out.update(attention_shapes(c, at + "/attention", (("qkv", 3), ("out", 1))))
            if side == "decoder":
                out.update(attention_shapes(c, at + "/memory", (("q", 1), ("kv", 2), ("out", 1))))
            out.update(norm_shapes(at + "/ff", d))
            out.update({at + "/ff/kernel1": (d, f), at + "/ff/bias1": (f,)})
            if c.get("gated_ff"):
                out.update({at + "/ff/gate_kernel": (d, f), at + "/ff/gate_bias": (f,)})
            out.update({at + "/ff/kernel2": (f, d), at + "/ff/bias2": (d,)})
        if c["norm"] == "pre":
            out.update(norm_shapes(side, d))
    if tied == "none":
        out["output_kernel"] = (rows(c, v_t), d)
    if c.get("output_bias", True):
        out["output_bias"] = (rows(c, v_t),)
    return out


def fixed_positions(kind, n, d):
    """[n, d] in float64."""
    p = torch.arange(n, dtype=torch.float64)[:, None]
    out = torch.zeros(n, d, dtype=torch.float64)
    half = d // 2
    i = torch.arange(half, dtype=torch.float64)
    if kind == "t2t":
        angle = p * torch.exp(-i * math.log(10000.0) / (half - 1))
        out[:, :2 * half] = torch.cat([torch.sin(angle), torch.cos(angle)], 1)
    elif kind in ("interleaved", "sockeye"):
        angle = p / 10000.0 ** (2.0 * i / d)
        both = (torch.sin(angle), torch.cos(angle))
        out[:] = torch.stack(both, 2).flatten(1) if kind == "interleaved" else torch.cat(both, 1)
    return out


def embed(c, p, table, places, ids):
    n, d = ids.shape[1], c["d_model"]
    x = p[table][ids] * (math.sqrt(d) if c.get("embedding_scale", True) else 1.0)
    if c["positions"] == "learned":
        return x + p[places][torch.arange(n).clamp(max=c["max_positions"] - 1)]
    return x + fixed_positions(c["positions"], n, d).to(x.dtype)


def module_weights(c, p):
    """The parameters under their names in torch.nn.Transformer."""
    d, out = c["d_model"], {}

    def norm(to, at):
        out[to + ".weight"], out[to + ".bias"] = p[at + "/norm_gain"], p[at + "/norm_bias"]

    def linear(weight, bias, kernels, biases, n):
        out[weight] = torch.cat([p[k] for k in kernels], 1).T
        out[bias] = torch.cat([p[b] for b in biases]) if biases[0] in p else torch.zeros(n, dtype=out[weight].dtype)

    def attention(to, at, names):
        linear(to + ".in_proj_weight", to + ".in_proj_bias", ["%s/%s_kernel" % (at, k) for k in names],
               ["%s/%s_bias" % (at, k) for k in names], 3 * d)
        linear(to + ".out_proj.weight", to + ".out_proj.bias", [at + "/out_kernel"], [at + "/out_bias"], d)

    for side in ("encoder", "decoder"):
        for l in range(c[side + "_layers"]):
            at, to = "%s/layer%d" % (side, l), "%s.layers.%d" % (side, l)
            if side == "decoder" and has_units(c):
                linear(to + ".self_attn.gate.weight", to + ".self_attn.gate.bias", [at + "/ssru/gate_kernel"],
                       [at + "/ssru/gate_bias"], d)
                out[to + ".self_attn.input.weight"] = p[at + "/ssru/kernel"].T
                norm(to + ".norm1", at + "/ssru")
            else:
                attention(to + ".self_attn", at + "/attention", ["qkv"])
                norm(to + ".norm1", at + "/attention")
            if side == "decoder":
                attention(to + ".multihead_attn", at + "/memory", ["q", "kv"])
                norm(to + ".norm2", at + "/memory")
            norm(to + (".norm3" if side == "decoder" else ".norm2"), at + "/ff")
            linear(to + ".linear1.weight", to + ".linear1.bias", [at + "/ff/kernel1"], [at + "/ff/bias1"], None)
            if c.get("gated_ff"):
                linear(to + ".gate.weight", to + ".gate.bias", [at + "/ff/gate_kernel"], [at + "/ff/gate_bias"], None)
            linear(to + ".linear2.weight", to + ".linear2.bias", [at + "/ff/kernel2"], [at + "/ff/bias2"], None)
        if c["norm"] == "pre":
            norm(side + ".norm", side)
    return out


def logits(c, p, x, x_len, y, seen=None):
    """[sentences, words, classes]; rows behind the end of a sentence mean nothing. seen: a dictionary that receives the
    operands of the products before activations, by the place of their parameters."""
    first = next(iter(p.values()))
    module = torch.nn.Transformer(c["d_model"], c["n_heads"], c["encoder_layers"], c["decoder_layers"], c["ff_dim"], dropout=0.0,
                                  activation=ACTIVATIONS[c["activation"]], layer_norm_eps=c["norm_eps"],
                                  norm_first=c["norm"] == "pre", batch_first=True, dtype=first.dtype)
    if c["norm"] == "post":
        module.encoder.norm = module.decoder.norm = None
    for layer in (*module.encoder.layers, *module.decoder.layers) if c.get("gated_ff") else ():
        layer.gate = torch.nn.Linear(c["d_model"], c["ff_dim"], dtype=first.dtype)
        layer._ff_block = lambda x, own=layer: own.linear2(ACTIVATIONS[c["activation"]](own.linear1(x)) * own.gate(x))
    for layer in module.decoder.layers if has_units(c) else ():
        layer.self_attn = Unit(c["d_model"], first.dtype)
        layer._sa_block = lambda x, *masks, unit=layer.self_attn, **more: unit(x)
    for side in ("encoder", "decoder") if seen is not None else ():
        for l, layer in enumerate(getattr(module, side).layers):
            parts = {"ff": layer.linear1}
            if side == "decoder" and has_units(c):
                parts["ssru"] = layer.self_attn.input
            for k, part in parts.items():
                part.register_forward_pre_hook(
                    lambda _, args, at="%s/layer%d/%s" % (side, l, k): seen.__setitem__(at, args[0].detach()))
    tied = "embedding" in p
    padding = torch.arange(x.shape[1])[None] >= x_len[:, None]
    later = torch.ones(y.shape[1], y.shape[1], dtype=torch.bool).triu(1)
    args = (embed(c, p, "embedding" if tied else "src_embedding", "src_positions", x),
            embed(c, p, "embedding" if tied else "tgt_embedding", "tgt_positions", y))
    top = torch.func.functional_call(module, module_weights(c, p), args, dict(
        tgt_mask=later, src_key_padding_mask=padding, memory_key_padding_mask=padding))
    W = p[next(k for k in ("output_kernel", "embedding", "tgt_embedding") if k in p)]
    return top @ W.T + p.get("output_bias", 0.0)


def loss(c, p, x, x_len, y, y_len):
    """Returns the loss of each sentence, the weight, and the number of right words."""
    label, n = y[:, 1:], y_len - 1
    z = logits(c, p, x, x_len, y[:, :-1])[:, :, :c["classes"]]
    lp, e, V = F.log_softmax(z, 2), c.get("label_smoothing", 0.0), c["classes"]
    right = -lp.gather(2, label.clamp(max=V - 1)[:, :, None])[:, :, 0]
    every = -lp.sum(2)
    if c.get("label_smoothing_form") == "fairseq":
        each = (1.0 - e) * right + e / (V - 1) * (every - right)
    else:
        each = (1.0 - e) * right + e / V * every
    here = torch.arange(label.shape[1])[None] < n[:, None]
    right_words = int(((z.argmax(2) == label) & here).sum())
    return (each * here).sum(1), float(n.sum()) if c.get("average_across_timesteps") else float(len(n)), right_words
